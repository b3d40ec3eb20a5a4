"""Collectives whose levels, inside nodes and between them, work on different chunks at the same time.

A collective of two levels cuts its vector into chunks. While one chunk is between nodes, the next is inside:
it takes as long as its slowest level does for the whole vector, and one chunk's way through the other.

References
----------
NVIDIA, NCCL: src/device/all_reduce.h (trees in chunks), src/graph/tuning.cc (bandwidths of algorithms).
Sanders, Speck and Traeff, Parallel Computing 35 (2009) 581: two trees that use all of a network's bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from heliograph.collectives import Algorithm, Round, in_network_rounds
from heliograph.operators import Collective, CollectiveKind
from heliograph.strided_rings import RING_KINDS

TWO_LEVELS = (
    Algorithm.HIERARCHICAL,
    Algorithm.HIERARCHICAL_IN_SWITCHES,
    Algorithm.HIERARCHICAL_STRIDED,
)
"""Algorithms of a level inside nodes and one between them."""
ADDING = MappingProxyType(
    {
        str(Algorithm.HIERARCHICAL): str(Algorithm.HIERARCHICAL_IN_NETWORK),
        str(Algorithm.HIERARCHICAL_IN_SWITCHES): str(Algorithm.HIERARCHICAL_IN_BOTH),
    }
)
"""What an algorithm is called if the switches of nodes add, too."""
PIPELINED = " pipelined"
"""Ending of the name of an algorithm whose levels work at once."""


@dataclass(frozen=True, kw_only=True)
class Levels:
    """The rounds of a collective of two levels, for a payload of one byte."""

    inside: Round
    """Those inside nodes."""
    between: Round
    """Those between nodes."""

    @property
    def both(self) -> tuple[Round, Round]:
        """First those inside."""
        return self.inside, self.between

    def of_payload(self, payload_bytes: float) -> Levels:
        """Return the same for another payload."""
        inside, between = (
            replace(one, flows=replace(one.flows, size_bytes=one.flows.size_bytes * payload_bytes))
            for one in self.both
        )
        return Levels(inside=inside, between=between)


def two_levels(
    options: dict[str, tuple[Round, ...]], operator: Collective, node_size: int
) -> dict[str, Levels]:
    """Return the levels of every way of a collective that has two.

    Parameters
    ----------
    options : dict
        Ways to carry out the collective, with one byte of payload: algorithm -> rounds.
    operator : Collective
        The collective.
    node_size : int
        Endpoints of a node.
    """
    if operator.kind not in RING_KINDS:
        return {}
    found = {}
    for name in TWO_LEVELS:
        levels = _sorted(options.get(name, ()), node_size)
        if levels is not None:
            found[str(name)] = levels
    return found


def with_adding_nodes(levels: Levels, operator: Collective, near: np.ndarray) -> Levels:
    """Return the levels of an all-reduce whose sums inside nodes their switches make.

    Parameters
    ----------
    levels : Levels
        The same with rings inside nodes.
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
    """Return the ways of two levels with rings and trees as a library lays them between nodes.

    Parameters
    ----------
    found : dict
        Levels by algorithm.
    operator : Collective
        The collective; if it names an algorithm, only that is left.
    nodes : int
        Nodes of its group.
    """
    laid = dict(found)
    for name in (Algorithm.HIERARCHICAL, Algorithm.HIERARCHICAL_IN_NETWORK):
        if name not in found:
            continue
        if operator.kind is CollectiveKind.ALL_REDUCE:
            adds = name == Algorithm.HIERARCHICAL_IN_NETWORK
            laid[name] = on_trees(found[name], nodes, nodes_add=adds)
        else:
            laid[name] = on_rings(found[name], operator, nodes)
    return {name: one for name, one in laid.items() if operator.algorithm in {"", name}}


def on_rings(levels: Levels, operator: Collective, nodes: int) -> Levels:
    """Return a gather or scatter as a library has it that knows rings through all ranks only.

    Parameters
    ----------
    levels : Levels
        Those of two levels of rings, N of which a vector crosses (N - 1) / N times between nodes.
    operator : Collective
        The collective, on n ranks.
    nodes : int
        N.

    Notes
    -----
    NCCL lays one ring through all n ranks over each card, so that (n - 1) / n of the vector leave a node
    instead of (N - 1) / N.
    """
    n = operator.size
    flows = levels.between.flows
    more = (n - 1) / n * nodes / (nodes - 1)
    return replace(
        levels, between=replace(levels.between, flows=replace(flows, size_bytes=flows.size_bytes * more))
    )


def on_trees(levels: Levels, nodes: int, *, nodes_add: bool) -> Levels:
    """Return an all-reduce as a library has it that joins nodes by trees.

    Parameters
    ----------
    levels : Levels
        Those of two levels of rings; N nodes pass 2 (N - 1) / N of their part of the vector.
    nodes : int
        N.
    nodes_add : bool
        Whether the switches of the nodes add.

    Notes
    -----
    A chunk climbs and descends log2(N) hops. Each half of the vector has a tree of its own, in which a node
    is an inner one if it is a leaf of the other: sending up, and down to two, it passes all of its part
    twice (Sanders et al.), but once where there are two nodes (NCCL, issue 946: half of what rings would).
    Where the switches of nodes add, all cards pass the mean, 2 (N - 1) / N (src/graph/tuning.cc, bandwidth
    of NVLSTree).
    """
    between = levels.between
    more = nodes / (nodes - 1) if nodes > 2 and not nodes_add else 1.0
    hops = 2 * (nodes - 1).bit_length()
    size_bytes = between.flows.size_bytes * between.count * more / hops
    flows = replace(between.flows, size_bytes=size_bytes)
    return replace(levels, between=Round(flows=flows, count=hops))


def _sorted(parts: Sequence[Round], node_size: int) -> Levels | None:
    """Return rounds by whether they leave nodes; None if one does both, or a level has several patterns."""
    inside: Round | None = None
    between: Round | None = None
    for part in parts:
        leaving = part.flows.sources // node_size != part.flows.destinations // node_size
        if leaving.all():
            between = part if between is None else _merged(between, part)
            failed = between is None
        else:
            inside = part if inside is None else _merged(inside, part)
            failed = inside is None or bool(leaving.any())
        if failed:
            return None
    if inside is None or between is None:
        return None
    return Levels(inside=inside, between=between)


def _merged(one: Round, other: Round) -> Round | None:
    """Return two rounds of the same flows as one with more repetitions, or None if they differ."""
    first, second = one.flows, other.flows
    same = (
        first.size_bytes == second.size_bytes
        and np.array_equal(first.sources, second.sources)
        and np.array_equal(first.destinations, second.destinations)
    )
    return replace(one, count=one.count + other.count) if same else None
