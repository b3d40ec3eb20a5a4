"""Arbitrary flows on a capacitated graph: what is handed to the flow-level simulator, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from heliograph.errors import ParameterError, WorkloadError
from heliograph.interfaces import LinkGraph

Reroute = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Asked for the routes, shape [n, H] padded with -1, of some flows (numbers, shape [n]) when a link of theirs
has lost all its capacity; its second argument is the capacity of every link now, shape [L]. A row of -1
alone says that there is no path: that flow waits."""


def _no_edges() -> np.ndarray:
    return np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class FlowSet:
    """Flows with their routes, starts and order."""

    routes: np.ndarray
    """Links of each flow, shape [F, H], short routes padded with -1; a route without links takes no time."""
    size_bytes: np.ndarray
    """Bytes of each flow, shape [F]."""
    start_s: np.ndarray | None = None
    """Earliest start of each flow, shape [F]; all at 0 by default."""
    after: np.ndarray = field(default_factory=_no_edges)
    """Pairs (first, second), shape [E, 2]: `second` starts when the last byte of `first` has arrived."""
    behind: np.ndarray = field(default_factory=_no_edges)
    """Pairs (first, second), shape [E, 2]: `second` starts when the last byte of `first` has left."""
    usage: np.ndarray | None = None
    """Times that a flow, standing for an orbit of identical ones, loads each link of its route, shape [F, H];
    once by default."""

    @property
    def order(self) -> np.ndarray:
        """Rows (first, second, 1 if its last byte must have arrived, 0 if left), shape [E, 3]."""
        kinds = ((self.after, 1), (self.behind, 0))
        return np.concatenate([np.insert(pairs, 2, kind, axis=1) for pairs, kind in kinds])

    def __post_init__(self) -> None:
        flows = self.size_bytes.size
        if self.routes.ndim != 2 or self.routes.shape[0] != flows:
            msg = f"routes of {flows} flows must have shape ({flows}, hops); got {self.routes.shape}"
            raise WorkloadError(msg)
        if not np.all(np.isfinite(self.size_bytes)) or np.any(self.size_bytes < 0.0):
            bad = int(np.flatnonzero(~(np.isfinite(self.size_bytes) & (self.size_bytes >= 0.0)))[0])
            msg = f"flow {bad}: size_bytes must be finite and at least 0; got {self.size_bytes[bad]}"
            raise WorkloadError(msg)
        if self.start_s is not None and (
            self.start_s.shape != (flows,)
            or not np.all(np.isfinite(self.start_s))
            or self.start_s.min() < 0.0
        ):
            msg = f"start_s must hold {flows} finite times of at least 0; got shape {self.start_s.shape}"
            raise WorkloadError(msg)
        for name in ("after", "behind"):
            pairs = getattr(self, name)
            if pairs.size and (pairs.min() < 0 or pairs.max() >= flows):
                msg = f"{name} must name flows from 0 to {flows - 1}; got {pairs.min()} to {pairs.max()}"
                raise WorkloadError(msg)
        if self.usage is not None and (self.usage.shape != self.routes.shape or self.usage.min() < 0.0):
            msg = f"usage must be at least 0 and have the routes' shape {self.routes.shape}"
            raise WorkloadError(msg)


@dataclass(frozen=True, kw_only=True)
class CapacityChange:
    """Links that get another capacity: a failure (0), a repair, a degraded rate.

    A failed port is its link, a failed switch or node the links that touch it.
    """

    time_s: float
    """When."""
    links: np.ndarray
    """Which, shape [n]."""
    capacity_bytes_per_s: float
    """What each of them carries from then on."""

    def __post_init__(self) -> None:
        for name in ("time_s", "capacity_bytes_per_s"):
            value = getattr(self, name)
            if not np.isfinite(value) or value < 0.0:
                msg = f"CapacityChange: {name} must be finite and at least 0; got {value}"
                raise ParameterError(msg)


@dataclass(frozen=True, kw_only=True)
class FlowTimes:
    """When flows ran."""

    start_s: np.ndarray
    """Start of each flow, shape [F]."""
    finish_s: np.ndarray
    """Arrival of each flow's last byte, shape [F]."""
    link_bytes: np.ndarray
    """Bytes that each link carried, shape [L]."""
    events: int
    """Moments at which rates were shared anew; coinciding ones count once."""
    classes: int
    """Classes of flows that were told apart at the start."""

    @property
    def makespan_s(self) -> float:
        """When the last byte has arrived."""
        return float(self.finish_s.max(initial=0.0))


def outage(
    links: Sequence[int] | np.ndarray, graph: LinkGraph, *, start_s: float, repair_s: float | None = None
) -> tuple[CapacityChange, ...]:
    """Return the changes of links that fail and, if they are repaired, come back as they were.

    Parameters
    ----------
    links : sequence of int
        What fails.
    graph : LinkGraph
        The links as they are otherwise.
    start_s : float
        When they fail.
    repair_s : float, optional
        When they work again; never by default.

    Raises
    ------
    ParameterError
        If the repair is not after the failure, or a link does not exist.
    """
    failed = np.unique(np.asarray(links, dtype=np.int64))
    count = graph.capacity_bytes_per_s.size
    if failed.size and (failed[0] < 0 or failed[-1] >= count):
        msg = f"links {failed[0]} to {failed[-1]} cannot fail: there are links 0 to {count - 1}"
        raise ParameterError(msg)
    changes = [CapacityChange(time_s=start_s, links=failed, capacity_bytes_per_s=0.0)]
    if repair_s is not None:
        if repair_s <= start_s:
            msg = f"a repair must come after the failure ({start_s:g} s); got {repair_s:g} s"
            raise ParameterError(msg)
        for value in np.unique(graph.capacity_bytes_per_s[failed]):
            same = failed[graph.capacity_bytes_per_s[failed] == value]
            changes.append(CapacityChange(time_s=repair_s, links=same, capacity_bytes_per_s=float(value)))
    return tuple(changes)


def cut_bound_s(flows: FlowSet, graph: LinkGraph) -> float:
    """Return a time that no schedule on these routes can beat.

    Notes
    -----
    No link passes its bytes faster than its capacity, counted from the first start among its flows, and no
    flow its own faster than its narrowest link lets it.
    """
    crossed = flows.routes >= 0
    if not crossed.any():
        return 0.0
    usage = np.ones(flows.routes.shape) if flows.usage is None else flows.usage
    start = np.zeros(flows.size_bytes.size) if flows.start_s is None else flows.start_s
    flow, hop = np.nonzero(crossed)
    link = flows.routes[flow, hop]
    capacity = graph.capacity_bytes_per_s
    total = np.bincount(link, usage[flow, hop] * flows.size_bytes[flow], capacity.size)
    first = np.full(capacity.size, np.inf)
    np.minimum.at(first, link, start[flow])
    used = total > 0.0
    by_link = first[used] + total[used] / capacity[used]
    latency = np.bincount(flow, graph.latency_s[link], flows.size_bytes.size)
    by_flow = (start + latency)[flow] + flows.size_bytes[flow] * usage[flow, hop] / capacity[link]
    return float(max(by_link.max(initial=0.0), by_flow.max()))
