"""A recorded graph of ranks on the engine's clock: the same network, circuits and collectives, any groups.

A task starts when all it waits for is done and its channel is free. Collectives and messages are carried by
`simulator.engine.network` as those of a training step are; compute takes as long as was recorded, or as long
as the units of a node need.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import simpy

from simulator.collectives.algorithms import Algorithm, vector_bytes
from simulator.collectives.flow_groups import FlowGroup, PricedCollective, main_kind, ring_flows
from simulator.collectives.traffic import Traffic, carry_collective, play
from simulator.engine.lookahead import begun_by, rank_lookahead
from simulator.engine.network import Network, Tally, circuit_spans
from simulator.engine.rank_graph import Message, RankGraph, RankTask, Recorded, Together, Work
from simulator.errors import RouteError
from simulator.fabric import Fabric, lone_cards
from simulator.interfaces import Bound, Cost, Flows
from simulator.node import Node
from simulator.operators import Collective, CollectiveKind, Elementwise, MatMul, Phase
from simulator.results import Span, Stream, Trace, category


class Costs(Protocol):
    """Whatever knows how long work takes: a node, or a unit."""

    def cost(self, operator: MatMul | Elementwise) -> Cost:
        """Return time and dynamic energy of one run."""
        ...


@dataclass(frozen=True, kw_only=True)
class Clockwork:
    """A unit on which recorded work takes as long as it did, and nothing else runs."""

    name: str = "recorded"
    """Name shown in tables and traces."""
    static_w: float = 0.0
    """Power; the units that it stands in for have theirs."""

    def accepts(self, operator: MatMul | Elementwise) -> bool:
        """Return whether the duration of an operator is known."""
        return isinstance(operator, Recorded)

    def cost(self, operator: MatMul | Elementwise) -> Cost:
        """Return the recorded duration, with no energy: none was recorded."""
        if not isinstance(operator, Recorded):
            msg = f"'{operator.name}' has no recorded duration"
            raise TypeError(msg)
        return Cost(time_s=operator.duration_s, bound=Bound.COMPUTE)

    def numerics(self, phase: Phase) -> Any:  # noqa: ANN401 - never executed
        """Raise: a recording multiplies nothing."""
        msg = "a recording has no numerics"
        raise TypeError(msg)


def as_recorded(node: Node) -> Node:
    """Return a node on which recorded work takes its recorded time, all else what its units need."""
    return replace(node, units=(Clockwork(), *node.units))


class NamedGroups:
    """Groups of ranks by axis and number, by which traffic asks for them.

    Groups of one size whose ranks lie equally far apart, either way, are of one axis, as those of a grid are;
    so circuits that serve an axis serve all of them.

    Parameters
    ----------
    graph : RankGraph
        Whose tasks' groups are numbered.
    """

    def __init__(self, graph: RankGraph) -> None:
        self._places: dict[tuple[tuple[int, ...], ...], tuple[str, int]] = {}
        self._groups: list[np.ndarray] = []
        for task in graph.tasks:
            if not isinstance(task.operation, Work):
                self.place(task.operation)

    def place(self, operation: Together | Message) -> tuple[str, int]:
        """Return axis and number of an operation's groups; a message's are its pairs."""
        if isinstance(operation, Together):
            groups = operation.groups
        else:
            groups = tuple(zip(operation.sources, operation.destinations, strict=True))
        found = self._places.get(groups)
        if found is None:
            table = np.array(groups, dtype=np.int64)
            apart = sorted({tuple(row) for row in np.abs(np.diff(table, axis=1)).tolist()})
            steps = " or ".join(" ".join(map(str, dict.fromkeys(row))) for row in apart)
            found = self._places[groups] = (f"{table.shape[1]} ranks {steps} apart", len(self._groups))
            self._groups.append(table)
        return found

    def groups(self, axis: str, rank_class: int) -> np.ndarray:
        """Return the groups of a number, shape [groups, ranks in a group]."""
        return self._groups[rank_class]

    def members(self, rank_class: int) -> np.ndarray:
        """Raise: messages are between pairs, not classes."""
        msg = "ranks of a recorded graph have no class to send to"
        raise TypeError(msg)


class Replay:
    """A recorded graph on one fabric; `run` gives the trace.

    Parameters
    ----------
    graph : RankGraph
        What is to be done.
    node : Costs
        The accelerator that every rank has (see `as_recorded`), or `Clockwork` alone.
    fabric : Fabric
        What connects them.
    weigh : callable, optional
        Weight of a message of some bytes where links are shared; all alike if None.

    Raises
    ------
    RouteError
        If the fabric has fewer endpoints than the graph has ranks, or cannot carry a flow.
    """

    def __init__(
        self,
        graph: RankGraph,
        node: Costs,
        fabric: Fabric,
        *,
        weigh: Callable[[float], float] | None = None,
    ) -> None:
        if fabric.endpoints < graph.ranks:
            msg = f"{graph.name} has {graph.ranks} ranks; {fabric.name} has {fabric.endpoints} endpoints"
            raise RouteError(msg)
        self.graph = graph
        self.node = node
        self.fabric = fabric
        self.env = simpy.Environment()
        self._groups = NamedGroups(graph)
        self._collectives = {
            task.id: collective_of(task, task.operation, self._groups)
            for task in graph.tasks
            if not isinstance(task.operation, Work)
        }
        self._numbers = {
            task.id: self._groups.place(task.operation)[1]
            for task in graph.tasks
            if not isinstance(task.operation, Work)
        }
        self._ended: set[int] = set()
        demand = self._demand()
        self.network = Network(self.env, fabric, tuple(demand.values()), weigh=weigh)
        self.traffic = Traffic(self._groups, fabric, self.network, demand, by_axis=True)
        self._lookahead = rank_lookahead(
            graph, self._flow_groups, self.network, fabric.node_size, self._ended.__contains__
        )
        self._tasks = {task.id: task for task in graph.tasks}
        self._waiting = {task.id: len(task.after) for task in graph.tasks}
        self._busy: set[str] = set()
        self._queues: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        self._spans: list[Span] = []
        self._tally = Tally()

    def _demand(self) -> dict[tuple[str, int, int], Flows]:
        """Return the whole traffic by (axis, number of the groups, 0), which decides the circuits."""
        totals: defaultdict[tuple[str, int, int], float] = defaultdict(float)
        by_kind: defaultdict[tuple[str, int, int], defaultdict[CollectiveKind, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        pairs: set[tuple[str, int, int]] = set()
        for task in self.graph.tasks:
            one = self._collectives.get(task.id)
            if not isinstance(task.operation, Work) and one is not None and one.size > 1:
                key = (*self._groups.place(task.operation), 0)
                totals[key] += one.payload_bytes
                by_kind[key][one.kind] += vector_bytes(one.kind, one.payload_bytes, one.size)
                if isinstance(task.operation, Message):
                    pairs.add(key)
        found = {}
        for key, total in totals.items():
            groups = self._groups.groups(key[0], key[1])
            if key in pairs:
                sources, destinations = groups.T
                found[key] = Flows(
                    sources=sources,
                    destinations=destinations,
                    size_bytes=total,
                    axis=key[0],
                    kind=CollectiveKind.SEND,
                )
            else:
                kind = main_kind(by_kind[key])
                found[key] = ring_flows(groups, total, key[0], kind, lone_cards(self.fabric))
        return found

    def run(self) -> Trace:
        """Return the trace of the whole graph."""
        for task in self.graph.tasks:
            if not task.after:
                self._offer(task)
        play(self.network)
        if len(self._ended) < len(self._tasks):
            msg = f"{self.graph.name} stops with {len(self._tasks) - len(self._ended)} tasks undone"
            raise RuntimeError(msg)
        self._spans += circuit_spans(self.network.changes, self.graph)
        return self._tally.trace(self._spans, self.network.changes)

    def _offer(self, task: RankTask) -> None:
        """Start a task whose time has come, or queue it behind the one that has its channel."""
        if task.channel and task.channel in self._busy:
            heapq.heappush(self._queues[task.channel], (self.env.now, task.id))
            return
        if task.channel:
            self._busy.add(task.channel)
        start_s = self.env.now
        if isinstance(task.operation, Work):
            self._work(task, task.operation, start_s)
            return
        moved = self.env.process(self._carry(task))
        moved.callbacks.append(self._ending(task, start_s))

    def _ending(self, task: RankTask, start_s: float) -> Callable[[simpy.Event], None]:
        def end(event: simpy.Event) -> None:
            if not event.ok:  # the engine's own run raises it
                return
            self._span(task, start_s, {})
            self._finish(task)

        return end

    def _work(self, task: RankTask, work: Work, start_s: float) -> None:
        cost = self.node.cost(work.operator)
        parts = {category(work.operator, cost): cost.time_s}
        (one,) = task.classes
        self._tally.charge(cost, len(self.graph.classes[one]))

        def end(_: simpy.Event) -> None:
            self._span(task, start_s, parts)
            self._finish(task)

        self.env.timeout(cost.time_s).callbacks.append(end)

    def _carry(self, task: RankTask) -> Generator[simpy.Event, Any, None]:
        operator = self._collectives[task.id]
        plan: PricedCollective = self.traffic.plan(operator, self._numbers[task.id])
        sends = isinstance(task.operation, Message)
        kind = CollectiveKind.SEND if sends else operator.kind
        self._tally.carry(plan, str(kind), "" if sends else f"{kind} of {operator.size}")
        yield from carry_collective(
            self.network, plan, lambda: self._lookahead.others_first(task.id, *begun_by(task))
        )

    def _flow_groups(self, task_id: int) -> tuple[FlowGroup, ...]:
        """Return what a collective or a message moves."""
        plan = self.traffic.plan(self._collectives[task_id], self._numbers[task_id])
        return tuple(flow_group for flow_group, _, _ in plan.parts)

    def _span(self, task: RankTask, start_s: float, parts: dict[str, float]) -> None:
        work = isinstance(task.operation, Work)
        host = isinstance(task.operation, Work) and task.operation.host
        stream = Stream.HOST if host else Stream.COMPUTE if work else Stream.NETWORK
        for one in dict.fromkeys(task.classes):
            span = Span(
                rank_class=one,
                stream=stream,
                name=task.name,
                start_s=start_s,
                end_s=self.env.now,
                parts_s={} if host else parts,
                task=task.id,
            )
            self._spans.append(span)

    def _finish(self, task: RankTask) -> None:
        self._ended.add(task.id)
        ready = []
        for follower in self.graph.followers[task.id]:
            self._waiting[follower] -= 1
            if not self._waiting[follower]:
                ready.append(self._tasks[follower])
        for one in ready:
            if one.continues and one.channel == task.channel:
                heapq.heappush(self._queues[one.channel], (-math.inf, one.id))
            else:
                self._offer(one)
        if task.channel:
            self._busy.discard(task.channel)
            queue = self._queues.get(task.channel)
            if queue:
                self._offer(self._tasks[heapq.heappop(queue)[1]])
        self.network.serve()
        if self.fabric.traits.prefetches:
            for rank in begun_by(task):
                self._lookahead.prefetch(rank, task.id)


def collective_of(task: RankTask, operation: Together | Message, groups: NamedGroups) -> Collective:
    """Return the operator by which traffic carries a collective or a message.

    Notes
    -----
    A message is what a broadcast from the first of two along a chain is: all bytes in one round.
    """
    if isinstance(operation, Message):
        return Collective(
            name=task.name,
            phase=Phase.FORWARD,
            kind=CollectiveKind.BROADCAST,
            axis=groups.place(operation)[0],
            size=2,
            payload_bytes=operation.size_bytes,
            algorithm=Algorithm.RING,
        )
    return Collective(
        name=task.name,
        phase=Phase.FORWARD,
        kind=operation.kind,
        axis=groups.place(operation)[0],
        size=len(operation.groups[0]),
        payload_bytes=operation.payload_bytes,
        two_level=operation.two_level,
        algorithm=operation.algorithm,
    )
