"""Rows of a table of ASTRA-sim's runs as runs that can be repeated."""

from __future__ import annotations

import math
import re
from typing import TypeVar

from experiments.validation.cells import Record, SkipError
from experiments.validation.collective_simulator.algorithms import Method
from experiments.validation.collective_simulator.networks import Shape, Wires
from experiments.validation.collective_simulator.runs import MEMORY_GB_PER_S, Dimension, Run
from simulator.errors import ParameterError
from simulator.operators import CollectiveKind

NEEDED_COLUMNS = ("collective", "size_bytes", "topology", "npus", "bw_GBps", "lat_ns", "algo", "endpoint_ns")
"""Columns without which a run cannot be repeated."""
BACKENDS = ("unaware", "aware")
"""Analytical backends; the second queues messages that share links."""
MOST_MESSAGES = 8_000_000
"""Messages times links of a run above which it is not repeated: about a minute."""
Value = TypeVar("Value")
REPEATED = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
)
"""Collectives that the simulator has."""


def run_of(record: Record) -> Run:
    """Return the run that a row describes.

    Raises
    ------
    SkipError
        If a column is missing, or that simulator has no such run.
    ParameterError
        If a number cannot be one.
    """
    missing = [column for column in NEEDED_COLUMNS if not record.text(column)]
    if missing:
        msg = f"no {missing[0]} is given"
        raise SkipError(msg)
    kind = _named(record, "collective", {one.value: one for one in REPEATED})
    queued = _named(record, "backend", {name: name == BACKENDS[1] for name in BACKENDS}, default=BACKENDS[0])
    run = Run(
        kind=kind,
        size_bytes=record.needed("size_bytes"),
        dimensions=_dimensions(record),
        endpoint_ns=record.needed("endpoint_ns"),
        splits=record.whole("splits") or 1,
        at_once=record.whole("active") or 1,
        queued=queued,
        memory_gb_per_s=record.number("mem_GBps") or MEMORY_GB_PER_S,
    )
    _check(run)
    if not record.text("mem_GBps"):
        record.assume(f"memory reduces at {MEMORY_GB_PER_S:g} GB/s, as in ASTRA-sim's own examples")
    record.assume("ASTRA-sim's own rules")
    return run


def _named(record: Record, column: str, values: dict[str, Value], *, default: str = "") -> Value:
    text = record.text(column) or default
    plain = {_plain(name): value for name, value in values.items()}
    if _plain(text) not in plain:
        msg = f"{column} '{text[:40]}' is none that is repeated; known: {', '.join(values)}"
        raise SkipError(msg)
    return plain[_plain(text)]


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _dimensions(record: Record) -> tuple[Dimension, ...]:
    shapes = [_shape(text) for text in _parts(record, "topology")]
    columns = {column: _numbers(record, column) for column in ("npus", "bw_GBps", "lat_ns")}
    methods = [_method(text) for text in _parts(record, "algo")]
    counts = {column: len(found) for column, found in columns.items()} | {"algo": len(methods)}
    for column, count in counts.items():
        if count != len(shapes):
            msg = f"column '{column}' names {count} dimensions, topology {len(shapes)}"
            raise SkipError(msg)
    return tuple(
        Dimension(
            wires=Wires(shape=shape, ranks=_ranks(ranks), gigabytes_per_s=rate, latency_ns=latency_ns),
            method=method,
            window=window,
        )
        for shape, ranks, rate, latency_ns, (method, window) in zip(
            shapes, columns["npus"], columns["bw_GBps"], columns["lat_ns"], methods, strict=True
        )
    )


def _parts(record: Record, column: str) -> list[str]:
    """Return the names of all dimensions; a name may itself be written with hyphens or spaces."""
    cell = record.text(column)
    if _plain(cell) in {_plain(one.value) for one in (*Shape, *Method)}:
        return [cell]
    return [part.strip() for part in re.split(r"[-_,;/ ]+", cell) if part.strip()]


def _numbers(record: Record, column: str) -> list[float]:
    """Return numbers of all dimensions, each checked as a cell of its own."""
    cell = record.text(column)
    parts = [cell] if re.match(r"\s*-", cell) else re.split(r"(?<![eE])-|[x_,;/ ]+", cell)
    values = []
    for part in (one for one in parts if one.strip()):
        value = Record(record.where, {column: part.strip()}).number(column)
        if value is None or (not value and column == "bw_GBps"):
            msg = f"{record.where}: column '{column}' is {cell}; it must be finite and positive"
            raise ParameterError(msg)
        values.append(value)
    return values


def _ranks(value: float) -> int:
    if value != int(value) or value < 1:
        msg = f"column 'npus' holds {value:g}, which is not a whole number of at least 1"
        raise SkipError(msg)
    return int(value)


def _shape(text: str) -> Shape:
    shapes = {_plain(one.value): one for one in Shape}
    if _plain(text) not in shapes:
        msg = f"topology '{text[:40]}' is none of ASTRA-sim's; known: {', '.join(one.value for one in Shape)}"
        raise SkipError(msg)
    return shapes[_plain(text)]


def _method(text: str) -> tuple[Method, int]:
    methods = {_plain(one.value): one for one in Method}
    found = re.fullmatch(r"([a-z]+)(\d*)", _plain(text))
    if not found or found[1] not in methods or (found[2] and methods[found[1]] is not Method.DIRECT):
        msg = f"algo '{text[:40]}' is none that is repeated; known: {', '.join(one.value for one in Method)}"
        raise SkipError(msg)
    return methods[found[1]], int(found[2] or 0)


def _check(run: Run) -> None:
    """Refuse what that simulator itself refuses, never ends, or gives no meaning.

    Raises
    ------
    SkipError
        With the reason.
    """
    reasons = (
        (run.ranks < 2, "one rank has nobody to send to"),
        (run.queued and len(run.dimensions) > 1, "the congestion-aware backend knows one dimension only"),
        (run.size_bytes < run.splits, f"{run.size_bytes} bytes are fewer than {run.splits} splits"),
        (
            run.queued and any(d.wires.shape is Shape.RING and d.wires.ranks == 2 for d in run.dimensions),
            "the congestion-aware backend refuses a ring of two: it would connect them twice",
        ),
    )
    for refused, reason in reasons:
        if refused:
            raise SkipError(reason)
    for one in run.dimensions:
        ranks, method = one.wires.ranks, one.method
        if method in {Method.HALVING_DOUBLING, Method.DOUBLE_TREE} and ranks & (ranks - 1):
            msg = f"{method.value} pairs ranks by powers of two; {ranks} is none"
            raise SkipError(msg)
        if method is Method.HALVING_DOUBLING and run.kind is CollectiveKind.ALL_TO_ALL:
            msg = "ASTRA-sim aborts at an all-to-all by halving and doubling"
            raise SkipError(msg)
        if method is Method.DOUBLE_TREE and (
            run.kind is not CollectiveKind.ALL_REDUCE or len(run.dimensions) > 1
        ):
            msg = "double trees are repeated for all-reduces of one dimension only"
            raise SkipError(msg)
    if _events(run) > MOST_MESSAGES:
        msg = f"some {_events(run):.1g} messages over links are more than {MOST_MESSAGES} and not repeated"
        raise SkipError(msg)


def _events(run: Run) -> float:
    """Return about how many messages over how many links are followed."""
    total = 0.0
    for one in run.dimensions:
        ranks = one.wires.ranks
        each = {
            Method.RING: ranks * ranks / 2 if run.kind is CollectiveKind.ALL_TO_ALL else 2 * ranks,
            Method.DIRECT: 2 * ranks * (ranks / 4 if run.queued and one.wires.shape is Shape.RING else 1),
            Method.HALVING_DOUBLING: 2 * math.log2(ranks) if run.alike else 2 * ranks,
            Method.DOUBLE_TREE: 4,
        }[one.method]
        total += each * run.splits * (1 if run.alike else ranks)
    return total
