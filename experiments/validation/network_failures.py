"""Published failures of training runs, and traces of faults held against a fleet of the table.

The trace of faults does not ship. ``heliograph validate network --data FILE.json`` names it: a list of
events as `experiments.cost.stranded.read_events` reads it, such as InfiniteHBD's (SIGCOMM 2025; times in
days, 400 servers).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from electronic.devices import load_scale_up
from electronic.fabrics.packets import RailFabric
from experiments.cost.stranded import Cluster, Event, random_faults, read_events, read_faults, wasted
from experiments.validation.rows import (
    PER_CENT,
    REFERENCE,
    Outcome,
    Predicted,
    Record,
    Rule,
    SkipError,
    read_records,
)
from heliograph.report import ReportRow, table_text
from simulator.goodput import (
    HostReliability,
    best_effective_share,
    effective_share,
    job_mtbf_s,
    load_hosts,
    load_parts,
)
from simulator.topology.torus import TPU_V4
from simulator.units import to_si

COLUMN = "fault_trace"
"""Column that names the file of a trace."""
FLEET = "infinite-hbd"
"""Fleet of ``reliability.csv`` that a trace is held against."""
SUFFIX = ".json"
"""Suffix of a trace's file."""
DAY_S = to_si("time_s", 24.0, "h")
"""Seconds of a day, the unit of a trace's times."""


EFFECTIVE = "effective training time"
"""Beginning of the metric of published effective times."""
AT_LEAST = "lower bound"
"""Words of a metric whose value is a bound."""
NEEDS = (("system",), ("metric",), ("value",))
"""Columns that the table of published numbers has."""
HOSTS = MappingProxyType(
    {
        "Llama 3 405B": "llama-3",
        "MegaScale": "llama-3",
        "ByteRobust": "llama-3",
        "Meta RSC": "rsc-1",
        "Meta RSC-1": "rsc-1",
        "InfiniteHBD trace": "infinite-hbd",
    }
)
"""Fleet by publication; those that publish no rate of failures are taken to fail like Llama 3's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FailureStatistics:
    """Failure statistics of the servers of a trace."""

    availability: float
    """Share of server-time in which no fault lasts."""
    mtbf_s: float
    """Server-time over faults."""
    repairs_s: np.ndarray
    """Duration of each fault that ended, shape [F]."""


def failure_statistics(events: list[Event], nodes: int) -> FailureStatistics:
    """Return the failure statistics of a trace, from its first event to its last.

    Parameters
    ----------
    events : list of Event
        Events in the order of their times.
    nodes : int
        Number of servers, those without a fault included.

    Notes
    -----
    Faults of one server may overlap. The end of a fault ends the one that began first, and the server is down
    from the beginning of the first to the end of the last.
    """
    open_faults: defaultdict[str, deque[float]] = defaultdict(deque)  # start times by server
    down_since: dict[str, float] = {}
    repairs, down, faults = [], 0.0, 0
    for event in sorted(events, key=lambda event: (event.time, not event.starts)):
        lasting = open_faults[event.node]
        if event.starts:
            faults += 1
            down_since.setdefault(event.node, event.time)
            lasting.append(event.time)
        elif lasting:
            repairs.append(event.time - lasting.popleft())
            down += 0.0 if lasting else event.time - down_since.pop(event.node)
    span = events[-1].time - events[0].time
    down += math.fsum(events[-1].time - start for start in down_since.values())
    return FailureStatistics(
        availability=1.0 - down / (nodes * span),
        mtbf_s=nodes * span / faults * DAY_S,
        repairs_s=np.array(repairs) * DAY_S,
    )


def trace_record(path: Path) -> Record:
    """Return a row that names the trace's file in the column `COLUMN`."""
    return Record(path.name, {COLUMN: str(path)})


def trace_outcomes(record: Record) -> Iterator[Outcome]:
    """Yield the outcomes of a trace: its failure statistics, and the accelerators that its faults strand."""
    path, cluster, hosts = Path(record.text(COLUMN)), Cluster(), load_hosts(FLEET)
    found = failure_statistics(read_events(path, cluster.nodes), cluster.nodes)
    assumed = (f"{cluster.nodes} servers, times in days", f"hosts fail as '{FLEET}' of reliability.csv")
    for comparison in _host_comparisons(found, hosts):
        yield Outcome(
            id=f"{path.name} {comparison.name}",
            source=path.name,
            unit=comparison.unit,
            measured=comparison.traced,
            predicted=comparison.of_fleet,
            assumed=assumed,
            hint=comparison.hint,
        )
    faults = read_faults(path, cluster)
    drawn = wasted(random_faults(faults.failed, cluster), cluster)
    placed = f"{cluster.nodes} servers of {cluster.node} placed at random, groups of {cluster.group}"
    for name, share in wasted(faults, cluster).items():
        yield Outcome(
            id=f"{path.name} wasted, {name}",
            source=f"{path.name}, waste",
            unit="1",
            measured=share,
            predicted=drawn[name],
            assumed=(placed, f"predicted: independent faults of {faults.failed:.2%} of servers"),
            hint="faults of a trace come in bursts; independent ones of the same share do not",
        )


class _HostComparison(NamedTuple):
    """A failure statistic of a trace, beside that of a fleet."""

    name: str
    unit: str
    traced: float
    of_fleet: float
    hint: str


def _host_comparisons(found: FailureStatistics, hosts: HostReliability) -> Iterator[_HostComparison]:
    """Yield the statistics that a trace and a fleet have in common."""
    read_off = "the fleet of the table was read off InfiniteHBD's own trace"
    up, fleet_up = found.availability, hosts.availability
    yield _HostComparison("server availability", "1", up, fleet_up, read_off)
    yield _HostComparison("server unavailability", "1", 1.0 - up, 1.0 - fleet_up, read_off)
    yield _HostComparison("MTBF of a server", "s", found.mtbf_s, hosts.mtbf_s, read_off)
    if found.repairs_s.size:
        mean_s, median_s = float(found.repairs_s.mean()), float(np.median(found.repairs_s))
        overlapping = "overlapping faults count once in the availability"
        yield _HostComparison("MTTR mean", "s", mean_s, hosts.mttr_s, overlapping)
        hint = "the median of exponential repairs; real ones are short but for a long tail"
        yield _HostComparison("MTTR median", "s", median_s, hosts.mttr_s * math.log(2.0), hint)


@dataclass(frozen=True, kw_only=True)
class PublishedShare:
    """A published goodput or effective share of time, which figures mark."""

    system: str
    """Publication."""
    metric: str
    """Published quantity."""
    accelerators: int
    """Size of the job."""
    share: float
    """Value, 0 to 1."""
    bound: bool
    """Whether it is a lower bound."""


@cache
def published_shares() -> tuple[PublishedShare, ...]:
    """Return the published shares of the table that ships, of rows that name the size of a job."""
    records = read_records(REFERENCE / "network.csv", needs=NEEDS)
    found = []
    for record in records:
        metric = record.text("metric")
        size = re.search(r"([\d,]+)[ -](?:GPUs|chip)", f"{metric} {record.text('config')}")
        if record.text("unit") == "%" and size and metric.startswith((EFFECTIVE, "goodput at")):
            found.append(
                PublishedShare(
                    system=record.text("system"),
                    metric=metric,
                    accelerators=int(size[1].replace(",", "")),
                    share=(record.number("value") or 0.0) * PER_CENT,
                    bound=AT_LEAST in metric,
                )
            )
    return tuple(found)


def _fleet(record: Record) -> HostReliability:
    """Return the hosts of a row's publication (`HOSTS`)."""
    name = HOSTS.get(record.text("system"))
    if name is None:
        msg = f"no rate of failures is known of '{record.text('system')}'"
        raise SkipError(msg)
    record.assume(f"hosts fail as '{name}' of reliability.csv")
    return load_hosts(name)


def _accelerators(text: str) -> int:
    """Return the number of GPUs that a text names, as ``16,384 GPUs``."""
    found = re.search(r"([\d,]+)[ -]GPUs?", text)
    if not found:
        msg = f"'{text[:60]}' names no number of GPUs"
        raise SkipError(msg)
    return int(found[1].replace(",", ""))


def _fabric_mtbf_s(hosts: HostReliability, accelerators: int) -> float:
    """Return the mean time between failures of a job whose hosts and packet rails fail."""
    scale_up = load_scale_up("nvlink4")
    whole = -(-accelerators // scale_up.size) * scale_up.size
    bill = RailFabric(endpoints=whole, scale_up=scale_up).bill()
    return job_mtbf_s(hosts, accelerators, bill, {part.name: part for part in load_parts()})


def _effective(record: Record, _: re.Match[str]) -> Predicted:
    """Return the effective share at the best interval, or at the interval that the metric names."""
    hosts, accelerators = _fleet(record), _accelerators(record.text("config"))
    mtbf_s = _fabric_mtbf_s(hosts, accelerators)
    named = re.search(r"interval (\d+) (s|min|h)\b", record.text("config"))
    record.assume(f"a checkpoint stops {hosts.write_s:g} s, a restart {hosts.restart_s:g} s; packet rails")
    if not named:
        share = best_effective_share(write_s=hosts.write_s, restart_s=hosts.restart_s, mtbf_s=mtbf_s)
        return Predicted(share, "writing and restarting are assumed, not published, for this run")
    interval_s = to_si("interval_s", float(named[1]), named[2])
    share = effective_share(interval_s, write_s=hosts.write_s, restart_s=hosts.restart_s, mtbf_s=mtbf_s)
    return Predicted(share, "the published value is a bound or a mean over jobs")


def _mttf_h(record: Record, _: re.Match[str]) -> Predicted:
    """Return the mean time between interruptions of a job if only hosts fail, in hours."""
    hosts = _fleet(record)
    mtbf_s = job_mtbf_s(hosts, _accelerators(record.text("metric")), {}, {})
    hint = "the measured rate of jobs counts software and preemption, the hosts' rate hardware alone"
    return Predicted(mtbf_s / to_si("time_s", 1.0, "h"), hint)


def _network_faults(record: Record, _: re.Match[str]) -> Predicted:
    """Return the number of failures of switches, modules and cables in a run of some days."""
    days = re.search(r"(\d+) d\b", record.text("unit"))
    if not days:
        msg = f"'{record.text('unit')}' names no time in days"
        raise SkipError(msg)
    hosts, accelerators = _fleet(record), _accelerators(record.text("config"))
    rate_hz = 1.0 / _fabric_mtbf_s(hosts, accelerators) - 1.0 / job_mtbf_s(hosts, accelerators, {}, {})
    record.assume("packet rails; every failure of a module or switch stops the job")
    hint = "the module's assumed 250 failures in 10^9 hours carries most of it (range 100 to 1000)"
    return Predicted(rate_hz * int(days[1]) * to_si("time_s", 24.0, "h"), hint)


def _repair_days(record: Record, _: re.Match[str]) -> Predicted:
    """Return the mean time to repair that availability and time between failures imply."""
    hosts = _fleet(record)
    return Predicted(
        hosts.mttr_s / to_si("time_s", 24.0, "h"), "overlapping faults count once in the availability"
    )


RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        (".*", f"{EFFECTIVE}|ETTR of "): _effective,
        ("Meta RSC", r"(?:projected )?MTTF(?:, | of )[\d,]+[ -]GPU"): _mttf_h,
        ("Llama 3 405B$", r"unexpected: Network switch/cable"): _network_faults,
        ("InfiniteHBD trace$", "MTTR mean$"): _repair_days,
    }
)
"""Rules by patterns of a row's system and metric."""


AVAILABILITIES = (0.99, 0.995, 0.999)
"""Availabilities of a host that are shown; dimensionless (arXiv:2304.01433, figure 4)."""
SLICE_CUBES = (1, 2, 4, 8, 16, 32, 48, 64)
"""Cubes of a slice: 64 to 4096 chips."""


def slices_record() -> list[dict[str, Any]]:
    """Return the goodput of TPU v4's slices by size and availability, with optical circuits and without."""
    return [
        {
            "chips": cubes * TPU_V4.nodes_per_cube,
            "host_availability": up,
            "with_circuits": TPU_V4.goodput(cubes, up),
            "without_circuits": TPU_V4.static_goodput(cubes, up),
        }
        for cubes in SLICE_CUBES
        for up in AVAILABILITIES
    ]


def slices_text(found: Iterable[Mapping[str, Any]]) -> str:
    """Return the goodput of slices as a table."""
    lines: dict[int, list[str]] = {}
    for goodput in found:
        cells = lines.setdefault(goodput["chips"], [])
        cells += [f"{goodput['with_circuits']:.1%}", f"{goodput['without_circuits']:.1%}"]
    columns = tuple(f"{up:.1%} {how}" for up in AVAILABILITIES for how in ("OCS", "fixed"))
    rows = [ReportRow(f"{chips} chips", tuple(cells)) for chips, cells in lines.items()]
    title = "Goodput of TPU v4's slices by hosts' availability: circuits (OCS), fixed slices"
    return table_text(title, columns, rows, dense=True)
