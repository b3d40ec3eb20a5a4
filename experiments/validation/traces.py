"""Chakra traces of our steps, run by ASTRA-sim itself: its rules repeated, and what shared wires take."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from electronic.fabrics.packets import Wires
from experiments.validation.cells import Record, SkipError, check_provenance, read_records
from experiments.validation.collective_simulator.networks import BYTES_PER_GB
from experiments.validation.outcomes import Outcome, skipped
from experiments.validation.trace_simulator import NS_PER_S, Settings, Topology, finishing_ns
from heliograph.report import ReportRow, table_text
from simulator.engine.replay import Clockwork, Replay
from simulator.errors import HeliographError
from simulator.units import to_si
from workloads.traces.chakra import import_trace

COLUMN = "trace"
"""Column that names the traces of a row: ``PREFIX.<rank>.et`` beside the CSV."""
MS_PER_S = 1000
"""Tables show milliseconds."""
HOPS = {Topology.SWITCH: 2, Topology.FULLY_CONNECTED: 1}
"""Links of a path where all paths are alike."""


def trace_outcome(record: Record) -> Outcome:
    """Return what becomes of a row about a simulator's run of traces.

    Raises
    ------
    ParameterError
        If the row holds a number that cannot be one.
    """
    prefix = Path(record.text(COLUMN))
    about = (prefix.name, record.text("topology"), f"{record.text('bw_GBps')} GB/s", record.text("splits"))
    source = record.text("source") or "no source"
    blank = Outcome(id=" ".join(about), source=source, unit="s", measured=None)
    try:
        check_provenance(record)
        settings = settings_of(record)
        measured_s = to_si("time_s", float(record.needed("cycles_ns")), "ns")
        blank = dataclasses.replace(blank, measured=measured_s)
        found_s = max(finishing_ns(prefix, settings)) / NS_PER_S
    except HeliographError as error:
        return skipped(blank, record, error)
    record.assume("ASTRA-sim's own rules; its memory reduces at 1600 bytes a nanosecond")
    return dataclasses.replace(blank, predicted=found_s, assumed=tuple(record.assumed))


def settings_of(record: Record) -> Settings:
    """Return the network and system that a row describes.

    Raises
    ------
    SkipError
        If it is none that is repeated, or a number is missing.
    ParameterError
        If a number cannot be one.
    """
    topology = record.text("topology")
    if topology not in set(Topology) or record.text("algo") != "ring" or record.text("backend") != "unaware":
        what = f"algorithm '{record.text('algo')}' on '{topology}', backend '{record.text('backend')}'"
        known = ", ".join(Topology)
        msg = f"{what}: only ring algorithms on one {known} whose messages never meet are repeated"
        raise SkipError(msg)
    if (record.whole("active") or 1) > 1:
        msg = "chunks that overlap (active above 1) are not repeated"
        raise SkipError(msg)
    rate, latency_ns = record.number("bw_GBps", strict=True), record.number("lat_ns")
    if rate is None or latency_ns is None:
        msg = f"no {'bw_GBps' if rate is None else 'lat_ns'} is given"
        raise SkipError(msg)
    return Settings(
        topology=Topology(topology),
        gigabytes_per_s=rate,
        latency_ns=latency_ns,
        endpoint_ns=record.whole("endpoint_ns") or 0,
        splits=record.whole("splits") or 1,
    )


def wires_of(settings: Settings, ranks: int) -> Wires:
    """Return the links of a switch or of all pairs, at the same rate; transfers share them.

    Raises
    ------
    SkipError
        If paths differ in length.
    """
    if settings.topology not in HOPS:
        msg = f"a {settings.topology} has paths of several lengths; name one of {', '.join(HOPS)}"
        raise SkipError(msg)
    return Wires(
        endpoints=ranks,
        link_bytes_per_s=settings.gigabytes_per_s * BYTES_PER_GB,
        latency_s=to_si("latency_s", settings.latency_ns * HOPS[settings.topology], "ns"),
        direct=settings.topology is Topology.FULLY_CONNECTED,
    )


def shared_s(prefix: Path, settings: Settings, ranks: int) -> float:
    """Return the time of our replay on the same wires, where groups move side by side and share links."""
    return Replay(import_trace(prefix), Clockwork(), wires_of(settings, ranks)).run().makespan_s


def _shown() -> list[Record]:
    table = Path(__file__).parent / "reference" / "network.csv"
    rows = read_records(table, needs=((COLUMN,),))
    shown = [record for record in rows if record.text(COLUMN) and record.text("topology") in HOPS]
    for record in shown:
        record.cells[COLUMN] = str(table.parent / record.text(COLUMN))
    return shown


def traces_record() -> list[dict[str, Any]]:
    """Return, of the traces that ship, the simulator's time and what its rules cost as plain data."""
    found = []
    for record in _shown():
        prefix, settings = Path(record.text(COLUMN)), settings_of(record)
        beside = dataclasses.replace(settings, one_at_a_time=False)
        quick = dataclasses.replace(beside, memory_bytes_per_ns=math.inf)
        found.append(
            {
                "trace": prefix.name,
                "topology": str(settings.topology),
                "gigabytes_per_s": settings.gigabytes_per_s,
                "splits": settings.splits,
                "simulated_s": max(finishing_ns(prefix, settings)) / NS_PER_S,
                "groups_beside_each_other_s": max(finishing_ns(prefix, beside)) / NS_PER_S,
                "and_sums_at_once_s": max(finishing_ns(prefix, quick)) / NS_PER_S,
                "shared_wires_s": shared_s(prefix, settings, record.needed("npus")),
            }
        )
    return found


def traces_text() -> str:
    """Return the same as a table."""
    columns = ("simulated_s", "groups_beside_each_other_s", "and_sums_at_once_s", "shared_wires_s")
    rows = [
        ReportRow(
            label="{trace} {topology} {gigabytes_per_s:g} GB/s / {splits}".format_map(one),
            values=tuple(f"{one[name] * MS_PER_S:.2f}" for name in columns),
        )
        for one in traces_record()
    ]
    title = "Steps as traces (ms): ASTRA-sim; its groups side by side; sums at once too; shared wires"
    return table_text(title, ("ASTRA-sim", "side by side", "sums at once", "our wires"), rows, width=110)
