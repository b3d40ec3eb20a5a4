"""Groups of options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def add_workload(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a model and its plan."""
    parser.add_argument("--model", default="llama-3.1-405b", help="model by name, or a config.json")
    parser.add_argument("--plan", default="", help="tp=8,pp=16,dp=8,micro_batch=1,global_batch=512,...")


def add_hardware(parser: argparse.ArgumentParser) -> None:
    """Add the options that size a system and change its numbers."""
    parser.add_argument(
        "--core", default="crossbar", help="core of photonic accelerators (heliograph list cores)"
    )
    add_accelerator(parser)


def add_accelerator(parser: argparse.ArgumentParser) -> None:
    """Add the options that change one accelerator."""
    parser.add_argument("--gpu", default="h100", help="the GPU, or the one that light replaces")
    parser.add_argument("--basis", default="power", help="size photonic accelerators by power, area or count")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="change one number of the hardware; may be repeated (heliograph show SYSTEM lists the paths)",
    )
    add_output(parser)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command has."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def add_recorded(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], None]) -> None:
    """Add the arguments of a recorded trace that is run on one system."""
    parser.add_argument("prefix", type=Path, help="traces PREFIX.<rank>.et, or the directory that holds them")
    parser.add_argument("--system", required=True, help="system by name, or a TOML file")
    parser.add_argument("--accelerators", type=int, metavar="N", help="default: the ranks of the trace")
    parser.add_argument(
        "--groups", type=Path, metavar="FILE", help="JSON of process groups, if not beside them"
    )
    parser.add_argument(
        "--modelled", action="store_true", help="let the accelerator's model time compute, not the record"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the time line for Perfetto")
    add_hardware(parser)
    parser.set_defaults(run=run)
