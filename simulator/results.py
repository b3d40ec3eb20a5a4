"""Trace of a step, spans on one clock, and its metrics: where the time, the energy and the money went.

Every run lies between its critical path and its serial sum. Hardware is written off over its life. A run of
several steps is judged by its steady state.
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


SPAN_COLUMNS = ("rank_class", "stream", "start_s", "end_s", "microbatch", "peer_class", "task")
"""Columns of a table of spans that read alike in every table."""
STREAMS = tuple(Stream)
"""Streams, in the order in which columns number them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SpanTable(Sequence[Span]):
    """Spans as columns, of shape [spans] where nothing else is said; single ones are made when asked for."""

    rank_class: np.ndarray
    """Class of identical ranks."""
    stream: np.ndarray
    """Place in `STREAMS`."""
    name: np.ndarray
    """Place in `names`."""
    names: tuple[str, ...]
    """Names that occur."""
    start_s: np.ndarray
    """Starts, from the beginning of the step."""
    end_s: np.ndarray
    """Ends."""
    microbatch: np.ndarray
    """Microbatch, or -1."""
    peer_class: np.ndarray
    """Receiving class of a send, or -1."""
    task: np.ndarray
    """Task of the graph, or -1."""
    categories: tuple[str, ...]
    """Categories of compute that occur."""
    parts_s: np.ndarray
    """Seconds by category, not a number where a span has none; shape [spans, categories]."""

    @classmethod
    def of(cls, spans: Iterable[Span]) -> SpanTable:
        """Return spans as columns."""
        every = tuple(spans)
        names = tuple(dict.fromkeys(span.name for span in every))
        categories = tuple(dict.fromkeys(part for span in every for part in span.parts_s))
        places = {name: place for place, name in enumerate(names)}
        parts_s = np.array(
            [[span.parts_s.get(part, np.nan) for part in categories] for span in every], dtype=float
        )
        return cls(
            rank_class=np.array([span.rank_class for span in every], dtype=np.int64),
            stream=np.array([STREAMS.index(span.stream) for span in every], dtype=np.int64),
            name=np.array([places[span.name] for span in every], dtype=np.int64),
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
        """Return some of the spans: a mask of shape [spans], or their places."""
        names = (*SPAN_COLUMNS, "name", "parts_s")
        return replace(self, **{name: getattr(self, name)[kept] for name in names})

    def mask(self, rank_class: int, stream: Stream) -> np.ndarray:
        """Return which spans a class has on a stream, shape [spans]."""
        return np.asarray((self.rank_class == rank_class) & (self.stream == STREAMS.index(stream)))

    def __len__(self) -> int:
        return int(self.start_s.size)

    @cached_property
    def _made(self) -> tuple[Span, ...]:
        """Spans one by one."""
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
                    if seconds == seconds  # noqa: PLR0124 - false of what is not a number
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
        return self._made[index]

    def __iter__(self) -> Iterator[Span]:
        return iter(self._made)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._made == tuple(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Everything a run of the engine produced."""

    spans: Sequence[Span]
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
        found = [span for span in self.spans if span.rank_class == rank_class and span.stream is stream]
        return sorted(found, key=lambda span: span.start_s)

    def perfetto_events(self, most: int | None = None) -> list[dict[str, Any]]:
        """Return the trace in Chrome's JSON event form; a process is a rank class, a thread a stream.

        Parameters
        ----------
        most : int, optional
            Events at most; of more spans those that end last are left out, and the last event says how many.
        """
        hosted = bool((self.table.stream == STREAMS.index(Stream.HOST)).any())
        shown = [stream for stream in Stream if hosted or stream is not Stream.HOST]
        threads = {stream: index for index, stream in enumerate(shown)}
        events: list[dict[str, Any]] = []
        for rank_class in np.unique(self.table.rank_class).tolist():
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
        spans = self.table
        left_out = 0 if most is None else len(spans) + len(events) - most
        if left_out > 0:
            left_out = min(left_out + 1, len(spans))
            spans = spans.rows(np.arange(len(spans) - left_out))
        start_s, end_s = spans.start_s.tolist(), spans.end_s.tolist()
        tids = [threads.get(stream, -1) for stream in STREAMS]
        parts: list[dict[str, Any]] = [{} for _ in start_s]
        row_of, part_of = np.nonzero(spans.parts_s > 0.0)
        seconds = spans.parts_s[row_of, part_of].tolist()
        for row, part, part_s in zip(row_of.tolist(), part_of.tolist(), seconds, strict=True):
            parts[row][spans.categories[part]] = part_s
        columns = (spans.rank_class, spans.stream, spans.name, spans.microbatch)
        rows = zip(start_s, end_s, *(column.tolist() for column in columns), parts, strict=True)
        for start, end, rank_class, stream, name, microbatch, args in rows:
            if microbatch >= 0:
                args["microbatch"] = microbatch
            events.append(
                {
                    "ph": "X",
                    "name": spans.names[name],
                    "cat": STREAMS[stream].value,
                    "pid": rank_class,
                    "tid": tids[stream],
                    "ts": start / MICROSECOND_S,
                    "dur": (end - start) / MICROSECOND_S,
                    "args": args,
                }
            )
        if left_out > 0:
            last = {"ts": start_s[-1] / MICROSECOND_S if start_s else 0.0, "pid": 0, "tid": 0}
            events.append({"name": f"{left_out} later events left out", "ph": "i", "s": "g", **last})
        return events


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
    The bounds of ports (Chan et al. 2007, table 1) between nodes, whose ranks share the load: k nodes of g
    ranks send 2 (k-1)/k of the vector in an all-reduce, (k-1)/k in its halves, (n-g)/n per rank in an
    all-to-all, and a send all.
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
        """Name of the greatest of them."""
        named = {"compute": self.compute_s, "memory": self.memory_s, "port": self.port_s}
        return max(named, key=lambda one: named[one])


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
    ended = dict(zip(trace.table.task.tolist(), trace.table.end_s.tolist(), strict=True))
    return [max(ended[task] for task in tasks) for tasks in graph.ends]


def steady(trace: Trace, graph: StepGraph) -> Steady:
    """Return the steady state of a run: the whole of it if it holds one step, else its later steps.

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
    window = replace(trace, spans=_cut(trace.table, start, end), makespan_s=end - start)
    return Steady(trace=window, steps=last - first, run_steps=len(ends))


def _cut(table: SpanTable, start_s: float, end_s: float) -> SpanTable:
    """Return what of spans lies between two instants, on a clock that starts with the first."""
    inside = table.rows((table.end_s > start_s) & (table.start_s < end_s))
    begin, finish = np.maximum(inside.start_s, start_s), np.minimum(inside.end_s, end_s)
    length_s = inside.end_s - inside.start_s
    share = np.divide(finish - begin, length_s, out=np.ones(len(inside)), where=length_s > 0.0)
    return replace(
        inside, start_s=begin - start_s, end_s=finish - start_s, parts_s=inside.parts_s * share[:, None]
    )


EXPOSED = "exposed communication"
"""Time in which a rank's compute waits for bytes."""
DARK = "reconfiguration"
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Intervals:
    """Intervals in order that neither overlap nor touch; shape [n] each."""

    start_s: np.ndarray
    """Starts."""
    end_s: np.ndarray
    """Ends, later than the starts."""

    @classmethod
    def merged(cls, start_s: np.ndarray, end_s: np.ndarray) -> Intervals:
        """Return intervals in order, those joined that overlap or touch; shape [n] each."""
        long = end_s > start_s
        order = np.lexsort((end_s[long], start_s[long]))
        start_s, end_s = start_s[long][order], np.maximum.accumulate(end_s[long][order])
        begins = np.ones(start_s.size, dtype=bool)
        begins[1:] = start_s[1:] > end_s[:-1]
        ends = np.append(begins[1:], True)[: start_s.size]
        return cls(start_s=start_s[begins], end_s=end_s[ends])

    def common(self, others: Intervals) -> Intervals:
        """Return what they have in common with others."""
        first = np.searchsorted(others.end_s, self.start_s, side="right")
        last = np.searchsorted(others.start_s, self.end_s, side="left")
        met = np.maximum(last - first, 0)
        mine = np.repeat(np.arange(met.size), met)
        theirs = np.arange(mine.size) - np.repeat(np.cumsum(met) - met, met) + first[mine]
        return Intervals(
            start_s=np.maximum(self.start_s[mine], others.start_s[theirs]),
            end_s=np.minimum(self.end_s[mine], others.end_s[theirs]),
        )

    def without(self, holes: Intervals) -> Intervals:
        """Return what of them lies outside others."""
        if not holes.start_s.size:
            return self
        between = Intervals(start_s=np.append(-np.inf, holes.end_s), end_s=np.append(holes.start_s, np.inf))
        return self.common(between)

    @property
    def length_s(self) -> float:
        """Length of all together."""
        return math.fsum((self.end_s - self.start_s).tolist())


def _busy(table: SpanTable, chosen: np.ndarray) -> Intervals:
    """Return the time in which any of some spans, a mask of shape [spans], lasts."""
    return Intervals.merged(table.start_s[chosen], table.end_s[chosen])


def time_of_class_s(trace: Trace, rank_class: int) -> dict[str, float]:
    """Return the time of one class by category, which adds up to the makespan.

    Idle compute counts as reconfiguration while circuits of the class move, else as exposed communication
    while the class sends, receives or takes part in a collective, else as waiting for the host while that
    works for the class, else as bubble. Of what a run of operators spends on communication within itself, as
    much counts as reconfiguration as circuits move meanwhile.
    """
    table = trace.table
    table = table.rows(np.flatnonzero((table.rank_class == rank_class) | (table.peer_class == rank_class)))
    computes = table.mask(rank_class, Stream.COMPUTE)
    times = _computing_s(table, computes)
    whole = Intervals(start_s=np.zeros(1), end_s=np.array([trace.makespan_s]))
    idle = whole.without(_busy(table, computes))
    dark = _busy(table, table.mask(rank_class, Stream.CIRCUITS))
    waiting = idle.without(dark)
    transfers = _busy(table, table.stream == STREAMS.index(Stream.NETWORK))
    within_s = 0.0
    if dark.start_s.size and COMMUNICATION in table.categories:
        waits = ~np.isnan(table.parts_s[:, table.categories.index(COMMUNICATION)])
        within_s = min(times[EXPOSED], dark.common(_busy(table, computes & waits)).length_s)
    times[DARK] = idle.length_s - waiting.length_s + within_s
    unsent = waiting.without(transfers)
    times[EXPOSED] += waiting.length_s - unsent.length_s - within_s
    hosted = _busy(table, table.mask(rank_class, Stream.HOST))
    bubble = unsent.without(hosted)
    if hosted.start_s.size:
        times[HOST] = unsent.length_s - bubble.length_s
    times[BUBBLE] = bubble.length_s
    return {name: times[name] for name in CATEGORIES if name in times}


def _computing_s(table: SpanTable, computes: np.ndarray) -> defaultdict[str, float]:
    """Return the time of spans of compute, a mask of shape [spans], by category, added up in their order."""
    times: defaultdict[str, float] = defaultdict(float)
    chosen = np.flatnonzero(computes)
    chosen = chosen[np.argsort(table.start_s[chosen], kind="stable")]
    parts_s = table.parts_s[chosen]
    known = ~np.isnan(parts_s)
    sums_s = np.cumsum(np.where(known, parts_s, 0.0), axis=0)  # one by one, as `np.sum` does not add
    for part, place in zip(table.categories, range(known.shape[1]), strict=True):
        if known[:, place].any():
            times[EXPOSED if part == COMMUNICATION else part] += float(sums_s[-1, place])
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
        Run of one or more steps.
    node, fabric : Node, Fabric
        What stands round the accelerators.
    static_j : mapping of str to float
        What accelerators and servers draw whatever they do, by part, joule over the time.
    time_s : float
        How long a step takes.
    steps : float
        Steps in the trace.
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
    """Return what a step took.

    Notes
    -----
    Static power of every accelerator, of its server and of the fabric is charged over the whole step: a
    waiting laser is not free. Fans and power supplies are charged on all that stands in a server but its
    network. Of a run that holds several steps, the mean of those in the steady state is told.
    """
    late = steady(trace, graph)
    whole, trace = trace, late.trace
    step_time_s = late.step_time_s
    classes = range(graph.layout.classes)
    times: defaultdict[str, float] = defaultdict(float)
    for rank_class in classes:
        for part, seconds in time_of_class_s(trace, rank_class).items():
            times[part] += seconds / graph.layout.classes / late.steps
    static_j = {
        name: power_w * graph.ranks * step_time_s for name, power_w in node.static_by_part_w().items()
    }
    energy = energy_by_component_j(whole, node, fabric, static_j, step_time_s, steps=late.run_steps)
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
        dark_s=max(_busy(trace.table, trace.table.mask(one, Stream.CIRCUITS)).length_s for one in classes)
        / late.steps,
        reconfigurations=round(whole.reconfigurations / late.run_steps),
        network_bytes={axis: moved / late.run_steps for axis, moved in whole.network_bytes.items()},
        algorithms=dict(trace.algorithms),
        host_bytes=dict(trace.host_bytes),
        dropped_share=graph.dropped_share,
    )
