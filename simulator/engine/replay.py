"""Recorded work of single ranks, and its replay on the engine's clock: any groups, any pairs, any fabric.

A `simulator.operators.StepGraph` is made of classes of identical ranks on a grid of axes. Other tools record
single ranks, each of which computes, takes part in collectives of any groups, and sends to any other rank
(`RankGraph`). A task starts when all it waits for is done and its channel is free. Collectives and messages
are carried by `simulator.engine.network` as those of a training step are; compute takes as long as was
recorded, or as long as the units of a node need.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import simpy

from simulator.collectives.algorithms import Algorithm
from simulator.collectives.flow_groups import AxisDemand, FlowGroup
from simulator.collectives.traffic import Traffic, carry_collective, play
from simulator.engine.lookahead import Lookahead, computed, need_order, queued_before
from simulator.engine.network import Network, Tally, circuit_spans
from simulator.errors import RouteError, WorkloadError
from simulator.fabric import Fabric, lone_cards
from simulator.interfaces import Bound, Cost, Flows
from simulator.node import Node
from simulator.operators import (
    Collective,
    CollectiveKind,
    Elementwise,
    MatMul,
    Phase,
    Sequence,
    topological_order,
)
from simulator.results import Span, Stream, Trace, category


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded(Elementwise):
    """Work of recorded duration, with its operations and bytes for units that would take another time."""

    duration_s: float
    """Duration where it was recorded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Work that every rank of a class does for itself."""

    operator: MatMul | Elementwise | Sequence
    """Operator for the accelerator's units; a sequence must not communicate."""
    host: bool = False
    """Whether the host does it, beside the accelerator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Together:
    """Collective of explicit groups of ranks, all of one size, at the same time."""

    kind: CollectiveKind
    """Kind of collective; not a send, push or pull."""
    groups: tuple[tuple[int, ...], ...]
    """Ranks of each group, in their order on a ring; the first is the root of a broadcast or reduction."""
    payload_bytes: float
    """Bytes per rank before it, as `simulator.operators.Collective.payload_bytes`."""
    algorithm: str = ""
    """A value of `simulator.collectives.algorithms.Algorithm`; empty for the fastest."""
    two_level: bool = False
    """For an all-to-all over several nodes: whether it goes within nodes and between them in turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """Messages from some ranks, each to one other rank, at the same time."""

    sources: tuple[int, ...]
    """Sending ranks."""
    destinations: tuple[int, ...]
    """Receiving rank of each message."""
    size_bytes: float
    """Bytes of each message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTask:
    """Task of one or several classes of ranks, alone or together, once other tasks are done."""

    id: int
    """Unique within the graph; of tasks that are ready at the same time the lower goes first."""
    name: str
    """Name in traces and errors."""
    classes: tuple[int, ...]
    """Classes of ranks that take part; of a message first those that send."""
    operation: Work | Together | Message
    """Work, collective or messages."""
    after: tuple[int, ...] = ()
    """Ids of the tasks that must have finished."""
    channel: str = ""
    """Tasks on the same channel run one at a time, in the order in which they become ready; empty: all."""
    continues: bool = False
    """Whether it goes on where a task that it waits for ended, ahead of what waits for their channel."""


@dataclass(frozen=True, kw_only=True)
class RankGraph:
    """Recorded tasks on classes of ranks that behave alike, often of one rank each.

    Raises
    ------
    WorkloadError
        If ids repeat, a dependency, class or rank is missing, groups are uneven, or there is a cycle.
    """

    name: str
    """Name of the recording."""
    tasks: tuple[RankTask, ...]
    """All tasks."""
    classes: tuple[tuple[int, ...], ...]
    """Ranks of each class; every rank from 0 stands in one of them."""

    def __post_init__(self) -> None:
        every = sorted(rank for ranks in self.classes for rank in ranks)
        if not every or every != list(range(len(every))):
            msg = f"{self.name}: classes must hold every rank from 0 once; got {every[:8]}"
            raise WorkloadError(msg)
        if not self.tasks:
            msg = f"{self.name}: holds no task; is it the right file?"
            raise WorkloadError(msg)
        known = Counter(task.id for task in self.tasks)
        if len(known) != len(self.tasks):
            msg = f"{self.name}: id {known.most_common(1)[0][0]} stands for two tasks; give each its own"
            raise WorkloadError(msg)
        for task in self.tasks:
            self._check(task, known)
        topological_order(self.tasks, self.name)

    def _check(self, task: RankTask, known: Counter[int]) -> None:
        """Check what a task waits for, its classes and its ranks."""
        what = f"{self.name}: task {task.id} '{task.name}'"
        lost = next((other for other in task.after if other not in known), None)
        if lost is not None:
            msg = f"{what} waits for task {lost}, which does not exist"
            raise WorkloadError(msg)
        ranks: tuple[int, ...] = ()
        if isinstance(task.operation, Together):
            sizes = {len(group) for group in task.operation.groups}
            if len(sizes) != 1 or 0 in sizes:
                msg = f"{what} needs groups of one size; got sizes {sorted(sizes)}"
                raise WorkloadError(msg)
            ranks = tuple(rank for group in task.operation.groups for rank in group)
        elif isinstance(task.operation, Message):
            ranks = (*task.operation.sources, *task.operation.destinations)
            if len(task.operation.sources) != len(task.operation.destinations):
                msg = f"{what} has {len(task.operation.sources)} senders and other many receivers"
                raise WorkloadError(msg)
        outside = next((rank for rank in ranks if not 0 <= rank < self.ranks), None)
        if outside is not None or not all(0 <= one < len(self.classes) for one in task.classes):
            msg = f"{what} names rank {outside}; the graph has ranks 0 to {self.ranks - 1}"
            raise WorkloadError(msg)

    @cached_property
    def ranks(self) -> int:
        """Ranks that take part."""
        return sum(len(ranks) for ranks in self.classes)

    @cached_property
    def class_of(self) -> dict[int, int]:
        """Class of each rank."""
        return {rank: index for index, ranks in enumerate(self.classes) for rank in ranks}

    def classes_at(self, ranks: Iterable[int]) -> list[int]:
        """Return the classes of some ranks, each once and in order."""
        return sorted({self.class_of[int(rank)] for rank in ranks})

    @cached_property
    def followers(self) -> dict[int, list[int]]:
        """Tasks that wait for each task, once for each time they name it."""
        found: dict[int, list[int]] = {task.id: [] for task in self.tasks}
        for task in self.tasks:
            for other in task.after:
                found[other].append(task.id)
        return found


class Costs(Protocol):
    """Node or unit that prices work."""

    def cost(self, operator: MatMul | Elementwise) -> Cost:
        """Return time and dynamic energy of one run."""
        ...


@dataclass(frozen=True, kw_only=True)
class Clockwork:
    """Unit on which recorded work takes its recorded time, and nothing else runs."""

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
    """Return a node on which recorded work takes its recorded time, and other work that of its units."""
    return replace(node, units=(Clockwork(), *node.units))


class NamedGroups:
    """Groups of ranks of a recorded graph, numbered and sorted into axes, as traffic asks for them.

    Groups of one size whose ranks lie equally far apart, either way, form one axis, as those of a grid do; so
    circuits that serve an axis serve all of them.

    Parameters
    ----------
    graph : RankGraph
        The graph.
    """

    def __init__(self, graph: RankGraph) -> None:
        self._places: dict[tuple[tuple[int, ...], ...], tuple[str, int]] = {}
        self._groups: list[np.ndarray] = []
        for task in graph.tasks:
            if not isinstance(task.operation, Work):
                self.place(task.operation)

    def place(self, operation: Together | Message) -> tuple[str, int]:
        """Return axis and number of an operation's groups; those of messages are pairs of ranks."""
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
        The recorded graph.
    node : Costs
        The accelerator that every rank has (see `as_recorded`), or `Clockwork` alone.
    fabric : Fabric
        The network that connects them.
    weigh : callable, optional
        Gives the weight of a message of some bytes on a shared link; all alike if None.

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
        self.carried = {
            task.id: (collective_of(task, task.operation, axis), number)
            for task in graph.tasks
            if not isinstance(task.operation, Work)
            for axis, number in (self._groups.place(task.operation),)
        }
        """Collective, and number of its groups, of each task that communicates."""
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
        totals: defaultdict[tuple[str, int, int], AxisDemand] = defaultdict(AxisDemand)
        pairs: set[tuple[str, int, int]] = set()
        for task in self.graph.tasks:
            collective, number = self.carried.get(task.id, (None, 0))
            if collective is not None and collective.size > 1:
                key = (collective.axis, number, 0)
                totals[key].add(collective)
                if isinstance(task.operation, Message):
                    pairs.add(key)
        found = {}
        for key, total in totals.items():
            axis, groups = key[0], self._groups.groups(*key[:2])
            if key in pairs:
                found[key] = replace(total.sends(axis, *groups.T), kind=CollectiveKind.SEND)
            else:
                found[key] = total.flows(axis, groups, lone_cards(self.fabric))
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
        self._spans += circuit_spans(self.network.changes, self.graph.classes_at)
        return self._tally.trace(self._spans, self.network.changes)

    def _offer(self, task: RankTask) -> None:
        """Start a task whose time has come, or queue it behind the one that has its channel."""
        if task.channel and task.channel in self._busy:
            heapq.heappush(self._queues[task.channel], (self.env.now, task.id))
            return
        if task.channel:
            self._busy.add(task.channel)
        if isinstance(task.operation, Work):
            self._work(task, task.operation)
            return
        self.env.process(self._carry(task)).callbacks.append(self._ending(task, {}))

    def _ending(self, task: RankTask, parts_s: dict[str, float]) -> Callable[[simpy.Event], None]:
        """Return a callback that ends a task which begins now, and takes some seconds by category."""
        start_s = self.env.now

        def end(event: simpy.Event) -> None:
            if event.ok:  # else the engine's own run raises it
                self._span(task, start_s, parts_s)
                self._finish(task)

        return end

    def _work(self, task: RankTask, work: Work) -> None:
        (rank_class,) = task.classes
        run = work.operator.items if isinstance(work.operator, Sequence) else ((work.operator, 1),)
        parts_s: defaultdict[str, float] = defaultdict(float)
        for one, times in (pair for item in run for pair in computed(*item)):
            cost = self.node.cost(one)
            self._tally.charge(cost, times * len(self.graph.classes[rank_class]))
            parts_s[category(one, cost)] += cost.time_s * times
        ending = self._ending(task, parts_s)
        self.env.timeout(math.fsum(parts_s.values())).callbacks.append(ending)

    def _carry(self, task: RankTask) -> Generator[simpy.Event, Any, None]:
        operator, number = self.carried[task.id]
        plan = self.traffic.plan(operator, number)
        sends = isinstance(task.operation, Message)
        kind = CollectiveKind.SEND if sends else operator.kind
        self._tally.carry(plan, str(kind), "" if sends else f"{kind} of {operator.size}")
        yield from carry_collective(
            self.network, plan, lambda: self._lookahead.others_first(task.id, *begun_by(task))
        )

    def _flow_groups(self, task_id: int) -> tuple[FlowGroup, ...]:
        """Return the flow groups of a task's collective or messages."""
        return self.traffic.plan(*self.carried[task_id]).flow_groups

    def _span(self, task: RankTask, start_s: float, parts_s: dict[str, float]) -> None:
        """Add a span of a task that ends now for each class that took part."""
        work = task.operation if isinstance(task.operation, Work) else None
        host = work is not None and work.host
        stream = Stream.NETWORK if work is None else Stream.HOST if host else Stream.COMPUTE
        for one in dict.fromkeys(task.classes):
            span = Span(
                rank_class=one,
                stream=stream,
                name=task.name,
                start_s=start_s,
                end_s=self.env.now,
                parts_s={} if host else parts_s,
                task=task.id,
            )
            self._spans.append(span)

    def _finish(self, task: RankTask) -> None:
        """Free the channel of a task that has ended, and start what waited for it."""
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


def collective_of(task: RankTask, operation: Together | Message, axis: str) -> Collective:
    """Return the operator by which traffic carries a collective or messages.

    Notes
    -----
    A message is a broadcast from the first of two ranks along a chain: all bytes in one round.
    """
    if isinstance(operation, Message):
        return Collective(
            name=task.name,
            phase=Phase.FORWARD,
            kind=CollectiveKind.BROADCAST,
            axis=axis,
            size=2,
            payload_bytes=operation.size_bytes,
            algorithm=Algorithm.RING,
        )
    return Collective(
        name=task.name,
        phase=Phase.FORWARD,
        kind=operation.kind,
        axis=axis,
        size=len(operation.groups[0]),
        payload_bytes=operation.payload_bytes,
        two_level=operation.two_level,
        algorithm=operation.algorithm,
    )


def rank_lookahead(
    graph: RankGraph,
    flow_groups: Callable[[int], tuple[FlowGroup, ...]],
    network: Network,
    node_size: int,
    is_done: Callable[[int], bool],
) -> Lookahead[RankTask]:
    """Return the lookahead over what every rank of a recorded graph still has to send outside its node.

    Parameters
    ----------
    graph : RankGraph
        The graph.
    flow_groups : callable
        Gives the flow groups of the task of an id.
    network : Network
        The fabric.
    node_size : int
        Consecutive endpoints that no circuit joins, for they share a node.
    is_done : callable
        Whether the task of an id has ended.
    """
    together = {task.id for task in graph.tasks if isinstance(task.operation, Together)}
    channels = [
        (task.id, (task.channel, task.operation.groups))
        for task in graph.tasks
        if isinstance(task.operation, Together) and task.channel
    ]
    tasks_of: defaultdict[int, list[RankTask]] = defaultdict(list)
    sent_to: defaultdict[int, list[RankTask]] = defaultdict(list)
    for task in graph.tasks:
        if isinstance(task.operation, Work) or not _leaves(task.operation, node_size):
            continue
        for rank in begun_by(task):
            tasks_of[rank].append(task)
        if isinstance(task.operation, Message):
            for rank in task.operation.destinations:
                sent_to[rank].append(task)
    return Lookahead(
        network=network,
        beside=tasks_of,
        passes={},
        arriving=sent_to,
        flow_groups=lambda task: (flow_groups(task.id),),
        is_short=lambda _: False,
        is_done=lambda task: is_done(task.id),
        order=need_order(graph.tasks, lambda one: one not in together, queued_before(channels)),
    )


def _leaves(operation: Together | Message, node_size: int) -> bool:
    """Return whether ranks of several nodes take part in one group or message."""
    groups: Iterable[tuple[int, ...]]
    if isinstance(operation, Message):
        groups = zip(operation.sources, operation.destinations, strict=True)
    else:
        groups = operation.groups
    return any(len({rank // node_size for rank in group}) > 1 for group in groups)


def begun_by(task: RankTask) -> Iterator[int]:
    """Yield the ranks whose ports a task turns: all of a collective, the senders of messages."""
    if isinstance(task.operation, Message):
        yield from task.operation.sources
    elif not isinstance(task.operation, Work):
        for group in task.operation.groups:
            yield from group
