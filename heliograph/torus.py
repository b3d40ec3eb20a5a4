"""Tori of any shape, regular and twisted, and the load that a uniform all-to-all puts on their links.

A torus is the integer grid modulo a lattice. It looks the same from every node, so what holds for node 0
holds for all, and the links of one direction carry equal loads: sums over N displacements give exact answers
where a linear programme over N^2 flows would be needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heliograph.errors import ParameterError

MOST_CANDIDATES = 2**24
"""Most step vectors that are tried when shortest paths are sought; dimensionless."""


@dataclass(frozen=True, kw_only=True)
class Torus:
    """Grid modulo a lattice; two links (one each way) join a node to its successor along every axis.

    Along an axis of two nodes both directions reach the same neighbour, by links of their own; along an axis
    of one node the links lead back and stay idle.

    References
    ----------
    Camara et al., "Twisted Torus Topologies for Enhanced Interconnection Networks", IEEE TPDS 21 (2010).
    """

    lattice: tuple[tuple[int, ...], ...]
    """Rows that span the displacements which lead back to the start; upper triangular, diagonal positive.
    Number of links passed along each axis; dimensionless."""

    def __post_init__(self) -> None:
        size = len(self.lattice)
        if not size or any(len(row) != size for row in self.lattice):
            msg = f"lattice of a torus must be square with at least one row; got {self.lattice}"
            raise ParameterError(msg)
        for index, row in enumerate(self.lattice):
            if row[index] < 1 or any(row[:index]):
                msg = f"row {index} of a torus' lattice must be 0 left of a positive diagonal; got {row}"
                raise ParameterError(msg)
        candidates = math.prod(2 * (order // 2) + 1 for order in self.orders)
        if candidates > MOST_CANDIDATES:
            msg = (
                f"torus of {self.nodes} nodes with axes that close after {self.orders} steps has "
                f"{candidates} step vectors; at most {MOST_CANDIDATES} are tried: take a smaller or less "
                "twisted one"
            )
            raise ParameterError(msg)

    @property
    def box(self) -> tuple[int, ...]:
        """Nodes along each axis of a box that holds every node once."""
        return tuple(row[axis] for axis, row in enumerate(self.lattice))

    @property
    def nodes(self) -> int:
        """Nodes in all."""
        return math.prod(self.box)

    @property
    def axes(self) -> int:
        """Axes; a node has twice as many links out."""
        return len(self.lattice)

    @cached_property
    def orders(self) -> tuple[int, ...]:
        """Steps along each axis after which the start is reached again."""
        return tuple(self._order(axis) for axis in range(self.axes))

    def _order(self, axis: int) -> int:
        order, left = 1, [int(index == axis) for index in range(self.axes)]
        for index in range(axis, self.axes):
            times = self.box[index] // math.gcd(self.box[index], left[index])
            order, left = order * times, [times * step for step in left]
            quotient = left[index] // self.box[index]
            left = [step - quotient * back for step, back in zip(left, self.lattice[index], strict=True)]
        return order

    def node(self, steps: np.ndarray) -> np.ndarray:
        """Return the node that displacements from node 0 lead to.

        Parameters
        ----------
        steps : numpy.ndarray
            Whole numbers, shape [..., axes].

        Returns
        -------
        numpy.ndarray
            Index in the box, the last axis fastest; shape [...].
        """
        left = np.array(steps, dtype=np.int64)
        for axis, row in enumerate(self.lattice):
            left -= (left[..., axis] // row[axis])[..., None] * np.array(row)
        return np.ravel_multi_index(tuple(np.moveaxis(left, -1, 0)), self.box)

    @cached_property
    def shortest(self) -> tuple[np.ndarray, np.ndarray]:
        """Shortest step vectors, shape [V, axes], and the nodes to which they lead, shape [V].

        No shortest vector takes more steps along an axis than half its order: back is shorter.
        """
        ranges = [np.arange(-(order // 2), order // 2 + 1) for order in self.orders]
        steps = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, self.axes)
        ends, lengths = self.node(steps), np.abs(steps).sum(axis=1)
        least = np.full(self.nodes, lengths.max())
        np.minimum.at(least, ends, lengths)
        kept = lengths == least[ends]
        return steps[kept], ends[kept]

    @cached_property
    def distances(self) -> np.ndarray:
        """Links on a shortest path from node 0 to each node, shape [N]."""
        steps, ends = self.shortest
        found = np.zeros(self.nodes, dtype=np.int64)
        found[ends] = np.abs(steps).sum(axis=1)
        return found

    @property
    def diameter(self) -> int:
        """Links between the nodes that are farthest apart."""
        return int(self.distances.max())

    @property
    def mean_hops(self) -> float:
        """Links that a message of a uniform all-to-all passes on average; 0 for one node."""
        return float(self.distances.sum() / max(self.nodes - 1, 1))

    @cached_property
    def link_loads(self) -> np.ndarray:
        """Load of a link of each axis when each node sends one unit to every other; shape [axes].

        Notes
        -----
        Every pair shares its unit equally among the shortest step vectors between them. All links of an axis
        carry the same in both directions: N nodes' steps along it over its 2 N links. In which order steps
        are taken does not matter once a node's traffic is the same everywhere.
        """
        steps, ends = self.shortest
        share = 1.0 / np.bincount(ends, minlength=self.nodes)[ends]
        return 0.5 * (share[:, None] * np.abs(steps)).sum(axis=0)

    @property
    def max_link_load(self) -> float:
        """Load of the busiest link in a uniform all-to-all, in units that each pair sends."""
        return float(self.link_loads.max())

    @property
    def distance_bound(self) -> float:
        """Least load of the busiest link under any routing: distances over links out of a node."""
        return float(self.distances.sum() / (2 * self.axes))

    @property
    def injection(self) -> float:
        """Rate at which every node can send into a uniform all-to-all, over the rate of all its links."""
        if self.nodes == 1:
            return 1.0
        return (self.nodes - 1) / (2 * self.axes * self.max_link_load)

    def time_s(self, pair_bytes: float, link_bytes_per_s: float) -> float:
        """Return the time of a uniform all-to-all that its busiest link takes.

        Parameters
        ----------
        pair_bytes : float
            Bytes from each node to every other.
        link_bytes_per_s : float
            Rate of a link, one way.
        """
        return self.max_link_load * pair_bytes / link_bytes_per_s

    @cached_property
    def bisection_at_most(self) -> float:
        """Links (both ways one) that the best cut of the box into equal slabs severs; inf if no axis is even.

        Notes
        -----
        2 N / d of a regular torus with an even longest axis d, which is its bisection.
        """
        places = np.stack(np.unravel_index(np.arange(self.nodes), self.box), axis=-1)
        cuts = [math.inf]
        for axis, size in enumerate(self.box):
            if size % 2 == 0:
                inside = places[:, axis] < size // 2
                ends = (self.node(places + step) for step in np.eye(self.axes, dtype=np.int64))
                cuts.append(float(sum(np.count_nonzero(inside != inside[end]) for end in ends)))
        return min(cuts)

    @property
    def bisection_at_least(self) -> float:
        """Links (both ways one) that any cut into two halves severs, at least.

        Notes
        -----
        Of a uniform all-to-all floor(N^2 / 4) units cross each way, over links that carry no more than the
        maximum load (Leighton, "Introduction to Parallel Algorithms and Architectures", 1992).
        """
        return self.nodes**2 // 4 / self.max_link_load if self.nodes > 1 else 0.0


def regular(shape: Sequence[int]) -> Torus:
    """Return the torus whose axes close on themselves.

    Parameters
    ----------
    shape : sequence of int
        Nodes along each axis.

    Raises
    ------
    ParameterError
        If an axis has no node.
    """
    sizes = [int(size) for size in shape]
    return Torus(
        lattice=tuple(
            tuple(size * (row == axis) for axis in range(len(sizes))) for row, size in enumerate(sizes)
        )
    )


def twisted(shape: Sequence[int]) -> Torus:
    """Return the twisted torus of as many nodes as a shape whose sides are n or 2 n, and not all equal.

    Parameters
    ----------
    shape : sequence of int
        Two or three sides, in any order: the twisted graph is the same along all axes.

    Raises
    ------
    ParameterError
        If it has another shape.

    Notes
    -----
    n x n x 2n: displacements that are multiples of n with an even sum lead back, a face-centred cubic
    lattice; n x 2n x 2n: multiples of n, all even or all odd, a body-centred one; n x 2n: as the first. Such
    lattices are the same along all axes, which is why their loads meet the distance bound.

    References
    ----------
    Jouppi et al., "TPU v4", arXiv:2304.01433: n x n x 2n and n x 2n x 2n, n >= 4.
    """
    n = min((int(size) for size in shape), default=0)
    doubled = sorted(int(size) // n if n > 0 and size % n == 0 else 0 for size in shape)
    if doubled == [1, 2]:
        return Torus(lattice=((n, n), (0, 2 * n)))
    if doubled == [1, 1, 2]:
        return Torus(lattice=((n, 0, n), (0, n, n), (0, 0, 2 * n)))
    if doubled == [1, 2, 2]:
        return Torus(lattice=((n, n, n), (0, 2 * n, 0), (0, 0, 2 * n)))
    msg = (
        f"no twist of {'x'.join(map(str, shape))} is known; it must be n x 2n, n x n x 2n or n x 2n x 2n "
        "(in any order)"
    )
    raise ParameterError(msg)


def cube_sides(endpoints: int) -> tuple[int, int, int]:
    """Return three sides of so many accelerators that are as equal as whole numbers allow, the longest first.

    The last axis, along which neighbours are numbered, then closes around the smallest groups of a plan.
    """
    best = (1, 1, endpoints)
    for x in range(1, math.isqrt(endpoints) + 1):
        if endpoints % x or x**3 > endpoints:
            continue
        rest = endpoints // x
        y = max(size for size in range(1, math.isqrt(rest) + 1) if rest % size == 0)
        best = min(best, (x, y, rest // y), key=lambda sides: (sum(sides), max(sides)))
    z, y, x = sorted(best)
    return x, y, z
