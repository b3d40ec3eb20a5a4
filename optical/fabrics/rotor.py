"""Rotor switches: circuits follow a fixed round of matchings; traffic waits for its own or takes relays.

- `Rotation` is the round: which ends are joined when, and the shortest paths over the lanes lit at an
  instant.
- `relay_surplus` and `relay_always` share traffic between direct circuits and relays, as mean rates over a
  round. The unit of rates is that of a direct circuit, from an end to one other, so that an end sends at most
  N - 1.
- `lit_s`, `round_bytes` and `completion_s` follow a round slot by slot, where a packet is sent only if it
  ends before its circuit does.
- `RotorFabric` puts these together as a fabric.

References
----------
Mellette et al., "RotorNet", SIGCOMM 2017, section 4; Opera, NSDI 2020, section 4: turns of the lanes are
staggered.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Annotated

import numpy as np

from optical.fabrics.switches import (
    LaneBudget,
    LaneOptics,
    OpticalSwitch,
    lane_budget,
    load_optics,
    load_switch,
)
from simulator.errors import Bounds, Checked, Count, ParameterError, check_choices, check_range
from simulator.fabric import Loads, NodeFabric, Traits, route_loads
from simulator.interfaces import Flows, Wiring
from simulator.topology.graphs import NO_LINK, GraphFabric, bundle, joined, node_links, packed
from simulator.topology.scale_up import BillItem, Nic, ScaleUp, load_nic

NOBODY = np.empty(0, dtype=np.int64)
"""Empty array of ends."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Relays:
    """Division of flows of equal rate between direct circuits and relays, with no other traffic."""

    rate: float
    """Rate of each flow, over that of a direct circuit."""
    direct: float
    """Part of that rate that goes over direct circuits, over that of a direct circuit."""
    carried: np.ndarray
    """Flows that each end relays, if all of every flow went over relays, shape [N]."""

    @property
    def relayed_share(self) -> float:
        """Share of the bytes that cross two circuits."""
        return 1.0 - self.direct / self.rate


def relay_surplus(flows: np.ndarray, barred: np.ndarray = NOBODY) -> Relays:
    """Return the rates of flows that fill direct circuits first, and send the rest over idle ones.

    Parameters
    ----------
    flows : numpy.ndarray
        Flows from each end to each other, shape [N, N], diagonal zero, at least one.
    barred : numpy.ndarray
        Ends that relay nothing, shape [n]; none of them sends or receives.

    Notes
    -----
    Relays of s -> d are all ends i for which neither s -> i nor i -> d has flows of its own; they share its
    surplus evenly. A circuit carries first hops of flows from its source and second hops of flows to its
    destination; the fullest one limits all flows. These rates are feasible; RotorLB may find higher ones.

    References
    ----------
    Mellette et al., "RotorNet", SIGCOMM 2017, section 4 (RotorLB: direct first, then indirect).
    """
    direct = 1.0 / float(flows.max())
    idle = (flows == 0).astype(float)
    np.fill_diagonal(idle, 0.0)
    idle[barred] = idle[:, barred] = 0.0
    relays = idle @ idle
    if (relays[flows > 0] == 0.0).any():
        return Relays(rate=direct, direct=direct, carried=np.zeros(len(flows)))
    per_relay = np.divide(flows, relays, out=np.zeros(flows.shape), where=flows > 0)
    first, second = (per_relay @ idle.T) * idle, (idle.T @ per_relay) * idle  # hops over each circuit
    return Relays(rate=direct + 1.0 / float((first + second).max()), direct=direct, carried=first.sum(axis=0))


def relay_always(flows: np.ndarray, barred: np.ndarray = NOBODY) -> Relays:
    """Return the rates of flows whose every byte first goes to an end drawn at random, not its source.

    Parameters
    ----------
    flows : numpy.ndarray
        Flows from each end to each other, shape [N, N], diagonal zero, at least one.
    barred : numpy.ndarray
        Ends that relay nothing, shape [n]; none of them sends or receives.

    Notes
    -----
    One byte in N - 1 draws its destination, and then crosses one circuit only.

    References
    ----------
    Ballani et al., "Sirius", SIGCOMM 2020, section 4 (Valiant load balancing).
    """
    ends = len(flows) - len(barred)
    sent, received = flows.sum(axis=1), flows.sum(axis=0)
    crossing = sent[:, None] + received[None, :] - flows
    np.fill_diagonal(crossing, 0.0)
    crossing[barred] = crossing[:, barred] = 0.0
    rate = (ends - 1) / float(crossing.max())
    of_others = np.maximum(flows.sum() - sent - received, 0.0)  # rounding may leave less than zero
    carried = np.zeros(len(flows)) if ends < 3 else of_others / (ends - 2)
    carried[barred] = 0.0
    return Relays(rate=rate, direct=rate / (ends - 1), carried=carried)


SEEDS = 64
"""Random orders of matchings that are tried until all ends are connected at every instant; a choice."""
INSTANTS = 16
"""Instants of a round, evenly spread, at which paths over the lit lanes are counted; a choice."""


@dataclass(frozen=True, kw_only=True)
class Rotation(Checked):
    """Round in which N ends are joined with each other once, over lanes that turn one after the other.

    Notes
    -----
    The matchings are the N - 1 shifts i -> i + k modulo N, k = 1 to N - 1. Each is held by one lane for one
    slot, so a round has ``ceil((N - 1) / lanes)`` slots. If places are left over, the first holds shift 0 and
    the others stay dark. The lanes' turns are staggered evenly over a slot, so that one lane is dark at a
    time. With as many lanes as matchings nothing turns; twice as many hold each matching twice, and so on.

    References
    ----------
    Mellette et al., "RotorNet", SIGCOMM 2017: round robin over matchings; "Expanding across time to deliver
    bandwidth efficiency and low latency" (Opera), NSDI 2020: staggered turns, an expander at each instant.
    """

    ends: Count
    """Ends that meet, N."""
    lanes: Count
    """Lanes of each end."""
    reconfiguration_s: float
    """Time in which a lane that turns carries nothing."""
    hold_ratio: Annotated[float, Bounds(low=1.0, open_low=True)]
    """Slot, its reconfiguration time included, over that time, above 1; dimensionless."""

    @property
    def slots(self) -> int:
        """Slots of a round."""
        return max(1, -(-(self.ends - 1) // self.lanes))

    @property
    def first_shift(self) -> int:
        """Shift held by the first place of a round: 0 if places are left over, else 1."""
        return int(self.lanes * self.slots < self.ends or self.copies > 1)

    @property
    def turns(self) -> bool:
        """Whether lanes turn at all."""
        return self.slots > 1

    @property
    def copies(self) -> int:
        """Lanes that hold each matching at the same time."""
        return 1 if self.turns else max(1, self.lanes // max(1, self.ends - 1))

    @property
    def slot_s(self) -> float:
        """Time from one turn of a lane to the next; zero where none turns."""
        return self.reconfiguration_s * self.hold_ratio if self.turns else 0.0

    @property
    def round_s(self) -> float:
        """Time after which everything repeats."""
        return self.slots * self.slot_s

    @property
    def duty(self) -> float:
        """Share of time in which a lane is lit, 0 to 1."""
        return 1.0 - 1.0 / self.hold_ratio if self.turns else 1.0

    @property
    def wait_s(self) -> float:
        """Mean time until two given ends are joined."""
        return self.round_s / 2

    @property
    def peer_share(self) -> float:
        """Rate from an end straight to one other, over a lane's rate, on average over a round."""
        return self.duty * self.copies / self.slots

    @property
    def port_share(self) -> float:
        """Rate of an end to all others, over a lane's rate, on average over a round."""
        return (self.ends - 1) * self.peer_share

    @cached_property
    def shifts(self) -> np.ndarray:
        """Shift of each lane in each slot, shape [lanes, slots]; 0 for a lane that joins no two ends.

        Raises
        ------
        ParameterError
            If no order of the matchings keeps all ends connected while one lane turns.
        """
        for seed in range(SEEDS):
            order = np.zeros(self.lanes * self.slots, dtype=np.int64)
            matchings = np.arange(self.first_shift, self.ends)
            drawn = np.tile(np.random.default_rng(seed).permutation(matchings), self.copies)[: order.size]
            order[: drawn.size] = drawn
            shifts = order.reshape(self.slots, self.lanes).T
            if all((_hops(self.ends, lit) < self.ends).all() for lit in _instants(shifts)):
                return shifts
        msg = (
            f"{self.lanes} lanes, one of which turns, do not keep {self.ends} ends connected; "
            "take more lanes, or leave small transfers to direct circuits (bulk_bytes=0)"
        )
        raise ParameterError(msg)

    @cached_property
    def hops(self) -> np.ndarray:
        """Lanes on the shortest path to each shift, at instants of a round, shape [instants, N]."""
        return np.stack([_hops(self.ends, lit) for lit in _instants(self.shifts)])

    @property
    def mean_hops(self) -> float:
        """Lanes on the shortest path to another end, on average over ends and instants."""
        return float(self.hops.sum() / (len(self.hops) * max(self.ends - 1, 1)))

    @property
    def most_hops(self) -> int:
        """Lanes on the longest of the shortest paths at any instant."""
        return int(self.hops.max())


def _instants(shifts: np.ndarray) -> list[np.ndarray]:
    """Return the shifts of all lit lanes at each of several instants of a round; at each one lane turns.

    `shifts` are those of each lane in each slot, [lanes, slots].
    """
    lanes, slots = shifts.shape
    if slots == 1:
        return [shifts[:, 0]]
    instants = np.linspace(0, lanes * slots, min(INSTANTS, lanes * slots), endpoint=False).astype(np.int64)
    lit = []
    for instant in instants:
        slot, turning = divmod(int(instant), lanes)
        slot_of_lane = np.where(np.arange(lanes) <= turning, slot, slot - 1)  # later lanes have yet to turn
        lit.append(np.delete(shifts[np.arange(lanes), slot_of_lane], turning))
    return lit


def _hops(ends: int, shifts: np.ndarray) -> np.ndarray:
    """Return the fewest shifts that add up to each number modulo `ends`, [ends]; `ends` if none do."""
    hops = np.full(ends, ends)
    hops[0] = 0
    newest, step = np.zeros(1, dtype=np.int64), 0
    while newest.size:
        step += 1
        reached = np.unique((newest[:, None] + shifts) % ends)
        newest = reached[hops[reached] == ends]
        hops[newest] = step
    return hops


_ROUNDING = 1e-9
"""Share of a packet by which rounding errors may shorten a slot; dimensionless."""


def lit_s(rotation: Rotation) -> np.ndarray:
    """Return begin and end of each matching within a round, in s.

    Parameters
    ----------
    rotation : Rotation
        N ends, their lanes and the round.

    Returns
    -------
    numpy.ndarray
        Begin and end of the matching i -> i + k, by k, shape [N, 2]. Lanes take the matchings in their order;
        where shift 0 has no place, its times are those of shift 1.

    Notes
    -----
    Lane l begins to turn at l / lanes of a slot, and again a slot later; it is dark while it turns.
    """
    place = np.maximum(np.arange(rotation.ends) - rotation.first_shift, 0)
    lane, slot = place % rotation.lanes, place // rotation.lanes
    turn_s = (slot + lane / rotation.lanes) * rotation.slot_s
    return np.stack([turn_s + rotation.reconfiguration_s, turn_s + rotation.slot_s], axis=1)


def round_bytes(rotation: Rotation, rate_bytes_per_s: float, packet_bytes: float) -> np.ndarray:
    """Return the bytes that each matching carries from an end in a round, whole packets only, shape [N]."""
    begin, end = lit_s(rotation).T
    packets = np.floor((end - begin) * rate_bytes_per_s / packet_bytes + _ROUNDING)
    return np.asarray(packets * packet_bytes)


def completion_s(
    rotation: Rotation, size_bytes: float, rate_bytes_per_s: float, packet_bytes: float
) -> np.ndarray:
    """Return the time until an end has sent to each other, if all pairs send the same bytes from time 0.

    Parameters
    ----------
    rotation : Rotation
        N ends, their lanes and the round; lanes must turn.
    size_bytes : float
        Bytes from an end to another, headers included.
    rate_bytes_per_s : float
        Rate of a lane.
    packet_bytes : float
        Packet, header included.

    Returns
    -------
    numpy.ndarray
        Time for the end at each shift from 1 to N - 1, shape [N - 1], s.
    """
    begin, _ = lit_s(rotation)[1:].T
    carried_bytes = round_bytes(rotation, rate_bytes_per_s, packet_bytes)[1:]
    rounds = np.ceil(size_bytes / carried_bytes) - 1.0
    last_s = (size_bytes - rounds * carried_bytes) / rate_bytes_per_s
    return np.asarray(rounds * rotation.round_s + begin + last_s)


class Relaying(StrEnum):
    """Bytes that go over a relay."""

    SURPLUS = "surplus"
    """Those that direct circuits cannot take (RotorLB): uniform traffic goes direct, a permutation mostly
    not."""
    ALWAYS = "always"
    """Every byte first goes to an end drawn at random (Valiant): any traffic becomes uniform."""


@dataclass(frozen=True, kw_only=True)
class RotorFabric(NodeFabric, GraphFabric):
    """Accelerators whose optical lanes join them with every other of their rail once in a round.

    Notes
    -----
    Accelerator e stands in node ``e // size`` on rail ``e % size``, as on circuit-switched rails; here the
    lanes of a rail go through matchings in a fixed order, whatever the traffic. Traffic is fluid: rates are
    means over a round, and a transfer pays the mean wait for its circuit, half a round. That is right for
    transfers of many rounds; one that is shorter than a slot may finish within it.

    Flows that start together run at one rate, part of it direct and part over relays (`Relays`); a relay's
    ports are loaded in and out. Capacity that other traffic would leave idle is not used.

    Transfers below `bulk_bytes` do not wait: they take several hops over lanes that are lit together, which
    form an expander (Opera), and load the ports at every hop.

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
    """Rotor: a switch, or lasers before a grating."""
    optics: LaneOptics = field(default_factory=lambda: load_optics("lane-100g"))
    """Transmitter and receiver of each lane."""
    lanes: int = 8
    """Optical lanes of each accelerator."""
    hold_ratio: float = 10.0
    """Slot, its reconfiguration time included, over that time, above 1; dimensionless."""
    relaying: Relaying = Relaying.SURPLUS
    """Bytes that go over a relay."""
    bulk_bytes: float = 0.0
    """Size from which a transfer waits for its circuits; smaller ones take several hops at once."""

    def __post_init__(self) -> None:
        check_choices(self)
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

    @cached_property
    def traits(self) -> Traits:
        """Library of the nodes; small transfers do not wait for circuits, large ones do."""
        return Traits(
            scale_up=self.scale_up,
            card_bytes_per_s=self.nic.bandwidth_bytes_per_s,
            routes_by_size=True,
            routes_by_company=True,
            idle_numbers={
                **self.optics.idle_numbers,
                "command_s": "circuits turn in a fixed round, on no command",
            },
        )

    @property
    def ends(self) -> int:
        """Accelerators of one rail: one in each node."""
        return self.scale_up.nodes(self.endpoints)

    @cached_property
    def rotation(self) -> Rotation:
        """The round of matchings."""
        return Rotation(
            ends=self.ends, lanes=self.lanes, reconfiguration_s=self.switch.step_s, hold_ratio=self.hold_ratio
        )

    @cached_property
    def budget(self) -> LaneBudget:
        """Power budget of a lane: light passes one switch."""
        return lane_budget(self.optics, self.switch, 1)

    @property
    def lane_bytes_per_s(self) -> float:
        """Rate of one lane that a long transfer reaches while it is lit, one way."""
        return self.optics.shared_bytes_per_s(self.nic, self.lanes)

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
        """Links into rails and nodes and out of them; the link into a rail has the wait for a circuit."""
        every = np.arange(self.endpoints)
        rails = self.endpoints + every % self.node_size
        port = self.port_bytes_per_s
        first_s = self.hop_latency_s + self.rotation.wait_s
        return joined(
            [
                bundle(every, rails, rate_bytes_per_s=port, latency_s=first_s),
                bundle(rails, every, rate_bytes_per_s=port, latency_s=0.0),
                node_links(self.scale_up, self.endpoints, self.endpoints + self.node_size),
            ]
        )

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links of direct paths, shape [F, 4], padded; `loads` adds those of relays."""
        total = self.endpoints
        carriers = self.scale_up.carriers(sources, destinations)
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
        """Return the loads of flows of equal rate on the links, those of relays included."""
        return self._loads_on(flows, self.route(circuits, flows), NOBODY)

    def loads_apart(self, circuits: None, flows: Flows) -> list[Loads]:
        """Return the loads of each of several flows that run together, with its share of relayed traffic.

        Flows below `bulk_bytes` and larger ones are relayed apart; flows without bytes are not relayed.
        """
        sizes = flows.sizes_bytes
        small = (sizes < self.bulk_bytes) & self.rotation.turns
        loads: dict[int, Loads] = {}
        for chosen in (small & (sizes > 0.0), ~small & (sizes > 0.0)):
            largest = float(sizes[chosen].max(initial=0.0))
            part = replace(
                flows.part(chosen), size_bytes=largest, weights=sizes[chosen] / largest if largest else None
            )
            loads |= zip(np.flatnonzero(chosen).tolist(), self._apart(part), strict=True)
        empty = super().loads_apart(circuits, flows.part(sizes == 0.0))
        loads |= zip(np.flatnonzero(sizes == 0.0).tolist(), empty, strict=True)
        return [loads[flow] for flow in range(sizes.size)]

    def _apart(self, flows: Flows) -> list[Loads]:
        """Return the loads of each flow, where all are below `bulk_bytes`, or none is.

        Flows of one rail share its relays: each is given the mean of the relayed load.
        """
        latency_s, ports, size = self.graph(None).latency_s, 2 * self.endpoints, self.node_size
        off_node = self.scale_up.off_node(flows)
        rails = np.where(off_node, self.scale_up.rail_of(flows.destinations), size)  # `size`: inside a node
        loads: dict[int, Loads] = {}
        for rail in np.unique(rails).tolist():
            on_rail = np.flatnonzero(rails == rail)
            part = flows.part(on_rail)
            routes = self.route(None, part)
            relay_load, scale, more_s = np.zeros(ports), 1.0, 0.0
            if rail < size:
                relays = self._relays(part)
                further_hops, more_s = self._beyond_direct(part, relays)
                relayed = np.tile(further_hops * relays.carried, 2)
                direct = route_loads(routes, latency_s, part.weights)
                direct_usage = np.bincount(direct.links, direct.usage, latency_s.size)[:ports]
                scale = self._port_factor(part, relays, direct_usage + relayed)
                relay_load = relayed / float(part.sizes_bytes.sum() / part.size_bytes)
            for flow, route in zip(on_rail.tolist(), routes, strict=True):
                crossed = route[route >= 0]
                usage = np.bincount(crossed, minlength=latency_s.size).astype(float)
                usage[:ports] = scale * (usage[:ports] + relay_load)
                links = np.flatnonzero(usage)
                path_s = float(latency_s[crossed].sum()) + more_s
                loads[flow] = Loads(links=links, usage=usage[links], latency_s=path_s)
        return [loads[flow] for flow in range(off_node.size)]

    def loads_around(self, circuits: None, flows: Flows, failed: np.ndarray) -> Loads:
        """Return the loads with detours past failed links; ends whose port is down relay nothing."""
        ports = failed[failed < 2 * self.endpoints] % self.endpoints
        return self._loads_on(flows, self.around(circuits, flows, failed), np.unique(ports))

    def _loads_on(self, flows: Flows, routes: np.ndarray, barred: np.ndarray) -> Loads:
        """Return the loads of flows on given routes [F, H], and of relays; barred ends [n] relay nothing."""
        crossed = routes >= 0
        graph, total = self.graph(None), self.endpoints
        weights = np.ones(len(routes)) if flows.weights is None else flows.weights
        carried = np.broadcast_to(weights[:, None], routes.shape)[crossed]
        usage = np.bincount(routes[crossed], weights=carried, minlength=graph.latency_s.size)
        latency_s = np.where(crossed, graph.latency_s[np.where(crossed, routes, 0)], 0.0).sum(axis=1)
        off_node = self.scale_up.off_node(flows)
        if weights[off_node].any():
            enters_rail = crossed & (routes < total)
            leaves_rail = (routes >= total) & (routes < 2 * total)
            on_rails = replace(
                flows,
                sources=routes[enters_rail],
                destinations=routes[leaves_rail] - total,
                weights=None if flows.weights is None else weights[enters_rail.any(axis=1)],
            )
            relays = self._relays(on_rails, barred)
            further_hops, more_s = self._beyond_direct(flows, relays)
            ports = usage[: 2 * total] + np.tile(further_hops * relays.carried, 2)
            usage[: 2 * total] = ports * self._port_factor(flows, relays, ports)
            latency_s = np.where(off_node, latency_s + more_s, latency_s)
        links = np.flatnonzero(usage)
        return Loads(links=links, usage=usage[links], latency_s=float(latency_s.max(initial=0.0)))

    def _beyond_direct(self, flows: Flows, relays: Relays) -> tuple[float, float]:
        """Return the mean circuits that flows cross beyond one, and the latency beyond the direct path, s."""
        if self._small(flows):
            longer_s = self.hop_latency_s * (self.rotation.most_hops - 1) - self.rotation.wait_s
            return self.rotation.mean_hops - 1.0, longer_s
        return relays.relayed_share, self.hop_latency_s * (relays.relayed_share > 0.0)

    def _port_factor(self, flows: Flows, relays: Relays, usage: np.ndarray) -> float:
        """Return the factor on the loads of ports with which the busiest port limits flows to `relays.rate`.

        A circuit may be full while others of the port are idle: the port then counts as full.
        """
        return 1.0 if self._small(flows) else (self.ends - 1) / relays.rate / float(usage.max())

    def _small(self, flows: Flows) -> bool:
        """Return whether flows take several hops at once instead of waiting for their circuits."""
        return flows.size_bytes < self.bulk_bytes and self.rotation.turns

    def _relays(self, flows: Flows, barred: np.ndarray = NOBODY) -> Relays:
        """Return the division between circuits and relays of flows that leave their nodes, over all rails.

        The slowest rail limits all; `carried` is by endpoint, shape [E]. Endpoints `barred` [n] relay
        nothing.
        """
        off_node = self.scale_up.off_node(flows)
        destinations = flows.destinations[off_node]
        sources = self.scale_up.carriers(flows.sources, flows.destinations)[off_node]
        rails = self.scale_up.rail_of(destinations)
        always = self.relaying is Relaying.ALWAYS or self._small(flows)
        carried = np.zeros(self.endpoints)
        by_traffic: dict[bytes, Relays] = {}
        weights = np.ones(len(destinations)) if flows.weights is None else flows.weights[off_node]
        for rail in np.unique(rails[weights > 0.0]):
            on_rail = rails == rail
            ends = self.scale_up.node_of(sources[on_rail]), self.scale_up.node_of(destinations[on_rail])
            count = np.zeros((self.ends, self.ends))
            np.add.at(count, ends, weights[on_rail])
            dead = self.scale_up.node_of(barred[self.scale_up.rail_of(barred) == rail])
            key = count.tobytes() + dead.tobytes()
            if key not in by_traffic:
                by_traffic[key] = relay_always(count, dead) if always else relay_surplus(count, dead)
            carried[rail :: self.node_size] = by_traffic[key].carried
        rate = min(relays.rate for relays in by_traffic.values())
        direct = min(relays.direct for relays in by_traffic.values())
        return Relays(rate=rate, direct=min(direct, rate), carried=carried)

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        turn_w = self.switch.move_energy_j / self.rotation.slot_s if self.rotation.slot_s > 0.0 else 0.0
        lanes = self.endpoints * self.lanes
        ports = self.switch.usable_ports
        planes = self.node_size * self.lanes
        sharing = max(1, ports // self.ends)
        return {
            "scale-up": self.scale_up.item(self.endpoints),
            "nic": self.nic.item(self.endpoints),
            "optical lane": self.optics.item(lanes, self.budget.laser_w),
            "turning": BillItem(count=lanes, w_each=turn_w, usd_each=0.0),
            "optical switch": self.switch.item(-(-planes // sharing) * -(-self.ends // ports)),
        }

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once; each hop passes two cards."""
        off_node = self.scale_up.off_node(flows)
        inside = (flows.sources != flows.destinations) & (
            ~off_node | (self.scale_up.carriers(flows.sources, flows.destinations) != flows.sources)
        )
        hops = 1.0
        if off_node.any():
            hops = self.rotation.mean_hops if self._small(flows) else 1.0 + self._relays(flows).relayed_share
        outside_bytes = flows.moved_bytes(off_node)
        inside_bytes = flows.moved_bytes(inside)
        inside_j = self.scale_up.transfer_energy_j(inside_bytes)
        return inside_j + self.nic.transfer_energy_j(outside_bytes * hops)


def reach(switch: OpticalSwitch) -> int:
    """Return the number of ends that one lane meets through a switch: its settings, or all of its ports."""
    return switch.positions if switch.positions > 1 else switch.usable_ports


def least_lanes(switch: OpticalSwitch, ends: int) -> int:
    """Return the lanes that an end needs to meet all others."""
    return -(-ends // reach(switch))
