"""The commands of `heliograph`, one file each: its help, its options, and what it runs.

A command's file has `HELP`, `add_options(parser)` and `run(arguments)`; what is heavy is imported by `run`,
so that `heliograph --help` answers at once.
"""

from __future__ import annotations

from types import MappingProxyType

COMMANDS = MappingProxyType(
    {
        "compare": "compare",
        "step": "step",
        "jobs": "jobs",
        "run-trace": "run_trace",
        "search": "search",
        "breakeven": "breakeven",
        "links": "links",
        "schedule": "schedule",
        "core": "core",
        "cores": "cores",
        "circuits": "circuits",
        "bill": "bill",
        "goodput": "goodput",
        "photons": "photons",
        "waste": "waste",
        "accuracy": "accuracy",
        "accuracy-front": "accuracy_front",
        "accuracy-training": "accuracy_training",
        "accuracy-width": "accuracy_width",
        "validate": "validate",
        "list": "list_names",
        "show": "show",
    }
)
"""Module of each command, in the order of the help; a new command is a file and a line here."""
