"""A torus built of cubes that circuit switches join: switches and ports from geometry, slices and goodput."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from heliograph.checks import check_range
from heliograph.errors import ParameterError


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
        """Return how many cubes a slice takes.

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

    def static_goodput(self, slice_cubes: int, host_availability: float) -> float:
        """Return the same without circuits: slices are fixed, and one works when all of its hosts are up.

        Raises
        ------
        ParameterError
            If the availability is no share, or a slice does not fit.
        """
        self._check_slice(slice_cubes, host_availability)
        hosts = slice_cubes * (self.nodes_per_cube // self.nodes_per_host)
        slices = self.cubes // slice_cubes
        return slices * slice_cubes / self.cubes * host_availability**hosts

    def goodput(self, slice_cubes: int, host_availability: float) -> float:
        """Return the share of the machine that works in slices, if any healthy cubes can make one.

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

        Notes
        -----
        E[k floor(H / k)] / cubes with H healthy cubes, which are independent and thus binomial.

        References
        ----------
        Jouppi et al., "TPU v4", arXiv:2304.01433.
        """
        self._check_slice(slice_cubes, host_availability)
        up = host_availability ** (self.nodes_per_cube // self.nodes_per_host)
        working = (
            slice_cubes
            * (healthy // slice_cubes)
            * math.comb(self.cubes, healthy)
            * up**healthy
            * (1.0 - up) ** (self.cubes - healthy)
            for healthy in range(slice_cubes, self.cubes + 1)
        )
        return math.fsum(working) / self.cubes

    def _check_slice(self, slice_cubes: int, host_availability: float) -> None:
        if not 0.0 <= host_availability <= 1.0:
            msg = f"host availability must be from 0 to 1; got {host_availability}"
            raise ParameterError(msg)
        if not 1 <= slice_cubes <= self.cubes:
            msg = f"a slice of {slice_cubes} cubes does not fit; take 1 to {self.cubes}"
            raise ParameterError(msg)


TPU_V4 = CubeMachine()
"""Cubes of TPU v4: 64 of 4 x 4 x 4, four chips a host (arXiv:2304.01433)."""
