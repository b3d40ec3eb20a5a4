"""What a plan moves to the host and back, and the optimizer's step on the host's processors.

References
----------
Ren et al., arXiv:2101.06840 (ZeRO-Offload): gradients down, parameters up, the update on the processors in
pieces whose copies overlap it (sections 3 and 4), delayed parameter update (section 5.2). Rajbhandari et al.,
arXiv:2104.07857 (ZeRO-Infinity): parameters on the host or on disk, fetched ahead of use (sections 5 and 6).
"""

from __future__ import annotations

from heliograph.operators import HostWork, Lane, Phase, Transfer
from workloads.architecture import TransformerConfig
from workloads.choices import Place
from workloads.graph import Graph
from workloads.plan import Parallelism
from workloads.sharding import RankParameters, optimizer_share, shared_share
from workloads.updates import optimizer_bytes, update_work


class HostTraffic:
    """Adds what one stage moves to its hosts and back; nothing if all stays on the accelerator.

    Parameters
    ----------
    config, plan : TransformerConfig, Parallelism
        Model and plan.
    stage : int
        The stage.
    graph : Graph
        Where tasks are added.
    """

    def __init__(self, config: TransformerConfig, plan: Parallelism, stage: int, graph: Graph) -> None:
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
        if not plan.fetches_parameters:
            return ()
        size = shared_share(plan, held) * plan.precision.element_bytes
        ahead = 3 if plan.gradient_ranks > 1 else 2
        needs = tuple(computed[-ahead : 1 - ahead])
        if plan.parameter_place is Place.NVME:
            room = tuple(computed[-ahead - 1 : -ahead])
            read = self._move("parameters", Phase.FORWARD, Lane.FROM_STORAGE, size, room)
            needs = (*needs, *read)
        return self._move("parameters", Phase.FORWARD, Lane.FROM_HOST, size, needs)

    def lower(self, held: RankParameters, after: tuple[int, ...], *, first: bool) -> None:
        """Add the way of a rank's share of a part's gradients to the host, which adds up microbatches."""
        plan = self.plan
        if not plan.updates_on_host:
            return
        size = shared_share(plan, held) * plan.grad_bytes
        ended = self._move("gradients", Phase.GRAD_WEIGHT, Lane.TO_HOST, size, after)
        if plan.shards_gradients and not first:
            work = HostWork(
                name="gradients.add",
                phase=Phase.GRAD_WEIGHT,
                flops=shared_share(plan, held),
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
        grads = () if plan.delayed_update else (*after, *self.lowered)
        ended: list[int] = []
        for held in parts:
            count = optimizer_share(plan, held)
            needs = grads
            kept = optimizer_bytes(self.config, plan) * count
            if plan.optimizer_place is Place.NVME:
                room = tuple(ended[-2:-1])
                needs = (*needs, *self._move("optimizer", Phase.UPDATE, Lane.FROM_STORAGE, kept, room))
            done = (self.graph.add(self.stage, self._work(held), tuple(dict.fromkeys(needs)), 0),)
            freed: tuple[int, ...] = done
            if plan.optimizer_place is Place.NVME:
                freed = self._move("optimizer", Phase.UPDATE, Lane.TO_STORAGE, kept, done)
            ended += freed
            stored = plan.precision.element_bytes * count
            if not plan.fetches_parameters:
                ready = (*done, last) if plan.delayed_update else done
                self._move("parameters", Phase.UPDATE, Lane.FROM_HOST, stored, ready)
            elif plan.parameter_place is Place.NVME:
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
