"""Pipeline orders folded into a V: a stage holds a chunk from the start and one from the end of the model."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from heliograph.errors import WorkloadError
from workloads.schedules import Order, Pass, Slot, check_sizes

PERIOD = 6
"""Passes that a stage runs for one microbatch: forward, inputs and weights, of two chunks."""


@dataclass(frozen=True, slots=True)
class _Block:
    """When the four passes of one microbatch that depend on each other run; repeated every `PERIOD`."""

    steps: tuple[int, int, int, int]
    """From stage to stage: down and up the V forward, down and up again backward."""
    turns: tuple[int, int, int]
    """Extra wait at the three turns, so that no two passes of a stage fall on one place of the period."""

    def starts(self, stages: int, stage: int) -> dict[tuple[Pass, int], int]:
        """Return the start of each pass of a stage: (pass, chunk) -> time in passes."""
        down, up, back_down, back_up = self.steps
        last = stages - 1
        turn = down * last + 1 + self.turns[0]
        loss = turn + up * last + 1 + self.turns[1]
        again = loss + back_down * last + 1 + self.turns[2]
        return {
            (Pass.FORWARD, 0): down * stage,
            (Pass.FORWARD, 1): turn + up * (last - stage),
            (Pass.INPUT, 1): loss + back_down * stage,
            (Pass.INPUT, 0): again + back_up * (last - stage),
        }


def v_min(stages: int, microbatches: int) -> Order:
    """Return V-Min: a third of the activations of 1F1B.

    Parameters
    ----------
    stages, microbatches : int
        At least 1 each.

    Notes
    -----
    Every stage keeps at most ceil((p + 2) / 3) microbatches. With equal times of all passes the bubble is
    below 2/3 of that of 1F1B, 2 (p - 1) of a stage's forward pass.

    References
    ----------
    Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362, section 3 and table 1.
    """
    check_sizes(stages, microbatches)
    block = _Block((1, 1, 1, 1), (1, 0, 3) if stages % 3 == 0 else (0, 0, 0))
    return _filled(block, stages, microbatches, most=2 * -(-(stages + 2) // 3))


def v_half(stages: int, microbatches: int) -> Order:
    """Return V-Half: half of the activations of 1F1B.

    Parameters
    ----------
    stages, microbatches : int
        At least 1 each.

    Notes
    -----
    Every stage keeps at most floor(p / 2) + 1 microbatches. With equal times of all passes the bubble is
    below half of that of 1F1B, 1.5 (p - 1) of a stage's forward pass.

    References
    ----------
    Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362, section 3 and table 1.
    """
    check_sizes(stages, microbatches)
    block = _Block((1, 2, 1, 2), (0, 0, 0) if stages % 2 else (2, 0, 3))
    return _filled(block, stages, microbatches, most=2 * (stages // 2 + 1))


def _filled(block: _Block, stages: int, microbatches: int, *, most: int) -> Order:
    """Play a block once per microbatch and let gradients of weights run where a stage would wait.

    A stage keeps the order of the block's passes and no more than `most` chunks' activations; time runs in
    passes of equal length.
    """
    run = _Greedy(block, stages, microbatches, most)
    left = PERIOD * stages * microbatches
    while left:
        chosen = [(stage, slot) for stage in range(stages) if (slot := run.choice(stage)) is not None]
        if not chosen:
            msg = f"schedule: {stages} stages cannot go on with {most} chunks kept"
            raise WorkloadError(msg)
        for stage, slot in chosen:
            run.take(stage, slot)
        left -= len(chosen)
    return tuple(tuple(slots) for slots in run.slots)


class _Greedy:
    """What every stage has run so far, and what it could run next."""

    def __init__(self, block: _Block, stages: int, microbatches: int, most: int) -> None:
        self.slots: list[list[Slot]] = [[] for _ in range(stages)]
        self._last = stages - 1
        self._most = most
        self._done: set[tuple[int, Slot]] = set()
        self._kept: Counter[int] = Counter()
        self._weights: list[deque[Slot]] = [deque() for _ in range(stages)]
        self._ahead = [
            deque(
                Slot(microbatch, direction, chunk)
                for _, direction, chunk, microbatch in sorted(
                    (start + PERIOD * microbatch, direction, chunk, microbatch)
                    for (direction, chunk), start in block.starts(stages, stage).items()
                    for microbatch in range(microbatches)
                )
            )
            for stage in range(stages)
        ]

    def choice(self, stage: int) -> Slot | None:
        """Return what a stage runs next, None if it must wait."""
        ahead, weights = self._ahead[stage], self._weights[stage]
        if ahead and self._ready(stage, ahead[0]):
            return ahead[0]
        return weights[0] if weights else None

    def _ready(self, stage: int, slot: Slot) -> bool:
        forward = slot.direction is Pass.FORWARD
        if forward and self._kept[stage] >= self._most:
            return False
        source = self._source(stage, slot)
        return source is None or source in self._done

    def _source(self, stage: int, slot: Slot) -> tuple[int, Slot] | None:
        """Return the pass that a pass takes its input from: down the V with chunk 0 forward, 1 backward."""
        down = (slot.direction is Pass.FORWARD) == (slot.chunk == 0)
        neighbour = stage - 1 if down else stage + 1
        if 0 <= neighbour <= self._last:
            return neighbour, slot
        if slot.direction is Pass.FORWARD:
            return None if slot.chunk == 0 else (stage, Slot(slot.microbatch, Pass.FORWARD, 0))
        turned = (Pass.FORWARD, 1) if slot.chunk == 1 else (Pass.INPUT, 1)
        return stage, Slot(slot.microbatch, *turned)

    def take(self, stage: int, slot: Slot) -> None:
        """Run a slot."""
        self._done.add((stage, slot))
        self.slots[stage].append(slot)
        if slot.direction is Pass.WEIGHT:
            self._weights[stage].popleft()
            self._kept[stage] -= 1
            return
        self._ahead[stage].popleft()
        if slot.direction is Pass.FORWARD:
            self._kept[stage] += 1
        else:
            self._weights[stage].append(Slot(slot.microbatch, Pass.WEIGHT, slot.chunk))


def zb_v(stages: int, microbatches: int) -> Order:
    """Return ZB-V: no bubble with as much memory as 1F1B.

    Parameters
    ----------
    stages, microbatches : int
        At least 1 stage, and 2 p - 1 microbatches.

    Raises
    ------
    WorkloadError
        If there are fewer microbatches.

    Notes
    -----
    Every stage keeps at most p microbatches, half of each in either chunk. With equal times of all passes a
    stage is busy from its first to its last pass; what is sent between stages doubles, as for any two chunks.

    References
    ----------
    Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 6 and figure 6.
    """
    check_sizes(stages, microbatches)
    if microbatches < 2 * stages - 1:
        msg = (
            f"schedule: zb_v needs at least twice the stages ({stages}) less one microbatches; "
            f"got {microbatches}, try {2 * stages - 1}"
        )
        raise WorkloadError(msg)
    return tuple(_folded_stage(stage, stages, microbatches) for stage in range(stages))


def _folded_stage(stage: int, stages: int, microbatches: int) -> tuple[Slot, ...]:
    """Return one stage's slots of ZB-V: fill the V, turn, alternate, drain."""
    count: Counter[tuple[Pass, int]] = Counter()
    slots: list[Slot] = []

    def run(direction: Pass, chunk: int) -> None:
        slots.append(Slot(count[direction, chunk], direction, chunk))
        count[direction, chunk] += 1

    def back(chunk: int) -> None:
        run(Pass.INPUT, chunk)
        run(Pass.WEIGHT, chunk)

    behind = stages - stage
    for _ in range(2 * behind - 1):
        run(Pass.FORWARD, 0)
    for _ in range(stage):
        run(Pass.FORWARD, 1)
        run(Pass.FORWARD, 0)
    for _ in range(behind):
        run(Pass.FORWARD, 1)
        back(1)
    while count[Pass.FORWARD, 1] < microbatches:
        if count[Pass.FORWARD, 0] < microbatches:
            run(Pass.FORWARD, 0)
        back(0)
        run(Pass.FORWARD, 1)
        back(1)
    for _ in range(stage):
        run(Pass.INPUT, 0)
        run(Pass.INPUT, 1)
    for _ in range(behind):
        back(0)
    for chunk in (1, 0):
        while count[Pass.WEIGHT, chunk] < microbatches:
            run(Pass.WEIGHT, chunk)
    return tuple(slots)
