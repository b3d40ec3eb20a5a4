"""Chakra traces of our steps, run by ASTRA-sim itself: what its rules give here, and what shared wires take."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from electronic.wires import Wires
from experiments.validation.cells import Record, SkipError, check_provenance
from experiments.validation.outcomes import Outcome, skipped
from experiments.validation.ring_simulator import BYTES_PER_GB
from experiments.validation.trace_simulator import NS_PER_S, Settings, Topology, finishing_ns
from heliograph.errors import HeliographError
from heliograph.replay import Clockwork, Replay
from heliograph.units import to_si
from workloads.chakra import import_trace

COLUMN = "trace"
"""Column that names the traces of a row: ``PREFIX.<rank>.et`` beside the CSV."""
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
        ends_ns = finishing_ns(prefix, settings)
    except HeliographError as error:
        return skipped(blank, record, error)
    record.assume("ASTRA-sim's own rules; its memory reduces at 1600 bytes a nanosecond")
    return dataclasses.replace(
        blank,
        predicted=max(ends_ns) / NS_PER_S,
        assumed=tuple(record.assumed),
        hint=_hint(prefix, settings, len(ends_ns)),
    )


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
        msg = f"{what}: only ring algorithms on one {', '.join(Topology)} whose messages never meet are repeated"
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
    """Return the time on our replay of the same wires, where groups move beside each other and share links."""
    return Replay(import_trace(prefix), Clockwork(), wires_of(settings, ranks)).run().makespan_s


def _hint(prefix: Path, settings: Settings, ranks: int) -> str:
    together = dataclasses.replace(settings, one_at_a_time=False)
    text = f"with a transfer of each group at a time {max(finishing_ns(prefix, together)) / NS_PER_S:.6g} s"
    if settings.topology in HOPS:
        text += f", on shared wires {shared_s(prefix, settings, ranks):.6g} s"
    return text
