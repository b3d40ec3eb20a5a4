"""What a calibration of a trained model and the execution of a core told, as plain records."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DECIBEL = 10.0
"""Decibels in a power ratio of ten."""
FIT_DB = (20.0, 40.0)
"""Signal to noise over which the slope of the loss is fitted, dB: where the rise is small."""
GOAL = 0.10
"""Largest residual of a prediction, relative, that is called a hit."""


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of a mean; not a number for fewer than two values."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What Gaussian noise does to one clean model. Rises are of the validation loss, nats per byte."""

    clean: float
    """Loss with exact products."""
    single: Mapping[str, tuple[float, ...]]
    """Rise with noise on one product alone, by product, one per pair of draws."""
    together: Mapping[float, tuple[float, ...]]
    """Rise with noise on all products, by signal to noise in dB."""

    gains: Mapping[str, tuple[float, float]]
    """First and second derivative of the loss to the gain of one product, by product."""

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Calibration:
        """Return the record of a worker's plain data."""
        return cls(
            clean=result["clean"],
            single={name: tuple(rises) for name, rises in result["single"].items()},
            together={row[0]: tuple(row[1:]) for row in result["together"]},
            gains={name: (first, second) for name, (first, second) in result["gains"].items()},
        )

    def coefficients(self, probe_db: float) -> dict[str, float]:
        """Return nats per unit of noise-to-signal ratio, by product."""
        nsr = 10.0 ** (-probe_db / DECIBEL)
        return {name: statistics.fmean(rises) / nsr for name, rises in self.single.items()}

    @property
    def slope_per_db(self) -> float:
        """Slope of log10(rise) over signal to noise in dB; -0.1 if the rise goes with the noise's power."""
        points = [
            (db, math.log10(statistics.fmean(rises)))
            for db, rises in self.together.items()
            if FIT_DB[0] <= db <= FIT_DB[1] and statistics.fmean(rises) > 0.0
        ]
        if len(points) < 2:
            return math.nan
        return statistics.linear_regression(*zip(*points, strict=True)).slope


@dataclass(frozen=True, kw_only=True)
class Execution:
    """What one arithmetic did to each clean model."""

    label: str
    """Name of the arithmetic."""
    drawn: tuple[tuple[float, ...], ...]
    """Rise of the loss, per model and draw, nats per byte."""
    mirrored: tuple[tuple[float, ...], ...]
    """The same with the mirror image of every error."""
    nsr: tuple[Mapping[str, float], ...]
    """Measured noise-to-signal ratio by product, per model."""
    gain: tuple[Mapping[str, float], ...]
    """Measured gain by product, per model."""

    @classmethod
    def of(cls, label: str, results: Iterable[Mapping[str, Any]]) -> Execution:
        """Return the record of one arithmetic from the plain data of all workers."""
        mine = [one["executed"][label] for one in results]
        return cls(
            label=label,
            drawn=tuple(tuple(one["drawn"]) for one in mine),
            mirrored=tuple(tuple(one["mirrored"]) for one in mine),
            nsr=tuple(one["nsr"] for one in mine),
            gain=tuple(one["gain"] for one in mine),
        )

    @property
    def rises(self) -> tuple[float, ...]:
        """Mean rise of each model over its draws."""
        return tuple(statistics.fmean(one) for one in self.drawn)

    @property
    def even(self) -> tuple[float, ...]:
        """Half the sum of draw and mirror image, per model: what the errors' variance costs."""
        return tuple(statistics.fmean(halves) for halves in self._halves(1))

    @property
    def odd(self) -> tuple[float, ...]:
        """Half the difference of draw and mirror image, per model: what errors in common cost."""
        return tuple(statistics.fmean(halves) for halves in self._halves(-1))

    @property
    def even_error(self) -> float:
        """Standard error over draws of the mean of `even`."""
        return _pooled(self._halves(1))

    @property
    def rise_error(self) -> float:
        """Standard error over draws of the mean of `rises`."""
        return _pooled(self.drawn)

    def _halves(self, sign: int) -> list[list[float]]:
        return [
            [(x + sign * y) / 2.0 for x, y in zip(one, other, strict=True)]
            for one, other in zip(self.drawn, self.mirrored, strict=True)
        ]


def _pooled(values: Sequence[Sequence[float]]) -> float:
    """Return the standard error of the mean over models, of the scatter within each."""
    return math.sqrt(sum(standard_error(one) ** 2 for one in values)) / len(values)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The whole experiment."""

    model: str
    """Name of the model's shape."""
    width: int
    """Its width."""
    steps: int
    """Updates of its clean training."""
    probe_db: float
    """Signal to noise of the probes of one product, dB."""
    calibrations: tuple[Calibration, ...]
    """One per model."""
    executions: tuple[Execution, ...]
    """One per arithmetic."""

    @property
    def slopes(self) -> tuple[float, ...]:
        """Slope of log10(rise) per dB, per model."""
        return tuple(one.slope_per_db for one in self.calibrations)

    def coefficients(self, product: str) -> tuple[float, ...]:
        """Return nats per unit of noise-to-signal ratio of one product, per model."""
        return tuple(one.coefficients(self.probe_db)[product] for one in self.calibrations)

    @property
    def products(self) -> tuple[str, ...]:
        """Names of the products."""
        return tuple(self.calibrations[0].single)

    @property
    def additivity(self) -> tuple[float, ...]:
        """Sum of the single rises over the rise of all together at the same noise, per model."""
        return tuple(
            math.fsum(map(statistics.fmean, one.single.values()))
            / statistics.fmean(one.together[self.probe_db])
            for one in self.calibrations
        )

    def predicted_even(self, execution: Execution) -> tuple[float, ...]:
        """Return the rise by the variance of an arithmetic's measured errors and the square of its gain's."""
        return tuple(
            math.fsum(
                c * nsr[name] + one.gains[name][1] * (gain[name] - 1.0) ** 2 / 2.0
                for name, c in one.coefficients(self.probe_db).items()
            )
            for one, nsr, gain in zip(self.calibrations, execution.nsr, execution.gain, strict=True)
        )

    def predicted(self, execution: Execution) -> tuple[float, ...]:
        """Return the rise that the law gives for an arithmetic's measured errors, per model."""
        return tuple(
            even + math.fsum(first * (gain[name] - 1.0) for name, (first, _) in one.gains.items())
            for even, one, gain in zip(
                self.predicted_even(execution), self.calibrations, execution.gain, strict=True
            )
        )

    def residual(self, execution: Execution) -> float:
        """Return the mean predicted rise by the errors' variance over the executed one, minus one."""
        return statistics.fmean(self.predicted_even(execution)) / statistics.fmean(execution.even) - 1.0

    def residual_error(self, execution: Execution) -> float:
        """Return the standard error of the residual over draws."""
        return execution.even_error / abs(statistics.fmean(execution.even)) * (1.0 + self.residual(execution))

    def record(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "model": self.model,
            "width": self.width,
            "steps": self.steps,
            "clean_loss": [one.clean for one in self.calibrations],
            "nats_per_nsr": {name: list(self.coefficients(name)) for name in self.products},
            "nats_per_gain": [
                {name: list(pair) for name, pair in one.gains.items()} for one in self.calibrations
            ],
            "slope_per_db": list(self.slopes),
            "additivity": list(self.additivity),
            "together": [
                {str(db): list(rises) for db, rises in one.together.items()} for one in self.calibrations
            ],
            "executions": {
                one.label: {
                    "nsr": [dict(nsr) for nsr in one.nsr],
                    "gain": [dict(gain) for gain in one.gain],
                    "predicted": list(self.predicted(one)),
                    "executed": list(one.rises),
                    "executed_standard_error": one.rise_error,
                    "predicted_by_variance": list(self.predicted_even(one)),
                    "executed_by_variance": list(one.even),
                    "executed_draws": [list(draws) for draws in one.drawn],
                    "mirrored_draws": [list(draws) for draws in one.mirrored],
                    "residual": self.residual(one),
                    "residual_standard_error": self.residual_error(one),
                }
                for one in self.executions
            },
        }
