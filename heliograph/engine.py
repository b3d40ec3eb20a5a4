"""Discrete events: compute, network and circuits of one training step on one clock.

Every class of identical ranks (a pipeline stage) is simulated once and stands for all its ranks, so a step on
16,384 accelerators costs what one on 16 does. A class runs its compute tasks one at a time in the order of
their priorities; communication tasks run beside them, one at a time per axis and direction; a collective
inside a `Sequence` blocks its class. What overlaps follows from the graph and from nothing else.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import simpy

from heliograph.interfaces import Bound, Cost, Fabric
from heliograph.mapping import Node
from heliograph.network import Network
from heliograph.operators import (
    Collective,
    Elementwise,
    MatMul,
    Operator,
    Sequence,
    StepGraph,
    Task,
)
from heliograph.trace import Span, Stream, Trace
from heliograph.traffic import Plan, Traffic, step_demand

COMMUNICATION = "communication"
"""Category of the time in which a class waits for a collective inside a sequence."""
PRODUCTS = "products"
"""Category of matrix products."""
OTHER_WORK = "other work"
"""Category of norms, softmax, activations, look-ups and the optimizer."""
BESIDE = "server"
"""Where a class's ranks also serve: the channel of that work."""
MEMORY_BOUND = "memory-bound"
"""What is added to a category where the memory, not the unit, sets the time."""


@dataclass(kw_only=True)
class _Tally:
    compute_energy_j: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    network_energy_j: float = 0.0
    network_bytes: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    algorithms: dict[str, str] = field(default_factory=dict)


def category(operator: MatMul | Elementwise, cost: Cost) -> str:
    """Return the name under which an operator's time is reported: its kind, and whether memory limits it."""
    kind = PRODUCTS if isinstance(operator, MatMul) else OTHER_WORK
    return f"{kind}, {MEMORY_BOUND}" if cost.bound is Bound.MEMORY else kind


class Simulation:
    """One step on one system; `run` gives the trace.

    Parameters
    ----------
    graph : StepGraph
        What is to be done.
    node : Node
        The accelerator that every rank has.
    fabric : Fabric
        What connects them.
    fuse : bool
        Whether a sequence whose collectives have their links to themselves is one event. It changes no number
        beyond rounding, only the speed.

    Raises
    ------
    RouteError
        If the fabric has fewer endpoints than the graph has ranks, or cannot carry a flow.
    WorkloadError
        If no unit of the node runs an operator.
    """

    def __init__(self, graph: StepGraph, node: Node, fabric: Fabric, *, fuse: bool = True) -> None:
        self.graph = graph
        self.node = node
        self.fabric = fabric
        self.fuse = fuse
        self.env = simpy.Environment()
        self._fused: dict[tuple[Any, ...], tuple[dict[str, float], dict[str, float]]] = {}
        self._spans: list[Span] = []
        self._tally = _Tally()
        demand = step_demand(graph)
        self.network = Network(self.env, fabric, tuple(demand.values()))
        self.traffic = Traffic(graph.layout, fabric, self.network, demand)
        self._done = {task.id: self.env.event() for task in graph.tasks}
        self._channels: dict[tuple[int, str, int], simpy.Resource] = {}
        self._orders = _compute_orders(graph)
        self._followers = _followers(graph, self._orders)
        self._closure: dict[int, set[int]] = {}
        self._traffic_of: dict[int, list[Task]] = {}
        for task in graph.tasks:
            if isinstance(task.operator, Collective):
                self._traffic_of.setdefault(task.rank_class, []).append(task)

    def run(self) -> Trace:
        """Return the trace of the whole step."""
        for tasks in self._traffic_of.values():
            for task in tasks:
                self.env.process(self._communicate(task))
        for tasks in self._orders.values():
            self.env.process(self._compute(tasks))
        for task in self.graph.tasks:
            if task.beside:
                self.env.process(self._beside(task))
        self.env.run()
        while self.network.serve(impatient=True):  # patience that waited for itself
            self.env.run()
        self._check_finished()
        for change in self.network.changes:
            classes = np.unique(np.asarray(change.sources) // self.graph.layout.ranks_per_class)
            self._spans += [
                Span(
                    rank_class=int(rank_class),
                    stream=Stream.CIRCUITS,
                    name=f"circuits to {change.axis}",
                    start_s=change.start_s,
                    end_s=change.end_s,
                )
                for rank_class in classes
            ]
        return Trace(
            spans=tuple(sorted(self._spans, key=lambda span: (span.end_s, span.rank_class, span.name))),
            makespan_s=max((span.end_s for span in self._spans), default=0.0),
            compute_energy_j=dict(self._tally.compute_energy_j),
            network_energy_j=self._tally.network_energy_j,
            reconfiguration_energy_j=math.fsum(change.energy_j for change in self.network.changes),
            reconfigurations=len(self.network.changes),
            network_bytes=dict(self._tally.network_bytes),
            algorithms=dict(sorted(self._tally.algorithms.items())),
        )

    def alone_s(self, task: Task) -> float:
        """Return the duration of a task that has the network to itself."""
        return self._alone_s(task.operator, task.rank_class) * task.multiplicity

    def _alone_s(self, operator: Operator, rank_class: int) -> float:
        match operator:
            case Sequence():
                return math.fsum(self._alone_s(one, rank_class) * times for one, times in operator.items)
            case Collective():
                return self.traffic.plan(operator, rank_class).alone_s
            case _:
                return self.node.cost(operator).time_s

    def _check_finished(self) -> None:
        stuck = [task.id for task in self.graph.tasks if not self._done[task.id].processed]
        if stuck:
            msg = f"the step stops with {len(stuck)} tasks undone (first: {stuck[0]}); check its order"
            raise RuntimeError(msg)

    def _compute(self, tasks: list[Task]) -> Generator[simpy.Event, Any, None]:
        for task in tasks:
            for other in task.after:
                yield self._done[other]
            start = self.env.now
            parts: defaultdict[str, float] = defaultdict(float)
            for _ in range(task.multiplicity):
                yield from self._execute(task.operator, task.rank_class, parts, task.id)
            microbatch = task.operator.microbatch if isinstance(task.operator, Sequence) else -1
            span = Span(
                rank_class=task.rank_class,
                stream=Stream.COMPUTE,
                name=task.operator.name,
                start_s=start,
                end_s=self.env.now,
                microbatch=microbatch,
                parts_s=dict(parts),
                task=task.id,
            )
            self._spans.append(span)
            self._done[task.id].succeed()

    def _execute(
        self, operator: Operator, rank_class: int, parts: defaultdict[str, float], task_id: int
    ) -> Generator[simpy.Event, Any, None]:
        match operator:
            case Sequence():
                if self.fuse and self.traffic.private(operator, rank_class):
                    yield self.env.timeout(self._run_fused(operator, rank_class, parts))
                    return
                if self.fuse:
                    yield from self._run_in_pieces(operator, rank_class, parts, task_id)
                    return
                for one, repeat in operator.items:
                    for _ in range(repeat):
                        yield from self._execute(one, rank_class, parts, task_id)
            case Collective():
                start = self.env.now
                yield from self._transfer(operator, rank_class, task_id)
                parts[COMMUNICATION] += self.env.now - start
            case _:
                cost = self.node.cost(operator)
                self._charge(cost)
                parts[category(operator, cost)] += cost.time_s
                yield self.env.timeout(cost.time_s)

    def _run_in_pieces(
        self, sequence: Sequence, rank_class: int, parts: defaultdict[str, float], task_id: int
    ) -> Generator[simpy.Event, Any, None]:
        """Run a sequence whose collectives share links: one event for what lies between two of them."""
        for piece in _pieces(sequence):
            if isinstance(piece, Sequence):
                yield self.env.timeout(self._run_fused(piece, rank_class, parts))
                continue
            collective, repeat = piece
            start = self.env.now
            yield from self._transfer(collective, rank_class, task_id, repeat)
            parts[COMMUNICATION] += self.env.now - start

    def _run_fused(self, sequence: Sequence, rank_class: int, parts: defaultdict[str, float]) -> float:
        key = (sequence.items, rank_class)
        if key not in self._fused:
            seconds: defaultdict[str, float] = defaultdict(float)
            joules: defaultdict[str, float] = defaultdict(float)
            for one, repeat in sequence.items:
                if isinstance(one, Collective):
                    seconds[COMMUNICATION] += self.traffic.plan(one, rank_class).alone_s * repeat
                else:
                    cost = self.node.cost(one)
                    seconds[category(one, cost)] += cost.time_s * repeat
                    for part, energy in cost.energy_j.items():
                        joules[part] += energy * repeat
            self._fused[key] = (dict(seconds), dict(joules))
        seconds_by_part, joules_by_part = self._fused[key]
        ranks = self.graph.layout.ranks_per_class
        for part, energy in joules_by_part.items():
            self._tally.compute_energy_j[part] += energy * ranks
        for one, repeat in sequence.items:
            if isinstance(one, Collective):
                self._count(one, self.traffic.plan(one, rank_class), repeat)
        for part, duration_s in seconds_by_part.items():
            parts[part] += duration_s
        return math.fsum(seconds_by_part.values())

    def _communicate(self, task: Task) -> Generator[simpy.Event, Any, None]:
        operator = task.operator
        assert isinstance(operator, Collective)  # noqa: S101 - narrows the type
        for other in task.after:
            yield self._done[other]
        key = (task.rank_class, operator.axis, operator.shift)
        channel = self._channels.setdefault(key, simpy.Resource(self.env))
        with channel.request() as turn:
            yield turn
            start = self.env.now
            for _ in range(task.multiplicity):
                yield from self._transfer(operator, task.rank_class, task.id)
        self._spans.append(
            Span(
                rank_class=task.rank_class,
                stream=Stream.NETWORK,
                name=f"{operator.axis} {operator.name}",
                start_s=start,
                end_s=self.env.now,
                peer_class=task.rank_class + operator.shift if operator.shift else -1,
                task=task.id,
            )
        )
        self._done[task.id].succeed()
        self.network.serve()

    def _beside(self, task: Task) -> Generator[simpy.Event, Any, None]:
        for other in task.after:
            yield self._done[other]
        channel = self._channels.setdefault((task.rank_class, BESIDE, 0), simpy.Resource(self.env))
        with channel.request() as turn:
            yield turn
            start = self.env.now
            for _ in range(task.multiplicity):
                yield from self._execute(task.operator, task.rank_class, defaultdict(float), task.id)
        self._spans.append(
            Span(
                rank_class=task.rank_class,
                stream=Stream.NETWORK,
                name=f"{BESIDE} {task.operator.name}",
                start_s=start,
                end_s=self.env.now,
                task=task.id,
            )
        )
        self._done[task.id].succeed()

    def _transfer(
        self, operator: Collective, rank_class: int, task_id: int, repeat: int = 1
    ) -> Generator[simpy.Event, Any, None]:
        plan = self.traffic.plan(operator, rank_class)
        self._count(operator, plan, repeat)
        if plan.protocol_s:
            yield self.env.timeout(plan.protocol_s * repeat)
        for bundle, size_bytes, count in plan.parts:
            yield from self.network.carry(
                bundle, size_bytes, count * repeat, lambda: self._others_first(task_id, rank_class)
            )

    def _others_first(self, task_id: int, rank_class: int) -> bool:
        """Return whether a class's ports still have other traffic ahead on their present circuits.

        That is traffic which is connected now and does not itself wait for the task that wants the ports.
        """
        later = self._later(task_id)
        for other in self._traffic_of.get(rank_class, ()):
            if self._done[other.id].triggered or other.id in later or other.id == task_id:
                continue
            operator = other.operator
            if isinstance(operator, Collective):
                plan = self.traffic.plan(operator, rank_class)
                if plan.parts and all(self.network.locate(bundle) for bundle, _, _ in plan.parts):
                    return True
        return False

    def _later(self, task_id: int) -> set[int]:
        """Return the tasks that cannot start before a task ends, by dependence or by order of compute."""
        found = self._closure.get(task_id)
        if found is None:
            found = self._closure[task_id] = set()
            edge = [task_id]
            while edge:
                for follower in self._followers[edge.pop()]:
                    if follower not in found:
                        found.add(follower)
                        edge.append(follower)
        return found

    def _count(self, operator: Collective, plan: Plan, times: int) -> None:
        self._tally.network_bytes[operator.axis] += plan.wire_bytes * times
        self._tally.network_energy_j += plan.energy_j * times
        if plan.parts:
            self._tally.algorithms[f"{operator.axis} {operator.kind}"] = plan.algorithm

    def _charge(self, cost: Cost) -> None:
        ranks = self.graph.layout.ranks_per_class
        for part, energy in cost.energy_j.items():
            self._tally.compute_energy_j[part] += energy * ranks


@lru_cache(maxsize=4096)
def _pieces(sequence: Sequence) -> tuple[Sequence | tuple[Collective, int], ...]:
    """Return a sequence cut at its collectives; what lies between two of them becomes a sequence."""
    pieces: list[Sequence | tuple[Collective, int]] = []
    for communicates, items in groupby(sequence.items, key=lambda item: isinstance(item[0], Collective)):
        if communicates:
            pieces += [(one, repeat) for one, repeat in items if isinstance(one, Collective)]
        else:
            pieces.append(replace(sequence, items=tuple(items), microbatch=-1))
    return tuple(pieces)


def _compute_orders(graph: StepGraph) -> dict[int, list[Task]]:
    """Return the compute tasks of each class in the order in which it runs them."""
    orders: dict[int, list[Task]] = {}
    for task in graph.tasks:
        if not isinstance(task.operator, Collective) and not task.beside:
            orders.setdefault(task.rank_class, []).append(task)
    for tasks in orders.values():
        tasks.sort(key=lambda task: (task.priority, task.id))
    return orders


def _followers(graph: StepGraph, orders: dict[int, list[Task]]) -> dict[int, list[int]]:
    """Return which tasks wait directly for each task."""
    followers: dict[int, list[int]] = {task.id: [] for task in graph.tasks}
    for task in graph.tasks:
        for other in task.after:
            followers[other].append(task.id)
    for tasks in orders.values():
        for earlier, later in pairwise(tasks):
            followers[earlier.id].append(later.id)
    return followers
