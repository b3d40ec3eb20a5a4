"""Law of the training loss under noisy products, over model size, tokens and noise-to-signal ratio.

The *rise* of the loss over exact arithmetic is fitted in two forms (`Form`) to small trainings that ship
(``heliograph accuracy law --train`` makes them). The fit takes milliseconds; `FittedLaw` adds bootstrap
bands.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from simulator.errors import ParameterError
from simulator.units import ratio_from_db

RUNS = Path(__file__).parent / "noise_law.csv"
"""Table of trainings that ships, with a row for each `Run`."""
MILLION = 1e6
"""A million parameters, for messages."""
DECIBEL = 10.0
"""Decibels in a power ratio of ten."""
CONFIDENCE = 0.95
"""Confidence of bands."""
_ENDS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
"""Quantiles at the ends of a band."""
COMPUTE_OPTIMAL = 20.0
"""Tokens per parameter of a compute-optimal run (Hoffmann et al., arXiv:2203.15556, table 3)."""
_DRAWS, _SEED = 400, 19
"""Draws of the bootstrap, and their seed; choices."""
_LEAST_RISE = 0.002
"""Least rise in nats that is fitted, as the logarithm of a smaller one is meaningless; a choice. Chance alone
is larger (`chaos_nats`), but leaving out all rises that small would bias the fit."""
MOST_TIMES = 100.0
"""Most tokens of a noisy run over those of the exact run in `Law.more_tokens`; a choice."""
_TRIED, _SETTLED = 60, 1e-6
"""Grid points, and relative tolerance, of the search in `Law.more_tokens`."""
NOTHING_DB = 60.0
"""Signal-to-noise ratio from which noise has no effect but chance."""
_EXPONENTS = np.linspace(0.05, 1.0, 20)
"""Grid of the exponents in `fit_exact`."""

Vector = NDArray[np.float64]


class Kind(StrEnum):
    """Kind of error in the products of a run."""

    EXACT = "exact"
    WHITE = "white"
    """Gaussian noise added to results, a set share of their mean square."""
    NEAREST = "nearest"
    """Operands rounded to nearest, with a scale per row of A and column of B."""
    STOCHASTIC = "stochastic"
    """Operands rounded stochastically, with such scales."""
    FP8 = "fp8"
    """Operands in E4M3, gradients in E5M2, with a scale per tensor."""
    NVFP4 = "nvfp4"
    """Operands in E2M1, in blocks of 16 with scales in E4M3, gradients rounded stochastically."""


class Where(StrEnum):
    """Products of the model that have the error."""

    ALL = "all"
    BLOCKS = "blocks"
    """Products of blocks with weights, as in fp8 and nvfp4 training; attention and head are exact."""


class Passes(StrEnum):
    """Passes whose products have the error."""

    ALL = "all"
    FORWARD = "forward"
    """Forward pass; gradients are exact."""
    GRAD_INPUT = "grad_input"
    """Gradients of activations only; in products of two activations, of both operands."""
    GRAD_WEIGHT = "grad_weight"
    """Gradients of weights only."""


class Schedule(StrEnum):
    """Learning rate after the warm-up."""

    CONSTANT = "constant"
    DECAYED = "decayed"


class Form(StrEnum):
    """Form of the law: e noise-to-signal ratio, N parameters, D tokens, L(N, D) loss of exact arithmetic."""

    ADDITIVE = "additive term"
    """Loss L(N, D) + c e^p N^g (D/N)^h."""
    EFFECTIVE = "effective parameters"
    """Loss L(N / (1 + k e^p), D)."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Validation loss of one training after a number of tokens."""

    width: int
    """Width of the model."""
    parameters: int
    """Parameters in products."""
    kind: Kind
    """Error of its products."""
    level: float
    """Signal-to-noise ratio in dB of white noise; bits of rounding; else 0."""
    products: Where
    """Products with the error."""
    passes: Passes = Passes.ALL
    """Passes with the error."""
    seed: int
    """Seed of weights, batches and noise."""
    tokens: int
    """Tokens trained on."""
    tokens_per_parameter: float
    """Requested tokens over parameters, of which `tokens` are a whole number of batches."""
    schedule: Schedule
    """Learning rate."""
    loss: float
    """Validation loss with its own arithmetic, nats per byte."""
    exact_loss: float
    """Validation loss of its weights with exact products, nats per byte."""

    @property
    def training(self) -> tuple[Any, ...]:
        """Fields that runs of one training have in common."""
        return (self.width, self.kind, self.level, self.products, self.passes, self.seed)

    @property
    def pair(self) -> tuple[Any, ...]:
        """Fields that a run and its exact twin have in common."""
        return (self.width, self.seed, self.tokens, self.schedule)


def read_runs(path: Path = RUNS) -> tuple[Run, ...]:
    """Return the runs of a table.

    Parameters
    ----------
    path : pathlib.Path
        CSV with a column for each field of `Run`; by default the table that ships.

    Raises
    ------
    ParameterError
        If it cannot be read or a row is no run.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            kinds = get_type_hints(Run)
            return tuple(
                Run(**{name: kind(row[name]) for name, kind in kinds.items()}) for row in csv.DictReader(file)
            )
    except (OSError, KeyError, ValueError, TypeError) as error:
        msg = f"'{path}' is no table of runs ({error}); write one with accuracy law --train --runs FILE"
        raise ParameterError(msg) from error


@dataclass(frozen=True, kw_only=True)
class Rise:
    """Rise of the loss over exact arithmetic, with the same size, tokens, schedule and seed."""

    run: Run
    """The run."""
    nats: float
    """Loss minus that of its exact twin, nats per byte."""
    exactly_judged: bool = False
    """Whether the loss is that of its weights with exact products."""

    @property
    def nsr(self) -> float:
        """Noise-to-signal power ratio of a run with white noise, dimensionless."""
        return ratio_from_db(-self.run.level)


def rises(
    runs: Iterable[Run],
    kind: Kind = Kind.WHITE,
    products: Where = Where.ALL,
    *,
    passes: Passes = Passes.ALL,
    exactly_judged: bool = False,
) -> tuple[Rise, ...]:
    """Return the rises of all runs of a kind that have an exact twin and noise above `NOTHING_DB`.

    Parameters
    ----------
    runs : iterable of Run
        Runs, exact ones among them.
    kind : Kind
        Error of products.
    products : Where
        Products with the error.
    passes : Passes
        Passes with the error.
    exactly_judged : bool
        Whether losses with exact products are taken, rather than those with the run's own arithmetic.
    """
    runs = tuple(runs)
    exact = {run.pair: run.loss for run in runs if run.kind is Kind.EXACT}
    return tuple(
        Rise(
            run=run,
            nats=(run.exact_loss if exactly_judged else run.loss) - exact[run.pair],
            exactly_judged=exactly_judged,
        )
        for run in runs
        if (run.kind, run.products, run.passes) == (kind, products, passes)
        and run.pair in exact
        and run.level < NOTHING_DB
    )


def chaos_nats(runs: Iterable[Run]) -> float:
    """Return the difference of losses due to chance, root mean square over runs, nats per byte.

    It is that of runs with negligible noise (`NOTHING_DB`) from their exact twins.

    Raises
    ------
    ParameterError
        If there is no such run.
    """
    runs = tuple(runs)
    exact = {run.pair: run.loss for run in runs if run.kind is Kind.EXACT}
    differences = [
        run.loss - exact[run.pair] for run in runs if run.level >= NOTHING_DB and run.pair in exact
    ]
    if not differences:
        msg = f"the table has no run with noise at {NOTHING_DB:g} dB, by which chance is told"
        raise ParameterError(msg)
    return math.sqrt(math.fsum(nats**2 for nats in differences) / len(differences))


@dataclass(frozen=True, kw_only=True)
class ExactLoss:
    """Loss of exact arithmetic, E + A/N^a + B/D^b, nats per byte."""

    floor: float
    """Irreducible loss E."""
    size: float
    """Coefficient A of the size."""
    size_exponent: float
    """Exponent a of the size."""
    data: float
    """Coefficient B of the tokens."""
    data_exponent: float
    """Exponent b of the tokens."""

    def __call__(self, parameters: float, tokens: float) -> float:
        """Return the loss at a size and a number of tokens."""
        return self.floor + self.of_size(parameters) + self.data * tokens**-self.data_exponent

    def of_size(self, parameters: float) -> float:
        """Return the term A/N^a, nats per byte."""
        return float(self.size * parameters**-self.size_exponent)


def fit_exact(runs: Iterable[Run]) -> ExactLoss:
    """Return the loss of exact arithmetic, by least squares over the exact runs with a decayed rate.

    Exponents are tried on a grid; for each pair the coefficients follow from non-negative least squares.

    Raises
    ------
    ParameterError
        If there are fewer than five such runs, or fewer than three sizes.
    """
    from scipy.optimize import nnls  # noqa: PLC0415 - takes its time

    chosen = [run for run in runs if run.kind is Kind.EXACT and run.schedule is Schedule.DECAYED]
    sizes = len({run.parameters for run in chosen})
    if len(chosen) < 5 or sizes < 3:
        msg = (
            f"{len(chosen)} exact runs of {sizes} sizes do not give the loss over size and tokens; at least "
            "5 of 3 sizes do"
        )
        raise ParameterError(msg)
    size = np.array([run.parameters for run in chosen], dtype=float)
    data = np.array([run.tokens for run in chosen], dtype=float)
    loss = np.array([run.loss for run in chosen])
    best: tuple[float, ExactLoss] | None = None
    for a in _EXPONENTS:
        for b in _EXPONENTS:
            columns = np.stack([np.ones_like(loss), size**-a, data**-b], axis=1)
            scale = columns.max(0)
            floor, of_size, of_data = coefficients = nnls(columns / scale, loss)[0] / scale
            error = float(np.sum((columns @ coefficients - loss) ** 2))
            if best is None or error < best[0]:
                exact = ExactLoss(
                    floor=float(floor),
                    size=float(of_size),
                    size_exponent=float(a),
                    data=float(of_data),
                    data_exponent=float(b),
                )
                best = (error, exact)
    assert best is not None  # noqa: S101 - the grid is not empty
    return best[1]


@dataclass(frozen=True, kw_only=True)
class Law:
    """Law of one form with its coefficients."""

    form: Form
    """Form of the law."""
    coefficients: tuple[float, ...]
    """ln c (or ln k), exponent p, and the logarithm of the factor for a constant learning rate; of the
    additive form also the exponents g and h."""
    exact: ExactLoss
    """Loss of exact arithmetic."""

    @property
    def noise_exponent(self) -> float:
        """Exponent p of the noise-to-signal ratio; 1 if the rise is proportional to noise."""
        return self.coefficients[1]

    def rise(
        self,
        nsr: float,
        parameters: float,
        ratio: float = COMPUTE_OPTIMAL,
        schedule: Schedule = Schedule.DECAYED,
    ) -> float:
        """Return the rise of the loss, nats per prediction.

        Parameters
        ----------
        nsr : float
            Noise-to-signal power ratio of products, dimensionless.
        parameters : float
            Parameters in products.
        ratio : float
            Tokens per parameter.
        schedule : Schedule
            Learning rate.
        """
        if nsr == 0.0:
            return 0.0
        regressors = _regressors(self.form, nsr, parameters, ratio, schedule)
        logarithm = math.fsum(map(math.prod, zip(regressors, self.coefficients, strict=True)))
        return _rise_from_log(self.form, logarithm, self.exact, parameters)

    def needed_db(self, nats: float, parameters: float, ratio: float = COMPUTE_OPTIMAL) -> float:
        """Return the signal-to-noise ratio in dB at which the loss rises by `nats`, with a decayed rate."""
        regressors = _regressors(self.form, 1.0, parameters, ratio, Schedule.DECAYED)
        at_one = math.fsum(map(math.prod, zip(regressors, self.coefficients, strict=True)))
        log_nsr = (_log_of_rise(self.form, nats, self.exact, parameters) - at_one) / self.noise_exponent
        return -DECIBEL * log_nsr / math.log(10.0)

    def more_tokens(self, nsr: float, parameters: float, ratio: float = COMPUTE_OPTIMAL) -> float:
        """Return the tokens with which a noisy run reaches the loss of the exact run, over its tokens.

        Parameters
        ----------
        nsr : float
            Noise-to-signal power ratio of products, dimensionless.
        parameters : float
            Parameters in products.
        ratio : float
            Tokens per parameter of the exact run.

        Returns
        -------
        float
            At least 1; infinite if `MOST_TIMES` are not enough, as where noise costs more with every token
            than the token teaches.
        """
        tokens, b = ratio * parameters, self.exact.data_exponent

        def excess(times: float) -> float:
            """Return the loss of the noisy run minus that of the exact one."""
            gained = self.exact.data * tokens**-b * (1.0 - times**-b)
            return self.rise(nsr, parameters, ratio * times) - gained

        tried = np.geomspace(1.0, MOST_TIMES, _TRIED).tolist()
        for low, high in itertools.pairwise(tried):
            if excess(high) <= 0.0:
                return _bisect(excess, low, high)
        return math.inf


def _bisect(excess: Callable[[float], float], low: float, high: float) -> float:
    """Return the factor between two at which a function falls to zero."""
    while high / low > 1.0 + _SETTLED:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if excess(middle) <= 0.0 else (middle, high)
    return high


def _regressors(
    form: Form, nsr: float, parameters: float, ratio: float, schedule: Schedule
) -> tuple[float, ...]:
    """Return the regressors of a form, one per coefficient of `Law`."""
    common = (1.0, math.log(nsr), float(schedule is Schedule.CONSTANT))
    return (*common, math.log(parameters), math.log(ratio)) if form is Form.ADDITIVE else common


def _log_of_rise(form: Form, nats: float, exact: ExactLoss, parameters: float) -> float:
    """Return the logarithm that is linear in the coefficients, ln(rise) or ln(k e^p), of a positive rise."""
    if form is Form.ADDITIVE:
        return math.log(nats)
    share = nats / exact.of_size(parameters)
    return math.log(math.expm1(math.log1p(share) / exact.size_exponent))


def _rise_from_log(form: Form, logarithm: float, exact: ExactLoss, parameters: float) -> float:
    """Return the rise of such a logarithm, the inverse of `_log_of_rise`."""
    if form is Form.ADDITIVE:
        return math.exp(logarithm)
    log_size_loss = float(np.logaddexp(0.0, logarithm))
    return exact.of_size(parameters) * math.expm1(exact.size_exponent * log_size_loss)


def fit(found: Sequence[Rise], form: Form, exact: ExactLoss) -> Law:
    """Return the law of a form fitted to rises, by least squares of logarithms.

    Parameters
    ----------
    found : sequence of Rise
        Rises due to white noise; those below `_LEAST_RISE` are left out.
    form : Form
        Form of the law.
    exact : ExactLoss
        Loss of exact arithmetic.

    Raises
    ------
    ParameterError
        If fewer rises than coefficients are left.
    """
    columns, target = _linear_system(found, form, exact)
    return _solve(columns, target, form, exact)


def _linear_system(found: Sequence[Rise], form: Form, exact: ExactLoss) -> tuple[Vector, Vector]:
    """Return matrix, [rises, coefficients], and right-hand side of the least squares."""
    fitted = [one for one in found if one.nats > _LEAST_RISE]
    rows = [
        _regressors(form, one.nsr, one.run.parameters, one.run.tokens / one.run.parameters, one.run.schedule)
        for one in fitted
    ]
    target = [_log_of_rise(form, one.nats, exact, one.run.parameters) for one in fitted]
    return np.array(rows, dtype=float), np.array(target)


def _solve(columns: Vector, target: Vector, form: Form, exact: ExactLoss) -> Law:
    if not len(target) or np.linalg.matrix_rank(columns) < columns.shape[1]:
        msg = (
            f"{len(target)} rises do not tell the coefficients of the law ({form}) apart; add sizes or levels"
        )
        raise ParameterError(msg)
    coefficients = np.linalg.lstsq(columns, target, rcond=None)[0]
    return Law(form=form, coefficients=tuple(map(float, coefficients)), exact=exact)


@dataclass(frozen=True, kw_only=True)
class Band:
    """Estimate with its confidence interval, of `CONFIDENCE`."""

    low: float
    """Lower end of the interval."""
    middle: float
    """Estimate."""
    high: float
    """Upper end of the interval."""

    @classmethod
    def of(cls, middle: float, draws: Iterable[float]) -> Band:
        """Return an estimate with the interval of its bootstrap draws."""
        low, high = np.quantile(np.array(list(draws)), _ENDS)
        return cls(low=float(low), middle=middle, high=float(high))

    def scaled(self, factor: float) -> Band:
        """Return the band times a positive factor."""
        return Band(low=factor * self.low, middle=factor * self.middle, high=factor * self.high)


@dataclass(frozen=True, kw_only=True)
class FittedLaw:
    """Fitted law with the draws of its bootstrap."""

    law: Law
    """Fit to all trainings."""
    draws: tuple[Law, ...]
    """Fits to trainings drawn with replacement."""

    def rise(self, nsr: float, parameters: float, ratio: float = COMPUTE_OPTIMAL) -> Band:
        """Return the rise of the loss with its band, nats per prediction."""
        return Band.of(
            self.law.rise(nsr, parameters, ratio), (one.rise(nsr, parameters, ratio) for one in self.draws)
        )

    def needed_db(self, nats: float, parameters: float, ratio: float = COMPUTE_OPTIMAL) -> Band:
        """Return the signal-to-noise ratio in dB at which the loss rises by `nats`, with its band."""
        middle, *draws = [one.needed_db(nats, parameters, ratio) for one in (self.law, *self.draws)]
        return Band.of(middle, draws)

    def more_tokens(self, nsr: float, parameters: float, ratio: float = COMPUTE_OPTIMAL) -> Band:
        """Return `Law.more_tokens` with its band, whose ends may be infinite."""
        middle, *draws = [one.more_tokens(nsr, parameters, ratio) for one in (self.law, *self.draws)]
        low, high = np.quantile(draws, _ENDS, method="higher")
        return Band(low=float(low), middle=middle, high=float(high))


def fit_with_band(found: Sequence[Rise], form: Form, exact: ExactLoss) -> FittedLaw:
    """Return the law of a form fitted to rises, with bootstrap draws over trainings.

    Runs of one training are drawn together, as they are not independent. Draws that do not determine all
    coefficients are repeated.
    """
    law = fit(found, form, exact)
    fitted = [one for one in found if one.nats > _LEAST_RISE]
    columns, target = _linear_system(fitted, form, exact)
    trainings = sorted({one.run.training for one in fitted})
    groups = [
        np.array([one.run.training == training for one in fitted]).nonzero()[0] for training in trainings
    ]
    generator = np.random.default_rng(_SEED)
    draws: list[Law] = []
    while len(draws) < _DRAWS:
        drawn = generator.integers(len(groups), size=len(groups))
        rows = np.concatenate([groups[index] for index in drawn])
        if np.linalg.matrix_rank(columns[rows]) == columns.shape[1]:
            draws.append(_solve(columns[rows], target[rows], form, exact))
    return FittedLaw(law=law, draws=tuple(draws))


def gradient_price(passes: Passes, runs: Sequence[Run] | None = None) -> Band:
    """Return the rise of the loss due to noise in gradients only, nats per byte per noise-to-signal ratio.

    Raises
    ------
    ParameterError
        If no training of the table has noise in these passes only.

    Notes
    -----
    Mean over trainings of the rise over the noise-to-signal ratio, with a decayed rate and the most tokens.
    The band is Student's t of their scatter, taken no smaller than chance (`chaos_nats`). Trainings differ in
    seed, size and level, so that the band covers deviations from proportionality, too.
    """
    from scipy.stats import t  # noqa: PLC0415 - takes its time

    runs = read_runs() if runs is None else runs
    last: dict[tuple[Any, ...], Rise] = {}
    for one in rises(runs, passes=passes):
        known = last.get(one.run.training)
        if one.run.schedule is Schedule.DECAYED and (known is None or known.run.tokens < one.run.tokens):
            last[one.run.training] = one
    if not last:
        msg = f"the table has no run with noise in {passes} alone; heliograph accuracy law --train adds some"
        raise ParameterError(msg)
    prices = np.array([one.nats / one.nsr for one in last.values()])
    count, chance = len(prices), chaos_nats(runs)
    variance = math.fsum((chance / one.nsr) ** 2 for one in last.values()) / count
    if count > 1:
        variance = max(variance, float(prices.var(ddof=1)))
    half = float(t.ppf((1.0 + CONFIDENCE) / 2.0, max(1, count - 1))) * math.sqrt(variance / count)
    middle = float(prices.mean())
    return Band(low=middle - half, middle=middle, high=middle + half)


WITHIN = 10.0
"""Factor beyond the trained sizes up to which the law is applied; a choice, the decade that sizes span."""
NARROW = 10.0
"""Largest ratio of a band's ends that counts as resolved; a choice."""


def told_rises(
    name: str, parameters: float, snr_db: Mapping[str, float], runs: Sequence[Run] | None = None
) -> list[str]:
    """Return sentences on the rise of a model's loss on each system by the law, or on why it is not resolved.

    Parameters
    ----------
    name : str
        Name of the model.
    parameters : float
        Its number of parameters.
    snr_db : mapping of str to float
        Signal-to-noise ratio of all products in dB, by system.
    runs : sequence of Run, optional
        Trainings to fit; by default those that ship.

    Notes
    -----
    A number is given within `WITHIN` of the trained sizes and up to the trained noise, if the bands of both
    forms together are narrower than `NARROW`.
    """
    runs = read_runs() if runs is None else runs
    least, most = (one([run.parameters for run in runs]) for one in (min, max))
    sizes = f"{least / MILLION:.2g} to {most / MILLION:.2g} million parameters"
    if not least / WITHIN <= parameters <= most * WITHIN:
        times = max(parameters / most, least / parameters)
        beside = "larger" if parameters > most else "smaller"
        told = f"{times / MILLION:.1f} million" if times >= MILLION else f"{float(f'{times:.2g}'):,.0f}"
        return [
            f"Loss by noise: not resolved. The law (heliograph accuracy law) rests on {sizes}; "
            f"{name} is {told} times {beside}."
        ]
    found = rises(runs)
    loudest = min(one.run.level for one in found)
    exact = fit_exact(runs)
    laws = [fit_with_band(found, form, exact) for form in Form]
    lines = []
    for system, decibels in snr_db.items():
        if decibels < loudest:
            lines.append(f"{system} not resolved ({decibels:.1f} dB, louder than any training)")
            continue
        bands = [law.rise(ratio_from_db(-decibels), parameters) for law in laws]
        low, high = min(band.low for band in bands), max(band.high for band in bands)
        if high > NARROW * low:
            lines.append(f"{system} not resolved")
        else:
            lines.append(f"{system} {low:.2g} to {high:.2g}")
    return [
        f"Loss by noise, nats a prediction at {COMPUTE_OPTIMAL:g} tokens a parameter, by the law of "
        f"{sizes} (heliograph accuracy law): {'; '.join(lines)}."
    ]
