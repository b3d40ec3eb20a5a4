"""Reductions made in light on the way between nodes, beside a packet fabric for everything else."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from optical.fabrics.node_circuits import Packets
from optical.fabrics.optical_adder import OpticalAdder, load_optical_adder, reduction_table
from simulator.fabric import Traits
from simulator.interfaces import Flows, Wiring
from simulator.topology.graphs import GraphFabric
from simulator.topology.scale_up import Adder, BillItem, ScaleUp
from simulator.units import BITS_PER_BYTE


@dataclass(frozen=True, kw_only=True)
class OpticalReduction(GraphFabric):
    """A packet fabric whose cards have lanes to units that add in light (OptINC).

    Notes
    -----
    Lane l of the cards of one rail meets in a tree of units, which hands the mean back to all of them. Each
    way of a card then carries (n+1)/n of a vector for an all-reduce, as with packet switches that add
    (`simulator.collectives.algorithms.in_network_rounds`), at the rate of the card. Reduced values have
    `effective_bits`, which follow from laser, losses and noise; bytes on the way stay those of the plan.
    """

    name: str = "optical reduction"
    """Name shown in tables and traces."""
    packets: Packets
    """Packet fabric of all accelerators, with their nodes."""
    unit: OpticalAdder = field(default_factory=lambda: load_optical_adder("optinc"))
    """What adds."""
    adder: Adder = field(default_factory=lambda: reduction_table().build(Adder, "light"))
    """How the communication library has it add."""

    def __post_init__(self) -> None:
        if self.nodes > 1:
            self.unit.check_closes()

    @property
    def endpoints(self) -> int:
        """Accelerators: those of the packet fabric."""
        return self.packets.endpoints

    @property
    def scale_up(self) -> ScaleUp:
        """The domain inside a node."""
        return self.packets.scale_up

    @property
    def nodes(self) -> int:
        """Nodes."""
        return self.scale_up.nodes(self.endpoints)

    @property
    def node_size(self) -> int:
        """Endpoints that share a node, consecutive numbers."""
        return min(self.scale_up.size, self.endpoints)

    @property
    def card_lanes(self) -> int:
        """Lanes that carry what a card sends."""
        return math.ceil(self.packets.port_bytes_per_s / self.unit.lane_bytes_per_s)

    @property
    def network_adder(self) -> Adder:
        """How units add: the library's time and that of the light through all levels."""
        waiting_s = self.unit.levels(self.nodes) * self.unit.latency_s
        return replace(self.adder, start_s=self.adder.start_s + waiting_s)

    @cached_property
    def traits(self) -> Traits:
        """Library of the nodes, and units between them that add."""
        bits = self.effective_bits if self.nodes > 1 else None
        return Traits(scale_up=self.scale_up, network_adder=self.network_adder, reduction_bits=bits)

    @property
    def effective_bits(self) -> float:
        """Effective bits of a mean over all nodes."""
        return self.unit.effective_bits(self.nodes)

    @property
    def wiring(self) -> Wiring:
        """Links of the packet fabric."""
        return self.packets.wiring

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links from sources to other endpoints, shape [F, H], padded with `NO_LINK`."""
        return self.packets.paths(sources, destinations)

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        bill = dict(self.packets.bill())
        if self.nodes > 1:
            lanes = self.node_size * self.card_lanes
            bill["reduction lane"] = BillItem(
                count=self.nodes * lanes,
                w_each=self.unit.lane_w + self.unit.laser_w,
                usd_each=self.unit.lane_price_usd,
            )
            bill["reduction unit"] = BillItem(
                count=self.unit.units(self.nodes) * lanes,
                w_each=self.unit.unit_w,
                usd_each=self.unit.unit_price_usd,
            )
        return bill

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once, modulators of the lanes included."""
        outside_bytes = flows.moved_bytes(self.scale_up.off_node(flows))
        symbols = outside_bytes * BITS_PER_BYTE / self.unit.bits_per_symbol
        return self.packets.transfer_energy_j(flows) + symbols * self.unit.modulator.symbol_energy_j
