"""All-to-alls in two levels, with aggregated or with shared messages, and in turns over few circuits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from simulator.collectives.algorithms import Round
from simulator.collectives.demand import pair_flows
from simulator.errors import WorkloadError
from simulator.interfaces import Flows
from simulator.operators import CollectiveKind, Skew, Spread

IN_TURNS = "_in_turns"
"""What ends the name of an all-to-all that circuits serve one part after the other."""


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
    nodes = n // local
    near = groups.reshape(-1, local)
    far = groups.reshape(-1, nodes, local).transpose(0, 2, 1).reshape(-1, nodes)
    crossing = payload_bytes / nodes
    if spread is not None:
        crossing = payload_bytes / spread.copies * spread.nodes_visited(nodes) / nodes
    if skew is not None:
        first = spread is not None
        inside = _uneven(groups, payload_bytes / local, axis, _within(skew, local, across_first=first))
        across = _uneven(groups, crossing, axis, _between(skew, local, across_first=first))
    else:
        inside = _everyone(near, payload_bytes / local, axis)
        across = _everyone(far, crossing, axis)
    return across + inside if spread is not None else inside + across


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
        yield Round(flows=flows.part(np.isin(distance, chosen)), count=part.count)


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


def _uneven(groups: np.ndarray, size_bytes: float, axis: str, matrix: np.ndarray) -> tuple[Round, ...]:
    """Return the round in which pairs exchange so much times an entry of a matrix, unless that is NaN."""
    flows = pair_flows(groups, size_bytes, axis, matrix)
    some = flows.part(~np.isnan(flows.sizes_bytes))
    return (Round(flows=some, count=1),) if len(some.sources) else ()


def _everyone(groups: np.ndarray, size_bytes: float, axis: str) -> tuple[Round, ...]:
    """Return the round in which every member sends so much to every other."""
    n = groups.shape[1]
    if n == 1:
        return ()
    sources = np.repeat(np.arange(n), n - 1)
    destinations = (sources + np.tile(np.arange(1, n), n)) % n
    flows = Flows(
        sources=groups[:, sources].ravel(),
        destinations=groups[:, destinations].ravel(),
        size_bytes=size_bytes,
        axis=axis,
        kind=CollectiveKind.ALL_TO_ALL,
        groups=groups if n == 2 else None,
    )
    return (Round(flows=flows, count=1),)
