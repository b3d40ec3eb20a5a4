"""Energy of all cores together: over the size of their arrays, and over reuse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.core import PICOJOULE
from experiments.core_bits import analog_core
from experiments.cores import CoresStudy, Outcome, Variant
from experiments.cores_winners import present, shown_gpus, sizes_of
from experiments.style import PALETTE, REFERENCE, label, new_figure, save, styled
from optical.cores import CORES, load_core

CURVES = (64, 512, 4096, 32768, 1048576)
"""Reuse whose curves are drawn over size, where they were asked for; a choice."""
SETTLED_REUSE = 8192
"""Reuse at which GPUs are drawn as lines: theirs no longer matters; or the nearest that was asked for."""
PANELS = 3
"""Panels in a row."""
SHOWN_PJ = (0.2, 2e4)
"""Energies that are drawn; curves leave the frame beyond, and the CSV has them."""
SIGNAL = "a full-scale sample at the ADC"
"""What effective bits refer to, in a picture."""
MARKERS = "osD^vPX"
"""Marks of the cores, in their order."""

_GREYS = ("#9A9A9A", "#555555", "#000000", "#2F4F6F")
_DASHES: Any = {"8 bit": (0, (4, 2)), "16 bit": "-"}
_REUSE_COLOURS = tuple(PALETTE[place] for place in (4, 0, 2, 1, 5))
_MARK = 3.5
_RING: Any = {
    "marker": "o",
    "markersize": 6.5,
    "markerfacecolor": "none",
    "markeredgecolor": REFERENCE,
    "markeredgewidth": 0.8,
    "zorder": 3.0,
}
_FAILURES = {Outcome.NO_LIGHT: "x", Outcome.NOT_BUILT: "+"}
_FAILED = {Outcome.NO_LIGHT: "no light reaches the bits", Outcome.NOT_BUILT: "cannot be built"}


def colour_of(core: str) -> str:
    """Return the colour that a core has in every picture."""
    return PALETTE[list(CORES).index(core)]


def energy_by_size(found: CoresStudy, path: Path) -> tuple[Path, Path]:
    """Draw the energy per multiply-accumulate of every core over the size of its array.

    Parameters
    ----------
    found : CoresStudy
        What was found.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.

    Notes
    -----
    Hollow marks: one cluster takes more than the GPU's power, or area. Crosses on top: no light reaches the
    bits in that size; plus signs: it cannot be built.
    """
    places = [place for place, uses in enumerate(found.reuse) if uses in CURVES]
    places = places or [len(found.reuse) - 1]
    rows = -(-(len(CORES) + 1) // PANELS)
    with styled():
        figure = new_figure(1.0 + 2.0 * rows)
        panels = list(np.ravel(figure.subplots(rows, PANELS, sharey=True)))
        for axes, name in zip(panels, CORES, strict=False):
            for colour, place in zip(_REUSE_COLOURS, places, strict=False):
                _size_curve(axes, found, name, place, colour)
            _gpu_lines(axes, found)
            _size_axes(axes, list(sizes_of(found, name).values()))
        for axes in panels[len(CORES) :]:
            axes.set_axis_off()
        figure.supylabel("Energy per multiply-accumulate (pJ)", fontsize=9.0)
        figure.suptitle(f"Every size lit for the bits above its panel, those of {SIGNAL}", fontsize=9.0)
        curves = [
            Line2D([], [], color=colour, marker="o", markersize=_MARK, label=f"{uses:,} vectors a load")
            for colour, uses in zip(_REUSE_COLOURS, (found.reuse[place] for place in places), strict=False)
        ]
        handles = [*curves, *_marks(found), *_gpu_handles(found)]
        figure.legend(handles=handles, loc="outside right center", fontsize=7.5)
        return save(figure, path)


def _size_curve(axes: Axes, found: CoresStudy, name: str, place: int, colour: str) -> None:
    """Draw a core's energy at one reuse: what has room joined by a line, what has not by dots."""
    drawn = [one for one in sizes_of(found, name).values() if one.laser_power_w > 0.0]
    sides = np.array([one.side for one in drawn])
    energy = np.array([one.j_per_mac[place] for one in drawn]) / PICOJOULE
    fits = np.array([one.outcome is Outcome.WORKS for one in drawn], dtype=bool)
    axes.plot(sides, energy, ":", color=colour, linewidth=1.0)
    axes.plot(sides, np.where(fits, energy, np.nan), color=colour, linewidth=1.2)
    axes.plot(sides[fits], energy[fits], "o", color=colour, markersize=_MARK)
    axes.plot(sides[~fits], energy[~fits], "o", color=colour, markerfacecolor="white", markersize=_MARK)
    now = present(found, name)
    if now.laser_power_w > 0.0:
        axes.plot(now.side, now.j_per_mac[place] / PICOJOULE, **_RING)


def _size_axes(axes: Axes, variants: Sequence[Variant]) -> None:
    """Name the axes of a core's panel; sizes that do not work are marked at its top."""
    for outcome, mark in _FAILURES.items():
        dead = [one.side for one in variants if one.outcome is outcome]
        axes.plot(dead, [0.95] * len(dead), mark, color=PALETTE[5], transform=axes.get_xaxis_transform())
    sides = [one.side for one in variants]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(*SHOWN_PJ)
    axes.set_xlim(sides[0] / 1.3, sides[-1] * 1.3)
    axes.set_xticks(sides[::2], [str(side) for side in sides[::2]])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    axes.set_xlabel(" = ".join(variants[0].sides), labelpad=1.0)
    axes.set_title(f"{label(variants[0].core)}, {variants[0].bits:g} bits", loc="left", fontsize=8.5)
    axes.grid(visible=True)


def _marks(found: CoresStudy) -> list[Line2D]:
    """Return what the marks of a panel mean."""
    return [
        Line2D([], [], linestyle="none", label="today's size", **_RING),
        Line2D(
            [],
            [],
            color=REFERENCE,
            marker="o",
            markersize=_MARK,
            markerfacecolor="white",
            linestyle=":",
            label=f"beyond the {found.basis} of {found.gpu}",
        ),
        *(
            Line2D([], [], color=PALETTE[5], marker=mark, linestyle="none", label=_FAILED[outcome])
            for outcome, mark in _FAILURES.items()
        ),
    ]


def _settled(found: CoresStudy) -> int:
    return int(np.argmin(np.abs(np.log(np.array(found.reuse) / SETTLED_REUSE))))


def _gpu_style(found: CoresStudy, name: str) -> str:
    names = list(dict.fromkeys(price.gpu for price in shown_gpus(found)))
    return _GREYS[names.index(name) % len(_GREYS)]


def _gpu_lines(axes: Axes, found: CoresStudy) -> None:
    place = _settled(found)
    for price in shown_gpus(found):
        axes.axhline(
            price.j_per_mac[place] / PICOJOULE,
            color=_gpu_style(found, price.gpu),
            linestyle=_DASHES[price.format],
            linewidth=0.8,
            zorder=1.5,
        )


def _gpu_handles(found: CoresStudy) -> list[Line2D]:
    place = _settled(found)
    return [
        Line2D(
            [],
            [],
            color=_gpu_style(found, price.gpu),
            linestyle=_DASHES[price.format],
            linewidth=1.0,
            label=f"{price.name}: {price.j_per_mac[place] / PICOJOULE:.2f} pJ",
        )
        for price in shown_gpus(found)
    ]


def energy_by_reuse(found: CoresStudy, path: Path) -> tuple[Path, Path]:
    """Draw the energy per multiply-accumulate over reuse, all cores in one picture.

    Parameters
    ----------
    found : CoresStudy
        What was found.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.
    """
    with styled():
        figure = new_figure(4.4)
        axes = figure.add_subplot()
        for place, name in enumerate(CORES):
            now = present(found, name)
            axes.plot(
                found.reuse,
                now.j_per_mac / PICOJOULE,
                "--" if analog_core(load_core(name)) is not load_core(name) else "-",
                color=colour_of(name),
                linewidth=1.6,
                marker=MARKERS[place % len(MARKERS)],
                markersize=3.5,
                label=f"{label(name)}, {now.bits:g} bits",
            )
        _gpu_lines(axes, found)
        own = [price for price in shown_gpus(found) if price.gpu == found.gpu][-1]
        axes.plot(
            found.reuse,
            own.j_per_mac / PICOJOULE,
            ":",
            color=REFERENCE,
            linewidth=1.4,
            label=f"{own.name}, same products",
        )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(*SHOWN_PJ)
        axes.set_xlim(found.reuse[0] * 0.9, found.reuse[-1] * 1.1)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
        axes.set_title(f"As large as today; bits of {SIGNAL}", loc="left", fontsize=9.0)
        axes.set_xlabel("Vectors that pass a loaded tile")
        axes.set_ylabel("Energy per multiply-accumulate (pJ)")
        axes.grid(visible=True)
        handles, _ = axes.get_legend_handles_labels()
        figure.legend(handles=[*handles, *_gpu_handles(found)], loc="outside right upper", fontsize=7.5)
        return save(figure, path)
