"""Training with a core's noise in it, paired with exact training: what it costs, where that can be told."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.accuracy import EXACT, Accuracy, Arithmetic, train_all
from experiments.records import TrainingCache
from experiments.report import ReportRow, table_text
from experiments.sensitivity import Effort
from experiments.sensitivity_records import standard_error
from experiments.steps_to_loss import StepsToLoss, steps_to_loss
from heliograph.operators import Phase
from optical.analog import AnalogSpec

INFERENCE, AWARE, HARDWARE = "inference", "aware", "hardware"
"""Noise on a model trained exactly; exact gradients through noisy forward products; all products noisy."""
QUICK_STEPS = 24
"""Training steps up to which the quick recipe of the small GPT is used."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training runs of one mode, or none for noise at inference alone."""

    mode: str
    """How they were trained."""
    accuracies: Mapping[str, Accuracy]
    """By arithmetic, exact arithmetic first; empty without training."""

    @property
    def steps(self) -> dict[str, StepsToLoss]:
        """Steps to the loss of exact arithmetic, by arithmetic."""
        return {label: steps_to_loss(one) for label, one in self.accuracies.items() if label != EXACT}

    def record(self) -> dict[str, Any]:
        """Return the runs as plain data."""
        runs = {
            label: self.accuracies[label].record() | steps.record() for label, steps in self.steps.items()
        }
        return {"mode": self.mode, "runs": runs}

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per arithmetic, seed and validation."""
        return [
            {"numerics": label, "mode": self.mode, "seed": index, "step": step, "validation_loss_nats": loss}
            for label, one in self.accuracies.items()
            for index, curve in enumerate(one.losses)
            for step, loss in zip(one.steps, curve, strict=True)
        ]

    def report(self) -> str:
        """Return the findings as text."""
        if not self.accuracies:
            return "No training with noise was asked for (--mode aware or hardware)."
        found = self.steps
        rows = [
            ReportRow(
                label="loss with its own noise", values=tuple(_differences(self, one) for one in found)
            ),
            ReportRow(label="  read out exactly", values=tuple(_exact(self, one) for one in found)),
            ReportRow(label="steps to loss, relative", values=tuple(told(one) for one in found.values())),
        ]
        return table_text(
            f"Training, mode {self.mode}, minus exact training of the same seeds", list(found), rows
        )


def told(steps: StepsToLoss) -> str:
    """Return relative steps as text, or that no difference is resolved."""
    if not steps.resolved:
        return "no difference resolved"
    if not math.isfinite(steps.mean):
        return f"> {steps.least:.2f}"
    return f"{steps.mean:.2f} \u00b1 {steps.error:.2f}"


def _differences(training: Training, label: str) -> str:
    one = training.accuracies[label]
    return f"{statistics.fmean(one.differences):+.3f} \u00b1 {one.difference_error:.3f}"


def _exact(training: Training, label: str) -> str:
    one = training.accuracies[label]
    changes = [read - exact for read, exact in zip(one.exact_evaluation, one.reference, strict=True)]
    return f"{statistics.fmean(changes):+.3f} \u00b1 {standard_error(changes):.3f}"


def train_in_mode(
    arithmetics: Sequence[Arithmetic],
    *,
    mode: str,
    effort: Effort,
    cache: TrainingCache,
    progress: Callable[[int, int, str], None] = lambda done, total, label: None,
) -> Training:
    """Train each arithmetic in a mode, and exact arithmetic beside it with the same seeds.

    Parameters
    ----------
    arithmetics : sequence of Arithmetic
        What to train with.
    mode : str
        ``inference`` (nothing is trained), ``aware`` or ``hardware``.
    effort : Effort
        Model, steps and seeds.
    cache : TrainingCache
        Finished runs, which are not repeated.
    progress : callable
        Told runs done, runs in all, and the label of the run just done.
    """
    if mode == INFERENCE:
        return Training(mode=mode, accuracies={})
    trained = train_all(
        [aware(one) if mode == AWARE else one for one in arithmetics],
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
