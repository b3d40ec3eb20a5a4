"""Folded Clos networks (fat-trees) of one to three levels, as arithmetic on port numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from heliograph.checks import check_range
from heliograph.errors import ParameterError
from heliograph.graph_fabric import NO_LINK, Wiring, bundle, joined


class Spreading(StrEnum):
    """How flows are laid over equally short paths."""

    SPRAYED = "sprayed"
    """Every packet takes any of them: links side by side act as one of their joint capacity."""
    STATIC = "static"
    """Every flow takes the one that its destination's number gives."""


@dataclass(frozen=True, kw_only=True)
class Clos:
    """Leaves, spines and cores over a number of ports, and the links between them.

    Notes
    -----
    Ports fill leaves in the order of their numbers. If one switch takes all there is one; else leaves have
    links to every spine. When there are more leaves than a spine has ports, leaves with their spines form
    pods, and cores join the pods. A leaf has ``ceil(down / oversubscription)`` links upwards, so that ratios
    come out in whole links. Static spreading is destination-modulo routing, which has no collision in shifts
    of full trees.

    References
    ----------
    Zahavi, "Fat-tree routing and node ordering providing contention free traffic for MPI global
    collectives", J. Parallel Distrib. Comput. 72 (2012): destination-modulo routing.
    """

    ports: int
    """Ports below the leaves."""
    radix: int
    """Ports of a switch."""
    oversubscription: float = 1.0
    """Links below over links above a leaf, at least 1; dimensionless."""
    spine_oversubscription: float = 1.0
    """The same of a pod's spines, where there are three levels."""
    spreading: Spreading = Spreading.SPRAYED
    """How flows are laid over equally short paths."""

    def __post_init__(self) -> None:
        check_range(self, "ports", low=1)
        check_range(self, "radix", low=2)
        check_range(self, "oversubscription", "spine_oversubscription", low=1.0)
        if self.levels == 3 and self.pods > self.radix:
            most = self.radix * self.leaves_per_pod * self.down
            msg = (
                f"{self.ports} ports need {self.pods} pods, and a core of radix {self.radix} joins one "
                f"per port ({most} endpoints); try a switch of larger radix"
            )
            raise ParameterError(msg)

    @cached_property
    def down(self) -> int:
        """Ports below a leaf."""
        return self.radix if self.ports <= self.radix else _below(self.radix, self.oversubscription)

    @cached_property
    def up(self) -> int:
        """Links above a leaf; none if there is only one."""
        return 0 if self.leaves == 1 else math.ceil(self.down / self.oversubscription)

    @cached_property
    def leaves(self) -> int:
        """Leaf switches."""
        return math.ceil(self.ports / self.down)

    @cached_property
    def levels(self) -> int:
        """Levels of switches: one, two or three."""
        if self.leaves == 1:
            return 1
        return 2 if self.leaves <= self.radix else 3

    @cached_property
    def leaves_per_pod(self) -> int:
        """Leaves that the same spines join."""
        return self.leaves if self.levels < 3 else _below(self.radix, self.spine_oversubscription)

    @cached_property
    def spine_up(self) -> int:
        """Links above a spine; none below three levels."""
        return 0 if self.levels < 3 else math.ceil(self.leaves_per_pod / self.spine_oversubscription)

    @cached_property
    def pods(self) -> int:
        """Groups of leaves with spines of their own."""
        return math.ceil(self.leaves / self.leaves_per_pod)

    @property
    def switches(self) -> int:
        """Switches of all levels."""
        if self.levels < 3:
            return self.leaves + math.ceil(self.leaves * self.up / self.radix)
        return self.leaves + self.pods * self.up + math.ceil(self._core_links / self.radix)

    @property
    def trunks(self) -> int:
        """Links between switches, both ways one."""
        return self.leaves * self.up + self._core_links

    @property
    def _core_links(self) -> int:
        return self.pods * self.up * self.spine_up

    @property
    def _lanes(self) -> tuple[int, int]:
        """Links of a leaf and of a pod that stand apart."""
        if self.spreading is Spreading.SPRAYED:
            return 1, 1
        return self.up, self.up * self.spine_up

    @property
    def vertices(self) -> int:
        """Leaves, spines (of a pod, where flows are sprayed) and cores (all in one, where sprayed)."""
        lanes, core_lanes = self._lanes
        return self.leaves + (self.pods * lanes if self.up else 0) + (core_lanes if self.spine_up else 0)

    def leaf_of(self, ports: np.ndarray) -> np.ndarray:
        """Return the leaf of each port, same shape."""
        return ports // self.down

    def wiring(self, *, first_vertex: int, rate_bytes_per_s: float, latency_s: float) -> Wiring:
        """Return the links between switches.

        Parameters
        ----------
        first_vertex : int
            Number of the first leaf; spines and cores follow the leaves.
        rate_bytes_per_s : float
            Rate of one link.
        latency_s : float
            Latency of a link with the switch at its end.
        """
        lanes, core_lanes = self._lanes if self.up else (0, 0)
        leaves = np.repeat(np.arange(self.leaves), lanes)
        spines = self.leaves + leaves // self.leaves_per_pod * lanes + np.tile(np.arange(lanes), self.leaves)
        rate = rate_bytes_per_s * (self.up / lanes if lanes else 0.0)
        parts = [_both_ways(leaves + first_vertex, spines + first_vertex, rate, latency_s)]
        if self.spine_up:
            pods, slots = np.divmod(np.arange(self.pods * core_lanes), core_lanes)
            below = self.leaves + pods * lanes + slots * lanes // core_lanes
            above = self.leaves + self.pods * lanes + slots
            rate = rate_bytes_per_s * self.up * self.spine_up / core_lanes
            parts.append(_both_ways(below + first_vertex, above + first_vertex, rate, latency_s))
        return joined(parts)

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> list[np.ndarray]:
        """Return the links between switches from ports to other ports.

        Parameters
        ----------
        sources, destinations : numpy.ndarray
            Ports, shape [F].

        Returns
        -------
        list of numpy.ndarray
            Link at each place of the way, as `wiring` numbers them, or `NO_LINK`; shape [F] each.
        """
        if self.levels == 1:
            return []
        lanes, core_lanes = self._lanes
        here, there = self.leaf_of(sources), self.leaf_of(destinations)
        slot = destinations % lanes
        leaf_links = self.leaves * lanes
        climbs = here != there
        first = np.where(climbs, here * lanes + slot, NO_LINK)
        last = np.where(climbs, leaf_links + there * lanes + slot, NO_LINK)
        if self.levels == 2:
            return [first, last]
        pod, far_pod = here // self.leaves_per_pod, there // self.leaves_per_pod
        core = slot * (core_lanes // lanes) + destinations // lanes % (core_lanes // lanes)
        tops = pod != far_pod
        base, pod_links = 2 * leaf_links, self.pods * core_lanes
        rises = np.where(tops, base + pod * core_lanes + core, NO_LINK)
        falls = np.where(tops, base + pod_links + far_pod * core_lanes + core, NO_LINK)
        return [first, rises, falls, last]


def _below(radix: int, oversubscription: float) -> int:
    """Return how many of a switch's ports point down."""
    return max(1, min(radix - 1, int(radix * oversubscription / (1.0 + oversubscription))))


def _both_ways(low: np.ndarray, high: np.ndarray, rate_bytes_per_s: float, latency_s: float) -> Wiring:
    up = bundle(low, high, rate_bytes_per_s=rate_bytes_per_s, latency_s=latency_s)
    return joined([up, bundle(high, low, rate_bytes_per_s=rate_bytes_per_s, latency_s=latency_s)])
