"""Circuits between nodes with optical cards: their state, power and bill, as several fabrics have them.

Where circuits serve only some traffic, a packet fabric stands beside them, and a choice of pairs gets them.
"""

from __future__ import annotations

import contextlib
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

import numpy as np

from optical.fabrics.circuits import DARK, CircuitFabric, Circuits
from optical.fabrics.lane_assignment import DomainDemand, busiest_first, even_circuits
from optical.fabrics.switches import (
    LaneBudget,
    LaneOptics,
    OpticalSwitch,
    chassis_of,
    chassis_ports,
    check_spares,
    lane_budget,
    load_switch,
    switch_chassis,
    switch_stages,
)
from optical.scheduling.topology import job_topology
from simulator.errors import LinkError
from simulator.fabric import CircuitPolicy, Fabric, NodeFabric, PortOwner, Ports
from simulator.interfaces import Flows
from simulator.topology.graphs import GraphFabric
from simulator.topology.scale_up import BillItem, Nic, ScaleUp


def idle_of_packets(packets: Packets) -> dict[str, str]:
    """Return the numbers of a packet fabric that count for nothing beside circuits, each with the reason."""
    one_path = "packets beside circuits of a wafer take one path each"
    return {**packets.traits.idle_numbers, "queue_pairs": one_path, "shipped_queue_pairs": one_path}


class CircuitChoice(StrEnum):
    """Pairs of nodes that get circuits."""

    GREEDY = "greedy"
    """One circuit after the other to the pair that finishes last (MixNet)."""
    MATCHING = "matching"
    """Matchings of greatest traffic, one after the other (c-Through, Helios)."""
    EVEN = "even"
    """As many to every pair with traffic, however much it has; what a fabric does that knows no demand."""


class Packets(NodeFabric, GraphFabric, Protocol):
    """A packet fabric that can stand beside circuits: a fixed graph with switched nodes.

    Its first links lead from accelerators to their node's switch [E], the next from there back [E].
    """

    @property
    @abstractmethod
    def port_bytes_per_s(self) -> float:
        """Rate of an accelerator's card."""
        ...


@dataclass(frozen=True, kw_only=True)
class BesidePackets(NodeFabric):
    """Fabric of what stands beside packet switches, which join the same nodes."""

    packets: Packets
    """Packet fabric of all accelerators, with their nodes."""

    @property
    def endpoints(self) -> int:
        """Accelerators: those of the packet fabric."""
        return self.packets.endpoints

    @property
    def scale_up(self) -> ScaleUp:
        """The domain inside a node."""
        return self.packets.scale_up


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionCircuits:
    """Circuits of all regions, and whom they serve; treat as immutable."""

    circuits: Circuits
    """Node that each card of each node reaches, shape [N, degree]."""
    axes: tuple[tuple[str, int], ...]
    """Axis of parallelism, and pattern of its exchange (`Flows.pattern`), that each region's circuits were
    turned to; an empty axis before the first."""
    big: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    """Whether each axis of the step has traffic enough to turn circuits for it."""
    targets: dict[int, tuple[Flows, np.ndarray]] = field(default_factory=dict)
    """Flows that circuits turned to before, by identity, and the lanes of their regions, shape [N, degree];
    handed on from circuits to circuits of a run."""


def region_links(demand: DomainDemand, degree: int, choice: CircuitChoice) -> np.ndarray:
    """Return circuits for the traffic of a region, shape [N, N], whole numbers.

    Parameters
    ----------
    demand : DomainDemand
        Traffic of the region, as skewed as it may be.
    degree : int
        Circuits that a node may begin, and as many that it may end.
    choice : CircuitChoice
        Which pairs get them.
    """
    wanted = demand.matrix
    if choice is CircuitChoice.EVEN:
        return even_circuits(wanted, degree)
    if choice is CircuitChoice.GREEDY:
        return busiest_first(wanted, degree)
    return job_topology((), wanted, degree=degree).links


DEGREES_TRIED = (2, 4, 8)
"""Circuits of a node that a search tries; dimensionless."""
TURNING_SWITCH = "palomar-mems"
"""Switch that holds the circuits of nodes where a patch panel cannot turn them in a step."""


class NodeCircuits(NodeFabric, CircuitFabric, Protocol):
    """Nodes with `degree` optical cards each; a circuit takes one card at either end, with all its lanes.

    Notes
    -----
    Card k of every node is joined by the optical switches of plane k; a lane of a card has a switch port of
    its own. Within its node a flow goes over the node's switch to the card and from it.
    """

    nic: Nic
    switch: OpticalSwitch
    optics: LaneOptics
    degree: int

    @property
    @abstractmethod
    def joined(self) -> int:
        """Nodes that one plane of switches joins."""
        ...

    @property
    def card_lanes(self) -> int:
        """Lanes that a card takes."""
        return math.ceil(self.nic.bandwidth_bytes_per_s / self.optics.bandwidth_bytes_per_s)

    @property
    def circuit_bytes_per_s(self) -> float:
        """Rate of one circuit that a long transfer reaches."""
        lanes = self.card_lanes * self.optics.bandwidth_bytes_per_s
        return min(self.nic.bandwidth_bytes_per_s, lanes) * self.nic.efficiency

    @property
    def circuit_latency_s(self) -> float:
        """Time from memory to memory over one circuit; a node that passes on adds it once more."""
        return 2 * self.nic.latency_s + self.optics.link_latency_s

    @cached_property
    def stages(self) -> int:
        """Optical switches that a circuit passes: one, or three in a Clos network."""
        return switch_stages(self.switch, self.joined)

    @cached_property
    def budget(self) -> LaneBudget:
        """Power budget of a lane.

        Raises
        ------
        LinkError
            If its light does not arrive; names the element that loses most.
        """
        return lane_budget(self.optics, self.switch, self.stages)

    def circuit_bill(self) -> dict[str, BillItem]:
        """Return the bill of cards, lanes and switches: item -> count, power and price of each."""
        cards = self.nodes * self.degree
        return {
            "circuit card": self.nic.item(cards),
            "optical lane": self.optics.item(cards * self.card_lanes, self.budget.laser_w),
            "optical switch": self.switch.item(switch_chassis(self.switch, self.joined, self._planes)),
        }

    @property
    def card_ports(self) -> Ports:
        """Ports that circuits begin and end on: optical cards of nodes."""
        return Ports(owner=PortOwner.NODE, owners=self.nodes, lanes=self.degree, switches=self.switches)

    def port_name(self, port: int) -> str:
        """Return what a card is called in messages."""
        return f"card {port % self.degree} of node {port // self.degree}"

    @cached_property
    def port_chassis(self) -> np.ndarray:
        """Optical switches whose ports the lanes of each card take, shape [N degree, card lanes].

        A card sends every block of bits over all its lanes in turn (IEEE 802.3, clause 82), so one that is
        dark takes the card down.
        """
        node, card = np.divmod(np.arange(self.nodes * self.degree), self.degree)
        first = (node // self.joined * self.degree + card) * self.card_lanes
        chassis = chassis_of(self.switch, self.joined, self._planes)
        found: np.ndarray = chassis[first[:, None] + np.arange(self.card_lanes), node[:, None] % self.joined]
        return found

    @property
    def _planes(self) -> int:
        return self.degree * self.card_lanes * math.ceil(self.nodes / self.joined)

    @property
    def switches(self) -> int:
        """Optical switches."""
        return switch_chassis(self.switch, self.joined, self._planes)

    def switch_ports(self, switch: int) -> np.ndarray:
        """Return the cards that are lost with an optical switch, shape [n]."""
        lost = chassis_ports(self.switch, self.joined, self._planes, switch)
        group, card = np.divmod(lost[:, 0] // self.card_lanes, self.degree)
        node = group * self.joined + lost[:, 1]
        ports: np.ndarray = np.unique((node * self.degree + card)[node < self.nodes])
        return ports

    def replacement_s(self, ports: np.ndarray) -> float:
        """Return the time until spare ports of the switches carry what failed cards' ports [n] did."""
        check_spares(self.switch, self.port_chassis[ports].ravel().tolist())
        return self.switch.reconfiguration_s

    def cards_turn_s(self, cards: int) -> float:
        """Return the time until the last lane of some cards is lit that turn at once; none takes none."""
        return self.switch.turn_s(self.stages * self.card_lanes * cards) if cards else 0.0

    def move_energy_j(self, before: Circuits, after: Circuits) -> float:
        """Return the energy of turning the ports of all circuits that are new."""
        turned = (after.tx_peer != before.tx_peer) & (after.tx_peer != DARK)
        return self.stages * self.card_lanes * int(turned.sum()) * self.switch.move_energy_j

    def passing_energy_j(self, flows: Flows, hops: np.ndarray) -> float:
        """Return the energy of flows between nodes over so many circuits each, shape [F].

        Every circuit takes two cards, and every node at its beginning and one at the end the node's switch.
        """
        moved_bytes = flows.moved_bytes(hops)
        return self.scale_up.transfer_energy_j(moved_bytes) + self.nic.transfer_energy_j(moved_bytes)


def card_variants(fabric: NodeCircuits, replaced: Callable[..., Fabric]) -> dict[str, Fabric]:
    """Return a fabric with other numbers of cards, and with switches that can turn in a step.

    Parameters
    ----------
    fabric : NodeCircuits
        The fabric as it is.
    replaced : callable
        Returns it with other values of the fields that are given as keywords.
    """
    found = {
        f"{degree} circuits a node": replaced(degree=degree)
        for degree in DEGREES_TRIED
        if degree != fabric.degree
    }
    if fabric.switch.name != TURNING_SWITCH and fabric.traits.policy is CircuitPolicy.STATIC:
        with contextlib.suppress(LinkError):  # its light may not pass them
            found[TURNING_SWITCH] = replaced(switch=load_switch(TURNING_SWITCH))
    return found


def changed_links(before: Circuits, after: Circuits) -> np.ndarray:
    """Return the circuits that turn, go dark or change in capacity, numbered ``vertex * degree + lane``."""
    turned = after.tx_peer != before.tx_peer
    return np.flatnonzero(turned | (after.lanes_of_first != before.lanes_of_first))
