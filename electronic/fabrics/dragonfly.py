"""Dragonflies: groups of switches, every group joined to every other by direct links."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
import scipy

from electronic.fabrics.packets import AddingFabric
from simulator.errors import ParameterError, check_range
from simulator.fabric import Loads, Traits, route_loads
from simulator.interfaces import Flows, Wiring
from simulator.topology.clos import GlobalLinks
from simulator.topology.graphs import NO_LINK, both_ways, bundle, joined


class Routing(StrEnum):
    """Routing of flows through a dragonfly."""

    MINIMAL = "minimal"
    """Over the shortest route."""
    VALIANT = "valiant"
    """Through another group, or another router of the same group: twice the traffic, evenly spread."""
    ADAPTIVE = "adaptive"
    """Over the shortest route and through others in the shares that leave the busiest link least busy."""


_DETOUR = 1e-6
"""Weight of a detour against the time of the busiest link, so that of equal times the shortest routes win;
dimensionless."""
_NOTHING = 1e-6
"""Share of a flow that counts as none on the shortest route, beside the rounding of the shares of detours."""
_LEAST_GAIN = 0.01
"""Share of the time of the busiest link that detours must be able to save to be looked for; a choice."""


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
    routing goes through every other group, or within a group every other router, in equal shares. Adaptive
    routing sends one share of the flows between groups that way, and one of those within groups, by a linear
    programme: what universal globally-adaptive load-balanced routing (UGAL) tends to with queues that are
    known everywhere. So it is never slower than the other two.
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
    routing: Routing = Routing.ADAPTIVE
    """Routing of flows."""

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

    @cached_property
    def traits(self) -> Traits:
        """Abilities; adaptive routes depend on the flows that run together."""
        return replace(super().traits, routes_by_company=self.routing is Routing.ADAPTIVE)

    def trunk_paths(self, sources: np.ndarray, destinations: np.ndarray) -> list[np.ndarray]:
        """Return the links between routers of each flow, hop by hop; of Valiant's many routes, one."""
        source, target = sources // self.terminals, destinations // self.terminals
        if self.routing is not Routing.VALIANT:
            return self._minimal_route(source, target, destinations)
        return self._detour(source, target, destinations, sources + target)

    def loads(self, circuits: None, flows: Flows) -> Loads:
        """Return the loads of flows of equal rate on links; those on detours use all detours equally."""
        return self.loads_around(circuits, flows, np.empty(0, dtype=np.int64))

    def loads_around(self, circuits: None, flows: Flows, failed: np.ndarray) -> Loads:
        """Return the loads as `loads` does, with flows led round failed links, shape [n]."""
        shortest = (
            self._minimal.around(None, flows, failed) if failed.size else self._minimal.route(None, flows)
        )
        return self._mixed(flows, failed, shortest, self._shares(flows, failed, shortest))

    def loads_apart(self, circuits: None, flows: Flows) -> list[Loads]:
        """Return the loads of each of F flows that run together."""
        none, shortest = np.empty(0, dtype=np.int64), self._minimal.route(None, flows)
        shares, each = self._shares(flows, none, shortest), np.arange(len(flows.sources))
        alone = replace(flows, weights=None)
        return [self._mixed(alone.part(each == flow), none, shortest[[flow]], shares) for flow in each]

    def _shares(self, flows: Flows, failed: np.ndarray, shortest: np.ndarray) -> tuple[float, float]:
        """Return the shares on detours of flows between groups, and of those between routers of a group.

        Parameters
        ----------
        flows : Flows
            The flows.
        failed : numpy.ndarray
            Links that carry nothing, shape [n].
        shortest : numpy.ndarray
            Links of each flow by minimal routing past these, shape [F, H].

        Notes
        -----
        Of an adaptive routing they are a linear programme: with shares s of the two kinds, loads u of links
        by shortest routes and u + d by detours, and capacities c, the least t with u + s d <= t c, and of
        equal ones the least detours. No detour helps where the port of an endpoint is busiest, or nearly.
        """
        if self.routing is not Routing.ADAPTIVE:
            return (1.0, 1.0) if self.routing is Routing.VALIANT else (0.0, 0.0)
        capacity = self.wiring.capacity_bytes_per_s

        def loaded(*shares: float) -> np.ndarray:
            found = self._mixed(flows, failed, shortest, (shares[0], shares[1]))
            return np.bincount(found.links, found.usage, capacity.size)

        direct = loaded(0.0, 0.0)
        time_s = np.divide(direct, capacity, out=np.zeros(capacity.size), where=direct > 0.0)
        worst = int(time_s.argmax())
        if time_s[: 4 * self.endpoints].max() >= time_s[worst] * (1.0 - _LEAST_GAIN):
            return 0.0, 0.0
        changes = np.array([loaded(1.0, 0.0), loaded(0.0, 1.0)]) - direct
        links = np.flatnonzero(changes.any(axis=0))
        others_s = np.delete(time_s, links).max(initial=0.0)
        rows = changes[:, links] / capacity[links] / time_s[worst]
        found = scipy.optimize.linprog(
            c=[_DETOUR, _DETOUR, 1.0],
            A_ub=np.concatenate([rows, -np.ones((1, links.size))]).T,
            b_ub=-time_s[links] / time_s[worst],
            bounds=[(0.0, 1.0), (0.0, 1.0), (others_s / time_s[worst], None)],
        )
        return float(found.x[0]), float(found.x[1])

    def _mixed(
        self, flows: Flows, failed: np.ndarray, shortest: np.ndarray, shares: tuple[float, float]
    ) -> Loads:
        """Return the loads of flows past failed links, with `_shares` of them on detours."""
        weights = np.ones(len(flows.sources)) if flows.weights is None else flows.weights
        source, target = flows.sources // self.terminals, flows.destinations // self.terminals
        leaves = source // self.routers_in_use != target // self.routers_in_use
        trunks = self.scale_up.off_node(flows) & (source != target)
        rest, parts = np.ones(len(weights)), []
        for some, ways, share in (
            (trunks & leaves, self.groups - 2, shares[0]),
            (trunks & ~leaves, self.routers_in_use - 2, shares[1]),
        ):
            if ways < 1 or not share or not some.any():
                continue
            led, loads = self._detours(flows.part(some), share * weights[some], failed, ways)
            rest[np.flatnonzero(some)[led]] -= share
            parts += loads
        latency_s = self.graph(None).latency_s
        left = rest > _NOTHING
        parts.append(route_loads(shortest[left], latency_s, (weights * rest)[left]))
        usage = np.zeros(latency_s.size)
        for part in parts:
            usage[part.links] += part.usage
        links = np.flatnonzero(usage > 0.0)
        latest_s = max(part.latency_s for part in parts)
        return Loads(links=links, usage=usage[links], latency_s=latest_s)

    def _detours(
        self, flows: Flows, weights: np.ndarray, failed: np.ndarray, ways: int
    ) -> tuple[np.ndarray, list[Loads]]:
        """Return which flows, bool [F], some detour leads past failed links, and the loads of these.

        Parameters
        ----------
        flows : Flows
            Flows between routers, shape [F]: all between groups, or none.
        weights : numpy.ndarray
            Weight of each on all its detours together, shape [F].
        failed : numpy.ndarray
            Links that carry nothing, shape [n].
        ways : int
            Detours of a flow.
        """
        total, parallel = self.endpoints, max(1, self.peers.parallel)
        ports = np.stack([2 * total + flows.sources, 3 * total + flows.destinations], axis=1)
        source, target = flows.sources // self.terminals, flows.destinations // self.terminals
        code = (source * self.switches + target) * parallel + flows.destinations % parallel
        pairs, pair_of = np.unique(code, return_inverse=True)  # flows alike to all but their ports
        (first, last), spread = np.divmod(pairs // parallel, self.switches), pairs % parallel
        routes = [
            np.stack(self._detour(first, last, spread, np.full_like(first, number)), axis=1)
            for number in range(ways)
        ]
        routes = [np.where(route == NO_LINK, NO_LINK, route + 4 * total) for route in routes]
        alive = np.stack([~np.isin(route, failed).any(axis=1) for route in routes])
        led: np.ndarray = np.any(alive, axis=0)[pair_of]
        led &= ~np.isin(ports, failed).any(axis=1)
        each = np.bincount(pair_of[led], weights[led], pairs.size) / np.maximum(alive.sum(axis=0), 1)
        latency_s = self.graph(None).latency_s
        between = route_loads(np.concatenate(routes), latency_s, (alive * each).ravel())
        outside = route_loads(ports[led], latency_s, weights[led])
        return led, [outside, replace(between, latency_s=between.latency_s + outside.latency_s)]

    @cached_property
    def _minimal(self) -> Dragonfly:
        """The same dragonfly with minimal routing."""
        return replace(self, routing=Routing.MINIMAL)

    def _detour(
        self, source: np.ndarray, target: np.ndarray, spread: np.ndarray, number: np.ndarray
    ) -> list[np.ndarray]:
        """Return the links between routers by way of an intermediate group or, within a group, router.

        `number` chooses it among all others (`_intermediate`), `spread` one of several global links between
        two groups. A flow goes by the local link of its first router and by a global link to the intermediate
        group, or by a local link to the intermediate router, and from there on the minimal route.
        """
        a, groups = self.routers_in_use, self.groups
        source_group, target_group = source // a, target // a
        by_group = (source_group != target_group) & (groups > 2)
        by_router = (source_group == target_group) & (source != target) & (a > 2)
        middle_group = _intermediate(source_group, target_group, number, groups)
        channel = self.peers.channel(source_group, middle_group, spread=spread + number)
        begin, end = self.peers.ends
        middle_router = source_group * a + _intermediate(source % a, target % a, number, a)
        next_router = np.where(by_group, begin[channel], np.where(by_router, middle_router, source))
        local = np.where(next_router != source, source * a + next_router % a, NO_LINK)
        between = np.where(by_group, self._first_global + channel, NO_LINK)
        middle = np.where(by_group, end[channel], next_router)
        return [local, between, *self._minimal_route(middle, target, spread)]

    @property
    def _first_global(self) -> int:
        """Number of the first link between groups, as `trunk_wiring` counts."""
        return self.groups * self.routers_in_use**2

    def _minimal_route(self, source: np.ndarray, target: np.ndarray, spread: np.ndarray) -> list[np.ndarray]:
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
