"""One step as the options of several commands name it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from experiments.arguments import DEFAULT_ACCELERATORS

if TYPE_CHECKING:
    from heliograph.simulation import StepResult


def run_one(arguments: argparse.Namespace, *, model: str, system: str) -> StepResult:
    """Return one step of the model, plan and system that the arguments name."""
    from heliograph.registry import model_named
    from heliograph.simulation import plan_for, run_step
    from heliograph.systems import build_system
    from heliograph.workload import ranks_of

    config = model_named(model)
    usual = ranks_of(arguments.plan) or DEFAULT_ACCELERATORS
    built = build_system(
        system,
        accelerators=arguments.accelerators,
        usual_accelerators=usual,
        gpu=arguments.gpu,
        basis=arguments.basis,
        core=arguments.core,
        fabric=arguments.fabric,
        assignments=arguments.set,
    )
    memory_bytes = built.node().memory.capacity_bytes
    plan = plan_for(config, arguments.plan, accelerators=built.accelerators, memory_bytes=memory_bytes)
    return run_step(built, config, plan)
