"""One step as the options of several commands name it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from experiments.arguments import DEFAULT_ACCELERATORS

if TYPE_CHECKING:
    from heliograph.simulation import StepResult


def run_one(arguments: argparse.Namespace, *, model: str, system: str) -> StepResult:
    """Return one step of the model, plan and system that the arguments name."""
    from heliograph.simulation import plan_for, run_step
    from heliograph.systems import build_system
    from workloads.models.config import load_model
    from workloads.plan.parallelism import parse_plan

    config = load_model(model)
    accelerators = arguments.accelerators
    if accelerators is None:
        accelerators = parse_plan(arguments.plan).axes.ranks if arguments.plan else DEFAULT_ACCELERATORS
    built = build_system(
        system,
        accelerators=accelerators,
        gpu=arguments.gpu,
        basis=arguments.basis,
        core=arguments.core,
        fabric=arguments.fabric,
        assignments=arguments.set,
    )
    memory_bytes = built.node().memory.capacity_bytes
    plan = plan_for(config, arguments.plan, accelerators=accelerators, memory_bytes=memory_bytes)
    return run_step(built, config, plan)
