"""The table, the rows and the figure of a run with few photons."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from experiments.photon_records import CHANCE, TARGET, PhotonResult, Point, photons_at, published
from experiments.plain import canonical_json, write_atomically
from experiments.report import ReportRow, format_si, table_text
from experiments.style import PALETTE, REFERENCE, new_figure, save, styled
from heliograph.errors import HeliographError

_PER_MULTIPLICATION = "detected photons per multiplication"
_MARKERS = "osD^"
_FULL_PERCENT = 100.0


def write(result: PhotonResult, directory: Path) -> tuple[Path, ...]:
    """Write rows, record and figure into a directory; return their paths.

    Raises
    ------
    HeliographError
        If the directory cannot be made or written.
    """
    prepare(directory)
    table, record = directory / "photons.csv", directory / "photons.json"
    write_atomically(table, _csv(result))
    write_atomically(record, canonical_json(result.record(), indent=1))
    return (table, record, *draw(result, directory / "photons"))


def prepare(directory: Path) -> None:
    """Make a directory if it is not there.

    Raises
    ------
    HeliographError
        If that cannot be done.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot make the directory {directory}: {error.strerror}; name another with --out"
        raise HeliographError(msg) from error


def report(result: PhotonResult) -> str:
    """Return both tables as text: accuracy by scheme, and photons by length of the vectors."""
    curves = _curves(result.points)
    grid = [point.photons_per_mac for point in next(iter(curves.values()))]
    rows = [
        ReportRow(label=f"{photons:g}", values=tuple(_percent(curve[i]) for curve in curves.values()))
        for i, photons in enumerate(grid)
    ]
    rows.append(
        ReportRow(
            label=f"photons for {TARGET:.0%}",
            values=tuple(_photons(photons_at(TARGET, curve)) for curve in curves.values()),
            section=True,
        )
    )
    widths = "-".join(str(width) for width in result.widths)
    exact = sum(result.digital) / len(result.digital)
    title = f"Accuracy (%) of {widths} by {_PER_MULTIPLICATION}; exact: {exact:.1%}"
    first = table_text(title, list(curves), rows)
    marks = ", ".join(f"{one.accuracy:.0%} at {one.photons_per_mac:g} ({one.work})" for one in published())
    needed = result.needed()
    lengths = [
        ReportRow(label="exact accuracy", values=tuple(f"{result.law_digital[n]:.1%}" for n in needed)),
        ReportRow(
            label="photons per multiplication", values=tuple(_photons(found) for found in needed.values())
        ),
        ReportRow(
            label="photons per dot product",
            values=tuple(_photons(found * length) for length, found in needed.items()),
        ),
    ]
    second = table_text(
        f"Only the first layer in light: photons for {TARGET:.0%} of the exact accuracy",
        [f"{length} inputs" for length in needed],
        lengths,
    )
    law = f"Photons per multiplication go as length^{result.exponent:.2f}; the law is -1."
    return f"{first}\nMeasured on MNIST, not on these digits: {marks}.\n\n{second}\n{law}\n"


def draw(result: PhotonResult, path: Path) -> tuple[Path, Path]:
    """Draw accuracy over photons for each scheme, and for vectors of several lengths.

    Parameters
    ----------
    result : PhotonResult
        What to draw.
    path : pathlib.Path
        Where; written with the suffixes ``.png`` and ``.svg``.
    """
    with styled():
        figure = new_figure(6.2)
        grid = figure.add_gridspec(2, 2, height_ratios=(1.35, 1.0))
        schemes = figure.add_subplot(grid[0, :])
        _draw_curves(schemes, _curves(result.points), per_dot_product=False)
        schemes.text(
            0.99,
            _FULL_PERCENT * CHANCE,
            "guessing",
            transform=schemes.get_yaxis_transform(),
            ha="right",
            va="top",
        )
        exact = _FULL_PERCENT * sum(result.digital) / len(result.digital)
        schemes.axhline(exact, color=REFERENCE, linewidth=0.9, linestyle="--", label="exact arithmetic")
        for index, one in enumerate(published()):
            schemes.plot(
                [one.photons_per_mac],
                [_FULL_PERCENT * one.accuracy],
                "*",
                color=REFERENCE,
                markersize=11,
                label="" if index else f"measured on MNIST ({one.work})",
            )
        schemes.set_title(f"Every layer in light: {'-'.join(str(width) for width in result.widths)}")
        schemes.set_xlabel(_PER_MULTIPLICATION)
        handles, labels = schemes.get_legend_handles_labels()
        kept = [(handle, text) for handle, text in zip(handles, labels, strict=True) if text]
        figure.legend(*zip(*kept, strict=True), loc="outside upper center", ncols=3)
        left, right = figure.add_subplot(grid[1, 0]), figure.add_subplot(grid[1, 1])
        for axes, per_dot_product in ((left, False), (right, True)):
            _draw_curves(axes, _curves(result.law), per_dot_product=per_dot_product)
        left.set_title("Only the first layer in light")
        left.set_xlabel(_PER_MULTIPLICATION)
        left.legend(loc="center right")
        right.set_title("The same by photons in the whole sum")
        right.set_xlabel("detected photons per dot product")
        return save(figure, path)


def _draw_curves(axes: Axes, curves: dict[str, list[Point]], *, per_dot_product: bool) -> None:
    """Draw curves with bands of one standard deviation over seeds."""
    axes.axhline(_FULL_PERCENT * CHANCE, color=PALETTE[7], linewidth=0.8, linestyle=":")
    for index, (name, points) in enumerate(curves.items()):
        shown = [point for point in points if math.isfinite(point.mean)]
        x = [one.photons_per_mac * (one.inputs if per_dot_product else 1) for one in shown]
        mean = [_FULL_PERCENT * one.mean for one in shown]
        low, high = (
            [_FULL_PERCENT * min(1.0, one.mean + sign * one.spread) for one in shown] for sign in (-1, 1)
        )
        colour = PALETTE[index]
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0.0)
        axes.plot(
            x, mean, "-", marker=_MARKERS[index % len(_MARKERS)], markersize=3.5, color=colour, label=name
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0.0, 1.04 * _FULL_PERCENT)
    axes.set_ylabel("accuracy, %")
    axes.grid(visible=True)


def _csv(result: PhotonResult) -> str:
    """Return all points as CSV."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        ["layers_in_light", "curve", "inputs", "photons_per_multiplication", "accuracy", "spread", "seeds"]
    )
    for layers, points in (("all", result.points), ("first", result.law)):
        for one in points:
            numbers = (f"{one.photons_per_mac:g}", f"{one.mean:.5f}", f"{one.spread:.5f}")
            writer.writerow([layers, one.curve, one.inputs, *numbers, len(one.accuracies)])
    return stream.getvalue()


def _curves(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return points by curve, in order."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point.curve, []).append(point)
    return found


def _percent(point: Point) -> str:
    if math.isnan(point.mean):
        return "no link"
    return f"{_FULL_PERCENT * point.mean:.1f} \u00b1 {_FULL_PERCENT * point.spread:.1f}"


def _photons(value: float) -> str:
    return "not reached" if math.isinf(value) else format_si(value)
