"""The pictures of one core: energy waterfall, effective bits over laser power, tornado."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from experiments.core import OTHER, PICOJOULE, STAGES, PhaseEnergy
from experiments.core_bits import BitsCurve
from experiments.core_tornado import Answers, Swing
from experiments.report import prefix_of
from experiments.style import PALETTE, REFERENCE, label, new_figure, save, styled

PHASE_TITLES = {
    "forward": "Forward",
    "grad_input": "Gradient of the input",
    "grad_weight": "Gradient of the weight",
}
"""What a phase is called in print."""
TORNADO_BARS = 12
"""Parameters that a tornado shows for each answer, those that move it most."""
LEAST_CHANGE = 3e-3
"""Share of the largest change below which a parameter gets no bar; a choice."""

_MOST_BITS = 16.0
_LIMIT_STYLES = ("-", "--")
_LOW, _HIGH = PALETTE[4], PALETTE[5]
_HEADROOM = 1.25
_MARGIN = 0.04
_TEXT = 0.24
_CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85}


def waterfall(
    energies: Sequence[PhaseEnergy], gpu: str, gpu_j_per_mac: float, title: str, path: Path
) -> tuple[Path, Path]:
    """Draw the energy per multiply-accumulate stage by stage, a panel for each phase.

    Parameters
    ----------
    energies : sequence of PhaseEnergy
        One per phase.
    gpu : str
        The electronic baseline, a line in every panel.
    gpu_j_per_mac : float
        What it takes.
    title : str
        What is drawn.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.
    """
    present = {stage for one in energies for stage in one.j_per_mac_by_stage}
    stages = [stage for stage in (*STAGES, OTHER) if stage in present]
    colours = {stage: PALETTE[place] for place, stage in enumerate((*STAGES, OTHER))}
    longest = max(*(one.j_per_mac for one in energies), gpu_j_per_mac) / PICOJOULE
    with styled():
        figure = new_figure(1.35 + 0.24 * len(stages))
        for axes, one in zip(
            np.atleast_1d(figure.subplots(1, len(energies), sharey=True)), energies, strict=True
        ):
            start = 0.0
            for row, stage in enumerate(stages):
                part = one.j_per_mac_by_stage.get(stage, 0.0) / PICOJOULE
                thinnest = 0.8 if part else 0.0
                axes.barh(
                    row,
                    part,
                    0.66,
                    left=start,
                    color=colours[stage],
                    edgecolor=colours[stage],
                    linewidth=thinnest,
                )
                end = _beside(start + part, gpu_j_per_mac / PICOJOULE, longest)
                _tell(axes, f"{part:.3g}" if part else "0", end, row)
                start += part
            axes.barh(len(stages), start, 0.66, color=REFERENCE)
            _tell(axes, f"{start:.3g}", _beside(start, gpu_j_per_mac / PICOJOULE, longest), len(stages))
            axes.axvline(gpu_j_per_mac / PICOJOULE, color=REFERENCE, linestyle="--", linewidth=1.0)
            axes.set_yticks(range(len(stages) + 1), [*stages, "all"])
            axes.set_xlim(0.0, _HEADROOM * longest)
            axes.set_title(PHASE_TITLES[str(one.phase)])
            axes.grid(visible=True, axis="x")
            axes.tick_params(axis="y", length=0)
        axes.invert_yaxis()
        figure.suptitle(title)
        figure.supxlabel(
            f"Energy per multiply-accumulate (pJ); dashed: {label(gpu)}, {gpu_j_per_mac / PICOJOULE:.3g} pJ"
        )
        return save(figure, path)


def bits_over_power(curve: BitsCurve, path: Path) -> tuple[Path, Path]:
    """Draw effective bits over laser power, with the limit that each cause of noise sets alone."""
    symbol, factor = prefix_of(curve.present_w)
    power = np.array(curve.power_w) / factor
    bits = np.array([math.nan if one is None else one for one in curve.bits])
    with styled():
        figure = new_figure(4.0)
        axes = figure.add_subplot()
        for place, (cause, limit) in enumerate(curve.limits.items()):
            turn = _LIMIT_STYLES[place % len(_LIMIT_STYLES)]
            axes.plot(
                power,
                limit,
                turn,
                color=PALETTE[place % len(PALETTE)],
                linewidth=1.2,
                label=cause if min(limit) < _MOST_BITS else f"{cause} (above)",
            )
        axes.plot(power, bits, color=REFERENCE, linewidth=2.2, label="all together")
        axes.plot(curve.present_w / factor, curve.present_bits, "o", color=REFERENCE, markersize=6.0)
        axes.annotate(
            f"{curve.present_bits:.2f} bits at {curve.present_w / factor:.3g} {symbol}W",
            (curve.present_w / factor, curve.present_bits),
            (6, -14),
            textcoords="offset points",
        )
        works = np.flatnonzero(~np.isnan(bits))
        if works.size and works[-1] < len(bits) - 1:
            end = (power[works[-1]], bits[works[-1]])
            axes.plot(*end, "x", color=REFERENCE, markersize=7.0, label="too much light for the core beyond")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlim(power[0], power[-1])
        axes.set_ylim(0.0, _MOST_BITS)
        axes.set_xlabel(f"Laser power ({symbol}W)")
        axes.set_ylabel("Effective bits, full-scale sample")
        axes.grid(visible=True)
        axes.set_title(f"{label(curve.name)}: what limits a sample; each line is one cause alone", loc="left")
        figure.legend(loc="outside lower center", ncols=3)
        return save(figure, path)


def tornado_bars(swings: Sequence[Swing], present: Answers, title: str, path: Path) -> tuple[Path, Path]:
    """Draw what both ends of each parameter's range do to energy, time and effective bits.

    Parameters
    ----------
    swings : sequence of Swing
        The parameters.
    present : Answers
        Answers with all of them as they are.
    title : str
        What is drawn.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.

    Notes
    -----
    Each panel shows the parameters that move its answer most. A cross among the bits, in the colour of an
    end: the core does not work there, as its light does not reach the detectors or a constructor refuses the
    number.
    """
    panels = [(name, unit, _strongest(swings, present, change)) for name, unit, change in CHANGES]
    rows = [max(1, len(bars)) for _, _, bars in panels]
    with styled():
        figure = new_figure(1.9 + 0.17 * sum(rows))
        for axes, (name, unit, bars) in zip(
            figure.subplots(len(panels), 1, height_ratios=rows), panels, strict=True
        ):
            _draw_swings(axes, bars)
            axes.set_title(name, loc="left")
            axes.set_xlabel(f"Change ({unit})")
        figure.suptitle(title)
        low, high = (Patch(color=colour) for colour in (_LOW, _HIGH))
        cross = Line2D([], [], linestyle="", marker="x", color=REFERENCE)
        names = ["low end of its range", "high end", "core does not work at that end"]
        figure.legend([low, high, cross], names, loc="outside lower center", ncols=3)
        return save(figure, path)


def energy_change(one: Answers, present: Answers) -> float:
    """Return the change of energy per multiply-accumulate, per cent."""
    return 100.0 * (one.j_per_mac / present.j_per_mac - 1.0)


def time_change(one: Answers, present: Answers) -> float:
    """Return the change of time, per cent."""
    return 100.0 * (one.time_s / present.time_s - 1.0)


def bits_change(one: Answers, present: Answers) -> float:
    """Return the change of effective bits."""
    return one.effective_bits - present.effective_bits


CHANGES = (
    ("Energy per multiply-accumulate", "%", energy_change),
    ("Time", "%", time_change),
    ("Effective bits", "bits", bits_change),
)
"""Panels of a tornado: what is told, its unit, and how it follows from two answers."""


def _strongest(
    swings: Sequence[Swing], present: Answers, change: Callable[[Answers, Answers], float]
) -> list[tuple[str, float | None, float | None]]:
    """Return name and changes at both ends of the parameters that move an answer, the strongest first."""
    bars = []
    for swing in swings:
        low, high = (None if end is None else change(end, present) for end in (swing.at_low, swing.at_high))
        strength = max(abs(end) for end in (low, high, 0.0) if end is not None)
        fails = None in (low, high) and change is bits_change
        bars.append(
            (math.inf if fails else strength, strength, (swing.path.removeprefix("core."), low, high))
        )
    most = max((strength for _, strength, _ in bars), default=0.0)
    shown = [bar for rank, _, bar in sorted(bars, key=lambda one: -one[0]) if rank > LEAST_CHANGE * most]
    return shown[:TORNADO_BARS]


def _draw_swings(axes: Axes, bars: Sequence[tuple[str, float | None, float | None]]) -> None:
    for row, (_, low, high) in enumerate(bars):
        for end, colour in ((low, _LOW), (high, _HIGH)):
            if end is None:
                axes.plot(0.0, row, "x", color=colour, markersize=6.0, markeredgewidth=1.8, zorder=3.0)
            else:
                axes.barh(row, end, 0.7, color=colour)
    if not bars:
        axes.annotate("no parameter moves it", (0.5, 0.3), xycoords="axes fraction", ha="center")
        axes.set_xticks([])
    axes.axvline(0.0, color=REFERENCE, linewidth=0.8)
    ends = [end for _, low, high in bars for end in (low, high, 0.0) if end is not None]
    if bars and min(ends) < max(ends):
        margin = _MARGIN * (max(ends) - min(ends))
        axes.set_xlim(min(ends) - margin, max(ends) + margin)
    axes.set_yticks(range(len(bars)), [name for name, _, _ in bars])
    axes.tick_params(axis="y", length=0, labelsize=7.0)
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x")


def _beside(end: float, line: float, longest: float) -> float:
    """Return where a text that follows a bar's end stands clear of a vertical line."""
    return line if line - _TEXT * longest < end < line else end


def _tell(axes: Axes, text: str, end: float, row: float) -> None:
    axes.annotate(
        text, (end, row), (3, 0), textcoords="offset points", va="center", fontsize=7.0, bbox=_CLEAR
    )
