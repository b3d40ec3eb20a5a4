"""Spans of a step on one clock, their categories, and their form for Perfetto."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from simulator.interfaces import Bound, Cost
from simulator.operators import Elementwise, MatMul

COMMUNICATION = "communication"
"""Category of the time in which a class waits for a collective inside a sequence."""
PRODUCTS = "products"
"""Category of matrix products."""
OTHER_WORK = "other work"
"""Category of norms, softmax, activations, look-ups and the optimizer."""
ISSUE = "waiting for launches"
"""Category of the time in which a class's operators are done before the host has issued the next."""
SERVING = "server"
"""Where a class's ranks also serve: the channel of that work."""
MEMORY_BOUND = "memory-bound"
"""What is added to a category where the memory, not the unit, sets the time."""

LOADING_BOUND = "loading-bound"
"""What is added where a core is loaded for longer than it multiplies."""


def category(operator: MatMul | Elementwise, cost: Cost) -> str:
    """Return the name under which an operator's time is reported: its kind, and what slows the unit."""
    kind = PRODUCTS if isinstance(operator, MatMul) else OTHER_WORK
    limits = {Bound.MEMORY: MEMORY_BOUND, Bound.PROGRAMMING: LOADING_BOUND}
    return f"{kind}, {limits[cost.bound]}" if cost.bound in limits else kind


MICROSECOND_S = 1e-6
"""Perfetto's JSON counts microseconds."""


class Stream(StrEnum):
    """Part of a rank class that is busy during a span."""

    COMPUTE = "compute"
    NETWORK = "network"
    CIRCUITS = "circuits"
    HOST = "host"


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """One thing that a class of identical ranks did from one instant to another."""

    rank_class: int
    """Class of identical ranks."""
    stream: Stream
    """What was busy."""
    name: str
    """What was done."""
    start_s: float
    """Start, from the beginning of the step."""
    end_s: float
    """End."""
    microbatch: int = -1
    """Microbatch, or -1."""
    peer_class: int = -1
    """Receiving class of a send, or -1."""
    parts_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """For compute: seconds by category, adding up to the span."""
    task: int = -1
    """Task of the graph, or -1."""

    @property
    def duration_s(self) -> float:
        """Length of the span."""
        return self.end_s - self.start_s


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Everything a run of the engine produced."""

    spans: tuple[Span, ...]
    """All spans, in order of their end."""
    makespan_s: float
    """Time from the start of the step to the end of its last task."""
    compute_energy_j: Mapping[str, float]
    """Dynamic energy of compute by component, all ranks."""
    network_energy_j: float
    """Dynamic energy of transfers, all ranks."""
    reconfiguration_energy_j: float
    """Energy of moving optical switch ports."""
    reconfigurations: int
    """How often circuits were changed."""
    network_bytes: Mapping[str, float]
    """Bytes put on the wire by axis of parallelism, all ranks."""
    algorithms: Mapping[str, str]
    """Algorithm chosen by collective and axis."""
    host_bytes: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Bytes moved between accelerators, hosts and storage by lane, all ranks."""

    def of(self, rank_class: int, stream: Stream) -> list[Span]:
        """Return the spans of a class on one stream, in order of their start."""
        found = [span for span in self.spans if span.rank_class == rank_class and span.stream is stream]
        return sorted(found, key=lambda span: span.start_s)

    def perfetto_events(self) -> list[dict[str, Any]]:
        """Return the trace in Chrome's JSON event form; a process is a rank class, a thread a stream."""
        hosted = any(span.stream is Stream.HOST for span in self.spans)
        shown = [stream for stream in Stream if hosted or stream is not Stream.HOST]
        threads = {stream: index for index, stream in enumerate(shown)}
        events: list[dict[str, Any]] = []
        for rank_class in sorted({span.rank_class for span in self.spans}):
            name = {"name": f"stage {rank_class}"}
            events.append({"ph": "M", "name": "process_name", "pid": rank_class, "args": name})
            events += [
                {
                    "ph": "M",
                    "name": "thread_name",
                    "pid": rank_class,
                    "tid": tid,
                    "args": {"name": str(stream)},
                }
                for stream, tid in threads.items()
            ]
        for span in self.spans:
            args: dict[str, Any] = {part: seconds for part, seconds in span.parts_s.items() if seconds > 0.0}
            if span.microbatch >= 0:
                args["microbatch"] = span.microbatch
            events.append(
                {
                    "ph": "X",
                    "name": span.name,
                    "cat": str(span.stream),
                    "pid": span.rank_class,
                    "tid": threads[span.stream],
                    "ts": span.start_s / MICROSECOND_S,
                    "dur": span.duration_s / MICROSECOND_S,
                    "args": args,
                }
            )
        return events
