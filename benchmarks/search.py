"""Plans estimated per second over plans simulated per second, in one run, by fabric; and large searches cold.

Prints, for each fabric: plans ranked, the time for all of them, the time of the engine for a sample, and the
ratio of the rates; the mean and the worst error of the estimate over the sample stand beside it.

Then, for large grids: rows, plans that keep all rules and fit, processor time of the rules and of all
estimates with no price known before, rows a second, and how many times as long that takes as its floor: the
closed form alone, over the pieces of the same plans.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from heliograph.comparison.plan_estimates import Objective, Prices, estimates, feasible
from heliograph.report import ReportRow, ReportTable, print_report
from heliograph.simulation import run_step
from heliograph.systems import build_system
from simulator.errors import HeliographError
from simulator.step_estimate import estimate
from workloads.models.config import load_model
from workloads.plan.plan import Plan
from workloads.search.costs import PlanPricer
from workloads.search.plans import grid

SYSTEMS = ("gpu_packet", "gpu_ocs", "gpu_packet@torus", "gpu_packet@direct_connect")
"""Systems that are compared."""
ACCELERATORS = 16
"""Accelerators of each system."""
SAMPLE = 16
"""Plans that the engine runs."""
SEED = 3
"""Seed of the sample."""
LARGE = (("gpt3-175b", 4096, 2048, 1536), ("llama-3.1-405b", 16384, 8192, 2048))
"""Large searches: model, accelerators, length of sequences, sequences of a step."""


def large(model: str, accelerators: int, sequence_length: int, global_batch: int) -> ReportRow:
    """Return the line of a large search on packets."""
    system, config = build_system("gpu_packet", accelerators=accelerators), load_model(model)
    base = Plan.of(sequence_length=sequence_length, global_batch=global_batch)
    every = grid(base, accelerators, config.experts)
    began_s = time.process_time()
    plans, _ = feasible(config, every, system.node().memory.capacity_bytes)
    ruled_s = time.process_time() - began_s
    pricer, prices = PlanPricer(config, system.node()), Prices()
    began_s = time.process_time()
    estimates(system, pricer, plans, prices=prices)
    estimated_s = time.process_time() - began_s
    arrays = pricer.costs(plans, prices.of(system.fabric)).arrays
    began_s = time.process_time()
    estimate(arrays)
    floor_s = time.process_time() - began_s
    values = (
        f"{len(every):,}",
        f"{len(plans):,}",
        f"{ruled_s:.2f} s",
        f"{estimated_s:.2f} s",
        f"{len(every) / (ruled_s + estimated_s):,.0f}",
        f"{(ruled_s + estimated_s) / floor_s:.1f}",
    )
    return ReportRow(f"{model} on {accelerators:,}", values, "this machine")


def main() -> None:
    """Print both tables."""
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
    heads = ["rows", "plans", "rules", "estimates", "rows per s", "over the closed form"]
    title = "Large searches cold, on packets"
    print_report([ReportTable(title, heads, [large(*one) for one in LARGE])])


if __name__ == "__main__":
    main()
