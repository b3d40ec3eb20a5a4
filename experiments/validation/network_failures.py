"""Published failures of training runs: interruptions, effective time, and what a fabric has of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from electronic.devices import load_scale_up
from electronic.fabrics.packets import RailFabric
from experiments.validation.cells import Record, SkipError, read_records
from simulator.reliability.goodput import (
    HostReliability,
    best_effective_share,
    effective_share,
    job_mtbf_s,
    load_hosts,
    load_parts,
)
from simulator.units import to_si

EFFECTIVE = "effective training time"
"""What the metric of published effective times begins with."""
AT_LEAST = "lower bound"
"""What a metric says whose value is a bound."""
NEEDS = (("system",), ("metric",), ("value",))
"""Columns of published numbers."""
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
"""Fleet of each publication; those that publish no rate of failures are taken to fail like Llama 3's."""
PER_CENT = 0.01
"""One per cent."""

Rule = Callable[[Record, "re.Match[str]"], tuple[float, str]]


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published share, as a figure marks it."""

    system: str
    """Publication."""
    metric: str
    """What is told."""
    accelerators: int
    """Size of the job."""
    share: float
    """The share; dimensionless."""
    bound: bool
    """Whether it is a lower bound."""


@cache
def published() -> tuple[Published, ...]:
    """Return the published shares of the table that ships, those that name a size."""
    records = read_records(Path(__file__).parent / "reference" / "network.csv", needs=NEEDS)
    found = []
    for record in records:
        metric = record.text("metric")
        size = re.search(r"([\d,]+)[ -](?:GPUs|chip)", f"{metric} {record.text('config')}")
        if record.text("unit") == "%" and size and metric.startswith((EFFECTIVE, "goodput at")):
            found.append(
                Published(
                    system=record.text("system"),
                    metric=metric,
                    accelerators=int(size[1].replace(",", "")),
                    share=(record.number("value") or 0.0) * PER_CENT,
                    bound=AT_LEAST in metric,
                )
            )
    return tuple(found)


def _fleet(record: Record) -> HostReliability:
    name = HOSTS.get(record.text("system"))
    if name is None:
        msg = f"no rate of failures is known of '{record.text('system')}'"
        raise SkipError(msg)
    record.assume(f"hosts fail as '{name}' of reliability.csv")
    return load_hosts(name)


def _size(text: str) -> int:
    found = re.search(r"([\d,]+)[ -]GPUs?", text)
    if not found:
        msg = f"'{text[:60]}' names no number of GPUs"
        raise SkipError(msg)
    return int(found[1].replace(",", ""))


def _fabric_mtbf_s(hosts: HostReliability, accelerators: int) -> float:
    scale_up = load_scale_up("nvlink4")
    whole = -(-accelerators // scale_up.size) * scale_up.size
    bill = RailFabric(endpoints=whole, scale_up=scale_up).bill()
    return job_mtbf_s(hosts, accelerators, bill, {part.name: part for part in load_parts()})


def _effective(record: Record, _: re.Match[str]) -> tuple[float, str]:
    """Return the effective share at the best interval, or at the interval that the metric names."""
    hosts, accelerators = _fleet(record), _size(record.text("config"))
    mtbf_s = _fabric_mtbf_s(hosts, accelerators)
    named = re.search(r"interval (\d+) (s|min|h)\b", record.text("config"))
    record.assume(f"a checkpoint stops {hosts.write_s:g} s, a restart {hosts.restart_s:g} s; packet rails")
    if not named:
        share = best_effective_share(write_s=hosts.write_s, restart_s=hosts.restart_s, mtbf_s=mtbf_s)
        return share, "writing and restarting are assumed, not published, for this run"
    interval_s = to_si("interval_s", float(named[1]), named[2])
    share = effective_share(interval_s, write_s=hosts.write_s, restart_s=hosts.restart_s, mtbf_s=mtbf_s)
    return share, "the published value is a bound or a mean over jobs"


def _mttf_h(record: Record, _: re.Match[str]) -> tuple[float, str]:
    """Return the hours between interruptions of a job if only hosts fail."""
    hosts = _fleet(record)
    mtbf_s = job_mtbf_s(hosts, _size(record.text("metric")), {}, {})
    hint = "the measured rate of jobs counts software and preemption, the hosts' rate hardware alone"
    return mtbf_s / to_si("time_s", 1.0, "h"), hint


def _network_faults(record: Record, _: re.Match[str]) -> tuple[float, str]:
    """Return the failures of switches, modules and cables that a run of so many days meets."""
    days = re.search(r"(\d+) d\b", record.text("unit"))
    if not days:
        msg = f"'{record.text('unit')}' names no time in days"
        raise SkipError(msg)
    hosts, accelerators = _fleet(record), _size(record.text("config"))
    rate_hz = 1.0 / _fabric_mtbf_s(hosts, accelerators) - 1.0 / job_mtbf_s(hosts, accelerators, {}, {})
    record.assume("packet rails; every failure of a module or switch stops the job")
    hint = "the module's assumed 250 failures in 10^9 hours carries most of it (range 100 to 1000)"
    return rate_hz * int(days[1]) * to_si("time_s", 24.0, "h"), hint


def _repair_days(record: Record, _: re.Match[str]) -> tuple[float, str]:
    """Return the mean time to repair that availability and time between failures imply."""
    hosts = _fleet(record)
    return hosts.mttr_s / to_si("time_s", 24.0, "h"), "overlapping faults count once in the availability"


RULES: Mapping[tuple[str, str], Rule] = MappingProxyType(
    {
        (".*", f"{EFFECTIVE}|ETTR of "): _effective,
        ("Meta RSC", r"(?:projected )?MTTF(?:, | of )[\d,]+[ -]GPU"): _mttf_h,
        ("Llama 3 405B$", r"unexpected: Network switch/cable"): _network_faults,
        ("InfiniteHBD trace$", "MTTR mean$"): _repair_days,
    }
)
"""How system and metric of a row read, and what predicts it."""
