"""Pure functions of a trace: where the time and the energy of a step went."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from heliograph.categories import COMMUNICATION, ISSUE, LOADING_BOUND, MEMORY_BOUND, OTHER_WORK, PRODUCTS
from heliograph.interfaces import Fabric
from heliograph.mapping import Node
from heliograph.operators import StepGraph
from heliograph.steady import steady
from heliograph.trace import Span, Stream, Trace

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
    """What one step took; every share refers to the whole step."""

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
    """Longest dark time of one rank class, hidden or not."""
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
