"""`heliograph step`: one training step on one system."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_hardware, add_workload
from experiments.commands.one_step import run_one

HELP = "run one training step on one system"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--system", default="gpu_packet", help="system by name, or a TOML file; default gpu_packet"
    )
    add_workload(parser)
    parser.add_argument(
        "--accelerators", type=int, metavar="N", help="accelerators; default: what the plan uses"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the time line for Perfetto")
    parser.add_argument("--chakra", type=Path, metavar="PREFIX", help="write the step as PREFIX.<rank>.et")
    add_hardware(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.traces import write_chakra
    from heliograph.parameters import status_counts
    from heliograph.records import canonical_json, write_atomically
    from heliograph.report import print_table
    from heliograph.simulation import wear_warnings
    from heliograph.tables import comparison_rows
    from workloads.plan.parallelism import plan_text

    result = run_one(arguments, model=arguments.model, system=arguments.system)
    record = result.record() | {"inputs_by_status": status_counts(result.system)}
    plan = plan_text(result.plan)
    if arguments.trace:
        write_atomically(arguments.trace, canonical_json({"traceEvents": result.trace.perfetto_events()}))
    chakra = write_chakra(result, arguments.chakra) if arguments.chakra else ""
    if arguments.json:
        print(canonical_json(record | {"model": result.model, "plan": plan}, indent=1))
        return
    title = f"{result.model} on {result.system.accelerators} accelerators, {plan}"
    print_table(title, [record["system"]], comparison_rows([record], rest_note="see --json"))
    for line in wear_warnings([record]):
        print(f"\nWarning: {line}")
    if chakra:
        print(f"\n{chakra}")
