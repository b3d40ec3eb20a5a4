"""What a calibration of a trained model and the execution of a core told, as plain records."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.error_classes import ErrorClass

DECIBEL = 10.0
"""Decibels in a power ratio of ten."""
FIT_DB = (20.0, 40.0)
"""Signal to noise over which the slope of the loss is fitted, dB: where the rise is small."""
PROBE_DB = 20.0
"""Signal to noise of the Gaussian probe of one product, dB."""
GOAL = 0.10
"""Largest residual of a prediction, relative, that is called a hit."""


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of a mean; not a number for fewer than two values, or if one is none."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return math.nan
    return statistics.stdev(values) / math.sqrt(len(values))


def product_of(site: str) -> str:
    """Return the product that a site runs, its layer left out."""
    return site.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What Gaussian noise does to one clean model. Rises are of the validation loss, nats per byte."""

    clean: float
    """Loss with exact products."""
    single: Mapping[str, Mapping[ErrorClass, tuple[float, ...]]]
    """Rise with noise on one site alone, by site and class of errors, one per pair of draws."""
    together: Mapping[float, tuple[float, ...]]
    """Rise with noise on the outputs of all products, by signal to noise in dB."""
    first: Mapping[str, float]
    """Derivative of the loss to the gain of a site."""
    second: Mapping[str, Mapping[str, float]]
    """Second derivative of the loss to the gains of two sites."""

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Calibration:
        """Return the record of a worker's plain data."""
        return cls(
            clean=result["clean"],
            single={
                name: {ErrorClass(one): tuple(rises) for one, rises in classes.items()}
                for name, classes in result["single"].items()
            },
            together={row[0]: tuple(row[1:]) for row in result["together"]},
            first=result["first"],
            second=result["second"],
        )

    def coefficient(self, site: str, error_class: ErrorClass) -> float:
        """Return nats per unit of noise-to-signal ratio of errors of one class at a site."""
        return statistics.fmean(self.single[site][error_class]) * 10.0 ** (PROBE_DB / DECIBEL)

    def coefficient_variance(self, site: str, error_class: ErrorClass) -> float:
        """Return the squared standard error of a coefficient over draws; zero for one pair."""
        error = standard_error(self.single[site][error_class]) * 10.0 ** (PROBE_DB / DECIBEL)
        return error**2 if math.isfinite(error) else 0.0

    def coefficients(self) -> dict[str, float]:
        """Return nats per unit of noise-to-signal ratio on the outputs of a product in all layers."""
        found: dict[str, float] = {}
        for site in self.single:
            name = product_of(site)
            found[name] = found.get(name, 0.0) + self.coefficient(site, ErrorClass.OUTPUT)
        return found

    def by_variance(self, nsr: Mapping[str, Mapping[ErrorClass, float]]) -> float:
        """Return the rise by errors of these noise-to-signal ratios, by site and class."""
        return math.fsum(
            self.coefficient(site, one) * value
            for site, classes in nsr.items()
            for one, value in classes.items()
        )

    def by_variance_error(self, nsr: Mapping[str, Mapping[ErrorClass, float]]) -> float:
        """Return its standard error by the draws of the probes."""
        return math.sqrt(
            math.fsum(
                self.coefficient_variance(site, one) * value**2
                for site, classes in nsr.items()
                for one, value in classes.items()
            )
        )

    def by_gain(self, gain: Mapping[str, float], *, order: int) -> float:
        """Return what the gains of the sites add, to first order or only to second."""
        if order == 1:
            return math.fsum(self.first[site] * (one - 1.0) for site, one in gain.items())
        return math.fsum(
            self.second[site][other] * (one - 1.0) * (another - 1.0) / 2.0
            for site, one in gain.items()
            for other, another in gain.items()
        )

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
    nsr: tuple[Mapping[str, Mapping[ErrorClass, float]], ...]
    """Measured noise-to-signal ratio by site and class, per model; sites that are exact are left out."""
    gain: tuple[Mapping[str, float], ...]
    """Measured gain by site, per model."""

    @classmethod
    def of(cls, label: str, results: Iterable[Mapping[str, Any]]) -> Execution:
        """Return the record of one arithmetic from the plain data of all workers."""
        mine = [one["executed"][label] for one in results]
        return cls(
            label=label,
            drawn=tuple(tuple(one["drawn"]) for one in mine),
            mirrored=tuple(tuple(one["mirrored"]) for one in mine),
            nsr=tuple(
                {site: {ErrorClass(k): v for k, v in row.items()} for site, row in one["nsr"].items()}
                for one in mine
            ),
            gain=tuple(one["gain"] for one in mine),
        )

    def product_nsr(self, product: str) -> float:
        """Return the noise to signal of a product, mean over layers and models; zero if exact."""
        found = [
            math.fsum(classes.values())
            for one in self.nsr
            for site, classes in one.items()
            if product_of(site) == product
        ]
        return statistics.fmean(found) if found else 0.0

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
    calibrations: tuple[Calibration, ...]
    """One per model."""
    executions: tuple[Execution, ...]
    """One per arithmetic."""

    @property
    def slopes(self) -> tuple[float, ...]:
        """Slope of log10(rise) per dB, per model."""
        return tuple(one.slope_per_db for one in self.calibrations)

    def coefficients(self, product: str) -> tuple[float, ...]:
        """Return nats per unit of noise-to-signal ratio on the outputs of one product, per model."""
        return tuple(one.coefficients()[product] for one in self.calibrations)

    @property
    def products(self) -> tuple[str, ...]:
        """Names of the products."""
        return tuple(self.calibrations[0].coefficients())

    @property
    def additivity(self) -> tuple[float, ...]:
        """Sum of the single rises over the rise of all together at the same noise, per model."""
        nsr = 10.0 ** (-PROBE_DB / DECIBEL)
        return tuple(
            nsr * math.fsum(one.coefficients().values()) / statistics.fmean(one.together[PROBE_DB])
            for one in self.calibrations
        )

    def predicted_even(self, execution: Execution) -> tuple[float, ...]:
        """Return the rise by the variance of an arithmetic's measured errors and by its gains squared."""
        return tuple(
            one.by_variance(nsr) + one.by_gain(gain, order=2)
            for one, nsr, gain in zip(self.calibrations, execution.nsr, execution.gain, strict=True)
        )

    def predicted(self, execution: Execution) -> tuple[float, ...]:
        """Return the rise that the law gives for an arithmetic's measured errors, per model."""
        return tuple(
            even + one.by_gain(gain, order=1)
            for even, one, gain in zip(
                self.predicted_even(execution), self.calibrations, execution.gain, strict=True
            )
        )

    def residual(self, execution: Execution) -> float:
        """Return the mean predicted rise by the errors' variance over the executed one, minus one."""
        return statistics.fmean(self.predicted_even(execution)) / statistics.fmean(execution.even) - 1.0

    def residual_error(self, execution: Execution) -> float:
        """Return the standard error of the residual: of draws of core and probes, or of models if larger.

        Notes
        -----
        Rounding errs alike in every draw, weights above all: only models are draws of it. So draws alone
        would tell too small an error. Few models give it roughly: of three, to a half.
        """
        even, executed = self.predicted_even(execution), statistics.fmean(execution.even)
        misses = [one - other for one, other in zip(even, execution.even, strict=True)]
        over_models = abs(standard_error(misses) / executed)
        probes = math.hypot(
            *(one.by_variance_error(nsr) for one, nsr in zip(self.calibrations, execution.nsr, strict=True))
        )
        predicted = statistics.fmean(even)
        relative = math.hypot(execution.even_error / executed, probes / len(self.calibrations) / predicted)
        over_draws = relative * abs(1.0 + self.residual(execution))
        if not math.isfinite(over_models):
            return math.nan if execution.even_error == 0.0 else over_draws
        return max(over_models, over_draws)

    @property
    def second_order_limit(self) -> tuple[float, bool]:
        """Largest rise, nats per byte, up to which noise on all products costs what its power says.

        Notes
        -----
        Noise on all products is raised from level to level; the law goes through the quietest three levels.
        True comes with it if a louder level was off by more than `GOAL`, where the law ends.
        """
        levels = sorted(self.calibrations[0].together, reverse=True)
        rises = [statistics.fmean(x for one in self.calibrations for x in one.together[db]) for db in levels]
        per_nsr = [rise * 10.0 ** (db / DECIBEL) for db, rise in zip(levels, rises, strict=True)]
        law, most = statistics.fmean(per_nsr[:3]), 0.0
        for rise, ratio in zip(rises, per_nsr, strict=True):
            if abs(ratio / law - 1.0) > GOAL:
                return most, True
            most = rise
        return most, False

    def white_residual(self, execution: Execution) -> float:
        """Return the residual if all errors were taken to be drawn anew for every output, gains apart."""
        taken = [
            math.fsum(
                one.coefficient(site, ErrorClass.OUTPUT) * math.fsum(classes.values())
                for site, classes in nsr.items()
            )
            + one.by_gain(gain, order=2)
            for one, nsr, gain in zip(self.calibrations, execution.nsr, execution.gain, strict=True)
        ]
        return statistics.fmean(taken) / statistics.fmean(execution.even) - 1.0

    def record(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "model": self.model,
            "width": self.width,
            "steps": self.steps,
            "clean_loss": [one.clean for one in self.calibrations],
            "nats_per_nsr": {name: list(self.coefficients(name)) for name in self.products},
            "nats_per_nsr_by_site": [
                {
                    site: {str(name): one.coefficient(site, name) for name in classes}
                    for site, classes in one.single.items()
                }
                for one in self.calibrations
            ],
            "nats_per_gain": [dict(one.first) for one in self.calibrations],
            "nats_per_gain_squared": [
                {site: dict(row) for site, row in one.second.items()} for one in self.calibrations
            ],
            "slope_per_db": list(self.slopes),
            "additivity": list(self.additivity),
            "together": [
                {str(db): list(rises) for db, rises in one.together.items()} for one in self.calibrations
            ],
            "executions": {
                one.label: {
                    "nsr": [
                        {site: {str(name): value for name, value in row.items()} for site, row in nsr.items()}
                        for nsr in one.nsr
                    ],
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
                    "residual_of_white_errors": self.white_residual(one),
                }
                for one in self.executions
            },
        }
