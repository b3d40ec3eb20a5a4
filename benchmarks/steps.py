"""Steps in arrays beside the reference on simpy, steps whose circuits turn, and one on 16,384 accelerators.

Run ``python benchmarks/steps.py [arrays] [turns] [large] [--accelerators N]``; all three by default.

``arrays`` prints, for each plan: tasks, CPU time of the loop's events, of a whole step from its graph to its
metrics, and of the same with another laser and with another bandwidth where its structure is kept. In
brackets is how many times as long the reference takes for the same, beside them the largest difference of any
start or end; ``turns`` has the same of circuits that turn. ``large`` prints CPU times on packets and on
circuits that move, and over those of the same step on a 64th of the accelerators (data parallelism shrunk):
classes of identical ranks keep the ratio far below 64.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from heliograph.report import ReportRow, ReportTable, print_report
from heliograph.simulation import StepResult, run_step, step_graph
from heliograph.systems import System, build_system
from simulator.engine.compiled.loop import Turning, compiled_play
from simulator.engine.compiled.programs import Programs, StepNetwork, StepStructure
from simulator.engine.compiled.step import LoopRun, StepRuns, initial_tables
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
"""Steps to run: many microbatches, a folded schedule, gradients reduced for each, many ranks in one group."""
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
"""Steps in which circuits turn: to context and stages between nodes, to exchanges of experts, layer by
layer."""
TIMES = 3
"""Runs of each step, of which the fastest counts; a choice."""
LASER, BANDWIDTH = "laser_power_w", "nic.bandwidth_bytes_per_s"
"""Parameters that repeated steps change."""
LARGE_MODEL, LARGE_PLAN = "gpt3-175b", "tp=8,pp=16,dp=128,global_batch=4096,sequence_length=2048"
SMALLER = 64
LIMIT_S = 10.0


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
        tables = initial_tables(structure, Programs(structure, node, network), network, None)
        ours.append(cpu_s(LoopRun(tables, None, compiled=True).run))
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


def timed(system: str, accelerators: int) -> tuple[float, StepResult]:
    """Return CPU time and result of a step whose data parallelism uses so many accelerators."""
    config, plan = load_model(LARGE_MODEL), parse_plan(LARGE_PLAN)
    dp = max(1, accelerators // (plan.axes.ranks // plan.axes.dp))
    plan = plan.with_(dp=dp, global_batch=plan.batch.global_batch * dp // plan.axes.dp)
    built = build_system(system, accelerators=plan.axes.ranks)
    start = time.process_time()
    result = run_step(built, config, plan)
    return time.process_time() - start, result


def arrays() -> None:
    """Print steps in arrays."""
    compiled_play(Turning.NONE)
    rows = [ReportRow(f"{model}, {text}", measured(model, text), "this machine") for model, text in PLANS]
    heads = ["tasks", "events", "whole step", "another laser", "another bandwidth", "difference"]
    title = f"Steps in arrays on {SYSTEM}, and how many times as long the reference takes"
    print_report([ReportTable(title, heads, rows)])


def turns() -> None:
    """Print steps whose circuits turn."""
    compiled_play(Turning.LANES)
    rows = [
        ReportRow(f"{name}, {model}, {text}", turned(name, policy, model, text), "this machine")
        for name, policy, model, text in TURNS
    ]
    heads = ["tasks", "changes", "prices and events", "difference"]
    print_report([ReportTable("Circuits that turn", heads, rows)])


def large(accelerators: int) -> None:
    """Print a large step on each system."""
    print(f"{LARGE_MODEL}, {LARGE_PLAN}, {accelerators} accelerators")
    print("system             step s circuit changes    CPU s to a 64th  of 10 s")
    timed("gpu_packet", accelerators // SMALLER)  # imports and caches are no part of the comparison
    for system in ("gpu_packet", "gpu_ocs", "photonic_ocs"):
        small, _ = timed(system, accelerators // SMALLER)
        cpu, result = timed(system, accelerators)
        print(
            f"{system:16s} {result.metrics.step_time_s:8.3f} {result.trace.reconfigurations:15d} {cpu:8.2f} "
            f"{cpu / small:8.2f}x {cpu / LIMIT_S:7.0%}"
        )


def main() -> None:
    """Print the tables that are asked for, or all."""
    parser = argparse.ArgumentParser(description="Speed of simulating steps.")
    parser.add_argument("tables", nargs="*", help="arrays, turns or large (default: all)")
    parser.add_argument("--accelerators", type=int, default=16384, help="of large; default %(default)s")
    asked = parser.parse_args()
    tables = {"arrays": arrays, "turns": turns, "large": lambda: large(asked.accelerators)}
    for name in asked.tables or tables:
        tables[name]()


if __name__ == "__main__":
    main()
