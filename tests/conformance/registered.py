"""Every fabric of the registry at the sizes of the suites, with toys that live here and nowhere else."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heliograph.systems.fabrics import FABRICS, build_fabric, register_fabric, unregister_fabric
from simulator.fabric import Fabric, PortOwner, Ports, Traits
from simulator.interfaces import LinkGraph, Reconfiguration, Wiring
from simulator.topology.graphs import NO_LINK, GraphFabric, bundle, joined
from simulator.topology.scale_up import BillItem

GPU = "h100"
RATE, LATENCY_S, PORT_J_PER_BYTE = 5e10, 1e-6, 1e-10


@dataclass(frozen=True, kw_only=True)
class Hub(Fabric):
    """One switch that never blocks: the least that a fabric may say."""

    name: str = "hub"
    endpoints: int

    def graph(self, circuits):
        links = 2 * self.endpoints
        return LinkGraph(capacity_bytes_per_s=np.full(links, RATE), latency_s=np.full(links, LATENCY_S))

    def route(self, circuits, flows):
        links = np.stack([flows.sources, self.endpoints + flows.destinations], axis=1)
        links[flows.sources == flows.destinations] = NO_LINK
        return links

    def transfer_energy_j(self, flows):
        return flows.moved_bytes(flows.sources != flows.destinations) * PORT_J_PER_BYTE

    def bill(self):
        return {"port": BillItem(count=self.endpoints, w_each=5.0, usd_each=100.0)}


@dataclass(frozen=True, kw_only=True)
class Loop(GraphFabric):
    """A ring of links both ways, without any switch."""

    name: str = "loop"
    endpoints: int

    @cached_property
    def wiring(self):
        every = np.arange(self.endpoints)
        return joined(
            [
                bundle(every, np.roll(every, -step), rate_bytes_per_s=RATE, latency_s=LATENCY_S)
                for step in (1, -1)
            ]
        )

    def paths(self, sources, destinations):
        ahead = (destinations - sources) % self.endpoints
        back = self.endpoints - ahead
        places = np.arange(int(np.minimum(ahead, back).max(initial=0)))
        forward = (sources[:, None] + places) % self.endpoints
        backward = self.endpoints + (sources[:, None] - places) % self.endpoints
        links = np.where((ahead <= back)[:, None], forward, backward)
        return np.where(places < np.minimum(ahead, back)[:, None], links, NO_LINK)

    def transfer_energy_j(self, flows):
        return flows.moved_bytes((self.route(None, flows) >= 0).sum(axis=1)) * PORT_J_PER_BYTE

    def bill(self):
        return {"port": BillItem(count=2 * self.endpoints, w_each=5.0, usd_each=100.0)}


@dataclass(frozen=True, kw_only=True)
class Turntable(Hub):
    """A hub, and one circuit from each endpoint, turned to permutations that ask."""

    name: str = "turntable"

    @cached_property
    def traits(self):
        ports = Ports(owner=PortOwner.ENDPOINT, owners=self.endpoints, lanes=1)
        return Traits(reconfiguration_s=1e-3, ports=ports)

    def initial(self, demand):
        return np.full(self.endpoints, -1)

    def _asks(self, circuits, flows):
        alone = all(np.unique(side).size == side.size for side in (flows.sources, flows.destinations))
        return alone and bool((circuits[flows.sources] != flows.destinations).any())

    def connected(self, circuits, flows):
        return not self._asks(circuits, flows)

    def configure(self, circuits, flows, demand):
        if not self._asks(circuits, flows):
            return circuits, Reconfiguration()
        peers = np.where(np.isin(circuits, flows.destinations), -1, circuits)
        peers[flows.sources] = flows.destinations
        moved = 2 * self.endpoints + np.flatnonzero(peers != circuits)
        return peers, Reconfiguration(reconfiguration_s=1e-3, moved_links=moved, energy_j=1e-3 * moved.size)

    def without(self, circuits, failed):
        return np.where(np.isin(np.arange(self.endpoints), failed), -1, circuits), Reconfiguration()

    def graph(self, circuits):
        hub = super().graph(circuits)
        lit = np.where(circuits >= 0, 4 * RATE, 0.0)
        return LinkGraph(
            capacity_bytes_per_s=np.concatenate([hub.capacity_bytes_per_s, lit]),
            latency_s=np.concatenate([hub.latency_s, np.full(lit.size, LATENCY_S)]),
        )

    def route(self, circuits, flows):
        links = super().route(circuits, flows)
        lit = (circuits[flows.sources] == flows.destinations) & (flows.sources != flows.destinations)
        links[lit] = np.stack([2 * self.endpoints + flows.sources[lit], np.full(lit.sum(), NO_LINK)], axis=1)
        return links

    def wired(self, circuits):
        every, hub = np.arange(self.endpoints), np.full(self.endpoints, self.endpoints)
        graph = self.graph(circuits)
        return Wiring(
            tails=np.concatenate([every, hub, every]),
            heads=np.concatenate([hub, every, np.where(circuits >= 0, circuits, every)]),
            capacity_bytes_per_s=graph.capacity_bytes_per_s,
            latency_s=graph.latency_s,
        )


TOYS = {"toy_hub": Hub, "toy_loop": Loop, "toy_turntable": Turntable}


@contextmanager
def toys() -> Iterator[None]:
    """Register the toys for a while."""
    for name, kind in TOYS.items():
        register_fabric(name, kind)
    try:
        yield
    finally:
        for name in TOYS:
            unregister_fabric(name)


def registered(endpoints: int) -> dict[str, Fabric]:
    """Return every fabric of the registry, toys included, for so many accelerators."""
    with toys():
        return {f"registered {name}": build_fabric(name, endpoints, GPU) for name in FABRICS}


def never_changing(fabrics: dict[str, Fabric]) -> dict[str, Fabric]:
    """Return those whose links have names and never change."""
    return {
        name: fabric
        for name, fabric in fabrics.items()
        if fabric.initial(()) is None and fabric.wired(None) is not None
    }


def with_circuits(fabrics: dict[str, Fabric]) -> dict[str, Fabric]:
    """Return those whose links circuits decide."""
    return {name: fabric for name, fabric in fabrics.items() if fabric.initial(()) is not None}
