"""Assignment of lanes to the traffic of a step: circuits for reductions, other pairs, uneven demand."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from optical.fabrics.circuits import DARK, colour_lanes
from optical.scheduling.topology import AllReduceGroup, job_topology
from simulator.interfaces import Flows
from simulator.operators import CollectiveKind


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
    evenly. A ring through several domains is one in each of them, as in collectives of two levels. All others
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
    Several layouts are tried, and that one is kept whose busiest circuit carries least. The first is that
    of TopologyFinder with TotientPerms (`optical.scheduling.topology.job_topology`): what it leaves of the
    degree doubles the busiest circuits, and if some vertices could not reach those they have to, one lane of
    each goes into a ring through all first. It was made for rings and few pairs; of exchanges among about as
    many vertices as there are lanes it leaves some pairs far apart. The others keep some lanes of each vertex
    for the thinnest traffic, sends and steps of rings, and give the rest to the pairs that take longest; or
    give one lane of each vertex to what joins the parts that the busiest pairs leave.
    """
    size = len(demand.pairs)
    if size < 2:
        return np.zeros((size, size), dtype=np.int64)
    groups = demand.groups
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
    carried = [
        _busiest_bytes(published, wanted, all_meet=all_meet),
        *(_busiest_bytes(links, demand.matrix, all_meet=all_meet) for links in others),
    ]
    return (published, *others)[int(np.argmin(carried))]


_MOST_KEPT = 4
"""Most lanes of a vertex that are tried for its thinnest traffic; a choice."""


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
    """Return the bytes over the busiest circuit, pairs on a shortest way each; infinite if some have none."""
    lit = scipy.sparse.csr_array(links > 0)
    hops, before = scipy.sparse.csgraph.shortest_path(lit, unweighted=True, return_predecessors=True)
    if np.isinf(hops if all_meet else hops[wanted > 0.0]).any():
        return np.inf
    sources, here = np.nonzero(wanted)
    sent, carried = wanted[sources, here], np.zeros(links.shape)
    while sources.size:
        earlier = before[sources, here]
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
    rows, columns = np.nonzero(links)
    pairs = np.stack([rows, columns], axis=1).astype(np.int64)
    peers = colour_lanes(pairs, links[rows, columns].astype(np.int64), len(links), degree)
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
