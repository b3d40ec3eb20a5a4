"""Collectives as rounds of flows: who sends which part to whom, and how often.

An algorithm is a schedule of steps on one group of n ranks; `rounds` lays it over all groups of a class
at once and merges steps that load the same links. Tests replay the schedules on data. Beside them: two
levels, sums in switches, parameter servers, rings on all axes of a torus and of several strides, all-to-alls
in two levels, in turns over few circuits, and by way of other nodes.

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


HALVES = frozenset({CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER})
"""Halves of an all-reduce."""
SUMS = HALVES | {CollectiveKind.ALL_REDUCE}
"""What goes around rings of any order, along all axes of a torus, in two levels, and through adders."""
ROOTED = frozenset({CollectiveKind.BROADCAST, CollectiveKind.REDUCE})
"""What starts or ends at one rank."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Transfers of one group that happen together, and again with other chunks."""

    sources: np.ndarray
    """Positions in the group that send, shape [T]."""
    destinations: np.ndarray
    """Positions that receive, shape [T]."""
    carried: int
    """Chunks that each transfer carries."""
    chunks_at: Callable[[int], np.ndarray]
    """Gives the chunks of a repetition, from 0, shape [T, carried]; all would take n^2 numbers on a ring."""
    reduces: bool
    """Whether the receiver adds (reduction) or stores."""
    rings: np.ndarray | None = None
    """Positions around which the transfers go, each row a ring, shape [R, m]; None if they are pairs."""
    times: int = 1
    """Repetitions, one after the other."""

    @property
    def chunks(self) -> np.ndarray:
        """Chunks, of the n, that each transfer carries the first time, shape [T, carried]."""
        return self.chunks_at(0)

    def one_by_one(self) -> list[Step]:
        """Return its repetitions."""
        return [
            replace(self, times=1, chunks_at=partial(self._chunks_behind, time)) for time in range(self.times)
        ]

    def _chunks_behind(self, time: int, more: int) -> np.ndarray:
        return self.chunks_at(time + more)

    def moves_like(self, other: Step) -> bool:
        """Return whether as much goes between the same positions as in another step."""
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


def _always(chunks: np.ndarray) -> Callable[[int], np.ndarray]:
    return lambda _: chunks


def _halves_of(kind: CollectiveKind, scatter: list[Step], gather: list[Step]) -> list[Step]:
    """Return the half that a collective is, or both for a whole all-reduce."""
    return {CollectiveKind.REDUCE_SCATTER: scatter, CollectiveKind.ALL_GATHER: gather}.get(
        kind, scatter + gather
    )


def all_pairs(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return who sends and who receives where each of n sends to every other; shape [n (n - 1)] each."""
    sources = np.repeat(np.arange(n), n - 1)
    return sources, (sources + np.tile(np.arange(1, n), n)) % n


def pair_flows(
    groups: np.ndarray, size_bytes: float, axis: str, matrix: np.ndarray, pattern: int = 0
) -> Flows:
    """Return flows from every member to every other, of so many bytes times an entry of a matrix, [n, n]."""
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


def _around(n: int, first: int, *, reduces: bool) -> Step:
    """Return n - 1 steps around a ring: rank i passes chunk first + i - t on in step t."""
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


def _backwards(steps: list[Step]) -> list[Step]:
    """Return how what has been spread is collected: every transfer the other way, the last one first."""
    return [
        replace(step, sources=step.destinations, destinations=step.sources, reduces=True, rings=None)
        for step in reversed(steps)
    ]


def _ring(kind: CollectiveKind, n: int) -> list[Step]:
    return _halves_of(kind, [_around(n, -1, reduces=True)], [_around(n, 0, reduces=False)])


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
                    chunks_at=partial(_halves, n, distance, sent),
                    reduces=reduces,
                    rings=rings,
                )
            )
        distance //= 2
    return _halves_of(kind, scatter, gather[::-1])


def _halves(n: int, distance: int, sent: bool, _time: int) -> np.ndarray:
    """Return the half of its block that each rank sends, or else keeps: that which holds its own index."""
    ranks = np.arange(n)
    block = 2 * distance
    start = (ranks // block) * block
    other_half = np.where(ranks & distance, start, start + distance)
    begin = other_half if sent else (ranks // distance) * distance
    return np.asarray(begin[:, None] + np.arange(distance)[None, :])


def _tree(kind: CollectiveKind, n: int) -> list[Step]:
    """Binomial tree to and from position 0, the whole vector at each step."""
    spread = []
    distance = 1
    while distance < n:
        senders = np.arange(min(distance, n - distance))
        everything = _always(np.broadcast_to(np.arange(n), (senders.size, n)))
        step = Step(
            sources=senders, destinations=senders + distance, carried=n, chunks_at=everything, reduces=False
        )
        spread.append(step)
        distance *= 2
    if kind is CollectiveKind.BROADCAST:
        return spread
    if kind is CollectiveKind.REDUCE:
        return _backwards(spread)
    return _backwards(spread) + spread


def _direct(kind: CollectiveKind, n: int) -> list[Step]:
    """Return exchanges of every rank with every other: chunks go to their owner, and sums back."""
    sources, destinations = all_pairs(n)
    rings = np.arange(n)[None, :] if n == 2 else None
    to_owner = Step(
        sources=sources,
        destinations=destinations,
        carried=1,
        chunks_at=_always(destinations[:, None]),
        reduces=kind is not CollectiveKind.ALL_TO_ALL,
        rings=rings,
    )
    from_owner = replace(to_owner, chunks_at=_always(sources[:, None]), reduces=False)
    if kind is CollectiveKind.ALL_TO_ALL:
        return [to_owner]
    return _halves_of(kind, [to_owner], [from_owner])


_BUILDERS = {
    Algorithm.RING: (_ring, SUMS),
    Algorithm.HALVING_DOUBLING: (_halving_doubling, SUMS),
    Algorithm.TREE: (_tree, {CollectiveKind.ALL_REDUCE} | ROOTED),
    Algorithm.DIRECT: (_direct, SUMS | {CollectiveKind.ALL_TO_ALL}),
}


def algorithms(kind: CollectiveKind, n: int) -> tuple[Algorithm, ...]:
    """Return the algorithms that can carry out a collective on n ranks over switches that do not add.

    Hierarchical and in-network ones are apart, for they need nodes and switches that add.
    """
    return ((Algorithm.RING,) if kind in ROOTED else ()) + _with_steps(kind, n)


def _with_steps(kind: CollectiveKind, n: int) -> tuple[Algorithm, ...]:
    """Return those that have a schedule of steps: all but chains (`chain_rounds`)."""
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
        What is done; not SEND, and along rings nothing `ROOTED`, which has `chain_rounds`.
    algorithm : Algorithm
        One of `algorithms(kind, n)`, or in-network: everyone hands the owner of a chunk its part, on the way
        to whom the switch adds, and the switch copies what owners send.
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
    """Return the same with steps that are repeated as one."""
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
    """Return the size of the whole vector of a collective from a rank's payload before it."""
    return payload_bytes * n if kind is CollectiveKind.ALL_GATHER else payload_bytes


def rounds(
    kind: CollectiveKind, algorithm: Algorithm, groups: np.ndarray, payload_bytes: float, axis: str
) -> tuple[Round, ...]:
    """Return the rounds of flows in which all groups carry out a collective.

    Parameters
    ----------
    kind : CollectiveKind
        What is done; not SEND.
    algorithm : Algorithm
        How.
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
    time, and the last member waits for n - 1 hops besides. What it costs that chunks are not arbitrarily
    short is in the time of a hop that a library's protocol has. Both go the way of the ring, for which a
    fabric has circuits: a broadcast 0, 1, ..., n - 1 and a reduction 1, ..., n - 1, 0.
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
        Another way for the level between; takes the first four arguments of `rounds` without an algorithm.

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
    """Return the members in the same place of the nodes of a group, shape [groups * local, nodes]."""
    nodes = groups.shape[1] // local
    return groups.reshape(-1, nodes, local).transpose(0, 2, 1).reshape(-1, nodes)


def in_network_rounds(
    kind: CollectiveKind, groups: np.ndarray, payload_bytes: float, axis: str
) -> tuple[Round, ...]:
    """Return an all-reduce, reduce-scatter or all-gather whose sums and copies the switches make.

    Parameters
    ----------
    kind, groups, payload_bytes, axis
        As in `rounds`.

    Returns
    -------
    tuple of Round
        One round in which every port sends and receives its volume, as a flow to the next of the group.

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
"""What goes to servers or comes from them."""


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
        How many of the workers of each group hold an equal share of the vector.

    Returns
    -------
    tuple of Round
        One round; what a server's own worker exchanges with it stays on the rank. Empty for one worker.

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
    short = [stride for stride in strides if math.gcd(stride, n) != 1]
    if kind not in SUMS or short or not strides:
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
"""Name of the algorithm in results."""

SEGMENTS = (4, 16)
"""Segments of a vector that are tried beside one where axes are not alike; dimensionless, a choice: more
save little, and every one pays the latency of its phases."""

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
    (`order_shares`). What that cannot balance in one phase balances over several: with segments, one is in
    its second phase while the next is in its first.

    Axes that move less in a phase than others stop early: a phase is a run of rounds of which each carries
    what its slowest axis still has to. A round has as many repetitions as the longest ring has steps; those
    behind it pay the latency once more.
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
    """Return the orders of axes that parts go through: all of them, or each axis first if axes are alike."""
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
        Whether what was scattered is gathered again, or only one of them is done.

    Notes
    -----
    The least sum over steps of the bytes of the busiest axis, a linear programme in the shares.
    """
    k, ways = len(axes), orders(axes)
    sent = np.array(
        [_box_steps(_alone(axes, order), segments, both=both) for order in ways]
    )  # order, step, axis
    steps = sent.shape[1]
    rows = np.zeros((steps * k, len(ways) + steps))
    rows[:, : len(ways)] = sent.reshape(len(ways), -1).T
    rows[np.arange(steps * k), len(ways) + np.repeat(np.arange(steps), k)] = -1.0
    found = scipy.optimize.linprog(
        c=np.concatenate([np.zeros(len(ways)), np.ones(steps)]),
        A_ub=rows,
        b_ub=np.zeros(steps * k),
        A_eq=np.concatenate([np.ones(len(ways)), np.zeros(steps)])[None, :],
        b_eq=[1.0],
    )
    return tuple(float(share) for share in found.x[: len(ways)])


def _alone(axes: tuple[int, ...], order: tuple[int, ...]) -> np.ndarray:
    """Return the share of a part that a node sends in each phase along each axis, shape [phases, axes].

    Of what is left, all but its own piece.
    """
    sent = np.zeros((len(order), len(axes)))
    left = 1.0
    for phase, place in enumerate(order):
        sent[phase, place] = left * (axes[place] - 1) / axes[place]
        left /= axes[place]
    return sent


def _box_steps(sent: np.ndarray, segments: int, *, both: bool) -> np.ndarray:
    """Return what is sent in each step when segments follow each other, shape [steps, axes].

    Parameters
    ----------
    sent : numpy.ndarray
        What is sent in each phase of a reduce-scatter, shape [phases, axes].
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
    sent = sum(0.5 * share * _alone(axes, order) for order, share in zip(orders(axes), shares, strict=True))
    return tuple(tuple(row) for row in _box_steps(np.asarray(sent), segments, both=both).tolist())


def _phase_rounds(
    boxes: np.ndarray, shares: tuple[float, ...], vector_size: float, axis: str, kind: CollectiveKind
) -> list[Round]:
    """Return the rounds of one phase: all axes, then those that have more to send, until none has."""
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
"""What ends the name of an all-to-all that circuits serve one part after the other."""
FORWARDED = "forwarded"
"""Name of an all-to-all over circuits that stand, by way of other nodes."""


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
        What goes to whom, if not the same to everybody. A node's copies are then as many as without it.

    Raises
    ------
    WorkloadError
        If `local` does not divide the group.

    Notes
    -----
    Each rank first collects from its node what goes to ranks in its own place of other nodes, then sends each
    of these one message: n/g - 1 messages leave a rank instead of n - g, with as many bytes (HetuMoE,
    arXiv:2203.14685; DeepSpeed-MoE, arXiv:2201.05596, section 5.2; Tutel, arXiv:2206.03382). With a spread
    tokens first cross to each node that they visit, once, and are handed to their experts' ranks there
    (DeepSeek-V3, arXiv:2412.19437, section 3.2.2); sums on the way back take the same rounds in reverse,
    hence the same time. What a library spends on each message beside its bytes is not modelled, so
    aggregation alone saves time where paths between places of different nodes are narrower.
    """
    n = groups.shape[1]
    if n % local:
        msg = f"an all-to-all in two levels needs neighbours ({local}) that divide the group ({n})"
        raise WorkloadError(msg)
    first = spread is not None
    crossing = _crossing_bytes(payload_bytes, n // local, spread)
    if skew is not None:
        inside = _uneven(groups, payload_bytes / local, axis, _within(skew, local, across_first=first), skew)
        share = crossing / (n // local)
        across = _uneven(groups, share, axis, _between(skew, local, across_first=first), skew)
    else:
        inside = _inside(groups, payload_bytes, axis, local)
        far = same_places(groups, local)
        across = rounds(CollectiveKind.ALL_TO_ALL, Algorithm.DIRECT, far, crossing, axis)
    return across + inside if first else inside + across


def _inside(groups: np.ndarray, payload_bytes: float, axis: str, local: int) -> tuple[Round, ...]:
    """Return an all-to-all of a payload among the neighbours in every node."""
    near = groups.reshape(-1, local)
    return rounds(CollectiveKind.ALL_TO_ALL, Algorithm.DIRECT, near, payload_bytes, axis)


def _crossing_bytes(payload_bytes: float, nodes: int, spread: Spread | None) -> float:
    """Return what a rank sends to all nodes, its own among them, of a payload."""
    return payload_bytes if spread is None else payload_bytes / spread.copies * spread.nodes_visited(nodes)


def in_turns(parts: Iterable[Round], groups: np.ndarray, node_size: int, peers: int) -> tuple[Round, ...]:
    """Return an exchange as a sequence of rounds in which nobody meets more nodes than it has circuits for.

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
    Who stands d nodes behind the sender, for d from 1 to k - 1, is a permutation of the k nodes of a group,
    and all of them together are the exchange: the Birkhoff-von Neumann decomposition of an even demand, k - 1
    permutations of which a round takes as many as fit. Distances d and k - d stand together, since the way
    back of d is k - d and uneven flows are told to come back over the circuits that they go out on; there
    rounds are even. Rounds are as like as can be: seven in turns of four are four and three.
    """
    place = {
        int(endpoint): spot
        for group in groups
        for endpoint, spot in zip(group, np.unique(group // node_size, return_inverse=True)[1], strict=True)
    }
    nodes = max(place.values()) + 1
    return tuple(turn for part in parts for turn in _turns(part, place, nodes, peers))


def _turns(part: Round, place: dict[int, int], nodes: int, peers: int) -> Iterator[Round]:
    """Yield the turns of one round of an exchange, given the place of each endpoint among the nodes."""
    flows = part.flows
    spots = [np.array([place[end] for end in ends.tolist()]) for ends in (flows.sources, flows.destinations)]
    distance = (spots[1] - spots[0]) % nodes
    most = peers if flows.weights is None else peers - peers % 2
    met = {int(one) for one in np.unique(distance)} - {0}
    order = [one for near in range(1, nodes // 2 + 1) for one in dict.fromkeys((near, nodes - near))]
    asked = [one for one in order if one in met]
    if len(asked) <= peers or not most:
        yield part
        return
    turns = -(-len(asked) // most)
    size = most if flows.weights is not None else -(-len(asked) // turns)
    for turn in range(turns):
        chosen = asked[turn * size : (turn + 1) * size] + ([0] if turn == 0 else [])
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
    """Return an even all-to-all in two levels of which nodes pass on what they have no circuit for.

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
        Empty if circuits at so few distances do not reach every node.

    Notes
    -----
    Circuits stand at the same distances from every node, and every message takes the fewest of them that lead
    to its end, shared equally where there are several such ways. Messages are stored and forwarded: a hop
    begins when the one before has ended. Cards pass on from their memory, on the rail of the destination.

    References
    ----------
    Wang et al., "TopoOpt", NSDI 2023, section 4.3: forwarding by hosts over circuits that stand.
    """
    nodes = groups.shape[1] // local
    distances = standing_distances(nodes, peers)
    if not distances:
        return ()
    far, message = same_places(groups, local), _crossing_bytes(payload_bytes, nodes, spread) / nodes
    inside = _inside(groups, payload_bytes, axis, local)
    across = tuple(
        Round(flows=_at_distances(far, message, axis, distances, hop), count=1)
        for hop in hop_loads(nodes, distances)
    )
    return across + inside if spread is not None else inside + across


def _at_distances(
    far: np.ndarray, size_bytes: float, axis: str, distances: tuple[int, ...], loads: np.ndarray
) -> Flows:
    """Return what everybody sends to who stands at some distances, so many messages to each."""
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
    """Return how many messages of each node cross its circuit at each distance, hop by hop.

    Parameters
    ----------
    nodes : int
        Nodes in a circle, each of which sends one message to every other.
    distances : tuple of int
        Where every node's circuits lead, counted onwards from it.

    Returns
    -------
    tuple of numpy.ndarray
        One of shape [distances] for each hop; none if some node is not reached.
    """
    hops = np.full(nodes, -1)
    hops[0], reached = 0, [0]
    for here in reached:
        for distance in distances:
            there = (here + distance) % nodes
            if hops[there] < 0:
                hops[there] = hops[here] + 1
                reached.append(there)
    if (hops < 0).any():
        return ()
    ahead, found = np.ones(nodes), []  # messages of a node by how far they still have to go
    ahead[0] = 0.0
    for hop in range(int(hops.max()), 0, -1):
        loads, after = np.zeros(len(distances)), ahead.copy()
        for left in np.flatnonzero((hops == hop) & (ahead > 0.0)).tolist():
            ways = [k for k, one in enumerate(distances) if hops[(left - one) % nodes] == hop - 1]
            for way in ways:
                loads[way] += ahead[left] / len(ways)
                after[(left - distances[way]) % nodes] += ahead[left] / len(ways)
            after[left] = 0.0
        ahead = after
        found.append(loads)
    return tuple(found)


MOST_LAYOUTS = 3000
"""Layouts of circuits that are all tried; of more, those with distances in powers."""


@cache
def standing_distances(nodes: int, peers: int) -> tuple[int, ...]:
    """Return the distances at which circuits of nodes in a circle stand best for an all-to-all.

    Both ways of each stand, and of all such layouts the one is taken whose hops together take least time.

    Returns
    -------
    tuple of int
        Empty if so few reach nobody else or not everybody.
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


def _within(skew: Skew, local: int, *, across_first: bool) -> np.ndarray:
    """Return what goes from member to member of a node, over the mean; NaN between nodes, shape [n, n].

    Tokens cross in their sender's place if they cross first, else in their receiver's.
    """
    n = len(skew.loads)
    matrix_apbq = skew.matrix().reshape(n // local, local, n // local, local)
    within_apq = matrix_apbq.mean(axis=0).transpose(1, 0, 2) if across_first else matrix_apbq.mean(axis=2)
    found = np.full(matrix_apbq.shape, np.nan)
    for node, entries in enumerate(within_apq):
        found[node, :, node, :] = entries
    return found.reshape(n, n)


def _between(skew: Skew, local: int, *, across_first: bool) -> np.ndarray:
    """Return what goes between members in the same place of nodes, over the mean; NaN elsewhere, [n, n]."""
    n = len(skew.loads)
    matrix_apbq = skew.matrix().reshape(n // local, local, n // local, local)
    between_apb = matrix_apbq.mean(axis=3) if across_first else matrix_apbq.mean(axis=1).transpose(0, 2, 1)
    found = np.full(matrix_apbq.shape, np.nan)
    for place in range(local):
        found[:, place, :, place] = between_apb[:, place, :]
    return found.reshape(n, n)


def _uneven(
    groups: np.ndarray, size_bytes: float, axis: str, matrix: np.ndarray, skew: Skew
) -> tuple[Round, ...]:
    """Return the round in which pairs exchange so much times an entry of a matrix, unless that is NaN."""
    flows = pair_flows(groups, size_bytes, axis, matrix, skew.pattern)
    some = flows.part(~np.isnan(flows.sizes_bytes))
    return (Round(flows=some, count=1),) if len(some.sources) else ()
