"""`heliograph photons`: accuracy by photons per multiplication."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.arguments import add_output

HELP = "accuracy by photons per multiplication"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--model",
        action="append",
        choices=("mlp", "vit"),
        help="perceptron or vision transformer; may be given twice; default both",
    )
    parser.add_argument(
        "--digits",
        choices=("real", "drawn"),
        help="handwriting, if scikit-learn is installed (the default there), or digits drawn from fonts",
    )
    parser.add_argument("--quick", action="store_true", help="fewer images, seeds and vector lengths")
    parser.add_argument("--seed", type=int, default=0, help="first seed of the networks")
    parser.add_argument(
        "--out", type=Path, default=Path("results/photons"), metavar="DIR", help="default %(default)s"
    )
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.photons import DigitSet, Model, Request, run_photons
    from experiments.photons_report import prepare, report, write
    from heliograph.progress import reporting
    from heliograph.records import canonical_json

    models = tuple(model for model in Model if model in (arguments.model or Model))
    digits = DigitSet(arguments.digits) if arguments.digits else DigitSet.usual()
    if digits is not DigitSet.REAL and not arguments.digits:
        print("scikit-learn is not installed: reading drawn digits, not handwriting.", file=sys.stderr)
    request = Request.of(quick=arguments.quick, seed=arguments.seed, models=models, digits=digits)
    prepare(arguments.out)
    with reporting() as progress:
        result = run_photons(request, progress)
    written = write(result, arguments.out)
    if arguments.json:
        print(canonical_json(result.record() | {"files": [str(path) for path in written]}, indent=1))
        return
    print(report(result))
    print(f"Wrote {', '.join(str(path) for path in written)}.")
