"""A recorded Chakra execution trace on one of our systems."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments.hardware import SYSTEM, Hardware
from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.records import canonical_json, write_atomically
from heliograph.report import format_si, value_table
from heliograph.systems import System
from simulator.engine.rank_graph import RankGraph, Together
from simulator.engine.replay import Replay, as_recorded
from simulator.results.metrics import BUBBLE, DARK, EXPOSED, HOST, time_of_class_s
from simulator.results.trace import Trace
from workloads.traces.chakra import Compute, import_trace

WAITING = (EXPOSED, DARK, HOST, BUBBLE)
"""Categories of the time in which a rank computes nothing."""
COMPUTE = "compute"
"""Name of all the other time."""


@dataclass(frozen=True, kw_only=True)
class ReplayResult(Result):
    """Run of a recorded graph on a system."""

    system: System
    """The hardware."""
    graph: RankGraph
    """Recorded graph."""
    trace: Trace
    """Trace of the run."""
    compute: Compute
    """Source of the times of compute."""

    def record(self) -> dict[str, Any]:
        """Return the result as plain data, SI throughout.

        Notes
        -----
        Static power of the accelerators and of the fabric is charged over the whole time. Recorded compute
        has no energy of its own, for none was recorded.
        """
        trace, system = self.trace, self.system
        time_s = trace.makespan_s
        node = system.node()
        energy = {part: joules for part, joules in trace.compute_energy_j.items() if joules > 0.0}
        energy["accelerators static"] = node.static_w * system.accelerators * time_s
        energy |= node.around(math.fsum(energy.values()))
        energy["network static"] = system.fabric.static_w * time_s
        energy["network transfers"] = trace.network_energy_j
        energy["circuit changes"] = trace.reconfiguration_energy_j
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

    def report(self) -> list[Block]:
        """Return the table of times, bytes and energy."""
        title = f"Trace {self.graph.name}, compute as {self.compute}"
        return [value_table(title, self.system.name, _lines(self.record()))]

    def rows(self) -> list[Row]:
        """Return a row for each category of time."""
        return [
            {"category": part, "time_s": seconds}
            for part, seconds in self.record()["time_by_category_s"].items()
        ]


def times_s(trace: Trace, graph: RankGraph) -> dict[str, float]:
    """Return the mean over ranks of the time by what they did or waited for; adds up to the whole."""
    found: defaultdict[str, float] = defaultdict(float)
    for index, ranks in enumerate(graph.classes):
        share = len(ranks) / graph.ranks
        for part, seconds in time_of_class_s(trace, index).items():
            found[part if part in WAITING else COMPUTE] += seconds * share
    return {part: found[part] for part in (COMPUTE, *WAITING) if part in found}


def replay(graph: RankGraph, system: System, compute: Compute) -> ReplayResult:
    """Run a recorded graph on a system, on that form of its fabric where it is fastest.

    Parameters
    ----------
    graph : RankGraph
        What to run.
    system : System
        The hardware; its accelerator counts for compute that has no recorded time.
    compute : Compute
        What the graph was made with; told in the record.
    """
    node = as_recorded(system.node())
    runs = [(form, Replay(graph, node, form).run()) for form in system.fabric.laid_for(blocks(graph))]
    fabric, trace = min(runs, key=lambda run: run[1].makespan_s)
    return ReplayResult(system=replace(system, fabric=fabric), graph=graph, trace=trace, compute=compute)


def blocks(graph: RankGraph) -> tuple[int, ...]:
    """Return the sizes of groups of neighbouring ranks in rising order, and of the whole."""
    groups = {
        group for one in graph.tasks if isinstance(one.operation, Together) for group in one.operation.groups
    }
    near = {len(group) for group in groups if max(group) - min(group) == len(group) - 1}
    return tuple(sorted(near | {graph.ranks}))


def _lines(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, value and note of the lines that the terminal shows."""
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
    return rows


@dataclass(frozen=True, kw_only=True)
class ReplayTrace(Study):
    """A recorded Chakra execution trace on a system."""

    prefix: Path = option(..., "traces PREFIX.<rank>.et, or the directory that holds them", positional=True)
    system: str = option("gpu_packet", SYSTEM)
    accelerators: int | None = option(None, "default: the ranks of the trace", metavar="N")
    groups: Path | None = option(None, "JSON of process groups, if not beside them", metavar="FILE")
    modelled: bool = option(False, "let the accelerator's model time compute, not the record")
    ignore_missing: bool = option(False, "count nodes that others wait for and no file holds as done")
    trace: Path | None = option(None, "write the time line for Perfetto", metavar="FILE", written=True)
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> ReplayResult:
        """Return what the trace took."""
        compute = Compute.MODELLED if self.modelled else Compute.RECORDED
        graph = import_trace(
            self.prefix, groups=self.groups, compute=compute, ignore_missing=self.ignore_missing
        )
        system = self.hardware.system(self.system, accelerators=self.accelerators or graph.ranks)
        result = replay(graph, system, compute)
        if self.trace:
            events = {"traceEvents": result.trace.perfetto_events()}
            write_atomically(self.trace, canonical_json(events))
        return result
