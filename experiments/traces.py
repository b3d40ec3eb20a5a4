"""``heliograph run-trace``: a Chakra trace on one of our systems."""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heliograph.records import canonical_json, write_atomically
from heliograph.report import ReportRow, format_si, table_text
from heliograph.simulation import StepResult
from heliograph.systems import System, build_system
from simulator.engine.replay import Replay, as_recorded
from simulator.fabric import Fabric
from simulator.rank_graph import RankGraph
from simulator.results.metrics import BUBBLE, DARK, EXPOSED, HOST, time_of_class_s
from simulator.results.trace import Trace
from workloads.traces.chakra import Compute, export_step, import_trace

WAITING = (EXPOSED, DARK, HOST, BUBBLE)
"""Categories of the time in which a rank computes nothing."""
COMPUTE = "compute"
"""Name of all the other time."""


@dataclass(frozen=True, kw_only=True)
class ReplayResult:
    """What a recorded graph took on a system."""

    system: System
    """The hardware."""
    graph: RankGraph
    """What was run."""
    trace: Trace
    """What happened."""
    compute: Compute
    """How long compute took."""

    def record(self) -> dict[str, Any]:
        """Return the result as plain data, SI throughout.

        Notes
        -----
        Static power of the accelerators and of the fabric is charged over the whole time. Recorded compute
        has no energy of its own, for none was recorded.
        """
        trace, system = self.trace, self.system
        time_s = trace.makespan_s
        energy = {"accelerators static": system.node().static_w * system.accelerators * time_s}
        energy["network static"] = system.fabric.static_w * time_s
        energy["network transfers"] = trace.network_energy_j
        energy["circuit changes"] = trace.reconfiguration_energy_j
        energy |= {part: joules for part, joules in trace.compute_energy_j.items() if joules > 0.0}
        return {
            "trace": self.graph.name,
            "ranks": self.graph.ranks,
            "tasks": len(self.graph.tasks),
            "system": system.name,
            "accelerator": system.node().name,
            "accelerators": system.accelerators,
            "fabric": system.fabric.name,
            "compute": str(self.compute),
            "time_s": time_s,
            "time_by_category_s": times_s(trace, self.graph),
            "network_bytes": dict(trace.network_bytes),
            "collective_algorithms": dict(trace.algorithms),
            "reconfigurations": trace.reconfigurations,
            "energy_j": math.fsum(energy.values()),
            "energy_by_component_j": energy,
        }


def times_s(trace: Trace, graph: RankGraph) -> dict[str, float]:
    """Return the mean over ranks of the time by what they did or waited for; adds up to the whole."""
    found: defaultdict[str, float] = defaultdict(float)
    for index, ranks in enumerate(graph.classes):
        share = len(ranks) / graph.ranks
        for part, seconds in time_of_class_s(trace, index).items():
            found[part if part in WAITING else COMPUTE] += seconds * share
    return {part: found[part] for part in (COMPUTE, *WAITING) if part in found}


def replay(
    graph: RankGraph, system: System, compute: Compute, *, fabric: Fabric | None = None
) -> ReplayResult:
    """Run a recorded graph on a system.

    Parameters
    ----------
    graph : RankGraph
        What to run.
    system : System
        The hardware; its accelerator counts for compute that has no recorded time.
    compute : Compute
        What the graph was made with; told in the record.
    fabric : Fabric, optional
        Another fabric than the system's.
    """
    trace = Replay(graph, as_recorded(system.node()), fabric or system.fabric).run()
    return ReplayResult(system=system, graph=graph, trace=trace, compute=compute)


def rows_of(record: dict[str, Any]) -> list[ReportRow]:
    """Return the lines that the terminal shows."""
    time_s = record["time_s"]
    rows = [
        ("accelerator", str(record["accelerator"]), ""),
        ("fabric", str(record["fabric"]), ""),
        ("ranks, tasks", f"{record['ranks']}, {record['tasks']:,}", "of the trace"),
        ("time", format_si(time_s, "s"), "simulated"),
    ]
    shares = record["time_by_category_s"].items()
    rows += [(f"  {part}", f"{100 * seconds / time_s:.1f} %", "mean over ranks") for part, seconds in shares]
    rows += [
        (f"{kind} on the wire", format_si(moved, "B"), "all ranks")
        for kind, moved in record["network_bytes"].items()
    ]
    rows.append(("energy, without recorded compute", format_si(record["energy_j"], "J"), "derived"))
    return [ReportRow(label=label, values=(value,), note=note) for label, value, note in rows]


def run_trace(arguments: argparse.Namespace) -> str:
    """Return what ``run-trace`` prints."""
    compute = Compute.MODELLED if arguments.modelled else Compute.RECORDED
    graph = import_trace(
        arguments.prefix,
        groups=arguments.groups,
        compute=compute,
        ignore_missing=arguments.ignore_missing,
    )
    system = build_system(
        arguments.system,
        accelerators=arguments.accelerators or graph.ranks,
        gpu=arguments.gpu,
        basis=arguments.basis,
        core=arguments.core,
        fabric=arguments.fabric,
        assignments=arguments.set,
    )
    result = replay(graph, system, compute)
    if arguments.trace:
        events = {"traceEvents": result.trace.perfetto_events()}
        write_atomically(arguments.trace, canonical_json(events))
    record = result.record()
    if arguments.json:
        return canonical_json(record, indent=1)
    title = f"Trace {graph.name}, compute as {compute}"
    return table_text(title, (system.name,), rows_of(record), width=90)


def write_chakra(result: StepResult, prefix: Path) -> str:
    """Write a step as Chakra traces and return the sentence that says where."""
    written = export_step(
        result.graph, result.system.node(), prefix, name=f"{result.model} on {result.system.name}"
    )
    return f"Wrote {written[0]} to {written[-2].name}, and {written[-1].name}."
