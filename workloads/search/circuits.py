"""Circuits of a class of ranks as its collectives ask for them in order, on the fabric without a clock.

What that comes to for arrays of plans is told in turns of a block (`BlockTurns`) and of a step (`StepTurns`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from simulator.collectives.flow_groups import FlowGroup, PricedCollective
from simulator.collectives.lines import LinePrices, inner_class
from simulator.collectives.traffic import Traffic
from simulator.engine.lookahead import short_s
from simulator.fabric import CircuitPolicy, Fabric
from simulator.interfaces import Circuits, Flows
from simulator.layout import Axis, RankLayout, placed
from simulator.operators import Collective, CollectiveKind, Phase
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import Pass
from workloads.search.contention import AXES, BOTH, SUM
from workloads.search.plans import (
    PLACEMENTS,
    PlanArrays,
    ShapeWork,
    SumGroups,
    chunks_of,
    distinct,
    endpoints_of,
    strides,
    two_copies,
)

LEVEL = 2.0
"""Octaves within which collectives of one kind go the way that the first of them goes; a choice."""
NODES_KEPT, GROUPS_KEPT, STAGES_KEPT = 4, 3, 4
"""Nodes along data-parallel ranks, groups of experts and stages of a layout on which circuits are played; a
choice: rings and exchanges have the same neighbours with more."""
SEND = Collective(
    name="activations",
    phase=Phase.FORWARD,
    kind=CollectiveKind.SEND,
    axis="pp",
    size=2,
    payload_bytes=1.0,
    shift=1,
)
"""A send from a stage to the next."""
RETURN = replace(SEND, shift=-1)
"""A send from a stage to the one before."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Circuits after a collective has been carried, and what it met."""

    state: int
    """Number of the circuits that stand then."""
    turns: int = 0
    """How often circuits turned for it."""
    ports: int = 0
    """Ports that turned, over all turns."""
    taken_s: float = 0.0
    """Time of its transfers over what stood."""
    own_s: float = 0.0
    """The same over the circuits that its axis has when it is served alone."""


@dataclass(kw_only=True)
class Passed:
    """Turns and slowed traffic of a run of collectives."""

    state: int
    """Number of the circuits that stand at its end."""
    turns: int = 0
    """How often circuits turned."""
    ports: int = 0
    """Ports that turned, over all turns."""
    taken_s: dict[str, float] = field(default_factory=dict)
    """Time of transfers over what stood, by axis."""
    own_s: dict[str, float] = field(default_factory=dict)
    """The same over circuits of their own, by axis."""

    def add(self, axis: str, asked: Asked) -> None:
        """Count a collective along an axis."""
        self.state = asked.state
        self.turns += asked.turns
        self.ports += asked.ports
        if asked.own_s > 0.0:
            self.taken_s[axis] = self.taken_s.get(axis, 0.0) + asked.taken_s
            self.own_s[axis] = self.own_s.get(axis, 0.0) + asked.own_s

    def slower(self, axis: str) -> float:
        """Return how many times as long an axis' transfers took as over circuits of their own."""
        own_s = self.own_s.get(axis, 0.0)
        return max(1.0, self.taken_s[axis] / own_s) if own_s > 0.0 else 1.0

    @property
    def slowest(self) -> float:
        """How many times as long the transfers of all axes took as over circuits of their own."""
        own_s = sum(self.own_s.values())
        return max(1.0, sum(self.taken_s.values()) / own_s) if own_s > 0.0 else 1.0


class CircuitWalk:
    """Circuits of one class, turned by its collectives one after the other as the engine turns them.

    Parameters
    ----------
    traffic : Traffic
        Prices of all its collectives on a fabric that nobody uses.
    rank_class : int
        The class.
    ranks : int
        Its ranks.

    Notes
    -----
    The law is the engine's (`simulator.engine.network`): what stands carries a group of flows if it connects
    all of them, over however many lanes; else the fabric turns the ports of those that lack a circuit, to
    the circuits of the group's axis or, where these are more than fit, of the group alone. So an exchange in
    turns asks for each of its parts, one that nodes pass on may find its hops on a ring's circuits, and a
    ring that was left one lane of four takes four times as long and turns nothing. Each transition is worked
    out once.
    """

    def __init__(self, traffic: Traffic, rank_class: int, ranks: int) -> None:
        self.ranks = ranks
        self._traffic, self._class = traffic, rank_class
        self._fabric: Fabric = traffic.network.fabric
        self._circuits: list[Circuits] = []
        self._numbers: dict[bytes, int] = {}
        self._met: dict[tuple[int, FlowGroup], tuple[int, int, float]] = {}
        self._own: dict[FlowGroup, float] = {}
        self._served: dict[str, Circuits] = {}
        self._asked: dict[tuple[int, int], Asked] = {}
        self._plans: dict[tuple[int, int], tuple[Collective, PricedCollective]] = {}
        self._ways: dict[tuple[Collective, int], PricedCollective] = {}
        self.start = self._number(traffic.network.circuits)

    @property
    def mean_ports(self) -> float:
        """Ports that turn at once, the mean over all kinds of turns met; 1 without any."""
        moved = [moved for _, moved, _ in self._met.values() if moved]
        return sum(moved) / len(moved) if moved else 1.0

    def play(self, state: int, operators: Iterable[Collective]) -> Passed:
        """Return what becomes of circuits when collectives ask for them in order."""
        found = Passed(state=state)
        for one in operators:
            found.add(one.axis, self.ask(found.state, one))
        return found

    def ask(self, state: int, operator: Collective, behind: int = 0) -> Asked:
        """Return what becomes of circuits when a collective asks for its own.

        Parameters
        ----------
        state : int
            Number of the circuits that stand.
        operator : Collective
            What is carried.
        behind : int
            Stages by which those who carry it stand behind the class.
        """
        plan = self._plan(operator, behind)
        key = (state, id(plan))
        found = self._asked.get(key)
        if found is None:
            found = self._asked[key] = self._carried(state, plan)
        return found

    def _plan(self, operator: Collective, behind: int = 0) -> PricedCollective:
        found = self._plans.get((id(operator), behind))
        if found is None:  # kept with the operator, so that no other gets its identity
            level = round(math.log2(max(operator.payload_bytes, 1.0)) / LEVEL)
            key = (replace(operator, name="", phase=Phase.FORWARD, payload_bytes=level), behind)
            if key not in self._ways:
                self._ways[key] = self._traffic.plan(operator, self._class - behind)
            found = self._plans[id(operator), behind] = operator, self._ways[key]
        return found[1]

    def _carried(self, state: int, plan: PricedCollective) -> Asked:
        turns = ports = 0
        taken, own = [plan.protocol_s], [plan.protocol_s]
        for group, size_bytes, count in plan.parts:
            after, moved, rate = self._turned(state, group)
            turns, ports, state = turns + (moved > 0), ports + moved, after
            if size_bytes > 0.0:
                taken.append(size_bytes * count / rate)
                own.append(size_bytes * count / self._own_rate(group))
        if plan.in_turns:  # which its price holds already
            turns -= len(plan.parts)
        whole = max if plan.at_once else sum
        return Asked(
            state=state,
            turns=turns,
            ports=ports,
            taken_s=float(taken[0] + whole(taken[1:] or [0.0])),
            own_s=float(own[0] + whole(own[1:] or [0.0])),
        )

    def _turned(self, state: int, group: FlowGroup) -> tuple[int, int, float]:
        """Return the circuits over which a group goes, the ports that turn to them, and its rate in B/s."""
        found = self._met.get((state, group))
        if found is None:
            circuits, moved = self._circuits[state], 0
            after = state
            if not self._fabric.connected(circuits, group.flows):
                turned, _ = self._fabric.configure(circuits, group.flows, group.demand)
                after, moved = self._number(turned), self._ports(circuits, turned)
            found = after, moved, self._rate(self._circuits[after], group)
            self._met[state, group] = found
        return found

    def _own_rate(self, group: FlowGroup) -> float:
        """Return the rate of a group over the circuits that its axis has when it is served alone."""
        found = self._own.get(group)
        if found is None:
            axis = group.flows.axis
            if axis not in self._served:
                self._served[axis] = self._traffic.network.axis_circuits(group)
            circuits = self._served[axis]
            if not self._fabric.connected(circuits, group.flows):
                circuits = self._fabric.configure(circuits, group.flows, group.demand)[0]
            found = self._own[group] = self._rate(circuits, group)
        return found

    def _rate(self, circuits: Circuits, group: FlowGroup) -> float:
        loads, graph = self._fabric.loads(circuits, group.flows), self._fabric.graph(circuits)
        if not loads.links.size:
            return np.inf
        return float((graph.capacity_bytes_per_s[loads.links] / loads.usage).min())

    def _ports(self, before: Circuits, after: Circuits) -> int:
        """Return how many ports turned; at least one, for a circuit that goes dark is a turn."""
        old, new = self._fabric.lane_peers(before), self._fabric.lane_peers(after)
        return max(int(((old != new) & (new >= 0)).sum()), 1)

    def _number(self, circuits: Circuits) -> int:
        """Return the number of circuits, the same for those that stand alike."""
        key = self._fabric.lane_peers(circuits).tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self._circuits)
            self._circuits.append(circuits)
        return self._numbers[key]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Collectives of a stage by what they serve."""

    blocks: tuple[tuple[Collective, ...], tuple[Collective, ...]]
    """Of a block, forward and backward, as they ask for circuits."""
    steady: tuple[float, float]
    """Turns that a block costs among others like it, forward and backward; dimensionless."""
    ends: tuple[tuple[tuple[Collective, ...], ...], tuple[tuple[Collective, ...], ...]]
    """Before and behind all blocks, forward and backward: of embedding and head."""
    sums: tuple[Collective, ...]
    """Of gradients, and of parameters, which go the same ways."""
    sends: tuple[tuple[tuple[Collective, int], ...], ...]
    """Of the stage and of the neighbour that sends to it, forward and backward, each with the stages by which
    its sender stands behind."""
    pieces: int
    """Pieces in which all its chunks' gradients and parameters travel."""
    chunks: int
    """Chunks of the stage."""


@dataclass(frozen=True, kw_only=True)
class Kinds:
    """Whether something holds for the parameters of experts, and for all others."""

    dense: bool = False
    experts: bool = False

    def of(self, sums: Collective) -> bool:
        """Return whether it holds for what a collective sums or gathers."""
        return self.experts if sums.axis == Axis.REPLICAS else self.dense


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Whether gathers and sums wait for the exchanges of passes."""

    gathers: Kinds = Kinds()
    sums: Kinds = Kinds()


@dataclass(frozen=True, kw_only=True)
class StageTurns:
    """Turns of a stage's circuits beyond those inside its blocks."""

    each: float
    """Of a microbatch; dimensionless, as are all."""
    once: float
    """Of a step beside its microbatches."""
    alone: float
    """Of the first microbatch, beside gathers and sums."""
    among: float
    """Of one among others, beside gathers and sums."""
    sums_slower: float
    """How many times as long gathers and sums take over circuits that stand for others."""


class StepPlay:
    """Turns of a step's stage, for whatever waits.

    Parameters
    ----------
    walk : CircuitWalk
        The circuits.
    stage : Stage
        What asks for them.
    zero : int
        What is sharded.
    gathers : int
        Gathers of parameters by every microbatch: forward, and again backward.
    several : bool
        Whether a step has several microbatches.
    """

    def __init__(self, walk: CircuitWalk, stage: Stage, *, zero: int, gathers: int, several: bool) -> None:
        self._walk, self._stage = walk, stage
        self._zero, self._gathers, self._several = zero, gathers, several
        self._found: dict[Waits, StageTurns] = {}

    def turns(self, waits: Waits) -> StageTurns:
        """Return the turns if some of what is gathered and summed waits for exchanges."""
        if waits not in self._found:
            self._found[waits] = self._played(waits)
        return self._found[waits]

    def _played(self, waits: Waits) -> StageTurns:
        bare = StagePlay(self._walk, self._stage, waits)
        alone, *_, among = (
            bare.run(0, gathers=False, sums=False) + bare.run(1, gathers=False, sums=False) for _ in range(3)
        )
        play = StagePlay(self._walk, self._stage, waits)
        if self._several:
            ends = ((True, False), (False, False), (False, False), (False, True))
            played = [self._microbatch(play, first=first, last=last) for first, last in ends]
            first, _, each, last = played  # the second is not yet like those that follow it
            once = first + last - 2 * each
            left = play.end()
            if self._zero >= 2:  # sums of every microbatch
                each += left / len(played)
            else:
                once += left
        else:
            each, once = among, self._microbatch(play, first=True, last=True) + play.end() - among
        slower = play.outside.slowest
        return StageTurns(each=each, once=once, alone=alone, among=among, sums_slower=slower)

    def _microbatch(self, play: StagePlay, *, first: bool = False, last: bool = False) -> float:
        forward = play.run(0, gathers=self._gathers > 0 or (self._zero > 0 and first), sums=False)
        return forward + play.run(1, gathers=self._gathers > 1, sums=self._zero >= 2 or last)


class StagePlay:
    """Turns of a stage's circuits beyond those inside its passes, for whatever meets these.

    Parameters
    ----------
    walk : CircuitWalk
        The circuits.
    stage : Stage
        What asks for them.
    waits : Waits
        What is gathered and summed behind passes.

    Notes
    -----
    What is gathered and summed has ports as soon as they idle: it is asked for while a piece computes, and
    takes turns with the piece's own collectives, one of these after each of those (ports go first come, first
    served). What ports do not leave a pass for (`simulator.engine.lookahead.short_s`) is gathered behind the
    piece, and summed there, too, if a gather stands behind it, else when all passes have ended. A stage's
    sends go behind its chunks, those of its neighbours at the same time.
    """

    def __init__(self, walk: CircuitWalk, stage: Stage, waits: Waits) -> None:
        self._walk, self._stage = walk, stage
        self.state = walk.start
        self.outside = Passed(state=walk.start)
        self._waiting: list[Collective] = []
        self._behind: list[Collective] = []
        self._last: list[Collective] = []
        self._gathered, self._summed = (
            [[one for one in stage.sums if kind.of(one) == late] for late in (False, True)]
            for kind in (waits.gathers, waits.sums)
        )

    def run(self, way: int, *, gathers: bool, sums: bool) -> float:
        """Return the turns of a pass of a microbatch forward (0) or backward (1), less its blocks' own."""
        stage = self._stage
        pieces = stage.pieces if gathers or sums else stage.chunks
        before, after = stage.ends[way]
        turns = sum(map(self._ask, before))
        for piece in range(pieces):
            if gathers:  # of the next piece
                self._waiting += self._gathered[0]
                self._behind += self._gathered[1]
            turns += self._piece(stage.blocks[way])
            behind, self._behind = self._behind, []
            turns += sum(self._ask(one, outside=True) for one in behind)
            if sums:
                self._waiting += self._summed[0]
                late = self._behind if gathers else self._last
                late += self._summed[1]
            if (piece + 1) % max(1, pieces // stage.chunks) == 0:
                turns += self._sent(way)
        turns += sum(map(self._ask, after))
        return turns - pieces * stage.steady[way]

    def end(self) -> int:
        """Return the turns for what is left when all passes have ended."""
        waiting = self._waiting + self._behind + self._last
        self._waiting, self._behind, self._last = [], [], []
        return sum(self._ask(one, outside=True) for one in waiting)

    def _piece(self, own: Sequence[Collective]) -> int:
        """Return the turns of one piece whose collectives take turns with what waits beside it."""
        turns = 0
        for one in own:
            if self._waiting:
                turns += self._ask(self._waiting.pop(0), outside=True)
            turns += self._ask(one)
        return turns

    def _sent(self, way: int) -> int:
        """Return the turns of a stage's send, while the neighbour that sends the same way does so, too."""
        turns = 0
        for send, behind in self._stage.sends[way]:
            asked = self._walk.ask(self.state, send, behind)
            self.state = asked.state
            turns += 0 if behind else asked.turns
        return turns

    def _ask(self, one: Collective, *, outside: bool = False) -> int:
        asked = self._walk.ask(self.state, one)
        self.state = asked.state
        if outside:
            self.outside.add(one.axis, asked)
        return asked.turns


def settled(walk: CircuitWalk, block: Sequence[Collective]) -> Passed:
    """Return what becomes of circuits in one of many equal blocks in a row.

    The first finds what was there before; the second what the first has left, as all others do.
    """
    return walk.play(walk.play(walk.start, block).state, block)


@dataclass(frozen=True, kw_only=True)
class BlockTurns:
    """Circuits of P plans that turn to the axis which asks, unless those that stand carry it."""

    block: np.ndarray
    """Turns in a block, forward and backward together, shape [P]; dimensionless."""
    slower: Mapping[str, np.ndarray]
    """How many times as long an axis' traffic takes over circuits that stand for another, forward and
    backward, shape [P, 2] each."""
    clashes: Mapping[str, np.ndarray]
    """Whether circuits turn between traffic inside passes and that of an axis outside them, shape [P]."""
    stages: StagesPlayed
    """Stages whose circuits are played collective by collective."""


@dataclass(frozen=True, kw_only=True)
class StepTurns:
    """Turns of P plans whose exchanges between experts leave the nodes, played collective by collective."""

    known: np.ndarray
    """Whether a plan's were played; all else is nothing where not, shape [P]."""
    block: np.ndarray
    """Turns in a block, forward and backward, shape [P, 2]; dimensionless."""
    ports: np.ndarray
    """Ports that turn at once, on average, shape [P]."""
    each: np.ndarray
    """Turns of a microbatch on a stage beside those in its blocks, shape [P]."""
    once: np.ndarray
    """Turns of a step beside those of its microbatches, shape [P]."""
    alone: np.ndarray
    """Turns of the first microbatch on a stage, beside gathers and sums, shape [P]."""
    among: np.ndarray
    """The same of one among others, shape [P]."""
    sums_slower: np.ndarray
    """How many times as long gathers and sums take over circuits that stand for others, shape [P]."""
    sums_wait: np.ndarray
    """Whether sums wait for the exchanges of passes, shape [P]."""


@dataclass(frozen=True, kw_only=True)
class StagesPlayed:
    """Stages of P plans whose circuits are played, Q of them apart."""

    place: np.ndarray
    """Stage of each plan among those apart, shape [P]."""
    plays: tuple[StepPlay | None, ...]
    """Their plays; None if no exchange of experts leaves the nodes, Q of them."""
    block: np.ndarray
    """Turns in a block, forward and backward, shape [Q, 2]; dimensionless."""
    ports: np.ndarray
    """Ports that turn at once, on average, shape [Q]."""
    gather_s: np.ndarray
    """Gather of one piece of the parameters of experts and of all others, shape [Q, 2]."""
    sum_s: np.ndarray
    """Sum of the gradients of one piece, shape [Q, 2]."""

    @property
    def known(self) -> np.ndarray:
        """Whether a plan's stage is played, shape [P]."""
        return np.array([one is not None for one in self.plays])[self.place]

    def turns(self, turn_s: float) -> StepTurns:
        """Return the turns of all plans if one takes so long."""
        many = len(self.plays)
        found = {name: np.zeros(many) for name in ("each", "once", "alone", "among")}
        slower, waits = np.ones(many), np.zeros(many, dtype=bool)
        late = [one < short_s(turn_s) for one in (self.gather_s, self.sum_s)]
        for number, play in enumerate(self.plays):
            if play is None:
                continue
            gathers, sums = (Kinds(experts=bool(one[number, 0]), dense=bool(one[number, 1])) for one in late)
            turns = play.turns(Waits(gathers=gathers, sums=sums))
            for name, column in found.items():
                column[number] = getattr(turns, name)
            slower[number] = turns.sums_slower
            waits[number] = sums.dense and sums.experts
        return StepTurns(
            known=self.known,
            block=self.block[self.place],
            ports=self.ports[self.place],
            sums_slower=slower[self.place],
            sums_wait=waits[self.place],
            **{name: column[self.place] for name, column in found.items()},
        )


@dataclass(frozen=True, kw_only=True)
class BlockWalk:
    """Circuits in one of many blocks in a row."""

    turns: int
    """How often they turn."""
    standing: str
    """Axis for which they stand at its end; empty if none leaves the nodes."""
    slower: Mapping[str, float]
    """How many times as long each axis takes on average over what stands."""


class Peers:
    """Pairs that send to each other outside the nodes, by axis, on one layout.

    Parameters
    ----------
    layout : RankLayout
        Where ranks stand.
    fabric : Fabric
        What joins them.
    """

    def __init__(self, layout: RankLayout, fabric: Fabric) -> None:
        self._layout, self._fabric = layout, fabric
        self._known: dict[str, np.ndarray] = {}

    def pairs(self, axis: str) -> np.ndarray:
        """Return node that sends and endpoint that receives, each pair as one number, shape [n]."""
        if axis not in self._known:
            layout, size = self._layout, self._fabric.node_size
            stage = inner_class(layout)
            sources, others = layout.members(stage), [np.empty(0, dtype=int)]
            if axis == Axis.PIPELINE:
                others += [layout.members(one) for one in (stage - 1, stage + 1) if 0 <= one < layout.pp]
            else:
                groups = layout.groups(axis, stage)
                sources = groups.ravel()
                last = groups.shape[1] if axis == Axis.EXPERT else min(groups.shape[1], 2)
                others += [np.roll(groups, -shift, axis=1).ravel() for shift in range(1, last)]
            sources, ends = np.tile(sources, len(others) - 1), np.concatenate(others)
            off_node = sources // size != ends // size
            flows = Flows(sources=sources, destinations=ends, size_bytes=1.0, axis=axis)
            off_node &= self._fabric.turns_for(flows)
            numbers = sources[off_node] // size * self._fabric.endpoints + ends[off_node]
            self._known[axis] = np.unique(numbers)
        return self._known[axis]

    def slower(self, axis: str, standing: str) -> float:
        """Return how many times as long an axis takes over circuits for another; infinite if they turn."""
        mine, theirs = self.pairs(axis), self.pairs(standing)
        if not len(mine) or axis == standing:
            return 1.0
        lanes = self._fabric.traits.peers or math.inf
        if max(len(mine), len(theirs)) > lanes * self._layout.ranks_per_class:  # they go in turns
            return math.inf
        if len(theirs) < len(mine) or not np.isin(mine, theirs, assume_unique=True).all():
            return math.inf
        return len(theirs) / len(mine)

    def walk(self, axes: Sequence[str]) -> BlockWalk:
        """Return what circuits do in one block after another whose traffic goes along axes in order."""
        inside = [axis for axis in axes if len(self.pairs(axis))]
        standing, turns = "", 0
        times: dict[str, list[float]] = {}
        for again in range(2):  # the second block finds what the first has left, as all others do
            for axis in inside:
                slower = self.slower(axis, standing) if standing else math.inf
                if math.isinf(slower):
                    standing, slower, turns = axis, 1.0, turns + again
                if again:
                    times.setdefault(axis, []).append(slower)
        return BlockWalk(
            turns=turns, standing=standing, slower={axis: float(np.mean(one)) for axis, one in times.items()}
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanCircuits:
    """Circuits under P plans of one model on one fabric that turns them to the axis which asks."""

    config: TransformerConfig
    """The model."""
    plans: PlanArrays
    """The plans."""
    sum_groups: tuple[SumGroups, SumGroups]
    """Groups that sum gradients, those of experts apart."""
    gathers: np.ndarray
    """Gathers of parameters by every microbatch, shape [P]."""
    pieces: np.ndarray
    """Pieces in which a chunk's gradients and parameters travel, shape [P]."""
    shapes: Sequence[ShapeWork]
    """The work of each shape."""
    shape_of: np.ndarray
    """Number of each plan's shape, shape [P]."""
    layouts: Sequence[RankLayout]
    """Where ranks stand."""
    layout_of: np.ndarray
    """Number of each plan's layout, shape [P]."""
    prices: LinePrices
    """Collectives on the fabric."""
    inside: Mapping[tuple[int, str], Collective]
    """A collective inside passes by number of its layout and axis."""
    local: Callable[[str, int], int]
    """How many of an axis' group share a node, on a layout of that number."""
    walks: dict[tuple[object, ...], CircuitWalk | None]
    """Circuits that were played before, by layout."""
    _summed: dict[int, tuple[Collective, ...]] = field(default_factory=dict, init=False)

    def turns(self, moved: Mapping[str, np.ndarray]) -> BlockTurns:
        """Return what circuits do that turn to the axis which asks.

        Parameters
        ----------
        moved : mapping
            Times of gathers and sums on three stages (``gather_s``, ``sum_s``), shape [P, 3] each, and what
            those of experts take of them (``experts_share``), shape [P].
        """
        first, place = distinct((self.shape_of, self.layout_of))
        if self.prices.fabric.traits.policy in {None, CircuitPolicy.STATIC}:
            first, place = first[:0], place[:0]
        block = np.zeros(len(first))
        slower = {axis: np.ones((len(first), len(BOTH))) for axis in AXES}
        clashes = {axis: np.zeros(len(first), dtype=bool) for axis in ("dpcp", Axis.PIPELINE)}
        peers = [Peers(layout, self.prices.fabric) for layout in self.layouts]
        for number, row in enumerate(first):
            met, shape = peers[self.layout_of[row]], self.shapes[self.shape_of[row]]
            standing = ""
            for way, direction in enumerate(BOTH):
                walk = met.walk(shape.block[direction].axes)
                standing = walk.standing or standing
                block[number] += walk.turns
                for axis, times in walk.slower.items():
                    slower[axis][number, way] = times
            outside = {"dpcp": str(self.plans.whole.axes.gradient_axis[row]), Axis.PIPELINE: Axis.PIPELINE}
            for name, axis in outside.items() if standing else ():
                clashes[name][number] = math.isinf(met.slower(axis, standing))
        found = {axis: one[place] for axis, one in slower.items()}
        stages, over = self._played(moved)
        known = stages.known[:, None]
        if known.any():
            found = {axis: np.where(known, over[axis], one) for axis, one in found.items()}
        return BlockTurns(
            stages=stages,
            block=block[place],
            slower=found,
            clashes={axis: one[place] for axis, one in clashes.items()},
        )

    def _played(self, moved: Mapping[str, np.ndarray]) -> tuple[StagesPlayed, dict[str, np.ndarray]]:
        """Return stages played collective by collective, and how slow axes are over what stands."""
        several = self.plans.microbatches > 1
        every = chunks_of(self.plans)
        copies = np.where(two_copies(self.plans), 2, 1)
        pieces, chunks = self.pieces * every // copies, every // copies
        columns = [
            self.shape_of,
            self.layout_of,
            pieces,
            chunks,
            several,
            self.plans["zero"],
            self.gathers,
            self.plans["vpp"],
        ]
        first, place = distinct(columns)
        traits = self.prices.fabric.traits
        if traits.policy in {None, CircuitPolicy.STATIC} or traits.endpoint_lanes is None:
            first, place = first[:1], np.zeros_like(place)
            walks: list[CircuitWalk | None] = [None]
        else:
            walks = [self._walk(row) for row in first.tolist()]
        many = len(first)
        slower = {axis: np.ones((many, len(BOTH))) for axis in AXES}
        block, ports = np.zeros((many, len(BOTH))), np.ones(many)
        plays: list[StepPlay | None] = []
        for number, (row, walk) in enumerate(zip(first.tolist(), walks, strict=True)):
            if walk is None:
                plays.append(None)
                continue
            stage, passes = self._stage_of(row, walk, pieces=int(pieces[row]), chunks=int(chunks[row]))
            block[number] = stage.steady
            for axis, times in slower.items():
                times[number] = [one.slower(axis) for one in passes]
            play = StepPlay(
                walk,
                stage,
                zero=int(self.plans["zero"][row]),
                gathers=int(self.gathers[row]),
                several=bool(several[row]),
            )
            play.turns(Waits())  # after which the ports of its turns are known
            plays.append(play)
            ports[number] = walk.mean_ports * self.layouts[self.layout_of[row]].ranks_per_class / walk.ranks
        share = moved["experts_share"]
        shares = np.stack([share, 1.0 - share], axis=1) / (self.pieces * every)[:, None]
        gather_s, sum_s = (
            (moved[name].max(axis=1)[:, None] * shares)[first] for name in ("gather_s", "sum_s")
        )
        found = StagesPlayed(
            place=place, plays=tuple(plays), block=block, ports=ports, gather_s=gather_s, sum_s=sum_s
        )
        return found, {axis: one[place] for axis, one in slower.items()}

    def _stage_of(
        self, row: int, walk: CircuitWalk, *, pieces: int, chunks: int
    ) -> tuple[Stage, list[Passed]]:
        """Return what asks for circuits on the inner stage of a row, and what its blocks meet."""
        shape, alone = self.shapes[self.shape_of[row]], self.plans["pp"][row] == 1
        number = int(self.layout_of[row])

        def leaving(run: tuple[Collective, ...]) -> tuple[Collective, ...]:
            return tuple(one for one in run if self.local(one.axis, number) < one.size)

        ends = [
            [leaving(one) for one in shape.ends[way][:: 1 if way is Pass.FORWARD else -1]]
            if alone
            else [(), ()]
            for way in BOTH
        ]
        blocks = [leaving(shape.single[way]) for way in BOTH]
        passes = [settled(walk, one) for one in blocks]
        config = self.config
        share = 1.0 - config.dense_layers / config.layers
        forward, backward = (one.turns * share for one in passes)
        stage = Stage(
            blocks=(blocks[0], blocks[1]),
            ends=((ends[0][0], ends[0][1]), (ends[1][0], ends[1][1])),
            steady=(forward, backward),
            sums=self._sums_of(row),
            sends=self._sends_of(row),
            pieces=pieces,
            chunks=chunks,
        )
        return stage, passes

    def _walk(self, row: int) -> CircuitWalk | None:
        """Return the circuits of a row's inner stage; None if no exchange of experts leaves its nodes."""
        number = int(self.layout_of[row])
        exchange = self.inside.get((number, "ep"))
        if exchange is None or self.local("ep", number) == exchange.size:
            return None
        layout, key = self._smaller(row)
        key = (*key, bool(self.plans["zero"][row] > 0))
        if key not in self.walks:
            self.walks[key] = self._walked(row, layout)
        return self.walks[key]

    def _walked(self, row: int, layout: RankLayout) -> CircuitWalk | None:
        number = int(self.layout_of[row])
        inside = [self.inside[number, axis] for axis in ("cp", "tp", "ep") if (number, axis) in self.inside]
        inside = [one for one in inside if self.local(one.axis, number) < one.size]
        sums = self._sums_of(row)
        axes = [*sums, *inside] if self.plans["zero"][row] > 0 else [*inside, *sums]
        traffic = self._smaller_prices(layout).together([*axes, *([SEND] if layout.pp > 1 else [])], layout)
        return None if traffic is None else CircuitWalk(traffic, inner_class(layout), layout.ranks_per_class)

    def _smaller_prices(self, layout: RankLayout) -> LinePrices:
        """Return the prices on as much of the fabric as a layout takes."""
        fabric: Any = self.prices.fabric
        return LinePrices(replace(fabric, endpoints=-(-layout.ranks // fabric.node_size) * fabric.node_size))

    def _smaller(self, row: int) -> tuple[RankLayout, tuple[object, ...]]:
        """Return a layout of fewer replicas and stages with the turns of a row's, and its key.

        Of data-parallel ranks as many are kept as span four nodes, and whole groups of experts three times;
        of stages that stand farthest from each other four.
        """
        plan, order, size = self.plans.plan(row), self.plans.placement(row), self.prices.fabric.node_size
        axes, layout = plan.axes, plan.layout
        near = strides(order, axes.tp, axes.cp, axes.dp, axes.pp)["dp"]
        least = max(NODES_KEPT, NODES_KEPT * size // near)
        replicas = int(axes.expert_replicas)

        def enough(dp: int) -> bool:
            left = replicas * dp // axes.dp
            whole = replicas * dp % axes.dp == 0 and (dp * near) % size == (axes.dp * near) % size
            return axes.dp % dp == 0 and dp >= least and whole and left >= min(replicas, GROUPS_KEPT)

        dp = next((one for one in range(1, axes.dp) if enough(one)), axes.dp)
        pp = min(axes.pp, STAGES_KEPT) if order.split()[-1] == Axis.PIPELINE else axes.pp
        layout = replace(layout, dp=dp, pp=pp)
        key = (axes.tp, axes.cp, dp, pp, axes.ep, order)
        if order != PLACEMENTS[0]:
            layout = placed(layout, endpoints_of(replace(axes, dp=dp, pp=pp), order))
        return layout, key

    def _sums_of(self, row: int) -> tuple[Collective, ...]:
        """Return the sums of gradients of a row's inner stage, those of experts apart."""
        key = int(self.layout_of[row])
        found = self._summed.get(key)
        if found is None:
            kinds = (
                (str(one.axis[row]), int(one.ranks[row]), float(one.parameters[row, 1]))
                for one in self.sum_groups
            )
            width = self.plans.base.precision.grad_bytes
            found = self._summed[key] = tuple(
                replace(SUM, axis=axis, size=size, payload_bytes=count * width)
                for axis, size, count in kinds
                if count > 0.0 and self.local(axis, key) < size
            )
        return found

    def _sends_of(self, row: int) -> tuple[tuple[tuple[Collective, int], ...], ...]:
        """Return the sends of a row's inner stage and of the neighbours that send to it, each way.

        Of two stages with several chunks, each sends to the other both ways.
        """
        layout, _ = self._smaller(row)
        here = inner_class(layout)
        pairs = ((SEND, 0), (SEND, 1)), ((RETURN, 0), (RETURN, -1))
        if layout.pp == 2 and self.plans["vpp"][row] > 1:
            pairs = ((SEND, 0), (RETURN, -1)), ((SEND, 0), (RETURN, -1))
        stages = range(layout.pp)
        return tuple(
            tuple(
                (send, behind)
                for send, behind in way
                if here - behind in stages and here - behind + send.shift in stages
            )
            for way in pairs
        )
