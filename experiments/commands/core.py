"""`heliograph core`: where one core's energy and bits go."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_accelerator

HELP = "show where a photonic core's energy and bits go"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("name", help="core by name (heliograph list cores)")
    parser.add_argument(
        "--tokens", type=int, metavar="N", help="vectors that pass a layer: reuse of a weight"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="directory of pictures; default results/core_NAME"
    )
    add_accelerator(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.core import (
        PHASES,
        TOKENS,
        bench,
        parameter_rows,
        study,
        study_rows,
        summary_lines,
        write,
    )
    from heliograph.records import canonical_json
    from heliograph.report import print_table

    built = bench(
        arguments.name,
        assignments=arguments.set,
        gpu=arguments.gpu,
        basis=arguments.basis,
        tokens=TOKENS if arguments.tokens is None else arguments.tokens,
    )
    found = study(built)
    written = write(found, arguments.out or Path("results") / f"core_{built.name}")
    if arguments.json:
        print(canonical_json(found.record() | {"files": [str(path) for path in written]}, indent=1))
        return
    print_table(f"Core {built.name}", [str(phase) for phase in PHASES], study_rows(found))
    for line in summary_lines(found):
        print(line)
    print_table("Numbers it is made of", ("value", "low", "high"), parameter_rows(found))
    print("Sources of each: heliograph show NAME. The paths are what --set takes.")
    print(f"Wrote {', '.join(str(path) for path in written)}.")
