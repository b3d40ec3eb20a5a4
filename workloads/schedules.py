"""In which order a pipeline stage runs the forward and backward passes of its microbatches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from heliograph.errors import WorkloadError
from workloads.parallelism import Schedule


class Pass(StrEnum):
    """Direction of a run through a stage."""

    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class Slot:
    """One run of one microbatch through one stage."""

    microbatch: int
    """Which microbatch."""
    direction: Pass
    """Forward or backward."""


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
    _check(stages, microbatches)
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
    _check(stages, microbatches)
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


def schedule_of(kind: Schedule, stages: int, microbatches: int) -> Order:
    """Return the order of a named schedule."""
    if kind is Schedule.GPIPE:
        return gpipe(stages, microbatches)
    return one_forward_one_backward(stages, microbatches)


def in_flight(kind: Schedule, stages: int, microbatches: int, stage: int) -> int:
    """Return how many microbatches' activations a stage keeps at most."""
    return microbatches if kind is Schedule.GPIPE else min(microbatches, stages - stage)


def _check(stages: int, microbatches: int) -> None:
    for name, value in (("stages", stages), ("microbatches", microbatches)):
        if value < 1:
            msg = f"schedule: {name} must be at least 1; got {value}"
            raise WorkloadError(msg)
