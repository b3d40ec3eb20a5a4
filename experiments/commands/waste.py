"""`heliograph waste`: accelerators that work and find no place because others failed."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_output

HELP = "show what failed nodes waste in domains, cubes and rings"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--data", type=Path, metavar="FILE.json", help="trace of faults instead of --failed")
    parser.add_argument("--failed", type=float, default=0.02, metavar="SHARE", help="default %(default)s")
    parser.add_argument("--nodes", type=int, default=400, metavar="N", help="default %(default)s")
    parser.add_argument("--node", type=int, default=8, metavar="G", help="accelerators each; default 8")
    parser.add_argument("--group", type=int, default=32, metavar="G", help="accelerators of a group, 32")
    parser.add_argument("--seed", type=int, default=0, help="of places and faults; default %(default)s")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.stranded import Cluster, random_faults, read_faults, record, rows, wasted
    from heliograph.records import canonical_json
    from heliograph.report import print_table

    cluster = Cluster(nodes=arguments.nodes, node=arguments.node, group=arguments.group, seed=arguments.seed)
    faults = (
        read_faults(arguments.data, cluster) if arguments.data else random_faults(arguments.failed, cluster)
    )
    found = wasted(faults, cluster)
    if arguments.json:
        print(canonical_json(record(faults, found, cluster), indent=1))
        return
    title = f"{100 * faults.failed:.2f} % of {cluster.nodes} nodes failed, groups of {cluster.group}"
    print_table(title, ["wasted", "over the least"], rows(found))
