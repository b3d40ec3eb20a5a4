"""Page of a run as one HTML file: tables whose numbers open to show their origin, figures, configuration.

A number in a table is a button if its origin is known: it opens to show formula, status, source, the numbers
that it follows from and the parameters behind it. The page holds these formulas once, as JSON; the script
(``page.js``) inserts them as text, never as markup.
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
"""Status of a number of a record: from the event simulation, from a formula, or based on assumed prices."""


@dataclass(frozen=True, kw_only=True)
class _Law:
    """Formula of a column, a category of time or a part of the energy."""

    text: str
    status: str
    source: str
    follows: tuple[str, ...] = ()
    """Columns, or mappings of parts, from which it is computed."""
    inputs: tuple[str, ...] = ()
    """Patterns of the paths of parameters that enter it."""

    def formula(
        self, label: str, value: str, *, follows: tuple[str, ...] = (), inputs: tuple[str, ...] = ()
    ) -> Formula:
        """Return the formula of a number: its name, its value with unit, and the keys of what enters it."""
        return Formula(
            label=label,
            text=self.text,
            status=self.status,
            source=self.source,
            value=value,
            follows=follows,
            inputs=inputs,
        )


TABLE = Path(__file__).with_name("laws.csv")
"""Laws by name: a column, the beginning of a category of time, or the first word of a part of the energy."""


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
"""Law of each category of time, by the beginning of its name."""
PART_LAWS: Mapping[str, _Law] = MappingProxyType(read_laws("energy"))
"""Law of a part of the energy, by the first word of its name (see `part_inputs` for other parts)."""


def step_formulas(
    record: Mapping[str, Any], parameters: Sequence[Parameter], *, owner: str = ""
) -> dict[str, Formula]:
    """Return the formulas of all numbers of a step's record and the parameters that enter them, by key.

    Parameters
    ----------
    record : mapping
        Record of `StepResult.record`.
    parameters : sequence of Parameter
        Parameters of the system as it was run.
    owner : str
        First part of the keys, ``owner/column`` and ``owner/path``; the system's name if not given.
    """
    owner = owner or str(record["system"])
    paths = [one.path for one in parameters]

    def keys(patterns: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{owner}/{path}" for path in paths if any(fnmatchcase(path, one) for one in patterns))

    found = {
        f"{owner}/{column}": law.formula(
            f"{COLUMNS[column]} ({owner})",
            told(column, record[column]),
            follows=_followed(record, owner, column),
            inputs=keys(law.inputs),
        )
        for column, law in LAWS.items()
        if is_number(record.get(column))
    }
    for part, seconds in record.get("time_by_category_s", {}).items():
        law = next(law for start, law in TIME_LAWS.items() if part.startswith(start))
        formula = law.formula(f"{part} ({owner})", format_si(seconds, "s"), inputs=keys(law.inputs))
        found[f"{owner}/step_time_s/{part}"] = formula
    for part, joules in record.get("energy_by_component_j_per_token", {}).items():
        found[f"{owner}/energy_per_token_j/{part}"] = _energy_formula(owner, part, joules, keys)
    for part, size_bytes in record.get("memory_by_kind_bytes", {}).items():
        found[f"{owner}/memory_bytes/{part}"] = _memory_formula(owner, part, size_bytes)
    return found | parameter_formulas(owner, parameters)


_Keys = Callable[[Sequence[str]], tuple[str, ...]]
"""Keys of the parameters whose paths match any of some patterns."""


def _followed(record: Mapping[str, Any], owner: str, column: str) -> tuple[str, ...]:
    """Return the keys of the numbers of a record from which a column is computed: columns and parts."""
    names = LAWS[column].follows
    follows = [f"{owner}/{one}" for one in names if is_number(record.get(one))]
    for parts in (record.get(one) for one in names):
        follows += [f"{owner}/{column}/{part}" for part in parts] if isinstance(parts, Mapping) else []
    return tuple(follows)


def _energy_formula(owner: str, part: str, joules: float, keys: _Keys) -> Formula:
    return Formula(
        label=f"{part} ({owner})",
        text="(energy of its events in the step + its static power \u00d7 accelerators \u00d7 step time) "
        "/ tokens; tokens of a step = global_batch \u00d7 sequence_length of the plan",
        status=DERIVED,
        source=LAWS["energy_per_token_j"].source,
        value=format_si(joules, "J"),
        follows=(f"{owner}/step_time_s",),
        inputs=keys(part_inputs(part)) or keys(("photonic.*",)),
    )


def _memory_formula(owner: str, kind: str, size_bytes: float) -> Formula:
    return Formula(
        label=f"{kind} ({owner})",
        text="bytes of it on the fullest stage, by the plan's axes, sharding and recomputation",
        status=DERIVED,
        source=LAWS["memory_bytes"].source,
        value=format_si(size_bytes, "B"),
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
"""Formats of columns whose values do not follow the usual rule."""
THOUSAND = 1e3
"""Dollars from which on cents are left out."""


def numbers(column: str, value: object, key: str) -> Number:
    """Return a value of a column as a cell that opens to the formula of a key."""
    order = float(value) if is_number(value) else None
    shown = told(column, value) or "\u2013"
    return Number(text=shown, value=order, key=key if order is not None else "")


SUFFIX = ".html"
"""Suffix of a page's file."""


@dataclass(frozen=True, kw_only=True)
class Formula:
    """Origin of a number: its formula and the numbers that enter it."""

    label: str
    """Name of the number."""
    text: str
    """Equation or rule."""
    status: str
    """Simulated, derived, assumed, or the status of a table's row."""
    source: str
    """Source of the equation or of the number."""
    value: str = ""
    """Value with its unit."""
    range: str = ""
    """Ends of the published range."""
    follows: tuple[str, ...] = ()
    """Keys of the numbers from which it is computed."""
    inputs: tuple[str, ...] = ()
    """Keys of the parameters that enter it."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number in a table or a figure."""

    text: str
    """Value with its unit, for a reader."""
    value: float | None = None
    """Value by which a column is sorted, or None."""
    key: str = ""
    """Key of its `Formula`, if the page has one."""


Cell = str | Number
"""Text, or a number."""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One table of a page."""

    title: str
    """Caption."""
    heads: Sequence[str]
    """Heads of all columns, of which the first holds the names of rows."""
    rows: Sequence[Sequence[Cell]]
    """Cells of each row; the first is its name."""
    folded: bool = False
    """Whether the table is hidden until a reader opens it."""


Block = str | Sheet | Drawing | Sequence[Drawing]
"""Paragraph, table, figure, or figures side by side."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """Heading with paragraphs, tables and figures."""

    title: str
    """Heading."""
    blocks: Sequence[Block]
    """Paragraphs, tables, figures; a sequence of figures is shown side by side where there is room."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """Content of a page."""

    title: str
    """Heading of the page: the study that was run."""
    answers: Sequence[str]
    """Main results, in sentences."""
    sections: Sequence[Section]
    """Further sections, in order."""
    asked: Sequence[tuple[str, str]] = ()
    """Names and values under "What was asked", besides those of `framed`."""
    formulas: Mapping[str, Formula] = field(default_factory=dict)
    """Formulas of the numbers by key."""

    def html(self) -> str:
        """Return the page as HTML with style sheet and script inline."""
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
"""Content security policy, by which a browser loads nothing for the page from outside."""


def framed(page: Page, words: Sequence[str], document: Mapping[str, Any]) -> Page:
    """Return a page with command, model and plan at its head, and options and versions at its end.

    Parameters
    ----------
    page : Page
        Results of a study.
    words : sequence of str
        Command that repeats the study.
    document : mapping
        Record of the study with its head (`experiments.study.document`).
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
    """Return the section of options, versions and hashes of the parameter tables."""
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
    """Write a page atomically and return its path.

    Raises
    ------
    HeliographError
        If the path is not that of a page (`check_page_path`), or the file cannot be written.
    """
    check_page_path(path)
    write_atomically(path, page.html())
    return path


def check_page_path(path: Path) -> None:
    """Check that a page can be written to a path.

    Raises
    ------
    ParameterError
        If its suffix is not `SUFFIX`, or it is a directory.
    HeliographError
        If its directory is missing or read-only.
    """
    if path.suffix != SUFFIX or path.is_dir():
        msg = f"--report {path}: a report is one file that ends in {SUFFIX}; try --report report{SUFFIX}"
        raise ParameterError(msg)
    check_writable(path)


def text(value: object) -> str:
    """Return a value as text, escaped for HTML."""
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
    """Return a table with a search field for its rows; each head sorts by its column."""
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
"""Characters above which a cell is wider, and the tag of such a cell."""
_FEW = 5
"""Rows above which a table has a search field."""


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
    """Return the formulas as JSON, escaped so that it cannot close its ``script`` element.

    Keys and texts are listed once each; formulas refer to them by index.
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
    json_text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return json_text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _shipped(name: str) -> str:
    return files("heliograph.report_page").joinpath(name).read_text(encoding="utf-8")


def parameter_formulas(owner: str, parameters: Iterable[Parameter]) -> dict[str, Formula]:
    """Return the formula of each parameter, with its status and source, by ``owner/path``."""
    return {
        f"{owner}/{one.path}": Formula(
            label=one.path,
            text="a number of the description, as it stands",
            status=one.status,
            source=one.source,
            value=one.value_text,
            range=parameter_range(one),
        )
        for one in parameters
    }


def parameter_range(one: Parameter) -> str:
    """Return the ends of a parameter's published range as text, empty without a range."""
    ends = ("\u2013" if end is None else format_quantity(end, one.unit) for end in (one.low, one.high))
    return "" if one.low is None and one.high is None else " to ".join(ends)


def sheet_of(parameters: Mapping[str, Sequence[Parameter]], title: str) -> Sheet:
    """Return the table of the parameters of several systems or parts, equal ones merged to one row."""
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
        shown = Number(text=one.value_text, value=value)
        rows.append([one.path, shown, parameter_range(one), one.status, one.source, of])
    heads = ("number", "value", "range", "status", "source", "of")
    return Sheet(title=title, heads=heads, rows=rows, folded=True)


def told_sheet(table: ReportTable, head: str = "", *, key: str = "") -> Sheet:
    """Return a table of the terminal as a table of a page, with notes in the last column.

    Parameters
    ----------
    table : ReportTable
        Table of the terminal.
    head : str
        Head of the column of names.
    key : str
        Key of the formula of all its numbers.
    """
    noted = any(row.note for row in table.rows)
    rows: list[Sequence[Cell]] = [
        [row.label.strip(), *(_cell_of(one, key) for one in row.values), *([row.note] if noted else [])]
        for row in table.rows
    ]
    heads = (head, *table.heads, *(["note"] if noted else []))
    return Sheet(title=table.title, heads=heads, rows=rows)


def _cell_of(shown: str, key: str) -> Cell:
    """Return the cell of a value's text: a `Number` if it begins with a digit, else the text."""
    if _NUMBER.match(shown) is None:
        return shown
    plain = _PLAIN.fullmatch(shown)  # else its unit has an SI prefix, and it is not sorted
    return Number(text=shown, value=float(plain[1].replace(",", "")) if plain else None, key=key)


_NUMBER = re.compile(r"[-+\u2013]?\d")
_PLAIN = re.compile(r"([-+]?[\d,]*\.?\d+)(?: (?:dB|%|x|\$))?")
