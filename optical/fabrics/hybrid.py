"""Circuits for big flows beside a thin packet network for the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType

import numpy as np

from optical.fabrics.circuits import (
    DARK,
    Circuits,
    circuit_wiring,
    domain_demands,
    lanes_of,
    region_matrices,
    ways_to_give,
)
from optical.fabrics.node_circuits import (
    BesidePackets,
    CircuitChoice,
    CircuitsBeside,
    NodeCircuits,
    RegionCircuits,
    card_variants,
    region_links,
)
from optical.fabrics.switches import LaneOptics, OpticalSwitch, load_optics, load_switch
from optical.scheduling.birkhoff import is_worth_moving
from simulator.errors import ParameterError, check_choices, check_range
from simulator.fabric import CircuitPolicy, Fabric, Loads, PortTiming, Traits, route_loads
from simulator.interfaces import MIXED, Flows, Reconfiguration, Wiring
from simulator.layout import Axis
from simulator.topology.graphs import NO_LINK, joined, packed, shared_loads
from simulator.topology.scale_up import BillItem, Nic, load_nic

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
        for region, wanted in region_matrices(served, self._node_of, self.joined).items():
            first = region * self.joined
            for way, links in enumerate(ways_to_give(wanted, self.degree, packets)):
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
