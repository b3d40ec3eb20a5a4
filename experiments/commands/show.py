"""`heliograph show`: every parameter of something, with unit and source."""

from __future__ import annotations

import argparse
import dataclasses
import json

from experiments.arguments import add_output

HELP = "show every parameter of something with unit and source"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("name", help="system, core, fabric, accelerator, device or model")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from heliograph.catalogue import description
    from heliograph.tables import parameter_lines

    parameters = description(arguments.name)
    if arguments.json:
        print(json.dumps([dataclasses.asdict(one) for one in parameters], indent=1))
        return
    for line in parameter_lines(parameters):
        print(line)
