"""In which order a pipeline stage runs the forward and backward passes of its microbatches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from heliograph.errors import WorkloadError
from workloads.parallelism import Schedule


class Pass(StrEnum):
    """What a run through a stage does; a backward pass may be split into one of inputs and one of weights."""

    FORWARD = "forward"
    BACKWARD = "backward"
    INPUT = "backward of inputs"
    WEIGHT = "backward of weights"


@dataclass(frozen=True, slots=True)
class Slot:
    """One run of one microbatch through one chunk of a stage."""

    microbatch: int
    """Which microbatch."""
    direction: Pass
    """Forward or backward."""
    chunk: int = 0
    """Which of the stage's chunks."""


Order = tuple[tuple[Slot, ...], ...]
"""For every stage, its slots in order."""


def gpipe(stages: int, microbatches: int) -> Order:
    """Return GPipe's order: all forward passes, then all backward passes.

    Parameters
    ----------
    stages, microbatches : int
        At least 1 each.

    References
    ----------
    Huang et al., GPipe, arXiv:1811.06965, figure 2c.
    """
    check_sizes(stages, microbatches)
    forward = [Slot(microbatch, Pass.FORWARD) for microbatch in range(microbatches)]
    backward = [Slot(microbatch, Pass.BACKWARD) for microbatch in range(microbatches)]
    return ((*forward, *backward),) * stages


def one_forward_one_backward(stages: int, microbatches: int) -> Order:
    """Return the order that alternates as soon as it can, so that few microbatches are kept.

    Parameters
    ----------
    stages, microbatches : int
        At least 1 each.

    Notes
    -----
    Stage *i* of *p* runs p - 1 - i forward passes first, then pairs of one forward and one backward pass,
    then the backward passes that are left; it never keeps more than p - i microbatches. With equal times the
    bubble is (p - 1) / m of the ideal time, as for GPipe.

    References
    ----------
    Narayanan et al., arXiv:2104.04473, section 2.2.1 and figure 4 (PipeDream-Flush).
    """
    check_sizes(stages, microbatches)
    order: list[tuple[Slot, ...]] = []
    for stage in range(stages):
        ahead = min(stages - 1 - stage, microbatches)
        slots = [Slot(microbatch, Pass.FORWARD) for microbatch in range(ahead)]
        for pair in range(microbatches - ahead):
            slots.append(Slot(ahead + pair, Pass.FORWARD))
            slots.append(Slot(pair, Pass.BACKWARD))
        slots.extend(Slot(left, Pass.BACKWARD) for left in range(microbatches - ahead, microbatches))
        order.append(tuple(slots))
    return tuple(order)


def interleaved(stages: int, microbatches: int, chunks: int) -> Order:
    """Return 1F1B on stages that hold several chunks of blocks each.

    Parameters
    ----------
    stages, microbatches, chunks : int
        At least 1 each; the stages must divide the microbatches.

    Raises
    ------
    WorkloadError
        If they do not.

    Notes
    -----
    Chunk *c* of stage *i* is part c p + i of the model. Microbatches go in groups of p, each group through
    one chunk after the other. Stage *i* runs 2 (p - 1 - i) + (v - 1) p passes ahead. With equal times the
    bubble is (p - 1) / (v m) of the ideal time, and the first stage keeps (p - 1) / (p v) more than without
    interleaving.

    References
    ----------
    Narayanan et al., arXiv:2104.04473, section 2.2.2; Korthikanti et al., arXiv:2205.05198, section 4.2.3.
    """
    check_sizes(stages, microbatches)
    if chunks == 1:
        return one_forward_one_backward(stages, microbatches)
    if microbatches % stages:
        msg = (
            f"schedule: stages ({stages}) must divide microbatches ({microbatches}) to interleave; "
            f"try {-(-microbatches // stages) * stages} microbatches"
        )
        raise WorkloadError(msg)
    round_of = [(chunk, place) for chunk in range(chunks) for place in range(stages)]
    forward = [
        Slot(start + place, Pass.FORWARD, chunk)
        for start in range(0, microbatches, stages)
        for chunk, place in round_of
    ]
    backward = [Slot(slot.microbatch, Pass.BACKWARD, chunks - 1 - slot.chunk) for slot in forward]
    order = []
    for stage in range(stages):
        ahead = min(2 * (stages - 1 - stage) + (chunks - 1) * stages, len(forward))
        slots = forward[:ahead]
        for pair in range(len(forward) - ahead):
            slots += [forward[ahead + pair], backward[pair]]
        order.append((*slots, *backward[len(forward) - ahead :]))
    return tuple(order)


def in_flight(kind: Schedule, stages: int, microbatches: int, stage: int) -> int:
    """Return how many microbatches' activations a stage keeps at most, where it holds one chunk."""
    match kind:
        case Schedule.GPIPE:
            return microbatches
        case Schedule.ZERO_BUBBLE:
            return min(microbatches, stages)
        case Schedule.ZB_H2:
            return min(microbatches, 2 * stages - 1)
        case Schedule.PIPEDREAM | Schedule.PIPEDREAM_2BW:
            return stages - stage
        case _:
            return min(microbatches, stages - stage)


def check_sizes(stages: int, microbatches: int) -> None:
    """Check that a schedule has stages and microbatches."""
    for name, value in (("stages", stages), ("microbatches", microbatches)):
        if value < 1:
            msg = f"schedule: {name} must be at least 1; got {value}"
            raise WorkloadError(msg)
