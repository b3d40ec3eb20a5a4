"""Cubes of accelerators whose faces optical circuit switches join to tori, regular or twisted."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from optical.fabrics.switches import (
    LaneBudget,
    LaneOptics,
    OpticalSwitch,
    lane_budget,
    load_optics,
    load_switch,
    spare_time_s,
    switch_chassis,
    switch_stages,
)
from simulator.errors import ParameterError, RouteError, check_choices, check_range
from simulator.fabric import Fabric, Loads, PortOwner, Ports, Splicing, Traits
from simulator.interfaces import Flows, LinkGraph, Reconfiguration, Wiring
from simulator.layout import Axis
from simulator.topology.clos import DirectLink, load_direct_link
from simulator.topology.graphs import NO_LINK, detours
from simulator.topology.scale_up import BillItem
from simulator.topology.torus import (
    CubeMachine,
    Torus,
    TorusPaths,
    TorusSpreading,
    box_sides,
    regular,
    sides_of,
    sides_round,
    twisted,
)
from simulator.units import BITS_PER_BYTE


class Closing(StrEnum):
    """Way in which circuits close the ends of the torus."""

    REGULAR = "regular"
    """Each axis closes on itself."""
    TWISTED = "twisted"
    """Ends are shifted, so that all axes look alike; shapes n x n x 2n and n x 2n x 2n only."""
    PER_AXIS = "per-axis"
    """Twisted while experts exchange tokens, regular otherwise; circuits turn in between."""


EXCHANGES = frozenset({Axis.EXPERT})
"""Axes of parallelism for which per-axis circuits are twisted."""


@dataclass(frozen=True, kw_only=True)
class CubeFabric(Fabric):
    """Accelerators on a torus; inside cubes links are copper, between cubes circuits.

    Notes
    -----
    Accelerator e is at ``(e // (y z), e // z % y, e % z)``; a twisted shape has its longest axes last. Every
    link that leaves a cube, the ends of the torus included, is a duplex fibre to a circuit switch, which
    joins opposite places of any two cubes' faces (`simulator.topology.torus.CubeMachine`). Circuits are set
    before the job begins, and stay unless `closing` is per axis. It does not matter which cubes the job has,
    as the switches join any with any.

    Link ``2 axes e + 2 axis`` leads from accelerator e forward along an axis, the next one back.

    References
    ----------
    Jouppi et al., "TPU v4", arXiv:2304.01433: cubes, 48 switches, slices of any shape, twisted tori.
    """

    name: str = "cubes"
    """Name shown in tables and traces."""
    endpoints: int
    """Accelerators."""
    x: int | None = None
    """Accelerators along the first axis; None for a shape as near to a cube as possible, or that in which a
    step runs fastest (`laid_for`). Dimensionless."""
    y: int | None = None
    """Accelerators along the second axis, None as for x; the third axis follows. Dimensionless."""
    side: int = 4
    """Accelerators along a side of a cube; divides every axis. Dimensionless."""
    closing: Closing = Closing.REGULAR
    """Way in which circuits close the ends of the torus."""
    link: DirectLink = field(default_factory=lambda: load_direct_link("ici-v4"))
    """Link of the torus and the router port at its ends; copper inside cubes."""
    switch: OpticalSwitch = field(default_factory=lambda: load_switch("palomar-mems"))
    """The optical switches."""
    optics: LaneOptics = field(default_factory=lambda: load_optics("lane-100g-cwdm-duplex"))
    """Transmitter and receiver of each wavelength between cubes."""
    lanes: int = 4
    """Wavelengths of a link between cubes, all in one fibre."""
    spreading: TorusSpreading = TorusSpreading.SPRAYED
    """Spreading of a flow over its shortest paths."""

    def __post_init__(self) -> None:
        check_choices(self)
        sides_given = [name for name in ("x", "y") if getattr(self, name) is not None]
        check_range(self, "endpoints", *sides_given, "side", "lanes", low=1)
        x, y, z = self.shape
        if self.endpoints != x * y * z or any(size % self.side for size in self.shape if size > 1):
            best = sides_of(self.endpoints, None, None, unit=self.side)
            msg = (
                f"{self.endpoints} endpoints of '{self.name}' with x={x}, y={y} do not fill cubes "
                f"of {self.side} along every axis; try x={best[0]}, y={best[1]}, or another side"
            )
            raise ParameterError(msg)
        _ = self.ways, self.budget

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Accelerators along each axis, as asked for; a twisted torus numbers its longer axes last."""
        return sides_of(self.endpoints, self.x, self.y, unit=self.side)

    def laid_for(self, blocks: tuple[int, ...]) -> tuple[Fabric, ...]:
        """Return the fabric, and where its sides were not chosen, others that close on the smallest block."""
        if self.x is not None or self.y is not None or self.closing is not Closing.REGULAR:
            return (self,)
        shapes = sides_round(self.endpoints, blocks, least=self.side, unit=self.side)
        others = (one for one in shapes if one != self.shape)
        return (self, *(replace(self, x=x, y=y, name=f"{self.name}, {x} x {y}") for x, y, _ in others))

    @cached_property
    def traits(self) -> Traits:
        """Ports that are links between cubes, and cubes that circuits replace as a whole."""
        return Traits(
            reconfiguration_s=self.switch.reconfiguration_s,
            ports=Ports(
                owner=PortOwner.ENDPOINT,
                owners=self.endpoints,
                lanes=self.port_lanes,
                circuits=False,
                switches=self.switches,
            ),
            splicing=Splicing.CUBE,
            idle_numbers=self.optics.idle_numbers,
        )

    def variants(self) -> dict[str, Fabric]:
        """Return the fabric with other sides of whole cubes, and closed in other ways."""
        found: dict[str, Fabric] = {}
        for x, y, z in box_sides(self.endpoints, self.side):
            if any(side % self.side for side in (x, y, z)):
                continue
            twists = (x, y, z) in {(x, x, 2 * x), (x, 2 * x, 2 * x)}
            for closing in Closing:
                if (x, y, closing) != (*self.shape[:2], self.closing) and (
                    closing is Closing.REGULAR or twists
                ):
                    found[f"{x} x {y} x {z} {closing}"] = replace(self, x=x, y=y, closing=closing)
        return found

    @cached_property
    def ways(self) -> dict[Closing, TorusPaths]:
        """Links and routes of each torus that circuits may form, by closing."""
        sides = tuple(size for size in self.shape if size > 1) or (1,)
        if self.closing is Closing.REGULAR:
            return {Closing.REGULAR: TorusPaths(torus=regular(sides))}
        shifted = twisted(sides)
        both = {Closing.TWISTED: TorusPaths(torus=shifted)}
        if self.closing is Closing.PER_AXIS:
            both[Closing.REGULAR] = TorusPaths(torus=regular(shifted.box))
        return both

    @property
    def torus(self) -> Torus:
        """The torus at the start of a job."""
        return self.ways[self.initial(())].torus

    @cached_property
    def machine(self) -> CubeMachine:
        """Cubes, their faces and the switches to which these are cabled."""
        axes = self.torus.axes
        return CubeMachine(
            side=self.side, axes=axes, cubes=self.endpoints // self.side**axes, nodes_per_host=1
        )

    @cached_property
    def stages(self) -> int:
        """Optical switches that a circuit passes: one, or three if cubes outnumber half of its ports."""
        return switch_stages(self.switch, self.machine.ports_per_switch)

    @cached_property
    def budget(self) -> LaneBudget:
        """Power budget of a wavelength from cube to cube.

        Raises
        ------
        LinkError
            If its light does not arrive.
        """
        return lane_budget(self.optics, self.switch, self.stages)

    @cached_property
    def between(self) -> np.ndarray:
        """Whether each link leaves its cube, shape [2 axes E]."""
        if self.endpoints == 1:
            return np.zeros(2 * self.torus.axes, dtype=bool)
        places = self.ways[self.initial(())].places % self.side
        return np.stack([places == self.side - 1, places == 0], axis=-1).ravel()

    @cached_property
    def _graph(self) -> LinkGraph:
        copper, light = self.link.bandwidth_bytes_per_s, self.lanes * self.optics.bandwidth_bytes_per_s
        rate = np.where(self.between, min(copper, light), copper) * self.link.efficiency
        latency_s = self.link.latency_s + self.optics.link_latency_s * self.between
        rate.flags.writeable = False
        latency_s.flags.writeable = False
        return LinkGraph(capacity_bytes_per_s=rate, latency_s=latency_s)

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        ends = 2 * self.torus.axes * self.endpoints if self.endpoints > 1 else 0
        faces = int(self.between.sum())
        machine = self.machine
        chassis = switch_chassis(self.switch, machine.ports_per_switch, machine.switches) if faces else 0
        return {
            "router port": BillItem(count=ends, w_each=self.link.static_w, usd_each=0.0),
            "copper cable end": BillItem(count=ends - faces, w_each=0.0, usd_each=self.link.price_usd),
            "optical lane": BillItem(
                count=faces * self.lanes,
                w_each=self.optics.electronics_w + self.budget.laser_w,
                usd_each=self.optics.price_usd,
            ),
            "duplex fibre": BillItem(
                count=faces, w_each=0.0, usd_each=0.0, fibre_ends=1, fibre_m=self.optics.fibre_m / 2
            ),
            "optical switch": self.switch.item(chassis),
        }

    def initial(self, demand: tuple[Flows, ...]) -> Closing:
        """Return the closing at the start of a step, to which circuits were set before the job began."""
        if self.closing is not Closing.PER_AXIS:
            return self.closing
        return self._wanted(demand[0]) if demand else Closing.REGULAR

    def configure(
        self, circuits: Closing, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[Closing, Reconfiguration]:
        """Return the closing that some flows want, and the reconfiguration to it.

        Notes
        -----
        Only circuits with another end afterwards turn; those along axes that no twist shifts stay lit.
        """
        wanted = self._wanted(flows)
        if wanted is circuits:
            return circuits, Reconfiguration()
        moved = np.flatnonzero(self.ways[circuits].heads != self.ways[wanted].heads)
        return wanted, Reconfiguration(
            reconfiguration_s=self.switch.turn_s(self.stages * moved.size),
            moved_links=moved,
            energy_j=self.stages * moved.size * self.switch.move_energy_j,
        )

    def graph(self, circuits: Closing) -> LinkGraph:
        """Return the capacity and latency of all links, the same for each closing."""
        return self._graph

    def route(self, circuits: Closing, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, H]; a flow to itself has none."""
        if not self.connected(circuits, flows):
            msg = (
                f"'{self.name}' is {circuits} now, and axis '{flows.axis}' wants it {self._wanted(flows)}; "
                "configure the fabric for it"
            )
            raise RouteError(msg)
        moving = flows.sources != flows.destinations
        paths = self.ways[circuits].paths(flows.sources[moving], flows.destinations[moving])
        links = np.full((moving.size, paths.shape[1]), NO_LINK, dtype=np.int64)
        links[moving] = paths
        return links

    def around(self, circuits: Closing, flows: Flows, failed: np.ndarray) -> np.ndarray:
        """Return the links of each flow as `route` does, with detours past failed links if there are any."""
        return detours(self.wired(circuits), self.route(circuits, flows), flows, failed)

    def wired(self, circuits: Closing) -> Wiring:
        """Return the links of the present torus with their ends."""
        ways, graph = self.ways[circuits], self.graph(circuits)
        return Wiring(
            tails=ways.tails,
            heads=ways.heads,
            capacity_bytes_per_s=graph.capacity_bytes_per_s,
            latency_s=graph.latency_s,
        )

    @property
    def port_lanes(self) -> int:
        """Ports of each accelerator: one in each direction, in the order of its links."""
        return 2 * self.torus.axes

    @property
    def switches(self) -> int:
        """Positions of optical switches: one for each place on the faces of an axis, 48 with cubes of 4^3."""
        return self.machine.switches

    @cached_property
    def position(self) -> np.ndarray:
        """Number of the switch that each link passes, -1 for copper, shape [2 axes E].

        The links of all cubes at one place of opposite faces meet in one switch (Jouppi et al.,
        arXiv:2304.01433). In a small machine several of these may share a chassis, which the bill counts.
        """
        axes, places = self.torus.axes, self.ways[self.initial(())].places % self.side
        position = np.full((self.endpoints, axes, 2), NO_LINK, dtype=np.int64)
        for axis in range(axes):
            others = np.delete(places, axis, axis=1)
            weights = self.side ** np.arange(axes - 2, -1, -1)
            position[:, axis] = (axis * self.machine.links_per_face + others @ weights)[:, None]
        return np.where(self.between, position.ravel(), NO_LINK)

    def port_links(self, endpoint: int, lane: int) -> np.ndarray:
        """Return the link out of an accelerator's port, and the links into it under each closing."""
        out = endpoint * self.port_lanes + lane
        back = [int(ways.heads[out]) * self.port_lanes + (lane ^ 1) for ways in self.ways.values()]
        return np.unique([out, *back])

    def switch_links(self, switch: int) -> np.ndarray:
        """Return the links over the switch at a position."""
        return np.flatnonzero(self.position == switch)

    def replacement_s(self, ports: np.ndarray) -> float:
        """Return the time until spare ports of the switches have replaced failed ports [n]."""
        copper = ports[self.position[ports] == NO_LINK]
        if copper.size:
            endpoint, lane = divmod(int(copper[0]), self.port_lanes)
            msg = f"port {lane} of endpoint {endpoint} is copper inside a cube; no switch has a spare of it"
            raise ParameterError(msg)
        return spare_time_s(self.switch, self.position[ports].tolist())

    def loads(self, circuits: Closing, flows: Flows) -> Loads:
        """Return the loads of flows of equal rate; sprayed ones are spread over all their shortest paths."""
        if self.spreading is TorusSpreading.STATIC:
            return super().loads(circuits, flows)
        return self.ways[circuits].sprayed(flows, self.graph(circuits))

    def connected(self, circuits: Closing, flows: Flows) -> bool:
        """Return whether the torus is closed as flows want; every endpoint reaches every other on it."""
        return self._wanted(flows) is circuits

    def circuit_parts(self, flows: Flows) -> np.ndarray:
        """Return part 0, all circuits, which turn together."""
        return np.zeros(1, dtype=np.int64)

    def part_settings(self, circuits: Closing, parts: np.ndarray) -> Hashable:
        """Return the present closing."""
        return circuits

    def grid(self, group: np.ndarray) -> tuple[int, ...] | None:
        """Return the shape of the box that a group fills in order, for collectives of boxes; None if none."""
        return self.ways[self.initial(())].grid(group)

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all flows once, over every link of their paths."""
        carried_bytes = self.ways[self._wanted(flows)].carried_bytes(flows)
        return carried_bytes * BITS_PER_BYTE * self.link.energy_j_per_bit

    def _wanted(self, flows: Flows) -> Closing:
        """Return the closing that some flows want."""
        if self.closing is not Closing.PER_AXIS:
            return self.closing
        return Closing.TWISTED if flows.axis in EXCHANGES else Closing.REGULAR
