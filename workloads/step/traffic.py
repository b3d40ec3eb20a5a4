"""Traffic of parameters, gradients and kept activations in a step, as tasks.

`gathering`, `gradient_sums` and `group_sums` give collectives among ranks: all of them, in groups, or in
fewer bits. `ShardedSums` adds the sums that take several hops. `HostTraffic` moves parameters and gradients
between accelerator, host and disk, and has the host's processors update them; `KeptOnHost` moves activations.

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
"""Input of a pass: its stage, chunk and microbatch, and whether it runs forward."""


@dataclass
class Graph:
    """Tasks of a step as they are added, and those that tasks of other stages wait for."""

    tasks: list[Task] = field(default_factory=list)
    """All tasks; the id of each is its place."""
    arrived: dict[Arrival, int] = field(default_factory=dict)
    """Task that brings the input of a pass."""
    twins: dict[int, int] = field(default_factory=dict)
    """Task by which a stage sends gradients to the stage with the same parameters, by stage."""

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
        """Add a task and return its id; `times` is its multiplicity, `beside` as in `Task`."""
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
    """Adds the copies of one stage's activations to the host and back; none if they stay on the accelerator.

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
    A forward pass waits until the activations of the last forward pass but one have left, and a fetch until
    the last pass but one has ended: no more than three chunks' activations are on the accelerator at once.
    Activations of a forward pass whose backward pass follows at once are not moved.
    """

    def __init__(
        self, config: TransformerConfig, plan: Plan, *, stage: int, graph: Graph, order: tuple[Slot, ...]
    ) -> None:
        self._stage = stage
        self._graph = graph
        self._used = plan.precision.kept_activations is Kept.HOST
        chunks = stage_chunks(config, plan, stage) if self._used else ()
        self._bytes = [chunk_activation_bytes(config, plan.share, chunk) for chunk in chunks]
        self._stays = {
            (slot.chunk, slot.microbatch)
            for slot, following in pairwise(order)
            if slot.direction is Pass.FORWARD
            and (slot.chunk, slot.microbatch) == (following.chunk, following.microbatch)
        }
        self._stored: dict[tuple[int, int], int] = {}
        """Copy to the host, by chunk and microbatch, of activations that are there."""
        self._copies_down: list[int] = []
        self._passes: list[int] = []

    def before(self, slot: Slot) -> tuple[int, ...]:
        """Return the tasks that a pass waits for; of a backward pass, add the fetch of its activations."""
        if not self._used:
            return ()
        if slot.direction is Pass.FORWARD:
            return tuple(self._copies_down[-2:-1])
        stored = self._stored.pop((slot.chunk, slot.microbatch), None)
        if stored is None:
            return ()
        return (self._copy(Lane.FROM_HOST, slot.chunk, (stored, *self._passes[-2:-1])),)

    def after(self, slot: Slot, finished: int) -> None:
        """Add the copy to the host of the activations of a forward pass that has ended."""
        if not self._used:
            return
        self._passes.append(finished)
        key = (slot.chunk, slot.microbatch)
        if slot.direction is Pass.FORWARD and key not in self._stays:
            self._stored[key] = self._copy(Lane.TO_HOST, slot.chunk, (finished,))
            self._copies_down.append(self._stored[key])

    def _copy(self, lane: Lane, chunk: int, after: tuple[int, ...]) -> int:
        """Add a copy of a chunk's activations and return its id."""
        phase = Phase.FORWARD if lane is Lane.TO_HOST else Phase.GRAD_INPUT
        copy = Transfer(name="activations", phase=phase, lane=lane, moved_bytes=self._bytes[chunk])
        return self._graph.add(self._stage, copy, after, 0)


class HostTraffic:
    """Adds one stage's copies of parameters and gradients to and from its host, and the update there.

    Nothing is added if all of them stay on the accelerator. The host may keep them on its disks.

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
        self._stored_gradients: tuple[int, ...] = ()

    def _copy(
        self, name: str, phase: Phase, lane: Lane, moved_bytes: float, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Add a copy and return its id as a tuple, ready for the `after` of later tasks."""
        transfer = Transfer(name=name, phase=phase, lane=lane, moved_bytes=float(moved_bytes))
        return (self.graph.add(self.stage, transfer, after, 0),)

    def fetch(self, held: RankParameters, computed: list[int]) -> tuple[int, ...]:
        """Add the fetch of a rank's share of a part's parameters, and return its last task.

        Parameters
        ----------
        held : RankParameters
            The part's parameters.
        computed : list of int
            Compute tasks so far. A fetch waits for the one that frees its room: it runs one part ahead of the
            gather, or of the use if nothing is gathered; a read from disk runs one part ahead of that.
        """
        plan = self.plan
        if not plan.sharding.fetches_parameters:
            return ()
        size = shared_share(plan.sharding, plan.axes, held) * plan.precision.weight_bytes
        ahead = 3 if plan.axes.gradient_ranks > 1 else 2
        needs = tuple(computed[-ahead : 1 - ahead])
        if plan.sharding.parameter_place is Place.NVME:
            room = tuple(computed[-ahead - 1 : -ahead])
            read = self._copy("parameters", Phase.FORWARD, Lane.FROM_STORAGE, size, room)
            needs = (*needs, *read)
        return self._copy("parameters", Phase.FORWARD, Lane.FROM_HOST, size, needs)

    def store_gradients(self, held: RankParameters, after: tuple[int, ...], *, first: bool) -> None:
        """Add the copy of a rank's share of a part's gradients to the host.

        The host adds those of a microbatch to the ones before, unless they are the step's `first`.
        """
        plan = self.plan
        if not plan.sharding.updates_on_host:
            return
        size = shared_share(plan.sharding, plan.axes, held) * plan.precision.grad_bytes
        ended = self._copy("gradients", Phase.GRAD_WEIGHT, Lane.TO_HOST, size, after)
        if plan.sharding.shards_gradients and not first:
            work = HostWork(
                name="gradients.add",
                phase=Phase.GRAD_WEIGHT,
                flops=shared_share(plan.sharding, plan.axes, held),
                read_bytes=2 * size,
                written_bytes=size,
            )
            ended = (self.graph.add(self.stage, work, ended, 0),)
        self._stored_gradients += ended

    def update(self, parts: list[RankParameters], after: tuple[int, ...], last: int) -> None:
        """Add the update on the host's processors, part by part, with its reads and the copies of parameters.

        Parameters
        ----------
        parts : list of RankParameters
            Parameters of the stage's parts, in the order in which their gradients arrive.
        after : tuple of int
            Further tasks that the update waits for.
        last : int
            The stage's last pass.

        Notes
        -----
        The update starts when all gradients are there, as it must where their norm is clipped. A delayed
        update is that of the step before: it waits for nothing, and its parameters for the stage's last pass.
        States on disk are read two parts ahead and written back.
        """
        plan = self.plan
        on_disk = plan.sharding.optimizer_place is Place.NVME
        gradients = () if plan.sharding.delayed_update else (*after, *self._stored_gradients)
        written: tuple[int, ...] = ()
        for held in parts:
            count = optimizer_share(plan, held)
            state_bytes = optimizer_bytes(self.config, plan.axes, plan.precision) * count
            needs = gradients
            if on_disk:
                room = written[-2:-1]
                needs = (*needs, *self._copy("optimizer", Phase.UPDATE, Lane.FROM_STORAGE, state_bytes, room))
            done = (self.graph.add(self.stage, self._host_work(held), tuple(dict.fromkeys(needs)), 0),)
            if on_disk:
                written += self._copy("optimizer", Phase.UPDATE, Lane.TO_STORAGE, state_bytes, done)
            weight_bytes = plan.precision.weight_bytes * count
            if not plan.sharding.fetches_parameters:
                ready = (*done, last) if plan.sharding.delayed_update else done
                self._copy("parameters", Phase.UPDATE, Lane.FROM_HOST, weight_bytes, ready)
            elif plan.sharding.parameter_place is Place.NVME:
                self._copy("parameters", Phase.UPDATE, Lane.TO_STORAGE, weight_bytes, done)

    def _host_work(self, held: RankParameters) -> HostWork:
        """Return the update of a part as work of the host's processors."""
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
    """Work on a rank's share before the gather."""
    collectives: tuple[Collective, ...] = ()
    """Gathers, one after the other."""
    at_arrival: tuple[Item, ...] = ()
    """Work on the gathered parameters before their use."""


def _kernel(name: str, phase: Phase, *, flops: float, read: float, written: float) -> Elementwise:
    """Return element-wise work that reads and writes numbers of bytes."""
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
    """Return a collective of parameters or gradients; none for a single rank or an empty payload."""
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
    """Return axis, ranks along it and number of the parameters that are shared, for each kind."""
    axis, ranks = plan.sharding.axis(plan.axes), plan.sharding.ranks(plan.axes)
    if plan.axes.ep == 1 or held.expert == 0:
        return ((axis, ranks, held.total),)
    return (axis, ranks, held.dense), (Axis.REPLICAS, plan.axes.expert_replicas, held.expert)


def _served(
    phase: Phase, kind: CollectiveKind, plan: Plan, held: RankParameters, element_bytes: float
) -> tuple[Collective, ...]:
    """Return the pushes of a part's gradients to servers, or the pulls of its parameters from them."""
    return tuple(
        one
        for axis, size, count in _groups(plan, held)
        for one in _collective(
            phase, kind, axis, size, count * element_bytes, servers=plan.traffic.server_count(plan.axes)
        )
    )


def gathering(plan: Plan, held: RankParameters, *, forward: bool) -> Gathering:
    """Return the gather of a part's parameters for a pass.

    Notes
    -----
    With a secondary copy the backward pass gathers that one, in full width, inside the node. In int8 a rank
    packs its share for every gather, and unpacks the gathered parameters before use.
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
    """Return the work of storing a rank's part of the secondary copy, once a step, after a gather."""
    if not sharding.secondary_copy:
        return ()
    kept = held.total / sharding.local_group * formats.element_bytes
    return ((_kernel("weights.secondary_copy", Phase.FORWARD, flops=0, read=kept, written=kept), 1),)


def gradient_sums(plan: Plan, held: RankParameters) -> tuple[Collective, ...]:
    """Return the sums of a part's gradients over the ranks that share them, or their pushes to servers."""
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
class _PendingSum:
    """A sum of gradients in int4 that has not ended."""

    held: RankParameters
    """Parameters whose gradients are summed."""
    exchange: int
    """Task of its latest hop's all-to-all."""
    hop: int
    """Number of that hop, from 0."""


class ShardedSums:
    """Adds the sums of one stage's gradients that take more than one collective.

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
    A sum in int4 has a hop inside the node and one between nodes, each an all-to-all. Between hops a rank
    unpacks, adds and packs again. That is work of the accelerator; it follows one compute task later, when
    the exchange has had that time to run.
    """

    def __init__(self, plan: Plan, stage: int, graph: Graph) -> None:
        self.plan = plan
        self.stage = stage
        self.graph = graph
        self._last_tasks: list[int] = []
        self._pending: list[_PendingSum] = []
        inner = plan.sharding.inner_ranks
        outer = plan.axes.gradient_ranks // inner
        axes = (
            ((Axis.INNER, inner), (Axis.OUTER, outer)) if inner > 1 else ((plan.axes.gradient_axis, outer),)
        )
        self.hops = tuple((axis, size) for axis, size in axes if size > 1)
        """Axis and ranks of each hop of a sum in int4."""

    def sum_copies(self, held: RankParameters, after: tuple[int, ...]) -> None:
        """Add the sum of a rank's share over the groups that are copies of each other, if there are any."""
        for one in group_sums(self.plan, held):
            self._last_tasks.append(self.graph.add(self.stage, one, after, 0))

    def before(self, held: RankParameters) -> tuple[Item, ...]:
        """Return the work on a part's gradients before their first hop."""
        if not self.plan.traffic.quantised_gradients:
            return ()
        return ((self._packing(held.total, read=held.total * self.plan.precision.grad_bytes, added=0), 1),)

    def start(self, held: RankParameters, finished: int) -> None:
        """Add the first hop of a sum in int4."""
        self._pending.append(_PendingSum(held=held, exchange=self._add_hop(held, 0, finished), hop=0))

    def advance(self, priority: int) -> None:
        """Add the work after each pending sum's latest hop, and its next hop."""
        unfinished = []
        for pending in self._pending:
            work = self.between(pending.held, pending.hop)
            done = self.graph.add(self.stage, work, (pending.exchange,), priority)
            if pending.hop + 1 == len(self.hops):
                self._last_tasks.append(done)
                continue
            pending.hop += 1
            pending.exchange = self._add_hop(pending.held, pending.hop, done)
            unfinished.append(pending)
        self._pending = unfinished

    def finish(self, priority: int) -> tuple[int, tuple[int, ...]]:
        """Run all sums to their end; return the last priority used and the tasks that end them."""
        while self._pending:
            priority += 1
            self.advance(priority)
        return priority, tuple(self._last_tasks)

    def _size(self, held: RankParameters, hop: int) -> float:
        """Return the values that a rank sends in a hop: its share of the part after all earlier hops."""
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

    def _add_hop(self, held: RankParameters, hop: int, after: int) -> int:
        return self.graph.add(self.stage, self.exchange(held, hop), (after,), 0)

    def between(self, held: RankParameters, hop: int) -> Elementwise:
        """Return the work on the values that a hop of a sum in int4 has brought."""
        arrived = self._size(held, hop)
        summed = self._size(held, hop + 1)
        if hop + 1 < len(self.hops):
            return self._packing(summed, read=arrived * INT4_BYTES, added=arrived)
        return _kernel(
            "gradients.dequantise",
            Phase.GRAD_WEIGHT,
            flops=(DEQUANTISE_FLOPS + 1) * arrived,
            read=INT4_BYTES * arrived,
            written=self.plan.precision.grad_bytes * summed,
        )

    def _packing(self, values: float, *, read: float, added: float) -> Elementwise:
        """Return the work of quantising values to int4, after `added` values were unpacked and summed."""
        return _kernel(
            "gradients.quantise",
            Phase.GRAD_WEIGHT,
            flops=QUANTISE_FLOPS * values + (DEQUANTISE_FLOPS + 1) * added,
            read=read,
            written=INT4_BYTES * values,
        )
