"""Tasks of one pipeline stage in a step.

`Passes` has the operators of any part of the model in any kind of pass. `StageRun` adds the tasks of a stage
to the graph in the order of its schedule: passes with the gathers of parameters before and the sums of
gradients after them, sends, and the update.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise

from simulator.layout import Axis
from simulator.operators import Collective, CollectiveKind, Phase, Sequence
from workloads.layers.retrieval import RetrievalParts
from workloads.layers.tensor_grid import on_grid, on_one_row, overlapped
from workloads.layers.transformer import (
    Item,
    backward_embedding,
    backward_head,
    backward_layer,
    backward_steps,
    forward_embedding,
    forward_head,
    forward_layer,
    forward_steps,
    ring_layer,
)
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import Pass, Slot
from workloads.plan.parts import Recompute
from workloads.plan.plan import Plan, Share
from workloads.step.sharding import (
    RankParameters,
    StagePart,
    chunk_parts,
    optimizer_share,
    part_parameters,
    stage_chunks,
    update_work,
    whole_stage,
)
from workloads.step.traffic import (
    Arrival,
    Gathering,
    Graph,
    HostTraffic,
    KeptOnHost,
    ShardedSums,
    gathering,
    gradient_sums,
    keep_copy,
)

ByPass = dict[Pass, tuple[Item, ...]]
"""Operators by kind of pass."""


class _Block:
    """Operators of one kind of block by kind of pass."""

    def __init__(self, config: TransformerConfig, share: Share, *, overlap_tensor: bool) -> None:
        operators = _lowered(forward_layer, backward_layer, config, share)
        forward, forward_ring = ring_layer(config, share, operators[Pass.FORWARD], forward=True)
        backward, backward_ring = ring_layer(config, share, operators[Pass.BACKWARD], forward=False)
        self.operators = _overlap_tensor(operators, share) if overlap_tensor else operators
        """Operators without ring attention to other ranks' keys."""
        self.ring_attention = _by_pass(forward, backward)
        """Ring attention to other ranks' keys."""
        self.ring: dict[Pass, tuple[Collective, ...]] = {
            Pass.FORWARD: forward_ring,
            Pass.BACKWARD: backward_ring,
            Pass.INPUT: backward_ring,
            Pass.WEIGHT: (),
        }
        """Collectives that bring those keys meanwhile."""


class Passes:
    """Operators of any part of a model under a share, in any kind of pass.

    Parameters
    ----------
    config, share : TransformerConfig, Share
        The model, and a rank's share under a plan that `workloads.plan.rules.check` accepts.
    overlap_tensor : bool
        Whether traffic of tensor ranks travels beside the products that it feeds.
    """

    def __init__(self, config: TransformerConfig, share: Share, *, overlap_tensor: bool) -> None:
        block = partial(_Block, overlap_tensor=overlap_tensor)
        self._block = block(config.unbounded, share)
        keeping = share.with_(recompute=Recompute.NONE, recompute_share=1.0)
        partly = share.recompute.recompute_share < 1.0
        self._kept = block(config, keeping) if partly else self._block
        windows = config.windowed_among(0, config.layers)
        self._windowed = block(config.windowed, share) if windows else self._block
        self._dense = block(config.dense, share) if config.dense_layers else self._block
        self._shapes = tuple(block(shape, share) for shape in config.shapes)
        self._patterns = share.experts.expert_patterns
        self._embedding = _lowered(forward_embedding, backward_embedding, config, share)
        self._head = _lowered(forward_head, backward_head, config, share)
        self._cross_attention, self._encoder = _retrieval(config, share, overlap_tensor=overlap_tensor)
        self._operators: dict[tuple[StagePart, Pass], tuple[Item, ...]] = {}
        self._rings: dict[tuple[StagePart, Pass], tuple[tuple[Item, ...], tuple[Collective, ...]]] = {}

    def operators(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        """Return a part's operators in one kind of pass; identical blocks are one with a repeat count."""
        if (part, direction) not in self._operators:
            self._operators[part, direction] = self._build(part, direction)
        return self._operators[part, direction]

    def in_order(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        """Return a part's operators in the order in which they run, block after block."""
        return self._with_ends(part, direction, self._blocks_in_order(part, direction))

    def ring(self, part: StagePart, direction: Pass) -> tuple[tuple[Item, ...], tuple[Collective, ...]]:
        """Return a part's attention to other ranks' keys, and a block's collectives that bring them."""
        if (part, direction) not in self._rings:
            attention = tuple(
                (operator, count * blocks)
                for block, blocks in self._kinds(part, direction)
                for operator, count in block.ring_attention[direction]
            )
            collectives = self._block.ring[direction] if attention else ()
            self._rings[part, direction] = attention, collectives
        return self._rings[part, direction]

    def _build(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        """Return a part's operators in one kind of pass, made anew."""
        if self._patterns > 1:
            operators = self._blocks_in_order(part, direction)
        else:
            operators = tuple(
                (operator, count * blocks)
                for block, blocks in self._kinds(part, direction)
                for operator, count in block.operators[direction]
            )
        if part.encodes:
            operators = (*operators, *self._encoder[direction])
        if part.retrieving:
            cross = ((one, count * part.retrieving) for one, count in self._cross_attention[direction])
            operators = (*operators, *cross)
        return self._with_ends(part, direction, operators)

    def _with_ends(self, part: StagePart, direction: Pass, blocks: tuple[Item, ...]) -> tuple[Item, ...]:
        """Return blocks between the embedding and the head, where a part has them."""
        embedding = self._embedding[direction] if part.embedding else ()
        head = self._head[direction] if part.head else ()
        return (*embedding, *blocks, *head) if direction is Pass.FORWARD else (*head, *blocks, *embedding)

    def _kinds(self, part: StagePart, direction: Pass) -> Iterator[tuple[_Block, int]]:
        """Yield the kinds of a part's blocks in the order of a pass, each with its number of blocks."""
        plain = part.layers - part.dense - part.windowed - part.kept - len(part.kinds)
        kinds = [
            *((self._shapes[kind], count) for kind, count in Counter(part.kinds).items()),
            (self._dense, part.dense),
            (self._windowed, part.windowed),
            (self._block, plain),
            (self._kept, part.kept),
        ]
        for block, count in kinds if direction is Pass.FORWARD else reversed(kinds):
            if count:
                yield block, count

    def _blocks_in_order(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        """Return the operators of a part's blocks, block after block, each with its pattern of exchanges.

        Windowed blocks stand evenly among the others.
        """
        others = part.layers - part.dense
        windowed = [part.windowed * place // max(others, 1) for place in range(others + 1)]
        kinds = [self._dense] * part.dense + [
            self._windowed if until > before else self._block for before, until in pairwise(windowed)
        ]
        if part.kinds:
            kinds = [self._shapes[kind] for kind in part.kinds]
        elif part.kept:
            kinds = [self._block] * (part.layers - part.kept) + [self._kept] * part.kept
        places = range(part.layers) if direction is Pass.FORWARD else reversed(range(part.layers))
        return tuple(
            item
            for place in places
            for item in _with_pattern(
                kinds[place].operators[direction], (part.pattern + place) % self._patterns
            )
        )


def _retrieval(config: TransformerConfig, share: Share, *, overlap_tensor: bool) -> tuple[ByPass, ByPass]:
    """Return the operators of one cross-attention to retrieved neighbours, and of the neighbours' encoder."""
    if config.retrieval is None:
        return {}, {}
    parts = RetrievalParts(config, share, config.retrieval)
    cross, encoder = (
        _by_pass(forward_steps(steps, share), backward_steps(steps, share))
        for steps in (parts.cross(), parts.encoder())
    )
    if overlap_tensor:
        return _overlap_tensor(cross, share), _overlap_tensor(encoder, share)
    return cross, encoder


def _with_pattern(items: tuple[Item, ...], pattern: int) -> tuple[Item, ...]:
    """Return a block's operators with its uneven exchanges in the pattern of a number."""
    if not pattern:
        return items
    return tuple(
        (replace(one, skew=replace(one.skew, pattern=pattern)), count)
        if isinstance(one, Collective) and one.skew is not None
        else (one, count)
        for one, count in items
    )


def _overlap_tensor(operators: ByPass, share: Share) -> ByPass:
    """Return operators with the traffic of tensor ranks beside the products that it feeds."""
    width = share.precision.element_bytes
    return {direction: overlapped(items, share.axes, width) for direction, items in operators.items()}


OneRow = Callable[[TransformerConfig, Share], tuple[Item, ...]]
"""Gives the operators of a pass through a part of the model on one row of tensor-parallel ranks."""


def _lowered(forward: OneRow, backward: OneRow, config: TransformerConfig, share: Share) -> ByPass:
    """Return the operators of a part in every kind of pass, on the tensor grid of a share."""
    row = on_one_row(share)
    return _by_pass(*(on_grid(one(config, row), config, share) for one in (forward, backward)))


def _by_pass(forward: tuple[Item, ...], backward: tuple[Item, ...]) -> ByPass:
    """Return operators by kind of pass; the two parts of a backward pass have all of its operators."""
    weights = tuple(item for item in backward if item[0].phase is Phase.GRAD_WEIGHT)
    inputs = tuple(item for item in backward if item[0].phase is not Phase.GRAD_WEIGHT)
    return {Pass.FORWARD: forward, Pass.BACKWARD: backward, Pass.INPUT: inputs, Pass.WEIGHT: weights}


PHASES = {
    Pass.FORWARD: Phase.FORWARD,
    Pass.BACKWARD: Phase.GRAD_INPUT,
    Pass.INPUT: Phase.GRAD_INPUT,
    Pass.WEIGHT: Phase.GRAD_WEIGHT,
}
"""Phase that a pass is reported under."""

BLOCK_MATRICES = 4
"""Weight matrices of a block: parameters travel in as many collectives where gathers are not fused."""


def stream_share(config: TransformerConfig, plan: Plan) -> float:
    """Return the elements of a microbatch's stream that a rank sends to the next stage, not rounded."""
    # As a float, for arrays of plans count in 32 bits, too few for long sequences.
    return plan.share.tokens * float(config.hidden) / plan.axes.tp


class StageRun:
    """Adds the tasks of one stage to the graph of a step, pass by pass.

    Parameters
    ----------
    config : TransformerConfig
        The model.
    plan : Plan
        How it is cut.
    stage : int
        The stage.
    passes : Passes
        Operators of its parts.
    graph : Graph
        Where tasks are added.

    Notes
    -----
    Tasks are known by their ids. A pass that neither gathers nor sums is one task, a run of operators.
    Otherwise it has one for each part of its chunk (`workloads.step.sharding.chunk_parts`): a part's gather
    comes before it, its sum after it, and gathers, as sums, follow each other in one communication stream.
    """

    def __init__(
        self, config: TransformerConfig, plan: Plan, stage: int, passes: Passes, graph: Graph
    ) -> None:
        self.config = config
        self.plan = plan
        self.pipeline = plan.pipeline
        self.stage = stage
        self.passes = passes
        self.graph = graph
        self.chunks = stage_chunks(config, plan, stage)
        self.parts = [chunk_parts(plan, chunk) for chunk in self.chunks]
        self.priority = 0
        """Priority of the latest compute task: their order on the stage."""
        self.sums: dict[int, tuple[int, ...]] = {}
        """Tasks that complete the gradients of a chunk."""
        self.computed: list[int] = []
        """Compute tasks of all passes so far."""
        self.runs: Counter[tuple[int, Pass]] = Counter()
        """Passes so far, by chunk and kind."""
        self._forward_tasks: dict[tuple[int, int], int] = {}
        self._latest_gather: tuple[int, ...] = ()
        self._unfinished_send: tuple[int, ...] = ()
        self._messages: dict[tuple[int, int, bool], Collective] = {}
        order = self.pipeline.order()[stage]
        self._microbatches = Counter(slot.chunk for slot in order if slot.direction is Pass.FORWARD)
        self.sharded = ShardedSums(plan, stage, graph)
        self.host = HostTraffic(config, plan, stage, graph)
        self.activations = KeptOnHost(config, plan, stage=stage, graph=graph, order=order)

    def ready(self, slot: Slot) -> bool:
        """Return whether a slot's input has been sent."""
        source = self.pipeline.source((self.stage, slot.chunk), slot.direction)
        return slot.direction is Pass.WEIGHT or source is None or self._input(slot) in self.graph.arrived

    def _input(self, slot: Slot) -> Arrival:
        """Return the key of a slot's input in `Graph.arrived`."""
        return (self.stage, slot.chunk, slot.microbatch, slot.direction is Pass.FORWARD)

    def run(self, slot: Slot) -> None:
        """Add the tasks of a slot: its compute, gathers before it, sums and the send after it."""
        after = self.begin(slot)
        gathers, sums = self._gathers_parameters(slot), self._sums_gradients(slot)
        parts = self.parts[slot.chunk] if gathers or sums else (self.chunks[slot.chunk],)
        last = self._run_parts(slot, parts, after, gathers=gathers, sums=sums)
        self.finish(slot, (last,))

    def begin(self, slot: Slot) -> tuple[int, ...]:
        """Return the tasks that the first task of a slot waits for."""
        arrived = self.graph.arrived.get(self._input(slot))
        after = () if arrived is None or slot.direction is Pass.WEIGHT else (arrived,)
        after, self._unfinished_send = (*after, *self._unfinished_send), ()
        if slot.direction is not Pass.FORWARD:
            after = (*after, self._forward_tasks.pop((slot.chunk, slot.microbatch)))
        return (*after, *self.activations.before(slot))

    def finish(self, slot: Slot, finished: tuple[int, ...]) -> None:
        """Count a slot whose last task has been added, and add the send of its output."""
        (last,) = finished
        if slot.direction in {Pass.FORWARD, Pass.INPUT}:
            self._forward_tasks[slot.chunk, slot.microbatch] = last
        self.runs[slot.chunk, slot.direction] += 1
        self.activations.after(slot, last)
        self._add_send(slot, last)

    def moves_parameters(self, slot: Slot) -> bool:
        """Return whether a slot gathers parameters or sums gradients."""
        return self._gathers_parameters(slot) or self._sums_gradients(slot)

    def compute(
        self, slot: Slot, items: tuple[Item, ...], after: tuple[int, ...], ring: tuple[Collective, ...] = ()
    ) -> int:
        """Add a compute task of a slot behind all others of the stage, and return its id."""
        sequence = Sequence(
            name=slot.direction.value,
            phase=PHASES[slot.direction],
            items=items,
            microbatch=slot.microbatch,
            chunk=slot.chunk,
            ring=ring,
        )
        self.priority += 1
        return self.graph.add(self.stage, sequence, after, self.priority)

    def _gathers_parameters(self, slot: Slot) -> bool:
        """Return whether a slot gathers its chunk's parameters: for every pass, or once a step."""
        plan = self.plan
        if slot.direction is Pass.WEIGHT:
            return False
        if plan.sharding.fetches_parameters:
            return True
        if plan.axes.gradient_ranks == 1 or plan.sharding.zero == 0:
            return False
        if plan.sharding.gathers_every_microbatch(plan.axes) and (
            plan.sharding.reshard or slot.direction is Pass.FORWARD
        ):
            return True
        return slot.direction is Pass.FORWARD and not self.runs[slot.chunk, slot.direction]

    def _sums_gradients(self, slot: Slot) -> bool:
        """Return whether a slot sums its chunk's gradients: for every microbatch, or for the last one."""
        plan = self.plan
        if slot.direction in {Pass.FORWARD, Pass.INPUT}:
            return False
        if plan.axes.gradient_ranks == 1 and not plan.sharding.updates_on_host:
            return False
        return plan.sharding.shards_gradients or self._is_last(slot)

    def _is_last(self, slot: Slot) -> bool:
        """Return whether a backward pass is the step's last one through its chunk."""
        return self._complete_gradients(slot.chunk) == self._microbatches[slot.chunk] - 1

    def _complete_gradients(self, chunk: int) -> int:
        """Return the microbatches whose gradients of a chunk are complete."""
        return self.runs[chunk, Pass.BACKWARD] + self.runs[chunk, Pass.WEIGHT]

    def _run_parts(
        self, slot: Slot, parts: tuple[StagePart, ...], after: tuple[int, ...], *, gathers: bool, sums: bool
    ) -> int:
        """Add the tasks of a chunk's parts one after the other, and return the last compute task."""
        forward = slot.direction is Pass.FORWARD
        waits = after
        summed: tuple[int, ...] = ()
        for part in parts if forward else reversed(parts):
            needs = waits
            held = part_parameters(self.config, self.plan, part) if gathers or sums else None
            gather = gathering(self.plan, held, forward=forward) if held and gathers else None
            if held and gather:
                self._latest_gather = self._add_gather(held, gather, self._collectives_of(part))
                needs = tuple(dict.fromkeys((*waits, *self._latest_gather)))
            finished = self._compute_part(slot, part, needs, gather, held if sums else None)
            if held and sums:
                summed = self._add_sum(slot, held, finished, summed, self._collectives_of(part))
                if summed and self.plan.sharding.shards_parameters and not self.plan.traffic.prefetch:
                    finished = summed[-1]
            waits = (finished,)
        if slot.direction in {Pass.BACKWARD, Pass.WEIGHT}:
            self.sums[slot.chunk] = summed or waits
        return waits[0]

    def _collectives_of(self, part: StagePart) -> int:
        """Return the collectives in which a part's parameters travel: one, one a block, or one a matrix."""
        if not self.plan.sharding.shards_parameters:
            return 1
        return max(1, part.layers) * (1 if self.plan.traffic.prefetch else BLOCK_MATRICES)

    def _add_gather(self, held: RankParameters, gather: Gathering, count: int) -> tuple[int, ...]:
        """Add the tasks that gather a part's parameters, in `count` collectives; return the last task."""
        after = (*self._before_gather(), *self.host.fetch(held, self.computed))
        for kernel in gather.at_source:
            # It runs right behind the compute task that frees the memory.
            freeing = self.computed[-2:-1]
            priority = self.graph.tasks[freeing[0]].priority if freeing else 0
            after = (self.graph.add(self.stage, kernel, after, priority),)
        return self._add_in_a_row(gather.collectives, after, count)

    def _before_gather(self) -> tuple[int, ...]:
        """Return the tasks that a gather waits for.

        The gather before it; with parameters that are given up after use, room for one part ahead of compute.
        """
        if not self.plan.sharding.gathers_every_microbatch(self.plan.axes):
            return self._latest_gather
        return tuple(self.computed[-2:-1] if self.plan.traffic.prefetch else self.computed[-1:])

    def _add_sum(
        self, slot: Slot, held: RankParameters, finished: int, earlier: tuple[int, ...], count: int
    ) -> tuple[int, ...]:
        """Add the sum of a part's gradients; return the tasks that the next part's sum waits for."""
        if self.plan.traffic.quantised_gradients:
            self.sharded.start(held, finished)
            return ()
        summed = self._add_in_a_row(gradient_sums(self.plan, held), (finished, *earlier), count)
        if self._is_last(slot):
            self.sharded.sum_copies(held, summed)
        self.host.store_gradients(held, summed, first=not self._complete_gradients(slot.chunk))
        return summed if self.plan.axes.gradient_ranks > 1 else ()

    def _compute_part(
        self,
        slot: Slot,
        part: StagePart,
        after: tuple[int, ...],
        gather: Gathering | None,
        summed: RankParameters | None,
    ) -> int:
        """Add the compute tasks of a part, and return the last one.

        Parameters
        ----------
        slot, part : Slot, StagePart
            The pass, and the part of its chunk.
        after : tuple of int
            Tasks that it waits for.
        gather : Gathering, optional
            Gather of its parameters, with work of its own.
        summed : RankParameters, optional
            Parameters whose gradients are summed after it.
        """
        attention, ring = self.passes.ring(part, slot.direction)
        if attention:
            # Ring attention first, with its collectives beside it: the order within a run changes no time.
            before = tuple(dict.fromkeys((*after, *self.computed[-1:])))
            beside = [
                self.graph.add(self.stage, one, before, self.priority, times=part.layers) for one in ring
            ]
            after = (self.compute(slot, attention, after), *beside)
        items = self.passes.operators(part, slot.direction)
        if gather is not None:
            first = slot.direction is Pass.FORWARD and not self.runs[slot.chunk, slot.direction]
            held = part_parameters(self.config, self.plan, part)
            copy = keep_copy(self.plan.sharding, self.plan.precision, held) if first else ()
            items = (*gather.at_arrival, *items, *copy)
        if summed is not None:
            items = (*items, *self.sharded.before(summed))
        self.computed.append(self.compute(slot, items, after, ring))
        self.sharded.advance(self.priority)
        return self.computed[-1]

    def _add_in_a_row(
        self, collectives: tuple[Collective, ...], after: tuple[int, ...], count: int
    ) -> tuple[int, ...]:
        """Add collectives one after the other, each in `count` equal ones; return the last task."""
        for collective in collectives:
            piece = replace(collective, payload_bytes=collective.payload_bytes / count)
            after = (self.graph.add(self.stage, piece, after, self.priority, times=count),)
        return after

    def _add_send(self, slot: Slot, finished: int) -> None:
        """Add the send of a slot's output, and enter it as an input of the slot that it goes to."""
        target = self.pipeline.target((self.stage, slot.chunk), slot.direction)
        if target is None:
            return
        receiver, chunk = target
        forward = slot.direction is Pass.FORWARD
        arrival = (receiver, chunk, slot.microbatch, forward)
        if receiver == self.stage:
            self.graph.arrived[arrival] = finished
            return
        plan = self.plan
        message = self._messages.get((receiver, slot.chunk, forward))
        if message is None:
            message = self._message(slot, receiver, chunk)
            self._messages[receiver, slot.chunk, forward] = message
        sent = self.graph.add(self.stage, message, (finished,), self.priority)
        if not plan.traffic.overlap_sends:
            self._unfinished_send = (sent,)
        if plan.axes.tp > 1 and not plan.axes.sequence_parallel:
            # Each tensor-parallel rank has sent a share, to be gathered (arXiv:2104.04473, section 4.1).
            gather = replace(
                message, kind=CollectiveKind.ALL_GATHER, axis=Axis.TENSOR, size=plan.axes.tp, shift=0
            )
            sent = self.graph.add(receiver, gather, (sent,), self.priority)
        self.graph.arrived[arrival] = sent

    def _message(self, slot: Slot, receiver: int, chunk: int) -> Collective:
        """Return the send of a slot's output to a chunk of another stage."""
        plan, forward = self.plan, slot.direction is Pass.FORWARD
        elements = stream_share(self.config, plan)
        reads = self.config.retrieval
        upper = self.chunks[slot.chunk] if forward else stage_chunks(self.config, plan, receiver)[chunk]
        if reads and upper.hands_on:
            elements += plan.share.tokens * reads.tokens_per_token * reads.hidden / plan.axes.tp
        return Collective(
            name="activations" if forward else "activation gradients",
            phase=Phase.FORWARD if forward else Phase.GRAD_INPUT,
            kind=CollectiveKind.SEND,
            axis=Axis.PIPELINE,
            size=2,
            payload_bytes=elements * plan.precision.element_bytes,
            shift=receiver - self.stage,
        )

    @property
    def held(self) -> RankParameters:
        """Parameters of the stage on one rank."""
        return part_parameters(self.config, self.plan, whole_stage(self.config, self.plan, self.stage))

    def add_twin_sums(self) -> None:
        """Where every parameter stands on two stages, add the send of half of the gradients to the other."""
        if self.plan.schedule.kind.two_copies:
            after = tuple(chain.from_iterable(self.sums.values()))
            send = self._to_twin("gradients", Phase.GRAD_WEIGHT, self.plan.precision.grad_bytes)
            self.graph.twins[self.stage] = self.graph.add(self.stage, send, after, self.priority)

    def _to_twin(self, name: str, phase: Phase, element_bytes: float) -> Collective:
        """Return the send of a rank's share of the stage's parameters, or gradients, to its twin stage."""
        twin = self.plan.axes.pp - 1 - self.stage
        return Collective(
            name=name,
            phase=phase,
            kind=CollectiveKind.SEND,
            axis=Axis.PIPELINE,
            size=2,
            payload_bytes=optimizer_share(self.plan, self.held) * element_bytes,
            shift=twin - self.stage,
        )

    def update(self) -> int:
        """Add the optimizer after all gradient sums of the stage, and return its id."""
        after = tuple(chain.from_iterable(self.sums.values()))
        if self.plan.schedule.kind.two_copies:
            after = (*after, self.graph.twins[self.plan.axes.pp - 1 - self.stage])
        self.priority, ended = self.sharded.finish(self.priority)
        after = (*after, *ended)
        if self.plan.sharding.updates_on_host:
            backwards = [part for parts in reversed(self.parts) for part in reversed(parts)]
            held = [part_parameters(self.config, self.plan, part) for part in backwards]
            self.host.update(held, after, self.computed[-1])
            return self.computed[-1]
        self.priority += 1
        work = update_work(self.config, self.plan, self.held)
        beside = self.plan.traffic.uses_servers and not self.plan.traffic.waits_for_pulls
        done = self.graph.add(self.stage, work, after, self.priority, beside=beside)
        if self.plan.schedule.kind.two_copies:
            send = self._to_twin("parameters", Phase.UPDATE, self.plan.precision.weight_bytes)
            self.graph.add(self.stage, send, (done,), self.priority)
        return done
