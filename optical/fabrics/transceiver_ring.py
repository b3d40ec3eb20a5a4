"""Nodes in a ring whose transceivers contain the optical switches: each has fibres to several neighbours.

A transceiver uses one of its fibres at a time. Circuits bypass failed nodes as far as the fibres reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from optical.fabrics.circuits import CircuitFabric
from optical.fabrics.switches import (
    LaneBudget,
    LaneOptics,
    OpticalSwitch,
    lane_budget,
    load_optics,
    load_switch,
)
from simulator.errors import ParameterError, RouteError, check_range
from simulator.fabric import PortOwner, Ports, Traits
from simulator.interfaces import Flows, LinkGraph, Reconfiguration, Wiring
from simulator.topology.clos import DirectLink, load_direct_link
from simulator.topology.graphs import NO_LINK
from simulator.topology.scale_up import BillItem
from simulator.units import BITS_PER_BYTE


@dataclass(frozen=True, kw_only=True)
class RingCircuits:
    """Circuits of a ring of N nodes, W of which work; treat as immutable.

    References
    ----------
    Shou et al., "InfiniteHBD", SIGCOMM 2025, arXiv:2502.03885: transceivers turn to the next working node, so
    that up to K - 1 failed ones in a row are bypassed.
    """

    nodes: int
    """Nodes of the ring."""
    hop: int = 1
    """Circuits join each working node to the h-th working one after it, and before it; dimensionless."""
    reach: int = 1
    """Farthest node, failed ones counted, to which a circuit can lead; dimensionless."""
    failed: tuple[int, ...] = ()
    """Nodes that are bypassed."""

    @cached_property
    def working(self) -> np.ndarray:
        """Nodes that work, in order, shape [W]."""
        return np.setdiff1d(np.arange(self.nodes), self.failed)

    @cached_property
    def place(self) -> np.ndarray:
        """Index of each node in `working`, -1 for one that failed, shape [N]."""
        place = np.full(self.nodes, NO_LINK, dtype=np.int64)
        place[self.working] = np.arange(self.working.size)
        return place

    @cached_property
    def _closed(self) -> np.ndarray:
        """Whether fibres reach for the circuit forward from each working node, bool [W]."""
        count = self.working.size
        ahead = self.working[(np.arange(count) + self.hop) % max(count, 1)]
        distance = (ahead - self.working) % self.nodes + self.nodes * (self.hop // max(count, 1))
        closed: np.ndarray = distance <= self.reach
        return closed

    def ahead(self, sign: int) -> np.ndarray:
        """Return the node at the end of each one's circuit forward (+1) or back (-1), -1 if dark, [N]."""
        ahead = np.full(self.nodes, NO_LINK, dtype=np.int64)
        count = self.working.size
        peer = (np.arange(count) + sign * self.hop) % max(count, 1)
        lit = self._closed if sign > 0 else self._closed[peer]
        ahead[self.working] = np.where(lit, self.working[peer], NO_LINK)
        return ahead

    def jumps(self, sources: np.ndarray, destinations: np.ndarray, sign: int) -> np.ndarray:
        """Return the number of circuits from node to node forward (+1) or back (-1), [F].

        Infinite where they do not lead there; a failed node reaches itself only.
        """
        start, end = self.place[sources], self.place[destinations]
        circuits = self._circuits_to[sign * (end - start) % self._circuits_to.size]
        lost = (start < 0) | (end < 0) | (circuits > self._unbroken(sign)[start])
        return np.where(sources == destinations, 0.0, np.where(lost, np.inf, circuits))

    def order(self, nodes: np.ndarray) -> np.ndarray:
        """Return the position of working nodes in the order in which circuits forward visit them, [F]."""
        place = self.place[nodes]
        return self._circuits_to[place - place % (self._circuits_to.size // self._cycle)]

    @property
    def _cycle(self) -> int:
        """Circuits forward from a working node back to itself."""
        count = max(self.working.size, 1)
        return count // math.gcd(self.hop, count)

    @cached_property
    def _circuits_to(self) -> np.ndarray:
        """Circuits forward to the k-th next working node, by k, inf if they do not lead there, shape [W]."""
        circuits = np.full(max(self.working.size, 1), np.inf)
        circuits[np.arange(self._cycle) * self.hop % circuits.size] = np.arange(self._cycle)
        return circuits

    def _unbroken(self, sign: int) -> np.ndarray:
        """Return the lit circuits in a row from each working node on, inf if all are lit, shape [W]."""
        count = self.working.size
        if self._closed.all():
            return np.full(max(count, 1), np.inf)
        every = np.arange(count)
        lit = self._closed if sign > 0 else self._closed[(every - self.hop) % count]
        length, place, going = np.zeros(count), every, np.ones(count, dtype=bool)
        for _ in range(self._cycle):
            going = going & lit[place]
            if not going.any():
                break
            length += going
            place = (place + sign * self.hop) % count
        return length


@dataclass(frozen=True, kw_only=True)
class TransceiverRing(CircuitFabric):
    """Accelerators in a chain through each node, whose ends have circuits to one of the next K nodes.

    Notes
    -----
    Accelerator e is number ``e % node`` in its node's chain. Link 2 e leads forward, to the next in the chain
    or from the last of a node to the first of the node h further on; link 2 e + 1 leads back. All circuits
    have the same h, from 1 to `reach`: nodes that failed before the job (`failed_nodes`) are spread evenly,
    and a circuit that bypasses one needs one hop more. Nodes that fail during a run are bypassed too, as far
    as fibres reach (`RingCircuits`).

    A ring of consecutive accelerators uses every link once in each direction, from the last to the first
    included, so that any number of nodes makes a ring of full rate. There is no other network: all other
    traffic goes along the chain too. Where the paths forward and back are equally long, every other source
    goes forward, as on a torus (`simulator.topology.torus.TorusPaths`).

    Flows that leave their nodes want the h with which they cross the fewest links; if circuits have another,
    every transceiver between nodes turns.

    References
    ----------
    Shou et al., "InfiniteHBD", SIGCOMM 2025, arXiv:2502.03885: transceivers with a switch, K-hop ring.
    """

    name: str = "transceiver ring"
    """Name shown in tables and traces."""
    endpoints: int
    """Accelerators that work."""
    node: int = 4
    """Accelerators of a node; dimensionless."""
    hops: int = 2
    """Neighbours in each direction to which a node has fibres, K; dimensionless."""
    failed_nodes: int = 0
    """Failed nodes, beside those that work, that the ring bypasses from the start; dimensionless."""
    link: DirectLink = field(default_factory=lambda: load_direct_link("ici-v4"))
    """Copper link between neighbours in a node, with the ports at its ends."""
    copper_links: int = 8
    """Copper links side by side between neighbours in a node; dimensionless."""
    switch: OpticalSwitch = field(default_factory=lambda: load_switch("transceiver-switch"))
    """The switch in a transceiver."""
    optics: LaneOptics = field(default_factory=lambda: load_optics("lane-100g"))
    """Transmitter and receiver of each lane."""
    lanes: int = 32
    """Optical lanes from a node to the next in one direction."""
    lanes_per_transceiver: int = 8
    """Lanes that turn together; dimensionless."""

    def __post_init__(self) -> None:
        check_range(self, "endpoints", "node", "hops", "lanes", "lanes_per_transceiver", low=1)
        check_range(self, "copper_links", low=1)
        check_range(self, "failed_nodes")
        if self.endpoints % self.node:
            msg = f"endpoints ({self.endpoints}) of '{self.name}' must fill nodes of {self.node}"
            raise ParameterError(msg)
        if self.reach < 1:
            msg = (
                f"{self.failed_nodes} failed nodes among {self.nodes} that work are more in a row than "
                f"hops={self.hops} of '{self.name}' can pass by; try hops={self.skipped + 1}"
            )
            raise ParameterError(msg)
        _ = self.budget

    @property
    def nodes(self) -> int:
        """Nodes that work."""
        return self.endpoints // self.node

    @property
    def node_size(self) -> int:
        """Endpoints of a node, consecutive numbers."""
        return self.node

    @cached_property
    def traits(self) -> Traits:
        """Ports are nodes: the transceivers at both ends of a node fail together."""
        return Traits(
            reconfiguration_s=self.switch.reconfiguration_s,
            ports=Ports(owner=PortOwner.NODE, owners=self.nodes, lanes=1),
            idle_numbers={
                **self.optics.idle_numbers,
                "command_s": "each transceiver commands its own few ways at once",
            },
        )

    @property
    def skipped(self) -> int:
        """Most failed nodes in a row."""
        return -(-self.failed_nodes // self.nodes)

    @property
    def reach(self) -> int:
        """Largest h, in working nodes, for which the fibres of every node suffice."""
        runs = min(self.failed_nodes, self.nodes)
        if not runs:
            return self.hops
        apart = max(1, self.nodes // runs)
        hop = 0
        while hop < self.hops and (hop + 1) + self.skipped * -(-(hop + 1) // apart) <= self.hops:
            hop += 1
        return hop

    @cached_property
    def budget(self) -> LaneBudget:
        """Power budget of a lane: a switch in each of two transceivers and one fibre.

        Raises
        ------
        LinkError
            If its light does not arrive.
        """
        return lane_budget(self.optics, self.switch, 2, fibres=1)

    @cached_property
    def _graph(self) -> LinkGraph:
        local = np.arange(self.endpoints) % self.node
        between = np.stack([local == self.node - 1, local == 0], axis=-1).ravel()
        copper = self.copper_links * self.link.bandwidth_bytes_per_s
        light = self.lanes * self.optics.bandwidth_bytes_per_s
        rate = np.where(between, light, copper) * self.link.efficiency
        latency_s = self.link.latency_s + self.optics.link_latency_s * between
        rate.flags.writeable = False
        latency_s.flags.writeable = False
        return LinkGraph(capacity_bytes_per_s=rate, latency_s=latency_s)

    def heads(self, circuits: RingCircuits) -> np.ndarray:
        """Return the endpoint at the end of each link, -1 for dark ones, shape [2 E]."""
        every = np.arange(self.endpoints)
        number, local = np.divmod(every, self.node)
        after, before = circuits.ahead(+1)[number], circuits.ahead(-1)[number]
        last = np.where(before < 0, NO_LINK, before * self.node + self.node - 1)
        first = np.where(after < 0, NO_LINK, after * self.node)
        ahead = np.where(local < self.node - 1, every + 1, first)
        return np.stack([ahead, np.where(local > 0, every - 1, last)], axis=-1).ravel()

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each; failed nodes draw nothing."""
        ends = 2 * self.nodes * self.lanes
        modules = -(-self.lanes // self.lanes_per_transceiver) * 2 * self.nodes
        failed = -(-self.lanes // self.lanes_per_transceiver) * 2 * self.failed_nodes
        copper = 2 * (self.endpoints - self.nodes) * self.copper_links
        module_usd = self.switch.ports * self.switch.port_price_usd
        module_usd += self.lanes_per_transceiver * self.optics.price_usd
        return {
            "copper link end": BillItem(
                count=copper, w_each=self.link.static_w, usd_each=self.link.price_usd
            ),
            "optical lane": BillItem(
                count=ends, w_each=self.optics.electronics_w + self.budget.laser_w, usd_each=0.0
            ),
            "transceiver switch": BillItem(count=modules, w_each=self.switch.static_w, usd_each=module_usd),
            "failed transceiver": BillItem(count=failed, w_each=0.0, usd_each=module_usd),
            "fibre": BillItem(
                count=(modules + failed) // 2 * self.hops,
                w_each=0.0,
                usd_each=0.0,
                fibre_ends=2,
                fibre_m=self.optics.fibre_m,
            ),
        }

    def circuits(self, hop: int = 1, failed: tuple[int, ...] = ()) -> RingCircuits:
        """Return circuits of a hop that bypass nodes which failed during the run."""
        return RingCircuits(nodes=self.nodes, hop=hop, reach=self.reach, failed=failed)

    def initial(self, demand: tuple[Flows, ...]) -> RingCircuits:
        """Return the circuits at the start of a step, with the hop that the first axis wants."""
        return next((self._wanted(flows) for flows in demand if self._off_node(flows).any()), self.circuits())

    def configure(
        self, circuits: RingCircuits, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[RingCircuits, Reconfiguration]:
        """Return circuits with the hop that flows want, and the reconfiguration of all transceivers to it."""
        if self.connected(circuits, flows):
            return circuits, Reconfiguration()
        wanted = self._wanted(flows, circuits.failed)
        return wanted, self._reconfiguration(circuits, wanted)

    def _reconfiguration(self, circuits: RingCircuits, after: RingCircuits) -> Reconfiguration:
        """Return the time, the links and the energy of turning circuits into others."""
        heads = self.heads(after)
        moved = np.flatnonzero(self.heads(circuits) != heads)
        modules = -(-self.lanes // self.lanes_per_transceiver) * int((heads[moved] >= 0).sum())
        return Reconfiguration(
            reconfiguration_s=self.switch.reconfiguration_s,
            moved_links=moved,
            energy_j=modules * self.switch.move_energy_j,
        )

    def port_name(self, port: int) -> str:
        """Return the name of a node's transceivers for messages."""
        return f"the transceivers of node {port}"

    def without(self, circuits: RingCircuits, failed: np.ndarray) -> tuple[RingCircuits, Reconfiguration]:
        """Return circuits that bypass just these nodes, shape [n], and the turns of those beside them."""
        after = self.circuits(circuits.hop, tuple(failed.tolist()))
        return after, self._reconfiguration(circuits, after)

    def graph(self, circuits: RingCircuits) -> LinkGraph:
        """Return the capacity and latency of all links, the same for all circuits."""
        return self._graph

    def connected(self, circuits: RingCircuits, flows: Flows) -> bool:
        """Return whether circuits have the hop that flows want and lead to their ends."""
        if not self._off_node(flows).any():
            return True
        if self._wanted(flows, circuits.failed) != circuits:
            return False
        return bool(np.isfinite(np.minimum(*self._lengths(circuits, flows))).all())

    def route(self, circuits: RingCircuits, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, H], padded with -1; a flow to itself has none."""
        if not self.connected(circuits, flows):
            msg = (
                f"'{self.name}' has circuits over {circuits.hop} node(s), and axis '{flows.axis}' wants "
                f"{self._wanted(flows, circuits.failed).hop}; configure the fabric for it"
            )
            raise RouteError(msg)
        ahead, back = self._lengths(circuits, flows)
        order = circuits.order(flows.sources // self.node) * self.node + flows.sources % self.node
        forward = (ahead < back) | ((ahead == back) & (order % 2 == 0))
        length = np.where(forward, ahead, back)
        heads = self.heads(circuits)
        links = np.full((flows.sources.size, int(length.max(initial=0))), NO_LINK, dtype=np.int64)
        endpoint = np.array(flows.sources)
        for hop in range(links.shape[1]):
            going = np.flatnonzero(length > hop)
            links[going, hop] = 2 * endpoint[going] + ~forward[going]
            endpoint[going] = heads[links[going, hop]]
        return links

    def strides(self, circuits: RingCircuits, group: np.ndarray) -> tuple[int, ...]:
        """Return the ring of a group forward and the one back: each lane shines both ways."""
        return (1, len(group) - 1) if len(group) > 2 else ()

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all flows once, over every link of their paths."""
        passed = flows.moved_bytes(np.minimum(*self._lengths(self._wanted(flows), flows)))
        return passed * BITS_PER_BYTE * self.link.energy_j_per_bit

    def _off_node(self, flows: Flows) -> np.ndarray:
        return flows.sources // self.node != flows.destinations // self.node

    def wired(self, circuits: RingCircuits) -> Wiring:
        """Return all links with their present ends; dark ones have no capacity."""
        graph, heads = self.graph(circuits), self.heads(circuits)
        tails = np.arange(heads.size) // 2
        return Wiring(
            tails=tails,
            heads=np.where(heads < 0, tails, heads),
            capacity_bytes_per_s=np.where(heads < 0, 0.0, graph.capacity_bytes_per_s),
            latency_s=graph.latency_s,
        )

    def _lengths(self, circuits: RingCircuits, flows: Flows) -> tuple[np.ndarray, np.ndarray]:
        """Return the links on each flow's paths forward and back, [F] each; inf where there is no path."""
        local = flows.destinations % self.node - flows.sources % self.node
        ends = flows.sources // self.node, flows.destinations // self.node
        lengths = (circuits.jumps(*ends, sign) * self.node + sign * local for sign in (1, -1))
        forward, back = (np.where(length < 0, np.inf, length) for length in lengths)
        return forward, back

    def _wanted(self, flows: Flows, failed: tuple[int, ...] = ()) -> RingCircuits:
        """Return the circuits over which flows cross the fewest links; of equal ones those of least hop."""
        choices = [self.circuits(hop, failed) for hop in range(1, self.reach + 1)]
        crossed = [float(np.minimum(*self._lengths(choice, flows)).sum()) for choice in choices]
        return choices[int(np.argmin(crossed))]
