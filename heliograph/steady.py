"""A step among others: the steady state of a run that holds several."""

from __future__ import annotations

from dataclasses import dataclass, replace

from heliograph.operators import StepGraph
from heliograph.trace import Span, Trace


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
