"""The table and the figure of loss against energy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from experiments.accuracy_front import Front, FrontPoint
from experiments.accuracy_front_settings import KNOBS, PRESENT
from experiments.plain import csv_text, make_directory, write_atomically
from experiments.report import ReportRow, format_si, table_text
from experiments.style import PALETTE, REFERENCE, new_figure, save, styled

_MARKERS = "osD^"
_MARKS = "PXv"
_MARK_COLOURS = (5, 8, 4)
_NO_ENGINE = "no such engine"
_WIDE = 12.0
"""Ratio of the largest to the least value from which ticks are fewer."""
LEAST_TRAINED = 1e-3
"""Trained difference below which the axis is linear, nats per byte."""
LEAST_RISE = 1e-4
"""Rise of the loss below which a GPU is drawn at the foot of the figure, nats per byte."""


def write(front: Front, directory: Path) -> tuple[Path, ...]:
    """Write rows and figure into a directory; return their paths.

    Raises
    ------
    HeliographError
        If the directory cannot be made or written.
    """
    make_directory(directory)
    table = directory / "front.csv"
    write_atomically(table, csv_text([one.row() for one in (*front.points, *front.marks)]))
    return (table, *draw(front, directory / "front"))


def report(front: Front) -> str:
    """Return the table as text, with what could not be built."""
    rows = [
        ReportRow(
            label=one.knob if math.isnan(one.value) else f"{one.knob} {one.value:g}",
            values=(
                format_si(one.energy_j, "J") if math.isfinite(one.energy_j) else _NO_ENGINE,
                format_si(one.time_s, "s") if math.isfinite(one.time_s) else _NO_ENGINE,
                f"{one.effective_bits:.2f}" if math.isfinite(one.effective_bits) else "",
                f"{one.rise:.5f} \u00b1 {one.error:.5f}",
                _trained(one),
            ),
            section=index == len(front.points),
        )
        for index, one in enumerate((*front.points, *front.marks))
    ]
    title = f"{front.system}: a step of {front.workload}, and the loss that noise costs the small GPT"
    names = ("energy per token", "step time", "effective bits", "rise, nats/byte", "trained minus exact")
    lines = [table_text(title, names, rows)]
    if math.isfinite(front.floor):
        lines.append(
            f"Noise of nothing moves the loss of a trained seed by up to {front.floor:.2g} nats/byte."
        )
    lines += [f"Cannot be built: {text}" for text in front.missing]
    return "\n".join(lines)


def _trained(point: FrontPoint) -> str:
    """Return what training on the hardware came to, and whether chance alone does as much."""
    if math.isnan(point.trained):
        return ""
    if not point.trained_resolved:
        return "not resolved"
    return f"{point.trained:+.4f} \u00b1 {point.trained_error:.4f}"


def draw(front: Front, path: Path) -> tuple[Path, Path]:
    """Draw the loss over energy per token and over step time, a curve for each knob, GPUs as marks.

    Above stands noise at inference on a clean model, below training on the hardware, if there was any.

    Parameters
    ----------
    front : Front
        What to draw.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.
    """
    rows = 1 + any(math.isfinite(one.trained) for one in front.points)
    with styled():
        figure = new_figure(1.6 + 2.6 * rows)
        panels = figure.subplots(rows, 2, squeeze=False, sharey="row", sharex="col")
        for column, x_name in enumerate(("energy_j", "time_s")):
            _draw_panel(panels[0, column], front, x_name, "rise")
            panels[0, column].set_yscale("log")
            panels[0, column].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            if rows > 1:
                _draw_panel(panels[1, column], front, x_name, "trained")
                panels[1, column].axhspan(
                    -front.floor,
                    front.floor,
                    color=PALETTE[9],
                    alpha=0.4,
                    linewidth=0.0,
                    label="what noise of nothing does to a seed",
                )
                panels[1, column].plot([], [], "o", **_hollow(REFERENCE), label="not told from chance")
                panels[1, column].set_yscale("symlog", linthresh=max(2.0 * front.floor, LEAST_TRAINED))
                panels[1, column].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            _tick(panels[-1, column], [getattr(one, x_name) for one in (*front.points, *front.marks)])
        panels[-1, 0].set_xlabel(f"energy per token, {front.workload} (J)")
        panels[-1, 1].set_xlabel("step time (s)")
        panels[0, 0].set_ylabel("noise at inference:\nrise of the loss (nats/byte)")
        if rows > 1:
            panels[1, 0].set_ylabel("trained on the hardware:\nloss minus exact (nats/byte)")
        figure.suptitle(f"What a core's knobs cost and buy: {front.system}", fontsize=9.5)
        named = [axes.get_legend_handles_labels() for axes in panels[:, 0]]
        entries: dict[str, Artist] = {}
        for handles, labels in named:
            for handle, label in zip(handles, labels, strict=True):
                entries.setdefault(label, handle)
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=2)
        return save(figure, path)


def _draw_panel(axes: Axes, front: Front, x_name: str, y_name: str) -> None:
    """Draw one quantity over another for each knob, the present setting and the GPUs."""
    present, error_name = front.points[0], "error" if y_name == "rise" else "trained_error"
    for index, knob in enumerate(KNOBS):
        turned = sorted([one for one in front.points if one.knob == knob], key=lambda one: one.value)
        if not turned:
            continue
        mine = [*(one for one in turned if not one.raised), present, *(one for one in turned if one.raised)]
        mine = [one for one in mine if math.isfinite(getattr(one, y_name))]
        axes.errorbar(
            [getattr(one, x_name) for one in mine],
            [getattr(one, y_name) for one in mine],
            yerr=[getattr(one, error_name) for one in mine],
            fmt=f"{_MARKERS[index]}-",
            markersize=4,
            linewidth=0.9,
            capsize=2,
            color=PALETTE[index],
            label=f"{knob}: {_range(turned)}",
        )
        if y_name == "trained":
            for one in mine:
                if not one.trained_resolved and one is not present:
                    place = getattr(one, x_name), one.trained
                    axes.plot(*place, _MARKERS[index], zorder=3, **_hollow(PALETTE[index]))
    x, y = getattr(present, x_name), getattr(present, y_name)
    face = "white" if y_name == "trained" and not present.trained_resolved else REFERENCE
    axes.plot(x, y, "*", color=REFERENCE, markerfacecolor=face, markersize=11, label=PRESENT, zorder=4)
    for index, mark in enumerate(front.marks):
        x, y, colour = getattr(mark, x_name), getattr(mark, y_name), PALETTE[_MARK_COLOURS[index]]
        if math.isfinite(x):
            hidden = y_name == "rise" and y < LEAST_RISE
            text = f"GPU, {mark.knob}" + (f", below {LEAST_RISE:g}" if hidden else "")
            face = "white" if y_name == "trained" and not mark.trained_resolved else colour
            axes.plot(
                x,
                LEAST_RISE if hidden else y,
                _MARKS[index],
                color=colour,
                markerfacecolor=face,
                markersize=7,
                label="" if y_name == "trained" else text,
            )
        else:
            text = f"GPU, {mark.knob} ({_NO_ENGINE})"
            shown = "" if y_name == "trained" else text
            axes.axhline(y, color=colour, linestyle=":", linewidth=1.0, label=shown)
    axes.set_xscale("log")
    axes.grid(visible=True)


def _hollow(colour: str) -> dict[str, Any]:
    """Return how a point is drawn that chance explains."""
    return {"markeredgecolor": colour, "markerfacecolor": "white", "markersize": 4}


def _tick(axes: Axes, values: list[float]) -> None:
    """Put ticks at leading digits of the powers of ten where values are, few enough to be read."""
    shown = [value for value in values if math.isfinite(value)]
    low, high = min(shown) / 1.2, max(shown) * 1.2
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    wide = high / low > _WIDE
    ticks = [lead * 10.0**power for power in powers for lead in ((1, 2, 5) if wide else (1, 1.5, 2, 3, 5, 7))]
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(low, high)


def _range(points: list[FrontPoint]) -> str:
    """Return the span of a knob's values; that of light carries its unit, the others are counts."""
    unit = " W" if KNOBS[points[0].knob][0].endswith("_w") else ""
    return f"{points[0].value:.3g} to {points[-1].value:.3g}{unit}"
