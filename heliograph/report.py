"""Tables of results on the terminal, with units and sources; results as `repr`, CSV and data frames."""

from __future__ import annotations

import dataclasses
import io
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heliograph.records import csv_text, write_atomically
from simulator.errors import HeliographError, ParameterError

if TYPE_CHECKING:
    import pandas as pd


WIDTH = 118
"""Columns of the table if standard output is no terminal."""
NOTE_WIDTH = 18
"""Least columns of the notes on the sources of numbers."""
MIN_WIDTH = 40
"""Narrowest table; below it a terminal must wrap."""
MAX_WIDTH = 140
"""Widest table on a terminal."""

_PREFIXES = {
    -15: "f",
    -12: "p",
    -9: "n",
    -6: "\u00b5",
    -3: "m",
    0: "",
    3: "k",
    6: "M",
    9: "G",
    12: "T",
    15: "P",
    18: "E",
}
_PREFIXED_UNITS = {
    "s",
    "J",
    "W",
    "B",
    "Hz",
    "FLOP",
    "FLOP/s",
    "B/s",
    "bit",
    "bit/s",
    "m",
    "A",
    "V",
    "F",
    "Wh",
}
MM2_IN_M2 = 1e-6
"""Square metres in a square millimetre."""
UM2_IN_M2 = 1e-12
"""Square metres in a square micrometre."""
SMALL_AREA_M2 = 1e-8
"""Area below which the unit is square micrometres: a hundredth of a square millimetre."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")


@dataclass(frozen=True)
class ReportRow:
    """One line of the table."""

    label: str
    """Name of the line."""
    values: tuple[str, ...]
    """One text per column."""
    note: str = ""
    """Source of the numbers."""
    section: bool = field(default=False, kw_only=True)
    """Whether a rule is drawn above the line."""


def prefix_of(value: float) -> tuple[str, float]:
    """Return the SI prefix, and its factor, with which a value is from 1 to 999."""
    if value == 0.0 or not math.isfinite(value):
        return "", 1.0
    exponent = 3 * math.floor(math.log10(abs(value)) / 3)
    if float(f"{abs(value) / 10.0**exponent:.3g}") >= 1e3:
        exponent += 3
    exponent = min(max(exponent, min(_PREFIXES)), max(_PREFIXES))
    return _PREFIXES[exponent], 10.0**exponent


def takes_prefix(unit: str) -> bool:
    """Return whether an SI unit takes a prefix, alone or per something: ``J`` and ``B/s``, not ``dB``."""
    return unit in _PREFIXED_UNITS or unit.partition("/")[0] in _PREFIXED_UNITS


def format_si(value: float, unit: str = "") -> str:
    """Return a value with three significant digits and a prefixed unit.

    Parameters
    ----------
    value : float
        In `unit`.
    unit : str
        An SI unit, alone or per something (``"J"``, ``"J/token"``), takes a prefix; any other
        (``"tokens/s"``, ``"%"``, none) does not, and large numbers are grouped by thousands.

    Returns
    -------
    str
        ``12.3 ms``; a dash for NaN.
    """
    if math.isnan(value):
        return "\u2013"
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}inf {unit}".rstrip()
    if takes_prefix(unit):
        prefix, factor = prefix_of(value)
        return f"{_three_digits(value / factor)} {prefix}{unit}"
    return f"{_three_digits(value)} {unit}".rstrip()


def format_quantity(value: float, unit: str) -> str:
    """Return a parameter's value with its unit, for a reader.

    Parameters
    ----------
    value : float
        In `unit`.
    unit : str
        SI unit; ``1`` for none. Areas become square millimetres or micrometres; numbers in dB, in bits or
        without a unit take no prefix.
    """
    match unit:
        case "1":
            return f"{value:.6g}"
        case "m^2":
            factor, shown = (
                (1.0 / MM2_IN_M2, "mm\u00b2")
                if abs(value) >= SMALL_AREA_M2
                else (1.0 / UM2_IN_M2, "\u00b5m\u00b2")
            )
            return f"{value * factor:.4g} {shown}"
        case "USD/m^2":
            return f"{value * MM2_IN_M2:.4g} USD/mm\u00b2"
        case "dB" | "dB/m" | "dB/Hz" | "bit" | "rad" | "A/W":
            return f"{value:.6g} {unit}"
        case _:
            return format_si(value, unit)


def plain_text(text: str) -> str:
    """Return text without terminal escapes and control characters, on one line."""
    return "".join(letter if letter.isprintable() else " " for letter in _ESCAPES.sub("", text))


@dataclass(frozen=True)
class ReportTable:
    """One table of a report."""

    title: str
    """Line above the table."""
    heads: Sequence[str]
    """Heads of the columns of values."""
    rows: Sequence[ReportRow]
    """Lines, each with one value per head."""
    dense: bool = False
    """Whether columns are narrower, with one word of a head per line, so that more fit."""
    note: str = "source"
    """Head of the column of notes, the last."""

    @property
    def gap(self) -> int:
        """Columns of the terminal between two columns of the table."""
        return _DENSE_GAP if self.dense else _GAP


Item = TypeVar("Item")


def table_of(
    title: str,
    items: Iterable[Item],
    label: Callable[[Item], str],
    columns: Mapping[str, Callable[[Item], str]],
    *,
    note: Callable[[Item], str] = lambda _: "",
    section: Callable[[Item], object] = lambda _: None,
) -> ReportTable:
    """Return a table with a line for each item.

    Parameters
    ----------
    title : str
        Line above the table.
    items : iterable
        Objects, one per line.
    label : callable
        Name of an item's line.
    columns : mapping of str to callable
        Text of an item's cell, by the head of the column.
    note : callable
        Source of an item's numbers.
    section : callable
        Section of an item; a rule is drawn where it differs from that of the item before.
    """
    listed = list(items)
    parts = [section(one) for one in listed]
    rows = [
        ReportRow(
            label(one),
            tuple(cell(one) for cell in columns.values()),
            note(one),
            section=place > 0 and parts[place] != parts[place - 1],
        )
        for place, one in enumerate(listed)
    ]
    return ReportTable(title, tuple(columns), rows)


def or_dash(value: float | None, form: str, unit: float = 1.0) -> str:
    """Return a value in a unit, as `str.format` shows it, or a dash where there is none."""
    return "-" if value is None else form.format(value / unit)


def value_table(title: str, head: str, lines: Iterable[tuple[str, str, str]]) -> ReportTable:
    """Return a table of one column, from the name, value and note of each line."""
    return ReportTable(title, (head,), [ReportRow(label, (value,), note) for label, value, note in lines])


def table_text(
    title: str,
    systems: Sequence[str],
    rows: Sequence[ReportRow],
    *,
    width: int | None = None,
    dense: bool = False,
) -> str:
    """Return the table as plain text, at most `width` columns wide where no single word is wider.

    Parameters
    ----------
    title : str
        Line above the table.
    systems : sequence of str
        Heads of the columns of values.
    rows : sequence of ReportRow
        Lines, each with one value per head.
    width : int, optional
        Columns of the text, by default those of standard output. Columns of the table that do not fit side
        by side follow in further blocks; numbers and words are never broken.
    dense : bool
        As in `ReportTable`.
    """
    return _text_of(ReportTable(title, systems, rows, dense), _width(sys.stdout) if width is None else width)


def _text_of(table: ReportTable, width: int) -> str:
    """Return a table as plain text, at most `width` columns wide where no single word is wider."""
    stream = io.StringIO()
    _print(Console(file=stream, width=width, color_system=None, force_terminal=False), table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def print_report(blocks: Sequence[ReportTable | str], *, stream: TextIO | None = None) -> None:
    """Print tables and text at the width of the terminal, or of ``COLUMNS`` for a pipe or file.

    Lines of text are broken between words on a terminal, and not broken elsewhere.

    Parameters
    ----------
    blocks : sequence of ReportTable or str
        Tables and texts in their order.
    stream : text stream, optional
        Stream to print to; standard output if not given. Characters that its encoding lacks are replaced.
    """
    target = stream if stream is not None else sys.stdout
    encoding = (getattr(target, "encoding", None) or "utf-8").lower()
    width = _width(target)
    if target.isatty():
        blocks = [_wrapped(one, width) if isinstance(one, str) else one for one in blocks]
    coloured = target.isatty() and encoding.startswith("utf")
    if not coloured:
        target.write(in_encoding(report_text(blocks, width=width), encoding))
        return
    for block in blocks:
        if isinstance(block, str):
            target.write(f"{block}\n")
        else:
            _print(Console(file=target, width=width), block)


def report_text(blocks: Sequence[ReportTable | str], *, width: int = WIDTH) -> str:
    """Return tables and text as plain text, tables at most `width` columns wide."""
    return "".join(f"{one}\n" if isinstance(one, str) else _text_of(one, width) for one in blocks)


def in_encoding(text: str, encoding: str) -> str:
    """Return text with characters that an encoding lacks replaced, as by ``mm2`` for square millimetres."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        plain = text.translate(_PLAIN_CHARACTERS)
        return plain.encode(encoding, "replace").decode(encoding)
    return text


_PLAIN_CHARACTERS = str.maketrans(
    {
        "\u00b2": "2",
        "\u00b3": "3",
        "\u00b5": "u",
        "\u03bc": "u",
        "\u00b1": "+-",
        "\u00d7": "x",
        "\u2013": "-",
        "\u2014": "-",
        "\u2026": "...",
        "\u2500": "-",
        "\u2501": "-",
        "\u25b2": "^",
    }
)
"""Replacements of characters in tables that plain encodings lack."""


def _width(target: TextIO) -> int:
    """Return the width of a stream in columns: of its terminal, else ``COLUMNS``, else `WIDTH`."""
    if target.isatty():
        return min(max(shutil.get_terminal_size().columns, MIN_WIDTH), MAX_WIDTH)
    columns = os.environ.get("COLUMNS", "")
    return max(int(columns), MIN_WIDTH) if columns.isdigit() and int(columns) else WIDTH


def _wrapped(text: str, width: int) -> str:
    """Return text with its lines broken between words; continuation lines keep the indentation.

    Where a name and a gap open a line, as in lists, the indentation is that of what follows, at most half of
    the width.
    """
    lines = []
    for line in text.split("\n"):
        column = re.match(r" *\S+ {2,}(?=\S)| *", line)
        indent = " " * min(column.end() if column else 0, width // 2)
        lines.append(
            fill(line, width, subsequent_indent=indent, **_WHOLE_WORDS) if len(line) > width else line
        )
    return "\n".join(lines)


_WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}


def _print(console: Console, shown_table: ReportTable) -> None:
    title, systems, rows = shown_table.title, shown_table.heads, shown_table.rows
    for row in rows:
        if len(row.values) != len(systems):
            msg = f"row '{row.label}' has {len(row.values)} values for {len(systems)} systems"
            raise ValueError(msg)
    width = console.width
    cells = _Cells.of(shown_table, width)
    console.print(Text(plain_text(title), "bold"), soft_wrap=True)
    for columns in cells.blocks(width):
        padding = (0, 1, 0, shown_table.gap - _DENSE_GAP)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=padding)
        table.add_column("", no_wrap=True)
        for column in columns:
            table.add_column(Text(cells.heads[column], "bold"), justify="right", no_wrap=True)
        if cells.noted:
            table.add_column(Text(shown_table.note, "dim"), no_wrap=True)
        for row, label, values, note in zip(rows, cells.labels, cells.values, cells.notes, strict=True):
            if any(values) and not any(values[column] for column in columns):
                continue  # its values are in another block
            if row.section and table.row_count:
                table.add_section()
            shown = [Text(values[column]) for column in columns]
            table.add_row(Text(label), *shown, *([Text(note, "dim")] if cells.noted else []))
        console.width = max(width, cells.width_of(columns))  # the terminal wraps a wider word
        console.print(table)


@dataclass(frozen=True, kw_only=True)
class _Cells:
    """Texts of a table's cells, broken into lines between words only."""

    labels: tuple[str, ...]
    heads: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    note: str
    gap: int

    @classmethod
    def of(cls, shown: ReportTable, width: int) -> _Cells:
        """Return the cells of a table of a given width; long texts are broken if all columns then fit."""
        heads, rows, gap = shown.heads, shown.rows, shown.gap
        texts = [tuple(map(plain_text, row.values)) for row in rows]
        notes = tuple(_lines(plain_text(row.note), max(NOTE_WIDTH, width // 4)) for row in rows)
        left = width - _EDGES - gap - (_longest((*notes, shown.note)) + gap if any(notes) else 0)
        shortest = _SHORT_LINES[-1]
        narrowest = _longest(_lines(text, shortest) for cells in (heads, *texts) for text in cells)
        label_width = max(left - narrowest, shortest)
        labels = tuple(_label_lines(plain_text(row.label), label_width) for row in rows)
        room = max(1, left - _longest(labels))
        for most in (room, *(one for one in _SHORT_LINES if one < room)):
            found = cls(
                labels=labels,
                heads=tuple(_heads(heads, room, most, gap)),
                values=tuple(tuple(_lines(text, most) for text in cells) for cells in texts),
                notes=notes,
                note=shown.note,
                gap=gap,
            )
            if len(found.blocks(width)) == 1:
                return found
        values = tuple(tuple(_lines(text, room) for text in cells) for cells in texts)
        return dataclasses.replace(found, values=values)

    @property
    def noted(self) -> bool:
        """Whether any line has a note."""
        return any(self.notes)

    def width_of(self, columns: Sequence[int]) -> int:
        """Return the width of some columns of the table with labels and notes, in columns of the terminal."""
        notes = _longest((*self.notes, self.note)) + self.gap if self.noted else 0
        columns_width = sum(self._width(column) + self.gap for column in columns)
        return _longest(self.labels) + _EDGES + notes + columns_width

    def _width(self, column: int) -> int:
        return _longest((self.heads[column], *(row[column] for row in self.values)))

    def blocks(self, width: int) -> list[list[int]]:
        """Return the columns of each block: as many as fit side by side with labels and notes."""
        blocks: list[list[int]] = [[]]
        for column in range(len(self.heads)):
            if blocks[-1] and self.width_of([*blocks[-1], column]) > width:
                blocks.append([])
            blocks[-1].append(column)
        return blocks


_SHORT_LINES = (40, 32, 24, 18)
"""Characters per line to which long texts are broken if all columns then fit side by side."""
_EDGES = 2
"""Columns that a table's edges take."""
_GAP, _DENSE_GAP = 3, 2
"""Columns between two columns of a table, and of a dense one."""


def _longest(texts: Iterable[str]) -> int:
    return max((len(line) for text in texts for line in text.split("\n")), default=0)


_QUANTITY = re.compile(r"-?[\d.,]+ \S+")
"""A number with its unit."""
_BREAKS = re.compile(
    r"(?<=,)(?=[^\s\d])|(?<=[^\s\d])(?=\s)|(?<=\d)(?=\s+[^\sA-Za-z\u00b5%])"
    r"|(?<=\s)(?=\S)(?:(?<!\d\s)|(?=[^A-Za-z\u00b5%]))"
)
"""Places where a cell may be broken: spaces other than between number and unit, and after commas."""
_NAME_BREAKS = re.compile(rf"{_BREAKS.pattern}|(?<=\w)(?=[:@]\w)")
"""Places where a name may be broken: as a cell, and before the core and the fabric of a system's name."""


def _lines(text: str, width: int, breaks: re.Pattern[str] = _BREAKS, hanging: str = "") -> str:
    """Return text in lines of at most `width` characters, all but the first indented by `hanging`."""
    if _QUANTITY.fullmatch(text):
        return text
    lines, line = [], text[: len(text) - len(text.lstrip())]
    for word in breaks.split(text.strip()):
        if line.strip() and len(line) + len(word.rstrip()) > width:
            lines.append(line.rstrip())
            line = hanging
        line += word if line.strip() or not word.isspace() else ""
    return "\n".join([*lines, line.rstrip()])


def _label_lines(text: str, width: int) -> str:
    """Return the label of a line, broken into lines of at most `width` characters."""
    if len(text) <= width:
        return text
    return _lines(text, width, _NAME_BREAKS, text[: len(text) - len(text.lstrip())] + "  ")


def _heads(systems: Sequence[str], room: int, most: int, gap: int) -> list[str]:
    """Return the heads of columns; if they do not fit side by side, core and fabric get their own lines."""
    heads = [plain_text(system) for system in systems]
    if gap == _DENSE_GAP:
        return [head.replace(" ", "\n") for head in heads]
    if most >= room and sum(len(head) + gap for head in heads) <= room:
        return heads
    return ["\n".join(_lines(part, most) for part in re.split(r"(?<=.)(?=[:@])", head)) for head in heads]


def _three_digits(value: float) -> str:
    shown = float(f"{value:.3g}")
    if shown == 0.0:
        return "0"
    magnitude = math.floor(math.log10(abs(shown)))
    if magnitude < -4 or magnitude >= 15:
        return f"{shown:.2e}"
    if magnitude >= 3:
        return f"{value:,.0f}"
    return f"{shown:.{max(0, 2 - magnitude)}f}"


Row = Mapping[str, Any]
"""One observation: values by column."""

LINE_WIDTH = 96
"""Characters of a value in a summary."""
MOST_LINES = 12
"""Lines of a summary."""


class Summary:
    """Base of results with a short `repr`, which a notebook shows as a small table."""

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
    """Base of results that are rows with the same columns."""

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary for each row, all with the same keys in the same order."""
        raise NotImplementedError

    def to_csv(self, path: str | Path) -> Path:
        """Write the rows as CSV, atomically, and return the path.

        Raises
        ------
        HeliographError
            If the file cannot be written, or `path` is no path.
        """
        if not isinstance(path, str | Path):
            msg = f"to_csv takes the path of a file, a text such as 'table.csv'; got {path!r:.60}"
            raise ParameterError(msg)
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
    """Return a value of a summary, cut to `LINE_WIDTH` characters."""
    return text if len(text) <= LINE_WIDTH else f"{text[: LINE_WIDTH - 1]}\u2026"
