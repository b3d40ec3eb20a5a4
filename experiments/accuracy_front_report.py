"""The table and the figure of loss against energy."""

from __future__ import annotations

import math
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from experiments.accuracy_front import KNOBS, PRESENT, Front, FrontPoint
from experiments.plain import csv_text, make_directory, write_atomically
from experiments.report import ReportRow, format_si, table_text
from experiments.style import PALETTE, REFERENCE, new_figure, save, styled

_MARKERS = "osD^"
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
                format_si(one.energy_j, "J") if math.isfinite(one.energy_j) else "not modelled",
                format_si(one.time_s, "s") if math.isfinite(one.time_s) else "not modelled",
                f"{one.effective_bits:.2f}" if math.isfinite(one.effective_bits) else "",
                f"{one.rise:.5f} \u00b1 {one.error:.5f}",
            ),
            section=index == len(front.points),
        )
        for index, one in enumerate((*front.points, *front.marks))
    ]
    title = f"{front.system}: a step of {front.workload}, and the loss that noise costs the small GPT"
    names = ("energy per token", "step time", "effective bits", "rise, nats/byte")
    lines = [table_text(title, names, rows)]
    lines += [f"Cannot be built: {text}" for text in front.missing]
    return "\n".join(lines)


def draw(front: Front, path: Path) -> tuple[Path, Path]:
    """Draw the rise of the loss over energy per token, a curve for each knob, GPUs as marks.

    Parameters
    ----------
    front : Front
        What to draw.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.
    """
    present = front.points[0]
    with styled():
        figure = new_figure(4.2)
        axes = figure.add_subplot()
        for index, knob in enumerate(KNOBS):
            turned = sorted([one for one in front.points if one.knob == knob], key=lambda one: one.value)
            if not turned:
                continue
            below = [one for one in turned if not one.raised]
            mine = [*below, present, *(one for one in turned if one.raised)]
            axes.errorbar(
                [one.energy_j for one in mine],
                [one.rise for one in mine],
                yerr=[one.error for one in mine],
                fmt=f"{_MARKERS[index]}-",
                markersize=4,
                linewidth=0.9,
                capsize=2,
                color=PALETTE[index],
                label=f"{knob}: {_range(turned)}",
            )
        axes.plot(present.energy_j, present.rise, "*", color=REFERENCE, markersize=12, label=PRESENT)
        for mark, colour in zip(front.marks, (PALETTE[5], PALETTE[8]), strict=True):
            if math.isfinite(mark.energy_j):
                hidden = mark.rise < LEAST_RISE
                text = f"GPU, {mark.knob}" + (f", below {LEAST_RISE:g}" if hidden else "")
                rise = max(mark.rise, LEAST_RISE)
                axes.plot(mark.energy_j, rise, "P", color=colour, markersize=8, label=text)
            else:
                text = f"GPU, {mark.knob} (energy not modelled)"
                axes.axhline(mark.rise, color=colour, linestyle=":", linewidth=1.0, label=text)
        for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
            scale("log")
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        _tick_energies(front, axes)
        axes.set_xlabel(f"energy per token, {front.workload} (J)")
        axes.set_ylabel("rise of the small GPT's loss (nats/byte)")
        axes.set_title(f"What a core's knobs cost and buy: {front.system}")
        axes.grid(visible=True)
        figure.legend(loc="outside lower center", ncols=2)
        return save(figure, path)


def _tick_energies(front: Front, axes: Axes) -> None:
    """Put ticks at one, two and five times the powers of ten where energies are."""
    energies = [one.energy_j for one in (*front.points, *front.marks) if math.isfinite(one.energy_j)]
    low, high = min(energies) / 1.2, max(energies) * 1.2
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [lead * 10.0**power for power in powers for lead in (1, 1.5, 2, 3, 5, 7)]
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])
    axes.set_xlim(low, high)


def _range(points: list[FrontPoint]) -> str:
    return f"{points[0].value:.3g} to {points[-1].value:.3g}"
