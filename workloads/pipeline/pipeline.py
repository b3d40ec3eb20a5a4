"""Pipeline of one plan: chunks of the model by stage, way of a microbatch, activations kept.

Its time line holds for passes of given length and sends that take no time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from simulator.errors import WorkloadError
from workloads.pipeline.schedule import Chain, InFlight, Order, Pass, Schedule, Slot, most_kept

ChunkId = tuple[int, int]
"""A stage, and one of its chunks."""
SHOWN_MICROBATCHES = 4
"""Microbatches a stage with which an order is played to find what it keeps: the peak stands before the steady
state repeats, hence a few microbatches show it."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Stages of a pipeline under a schedule."""

    schedule: Schedule
    """Order of the microbatches."""
    stages: int
    """Pipeline stages."""
    microbatches: int
    """Microbatches of a step."""
    vpp: int = 1
    """Chunks that each stage holds, where the schedule lets a plan choose."""
    steps: int = 1
    """Steps that one run holds."""
    weaves: bool = False
    """Whether a forward and a backward pass run woven into one."""

    @property
    def chunks(self) -> int:
        """Chunks on each stage."""
        return self.vpp if self.schedule.chain is Chain.LINE else 2

    @cached_property
    def chains(self) -> tuple[tuple[ChunkId, ...], ...]:
        """Ways through the model, each from the embedding to the head."""
        stages = range(self.stages)
        match self.schedule.chain:
            case Chain.BOTH_WAYS:
                return tuple((stage, 0) for stage in stages), tuple((stage, 1) for stage in reversed(stages))
            case Chain.FOLDED:
                return ((*((stage, 0) for stage in stages), *((stage, 1) for stage in reversed(stages))),)
            case _:
                return (tuple((stage, chunk) for chunk in range(self.chunks) for stage in stages),)

    @cached_property
    def _next(self) -> dict[ChunkId, ChunkId]:
        return {place: following for chain in self.chains for place, following in pairwise(chain)}

    @cached_property
    def _previous(self) -> dict[ChunkId, ChunkId]:
        return {following: place for place, following in self._next.items()}

    def source(self, place: ChunkId, direction: Pass) -> ChunkId | None:
        """Return where the input of a pass comes from, None if it starts there."""
        return (self._previous if direction is Pass.FORWARD else self._next).get(place)

    def target(self, place: ChunkId, direction: Pass) -> ChunkId | None:
        """Return where the output of a pass goes, None if it ends there."""
        if direction is Pass.WEIGHT:
            return None
        return (self._next if direction is Pass.FORWARD else self._previous).get(place)

    def order(self) -> Order:
        """Return the slots of every stage, in order."""
        count = self.microbatches * (self.steps if self.schedule.flows else 1)
        return self.schedule.passes(self.stages, count, self.vpp)

    def kept(self, stage: int, layers: tuple[float, ...]) -> float:
        """Return how many blocks' activations a stage keeps at most, each microbatch counted."""
        # A forward pass woven into a backward pass keeps its own before the other's are given up.
        woven = self.weaves and not self.schedule.two_copies
        if len(layers) == 1 and not isinstance(self.schedule.in_flight, InFlight):
            kept = self.schedule.most_in_flight(self.stages, self.microbatches, stage)
            return min(kept + woven, self.microbatches) * layers[0]
        run = self.microbatches * (self.steps if self.schedule.flows else 1)
        shown = min(run, SHOWN_MICROBATCHES * self.stages)
        slots = self.schedule.passes(self.stages, shown, self.vpp)[stage]
        return most_kept(slots, layers) + woven * max(layers)


_DURATION_PARTS = {
    Pass.FORWARD: ("forward",),
    Pass.BACKWARD: ("inputs", "weights"),
    Pass.INPUT: ("inputs",),
    Pass.WEIGHT: ("weights",),
}


@dataclass(frozen=True, kw_only=True)
class PassTimes:
    """Times of the passes of one microbatch through all that a stage holds, in any unit."""

    forward: float = 1.0
    """Forward pass."""
    inputs: float = 1.0
    """Backward pass of inputs."""
    weights: float = 1.0
    """Backward pass of weights."""

    def __post_init__(self) -> None:
        for name in ("forward", "inputs", "weights"):
            value = getattr(self, name)
            if not 0.0 < value < float("inf"):
                msg = f"time of a pass ({name}) must be above zero; got {value:g}"
                raise WorkloadError(msg)

    def of(self, direction: Pass) -> float:
        """Return the time of a pass; an undivided backward pass does both parts."""
        return float(sum(getattr(self, part) for part in _DURATION_PARTS[direction]))


@dataclass(frozen=True, slots=True)
class Played:
    """One pass with its time."""

    stage: int
    """Pipeline stage."""
    slot: Slot
    """What runs; microbatches count on from step to step."""
    start: float
    """When it starts."""
    end: float
    """When it ends."""


def play(pipeline: Pipeline, times: PassTimes, *, steps: int = 1) -> tuple[Played, ...]:
    """Return when every pass runs, each as soon as its input is there and its stage is free.

    Parameters
    ----------
    pipeline : Pipeline
        Stages, schedule and way of the microbatches.
    times : PassTimes
        Length of the passes. A stage that holds several chunks of a microbatch's way shares it among them.
    steps : int
        Steps in a row, no stage waiting for another's update; a schedule without a flush holds as many as
        the pipeline says (`Pipeline.steps`).

    Raises
    ------
    WorkloadError
        If the schedule's order is impossible.
    """
    orders = _repeated(pipeline, steps)
    share = len(pipeline.chains[0]) / pipeline.stages
    ended: dict[tuple[int, Slot], float] = {}
    free = [0.0] * len(orders)
    place = [0] * len(orders)
    found: list[Played] = []
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while place[stage] < len(order):
                slot = order[place[stage]]
                needs = _needs(pipeline, stage, slot, ended)
                if needs is None:
                    break
                start = max(free[stage], needs)
                free[stage] = start + times.of(slot.direction) / share
                ended[stage, slot] = free[stage]
                found.append(Played(stage, slot, start, free[stage]))
                place[stage] += 1
                moved = True
    if any(done < len(order) for done, order in zip(place, orders, strict=True)):
        msg = "schedule: stages wait for each other; a microbatch's passes stand in an impossible order"
        raise WorkloadError(msg)
    return tuple(found)


def _repeated(pipeline: Pipeline, steps: int) -> Order:
    order = pipeline.order()
    if pipeline.schedule.flows:
        return order
    count = pipeline.microbatches
    return tuple(
        tuple(
            Slot(slot.microbatch + step * count, slot.direction, slot.chunk)
            for step in range(steps)
            for slot in slots
        )
        for slots in order
    )


def _needs(pipeline: Pipeline, stage: int, slot: Slot, ended: dict[tuple[int, Slot], float]) -> float | None:
    """Return when what a pass needs is there, None if it has not been run yet."""
    found = [0.0]
    place = (stage, slot.chunk)
    if slot.direction is Pass.WEIGHT:
        own = (stage, Slot(slot.microbatch, Pass.INPUT, slot.chunk))
        return ended.get(own)
    if slot.direction is not Pass.FORWARD:
        own = (stage, Slot(slot.microbatch, Pass.FORWARD, slot.chunk))
        if own not in ended:
            return None
        found.append(ended[own])
    source = pipeline.source(place, slot.direction)
    if source is not None:
        kinds = (Pass.FORWARD,) if slot.direction is Pass.FORWARD else (Pass.BACKWARD, Pass.INPUT)
        arrivals = [
            ended[source[0], sent]
            for kind in kinds
            if (source[0], sent := Slot(slot.microbatch, kind, source[1])) in ended
        ]
        if not arrivals:
            return None
        found += arrivals
    return max(found)


def peak_kept(played: tuple[Played, ...], stages: int, share: float) -> tuple[float, ...]:
    """Most microbatches whose activations each stage keeps at once, chunks by their share."""
    kept: Counter[int] = Counter()
    most = [0] * stages
    releases = {Pass.BACKWARD: -1, Pass.WEIGHT: -1, Pass.FORWARD: 1, Pass.INPUT: 0}
    for one in sorted(played, key=lambda one: (one.start, one.end)):
        kept[one.stage] += releases[one.slot.direction]
        most[one.stage] = max(most[one.stage], kept[one.stage])
    return tuple(count / share for count in most)
