"""Topology of circuits that stay for a whole job: rings for all-reduces, matchings for the rest (TopoOpt).

Here servers have direct circuits to `degree` others, and forward traffic for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from optical.scheduling.birkhoff import checked, largest_line
from simulator.errors import ParameterError, RouteError, check_range

_TAKEN = 0.5
"""Share of a pair's traffic that counts once more after it has got a link (TopoOpt, algorithm 1)."""


@dataclass(frozen=True, kw_only=True)
class AllReduceGroup:
    """Servers that all-reduce a vector together."""

    members: tuple[int, ...]
    """Servers, in the order of the ring of stride 1."""
    size_bytes: float
    """Bytes that each of them holds."""

    def __post_init__(self) -> None:
        check_range(self, "size_bytes")
        if len(self.members) < 2 or len(set(self.members)) != len(self.members):
            msg = f"an all-reduce needs two or more different servers; got {self.members}"
            raise ParameterError(msg)

    @property
    def ring_bytes(self) -> float:
        """Bytes that each member sends on rings: ``2 (n - 1) / n`` of what it holds."""
        count = len(self.members)
        return 2.0 * (count - 1) / count * self.size_bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class JobTopology:
    """Direct circuits between servers, and the rings among them."""

    links: np.ndarray
    """Circuits from server i to server j, shape [N, N], whole numbers."""
    degree: int
    """Circuits that a server may begin, and as many that it may end."""
    strides: tuple[tuple[int, ...], ...]
    """Strides of the rings of each all-reduce group: a ring of stride s joins member i to member i + s."""
    matched_degree: int
    """Matchings that were added for other traffic."""

    @cached_property
    def hops(self) -> np.ndarray:
        """Circuits on the shortest path of each pair, shape [N, N]; infinite where there is none."""
        lit = scipy.sparse.csr_array(self.links > 0)
        return np.asarray(scipy.sparse.csgraph.shortest_path(lit, unweighted=True))

    def link_bytes(self, demand: np.ndarray) -> np.ndarray:
        """Return the bytes over a circuit of each pair if traffic is split over all shortest paths, [N, N].

        Parameters
        ----------
        demand : numpy.ndarray
            Bytes from server i to server j, shape [N, N].

        Raises
        ------
        RouteError
            If a pair with traffic has no path.

        Notes
        -----
        As Brandes (2001) counts paths: ``paths[d][s, v]`` is the number of shortest paths of d hops. From the
        farthest pairs inwards, the traffic of source s that has to reach server v is divided over the
        circuits that come from servers one hop nearer to s, in proportion to the paths that they continue.
        """
        wanted = checked(demand)
        np.fill_diagonal(wanted, 0.0)
        hops = self.hops
        if np.isinf(hops[wanted > 0.0]).any():
            source, target = np.argwhere((wanted > 0.0) & np.isinf(hops))[0].tolist()
            msg = (
                f"no path of circuits from server {source} to server {target}; give it rings, or more degree"
            )
            raise RouteError(msg)
        farthest = int(hops[np.isfinite(hops)].max(initial=0.0))
        paths = [np.eye(len(hops))]
        for distance in range(1, farthest + 1):
            paths.append(np.where(hops == distance, paths[-1] @ self.links, 0.0))
        carried = np.zeros(self.links.shape)
        arriving = wanted  # [source, server], of what passes on from there too
        for distance in range(farthest, 0, -1):
            at = np.where(hops == distance, arriving, 0.0)
            per_path = np.divide(at, paths[distance], out=np.zeros_like(at), where=paths[distance] > 0.0)
            carried += self.links * (paths[distance - 1].T @ per_path)
            arriving = arriving + paths[distance - 1] * (per_path @ self.links.T)
        return np.divide(carried, self.links, out=np.zeros_like(carried), where=self.links > 0)


@dataclass(frozen=True, kw_only=True)
class JobTime:
    """Time of a job's traffic on a topology."""

    time_s: float
    """Time of the busiest circuit."""
    bound_s: float
    """Lower bound for any topology of this degree: time of the busiest server over all its circuits."""

    @property
    def over_bound(self) -> float:
        """Time over bound, at least one."""
        return self.time_s / self.bound_s if self.bound_s > 0.0 else 1.0


def coprime_strides(size: int) -> tuple[int, ...]:
    """Return the strides whose steps visit all servers in one ring: those coprime to `size`.

    Notes
    -----
    TotientPerms of Wang et al., "TopoOpt", NSDI 2023, theorem 2: Euler's totient of `size` of them.
    """
    return tuple(stride for stride in range(1, max(size, 2)) if math.gcd(stride, size) == 1)


def spread_strides(size: int, count: int) -> tuple[int, ...]:
    """Return strides of rings that together reach every server in few hops.

    Parameters
    ----------
    size : int
        Servers on a ring.
    count : int
        Rings; fewer are returned if `size` has fewer strides.

    Notes
    -----
    SelectPermutations of TopoOpt: strides near the geometric sequence ``1, q, q^2, ...`` with
    ``q = size^(1/count)``, so that a hop count of the order of ``count q`` reaches all.
    """
    known = np.array(coprime_strides(size))
    ratio = size ** (1.0 / max(count, 1))
    chosen: list[int] = []
    for power in range(min(count, len(known))):
        free = known[~np.isin(known, chosen)]
        chosen.append(int(free[np.abs(free - ratio**power).argmin()]))
    return tuple(chosen)


def job_topology(groups: Sequence[AllReduceGroup], demand: np.ndarray, *, degree: int) -> JobTopology:
    """Return circuits for a job: rings of spread strides for its all-reduces, matchings for the rest.

    Parameters
    ----------
    groups : sequence of AllReduceGroup
        All-reduces.
    demand : numpy.ndarray
        Bytes of all other traffic from server i to server j, shape [N, N].
    degree : int
        Circuits that a server may begin, and as many that it may end.

    Raises
    ------
    ParameterError
        If a group names a server that does not exist, or `degree` is less than one.

    Notes
    -----
    TopologyFinder of TopoOpt (NSDI 2023, algorithm 1): the degree is split by bytes, all-reduces rounded up
    so that all servers of a group stay connected; each group gets its share, at least one ring. The rest goes
    to matchings of greatest traffic, one after the other, where each link that a pair has halves its traffic.
    The paper matches pairs in both directions at once (Edmonds); here a circuit has one direction, and
    sources are matched to destinations.
    """
    if degree < 1:
        msg = f"degree must be at least 1; got {degree}"
        raise ParameterError(msg)
    left = checked(demand)
    np.fill_diagonal(left, 0.0)
    size = len(left)
    for group in groups:
        if not all(0 <= member < size for member in group.members):
            msg = f"an all-reduce names servers {group.members}; there are 0 to {size - 1}"
            raise ParameterError(msg)
    reduced = sum(group.ring_bytes * len(group.members) for group in groups)
    all_bytes = reduced + float(left.sum())
    ring_degree = math.ceil(degree * reduced / all_bytes - 1e-12) if reduced > 0.0 else 0
    links = np.zeros((size, size), dtype=np.int64)
    strides = []
    for group in groups:
        rings = math.ceil(ring_degree * group.ring_bytes * len(group.members) / reduced) if reduced else 0
        strides.append(_add_rings(links, group, max(rings, 1), degree))
    matched = 0
    while left.any():
        out, into = degree - links.sum(axis=1), degree - links.sum(axis=0)
        usable = np.where((out > 0)[:, None] & (into > 0)[None, :], left, 0.0)
        rows, columns = scipy.optimize.linear_sum_assignment(usable, maximize=True)
        taken = usable[rows, columns] > 0.0
        if not taken.any():
            break
        links[rows[taken], columns[taken]] += 1
        left[rows[taken], columns[taken]] *= _TAKEN
        matched += 1
    return JobTopology(links=links, degree=degree, strides=tuple(strides), matched_degree=matched)


def _add_rings(links: np.ndarray, group: AllReduceGroup, rings: int, degree: int) -> tuple[int, ...]:
    """Add rings of a group while its members have circuits left; return their strides."""
    members = np.array(group.members)
    room = degree - max(int(links[members].sum(axis=1).max()), int(links[:, members].sum(axis=0).max()))
    strides = spread_strides(len(members), min(rings, room)) if room > 0 else ()
    for stride in strides:
        links[members, np.roll(members, -stride)] += 1
    return strides


def job_time(
    topology: JobTopology, groups: Sequence[AllReduceGroup], demand: np.ndarray, *, rate_bytes_per_s: float
) -> JobTime:
    """Return the time of a job's traffic on a topology, and the bound of any topology.

    Parameters
    ----------
    topology : JobTopology
        Circuits.
    groups : sequence of AllReduceGroup
        All-reduces of the topology. Each is split equally over the rings of its group; without rings it goes
        from member to member over shortest paths.
    demand : numpy.ndarray
        Bytes of all other traffic, shape [N, N]; split over shortest paths.
    rate_bytes_per_s : float
        Rate of one circuit.

    Raises
    ------
    RouteError
        If traffic has no path.
    """
    if not rate_bytes_per_s > 0.0:
        msg = f"rate_bytes_per_s must be above 0; got {rate_bytes_per_s:g}"
        raise ParameterError(msg)
    wanted = checked(demand)
    np.fill_diagonal(wanted, 0.0)
    on_rings = np.zeros(wanted.shape)
    on_paths = wanted.copy()
    total = wanted.copy()
    for group, strides in zip(groups, topology.strides, strict=True):
        members = np.array(group.members)
        for stride in strides:
            on_rings[members, np.roll(members, -stride)] += group.ring_bytes / len(strides)
        total[members, np.roll(members, -1)] += group.ring_bytes
        if not strides:
            on_paths[members, np.roll(members, -1)] += group.ring_bytes
    ring_bytes = np.divide(on_rings, topology.links, out=np.zeros_like(on_rings), where=topology.links > 0)
    busiest = float((ring_bytes + topology.link_bytes(on_paths)).max(initial=0.0))
    return JobTime(
        time_s=busiest / rate_bytes_per_s, bound_s=largest_line(total) / (topology.degree * rate_bytes_per_s)
    )
