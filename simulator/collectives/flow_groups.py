"""Flow groups (identical flows that move as one), collectives made of them, and the traffic of a step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

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
    """Number of the flow group, by which sums over groups are ordered, so that equal runs give equal bits."""
    flows: Flows
    """The flows; their sizes are not used."""
    demand: tuple[Flows, ...]
    """Traffic of the same endpoints, this one included, that a circuit policy may serve together."""
    links: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Distinct links, shape [U]."""
    usage: np.ndarray = field(default_factory=lambda: np.empty(0))
    """Flows of the flow group on each of them, shape [U]."""
    latency_s: float = 0.0
    """Longest path latency."""
    version: int = -1
    """Version of the circuits to which the links belong."""
    lost: int = -1
    """Version of the circuits under which it last had no path."""


class GroupRound(NamedTuple):
    """Round of a collective: a flow group that carries bytes, several times in a row."""

    flow_group: FlowGroup
    """The flows."""
    size_bytes: float
    """Bytes of a flow in one repetition; once priced, bytes on the wire, with those of the protocol."""
    repetitions: int
    """Number of repetitions, one after the other."""


@dataclass(frozen=True, kw_only=True)
class PricedCollective:
    """Collective of one class as flow groups, with its time and energy on an idle network."""

    algorithm: str
    """Name of the algorithm, with that of the protocol."""
    parts: tuple[GroupRound, ...]
    """Rounds, or levels that work at once."""
    protocol_s: float
    """Time of the library's protocol beside latency and transfer."""
    alone_s: float
    """Duration with all links to itself."""
    empty_s: float
    """Duration of an empty payload with all links to itself."""
    wire_bytes: float
    """Payload that the class's ranks put on the wire."""
    energy_j: float
    """Dynamic energy of the transfers."""
    in_turns: bool = False
    """Whether circuits turn between its parts, so that each repetition turns them again."""
    at_once: bool = False
    """Whether its parts are levels that work at the same time; `protocol_s` then has all their latency."""
    dark_s: float = 0.0
    """Time in which circuits turn between its parts, included in both durations."""

    @property
    def flow_groups(self) -> tuple[FlowGroup, ...]:
        """Flow groups of the parts."""
        return tuple(part.flow_group for part in self.parts)

    @property
    def carried_s(self) -> float:
        """Duration with all links to itself, without turns."""
        return self.alone_s - self.dark_s


@dataclass(kw_only=True)
class AxisDemand:
    """Sums of the collectives of a class along one axis and in one direction over a step."""

    size_bytes: float = 0.0
    """Bytes that a rank puts in."""
    vectors_bytes: defaultdict[CollectiveKind, float] = field(default_factory=lambda: defaultdict(float))
    """Bytes of whole vectors by kind."""
    uneven_bytes: defaultdict[Skew, float] = field(default_factory=lambda: defaultdict(float))
    """Bytes that a rank puts in, of uneven exchanges by shape; what comes back counts on its way out."""
    servers: int | None = None
    """Ranks of a group that serve pushes and pulls; None without any."""

    def add(self, one: Collective, times: int = 1) -> None:
        """Add a collective that runs several times."""
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
        """Return its traffic as sends from sources to destinations, shape [F] each."""
        return Flows(
            sources=sources, destinations=destinations, size_bytes=self.size_bytes, axis=axis, kind=self.kind
        )

    def flows(self, axis: str, groups: np.ndarray, node_size: int) -> Flows:
        """Return its traffic within groups, shape [groups, n]: on rings, with servers, or of all pairs."""
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
    runs: defaultdict[tuple[int, int], int] = defaultdict(int)
    operators: dict[tuple[int, int], Operator] = {}
    for task in graph.tasks:
        operator = task.operator  # sequences of many microbatches share their items
        key = id(operator.items if isinstance(operator, Sequence) else operator), task.rank_class
        runs[key] += task.multiplicity
        operators[key] = operator
    demand: defaultdict[tuple[str, int, int], AxisDemand] = defaultdict(AxisDemand)
    for key, operator in operators.items():
        for collective, repeat in communications(operator):
            if collective.size > 1:
                demand[collective.axis, key[1], collective.shift].add(collective, repeat * runs[key])
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
    """Return the kind of collective with most bytes of vectors; of equal ones the first by definition."""
    return max(CollectiveKind, key=lambda kind: vectors_bytes.get(kind, -1.0))


def ring_flows(
    groups: np.ndarray, size_bytes: float, axis: str, kind: CollectiveKind, node_size: int = 1
) -> Flows:
    """Return the traffic of collectives on rings, for which a fabric with circuits sets these.

    Parameters
    ----------
    groups : numpy.ndarray
        Endpoints, shape [groups, n].
    size_bytes : float
        Bytes that a rank puts in.
    axis : str
        Axis of parallelism.
    kind : CollectiveKind
        Kind of collective that moves most of the bytes.
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
    """Return the traffic of uneven all-to-alls between all pairs, summed over their shapes.

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
