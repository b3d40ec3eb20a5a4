"""Circuit reconfigurations of a training step, counted without running the engine, for arrays of plans.

Where circuits turn to the axis that asks for them, a step loses time twice: ports are dark while they turn,
and circuits that stand for one axis carry another over fewer lanes than circuits of its own. Both follow from
the order in which a pipeline stage issues its collectives. They are counted in two ways:

* `PeerPairs` compares axes as sets of pairs (sending node, receiving endpoint). An axis turns nothing where
  the standing circuits join all of its pairs. This is done for every plan.
* `StageReplay` serves the collectives of a stage one after the other on the fabric itself (`CircuitWalk`), by
  the law of the engine. This replaces the first count for plans whose exchanges between experts leave the
  nodes. It runs on a layout of fewer replicas and stages (`PlanCircuits._shrunk_layout`).

`PlanCircuits.turns` returns both counts as `PlanTurns`. Which gathers and sums are put off depends on how
long a turn takes, so that the turns of a step follow last (`StageReplays.turns`).
`heliograph.comparison.plan_estimates.under_mode` turns the counts into time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, NamedTuple, TypeVar

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

T = TypeVar("T")

LEVEL = 2.0
"""Octaves of payload within which collectives of one kind take the algorithm of the first of them; a
choice."""
NODES_KEPT, GROUPS_KEPT, STAGES_KEPT = 4, 3, 4
"""Nodes along data-parallel ranks, groups of experts and stages of a layout on which collectives are
replayed; a choice: rings and exchanges have the same neighbours with more."""
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
class Transition:
    """One collective served from given circuits: the circuits after it, and the time it needs.

    Circuits are named by their number in the `CircuitWalk`, which is called its state.
    """

    state: int
    """Circuits after it."""
    turns: int = 0
    """Reconfigurations for it."""
    ports: int = 0
    """Ports that turned, over all reconfigurations."""
    transfer_s: float = 0.0
    """Time of its transfers over the circuits that stood or were turned for it."""
    dedicated_s: float = 0.0
    """The same over the circuits that its axis has when it is served alone."""


@dataclass(kw_only=True)
class Tally:
    """Turns and transfer times, summed over the collectives of a run."""

    state: int
    """Circuits after the run."""
    turns: int = 0
    """Reconfigurations."""
    ports: int = 0
    """Ports that turned, over all reconfigurations."""
    transfer_s: dict[str, float] = field(default_factory=dict)
    """Time of transfers over the circuits that were met, by axis."""
    dedicated_s: dict[str, float] = field(default_factory=dict)
    """The same over circuits of their own, by axis."""

    def add(self, axis: str, transition: Transition) -> None:
        """Count a collective along an axis."""
        self.state = transition.state
        self.turns += transition.turns
        self.ports += transition.ports
        if transition.dedicated_s > 0.0:
            self.transfer_s[axis] = self.transfer_s.get(axis, 0.0) + transition.transfer_s
            self.dedicated_s[axis] = self.dedicated_s.get(axis, 0.0) + transition.dedicated_s

    def slowdown(self, axis: str) -> float:
        """Return the time of an axis' transfers over that on circuits of their own; dimensionless."""
        dedicated_s = self.dedicated_s.get(axis, 0.0)
        return max(1.0, self.transfer_s[axis] / dedicated_s) if dedicated_s > 0.0 else 1.0

    @property
    def overall_slowdown(self) -> float:
        """The same of all axes together."""
        dedicated_s = sum(self.dedicated_s.values())
        return max(1.0, sum(self.transfer_s.values()) / dedicated_s) if dedicated_s > 0.0 else 1.0


class _Served(NamedTuple):
    """A flow group served from given circuits."""

    state: int
    """Circuits that carry it."""
    ports: int
    """Ports that turned for it; 0 if the standing circuits carry it."""
    rate_bytes_per_s: float
    """Rate of each of its flows."""


class CircuitWalk:
    """State machine of the circuits under one rank class, driven by its collectives in order.

    Parameters
    ----------
    traffic : Traffic
        Prices of the class's collectives on a fabric that nobody uses.
    rank_class : int
        The class.
    ranks : int
        Its ranks.

    Notes
    -----
    A state is one set of circuits; it has a number. The law of a transition is the engine's
    (`simulator.engine.network`): if the standing circuits connect all flows of a group, over however many
    lanes, they carry it. Otherwise the fabric turns the ports of the flows that lack a circuit, to the
    circuits of the group's axis, or of the group alone where those of the axis are too many. So the parts of
    an exchange turn circuits one after the other; an exchange that nodes forward may find its hops among the
    circuits of a ring; and a ring that was left one lane of four turns nothing and takes four times as long.
    Each transition is worked out once.
    """

    def __init__(self, traffic: Traffic, rank_class: int, ranks: int) -> None:
        self.ranks = ranks
        self._traffic, self._class = traffic, rank_class
        self._fabric: Fabric = traffic.network.fabric
        self._circuits: list[Circuits] = []
        self._numbers: dict[bytes, int] = {}
        self._served: dict[tuple[int, FlowGroup], _Served] = {}
        self._dedicated: dict[FlowGroup, float] = {}
        self._axis_circuits: dict[str, Circuits] = {}
        self._transitions: dict[tuple[int, int], Transition] = {}
        self._by_operator: dict[tuple[int, int], tuple[Collective, PricedCollective]] = {}
        self._by_level: dict[tuple[Collective, int], PricedCollective] = {}
        self.start = self._number(traffic.network.circuits)

    @property
    def mean_ports(self) -> float:
        """Ports that turn at once, the mean over all distinct reconfigurations so far; 1 before any."""
        turned = [served.ports for served in self._served.values() if served.ports]
        return sum(turned) / len(turned) if turned else 1.0

    def serve_all(self, state: int, operators: Iterable[Collective]) -> Tally:
        """Serve collectives in order, from given circuits."""
        tally = Tally(state=state)
        for operator in operators:
            tally.add(operator.axis, self.serve(tally.state, operator))
        return tally

    def serve(self, state: int, operator: Collective, behind: int = 0) -> Transition:
        """Serve one collective.

        Parameters
        ----------
        state : int
            The circuits that stand.
        operator : Collective
            What is carried.
        behind : int
            Stages by which the class that issues it stands behind the walk's own.
        """
        priced = self._priced(operator, behind)
        key = (state, id(priced))
        if key not in self._transitions:
            self._transitions[key] = self._transition(state, priced)
        return self._transitions[key]

    def _priced(self, operator: Collective, behind: int) -> PricedCollective:
        """Return the flow groups of a collective; those of nearly equal payloads are the same."""
        known = self._by_operator.get((id(operator), behind))
        if known is None:  # kept with its operator, so that no other can take over the id
            level = round(math.log2(max(operator.payload_bytes, 1.0)) / LEVEL)
            key = (replace(operator, name="", phase=Phase.FORWARD, payload_bytes=level), behind)
            if key not in self._by_level:
                self._by_level[key] = self._traffic.plan(operator, self._class - behind)
            known = self._by_operator[id(operator), behind] = operator, self._by_level[key]
        return known[1]

    def _transition(self, state: int, priced: PricedCollective) -> Transition:
        """Serve the flow groups of a collective one after the other."""
        turns = ports = 0
        transfers_s: list[float] = []
        dedicated_s: list[float] = []
        for group, size_bytes, count in priced.parts:
            served = self._serve_group(state, group)
            state = served.state
            turns += served.ports > 0
            ports += served.ports
            if size_bytes > 0.0:
                transfers_s.append(size_bytes * count / served.rate_bytes_per_s)
                dedicated_s.append(size_bytes * count / self._dedicated_rate(group))
        if priced.in_turns:  # its price has a turn for each part
            turns -= len(priced.parts)
        total = max if priced.at_once else sum
        return Transition(
            state=state,
            turns=turns,
            ports=ports,
            transfer_s=float(priced.protocol_s + total(transfers_s or [0.0])),
            dedicated_s=float(priced.protocol_s + total(dedicated_s or [0.0])),
        )

    def _serve_group(self, state: int, group: FlowGroup) -> _Served:
        """Serve a flow group, turning circuits if those that stand do not connect it."""
        key = (state, group)
        if key not in self._served:
            before, after, ports = self._circuits[state], state, 0
            if not self._fabric.connected(before, group.flows):
                turned, _ = self._fabric.configure(before, group.flows, group.demand)
                after, ports = self._number(turned), self._ports_turned(before, turned)
            rate = self._rate(self._circuits[after], group)
            self._served[key] = _Served(state=after, ports=ports, rate_bytes_per_s=rate)
        return self._served[key]

    def _dedicated_rate(self, group: FlowGroup) -> float:
        """Return the rate of a group in B/s over the circuits that its axis has when it is served alone."""
        if group not in self._dedicated:
            axis = group.flows.axis
            if axis not in self._axis_circuits:
                self._axis_circuits[axis] = self._traffic.network.axis_circuits(group.demand, axis)
            circuits = self._axis_circuits[axis]
            if not self._fabric.connected(circuits, group.flows):
                circuits = self._fabric.configure(circuits, group.flows, group.demand)[0]
            self._dedicated[group] = self._rate(circuits, group)
        return self._dedicated[group]

    def _rate(self, circuits: Circuits, group: FlowGroup) -> float:
        """Return the rate of a group in B/s over circuits, alone on them."""
        loads, graph = self._fabric.loads(circuits, group.flows), self._fabric.graph(circuits)
        if not loads.links.size:
            return np.inf
        return float((graph.capacity_bytes_per_s[loads.links] / loads.usage).min())

    def _ports_turned(self, before: Circuits, after: Circuits) -> int:
        """Return the ports with a new peer; at least one, for a circuit that goes dark is a turn."""
        old, new = self._fabric.lane_peers(before), self._fabric.lane_peers(after)
        return max(int(((old != new) & (new >= 0)).sum()), 1)

    def _number(self, circuits: Circuits) -> int:
        """Return the number of circuits, the same for those with the same peers."""
        key = self._fabric.lane_peers(circuits).tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self._circuits)
            self._circuits.append(circuits)
        return self._numbers[key]

    def serve_repeated(self, block: Sequence[Collective]) -> Tally:
        """Serve a block in the middle of many equal ones: it begins with the circuits of the one before."""
        return self.serve_all(self.serve_all(self.start, block).state, block)


class StageSend(NamedTuple):
    """A send that needs ports of a stage."""

    send: Collective
    """The send."""
    behind: int
    """Stages by which its sender stands behind the stage: 0 for the stage itself."""


Run = tuple[Collective, ...]
"""Collectives in the order in which they are issued."""


@dataclass(frozen=True, kw_only=True)
class StageCollectives:
    """Collectives of a pipeline stage in a step that leave the nodes. Pairs: forward pass, backward pass."""

    blocks: tuple[Run, Run]
    """Of one block."""
    block_turns: tuple[float, float]
    """Turns of a block among others like it; dimensionless."""
    ends: tuple[tuple[Run, Run], tuple[Run, Run]]
    """Before and after all blocks: of embedding and head."""
    sums: Run
    """Sums of gradients; gathers of parameters take the same paths."""
    sends: tuple[tuple[StageSend, ...], tuple[StageSend, ...]]
    """Sends of the stage, and of the neighbour that sends to it."""
    pieces: int
    """Pieces in which the gradients and parameters of all its chunks travel."""
    chunks: int
    """Chunks of the stage."""
    zero: int
    """Stage of ZeRO: from 1 parameters are gathered once a step, from 2 every microbatch sums gradients."""
    gathers: int
    """Gathers of parameters by every microbatch: 0, 1 (forward) or 2 (also backward)."""
    several_microbatches: bool
    """Whether a step has more than one microbatch."""


@dataclass(frozen=True, kw_only=True)
class ByKind:
    """Flag for the parameters of experts, and for all others."""

    dense: bool = False
    experts: bool = False

    def holds_for(self, operator: Collective) -> bool:
        """Return the flag of the parameters that a sum or gather moves."""
        return self.experts if operator.axis == Axis.REPLICAS else self.dense


@dataclass(frozen=True, kw_only=True)
class Deferred:
    """Gathers and sums too short for ports to leave a pass for (`simulator.engine.lookahead.short_s`)."""

    gathers: ByKind = ByKind()
    sums: ByKind = ByKind()


class StageReplay:
    """Collectives of one stage served in order, pass by pass; counts turns beyond those inside blocks.

    Parameters
    ----------
    walk : CircuitWalk
        The circuits.
    stage : StageCollectives
        What is served.
    deferred : Deferred
        Gathers and sums that are put off.

    Notes
    -----
    Ports are first come, first served. Gathers and sums are issued while a piece of a pass computes, so they
    alternate with the collectives of that piece, one for one. Deferred gathers are served after the piece;
    deferred sums too where a gather follows, otherwise when all passes have ended. Sends of a stage follow
    each of its chunks, at the same time as those of its neighbours.
    """

    def __init__(self, walk: CircuitWalk, stage: StageCollectives, deferred: Deferred) -> None:
        self._walk, self._stage = walk, stage
        self._state = walk.start
        self.moved = Tally(state=walk.start)
        """Gathers and sums so far."""
        self._beside: list[Collective] = []
        self._after_piece: list[Collective] = []
        self._after_passes: list[Collective] = []
        self._late_gathers = [one for one in stage.sums if deferred.gathers.holds_for(one)]
        self._prompt_gathers = [one for one in stage.sums if not deferred.gathers.holds_for(one)]
        self._late_sums = [one for one in stage.sums if deferred.sums.holds_for(one)]
        self._prompt_sums = [one for one in stage.sums if not deferred.sums.holds_for(one)]

    def run_microbatch(self, *, first: bool = False, last: bool = False) -> float:
        """Run both passes of a microbatch with its gathers and sums, the first or last one of a step."""
        stage = self._stage
        turns = self.run_pass(0, gathers=stage.gathers > 0 or (stage.zero > 0 and first))
        return turns + self.run_pass(1, gathers=stage.gathers > 1, sums=stage.zero >= 2 or last)

    def run_pass(self, way: int, *, gathers: bool = False, sums: bool = False) -> float:
        """Run a pass of a microbatch, forward (0) or backward (1); return its turns less those of blocks."""
        stage = self._stage
        pieces = stage.pieces if gathers or sums else stage.chunks
        before, after = stage.ends[way]
        turns = sum(map(self._serve, before))
        for piece in range(pieces):
            if gathers:  # of the next piece
                self._beside += self._prompt_gathers
                self._after_piece += self._late_gathers
            turns += self._run_piece(stage.blocks[way])
            late, self._after_piece = self._after_piece, []
            turns += sum(map(self._move, late))
            if sums:
                self._beside += self._prompt_sums
                put_off = self._after_piece if gathers else self._after_passes
                put_off += self._late_sums
            if (piece + 1) % max(1, pieces // stage.chunks) == 0:
                turns += self._send(way)
        turns += sum(map(self._serve, after))
        return turns - pieces * stage.block_turns[way]

    def finish(self) -> int:
        """Serve what is left when all passes have ended, and return its turns."""
        left = self._beside + self._after_piece + self._after_passes
        self._beside, self._after_piece, self._after_passes = [], [], []
        return sum(map(self._move, left))

    def _run_piece(self, block: Sequence[Collective]) -> int:
        """Serve the collectives of one piece, alternating with what is beside it; return the turns."""
        turns = 0
        for operator in block:
            if self._beside:
                turns += self._move(self._beside.pop(0))
            turns += self._serve(operator)
        return turns

    def _send(self, way: int) -> int:
        """Serve a stage's send and that of its neighbour; return the turns of its own."""
        turns = 0
        for send, behind in self._stage.sends[way]:
            transition = self._walk.serve(self._state, send, behind)
            self._state = transition.state
            turns += 0 if behind else transition.turns
        return turns

    def _serve(self, operator: Collective) -> int:
        """Serve a collective of the pass and return its turns."""
        transition = self._walk.serve(self._state, operator)
        self._state = transition.state
        return transition.turns

    def _move(self, operator: Collective) -> int:
        """Serve a gather or a sum and return its turns."""
        transition = self._walk.serve(self._state, operator)
        self._state = transition.state
        self.moved.add(operator.axis, transition)
        return transition.turns


@dataclass(frozen=True, kw_only=True)
class StageTurns(Generic[T]):
    """Turns of a stage's circuits in a step beyond those inside blocks; all dimensionless.

    Numbers of one plan, or columns of shape [P].
    """

    per_microbatch: T
    """Of every microbatch, gathers and sums included."""
    per_step: T
    """Of the step, beyond those of its microbatches."""
    first_bare: T
    """Of the first microbatch without gathers and sums."""
    next_bare: T
    """Of every further microbatch without gathers and sums."""
    sums_slowdown: T
    """Time of gathers and sums over that on circuits of their own."""


class StepReplay:
    """Turns of one stage in a whole step, replayed once for each set of deferred gathers and sums."""

    def __init__(self, walk: CircuitWalk, stage: StageCollectives) -> None:
        self._walk, self._stage = walk, stage
        self._known: dict[Deferred, StageTurns[float]] = {}

    def turns(self, deferred: Deferred) -> StageTurns[float]:
        """Return the turns where some gathers and sums are deferred."""
        if deferred not in self._known:
            self._known[deferred] = self._count(deferred)
        return self._known[deferred]

    def _count(self, deferred: Deferred) -> StageTurns[float]:
        """Replay microbatches until their turns repeat, without gathers and sums and then with them."""
        passes = StageReplay(self._walk, self._stage, deferred)
        first_bare, _, next_bare = (passes.run_pass(0) + passes.run_pass(1) for _ in range(3))
        replay = StageReplay(self._walk, self._stage, deferred)
        if not self._stage.several_microbatches:
            only = replay.run_microbatch(first=True, last=True) + replay.finish()
            per_microbatch, per_step = next_bare, only - next_bare
        else:
            first = replay.run_microbatch(first=True)
            replay.run_microbatch()  # not yet like those that follow it
            per_microbatch = replay.run_microbatch()
            last = replay.run_microbatch(last=True)
            per_step = first + last - 2 * per_microbatch
            left = replay.finish()
            if self._stage.zero >= 2:  # sums of every microbatch, of which there were four
                per_microbatch += left / 4
            else:
                per_step += left
        return StageTurns(
            per_microbatch=per_microbatch,
            per_step=per_step,
            first_bare=first_bare,
            next_bare=next_bare,
            sums_slowdown=replay.moved.overall_slowdown,
        )


@dataclass(frozen=True, kw_only=True)
class StepTurns(StageTurns[np.ndarray]):
    """Turns of P plans whose exchanges between experts leave the nodes, by replay of their stages."""

    known: np.ndarray
    """Whether a plan's stage was replayed, shape [P]; where not, its other entries mean nothing."""
    block: np.ndarray
    """Turns in a block, forward and backward, shape [P, 2]; dimensionless."""
    ports: np.ndarray
    """Ports that turn at once, on average, shape [P]."""
    sums_wait: np.ndarray
    """Whether all sums wait for the exchanges of passes, shape [P]."""


@dataclass(frozen=True, kw_only=True)
class StageReplays:
    """Replays of the stages of P plans, of which Q differ."""

    number: np.ndarray
    """Number of each plan's replay, shape [P]."""
    replays: tuple[StepReplay | None, ...]
    """The Q replays; None where no exchange of experts leaves the nodes."""
    block: np.ndarray
    """Turns in a block, forward and backward, shape [Q, 2]; dimensionless."""
    ports: np.ndarray
    """Ports that turn at once, on average, shape [Q]."""
    gather_s: np.ndarray
    """Gather of one piece of the parameters of experts, and of all others, shape [Q, 2]."""
    sum_s: np.ndarray
    """Sum of the gradients of one piece, likewise, shape [Q, 2]."""

    @property
    def known(self) -> np.ndarray:
        """Whether a plan's stage is replayed, shape [P]."""
        return np.array([replay is not None for replay in self.replays])[self.number]

    def turns(self, turn_s: float) -> StepTurns:
        """Return the turns of all plans where one reconfiguration takes `turn_s`."""
        count = len(self.replays)
        columns = {one.name: np.ones(count) for one in fields(StageTurns)}
        waits = np.zeros(count, dtype=bool)
        late_gathers, late_sums = (times_s < short_s(turn_s) for times_s in (self.gather_s, self.sum_s))
        for number, replay in enumerate(self.replays):
            if replay is None:
                continue
            gathers, sums = (
                ByKind(experts=bool(late[number, 0]), dense=bool(late[number, 1]))
                for late in (late_gathers, late_sums)
            )
            turns = replay.turns(Deferred(gathers=gathers, sums=sums))
            for name, column in columns.items():
                column[number] = getattr(turns, name)
            waits[number] = sums.dense and sums.experts
        return StepTurns(
            known=self.known,
            block=self.block[self.number],
            ports=self.ports[self.number],
            sums_wait=waits[self.number],
            **{name: column[self.number] for name, column in columns.items()},
        )


@dataclass(frozen=True, kw_only=True)
class PlanTurns:
    """Turns and slowed traffic of P plans on circuits that turn to the axis which asks."""

    block: np.ndarray
    """Turns in a block, forward and backward together, shape [P]; dimensionless."""
    slowdown: Mapping[str, np.ndarray]
    """Time of an axis' traffic in a block over that on circuits of its own, by axis, forward and backward,
    shape [P, 2] each; dimensionless."""
    clashes: Mapping[str, np.ndarray]
    """Whether circuits turn between traffic inside passes and that of an axis outside them (``dpcp``,
    ``pp``), shape [P] each."""
    stages: StageReplays
    """Replays of stages, where exchanges of experts leave the nodes."""


@dataclass(frozen=True, kw_only=True)
class _BlockCircuits:
    """Circuits in one of many equal blocks in a row."""

    turns: int
    """Reconfigurations."""
    standing: str
    """Axis for which circuits stand at its end; empty if none leaves the nodes."""
    slowdown: Mapping[str, float]
    """Mean time of an axis' traffic over that on circuits of its own, by axis; dimensionless."""


class PeerPairs:
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
        """Return the sending node and receiving endpoint of an axis' pairs, each as one number, shape [n]."""
        if axis not in self._known:
            sources, destinations = self._neighbours(axis)
            size = self._fabric.node_size
            off_node = sources // size != destinations // size
            flows = Flows(sources=sources, destinations=destinations, size_bytes=1.0, axis=axis)
            off_node &= self._fabric.turns_for(flows)
            numbers = sources[off_node] // size * self._fabric.endpoints + destinations[off_node]
            self._known[axis] = np.unique(numbers)
        return self._known[axis]

    def _neighbours(self, axis: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the endpoints that send along an axis and those that receive, one entry for each pair.

        Neighbouring stages; every pair of a group of experts; neighbours in a ring of all other groups.
        """
        layout, stage = self._layout, inner_class(self._layout)
        if axis == Axis.PIPELINE:
            sources = layout.members(stage)
            receivers = [layout.members(other) for other in (stage - 1, stage + 1) if 0 <= other < layout.pp]
        else:
            groups = layout.groups(axis, stage)
            sources = groups.ravel()
            shifts = groups.shape[1] if axis == Axis.EXPERT else min(groups.shape[1], 2)
            receivers = [np.roll(groups, -shift, axis=1).ravel() for shift in range(1, shifts)]
        none = np.empty(0, dtype=int)
        return np.tile(sources, len(receivers)), np.concatenate([none, *receivers])

    def slowdown(self, axis: str, standing: str) -> float:
        """Return the slowdown of an axis over circuits that stand for another; infinite if circuits turn."""
        own, lit = self.pairs(axis), self.pairs(standing)
        if not len(own) or axis == standing:
            return 1.0
        lanes = self._fabric.traits.peers or math.inf
        if max(len(own), len(lit)) > lanes * self._layout.ranks_per_class:  # their circuits take turns
            return math.inf
        if len(lit) < len(own) or not np.isin(own, lit, assume_unique=True).all():
            return math.inf
        return len(lit) / len(own)

    def repeated_block(self, axes: Sequence[str]) -> _BlockCircuits:
        """Return the circuits of a block among equal ones, whose traffic goes along axes in this order."""
        outside = [axis for axis in axes if len(self.pairs(axis))]
        standing, turns = "", 0
        slowdowns: dict[str, list[float]] = {}
        for counted in (False, True):  # the second block starts with the circuits of the one before
            for axis in outside:
                slowdown = self.slowdown(axis, standing) if standing else math.inf
                if math.isinf(slowdown):
                    standing, slowdown, turns = axis, 1.0, turns + counted
                if counted:
                    slowdowns.setdefault(axis, []).append(slowdown)
        means = {axis: float(np.mean(each)) for axis, each in slowdowns.items()}
        return _BlockCircuits(turns=turns, standing=standing, slowdown=means)


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanCircuits:
    """Circuits under P plans of one model on one fabric that turns them to the axis which asks."""

    config: TransformerConfig
    """The model."""
    plans: PlanArrays
    """The plans."""
    sum_groups: tuple[SumGroups, SumGroups]
    """Groups that sum gradients: of all parameters but those of experts, and of these."""
    gathers: np.ndarray
    """Gathers of parameters by every microbatch, shape [P]."""
    pieces: np.ndarray
    """Pieces in which a chunk's gradients and parameters travel, shape [P]."""
    shapes: Sequence[ShapeWork]
    """Work of each distinct shape of a rank's share."""
    shape_of: np.ndarray
    """Number of each plan's shape, shape [P]."""
    layouts: Sequence[RankLayout]
    """Distinct layouts of ranks."""
    layout_of: np.ndarray
    """Number of each plan's layout, shape [P]."""
    prices: LinePrices
    """Collectives on the fabric."""
    inside: Mapping[tuple[int, str], Collective]
    """One collective inside passes, by number of layout and axis."""
    local: Callable[[str, int], int]
    """Ranks of a group that share a node, of an axis on the layout of a number."""
    walks: dict[tuple[object, ...], CircuitWalk | None]
    """Walks of earlier calls, by shrunk layout."""
    _sums: dict[int, Run] = field(default_factory=dict, init=False)

    def turns(self, gather_s: np.ndarray, sum_s: np.ndarray, experts_share: np.ndarray) -> PlanTurns:
        """Return the turns and the slowed traffic of all plans.

        Parameters
        ----------
        gather_s, sum_s : numpy.ndarray
            One gather of the parameters and one sum of the gradients of three stages, shape [P, 3] each.
        experts_share : numpy.ndarray
            Share of those in which the parameters of experts move, shape [P].
        """
        first, number_of = distinct((self.shape_of, self.layout_of))
        if not self._turn:
            first, number_of = first[:0], number_of[:0]
        block = np.zeros(len(first))
        slowdown = {axis: np.ones((len(first), len(BOTH))) for axis in AXES}
        clashes = {axis: np.zeros(len(first), dtype=bool) for axis in ("dpcp", Axis.PIPELINE)}
        peers = [PeerPairs(layout, self.prices.fabric) for layout in self.layouts]
        for number, row in enumerate(first):
            pairs, shape = peers[self.layout_of[row]], self.shapes[self.shape_of[row]]
            standing = ""
            for way, direction in enumerate(BOTH):
                circuits = pairs.repeated_block(shape.block[direction].axes)
                standing = circuits.standing or standing
                block[number] += circuits.turns
                for axis, factor in circuits.slowdown.items():
                    slowdown[axis][number, way] = factor
            outside = {
                "dpcp": str(self.plans.array_plan.axes.gradient_axis[row]),
                Axis.PIPELINE: Axis.PIPELINE,
            }
            for name, axis in outside.items() if standing else ():
                clashes[name][number] = math.isinf(pairs.slowdown(axis, standing))
        by_plan = {axis: column[number_of] for axis, column in slowdown.items()}
        shares = np.stack([experts_share, 1.0 - experts_share], axis=1)
        shares = shares / (self.pieces * chunks_of(self.plans))[:, None]
        piece_gather_s, piece_sum_s = (times_s.max(axis=1)[:, None] * shares for times_s in (gather_s, sum_s))
        stages, replayed = self._replay_stages(piece_gather_s, piece_sum_s)
        known = stages.known[:, None]
        if known.any():
            by_plan = {axis: np.where(known, replayed[axis], column) for axis, column in by_plan.items()}
        return PlanTurns(
            stages=stages,
            block=block[number_of],
            slowdown=by_plan,
            clashes={axis: column[number_of] for axis, column in clashes.items()},
        )

    @property
    def _turn(self) -> bool:
        """Whether the fabric has circuits that turn."""
        return self.prices.fabric.traits.policy not in {None, CircuitPolicy.STATIC}

    def _replay_stages(
        self, gather_s: np.ndarray, sum_s: np.ndarray
    ) -> tuple[StageReplays, dict[str, np.ndarray]]:
        """Return replays of stages, and the slowdown of each axis in a block of theirs, shape [P, 2].

        Parameters
        ----------
        gather_s, sum_s : numpy.ndarray
            Gather and sum of one piece, of the parameters of experts and of all others, shape [P, 2] each.
        """
        several = self.plans.microbatches > 1
        all_chunks = chunks_of(self.plans)
        copies = np.where(two_copies(self.plans), 2, 1)
        pieces, chunks = self.pieces * all_chunks // copies, all_chunks // copies
        zero, vpp = self.plans["zero"], self.plans["vpp"]
        first, number_of = distinct(
            [self.shape_of, self.layout_of, pieces, chunks, several, zero, self.gathers, vpp]
        )
        if self._turn and self.prices.fabric.traits.endpoint_lanes is not None:
            walks = [self._walk(row) for row in first.tolist()]
        else:
            first, number_of = first[:1], np.zeros_like(number_of)
            walks = [None]
        slowdown = {axis: np.ones((len(first), len(BOTH))) for axis in AXES}
        block, ports = np.zeros((len(first), len(BOTH))), np.ones(len(first))
        replays: list[StepReplay | None] = [None] * len(first)
        for number, (row, walk) in enumerate(zip(first.tolist(), walks, strict=True)):
            if walk is None:
                continue
            runs = self._block_runs(row)
            tallies = [walk.serve_repeated(run) for run in runs]
            others = self.config.layers - self.config.expert_layers if self.config.experts > 1 else 0
            with_experts = 1.0 - others / self.config.layers
            block[number] = [tally.turns * with_experts for tally in tallies]
            for axis, factors in slowdown.items():
                factors[number] = [tally.slowdown(axis) for tally in tallies]
            stage = StageCollectives(
                blocks=runs,
                ends=self._end_runs(row),
                block_turns=(float(block[number, 0]), float(block[number, 1])),
                sums=self._stage_sums(row),
                sends=self._stage_sends(row),
                pieces=int(pieces[row]),
                chunks=int(chunks[row]),
                zero=int(zero[row]),
                gathers=int(self.gathers[row]),
                several_microbatches=bool(several[row]),
            )
            replays[number] = replay = StepReplay(walk, stage)
            replay.turns(Deferred())  # `mean_ports` is that of the turns met so far
            ports[number] = walk.mean_ports * self.layouts[self.layout_of[row]].ranks_per_class / walk.ranks
        found = StageReplays(
            number=number_of,
            replays=tuple(replays),
            block=block,
            ports=ports,
            gather_s=gather_s[first],
            sum_s=sum_s[first],
        )
        return found, {axis: column[number_of] for axis, column in slowdown.items()}

    def _leaving(self, run: Run, layout: int) -> Run:
        """Return the collectives of a run whose groups span several nodes."""
        return tuple(one for one in run if self.local(one.axis, layout) < one.size)

    def _block_runs(self, row: int) -> tuple[Run, Run]:
        """Return the collectives of a block that leave the nodes, forward and backward."""
        shape, layout = self.shapes[self.shape_of[row]], int(self.layout_of[row])
        forward, backward = (self._leaving(shape.block_run[way], layout) for way in BOTH)
        return forward, backward

    def _end_runs(self, row: int) -> tuple[tuple[Run, Run], tuple[Run, Run]]:
        """Return the collectives before and after all blocks, forward and backward, that leave the nodes.

        Only a single stage has both ends; the inner stage that stands for several has none.
        """
        if self.plans["pp"][row] > 1:
            return ((), ()), ((), ())
        shape, layout = self.shapes[self.shape_of[row]], int(self.layout_of[row])
        (forward_in, forward_out), (backward_in, backward_out) = (
            [self._leaving(run, layout) for run in shape.end_runs[way]] for way in BOTH
        )
        return (forward_in, forward_out), (backward_out, backward_in)

    def _walk(self, row: int) -> CircuitWalk | None:
        """Return the walk of a row's inner stage; None if no exchange of experts leaves the nodes."""
        number = int(self.layout_of[row])
        exchange = self.inside.get((number, "ep"))
        if exchange is None or self.local("ep", number) == exchange.size:
            return None
        layout, shape_key = self._shrunk_layout(row)
        key = (*shape_key, bool(self.plans["zero"][row] > 0))
        if key not in self.walks:
            self.walks[key] = self._new_walk(row, layout)
        return self.walks[key]

    def _new_walk(self, row: int, layout: RankLayout) -> CircuitWalk | None:
        """Return a walk on a layout, which the fabric prepares for axes in the order of a step."""
        number = int(self.layout_of[row])
        inside = [self.inside[number, axis] for axis in ("cp", "tp", "ep") if (number, axis) in self.inside]
        inside = list(self._leaving(tuple(inside), number))
        sums = self._stage_sums(row)
        axes = [*sums, *inside] if self.plans["zero"][row] > 0 else [*inside, *sums]
        if layout.pp > 1:
            axes.append(SEND)
        fabric: Any = self.prices.fabric
        endpoints = -(-layout.ranks // fabric.node_size) * fabric.node_size
        traffic = LinePrices(replace(fabric, endpoints=endpoints)).together(axes, layout)
        return None if traffic is None else CircuitWalk(traffic, inner_class(layout), layout.ranks_per_class)

    def _shrunk_layout(self, row: int) -> tuple[RankLayout, tuple[object, ...]]:
        """Return a layout of fewer replicas and stages with the turns of a row's, and its key.

        Of data-parallel ranks as many are kept as span `NODES_KEPT` nodes and hold whole groups of experts
        `GROUPS_KEPT` times; of stages `STAGES_KEPT` where they stand farther apart than all other ranks.
        """
        plan, order, size = self.plans.plan(row), self.plans.placement(row), self.prices.fabric.node_size
        axes, layout = plan.axes, plan.layout
        near = strides(order, axes)["dp"]
        least = max(NODES_KEPT, NODES_KEPT * size // near)
        replicas = int(axes.expert_replicas)

        def enough(dp: int) -> bool:
            """Return whether a number of data-parallel ranks has the neighbours of all of them."""
            groups, rest = divmod(replicas * dp, axes.dp)
            same_phase = (dp * near) % size == (axes.dp * near) % size  # of ranks within nodes
            return (
                axes.dp % dp == 0
                and dp >= least
                and not rest
                and same_phase
                and (groups >= min(replicas, GROUPS_KEPT))
            )

        dp = next((count for count in range(1, axes.dp) if enough(count)), axes.dp)
        pp = min(axes.pp, STAGES_KEPT) if order.split()[-1] == Axis.PIPELINE else axes.pp
        layout = replace(layout, dp=dp, pp=pp)
        key = (axes.tp, axes.cp, dp, pp, axes.ep, order)
        if order != PLACEMENTS[0]:
            layout = placed(layout, endpoints_of(replace(axes, dp=dp, pp=pp), order))
        return layout, key

    def _stage_sums(self, row: int) -> Run:
        """Return the sums of gradients of a row's inner stage that leave the nodes."""
        layout = int(self.layout_of[row])
        if layout not in self._sums:
            width = self.plans.base.precision.grad_bytes
            sums = []
            for groups in self.sum_groups:
                axis, size = str(groups.axis[row]), int(groups.ranks[row])
                count = float(groups.parameters[row, 1])
                if count > 0.0 and self.local(axis, layout) < size:
                    sums.append(replace(SUM, axis=axis, size=size, payload_bytes=count * width))
            self._sums[layout] = tuple(sums)
        return self._sums[layout]

    def _stage_sends(self, row: int) -> tuple[tuple[StageSend, ...], tuple[StageSend, ...]]:
        """Return the sends of a row's inner stage and of the neighbours that send to it, each way.

        Of two stages with several chunks, each sends to the other both ways.
        """
        layout, _ = self._shrunk_layout(row)
        stage = inner_class(layout)
        own, back = StageSend(send=SEND, behind=0), StageSend(send=RETURN, behind=0)
        from_before, from_next = StageSend(send=SEND, behind=1), StageSend(send=RETURN, behind=-1)
        forward, backward = (own, from_before), (back, from_next)
        if layout.pp == 2 and self.plans["vpp"][row] > 1:
            forward = backward = (own, from_next)
        stages = range(layout.pp)

        def existing(sends: tuple[StageSend, ...]) -> tuple[StageSend, ...]:
            return tuple(
                one
                for one in sends
                if stage - one.behind in stages and stage - one.behind + one.send.shift in stages
            )

        return existing(forward), existing(backward)
