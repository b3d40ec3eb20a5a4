"""`heliograph cores`: all cores beside each other."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_output, add_replaced

HELP = "compare all photonic cores by size, reuse and precision"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--precision",
        default="3:10",
        metavar="LOW:HIGH",
        help="effective bits of the map; default %(default)s",
    )
    parser.add_argument(
        "--reuse",
        default="1:1048576",
        metavar="LOW:HIGH",
        help="vectors that pass a load; default %(default)s",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("results/cores"), metavar="DIR", help="default %(default)s"
    )
    add_replaced(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.cores import study
    from experiments.cores_report import heads, record, study_rows, summary_lines, write
    from heliograph.records import canonical_json
    from heliograph.report import print_table

    found = study(
        precision=arguments.precision, reuse=arguments.reuse, gpu=arguments.gpu, basis=arguments.basis
    )
    written = write(found, arguments.out)
    if arguments.json:
        print(canonical_json(record(found) | {"files": [str(path) for path in written]}, indent=1))
        return
    print_table("Photonic cores and GPUs, energy per multiply-accumulate", heads(found), study_rows(found))
    for line in summary_lines(found):
        print(line)
    print(f"Wrote {', '.join(str(path) for path in written)}.")
