"""Rails of optical circuit switches: every rail of accelerators has circuits of its own.

A rail joins the accelerators of equal rank in their nodes. Traffic that leaves a node goes over the card on
the destination's rail, or over another card where that one is down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np

from optical.fabrics.circuits import DARK, Circuits, assign_lanes, circuit_wiring, merge_pairs
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
from simulator.errors import RouteError, check_choices, check_range
from simulator.fabric import (
    CircuitPolicy,
    Fabric,
    LaneClaim,
    PortOwner,
    Ports,
    PortTiming,
    Traits,
    check_policy,
)
from simulator.interfaces import Flows, LinkGraph, Reconfiguration, Wiring
from simulator.topology.graphs import NO_LINK, joined, node_links
from simulator.topology.scale_up import BillItem, Nic, ScaleUp, load_nic


@dataclass(frozen=True, kw_only=True, eq=False)
class RailRoutes:
    """Endpoints at which flows between nodes leave one node and arrive at the other, both on one rail."""

    carriers: np.ndarray
    """Endpoint in the source's node whose lanes send, shape [F]."""
    landings: np.ndarray
    """Endpoint in the destination's node whose lanes receive, shape [F]."""


def rail_routes(scale_up: ScaleUp, flows: Flows, circuits: Circuits | None = None) -> RailRoutes:
    """Return the endpoints over which each flow leaves its node and enters the other.

    Parameters
    ----------
    scale_up : ScaleUp
        The domain inside a node, over which a source reaches the other cards of its node.
    flows : Flows
        Flows between any endpoints.
    circuits : Circuits, optional
        Present circuits, with the ports that are down; None if all work.

    Notes
    -----
    Traffic leaves by the card on the destination's rail, as NCCL's PXN sends it ("Doubling all2all
    performance with NCCL 2.12", 2022). A flow takes another rail, and crosses the destination's node as well,
    where no lane of that rail works at both ends, or where its circuits stay dark and `Circuits.relays`
    allows others. A rail that is lit now comes before one that could be, and the source's own before others;
    sources whose own will not do spread over the rest. A flow that no rail can take keeps its own, and so
    waits.
    """
    size = scale_up.size
    carriers = scale_up.carriers(flows.sources, flows.destinations)
    usual = RailRoutes(carriers=carriers, landings=flows.destinations)
    if circuits is None or not circuits.failed.size:
        return usual
    works = circuits.works
    stuck = scale_up.off_node(flows)
    stuck &= ~circuits.direct(carriers, flows.destinations)[1]
    if not circuits.relays:
        stuck &= ~(works[carriers] & works[flows.destinations]).any(axis=1)
    if not stuck.any():
        return usual
    rails = np.arange(size)
    out = scale_up.node_of(flows.sources[stuck])[:, None] * size + rails
    into = scale_up.node_of(flows.destinations[stuck])[:, None] * size + rails
    lit = (circuits.lit[out] == into[:, :, None]).any(axis=2)
    usable = (works[out] & works[into]).any(axis=2)
    usual_works = usable[np.arange(len(usable)), scale_up.rail_of(flows.destinations[stuck])]
    usable[circuits.relays & usual_works] = False  # its own circuits stay dark: only lit rails help
    choices = np.where(lit.any(axis=1)[:, None], lit, usable)
    rail, has_choice = _chosen_rails(choices, scale_up.rail_of(flows.sources[stuck]))
    moved, row = np.flatnonzero(stuck)[has_choice], np.flatnonzero(has_choice)
    carriers, landings = usual.carriers.copy(), usual.landings.copy()
    carriers[moved], landings[moved] = out[row, rail[has_choice]], into[row, rail[has_choice]]
    return RailRoutes(carriers=carriers, landings=landings)


def _chosen_rails(choices: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rail of each flow, and whether it has any to choose from, both [F].

    `choices` says which rails it may take, bool [F, rails]; its source's own rail is taken if it may be.
    """
    count = choices.sum(axis=1)
    nth = own % np.maximum(count, 1)
    rail = (choices.cumsum(axis=1) > nth[:, None]).argmax(axis=1)
    return np.where(choices[np.arange(len(own)), own], own, rail), count > 0


LANES_TRIED = (2, 4, 8)
"""Lanes of an accelerator that a search of fabrics tries; dimensionless."""


@dataclass(frozen=True, kw_only=True)
class OcsRails(SwitchedCircuits):
    """Nodes joined by optical circuits: lane l of rail r goes to the optical switches of plane (r, l).

    Notes
    -----
    Accelerator e stands in node ``e // size`` on rail ``e % size``. A plane holds one permutation: each lane
    of an endpoint sends to one endpoint of its rail and receives from one. Traffic between rails first
    crosses the source's node to the accelerator on the destination's rail, whose lanes carry it on.

    Links, in this order: optical lanes ``e * lanes + l``, accelerator to node switch [E], node switch to
    accelerator [E]. Lanes with a common destination act as one link, that of the first of them, with their
    joint capacity; the others have none, like dark ones.

    A port that fails is one of the switch with its fibre, in both directions. A spare port of the switch
    replaces it once the fibre has been moved.

    Every lane launches just the power that its receiver needs through the switches (`budget`): a lossy switch
    costs laser power, and one too lossy is a `LinkError` when the fabric is made.
    """

    name: str = "optical rails"
    """Name shown in tables and traces."""
    endpoints: int
    """Accelerators."""
    scale_up: ScaleUp
    """The domain inside a node."""
    nic: Nic = field(default_factory=lambda: load_nic("connectx-7"))
    """Network card of each accelerator; its rate is shared by the lanes."""
    switch: OpticalSwitch = field(default_factory=lambda: load_switch("palomar-mems"))
    """The optical switches."""
    optics: LaneOptics = field(default_factory=lambda: load_optics("lane-100g"))
    """Transmitter and receiver of each lane."""
    lanes: int = 4
    """Optical lanes of each accelerator."""
    policy: CircuitPolicy = CircuitPolicy.PER_AXIS
    """Traffic for which circuits turn."""
    turning: PortTiming = PortTiming.ON_REQUEST
    """Whether circuits turn when traffic asks for them, or ahead of it in idle windows (arXiv:2507.08119)."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_range(self, "lanes", low=1, high=MOST_LANES)
        check_policy(self)
        _ = self.budget

    @cached_property
    def traits(self) -> Traits:
        """Library of the nodes; lanes of each endpoint, shared by the axes or turned to the one that asks."""
        return Traits(
            scale_up=self.scale_up,
            card_bytes_per_s=self.nic.bandwidth_bytes_per_s,
            endpoint_lanes=self.lanes,
            lane_bytes_per_s=self.lane_bytes_per_s,
            lane_move_energy_j=self.stages * self.switch.move_energy_j,
            policy=self.policy,
            can_prefetch=True,
            prefetches=self.turning is PortTiming.PREFETCHED,
            reconfiguration_s=self.lane_turn_s(self.endpoints * self.lanes),
            ports=Ports(
                owner=PortOwner.ENDPOINT, owners=self.endpoints, lanes=self.lanes, switches=self.switches
            ),
            idle_numbers=self.optics.idle_numbers,
        )

    def variants(self) -> dict[str, Fabric]:
        """Return the fabric with other numbers of lanes."""
        return {f"{lanes} lanes": replace(self, lanes=lanes) for lanes in LANES_TRIED if lanes != self.lanes}

    @property
    def joined(self) -> int:
        """Ends of a plane: the accelerators of a rail, one in each node."""
        return self.nodes

    @property
    def planes(self) -> int:
        """Planes: one for each lane of each rail."""
        return self.node_size * self.lanes

    @property
    def lane_bytes_per_s(self) -> float:
        """Rate of one lane that a long transfer reaches, one way."""
        return self.optics.shared_bytes_per_s(self.nic, self.lanes)

    @cached_property
    def port_chassis(self) -> np.ndarray:
        """Optical switch behind each port, shape [E lanes, 1]."""
        every = np.arange(self.endpoints)
        planes = self.scale_up.rail_of(every)[:, None] * self.lanes + np.arange(self.lanes)
        chassis = chassis_of(self.switch, self.joined, self.planes)
        return chassis[planes, self.scale_up.node_of(every)[:, None]].reshape(-1, 1)

    def switch_ports(self, switch: int) -> np.ndarray:
        """Return the ports that fail with an optical switch, shape [n]."""
        lost = chassis_ports(self.switch, self.joined, self.planes, switch)
        endpoints = lost[:, 1] * self.scale_up.size + lost[:, 0] // self.lanes
        ports: np.ndarray = (endpoints * self.lanes + lost[:, 0] % self.lanes)[endpoints < self.endpoints]
        return ports

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        return {
            "scale-up": self.scale_up.item(self.endpoints),
            "nic": self.nic.item(self.endpoints),
            "optical lane": self.optics.item(self.endpoints * self.lanes, self.budget.laser_w),
            "optical switch": self.switch.item(self.switches),
        }

    def initial(self, demand: tuple[Flows, ...]) -> Circuits:
        """Return the circuits at the start of a step.

        Parameters
        ----------
        demand : tuple of Flows
            All traffic of the step. Static circuits serve all of it; per-axis circuits start with the first
            axis that leaves the nodes and fits the lanes, whose plans are all kept for `configure`; or dark.

        Raises
        ------
        RouteError
            If static circuits would need more lanes than an endpoint has.
        """
        outside = [flows for flows in demand if self.scale_up.off_node(flows).any()]
        if self.policy is CircuitPolicy.STATIC or not outside:
            return Circuits(self._matching(outside))
        plans = {}
        for axis in dict.fromkeys(flows.axis for flows in outside):
            traffic = [flows for flows in outside if flows.axis == axis]
            if self._fits(traffic):
                plans[axis] = self._matching(traffic)
        first = next(iter(plans.values()), None)
        if first is None:
            first = np.full((self.endpoints, self.lanes), DARK, dtype=np.int64)
        return Circuits(first.copy(), MappingProxyType(plans))

    def configure(
        self, circuits: Circuits, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[Circuits, Reconfiguration]:
        """Return circuits over which `flows` can be routed, and the reconfiguration to them.

        Notes
        -----
        Only the endpoints that lack a circuit for `flows` turn their lanes; all that send in `flows` do,
        should the first take a circuit from one of them. Lanes follow the plan that `initial` made for the
        axis. For traffic outside that plan they follow the demand on the axis of `flows`, or, if that does
        not fit the lanes, `flows` alone. A circuit whose end is taken by another goes dark.

        Raises
        ------
        RouteError
            If static circuits lack a path, or the flows alone need more lanes than an endpoint has.
        """
        connected = self._lookup(circuits, flows)[1]
        if connected.all():
            return circuits, Reconfiguration()
        if self.policy is CircuitPolicy.STATIC:
            if circuits.failed.size:
                return replace(circuits, relays=True), Reconfiguration()
            self._refuse(circuits, flows)
        carriers = rail_routes(self.scale_up, flows, circuits).carriers
        target = self._target(circuits, flows, demand)
        lacking, senders = np.unique(carriers[~connected]), np.unique(carriers[self.scale_up.off_node(flows)])
        after = circuits.with_lanes(lacking, target)
        if not self.connected(after, flows):
            after = circuits.with_lanes(senders, target)
        if circuits.failed.size and not self.connected(after, flows):
            alone = circuits.with_lanes(senders, self._matching([flows], circuits))
            after = self._with_lent_lanes(circuits, (after, alone), flows)
        return after, self._reconfiguration(circuits, after)

    def _reconfiguration(self, circuits: Circuits, after: Circuits) -> Reconfiguration:
        """Return the time, the links and the energy of turning circuits into others."""
        ports = circuits.turned_lanes(after)
        return Reconfiguration(
            reconfiguration_s=self.lane_turn_s(ports),
            moved_links=circuits.changed_links(after),
            energy_j=ports * self.traits.lane_move_energy_j,
        )

    def lane_turn_s(self, lanes: int) -> float:
        """Return the time until the last of a number of lanes is lit that turn together."""
        return self.switch.turn_s(self.stages * lanes)

    def lane_peers(self, circuits: Circuits) -> np.ndarray:
        """Return the destination of each lane of each endpoint, -1 for none, shape [E, lanes]."""
        return np.where(circuits.lit == DARK, -1, circuits.lit)

    def lane_claim(self, circuits: Circuits, flows: Flows, demand: tuple[Flows, ...]) -> LaneClaim | None:
        """Return the lanes that `configure` would turn for flows, whatever is lit; None while ports fail."""
        if circuits.failed.size:
            return None
        ways, off_node = rail_routes(self.scale_up, flows), self.scale_up.off_node(flows)
        weights = np.ones(off_node.size) if flows.weights is None else flows.weights
        target = self._target(circuits, flows, demand) if off_node.any() else circuits.tx_peer
        return LaneClaim(
            carriers=ways.carriers[off_node],
            landings=ways.landings[off_node],
            weights=weights[off_node],
            target=np.where(target == DARK, -1, target),
        )

    def _with_lent_lanes(self, circuits: Circuits, wanted: Sequence[Circuits], flows: Flows) -> Circuits:
        """Return the first circuits that connect all flows while ports are down; the present ones if none do.

        Tried are the wanted circuits with lanes lent to pairs that lost theirs, then the same with other
        rails.
        """
        pairs = self._pairs([flows], circuits)[0]
        lent = []
        for target in wanted:
            unlent = target.tx_peer if target.unlent is None else target.unlent
            lent.append(Circuits(target.with_lent_lanes(pairs), circuits.plans, circuits.failed, unlent))
        relayed = [replace(target, relays=True) for target in lent]
        return next((target for target in (*lent, *relayed) if self.connected(target, flows)), circuits)

    def without(self, circuits: Circuits, failed: np.ndarray) -> tuple[Circuits, Reconfiguration]:
        """Return the circuits with just these ports down, shape [n]; lent lanes go back after a repair."""
        after = circuits.without(failed)
        if np.array_equal(after.tx_peer, circuits.tx_peer):
            return after, Reconfiguration()
        return after, self._reconfiguration(circuits, after)

    def graph(self, circuits: Circuits) -> LinkGraph:
        """Return the capacity and latency of all links; dark lanes and bundled ones have no capacity."""
        optical = circuits.link_lanes.ravel() * self.lane_bytes_per_s
        inside = np.full(2 * self.endpoints, self.scale_up.capacity_bytes_per_s)
        return LinkGraph(capacity_bytes_per_s=np.concatenate([optical, inside]), latency_s=self._latency_s)

    @cached_property
    def _latency_s(self) -> np.ndarray:
        optical_s = 2 * self.nic.latency_s + self.optics.link_latency_s
        latency_s = np.full(self.endpoints * (self.lanes + 2), self.scale_up.latency_s / 2)
        latency_s[: self.endpoints * self.lanes] = optical_s
        latency_s.flags.writeable = False
        return latency_s

    def route(self, circuits: Circuits, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, 3] or [F, 5], padded with -1; a flow to itself has none.

        Notes
        -----
        A flow whose own rail is down lands beside its destination and crosses two more links of that node.
        """
        ways = rail_routes(self.scale_up, flows, circuits)
        optical, connected = self._lookup(circuits, flows)
        if not connected.all():
            self._refuse(circuits, flows)
        up, down = self.endpoints * self.lanes, self.endpoints * (self.lanes + 1)
        off_node = self.scale_up.off_node(flows)
        inside = ~off_node & (flows.sources != flows.destinations)
        forwarded = off_node & (ways.carriers != flows.sources)
        passed_on = off_node & (ways.landings != flows.destinations)
        links = np.full((len(flows.sources), 5 if passed_on.any() else 3), NO_LINK, dtype=np.int64)
        links[off_node, 0] = optical[off_node]
        links[inside, 0] = up + flows.sources[inside]
        links[inside, 1] = down + flows.destinations[inside]
        links[forwarded, 0] = up + flows.sources[forwarded]
        links[forwarded, 1] = down + ways.carriers[forwarded]
        links[forwarded, 2] = optical[forwarded]
        if passed_on.any():
            links[passed_on, 3] = up + ways.landings[passed_on]
            links[passed_on, 4] = down + flows.destinations[passed_on]
        return links

    def wired(self, circuits: Circuits) -> Wiring:
        """Return all links with their present ends; dark ones have no capacity."""
        light = circuit_wiring(
            circuits,
            np.arange(self.endpoints),
            rate_bytes_per_s=self.lane_bytes_per_s,
            latency_s=float(self._latency_s[0]),
        )
        return joined([light, node_links(self.scale_up, self.endpoints, self.endpoints)])

    def connected(self, circuits: Circuits, flows: Flows) -> bool:
        """Return whether every flow has a circuit, or stays in its node."""
        return bool(self._lookup(circuits, flows)[1].all())

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all flows once; power of lanes and switches is static."""
        return self._energy_j(flows, rail_routes(self.scale_up, flows))

    def carried_energy_j(self, circuits: Circuits, flows: Flows) -> float:
        """Return the dynamic energy over the rails that flows take now.

        As `transfer_energy_j` if some have no circuit yet.
        """
        if not self.connected(circuits, flows):
            return self.transfer_energy_j(flows)
        return self._energy_j(flows, rail_routes(self.scale_up, flows, circuits))

    def _energy_j(self, flows: Flows, ways: RailRoutes) -> float:
        """Return the energy of cards, and of the nodes that flows cross before and after them."""
        off_node = self.scale_up.off_node(flows)
        inside = ~off_node & (flows.sources != flows.destinations)
        crossed = inside | (off_node & (ways.carriers != flows.sources))
        inside_bytes = flows.moved_bytes(crossed) + flows.moved_bytes(ways.landings != flows.destinations)
        outside_bytes = flows.moved_bytes(off_node)
        return self.scale_up.transfer_energy_j(inside_bytes) + self.nic.transfer_energy_j(outside_bytes)

    def _lookup(self, circuits: Circuits, flows: Flows) -> tuple[np.ndarray, np.ndarray]:
        """Return the optical link of each flow, and whether it has one or needs none, each [F]."""
        ways = rail_routes(self.scale_up, flows, circuits)
        link, lit = circuits.direct(ways.carriers, ways.landings)
        return link, lit | ~self.scale_up.off_node(flows)

    def _refuse(self, circuits: Circuits, flows: Flows) -> None:
        """Raise for the first flow without a circuit."""
        carriers = rail_routes(self.scale_up, flows, circuits).carriers
        flow = int(np.flatnonzero(~self._lookup(circuits, flows)[1])[0])
        source, carrier, destination = (
            int(values[flow]) for values in (flows.sources, carriers, flows.destinations)
        )
        via = "" if carrier == source else f" (by way of {carrier})"
        msg = (
            f"no circuit from endpoint {source} to {destination}{via} for axis '{flows.axis}'; configure the "
            f"fabric for it, or use the policy '{CircuitPolicy.PER_AXIS}' instead of '{self.policy}'"
        )
        raise RouteError(msg)

    def _pairs(self, served: list[Flows], circuits: Circuits | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the endpoints that traffic needs circuits between, [P, 2], and the bytes over each, [P]."""
        pairs, weights = [np.empty((0, 2), dtype=np.int64)], [np.empty(0)]
        for flows in served:
            off_node = self.scale_up.off_node(flows)
            pairs.append(self._ends(flows, circuits)[off_node])
            weights.append(flows.sizes_bytes[off_node])
            if flows.weights is not None:  # uneven traffic, to experts, comes back
                pairs.append(self._ends(flows.reversed(), circuits)[off_node])
                weights.append(weights[-1])
        return merge_pairs(np.concatenate(pairs), np.concatenate(weights))

    def _ends(self, flows: Flows, circuits: Circuits | None) -> np.ndarray:
        """Return the endpoints between which each flow needs a circuit, shape [F, 2]."""
        ways = rail_routes(self.scale_up, flows, circuits)
        return np.stack([ways.carriers, ways.landings], axis=1)

    def _fits(self, served: list[Flows], circuits: Circuits | None = None) -> bool:
        """Return whether no endpoint has more peers in this traffic than lanes."""
        pairs, _ = self._pairs(served, circuits)
        return all(int(np.bincount(column).max(initial=0)) <= self.lanes for column in pairs.T)

    def _target(self, circuits: Circuits, flows: Flows, demand: tuple[Flows, ...]) -> np.ndarray:
        """Return the destination of each lane when the axis of some flows is served, shape [E, lanes].

        Those of the axis's plan if they connect the flows, else lanes for all of the axis, or for the flows.
        """
        plan = circuits.plans.get(flows.axis)
        passed_on = (self._ends(flows, circuits)[:, 1] != flows.destinations).any()
        failed = circuits.failed if passed_on else circuits.failed[:0]
        if plan is not None and self.connected(Circuits(plan, failed=failed), flows):
            return plan
        axis = [flows, *(other for other in demand if other.axis == flows.axis and other is not flows)]
        return self._matching(axis if self._fits(axis, circuits) else [flows], circuits)

    def _matching(self, served: list[Flows], circuits: Circuits | None = None) -> np.ndarray:
        """Return the destination of each lane when this traffic shares the lanes, shape [E, lanes]."""
        pairs, weights = self._pairs(served, circuits)
        return assign_lanes(pairs, weights, self.endpoints, self.lanes)
