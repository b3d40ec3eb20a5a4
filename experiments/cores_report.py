"""`heliograph cores`: what is told of all cores together, as a table, as plain data and as files.

Energy of all cores together: over the size of their arrays, and over reuse.

Where each core wins: the map over target bits and reuse, for energy and for time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullLocator
from numpy.typing import NDArray

from experiments.core import PICOJOULE, analog_core
from experiments.cores import (
    FORMATS,
    NOBODY,
    CoresStudy,
    Outcome,
    Variant,
    Winners,
    best_size,
    present,
    shown_gpus,
    sizes_of,
    winners,
)
from heliograph.records import csv_text, make_directory, write_atomically
from heliograph.report import ReportRow, prefix_of
from heliograph.style import PALETTE, REFERENCE, label, new_figure, save, styled
from optical.cores import CORES, load_core
from simulator.amounts import Reals

CURVES = (64, 512, 4096, 32768, 1048576)
"""Reuse whose curves are drawn over size, where they were asked for; a choice."""
SETTLED_REUSE = 8192
"""Reuse at which GPUs are drawn as lines: theirs no longer matters; or the nearest that was asked for."""
PANELS = 3
"""Panels in a row."""
SHOWN_PJ = (0.2, 2e4)
"""Energies that are drawn; curves leave the frame beyond, and the CSV has them."""
FULL_SCALE = "a full-scale sample at the ADC"
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
        figure.suptitle(f"Every size lit for the bits above its panel, those of {FULL_SCALE}", fontsize=9.0)
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
        axes.set_title(f"As large as today; bits of {FULL_SCALE}", loc="left", fontsize=9.0)
        axes.set_xlabel("Vectors that pass a loaded tile")
        axes.set_ylabel("Energy per multiply-accumulate (pJ)")
        axes.grid(visible=True)
        handles, _ = axes.get_legend_handles_labels()
        figure.legend(handles=[*handles, *_gpu_handles(found)], loc="outside right upper", fontsize=7.5)
        return save(figure, path)


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


SIGNAL = "a full-scale sample at the ADC, with light, converters and wrong weights"
"""What effective bits refer to."""
SHOWN_REUSE = (64, 4096, 65536)
"""Reuse that the table shows, or the nearest that was asked for; a choice."""


def shown_places(found: CoresStudy) -> list[int]:
    """Return the places of the reuse that the table shows."""
    nearest = [int(np.argmin(np.abs(np.log(np.array(found.reuse) / uses)))) for uses in SHOWN_REUSE]
    return list(dict.fromkeys(nearest))


def heads(found: CoresStudy) -> list[str]:
    """Return the heads of the table's columns."""
    uses = [f"reuse {found.reuse[place]:,}" for place in shown_places(found)]
    return ["lit for", "most bits", "set by", *uses, "best size", "takes"]


def study_rows(found: CoresStudy) -> list[ReportRow]:
    """Return a study as lines of a table, cores first, then the GPUs."""
    places = shown_places(found)
    rows = []
    for name in CORES:
        now, best = present(found, name), best_size(found, name, places[-1])
        cap, cause = found.caps[name]
        rows.append(
            ReportRow(
                label=name,
                values=(
                    f"{now.bits:g} bits",
                    f"{cap:.2f}",
                    cause,
                    *(_picojoules(now.j_per_mac[place]) for place in places),
                    "none fits" if best is None else sides_text(best),
                    "" if best is None else _picojoules(best.j_per_mac[places[-1]]),
                ),
            )
        )
    for place, price in enumerate(shown_gpus(found)):
        rows.append(
            ReportRow(
                label=price.name,
                values=(
                    f"{price.significand_bits:g} bits",
                    f"{price.significand_bits:.2f}",
                    "significand",
                    *(_picojoules(price.j_per_mac[one]) for one in places),
                    "",
                    "",
                ),
                section=place == 0,
            )
        )
    return rows


def sides_text(one: Variant) -> str:
    """Return the size of an array in words of few letters."""
    return " x ".join(str(count) for count in one.sides.values())


def _picojoules(energy_j: float) -> str:
    return "\u2013" if np.isnan(energy_j) else f"{energy_j / PICOJOULE:,.3g} pJ"


def summary_lines(found: CoresStudy) -> list[str]:
    """Return what a table does not hold, in sentences."""
    lines = [
        "Energy per multiply-accumulate with buffer and memory, each core lit for its bits. Bits are those "
        f"of {SIGNAL}; a GPU's are the significand's.",
        "Reuse: products that each element of either operand takes part in, hence vectors that pass a load.",
    ]
    for quantity, word in (("j_per_mac", "energy"), ("s_per_mac", "time")):
        won = winners(found, quantity)
        reached = won.core != NOBODY
        if not reached.any():
            lines.append(f"No core reaches {found.bits[0]:g} bits.")
            break
        lit = reached & ~won.gpu_wins
        who = (*CORES, "memory sets it for all")
        counts = {name: int(np.sum(lit & (won.core == place))) for place, name in enumerate(who)}
        names = ", ".join(f"{name} {count / reached.sum():.0%}" for name, count in counts.items() if count)
        top = max(bits for bits, row in zip(found.bits, reached, strict=True) if row.any())
        lines.append(
            f"Least {word} where some core reaches the bits (up to {top:g}): {names or 'no core'}; "
            f"{found.gpu} {won.gpu_wins.sum() / reached.sum():.0%}."
        )
    return lines


def write(found: CoresStudy, directory: Path) -> list[Path]:
    """Write pictures (png and svg) and every point in them (csv); return what was written.

    Raises
    ------
    HeliographError
        If the directory cannot be made or written.
    """
    make_directory(directory)
    written = [
        *energy_by_size(found, directory / "cores_size"),
        *energy_by_reuse(found, directory / "cores_reuse"),
        *winner_maps(found, directory / "cores_map"),
    ]
    tables = {"size": _points(found.sizes, found.reuse), "map": _points(found.maps, found.reuse)}
    tables["gpus"] = _gpu_points(found)
    for name, rows in tables.items():
        written.append(directory / f"cores_{name}.csv")
        write_atomically(written[-1], csv_text(rows))
    return written


def record(found: CoresStudy) -> dict[str, Any]:
    """Return everything as plain data."""
    return {
        "gpu": found.gpu,
        "basis": str(found.basis),
        "bits_refer_to": SIGNAL,
        "caps": {name: {"bits": bits, "set_by": cause} for name, (bits, cause) in found.caps.items()},
        "size": _points(found.sizes, found.reuse),
        "map": _points(found.maps, found.reuse),
        "gpus": _gpu_points(found),
    }


def _points(variants: Iterable[Variant], reuse: Sequence[int]) -> list[dict[str, object]]:
    """Return a row for every variant and reuse; what does not work, with its reason and no numbers."""
    rows: list[dict[str, object]] = []
    for one in variants:
        common: dict[str, object] = {
            "core": one.core,
            "size": sides_text(one),
            "factor": one.factor,
            "target_bits": one.bits,
            "outcome": str(one.outcome),
            "laser_power_w": _told(one.laser_power_w),
            "cores": one.cores,
        }
        for place, uses in enumerate(reuse):
            rows.append(
                common
                | {
                    "reuse": uses,
                    "energy_j_per_mac": _told(one.j_per_mac[place]),
                    "time_s_per_mac": _told(one.s_per_mac[place]),
                    "memory_bound": bool(one.memory_bound[place]),
                    "reason": one.reason,
                }
            )
    return rows


def _gpu_points(found: CoresStudy) -> list[dict[str, object]]:
    return [
        {
            "gpu": price.gpu,
            "format": price.format,
            "significand_bits": price.significand_bits,
            "reuse": uses,
            "energy_j_per_mac": float(price.j_per_mac[place]),
            "time_s_per_mac": float(price.s_per_mac[place]),
        }
        for price in found.gpus
        for place, uses in enumerate(found.reuse)
    ]


def _told(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
