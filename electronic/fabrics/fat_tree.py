"""Fat-trees over all cards, rail-only networks (a fat-tree for each rail), one switched scale-up domain."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from electronic.devices import load_scale_up
from electronic.fabrics.packets import AddingFabric, MultipathFabric
from simulator.errors import ParameterError, check_range
from simulator.fabric import NodeFabric, Traits
from simulator.interfaces import Flows, Wiring
from simulator.topology.clos import Clos
from simulator.topology.graphs import NO_LINK, GraphFabric, both_ways, joined, packed
from simulator.topology.scale_up import BillItem, ScaleUp


@dataclass(frozen=True, kw_only=True)
class FatTree(MultipathFabric, AddingFabric):
    """Nodes under a folded Clos network, all cards of a node on one leaf.

    References
    ----------
    Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center network architecture", SIGCOMM 2008.
    """

    name: str = "fat-tree"
    """Name shown in tables and traces."""
    oversubscription: float = 1.0
    """Downlinks over uplinks of a leaf, at least 1; dimensionless."""
    spine_oversubscription: float = 1.0
    """Downlinks over uplinks of a spine in a tree of three levels, at least 1; dimensionless."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.clos

    @cached_property
    def clos(self) -> Clos:
        """Switches and the links between them."""
        return Clos(
            ports=self.endpoints,
            radix=self.switch.radix,
            oversubscription=self.oversubscription,
            spine_oversubscription=self.spine_oversubscription,
            spreading=self.spread,
            hash_seed=self.hash_seed,
        )

    @cached_property
    def edges(self) -> np.ndarray:
        """Leaf of each endpoint, shape [E]."""
        return self.clos.leaf_of(np.arange(self.endpoints))

    @property
    def switches(self) -> int:
        """Switches of all levels."""
        return self.clos.switches

    @property
    def trunks(self) -> int:
        """Links between switches; both directions count as one."""
        return self.clos.trunks

    def trunk_wiring(self, first_vertex: int) -> Wiring:
        """Return the links between switches, leaves from vertex `first_vertex` on."""
        return self.clos.wiring(
            first_vertex=first_vertex,
            rate_bytes_per_s=self.trunk_bytes_per_s,
            latency_s=self.trunk_latency_s,
        )

    def trunk_paths(self, sources: np.ndarray, destinations: np.ndarray) -> list[np.ndarray]:
        """Return the links between switches of each flow, hop by hop."""
        return self.clos.paths(sources, destinations)


@dataclass(frozen=True, kw_only=True)
class RailOnly(MultipathFabric, AddingFabric):
    """A separate network for each rail and none between rails; other rails are reached through the node.

    Notes
    -----
    Accelerator e is on rail ``e % size``. A flow to another rail first crosses its node to the accelerator
    on the destination's rail, whose card sends it on. Several small rails may share the chassis of a switch,
    but no flow passes from one rail's ports to another's.

    References
    ----------
    Wang et al., "Rail-only: A Low-Cost High-Performance Network for Training LLMs with Trillions of
    Parameters", Hot Interconnects 2024 (arXiv:2307.12169).
    """

    name: str = "rail-only"
    """Name shown in tables and traces."""
    oversubscription: float = 1.0
    """Links below over links above a rail's leaf, at least 1; dimensionless."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.clos

    @property
    def rails(self) -> int:
        """Rails: accelerators of a node."""
        return self.node_size

    @cached_property
    def clos(self) -> Clos:
        """Switches of one rail and the links between them."""
        return Clos(
            ports=self.nodes,
            radix=self.switch.radix,
            oversubscription=self.oversubscription,
            spreading=self.spread,
            hash_seed=self.hash_seed,
        )

    @cached_property
    def edges(self) -> np.ndarray:
        """Switch of each endpoint's card, rail after rail, shape [E]."""
        every = np.arange(self.endpoints)
        nodes, rails = self.scale_up.node_of(every), self.scale_up.rail_of(every)
        return rails * self.clos.vertices + self.clos.leaf_of(nodes)

    @property
    def switches(self) -> int:
        """Switches of all rails; small rails share chassis."""
        if self.clos.levels == 1:
            return math.ceil(self.rails / (self.switch.radix // self.nodes))
        return self.rails * self.clos.switches

    @property
    def trunks(self) -> int:
        """Links between switches; both directions count as one."""
        return self.rails * self.clos.trunks

    def trunk_wiring(self, first_vertex: int) -> Wiring:
        """Return the links between switches, rail after rail."""
        return joined(
            [
                self.clos.wiring(
                    first_vertex=first_vertex + rail * self.clos.vertices,
                    rate_bytes_per_s=self.trunk_bytes_per_s,
                    latency_s=self.trunk_latency_s,
                )
                for rail in range(self.rails)
            ]
        )

    @cached_property
    def _rail_links(self) -> int:
        return self.clos.wiring(first_vertex=0, rate_bytes_per_s=1.0, latency_s=0.0).links

    def trunk_paths(self, sources: np.ndarray, destinations: np.ndarray) -> list[np.ndarray]:
        """Return the links between switches of each flow on the destination's rail, hop by hop."""
        offset = self.scale_up.rail_of(destinations) * self._rail_links
        on_rail = self.clos.paths(self.scale_up.node_of(sources), self.scale_up.node_of(destinations))
        return [np.where(links != NO_LINK, links + offset, NO_LINK) for links in on_rail]

    def senders(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the endpoint on the destination's rail in each source's node, shape [F]."""
        return self.scale_up.carriers(sources, destinations)


@dataclass(frozen=True, kw_only=True)
class SwitchedDomain(NodeFabric, GraphFabric):
    """All accelerators under NVLink switches, as within a node or a rack.

    Notes
    -----
    Every accelerator has a link to each switch chip of a layer, so the chips act as one switch with the ports
    of one chip: up to `radix` accelerators under one level, beyond that two or three levels. Each port of the
    upper levels has the power and price of a port at the accelerators.
    """

    name: str = "nvlink domain"
    """Name shown in tables and traces."""
    endpoints: int
    """Accelerators."""
    scale_up: ScaleUp = field(default_factory=lambda: load_scale_up("nvlink5-72"))
    """The domain; its size must be that of the system."""
    radix: int = 72
    """Ports of a switch chip (NVLink 5 Switch); dimensionless."""
    oversubscription: float = 1.0
    """Links below over links above a switch of the first level, at least 1; dimensionless."""

    def __post_init__(self) -> None:
        check_range(self, "endpoints", low=1)
        if self.scale_up.size != self.endpoints:
            msg = (
                f"a domain of {self.scale_up.size} ('{self.scale_up.name}') must hold all {self.endpoints} "
                "accelerators of this fabric; leave its size alone, or take a fabric between nodes"
            )
            raise ParameterError(msg)
        _ = self.clos

    @cached_property
    def traits(self) -> Traits:
        """Library of the domain."""
        return Traits(scale_up=self.scale_up)

    @cached_property
    def clos(self) -> Clos:
        """Levels of switches."""
        return Clos(ports=self.endpoints, radix=self.radix, oversubscription=self.oversubscription)

    @cached_property
    def wiring(self) -> Wiring:
        """Links from accelerators to switches, back, and between switches."""
        every = np.arange(self.endpoints)
        switches = self.endpoints + self.clos.leaf_of(every)
        rate, half_s = self.scale_up.capacity_bytes_per_s, self.scale_up.latency_s / 2
        return joined(
            [
                both_ways(every, switches, rate_bytes_per_s=rate, latency_s=half_s),
                self.clos.wiring(first_vertex=self.endpoints, rate_bytes_per_s=rate, latency_s=half_s),
            ]
        )

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links from sources to other endpoints, shape [F, H], padded with `NO_LINK`."""
        between = [
            np.where(links != NO_LINK, links + 2 * self.endpoints, NO_LINK)
            for links in self.clos.paths(sources, destinations)
        ]
        return packed([sources, *between, self.endpoints + destinations])

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        return {"scale-up": self.scale_up.item(self.endpoints + 2 * self.clos.trunks)}

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once, over one switch or several."""
        moving = flows.sources != flows.destinations
        crossed = self.paths(flows.sources[moving], flows.destinations[moving]) != NO_LINK
        # The energy in the table is that of two hops, to a switch and from it.
        hops = crossed.sum(axis=1) / 2
        return self.scale_up.transfer_energy_j(flows.part(moving).moved_bytes(hops))
