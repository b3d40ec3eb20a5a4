"""Max-min fair rates of flows that share capacitated links.

A rate vector is max-min fair if and only if every flow has a saturated link on which no other flow is faster;
it is unique. Progressive filling reaches it link by link; here every link that is a bottleneck for all of its
own flows is frozen in the same pass, so the passes number the depth of the bottleneck order, not the links.

References
----------
Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2.
"""

from __future__ import annotations

import numpy as np

from simulator.errors import RouteError

_TOLERANCE = 1e-12
"""Relative slack within which two shares are the same number, dimensionless."""


def max_min_rates(
    flow: np.ndarray, link: np.ndarray, capacity: np.ndarray, *, flows: int, usage: np.ndarray | None = None
) -> np.ndarray:
    """Return the max-min fair rate of each flow.

    Parameters
    ----------
    flow, link : numpy.ndarray
        Incidence as pairs: flow[i] crosses link[i]; shape [I] each.
    capacity : numpy.ndarray
        Capacity of each link, shape [L], any one unit of rate.
    flows : int
        Number of flows; those without a pair get an infinite rate.
    usage : numpy.ndarray, optional
        How often flow[i] loads link[i], shape [I] (a group of identical flows); one by default.

    Returns
    -------
    numpy.ndarray
        Rates, shape [flows].

    Raises
    ------
    RouteError
        If a flow crosses a link without capacity.
    """
    weight = np.ones(flow.size) if usage is None else np.asarray(usage, dtype=float)
    if np.any(capacity[link] <= 0.0):
        bad = int(np.flatnonzero(capacity[link] <= 0.0)[0])
        msg = f"flow {int(flow[bad])} crosses link {int(link[bad])}, which has no capacity"
        raise RouteError(msg)
    rates = np.full(flows, np.inf)
    remaining = capacity.astype(float).copy()
    active_flow, active_link, active_weight = flow, link, weight
    while active_flow.size:
        load = np.bincount(active_link, weights=active_weight, minlength=capacity.size)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(load > 0.0, np.maximum(remaining, 0.0) / load, np.inf)
        fair = np.full(flows, np.inf)
        np.minimum.at(fair, active_flow, share[active_link])
        # A link freezes when none of its flows is held back further elsewhere.
        slowest = np.full(capacity.size, np.inf)
        np.minimum.at(slowest, active_link, fair[active_flow])
        frozen_link = (load > 0.0) & (share <= slowest * (1.0 + _TOLERANCE))
        stops = np.zeros(flows, dtype=bool)
        stops[active_flow[frozen_link[active_link]]] = True
        rates[stops] = fair[stops]
        done = stops[active_flow]
        used = active_weight[done] * rates[active_flow[done]]
        remaining -= np.bincount(active_link[done], weights=used, minlength=capacity.size)
        active_flow, active_link = active_flow[~done], active_link[~done]
        active_weight = active_weight[~done]
    return rates


def fill(
    routes: np.ndarray, usage: np.ndarray | None, capacity: np.ndarray, start: float | np.ndarray = 0.0
) -> np.ndarray:
    """Return max-min fair rates of flows whose routes stand in a padded array.

    Parameters
    ----------
    routes : numpy.ndarray
        Links of each flow, shape [H, F]; a short route repeats one of its own links with a usage of 0.
    usage : numpy.ndarray or None
        Load that a unit of rate of the flow puts on each, shape [H, F]; None: 1 on each of [H, F] links.
    capacity : numpy.ndarray
        Capacity of each link, shape [L]; positive where a flow passes.
    start : float or numpy.ndarray
        Rate that other flows have taken of each link, shape [L] or 0.

    Returns
    -------
    numpy.ndarray
        Rates, shape [F].

    Notes
    -----
    The same rule as `max_min_rates`, in fewer passes over memory: this is the inner loop of a simulation that
    shares anew at every event. Dividing by the load of an idle link gives infinity or nothing; no flow reads
    it, so callers silence that warning once, around their own loop.
    """
    links, (hops, flows) = capacity.size, routes.shape
    rates = np.empty(flows)
    left = capacity - start
    table = np.vstack((routes, np.arange(flows)))  # the last row numbers the flows
    tight = np.empty(links, dtype=bool)
    load = np.bincount(routes.ravel(), None if usage is None else usage.ravel(), links)
    while True:
        routes = table[:hops]
        share = (left / load).take(routes)
        fair = np.minimum.reduce(share)
        tight.fill(True)
        tight[routes[share > fair * (1.0 + _TOLERANCE)]] = False
        stops = np.logical_or.reduce(tight.take(routes))
        going = (~stops).nonzero()[0]
        if not going.size:
            rates[table[hops]] = fair
            return rates
        stopped = stops.nonzero()[0]
        frozen = fair.take(stopped)
        gone = table.take(stopped, 1)
        rates[gone[hops]] = frozen
        used = np.empty((hops, stopped.size))
        np.copyto(used, frozen) if usage is None else np.multiply(usage.take(stopped, 1), frozen, used)
        left -= np.bincount(gone[:hops].ravel(), used.ravel(), links)
        table = table.take(going, 1)
        usage = None if usage is None else usage.take(going, 1)
        load = np.bincount(table[:hops].ravel(), None if usage is None else usage.ravel(), links)
