"""`heliograph bill`: bill of materials of a system, of one fabric, or of all fabrics beside each other."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import DEFAULT_ACCELERATORS, add_accelerator

HELP = "bill of materials: watts and dollars with ranges"
"""What `heliograph --help` says of it."""

TITLES = {"power_w": "Power", "price_usd": "Price"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("system", nargs="?", metavar="SYSTEM", help="a whole system; default: fabrics only")
    parser.add_argument(
        "--fabric",
        metavar="NAME",
        help="fabric (heliograph list fabrics), or graph:FILE; default: every fabric, or the system's own",
    )
    parser.add_argument(
        "--accelerators", type=int, default=DEFAULT_ACCELERATORS, metavar="N", help="default %(default)s"
    )
    parser.add_argument("--core", help="core of photonic accelerators")
    parser.add_argument(
        "--cables", default="panels", metavar="KIND", help="cable plant: panels (default) or robotic"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write bill.json, bill.csv and a picture")
    add_accelerator(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.bill import (
        COLUMNS,
        COMPARED,
        UNITS,
        Request,
        bills,
        compared_rows,
        line_rows,
        records,
        refused_lines,
        write,
    )
    from heliograph.records import canonical_json
    from heliograph.report import print_table

    found = bills(
        Request(
            system=arguments.system,
            fabric=arguments.fabric,
            accelerators=arguments.accelerators,
            gpu=arguments.gpu,
            basis=arguments.basis,
            core=arguments.core,
            cables=arguments.cables,
            assignments=tuple(arguments.set),
        )
    )
    written = write(found, arguments.out) if arguments.out else ()
    if arguments.json:
        files = [str(path) for path in written]
        print(canonical_json({"bills": records(found), "files": files}, indent=1))
        return
    if len(found) == 1:
        for quantity in UNITS:
            title = f"{TITLES[quantity]} of {found[0].name}, {found[0].accelerators} accelerators"
            print_table(title, COLUMNS, line_rows(found[0], quantity))
    else:
        title = f"Fabrics of {found[0].accelerators} accelerators, each accelerator's part"
        print_table(title, COMPARED, compared_rows(found))
    for line in refused_lines(found):
        print(line)
    if written:
        print(f"Wrote {', '.join(str(path) for path in written)}.")
