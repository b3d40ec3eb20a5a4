"""Directed links between endpoints and switches, and how wirings are put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heliograph.interfaces import LinkGraph

NO_LINK = -1
"""Padding of short routes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Wiring:
    """Directed links between vertices; endpoints are the first vertices, switches follow."""

    tails: np.ndarray
    """Vertex at which each link begins, shape [L]."""
    heads: np.ndarray
    """Vertex at which each link ends, shape [L]."""
    capacity_bytes_per_s: np.ndarray
    """Capacity of each link, shape [L]. Links that share traffic ideally may stand as one of their sum."""
    latency_s: np.ndarray
    """Latency of each link with the switch at its end, shape [L]."""

    @property
    def links(self) -> int:
        """Links in all."""
        return int(self.tails.size)

    @property
    def vertices(self) -> int:
        """Vertices that any link touches, numbered from 0."""
        return int(max(self.tails.max(initial=-1), self.heads.max(initial=-1))) + 1

    def graph(self) -> LinkGraph:
        """Return capacities and latencies as the engine takes them; nobody may write to them."""
        capacity, latency = self.capacity_bytes_per_s.astype(float), self.latency_s.astype(float)
        capacity.flags.writeable = False
        latency.flags.writeable = False
        return LinkGraph(capacity_bytes_per_s=capacity, latency_s=latency)


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
    links = np.stack(columns, axis=1)
    order = np.argsort(links < 0, axis=1, kind="stable")
    return np.take_along_axis(links, order, axis=1)
