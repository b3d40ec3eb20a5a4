"""Published measurements as rows of text: strict about numbers, tolerant about what a row leaves out."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulator.errors import HeliographError, ParameterError
from simulator.files import read_text

ABSENT = frozenset({"", "-", "?", "n/a", "na", "none", "null", "unknown"})
"""Cells, in lower case, that mean: not published."""
RECALLED = "recalled"
"""Provenance of rows that nobody has looked up; they are never judged."""


class SkipError(HeliographError):
    """A row that cannot be predicted; the message says why."""


@dataclass(frozen=True)
class Record:
    """One row of a file of measurements, with what had to be assumed to use it."""

    where: str
    """``file:line``."""
    cells: dict[str, str]
    """Text of each column that the file has."""
    assumed: list[str] = field(default_factory=list)
    """What was assumed, in words; grows while the row is read."""

    def text(self, column: str) -> str:
        """Return a cell, or nothing if the row lacks it."""
        value = self.cells.get(column, "")
        return "" if value.lower() in ABSENT else value

    def number(self, column: str, *, strict: bool = False) -> float | None:
        """Return a positive number, or None if the row lacks it.

        Parameters
        ----------
        column : str
            Which.
        strict : bool
            Whether text that is no number is an error of the file rather than of the row.

        Raises
        ------
        ParameterError
            For a number that is not finite or not positive, and if `strict` for text that is no number.
        SkipError
            For text that is no number.
        """
        cell = self.text(column)
        if not cell:
            return None
        try:
            value = float(cell)
        except ValueError:
            msg = f"column '{column}' holds '{cell[:40]}', which is no number"
            if strict:
                msg = f"{self.where}: {msg}"
                raise ParameterError(msg) from None
            raise SkipError(msg) from None
        if not math.isfinite(value) or value < 0.0 or (strict and value == 0.0):
            msg = f"{self.where}: column '{column}' is {cell}; it must be finite and positive"
            raise ParameterError(msg)
        return value

    def whole(self, column: str) -> int | None:
        """Return a whole number of at least 1, or None if the row lacks it.

        Raises
        ------
        ParameterError, SkipError
            As `number`; also `SkipError` for what is not whole.
        """
        value = self.number(column)
        if value is None:
            return None
        if value != int(value) or value < 1:
            msg = f"column '{column}' is {self.text(column)}, which is not a whole number of at least 1"
            raise SkipError(msg)
        return int(value)

    def needed(self, column: str) -> int:
        """Return a whole number that nothing can stand in for.

        Raises
        ------
        SkipError
            If the row lacks it.
        """
        value = self.whole(column)
        if value is None:
            msg = f"no {column} is given"
            raise SkipError(msg)
        return value

    def assume(self, what: str) -> None:
        """Note an assumption, once."""
        if what not in self.assumed:
            self.assumed.append(what)


def read_records(path: Path, *, needs: Sequence[Sequence[str]]) -> list[Record]:
    """Return the rows of a CSV file.

    Parameters
    ----------
    path : pathlib.Path
        UTF-8 text with a header; lines that start with ``#`` are skipped.
    needs : sequence of sequences of str
        Columns without which the file is not of this kind: of each group at least one.

    Raises
    ------
    ParameterError
        For a missing, empty or unreadable file, a header that lacks a group, a column that stands twice, a
        row with more cells than columns, or no rows.
    """
    lines = read_text(path).splitlines(keepends=True)
    reader = csv.reader(lines)
    try:
        header = next(([c.strip() for c in cells] for cells in reader if not _empty(cells)), [])
        _check_header(header, path, needs)
        records = []
        for cells in reader:
            where = f"{path.name}:{reader.line_num}"
            if _empty(cells):
                continue
            if len(cells) > len(header):
                msg = f"{where}: {len(cells)} cells where {len(header)} fit; quote text that has commas"
                raise ParameterError(msg)
            records.append(Record(where, dict(zip(header, (cell.strip() for cell in cells), strict=False))))
    except csv.Error as error:
        msg = f"{path.name}:{reader.line_num}: not CSV: {error}"
        raise ParameterError(msg) from None
    if not records:
        msg = f"{path.name}: has a header but no rows"
        raise ParameterError(msg)
    return records


def _empty(cells: Sequence[str]) -> bool:
    """Return whether a line is blank or a comment."""
    return not any(cell.strip() for cell in cells) or cells[0].lstrip().startswith("#")


def _check_header(header: list[str], path: Path, needs: Sequence[Sequence[str]]) -> None:
    for column in header:
        if column and header.count(column) > 1:
            msg = f"{path.name}:1: column '{column}' stands twice; keep one"
            raise ParameterError(msg)
    for group in needs:
        if not set(group) & set(header):
            wanted = " or ".join(f"'{column}'" for column in group)
            msg = f"{path.name}:1: needs a column {wanted}; got {', '.join(header[:8])[:120]}"
            raise ParameterError(msg)


def check_provenance(record: Record) -> None:
    """Refuse rows that were only recalled.

    Raises
    ------
    SkipError
        If the row says so.
    """
    if record.text("provenance").lower() == RECALLED:
        msg = "provenance is 'recalled': nobody has looked this row up"
        raise SkipError(msg)
