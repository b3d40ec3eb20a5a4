"""The scatter plot of predicted against measured."""

from __future__ import annotations

from pathlib import Path

from matplotlib.ticker import FuncFormatter, NullFormatter

from experiments.validation.outcomes import Outcome, Validation, statistics
from heliograph.report import plain_text, prefix_of
from heliograph.style import PALETTE, new_figure, save, styled
from simulator.errors import HeliographError

BANDS = ((0.10, "--"), (0.20, ":"))
"""Relative errors at which lines are drawn, and their style."""
MOST_COLOURS = 9
"""Sources with a colour of their own, the largest ones; the others share the last colour."""
_MARKERS = "osD^vP"
_MARGIN = 1.4
_LONGEST_NAME = 56


def scatter(validation: Validation, path: Path) -> tuple[Path, Path]:
    """Draw predicted against measured, coloured by source, with lines at 10 and 20 %.

    Where rows have several units, those of the most frequent one are drawn, and the title says so.

    Parameters
    ----------
    validation : Validation
        The rows.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.

    Raises
    ------
    HeliographError
        If no row was predicted, or the file cannot be written.
    """
    rows = validation.predicted
    if not rows:
        msg = "no row could be predicted, so there is nothing to draw; see the reasons"
        raise HeliographError(msg)
    unit = max((one.unit for one in rows), key=[one.unit for one in rows].count)
    rows = tuple(one for one in rows if one.unit == unit)
    values = [value for one in rows for value in (one.measured, one.predicted) if value]
    prefix, factor = prefix_of(sorted(values)[len(values) // 2]) if unit != "1" else ("", 1.0)
    low, high = min(values) / factor / _MARGIN, max(values) / factor * _MARGIN
    with styled():
        figure = new_figure(6.2)
        axes = figure.add_subplot()
        axes.plot([low, high], [low, high], color="black", linewidth=0.8)
        for band, style in BANDS:
            for sign in (1.0 + band, 1.0 - band):
                axes.plot([low, high], [low * sign, high * sign], style, color="grey", linewidth=0.7)
        for index, (name, group) in enumerate(_groups(rows)):
            axes.plot(
                [(one.measured or 0.0) / factor for one in group],
                [(one.predicted or 0.0) / factor for one in group],
                _MARKERS[index % len(_MARKERS)],
                color=PALETTE[index % len(PALETTE)],
                markersize=3.6,
                markeredgewidth=0.3,
                markeredgecolor="white",
                label=f"{_shortened(name)} ({len(group)})",
            )
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            axis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(f"measured ({prefix}{unit})" if unit != "1" else "measured")
        axes.set_ylabel(f"predicted ({prefix}{unit})" if unit != "1" else "predicted")
        found = statistics(rows)
        kept = "" if found.n == len(validation.predicted) else f" in {unit} of {len(validation.predicted)}"
        axes.set_title(
            f"{validation.kind}: {found.n} rows{kept}, mean error {found.mean_abs_error or 0.0:.1%}; "
            "dashed 10 %, dotted 20 %"
        )
        axes.legend(loc="upper left", fontsize=6.5)
        return save(figure, path)


def family(source: str) -> str:
    """Return a source without what tells its tables apart: up to the first bracket, version or comma."""
    for mark in (" (", ",", ":", " v2"):
        source = source.partition(mark)[0]
    return source.strip() or "no source"


def _shortened(name: str) -> str:
    """Return a name as the legend shows it: printable, not too long, never hidden by a leading ``_``."""
    shown = plain_text(name).strip(" _") or "no source"
    return shown if len(shown) <= _LONGEST_NAME else shown[: _LONGEST_NAME - 1] + "\u2026"


def _groups(rows: tuple[Outcome, ...]) -> list[tuple[str, list[Outcome]]]:
    """Return the rows by family of source, the largest first; what exceeds the colours goes together."""
    crowded = len({one.source for one in rows}) > MOST_COLOURS + 1
    groups: dict[str, list[Outcome]] = {}
    for one in rows:
        groups.setdefault(family(one.source) if crowded else one.source, []).append(one)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    if len(ordered) <= MOST_COLOURS + 1:
        return ordered
    rest = [one for _, group in ordered[MOST_COLOURS:] for one in group]
    return [*ordered[:MOST_COLOURS], ("others", rest)]
