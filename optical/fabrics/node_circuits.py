"""Fabrics whose nodes have optical cards, joined by circuits of optical switches.

`DirectConnect` has circuits only: nodes forward traffic, and the topology is laid out for a job (TopoOpt).
`HybridFabric` has packet switches beside the circuits: circuits serve the pairs with most traffic inside a
region of nodes, packets all others. `NodeCircuits` holds what both have in common (cards, switches, their
bill, time and energy of turning); `CircuitsBeside` what circuits beside packets have in common, on wafers
(`optical.fabrics.wafer`) too.
"""

from __future__ import annotations

import contextlib
import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np

from optical.fabrics.circuits import (
    DARK,
    CircuitFabric,
    Circuits,
    DomainDemand,
    ForwardingCircuits,
    busiest_first,
    candidate_circuits,
    circuit_wiring,
    domain_demands,
    even_circuits,
    job_links,
    lanes_of,
    region_demands,
)
from optical.fabrics.switches import (
    MOST_LANES,
    LaneOptics,
    OpticalSwitch,
    SwitchedCircuits,
    chassis_of,
    chassis_ports,
    load_optics,
    load_switch,
)
from optical.scheduling.birkhoff import is_worth_moving
from optical.scheduling.topology import job_topology
from simulator.errors import LinkError, ParameterError, RouteError, check_choices, check_range
from simulator.fabric import (
    CircuitPolicy,
    Fabric,
    Loads,
    NodeFabric,
    PortOwner,
    Ports,
    PortTiming,
    Traits,
    check_policy,
    route_loads,
)
from simulator.interfaces import MIXED, Flows, LinkGraph, Reconfiguration, Wiring
from simulator.layout import Axis
from simulator.topology.graphs import NO_LINK, GraphFabric, joined, node_links, packed, shared_loads
from simulator.topology.scale_up import BillItem, Nic, ScaleUp, load_nic


class CircuitChoice(StrEnum):
    """Rule by which pairs of nodes get circuits."""

    GREEDY = "greedy"
    """Circuit by circuit to the pair that finishes last (MixNet)."""
    MATCHING = "matching"
    """Matching by matching, each of the greatest traffic left (c-Through, Helios)."""
    EVEN = "even"
    """The same number to every pair with traffic, as a fabric must that does not know the demand."""


class Packets(NodeFabric, GraphFabric, Protocol):
    """Packet fabric that can stand beside circuits: a fixed graph whose nodes have a switch inside.

    Links 0 to E - 1 lead from the accelerators to their node's switch, links E to 2 E - 1 back.
    """

    @property
    @abstractmethod
    def port_bytes_per_s(self) -> float:
        """Rate of an accelerator's card."""
        ...


@dataclass(frozen=True, kw_only=True)
class BesidePackets(NodeFabric):
    """Fabric that stands beside packet switches, which join the same nodes."""

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
    """Circuits of all regions and the traffic that they serve; treat as immutable."""

    circuits: Circuits
    """Node that each card of each node reaches, shape [N, degree]."""
    axes: tuple[tuple[str, int], ...]
    """Axis of parallelism that each region's circuits serve, and the number of the pattern of its exchange
    (`HybridFabric._pattern`); `UNTURNED` before the first turn."""
    big: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    """Whether each axis of the step has enough traffic for turning circuits to pay."""
    targets: dict[int, tuple[Flows, np.ndarray]] = field(default_factory=dict)
    """Cache of a run: flows by identity, and the lanes [N, degree] that circuits turn to for them."""


RegionT = TypeVar("RegionT", RegionCircuits, ForwardingCircuits)
"""Circuits with an axis that each part of the machine serves."""


class CircuitsBeside(NodeFabric, CircuitFabric, Protocol):
    """Circuits that turn part by part (regions of nodes, wafers of chips), with packet switches beside them.

    Links are those of the packet fabric, then the circuits in the order of their lanes.
    """

    packets: Packets

    @property
    @abstractmethod
    def parts(self) -> int:
        """Number of parts, whose circuits turn independently."""
        ...

    @property
    @abstractmethod
    def part_lanes(self) -> int:
        """Lanes of each part, each of which may begin a circuit."""
        ...

    @property
    @abstractmethod
    def circuit_bytes_per_s(self) -> float:
        """Rate of one circuit that a long transfer reaches."""
        ...

    @property
    @abstractmethod
    def circuit_latency_s(self) -> float:
        """Time from memory to memory over one circuit."""
        ...

    def part_settings(self, circuits: RegionT, parts: np.ndarray) -> Hashable:
        """Return the destinations of the lanes of some parts [n], and the axes that they serve."""
        lanes = circuits.circuits.tx_peer.reshape(-1, self.part_lanes)[parts]
        return lanes.tobytes(), tuple(circuits.axes[part] for part in parts.tolist())

    def with_parts(self, circuits: RegionT, other: RegionT, parts: np.ndarray) -> RegionT:
        """Return `circuits` with some parts [n] set as in `other`."""
        tx_peer = circuits.circuits.tx_peer.reshape(-1, self.part_lanes).copy()
        tx_peer[parts] = other.circuits.tx_peer.reshape(-1, self.part_lanes)[parts]
        axes = list(circuits.axes)
        for part in parts.tolist():
            axes[part] = other.axes[part]
        lanes = tx_peer.reshape(circuits.circuits.tx_peer.shape)
        return replace(circuits, circuits=Circuits(lanes, failed=circuits.circuits.failed), axes=tuple(axes))

    def graph(self, circuits: RegionT) -> LinkGraph:
        """Return the capacity and latency of all links; lanes bundled into another's link have none."""
        optical = circuits.circuits.link_lanes.ravel() * self.circuit_bytes_per_s
        capacity = np.concatenate([self.packets.wiring.capacity_bytes_per_s, optical])
        return LinkGraph(capacity_bytes_per_s=capacity, latency_s=self.latency_s)

    @cached_property
    def latency_s(self) -> np.ndarray:
        """Latency of every link, shape [L]."""
        optical = np.full(self.parts * self.part_lanes, self.circuit_latency_s)
        latency_s = np.concatenate([self.packets.wiring.latency_s, optical])
        latency_s.flags.writeable = False
        return latency_s


def region_links(demand: DomainDemand, degree: int, choice: CircuitChoice) -> np.ndarray:
    """Return the number of circuits from node to node of a region, shape [N, N].

    Parameters
    ----------
    demand : DomainDemand
        Traffic of the region.
    degree : int
        Circuits that a node may begin, and as many that it may end.
    choice : CircuitChoice
        Rule by which pairs get circuits.
    """
    wanted = demand.matrix
    if choice is CircuitChoice.EVEN:
        return even_circuits(wanted, degree)
    if choice is CircuitChoice.GREEDY:
        return busiest_first(wanted, degree)
    return job_topology((), wanted, degree=degree).links


DEGREES_TRIED = (2, 4, 8)
"""Circuits of a node that a search of fabrics tries; dimensionless."""
TURNING_SWITCH = "palomar-mems"
"""Switch that a search tries where the fabric has one that cannot turn within a step, as a patch panel."""


class NodeCircuits(SwitchedCircuits, Protocol):
    """Nodes with `degree` optical cards each; a circuit takes one card at either end, with all its lanes.

    Notes
    -----
    The optical switches of plane k join card k of every node; each lane of a card has a switch port of its
    own. Inside its node a flow passes the node's switch on the way to the card, and from it.
    """

    nic: Nic
    degree: int

    @property
    def card_lanes(self) -> int:
        """Optical lanes that carry the rate of a card.

        Raises
        ------
        ParameterError
            If they are more than a card can have (`MOST_LANES`).
        """
        lanes = math.ceil(self.nic.bandwidth_bytes_per_s / self.optics.bandwidth_bytes_per_s)
        if lanes > MOST_LANES:
            msg = (
                f"lanes of {self.optics.bandwidth_bytes_per_s:g} B/s are {lanes:.3g} to a card of "
                f"{self.nic.bandwidth_bytes_per_s:g} B/s; raise optics.bandwidth_bytes_per_s until at most "
                f"{MOST_LANES} are"
            )
            raise ParameterError(msg)
        return lanes

    @property
    def circuit_bytes_per_s(self) -> float:
        """Rate of one circuit that a long transfer reaches: that of the card or of its lanes."""
        lanes = self.card_lanes * self.optics.bandwidth_bytes_per_s
        return min(self.nic.bandwidth_bytes_per_s, lanes) * self.nic.efficiency

    @property
    def circuit_latency_s(self) -> float:
        """Time from memory to memory over one circuit; each node that forwards adds it once more."""
        return 2 * self.nic.latency_s + self.optics.link_latency_s

    def circuit_bill(self) -> dict[str, BillItem]:
        """Return the bill of cards, lanes and switches: item -> count, power and price of each."""
        cards = self.nodes * self.degree
        return {
            "circuit card": self.nic.item(cards),
            "optical lane": self.optics.item(cards * self.card_lanes, self.budget.laser_w),
            "optical switch": self.switch.item(self.switches),
        }

    @property
    def card_ports(self) -> Ports:
        """Ports that circuits begin and end on: optical cards of nodes."""
        return Ports(owner=PortOwner.NODE, owners=self.nodes, lanes=self.degree, switches=self.switches)

    def port_name(self, port: int) -> str:
        """Return the name of a card for messages."""
        return f"card {port % self.degree} of node {port // self.degree}"

    @cached_property
    def port_chassis(self) -> np.ndarray:
        """Optical switch behind each lane of each card, shape [N degree, card lanes].

        A card distributes blocks of bits over all its lanes in turn (IEEE 802.3, clause 82), so that one dark
        lane takes the card down.
        """
        node, card = np.divmod(np.arange(self.nodes * self.degree), self.degree)
        plane = (node // self.joined * self.degree + card) * self.card_lanes
        chassis = chassis_of(self.switch, self.joined, self.planes)
        lanes: np.ndarray = chassis[plane[:, None] + np.arange(self.card_lanes), node[:, None] % self.joined]
        return lanes

    @property
    def planes(self) -> int:
        """Planes: one for each lane of each card, in every group of nodes that are joined."""
        return self.degree * self.card_lanes * math.ceil(self.nodes / self.joined)

    def switch_ports(self, switch: int) -> np.ndarray:
        """Return the cards that fail with an optical switch, shape [n]."""
        lost = chassis_ports(self.switch, self.joined, self.planes, switch)
        group, card = np.divmod(lost[:, 0] // self.card_lanes, self.degree)
        node = group * self.joined + lost[:, 1]
        ports: np.ndarray = np.unique((node * self.degree + card)[node < self.nodes])
        return ports

    def variants(self) -> dict[str, Fabric]:
        """Return the fabric with other numbers of cards, and with switches that can turn in a step."""
        fabric: Any = self  # a dataclass
        variants: dict[str, Fabric] = {
            f"{degree} circuits a node": replace(fabric, degree=degree)
            for degree in DEGREES_TRIED
            if degree != self.degree
        }
        if self.switch.name != TURNING_SWITCH and self.traits.policy is CircuitPolicy.STATIC:
            with contextlib.suppress(LinkError):  # the optics may not bear its loss
                variants[TURNING_SWITCH] = replace(fabric, switch=load_switch(TURNING_SWITCH))
        return variants

    def cards_turn_s(self, cards: int) -> float:
        """Return the time in which the circuits of a number of cards turn together; 0 for none."""
        return self.switch.turn_s(self.stages * self.card_lanes * cards) if cards else 0.0

    def move_energy_j(self, before: Circuits, after: Circuits) -> float:
        """Return the energy of turning switch ports to all circuits that are new."""
        return self.stages * self.card_lanes * before.turned_lanes(after) * self.switch.move_energy_j

    def passing_energy_j(self, flows: Flows, hops: np.ndarray) -> float:
        """Return the energy of flows between nodes over a number of circuits each, `hops` [F].

        Each circuit costs a transfer through a node's switch and one between two cards.
        """
        moved_bytes = flows.moved_bytes(hops)
        return self.scale_up.transfer_energy_j(moved_bytes) + self.nic.transfer_energy_j(moved_bytes)


@dataclass(frozen=True, kw_only=True)
class DirectConnect(NodeCircuits):
    """Nodes of `degree` circuits each, whose topology follows the step's traffic (TopoOpt).

    Notes
    -----
    Circuits are laid out for the traffic by `optical.fabrics.circuits.job_links`. Flows between nodes without
    a circuit take a shortest path over other nodes, whose cards they load; flows of one pair are spread over
    paths of equal length. Links, in this order: circuits ``node * degree + card``, accelerator to node switch
    [E], node switch to accelerator [E].

    References
    ----------
    Wang et al., "TopoOpt: co-optimizing network topology and parallelization strategy for distributed
    training jobs", NSDI 2023.
    """

    name: str = "direct connect"
    """Name shown in tables and traces."""
    endpoints: int
    """Accelerators."""
    scale_up: ScaleUp
    """The domain inside a node."""
    nic: Nic = field(default_factory=lambda: load_nic("connectx-7"))
    """Optical card; a circuit takes one at both its ends."""
    switch: OpticalSwitch = field(default_factory=lambda: load_switch("patch-panel"))
    """Patch panel or optical switches that hold the circuits."""
    optics: LaneOptics = field(default_factory=lambda: load_optics("lane-100g"))
    """Transmitter and receiver of each lane."""
    degree: int = 8
    """Circuits that a node begins, and as many that it ends: its cards."""
    policy: CircuitPolicy = CircuitPolicy.STATIC
    """Whether circuits stay for the job, or are laid out anew for each axis of parallelism with traffic."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_range(self, "endpoints", "degree", low=1)
        check_policy(self)
        _ = self.nodes
        _ = self.budget

    @cached_property
    def traits(self) -> Traits:
        """Library of the nodes, and circuits between them."""
        return Traits(
            scale_up=self.scale_up,
            card_bytes_per_s=self.nic.bandwidth_bytes_per_s,
            policy=self.policy,
            reconfiguration_s=self.cards_turn_s(self.nodes * self.degree),
            ports=self.card_ports,
            idle_numbers=self.optics.idle_numbers,
        )

    @property
    def joined(self) -> int:
        """All nodes."""
        return self.nodes

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        inside = self.scale_up.item(self.endpoints)
        return {"scale-up": inside} | (self.circuit_bill() if self.nodes > 1 else {})

    def initial(self, demand: tuple[Flows, ...]) -> ForwardingCircuits:
        """Return circuits for all traffic of the step, or for the first axis that leaves the nodes."""
        outside = [flows for flows in demand if self.scale_up.off_node(flows).any()]
        if self.policy is CircuitPolicy.STATIC or not outside:
            return self._laid_out(outside, "")
        axis = outside[0].axis
        return self._laid_out([flows for flows in outside if flows.axis == axis], axis)

    def configure(
        self, circuits: ForwardingCircuits, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[ForwardingCircuits, Reconfiguration]:
        """Return circuits over which `flows` can be routed, and the reconfiguration to them.

        Raises
        ------
        RouteError
            If circuits stay for the job and do not lead from a source to its destination.
        """
        if self.connected(circuits, flows):
            return circuits, Reconfiguration()
        failed = circuits.circuits.failed
        if self.policy is CircuitPolicy.STATIC:
            if failed.size:
                return circuits, Reconfiguration()
            self._refuse(circuits, flows)
        after, _ = self.without(self._laid_out([flows], flows.axis), failed)
        moved = circuits.circuits.changed_links(after.circuits)
        return after, Reconfiguration(
            reconfiguration_s=self.cards_turn_s(moved.size),
            moved_links=moved,
            energy_j=self.move_energy_j(circuits.circuits, after.circuits),
        )

    def _laid_out(self, served: Sequence[Flows], axis: str) -> ForwardingCircuits:
        """Return circuits for some traffic; where nothing leaves the nodes, for a ring through all."""
        every = np.arange(self.nodes)
        ring = Flows.around(every[None], size_bytes=1.0)
        node_of = self.scale_up.node_of(np.arange(self.endpoints))
        demands = domain_demands(served, node_of, self.nodes) or domain_demands([ring], every, self.nodes)
        if not demands:  # a single node
            tx_peer = np.full((self.nodes, self.degree), DARK, dtype=np.int64)
        else:
            all_meet = self.policy is CircuitPolicy.STATIC
            tx_peer = lanes_of(job_links(demands[0], self.degree, all_meet=all_meet), self.degree)
        return ForwardingCircuits(circuits=Circuits(tx_peer), domain=self.nodes, axes=(axis,))

    def graph(self, circuits: ForwardingCircuits) -> LinkGraph:
        """Return the capacity and latency of all links; lanes bundled into another's link have none."""
        optical = circuits.circuits.link_lanes.ravel() * self.circuit_bytes_per_s
        inside = np.full(2 * self.endpoints, self.scale_up.capacity_bytes_per_s)
        return LinkGraph(capacity_bytes_per_s=np.concatenate([optical, inside]), latency_s=self._latency_s)

    @cached_property
    def _latency_s(self) -> np.ndarray:
        latency_s = np.full(self.nodes * self.degree + 2 * self.endpoints, self.scale_up.latency_s / 2)
        latency_s[: self.nodes * self.degree] = self.circuit_latency_s
        latency_s.flags.writeable = False
        return latency_s

    def route(self, circuits: ForwardingCircuits, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, H], padded with -1; a flow to itself has none."""
        sources, destinations = self._node_ends(flows)
        if not circuits.reaches(sources, destinations).all():
            self._refuse(circuits, flows)
        moving = flows.sources != flows.destinations
        up = self.nodes * self.degree
        first = np.where(moving, up + flows.sources, NO_LINK)
        last = np.where(moving, up + self.endpoints + flows.destinations, NO_LINK)
        turns = flows.sources + flows.destinations
        return packed([first, *reversed(circuits.path_links(sources, destinations, turns)), last])

    def wired(self, circuits: ForwardingCircuits) -> Wiring:
        """Return all links with their present ends; dark ones have no capacity."""
        light = circuit_wiring(
            circuits.circuits,
            self.endpoints + np.arange(self.nodes),
            rate_bytes_per_s=self.circuit_bytes_per_s,
            latency_s=self.circuit_latency_s,
        )
        return joined([light, node_links(self.scale_up, self.endpoints, self.endpoints)])

    def connected(self, circuits: ForwardingCircuits, flows: Flows) -> bool:
        """Return whether circuits lead every flow to its end, and serve its axis where each has its own."""
        off_node = self.scale_up.off_node(flows)
        if self.policy is CircuitPolicy.PER_AXIS and off_node.any() and circuits.axes != (flows.axis,):
            return False
        return bool(circuits.reaches(*self._node_ends(flows)).all())

    def circuit_parts(self, flows: Flows) -> np.ndarray:
        """Return part 0, all circuits, if any flow leaves its node; else none."""
        return np.zeros(int(self.scale_up.off_node(flows).any()), dtype=np.int64)

    def part_settings(self, circuits: ForwardingCircuits, parts: np.ndarray) -> Hashable:
        """Return all circuits, and the axis that they serve."""
        return circuits.circuits.tx_peer.tobytes(), circuits.axes

    def strides(self, circuits: ForwardingCircuits, group: np.ndarray) -> tuple[int, ...]:
        """Return the strides of the rings that circuits make of a group, over which a vector is divided."""
        nodes, size = self.scale_up.node_of(group), len(group)
        if len(np.unique(nodes)) < size or size < 2:
            return ()
        return circuits.ring_strides(nodes)

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all flows once if each had a circuit of its own."""
        off_node = self.scale_up.off_node(flows)
        inside = ~off_node & (flows.sources != flows.destinations)
        inside_bytes = flows.moved_bytes(inside)
        return self.scale_up.transfer_energy_j(inside_bytes) + self.passing_energy_j(flows, off_node)

    def carried_energy_j(self, circuits: ForwardingCircuits, flows: Flows) -> float:
        """Return the dynamic energy over the present circuits, hops over other nodes included.

        As `transfer_energy_j` if the circuits do not connect all flows and so must turn first.
        """
        if not self.connected(circuits, flows):
            return self.transfer_energy_j(flows)
        further = np.maximum(circuits.hops(*self._node_ends(flows)) - 1, 0)
        return self.transfer_energy_j(flows) + self.passing_energy_j(flows, further)

    def _node_ends(self, flows: Flows) -> tuple[np.ndarray, np.ndarray]:
        return self.scale_up.node_of(flows.sources), self.scale_up.node_of(flows.destinations)

    def _refuse(self, circuits: ForwardingCircuits, flows: Flows) -> None:
        """Raise for the first flow that circuits do not lead to its end."""
        flow = int(np.flatnonzero(~circuits.reaches(*self._node_ends(flows)))[0])
        msg = (
            f"no circuits lead from endpoint {flows.sources[flow]} to {flows.destinations[flow]} for axis "
            f"'{flows.axis}' in '{self.name}'; give it more degree ({self.degree}), or the policy "
            f"'{CircuitPolicy.PER_AXIS}'"
        )
        raise RouteError(msg)


UNTURNED = ("", 0)
"""Axis and pattern of a region's circuits before they first turn."""


@dataclass(frozen=True, kw_only=True)
class HybridFabric(BesidePackets, NodeCircuits, CircuitsBeside):
    """Nodes with cards to packet switches and cards to optical switches; circuits join nodes of a region.

    Notes
    -----
    A flow takes a circuit if its axis is served by circuits and its nodes have one; all others take packets.

    - ``static``: circuits are chosen once for the step's traffic, as c-Through and Helios do each epoch.
    - ``per-axis``: a region's circuits turn to the axis that has traffic if that pays: if circuits save more
      of the axis's time in a step than a turn takes (`optical.scheduling.birkhoff.is_worth_moving`). Where
      traffic to experts is uneven and the choice greedy, circuits are even until the first exchange of a step
      tells its sizes, and turn then if that pays; an exchange and its way back take the same circuits.
    - ``per-layer``: circuits also turn to each pattern of uneven exchanges, that is between blocks, as a
      block's two exchanges have one pattern.

    Links are those of the packet fabric, then circuits ``node * degree + card``.

    References
    ----------
    Farrington et al., "Helios", and Wang et al., "c-Through", both SIGCOMM 2010; Liu et al., CoNEXT 2015;
    Liao et al., "MixNet", SIGCOMM 2025.
    """

    name: str = "hybrid"
    """Name shown in tables and traces."""
    nic: Nic = field(default_factory=lambda: load_nic("connectx-7"))
    """Optical card; a circuit takes one at both its ends."""
    switch: OpticalSwitch = field(default_factory=lambda: load_switch("palomar-mems"))
    """The optical switches."""
    optics: LaneOptics = field(default_factory=lambda: load_optics("lane-100g"))
    """Transmitter and receiver of each lane."""
    degree: int = 6
    """Circuits that a node begins, and as many that it ends: its optical cards."""
    region: int = 0
    """Nodes among which circuits can be set up; 0 for all. Dimensionless."""
    axis: Axis | None = None
    """Axis of parallelism that circuits are set up for; None for every one."""
    choice: CircuitChoice = CircuitChoice.MATCHING
    """Rule by which pairs get circuits."""
    policy: CircuitPolicy = CircuitPolicy.STATIC
    """Traffic for which circuits turn."""
    turning: PortTiming = PortTiming.ON_REQUEST
    """Whether circuits turn when traffic asks for them, or ahead of it."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_range(self, "degree", low=1)
        check_range(self, "region")
        if self.nodes % self.joined:
            msg = (
                f"region ({self.region}) must divide the {self.nodes} nodes of '{self.name}'; "
                "try 1, 2, 4 or 8, or 0 for all"
            )
            raise ParameterError(msg)
        every = np.arange(self.endpoints)
        wiring = self.packets.wiring
        inside = wiring.tails[: self.endpoints], wiring.heads[self.endpoints : 2 * self.endpoints]
        if not all(np.array_equal(ends, every) for ends in inside):
            msg = (
                f"'{self.packets.name}' has no nodes with switches inside, beside which circuits could stand"
            )
            raise ParameterError(msg)
        _ = self.budget

    @cached_property
    def traits(self) -> Traits:
        """Library of the nodes, and circuits between them."""
        return Traits(
            scale_up=self.scale_up,
            card_bytes_per_s=self.nic.bandwidth_bytes_per_s,
            policy=self.policy,
            by_layer=True,
            can_prefetch=True,
            prefetches=self.turning is PortTiming.PREFETCHED,
            reconfiguration_s=self.cards_turn_s(self.joined * self.degree),
            ports=self.card_ports,
            idle_numbers={**self.packets.traits.idle_numbers, **self.optics.idle_numbers},
        )

    @property
    def joined(self) -> int:
        """Nodes of a region; at most all."""
        return min(self.region or self.nodes, self.nodes)

    @property
    def parts(self) -> int:
        """Regions."""
        return self.nodes // self.joined

    @property
    def part_lanes(self) -> int:
        """Cards of a region's nodes."""
        return self.joined * self.degree

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        return self.packets.bill() | (self.circuit_bill() if self.nodes > 1 else {})

    @cached_property
    def _node_of(self) -> np.ndarray:
        return self.scale_up.node_of(np.arange(self.endpoints))

    def initial(self, demand: tuple[Flows, ...]) -> RegionCircuits:
        """Return circuits for the step's traffic; if circuits turn, for the first axis that is worth a turn.

        Of uneven traffic circuits that turn do not know the sizes yet: they are even, and marked as not
        turned yet if it will pay to turn them to the first exchange.
        """
        big = self._worth_turning(demand)
        served = [flows for flows in demand if self._serves(flows.axis)]
        axes = [UNTURNED] * self.parts
        turns = self.policy is not CircuitPolicy.STATIC
        if turns:
            first = next((flows.axis for flows in served if big[flows.axis]), "")
            served = [flows for flows in served if flows.axis == first]
            axes = [(first, 0)] * len(axes)
        dark = np.full((self.nodes, self.degree), DARK, dtype=np.int64)
        if not (turns and self._follows_sizes(served)):
            circuits = Circuits(self._turned_to(dark, served))
            return RegionCircuits(circuits=circuits, axes=tuple(axes), big=MappingProxyType(big))
        even = self._candidate_lanes(dark, served)[0]
        if self.policy is CircuitPolicy.PER_LAYER or is_worth_moving(
            before_s=self._exchange_s(even, served),
            after_s=self._exchange_s(self._turned_to(dark, served), served),
            reconfiguration_s=self.traits.reconfiguration_s,
        ):
            axes = [UNTURNED] * len(axes)
        return RegionCircuits(circuits=Circuits(even), axes=tuple(axes), big=MappingProxyType(big))

    def _follows_sizes(self, served: Sequence[Flows]) -> bool:
        """Return whether the choice of circuits depends on the sizes of uneven traffic."""
        return self.choice is CircuitChoice.GREEDY and any(flows.weights is not None for flows in served)

    def _candidate_lanes(self, tx_peer: np.ndarray, served: Sequence[Flows]) -> list[np.ndarray]:
        """Return candidate lanes for uneven traffic, each [N, degree], even circuits first.

        Regions without traffic keep their lanes of `tx_peer`.
        """
        packets = self._packets_bytes_per_s / self.circuit_bytes_per_s
        candidates: list[np.ndarray] = []
        for region, wanted in region_demands(served, self._node_of, self.joined).items():
            first = region * self.joined
            for number, links in enumerate(candidate_circuits(wanted, self.degree, packets)):
                if number == len(candidates):
                    candidates.append(tx_peer.copy())
                candidates[number][first : first + self.joined] = lanes_of(links, self.degree, first)
        return candidates or [tx_peer]

    def _exchange_s(self, tx_peer: np.ndarray, served: Sequence[Flows]) -> float:
        """Return the time of all traffic and its way back over given circuits, one after the other."""
        circuits = RegionCircuits(circuits=Circuits(tx_peer), axes=())
        graph, time_s = self.graph(circuits), 0.0
        for flows in served:
            for direction in (flows, flows.reversed()):
                loads = route_loads(self.route(circuits, direction), graph.latency_s, direction.weights)
                slowest = (loads.usage / graph.capacity_bytes_per_s[loads.links]).max(initial=0.0)
                time_s += float(slowest) * direction.size_bytes
        return time_s

    @property
    def _packets_bytes_per_s(self) -> float:
        """Rate of a node's packet cards together."""
        return self.packets.port_bytes_per_s * self.node_size

    def _serves(self, axis: str) -> bool:
        """Return whether circuits are for an axis."""
        return self.axis in (None, axis)

    def _worth_turning(self, demand: Sequence[Flows]) -> dict[str, bool]:
        """Return for each axis whether circuits save more of its time in a step than a turn takes.

        Its time is that of the busiest node's bytes by packets, against packets and all circuits together.
        """
        sent_bytes: defaultdict[str, float] = defaultdict(float)
        for flows in demand:
            off_node = self.scale_up.off_node(flows)
            weights = None if flows.weights is None else flows.weights[off_node]
            by_node = np.bincount(self._node_of[flows.sources[off_node]], weights, minlength=self.nodes)
            sent_bytes[flows.axis] += float(by_node.max(initial=0)) * flows.size_bytes
        packets = self._packets_bytes_per_s
        return {
            axis: is_worth_moving(
                before_s=most_bytes / packets,
                after_s=most_bytes / (packets + self.degree * self.circuit_bytes_per_s),
                reconfiguration_s=self.traits.reconfiguration_s,
            )
            for axis, most_bytes in sent_bytes.items()
        }

    def _turned_to(self, tx_peer: np.ndarray, served: Sequence[Flows]) -> np.ndarray:
        """Return lanes [N, degree] after the regions with traffic have chosen circuits for it."""
        if self._follows_sizes(served):
            candidates = self._candidate_lanes(tx_peer, served)
            return min(candidates, key=lambda lanes: self._exchange_s(lanes, served))
        after = tx_peer.copy()
        for region, demand in domain_demands(served, self._node_of, self.joined).items():
            first = region * self.joined
            links = region_links(demand, self.degree, self.choice)
            after[first : first + self.joined] = lanes_of(links, self.degree, first)
        return after

    def circuit_parts(self, flows: Flows) -> np.ndarray:
        """Return the regions in which flows pass between nodes, shape [R]; none for axes without circuits."""
        sources, destinations = self._node_of[flows.sources], self._node_of[flows.destinations]
        inside = (sources != destinations) & (sources // self.joined == destinations // self.joined)
        return np.unique(sources[inside & self._serves(flows.axis)] // self.joined)

    def asking(self, circuits: RegionCircuits, flows: Flows) -> np.ndarray:
        """Return the regions whose circuits should turn before some flows begin, shape [R]."""
        if not self.turns_for(flows) or not circuits.big.get(flows.axis, False):
            return np.empty(0, dtype=np.int64)
        regions = self.circuit_parts(flows)
        wanted = self._pattern(flows)
        served = [circuits.axes[region] for region in regions.tolist()]
        return regions[[axis != flows.axis or wanted not in {0, pattern} for axis, pattern in served]]

    def _pattern(self, flows: Flows) -> int:
        """Return the number of the pattern that circuits must serve for some flows; 0 where any will do."""
        by_layer = self.policy is CircuitPolicy.PER_LAYER and flows.weights is not None
        return flows.pattern - MIXED + 1 if by_layer else 0

    def turns_for(self, flows: Flows) -> bool:
        """Return whether circuits may ever turn to some flows."""
        may_turn = self.policy is not CircuitPolicy.STATIC and self._serves(flows.axis)
        return may_turn and super().turns_for(flows)

    def configure(
        self, circuits: RegionCircuits, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[RegionCircuits, Reconfiguration]:
        """Return circuits turned to `flows` where that pays, and the reconfiguration to them."""
        asking = self.asking(circuits, flows)
        if not asking.size:
            return circuits, Reconfiguration()
        wanted = flows
        if flows.weights is not None and self.policy is CircuitPolicy.PER_AXIS:
            # An exchange and its way back want the same circuits: those of the axis's first uneven flows.
            wanted = next(
                (own for own in demand if own.axis == flows.axis and own.weights is not None), flows
            )
        if id(wanted) not in circuits.targets:  # the cache holds the flows, so that their id stays theirs
            circuits.targets[id(wanted)] = wanted, self._turned_to(circuits.circuits.tx_peer, [wanted])
        turning = np.isin(np.arange(self.nodes) // self.joined, asking)
        target = circuits.targets[id(wanted)][1]
        after = Circuits(
            np.where(turning[:, None], target, circuits.circuits.tx_peer), failed=circuits.circuits.failed
        )
        axes = list(circuits.axes)
        for region in asking.tolist():
            axes[region] = flows.axis, self._pattern(flows)
        moved = circuits.circuits.changed_links(after)
        turned = replace(circuits, circuits=after, axes=tuple(axes))
        return turned, Reconfiguration(
            reconfiguration_s=self.cards_turn_s(moved.size),
            moved_links=self.packets.wiring.links + moved,
            energy_j=self.move_energy_j(circuits.circuits, after),
        )

    def by_circuit(self, circuits: RegionCircuits, flows: Flows) -> tuple[np.ndarray, np.ndarray]:
        """Return the circuit of each flow, and whether it has one, each of shape [F]."""
        sources, destinations = self._node_of[flows.sources], self._node_of[flows.destinations]
        link, lit = circuits.circuits.direct(sources, destinations)
        return link, lit & self._serves(flows.axis)

    def route(self, circuits: RegionCircuits, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, H], padded with -1; a flow to itself has none."""
        link, lit = self.by_circuit(circuits, flows)
        moving = flows.sources != flows.destinations
        carried = moving & ~lit
        paths = self.packets.paths(flows.sources[carried], flows.destinations[carried])
        links = np.full((len(moving), max(3, paths.shape[1])), NO_LINK, dtype=np.int64)
        links[carried, : paths.shape[1]] = paths
        links[lit, 0] = flows.sources[lit]
        links[lit, 1] = self.packets.wiring.links + link[lit]
        links[lit, 2] = self.endpoints + flows.destinations[lit]
        return packed(list(links.T))

    def wired(self, circuits: RegionCircuits) -> Wiring:
        """Return all links with their present ends; dark ones have no capacity."""
        wiring = self.packets.wiring
        switches = wiring.heads[np.arange(self.nodes) * self.scale_up.size]
        light = circuit_wiring(
            circuits.circuits,
            switches,
            rate_bytes_per_s=self.circuit_bytes_per_s,
            latency_s=self.circuit_latency_s,
        )
        return joined([wiring, light])

    @cached_property
    def _views(self) -> tuple[HybridFabric, ...]:
        """The fabric with the packet routes of each queue pair of a flow."""
        return tuple(replace(self, packets=view) for view in self.packets.views)

    def loads(self, circuits: RegionCircuits, flows: Flows) -> Loads:
        """Return the loads of flows of equal rate on the links, each queue pair on a path of its own."""
        return shared_loads([view.route(circuits, flows) for view in self._views], self.latency_s, flows)

    def loads_around(self, circuits: RegionCircuits, flows: Flows, failed: np.ndarray) -> Loads:
        """Return the loads with detours past failed links, shape [n]."""
        routes = [view.around(circuits, flows, failed) for view in self._views]
        return shared_loads(routes, self.latency_s, flows)

    def connected(self, circuits: RegionCircuits, flows: Flows) -> bool:
        """Return whether flows may begin: no circuits should turn to them first; packets reach all."""
        return not self.asking(circuits, flows).size

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all flows once by packets."""
        return self.packets.transfer_energy_j(flows)

    def carried_energy_j(self, circuits: RegionCircuits, flows: Flows) -> float:
        """Return the dynamic energy over the present circuits and packets.

        As `transfer_energy_j` if circuits should turn first.
        """
        if not self.connected(circuits, flows):
            return self.transfer_energy_j(flows)
        lit = self.by_circuit(circuits, flows)[1]
        return self.packets.transfer_energy_j(flows.part(~lit)) + self.passing_energy_j(flows, lit)
