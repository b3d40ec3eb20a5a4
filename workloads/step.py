"""One training step as a graph of tasks: pipeline stages, microbatches, gradient sums and the update."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from heliograph.errors import WorkloadError
from heliograph.operators import (
    Collective,
    CollectiveKind,
    Elementwise,
    MatMul,
    Operator,
    Phase,
    Sequence,
    StepGraph,
    Task,
    total_flops,
)
from workloads.architecture import TransformerConfig
from workloads.parallelism import Attention, Parallelism, Precision, Recompute, check
from workloads.schedules import Pass, Slot, schedule_of
from workloads.sharding import (
    RankParameters,
    StagePart,
    optimizer_bytes,
    optimizer_share,
    part_parameters,
    stage_parts,
    whole_stage,
)
from workloads.transformer import (
    Item,
    backward_embedding,
    backward_head,
    backward_layer,
    forward_embedding,
    forward_head,
    forward_layer,
)

MOST_TASKS = 4_000_000
"""Tasks beyond which a step graph is refused before memory runs out; a choice."""
ADAM_FLOPS = 12
"""Operations of Adam per parameter: two moments, their corrections, the root, the step and the decay."""


@dataclass
class _Graph:
    """Tasks collected so far, and the ids that later tasks wait for."""

    tasks: list[Task] = field(default_factory=list)
    arrived: dict[tuple[int, Slot], int] = field(default_factory=dict)

    def add(self, stage: int, operator: Operator, after: tuple[int, ...], priority: int) -> int:
        """Add a task and return its id."""
        identifier = len(self.tasks)
        self.tasks.append(
            Task(id=identifier, rank_class=stage, operator=operator, after=after, priority=priority)
        )
        return identifier


@dataclass(frozen=True)
class _Work:
    """Operators of every part of the model, worked out once for all stages."""

    layer: dict[Pass, tuple[Item, ...]]
    embedding: dict[Pass, tuple[Item, ...]]
    head: dict[Pass, tuple[Item, ...]]

    def of(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        """Return a part's operators in a direction; identical blocks become repeats."""
        blocks = tuple((operator, count * part.layers) for operator, count in self.layer[direction])
        first = self.embedding[direction] if part.embedding else ()
        last = self.head[direction] if part.head else ()
        if direction is Pass.FORWARD:
            return (*first, *blocks, *last)
        return (*last, *blocks, *first)


def build_step(config: TransformerConfig, plan: Parallelism) -> StepGraph:
    """Return one training step of a model under a plan.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    plan : Parallelism
        How it is cut.

    Returns
    -------
    StepGraph
        Class *c* is pipeline stage *c*. Every run of a microbatch through a stage is a `Sequence` whose
        priority is its place in the schedule; sends between stages, gradient sums and parameter gathers are
        tasks of their own, so that they may overlap with compute. `model_flops` is that of `model_flops`.

    Raises
    ------
    WorkloadError
        If the plan does not fit the model, or the graph would be too large to hold.

    Notes
    -----
    With `Parallelism.zero` = 1 the parameters that the step before has updated are gathered while the first
    microbatch runs forward, and gradients are reduce-scattered while the last one runs backward, both in the
    parts of `workloads.sharding.stage_parts`; a part's sum waits for the part before (one communication
    stream). Left out: the sum of a tied embedding's two copies between the first and the last stage, and the
    few bytes of the gradient norm and the loss.
    """
    check(config, plan)
    expected = plan.pp * plan.microbatches * 4
    if expected > MOST_TASKS:
        msg = (
            f"plan: {plan.pp} stages x {plan.microbatches} microbatches make some {expected} tasks, more "
            f"than {MOST_TASKS}; use fewer stages, a larger micro_batch or a smaller global_batch"
        )
        raise WorkloadError(msg)
    work = _Work(
        layer={Pass.FORWARD: forward_layer(config, plan), Pass.BACKWARD: backward_layer(config, plan)},
        embedding={
            Pass.FORWARD: forward_embedding(config, plan),
            Pass.BACKWARD: backward_embedding(config, plan),
        },
        head={Pass.FORWARD: forward_head(config, plan), Pass.BACKWARD: backward_head(config, plan)},
    )
    graph = _Graph()
    orders = schedule_of(plan.schedule, plan.pp, plan.microbatches)
    cursors = [_StageRun(config, plan, stage, work, graph) for stage in range(plan.pp)]
    _interleave(cursors, orders)
    for cursor in cursors:
        cursor.update()
    return StepGraph(
        tasks=tuple(graph.tasks),
        layout=plan.layout,
        tokens=plan.global_batch * plan.sequence_length,
        model_flops=model_flops(config, plan),
    )


def model_flops(config: TransformerConfig, plan: Parallelism) -> float:
    """Return the floating-point operations that a step's model is worth, whatever the plan does.

    Notes
    -----
    Products only, three times the forward pass (arXiv:2205.05198, appendix A; for a GPT
    72 B L s h^2 (1 + s/6h + V/12Lh)). Attention counts all s x s pairs, not the causal half; nothing that is
    recomputed and no padding of the vocabulary counts. Utilisations published with the causal half counted
    are lower for the same speed.
    """
    bare = replace(
        plan,
        tp=1,
        pp=1,
        dp=1,
        ep=1,
        micro_batch=1,
        recompute=Recompute.NONE,
        attention=Attention.FULL,
        causal_half=False,
        vocabulary_multiple=1,
    )
    layer = _product_flops(forward_layer(config, bare))
    head = _product_flops(forward_head(config, bare))
    return 3.0 * plan.global_batch * (config.layers * layer + head)


def _product_flops(items: tuple[Item, ...]) -> float:
    return sum(total_flops(operator) * repeat for operator, repeat in items if isinstance(operator, MatMul))


def _interleave(cursors: list[_StageRun], orders: tuple[tuple[Slot, ...], ...]) -> None:
    """Run every stage's slots, each as soon as what it waits for has been sent."""
    done = [0] * len(cursors)
    moved = True
    while moved:
        moved = False
        for stage, cursor in enumerate(cursors):
            order = orders[stage]
            while done[stage] < len(order) and cursor.ready(order[done[stage]]):
                last = done[stage] == len(order) - 1
                cursor.run(order[done[stage]], first=done[stage] == 0, last=last)
                done[stage] += 1
                moved = True
    if any(count < len(order) for count, order in zip(done, orders, strict=True)):
        msg = "schedule: stages wait for each other; a microbatch's passes stand in an impossible order"
        raise WorkloadError(msg)


class _StageRun:
    """Adds one stage's tasks to the graph, slot after slot."""

    def __init__(
        self, config: TransformerConfig, plan: Parallelism, stage: int, work: _Work, graph: _Graph
    ) -> None:
        self.config = config
        self.plan = plan
        self.stage = stage
        self.work = work
        self.graph = graph
        self.whole = whole_stage(config, plan, stage)
        self.parts = stage_parts(config, plan, stage)
        self.priority = 0
        self.sums: tuple[int, ...] = ()
        self.forwards: dict[int, int] = {}

    def ready(self, slot: Slot) -> bool:
        """Return whether a slot's input has been sent."""
        source = self._source(slot)
        return source is None or source in self.graph.arrived

    def _source(self, slot: Slot) -> tuple[int, Slot] | None:
        inward = self.stage == (0 if slot.direction is Pass.FORWARD else self.plan.pp - 1)
        return None if inward else (self.stage, slot)

    def run(self, slot: Slot, *, first: bool, last: bool) -> None:
        """Add a slot's compute tasks and the send after them."""
        source = self._source(slot)
        after = () if source is None else (self.graph.arrived[source],)
        if slot.direction is Pass.BACKWARD:
            after = (*after, self.forwards.pop(slot.microbatch))
        if first and self.plan.zero and self.plan.gradient_ranks > 1:
            finished = self._first_forward(slot, after)
        elif last and self.plan.gradient_ranks > 1:
            finished = self._last_backward(slot, after)
        else:
            finished = self._compute(slot, self.whole, after)
            self.sums = (finished,)
        if slot.direction is Pass.FORWARD:
            self.forwards[slot.microbatch] = finished
        self._send(slot, finished)

    def _compute(self, slot: Slot, part: StagePart, after: tuple[int, ...]) -> int:
        forward = slot.direction is Pass.FORWARD
        sequence = Sequence(
            name=slot.direction.value,
            phase=Phase.FORWARD if forward else Phase.GRAD_INPUT,
            items=self.work.of(part, slot.direction),
            microbatch=slot.microbatch,
        )
        self.priority += 1
        return self.graph.add(self.stage, sequence, after, self.priority)

    def _first_forward(self, slot: Slot, after: tuple[int, ...]) -> int:
        gathered: tuple[int, ...] = ()
        waiting = after
        for part in self.parts:
            held = part_parameters(self.config, self.plan, part)
            gathered = self._over_data(held, CollectiveKind.ALL_GATHER, gathered)
            waiting = (self._compute(slot, part, tuple(dict.fromkeys((*waiting, *gathered)))),)
        return waiting[0]

    def _last_backward(self, slot: Slot, after: tuple[int, ...]) -> int:
        kind = CollectiveKind.REDUCE_SCATTER if self.plan.zero else CollectiveKind.ALL_REDUCE
        waiting = after
        summed: tuple[int, ...] = ()
        for part in reversed(self.parts):
            finished = self._compute(slot, part, waiting)
            held = part_parameters(self.config, self.plan, part)
            summed = self._over_data(held, kind, (finished, *summed))
            waiting = (finished,)
        self.sums = summed
        return waiting[0]

    def _over_data(
        self, held: RankParameters, kind: CollectiveKind, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Add the sums or gathers of a part's parameters and return the last one's id."""
        plan = self.plan
        gathers = kind is CollectiveKind.ALL_GATHER
        each = plan.precision.element_bytes if gathers else plan.grad_bytes
        apart = plan.ep > 1 and held.expert > 0
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
                payload_bytes=count * each / (size if gathers else 1),
            )
            after = (self.graph.add(self.stage, collective, after, self.priority),)
        return after

    def _send(self, slot: Slot, finished: int) -> None:
        forward = slot.direction is Pass.FORWARD
        shift = 1 if forward else -1
        receiver = self.stage + shift
        if not 0 <= receiver < self.plan.pp:
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
            shift=shift,
        )
        self.graph.arrived[receiver, slot] = self.graph.add(self.stage, send, (finished,), self.priority)

    def update(self) -> None:
        """Add the optimizer after all gradient sums of the stage."""
        plan = self.plan
        held = part_parameters(self.config, plan, self.whole)
        count = optimizer_share(plan, held)
        state = optimizer_bytes(plan)
        stored = plan.precision.element_bytes
        # fp32 weights are their own master: they are read as weights rather than as optimizer state.
        read = state + plan.grad_bytes + (stored if plan.precision is Precision.FP32 else 0)
        adam = Elementwise(
            name="adam",
            layer="optimizer",
            phase=Phase.UPDATE,
            flops=ADAM_FLOPS * count,
            read_bytes=read * count,
            written_bytes=(state + stored) * count,
        )
        self.priority += 1
        self.graph.add(self.stage, adam, self.sums, self.priority)
