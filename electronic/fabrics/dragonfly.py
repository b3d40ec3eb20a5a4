"""Dragonflies: groups of switches, every group joined to every other by direct links."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from electronic.fabrics.packets import AddingFabric
from simulator.errors import ParameterError, check_range
from simulator.fabric import Fabric, Loads, route_loads
from simulator.interfaces import Flows, Wiring
from simulator.topology.clos import GlobalLinks
from simulator.topology.graphs import NO_LINK, both_ways, bundle, joined, stacked


class Routing(StrEnum):
    """Routing of flows through a dragonfly."""

    MINIMAL = "minimal"
    """Over the shortest route."""
    VALIANT = "valiant"
    """Through another group, or another router of the same group: twice the traffic, evenly spread."""


def _intermediate(first: np.ndarray, last: np.ndarray, number: np.ndarray, count: int) -> np.ndarray:
    """Return intermediate number `number` among `count` members other than `first` and `last`, shape [F].

    Members are counted in cyclic order from the one after `first`.
    """
    ahead = 1 + number % max(1, count - 2)
    return (first + ahead + (ahead >= (last - first) % count)) % count


@dataclass(frozen=True, kw_only=True)
class Dragonfly(AddingFabric):
    """Groups of fully joined routers, and links from every group to every other.

    Notes
    -----
    A router has p endpoints, a - 1 local connections and h global links. Minimal routing: at most one local
    hop, one global and one local; of parallel global links the destination's number chooses one.
    The network is balanced for uniform traffic at a = 2 p = 2 h, and then has a h + 1 groups at most. With
    fewer groups, pairs of groups share the global links equally, and a remainder stays unused. Valiant
    routing goes through every other group, or within a group every other router, in equal shares.
    A single group has only the routers that its endpoints need, and no global links. Local ports to routers
    that are left out serve the others equally, up to as many links between two routers as one has endpoints.

    References
    ----------
    Valiant, "A scheme for fast parallel communication", SIAM J. Comput. 11 (1982).
    Kim, Dally, Scott and Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA 2008.
    """

    name: str = "dragonfly"
    """Name shown in tables and traces."""
    terminals: int = 16
    """Endpoints of a router, p; dimensionless."""
    routers: int = 32
    """Routers of a group, a; dimensionless."""
    global_links: int = 16
    """Links of a router to other groups, h; dimensionless."""
    local_width: int = 1
    """Links in parallel between two routers of a full group; dimensionless."""
    routing: Routing | None = None
    """Routing of flows. None for minimal or, in a step, the faster of minimal and Valiant's (`laid_for`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "terminals", "routers", "local_width", low=1)
        check_range(self, "global_links", low=1 if self.groups > 1 else 0)
        peers, outside = self.routers_in_use - 1, self.global_links if self.groups > 1 else 0
        ports = self.terminals + peers * self.local_links + outside
        if ports > self.switch.radix:
            msg = (
                f"a router needs {ports} ports: {self.terminals} endpoints, {peers} x {self.local_links} "
                f"local and {outside} global links; '{self.switch.name}' has {self.switch.radix}; try fewer, "
                "balanced is routers = 2 terminals = 2 global_links"
            )
            raise ParameterError(msg)
        _ = self.peers

    @property
    def group_endpoints(self) -> int:
        """Endpoints of a full group."""
        return self.terminals * self.routers

    @property
    def groups(self) -> int:
        """Groups."""
        return math.ceil(self.endpoints / self.group_endpoints)

    @property
    def routers_in_use(self) -> int:
        """Routers of a group; if there is a single group, only those with endpoints."""
        return math.ceil(self.endpoints / self.terminals) if self.groups == 1 else self.routers

    @property
    def local_links(self) -> int:
        """Links between two routers of a group."""
        ports = (self.routers - 1) * self.local_width
        return max(self.local_width, min(self.terminals, ports // max(1, self.routers_in_use - 1)))

    def laid_for(self, blocks: tuple[int, ...]) -> tuple[Fabric, ...]:
        """Return the fabric and, if its routing was left open and detours exist, one with Valiant routing."""
        if self.routing is not None or max(self.groups, self.routers_in_use) < 3:
            return (self,)
        return (self, replace(self, routing=Routing.VALIANT, name=f"{self.name}, {Routing.VALIANT}"))

    @cached_property
    def peers(self) -> GlobalLinks:
        """Links between groups, on the routers' global ports."""
        return GlobalLinks(groups=self.groups, places=self.routers, each=self.global_links)

    @cached_property
    def edges(self) -> np.ndarray:
        """Router of each endpoint, shape [E]."""
        return np.arange(self.endpoints) // self.terminals

    @property
    def switches(self) -> int:
        """Routers of all groups."""
        return self.groups * self.routers_in_use

    @property
    def trunks(self) -> int:
        """Links between routers; both directions count as one."""
        pairs = self.routers_in_use * (self.routers_in_use - 1) // 2
        return self.groups * pairs * self.local_links + self.peers.links // 2

    def trunk_wiring(self, first_vertex: int) -> Wiring:
        """Return local links, by group, router and peer, then global links, by group and channel."""
        a = self.routers_in_use
        group, router, peer = (part.ravel() for part in np.indices((self.groups, a, a)))
        rate = self.trunk_bytes_per_s
        width = np.where(router == peer, 0, self.local_links)
        local = bundle(
            first_vertex + group * a + router,
            first_vertex + group * a + peer,
            rate_bytes_per_s=rate * width,
            latency_s=self.trunk_latency_s,
        )
        begin, end = (vertices[: self.peers.links] for vertices in self.peers.ends)
        between = bundle(
            first_vertex + begin,
            first_vertex + end,
            rate_bytes_per_s=rate,
            latency_s=self.trunk_latency_s,
        )
        return joined([local, between])

    def trunk_paths(self, sources: np.ndarray, destinations: np.ndarray) -> list[np.ndarray]:
        """Return the links between routers of each flow, hop by hop; of Valiant's many routes, one."""
        if self.routing is not Routing.VALIANT:
            return self._minimal(sources // self.terminals, destinations // self.terminals, destinations)
        return self._detour(sources, destinations, sources + destinations // self.terminals)

    def loads(self, circuits: None, flows: Flows) -> Loads:
        """Return the loads of flows of equal rate on links; Valiant routing uses all detours equally."""
        if self.routing is not Routing.VALIANT:
            return super().loads(circuits, flows)
        sources, destinations = flows.sources, flows.destinations
        weights = np.ones(len(sources)) if flows.weights is None else flows.weights
        between_groups = sources // self.group_endpoints != destinations // self.group_endpoints
        within_group = ~between_groups & (sources != destinations)
        routes, shares = [], []
        for some, detours in (
            (between_groups, max(1, self.groups - 2)),
            (within_group, max(1, self.routers_in_use - 2)),
        ):
            begin, end = sources[some], destinations[some]
            for number in range(detours):
                detour = self._detour(begin, end, np.full(begin.size, number))
                routes.append(self.by_way_of(detour, begin, end))
                shares.append(weights[some] / detours)
        return route_loads(stacked(routes), self.graph(circuits).latency_s, np.concatenate(shares))

    def _detour(self, sources: np.ndarray, destinations: np.ndarray, number: np.ndarray) -> list[np.ndarray]:
        """Return the links of flows by way of an intermediate group or, within a group, router.

        `number` chooses it among all others (`_intermediate`). A flow goes by the local link of its first
        router and by a global link to the intermediate group, or by a local link to the intermediate router,
        and from there on the minimal route.
        """
        a, groups = self.routers_in_use, self.groups
        source, target = sources // self.terminals, destinations // self.terminals
        source_group, target_group = source // a, target // a
        by_group = (source_group != target_group) & (groups > 2)
        by_router = (source_group == target_group) & (source != target) & (a > 2)
        middle_group = _intermediate(source_group, target_group, number, groups)
        channel = self.peers.channel(source_group, middle_group, spread=destinations + number)
        begin, end = self.peers.ends
        middle_router = source_group * a + _intermediate(source % a, target % a, number, a)
        next_router = np.where(by_group, begin[channel], np.where(by_router, middle_router, source))
        local = np.where(next_router != source, source * a + next_router % a, NO_LINK)
        between = np.where(by_group, self._first_global + channel, NO_LINK)
        middle = np.where(by_group, end[channel], next_router)
        return [local, between, *self._minimal(middle, target, destinations)]

    @property
    def _first_global(self) -> int:
        """Number of the first link between groups, as `trunk_wiring` counts."""
        return self.groups * self.routers_in_use**2

    def _minimal(self, source: np.ndarray, target: np.ndarray, spread: np.ndarray) -> list[np.ndarray]:
        """Return local, global and local link of the minimal route between routers, shape [F] each.

        `spread` chooses one of several global links between two groups.
        """
        a = self.routers_in_use
        source_group, target_group = source // a, target // a
        leaves = source_group != target_group
        channel = self.peers.channel(source_group, target_group, spread=spread)
        begin, end = self.peers.ends
        exit_router = np.where(leaves, begin[channel], target)
        entry_router = np.where(leaves, end[channel], target)
        first = np.where(exit_router != source, source * a + exit_router % a, NO_LINK)
        between = np.where(leaves, self._first_global + channel, NO_LINK)
        last = np.where(leaves & (entry_router != target), entry_router * a + target % a, NO_LINK)
        return [first, between, last]


@dataclass(frozen=True, kw_only=True)
class DragonflyPlus(AddingFabric):
    """Groups of leaves and spines, and links from every group's spines to every other group.

    Notes
    -----
    Every leaf of a group has a link to each of its spines. Minimal routing: leaf, spine, spine of the other
    group, leaf. Inside a group the destination's number picks the spine, so shifts do not collide.

    References
    ----------
    Shpiner et al., "Dragonfly+: Low Cost Topology for Scaling Datacenters", HiPINEB 2017.
    """

    name: str = "dragonfly+"
    """Name shown in tables and traces."""
    terminals: int = 32
    """Endpoints of a leaf; dimensionless."""
    leaves: int = 16
    """Leaves of a group; dimensionless."""
    spines: int = 32
    """Spines of a group; dimensionless."""
    global_links: int = 16
    """Links of a spine to other groups; dimensionless."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "terminals", "leaves", "spines", low=1)
        check_range(self, "global_links", low=1 if self.groups > 1 else 0)
        for switch, fields, ports in (
            ("leaf", "terminals + spines", self.terminals + self.spines),
            ("spine", "leaves + global_links", self.leaves + self.global_links),
        ):
            if ports > self.switch.radix:
                msg = (
                    f"a {switch} needs {ports} ports ({fields}), '{self.switch.name}' has "
                    f"{self.switch.radix}; try fewer"
                )
                raise ParameterError(msg)
        _ = self.peers

    @property
    def group_endpoints(self) -> int:
        """Endpoints of a full group."""
        return self.terminals * self.leaves

    @property
    def groups(self) -> int:
        """Groups."""
        return math.ceil(self.endpoints / self.group_endpoints)

    @cached_property
    def peers(self) -> GlobalLinks:
        """Links between groups, on the spines' global ports."""
        return GlobalLinks(groups=self.groups, places=self.spines, each=self.global_links)

    @cached_property
    def edges(self) -> np.ndarray:
        """Leaf of each endpoint, shape [E]."""
        return np.arange(self.endpoints) // self.terminals

    @property
    def leaves_in_use(self) -> int:
        """Leaves of a group; if there is a single group, only those with endpoints."""
        return math.ceil(self.endpoints / self.terminals) if self.groups == 1 else self.leaves

    @property
    def switches(self) -> int:
        """Leaves and spines; a single leaf needs no spine."""
        used = self.leaves_in_use
        return 1 if self.groups == used == 1 else self.groups * (used + self.spines)

    @property
    def trunks(self) -> int:
        """Links between switches; both directions count as one."""
        used = self.leaves_in_use
        if self.groups == used == 1:
            return 0
        return self.groups * used * self.spines + self.peers.links // 2

    def trunk_wiring(self, first_vertex: int) -> Wiring:
        """Return links from leaves to spines, from spines to leaves, and between groups."""
        group, leaf, spine = (
            part.ravel() for part in np.indices((self.groups, self.leaves_in_use, self.spines))
        )
        low = first_vertex + group * self.leaves_in_use + leaf
        first_spine = first_vertex + self.groups * self.leaves_in_use
        high = first_spine + group * self.spines + spine
        begin, end = (vertices[: self.peers.links] for vertices in self.peers.ends)
        rate, latency_s = self.trunk_bytes_per_s, self.trunk_latency_s
        return joined(
            [
                both_ways(low, high, rate_bytes_per_s=rate, latency_s=latency_s),
                bundle(first_spine + begin, first_spine + end, rate_bytes_per_s=rate, latency_s=latency_s),
            ]
        )

    def trunk_paths(self, sources: np.ndarray, destinations: np.ndarray) -> list[np.ndarray]:
        """Return the link to a spine, to another group, and to the destination's leaf."""
        source, target = sources // self.terminals, destinations // self.terminals
        source_group, target_group = source // self.leaves, target // self.leaves
        between_groups, between_leaves = source_group != target_group, source != target
        channel = self.peers.channel(source_group, target_group, spread=destinations)
        begin, end = self.peers.ends
        own_spine = source_group * self.spines + destinations % self.spines
        up = np.where(between_groups, begin[channel], own_spine) % self.spines
        down = np.where(between_groups, end[channel], own_spine) % self.spines
        local_links = self.groups * self.leaves_in_use * self.spines
        return [
            np.where(between_leaves, source * self.spines + up, NO_LINK),
            np.where(between_groups, 2 * local_links + channel, NO_LINK),
            np.where(between_leaves, local_links + target * self.spines + down, NO_LINK),
        ]
