"""Flows that are alike, merged: the coarsest equitable partition of flows and links.

Flows of one class cross as many links of every class, and links of one class are crossed by as many flows of
every class. Max-min rates follow from these numbers alone and are unique, so flows of a class have equal
rates at all times: an all-to-all on a torus shrinks to one flow for every displacement, identical routes to
one.

References
----------
Cardon and Crochemore, "Partitioning a graph in O(|A| log2 |V|)", Theoretical Computer Science 19 (1982).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


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
    """Return 64 well-mixed bits of whole numbers (splitmix64: Steele et al., OOPSLA 2014)."""
    bits = (values.astype(np.uint64) + np.uint64(1)) * _ODD
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX[0]
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX[1]
    return np.asarray(bits ^ (bits >> np.uint64(31)))


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
