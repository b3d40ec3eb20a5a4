"""Collectives as rounds of flows between endpoints.

An algorithm on n ranks is a `schedule` of steps, each with the chunks of the vector that go from rank to
rank; tests replay it on data. `rounds` applies it to all groups of a class at once and merges steps that load
the same links. Other algorithms are built from rounds: in two levels (inside nodes and between them), with
sums in switches, with parameter servers, on rings along all axes of a torus or at several strides, and
all-to-alls in two levels, in turns over few circuits, or forwarded by other nodes.

References
----------
Patarasuk and Yuan, J. Parallel Distrib. Comput. 69 (2009) 117: ring. Thakur, Rabenseifner and Gropp,
IJHPCA 19 (2005) 49: recursive halving and doubling, binomial trees. Jain and Sabharwal, "Optimal bucket
algorithms for large MPI collectives on torus interconnects", ICS 2010.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache, partial

import numpy as np
import scipy

from simulator.errors import WorkloadError
from simulator.interfaces import Flows
from simulator.operators import CollectiveKind, Skew, Spread


class Algorithm(StrEnum):
    """Algorithm of a collective."""

    RING = "ring"
    HALVING_DOUBLING = "halving_doubling"
    TREE = "tree"
    DIRECT = "direct"
    HIERARCHICAL = "hierarchical"
    IN_NETWORK = "in_network"
    IN_SWITCHES = "in_switches"
    HIERARCHICAL_IN_NETWORK = "hierarchical_in_network"
    HIERARCHICAL_IN_SWITCHES = "hierarchical_in_switches"
    HIERARCHICAL_IN_BOTH = "hierarchical_in_switches_and_nodes"
    STRIDED = "strided_rings"
    HIERARCHICAL_STRIDED = "hierarchical_strided_rings"
    BREADTH_FIRST = "breadth_first"
    BALANCED = "balanced_breadth_first"
    SPREAD = "spread_over_links"


HALVES = frozenset({CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER})
"""Collectives that are half of an all-reduce."""
SUMS = HALVES | {CollectiveKind.ALL_REDUCE}
"""All-reduce and its halves; they may go around rings, along all axes of a torus, in two levels, and through
switches that add."""
ROOTED = frozenset({CollectiveKind.BROADCAST, CollectiveKind.REDUCE})
"""Collectives that start or end at one rank."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Transfers within a group that happen together, and are repeated with other chunks."""

    sources: np.ndarray
    """Positions in the group that send, shape [T]."""
    destinations: np.ndarray
    """Positions that receive, shape [T]."""
    carried: int
    """Number of chunks that each transfer carries."""
    chunks_at: Callable[[int], np.ndarray]
    """Gives the chunks (0 to n - 1) of each transfer in a repetition, from 0, shape [T, carried]; those of
    all repetitions would be n^2 numbers on a ring."""
    reduces: bool
    """Whether the receiver adds (reduction) or stores."""
    rings: np.ndarray | None = None
    """Positions around which the transfers go, each row a ring, shape [R, m]; None if they are pairs."""
    times: int = 1
    """Repetitions, one after the other."""

    @property
    def chunks(self) -> np.ndarray:
        """Chunks that each transfer carries in the first repetition, shape [T, carried]."""
        return self.chunks_at(0)

    def one_by_one(self) -> list[Step]:
        """Return its repetitions as steps of their own."""
        return [
            replace(self, times=1, chunks_at=partial(self._chunks_behind, time)) for time in range(self.times)
        ]

    def _chunks_behind(self, time: int, more: int) -> np.ndarray:
        return self.chunks_at(time + more)

    def moves_like(self, other: Step) -> bool:
        """Return whether another step carries as many chunks between the same positions."""
        return self.carried == other.carried and all(
            one is another or np.array_equal(one, another)
            for one, another in ((self.sources, other.sources), (self.destinations, other.destinations))
        )


@dataclass(frozen=True, kw_only=True)
class Round:
    """Flows that start together, repeated one after the other."""

    flows: Flows
    """Transfers of all groups; `size_bytes` is that of one repetition."""
    count: int
    """Repetitions."""
    in_turns: bool = False
    """Whether it is one of the turns of an exchange, for which circuits move."""


def _constant(chunks: np.ndarray) -> Callable[[int], np.ndarray]:
    return lambda _: chunks


def _parts_of(kind: CollectiveKind, scatter: list[Step], gather: list[Step]) -> list[Step]:
    """Return the steps of a half of an all-reduce, or both one after the other for a whole one."""
    return {CollectiveKind.REDUCE_SCATTER: scatter, CollectiveKind.ALL_GATHER: gather}.get(
        kind, scatter + gather
    )


def all_pairs(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sources and destinations of all ordered pairs of n ranks, shape [n (n - 1)] each."""
    sources = np.repeat(np.arange(n), n - 1)
    return sources, (sources + np.tile(np.arange(1, n), n)) % n


def pair_flows(
    groups: np.ndarray, size_bytes: float, axis: str, matrix: np.ndarray, pattern: int = 0
) -> Flows:
    """Return flows from every member of each group to every other.

    Parameters
    ----------
    groups : numpy.ndarray
        Endpoints, shape [groups, n].
    size_bytes : float
        Bytes of a flow of weight 1.
    axis : str
        Axis of parallelism, passed on to the flows.
    matrix : numpy.ndarray
        Weight of the flow from each member to each other, shape [n, n]; dimensionless.
    pattern : int
        Pattern of unevenness, passed on to the flows.
    """
    sources, destinations = all_pairs(groups.shape[1])
    return Flows(
        sources=groups[:, sources].ravel(),
        destinations=groups[:, destinations].ravel(),
        size_bytes=size_bytes,
        axis=axis,
        kind=CollectiveKind.ALL_TO_ALL,
        weights=np.tile(matrix[sources, destinations], len(groups)),
        pattern=pattern,
    )


def _ring_steps(n: int, first: int, *, reduces: bool) -> Step:
    """Return n - 1 steps around a ring, as one: in step t rank i passes chunk first + i - t to rank i + 1."""
    ranks = np.arange(n)
    return Step(
        sources=ranks,
        destinations=(ranks + 1) % n,
        carried=1,
        chunks_at=lambda time: ((ranks + first - time) % n)[:, None],
        reduces=reduces,
        rings=ranks[None, :],
        times=n - 1,
    )


def _reversed_as_sums(steps: list[Step]) -> list[Step]:
    """Return the reduction that reverses a broadcast: every transfer the other way, the last one first."""
    return [
        replace(step, sources=step.destinations, destinations=step.sources, reduces=True, rings=None)
        for step in reversed(steps)
    ]


def _ring(kind: CollectiveKind, n: int) -> list[Step]:
    return _parts_of(kind, [_ring_steps(n, -1, reduces=True)], [_ring_steps(n, 0, reduces=False)])


def _halving_doubling(kind: CollectiveKind, n: int) -> list[Step]:
    """Return recursive halving, and doubling on the way back, of n ranks, a power of two."""
    ranks = np.arange(n)
    scatter: list[Step] = []
    gather: list[Step] = []
    distance = n // 2
    while distance >= 1:
        peer = ranks ^ distance
        lower = ranks[ranks < peer]
        rings = np.stack([lower, lower ^ distance], axis=1)
        for steps, sent, reduces in ((scatter, True, True), (gather, False, False)):
            steps.append(
                Step(
                    sources=ranks,
                    destinations=peer,
                    carried=distance,
                    chunks_at=partial(_half_blocks, n, distance, sent),
                    reduces=reduces,
                    rings=rings,
                )
            )
        distance //= 2
    return _parts_of(kind, scatter, gather[::-1])


def _half_blocks(n: int, distance: int, sent: bool, _time: int) -> np.ndarray:
    """Return the chunks that each rank sends when blocks are halved, shape [n, distance].

    A block is 2 `distance` chunks. In a reduce-scatter (`sent`) a rank sends the half of its block that does
    not hold its own chunk; in an all-gather it sends the half that does.
    """
    ranks = np.arange(n)
    block = 2 * distance
    start = (ranks // block) * block
    other_half = np.where(ranks & distance, start, start + distance)
    begin = other_half if sent else (ranks // distance) * distance
    return np.asarray(begin[:, None] + np.arange(distance)[None, :])


def _tree(kind: CollectiveKind, n: int) -> list[Step]:
    """Return a binomial tree to and from position 0, with the whole vector at each step."""
    spread = []
    distance = 1
    while distance < n:
        senders = np.arange(min(distance, n - distance))
        everything = _constant(np.broadcast_to(np.arange(n), (senders.size, n)))
        step = Step(
            sources=senders, destinations=senders + distance, carried=n, chunks_at=everything, reduces=False
        )
        spread.append(step)
        distance *= 2
    if kind is CollectiveKind.BROADCAST:
        return spread
    if kind is CollectiveKind.REDUCE:
        return _reversed_as_sums(spread)
    return _reversed_as_sums(spread) + spread


def _direct(kind: CollectiveKind, n: int) -> list[Step]:
    """Return the direct exchange of every rank with every other: chunks go to their owner, and sums back."""
    sources, destinations = all_pairs(n)
    rings = np.arange(n)[None, :] if n == 2 else None
    to_owner = Step(
        sources=sources,
        destinations=destinations,
        carried=1,
        chunks_at=_constant(destinations[:, None]),
        reduces=kind is not CollectiveKind.ALL_TO_ALL,
        rings=rings,
    )
    from_owner = replace(to_owner, chunks_at=_constant(sources[:, None]), reduces=False)
    if kind is CollectiveKind.ALL_TO_ALL:
        return [to_owner]
    return _parts_of(kind, [to_owner], [from_owner])


_BUILDERS = {
    Algorithm.RING: (_ring, SUMS),
    Algorithm.HALVING_DOUBLING: (_halving_doubling, SUMS),
    Algorithm.TREE: (_tree, {CollectiveKind.ALL_REDUCE} | ROOTED),
    Algorithm.DIRECT: (_direct, SUMS | {CollectiveKind.ALL_TO_ALL}),
}


def algorithms(kind: CollectiveKind, n: int) -> tuple[Algorithm, ...]:
    """Return the algorithms that can carry out a collective on n ranks over switches that do not add.

    Algorithms in two levels or in switches are not among them, for they need nodes, or switches that add.
    """
    return ((Algorithm.RING,) if kind in ROOTED else ()) + _with_steps(kind, n)


def _with_steps(kind: CollectiveKind, n: int) -> tuple[Algorithm, ...]:
    """Return the algorithms of a collective that have a schedule; rings have none for `ROOTED` ones."""
    return tuple(
        algorithm
        for algorithm, (_, kinds) in _BUILDERS.items()
        if kind in kinds and (algorithm is not Algorithm.HALVING_DOUBLING or n & (n - 1) == 0)
    )


def schedule(kind: CollectiveKind, algorithm: Algorithm, n: int) -> tuple[Step, ...]:
    """Return the steps of an algorithm on one group.

    Parameters
    ----------
    kind : CollectiveKind
        Kind of collective; not SEND, and along rings nothing `ROOTED`, which has `chain_rounds`.
    algorithm : Algorithm
        One of `algorithms(kind, n)`, or in-network: every rank sends the owner of a chunk its part, which the
        switch adds to those of others on the way, and the switch copies the sums that owners send.
    n : int
        Ranks in the group. The vector is cut into n chunks; chunk i belongs to position i. Broadcasts start
        and reductions end at position 0; by symmetry any other root takes as long.

    Raises
    ------
    WorkloadError
        If the algorithm cannot do this.
    """
    return tuple(one for step in _steps(kind, algorithm, n) for one in step.one_by_one())


@lru_cache(maxsize=512)
def _steps(kind: CollectiveKind, algorithm: Algorithm, n: int) -> tuple[Step, ...]:
    """Return the steps of an algorithm, as `schedule` does, with repeated steps as one."""
    if n == 1:
        return ()
    if algorithm == Algorithm.IN_NETWORK and kind in SUMS:
        return tuple(_direct(kind, n))
    if algorithm not in _with_steps(kind, n):
        names = ", ".join(_with_steps(kind, n))
        msg = f"{algorithm} cannot do {kind} on {n} ranks; known: {names}"
        raise WorkloadError(msg)
    return tuple(_BUILDERS[algorithm][0](kind, n))


def vector_bytes(kind: CollectiveKind, payload_bytes: float, n: int) -> float:
    """Return the bytes of the whole vector of a collective, given a rank's payload before it."""
    return payload_bytes * n if kind is CollectiveKind.ALL_GATHER else payload_bytes


def rounds(
    kind: CollectiveKind, algorithm: Algorithm, groups: np.ndarray, payload_bytes: float, axis: str
) -> tuple[Round, ...]:
    """Return the rounds of flows in which all groups carry out a collective.

    Parameters
    ----------
    kind : CollectiveKind
        Kind of collective; not SEND.
    algorithm : Algorithm
        Algorithm on one level.
    groups : numpy.ndarray
        Endpoints, shape [groups, n].
    payload_bytes : float
        Bytes per rank before the collective.
    axis : str
        Axis of parallelism, passed on to the flows.
    """
    if kind in ROOTED and algorithm == Algorithm.RING:
        return chain_rounds(kind, groups, payload_bytes, axis)
    n = groups.shape[1]
    chunk_bytes = vector_bytes(kind, payload_bytes, n) / n
    merged: list[Round] = []
    previous: Step | None = None
    for step in _steps(kind, algorithm, n):
        if previous is not None and step.moves_like(previous):
            merged[-1] = Round(flows=merged[-1].flows, count=merged[-1].count + step.times)
        else:
            flows = Flows(
                sources=groups[:, step.sources].ravel(),
                destinations=groups[:, step.destinations].ravel(),
                size_bytes=chunk_bytes * step.carried,
                axis=axis,
                kind=kind,
                groups=None if step.rings is None else groups[:, step.rings].reshape(-1, step.rings.shape[1]),
            )
            merged.append(Round(flows=flows, count=step.times))
        previous = step
    return tuple(merged)


def chain_rounds(
    kind: CollectiveKind, groups: np.ndarray, payload_bytes: float, axis: str
) -> tuple[Round, ...]:
    """Return a broadcast from the first of each group, or a reduction to it, along a chain of its members.

    Parameters
    ----------
    kind, groups, payload_bytes, axis
        As in `rounds`.

    Notes
    -----
    Chunks follow each other closely, so that every link of the chain passes the vector once, all at the same
    time, and the last member waits for n - 1 hops besides. That chunks are not arbitrarily short is counted
    in the time of a hop of a library's protocol. Both go along the ring, for which a fabric has circuits: a
    broadcast 0, 1, ..., n - 1 and a reduction 1, ..., n - 1, 0.
    """
    hops = groups.shape[1] - 1
    if not hops:
        return ()
    nexts = np.roll(groups, -1, axis=1)
    passing = slice(1, None) if kind is CollectiveKind.REDUCE else slice(None, -1)
    flows = Flows(
        sources=groups[:, passing].ravel(),
        destinations=nexts[:, passing].ravel(),
        size_bytes=payload_bytes / hops,
        axis=axis,
        kind=kind,
    )
    return (Round(flows=flows, count=hops),)


def hierarchical_rounds(
    kind: CollectiveKind,
    groups: np.ndarray,
    payload_bytes: float,
    axis: str,
    local: int,
    *,
    switches_add: bool = False,
    across_by: Callable[[CollectiveKind, np.ndarray, float, str], tuple[Round, ...]] | None = None,
) -> tuple[Round, ...]:
    """Return an all-reduce, reduce-scatter or all-gather in two levels.

    Reduce-scatter among `local` neighbours, the collective among those that hold the same part, all-gather
    among neighbours: RS_local(m) + AR_across(m/g) + AG_local(m).

    Parameters
    ----------
    kind, groups, payload_bytes, axis
        As in `rounds`.
    local : int
        Ranks of a group that stand in one node; must divide the group's size.
    switches_add : bool
        Whether the switches between nodes make the sums and copies of the level between.
    across_by : callable, optional
        Gives the rounds of the level between, by default a ring; takes kind, groups, payload in bytes, axis.

    Raises
    ------
    WorkloadError
        If `local` does not divide the group or the collective has no two-level form.
    """
    n = groups.shape[1]
    if n % local or kind not in SUMS:
        msg = f"hierarchical {kind} needs neighbours ({local}) that divide the group ({n})"
        raise WorkloadError(msg)
    near = groups.reshape(-1, local)
    far = same_places(groups, local)
    vector = vector_bytes(kind, payload_bytes, n)
    scatter = rounds(CollectiveKind.REDUCE_SCATTER, Algorithm.RING, near, vector, axis)
    gather = rounds(CollectiveKind.ALL_GATHER, Algorithm.RING, near, vector / local, axis)
    across_payload = vector / n if kind is CollectiveKind.ALL_GATHER else vector / local
    if switches_add:
        across = in_network_rounds(kind, far, across_payload, axis)
    elif across_by is not None:
        across = across_by(kind, far, across_payload, axis)
    else:
        across = rounds(kind, Algorithm.RING, far, across_payload, axis)
    before = () if kind is CollectiveKind.ALL_GATHER else scatter
    return before + across + (() if kind is CollectiveKind.REDUCE_SCATTER else gather)


def same_places(groups: np.ndarray, local: int) -> np.ndarray:
    """Return the groups of ranks at the same place in the nodes of a group, shape [groups * local, nodes]."""
    nodes = groups.shape[1] // local
    return groups.reshape(-1, nodes, local).transpose(0, 2, 1).reshape(-1, nodes)


def in_network_rounds(
    kind: CollectiveKind, groups: np.ndarray, payload_bytes: float, axis: str
) -> tuple[Round, ...]:
    """Return an all-reduce, reduce-scatter or all-gather with sums and copies made by switches.

    Parameters
    ----------
    kind, groups, payload_bytes, axis
        As in `rounds`.

    Returns
    -------
    tuple of Round
        One round in which every port sends and receives its bytes, as a flow to the next rank of the group.

    Raises
    ------
    WorkloadError
        If the collective has no in-network form.

    Notes
    -----
    A rank sends all n chunks of its vector to the switch, its own too, and receives the sum of its chunk;
    then it sends that chunk once and receives all n. Both halves overlap, so each way of a port carries
    (n+1)/n of the vector for an all-reduce, against 2 (n-1)/n without adders, and the whole vector for half
    of it (Klenk et al., "An in-network architecture for accelerating shared-memory multiprocessor
    collectives", ISCA 2020).
    """
    n = groups.shape[1]
    if kind not in SUMS:
        msg = f"switches cannot add for {kind}; they can for {', '.join(sorted(SUMS))}"
        raise WorkloadError(msg)
    share = (n + 1) / n if kind is CollectiveKind.ALL_REDUCE else 1.0
    size_bytes = share * vector_bytes(kind, payload_bytes, n)
    flows = Flows.around(groups, size_bytes=size_bytes, axis=axis, kind=kind)
    return (Round(flows=flows, count=1),) if n > 1 else ()


SERVED = frozenset({CollectiveKind.PUSH, CollectiveKind.PULL})
"""Collectives to parameter servers or from them."""


def server_places(workers: int, servers: int) -> np.ndarray:
    """Return the places of a group's servers among its workers, evenly apart, shape [servers]."""
    return np.arange(servers) * workers // servers


def server_rounds(
    kind: CollectiveKind, groups: np.ndarray, payload_bytes: float, axis: str, *, servers: int
) -> tuple[Round, ...]:
    """Return the one round of flows in which every worker pushes to, or pulls from, every server.

    Parameters
    ----------
    kind : CollectiveKind
        PUSH or PULL.
    groups : numpy.ndarray
        Endpoints of the workers, shape [groups, workers].
    payload_bytes : float
        Bytes of the whole vector, which every worker sends or receives.
    axis : str
        Axis of parallelism, passed on to the flows.
    servers : int
        Number of workers of each group that hold an equal share of the vector.

    Returns
    -------
    tuple of Round
        One round, without the exchange of a server with the worker on its own rank. Empty for one worker.

    Raises
    ------
    WorkloadError
        If there are no servers, or more than workers.
    """
    workers = groups.shape[1]
    if not 1 <= servers <= workers:
        msg = f"servers ({servers}) must be from 1 to the workers of a group ({workers}), on which they stand"
        raise WorkloadError(msg)
    if workers == 1:
        return ()
    worker, server = np.meshgrid(np.arange(workers), server_places(workers, servers), indexing="ij")
    apart = worker != server
    senders, receivers = worker[apart], server[apart]
    if kind is CollectiveKind.PULL:
        senders, receivers = receivers, senders
    flows = Flows(
        sources=groups[:, senders].ravel(),
        destinations=groups[:, receivers].ravel(),
        size_bytes=payload_bytes / servers,
        axis=axis,
        kind=kind,
    )
    return (Round(flows=flows, count=1),)


def strided_rounds(
    kind: CollectiveKind, groups: np.ndarray, payload_bytes: float, axis: str, strides: tuple[int, ...]
) -> tuple[Round, ...]:
    """Return an all-reduce, reduce-scatter or all-gather on several rings at once.

    Parameters
    ----------
    kind, groups, payload_bytes, axis
        As in `rounds`.
    strides : tuple of int
        Steps of the rings through a group, each coprime to its size n; the vector is cut into as many equal
        parts, and each goes around its own ring.

    Raises
    ------
    WorkloadError
        If the collective has no ring, or a stride visits only some of the group.

    Notes
    -----
    A ring may visit the members in any order, and all orders ``i s mod n`` with s coprime to n use different
    links (Wang et al., "TopoOpt", NSDI 2023, section 4.3 and theorem 2).
    """
    n = groups.shape[1]
    coprime = all(math.gcd(stride, n) == 1 for stride in strides)
    if kind not in SUMS or not coprime or not strides:
        msg = f"{kind} on {n} ranks has no rings of strides {strides}; they must be coprime to {n}"
        raise WorkloadError(msg)
    if n == 1:
        return ()
    flows = Flows(
        sources=np.concatenate([groups.ravel()] * len(strides)),
        destinations=np.concatenate([np.roll(groups, -stride, axis=1).ravel() for stride in strides]),
        size_bytes=vector_bytes(kind, payload_bytes, n) / n / len(strides),
        axis=axis,
        kind=kind,
    )
    count = 2 * (n - 1) if kind is CollectiveKind.ALL_REDUCE else n - 1
    return (Round(flows=flows, count=count),)


BUCKET = "bucket"
"""Name of rings along all axes of a torus."""
SEGMENTS = (4, 16)
"""Numbers of segments of a vector that are tried beside one where axes differ; a choice: more save little,
and every segment pays the latency of its phases."""
_SAME = 1e-9
"""Relative difference within which two shares are one; dimensionless."""


def bucket_rounds(
    kind: CollectiveKind,
    groups: np.ndarray,
    payload_bytes: float,
    axis: str,
    grid: tuple[int, ...],
    *,
    segments: int = 1,
) -> tuple[Round, ...]:
    """Return an all-reduce, reduce-scatter or all-gather over boxes of a torus.

    Parameters
    ----------
    kind, groups, payload_bytes, axis
        As in `rounds`.
    grid : tuple of int
        Shape of a group's box, its last axis fastest.
    segments : int
        Pieces of the vector that follow each other through the phases; dimensionless.

    Raises
    ------
    WorkloadError
        If the group does not fill the box, or the collective has no such form.

    Notes
    -----
    The vector is cut into a part for every order of the axes and both directions. A part is reduced and
    scattered around its ring on the first axis of its order, what is left of it on the next, and so on, so
    that every link works in every phase; an all-gather is the way back. On a cube of n nodes with D axes all
    phases together move (n-1)/n m / (2 D) bytes over each link, which is the bound of 2 D ports; parts of
    other boxes are of unequal size, chosen by a linear programme so that the phases take the least time
    (`order_shares`). Axes that cannot be balanced within one phase are balanced over several by segments: one
    segment is in its second phase while the next is in its first.

    Axes that move less in a phase than others stop early: a phase is several rounds, the first with all axes,
    the next with those that have more to move, and so on. The first round has as many repetitions as the
    longest ring has steps; each of the others pays the latency once more.
    """
    n = groups.shape[1]
    if kind not in SUMS or math.prod(grid) != n:
        msg = f"rings on all axes cannot do {kind} on {n} ranks in a box of {grid}; take a ring"
        raise WorkloadError(msg)
    axes = tuple(size for size in grid if size > 1)
    vector = vector_bytes(kind, payload_bytes, n)
    boxes = groups.reshape(-1, *axes)
    steps = pipeline(axes, segments, both=kind is CollectiveKind.ALL_REDUCE)
    if kind is CollectiveKind.ALL_GATHER:
        steps = steps[::-1]
    return tuple(one for shares in steps for one in _phase_rounds(boxes, shares, vector, axis, kind))


def orders(axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the orders of axes that parts go through: all orders, or the cyclic ones if axes are alike."""
    k = len(axes)
    if len(set(axes)) == 1:
        return tuple(tuple((first + place) % k for place in range(k)) for first in range(k))
    return tuple(itertools.permutations(range(k)))


@lru_cache(maxsize=256)
def order_shares(axes: tuple[int, ...], segments: int = 1, *, both: bool = False) -> tuple[float, ...]:
    """Return the share of the vector that takes each of the `orders`, both directions together.

    Parameters
    ----------
    axes : tuple of int
        Nodes along each axis, at least two.
    segments : int
        Pieces that follow each other.
    both : bool
        Whether the vector is scattered and gathered again, and not only one of the two.

    Notes
    -----
    The shares minimise the sum over steps of the busiest axis' bytes. As a linear programme: variables are
    the share of each order and the bytes b of the busiest axis in each step; for every step and axis, the
    bytes of all shares are at most b; the shares add up to 1.
    """
    every = orders(axes)
    sent_OSA = np.array([_box_steps(_phase_shares(axes, order), segments, both=both) for order in every])
    count, steps, dims = sent_OSA.shape
    rows = np.zeros((steps * dims, count + steps))
    rows[:, :count] = sent_OSA.reshape(count, -1).T
    rows[np.arange(steps * dims), count + np.repeat(np.arange(steps), dims)] = -1.0
    found = scipy.optimize.linprog(
        c=np.concatenate([np.zeros(count), np.ones(steps)]),
        A_ub=rows,
        b_ub=np.zeros(steps * dims),
        A_eq=np.concatenate([np.ones(count), np.zeros(steps)])[None, :],
        b_eq=[1.0],
    )
    return tuple(float(share) for share in found.x[:count])


def _phase_shares(axes: tuple[int, ...], order: tuple[int, ...]) -> np.ndarray:
    """Return the share of a part that a node sends in each phase along each axis, shape [phases, axes].

    In each phase it sends all that it has but the piece that it keeps, an n-th on an axis of n nodes.
    """
    sent = np.zeros((len(order), len(axes)))
    left = 1.0
    for phase, place in enumerate(order):
        sent[phase, place] = left * (axes[place] - 1) / axes[place]
        left /= axes[place]
    return sent


def _box_steps(sent: np.ndarray, segments: int, *, both: bool) -> np.ndarray:
    """Return the share of the vector sent in each step when segments follow each other, shape [steps, axes].

    Parameters
    ----------
    sent : numpy.ndarray
        Share sent in each phase of a reduce-scatter, shape [phases, axes].
    segments, both
        As in `order_shares`.
    """
    path = np.concatenate([sent, sent[::-1]]) if both else sent
    found = np.zeros((len(path) + segments - 1, sent.shape[1]))
    for segment in range(segments):
        found[segment : segment + len(path)] += path / segments
    return found


@lru_cache(maxsize=256)
def pipeline(
    axes: tuple[int, ...], segments: int = 1, *, both: bool = False
) -> tuple[tuple[float, ...], ...]:
    """Return the share of the vector that a node sends along each axis, each direction, in each step.

    Parameters as in `order_shares`.
    """
    shares = order_shares(axes, segments, both=both)
    sent = sum(
        0.5 * share * _phase_shares(axes, order) for order, share in zip(orders(axes), shares, strict=True)
    )
    return tuple(tuple(row) for row in _box_steps(np.asarray(sent), segments, both=both).tolist())


def _phase_rounds(
    boxes: np.ndarray, shares: tuple[float, ...], vector_size: float, axis: str, kind: CollectiveKind
) -> list[Round]:
    """Return the rounds of one phase: all axes, then those that have more to send, until none has.

    Parameters
    ----------
    boxes : numpy.ndarray
        Endpoints, shape [boxes, *axes].
    shares : tuple of float
        Share of the vector that a node sends along each axis, each direction.
    vector_size : float
        Bytes of the vector.
    axis, kind
        Passed on to the flows.
    """
    sizes = boxes.shape[1:]
    found: list[Round] = []
    sent = 0.0
    for share in sorted(set(shares)):
        if share - sent <= share * _SAME:
            continue
        working = [place for place in range(len(sizes)) if shares[place] >= share * (1.0 - _SAME)]
        rest_bytes = (share - sent) * vector_size
        sent = share
        count = max(sizes[place] for place in working) - 1 if not found else 1
        sources, destinations = [], []
        for place in working:
            for step in (1, -1):
                sources.append(boxes.ravel())
                destinations.append(np.roll(boxes, -step, axis=place + 1).ravel())
        flows = Flows(
            sources=np.concatenate(sources),
            destinations=np.concatenate(destinations),
            size_bytes=rest_bytes / count,
            axis=axis,
            kind=kind,
        )
        found.append(Round(flows=flows, count=count))
    return found


IN_TURNS = "_in_turns"
"""Ending of the name of an all-to-all that circuits serve one part after the other."""
FORWARDED = "forwarded"
"""Name of an all-to-all that nodes forward over circuits that stand."""


def two_level_rounds(
    groups: np.ndarray,
    payload_bytes: float,
    axis: str,
    local: int,
    spread: Spread | None = None,
    *,
    skew: Skew | None = None,
) -> tuple[Round, ...]:
    """Return an all-to-all within nodes and between them, over all groups at once.

    Parameters
    ----------
    groups : numpy.ndarray
        Endpoints, shape [groups, n]; `local` neighbours stand in one node.
    payload_bytes : float
        Bytes per rank, an n-th for every member.
    axis : str
        Axis of parallelism, passed on to the flows.
    local : int
        Ranks of a group in one node; must divide the group's size.
    spread : Spread, optional
        If given, a token that goes to several ranks of a node is sent there once, and copied inside it.
    skew : Skew, optional
        Unevenness of the traffic; the number of copies for a node stays as without it.

    Raises
    ------
    WorkloadError
        If `local` does not divide the group.

    Notes
    -----
    Each rank first collects from its node all bytes for ranks at its own place in other nodes, then sends
    each of these one message: n/g - 1 messages leave a rank instead of n - g, with as many bytes (HetuMoE,
    arXiv:2203.14685; DeepSpeed-MoE, arXiv:2201.05596, section 5.2; Tutel, arXiv:2206.03382). With a spread
    tokens first cross to each node that they visit, once, and are handed to their experts' ranks there
    (DeepSeek-V3, arXiv:2412.19437, section 3.2.2); sums on the way back take the same rounds in reverse,
    hence the same time. The time of a library for each message beside its bytes is not modelled, so
    aggregation alone saves time where paths between places of different nodes are narrower.
    """
    n = groups.shape[1]
    if n % local:
        msg = f"an all-to-all in two levels needs neighbours ({local}) that divide the group ({n})"
        raise WorkloadError(msg)
    first = spread is not None
    crossing = _crossing_bytes(payload_bytes, n // local, spread)
    if skew is not None:
        inside = _uneven_round(
            groups, payload_bytes / local, axis, _matrix_within(skew, local, across_first=first), skew
        )
        share = crossing / (n // local)
        across = _uneven_round(groups, share, axis, _matrix_between(skew, local, across_first=first), skew)
    else:
        inside = _all_to_all_inside(groups, payload_bytes, axis, local)
        far = same_places(groups, local)
        across = rounds(CollectiveKind.ALL_TO_ALL, Algorithm.DIRECT, far, crossing, axis)
    return across + inside if first else inside + across


def _all_to_all_inside(groups: np.ndarray, payload_bytes: float, axis: str, local: int) -> tuple[Round, ...]:
    """Return an all-to-all of a payload among the neighbours in every node."""
    near = groups.reshape(-1, local)
    return rounds(CollectiveKind.ALL_TO_ALL, Algorithm.DIRECT, near, payload_bytes, axis)


def _crossing_bytes(payload_bytes: float, nodes: int, spread: Spread | None) -> float:
    """Return the bytes of a payload that a rank sends to all nodes, its own among them."""
    return payload_bytes if spread is None else payload_bytes / spread.copies * spread.nodes_visited(nodes)


def in_turns(parts: Iterable[Round], groups: np.ndarray, node_size: int, peers: int) -> tuple[Round, ...]:
    """Return an exchange in turns, in each of which no endpoint meets more nodes than it has circuits to.

    Parameters
    ----------
    parts : iterable of Round
        The exchange, over all groups at once.
    groups : numpy.ndarray
        Endpoints, shape [groups, n].
    node_size : int
        Endpoints of a node; traffic inside one needs no circuit and goes with the first round.
    peers : int
        Other nodes that an endpoint can send to at once.

    Notes
    -----
    All flows to the node d behind the sender's, for one d from 1 to k - 1, are a permutation of the k nodes
    of a group, and all k - 1 of them are the exchange: the Birkhoff-von Neumann decomposition of an even
    demand. A turn takes as many permutations as there are circuits. Distances d and k - d go in one turn,
    since the way back of d is k - d; uneven flows come back over the circuits that they go out on, so their
    turns are of even size. Turns are as equal as can be: seven distances with four circuits are four and
    three.
    """
    place = {
        int(endpoint): spot
        for group in groups
        for endpoint, spot in zip(group, np.unique(group // node_size, return_inverse=True)[1], strict=True)
    }
    nodes = max(place.values()) + 1
    return tuple(turn for part in parts for turn in _turns_of_round(part, place, nodes, peers))


def _turns_of_round(part: Round, place: dict[int, int], nodes: int, peers: int) -> Iterator[Round]:
    """Yield the turns of one round of an exchange.

    Parameters
    ----------
    part : Round
        The round.
    place : dict
        Place of each endpoint's node among the nodes of its group.
    nodes : int
        Nodes of a group.
    peers : int
        Other nodes that an endpoint can send to at once.
    """
    flows = part.flows
    sender, receiver = (
        np.array([place[end] for end in ends.tolist()]) for ends in (flows.sources, flows.destinations)
    )
    distance = (receiver - sender) % nodes
    most = peers if flows.weights is None else peers - peers % 2
    occurring = set(np.unique(distance).tolist()) - {0}
    both_ways = [one for near in range(1, nodes // 2 + 1) for one in dict.fromkeys((near, nodes - near))]
    distances = [one for one in both_ways if one in occurring]
    if len(distances) <= peers or not most:
        yield part
        return
    turns = -(-len(distances) // most)
    size = most if flows.weights is not None else -(-len(distances) // turns)
    for turn in range(turns):
        chosen = distances[turn * size : (turn + 1) * size] + ([0] if turn == 0 else [])
        yield Round(flows=flows.part(np.isin(distance, chosen)), count=part.count, in_turns=True)


def forwarded_rounds(
    groups: np.ndarray,
    payload_bytes: float,
    axis: str,
    local: int,
    *,
    peers: int,
    spread: Spread | None = None,
) -> tuple[Round, ...]:
    """Return an even all-to-all in two levels whose messages nodes forward over the circuits that they have.

    Parameters
    ----------
    groups : numpy.ndarray
        Endpoints, shape [groups, n]; `local` neighbours stand in one node.
    payload_bytes : float
        Bytes per rank, an n-th for every member.
    axis : str
        Axis of parallelism, passed on to the flows.
    local : int
        Ranks of a group in one node; must divide the group's size.
    peers : int
        Other nodes that an endpoint has circuits to at once.
    spread : Spread, optional
        As in `two_level_rounds`.

    Returns
    -------
    tuple of Round
        Empty if circuits to so few nodes do not lead to every node.

    Notes
    -----
    Every node has circuits to the nodes at the same distances, and every message takes the fewest circuits
    that lead to its destination, shared equally where there are several such ways. Messages are stored and
    forwarded: a hop begins when the one before has ended. Cards forward from their memory, on the rail of the
    destination.

    References
    ----------
    Wang et al., "TopoOpt", NSDI 2023, section 4.3: forwarding by hosts over circuits that stand.
    """
    nodes = groups.shape[1] // local
    distances = standing_distances(nodes, peers)
    if not distances:
        return ()
    far, message = same_places(groups, local), _crossing_bytes(payload_bytes, nodes, spread) / nodes
    inside = _all_to_all_inside(groups, payload_bytes, axis, local)
    across = tuple(
        Round(flows=_flows_at_distances(far, message, axis, distances, hop), count=1)
        for hop in hop_loads(nodes, distances)
    )
    return across + inside if spread is not None else inside + across


def _flows_at_distances(
    far: np.ndarray, size_bytes: float, axis: str, distances: tuple[int, ...], loads: np.ndarray
) -> Flows:
    """Return the flows of one hop: from every rank to the ranks at some distances.

    Parameters
    ----------
    far : numpy.ndarray
        Ranks at the same place of their nodes, shape [groups, nodes].
    size_bytes : float
        Bytes of a message.
    axis : str
        Axis of parallelism, passed on to the flows.
    distances : tuple of int
        Nodes by which the receiver follows the sender.
    loads : numpy.ndarray
        Messages at each distance, shape [distances].
    """
    used = [(distance, load) for distance, load in zip(distances, loads.tolist(), strict=True) if load > 0.0]
    return Flows(
        sources=np.tile(far.ravel(), len(used)),
        destinations=np.concatenate([np.roll(far, -distance, axis=1).ravel() for distance, _ in used]),
        size_bytes=size_bytes,
        axis=axis,
        kind=CollectiveKind.ALL_TO_ALL,
        weights=np.repeat([load for _, load in used], far.size),
    )


def hop_loads(nodes: int, distances: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Return the messages that cross a node's circuit at each distance, hop by hop.

    Parameters
    ----------
    nodes : int
        Nodes in a circle, each of which sends one message to every other.
    distances : tuple of int
        Distances, onwards from a node, of the nodes to which it has circuits.

    Returns
    -------
    tuple of numpy.ndarray
        One of shape [distances] for each hop; none if some node is not reached.

    Notes
    -----
    `messages` counts those of a node by the distance that is left to go; all nodes are alike. Those with most
    hops left go first, so that all messages with as many hops left move in the same hop.
    """
    hops = np.full(nodes, -1)  # fewest circuits that lead to each distance
    hops[0], reached = 0, [0]
    for start in reached:
        for distance in distances:
            end = (start + distance) % nodes
            if hops[end] < 0:
                hops[end] = hops[start] + 1
                reached.append(end)
    if (hops < 0).any():
        return ()
    messages, found = np.ones(nodes), []
    messages[0] = 0.0
    for hop in range(int(hops.max()), 0, -1):
        loads, after = np.zeros(len(distances)), messages.copy()
        for left in np.flatnonzero((hops == hop) & (messages > 0.0)).tolist():
            ways = [way for way, one in enumerate(distances) if hops[(left - one) % nodes] == hop - 1]
            for way in ways:
                loads[way] += messages[left] / len(ways)
                after[(left - distances[way]) % nodes] += messages[left] / len(ways)
            after[left] = 0.0
        messages = after
        found.append(loads)
    return tuple(found)


MOST_LAYOUTS = 3000
"""Most layouts of circuits of which all are tried; of more, only those of distances in powers; a choice."""


@cache
def standing_distances(nodes: int, peers: int) -> tuple[int, ...]:
    """Return the best distances of circuits between nodes in a circle for an all-to-all.

    Each circuit has one back. Of all such layouts the one is taken whose hops together take the least time.

    Returns
    -------
    tuple of int
        Empty if no layout of so few circuits reaches every node.
    """
    half = [*range(1, (nodes + 1) // 2)]
    pairs = min(peers // 2, len(half))
    if pairs < 1:
        return ()
    middle = [nodes // 2] if nodes % 2 == 0 and peers > 2 * pairs else []
    if math.comb(len(half), pairs) <= MOST_LAYOUTS:
        chosen: Iterable[tuple[int, ...]] = itertools.combinations(half, pairs)
    else:
        steps = [nodes ** (1.0 / count) for count in range(1, pairs + 2)] + [2.0, 3.0, 2.0 * pairs + 1.0]
        powers = [{min(half[-1], max(1, round(step**power))) for power in range(pairs)} for step in steps]
        chosen = [tuple(sorted(one)) for one in [*powers, set(half[:pairs])]]
    best: tuple[float, tuple[int, ...]] = (math.inf, ())
    for some in chosen:
        layout = tuple(sorted({*some, *middle, *(nodes - one for one in some)}))
        loads = hop_loads(nodes, layout)
        if loads:
            best = min(best, (sum(float(hop.max()) for hop in loads), layout))
    return best[1]


def _matrix_within(skew: Skew, local: int, *, across_first: bool) -> np.ndarray:
    """Return the traffic between members of a node, over the mean; NaN between nodes, shape [n, n].

    Tokens cross between nodes on the sender's place if they cross first, else on the receiver's.
    """
    n = len(skew.loads)
    matrix_apbq = skew.matrix().reshape(n // local, local, n // local, local)
    within_apq = matrix_apbq.mean(axis=0).transpose(1, 0, 2) if across_first else matrix_apbq.mean(axis=2)
    found = np.full(matrix_apbq.shape, np.nan)
    for node, entries in enumerate(within_apq):
        found[node, :, node, :] = entries
    return found.reshape(n, n)


def _matrix_between(skew: Skew, local: int, *, across_first: bool) -> np.ndarray:
    """Return the traffic between members at the same place of nodes, over the mean; NaN elsewhere, [n, n]."""
    n = len(skew.loads)
    matrix_apbq = skew.matrix().reshape(n // local, local, n // local, local)
    between_apb = matrix_apbq.mean(axis=3) if across_first else matrix_apbq.mean(axis=1).transpose(0, 2, 1)
    found = np.full(matrix_apbq.shape, np.nan)
    for place in range(local):
        found[:, place, :, place] = between_apb[:, place, :]
    return found.reshape(n, n)


def _uneven_round(
    groups: np.ndarray, size_bytes: float, axis: str, matrix: np.ndarray, skew: Skew
) -> tuple[Round, ...]:
    """Return a round of flows of `size_bytes` times the entries of a matrix [n, n], NaN being no flow."""
    flows = pair_flows(groups, size_bytes, axis, matrix, skew.pattern)
    some = flows.part(~np.isnan(flows.sizes_bytes))
    return (Round(flows=some, count=1),) if len(some.sources) else ()
