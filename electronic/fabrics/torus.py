"""Accelerators in a three-dimensional torus, joined by copper or by fibres without any switch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from electronic.devices import Transceiver, load_transceiver
from simulator.errors import ParameterError, check_choices, check_range
from simulator.fabric import Fabric, Loads, Splicing, Traits
from simulator.interfaces import Flows, Wiring
from simulator.topology.clos import DirectLink, load_direct_link
from simulator.topology.graphs import GraphFabric, bundle
from simulator.topology.scale_up import BillItem, HopBudget, OpticalHop, load_hop
from simulator.topology.torus import (
    Torus,
    TorusPaths,
    TorusSpreading,
    box_sides,
    cube_sides,
    face_sides,
    regular,
    sides_of,
    sides_round,
    twisted,
)
from simulator.units import BITS_PER_BYTE

LEAST_SIDE = 4
"""Shortest side of a torus that a search tries, the side of a TPU v4 cube (Jouppi et al., ISCA 2023).
Dimensionless."""


class Medium(StrEnum):
    """Medium of a torus's links."""

    ELECTRICAL = "electrical"
    """Copper cables and boards."""
    OPTICAL = "optical"
    """A module at both ends and a fibre, without a switch."""


class Wrap(StrEnum):
    """Joining of a torus's ends."""

    REGULAR = "regular"
    """Every axis closes on itself."""
    TWISTED = "twisted"
    """Shifted, so that all axes look alike; shapes n x 2n, n x n x 2n and n x 2n x 2n only."""


@dataclass(frozen=True, kw_only=True)
class TorusFabric(GraphFabric):
    """Accelerators on a three-dimensional grid, each linked to two neighbours along every axis.

    Notes
    -----
    Accelerator e is at ``(e // (y z), e // z % y, e % z)``. Flows go axis after axis (dimension order), over
    all shortest routes at once or over one route chosen by their end points. The torus is the only network:
    there are no nodes with a scale-up domain of their own.

    References
    ----------
    Jouppi et al., "TPU v4", arXiv:2304.01433.
    """

    name: str = "torus"
    """Name shown in tables and traces."""
    endpoints: int
    """Accelerators."""
    x: int | None = None
    """Accelerators along the first axis, whose neighbours are y z apart. None for sides as near to a cube as
    possible or, in a step, for the fastest of `laid_for`. Dimensionless."""
    y: int | None = None
    """Accelerators along the second axis, None as for x; the length of the third axis follows.
    Dimensionless."""
    wrap: Wrap = Wrap.REGULAR
    """Joining of the ends of an axis."""
    link: DirectLink = field(default_factory=lambda: load_direct_link("ici-v4"))
    """Link and the router port at its ends."""
    medium: Medium = Medium.ELECTRICAL
    """Medium of the links."""
    transceiver: Transceiver = field(default_factory=lambda: load_transceiver("dr4-400g"))
    """Module at both ends of an optical link."""
    hop: OpticalHop = field(default_factory=lambda: load_hop("dr4"))
    """Permitted loss of an optical link."""
    spreading: TorusSpreading = TorusSpreading.SPRAYED
    """Spreading of a flow over the shortest routes."""

    def __post_init__(self) -> None:
        check_choices(self)
        chosen = [axis for axis in ("x", "y") if getattr(self, axis) is not None]
        check_range(self, "endpoints", *chosen, low=1)
        if self.endpoints % math.prod(getattr(self, axis) for axis in chosen):
            sides = cube_sides(self.endpoints)
            named = " times ".join(f"{axis} ({getattr(self, axis)})" for axis in chosen)
            msg = (
                f"{named} must divide the {self.endpoints} endpoints of a torus; "
                f"try x={sides[0]}, y={sides[1]}"
            )
            raise ParameterError(msg)
        _ = self.torus
        if self.medium is Medium.OPTICAL:
            _ = self.optical_budget

    def variants(self) -> dict[str, Fabric]:
        """Return the fabric with other sides, in three dimensions or two; a two-dimensional one stays so."""
        boxes = [] if self.shape[0] == 1 else box_sides(self.endpoints, LEAST_SIDE)
        sides = [*boxes, *face_sides(self.endpoints, LEAST_SIDE)]
        return {f"{x} x {y}": replace(self, x=x, y=y) for x, y, _ in sides if (x, y) != self.shape[:2]}

    def laid_for(self, blocks: tuple[int, ...]) -> tuple[Fabric, ...]:
        """Return the fabric and, unless its sides were chosen, tori whose sides close rings of the blocks."""
        if self.x is not None or self.y is not None or self.wrap is Wrap.TWISTED:
            return (self,)
        shapes = sides_round(self.endpoints, blocks, least=LEAST_SIDE)
        others = (shape for shape in shapes if shape != self.shape)
        return (self, *(replace(self, x=x, y=y, name=f"{self.name}, {x} x {y}") for x, y, _ in others))

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Accelerators along each axis."""
        return sides_of(self.endpoints, self.x, self.y)

    @cached_property
    def traits(self) -> Traits:
        """Fixed placement: no other host can replace a failed one, so that a job waits for repair."""
        return Traits(splicing=Splicing.FIXED)

    @cached_property
    def torus(self) -> Torus:
        """The graph; axes of one accelerator have no links."""
        sides = tuple(size for size in self.shape if size > 1) or (1,)
        return regular(sides) if self.wrap is Wrap.REGULAR else twisted(sides)

    @cached_property
    def ways(self) -> TorusPaths:
        """Links and routes."""
        return TorusPaths(torus=self.torus)

    @cached_property
    def optical_budget(self) -> HopBudget:
        """Loss budget of an optical link.

        Raises
        ------
        LinkError
            If too little light arrives.
        """
        return self.hop.closed(f"neighbours in '{self.name}'", self.transceiver.fibre_m)

    @property
    def link_bytes_per_s(self) -> float:
        """Rate of a long transfer on a link, one way."""
        line = self.link.bandwidth_bytes_per_s
        if self.medium is Medium.OPTICAL:
            line = min(line, self.transceiver.bandwidth_bytes_per_s)
        return line * self.link.efficiency

    @property
    def links(self) -> int:
        """Links; both directions count as one."""
        return self.torus.axes * self.endpoints if self.endpoints > 1 else 0

    @cached_property
    def wiring(self) -> Wiring:
        """Links of each accelerator: forward and back along every axis."""
        latency_s = self.link.latency_s
        if self.medium is Medium.OPTICAL:
            latency_s += self.transceiver.link_latency_s
        return bundle(
            self.ways.tails,
            self.ways.heads,
            rate_bytes_per_s=self.link_bytes_per_s,
            latency_s=latency_s,
        )

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links from sources to other endpoints, shape [F, H], padded with `NO_LINK`."""
        return self.ways.paths(sources, destinations)

    def loads(self, circuits: None, flows: Flows) -> Loads:
        """Return the loads of flows of equal rate on links; sprayed flows use all shortest routes equally."""
        if self.spreading is TorusSpreading.SPRAYED:
            return self.ways.sprayed(flows, self.graph(circuits))
        return super().loads(circuits, flows)

    def grid(self, group: np.ndarray) -> tuple[int, ...] | None:
        """Return the shape of the box that a group fills in order, by which collectives run, or None."""
        return self.ways.grid(group)

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        cable_usd = self.link.price_usd if self.medium is Medium.ELECTRICAL else 0.0
        bill = {"router port": BillItem(count=2 * self.links, w_each=self.link.static_w, usd_each=cable_usd)}
        if self.medium is Medium.OPTICAL:
            bill["transceiver"] = self.transceiver.item(2 * self.links)
        return bill

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once, summed over the links of their routes."""
        return self.ways.carried_bytes(flows) * BITS_PER_BYTE * self.link.energy_j_per_bit
