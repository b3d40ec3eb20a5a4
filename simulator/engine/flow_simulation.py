"""Flow-level simulation: max-min fair rates on shared links, followed from one event to the next.

Events are starts and ends; those that coincide are one. After an event only those rates are found anew that
it can have moved: of flows joined to it by shared links, and of these the ones at least as fast as the
slowest flow that left.

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
from simulator.errors import RouteError, WorkloadError
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
        Properties in which flows of a class are equal (bytes, start, latency), shape [F] each.
    link_keys : tuple of numpy.ndarray
        Properties in which links of a class are equal (capacity), shape [L] each.
    after : numpy.ndarray, optional
        Rows (first, second, kind): flow `second` waits for flow `first`, shape [E, 3].

    Notes
    -----
    Colour refinement: at first the colour of a flow or a link stands for its keys. In each pass the colour of
    a link is told apart further by the colours of the flows that cross it, and then the colour of a flow by
    those of its links and of the flows that it waits for, until a pass finds no more colours. A neighbourhood
    is the sum of its colours' hashes; two different ones get one sum with a probability of 2^-64.
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
    flow_keys, link_keys, after
        As in `partition`; after has shape [E, 3].
    """
    flows, links = routes.shape[0], link_keys[0].size
    if usage is None:
        classes = partition(routes, flow_keys, link_keys, after)
    else:
        classes = Partition(
            flow_class=np.arange(flows), link_class=np.arange(links), flows=flows, links=links
        )
    member, link = (
        _first_members(classes.flow_class, classes.flows),
        _first_members(classes.link_class, classes.links),
    )
    route = routes[member].T
    crossed = route >= 0
    used, place = np.unique(classes.link_class[route[crossed]], return_inverse=True)
    class_route = np.zeros(route.shape, dtype=np.int64)
    class_route[crossed] = place.ravel()
    if route.shape[0]:  # short routes repeat their first link
        first_hop = np.argmax(crossed, axis=0)
        class_route = np.where(crossed, class_route, class_route[first_hop, np.arange(classes.flows)])
    flows_of = np.bincount(classes.flow_class, minlength=classes.flows)
    links_of = np.bincount(classes.link_class, minlength=classes.links)[used]
    load = flows_of / links_of[class_route] if used.size else 0.0
    times = 1.0 if usage is None else usage[member].T
    edges = after.copy()
    edges[:, :2] = classes.flow_class[after[:, :2]]
    return FlowClasses(
        flow_class=classes.flow_class,
        member=member,
        link=link[used],
        routes=np.ascontiguousarray(class_route),
        load=np.ascontiguousarray(np.where(crossed, load * times, 0.0)),
        linked=np.logical_or.reduce(crossed, axis=0),
        before=np.unique(edges, axis=0) if classes.flows < flows and edges.size else edges,
    )


def _first_members(class_of: np.ndarray, classes: int) -> np.ndarray:
    """Return the first member of each class, shape [classes]."""
    first = np.zeros(classes, dtype=np.int64)
    first[class_of[::-1]] = np.arange(class_of.size)[::-1]
    return first


def components(routes: np.ndarray, links: int) -> np.ndarray:
    """Return the component of each flow, shape [C]: flows of one share links, directly or through others.

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


def simulate(
    flows: FlowSet,
    graph: LinkGraph,
    *,
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
    incremental : bool
        Whether only rates that can have changed are found anew. It changes no number beyond rounding, only
        the speed.
    watch : callable, optional
        Given each moment at which rates change, and the rate of each flow from then on, shape [F].

    Raises
    ------
    RouteError
        If a route names a link that does not exist, or one without capacity that has bytes to carry.
    WorkloadError
        If flows wait for each other.

    Notes
    -----
    A flow is a fluid: it flows at the same rate on all its links, and its last byte arrives a path latency
    after it has left. Removing a flow of rate r changes no rate below r: the links that fill up at lower
    levels are not on its route. Adding one changes no rate below the least equal share of its links.
    """
    _check_links(flows, graph)
    return _Simulation(flows, graph, incremental=incremental).run(watch)


def _check_links(flows: FlowSet, graph: LinkGraph) -> None:
    """Check that routes name links, and those of flows with bytes links with capacity."""
    routes, capacity = flows.routes, graph.capacity_bytes_per_s
    if routes.size and (routes.max() >= capacity.size or routes.min() < -1):
        msg = f"a route names link {routes.max()}; there are links 0 to {capacity.size - 1}"
        raise RouteError(msg)
    dead = np.isin(routes, np.flatnonzero(capacity <= 0.0)) & (flows.size_bytes > 0.0)[:, None]
    if dead.any():
        flow, hop = (int(found[0]) for found in dead.nonzero())
        msg = f"flow {flow} crosses link {routes[flow, hop]}, which has no capacity; give it another route"
        raise RouteError(msg)


def _carried(flows: FlowSet, graph: LinkGraph) -> np.ndarray:
    """Return the bytes that each link has carried once all flows have arrived, shape [L]."""
    crossed = flows.routes >= 0
    load = np.broadcast_to(flows.size_bytes[:, None], crossed.shape)
    load = load if flows.usage is None else flows.usage * load
    return np.bincount(flows.routes[crossed], load[crossed], graph.capacity_bytes_per_s.size)


class _Simulation:
    """State of the classes of flows between two events; one instance runs once.

    A class waits in `_queue` until `_ready`, then is `_alive` at a `_rate` that ends it at `_end`. `_left` is
    the bytes of a flow when its rate last changed. An event ends and starts classes, then finds the rates
    anew that this can have changed (`_share`).
    """

    def __init__(self, flows: FlowSet, graph: LinkGraph, *, incremental: bool) -> None:
        self._given, self._graph, self._incremental = flows, graph, incremental
        routes = flows.routes.astype(np.int64)
        crossed = routes >= 0
        size = flows.size_bytes.astype(float)
        ready = np.zeros(size.size) if flows.start_s is None else flows.start_s.astype(float)
        latency = np.where(crossed, graph.latency_s[np.where(crossed, routes, 0)], 0.0).sum(axis=1)
        capacity = graph.capacity_bytes_per_s.astype(float)
        self._classes: FlowClasses = merge(
            routes, flows.usage, (size, ready, latency), (capacity,), flows.order
        )
        member = self._classes.member
        self._left, self._ready, self._latency = size[member], ready[member], latency[member]
        self._began, self._finish = np.full(member.size, np.inf), np.full(member.size, np.inf)
        self._rate, self._end = np.zeros(member.size), np.full(member.size, np.inf)
        self._alive = np.empty(0, dtype=np.int64)
        self._capacity = capacity[self._classes.link]
        self._unit_loads = bool((self._classes.load == 1.0).all())
        self._now_s, self._events = 0.0, 0
        self._order_classes()
        self._split_components()

    def run(self, watch: Watch | None = None) -> FlowTimes:
        """Return the times of all flows."""
        flow_class = self._classes.flow_class
        with np.errstate(divide="ignore", invalid="ignore"):
            while self._step():
                if watch is not None:
                    rates = np.zeros(self._rate.size)
                    rates[self._alive] = self._rate[self._alive]
                    watch(self._now_s, rates[flow_class])
        began = self._began[flow_class]
        waiting = np.flatnonzero(began == np.inf)
        if waiting.size:
            msg = f"{waiting.size} flows wait for each other (first: flow {waiting[0]}); undo the cycle"
            raise WorkloadError(msg)
        return FlowTimes(
            start_s=began,
            finish_s=self._finish[flow_class],
            link_bytes=_carried(self._given, self._graph),
            events=self._events,
            classes=self._rate.size,
        )

    def _order_classes(self) -> None:
        """Set up the waiting of classes for each other.

        Class c is followed by ``_followers[_first[c]:_first[c + 1]]``; `_arrives` is 1 where the follower
        waits for the arrival of its last byte, 0 where for its departure. `_pending` is the classes that each
        still waits for.
        """
        edges = self._classes.before
        self._pending = np.bincount(edges[:, 1], minlength=self._left.size)
        edges = edges[np.argsort(edges[:, 0], kind="stable")]
        self._followers, self._arrives = edges[:, 1], edges[:, 2] * 1.0
        self._first = np.searchsorted(edges[:, 0], np.arange(self._left.size + 1))
        self._queue = np.flatnonzero(self._pending == 0)

    def _split_components(self) -> None:
        """Find the components of unfinished classes that share links, directly or through others."""
        self._component = np.zeros(self._left.size, dtype=np.int64)
        open_now = np.flatnonzero((self._finish == np.inf) & self._classes.linked)
        self._open_at_split = open_now.size
        self._components = 1
        if open_now.size:
            found = components(self._classes.routes[:, open_now], self._capacity.size)
            self._component[open_now] = found
            self._components = int(found.max()) + 1

    def _step(self) -> bool:
        """Go to the next event and through it; return whether there was one."""
        times = (
            self._end.take(self._alive).min(initial=np.inf),
            self._ready.take(self._queue).min(initial=np.inf),
        )
        now = min(times)
        if now == np.inf:
            return False
        self._now_s, self._events = now, self._events + 1
        limit = now * (1.0 + _TOGETHER)
        ended = self._finished(limit) if times[0] <= limit else np.empty(0, dtype=np.int64)
        started = self._started(limit)
        if self._incremental:
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
        """Set the arrival of classes whose last byte leaves now; queue those that waited only for them."""
        self._finish[ended] = self._now_s + self._latency[ended]
        if not self._followers.size:
            return
        for one in ended[self._first[ended] < self._first[ended + 1]].tolist():
            edges = slice(self._first[one], self._first[one + 1])
            followers = self._followers[edges]
            np.subtract.at(self._pending, followers, 1)
            np.maximum.at(self._ready, followers, self._now_s + self._arrives[edges] * self._latency[one])
            followers = np.unique(followers)
            free = followers[self._pending[followers] == 0]
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
            instant = (self._left[now] <= 0.0) | ~self._classes.linked[now]
            self._left[now[instant & ~self._classes.linked[now]]] = 0.0
            self._arrive(now[instant])
            started.append(now[~instant])
        found = np.concatenate(started)
        self._rate[found] = np.inf
        self._alive = np.append(self._alive, found) if found.size else self._alive
        return found

    def _share(self, ended: np.ndarray, started: np.ndarray) -> None:
        """Find the rates anew that starts and ends can have changed.

        No rate below `floor` changes: that of the slowest class that ended, and the least equal share of the
        links of a class that starts. Nor does one of a component in which nothing started or ended.
        """
        alive, routes = self._alive, self._classes.routes
        if not alive.size or not (ended.size or started.size):
            return
        floor = self._rate.take(ended).min(initial=np.inf)
        if started.size:
            load = np.bincount(
                routes.take(alive, 1).ravel(), self._classes.load.take(alive, 1).ravel(), self._capacity.size
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
        """Find the rates of the classes `moved`, while those of `kept` (0: none) stay."""
        if not moved.size:
            return
        classes = self._classes
        taken: float | np.ndarray = 0.0
        if isinstance(kept, np.ndarray) and kept.size:
            used = classes.load.take(kept, 1) * self._rate.take(kept)
            taken = np.bincount(classes.routes.take(kept, 1).ravel(), used.ravel(), self._capacity.size)
        load = None if self._unit_loads else classes.load.take(moved, 1)
        new = fill(classes.routes.take(moved, 1), load, self._capacity, taken)
        old = self._rate.take(moved)
        other = (new != old).nonzero()[0]
        moved, new, old = moved.take(other), new.take(other), old.take(other)
        left = np.where(np.isinf(old), self._left.take(moved), (self._end.take(moved) - self._now_s) * old)
        self._left[moved] = left
        self._end[moved] = self._now_s + left / new
        self._rate[moved] = new
