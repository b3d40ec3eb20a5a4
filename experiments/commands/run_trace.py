"""`heliograph run-trace`: a recorded Chakra execution trace on a system."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_hardware

HELP = "run a Chakra execution trace"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("prefix", type=Path, help="traces PREFIX.<rank>.et, or the directory that holds them")
    parser.add_argument(
        "--system", default="gpu_packet", help="system by name, or a TOML file; default gpu_packet"
    )
    parser.add_argument("--accelerators", type=int, metavar="N", help="default: the ranks of the trace")
    parser.add_argument(
        "--groups", type=Path, metavar="FILE", help="JSON of process groups, if not beside them"
    )
    parser.add_argument(
        "--modelled", action="store_true", help="let the accelerator's model time compute, not the record"
    )
    parser.add_argument(
        "--ignore-missing",
        action="store_true",
        help="count nodes that others wait for and no file holds as done",
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the time line for Perfetto")
    add_hardware(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.traces import run_trace

    print(run_trace(arguments))
