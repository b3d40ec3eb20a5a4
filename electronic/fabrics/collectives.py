"""Times of single collectives on an otherwise idle GPU cluster, on the GPUs and as a benchmark prints them.

The validation compares these times with published bus bandwidths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import simpy

from electronic.devices import (
    REFERENCE_SYSTEMS,
    load_packet_switch,
    load_scale_up,
    load_transceiver,
    scale_up_name,
    table,
)
from electronic.fabrics.packets import RailFabric
from electronic.gpu import gpu_of
from simulator.collectives.algorithms import Algorithm
from simulator.collectives.flow_groups import PricedCollective
from simulator.collectives.traffic import Traffic
from simulator.engine.network import Network
from simulator.errors import check_member, check_range
from simulator.layout import Axis, RankLayout
from simulator.operators import Collective, CollectiveKind, Phase
from simulator.topology.scale_up import load_nic


class Cards(StrEnum):
    """Network cards of a node, by the rate per GPU."""

    HALF_EDR = "50g"
    """One card of 100 Gb/s for two GPUs."""
    HALF_HDR = "100g"
    """One card of 200 Gb/s for two GPUs."""
    HDR = "200g"
    """200 Gb/s."""
    NDR = "400g"
    """400 Gb/s."""
    EFA_HALF_EDR = "efa-50g"
    """An EFA card of 100 Gb/s for two GPUs (AWS P4d)."""
    EFA = "efa-400g"
    """EFA cards of 400 Gb/s together (AWS P5)."""


class CardParts(NamedTuple):
    """Network around a choice of cards, by names in the network table."""

    nic: str
    """Network card."""
    switch: str
    """Packet switch."""
    transceiver: str
    """Optical module."""
    nic_gpus: int
    """GPUs that share a card of the table."""


CARD_PARTS = MappingProxyType(
    {
        Cards.HALF_EDR: CardParts("connectx-6-dx", "switch-100g", "dr4-200g", 2),
        Cards.HALF_HDR: CardParts("connectx-6", "switch-200g", "dr4-200g", 2),
        Cards.HDR: CardParts("connectx-6", "switch-200g", "dr4-200g", 1),
        Cards.NDR: CardParts("connectx-7", "switch-400g", "dr4-400g", 1),
        Cards.EFA_HALF_EDR: CardParts("efa", "switch-400g", "dr4-400g", 8),
        Cards.EFA: CardParts("efa", "switch-400g", "dr4-400g", 1),
    }
)
"""Network of each choice of cards."""


@lru_cache(maxsize=4096)
def collective_plan(
    gpu_name: str,
    n_gpus: int,
    nbytes: float,
    kind: CollectiveKind = CollectiveKind.ALL_REDUCE,
    *,
    in_network: bool = True,
    algorithm: Algorithm | None = None,
    cards: Cards | None = None,
) -> PricedCollective:
    """Return the fastest algorithm and protocol of a communication library for a collective on idle GPUs.

    Parameters
    ----------
    gpu_name : str
        GPU, as `electronic.gpu.gpu_of` reads it; decides the domain inside a node and the network.
    n_gpus : int
        GPUs of the collective: up to those of a node, or whole nodes.
    nbytes : float
        Size as nccl-tests counts it: the whole vector, for an all-gather the result of each rank.
    kind : CollectiveKind
        Collective.
    in_network : bool
        Whether switches may add, where they can (NCCL's NVLS).
    algorithm : Algorithm, optional
        Only algorithm that the library may use (NCCL_ALGO); any if not given or not available on the GPUs.
    cards : Cards, optional
        Network cards; by default those that were sold with the GPU.

    Raises
    ------
    ParameterError
        If the GPU is unknown, a node is incomplete, or an argument is the text of an enumeration's member.
    """
    if algorithm is not None:
        check_member("algorithm", algorithm, Algorithm)
    options = collective_plans(gpu_name, n_gpus, nbytes, kind, in_network=in_network, cards=cards)
    allowed = [plan for plan in options if plan.algorithm.split()[0] == algorithm]
    return min(allowed or options, key=lambda plan: plan.alone_s)


def collective_plans(
    gpu_name: str,
    n_gpus: int,
    nbytes: float,
    kind: CollectiveKind = CollectiveKind.ALL_REDUCE,
    *,
    in_network: bool = True,
    cards: Cards | None = None,
) -> tuple[PricedCollective, ...]:
    """Return every combination of algorithm and protocol in which a library could run a collective.

    A send goes from one node to the next if the ranks fill several nodes.
    """
    check_member("kind", kind, CollectiveKind)
    if cards is not None:
        check_member("cards", cards, Cards)
    sends = kind is CollectiveKind.SEND
    ranks = max(2, n_gpus) if sends else n_gpus
    traffic = _traffic(gpu_of(gpu_name), ranks, kind, in_network, cards)
    shards = n_gpus if kind is CollectiveKind.ALL_GATHER else 1
    operator = Collective(
        name="measured",
        phase=Phase.FORWARD,
        kind=kind,
        axis=Axis.PIPELINE if sends else Axis.DATA,
        size=2 if sends else n_gpus,
        payload_bytes=nbytes / shards,
        shift=int(sends),
    )
    node = load_scale_up(scale_up_name(gpu_of(gpu_name), ranks)).size
    return traffic.options(operator, node - 1 if sends and ranks > node else 0)


@lru_cache(maxsize=256)
def _traffic(
    gpu_name: str,
    n_gpus: int,
    kind: CollectiveKind,
    in_network: bool,
    cards: Cards | None,
) -> Traffic:
    """Return the prices of collectives on a cluster without other traffic."""
    scale_up = load_scale_up(scale_up_name(gpu_name, n_gpus))
    if cards is Cards.EFA_HALF_EDR:
        # EFA of A100 and before wrote out of order and let no protocol through that has flags among its data
        # (aws/aws-ofi-nccl, issue 76, until its pull request 280).
        scale_up = replace(scale_up, protocols=scale_up.protocols[-1:])
    if not in_network:
        scale_up = replace(scale_up, adders=())
    if n_gpus < scale_up.size:
        scale_up = replace(scale_up, size=n_gpus)
    shipped = Cards.HDR if REFERENCE_SYSTEMS[gpu_name].slow_cards else Cards.NDR
    parts = CARD_PARTS[cards or shipped]
    nic = load_nic(parts.nic)
    fabric = RailFabric(
        endpoints=n_gpus,
        scale_up=scale_up,
        nic=replace(nic, bandwidth_bytes_per_s=nic.bandwidth_bytes_per_s / parts.nic_gpus),
        switch=load_packet_switch(parts.switch),
        transceiver=load_transceiver(parts.transceiver),
    )
    sends = kind is CollectiveKind.SEND
    layout = RankLayout(pp=n_gpus) if sends else RankLayout(dp=n_gpus)
    return Traffic(layout, fabric, Network(simpy.Environment(), fabric, ()), {})


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Host-side overhead of a benchmark that times collectives.

    Notes
    -----
    A process issues the kernels of its GPUs one after the other, while those of earlier calls still run.
    Hence a collective shorter than its issue takes the time of the issue. If events on an idle GPU are timed,
    the launch of the first kernel counts in full (`exposed_s`).

    References
    ----------
    nccl-tests, doc/PERFORMANCE.md (time over calls in a row) and issue 123 (one process with 2 to 8 A100).
    """

    name: str = "caller"
    """Name shown in tables."""
    issue_s: float
    """Time in which a process issues a collective to one of its GPUs."""
    exposed_s: float
    """Time per call in which the GPUs wait for the host."""

    def __post_init__(self) -> None:
        check_range(self, "issue_s", "exposed_s")

    def measured_s(self, alone_s: float, gpus_per_process: int) -> float:
        """Return the time that the benchmark prints for a collective.

        Parameters
        ----------
        alone_s : float
            Duration on the GPUs, from the start of the last kernel.
        gpus_per_process : int
            GPUs of one process.
        """
        return self.exposed_s + max(alone_s, gpus_per_process * self.issue_s)


def load_caller(name: str) -> Caller:
    """Return a benchmark from the network table, e.g. ``"nccl-tests"``."""
    return table("network").build(Caller, name)
