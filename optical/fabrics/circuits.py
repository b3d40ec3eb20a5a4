"""Circuits of optical lanes: their assignment to the traffic of a step, the peer of each lane, and routes.

Vertices may pass on what is not for them, over several circuits; detours round failed links take only the
circuits that stand at the time.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import scipy

from optical.scheduling.birkhoff import BALANCE_TOLERANCE
from optical.scheduling.schedule import DARK
from optical.scheduling.topology import AllReduceGroup, coprime_strides, job_topology
from simulator.collectives.algorithms import standing_distances
from simulator.errors import ParameterError, RouteError
from simulator.fabric import Fabric
from simulator.interfaces import Flows, Reconfiguration, Wiring
from simulator.operators import CollectiveKind
from simulator.topology.graphs import NO_LINK, bundle, detours


@dataclass(frozen=True, eq=False)
class Circuits:
    """Endpoint that each optical lane reaches; treat as immutable.

    Raises
    ------
    ParameterError
        If two sources shine on the same lane of a destination.
    """

    tx_peer: np.ndarray
    """Destination of each lane of each endpoint, shape [E, lanes]; `DARK` for none."""
    plans: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))
    """Destinations that all lanes would have to serve one axis of the step, by axis, each [E, lanes]."""
    failed: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Ports that are down, ``endpoint * lanes + lane``, shape [n]; nothing begins or ends on them."""
    unlent: np.ndarray | None = None
    """Destinations if no port were down, where lanes have been lent to pairs that lost theirs; [E, lanes]."""
    relays: bool = False
    """Whether a pair whose lanes are dark goes by other circuits between its nodes while ports are down."""
    targets: dict[int, tuple[Flows, np.ndarray]] = field(default_factory=dict)
    """Flows asked for before, by identity, and the destinations of all lanes that served them while all ports
    worked; handed on from circuits to circuits of a run."""

    def __post_init__(self) -> None:
        lit = self.tx_peer != DARK
        lane = np.nonzero(lit)[1]
        keys = self.tx_peer[lit] * self.tx_peer.shape[1] + lane
        if np.bincount(keys).max(initial=0) > 1:
            twice = keys[np.argsort(keys, kind="stable")]
            shared = int(twice[:-1][twice[1:] == twice[:-1]][0])
            peer, which = divmod(shared, self.tx_peer.shape[1])
            msg = f"two circuits end on lane {which} of endpoint {peer}; a lane receives one"
            raise ParameterError(msg)
        self.tx_peer.flags.writeable = False

    @cached_property
    def lit(self) -> np.ndarray:
        """Destination of each lane whose light arrives, shape [E, lanes]; `DARK` over ports that are down."""
        if not self.failed.size:
            return self.tx_peer
        lanes, down = self.tx_peer.shape[1], ~self.works
        lost = down | (down[self.tx_peer, np.arange(lanes)] & (self.tx_peer != DARK))
        return np.where(lost, DARK, self.tx_peer)

    @cached_property
    def works(self) -> np.ndarray:
        """Whether the port of each lane works, shape [E, lanes]."""
        found: np.ndarray = ~np.isin(np.arange(self.tx_peer.size), self.failed).reshape(self.tx_peer.shape)
        return found

    def without(self, failed: np.ndarray) -> Circuits:
        """Return circuits set to the same ends while some ports and no others are down, shape [n].

        Lanes that were lent go back once any port works again.
        """
        if self.unlent is None or np.isin(self.failed, failed).all():
            return Circuits(self.tx_peer, self.plans, failed, self.unlent, targets=self.targets)
        return Circuits(self.unlent, self.plans, failed, targets=self.targets)

    @cached_property
    def lanes_of_first(self) -> np.ndarray:
        """Lanes to the same peer, counted on the first of them and zero on the others, shape [E, lanes]."""
        same = (self.lit[:, :, None] == self.lit[:, None, :]) & (self.lit != DARK)[:, :, None]
        first = ~np.tril(same, -1).any(axis=2)
        return np.where(first, same.sum(axis=2), 0)

    def with_lanes(self, moving: np.ndarray, target: np.ndarray) -> Circuits:
        """Return circuits in which some endpoints have turned their lanes to where a target has them.

        Parameters
        ----------
        moving : numpy.ndarray
            Endpoints that turn, shape [M].
        target : numpy.ndarray
            Valid destinations of all lanes, shape [E, lanes]. Circuits of other endpoints that end where a
            turned lane now ends go dark.
        """
        after = _turned(self.tx_peer, moving, target)
        unlent = None if self.unlent is None else _turned(self.unlent, moving, target)
        return Circuits(after, self.plans, self.failed, unlent, targets=self.targets)

    def changed_links(self, after: Circuits) -> np.ndarray:
        """Return the circuits that turn, go dark or change in capacity until others stand, shape [n].

        They are numbered ``endpoint * lanes + lane``.
        """
        turned = after.tx_peer != self.tx_peer
        return np.flatnonzero(turned | (after.lanes_of_first != self.lanes_of_first))

    def turned_lanes(self, after: Circuits) -> int:
        """Return how many lanes lead elsewhere, and not nowhere, when others stand."""
        return int(((after.tx_peer != self.tx_peer) & (after.tx_peer != DARK)).sum())

    def lent(self, pairs: np.ndarray) -> np.ndarray:
        """Return lanes in which pairs whose every lane is down have one that others can spare, [E, lanes].

        Parameters
        ----------
        pairs : numpy.ndarray
            Source and destination of the circuits that are wanted, distinct, shape [P, 2]. A pair takes the
            first lane that works at both ends and is idle there, or serves pairs that keep another working
            one; a pair that finds none keeps its dead lanes, and so waits.
        """
        sends, dead = self.lit.copy(), (self.lit == DARK) & (self.tx_peer != DARK)
        for source, destination in pairs.tolist():
            if (sends[source] == destination).any():
                continue
            lane = _spare_lane(sends, self.works[source] & self.works[destination], source, destination)
            if lane == DARK:
                free = dead[source] & (self.tx_peer[source] == destination)
                free &= ~(sends == destination).any(axis=0)
                sends[source, free] = destination
                continue
            sends[sends[:, lane] == destination, lane] = DARK
            sends[source, lane] = destination
        return sends


def _spare_lane(sends: np.ndarray, works: np.ndarray, source: int, destination: int) -> int:
    """Return a lane that a pair may have, or `DARK`: idle ones first, then those that others can miss."""
    found = DARK
    for lane in np.flatnonzero(works).tolist():
        other = int(sends[source, lane])
        senders = np.flatnonzero(sends[:, lane] == destination)
        if other == DARK and not senders.size:
            return int(lane)
        missed = other == DARK or (sends[source] == other).sum() > 1
        missed = missed and all((sends[sender] == destination).sum() > 1 for sender in senders)
        if missed and found == DARK:
            found = int(lane)
    return found


def _turned(tx_peer: np.ndarray, moving: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return lanes of which some endpoints' have turned; what ends where they end now goes dark."""
    after = tx_peer.copy()
    after[moving] = DARK
    turned = target[moving]
    lit = turned != DARK
    stolen = np.zeros(after.shape, dtype=bool)
    stolen[turned[lit], np.nonzero(lit)[1]] = True
    after[(after != DARK) & stolen[after, np.arange(after.shape[1])]] = DARK
    after[moving] = turned
    return after


def _split(owners: np.ndarray, weights: np.ndarray, lanes: int) -> np.ndarray:
    """Return the lanes of each pair, shared out among the pairs of each owner, shape [P]."""
    if not len(owners):
        return np.zeros(0, dtype=np.int64)
    peers = np.bincount(owners)
    if peers.max() > lanes:
        crowded = int(peers.argmax())
        msg = (
            f"endpoint {crowded} needs circuits with {peers.max()} others and has {lanes} lanes; try lanes="
            f"{peers.max()} (its card's rate is shared by more), per-axis circuits (all-to-alls then go in "
            "turns), a plan with fewer peers (less ep), or a fabric whose nodes pass on (direct_connect)"
        )
        raise RouteError(msg)
    quota = _quotas(owners, weights, lanes)
    whole = np.floor(quota + BALANCE_TOLERANCE).astype(np.int64)
    left = lanes - np.bincount(owners, weights=whole).astype(np.int64)
    order = np.lexsort((np.arange(len(owners)), whole - quota, owners))
    starts = np.cumsum(peers) - peers
    place = np.empty(len(owners), dtype=np.int64)
    place[order] = np.arange(len(owners)) - starts[owners[order]]
    return whole + (place < left[owners])


def _quotas(owners: np.ndarray, weights: np.ndarray, lanes: int) -> np.ndarray:
    """Return each pair's share of its owner's lanes, by weight but at least one, shape [P]."""
    idle = np.bincount(owners, weights=weights)[owners] == 0.0
    weights = np.where(idle, 1.0, weights)
    least = np.zeros(len(owners), dtype=bool)
    while True:
        sums = np.bincount(owners, weights=np.where(least, 0.0, weights))[owners]
        slots = lanes - np.bincount(owners, weights=least)[owners]
        quota = np.where(least, 1.0, weights / np.where(sums > 0.0, sums, 1.0) * slots)
        short = ~least & (quota < 1.0 - BALANCE_TOLERANCE)
        if not short.any():
            return quota
        least |= short


def assign_lanes(pairs: np.ndarray, weights: np.ndarray, endpoints: int, lanes: int) -> np.ndarray:
    """Return circuits for pairs of endpoints, the lanes shared out by weight.

    Parameters
    ----------
    pairs : numpy.ndarray
        Source and destination of each circuit, distinct, shape [P, 2].
    weights : numpy.ndarray
        Bytes of each, shape [P].
    endpoints, lanes : int
        Size of the fabric.

    Returns
    -------
    numpy.ndarray
        Destination of each lane, shape [E, lanes]. A pair gets the lesser of what its source and what its
        destination can give it; what remains stays dark.

    Raises
    ------
    RouteError
        If an endpoint has more peers than lanes.
    """
    counts = np.minimum(_split(pairs[:, 0], weights, lanes), _split(pairs[:, 1], weights, lanes))
    return _colour(pairs.tobytes(), counts.tobytes(), endpoints, lanes).copy()


@lru_cache(maxsize=64)
def _colour(pairs_bytes: bytes, counts_bytes: bytes, endpoints: int, lanes: int) -> np.ndarray:
    """Return lanes [E, lanes] for pairs [P, 2] of endpoints that get so many each [P], all int64 as bytes.

    Each circuit gets a lane that is free at both ends (König: a bipartite graph needs only its degree).
    """
    pairs = np.frombuffer(pairs_bytes, dtype=np.int64).reshape(-1, 2)
    counts = np.frombuffer(counts_bytes, dtype=np.int64)
    if (counts == lanes).all():
        whole = np.full((endpoints, lanes), DARK, dtype=np.int64)
        whole[pairs[:, 0]] = pairs[:, 1:]
        return whole
    sends = [[DARK] * lanes for _ in range(endpoints)]
    receives = [[DARK] * lanes for _ in range(endpoints)]
    for (source, destination), count in zip(pairs.tolist(), counts.tolist(), strict=True):
        for _ in range(count):
            _place(sends, receives, source, destination)
    return np.array(sends, dtype=np.int64).reshape(endpoints, lanes)


def _place(sends: list[list[int]], receives: list[list[int]], source: int, destination: int) -> None:
    """Add one circuit, swapping two lanes along an alternating path when no lane is free at both ends."""
    out, into = sends[source], receives[destination]
    for lane, (peer, origin) in enumerate(zip(out, into, strict=True)):
        if peer == DARK and origin == DARK:
            out[lane], into[lane] = destination, source
            return
    free_out, free_in = out.index(DARK), into.index(DARK)
    path, receiver, lane, other = [], destination, free_out, free_in
    while True:
        sender = receives[receiver][lane]
        if sender == DARK:
            break
        path.append((sender, receiver, lane, other))
        receiver = sends[sender][other]
        if receiver == DARK:
            break
        path.append((sender, receiver, other, lane))
    for sender, receiver, old, _ in path:
        sends[sender][old] = receives[receiver][old] = DARK
    for sender, receiver, _, new in path:
        sends[sender][new], receives[receiver][new] = receiver, sender
    out[free_out], into[free_out] = destination, source


def merge_pairs(pairs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct pairs, sorted, and the sum of each one's weights.

    Parameters
    ----------
    pairs : numpy.ndarray
        Source and destination, shape [P, 2].
    weights : numpy.ndarray
        Weight of each, shape [P].
    """
    if not len(pairs):
        return pairs.reshape(0, 2).astype(np.int64), np.zeros(0)
    many = int(pairs.max()) + 1
    distinct, place = np.unique(pairs[:, 0].astype(np.int64) * many + pairs[:, 1], return_inverse=True)
    return np.stack([distinct // many, distinct % many], axis=1), np.bincount(place, weights=weights)


def circuit_wiring(
    circuits: Circuits, vertices: np.ndarray, *, rate_bytes_per_s: float, latency_s: float
) -> Wiring:
    """Return circuits as links, ``vertex * degree + lane``; dark ones lead back to where they begin.

    Parameters
    ----------
    circuits : Circuits
        The circuits.
    vertices : numpy.ndarray
        Number of each of their ends in the wiring that they become part of, shape [V].
    rate_bytes_per_s, latency_s : float
        Rate of one lane, and latency of all.
    """
    count = circuits.lanes_of_first
    own = np.broadcast_to(vertices[:, None], count.shape)
    heads = np.where(count > 0, vertices[circuits.lit], own)
    rates = count.ravel() * rate_bytes_per_s
    return bundle(own.ravel(), heads.ravel(), rate_bytes_per_s=rates, latency_s=latency_s)


class CircuitFabric(Fabric, Protocol):
    """Fabric whose links are circuits: who would cross a failed one goes round over those that are lit."""

    def without(self, circuits: Any, failed: np.ndarray) -> tuple[Any, Reconfiguration]:  # noqa: ANN401 - its own
        """Return circuits while some ports [n] and no others are down; others pass on round them."""
        return replace(circuits, circuits=circuits.circuits.without(failed)), Reconfiguration()

    def around(self, circuits: Any, flows: Flows, failed: np.ndarray) -> np.ndarray:  # noqa: ANN401 - its own
        """Return the links of each flow as `route` does, past failed links where a way of lit ones is left.

        A flow that has none keeps its route over the failed link, and so waits.
        """
        return self.past(circuits, flows, failed, self.route(circuits, flows))

    def past(self, circuits: Any, flows: Flows, failed: np.ndarray, routes: np.ndarray) -> np.ndarray:  # noqa: ANN401 - its own
        """Return routes [F, H] of flows with those that cross failed links led round, as `around` does."""
        wiring = self.wired(circuits)
        if wiring is None:
            return routes
        hit = np.asarray(np.isin(routes, failed).any(axis=1))
        dark = np.flatnonzero(wiring.capacity_bytes_per_s <= 0.0)
        found = detours(wiring, routes[hit], flows.part(hit), np.union1d(failed, dark))
        after = np.full((len(routes), max(routes.shape[1], found.shape[1])), NO_LINK, dtype=np.int64)
        after[:, : routes.shape[1]] = routes
        after[hit] = NO_LINK
        after[hit, : found.shape[1]] = found
        return after


NO_WAY = -9999
"""What scipy gives for a vertex that cannot be reached, or is the start itself."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ForwardingCircuits:
    """Circuits of equal domains of vertices, and the shortest ways over them; treat as immutable.

    Notes
    -----
    A circuit is numbered ``vertex * degree + lane``. Lanes to the same peer act as one link, the first of
    them, of their joint capacity. Ways are shortest ones; where a pair has several, flows take turns.
    """

    circuits: Circuits
    """Vertex that each lane of each vertex reaches, shape [V, degree]."""
    domain: int
    """Vertices of a domain, consecutive numbers; circuits do not leave it."""
    axes: tuple[str, ...] = ()
    """Axis of parallelism that the circuits of each domain were turned to; empty for all of a step."""

    @property
    def degree(self) -> int:
        """Lanes of a vertex."""
        return int(self.circuits.tx_peer.shape[1])

    @cached_property
    def before(self) -> np.ndarray:
        """Vertex before each one on ways from each start, shape [ways, V, domain], `NO_WAY` if there is none.

        The last index and values count within the domain.
        """
        peers = self.circuits.lit
        found = np.full((WAYS, len(peers), self.domain), NO_WAY, dtype=np.int32)
        known: dict[bytes, np.ndarray] = {}
        for first in range(0, len(peers), self.domain):
            inside = np.where(peers == DARK, DARK, peers - first)[first : first + self.domain]
            key = inside.tobytes()
            if key not in known:
                tails, lanes = np.nonzero(inside != DARK)
                lit = (np.ones(tails.size), (tails, inside[tails, lanes]))
                known[key] = _before(scipy.sparse.csr_array(lit, shape=(self.domain, self.domain)))
            found[:, first : first + self.domain] = known[key]
        return found

    def reaches(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return whether circuits lead from sources to destinations, shape [F]; to itself always."""
        same = sources // self.domain == destinations // self.domain
        led = self.before[0, sources, destinations % self.domain] != NO_WAY
        return (same & led) | (sources == destinations)

    def direct(self, sources: np.ndarray, destinations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the circuit from sources straight to destinations, and whether there is one, each [F]."""
        lit = self.circuits.lit[sources] == destinations[:, None]
        return sources * self.degree + lit.argmax(axis=1), lit.any(axis=1)

    def ring_strides(self, members: np.ndarray) -> tuple[int, ...]:
        """Return the strides along which every one of some vertices [n] has a circuit, each a ring of all."""
        return tuple(
            stride
            for stride in coprime_strides(len(members))
            if self.direct(members, np.roll(members, -stride))[1].all()
        )

    def ways(
        self, sources: np.ndarray, destinations: np.ndarray, turns: np.ndarray | int = 0
    ) -> list[np.ndarray]:
        """Return the circuits at each place of the way, from its end to its start, -1 where there is none.

        Parameters
        ----------
        sources, destinations : numpy.ndarray
            Vertices that circuits join, shape [F].
        turns : numpy.ndarray or int
            Numbers by which flows of a pair take one of its ways or another.
        """
        columns, here, turn = [], destinations.copy(), turns % WAYS
        while (here != sources).any():
            going = here != sources
            earlier = np.where(
                going,
                self.before[turn, sources, here % self.domain] + here // self.domain * self.domain,
                here,
            )
            link, _ = self.direct(earlier, here)
            columns.append(np.where(going, link, -1))
            here = earlier
        return columns

    def hops(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return how many circuits lead from sources to destinations, shape [F]."""
        columns = self.ways(sources, destinations)
        return np.sum([column >= 0 for column in columns], axis=0) if columns else np.zeros(len(sources), int)


def _before(lit: scipy.sparse.csr_array) -> np.ndarray:
    """Return predecessors on some shortest ways over circuits between N vertices, shape [ways, N, N].

    Of ways equally short each pair begins at another: the k-th, counted round, if its numbers add up to k.
    """
    size = lit.shape[0]
    hops = scipy.sparse.csgraph.shortest_path(lit, unweighted=True)
    into = lit.tocsc()
    arrivals = np.diff(into.indptr)
    nearer = np.full((int(arrivals.max(initial=0)), size), NO_WAY)
    nearer[
        np.arange(into.nnz) - np.repeat(into.indptr[:-1], arrivals), np.repeat(np.arange(size), arrivals)
    ] = into.indices

    def leads(one: np.ndarray) -> np.ndarray:
        return (
            (one != NO_WAY) & (hops > 0.0) & np.isfinite(hops) & (hops[:, np.maximum(one, 0)] + 1.0 == hops)
        )

    every = np.arange(size)
    choices = np.maximum(sum((leads(one) for one in nearer), np.zeros((size, size), dtype=np.int64)), 1)
    turns = (every[:, None] + every + np.arange(WAYS)[:, None, None]) % choices
    found = np.full(turns.shape, NO_WAY, dtype=np.int32)
    for one in nearer:
        there = leads(one)
        found = np.where(there & (turns == 0), one, found)
        turns -= there
    return found.astype(np.int32)


WAYS = 4
"""Ways among which flows of a pair, or chunks of one, are spread; a choice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DomainDemand:
    """Traffic among the vertices of one domain."""

    groups: tuple[AllReduceGroup, ...]
    """Rings of vertices, with the bytes that each of them holds."""
    pairs: np.ndarray
    """Bytes from vertex to vertex beside them, shape [domain, domain]."""

    @property
    def matrix(self) -> np.ndarray:
        """Bytes from vertex to vertex, rings included as steps to the next, shape [domain, domain]."""
        found = self.pairs.copy()
        for group in self.groups:
            members = np.array(group.members)
            found[members, np.roll(members, -1)] += group.ring_bytes
        return found


def domain_demands(served: Sequence[Flows], vertex_of: np.ndarray, domain: int) -> dict[int, DomainDemand]:
    """Return the traffic of each domain that has any.

    Parameters
    ----------
    served : sequence of Flows
        Traffic between endpoints.
    vertex_of : numpy.ndarray
        Vertex at which each endpoint stands, shape [E].
    domain : int
        Vertices of a domain; traffic that leaves it is left out.

    Notes
    -----
    Groups that flows go around are rings; those of all-to-alls exchange with all, each member's bytes spread
    evenly. A ring through several domains is one in each of them, as in collectives of two levels, which go
    round it from neighbour to neighbour: pairs, for circuits of other strides would serve nobody. All others
    are pairs; what is sent to experts unevenly comes back, so that both ways count.
    """
    rings: defaultdict[int, defaultdict[tuple[int, ...], float]] = defaultdict(lambda: defaultdict(float))
    pairs: dict[int, np.ndarray] = {}

    def add(here: int, sources: np.ndarray, destinations: np.ndarray, size_bytes: float | np.ndarray) -> None:
        if here not in pairs:
            pairs[here] = np.zeros((domain, domain))
        np.add.at(pairs[here], (sources % domain, destinations % domain), size_bytes)

    for flows in served:
        for cycle in () if flows.groups is None else flows.groups:
            visited = _around(vertex_of[cycle])
            for here in np.unique(visited // domain).tolist():
                members = _around(visited[visited // domain == here])
                if len(members) < 2:
                    continue
                if len(np.unique(members)) < len(members):
                    add(here, members, np.roll(members, -1), flows.size_bytes)
                elif flows.kind is CollectiveKind.ALL_TO_ALL:
                    one, other = (side.ravel() for side in np.meshgrid(members, members))
                    each = flows.size_bytes * len(cycle) / len(visited) / len(visited)
                    add(here, one[one != other], other[one != other], each)
                elif len(members) < len(visited):
                    add(here, members, np.roll(members, -1), flows.size_bytes)
                else:
                    rings[here][tuple((members % domain).tolist())] += flows.size_bytes
        if flows.groups is not None:
            continue
        sources, destinations = vertex_of[flows.sources], vertex_of[flows.destinations]
        kept = (sources // domain == destinations // domain) & (sources != destinations)
        for here in np.unique(sources[kept] // domain).tolist():
            mine = kept & (sources // domain == here)
            sizes_bytes = flows.sizes_bytes[mine]
            add(here, sources[mine], destinations[mine], sizes_bytes)
            if flows.weights is not None:
                add(here, destinations[mine], sources[mine], sizes_bytes)
    return {
        here: DomainDemand(
            groups=tuple(
                AllReduceGroup(members=members, size_bytes=size) for members, size in rings[here].items()
            ),
            pairs=pairs.get(here, np.zeros((domain, domain))),
        )
        for here in sorted(set(rings) | set(pairs))
    }


def _around(vertices: np.ndarray) -> np.ndarray:
    """Return the vertices that a ring visits, neighbours of the same vertex once."""
    return vertices[vertices != np.roll(vertices, 1)] if len(np.unique(vertices)) > 1 else vertices[:1]


def job_links(demand: DomainDemand, degree: int, *, all_meet: bool = True) -> np.ndarray:
    """Return circuits for the traffic of a domain, shape [domain, domain], whole numbers.

    Parameters
    ----------
    demand : DomainDemand
        The traffic.
    degree : int
        Circuits that a vertex may begin, and as many that it may end.
    all_meet : bool
        Whether every vertex has to reach every other, or only those with traffic between them.

    Notes
    -----
    Several layouts are tried, and that one is kept whose busiest circuit carries least, pairs spread over
    their shortest ways as flows are. The first is that
    of TopologyFinder with TotientPerms (`optical.scheduling.topology.job_topology`): what it leaves of the
    degree doubles the busiest circuits, and if some vertices could not reach those they have to, one lane of
    each goes into a ring through all first. It was made for rings and few pairs; of exchanges among about as
    many vertices as there are lanes it leaves some pairs far apart. The others keep some lanes of each vertex
    for the thinnest traffic, sends and steps of rings, and give the rest to the pairs that take longest; or
    give one lane of each vertex to what joins the parts that the busiest pairs leave. Where a vertex sends
    to more others than it has lanes, nodes pass much on, and layouts of few hops are tried too: distances in
    a circle as for an all-to-all (`standing_distances`), and matchings drawn at random beside a ring.

    References
    ----------
    Singla, Hong, Popa and Godfrey, "Jellyfish: Networking Data Centers Randomly", NSDI 2012: random regular
    graphs have nearly the shortest paths that their degree allows.
    """
    if len(demand.pairs) < 2:
        return np.zeros(demand.pairs.shape, dtype=np.int64)
    pairs = np.ascontiguousarray(demand.pairs, dtype=float)
    return _laid_links(demand.groups, pairs.tobytes(), degree, all_meet)


@lru_cache(maxsize=512)
def _laid_links(
    groups: tuple[AllReduceGroup, ...], pair_bytes: bytes, degree: int, all_meet: bool
) -> np.ndarray:
    """Return the same, read-only, from the pairs of a demand as text: plans of a search share many."""
    entries = np.frombuffer(pair_bytes)
    size = math.isqrt(len(entries))
    demand = DomainDemand(groups=groups, pairs=entries.reshape(size, size))
    found = job_topology(groups, demand.pairs, degree=degree)
    meeting = ~np.isinf(found.hops)
    if not (meeting if all_meet else meeting | (demand.matrix <= 0.0)).all():
        groups = (AllReduceGroup(members=tuple(range(size)), size_bytes=0.0), *groups)
        found = job_topology(groups, demand.pairs, degree=degree)
    wanted = demand.pairs.copy()
    for group, strides in zip(groups, found.strides, strict=True):
        members = np.array(group.members)
        for stride in strides or (1,):
            wanted[members, np.roll(members, -stride)] += group.ring_bytes / max(len(strides), 1)
    published = busiest_first(np.where(found.links > 0, wanted, 0.0), degree, found.links)
    others = [_thinnest_first(demand.matrix, degree, kept) for kept in range(min(degree, _MOST_KEPT) + 1)]
    others.append(_parts_joined(demand.matrix, degree))
    if (demand.matrix > 0.0).sum(axis=1).max() > degree:
        others += _of_few_hops(demand.matrix, degree)
    others = list({links.tobytes(): links for links in others}.values())
    carried = [
        _busiest_bytes(published, wanted, all_meet=all_meet),
        *(_busiest_bytes(links, demand.matrix, all_meet=all_meet) for links in others),
    ]
    best = (published, *others)[int(np.argmin(carried))]
    best.flags.writeable = False
    return best


_MOST_KEPT = 4
"""Most lanes of a vertex that are tried for its thinnest traffic; a choice."""
_DRAWN = 8
"""Layouts drawn at random that are tried; a choice."""


def _of_few_hops(wanted: np.ndarray, degree: int) -> list[np.ndarray]:
    """Return circuits from which all are near, those with traffic first, several of shape [N, N].

    Parameters
    ----------
    wanted : numpy.ndarray
        Bytes from vertex to vertex, shape [N, N]; more than `degree` of a row are positive.
    degree : int
        Circuits that a vertex may begin, and as many that it may end.
    """
    every, found = np.arange(len(wanted)), []
    distances = standing_distances(len(wanted), degree)
    if distances:
        circle = np.zeros(wanted.shape, dtype=np.int64)
        circle[every[:, None], (every[:, None] + distances) % len(wanted)] = 1
        found.append(circle)
    for seed in range(_DRAWN):
        generator = np.random.default_rng(seed)
        links = np.zeros(wanted.shape, dtype=np.int64)
        links[every, np.roll(every, -1)] = 1
        for _ in range(degree - 1):
            taken = (links > 0) | (every[:, None] == every)
            worth = np.where(taken, -float(links.size), generator.random(links.shape) + (wanted > 0.0))
            links[scipy.optimize.linear_sum_assignment(worth, maximize=True)] += 1
        found.append(links)
    return found


def _parts_joined(wanted: np.ndarray, degree: int) -> np.ndarray:
    """Return circuits for the busiest traffic, of which one lane of each vertex joins its parts, [N, N].

    The vertices of a part reach each other over their other lanes. The last lanes are shared out among parts
    as they would be among vertices, each between the two vertices of a pair of parts with most to send.
    """
    links = busiest_first(wanted, degree - 1)
    parts, part_of = scipy.sparse.csgraph.connected_components(
        scipy.sparse.csr_array(links), connection="strong"
    )
    member = np.eye(parts)[part_of]
    between = member.T @ wanted @ member
    np.fill_diagonal(between, 0.0)
    out, into = degree - links.sum(axis=1), degree - links.sum(axis=0)
    lanes = busiest_first(between, np.minimum(out @ member, into @ member).astype(np.int64))
    for a, b in np.repeat(np.argwhere(lanes), lanes[lanes > 0], axis=0).tolist():
        tails, heads = np.flatnonzero((part_of == a) & (out > 0)), np.flatnonzero((part_of == b) & (into > 0))
        late = wanted[np.ix_(tails, heads)] / (links[np.ix_(tails, heads)] + 1)
        tail, head = np.unravel_index(late.argmax(), late.shape)
        links[tails[tail], heads[head]] += 1
        out[tails[tail]] -= 1
        into[heads[head]] -= 1
    return busiest_first(wanted, degree, links)


def _thinnest_first(wanted: np.ndarray, degree: int, kept: int) -> np.ndarray:
    """Return circuits of which the thinnest traffic of a vertex has so many, the busiest the rest, [N, N]."""
    links = np.zeros(wanted.shape, dtype=np.int64)
    out, into = np.full(len(wanted), kept), np.full(len(wanted), kept)
    rows, columns = np.nonzero(wanted)
    for at in np.argsort(wanted[rows, columns], kind="stable").tolist():
        a, b = rows[at], columns[at]
        if a != b and out[a] > 0 and into[b] > 0:
            links[a, b] = 1
            out[a] -= 1
            into[b] -= 1
    return busiest_first(wanted, degree, links)


def _busiest_bytes(links: np.ndarray, wanted: np.ndarray, *, all_meet: bool) -> float:
    """Return the bytes over the busiest circuit, pairs spread over ways; infinite if some have none."""
    before = _before(scipy.sparse.csr_array(links > 0, dtype=float))
    apart = (before[0] == NO_WAY) & ~np.eye(len(links), dtype=bool)
    if (apart if all_meet else apart & (wanted > 0.0)).any():
        return np.inf
    carried = np.zeros(links.shape)
    for earlier_than in before:
        sources, here = np.nonzero(wanted)
        sent = wanted[sources, here] / len(before)
        while sources.size:
            earlier = earlier_than[sources, here]
            np.add.at(carried, (earlier, here), sent)
            going = earlier != sources
            sources, here, sent = sources[going], earlier[going], sent[going]
    return float((carried / np.maximum(links, 1)).max())


def busiest_first(
    wanted: np.ndarray, degree: int | np.ndarray, links: np.ndarray | None = None
) -> np.ndarray:
    """Return circuits given one by one to the pair that takes longest, shape [N, N], whole numbers.

    Parameters
    ----------
    wanted : numpy.ndarray
        Bytes from vertex to vertex, shape [N, N].
    degree : int
        Circuits that a vertex may begin, and as many that it may end.
    links : numpy.ndarray, optional
        Circuits that there are already, shape [N, N].

    Notes
    -----
    The greedy rule of MixNet (Liao et al., SIGCOMM 2025): the pair that finishes last gets the next circuit,
    as long as both its ends have a port. A pair without any comes before all that have one; of equal pairs
    the nearer in number comes first, so that even traffic leaves no vertex out.
    """
    given = np.zeros(wanted.shape, dtype=np.int64) if links is None else links.copy()
    out, into = degree - given.sum(axis=1), degree - given.sum(axis=0)
    rows, columns = np.nonzero(wanted)
    queue = [
        (bool(given[a, b]), -wanted[a, b] / max(given[a, b], 1), (b - a) % len(wanted), a, b)
        for a, b in zip(rows.tolist(), columns.tolist(), strict=True)
        if a != b
    ]
    heapq.heapify(queue)
    while queue:
        _, _, away, a, b = heapq.heappop(queue)
        if out[a] > 0 and into[b] > 0:
            given[a, b] += 1
            out[a] -= 1
            into[b] -= 1
            heapq.heappush(queue, (True, -wanted[a, b] / given[a, b], away, a, b))
    return given


def lanes_of(links: np.ndarray, degree: int, first: int = 0) -> np.ndarray:
    """Return the destination of each lane, shape [N, degree], `DARK` for none.

    Parameters
    ----------
    links : numpy.ndarray
        Circuits from vertex to vertex, shape [N, N].
    degree : int
        Lanes of a vertex.
    first : int
        Number of the first vertex.
    """
    pairs = np.argwhere(links).astype(np.int64)
    counts = links[links != 0].astype(np.int64)
    peers = _colour(pairs.tobytes(), counts.tobytes(), len(links), degree)
    return np.where(peers == DARK, DARK, peers + first)


def last_first(wanted: np.ndarray, degree: int, packets: float) -> np.ndarray:
    """Return circuits given one by one to what finishes last, shape [N, N], whole numbers.

    Parameters
    ----------
    wanted : numpy.ndarray
        Bytes from vertex to vertex, shape [N, N], diagonal zero.
    degree : int
        Circuits that a vertex may begin, and as many that it may end.
    packets : float
        Rate of a vertex' packet ports together, over that of a circuit; they carry pairs without circuits.

    Notes
    -----
    The greedy rule of MixNet (Liao et al., SIGCOMM 2025) where pairs without a circuit are not stranded but
    share their nodes' packet ports: a circuit goes to the slowest pair that has one already, or relieves the
    slowest port of its largest pair. What has no port left is passed over.
    """
    links = np.zeros(wanted.shape, dtype=np.int64)
    out, into = np.full(len(wanted), degree), np.full(len(wanted), degree)
    while True:
        able = (out[:, None] > 0) & (into[None, :] > 0) & (wanted > 0.0)
        if not able.any():
            return links
        lit = links > 0
        dark = np.where(lit, 0.0, wanted)
        late = np.divide(wanted, links, out=np.zeros(wanted.shape), where=lit)
        if packets > 0.0:
            waiting = np.maximum(dark.sum(axis=1)[:, None], dark.sum(axis=0)[None, :]) / packets
        else:
            waiting = np.full(wanted.shape, np.inf)
        late = np.where(able, np.where(lit, late, waiting), -1.0)
        worst = late == late.max()
        source, destination = np.unravel_index(np.where(worst, wanted, -1.0).argmax(), wanted.shape)
        links[source, destination] += 1
        out[source] -= 1
        into[destination] -= 1


def even_circuits(wanted: np.ndarray, degree: int) -> np.ndarray:
    """Return circuits as if all pairs with traffic had the same, shape [N, N]: nobody looks at sizes."""
    return busiest_first((wanted > 0.0).astype(float), degree)


def region_matrices(served: Sequence[Flows], node_of: np.ndarray, region: int) -> dict[int, np.ndarray]:
    """Return what goes from node to node of each region on its way out, by region; shape [region, region].

    Parameters
    ----------
    served : sequence of Flows
        Traffic between endpoints.
    node_of : numpy.ndarray
        Node of each endpoint, shape [E].
    region : int
        Nodes of a region; what leaves one is left out.
    """
    found: dict[int, np.ndarray] = {}
    for flows in served:
        one, other = node_of[flows.sources], node_of[flows.destinations]
        kept = (one // region == other // region) & (one != other)
        for here in np.unique(one[kept] // region).tolist():
            mine = kept & (one // region == here)
            matrix = found.setdefault(here, np.zeros((region, region)))
            np.add.at(matrix, (one[mine] % region, other[mine] % region), flows.sizes_bytes[mine])
    return found


def ways_to_give(wanted: np.ndarray, degree: int, packets: float) -> tuple[np.ndarray, ...]:
    """Return circuits for uneven traffic and its way back in several ways, even ones first; each [N, N].

    Parameters as in `last_first`, which sees either the larger of both ways of a pair or their sum.

    Notes
    -----
    None of them is best for all traffic: who tries them all never does worse than even circuits.
    """
    larger, both = np.maximum(wanted, wanted.T), wanted + wanted.T
    return (
        even_circuits(both, degree),
        last_first(larger, degree, packets),
        last_first(both, degree, packets),
        busiest_first(both, degree),
    )
