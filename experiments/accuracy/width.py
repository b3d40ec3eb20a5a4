"""Noise that a transformer tolerates by its width, extrapolated to larger models.

Optical Transformers (Anderson et al., arXiv:2302.10360) found that the light per multiplication needed at
equal accuracy falls as one over the length d of the sum: light per sum, and with it the tolerated ratio of
noise to signal, then stays the same at any width.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.accuracy.prediction import Effort, Prediction, predict_and_execute
from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.accuracy.law import Band
from heliograph.accuracy.small_gpt import MODELS
from heliograph.figures import PALETTE, REFERENCE, new_figure, plain_ticks
from heliograph.processes import OnProgress, of_part, unheard
from heliograph.records import TrainingCache
from simulator.units import db_from_ratio
from workloads.models.config import load_model
from workloads.training.probes import ErrorClass

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOLERATED_NATS = 0.01
"""Rise of the loss at which noise counts as tolerated, nats per byte; a choice."""
WIDTHS = ("tiny", "narrow", "small")
"""Names of models that differ in width alone."""
BODY = ("qkv", "scores", "values", "projection", "up", "down")
"""Products other than the head's."""
PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"all": (*BODY, "head"), "body": BODY, "head": ("head",)}
)
"""Products that are noisy together, by name of the group."""
CARRIED_TO = "llama-3.1-405b"
"""Model to whose width the fit is extrapolated."""
LEAST_COEFFICIENT = 1e-6
"""Least resolved coefficient, nats per ratio of noise to signal."""
CONFIDENCE = 0.95
"""Confidence of the band."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A power of the width, fitted on logarithms over all models."""

    exponent: float
    """Exponent of the width."""
    error: float
    """Standard error of the exponent."""
    centre: tuple[float, float]
    """Mean logarithms of the width and of the value: the point that all lines of the band surround."""
    reach: tuple[float, float]
    """Half width of the band at the centre, and per unit of the logarithm away from it; squares add."""
    carried_width: int
    """Width of the extrapolation, far outside the fitted widths."""

    def band(self, width: float) -> Band:
        """Return the value of the line at a width with the ends of its band."""
        distance = math.log(width) - self.centre[0]
        middle = self.centre[1] + self.exponent * distance
        reach = math.hypot(self.reach[0], self.reach[1] * distance)
        high = math.exp(middle + reach) if reach < LARGEST_EXPONENT else math.inf
        return Band(low=math.exp(middle - reach), middle=math.exp(middle), high=high)

    @property
    def carried(self) -> Band:
        """Value and band at the width of the extrapolation."""
        return self.band(self.carried_width)


@dataclass(frozen=True, kw_only=True)
class NoiseByWidth(Result):
    """Tolerated noise by width."""

    predictions: tuple[Prediction, ...]
    """Calibrations, one for each width, ascending."""
    carried_width: int
    """Width of the model of the extrapolation."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths, ascending."""
        return tuple(one.width for one in self.predictions)

    def tolerated(self, products: Sequence[str]) -> list[list[float]]:
        """Return the noise to signal at which the loss rises by `TOLERATED_NATS`, by width and seed."""
        rows = []
        for found in self.predictions:
            known = [one.coefficients() for one in found.calibrations]
            sums = [math.fsum(one[name] for name in products) for one in known]
            rows.append([TOLERATED_NATS / max(one, LEAST_COEFFICIENT) for one in sums])
        return rows

    def fit(self, products: Sequence[str]) -> Fit:
        """Return the power law of the width for the noise that some products tolerate.

        Notes
        -----
        Ordinary least squares of the logarithms over widths and seeds. The band is the confidence band of the
        fitted line by Student's t, not of a single model; far outside the fitted widths it presumes that the
        power law holds there.
        """
        from scipy.stats import t  # noqa: PLC0415 - takes its time

        values = self.tolerated(products)
        x = np.array([math.log(width) for width, row in zip(self.widths, values, strict=True) for _ in row])
        y = np.log(np.array([value for row in values for value in row]))
        centred = x - x.mean()
        square = float(centred @ centred)
        exponent = float(centred @ y) / square
        free = x.size - 2
        scatter = float(np.sum((y - y.mean() - exponent * centred) ** 2)) / max(1, free)
        error = math.sqrt(scatter / square) if free > 0 else math.inf
        quantile = float(t.ppf((1.0 + CONFIDENCE) / 2.0, free)) if free > 0 else math.inf
        at_centre = quantile * math.sqrt(scatter / x.size) if free > 0 else math.inf
        return Fit(
            exponent=exponent,
            error=error,
            centre=(float(x.mean()), float(y.mean())),
            reach=(at_centre, quantile * error),
            carried_width=self.carried_width,
        )

    def fit_rows(self) -> list[dict[str, Any]]:
        """Return a row for each group of products: the fit and its extrapolation."""
        return [
            {
                "part": name,
                "exponent": fit.exponent,
                "standard_error": fit.error,
                "extrapolated_to_width": self.carried_width,
                "extrapolated_over": self.carried_width / self.widths[-1],
                "tolerated_nsr": fit.carried.middle,
                "tolerated_nsr_low": fit.carried.low,
                "tolerated_nsr_high": fit.carried.high,
                "confidence": CONFIDENCE,
            }
            for name, fit in ((name, self.fit(products)) for name, products in PARTS.items())
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each width and seed."""
        tolerated = {name: self.tolerated(products) for name, products in PARTS.items()}
        return [
            {
                "model": found.model,
                "width": found.width,
                "seed": seed,
                "clean_loss_nats": one.clean,
                "slope_per_db": one.slope_per_db,
                **{f"tolerated_nsr_{name}": tolerated[name][index][seed] for name in PARTS},
            }
            for index, found in enumerate(self.predictions)
            for seed, one in enumerate(found.calibrations)
        ]

    def report(self) -> list[Block]:
        """Return the findings."""
        lines = [f"Signal to noise at which the loss rises by {TOLERATED_NATS:g} nats/byte, dB, by width:"]
        for name, products in PARTS.items():
            values = [
                f"{width}: {-db_from_ratio(math.fsum(row) / len(row)):.1f}"
                for width, row in zip(self.widths, self.tolerated(products), strict=True)
            ]
            fit = self.fit(products)
            lines.append(f"  {_NAMES[name]}: {', '.join(values)}")
            lines.append(
                f"    noise to signal goes as width^({fit.exponent:+.2f} \u00b1 {fit.error:.2f}); carried to "
                f"{CARRIED_TO} (an extrapolation): {-db_from_ratio(fit.carried.middle):.0f} dB, between "
                f"{_ends(fit.carried)} dB"
            )
        losses = ", ".join(f"{loss:.3f}" for loss in self.clean())
        lines.append(
            f"Clean losses: {losses} nats/byte: wider models are better trained, which is part of this."
        )
        return ["\n".join(lines)]

    def record(self) -> dict[str, Any]:
        """Return the rows and the fits as plain data."""
        return {"rows": self.rows(), "fits": self.fit_rows()}

    def tables(self) -> dict[str, list[Row]]:
        """Return a row for each model, and for each fit."""
        return {"": self.rows(), "fit": self.fit_rows()}

    def figure(self) -> Figure:
        """Return tolerated noise over width with its fit and its band."""
        from matplotlib.ticker import FixedLocator, NullLocator  # noqa: PLC0415 - only to draw

        figure = new_figure(3.8)
        axes = figure.add_subplot()
        end = self.carried_width
        for index, (name, products) in enumerate(PARTS.items()):
            rows, fit, colour = self.tolerated(products), self.fit(products), PALETTE[index]
            for width, row in zip(self.widths, rows, strict=True):
                axes.plot([width] * len(row), row, "o", color=colour, markersize=3.5)
            grid = np.geomspace(self.widths[0], end, _BAND_POINTS)
            bands = [fit.band(width) for width in grid]
            text = f"{_NAMES[name]}: width^({fit.exponent:+.2f} \u00b1 {fit.error:.2f})"
            axes.plot(grid, [one.middle for one in bands], "-", color=colour, linewidth=0.9, label=text)
            if _is_bounded(fit.carried):
                low, high = [one.low for one in bands], [one.high for one in bands]
                axes.fill_between(grid, low, high, color=colour, alpha=0.2, linewidth=0.0)
        start = sum(self.tolerated(PARTS["all"])[0]) / len(self.predictions[0].calibrations)
        text = "one over the width in light per multiplication"
        axes.plot([self.widths[0], end], [start] * 2, "--", color=REFERENCE, linewidth=0.9, label=text)
        axes.axvspan(self.widths[-1] * 1.15, end * 1.25, color=PALETTE[9], alpha=0.25, linewidth=0.0)
        axes.text(
            math.sqrt(self.widths[-1] * 1.15 * end * 1.25),
            0.02,
            "extrapolation",
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="bottom",
        )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator([*self.widths, end]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(self.widths[0] * 0.85, end * 1.25)
        for axis in (axes.xaxis, axes.yaxis):
            plain_ticks(axis)
        axes.set_xlabel(f"width (the last is that of {CARRIED_TO})")
        axes.set_ylabel("tolerated noise to signal")
        axes.set_title(f"Noise that raises the loss by {TOLERATED_NATS:g} nats/byte")
        figure.legend(loc="outside lower center", ncols=2)
        return figure

    def clean(self) -> list[float]:
        """Return the mean loss without noise, by width."""
        return [statistics.fmean(one.clean for one in found.calibrations) for found in self.predictions]


LARGEST_EXPONENT = 700.0
"""Natural logarithm of about the largest double."""


def study_widths(
    *,
    effort: Effort,
    cache: TrainingCache,
    progress: OnProgress = unheard,
) -> NoiseByWidth:
    """Calibrate models of several widths with the same training."""
    found = []
    for name in sorted(WIDTHS, key=lambda one: MODELS[one]["width"]):
        part = of_part(progress, f"width {MODELS[name]['width']}")
        one = dataclasses.replace(
            effort, model=name, ladder_db=(30.0, 20.0), error_classes=(ErrorClass.OUTPUT,), gains=False
        )
        found.append(predict_and_execute((), effort=one, cache=cache, progress=part))
    return NoiseByWidth(predictions=tuple(found), carried_width=load_model(CARRIED_TO).hidden)


_NAMES = {"all": "all products", "body": "all but the head", "head": "head"}
_BAND_POINTS = 60


def _is_bounded(band: Band) -> bool:
    return math.isfinite(band.high) and band.low > 0.0


def _ends(band: Band) -> str:
    if not _is_bounded(band):
        return "any"
    return f"{-db_from_ratio(band.high):.0f} and {-db_from_ratio(band.low):.0f}"


@dataclass(frozen=True, kw_only=True)
class ByWidth(Study):
    """Noise that a transformer tolerates, by its width."""

    directory = "accuracy_width"

    steps: int | None = option(None, "updates of the clean training", metavar="N")
    seeds: int | None = option(None, "models of each width", metavar="K")
    quick: bool = option(False, "shorter training, fewer draws and seeds")

    def run(self, progress: Progress) -> NoiseByWidth:
        """Return tolerated noise of models of several widths."""
        effort = Effort.asked(quick=self.quick, model="small", steps=self.steps, seeds=self.seeds)
        return study_widths(effort=effort, cache=progress.training, progress=progress)
