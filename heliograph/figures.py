"""Figures of steps, comparisons and sweeps, drawn from plain records in one style.

A record is ``{"system": str, "step_time_s": float, "time_by_category_s": {str: float}, "energy_per_token_j":
float, "energy_by_component_j_per_token": {str: float}}``; a curve is ``{"label": str, "steps": [S numbers],
"losses": [one list of S numbers per seed]}``, with ``"reference": true`` for exact arithmetic.
"""

from __future__ import annotations

import math
import os
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from heliograph.records import write_atomically
from heliograph.report import format_si, prefix_of, takes_prefix
from simulator.errors import HeliographError
from simulator.units import dimension_of, plain_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.legend import Legend
    from matplotlib.patches import Patch

WIDTH_IN = 7.0
"""Width of a figure, inches: the text width of a paper."""
DPI = 200
"""Resolution of the PNG."""

PALETTE = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#7F7F7F",
    "#332288",
    "#B8B8B8",
)
"""Colours that stay apart for colour-blind readers (Okabe and Ito 2008, with greys and an indigo added)."""
REFERENCE = "#000000"
"""Colour of the exact reference."""

DARK_TIME = "#2B2B2B"
"""Colour of time in which circuits move."""

HATCHES = ("", "///", "...", "xx", "\\\\\\", "++")
"""Hatchings by which parts of one colour are told apart."""
_TIMES_BY_COLOUR: tuple[tuple[str, ...], ...] = (
    ("products", "products, loading-bound"),
    ("exposed communication",),
    (),
    ("reconfiguration",),
    ("other work", "other work, memory-bound"),
    (),
    ("waiting for launches", "waiting for the host"),
    (),
    (),
    ("pipeline bubble",),
)
"""Parts of time for each colour of `PALETTE`, in the order of `HATCHES`."""
_ENERGIES_BY_COLOUR: tuple[tuple[str, ...], ...] = (
    ("compute", "gpu active", "vector", "vector active", "vector static"),
    ("network static", "network transfers", "circuit changes", "reduction"),
    ("sram", "sram leakage", "wires", "serialiser", "die links"),
    ("dac", "modulator", "modulator bias", "phase hold", "ring tuning"),
    ("number format", "scaling", "operand transform", "adder", "outlier channels"),
    ("laser", "amplifier", "photodetector", "integrator", "tia", "readout"),
    ("adc", "gain stage", "host processors", "host memory", "host static"),
    ("other", "overhead", "calibration", "control", "clock", "regulators"),
    ("hbm", "memory static", "reload", "programming", "decomposition"),
    ("gpu idle", "idle", "fans", "power supplies"),
)
"""Parts of energy in the same way; no picture has both."""


def _looks(names_by_colour: Sequence[Sequence[str]]) -> Mapping[str, tuple[str, str]]:
    return MappingProxyType(
        {
            name: (colour, hatch)
            for colour, names in zip(PALETTE, names_by_colour, strict=True)
            for name, hatch in zip(names, HATCHES, strict=False)
        }
    )


OTHER = "other"
"""Family of components that are small or in no other family."""
ENERGY_FAMILIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "computing": ("compute", "gpu active", "vector", "vector active", "vector static"),
        "network": ("network static", "network transfers", "circuit changes", "reduction"),
        "memory": ("hbm", "memory static"),
        "host": ("host processors", "host memory", "host static"),
        "idle, fans and supplies": ("gpu idle", "idle", "fans", "power supplies"),
        "buffers and wires": ("sram", "sram leakage", "wires", "serialiser", "die links"),
        "modulation and weights": (
            *("dac", "modulator", "modulator bias", "phase hold", "ring tuning"),
            *("reload", "programming", "decomposition"),
        ),
        "laser and receivers": ("laser", "amplifier", "photodetector", "integrator", "tia", "readout"),
        "analog to digital": ("adc", "gain stage"),
        "number format": ("number format", "scaling", "operand transform", "adder", "outlier channels"),
        "clock and control": ("overhead", "calibration", "control", "clock", "regulators"),
    }
)
"""Components of energy by family, which are drawn together; first those of any accelerator, then photonic."""
_FAMILY_COLOURS = (7, 0, 1, 8, 6, 9, 2, 3, 5, 6, 4, 7)
"""Colours of `OTHER` and of each family, of `PALETTE`; two that share one differ by hatching."""


TIME_LOOKS, ENERGY_LOOKS = _looks(_TIMES_BY_COLOUR), _looks(_ENERGIES_BY_COLOUR)
"""Colour and hatching of each part of time, and of energy, the same in every figure."""
FAMILY_LOOKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        name: (PALETTE[colour], HATCHES[_FAMILY_COLOURS[:place].count(colour)])
        for place, (name, colour) in enumerate(zip([OTHER, *ENERGY_FAMILIES], _FAMILY_COLOURS, strict=True))
    }
)
"""Colour and hatching of each family of energy."""
PART_LOOKS: Mapping[str, tuple[str, str]] = MappingProxyType({**TIME_LOOKS, **ENERGY_LOOKS, **FAMILY_LOOKS})
"""Colour and hatching of all parts."""


def looks_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return colour and hatching for every part: those of `PART_LOOKS`, others by a hash of their name.

    Parameters
    ----------
    names : sequence of str
        The parts of one figure, each once. No two look alike where there are at most 60.
    """
    every = [(colour, hatch) for hatch in HATCHES for colour in PALETTE]
    looks = {name: PART_LOOKS[name] for name in names if name in PART_LOOKS}
    for name in sorted(set(names) - set(looks)):
        first = zlib.crc32(name.encode("utf-8", "replace")) % len(every)
        turned = [*every[first:], *every[:first]]
        looks[name] = next((one for one in turned if one not in looks.values()), turned[0])
    return [looks[name] for name in names]


_SETTINGS: Any = {
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "svg.hashsalt": "heliograph",
    "svg.fonttype": "path",
    "text.parse_math": False,
}
_MAX_LABEL = 28


def linear_width(changes: Sequence[float]) -> float:
    """Return the linear width of an asinh scale for some changes: the median of their magnitudes."""
    sizes = sorted(abs(one) for one in changes if one)
    return sizes[len(sizes) // 2] if sizes else 1.0


def signed_ticks(least: float, most: float, linear: float) -> list[float]:
    """Return tick positions of an asinh axis from `least` to `most`: zero, and 1 and 3 times powers of ten.

    Ticks below a third of the linear width are left out. A side without any tick gets one at its end.
    """
    steps = [0.0]
    decade = 10.0 ** math.floor(math.log10(max(-least, most, linear, 1e-30)))
    while 3.0 * decade >= linear / 3.0 and len(steps) < 13:
        sizes = [size for size in (3.0 * decade, decade) if size >= linear / 3.0]
        steps += [one for size in sizes for one in (size, -size) if least <= one <= most]
        decade /= 10.0
    for end in (most, least):
        if abs(end) >= linear / 3.0 and not any(step * end > 0.0 for step in steps):
            steps.append(float(f"{end:.2g}"))
    if len(steps) < 3:
        steps += [float(f"{one:.2g}") for one in (most, least) if one]
    return sorted(set(steps))


def plain_ticks(axis: Axis, text: Callable[[float], str] = "{:g}".format, *, minor: bool = True) -> None:
    """Label an axis with plain numbers in place of powers; without `minor` its small ticks have no label.

    With it, a logarithmic axis too short for two powers has labels at small ticks; its scale is set before.
    """
    from matplotlib.ticker import FuncFormatter, LogFormatter, NullFormatter  # noqa: PLC0415 - takes its time

    class Sparse(LogFormatter):
        """Text at those small ticks that matplotlib would label."""

        def __call__(self, value: float, place: int | None = None) -> str:
            return text(value) if super().__call__(value, place) else ""

    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    if not minor:
        axis.set_minor_formatter(NullFormatter())
    elif axis.get_scale() == "log":
        axis.set_minor_formatter(Sparse())


def dense_ticks(axis: Axis) -> None:
    """Give a logarithmic axis that spans little even ticks, and one of few powers ticks between these."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter  # noqa: PLC0415 - takes its time

    low, high = sorted(axis.get_view_interval())
    if high < EVEN * low:
        axis.set_major_locator(MaxNLocator(MOST_TICKS, steps=(1, 2, 5, 10)))
    elif high < FEW_POWERS * low:
        between = (1.0, 2.0, 3.0, 5.0, 7.0) if high < ONE_POWER * low else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=between))
    axis.set_minor_formatter(NullFormatter())


EVEN, ONE_POWER, FEW_POWERS = 6.0, 20.0, 1e3
"""Spans of a logarithmic axis below which ticks are even, at 1, 2, 3, 5 and 7, or at 1, 2 and 5; choices."""
MOST_TICKS = 7
"""Even ticks of such an axis; a choice."""


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of bars at 0, 1 and so on, the first at the top, without tick marks."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()


Ends = tuple[str, float | None, float | None]
"""Name of a number, and the result at the low and the high end of its range; None if there is no result."""
ENDS = (PALETTE[4], PALETTE[5])
"""Colours of bars to the low and the high end."""


def draw_ends(axes: Axes, numbers: Sequence[Ends], present: float) -> None:
    """Draw a row for each number, the first at the top, with bars from the present result to both ends.

    A cross stands for an end without a result.
    """
    for row, (_, *ends) in enumerate(numbers):
        for end, colour in zip(ends, ENDS, strict=True):
            if end is None:
                axes.plot(present, row, "x", color=colour, markeredgewidth=1.8, zorder=3.0)
            else:
                axes.barh(row, end - present, 0.7, left=present, color=colour)
    name_rows(axes, [name for name, _, _ in numbers])
    axes.tick_params(axis="y", labelsize=7.0)
    axes.grid(visible=True, axis="x")


def swatches(colours: Mapping[str, Any]) -> list[Patch]:
    """Return legend handles, one patch for each colour, labelled by its meaning."""
    from matplotlib.patches import Patch  # noqa: PLC0415 - takes its time

    return [Patch(color=colour, label=meaning) for meaning, colour in colours.items()]


def legend_below_or_above(
    figure: Figure | SubFigure, handles: Sequence[Any], names: Sequence[str], *, above: bool, most: int
) -> Legend:
    """Return a legend outside the axes, drawn in as many columns as the figure is wide.

    Parameters
    ----------
    figure : Figure or SubFigure
        Figure of the legend.
    handles, names : sequence
        Handles of the legend, and their labels.
    above : bool
        Whether the legend is above the axes, rather than below.
    most : int
        Most columns.
    """
    loc: Literal["outside upper center", "outside lower center"]
    loc = "outside upper center" if above else "outside lower center"
    room = figure.bbox.width
    for columns in range(min(most, len(names)), 1, -1):
        legend = figure.legend(handles, names, loc=loc, ncols=columns)
        if legend.get_window_extent().width <= room:
            return legend
        legend.remove()
    return figure.legend(handles, names, loc=loc, ncols=1)


@contextmanager
def styled() -> Iterator[None]:
    """Draw with the common settings, and without a display; a glyph that the font lacks is drawn as a box.

    Raises
    ------
    HeliographError
        If the environment names a backend that matplotlib does not know.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - takes its time
    except ValueError as error:
        backend = os.environ.get("MPLBACKEND", "")
        msg = f"MPLBACKEND is '{backend}', which matplotlib does not know; unset it, or set it to agg"
        raise HeliographError(msg) from error
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Glyph .* missing from.*")
        yield


def new_figure(height_in: float) -> Figure:
    """Return an empty figure of the common width that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - takes its time
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes its time

    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def label(name: str) -> str:
    """Return a name as a figure shows it: printable, its middle left out if it is long, no leading ``_``."""
    shown = "".join(letter if letter.isprintable() else " " for letter in name).strip() or "(no name)"
    shown = shown.lstrip("_").strip() or shown.replace("_", " ").strip() or "(no name)"
    half = _MAX_LABEL // 2
    return shown if len(shown) <= _MAX_LABEL else shown[: half - 1] + "\u2026" + shown[-half:]


def row_label(name: str) -> str:
    """Return a name as a row shows it, over two lines where its words need them."""
    first, *rest = wrap(name, _MAX_LABEL, break_long_words=False, break_on_hyphens=False) or [name]
    return "\n".join(map(label, (first, " ".join(rest)) if rest else (first,)))


def save(figure: Figure, path: Path) -> tuple[Path, Path]:
    """Write a figure as PNG and as SVG beside each other.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        What to write; the same figure gives the same bytes.
    path : pathlib.Path
        Where; the suffix is replaced.

    Raises
    ------
    HeliographError
        If the directory cannot be written.
    """
    written = (path.with_suffix(".png"), path.with_suffix(".svg"))
    with styled(), tempfile.TemporaryDirectory() as scratch:
        for target in written:
            drawn = Path(scratch) / f"figure{target.suffix}"
            figure.savefig(drawn, dpi=DPI, metadata={"Date": None} if target.suffix == ".svg" else None)
            write_atomically(target, drawn.read_bytes())
    return written


WIDE = 30.0
"""Ratio of the largest to the smallest number from which an axis is logarithmic; dimensionless."""

_SMALL_SHARE = 0.01
_BAR_HEIGHT = 0.62
_ROW_IN, _SLIM_ROW_IN, _FEW = 0.42, 0.3, 6
"""Height of a bar's row, and of one among more than a few, inches."""
_VISIBLE = 5e-4
"""Share of the longest bar below which a part cannot be seen and is left out, dimensionless."""
_CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}


def step_figure(records: Sequence[Mapping[str, Any]], *, time: bool = True, energy: bool = True) -> Figure:
    """Return a figure of the step time of every system above its energy per token, bars stacked by part.

    Families of components that stay below 1 % of every bar of energy are drawn together as "other".

    Parameters
    ----------
    records : sequence of mapping
        One per system, in the order of the bars from the top; uses ``time_by_category_s`` and
        ``energy_by_component_j_per_token``.
    time, energy : bool
        Whether each is drawn.

    Raises
    ------
    HeliographError
        If there is nothing to draw, or a part is negative or not finite.
    """
    drawn: list[tuple[dict[str, np.ndarray], str, str]] = []
    if time:
        drawn.append((parts_of(records, "time_by_category_s"), "s", "Step time"))
    if energy:
        parts = energy_families(parts_of(records, "energy_by_component_j_per_token"))
        drawn.append((parts, "J", "Energy per token"))
    heights = [_height_in(records, parts) for parts, _, _ in drawn]
    with styled():
        figure = new_figure(sum(heights))
        panels: Any = [figure]
        if len(drawn) > 1:
            panels = figure.subfigures(len(drawn), 1, height_ratios=heights)
        for panel, (parts, unit, quantity) in zip(panels, drawn, strict=True):
            _stacked_bars(panel, records, parts, unit=unit, quantity=quantity)
    return figure


def range_bars(panels: Mapping[str, tuple[float, Sequence[Ends]]]) -> Figure:
    """Return a figure of what numbers do to a ratio at both ends of their range.

    Parameters
    ----------
    panels : mapping
        By title: the present ratio, and name and ratios at the low and the high end of each number, the
        strongest first; None where there is none, which is a cross.
    """
    rows = [max(1, len(bars)) for _, bars in panels.values()]
    with styled():
        from matplotlib.lines import Line2D  # noqa: PLC0415 - takes its time
        from matplotlib.patches import Patch  # noqa: PLC0415 - takes its time

        figure = new_figure(1.0 + 0.17 * sum(rows) + 0.5 * len(panels))
        drawn = np.atleast_1d(figure.subplots(len(panels), 1, height_ratios=rows, sharex=True))
        for axes, (title, (present, bars)) in zip(drawn, panels.items(), strict=True):
            draw_ends(axes, bars, present)
            axes.set_title(f"{title}: {present:.3g}", loc="left")
            axes.set_xscale("log")
            axes.axvline(1.0, color=REFERENCE, linewidth=0.8)
            axes.axvline(present, color=REFERENCE, linewidth=0.8, linestyle=":")
        dense_ticks(drawn[-1].xaxis)
        plain_ticks(drawn[-1].xaxis, minor=False)
        drawn[-1].set_xlabel("Ratio with one number at an end of its range (below 1 the first is better)")
        marks = [
            *(Patch(color=one) for one in ENDS),
            Line2D([], [], linestyle="", marker="x", color=REFERENCE),
        ]
        names = ["low end of its range", "high end", "does not work at that end"]
        figure.legend(marks, names, loc="outside lower center", ncols=3)
    return figure


def loss_curves(curves: Sequence[Mapping[str, Any]], path: Path) -> tuple[Path, Path]:
    """Draw the validation loss over training steps: the mean of the seeds, and their range as a band.

    The reference is a broad pale line, so that what lies on it stays visible. The right panel names every
    curve and shows its last losses minus those of the reference with the same seeds.

    Parameters
    ----------
    curves : sequence of mapping
        One per numerics; the one marked ``reference``, or else the first, is drawn in black.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.

    Raises
    ------
    HeliographError
        If there is nothing to draw, shapes do not fit, or the file cannot be written.
    """
    _refuse_nothing(curves)
    drawn = [(label(str(curve["label"])), *_curve_arrays(curve)) for curve in curves]
    marked = [index for index, curve in enumerate(curves) if curve.get("reference")]
    reference = marked[0] if marked else 0
    order = [reference, *(index for index in range(len(curves)) if index != reference)]
    with styled():
        figure = new_figure(2.9 + 0.12 * len(order))
        left, right = figure.subplots(1, 2, width_ratios=(1.5, 1.0))
        exact = drawn[reference][2]
        for place, index in enumerate(order):
            name, steps, losses = drawn[index]
            colour = REFERENCE if place == 0 else PALETTE[(place - 1) % len(PALETTE)]
            _draw_curve(left, steps, losses, colour=colour, name=name, place=place)
            _draw_last(right, losses, exact, colour=colour, place=place)
        seeds = max(losses.shape[0] for _, _, losses in drawn)
        meaning = "; line: mean, band: range of the seeds" if seeds > 1 else ""
        left.set(xlabel=f"Training step{meaning}", ylabel="Validation loss (nats per byte)")
        left.grid(visible=True)
        right.axvline(0.0, color=REFERENCE, linewidth=0.8)
        right.set_yticks(range(len(order)), [drawn[index][0] for index in order])
        right.set(xlabel=f"Last loss minus {drawn[reference][0]};\ndot: a seed, bar: mean")
        right.set_ylim(len(order) - 0.4, -0.6)
        right.grid(visible=True, axis="x")
        told = left.get_legend_handles_labels()
        legend_below_or_above(figure, *told, above=True, most=3)
        return save(figure, path)


def lines_figure(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x: str,
    y: str,
    beside: Mapping[str, Sequence[tuple[float, float]]] = MappingProxyType({}),
) -> Figure:
    """Return a figure of lines through points.

    Parameters
    ----------
    lines : mapping of str to sequence of (float, float)
        Points of each line by its name, in the order in which they are joined; not where two are above each
        other.
    x, y : str
        What the numbers are; the ending tells the SI unit.
    beside : mapping of str to sequence of (float, float)
        Lines that the others are held against, such as a GPU's; drawn dashed.
    """
    every = {**lines, **beside}
    with styled():
        figure = new_figure(3.2 + 0.2 * math.ceil(len(every) / 3))
        axes = figure.add_subplot()
        factors = {}
        for place, name in enumerate((x, y)):
            numbers = [abs(point[place]) for points in every.values() for point in points]
            dimension = dimension_of(name)
            unit = dimension[1] if dimension else ""
            prefix, factors[name] = prefix_of(max(numbers)) if takes_prefix(unit) else ("", 1.0)
            spread = [number for number in numbers if number > 0.0]
            wide = len(spread) == len(numbers) and max(spread) >= WIDE * min(spread)
            axis = axes.xaxis if place == 0 else axes.yaxis
            axis.set_label_text(f"{plain_name(name)} ({prefix}{unit})" if unit else plain_name(name))
            if wide:
                (axes.set_xscale if place == 0 else axes.set_yscale)("log")
                plain_ticks(axis, "{:,.12g}".format)
        for index, (name, points) in enumerate(lines.items()):
            across, up = zip(*points, strict=True)
            axes.plot(
                np.array(across) / factors[x],
                np.array(up) / factors[y],
                "o-" if len(set(across)) == len(across) else "o",
                markersize=4.0,
                color=PALETTE[index % len(PALETTE)],
                label=name,
            )
        for name, points in beside.items():
            across, up = zip(*points, strict=True)
            axes.plot(
                np.array(across) / factors[x],
                np.array(up) / factors[y],
                color=REFERENCE,
                linestyle="--",
                marker="o" if len(points) == 1 else "",
                label=name,
            )
        axes.grid(visible=True)
        if len(every) > 1:
            told = axes.get_legend_handles_labels()
            legend_below_or_above(figure, *told, above=True, most=3)
    return figure


def _height_in(records: Sequence[object], parts: Mapping[str, object]) -> float:
    """Return the height of a panel of bars with its legend, inches."""
    each = _ROW_IN if len(records) <= _FEW else _SLIM_ROW_IN
    return 1.25 + each * len(records) + 0.2 * math.ceil(len(parts) / 4)


def _stacked_bars(
    figure: Figure | SubFigure,
    records: Sequence[Mapping[str, Any]],
    parts: dict[str, np.ndarray],
    *,
    unit: str,
    quantity: str,
) -> None:
    """Draw a bar for each record, stacked by part, with its legend above."""
    totals = np.sum(list(parts.values()), axis=0)
    parts = {name: one for name, one in parts.items() if one.max() >= _VISIBLE * totals.max()}
    symbol, factor = prefix_of(float(totals.max()))
    places = np.arange(len(records))
    axes = figure.add_subplot()
    start = np.zeros(len(records))
    for (name, values), (colour, hatch) in zip(parts.items(), looks_of(list(parts)), strict=True):
        axes.barh(
            places,
            values / factor,
            _BAR_HEIGHT,
            left=start / factor,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.5,
            label=label(name),
        )
        start = start + values
    for place, total in zip(places, totals, strict=True):
        text = format_si(float(total), unit)
        end = (float(total) / factor, float(place))
        axes.annotate(text, end, (5, 0), textcoords="offset points", va="center", bbox=_CLEAR)
    name_rows(axes, [row_label(str(record["system"])) for record in records])
    axes.set_xlim(0.0, max(1.13 * float(totals.max()) / factor, 1e-3))
    axes.set_xlabel(f"{quantity} ({symbol}{unit})")
    axes.grid(visible=True, axis="x")
    handles, names = axes.get_legend_handles_labels()
    legend_below_or_above(figure, handles, names, above=True, most=4)


def parts_of(records: Sequence[Mapping[str, Any]], key: str) -> dict[str, np.ndarray]:
    """Return the parts of every record, shape [records], by name in order of first appearance."""
    _refuse_nothing(records)
    names = list(dict.fromkeys(name for record in records for name in record[key]))
    parts = {name: np.array([float(record[key].get(name, 0.0)) for record in records]) for name in names}
    for name, values in parts.items():
        wrong = ~np.isfinite(values) | (values < 0.0)
        if wrong.any():
            index = int(np.argmax(wrong))
            msg = f"{key} of '{records[index]['system']}': {name} is {values[index]:g}; must be at least 0"
            raise HeliographError(msg)
    shown = {name: values for name, values in parts.items() if values.any()}
    if not shown:
        msg = f"nothing to draw: every part of {key} is zero"
        raise HeliographError(msg)
    return shown


def energy_families(parts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return energy by `ENERGY_FAMILIES`, in their order; small ones and other parts come together, last."""
    totals = np.maximum(np.sum(list(parts.values()), axis=0), np.finfo(float).tiny)
    family_of = {part: family for family, members in ENERGY_FAMILIES.items() for part in members}
    found: dict[str, np.ndarray] = dict.fromkeys([*ENERGY_FAMILIES, OTHER], np.zeros_like(totals))
    for part, values in parts.items():
        family = family_of.get(part, OTHER)
        found[family] = found[family] + values
    small = [name for name in ENERGY_FAMILIES if (found[name] / totals).max() < _SMALL_SHARE]
    for name in small:
        found[OTHER] = found[OTHER] + found.pop(name)
    return {name: values for name, values in found.items() if values.any()}


def _curve_arrays(curve: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    steps = np.asarray(curve["steps"], dtype=float)
    lengths = {len(seed) for seed in curve["losses"]}
    if not steps.size or lengths != {steps.size}:
        msg = f"curve '{curve['label']}': every seed needs {steps.size} losses; got {sorted(lengths)}"
        raise HeliographError(msg)
    losses = np.asarray(curve["losses"], dtype=float)
    return steps, np.where(np.isfinite(losses), losses, np.nan)


_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (2, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
"""Dashes of curves after the reference, so that one that lies on another shows through its gaps."""


def _draw_curve(
    axes: Axes, steps: np.ndarray, losses: np.ndarray, *, colour: str, name: str, place: int
) -> None:
    """Draw mean and range of a curve; the reference, at place 0, broad and pale beneath all others."""
    alive = np.isfinite(losses).all(axis=0)
    ended = "" if alive.all() else " (diverged)"
    axes.plot(
        steps[alive],
        losses[:, alive].mean(axis=0),
        linestyle=_DASHES[(place - 1) % len(_DASHES)] if place else "-",
        marker="o" if steps.size == 1 else "",
        color=colour,
        linewidth=1.4 if place else 5.0,
        alpha=1.0 if place else 0.3,
        zorder=2.5 if place else 2.0,
        label=name + ended,
    )
    axes.fill_between(
        steps[alive],
        losses[:, alive].min(axis=0),
        losses[:, alive].max(axis=0),
        color=colour,
        alpha=0.15,
        linewidth=0.0,
    )


def _draw_last(axes: Axes, losses: np.ndarray, exact: np.ndarray, *, colour: str, place: int) -> None:
    """Draw the last losses of a curve's seeds minus the reference's, of the same seed where both have it."""
    paired = losses.shape[0] == exact.shape[0]
    last = losses[:, -1] - (exact[:, -1] if paired else np.nanmean(exact[:, -1]))
    last = last[np.isfinite(last)]
    if last.size:
        spread = np.linspace(-0.16, 0.16, last.size) if last.size > 1 else np.zeros(1)
        axes.plot(last, place + spread, "o", color=colour, markersize=4.0, alpha=0.75, markeredgewidth=0.0)
        axes.plot([last.mean()] * 2, [place - 0.3, place + 0.3], color=colour, linewidth=1.6)
        return
    axes.annotate("diverged", (0.5, place), xycoords=("axes fraction", "data"), va="center", color=colour)


def _refuse_nothing(records: Sequence[object]) -> None:
    if not records:
        msg = "nothing to draw: no system and no curve was recorded"
        raise HeliographError(msg)
