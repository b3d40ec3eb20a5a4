"""From the options of a break-even to its two systems and its plans, and what is printed of it."""

from __future__ import annotations

import argparse
import math

from experiments.breakeven import Sweep
from experiments.report import ReportRow, format_si, report_row
from experiments.step import plan_for
from experiments.systems import System, build_system
from workloads.architecture import TransformerConfig
from workloads.config import load_model
from workloads.plan import Parallelism

DEFAULT_MODEL = "llama-3-70b"
"""Model where nobody names one."""


def work_of(
    arguments: argparse.Namespace,
) -> tuple[System, System, list[tuple[TransformerConfig, Parallelism]]]:
    """Return the optical system, the same on packets, and the models with their plans.

    Raises
    ------
    HeliographError
        If a system, model or plan is wrong.
    """
    optical, packet = (
        build_system(
            name,
            accelerators=arguments.accelerators,
            gpu=arguments.gpu,
            basis=arguments.basis,
            core=arguments.core,
            fabric=arguments.fabric,
            assignments=assignments,
        )
        for name, assignments in (
            (arguments.system, arguments.set),
            (
                arguments.system.replace("ocs", "packet"),
                [one for one in arguments.set if not one.startswith("fabric.")],
            ),
        )
    )
    memory_bytes = optical.node().memory.capacity_bytes
    work = []
    for model in arguments.model or [DEFAULT_MODEL]:
        config = load_model(model)
        for text in arguments.plan or [""]:
            plan = plan_for(config, text, accelerators=arguments.accelerators, memory_bytes=memory_bytes)
            work.append((config, plan))
    return optical, packet, work


def table_rows(swept: Sweep) -> list[ReportRow]:
    """Return the lines of the table: step times, and reconfiguration times at which they are even."""

    def even(seconds: float) -> str:
        if math.isnan(seconds):
            return "never pays"
        return "always pays" if math.isinf(seconds) else format_si(seconds, "s")

    lines, delay_s = swept.lines, swept.delay_s
    rows = [
        report_row("packet switches", tuple(format_si(one.packet_s, "s") for one in lines), "simulated"),
        report_row("circuits never move", tuple(format_si(one.static_s, "s") for one in lines), "simulated"),
    ]
    for place in (0, -1):
        shown = tuple(format_si(float(one.moving_s[place]), "s") for one in lines)
        rows.append(
            report_row(f"circuits move in {format_si(float(delay_s[place]), 's')}", shown, "simulated")
        )
    packet = tuple(even(one.breakeven_s(delay_s, one.packet_s)) for one in lines)
    static = tuple(even(one.breakeven_s(delay_s, one.static_s)) for one in lines)
    rows.append(report_row("as fast as packets up to", packet, "break-even", section=True))
    rows.append(report_row("as fast as circuits at rest up to", static, "break-even"))
    for name, seconds in sorted(swept.switches.items(), key=lambda item: item[1]):
        rows.append(report_row(f"  {name}", tuple(format_si(seconds, "s") for _ in lines), "technology"))
    return rows
