"""`heliograph links`: the load of every link in a step, over time and between nodes."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_hardware, add_workload
from experiments.commands.one_step import run_one

HELP = "draw the load of links over a step"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("system", help="system by name, or a TOML file")
    add_workload(parser)
    parser.add_argument("--accelerators", type=int, metavar="N", help="default: what the plan uses")
    parser.add_argument("--bins", type=int, default=240, metavar="T", help="intervals of time")
    parser.add_argument("--out", type=Path, metavar="FILE", help="picture; default links_SYSTEM")
    add_hardware(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.links import draw_links, link_loads
    from heliograph.records import canonical_json
    from heliograph.report import format_si, print_table, report_row

    result = run_one(arguments, model=arguments.model, system=arguments.system)
    loads = link_loads(result, bins=arguments.bins)
    safe = "".join(one if one.isalnum() else "_" for one in arguments.system)
    title = f"{result.model} on {result.system.name}"
    written = draw_links(loads, title, arguments.out or Path(f"links_{safe}"))
    record = loads.record()
    if arguments.json:
        print(canonical_json(record | {"pictures": [str(path) for path in written]}, indent=1))
        return
    rows = [
        report_row("step", (format_si(record["makespan_s"], "s"),), "simulated"),
        report_row("links that carry bytes", (f"{record['links_used']:,}",), "of the fabric"),
        report_row("busiest link", (f"{100 * record['busiest_link']:.1f} %",), "mean over the step"),
        report_row("median link", (f"{100 * record['median_link']:.1f} %",), "mean over the step"),
        report_row("bytes inside nodes", (format_si(record["inside_bytes"], "B"),), "on the wire"),
        report_row("bytes between nodes", (format_si(record["outside_bytes"], "B"),), "on the wire"),
        report_row("dark", (f"{100 * record['dark_share']:.3f} %",), "of endpoints' time"),
    ]
    print_table(title, [result.system.name], rows)
    print(f"Wrote {' and '.join(str(path) for path in written)}.")
