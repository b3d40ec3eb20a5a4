"""Rise of the loss by a core's errors: predicted from one calibration of a trained model, then executed.

Law to second order. The loss rises in proportion to the variance of every product's error, hence to its
noise-to-signal ratio (NSR), and independent errors add: ``sum_pk c_pk NSR_pk``, over the products p of every
layer (a "site" is a product in a layer) and the classes k of errors (`workloads.training.probes`): drawn anew
for every output, or shared by all outputs that one element of an operand enters. Errors that all outputs of a
product have in common are a gain 1 + e_p, which adds ``sum_p g_p e_p + sum_pq h_pq e_p e_q / 2``.

Steps:

1. Calibration: Gaussian noise of one class on one site at a time gives c; differentiation gives g and h. 2.
Measurement: NSR and gains of the core are measured against exact products, as the model runs. 3. Prediction:
second order with these numbers; and, beyond it, the loss of the model with Gaussian errors of the
   measured strengths in all products at once. The latter is the prediction proper, since noisy cores leave
   second order behind: the rise of each product bends, and errors of consecutive products raise each other's
   cost. A residue core's misread remainders are not Gaussian: a few samples are wrong, each by a shift.
4. Execution: all products through the core.

Each draw of errors is also run with the opposite sign ("mirrored"). Half the sum of both rises is due to the
variance of the errors and to gains squared; first order cancels in it, which makes it far less noisy.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from heliograph.accuracy.small_gpt import (
    EXACT,
    LEARNT,
    NOTHING,
    Accuracy,
    Arithmetic,
    StepsToLoss,
    check_model,
    difference_text,
    initial_weights,
    products_of,
    run_cached,
    shape_of,
    standard_error,
    steps_to_loss,
    train_all,
)
from heliograph.processes import OnProgress, unheard
from heliograph.records import TrainingCache
from heliograph.report import ReportRow, ReportTable
from optical.execution import AnalogSpec, Mode
from optical.execution.spec import OperandTransforms, largest_code, misread_shifts
from simulator.errors import ParameterError
from simulator.keys import mix_key
from simulator.operators import Phase
from simulator.units import ratio_from_db
from workloads.training.probes import ErrorClass

if TYPE_CHECKING:
    import torch

    from simulator.interfaces import Numerics
    from workloads.training.gpt import Corpus, Gpt, GptConfig, TrainingConfig
    from workloads.training.probes import Meter, MisreadProducts


BITS = (8, 7, 6, 5, 4)
"""Bits of the one converter that is not exact."""


class _Converter(StrEnum):
    """Converter of a photonic core."""

    OUTPUT = "ADC"
    OPERAND = "DAC"


def converter_ladder(arithmetics: Iterable[Arithmetic]) -> tuple[Arithmetic, ...]:
    """Return arithmetics whose only error is that of output or operand converters of `BITS` bits.

    Parameters
    ----------
    arithmetics : iterable of Arithmetic
        The first photonic one sets length of a sample, scale, rounding and range of the output converter.
    """
    for arithmetic in arithmetics:
        spec = arithmetic.analog[Phase.FORWARD] if arithmetic.analog is not None else None
        if spec is not None and spec.residues is None:
            return tuple(_converter(spec, arithmetic, kind, bits) for kind in _Converter for bits in BITS)
    msg = "converters are turned on a photonic core that reads its sums; name one with --system, as crossbar"
    raise ParameterError(msg)


def _converter(spec: AnalogSpec, arithmetic: Arithmetic, kind: _Converter, bits: int) -> Arithmetic:
    """Return an arithmetic in which one converter has some bits and all else is exact."""
    alone = dataclasses.replace(
        AnalogSpec.ideal(), analog_length=spec.analog_length, scale=spec.scale, rounding=spec.rounding
    )
    if kind is _Converter.OUTPUT:
        alone = dataclasses.replace(
            alone,
            adc_bits=float(bits),
            adc_enob_bits=float(bits),
            adc_range_sigma=spec.adc_range_sigma,
        )
    else:
        alone = dataclasses.replace(alone, dac_bits=float(bits))
    return dataclasses.replace(
        arithmetic, label=f"{kind} {bits} bits", analog=dict.fromkeys(arithmetic.analog or {}, alone)
    )


def with_electronic(arithmetics: Iterable[Arithmetic], products: tuple[str, ...]) -> tuple[Arithmetic, ...]:
    """Return arithmetics in which some products, by the model's names, are electronic and exact."""
    known = ("qkv", "scores", "values", "projection", "up", "down", "head")
    for name in products:
        if name not in known:
            msg = f"there is no product '{name}' to keep electronic; take one or more of {', '.join(known)}"
            raise ParameterError(msg)
    if not products:
        return tuple(arithmetics)
    return tuple(
        dataclasses.replace(one, label=f"{one.label}, {'+'.join(products)} digital", exact_products=products)
        for one in arithmetics
    )


FIT_DB = (20.0, 40.0)
"""Signal to noise over which the slope of the loss is fitted, dB: where the rise is small."""
PROBE_DB = 20.0
"""Signal to noise of the Gaussian probe of one product, dB."""
GOAL = 0.10
"""Largest relative residual at which a prediction counts as right."""


def product_of(site: str) -> str:
    """Return the product of a site, ``product.layer``, without the layer."""
    return site.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Response of one trained model to Gaussian noise. Rises are of the validation loss, nats per byte."""

    clean: float
    """Loss with exact products."""
    single: Mapping[str, Mapping[ErrorClass, tuple[float, ...]]]
    """Rise with noise on one site alone, by site and class of errors; a value for each pair of draws."""
    together: Mapping[float, tuple[float, ...]]
    """Rise with noise on the outputs of all products, by signal to noise in dB; a value for each pair."""
    first: Mapping[str, float]
    """First derivative of the loss with respect to the gain of a site (g)."""
    second: Mapping[str, Mapping[str, float]]
    """Second derivative of the loss with respect to the gains of two sites (h)."""

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Calibration:
        """Return the calibration from a worker's plain data (`Bench.calibrate`)."""
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
        """Return the coefficient c, nats per unit of NSR, of errors of one class at a site."""
        return statistics.fmean(self.single[site][error_class]) * ratio_from_db(PROBE_DB)

    def coefficient_variance(self, site: str, error_class: ErrorClass) -> float:
        """Return the squared standard error of a coefficient over draws; zero if there is one pair."""
        error = standard_error(self.single[site][error_class]) * ratio_from_db(PROBE_DB)
        return error**2 if math.isfinite(error) else 0.0

    def coefficients(self) -> dict[str, float]:
        """Return the coefficients of errors drawn for every output, by product, summed over layers."""
        found: dict[str, float] = {}
        for site in self.single:
            name = product_of(site)
            found[name] = found.get(name, 0.0) + self.coefficient(site, ErrorClass.OUTPUT)
        return found

    def by_variance(self, nsr: Mapping[str, Mapping[ErrorClass, float]]) -> float:
        """Return the rise to second order by errors with these NSR, by site and class."""
        return math.fsum(
            self.coefficient(site, one) * value
            for site, classes in nsr.items()
            for one, value in classes.items()
        )

    def by_variance_error(self, nsr: Mapping[str, Mapping[ErrorClass, float]]) -> float:
        """Return the standard error of `by_variance` by the scatter of the calibration's draws."""
        return math.sqrt(
            math.fsum(
                self.coefficient_variance(site, one) * value**2
                for site, classes in nsr.items()
                for one, value in classes.items()
            )
        )

    def by_gain(self, gain: Mapping[str, float], *, order: int) -> float:
        """Return the first-order term, or the second-order term, of the rise by gains of the sites."""
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
    """Executed rise of the loss by one arithmetic, with its measured errors; for each trained model."""

    label: str
    """Name of the arithmetic."""
    drawn: tuple[tuple[float, ...], ...]
    """Executed rise of the loss, nats per byte, by model and draw."""
    mirrored: tuple[tuple[float, ...], ...]
    """Executed rise with the opposite sign of every error, nats per byte, by model and draw."""
    nsr: tuple[Mapping[str, Mapping[ErrorClass, float]], ...]
    """Measured NSR by model, site and class; exact sites are left out. This and all fields below are empty if
    errors were not measured."""
    gain: tuple[Mapping[str, float], ...]
    """Measured gain by model and site."""
    modelled: tuple[tuple[float, ...], ...] = ()
    """Rise with modelled errors in all products at once, by model and draw, mean of both signs. Modelled
    errors are Gaussian with the measured strengths, on top of the core's mean error by size of output. Empty
    if only second order is known."""
    modelled_drawn: tuple[tuple[float, ...], ...] = ()
    """Rise with modelled errors of one sign, for misread samples, whose sign depends on their sums. Empty for
    other cores, where the draws of one sign scatter more than the effect of gains."""

    @classmethod
    def of(cls, label: str, results: Iterable[Mapping[str, Any]]) -> Execution:
        """Return the execution of one arithmetic from the plain data of all workers."""
        executed = [one["executed"][label] for one in results]
        measured = [one for one in executed if "nsr" in one]
        return cls(
            label=label,
            drawn=tuple(tuple(one["drawn"]) for one in executed),
            mirrored=tuple(tuple(one["mirrored"]) for one in executed),
            nsr=tuple(
                {site: {ErrorClass(k): v for k, v in row.items()} for site, row in one["nsr"].items()}
                for one in measured
            ),
            gain=tuple(one["gain"] for one in measured),
            modelled=tuple(tuple(one["modelled"]) for one in measured),
            modelled_drawn=tuple(tuple(one["modelled_drawn"]) for one in measured),
        )

    def product_nsr(self, product: str) -> float:
        """Return the NSR of a product, mean over layers and models; zero if it is exact."""
        found = [
            math.fsum(classes.values())
            for one in self.nsr
            for site, classes in one.items()
            if product_of(site) == product
        ]
        return statistics.fmean(found) if found else 0.0

    @property
    def rises(self) -> tuple[float, ...]:
        """Executed rise by model, mean over draws of one sign."""
        return tuple(statistics.fmean(one) for one in self.drawn)

    @property
    def variance_rises(self) -> tuple[float, ...]:
        """Executed rise by model, mean of both signs and over draws: the part by the errors' variance."""
        return tuple(statistics.fmean(means) for means in self._means_of_signs)

    @property
    def variance_error(self) -> float:
        """Standard error over draws of the mean of `variance_rises`."""
        return _pooled_error(self._means_of_signs)

    @property
    def rise_error(self) -> float:
        """Standard error over draws of the mean of `rises`."""
        return _pooled_error(self.drawn)

    @property
    def _means_of_signs(self) -> list[list[float]]:
        """Mean of each draw's rise and that with the opposite sign, by model and draw."""
        return [
            [(rise + opposite) / 2.0 for rise, opposite in zip(drawn, mirrored, strict=True)]
            for drawn, mirrored in zip(self.drawn, self.mirrored, strict=True)
        ]


def _pooled_error(values: Sequence[Sequence[float]]) -> float:
    """Return the standard error of the mean of all values by the scatter within each model."""
    return math.sqrt(sum(standard_error(one) ** 2 for one in values)) / len(values)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Calibrations and executions of several trained models, and the predictions that follow."""

    model: str
    """Name of the models' shape."""
    width: int
    """Their width."""
    steps: int
    """Updates of their training with exact products; 0 for the model that ships."""
    calibrations: tuple[Calibration, ...]
    """A calibration for each model."""
    executions: tuple[Execution, ...]
    """An execution for each arithmetic."""

    @property
    def slopes(self) -> tuple[float, ...]:
        """Slope of log10(rise) over dB, by model."""
        return tuple(one.slope_per_db for one in self.calibrations)

    def coefficients(self, product: str) -> tuple[float, ...]:
        """Return the coefficient of one product, nats per unit of NSR, by model."""
        return tuple(one.coefficients()[product] for one in self.calibrations)

    @property
    def products(self) -> tuple[str, ...]:
        """Names of the products."""
        return tuple(self.calibrations[0].coefficients())

    @property
    def additivity(self) -> tuple[float, ...]:
        """Sum of the rises of single products over the rise of all together at the same noise, by model."""
        nsr = ratio_from_db(-PROBE_DB)
        return tuple(
            nsr * math.fsum(one.coefficients().values()) / statistics.fmean(one.together[PROBE_DB])
            for one in self.calibrations
        )

    def second_order_rises(self, execution: Execution) -> tuple[float, ...]:
        """Return the rise by model, to second order, by the variance of the errors and by gains squared."""
        return tuple(
            one.by_variance(nsr) + one.by_gain(gain, order=2)
            for one, nsr, gain in zip(self.calibrations, execution.nsr, execution.gain, strict=True)
        )

    def predicted_variance_rises(self, execution: Execution) -> tuple[float, ...]:
        """Return the prediction of `Execution.variance_rises`: by modelled errors, else to second order."""
        if not execution.modelled:
            return self.second_order_rises(execution)
        return tuple(statistics.fmean(one) for one in execution.modelled)

    def predicted(self, execution: Execution) -> tuple[float, ...]:
        """Return the prediction of `Execution.rises`: by variance, and to first order by gains."""
        if any(execution.modelled_drawn):
            return tuple(statistics.fmean(one) for one in execution.modelled_drawn)
        return tuple(
            by_variance + one.by_gain(gain, order=1)
            for by_variance, one, gain in zip(
                self.predicted_variance_rises(execution), self.calibrations, execution.gain, strict=True
            )
        )

    def residual(self, execution: Execution) -> float:
        """Return the predicted rise by variance over the executed one, means over models, minus one."""
        return (
            statistics.fmean(self.predicted_variance_rises(execution))
            / statistics.fmean(execution.variance_rises)
            - 1.0
        )

    def second_order_residual(self, execution: Execution) -> float:
        """Return the residual of the prediction to second order."""
        return (
            statistics.fmean(self.second_order_rises(execution)) / statistics.fmean(execution.variance_rises)
            - 1.0
        )

    def residual_error(self, execution: Execution) -> float:
        """Return the standard error of the residual: over draws, or over models if that is larger.

        Notes
        -----
        Rounding errors, those of weights above all, are the same in every draw; only other models have
        others. So the error over draws alone would be too small. From three models it is known to about a
        half.
        """
        rises = self.predicted_variance_rises(execution)
        executed = statistics.fmean(execution.variance_rises)
        misses = [one - other for one, other in zip(rises, execution.variance_rises, strict=True)]
        over_models = abs(standard_error(misses) / executed)
        probes = math.hypot(
            *(one.by_variance_error(nsr) for one, nsr in zip(self.calibrations, execution.nsr, strict=True))
        )
        if execution.modelled:
            drawn = [standard_error(one) for one in execution.modelled]
            probes = math.hypot(*(one for one in drawn if math.isfinite(one)))
        predicted = statistics.fmean(rises)
        relative = math.hypot(
            execution.variance_error / executed, probes / len(self.calibrations) / predicted
        )
        over_draws = relative * abs(1.0 + self.residual(execution))
        if not math.isfinite(over_models):
            return math.nan if execution.variance_error == 0.0 else over_draws
        return max(over_models, over_draws)

    @property
    def second_order_limit(self) -> tuple[float, bool]:
        """Largest rise, nats per byte, up to which the rise is proportional to the noise on all products.

        Notes
        -----
        The proportionality is fitted to the quietest three levels of noise. The second value is true if a
        louder level deviates by more than `GOAL`, and false if none that was tried does.
        """
        levels = sorted(self.calibrations[0].together, reverse=True)
        rises = [statistics.fmean(x for one in self.calibrations for x in one.together[db]) for db in levels]
        per_nsr = [rise * ratio_from_db(db) for db, rise in zip(levels, rises, strict=True)]
        law, most = statistics.fmean(per_nsr[:3]), 0.0
        for rise, ratio in zip(rises, per_nsr, strict=True):
            if abs(ratio / law - 1.0) > GOAL:
                return most, True
            most = rise
        return most, False

    def white_residual(self, execution: Execution) -> float:
        """Return the residual to second order if all errors counted as drawn anew for every output."""
        taken = [
            math.fsum(
                one.coefficient(site, ErrorClass.OUTPUT) * math.fsum(classes.values())
                for site, classes in nsr.items()
            )
            + one.by_gain(gain, order=2)
            for one, nsr, gain in zip(self.calibrations, execution.nsr, execution.gain, strict=True)
        ]
        return statistics.fmean(taken) / statistics.fmean(execution.variance_rises) - 1.0

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
                    "predicted_by_variance": list(self.predicted_variance_rises(one)),
                    "predicted_to_second_order": list(self.second_order_rises(one)),
                    "executed_by_variance": list(one.variance_rises),
                    "executed_draws": [list(draws) for draws in one.drawn],
                    "mirrored_draws": [list(draws) for draws in one.mirrored],
                    "residual": self.residual(one),
                    "residual_standard_error": self.residual_error(one),
                    "residual_to_second_order": self.second_order_residual(one),
                    "residual_of_white_errors": self.white_residual(one),
                }
                for one in self.executions
            },
        }


_PROBE_STREAM = 7
CLIPPED_AT = 4.0
"""Range of the output converter in rms of the output at which clipping is measured: that of all cores."""
_WHOLE = 2**16
"""Length that exceeds that of any sum or batch."""


class _Trial(NamedTuple):
    """Losses with one draw of errors."""

    loss: float
    mirrored_loss: float
    """Loss with the opposite sign of every error."""
    meters: dict[str, Meter]
    """Measured errors by site."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
    """A trained model with the text on which its loss is evaluated."""

    model: Gpt
    """The model; the numerics of its products change with every trial."""
    training: TrainingConfig
    """Configuration of its training, with the validation windows."""
    corpus: Corpus
    """Text with the validation windows."""

    @functools.cached_property
    def clean(self) -> float:
        """Loss with exact products."""
        return self.loss({}, 0)

    def calibrate(self, effort: Effort) -> dict[str, Any]:
        """Measure the response of the loss to noise and gain of each site; plain data of a `Calibration`."""
        from workloads.training.probes import (  # noqa: PLC0415 - torch, only to execute
            GainResponse,
            gain_response,
            sites,
        )

        clean = self.clean
        response = GainResponse(first={}, second={})
        if effort.gains:
            response = gain_response(self.model, self.training, self.corpus)
        names = tuple(sites(self.model.config))
        return {
            "clean": clean,
            "single": {
                name: {
                    one: self._pairs(effort, (name,), PROBE_DB, one, clean) for one in effort.error_classes
                }
                for name in names
            },
            "first": response.first,
            "second": response.second,
            "together": [
                [db, *self._pairs(effort, names, db, ErrorClass.OUTPUT, clean)] for db in effort.ladder_db
            ],
        }

    def loss(self, chosen: dict[str, Numerics], draw: int) -> float:
        """Return the loss with some sites run by other numerics.

        Parameters
        ----------
        chosen : dict of str to Numerics
            Numerics by site; all other sites are exact.
        draw : int
            Number of the draw of their errors.
        """
        from workloads.training.gpt import validate  # noqa: PLC0415 - torch, only to execute
        from workloads.training.probes import place  # noqa: PLC0415 - torch, only to execute

        place(self.model, chosen)
        seed = mix_key(self.training.seed, _PROBE_STREAM, draw)
        return validate(self.model, dataclasses.replace(self.training, seed=seed), self.corpus)

    def _pairs(
        self, effort: Effort, names: tuple[str, ...], snr_db: float, error_class: ErrorClass, clean: float
    ) -> list[float]:
        """Return the rise by Gaussian errors at some sites, mean of both signs, for each draw."""
        from workloads.training.probes import probe  # noqa: PLC0415 - torch, only to execute

        nsr = ratio_from_db(-snr_db)
        signs = [
            dict.fromkeys(names, probe(error_class, nsr, sign, uneven=effort.uneven)) for sign in (1, -1)
        ]
        return [sum(self.loss(one, draw) for one in signs) / 2.0 - clean for draw in range(effort.pairs)]

    def execute(self, arithmetic: Arithmetic, pairs: int, *, measured: bool = True) -> dict[str, Any]:
        """Execute an arithmetic in all products that it does not keep exact; see `executed`.

        Notes
        -----
        Every draw is another chip of the same design, so that the scatter over draws includes that over
        chips.
        """
        from workloads.training.probes import sites  # noqa: PLC0415 - torch, only to execute

        names = [
            name
            for name, (_, product) in sites(self.model.config).items()
            if product.name.lower() not in arithmetic.exact_products
        ]
        return self.executed(
            [dict.fromkeys(names, products_of(_chip(arithmetic, draw)).forward) for draw in range(pairs)],
            _misread(arithmetic),
            measured=measured,
        )

    def executed(
        self,
        draws: Sequence[Mapping[str, Numerics]],
        misread: MisreadProducts | None = None,
        *,
        measured: bool = True,
    ) -> dict[str, Any]:
        """Return the rise by numerics, and by modelled errors of the same strength, as plain data.

        Parameters
        ----------
        draws : sequence of mappings
            Numerics by site, for each draw.
        misread : MisreadProducts, optional
            Model of misread remainders, for residue cores; it replaces Gaussian modelled errors.
        measured : bool
            Whether the errors are measured and modelled errors are run too.

        Returns
        -------
        dict
            Fields of an `Execution` for this model: ``drawn`` and ``mirrored``; if measured also ``nsr``,
            ``gain``, ``modelled`` and ``modelled_drawn``.
        """
        from workloads.training.probes import (  # noqa: PLC0415 - torch, only to execute
            ModelledErrors,
            Transfer,
            scaling_of,
        )

        clean, pairs = self.clean, len(draws)
        trials = [self._both_signs(one, draw, metered=measured) for draw, one in enumerate(draws)]
        losses = {
            "drawn": [trial.loss - clean for trial in trials],
            "mirrored": [trial.mirrored_loss - clean for trial in trials],
        }
        if not measured:
            return losses
        errors: dict[str, Numerics] = {}
        strength, gains = {}, {}
        for name in draws[0]:
            meters = [trial.meters[name] for trial in trials]
            strength[name] = {one: math.fsum(each.nsr[one] for each in meters) / pairs for one in ErrorClass}
            gains[name] = math.fsum(each.gain for each in meters) / pairs
            transfer = sum((each.transfer for each in meters), Transfer())
            errors[name] = (
                ModelledErrors.of(strength[name], gains[name], transfer, scaling_of(draws[0][name]))
                if misread is None
                else ModelledErrors(strength[name], misread=misread)
            )
        modelled = [self._both_signs(errors, draw, metered=False) for draw in range(pairs)]
        means = [statistics.fmean((trial.loss, trial.mirrored_loss)) for trial in modelled]
        return losses | {
            "nsr": strength,
            "gain": gains,
            "modelled": [mean - clean for mean in means],
            "modelled_drawn": [trial.loss - clean for trial in modelled] if misread is not None else [],
        }

    def operands(self, rows: int) -> dict[str, list[tuple[torch.Tensor, torch.Tensor]]]:
        """Return the operands of every forward product by site, a pair for each batch.

        Parameters
        ----------
        rows : int
            Most rows of the first operand that are kept, of products with weights.
        """
        from workloads.training.probes import RecordedProducts, sites  # noqa: PLC0415 - torch, only to execute

        recorders = {site: RecordedProducts(rows=rows) for site in sites(self.model.config)}
        self.loss(dict(recorders), 0)
        return {site: one.operands for site, one in recorders.items()}

    def clipping(self, *, rotated: bool) -> dict[str, tuple[float, float]]:
        """Return by site the error power over signal power of clipping at `CLIPPED_AT`, and the rise."""
        from optical.execution.numerics import AnalogNumerics  # noqa: PLC0415 - torch, only to execute

        spec = dataclasses.replace(
            AnalogSpec.ideal(),
            analog_length=_WHOLE,
            adc_range_sigma=CLIPPED_AT,
            transforms=OperandTransforms(rotation_width=_WHOLE) if rotated else None,
        )
        numerics, found = AnalogNumerics(spec.clipping_only), {}
        for site, batches in self.operands(rows=_WHOLE).items():
            power = error_power(numerics, batches)
            found[site] = power, statistics.fmean(self.rises({site: numerics}, 1)[0])
        return found

    def rises(self, numerics: Mapping[str, Numerics], pairs: int) -> list[tuple[float, float]]:
        """Return the rises by numerics at some sites: of each draw, with either sign of its errors."""
        trials = [self._both_signs(numerics, draw, metered=False) for draw in range(pairs)]
        return [(trial.loss - self.clean, trial.mirrored_loss - self.clean) for trial in trials]

    def _both_signs(self, numerics: Mapping[str, Numerics], draw: int, *, metered: bool = True) -> _Trial:
        """Return the losses with a draw of errors and with the opposite errors, and the errors by site."""
        from workloads.training.probes import (  # noqa: PLC0415 - torch, only to execute
            MeasuredProducts,
            MirroredProducts,
        )

        plain = {name: MeasuredProducts(one, metered=metered) for name, one in numerics.items()}
        loss = self.loss(dict(plain), draw)
        mirrored = {name: MirroredProducts(one.errors) for name, one in plain.items()}
        return _Trial(loss, self.loss(dict(mirrored), draw), {name: one.meter for name, one in plain.items()})


def _misread(arithmetic: Arithmetic) -> MisreadProducts | None:
    """Return the model of misread remainders of a residue core; None for other arithmetics."""
    from workloads.training.probes import MisreadProducts  # noqa: PLC0415 - torch, only to execute

    spec = arithmetic.analog[Phase.FORWARD] if arithmetic.analog is not None else None
    if spec is None or spec.residues is None:
        return None
    shifts, chances = misread_shifts(spec.residues)
    return MisreadProducts(
        length=int(spec.analog_length),
        mantissa=largest_code(spec.dac_bits),
        numbers=spec.residues.product,
        shifts=tuple(shifts[shifts > 0.0].tolist()),
        chances=tuple(chances[shifts > 0.0].tolist()),
    )


def _chip(arithmetic: Arithmetic, draw: int) -> Arithmetic:
    """Return the arithmetic on the chip of a draw, where chips differ; draw 0 is its own chip."""
    if arithmetic.analog is None:
        return arithmetic
    specs = {}
    for phase, spec in arithmetic.analog.items():
        chip = spec.chip and dataclasses.replace(spec.chip, seed=spec.chip.seed + draw)
        specs[phase] = dataclasses.replace(spec, chip=chip)
    return dataclasses.replace(arithmetic, analog=specs)


LADDER_DB = (40.0, 35.0, 30.0, 25.0, 20.0, 15.0, 10.0)
"""Signal to noise at which all products are probed together, dB."""
QUICK_LADDER_DB = (40.0, 30.0, 20.0, 10.0)
"""The same with ``--quick``."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Size of a run: models, draws and windows."""

    model: str = "small"
    """Shape of the model that is trained, one of `MODELS`; or `LEARNT`, the one that ships."""
    steps: int = 150
    """Updates of the training with exact products."""
    windows: int = 60
    """Validation windows, of 64 bytes, of every loss."""
    pairs: int = 2
    """Draws of every calibrated rise, each with both signs."""
    core_pairs: int = 4
    """Draws of an executed core, each with both signs and on another chip."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the models: of initial weights, batches and all draws."""
    ladder_db: tuple[float, ...] = LADDER_DB
    """Signal to noise at which all products are probed together, dB."""
    uneven: bool = True
    """Whether calibration noise follows the full scales of rows and columns, as in cores with such scales."""
    error_classes: tuple[ErrorClass, ...] = tuple(ErrorClass)
    """Classes of errors that are calibrated."""
    gains: bool = True
    """Whether the response to gains is measured; without it a core is executed but not predicted."""
    errors: bool = True
    """Whether a core's errors are measured, and modelled errors run."""

    def __post_init__(self) -> None:
        check_model(self.model)
        for name, least in (("steps", 1), ("windows", 1), ("pairs", 1), ("core_pairs", 2)):
            if getattr(self, name) < least:
                msg = f"{name} must be at least {least}; got {getattr(self, name)}"
                raise ParameterError(msg)
        if not self.seeds:
            msg = "at least one seed is needed; give --seeds 1 or more"
            raise ParameterError(msg)

    @classmethod
    def asked(
        cls,
        *,
        quick: bool,
        model: str,
        steps: int | None = None,
        seeds: int | None = None,
        first_seed: int = 0,
    ) -> Effort:
        """Return the default effort, or a quick one, with the user's changes.

        Parameters
        ----------
        quick : bool
            Whether the run takes less than a minute instead of several.
        model : str
            Shape of the model, one of `MODELS`; or `LEARNT`, which is larger and gets fewer windows.
        steps, seeds : int, optional
            Updates and number of models, if not the default ones.
        first_seed : int
            First seed.
        """
        if model == LEARNT and steps is not None:
            msg = f"--steps {steps} is not used: the model '{LEARNT}' ships with its weights; leave it out"
            raise ParameterError(msg)
        whole = cls(model=model)
        if quick:
            whole = cls(
                model=model,
                steps=40,
                windows=16,
                pairs=1,
                core_pairs=3,
                seeds=(0, 1),
                ladder_db=QUICK_LADDER_DB,
            )
        if model == LEARNT:
            whole = dataclasses.replace(whole, windows=whole.windows // 4, seeds=whole.seeds[:2])
        count = len(whole.seeds) if seeds is None else seeds
        return dataclasses.replace(
            whole,
            steps=whole.steps if steps is None else steps,
            seeds=tuple(range(first_seed, first_seed + count)),
        )


@dataclass(frozen=True, kw_only=True)
class _Job:
    """Calibration and executions of one model, for one worker process."""

    effort: Effort
    seed: int
    arithmetics: tuple[Arithmetic, ...]


def predict_and_execute(
    arithmetics: tuple[Arithmetic, ...],
    *,
    effort: Effort,
    cache: TrainingCache,
    progress: OnProgress = unheard,
) -> Prediction:
    """Train a model for each seed with exact products, calibrate it, and execute it with each arithmetic.

    Parameters
    ----------
    arithmetics : tuple of Arithmetic
        Arithmetics with different labels; empty for a calibration alone.
    effort : Effort
        Size of the run.
    cache : TrainingCache
        Finished runs, which are not repeated.
    progress : callable
        Called with the label of the run, models done, and models in all.
    """
    jobs = [_Job(effort=effort, seed=seed, arithmetics=arithmetics) for seed in effort.seeds]
    results = run_cached(
        jobs,
        _run,
        key=lambda job: _key(job, cache),
        label=lambda job: f"seed {job.seed}",
        cache=cache,
        progress=progress,
    )
    return Prediction(
        model=effort.model,
        width=_setup(jobs[0])[0].width,
        steps=0 if effort.model == LEARNT else effort.steps,
        calibrations=tuple(Calibration.of(one) for one in results),
        executions=tuple(Execution.of(one.label, results) for one in arithmetics),
    )


def error_power(numerics: Numerics, batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Return error power over signal power of numerics in a product, over all of its batches."""
    error, signal = 0.0, 0.0
    for a, b in batches:
        exact = a.bmm(b)
        error += float((numerics.matmul(a, b, 0) - exact).double().square().sum())
        signal += float(exact.double().square().sum())
    return error / signal


def learnt_bench(*, windows: int) -> Bench:
    """Return the model that ships, with a number of validation windows."""
    from workloads.training.gpt import python_source  # noqa: PLC0415 - torch, only to execute

    job = _Job(effort=Effort(model=LEARNT, windows=windows), seed=0, arithmetics=())
    corpus = python_source()
    return Bench(model=_clean_model(job, corpus), training=_setup(job)[1], corpus=corpus)


def _key(job: _Job, cache: TrainingCache) -> str:
    from workloads.training.gpt import python_source  # noqa: PLC0415 - torch, only to execute

    gpt, training = _setup(job)
    numerics = {
        "effort": dataclasses.replace(job.effort, seeds=(job.seed,)),
        "probe_db": PROBE_DB,
        "mirror": "the very errors",
        "modelled": "on the core's own full scales, misread samples one way, too",
        "executed": {one.label: one.identity for one in job.arithmetics},
    } | initial_weights(job.effort.model)
    return cache.key(numerics=numerics, model=gpt, training=training, corpus_sha256=python_source().sha256)


def _setup(job: _Job) -> tuple[GptConfig, TrainingConfig]:
    from workloads.training.gpt import TrainingConfig  # noqa: PLC0415 - torch, only to execute

    effort = job.effort
    training = TrainingConfig(
        seed=job.seed, steps=effort.steps, eval_every=effort.steps, validation_windows=effort.windows
    )
    return shape_of(effort.model), training


def _clean_model(job: _Job, corpus: Corpus) -> Gpt:
    """Return the model of a job with exact products: trained, or as it ships."""
    from workloads.training.gpt import train_model  # noqa: PLC0415 - torch, only to execute
    from workloads.training.pretraining import load_weights  # noqa: PLC0415 - torch, only to execute

    exact = products_of(Arithmetic(label=EXACT))
    if job.effort.model == LEARNT:
        return load_weights(exact)[0]
    gpt, training = _setup(job)
    return train_model(training, gpt, exact, corpus).model


def _run(job: _Job) -> dict[str, Any]:
    """Train and calibrate one model, and execute all arithmetics; plain data."""
    import torch  # noqa: PLC0415 - only to execute

    from workloads.training.gpt import python_source  # noqa: PLC0415 - torch, only to execute

    torch.set_num_threads(1)
    corpus = python_source()
    bench = Bench(model=_clean_model(job, corpus), training=_setup(job)[1], corpus=corpus)
    return bench.calibrate(job.effort) | {
        "executed": {
            one.label: bench.execute(one, job.effort.core_pairs, measured=job.effort.errors)
            for one in job.arithmetics
        }
    }


QUICK_STEPS = 24
"""Training steps up to which the quick recipe of the small GPT is used."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training runs of one mode; none for noise at inference alone."""

    mode: Mode
    """Passes of the training in which products were noisy."""
    accuracies: Mapping[str, Accuracy]
    """Loss curves by arithmetic, exact arithmetic first; empty without training."""

    @property
    def steps(self) -> dict[str, StepsToLoss]:
        """Steps to the loss of exact arithmetic, by arithmetic."""
        others = {label: one for label, one in self.accuracies.items() if label not in (EXACT, NOTHING.label)}
        return {label: steps_to_loss(one) for label, one in others.items()}

    @property
    def floor(self) -> float:
        """Largest change of a seed's final loss by negligible noise (`NOTHING`), nats per byte."""
        return self.accuracies[NOTHING.label].largest_difference if self.accuracies else math.nan

    def record(self) -> dict[str, Any]:
        """Return the runs as plain data."""
        runs = {
            label: self.accuracies[label].record()
            | steps.record()
            | {"loss_difference_resolved": self.accuracies[label].resolved(self.floor)}
            for label, steps in self.steps.items()
        }
        return {"mode": self.mode, "floor_nats": self.floor, "runs": runs}

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per arithmetic, seed and validation."""
        return [
            {"numerics": label, "mode": self.mode, "seed": index, "step": step, "validation_loss_nats": loss}
            for label, one in self.accuracies.items()
            for index, curve in enumerate(one.losses)
            for step, loss in zip(one.steps, curve, strict=True)
        ]

    def report(self) -> list[ReportTable | str]:
        """Return the table of the training's losses."""
        if not self.accuracies:
            return ["No training with noise was asked for (--mode aware or hardware)."]
        found, floor = self.steps, self.floor
        known = [self.accuracies[label] for label in found]
        noisy = tuple(difference_text(one.differences, floor) for one in known)
        exact = tuple(difference_text(one.exact_differences, floor) for one in known)
        rows = [
            ReportRow("loss with its own noise", noisy),
            ReportRow("  read out exactly", exact),
            ReportRow("steps to loss, relative", tuple(told(one) for one in found.values())),
        ]
        title = f"Training, mode {self.mode}, minus exact training of the same seeds"
        return [ReportTable(title, list(found), rows), chance_told(floor)]


def chance_told(floor: float) -> str:
    """Return a sentence on the resolution of a seed's loss."""
    return f"Noise of nothing moves the loss of a seed by up to {floor:.2g} nats/byte."


def told(steps: StepsToLoss) -> str:
    """Return relative steps as text, or that no difference is resolved."""
    if not steps.resolved:
        return "no difference resolved"
    if not math.isfinite(steps.mean):
        return f"> {steps.least:.2f}"
    return f"{steps.mean:.3f} \u00b1 {steps.error:.3f}"


def train_in_mode(
    arithmetics: Sequence[Arithmetic],
    *,
    mode: Mode,
    effort: Effort,
    cache: TrainingCache,
    progress: OnProgress = unheard,
) -> Training:
    """Train with each arithmetic in a mode; also exactly and with negligible noise, on the same seeds.

    Parameters
    ----------
    arithmetics : sequence of Arithmetic
        Arithmetics of the products.
    mode : Mode
        Passes in which products are noisy.
    effort : Effort
        Model, steps and seeds.
    cache : TrainingCache
        Finished runs, which are not repeated.
    progress : callable
        Called with the label of the last run, runs done, and runs in all.
    """
    if mode is Mode.INFERENCE:
        return Training(mode=mode, accuracies={})
    trained = train_all(
        [NOTHING, *(aware(one) if mode is Mode.AWARE else one for one in arithmetics)],
        seeds=effort.seeds,
        quick=effort.steps <= QUICK_STEPS,
        cache=cache,
        model=effort.model,
        steps=effort.steps,
        progress=progress,
    )
    return Training(mode=mode, accuracies=trained)


def aware(arithmetic: Arithmetic) -> Arithmetic:
    """Return an arithmetic with exact gradients (noise-aware training); a GPU's stays as it is."""
    if arithmetic.analog is None:
        return arithmetic
    ideal = AnalogSpec.ideal()
    analog = {phase: spec if phase is Phase.FORWARD else ideal for phase, spec in arithmetic.analog.items()}
    return dataclasses.replace(arithmetic, analog=analog)
