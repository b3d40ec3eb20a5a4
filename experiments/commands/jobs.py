"""`heliograph jobs`: several jobs on one system, with failures."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.arguments import add_output

HELP = "run several jobs on one system, with failures"
"""What `heliograph --help` says of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("file", type=Path, help="TOML: system, accelerators, [[job]] and [[failure]] tables")
    add_output(parser)


def run(arguments: argparse.Namespace) -> None:
    """Run the command with its arguments."""
    from experiments.jobs import job_rows, run_jobs
    from heliograph.records import canonical_json
    from heliograph.report import print_table

    study = run_jobs(arguments.file)
    if arguments.json:
        print(canonical_json(study.record(), indent=1))
        return
    title = f"{len(study.runs)} jobs on {study.system.name}, {study.system.accelerators} accelerators"
    print_table(title, [run.job.name for run in study.runs], job_rows(study))
