"""`heliograph compare`: systems beside each other in time, energy, cost and accuracy."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import DEFAULT_ACCELERATORS, add_hardware, add_workload

HELP = "compare systems in time, energy, cost and accuracy"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_workload(parser)
    parser.add_argument(
        "--accelerators", type=int, default=DEFAULT_ACCELERATORS, metavar="N", help="per system"
    )
    parser.add_argument(
        "--systems",
        default="gpu_packet,gpu_ocs,photonic_packet,photonic_ocs",
        help="systems by name, or TOML files, separated by commas",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory of the run; default results/...")
    parser.add_argument("--quick", action="store_true", help="train the small GPT for fewer steps and seeds")
    parser.add_argument("--no-accuracy", action="store_true", help="do not train the small GPT")
    parser.add_argument("--seed", type=int, default=0, help="first seed of the training runs")
    add_hardware(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from heliograph.comparison import Request, compare, reserve, write
    from heliograph.progress import reporting
    from heliograph.records import TrainingCache, canonical_json
    from heliograph.report import print_table
    from heliograph.simulation import wear_warnings
    from heliograph.tables import comparison_rows
    from workloads.plan.parallelism import plan_text

    request = Request(
        model=arguments.model,
        accelerators=arguments.accelerators,
        systems=tuple(name.strip() for name in arguments.systems.split(",") if name.strip()),
        plan=arguments.plan,
        gpu=arguments.gpu,
        basis=arguments.basis,
        core=arguments.core,
        fabric=arguments.fabric,
        assignments=tuple(arguments.set),
        quick=arguments.quick,
        seed=arguments.seed,
        accuracy=not arguments.no_accuracy,
    )
    cache = TrainingCache((arguments.out.parent if arguments.out else Path("results")) / ".training")
    with reporting() as progress:
        comparison = compare(
            request, cache=cache, progress=progress, stepped=lambda one: reserve(one, arguments.out)
        )
    directory = write(comparison, arguments.out)
    if arguments.json:
        print(canonical_json(comparison.summary() | {"directory": str(directory)}, indent=1))
        return
    title = f"{comparison.config.name} on {request.accelerators} accelerators"
    records = comparison.records()
    print_table(title, [record["system"] for record in records], comparison_rows(records))
    for line in wear_warnings(records):
        print(f"\nWarning: {line}")
    print(f"\nPlan: {plan_text(comparison.plan)}")
    print(
        f"Wrote {directory}/: summary.json, table.csv, config.json, pictures (png and svg), and trace.json,"
    )
    print("which opens at ui.perfetto.dev. Prices are assumed: heliograph show SYSTEM lists every source.")
