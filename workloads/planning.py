"""A plan for somebody who names none: one that fits, and idles least among those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from heliograph.errors import WorkloadError
from workloads.architecture import TransformerConfig
from workloads.memory import GIBIBYTE, fullest_stage, memory_by_kind
from workloads.parallelism import Parallelism, Recompute, check, default_sequence_length

LARGEST_TENSOR = 8
"""Most tensor-parallel ranks that a default plan takes: accelerators of a common node; a choice."""
MOST_MICROBATCH_TOKENS = 8192
"""Tokens beyond which a microbatch is not made larger; a choice, products are long enough by then."""
MEMORY_SHARE = 0.94
"""Share of the memory that a default plan fills; a choice, the rest is for libraries and fragments."""
RECOMPUTED_PASSES = {Recompute.NONE: 3, Recompute.FULL: 4}
"""Forward-sized passes of a step: one forward, two backward, one more if all is recomputed."""


@dataclass(frozen=True)
class _Candidate:
    plan: Parallelism
    score: tuple[float, int, int, int]


def default_plan(
    config: TransformerConfig,
    *,
    accelerators: int,
    memory_bytes: float,
    global_batch: int,
    sequence_length: int | None = None,
) -> Parallelism:
    """Return a plan that fits, deterministic for its arguments.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    accelerators : int
        Accelerators that the plan takes, all of them.
    memory_bytes : float
        Memory of each.
    global_batch : int
        Sequences in a step.
    sequence_length : int, optional
        Tokens in a sequence; by default `workloads.parallelism.default_sequence_length`.

    Returns
    -------
    Parallelism
        With flash attention, the optimizer shared (`zero` = 1) and no expert parallelism. Among the plans
        with tp <= 8 that fill at most 94 % of the memory, the one with the least estimated time
        (1 + (p-1)/m) x (4/3 if all is recomputed) x (fullest stage's blocks p / L); then the smallest
        tp x pp, then the smallest tp, then the largest microbatch of at most 8192 tokens.

    Raises
    ------
    WorkloadError
        If no plan fits, saying what the nearest one needs.
    """
    if accelerators < 1 or not memory_bytes > 0:
        msg = f"a plan needs accelerators ({accelerators}) and memory ({memory_bytes} bytes) above zero"
        raise WorkloadError(msg)
    sequence = sequence_length or default_sequence_length(config)
    best: _Candidate | None = None
    least = float("inf")
    tried = 0
    for plan in _plans(config, accelerators, global_batch, sequence):
        tried += 1
        candidate = _Candidate(plan, _score(config, plan))
        if best is not None and candidate.score >= best.score:
            continue
        needed = sum(memory_by_kind(config, plan, fullest_stage(config, plan)).values())
        least = min(least, needed)
        if needed <= memory_bytes * MEMORY_SHARE:
            best = candidate
    if best is None:
        raise _no_plan(config, accelerators, memory_bytes, global_batch, least if tried else None)
    return best.plan


def _no_plan(
    config: TransformerConfig, accelerators: int, memory_bytes: float, global_batch: int, least: float | None
) -> WorkloadError:
    """Return the error of a search in vain; `least` is what the leanest plan needs, None without one."""
    if least is None:
        msg = (
            f"no plan shares {config.name} and a global_batch of {global_batch} over {accelerators} "
            "accelerators; try a multiple of both, such as a power of two, or a larger global_batch"
        )
        return WorkloadError(msg)
    usable = memory_bytes * MEMORY_SHARE
    msg = (
        f"{config.name} does not fit {accelerators} accelerators: the leanest plan needs "
        f"{least / GIBIBYTE:.1f} GiB on each, of which {usable / GIBIBYTE:.1f} GiB may be filled; try more "
        "accelerators or a shorter sequence_length"
    )
    return WorkloadError(msg)


def _plans(
    config: TransformerConfig, accelerators: int, global_batch: int, sequence: int
) -> Iterator[Parallelism]:
    """Yield the plans that divide everything they must."""
    for tp in range(1, LARGEST_TENSOR + 1):
        if accelerators % tp:
            continue
        stages = accelerators // tp
        for pp in range(1, min(config.layers, stages) + 1):
            if stages % pp or global_batch % (stages // pp):
                continue
            for recompute in RECOMPUTED_PASSES:
                for micro_batch in (1, 2, 4, 8, 16, 32):
                    if micro_batch > 1 and micro_batch * sequence > MOST_MICROBATCH_TOKENS:
                        break
                    plan = Parallelism(
                        tp=tp,
                        pp=pp,
                        dp=stages // pp,
                        micro_batch=micro_batch,
                        global_batch=global_batch,
                        sequence_length=sequence,
                        recompute=recompute,
                    )
                    if _allowed(config, plan):
                        yield plan


def _allowed(config: TransformerConfig, plan: Parallelism) -> bool:
    try:
        check(config, plan)
    except WorkloadError:
        return False
    return True


def _score(config: TransformerConfig, plan: Parallelism) -> tuple[float, int, int, int]:
    bubble = 1 + (plan.pp - 1) / plan.microbatches
    uneven = -(-config.layers // plan.pp) * plan.pp / config.layers
    time = bubble * uneven * RECOMPUTED_PASSES[plan.recompute] / RECOMPUTED_PASSES[Recompute.NONE]
    return (round(time, 6), plan.tp * plan.pp, plan.tp, -plan.micro_batch)
