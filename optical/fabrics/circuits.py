"""Circuits of optical lanes: their state, their routes, and their assignment to traffic.

Three parts:

- `Circuits` says which endpoint each lane of each endpoint reaches, and which ports are down. Lanes to the
  same peer act as one link, that of the first of them. `assign_lanes` gives pairs of endpoints lanes by
  weight; two circuits never end on the same lane of an endpoint (`_colour_lanes`).
- `ForwardingCircuits` are circuits whose vertices forward traffic for others, along shortest paths.
- Layouts say how many circuits join each two vertices of a domain, [N, N], for a traffic matrix: `job_links`
  where vertices forward, `busiest_first` where they do not, `candidate_circuits` beside packet switches.
"""

from __future__ import annotations

import heapq
import math
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
    """Destination of each optical lane; treat as immutable.

    Raises
    ------
    ParameterError
        If two circuits end on the same lane of a destination.
    """

    tx_peer: np.ndarray
    """Endpoint to which each lane of each endpoint is set, shape [E, lanes]; `DARK` for none."""
    plans: Mapping[str, np.ndarray] = field(default_factory=lambda: MappingProxyType({}))
    """Destinations of all lanes when they serve one axis of the step only, by axis, each [E, lanes]."""
    failed: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Ports that are down, ``endpoint * lanes + lane``, shape [n]; no light leaves or arrives on them."""
    unlent: np.ndarray | None = None
    """`tx_peer` before lanes were lent to pairs whose own lanes are all down (`with_lent_lanes`), to return
    to after a repair, shape [E, lanes]; None if nothing is lent."""
    relays: bool = False
    """Whether a pair whose lanes are all down goes over other circuits between its nodes."""

    def __post_init__(self) -> None:
        lit = self.tx_peer != DARK
        receivers = self.tx_peer[lit] * self.tx_peer.shape[1] + np.nonzero(lit)[1]
        circuits = np.bincount(receivers)
        if circuits.max(initial=0) > 1:
            peer, lane = divmod(int(np.flatnonzero(circuits > 1)[0]), self.tx_peer.shape[1])
            msg = f"two circuits end on lane {lane} of endpoint {peer}; a lane receives one"
            raise ParameterError(msg)
        self.tx_peer.flags.writeable = False

    @cached_property
    def lit(self) -> np.ndarray:
        """Destination of each lane whose light arrives, [E, lanes]; `DARK` if either port is down."""
        if not self.failed.size:
            return self.tx_peer
        lanes, down = self.tx_peer.shape[1], ~self.works
        lost = down | (down[self.tx_peer, np.arange(lanes)] & (self.tx_peer != DARK))
        return np.where(lost, DARK, self.tx_peer)

    @cached_property
    def works(self) -> np.ndarray:
        """Whether the port of each lane works, bool [E, lanes]."""
        works: np.ndarray = ~np.isin(np.arange(self.tx_peer.size), self.failed).reshape(self.tx_peer.shape)
        return works

    def without(self, failed: np.ndarray) -> Circuits:
        """Return the same circuits with just these ports down, shape [n].

        Lent lanes return to their owners once any port works again.
        """
        if self.unlent is None or np.isin(self.failed, failed).all():
            return Circuits(self.tx_peer, self.plans, failed, self.unlent)
        return Circuits(self.unlent, self.plans, failed)

    @cached_property
    def link_lanes(self) -> np.ndarray:
        """Lanes in each link, [E, lanes]: all lit lanes to a peer on the first of them, 0 on the others."""
        same = (self.lit[:, :, None] == self.lit[:, None, :]) & (self.lit != DARK)[:, :, None]
        first = ~np.tril(same, -1).any(axis=2)
        return np.where(first, same.sum(axis=2), 0)

    def with_lanes(self, moving: np.ndarray, target: np.ndarray) -> Circuits:
        """Return circuits in which some endpoints have set all their lanes as in `target`.

        Parameters
        ----------
        moving : numpy.ndarray
            Endpoints whose lanes turn, shape [M].
        target : numpy.ndarray
            Destinations of all lanes, shape [E, lanes], a valid `tx_peer`. Circuits of other endpoints go
            dark where a turned lane now ends on the same port.
        """
        after = _with_turned(self.tx_peer, moving, target)
        unlent = None if self.unlent is None else _with_turned(self.unlent, moving, target)
        return Circuits(after, self.plans, self.failed, unlent)

    def direct(self, sources: np.ndarray, destinations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the link straight from each source to its destination, and whether it is lit, each [F]."""
        lit = self.lit[sources] == destinations[:, None]
        return sources * self.tx_peer.shape[1] + lit.argmax(axis=1), lit.any(axis=1)

    def changed_links(self, after: Circuits) -> np.ndarray:
        """Return the links, ``endpoint * lanes + lane``, whose peer or capacity differs in `after`, [n]."""
        turned = after.tx_peer != self.tx_peer
        return np.flatnonzero(turned | (after.link_lanes != self.link_lanes))

    def turned_lanes(self, after: Circuits) -> int:
        """Return the number of lanes that have another destination in `after`; going dark does not count."""
        return int(((after.tx_peer != self.tx_peer) & (after.tx_peer != DARK)).sum())

    def with_lent_lanes(self, pairs: np.ndarray) -> np.ndarray:
        """Return destinations of all lanes, [E, lanes], where pairs that lost every lane borrow one.

        A pair takes the first lane that works at both its ends and is idle there, or else one whose present
        pairs have another working lane. A pair that finds none keeps its dead lanes, so that its traffic
        waits.

        Parameters
        ----------
        pairs : numpy.ndarray
            Source and destination of the circuits that are wanted, distinct, shape [P, 2].
        """
        peers, dead = self.lit.copy(), (self.lit == DARK) & (self.tx_peer != DARK)
        for source, destination in pairs.tolist():
            if (peers[source] == destination).any():
                continue
            lane = _spare_lane(peers, self.works[source] & self.works[destination], source, destination)
            if lane == DARK:
                own = dead[source] & (self.tx_peer[source] == destination)
                own &= ~(peers == destination).any(axis=0)
                peers[source, own] = destination
                continue
            peers[peers[:, lane] == destination, lane] = DARK
            peers[source, lane] = destination
        return peers


def _spare_lane(peers: np.ndarray, works: np.ndarray, source: int, destination: int) -> int:
    """Return a lane that a pair may borrow, or `DARK`: an idle one, else one whose owners have another.

    `peers` are the destinations of all lanes [E, lanes]; `works` says which lanes work at both ends, [lanes].
    """
    spare = DARK
    for lane in np.flatnonzero(works).tolist():
        present = int(peers[source, lane])
        senders = np.flatnonzero(peers[:, lane] == destination)
        if present == DARK and not senders.size:
            return int(lane)
        can_miss = present == DARK or (peers[source] == present).sum() > 1
        can_miss = can_miss and all((peers[sender] == destination).sum() > 1 for sender in senders)
        if can_miss and spare == DARK:
            spare = int(lane)
    return spare


def _with_turned(tx_peer: np.ndarray, moving: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return `tx_peer` after some endpoints set their lanes as in `target` (`Circuits.with_lanes`)."""
    after = tx_peer.copy()
    after[moving] = DARK
    turned = target[moving]
    lit = turned != DARK
    taken = np.zeros(after.shape, dtype=bool)
    taken[turned[lit], np.nonzero(lit)[1]] = True
    after[(after != DARK) & taken[after, np.arange(after.shape[1])]] = DARK
    after[moving] = turned
    return after


def _shared_lanes(owners: np.ndarray, weights: np.ndarray, lanes: int) -> np.ndarray:
    """Return the lanes of each pair, shared by weight among the pairs of its owner, at least one, shape [P].

    Largest remainders decide who gets the lanes that whole shares leave.
    """
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
    share = _fractional_lanes(owners, weights, lanes)
    whole = np.floor(share + BALANCE_TOLERANCE).astype(np.int64)
    left = lanes - np.bincount(owners, weights=whole).astype(np.int64)
    by_remainder = np.lexsort((np.arange(len(owners)), whole - share, owners))
    starts = np.cumsum(peers) - peers
    rank = np.empty(len(owners), dtype=np.int64)
    rank[by_remainder] = np.arange(len(owners)) - starts[owners[by_remainder]]
    return whole + (rank < left[owners])


def _fractional_lanes(owners: np.ndarray, weights: np.ndarray, lanes: int) -> np.ndarray:
    """Return each pair's share of its owner's lanes, in proportion to its weight but at least one, shape [P].

    Pairs whose proportion is below one are held at one, and the rest is shared anew until none is below.
    """
    idle = np.bincount(owners, weights=weights)[owners] == 0.0
    weights = np.where(idle, 1.0, weights)
    held_at_one = np.zeros(len(owners), dtype=bool)
    while True:
        sums = np.bincount(owners, weights=np.where(held_at_one, 0.0, weights))[owners]
        lanes_left = lanes - np.bincount(owners, weights=held_at_one)[owners]
        share = np.where(held_at_one, 1.0, weights / np.where(sums > 0.0, sums, 1.0) * lanes_left)
        below_one = ~held_at_one & (share < 1.0 - BALANCE_TOLERANCE)
        if not below_one.any():
            return share
        held_at_one |= below_one


def assign_lanes(pairs: np.ndarray, weights: np.ndarray, endpoints: int, lanes: int) -> np.ndarray:
    """Return the lanes of circuits for pairs of endpoints, shared out by weight.

    Parameters
    ----------
    pairs : numpy.ndarray
        Source and destination of each circuit, distinct, shape [P, 2].
    weights : numpy.ndarray
        Bytes of each pair, shape [P].
    endpoints, lanes : int
        Endpoints of the fabric, and lanes of each.

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
    counts = np.minimum(
        _shared_lanes(pairs[:, 0], weights, lanes), _shared_lanes(pairs[:, 1], weights, lanes)
    )
    return _colour_lanes(pairs.tobytes(), counts.tobytes(), endpoints, lanes).copy()


@lru_cache(maxsize=64)
def _colour_lanes(pairs_bytes: bytes, counts_bytes: bytes, endpoints: int, lanes: int) -> np.ndarray:
    """Return the destination of each lane, [E, lanes], for pairs [P, 2] with a number of circuits each, [P].

    A circuit takes the same lane at both its ends, free at both: an edge colouring of a bipartite graph, for
    which as many lanes as the busiest endpoint has circuits suffice (König 1916). Pairs and counts come as
    the bytes of int64 arrays, so that results can be cached.
    """
    pairs = np.frombuffer(pairs_bytes, dtype=np.int64).reshape(-1, 2)
    counts = np.frombuffer(counts_bytes, dtype=np.int64)
    if (counts == lanes).all():
        peers = np.full((endpoints, lanes), DARK, dtype=np.int64)
        peers[pairs[:, 0]] = pairs[:, 1:]
        return peers
    sends = [[DARK] * lanes for _ in range(endpoints)]
    receives = [[DARK] * lanes for _ in range(endpoints)]
    for (source, destination), count in zip(pairs.tolist(), counts.tolist(), strict=True):
        for _ in range(count):
            _add_circuit(sends, receives, source, destination)
    return np.array(sends, dtype=np.int64).reshape(endpoints, lanes)


def _add_circuit(sends: list[list[int]], receives: list[list[int]], source: int, destination: int) -> None:
    """Add one circuit to the destinations, and the sources, of all lanes, both [E][lanes].

    If no lane is free at both ends, take one that is free at the source and one free at the destination, and
    swap these two lanes along the alternating path of circuits that begins at the destination.
    """
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
    """Return circuits as links, numbered ``vertex * degree + lane``; a dark one leads back to its own vertex.

    Parameters
    ----------
    circuits : Circuits
        The circuits.
    vertices : numpy.ndarray
        Number of each of their endpoints in the wiring that they become part of, shape [V].
    rate_bytes_per_s, latency_s : float
        Rate of one lane, and latency of a circuit.
    """
    count = circuits.link_lanes
    own = np.broadcast_to(vertices[:, None], count.shape)
    heads = np.where(count > 0, vertices[circuits.lit], own)
    rates = count.ravel() * rate_bytes_per_s
    return bundle(own.ravel(), heads.ravel(), rate_bytes_per_s=rates, latency_s=latency_s)


class CircuitFabric(Fabric, Protocol):
    """Fabric whose links are circuits; flows over failed ones take detours over circuits that are lit."""

    def without(self, circuits: Any, failed: np.ndarray) -> tuple[Any, Reconfiguration]:  # noqa: ANN401 - its own
        """Return the same circuits with just these ports down, shape [n]; none of them turns."""
        return replace(circuits, circuits=circuits.circuits.without(failed)), Reconfiguration()

    def around(self, circuits: Any, flows: Flows, failed: np.ndarray) -> np.ndarray:  # noqa: ANN401 - its own
        """Return the links of each flow, [F, H], as `route` does, with detours past failed links [n].

        A flow for which lit circuits leave no detour keeps its route over the failed link, and so waits.
        """
        return self.past(circuits, flows, failed, self.route(circuits, flows))

    def past(self, circuits: Any, flows: Flows, failed: np.ndarray, routes: np.ndarray) -> np.ndarray:  # noqa: ANN401 - its own
        """Return routes [F, H] of flows with those that cross failed links led round, as `around` does."""
        wiring = self.wired(circuits)
        if wiring is None:
            return routes
        hit = np.asarray(np.isin(routes, failed).any(axis=1))
        dark = np.flatnonzero(wiring.capacity_bytes_per_s <= 0.0)
        around = detours(wiring, routes[hit], flows.part(hit), np.union1d(failed, dark))
        after = np.full((len(routes), max(routes.shape[1], around.shape[1])), NO_LINK, dtype=np.int64)
        after[:, : routes.shape[1]] = routes
        after[hit] = NO_LINK
        after[hit, : around.shape[1]] = around
        return after


NO_PATH = -9999
"""Predecessor of a vertex that cannot be reached, or is the start itself (scipy's convention)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ForwardingCircuits:
    """Circuits within domains of vertices that forward traffic, and shortest paths over them.

    Treat as immutable.

    Notes
    -----
    A link is numbered ``vertex * degree + lane``. Lanes to the same peer act as one link, that of the first
    of them, with their joint capacity. Where a pair has several shortest paths, up to `PATHS` of them are
    taken in turn by its flows.
    """

    circuits: Circuits
    """Vertex that each lane of each vertex reaches, V of them."""
    domain: int
    """Vertices in a domain, numbered consecutively; circuits stay within it."""
    axes: tuple[str, ...] = ()
    """Axis of parallelism that the circuits of each domain serve; empty for the whole step."""

    @cached_property
    def predecessors(self) -> np.ndarray:
        """Predecessor of each vertex on shortest paths from each start, shape [paths, V, domain].

        The last index and the values count within the domain; `NO_PATH` where there is none.
        """
        peers = self.circuits.lit
        predecessors = np.full((PATHS, len(peers), self.domain), NO_PATH, dtype=np.int32)
        by_circuits: dict[bytes, np.ndarray] = {}
        for first in range(0, len(peers), self.domain):
            inside = np.where(peers == DARK, DARK, peers - first)[first : first + self.domain]
            key = inside.tobytes()
            if key not in by_circuits:
                tails, lanes = np.nonzero(inside != DARK)
                lit = (np.ones(tails.size), (tails, inside[tails, lanes]))
                by_circuits[key] = _predecessors(
                    scipy.sparse.csr_array(lit, shape=(self.domain, self.domain))
                )
            predecessors[:, first : first + self.domain] = by_circuits[key]
        return predecessors

    def reaches(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return whether a path leads from each source to its destination, bool [F]; to itself always."""
        same = sources // self.domain == destinations // self.domain
        led = self.predecessors[0, sources, destinations % self.domain] != NO_PATH
        return (same & led) | (sources == destinations)

    def ring_strides(self, members: np.ndarray) -> tuple[int, ...]:
        """Return the strides at which circuits join vertices [n] into rings that visit all of them."""
        return tuple(
            stride
            for stride in coprime_strides(len(members))
            if self.circuits.direct(members, np.roll(members, -stride))[1].all()
        )

    def path_links(
        self, sources: np.ndarray, destinations: np.ndarray, turns: np.ndarray | int = 0
    ) -> list[np.ndarray]:
        """Return the links of shortest paths, hop by hop from the end to the start, each [F].

        A path shorter than others has `NO_LINK` in the last entries.

        Parameters
        ----------
        sources, destinations : numpy.ndarray
            Vertices that a path joins (`reaches`), shape [F].
        turns : numpy.ndarray or int
            Numbers that spread flows of a pair over its paths: equal modulo `PATHS`, same path.
        """
        hops, vertex, turn = [], destinations.copy(), turns % PATHS
        while (vertex != sources).any():
            going = vertex != sources
            predecessor = np.where(
                going,
                self.predecessors[turn, sources, vertex % self.domain] + vertex // self.domain * self.domain,
                vertex,
            )
            link, _ = self.circuits.direct(predecessor, vertex)
            hops.append(np.where(going, link, NO_LINK))
            vertex = predecessor
        return hops

    def hops(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the number of circuits on the path of each flow, shape [F]."""
        columns = self.path_links(sources, destinations)
        return np.sum([column >= 0 for column in columns], axis=0) if columns else np.zeros(len(sources), int)


def _predecessors(lit: scipy.sparse.csr_array) -> np.ndarray:
    """Return predecessors [paths, N, N] of the last index on shortest paths from the second.

    A vertex v has as predecessors all its neighbours one hop nearer to the start s. Path k takes number ``(s
    + v + k)`` of them, counted round, so that pairs spread over circuits even if each takes one path only.

    Parameters
    ----------
    lit : scipy.sparse.csr_array
        Circuits between N vertices, shape [N, N].
    """
    size = lit.shape[0]
    hops = scipy.sparse.csgraph.shortest_path(lit, unweighted=True)
    into = lit.tocsc()
    arrivals = np.diff(into.indptr)
    neighbours = np.full((int(arrivals.max(initial=0)), size), NO_PATH)  # one a row for each vertex
    neighbours[
        np.arange(into.nnz) - np.repeat(into.indptr[:-1], arrivals), np.repeat(np.arange(size), arrivals)
    ] = into.indices
    connected = (hops > 0.0) & np.isfinite(hops)

    def is_nearer(neighbour: np.ndarray) -> np.ndarray:
        """Return for each start and vertex whether that neighbour is one hop nearer, bool [N, N]."""
        return (neighbour != NO_PATH) & connected & (hops[:, np.maximum(neighbour, 0)] + 1.0 == hops)

    every = np.arange(size)
    choices = sum((is_nearer(row) for row in neighbours), np.zeros((size, size), dtype=np.int64))
    number = (every[:, None] + every + np.arange(PATHS)[:, None, None]) % np.maximum(choices, 1)
    predecessors = np.full(number.shape, NO_PATH, dtype=np.int32)
    for row in neighbours:
        nearer = is_nearer(row)
        predecessors = np.where(nearer & (number == 0), row, predecessors)
        number -= nearer
    return predecessors.astype(np.int32)


PATHS = 4
"""Shortest paths over which the flows of a pair, or the chunks of one flow, are spread; a choice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DomainDemand:
    """Traffic among the vertices of one domain; circuits may carry its rings at any stride."""

    groups: tuple[AllReduceGroup, ...]
    """Collectives around rings of vertices, with the bytes that each member holds."""
    pairs: np.ndarray
    """Bytes of all other traffic from vertex to vertex, shape [domain, domain]."""

    @property
    def matrix(self) -> np.ndarray:
        """Bytes from vertex to vertex, rings as traffic to the next member, shape [domain, domain]."""
        matrix = self.pairs.copy()
        for group in self.groups:
            members = np.array(group.members)
            matrix[members, np.roll(members, -1)] += group.ring_bytes
        return matrix


class _DemandBuilder:
    """Traffic of all domains while it is added up."""

    def __init__(self, domain: int) -> None:
        self._domain = domain
        self._rings: dict[int, dict[tuple[int, ...], float]] = {}
        self._pairs: dict[int, np.ndarray] = {}

    def demands(self) -> dict[int, DomainDemand]:
        """Return the traffic of each domain that has any, in the order of their numbers."""
        found = {}
        for number in sorted(set(self._rings) | set(self._pairs)):
            rings = self._rings.get(number, {}).items()
            groups = (AllReduceGroup(members=members, size_bytes=size) for members, size in rings)
            pairs = self._pairs.get(number, np.zeros((self._domain, self._domain)))
            found[number] = DomainDemand(groups=tuple(groups), pairs=pairs)
        return found

    def add_pairs(
        self, number: int, sources: np.ndarray, destinations: np.ndarray, size_bytes: float | np.ndarray
    ) -> None:
        """Add bytes from vertex to vertex of a domain, [n] each."""
        if number not in self._pairs:
            self._pairs[number] = np.zeros((self._domain, self._domain))
        np.add.at(self._pairs[number], (sources % self._domain, destinations % self._domain), size_bytes)

    def add_group(self, flows: Flows, vertices: np.ndarray) -> None:
        """Add the traffic of one group of a collective, whose members stand at vertices [n] in ring order."""
        visited = _without_repeats(vertices)
        for number in np.unique(visited // self._domain).tolist():
            members = _without_repeats(visited[visited // self._domain == number])
            if len(members) < 2:
                continue
            distinct = len(np.unique(members)) == len(members)
            if distinct and flows.kind is CollectiveKind.ALL_TO_ALL:
                sources, destinations = (side.ravel() for side in np.meshgrid(members, members))
                differ = sources != destinations
                pair_bytes = flows.size_bytes * len(vertices) / len(visited) / len(visited)
                self.add_pairs(number, sources[differ], destinations[differ], pair_bytes)
            elif distinct and len(members) == len(visited):
                rings = self._rings.setdefault(number, {})
                ring = tuple((members % self._domain).tolist())
                rings[ring] = rings.get(ring, 0.0) + flows.size_bytes
            else:  # a ring that leaves the domain, or passes a vertex twice: from neighbour to neighbour
                self.add_pairs(number, members, np.roll(members, -1), flows.size_bytes)

    def add_flows(
        self, flows: Flows, sources: np.ndarray, destinations: np.ndarray, *, back: bool = False
    ) -> None:
        """Add flows from vertices to vertices, [F] each, and with `back` those of the way back."""
        stays = (sources // self._domain == destinations // self._domain) & (sources != destinations)
        for number in np.unique(sources[stays] // self._domain).tolist():
            inside = stays & (sources // self._domain == number)
            sizes_bytes = flows.sizes_bytes[inside]
            self.add_pairs(number, sources[inside], destinations[inside], sizes_bytes)
            if back:
                self.add_pairs(number, destinations[inside], sources[inside], sizes_bytes)


def domain_demands(served: Sequence[Flows], vertex_of: np.ndarray, domain: int) -> dict[int, DomainDemand]:
    """Return the traffic within each domain that has any, by the domain's number.

    Parameters
    ----------
    served : sequence of Flows
        Traffic between endpoints.
    vertex_of : numpy.ndarray
        Vertex at which each endpoint stands, shape [E].
    domain : int
        Vertices in a domain; traffic that leaves it is left out.

    Notes
    -----
    A group of a collective is a ring of its members' vertices, and may take circuits of any stride.
    All-to-alls are pairs instead, each member's bytes spread evenly over the others. A ring that passes
    through several domains, or twice through a vertex, is part of a collective of two levels, which goes from
    neighbour to neighbour: pairs, as circuits of other strides would be idle. All other flows are pairs.
    Uneven ones, to experts, come back, so that both directions count.
    """
    builder = _DemandBuilder(domain)
    for flows in served:
        if flows.groups is None:
            ends = vertex_of[flows.sources], vertex_of[flows.destinations]
            builder.add_flows(flows, *ends, back=flows.weights is not None)
            continue
        for group in flows.groups:
            builder.add_group(flows, vertex_of[group])
    return builder.demands()


def _without_repeats(vertices: np.ndarray) -> np.ndarray:
    """Return the vertices that a ring of members visits, members in a row at one vertex counted once."""
    return vertices[vertices != np.roll(vertices, 1)] if len(np.unique(vertices)) > 1 else vertices[:1]


def job_links(demand: DomainDemand, degree: int, *, all_meet: bool = True) -> np.ndarray:
    """Return the number of circuits from vertex to vertex of a domain whose vertices forward traffic.

    Parameters
    ----------
    demand : DomainDemand
        Traffic of the domain.
    degree : int
        Circuits that a vertex may begin, and as many that it may end.
    all_meet : bool
        Whether every vertex must reach every other, or only those with traffic between them.

    Returns
    -------
    numpy.ndarray
        Circuits, whole numbers, shape [domain, domain].

    Notes
    -----
    Candidate layouts are evaluated with pairs spread over their shortest paths, as flows are, and
    the one whose busiest circuit carries least is kept:

    - TopologyFinder with TotientPerms (`optical.scheduling.topology.job_topology`), made for rings and few
      pairs. Lanes that it leaves double the busiest circuits; if some vertices cannot reach those that they
      must, one lane of each goes into a ring through all first.
    - Some lanes of each vertex for the thinnest traffic, the rest for the pairs that take longest
      (`_thinnest_first`). The first layout leaves pairs far apart in exchanges among about as many vertices
      as there are lanes.
    - One lane of each vertex to join the components that circuits for the busiest pairs leave
      (`_components_joined`).
    - Where a vertex sends to more others than it has lanes, so that nodes forward much: layouts of few hops
      (`_low_diameter_layouts`).

    References
    ----------
    Singla, Hong, Popa and Godfrey, "Jellyfish: Networking Data Centers Randomly", NSDI 2012: random regular
    graphs have nearly the shortest paths that their degree allows.
    """
    if len(demand.pairs) < 2:
        return np.zeros(demand.pairs.shape, dtype=np.int64)
    pairs = np.ascontiguousarray(demand.pairs, dtype=float)
    return _cached_job_links(demand.groups, pairs.tobytes(), degree, all_meet)


@lru_cache(maxsize=512)
def _cached_job_links(
    groups: tuple[AllReduceGroup, ...], pair_bytes: bytes, degree: int, all_meet: bool
) -> np.ndarray:
    """Return `job_links` for the pairs of a demand given as bytes of float64; cached, as plans share many."""
    entries = np.frombuffer(pair_bytes)
    size = math.isqrt(len(entries))
    demand = DomainDemand(groups=groups, pairs=entries.reshape(size, size))
    topology = job_topology(groups, demand.pairs, degree=degree)
    reached = ~np.isinf(topology.hops)
    if not (reached if all_meet else reached | (demand.matrix <= 0.0)).all():
        groups = (AllReduceGroup(members=tuple(range(size)), size_bytes=0.0), *groups)
        topology = job_topology(groups, demand.pairs, degree=degree)
    wanted = demand.pairs.copy()
    for group, strides in zip(groups, topology.strides, strict=True):
        members = np.array(group.members)
        for stride in strides or (1,):
            wanted[members, np.roll(members, -stride)] += group.ring_bytes / max(len(strides), 1)
    published = busiest_first(np.where(topology.links > 0, wanted, 0.0), degree, topology.links)
    others = [
        _thinnest_first(demand.matrix, degree, kept) for kept in range(min(degree, _MOST_KEPT_LANES) + 1)
    ]
    others.append(_components_joined(demand.matrix, degree))
    if (demand.matrix > 0.0).sum(axis=1).max() > degree:
        others += _low_diameter_layouts(demand.matrix, degree)
    others = list({links.tobytes(): links for links in others}.values())
    carried = [
        _busiest_link_bytes(published, wanted, all_meet=all_meet),
        *(_busiest_link_bytes(links, demand.matrix, all_meet=all_meet) for links in others),
    ]
    best = (published, *others)[int(np.argmin(carried))]
    best.flags.writeable = False
    return best


_MOST_KEPT_LANES = 4
"""Most lanes of a vertex that are tried for its thinnest traffic; a choice."""
_RANDOM_LAYOUTS = 8
"""Layouts drawn at random that are tried; a choice."""


def _low_diameter_layouts(wanted: np.ndarray, degree: int) -> list[np.ndarray]:
    """Return layouts in which all vertices are few hops apart, each [N, N].

    One has circuits at fixed distances around a circle, as for an all-to-all (`standing_distances`). The
    others are a ring and random matchings, which prefer pairs with traffic.

    Parameters
    ----------
    wanted : numpy.ndarray
        Bytes from vertex to vertex, shape [N, N].
    degree : int
        Circuits that a vertex may begin, and as many that it may end.
    """
    every, layouts = np.arange(len(wanted)), []
    distances = standing_distances(len(wanted), degree)
    if distances:
        circle = np.zeros(wanted.shape, dtype=np.int64)
        circle[every[:, None], (every[:, None] + distances) % len(wanted)] = 1
        layouts.append(circle)
    for seed in range(_RANDOM_LAYOUTS):
        generator = np.random.default_rng(seed)
        links = np.zeros(wanted.shape, dtype=np.int64)
        links[every, np.roll(every, -1)] = 1
        for _ in range(degree - 1):
            taken = (links > 0) | (every[:, None] == every)
            worth = np.where(taken, -float(links.size), generator.random(links.shape) + (wanted > 0.0))
            links[scipy.optimize.linear_sum_assignment(worth, maximize=True)] += 1
        layouts.append(links)
    return layouts


def _components_joined(wanted: np.ndarray, degree: int) -> np.ndarray:
    """Return circuits for the busiest traffic, and one lane of each vertex to join their components, [N, N].

    All lanes but one go to the busiest pairs. The vertices fall into strongly connected components, within
    which they reach each other. The last lanes are shared out among components as they would be among
    vertices, each between the two vertices of its components with most to send.
    """
    links = busiest_first(wanted, degree - 1)
    components, component_of = scipy.sparse.csgraph.connected_components(
        scipy.sparse.csr_array(links), connection="strong"
    )
    member = np.eye(components)[component_of]
    between = member.T @ wanted @ member
    np.fill_diagonal(between, 0.0)
    out, into = degree - links.sum(axis=1), degree - links.sum(axis=0)
    lanes = busiest_first(between, np.minimum(out @ member, into @ member).astype(np.int64))
    for a, b in np.repeat(np.argwhere(lanes), lanes[lanes > 0], axis=0).tolist():
        tails = np.flatnonzero((component_of == a) & (out > 0))
        heads = np.flatnonzero((component_of == b) & (into > 0))
        late = wanted[np.ix_(tails, heads)] / (links[np.ix_(tails, heads)] + 1)
        tail, head = np.unravel_index(late.argmax(), late.shape)
        links[tails[tail], heads[head]] += 1
        out[tails[tail]] -= 1
        into[heads[head]] -= 1
    return busiest_first(wanted, degree, links)


def _thinnest_first(wanted: np.ndarray, degree: int, kept: int) -> np.ndarray:
    """Return circuits with `kept` lanes a vertex for its thinnest traffic, others busiest first, [N, N]."""
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


def _busiest_link_bytes(links: np.ndarray, wanted: np.ndarray, *, all_meet: bool) -> float:
    """Return the bytes over the busiest circuit of a layout, pairs spread over shortest paths.

    Infinite if vertices that must reach each other do not: all, or those with traffic.
    """
    predecessors = _predecessors(scipy.sparse.csr_array(links > 0, dtype=float))
    apart = (predecessors[0] == NO_PATH) & ~np.eye(len(links), dtype=bool)
    if (apart if all_meet else apart & (wanted > 0.0)).any():
        return np.inf
    carried = np.zeros(links.shape)
    for predecessor_of in predecessors:
        sources, vertices = np.nonzero(wanted)
        sent = wanted[sources, vertices] / len(predecessors)
        while sources.size:
            earlier = predecessor_of[sources, vertices]
            np.add.at(carried, (earlier, vertices), sent)
            going = earlier != sources
            sources, vertices, sent = sources[going], earlier[going], sent[going]
    return float((carried / np.maximum(links, 1)).max())


def busiest_first(
    wanted: np.ndarray, degree: int | np.ndarray, links: np.ndarray | None = None
) -> np.ndarray:
    """Return the number of circuits of each pair, given one by one to the pair that takes longest, [N, N].

    Parameters
    ----------
    wanted : numpy.ndarray
        Bytes from vertex to vertex, shape [N, N].
    degree : int
        Circuits that a vertex may begin, and as many that it may end.
    links : numpy.ndarray, optional
        Circuits to begin with, shape [N, N]; none by default.

    Notes
    -----
    The greedy rule of MixNet (Liao et al., SIGCOMM 2025): the pair that finishes last gets the next circuit,
    as long as both its ends have a port. A pair without a circuit comes before all that have one; of equal
    pairs the nearer in number comes first, so that even traffic leaves no vertex out.
    """
    circuits = np.zeros(wanted.shape, dtype=np.int64) if links is None else links.copy()
    out, into = degree - circuits.sum(axis=1), degree - circuits.sum(axis=0)
    rows, columns = np.nonzero(wanted)
    queue = [
        (bool(circuits[a, b]), -wanted[a, b] / max(circuits[a, b], 1), (b - a) % len(wanted), a, b)
        for a, b in zip(rows.tolist(), columns.tolist(), strict=True)
        if a != b
    ]
    heapq.heapify(queue)
    while queue:
        _, _, distance, a, b = heapq.heappop(queue)
        if out[a] > 0 and into[b] > 0:
            circuits[a, b] += 1
            out[a] -= 1
            into[b] -= 1
            heapq.heappush(queue, (True, -wanted[a, b] / circuits[a, b], distance, a, b))
    return circuits


def lanes_of(links: np.ndarray, degree: int, first: int = 0) -> np.ndarray:
    """Return the destination of each lane for a layout of circuits, shape [N, degree], `DARK` for none.

    Parameters
    ----------
    links : numpy.ndarray
        Number of circuits from vertex to vertex, shape [N, N].
    degree : int
        Lanes of a vertex.
    first : int
        Number of the first vertex, which is added to destinations.
    """
    pairs = np.argwhere(links).astype(np.int64)
    counts = links[links != 0].astype(np.int64)
    peers = _colour_lanes(pairs.tobytes(), counts.tobytes(), len(links), degree)
    return np.where(peers == DARK, DARK, peers + first)


def greedy_beside_packets(wanted: np.ndarray, degree: int, packets: float) -> np.ndarray:
    """Return the number of circuits of each pair where packet ports carry pairs that have none, [N, N].

    Parameters
    ----------
    wanted : numpy.ndarray
        Bytes from vertex to vertex, shape [N, N], diagonal zero.
    degree : int
        Circuits that a vertex may begin, and as many that it may end.
    packets : float
        Rate of a vertex' packet ports together, over that of a circuit, dimensionless.

    Notes
    -----
    The greedy rule of MixNet (Liao et al., SIGCOMM 2025) where pairs without a circuit are not
    stranded but share their vertices' packet ports. Each circuit goes to what finishes last: a pair that has
    circuits already, or the busiest packet port, which it relieves of its largest pair. Pairs without a free
    port are passed over.
    """
    links = np.zeros(wanted.shape, dtype=np.int64)
    out, into = np.full(len(wanted), degree), np.full(len(wanted), degree)
    while True:
        free = (out[:, None] > 0) & (into[None, :] > 0) & (wanted > 0.0)
        if not free.any():
            return links
        lit = links > 0
        by_packets = np.where(lit, 0.0, wanted)
        circuit_time = np.divide(wanted, links, out=np.zeros(wanted.shape), where=lit)
        if packets > 0.0:
            port_bytes = np.maximum(by_packets.sum(axis=1)[:, None], by_packets.sum(axis=0)[None, :])
            packet_time = port_bytes / packets
        else:
            packet_time = np.full(wanted.shape, np.inf)
        time = np.where(free, np.where(lit, circuit_time, packet_time), -1.0)
        slowest = time == time.max()
        source, destination = np.unravel_index(np.where(slowest, wanted, -1.0).argmax(), wanted.shape)
        links[source, destination] += 1
        out[source] -= 1
        into[destination] -= 1


def even_circuits(wanted: np.ndarray, degree: int) -> np.ndarray:
    """Return the number of circuits of each pair if all pairs with traffic count alike, shape [N, N]."""
    return busiest_first((wanted > 0.0).astype(float), degree)


def region_demands(served: Sequence[Flows], node_of: np.ndarray, region: int) -> dict[int, np.ndarray]:
    """Return the bytes from node to node of each region, [region, region], by the region's number.

    The way back of uneven traffic is not counted, unlike in `domain_demands`.

    Parameters
    ----------
    served : sequence of Flows
        Traffic between endpoints.
    node_of : numpy.ndarray
        Node of each endpoint, shape [E].
    region : int
        Nodes in a region; traffic that leaves it is left out.
    """
    builder = _DemandBuilder(region)
    for flows in served:
        builder.add_flows(flows, node_of[flows.sources], node_of[flows.destinations])
    return {number: demand.pairs for number, demand in builder.demands().items()}


def candidate_circuits(wanted: np.ndarray, degree: int, packets: float) -> tuple[np.ndarray, ...]:
    """Return layouts of circuits for uneven traffic and its way back, each [N, N]; even ones come first.

    Parameters as in `greedy_beside_packets`. A circuit serves a pair on the way there and back, so that the
    pair counts with the larger of its two directions, or with their sum.

    Notes
    -----
    None of them is best for all traffic; the best of all is never worse than even circuits.
    """
    larger, both = np.maximum(wanted, wanted.T), wanted + wanted.T
    return (
        even_circuits(both, degree),
        greedy_beside_packets(larger, degree, packets),
        greedy_beside_packets(both, degree, packets),
        busiest_first(both, degree),
    )
