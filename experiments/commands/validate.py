"""`heliograph validate`: predictions against published measurements."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_output

HELP = "compare predictions with published measurements"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("kind", metavar="training|kernels|collectives|memory|photonic|network")
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="CSV of measurements instead of the table that ships"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the rows and a scatter plot")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.validation import report, validate, write
    from heliograph.progress import reporting
    from heliograph.records import canonical_json

    with reporting() as progress:
        found = validate(arguments.kind, data=arguments.data, progress=progress)
    # Printed first: a directory that cannot be written takes nothing away.
    print(canonical_json(found.record(), indent=1) if arguments.json else report(found))
    written = write(found, arguments.out) if arguments.out else ()
    if written and not arguments.json:
        print(f"Wrote {', '.join(str(path) for path in written)}.")
