"""Traffic of parameters and gradients: gathers and sums among ranks, and copies to the host and back.

Ranks exchange all together, in groups, or in fewer bits; the host's processors may run the optimizer's step.

References
----------
Zhang et al., arXiv:2205.00119 (MiCS): partition groups, section 3.2; gradients in two hops, section 3.4. Wang
et al., arXiv:2306.10209 (ZeRO++): qwZ, section 3.1; hpZ, section 3.2; qgZ, section 3.3.
Ren et al., arXiv:2101.06840 (ZeRO-Offload): gradients down, parameters up, the update on the processors in
pieces whose copies overlap it (sections 3 and 4), delayed parameter update (section 5.2). Rajbhandari et al.,
arXiv:2104.07857 (ZeRO-Infinity): parameters on the host or on disk, fetched ahead of use (sections 5 and 6).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from simulator.layout import Axis
from simulator.operators import (
    Collective,
    CollectiveKind,
    Elementwise,
    HostWork,
    Lane,
    Operator,
    Phase,
    Task,
    Transfer,
)
from workloads.layers.transformer import Item
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import Pass, Slot
from workloads.plan.parts import Formats, Kept, Place, Sharding
from workloads.plan.plan import Plan
from workloads.step.memory import chunk_activation_bytes
from workloads.step.sharding import (
    DEQUANTISE_FLOPS,
    INT4_BYTES,
    INT8_BYTES,
    QUANTISE_FLOPS,
    RankParameters,
    optimizer_bytes,
    optimizer_share,
    shared_share,
    stage_chunks,
    update_work,
)

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


class KeptOnHost:
    """Way of activations to the host and back, task by task; nothing if they stay on the accelerator.

    Parameters
    ----------
    config, plan : TransformerConfig, Plan
        Model and plan.
    stage : int
        The stage.
    graph : Graph
        Where tasks are added.
    order : tuple of Slot
        The stage's slots.

    Notes
    -----
    A forward pass waits until what the one before the last kept has left, a fetch until the pass before the
    last has ended: no more than three chunks' activations are on the accelerator at once.
    """

    def __init__(
        self, config: TransformerConfig, plan: Plan, *, stage: int, graph: Graph, order: tuple[Slot, ...]
    ) -> None:
        self.stage = stage
        self.graph = graph
        self.used = plan.precision.kept_activations is Kept.HOST
        chunks = stage_chunks(config, plan, stage) if self.used else ()
        self.bytes = [chunk_activation_bytes(config, plan.share, chunk) for chunk in chunks]
        self.stays = {
            (one.chunk, one.microbatch)
            for one, following in pairwise(order)
            if one.direction is Pass.FORWARD
            and (one.chunk, one.microbatch) == (following.chunk, following.microbatch)
        }
        self.left: dict[tuple[int, int], int] = {}
        self.lowered: list[int] = []
        self.ended: list[int] = []

    def before(self, slot: Slot) -> tuple[int, ...]:
        """Return what a pass waits for: room for what it keeps, or what its forward pass kept."""
        if not self.used:
            return ()
        if slot.direction is Pass.FORWARD:
            return tuple(self.lowered[-2:-1])
        down = self.left.pop((slot.chunk, slot.microbatch), None)
        if down is None:
            return ()
        return (self._move(Lane.FROM_HOST, slot.chunk, (down, *self.ended[-2:-1])),)

    def after(self, slot: Slot, finished: int) -> None:
        """Add the way down of what a forward pass keeps, once it has ended."""
        if not self.used:
            return
        self.ended.append(finished)
        place = (slot.chunk, slot.microbatch)
        if slot.direction is Pass.FORWARD and place not in self.stays:
            self.left[place] = self._move(Lane.TO_HOST, slot.chunk, (finished,))
            self.lowered.append(self.left[place])

    def _move(self, lane: Lane, chunk: int, after: tuple[int, ...]) -> int:
        phase = Phase.FORWARD if lane is Lane.TO_HOST else Phase.GRAD_INPUT
        moved = Transfer(name="activations", phase=phase, lane=lane, moved_bytes=self.bytes[chunk])
        return self.graph.add(self.stage, moved, after, 0)


class HostTraffic:
    """Traffic of one stage with its hosts, task by task; nothing if all stays on the accelerator.

    Parameters
    ----------
    config, plan : TransformerConfig, Plan
        Model and plan.
    stage : int
        The stage.
    graph : Graph
        Where tasks are added.
    """

    def __init__(self, config: TransformerConfig, plan: Plan, stage: int, graph: Graph) -> None:
        self.config = config
        self.plan = plan
        self.stage = stage
        self.graph = graph
        self.lowered: list[int] = []

    def _move(
        self, name: str, phase: Phase, lane: Lane, moved_bytes: float, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        transfer = Transfer(name=name, phase=phase, lane=lane, moved_bytes=float(moved_bytes))
        return (self.graph.add(self.stage, transfer, after, 0),)

    def bring(self, held: RankParameters, computed: list[int]) -> tuple[int, ...]:
        """Add the fetch of a rank's share of a part's parameters and return what ends it.

        Parameters
        ----------
        held : RankParameters
            The part's parameters.
        computed : list of int
            Passes so far: a fetch waits for the one that frees its room, one piece ahead of its gather, or of
            its use if nothing is gathered; a read from disk one piece ahead of that.
        """
        plan = self.plan
        if not plan.sharding.fetches_parameters:
            return ()
        size = shared_share(plan.sharding, plan.axes, held) * plan.precision.weight_bytes
        ahead = 3 if plan.axes.gradient_ranks > 1 else 2
        needs = tuple(computed[-ahead : 1 - ahead])
        if plan.sharding.parameter_place is Place.NVME:
            room = tuple(computed[-ahead - 1 : -ahead])
            read = self._move("parameters", Phase.FORWARD, Lane.FROM_STORAGE, size, room)
            needs = (*needs, *read)
        return self._move("parameters", Phase.FORWARD, Lane.FROM_HOST, size, needs)

    def lower(self, held: RankParameters, after: tuple[int, ...], *, first: bool) -> None:
        """Add the way of a rank's share of a part's gradients to the host, which adds up microbatches."""
        plan = self.plan
        if not plan.sharding.updates_on_host:
            return
        size = shared_share(plan.sharding, plan.axes, held) * plan.precision.grad_bytes
        ended = self._move("gradients", Phase.GRAD_WEIGHT, Lane.TO_HOST, size, after)
        if plan.sharding.shards_gradients and not first:
            work = HostWork(
                name="gradients.add",
                phase=Phase.GRAD_WEIGHT,
                flops=shared_share(plan.sharding, plan.axes, held),
                read_bytes=2 * size,
                written_bytes=size,
            )
            ended = (self.graph.add(self.stage, work, ended, 0),)
        self.lowered += ended

    def update(self, parts: list[RankParameters], after: tuple[int, ...], last: int) -> None:
        """Add the optimizer on the host's processors, part by part, with what it reads and what it sends up.

        Parameters
        ----------
        parts : list of RankParameters
            Parameters of the stage's parts, in the order in which their gradients arrive.
        after : tuple of int
            What else the update waits for.
        last : int
            The stage's last pass.

        Notes
        -----
        The optimizer starts when all gradients are there, as it must where their norm is clipped. A delayed
        update is that of the step before: it waits for nothing, and its parameters for the stage's last pass.
        States on disk are read two parts ahead and written back.
        """
        plan = self.plan
        grads = () if plan.sharding.delayed_update else (*after, *self.lowered)
        ended: list[int] = []
        for held in parts:
            count = optimizer_share(plan, held)
            needs = grads
            kept = optimizer_bytes(self.config, plan.axes, plan.precision) * count
            if plan.sharding.optimizer_place is Place.NVME:
                room = tuple(ended[-2:-1])
                needs = (*needs, *self._move("optimizer", Phase.UPDATE, Lane.FROM_STORAGE, kept, room))
            done = (self.graph.add(self.stage, self._work(held), tuple(dict.fromkeys(needs)), 0),)
            freed: tuple[int, ...] = done
            if plan.sharding.optimizer_place is Place.NVME:
                freed = self._move("optimizer", Phase.UPDATE, Lane.TO_STORAGE, kept, done)
            ended += freed
            stored = plan.precision.weight_bytes * count
            if not plan.sharding.fetches_parameters:
                ready = (*done, last) if plan.sharding.delayed_update else done
                self._move("parameters", Phase.UPDATE, Lane.FROM_HOST, stored, ready)
            elif plan.sharding.parameter_place is Place.NVME:
                self._move("parameters", Phase.UPDATE, Lane.TO_STORAGE, stored, done)

    def _work(self, held: RankParameters) -> HostWork:
        work = update_work(self.config, self.plan, held)
        return HostWork(
            name=work.name,
            phase=work.phase,
            flops=work.flops,
            read_bytes=work.read_bytes,
            written_bytes=work.written_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class Gathering:
    """Gather of a part's parameters for a pass."""

    at_source: tuple[Elementwise, ...] = ()
    """Work on a rank's share before."""
    collectives: tuple[Collective, ...] = ()
    """Gathers, one after the other."""
    at_arrival: tuple[Item, ...] = ()
    """Work on the whole after."""


def _kernel(name: str, phase: Phase, *, flops: float, read: float, written: float) -> Elementwise:
    return Elementwise(
        name=name,
        phase=phase,
        flops=float(flops),
        read_bytes=float(read),
        written_bytes=float(written),
    )


def _collective(
    phase: Phase, kind: CollectiveKind, axis: str, size: int, payload_bytes: float, *, servers: int = 0
) -> tuple[Collective, ...]:
    """Return a collective of parameters, or of their gradients; none where nothing is carried to anybody."""
    if size == 1 or payload_bytes == 0:
        return ()
    one = Collective(
        name="parameters" if phase is Phase.FORWARD else "gradients",
        phase=phase,
        kind=kind,
        axis=axis,
        size=size,
        payload_bytes=float(payload_bytes),
        servers=servers,
    )
    return (one,)


def _groups(plan: Plan, held: RankParameters) -> tuple[tuple[str, int, int], ...]:
    """Return the axes over which parameters are shared, the ranks along each, and how many parameters."""
    apart = plan.axes.ep > 1 and held.expert > 0
    dense = (
        plan.sharding.axis(plan.axes),
        plan.sharding.ranks(plan.axes),
        held.dense if apart else held.total,
    )
    return (dense, (Axis.REPLICAS, plan.axes.expert_replicas, held.expert)) if apart else (dense,)


def _served(
    phase: Phase, kind: CollectiveKind, plan: Plan, held: RankParameters, each: float
) -> tuple[Collective, ...]:
    """Return the pushes to servers, or the pulls from them, of a part's parameters."""
    return tuple(
        one
        for axis, size, count in _groups(plan, held)
        for one in _collective(
            phase, kind, axis, size, count * each, servers=plan.traffic.server_count(plan.axes)
        )
    )


def gathering(plan: Plan, held: RankParameters, *, forward: bool) -> Gathering:
    """Return how the parameters of a part come together for a pass.

    Notes
    -----
    With a secondary copy the backward pass gathers that, in full width, inside the node. In int8 a rank packs
    its share for every gather, and unpacks the whole before use.
    """
    stored = plan.precision.weight_bytes
    if plan.traffic.uses_servers:
        return Gathering(collectives=_served(Phase.FORWARD, CollectiveKind.PULL, plan, held, stored))
    kind = CollectiveKind.ALL_GATHER
    if plan.sharding.secondary_copy and not forward:
        size = plan.sharding.local_group
        return Gathering(
            collectives=_collective(Phase.FORWARD, kind, Axis.INNER, size, held.total * stored / size)
        )
    each = INT8_BYTES if plan.traffic.quantised_weights else stored
    collectives = tuple(
        one
        for axis, size, count in _groups(plan, held)
        for one in _collective(Phase.FORWARD, kind, axis, size, count * each / size)
    )
    if not plan.traffic.quantised_weights:
        return Gathering(collectives=collectives)
    share, whole = held.total / plan.sharding.ranks(plan.axes), float(held.total)
    pack = _kernel(
        "weights.quantise",
        Phase.FORWARD,
        flops=QUANTISE_FLOPS * share,
        read=stored * share,
        written=INT8_BYTES * share,
    )
    unpack = _kernel(
        "weights.dequantise",
        Phase.FORWARD,
        flops=DEQUANTISE_FLOPS * whole,
        read=INT8_BYTES * whole,
        written=stored * whole,
    )
    return Gathering(at_source=(pack,), collectives=collectives, at_arrival=((unpack, 1),))


def keep_copy(sharding: Sharding, formats: Formats, held: RankParameters) -> tuple[Item, ...]:
    """Return the work of keeping a rank's part of the secondary copy, once a step, after a gather."""
    if not sharding.secondary_copy:
        return ()
    kept = held.total / sharding.local_group * formats.element_bytes
    return ((_kernel("weights.secondary_copy", Phase.FORWARD, flops=0, read=kept, written=kept), 1),)


def gradient_sums(plan: Plan, held: RankParameters) -> tuple[Collective, ...]:
    """Return the sums of a part's gradients over the ranks that share them, or their way to servers."""
    kind = CollectiveKind.REDUCE_SCATTER if plan.sharding.zero else CollectiveKind.ALL_REDUCE
    if plan.traffic.uses_servers:
        return _served(Phase.GRAD_WEIGHT, CollectiveKind.PUSH, plan, held, plan.precision.grad_bytes)
    return tuple(
        one
        for axis, size, count in _groups(plan, held)
        for one in _collective(Phase.GRAD_WEIGHT, kind, axis, size, count * plan.precision.grad_bytes)
    )


def group_sums(plan: Plan, held: RankParameters) -> tuple[Collective, ...]:
    """Return the sums of a rank's share over the groups that are copies of each other, once a step."""
    if not plan.sharding.shard_group:
        return ()
    size = plan.axes.gradient_ranks // plan.sharding.shard_group
    share = held.total / plan.sharding.shard_group * plan.precision.grad_bytes
    return _collective(Phase.GRAD_WEIGHT, CollectiveKind.ALL_REDUCE, Axis.OUTER, size, share)


@dataclass(kw_only=True)
class _Pending:
    """A sum in int4 under way."""

    held: RankParameters
    exchange: int
    hop: int


class ShardedSums:
    """Sums of one stage's gradients that take more than one collective, task by task.

    Parameters
    ----------
    plan : Plan
        The plan.
    stage : int
        The stage.
    graph : Graph
        Where tasks are added.

    Notes
    -----
    Between the hops of a sum in int4 a rank unpacks, adds and packs again. That is work of the accelerator:
    it stands in its compute one piece later, when the exchange has had a piece's time to run.
    """

    def __init__(self, plan: Plan, stage: int, graph: Graph) -> None:
        self.plan = plan
        self.stage = stage
        self.graph = graph
        self.ended: list[int] = []
        self.pending: list[_Pending] = []
        inner = plan.sharding.inner_ranks
        outer = plan.axes.gradient_ranks // inner
        axes = (
            ((Axis.INNER, inner), (Axis.OUTER, outer)) if inner > 1 else ((plan.axes.gradient_axis, outer),)
        )
        self.hops = tuple((axis, size) for axis, size in axes if size > 1)

    def across(self, held: RankParameters, after: tuple[int, ...]) -> None:
        """Add the sum of a rank's share over the groups that are copies of each other, if there are any."""
        for one in group_sums(self.plan, held):
            self.ended.append(self.graph.add(self.stage, one, after, 0))

    def before(self, held: RankParameters) -> tuple[Item, ...]:
        """Return the work on a part's gradients before their first hop."""
        if not self.plan.traffic.quantised_gradients:
            return ()
        return ((self._packing(held.total, read=held.total * self.plan.precision.grad_bytes, added=0), 1),)

    def start(self, held: RankParameters, finished: int) -> None:
        """Add the first hop of a sum in int4."""
        self.pending.append(_Pending(held=held, exchange=self._exchange(held, 0, finished), hop=0))

    def advance(self, priority: int) -> None:
        """Add the work behind every hop that has had its time, and the next hop."""
        still = []
        for one in self.pending:
            done = self.graph.add(self.stage, self.between(one.held, one.hop), (one.exchange,), priority)
            if one.hop + 1 == len(self.hops):
                self.ended.append(done)
                continue
            one.hop += 1
            one.exchange = self._exchange(one.held, one.hop, done)
            still.append(one)
        self.pending = still

    def finish(self, priority: int) -> tuple[int, tuple[int, ...]]:
        """Run all sums to their end; return the last priority used and the tasks that end them."""
        while self.pending:
            priority += 1
            self.advance(priority)
        return priority, tuple(self.ended)

    def _size(self, held: RankParameters, hop: int) -> float:
        """Return how many values a rank sends into a hop: what is left of the part."""
        size = float(held.total)
        for _, ranks in self.hops[:hop]:
            size /= ranks
        return size

    def exchange(self, held: RankParameters, hop: int) -> Collective:
        """Return the all-to-all of a hop of a sum in int4."""
        axis, size = self.hops[hop]
        payload = self._size(held, hop) * INT4_BYTES
        (one,) = _collective(Phase.GRAD_WEIGHT, CollectiveKind.ALL_TO_ALL, axis, size, payload)
        return one

    def _exchange(self, held: RankParameters, hop: int, after: int) -> int:
        return self.graph.add(self.stage, self.exchange(held, hop), (after,), 0)

    def between(self, held: RankParameters, hop: int) -> Elementwise:
        """Return the work on what a hop of a sum in int4 brought."""
        arrived = self._size(held, hop)
        left = self._size(held, hop + 1)
        if hop + 1 < len(self.hops):
            return self._packing(left, read=arrived * INT4_BYTES, added=arrived)
        return _kernel(
            "gradients.dequantise",
            Phase.GRAD_WEIGHT,
            flops=(DEQUANTISE_FLOPS + 1) * arrived,
            read=INT4_BYTES * arrived,
            written=self.plan.precision.grad_bytes * left,
        )

    def _packing(self, values: float, *, read: float, added: float) -> Elementwise:
        return _kernel(
            "gradients.quantise",
            Phase.GRAD_WEIGHT,
            flops=QUANTISE_FLOPS * values + (DEQUANTISE_FLOPS + 1) * added,
            read=read,
            written=INT4_BYTES * values,
        )
