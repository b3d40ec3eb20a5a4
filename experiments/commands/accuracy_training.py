"""`heliograph accuracy-training`: which products are fragile in training, and what rescues them."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_hardware

HELP = "train through a core: which products are fragile, what rescues them"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--system", default="photonic_packet", help="system by name, or a TOML file")
    parser.add_argument("--model", default="tiny", help="small, deep, tiny, narrow or wide")
    parser.add_argument("--steps", type=int, metavar="N", help="updates of every training run")
    parser.add_argument("--seeds", type=int, default=3, metavar="K", help="paired runs; default %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument(
        "--residues",
        action="store_true",
        help="residue numbers on a crossbar too (products two to five times as slow)",
    )
    parser.add_argument("--quick", action="store_true", help="fewer steps, and no rescues")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/accuracy_training"),
        metavar="DIR",
        help="default %(default)s",
    )
    add_hardware(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.accuracy_training import report, seeds_from, train_variants, write
    from heliograph.progress import reporting
    from heliograph.records import TrainingCache, canonical_json, make_directory
    from heliograph.systems import build_system

    system = build_system(
        arguments.system,
        gpu=arguments.gpu,
        basis=arguments.basis,
        core=arguments.core,
        fabric=arguments.fabric,
        assignments=tuple(arguments.set),
    )
    seeds = seeds_from(arguments.seed, arguments.seeds)
    make_directory(arguments.out)
    with reporting() as progress:
        found = train_variants(
            system,
            seeds=seeds,
            quick=arguments.quick,
            cache=TrainingCache(arguments.out.parent / ".training"),
            model=arguments.model,
            steps=arguments.steps,
            with_residues=arguments.residues,
            progress=lambda done, total, label: progress(f"training, {label}", done, total),
        )
    written = write(found, arguments.out)
    if arguments.json:
        print(canonical_json({"rows": found.rows(), "floor_nats": found.floor}, indent=1))
        return
    print(report(found))
    print(f"Wrote {', '.join(str(path) for path in written)}.")
