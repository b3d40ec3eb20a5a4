"""Command ``heliograph validate``: the kinds of validation, and the report and figure of a table's outcomes.

Each kind has a table of published measurements and a function that predicts every row of it
(`Kind.outcomes`). A `Validation` holds the outcomes of one table.
"""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from experiments.study import Block, Progress, Result, Row, Study, option
from experiments.validation import (
    collectives,
    famous,
    kernels,
    network,
    photonic,
    training,
)
from experiments.validation.peers import lightening_transformer
from experiments.validation.peers.topoopt import read_networks
from experiments.validation.rows import (
    FAR_OFF,
    REFERENCE,
    Outcome,
    Record,
    Statistics,
    Supplement,
    read_records,
    statistics,
)
from heliograph.figures import PALETTE, dense_ticks, name_rows, new_figure, plain_ticks
from heliograph.processes import OnProgress
from heliograph.report import ReportRow, plain_text, prefix_of, table_text
from simulator.errors import ParameterError, SuspectWarning, nearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BANDS = ((0.10, "--"), (0.20, ":"))
"""Relative errors at which lines are drawn, and their style."""
MOST_COLOURS = 9
"""Sources with a colour of their own, the largest ones; the others share the last colour."""
_MARKERS = "osD^vP"
_MARK: Mapping[str, Any] = MappingProxyType(
    {"linestyle": "none", "markersize": 3.6, "markeredgewidth": 0.3, "markeredgecolor": "white"}
)
_LONGEST_NAME = 56


NEAR = 0.8
"""Similarity of names (`difflib`) above which a column is taken for a misspelt one; a choice."""
MOST_NAMED = 40
"""Most rows that are named on the terminal."""
_MOST_REASONS = 12
_LONGEST_SOURCE = 48
_LONGEST_ROW = 120


def picture(validation: Validation) -> Figure:
    """Draw predicted over measured of all rows, with lines at 10 and 20 %.

    The abscissa is the measured value, and sources have colours. Rows of several units have no common
    abscissa: each source then is one line of points.

    Parameters
    ----------
    validation : Validation
        The rows, of which at least one is predicted and measured.
    """
    rows = tuple(one for one in validation.predicted if one.measured and one.predicted)
    figure = _strips(rows) if len({one.unit for one in rows}) > 1 else _scatter(rows)
    found = statistics(rows)
    figure.suptitle(
        f"{validation.kind}: {found.n} rows, mean error {found.mean_abs_error or 0.0:.1%}, median "
        f"{found.median or 0.0:.1%}; dashed 10 %, dotted 20 %",
        fontsize=9.0,
    )
    return figure


def _scatter(rows: Sequence[Outcome]) -> Figure:
    """Draw the ratios of rows of one unit over their measured values."""
    unit = rows[0].unit
    values = sorted(one.measured or 0.0 for one in rows)
    prefix, factor = prefix_of(values[len(values) // 2]) if unit != "1" else ("", 1.0)
    figure = new_figure(4.6)
    axes = figure.add_subplot()
    _bands(axes.axhline)
    for index, (name, group) in enumerate(_groups(rows)):
        axes.plot(
            [(one.measured or 0.0) / factor for one in group],
            _ratios(group),
            marker=_MARKERS[index % len(_MARKERS)],
            color=PALETTE[index % len(PALETTE)],
            label=f"{_legend_name(name)} ({len(group)})",
            **_MARK,
        )
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        dense_ticks(axis)
        plain_ticks(axis, "{:,.12g}".format, minor=False)
    axes.set_xlabel(f"measured ({prefix}{unit})" if unit != "1" else "measured")
    axes.set_ylabel("predicted over measured")
    figure.legend(loc="outside lower center", ncols=2, fontsize=6.5)
    return figure


def _strips(rows: Sequence[Outcome]) -> Figure:
    """Draw the ratios of rows of several units, a line of points for each source."""
    ordered = _largest_first(rows, lambda one: family(one.source))
    figure = new_figure(1.4 + 0.24 * len(ordered))
    axes = figure.add_subplot()
    _bands(axes.axvline)
    units = dict.fromkeys(one.unit for one in rows)
    for index, unit in enumerate(units):
        of_unit = [
            (place, [one for one in group if one.unit == unit]) for place, (_, group) in enumerate(ordered)
        ]
        axes.plot(
            [ratio for _, group in of_unit for ratio in _ratios(group)],
            [place for place, group in of_unit for _ in group],
            marker=_MARKERS[index % len(_MARKERS)],
            color=PALETTE[index % len(PALETTE)],
            label="ratio" if unit == "1" else unit,
            **_MARK,
        )
    axes.set_xscale("log")
    dense_ticks(axes.xaxis)
    plain_ticks(axes.xaxis, minor=False)
    axes.set_xlabel("predicted over measured")
    name_rows(axes, [f"{_legend_name(name)} ({len(group)})" for name, group in ordered])
    axes.tick_params(axis="y", labelsize=6.5)
    figure.legend(loc="outside lower center", ncols=min(len(units), 8), fontsize=6.5)
    return figure


def _ratios(rows: Iterable[Outcome]) -> list[float]:
    return [(one.predicted or 0.0) / (one.measured or 1.0) for one in rows]


def _bands(line: Callable[..., object]) -> None:
    """Draw lines at a ratio of one, and at errors of 10 and 20 %."""
    line(1.0, color="black", linewidth=0.8)
    for band, style in BANDS:
        for ratio in (1.0 + band, 1.0 - band):
            line(ratio, linestyle=style, color="grey", linewidth=0.7)


def family(source: str) -> str:
    """Return the part of a source's name that its tables share: up to a bracket, comma, colon or version."""
    for mark in (" (", ",", ":", " v2"):
        source = source.partition(mark)[0]
    return source.strip() or "no source"


def _legend_name(name: str) -> str:
    """Return a name as the legend shows it: printable, not too long, never hidden by a leading ``_``."""
    return _shortened(plain_text(name).strip(" _") or "no source", _LONGEST_NAME)


def _groups(rows: Sequence[Outcome]) -> list[tuple[str, list[Outcome]]]:
    """Return the rows by source or family, the largest first; those beyond `MOST_COLOURS` as one group."""
    crowded = len({one.source for one in rows}) > MOST_COLOURS + 1
    ordered = _largest_first(rows, lambda one: family(one.source) if crowded else one.source)
    if len(ordered) <= MOST_COLOURS + 1:
        return ordered
    rest = [one for _, group in ordered[MOST_COLOURS:] for one in group]
    return [*ordered[:MOST_COLOURS], ("others", rest)]


def _largest_first(
    rows: Sequence[Outcome], name: Callable[[Outcome], str]
) -> list[tuple[str, list[Outcome]]]:
    """Return rows by a name of each, the largest group first."""
    groups: dict[str, list[Outcome]] = {}
    for one in rows:
        groups.setdefault(name(one), []).append(one)
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of validation, with the functions that read its tables and predict a row."""

    needs: Sequence[Sequence[str]]
    """Groups of columns; a table of this kind has at least one column of each group."""
    outcomes: Callable[[Record], Iterable[Outcome]]
    """Predicts a row; most rows have one outcome."""
    label: str = ""
    """Label of the progress bar; empty shows none."""
    every: int = 1
    """Rows between two updates of the progress bar."""
    read: Callable[[Path, Sequence[Sequence[str]]], list[Record]] = lambda path, needs: read_records(
        path, needs=needs
    )
    """Reads a file, given `needs`; of networks also a directory."""
    supplements: tuple[Supplement, ...] = ()
    """Further tables, below the report and in files."""
    table: str = ""
    """Stem of the table that ships, if it is not the name of the kind."""
    names_skipped: bool = False
    """Whether the report names each skipped row below the reason."""
    one_format: bool = False
    """Whether all tables of the kind have the columns of the one that ships, so that a misspelt one shows."""


def _one(outcome: Callable[[Record], Outcome]) -> Callable[[Record], Iterable[Outcome]]:
    """Return the function `Kind.outcomes` of rows that have one outcome each."""
    return lambda record: (outcome(record),)


KINDS = MappingProxyType(
    {
        "training": Kind(
            needs=training.NEEDS,
            outcomes=_one(training.outcome),
            label="rows",
            every=20,
            supplements=(Supplement(text=training.ranking_text), Supplement(text=training.refused_text)),
            one_format=True,
        ),
        "famous": Kind(
            needs=famous.NEEDS,
            outcomes=_one(famous.outcome),
            label="famous runs",
            supplements=(Supplement(text=famous.famous_text),),
            names_skipped=True,
            one_format=True,
        ),
        "famous-search": Kind(
            needs=famous.NEEDS,
            outcomes=_one(famous.searched),
            label="searches",
            supplements=(Supplement(text=famous.search_text),),
            table="famous",
        ),
        "kernels": Kind(needs=kernels.NEEDS, outcomes=_one(kernels.outcome)),
        "collectives": Kind(
            needs=collectives.NEEDS,
            outcomes=_one(collectives.outcome),
            supplements=(
                Supplement(name="sizes", find=collectives.size_errors, text=collectives.sizes_text),
            ),
        ),
        "memory": Kind(needs=training.MEMORY_NEEDS, outcomes=_one(training.memory_outcome)),
        "boards": Kind(needs=kernels.BOARD_NEEDS, outcomes=_one(kernels.board_outcome)),
        "power": Kind(needs=famous.POWER_NEEDS, outcomes=_one(famous.power_outcome), names_skipped=True),
        "photonic": Kind(
            needs=photonic.NEEDS,
            outcomes=photonic.outcomes,
            supplements=lightening_transformer.SUPPLEMENTS,
            names_skipped=True,
        ),
        "network": Kind(
            needs=network.NEEDS,
            outcomes=network.outcomes,
            read=read_networks,
            supplements=network.SUPPLEMENTS,
        ),
    }
)
"""Kinds of validation by the word of the command."""


def validate(kind: str, *, data: Path | None = None, progress: OnProgress | None = None) -> Validation:
    """Return the predictions of all rows of a table of published measurements.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    data : pathlib.Path, optional
        CSV file of measurements, for networks also a directory of task graphs; the shipped table by default.
    progress : callable, optional
        Told a label, how many rows are done, and how many there are.
    """
    if kind not in KINDS:
        msg = f"nothing called '{kind}' to validate; {nearest(kind, KINDS, noun='kind')}"
        raise ParameterError(msg)
    chosen = KINDS[kind]
    shipped = REFERENCE / f"{chosen.table or kind}.csv"
    records = chosen.read(shipped if data is None else data, chosen.needs)
    if data is not None and chosen.one_format:
        _warn_of_columns(records[0], chosen.read(shipped, chosen.needs)[0])
    outcomes: list[Outcome] = []
    for number, record in enumerate(records, start=1):
        outcomes += chosen.outcomes(record)
        if progress is not None and chosen.label and (number % chosen.every == 0 or number == len(records)):
            progress(chosen.label, number, len(records))
    return Validation(kind=kind, outcomes=tuple(outcomes))


def _warn_of_columns(own: Record, shipped: Record) -> None:
    """Warn of columns spelt almost like one that is read."""
    for column in own.cells.keys() - shipped.cells.keys():
        near = difflib.get_close_matches(column, shipped.cells.keys() - own.cells.keys(), n=1, cutoff=NEAR)
        if near:
            msg = f"column '{column}' is not read; did you mean '{near[0]}'?"
            warnings.warn(msg, SuspectWarning, stacklevel=3)


@dataclass(frozen=True, kw_only=True)
class Validation(Result):
    """Predicted and published values of all rows of a table."""

    kind: str
    """Kind of validation, one of `KINDS`."""
    outcomes: tuple[Outcome, ...]
    """Rows in the order of the file."""

    @property
    def predicted(self) -> tuple[Outcome, ...]:
        """Rows that were predicted."""
        return tuple(one for one in self.outcomes if one.relative_error is not None)

    @property
    def skipped(self) -> tuple[Outcome, ...]:
        """Rows that were skipped."""
        return tuple(one for one in self.outcomes if one.skipped is not None)

    @property
    def far_off(self) -> tuple[Outcome, ...]:
        """Rows that miss by more than `FAR_OFF`, the worst first."""
        rows = [one for one in self.predicted if one.far_off]
        return tuple(sorted(rows, key=lambda one: (-abs(one.relative_error or 0.0), one.id)))

    def of(self, *sources: str) -> Statistics:
        """Return the statistics over all rows whose source begins with one of some texts."""
        return statistics(one for one in self.outcomes if one.source.startswith(sources))

    def by_source(self) -> dict[str, Statistics]:
        """Return the statistics of each source, in the order in which they first appear."""
        rows: dict[str, list[Outcome]] = {}
        for one in self.outcomes:
            rows.setdefault(one.source, []).append(one)
        return {source: statistics(some) for source, some in rows.items()}

    def overall(self) -> Statistics:
        """Return the statistics of all rows."""
        return statistics(self.outcomes)

    def report(self) -> list[Block]:
        """Return statistics by source, rows that miss, reasons of skipped rows, and further tables."""
        kind = KINDS[self.kind]
        parts = [self._table(), *self._misses(), *self._skipped(named=kind.names_skipped)]
        if kind.supplements:
            below = [one.text(one.find(self.outcomes)) for one in kind.supplements]
            parts += ["\n", "\n".join(filter(None, below))]
        return ["".join(parts)]

    def _table(self) -> str:
        """Return the table of statistics by source, without columns that are empty in all lines."""
        columns = ("rows", "mean", "median", "p90", "max", "bias", "constant", "skipped")
        skipped = Counter(one.source for one in self.skipped)
        rows = [
            ReportRow(_shortened(source), (*_cells(found), str(skipped[source] or "")))
            for source, found in self.by_source().items()
        ]
        overall = (*_cells(self.overall()), str(len(self.skipped) or ""))
        rows.append(ReportRow("all", overall, section=True))
        used = [
            index for index in range(len(columns)) if any(row.values[index] not in {"", "-"} for row in rows)
        ]
        rows = [dataclasses.replace(row, values=tuple(row.values[index] for index in used)) for row in rows]
        title = f"Predicted against published: {self.kind} (relative error of each row)"
        return table_text(title, tuple(columns[at] for at in used), rows, dense=True)

    def _misses(self) -> list[str]:
        """Return a line for each row that misses by more than `FAR_OFF`, with its hint."""
        rows = self.far_off
        if not rows:
            return [f"\nNo row misses by more than {FAR_OFF:.0%}.\n"]
        lines = [f"\nRows that miss by more than {FAR_OFF:.0%} ({len(rows)}), and where their time goes:\n"]
        lines += [
            f"  {one.id}  {one.relative_error or 0.0:+.0%}  {one.hint}\n".rstrip() + "\n"
            for one in rows[:MOST_NAMED]
        ]
        if len(rows) > MOST_NAMED:
            lines.append(f"  and {len(rows) - MOST_NAMED} more; --json gives every row\n")
        return lines

    def _skipped(self, *, named: bool) -> list[str]:
        """Return the reasons of skipped rows with their counts, each row below its reason if `named`."""
        reasons = Counter(one.skipped for one in self.skipped)
        if not reasons:
            return []
        lines = [f"\nSkipped {len(self.skipped)} rows:\n"]
        for reason, count in reasons.most_common(None if named else _MOST_REASONS):
            lines.append(f"  {count:4d}  {reason}\n")
            names = [one.id for one in self.skipped if named and one.skipped == reason]
            lines += [f"        {_shortened(name, _LONGEST_ROW)}\n" for name in names]
        if not named and len(reasons) > _MOST_REASONS:
            lines.append(
                f"        and {len(reasons) - _MOST_REASONS} more reasons; --json gives each row's\n"
            )
        return lines

    def record(self) -> dict[str, Any]:
        """Return all rows and statistics as plain data."""
        return {
            "rows": [one.record() for one in self.outcomes],
            "by_source": {source: dataclasses.asdict(one) for source, one in self.by_source().items()},
            "overall": dataclasses.asdict(self.overall()),
        }

    def rows(self) -> list[Row]:
        """Return a row for each row of the table."""
        return [
            {key: value for key, value in one.record().items() if not isinstance(value, dict | list)}
            for one in self.outcomes
        ]

    def more_records(self) -> Mapping[str, object]:
        """Return the further tables that have a file."""
        return {one.name: one.records(self.outcomes) for one in KINDS[self.kind].supplements if one.name}

    def figure(self) -> Figure | None:
        """Return predicted over measured; None if nothing was predicted."""
        drawn = any(one.measured and one.predicted for one in self.predicted)
        return picture(self) if drawn else None


def _shortened(text: str, most: int = _LONGEST_SOURCE) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _cells(found: Statistics) -> tuple[str, ...]:
    errors = (found.mean_abs_error, found.median, found.p90, found.max)
    shown = [_percent(value) for value in errors]
    bias = "-" if found.bias is None else f"{found.bias:+.1%}"
    return (str(found.n), *shown, bias, _percent(found.constant_mean_abs_error))


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


@dataclass(frozen=True, kw_only=True)
class Validate(Study):
    """Predictions of one kind against published measurements."""

    kind: str = option(..., "what is validated", metavar="|".join(KINDS), positional=True)
    data: Path | None = option(None, "CSV of measurements instead of the table that ships", metavar="FILE")

    def record_name(self, word: str) -> str:
        """Return a name of its own for each kind."""
        return f"{word}-{self.kind}"

    def run(self, progress: Progress) -> Validation:
        """Return all rows with their predictions."""
        return validate(self.kind, data=self.data, progress=progress)
