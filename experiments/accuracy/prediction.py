"""Predict, then execute: the loss that a core's noise will cost, from one calibration of a trained model.

To second order a loss rises with the variance of every product's error, hence in proportion to its
noise-to-signal ratio (NSR), and independent errors add: ``sum c_pk NSR_pk``, over the products p of every
layer and the classes k of errors (`workloads.training.probes`): anew for every output, or shared by all that
meet one element of an operand. What a core's errors have in common, a gain of 1 + e_p, adds ``sum_p g_p e_p +
sum_pq h_pq e_p e_q / 2``. Gaussian noise of one class on one product at a time gives c, differentiation g
and h; the core's own NSR and gains, measured against exact products, then predict what executing all of it
costs.

A core with noisy products leaves second order behind: the rise of each product bends, and errors of products
in a row raise each other's price. Both are in the loss of the model with errors of the measured strengths in
all products at once, which therefore is the prediction; second order stands beside it. Errors are Gaussian,
but where a core misreads remainders: then a few samples are wrong, each by a shift from its own sum.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

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
"""Bits of one converter, the other being exact."""


class _Converter(StrEnum):
    """Converter of a photonic core."""

    OUTPUT = "ADC"
    OPERAND = "DAC"


def converter_ladder(arithmetics: Iterable[Arithmetic]) -> tuple[Arithmetic, ...]:
    """Return arithmetics with output or operand converters of so many bits, and no other error.

    Parameters
    ----------
    arithmetics : iterable of Arithmetic
        The first photonic one gives length of a sample, scale, rounding and range of the output converter.
    """
    for one in arithmetics:
        spec = one.analog[Phase.FORWARD] if one.analog is not None else None
        if spec is not None and spec.residues is None:
            return tuple(_converter(spec, one, kind, bits) for kind in _Converter for bits in BITS)
    msg = "converters are turned on a photonic core that reads its sums; name one with --system, as crossbar"
    raise ParameterError(msg)


def _converter(spec: AnalogSpec, one: Arithmetic, kind: _Converter, bits: int) -> Arithmetic:
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
        one, label=f"{kind} {bits} bits", analog=dict.fromkeys(one.analog or {}, alone)
    )


def with_electronic(arithmetics: Iterable[Arithmetic], products: tuple[str, ...]) -> tuple[Arithmetic, ...]:
    """Return the arithmetics with some products electronic and exact, the model's names for them."""
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
"""Largest residual of a prediction, relative, that is called a hit."""


def product_of(site: str) -> str:
    """Return the product that a site runs, its layer left out."""
    return site.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Response of one clean model to Gaussian noise. Rises are of the validation loss, nats per byte."""

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
        return statistics.fmean(self.single[site][error_class]) * ratio_from_db(PROBE_DB)

    def coefficient_variance(self, site: str, error_class: ErrorClass) -> float:
        """Return the squared standard error of a coefficient over draws; zero for one pair."""
        error = standard_error(self.single[site][error_class]) * ratio_from_db(PROBE_DB)
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
    """Effect of one arithmetic on each clean model."""

    label: str
    """Name of the arithmetic."""
    drawn: tuple[tuple[float, ...], ...]
    """Rise of the loss, per model and draw, nats per byte."""
    mirrored: tuple[tuple[float, ...], ...]
    """The same with the mirror image of every error."""
    nsr: tuple[Mapping[str, Mapping[ErrorClass, float]], ...]
    """Measured noise-to-signal ratio by site and class, per model; sites that are exact are left out.
    Empty, as all below, where errors are not measured."""
    gain: tuple[Mapping[str, float], ...]
    """Measured gain by site, per model."""
    modelled: tuple[tuple[float, ...], ...] = ()
    """Rise with errors of these strengths and the core's mean errors by size of output in all
    products at once, mean of a draw and its mirror image, per model and draw; none where only second order
    is known."""
    modelled_drawn: tuple[tuple[float, ...], ...] = ()
    """The same without mirror images, of misread samples, whose sign hangs on their sums; else none, as draws
    of small noise scatter more than what its gains cost."""

    @classmethod
    def of(cls, label: str, results: Iterable[Mapping[str, Any]]) -> Execution:
        """Return the record of one arithmetic from the plain data of all workers."""
        mine = [one["executed"][label] for one in results]
        measured = [one for one in mine if "nsr" in one]
        return cls(
            label=label,
            drawn=tuple(tuple(one["drawn"]) for one in mine),
            mirrored=tuple(tuple(one["mirrored"]) for one in mine),
            nsr=tuple(
                {site: {ErrorClass(k): v for k, v in row.items()} for site, row in one["nsr"].items()}
                for one in measured
            ),
            gain=tuple(one["gain"] for one in measured),
            modelled=tuple(tuple(one["modelled"]) for one in measured),
            modelled_drawn=tuple(tuple(one["modelled_drawn"]) for one in measured),
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
        nsr = ratio_from_db(-PROBE_DB)
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

    def expected_even(self, execution: Execution) -> tuple[float, ...]:
        """Return the rise at the strength of a core's errors, per model; to second order if not known."""
        if not execution.modelled:
            return self.predicted_even(execution)
        return tuple(statistics.fmean(one) for one in execution.modelled)

    def predicted(self, execution: Execution) -> tuple[float, ...]:
        """Return the rise in all that an arithmetic's measured errors are expected to cost, per model."""
        if any(execution.modelled_drawn):
            return tuple(statistics.fmean(one) for one in execution.modelled_drawn)
        return tuple(
            even + one.by_gain(gain, order=1)
            for even, one, gain in zip(
                self.expected_even(execution), self.calibrations, execution.gain, strict=True
            )
        )

    def residual(self, execution: Execution) -> float:
        """Return the mean predicted rise by the errors' variance over the executed one, minus one."""
        return statistics.fmean(self.expected_even(execution)) / statistics.fmean(execution.even) - 1.0

    def second_order_residual(self, execution: Execution) -> float:
        """Return the same of the prediction to second order, one coefficient for each product and class."""
        return statistics.fmean(self.predicted_even(execution)) / statistics.fmean(execution.even) - 1.0

    def residual_error(self, execution: Execution) -> float:
        """Return the standard error of the residual: of draws of core and probes, or of models if larger.

        Notes
        -----
        Rounding errs alike in every draw, weights above all: only models are draws of it. So draws alone
        would tell too small an error. Few models give it roughly: of three, to a half.
        """
        even, executed = self.expected_even(execution), statistics.fmean(execution.even)
        misses = [one - other for one, other in zip(even, execution.even, strict=True)]
        over_models = abs(standard_error(misses) / executed)
        probes = math.hypot(
            *(one.by_variance_error(nsr) for one, nsr in zip(self.calibrations, execution.nsr, strict=True))
        )
        if execution.modelled:
            drawn = [standard_error(one) for one in execution.modelled]
            probes = math.hypot(*(one for one in drawn if math.isfinite(one)))
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
        per_nsr = [rise * ratio_from_db(db) for db, rise in zip(levels, rises, strict=True)]
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
                    "predicted_by_variance": list(self.expected_even(one)),
                    "predicted_to_second_order": list(self.predicted_even(one)),
                    "executed_by_variance": list(one.even),
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
"""Range of the output converter at which the cost of clipping is measured, rms: that of all cores."""
_WHOLE = 2**16
"""Length of a sample that is longer than any sum."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
    """A trained model with the text that it is judged by."""

    model: Gpt
    """The model; what runs its products changes with every trial."""
    training: TrainingConfig
    """Training, which says on which windows it is judged."""
    corpus: Corpus
    """The text."""

    @functools.cached_property
    def clean(self) -> float:
        """Loss with exact products."""
        return self.loss({}, 0)

    def calibrate(self, effort: Effort) -> dict[str, Any]:
        """Return how the loss depends on noise and gain of each product, as plain data."""
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
        """Return the loss with products at these sites run by other numerics, the draw with this number."""
        from workloads.training.gpt import validate  # noqa: PLC0415 - torch, only to execute
        from workloads.training.probes import place  # noqa: PLC0415 - torch, only to execute

        place(self.model, chosen)
        seed = mix_key(self.training.seed, _PROBE_STREAM, draw)
        return validate(self.model, dataclasses.replace(self.training, seed=seed), self.corpus)

    def _pairs(
        self, effort: Effort, names: tuple[str, ...], snr_db: float, error_class: ErrorClass, clean: float
    ) -> list[float]:
        """Return the mean rise of each draw and its mirror image, of Gaussian errors at these sites."""
        from workloads.training.probes import probe  # noqa: PLC0415 - torch, only to execute

        nsr = ratio_from_db(-snr_db)
        both = [dict.fromkeys(names, probe(error_class, nsr, sign, uneven=effort.uneven)) for sign in (1, -1)]
        return [sum(self.loss(one, draw) for one in both) / 2.0 - clean for draw in range(effort.pairs)]

    def execute(self, arithmetic: Arithmetic, pairs: int, *, measured: bool = True) -> dict[str, Any]:
        """Return what a core does to the loss in all products that are not kept exact (`executed`).

        Notes
        -----
        Every draw is another chip of the same design, so that the scatter of draws holds that of chips.
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
        """Return what numerics do to the loss, with their mirror image, and what their errors are to do.

        Parameters
        ----------
        draws : sequence of mappings
            Numerics by site; a draw each.
        misread : MisreadProducts, optional
            How all of them misread samples; then their only error but those of operands.
        measured : bool
            Whether errors are measured and what they are to do is run, too; without, the losses alone.
        """
        from workloads.training.probes import (  # noqa: PLC0415 - torch, only to execute
            ModelledErrors,
            Transfer,
            scaling_of,
        )

        clean, pairs = self.clean, len(draws)
        trials = [self._with_image(one, draw, metered=measured) for draw, one in enumerate(draws)]
        losses = {
            "drawn": [loss - clean for loss, *_ in trials],
            "mirrored": [image - clean for _, image, _ in trials],
        }
        if not measured:
            return losses
        errors: dict[str, Numerics] = {}
        strength, gains = {}, {}
        for name in draws[0]:
            mine = [meters[name] for *_, meters in trials]
            strength[name] = {one: math.fsum(each.nsr[one] for each in mine) / pairs for one in ErrorClass}
            gains[name] = math.fsum(each.gain for each in mine) / pairs
            transfer = sum((each.transfer for each in mine), Transfer())
            errors[name] = (
                ModelledErrors.of(strength[name], gains[name], transfer, scaling_of(draws[0][name]))
                if misread is None
                else ModelledErrors(strength[name], misread=misread)
            )
        modelled = [self._with_image(errors, draw, metered=False)[:2] for draw in range(pairs)]
        return losses | {
            "nsr": strength,
            "gain": gains,
            "modelled": [statistics.fmean(both) - clean for both in modelled],
            "modelled_drawn": [loss - clean for loss, _ in modelled] if misread is not None else [],
        }

    def operands(self, rows: int) -> dict[str, list[tuple[torch.Tensor, torch.Tensor]]]:
        """Return both operands of every forward product by batches; of those with weights so many rows."""
        from workloads.training.probes import RecordedProducts, sites  # noqa: PLC0415 - torch, only to execute

        recorders = {site: RecordedProducts(rows=rows) for site in sites(self.model.config)}
        self.loss(dict(recorders), 0)
        return {site: one.operands for site, one in recorders.items()}

    def clipping(self, *, rotated: bool) -> dict[str, tuple[float, float]]:
        """Return the power, over the exact, that a range of `CLIPPED_AT` rms cuts off, and the rise."""
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
        """Return what numerics by site does to the loss: of so many draws, each with its mirror image."""
        trials = [self._with_image(numerics, draw, metered=False)[:2] for draw in range(pairs)]
        return [(loss - self.clean, image - self.clean) for loss, image in trials]

    def _with_image(
        self, numerics: Mapping[str, Numerics], draw: int, *, metered: bool = True
    ) -> tuple[float, float, dict[str, Meter]]:
        """Return the loss with a draw of errors, that with their mirror image, and the errors by site."""
        from workloads.training.probes import (  # noqa: PLC0415 - torch, only to execute
            MeasuredProducts,
            MirroredProducts,
        )

        plain = {name: MeasuredProducts(one, metered=metered) for name, one in numerics.items()}
        loss = self.loss(dict(plain), draw)
        images = {name: MirroredProducts(one.errors) for name, one in plain.items()}
        return loss, self.loss(dict(images), draw), {name: one.meter for name, one in plain.items()}


def _misread(arithmetic: Arithmetic) -> MisreadProducts | None:
    """Return how a core of residue numbers misreads samples; none of any other."""
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
    """Return the arithmetic on another chip for each draw, where chips differ; the first is its own."""
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
    """Effort of a run."""

    model: str = "small"
    """Shape of the model that is trained, of `MODELS`, or `LEARNT`."""
    steps: int = 150
    """Updates of the clean training."""
    windows: int = 60
    """Validation windows of 64 bytes on which every loss is read."""
    pairs: int = 2
    """Pairs of a draw and its mirror image per measured loss."""
    core_pairs: int = 4
    """The same where a core is executed; each is another chip of its design."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Models: initial weights, batches and all draws."""
    ladder_db: tuple[float, ...] = LADDER_DB
    """Signal to noise at which all products are probed together, dB."""
    uneven: bool = True
    """Whether probing noise follows the full scales of rows and columns, as in cores that scale by row."""
    error_classes: tuple[ErrorClass, ...] = tuple(ErrorClass)
    """Classes of errors that are probed."""
    gains: bool = True
    """Whether the response to gains of products is measured; without it a core is executed, not predicted."""
    errors: bool = True
    """Whether a core's errors are measured and what errors like them cost is run; without, its loss alone."""

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
        """Return the usual effort, or a quick one, with what a user asks for.

        Parameters
        ----------
        quick : bool
            Less than a minute instead of some.
        model : str
            Shape of the model, of `MODELS`, or `LEARNT`, which is larger and gets fewer windows.
        steps, seeds : int, optional
            Updates and models, if not the usual numbers.
        first_seed : int
            The first of the seeds.
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
    """Train a clean model per seed, calibrate it, and execute it through each arithmetic.

    Parameters
    ----------
    arithmetics : tuple of Arithmetic
        How products come out; labels must differ. May be empty, for a calibration alone.
    effort : Effort
        How much to run.
    cache : TrainingCache
        Finished runs, which are not repeated.
    progress : callable
        Told what was run, models done, and models in all.
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
    """Return the power of numerics' errors in products over that of the exact products."""
    error, signal = 0.0, 0.0
    for a, b in batches:
        exact = a.bmm(b)
        error += float((numerics.matmul(a, b, 0) - exact).double().square().sum())
        signal += float(exact.double().square().sum())
    return error / signal


def learnt_bench(*, windows: int) -> Bench:
    """Return the model that ships, ready to be judged on so many windows of text."""
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
    """Return what one clean model tells, as plain data."""
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
    """Training runs of one mode, or none for noise at inference alone."""

    mode: Mode
    """Passes of training in which products were noisy; with inference, there was no training."""
    accuracies: Mapping[str, Accuracy]
    """By arithmetic, exact arithmetic first; empty without training."""

    @property
    def steps(self) -> dict[str, StepsToLoss]:
        """Steps to the loss of exact arithmetic, by arithmetic."""
        others = {label: one for label, one in self.accuracies.items() if label not in (EXACT, NOTHING.label)}
        return {label: steps_to_loss(one) for label, one in others.items()}

    @property
    def floor(self) -> float:
        """Largest difference of a seed's final loss that noise of nothing made, nats per byte."""
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
        """Return the table of what training came to."""
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
    """Return what chance makes of a seed's loss, as a sentence."""
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
    """Train each arithmetic in a mode; beside it exact arithmetic and noise of nothing, with the same seeds.

    Parameters
    ----------
    arithmetics : sequence of Arithmetic
        What to train with.
    mode : Mode
        Which products are noisy.
    effort : Effort
        Model, steps and seeds.
    cache : TrainingCache
        Finished runs, which are not repeated.
    progress : callable
        Told the label of the run just done, runs done, and runs in all.
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
    """Return an arithmetic whose gradients are exact; a GPU's stays as it is."""
    if arithmetic.analog is None:
        return arithmetic
    ideal = AnalogSpec.ideal()
    analog = {phase: spec if phase is Phase.FORWARD else ideal for phase, spec in arithmetic.analog.items()}
    return dataclasses.replace(arithmetic, analog=analog)
