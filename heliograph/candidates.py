"""The ways to carry out a collective of a class on the fabric at hand, as rounds of flows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from heliograph.all_to_all import IN_TURNS, in_turns, two_level_rounds
from heliograph.collectives import (
    Algorithm,
    Round,
    algorithms,
    hierarchical_rounds,
    in_network_rounds,
    rounds,
)
from heliograph.demand import skewed_flows
from heliograph.errors import WorkloadError, nearest
from heliograph.interfaces import Flows
from heliograph.layout import Groups
from heliograph.operators import Collective, CollectiveKind
from heliograph.scale_up import ScaleUp
from heliograph.servers import SERVED, server_rounds
from heliograph.strided_rings import RING_KINDS, strided_rounds
from heliograph.torus_collectives import BUCKET, BUCKET_KINDS, SEGMENTS, bucket_rounds

LIBRARY = (Algorithm.RING, Algorithm.TREE)
"""What GPU communication libraries run on switches that do not add (NCCL); two levels of it are rails."""


def candidates(
    operator: Collective,
    layout: Groups,
    rank_class: int,
    node_size: int,
    scale_up: ScaleUp | None = None,
    *,
    grid_of: Callable[[np.ndarray], tuple[int, ...] | None] | None = None,
    switches_add: bool = False,
    strides_of: Callable[[np.ndarray], tuple[int, ...]] | None = None,
) -> dict[str, tuple[Round, ...]]:
    """Return the ways to carry out a collective of a class: algorithm -> rounds; ring first.

    Parameters
    ----------
    operator : Collective
        The collective.
    layout : Groups
        Where the ranks stand.
    rank_class : int
        Class that takes part (the sender of a send).
    node_size : int
        Endpoints that share a scale-up domain; groups with several members in one go in two levels too.
    scale_up : ScaleUp, optional
        That domain: its library knows rings and trees only, and sums in switches if they add.
    grid_of : callable, optional
        Gives the shape of the box of a torus that a group fills, or None; rings then go along all its axes.
    switches_add : bool
        Whether the switches between nodes add.
    strides_of : callable, optional
        Gives the strides along which all of a group have circuits; a vector is then spread over their rings.
    """
    if operator.kind is CollectiveKind.SEND:
        flows = Flows(
            sources=layout.members(rank_class),
            destinations=layout.members(rank_class + operator.shift),
            size_bytes=operator.payload_bytes,
            axis=operator.axis,
        )
        return {"send": (Round(flows=flows, count=1),)}
    groups = layout.groups(operator.axis, rank_class)
    n = groups.shape[1]
    payload = operator.payload_bytes
    if operator.kind in SERVED:
        return {
            "servers": server_rounds(operator.kind, groups, payload, operator.axis, servers=operator.servers)
        }
    nodes = groups[0] // node_size
    local = int(np.count_nonzero(nodes == nodes[0]))
    if operator.two_level and operator.kind is CollectiveKind.ALL_TO_ALL and 1 < local < n and n % local == 0:
        two = two_level_rounds(groups, payload, operator.axis, local, operator.spread, skew=operator.skew)
        return {str(Algorithm.HIERARCHICAL): two}
    if operator.skew is not None and n > 1:
        flows = skewed_flows(groups, operator.axis, {operator.skew: payload})
        return {str(Algorithm.DIRECT): (Round(flows=flows, count=1),)}
    options = {
        str(algorithm): rounds(operator.kind, algorithm, groups, payload, operator.axis)
        for algorithm in _known(operator, n, scale_up, inside=local == n)
        if algorithm is not Algorithm.DIRECT or n <= node_size or len(algorithms(operator.kind, n)) == 1
    }
    two_level = operator.kind not in {
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.BROADCAST,
        CollectiveKind.REDUCE,
    }
    if two_level and 1 < local < n and n % local == 0:
        options[str(Algorithm.HIERARCHICAL)] = hierarchical_rounds(
            operator.kind, groups, payload, operator.axis, local
        )
    grid = grid_of(groups[0]) if grid_of and operator.kind in BUCKET_KINDS and n > 1 else None
    if grid is not None:
        options |= {
            BUCKET if segments == 1 else f"{BUCKET}_{segments}": bucket_rounds(
                operator.kind, groups, payload, operator.axis, grid, segments=segments
            )
            for segments in (1, *(SEGMENTS if len({size for size in grid if size > 1}) > 1 else ()))
        }
    if strides_of is not None and operator.kind in RING_KINDS and n > 1 and n % local == 0:
        options |= _strided(operator, groups, local, strides_of)
    if switches_add and two_level and local == 1 < n:
        options[str(Algorithm.IN_SWITCHES)] = in_network_rounds(operator.kind, groups, payload, operator.axis)
    if switches_add and two_level and 1 < local < n and n % local == 0:
        options[str(Algorithm.HIERARCHICAL_IN_SWITCHES)] = hierarchical_rounds(
            operator.kind, groups, payload, operator.axis, local, switches_add=True
        )
    adds = scale_up is not None and scale_up.adders and two_level
    if adds and local == n > 1:
        options[str(Algorithm.IN_NETWORK)] = in_network_rounds(operator.kind, groups, payload, operator.axis)
    if not operator.algorithm:
        return options
    if operator.algorithm not in options:
        hint = nearest(operator.algorithm, options, noun="algorithm")
        msg = (
            f"collective '{operator.name}' asks for algorithm '{operator.algorithm}'; by that nobody does "
            f"{operator.kind} on {n} ranks of axis '{operator.axis}' here: {hint}"
        )
        raise WorkloadError(msg)
    return {operator.algorithm: options[operator.algorithm]}


def served(
    options: dict[str, tuple[Round, ...]],
    operator: Collective,
    layout: Groups,
    rank_class: int,
    *,
    node_size: int,
    peers: int | None,
) -> dict[str, tuple[Round, ...]]:
    """Return the ways of `candidates` where circuits are few: all-to-alls with more nodes go in turns.

    Parameters
    ----------
    options, operator, layout, rank_class
        What `candidates` found, and for what.
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
    return found


def _strided(
    operator: Collective,
    groups: np.ndarray,
    local: int,
    strides_of: Callable[[np.ndarray], tuple[int, ...]],
) -> dict[str, tuple[Round, ...]]:
    """Return the ways over several rings that all groups of a class have circuits for."""
    whole = local in {1, groups.shape[1]}
    across = groups if whole else groups[:, ::local]
    common = set.intersection(*(set(strides_of(group)) for group in across))
    strides = tuple(sorted(common))
    if len(strides) < 2:
        return {}
    kind, payload, axis = operator.kind, operator.payload_bytes, operator.axis
    if whole:
        return {str(Algorithm.STRIDED): strided_rounds(kind, groups, payload, axis, strides)}
    across_by = partial(strided_rounds, strides=strides)
    both = hierarchical_rounds(kind, groups, payload, axis, local, across_by=across_by)
    return {str(Algorithm.HIERARCHICAL_STRIDED): both}


def _known(operator: Collective, n: int, scale_up: ScaleUp | None, *, inside: bool) -> tuple[Algorithm, ...]:
    """Return the algorithms that a group's library knows on switches that do not add.

    Notes
    -----
    NCCL's trees join nodes and are chains inside one, 2(n - 1) hops as the ring takes (src/graph/tuning.cc,
    latency of the tree algorithm), so that inside a node rings are all it has to sum with.
    """
    every = algorithms(operator.kind, n)
    if scale_up is None or not scale_up.protocols:
        return every
    chain = inside and operator.kind is CollectiveKind.ALL_REDUCE and operator.algorithm != Algorithm.TREE
    library = (Algorithm.RING,) if chain else LIBRARY
    return tuple(one for one in every if one in library) or every
