"""The picture of step time against reconfiguration time."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from experiments.breakeven import Line, Sweep
from experiments.report import format_si
from experiments.style import PALETTE, REFERENCE, label, new_figure, save, styled

HEIGHT_IN = 4.0
"""Height of one panel's figure, inches."""
EACH_IN = 2.2
"""Height of every further panel, inches."""
FINELY = 400
"""Places at which a curve is drawn between its points, which are straight in time and not on the axis."""
MARGIN = 0.12
"""Room below the lowest line for what is written there, as a share of the curves' height."""
BAND = 0.45
"""Room above the curves for the technologies' names, as a share of their height."""
TITLE = 110
"""Letters of a title's line."""


def draw_breakeven(swept: Sweep, path: Path) -> tuple[Path, Path]:
    """Write the picture of a sweep, a panel for each plan.

    Parameters
    ----------
    swept : Sweep
        What was run.
    path : pathlib.Path
        Where; the suffix is replaced.
    """
    with styled():
        figure = new_figure(HEIGHT_IN + EACH_IN * (len(swept.lines) - 1))
        panels = figure.subplots(len(swept.lines), 1, sharex=True, squeeze=False)[:, 0]
        for panel, line in zip(panels, swept.lines, strict=True):
            _panel(panel, line, swept.delay_s)
        shown = {name: delay for name, delay in swept.switches.items() if delay <= swept.delay_s.max()}
        _technologies(panels[0], shown)
        for panel in panels[1:]:
            for delay_s in shown.values():
                panel.axvline(delay_s, color="#DDDDDD", linewidth=0.8, zorder=0)
        handles, names = panels[0].get_legend_handles_labels()
        every = dict(zip(names, handles, strict=True))
        for panel in panels[1:]:
            more, named = panel.get_legend_handles_labels()
            every |= dict(zip(named, more, strict=True))
        figure.legend(every.values(), every.keys(), loc="outside upper center", ncols=len(every))
        panels[-1].set_xlabel("reconfiguration time of the switches (s)")
        return save(figure, path)


def _panel(panel: Axes, line: Line, delay_s: np.ndarray) -> None:
    finely_s = np.geomspace(delay_s[0], delay_s[-1], FINELY)
    every = np.unique(np.concatenate((delay_s, finely_s)))
    panel.plot(
        every,
        np.interp(every, delay_s, line.moving_s),  # as `Line.breakeven_s` reads it
        color=PALETTE[0],
        marker=".",
        markevery=np.flatnonzero(np.isin(every, delay_s)).tolist(),
        label="circuits move within the step",
    )
    if np.isfinite(line.static_s):
        panel.axhline(line.static_s, color=PALETTE[2], linestyle="--", label="circuits never move")
    panel.axhline(line.packet_s, color=REFERENCE, linewidth=1.0, label="packet switches")
    for baseline_s, colour in ((line.packet_s, REFERENCE), (line.static_s, PALETTE[2])):
        even_s = line.breakeven_s(delay_s, baseline_s)
        if np.isfinite(even_s):
            panel.plot([even_s], [baseline_s], marker="o", color=colour, markersize=6, linestyle="none")
            panel.annotate(
                f"even at {format_si(even_s, 's')}",
                (even_s, baseline_s),
                textcoords="offset points",
                xytext=(-8, 8 if colour == REFERENCE else -12),
                ha="right",
                fontsize=8,
                color=colour,
            )
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_si(value, "s")))
    panel.xaxis.set_minor_formatter(NullFormatter())
    low, high = panel.get_ylim()
    panel.set_ylim(low - MARGIN * (high - low), high)
    panel.set_ylabel("step time (s)")
    name, _, plan = line.name.partition(" ")
    panel.set_title(fill(f"{label(name)}: {plan.replace(',', ', ')}", TITLE), fontsize=7.5, loc="left")


def _technologies(panel: Axes, switches: dict[str, float]) -> None:
    """Mark every technology, its name standing upright in a band above the panel's curves."""
    low, high = panel.get_ylim()
    panel.set_ylim(low, high + BAND * (high - low))
    last = 0.0
    for name, delay_s in sorted(switches.items(), key=lambda one: one[1]):
        panel.axvline(delay_s, color="#DDDDDD", linewidth=0.8, zorder=0)
        place = max(delay_s, last * 1.45)
        panel.annotate(
            label(name),
            (place, 0.98),
            xycoords=("data", "axes fraction"),
            rotation=90,
            va="top",
            ha="center",
            fontsize=6,
            color="#555555",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )
        last = place
