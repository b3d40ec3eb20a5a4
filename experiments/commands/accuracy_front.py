"""`heliograph accuracy-front`: loss against laser power, bits, size, wavelengths and energy per token."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import DEFAULT_ACCELERATORS, add_hardware

HELP = "loss against energy per token over the knobs of a core"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--system", default="photonic_packet", help="system by name, or a TOML file")
    parser.add_argument("--workload", default="llama-3.1-405b", help="model whose step is priced")
    parser.add_argument(
        "--accelerators", type=int, default=DEFAULT_ACCELERATORS, metavar="N", help="default %(default)s"
    )
    parser.add_argument("--model", default="small", help="GPT to execute: small, deep, tiny, narrow or wide")
    parser.add_argument("--steps", type=int, metavar="N", help="updates of its clean training")
    parser.add_argument("--seeds", type=int, metavar="K", help="models, each with its own draws")
    parser.add_argument(
        "--training",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="train the tiny GPT on the outermost settings too",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="outermost settings alone, shorter training, fewer draws and seeds",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("results/accuracy_front"), metavar="DIR", help="default %(default)s"
    )
    add_hardware(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.accuracy import Effort
    from experiments.accuracy_front import (
        QUICK_TRAINED_STEPS,
        TRAINED_STEPS,
        accuracy_front,
        outermost,
        report,
        settings,
        write,
    )
    from heliograph.progress import reporting
    from heliograph.records import TrainingCache, canonical_json, make_directory

    found = settings(
        arguments.system,
        accelerators=arguments.accelerators,
        gpu=arguments.gpu,
        basis=arguments.basis,
        core=arguments.core,
        fabric=arguments.fabric,
        assignments=tuple(arguments.set),
    )
    if arguments.quick:
        found = outermost(found)
    effort = Effort.asked(
        quick=arguments.quick, model=arguments.model, steps=arguments.steps, seeds=arguments.seeds
    )
    trained_steps = QUICK_TRAINED_STEPS if arguments.quick else TRAINED_STEPS
    make_directory(arguments.out)
    with reporting() as progress:
        front = accuracy_front(
            found,
            workload=arguments.workload,
            effort=effort,
            trained_steps=trained_steps if arguments.training else 0,
            cache=TrainingCache(arguments.out.parent / ".training"),
            progress=progress,
        )
    written = write(front, arguments.out)
    if arguments.json:
        print(canonical_json(front, indent=1))
        return
    print(report(front))
    print(f"Wrote {', '.join(str(path) for path in written)}.")
