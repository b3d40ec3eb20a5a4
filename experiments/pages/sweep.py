"""Page of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from experiments.pages import asked, end
from experiments.study import Row, Study
from experiments.sweep import BestFound, States, Swept
from heliograph.catalogue import description
from heliograph.parameters import SET, Parameter
from heliograph.records import COLUMNS
from heliograph.report_page.drawings import COLOURS, Line, colour, lines
from heliograph.report_page.page import Cell, Drawing, Formula, Number, Page, Section, Sheet, sheet_of
from heliograph.report_page.provenance import is_number, numbers, step_formulas, told
from heliograph.systems.names import is_system
from simulator.errors import ParameterError
from simulator.units import dimension_of

SHOWN = {
    "step_time_s": "step time",
    "energy_per_token_j": "energy",
    "usd_per_million_tokens": "cost, 10\u2076 tokens",
    "mean_power_w": "mean power",
    "snr_db": "SNR",
    "effective_bits": "effective bits",
    "photonic_cores": "cores",
}
"""Columns of a step that the table has, with their heads."""
BEST = {
    "step_time_s": "time",
    "energy_per_token_j": "energy",
    "usd_per_million_tokens": "cost of 10\u2076 tokens",
}
"""Columns whose least value is told, with their names."""
MOST_ROWS = 1_000
"""Points of the table; a choice."""
MOST_UNFOLDED = 300
"""Points whose numbers unfold to values of their own; a choice. Beyond, a column has one formula."""
MOST_MARKS = 2_000
"""Points of a picture; a choice."""
MOST_VALUES = 40
"""Values of an axis up to which the least at each is drawn; a choice. An optimiser takes more, each once."""
EVERY = "every point"
"""First part of the keys of what numbers of many points unfold to."""


def page(name: str, study: Study, found: Swept | States, document: Mapping[str, Any]) -> Page:
    """Return the page of a sweep."""
    if isinstance(found, States):
        msg = "--report is a page of results, and --status runs none; leave one of them out"
        raise ParameterError(msg)
    rows, axes = found.rows(), found.grid.axes
    done = [row for row in rows if not row.get("error")]
    first = done[0] if done else rows[0]
    system = str(first.get("system") or "")
    parameters = description(system) if is_system(system) else []
    shown = _columns(rows, axes)
    about = " on ".join(str(first[one]) for one in ("model", "system") if first.get(one))
    sections = [
        *_front(found),
        Section(title="Pictures", blocks=[_pictures(found, done)]),
        Section(title="All points", blocks=_table(rows, axes, shown)),
        Section(
            title="Every number that stays as it is",
            blocks=[_fixed(system, parameters)],
        ),
        end(document),
    ]
    return Page(
        title=f"{about or found.grid.study}: {len(rows):,} points over {', '.join(axes)}",
        asked=[
            *asked(name, study, document),
            *((axis, ", ".join(_shown(axis, value) for value in values)) for axis, values in axes.items()),
        ],
        answers=[*answers_of(rows, done, axes), *found.notes],
        sections=sections,
        formulas=sweep_formulas(rows[:MOST_ROWS], axes, shown, system, parameters),
    )


def _front(found: Swept) -> list[Section]:
    """Return the points none of which another beats in everything, where an optimiser looked for them."""
    if not isinstance(found, BestFound):
        return []
    names = (*found.grid.axes, *found.front.columns)
    cells: list[Sequence[Cell]] = [
        [str(at + 1), *(numbers(name, row.get(name), "") for name in names)]
        for at, row in enumerate(found.front.rows())
    ]
    sheet = Sheet(title="None of them is better in everything than another", heads=("", *names), rows=cells)
    return [Section(title="Front", blocks=[sheet])]


def _columns(rows: Sequence[Row], axes: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns of the table with their heads: those of a step, or all that hold numbers."""
    usual = {
        one: head
        for one, head in SHOWN.items()
        if one not in axes and any(is_number(row.get(one)) for row in rows)
    }
    if usual:
        return usual
    return {
        one: one
        for one in dict.fromkeys(one for row in rows for one in row)
        if one not in axes and any(isinstance(row.get(one), float) for row in rows)
    }


def _shown(name: str, value: object) -> str:
    return told(name.rpartition(".")[2], value)


def _point(row: Row, axes: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis} {_shown(axis, row.get(axis))}" for axis in axes)


def answers_of(rows: Sequence[Row], done: Sequence[Row], axes: Mapping[str, Any]) -> list[str]:
    """Return the best points, and how many have no result and why."""
    sentences = []
    for column, word in BEST.items():
        ran = [row for row in done if is_number(row.get(column))]
        if ran:
            ordered = sorted(ran, key=itemgetter(column))
            best, worst = ordered[0], ordered[-1]
            least = _shown(column, best[column])
            if len(ran) > 1 and least == _shown(column, worst[column]):
                sentences.append(f"All points have the same {word}: {least}.")
            else:
                sentences.append(f"Least {word}: {least} at {_point(best, axes)}.")
    failed = [row for row in rows if row.get("error")]
    if failed:
        sentences.append(
            f"{len(failed):,} of {len(rows):,} points have no result; the first says: {failed[0]['error']}."
        )
    return [*sentences, "Every underlined number unfolds to its formula, inputs, status and source."]


def _pictures(found: Swept, done: Sequence[Row]) -> list[Drawing]:
    """Return the picture that the command draws, the same over every other axis, and energy over time."""
    axes = found.grid.axes
    swept = [one for one, values in axes.items() if len(values) > 1 and all(map(is_number, values))]
    wanted = [(found.x, found.y), *((one, found.y) for one in swept), ("step_time_s", "energy_per_token_j")]
    drawings = (_picture(axes, done, x, y) for x, y in dict.fromkeys(wanted))
    return [one for one in drawings if one is not None]


def _picture(axes: Mapping[str, Any], done: Sequence[Row], x: str, y: str) -> Drawing | None:
    """Return one column over another: a line for each value of the rest, or of many the least."""
    drawn = [row for row in done if is_number(row.get(x)) and is_number(row.get(y))]
    if not drawn:
        return None
    thinned = drawn[:: -(-len(drawn) // MOST_MARKS)]
    along = next((one for one in (x, *axes) if one in axes), x)
    others = [one for one, values in axes.items() if one != along and len(values) > 1]
    named: dict[str, list[tuple[float, float]]] = {}
    for row in thinned:
        label = ", ".join(f"{one} {_shown(one, row[one])}" for one in others)
        named.setdefault(label, []).append((float(row[x]), float(row[y])))
    if len(named) <= COLOURS:
        drawn_lines = [Line(label=label, points=points, joined=x in axes) for label, points in named.items()]
    else:
        every = [point for points in named.values() for point in points]
        drawn_lines = [Line(label="every point", points=every, joined=False)]
        least = {
            at: min(up for across, up in every if across == at) for at in sorted({one for one, _ in every})
        }
        if x in axes and len(least) <= MOST_VALUES:
            drawn_lines.append(Line(label="the least at each value", points=list(least.items())))
    title = f"{_head(y)} over {_head(x)}"
    legend = [(one.label, colour(place)) for place, one in enumerate(drawn_lines) if one.label]
    note = f"{len(thinned):,} of {len(drawn):,} points." if len(thinned) < len(drawn) else ""
    svg = lines(title, drawn_lines, x=(_head(x), _unit(x)), y=(_head(y), _unit(y)))
    return Drawing(title=title, svg=svg, legend=legend if len(drawn_lines) > 1 else legend[:0], note=note)


def _head(column: str) -> str:
    return SHOWN.get(column, COLUMNS.get(column, column))


def _unit(column: str) -> str:
    unit = (dimension_of(column.rpartition(".")[2]) or ("", ""))[1]
    return f"{unit}/token" if "_per_token_" in column else unit


def _table(rows: Sequence[Row], axes: Mapping[str, Any], shown: Mapping[str, str]) -> list[str | Sheet]:
    """Return the table of the points, and a sentence where it does not have all."""
    kept = rows[:MOST_ROWS]
    failed = any(row.get("error") for row in kept)
    many = len(kept) > MOST_UNFOLDED
    cells: list[Sequence[Cell]] = []
    for at, row in enumerate(kept):
        owner = EVERY if many else f"point {at + 1}"
        inputs = [_input(axis, row.get(axis), owner) for axis in axes]
        outputs = [numbers(column, row.get(column), f"{owner}/{column}") for column in shown]
        cells.append([str(at + 1), *inputs, *outputs, *([str(row.get("error") or "")] if failed else [])])
    heads = ("point", *axes, *shown.values(), *(["why not"] if failed else []))
    table = Sheet(title="A row for each point; click a head to sort", heads=heads, rows=cells)
    if len(rows) > MOST_ROWS:
        return [f"The first {MOST_ROWS:,} of {len(rows):,} points; --export FILE.csv has all.", table]
    return [table]


def _input(axis: str, value: object, owner: str) -> Cell:
    shown = _shown(axis, value)
    if not isinstance(value, int | float):
        return shown
    return Number(text=shown, value=float(value), key=f"{owner}/{axis}")


def sweep_formulas(
    rows: Sequence[Row],
    axes: Mapping[str, Any],
    shown: Mapping[str, str],
    system: str,
    parameters: Sequence[Parameter],
) -> dict[str, Formula]:
    """Return what the numbers of the table unfold to, those of many points by column alone."""
    many = len(rows) > MOST_UNFOLDED
    fixed = [one for one in parameters if not any(one.path.endswith(axis) for axis in axes)]
    formulas = step_formulas({}, fixed, owner=system)
    one_row = [next((row for row in rows if not row.get("error")), rows[0])]
    for at, row in enumerate(one_row if many else rows):
        owner = EVERY if many else f"point {at + 1}"
        own = step_formulas(row, [], owner=owner)
        given = tuple(f"{owner}/{axis}" for axis in axes)
        steps = step_formulas(row, fixed, owner=system)
        for key, one in own.items():
            inputs = steps[f"{system}/{key.partition('/')[2]}"].inputs
            value = "" if many else one.value
            formulas[key] = Formula(
                label=one.label,
                text=one.text,
                status=one.status,
                source=one.source,
                value=value,
                follows=(*one.follows, *given),
                inputs=inputs,
            )
        for axis in axes:
            formulas[f"{owner}/{axis}"] = Formula(
                label=axis,
                text="set by the sweep",
                status=SET,
                source="what was asked",
                value="" if many else _shown(axis, row.get(axis)),
            )
        for column in shown:
            formulas.setdefault(f"{owner}/{column}", _other(column, owner, given))
    return formulas


def _other(column: str, owner: str, given: tuple[str, ...]) -> Formula:
    """Return what a column unfolds to that has no law of a step's record."""
    return Formula(
        label=f"{COLUMNS.get(column, column)} ({owner})",
        text="column of the study's own table",
        status="simulated",
        source="docs/records.md",
        follows=given,
    )


def _fixed(system: str, parameters: Sequence[Parameter]) -> str | Sheet:
    if not parameters:
        return f"'{system}' is described by a file; heliograph show lists every number of it."
    return sheet_of(
        {system: parameters}, f"Parameters of {system} as it ships; the sweep sets those of its columns"
    )
