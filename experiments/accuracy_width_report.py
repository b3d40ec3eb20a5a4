"""The table and the figure of tolerated noise by width."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from experiments.accuracy_width import CARRIED_TO, PARTS, TOLERATED_NATS, WidthStudy, decibels
from experiments.plain import csv_text, make_directory, write_atomically
from experiments.style import PALETTE, REFERENCE, new_figure, save, styled

_NAMES = {"all": "all products", "body": "all but the head", "head": "head"}
_BAND_POINTS = 60


def write(found: WidthStudy, directory: Path) -> tuple[Path, ...]:
    """Write rows and figure into a directory; return their paths.

    Raises
    ------
    HeliographError
        If the directory cannot be made or written.
    """
    make_directory(directory)
    table = directory / "width.csv"
    write_atomically(table, csv_text(found.rows()))
    fits = directory / "fit.csv"
    write_atomically(fits, csv_text(found.fit_rows()))
    return (table, fits, *draw(found, directory / "width"))


def report(found: WidthStudy) -> str:
    """Return the findings as text."""
    lines = [f"Signal to noise at which the loss rises by {TOLERATED_NATS:g} nats/byte, dB, by width:"]
    for name, products in PARTS.items():
        values = [
            f"{width}: {decibels(math.fsum(row) / len(row)):.1f}"
            for width, row in zip(found.widths, found.tolerated(products), strict=True)
        ]
        fit = found.fit(products)
        lines.append(f"  {_NAMES[name]}: {', '.join(values)}")
        lines.append(
            f"    noise to signal goes as width^({fit.exponent:+.2f} \u00b1 {fit.error:.2f}); carried to "
            f"{CARRIED_TO} (an extrapolation): {decibels(fit.carried):.0f} dB, between "
            f"{_ends(fit.low, fit.high)} dB"
        )
    losses = ", ".join(f"{loss:.3f}" for loss in found.clean())
    lines.append(f"Clean losses: {losses} nats/byte: wider models are better trained, which is part of this.")
    return "\n".join(lines)


def _ends(low: float, high: float) -> str:
    if not math.isfinite(high) or low == 0.0:
        return "any"
    return f"{decibels(high):.0f} and {decibels(low):.0f}"


def draw(found: WidthStudy, path: Path) -> tuple[Path, Path]:
    """Draw tolerated noise over width with its fit and its band, and the law of one over the width.

    Parameters
    ----------
    found : WidthStudy
        What to draw.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.
    """
    with styled():
        figure = new_figure(3.8)
        axes = figure.add_subplot()
        end = found.carried_width
        for index, (name, products) in enumerate(PARTS.items()):
            rows, fit, colour = found.tolerated(products), found.fit(products), PALETTE[index]
            for width, row in zip(found.widths, rows, strict=True):
                axes.plot([width] * len(row), row, "o", color=colour, markersize=3.5)
            grid = np.geomspace(found.widths[0], end, _BAND_POINTS)
            low, line, high = np.array([fit.band(width) for width in grid]).T
            text = f"{_NAMES[name]}: width^({fit.exponent:+.2f} \u00b1 {fit.error:.2f})"
            axes.plot(grid, line, "-", color=colour, linewidth=0.9, label=text)
            if math.isfinite(fit.high) and fit.low > 0.0:
                axes.fill_between(grid, low, high, color=colour, alpha=0.2, linewidth=0.0)
        start = sum(found.tolerated(PARTS["all"])[0]) / len(found.predictions[0].calibrations)
        text = "one over the width in light per multiplication"
        axes.plot([found.widths[0], end], [start] * 2, "--", color=REFERENCE, linewidth=0.9, label=text)
        axes.axvspan(found.widths[-1] * 1.15, end * 1.25, color=PALETTE[9], alpha=0.25, linewidth=0.0)
        axes.text(
            math.sqrt(found.widths[-1] * 1.15 * end * 1.25),
            0.02,
            "extrapolation",
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="bottom",
        )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator([*found.widths, end]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(found.widths[0] * 0.85, end * 1.25)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel(f"width (the last is that of {CARRIED_TO})")
        axes.set_ylabel("tolerated noise to signal")
        axes.set_title(f"Noise that raises the loss by {TOLERATED_NATS:g} nats/byte")
        figure.legend(loc="outside lower center", ncols=2)
        return save(figure, path)
