"""Style of all figures: palette, sizes and saving, in one place."""

from __future__ import annotations

import math
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from heliograph.records import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
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
    ("compute", "vector", "vector static"),
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


TIME_LOOKS, ENERGY_LOOKS = _looks(_TIMES_BY_COLOUR), _looks(_ENERGIES_BY_COLOUR)
"""Colour and hatching that a part of time, or of energy, keeps in every figure, whatever its rank."""
PART_LOOKS: Mapping[str, tuple[str, str]] = MappingProxyType({**TIME_LOOKS, **ENERGY_LOOKS})
"""The same of both."""


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
    """Return the change about which a scale by asinh turns from linear to logarithmic: the median."""
    sizes = sorted(abs(one) for one in changes if one)
    return sizes[len(sizes) // 2] if sizes else 1.0


def signed_ticks(least: float, most: float, linear: float) -> list[float]:
    """Return round values to both sides of nothing, each about three times the last, none nearly on zero."""
    steps = [0.0]
    size = 10.0 ** math.floor(math.log10(max(-least, most, linear, 1e-30)))
    while size >= linear / 3.0 and len(steps) < 13:
        near = (size, -size, 3.0 * size, -3.0 * size)
        steps += [one for one in near if least <= one <= most]
        size /= 10.0
    if len(steps) < 3:
        steps += [one for one in (most, least) if one]
        return sorted({float(f"{one:.2g}") for one in steps})
    return sorted(set(steps))


def plain_ticks(axis: Axis, text: Callable[[float], str] = "{:g}".format, *, minor: bool = True) -> None:
    """Label an axis with plain numbers in place of powers; without `minor` its small ticks have no label."""
    from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: PLC0415 - takes its time

    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    if not minor:
        axis.set_minor_formatter(NullFormatter())


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of bars at 0, 1 and so on, the first at the top, without tick marks."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()


def swatches(colours: Mapping[str, Any]) -> list[Patch]:
    """Return what a legend shows of colours, by what they mean."""
    from matplotlib.patches import Patch  # noqa: PLC0415 - takes its time

    return [Patch(color=colour, label=meaning) for meaning, colour in colours.items()]


@contextmanager
def styled() -> Iterator[None]:
    """Draw with the common settings, and without a display; a glyph that the font lacks is drawn as a box."""
    import matplotlib as mpl  # noqa: PLC0415 - takes its time

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
    """Return a name as a figure shows it: printable, not too long, never hidden by a leading ``_``."""
    shown = "".join(letter if letter.isprintable() else " " for letter in name).strip() or "(no name)"
    shown = shown.lstrip("_").strip() or shown.replace("_", " ").strip() or "(no name)"
    return shown if len(shown) <= _MAX_LABEL else shown[: _MAX_LABEL - 1] + "\u2026"


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
    with tempfile.TemporaryDirectory() as scratch:
        for target in written:
            drawn = Path(scratch) / f"figure{target.suffix}"
            figure.savefig(drawn, dpi=DPI, metadata={"Date": None} if target.suffix == ".svg" else None)
            write_atomically(target, drawn.read_bytes())
    return written
