"""`heliograph list`: what there is by name."""

from __future__ import annotations

import argparse
import json

from experiments.arguments import add_output

HELP = "list systems, models, cores, fabrics, devices or parts"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("what", metavar="systems|models|cores|fabrics|devices|parts")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from heliograph.catalogue import listing

    names = listing(arguments.what)
    if arguments.json:
        print(json.dumps(names, indent=1))
        return
    width = max(len(name) for name in names)
    for name, text in names.items():
        print(f"{name:<{width}}  {text}")
