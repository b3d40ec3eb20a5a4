"""Flow-level simulation: max-min fair rates on shared links, followed from one event to the next.

Events are starts, ends and changes of capacity; those that coincide are one. After an event only those rates
are found anew that it can have moved: of flows joined to it by shared links, and of these the ones at least
as fast as the slowest flow that left.

Flows that are alike are one class, by the coarsest equitable partition of flows and links: flows of one class
cross as many links of every class, and links of one class are crossed by as many flows of every class.
Max-min rates follow from these numbers alone and are unique, so an all-to-all on a torus shrinks to one flow
for every displacement, and the links of one direction to one link.

A fluid flows on all its links at once; a chunk of a store-and-forward network is on one link at a time. Each
chunk's hop is a flow of one link, after the same chunk's hop before it and after the chunk ahead of it.

References
----------
Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2: max-min fairness.
Cardon and Crochemore, "Partitioning a graph in O(|A| log2 |V|)", Theoretical Computer Science 19 (1982).
Dally and Towles, Principles and Practices of Interconnection Networks, section 8.4: dimension order.
Sack and Gropp, "Collective algorithms for multiported torus networks", ACM TOPC 1 (2015): all-reduces that
use all ports of a node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy

from simulator.engine.network import fill
from simulator.errors import ParameterError, RouteError, WorkloadError
from simulator.interfaces import LinkGraph
from simulator.keys import GOLDEN_GAMMA, finalised


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Classes of flows and of links."""

    flow_class: np.ndarray
    """Class of each flow, shape [F]."""
    link_class: np.ndarray
    """Class of each link, shape [L]."""
    flows: int
    """Classes of flows."""
    links: int
    """Classes of links."""


def _mixed(values: np.ndarray) -> np.ndarray:
    """Return 64 well-mixed bits of whole numbers."""
    return finalised((values.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN_GAMMA))


def _labels(*keys: np.ndarray) -> np.ndarray:
    """Return one whole number for each distinct combination of keys, from 0."""
    label = np.unique(keys[0], return_inverse=True)[1].ravel()
    for key in keys[1:]:
        other = np.unique(key, return_inverse=True)[1].ravel()
        label = np.unique(label * (other.max(initial=0) + 1) + other, return_inverse=True)[1].ravel()
    return np.asarray(label, dtype=np.int64)


def partition(
    routes: np.ndarray,
    flow_keys: tuple[np.ndarray, ...],
    link_keys: tuple[np.ndarray, ...],
    after: np.ndarray | None = None,
) -> Partition:
    """Return the coarsest partition in which flows of a class behave alike.

    Parameters
    ----------
    routes : numpy.ndarray
        Links of each flow, shape [F, H], padded with -1.
    flow_keys : tuple of numpy.ndarray
        What tells flows apart from the start (bytes, start, latency), shape [F] each.
    link_keys : tuple of numpy.ndarray
        What tells links apart (capacity, failures), shape [L] each.
    after : numpy.ndarray, optional
        Rows (first, second, kind) of flows, shape [E, 3].

    Notes
    -----
    Colours are refined until their number stays: each is hashed with the sum of its neighbours' hashes. Two
    different neighbourhoods get one sum with a probability of 2^-64 for every pair.
    """
    flows, links = routes.shape[0], link_keys[0].size
    crossed = routes >= 0
    flow, hop = np.nonzero(crossed)
    link = routes[flow, hop]
    order = np.argsort(link, kind="stable")
    used, first = np.unique(link[order], return_index=True)
    by_link = flow[order]
    target = np.where(crossed, routes, links)
    edges = np.empty((0, 3), dtype=np.int64) if after is None else after
    flow_class, link_class = _labels(*flow_keys), _labels(*link_keys)
    count = (int(flow_class.max(initial=-1)) + 1, int(link_class.max(initial=-1)) + 1)
    while count[0] < flows:
        around = np.zeros(links, dtype=np.uint64)
        if used.size:
            around[used] = np.add.reduceat(_mixed(flow_class)[by_link], first)
        link_class = _labels(link_class, around)
        of_link = np.append(_mixed(link_class), np.uint64(0))
        sums = [of_link[target].sum(axis=1, dtype=np.uint64)]
        if edges.size:
            before = np.zeros(flows, dtype=np.uint64)
            np.add.at(
                before, edges[:, 1], _mixed(_mixed(flow_class)[edges[:, 0]] + edges[:, 2].astype(np.uint64))
            )
            sums.append(before)
        flow_class = _labels(flow_class, *sums)
        now = (int(flow_class.max()) + 1, int(link_class.max()) + 1)
        if now == count:
            return Partition(flow_class=flow_class, link_class=link_class, flows=now[0], links=now[1])
        count = now
    return Partition(flow_class=np.arange(flows), link_class=np.arange(links), flows=flows, links=links)


@dataclass(frozen=True, kw_only=True)
class FlowClasses:
    """Classes of flows on classes of links."""

    flow_class: np.ndarray
    """Class of each flow, shape [F]."""
    member: np.ndarray
    """One flow of each class, shape [C]."""
    link: np.ndarray
    """One link of each class of links that any flow crosses, shape [K]."""
    routes: np.ndarray
    """Link classes on the route of each class, shape [H, C]; a short route repeats its first with no load."""
    load: np.ndarray
    """Load on a link of that class when every flow of the class has a rate of 1, shape [H, C]."""
    linked: np.ndarray
    """Whether a class crosses links at all, shape [C]."""
    before: np.ndarray
    """Rows (first, second, kind) of classes, shape [E, 3], each once."""


def merge(
    routes: np.ndarray,
    usage: np.ndarray | None,
    flow_keys: tuple[np.ndarray, ...],
    link_keys: tuple[np.ndarray, ...],
    after: np.ndarray,
) -> FlowClasses:
    """Return flows merged as far as they behave alike.

    Parameters
    ----------
    routes : numpy.ndarray
        Links of each flow, shape [F, H], padded with -1.
    usage : numpy.ndarray, optional
        Loads of flows that stand for orbits already, shape [F, H]; these are not merged again.
    flow_keys, link_keys : tuple of numpy.ndarray
        What tells flows [F] and links [L] apart.
    after : numpy.ndarray
        Rows (first, second, kind) of flows, shape [E, 3].
    """
    flows, links = routes.shape[0], link_keys[0].size
    if usage is None:
        found = partition(routes, flow_keys, link_keys, after)
    else:
        found = Partition(flow_class=np.arange(flows), link_class=np.arange(links), flows=flows, links=links)
    member = np.zeros(found.flows, dtype=np.int64)
    member[found.flow_class[::-1]] = np.arange(flows)[::-1]
    taken = routes[member].T
    crossed = taken >= 0
    kinds, place = np.unique(found.link_class[taken[crossed]], return_inverse=True)
    shown = np.zeros(taken.shape, dtype=np.int64)
    shown[crossed] = place.ravel()
    hop = np.argmax(crossed, axis=0) if taken.shape[0] else np.zeros(found.flows, dtype=np.int64)
    linked = np.logical_or.reduce(crossed, axis=0)
    if taken.shape[0]:
        shown = np.where(crossed, shown, shown[hop, np.arange(found.flows)])
    link = np.zeros(found.links, dtype=np.int64)
    link[found.link_class[::-1]] = np.arange(links)[::-1]
    count = np.bincount(found.flow_class, minlength=found.flows)
    share = count / np.bincount(found.link_class, minlength=found.links)[kinds][shown] if kinds.size else 0.0
    times = 1.0 if usage is None else usage[member].T
    edges = after.copy()
    edges[:, :2] = found.flow_class[after[:, :2]]
    return FlowClasses(
        flow_class=found.flow_class,
        member=member,
        link=link[kinds],
        routes=np.ascontiguousarray(shown),
        load=np.ascontiguousarray(np.where(crossed, share * times, 0.0)),
        linked=linked,
        before=np.unique(edges, axis=0) if found.flows < flows and edges.size else edges,
    )


def components(routes: np.ndarray, links: int) -> np.ndarray:
    """Return which flows share links, directly or through others: a number for each, shape [C].

    Parameters
    ----------
    routes : numpy.ndarray
        Links of each flow, shape [H, C], all valid.
    links : int
        Links in all.
    """
    hops, flows = routes.shape
    pairs = (routes.ravel() + flows, np.tile(np.arange(flows), hops))
    graph = scipy.sparse.coo_array(
        (np.ones(routes.size, dtype=np.int8), pairs), shape=(flows + links, flows + links)
    )
    return np.asarray(scipy.sparse.csgraph.connected_components(graph, directed=False)[1][:flows])


Watch = Callable[[float, np.ndarray], None]
"""Takes a moment and the rate of each flow from then on, shape [F]."""
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
    """Starts and ends of flows."""

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


_TOGETHER = 1e-12
"""Relative distance of times within which events are one; dimensionless."""
_SLOWER = 1e-9
"""Relative margin below which a rate is certainly under another; dimensionless."""
_WAITING, _RUNNING, _STALLED, _DONE = range(4)


def simulate(
    flows: FlowSet,
    graph: LinkGraph,
    *,
    changes: tuple[CapacityChange, ...] = (),
    reroute: Reroute | None = None,
    incremental: bool = True,
    watch: Watch | None = None,
) -> FlowTimes:
    """Return when each flow starts and arrives.

    Parameters
    ----------
    flows : FlowSet
        The flows.
    graph : LinkGraph
        The links.
    changes : tuple of CapacityChange
        Failures and repairs, in any order.
    reroute : callable, optional
        Finds other routes for flows one of whose links is dead; without it, or where it finds none, they wait
        for a repair.
    incremental : bool
        Whether only rates that can have changed are found anew. It changes no number beyond rounding, only
        the speed.
    watch : callable, optional
        Given each moment at which rates change, and the rate of each flow from then on, shape [F].

    Raises
    ------
    RouteError
        If a route names a link that does not exist, or flows wait for a link that is never repaired.
    WorkloadError
        If flows wait for each other.

    Notes
    -----
    A flow is a fluid: it flows at the same rate on all its links, and its last byte arrives a path latency
    after it has left. Removing a flow of rate r changes no rate below r: the links that fill up at lower
    levels are not on its route. Adding one changes no rate below the least equal share of its links.
    """
    simulation = _Simulation(flows, graph, changes, reroute, incremental=incremental)
    return simulation.run(watch)


class _Simulation:
    """State of flows between two events; one instance runs once."""

    def __init__(
        self,
        flows: FlowSet,
        graph: LinkGraph,
        changes: tuple[CapacityChange, ...],
        reroute: Reroute | None,
        *,
        incremental: bool,
    ) -> None:
        links = graph.capacity_bytes_per_s.size
        for routes in (flows.routes, *(change.links[None, :] for change in changes)):
            if routes.size and (routes.max() >= links or routes.min() < -1):
                msg = f"a route or a change names link {routes.max()}; there are links 0 to {links - 1}"
                raise RouteError(msg)
        if reroute is not None and flows.usage is not None:
            msg = "flows that stand for orbits (usage) have no single path to reroute; give them one by one"
            raise RouteError(msg)
        self._given, self._graph, self._reroute, self._incremental = flows, graph, reroute, incremental
        self._changes = sorted(changes, key=lambda change: change.time_s)
        self._link_capacity = graph.capacity_bytes_per_s.astype(float).copy()
        count = flows.size_bytes.size
        self._all_routes = flows.routes.astype(np.int64)
        self._flow = {
            "left": flows.size_bytes.astype(float).copy(),
            "ready": np.zeros(count) if flows.start_s is None else flows.start_s.astype(float).copy(),
            "began": np.full(count, np.inf),
            "finish": np.full(count, np.inf),
            "status": np.full(count, _WAITING),
        }
        self._order = flows.order
        self._link_bytes = np.zeros(links)
        self._now_s, self._next_change, self._events = 0.0, 0, 0
        self._merge()
        self._first_classes = self._kinds.member.size

    def run(self, watch: Watch | None = None) -> FlowTimes:
        """Return the times of all flows."""
        with np.errstate(divide="ignore", invalid="ignore"):
            while self._step():
                if watch is not None:
                    rates = np.zeros(self._rate.size)
                    rates[self._alive] = self._rate[self._alive]
                    watch(self._now_s, rates[self._kinds.flow_class])
        self._expand()
        self._check_done()
        return FlowTimes(
            start_s=self._flow["began"],
            finish_s=self._flow["finish"],
            link_bytes=self._link_bytes,
            events=self._events,
            classes=self._first_classes,
        )

    def _merge(self) -> None:
        """Build classes of flows from what is true of each flow now."""
        flow, routes = self._flow, self._all_routes
        crossed = routes >= 0
        latency = np.where(crossed, self._graph.latency_s[np.where(crossed, routes, 0)], 0.0).sum(axis=1)
        later = np.zeros(self._link_capacity.size)
        for index, change in enumerate(self._changes[self._next_change :]):
            later[change.links] += np.sqrt(index + 2.0)  # sums of distinct roots tell sets apart
        self._kinds: FlowClasses = merge(
            routes,
            self._given.usage,
            (*flow.values(), latency),
            (self._link_capacity, later),
            self._order,
        )
        member = self._kinds.member
        self._left, self._ready, self._began, self._finish = (
            flow[name][member].copy() for name in ("left", "ready", "began", "finish")
        )
        self._status = flow["status"][member].copy()
        self._at_merge = self._left.copy()
        self._latency = latency[member]
        self._capacity = self._link_capacity[self._kinds.link]
        self._plain = bool((self._kinds.load == 1.0).all())
        self._rate = np.zeros(member.size)
        self._end = np.full(member.size, np.inf)
        self._alive = np.flatnonzero(self._status == _RUNNING)
        self._rate[self._alive] = np.inf
        self._order_classes()
        self._split_components()

    def _order_classes(self) -> None:
        """Note which classes wait for which."""
        edges = self._kinds.before
        edges = edges[self._status[edges[:, 0]] != _DONE] if edges.size else edges
        self._pending = np.bincount(edges[:, 1], minlength=self._left.size)
        edges = edges[np.argsort(edges[:, 0], kind="stable")]
        self._followers, self._arrives = edges[:, 1], edges[:, 2] * 1.0
        self._first = np.searchsorted(edges[:, 0], np.arange(self._left.size + 1))
        self._queue = np.flatnonzero((self._status == _WAITING) & (self._pending == 0))

    def _split_components(self) -> None:
        """Find out which unfinished classes share links."""
        self._component = np.zeros(self._left.size, dtype=np.int64)
        open_now = np.flatnonzero((self._status != _DONE) & self._kinds.linked)
        self._open_at_split = open_now.size
        self._components = 1
        if open_now.size:
            found = components(self._kinds.routes[:, open_now], self._capacity.size)
            self._component[open_now] = found
            self._components = int(found.max()) + 1

    def _step(self) -> bool:
        """Go to the next event and through it; return whether there was one."""
        times = [
            self._end.take(self._alive).min(initial=np.inf),
            self._ready.take(self._queue).min(initial=np.inf),
            self._changes[self._next_change].time_s if self._next_change < len(self._changes) else np.inf,
        ]
        now = min(times)
        if now == np.inf:
            return False
        self._now_s, self._events = now, self._events + 1
        limit = now * (1.0 + _TOGETHER)
        ended = self._finished(limit) if times[0] <= limit else np.empty(0, dtype=np.int64)
        started = self._started(limit)
        changed = times[2] <= limit
        if changed:
            self._change(limit)
        elif started.size and not self._capacity.take(self._kinds.routes[:, started]).all():
            self._find_ways(started)
            changed = True
        if self._incremental and not changed:
            self._share(ended, started)
        else:
            self._set_rates(self._alive, 0.0)
        return True

    def _finished(self, limit: float) -> np.ndarray:
        """Take out the classes whose last byte leaves now and return them."""
        over = self._end.take(self._alive) <= limit
        ended = self._alive[over]
        self._alive = self._alive[~over]
        self._left[ended] = 0.0
        self._arrive(ended)
        return ended

    def _arrive(self, ended: np.ndarray) -> None:
        self._status[ended] = _DONE
        self._finish[ended] = self._now_s + self._latency[ended]
        if not self._followers.size:
            return
        for one in ended[self._first[ended] < self._first[ended + 1]].tolist():
            edges = slice(self._first[one], self._first[one + 1])
            then = self._followers[edges]
            np.subtract.at(self._pending, then, 1)
            np.maximum.at(self._ready, then, self._now_s + self._arrives[edges] * self._latency[one])
            then = np.unique(then)
            free = then[self._pending[then] == 0]
            if free.size:
                self._queue = np.append(self._queue, free)

    def _started(self, limit: float) -> np.ndarray:
        """Start the classes whose time has come and return those that now run on links."""
        started = [np.empty(0, dtype=np.int64)]
        while self._queue.size:
            due = self._ready.take(self._queue) <= limit
            if not due.any():
                break
            now = self._queue[due]
            self._queue = self._queue[~due]
            self._began[now] = self._now_s
            instant = (self._left[now] <= 0.0) | ~self._kinds.linked[now]
            self._left[now[instant & ~self._kinds.linked[now]]] = 0.0
            self._arrive(now[instant])
            started.append(now[~instant])
        found = np.concatenate(started)
        self._status[found] = _RUNNING
        self._rate[found] = np.inf
        self._alive = np.append(self._alive, found) if found.size else self._alive
        return found

    def _share(self, ended: np.ndarray, started: np.ndarray) -> None:
        """Find the rates anew that starts and ends can have moved."""
        alive, routes = self._alive, self._kinds.routes
        if not alive.size or not (ended.size or started.size):
            return
        floor = self._rate.take(ended).min(initial=np.inf)
        if started.size:
            load = np.bincount(
                routes.take(alive, 1).ravel(), self._kinds.load.take(alive, 1).ravel(), self._capacity.size
            )
            crossed = routes.take(started, 1)
            floor = min(floor, (self._capacity.take(crossed) / load.take(crossed)).min())
        moves = self._rate.take(alive) >= floor * (1.0 - _SLOWER)
        if self._components > 1:
            joined = np.zeros(self._components, dtype=bool)
            joined[self._component[ended]] = True
            joined[self._component[started]] = True
            moves &= joined.take(self._component.take(alive))
        moved = alive[moves]
        if not moved.size:
            return
        touched = np.zeros(self._capacity.size, dtype=bool)
        touched[routes.take(ended, 1)] = True
        if started.size or touched.take(routes.take(moved, 1)).any():
            self._set_rates(moved, alive[~moves])
        if 64 < 2 * (alive.size + self._queue.size) < self._open_at_split:
            self._split_components()

    def _set_rates(self, moved: np.ndarray, kept: np.ndarray | float) -> None:
        """Find the rates of some classes, those of others being fixed."""
        if not moved.size:
            return
        kinds = self._kinds
        taken: float | np.ndarray = 0.0
        if isinstance(kept, np.ndarray) and kept.size:
            used = kinds.load.take(kept, 1) * self._rate.take(kept)
            taken = np.bincount(kinds.routes.take(kept, 1).ravel(), used.ravel(), self._capacity.size)
        load = None if self._plain else kinds.load.take(moved, 1)
        new = fill(kinds.routes.take(moved, 1), load, self._capacity, taken)
        old = self._rate.take(moved)
        other = (new != old).nonzero()[0]
        moved, new, old = moved.take(other), new.take(other), old.take(other)
        left = np.where(np.isinf(old), self._left.take(moved), (self._end.take(moved) - self._now_s) * old)
        self._left[moved] = left
        self._end[moved] = self._now_s + left / new
        self._rate[moved] = new

    def _change(self, limit: float) -> None:
        """Change capacities, and find ways for the flows that lose theirs or wait for one."""
        while self._next_change < len(self._changes) and self._changes[self._next_change].time_s <= limit:
            change = self._changes[self._next_change]
            self._link_capacity[change.links] = change.capacity_bytes_per_s
            self._next_change += 1
        self._capacity = self._link_capacity[self._kinds.link]
        waiting = np.flatnonzero(self._status == _STALLED)
        self._status[waiting] = _RUNNING
        self._rate[waiting] = np.inf
        self._alive = np.append(self._alive, waiting)
        self._find_ways(self._alive)

    def _find_ways(self, classes: np.ndarray) -> None:
        """Reroute or hold back those of some running classes that cross a dead link."""
        dead = classes[~self._capacity.take(self._kinds.routes[:, classes]).all(axis=0)]
        if not dead.size:
            return
        if self._reroute is not None:
            flows = np.flatnonzero(np.isin(self._kinds.flow_class, dead))
            self._expand()
            self._take_routes(flows, self._reroute(flows, self._link_capacity.copy()))
            self._merge()
            dead = self._alive[~self._capacity.take(self._kinds.routes[:, self._alive]).all(axis=0)]
        running = self._rate[dead] < np.inf
        some = dead[running]
        self._left[some] = (self._end[some] - self._now_s) * self._rate[some]
        self._status[dead], self._rate[dead], self._end[dead] = _STALLED, 0.0, np.inf
        self._alive = self._alive[self._status[self._alive] == _RUNNING]

    def _take_routes(self, flows: np.ndarray, routes: np.ndarray) -> None:
        """Put flows on other routes, where there are any."""
        found = np.asarray(routes, dtype=np.int64)
        if (
            found.ndim != 2
            or found.shape[0] != flows.size
            or found.max(initial=-1) >= self._link_capacity.size
        ):
            msg = f"reroute must return known links, shape ({flows.size}, hops); got {found.shape}"
            raise RouteError(msg)
        hops = max(found.shape[1], self._all_routes.shape[1])
        wider = np.full((self._all_routes.shape[0], hops), -1, dtype=np.int64)
        wider[:, : self._all_routes.shape[1]] = self._all_routes
        way = (found >= 0).any(axis=1)
        wider[flows[way]] = -1
        wider[flows[way], : found.shape[1]] = found[way]
        self._all_routes = wider

    def _expand(self) -> None:
        """Carry what is true of classes over to their flows, and count the bytes that links carried."""
        running = self._alive[self._rate[self._alive] < np.inf]
        self._left[running] = (self._end[running] - self._now_s) * self._rate[running]
        label = self._kinds.flow_class
        carried = (self._at_merge - self._left)[label]
        crossed = self._all_routes >= 0
        if self._given.usage is not None:
            weight = self._given.usage * carried[:, None]
        else:
            weight = np.broadcast_to(carried[:, None], crossed.shape)
        self._link_bytes += np.bincount(self._all_routes[crossed], weight[crossed], self._link_capacity.size)
        values = (self._left, self._ready, self._began, self._finish, self._status)
        for name, value in zip(self._flow, values, strict=True):
            self._flow[name] = value[label]

    def _check_done(self) -> None:
        status = self._flow["status"]
        stalled = np.flatnonzero(status == _STALLED)
        if stalled.size:
            one = int(stalled[0])
            route = self._all_routes[one]
            link = int(route[(route >= 0) & (self._link_capacity[route] <= 0.0)][0])
            msg = (
                f"{stalled.size} flows wait for ever (first: flow {one}, for link {link}, which has no "
                "capacity and is not repaired); schedule a repair or give a reroute that has another path"
            )
            raise RouteError(msg)
        waiting = np.flatnonzero(status == _WAITING)
        if waiting.size:
            msg = f"{waiting.size} flows wait for each other (first: flow {waiting[0]}); undo the cycle"
            raise WorkloadError(msg)
