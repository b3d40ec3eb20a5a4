"""Which chunks of the model stand on which stage, in which order they run, and how much they keep.

How many versions of weights and gradients stand side by side where steps overlap.

When each pass of a schedule runs if every pass takes a given time and sending takes none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import pairwise

from simulator.errors import WorkloadError
from workloads.pipeline.schedules import (
    Order,
    Pass,
    Slot,
    dualpipe,
    gpipe,
    in_flight,
    interleaved,
    v_half,
    v_min,
    zb_v,
    zero_bubble,
)
from workloads.plan.choices import Schedule
from workloads.plan.plan import Parallelism


def weight_versions(plan: Parallelism, stage: int) -> int:
    """Return how many versions of its weights a stage keeps.

    Notes
    -----
    PipeDream stashes the version that each microbatch under way ran forward with: p - i on stage *i* of *p*,
    from 0 (arXiv:1806.03377, section 3.3). Double-buffered weights are 2 (arXiv:2006.09503, section 3.1); so
    are those of a rank that computes with one version while it pulls the next from parameter servers.
    """
    match plan.schedule:
        case Schedule.PIPEDREAM:
            return plan.pp - stage
        case Schedule.PIPEDREAM_2BW:
            return 2
        case _:
            return 1 if plan.waits_for_pulls else 2


def gradient_copies(plan: Parallelism) -> int:
    """Return how many steps' gradients a rank keeps: those it computes and those still being pushed."""
    return 2 if plan.asynchronous else 1 + plan.delay


def staleness(plan: Parallelism, stage: int) -> int:
    """Return how many updates a gradient is behind the weights it is applied to.

    Notes
    -----
    w(t+1) = w(t) - r grad f(w_0(t-p+1), ..., w_(p-1)(t)) with weight stashing, hence p - 1 - i updates on
    stage *i* (arXiv:1806.03377, section 3.3); one with double-buffered weights (arXiv:2006.09503, section
    3.1); the delay with parameter servers (Li et al., OSDI 2014, section 3.5).
    """
    match plan.schedule:
        case Schedule.PIPEDREAM:
            return plan.pp - 1 - stage
        case Schedule.PIPEDREAM_2BW:
            return 1
        case _:
            return plan.delay


def optimal_in_flight(workers: int, input_replicas: int) -> int:
    """Return the microbatches under way that keep a pipeline busy (PipeDream's NOAM), per input replica.

    Parameters
    ----------
    workers : int
        Accelerators of all stages.
    input_replicas : int
        Accelerators of the first stage.

    References
    ----------
    Narayanan et al., arXiv:1806.03377, section 3.2.
    """
    return -(-workers // input_replicas)


Place = tuple[int, int]
"""A stage, and one of its chunks."""


@dataclass(frozen=True)
class Pipeline:
    """Where a microbatch goes under a plan."""

    plan: Parallelism
    """The plan."""

    @property
    def chunks(self) -> int:
        """Chunks on each stage."""
        return 2 if self.plan.two_copies or self.plan.schedule.folded else self.plan.vpp

    @cached_property
    def chains(self) -> tuple[tuple[Place, ...], ...]:
        """Ways through the model, each from the embedding to the head."""
        stages = range(self.plan.pp)
        if self.plan.two_copies:
            return tuple((stage, 0) for stage in stages), tuple((stage, 1) for stage in reversed(stages))
        if self.plan.schedule.folded:
            return ((*((stage, 0) for stage in stages), *((stage, 1) for stage in reversed(stages))),)
        return (tuple((stage, chunk) for chunk in range(self.chunks) for stage in stages),)

    @cached_property
    def _next(self) -> dict[Place, Place]:
        return {place: following for chain in self.chains for place, following in pairwise(chain)}

    @cached_property
    def _previous(self) -> dict[Place, Place]:
        return {following: place for place, following in self._next.items()}

    def source(self, place: Place, direction: Pass) -> Place | None:
        """Return where the input of a pass comes from, None if it starts there."""
        return (self._previous if direction is Pass.FORWARD else self._next).get(place)

    def target(self, place: Place, direction: Pass) -> Place | None:
        """Return where the output of a pass goes, None if it ends there."""
        if direction is Pass.WEIGHT:
            return None
        return (self._next if direction is Pass.FORWARD else self._previous).get(place)

    def order(self) -> Order:
        """Return the slots of every stage, in order."""
        plan = self.plan
        count = plan.microbatches * (plan.steps_in_run if plan.schedule.flows else 1)
        return schedule_of(plan.schedule, plan.pp, count, plan.vpp)

    def kept(self, stage: int, layers: tuple[float, ...]) -> float:
        """Return how many blocks' activations a stage keeps at most, each microbatch counted.

        Parameters
        ----------
        stage : int
            The stage.
        layers : tuple of float
            Blocks of each of its chunks.
        """
        plan = self.plan
        # A forward pass woven into a backward pass keeps its own before the other's are given up.
        woven = plan.overlap_experts and not plan.two_copies
        if len(layers) == 1:
            kept = in_flight(plan.schedule, plan.pp, plan.microbatches, stage)
            return min(kept + woven, plan.microbatches) * layers[0]
        # The peak stands before the steady state repeats, hence a few microbatches show it.
        shown = min(plan.microbatches, 4 * plan.pp)
        return most_kept(plan.schedule, plan.pp, shown, plan.vpp)(stage, layers) + woven * max(layers)


@dataclass(frozen=True)
class _Kept:
    order: Order

    def __call__(self, stage: int, layers: tuple[float, ...]) -> float:
        held: Counter[int] = Counter()
        most = 0.0
        for slot in self.order[stage]:
            if slot.direction is Pass.FORWARD:
                held[slot.chunk] += 1
            elif slot.direction in {Pass.BACKWARD, Pass.WEIGHT}:
                held[slot.chunk] -= 1
            most = max(most, sum(layers[chunk] * count for chunk, count in held.items()))
        return most


@lru_cache(maxsize=64)
def most_kept(kind: Schedule, stages: int, microbatches: int, chunks: int) -> _Kept:
    """Return a counter of the blocks that a stage of a schedule keeps at most."""
    return _Kept(schedule_of(kind, stages, microbatches, chunks))


_BUILDERS: dict[Schedule, Callable[[int, int], Order]] = {
    Schedule.GPIPE: gpipe,
    Schedule.ZERO_BUBBLE: zero_bubble,
    Schedule.DUALPIPE: dualpipe,
    Schedule.ZB_H2: partial(zero_bubble, depth=2),
    Schedule.ZB_V: zb_v,
    Schedule.V_HALF: v_half,
    Schedule.V_MIN: v_min,
}
"""Orders that depend on stages and microbatches only; the others are those of 1F1B."""


@lru_cache(maxsize=16)
def schedule_of(kind: Schedule, stages: int, microbatches: int, chunks: int = 1) -> Order:
    """Return the order of a named schedule; `chunks` matters to 1F1B only."""
    build = _BUILDERS.get(kind)
    return build(stages, microbatches) if build else interleaved(stages, microbatches, chunks)


_DURATION_PARTS = {
    Pass.FORWARD: ("forward",),
    Pass.BACKWARD: ("inputs", "weights"),
    Pass.INPUT: ("inputs",),
    Pass.WEIGHT: ("weights",),
}


@dataclass(frozen=True, kw_only=True)
class PassTimes:
    """How long the passes of one microbatch through all that a stage holds take, in any unit."""

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
        Plan and way of the microbatches.
    times : PassTimes
        Length of the passes. A stage that holds several chunks of a microbatch's way shares it among them.
    steps : int
        Steps in a row, no stage waiting for another's update; a schedule without a flush holds as many as
        its plan says (`workloads.plan.plan.Parallelism.steps_in_run`).

    Raises
    ------
    WorkloadError
        If the schedule's order is impossible.
    """
    orders = _repeated(pipeline, steps)
    share = len(pipeline.chains[0]) / pipeline.plan.pp
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
    if pipeline.plan.schedule.flows:
        return order
    count = pipeline.plan.microbatches
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
    """Return the most microbatches whose activations each stage keeps at once, chunks counted by their share.

    Parameters
    ----------
    played : tuple of Played
        A run.
    stages : int
        Pipeline stages.
    share : float
        Chunks of a stage that a microbatch passes through.
    """
    kept: Counter[int] = Counter()
    most = [0] * stages
    releases = {Pass.BACKWARD: -1, Pass.WEIGHT: -1, Pass.FORWARD: 1, Pass.INPUT: 0}
    for one in sorted(played, key=lambda one: (one.start, one.end)):
        kept[one.stage] += releases[one.slot.direction]
        most[one.stage] = max(most[one.stage], kept[one.stage])
    return tuple(count / share for count in most)
