"""Identical flows that move as one: with the links they load, at work, or waiting for a path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol, cast, runtime_checkable

import numpy as np
import simpy

from heliograph.interfaces import Circuits, Fabric, Flows, LinkGraph


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
