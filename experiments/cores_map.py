"""Where each core wins: the map over target bits and reuse, for energy and for time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from experiments.cores import CoresStudy
from experiments.cores_figures import SIGNAL, colour_of
from experiments.cores_gpu import FORMATS
from experiments.cores_winners import NOBODY, Winners, winners
from experiments.report import prefix_of
from experiments.style import REFERENCE, label, new_figure, save, styled
from heliograph.amounts import Reals
from optical.cores import CORES

_MEMORY = "#E3E3E3"
_SHARED = "memory sets the time"
_HATCH = "////"
_LEAST_BLANK = 1.0
"""Bits of blank above the map that have room for a sentence."""


def winner_maps(found: CoresStudy, path: Path) -> tuple[Path, Path]:
    """Draw which core takes least energy, and least time, over target bits and reuse.

    Parameters
    ----------
    found : CoresStudy
        What was found.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.

    Notes
    -----
    Time is per multiply-accumulate of accelerators of one power, or area. Where the memory sets the time of
    the fastest, all that share it are alike, and none is named.
    """
    with styled():
        figure = new_figure(4.3)
        panels = figure.subplots(1, 2, sharey=True)
        shown: set[str] = set()
        for axes, quantity, title in (
            (panels[0], "j_per_mac", "Least energy per multiply-accumulate"),
            (panels[1], "s_per_mac", f"Least time, accelerators of one {found.basis}"),
        ):
            won = winners(found, quantity)
            shown |= _map_panel(axes, found, won)
            axes.set_title(title, loc="left")
            _tell_blank(axes, found, won)
            axes.set_xlabel("Vectors that pass a loaded tile")
        panels[0].set_ylabel(f"Effective bits of {SIGNAL}")
        handles = [Patch(color=colour_of(name), label=label(name)) for name in CORES if name in shown]
        handles += [Patch(color=_MEMORY, label=_SHARED)] if _SHARED in shown else []
        handles += [
            Patch(
                facecolor="white",
                edgecolor=REFERENCE,
                hatch=_HATCH,
                linewidth=0.5,
                label=f"{found.gpu} takes less",
            ),
            Patch(facecolor="white", edgecolor=REFERENCE, linewidth=0.5, label="no core reaches the bits"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        return save(figure, path)


def _map_panel(axes: Axes, found: CoresStudy, won: Winners) -> set[str]:
    """Draw one map; return whose colours are in it."""
    names = [*CORES, _SHARED]
    across, up = _edges(np.log10(found.reuse)), _edges(np.array(found.bits))
    colours = ListedColormap([*(colour_of(name) for name in CORES), _MEMORY])
    axes.pcolormesh(
        10.0**across,
        up,
        np.ma.masked_equal(won.core, NOBODY),
        cmap=colours,
        norm=BoundaryNorm(np.arange(len(names) + 1) - 0.5, len(names)),
        rasterized=True,
    )
    hatched = np.ma.masked_where(~won.gpu_wins, np.ones_like(won.least))
    mesh = axes.pcolor(
        10.0**across, up, hatched, facecolors="none", edgecolor=REFERENCE, linewidth=0.0, hatch=_HATCH
    )
    mesh.set_facecolor("none")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(_short))
    axes.grid(visible=False)
    for one in FORMATS:
        if up[0] < one.significand_bits < up[-1]:
            axes.axhline(one.significand_bits, color=REFERENCE, linewidth=0.7, linestyle=":")
            axes.annotate(
                f"{found.gpu}: {one.name} below",
                (0.98, one.significand_bits),
                (0, -2),
                xycoords=axes.get_yaxis_transform(),
                textcoords="offset points",
                ha="right",
                va="top",
                fontsize=7.0,
            )
    return {names[place] for place in np.unique(won.core[won.core != NOBODY])}


def _tell_blank(axes: Axes, found: CoresStudy, won: Winners) -> None:
    """Say in the blank above a map what keeps every core from it."""
    name = max(found.caps, key=lambda one: found.caps[one][0])
    most, cause = found.caps[name]
    blank = [bits for bits, row in zip(found.bits, won.core, strict=True) if (row == NOBODY).all()]
    if not blank or blank[-1] - blank[0] < _LEAST_BLANK:
        return
    text = f"no core reaches these bits:\n{most:.2f} are the most ({label(name)}, by its {cause})"
    top = (float(np.sqrt(found.reuse[0] * found.reuse[-1])), blank[-1])
    axes.annotate(text, top, (0, -4), textcoords="offset points", ha="center", va="top", fontsize=7.5)


def _short(count: float, _: int) -> str:
    """Return a count with a prefix: 10k."""
    prefix, factor = prefix_of(count)
    return f"{count / factor:g}{prefix}"


def _edges(centres: NDArray[np.float64]) -> Reals:
    """Return the borders of cells around centres; a single one gets a cell of one."""
    if centres.size == 1:
        return np.array([centres[0] - 0.5, centres[0] + 0.5])
    middle = 0.5 * (centres[1:] + centres[:-1])
    edges: Reals = np.concatenate(([2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]))
    return edges
