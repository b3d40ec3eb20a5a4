"""Shortest paths on any graph, many flows at a time, spread evenly over equally short ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from heliograph.errors import RouteError
from heliograph.wiring import NO_LINK, Wiring

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
