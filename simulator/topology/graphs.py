"""Fabrics that are a fixed graph: a topology says its links, its routes and its parts, the rest follows.

Routes are computed by the topology, in closed form where it has one, so that tens of thousands of endpoints
cost arithmetic on arrays and no search; on any other graph flows spread evenly over equally short paths.
Detours lead round links that failed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

import numpy as np
import scipy

from simulator.errors import RouteError
from simulator.fabric import Fabric, Loads, route_loads
from simulator.interfaces import Flows, LinkGraph, Wiring

NO_LINK = -1
"""Padding of short routes."""


def bundle(
    tails: np.ndarray, heads: np.ndarray, *, rate_bytes_per_s: float | np.ndarray, latency_s: float
) -> Wiring:
    """Return links that are alike.

    Parameters
    ----------
    tails, heads : numpy.ndarray
        Vertices, shape [L].
    rate_bytes_per_s : float or numpy.ndarray
        Capacity of each, or of all, shape [L].
    latency_s : float
        Latency of each.
    """
    return Wiring(
        tails=np.asarray(tails, dtype=np.int64),
        heads=np.asarray(heads, dtype=np.int64),
        capacity_bytes_per_s=np.broadcast_to(np.asarray(rate_bytes_per_s, dtype=float), tails.shape),
        latency_s=np.full(tails.shape, float(latency_s)),
    )


def joined(parts: Sequence[Wiring]) -> Wiring:
    """Return the links of several wirings over the same vertices, numbered one after the other."""
    return Wiring(
        tails=np.concatenate([part.tails for part in parts]),
        heads=np.concatenate([part.heads for part in parts]),
        capacity_bytes_per_s=np.concatenate([part.capacity_bytes_per_s for part in parts]),
        latency_s=np.concatenate([part.latency_s for part in parts]),
    )


def packed(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return routes with the gaps at their ends.

    Parameters
    ----------
    columns : sequence of numpy.ndarray
        Link of each flow at each place of its way, `NO_LINK` where it has none there; shape [F] each.

    Returns
    -------
    numpy.ndarray
        Shape [F, H].
    """
    links = np.stack([column for column in columns if (column != NO_LINK).any()] or columns[:1], axis=1)
    crossed = links != NO_LINK
    if not (crossed[:, 1:] & ~crossed[:, :-1]).any():  # no gap stands before a link
        return links
    found = np.full_like(links, NO_LINK)
    found[np.arange(links.shape[1]) < crossed.sum(axis=1)[:, None]] = links[crossed]
    return found


def stacked(routes: Sequence[np.ndarray]) -> np.ndarray:
    """Return routes [F, H] of several sets of flows one after the other, short ones padded."""
    longest = max(one.shape[1] for one in routes)
    return np.concatenate(
        [np.pad(one, ((0, 0), (0, longest - one.shape[1])), constant_values=NO_LINK) for one in routes]
    )


MOST_DISTANCES = 2**24
"""Distances that are held at a time; dimensionless."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphRoutes:
    """Routes with the fewest links.

    Notes
    -----
    Where several links lead on, the flow's number, of which destination and source are the digits, says
    which: its remainder by how many there are, the quotient being kept for the next branch. On a full
    fat-tree that is destination-modulo routing. Equal flows take equal ways in every run.

    References
    ----------
    Zahavi, J. Parallel Distrib. Comput. 72 (2012): destination-modulo routing.
    """

    wiring: Wiring
    """Links."""
    endpoints: int
    """Vertices that send and receive, the first ones."""

    @cached_property
    def _backwards(self) -> scipy.sparse.csr_matrix:
        """The graph with all links turned round, for distances to a destination."""
        count = self.wiring.vertices
        ends = (self.wiring.heads, self.wiring.tails)
        return scipy.sparse.csr_matrix((np.ones(self.wiring.links), ends), shape=(count, count))

    @cached_property
    def _out(self) -> np.ndarray:
        """Links out of each vertex, shape [V, most], padded with `NO_LINK`."""
        order = np.argsort(self.wiring.tails, kind="stable")
        tails = self.wiring.tails[order]
        degree = np.bincount(tails, minlength=self.wiring.vertices)
        place = np.arange(order.size) - np.repeat(np.cumsum(degree) - degree, degree)
        out = np.full((degree.size, int(degree.max(initial=0))), NO_LINK, dtype=np.int64)
        out[tails, place] = order
        return out

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links of each flow, shape [F, H], padded with `NO_LINK`.

        Raises
        ------
        RouteError
            If no path leads from a source to its destination.
        """
        wanted, which = np.unique(destinations, return_inverse=True)
        step = max(1, MOST_DISTANCES // max(self.wiring.vertices, 1))
        found: list[tuple[np.ndarray, np.ndarray]] = []
        for start in range(0, wanted.size, step):
            mine = np.flatnonzero((which >= start) & (which < start + step))
            distances = scipy.sparse.csgraph.dijkstra(
                self._backwards, indices=wanted[start : start + step], unweighted=True
            )
            found.append(
                (mine, self._walk(sources[mine], destinations[mine], distances, which[mine] - start))
            )
        longest = max((links.shape[1] for _, links in found), default=0)
        routes = np.full((sources.size, longest), NO_LINK, dtype=np.int64)
        for mine, links in found:
            routes[mine, : links.shape[1]] = links
        return routes

    def _walk(
        self, sources: np.ndarray, destinations: np.ndarray, distances: np.ndarray, row: np.ndarray
    ) -> np.ndarray:
        """Return the links of flows whose distances to the destination stand in the rows of a table."""
        left = distances[row, sources]
        if np.isinf(left).any():
            lost = int(np.flatnonzero(np.isinf(left))[0])
            msg = f"no path leads from endpoint {sources[lost]} to {destinations[lost]}"
            raise RouteError(msg)
        hops = int(left.max(initial=0))
        links = np.full((sources.size, hops), NO_LINK, dtype=np.int64)
        here = sources.astype(np.int64)
        number = destinations + sources * np.int64(self.endpoints)
        for hop in range(hops):
            moving = np.flatnonzero(here != destinations)
            out = self._out[here[moving]]
            heads = self.wiring.heads[np.maximum(out, 0)]
            ahead = distances[row[moving][:, None], heads] == (left[moving] - hop - 1)[:, None]
            good = ahead & (out != NO_LINK)
            count = good.sum(axis=1)
            turn = number[moving] % count
            number[moving] //= count
            chosen = np.argmax(good.cumsum(axis=1) > turn[:, None], axis=1)
            links[moving, hop] = out[np.arange(moving.size), chosen]
            here[moving] = heads[np.arange(moving.size), chosen]
        return links


def detours(wiring: Wiring, routes: np.ndarray, flows: Flows, failed: np.ndarray) -> np.ndarray:
    """Return routes in which flows that would cross failed links take a shortest way without them.

    Parameters
    ----------
    wiring : Wiring
        All links.
    routes : numpy.ndarray
        Links of each flow while nothing has failed, shape [F, H], padded with `NO_LINK`.
    flows : Flows
        The flows.
    failed : numpy.ndarray
        Links that carry nothing, shape [n].

    Returns
    -------
    numpy.ndarray
        Shape [F, H']. A flow that has no way left keeps its route over the failed link, and so waits.

    Notes
    -----
    Endpoints may forward for others, as those of a node do whose own cards failed. Equally short ways are
    shared out among flows as `simulator.topology.graphs.GraphRoutes` says.
    """
    alive = np.ones(wiring.links, dtype=bool)
    alive[failed] = False
    links = np.flatnonzero(alive)
    hit = np.flatnonzero((~alive[routes] & (routes != NO_LINK)).any(axis=1))
    if not hit.size or not links.size:
        return routes
    usable = Wiring(
        tails=wiring.tails[links],
        heads=wiring.heads[links],
        capacity_bytes_per_s=wiring.capacity_bytes_per_s[links],
        latency_s=wiring.latency_s[links],
    )
    hit = hit[_reached(usable, wiring.vertices, flows.sources[hit], flows.destinations[hit])]
    if not hit.size:
        return routes
    router = GraphRoutes(wiring=usable, endpoints=wiring.vertices)
    ways = router.paths(flows.sources[hit], flows.destinations[hit])
    found = np.full((len(routes), max(routes.shape[1], ways.shape[1])), NO_LINK, dtype=np.int64)
    found[:, : routes.shape[1]] = routes
    found[hit] = NO_LINK
    found[hit, : ways.shape[1]] = np.where(ways != NO_LINK, links[ways], NO_LINK)
    return found


def _reached(wiring: Wiring, vertices: int, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
    """Return whether a way leads from each source to its destination, shape [F]."""
    ends = (wiring.tails, wiring.heads)
    graph = scipy.sparse.csr_matrix((np.ones(wiring.links), ends), shape=(vertices, vertices))
    starts, which = np.unique(sources, return_inverse=True)
    distances = scipy.sparse.csgraph.dijkstra(graph, indices=starts, unweighted=True)
    reached: np.ndarray = np.isfinite(distances[which, destinations]) & (sources < wiring.vertices)
    return reached & (destinations < wiring.vertices)


def switch_links(wiring: Wiring, switch: int) -> np.ndarray:
    """Return the links that begin or end at a vertex."""
    return np.flatnonzero((wiring.tails == switch) | (wiring.heads == switch))


def port_links(wiring: Wiring, endpoint: int, lane: int) -> np.ndarray:
    """Return both ways of an endpoint's port; none if it has no such lane.

    Parameters
    ----------
    wiring : Wiring
        All links.
    endpoint : int
        The endpoint.
    lane : int
        Which of the links that leave it, and of those that end at it, in the wiring's order, from 0.
    """
    sides = [np.flatnonzero(ends == endpoint) for ends in (wiring.tails, wiring.heads)]
    if lane >= sides[0].size:
        return np.empty(0, dtype=np.int64)
    out = sides[0][lane]
    twins = np.flatnonzero((wiring.tails == wiring.tails[out]) & (wiring.heads == wiring.heads[out]))
    back = np.flatnonzero((wiring.tails == wiring.heads[out]) & (wiring.heads == endpoint))
    place = int(np.flatnonzero(twins == out)[0])
    return np.unique(np.concatenate([[out], back[place : place + 1]]))


__all__ = ["NO_LINK", "GraphFabric", "bundle", "joined", "packed"]


def shared_loads(ways: list[np.ndarray], latency_s: np.ndarray, flows: Flows) -> Loads:
    """Return the loads of flows of which each of several routes [F, H] carries an equal share."""
    if len(ways) == 1:
        return route_loads(ways[0], latency_s, flows.weights)
    weights = np.ones(len(flows.sources)) if flows.weights is None else flows.weights
    share = np.tile(weights / len(ways), len(ways))
    return route_loads(stacked(ways), latency_s, share)


class GraphFabric(Fabric, Protocol):
    """Fabric whose links never change: a topology says `wiring`, `paths` and `transfer_energy_j`."""

    @property
    @abstractmethod
    def wiring(self) -> Wiring:
        """Links between endpoints and switches."""
        ...

    @abstractmethod
    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links from sources to other endpoints, shape [F, H], padded with `NO_LINK`."""
        ...

    @cached_property
    def _link_graph(self) -> LinkGraph:
        return self.wiring.graph()

    def graph(self, circuits: None) -> LinkGraph:
        """Return the links, which never change."""
        return self._link_graph

    def route(self, circuits: None, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, H]; a flow to itself has none."""
        moving = flows.sources != flows.destinations
        found = self.paths(flows.sources[moving], flows.destinations[moving])
        if moving.all():
            return found
        links = np.full((moving.size, found.shape[1]), NO_LINK, dtype=np.int64)
        links[moving] = found
        return links

    def around(self, circuits: None, flows: Flows, failed: np.ndarray) -> np.ndarray:
        """Return the links of each flow as `route` does, past failed links where a way is left."""
        return detours(self.wiring, self.route(circuits, flows), flows, failed)

    @property
    def views(self) -> tuple[Self, ...]:
        """The fabric as each equal share of a flow sees it; itself alone where a flow has one path."""
        return (self,)

    def loads(self, circuits: None, flows: Flows) -> Loads:
        """Return what flows of equal rate take of every link, each share of a flow on a path of its own."""
        ways = [view.route(circuits, flows) for view in self.views]
        return shared_loads(ways, self._link_graph.latency_s, flows)

    def loads_around(self, circuits: None, flows: Flows, failed: np.ndarray) -> Loads:
        """Return the same past links that carry nothing, shape [n]."""
        ways = [view.around(circuits, flows, failed) for view in self.views]
        return shared_loads(ways, self._link_graph.latency_s, flows)

    def wired(self, circuits: None) -> Wiring:
        """Return the links, whose ends never change."""
        return self.wiring
