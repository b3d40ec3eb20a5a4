"""Circuits for uneven traffic beside packets: the pair or port that finishes last gets the next one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optical.fabrics.lane_assignment import busiest_first
from simulator.interfaces import Flows


def last_first(wanted: np.ndarray, degree: int, packets: float) -> np.ndarray:
    """Return circuits given one by one to what finishes last, shape [N, N], whole numbers.

    Parameters
    ----------
    wanted : numpy.ndarray
        Bytes from vertex to vertex, shape [N, N], diagonal zero.
    degree : int
        Circuits that a vertex may begin, and as many that it may end.
    packets : float
        Rate of a vertex' packet ports together, over that of a circuit; they carry pairs without circuits.

    Notes
    -----
    The greedy rule of MixNet (Liao et al., SIGCOMM 2025) where pairs without a circuit are not stranded but
    share their nodes' packet ports: a circuit goes to the slowest pair that has one already, or relieves the
    slowest port of its largest pair. What has no port left is passed over.
    """
    links = np.zeros(wanted.shape, dtype=np.int64)
    out, into = np.full(len(wanted), degree), np.full(len(wanted), degree)
    while True:
        able = (out[:, None] > 0) & (into[None, :] > 0) & (wanted > 0.0)
        if not able.any():
            return links
        lit = links > 0
        dark = np.where(lit, 0.0, wanted)
        late = np.divide(wanted, links, out=np.zeros(wanted.shape), where=lit)
        if packets > 0.0:
            waiting = np.maximum(dark.sum(axis=1)[:, None], dark.sum(axis=0)[None, :]) / packets
        else:
            waiting = np.full(wanted.shape, np.inf)
        late = np.where(able, np.where(lit, late, waiting), -1.0)
        worst = late == late.max()
        source, destination = np.unravel_index(np.where(worst, wanted, -1.0).argmax(), wanted.shape)
        links[source, destination] += 1
        out[source] -= 1
        into[destination] -= 1


def even_circuits(wanted: np.ndarray, degree: int) -> np.ndarray:
    """Return circuits as if all pairs with traffic had the same, shape [N, N]: nobody looks at sizes."""
    return busiest_first((wanted > 0.0).astype(float), degree)


def region_matrices(served: Sequence[Flows], node_of: np.ndarray, region: int) -> dict[int, np.ndarray]:
    """Return what goes from node to node of each region on its way out, by region; shape [region, region].

    Parameters
    ----------
    served : sequence of Flows
        Traffic between endpoints.
    node_of : numpy.ndarray
        Node of each endpoint, shape [E].
    region : int
        Nodes of a region; what leaves one is left out.
    """
    found: dict[int, np.ndarray] = {}
    for flows in served:
        one, other = node_of[flows.sources], node_of[flows.destinations]
        kept = (one // region == other // region) & (one != other)
        for here in np.unique(one[kept] // region).tolist():
            mine = kept & (one // region == here)
            matrix = found.setdefault(here, np.zeros((region, region)))
            np.add.at(matrix, (one[mine] % region, other[mine] % region), flows.sizes_bytes[mine])
    return found


def ways_to_give(wanted: np.ndarray, degree: int, packets: float) -> tuple[np.ndarray, ...]:
    """Return circuits for uneven traffic and its way back in several ways, even ones first; each [N, N].

    Parameters as in `last_first`, which sees either the larger of both ways of a pair or their sum.

    Notes
    -----
    None of them is best for all traffic: who tries them all never does worse than even circuits.
    """
    larger, both = np.maximum(wanted, wanted.T), wanted + wanted.T
    return (
        even_circuits(both, degree),
        last_first(larger, degree, packets),
        last_first(both, degree, packets),
        busiest_first(both, degree),
    )
