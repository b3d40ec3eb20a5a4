"""Progress on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def reporting() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that is told what is done: label, number done, number in all."""
    if not sys.stderr.isatty():
        yield _line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None)

        def show(label: str, done: int, total: int) -> None:
            bars.update(task, description=label, completed=done, total=total)

        yield show


def _line(label: str, done: int, total: int) -> None:
    sys.stderr.write(f"{label}: {done} of {total}\n")
    sys.stderr.flush()
