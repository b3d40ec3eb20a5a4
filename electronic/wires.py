"""Fabrics of bare links, as simulators without devices describe them: a rate and a latency, nothing else.

They have neither power nor price, and serve where a result is held against such a simulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heliograph.checks import check_positive, check_range
from heliograph.errors import ParameterError
from heliograph.interfaces import Flows, LinkGraph, Reconfiguration

NO_LINK = -1
"""Padding of short routes."""


@dataclass(frozen=True, kw_only=True)
class Wires:
    """Endpoints with one port each into a switch that never blocks, or with a link to every other endpoint.

    Notes
    -----
    Links in this order: switched, endpoint to switch [E] and switch to endpoint [E]; fully connected, from
    endpoint s to endpoint d at s E + d [E^2] (those from an endpoint to itself are never used). A fat-tree
    without oversubscription whose flows are spread perfectly is the former.
    """

    name: str = "wires"
    """Name shown in tables and traces."""
    endpoints: int
    """Accelerators."""
    link_bytes_per_s: float
    """Rate of a link, one way."""
    latency_s: float
    """Latency of a whole path, first byte in to first byte out."""
    direct: bool = False
    """Whether every pair has a link of its own."""

    def __post_init__(self) -> None:
        check_positive(self, "endpoints", "link_bytes_per_s")
        check_range(self, "latency_s")
        if self.endpoints != int(self.endpoints):
            msg = f"Wires '{self.name}': endpoints must be whole; got {self.endpoints}"
            raise ParameterError(msg)

    @property
    def node_size(self) -> int:
        """One: no endpoints share a node."""
        return 1

    @property
    def static_w(self) -> float:
        """No power: links are bare."""
        return 0.0

    @property
    def cost_usd(self) -> float:
        """No price: links are bare."""
        return 0.0

    def initial(self, demand: tuple[Flows, ...]) -> None:
        """Return None: there are no circuits."""
        return

    def configure(
        self, circuits: None, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[None, Reconfiguration]:
        """Return the circuits as they were handed in, with no dark time."""
        return circuits, Reconfiguration()

    def graph(self, circuits: None) -> LinkGraph:
        """Return the links, which never change."""
        return self._graph

    @cached_property
    def _graph(self) -> LinkGraph:
        links = self.endpoints**2 if self.direct else 2 * self.endpoints
        hops = 1 if self.direct else 2
        return LinkGraph(
            capacity_bytes_per_s=np.full(links, self.link_bytes_per_s),
            latency_s=np.full(links, self.latency_s / hops),
        )

    def route(self, circuits: None, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, 1] or [F, 2]; a flow to itself has none."""
        source, destination = flows.sources, flows.destinations
        if self.direct:
            links = np.stack([source * self.endpoints + destination], axis=1)
        else:
            links = np.stack([source, self.endpoints + destination], axis=1)
        links[source == destination] = NO_LINK
        return links

    def connected(self, circuits: None, flows: Flows) -> bool:
        """Return True: everybody reaches everybody."""
        return True

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return no energy: links are bare."""
        return 0.0
