"""What the terminal shows: one table with units and provenance, readable without colours too."""

from __future__ import annotations

import io
import math
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 118
"""Columns of the table where no terminal says otherwise."""
NOTE_WIDTH = 18
"""Columns that are kept for where numbers come from."""
MIN_WIDTH = 72
"""Narrowest table; below it a terminal must wrap."""

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
"""Area below which square micrometres are told: a hundredth of a square millimetre."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")


@dataclass(frozen=True, kw_only=True)
class ReportRow:
    """One line of the table."""

    label: str
    """What is told."""
    values: tuple[str, ...]
    """One text per system."""
    note: str = ""
    """Where the number comes from."""
    section: bool = False
    """Whether a rule stands above the line."""


def report_row(label: str, values: tuple[str, ...], note: str = "", *, section: bool = False) -> ReportRow:
    """Return a line of the table."""
    return ReportRow(label=label, values=values, note=note, section=section)


def prefix_of(value: float) -> tuple[str, float]:
    """Return the SI prefix, with its factor, that shows a value as 1 to 999 of it."""
    if value == 0.0 or not math.isfinite(value):
        return "", 1.0
    exponent = 3 * math.floor(math.log10(abs(value)) / 3)
    if float(f"{abs(value) / 10.0**exponent:.3g}") >= 1e3:
        exponent += 3
    exponent = min(max(exponent, min(_PREFIXES)), max(_PREFIXES))
    return _PREFIXES[exponent], 10.0**exponent


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
    if unit in _PREFIXED_UNITS or unit.partition("/")[0] in _PREFIXED_UNITS:
        prefix, factor = prefix_of(value)
        return f"{_three_digits(value / factor)} {prefix}{unit}"
    return f"{_three_digits(value)} {unit}".rstrip()


def format_quantity(value: float, unit: str) -> str:
    """Return a parameter with its unit as a reader writes it.

    Parameters
    ----------
    value : float
        In `unit`.
    unit : str
        SI unit as a parameter states it; ``1`` for none. Areas are told in square millimetres or micrometres,
        numbers in dB, bits or without a unit as they are.
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


def table_text(title: str, systems: Sequence[str], rows: Sequence[ReportRow], *, width: int = WIDTH) -> str:
    """Return the table as plain text, at most `width` columns wide."""
    stream = io.StringIO()
    _print(Console(file=stream, width=width, color_system=None, force_terminal=False), title, systems, rows)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def print_table(
    title: str, systems: Sequence[str], rows: Sequence[ReportRow], *, stream: TextIO | None = None
) -> None:
    """Print the table: with colours to a terminal, as plain text of fixed width to a pipe or file.

    Parameters
    ----------
    title : str
        Line above the table.
    systems : sequence of str
        Heads of the columns of values.
    rows : sequence of ReportRow
        Lines, each with one value per system.
    stream : text stream, optional
        Where to; standard output if not given.
    """
    target = stream if stream is not None else sys.stdout
    if not target.isatty():
        text = table_text(title, systems, rows)
        encoding = getattr(target, "encoding", None) or "utf-8"
        target.write(text.encode(encoding, "replace").decode(encoding))
        return
    width = min(max(shutil.get_terminal_size().columns, MIN_WIDTH), 140)
    _print(Console(file=target, width=width), title, systems, rows)


def _print(console: Console, title: str, systems: Sequence[str], rows: Sequence[ReportRow]) -> None:
    notes = list(dict.fromkeys(row.note for row in rows if row.note))
    console.print(Text(plain_text(title), "bold"), soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for head in _heads(systems, console.width - max((len(row.label) for row in rows), default=0)):
        table.add_column(Text(head, "bold"), justify="right", overflow="fold")
    if notes:
        widest = max(NOTE_WIDTH, console.width // 4)
        table.add_column(Text("source", "dim"), overflow="fold", max_width=widest)
    for row in rows:
        if len(row.values) != len(systems):
            msg = f"row '{row.label}' has {len(row.values)} values for {len(systems)} systems"
            raise ValueError(msg)
        if row.section and table.row_count:
            table.add_section()
        cells = [Text(plain_text(value)) for value in row.values]
        note = [Text(plain_text(row.note), "dim")] if notes else []
        table.add_row(Text(plain_text(row.label)), *cells, *note)
    console.print(table)


def _heads(systems: Sequence[str], width: int) -> list[str]:
    """Return the heads of columns; where they do not fit side by side, core and fabric on own lines."""
    heads = [plain_text(system) for system in systems]
    if sum(len(head) + 3 for head in heads) + NOTE_WIDTH <= width:
        return heads
    return [re.sub(r"(?<=.)(?=[:@])", "\n", head) for head in heads]


def _three_digits(value: float) -> str:
    shown = float(f"{value:.3g}")
    if shown == 0.0:
        return "0"
    magnitude = math.floor(math.log10(abs(shown)))
    if magnitude < -4:
        return f"{shown:.2e}"
    if magnitude >= 3:
        return f"{value:,.0f}"
    return f"{shown:.{max(0, 2 - magnitude)}f}"
