"""Law of the loss that noise of products costs, over size, tokens and noise, fitted on trainings that ship.

Two forms are fitted on the rise of the loss over exact arithmetic: an additive term, and effective parameters
(`Form`). The runs are those of ``heliograph accuracy law --train``; the fit takes milliseconds.
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
"""Trainings that ship, one row for each run, number of tokens and schedule."""
MILLION = 1e6
"""Parameters by which sizes are quoted."""
DECIBEL = 10.0
"""Decibels in a power ratio of ten."""
CONFIDENCE = 0.95
"""Confidence of bands."""
_ENDS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
"""Shares of draws below the ends of a band."""
COMPUTE_OPTIMAL = 20.0
"""Tokens a parameter of a compute-optimal run (Hoffmann et al., arXiv:2203.15556, table 3)."""
_DRAWS, _SEED = 400, 19
"""Draws of the bootstrap, and their seed; choices."""
_LEAST_RISE = 0.002
"""Rise in nats below which a logarithm says nothing. Chance is more (`chaos_nats`), but to leave out all that
it may have made would leave out the smaller half of some, which biases the fit."""
MOST_TIMES = 100.0
"""Tokens over those of exact arithmetic beyond which no run goes on; a choice."""
_TRIED, _SETTLED = 60, 1e-6
"""Numbers of tokens among which the first that does is sought, and how closely it is found."""
NOTHING_DB = 60.0
"""Signal to noise from which noise is none: what it does to a loss is chance."""
_EXPONENTS = np.linspace(0.05, 1.0, 20)
"""Exponents that the exact loss is tried with."""

Vector = NDArray[np.float64]


class Kind(StrEnum):
    """Error of products in a run."""

    EXACT = "exact"
    WHITE = "white"
    """Gaussian, a set share of each result's mean square."""
    NEAREST = "nearest"
    """Operands rounded to nearest, one scale per row and column."""
    STOCHASTIC = "stochastic"
    """The same, rounded stochastically."""
    FP8 = "fp8"
    """E4M3, gradients in E5M2, one scale per tensor."""
    NVFP4 = "nvfp4"
    """E2M1 in blocks of 16 with scales in E4M3, gradients rounded stochastically."""


class Where(StrEnum):
    """Products that err."""

    ALL = "all"
    BLOCKS = "blocks"
    """Those of blocks with weights, as in training in fp8 and nvfp4; attention and head are exact."""


class Passes(StrEnum):
    """Passes whose products err."""

    ALL = "all"
    FORWARD = "forward"
    """Gradients are exact."""
    GRAD_INPUT = "grad_input"
    """Gradients of activations alone, of both operands where neither is a weight."""
    GRAD_WEIGHT = "grad_weight"
    """Gradients of weights alone."""


class Schedule(StrEnum):
    """Course of the learning rate after its rise."""

    CONSTANT = "constant"
    DECAYED = "decayed"


class Form(StrEnum):
    """Form of the law; e is noise to signal, N parameters, D tokens, L the loss of exact arithmetic."""

    ADDITIVE = "additive term"
    """L(N, D) + c e^p N^g (D/N)^h."""
    EFFECTIVE = "effective parameters"
    """L(N / (1 + k e^p), D)."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Loss of one training at one number of tokens."""

    width: int
    """Width of the model."""
    parameters: int
    """Parameters in products."""
    kind: Kind
    """Error of its products."""
    level: float
    """Signal to noise in dB of white noise; bits of rounding; else 0."""
    products: Where
    """Products that err."""
    passes: Passes = Passes.ALL
    """Passes whose products err."""
    seed: int
    """Seed of weights, batches and draws."""
    tokens: int
    """Tokens read."""
    tokens_per_parameter: float
    """Those asked for, over parameters."""
    schedule: Schedule
    """Course of its rate."""
    loss: float
    """Validation loss through its own arithmetic, nats per byte."""
    exact_loss: float
    """Validation loss of its weights through exact products, nats per byte."""

    @property
    def training(self) -> tuple[Any, ...]:
        """What points of one training share."""
        return (self.width, self.kind, self.level, self.products, self.passes, self.seed)

    @property
    def pair(self) -> tuple[Any, ...]:
        """What it shares with its exact twin."""
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
    """Its loss minus that of its exact twin, nats per byte."""
    exactly_judged: bool = False
    """Whether its weights were judged through exact products."""

    @property
    def nsr(self) -> float:
        """Noise to signal of a run with white noise, dimensionless power ratio."""
        return ratio_from_db(-self.run.level)


def rises(
    runs: Iterable[Run],
    kind: Kind = Kind.WHITE,
    products: Where = Where.ALL,
    *,
    passes: Passes = Passes.ALL,
    exactly_judged: bool = False,
) -> tuple[Rise, ...]:
    """Return the rises of all runs of a kind that have an exact twin.

    Parameters
    ----------
    runs : iterable of Run
        Runs, exact ones among them.
    kind : Kind
        Error of products.
    products : Where
        Products that err.
    passes : Passes
        Passes whose products err.
    exactly_judged : bool
        Whether weights are judged through exact products; else through the arithmetic that trained them.
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
    """Return what noise of nothing does to a loss, root mean square over runs, nats per byte.

    Raises
    ------
    ParameterError
        If no run has noise of nothing beside an exact twin.
    """
    runs = tuple(runs)
    exact = {run.pair: run.loss for run in runs if run.kind is Kind.EXACT}
    found = [run.loss - exact[run.pair] for run in runs if run.level >= NOTHING_DB and run.pair in exact]
    if not found:
        msg = f"the table has no run with noise at {NOTHING_DB:g} dB, by which chance is told"
        raise ParameterError(msg)
    return math.sqrt(math.fsum(one**2 for one in found) / len(found))


@dataclass(frozen=True, kw_only=True)
class ExactLoss:
    """Loss of exact arithmetic, E + A/N^a + B/D^b, nats per byte."""

    floor: float
    """E."""
    size: float
    """A."""
    size_exponent: float
    """Exponent a."""
    data: float
    """B."""
    data_exponent: float
    """Exponent b."""

    def __call__(self, parameters: float, tokens: float) -> float:
        """Return the loss at a size and a number of tokens."""
        return self.floor + self.of_size(parameters) + self.data * tokens**-self.data_exponent

    def of_size(self, parameters: float) -> float:
        """Return the part that a finite size costs, nats per byte."""
        return float(self.size * parameters**-self.size_exponent)


def fit_exact(runs: Iterable[Run]) -> ExactLoss:
    """Return the loss of exact arithmetic, by least squares over all exact runs of decayed schedule.

    Raises
    ------
    ParameterError
        If there are fewer than five such runs, or fewer than three sizes, which three coefficients fit alike.
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
            found = nnls(columns / scale, loss)[0] / scale
            error = float(np.sum((columns @ found - loss) ** 2))
            if best is None or error < best[0]:
                names = ("floor", "size", "data", "size_exponent", "data_exponent")
                best = (error, ExactLoss(**dict(zip(names, map(float, (*found, a, b)), strict=True))))
    assert best is not None  # noqa: S101 - the grid is not empty
    return best[1]


@dataclass(frozen=True, kw_only=True)
class Law:
    """One form of the law with its coefficients."""

    form: Form
    """Form of it."""
    coefficients: tuple[float, ...]
    """Logarithm of its strength, exponent of noise to signal, logarithm of the factor of a constant rate; of
    the additive term also the exponents of size and of tokens a parameter."""
    exact: ExactLoss
    """Loss of exact arithmetic."""

    @property
    def noise_exponent(self) -> float:
        """Exponent of the noise-to-signal ratio; 1 where the rise is proportional to noise."""
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
            Noise to signal of products, dimensionless power ratio.
        parameters : float
            Parameters in products.
        ratio : float
            Tokens a parameter.
        schedule : Schedule
            Course of the learning rate.
        """
        if nsr == 0.0:
            return 0.0
        known = _features(self.form, nsr, parameters, ratio, schedule)
        return _risen(
            self.form,
            math.fsum(map(math.prod, zip(known, self.coefficients, strict=True))),
            self.exact,
            parameters,
        )

    def needed_db(self, nats: float, parameters: float, ratio: float = COMPUTE_OPTIMAL) -> float:
        """Return the signal to noise, dB, at which the loss rises by so many nats, with a decayed rate."""
        fixed = _features(self.form, 1.0, parameters, ratio, Schedule.DECAYED)
        strength = math.fsum(map(math.prod, zip(fixed, self.coefficients, strict=True)))
        logarithm = (_strength(self.form, nats, self.exact, parameters) - strength) / self.noise_exponent
        return -DECIBEL * logarithm / math.log(10.0)

    def more_tokens(self, nsr: float, parameters: float, ratio: float = COMPUTE_OPTIMAL) -> float:
        """Return how many times the tokens a run with noise takes to the loss of the exact run.

        Parameters
        ----------
        nsr : float
            Noise to signal of products, dimensionless power ratio.
        parameters : float
            Parameters in products.
        ratio : float
            Tokens a parameter of the exact run.

        Returns
        -------
        float
            At least 1; infinite where `MOST_TIMES` do not do, as where a law has the noise cost more with
            every token than it teaches.
        """
        tokens, b = ratio * parameters, self.exact.data_exponent

        def short(times: float) -> float:
            """Return the loss minus that of the exact run."""
            learnt = self.exact.data * tokens**-b * (1.0 - times**-b)
            return self.rise(nsr, parameters, ratio * times) - learnt

        tried = np.geomspace(1.0, MOST_TIMES, _TRIED).tolist()
        for low, high in itertools.pairwise(tried):
            if short(high) <= 0.0:
                return _first(short, low, high)
        return math.inf


def _first(short: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function falls to zero between two factors."""
    while high / low > 1.0 + _SETTLED:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if short(middle) <= 0.0 else (middle, high)
    return high


def _features(
    form: Form, nsr: float, parameters: float, ratio: float, schedule: Schedule
) -> tuple[float, ...]:
    """Return what the coefficients of a form multiply."""
    known = (1.0, math.log(nsr), float(schedule is Schedule.CONSTANT))
    return (*known, math.log(parameters), math.log(ratio)) if form is Form.ADDITIVE else known


def _strength(form: Form, nats: float, exact: ExactLoss, parameters: float) -> float:
    """Return the logarithm that is linear in the coefficients of a form, of a rise above zero."""
    if form is Form.ADDITIVE:
        return math.log(nats)
    share = nats / exact.of_size(parameters)
    return math.log(math.expm1(math.log1p(share) / exact.size_exponent))


def _risen(form: Form, strength: float, exact: ExactLoss, parameters: float) -> float:
    """Return the rise of such a logarithm, the inverse of `_strength`."""
    if form is Form.ADDITIVE:
        return math.exp(strength)
    lost = float(np.logaddexp(0.0, strength))
    return exact.of_size(parameters) * math.expm1(exact.size_exponent * lost)


def fit(found: Sequence[Rise], form: Form, exact: ExactLoss) -> Law:
    """Return a form of the law fitted to rises, by least squares of logarithms.

    Parameters
    ----------
    found : sequence of Rise
        Rises of white noise; those below `_LEAST_RISE` are left out, as chance decides them.
    form : Form
        Form of it.
    exact : ExactLoss
        Loss of exact arithmetic.

    Raises
    ------
    ParameterError
        If fewer rises than coefficients are left.
    """
    columns, target = _system(found, form, exact)
    return _solved(columns, target, form, exact)


def _system(found: Sequence[Rise], form: Form, exact: ExactLoss) -> tuple[Vector, Vector]:
    """Return the linear system of a form: a row for each rise."""
    told = [one for one in found if one.nats > _LEAST_RISE]
    rows = [
        _features(form, one.nsr, one.run.parameters, one.run.tokens / one.run.parameters, one.run.schedule)
        for one in told
    ]
    target = [_strength(form, one.nats, exact, one.run.parameters) for one in told]
    return np.array(rows, dtype=float), np.array(target)


def _solved(columns: Vector, target: Vector, form: Form, exact: ExactLoss) -> Law:
    if not len(target) or np.linalg.matrix_rank(columns) < columns.shape[1]:
        msg = (
            f"{len(target)} rises do not tell the coefficients of the law ({form}) apart; add sizes or levels"
        )
        raise ParameterError(msg)
    found = np.linalg.lstsq(columns, target, rcond=None)[0]
    return Law(form=form, coefficients=tuple(map(float, found)), exact=exact)


@dataclass(frozen=True, kw_only=True)
class Band:
    """A number with the ends of its band, of confidence `CONFIDENCE`."""

    low: float
    """Lower end."""
    middle: float
    """Number."""
    high: float
    """Upper end."""

    @classmethod
    def of(cls, middle: float, draws: Iterable[float]) -> Band:
        """Return a number with the band of its draws."""
        low, high = np.quantile(np.array(list(draws)), _ENDS)
        return cls(low=float(low), middle=middle, high=float(high))

    def scaled(self, factor: float) -> Band:
        """Return it times a factor above zero."""
        return Band(low=factor * self.low, middle=factor * self.middle, high=factor * self.high)


@dataclass(frozen=True, kw_only=True)
class FittedLaw:
    """A form of the law with the draws of its bootstrap."""

    law: Law
    """The fit."""
    draws: tuple[Law, ...]
    """Fits to trainings drawn with replacement."""

    def rise(self, nsr: float, parameters: float, ratio: float = COMPUTE_OPTIMAL) -> Band:
        """Return the rise of the loss with its band, nats per prediction."""
        return Band.of(
            self.law.rise(nsr, parameters, ratio), (one.rise(nsr, parameters, ratio) for one in self.draws)
        )

    def needed_db(self, nats: float, parameters: float, ratio: float = COMPUTE_OPTIMAL) -> Band:
        """Return the signal to noise, dB, at which the loss rises by so many nats, with its band."""
        middle, *draws = [one.needed_db(nats, parameters, ratio) for one in (self.law, *self.draws)]
        return Band.of(middle, draws)

    def more_tokens(self, nsr: float, parameters: float, ratio: float = COMPUTE_OPTIMAL) -> Band:
        """Return the times the tokens to the exact run's loss, with the band; its ends may be infinite."""
        middle, *draws = [one.more_tokens(nsr, parameters, ratio) for one in (self.law, *self.draws)]
        low, high = np.quantile(draws, _ENDS, method="higher")
        return Band(low=float(low), middle=middle, high=float(high))


def fit_with_band(found: Sequence[Rise], form: Form, exact: ExactLoss) -> FittedLaw:
    """Return a form fitted to rises, and to as many trainings drawn from theirs with replacement.

    Points of one training are drawn together, as they share weights. Draws that do not tell the coefficients
    apart are drawn again.
    """
    law = fit(found, form, exact)
    told = [one for one in found if one.nats > _LEAST_RISE]
    columns, target = _system(told, form, exact)
    names = sorted({one.run.training for one in told})
    groups = [np.array([one.run.training == name for one in told]).nonzero()[0] for name in names]
    generator = np.random.default_rng(_SEED)
    draws: list[Law] = []
    while len(draws) < _DRAWS:
        chosen = np.concatenate([groups[one] for one in generator.integers(len(groups), size=len(groups))])
        if np.linalg.matrix_rank(columns[chosen]) == columns.shape[1]:
            draws.append(_solved(columns[chosen], target[chosen], form, exact))
    return FittedLaw(law=law, draws=tuple(draws))


def gradient_price(passes: Passes, runs: Sequence[Run] | None = None) -> Band:
    """Return the rise of the loss by noise in gradients alone, nats per byte over noise to signal.

    Raises
    ------
    ParameterError
        If no training of the table errs in these alone.

    Notes
    -----
    Mean over trainings of the rise over noise to signal, decayed rate, at the most tokens. The band is
    Student's t of their scatter, which is no less than the chance of each (`chaos_nats`). Trainings differ in
    seed, size and level, so that it holds what is not proportional, too.
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
"""Times the largest size trained up to which a loss is told; a choice: a decade, as exponents are of one."""
NARROW = 10.0
"""Widest band that counts as resolved, its upper end over its lower; a choice."""


def told_rises(
    name: str, parameters: float, snr_db: Mapping[str, float], runs: Sequence[Run] | None = None
) -> list[str]:
    """Return sentences on the loss that systems cost a model by the law, or on why it is not told.

    Parameters
    ----------
    name : str
        Name of the model.
    parameters : float
        Its parameters.
    snr_db : mapping of str to float
        Signal to noise of all products, dB, by system.
    runs : sequence of Run, optional
        Trainings to fit; those that ship.

    Notes
    -----
    A number is told within `WITHIN` times the sizes and within the noise that was trained, where the bands of
    both forms together are narrower than `NARROW`.
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
