"""`heliograph circuits`: schedules of circuits for a demand."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_output

HELP = "schedule optical circuits for a demand"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "demand", type=Path, metavar="DEMAND.csv", help="bytes from each input (row) to each output (column)"
    )
    parser.add_argument("--policy", default="all", help="policies by name, separated by commas; default all")
    parser.add_argument(
        "--switch", default="silicon-photonic-mzi", help="switch that sets the delay; default %(default)s"
    )
    parser.add_argument("--delay", default="", metavar="TIME", help="instead of the switch's, e.g. 25us")
    parser.add_argument("--rate", default="", metavar="RATE", help="of a circuit, e.g. 50GB/s")
    parser.add_argument(
        "--packet-rate", default="", metavar="RATE", help="of a port's packets for the rest; default none"
    )
    parser.add_argument("--planes", type=int, default=1, metavar="K", help="circuit switches side by side")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default results/circuits_DEMAND")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.circuits import request_of, study
    from experiments.circuits_report import report, write
    from experiments.plain import canonical_json
    from experiments.progress import reporting

    with reporting() as progress:
        found = study(request_of(arguments), progress)
    written = write(found, arguments.out or Path("results") / f"circuits_{found.name}")
    if arguments.json:
        print(canonical_json(found.record() | {"files": [str(path) for path in written]}, indent=1))
        return
    print(report(found))
    print(f"Wrote {', '.join(str(path) for path in written)}.")
