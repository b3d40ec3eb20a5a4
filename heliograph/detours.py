"""Ways round links that failed, on any wiring."""

from __future__ import annotations

import numpy as np
import scipy

from heliograph.graph_routes import GraphRoutes
from heliograph.interfaces import Flows
from heliograph.wiring import NO_LINK, Wiring


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
    shared out among flows as `heliograph.graph_routes.GraphRoutes` says.
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
