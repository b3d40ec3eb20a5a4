"""The picture of a step's link loads: links over time with dark time, and nodes against nodes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

from experiments.link_loads import LinkLoads
from experiments.style import PALETTE, label, new_figure, save, styled

HEIGHT_IN = 7.4
"""Height of the figure, inches."""


def draw_links(loads: LinkLoads, title: str, path: Path) -> tuple[Path, Path]:
    """Write the picture of a step's loads.

    Parameters
    ----------
    loads : LinkLoads
        The loads.
    title : str
        What was run.
    path : pathlib.Path
        Where; the suffix is replaced.
    """
    with styled():
        figure = new_figure(HEIGHT_IN)
        moving = bool(loads.dark.any())
        heights = [2.0, 0.7] if moving else [2.0]
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[sum(heights), 1.8])[:, 0]
        panels = upper.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        above = panels[0]
        _draw_loads(upper, above, loads)
        above.set_title(f"{title}: load of links over time", loc="left")
        if moving:
            _draw_dark(upper, panels[1], loads)
        panels[-1].set_xlabel("time (s)")
        sent, kinds = lower.subplots(1, 2)
        _draw_sent(lower, sent, loads)
        _draw_kinds(kinds, loads)
        return save(figure, path)


def _draw_loads(figure: SubFigure, axes: Axes, loads: LinkLoads) -> None:
    """Draw rows of links over time, and what they lead from and to."""
    extent = (0.0, float(loads.edges_s[-1]), float(len(loads.kinds)), 0.0)
    shown = axes.imshow(
        loads.used, aspect="auto", extent=extent, cmap="viridis", vmin=0.0, interpolation="nearest"
    )
    figure.colorbar(shown, ax=axes, label="load over capacity")
    places, names, start = [], [], 0
    for kind, rows in itertools.groupby(loads.kinds):
        height = len(list(rows))
        count = int(loads.links[start : start + height].sum())
        places.append(start + height / 2)
        names.append(_lines(f"{count} {kind}"))
        if start:
            axes.axhline(start, color="white", linewidth=0.8)
        start += height
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)


def _draw_dark(figure: SubFigure, axes: Axes, loads: LinkLoads) -> None:
    """Draw which nodes' circuits move over time."""
    extent = (0.0, float(loads.edges_s[-1]), float(len(loads.dark)), 0.0)
    dark = axes.imshow(
        loads.dark, aspect="auto", extent=extent, cmap="Greys", vmin=0.0, interpolation="nearest"
    )
    figure.colorbar(dark, ax=axes, label="dark")
    axes.set_ylabel("node")
    axes.set_title("share of endpoints whose circuits move", loc="left")


def _draw_sent(figure: SubFigure, axes: Axes, loads: LinkLoads) -> None:
    """Draw the bytes from each node to each other."""
    with np.errstate(divide="ignore"):
        exponent = np.where(loads.sent_bytes > 0, np.log10(loads.sent_bytes), np.nan)
    sent = axes.imshow(exponent, aspect="equal", cmap="magma_r", interpolation="nearest")
    figure.colorbar(sent, ax=axes, label="power of ten", shrink=0.8)
    axes.set_xlabel("destination node")
    axes.set_ylabel("source node")
    axes.set_title(label("bytes between nodes"), loc="left")


def _draw_kinds(axes: Axes, loads: LinkLoads) -> None:
    """Draw the load of the busiest and of all links of each kind over the step."""
    kinds = list(loads.busiest_by_kind)
    places = np.arange(len(kinds))
    axes.barh(
        places, [loads.busiest_by_kind[one] for one in kinds], height=0.7, color=PALETTE[0], label="busiest"
    )
    axes.barh(places, [loads.mean_by_kind[one] for one in kinds], height=0.3, color=PALETTE[1], label="all")
    axes.legend(loc="best")
    axes.set_yticks(places, [_lines(one) for one in kinds])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("mean load over the step")
    axes.set_title("links of each kind", loc="left")


def _lines(kind: str) -> str:
    """Return the name of a kind on two lines if it says from where to where."""
    return kind.replace(" to ", "\nto ")
