"""Spans of a step on one clock, their categories, and their form for Perfetto."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, overload

import numpy as np

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
        names = ("rank_class", "stream", "name", "start_s", "end_s", "microbatch", "peer_class", "task")
        return replace(self, **{name: getattr(self, name)[kept] for name in (*names, "parts_s")})

    def mask(self, rank_class: int, stream: Stream) -> np.ndarray:
        """Return which spans a class has on a stream, shape [spans]."""
        return np.asarray((self.rank_class == rank_class) & (self.stream == STREAMS.index(stream)))

    def __len__(self) -> int:
        return int(self.start_s.size)

    @cached_property
    def _made(self) -> tuple[Span, ...]:
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
        columns = (spans.rank_class, spans.stream, spans.name, spans.microbatch, spans.parts_s)
        rows = zip(start_s, end_s, *(column.tolist() for column in columns), strict=True)
        for start, end, rank_class, stream, name, microbatch, parts_s in rows:
            parts = zip(spans.categories, parts_s, strict=True)
            args: dict[str, Any] = {part: seconds for part, seconds in parts if seconds > 0.0}
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
