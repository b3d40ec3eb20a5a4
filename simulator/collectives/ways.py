"""Ways to carry out a collective: the algorithms that a fabric allows, as a communication library runs them.

`candidates` gives the algorithms as rounds of flows, one round after the other. `library_levels` gives those
of two levels, inside nodes and between them, that a library runs at once: it cuts the vector into chunks, and
while one chunk is between nodes the next is inside. Such a collective takes as long as its slower level does
for the whole vector, and one chunk's way through the other. `protocols` gives the protocols of each.

References
----------
NVIDIA, NCCL: src/device/all_reduce.h (trees in chunks), src/graph/tuning.cc (bandwidths of algorithms).
Sanders, Speck and Traeff, Parallel Computing 35 (2009) 581: two trees that use all of a network's bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from simulator.collectives.algorithms import (
    BUCKET,
    FORWARDED,
    HALVES,
    IN_TURNS,
    ROOTED,
    SEGMENTS,
    SERVED,
    SUMS,
    Algorithm,
    Round,
    algorithms,
    bucket_rounds,
    chain_rounds,
    forwarded_rounds,
    hierarchical_rounds,
    in_network_rounds,
    in_turns,
    rounds,
    same_places,
    server_rounds,
    strided_rounds,
    two_level_rounds,
    vector_bytes,
)
from simulator.collectives.direct_links import broadcast_rounds, exchange_rounds
from simulator.collectives.flow_groups import skewed_flows
from simulator.errors import WorkloadError, nearest
from simulator.interfaces import Flows
from simulator.layout import Groups, neighbours
from simulator.operators import Collective, CollectiveKind
from simulator.topology.scale_up import Adder, Protocol, ScaleUp

LIBRARY = (Algorithm.RING, Algorithm.TREE)
"""Algorithms that GPU communication libraries run on switches that do not add (NCCL)."""
SEND = "send"
"""Name of the only way to send from a rank to another."""
Ways = dict[str, tuple[Round, ...]]
"""Rounds by name of the algorithm."""


def candidates(
    operator: Collective,
    layout: Groups,
    rank_class: int,
    node_size: int,
    scale_up: ScaleUp | None = None,
    *,
    grid_of: Callable[[np.ndarray], tuple[int, ...] | None] = lambda _: None,
    switches_add: bool = False,
    strides_of: Callable[[np.ndarray], tuple[int, ...]] = lambda _: (),
    rates_of: Callable[[np.ndarray], np.ndarray | None] = lambda _: None,
) -> Ways:
    """Return the ways to carry out a collective of a class: algorithm -> rounds; ring first.

    Parameters
    ----------
    operator : Collective
        The collective.
    layout : Groups
        Endpoints of the ranks.
    rank_class : int
        Class that takes part (the sender of a send).
    node_size : int
        Endpoints of a node (a scale-up domain); groups with several members in one may go in two levels.
    scale_up : ScaleUp, optional
        The domain inside a node, with the protocols of its library and switches that may add.
    grid_of : callable, optional
        Gives the shape of the box of a torus that a group fills, or None; rings may go along all its axes.
    switches_add : bool
        Whether the switches between nodes add.
    strides_of : callable, optional
        Gives the strides at which every member of a group has a circuit to another; a vector may be spread
        over the rings of several.
    rates_of : callable, optional
        Gives the rate of the link straight from each member of a group to each other, shape [n, n], or None;
        a collective may be laid out over these links.
    """
    if operator.kind is CollectiveKind.SEND:
        flows = Flows(
            sources=layout.members(rank_class),
            destinations=layout.members(rank_class + operator.shift),
            size_bytes=operator.payload_bytes,
            axis=operator.axis,
            kind=CollectiveKind.SEND,
        )
        return {SEND: (Round(flows=flows, count=1),)}
    groups = layout.groups(operator.axis, rank_class)
    only = _forced_way(operator, groups, node_size)
    if only is not None:
        return only
    options = _switched_ways(operator, groups, node_size, scale_up)
    grid = grid_of(groups[0]) if operator.kind in SUMS and groups.shape[1] > 1 else None
    if grid is not None:
        options |= _torus_ways(operator, groups, grid)
    local = neighbours(groups[0], node_size)
    if operator.kind in SUMS and groups.shape[1] > 1 and groups.shape[1] % local == 0:
        options |= _strided_ways(operator, groups, local, strides_of)
    options |= _linked_ways(operator, groups, rates_of)
    options |= _adding_ways(operator, groups, local, scale_up, switches_add=switches_add)
    return _named_way(operator, options, groups.shape[1])


def _forced_way(operator: Collective, groups: np.ndarray, node_size: int) -> Ways | None:
    """Return the way of a collective that leaves no choice: to servers, in two levels if asked, or uneven."""
    n, payload = groups.shape[1], operator.payload_bytes
    if operator.kind in SERVED:
        return {
            "servers": server_rounds(operator.kind, groups, payload, operator.axis, servers=operator.servers)
        }
    local = neighbours(groups[0], node_size)
    if operator.two_level and operator.kind is CollectiveKind.ALL_TO_ALL and 1 < local < n and n % local == 0:
        two = two_level_rounds(groups, payload, operator.axis, local, operator.spread, skew=operator.skew)
        return {str(Algorithm.HIERARCHICAL): two}
    if operator.skew is not None and n > 1:
        flows = skewed_flows(groups, operator.axis, {operator.skew: payload})
        return {str(Algorithm.DIRECT): (Round(flows=flows, count=1),)}
    return None


def _switched_ways(
    operator: Collective, groups: np.ndarray, node_size: int, scale_up: ScaleUp | None
) -> Ways:
    """Return the ways that run on any fabric, on one level and on two."""
    n, local = groups.shape[1], neighbours(groups[0], node_size)
    options = {
        str(algorithm): rounds(operator.kind, algorithm, groups, operator.payload_bytes, operator.axis)
        for algorithm in _library_algorithms(operator, n, scale_up, inside=local == n)
        if algorithm is not Algorithm.DIRECT or n <= node_size or len(algorithms(operator.kind, n)) == 1
    }
    if operator.kind in SUMS and 1 < local < n and n % local == 0:
        options[str(Algorithm.HIERARCHICAL)] = hierarchical_rounds(
            operator.kind, groups, operator.payload_bytes, operator.axis, local
        )
    return options


def _torus_ways(operator: Collective, groups: np.ndarray, grid: tuple[int, ...]) -> Ways:
    """Return rings along all axes of a box of a torus, whole and in segments."""
    several = len({size for size in grid if size > 1}) > 1
    return {
        BUCKET if segments == 1 else f"{BUCKET}_{segments}": bucket_rounds(
            operator.kind, groups, operator.payload_bytes, operator.axis, grid, segments=segments
        )
        for segments in (1, *(SEGMENTS if several else ()))
    }


def _adding_ways(
    operator: Collective, groups: np.ndarray, local: int, scale_up: ScaleUp | None, *, switches_add: bool
) -> Ways:
    """Return the ways whose sums switches make: between nodes, with rings inside them, or inside one node."""
    kind, payload, axis, n = operator.kind, operator.payload_bytes, operator.axis, groups.shape[1]
    if kind not in SUMS:
        return {}
    options: Ways = {}
    if switches_add and local == 1 < n:
        options[str(Algorithm.IN_SWITCHES)] = in_network_rounds(kind, groups, payload, axis)
    if switches_add and 1 < local < n and n % local == 0:
        options[str(Algorithm.HIERARCHICAL_IN_SWITCHES)] = hierarchical_rounds(
            kind, groups, payload, axis, local, switches_add=True
        )
    if scale_up is not None and scale_up.adders and local == n > 1:
        options[str(Algorithm.IN_NETWORK)] = in_network_rounds(kind, groups, payload, axis)
    return options


def _named_way(operator: Collective, options: Ways, members: int) -> Ways:
    """Return the way that an operator names, or all ways if it names none."""
    if not operator.algorithm:
        return options
    if operator.algorithm not in options:
        hint = nearest(operator.algorithm, options, noun="algorithm")
        msg = (
            f"collective '{operator.name}' asks for algorithm '{operator.algorithm}'; by that nobody does "
            f"{operator.kind} on {members} ranks of axis '{operator.axis}' here: {hint}"
        )
        raise WorkloadError(msg)
    return {operator.algorithm: options[operator.algorithm]}


def served(
    options: Ways,
    operator: Collective,
    layout: Groups,
    rank_class: int,
    *,
    node_size: int,
    peers: int | None,
) -> Ways:
    """Return the ways of `candidates` on a fabric whose endpoints have few circuits.

    An all-to-all with more nodes than that goes in turns, for which circuits move, or is forwarded by other
    nodes over circuits that stand.

    Parameters
    ----------
    options : dict
        Ways that `candidates` returned.
    operator, layout, rank_class
        As in `candidates`.
    node_size : int
        Endpoints of a node, which need no circuits among themselves.
    peers : int or None
        Other nodes that an endpoint has circuits to at once; None if circuits do not turn.
    """
    if peers is None or operator.kind is not CollectiveKind.ALL_TO_ALL:
        return options
    groups = layout.groups(operator.axis, rank_class)
    found = {}
    for name, parts in options.items():
        turns = in_turns(parts, groups, node_size, peers)
        found[name if len(turns) == len(parts) else f"{name}{IN_TURNS}"] = turns
    local = neighbours(groups[0], node_size)
    whole = np.ptp(groups.reshape(-1, local) // node_size, axis=1) if groups.shape[1] % local == 0 else None
    if operator.skew is None and not options.keys() & found.keys() and whole is not None and not whole.any():
        spread = operator.spread if operator.two_level else None
        hops = forwarded_rounds(
            groups, operator.payload_bytes, operator.axis, local, peers=peers, spread=spread
        )
        found |= {FORWARDED: hops} if hops else {}
    return found


def _strided_ways(
    operator: Collective,
    groups: np.ndarray,
    local: int,
    strides_of: Callable[[np.ndarray], tuple[int, ...]],
) -> Ways:
    """Return the ways over several rings that all groups of a class have circuits for."""
    kind, payload, axis = operator.kind, operator.payload_bytes, operator.axis
    n, ways = groups.shape[1], {}
    strides = _common_strides(groups, strides_of)
    if strides:
        ways[str(Algorithm.STRIDED)] = strided_rounds(kind, groups, payload, axis, strides)
    across = _common_strides(groups[:, ::local], strides_of) if 1 < local < n else ()
    if across:
        across_by = partial(strided_rounds, strides=across)
        both = hierarchical_rounds(kind, groups, payload, axis, local, across_by=across_by)
        ways[str(Algorithm.HIERARCHICAL_STRIDED)] = both
    return ways


def _linked_ways(
    operator: Collective, groups: np.ndarray, rates_of: Callable[[np.ndarray], np.ndarray | None]
) -> Ways:
    """Return the ways that are laid out over the links straight between the members of every group."""
    kind, payload, axis = operator.kind, operator.payload_bytes, operator.axis
    if kind not in SUMS | {CollectiveKind.ALL_TO_ALL} or groups.shape[1] < 3:
        return {}
    rates = [found for found in map(rates_of, groups) if found is not None]
    if len(rates) < len(groups):
        return {}
    if kind is CollectiveKind.ALL_TO_ALL:
        exchange = exchange_rounds(groups, payload, axis, rates)
        return {str(Algorithm.SPREAD): exchange} if exchange else {}
    broadcasts = broadcast_rounds(kind, groups, payload, axis, rates)
    return dict(zip((str(Algorithm.BREADTH_FIRST), str(Algorithm.BALANCED)), broadcasts, strict=False))


def _common_strides(
    groups: np.ndarray, strides_of: Callable[[np.ndarray], tuple[int, ...]]
) -> tuple[int, ...]:
    """Return the strides along which all groups have circuits; none if they have fewer than two."""
    common = set(strides_of(groups[0]))
    for group in groups[1:]:
        if len(common) < 2:
            return ()
        common &= set(strides_of(group))
    return tuple(sorted(common)) if len(common) > 1 else ()


def _library_algorithms(
    operator: Collective, n: int, scale_up: ScaleUp | None, *, inside: bool
) -> tuple[Algorithm, ...]:
    """Return the algorithms that the library of a group runs on switches that do not add.

    NCCL's trees join nodes and are chains inside one, 2(n - 1) hops as the ring takes (src/graph/tuning.cc,
    latency of the tree algorithm), so that inside a node rings are all it has to sum with.
    """
    every = algorithms(operator.kind, n)
    if scale_up is None or not scale_up.protocols:
        return every
    chain = inside and operator.kind is CollectiveKind.ALL_REDUCE and operator.algorithm != Algorithm.TREE
    library = (Algorithm.RING,) if chain else LIBRARY
    return tuple(one for one in every if one in library) or every


TWO_LEVELS = (
    Algorithm.HIERARCHICAL,
    Algorithm.HIERARCHICAL_IN_SWITCHES,
    Algorithm.HIERARCHICAL_STRIDED,
)
"""Algorithms with a level inside nodes and one between them."""
ADDING = MappingProxyType(
    {
        str(Algorithm.HIERARCHICAL): str(Algorithm.HIERARCHICAL_IN_NETWORK),
        str(Algorithm.HIERARCHICAL_IN_SWITCHES): str(Algorithm.HIERARCHICAL_IN_BOTH),
    }
)
"""Algorithms with sums by the switches of nodes, by the name of the same algorithm with rings in nodes."""
PIPELINED = " pipelined"
"""Ending of the name of an algorithm whose levels work at once."""
ONE_CHUNK = " in one chunk"
"""Ending of the name of an algorithm whose vector passes one level after the other."""


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Rounds of a collective of two levels that work at once, for a payload of one byte."""

    inside: Round
    """Rounds inside nodes."""
    between: Round
    """Rounds between nodes."""
    inside_share: float = 1.0
    """Share of a rank's channels that go on inside its node, 0 to 1; the others leave it."""
    trees: bool = False
    """Whether trees join the nodes."""
    rings: bool = False
    """Whether chunks go on from rank to rank, so that no level waits for a chunk of the other."""

    @property
    def both(self) -> tuple[Round, Round]:
        """Rounds inside nodes and between them."""
        return self.inside, self.between

    def of_payload(self, payload_bytes: float) -> Levels:
        """Return the levels of a payload in bytes."""
        inside, between = (
            replace(one, flows=replace(one.flows, size_bytes=one.flows.size_bytes * payload_bytes))
            for one in self.both
        )
        return replace(self, inside=inside, between=between)


def library_levels(
    operator: Collective,
    layout: Groups,
    rank_class: int,
    node_size: int,
    scale_up: ScaleUp | None,
    *,
    options: Callable[[Collective], Ways],
) -> dict[str, Levels]:
    """Return the levels of the ways of a collective that a library runs at once, by algorithm.

    Parameters
    ----------
    operator, layout, rank_class, node_size, scale_up
        As in `candidates`.
    options : callable
        Gives the ways of a collective whose levels take turns, as `candidates` does.
    """
    if scale_up is None or not scale_up.protocols or operator.kind not in ROOTED | SUMS:
        return {}
    groups = layout.groups(operator.axis, rank_class)
    if operator.kind in ROOTED:
        local = neighbours(groups[0], node_size)
        whole = 1 < local < operator.size and operator.size % local == 0
        chained = whole and operator.algorithm in {"", Algorithm.RING}
        return {str(Algorithm.RING): chains(operator, groups, local)} if chained else {}
    found = two_levels(operator, node_size, options)
    if not found:
        return {}
    nodes = np.unique(groups[0] // node_size).size
    if scale_up.adders and operator.kind is CollectiveKind.ALL_REDUCE:
        near = groups.reshape(-1, operator.size // nodes)
        found |= {
            adding: with_adding_nodes(found[name], operator, near)
            for name, adding in ADDING.items()
            if name in found
        }
    return as_library(found, operator, nodes)


def two_levels(
    operator: Collective, node_size: int, options: Callable[[Collective], Ways]
) -> dict[str, Levels]:
    """Return the levels of every way of an all-reduce, reduce-scatter or all-gather that has two.

    Parameters
    ----------
    operator : Collective
        The collective, one of `SUMS`.
    node_size : int
        Endpoints of a node.
    options : callable
        Gives the ways of a collective, as `candidates` does.

    Notes
    -----
    All-reduces whose levels work at once agree with measurements: 24.4 ms for 4 GiB on 2 x 8 H100 with cards
    of 200 Gb/s (Google A3 Mega), 192 GB/s on many DGX A100 (NCCL, issue 812), 370 to 380 GB/s on H100 (issue
    1649). For all-gathers the evidence is Google's table of 2 x 8 H200 with cards of 400 Gb/s (329 to 336
    GB/s at 8 GiB; 370 here, 285 with one level after the other), against one call of 2 GiB on 256 H100 (issue
    1218: 200 GB/s, 277 here).
    """
    found = {}
    ways = options(replace(operator, payload_bytes=1.0))
    for name in TWO_LEVELS:
        levels = _split_levels(ways.get(name, ()), node_size)
        if levels is not None:
            found[str(name)] = levels
    return found


def chains(operator: Collective, groups: np.ndarray, local: int) -> Levels:
    """Return the levels of a broadcast or a reduction: a chain through all ranks for each card of a node.

    Parameters
    ----------
    operator : Collective
        The collective.
    groups : numpy.ndarray
        Endpoints, shape [groups, n]; the root is the first of each.
    local : int
        Neighbours g in a node; divides n.

    Notes
    -----
    Each of g chains carries its part of the vector through all ranks of a node and leaves it by a card of its
    own, so that a card passes 1 / g of the vector and a port inside all but that.
    """
    nodes = groups.shape[1] // local
    inside = Flows.around(
        groups.reshape(-1, local), size_bytes=1.0 / local / nodes, axis=operator.axis, kind=operator.kind
    )
    between = chain_rounds(operator.kind, same_places(groups, local), 1.0 / local, operator.axis)
    return Levels(
        inside=Round(flows=inside, count=nodes * (local - 1)),
        between=between[0],
        inside_share=(local - 1) / local,
        rings=True,
    )


def with_adding_nodes(levels: Levels, operator: Collective, near: np.ndarray) -> Levels:
    """Return the levels of an all-reduce whose sums inside nodes are made by the nodes' switches.

    Parameters
    ----------
    levels : Levels
        Levels of the same all-reduce with rings inside nodes.
    operator : Collective
        The all-reduce.
    near : numpy.ndarray
        Neighbours in a node, shape [nodes, g].

    Notes
    -----
    Switches hand each of g neighbours the sum of its part, which goes between nodes and is then copied to
    all by the switches; both ways of a port are busy together, as in an all-reduce inside one node.
    """
    (inside,) = in_network_rounds(CollectiveKind.ALL_REDUCE, near, 1.0, operator.axis)
    return replace(levels, inside=inside)


def as_library(found: dict[str, Levels], operator: Collective, nodes: int) -> dict[str, Levels]:
    """Return the levels that a library runs: rings through all ranks, or trees between nodes to all-reduce.

    Parameters
    ----------
    found : dict
        Levels of rings inside nodes and between them, by algorithm.
    operator : Collective
        The collective; if it names an algorithm, only that is left.
    nodes : int
        Nodes of its group.
    """
    rings = {
        Algorithm.RING if name == Algorithm.HIERARCHICAL else name: on_rings(levels, operator.size, nodes)
        for name, levels in found.items()
        if name in {Algorithm.HIERARCHICAL, Algorithm.HIERARCHICAL_STRIDED}
    }
    if operator.kind in HALVES:  # on rings alone
        return rings
    trees = {
        name: on_trees(found[name], nodes)
        for name in (Algorithm.HIERARCHICAL, Algorithm.HIERARCHICAL_IN_NETWORK)
        if name in found
    }
    every = rings | found | trees
    return {name: levels for name, levels in every.items() if operator.algorithm in {"", name}}


def on_trees(levels: Levels, nodes: int) -> Levels:
    """Return the levels of an all-reduce on trees between nodes.

    Parameters
    ----------
    levels : Levels
        Levels of rings, in which each of N nodes passes 2 (N - 1) / N of its part of the vector.
    nodes : int
        N.

    Notes
    -----
    A chunk climbs and descends log2(N) hops. Each half of the vector has a tree of its own, in which a node
    is an inner one if it is a leaf of the other: sending up, and down to two, it passes all of its part
    twice (Sanders et al.), but once where there are two nodes (NCCL, issue 946: half of what rings would).
    All channels have the same two trees, so that no card is spared where the switches of nodes add: 366 GB/s
    on 4 x 8 H100 (nccl-tests, issue 309), where all cards at the mean, 2 (N - 1) / N, would reach 498.
    """
    between = levels.between
    more = nodes / (nodes - 1) if nodes > 2 else 1.0
    hops = 2 * (nodes - 1).bit_length()
    size_bytes = between.flows.size_bytes * between.count * more / hops
    flows = replace(between.flows, size_bytes=size_bytes)
    return replace(levels, between=Round(flows=flows, count=hops), trees=True)


def on_rings(levels: Levels, ranks: int, nodes: int) -> Levels:
    """Return the levels of a collective on rings through all ranks, one ring for each card of a node.

    Parameters
    ----------
    levels : Levels
        Levels of rings inside nodes and between them.
    ranks, nodes : int
        n and N; g = n / N ranks of each node take part.

    Notes
    -----
    Each of g rings carries its part of the vector over n - 1 hops, of which N - 1 leave a node (twice that to
    sum). A node thus passes (n - 1) / n of the vector whatever N, twice what two levels would between two
    nodes: all-reduces that are forced to rings give 95 GB/s on 2 nodes of A100 with 4 cards of 200 Gb/s
    (nccl-tests, issue 252). Of a rank's channels, which all run at the same rate, one ring's leave the node
    (NCCL, src/graph/connect.cc; the slower of the rates inside and between is a channel's,
    src/graph/tuning.cc).
    """
    inside, between = levels.both
    local = ranks // nodes
    whole = (ranks - 1) / ranks
    hops = (ranks - nodes) * (between.count // (nodes - 1))
    near = inside.flows.size_bytes * inside.count * whole / hops
    far = between.flows.size_bytes * whole * nodes / (nodes - 1)
    return Levels(
        inside=Round(flows=replace(inside.flows, size_bytes=near), count=hops),
        between=Round(flows=replace(between.flows, size_bytes=far), count=between.count),
        inside_share=(local - 1) / local,
        rings=True,
    )


def _split_levels(parts: Sequence[Round], node_size: int) -> Levels | None:
    """Return rounds split into those inside nodes and those between; None if a level has several patterns."""
    inside: Round | None = None
    between: Round | None = None
    for part in parts:
        leaving = part.flows.sources // node_size != part.flows.destinations // node_size
        if leaving.all():
            between = part if between is None else _merge_rounds(between, part)
            failed = between is None
        else:
            inside = part if inside is None else _merge_rounds(inside, part)
            failed = inside is None or bool(leaving.any())
        if failed:
            return None
    if inside is None or between is None:
        return None
    return Levels(inside=inside, between=between)


def _merge_rounds(one: Round, other: Round) -> Round | None:
    """Return two rounds of the same flows as one with the repetitions of both; None if the flows differ."""
    first, second = one.flows, other.flows
    same = (
        first.size_bytes == second.size_bytes
        and np.array_equal(first.sources, second.sources)
        and np.array_equal(first.destinations, second.destinations)
    )
    return replace(one, count=one.count + other.count) if same else None


PLAIN = Protocol(
    name="plain",
    start_s=0.0,
    hop_s=0.0,
    efficiency=1.0,
    network_hop_s=0.0,
    tree_hop_s=0.0,
    network_efficiency=1.0,
)
"""Protocol that costs nothing: latency and bandwidth alone count."""


def protocols(
    name: str, scale_up: ScaleUp | None, adder: Adder | None, *, leaving: bool = True
) -> tuple[Protocol, ...]:
    """Return the protocols by which a library may carry out an algorithm.

    Parameters
    ----------
    name : str
        The algorithm.
    scale_up : ScaleUp, optional
        Domain of a node.
    adder : Adder, optional
        Reduction in the switches between nodes.
    leaving : bool
        Whether some flows leave their node.

    Notes
    -----
    Messages of pairs of ranks take the protocol of least latency or that of most bandwidth; between nodes the
    latter, for a library holds no buffers there for the other (NCCL, src/enqueue.cc and
    NCCL_ALLOC_P2P_NET_LL_BUFFERS).
    """
    if adder is not None and name in {
        Algorithm.IN_SWITCHES,
        Algorithm.HIERARCHICAL_IN_SWITCHES,
        Algorithm.HIERARCHICAL_IN_BOTH,
    }:
        return _switch_protocols(adder, name, scale_up)
    if scale_up is None:
        return (PLAIN,)
    if name in {Algorithm.IN_NETWORK, Algorithm.HIERARCHICAL_IN_NETWORK}:
        long = scale_up.protocols[-1] if scale_up.protocols else PLAIN
        return _node_protocols(scale_up, long if name == Algorithm.HIERARCHICAL_IN_NETWORK else PLAIN)
    found = scale_up.protocols or (PLAIN,)
    if name.removesuffix(IN_TURNS) in {SEND, Algorithm.DIRECT}:
        return found[-1:] if leaving or len(found) == 1 else (found[0], found[-1])
    return found


def _node_protocols(scale_up: ScaleUp, between: Protocol) -> tuple[Protocol, ...]:
    """Return protocols of nodes whose switches add, with a protocol for the level between nodes."""
    adders = scale_up.adders
    if between is not PLAIN:  # their sums go on between nodes, on trees
        adders = tuple(one.feeding_trees(scale_up.capacity_bytes_per_s) for one in adders)
    return tuple(
        replace(
            between,
            name=one.name,
            start_s=one.start_s,
            hop_s=0.0,
            efficiency=one.efficiency,
            chunk_bytes=one.chunk_bytes,
        )
        for one in adders
    )


def _switch_protocols(adder: Adder, name: str, scale_up: ScaleUp | None) -> tuple[Protocol, ...]:
    """Return protocols of an algorithm whose sums between nodes are made by switches there."""
    parts: tuple[Protocol, ...] = ()
    if name == Algorithm.HIERARCHICAL_IN_BOTH and scale_up is not None:
        parts = _node_protocols(scale_up, PLAIN)
    elif name == Algorithm.HIERARCHICAL_IN_SWITCHES and scale_up is not None:
        parts = scale_up.protocols
    return tuple(
        replace(
            one,
            name=adder.name if one is PLAIN else f"{one.name} {adder.name}",
            start_s=one.start_s + adder.start_s,
            network_hop_s=0.0,
            tree_hop_s=0.0,
            network_efficiency=adder.efficiency,
            chunk_bytes=max(one.chunk_bytes, adder.chunk_bytes),
        )
        for one in parts or (PLAIN,)
    )


def copied_bytes(operator: Collective) -> float:
    """Return the bytes that a rank copies between its memory and its port, beside the transfer.

    Notes
    -----
    An all-reduce copies the vector once, while a port passes 2 (n - 1) / n of it around the ring. Others copy
    as much for each byte that a port passes: half of the vector for a reduce-scatter, an all-gather and an
    all-to-all, n / (2 (n - 1)) of it along a chain; a send copies all of it.
    """
    vector = vector_bytes(operator.kind, operator.payload_bytes, operator.size)
    if operator.kind in {CollectiveKind.ALL_REDUCE, CollectiveKind.SEND}:
        return vector
    return vector / 2 * (operator.size / (operator.size - 1) if operator.kind in ROOTED else 1.0)
