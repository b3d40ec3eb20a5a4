"""Flow groups, identical flows that move as one; the classes of links that they load; priced collectives.

Two links are alike when they have the same capacity and every flow group loads them equally; they are
one constraint, so that a solve costs the same at any size. A new flow group splits the classes it crosses,
and nothing else has to be looked at again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import simpy

from simulator.interfaces import Flows


class LinkClasses:
    """Partition of the links of a graph, refined by every flow group that is added.

    Parameters
    ----------
    capacity : numpy.ndarray
        Capacity of each link, shape [L].
    """

    def __init__(self, capacity: np.ndarray) -> None:
        values, labels, counts = np.unique(capacity, return_inverse=True, return_counts=True)
        self._label = labels.astype(np.int64)
        self._count: list[int] = counts.tolist()
        self._capacity: list[float] = values.tolist()
        self._members: list[set[int]] = [set() for _ in values]
        self._usage: dict[int, dict[int, float]] = {}

    def __contains__(self, index: int) -> bool:
        return index in self._usage

    def add(self, index: int, links: np.ndarray, usage: np.ndarray) -> None:
        """Add a flow group.

        Parameters
        ----------
        index : int
            Name of the flow group.
        links : numpy.ndarray
            Distinct links that it crosses, shape [U].
        usage : numpy.ndarray
            Flows of the flow group on each, shape [U].
        """
        mine: dict[int, float] = {}
        self._usage[index] = mine
        if not links.size:
            return
        old = self._label[links]
        pairs = np.column_stack([old.astype(float), usage])
        kinds, which, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        which = which.ravel()
        for kind, ((label, load), count) in enumerate(zip(kinds.tolist(), counts.tolist(), strict=True)):
            target = int(label)
            if count < self._count[target]:
                target = self._split(target, count)
                self._label[links[which == kind]] = target
            mine[target] = load
            self._members[target].add(index)

    def _split(self, label: int, count: int) -> int:
        """Take `count` links out of a class into a new one, which all its flow groups load as before."""
        new = len(self._count)
        self._count[label] -= count
        self._count.append(count)
        self._capacity.append(self._capacity[label])
        self._members.append(set(self._members[label]))
        for index in self._members[label]:
            self._usage[index][new] = self._usage[index][label]
        return new

    def constraints(self, indices: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return owner, class and usage of every incidence of some groups, and the capacity of each class.

        Owners count from 0 in the order of `indices`; shapes [I], [I], [I] and [classes].
        """
        loads = [self._usage[index] for index in indices]
        owner = np.repeat(np.arange(len(indices)), [len(load) for load in loads])
        kind = np.array([label for load in loads for label in load], dtype=np.int64)
        usage = np.array([used for load in loads for used in load.values()])
        return owner, kind, usage, np.array(self._capacity)


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


@dataclass(kw_only=True, eq=False)
class Transfer:
    """Flow group at work."""

    flow_group: FlowGroup
    """What moves."""
    left_bytes: float
    """Bytes that each flow still has to carry."""
    size_bytes: float
    """Bytes that each flow has to carry in all."""
    done: simpy.Event
    """Succeeds when the last byte has left."""
    rate_bytes_per_s: float = 0.0
    """Present rate of each flow."""
    weight: float = 1.0
    """Part of a shared link that each flow takes beside one of weight 1; dimensionless."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Flow group that waits for circuits."""

    flow_group: FlowGroup
    """What wants to move."""
    ready: simpy.Event
    """Succeeds when its path stands."""
    patient: Callable[[], bool]
    """Whether its ports should still serve others before they turn to it."""


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
