"""Flow-level simulation: max-min fair rates on shared links, followed from one event to the next.

Events are starts, ends and changes of capacity; those that coincide are one. Flows that behave alike are one
class. After an event only those rates are found anew that it can have moved: of flows joined to it by shared
links, and of these the ones at least as fast as the slowest flow that left.

References
----------
Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2: max-min fairness.
"""

from __future__ import annotations

import numpy as np

from heliograph.errors import RouteError, WorkloadError
from heliograph.fairshare import fill
from heliograph.flow_classes import FlowClasses, components, merge
from heliograph.flows import CapacityChange, FlowSet, FlowTimes, Reroute
from heliograph.interfaces import LinkGraph

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
    return _Simulation(flows, graph, changes, reroute, incremental=incremental).run()


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

    def run(self) -> FlowTimes:
        """Return the times of all flows."""
        with np.errstate(divide="ignore", invalid="ignore"):
            while self._step():
                pass
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
