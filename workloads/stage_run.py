"""One pipeline stage's tasks in a step: passes, sends, gathers, sums and the update."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from heliograph.operators import Collective, CollectiveKind, Operator, Phase, Sequence, Task
from workloads.architecture import TransformerConfig
from workloads.passes import Passes
from workloads.pipeline import Pipeline
from workloads.schedules import Pass, Slot
from workloads.sharding import (
    RankParameters,
    StagePart,
    chunk_parts,
    optimizer_share,
    part_parameters,
    stage_chunks,
    whole_stage,
)
from workloads.transformer import Item
from workloads.updates import update_work

PHASES = {
    Pass.FORWARD: Phase.FORWARD,
    Pass.BACKWARD: Phase.GRAD_INPUT,
    Pass.INPUT: Phase.GRAD_INPUT,
    Pass.WEIGHT: Phase.GRAD_WEIGHT,
}
"""Phase that a pass is reported under."""


Arrival = tuple[int, int, int, bool]
"""Stage, chunk and microbatch of a pass, and whether it runs forward."""


@dataclass
class Graph:
    """Tasks collected so far, and the ids that later tasks wait for."""

    tasks: list[Task] = field(default_factory=list)
    """All tasks."""
    arrived: dict[Arrival, int] = field(default_factory=dict)
    """Task that brings the input of a pass."""
    twins: dict[int, int] = field(default_factory=dict)
    """Task by which a stage sends gradients to the stage with the same parameters."""

    def add(
        self,
        stage: int,
        operator: Operator,
        after: tuple[int, ...],
        priority: int,
        *,
        times: int = 1,
        beside: bool = False,
    ) -> int:
        """Add a task and return its id."""
        identifier = len(self.tasks)
        self.tasks.append(
            Task(
                id=identifier,
                rank_class=stage,
                operator=operator,
                after=after,
                multiplicity=times,
                priority=priority,
                beside=beside,
            )
        )
        return identifier


class StageRun:
    """Adds one stage's tasks to the graph, slot after slot.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    pipeline : Pipeline
        Plan and way of the microbatches.
    stage : int
        The stage.
    passes : Passes
        Operators of its parts.
    graph : Graph
        Where tasks are added.
    """

    def __init__(
        self, config: TransformerConfig, pipeline: Pipeline, stage: int, passes: Passes, graph: Graph
    ) -> None:
        self.config = config
        self.plan = pipeline.plan
        self.pipeline = pipeline
        self.stage = stage
        self.passes = passes
        self.graph = graph
        self.chunks = stage_chunks(config, self.plan, stage)
        self.parts = [chunk_parts(self.plan, chunk) for chunk in self.chunks]
        self.priority = 0
        self.sums: dict[int, tuple[int, ...]] = {}
        self.forwards: dict[tuple[int, int], int] = {}
        self.gathered: tuple[int, ...] = ()
        self.computed: list[int] = []
        self.runs: Counter[tuple[int, Pass]] = Counter()
        every = Counter(slot.chunk for slot in pipeline.order()[stage] if slot.direction is Pass.FORWARD)
        self.last = {chunk: count - 1 for chunk, count in every.items()}

    def ready(self, slot: Slot) -> bool:
        """Return whether a slot's input has been sent."""
        source = self.pipeline.source((self.stage, slot.chunk), slot.direction)
        return slot.direction is Pass.WEIGHT or source is None or self._arrival(slot) in self.graph.arrived

    def _arrival(self, slot: Slot) -> Arrival:
        return (self.stage, slot.chunk, slot.microbatch, slot.direction is Pass.FORWARD)

    def run(self, slot: Slot) -> None:
        """Add a slot's compute tasks, the gathers before and the sums and the send after them."""
        arrived = self.graph.arrived.get(self._arrival(slot))
        after = () if arrived is None or slot.direction is Pass.WEIGHT else (arrived,)
        place = (slot.chunk, slot.microbatch)
        if slot.direction is not Pass.FORWARD:
            after = (*after, self.forwards.pop(place))
        gathers, sums = self._gathers(slot), self._sums(slot)
        pieces = self.parts[slot.chunk] if gathers or sums else (self.chunks[slot.chunk],)
        finished = self._pieces(slot, pieces, after, gathers=gathers, sums=sums)
        if slot.direction in {Pass.FORWARD, Pass.INPUT}:
            self.forwards[place] = finished
        self.runs[slot.chunk, slot.direction] += 1
        self._send(slot, finished)

    def _gathers(self, slot: Slot) -> bool:
        plan = self.plan
        if plan.gradient_ranks == 1 or plan.zero == 0 or slot.direction is Pass.WEIGHT:
            return False
        if plan.gathers_every_microbatch and (plan.reshard or slot.direction is Pass.FORWARD):
            return True
        return slot.direction is Pass.FORWARD and not self.runs[slot.chunk, slot.direction]

    def _sums(self, slot: Slot) -> bool:
        plan = self.plan
        if plan.gradient_ranks == 1 or slot.direction in {Pass.FORWARD, Pass.INPUT}:
            return False
        done = self.runs[slot.chunk, Pass.BACKWARD] + self.runs[slot.chunk, Pass.WEIGHT]
        return plan.shards_gradients or done == self.last[slot.chunk]

    def _pieces(
        self, slot: Slot, pieces: tuple[StagePart, ...], after: tuple[int, ...], *, gathers: bool, sums: bool
    ) -> int:
        """Run the pieces of a chunk one after the other and return the last one's id."""
        forward = slot.direction is Pass.FORWARD
        kind = CollectiveKind.REDUCE_SCATTER if self.plan.zero else CollectiveKind.ALL_REDUCE
        waiting = after
        summed: tuple[int, ...] = ()
        for part in pieces if forward else reversed(pieces):
            needs = waiting
            if gathers:
                held = part_parameters(self.config, self.plan, part)
                self.gathered = self._over_data(held, CollectiveKind.ALL_GATHER, self._before_gather())
                needs = tuple(dict.fromkeys((*waiting, *self.gathered)))
            finished = self._compute(slot, part, needs)
            if sums:
                held = part_parameters(self.config, self.plan, part)
                summed = self._over_data(held, kind, (finished, *summed))
            waiting = (finished,)
        if slot.direction in {Pass.BACKWARD, Pass.WEIGHT}:
            self.sums[slot.chunk] = summed or waiting
        return waiting[0]

    def _before_gather(self) -> tuple[int, ...]:
        """Return what a gather waits for: with sharded parameters, room for one piece ahead of compute."""
        if not self.plan.gathers_every_microbatch:
            return self.gathered
        return tuple(self.computed[-2:-1])

    def _compute(self, slot: Slot, part: StagePart, after: tuple[int, ...]) -> int:
        others, ring = self.passes.ring(part, slot.direction)
        if others:
            # The order within a run changes no time; first, what the ring runs beside.
            before = tuple(dict.fromkeys((*after, *self.computed[-1:])))
            beside = [
                self.graph.add(self.stage, one, before, self.priority, times=part.layers) for one in ring
            ]
            after = (self._sequence(slot, others, after), *beside)
        self.computed.append(self._sequence(slot, self.passes.of(part, slot.direction), after))
        return self.computed[-1]

    def _sequence(self, slot: Slot, items: tuple[Item, ...], after: tuple[int, ...]) -> int:
        sequence = Sequence(
            name=slot.direction.value,
            phase=PHASES[slot.direction],
            items=items,
            microbatch=slot.microbatch,
            chunk=slot.chunk,
        )
        self.priority += 1
        return self.graph.add(self.stage, sequence, after, self.priority)

    def _over_data(
        self, held: RankParameters, kind: CollectiveKind, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Add the sums or gathers of a part's parameters and return the last one's id."""
        plan = self.plan
        gathers = kind is CollectiveKind.ALL_GATHER
        each = plan.precision.element_bytes if gathers else plan.grad_bytes
        apart = plan.ep > 1 and held.expert > 0
        if plan.uses_servers:
            kind = CollectiveKind.PULL if gathers else CollectiveKind.PUSH
        groups = [(plan.gradient_axis, plan.gradient_ranks, held.dense if apart else held.total)]
        if apart:
            groups.append(("edp", plan.gradient_ranks // plan.ep, held.expert))
        for axis, size, count in groups:
            if size == 1 or count == 0:
                continue
            collective = Collective(
                name="parameters" if gathers else "gradients",
                layer="parameters" if gathers else "gradients",
                phase=Phase.FORWARD if gathers else Phase.GRAD_WEIGHT,
                kind=kind,
                axis=axis,
                size=size,
                payload_bytes=count * each / (size if kind is CollectiveKind.ALL_GATHER else 1),
                servers=plan.server_count if plan.uses_servers else 0,
            )
            after = (self.graph.add(self.stage, collective, after, self.priority),)
        return after

    def _send(self, slot: Slot, finished: int) -> None:
        target = self.pipeline.target((self.stage, slot.chunk), slot.direction)
        if target is None:
            return
        receiver, chunk = target
        forward = slot.direction is Pass.FORWARD
        key = (receiver, chunk, slot.microbatch, forward)
        if receiver == self.stage:
            self.graph.arrived[key] = finished
            return
        plan = self.plan
        shards = plan.tp if plan.sequence_parallel else 1
        elements = plan.tokens * self.config.hidden / shards
        send = Collective(
            name="activations" if forward else "activation gradients",
            layer="pipeline",
            phase=Phase.FORWARD if forward else Phase.GRAD_INPUT,
            kind=CollectiveKind.SEND,
            axis="pp",
            size=2,
            payload_bytes=elements * plan.precision.element_bytes,
            shift=receiver - self.stage,
        )
        self.graph.arrived[key] = self.graph.add(self.stage, send, (finished,), self.priority)

    @property
    def held(self) -> RankParameters:
        """Parameters of the stage on one rank."""
        return part_parameters(self.config, self.plan, whole_stage(self.config, self.plan, self.stage))

    def exchange(self) -> None:
        """With two copies of every parameter, send half of the gradients to the stage that has the other."""
        if self.plan.two_copies:
            after = tuple(identifier for ids in self.sums.values() for identifier in ids)
            send = self._to_twin("gradients", Phase.GRAD_WEIGHT, self.plan.grad_bytes)
            self.graph.twins[self.stage] = self.graph.add(self.stage, send, after, self.priority)

    def _to_twin(self, name: str, phase: Phase, each: int) -> Collective:
        twin = self.plan.pp - 1 - self.stage
        return Collective(
            name=name,
            layer=name,
            phase=phase,
            kind=CollectiveKind.SEND,
            axis="pp",
            size=2,
            payload_bytes=optimizer_share(self.plan, self.held) * each,
            shift=twin - self.stage,
        )

    def update(self) -> int:
        """Add the optimizer after all gradient sums of the stage and return its id."""
        after = tuple(identifier for ids in self.sums.values() for identifier in ids)
        if self.plan.two_copies:
            after = (*after, self.graph.twins[self.plan.pp - 1 - self.stage])
        self.priority += 1
        work = update_work(self.config, self.plan, self.held)
        beside = self.plan.uses_servers and not self.plan.waits_for_pulls
        done = self.graph.add(self.stage, work, after, self.priority, beside=beside)
        if self.plan.two_copies:
            send = self._to_twin("parameters", Phase.UPDATE, self.plan.precision.element_bytes)
            self.graph.add(self.stage, send, (done,), self.priority)
        return done
