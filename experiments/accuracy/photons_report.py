"""Accuracy of image classifiers by photons per multiplication, told and drawn."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.accuracy.photons import (
    CHANCE,
    TARGET,
    DigitSet,
    Model,
    ModelCurves,
    PhotonResult,
    Point,
    Request,
    photons_at,
    published,
    run_photons,
)
from experiments.options import option
from experiments.study import Block, Progress, Result, Row, Study
from heliograph.report import ReportRow, ReportTable, format_si
from heliograph.style import PALETTE, REFERENCE, new_figure, plain_ticks, styled

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PER_MULTIPLICATION = "detected photons per multiplication"
_MARKERS = "osD^"
_OTHERS = 4
"""Colours from here on are for curves that are no schemes."""
_ON_WHITE: dict[str, Any] = {"frameon": True, "framealpha": 1.0, "edgecolor": "none", "borderpad": 0.1}
"""A legend that stands before a line."""
_FULL_PERCENT = 100.0
_COLOURS = (*PALETTE[:4], PALETTE[4], PALETTE[5], PALETTE[8])


def report(result: PhotonResult) -> list[Block]:
    """Return the tables: accuracy by scheme, by products apart, and photons by length of vectors."""
    tables: list[Block] = [f"Images: {result.digits}."]
    for one in result.models:
        title = f"{one.title} {one.shape}: accuracy (%) by {_PER_MULTIPLICATION}; exact: {one.exact:.1%}"
        tables.append(_accuracy_table(title, one.points))
        if one.parts:
            tables.append(_accuracy_table(f"{one.title}, counted as a pair, all else exact", one.parts))
    marks = ", ".join(f"{one.accuracy:.0%} at {one.photons_per_mac:g} ({one.work})" for one in published())
    tables.append(f"Measured on MNIST, sums of 784 and 100, not on {result.digits}: {marks}.")
    if result.law:
        tables += _length_table(result)
    return tables


def _accuracy_table(title: str, points: Sequence[Point]) -> ReportTable:
    curves = _curves(points)
    grid = [point.photons_per_mac for point in next(iter(curves.values()))]
    rows = [
        ReportRow(f"{photons:g}", tuple(_percent(curve[i]) for curve in curves.values()))
        for i, photons in enumerate(grid)
    ]
    rows.append(
        ReportRow(
            f"photons for {TARGET:.0%}",
            tuple(_photons(photons_at(TARGET, curve), curve) for curve in curves.values()),
            section=True,
        )
    )
    return ReportTable(title, list(curves), rows)


def _length_table(result: PhotonResult) -> list[Block]:
    needed = result.needed()
    lengths = [
        ReportRow("exact accuracy", tuple(f"{result.law_digital[n]:.1%}" for n in needed)),
        ReportRow("photons per multiplication", tuple(_photons(found) for found in needed.values())),
        ReportRow(
            "photons per dot product", tuple(_photons(found * length) for length, found in needed.items())
        ),
    ]
    table = ReportTable(
        f"Only the first layer in light: photons for {TARGET:.0%} of the exact accuracy",
        [f"{length} inputs" for length in needed],
        lengths,
    )
    return [table, f"Photons per multiplication go as length^{result.exponent:.2f}; the law is -1."]


def draw(result: PhotonResult) -> Figure:
    """Draw accuracy over photons for each network and scheme, for vectors of several lengths, and apart."""
    apart = [one for one in result.models if one.parts]
    below = 2 * bool(result.law) + len(apart)
    with styled():
        figure = new_figure(6.2)
        # A common multiple of panels in both rows, so that each row is filled.
        columns = len(result.models) * below
        grid = figure.add_gridspec(2, columns, height_ratios=(1.35, 1.0))
        width = columns // len(result.models)
        for index, one in enumerate(result.models):
            axes = figure.add_subplot(grid[0, index * width : (index + 1) * width])
            _draw_model(axes, one, first=index == 0)
            if index == 0:
                figure.legend(*_named(axes), loc="outside upper center", ncols=3)
        width = columns // below
        lower = [figure.add_subplot(grid[1, i * width : (i + 1) * width]) for i in range(below)]
        if result.law:
            for axes, per_dot_product in ((lower[0], False), (lower[1], True)):
                _draw_curves(axes, _curves(result.law), per_dot_product=per_dot_product, offset=_OTHERS)
            lower[0].set_title("Perceptron, first layer in light")
            lower[0].set_xlabel("photons per multiplication")
            lower[0].legend(loc="lower right", **_ON_WHITE)
            lower[1].set_title("By photons in the whole sum")
            lower[1].set_xlabel("photons per dot product")
        for axes, one in zip(lower[2 * bool(result.law) :], apart, strict=True):
            _draw_curves(axes, _curves(one.parts), per_dot_product=False, offset=_OTHERS)
            axes.set_title("Its products apart" if len(result.models) == 1 else f"{one.title}, apart")
            axes.set_xlabel("photons per multiplication")
            axes.legend(loc="lower right", **_ON_WHITE)
        for axes in lower[1:]:
            axes.set_ylabel("")
        figure.supxlabel(f"Images: {result.digits}", fontsize="medium")
        return figure


def _draw_model(axes: Axes, model: ModelCurves, *, first: bool) -> None:
    """Draw every scheme of a network, exact arithmetic, guessing, and what was measured."""
    _draw_curves(axes, _curves(model.points), per_dot_product=False)
    exact = _FULL_PERCENT * model.exact
    axes.axhline(exact, color=REFERENCE, linewidth=0.9, linestyle="--", label="exact arithmetic")
    axes.text(
        0.99, _FULL_PERCENT * CHANCE, "guessing", transform=axes.get_yaxis_transform(), ha="right", va="top"
    )
    for index, one in enumerate(published()):
        axes.plot(
            [one.photons_per_mac],
            [_FULL_PERCENT * one.accuracy],
            "*",
            color=REFERENCE,
            markersize=11,
            label="" if index else f"perceptron measured on MNIST ({one.work})",
        )
    axes.set_title(f"{model.title}, every product in light\n{model.shape}")
    axes.set_xlabel(_PER_MULTIPLICATION)
    if not first:
        axes.set_ylabel("")


def _named(axes: Axes) -> tuple[list[Artist], list[str]]:
    """Return the handles of a panel that have a name, and the names."""
    handles, labels = axes.get_legend_handles_labels()
    kept = [(handle, text) for handle, text in zip(handles, labels, strict=True) if text]
    return [handle for handle, _ in kept], [text for _, text in kept]


def _draw_curves(
    axes: Axes, curves: dict[str, list[Point]], *, per_dot_product: bool, offset: int = 0
) -> None:
    """Draw curves with bands of one standard deviation over seeds."""
    axes.axhline(_FULL_PERCENT * CHANCE, color=PALETTE[7], linewidth=0.8, linestyle=":")
    for index, (name, points) in enumerate(curves.items()):
        shown = [point for point in points if math.isfinite(point.mean)]
        x = [one.photons_per_mac * (one.inputs if per_dot_product else 1) for one in shown]
        mean = [_FULL_PERCENT * one.mean for one in shown]
        low, high = (
            [_FULL_PERCENT * min(1.0, one.mean + sign * one.spread) for one in shown] for sign in (-1, 1)
        )
        colour = _COLOURS[offset + index]
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0.0)
        axes.plot(
            x, mean, "-", marker=_MARKERS[index % len(_MARKERS)], markersize=3.5, color=colour, label=name
        )
    axes.set_xscale("log")
    plain_ticks(axes.xaxis, minor=False)
    axes.set_ylim(0.0, 1.04 * _FULL_PERCENT)
    axes.set_ylabel("accuracy, %")
    axes.grid(visible=True)


def point_rows(result: PhotonResult) -> list[Row]:
    """Return all points as rows."""
    groups = [(one.model, "all", one.points) for one in result.models]
    groups += [(one.model, "part", one.parts) for one in result.models if one.parts]
    if result.law:
        groups.append((result.models[0].model, "first layer", result.law))
    return [
        {
            "network": model,
            "in_light": in_light,
            "curve": one.curve,
            "inputs": one.inputs,
            "photons_per_multiplication": f"{one.photons_per_mac:g}",
            "accuracy": f"{one.mean:.5f}",
            "spread": f"{one.spread:.5f}",
            "seeds": len(one.accuracies),
        }
        for model, in_light, points in groups
        for one in points
    ]


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


def _photons(value: float, curve: Sequence[Point] = ()) -> str:
    if math.isnan(value) and curve:
        return f"below {curve[0].photons_per_mac:g}"
    return "not reached" if math.isinf(value) else format_si(value)


@dataclass(frozen=True, kw_only=True)
class PhotonAccuracy(Result):
    """All curves of one run, told and drawn."""

    result: PhotonResult
    """The curves."""

    def report(self) -> list[Block]:
        """Return accuracy by scheme, by products apart, and photons by length of vectors."""
        return report(self.result)

    def record(self) -> dict[str, Any]:
        """Return the curves as plain data."""
        return self.result.record()

    def rows(self) -> list[Row]:
        """Return a row for each point."""
        return point_rows(self.result)

    def figure(self) -> Figure:
        """Return accuracy over photons."""
        return draw(self.result)


@dataclass(frozen=True, kw_only=True)
class ByPhotons(Study):
    """Accuracy by photons per multiplication."""

    directory = "photons"

    model: tuple[Model, ...] = option(
        (), "perceptron or vision transformer; may be given twice; default both", metavar="mlp|vit"
    )
    digits: DigitSet | None = option(
        None, "handwriting, if scikit-learn is installed (the default there), or digits drawn from fonts"
    )
    quick: bool = option(False, "fewer images, seeds and vector lengths")
    seed: int = option(0, "first seed of the networks")

    def run(self, progress: Progress) -> PhotonAccuracy:
        """Return all curves."""
        digits = DigitSet.usual() if self.digits is None else self.digits
        if digits is not DigitSet.REAL and self.digits is None:
            sys.stderr.write("scikit-learn is not installed: reading drawn digits, not handwriting.\n")
        models = tuple(one for one in Model if one in (self.model or Model))
        request = Request.of(quick=self.quick, seed=self.seed, models=models, digits=digits)
        return PhotonAccuracy(result=run_photons(request, progress))
