"""The command line. Everything heavy is imported by the command that needs it (`experiments.commands`)."""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from experiments.commands import COMMANDS
from heliograph import __version__
from heliograph.processes import among_ranks
from simulator.errors import ClippingWarning, HeliographError, SuspectWarning

BAD_INPUT = 2
"""Exit code for anything wrong with what the user handed in."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="heliograph",
        description="Training on photonic compute and optical networks, against GPUs and packet switches.",
    )
    parser.add_argument("--version", action="version", version=f"heliograph {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, module in COMMANDS.items():
        command = importlib.import_module(f"experiments.commands.{module}")
        one = commands.add_parser(name, help=command.HELP)
        command.add_options(one)
        one.set_defaults(run=command.run)
    return parser


def _sentences(messages: Sequence[Warning | str]) -> list[str]:
    """Return each doubt once, and of converters that clip only the worst."""
    clipping = [one for one in messages if isinstance(one, ClippingWarning)]
    others = [one for one in messages if isinstance(one, SuspectWarning) and one not in clipping]
    found = list(dict.fromkeys(str(one) for one in others))
    if clipping:
        alike = " (the worst of several)" if len({str(one) for one in clipping}) > 1 else ""
        found.append(f"{max(clipping, key=lambda one: one.share)}{alike}")
    return found


@contextmanager
def _doubts_in_one_line() -> Iterator[None]:
    """Print each doubt about a result once, as one sentence, to standard error when all is done."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SuspectWarning)
        try:
            yield
        finally:
            for sentence in _sentences([one.message for one in caught]):
                print(f"heliograph: warning: {sentence}", file=sys.stderr)
    for one in caught:
        if not issubclass(one.category, SuspectWarning):
            warnings.showwarning(one.message, one.category, one.filename, one.lineno)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; those of the process by default.
    """
    arguments = _parser().parse_args(argv)
    run: Callable[[Any], None] = arguments.run
    try:
        with _doubts_in_one_line():
            among_ranks(lambda: run(arguments))
    except HeliographError as error:
        if arguments.debug:
            raise
        print(f"heliograph: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("heliograph: interrupted; finished training runs are kept", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
