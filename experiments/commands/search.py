"""`heliograph search`: the best plan, placement and fabric for a model."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import DEFAULT_ACCELERATORS, add_hardware, add_workload

HELP = "find the best plan, placement and fabric for a model"
"""What `heliograph --help` says of it."""
DEFAULT_TOP = 3
"""Plans of each topology that the engine runs where nobody says how many."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--system", default="gpu_packet", help="system by name, or a TOML file")
    add_workload(parser)
    parser.add_argument(
        "--accelerators", type=int, default=DEFAULT_ACCELERATORS, metavar="N", help="that each plan takes"
    )
    parser.add_argument("--objective", default="time", help="what is least: time, energy or cost")
    parser.add_argument("--fabrics", default="", help="fabrics to choose from, separated by commas")
    parser.add_argument(
        "--variants", action="store_true", help="try sides of tori, lanes, circuits of nodes and switches"
    )
    parser.add_argument(
        "--top", type=int, default=DEFAULT_TOP, metavar="K", help="plans that the engine runs of each fabric"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where search.json is written, also if stopped"
    )
    add_hardware(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.search import (
        Search,
        fabric_rows,
        objective_of,
        prepared,
        search,
        search_record,
        winner_rows,
    )
    from heliograph.progress import reporting
    from heliograph.records import canonical_json, write_atomically
    from heliograph.report import print_table

    objective = objective_of(arguments.objective)
    request = prepared(arguments)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
    found = Search(model=request.config.name, objective=objective, unplaced=dict(request.unplaced))
    try:
        with reporting() as progress:
            search(
                request.systems,
                request.config,
                request.base,
                found=found,
                choices=request.choices,
                top=arguments.top,
                progress=progress,
            )
    finally:
        if arguments.out and (found.found or found.waiting):
            write_atomically(arguments.out / "search.json", canonical_json(search_record(found), indent=1))
    winner = found.winner
    if arguments.json:
        print(canonical_json(search_record(found), indent=1))
        return
    title = f"Best of {found.ranked:,} plans of {found.model} on {arguments.accelerators} accelerators"
    print_table(title, [winner.topology], winner_rows(found))
    for topology, rows in fabric_rows(found).items():
        print()
        print_table(f"Best plans on {topology}", ["engine"], rows)
    print("\nLeft out: " + "; ".join(f"{many:,} {why}" for why, many in found.rejected.items() if many) + ".")
    for name, why in found.unplaced.items():
        print(f"Not tried: {name}: {why}")
