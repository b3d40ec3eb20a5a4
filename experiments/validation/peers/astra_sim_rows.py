"""Rows of a table of ASTRA-sim's runs as runs that can be repeated, and what the same wires allow."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, TypeVar

from experiments.validation.peers.astra_sim import MEMORY_GB_PER_S, Dimension, Run, Shape, Wires
from experiments.validation.peers.astra_sim_algorithms import Method, Phase
from experiments.validation.rows import FileError, Outcome, Record, SkipError
from heliograph.report import ReportRow, table_text
from simulator.operators import CollectiveKind
from simulator.topology.torus import regular
from simulator.units import to_si

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


def wires_s(run: Run) -> float:
    """Return the time that latency and rate of the wires allow for the same phases, with nothing in the way.

    Notes
    -----
    A gigabyte is 1e9 bytes, nothing waits at a rank, and splits overlap instead of waiting; dimensions are
    used one after another, though chunks in different dimensions at once can be sooner. Around a ring each
    rank passes its part on in steps, one way; direct exchange goes the shorter way on both directions of a
    ring (load n^2 / 8 of a link), at once through a switch (n - 1 parts out of each port) or over a link to
    each. At distance d of halving and doubling d messages share a ring's link, and half as many at the far
    side, where both ways are as long. Two trees move twice the size through each port, in both directions
    at once (Sanders, Speck and Traeff 2009, section 3).
    """
    return sum(_phase_s(phase, run.dimensions[phase.dimension].wires) for phase in run.phases(run.size_bytes))


def ports_bound_s(run: Run) -> float:
    """Return a time that no algorithm on these wires can beat.

    Notes
    -----
    A rank must pass 2 (n - 1) / n of the size in an all-reduce, (n - 1) / n in a reduce-scatter or an
    all-to-all and n - 1 sizes in an all-gather (Chan et al. 2007, table 1), over all of its links at once;
    and the farthest rank's word takes the latency of the links between.
    """
    ranks, size_bytes = run.ranks, float(run.size_bytes)
    least_bytes = {
        CollectiveKind.ALL_REDUCE: 2.0 * (ranks - 1) / ranks * size_bytes,
        CollectiveKind.ALL_GATHER: (ranks - 1) * size_bytes,
    }.get(run.kind, (ranks - 1) / ranks * size_bytes)
    wires = [one.wires for one in run.dimensions]
    rate = sum(_links(one) * _rate_bytes_per_s(one) for one in wires)
    farthest_s = sum(_latency_s(one) * one.hops(one.ranks // 2) for one in wires if one.ranks > 1)
    return max(least_bytes / rate, farthest_s)


def _links(wires: Wires) -> int:
    return {Shape.RING: 2, Shape.SWITCH: 1, Shape.FULLY_CONNECTED: wires.ranks - 1}[wires.shape]


def _rate_bytes_per_s(wires: Wires) -> float:
    return to_si("rate_bytes_per_s", wires.gigabytes_per_s, "GB/s")


def _latency_s(wires: Wires) -> float:
    return to_si("latency_s", wires.latency_ns, "ns")


def _phase_s(phase: Phase, wires: Wires) -> float:
    gathers = phase.kind is CollectiveKind.ALL_GATHER
    part_bytes = phase.size_bytes / (1 if gathers else phase.ranks)
    stages = 2 if phase.kind is CollectiveKind.ALL_REDUCE else 1
    if phase.kind is CollectiveKind.ALL_TO_ALL or phase.method is Method.DIRECT:
        return stages * _at_once_s(part_bytes, wires)
    if phase.method is Method.HALVING_DOUBLING:
        return stages * _halving_s(part_bytes, wires)
    if phase.method is Method.DOUBLE_TREE and wires.shape is not Shape.RING:
        levels = math.log2(phase.ranks)
        down_and_up_s = 2.0 * levels * wires.hops(1) * _latency_s(wires)
        return down_and_up_s + 2.0 * phase.size_bytes / _rate_bytes_per_s(wires)
    step_s = wires.hops(1) * _latency_s(wires) + part_bytes / _rate_bytes_per_s(wires)
    return stages * (phase.ranks - 1) * step_s


def _at_once_s(part_bytes: float, wires: Wires) -> float:
    rate, latency_s = _rate_bytes_per_s(wires), _latency_s(wires)
    if wires.shape is Shape.RING:
        ring = regular((wires.ranks,))
        return ring.diameter * latency_s + ring.time_s(part_bytes, rate)
    parts = wires.ranks - 1 if wires.shape is Shape.SWITCH else 1
    return wires.hops(1) * latency_s + parts * part_bytes / rate


def _halving_s(part_bytes: float, wires: Wires) -> float:
    rate, latency_s, ranks = _rate_bytes_per_s(wires), _latency_s(wires), wires.ranks
    total_s, distance = 0.0, 1
    while distance < ranks:
        shared = 1.0
        if wires.shape is Shape.RING:
            shared = max(1.0, distance / 2 if 2 * distance == ranks else distance)
        size_bytes = part_bytes * ranks / (2 * distance)
        total_s += wires.hops(distance) * latency_s + shared * size_bytes / rate
        distance *= 2
    return total_s


def answers(run: Run) -> dict[str, float | bool | str]:
    """Return the physical time of a run, the time that no algorithm beats, and whether ASTRA-sim's does."""
    bound_s = ports_bound_s(run)
    shapes = "-".join(one.wires.shape.value for one in run.dimensions)
    methods = "-".join(one.method.value for one in run.dimensions)
    backend = "aware" if run.queued else "unaware"
    return {
        "kind": f"{backend} {run.kind.value} {shapes} {methods}",
        "wires_s": wires_s(run),
        "ports_bound_s": bound_s,
        "simulator_beats_ports": run.simulated_s() < bound_s,
    }


def runs_record(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return, of the runs among some rows, that simulator's time and the physical ones as plain data.

    Rows of other kinds have answers of their own beside them (`size_bytes` of a measured collective).
    """
    found = {
        one.id: {"run": one.id, "simulated_s": one.predicted, **one.beside}
        for one in outcomes
        if "wires_s" in one.beside and one.predicted is not None
    }
    return list(found.values())


def runs_text(outcomes: Iterable[Outcome]) -> str:
    """Return the same as a table of kinds of runs; nothing if there is no run."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for one in runs_record(outcomes):
        kinds.setdefault(one["kind"], []).append(one)
    rows = []
    for name, runs in sorted(kinds.items()):
        ratios = [one["simulated_s"] / one["wires_s"] for one in runs]
        early = sum(one["simulator_beats_ports"] for one in runs)
        cells = (f"{len(runs)}", f"{min(ratios):.3f}", f"{max(ratios):.3f}", f"{early}")
        rows.append(ReportRow(name, cells))
    if not rows:
        return ""
    title = "ASTRA-sim's times over what the same wires allow, and how many are sooner than ports can carry"
    columns = ("runs", "least", "most", "too soon")
    return table_text(title, columns, rows, dense=True)


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
            raise FileError(msg)
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
    """Refuse what that simulator itself refuses, never ends, or gives no meaning."""
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
