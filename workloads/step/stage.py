"""One pipeline stage's tasks in a step: the operators of its passes, sends, gathers, sums and the update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
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

Ways = dict[Pass, tuple[Item, ...]]
"""Operators by kind of pass."""


class _Block:
    """Operators of one kind of block: its own, and what ring attention adds."""

    def __init__(self, config: TransformerConfig, share: Share, *, overlap_tensor: bool) -> None:
        own = _ways(forward_layer, backward_layer, config, share)
        ahead, forward_ring = ring_layer(config, share, own[Pass.FORWARD], forward=True)
        back, backward_ring = ring_layer(config, share, own[Pass.BACKWARD], forward=False)
        self.own = _beside(own, share) if overlap_tensor else own
        self.others = _directions(ahead, back)
        self.traffic: dict[Pass, tuple[Collective, ...]] = {
            Pass.FORWARD: forward_ring,
            Pass.BACKWARD: backward_ring,
            Pass.INPUT: backward_ring,
            Pass.WEIGHT: (),
        }


class Passes:
    """Operators of any part of a model under a share, in any direction.

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
        self._patterns = share.experts.expert_patterns
        self._embedding = _ways(forward_embedding, backward_embedding, config, share)
        self._head = _ways(forward_head, backward_head, config, share)
        self._cross, self._encoder = _retrieval(config, share, overlap_tensor=overlap_tensor)
        self._known: dict[tuple[StagePart, Pass], tuple[Item, ...]] = {}
        self._rings: dict[tuple[StagePart, Pass], tuple[tuple[Item, ...], tuple[Collective, ...]]] = {}

    def of(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        """Return a part's operators in a direction; identical blocks become repeats."""
        found = self._known.get((part, direction))
        if found is None:
            found = self._known[part, direction] = self._built(part, direction)
        return found

    def one_by_one(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        """Return a part's operators in a direction in the order in which its blocks run."""
        return self._with_ends(part, direction, self._in_order(part, direction))

    def _with_ends(self, part: StagePart, direction: Pass, blocks: tuple[Item, ...]) -> tuple[Item, ...]:
        """Return blocks between the embedding and the head, where a part has them."""
        first = self._embedding[direction] if part.embedding else ()
        last = self._head[direction] if part.head else ()
        return (*first, *blocks, *last) if direction is Pass.FORWARD else (*last, *blocks, *first)

    def _in_order(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        """Return the operators of a part's blocks one block after the other, each with its own pattern."""
        others = part.layers - part.dense
        narrow = [part.windowed * place // max(others, 1) for place in range(others + 1)]
        kinds = [self._dense] * part.dense + [
            self._windowed if until > before else self._block for before, until in pairwise(narrow)
        ]
        if part.kept:
            kinds = [self._block] * (part.layers - part.kept) + [self._kept] * part.kept
        places = range(part.layers) if direction is Pass.FORWARD else reversed(range(part.layers))
        return tuple(
            item
            for place in places
            for item in _patterned(kinds[place].own[direction], (part.pattern + place) % self._patterns)
        )

    def ring(self, part: StagePart, direction: Pass) -> tuple[tuple[Item, ...], tuple[Collective, ...]]:
        """Return a part's attention to other ranks' keys, and the traffic of one block beside it."""
        found = self._rings.get((part, direction))
        if found is None:
            others = self._blocks(part, direction, lambda block: block.others)
            found = others, self._block.traffic[direction] if others else ()
            self._rings[part, direction] = found
        return found

    def _blocks(
        self, part: StagePart, direction: Pass, ways_of: Callable[[_Block], Ways]
    ) -> tuple[Item, ...]:
        rest = part.layers - part.dense - part.windowed - part.kept
        kinds = [
            (self._dense, part.dense),
            (self._windowed, part.windowed),
            (self._block, rest),
            (self._kept, part.kept),
        ]
        ordered = kinds if direction is Pass.FORWARD else kinds[::-1]
        return tuple(
            (one, count * blocks)
            for block, blocks in ordered
            if blocks
            for one, count in ways_of(block)[direction]
        )

    def _built(self, part: StagePart, direction: Pass) -> tuple[Item, ...]:
        if self._patterns == 1:
            blocks = self._blocks(part, direction, lambda block: block.own)
        else:
            blocks = self._in_order(part, direction)
        if part.encodes:
            blocks = (*blocks, *self._encoder[direction])
        if part.retrieving:
            blocks = (*blocks, *((one, count * part.retrieving) for one, count in self._cross[direction]))
        return self._with_ends(part, direction, blocks)


def _retrieval(config: TransformerConfig, share: Share, *, overlap_tensor: bool) -> tuple[Ways, Ways]:
    """Return the operators of one cross-attention to neighbours, and of their encoder."""
    if config.retrieval is None:
        return {}, {}
    parts = RetrievalParts(config, share, config.retrieval)
    cross, encoder = (
        _directions(forward_steps(steps, share), backward_steps(steps, share))
        for steps in (parts.cross(), parts.encoder())
    )
    return (_beside(cross, share), _beside(encoder, share)) if overlap_tensor else (cross, encoder)


def _patterned(items: tuple[Item, ...], pattern: int) -> tuple[Item, ...]:
    """Return a block's operators with its uneven exchanges after a pattern."""
    if not pattern:
        return items
    return tuple(
        (replace(one, skew=replace(one.skew, pattern=pattern)), count)
        if isinstance(one, Collective) and one.skew is not None
        else (one, count)
        for one, count in items
    )


def _beside(ways: Ways, share: Share) -> Ways:
    """Return operators with the traffic of tensor ranks beside the products that it feeds."""
    width = share.precision.element_bytes
    return {direction: overlapped(items, share.axes, width) for direction, items in ways.items()}


Passed = Callable[[TransformerConfig, Share], tuple[Item, ...]]
"""Operators of a pass through a part of the model."""


def _ways(forward: Passed, backward: Passed, config: TransformerConfig, share: Share) -> Ways:
    """Return the operators of a part in every kind of pass, as tensor-parallel ranks run them."""
    row = on_one_row(share)
    return _directions(*(on_grid(passed(config, row), config, share) for passed in (forward, backward)))


def _directions(forward: tuple[Item, ...], backward: tuple[Item, ...]) -> Ways:
    """Return the operators of every kind of pass; the split of a backward pass loses none."""
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
"""Weight matrices of a block, gathered one by one where gathers are not fused; small ones are kept."""


def stream_share(config: TransformerConfig, plan: Plan) -> float:
    """Return the elements of a microbatch's stream that a rank sends to the next stage, not rounded."""
    # As a float, for arrays of plans count in 32 bits, too few for long sequences.
    return plan.share.tokens * float(config.hidden) / plan.axes.tp


class StageRun:
    """Tasks of one stage in the graph of a step, slot after slot.

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
    """

    def __init__(
        self, config: TransformerConfig, plan: Plan, stage: int, passes: Passes, graph: Graph
    ) -> None:
        self.config = config
        self.plan = plan
        self.tokens = plan.share.tokens
        self.pipeline = plan.pipeline
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
        self.sending: tuple[int, ...] = ()
        self._sends: dict[tuple[int, int, bool], Collective] = {}
        self.runs: Counter[tuple[int, Pass]] = Counter()
        every = Counter(slot.chunk for slot in self.pipeline.order()[stage] if slot.direction is Pass.FORWARD)
        self.last = {chunk: count - 1 for chunk, count in every.items()}
        self.sharded = ShardedSums(self.plan, stage, graph)
        self.host = HostTraffic(config, self.plan, stage, graph)
        order = self.pipeline.order()[stage]
        self.activations = KeptOnHost(config, self.plan, stage=stage, graph=graph, order=order)

    def ready(self, slot: Slot) -> bool:
        """Return whether a slot's input has been sent."""
        source = self.pipeline.source((self.stage, slot.chunk), slot.direction)
        return slot.direction is Pass.WEIGHT or source is None or self._arrival(slot) in self.graph.arrived

    def _arrival(self, slot: Slot) -> Arrival:
        return (self.stage, slot.chunk, slot.microbatch, slot.direction is Pass.FORWARD)

    def run(self, slot: Slot) -> None:
        """Add a slot's compute tasks, the gathers before and the sums and the send after them."""
        after = self.begin(slot)
        gathers, sums = self._gathers(slot), self._sums(slot)
        pieces = self.parts[slot.chunk] if gathers or sums else (self.chunks[slot.chunk],)
        finished = self._pieces(slot, pieces, after, gathers=gathers, sums=sums)
        self.finish(slot, (finished,))

    def begin(self, slot: Slot) -> tuple[int, ...]:
        """Return the tasks that a slot's first one waits for."""
        arrived = self.graph.arrived.get(self._arrival(slot))
        after = () if arrived is None or slot.direction is Pass.WEIGHT else (arrived,)
        after, self.sending = (*after, *self.sending), ()
        if slot.direction is not Pass.FORWARD:
            after = (*after, self.forwards.pop((slot.chunk, slot.microbatch)))
        return (*after, *self.activations.before(slot))

    def finish(self, slot: Slot, finished: tuple[int, ...]) -> None:
        """Note that a slot's last task has been added, and send what it made."""
        (last,) = finished
        if slot.direction in {Pass.FORWARD, Pass.INPUT}:
            self.forwards[slot.chunk, slot.microbatch] = last
        self.runs[slot.chunk, slot.direction] += 1
        self.activations.after(slot, last)
        self._send(slot, last)

    def moves_parameters(self, slot: Slot) -> bool:
        """Return whether a slot gathers parameters or sums gradients."""
        return self._gathers(slot) or self._sums(slot)

    def compute(
        self, slot: Slot, items: tuple[Item, ...], after: tuple[int, ...], ring: tuple[Collective, ...] = ()
    ) -> int:
        """Add work of a slot after what has been added before, and return its id."""
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

    def _gathers(self, slot: Slot) -> bool:
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

    def _sums(self, slot: Slot) -> bool:
        plan = self.plan
        if slot.direction in {Pass.FORWARD, Pass.INPUT}:
            return False
        if plan.axes.gradient_ranks == 1 and not plan.sharding.updates_on_host:
            return False
        return plan.sharding.shards_gradients or self._is_last(slot)

    def _is_last(self, slot: Slot) -> bool:
        """Return whether a backward pass is the step's last one through its chunk."""
        return self._summed(slot.chunk) == self.last[slot.chunk]

    def _summed(self, chunk: int) -> int:
        """Return how many microbatches' gradients of a chunk are done."""
        return self.runs[chunk, Pass.BACKWARD] + self.runs[chunk, Pass.WEIGHT]

    def _pieces(
        self, slot: Slot, pieces: tuple[StagePart, ...], after: tuple[int, ...], *, gathers: bool, sums: bool
    ) -> int:
        """Run the pieces of a chunk one after the other and return the last one's id."""
        forward = slot.direction is Pass.FORWARD
        waiting = after
        summed: tuple[int, ...] = ()
        for part in pieces if forward else reversed(pieces):
            needs = waiting
            held = part_parameters(self.config, self.plan, part) if gathers or sums else None
            before = gathering(self.plan, held, forward=forward) if held and gathers else None
            if held and before:
                self.gathered = self._gather(held, before, self._units(part))
                needs = tuple(dict.fromkeys((*waiting, *self.gathered)))
            finished = self._compute(slot, part, needs, before, held if sums else None)
            if held and sums:
                summed = self._sum(slot, held, finished, summed, self._units(part))
                if summed and self.plan.sharding.shards_parameters and not self.plan.traffic.prefetch:
                    finished = summed[-1]
            waiting = (finished,)
        if slot.direction in {Pass.BACKWARD, Pass.WEIGHT}:
            self.sums[slot.chunk] = summed or waiting
        return waiting[0]

    def _units(self, part: StagePart) -> int:
        """Return in how many collectives a part's parameters travel: by blocks, or by matrices if unfused."""
        if not self.plan.sharding.shards_parameters:
            return 1
        return max(1, part.layers) * (1 if self.plan.traffic.prefetch else BLOCK_MATRICES)

    def _gather(self, held: RankParameters, before: Gathering, units: int) -> tuple[int, ...]:
        """Add what brings a part's parameters together and return the last one's id."""
        after = (*self._before_gather(), *self.host.bring(held, self.computed))
        for kernel in before.at_source:
            # Room on the compute stream is right behind the work that frees the memory.
            behind = self.computed[-2:-1]
            priority = self.graph.tasks[behind[0]].priority if behind else 0
            after = (self.graph.add(self.stage, kernel, after, priority),)
        return self._chain(before.collectives, after, units)

    def _sum(
        self, slot: Slot, held: RankParameters, finished: int, earlier: tuple[int, ...], units: int
    ) -> tuple[int, ...]:
        """Add the sum of a part's gradients and return what the next part's sum waits for."""
        if self.plan.traffic.quantised_gradients:
            self.sharded.start(held, finished)
            return ()
        summed = self._chain(gradient_sums(self.plan, held), (finished, *earlier), units)
        if self._is_last(slot):
            self.sharded.across(held, summed)
        self.host.lower(held, summed, first=not self._summed(slot.chunk))
        return summed if self.plan.axes.gradient_ranks > 1 else ()

    def _before_gather(self) -> tuple[int, ...]:
        """Return what a gather waits for: with sharded parameters, room for one piece ahead of compute."""
        if not self.plan.sharding.gathers_every_microbatch(self.plan.axes):
            return self.gathered
        return tuple(self.computed[-2:-1] if self.plan.traffic.prefetch else self.computed[-1:])

    def _compute(
        self,
        slot: Slot,
        part: StagePart,
        after: tuple[int, ...],
        gathered: Gathering | None,
        summed: RankParameters | None,
    ) -> int:
        others, ring = self.passes.ring(part, slot.direction)
        if others:
            # The order within a run changes no time; first, what the ring runs beside.
            before = tuple(dict.fromkeys((*after, *self.computed[-1:])))
            beside = [
                self.graph.add(self.stage, one, before, self.priority, times=part.layers) for one in ring
            ]
            after = (self.compute(slot, others, after), *beside)
        items = self.passes.of(part, slot.direction)
        if gathered is not None:
            first = slot.direction is Pass.FORWARD and not self.runs[slot.chunk, slot.direction]
            held = part_parameters(self.config, self.plan, part)
            items = (
                *gathered.at_arrival,
                *items,
                *(keep_copy(self.plan.sharding, self.plan.precision, held) if first else ()),
            )
        if summed is not None:
            items = (*items, *self.sharded.before(summed))
        self.computed.append(self.compute(slot, items, after, ring))
        self.sharded.advance(self.priority)
        return self.computed[-1]

    def _chain(
        self, collectives: tuple[Collective, ...], after: tuple[int, ...], units: int
    ) -> tuple[int, ...]:
        """Add collectives one after the other, each in so many pieces, and return the last one's id."""
        for collective in collectives:
            piece = replace(collective, payload_bytes=collective.payload_bytes / units)
            after = (self.graph.add(self.stage, piece, after, self.priority, times=units),)
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
        send = self._sends.get((receiver, slot.chunk, forward))
        if send is None:
            send = self._message(slot, receiver, chunk)
            self._sends[receiver, slot.chunk, forward] = send
        sent = self.graph.add(self.stage, send, (finished,), self.priority)
        if not plan.traffic.overlap_sends:
            self.sending = (sent,)
        if plan.axes.tp > 1 and not plan.axes.sequence_parallel:
            sent = self._gathered(receiver, send, sent)
        self.graph.arrived[key] = sent

    def _message(self, slot: Slot, receiver: int, chunk: int) -> Collective:
        """Return the send of what a slot makes to a chunk of another stage."""
        plan, forward = self.plan, slot.direction is Pass.FORWARD
        boundary = self.chunks[slot.chunk]
        if not forward:
            boundary = stage_chunks(self.config, plan, receiver)[chunk]
        elements = stream_share(self.config, plan)
        if self.config.retrieval and boundary.hands_on:
            reads = self.config.retrieval
            elements += self.tokens * reads.tokens_per_token * reads.hidden / plan.axes.tp
        return Collective(
            name="activations" if forward else "activation gradients",
            phase=Phase.FORWARD if forward else Phase.GRAD_INPUT,
            kind=CollectiveKind.SEND,
            axis=Axis.PIPELINE,
            size=2,
            payload_bytes=elements * plan.precision.element_bytes,
            shift=receiver - self.stage,
        )

    def _gathered(self, receiver: int, send: Collective, sent: int) -> int:
        """Add the gather of what tensor-parallel ranks sent, a share each (arXiv:2104.04473, section 4.1)."""
        gather = replace(
            send, kind=CollectiveKind.ALL_GATHER, axis=Axis.TENSOR, size=self.plan.axes.tp, shift=0
        )
        return self.graph.add(receiver, gather, (sent,), self.priority)

    @property
    def held(self) -> RankParameters:
        """Parameters of the stage on one rank."""
        return part_parameters(self.config, self.plan, whole_stage(self.config, self.plan, self.stage))

    def exchange(self) -> None:
        """With two copies of every parameter, send half of the gradients to the stage that has the other."""
        if self.plan.schedule.kind.two_copies:
            after = tuple(chain.from_iterable(self.sums.values()))
            send = self._to_twin("gradients", Phase.GRAD_WEIGHT, self.plan.precision.grad_bytes)
            self.graph.twins[self.stage] = self.graph.add(self.stage, send, after, self.priority)

    def _to_twin(self, name: str, phase: Phase, each: float) -> Collective:
        twin = self.plan.axes.pp - 1 - self.stage
        return Collective(
            name=name,
            phase=phase,
            kind=CollectiveKind.SEND,
            axis=Axis.PIPELINE,
            size=2,
            payload_bytes=optimizer_share(self.plan, self.held) * each,
            shift=twin - self.stage,
        )

    def update(self) -> int:
        """Add the optimizer after all gradient sums of the stage and return its id."""
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
