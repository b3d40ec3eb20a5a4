"""Which chunks of the model stand on which stage, in which order they run, and how much they keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import pairwise

from workloads.choices import Schedule
from workloads.folded_schedules import v_half, v_min, zb_v
from workloads.plan import Parallelism
from workloads.schedules import Order, Pass, gpipe, in_flight, interleaved
from workloads.split_schedules import dualpipe, zero_bubble

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
