"""`heliograph breakeven`: up to which reconfiguration time circuits that move within a step pay."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_hardware

HELP = "draw step time against the time that circuits take to move"
"""What `heliograph --help` says of it."""
DEFAULT_ACCELERATORS = 256
"""Accelerators where nobody says how many."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--system", default="photonic_ocs", help="system with optical circuits")
    parser.add_argument(
        "--model", action="append", help="model by name; may be repeated; default llama-3-70b"
    )
    parser.add_argument(
        "--plan", action="append", default=[], help="plan of every model; may be repeated, a line each"
    )
    parser.add_argument("--accelerators", type=int, default=DEFAULT_ACCELERATORS, metavar="N")
    parser.add_argument("--points", type=int, default=17, metavar="P", help="times from 1 ns to 100 ms")
    parser.add_argument("--out", type=Path, default=Path("breakeven"), metavar="FILE", help="picture")
    add_hardware(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.breakeven import draw_breakeven, sweep, table_rows, work_of
    from heliograph.progress import reporting
    from heliograph.records import canonical_json
    from heliograph.report import print_table

    optical, packet, work = work_of(arguments)
    with reporting() as progress:
        swept = sweep(optical, packet, work, points=arguments.points, progress=progress)
    written = draw_breakeven(swept, arguments.out)
    if arguments.json:
        pictures = {"pictures": [str(path) for path in written]}
        print(canonical_json(swept.record() | pictures, indent=1))
        return
    names = [line.name for line in swept.lines]
    print_table(f"Reconfiguration time that {optical.name} can take", names, table_rows(swept))
    print(f"Wrote {' and '.join(str(path) for path in written)}.")
