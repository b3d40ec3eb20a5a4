"""The small GPT trained through each system's own numerics, paired over seeds, in parallel processes."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import statistics
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.records import TrainingCache
from heliograph.operators import Phase
from optical.analog import AnalogSpec

if TYPE_CHECKING:
    from workloads.gpt import Products

EXACT = "exact arithmetic"
"""Label of the reference: single precision, no noise."""
BFLOAT16 = "bf16"
"""Label of the GPU's numerics."""


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """How all products of one training run come out."""

    label: str
    """Name in tables and figures."""
    analog: Mapping[Phase, AnalogSpec] | None = None
    """Specification per phase, or None for electronic arithmetic named by `label`."""


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
    def difference_error(self) -> float:
        """Standard error of the mean difference; not a number for one seed."""
        if len(self.final) < 2:
            return math.nan
        return statistics.stdev(self.differences) / math.sqrt(len(self.final))

    def record(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "numerics": self.label,
            "validation_loss": self.mean,
            "validation_loss_spread": self.spread,
            "validation_loss_by_seed": list(self.final),
            "loss_difference": statistics.fmean(self.differences),
            "loss_difference_standard_error": self.difference_error,
            "seeds": len(self.final),
        }


@dataclass(frozen=True, kw_only=True)
class _Job:
    arithmetic: Arithmetic
    seed: int
    quick: bool


def _products(arithmetic: Arithmetic) -> Products:
    from electronic.numerics import BfloatNumerics, ExactNumerics  # noqa: PLC0415 - torch, only to execute
    from optical.numerics import AnalogNumerics  # noqa: PLC0415 - torch, only to execute
    from workloads.gpt import Products  # noqa: PLC0415 - torch, only to execute

    analog = arithmetic.analog
    if analog is not None:
        return Products(
            forward=AnalogNumerics(analog[Phase.FORWARD]),
            grad_input=AnalogNumerics(analog[Phase.GRAD_INPUT]),
            grad_weight=AnalogNumerics(analog[Phase.GRAD_WEIGHT]),
        )
    return Products.same(ExactNumerics() if arithmetic.label == EXACT else BfloatNumerics())


def _setup(job: _Job) -> tuple[Any, Any]:
    """Return the small model and its training."""
    from workloads.gpt import GptConfig  # noqa: PLC0415 - torch, only to execute
    from workloads.training import TrainingConfig  # noqa: PLC0415 - torch, only to execute

    training = TrainingConfig.quick(seed=job.seed) if job.quick else TrainingConfig(seed=job.seed)
    return GptConfig(), training


def _run(job: _Job) -> dict[str, Any]:
    import torch  # noqa: PLC0415 - only to execute

    from workloads.corpora import python_source  # noqa: PLC0415 - read in the worker
    from workloads.training import train  # noqa: PLC0415 - torch, only to execute

    torch.set_num_threads(1)
    model, training = _setup(job)
    curve = train(training, model, _products(job.arithmetic), python_source())
    return {"steps": list(curve.validation_steps), "losses": list(curve.validation_loss)}


def train_all(
    arithmetics: Iterable[Arithmetic],
    *,
    seeds: Iterable[int],
    quick: bool,
    cache: TrainingCache,
    progress: Callable[[int, int, str], None] = lambda done, total, label: None,
) -> dict[str, Accuracy]:
    """Train the small GPT with exact arithmetic and with each of the others, for each seed.

    Parameters
    ----------
    arithmetics : iterable of Arithmetic
        What to train with; exact arithmetic is added.
    seeds : iterable of int
        Seeds; a seed fixes weights, batches and noise, so runs of one seed are paired.
    quick : bool
        Fewer steps.
    cache : TrainingCache
        Finished runs, which are not repeated.
    progress : callable
        Told runs done, runs in all, and the label of the run just done.

    Returns
    -------
    dict of str to Accuracy
        By label, exact arithmetic first.
    """
    seeds = tuple(seeds)
    wanted = {EXACT: Arithmetic(label=EXACT)} | {one.label: one for one in arithmetics}
    jobs = [_Job(arithmetic=one, seed=seed, quick=quick) for one in wanted.values() for seed in seeds]
    keys = {(job.arithmetic.label, job.seed): _key(job, cache) for job in jobs}
    curves = {name: cache.load(key) for name, key in keys.items()}
    left = [job for job in jobs if curves[job.arithmetic.label, job.seed] is None]
    done = len(jobs) - len(left)

    def keep(job: _Job, curve: dict[str, Any]) -> None:
        nonlocal done
        name = (job.arithmetic.label, job.seed)
        cache.store(keys[name], curve)
        curves[name] = curve
        done += 1
        progress(done, len(jobs), job.arithmetic.label)

    _run_all(left, keep)
    return {label: _gathered(label, seeds, curves) for label in wanted}


def _gathered(
    label: str, seeds: tuple[int, ...], curves: Mapping[tuple[str, int], dict[str, Any] | None]
) -> Accuracy:
    mine = [curves[label, seed] or {} for seed in seeds]
    exact = [curves[EXACT, seed] or {} for seed in seeds]
    return Accuracy(
        label=label,
        steps=tuple(mine[0]["steps"]),
        losses=tuple(tuple(curve["losses"]) for curve in mine),
        reference=tuple(curve["losses"][-1] for curve in exact),
    )


def _key(job: _Job, cache: TrainingCache) -> str:
    from workloads.corpora import python_source  # noqa: PLC0415 - reads files

    model, training = _setup(job)
    numerics = job.arithmetic.analog or job.arithmetic.label
    return cache.key(numerics=numerics, model=model, training=training, corpus_sha256=python_source().sha256)


def _run_all(jobs: list[_Job], keep: Callable[[_Job, dict[str, Any]], None]) -> None:
    """Run jobs in parallel and hand each result on; on Ctrl-C let the running ones finish and keep them."""
    workers = min(len(jobs), os.cpu_count() or 1)
    if workers < 2:
        for job in jobs:
            keep(job, _run(job))
        return
    kept: set[int] = set()
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare_worker)
    futures = {pool.submit(_run, job): index for index, job in enumerate(jobs)}
    try:
        for future in as_completed(futures):
            curve = future.result()
            kept.add(futures[future])
            keep(jobs[futures[future]], curve)
    except BrokenProcessPool:  # a worker was killed (memory, most likely): go on alone
        for index, job in enumerate(jobs):
            if index not in kept:
                keep(job, _run(job))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: the runs at work are finished and kept; Ctrl-C again stops them\n")
        pool.shutdown(cancel_futures=True)
        for future, index in futures.items():
            if index not in kept and not future.cancelled() and future.exception() is None:
                keep(jobs[index], future.result())
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _prepare_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it even when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        threading.Thread(target=_end_with_parent, args=(sentinel,), daemon=True).start()


def _end_with_parent(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
