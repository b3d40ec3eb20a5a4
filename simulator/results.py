"""Trace of a run of the engine, and the metrics of a step derived from it: time, energy, cost and bounds.

A `Trace` is a list of spans on one clock. `summarise` attributes every rank's time to categories and every
joule to parts. Of a run of several steps the steady state counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, overload

import numpy as np

from simulator.collectives.algorithms import vector_bytes
from simulator.errors import Checked, FromOne, Positive
from simulator.fabric import Fabric
from simulator.interfaces import Bound, Cost
from simulator.node import Node
from simulator.operators import CollectiveKind, Elementwise, MatMul, Skew, StepGraph
from simulator.tables import Table, read_table

COMMUNICATION = "communication"
"""Category of the time in which a class waits for a collective inside a sequence."""
PRODUCTS = "products"
"""Category of matrix products."""
OTHER_WORK = "other work"
"""Category of norms, softmax, activations, look-ups and the optimizer."""
ISSUE = "waiting for launches"
"""Category of the time in which a class waits for the host to issue the next operator."""
SERVING = "server"
"""Channel of the work of a parameter server that runs on a class's ranks."""
MEMORY_BOUND = "memory-bound"
"""Suffix of a category where the memory, rather than the unit, sets the time."""
LOADING_BOUND = "loading-bound"
"""Suffix of a category where loading a core takes longer than multiplying."""


def category(operator: MatMul | Elementwise, cost: Cost) -> str:
    """Return the category of an operator's time: its kind, with a suffix for the bottleneck."""
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
    """Activity of a class of identical ranks on one of its streams, from start to end."""

    rank_class: int
    """Class of identical ranks."""
    stream: Stream
    """Part of the class that was busy."""
    name: str
    """Name of the activity."""
    start_s: float
    """Start, from the beginning of the run."""
    end_s: float
    """End, from the beginning of the run."""
    microbatch: int = -1
    """Microbatch, or -1."""
    peer_class: int = -1
    """Receiving class of a send, or -1."""
    parts_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Of compute, the seconds by category, which add up to the span."""
    task: int = -1
    """Task of the graph, or -1."""

    @property
    def duration_s(self) -> float:
        """Length of the span."""
        return self.end_s - self.start_s


SPAN_COLUMNS = ("rank_class", "stream", "start_s", "end_s", "microbatch", "peer_class", "task")
"""Columns of `SpanTable` whose values mean the same in every table."""
STREAMS = tuple(Stream)
"""Streams in the order of their numbers in `SpanTable.stream`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SpanTable(Sequence[Span]):
    """Spans as columns of shape [spans]; `Span` objects are made when first asked for."""

    rank_class: np.ndarray
    """Class of identical ranks."""
    stream: np.ndarray
    """Index into `STREAMS`."""
    name: np.ndarray
    """Index into `names`."""
    names: tuple[str, ...]
    """Names of activities."""
    start_s: np.ndarray
    """Starts, from the beginning of the run."""
    end_s: np.ndarray
    """Ends, from the beginning of the run."""
    microbatch: np.ndarray
    """Microbatch, or -1."""
    peer_class: np.ndarray
    """Receiving class of a send, or -1."""
    task: np.ndarray
    """Task of the graph, or -1."""
    categories: tuple[str, ...]
    """Categories of compute."""
    parts_s: np.ndarray
    """Seconds by category, NaN where a span has none; shape [spans, categories]."""

    @classmethod
    def of(cls, spans: Iterable[Span]) -> SpanTable:
        """Return spans as columns."""
        every = tuple(spans)
        names = tuple(dict.fromkeys(span.name for span in every))
        categories = tuple(dict.fromkeys(part for span in every for part in span.parts_s))
        indices = {name: index for index, name in enumerate(names)}
        parts_s = np.array(
            [[span.parts_s.get(part, np.nan) for part in categories] for span in every], dtype=float
        )
        return cls(
            rank_class=np.array([span.rank_class for span in every], dtype=np.int64),
            stream=np.array([STREAMS.index(span.stream) for span in every], dtype=np.int64),
            name=np.array([indices[span.name] for span in every], dtype=np.int64),
            names=names,
            start_s=np.array([span.start_s for span in every], dtype=float),
            end_s=np.array([span.end_s for span in every], dtype=float),
            microbatch=np.array([span.microbatch for span in every], dtype=np.int64),
            peer_class=np.array([span.peer_class for span in every], dtype=np.int64),
            task=np.array([span.task for span in every], dtype=np.int64),
            categories=categories,
            parts_s=parts_s.reshape(len(every), len(categories)),
        )

    def rows(self, kept: np.ndarray) -> SpanTable:
        """Return some of the spans, selected by a mask of shape [spans] or by indices."""
        names = (*SPAN_COLUMNS, "name", "parts_s")
        return replace(self, **{name: getattr(self, name)[kept] for name in names})

    def mask(self, rank_class: int, stream: Stream) -> np.ndarray:
        """Return which spans a class has on a stream, shape [spans]."""
        return np.asarray((self.rank_class == rank_class) & (self.stream == STREAMS.index(stream)))

    def __len__(self) -> int:
        return int(self.start_s.size)

    @cached_property
    def _spans(self) -> tuple[Span, ...]:
        columns = (self.rank_class, self.stream, self.name, self.start_s, self.end_s, self.microbatch)
        rows = zip(
            *(column.tolist() for column in (*columns, self.peer_class, self.task, self.parts_s)), strict=True
        )
        return tuple(
            Span(
                rank_class=rank_class,
                stream=STREAMS[stream],
                name=self.names[name],
                start_s=start_s,
                end_s=end_s,
                microbatch=microbatch,
                peer_class=peer_class,
                parts_s={
                    part: seconds
                    for part, seconds in zip(self.categories, parts_s, strict=True)
                    if seconds == seconds  # noqa: PLR0124 - false for NaN
                },
                task=task,
            )
            for rank_class, stream, name, start_s, end_s, microbatch, peer_class, task, parts_s in rows
        )

    @overload
    def __getitem__(self, index: int) -> Span: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Span, ...]: ...

    def __getitem__(self, index: int | slice) -> Span | tuple[Span, ...]:
        return self._spans[index]

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._spans == tuple(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Result of a run of the engine."""

    spans: Sequence[Span]
    """All spans, in order of their end."""
    makespan_s: float
    """Time from the start of the step to the end of its last task."""
    compute_energy_j: Mapping[str, float]
    """Dynamic energy of compute by component, all ranks."""
    network_energy_j: float
    """Dynamic energy of transfers, all ranks."""
    reconfiguration_energy_j: float
    """Energy of reconfigurations of optical switches."""
    reconfigurations: int
    """Number of reconfigurations of circuits."""
    network_bytes: Mapping[str, float]
    """Bytes put on the wire by axis of parallelism, all ranks."""
    algorithms: Mapping[str, str]
    """Algorithm chosen by collective and axis."""
    host_bytes: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Bytes moved between accelerators, hosts and storage by lane, all ranks."""

    def __repr__(self) -> str:
        """Return one line; the spans of a step are thousands."""
        moved = sum(self.network_bytes.values())
        return (
            f"Trace of {self.makespan_s:.4g} s: {len(self.spans):,} spans, {moved:.4g} B on the wire, "
            f"{self.reconfigurations:,} changes of circuits"
        )

    @cached_property
    def table(self) -> SpanTable:
        """All spans as columns."""
        return self.spans if isinstance(self.spans, SpanTable) else SpanTable.of(self.spans)

    def of(self, rank_class: int, stream: Stream) -> list[Span]:
        """Return the spans of a class on one stream, in order of their start."""
        spans = [span for span in self.spans if span.rank_class == rank_class and span.stream is stream]
        return sorted(spans, key=lambda span: span.start_s)

    def perfetto_events(self, most: int | None = None) -> list[dict[str, Any]]:
        """Return the trace in Chrome's JSON event form; a process is a rank class, a thread a stream.

        Parameters
        ----------
        most : int, optional
            Most events. If there are more spans, those that end last are left out, and the last event says
            how many.
        """
        spans = self.table
        hosted = bool((spans.stream == STREAMS.index(Stream.HOST)).any())
        shown = [stream for stream in Stream if hosted or stream is not Stream.HOST]
        threads = {stream: index for index, stream in enumerate(shown)}
        events = _thread_names(np.unique(spans.rank_class).tolist(), threads)
        left_out = 0 if most is None else len(spans) + len(events) - most
        if left_out > 0:
            left_out = min(left_out + 1, len(spans))
            spans = spans.rows(np.arange(len(spans) - left_out))
        events += _span_events(spans, threads)
        if left_out > 0:
            last_s = float(spans.start_s[-1]) if len(spans) else 0.0
            last = {"ts": last_s / MICROSECOND_S, "pid": 0, "tid": 0}
            events.append({"name": f"{left_out} later events left out", "ph": "i", "s": "g", **last})
        return events


def _thread_names(rank_classes: Iterable[int], threads: Mapping[Stream, int]) -> list[dict[str, Any]]:
    """Return the events that name the process of each rank class and its threads, given by stream."""
    events: list[dict[str, Any]] = []
    for rank_class in rank_classes:
        process = {"name": f"stage {rank_class}"}
        events.append({"ph": "M", "name": "process_name", "pid": rank_class, "args": process})
        for stream, tid in threads.items():
            thread = {"name": str(stream)}
            events.append({"ph": "M", "name": "thread_name", "pid": rank_class, "tid": tid, "args": thread})
    return events


def _span_events(spans: SpanTable, threads: Mapping[Stream, int]) -> list[dict[str, Any]]:
    """Return an event for each span, with its seconds by category and its microbatch."""
    details: list[dict[str, Any]] = [{} for _ in range(len(spans))]
    row_of, part_of = np.nonzero(spans.parts_s > 0.0)
    seconds = spans.parts_s[row_of, part_of].tolist()
    for row, part, part_s in zip(row_of.tolist(), part_of.tolist(), seconds, strict=True):
        details[row][spans.categories[part]] = part_s
    tids = [threads.get(stream, -1) for stream in STREAMS]
    columns = (spans.start_s, spans.end_s, spans.rank_class, spans.stream, spans.name, spans.microbatch)
    rows = zip(*(column.tolist() for column in columns), details, strict=True)
    events: list[dict[str, Any]] = []
    for start_s, end_s, rank_class, stream, name, microbatch, detail in rows:
        if microbatch >= 0:
            detail["microbatch"] = microbatch
        events.append(
            {
                "ph": "X",
                "name": spans.names[name],
                "cat": STREAMS[stream].value,
                "pid": rank_class,
                "tid": tids[stream],
                "ts": start_s / MICROSECOND_S,
                "dur": (end_s - start_s) / MICROSECOND_S,
                "args": detail,
            }
        )
    return events


def outside_bytes(
    kind: CollectiveKind, n: int, local: int, payload_bytes: float, skew: Skew | None = None
) -> float:
    """Return a lower bound of the bytes that a rank sends out of its node, without reduction in switches.

    Parameters
    ----------
    kind : CollectiveKind
        Kind of collective.
    n, local : int
        Ranks of the group, and ranks of it in each node.
    payload_bytes : float
        Bytes per rank before the collective.
    skew : Skew, optional
        Traffic matrix of an uneven all-to-all; its busiest port counts, sending or receiving.

    Notes
    -----
    Bounds of ports (Chan et al. 2007, table 1) applied to nodes, whose ranks share the load: k nodes of g
    ranks send 2 (k-1)/k of the vector in an all-reduce, (k-1)/k in a reduce-scatter or all-gather, (n-g)/n
    per rank in an all-to-all, and all in a send.
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
    """Lower bounds of the step time."""

    compute_s: float
    """Time of the model's own operations with all accelerators at their peak, whatever the plan."""
    memory_s: float
    """Time of the fullest accelerator's memory to move the optimizer's states and weights; all else may stay
    on chip."""
    port_s: float
    """Time of an accelerator's port outside its node to send the plan's least traffic (`outside_bytes`)."""

    @property
    def step_time_s(self) -> float:
        """Greatest of the bounds (roofline: Williams et al., Commun. ACM 52 (2009) 65)."""
        return max(self.compute_s, self.memory_s, self.port_s)

    @property
    def what(self) -> str:
        """Name of the greatest bound."""
        named = {"compute": self.compute_s, "memory": self.memory_s, "port": self.port_s}
        return max(named, key=lambda name: named[name])


@dataclass(frozen=True, kw_only=True)
class Economics(Checked):
    """Prices that turn hardware and energy into cost."""

    name: str = "default"
    """Name of the row set."""
    electricity_usd_per_j: float
    """Price of electrical energy."""
    power_usage_effectiveness: FromOne
    """Power of the building over power of the machines, dimensionless, at least 1."""
    lifetime_s: Positive
    """Time over which hardware is written off, without residual value."""

    def step_usd(self, *, capital_usd: float, step_time_s: float, energy_j: float) -> dict[str, float]:
        """Return the cost of a step by part: the share of the hardware's life, and the energy."""
        return {
            "hardware": capital_usd * step_time_s / self.lifetime_s,
            "electricity": energy_j * self.power_usage_effectiveness * self.electricity_usd_per_j,
        }


@cache
def economics_table() -> Table:
    """Return the shipped prices."""
    return read_table(Path(__file__).parent / "parameters" / "economics.csv")


def default_economics() -> Economics:
    """Return the prices used unless a user sets others."""
    return economics_table().build(Economics, "default")


@dataclass(frozen=True, kw_only=True)
class Steady:
    """Steady state of a run: the part in which steps repeat."""

    trace: Trace
    """Trace of that part, on a clock that starts with it; its energies and bytes are of the whole run."""
    steps: int
    """Number of steps in that part, by which times are divided."""
    run_steps: int
    """Number of steps in the whole run, by which energies and bytes are divided."""

    @property
    def step_time_s(self) -> float:
        """Mean time from the end of one step to the end of the next."""
        return self.trace.makespan_s / self.steps


def step_ends_s(trace: Trace, graph: StepGraph) -> list[float]:
    """Return the end of each step of a run, in s."""
    if not graph.ends:
        return [trace.makespan_s]
    ended = dict(zip(trace.table.task.tolist(), trace.table.end_s.tolist(), strict=True))
    return [max(ended[task] for task in tasks) for tasks in graph.ends]


def steady(trace: Trace, graph: StepGraph) -> Steady:
    """Return the steady state of a run; the whole run if it has one step.

    Notes
    -----
    A quarter of the steps is left out at either end, as the first ones fill pipeline and network and nothing
    follows the last one. The rest is cut to whole periods. Of two or three steps, the time from the end of
    the first to the end of the last counts.
    """
    ends = step_ends_s(trace, graph)
    if len(ends) == 1:
        return Steady(trace=trace, steps=1, run_steps=1)
    first = len(ends) // 4
    inner = len(ends) - 1 - 2 * first
    last = first + max(inner // graph.period * graph.period, 1)
    start, end = ends[first], ends[last]
    window = replace(trace, spans=_cut(trace.table, start, end), makespan_s=end - start)
    return Steady(trace=window, steps=last - first, run_steps=len(ends))


def _cut(table: SpanTable, start_s: float, end_s: float) -> SpanTable:
    """Return spans clipped to a window of time, on a clock that starts with the window."""
    inside = table.rows((table.end_s > start_s) & (table.start_s < end_s))
    begin, finish = np.maximum(inside.start_s, start_s), np.minimum(inside.end_s, end_s)
    length_s = inside.end_s - inside.start_s
    share = np.divide(finish - begin, length_s, out=np.ones(len(inside)), where=length_s > 0.0)
    return replace(
        inside, start_s=begin - start_s, end_s=finish - start_s, parts_s=inside.parts_s * share[:, None]
    )


EXPOSED = "exposed communication"
"""Time in which a rank's compute waits for communication."""
DARK = "reconfiguration"
"""Time in which a rank's compute waits for a reconfiguration of its circuits."""
HOST = "waiting for the host"
"""Time in which a rank's compute waits for its host: transfers, or work of the processors."""
BUBBLE = "pipeline bubble"
"""Time in which a rank's compute waits for other pipeline stages."""

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
    """Time by category, `CATEGORIES`, mean over ranks; adds up to the step time."""
    energy_j: float
    """Energy of the whole system over the step."""
    energy_by_component_j: dict[str, float]
    """Energy by component; adds up to `energy_j`."""
    mean_power_w: float
    """Energy over time, all accelerators and the fabric."""
    dark_s: float
    """Time of reconfigurations, hidden or not, of the rank class where it is longest."""
    reconfigurations: int
    """Number of reconfigurations of circuits."""
    network_bytes: dict[str, float]
    """Bytes on the wire by axis, all ranks."""
    algorithms: dict[str, str]
    """Algorithm chosen by collective and axis."""
    host_bytes: dict[str, float]
    """Bytes between accelerators, hosts and storage by lane, all ranks."""
    dropped_share: float = 0.0
    """Share of token copies that full experts dropped, 0 to 1."""

    @property
    def energy_per_token_j(self) -> float:
        """Energy of the whole system per token."""
        return self.energy_j / (self.tokens_per_s * self.step_time_s)


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervals:
    """Intervals of time in ascending order that neither overlap nor touch; shape [n] each."""

    start_s: np.ndarray
    """Starts."""
    end_s: np.ndarray
    """Ends, later than the starts."""

    @classmethod
    def merged(cls, start_s: np.ndarray, end_s: np.ndarray) -> Intervals:
        """Return the union of any intervals, given by starts and ends of shape [n] each."""
        long = end_s > start_s
        order = np.lexsort((end_s[long], start_s[long]))
        start_s, end_s = start_s[long][order], np.maximum.accumulate(end_s[long][order])
        begins = np.ones(start_s.size, dtype=bool)
        begins[1:] = start_s[1:] > end_s[:-1]
        ends = np.append(begins[1:], True)[: start_s.size]
        return cls(start_s=start_s[begins], end_s=end_s[ends])

    def common(self, others: Intervals) -> Intervals:
        """Return the intersection with others."""
        first = np.searchsorted(others.end_s, self.start_s, side="right")
        last = np.searchsorted(others.start_s, self.end_s, side="left")
        overlaps = np.maximum(last - first, 0)  # number of others that each interval overlaps
        own_index = np.repeat(np.arange(overlaps.size), overlaps)
        earlier = np.repeat(np.cumsum(overlaps) - overlaps, overlaps)
        other_index = np.arange(own_index.size) - earlier + first[own_index]
        return Intervals(
            start_s=np.maximum(self.start_s[own_index], others.start_s[other_index]),
            end_s=np.minimum(self.end_s[own_index], others.end_s[other_index]),
        )

    def without(self, holes: Intervals) -> Intervals:
        """Return the difference: the intervals without others."""
        if not holes.start_s.size:
            return self
        between = Intervals(start_s=np.append(-np.inf, holes.end_s), end_s=np.append(holes.start_s, np.inf))
        return self.common(between)

    @property
    def length_s(self) -> float:
        """Total length."""
        return math.fsum((self.end_s - self.start_s).tolist())


def _busy(table: SpanTable, chosen: np.ndarray) -> Intervals:
    """Return the union of the spans that a mask of shape [spans] selects."""
    return Intervals.merged(table.start_s[chosen], table.end_s[chosen])


def time_of_class_s(trace: Trace, rank_class: int) -> dict[str, float]:
    """Return the time of one class by category, which adds up to the makespan.

    While its compute is idle, the time counts as reconfiguration if circuits of the class move; else as
    exposed communication if the class sends, receives or takes part in a collective; else as waiting for the
    host if that works for the class; else as bubble. Communication inside a sequence of operators counts as
    reconfiguration as far as circuits move meanwhile.
    """
    table = trace.table
    table = table.rows(np.flatnonzero((table.rank_class == rank_class) | (table.peer_class == rank_class)))
    computes = table.mask(rank_class, Stream.COMPUTE)
    times = _computing_s(table, computes)
    whole = Intervals(start_s=np.zeros(1), end_s=np.array([trace.makespan_s]))
    idle = whole.without(_busy(table, computes))
    dark = _busy(table, table.mask(rank_class, Stream.CIRCUITS))
    not_dark = idle.without(dark)
    transfers = _busy(table, table.stream == STREAMS.index(Stream.NETWORK))
    dark_in_sequences_s = 0.0
    if dark.start_s.size and COMMUNICATION in table.categories:
        waits = ~np.isnan(table.parts_s[:, table.categories.index(COMMUNICATION)])
        dark_in_sequences_s = min(times[EXPOSED], dark.common(_busy(table, computes & waits)).length_s)
    times[DARK] = idle.length_s - not_dark.length_s + dark_in_sequences_s
    no_transfer = not_dark.without(transfers)
    times[EXPOSED] += not_dark.length_s - no_transfer.length_s - dark_in_sequences_s
    host = _busy(table, table.mask(rank_class, Stream.HOST))
    bubble = no_transfer.without(host)
    if host.start_s.size:
        times[HOST] = no_transfer.length_s - bubble.length_s
    times[BUBBLE] = bubble.length_s
    return {name: times[name] for name in CATEGORIES if name in times}


def _computing_s(table: SpanTable, computes: np.ndarray) -> defaultdict[str, float]:
    """Return the time by category of the spans of compute, given as a mask of shape [spans].

    Times are added in the order of the spans' starts, so that sums are the same to the bit on every machine;
    `np.sum` adds in pairs.
    """
    times: defaultdict[str, float] = defaultdict(float)
    chosen = np.flatnonzero(computes)
    chosen = chosen[np.argsort(table.start_s[chosen], kind="stable")]
    parts_s = table.parts_s[chosen]
    present = ~np.isnan(parts_s)
    sums_s = np.cumsum(np.where(present, parts_s, 0.0), axis=0)
    for index, part in enumerate(table.categories):
        if present[:, index].any():
            times[EXPOSED if part == COMMUNICATION else part] += float(sums_s[-1, index])
    return times


def energy_by_component_j(
    trace: Trace,
    node: Node,
    fabric: Fabric,
    static_j: Mapping[str, float],
    time_s: float,
    *,
    steps: float = 1.0,
) -> dict[str, float]:
    """Return the energy of a step by part.

    Parameters
    ----------
    trace : Trace
        Trace of one or more steps.
    node : Node
        Accelerator, whose server adds fans and power supplies.
    fabric : Fabric
        Network between the accelerators.
    static_j : mapping of str to float
        Static energy of all accelerators and servers over a step, by part.
    time_s : float
        Step time.
    steps : float
        Number of steps in the trace.
    """
    energy = {part: joules / steps for part, joules in trace.compute_energy_j.items() if joules > 0.0}
    for part, joules in static_j.items():
        energy[part] = energy.get(part, 0.0) + joules
    energy |= node.around(math.fsum(energy.values()))
    energy["network static"] = fabric.static_w * time_s
    energy["network transfers"] = trace.network_energy_j / steps
    energy["circuit changes"] = trace.reconfiguration_energy_j / steps
    return energy


def summarise(trace: Trace, graph: StepGraph, node: Node, fabric: Fabric) -> StepMetrics:
    """Return the metrics of a step.

    Notes
    -----
    Static power of all accelerators, their servers and the fabric is charged over the whole step; a waiting
    laser is not free. Fans and power supplies are charged on everything in a server except its network. Of a
    run of several steps, the mean over the steady state is returned.
    """
    steady_state = steady(trace, graph)
    table, step_time_s = steady_state.trace.table, steady_state.step_time_s
    classes = range(graph.layout.classes)
    times: defaultdict[str, float] = defaultdict(float)
    for rank_class in classes:
        for part, seconds in time_of_class_s(steady_state.trace, rank_class).items():
            times[part] += seconds / graph.layout.classes / steady_state.steps
    dark_s = max(_busy(table, table.mask(rank_class, Stream.CIRCUITS)).length_s for rank_class in classes)
    static_j = {
        name: power_w * graph.ranks * step_time_s for name, power_w in node.static_by_part_w().items()
    }
    run_steps = steady_state.run_steps
    energy = energy_by_component_j(trace, node, fabric, static_j, step_time_s, steps=run_steps)
    total_j = math.fsum(energy.values())
    peak_flops = node.peak_flop_per_s * graph.ranks * step_time_s
    return StepMetrics(
        step_time_s=step_time_s,
        tokens_per_s=graph.tokens / step_time_s,
        model_flop_utilisation=graph.model_flops / peak_flops,
        time_by_category_s={name: times[name] for name in CATEGORIES if name in times},
        energy_j=total_j,
        energy_by_component_j=energy,
        mean_power_w=total_j / step_time_s,
        dark_s=dark_s / steady_state.steps,
        reconfigurations=round(trace.reconfigurations / run_steps),
        network_bytes={axis: moved / run_steps for axis, moved in trace.network_bytes.items()},
        algorithms=dict(trace.algorithms),
        host_bytes=dict(trace.host_bytes),
        dropped_share=graph.dropped_share,
    )
