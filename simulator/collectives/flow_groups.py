"""Flow groups, identical flows that move as one, and what collectives ask of a fabric in a whole step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from simulator.collectives.algorithms import SERVED, pair_flows, server_rounds, vector_bytes
from simulator.interfaces import MIXED, Flows
from simulator.layout import neighbours
from simulator.operators import (
    Collective,
    CollectiveKind,
    Operator,
    Sequence,
    Skew,
    StepGraph,
    communications,
)


@dataclass(kw_only=True, eq=False)
class FlowGroup:
    """Identical flows of one rank class, with the links they load under the present circuits."""

    index: int
    """Number of the flow group; orders solves, so that equal runs give equal bytes."""
    flows: Flows
    """The flows; `size_bytes` is not used."""
    demand: tuple[Flows, ...]
    """Traffic of the same endpoints that a circuit policy may serve together with this one."""
    links: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Distinct links, shape [U]."""
    usage: np.ndarray = field(default_factory=lambda: np.empty(0))
    """Flows of the flow group on each of them, shape [U]."""
    latency_s: float = 0.0
    """Longest path latency."""
    version: int = -1
    """Circuits' version that the links belong to."""
    lost: int = -1
    """Circuits' version under which it last had no path."""


@dataclass(frozen=True, kw_only=True)
class PricedCollective:
    """Collective of one class as flow groups, with its time and energy on an idle network."""

    algorithm: str
    """Chosen algorithm."""
    parts: tuple[tuple[FlowGroup, float, int], ...]
    """Flow group, bytes per flow on the wire (with the protocol's own) and repetitions of each round."""
    protocol_s: float
    """Time that the library's protocol takes beside latency and transfer."""
    alone_s: float
    """Duration with all links to itself."""
    empty_s: float
    """The same of an empty payload."""
    wire_bytes: float
    """Payload that the class's ranks put on the wire."""
    energy_j: float
    """Dynamic energy of the transfers."""
    in_turns: bool = False
    """Whether circuits turn between its parts, so that each repetition turns them again."""
    at_once: bool = False
    """Whether its parts are levels that work at the same time; `protocol_s` then has all their latency."""
    dark_s: float = 0.0
    """Time in which circuits turn between its parts, which both durations have."""

    @property
    def carried_s(self) -> float:
        """Duration with all links to itself, without turns."""
        return self.alone_s - self.dark_s


@dataclass(kw_only=True)
class AxisDemand:
    """Collectives of a class along one axis, one way, summed up over a step."""

    size_bytes: float = 0.0
    """Bytes that a rank puts in."""
    vectors_bytes: defaultdict[CollectiveKind, float] = field(default_factory=lambda: defaultdict(float))
    """Bytes of whole vectors by kind."""
    uneven_bytes: defaultdict[Skew, float] = field(default_factory=lambda: defaultdict(float))
    """Bytes that a rank puts in, of uneven exchanges by shape; what comes back counts on its way out."""
    servers: int | None = None
    """Ranks of a group that serve pushes and pulls; None without any."""

    def add(self, one: Collective, times: int = 1) -> None:
        """Add a collective that runs so many times."""
        self.size_bytes += one.payload_bytes * times
        self.vectors_bytes[one.kind] += vector_bytes(one.kind, one.payload_bytes, one.size) * times
        if one.kind in SERVED:
            self.servers = one.servers
        if one.skew is not None:
            out = one.skew.turned() if one.skew.returns else one.skew
            self.uneven_bytes[out] += one.payload_bytes * times

    @property
    def kind(self) -> CollectiveKind:
        """Kind that moves most of its bytes."""
        return main_kind(self.vectors_bytes)

    def sends(self, axis: str, sources: np.ndarray, destinations: np.ndarray) -> Flows:
        """Return its traffic from ranks to other ranks, shape [F] each."""
        return Flows(
            sources=sources, destinations=destinations, size_bytes=self.size_bytes, axis=axis, kind=self.kind
        )

    def flows(self, axis: str, groups: np.ndarray, node_size: int) -> Flows:
        """Return its traffic within groups, shape [groups, n]: rings, servers, or from pair to pair."""
        if self.servers is not None:
            (both,) = server_rounds(CollectiveKind.PULL, groups, self.size_bytes, axis, servers=self.servers)
            return replace(both.flows, size_bytes=self.size_bytes, kind=self.kind)
        if not self.uneven_bytes:
            return ring_flows(groups, self.size_bytes, axis, self.kind, node_size)
        every, rest = dict(self.uneven_bytes), self.size_bytes - sum(self.uneven_bytes.values())
        if rest > 0.0:
            even = Skew(loads=(1.0,) * groups.shape[1])
            every[even] = every.get(even, 0.0) + rest
        return skewed_flows(groups, axis, every)


def step_demand(graph: StepGraph, node_size: int = 1) -> dict[tuple[str, int, int], Flows]:
    """Return the traffic of the whole step by (axis, class, direction).

    Parameters
    ----------
    graph : StepGraph
        The step.
    node_size : int
        As in `ring_flows`.
    """
    times: defaultdict[tuple[int, int], int] = defaultdict(int)  # runs of many microbatches share their items
    operators: dict[tuple[int, int], Operator] = {}
    for task in graph.tasks:
        operator = task.operator
        run = id(operator.items if isinstance(operator, Sequence) else operator), task.rank_class
        times[run] += task.multiplicity
        operators[run] = operator
    demand: defaultdict[tuple[str, int, int], AxisDemand] = defaultdict(AxisDemand)
    for run, operator in operators.items():
        for one, repeat in communications(operator):
            if one.size > 1:
                demand[one.axis, run[1], one.shift].add(one, repeat * times[run])
    layout = graph.layout
    return {
        (axis, rank_class, shift): found.sends(
            axis, layout.members(rank_class), layout.members(rank_class + shift)
        )
        if shift
        else found.flows(axis, layout.groups(axis, rank_class), node_size)
        for (axis, rank_class, shift), found in demand.items()
    }


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
    local = neighbours(groups[0], node_size)
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
