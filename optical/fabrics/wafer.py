"""Optical circuits inside the scale-up domain: chips of a wafer joined by light, wafers by packets.

`Wafer` has geometry, losses and lanes of a wafer or optical interposer, `WaferFabric` the fabric of such
wafers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from optical.fabrics.circuits import (
    DARK,
    PATHS,
    Circuits,
    ForwardingCircuits,
    circuit_wiring,
    domain_demands,
    job_links,
    lanes_of,
)
from optical.fabrics.node_circuits import BesidePackets, CircuitsBeside
from optical.fabrics.switches import PARAMETERS, LaneBudget
from simulator.errors import (
    Checked,
    Count,
    Dbm,
    Efficiency,
    FromOne,
    LinkError,
    ParameterError,
    Positive,
    RouteError,
    check_choices,
)
from simulator.fabric import CircuitPolicy, Loads, PortOwner, Ports, PortTiming, Traits, check_policy
from simulator.interfaces import Flows, Reconfiguration, Wiring
from simulator.tables import Shelf
from simulator.topology.graphs import NO_LINK, joined, packed, shared_loads
from simulator.topology.scale_up import BillItem
from simulator.units import BITS_PER_BYTE, SPEED_OF_LIGHT_M_PER_S, watts_from_dbm


@dataclass(frozen=True, kw_only=True)
class Wafer(Checked):
    """Chips on a grid above waveguides, whose switching elements set up circuits from chip to chip.

    Notes
    -----
    A circuit goes along rows and columns. Each tile that it enters costs a pitch of waveguide, a seam between
    reticles, a switching element and the crossings of a tile; one more element is at its start.
    """

    name: str = "wafer"
    """Name shown in tables."""
    chips: Count
    """Chips on one wafer."""
    lanes: Count
    """Circuits that a chip begins, and as many that it ends."""
    lane_bytes_per_s: Positive
    """Line rate of one circuit."""
    pitch_m: Positive
    """Distance between neighbouring chips."""
    waveguide_loss_db_per_m: float
    """Loss of the waveguides."""
    crossings: int
    """Waveguides that a circuit crosses in each tile that it enters."""
    crossing_loss_db: float
    """Loss of one crossing."""
    stitch_loss_db: float
    """Loss where two reticles meet."""
    switch_loss_db: float
    """Loss of one switching element."""
    modulator_loss_db: float
    """Loss of modulator and multiplexers."""
    margin_db: float
    """Penalties and ageing."""
    sensitivity_dbm: Dbm
    """Power the receiver of a lane needs."""
    launch_max_dbm: Dbm
    """Most power that a lane launches."""
    laser_efficiency: Efficiency
    """Light in the waveguide over electrical power of the laser, 0 to 1."""
    energy_j_per_bit: float
    """Dynamic energy of a bit over one circuit, without the laser."""
    lane_static_w: float
    """Power of tuning and bias of one lane, all the time."""
    end_latency_s: float
    """Time at both ends of a circuit together."""
    group_index: FromOne
    """Group index of the waveguides, dimensionless."""
    switch_s: float
    """Time until a switching element has settled."""
    relock_s: float
    """Time until a receiver has found the new signal."""
    control_s: float
    """Time from the decision to the command."""
    move_energy_j: float
    """Energy of turning one switching element."""
    chip_price_usd: float
    """Price of wafer, lasers and assembly for each chip."""

    @property
    def columns(self) -> int:
        """Chips in a row of the grid, which is as near to a square as possible."""
        return math.ceil(math.sqrt(self.chips))

    @property
    def longest_hops(self) -> int:
        """Tiles that the longest circuit enters: from corner to corner along rows and columns."""
        return self.columns - 1 + math.ceil(self.chips / self.columns) - 1

    @property
    def reconfiguration_s(self) -> float:
        """Time in which a moving circuit carries nothing."""
        return self.control_s + self.switch_s + self.relock_s

    @property
    def latency_s(self) -> float:
        """Time over the longest circuit."""
        light_s = self.longest_hops * self.pitch_m * self.group_index / SPEED_OF_LIGHT_M_PER_S
        return self.end_latency_s + light_s

    def budget(self) -> LaneBudget:
        """Return the power budget of the longest circuit; every lane launches the power that it needs.

        Raises
        ------
        LinkError
            If a lane cannot launch that much; names the element that loses most.
        """
        tiles = self.longest_hops
        losses = (
            ("waveguide", tiles * self.pitch_m * self.waveguide_loss_db_per_m),
            ("crossings", tiles * self.crossings * self.crossing_loss_db),
            ("seams between reticles", tiles * self.stitch_loss_db),
            ("switching elements", (tiles + 1) * self.switch_loss_db),
            ("modulator", self.modulator_loss_db),
            ("margin", self.margin_db),
        )
        launch_dbm = self.sensitivity_dbm + sum(loss for _, loss in losses)
        missing_db = launch_dbm - self.launch_max_dbm
        if missing_db > 0.0:
            what, greatest_db = max(losses, key=lambda item: item[1])
            msg = (
                f"the longest circuit of wafer '{self.name}' ({tiles} tiles) does not close: "
                f"{missing_db:.1f} dB are missing; the greatest loss is {what} ({greatest_db:.1f} dB); "
                "try fewer chips, less of it, or lanes that launch more"
            )
            raise LinkError(msg)
        laser_w = watts_from_dbm(launch_dbm) / self.laser_efficiency
        return LaneBudget(losses_db=losses, launch_dbm=launch_dbm, laser_w=laser_w)


load_wafer = Shelf(Wafer, PARAMETERS / "wafers.csv")
"""Wafers, e.g. ``"lightpath"``."""


@dataclass(frozen=True, kw_only=True)
class WaferFabric(BesidePackets, CircuitsBeside):
    """Wafers whose chips are joined by optical circuits, laid out for the step or for one axis of it.

    Notes
    -----
    A node is a wafer. Circuits are laid out by `optical.fabrics.circuits.job_links`; chips without a circuit
    between them are reached over others, each of which converts light to electricity and back. Between wafers
    flows take the packet fabric. Rate, power and price inside its nodes are replaced by the wafer's; the
    protocols of its communication library are kept. Links are those of the packet fabric, then circuits
    ``chip * lanes + lane``.

    References
    ----------
    Vijaya Kumar et al., "A case for server-scale photonic connectivity", HotNets 2024 (LIGHTPATH); Vijaya
    Kumar et al., "Lumion", arXiv:2505.23105; Lightmatter, Passage.
    """

    name: str = "wafer"
    """Name shown in tables and traces."""
    wafer: Wafer = field(default_factory=lambda: load_wafer("lightpath"))
    """Wafers and their lanes."""
    policy: CircuitPolicy = CircuitPolicy.PER_AXIS
    """Whether circuits stay for the step, or those of a wafer turn to the axis that has traffic."""
    turning: PortTiming = PortTiming.ON_REQUEST
    """Whether circuits turn when traffic asks for them, or ahead of it."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_policy(self)
        if self.packets.scale_up.size > self.wafer.chips:
            msg = (
                f"nodes of {self.packets.scale_up.size} accelerators do not fit wafer '{self.wafer.name}' of "
                f"{self.wafer.chips} chips; make nodes smaller, or take another wafer"
            )
            raise ParameterError(msg)
        _ = self.budget

    @cached_property
    def traits(self) -> Traits:
        """Library of the nodes, and circuits from chip to chip whose ends are lanes of chips."""
        one_path = "packets beside circuits of a wafer take one path each"
        return Traits(
            scale_up=self.scale_up,
            policy=self.policy,
            can_prefetch=True,
            prefetches=self.turning is PortTiming.PREFETCHED,
            reconfiguration_s=self.wafer.reconfiguration_s,
            ports=Ports(owner=PortOwner.ENDPOINT, owners=self.endpoints, lanes=self.wafer.lanes),
            idle_numbers={
                **self.packets.traits.idle_numbers,
                **dict.fromkeys(("queue_pairs", "shipped_queue_pairs"), one_path),
            },
        )

    @cached_property
    def budget(self) -> LaneBudget:
        """Power budget of a lane over the longest circuit."""
        return self.wafer.budget()

    @property
    def circuit_bytes_per_s(self) -> float:
        """Rate of one circuit that a long transfer reaches."""
        return self.wafer.lane_bytes_per_s * self.scale_up.efficiency

    @property
    def circuit_latency_s(self) -> float:
        """Time from chip to chip over one circuit."""
        return self.wafer.latency_s

    @property
    def parts(self) -> int:
        """Wafers."""
        return self.endpoints // self.node_size

    @property
    def part_lanes(self) -> int:
        """Lanes of a wafer's chips."""
        return self.node_size * self.wafer.lanes

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        outside = {name: item for name, item in self.packets.bill().items() if name != "scale-up"}
        if self.endpoints <= self.node_size:
            outside = {}
        lane_w = self.wafer.lane_static_w + self.budget.laser_w
        return outside | {
            "wafer lane": BillItem(count=self.endpoints * self.wafer.lanes, w_each=lane_w, usd_each=0.0),
            "wafer chip": BillItem(count=self.endpoints, w_each=0.0, usd_each=self.wafer.chip_price_usd),
        }

    def initial(self, demand: tuple[Flows, ...]) -> ForwardingCircuits:
        """Return circuits for all traffic of the step, or for the first axis that stays on wafers."""
        kept = [flows for flows in demand if self._on_wafer(flows).any()]
        axis = ""
        if self.policy is CircuitPolicy.PER_AXIS and kept:
            axis = kept[0].axis
            kept = [flows for flows in kept if flows.axis == axis]
        dark = np.full((self.endpoints, self.wafer.lanes), DARK, dtype=np.int64)
        every = np.arange(self.endpoints)
        ring = Flows.around(every.reshape(-1, self.node_size), size_bytes=1.0)
        tx_peer = self._laid_out(self._laid_out(dark, [ring]), kept)
        axes = (axis,) * self.parts
        return ForwardingCircuits(circuits=Circuits(tx_peer), domain=self.node_size, axes=axes)

    def _laid_out(self, tx_peer: np.ndarray, served: Sequence[Flows]) -> np.ndarray:
        """Return the lanes [E, lanes] after those of wafers with traffic were laid out for it."""
        after, size = tx_peer.copy(), self.node_size
        for wafer, demand in domain_demands(served, np.arange(self.endpoints), size).items():
            links = job_links(demand, self.wafer.lanes, all_meet=self.policy is CircuitPolicy.STATIC)
            first = wafer * size
            after[first : first + size] = lanes_of(links, self.wafer.lanes, first)
        return after

    def _on_wafer(self, flows: Flows) -> np.ndarray:
        """Return whether each flow goes to another chip of its wafer, bool [F]."""
        return ~self.scale_up.off_node(flows) & (flows.sources != flows.destinations)

    def asking(self, circuits: ForwardingCircuits, flows: Flows) -> np.ndarray:
        """Return the wafers whose circuits should turn before some flows begin, shape [W]."""
        kept = self._on_wafer(flows)
        sources, destinations = flows.sources[kept], flows.destinations[kept]
        served = circuits.reaches(sources, destinations)
        if self.policy is CircuitPolicy.PER_AXIS:
            axes = np.array(circuits.axes, dtype=object)
            served &= axes[sources // self.node_size] == flows.axis
        return np.unique(sources[~served] // self.node_size)

    def turns_for(self, flows: Flows) -> bool:
        """Return whether circuits may ever turn to some flows: if some stay on their wafer."""
        return bool(self._on_wafer(flows).any())

    def circuit_parts(self, flows: Flows) -> np.ndarray:
        """Return the wafers on which flows stay, shape [W]."""
        return np.unique(flows.sources[self._on_wafer(flows)] // self.node_size)

    def configure(
        self, circuits: ForwardingCircuits, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[ForwardingCircuits, Reconfiguration]:
        """Return circuits over which `flows` can be routed, and the reconfiguration to them."""
        asking = self.asking(circuits, flows)
        if not asking.size:
            return circuits, Reconfiguration()
        on_asking = self._on_wafer(flows) & np.isin(flows.sources // self.node_size, asking)
        before = circuits.circuits
        after = Circuits(self._laid_out(before.tx_peer, [flows.part(on_asking)]), failed=before.failed)
        axes = list(circuits.axes)
        for wafer in asking.tolist():
            axes[wafer] = flows.axis
        moved = before.changed_links(after)
        # An upper bound: an element turns at both ends of a circuit, and at most one in every tile between.
        elements = before.turned_lanes(after) * (self.wafer.longest_hops + 1)
        return ForwardingCircuits(circuits=after, domain=self.node_size, axes=tuple(axes)), Reconfiguration(
            reconfiguration_s=self.wafer.reconfiguration_s if moved.size else 0.0,
            moved_links=self.packets.wiring.links + moved,
            energy_j=elements * self.wafer.move_energy_j,
        )

    def port_name(self, port: int) -> str:
        """Return the name of a port for messages."""
        return f"lane {port % self.wafer.lanes} of chip {port // self.wafer.lanes}"

    def route(self, circuits: ForwardingCircuits, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, H], padded with -1; a flow to itself has none."""
        return self._path(circuits, flows, 0)

    def _paths(self, circuits: ForwardingCircuits, flows: Flows) -> list[np.ndarray]:
        """Return the links of each flow, [F, H], on each of the paths over which its chunks are spread."""
        return [self._path(circuits, flows, turn) for turn in range(PATHS)]

    def loads(self, circuits: ForwardingCircuits, flows: Flows) -> Loads:
        """Return the loads of flows of equal rate, spread over their paths."""
        return shared_loads(self._paths(circuits, flows), self.latency_s, flows)

    def loads_apart(self, circuits: ForwardingCircuits, flows: Flows) -> list[Loads]:
        """Return the loads of each of F flows that run together."""
        paths, each = self._paths(circuits, flows), np.arange(len(flows.sources))
        alone = replace(flows, weights=None)
        return [
            shared_loads([path[[flow]] for path in paths], self.latency_s, alone.part(each == flow))
            for flow in each
        ]

    def loads_around(self, circuits: ForwardingCircuits, flows: Flows, failed: np.ndarray) -> Loads:
        """Return the loads with detours past failed links, shape [n]."""
        paths = [self.past(circuits, flows, failed, path) for path in self._paths(circuits, flows)]
        return shared_loads(paths, self.latency_s, flows)

    def _path(self, circuits: ForwardingCircuits, flows: Flows, turn: int) -> np.ndarray:
        """Return the links of each flow's path of this number, shape [F, H], padded with -1."""
        asking = self.asking(circuits, flows)
        if asking.size:
            msg = (
                f"circuits on wafer {asking[0]} of '{self.name}' do not serve axis '{flows.axis}'; "
                "configure the fabric for it"
            )
            raise RouteError(msg)
        kept, off = self._on_wafer(flows), self.scale_up.off_node(flows)
        inside = circuits.path_links(flows.sources[kept], flows.destinations[kept], turn)
        paths = self.packets.paths(flows.sources[off], flows.destinations[off])
        width = max(len(inside), paths.shape[1], 1)
        links = np.full((len(kept), width), NO_LINK, dtype=np.int64)
        links[off, : paths.shape[1]] = paths
        if inside:
            light = packed(list(reversed(inside)))
            links[kept, : light.shape[1]] = np.where(
                light == NO_LINK, NO_LINK, light + self.packets.wiring.links
            )
        return links

    def wired(self, circuits: ForwardingCircuits) -> Wiring:
        """Return all links with their present ends; dark ones have no capacity, nor has copper in nodes."""
        light = circuit_wiring(
            circuits.circuits,
            np.arange(self.endpoints),
            rate_bytes_per_s=self.circuit_bytes_per_s,
            latency_s=self.circuit_latency_s,
        )
        packets = self.packets.wiring
        outside = np.arange(packets.links) >= 2 * self.endpoints
        rates = np.where(outside, packets.capacity_bytes_per_s, 0.0)
        return joined([replace(packets, capacity_bytes_per_s=rates), light])

    def connected(self, circuits: ForwardingCircuits, flows: Flows) -> bool:
        """Return whether circuits serve every flow that stays on its wafer; packets carry the others."""
        return not self.asking(circuits, flows).size

    def direct_rates(self, circuits: ForwardingCircuits, group: np.ndarray) -> np.ndarray | None:
        """Return the rate of the circuits from each chip of a group on one wafer to each other, else None."""
        if len(np.unique(group // self.node_size)) > 1:
            return None
        peers = circuits.circuits.lit[group]
        return self.circuit_bytes_per_s * (peers[:, :, None] == group).sum(axis=1)

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all flows once if each had a circuit of its own."""
        off = self.scale_up.off_node(flows)
        light_j = self._light_j(flows, self._on_wafer(flows))
        return self.packets.transfer_energy_j(flows.part(off)) + light_j

    def carried_energy_j(self, circuits: ForwardingCircuits, flows: Flows) -> float:
        """Return the dynamic energy over the present circuits, hops over other chips included.

        As `transfer_energy_j` if circuits must turn first.
        """
        if not self.connected(circuits, flows):
            return self.transfer_energy_j(flows)
        kept = self._on_wafer(flows)
        hops = circuits.hops(flows.sources[kept], flows.destinations[kept])
        return self.transfer_energy_j(flows) + self._light_j(flows.part(kept), np.maximum(hops - 1, 0))

    def _light_j(self, flows: Flows, hops: np.ndarray) -> float:
        """Return the energy of flows over a number of circuits each, `hops` [F]."""
        return flows.moved_bytes(hops) * BITS_PER_BYTE * self.wafer.energy_j_per_bit
