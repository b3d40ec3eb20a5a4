"""Circuits between nodes with optical cards: state, power and bill, and the two fabrics of such nodes.

One is laid out for a job (TopoOpt); in the other, circuits serve big flows and thin packets the rest.
"""

from __future__ import annotations

import contextlib
import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from types import MappingProxyType
from typing import Protocol, TypeVar

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


RegionT = TypeVar("RegionT", RegionCircuits, ForwardingCircuits)
"""Circuits that know whom each part of the machine serves."""


class CircuitsBeside(NodeFabric, CircuitFabric, Protocol):
    """Circuits that turn in parts of the machine (regions of nodes, wafers of chips), packets beside them.

    Links: those of the packet fabric, then the circuits in the order of their lanes.
    """

    packets: Packets

    @property
    @abstractmethod
    def parts(self) -> int:
        """Parts, in which circuits turn one by one."""
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
        """Return the lanes of some parts, and whom they serve."""
        lanes = circuits.circuits.tx_peer.reshape(-1, self.part_lanes)[parts]
        return lanes.tobytes(), tuple(circuits.axes[part] for part in parts.tolist())

    def with_parts(self, circuits: RegionT, other: RegionT, parts: np.ndarray) -> RegionT:
        """Return circuits some parts of which stand as in others."""
        ours, theirs = (one.circuits.tx_peer.reshape(-1, self.part_lanes) for one in (circuits, other))
        turned = np.isin(np.arange(self.parts), parts)
        lanes = np.where(turned[:, None], theirs, ours).reshape(circuits.circuits.tx_peer.shape)
        axes = zip(turned.tolist(), other.axes, circuits.axes, strict=True)
        return replace(
            circuits,
            circuits=Circuits(lanes, failed=circuits.circuits.failed),
            axes=tuple(that if turned else this for turned, that, this in axes),
        )

    def graph(self, circuits: RegionT) -> LinkGraph:
        """Return the links that exist now; circuits merged into another have no capacity."""
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


class NodeCircuits(SwitchedCircuits, Protocol):
    """Nodes with `degree` optical cards each; a circuit takes one card at either end, with all its lanes.

    Notes
    -----
    Card k of every node is joined by the optical switches of plane k; a lane of a card has a switch port of
    its own. Within its node a flow goes over the node's switch to the card and from it.
    """

    nic: Nic
    degree: int

    @property
    def card_lanes(self) -> int:
        """Lanes that a card takes.

        Raises
        ------
        ParameterError
            If they are more than a card has (`MOST_LANES`).
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
        """Rate of one circuit that a long transfer reaches."""
        lanes = self.card_lanes * self.optics.bandwidth_bytes_per_s
        return min(self.nic.bandwidth_bytes_per_s, lanes) * self.nic.efficiency

    @property
    def circuit_latency_s(self) -> float:
        """Time from memory to memory over one circuit; a node that passes on adds it once more."""
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
        chassis = chassis_of(self.switch, self.joined, self.planes)
        found: np.ndarray = chassis[first[:, None] + np.arange(self.card_lanes), node[:, None] % self.joined]
        return found

    @property
    def planes(self) -> int:
        """Planes: one for each lane of each card, in every group of nodes that are joined."""
        return self.degree * self.card_lanes * math.ceil(self.nodes / self.joined)

    def switch_ports(self, switch: int) -> np.ndarray:
        """Return the cards that are lost with an optical switch, shape [n]."""
        lost = chassis_ports(self.switch, self.joined, self.planes, switch)
        group, card = np.divmod(lost[:, 0] // self.card_lanes, self.degree)
        node = group * self.joined + lost[:, 1]
        ports: np.ndarray = np.unique((node * self.degree + card)[node < self.nodes])
        return ports

    def cards_turn_s(self, cards: int) -> float:
        """Return the time until the last lane of some cards is lit that turn at once; none takes none."""
        return self.switch.turn_s(self.stages * self.card_lanes * cards) if cards else 0.0

    def move_energy_j(self, before: Circuits, after: Circuits) -> float:
        """Return the energy of turning the ports of all circuits that are new."""
        return self.stages * self.card_lanes * before.turned_lanes(after) * self.switch.move_energy_j

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


@dataclass(frozen=True, kw_only=True)
class DirectConnect(NodeCircuits):
    """Nodes of `degree` circuits each, whose topology follows the step's traffic (TopoOpt).

    Notes
    -----
    Rings of spread strides serve all-reduces, matchings the rest, and what is left of the degree doubles the
    busiest circuits, unless a layout with lanes kept for the thinnest traffic leaves less on the busiest
    circuit. Flows without a circuit of their own take a shortest way over other nodes, whose cards they load;
    between two nodes they take turns over ways equally short. Links, in this order: circuits
    ``node * degree + card``, accelerator to node switch [E], node switch to accelerator [E].

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
    """Whether circuits stay for the job, or are laid out anew for each axis that asks."""

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

    def variants(self) -> dict[str, Fabric]:
        """Return the fabric with other numbers of cards, and with switches that can turn in a step."""
        return card_variants(self, partial(replace, self))

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
        return self._laid_out([flows for flows in outside if flows.axis == outside[0].axis], outside[0].axis)

    def configure(
        self, circuits: ForwardingCircuits, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[ForwardingCircuits, Reconfiguration]:
        """Return circuits over which `flows` can be routed, and what the change costs.

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
        """Return the circuits for some traffic; without any, a ring through all nodes and its strides."""
        every = np.arange(self.nodes)
        ring = Flows.around(every[None], size_bytes=1.0)
        node_of = self.scale_up.node_of(np.arange(self.endpoints))
        found = domain_demands(served, node_of, self.nodes) or domain_demands([ring], every, self.nodes)
        if not found:
            tx_peer = np.full((self.nodes, self.degree), DARK, dtype=np.int64)
        else:
            all_meet = self.policy is CircuitPolicy.STATIC
            tx_peer = lanes_of(job_links(found[0], self.degree, all_meet=all_meet), self.degree)
        return ForwardingCircuits(circuits=Circuits(tx_peer), domain=self.nodes, axes=(axis,))

    def graph(self, circuits: ForwardingCircuits) -> LinkGraph:
        """Return the links that exist now; circuits merged into another have no capacity."""
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
        """Return whether circuits lead every flow to its end, and are those of its axis if axes have own."""
        off_node = self.scale_up.off_node(flows)
        if self.policy is CircuitPolicy.PER_AXIS and off_node.any() and circuits.axes != (flows.axis,):
            return False
        return bool(circuits.reaches(*self._node_ends(flows)).all())

    def circuit_parts(self, flows: Flows) -> np.ndarray:
        """Return the only part, which flows between nodes take."""
        return np.zeros(int(self.scale_up.off_node(flows).any()), dtype=np.int64)

    def part_settings(self, circuits: ForwardingCircuits, parts: np.ndarray) -> Hashable:
        """Return all circuits, and the axis that they serve."""
        return circuits.circuits.tx_peer.tobytes(), circuits.axes

    def strides(self, circuits: ForwardingCircuits, group: np.ndarray) -> tuple[int, ...]:
        """Return the strides along which all of a group have circuits; a vector's parts go around each."""
        nodes, size = self.scale_up.node_of(group), len(group)
        if len(np.unique(nodes)) < size or size < 2:
            return ()
        return circuits.ring_strides(nodes)

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once, were there a circuit for each."""
        off_node = self.scale_up.off_node(flows)
        inside = ~off_node & (flows.sources != flows.destinations)
        inside_bytes = flows.moved_bytes(inside)
        return self.scale_up.transfer_energy_j(inside_bytes) + self.passing_energy_j(flows, off_node)

    def carried_energy_j(self, circuits: ForwardingCircuits, flows: Flows) -> float:
        """Return the same over the present circuits, if they connect all the flows."""
        if not self.connected(circuits, flows):
            return self.transfer_energy_j(flows)
        further = np.maximum(circuits.hops(*self._node_ends(flows)) - 1, 0)
        return self.transfer_energy_j(flows) + self.passing_energy_j(flows, further)

    def _node_ends(self, flows: Flows) -> tuple[np.ndarray, np.ndarray]:
        return self.scale_up.node_of(flows.sources), self.scale_up.node_of(flows.destinations)

    def _refuse(self, circuits: ForwardingCircuits, flows: Flows) -> None:
        """Raise for the first flow without a way."""
        lost = int(np.flatnonzero(~circuits.reaches(*self._node_ends(flows)))[0])
        msg = (
            f"no circuits lead from endpoint {flows.sources[lost]} to {flows.destinations[lost]} for axis "
            f"'{flows.axis}' in '{self.name}'; give it more degree ({self.degree}), or the policy "
            f"'{CircuitPolicy.PER_AXIS}'"
        )
        raise RouteError(msg)


UNTURNED = ("", 0)
"""Axis and pattern of circuits before they first turn."""


@dataclass(frozen=True, kw_only=True)
class HybridFabric(BesidePackets, NodeCircuits, CircuitsBeside):
    """Nodes with cards to packet switches and cards to optical switches; circuits join nodes of a region.

    Notes
    -----
    A flow of an axis that circuits are for takes one if its nodes have it; all others take packets. With the
    policy ``static`` circuits are chosen once for the step's traffic, as c-Through and Helios do each epoch.
    With ``per-axis`` a region's circuits turn to an axis that asks if that pays: if circuits save more of the
    axis's time in a step than a turn takes (`optical.scheduling.birkhoff.is_worth_moving`). Where experts'
    traffic is uneven and the choice greedy, they are even until the first exchange of a step, and turn to its
    pairs then if that pays; an exchange and its way back take the same circuits. With ``per-layer`` they turn
    to the pairs of every pattern of exchanges that asks: between blocks, for a block's two exchanges share
    one. Links: those of the packet fabric, then circuits ``node * degree + card``.

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
    """Choice of the pairs that get circuits."""
    policy: CircuitPolicy = CircuitPolicy.STATIC
    """When circuits move."""
    turning: PortTiming = PortTiming.ON_REQUEST
    """Whether they wait until traffic asks."""

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
        if not all(np.array_equal(one, every) for one in inside):
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

    def variants(self) -> dict[str, Fabric]:
        """Return the fabric with other numbers of cards, and with switches that can turn in a step."""
        return card_variants(self, partial(replace, self))

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
        """Return circuits for the step's traffic; with the policy ``per-axis``, for its first big axis."""
        big = self._big(demand)
        served = [flows for flows in demand if self._served(flows.axis)]
        axes = [UNTURNED] * self.parts
        turns = self.policy is not CircuitPolicy.STATIC
        if turns:
            first = next((flows.axis for flows in served if big[flows.axis]), "")
            served = [flows for flows in served if flows.axis == first]
            axes = [(first, 0)] * len(axes)
        tx_peer = np.full((self.nodes, self.degree), DARK, dtype=np.int64)
        if self._weighs(served) and turns:
            # Routers have not spoken yet: circuits are even until the first exchange tells its sizes.
            even = self._given(tx_peer, served)[0]
            before_s, after_s = (
                self._both_ways_s(even, served),
                self._both_ways_s(self._turned(tx_peer, served), served),
            )
            if self.policy is CircuitPolicy.PER_LAYER or is_worth_moving(
                before_s=before_s, after_s=after_s, reconfiguration_s=self.traits.reconfiguration_s
            ):
                axes = [UNTURNED] * len(axes)
            return RegionCircuits(circuits=Circuits(even), axes=tuple(axes), big=MappingProxyType(big))
        return RegionCircuits(
            circuits=Circuits(self._turned(tx_peer, served)), axes=tuple(axes), big=MappingProxyType(big)
        )

    def _weighs(self, served: Sequence[Flows]) -> bool:
        """Return whether circuits follow the sizes of uneven traffic that is served."""
        return self.choice is CircuitChoice.GREEDY and any(flows.weights is not None for flows in served)

    def _given(self, tx_peer: np.ndarray, served: Sequence[Flows]) -> list[np.ndarray]:
        """Return lanes for uneven traffic in several ways, even ones first, each of shape [N, degree]."""
        packets = self._packets_bytes_per_s / self.circuit_bytes_per_s
        found: list[np.ndarray] = []
        for region, wanted in region_demands(served, self._node_of, self.joined).items():
            first = region * self.joined
            for way, links in enumerate(candidate_circuits(wanted, self.degree, packets)):
                if way == len(found):
                    found.append(tx_peer.copy())
                found[way][first : first + self.joined] = lanes_of(links, self.degree, first)
        return found or [tx_peer]

    def _both_ways_s(self, tx_peer: np.ndarray, served: Sequence[Flows]) -> float:
        """Return the time of traffic there and back over some circuits, one after the other."""
        circuits = RegionCircuits(circuits=Circuits(tx_peer), axes=())
        graph, time_s = self.graph(circuits), 0.0
        for flows in served:
            for one in (flows, flows.reversed()):
                found = route_loads(self.route(circuits, one), graph.latency_s, one.weights)
                slowest = (found.usage / graph.capacity_bytes_per_s[found.links]).max(initial=0.0)
                time_s += float(slowest) * one.size_bytes
        return time_s

    @property
    def _packets_bytes_per_s(self) -> float:
        """Rate of a node's packet cards together."""
        return self.packets.port_bytes_per_s * self.node_size

    def _served(self, axis: str) -> bool:
        return self.axis in (None, axis)

    def _big(self, demand: Sequence[Flows]) -> dict[str, bool]:
        """Return for each axis whether circuits save more of its time in a step than a turn takes."""
        sent: defaultdict[str, float] = defaultdict(float)
        for flows in demand:
            off_node = self.scale_up.off_node(flows)
            weights = None if flows.weights is None else flows.weights[off_node]
            each = np.bincount(self._node_of[flows.sources[off_node]], weights, minlength=self.nodes)
            sent[flows.axis] += float(each.max(initial=0)) * flows.size_bytes
        packets = self._packets_bytes_per_s
        return {
            axis: is_worth_moving(
                before_s=moved / packets,
                after_s=moved / (packets + self.degree * self.circuit_bytes_per_s),
                reconfiguration_s=self.traits.reconfiguration_s,
            )
            for axis, moved in sent.items()
        }

    def _turned(self, tx_peer: np.ndarray, served: Sequence[Flows]) -> np.ndarray:
        """Return lanes of which those of regions with traffic are chosen for it, shape [N, degree]."""
        if self._weighs(served):
            return min(self._given(tx_peer, served), key=lambda after: self._both_ways_s(after, served))
        after = tx_peer.copy()
        for region, demand in domain_demands(served, self._node_of, self.joined).items():
            first = region * self.joined
            links = region_links(demand, self.degree, self.choice)
            after[first : first + self.joined] = lanes_of(links, self.degree, first)
        return after

    def circuit_parts(self, flows: Flows) -> np.ndarray:
        """Return the regions inside which flows of an axis that circuits are for go, shape [R]."""
        one, other = self._node_of[flows.sources], self._node_of[flows.destinations]
        kept = (one != other) & (one // self.joined == other // self.joined) & self._served(flows.axis)
        return np.unique(one[kept] // self.joined)

    def asking(self, circuits: RegionCircuits, flows: Flows) -> np.ndarray:
        """Return the regions whose circuits should turn to some flows, shape [R]."""
        if not self.turns_for(flows) or not circuits.big.get(flows.axis, False):
            return np.empty(0, dtype=np.int64)
        regions = self.circuit_parts(flows)
        pattern = self._pattern(flows)
        turned = [circuits.axes[region] for region in regions.tolist()]
        return regions[[axis != flows.axis or pattern not in {0, kept} for axis, kept in turned]]

    def _pattern(self, flows: Flows) -> int:
        """Return the number of the circuits that flows want among those of their axis; 0 for any."""
        by_layer = self.policy is CircuitPolicy.PER_LAYER and flows.weights is not None
        return flows.pattern - MIXED + 1 if by_layer else 0

    def turns_for(self, flows: Flows) -> bool:
        """Return whether circuits may ever turn to some flows."""
        served = self.policy is not CircuitPolicy.STATIC and self._served(flows.axis)
        return served and super().turns_for(flows)

    def configure(
        self, circuits: RegionCircuits, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[RegionCircuits, Reconfiguration]:
        """Return circuits turned to `flows` where that pays, and what the change costs."""
        asking = self.asking(circuits, flows)
        if not asking.size:
            return circuits, Reconfiguration()
        wanted = flows
        if flows.weights is not None and self.policy is CircuitPolicy.PER_AXIS:  # for there and back together
            wanted = next(
                (one for one in demand if one.axis == flows.axis and one.weights is not None), flows
            )
        if id(wanted) not in circuits.targets:  # kept with the flows, so that no others get their number
            circuits.targets[id(wanted)] = wanted, self._turned(circuits.circuits.tx_peer, [wanted])
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
        one, other = self._node_of[flows.sources], self._node_of[flows.destinations]
        lit = circuits.circuits.lit[one] == other[:, None]
        lit &= self._served(flows.axis)
        return one * self.degree + lit.argmax(axis=1), lit.any(axis=1)

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
        """The fabric as each queue pair of a flow sees it."""
        return tuple(replace(self, packets=view) for view in self.packets.views)

    def loads(self, circuits: RegionCircuits, flows: Flows) -> Loads:
        """Return what flows of equal rate take of every link, each queue pair on a path of its own."""
        return shared_loads([one.route(circuits, flows) for one in self._views], self.latency_s, flows)

    def loads_around(self, circuits: RegionCircuits, flows: Flows, failed: np.ndarray) -> Loads:
        """Return the same past links that carry nothing, shape [n]."""
        ways = [one.around(circuits, flows, failed) for one in self._views]
        return shared_loads(ways, self.latency_s, flows)

    def connected(self, circuits: RegionCircuits, flows: Flows) -> bool:
        """Return whether no circuits should turn to the flows; packets reach everybody."""
        return not self.asking(circuits, flows).size

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once by packets."""
        return self.packets.transfer_energy_j(flows)

    def carried_energy_j(self, circuits: RegionCircuits, flows: Flows) -> float:
        """Return the same over the present circuits and packets, if no circuits should turn first."""
        if not self.connected(circuits, flows):
            return self.transfer_energy_j(flows)
        lit = self.by_circuit(circuits, flows)[1]
        return self.packets.transfer_energy_j(flows.part(~lit)) + self.passing_energy_j(flows, lit)
