"""The table and the picture of a step's phases on circuits: lanes of each axis, and what moving saves."""

from __future__ import annotations

import math
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from experiments.circuits_phases import PhaseStudy
from experiments.plain import canonical_json, make_directory, write_atomically
from experiments.report import ReportRow, format_si, prefix_of, table_text
from experiments.style import DARK_TIME, PALETTE, REFERENCE, new_figure, save, styled
from optical.scheduling.phases import PhasePlan

CUT = 20
"""Times the bound beyond which a bar is cut and its time written on it."""


def phases_report(study: PhaseStudy) -> str:
    """Return a table with a line for each switch technology, and what circuits at rest would take."""
    rows = [_row("its own switches", study.plan, study.lanes.delay_s)]
    rows += [_row(name, study.by_switch[name], study.delays_s[name]) for name in _by_delay(study)]
    own, count = study.plan, len(study.phases)
    title = (
        f"{study.name}: {count} {'phase' if count == 1 else 'phases'} of {', '.join(own.axes)} on "
        f"{study.lanes.count} lanes of accelerator {study.endpoint}, {format_si(study.step_s, 's')} a step"
    )
    static = f"{format_si(own.static_s, 's')}" if math.isfinite(own.static_s) else "more lanes than there are"
    return (
        f"{table_text(title, ('dark', 'moves', 'exposed', 'transfers', 'in all', 'over bound'), rows)}\n"
        f"Circuits that never move take {static}. No plan takes less than {format_si(own.bound_s, 's')}.\n"
    )


def write_phases(study: PhaseStudy, directory: Path) -> tuple[Path, ...]:
    """Write the record and the picture into a directory; return their paths.

    Raises
    ------
    HeliographError
        If the directory cannot be made or written.
    """
    make_directory(directory)
    record = directory / "phases.json"
    write_atomically(record, canonical_json(study.record(), indent=1))
    return (record, *draw_phases(study, directory / "phases"))


def draw_phases(study: PhaseStudy, path: Path) -> tuple[Path, Path]:
    """Draw who sends when and the lanes that it has, and the network time by technology.

    Parameters
    ----------
    study : PhaseStudy
        What to draw.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.
    """
    heights = (1.7, 0.24 * len(study.by_switch) + 0.5)
    with styled():
        figure = new_figure(sum(heights) + 0.9)
        grid = figure.add_gridspec(2, 1, height_ratios=heights)
        _draw_lanes(figure.add_subplot(grid[0]), study)
        _draw_times(figure.add_subplot(grid[1]), study)
        handles = [
            Patch(color=PALETTE[2 + index], label=f"Lanes of {axis}")
            for index, axis in enumerate(study.plan.axes)
        ]
        handles += [Patch(color=PALETTE[0], label="Transfers"), Patch(color=DARK_TIME, label="Exposed moves")]
        figure.legend(handles=handles, loc="outside upper center", ncols=6, handlelength=1.4)
        return save(figure, path)


def _by_delay(study: PhaseStudy) -> list[str]:
    return sorted(study.by_switch, key=lambda one: study.delays_s[one])


def _dark_s(plan: PhasePlan) -> float:
    """Return the dark time that shows, between phases and within them."""
    return sum(plan.exposed_s) + sum(plan.turning_s)


def _row(label: str, plan: PhasePlan, delay_s: float) -> ReportRow:
    return ReportRow(
        label=label,
        values=(
            format_si(delay_s, "s"),
            str(sum(plan.moves) + sum(plan.turns)),
            format_si(_dark_s(plan), "s"),
            format_si(sum(plan.transfer_s), "s"),
            format_si(plan.time_s, "s"),
            f"{plan.over_bound:.3f}",
        ),
    )


def _draw_lanes(axes: Axes, study: PhaseStudy) -> None:
    """Draw the lanes of each axis from each phase to the next, pale where it waits, and the moves."""
    symbol, factor = prefix_of(study.step_s)
    starts = [one.start_s for one in study.bursts]
    for index, one in enumerate(study.bursts):
        until_s = starts[index + 1] if index + 1 < len(starts) else study.step_s
        below = 0
        for place, lanes in enumerate(study.plan.lanes[index]):
            colour = PALETTE[2 + place]
            if lanes:
                axes.fill_between(
                    [one.start_s / factor, until_s / factor],
                    below,
                    below + lanes,
                    color=colour,
                    alpha=0.35,
                    lw=0,
                )
            if lanes and study.plan.axes[place] == one.axis:
                axes.fill_between(
                    [one.start_s / factor, one.end_s / factor], below, below + lanes, color=colour, lw=0
                )
            below += lanes
        if study.plan.moves[index] or study.plan.turns[index]:
            axes.axvline(one.start_s / factor, color=DARK_TIME, linewidth=1.4)
    axes.set_xlim(0.0, study.step_s / factor)
    axes.set_ylim(0, study.lanes.count)
    axes.set_yticks(range(study.lanes.count + 1))
    axes.set_ylabel("Lanes")
    axes.set_xlabel(f"Time ({symbol}s); full: may send, pale: waits, line: circuits move")
    axes.set_title(study.name, loc="left")


def _draw_times(axes: Axes, study: PhaseStudy) -> None:
    """Draw each technology's transfers and exposed moves, circuits at rest, and the bound; cut long bars."""
    names = _by_delay(study)
    plans = [study.by_switch[name] for name in names]
    known_s = [plan.time_s for plan in plans] + [study.plan.static_s] * math.isfinite(study.plan.static_s)
    longest_s = max(one for one in known_s if one <= CUT * study.plan.bound_s or one == min(known_s))
    symbol, factor = prefix_of(longest_s)
    transfers = [sum(plan.transfer_s) / factor for plan in plans]
    places = range(len(names))
    axes.barh(places, transfers, height=0.7, color=PALETTE[0])
    exposed = [_dark_s(plan) / factor for plan in plans]
    axes.barh(places, exposed, left=transfers, height=0.7, color=DARK_TIME)
    axes.axvline(study.plan.bound_s / factor, color=REFERENCE, linewidth=0.9, linestyle="--")
    if math.isfinite(study.plan.static_s):
        axes.axvline(study.plan.static_s / factor, color=PALETTE[5], linewidth=0.9)
    axes.set_xlim(0.0, 1.05 * longest_s / factor)
    for place, plan in enumerate(plans):
        if plan.time_s > longest_s:
            text = f"{format_si(plan.time_s, 's')} "
            axes.text(1.05 * longest_s / factor, place, text, ha="right", va="center", color="white")
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    rest = ", line: circuits never move" if math.isfinite(study.plan.static_s) else ""
    axes.set_xlabel(f"Time of the port's traffic ({symbol}s); dashed: bound{rest}")
