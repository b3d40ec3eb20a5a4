"""Time of a collective as a function of its payload: the lower envelope of straight lines.

Lines of many layouts on one fabric are found together, each geometry of groups worked out once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np
import simpy

from simulator.collectives.demand import ring_flows, skewed_flows
from simulator.collectives.traffic import APART, TAKING_TURNS, Slowdown, Traffic, collective_slowdown, crowded
from simulator.engine.network import Network
from simulator.errors import RouteError
from simulator.fabric import Fabric, lone_cards
from simulator.interfaces import Flows
from simulator.layout import RankLayout
from simulator.operators import Collective

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
    """Time of an empty payload by each way, shape [K]."""
    s_per_byte: np.ndarray
    """Further time per byte of payload, shape [K]."""
    energy_j_per_byte: np.ndarray
    """Dynamic energy of all ranks of the class per byte of payload, shape [K]."""

    def time_s(self, payload_bytes: np.ndarray | float) -> np.ndarray:
        """Return the time of payloads, of their shape."""
        payload = np.asarray(payload_bytes, dtype=float)[..., None]
        return (self.start_s + self.s_per_byte * payload).min(axis=-1)

    def energy_j(self, payload_bytes: np.ndarray | float) -> np.ndarray:
        """Return the dynamic energy of payloads by the fastest way, of their shape."""
        payload = np.asarray(payload_bytes, dtype=float)[..., None]
        fastest = (self.start_s + self.s_per_byte * payload).argmin(axis=-1)
        return self.energy_j_per_byte[fastest] * payload[..., 0]

    def priced(self, payload_bytes: float) -> tuple[float, float]:
        """Return time in s and dynamic energy in J of one payload."""
        times_s = self.start_s + self.s_per_byte * payload_bytes
        fastest = int(times_s.argmin())
        return float(times_s[fastest]), float(self.energy_j_per_byte[fastest] * payload_bytes)

    def slowed(self, factor: float) -> CollectiveLines:
        """Return the lines where bytes take so many times as long."""
        return replace(self, s_per_byte=self.s_per_byte * factor)


NOTHING = CollectiveLines(start_s=np.zeros(1), s_per_byte=np.zeros(1), energy_j_per_byte=np.zeros(1))
"""Of a group of one."""


def traffic_alone(layout: RankLayout, fabric: Fabric, demand: dict[tuple[str, int, int], Flows]) -> Traffic:
    """Return the prices of a step's collectives on a fabric that nobody uses.

    Parameters
    ----------
    layout : RankLayout
        Where the ranks stand.
    fabric : Fabric
        What carries the flows.
    demand : dict
        Traffic of the step by (axis, class, direction), by which a fabric with circuits sets them.
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


STEP_BYTES = 2.0**50
"""Traffic of an axis in a step for which circuits are priced: they turn to it if they ever do."""
PIPELINE = "pp"
"""Axis of the sends between stages."""


class LinePrices:
    """Prices of collectives on a fabric that carries one axis at a time.

    Parameters
    ----------
    fabric : Fabric
        What carries them; one with circuits sets all of them for the axis that is asked for.

    Notes
    -----
    Groups of equal size that stand alike, of classes that do, cost the same on every fabric here whose
    switches are alike; a class in the middle of the pipeline stands for all. On fabrics whose endpoints
    differ (dragonflies, graphs of a file) that is where an estimate may be wrong.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._sites: dict[int, _Site] = {}
        self._known: dict[tuple[object, ...], CollectiveLines | None] = {}
        self._slowdowns: dict[tuple[object, ...], Slowdown] = {}
        self._crowds: dict[tuple[object, ...], float] = {}

    def lines(self, operator: Collective, layout: RankLayout) -> CollectiveLines | None:
        """Return the lines of a collective on a layout; None where the fabric cannot carry it."""
        if operator.size == 1:
            return NOTHING
        rank_class = _inner(layout)
        key = self._key(operator, layout)
        if key not in self._known:
            self._known[key] = self._measured(operator, layout, rank_class)
        return self._known[key]

    def slowdown(self, one: Collective, other: Collective, layout: RankLayout) -> Slowdown:
        """Return how two collectives slow each other down while both move.

        Parameters
        ----------
        one, other : Collective
            What is done; payloads only weigh rounds of one collective against each other.
        layout : RankLayout
            Where the ranks stand.
        """
        if one.size == 1 or other.size == 1:
            return APART
        key = (self._key(one, layout), self._key(other, layout))
        if key not in self._slowdowns:
            self._slowdowns[key] = self._met(one, other, layout, _inner(layout))
        return self._slowdowns[key]

    def crowding(self, operator: Collective, layout: RankLayout) -> float:
        """Return how many times as long a collective takes while all stages on the same nodes do it at once.

        Parameters
        ----------
        operator : Collective
            What is done, along an axis that lies within a stage; its payload does not matter.
        layout : RankLayout
            Where the ranks stand.
        """
        site = self._site(layout)
        if operator.size == 1 or not site.beside:
            return 1.0
        key = (self._key(operator, layout), site.places_beside)
        if key not in self._crowds:
            self._crowds[key] = self._crowd(operator, layout, [_inner(layout), *site.beside])
        return self._crowds[key]

    def _crowd(self, operator: Collective, layout: RankLayout, stages: list[int]) -> float:
        demand = {key: each for one in stages for key, each in self._demand(operator, layout, one).items()}
        try:
            network = Network(simpy.Environment(), self.fabric, tuple(demand.values()))
            traffic = Traffic(layout, self.fabric, network, demand)
            probe = replace(operator, payload_bytes=PROBE_BYTES)
            mine, *others = (traffic.plan(probe, one) for one in stages)
        except RouteError:
            return 1.0
        if not all(network.locate(flow_group) for plan in (mine, *others) for flow_group, _, _ in plan.parts):
            return 1.0
        return crowded(mine, others, network.graph.capacity_bytes_per_s)

    def _met(self, one: Collective, other: Collective, layout: RankLayout, rank_class: int) -> Slowdown:
        demand = self._demand(one, layout, rank_class) | self._demand(other, layout, rank_class)
        try:
            network = Network(simpy.Environment(), self.fabric, tuple(demand.values()))
            traffic = Traffic(layout, self.fabric, network, demand)
            mine, theirs = (
                traffic.plan(replace(each, payload_bytes=PROBE_BYTES), rank_class) for each in (one, other)
            )
        except RouteError:
            return TAKING_TURNS
        if not all(network.locate(flow_group) for plan in (mine, theirs) for flow_group, _, _ in plan.parts):
            return TAKING_TURNS
        return collective_slowdown(mine, theirs, network.graph.capacity_bytes_per_s)

    def _key(self, operator: Collective, layout: RankLayout) -> tuple[object, ...]:
        """Return what two collectives that cost the same have in common.

        Keys of two collectives on one layout together say how their groups stand to each other, for each has
        the places of all ranks of the class beside those of its own first group.
        """
        return (
            operator.kind,
            operator.size,
            operator.two_level,
            operator.spread,
            operator.skew,
            operator.algorithm,
            operator.shift != 0 and layout.pp > 2,
            *self._site(layout).places(operator.axis, operator.shift),
        )

    def _site(self, layout: RankLayout) -> _Site:
        found = self._sites.get(id(layout))
        if found is None:
            found = self._sites[id(layout)] = _Site(layout, self.fabric.node_size)
        return found

    def _measured(self, operator: Collective, layout: RankLayout, rank_class: int) -> CollectiveLines | None:
        try:
            traffic = traffic_alone(layout, self.fabric, self._demand(operator, layout, rank_class))
            return collective_lines(operator, traffic, rank_class)
        except RouteError:
            return None

    def _demand(
        self, operator: Collective, layout: RankLayout, rank_class: int
    ) -> dict[tuple[str, int, int], Flows]:
        """Return the traffic of one axis: a ring in every group, or sends both ways between all stages."""
        pairs: dict[tuple[str, int, int], tuple[np.ndarray, np.ndarray]] = {}
        if operator.shift:
            step = abs(operator.shift)
            for stage in range(layout.pp - step):
                near, far = layout.members(stage), layout.members(stage + step)
                pairs[operator.axis, stage, step] = near, far
                pairs[operator.axis, stage + step, -step] = far, near
        elif operator.skew is not None:
            groups = layout.groups(operator.axis, rank_class)
            out = operator.skew.turned() if operator.skew.returns else operator.skew
            every = dict.fromkeys(out.every, 2.0 * STEP_BYTES / out.patterns)
            return {(operator.axis, rank_class, 0): skewed_flows(groups, operator.axis, every)}
        else:
            groups = layout.groups(operator.axis, rank_class)
            ring = ring_flows(groups, STEP_BYTES, operator.axis, operator.kind, lone_cards(self.fabric))
            return {(operator.axis, rank_class, 0): ring}
        return {
            key: Flows(
                sources=sources,
                destinations=destinations,
                size_bytes=STEP_BYTES,
                axis=operator.axis,
                kind=operator.kind,
            )
            for key, (sources, destinations) in pairs.items()
        }


class FreeLines(LinePrices):
    """The same where every transfer takes no time and no energy."""

    def lines(self, operator: Collective, layout: RankLayout) -> CollectiveLines:
        """Return the lines of what takes nothing."""
        return NOTHING

    def slowdown(self, one: Collective, other: Collective, layout: RankLayout) -> Slowdown:
        """Return that nothing slows down."""
        return APART

    def crowding(self, operator: Collective, layout: RankLayout) -> float:
        """Return 1."""
        return 1.0


class _Site:
    """Places of a layout's ranks as keys, each worked out once.

    Parameters
    ----------
    layout : RankLayout
        The layout, kept so that nobody else gets its identity.
    node_size : int
        Endpoints of a node, by which places are told.
    """

    def __init__(self, layout: RankLayout, node_size: int) -> None:
        self._layout = layout
        self._node_size = node_size
        self._class = _inner(layout)
        self._members = layout.members(self._class)
        self._start = int(self._members[0]) // node_size * node_size
        self._whole = self._key_of(self._members)
        self._known: dict[tuple[str, int], tuple[bytes, bytes, bytes]] = {}

    @cached_property
    def beside(self) -> list[int]:
        """Other stages with ranks on the same nodes."""
        layout, size = self._layout, self._node_size
        mine = np.zeros(int(layout.members(self._class).max()) // size + 1, dtype=bool)
        mine[self._members // size] = True
        found = []
        for stage in range(layout.pp):
            nodes = layout.members(stage) // size
            if stage != self._class and mine[nodes[nodes < mine.size]].any():
                found.append(stage)
        return found

    @cached_property
    def places_beside(self) -> bytes:
        """Key of all ranks of those stages, by their endpoints in the fabric."""
        return blake2b(b"".join(self._layout.members(one).tobytes() for one in self.beside)).digest()

    def places(self, axis: str, shift: int) -> tuple[bytes, bytes, bytes]:
        """Return keys of the first group along an axis, of where it sends, and of all ranks of the class."""
        found = self._known.get((axis, shift))
        if found is None:
            inside = axis != PIPELINE
            near = self._key_of(self._layout.groups(axis, self._class)[0]) if inside else self._whole
            far = self._key_of(self._layout.members(self._class + shift)) if shift else b""
            found = self._known[axis, shift] = (near, far, self._whole)
        return found

    def _key_of(self, endpoints: np.ndarray) -> bytes:
        """Return a key of endpoints, counted from the first rank's node: 128 bits, equal by chance never."""
        return blake2b((endpoints - self._start).tobytes(), digest_size=16).digest()


def _inner(layout: RankLayout) -> int:
    """Return a class in the middle of the pipeline, which stands for all."""
    return max(0, min(layout.pp // 2, layout.pp - 2))
