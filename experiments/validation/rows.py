"""Rows of a table of published measurements, the outcome of each, and statistics of the errors.

A cell that is left out may be assumed, and the assumption is noted; a number that cannot be is an error.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simulator.errors import HeliographError, ParameterError
from simulator.files import read_text

ABSENT = frozenset({"", "-", "?", "n/a", "na", "none", "null", "unknown"})
"""Cells, in lower case, that mean: not published."""
REFERENCE = Path(__file__).parent / "reference"
"""Directory of the tables that ship."""
PER_CENT = 0.01
"""One per cent."""
RECALLED = "recalled"
"""Provenance of rows that were quoted from memory; they are never predicted."""
CONSTANT_SHARE = 0.5
"""Share of the peak, or of the line rate, that the trivial prediction assumes of every row; dimensionless."""


FAR_OFF = 0.20
"""Relative error above which a row is named; dimensionless."""
HIGH_QUANTILE = 0.9
"""Quantile that is reported beside the median."""


def simplified(text: str) -> str:
    """Return a name without blanks, marks and capitals, as it is compared."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


class SkipError(HeliographError):
    """Row that cannot be predicted, with the reason: it is skipped."""


class FileError(ParameterError):
    """Invalid cell, named by file and line: the whole file is refused."""


@dataclass(frozen=True)
class Record:
    """One row of a table of measurements, with the assumptions that it takes to use it."""

    where: str
    """Place of the row, ``file:line``."""
    cells: dict[str, str]
    """Text of each column of the file."""
    assumed: list[str] = field(default_factory=list)
    """Assumptions in words, noted while the row is read (`assume`)."""

    def text(self, column: str) -> str:
        """Return a cell; empty if the row lacks it or it says that nothing was published (`ABSENT`)."""
        value = self.cells.get(column, "")
        return "" if value.lower() in ABSENT else value

    def number(self, column: str, *, strict: bool = False) -> float | None:
        """Return a positive number, or None if the row lacks it.

        Parameters
        ----------
        column : str
            Name of the column.
        strict : bool
            Whether text that is no number is an error of the file rather than of the row.

        Raises
        ------
        FileError
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
                raise FileError(msg) from None
            raise SkipError(msg) from None
        if not math.isfinite(value) or value < 0.0 or (strict and value == 0.0):
            msg = f"{self.where}: column '{column}' is {cell}; it must be finite and positive"
            raise FileError(msg)
        return value

    def whole(self, column: str) -> int | None:
        """Return a whole number of at least 1, or None if the row lacks it.

        Raises
        ------
        FileError, SkipError
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
        """Return a whole number of at least 1 for which nothing can be assumed.

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

    def measured(self, column: str) -> float:
        """Return a positive number that was measured.

        Raises
        ------
        FileError, SkipError
            As `number`, if strict; also `SkipError` if the row lacks it.
        """
        value = self.number(column, strict=True)
        if value is None:
            msg = "nothing measured is given"
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
        Groups of columns; a file without any column of some group is not a table of this kind.

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


@dataclass(kw_only=True)
class Outcome:
    """Measured and predicted value of a row, or the reason why it was skipped; filled in within `judged`."""

    id: str
    """Name of the row."""
    source: str
    """Publication or repository."""
    unit: str
    """SI unit of all values."""
    measured: float | None = None
    """Published value; None if the row has none."""
    predicted: float | None = None
    """Predicted value; None if the row was skipped."""
    constant: float | None = None
    """Value of the trivial prediction (`CONSTANT_SHARE`); None where there is none."""
    assumed: tuple[str, ...] = ()
    """Assumptions in words."""
    skipped: str | None = None
    """Reason why the row was skipped; None if it was not."""
    hint: str = ""
    """Why a prediction may miss, such as the parts that take most of the time; shown for rows that miss."""
    extra: Mapping[str, float | bool | str] = field(default_factory=dict)
    """Further values of the row by column, which its record and CSV row have too."""

    @property
    def relative_error(self) -> float | None:
        """Predicted less measured, over measured."""
        return _relative(self.predicted, self.measured)

    @property
    def constant_error(self) -> float | None:
        """Trivial prediction less measured, over measured."""
        return _relative(self.constant, self.measured)

    @property
    def far_off(self) -> bool:
        """Whether the prediction misses by more than `FAR_OFF`."""
        return abs(self.relative_error or 0.0) > FAR_OFF

    def record(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {
            "id": self.id,
            "source": self.source,
            "measured": self.measured,
            "predicted": self.predicted,
            "unit": self.unit,
            "relative_error": self.relative_error,
            "assumed": list(self.assumed),
            "skipped": self.skipped,
            **self.extra,
        }


@dataclass(frozen=True, kw_only=True)
class Supplement:
    """Table or text below a report that is computed from all outcomes, and its JSON file if it has a name."""

    find: Callable[[Sequence[Outcome]], Sequence[Any]] = lambda outcomes: outcomes
    """Computes the lines, dataclasses or mappings, from all outcomes; by default these themselves."""
    text: Callable[[Sequence[Any]], str]
    """Formats the lines for the terminal; returns an empty text if there are none."""
    name: str = ""
    """Suffix of the JSON file's name; empty writes none."""

    def records(self, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
        """Return the lines as plain data."""
        return [dict(one if isinstance(one, Mapping) else vars(one)) for one in self.find(outcomes)]


class Predicted(NamedTuple):
    """Value that a rule predicts for a row."""

    value: float
    """In SI units, or in that of the row where the rule says so."""
    remark: str = ""
    """Sentence on the basis of the value, or on a cause of its error; shown beside it."""


Rule = Callable[[Record, re.Match[str]], Predicted]
"""Prediction of a row, given the match of its name with the pattern under which the rule is listed."""


@contextmanager
def judged(record: Record, name: str | None = None, *, unit: str = "s") -> Iterator[Outcome]:
    """Yield the outcome of a row to be filled in; an error within the block is the reason to skip the row.

    Fields that were set before the error stay, so the prediction is to be set last.

    Parameters
    ----------
    record : Record
        The row; its assumptions are copied at the end of the block.
    name : str, optional
        Name of the outcome, if not the row's own.
    unit : str
        SI unit.

    Raises
    ------
    FileError
        If a cell is invalid: the file is refused.
    """
    outcome = Outcome(
        id=record.text("id") or record.where if name is None else name,
        source=record.text("source") or "no source",
        unit=unit,
    )
    try:
        yield outcome
    except FileError:
        raise
    except HeliographError as error:
        outcome.skipped = str(error)
    outcome.assumed = tuple(record.assumed)


def _relative(value: float | None, measured: float | None) -> float | None:
    return None if value is None or measured is None else value / measured - 1.0


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Relative errors of a set of rows, as fractions; None where no row was predicted."""

    n: int
    """Rows predicted."""
    mean_abs_error: float | None = None
    """Mean of absolute relative errors."""
    median: float | None = None
    """Median of absolute relative errors."""
    p90: float | None = None
    """Value below which nine of ten absolute relative errors lie, by linear interpolation."""
    max: float | None = None
    """Largest absolute relative error."""
    bias: float | None = None
    """Mean of relative errors with their sign."""
    constant_mean_abs_error: float | None = None
    """Mean absolute relative error of the trivial prediction on the same rows."""


def statistics(outcomes: Iterable[Outcome]) -> Statistics:
    """Return the statistics of the rows that were predicted."""
    rows = [one for one in outcomes if one.relative_error is not None]
    if not rows:
        return Statistics(n=0)
    errors = np.array([one.relative_error for one in rows], dtype=float)
    sizes = np.abs(errors)
    constant = [abs(one.constant_error) for one in rows if one.constant_error is not None]
    return Statistics(
        n=len(rows),
        mean_abs_error=float(sizes.mean()),
        median=float(np.median(sizes)),
        p90=float(np.quantile(sizes, HIGH_QUANTILE)),
        max=float(sizes.max()),
        bias=float(errors.mean()),
        constant_mean_abs_error=math.fsum(constant) / len(constant) if constant else None,
    )
