"""Optical switches that turn in a fixed round, and traffic that waits for them or goes by way of others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from heliograph.bundles import Loads
from heliograph.checks import check_range
from heliograph.errors import ParameterError
from heliograph.graph_fabric import NO_LINK, GraphFabric, Wiring, bundle, joined, packed
from heliograph.interfaces import Flows
from heliograph.scale_up import BillItem, Nic, ScaleUp, load_nic
from optical.relays import NOBODY, Relays, relay_always, relay_surplus
from optical.rounds import Rotation
from optical.switches import LaneBudget, LaneOptics, OpticalSwitch, lane_budget, load_optics, load_switch


class Relaying(StrEnum):
    """Which bytes go by way of a relay."""

    SURPLUS = "surplus"
    """What direct circuits cannot take (RotorLB): uniform traffic goes direct, a permutation over relays."""
    ALWAYS = "always"
    """Every byte first goes to an end drawn at random (Valiant): any traffic becomes uniform."""


@dataclass(frozen=True, kw_only=True)
class RotorFabric(GraphFabric):
    """Accelerators whose optical lanes meet every other of their rail once in a round.

    Notes
    -----
    Accelerator e stands in node ``e // size`` on rail ``e % size``, as on circuit-switched rails; here each
    rail's lanes go through matchings in a fixed order and nobody asks for circuits. Traffic is fluid: rates
    are means over a round, and a transfer pays the mean wait for its circuit, half a round. That is right for
    transfers of many rounds; one that is shorter than a slot may finish within it.

    Flows that start together run at one rate, part of it direct and part over relays (`optical.relays`); a
    relay's circuits count as taken, in and out. What other traffic would leave idle is not searched for.

    Transfers below `bulk_bytes` do not wait: they cross several lanes at once lit, an expander (Opera). Each
    takes capacity at every hop.

    Links, in this order: accelerator to rail [E], rail to accelerator [E], accelerator to node switch [E],
    node switch to accelerator [E].

    References
    ----------
    Mellette et al., "RotorNet", SIGCOMM 2017; Mellette et al., Opera, NSDI 2020; Ballani et al., "Sirius",
    SIGCOMM 2020 (wavelengths through gratings, Valiant balancing).
    """

    name: str = "rotor"
    """Name shown in tables and traces."""
    endpoints: int
    """Accelerators."""
    scale_up: ScaleUp
    """The domain inside a node."""
    nic: Nic = field(default_factory=lambda: load_nic("connectx-7"))
    """Network card of each accelerator; its rate is shared by the lanes."""
    switch: OpticalSwitch = field(default_factory=lambda: load_switch("rotor"))
    """What turns: a switch, or lasers before a grating."""
    optics: LaneOptics = field(default_factory=lambda: load_optics("lane-100g"))
    """Transmitter and receiver of each lane."""
    lanes: int = 8
    """Optical lanes of each accelerator."""
    hold_ratio: float = 10.0
    """Slot, its dark time included, over the dark time, above 1; dimensionless."""
    relaying: Relaying = Relaying.SURPLUS
    """Which bytes go by way of a relay."""
    bulk_bytes: float = 0.0
    """Size from which a transfer waits for its circuits; smaller ones take several hops at once."""

    def __post_init__(self) -> None:
        check_range(self, "endpoints", "lanes", low=1)
        check_range(self, "bulk_bytes")
        _ = self.budget, self.rotation
        least = least_lanes(self.switch, self.ends)
        if self.lanes < least:
            msg = (
                f"lanes ({self.lanes}) of '{self.name}' must be at least {least}: {self.ends} ends of a rail "
                f"are more than the {reach(self.switch)} that one lane meets through '{self.switch.name}'; "
                "take more lanes, more positions or larger nodes"
            )
            raise ParameterError(msg)
        if self.bulk_bytes > 0.0:
            _ = self.rotation.shifts

    @property
    def ends(self) -> int:
        """Accelerators of one rail: one in each node."""
        return self.scale_up.nodes(self.endpoints)

    @property
    def node_size(self) -> int:
        """Endpoints that share a node, consecutive numbers."""
        return min(self.scale_up.size, self.endpoints)

    @cached_property
    def rotation(self) -> Rotation:
        """The round of matchings."""
        return Rotation(
            ends=self.ends, lanes=self.lanes, dark_s=self.switch.step_s, hold_ratio=self.hold_ratio
        )

    @cached_property
    def budget(self) -> LaneBudget:
        """Power budget of a lane: light passes one switch."""
        return lane_budget(self.optics, self.switch, 1)

    @property
    def lane_bytes_per_s(self) -> float:
        """Rate of one lane that a long transfer reaches while it is lit, one way."""
        share = self.nic.bandwidth_bytes_per_s / self.lanes
        return min(self.optics.bandwidth_bytes_per_s, share) * self.nic.efficiency

    @property
    def port_bytes_per_s(self) -> float:
        """Rate of an accelerator into its rail, on average over a round."""
        return self.lane_bytes_per_s * self.rotation.port_share

    @property
    def hop_latency_s(self) -> float:
        """Time over one lane that is lit: two cards, two transceivers and the fibre."""
        return 2 * self.nic.latency_s + self.optics.link_latency_s

    @cached_property
    def wiring(self) -> Wiring:
        """Links into rails and nodes and out of them; the wait stands at the way into the rail."""
        every = np.arange(self.endpoints)
        rails = self.endpoints + every % self.node_size
        nodes = self.endpoints + self.node_size + self.scale_up.node_of(every)
        port = self.port_bytes_per_s
        inside = {
            "rate_bytes_per_s": self.scale_up.capacity_bytes_per_s,
            "latency_s": self.scale_up.latency_s / 2,
        }
        first_s = self.hop_latency_s + self.rotation.wait_s
        return joined(
            [
                bundle(every, rails, rate_bytes_per_s=port, latency_s=first_s),
                bundle(rails, every, rate_bytes_per_s=port, latency_s=0.0),
                bundle(every, nodes, **inside),
                bundle(nodes, every, **inside),
            ]
        )

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links of direct ways, shape [F, 4], padded; `loads` adds what relays carry."""
        total = self.endpoints
        carriers = self._carriers(sources, destinations)
        off_node = self.scale_up.node_of(sources) != self.scale_up.node_of(destinations)
        inside = ~off_node | (carriers != sources)
        return packed(
            [
                np.where(inside, 2 * total + sources, NO_LINK),
                np.where(inside, 3 * total + np.where(off_node, carriers, destinations), NO_LINK),
                np.where(off_node, carriers, NO_LINK),
                np.where(off_node, total + destinations, NO_LINK),
            ]
        )

    def loads(self, circuits: None, flows: Flows) -> Loads:
        """Return what flows of equal rate take of every link, their relays' included."""
        return self._spread(flows, self.route(circuits, flows), NOBODY)

    def loads_around(self, circuits: None, flows: Flows, failed: np.ndarray) -> Loads:
        """Return the same past failed links; ends whose port is down relay nothing."""
        ports = failed[failed < 2 * self.endpoints] % self.endpoints
        return self._spread(flows, self.around(circuits, flows, failed), np.unique(ports))

    def _spread(self, flows: Flows, routes: np.ndarray, barred: np.ndarray) -> Loads:
        """Return what flows take of every link on some routes, relays other than the barred ends included."""
        crossed = routes >= 0
        graph, total = self.graph(None), self.endpoints
        each = np.ones(len(routes)) if flows.weights is None else flows.weights
        carried = np.broadcast_to(each[:, None], routes.shape)[crossed]
        usage = np.bincount(routes[crossed], weights=carried, minlength=graph.latency_s.size)
        latency_s = np.where(crossed, graph.latency_s[np.where(crossed, routes, 0)], 0.0).sum(axis=1)
        off_node = self.scale_up.off_node(flows)
        if off_node.any():
            entered, left = (
                routes[crossed & (routes < total)],
                routes[(routes >= total) & (routes < 2 * total)],
            )
            found = self._relays(replace(flows, sources=entered, destinations=left - total), barred)
            if self._small(flows):
                hops = self.rotation.mean_hops
                usage[: 2 * total] += np.tile((hops - 1.0) * found.carried, 2)
                more_s = self.hop_latency_s * (self.rotation.most_hops - 1) - self.rotation.wait_s
            else:
                usage[: 2 * total] += np.tile(found.relayed_share * found.carried, 2)
                # Where circuits are full before ports are, what is left of the ports is of no use.
                usage[: 2 * total] *= (self.ends - 1) / found.rate / usage[: 2 * total].max()
                more_s = self.hop_latency_s * (found.relayed_share > 0.0)
            latency_s = np.where(off_node, latency_s + more_s, latency_s)
        links = np.flatnonzero(usage)
        return Loads(links=links, usage=usage[links], latency_s=float(latency_s.max(initial=0.0)))

    def _small(self, flows: Flows) -> bool:
        """Return whether flows cross several lanes at once instead of waiting."""
        return flows.size_bytes < self.bulk_bytes and self.rotation.turns

    def _relays(self, flows: Flows, barred: np.ndarray = NOBODY) -> Relays:
        """Return how flows that leave their nodes share the circuits; `carried` by endpoint, shape [E]."""
        off_node = self.scale_up.off_node(flows)
        destinations = flows.destinations[off_node]
        sources = self._carriers(flows.sources, flows.destinations)[off_node]
        rails = self.scale_up.rail_of(destinations)
        always = self.relaying is Relaying.ALWAYS or self._small(flows)
        carried = np.zeros(self.endpoints)
        seen: dict[bytes, Relays] = {}
        each = np.ones(len(destinations)) if flows.weights is None else flows.weights[off_node]
        for rail in np.unique(rails):
            here = rails == rail
            count = np.zeros((self.ends, self.ends))
            np.add.at(
                count,
                (self.scale_up.node_of(sources[here]), self.scale_up.node_of(destinations[here])),
                each[here],
            )
            dead = self.scale_up.node_of(barred[self.scale_up.rail_of(barred) == rail])
            key = count.tobytes() + dead.tobytes()
            if key not in seen:
                seen[key] = relay_always(count, dead) if always else relay_surplus(count, dead)
            carried[rail :: self.node_size] = seen[key].carried
        least = min(seen.values(), key=lambda one: one.rate)
        direct = min(one.direct for one in seen.values())
        return Relays(rate=least.rate, direct=min(direct, least.rate), carried=carried)

    def _carriers(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the endpoint in the source's node that stands on the destination's rail, shape [F]."""
        return self.scale_up.node_of(sources) * self.scale_up.size + self.scale_up.rail_of(destinations)

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        lane_w = self.optics.electronics_w + self.budget.laser_w
        turn_w = self.switch.move_energy_j / self.rotation.slot_s if self.rotation.slot_s > 0.0 else 0.0
        lanes = self.endpoints * self.lanes
        ports = self.switch.usable_ports
        planes = self.node_size * self.lanes
        sharing = max(1, ports // self.ends)
        return {
            "scale-up": BillItem(
                count=self.endpoints, w_each=self.scale_up.static_w, usd_each=self.scale_up.price_usd
            ),
            "nic": BillItem(count=self.endpoints, w_each=self.nic.static_w, usd_each=self.nic.price_usd),
            "optical lane": BillItem(
                count=lanes,
                w_each=lane_w,
                usd_each=self.optics.price_usd,
                fibre_ends=self.optics.fibres,
                fibre_m=self.optics.fibres * self.optics.fibre_m / 2,
            ),
            "turning": BillItem(count=lanes, w_each=turn_w, usd_each=0.0),
            "optical switch": BillItem(
                count=-(-planes // sharing) * -(-self.ends // ports),
                w_each=self.switch.static_w,
                usd_each=self.switch.ports * self.switch.port_price_usd,
            ),
        }

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once; each hop passes two cards."""
        off_node = self.scale_up.off_node(flows)
        inside = (flows.sources != flows.destinations) & (
            ~off_node | (self._carriers(flows.sources, flows.destinations) != flows.sources)
        )
        hops = 1.0
        if off_node.any():
            hops = self.rotation.mean_hops if self._small(flows) else 1.0 + self._relays(flows).relayed_share
        outside_bytes = flows.moved_bytes(off_node)
        inside_bytes = flows.moved_bytes(inside)
        inside_j = self.scale_up.transfer_energy_j(inside_bytes)
        return inside_j + self.nic.transfer_energy_j(outside_bytes * hops)


def reach(switch: OpticalSwitch) -> int:
    """Return how many ends one lane meets through a switch: its settings, or all of its ports."""
    return switch.positions if switch.positions > 1 else switch.usable_ports


def least_lanes(switch: OpticalSwitch, ends: int) -> int:
    """Return how many lanes an end needs to meet all others."""
    return -(-ends // reach(switch))
