"""Tori of any shape, regular and twisted: links, shortest paths, and the load of a uniform all-to-all.

A torus is the integer grid modulo a lattice. It looks the same from every node, so results for node 0 hold
for all, and the links of one direction carry equal loads: sums over N displacements give exact answers where
a linear programme over N^2 flows would be needed. A torus may be built of cubes that circuit switches join.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from simulator.errors import ParameterError, check_range
from simulator.fabric import Loads
from simulator.goodput import fixed_share, spliced_share
from simulator.interfaces import Flows, LinkGraph
from simulator.topology.graphs import NO_LINK


class TorusSpreading(StrEnum):
    """Spreading of flows over the equally short paths of a torus."""

    SPRAYED = "sprayed"
    """The packets of a flow take all of them equally."""
    STATIC = "static"
    """Every flow takes one, chosen by the places of its source and destination."""


@dataclass(frozen=True, kw_only=True)
class CubeMachine:
    """Cubes of nodes whose faces are cabled to optical circuit switches.

    Links at one place of a face, and at the opposite place, go to one switch, so that this switch can join
    the end of any cube to the beginning of any other along that axis.

    References
    ----------
    Jouppi et al., "TPU v4", arXiv:2304.01433.
    """

    side: int = 4
    """Nodes along a side of a cube."""
    axes: int = 3
    """Axes of a cube."""
    cubes: int = 64
    """Cubes in the machine."""
    nodes_per_host: int = 4
    """Nodes that fail together with their host."""

    def __post_init__(self) -> None:
        check_range(self, "side", "axes", "cubes", "nodes_per_host", low=1)
        if self.nodes_per_cube % self.nodes_per_host:
            rule = f"must divide the nodes of a cube ({self.nodes_per_cube})"
            msg = f"nodes_per_host ({self.nodes_per_host}) {rule}"
            raise ParameterError(msg)

    @property
    def nodes_per_cube(self) -> int:
        """Nodes of a cube."""
        return int(self.side**self.axes)

    @property
    def nodes(self) -> int:
        """Nodes of the machine."""
        return self.nodes_per_cube * self.cubes

    @property
    def links_per_face(self) -> int:
        """Links that leave a cube through one face."""
        return int(self.side ** (self.axes - 1))

    @property
    def links_per_cube(self) -> int:
        """Links that leave a cube: two faces an axis."""
        return 2 * self.axes * self.links_per_face

    @property
    def switches(self) -> int:
        """Switches: one for each pair of opposite places."""
        return self.axes * self.links_per_face

    @property
    def ports_per_switch(self) -> int:
        """Ports of a switch that are cabled: both ends of every cube."""
        return 2 * self.cubes

    @property
    def fibres(self) -> int:
        """Fibres between cubes and switches; each carries both directions."""
        return self.cubes * self.links_per_cube

    def cubes_of(self, shape: Sequence[int]) -> int:
        """Return the number of cubes of a slice.

        Parameters
        ----------
        shape : sequence of int
            Nodes along each axis.

        Raises
        ------
        ParameterError
            If a side is no multiple of a cube's, or the machine has too few cubes.
        """
        shown = "x".join(map(str, shape))
        if len(shape) != self.axes or any(size < 1 or size % self.side for size in shape):
            msg = f"slice {shown} must have {self.axes} sides that are multiples of {self.side}"
            raise ParameterError(msg)
        found = math.prod(size // self.side for size in shape)
        if found > self.cubes:
            msg = f"slice {shown} takes {found} cubes; the machine has {self.cubes}"
            raise ParameterError(msg)
        return found

    def goodput(self, slice_cubes: int, host_availability: float) -> float:
        """Return the share of the machine that works in slices, each of any cubes, which circuits join.

        Parameters
        ----------
        slice_cubes : int
            Cubes of a slice, of which as many as fit are run.
        host_availability : float
            Share of time that a host is up, from 0 to 1; a cube is up when all its hosts are.

        Raises
        ------
        ParameterError
            If the availability is no share, or a slice does not fit.
        """
        return spliced_share(self.cubes, slice_cubes, self._cube_availability(host_availability))

    def static_goodput(self, slice_cubes: int, host_availability: float) -> float:
        """Return the share without circuits: slices are fixed, and one works when all of its cubes are up."""
        return fixed_share(self.cubes, slice_cubes, self._cube_availability(host_availability))

    def _cube_availability(self, host_availability: float) -> float:
        return float(host_availability ** (self.nodes_per_cube // self.nodes_per_host))


TPU_V4 = CubeMachine()
"""Cubes of TPU v4: 64 of 4 x 4 x 4, four chips a host (arXiv:2304.01433)."""


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
    """Basis, as rows, of the displacements (links along each axis) that lead back to the start; upper
    triangular with a positive diagonal."""

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
        """Number of steps along each axis after which the start is reached again."""
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
        """Return the nodes at displacements from node 0.

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
        Every pair splits its unit equally over the shortest step vectors between them. All links of an axis
        carry the same in both directions: the steps of N nodes' traffic along it, over its 2 N links. The
        order of steps does not matter, since all nodes send alike.
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
        """Least load of the busiest link under any routing: sum of distances over links out of a node."""
        return float(self.distances.sum() / (2 * self.axes))

    @property
    def injection(self) -> float:
        """Rate at which every node can send in a uniform all-to-all, over the rate of all its links."""
        if self.nodes == 1:
            return 1.0
        return (self.nodes - 1) / (2 * self.axes * self.max_link_load)

    def time_s(self, pair_bytes: float, link_bytes_per_s: float) -> float:
        """Return the time of a uniform all-to-all, which is that of its busiest link.

        Parameters
        ----------
        pair_bytes : float
            Bytes from each node to every other.
        link_bytes_per_s : float
            Rate of a link, one way.
        """
        return self.max_link_load * pair_bytes / link_bytes_per_s


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
    """Return three sides with a product of `endpoints`, as equal as whole numbers allow, the longest first.

    The last axis, along which neighbours are numbered, is the shortest, so that it closes around the smallest
    groups of a plan.
    """
    best = (1, 1, endpoints)
    for x in range(1, math.isqrt(endpoints) + 1):
        if endpoints % x or x**3 > endpoints:
            continue
        longer, shorter = even_sides(endpoints // x)
        best = min(best, (x, shorter, longer), key=lambda sides: (sum(sides), max(sides)))
    z, y, x = sorted(best)
    return x, y, z


def even_sides(endpoints: int) -> tuple[int, int]:
    """Return two sides with a product of `endpoints`, as equal as whole numbers allow, the longer first."""
    shorter = max(size for size in range(1, math.isqrt(endpoints) + 1) if endpoints % size == 0)
    return endpoints // shorter, shorter


def sides_of(endpoints: int, x: int | None, y: int | None, *, unit: int = 1) -> tuple[int, int, int]:
    """Return three sides with a product of `endpoints`, some of them given, the others as equal as can be.

    Parameters
    ----------
    endpoints : int
        Accelerators; if the given sides do not divide them, the product of the result differs.
    x, y : int, optional
        First and second side.
    unit : int
        Whole number of which the other sides are multiples.
    """
    if x is None and y is None:
        long, middle, short = cube_sides(max(1, endpoints // unit**3))
        return long * unit, middle * unit, short * unit
    if x is not None and y is not None:
        return x, y, max(1, endpoints // (x * y))
    given = x or y or 1
    longer, shorter = (unit * side for side in even_sides(max(1, endpoints // (given * unit**2))))
    return (given, longer, shorter) if y is None else (longer, given, shorter)


def sides_round(
    endpoints: int, blocks: tuple[int, ...], *, least: int, unit: int = 1
) -> list[tuple[int, int, int]]:
    """Return shapes of a torus in which the smallest block of neighbours fills a whole axis or a whole face.

    Parameters
    ----------
    endpoints : int
        Accelerators.
    blocks : tuple of int
        Sizes of the groups of neighbours that exchange; sizes of 1 and of all do not count.
    least, unit : int
        Shortest side, and the whole number of which all are multiples.

    Notes
    -----
    The nearest ranks exchange most. Eight ranks on an axis of 16 are an open line; on an axis of eight, as 16
    ranks on a face of 4 x 4, every rank can use all links of its axes.
    """
    block = next((size for size in sorted(blocks) if 1 < size < endpoints), 1)
    rest = endpoints // block
    shapes = {(*even_sides(rest), block), (rest, *even_sides(block))}
    return sorted(one for one in shapes if min(one) >= least and not any(side % unit for side in one))


def face_sides(endpoints: int, least: int) -> list[tuple[int, int, int]]:
    """Return the sides of all two-dimensional tori of `endpoints` nodes: 1, the shorter, the longer.

    Parameters
    ----------
    endpoints : int
        Nodes.
    least : int
        Shortest side.
    """
    shortest = range(least, math.isqrt(endpoints) + 1)
    return [(1, y, endpoints // y) for y in shortest if endpoints % y == 0]


def box_sides(endpoints: int, least: int) -> list[tuple[int, int, int]]:
    """Return the sides of all three-dimensional tori of `endpoints` nodes, the shortest first.

    Parameters
    ----------
    endpoints : int
        Nodes.
    least : int
        Shortest side.
    """
    return [
        (x, y, endpoints // (x * y))
        for x in range(least, math.isqrt(endpoints) + 1)
        if endpoints % x == 0
        for y in range(x, endpoints // x + 1)
        if endpoints % (x * y) == 0 and y <= endpoints // (x * y)
    ]


FLOWS_AT_ONCE = 2**16
"""Flows whose paths are held at a time, which bounds memory; a choice."""


class StepChoices(NamedTuple):
    """Shortest step vectors from node 0 to each node."""

    vectors: np.ndarray
    """All of them in the order of their ends, shape [V, axes]."""
    first: np.ndarray
    """First vector to each node, shape [N]."""
    counts: np.ndarray
    """Number of vectors to each node, shape [N]."""


@dataclass(frozen=True, kw_only=True)
class TorusPaths:
    """Routes on a torus: axis after axis, along a shortest step vector (links along each axis, with sign).

    Notes
    -----
    Link ``2 axes e + 2 axis`` leads from node e forward along an axis, the next one back. Where several step
    vectors are shortest, sources take them in turns by their places, so that a uniform all-to-all loads all
    links of an axis alike; if all took the same direction, half of the links would carry up to a quarter
    more.
    """

    torus: Torus
    """The torus."""

    @cached_property
    def places(self) -> np.ndarray:
        """Place of each node along each axis, shape [N, axes]."""
        torus = self.torus
        return np.stack(np.unravel_index(np.arange(torus.nodes), torus.box), axis=-1)

    @cached_property
    def heads(self) -> np.ndarray:
        """Node at which each link ends, shape [2 axes N]."""
        moves = np.repeat(np.eye(self.torus.axes, dtype=np.int64), 2, axis=0)
        moves[1::2] *= -1
        return self.torus.node(self.places[:, None, :] + moves).ravel()

    @cached_property
    def tails(self) -> np.ndarray:
        """Node at which each link begins, shape [2 axes N]."""
        return np.repeat(np.arange(self.torus.nodes), 2 * self.torus.axes)

    @cached_property
    def _choices(self) -> StepChoices:
        """Shortest step vectors among which flows choose by their displacement."""
        steps, ends = self.torus.shortest
        order = np.lexsort((*steps.T[::-1], ends))
        counts = np.bincount(ends, minlength=self.torus.nodes)
        first = np.concatenate([[0], np.cumsum(counts)[:-1]])
        return StepChoices(vectors=steps[order], first=first, counts=counts)

    def steps(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the step vector of each flow, shape [F, axes]."""
        start, end = self.places[sources], self.places[destinations]
        is_regular = all(not any(row[axis + 1 :]) for axis, row in enumerate(self.torus.lattice))
        if is_regular:
            return self._regular_steps(start, end)
        vectors, first, counts = self._choices
        displacement = self.torus.node(end - start)
        return vectors[first[displacement] + start.sum(axis=1) % counts[displacement]]

    def carried_bytes(self, flows: Flows) -> float:
        """Return the bytes that cross links, counted at every link of each flow's path."""
        return flows.moved_bytes(np.abs(self.steps(flows.sources, flows.destinations)).sum(axis=1))

    def _regular_steps(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return the step vectors on a torus whose axes close on themselves.

        Parameters
        ----------
        start, end : numpy.ndarray
            Places of sources and destinations, shape [F, axes].

        Notes
        -----
        Half way round an axis both directions are as short; the parity of the other places decides.
        """
        box = np.array(self.torus.box)
        forward = (end - start) % box
        others = (start + end).sum(axis=1, keepdims=True) - end
        goes_back = (2 * forward > box) | ((2 * forward == box) & (others % 2 == 1))
        return forward - box * goes_back

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links of each flow, shape [F, H], padded with `NO_LINK`."""
        return self.links(sources, self.steps(sources, destinations))

    def every_way(self, sources: np.ndarray, destinations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all shortest step vectors of flows, shape [W, axes], behind the flow of each, shape [W]."""
        vectors, first, counts = self._choices
        displacement = self.torus.node(self.places[destinations] - self.places[sources])
        ways = counts[displacement]
        flow = np.repeat(np.arange(sources.size), ways)
        place = np.arange(flow.size) - np.repeat(np.cumsum(ways) - ways, ways)
        return flow, vectors[first[displacement][flow] + place]

    def sprayed(self, flows: Flows, graph: LinkGraph) -> Loads:
        """Return the loads of flows of equal rate, each split equally over all its shortest step vectors.

        Parameters
        ----------
        flows : Flows
            The flows.
        graph : LinkGraph
            The torus' links, numbered as here.
        """
        usage, latency_s = np.zeros(graph.latency_s.size), 0.0
        for start in range(0, flows.sources.size, FLOWS_AT_ONCE):
            part = slice(start, start + FLOWS_AT_ONCE)
            sources, destinations = flows.sources[part], flows.destinations[part]
            flow, steps = self.every_way(sources, destinations)
            found = self.links(sources[flow], steps)
            each = 1.0 / np.bincount(flow)
            if flows.weights is not None:
                each = each * flows.weights[part]
            share = np.broadcast_to(each[flow][:, None], found.shape)
            crossed = found >= 0
            usage += np.bincount(found[crossed], weights=share[crossed], minlength=usage.size)
            way_s = np.where(crossed, graph.latency_s[np.where(crossed, found, 0)], 0.0).sum(axis=1)
            latency_s = max(latency_s, float(way_s.max(initial=0.0)))
        links = np.flatnonzero(usage)
        return Loads(links=links, usage=usage[links], latency_s=latency_s)

    def links(self, sources: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return the links of step vectors taken axis after axis, shape [F, H], padded with `NO_LINK`."""
        axes = self.torus.axes
        reached = np.cumsum(np.abs(steps), axis=1)
        hops = int(reached[:, -1].max(initial=0))
        links = np.full((sources.size, hops), NO_LINK, dtype=np.int64)
        place = self.places[sources]
        node = sources.copy()
        for hop in range(hops):
            moving = np.flatnonzero(reached[:, -1] > hop)
            axis = (reached[moving] <= hop).sum(axis=1)
            sign = np.sign(steps[moving, axis])
            links[moving, hop] = node[moving] * 2 * axes + 2 * axis + (sign < 0)
            place[moving, axis] += sign
            node[moving] = self.torus.node(place[moving])
        return links

    def grid(self, group: np.ndarray) -> tuple[int, ...] | None:
        """Return the shape of the box that a group fills; None if it fills none.

        Parameters
        ----------
        group : numpy.ndarray
            Nodes, in the order of the box with its last axis fastest, shape [n].
        """
        places = self.places[group]
        values = [np.unique(column) for column in places.T]
        shape = tuple(len(one) for one in values)
        if math.prod(shape) != len(group):
            return None
        box = np.stack(np.meshgrid(*values, indexing="ij"), axis=-1).reshape(-1, len(shape))
        return shape if np.array_equal(box, places) else None
