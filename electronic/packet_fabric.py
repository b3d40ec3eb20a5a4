"""What packet fabrics behind network cards share: ports, rates, latencies, parts, and light that arrives."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Protocol

import numpy as np

from electronic.devices import PacketSwitch, Transceiver
from heliograph.checks import check_range
from heliograph.graph_fabric import NO_LINK, GraphFabric, Wiring, bundle, joined, packed
from heliograph.interfaces import Flows
from heliograph.optical_hop import HopBudget, OpticalHop
from heliograph.scale_up import Adder, BillItem, Nic, ScaleUp


class Reduction(StrEnum):
    """Who adds in collectives that leave the nodes."""

    ENDPOINTS = "endpoints"
    """Accelerators."""
    SWITCHES = "switches"
    """Packet switches, on the way (SHARP)."""


class PacketFabric(GraphFabric, Protocol):
    """Nodes with one network card per accelerator, joined by packet switches in some topology.

    Notes
    -----
    A topology says which switch each card is at, the links between switches, and the way over them.
    Vertices: endpoints, node switches, packet switches. Links, in this order: accelerator to node switch
    [E], node switch to accelerator [E], card to switch [E], switch to card [E], links between switches.
    """

    name: str
    endpoints: int
    scale_up: ScaleUp
    nic: Nic
    switch: PacketSwitch
    transceiver: Transceiver
    hop: OpticalHop
    reduction: Reduction
    adder: Adder

    @cached_property
    def edges(self) -> np.ndarray:
        """Packet switch of each endpoint's card, counted from 0, shape [E]."""
        ...

    def trunk_wiring(self, first_vertex: int) -> Wiring:
        """Return the links between packet switches, of which the first is vertex `first_vertex`."""
        ...

    def trunk_paths(self, sources: np.ndarray, destinations: np.ndarray) -> list[np.ndarray]:
        """Return the links between switches at each place of the way, as `trunk_wiring` numbers them."""
        ...

    @property
    def switches(self) -> int:
        """Packet switches."""
        ...

    @property
    def trunks(self) -> int:
        """Links between packet switches, both ways one."""
        ...

    @property
    def nodes(self) -> int:
        """Nodes."""
        return self.scale_up.nodes(self.endpoints)

    @property
    def node_size(self) -> int:
        """Endpoints that share a node, consecutive numbers."""
        return min(self.scale_up.size, self.endpoints)

    @property
    def network_adder(self) -> Adder | None:
        """How packet switches add, or None if they do not."""
        return self.adder if self.reduction is Reduction.SWITCHES else None

    @property
    def trunk_bytes_per_s(self) -> float:
        """Rate of a link between switches that a long transfer reaches, one way."""
        line = min(self.switch.bandwidth_bytes_per_s, self.transceiver.bandwidth_bytes_per_s)
        return line * self.nic.efficiency

    @property
    def port_bytes_per_s(self) -> float:
        """Rate of a card that a long transfer reaches, one way."""
        return min(self.trunk_bytes_per_s, self.nic.bandwidth_bytes_per_s * self.nic.efficiency)

    @property
    def trunk_latency_s(self) -> float:
        """Latency of a link between switches with the switch at its end."""
        return self.transceiver.link_latency_s + self.switch.latency_s

    @cached_property
    def optical_budget(self) -> HopBudget:
        """Where the light of every link outside the nodes goes.

        Raises
        ------
        LinkError
            If it does not arrive.
        """
        return self.hop.closed(f"two ports of '{self.name}'", self.transceiver.fibre_m)

    def check(self) -> None:
        """Check what every packet fabric must keep: whole nodes, and light that arrives.

        Raises
        ------
        ParameterError
            If nodes would be incomplete.
        LinkError
            If the light of a link does not arrive.
        """
        check_range(self, "endpoints", low=1)
        self.scale_up.nodes(self.endpoints)
        _ = self.optical_budget

    @cached_property
    def wiring(self) -> Wiring:
        """Links in nodes, from cards to switches, and between switches."""
        total = self.endpoints
        every = np.arange(total)
        domains = total + self.scale_up.node_of(every)
        first = total + self.nodes
        edges = first + self.edges
        inside = {
            "rate_bytes_per_s": self.scale_up.capacity_bytes_per_s,
            "latency_s": self.scale_up.latency_s / 2,
        }
        card_s = self.nic.latency_s + self.transceiver.link_latency_s
        port = self.port_bytes_per_s
        return joined(
            [
                bundle(every, domains, **inside),
                bundle(domains, every, **inside),
                bundle(every, edges, rate_bytes_per_s=port, latency_s=card_s + self.switch.latency_s),
                bundle(edges, every, rate_bytes_per_s=port, latency_s=card_s),
                self.trunk_wiring(first),
            ]
        )

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links from sources to other endpoints, shape [F, H], padded with `NO_LINK`."""
        total = self.endpoints
        off_node = self.scale_up.node_of(sources) != self.scale_up.node_of(destinations)
        between = [
            np.where(off_node & (links != NO_LINK), links + 4 * total, NO_LINK)
            for links in self.trunk_paths(sources, destinations)
        ]
        first = np.where(off_node, 2 * total + sources, sources)
        last = np.where(off_node, 3 * total + destinations, total + destinations)
        return packed([first, *between, last])

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        module, radix = self.transceiver, self.switch.radix
        switch_w, switch_usd = radix * self.switch.port_w, radix * self.switch.port_price_usd
        modules = 2 * (self.endpoints + self.trunks)
        return {
            "scale-up": BillItem(
                count=self.endpoints, w_each=self.scale_up.static_w, usd_each=self.scale_up.price_usd
            ),
            "nic": BillItem(count=self.endpoints, w_each=self.nic.static_w, usd_each=self.nic.price_usd),
            "transceiver": module.item(modules),
            "packet switch": BillItem(count=self.switches, w_each=switch_w, usd_each=switch_usd),
        }

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once; switches and modules count as static."""
        off_node = self.scale_up.off_node(flows)
        inside = ~off_node & (flows.sources != flows.destinations)
        inside_bytes = flows.moved_bytes(inside)
        outside_bytes = flows.moved_bytes(off_node)
        return self.scale_up.transfer_energy_j(inside_bytes) + self.nic.transfer_energy_j(outside_bytes)
