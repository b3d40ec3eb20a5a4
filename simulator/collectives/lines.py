"""Collectives on a fabric in closed form: time and energy as lines over the payload.

`CollectiveLines` are the lines of one collective; `LinePrices` finds those of many layouts on one fabric, and
how collectives slow each other down. Prices are remembered by what they depend on: the terms of the
collective, and a key of where its ranks stand (`_Placement`), so that each geometry of groups is priced once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np
import simpy

from simulator.collectives.flow_groups import FlowGroup, PricedCollective, ring_flows, skewed_flows
from simulator.collectives.traffic import APART, Slowdown, Traffic, least_rate, pair_slowdown
from simulator.engine.network import Network
from simulator.errors import RouteError
from simulator.fabric import Fabric, lone_cards
from simulator.interfaces import Flows
from simulator.layout import Axis, Groups, RankLayout
from simulator.operators import Collective, CollectiveKind, Phase, Skew

PROBE_BYTES = 2.0**30
"""Payload at which a line's slope is measured; any other gives the same line."""


@dataclass(frozen=True, kw_only=True)
class CollectiveLines:
    """Time of one collective on one group, alone on its links, for any payload.

    Notes
    -----
    Every algorithm with every protocol costs latency + payload x slope (Hockney, Parallel Computing 20 (1994)
    389), and the fastest is taken, so the time is concave and piecewise linear in the payload.
    """

    start_s: np.ndarray
    """Time of an empty payload by each way (algorithm and protocol), shape [K]."""
    s_per_byte: np.ndarray
    """Further time per byte of payload, shape [K]."""
    energy_j_per_byte: np.ndarray
    """Dynamic energy of all ranks of the class per byte of payload, shape [K]."""

    def time_s(self, payload_bytes: np.ndarray | float) -> np.ndarray:
        """Return the time of payloads in bytes by the fastest way; shapes are those of the payloads."""
        payload = np.asarray(payload_bytes, dtype=float)[..., None]
        return (self.start_s + self.s_per_byte * payload).min(axis=-1)

    def energy_j(self, payload_bytes: np.ndarray | float) -> np.ndarray:
        """Return the dynamic energy of payloads in bytes by the fastest way; shapes as in `time_s`."""
        payload = np.asarray(payload_bytes, dtype=float)[..., None]
        fastest = (self.start_s + self.s_per_byte * payload).argmin(axis=-1)
        return self.energy_j_per_byte[fastest] * payload[..., 0]

    def priced(self, payload_bytes: float) -> tuple[float, float]:
        """Return time in s and dynamic energy in J of one payload."""
        times_s = self.start_s + self.s_per_byte * payload_bytes
        fastest = int(times_s.argmin())
        return float(times_s[fastest]), float(self.energy_j_per_byte[fastest] * payload_bytes)

    def of_parts(self, count: int) -> CollectiveLines:
        """Return the lines of several equal parts of a class that share no links, from those of one."""
        return replace(self, energy_j_per_byte=self.energy_j_per_byte * count)

    def slowed(self, factor: float) -> CollectiveLines:
        """Return the lines with the time of every byte multiplied by a factor."""
        return replace(self, s_per_byte=self.s_per_byte * factor)


NOTHING = CollectiveLines(start_s=np.zeros(1), s_per_byte=np.zeros(1), energy_j_per_byte=np.zeros(1))
"""Lines of a group of one."""


def traffic_alone(layout: Groups, fabric: Fabric, demand: dict[tuple[str, int, int], Flows]) -> Traffic:
    """Return the prices of a step's collectives on an idle fabric.

    Parameters
    ----------
    layout : Groups
        Endpoints of the ranks.
    fabric : Fabric
        The fabric that carries the flows.
    demand : dict
        Traffic of the step by (axis, class, direction), for which a fabric with circuits sets these.
    """
    network = Network(simpy.Environment(), fabric, tuple(demand.values()))
    return Traffic(layout, fabric, network, demand)


def collective_lines(operator: Collective, traffic: Traffic, rank_class: int) -> CollectiveLines:
    """Return the lines of a collective of a class; its own payload does not matter."""
    if operator.size == 1:
        return NOTHING
    full = traffic.options(replace(operator, payload_bytes=PROBE_BYTES), rank_class)
    if traffic.routes_by_size:
        empty = traffic.options(replace(operator, payload_bytes=0.0), rank_class)
        start_s = np.array([one.alone_s for one in empty])
    else:
        start_s = np.array([one.empty_s for one in full])
    return CollectiveLines(
        start_s=start_s,
        s_per_byte=(np.array([one.alone_s for one in full]) - start_s) / PROBE_BYTES,
        energy_j_per_byte=np.array([one.energy_j for one in full]) / PROBE_BYTES,
    )


TAKING_TURNS = Slowdown(one=2.0, other=2.0)
"""Slowdown of collectives that need the same ports for different peers: each has them half of the time."""


def collective_slowdown(
    one: PricedCollective, other: PricedCollective, capacity_bytes_per_s: np.ndarray
) -> Slowdown:
    """Return the slowdown of two collectives that move at the same time.

    Parameters
    ----------
    one, other : PricedCollective
        Collectives on one network, all of whose flows have links.
    capacity_bytes_per_s : numpy.ndarray
        Capacity of every link, shape [L].

    Notes
    -----
    The mean over pairs of their rounds: a round meets each round of the other collective for as large a share
    of its time as that round has of the other's.
    """
    rounds, other_rounds = (_round_shares(priced, capacity_bytes_per_s) for priced in (one, other))
    if not rounds or not other_rounds:
        return APART
    pairs = [
        [pair_slowdown(group, beside, capacity_bytes_per_s) for beside, _ in other_rounds]
        for group, _ in rounds
    ]
    shares, other_shares = [share for _, share in rounds], [share for _, share in other_rounds]
    slower = [[pair.one for pair in row] for row in pairs]
    other_slower = [[pair.other for pair in column] for column in zip(*pairs, strict=True)]
    return Slowdown(
        one=_mean_slowdown(shares, other_shares, slower, at_once=one.at_once),
        other=_mean_slowdown(other_shares, shares, other_slower, at_once=other.at_once),
    )


def _mean_slowdown(
    shares: Sequence[float],
    other_shares: Sequence[float],
    slower: Sequence[Sequence[float]],
    *,
    at_once: bool,
) -> float:
    """Return the time of a collective beside another, over its time alone.

    Parameters
    ----------
    shares, other_shares : sequence of float
        Share of each round in the time of its collective, R and S of them.
    slower : sequence of sequence of float
        Time of each round beside each round of the other, over its time alone; R rows of S.
    at_once : bool
        Whether the rounds are levels that work at the same time, so that the last to end counts.
    """
    lasting = []
    for share, row in zip(shares, slower, strict=True):
        more = (met * (times - 1.0) for met, times in zip(other_shares, row, strict=True))
        lasting.append(share * (1.0 + math.fsum(more)))
    return max(1.0, max(lasting) if at_once else math.fsum(lasting))


def crowded(
    priced: PricedCollective, others: Sequence[PricedCollective], capacity_bytes_per_s: np.ndarray
) -> float:
    """Return the time of a collective while others go through the same rounds with it, over its time alone.

    Parameters
    ----------
    priced : PricedCollective
        The collective.
    others : sequence of PricedCollective
        The same of other ranks, on the same network; each keeps step with the first.
    capacity_bytes_per_s : numpy.ndarray
        Capacity of every link, shape [L].
    """
    lasting = []
    shares = dict(_round_shares(priced, capacity_bytes_per_s))
    for index, flow_group in enumerate(priced.flow_groups):
        if flow_group not in shares:
            continue
        usage = np.zeros_like(capacity_bytes_per_s)
        for one in (priced, *others):
            if index < len(one.parts):
                loaded = one.flow_groups[index]
                usage[loaded.links] += loaded.usage
        alone = least_rate(capacity_bytes_per_s[flow_group.links], flow_group.usage)
        together = least_rate(capacity_bytes_per_s[flow_group.links], usage[flow_group.links])
        lasting.append(shares[flow_group] * alone / together)
    return max(1.0, max(lasting, default=1.0) if priced.at_once else math.fsum(lasting))


def _round_shares(
    priced: PricedCollective, capacity_bytes_per_s: np.ndarray
) -> list[tuple[FlowGroup, float]]:
    """Return the rounds of a collective that load links, each with its share of the collective's time."""
    rounds = [
        (
            flow_group,
            size_bytes * count / least_rate(capacity_bytes_per_s[flow_group.links], flow_group.usage),
        )
        for flow_group, size_bytes, count in priced.parts
        if flow_group.links.size and size_bytes > 0.0
    ]
    times_s = [time_s for _, time_s in rounds]
    whole_s = max(times_s, default=0.0) if priced.at_once else math.fsum(times_s)
    return [(flow_group, time_s / whole_s) for flow_group, time_s in rounds] if whole_s > 0.0 else []


STEP_BYTES = 2.0**50
"""Traffic of an axis for which circuits are set when its collectives are priced; so much that, where circuits
turn at all, they turn to it."""


class LinePrices:
    """Prices of collectives on a fabric that carries one axis at a time.

    Parameters
    ----------
    fabric : Fabric
        The fabric that carries them; one with circuits sets all of them for the axis that is asked for.

    Notes
    -----
    Groups of one size whose ranks lie at the same distances, in classes of which that is true, too, cost the
    same on every fabric here whose switches are alike; a class in the middle of the pipeline stands for all.
    On fabrics whose endpoints differ (dragonflies, graphs of a file) that is where an estimate may be wrong.
    Where a fabric says which links endpoints share (`Fabric.uplink_pools`), one part of a class that shares
    links with no other is priced for all equal ones.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._placements: dict[int, _Placement] = {}
        self._known: dict[tuple[object, ...], CollectiveLines | None] = {}
        self._slowdowns: dict[tuple[object, ...], Slowdown] = {}
        self._crowds: dict[tuple[object, ...], float] = {}

    def stages(self, layout: RankLayout) -> tuple[int, ...]:
        """Return the classes that differ in their lines: the first, an inner and the last, or one for all."""
        return (inner_class(layout),)

    def lines(
        self, operator: Collective, layout: RankLayout, rank_class: int | None = None
    ) -> CollectiveLines | None:
        """Return the lines of a collective on a layout; None where the fabric cannot carry it.

        Parameters
        ----------
        operator : Collective
            The collective; its payload does not matter.
        layout : RankLayout
            Endpoints of the ranks.
        rank_class : int, optional
            One of `stages`; by default the class in the middle of the pipeline.
        """
        if operator.size == 1:
            return NOTHING
        inner = inner_class(layout)
        stage = inner if rank_class is None else rank_class
        equal_parts = (
            self._placement(layout).equal_parts(operator.axis, operator.shift) if stage == inner else None
        )
        key = (
            (stage - inner, *self._key(operator, layout))
            if equal_parts is None
            else (*_price_terms(operator), equal_parts.key)
        )
        if key not in self._known:
            self._known[key] = self._measure(operator, layout, stage)
        found = self._known[key]
        return found if found is None or equal_parts is None else found.of_parts(equal_parts.count)

    def slowdown(self, one: Collective, other: Collective, layout: RankLayout) -> Slowdown:
        """Return the slowdown of two collectives while both move.

        Parameters
        ----------
        one, other : Collective
            The collectives; payloads do not matter.
        layout : RankLayout
            Endpoints of the ranks.
        """
        if one.size == 1 or other.size == 1:
            return APART
        key = (self._key(one, layout), self._key(other, layout))
        if key not in self._slowdowns:
            self._slowdowns[key] = self._class_slowdown(one, other, layout, inner_class(layout))
        return self._slowdowns[key]

    def crowding(self, operator: Collective, layout: RankLayout) -> float:
        """Return the time of a collective while all stages on the same nodes run it, over its time alone.

        Parameters
        ----------
        operator : Collective
            The collective, along an axis that lies within a stage; its payload does not matter.
        layout : RankLayout
            Endpoints of the ranks.
        """
        placement = self._placement(layout)
        if operator.size == 1 or not placement.stages_beside:
            return 1.0
        key = (self._key(operator, layout), placement.places_beside)
        if key not in self._crowds:
            self._crowds[key] = self._stage_crowding(
                operator, layout, [inner_class(layout), *placement.stages_beside]
            )
        return self._crowds[key]

    def together(self, operators: Sequence[Collective], layout: RankLayout) -> Traffic | None:
        """Return the prices of collectives of one layout whose circuits turn; None if it cannot carry them.

        Parameters
        ----------
        operators : sequence of Collective
            One for each axis, in the order in which a step first has them; payloads do not matter.
        layout : RankLayout
            Endpoints of the ranks.
        """
        demand: dict[tuple[str, int, int], Flows] = {}
        for one in operators:
            demand |= self._demand(one, layout, inner_class(layout))
        try:
            return self._traffic(layout, demand)
        except RouteError:
            return None

    def _stage_crowding(self, operator: Collective, layout: RankLayout, stages: list[int]) -> float:
        """Return the time of the first stage's collective beside those of the others, over its time alone."""
        demand = {key: each for one in stages for key, each in self._demand(operator, layout, one).items()}
        try:
            traffic = self._traffic(layout, demand)
            probe = replace(operator, payload_bytes=PROBE_BYTES)
            plans = [traffic.plan(probe, stage) for stage in stages]
        except RouteError:
            return 1.0
        if not _are_connected(traffic.network, plans):
            return 1.0
        return crowded(plans[0], plans[1:], traffic.network.graph.capacity_bytes_per_s)

    def _class_slowdown(
        self, one: Collective, other: Collective, layout: RankLayout, rank_class: int
    ) -> Slowdown:
        """Return the slowdown of two collectives of a class over circuits for both."""
        demand = self._demand(one, layout, rank_class) | self._demand(other, layout, rank_class)
        try:
            traffic = self._traffic(layout, demand)
            first, second = (
                traffic.plan(replace(each, payload_bytes=PROBE_BYTES), rank_class) for each in (one, other)
            )
        except RouteError:
            return TAKING_TURNS
        if not _are_connected(traffic.network, [first, second]):
            return TAKING_TURNS
        return collective_slowdown(first, second, traffic.network.graph.capacity_bytes_per_s)

    def _key(self, operator: Collective, layout: RankLayout) -> tuple[object, ...]:
        """Return a key that is equal for collectives that cost the same.

        The keys of two collectives on one layout together say how their groups lie to each other, for each
        has the places of all ranks of the class beside those of its own first group.
        """
        between = operator.shift != 0 and layout.pp > 2
        return (
            *_price_terms(operator),
            between,
            *self._placement(layout).place_keys(operator.axis, operator.shift),
        )

    def _placement(self, layout: RankLayout) -> _Placement:
        found = self._placements.get(id(layout))
        if found is None:
            found = self._placements[id(layout)] = _Placement(layout, self.fabric)
        return found

    def _measure(self, operator: Collective, layout: RankLayout, rank_class: int) -> CollectiveLines | None:
        """Return the lines of a class's collective, or those of its first part if it has equal parts."""
        inside = rank_class == inner_class(layout)
        equal_parts = self._placement(layout).equal_parts(operator.axis, operator.shift) if inside else None
        try:
            if equal_parts is not None:
                return collective_lines(
                    operator, traffic_alone(equal_parts.first, self.fabric, {}), rank_class
                )
            traffic = self._traffic(layout, self._demand(operator, layout, rank_class))
            return collective_lines(operator, traffic, rank_class)
        except RouteError:
            return None

    def _traffic(self, layout: RankLayout, demand: dict[tuple[str, int, int], Flows]) -> Traffic:
        """Return the prices of collectives with circuits laid for their traffic."""
        return traffic_alone(layout, self.fabric, demand)

    def _demand(
        self, operator: Collective, layout: RankLayout, rank_class: int
    ) -> dict[tuple[str, int, int], Flows]:
        """Return the traffic of one axis: a ring in every group, or sends both ways between all stages."""
        axis, kind = operator.axis, operator.kind
        if operator.shift:
            step = abs(operator.shift)
            found: dict[tuple[str, int, int], Flows] = {}
            for stage in range(layout.pp - step):
                near, far = layout.members(stage), layout.members(stage + step)
                sends = Flows(sources=near, destinations=far, size_bytes=STEP_BYTES, axis=axis, kind=kind)
                found[axis, stage, step] = sends
                found[axis, stage + step, -step] = sends.reversed()
            return found
        groups = layout.groups(axis, rank_class)
        if operator.skew is not None:
            out = operator.skew.turned() if operator.skew.returns else operator.skew
            every = dict.fromkeys(out.every, 2.0 * STEP_BYTES / out.patterns)
            return {(axis, rank_class, 0): skewed_flows(groups, axis, every)}
        return {(axis, rank_class, 0): ring_flows(groups, STEP_BYTES, axis, kind, lone_cards(self.fabric))}


@dataclass(frozen=True, kw_only=True)
class AxisTraffic:
    """Traffic of one axis in a step."""

    axis: str
    """The axis."""
    kind: CollectiveKind
    """Kind of collective that moves most of its bytes."""
    size_bytes: float
    """Bytes that a rank puts in, those of an uneven exchange and its way back."""
    shift: int = 0
    """Stages by which sends go, either way; 0 within stages, and of sends from stage to twin stage."""
    skew: Skew | None = None
    """Unevenness of its exchanges."""


class StandingLines(LinePrices):
    """Prices of collectives over circuits that are laid for all traffic of a step, and stay.

    Parameters
    ----------
    fabric : Fabric
        The fabric that carries them.
    """

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric)
        self._laid: dict[int, tuple[RankLayout, int]] = {}
        self._steps: dict[tuple[RankLayout, tuple[AxisTraffic, ...]], int] = {}
        self._standing: list[Traffic | RouteError] = []

    def lay(self, layout: RankLayout, step: tuple[AxisTraffic, ...]) -> None:
        """Lay circuits for the traffic of a step; from now on the layout has its prices over these."""
        number = self._steps.setdefault((layout, step), len(self._steps))
        if number == len(self._standing):
            demand: dict[tuple[str, int, int], Flows] = {}
            for one in step:
                for key, flows in self._flows(layout, one).items():
                    more = demand[key].size_bytes if key in demand else 0.0
                    demand[key] = replace(flows, size_bytes=flows.size_bytes + more)
            try:
                self._standing.append(traffic_alone(layout, self.fabric, demand))
            except RouteError as error:  # more peers than lanes
                self._standing.append(error)
        self._laid[id(layout)] = layout, number  # kept, so that nobody else gets its identity

    def stages(self, layout: RankLayout) -> tuple[int, ...]:
        """Return the first, an inner and the last class: at the ends, a neighbour less leaves more lanes."""
        return (0, inner_class(layout), layout.pp - 1) if layout.pp > 1 else super().stages(layout)

    def _flows(self, layout: RankLayout, one: AxisTraffic) -> dict[tuple[str, int, int], Flows]:
        """Return the traffic of an axis in all classes."""
        if one.kind is CollectiveKind.SEND and not one.shift:
            return {
                (one.axis, stage, layout.pp - 1 - 2 * stage): Flows(
                    sources=layout.members(stage),
                    destinations=layout.members(layout.pp - 1 - stage),
                    size_bytes=one.size_bytes,
                    axis=one.axis,
                    kind=one.kind,
                )
                for stage in range(layout.pp)
            }
        operator = Collective(
            name=one.axis,
            phase=Phase.FORWARD,
            kind=one.kind,
            axis=one.axis,
            size=2,
            payload_bytes=one.size_bytes,
            shift=one.shift,
            skew=one.skew,
        )
        classes = range(1 if one.shift else layout.pp)
        share = one.size_bytes / STEP_BYTES / (1 if one.skew is None else 2)
        return {
            key: replace(flows, size_bytes=flows.size_bytes * share)
            for rank_class in classes
            for key, flows in self._demand(operator, layout, rank_class).items()
        }

    def _key(self, operator: Collective, layout: RankLayout) -> tuple[object, ...]:
        return (self._laid[id(layout)][1], *super()._key(operator, layout))

    def _traffic(self, layout: RankLayout, demand: dict[tuple[str, int, int], Flows]) -> Traffic:
        found = self._standing[self._laid[id(layout)][1]]
        if isinstance(found, RouteError):
            raise found
        return found


class FreeLines(LinePrices):
    """Prices where transfers take no time and no energy."""

    def lines(
        self, operator: Collective, layout: RankLayout, rank_class: int | None = None
    ) -> CollectiveLines:
        """Return lines of no time and no energy."""
        return NOTHING

    def slowdown(self, one: Collective, other: Collective, layout: RankLayout) -> Slowdown:
        """Return that nothing slows down."""
        return APART

    def crowding(self, operator: Collective, layout: RankLayout) -> float:
        """Return 1."""
        return 1.0


def _price_terms(operator: Collective) -> tuple[object, ...]:
    """Return the terms of a collective on which its price depends, wherever its ranks stand."""
    return (
        operator.kind,
        operator.size,
        operator.two_level,
        operator.spread,
        operator.skew,
        operator.algorithm,
        operator.servers,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """Groups of a part of a class that shares no links with its other parts."""

    ends: np.ndarray
    """Endpoints of the groups, shape [groups, n]; for sends, sender and receiver."""
    sender: int
    """Class of the ranks, or of the senders."""

    def groups(self, axis: str, rank_class: int) -> np.ndarray:
        """Return the groups, shape [groups, n]."""
        return self.ends

    def members(self, rank_class: int) -> np.ndarray:
        """Return the senders (their class) or the receivers (any other), shape [groups]."""
        return self.ends[:, int(rank_class != self.sender)]


@dataclass(frozen=True, kw_only=True)
class _EqualParts:
    """Parts of a class that share no links and cost the same."""

    count: int
    """Number of parts."""
    key: bytes
    """Key of a part, equal for parts of other classes that cost the same."""
    first: _Part
    """The first part."""


def _split_into_parts(groups: np.ndarray, pools: np.ndarray) -> np.ndarray | None:
    """Return groups split into parts that share no links, shape [parts, groups of one, n].

    Parameters
    ----------
    groups : numpy.ndarray
        Endpoints, each in one group, shape [groups, n].
    pools : numpy.ndarray
        Pool of uplinks of each endpoint of the fabric, shape [E].

    Returns
    -------
    numpy.ndarray or None
        None if parts differ in size.

    Notes
    -----
    A group whose endpoints are of one pool shares no link with others, and is a part if all groups are such.
    Otherwise a part is all groups in pools that groups join, directly or through others.
    """
    pool = pools[groups]
    if (pool == pool[:, :1]).all():
        return groups[:, None]
    joined = np.arange(pools.max() + 1)  # least number of the pools with which groups join each
    while (joined[pool] != joined[pool[:, :1]]).any():
        np.minimum.at(joined, pool, joined[pool].min(axis=1, keepdims=True))
        joined = joined[joined]
    part_of = joined[pool[:, 0]]
    sizes = np.bincount(part_of)
    if len(set(sizes[sizes > 0].tolist())) > 1:
        return None
    return groups[np.argsort(part_of, kind="stable")].reshape(-1, int(sizes.max()), groups.shape[1])


def _sharing_key(parts: np.ndarray, *sharing: np.ndarray) -> bytes | None:
    """Return a key of the sharing inside parts; None if parts differ in it, or share things with each other.

    Parameters
    ----------
    parts : numpy.ndarray
        Endpoints, shape [parts, groups of one, n].
    *sharing : numpy.ndarray
        Number of a thing that endpoints share, such as a node or a pool, for each; shape [E] each.

    Notes
    -----
    The key says of every place in a part which is the first place that shares its thing.
    """
    key = [np.array(parts.shape[1:])]
    for shared in sharing:
        thing = shared[parts].reshape(len(parts), -1)
        _, first, which = np.unique(thing[0], return_index=True, return_inverse=True)
        distinct = np.sort(thing[:, first], axis=1)
        if (thing != thing[:, first[which]]).any() or (distinct[:, 1:] == distinct[:, :-1]).any():
            return None
        key.append(first[which])
    return blake2b(np.concatenate(key).tobytes(), digest_size=16).digest()


class _Placement:
    """Places of a layout's ranks on a fabric, as keys by which prices are remembered; each is found once.

    Parameters
    ----------
    layout : RankLayout
        The layout, kept alive because it is known by its identity.
    fabric : Fabric
        The fabric; places are counted from the node of the first rank.
    """

    def __init__(self, layout: RankLayout, fabric: Fabric) -> None:
        self._layout = layout
        self._fabric = fabric
        self._node_size = node_size = fabric.node_size
        self._class = inner_class(layout)
        self._members = layout.members(self._class)
        self._start = int(self._members[0]) // node_size * node_size
        self._known: dict[tuple[str, int], tuple[bytes, ...]] = {}
        self._equal_parts: dict[tuple[str, int], _EqualParts | None] = {}

    @cached_property
    def _class_key(self) -> bytes:
        """Key of all ranks of the class."""
        return self._endpoints_key(self._members)

    @cached_property
    def stages_beside(self) -> list[int]:
        """Other stages with ranks on the same nodes."""
        layout, size = self._layout, self._node_size
        own_nodes = np.zeros(int(self._members.max()) // size + 1, dtype=bool)
        own_nodes[self._members // size] = True
        found = []
        for stage in range(layout.pp):
            nodes = layout.members(stage) // size
            if stage != self._class and own_nodes[nodes[nodes < own_nodes.size]].any():
                found.append(stage)
        return found

    @cached_property
    def places_beside(self) -> bytes:
        """Key of all ranks of those stages, by their endpoints in the fabric."""
        return blake2b(b"".join(self._layout.members(one).tobytes() for one in self.stages_beside)).digest()

    def place_keys(self, axis: str, shift: int) -> tuple[bytes, ...]:
        """Return keys of the first group along an axis, of where it sends, and of all ranks of the class."""
        found = self._known.get((axis, shift))
        if found is None:
            inside = axis != Axis.PIPELINE
            near = (
                self._endpoints_key(self._layout.groups(axis, self._class)[0]) if inside else self._class_key
            )
            far = self._endpoints_key(self._layout.members(self._class + shift)) if shift else b""
            found = self._known[axis, shift] = (near, far, self._class_key)
        return found

    def equal_parts(self, axis: str, shift: int) -> _EqualParts | None:
        """Return the equal parts of the class's groups along an axis, or of its pairs that send, if any."""
        pools = self._fabric.uplink_pools
        if pools is None:
            return None
        if (axis, shift) not in self._equal_parts:
            self._equal_parts[axis, shift] = None
            parts = _split_into_parts(self._groups(axis, shift), pools)
            nodes = np.arange(pools.size) // self._node_size
            key = None if parts is None else _sharing_key(parts, nodes, pools)
            if parts is not None and key is not None:
                first = _Part(ends=parts[0].copy(), sender=self._class)
                self._equal_parts[axis, shift] = _EqualParts(count=len(parts), key=key, first=first)
        return self._equal_parts[axis, shift]

    def _groups(self, axis: str, shift: int) -> np.ndarray:
        """Return groups along an axis, or pairs that send, shape [groups, n]."""
        if axis != Axis.PIPELINE:
            return self._layout.groups(axis, self._class)
        return np.stack([self._members, self._layout.members(self._class + shift)], axis=1)

    def _endpoints_key(self, endpoints: np.ndarray) -> bytes:
        """Return a 128-bit hash of endpoints, counted from the first rank's node."""
        return blake2b((endpoints - self._start).tobytes(), digest_size=16).digest()


def _are_connected(network: Network, plans: Sequence[PricedCollective]) -> bool:
    """Return whether present circuits connect all flows of some collectives."""
    return all(network.locate(flow_group) for plan in plans for flow_group in plan.flow_groups)


def inner_class(layout: RankLayout) -> int:
    """Return a class in the middle of the pipeline, which stands for all."""
    return max(0, min(layout.pp // 2, layout.pp - 2))
