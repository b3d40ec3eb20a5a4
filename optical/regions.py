"""What stands beside circuits that serve only some traffic: packets, the circuits' state, who gets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

import numpy as np

from heliograph.graph_fabric import Wiring
from heliograph.interfaces import Flows
from heliograph.scale_up import BillItem, ScaleUp
from optical.circuits import Circuits
from optical.job_lanes import DomainDemand, busiest_first
from optical.scheduling.topology import job_topology
from optical.uneven_circuits import even_circuits


class CircuitChoice(StrEnum):
    """Which pairs of nodes get circuits."""

    GREEDY = "greedy"
    """One circuit after the other to the pair that finishes last (MixNet)."""
    MATCHING = "matching"
    """Matchings of greatest traffic, one after the other (c-Through, Helios)."""
    EVEN = "even"
    """As many to every pair with traffic, however much it has; what a fabric does that knows no demand."""


class Packets(Protocol):
    """A packet fabric that can stand beside circuits: a fixed graph with switched nodes.

    Its first links lead from accelerators to their node's switch [E], the next from there back [E].
    """

    @property
    def name(self) -> str:
        """Name shown in tables."""
        ...

    @property
    def endpoints(self) -> int:
        """Accelerators."""
        ...

    @property
    def scale_up(self) -> ScaleUp:
        """The domain inside a node."""
        ...

    @property
    def wiring(self) -> Wiring:
        """All links."""
        ...

    @property
    def port_bytes_per_s(self) -> float:
        """Rate of an accelerator's card."""
        ...

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials."""
        ...

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links from sources to other endpoints, shape [F, H]."""
        ...

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionCircuits:
    """Circuits of all regions, and whom they serve; treat as immutable."""

    circuits: Circuits
    """Which node each card of each node reaches, shape [N, degree]."""
    axes: tuple[str, ...]
    """Axis of parallelism that each region's circuits were turned to; empty before the first."""
    big: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    """Whether each axis of the step has traffic enough to turn circuits for it."""


def region_links(demand: DomainDemand, degree: int, choice: CircuitChoice) -> np.ndarray:
    """Return circuits for the traffic of a region, shape [N, N], whole numbers.

    Parameters
    ----------
    demand : DomainDemand
        Traffic of the region, as skewed as it may be.
    degree : int
        Circuits that a node may begin, and as many that it may end.
    choice : CircuitChoice
        Which pairs get them.
    """
    wanted = demand.matrix
    if choice is CircuitChoice.EVEN:
        return even_circuits(wanted, degree)
    if choice is CircuitChoice.GREEDY:
        return busiest_first(wanted, degree)
    return job_topology((), wanted, degree=degree).links
