"""Discrete events: compute, network and circuits of one training step on one clock.

Every class of identical ranks (a pipeline stage) is simulated once and stands for all its ranks, so a step on
16,384 accelerators costs what one on 16 does. A class runs its compute tasks one at a time in the order of
their priorities; communication tasks run beside them, one at a time per axis and direction, and so do those
of the host, one at a time per lane and on its processors; a collective inside a `Sequence` blocks its class.
What overlaps follows from the graph and from nothing else. Compute goes on at a lower rate while a
collective takes units of it (`simulator.node.StepPenalties.collective_share`). Several steps may share one
fabric, each with its place, its start and its failures.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any

import simpy

from simulator.collectives.flow_groups import PricedCollective, step_demand
from simulator.collectives.traffic import Traffic, carry_collective, play
from simulator.engine.lookahead import (
    Piece,
    blocks_in_order,
    channel_of,
    compute_orders,
    computed,
    next_uneven,
    pieces,
    step_lookahead,
    stream_of,
)
from simulator.engine.network import Network, Tally, circuit_spans
from simulator.errors import WorkloadError, check_range
from simulator.fabric import Fabric, lone_cards
from simulator.failures import Failure
from simulator.interfaces import Cost
from simulator.layout import placed
from simulator.node import Node
from simulator.operators import (
    BESIDE,
    Collective,
    HostWork,
    Operator,
    Overlapped,
    Sequence,
    StepGraph,
    Task,
    Transfer,
    takes_units,
)
from simulator.results import COMMUNICATION, ISSUE, Span, Stream, Trace, category

SETTLED = 1e-3
"""Share of a work; if less than that is owed for collectives beside it, the next work pays. Dimensionless."""


@dataclass(kw_only=True)
class _Compute:
    """Compute of a class whose units collectives take a share of while they run beside it.

    Work is begun with the time that it takes alone. When that is over, what collectives have kept from being
    done is owed, and takes as much time again (`late_s`), in which collectives may run once more. Time in
    which a work waits for the host is slack: what is owed is caught up in it first.
    """

    share: float
    """Share of its rate that it loses while collectives run, 0 to 1."""
    collectives: int = 0
    """Collectives that run now."""
    owed_s: float = 0.0
    """Work that they have kept from being done."""
    slack_s: float = 0.0
    """Slack of the present work that is left."""
    _worked_s: float = 0.0
    """Busy time of the units before the present work."""
    _begin_s: float = 0.0
    """Begin of the present work."""
    _end_s: float = 0.0
    """End of the present work."""
    _busy_share: float = 0.0
    """Share of the present work in which units are busy."""
    _settled_s: float = 0.0
    """Busy time for which `owed_s` is counted."""

    def begin(self, now_s: float, work_s: float, busy_s: float) -> None:
        """Begin work that takes `work_s` alone, with units busy for `busy_s` of it."""
        self._worked_s += self._busy_share * (self._end_s - self._begin_s)
        self._begin_s, self._end_s = now_s, now_s + work_s
        self._busy_share = busy_s / work_s if work_s > 0.0 else 0.0

    def settle(self, now_s: float, change: int = 0) -> None:
        """Count what is owed until now, before `change` more collectives run."""
        worked_s = self._worked_s + self._busy_share * (min(now_s, self._end_s) - self._begin_s)
        if self.collectives > 0:
            self.owed_s += self.share * (worked_s - self._settled_s)
        self._settled_s = worked_s
        self.collectives += change

    def late_s(self, now_s: float) -> float:
        """Return how long work that was to end now has to go on, less what it can catch up in slack."""
        self.settle(now_s)
        caught_up_s = min(self.owed_s, self.slack_s)
        self.slack_s -= caught_up_s
        self.owed_s -= caught_up_s
        return self.owed_s


class Simulation:
    """One step on one system; `run` gives the trace.

    Parameters
    ----------
    graph : StepGraph
        The step.
    node : Node
        The accelerator that every rank has.
    fabric : Fabric
        The network that connects them.
    fuse : bool
        Whether a sequence whose collectives have their links to themselves is one event. It changes no number
        beyond rounding, only the speed.
    network : Network, optional
        The fabric with its clock, where other jobs use it too; its own by default.

    Raises
    ------
    RouteError
        If the fabric has fewer endpoints than the graph has ranks, or cannot carry a flow.
    WorkloadError
        If no unit of the node runs an operator, or a task needs a host that is not described.
    """

    def __init__(
        self,
        graph: StepGraph,
        node: Node,
        fabric: Fabric,
        *,
        fuse: bool = True,
        network: Network | None = None,
    ) -> None:
        self.graph = graph
        self.node = node
        self.fabric = fabric
        self.fuse = fuse
        self.env = network.env if network else simpy.Environment()
        self._fused: dict[tuple[Any, ...], tuple[dict[str, float], dict[str, float]]] = {}
        self._spans: list[Span] = []
        self._tally = Tally()
        demand = step_demand(graph, lone_cards(fabric))
        self.network = network or Network(self.env, fabric, tuple(demand.values()))
        self.traffic = Traffic(graph.layout, fabric, self.network, demand)
        self._done = {task.id: self.env.event() for task in graph.tasks}
        self._channels: dict[tuple[int, str, int], simpy.Resource] = {}
        self._orders = compute_orders(graph)
        self._computes: dict[int, _Compute] = {}
        if node.collective_share > 0.0:
            taken = {task.rank_class for task in graph.tasks if takes_units(task.operator)}
            self._computes = {one: _Compute(share=node.collective_share) for one in taken}
        self._serving = {task.id for task in graph.tasks if task.beside}
        for task in graph.tasks:
            if isinstance(task.operator, Transfer | HostWork):
                node.host_cost(task.operator)  # a node without a host refuses at once

    def run(self) -> Trace:
        """Return the trace of the whole step."""
        if self.network.undisturbed:  # failures and other jobs come between
            self.traffic.price((task.operator, task.rank_class) for task in self.graph.tasks)
        self.start()
        play(self.network)
        return self.finish()

    def start(self) -> None:
        """Start all processes of the step, from the clock's present time on."""
        self._lookahead = step_lookahead(
            self.graph, self.traffic, self.network, lambda one: self._done[one].triggered
        )
        for task in self.graph.tasks:
            if isinstance(task.operator, BESIDE) or task.beside:
                self.env.process(self._queued(task))
        for tasks in self._orders.values():
            self.env.process(self._compute(tasks))

    def finish(self) -> Trace:
        """Return the trace of a step that has been played to its end."""
        self._check_finished()
        layout = self.graph.layout
        changes = [one for one in self.network.changes if layout.classes_at(one.sources).size]
        self._spans += circuit_spans(changes, layout.classes_at)
        return self._tally.trace(self._spans, changes)

    def _check_finished(self) -> None:
        self.network.check_nothing_waits()
        stuck = [task.id for task in self.graph.tasks if not self._done[task.id].processed]
        if stuck:
            msg = f"the step stops with {len(stuck)} tasks undone (first: {stuck[0]}); check its order"
            raise RuntimeError(msg)

    def _compute(self, tasks: list[Task]) -> Generator[simpy.Event, Any, None]:
        """Run a class's compute tasks in order."""
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
            self.network.serve()

    def _execute(
        self, operator: Operator, rank_class: int, parts: defaultdict[str, float], task_id: int
    ) -> Generator[simpy.Event, Any, None]:
        """Run an operator on the compute stream, adding its seconds by category."""
        match operator:
            case Sequence():
                if self.fuse and self.traffic.private(operator, rank_class):
                    seconds = self._run_fused(operator, rank_class)
                    yield from self._work(rank_class, task_id, seconds, parts)
                    return
                start = self.env.now
                if self.fuse:
                    yield from self._run_in_pieces(operator, rank_class, parts, task_id)
                else:
                    yield from self._run_one_by_one(operator, rank_class, parts, task_id)
                late_s = self.node.issue_s(operator.items) - (self.env.now - start)
                if late_s > 0.0:
                    parts[ISSUE] += late_s
                    yield self.env.timeout(late_s)
            case Collective():
                start = self.env.now
                yield from self._transfer(operator, rank_class, task_id)
                parts[COMMUNICATION] += self.env.now - start
            case Transfer() | HostWork():
                msg = f"'{operator.name}' runs on the host, in a task of its own"
                raise TypeError(msg)
            case Overlapped():
                yield from self._overlap(operator, rank_class, parts, task_id)
            case _:
                cost = self.node.cost(operator)
                self._charge(cost)
                yield from self._work(rank_class, task_id, {category(operator, cost): cost.time_s}, parts)

    def _compute_of(self, rank_class: int, task_id: int) -> _Compute | None:
        """Return the compute that collectives slow while a task runs on it; None if there is none."""
        return None if task_id in self._serving else self._computes.get(rank_class)

    def _work(
        self, rank_class: int, task_id: int, seconds_by_part: dict[str, float], parts: defaultdict[str, float]
    ) -> Generator[simpy.Event, Any, None]:
        """Work for some seconds by category, and longer where collectives beside it take units."""
        for part, duration_s in seconds_by_part.items():
            parts[part] += duration_s
        work_s = math.fsum(seconds_by_part.values())
        compute = self._compute_of(rank_class, task_id)
        if compute is None:
            yield self.env.timeout(work_s)
            return
        idle = {COMMUNICATION, ISSUE}
        busy_s = math.fsum(seconds for part, seconds in seconds_by_part.items() if part not in idle)
        parts[COMMUNICATION] += 0.0
        compute.slack_s = seconds_by_part.get(ISSUE, 0.0)
        compute.begin(self.env.now, work_s, busy_s)
        yield self.env.timeout(work_s)
        while (late_s := compute.late_s(self.env.now)) > SETTLED * work_s:
            parts[COMMUNICATION] += late_s
            compute.owed_s = 0.0
            compute.begin(self.env.now, late_s, late_s)
            yield self.env.timeout(late_s)

    def _run_in_pieces(
        self, sequence: Sequence, rank_class: int, parts: defaultdict[str, float], task_id: int
    ) -> Generator[simpy.Event, Any, None]:
        """Run a sequence whose collectives share links; the operators between two of them are one event."""
        every = self._cut(sequence, rank_class)
        for place, piece in enumerate(every):
            if isinstance(piece, Sequence):
                self._turn_ahead(every[place:], rank_class, task_id)
                seconds = self._run_fused(piece, rank_class, issued=True)
                yield from self._work(rank_class, task_id, seconds, parts)
                continue
            one, repeat = piece
            if isinstance(one, Overlapped):
                yield from self._overlap(one, rank_class, parts, task_id, repeat)
                continue
            start = self.env.now
            yield from self._transfer(one, rank_class, task_id, repeat)
            parts[COMMUNICATION] += self.env.now - start

    def _run_one_by_one(
        self, sequence: Sequence, rank_class: int, parts: defaultdict[str, float], task_id: int
    ) -> Generator[simpy.Event, Any, None]:
        """Run a sequence with an event for every run of an operator."""
        items: list[tuple[Operator, int]] = []
        for piece in self._cut(sequence, rank_class):
            items += piece.items if isinstance(piece, Sequence) else [piece]
        for place, (one, repeat) in enumerate(items):
            self._turn_ahead(items[place:], rank_class, task_id)
            for _ in range(repeat):
                yield from self._execute(one, rank_class, parts, task_id)
            if isinstance(one, Collective) and not repeat:
                yield from self._transfer(one, rank_class, task_id, repeat)

    def _cut(self, sequence: Sequence, rank_class: int) -> tuple[Piece, ...]:
        """Return a sequence cut at its collectives, block by block where circuits turn in every block."""
        return (blocks_in_order if self.traffic.by_block(sequence, rank_class) else pieces)(sequence)

    def _turn_ahead(
        self, coming: Iterable[Piece | tuple[Operator, int]], rank_class: int, task_id: int
    ) -> None:
        """Turn circuits to the next block's exchange of what a class runs, while it computes."""
        traits = self.fabric.traits
        if not (traits.prefetches and traits.turns_by_layer):
            return
        following = next_uneven(coming)
        if following is None or self._lookahead.others_first(task_id, rank_class):
            return
        for flow_group in self.traffic.plan(following, rank_class).flow_groups:
            self.network.prefetch(flow_group)

    def _overlap(
        self,
        operator: Overlapped,
        rank_class: int,
        parts: defaultdict[str, float],
        task_id: int,
        repeat: int = 1,
    ) -> Generator[simpy.Event, Any, None]:
        """Run the pieces that stand alone, then the others beside the collective."""
        cost = self.node.cost(operator.product)
        self._charge(cost, operator.pieces * repeat)
        name = category(operator.product, cost)
        if operator.alone:
            alone_s = cost.time_s * operator.alone * repeat
            yield from self._work(rank_class, task_id, {name: alone_s}, parts)
        start = self.env.now
        beside_s = cost.time_s * operator.beside * repeat
        parts[name] += beside_s
        if compute := self._compute_of(rank_class, task_id):
            compute.begin(start, beside_s, beside_s)
        moved = self.env.process(self._transfer(operator.collective, rank_class, task_id, repeat))
        yield self.env.all_of([moved, self.env.timeout(beside_s)])
        parts[COMMUNICATION] += self.env.now - start - beside_s

    def _run_fused(self, sequence: Sequence, rank_class: int, *, issued: bool = False) -> dict[str, float]:
        """Charge a run of operators that is one event and return its seconds by category."""
        key = (sequence.items, rank_class, issued)
        if key not in self._fused:
            seconds: defaultdict[str, float] = defaultdict(float)
            joules: defaultdict[str, float] = defaultdict(float)
            for one, repeat in sequence.items:
                if isinstance(one, Collective):
                    seconds[COMMUNICATION] += self.traffic.plan(one, rank_class).alone_s * repeat
                    continue
                if isinstance(one, Overlapped):  # the product beside it hides part of the collective
                    hidden_s = self.node.cost(one.product).time_s * one.beside
                    alone_s = self.traffic.plan(one.collective, rank_class).alone_s
                    seconds[COMMUNICATION] += max(0.0, alone_s - hidden_s) * repeat
                for product, times in computed(one, repeat):
                    cost = self.node.cost(product)
                    seconds[category(product, cost)] += cost.time_s * times
                    for part, energy in cost.energy_j.items():
                        joules[part] += energy * times
            late_s = 0.0 if issued else self.node.issue_s(sequence.items) - math.fsum(seconds.values())
            if late_s > 0.0:
                seconds[ISSUE] += late_s
            self._fused[key] = (dict(seconds), dict(joules))
        seconds_by_part, joules_by_part = self._fused[key]
        ranks = self.graph.layout.ranks_per_class
        for part, energy in joules_by_part.items():
            self._tally.compute_energy_j[part] += energy * ranks
        for one, repeat in sequence.items:
            if isinstance(one, Overlapped):
                self._count(one.collective, self.traffic.plan(one.collective, rank_class), repeat)
            elif isinstance(one, Collective):
                self._count(one, self.traffic.plan(one, rank_class), repeat)
        return seconds_by_part

    def _queued(self, task: Task) -> Generator[simpy.Event, Any, None]:
        """Run a task beside its class's compute when its turn on a channel comes."""
        for other in task.after:
            yield self._done[other]
        channel = channel_of(task.operator)
        shift = task.operator.shift if isinstance(task.operator, Collective) else 0
        key = (task.rank_class, channel, shift)
        with self._channels.setdefault(key, simpy.Resource(self.env)).request() as turn:
            yield turn
            start = self.env.now
            compute = self._computes.get(task.rank_class) if takes_units(task.operator) else None
            if compute:
                compute.settle(start, change=1)
            for _ in range(task.multiplicity):
                yield from self._run_beside(task)
            if compute:
                compute.settle(self.env.now, change=-1)
        self._spans.append(
            Span(
                rank_class=task.rank_class,
                stream=stream_of(task.operator, beside=True),
                name=f"{channel} {task.operator.name}",
                start_s=start,
                end_s=self.env.now,
                peer_class=task.rank_class + shift if shift else -1,
                task=task.id,
            )
        )
        self._done[task.id].succeed()
        self.network.serve()
        if self.fabric.traits.prefetches and isinstance(task.operator, Collective):
            self._lookahead.prefetch(task.rank_class, task.id)

    def _run_beside(self, task: Task) -> Generator[simpy.Event, Any, None]:
        """Run the operator of a task beside compute once."""
        operator = task.operator
        match operator:
            case Collective():
                yield from self._transfer(operator, task.rank_class, task.id)
            case Transfer() | HostWork():
                cost = self.node.host_cost(operator)
                self._charge(cost)
                if isinstance(operator, Transfer):
                    moved = operator.moved_bytes * self.graph.layout.ranks_per_class
                    self._tally.host_bytes[str(operator.lane)] += moved
                yield self.env.timeout(cost.time_s)
            case _:
                yield from self._execute(operator, task.rank_class, defaultdict(float), task.id)

    def _transfer(
        self, operator: Collective, rank_class: int, task_id: int, repeat: int = 1
    ) -> Generator[simpy.Event, Any, None]:
        plan = self.traffic.plan(operator, rank_class)
        self._count(operator, plan, repeat)
        yield from carry_collective(
            self.network, plan, lambda: self._lookahead.others_first(task_id, rank_class), repeat
        )

    def _count(self, operator: Collective, plan: PricedCollective, times: int) -> None:
        self._tally.carry(plan, operator.axis, f"{operator.axis} {operator.kind}", times)

    def _charge(self, cost: Cost, times: int = 1) -> None:
        self._tally.charge(cost, self.graph.layout.ranks_per_class * times)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A step on some endpoints of a fabric."""

    name: str
    """Name in tables and errors."""
    graph: StepGraph
    """The step."""
    node: Node
    """The accelerator of every rank."""
    endpoints: tuple[int, ...]
    """Endpoint of each rank."""
    start_s: float = 0.0
    """When it starts."""

    def __post_init__(self) -> None:
        check_range(self, "start_s")


@dataclass(frozen=True, kw_only=True)
class JobRun:
    """Run of a job beside others, and alone."""

    job: Job
    """The job."""
    trace: Trace
    """Everything that it did, on the clock of all."""
    step_time_s: float
    """Time from its start to the end of its last task."""
    alone_s: float
    """The same time with the whole fabric to itself and without failures."""

    @property
    def slowdown(self) -> float:
        """Step time over step time alone."""
        return self.step_time_s / self.alone_s


def simulate_jobs(
    jobs: Collection[Job], fabric: Fabric, *, failures: tuple[Failure, ...] = ()
) -> tuple[JobRun, ...]:
    """Return the runs of jobs that share a fabric, each with its time alone.

    Raises
    ------
    WorkloadError
        If jobs or spares share an endpoint, or a job uses one that does not exist.
    RouteError
        If traffic waits for a link that is never repaired.
    """
    _check_places(jobs, fabric, failures)
    together = _play(jobs, fabric, failures)
    alone = [_play([job], fabric, ())[0] for job in jobs]
    return tuple(
        JobRun(
            job=job,
            trace=trace,
            step_time_s=trace.makespan_s - job.start_s,
            alone_s=by_itself.makespan_s - job.start_s,
        )
        for job, trace, by_itself in zip(jobs, together, alone, strict=True)
    )


def _play(jobs: Collection[Job], fabric: Fabric, failures: tuple[Failure, ...]) -> list[Trace]:
    """Return the trace of each job, all on one network."""
    graphs = [replace(job.graph, layout=placed(job.graph.layout, job.endpoints)) for job in jobs]
    cards = lone_cards(fabric)
    demand = tuple(flows for graph in graphs for flows in step_demand(graph, cards).values())
    network = Network(simpy.Environment(), fabric, demand, failures=failures, shared=len(jobs) > 1)
    runs = [
        Simulation(graph, job.node, fabric, network=network) for graph, job in zip(graphs, jobs, strict=True)
    ]
    for run, job in zip(runs, jobs, strict=True):
        network.env.process(_started(run, job.start_s))
    play(network)
    return [run.finish() for run in runs]


def _started(run: Simulation, start_s: float) -> Generator[simpy.Event, Any, None]:
    yield run.env.timeout(start_s)
    run.start()


def _check_places(jobs: Collection[Job], fabric: Fabric, failures: tuple[Failure, ...]) -> None:
    """Check that jobs and spares stand on endpoints that exist, each on its own."""
    taken: dict[int, str] = {}
    for owner, endpoints in [
        *((f"job '{job.name}'", job.endpoints) for job in jobs),
        *((f"spares of the failure at {one.time_s:g} s", one.spares) for one in failures),
    ]:
        for endpoint in endpoints:
            if not 0 <= endpoint < fabric.endpoints:
                msg = f"{owner}: {fabric.name} has endpoints 0 to {fabric.endpoints - 1}; got {endpoint}"
                raise WorkloadError(msg)
            if endpoint in taken:
                msg = f"{owner}: endpoint {endpoint} is in use by {taken[endpoint]}; choose free ones"
                raise WorkloadError(msg)
            taken[endpoint] = owner


def block(first: int, count: int) -> tuple[int, ...]:
    """Return neighbouring endpoints, from the first on."""
    return tuple(range(first, first + count))
