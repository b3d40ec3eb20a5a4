"""Ways round dead links where some links are circuits, which exist only while they are lit."""

from __future__ import annotations

import numpy as np

from heliograph.detours import detours
from heliograph.interfaces import Flows
from heliograph.wiring import NO_LINK, Wiring, bundle
from optical.circuits import Circuits


def circuit_wiring(
    circuits: Circuits, vertices: np.ndarray, *, rate_bytes_per_s: float, latency_s: float
) -> Wiring:
    """Return circuits as links, ``vertex * degree + lane``; dark ones lead back to where they begin.

    Parameters
    ----------
    circuits : Circuits
        The circuits.
    vertices : numpy.ndarray
        Number of each of their ends in the wiring that they become part of, shape [V].
    rate_bytes_per_s, latency_s : float
        Rate of one lane, and latency of all.
    """
    count = circuits.lanes_of_first
    own = np.broadcast_to(vertices[:, None], count.shape)
    heads = np.where(count > 0, vertices[circuits.lit], own)
    rates = count.ravel() * rate_bytes_per_s
    return bundle(own.ravel(), heads.ravel(), rate_bytes_per_s=rates, latency_s=latency_s)


def lit_detours(
    wiring: Wiring,
    routes: np.ndarray,
    flows: Flows,
    failed: np.ndarray,
) -> np.ndarray:
    """Return routes in which flows that would cross failed links take a shortest way over what is lit.

    Parameters
    ----------
    wiring : Wiring
        All links; those without capacity are dark.
    routes : numpy.ndarray
        Links of each flow while nothing has failed, shape [F, H].
    flows : Flows
        The flows.
    failed : numpy.ndarray
        Links that carry nothing, shape [n].

    Returns
    -------
    numpy.ndarray
        Shape [F, H']. A flow that has no way left keeps its route over the failed link, and so waits.
    """
    hit = np.isin(routes, failed).any(axis=1)
    dark = np.flatnonzero(wiring.capacity_bytes_per_s <= 0.0)
    never = np.union1d(failed, dark)
    some = Flows(
        sources=flows.sources[hit],
        destinations=flows.destinations[hit],
        size_bytes=flows.size_bytes,
        axis=flows.axis,
    )
    found = detours(wiring, routes[hit], some, never)
    after = np.full((len(routes), max(routes.shape[1], found.shape[1])), NO_LINK, dtype=np.int64)
    after[:, : routes.shape[1]] = routes
    after[hit, : found.shape[1]] = found
    after[hit, found.shape[1] :] = NO_LINK
    return after
