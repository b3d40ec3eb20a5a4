"""Packet fabrics behind network cards: their common base, rail-optimised leaves and spines, plain wires.

Plain wires model a network by a rate and a latency, as simulators without devices do; they have no power and
no price.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Self

import numpy as np

from electronic.devices import (
    PacketSwitch,
    Transceiver,
    load_adder,
    load_packet_switch,
    load_scale_up,
    load_transceiver,
)
from simulator.errors import ParameterError, check_choices, check_positive, check_range, check_whole
from simulator.fabric import Fabric, NodeFabric, Traits
from simulator.interfaces import Flows, LinkGraph, Wiring
from simulator.keys import mix_key
from simulator.topology.clos import Spreading, hashed
from simulator.topology.graphs import NO_LINK, GraphFabric, both_ways, bundle, joined, node_links, packed
from simulator.topology.scale_up import (
    Adder,
    BillItem,
    HopBudget,
    Nic,
    OpticalHop,
    ScaleUp,
    load_hop,
    load_nic,
)

SHIPPED = ("shipped_spreading", "shipped_queue_pairs", "adaptive_efficiency")
"""Numbers of a switch that matter only where flows are spread over several paths."""
MOST_LEVELS = 4
"""Most levels of switches of a `RailFabric`, a choice: enough for two million accelerators at a radix of 64.
Dimensionless."""
OPTICS = "dr4"
"""Optical class of the modules outside nodes; all modules of the table have its reach."""


@dataclass(frozen=True, kw_only=True)
class PacketFabric(NodeFabric, GraphFabric):
    """Nodes with one network card per accelerator, joined by packet switches in some topology.

    Notes
    -----
    A subclass defines the topology: the switch of each card, the links between switches, the routes over
    them, and the numbers of switches and links. Link budgets, power, price and energy follow from the parts.
    Vertices: endpoints, node switches, packet switches. Links, in this order: accelerator to node switch
    [E], node switch to accelerator [E], card to switch [E], switch to card [E], links between switches.
    """

    name: str = "packets"
    """Name shown in tables and traces."""
    endpoints: int
    """Accelerators."""
    scale_up: ScaleUp = field(default_factory=lambda: load_scale_up("nvlink4"))
    """The domain inside a node."""
    nic: Nic = field(default_factory=lambda: load_nic("connectx-7"))
    """Network card of each accelerator."""
    switch: PacketSwitch = field(default_factory=lambda: load_packet_switch("switch-400g"))
    """Switches of all levels."""
    transceiver: Transceiver = field(default_factory=lambda: load_transceiver("dr4-400g"))
    """Module at both ends of every link outside the node."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_range(self, "endpoints", low=1)
        self.scale_up.nodes(self.endpoints)
        _ = self.optical_budget

    @property
    @abstractmethod
    def edges(self) -> np.ndarray:
        """Packet switch of each endpoint's card, counted from 0, shape [E]."""
        ...

    @abstractmethod
    def trunk_wiring(self, first_vertex: int) -> Wiring:
        """Return the links between packet switches, of which the first is vertex `first_vertex`."""
        ...

    @abstractmethod
    def trunk_paths(self, sources: np.ndarray, destinations: np.ndarray) -> list[np.ndarray]:
        """Return the links between switches of each flow, hop by hop, numbered as in `trunk_wiring`."""
        ...

    @property
    @abstractmethod
    def switches(self) -> int:
        """Packet switches."""
        ...

    @property
    @abstractmethod
    def trunks(self) -> int:
        """Links between packet switches; both directions count as one."""
        ...

    @property
    def spread(self) -> Spreading:
        """Spreading of flows over equally short paths; over all at once if a topology offers no choice."""
        return Spreading.SPRAYED

    @property
    def idle_numbers(self) -> dict[str, str]:
        """Numbers of its parts that change nothing, each with the reason."""
        return dict.fromkeys(SHIPPED, "this topology has no choice of spreading")

    @property
    def network_adder(self) -> Adder | None:
        """Reduction in the packet switches, or None if they do not add."""
        return None

    @property
    def optics(self) -> OpticalHop:
        """Permitted loss of a link between two modules."""
        return load_hop(OPTICS)

    @cached_property
    def traits(self) -> Traits:
        """Communication library of the nodes, and reduction in the switches if there is one."""
        return Traits(
            scale_up=self.scale_up,
            network_adder=self.network_adder,
            card_bytes_per_s=self.nic.bandwidth_bytes_per_s,
            idle_numbers=MappingProxyType(self.idle_numbers),
        )

    @property
    def line_bytes_per_s(self) -> float:
        """Line rate of a link between switches, one way."""
        return min(self.switch.bandwidth_bytes_per_s, self.transceiver.bandwidth_bytes_per_s)

    @property
    def spread_efficiency(self) -> float:
        """Share of the total rate of parallel links that flows reach with this spreading, 0 to 1."""
        return self.switch.adaptive_efficiency if self.spread is Spreading.ADAPTIVE else 1.0

    @property
    def trunk_bytes_per_s(self) -> float:
        """Rate of a long transfer on a link between switches, one way."""
        return self.line_bytes_per_s * self.nic.efficiency * self.spread_efficiency

    @property
    def port_bytes_per_s(self) -> float:
        """Rate of a long transfer through a card, one way."""
        return min(self.line_bytes_per_s, self.nic.bandwidth_bytes_per_s) * self.nic.efficiency

    @property
    def trunk_latency_s(self) -> float:
        """Latency of a link between switches with the switch at its end."""
        return self.transceiver.link_latency_s + self.switch.latency_s

    @cached_property
    def optical_budget(self) -> HopBudget:
        """Loss budget of every link outside the nodes.

        Raises
        ------
        LinkError
            If too little light arrives.
        """
        return self.optics.closed(f"two ports of '{self.name}'", self.transceiver.fibre_m)

    @cached_property
    def wiring(self) -> Wiring:
        """Links in nodes, from cards to switches, and between switches."""
        total = self.endpoints
        every = np.arange(total)
        first = total + self.nodes
        edges = first + self.edges
        card_s = self.nic.latency_s + self.transceiver.link_latency_s
        port = self.port_bytes_per_s
        return joined(
            [
                node_links(self.scale_up, total, total),
                bundle(every, edges, rate_bytes_per_s=port, latency_s=card_s + self.switch.latency_s),
                bundle(edges, every, rate_bytes_per_s=port, latency_s=card_s),
                self.trunk_wiring(first),
            ]
        )

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links from sources to other endpoints, shape [F, H], padded with `NO_LINK`."""
        return self.by_way_of(self.trunk_paths(sources, destinations), sources, destinations)

    def by_way_of(
        self, trunks: list[np.ndarray], sources: np.ndarray, destinations: np.ndarray
    ) -> np.ndarray:
        """Return the paths whose links between switches are given as `trunk_paths` returns them."""
        total = self.endpoints
        off_node = self.scale_up.node_of(sources) != self.scale_up.node_of(destinations)
        senders = np.where(off_node, self.senders(sources, destinations), destinations)
        crosses = senders != sources
        forwarded = off_node & crosses
        between = [np.where(off_node & (links != NO_LINK), links + 4 * total, NO_LINK) for links in trunks]
        return packed(
            [
                np.where(crosses, sources, 2 * total + senders),
                np.where(forwarded, total + senders, NO_LINK),
                np.where(forwarded, 2 * total + senders, NO_LINK),
                *between,
                np.where(off_node, 3 * total, total) + destinations,
            ]
        )

    def senders(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the endpoint of each source's node whose card sends the flow to another node, shape [F]."""
        return sources

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        return {
            "scale-up": self.scale_up.item(self.endpoints),
            "nic": self.nic.item(self.endpoints),
            "transceiver": self.transceiver.item(2 * (self.endpoints + self.trunks)),
            "packet switch": self.switch.item(self.switches),
        }

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once; switches and modules count as static."""
        off_node = self.scale_up.off_node(flows)
        senders = self.senders(flows.sources, flows.destinations)
        inside = np.where(off_node, senders, flows.destinations) != flows.sources
        inside_bytes = flows.moved_bytes(inside)
        outside_bytes = flows.moved_bytes(off_node)
        return self.scale_up.transfer_energy_j(inside_bytes) + self.nic.transfer_energy_j(outside_bytes)


@dataclass(frozen=True, kw_only=True)
class MultipathFabric(PacketFabric):
    """A packet fabric with several equally short paths, over which flows are spread."""

    spreading: Spreading | None = None
    """Spreading of flows over equally short paths; None for the default of the switches' vendor."""
    queue_pairs: int | None = None
    """Queue pairs of a flow, each hashed to a path of its own; None for the vendor's default."""
    hash_seed: int = 1
    """Key of the hash of flows; a choice."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "hash_seed")
        if self.queue_pairs is not None:
            check_range(self, "queue_pairs", low=1)
            check_whole(self, "queue_pairs")

    @property
    def spread(self) -> Spreading:
        """Spreading of flows over equally short paths."""
        return self.switch.shipped_spreading if self.spreading is None else self.spreading

    @property
    def flow_queue_pairs(self) -> int:
        """Queue pairs of a flow: `queue_pairs`, or by default as many as the switches' vendor sets."""
        return self.switch.shipped_queue_pairs if self.queue_pairs is None else self.queue_pairs

    @cached_property
    def views(self) -> tuple[Self, ...]:
        """One fabric for each queue pair of a flow, with the same links and a different hash seed."""
        if self.spread is not Spreading.HASHED or self.flow_queue_pairs == 1:
            return (self,)
        seeds = (mix_key(self.hash_seed, pair) for pair in range(self.flow_queue_pairs))
        return tuple(replace(self, queue_pairs=1, hash_seed=seed) for seed in seeds)

    @property
    def idle_numbers(self) -> dict[str, str]:
        """Numbers of its parts that change nothing, each with the reason."""
        idle: dict[str, str] = {}
        if self.spread is not Spreading.HASHED:
            idle = dict.fromkeys(
                ("queue_pairs", "shipped_queue_pairs", "hash_seed"),
                "it is for hashed flows: also set spreading=hashed",
            )
        elif self.queue_pairs is not None:
            idle["shipped_queue_pairs"] = "queue_pairs is set"
        if self.spreading is not None:
            idle["shipped_spreading"] = "spreading is set"
        if self.spread is not Spreading.ADAPTIVE:
            idle["adaptive_efficiency"] = "it is for adaptive routing: also set spreading=adaptive"
        return idle


class Reduction(StrEnum):
    """Place of the additions in collectives between nodes."""

    ENDPOINTS = "endpoints"
    """In the accelerators."""
    SWITCHES = "switches"
    """In the packet switches, in transit (SHARP)."""


@dataclass(frozen=True, kw_only=True)
class AddingFabric(PacketFabric):
    """A packet fabric with a choice of in-network reduction and of the optical link budget."""

    hop: OpticalHop = field(default_factory=lambda: load_hop(OPTICS))
    """Permitted loss of a link between two modules."""
    reduction: Reduction = Reduction.ENDPOINTS
    """Place of the additions in collectives between nodes."""
    adder: Adder = field(default_factory=lambda: load_adder("sharp"))
    """Adder in the switches, used if `reduction` is in the switches."""

    @property
    def optics(self) -> OpticalHop:
        """Permitted loss of a link between two modules."""
        return self.hop

    @property
    def network_adder(self) -> Adder | None:
        """Reduction in the packet switches, or None if they do not add."""
        return self.adder if self.reduction is Reduction.SWITCHES else None


@dataclass(frozen=True, kw_only=True)
class RailFabric(MultipathFabric):
    """Nodes joined by packet switches, one network card per accelerator, each rail on its own leaf switches.

    Notes
    -----
    Accelerator e is in node ``e // size`` on rail ``e % size``. If all fit one switch, there is one; else
    a leaf connects as many whole rails as it has downlinks for, or one rail of as many nodes, and spines join
    the leaves (with a third and a fourth level if there are more leaves than ports of a spine). If flows are
    sprayed or routed adaptively, the uplinks of a leaf are one pool with the capacity of its downlinks over
    `oversubscription`. Else they are separate, one to each spine, and the levels above the first are
    non-blocking spines.

    Links between switches: leaf to spines [leaves, P], spines to leaf [leaves, P] for P pools.
    """

    name: str = "packet rails"
    """Name shown in tables and traces."""
    oversubscription: float = 1.0
    """Downlink over uplink capacity of a leaf, at least 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "oversubscription", low=1.0)
        limit = self._most_leaves(MOST_LEVELS)
        if self.leaves > limit:
            msg = (
                f"{self.endpoints} endpoints need {self.leaves} leaves, and {MOST_LEVELS} levels of radix "
                f"{self.switch.radix} take {limit}; try a switch of larger radix"
            )
            raise ParameterError(msg)

    def _most_leaves(self, levels: int) -> int:
        """Return the most leaves of `levels` levels; all but the highest have half their ports upwards."""
        return 1 if levels == 1 else self.switch.radix * (self.switch.radix // 2) ** (levels - 2)

    @property
    def downlinks(self) -> int:
        """Accelerators that one leaf can take."""
        if self.endpoints <= self.switch.radix:
            return self.switch.radix
        share = self.oversubscription / (1.0 + self.oversubscription)
        return max(1, int(self.switch.radix * share))

    @cached_property
    def edges(self) -> np.ndarray:
        """Leaf of each endpoint, shape [E]."""
        every = np.arange(self.endpoints)
        if self.endpoints <= self.switch.radix:
            return np.zeros_like(every)
        rail, node = self.scale_up.rail_of(every), self.scale_up.node_of(every)
        if self.nodes <= self.downlinks:
            return rail // (self.downlinks // self.nodes)
        return rail * math.ceil(self.nodes / self.downlinks) + node // self.downlinks

    @cached_property
    def uplink_pools(self) -> np.ndarray | None:
        """Leaf of each endpoint if the uplinks of a leaf are one pool and all leaves are alike, else None."""
        uneven = np.ptp(np.bincount(self.edges)) > 0
        return None if self.spread.apart or uneven else self.edges

    @property
    def leaves(self) -> int:
        """Leaf switches."""
        return int(self.edges.max()) + 1

    @property
    def levels(self) -> int:
        """Levels of switches, one to `MOST_LEVELS`."""
        return next(count for count in range(1, MOST_LEVELS + 1) if self.leaves <= self._most_leaves(count))

    @cached_property
    def uplinks(self) -> int:
        """Links from all leaves upwards."""
        if self.levels == 1:
            return 0
        return int(np.ceil(np.bincount(self.edges) / self.oversubscription).sum())

    @property
    def switches(self) -> int:
        """Switches of all levels."""
        radix = self.switch.radix
        middle = max(0, self.levels - 2) * math.ceil(2 * self.uplinks / radix)
        return self.leaves + middle + math.ceil(self.uplinks / radix)

    @property
    def trunks(self) -> int:
        """Links between switches; both directions count as one."""
        return self.uplinks * (self.levels - 1)

    @cached_property
    def pools(self) -> int:
        """Separate spines; one if a flow uses all at once."""
        if not self.spread.apart:
            return 1
        return math.ceil(int(np.bincount(self.edges).max()) / self.oversubscription)

    def trunk_wiring(self, first_vertex: int) -> Wiring:
        """Return links from leaves to spines and back, leaves from vertex `first_vertex` on."""
        above = self.levels - 1
        pools = self.pools if above else 0
        leaves = first_vertex + np.repeat(np.arange(self.leaves), pools)
        spines = first_vertex + self.leaves + np.tile(np.arange(pools), self.leaves)
        share = self.spread_efficiency / (self.oversubscription * self.pools)
        pool = self.port_bytes_per_s * share * np.repeat(np.bincount(self.edges), pools)
        climb_s = above * (self.switch.latency_s + self.transceiver.link_latency_s)
        return both_ways(leaves, spines, rate_bytes_per_s=pool, latency_s=climb_s)

    def trunk_paths(self, sources: np.ndarray, destinations: np.ndarray) -> list[np.ndarray]:
        """Return the links to a spine and from it."""
        source_leaf, target_leaf = self.edges[sources], self.edges[destinations]
        spine = self._spine(sources, destinations)
        uplinks = source_leaf * self.pools + spine
        downlinks = (self.leaves + target_leaf) * self.pools + spine
        return [np.where(source_leaf != target_leaf, links, NO_LINK) for links in (uplinks, downlinks)]

    def _spine(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the spine that flows take, shape [F]."""
        if self.spread is Spreading.HASHED:
            return hashed(self.hash_seed, sources, destinations) % self.pools
        return self.scale_up.node_of(destinations) % self.pools


@dataclass(frozen=True, kw_only=True)
class Wires(Fabric):
    """Endpoints with one port each into a switch that never blocks, or with a link to every other endpoint.

    Notes
    -----
    Links in this order: switched, endpoint to switch [E] and switch to endpoint [E]; fully connected, from
    endpoint s to endpoint d at s E + d [E^2] (those from an endpoint to itself are never used). A fat-tree
    without oversubscription whose flows are spread perfectly is the former.
    """

    name: str = "wires"
    """Name shown in tables and traces."""
    endpoints: int
    """Accelerators."""
    link_bytes_per_s: float
    """Rate of a link, one way."""
    latency_s: float
    """Latency of a whole path, first byte in to first byte out."""
    direct: bool = False
    """Whether every pair has a link of its own."""

    def __post_init__(self) -> None:
        check_positive(self, "endpoints", "link_bytes_per_s")
        check_range(self, "latency_s")
        if self.endpoints != int(self.endpoints):
            msg = f"Wires '{self.name}': endpoints must be whole; got {self.endpoints}"
            raise ParameterError(msg)

    def graph(self, circuits: None) -> LinkGraph:
        """Return the links, which never change."""
        return self._graph

    @cached_property
    def _graph(self) -> LinkGraph:
        links = self.endpoints**2 if self.direct else 2 * self.endpoints
        hops = 1 if self.direct else 2
        return LinkGraph(
            capacity_bytes_per_s=np.full(links, self.link_bytes_per_s),
            latency_s=np.full(links, self.latency_s / hops),
        )

    def route(self, circuits: None, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, 1] or [F, 2]; a flow to itself has none."""
        source, destination = flows.sources, flows.destinations
        if self.direct:
            links = np.stack([source * self.endpoints + destination], axis=1)
        else:
            links = np.stack([source, self.endpoints + destination], axis=1)
        links[source == destination] = NO_LINK
        return links

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return no energy: links are bare."""
        return 0.0
