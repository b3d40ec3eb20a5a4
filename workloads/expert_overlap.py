"""A microbatch's expert exchanges beside another microbatch's work: two passes woven into one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from heliograph.operators import Collective
from workloads.choices import Schedule
from workloads.passes import Passes
from workloads.plan import Parallelism
from workloads.schedules import Pass, Slot
from workloads.sharding import StagePart
from workloads.stage_run import StageRun
from workloads.transformer import Item

Piece = tuple[tuple[Item, ...], tuple[Collective, ...]]
"""Work without an exchange, and the exchanges that follow it."""


def paired(plan: Parallelism, slots: Sequence[Slot], index: int) -> bool:
    """Return whether a slot of a stage and the next one are woven into one.

    Notes
    -----
    Of 1F1B, a backward pass with the forward pass after it, as if one more microbatch had been let in
    (Megatron-LM's 1F1B overlap of expert communication); of DualPipe, a forward pass with the backward pass
    after it, which runs the other way (DeepSeek-V3, arXiv:2412.19437, section 3.2.1).
    """
    if not plan.overlap_experts or index + 1 >= len(slots):
        return False
    first, second = slots[index], slots[index + 1]
    wanted = (Pass.BACKWARD, Pass.FORWARD)
    if plan.schedule is Schedule.DUALPIPE:
        wanted = (Pass.FORWARD, Pass.BACKWARD)
    same = (first.microbatch, first.chunk) == (second.microbatch, second.chunk)
    return (first.direction, second.direction) == wanted and not same


def pieces(passes: Passes, part: StagePart, direction: Pass) -> tuple[Piece, ...]:
    """Return a pass through a part cut at its expert exchanges, block after block."""
    found: list[Piece] = []
    work: list[Item] = []
    for operator, times in passes.one_by_one(part, direction):
        if not isinstance(operator, Collective) or operator.axis != "ep":
            work.append((operator, times))
            continue
        if work or not found:
            found.append((tuple(work), ()))
            work = []
        items, exchanges = found[-1]
        found[-1] = (items, (*exchanges, *(operator,) * times))
    if work:
        found.append((tuple(work), ()))
    return tuple(found)


def run_pair(run: StageRun, first: Slot, second: Slot) -> None:
    """Add two slots' tasks, the pieces of their passes by turns.

    Notes
    -----
    While one pass waits for an exchange, the other one's next piece computes; a piece waits for the exchange
    before it. Passes that gather or sum parameters run one after the other as ever.
    """
    if any(run.moves_parameters(slot) for slot in (first, second)):
        run.run(first)
        run.run(second)
        return
    slots = (first, second)
    waits = [run.begin(slot) for slot in slots]
    cut = [pieces(run.passes, run.chunks[slot.chunk], slot.direction) for slot in slots]
    for turn in zip_longest(*cut):
        for place, piece in enumerate(turn):
            if piece is None:
                continue
            items, exchanges = piece
            if items:
                waits[place] = (run.compute(slots[place], items, waits[place]),)
            for exchange in exchanges:
                waits[place] = (run.graph.add(run.stage, exchange, waits[place], run.priority),)
    for slot, wait in zip(slots, waits, strict=True):
        run.finish(slot, wait)
