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
    parser.add_argument("--gpu", default="h100", help="the GPU, or the one that light replaces")
    parser.add_argument("--basis", default="power", help="size photonic accelerators by power, area or count")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command has."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def add_schedule(schedule: argparse.ArgumentParser, system: str) -> None:
    """Add the options of a schedule's time line; `system` is who runs it where nobody is named."""
    schedule.add_argument(
        "name", help="schedule (1f1b, gpipe, interleaved, zb_v, ...), or with --plan a model"
    )
    schedule.add_argument("--stages", type=int, default=4, metavar="P", help="pipeline stages")
    schedule.add_argument("--microbatches", type=int, default=8, metavar="M", help="microbatches of a step")
    schedule.add_argument("--chunks", type=int, default=2, metavar="V", help="chunks a stage, if interleaved")
    schedule.add_argument("--forward", type=float, default=1.0, metavar="T", help="time of a forward pass")
    schedule.add_argument("--inputs", type=float, default=1.0, metavar="T", help="of the backward of inputs")
    schedule.add_argument(
        "--weights", type=float, default=1.0, metavar="T", help="of the backward of weights"
    )
    schedule.add_argument(
        "--plan", default="", help="draw a model's step under it: schedule=zb_v,pp=4,dp=2,..."
    )
    schedule.add_argument("--system", help=f"what runs that step; default {system}")
    schedule.add_argument("--accelerators", type=int, metavar="N", help="default: what the plan uses")
    schedule.add_argument("--out", type=Path, metavar="FILE", help="picture; default NAME.png and .svg")
    add_hardware(schedule)


def add_core(core: argparse.ArgumentParser) -> None:
    """Add the options of one core's pictures."""
    core.add_argument("name", help="core by name (heliograph list cores)")
    core.add_argument("--tokens", type=int, metavar="N", help="vectors that pass a layer: reuse of a weight")
    core.add_argument(
        "--out", type=Path, metavar="DIR", help="directory of pictures; default results/core_NAME"
    )
    add_accelerator(core)


def add_cores(cores: argparse.ArgumentParser) -> None:
    """Add the options of the pictures of all cores."""
    cores.add_argument(
        "--precision",
        default="3:10",
        metavar="LOW:HIGH",
        help="effective bits of the map; default %(default)s",
    )
    cores.add_argument(
        "--reuse",
        default="1:1048576",
        metavar="LOW:HIGH",
        help="vectors that pass a load; default %(default)s",
    )
    cores.add_argument(
        "--out", type=Path, default=Path("results/cores"), metavar="DIR", help="default %(default)s"
    )
    add_replaced(cores)
    add_output(cores)


def add_photons(photons: argparse.ArgumentParser) -> None:
    """Add the options of the experiment with few photons."""
    photons.add_argument("--quick", action="store_true", help="fewer images, seeds and vector lengths")
    photons.add_argument("--seed", type=int, default=0, help="first seed of the networks")
    photons.add_argument(
        "--out", type=Path, default=Path("results/photons"), metavar="DIR", help="default %(default)s"
    )
    add_output(photons)
