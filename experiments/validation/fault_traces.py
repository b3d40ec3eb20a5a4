"""A trace of faults against what the fleet's table says of it, and against nodes that fail independently.

The trace does not ship. ``heliograph validate network --data FILE.json`` names it: a list of events as
`experiments.stranded.read_events` reads it, such as InfiniteHBD's (SIGCOMM 2025; times in days, 400 servers).
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.cost.stranded import Cluster, Event, random_faults, read_events, read_faults, wasted
from experiments.validation.cells import Record
from experiments.validation.outcomes import Outcome
from simulator.reliability.goodput import HostReliability, load_hosts
from simulator.units import to_si

COLUMN = "fault_trace"
"""Column that names the file of a trace."""
FLEET = "infinite-hbd"
"""Fleet of the table that a trace is held against."""
SUFFIX = ".json"
"""How the name of a trace ends."""
DAY_S = to_si("time_s", 24.0, "h")
"""Unit of a trace's times."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Statistics:
    """What a trace tells of its servers."""

    availability: float
    """Share of server-time in which no fault lasts."""
    mtbf_s: float
    """Server-time over faults."""
    repairs_s: np.ndarray
    """Duration of each fault that ended, shape [F]."""


def statistics(events: list[Event], nodes: int) -> Statistics:
    """Return what a trace tells of so many servers, from its first event to its last.

    A fault of a server that has several ends with the first end after it.
    """
    lasting: defaultdict[str, deque[float]] = defaultdict(deque)
    repairs, down, faults = [], 0.0, 0
    since: dict[str, float] = {}
    for one in sorted(events, key=lambda event: (event.time, not event.starts)):
        if one.starts:
            faults += 1
            since.setdefault(one.node, one.time)
            lasting[one.node].append(one.time)
        elif lasting[one.node]:
            repairs.append(one.time - lasting[one.node].popleft())
            if not lasting[one.node]:
                down += one.time - since.pop(one.node)
    span = events[-1].time - events[0].time
    down += math.fsum(events[-1].time - start for start in since.values())
    return Statistics(
        availability=1.0 - down / (nodes * span),
        mtbf_s=nodes * span / faults * DAY_S,
        repairs_s=np.array(repairs) * DAY_S,
    )


def trace_record(path: Path) -> Record:
    """Return the row that stands for a trace."""
    return Record(path.name, {COLUMN: str(path)})


def trace_outcomes(record: Record) -> Iterator[Outcome]:
    """Return what becomes of a trace's statistics and of what its faults waste.

    Raises
    ------
    ParameterError
        If the file is no trace.
    """
    path, cluster, hosts = Path(record.text(COLUMN)), Cluster(), load_hosts(FLEET)
    found = statistics(read_events(path, cluster.nodes), cluster.nodes)
    assumed = (f"{cluster.nodes} servers, times in days", f"hosts fail as '{FLEET}' of reliability.csv")
    for name, unit, measured, predicted, hint in _of_hosts(found, hosts):
        yield Outcome(
            id=f"{path.name} {name}",
            source=path.name,
            unit=unit,
            measured=measured,
            predicted=predicted,
            assumed=assumed,
            hint=hint,
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


def _of_hosts(found: Statistics, hosts: HostReliability) -> Iterator[tuple[str, str, float, float, str]]:
    """Return name, unit, what is measured, what the table says, and where they may differ."""
    read_off = "the fleet of the table was read off InfiniteHBD's own trace"
    yield "server availability", "1", found.availability, hosts.availability, read_off
    yield "server unavailability", "1", 1.0 - found.availability, 1.0 - hosts.availability, read_off
    yield "MTBF of a server", "s", found.mtbf_s, hosts.mtbf_s, read_off
    if found.repairs_s.size:
        mean_s, median_s = float(found.repairs_s.mean()), float(np.median(found.repairs_s))
        yield "MTTR mean", "s", mean_s, hosts.mttr_s, "overlapping faults count once in the availability"
        hint = "the median of exponential repairs; real ones are short but for a long tail"
        yield "MTTR median", "s", median_s, hosts.mttr_s * math.log(2.0), hint
