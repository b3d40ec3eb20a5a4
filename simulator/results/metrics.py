"""Pure functions of a trace: where the time, the energy and the money of a step went.

Every run lies between its critical path and its serial sum. Hardware is written off over its life. A run of
several steps is judged by its steady state.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from simulator.checks import check_positive, check_range
from simulator.collectives.algorithms import vector_bytes
from simulator.fabric import Fabric
from simulator.node import Node
from simulator.operators import BESIDE, CollectiveKind, Skew, StepGraph, Task, topological_order
from simulator.results.trace import (
    COMMUNICATION,
    ISSUE,
    LOADING_BOUND,
    MEMORY_BOUND,
    OTHER_WORK,
    PRODUCTS,
    Span,
    Stream,
    Trace,
)
from simulator.tables import Table, read_table


def critical_path_s(graph: StepGraph, duration_s: Callable[[Task], float]) -> float:
    """Return the longest chain of dependent tasks, or the busiest class if that is longer.

    Parameters
    ----------
    graph : StepGraph
        The step.
    duration_s : callable
        Duration of a task that has everything to itself.
    """
    ends: dict[int, float] = {}
    busy: defaultdict[int, float] = defaultdict(float)
    for task in topological_order(graph.tasks):
        duration = duration_s(task)
        ends[task.id] = max((ends[other] for other in task.after), default=0.0) + duration
        if not isinstance(task.operator, BESIDE) and not task.beside:
            busy[task.rank_class] += duration
    return max([*ends.values(), *busy.values()], default=0.0)


def serial_sum_s(graph: StepGraph, duration_s: Callable[[Task], float]) -> float:
    """Return the time of all tasks one after the other: no sensible run is slower, reconfiguration apart."""
    return math.fsum(duration_s(task) for task in graph.tasks)


def collective_bound_s(kind: CollectiveKind, n: int, payload_bytes: float, port_bytes_per_s: float) -> float:
    """Return the least time of a collective in which every rank has one port and switches do not add.

    Parameters
    ----------
    kind : CollectiveKind
        What is done.
    n : int
        Ranks.
    payload_bytes : float
        Bytes per rank before the collective.
    port_bytes_per_s : float
        Bandwidth of a rank's port, one way.

    Notes
    -----
    All-reduce must send 2 (n-1)/n of the vector through each port, reduce-scatter, all-gather and all-to-all
    (n-1)/n, broadcast, reduction and send all of it (Chan et al. 2007, table 1); one rank sends nothing.
    """
    vector = vector_bytes(kind, payload_bytes, n)
    share = (n - 1) / n
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return 2.0 * share * vector / port_bytes_per_s
        case CollectiveKind.REDUCE_SCATTER | CollectiveKind.ALL_GATHER | CollectiveKind.ALL_TO_ALL:
            return share * vector / port_bytes_per_s
        case _:
            return (payload_bytes if n > 1 else 0.0) / port_bytes_per_s


def in_network_bound_s(kind: CollectiveKind, n: int, payload_bytes: float, port_bytes_per_s: float) -> float:
    """Return the least time of a collective in which every rank has one port and switches add and copy.

    Parameters
    ----------
    kind, n, payload_bytes, port_bytes_per_s
        As in `collective_bound_s`.

    Notes
    -----
    Into an all-reduce each rank must send its whole vector but the chunk that it adds itself, and that
    chunk's sum: the vector once. Reduce-scatter, all-gather and all-to-all still need (n-1)/n of it.
    """
    vector = vector_bytes(kind, payload_bytes, n)
    if kind is CollectiveKind.ALL_REDUCE:
        return (vector if n > 1 else 0.0) / port_bytes_per_s
    return collective_bound_s(kind, n, payload_bytes, port_bytes_per_s)


def outside_bytes(
    kind: CollectiveKind, n: int, local: int, payload_bytes: float, skew: Skew | None = None
) -> float:
    """Return the least bytes that a rank sends out of its node in a collective without sums in switches.

    Parameters
    ----------
    kind : CollectiveKind
        What is done.
    n, local : int
        Ranks of the group, and how many of them share a node; the same number in each.
    payload_bytes : float
        Bytes per rank before the collective.
    skew : Skew, optional
        Of an uneven all-to-all; its busiest port counts, sending or receiving.

    Notes
    -----
    `collective_bound_s` between nodes, whose ranks share the load: k nodes of g ranks send 2 (k-1)/k of the
    vector in an all-reduce, (k-1)/k in its halves, (n-g)/n per rank in an all-to-all, and a send all.
    """
    nodes = max(1, n // local)
    vector = vector_bytes(kind, payload_bytes, n)
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return 2.0 * (nodes - 1) / nodes * vector / local
        case CollectiveKind.REDUCE_SCATTER | CollectiveKind.ALL_GATHER:
            return (nodes - 1) / nodes * vector / local
        case CollectiveKind.ALL_TO_ALL if skew is not None:
            node = np.arange(n) // local
            leaving = skew.matrix() * (node[:, None] != node)
            return float(max(leaving.sum(axis=0).max(), leaving.sum(axis=1).max())) / n * vector
        case CollectiveKind.ALL_TO_ALL:
            return (n - local) / n * vector
        case _:
            return payload_bytes if nodes > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class StepBound:
    """Times below which no step can be."""

    compute_s: float
    """All accelerators at their peak on the model's own operations, whatever the plan."""
    memory_s: float
    """The fullest accelerator's memory moves what its optimizer must touch; all else may stay on chip."""
    port_s: float
    """Each accelerator's port outside its node sends what its plan must."""

    @property
    def step_time_s(self) -> float:
        """The greatest of them (roofline: Williams et al., Commun. ACM 52 (2009) 65)."""
        return max(self.compute_s, self.memory_s, self.port_s)

    @property
    def what(self) -> str:
        """Which of them it is."""
        named = {"compute": self.compute_s, "memory": self.memory_s, "port": self.port_s}
        return max(named, key=lambda one: named[one])


@dataclass(frozen=True, kw_only=True)
class Economics:
    """Prices that turn hardware and energy into cost."""

    name: str = "default"
    """Name of the row set."""
    electricity_usd_per_j: float
    """Price of electrical energy."""
    power_usage_effectiveness: float
    """Power of the building over power of the machines, dimensionless, at least 1."""
    lifetime_s: float
    """Time over which hardware is written off, without residual value."""

    def __post_init__(self) -> None:
        check_range(self, "electricity_usd_per_j")
        check_range(self, "power_usage_effectiveness", low=1.0)
        check_positive(self, "lifetime_s")

    def step_usd(self, *, capital_usd: float, step_time_s: float, energy_j: float) -> dict[str, float]:
        """Return the cost of a step by part: the share of the hardware's life, and the energy."""
        return {
            "hardware": capital_usd * step_time_s / self.lifetime_s,
            "electricity": energy_j * self.power_usage_effectiveness * self.electricity_usd_per_j,
        }


@cache
def economics_table() -> Table:
    """Return the shipped prices."""
    return read_table(Path(__file__).parents[1] / "parameters" / "economics.csv")


def default_economics() -> Economics:
    """Return the prices used unless a user sets others."""
    return economics_table().build(Economics, "default")


@dataclass(frozen=True, kw_only=True)
class Steady:
    """The part of a run in which steps repeat."""

    trace: Trace
    """What happened in it, on a clock that starts with it; energies and bytes are those of the whole run."""
    steps: int
    """Steps that it holds, for times."""
    run_steps: int
    """Steps that the whole run holds, for energies and bytes."""

    @property
    def step_time_s(self) -> float:
        """Mean time from the end of one step to the end of the next."""
        return self.trace.makespan_s / self.steps


def step_ends_s(trace: Trace, graph: StepGraph) -> list[float]:
    """Return when each step of a run ended, seconds; one number if the graph is a single step."""
    if not graph.ends:
        return [trace.makespan_s]
    ended = {span.task: span.end_s for span in trace.spans if span.task >= 0}
    return [max(ended[task] for task in tasks) for tasks in graph.ends]


def steady(trace: Trace, graph: StepGraph) -> Steady:
    """Return the steady state of a run: the whole of it if it holds one step, else its later steps.

    Parameters
    ----------
    trace, graph : Trace, StepGraph
        The run, and what was run.

    Notes
    -----
    A quarter of the steps is left out at either end, for the first ones fill pipeline and network and nothing
    follows the last one, and what remains is cut to whole periods; of two or three steps the time from the
    first one's end to the last one's counts.
    """
    ends = step_ends_s(trace, graph)
    if len(ends) == 1:
        return Steady(trace=trace, steps=1, run_steps=1)
    first = len(ends) // 4
    inner = len(ends) - 1 - 2 * first
    last = first + max(inner // graph.period * graph.period, 1)
    start, end = ends[first], ends[last]
    inside = [_cut(span, start, end) for span in trace.spans if span.end_s > start and span.start_s < end]
    window = replace(trace, spans=tuple(inside), makespan_s=end - start)
    return Steady(trace=window, steps=last - first, run_steps=len(ends))


def _cut(span: Span, start_s: float, end_s: float) -> Span:
    begin, finish = max(span.start_s, start_s), min(span.end_s, end_s)
    share = (finish - begin) / span.duration_s if span.duration_s > 0.0 else 1.0
    return replace(
        span,
        start_s=begin - start_s,
        end_s=finish - start_s,
        parts_s={part: seconds * share for part, seconds in span.parts_s.items()},
    )


EXPOSED = "exposed communication"
"""Time in which a rank's compute waits for bytes."""
DARK = "dark time"
"""Time in which a rank's compute waits for its circuits to move."""
HOST = "waiting for the host"
"""Time in which a rank's compute waits for transfers from and to its host, or for work of it."""
BUBBLE = "pipeline bubble"
"""Time in which a rank has nothing to do."""

CATEGORIES = (
    PRODUCTS,
    f"{PRODUCTS}, {LOADING_BOUND}",
    f"{PRODUCTS}, {MEMORY_BOUND}",
    OTHER_WORK,
    f"{OTHER_WORK}, {MEMORY_BOUND}",
    ISSUE,
    EXPOSED,
    DARK,
    HOST,
    BUBBLE,
)
"""All categories of a rank's time, in the order in which they are shown."""

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """Time, energy and traffic of one step; every share refers to the whole step."""

    step_time_s: float
    """Time from the first to the last task; in a run of several steps, from one step's end to the next."""
    tokens_per_s: float
    """Tokens trained per second."""
    model_flop_utilisation: float
    """Model operations over peak operations in the step, dimensionless."""
    time_by_category_s: dict[str, float]
    """Mean over ranks of the time by what compute did or waited for; adds up to the step."""
    energy_j: float
    """Energy of the whole system over the step."""
    energy_by_component_j: dict[str, float]
    """The same by component; adds up."""
    mean_power_w: float
    """Energy over time, all accelerators and the fabric."""
    dark_s: float
    """Longest reconfiguration time of one rank class, hidden or not."""
    reconfigurations: int
    """Changes of circuits."""
    network_bytes: dict[str, float]
    """Bytes on the wire by axis, all ranks."""
    algorithms: dict[str, str]
    """Collective algorithms that were chosen."""
    host_bytes: dict[str, float]
    """Bytes between accelerators, hosts and storage by lane, all ranks."""
    dropped_share: float = 0.0
    """Share of visits to experts that were dropped, 0 to 1."""

    @property
    def energy_per_token_j(self) -> float:
        """Energy of the whole system per token."""
        return self.energy_j / (self.tokens_per_s * self.step_time_s)


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return intervals in order, overlapping ones joined."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif end > start:
            joined.append((start, end))
    return joined


def without(intervals: list[Interval], holes: list[Interval]) -> list[Interval]:
    """Return what of merged intervals lies outside merged holes."""
    left: list[Interval] = []
    for interval_start, end in intervals:
        start = interval_start
        for hole_start, hole_end in holes:
            if hole_end <= start or hole_start >= end:
                continue
            if hole_start > start:
                left.append((start, hole_start))
            start = max(start, hole_end)
        if start < end:
            left.append((start, end))
    return left


def common(intervals: list[Interval], others: list[Interval]) -> list[Interval]:
    """Return what merged intervals have in common with other merged ones."""
    shared, one, other = [], 0, 0
    while one < len(intervals) and other < len(others):
        start = max(intervals[one][0], others[other][0])
        end = min(intervals[one][1], others[other][1])
        if start < end:
            shared.append((start, end))
        if intervals[one][1] <= others[other][1]:
            one += 1
        else:
            other += 1
    return shared


def length_s(intervals: Iterable[Interval]) -> float:
    """Return the total length of intervals that do not overlap."""
    return math.fsum(end - start for start, end in intervals)


def _interval(span: Span) -> Interval:
    return (span.start_s, span.end_s)


def time_of_class_s(trace: Trace, rank_class: int) -> dict[str, float]:
    """Return the time of one class by category, which adds up to the makespan.

    Idle compute counts as dark time while the class's circuits move, else as exposed communication while the
    class sends, receives or takes part in a collective, else as waiting for the host while that works for the
    class, else as bubble. Of what a run of operators spends on communication within itself, as much counts as
    dark time as circuits move meanwhile.
    """
    times: defaultdict[str, float] = defaultdict(float)
    compute = trace.of(rank_class, Stream.COMPUTE)
    for span in compute:
        for part, seconds in span.parts_s.items():
            times[EXPOSED if part == COMMUNICATION else part] += seconds
    idle = without([(0.0, trace.makespan_s)], merged(_interval(span) for span in compute))
    dark = merged(_interval(span) for span in trace.of(rank_class, Stream.CIRCUITS))
    waiting = without(idle, dark)
    transfers = merged(
        _interval(span)
        for span in trace.spans
        if span.stream is Stream.NETWORK and rank_class in {span.rank_class, span.peer_class}
    )
    busy = merged(_interval(span) for span in compute if COMMUNICATION in span.parts_s)
    within_s = min(times[EXPOSED], length_s(common(dark, busy)))
    times[DARK] = length_s(idle) - length_s(waiting) + within_s
    unsent = without(waiting, transfers)
    times[EXPOSED] += length_s(waiting) - length_s(unsent) - within_s
    hosted = merged(_interval(span) for span in trace.of(rank_class, Stream.HOST))
    bubble = without(unsent, hosted)
    if hosted:
        times[HOST] = length_s(unsent) - length_s(bubble)
    times[BUBBLE] = length_s(bubble)
    return {name: times[name] for name in CATEGORIES if name in times}


def summarise(trace: Trace, graph: StepGraph, node: Node, fabric: Fabric) -> StepMetrics:
    """Return what a step took.

    Parameters
    ----------
    trace : Trace
        The run.
    graph, node, fabric
        What was run, on what.

    Notes
    -----
    Static power of every accelerator and of the fabric is charged over the whole step: a waiting laser is not
    free. Of a run that holds several steps, the mean of those in the steady state is told.
    """
    late = steady(trace, graph)
    whole, trace = trace, late.trace
    step_time_s = late.step_time_s
    classes = range(graph.layout.classes)
    times: defaultdict[str, float] = defaultdict(float)
    for rank_class in classes:
        for part, seconds in time_of_class_s(trace, rank_class).items():
            times[part] += seconds / graph.layout.classes / late.steps
    energy = {
        part: joules / late.run_steps for part, joules in whole.compute_energy_j.items() if joules > 0.0
    }
    for part, power_w in node.static_by_part_w().items():
        energy[part] = energy.get(part, 0.0) + power_w * graph.ranks * step_time_s
    energy["network static"] = fabric.static_w * step_time_s
    energy["network transfers"] = whole.network_energy_j / late.run_steps
    energy["circuit changes"] = whole.reconfiguration_energy_j / late.run_steps
    total = math.fsum(energy.values())
    peak = node.peak_flop_per_s * graph.ranks * step_time_s
    return StepMetrics(
        step_time_s=step_time_s,
        tokens_per_s=graph.tokens / step_time_s,
        model_flop_utilisation=graph.model_flops / peak,
        time_by_category_s={name: times[name] for name in CATEGORIES if name in times},
        energy_j=total,
        energy_by_component_j=energy,
        mean_power_w=total / step_time_s,
        dark_s=max(
            length_s(merged(_interval(span) for span in trace.of(one, Stream.CIRCUITS))) for one in classes
        )
        / late.steps,
        reconfigurations=round(whole.reconfigurations / late.run_steps),
        network_bytes={axis: moved / late.run_steps for axis, moved in whole.network_bytes.items()},
        algorithms=dict(trace.algorithms),
        host_bytes=dict(trace.host_bytes),
        dropped_share=graph.dropped_share,
    )
