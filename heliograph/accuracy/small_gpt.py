"""A small GPT trained through each system's arithmetic, and the steps that it then takes to the same loss.

Runs are paired over seeds and trained in parallel processes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from heliograph.processes import Job, OnProgress, run_all, unheard
from heliograph.records import TrainingCache
from heliograph.systems.system import SYSTEMS, System
from heliograph.tables import UNRESOLVED
from optical.execution import AnalogSpec
from simulator.errors import ParameterError, nearest
from simulator.operators import Phase
from simulator.units import ratio_from_db
from workloads.models.architecture import Norm, Positions, TransformerConfig
from workloads.plan.parts import Precision

if TYPE_CHECKING:
    from simulator.interfaces import Numerics
    from workloads.training.gpt import GptConfig, Products, TrainingConfig


EXACT = "exact arithmetic"
"""Label of the reference: single precision, no noise."""
BFLOAT16 = "bf16"
"""Label of the GPU's numerics."""
FLOAT8 = "fp8, scale per tensor"
"""Label of fp8 with a scale per tensor, in blocks' products with weights, as in an fp8 plan."""
FLOAT8_ROWS = "fp8, scale per row"
"""Label of fp8 with a scale per row and column, in the same products."""

CHAOS_NATS = 0.0005
"""Standard deviation of the final loss of a seed due to negligible noise (`NOTHING`), nats per byte; measured
with the small GPT, see docs/accuracy.md. Used for runs that do not measure it themselves."""
CONFIDENCE = 0.95
"""Confidence at which a difference counts as resolved."""
INT8 = "int8, scale per row"
"""Label of 8-bit integers, in the same products."""
MXFP8 = "mxfp8"
"""Label of 8-bit floats with a scale per 32 elements, in the same products."""
NVFP4 = "nvfp4"
"""Label of 4-bit floats, in the same products; gradients are rounded stochastically."""
_KEPT_WIDE = ("scores", "values", "head")
"""Products that stay in bf16 where the others are in 8 or 4 bits."""


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of a mean; not a number for fewer than two values, or if one is none."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return math.nan
    return statistics.stdev(values) / math.sqrt(len(values))


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """Arithmetic of all products of one training run."""

    label: str
    """Name in tables and figures."""
    analog: Mapping[Phase, AnalogSpec] | None = None
    """Specification per phase, or None for electronic arithmetic named by `label`."""
    exact_products: tuple[str, ...] = ()
    """Products that stay electronic and exact, by the model's name for them."""
    passes: int = 1
    """Times that each product is executed; the mean of the results counts."""
    white_db: float | None = None
    """Signal to noise of white Gaussian noise on all exact products instead, dB, or None."""

    @property
    def identity(self) -> Any:  # noqa: ANN401 - what a cache hashes
        """Fields that identify a finished run in a cache."""
        numerics: Any = self.analog or self.label
        if self.exact_products or self.passes > 1 or self.white_db is not None:
            return [numerics, self.exact_products, self.passes, self.white_db]
        return numerics


NOTHING = Arithmetic(label="exact, 60 dB noise", white_db=60.0)
"""Negligible noise, which shows how far chance alone moves a run."""


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Validation losses of one arithmetic over seeds, against exact arithmetic with the same seeds."""

    label: str
    """Name of the arithmetic."""
    steps: tuple[int, ...]
    """Steps at which the validation loss was taken."""
    losses: tuple[tuple[float, ...], ...]
    """Validation loss, nats per byte, one curve per seed."""
    reference: tuple[float, ...]
    """Final validation loss of exact arithmetic, one per seed."""
    reference_losses: tuple[tuple[float, ...], ...] = ()
    """Validation loss of exact arithmetic at the same steps, one curve per seed."""
    exact_evaluation: tuple[float, ...] = ()
    """Final validation loss of the trained model with all products exact, one per seed."""
    before: tuple[float, ...] = ()
    """Rise of the loss due to the arithmetic before the training of `LEARNT`, one per seed; else empty."""

    @property
    def final(self) -> tuple[float, ...]:
        """Final validation loss of each seed."""
        return tuple(curve[-1] for curve in self.losses)

    @property
    def mean(self) -> float:
        """Mean final loss."""
        return statistics.fmean(self.final)

    @property
    def spread(self) -> float:
        """Standard deviation of the final loss over seeds; zero for one seed."""
        return statistics.stdev(self.final) if len(self.final) > 1 else 0.0

    @property
    def differences(self) -> tuple[float, ...]:
        """Final loss minus that of exact arithmetic, seed by seed."""
        return tuple(loss - exact for loss, exact in zip(self.final, self.reference, strict=True))

    @property
    def largest_difference(self) -> float:
        """Largest absolute difference of a seed; of `NOTHING`, the least difference that can be resolved."""
        return max(map(abs, self.differences))

    @property
    def difference_error(self) -> float:
        """Standard error of the mean difference; not a number for one seed."""
        return standard_error(self.differences)

    def resolved(self, floor: float) -> bool:
        """Return whether the mean difference is more than chance, above a floor in nats (`is_resolved`)."""
        return is_resolved(self.differences, floor)

    @property
    def exact_differences(self) -> tuple[float, ...]:
        """Final loss with all products exact minus that of exact training, seed by seed."""
        return tuple(loss - exact for loss, exact in zip(self.exact_evaluation, self.reference, strict=True))

    def record(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "numerics": self.label,
            "validation_loss": self.mean,
            "validation_loss_spread": self.spread,
            "validation_loss_by_seed": list(self.final),
            "loss_difference": statistics.fmean(self.differences),
            "loss_difference_standard_error": self.difference_error,
            "loss_difference_resolved": self.resolved(CHAOS_NATS),
            "seeds": len(self.final),
        }


def is_resolved(differences: Sequence[float], floor: float) -> bool:
    """Return whether the mean of paired differences is more than chance.

    Parameters
    ----------
    differences : sequence of float
        Differences of losses, one per seed, nats per byte.
    floor : float
        Largest difference due to negligible noise (`NOTHING`), nats per byte.

    Notes
    -----
    It must exceed the floor, and Student's t of the mean over seeds, two-sided, at `CONFIDENCE`.
    """
    from scipy.stats import t  # noqa: PLC0415 - takes its time

    if len(differences) < 2:
        return False
    bound = t.ppf((1.0 + CONFIDENCE) / 2.0, len(differences) - 1) * standard_error(differences)
    return bool(abs(statistics.fmean(differences)) > max(floor, bound))


def difference_text(differences: Sequence[float], floor: float) -> str:
    """Return the mean of paired differences with its standard error as text, or that it is not resolved."""
    if not is_resolved(differences, floor):
        return UNRESOLVED
    return f"{statistics.fmean(differences):+.4f} \u00b1 {standard_error(differences):.4f}"


@dataclass(frozen=True, kw_only=True)
class _Job:
    """One training; picklable, for any process."""

    arithmetic: Arithmetic
    seed: int
    quick: bool
    model: str
    steps: int | None


MODELS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "small": MappingProxyType({"layers": 2, "width": 384, "heads": 4}),
        "deep": MappingProxyType({"layers": 4, "width": 128, "heads": 4}),
        "tiny": MappingProxyType({"layers": 2, "width": 96, "heads": 4}),
        "narrow": MappingProxyType({"layers": 2, "width": 192, "heads": 4}),
        "wide": MappingProxyType({"layers": 2, "width": 768, "heads": 8}),
    }
)
"""Shapes of the byte-level GPT by name; ``small`` is the one that `heliograph compare` trains."""
LEARNT = "learnt"
"""Name of the model that ships with trained weights and is trained further."""
_FINE_TUNING: Mapping[str, Any] = MappingProxyType(
    {"steps": 40, "batch": 2, "learning_rate": 2e-4, "decay_share": 0.5, "validation_windows": 16}
)
"""Settings of its further training; choices."""


def system_arithmetic(system: System) -> Arithmetic:
    """Return the arithmetic of a system's products, labelled by its core or its GPU's format.

    A GPU in fp16 or fp32 is trained in bf16, which is no more precise.
    """
    analog = system.analog()
    if analog is None or system.photonic is None:
        narrow = {Precision.FP8: FLOAT8, Precision.MXFP8: MXFP8, Precision.INT8: INT8, Precision.NVFP4: NVFP4}
        return Arithmetic(label=narrow.get(system.precision or Precision.BF16, BFLOAT16))
    others = "" if system.name.partition("@")[0].partition(":")[0] in SYSTEMS else f" of {system.name}"
    return Arithmetic(label=f"{system.photonic.core.name}{others}", analog=analog)


def products_of(arithmetic: Arithmetic) -> Products:
    """Return the numerics of all products of an arithmetic, executed in torch."""
    from optical.execution.numerics import AnalogNumerics  # noqa: PLC0415 - torch, only to execute
    from workloads.training.gpt import Products  # noqa: PLC0415 - torch, only to execute
    from workloads.training.probes import EXACT_PRODUCTS, repeated  # noqa: PLC0415 - torch, only to execute

    analog, passes = arithmetic.analog, arithmetic.passes
    exceptions = dict.fromkeys(arithmetic.exact_products, EXACT_PRODUCTS)
    if analog is None:
        electronic = _electronic(arithmetic)
        return dataclasses.replace(electronic, exceptions={**electronic.exceptions, **exceptions})
    return Products(
        forward=repeated(AnalogNumerics(analog[Phase.FORWARD]), passes),
        grad_input=repeated(AnalogNumerics(analog[Phase.GRAD_INPUT]), passes),
        grad_weight=repeated(AnalogNumerics(analog[Phase.GRAD_WEIGHT]), passes),
        exceptions=exceptions,
    )


def _electronic(arithmetic: Arithmetic) -> Products:
    """Return products without light: exact, with white noise, or of a GPU's formats."""
    from electronic.numerics import (  # noqa: PLC0415 - torch, only to execute
        BfloatNumerics,
        Float8Scale,
        Int8Numerics,
        Mxfp8Numerics,
        float8_passes,
        nvfp4_passes,
    )
    from workloads.training.gpt import Products  # noqa: PLC0415 - torch, only to execute
    from workloads.training.probes import EXACT_PRODUCTS, GaussianProducts  # noqa: PLC0415 - torch, only to execute

    if arithmetic.white_db is not None:
        return Products.same(GaussianProducts(ratio_from_db(-arithmetic.white_db)))
    label = arithmetic.label
    if label == EXACT:
        return EXACT_PRODUCTS
    if label in {FLOAT8, FLOAT8_ROWS}:
        return _narrow(*float8_passes(Float8Scale.TENSOR if label == FLOAT8 else Float8Scale.ROW))
    if label in {INT8, MXFP8}:
        every: Numerics = Int8Numerics() if label == INT8 else Mxfp8Numerics()
        return _narrow(every, every, every)
    if label == NVFP4:
        return _narrow(*nvfp4_passes())
    return Products.same(BfloatNumerics())


def _narrow(forward: Numerics, grad_input: Numerics, grad_weight: Numerics) -> Products:
    """Return a GPU's products in few bits: blocks' products with weights; attention and head in bf16.

    These are the products whose operands `workloads.layers.parts` gives `Precision.linear_bytes` in a plan of
    that precision.
    """
    from electronic.numerics import BfloatNumerics  # noqa: PLC0415 - torch, only to execute
    from workloads.training.gpt import Products  # noqa: PLC0415 - torch, only to execute

    return Products(
        forward=forward,
        grad_input=grad_input,
        grad_weight=grad_weight,
        exceptions=dict.fromkeys(_KEPT_WIDE, Products.same(BfloatNumerics())),
    )


def check_model(model: str) -> None:
    """Raise an error unless a model is one of `MODELS`, or `LEARNT`."""
    if model not in (*MODELS, LEARNT):
        msg = f"no model '{model}' to train; {nearest(model, (*MODELS, LEARNT), noun='model')}"
        raise ParameterError(msg)


def shape_of(model: str) -> GptConfig:
    """Return the shape of a model of `MODELS`, or of `LEARNT`."""
    from workloads.training.gpt import GptConfig  # noqa: PLC0415 - torch, only to execute
    from workloads.training.pretraining import LEARNT as SHAPE  # noqa: PLC0415 - torch, only to execute

    return SHAPE if model == LEARNT else GptConfig(**MODELS[model])


def transformer_of(model: str) -> TransformerConfig:
    """Return a model of `MODELS`, or `LEARNT`, as workloads describe one, its MLPs of their mean width."""
    check_model(model)
    shape = shape_of(model)
    return TransformerConfig(
        name=model,
        layers=shape.layers,
        hidden=shape.width,
        heads=shape.heads,
        kv_heads=shape.heads,
        head_dim=shape.width // shape.heads,
        ffn_hidden=round(statistics.fmean(shape.hidden)),
        vocabulary=shape.vocabulary,
        max_sequence=shape.context,
        gated=False,
        norm=Norm.LAYER,
        positions=Positions.LEARNED,
        position_rows=shape.context,
    )


def initial_weights(model: str) -> dict[str, str]:
    """Return the hash of the weights that a model begins with, for the key of a run; none of a new one."""
    from workloads.training.pretraining import WEIGHTS  # noqa: PLC0415 - torch, only to execute

    return {"weights_sha256": hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()} if model == LEARNT else {}


def _setup(job: _Job) -> tuple[GptConfig, TrainingConfig]:
    """Return the small model and its training."""
    from workloads.training.gpt import TrainingConfig  # noqa: PLC0415 - torch, only to execute

    training = TrainingConfig.quick(seed=job.seed) if job.quick else TrainingConfig(seed=job.seed)
    if job.model == LEARNT:
        training = TrainingConfig(**_FINE_TUNING, seed=job.seed)
        if job.quick:
            training = dataclasses.replace(training, steps=8, batch=1, validation_windows=4)
        training = dataclasses.replace(training, eval_every=training.steps)
    if job.steps is not None:
        training = dataclasses.replace(training, steps=job.steps)
    return shape_of(job.model), training


def _run(job: _Job) -> dict[str, Any]:
    import torch  # noqa: PLC0415 - only to execute

    from workloads.training.gpt import python_source, train_model, validate  # noqa: PLC0415 - torch, only to execute
    from workloads.training.probes import EXACT_PRODUCTS  # noqa: PLC0415 - torch, only to execute

    torch.set_num_threads(1)
    (shape, training), corpus = _setup(job), python_source()
    products, start, before = products_of(job.arithmetic), None, None
    if job.model == LEARNT:
        from workloads.training.pretraining import WEIGHTS, load_weights  # noqa: PLC0415 - torch

        start, _ = load_weights(EXACT_PRODUCTS, WEIGHTS)
        exact = validate(start, training, corpus)
        start.use(products)
        before = validate(start, training, corpus) - exact
    trained = train_model(training, shape, products, corpus, start=start)
    trained.model.use(EXACT_PRODUCTS)
    return {
        "before": before,
        "steps": list(trained.curve.validation_steps),
        "losses": list(trained.curve.validation_loss),
        "exact_evaluation": validate(trained.model, training, corpus),
    }


def train_all(
    arithmetics: Iterable[Arithmetic],
    *,
    seeds: Iterable[int],
    quick: bool,
    cache: TrainingCache,
    model: str = "small",
    steps: int | None = None,
    progress: OnProgress = unheard,
) -> dict[str, Accuracy]:
    """Train the small GPT with exact arithmetic and with each of the others, for each seed.

    Parameters
    ----------
    arithmetics : iterable of Arithmetic
        Arithmetics to train with; exact arithmetic is added.
    seeds : iterable of int
        Seeds; a seed fixes weights, batches and noise, so runs of one seed are paired.
    quick : bool
        Fewer steps.
    cache : TrainingCache
        Finished runs, which are not repeated.
    model : str
        Shape of the model, of `MODELS`; or `LEARNT`, which is trained further.
    steps : int, optional
        Number of updates, in place of the default.
    progress : callable
        Called with the label of the run just done, the number of runs done, and the number in all.

    Returns
    -------
    dict of str to Accuracy
        Results by label, exact arithmetic first.

    Raises
    ------
    ParameterError
        If there is no such model.
    """
    check_model(model)
    seeds = tuple(seeds)
    wanted = {EXACT: Arithmetic(label=EXACT)} | {one.label: one for one in arithmetics}
    jobs = [
        _Job(arithmetic=one, seed=seed, quick=quick, model=model, steps=steps)
        for one in wanted.values()
        for seed in seeds
    ]
    found = run_cached(
        jobs,
        _run,
        key=lambda job: _key(job, cache),
        label=lambda job: job.arithmetic.label,
        cache=cache,
        progress=progress,
    )
    curves = {(job.arithmetic.label, job.seed): one for job, one in zip(jobs, found, strict=True)}
    return {label: _accuracy_of(label, seeds, curves) for label in wanted}


def run_cached(
    jobs: Sequence[Job],
    work: Callable[[Job], dict[str, Any]],
    *,
    key: Callable[[Job], str],
    label: Callable[[Job], str],
    cache: TrainingCache,
    progress: OnProgress,
) -> list[dict[str, Any]]:
    """Return the results of jobs in their order, from a cache where it has them, else by running them.

    Parameters
    ----------
    jobs : sequence
        Picklable jobs.
    work : callable
        Function of a module that does a job.
    key, label : callable
        From a job to its key in the cache, and to its label. Jobs with the same key are run once.
    cache : TrainingCache
        Store of finished runs, to which new ones are added.
    progress : callable
        Called with the label of the job just done, the number of jobs done, and the number in all.
    """
    keys = [key(job) for job in jobs]
    results = {name: cache.load(name) for name in keys}
    todo = {name: job for name, job in zip(keys, jobs, strict=True) if results[name] is None}

    def keep(job: Job, result: dict[str, Any]) -> None:
        cache.store(key(job), result)
        results[key(job)] = result
        progress(label(job), sum(results[name] is not None for name in keys), len(jobs))

    run_all(list(todo.values()), work, keep)
    return [results[name] or {} for name in keys]


def _accuracy_of(
    label: str, seeds: tuple[int, ...], curves: Mapping[tuple[str, int], dict[str, Any]]
) -> Accuracy:
    """Return the accuracy of an arithmetic from the results of all runs by label and seed."""
    runs = [curves[label, seed] for seed in seeds]
    exact = [curves[EXACT, seed] for seed in seeds]
    return Accuracy(
        label=label,
        steps=tuple(runs[0]["steps"]),
        losses=tuple(tuple(run["losses"]) for run in runs),
        reference=tuple(run["losses"][-1] for run in exact),
        reference_losses=tuple(tuple(run["losses"]) for run in exact),
        exact_evaluation=tuple(run["exact_evaluation"] for run in runs),
        before=tuple(run["before"] for run in runs if run["before"] is not None),
    )


def _key(job: _Job, cache: TrainingCache) -> str:
    from workloads.training.gpt import python_source  # noqa: PLC0415 - torch, only to execute

    model, training = _setup(job)
    numerics = {"trained": job.arithmetic.identity} | initial_weights(job.model)
    return cache.key(numerics=numerics, model=model, training=training, corpus_sha256=python_source().sha256)


TARGET_SHARE = 2.0 / 3.0
"""Share of the steps after which the loss of exact arithmetic is the target; slower runs have the rest."""
CHAOS = 0.001
"""Standard deviation over seeds of the relative steps of runs with negligible noise (60 dB); measured with
the small GPT, see docs/accuracy.md."""


@dataclass(frozen=True, kw_only=True)
class StepsToLoss:
    """Steps to a target loss over those of exact arithmetic with the same seed."""

    ratios: tuple[float, ...]
    """Ratio of each seed; infinite if the run did not reach the target."""
    most: float
    """Largest ratio that a run can show: all steps over those to the target."""

    @property
    def reached(self) -> bool:
        """Whether all seeds reached the target."""
        return bool(self.ratios) and all(math.isfinite(ratio) for ratio in self.ratios)

    @property
    def mean(self) -> float:
        """Mean ratio; infinite if a seed did not reach the target."""
        return statistics.fmean(self.ratios) if self.reached else math.inf

    @property
    def least(self) -> float:
        """Mean ratio with `most` for seeds that did not reach the target, so a lower bound of the mean."""
        return statistics.fmean(min(ratio, self.most) for ratio in self.ratios)

    @property
    def error(self) -> float:
        """Standard error of `least`, at least that due to `CHAOS`; NaN for one seed."""
        if len(self.ratios) < 2:
            return math.nan
        return max(
            standard_error([min(ratio, self.most) for ratio in self.ratios]),
            CHAOS / math.sqrt(len(self.ratios)),
        )

    @property
    def resolved(self) -> bool:
        """Whether the ratio differs from one by more than chance.

        Notes
        -----
        Student's t of the mean over seeds, two-sided, at `CONFIDENCE`; with three seeds 4.3 standard errors.
        """
        from scipy.stats import t  # noqa: PLC0415 - takes its time

        if len(self.ratios) < 2:
            return False
        return bool(
            abs(self.least - 1.0) > t.ppf((1.0 + CONFIDENCE) / 2.0, len(self.ratios) - 1) * self.error
        )

    @property
    def factor(self) -> float:
        """Factor on time and energy: the mean ratio if it is resolved, else one."""
        return self.mean if self.resolved else 1.0

    def record(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "steps_to_loss_relative": self.mean,
            "steps_to_loss_by_seed": list(self.ratios),
            "steps_to_loss_standard_error": self.error,
            "steps_to_loss_resolved": self.resolved,
            "steps_to_loss_least": self.least,
        }


def steps_to_loss(accuracy: Accuracy) -> StepsToLoss:
    """Return the steps of an arithmetic to a target loss, relative to those of exact arithmetic.

    Notes
    -----
    The target of each seed is the loss of exact arithmetic after `TARGET_SHARE` of the steps; between
    validations the loss is interpolated. As the learning rate does not decay, a run that is stopped early is
    the beginning of a longer one.
    """
    last = accuracy.steps[-1]
    place = max(
        (index for index, step in enumerate(accuracy.steps) if step <= TARGET_SHARE * last), default=0
    )
    ratios = tuple(
        _first_at(accuracy.steps, curve, exact[place]) / accuracy.steps[place]
        for curve, exact in zip(accuracy.losses, accuracy.reference_losses, strict=True)
    )
    return StepsToLoss(ratios=ratios, most=last / accuracy.steps[place])


def _first_at(steps: Sequence[int], losses: Sequence[float], target: float) -> float:
    """Return the step at which a loss is first reached, interpolated; infinite if it never is."""
    if losses[0] <= target:
        return float(steps[0])
    for (before, worse), (step, loss) in zip(
        zip(steps, losses, strict=True), zip(steps[1:], losses[1:], strict=True), strict=False
    ):
        if loss <= target:
            return before + (step - before) * (worse - target) / (worse - loss)
    return math.inf
