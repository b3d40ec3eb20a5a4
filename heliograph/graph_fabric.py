"""Fabrics that are a fixed graph: a topology says its links, its routes and its parts, the rest follows.

Routes are computed by the topology, in closed form where it has one, so that tens of thousands of endpoints
cost arithmetic on arrays and no search.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np

from heliograph.detours import detours
from heliograph.interfaces import Flows, LinkGraph, Reconfiguration
from heliograph.scale_up import BillItem, bill_power_w, bill_price_usd
from heliograph.wiring import NO_LINK, Wiring, bundle, joined, packed

__all__ = ["NO_LINK", "GraphFabric", "Wiring", "bundle", "joined", "packed"]


class GraphFabric(Protocol):
    """A fabric whose links never change. A topology that inherits from it says the first four members.

    Notes
    -----
    Explicit inheritance fills in the rest of `heliograph.interfaces.Fabric`.
    """

    @cached_property
    def wiring(self) -> Wiring:
        """Links between endpoints and switches."""
        ...

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links from sources to other endpoints, shape [F, H], padded with `NO_LINK`."""
        ...

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        ...

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once."""
        ...

    @cached_property
    def static_w(self) -> float:
        """Power of everything on the bill, whole fabric."""
        return bill_power_w(self.bill())

    @cached_property
    def cost_usd(self) -> float:
        """Price of everything on the bill, whole fabric."""
        return bill_price_usd(self.bill())

    def initial(self, demand: tuple[Flows, ...]) -> None:
        """Return None: there are no circuits."""
        return

    def configure(
        self, circuits: None, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[None, Reconfiguration]:
        """Return the circuits as they were handed in, with no dark time."""
        return circuits, Reconfiguration()

    @cached_property
    def _link_graph(self) -> LinkGraph:
        return self.wiring.graph()

    def graph(self, circuits: None) -> LinkGraph:
        """Return the links, which never change."""
        return self._link_graph

    def route(self, circuits: None, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, H]; a flow to itself has none."""
        moving = flows.sources != flows.destinations
        found = self.paths(flows.sources[moving], flows.destinations[moving])
        if moving.all():
            return found
        links = np.full((moving.size, found.shape[1]), NO_LINK, dtype=np.int64)
        links[moving] = found
        return links

    def around(self, circuits: None, flows: Flows, failed: np.ndarray) -> np.ndarray:
        """Return the links of each flow as `route` does, past failed links where a way is left."""
        return detours(self.wiring, self.route(circuits, flows), flows, failed)

    def connected(self, circuits: None, flows: Flows) -> bool:
        """Return True: every endpoint reaches every other."""
        return True
