"""Links and shortest ways of a torus, regular or twisted, as arithmetic on displacements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heliograph.bundles import Loads
from heliograph.graph_fabric import NO_LINK
from heliograph.interfaces import Flows, LinkGraph
from heliograph.torus import Torus

FLOWS_AT_ONCE = 2**16
"""Flows whose ways are looked at together, which bounds memory; dimensionless."""


@dataclass(frozen=True, kw_only=True)
class TorusPaths:
    """Routes on a torus: axis after axis, along a shortest step vector.

    Notes
    -----
    Link ``2 axes e + 2 axis`` leads from node e forward along an axis, the next one back. Where several step
    vectors are shortest, sources take turns by their places, so that a uniform all-to-all loads all links of
    an axis alike; one-sided ties would put up to a quarter more on half of them.
    """

    torus: Torus
    """The torus."""

    @cached_property
    def places(self) -> np.ndarray:
        """Place of each node along each axis, shape [N, axes]."""
        torus = self.torus
        return np.stack(np.unravel_index(np.arange(torus.nodes), torus.box), axis=-1)

    @cached_property
    def heads(self) -> np.ndarray:
        """Node at which each link ends, shape [2 axes N]."""
        moves = np.repeat(np.eye(self.torus.axes, dtype=np.int64), 2, axis=0)
        moves[1::2] *= -1
        return self.torus.node(self.places[:, None, :] + moves).ravel()

    @cached_property
    def tails(self) -> np.ndarray:
        """Node at which each link begins, shape [2 axes N]."""
        return np.repeat(np.arange(self.torus.nodes), 2 * self.torus.axes)

    @cached_property
    def _choices(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shortest step vectors sorted by where they lead, the first of each end, and how many it has."""
        steps, ends = self.torus.shortest
        order = np.lexsort((*steps.T[::-1], ends))
        counts = np.bincount(ends, minlength=self.torus.nodes)
        return steps[order], np.concatenate([[0], np.cumsum(counts)[:-1]]), counts

    def steps(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the step vector of each flow, shape [F, axes]."""
        here, there = self.places[sources], self.places[destinations]
        if all(not any(row[axis + 1 :]) for axis, row in enumerate(self.torus.lattice)):
            return self._regular_steps(here, there)
        vectors, first, counts = self._choices
        ahead = self.torus.node(there - here)
        return vectors[first[ahead] + here.sum(axis=1) % counts[ahead]]

    def _regular_steps(self, here: np.ndarray, there: np.ndarray) -> np.ndarray:
        """Return step vectors where every axis closes on itself: half way round, places take turns."""
        box = np.array(self.torus.box)
        ahead = (there - here) % box
        rest = (here + there).sum(axis=1, keepdims=True) - there
        back = (2 * ahead > box) | ((2 * ahead == box) & (rest % 2 == 1))
        return ahead - box * back

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links of each flow, shape [F, H], padded with `NO_LINK`."""
        return self.links(sources, self.steps(sources, destinations))

    def every_way(self, sources: np.ndarray, destinations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all shortest ways: the flow that each belongs to, shape [W], and its steps, [W, axes]."""
        vectors, first, counts = self._choices
        ahead = self.torus.node(self.places[destinations] - self.places[sources])
        ways = counts[ahead]
        flow = np.repeat(np.arange(sources.size), ways)
        place = np.arange(flow.size) - np.repeat(np.cumsum(ways) - ways, ways)
        return flow, vectors[first[ahead][flow] + place]

    def sprayed(self, flows: Flows, graph: LinkGraph) -> Loads:
        """Return what flows of equal rate take of every link if they share all their shortest ways evenly.

        Parameters
        ----------
        flows : Flows
            The flows.
        graph : LinkGraph
            The torus' links, numbered as here.
        """
        usage, latency_s = np.zeros(graph.latency_s.size), 0.0
        for start in range(0, flows.sources.size, FLOWS_AT_ONCE):
            part = slice(start, start + FLOWS_AT_ONCE)
            sources, destinations = flows.sources[part], flows.destinations[part]
            flow, steps = self.every_way(sources, destinations)
            found = self.links(sources[flow], steps)
            each = 1.0 / np.bincount(flow)
            if flows.weights is not None:
                each = each * flows.weights[part]
            share = np.broadcast_to(each[flow][:, None], found.shape)
            crossed = found >= 0
            usage += np.bincount(found[crossed], weights=share[crossed], minlength=usage.size)
            way_s = np.where(crossed, graph.latency_s[np.where(crossed, found, 0)], 0.0).sum(axis=1)
            latency_s = max(latency_s, float(way_s.max(initial=0.0)))
        links = np.flatnonzero(usage)
        return Loads(links=links, usage=usage[links], latency_s=latency_s)

    def links(self, sources: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return the links of step vectors taken axis after axis, shape [F, H], padded with `NO_LINK`."""
        axes = self.torus.axes
        reached = np.cumsum(np.abs(steps), axis=1)
        hops = int(reached[:, -1].max(initial=0))
        links = np.full((sources.size, hops), NO_LINK, dtype=np.int64)
        place = self.places[sources]
        node = sources.copy()
        for hop in range(hops):
            moving = np.flatnonzero(reached[:, -1] > hop)
            axis = (reached[moving] <= hop).sum(axis=1)
            sign = np.sign(steps[moving, axis])
            links[moving, hop] = node[moving] * 2 * axes + 2 * axis + (sign < 0)
            place[moving, axis] += sign
            node[moving] = self.torus.node(place[moving])
        return links

    def grid(self, group: np.ndarray) -> tuple[int, ...] | None:
        """Return the shape of the box whose nodes, the last axis fastest, a group is; None if it is none.

        Parameters
        ----------
        group : numpy.ndarray
            Nodes, shape [n].
        """
        places = self.places[group]
        values = [np.unique(column) for column in places.T]
        shape = tuple(len(one) for one in values)
        if math.prod(shape) != len(group):
            return None
        box = np.stack(np.meshgrid(*values, indexing="ij"), axis=-1).reshape(-1, len(shape))
        return shape if np.array_equal(box, places) else None
