"""Published times of collectives against predictions that include the calling benchmark; errors by size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from electronic.devices import REFERENCE_SYSTEMS, load_scale_up
from electronic.fabrics.collectives import Caller, Cards, collective_plan, collective_plans, load_caller
from experiments.validation.machines import accelerator_name
from experiments.validation.rows import (
    CONSTANT_SHARE,
    REFERENCE,
    Outcome,
    Record,
    SkipError,
    check_provenance,
    judged,
    read_records,
    statistics,
)
from heliograph.report import ReportRow, format_si, table_text
from simulator.collectives.algorithms import Algorithm
from simulator.errors import ParameterError, nearest
from simulator.operators import CollectiveKind
from simulator.units import to_si

TESTS = "nccl-tests"
"""Caller: nccl-tests, which issues calls one after the other from one process or several."""
EVENTS = "torch-events"
"""Caller: PyTorch benchmarks that time each call between two events, with one process for each GPU."""
_EVENTS_SOURCES = r"Bekman|ml-engineering"
_FORCED = MappingProxyType(
    {
        "NVLS": Algorithm.IN_NETWORK,
        "Ring": Algorithm.RING,
    }
)
"""Algorithms by their names in NCCL_ALGO, which a row's setting may force."""


EDGES = (0, 2**15, 2**20, 2**24, 2**30, 2**63)
"""Bounds of the ranges of size, bytes. In turn, issue, hops, protocols, chunks and ports set the time."""
ALL, UNFITTED = "all", "all that nothing was fitted on"
"""Names of the two series that sum over sources."""
RANGES = ("below 32 KiB", "to 1 MiB", "to 16 MiB", "to 1 GiB", "from 1 GiB")
"""Names of the ranges."""
FITTED = frozenset(
    {
        "Azure AI benchmarking guide, ND A100 v4",
        "Azure AI benchmarking guide, ND H100 v5",
        "Bekman, ML Engineering, all-reduce on 8 H200",
    }
)
"""Sources of which every second row was used to fit a constant; nothing was fitted on the others."""
TIMES = ("time_us_out_of_place", "time_us_in_place", "time_us")
"""Columns that may hold the measured time; the first that is filled counts."""
RATES = ("busbw_GBps_oop", "busbw_GBps_ip", "busbw_GBps")
"""Columns that may hold the measured bus bandwidth, for rows without a time."""
NEEDS = (("gpu",), ("bytes",), ("n_gpus_one_node", "n_gpus"), (*TIMES, *RATES))
"""Groups of columns; a table of collectives has at least one column of each group."""
SHIPPED = REFERENCE / "collectives.csv"
"""Table of measurements that ships."""
RINGS = REFERENCE / "rings.csv"
"""Bus bandwidths of long all-reduces over the ring, where the switches could add but did not."""


def caller_of(record: Record) -> Caller:
    """Return the benchmark that measured a row: its column ``caller``, or the one that its source used.

    Notes
    -----
    Bekman's tables come from `all_reduce_bench.py`, which records an event before and after each call and
    waits between calls; the other public tables come from nccl-tests.
    """
    named = record.text("caller")
    if named:
        return load_caller(named)
    if re.search(_EVENTS_SOURCES, record.text("source")):
        return load_caller(EVENTS)
    record.assume("caller (nccl-tests)")
    return load_caller(TESTS)


def gpus_per_process(record: Record, caller: Caller, gpus: int) -> int:
    """Return the GPUs of one process: the column of that name, or the benchmark's usual number.

    Parameters
    ----------
    record : Record
        The row.
    caller : Caller
        Benchmark that measured it.
    gpus : int
        GPUs of the row, in one node.

    Notes
    -----
    nccl-tests' first example, and Azure's guide, run ``all_reduce_perf -g N``: one process for a node.
    """
    given = record.whole("gpus_per_process")
    if given is not None:
        return given
    if caller.name == EVENTS:
        return 1
    record.assume("gpus_per_process (all)")
    return gpus


def forced_algorithm(record: Record) -> Algorithm | None:
    """Return the algorithm that a row's setting names; None if it names none or several.

    Notes
    -----
    Azure's guide sets NCCL_ALGO for whole tables. A setting that names several algorithms reports the
    library's own choice by size.
    """
    named = {name for name in _FORCED if re.search(rf"\b{name}\b", record.text("config"))}
    return _FORCED[named.pop()] if len(named) == 1 else None


def kind_of(record: Record) -> CollectiveKind:
    """Return the collective of a row, an all-reduce if it names none."""
    try:
        return CollectiveKind(record.text("kind").lower() or "all_reduce")
    except ValueError as error:
        raise SkipError(str(error)) from None


def cards_of(record: Record) -> Cards | None:
    """Return the network between nodes that a row names; None if it names none."""
    named = record.text("cards")
    if named and named not in set(Cards):
        msg = f"no cards are called '{named}'; {nearest(named, set(Cards), noun='network')}"
        raise ParameterError(msg)
    return Cards(named) if named else None


@dataclass(frozen=True, kw_only=True)
class SizeErrors:
    """Errors of one series in one range of sizes; all are fractions."""

    series: str
    """Source, `ALL` or `UNFITTED`."""
    sizes: str
    """Range of sizes, one of `RANGES`."""
    rows: int
    """Number of rows."""
    median: float
    """Median of absolute relative errors."""
    p90: float
    """Ninth decile of absolute relative errors."""
    bias: float
    """Mean of relative errors."""


def size_errors(outcomes: Iterable[Outcome]) -> tuple[SizeErrors, ...]:
    """Return errors by size: of each source, of all rows, and of all rows that nothing was fitted on."""
    series: dict[str, list[Outcome]] = {}
    for row in outcomes:
        if row.relative_error is not None:
            for name in (row.source, ALL, *(() if row.source in FITTED else (UNFITTED,))):
                series.setdefault(name, []).append(row)
    ordered = sorted(series, key=(UNFITTED, ALL).__contains__)
    return tuple(errors for name in ordered for errors in _by_size(name, series[name]))


def _by_size(series: str, outcomes: Sequence[Outcome]) -> Iterator[SizeErrors]:
    """Yield the errors of a series in each range of sizes that has rows."""
    for name, (least, most) in zip(RANGES, pairwise(EDGES), strict=True):
        found = statistics(row for row in outcomes if least <= float(row.extra["size_bytes"]) < most)
        if found.median is not None and found.p90 is not None and found.bias is not None:
            yield SizeErrors(
                series=series, sizes=name, rows=found.n, median=found.median, p90=found.p90, bias=found.bias
            )


def sizes_text(errors: Iterable[SizeErrors]) -> str:
    """Return errors as a table: a line for each source, median and ninth decile for each range."""
    cells: dict[str, dict[str, str]] = {}
    for one in errors:
        cells.setdefault(one.series, {})[one.sizes] = f"{one.median:.0%} {one.p90:.0%}"
    rows = [ReportRow(series, tuple(row.get(name, "-") for name in RANGES)) for series, row in cells.items()]
    title = "By size of the message: median error and ninth decile"
    return table_text(title, RANGES, rows, dense=True)


def outcome(record: Record) -> Outcome:
    """Return the outcome of a row of measured collectives; an invalid cell raises `ParameterError`."""
    with judged(record) as row:
        check_provenance(record)
        gpu_name = accelerator_name(record.text("gpu"))
        ranks = record.whole("n_gpus_one_node") or record.needed("n_gpus")
        size_bytes = record.needed("bytes")
        kind = kind_of(record)
        if not record.text("id"):
            row.id = f"{gpu_name}x{ranks}-{kind.value}-{size_bytes}"
        row.measured = _measured_s(record, kind, ranks, size_bytes)
        caller = caller_of(record)
        driven = gpus_per_process(record, caller, ranks)
        cards = cards_of(record)
        forced = forced_algorithm(record)
        alone_s = collective_plan(gpu_name, ranks, size_bytes, kind, algorithm=forced, cards=cards).alone_s
        system = REFERENCE_SYSTEMS.get(gpu_name)
        scale_up = load_scale_up(system.scale_up if system else "nvlink4")
        rate = scale_up.bandwidth_bytes_per_s * CONSTANT_SHARE
        row.constant = bus_bytes(kind, ranks, size_bytes) / rate
        row.extra = {
            "size_bytes": size_bytes,
            "alone_s": alone_s,
            "host_s": caller.measured_s(0.0, driven),
        }
        row.predicted = caller.measured_s(alone_s, driven)
        if row.far_off:
            row.hint = _alternatives(row, gpu_name, ranks, kind, cards)
    return row


def _alternatives(row: Outcome, gpu_name: str, ranks: int, kind: CollectiveKind, cards: Cards | None) -> str:
    """Return in words the time of each algorithm of the library, and measurements of other sources."""
    size_bytes = int(row.extra["size_bytes"])
    options = collective_plans(gpu_name, ranks, size_bytes, kind, cards=cards)
    plans = sorted(options, key=lambda one: one.alone_s)
    text = ", ".join(f"{one.algorithm} {format_si(one.alone_s, 's')}" for one in plans)
    if kind is CollectiveKind.ALL_REDUCE:
        others = _measured_elsewhere().get((gpu_name, ranks, size_bytes), {})
        text += "".join(
            f"; {source} measured {format_si(time_s, 's')}"
            for source, time_s in others.items()
            if source != row.source
        )
    return f"{format_si(row.measured or 0.0, 's')}; without the host {text}"


@cache
def _measured_elsewhere() -> dict[tuple[str, int, int], dict[str, float]]:
    """Return measured all-reduces of the table that ships by GPU, ranks and bytes, then by source."""
    found: dict[tuple[str, int, int], dict[str, float]] = {}
    for record in read_records(SHIPPED, needs=NEEDS):
        kind = kind_of(record)
        ranks = record.whole("n_gpus_one_node")
        if kind is CollectiveKind.ALL_REDUCE and ranks and not forced_algorithm(record):
            key = accelerator_name(record.text("gpu")), ranks, record.needed("bytes")
            found.setdefault(key, {})[record.text("source")] = _measured_s(record, kind, ranks, key[2])
    return found


def bus_bytes(kind: CollectiveKind, ranks: int, size_bytes: float) -> float:
    """Return the bytes that each rank's port must pass, by which bus bandwidth is defined (nccl-tests)."""
    passes = 2.0 if kind is CollectiveKind.ALL_REDUCE else 1.0
    share = 1.0 if kind is CollectiveKind.BROADCAST else (ranks - 1) / ranks
    return passes * share * size_bytes


def _measured_s(record: Record, kind: CollectiveKind, ranks: int, size_bytes: int) -> float:
    for column in TIMES:
        value = record.number(column, strict=True)
        if value is not None:
            return to_si("time_s", value, "us")
    for column in RATES:
        value = record.number(column, strict=True)
        if value is not None:
            record.assume("time from bus bandwidth")
            return bus_bytes(kind, ranks, size_bytes) / to_si("rate_bytes_per_s", value, "GB/s")
    msg = "neither a time nor a bus bandwidth is given"
    raise SkipError(msg)


GIGABYTE = 1e9
"""Bytes by which NCCL quotes bandwidth."""
ALGORITHMS = ("NVLS", "Ring")
"""Algorithms that a row's setting may name; one that names both uses the first from 2 MiB on."""


@cache
def bus_record() -> list[dict[str, Any]]:
    """Return the bus bandwidth of the longest message of every published series of all-reduces."""
    records = read_records(SHIPPED, needs=NEEDS)
    series: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        series.setdefault((record.text("source"), record.text("gpu")), []).append(record)
    found = []
    for (source, gpu), rows in series.items():
        longest = max(rows, key=lambda record: record.number("bytes") or 0.0)
        errors = [one.relative_error for one in map(outcome, rows) if one.relative_error is not None]
        one = outcome(longest)
        if one.measured is None or one.predicted is None:
            continue
        ranks = longest.whole("n_gpus_one_node") or longest.needed("n_gpus")
        moved = bus_bytes(CollectiveKind.ALL_REDUCE, ranks, longest.needed("bytes")) / GIGABYTE
        config = longest.text("config")
        found.append(
            {
                "source": source,
                "series": f"{ranks} {gpu}, {next((a for a in ALGORITHMS if a in config), 'ring or tree')}",
                "rows": len(errors),
                "measured_gb_per_s": moved / one.measured,
                "predicted_gb_per_s": moved / one.predicted,
                "mean_abs_error": sum(map(abs, errors)) / len(errors),
            }
        )
    return [*found, *map(_ring_alone, read_records(RINGS, needs=NEEDS))]


def _ring_alone(record: Record) -> dict[str, Any]:
    gpu, ranks = record.text("gpu"), record.needed("n_gpus_one_node")
    size_bytes, measured = float(record.needed("bytes")), record.number("busbw_GBps", strict=True) or 0.0
    moved = bus_bytes(CollectiveKind.ALL_REDUCE, ranks, size_bytes) / GIGABYTE
    plan = collective_plan(accelerator_name(gpu), ranks, size_bytes, in_network=False)
    predicted = moved / plan.alone_s
    return {
        "source": record.text("source"),
        "series": f"{ranks} {gpu}, {record.text('config')}",
        "rows": 1,
        "measured_gb_per_s": measured,
        "predicted_gb_per_s": predicted,
        "mean_abs_error": abs(measured / predicted - 1.0),
    }


def bus_text(found: Iterable[Mapping[str, Any]]) -> str:
    """Return bus bandwidths as a table."""
    rows = [
        ReportRow(
            one["series"],
            (
                str(one["rows"]),
                f"{one['measured_gb_per_s']:.1f}",
                f"{one['predicted_gb_per_s']:.1f}",
                f"{one['mean_abs_error']:.1%}",
            ),
            one["source"],
        )
        for one in found
    ]
    title = "NCCL all-reduce: bus bandwidth of the longest message, GB/s; mean error over all sizes"
    return table_text(title, ("rows", "published", "ours", "mean error"), rows, dense=True)
