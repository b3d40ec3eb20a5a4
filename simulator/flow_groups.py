"""Identical flows that move as one: with the links they load, at work, or waiting for a path.

Links that are alike to all traffic, merged, so that a solve costs the same at any size.

Two links are alike when they have the same capacity and every bundle of flows loads them equally; they are
one constraint. A new bundle splits the classes it crosses, and nothing else has to be looked at again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol, cast, runtime_checkable

import numpy as np
import simpy

from simulator.interfaces import Circuits, Fabric, Flows, LinkGraph


class LinkClasses:
    """Partition of the links of a graph, refined by every bundle that is added.

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
        """Add a bundle.

        Parameters
        ----------
        index : int
            Name of the bundle.
        links : numpy.ndarray
            Distinct links that it crosses, shape [U].
        usage : numpy.ndarray
            Flows of the bundle on each, shape [U].
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
        """Take `count` links out of a class into a new one, which all its bundles load as before."""
        new = len(self._count)
        self._count[label] -= count
        self._count.append(count)
        self._capacity.append(self._capacity[label])
        self._members.append(set(self._members[label]))
        for index in self._members[label]:
            self._usage[index][new] = self._usage[index][label]
        return new

    def constraints(self, indices: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return owner, class and usage of every incidence of some bundles, and the capacity of each class.

        Owners count from 0 in the order of `indices`; shapes [I], [I], [I] and [classes].
        """
        loads = [self._usage[index] for index in indices]
        owner = np.repeat(np.arange(len(indices)), [len(load) for load in loads])
        kind = np.array([label for load in loads for label in load], dtype=np.int64)
        usage = np.array([used for load in loads for used in load.values()])
        return owner, kind, usage, np.array(self._capacity)


@dataclass(kw_only=True, eq=False)
class Bundle:
    """Identical flows of one rank class, with the links they load under the present circuits."""

    index: int
    """Number of the bundle; orders solves, so that equal runs give equal bytes."""
    flows: Flows
    """The flows; `size_bytes` is not used."""
    demand: tuple[Flows, ...]
    """Traffic of the same endpoints that a circuit policy may serve together with this one."""
    links: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Distinct links, shape [U]."""
    usage: np.ndarray = field(default_factory=lambda: np.empty(0))
    """Flows of the bundle on each of them, shape [U]."""
    latency_s: float = 0.0
    """Longest path latency."""
    version: int = -1
    """Circuits' version that the links belong to."""
    lost: int = -1
    """Circuits' version under which it last had no path."""


@dataclass(kw_only=True, eq=False)
class Transfer:
    """One bundle at work."""

    bundle: Bundle
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
    """A bundle without a lit path."""

    bundle: Bundle
    """What wants to move."""
    ready: simpy.Event
    """Succeeds when the path is lit."""
    patient: Callable[[], bool]
    """Whether its ports should still serve others before they turn to it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Loads:
    """What one byte per second of every flow of a bundle asks of the links."""

    links: np.ndarray
    """Distinct links, shape [U]."""
    usage: np.ndarray
    """Share of each that the flows take together, in flows, shape [U]; relays may make it no whole number."""
    latency_s: float
    """Longest path latency."""


@runtime_checkable
class Spreads(Protocol):
    """A fabric that spreads flows over relays, so that a list of links per flow does not tell their load."""

    def loads(self, circuits: Circuits, flows: Flows) -> Loads:
        """Return what flows of equal rate take of every link, their relays' included."""
        ...


@cache
def _spreads(kind: type[Fabric]) -> bool:
    """Return whether fabrics of a kind spread flows; asked at each change of circuits."""
    return issubclass(kind, Spreads)


def fabric_loads(fabric: Fabric, circuits: Circuits, flows: Flows, graph: LinkGraph) -> Loads:
    """Return what flows of equal rate take of every link over the present circuits of a fabric."""
    if _spreads(type(fabric)):
        return cast("Spreads", fabric).loads(circuits, flows)
    links, usage, latency_s = loads(fabric.route(circuits, flows), graph, flows.weights)
    return Loads(links=links, usage=usage, latency_s=latency_s)


def loads(
    routes: np.ndarray, graph: LinkGraph, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return distinct links, flows on each (their weights, if given), and the longest latency of routes."""
    crossed = routes >= 0
    latency = np.where(crossed, graph.latency_s[np.where(crossed, routes, 0)], 0.0)
    links, counts = np.unique(routes[crossed], return_counts=True)
    usage = counts.astype(float)
    if weights is not None:
        carried = np.broadcast_to(weights[:, None], routes.shape)[crossed]
        usage = np.bincount(np.searchsorted(links, routes[crossed]), weights=carried, minlength=links.size)
        links, usage = links[usage > 0.0], usage[usage > 0.0]
    return links, usage, float(latency.sum(axis=1).max(initial=0.0))
