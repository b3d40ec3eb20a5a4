"""Times of single collectives on a GPU cluster, for holding the network model to published bus bandwidths."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

import simpy

from electronic.devices import load_packet_switch, load_scale_up, load_transceiver, scale_up_name
from electronic.fabrics.packets import RailFabric
from electronic.gpu import gpu_of
from simulator.collectives.flow_groups import PricedCollective
from simulator.collectives.traffic import Traffic
from simulator.engine.network import Network
from simulator.errors import WorkloadError, nearest
from simulator.layout import RankLayout
from simulator.operators import Collective, CollectiveKind, Phase
from simulator.topology.scale_up import load_nic

HDR = ("connectx-6", "switch-200g", "dr4-200g")
"""Card, switch and module of a network of 200 Gb/s per GPU."""
NDR = ("connectx-7", "switch-400g", "dr4-400g")
"""The same with 400 Gb/s."""
NETWORKS = MappingProxyType({"200g": HDR, "400g": NDR})
"""The same by the rate of a card."""
HDR_GENERATION = ("v100", "a100", "mi210", "tpu")
"""GPUs whose names begin so came with 200 Gb/s or less; the later ones with 400."""


def all_reduce_time_s(
    gpu_name: str,
    n_gpus: int,
    nbytes: float,
    kind: str = "all_reduce",
    *,
    in_network: bool = True,
    algorithm: str = "",
    cards: str = "",
) -> float:
    """Return how long a collective takes on GPUs that do nothing else.

    Parameters
    ----------
    gpu_name : str
        GPU, as `electronic.kernels.gpu_of` reads it; decides the domain inside a node and the network.
    n_gpus : int
        GPUs that take part: up to a node's, or whole nodes.
    nbytes : float
        Bytes as nccl-tests counts them: the whole vector, for an all-gather what each rank ends with.
    kind : str
        One of `CollectiveKind`.
    in_network : bool
        Whether the switches may add, where they can (NCCL's NVLS).
    algorithm : str
        The only one that the library may take (NCCL_ALGO), as in `Algorithm`; any if empty, or if the GPUs
        lack it.
    cards : str
        A key of `NETWORKS`: what joins nodes; what came with the GPU if empty.

    Raises
    ------
    ParameterError
        If the GPU is unknown or a node incomplete.
    WorkloadError
        If there is no such collective.
    """
    plan = collective_plan(
        gpu_name, n_gpus, nbytes, kind, in_network=in_network, algorithm=algorithm, cards=cards
    )
    return plan.alone_s


@lru_cache(maxsize=4096)
def collective_plan(
    gpu_name: str,
    n_gpus: int,
    nbytes: float,
    kind: str = "all_reduce",
    *,
    in_network: bool = True,
    algorithm: str = "",
    cards: str = "",
) -> PricedCollective:
    """Return how a communication library would carry out a collective; see `all_reduce_time_s`."""
    options = collective_plans(gpu_name, n_gpus, nbytes, kind, in_network=in_network, cards=cards)
    asked = [plan for plan in options if plan.algorithm.split()[0] == algorithm]
    return min(asked or options, key=lambda plan: plan.alone_s)


def collective_plans(
    gpu_name: str,
    n_gpus: int,
    nbytes: float,
    kind: str = "all_reduce",
    *,
    in_network: bool = True,
    cards: str = "",
) -> tuple[PricedCollective, ...]:
    """Return all ways in which a library could carry out a collective: algorithms and protocols."""
    if kind not in set(CollectiveKind):
        msg = f"no collective is called '{kind}'; {nearest(kind, set(CollectiveKind), noun='collective')}"
        raise WorkloadError(msg)
    if cards not in {"", *NETWORKS}:
        msg = f"no cards are called '{cards}'; {nearest(cards, set(NETWORKS), noun='network')}"
        raise WorkloadError(msg)
    what = CollectiveKind(kind)
    total = max(2, n_gpus) if what is CollectiveKind.SEND else n_gpus
    traffic = _traffic(gpu_of(gpu_name), total, what, in_network, cards)
    shared = n_gpus if what is CollectiveKind.ALL_GATHER else 1
    sends = what is CollectiveKind.SEND
    operator = Collective(
        name="measured",
        layer="block",
        phase=Phase.FORWARD,
        kind=what,
        axis="pp" if sends else "dp",
        size=2 if sends else n_gpus,
        payload_bytes=nbytes / shared,
        shift=int(sends),
    )
    return traffic.options(operator, 0)


@lru_cache(maxsize=256)
def _traffic(gpu_name: str, n_gpus: int, kind: CollectiveKind, in_network: bool, cards: str) -> Traffic:
    scale_up = load_scale_up(scale_up_name(gpu_name, n_gpus))
    if not in_network:
        scale_up = replace(scale_up, adders=())
    if n_gpus < scale_up.size:
        scale_up = replace(scale_up, size=n_gpus)
    usual = "200g" if gpu_name.startswith(HDR_GENERATION) else "400g"
    nic, switch, module = NETWORKS[cards or usual]
    fabric = RailFabric(
        endpoints=n_gpus,
        scale_up=scale_up,
        nic=load_nic(nic),
        switch=load_packet_switch(switch),
        transceiver=load_transceiver(module),
    )
    sends = kind is CollectiveKind.SEND
    layout = RankLayout(pp=n_gpus) if sends else RankLayout(dp=n_gpus)
    return Traffic(layout, fabric, Network(simpy.Environment(), fabric, ()), {})
