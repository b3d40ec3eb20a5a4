"""`heliograph schedule`: the time line of a pipeline schedule."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_hardware
from experiments.commands.one_step import run_one

DEFAULT_SYSTEM = "gpu_packet"
"""System that runs a step whose time line is drawn, where nobody names one."""

HELP = "draw the time line of a pipeline schedule"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("name", help="schedule (1f1b, gpipe, interleaved, zb_v, ...), or with --plan a model")
    parser.add_argument("--stages", type=int, default=4, metavar="P", help="pipeline stages")
    parser.add_argument("--microbatches", type=int, default=8, metavar="M", help="microbatches of a step")
    parser.add_argument("--chunks", type=int, default=2, metavar="V", help="chunks a stage, if interleaved")
    parser.add_argument("--forward", type=float, default=1.0, metavar="T", help="time of a forward pass")
    parser.add_argument("--inputs", type=float, default=1.0, metavar="T", help="of the backward of inputs")
    parser.add_argument("--weights", type=float, default=1.0, metavar="T", help="of the backward of weights")
    parser.add_argument("--plan", default="", help="draw a model's step under it: schedule=zb_v,pp=4,...")
    parser.add_argument("--system", help=f"what runs that step; default {DEFAULT_SYSTEM}")
    parser.add_argument("--accelerators", type=int, metavar="N", help="default: what the plan uses")
    parser.add_argument("--out", type=Path, metavar="FILE", help="picture; default NAME.png and .svg")
    add_hardware(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.schedule import draw_timeline, engine_timeline, timeline_rows, unit_timeline
    from heliograph.records import canonical_json
    from heliograph.report import print_table
    from workloads.pipeline.pipeline import PassTimes

    if arguments.system or arguments.plan:
        system = arguments.system or DEFAULT_SYSTEM
        timeline = engine_timeline(run_one(arguments, model=arguments.name, system=system))
    else:
        timeline = unit_timeline(
            arguments.name,
            stages=arguments.stages,
            microbatches=arguments.microbatches,
            chunks=arguments.chunks,
            times=PassTimes(forward=arguments.forward, inputs=arguments.inputs, weights=arguments.weights),
        )
    default = Path("schedule_" + "".join(one if one.isalnum() else "_" for one in timeline.name))
    written = draw_timeline(timeline, arguments.out or default)
    if arguments.json:
        pictures = {"pictures": [str(path) for path in written]}
        print(canonical_json(timeline.record() | pictures, indent=1))
        return
    print_table(f"Schedule {timeline.name}", [timeline.name], timeline_rows(timeline))
    print(f"Wrote {' and '.join(str(path) for path in written)}.")
