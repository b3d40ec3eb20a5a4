"""Results as a person meets them: a few lines at a prompt, a table in a notebook, rows for CSV and pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heliograph.records import csv_text, write_atomically
from simulator.errors import HeliographError

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]
"""One observation: values by column."""

LINE_WIDTH = 96
"""Characters of a value in a summary."""
MOST_LINES = 12
"""Lines of a summary."""


class Summary:
    """Something that a prompt shows in a few lines, and a notebook as a small table."""

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the title with its value, then a label and a value for each line."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Return at most `MOST_LINES` lines."""
        (title, first), *lines = self.summary_lines()
        if len(lines) >= MOST_LINES:
            kept = MOST_LINES - 2
            lines = [*lines[:kept], ("...", f"{len(lines) - kept} more")]
        width = max((len(name) for name, _ in lines), default=0)
        shown = [f"  {name:<{width}}  {_cut(value)}".rstrip() for name, value in lines]
        return "\n".join([f"{title}: {first}", *shown])

    def _repr_html_(self) -> str:
        (title, first), *lines = self.summary_lines()
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in lines)
        return f"<table><caption>{escape(title)}: {escape(first)}</caption>{cells}</table>"


class Tabular(Summary):
    """Something that is rows of the same columns."""

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary for each row, all with the same keys in the same order."""
        raise NotImplementedError

    def to_csv(self, path: str | Path) -> Path:
        """Write the rows as CSV, whole or not at all; return the path.

        Raises
        ------
        HeliographError
            If the file cannot be written.
        """
        target = Path(path)
        write_atomically(target, csv_text(self.rows()))
        return target

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a table of pandas.

        Raises
        ------
        HeliographError
            If pandas is not installed.
        """
        return frame(self.rows())


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return rows as a table of pandas.

    Raises
    ------
    HeliographError
        If pandas is not installed.
    """
    try:
        import pandas as pd  # noqa: PLC0415 - no dependency, used if it is there
    except ImportError as error:
        msg = "pandas is not installed; pip install pandas, or use rows() or to_csv(path)"
        raise HeliographError(msg) from error
    return pd.DataFrame(rows, columns=list(rows[0]) if rows else None)


def _cut(text: str) -> str:
    """Return a line of a summary that is not too long."""
    return text if len(text) <= LINE_WIDTH else f"{text[: LINE_WIDTH - 1]}\u2026"
