"""`heliograph accuracy-width`: how the noise that a transformer tolerates goes with its width."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_output

HELP = "noise that a transformer tolerates, by its width"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--steps", type=int, metavar="N", help="updates of the clean training")
    parser.add_argument("--seeds", type=int, metavar="K", help="models of each width")
    parser.add_argument("--quick", action="store_true", help="shorter training, fewer draws and seeds")
    parser.add_argument(
        "--out", type=Path, default=Path("results/accuracy_width"), metavar="DIR", help="default %(default)s"
    )
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.accuracy import Effort
    from experiments.accuracy_width import report, study_widths, write
    from heliograph.progress import reporting
    from heliograph.records import TrainingCache, canonical_json, make_directory

    effort = Effort.asked(quick=arguments.quick, model="small", steps=arguments.steps, seeds=arguments.seeds)
    make_directory(arguments.out)
    with reporting() as progress:
        found = study_widths(
            effort=effort, cache=TrainingCache(arguments.out.parent / ".training"), progress=progress
        )
    written = write(found, arguments.out)
    if arguments.json:
        print(canonical_json({"rows": found.rows(), "files": [str(path) for path in written]}, indent=1))
        return
    print(report(found))
    print(f"Wrote {', '.join(str(path) for path in written)}.")
