"""Circuits of a ring of nodes that pass by those that failed, as far as their fibres reach."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heliograph.wiring import NO_LINK


@dataclass(frozen=True, kw_only=True)
class RingCircuits:
    """To which of the nodes that work every node of a ring shines; treat as immutable.

    References
    ----------
    Shou et al., "InfiniteHBD", SIGCOMM 2025, arXiv:2502.03885: transceivers turn to the next node
    that works, so that K - 1 failed ones in a row are passed by.
    """

    nodes: int
    """Nodes of the ring."""
    hop: int = 1
    """Circuits lead to the h-th next node that works, and to the h-th before; dimensionless."""
    reach: int = 1
    """Nodes, failed ones included, that a circuit may lead further at most; dimensionless."""
    failed: tuple[int, ...] = ()
    """Nodes that are passed by."""

    @cached_property
    def working(self) -> np.ndarray:
        """Nodes that work, in order, shape [W]."""
        return np.setdiff1d(np.arange(self.nodes), self.failed)

    @cached_property
    def place(self) -> np.ndarray:
        """Place of every node among those that work, -1 for one that failed, shape [N]."""
        found = np.full(self.nodes, NO_LINK, dtype=np.int64)
        found[self.working] = np.arange(self.working.size)
        return found

    @cached_property
    def _closed(self) -> np.ndarray:
        """Whether the circuit from each working node to the next one that it is for can be had, shape [W]."""
        count = self.working.size
        ahead = self.working[(np.arange(count) + self.hop) % max(count, 1)]
        further = (ahead - self.working) % self.nodes + self.nodes * (self.hop // max(count, 1))
        closed: np.ndarray = further <= self.reach
        return closed

    def ahead(self, sign: int) -> np.ndarray:
        """Return the node that each one's circuit forward (+1) or back (-1) leads to, -1 if dark; [N]."""
        found = np.full(self.nodes, NO_LINK, dtype=np.int64)
        count = self.working.size
        other = (np.arange(count) + sign * self.hop) % max(count, 1)
        lit = self._closed if sign > 0 else self._closed[other]
        found[self.working] = np.where(lit, self.working[other], NO_LINK)
        return found

    def jumps(self, sources: np.ndarray, destinations: np.ndarray, sign: int) -> np.ndarray:
        """Return the circuits from node to node forward or back, inf where they do not lead there, shape [F].

        A node that failed leads nowhere, but to itself.
        """
        count = max(self.working.size, 1)
        steps = np.full(count, np.inf)
        turns = count // int(np.gcd(self.hop, count))
        steps[np.arange(turns) * self.hop % count] = np.arange(turns)
        one, other = self.place[sources], self.place[destinations]
        found = steps[sign * (other - one) % count]
        lost = (one < 0) | (other < 0) | (found > self._unbroken(sign, turns)[one])
        return np.where(sources == destinations, 0.0, np.where(lost, np.inf, found))

    def _unbroken(self, sign: int, turns: int) -> np.ndarray:
        """Return how many circuits in a row lead on from each working node, inf if all do, shape [W]."""
        count = self.working.size
        if self._closed.all():
            return np.full(max(count, 1), np.inf)
        every = np.arange(count)
        lit = self._closed if sign > 0 else self._closed[(every - self.hop) % count]
        found, here, going = np.zeros(count), every, np.ones(count, dtype=bool)
        for _ in range(turns):
            going = going & lit[here]
            if not going.any():
                break
            found += going
            here = (here + sign * self.hop) % count
        return found
