"""`heliograph goodput`: what failures leave of training, by size and fabric."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_output

HELP = "goodput of training under failures, by size and fabric"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--fabric", action="append", metavar="NAME", help="fabric; may be repeated; default: all"
    )
    parser.add_argument("--machine", type=int, default=16384, metavar="N", help="accelerators; %(default)s")
    parser.add_argument(
        "--hosts",
        default="llama-3",
        metavar="NAME",
        help="how hosts fail (heliograph list devices, reliability.csv); default %(default)s",
    )
    parser.add_argument("--gpu", default="h100", help="GPU whose nodes the fabrics join")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="hosts.mtbf_s=..., hosts.availability=..., hosts.write_s=..., parts.transceiver.mtbf_s=...",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write goodput.json, goodput.csv, a picture")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.goodput import COLUMNS, Request, point_rows, refused_line, study, write
    from heliograph.fabrics import FABRICS
    from heliograph.records import canonical_json
    from heliograph.report import print_table

    found = study(
        Request(
            machine=arguments.machine,
            fabrics=tuple(arguments.fabric or FABRICS),
            hosts=arguments.hosts,
            gpu=arguments.gpu,
            assignments=tuple(arguments.set),
        )
    )
    written = write(found, arguments.out) if arguments.out else ()
    if arguments.json:
        files = [str(path) for path in written]
        print(canonical_json(found.record() | {"files": files}, indent=1))
        return
    for fabric in dict.fromkeys(point.fabric for point in found.points):
        splicing = found.of(fabric)[0].splicing
        print_table(f"{fabric}: a failed host is replaced by {splicing}", COLUMNS, point_rows(found, fabric))
    if found.refused:
        print(refused_line(found.refused))
    if written:
        print(f"Wrote {', '.join(str(path) for path in written)}.")
