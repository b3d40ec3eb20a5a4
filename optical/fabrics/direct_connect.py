"""Nodes joined by circuits of their own, laid out for the job's traffic; nodes pass on what goes further."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from optical.fabrics.circuits import DARK, Circuits, ForwardingCircuits, circuit_wiring, coprime_strides
from optical.fabrics.lane_assignment import domain_demands, job_links, lanes_of
from optical.fabrics.node_circuits import NodeCircuits, card_variants, changed_links
from optical.fabrics.switches import LaneOptics, OpticalSwitch, load_optics, load_switch
from simulator.checks import check_choices, check_range
from simulator.errors import RouteError
from simulator.fabric import CircuitPolicy, Fabric, Traits, check_policy
from simulator.interfaces import Flows, LinkGraph, Reconfiguration, Wiring
from simulator.topology.graphs import NO_LINK, bundle, joined, packed
from simulator.topology.scale_up import BillItem, Nic, ScaleUp, load_nic


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
        check_policy(self)
        check_range(self, "endpoints", "degree", low=1)
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
        return card_variants(self, partial(dataclasses.replace, self))

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
        moved = changed_links(circuits.circuits, after.circuits)
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
        optical = circuits.circuits.lanes_of_first.ravel() * self.circuit_bytes_per_s
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
        return packed([first, *reversed(circuits.ways(sources, destinations, turns)), last])

    def wired(self, circuits: ForwardingCircuits) -> Wiring:
        """Return all links with their present ends; dark ones have no capacity."""
        every = np.arange(self.endpoints)
        switches = self.endpoints + self.scale_up.node_of(every)
        inside = {
            "rate_bytes_per_s": self.scale_up.capacity_bytes_per_s,
            "latency_s": self.scale_up.latency_s / 2,
        }
        light = circuit_wiring(
            circuits.circuits,
            self.endpoints + np.arange(self.nodes),
            rate_bytes_per_s=self.circuit_bytes_per_s,
            latency_s=self.circuit_latency_s,
        )
        copper = bundle(every, switches, **inside), bundle(switches, every, **inside)
        return joined([light, *copper])

    def connected(self, circuits: ForwardingCircuits, flows: Flows) -> bool:
        """Return whether circuits lead every flow to its end, and are those of its axis if axes have own."""
        off_node = self.scale_up.off_node(flows)
        if self.policy is CircuitPolicy.PER_AXIS and off_node.any() and circuits.axes != (flows.axis,):
            return False
        return bool(circuits.reaches(*self._node_ends(flows)).all())

    def strides(self, circuits: ForwardingCircuits, group: np.ndarray) -> tuple[int, ...]:
        """Return the strides along which all of a group have circuits; a vector's parts go around each."""
        nodes, size = self.scale_up.node_of(group), len(group)
        if len(np.unique(nodes)) < size or size < 2:
            return ()
        return coprime_strides(circuits, nodes)

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
