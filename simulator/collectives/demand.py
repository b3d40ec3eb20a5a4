"""The traffic of a whole step, by which a fabric with circuits sets them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from simulator.collectives.algorithms import SERVED, server_rounds, vector_bytes
from simulator.interfaces import MIXED, Flows
from simulator.operators import Collective, CollectiveKind, Sequence, Skew, StepGraph, communications


def step_demand(graph: StepGraph, node_size: int = 1) -> dict[tuple[str, int, int], Flows]:
    """Return the traffic of the whole step by (axis, class, direction): rings, servers or sends.

    Uneven all-to-alls are flows from pair to pair; what comes back is counted on its way out.

    Parameters
    ----------
    graph : StepGraph
        The step.
    node_size : int
        As in `ring_flows`.
    """
    totals: defaultdict[tuple[str, int, int], float] = defaultdict(float)
    by_kind: defaultdict[tuple[str, int, int], defaultdict[CollectiveKind, float]] = defaultdict(
        lambda: defaultdict(float)
    )
    served: dict[tuple[str, int, int], Collective] = {}
    skewed: defaultdict[tuple[str, int, int], defaultdict[Skew, float]] = defaultdict(
        lambda: defaultdict(float)
    )
    known: dict[int, list[tuple[Collective, int]]] = {}  # runs of many microbatches share their items
    for task in graph.tasks:
        what = id(task.operator.items) if isinstance(task.operator, Sequence) else id(task.operator)
        found_here = known.get(what)
        if found_here is None:
            found_here = known[what] = communications(task.operator)
        for one, repeat in found_here:
            if one.size > 1:
                key = (one.axis, task.rank_class, one.shift)
                totals[key] += one.payload_bytes * repeat * task.multiplicity
                vector = vector_bytes(one.kind, one.payload_bytes, one.size)
                by_kind[key][one.kind] += vector * repeat * task.multiplicity
                if one.kind in SERVED:
                    served[key] = one
                if one.skew is not None:
                    out = one.skew.turned() if one.skew.returns else one.skew
                    skewed[key][out] += one.payload_bytes * repeat * task.multiplicity
    found: dict[tuple[str, int, int], Flows] = {}
    for (axis, rank_class, shift), total in totals.items():
        kind = main_kind(by_kind[axis, rank_class, shift])
        if (axis, rank_class, shift) in served:
            servers = served[axis, rank_class, shift].servers
            (both,) = server_rounds(
                CollectiveKind.PULL, graph.layout.groups(axis, rank_class), total, axis, servers=servers
            )
            sources, destinations = both.flows.sources, both.flows.destinations
        elif shift:
            sources = graph.layout.members(rank_class)
            destinations = graph.layout.members(rank_class + shift)
        elif skewed[axis, rank_class, shift]:
            groups = graph.layout.groups(axis, rank_class)
            uneven = skewed[axis, rank_class, shift]
            rest = total - sum(uneven.values())
            if rest > 0.0:
                uneven[Skew(loads=(1.0,) * groups.shape[1])] += rest
            found[axis, rank_class, shift] = skewed_flows(groups, axis, uneven)
            continue
        else:
            groups = graph.layout.groups(axis, rank_class)
            found[axis, rank_class, shift] = ring_flows(groups, total, axis, kind, node_size)
            continue
        found[axis, rank_class, shift] = Flows(
            sources=sources, destinations=destinations, size_bytes=total, axis=axis, kind=kind
        )
    return found


def main_kind(vectors_bytes: Mapping[CollectiveKind, float]) -> CollectiveKind:
    """Return the kind of collective with most bytes of vectors, of equal ones the first in their order."""
    return max(CollectiveKind, key=lambda kind: vectors_bytes.get(kind, -1.0))


def ring_flows(
    groups: np.ndarray, size_bytes: float, axis: str, kind: CollectiveKind, node_size: int = 1
) -> Flows:
    """Return the traffic of collectives on rings, by which a fabric with circuits sets them.

    Parameters
    ----------
    groups : numpy.ndarray
        Endpoints, shape [groups, n].
    size_bytes : float
        Bytes that a rank puts in.
    axis : str
        Axis of parallelism.
    kind : CollectiveKind
        What the groups do, or what moves most of their bytes.
    node_size : int
        Endpoints of a node if each has circuits of its own, else 1.

    Notes
    -----
    One ring through a group. But if g neighbours of a group stand in each node, and each has a card with
    circuits of its own, then a ring inside each node, and one through the nodes over each of its g cards with
    a g-th of the bytes (NCCL lays a ring over every card).
    """
    n = groups.shape[1]
    nodes = groups // node_size
    local = int(np.count_nonzero(nodes[0] == nodes[0, 0]))
    if local in {1, n} or n % local or np.ptp(nodes.reshape(-1, local), axis=1).any():
        return Flows.around(groups, size_bytes=size_bytes, axis=axis, kind=kind)
    places = groups.reshape(-1, n // local, local)
    after = [np.roll(places, -1, axis=level).ravel() for level in (2, 1)]
    return Flows(
        sources=np.tile(places.ravel(), 2),
        destinations=np.concatenate(after),
        size_bytes=size_bytes / local,
        axis=axis,
        kind=kind,
    )


def skewed_flows(groups: np.ndarray, axis: str, payloads: Mapping[Skew, float]) -> Flows:
    """Return the traffic of uneven all-to-alls from pair to pair, those with another shape added up.

    Parameters
    ----------
    groups : numpy.ndarray
        Endpoints, shape [groups, n].
    axis : str
        Axis of parallelism.
    payloads : mapping of Skew to float
        Bytes that a rank sends in each shape of all-to-all.
    """
    n = groups.shape[1]
    total = sum(payloads.values())
    matrix = sum(skew.matrix() * (size / total if total else 1.0) for skew, size in payloads.items())
    patterns = {skew.pattern for skew in payloads}
    pattern = patterns.pop() if len(patterns) == 1 else MIXED
    return pair_flows(groups, total / n, axis, np.asarray(matrix), pattern)


def pair_flows(
    groups: np.ndarray, size_bytes: float, axis: str, matrix: np.ndarray, pattern: int = 0
) -> Flows:
    """Return flows from every member to every other, of so many bytes times an entry of a matrix, [n, n]."""
    n = groups.shape[1]
    sources = np.repeat(np.arange(n), n - 1)
    destinations = (sources + np.tile(np.arange(1, n), n)) % n
    return Flows(
        sources=groups[:, sources].ravel(),
        destinations=groups[:, destinations].ravel(),
        size_bytes=size_bytes,
        axis=axis,
        kind=CollectiveKind.ALL_TO_ALL,
        weights=np.tile(matrix[sources, destinations], len(groups)),
        pattern=pattern,
    )
