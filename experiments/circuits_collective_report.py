"""The table and the picture of a collective on circuits: which plane transmits, moves or waits, when."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from experiments.circuits_collective import CollectiveStudy, PlannedCollective
from experiments.plain import canonical_json, make_directory, write_atomically
from experiments.report import ReportRow, format_si, prefix_of, table_text
from experiments.style import DARK_TIME, PALETTE, REFERENCE, label, new_figure, save, styled

_PLANE_IN = 0.3
_ALGORITHM_IN = 0.42
_LEAST = 1e-9


def collective_report(study: CollectiveStudy) -> str:
    """Return a table with a line for each algorithm, and which is fastest."""
    plant = study.plant
    rows = [
        ReportRow(
            label=one.algorithm,
            values=(
                str(len(one.steps)),
                str(one.changes),
                format_si(one.together_s, "s"),
                format_si(one.plan.makespan_s, "s"),
                f"{100 * (1.0 - one.plan.makespan_s / one.together_s):.1f} %",
                f"{one.plan.over_bound:.3f}",
            ),
            note="no plan is faster" if one.plan.is_optimal else "best found",
        )
        for one in study.found
    ]
    title = (
        f"{label(str(study.kind))} of {format_si(study.size_bytes, 'B')} on {study.ranks} ranks, "
        f"{plant.switches} planes, {format_si(plant.rate_bytes_per_s, 'B/s')} a circuit, "
        f"{format_si(plant.delay_s, 's')} dark"
    )
    heads = ("steps", "changes", "all move together", "overlapped", "saved", "over bound")
    left = f" Too long to plan: {', '.join(study.left_out)}." if study.left_out else ""
    return f"{table_text(title, heads, rows)}\nLeast: {study.best.algorithm}.{left}\n"


def write_collective(study: CollectiveStudy, directory: Path) -> tuple[Path, ...]:
    """Write the record and the picture into a directory; return their paths.

    Raises
    ------
    HeliographError
        If the directory cannot be made or written.
    """
    make_directory(directory)
    record = directory / "collective.json"
    write_atomically(record, canonical_json(study.record(), indent=1))
    return (record, *draw_collective(study, directory / "collective"))


def draw_collective(study: CollectiveStudy, path: Path) -> tuple[Path, Path]:
    """Draw the planes of the fastest algorithm over time, and the makespans of all.

    Parameters
    ----------
    study : CollectiveStudy
        What to draw.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.
    """
    planes, several = study.plant.switches, len(study.found)
    heights = (_PLANE_IN * planes + 0.5, _ALGORITHM_IN * several + 0.5)
    with styled():
        figure = new_figure(sum(heights) + 0.9)
        grid = figure.add_gridspec(2, 1, height_ratios=heights)
        _draw_planes(figure.add_subplot(grid[0]), study, study.best)
        _draw_makespans(figure.add_subplot(grid[1]), study)
        handles = [
            Patch(color=PALETTE[0], label="Circuits carry (a number for each step)"),
            Patch(color=DARK_TIME, label="Dark: circuits move"),
            Patch(color=PALETTE[1], label="All planes move together"),
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=3, handlelength=1.4)
        return save(figure, path)


def _draw_planes(axes: Axes, study: CollectiveStudy, one: PlannedCollective) -> None:
    """Draw which plane serves which step, and when it moves."""
    symbol, factor = prefix_of(one.plan.makespan_s)
    delay_s, end_s = study.plant.delay_s, one.plan.makespan_s
    for plane in range(study.plant.switches):
        before = None
        for step, what in enumerate(one.steps):
            start_s, stop_s = one.plan.starts_s[step, plane], one.plan.ends_s[step, plane]
            if stop_s - start_s <= _LEAST * end_s:
                continue
            width = (stop_s - start_s) / factor
            axes.barh(
                plane, width, left=start_s / factor, color=PALETTE[0], height=0.8, edgecolor="white", lw=0.6
            )
            if width > 0.02 * end_s / factor:
                middle = (start_s + stop_s) / 2 / factor
                axes.text(middle, plane, str(step + 1), ha="center", va="center", color="white", fontsize=7)
            if before is not None and before != what.destinations:
                axes.barh(
                    plane, delay_s / factor, left=(start_s - delay_s) / factor, color=DARK_TIME, height=0.8
                )
            before = what.destinations
    saved = 100 * (1.0 - one.plan.makespan_s / one.together_s)
    axes.set_title(f"{label(one.algorithm)}: {len(one.steps)} steps, {saved:.1f} % saved", loc="left")
    axes.set_xlim(0.0, end_s / factor)
    axes.set_ylim(study.plant.switches - 0.5, -0.5)
    axes.set_yticks(range(study.plant.switches))
    axes.set_ylabel("Plane")
    axes.set_xlabel(f"Time ({symbol}s)")


def _draw_makespans(axes: Axes, study: CollectiveStudy) -> None:
    """Draw each algorithm's makespan, moving together and overlapped, and its bound."""
    found = study.found
    symbol, factor = prefix_of(max(max(one.together_s, one.plan.makespan_s) for one in found))
    places = np.arange(len(found))
    axes.barh(places - 0.19, [one.together_s / factor for one in found], height=0.36, color=PALETTE[1])
    axes.barh(places + 0.19, [one.plan.makespan_s / factor for one in found], height=0.36, color=PALETTE[0])
    for place, one in zip(places, found, strict=True):
        if math.isfinite(one.plan.bound_s):
            axes.plot([one.plan.bound_s / factor] * 2, [place - 0.4, place + 0.4], color=REFERENCE, lw=1.0)
    axes.set_yticks(places, [label(one.algorithm) for one in found])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"Makespan ({symbol}s); line: no plan is faster")
