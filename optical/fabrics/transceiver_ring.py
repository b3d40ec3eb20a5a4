"""Nodes in a ring whose transceivers are the switches: each reaches several neighbours, one at a time.

Circuits pass by nodes that failed, as far as their fibres reach.
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
    """Circuits of a ring, from every node to nodes that work; treat as immutable.

    References
    ----------
    Shou et al., "InfiniteHBD", SIGCOMM 2025, arXiv:2502.03885: transceivers turn to the next node
    that works, so that K - 1 failed ones in a row are passed by.
    """

    nodes: int
    """Nodes of the ring."""
    hop: int = 1
    """Circuits lead to the h-th next node that works, and to the h-th before; dimensionless."""
    reach: int = 1
    """Nodes, failed ones included, that a circuit may lead further at most; dimensionless."""
    failed: tuple[int, ...] = ()
    """Nodes that are passed by."""

    @cached_property
    def working(self) -> np.ndarray:
        """Nodes that work, in order, shape [W]."""
        return np.setdiff1d(np.arange(self.nodes), self.failed)

    @cached_property
    def place(self) -> np.ndarray:
        """Place of every node among those that work, -1 for one that failed, shape [N]."""
        found = np.full(self.nodes, NO_LINK, dtype=np.int64)
        found[self.working] = np.arange(self.working.size)
        return found

    @cached_property
    def _closed(self) -> np.ndarray:
        """Whether the circuit from each working node to the next one that it is for can be had, shape [W]."""
        count = self.working.size
        ahead = self.working[(np.arange(count) + self.hop) % max(count, 1)]
        further = (ahead - self.working) % self.nodes + self.nodes * (self.hop // max(count, 1))
        closed: np.ndarray = further <= self.reach
        return closed

    def ahead(self, sign: int) -> np.ndarray:
        """Return the node that each one's circuit forward (+1) or back (-1) leads to, -1 if dark; [N]."""
        found = np.full(self.nodes, NO_LINK, dtype=np.int64)
        count = self.working.size
        other = (np.arange(count) + sign * self.hop) % max(count, 1)
        lit = self._closed if sign > 0 else self._closed[other]
        found[self.working] = np.where(lit, self.working[other], NO_LINK)
        return found

    def jumps(self, sources: np.ndarray, destinations: np.ndarray, sign: int) -> np.ndarray:
        """Return the circuits from node to node forward or back, inf where they do not lead there, shape [F].

        A node that failed leads nowhere, but to itself.
        """
        one, other = self.place[sources], self.place[destinations]
        found = self._steps[sign * (other - one) % self._steps.size]
        lost = (one < 0) | (other < 0) | (found > self._unbroken(sign, self._turns)[one])
        return np.where(sources == destinations, 0.0, np.where(lost, np.inf, found))

    def turn(self, nodes: np.ndarray) -> np.ndarray:
        """Return the place of working nodes among those that circuits forward pass in turn, shape [F]."""
        place = self.place[nodes]
        return self._steps[place - place % (self._steps.size // self._turns)]

    @property
    def _turns(self) -> int:
        """Circuits from a node that works back to itself."""
        count = max(self.working.size, 1)
        return count // math.gcd(self.hop, count)

    @cached_property
    def _steps(self) -> np.ndarray:
        """Circuits forward over each number of working nodes, inf if none lead there, shape [W]."""
        steps = np.full(max(self.working.size, 1), np.inf)
        steps[np.arange(self._turns) * self.hop % steps.size] = np.arange(self._turns)
        return steps

    def _unbroken(self, sign: int, turns: int) -> np.ndarray:
        """Return how many circuits in a row lead on from each working node, inf if all do, shape [W]."""
        count = self.working.size
        if self._closed.all():
            return np.full(max(count, 1), np.inf)
        every = np.arange(count)
        lit = self._closed if sign > 0 else self._closed[(every - self.hop) % count]
        found, here, going = np.zeros(count), every, np.ones(count, dtype=bool)
        for _ in range(turns):
            going = going & lit[here]
            if not going.any():
                break
            found += going
            here = (here + sign * self.hop) % count
        return found


@dataclass(frozen=True, kw_only=True)
class TransceiverRing(CircuitFabric):
    """Accelerators in a chain through their nodes; the ends of a node shine on one of the next K nodes.

    Notes
    -----
    Accelerator e is the ``e % node``-th of its node's chain. Link 2 e leads forward, to the next in the chain
    or from the last of a node to the first of the node h further on; link 2 e + 1 leads back. Circuits have
    the h of all nodes, from 1 to what `hops` leaves: nodes that failed before (`failed_nodes`) stand evenly
    apart, and a circuit that skips one takes one hop more. Nodes that fail during a run are passed by too, as
    far as fibres reach (`optical.fabrics.transceiver_ring`).

    A ring of consecutive accelerators uses every link once in each direction, its way back to the first
    included, so that any number of nodes makes a ring of full rate. There is no other network: all other
    traffic goes along the chain too.

    Of ways forward and back that are equally long, sources take turns by their places, as on a torus
    (`simulator.topology.torus.TorusPaths`).

    Flows that leave their nodes want the h over which they pass the fewest links; when it is not lit, every
    transceiver between nodes turns.

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
    """Nodes, beside those that work, that the ring passes by; dimensionless."""
    link: DirectLink = field(default_factory=lambda: load_direct_link("ici-v4"))
    """Ports at the ends of a link and copper in a node; its bandwidth counts for each lane of the ring."""
    copper_links: int = 8
    """Such links between neighbours in a node; dimensionless."""
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
        """Transceivers that fail together, those at both ends of a node."""
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
        """Greatest h, in nodes that work, that every node's fibres allow."""
        runs = min(self.failed_nodes, self.nodes)
        if not runs:
            return self.hops
        apart = max(1, self.nodes // runs)
        found = 0
        while found < self.hops and (found + 1) + self.skipped * -(-(found + 1) // apart) <= self.hops:
            found += 1
        return found

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
        """Return where each link ends, -1 if nowhere, shape [2 E]."""
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
        """Return circuits over so many nodes, past those that failed during the run."""
        return RingCircuits(nodes=self.nodes, hop=hop, reach=self.reach, failed=failed)

    def initial(self, demand: tuple[Flows, ...]) -> RingCircuits:
        """Return the circuits at the start of a step: over the hop that the first axis wants."""
        return next((self._wanted(flows) for flows in demand if self._off_node(flows).any()), self.circuits())

    def configure(
        self, circuits: RingCircuits, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[RingCircuits, Reconfiguration]:
        """Return the hop that flows want, and what it costs to turn all transceivers between nodes to it."""
        if self.connected(circuits, flows):
            return circuits, Reconfiguration()
        wanted = self._wanted(flows, circuits.failed)
        return wanted, self._turn(circuits, wanted)

    def _turn(self, circuits: RingCircuits, after: RingCircuits) -> Reconfiguration:
        """Return what it costs to turn circuits into others."""
        heads = self.heads(after)
        moved = np.flatnonzero(self.heads(circuits) != heads)
        modules = -(-self.lanes // self.lanes_per_transceiver) * int((heads[moved] >= 0).sum())
        return Reconfiguration(
            reconfiguration_s=self.switch.reconfiguration_s,
            moved_links=moved,
            energy_j=modules * self.switch.move_energy_j,
        )

    def port_name(self, port: int) -> str:
        """Return what the transceivers of a node are called in messages."""
        return f"the transceivers of node {port}"

    def without(self, circuits: RingCircuits, failed: np.ndarray) -> tuple[RingCircuits, Reconfiguration]:
        """Return circuits that pass by some nodes [n] and no others; those beside them turn."""
        after = self.circuits(circuits.hop, tuple(failed.tolist()))
        return after, self._turn(circuits, after)

    def graph(self, circuits: RingCircuits) -> LinkGraph:
        """Return the links; circuits change where they lead, not what they carry."""
        return self._graph

    def connected(self, circuits: RingCircuits, flows: Flows) -> bool:
        """Return whether the hop that is lit is what flows want and leads there, or none leaves its node."""
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
        turn = circuits.turn(flows.sources // self.node) * self.node + flows.sources % self.node
        forward = (ahead < back) | ((ahead == back) & (turn % 2 == 0))
        length = np.where(forward, ahead, back)
        heads = self.heads(circuits)
        links = np.full((flows.sources.size, int(length.max(initial=0))), NO_LINK, dtype=np.int64)
        here = np.array(flows.sources)
        for hop in range(links.shape[1]):
            going = np.flatnonzero(length > hop)
            links[going, hop] = 2 * here[going] + ~forward[going]
            here[going] = heads[links[going, hop]]
        return links

    def strides(self, circuits: RingCircuits, group: np.ndarray) -> tuple[int, ...]:
        """Return the ring of a group forward and the one back: each lane shines both ways."""
        return (1, len(group) - 1) if len(group) > 2 else ()

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once: that of every link on their ways."""
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
        """Return the links forward and back from source to destination, inf where there is no way; [F]."""
        local = flows.destinations % self.node - flows.sources % self.node
        ends = flows.sources // self.node, flows.destinations // self.node
        found = []
        for sign in (1, -1):
            length = circuits.jumps(*ends, sign) * self.node + sign * local
            found.append(np.where(length < 0, np.inf, length))
        return found[0], found[1]

    def _wanted(self, flows: Flows, failed: tuple[int, ...] = ()) -> RingCircuits:
        """Return the circuits over which flows pass the fewest links; the shorter hop of equal ones."""
        choices = [self.circuits(hop, failed) for hop in range(1, self.reach + 1)]
        passed = [float(np.minimum(*self._lengths(one, flows)).sum()) for one in choices]
        return choices[int(np.argmin(passed))]
