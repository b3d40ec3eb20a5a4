"""Folded Clos networks (fat-trees) of one to four levels, with routes as arithmetic on port numbers.

Also links between neighbours without a packet switch, which electrical and circuit-switched tori share
(`DirectLink`), and links from every group of switches to every other (`GlobalLinks`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

import numpy as np

from simulator.errors import (
    Checked,
    Efficiency,
    ParameterError,
    Positive,
    check_choices,
    check_range,
    check_whole,
)
from simulator.interfaces import Wiring
from simulator.keys import mix_key, mix_keys
from simulator.tables import Shelf
from simulator.topology.graphs import NO_LINK, both_ways, joined


@dataclass(frozen=True, kw_only=True)
class DirectLink(Checked):
    """A link between two accelerators without a switch, and the router port at each end."""

    name: str = "link"
    """Name shown in tables."""
    bandwidth_bytes_per_s: Positive
    """Line rate, one way."""
    efficiency: Efficiency
    """Share of the line rate that a long transfer reaches, 0 to 1."""
    latency_s: float
    """Time from router to router over copper."""
    energy_j_per_bit: float
    """Dynamic energy of one bit over the link."""
    static_w: float
    """Power of one end."""
    price_usd: float
    """Price of one end of a copper link."""


load_direct_link = Shelf(DirectLink, Path(__file__).parents[1] / "parameters" / "direct_links.csv")
"""Links between neighbours, e.g. ``"ici-v4"``."""


@dataclass(frozen=True, kw_only=True)
class GlobalLinks:
    """Global links of a dragonfly, as many between any two groups as their ports allow.

    Notes
    -----
    A place is a switch of a group. Channel c of a group ends on place ``c % places``. Channels
    ``t (groups - 1) + d`` lead to the group that follows by d + 1, so that parallel links to one group end on
    different places.

    References
    ----------
    Kim, Dally, Scott and Abts, ISCA 2008, section 3; Camarero, Vallejo and Beivide, "Topological
    characterization of Hamming and dragonfly networks", ACM TACO 11 (2014): arrangements of global links.
    """

    groups: int
    """Groups."""
    places: int
    """Switches of a group that have global links."""
    each: int
    """Global links of one of them."""

    def __post_init__(self) -> None:
        check_range(self, "groups", "places", low=1)
        check_range(self, "each")
        if self.groups > self.places * self.each + 1:
            most = self.places * self.each + 1
            msg = (
                f"{self.groups} groups need {self.groups - 1} links out of each, and {self.places} switches "
                f"with {self.each} have {self.places * self.each}; {most} groups are possible: try more "
                "global_links, or larger groups"
            )
            raise ParameterError(msg)

    @property
    def parallel(self) -> int:
        """Links between two groups."""
        return self.places * self.each // (self.groups - 1) if self.groups > 1 else 0

    @property
    def per_group(self) -> int:
        """Links out of a group."""
        return self.parallel * (self.groups - 1)

    @property
    def links(self) -> int:
        """Directed links in all."""
        return self.groups * self.per_group

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Switch at which each link begins and at which it ends, group x places + place; shape [L] each."""
        if not self.links:
            return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        group, channel = np.divmod(np.arange(self.links), self.per_group)
        turn, ahead = np.divmod(channel, self.groups - 1)
        far = (group + ahead + 1) % self.groups
        back = turn * (self.groups - 1) + (self.groups - 2 - ahead)
        return group * self.places + channel % self.places, far * self.places + back % self.places

    def channel(self, group: np.ndarray, far: np.ndarray, *, spread: np.ndarray) -> np.ndarray:
        """Return a link from groups to other groups.

        Parameters
        ----------
        group, far : numpy.ndarray
            Groups, shape [F]; where both are the same, the link returned has no meaning.
        spread : numpy.ndarray
            Number of each flow, by which flows are spread over parallel links, shape [F].
        """
        if not self.links:
            return np.zeros_like(group)
        ahead = (far - group - 1) % self.groups
        safe = np.minimum(ahead, self.groups - 2)
        return group * self.per_group + spread % self.parallel * (self.groups - 1) + safe


class Spreading(StrEnum):
    """Spreading of flows over equally short paths."""

    SPRAYED = "sprayed"
    """Every packet takes any of them: links side by side act as one of their joint capacity."""
    ADAPTIVE = "adaptive"
    """Switches send every packet where the queue is shortest: the same, at the share of the joint capacity
    that such switches reach."""
    HASHED = "hashed"
    """Every queue pair of a flow takes one, by a hash of its ends (equal-cost multipath): some links get
    several, others none."""
    STATIC = "static"
    """Every flow takes the one that its destination's number gives."""

    @property
    def apart(self) -> bool:
        """Whether parallel links carry different loads, so that each has to be a link of its own."""
        return self in (Spreading.HASHED, Spreading.STATIC)


def hashed(seed: int, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
    """Return a hash of flows as equal-cost multipath draws it from their headers, shape [F], from 0 to 2**62.

    Parameters
    ----------
    seed : int
        Key of the switches' hash.
    sources, destinations : numpy.ndarray
        Ends of each flow, shape [F].
    """
    key = np.array([mix_key(seed)], dtype=np.uint64)
    mixed = mix_keys(mix_keys(key, sources.astype(np.uint64)), destinations.astype(np.uint64))
    return (mixed >> np.uint64(2)).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Clos:
    """Folded Clos network over a number of ports: leaves, spines, cores, and the links between them.

    Notes
    -----
    Ports fill leaves in the order of their numbers. If one switch takes all ports there is one; else leaves
    have links to every spine. When there are more leaves than a spine has ports, leaves with their spines
    form pods, and cores join the pods. More pods than a core has ports are joined by cores of two levels,
    which never block and add a hop each way. A leaf has ``ceil(down / oversubscription)`` links upwards, so
    that ratios come out in whole links. Static spreading is destination-modulo routing, which has no
    collision in shifts of full trees. Hashed spreading is equal-cost multipath: a hash of both ends, of the
    queue pair between them and of a seed picks the spine, and the core behind it.

    References
    ----------
    Hopps, "Analysis of an Equal-Cost Multi-Path Algorithm", RFC 2992 (2000).
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
    """The same of a pod's spines, where there are three levels or more."""
    spreading: Spreading = Spreading.SPRAYED
    """Spreading of flows over equally short paths."""
    hash_seed: int = 1
    """Key of the hash, where flows are hashed; a choice."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_whole(self, "hash_seed")
        check_range(self, "ports", low=1)
        check_range(self, "radix", low=2)
        check_range(self, "oversubscription", "spine_oversubscription", low=1.0)
        if self.pods > self._joined:
            most = self._joined * self.leaves_per_pod * self.down
            msg = (
                f"{self.ports} ports need {self.pods} pods, and cores of two levels join {self._joined} "
                f"({most} endpoints) with a radix of {self.radix}; try a switch of larger radix"
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
        """Levels of switches: one to four."""
        if self.leaves <= self.radix:
            return 1 if self.leaves == 1 else 2
        pods = math.ceil(self.leaves / _below(self.radix, self.spine_oversubscription))
        return 3 if pods <= self.radix else 4

    @property
    def _joined(self) -> int:
        """Most pods that a core joins: one for each port of a switch, or of two levels of switches."""
        return self.radix if self.levels < 4 else self.radix * (self.radix // 2)

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
        lower = math.ceil(2 * self._core_links / self.radix) if self.levels == 4 else 0
        return self.leaves + self.pods * self.up + lower + math.ceil(self._core_links / self.radix)

    @property
    def trunks(self) -> int:
        """Cables between switches, each for both directions."""
        return self.leaves * self.up + self._core_links * max(1, self.levels - 2)

    @property
    def _core_links(self) -> int:
        return self.pods * self.up * self.spine_up

    @property
    def _lanes(self) -> tuple[int, int]:
        """Links upwards of a leaf, and of a pod, that are told apart; all of them act as one if sprayed."""
        return (self.up, self.up * self.spine_up) if self.spreading.apart else (1, 1)

    @property
    def vertices(self) -> int:
        """Leaves, spines and cores as vertices; if sprayed, a pod's spines are one, and so are all cores."""
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
        parts = [
            both_ways(
                leaves + first_vertex, spines + first_vertex, rate_bytes_per_s=rate, latency_s=latency_s
            )
        ]
        if self.spine_up:
            pods, slots = np.divmod(np.arange(self.pods * core_lanes), core_lanes)
            below = self.leaves + pods * lanes + slots * lanes // core_lanes
            above = self.leaves + self.pods * lanes + slots
            rate = rate_bytes_per_s * self.up * self.spine_up / core_lanes
            rises_s = latency_s * (self.levels - 2)
            parts.append(
                both_ways(
                    below + first_vertex, above + first_vertex, rate_bytes_per_s=rate, latency_s=rises_s
                )
            )
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
            Links up to a spine, up to a core, down from it and down from a spine, as `wiring` numbers them;
            `NO_LINK` where a flow does not go that high; shape [F] each.
        """
        if self.levels == 1:
            return []
        lanes, core_lanes = self._lanes
        leaf, far_leaf = self.leaf_of(sources), self.leaf_of(destinations)
        spine, core = self._picks(sources, destinations)
        leaf_links = self.leaves * lanes
        leaves_leaf = leaf != far_leaf
        to_spine = np.where(leaves_leaf, leaf * lanes + spine, NO_LINK)
        from_spine = np.where(leaves_leaf, leaf_links + far_leaf * lanes + spine, NO_LINK)
        if self.levels == 2:
            return [to_spine, from_spine]
        pod, far_pod = leaf // self.leaves_per_pod, far_leaf // self.leaves_per_pod
        leaves_pod = pod != far_pod
        base, pod_links = 2 * leaf_links, self.pods * core_lanes
        to_core = np.where(leaves_pod, base + pod * core_lanes + core, NO_LINK)
        from_core = np.where(leaves_pod, base + pod_links + far_pod * core_lanes + core, NO_LINK)
        return [to_spine, to_core, from_core, from_spine]

    def _picks(self, sources: np.ndarray, destinations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the spine of a pod, and the core, that flows take; shape [F] each."""
        lanes, core_lanes = self._lanes
        number, cores_of_spine = destinations, max(1, core_lanes // lanes)
        if self.spreading is Spreading.HASHED:
            number = hashed(self.hash_seed, sources, destinations)
        spine = number % lanes
        return spine, spine * cores_of_spine + number // lanes % cores_of_spine


def _below(radix: int, oversubscription: float) -> int:
    """Return the number of a switch's ports that point down."""
    return max(1, min(radix - 1, int(radix * oversubscription / (1.0 + oversubscription))))
