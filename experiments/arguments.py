"""Groups of options that several commands share."""

from __future__ import annotations

import argparse
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


def add_validation(parser: argparse.ArgumentParser) -> None:
    """Add the options that name what is held to measurements."""
    parser.add_argument("kind", metavar="training|kernels|collectives|memory|photonic|network")
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="CSV of measurements instead of the table that ships"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the rows and a scatter plot")
    add_output(parser)


def add_photons(parser: argparse.ArgumentParser) -> None:
    """Add the options of accuracy by photons."""
    parser.add_argument("--quick", action="store_true", help="fewer images, seeds and vector lengths")
    parser.add_argument("--seed", type=int, default=0, help="first seed of the networks")
    parser.add_argument(
        "--out", type=Path, default=Path("results/photons"), metavar="DIR", help="default %(default)s"
    )
    add_output(parser)


def add_circuits(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a demand and the circuit switches that serve it."""
    parser.add_argument(
        "demand", type=Path, metavar="DEMAND.csv", help="bytes from each input (row) to each output (column)"
    )
    parser.add_argument("--policy", default="all", help="policies by name, separated by commas; default all")
    parser.add_argument(
        "--switch", default="silicon-photonic-mzi", help="switch that sets the delay; default %(default)s"
    )
    parser.add_argument("--delay", default="", metavar="TIME", help="instead of the switch's, e.g. 25us")
    parser.add_argument("--rate", default="", metavar="RATE", help="of a circuit, e.g. 50GB/s")
    parser.add_argument(
        "--packet-rate", default="", metavar="RATE", help="of a port's packets for the rest; default none"
    )
    parser.add_argument("--planes", type=int, default=1, metavar="K", help="circuit switches side by side")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default results/circuits_DEMAND")
    add_output(parser)
