"""Steps in arrays beside the reference on simpy, in one run: events alone, whole steps, and steps repeated.

Prints, for each plan: tasks, CPU time of the loop's events, of a whole step from its graph to its metrics,
and of the same with another laser and with another bandwidth where its structure is kept. In brackets is how
many times as long the reference takes for the same. Beside them stands the largest difference of any start or
end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from heliograph.report import ReportRow, ReportTable, print_report
from heliograph.simulation import run_step, step_graph
from heliograph.systems import System, build_system
from simulator.engine.compiled.loop import Turning, compiled_play
from simulator.engine.compiled.programs import Programs, StepNetwork, StepStructure
from simulator.engine.compiled.step import Player, StepRuns, laid_out
from simulator.engine.simulation import Simulation
from simulator.fabric import CircuitPolicy
from simulator.operators import StepGraph
from simulator.results import Trace, summarise
from workloads.models.config import load_model
from workloads.plan.plan import parse_plan

SYSTEM = "photonic_packet"
PLANS = (
    ("gpt3-175b", "tp=8,pp=16,dp=8,global_batch=1024,micro_batch=1,sequence_length=2048"),
    ("gpt3-175b", "tp=8,pp=16,dp=8,global_batch=1024,micro_batch=1,sequence_length=2048,schedule=v_min"),
    ("llama-3-8b", "tp=2,pp=4,dp=8,zero=2,global_batch=512,sequence_length=2048"),
    ("llama-3-8b", "dp=4096,zero=3,global_batch=4096,sequence_length=2048"),
)
"""What is run: many microbatches, a folded schedule, gradients reduced for each, many ranks in one group."""
TURNS = (
    (
        "gpu_ocs",
        CircuitPolicy.PER_AXIS,
        "llama-3.1-405b",
        "tp=2,pp=32,dp=2,cp=8,global_batch=64,sequence_length=8192,zero=1",
    ),
    (
        "gpu_ocs",
        CircuitPolicy.PER_AXIS,
        "deepseek-v3",
        "pp=16,dp=256,ep=64,global_batch=1024,sequence_length=4096,zero=1,recompute=full",
    ),
    (
        "gpu_packet@regional_ocs",
        CircuitPolicy.PER_LAYER,
        "mixtral-8x7b",
        "tp=8,pp=4,dp=8,ep=8,global_batch=64,sequence_length=4096,expert_affinity=3,expert_patterns=7",
    ),
)
"""What is run while circuits turn: to context and stages between nodes, to exchanges of experts, layer by
layer."""
TIMES = 3
"""Runs of each, of which the fastest counts; a choice."""
LASER, BANDWIDTH = "laser_power_w", "nic.bandwidth_bytes_per_s"
"""What the repeated steps change."""


def cpu_s(run: Callable[[], object]) -> float:
    """Return the CPU time of a call."""
    began_s = time.process_time()
    run()
    return time.process_time() - began_s


def events_s(graph: StepGraph, system: System) -> tuple[float, float]:
    """Return CPU time of all events of a step: of the loop's, and of the reference's."""
    node, fabric = system.node(), system.fabric
    structure = StepStructure(graph)
    network = StepNetwork(structure, fabric)
    ours, theirs = [], []
    for _ in range(TIMES):
        memories = laid_out(structure, Programs(structure, node, network), network, None)
        ours.append(cpu_s(Player(memories, None, compiled=True).run))
        theirs.append(cpu_s(Simulation(graph, node, fabric).run))
    return min(ours), min(theirs)


def difference_s(one: Trace, other: Trace) -> float:
    """Return the largest difference of starts and ends of two traces."""
    starts = np.abs(one.table.start_s - other.table.start_s)
    return float(max(starts.max(), np.abs(one.table.end_s - other.table.end_s).max()))


def measured(model: str, text: str) -> tuple[str, ...]:
    """Return the cells of a plan's line."""
    config, plan = load_model(model), parse_plan(text)
    system = build_system(SYSTEM, accelerators=plan.axes.ranks)
    node, fabric = system.node(), system.fabric
    graph = step_graph(config, plan)
    runs = StepRuns(graph, runs=10**6)  # as in a long sweep
    apart_s = difference_s(runs.run(node, fabric), Simulation(graph, node, fabric).run())

    def by_reference() -> None:
        summarise(Simulation(graph, node, fabric).run(), graph, node, fabric)

    def changed(path: str, value: float, kept: StepRuns | None) -> float:
        other = system.with_({path: value})
        return cpu_s(lambda: run_step(other, config, plan, runs=kept or StepRuns(graph)))

    reference_s = min(cpu_s(by_reference) for _ in range(TIMES))
    ours_s, theirs_s = events_s(graph, system)
    lasers, bandwidths = np.linspace(1e-3, 2e-3, TIMES), np.linspace(3e10, 6e10, TIMES)
    once_s = min(changed(LASER, 1.5e-3, None) for _ in range(TIMES))
    laser_s = min(changed(LASER, float(one), runs) for one in lasers)
    bandwidth_s = min(changed(BANDWIDTH, float(one), runs) for one in bandwidths)
    whole = [f"{one * 1e3:.0f} ms ({reference_s / one:.0f}x)" for one in (once_s, laser_s, bandwidth_s)]
    return (
        f"{len(graph.tasks):,}",
        f"{ours_s * 1e3:.2g} ms ({theirs_s / ours_s:.0f}x)",
        *whole,
        f"{apart_s:g} s",
    )


def turned(name: str, policy: CircuitPolicy, model: str, text: str) -> tuple[str, ...]:
    """Return the cells of the line of a plan whose circuits turn."""
    config, plan = load_model(model), parse_plan(text)
    system = build_system(name, accelerators=plan.axes.ranks)
    node, fabric = system.node(), system.fabric.with_policy(policy)
    graph = step_graph(config, plan)
    runs = StepRuns(graph, runs=10**6)
    traces: list[Trace] = []
    ours_s = min(cpu_s(lambda: traces.append(runs.run(node, fabric))) for _ in range(TIMES))
    reference_s = cpu_s(lambda: traces.append(Simulation(graph, node, fabric).run()))
    apart_s = difference_s(traces[0], traces[-1])
    changes = f"{traces[0].reconfigurations:,}"
    return f"{len(graph.tasks):,}", changes, f"{ours_s:.2f} s ({reference_s / ours_s:.0f}x)", f"{apart_s:g} s"


def main() -> None:
    """Print the table."""
    for turning in (Turning.NONE, Turning.LANES):
        compiled_play(turning)
    rows = [ReportRow(f"{model}, {text}", measured(model, text), "this machine") for model, text in PLANS]
    heads = ["tasks", "events", "whole step", "another laser", "another bandwidth", "difference"]
    title = f"Steps in arrays on {SYSTEM}, and how many times as long the reference takes"
    print_report([ReportTable(title, heads, rows)])
    rows = [
        ReportRow(f"{name}, {model}, {text}", turned(name, policy, model, text), "this machine")
        for name, policy, model, text in TURNS
    ]
    heads = ["tasks", "changes", "prices and events", "difference"]
    print_report([ReportTable("Circuits that turn", heads, rows)])


if __name__ == "__main__":
    main()
