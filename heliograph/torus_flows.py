"""Traffic on tori as flows: routes in the order of axes, and collectives as one flow for every orbit.

A torus looks the same from every node, so that N flows which differ by a translation only are one flow with a
usage, and the links of one direction are one link: 4,096 nodes cost what one does.

References
----------
Dally and Towles, Principles and Practices of Interconnection Networks, section 8.4: dimension order.
Sack and Gropp, "Collective algorithms for multiported torus networks", ACM TOPC 1 (2015): all-reduces that
use all ports of a node.
"""

from __future__ import annotations

import numpy as np

from heliograph.errors import WorkloadError
from heliograph.flows import FlowSet
from heliograph.interfaces import LinkGraph
from heliograph.torus import Torus


def direction_links(torus: Torus, link_bytes_per_s: float, latency_s: float = 0.0) -> LinkGraph:
    """Return one link for each direction: 2 axis forwards, 2 axis + 1 backwards.

    Parameters
    ----------
    torus : Torus
        The torus.
    link_bytes_per_s : float
        Rate of a link, one way.
    latency_s : float
        Time to the neighbour.
    """
    count = 2 * torus.axes
    return LinkGraph(
        capacity_bytes_per_s=np.full(count, link_bytes_per_s), latency_s=np.full(count, latency_s)
    )


def all_links(torus: Torus, link_bytes_per_s: float, latency_s: float = 0.0) -> LinkGraph:
    """Return every link: the one from node n in direction k is number 2 axes n + k.

    Parameters as in `direction_links`.
    """
    count = 2 * torus.axes * torus.nodes
    return LinkGraph(
        capacity_bytes_per_s=np.full(count, link_bytes_per_s), latency_s=np.full(count, latency_s)
    )


def dimension_ordered_routes(torus: Torus, sources: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the links of flows that take all steps along one axis before the next.

    Parameters
    ----------
    torus : Torus
        The torus.
    sources : numpy.ndarray
        Node each flow starts from, shape [F].
    steps : numpy.ndarray
        Links to pass along each axis, negative ones backwards, shape [F, axes].

    Returns
    -------
    numpy.ndarray
        Links as `all_links` numbers them, padded with -1, shape [F, H].
    """
    hops = np.abs(steps)
    total = hops.sum(axis=1)
    routes = np.full((sources.size, int(total.max(initial=0))), -1, dtype=np.int64)
    place = np.stack(np.unravel_index(sources, torus.box), axis=-1).astype(np.int64)
    done = np.zeros(sources.size, dtype=np.int64)
    for axis in range(torus.axes):
        for _ in range(int(hops[:, axis].max(initial=0))):
            moving = np.flatnonzero(hops[:, axis] > 0)
            forwards = steps[moving, axis] > 0
            node = torus.node(place[moving])
            routes[moving, done[moving]] = 2 * torus.axes * node + 2 * axis + ~forwards
            place[moving, axis] += np.where(forwards, 1, -1)
            hops[moving, axis] -= 1
            done[moving] += 1
    return routes


def shortest_steps(torus: Torus) -> tuple[np.ndarray, np.ndarray]:
    """Return all shortest step vectors from node 0, shape [V, axes], and the share of each, shape [V].

    Every pair shares its bytes equally among the shortest ways between its nodes.
    """
    steps, ends = torus.shortest
    share = 1.0 / np.bincount(ends, minlength=torus.nodes)[ends]
    away = np.abs(steps).any(axis=1)
    return steps[away], share[away]


def all_to_all_orbits(torus: Torus, pair_bytes: float) -> FlowSet:
    """Return a uniform all-to-all, one flow for each shortest step vector, on `direction_links`.

    Parameters
    ----------
    torus : Torus
        Regular or twisted.
    pair_bytes : float
        Bytes from each node to every other.
    """
    steps, share = shortest_steps(torus)
    usage = np.empty((steps.shape[0], 2 * torus.axes))
    usage[:, 0::2], usage[:, 1::2] = np.maximum(steps, 0), np.maximum(-steps, 0)
    routes = np.where(usage > 0.0, np.arange(usage.shape[1]), -1)
    return FlowSet(routes=routes, size_bytes=pair_bytes * share, usage=usage)


def all_reduce_orbits(torus: Torus, payload_bytes: float) -> FlowSet:
    """Return an all-reduce that uses all ports of every node, one flow for each step, on `direction_links`.

    Parameters
    ----------
    torus : Torus
        A regular one.
    payload_bytes : float
        Bytes of the vector that each node holds.

    Raises
    ------
    WorkloadError
        If the torus is twisted: its axes are no rings of the box.

    Notes
    -----
    The vector is cut into 2 axes pieces. Each is reduced and scattered around rings along all axes, one after
    the other, then gathered back; it begins with another axis or goes another way round than the rest. On a
    cube each direction carries one piece at any time, and the time is 2 (N - 1)/N m / (2 axes B) plus
    2 sum(d - 1) latencies: the bound of the ports.
    """
    if any(entry for row, line in enumerate(torus.lattice) for at, entry in enumerate(line) if at != row):
        msg = f"an all-reduce along axes needs a regular torus; the lattice is {torus.lattice}"
        raise WorkloadError(msg)
    axes = [axis for axis, size in enumerate(torus.box) if size > 1]
    routes: list[list[int]] = []
    sizes: list[float] = []
    after: list[tuple[int, int]] = []
    for turn in range(len(axes)):
        order = axes[turn:] + axes[:turn]
        for way in range(2):
            left = payload_bytes / (2 * len(axes))
            phases = []
            for axis in order:
                left /= torus.box[axis]
                phases.append((axis, left))
            for axis, chunk in phases + phases[::-1]:
                for _ in range(torus.box[axis] - 1):
                    routes.append([2 * axis + way])
                    sizes.append(chunk)
            steps = 2 * sum(torus.box[axis] - 1 for axis in order)
            first = len(routes) - steps
            after += [(index, index + 1) for index in range(first, len(routes) - 1)]
    return FlowSet(
        routes=np.array(routes, dtype=np.int64).reshape(-1, 1),
        size_bytes=np.array(sizes),
        after=np.array(after, dtype=np.int64).reshape(-1, 2),
        usage=np.ones((len(routes), 1)),
    )


def all_reduce_bound_s(torus: Torus, payload_bytes: float, link_bytes_per_s: float) -> float:
    """Return the least time of an all-reduce that a node's ports allow: 2 (N - 1)/N m over their rate."""
    ports = 2 * sum(size > 1 for size in torus.box)
    if not ports:
        return 0.0
    return 2.0 * (torus.nodes - 1) / torus.nodes * payload_bytes / (ports * link_bytes_per_s)
