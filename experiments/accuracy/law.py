"""Law of loss over size, tokens and noise: the sweep of trainings, the fit, and where it fails."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.study import Block, Progress, Result, Row, Study, option, refuse_unused
from heliograph.accuracy.law import (
    COMPUTE_OPTIMAL,
    MILLION,
    NOTHING_DB,
    RUNS,
    Band,
    FittedLaw,
    Form,
    Kind,
    Passes,
    Rise,
    Run,
    Schedule,
    Where,
    fit_exact,
    fit_with_band,
    read_runs,
    rises,
)
from heliograph.figures import PALETTE, REFERENCE, new_figure, plain_ticks
from heliograph.processes import run_all
from heliograph.records import write_atomically
from heliograph.report import ReportRow, ReportTable
from simulator.errors import ParameterError
from simulator.operators import Phase
from simulator.units import db_from_ratio, ratio_from_db

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from simulator.interfaces import Numerics
    from workloads.training.gpt import GptConfig, Products

LAYERS, CONTEXT = 2, 64
"""Layers and positions of all models of the sweep, whose sizes differ in width alone."""
WIDTHS = (24, 40, 64, 96)
"""Widths of the sweep; choices, as are the next three."""
RATIOS = (5.0, 10.0, 20.0)
"""Tokens per parameter at which the loss of a run is measured."""
LEVELS_DB = (6.0, 12.0, 18.0, 24.0)
"""Signal to noise of white noise, dB."""
BITS = (4.0, 6.0)
"""Bits to which operands are rounded."""
GRADIENT_LEVELS_DB = (0.0, 6.0)
"""Signal to noise of noise on gradients alone, dB; quieter noise there is lost in the scatter of seeds."""
SMALL = 2
"""Number of sizes, from the smallest, that are also run with rounding and noisy gradients; a choice."""


@dataclass(frozen=True, kw_only=True)
class LawJob:
    """One training of the sweep."""

    width: int
    """Width of the model."""
    kind: Kind = Kind.EXACT
    """Kind of error of the products."""
    level: float = 0.0
    """Signal to noise of white noise, dB; bits of rounding; 0 for other kinds."""
    products: Where = Where.ALL
    """Products with errors."""
    passes: Passes = Passes.ALL
    """Passes whose products have errors."""
    seed: int = 0
    """Seed of weights, batches and draws."""
    ratios: tuple[float, ...] = RATIOS
    """Tokens per parameter at which the loss is measured."""

    @property
    def training(self) -> tuple[Any, ...]:
        """Key that all points of one training share, as `Run.training`."""
        return (self.width, self.kind, self.level, self.products, self.passes, self.seed)

    @property
    def shape(self) -> GptConfig:
        """Shape of the model."""
        from workloads.training.gpt import GptConfig  # noqa: PLC0415 - torch, only to execute

        return GptConfig(layers=LAYERS, width=self.width, heads=max(2, self.width // 32), context=CONTEXT)


def sweep_jobs(
    widths: Sequence[int], levels_db: Sequence[float], ratios: tuple[float, ...], seeds: int
) -> list[LawJob]:
    """Return the trainings of a sweep: small models first, exact ones before those compared with them."""
    found = []
    for place, width in enumerate(sorted(widths)):
        for seed in range(seeds):
            kinds = [(Kind.EXACT, 0.0, Where.ALL)]
            kinds += [(Kind.WHITE, level, where) for where in Where for level in levels_db]
            if place < SMALL:
                kinds += [
                    (kind, bits, Where.ALL) for bits in BITS for kind in (Kind.NEAREST, Kind.STOCHASTIC)
                ]
            kinds += [(Kind.FP8, 0.0, Where.BLOCKS), (Kind.NVFP4, 0.0, Where.BLOCKS)]
            jobs = [
                LawJob(width=width, kind=kind, level=level, products=where, seed=seed, ratios=ratios)
                for kind, level, where in kinds
            ]
            if place < SMALL:
                jobs.append(replace(jobs[0], kind=Kind.WHITE, level=NOTHING_DB))
                jobs += [
                    replace(jobs[0], kind=Kind.WHITE, level=level, passes=passes)
                    for level in GRADIENT_LEVELS_DB
                    for passes in (Passes.GRAD_INPUT, Passes.GRAD_WEIGHT)
                ]
            found += jobs
    return found


@dataclass(frozen=True)
class RoundedNumerics:
    """Exact products of operands rounded to whole codes, one full scale per row of A and column of B."""

    bits: float
    """Bits of an operand, its sign included."""
    stochastic: bool
    """Whether rounding is stochastic."""

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N]."""
        import torch  # noqa: PLC0415 - only to execute

        generator = torch.Generator("cpu").manual_seed(key % 2**63)

        def rounded(x: torch.Tensor, dim: int) -> torch.Tensor:
            step = x.abs().amax(dim, keepdim=True).clamp_(min=1e-30) / (2.0 ** (self.bits - 1.0) - 1.0)
            codes = x / step
            if self.stochastic:
                return codes.add_(torch.rand(codes.shape, generator=generator)).floor_() * step
            return codes.round_() * step

        with torch.no_grad():
            return torch.bmm(rounded(a_BMK, 2), rounded(b_BKN, 1))


def products_of(job: LawJob) -> Products:
    """Return the arithmetic that executes the products of a run, forward and backward."""
    from electronic.numerics import float8_passes, nvfp4_passes  # noqa: PLC0415 - torch
    from workloads.training.gpt import Products  # noqa: PLC0415 - torch
    from workloads.training.probes import EXACT_PRODUCTS, PooledNoise  # noqa: PLC0415 - torch

    exact = EXACT_PRODUCTS.forward
    phases: tuple[Numerics, Numerics, Numerics]
    match job.kind:
        case Kind.EXACT:
            phases = (exact,) * 3
        case Kind.WHITE:
            phases = (PooledNoise(nsr=ratio_from_db(-job.level), seed=job.seed),) * 3
        case Kind.NEAREST | Kind.STOCHASTIC:
            phases = (RoundedNumerics(job.level, job.kind is Kind.STOCHASTIC),) * 3
        case Kind.FP8:
            phases = float8_passes()
        case Kind.NVFP4:
            phases = nvfp4_passes()
    digital = ("scores", "values", "head") if job.products is Where.BLOCKS else ()
    own = (Passes.FORWARD, Passes.GRAD_INPUT, Passes.GRAD_WEIGHT)
    forward, grad_input, grad_weight = (
        one if job.passes in {Passes.ALL, passes} else exact for one, passes in zip(phases, own, strict=True)
    )
    return Products(
        forward=forward,
        grad_input=grad_input,
        grad_weight=grad_weight,
        exceptions=dict.fromkeys(digital, EXACT_PRODUCTS),
    )


def run_job(job: LawJob) -> list[Run]:
    """Train one run and return its losses, one for each number of tokens and schedule."""
    import torch  # noqa: PLC0415 - only to execute

    from workloads.training.gpt import python_source  # noqa: PLC0415 - torch
    from workloads.training.pretraining import (  # noqa: PLC0415 - torch
        LawTraining,
        parameters_in_products,
        train_points,
    )

    torch.set_num_threads(1)
    recipe = LawTraining(tokens_per_parameter=job.ratios, seed=job.seed)
    return [
        Run(
            width=job.width,
            parameters=parameters_in_products(job.shape),
            kind=job.kind,
            level=job.level,
            products=job.products,
            passes=job.passes,
            seed=job.seed,
            tokens=point.tokens,
            tokens_per_parameter=point.tokens_per_parameter,
            schedule=Schedule.DECAYED if point.decayed else Schedule.CONSTANT,
            loss=point.loss,
            exact_loss=point.exact_loss,
        )
        for point in train_points(recipe, job.shape, products_of(job), python_source())
    ]


def train_sweep(jobs: Sequence[LawJob], path: Path, progress: Progress) -> tuple[Run, ...]:
    """Run the trainings of a sweep that a table of runs lacks; each is added to the table when it ends."""
    runs = list(read_runs(path)) if path.exists() else []
    done = {run.training for run in runs}
    missing = [job for job in jobs if job.training not in done]
    finished = len(jobs) - len(missing)

    def keep(_: LawJob, found: list[Run]) -> None:
        nonlocal finished
        runs.extend(found)
        write_atomically(path, runs_text(runs))
        finished += 1
        progress("trainings of the law", finished, len(jobs))

    run_all(missing, run_job, keep)
    return tuple(runs)


def runs_text(runs: Iterable[Run]) -> str:
    """Return runs as the table that `read_runs` reads."""
    text = io.StringIO()
    rows = [{name: str(value) for name, value in asdict(run).items()} for run in runs]
    writer = csv.DictWriter(text, list(Run.__dataclass_fields__), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


TOLERATED_NATS = 0.01
"""Rise at which noise counts as tolerated, nats per prediction; a choice."""
MLPERF = Path(__file__).parents[1] / "validation" / "reference" / "mlperf_formats.csv"
"""Extra samples that number formats took in MLPerf Training."""
CARRIED_TO: Mapping[str, float] = MappingProxyType({"8B": 8.03e9, "405B": 4.05e11})
"""Parameters of the models that the law is extrapolated to, by name."""
WIDEST_BAND = 10.0
"""Largest width of a band, relative to its middle, for which tables show numbers; a choice."""
BIT_DB = 2.0 * db_from_ratio(2.0)
"""Decibels per bit."""
_FORMAT_LENGTH = 4096
"""Length of the sums for the noise of a number format, that of the 8B model; a choice."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Series of rises of the loss, each fitted by a law of its own."""

    products: Where
    """Products with noise."""
    exactly_judged: bool = False
    """Whether the loss is measured with exact products."""

    @property
    def name(self) -> str:
        """Short name."""
        return f"{self.products}{', judged exactly' if self.exactly_judged else ''}"


SERIES = (
    Series(products=Where.ALL),
    Series(products=Where.ALL, exactly_judged=True),
    Series(products=Where.BLOCKS),
)
"""Series that laws are fitted to; the first is for systems with all products in light."""


@dataclass(frozen=True, kw_only=True)
class HeldOutFit:
    """Law fitted to a part of the rises of a series, to be checked on the held-out rest."""

    series: Series
    """The series."""
    fitted: FittedLaw
    """The law with its band."""
    rises: tuple[Rise, ...]
    """All rises of the series."""
    fitted_to: frozenset[Rise]
    """Rises that the law was fitted to."""
    width: int
    """Largest width of the fit; larger widths are held out."""
    level: float
    """Signal to noise of the loudest noise, which is held out, dB."""

    @property
    def form(self) -> Form:
        """Form of the law."""
        return self.fitted.law.form

    @property
    def fitted_parameters(self) -> int:
        """Parameters of the largest model of the fit."""
        return max(one.run.parameters for one in self.fitted_to)

    @property
    def error_larger(self) -> float:
        """Mean error over all held-out sizes as a share of their mean rise."""
        return self.error(itertools.chain(*self.larger().values()))

    def predicted(self, rise: Rise) -> float:
        """Return the rise that the law predicts, nats per byte."""
        run = rise.run
        return self.fitted.law.rise(rise.nsr, run.parameters, run.tokens / run.parameters, run.schedule)

    def error(self, some: Iterable[Rise]) -> float:
        """Return the mean error as a share of the mean rise; NaN without rises.

        Sums are rounded once, so that the order of the rises, which a set has at random, changes no digit.
        """
        some = tuple(some)
        if not some:
            return math.nan
        errors = math.fsum(abs(self.predicted(one) - one.nats) for one in some)
        return errors / math.fsum(one.nats for one in some)

    @property
    def light_exponent(self) -> Band:
        """Exponent of the width in the light per multiplication at equal rise, over the trained sizes.

        Notes
        -----
        The light of a sum is proportional to the signal over noise, that of a multiplication also to one over
        the width; parameters are proportional to the width squared. If all widths tolerate equal noise, the
        exponent is -1 (Anderson et al., arXiv:2302.10360).
        """
        small, large = (one(rise.run.parameters for rise in self.rises) for one in (min, max))
        per_db = 2.0 / db_from_ratio(large / small)
        middle, *draws = [
            per_db * (law.needed_db(TOLERATED_NATS, large) - law.needed_db(TOLERATED_NATS, small)) - 1.0
            for law in (self.fitted.law, *self.fitted.draws)
        ]
        return Band.of(middle, draws)

    def larger(self) -> dict[int, tuple[Rise, ...]]:
        """Return the rises of each held-out size by parameters, without those of the loudest noise."""
        found: dict[int, tuple[Rise, ...]] = {}
        for rise in sorted(self.rises, key=lambda rise: rise.run.parameters):
            if rise.run.width > self.width and rise.run.level > self.level:
                found[rise.run.parameters] = (*found.get(rise.run.parameters, ()), rise)
        return found

    @property
    def loudest(self) -> tuple[Rise, ...]:
        """Rises of the held-out noise at the sizes of the fit."""
        return tuple(one for one in self.rises if one.run.width <= self.width and one.run.level == self.level)

    def row(self) -> Row:
        """Return coefficients and errors as a row."""
        strength, noise, constant, *exponents = self.fitted.law.coefficients
        size, data = exponents or (math.nan, math.nan)
        return (
            {
                "products": str(self.series.products),
                "exactly_judged": self.series.exactly_judged,
                "form": str(self.form),
                "strength": math.exp(strength),
                "noise_exponent": noise,
                "size_exponent": size,
                "tokens_per_parameter_exponent": data,
                "constant_rate_factor": math.exp(constant),
                "rises_fitted": len(self.fitted_to),
                "error_fitted": self.error(self.fitted_to),
                "error_largest_size": self.error_larger,
                "error_loudest_noise": self.error(self.loudest),
            }
            | {
                f"needed_db_{name}_{end}": getattr(self.fitted.needed_db(TOLERATED_NATS, parameters), end)
                for name, parameters in CARRIED_TO.items()
                for end in ("low", "middle", "high")
            }
            | {
                f"light_exponent_{end}": getattr(self.light_exponent, end)
                for end in ("low", "middle", "high")
            }
        )


def held_law(runs: Sequence[Run], series: Series, form: Form, *, width: int | None = None) -> HeldOutFit:
    """Return a law fitted to a series up to a width, without its loudest noise.

    Parameters
    ----------
    runs : sequence of Run
        Trainings.
    series : Series
        Series of rises.
    form : Form
        Form of the law.
    width : int, optional
        Largest width that is fitted; by default all but the largest trained.
    """
    found = rises(runs, Kind.WHITE, series.products, exactly_judged=series.exactly_judged)
    widths = sorted({run.width for run in runs})
    if not found or len(widths) < 4:
        msg = (
            f"the table has {len(widths)} widths and {len(found)} runs with white noise on {series.products} "
            "products beside an exact twin; a law takes 3 widths and one to hold out"
        )
        raise ParameterError(msg)
    width, loudest = width or widths[-2], min(one.run.level for one in found)
    chosen = [one for one in found if one.run.width <= width and one.run.level > loudest]
    exact = fit_exact([run for run in runs if run.width <= width])
    return HeldOutFit(
        series=series,
        fitted=fit_with_band(chosen, form, exact),
        rises=found,
        fitted_to=frozenset(chosen),
        width=width,
        level=loudest,
    )


def seed_scatter(found: Iterable[Rise]) -> float:
    """Return the pooled standard deviation over seeds of the logarithm of a rise; NaN with one seed each."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for rise in found:
        run = rise.run
        place = (run.width, run.level, run.tokens_per_parameter, run.schedule)
        groups.setdefault(place, []).append(math.log(rise.nats))
    several = [some for some in groups.values() if len(some) > 1]
    if not several:
        return math.nan
    squares = math.fsum(float(np.var(some)) * len(some) for some in several)
    return math.sqrt(squares / sum(len(some) - 1 for some in several))


@dataclass(frozen=True, kw_only=True)
class FormatCheck:
    """Extra samples of a number format, measured in MLPerf and predicted."""

    model: str
    """Model that was trained."""
    format: str
    """Number format of products of blocks with weights."""
    measured: float
    """Extra samples, as a share."""
    error: float
    """Standard error of the measurement."""
    snr_db: float
    """Signal to noise of the format on Gaussian operands, over the three products of a weight, dB."""
    predicted: Mapping[Form, Band]
    """Extra samples by each form, as a share."""

    def contains(self, form: Form) -> bool:
        """Return whether the band of a form meets that of the measurement, two standard errors."""
        band = self.predicted[form]
        return band.low <= self.measured + 2 * self.error and band.high >= self.measured - 2 * self.error


def format_checks(laws: Sequence[HeldOutFit]) -> list[FormatCheck]:
    """Return the extra samples of MLPerf's number formats, measured and predicted by laws.

    Notes
    -----
    A format counts as white noise of the power that it has on Gaussian operands, averaged over the three
    products of a weight. The law counts nats per byte; the measured slope, which turns a rise into samples,
    is in nats per token, so that the bytes of a token convert one to the other.
    """
    from electronic.formats import format_named  # noqa: PLC0415 - only here
    from simulator.operands.statistics import OperandKind, average, operands_of  # noqa: PLC0415 - only here

    operands = operands_of(OperandKind.GAUSSIAN)
    found = []
    with MLPERF.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            form = format_named(row["format"])
            phases = (Phase.FORWARD, Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)
            precision = average((1.0, form.predicted(operands, _FORMAT_LENGTH, phase=one)) for one in phases)
            parameters = float(row["parameters"])
            of_token = float(row["bytes_per_token"])
            ratio = float(row["tokens"]) * of_token / parameters
            samples = of_token / float(row["nats_per_extra_sample_share"])
            bands = {
                law.form: law.fitted.rise(precision.total, parameters, ratio).scaled(samples) for law in laws
            }
            found.append(
                FormatCheck(
                    model=row["model"],
                    format=row["format"],
                    measured=float(row["extra_samples"]),
                    error=float(row["standard_error"]),
                    snr_db=precision.snr_db,
                    predicted=bands,
                )
            )
    return found


@dataclass(frozen=True, kw_only=True)
class LawFound(Result):
    """Fitted laws, their errors on held-out rises, and their predictions for larger models."""

    runs: tuple[Run, ...]
    """Trainings of the fits."""
    laws: tuple[HeldOutFit, ...]
    """Fits by series and form."""
    shorter: tuple[HeldOutFit, ...] = ()
    """Fits of the first series to its two smallest sizes, its three smallest, and so on, by form."""

    @property
    def checks(self) -> list[FormatCheck]:
        """Measured and predicted extra samples of MLPerf's number formats."""
        return format_checks([law for law in self.laws if law.series.products is Where.BLOCKS])

    def report(self) -> list[Block]:
        """Return coefficients, errors on held-out rises, and predictions."""
        sizes = sorted({run.parameters for run in self.runs})
        trainings = len({run.training for run in self.runs})
        loudest = min(one.run.level for one in self.laws[0].rises)
        blocks: list[Block] = [
            f"{trainings} trainings of {sizes[0] / 1e6:.2g} to {sizes[-1] / 1e6:.2g} million parameters; "
            f"held out: {sizes[-1] / 1e6:.2g} million, and {loudest:g} dB."
        ]
        scatter = seed_scatter(one for one in self.laws[0].rises if one.nats > 0.0)
        if math.isfinite(scatter):
            blocks.append(f"Another seed moves a rise by {scatter:.0%}, one standard deviation.")
        blocks += [_coefficients(self.laws), _by_size(self.shorter), _held_size(self.laws)]
        blocks.append(_carried(self.laws))
        checks = self.checks
        if checks:
            blocks.append(_formats(checks))
        return [*blocks, *_kinds(self.runs)]

    def record(self) -> dict[str, Any]:
        """Return fits, formats and kinds as plain data."""
        return {"laws": [law.row() for law in self.laws], "formats": self.format_rows()}

    def rows(self) -> list[Row]:
        """Return a row for each law."""
        return [law.row() for law in self.laws]

    def format_rows(self) -> list[Row]:
        """Return a row for each number format of MLPerf and form."""
        return [
            {
                "model": one.model,
                "format": one.format,
                "snr_db": one.snr_db,
                "measured": one.measured,
                "measured_error": one.error,
                "form": str(form),
                "predicted": band.middle,
                "predicted_low": band.low,
                "predicted_high": band.high,
                "contained": one.contains(form),
            }
            for one in self.checks
            for form, band in one.predicted.items()
        ]

    def tables(self) -> dict[str, list[Row]]:
        """Return laws, number formats, errors by size, and all rises with their predictions."""
        predictions = [
            {
                "products": str(law.series.products),
                "exactly_judged": law.series.exactly_judged,
                "form": str(law.form),
                **{
                    name: str(getattr(one.run, name))
                    for name in ("width", "parameters", "tokens", "level", "seed", "schedule")
                },
                "rise_nats": one.nats,
                "predicted_nats": law.predicted(one),
                "fitted": one in law.fitted_to,
            }
            for law in self.laws
            for one in law.rises
        ]
        by_size = [
            {
                "form": str(law.form),
                "fitted_up_to_parameters": law.fitted_parameters,
                "parameters": size,
                "error": law.error(some),
            }
            for law in self.shorter
            for size, some in law.larger().items()
        ]
        return {"": self.rows(), "formats": self.format_rows(), "by_size": by_size, "rises": predictions}

    def figure(self) -> Figure:
        """Return rises over size by noise with both forms of the law, and needed signal to noise."""
        figure = new_figure(3.8)
        left, right = figure.subplots(1, 2)
        _draw_rises(left, [law for law in self.laws if law.series == SERIES[0]])
        _draw_needed(right, self)
        return figure


def _share(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.0%}"


def _coefficients(laws: Sequence[HeldOutFit]) -> ReportTable:
    """Return exponents and errors of each law."""
    heads = ["noise^p", "size^g", "(D/N)^h", "error, fitted", "largest size", "loudest noise"]
    rows = []
    for law in laws:
        _, noise, _, *exponents = law.fitted.law.coefficients
        size, data = (f"{one:+.2f}" for one in exponents) if exponents else ("", "")
        errors = (law.error(law.fitted_to), law.error_larger, law.error(law.loudest))
        values = (f"{noise:.2f}", size, data, *map(_share, errors))
        rows.append(ReportRow(f"{law.series.name}: {law.form}", values, ""))
    return ReportTable("Laws, and their mean errors as shares of the rise", heads, rows)


def _by_size(laws: Sequence[HeldOutFit]) -> ReportTable:
    """Return the errors of laws fitted up to each size, at every larger size."""
    sizes = sorted({size for law in laws for size in law.larger()})
    rows = []
    for law in laws:
        larger = law.larger()
        values = tuple(_share(law.error(larger[size])) if size in larger else "" for size in sizes)
        rows.append(ReportRow(f"fitted up to {law.fitted_parameters / 1e6:.2g}: {law.form}", values, ""))
    title = f"Mean errors at larger sizes, millions of parameters, {SERIES[0].name} products"
    return ReportTable(title, [f"{size / 1e6:.2g}" for size in sizes], rows)


def _held_size(laws: Sequence[HeldOutFit]) -> ReportTable:
    """Return rises at the held-out size by noise, measured and predicted by the laws of all products."""
    first = [law for law in laws if law.series == SERIES[0]]
    held_out = [one for some in first[0].larger().values() for one in some]
    rows = []
    for level in sorted({one.run.level for one in held_out}):
        some = [one for one in held_out if one.run.level == level]
        cells = [np.mean([one.nats for one in some])]
        cells += [np.mean([law.predicted(one) for one in some]) for law in first]
        rows.append(ReportRow(f"{level:g} dB", tuple(f"{one:.3f}" for one in cells), ""))
    title = f"Rise at the size held out, {SERIES[0].name} products, nats per byte: measured and foretold"
    return ReportTable(title, ["measured", *(str(law.form) for law in first)], rows)


def _ends(band: Band, digits: int = 0) -> str:
    if band.high - band.low > WIDEST_BAND * abs(band.middle):
        return "not resolved"
    return f"{band.middle:.{digits}f} ({band.low:.{digits}f} to {band.high:.{digits}f})"


def _carried(laws: Sequence[HeldOutFit]) -> ReportTable:
    """Return for each law the signal to noise that large models need, its bits, and the exponent of light."""
    rows = []
    for law in laws:
        needed = [law.fitted.needed_db(TOLERATED_NATS, one) for one in CARRIED_TO.values()]
        bits, light = (_ends(one, digits=1) for one in (needed[-1].scaled(1.0 / BIT_DB), law.light_exponent))
        values = (*map(_ends, needed), bits, light)
        rows.append(ReportRow(f"{law.series.name}: {law.form}", values, ""))
    rise = f"dB for a rise of {TOLERATED_NATS:g} nats"
    title = f"{rise} at {COMPUTE_OPTIMAL:g} tokens a parameter: an extrapolation"
    heads = [*CARRIED_TO, f"bits, {list(CARRIED_TO)[-1]}", "light a MAC, width^"]
    return ReportTable(title, heads, rows)


def _formats(checks: Sequence[FormatCheck]) -> ReportTable:
    """Return extra samples of number formats, measured and predicted."""
    forms = list(checks[0].predicted)
    rows = []
    for check in checks:
        cells = [f"{check.measured:.1%} \u00b1 {check.error:.1%}"]
        for form in forms:
            band = check.predicted[form]
            cells.append(
                f"{_percent(band.low)} to {_percent(band.high)}{'' if check.contains(form) else ': missed'}"
            )
        rows.append(ReportRow(f"{check.model} {check.format}", tuple(cells), f"{check.snr_db:.1f} dB"))
    return ReportTable("Extra samples of MLPerf's formats", ["measured", *map(str, forms)], rows)


def _percent(share: float) -> str:
    return f"{share:.2g} times" if share > 1.0 else f"{100 * share:.2g} %"


def _kinds(runs: Sequence[Run]) -> list[Block]:
    """Return the rises of errors other than white noise in all passes, by seed, at the most tokens."""
    rows = []
    for kind, where, passes in sorted({(run.kind, run.products, run.passes) for run in runs}):
        if kind is Kind.EXACT or (kind is Kind.WHITE and passes is Passes.ALL):
            continue
        found = [
            one for one in rises(runs, kind, where, passes=passes) if one.run.schedule is Schedule.DECAYED
        ]
        for width, level in sorted({(one.run.width, one.run.level) for one in found}):
            some = [one for one in found if (one.run.width, one.run.level) == (width, level)]
            most = max(one.run.tokens for one in some)
            nats = [one.nats for one in some if one.run.tokens == most]
            rows.append(
                ReportRow(
                    f"{_kind_named(kind, level, passes)} on {where}, width {width}",
                    (f"{np.mean(nats):+.3f}", ", ".join(f"{one:+.3f}" for one in nats)),
                    "",
                )
            )
    title = "Rise by other kinds of error, nats per byte"
    return [ReportTable(title, ["mean", "each seed"], rows)] if rows else []


def _kind_named(kind: Kind, level: float, passes: Passes) -> str:
    if kind is Kind.WHITE:
        return f"{level:g} dB in {passes} alone"
    return f"{kind}, {level:g} bits" if level else str(kind)


_DRAWN_RATIO = 5.0
"""Tokens per parameter of the drawn rises, which all sizes have; a choice."""


def _draw_rises(axes: Axes, laws: Sequence[HeldOutFit]) -> None:
    rises_of: dict[float, dict[int, list[float]]] = {}
    for rise in laws[0].rises:
        run = rise.run
        if (run.schedule, run.tokens_per_parameter) == (Schedule.DECAYED, _DRAWN_RATIO):
            rises_of.setdefault(run.level, {}).setdefault(run.parameters, []).append(rise.nats)
    sizes = sorted({size for some in rises_of.values() for size in some})
    levels = sorted(level for level, some in rises_of.items() if sizes[-1] in some)
    grid = np.geomspace(sizes[0], sizes[-1], 40)
    axes.set(xscale="log", yscale="log", xlabel="parameters (million)", ylabel="rise of the loss (nats/byte)")
    for level, colour in zip(levels, PALETTE, strict=False):
        positive = [(size, nats) for size, nats in sorted(rises_of[level].items()) if np.mean(nats) > 0.0]
        means = [float(np.mean(nats)) for _, nats in positive]
        below = len(rises_of[level]) - len(positive)
        axes.errorbar(
            [size / MILLION for size, _ in positive],
            means,
            yerr=[
                [mean - min(nats) for mean, (_, nats) in zip(means, positive, strict=True)],
                [max(nats) - mean for mean, (_, nats) in zip(means, positive, strict=True)],
            ],
            fmt="o-",
            color=colour,
            markersize=4.0,
            capsize=2.0,
            label=f"{level:g} dB{f' ({below} below 0)' if below else ''}",
        )
        for law, style in zip(laws, _STYLES, strict=True):
            nsr = ratio_from_db(-level)
            line = [law.fitted.law.rise(nsr, size, _DRAWN_RATIO) for size in grid]
            axes.plot(grid / MILLION, line, style, color=colour, linewidth=0.9)
    for law, style in zip(laws, _STYLES, strict=True):
        axes.plot([], [], style, color=REFERENCE, linewidth=0.9, label=str(law.form))
    ends = [sizes[-1] * factor / MILLION for factor in _HELD_MARK]
    axes.axvspan(*ends, color=REFERENCE, alpha=0.1, linewidth=0.0)
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis, "{:,g}".format, minor=False)
    axes.set_title(f"{_DRAWN_RATIO:g} tokens a parameter, bars: seeds; grey: held out", fontsize="medium")
    axes.legend(fontsize="x-small", ncols=2, loc="upper left")
    axes.set_ylim(top=_ROOM * axes.get_ylim()[1])


_STYLES = ("--", ":")
"""Line style of each form of the law."""
_HELD_MARK = (0.8, 1.25)
"""Ends of the grey mark on the held-out size, relative to that size; a choice."""
_ROOM = 1.8
"""Room for the legend above the largest rise, as a factor; a choice."""


def _draw_needed(axes: Axes, found: LawFound) -> None:
    from matplotlib.ticker import LogLocator  # noqa: PLC0415 - takes its time

    sizes = sorted({run.parameters for run in found.runs})
    grid = np.geomspace(sizes[0], max(CARRIED_TO.values()), 40)
    own = (law for law in found.laws if law.series == SERIES[0])
    axes.set(xscale="log", xlabel="parameters (million)", ylabel="signal to noise needed (dB)")
    for law, style, colour in zip(own, _STYLES, PALETTE[3:], strict=False):
        bands = [law.fitted.needed_db(TOLERATED_NATS, size) for size in grid]
        low, middle, high = zip(*((band.low, band.middle, band.high) for band in bands), strict=True)
        axes.plot(grid / MILLION, middle, style, color=colour, label=str(law.form))
        axes.fill_between(grid / MILLION, low, high, color=colour, alpha=0.15, linewidth=0.0)
    trained = (sizes[0] / MILLION, sizes[-1] / MILLION)
    axes.axvspan(*trained, color=REFERENCE, alpha=0.1, linewidth=0.0, label="sizes trained")
    for name, parameters in CARRIED_TO.items():
        axes.axvline(parameters / MILLION, color=REFERENCE, linewidth=0.6)
        axes.text(parameters / MILLION, 2.0, f"{name} ", ha="right", fontsize="x-small")
    axes.set_ylim(0.0, 80.0)
    axes.xaxis.set_major_locator(LogLocator(base=100.0))
    plain_ticks(axes.xaxis, "{:,g}".format, minor=False)
    axes.set_title(f"Needed for a rise of {TOLERATED_NATS:g} nats")
    axes.legend(fontsize="x-small", loc="upper center")


@dataclass(frozen=True, kw_only=True)
class FitLaw(Study):
    """Law of loss over size, tokens and noise, fitted on a table of trainings."""

    directory = "accuracy_law"

    runs: Path | None = option(None, "table of trainings; the one that ships", metavar="FILE")
    train: bool = option(False, "train what FILE lacks of the sweep first, and add it there")
    widths: tuple[int, ...] = option(WIDTHS, "widths of models to train", commas=True)
    levels: tuple[float, ...] = option(LEVELS_DB, "signal to noise of white noise, dB", commas=True)
    ratios: tuple[float, ...] = option(RATIOS, "tokens a parameter", commas=True)
    seeds: int = option(2, "trainings of each kind")

    def run(self, progress: Progress) -> LawFound:
        """Return the fitted laws, after the requested trainings."""
        if self.train and self.runs is None:
            msg = "--train writes a table of trainings: say where by --runs FILE"
            raise ParameterError(msg)
        if not self.train:
            why = "without --train --runs FILE nothing is trained"
            refuse_unused(self, ("widths", "levels", "ratios", "seeds"), why)
        if self.train and self.runs is not None:
            jobs = sweep_jobs(self.widths, self.levels, self.ratios, self.seeds)
            runs = train_sweep(jobs, self.runs, progress)
        else:
            runs = read_runs(self.runs or RUNS)
        laws = [held_law(runs, series, form) for series in SERIES for form in Form]
        widths = sorted({one.run.width for one in laws[0].rises})[2:-1]
        shorter = [held_law(runs, SERIES[0], form, width=width) for width in widths for form in Form]
        return LawFound(runs=runs, laws=tuple(laws), shorter=tuple(shorter))
