"""`heliograph accuracy`: predict what a core's noise costs in loss, then execute it."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_hardware

HELP = "predict the loss that a core's noise costs, then execute it"
"""What `heliograph --help` says of it."""
MODES = ("inference", "aware", "hardware")
"""Clean training; noisy forward products; all products noisy."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--system",
        default="photonic_packet",
        metavar="NAMES",
        help="systems by name (photonic_packet:ring_bank), or TOML files, separated by commas",
    )
    parser.add_argument(
        "--mode",
        choices=MODES,
        default="inference",
        help="inference: noise on a clean model; aware: train with noisy forward products, too; hardware: "
        "train with all products noisy",
    )
    parser.add_argument(
        "--electronic",
        default="",
        metavar="PRODUCTS",
        help="products that stay electronic and exact: head, or several of qkv, scores, values, projection, "
        "up, down, head",
    )
    parser.add_argument(
        "--converters",
        action="store_true",
        help="execute also the first core's output and operand converters alone, from 8 to 4 bits",
    )
    parser.add_argument("--model", default="small", help="small, deep, tiny, narrow or wide")
    parser.add_argument("--steps", type=int, metavar="N", help="updates of every training run")
    parser.add_argument("--seeds", type=int, metavar="K", help="models, each with its own draws")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--quick", action="store_true", help="shorter training, fewer draws and seeds")
    parser.add_argument(
        "--out", type=Path, default=Path("results/accuracy"), metavar="DIR", help="default %(default)s"
    )
    add_hardware(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.accuracy import (
        Effort,
        converter_ladder,
        predict_and_execute,
        train_in_mode,
        with_electronic,
    )
    from experiments.accuracy_report import report, write
    from heliograph.progress import reporting
    from heliograph.records import TrainingCache, canonical_json, make_directory
    from heliograph.small_gpt import system_arithmetic
    from heliograph.systems import build_system

    effort = Effort.asked(
        quick=arguments.quick,
        model=arguments.model,
        steps=arguments.steps,
        seeds=arguments.seeds,
        first_seed=arguments.seed,
    )
    names = [name.strip() for name in arguments.system.split(",") if name.strip()]
    systems = [
        build_system(
            name,
            gpu=arguments.gpu,
            basis=arguments.basis,
            core=arguments.core,
            fabric=arguments.fabric,
            assignments=tuple(arguments.set),
        )
        for name in names
    ]
    electronic = tuple(name.strip() for name in arguments.electronic.split(",") if name.strip())
    known = {one.label: one for one in map(system_arithmetic, systems)}
    arithmetics = with_electronic(known.values(), electronic)
    ladder = with_electronic(converter_ladder(known.values()), electronic) if arguments.converters else ()
    make_directory(arguments.out)
    cache = TrainingCache(arguments.out.parent / ".training")
    with reporting() as progress:
        found = predict_and_execute(
            (*arithmetics, *ladder),
            effort=effort,
            cache=cache,
            progress=lambda done, total, label: progress(f"clean model, {label}", done, total),
        )
        trained = train_in_mode(
            arithmetics,
            mode=arguments.mode,
            effort=effort,
            cache=cache,
            progress=lambda done, total, label: progress(f"training, {label}", done, total),
        )
    written = write(found, arguments.out, trained)
    if arguments.json:
        record = found.record() | {"training": trained.record(), "files": [str(path) for path in written]}
        print(canonical_json(record, indent=1))
        return
    print(report(found))
    print(trained.report())
    print(f"Wrote {', '.join(str(path) for path in written)}.")
