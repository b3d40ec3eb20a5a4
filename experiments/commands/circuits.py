"""`heliograph circuits`: schedules of circuits for a demand, within a collective, and between phases."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from experiments.arguments import add_output
from experiments.commands.one_step import run_one

HELP = "schedule optical circuits for a demand, a collective or a step's phases"
"""What `heliograph --help` says of it."""
RANKS = 8
"""Ranks of a collective where nobody says how many."""
PLANES = {"demand": 1, "collective": 2}
"""Switches side by side where nobody says how many."""
CHOICES = {
    "policy": ("all", "NAMES", "policies for a demand, separated by commas"),
    "packet_rate": ("", "RATE", "of a port's packets for the rest of a demand; default none"),
    "switch": ("silicon-photonic-mzi", "NAME", "that sets the delay of a demand or a collective"),
    "delay": ("", "TIME", "instead of the switch's, e.g. 25us"),
    "rate": ("", "RATE", "of a circuit, e.g. 50GB/s"),
    "size": ("1MB", "BYTES", "of a rank before a collective"),
    "algorithm": ("", "NAME", "of a collective; default all"),
    "plan": ("", "PLAN", "of a model's step: tp=8,pp=4,dp=2,global_batch=32"),
    "system": ("gpu_ocs", "NAME", "that runs it"),
}
"""Options in words: their defaults, what stands for them, and what they say."""
MEANT_FOR = {
    "demand": ("policy", "packet_rate", "switch", "delay", "rate", "planes"),
    "collective": ("switch", "delay", "rate", "planes", "ranks", "size", "algorithm"),
    "model": ("plan", "system", "accelerators", "set"),
}
"""Options of each of the three uses."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "demand",
        type=Path,
        nargs="?",
        metavar="DEMAND.csv",
        help="bytes from each input (row) to each output (column)",
    )
    what.add_argument(
        "--collective", metavar="KIND", help="all_reduce, reduce_scatter, all_gather, all_to_all"
    )
    what.add_argument("--model", help="phases of a model's step, by name or a config.json")
    for name, (default, metavar, text) in CHOICES.items():
        said = f"{text}; default {default}" if default else text
        parser.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, help=said)
    parser.add_argument(
        "--planes", type=int, metavar="K", help="switches side by side; default 1 (2 of a collective)"
    )
    parser.add_argument("--ranks", type=int, metavar="N", help=f"of the collective; default {RANKS}")
    parser.add_argument("--accelerators", type=int, metavar="N", help="default: what the plan uses")
    parser.add_argument(
        "--set", action="append", metavar="PATH=VALUE", help="change one number of the system"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="default results/circuits_NAME")
    parser.set_defaults(gpu="h100", basis="power", core="crossbar", fabric="rails")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from heliograph.records import canonical_json

    use = "collective" if arguments.collective else "model" if arguments.model else "demand"
    _complete(arguments, use)
    run_use = {"demand": _demand, "collective": _collective, "model": _phases}[use]
    record, text, written = run_use(arguments)
    if arguments.json:
        print(canonical_json(record | {"files": [str(path) for path in written]}, indent=1))
        return
    print(text)
    print(f"Wrote {', '.join(str(path) for path in written)}.")


def _complete(arguments: argparse.Namespace, use: str) -> None:
    """Refuse options of another use, and fill in the defaults of this one."""
    from simulator.errors import ParameterError

    for name in sorted({name for names in MEANT_FOR.values() for name in names}):
        given = getattr(arguments, name)
        if given is not None and name not in MEANT_FOR[use]:
            uses = " or ".join(other for other in MEANT_FOR if name in MEANT_FOR[other])
            msg = f"--{name.replace('_', '-')} ({given}) changes nothing of a {use}; it is for a {uses}"
            if use == "model" and name == "switch":
                msg += ", and --set fabric.switch=NAME changes the system's"
            raise ParameterError(msg)
    others: dict[str, Any] = {"planes": PLANES.get(use), "ranks": RANKS, "set": []}
    for name in MEANT_FOR[use]:
        if getattr(arguments, name) is None:
            setattr(arguments, name, CHOICES[name][0] if name in CHOICES else others.get(name))


def _demand(arguments: argparse.Namespace) -> tuple[dict[str, Any], str, tuple[Path, ...]]:
    from experiments.circuits import report, request_of, study, write
    from heliograph.progress import reporting

    with reporting() as progress:
        found = study(request_of(arguments), progress)
    return found.record(), report(found), write(found, _directory(arguments, found.name))


def _collective(arguments: argparse.Namespace) -> tuple[dict[str, Any], str, tuple[Path, ...]]:
    from experiments.circuits_collective import (
        CollectiveRequest,
        collective_report,
        plan_collective,
        write_collective,
    )

    request = CollectiveRequest(
        kind=arguments.collective,
        ranks=arguments.ranks,
        size=arguments.size,
        algorithm=arguments.algorithm,
        switch=arguments.switch,
        delay=arguments.delay,
        rate=arguments.rate,
        planes=arguments.planes,
    )
    found = plan_collective(request)
    written = write_collective(found, _directory(arguments, found.name))
    return found.record(), collective_report(found), written


def _phases(arguments: argparse.Namespace) -> tuple[dict[str, Any], str, tuple[Path, ...]]:
    from experiments.circuits_phases import phases_report, study_phases, write_phases

    result = run_one(arguments, model=arguments.model, system=arguments.system)
    found = study_phases(result)
    written = write_phases(found, _directory(arguments, result.model))
    return found.record(), phases_report(found), written


def _directory(arguments: argparse.Namespace, name: str) -> Path:
    safe = "".join(one if one.isalnum() or one in "-." else "_" for one in name)
    return arguments.out or Path("results") / f"circuits_{safe}"
