"""What a run with few photons found, beside what was published; plain data without torch."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TARGET = 0.90
"""Share of the exact accuracy at which photons are compared between vector lengths."""
CHANCE = 0.1
"""Accuracy of a guess among ten digits."""
_PUBLISHED = Path(__file__).parent / "validation" / "reference" / "photons.csv"


@dataclass(frozen=True, kw_only=True)
class Point:
    """Accuracy of all seeds at one number of photons."""

    curve: str
    """Scheme, or what else the curve shows."""
    inputs: int
    """Length of the vectors that the first layer sums."""
    photons_per_mac: float
    """Detected photons per multiplication."""
    accuracies: tuple[float, ...]
    """Share of test images classified rightly, one per seed; NaN where the link does not close."""

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return statistics.fmean(self.accuracies)

    @property
    def spread(self) -> float:
        """Standard deviation over seeds; zero for one seed, not a number where a link does not close."""
        if math.isnan(self.mean):
            return math.nan
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0

    def record(self) -> dict[str, Any]:
        """Return the point as plain data."""
        return {
            "curve": self.curve,
            "inputs": self.inputs,
            "photons_per_multiplication": self.photons_per_mac,
            "photons_per_dot_product": self.photons_per_mac * self.inputs,
            "accuracy": self.mean,
            "accuracy_spread": self.spread,
            "accuracy_by_seed": list(self.accuracies),
        }


@dataclass(frozen=True, kw_only=True)
class Published:
    """One published accuracy."""

    work: str
    """Who."""
    photons_per_mac: float
    """Detected photons per multiplication."""
    accuracy: float
    """Share classified rightly."""
    config: str
    """On what."""
    source: str
    """Where it stands."""


@dataclass(frozen=True, kw_only=True)
class ModelCurves:
    """The curves of one kind of network."""

    model: str
    """Its kind, as ``--model`` takes it."""
    title: str
    """Its kind as a reader calls it."""
    shape: str
    """Its widths, in a line."""
    digital: tuple[float, ...]
    """Accuracy of exact arithmetic, one per seed."""
    points: tuple[Point, ...]
    """Every product in light, for each scheme."""
    parts: tuple[Point, ...] = ()
    """Only some products in light and the others exact, for each choice of them."""

    @property
    def exact(self) -> float:
        """Accuracy of exact arithmetic, mean over seeds."""
        return statistics.fmean(self.digital)

    def record(self) -> dict[str, Any]:
        """Return the curves as plain data."""
        return {
            "shape": self.shape,
            "digital_accuracy": self.exact,
            "digital_accuracy_by_seed": list(self.digital),
            "points": [point.record() for point in self.points],
            "products_apart": [point.record() for point in self.parts],
        }


@dataclass(frozen=True, kw_only=True)
class PhotonResult:
    """All curves of one run."""

    models: tuple[ModelCurves, ...]
    """One for each kind of network."""
    digits: str
    """What they read, in words."""
    law: tuple[Point, ...]
    """The perceptron's first layer counted by two detectors and the others exact, for each length of its
    vectors; empty without a perceptron."""
    law_digital: Mapping[int, float]
    """Accuracy of exact arithmetic by that length, mean over the seeds of `law`."""
    digits_sha256: str
    """Hash of the test images."""

    def needed(self) -> dict[int, float]:
        """Return the photons per multiplication at `TARGET` of the exact accuracy, by vector length."""
        return {
            length: photons_at(TARGET * exact, [one for one in self.law if one.inputs == length])
            for length, exact in self.law_digital.items()
        }

    @property
    def exponent(self) -> float:
        """Slope of photons per multiplication over length, in logarithms; -1 if the sum alone counts."""
        found = {n: photons for n, photons in self.needed().items() if math.isfinite(photons)}
        if len(found) < 2:
            return math.nan
        return float(np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0])

    def record(self) -> dict[str, Any]:
        """Return the run as plain data."""
        return {
            "models": {one.model: one.record() for one in self.models},
            "first_layer_only": [point.record() for point in self.law],
            "digital_accuracy_by_inputs": dict(self.law_digital),
            "photons_by_inputs": self.needed(),
            "share_of_digital_accuracy": TARGET,
            "exponent_of_length": self.exponent,
            "published": [
                {
                    "work": one.work,
                    "photons_per_multiplication": one.photons_per_mac,
                    "accuracy": one.accuracy,
                }
                for one in published()
            ],
            "digits": self.digits,
            "digits_sha256": self.digits_sha256,
        }


def published() -> list[Published]:
    """Return the published points."""
    with _PUBLISHED.open(newline="", encoding="utf-8") as file:
        return [
            Published(
                work=row["work"],
                photons_per_mac=float(row["photons_per_multiplication"]),
                accuracy=float(row["accuracy"]),
                config=row["config"],
                source=row["source"],
            )
            for row in csv.DictReader(file)
        ]


def photons_at(accuracy: float, curve: Sequence[Point]) -> float:
    """Return the photons at which a curve first meets an accuracy, between points in log photons.

    Parameters
    ----------
    accuracy : float
        Share classified rightly.
    curve : sequence of Point
        Points with ascending photons.

    Returns
    -------
    float
        Infinite if it never does; NaN if it does from its first point on.
    """
    before: Point | None = None
    for point in curve:
        if point.mean >= accuracy:
            if before is None:
                return math.nan
            share = (accuracy - before.mean) / (point.mean - before.mean)
            return before.photons_per_mac * (point.photons_per_mac / before.photons_per_mac) ** share
        before = point if math.isfinite(point.mean) else before
    return math.inf
