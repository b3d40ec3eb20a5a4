"""Collectives over links straight from rank to rank, whatever graph these links are.

On a graph without switches rings are rarely the best: random regular graphs, dragonflies or tori with a
missing link have no ring at a stride, and one ring uses one link of many. `broadcast_ways` spreads each
rank's chunk to all others breadth first and divides it over the links so that none carries more than it must.
`exchange_loads` divides the messages of an all-to-all over all ways that are worth taking. Ranks forward.

References
----------
Zhao et al., "Efficient direct-connect topologies for collective communications", NSDI 2025
(arXiv:2202.03356): breadth-first broadcasts, balanced at every receiver. Zhao et al., "ForestColl:
throughput-optimal collective communications on heterogeneous network fabrics", arXiv:2402.06787: the bound of
cuts, which spanning trees reach. Basu et al., "Efficient all-to-all collective communication schedules for
direct-connect topologies", HPDC 2024 (arXiv:2309.13541): all-to-alls as flows of many commodities. Fratta,
Gerla and Kleinrock, "The flow deviation method", Networks 3 (1973).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

from simulator.collectives.algorithms import HALVES, Round, vector_bytes
from simulator.interfaces import Flows
from simulator.operators import CollectiveKind

MOST_CHOICES = 2**24
"""Most triples (source, receiver, link into it) of a group that is laid out over its links, which bounds
memory and time: 1,024 ranks of 16 links; a choice."""
MOST_TRIED = 2**21
"""Most triples that are gone through in all tries after the first; a choice: 8 tries of 256 ranks of 4 links,
none of 1,024."""
TRIES = 20
"""Times that links are lengthened for broadcasts; a choice: twice as many gain less than 1 % on the graphs of
the tests."""
DEVIATIONS = 40
"""Times that messages of an all-to-all are led to other ways; a choice: twice as many gain 1 to 2 %."""
FIRST_POWER, LAST_POWER = 4.0, 60.0
"""Powers of a link's time, the first and the greatest, that make its length for an all-to-all; choices: the
norm of so great a power is near the greatest time."""
IDLE, SHORTEST = 1e-4, 1e-6
"""Least time of a link over the busiest one's, and what is added to its power, so that unused links have a
length, too; dimensionless, choices."""
MOVED = np.concatenate([[0.0], np.geomspace(0.002, 1.0, 40)])
"""Shares of messages that are tried to go over to other ways; a choice."""
NEAR = 1.01
"""Time over a lower bound at which a search ends; a choice."""
LENGTHENING = 0.3
"""Logarithm of the factor by which the busiest link is lengthened; dimensionless, a choice: with 0.1 the
tests' graphs end at the same times within 1 %."""
APART = 0.5
"""Share of the shortest link by which ranks that are as far from a source may differ, other ones for every
source; a choice below one, so that farther ranks stay farther."""
SHARES = np.linspace(0.0, 1.0, 33)
"""Shares of chunks that are tried to go the new way; a choice."""
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
"""Golden section, whose multiples spread evenly over fractions of one."""
SWEEPS = 8
"""Times that all chunks are divided anew over the links of a receiver; a choice: loads then move by less than
1 %."""
_SAME = 1e-9
"""Relative difference within which two distances count as equal; dimensionless."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ChunkLoads:
    """Loads of links by a chunk from each of n ranks to all others, or to each other a chunk of its own."""

    chunks: np.ndarray
    """Chunks that the link from each rank to each other carries, shape [n, n]."""
    hops: int
    """Links on the longest way of any part of a chunk."""

    def busiest_s(self, rates: np.ndarray) -> float:
        """Return the time of the busiest link, for chunks of one byte and rates in bytes per s, [n, n].

        With rates over the greatest it is over the time of a chunk on the fastest link.
        """
        used = self.chunks > 0.0
        return float((self.chunks[used] / rates[used]).max())


def _relative(rates: np.ndarray) -> tuple[bytes, int, int]:
    """Return rates over the greatest as bytes, the ranks, and the `MOST_CHOICES` of a group of ranks."""
    size, most = len(rates), int((rates > 0.0).sum(axis=0).max(initial=0))
    relative = np.ascontiguousarray(rates / max(rates.max(initial=0.0), 1e-300), dtype=float)
    return relative.tobytes(), size, size * size * most


def broadcast_ways(rates: np.ndarray) -> tuple[ChunkLoads, ...]:
    """Return broadcasts from every rank: those over fewest links and, if less loads a link, balanced ones.

    Parameters
    ----------
    rates : numpy.ndarray
        Rate of the link from each rank to each other, 0 where there is none, shape [n, n].

    Returns
    -------
    tuple of ChunkLoads
        Empty if some rank does not reach another, or the group is larger than `MOST_CHOICES` allow.

    Notes
    -----
    A rank takes a chunk from any neighbours that are nearer to its source than itself, a part from each. So
    every rank receives each chunk once, and the load of a link depends on its receiver alone; each receiver
    divides chunks to level the times of its links. The length of a link is the inverse of its rate. Links
    behind a narrow cut may then still be busier than others. So links are lengthened by their load
    (multiplicative weights), ranks that are as far from a source pass its chunk to each other, in another
    order for every source, and of each new layout such a share is mixed in as relieves the busiest link.
    """
    relative, size, choices = _relative(rates)
    if not 0 < choices <= MOST_CHOICES:
        return ()
    return _broadcast_ways(relative, size, min(TRIES, MOST_TRIED // choices))


@lru_cache(maxsize=256)
def _broadcast_ways(relative: bytes, size: int, tries: int) -> tuple[ChunkLoads, ...]:
    """Return `broadcast_ways` of rates over the greatest, the bytes of an array [size, size]."""
    rates = np.frombuffer(relative).reshape(size, size)
    linked = rates > 0.0
    lengths = np.divide(1.0, rates, out=np.zeros_like(rates), where=linked)
    first = _breadth_first(rates, lengths)
    if first is None:
        return ()
    least_s = float(((size - 1) / rates.sum(axis=0)).max())  # all chunks through all links into a rank
    best, best_s, other = first, first.busiest_s(rates), first
    for number in range(tries):
        if best_s <= least_s * NEAR:
            break
        busy = np.divide(other.chunks, rates, out=np.zeros_like(rates), where=linked) / other.busiest_s(rates)
        lengths = lengths * np.exp(LENGTHENING * busy)
        again = _breadth_first(rates, lengths, apart=APART if number else 0.0)
        if again is None:
            break
        other = again
        mixed = best.chunks + (other.chunks - best.chunks) * SHARES[:, None, None]
        times_s = np.max(mixed[:, linked] / rates[linked], axis=1)
        share = int(times_s.argmin())
        if share:
            best = ChunkLoads(chunks=mixed[share], hops=max(best.hops, other.hops))
            best_s = float(times_s[share])
    return (first,) if best_s * NEAR > first.busiest_s(rates) else (first, best)


def _breadth_first(rates: np.ndarray, lengths: np.ndarray, *, apart: float = 0.0) -> ChunkLoads | None:
    """Return broadcasts that go away from their source, balanced at receivers; None if a rank is not reached.

    Parameters
    ----------
    rates : numpy.ndarray
        Rate of the link from each rank to each other, 0 where there is none, shape [n, n].
    lengths : numpy.ndarray
        Length of each link, shape [n, n]; dimensionless.
    apart : float
        As `APART`.
    """
    size = len(rates)
    away = scipy.sparse.csgraph.dijkstra(scipy.sparse.csr_array(lengths))
    if np.isinf(away).any():
        return None
    ranks = np.arange(size)
    away += apart * lengths[lengths > 0.0].min() * (np.outer(ranks + 1, ranks + 1) * GOLDEN % 1.0)
    away[ranks, ranks] = 0.0
    tails, into = _arrivals(rates)
    most = tails.shape[1]
    nearer_vwi = (away[:, tails] < away[:, :, None] * (1.0 - _SAME)) & (into > 0.0)
    kinds = [
        np.unique(np.packbits(nearer_vi, axis=1), axis=0, return_inverse=True)
        for nearer_vi in nearer_vwi.swapaxes(0, 1)
    ]
    kind_wv = np.array([kind.ravel() for _, kind in kinds])  # chunks with the same choice of links are alike
    count = int(kind_wv.max()) + 1
    usable_wki = np.zeros((size, count, most), dtype=bool)
    for rank, (bits, _) in enumerate(kinds):
        usable_wki[rank, : len(bits)] = np.unpackbits(bits, axis=1, count=most)
    amount_wk = np.zeros((size, count))
    np.add.at(amount_wk, (np.arange(size)[:, None], kind_wv), 1.0)
    divided_wki = _levelled(amount_wk, usable_wki, into)
    chunks = np.zeros((size, size))
    np.add.at(chunks, (tails, np.arange(size)[:, None]), divided_wki.sum(axis=1))
    used_vwi = (divided_wki > _SAME)[np.arange(size), kind_wv.T]
    return ChunkLoads(chunks=chunks, hops=int(_hops(used_vwi, tails).max()))


def _arrivals(rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the links into each rank begin, and their rates, shape [n, most]; padding has rate 0."""
    most = int((rates > 0.0).sum(axis=0).max())
    tails = np.argsort(rates <= 0.0, axis=0, kind="stable")[:most].T
    return tails, np.take_along_axis(rates.T, tails, axis=1)


def _levelled(amount_wk: np.ndarray, usable_wki: np.ndarray, into_wi: np.ndarray) -> np.ndarray:
    """Return how receivers divide chunks over the links into them, shape [w, k, i].

    Parameters
    ----------
    amount_wk : numpy.ndarray
        Chunks of each kind k at each receiver w.
    usable_wki : numpy.ndarray
        Whether chunks of a kind may come over link i.
    into_wi : numpy.ndarray
        Rate of each link into a receiver.

    Notes
    -----
    Each kind in turn is poured like water over its links, of width `into_wi`, on top of the others. That
    lowers the sum of squared loads over rates in every turn, whose minimum has the least greatest time, too.
    """
    size, count, most = usable_wki.shape
    divided = np.zeros((size, count, most))
    load = np.zeros((size, most))
    every = np.arange(size)
    for kind in [*range(count)] * SWEEPS:
        usable, amount = usable_wki[:, kind], amount_wk[:, kind]
        load -= divided[:, kind]
        height = np.divide(load, into_wi, out=np.full(load.shape, np.inf), where=usable)
        order = np.argsort(height, axis=1, kind="stable")
        sorted_height = np.take_along_axis(height, order, axis=1)
        known = np.isfinite(sorted_height)
        width = np.where(known, np.take_along_axis(into_wi, order, axis=1), 0.0)
        below = np.cumsum(np.where(known, sorted_height, 0.0) * width, axis=1)
        wide = np.cumsum(width, axis=1)
        level = np.divide(amount[:, None] + below, wide, out=np.full(wide.shape, np.inf), where=wide > 0.0)
        following = np.concatenate([sorted_height[:, 1:], np.full((size, 1), np.inf)], axis=1)
        reached = level[every, np.argmax(level <= following, axis=1)]
        depth = np.where(usable, np.where(usable.any(axis=1), reached, 0.0)[:, None] - height, 0.0)
        divided[:, kind] = np.maximum(depth, 0.0) * into_wi
        load += divided[:, kind]
    return divided


def _hops(used_vwi: np.ndarray, tails_wi: np.ndarray) -> np.ndarray:
    """Return the links on the longest way of a part of chunk v to each receiver w, shape [v, w].

    Parameters
    ----------
    used_vwi : numpy.ndarray
        Whether a part of chunk v comes to receiver w over its link i.
    tails_wi : numpy.ndarray
        Rank at which link i into w begins.
    """
    hops_vw = np.zeros(used_vwi.shape[:2], dtype=np.int64)
    while True:
        after = np.where(used_vwi, hops_vw[:, tails_wi] + 1, 0).max(axis=2)
        if np.array_equal(after, hops_vw):
            return hops_vw
        hops_vw = after


def exchange_loads(rates: np.ndarray) -> ChunkLoads | None:
    """Return the loads of an all-to-all whose messages, a chunk each, are led where links are least busy.

    Parameters
    ----------
    rates : numpy.ndarray
        Rate of the link from each rank to each other, 0 where there is none, shape [n, n].

    Returns
    -------
    ChunkLoads or None
        None if some rank does not reach another, or the group is larger than `MOST_CHOICES` allow.

    Notes
    -----
    Messages first take all shortest ways in equal shares. Then, again and again, links are as long as they
    are busy, to a power that grows, and a share of all messages goes over to the ways that are shortest now:
    flow deviation. Distances over such lengths bound the time of any routing from below, since messages times
    distances are at most the sum over links of time, rate and length; the search ends near that bound.
    """
    relative, size, choices = _relative(rates)
    if not 0 < choices <= MOST_CHOICES:
        return None
    return _exchange_loads(relative, size, min(DEVIATIONS, MOST_TRIED // choices))


@lru_cache(maxsize=256)
def _exchange_loads(relative: bytes, size: int, tries: int) -> ChunkLoads | None:
    """Return `exchange_loads` of rates over the greatest, the bytes of an array [size, size]."""
    rates = np.frombuffer(relative).reshape(size, size)
    linked = rates > 0.0
    inverse = np.divide(1.0, rates, out=np.zeros_like(rates), where=linked)
    found = _over_shortest(rates, inverse)
    if found is None:
        return None
    chunks, hops, least_s = found[0].chunks, found[0].hops, found[1]
    for number in range(tries):
        time_s = chunks * inverse
        worst_s = time_s.max()
        if worst_s <= least_s * NEAR:
            break
        power = min(FIRST_POWER + number, LAST_POWER)
        weight = np.maximum(time_s / worst_s, IDLE) ** power + SHORTEST
        lengths = np.where(linked, weight * inverse, 0.0)
        again = _over_shortest(rates, lengths)
        if again is None:
            break
        other, least_s = again[0].chunks, max(least_s, again[1])
        change = (other * inverse - time_s)[linked] / worst_s
        norms = ((time_s[linked] / worst_s + change * MOVED[:, None]) ** (power + 1.0)).sum(axis=1)
        share = float(MOVED[norms.argmin()])
        chunks = chunks + (other - chunks) * share
        hops = max(hops, again[0].hops) if share else hops
    return ChunkLoads(chunks=chunks, hops=hops)


def _over_shortest(rates: np.ndarray, lengths: np.ndarray) -> tuple[ChunkLoads, float] | None:
    """Return an all-to-all over all shortest ways in equal shares, and a time in s that no routing beats.

    Parameters
    ----------
    rates, lengths : numpy.ndarray
        Rate and length of the link from each rank to each other, 0 where there is none, shape [n, n].
    """
    size = len(rates)
    away = scipy.sparse.csgraph.dijkstra(scipy.sparse.csr_array(lengths))
    if np.isinf(away).any():
        return None
    tails, into = _arrivals(rates)
    last = np.where(into > 0.0, np.take_along_axis(lengths.T, tails, axis=1), np.inf)
    used_vwi = away[:, tails] + last <= away[:, :, None] * (1.0 + _SAME)
    used_vwi[np.arange(size), np.arange(size)] = False
    hops = _hops(used_vwi, tails)
    share_vwi = used_vwi / np.maximum(used_vwi.sum(axis=2, keepdims=True), 1)
    passing = np.ones((size, size))  # chunks of source v that reach w, its own and those to pass on
    for hop in range(int(hops.max()), 1, -1):
        source, rank = np.nonzero(hops == hop)
        onwards = share_vwi[source, rank] * passing[source, rank][:, None]
        np.add.at(passing, (source[:, None], tails[rank]), onwards)
    chunks = np.zeros((size, size))
    np.add.at(chunks, (tails, np.arange(size)[:, None]), np.einsum("vw,vwi->wi", passing, share_vwi))
    bound_s = float(away.sum() / (rates * lengths).sum())
    return ChunkLoads(chunks=chunks, hops=int(hops.max())), bound_s


def broadcast_rounds(
    kind: CollectiveKind, groups: np.ndarray, payload_bytes: float, axis: str, rates: Sequence[np.ndarray]
) -> list[tuple[Round, ...]]:
    """Return the ways of an all-reduce, reduce-scatter or all-gather by broadcasts of all ranks together.

    Parameters
    ----------
    kind : CollectiveKind
        What is done.
    groups : numpy.ndarray
        Endpoints, shape [groups, n].
    payload_bytes : float
        Bytes per rank before the collective.
    axis : str
        Axis of parallelism, passed on to the flows.
    rates : sequence of numpy.ndarray
        Rate of the link from each member of a group to each other, shape [n, n], for each group.

    Notes
    -----
    An all-gather is a broadcast from every rank; a reduce-scatter is one over the reversed links backwards,
    with sums where it branches. Pieces of chunks follow each other closely, as in `chain_rounds`, so that all
    links work all the time and the last piece waits for the hops of the longest way besides.
    """
    parts = (kind,) if kind in HALVES else (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER)
    backwards = [part is CollectiveKind.REDUCE_SCATTER for part in parts]
    found = [[broadcast_ways(links.T if back else links) for links in rates] for back in backwards]
    if not all(ways for part in found for ways in part):
        return []
    chunk_bytes = vector_bytes(kind, payload_bytes, groups.shape[1]) / groups.shape[1]
    several = any(len(ways) > 1 for part in found for ways in part)
    return [
        tuple(
            _round(kind, groups, chunk_bytes, axis, [ways[: place + 1][-1] for ways in part], back=back)
            for part, back in zip(found, backwards, strict=True)
        )
        for place in range(1 + several)
    ]


def exchange_rounds(
    groups: np.ndarray, payload_bytes: float, axis: str, rates: Sequence[np.ndarray]
) -> tuple[Round, ...]:
    """Return an even all-to-all that ranks forward over the links between them; none if it cannot be.

    Parameters
    ----------
    groups, payload_bytes, axis, rates
        As in `broadcast_rounds`.
    """
    loads = [found for found in map(exchange_loads, rates) if found is not None]
    if len(loads) < len(groups):
        return ()
    chunk_bytes = payload_bytes / groups.shape[1]
    return (_round(CollectiveKind.ALL_TO_ALL, groups, chunk_bytes, axis, loads),)


def _round(
    kind: CollectiveKind,
    groups: np.ndarray,
    chunk_bytes: float,
    axis: str,
    loads: Sequence[ChunkLoads],
    *,
    back: bool = False,
) -> Round:
    """Return the flows of all groups over their links, with the loads of each group, backwards if asked."""
    hops = max(each.hops for each in loads)
    linked = [np.nonzero(each.chunks) for each in loads]
    tails, heads = (
        np.concatenate([group[used[side]] for group, used in zip(groups, linked, strict=True)])
        for side in (0, 1)
    )
    flows = Flows(
        sources=heads if back else tails,
        destinations=tails if back else heads,
        size_bytes=chunk_bytes / hops,
        axis=axis,
        kind=kind,
        weights=np.concatenate([each.chunks[used] for each, used in zip(loads, linked, strict=True)]),
    )
    return Round(flows=flows, count=hops)
