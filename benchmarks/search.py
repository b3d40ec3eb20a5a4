"""Plans estimated per second over plans simulated per second, in one run, by fabric.

Prints, for each fabric: plans ranked, the time for all of them, the time of the engine for a sample, and the
ratio of the rates; the mean and the worst error of the estimate over the sample stand beside it.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from heliograph.comparison.plan_estimates import Objective, estimates, feasible
from heliograph.report import ReportRow, ReportTable, print_report
from heliograph.simulation import run_step
from heliograph.systems import build_system
from simulator.errors import HeliographError
from workloads.models.config import load_model
from workloads.plan.plan import Plan
from workloads.search.costs import PlanPricer
from workloads.search.plans import grid

SYSTEMS = ("gpu_packet", "gpu_ocs", "gpu_packet@torus", "gpu_packet@direct_connect")
"""What is compared."""
ACCELERATORS = 16
"""Accelerators of each."""
SAMPLE = 16
"""Plans that the engine runs."""
SEED = 3
"""Of the sample."""


def main() -> None:
    """Print the table."""
    config = dataclasses.replace(load_model("llama-3-8b"), layers=6)
    base = Plan.of(sequence_length=4096, global_batch=16)
    rows = []
    for name in SYSTEMS:
        system = build_system(name, accelerators=ACCELERATORS)
        every = grid(base, ACCELERATORS, config.experts)
        began_s = time.perf_counter()
        plans, _ = feasible(config, every, system.node().memory.capacity_bytes)
        times_s = estimates(system, PlanPricer(config, system.node()), plans).values[Objective.TIME]
        estimated_s = time.perf_counter() - began_s
        chosen = np.random.default_rng(SEED).choice(len(plans), SAMPLE, replace=False)
        errors = []
        began_s = time.perf_counter()
        for row in chosen:
            plan, placement = plans.plan(int(row)), plans.placement(int(row))
            try:
                ran = run_step(system, config, plan, placement=placement)
            except HeliographError:  # an estimate without rounding may pass what memory refuses
                continue
            errors.append(abs(times_s[row] / ran.metrics.step_time_s - 1.0))
        simulated_s = (time.perf_counter() - began_s) / SAMPLE
        ratio = len(plans) / estimated_s * simulated_s
        values = (
            f"{len(plans):,}",
            f"{estimated_s:.2f} s",
            f"{1.0 / simulated_s:.1f}",
            f"{ratio:.0f}",
            f"{np.mean(errors):.1%}",
            f"{np.max(errors):.1%}",
        )
        rows.append(ReportRow(name, values, "this machine"))
    heads = ["plans", "estimated in", "engine, per s", "ratio of rates", "mean error", "worst"]
    title = f"Plans of {config.name}, {config.layers} blocks, on {ACCELERATORS} accelerators"
    print_report([ReportTable(title, heads, rows)])


if __name__ == "__main__":
    main()
