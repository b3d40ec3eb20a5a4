"""Circuits between vertices that pass on what is not for them: routes over several circuits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from optical.circuits import DARK, Circuits

NO_WAY = -9999
"""What scipy gives for a vertex that cannot be reached, or is the start itself."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ForwardingCircuits:
    """Circuits of equal domains of vertices, and the shortest ways over them; treat as immutable.

    Notes
    -----
    A circuit is numbered ``vertex * degree + lane``. Lanes to the same peer act as one link, the first of
    them, of their joint capacity. Ways are found breadth first, one for each pair of a domain.
    """

    circuits: Circuits
    """Which vertex each lane of each vertex reaches, shape [V, degree]."""
    domain: int
    """Vertices of a domain, consecutive numbers; circuits do not leave it."""
    axes: tuple[str, ...] = ()
    """Axis of parallelism that the circuits of each domain were turned to; empty for all of a step."""

    @property
    def degree(self) -> int:
        """Lanes of a vertex."""
        return int(self.circuits.tx_peer.shape[1])

    @cached_property
    def before(self) -> np.ndarray:
        """Vertex before each one on the way from each start, shape [V, domain], `NO_WAY` if there is none.

        Columns and values count within the domain.
        """
        peers = self.circuits.lit
        found = np.full((len(peers), self.domain), NO_WAY, dtype=np.int32)
        known: dict[bytes, np.ndarray] = {}
        for first in range(0, len(peers), self.domain):
            inside = np.where(peers == DARK, DARK, peers - first)[first : first + self.domain]
            key = inside.tobytes()
            if key not in known:
                known[key] = _before(inside, self.domain)
            found[first : first + self.domain] = known[key]
        return found

    def reaches(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return whether circuits lead from sources to destinations, shape [F]; to itself always."""
        same = sources // self.domain == destinations // self.domain
        led = self.before[sources, destinations % self.domain] != NO_WAY
        return (same & led) | (sources == destinations)

    def direct(self, sources: np.ndarray, destinations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the circuit from sources straight to destinations, and whether there is one, each [F]."""
        lit = self.circuits.lit[sources] == destinations[:, None]
        return sources * self.degree + lit.argmax(axis=1), lit.any(axis=1)

    def ways(self, sources: np.ndarray, destinations: np.ndarray) -> list[np.ndarray]:
        """Return the circuits at each place of the way, from its end to its start, -1 where there is none.

        Parameters
        ----------
        sources, destinations : numpy.ndarray
            Vertices that circuits join, shape [F].
        """
        columns, here = [], destinations.copy()
        while (here != sources).any():
            going = here != sources
            earlier = np.where(
                going, self.before[sources, here % self.domain] + here // self.domain * self.domain, here
            )
            link, _ = self.direct(earlier, here)
            columns.append(np.where(going, link, -1))
            here = earlier
        return columns

    def hops(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return how many circuits lead from sources to destinations, shape [F]."""
        columns = self.ways(sources, destinations)
        return np.sum([column >= 0 for column in columns], axis=0) if columns else np.zeros(len(sources), int)


def _before(peers: np.ndarray, size: int) -> np.ndarray:
    """Return predecessors on shortest ways between all vertices of a domain, shape [size, size]."""
    tails, lanes = np.nonzero(peers != DARK)
    lit = scipy.sparse.csr_array((np.ones(tails.size), (tails, peers[tails, lanes])), shape=(size, size))
    _, found = scipy.sparse.csgraph.shortest_path(lit, unweighted=True, return_predecessors=True)
    return found.astype(np.int32)
