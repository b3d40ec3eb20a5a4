"""Flows merged into classes, with the links that the classes load: what one solve for rates works on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from heliograph.flow_symmetry import Partition, partition


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
