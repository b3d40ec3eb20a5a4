"""Predict, then execute: the loss that a core's noise will cost, from one calibration of a trained model.

To second order a loss rises with the variance of every product's error, hence in proportion to its
noise-to-signal ratio (NSR), and independent errors add: ``sum c_pk NSR_pk``, over the products p of every
layer and the classes k of errors (`workloads.error_classes`): anew for every output, or shared by all that
meet one element of an operand. What a core's errors have in common, a gain of 1 + e_p, adds ``sum_p g_p e_p +
sum_pq h_pq e_p e_q / 2``. Gaussian noise of one class on one product at a time gives c, differentiation g
and h; the core's own NSR and gains, measured against exact products, then predict what executing all of it
costs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.accuracy import EXACT, MODELS, Arithmetic, products_of
from experiments.processes import run_all
from experiments.records import TrainingCache
from experiments.sensitivity_records import PROBE_DB, Calibration, Execution, Prediction
from heliograph.errors import ParameterError, nearest
from workloads.error_classes import ErrorClass

if TYPE_CHECKING:
    from workloads.gpt import GptConfig
    from workloads.training import TrainingConfig

LADDER_DB = (40.0, 35.0, 30.0, 25.0, 20.0, 15.0, 10.0)
"""Signal to noise at which all products are probed together, dB."""
QUICK_LADDER_DB = (40.0, 30.0, 20.0, 10.0)
"""The same with ``--quick``."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is run."""

    model: str = "small"
    """Shape of the model, of `MODELS`."""
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

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            msg = f"no model '{self.model}'; {nearest(self.model, MODELS, noun='model')}"
            raise ParameterError(msg)
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
            Shape of the model, of `MODELS`.
        steps, seeds : int, optional
            Updates and models, if not the usual numbers.
        first_seed : int
            The first of the seeds.
        """
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
    progress: Callable[[int, int, str], None] = lambda done, total, label: None,
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
        Told models done, models in all, and what was run.
    """
    jobs = [_Job(effort=effort, seed=seed, arithmetics=arithmetics) for seed in effort.seeds]
    keys = {job.seed: _key(job, cache) for job in jobs}
    found = {seed: cache.load(key) for seed, key in keys.items()}
    left = [job for job in jobs if found[job.seed] is None]
    done = len(jobs) - len(left)

    def keep(job: _Job, result: dict[str, Any]) -> None:
        nonlocal done
        cache.store(keys[job.seed], result)
        found[job.seed] = result
        done += 1
        progress(done, len(jobs), f"seed {job.seed}")

    run_all(left, _run, keep)
    results = [found[seed] or {} for seed in effort.seeds]
    return Prediction(
        model=effort.model,
        width=MODELS[effort.model]["width"],
        steps=effort.steps,
        calibrations=tuple(Calibration.of(one) for one in results),
        executions=tuple(Execution.of(one.label, results) for one in arithmetics),
    )


def _key(job: _Job, cache: TrainingCache) -> str:
    from workloads.corpora import python_source  # noqa: PLC0415 - reads files

    gpt, training = _setup(job)
    numerics = {
        "effort": dataclasses.replace(job.effort, seeds=(job.seed,)),
        "probe_db": PROBE_DB,
        "mirror": "the very errors",
        "executed": {one.label: one.identity for one in job.arithmetics},
    }
    return cache.key(numerics=numerics, model=gpt, training=training, corpus_sha256=python_source().sha256)


def _setup(job: _Job) -> tuple[GptConfig, TrainingConfig]:
    from workloads.gpt import GptConfig  # noqa: PLC0415 - torch, only to execute
    from workloads.training import TrainingConfig  # noqa: PLC0415 - torch, only to execute

    effort = job.effort
    training = TrainingConfig(
        seed=job.seed, steps=effort.steps, eval_every=effort.steps, validation_windows=effort.windows
    )
    return GptConfig(**MODELS[effort.model]), training


def _run(job: _Job) -> dict[str, Any]:
    """Return what one clean model tells, as plain data."""
    import torch  # noqa: PLC0415 - only to execute

    from experiments.sensitivity_bench import Bench  # noqa: PLC0415 - beside what it runs
    from workloads.corpora import python_source  # noqa: PLC0415 - read in the worker
    from workloads.training import train_model  # noqa: PLC0415 - torch, only to execute

    torch.set_num_threads(1)
    gpt, training = _setup(job)
    corpus = python_source()
    exact = products_of(Arithmetic(label=EXACT))
    trained = train_model(training, gpt, exact, corpus)
    bench = Bench(model=trained.model, training=training, corpus=corpus)
    return bench.calibrate(job.effort) | {
        "executed": {one.label: bench.execute(one, job.effort.core_pairs) for one in job.arithmetics}
    }
