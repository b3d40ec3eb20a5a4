"""Groups of options that several commands share."""

from __future__ import annotations

import argparse

DEFAULT_ACCELERATORS = 1024
"""Accelerators where neither the plan nor the user says how many."""


def add_workload(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a model and its plan."""
    parser.add_argument("--model", default="llama-3.1-405b", help="model by name, or a config.json")
    parser.add_argument("--plan", default="", help="tp=8,pp=16,dp=8,micro_batch=1,global_batch=512,...")


def add_hardware(parser: argparse.ArgumentParser) -> None:
    """Add the options that size a system and change its numbers."""
    parser.add_argument(
        "--core", help="core of photonic accelerators (heliograph list cores); default crossbar"
    )
    parser.add_argument(
        "--fabric",
        help="fabric of packet systems, default rails (heliograph list fabrics), or graph:FILE (GraphML, "
        "or JSON node-link)",
    )
    add_accelerator(parser)


def add_accelerator(parser: argparse.ArgumentParser) -> None:
    """Add the options that change one accelerator."""
    add_replaced(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="change one number of the hardware (heliograph show SYSTEM lists the paths), or one part by its "
        "name (core.adc=NAME, heliograph list parts); may be repeated",
    )
    add_output(parser)


def add_replaced(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what photonic accelerators replace."""
    parser.add_argument("--gpu", help="the GPU, or the one that light replaces; default h100")
    parser.add_argument("--basis", help="size photonic accelerators by power (default), area or count")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command has."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
