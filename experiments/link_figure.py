"""The picture of a step's link loads: links over time with dark time, and nodes against nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.link_loads import LinkLoads
from experiments.style import label, new_figure, save, styled

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
        above, *middle, below = figure.subplots(
            2 + moving, 1, height_ratios=[2.0, 0.7, 2.2] if moving else [2.0, 2.2]
        )
        extent = (0.0, float(loads.edges_s[-1]), float(loads.links.sum()), 0.0)
        shown = above.imshow(
            loads.used, aspect="auto", extent=extent, cmap="viridis", vmin=0.0, interpolation="nearest"
        )
        figure.colorbar(shown, ax=above, label="load over capacity")
        above.set_ylabel("links that carry bytes")
        above.set_title(f"{title}: load of links over time", loc="left")
        for panel in middle:
            extent = (0.0, float(loads.edges_s[-1]), float(len(loads.dark)), 0.0)
            dark = panel.imshow(
                loads.dark, aspect="auto", extent=extent, cmap="Greys", vmin=0.0, interpolation="nearest"
            )
            figure.colorbar(dark, ax=panel, label="endpoints dark")
            panel.set_ylabel("node")
            panel.set_title("circuits that move", loc="left")
        (middle[-1] if middle else above).set_xlabel("time (s)")
        with np.errstate(divide="ignore"):
            exponent = np.where(loads.sent_bytes > 0, np.log10(loads.sent_bytes), np.nan)
        sent = below.imshow(exponent, aspect="equal", cmap="magma_r", interpolation="nearest")
        figure.colorbar(sent, ax=below, label="bytes of the step (power of ten)")
        below.set_anchor("W")
        below.set_xlabel("destination node")
        below.set_ylabel("source node")
        below.set_title(f"{label('bytes between nodes')}", loc="left")
        return save(figure, path)
