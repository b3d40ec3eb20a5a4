"""All-to-alls in two levels, with aggregated or with shared messages, and in turns over few circuits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations

import numpy as np

from simulator.collectives.algorithms import Algorithm, Round, rounds, same_places
from simulator.collectives.flow_groups import pair_flows
from simulator.errors import WorkloadError
from simulator.interfaces import Flows
from simulator.operators import CollectiveKind, Skew, Spread

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
        chosen: Iterable[tuple[int, ...]] = combinations(half, pairs)
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
