"""Traffic of a step: every collective as flow groups, carried out in the fastest way that its fabric has.

`Traffic` prices all ways of a collective (algorithms and protocols) with the network to themselves and takes
the fastest. `carry_collective` carries one out: round after round, or all of its levels at once.
`pair_slowdown` says by how much two collectives slow each other down where their flows share links.

References
----------
Chan et al., Concurrency Computat. Pract. Exper. 19 (2007) 1749: which collective algorithm for which size.
"""

from __future__ import annotations

import math
from collections import abc, defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import simpy

from simulator.collectives.algorithms import FORWARDED, Algorithm, Round, vector_bytes
from simulator.collectives.flow_groups import FlowGroup, GroupRound, PricedCollective
from simulator.collectives.ways import (
    ADDING,
    ONE_CHUNK,
    PIPELINED,
    PLAIN,
    SEND,
    TWO_LEVELS,
    Levels,
    Ways,
    candidates,
    copied_bytes,
    library_levels,
    protocols,
    served,
)
from simulator.engine.network import TOLERANCE, Network
from simulator.errors import RouteError
from simulator.fabric import Fabric, Loads
from simulator.interfaces import Circuits, Flows
from simulator.layout import Groups
from simulator.operators import Collective, CollectiveKind, Operator, Sequence, communications
from simulator.topology.scale_up import Protocol


def carry_collective(
    network: Network, plan: PricedCollective, patient: Callable[[], bool], repeat: int = 1
) -> Generator[simpy.Event, Any, None]:
    """Carry out a collective, several times if asked.

    Parameters
    ----------
    network : Network
        The network that carries it.
    plan : PricedCollective
        The collective.
    patient : callable
        Asked before ports turn to a round; while true, they stay where they are.
    repeat : int
        Number of runs, one after the other.
    """
    if plan.protocol_s:
        yield network.env.timeout(plan.protocol_s * repeat)
    if plan.at_once:
        levels = [
            network.env.process(network.carry(flow_group, size_bytes, count * repeat, patient, latency=False))
            for flow_group, size_bytes, count in plan.parts
        ]
        yield network.env.all_of(levels)
        return
    times, together = (repeat, 1) if plan.in_turns else (1, repeat)
    for flow_group, size_bytes, count in plan.parts * times:
        yield from network.carry(flow_group, size_bytes, count * together, patient)


def play(network: Network) -> None:
    """Run the clock of a network until nothing moves any more."""
    network.env.run()
    while network.serve(impatient=True):  # what waited was patient for traffic that waits for it
        network.env.run()


@dataclass(frozen=True, kw_only=True)
class Slowdown:
    """Slowdown of two collectives while both move: time over time alone; dimensionless, at least 1."""

    one: float = 1.0
    """The first."""
    other: float = 1.0
    """The second."""


APART = Slowdown()
"""Slowdown of collectives without a common link."""


def pair_slowdown(
    one: FlowGroup | Loads, other: FlowGroup | Loads, capacity_bytes_per_s: np.ndarray
) -> Slowdown:
    """Return the slowdown of two flow groups that share links max-min fairly.

    Parameters
    ----------
    one, other : Flow group or Loads
        Flow groups with the links they load.
    capacity_bytes_per_s : numpy.ndarray
        Capacity of every link, shape [L].

    Notes
    -----
    Progressive filling (Bertsekas and Gallager, "Data networks", section 6.5.2) of two rates: both rise
    until a link is full; who does not cross it goes on until a link of its own is full.
    """
    room = capacity_bytes_per_s
    first, second = np.zeros(room.size), np.zeros(room.size)  # load of each, shape [L]
    first[one.links] = one.usage
    if not first[other.links].any():
        return APART
    second[other.links] = other.usage
    both = first + second
    full = np.divide(room, both, out=np.full(room.size, np.inf), where=both > 0.0)
    level = float(full.min())
    tight = full <= level * (1.0 + TOLERANCE)
    first_rate = level if first[tight].any() else least_rate(room - second * level, first)
    second_rate = level if second[tight].any() else least_rate(room - first * level, second)
    return Slowdown(
        one=max(1.0, least_rate(room, first) / first_rate),
        other=max(1.0, least_rate(room, second) / second_rate),
    )


def together_s(
    one: FlowGroup | Loads,
    one_s: float,
    other: FlowGroup | Loads,
    other_s: float,
    capacity_bytes_per_s: np.ndarray,
) -> float:
    """Return the time in s until two flow groups that start together have both ended.

    Parameters
    ----------
    one, other : Flow group or Loads
        Flow groups with the links they load.
    one_s, other_s : float
        Time of each alone.
    capacity_bytes_per_s : numpy.ndarray
        Capacity of every link, shape [L].
    """
    slower = pair_slowdown(one, other, capacity_bytes_per_s)
    ends_s = sorted([(one_s * slower.one, one_s), (other_s * slower.other, other_s)])
    (first_s, _), (last_s, alone_s) = ends_s
    return first_s + (1.0 - first_s / last_s) * alone_s if last_s > 0.0 else 0.0


def least_rate(room: np.ndarray, usage: np.ndarray) -> float:
    """Return the rate at which the first link is full, of a capacity [L] and a load at unit rate [L]."""
    used = usage > 0.0
    return float((room[used] / usage[used]).min())


@dataclass(frozen=True, kw_only=True)
class _WayRound:
    """Round of a way with its price that does not depend on the protocol."""

    part: GroupRound
    """Flows, bytes of each and repetitions."""
    leaving_share: float
    """Share of the flows that leave their node, 0 to 1."""
    latency_s: float
    """Latency of a repetition."""
    rate_bytes_per_s: float
    """Rate of each flow with all links to itself."""


@dataclass(frozen=True, kw_only=True)
class _Way:
    """Algorithm of a collective on the network, with its price as far as no protocol matters."""

    name: str
    rounds: tuple[_WayRound, ...]
    wire_bytes: float
    energy_j: float
    in_turns: bool

    @property
    def leaves(self) -> bool:
        """Whether any flow leaves its node."""
        return any(one.leaving_share for one in self.rounds)


@dataclass(frozen=True, kw_only=True)
class _PricedLevel:
    """Level of a collective whose levels work at once, with a protocol."""

    part: GroupRound
    """Flows, bytes of each on the wire and repetitions."""
    s_per_byte: float
    """Time of a byte of payload, alone on its links."""
    paths_s: float
    """Latency of all repetitions."""
    waited_s: float
    """The same with the protocol's time for each hop."""
    wire_bytes: float
    energy_j: float


class Traffic:
    """Priced collectives of a step on one network, each found once.

    Parameters
    ----------
    layout : Groups
        Endpoints of the ranks.
    fabric : Fabric
        The fabric that carries the flows.
    network : Network
        The fabric during the step.
    demand : dict
        Traffic of the whole step, as `step_demand` gives it.
    by_axis : bool
        Whether circuits of a class may serve all traffic of its axis as well, since a class is a single group
        (recorded graphs); else all traffic of the class.
    """

    def __init__(
        self,
        layout: Groups,
        fabric: Fabric,
        network: Network,
        demand: dict[tuple[str, int, int], Flows],
        *,
        by_axis: bool = False,
    ) -> None:
        self._layout = layout
        self._fabric = fabric
        self.network = network
        self._demand = demand
        self._by_axis = by_axis
        beside: defaultdict[str | int, list[Flows]] = defaultdict(list)
        for (axis, rank_class, _), flows in demand.items():
            beside[axis if by_axis else rank_class].append(flows)
        self._beside = {
            key: tuple(flows) for key, flows in beside.items()
        }  # that circuits may serve together
        self._flow_groups: dict[tuple[object, ...], FlowGroup] = {}
        self._plans: dict[tuple[object, ...], PricedCollective] = {}
        self._private: dict[tuple[str, int], bool] = {}
        self._by_block: dict[tuple[FlowGroup, ...], bool] = {}
        self._axis_groups: dict[tuple[str, int], tuple[FlowGroup, ...]] = {}  # all traffic of (axis, class)
        self._axis_circuits: dict[tuple[str, int], Circuits] = {}  # set for all traffic of (axis, class)
        self._traits = fabric.traits
        self._scale_up = self._traits.scale_up
        self._adder = self._traits.network_adder

    @property
    def routes_by_size(self) -> bool:
        """Whether small transfers take other routes than large ones."""
        return self._traits.routes_by_size

    def plan(self, operator: Collective, rank_class: int) -> PricedCollective:
        """Return the plan of a collective of a class: the fastest way that has its paths."""
        key = (*operator.terms, operator.payload_bytes, rank_class)
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = min(self.options(operator, rank_class), key=lambda plan: plan.alone_s)
        return found

    def price(self, works: abc.Iterable[tuple[Operator, int]]) -> None:
        """Plan every collective of some operators and their classes, in order, under the present circuits.

        A communicator chooses its algorithm when it is made, whatever circuits turn later; and flow groups,
        whose numbers order events of one instant, are numbered before the first event.
        """
        seen: dict[tuple[int, int], object] = {}
        for operator, rank_class in works:
            content = operator.items if isinstance(operator, Sequence) else operator
            if (id(content), rank_class) in seen:
                continue
            seen[id(content), rank_class] = content  # kept alive, for it is known by its identity
            if isinstance(operator, Sequence):
                self.private(operator, rank_class)
            for one, _ in communications(operator):
                self.plan(one, rank_class)
            if isinstance(operator, Sequence):
                self.by_block(operator, rank_class)

    @property
    def plans(self) -> tuple[PricedCollective, ...]:
        """All collectives that are planned so far."""
        return tuple(self._plans.values())

    def private(self, sequence: Sequence, rank_class: int) -> bool:
        """Return whether a sequence's collectives share no link with other traffic, and no link can fail."""
        axes = {one.axis for one, _ in communications(sequence) if one.size > 1}
        return not axes or (
            self.network.undisturbed and all(self._axis_private(axis, rank_class) for axis in sorted(axes))
        )

    def by_block(self, sequence: Sequence, rank_class: int) -> bool:
        """Return whether axes of a sequence's collectives take circuits from each other, block by block."""
        every: dict[FlowGroup, None] = {}
        for collective in (*sequence.ring, *(one for one, _ in communications(sequence))):
            plan = self.plan(collective, rank_class)
            every |= dict.fromkeys(plan.flow_groups[:1] if plan.in_turns else plan.flow_groups)
        groups = tuple(group for group in every if self._fabric.turns_for(group.flows))
        if groups not in self._by_block:
            several = len({one.flows.axis for one in groups}) > 1
            self._by_block[groups] = several and self.network.clash(groups)
        return self._by_block[groups]

    def _axis_private(self, axis: str, rank_class: int) -> bool:
        """Return whether an axis of a class shares no link with other traffic."""
        key = (axis, rank_class)
        if key not in self._private:
            links = self._axis_links(key)
            self._private[key] = links is not None and not self._is_shared(key, links)
        return self._private[key]

    def _is_shared(self, key: tuple[str, int], links: np.ndarray) -> bool:
        """Return whether other traffic than that of an axis of a class crosses or turns its links."""
        taken = np.zeros(self.network.graph.capacity_bytes_per_s.size, dtype=bool)
        taken[links] = True
        others = {(axis, rank_class) for axis, rank_class, _ in self._demand} - {key}
        return any(self._touches(taken, other) for other in sorted(others))

    def _touches(self, taken: np.ndarray, other: tuple[str, int]) -> bool:
        """Return whether an axis of a class crosses links of a mask, shape [L], or would turn them."""
        links = self._axis_links(other)
        if links is not None:
            return bool(taken[links].any())
        try:
            return any(taken[self.network.claims(one)].any() for one in self._axis_groups[other])
        except RouteError:  # more peers than lanes, which it then turns in turns
            return True

    def _axis_links(self, key: tuple[str, int]) -> np.ndarray | None:
        """Return the links of an axis of a class; None if it lacks circuits."""
        groups = self._axis_groups.get(key)
        if groups is None:
            groups = self._axis_groups[key] = tuple(
                self._flow_group(("demand", axis, rank_class, shift), flows, rank_class)
                for (axis, rank_class, shift), flows in self._demand.items()
                if (axis, rank_class) == key
            )
        if not all(map(self.network.locate, groups)):
            return None
        return groups[0].links if len(groups) == 1 else np.concatenate([one.links for one in groups])

    def _flow_group(self, key: tuple[object, ...], flows: Flows, rank_class: int) -> FlowGroup:
        found = self._flow_groups.get(key)
        if found is None:
            demand = self._demand_beside(flows.axis, rank_class)
            found = FlowGroup(index=self.network.number(), flows=flows, demand=demand)
            self._flow_groups[key] = found
        return found

    def options(self, operator: Collective, rank_class: int) -> tuple[PricedCollective, ...]:
        """Return all ways in which a class can carry out a collective: algorithms with protocols."""
        options = self._candidates(operator, rank_class)
        size, peers = self._fabric.node_size, self._traits.peers
        options = served(options, operator, self._layout, rank_class, node_size=size, peers=peers)
        parts = {name: self._group_rounds(operator, rank_class, name, way) for name, way in options.items()}
        later: Circuits | None = None
        ready = [name for name in options if self._connected(parts[name])]
        if not ready:
            # Circuits will be set up for the first way (the ring); ways that these connect are options, too.
            first = next(iter(options))
            later = self._turned(operator.axis, rank_class)
            ready = [name for name in options if name == first or self._connected(parts[name], later)]
        if FORWARDED in options and FORWARDED not in ready:  # the fabric is asked for circuits of its own
            ready.append(FORWARDED)
        pipelined = self._pipelined_options(operator, rank_class, later)
        if pipelined:  # no library has its levels take turns
            ready = [name for name in ready if name not in TWO_LEVELS]
        # A message of a trace is a broadcast to one other.
        sent = operator.kind is CollectiveKind.BROADCAST and operator.size == 2
        plans = []
        for name in ready:
            way = self._priced_way(name, options[name], parts[name])
            kind = SEND if sent else name
            known = protocols(kind, self._scale_up, self._adder, leaving=way.leaves)
            plans += [self._price(way, operator, protocol) for protocol in known]
        return (*plans, *pipelined)

    def _connected(self, parts: tuple[GroupRound, ...], circuits: Circuits | None = None) -> bool:
        """Return whether circuits, by default the present ones, connect all flows of a way."""
        flow_groups = [part.flow_group for part in parts]
        if circuits is not None:
            return self.network.connects(circuits, flow_groups)
        return all(self.network.locate(flow_group) for flow_group in flow_groups)

    def _candidates(self, operator: Collective, rank_class: int) -> Ways:
        """Return the algorithms of a collective of a class, whatever circuits stand."""
        circuits = cache(partial(self._circuits_for, operator.axis, rank_class))
        return candidates(
            operator,
            self._layout,
            rank_class,
            self._fabric.node_size,
            self._scale_up,
            grid_of=self._fabric.grid,
            switches_add=self._adder is not None,
            strides_of=lambda group: self._fabric.strides(circuits(), group),
            rates_of=lambda group: self._fabric.direct_rates(circuits(), group),
        )

    def _circuits_for(self, axis: str, rank_class: int) -> Circuits:
        """Return the present circuits if they connect an axis of a class, else those that turn to it."""
        served = self.network.serves(self._demand_beside(axis, rank_class), axis)
        return self.network.circuits if served else self._turned(axis, rank_class)

    def _turned(self, axis: str, rank_class: int) -> Circuits:
        """Return the circuits that the fabric would set up for the traffic of an axis alone."""
        key, demand = (axis, rank_class), self._demand_beside(axis, rank_class)
        if not self.network.undisturbed:  # hosts may be replaced by others
            return self.network.axis_circuits(demand, axis)
        if key not in self._axis_circuits:
            self._axis_circuits[key] = self.network.axis_circuits(demand, axis)
        return self._axis_circuits[key]

    def _demand_beside(self, axis: str, rank_class: int) -> tuple[Flows, ...]:
        """Return the traffic of a step that circuits may serve together with an axis of a class."""
        return self._beside.get(axis if self._by_axis else rank_class, ())

    def _pipelined_options(
        self, operator: Collective, rank_class: int, later: Circuits | None
    ) -> tuple[PricedCollective, ...]:
        """Return the ways whose two levels work at once, and that circuits connect (see `_connected`)."""
        plans = []
        found = library_levels(
            operator,
            self._layout,
            rank_class,
            self._fabric.node_size,
            self._scale_up,
            options=lambda one: self._candidates(one, rank_class),
        )
        for name, levels in found.items():
            sized = levels.of_payload(operator.payload_bytes).both
            parts = self._group_rounds(operator, rank_class, name + PIPELINED, sized)
            if not self._connected(parts, later):
                continue
            inside, between = (part.flow_group for part in parts)
            for protocol in protocols(name, self._scale_up, self._adder):
                if math.isfinite(protocol.chunk_bytes):
                    plans += self._pipelined_plans(operator, name, levels, (inside, between), protocol)
        return tuple(plans)

    def _pipelined_plans(
        self,
        operator: Collective,
        name: str,
        levels: Levels,
        flow_groups: tuple[FlowGroup, FlowGroup],
        protocol: Protocol,
    ) -> list[PricedCollective]:
        """Return plans of a collective whose levels work at once, and on trees also of one in a single chunk.

        Parameters
        ----------
        operator : Collective
            The collective.
        name : str
            Its algorithm.
        levels : Levels
            Its levels for a payload of one byte.
        flow_groups : tuple of FlowGroup
            The flows inside nodes, and those between.
        protocol : Protocol
            Protocol of the library.

        Notes
        -----
        The vector takes as long as both levels together on the links that they share. Besides, the pipeline
        has to fill: the first chunk passes both levels one after the other, and on a tree climbs all hops,
        at each of which a card passes half of the chunk's bytes, up or down. Short vectors are one chunk.
        """
        inside, between = self._priced_levels(operator, name, levels, flow_groups, protocol)
        waited_s = protocol.start_s + inside.waited_s + between.waited_s
        (near, _), (far, graph) = (self.network.foreseen(flow_group) for flow_group in flow_groups)
        both_s = together_s(near, inside.s_per_byte, far, between.s_per_byte, graph.capacity_bytes_per_s)
        climbs = levels.between.count / 2 if levels.trees else 1.0
        one_chunk_s = inside.s_per_byte + between.s_per_byte * climbs
        fill_s = protocol.chunk_bytes / vector_bytes(operator.kind, 1.0, operator.size)
        fill_s *= 0.0 if levels.rings else one_chunk_s - max(inside.s_per_byte, between.s_per_byte)
        plan = PricedCollective(
            algorithm=f"{name} {protocol.name}{PIPELINED}",
            parts=(inside.part, between.part),
            protocol_s=waited_s + fill_s,
            alone_s=waited_s + fill_s + operator.payload_bytes * both_s,
            empty_s=waited_s + fill_s,
            wire_bytes=inside.wire_bytes + between.wire_bytes,
            energy_j=inside.energy_j + between.energy_j,
            at_once=True,
        )
        if not levels.trees or name in ADDING.values():  # whose chunks come in all sizes
            return [plan]
        far_part = between.part._replace(size_bytes=between.part.size_bytes * climbs)
        one_chunk = replace(
            plan,
            algorithm=f"{name} {protocol.name}{ONE_CHUNK}",
            parts=(inside.part, far_part),
            protocol_s=waited_s - (inside.paths_s + between.paths_s),
            alone_s=waited_s + operator.payload_bytes * one_chunk_s,
            empty_s=waited_s,
            at_once=False,
        )
        return [plan, one_chunk]

    def _priced_levels(
        self,
        operator: Collective,
        name: str,
        levels: Levels,
        flow_groups: tuple[FlowGroup, FlowGroup],
        protocol: Protocol,
    ) -> tuple[_PricedLevel, _PricedLevel]:
        """Return the level inside nodes and that between them, with a protocol; see `_pipelined_plans`."""
        inside, between = flow_groups
        near_share = protocol.efficiency * levels.inside_share
        far_rate = self.network.alone(between)[1]
        far_share = min(protocol.network_efficiency, protocol.network_bytes_per_s / far_rate)
        far_hop_s = protocol.tree_hop_s if levels.trees else protocol.network_hop_s
        near = self._priced_level(
            levels.inside,
            inside,
            operator.payload_bytes,
            share=near_share,
            hop_s=protocol.hop_s,
            copied_s=self._copied_s(operator, name),
        )
        far = self._priced_level(
            levels.between,
            between,
            operator.payload_bytes,
            share=far_share,
            hop_s=far_hop_s,
            copied_s=0.0,
        )
        return near, far

    def _priced_level(
        self,
        level: Round,
        flow_group: FlowGroup,
        payload_bytes: float,
        *,
        share: float,
        hop_s: float,
        copied_s: float,
    ) -> _PricedLevel:
        """Return the price of a level.

        Parameters
        ----------
        level : Round
            Its rounds for a payload of one byte.
        flow_group : FlowGroup
            Its flows.
        payload_bytes : float
            Payload of the collective.
        share : float
            Share of the rate of a flow that the payload gets, 0 to 1.
        hop_s : float
            Time of the protocol for each repetition.
        copied_s : float
            Time in which a rank copies a byte of payload.
        """
        latency_s, rate = self.network.alone(flow_group)
        moved_s = level.flows.size_bytes * level.count / (rate * share)
        s_per_byte = moved_s + copied_s
        size_bytes = level.flows.size_bytes * payload_bytes / share * s_per_byte / moved_s
        flows = replace(level.flows, size_bytes=level.flows.size_bytes * payload_bytes)
        return _PricedLevel(
            part=GroupRound(flow_group, size_bytes, level.count),
            s_per_byte=s_per_byte,
            paths_s=level.count * latency_s,
            waited_s=level.count * (latency_s + hop_s),
            wire_bytes=_carried_bytes(flows) * level.count,
            energy_j=self._energy_j(flow_group, flows) * level.count,
        )

    def _copied_s(self, operator: Collective, name: str) -> float:
        """Return the time in which a rank copies a byte of payload; 0 where the switches of its node add."""
        if self._scale_up is None or name in ADDING.values():
            return 0.0
        return copied_bytes(replace(operator, payload_bytes=1.0)) / self._scale_up.copy_bytes_per_s

    def _group_rounds(
        self, operator: Collective, rank_class: int, name: str, rounds: tuple[Round, ...]
    ) -> tuple[GroupRound, ...]:
        """Return the rounds of a way with their flows as flow groups."""
        key = (
            operator.axis,
            operator.shift,
            rank_class,
            operator.size,
            operator.kind,
            operator.skew,
            operator.servers,
            name,
        )
        return tuple(
            GroupRound(
                self._flow_group((*key, index, self._size_key(one.flows)), one.flows, rank_class),
                one.flows.size_bytes,
                one.count,
            )
            for index, one in enumerate(rounds)
        )

    def _size_key(self, flows: Flows) -> float:
        """Return the size of flows where routes depend on it (each size is a group then), else 0."""
        return flows.size_bytes if self._traits.routes_by_size else 0.0

    def _priced_way(self, name: str, rounds: tuple[Round, ...], parts: tuple[GroupRound, ...]) -> _Way:
        """Return the price of an algorithm as far as no protocol matters."""
        alone = [self.network.alone(part.flow_group) for part in parts]
        return _Way(
            name=name,
            rounds=tuple(
                _WayRound(
                    part=part,
                    leaving_share=self._leaving_share(part.flow_group.flows),
                    latency_s=latency_s,
                    rate_bytes_per_s=rate,
                )
                for part, (latency_s, rate) in zip(parts, alone, strict=True)
            ),
            wire_bytes=math.fsum(_carried_bytes(one.flows) * one.count for one in rounds),
            energy_j=math.fsum(
                self._energy_j(part.flow_group, one.flows) * one.count
                for part, one in zip(parts, rounds, strict=True)
            ),
            in_turns=any(one.in_turns for one in rounds),
        )

    def _price(self, way: _Way, operator: Collective, protocol: Protocol) -> PricedCollective:
        """Return a way whose rounds follow each other, priced with a protocol of the library."""
        waited = protocol.start_s if way.rounds else 0.0
        moved = moved_empty = 0.0
        parts = []
        far_hop_s = protocol.tree_hop_s if way.name == Algorithm.TREE else protocol.network_hop_s
        for one in way.rounds:
            (flow_group, size_bytes, count), rate = one.part, one.rate_bytes_per_s
            leaving = one.leaving_share
            share = protocol.efficiency
            if leaving:
                share = min(protocol.network_efficiency, protocol.network_bytes_per_s / rate)
            moved += count * (one.latency_s + size_bytes / (rate * share))
            moved_empty += count * one.latency_s
            waited += count * (far_hop_s * leaving + protocol.hop_s * (1.0 - leaving))
            if not operator.two_level:  # else its kernels post their messages themselves
                waited += count * protocol.post_s * max(0.0, self._messages(flow_group.flows) - 1.0)
            parts.append(GroupRound(flow_group, size_bytes / share, count))
        waited_empty = waited
        inside = way.rounds and not way.leaves and way.name != Algorithm.IN_NETWORK
        if inside and self._scale_up is not None:
            waited += copied_bytes(operator) / self._scale_up.copy_bytes_per_s
        dark_s = len(way.rounds) * self._traits.reconfiguration_s if way.in_turns else 0.0
        return PricedCollective(
            algorithm=way.name if protocol is PLAIN else f"{way.name} {protocol.name}",
            parts=tuple(parts),
            protocol_s=waited,
            alone_s=waited + moved + dark_s,
            empty_s=waited_empty + moved_empty + dark_s,
            wire_bytes=way.wire_bytes,
            energy_j=way.energy_j,
            in_turns=way.in_turns,
            dark_s=dark_s,
        )

    def _energy_j(self, flow_group: FlowGroup, flows: Flows) -> float:
        """Return the energy of carrying flows of a group once, over the circuits that it has or would get."""
        return self._fabric.carried_energy_j(self.network.circuits_of(flow_group), flows)

    def _messages(self, flows: Flows) -> float:
        """Return the flows to other nodes that a rank starts at once, on average over ranks with any."""
        size = self._fabric.node_size
        leaving = flows.sources // size != flows.destinations // size
        return leaving.sum() / max(1, np.unique(flows.sources[leaving]).size)

    def _leaving_share(self, flows: Flows) -> float:
        """Return the share of flows, by weight, that leave their node."""
        size = self._fabric.node_size
        leaving = flows.sources // size != flows.destinations // size
        return float(
            np.mean(leaving) if flows.weights is None else np.average(leaving, weights=flows.weights)
        )


def _carried_bytes(flows: Flows) -> float:
    """Return the bytes of all flows together."""
    return flows.moved_bytes(np.ones(len(flows.sources), dtype=np.int64))
