"""How often hosts and parts of fabrics fail, how long hosts are away, and what stops a job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heliograph.checks import check_positive, check_range
from heliograph.scale_up import BillItem
from heliograph.tables import Table, read_table

RELIABILITY = Path(__file__).parent / "parameters" / "reliability.csv"
"""Hosts and parts, by the items of a bill of materials."""
IN_HOST = ("scale-up", "nic")
"""Items of a bill whose failures the hosts' number counts already."""


@dataclass(frozen=True, kw_only=True)
class HostReliability:
    """A fleet of hosts, and how a job on it saves its state and starts again."""

    name: str = "hosts"
    """Name shown in tables."""
    accelerators: int
    """Accelerators that fail together with their host."""
    mtbf_s: float
    """Mean time of a host between failures that interrupt a job, those of the network apart."""
    availability: float
    """Share of time that a host is up, 0 to 1."""
    restart_s: float
    """Time from a failure until the job computes again, from its last checkpoint."""
    write_s: float
    """Time that the job waits for each checkpoint."""

    def __post_init__(self) -> None:
        check_range(self, "accelerators", low=1)
        check_positive(self, "mtbf_s")
        check_range(self, "availability", high=1.0, open_low=True)
        check_range(self, "restart_s", "write_s")

    @property
    def mttr_s(self) -> float:
        """Mean time to repair that the availability implies, ``mtbf (1 - a) / a``."""
        return self.mtbf_s * (1.0 - self.availability) / self.availability


@dataclass(frozen=True, kw_only=True)
class PartReliability:
    """A part of a fabric, by the name of its item on the bill."""

    name: str = "part"
    """Item."""
    mtbf_s: float
    """Mean time between failures of one."""

    def __post_init__(self) -> None:
        check_positive(self, "mtbf_s")


def job_mtbf_s(
    hosts: HostReliability,
    accelerators: int,
    bill: Mapping[str, BillItem],
    parts: Mapping[str, PartReliability],
) -> float:
    """Return the mean time between interruptions of a job that every failure stops.

    Parameters
    ----------
    hosts : HostReliability
        Its hosts.
    accelerators : int
        Accelerators of the job.
    bill : mapping of str to BillItem
        Bill of the fabric that joins just them; empty to count hosts alone.
    parts : mapping of str to PartReliability
        Parts that fail; other items of the bill do not.

    Notes
    -----
    Rates of independent exponential failures add: ``1 / M = n / mtbf + sum count / mtbf_part``.
    """
    failures_hz = math.ceil(accelerators / hosts.accelerators) / hosts.mtbf_s
    failing = {name: item for name, item in bill.items() if name in parts and name not in IN_HOST}
    failures_hz += math.fsum(item.count / parts[name].mtbf_s for name, item in failing.items())
    return 1.0 / failures_hz


@cache
def reliability_table() -> Table:
    """Return the table of hosts and parts."""
    return read_table(RELIABILITY)


def host_names() -> tuple[str, ...]:
    """Return the fleets of the table."""
    rows = reliability_table().rows
    return tuple(row.name for row in rows if row.parameter == "availability")


def load_hosts(name: str) -> HostReliability:
    """Return a fleet of hosts from the table, e.g. ``"llama-3"``."""
    return reliability_table().build(HostReliability, name)


def load_parts() -> tuple[PartReliability, ...]:
    """Return every part of the table that is no fleet of hosts."""
    table, hosts = reliability_table(), host_names()
    return tuple(table.build(PartReliability, name) for name in table.names if name not in hosts)
