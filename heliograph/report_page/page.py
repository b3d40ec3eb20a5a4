"""Page of a run as one HTML file: tables whose numbers unfold to their origin, figures, configuration.

A number in a table is a button where its origin is known: it unfolds to formula, status, source, the numbers
that it follows from and the parameters behind it. What is unfolded stands once in the page, as data; the
script (``page.js``) sets it as text, never as markup.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from heliograph.parameters import Parameter, tables, unit_of
from heliograph.records import COLUMNS, check_writable, git_commit, plain, versions, write_atomically
from heliograph.report import ReportTable, format_quantity, format_si, plain_text
from heliograph.report_page.drawings import Drawing
from simulator.errors import ParameterError, is_number

SIMULATED, DERIVED, ASSUMED = "simulated", "derived", "assumed"
"""Status of a number of a record: of an event simulation, a closed form, or standing on assumed prices."""


@dataclass(frozen=True, kw_only=True)
class _Law:
    """Law of one column."""

    text: str
    status: str
    source: str
    follows: tuple[str, ...] = ()
    """Columns, or mappings of parts, that it follows from."""
    inputs: tuple[str, ...] = ()
    """Patterns of the paths of parameters that enter it."""


TABLE = Path(__file__).with_name("laws.csv")
"""Laws of columns, of categories of time by how a name begins, of parts of the energy by their first word."""


def read_laws(kind: str) -> dict[str, _Law]:
    """Return the laws of columns (``column``), categories of time (``time``) or parts of the energy."""
    with TABLE.open(newline="", encoding="utf-8") as stream:
        return {
            row["name"]: _Law(
                text=row["text"],
                status=row["status"],
                source=row["source"],
                follows=tuple(row["follows"].split()),
                inputs=tuple(row["inputs"].split()),
            )
            for row in csv.DictReader(stream)
            if row["of"] == kind
        }


LAWS: Mapping[str, _Law] = MappingProxyType(read_laws("column"))
"""Laws of the columns of `heliograph.records.COLUMNS` that are numbers."""
TIME_LAWS: Mapping[str, _Law] = MappingProxyType(read_laws("time"))
"""Law of each category of time, by how its name begins."""
PART_LAWS: Mapping[str, _Law] = MappingProxyType(read_laws("energy"))
"""Law of a part of the energy by its first word; parameters of others go by that word."""


def step_formulas(
    record: Mapping[str, Any], parameters: Sequence[Parameter], *, owner: str = ""
) -> dict[str, Formula]:
    """Return what every number of a step's record unfolds to, and the parameters behind them.

    Parameters
    ----------
    record : mapping
        As `StepResult.record` gives it.
    parameters : sequence of Parameter
        Of the system as it was run.
    owner : str
        First part of the keys, ``owner/column`` and ``owner/path``; the system's name if not given.
    """
    own = owner or str(record["system"])
    paths = [one.path for one in parameters]

    def keys(patterns: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{own}/{path}" for path in paths if any(fnmatchcase(path, one) for one in patterns))

    found = {
        f"{own}/{column}": _column_formula(record, own, column, keys(law.inputs))
        for column, law in LAWS.items()
        if is_number(record.get(column))
    }
    for part, seconds in record.get("time_by_category_s", {}).items():
        law = next(law for start, law in TIME_LAWS.items() if part.startswith(start))
        found[f"{own}/step_time_s/{part}"] = Formula(
            label=f"{part} ({own})",
            text=law.text,
            status=law.status,
            source=law.source,
            value=format_si(seconds, "s"),
            inputs=keys(law.inputs),
        )
    for part, joules in record.get("energy_by_component_j_per_token", {}).items():
        found[f"{own}/energy_per_token_j/{part}"] = Formula(
            label=f"{part} ({own})",
            text="(energy of its events in the step + its static power \u00d7 accelerators \u00d7 step time) "
            "/ tokens; tokens of a step = global_batch \u00d7 sequence_length of the plan",
            status=DERIVED,
            source=LAWS["energy_per_token_j"].source,
            value=format_si(joules, "J"),
            follows=(f"{own}/step_time_s",),
            inputs=keys(part_inputs(part)) or keys(("photonic.*",)),
        )
    for part, many in record.get("memory_by_kind_bytes", {}).items():
        found[f"{own}/memory_bytes/{part}"] = Formula(
            label=f"{part} ({own})",
            text="bytes of it on the fullest stage, by the plan's axes, sharding and recomputation",
            status=DERIVED,
            source=LAWS["memory_bytes"].source,
            value=format_si(many, "B"),
        )
    return found | parameter_formulas(own, parameters)


def _column_formula(record: Mapping[str, Any], own: str, column: str, inputs: tuple[str, ...]) -> Formula:
    law = LAWS[column]
    follows = [f"{own}/{one}" for one in law.follows if is_number(record.get(one))]
    for parts in (record.get(one) for one in law.follows):
        follows += [f"{own}/{column}/{part}" for part in parts] if isinstance(parts, Mapping) else []
    return Formula(
        label=f"{COLUMNS[column]} ({own})",
        text=law.text,
        status=law.status,
        source=law.source,
        value=told(column, record[column]),
        follows=tuple(follows),
        inputs=inputs,
    )


def part_inputs(part: str) -> tuple[str, ...]:
    """Return the patterns of the parameters that enter a part of the energy."""
    first = part.split(maxsplit=1)[0]
    return PART_LAWS[first].inputs if first in PART_LAWS else (f"photonic.*{first}*",)


def told(column: str, value: object) -> str:
    """Return a value of a column with its unit."""
    if not is_number(value):
        return "" if value is None else str(value)
    if column in _SHOWN:
        return _SHOWN[column](float(value))
    if column.endswith("_usd"):
        return f"{value:,.4g} USD" if value < THOUSAND else f"{value:,.0f} USD"
    unit = unit_of(column)
    return f"{value:,.6g}" if unit == "1" else format_quantity(float(value), unit)


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f} %"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


_SHOWN: Mapping[str, Callable[[float], str]] = MappingProxyType(
    {
        "model_flop_utilisation": _percent,
        "dropped_share": _percent,
        "tokens_per_s": _whole,
        "run_steps": _whole,
        "core_lifetime_steps": _whole,
        "energy_per_token_j": lambda value: format_si(value, "J/token"),
        "usd_per_million_tokens": lambda value: f"{value:#.3g} USD",
        "snr_db": lambda value: f"{value:.2f} dB",
        "effective_bits": lambda value: f"{value:.2f} bit",
    }
)
"""Columns that are told in their own way."""
THOUSAND = 1e3
"""Dollars from which on cents are not told."""


def numbers(column: str, value: object, key: str) -> Number:
    """Return a value of a column as a cell that unfolds."""
    order = float(value) if is_number(value) else None
    return Number(text=told(column, value) or "\u2013", value=order, key=key if order is not None else "")


SUFFIX = ".html"
"""Suffix of a page's file."""


@dataclass(frozen=True, kw_only=True)
class Formula:
    """Origin of a number: how it follows from others."""

    label: str
    """Name of the number."""
    text: str
    """Equation or rule, in the field's symbols."""
    status: str
    """Simulated, derived, assumed, or the status of a table's row."""
    source: str
    """Where the equation or the number comes from."""
    value: str = ""
    """Value with its unit."""
    range: str = ""
    """Ends of the published range."""
    follows: tuple[str, ...] = ()
    """Keys of the numbers that it follows from."""
    inputs: tuple[str, ...] = ()
    """Keys of the parameters that enter it."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number in a table or a figure."""

    text: str
    """As a reader sees it, with its unit."""
    value: float | None = None
    """By which a column is sorted; None where there is none."""
    key: str = ""
    """Key of its `Formula`, if the page has one."""


Cell = str | Number
"""Text, or a number that unfolds."""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One table of a page."""

    title: str
    """Caption."""
    heads: Sequence[str]
    """Heads of all columns; the first is that of the rows' names."""
    rows: Sequence[Sequence[Cell]]
    """Cells of each row, the first being its name."""
    folded: bool = False
    """Whether it is shown only when a reader opens it."""


Block = str | Sheet | Drawing | Sequence[Drawing]
"""Paragraph, table, figure, or figures side by side."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """Heading with what stands under it."""

    title: str
    """Heading."""
    blocks: Sequence[Block]
    """Paragraphs, tables, figures; figures in a sequence stand side by side where there is room."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything that a page shows."""

    title: str
    """Heading of the page: what was run."""
    answers: Sequence[str]
    """What came out, in sentences."""
    sections: Sequence[Section]
    """The rest, in order."""
    asked: Sequence[tuple[str, str]] = ()
    """What was asked beyond the study's options, by name."""
    formulas: Mapping[str, Formula] = field(default_factory=dict)
    """Origins of the numbers by key."""

    def html(self) -> str:
        """Return the page as HTML, style and script within."""
        contents = [(f"s{at}", one) for at, one in enumerate(self.sections)]
        links = "".join(f'<li><a href="#{key}">{text(one.title)}</a></li>' for key, one in contents)
        asked = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in self.asked)
        answers = "".join(f"<p>{text(one)}</p>" for one in self.answers)
        body = "\n".join(_section(key, one, self.formulas) for key, one in contents)
        return "\n".join(
            [
                '<!doctype html><html lang="en"><head><meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta name="color-scheme" content="light dark">',
                f"<title>{text(self.title)}</title>",
                f"<style>{_shipped('page.css')}</style></head><body>",
                '<a class="skip" href="#answer">To the answer</a>',
                f"<header><h1>{text(self.title)}</h1>",
                f'<nav aria-label="Contents"><ul>{links}</ul></nav></header><main>',
                '<section aria-labelledby="asked"><h2 id="asked">What was asked</h2>',
                f'<dl class="asked">{asked}</dl></section>',
                '<section class="answer" aria-labelledby="answer"><h2 id="answer">What came out</h2>',
                f"{answers}</section>",
                body,
                '</main><div id="tip" role="status" aria-live="polite" hidden></div>',
                f'<script type="application/json" id="formulas">{_data(self.formulas)}</script>',
                f"<script>{_shipped('page.js')}</script></body></html>\n",
            ]
        )


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Nothing is fetched from anywhere, which a browser then holds the page to."""


def framed(page: Page, words: Sequence[str], document: Mapping[str, Any]) -> Page:
    """Return a page with what was asked at its head, and what somebody needs to run it again at its end.

    Parameters
    ----------
    page : Page
        What a study tells.
    words : sequence of str
        The command that asks it again.
    document : mapping
        The record with its head (`experiments.study.document`).
    """
    asked = [("command", shlex.join(words))]
    for key in ("model", "plan", "accelerators"):
        value = document.get(key)
        if value not in (None, "", []):
            asked.append((key, f"{value:,}" if isinstance(value, int) else str(value)))
    settings = document.get("settings") or ()
    asked.append(("changed", "; ".join(map(str, settings)) or "nothing"))
    return replace(page, asked=[*asked, *page.asked], sections=[*page.sections, _configuration(document)])


def _configuration(document: Mapping[str, Any]) -> Section:
    """Return configuration and versions."""
    options = [[key, _option(value)] for key, value in document["options"].items()]
    commit = git_commit()
    made = [*versions().items(), *([("commit", commit)] if commit else [])]
    hashes = [[f"{one.path.parent.parent.name}/{one.path.name}", one.sha256] for one in tables()]
    return Section(
        title="Configuration and versions",
        blocks=[
            Sheet(title="Options", heads=("option", "value"), rows=options),
            Sheet(title="Versions", heads=("what", "version"), rows=[[key, value] for key, value in made]),
            Sheet(title="Parameter tables by hash", heads=("table", "SHA-256"), rows=hashes, folded=True),
        ],
    )


def _option(value: object) -> str:
    shown = plain(value)
    if isinstance(shown, list):
        return ", ".join(map(str, shown)) or "\u2013"
    return "\u2013" if shown is None or shown == "" else str(shown)


def write_page(page: Page, path: Path) -> Path:
    """Write a page, whole or not at all; return its path.

    Raises
    ------
    HeliographError
        If the file is not called a page, or cannot be written.
    """
    check_page_path(path)
    write_atomically(path, page.html())
    return path


def check_page_path(path: Path) -> None:
    """Refuse a path that is no page's.

    Raises
    ------
    ParameterError
        If its suffix is not that of a page, or it is a directory.
    HeliographError
        If its directory is missing or read-only.
    """
    if path.suffix != SUFFIX or path.is_dir():
        msg = f"--report {path}: a report is one file that ends in {SUFFIX}; try --report report{SUFFIX}"
        raise ParameterError(msg)
    check_writable(path)


def text(value: object) -> str:
    """Return a value as text that HTML shows as it stands."""
    return escape(plain_text(str(value)))


def _section(key: str, one: Section, formulas: Mapping[str, Formula]) -> str:
    blocks = "\n".join(_block(f"{key}b{at}", block, formulas) for at, block in enumerate(one.blocks))
    return f'<section aria-labelledby="{key}"><h2 id="{key}">{text(one.title)}</h2>{blocks}</section>'


def _block(
    key: str, block: str | Sheet | Drawing | Sequence[Drawing], formulas: Mapping[str, Formula]
) -> str:
    match block:
        case str():
            return f"<p>{text(block)}</p>"
        case Sheet():
            return _sheet(key, block, formulas)
        case Drawing():
            return _drawing(block)
        case _:
            return f'<div class="beside">{"".join(map(_drawing, block))}</div>'


def _drawing(one: Drawing) -> str:
    names = "".join(
        f'<li><span class="swatch" style="background:{text(colour)}"></span>{text(name)}</li>'
        for name, colour in one.legend
    )
    legend = f'<ul class="legend">{names}</ul>' if names else ""
    note = f'<p class="note">{text(one.note)}</p>' if one.note else ""
    return f"<figure><figcaption>{text(one.title)}</figcaption>{legend}{one.svg}{note}</figure>"


def _sheet(key: str, one: Sheet, formulas: Mapping[str, Formula]) -> str:
    """Return a table with the field that filters its rows; each head sorts by its column."""
    heads = "".join(
        f'<th scope="col"><button type="button" class="sort">{text(head)}</button></th>' for head in one.heads
    )
    rows = "\n".join(_row(row, formulas) for row in one.rows)
    many = len(one.rows)
    tools = (
        f'<div class="tools"><label>Show rows with <input type="search" data-filter="{key}"></label> '
        f'<span class="count" role="status" data-count="{key}">{many} rows</span></div>'
    )
    table = (
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{key}c">'
        f'<table id="{key}"><caption id="{key}c">{text(one.title)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    shown = (tools if many > _FEW else "") + table
    if one.folded:
        return f"<details><summary>{text(one.title)} ({many})</summary>{shown}</details>"
    return shown


_LONG, _WIDE_CELL = 60, '<td class="long">'
"""Letters from which on a cell is given more room, and how."""
_FEW = 5
"""Rows from which on a table has a field that filters them."""


def _row(row: Sequence[Cell], formulas: Mapping[str, Formula]) -> str:
    first, *others = row
    cells = "".join(_td(one, formulas) for one in others)
    return f'<tr><th scope="row">{_cell(first, formulas)}</th>{cells}</tr>'


def _td(one: Cell, formulas: Mapping[str, Formula]) -> str:
    if isinstance(one, str):
        return f"{_WIDE_CELL if len(one) > _LONG else '<td>'}{text(one)}</td>"
    order = "" if one.value is None else f' data-value="{one.value!r}"'
    return f'<td class="number"{order}>{_cell(one, formulas)}</td>'


def _cell(one: Cell, formulas: Mapping[str, Formula]) -> str:
    if isinstance(one, str):
        return text(one)
    if one.key not in formulas:
        return text(one.text)
    return (
        f'<button type="button" class="why" aria-expanded="false" data-key="{text(one.key)}">'
        f"{text(one.text)}</button>"
    )


def _data(formulas: Mapping[str, Formula]) -> str:
    """Return what numbers unfold to as JSON that cannot end the element it stands in.

    Keys are told once, in a list; elsewhere they are places in it, and texts are told once as well.
    """
    places = {key: at for at, key in enumerate(formulas)}
    words: dict[str, int] = {}

    def word(one: str) -> int:
        return words.setdefault(plain_text(one), len(words))

    items = [
        [
            *map(word, (one.label, one.value, one.range, one.text, one.status, one.source)),
            [places[each] for each in one.follows if each in places],
            [places[each] for each in one.inputs if each in places],
        ]
        for one in formulas.values()
    ]
    data = {"keys": list(formulas), "items": items, "words": list(words)}
    told = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return told.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _shipped(name: str) -> str:
    return files("heliograph.report_page").joinpath(name).read_text(encoding="utf-8")


def parameter_formulas(owner: str, parameters: Iterable[Parameter]) -> dict[str, Formula]:
    """Return what each parameter of something unfolds to, by ``owner/path``."""
    return {
        f"{owner}/{one.path}": Formula(
            label=one.path,
            text="a number of the description, as it stands",
            status=one.status,
            source=one.source,
            value=one.told,
            range=parameter_range(one),
        )
        for one in parameters
    }


def parameter_range(one: Parameter) -> str:
    """Return the ends of a parameter's published range; nothing where it has none."""
    ends = ("\u2013" if end is None else format_quantity(end, one.unit) for end in (one.low, one.high))
    return "" if one.low is None and one.high is None else " to ".join(ends)


def sheet_of(parameters: Mapping[str, Sequence[Parameter]], title: str) -> Sheet:
    """Return the table of all parameters of several things, a row for each number that they share."""
    owners: dict[tuple[object, ...], list[str]] = {}
    known: dict[tuple[object, ...], Parameter] = {}
    for name, found in parameters.items():
        for one in found:
            same: tuple[object, ...] = (one.path, one.value, one.status, one.source)
            owners.setdefault(same, []).append(name)
            known[same] = one
    rows: list[list[Cell]] = []
    for same, one in known.items():
        value = one.value if isinstance(one.value, int | float) else None
        of = "all" if len(owners[same]) == len(parameters) > 1 else ", ".join(owners[same])
        shown = Number(text=one.told, value=value)
        rows.append([one.path, shown, parameter_range(one), one.status, one.source, of])
    heads = ("number", "value", "range", "status", "source", "of")
    return Sheet(title=title, heads=heads, rows=rows, folded=True)


def told_sheet(table: ReportTable, head: str = "", *, key: str = "") -> Sheet:
    """Return a table of the terminal as one of a page, notes as its last column.

    Parameters
    ----------
    table : ReportTable
        As the terminal has it.
    head : str
        Head of the column of names.
    key : str
        Key of the formula that all its numbers unfold to.
    """
    noted = any(row.note for row in table.rows)
    rows: list[Sequence[Cell]] = [
        [row.label.strip(), *(_told_cell(one, key) for one in row.values), *([row.note] if noted else [])]
        for row in table.rows
    ]
    heads = (head, *table.heads, *(["note"] if noted else []))
    return Sheet(title=table.title, heads=heads, rows=rows)


def _told_cell(shown: str, key: str) -> Cell:
    """Return a value of the terminal: as a number that is sorted as one, or as the text that it is."""
    if _NUMBER.match(shown) is None:
        return shown
    return Number(text=shown, value=_sorted_by(shown), key=key)


def _sorted_by(shown: str) -> float | None:
    """Return the number that a text begins with, where it has no prefix that scales it."""
    found = _PLAIN.fullmatch(shown)
    return float(found[1].replace(",", "")) if found else None


_NUMBER = re.compile(r"[-+\u2013]?\d")
_PLAIN = re.compile(r"([-+]?[\d,]*\.?\d+)(?: (?:dB|%|x|\$))?")
