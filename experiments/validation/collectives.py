"""Published times of collectives inside one node, or between some, against what is predicted."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from electronic.devices import SCALE_UP, load_scale_up
from electronic.fabrics.reductions import all_reduce_time_s, collective_plans
from experiments.validation.callers import caller_of, forced_algorithm, gpus_per_process
from experiments.validation.cells import Record, SkipError, check_provenance, read_records
from experiments.validation.clusters import accelerator_name
from experiments.validation.outcomes import Outcome, begun, skipped
from heliograph.report import format_si
from simulator.errors import HeliographError
from simulator.operators import CollectiveKind
from simulator.units import to_si

TIMES = ("time_us_out_of_place", "time_us_in_place", "time_us")
"""Columns that may hold the measured time, the first that is filled counts."""
RATES = ("busbw_GBps_oop", "busbw_GBps_ip", "busbw_GBps")
"""Columns that may hold the measured bus bandwidth, for rows without a time."""
NEEDS = (("gpu",), ("bytes",), ("n_gpus_one_node", "n_gpus"), (*TIMES, *RATES))
"""Columns without which a file is no table of collectives; of each group one."""
SHIPPED = Path(__file__).parent / "reference" / "collectives.csv"
"""Measurements that ship; for rows far off, what others measured of the same."""
CONSTANT_SHARE = 0.5
"""Share of the line rate that the trivial constant assumes; dimensionless."""


def validate_collectives(records: Sequence[Record]) -> tuple[Outcome, ...]:
    """Return what becomes of each row of measured collectives.

    Raises
    ------
    ParameterError
        If a row holds a number that cannot be one (not finite, negative).
    """
    return tuple(_outcome(record) for record in records)


def _outcome(record: Record) -> Outcome:
    blank = begun(record)
    try:
        check_provenance(record)
        gpu_name = accelerator_name(record.text("gpu"))
        ranks = record.whole("n_gpus_one_node") or record.needed("n_gpus")
        size_bytes = record.needed("bytes")
        kind = CollectiveKind(record.text("kind").lower() or "all_reduce")
        if not record.text("id"):
            blank = dataclasses.replace(blank, id=f"{gpu_name}x{ranks}-{kind.value}-{size_bytes}")
        blank = dataclasses.replace(blank, measured=_measured_s(record, kind, ranks, size_bytes))
        caller = caller_of(record)
        driven = gpus_per_process(record, caller, ranks)
        cards = record.text("cards")
        alone_s = collective_s(gpu_name, ranks, size_bytes, kind, forced_algorithm(record), cards=cards)
        predicted = caller.measured_s(alone_s, driven)
    except (HeliographError, ValueError) as error:
        return skipped(blank, record, error)
    scale_up = load_scale_up(SCALE_UP.get(gpu_name, "nvlink4"))
    rate = scale_up.bandwidth_bytes_per_s * CONSTANT_SHARE
    found = dataclasses.replace(
        blank,
        predicted=predicted,
        constant=bus_bytes(kind, ranks, size_bytes) / rate,
        assumed=tuple(record.assumed),
        beside={"size_bytes": size_bytes, "alone_s": alone_s, "host_s": caller.measured_s(0.0, driven)},
    )
    return (
        dataclasses.replace(found, hint=_ways(found, gpu_name, ranks, kind, cards))
        if found.far_off
        else found
    )


def _ways(row: Outcome, gpu_name: str, ranks: int, kind: CollectiveKind, cards: str) -> str:
    """Return what each way of the library takes, and what others measured of the same, for a row far off."""
    size_bytes = int(row.beside["size_bytes"])
    options = collective_plans(gpu_name, ranks, size_bytes, kind.value, cards=cards)
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
        kind = CollectiveKind(record.text("kind").lower() or "all_reduce")
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


def collective_s(
    gpu_name: str,
    ranks: int,
    size_bytes: int,
    kind: CollectiveKind,
    algorithm: str = "",
    *,
    cards: str = "",
) -> float:
    """Return the predicted time of one collective; the only seam to the model of collectives.

    Parameters
    ----------
    gpu_name : str
        Accelerator of the table.
    ranks : int
        Accelerators that take part.
    size_bytes : int
        As NCCL's tests count: what every rank holds in an all-reduce; in other collectives all ranks' parts.
    kind : CollectiveKind
        What they do.
    algorithm : str
        The only one that the library was allowed; any if empty.
    cards : str
        What joins nodes, as `electronic.fabrics.reductions.NETWORKS` has it; what came with them if empty.
    """
    return all_reduce_time_s(gpu_name, ranks, size_bytes, kind=kind.value, algorithm=algorithm, cards=cards)
