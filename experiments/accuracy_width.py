"""How the noise that a transformer tolerates goes with its width, and what it says of larger ones.

Optical Transformers (Anderson et al., arXiv:2302.10360) found that the light per multiplication needed at
equal accuracy falls as one over the length d of the sum: light per sum, and with it the tolerated ratio of
noise to signal, then stays the same at any width.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.accuracy import MODELS
from experiments.records import TrainingCache
from experiments.sensitivity import Effort, predict_and_execute
from experiments.sensitivity_records import DECIBEL, Prediction
from workloads.config import load_model
from workloads.error_classes import ErrorClass

TOLERATED_NATS = 0.01
"""Rise of the loss at which noise counts as tolerated, nats per byte; a choice."""
WIDTHS = ("tiny", "narrow", "small")
"""Models that differ in width alone."""
BODY = ("qkv", "scores", "values", "projection", "up", "down")
"""Products other than the head's."""
CARRIED_TO = "llama-3.1-405b"
"""Model to whose width the fit is carried."""
LEAST_COEFFICIENT = 1e-6
"""Nats per noise-to-signal ratio below which nothing is told from zero."""
CONFIDENCE = 0.95
"""Confidence of the band."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A power of the width, fitted on logarithms over all models."""

    exponent: float
    """Exponent of the width."""
    error: float
    """Its standard error."""
    carried: float
    """Value at the width that it is carried to."""
    low: float
    """Lower end of the band there."""
    high: float
    """Upper end."""


@dataclass(frozen=True, kw_only=True)
class WidthStudy:
    """Tolerated noise by width."""

    predictions: tuple[Prediction, ...]
    """Calibrations, one per width, ascending."""
    carried_width: int
    """Width of the model that the fit is carried to."""

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
        """Return the power of the width that the tolerated noise follows.

        Notes
        -----
        Ordinary least squares of the logarithms over widths and seeds; the band is Student's, of the fitted
        line and not of a single model. Far outside the fitted widths it holds only if the power does.
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
        ahead = math.log(self.carried_width) - float(x.mean())
        middle = float(y.mean()) + exponent * ahead
        if free < 1:
            reach = math.inf
        else:
            spread = math.sqrt(scatter * (1.0 / x.size + ahead**2 / square))
            reach = float(t.ppf((1.0 + CONFIDENCE) / 2.0, free)) * spread
        return Fit(
            exponent=exponent,
            error=math.sqrt(scatter / square) if free > 0 else math.inf,
            carried=math.exp(middle),
            low=math.exp(middle - reach),
            high=math.exp(middle + reach) if reach < LARGEST_EXPONENT else math.inf,
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per width and seed."""
        parts = {"all": self.predictions[0].products, "body": BODY, "head": ("head",)}
        tolerated = {name: self.tolerated(products) for name, products in parts.items()}
        return [
            {
                "model": found.model,
                "width": found.width,
                "seed": seed,
                "clean_loss_nats": one.clean,
                "slope_per_db": one.slope_per_db,
                **{f"tolerated_nsr_{name}": tolerated[name][index][seed] for name in parts},
            }
            for index, found in enumerate(self.predictions)
            for seed, one in enumerate(found.calibrations)
        ]

    def clean(self) -> list[float]:
        """Return the mean loss without noise, by width."""
        return [statistics.fmean(one.clean for one in found.calibrations) for found in self.predictions]


LARGEST_EXPONENT = 700.0
"""Natural logarithm of about the largest double."""


def study_widths(
    *,
    effort: Effort,
    cache: TrainingCache,
    progress: Callable[[str, int, int], None] = lambda label, done, total: None,
) -> WidthStudy:
    """Calibrate models of several widths with the same training.

    Parameters
    ----------
    effort : Effort
        How much to run; its model is not used.
    cache : TrainingCache
        Finished runs, which are not repeated.
    progress : callable
        Told what is done.
    """
    found = []
    for name in sorted(WIDTHS, key=lambda one: MODELS[one]["width"]):

        def told(done: int, total: int, label: str, name: str = name) -> None:
            progress(f"width {MODELS[name]['width']}, {label}", done, total)

        one = dataclasses.replace(
            effort, model=name, ladder_db=(30.0, 20.0), error_classes=(ErrorClass.OUTPUT,), gains=False
        )
        found.append(predict_and_execute((), effort=one, cache=cache, progress=told))
    return WidthStudy(predictions=tuple(found), carried_width=load_model(CARRIED_TO).hidden)


def decibels(nsr: float) -> float:
    """Return a noise-to-signal ratio as signal to noise in dB."""
    return -DECIBEL * math.log10(nsr)
