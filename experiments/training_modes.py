"""Training with a core's noise in it, paired with exact training: what it costs, where that can be told."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.accuracy import EXACT, NOTHING, Accuracy, Arithmetic, difference_text, train_all
from experiments.records import TrainingCache
from experiments.report import ReportRow, table_text
from experiments.sensitivity import Effort
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

    def report(self) -> str:
        """Return the findings as text."""
        if not self.accuracies:
            return "No training with noise was asked for (--mode aware or hardware)."
        found, floor = self.steps, self.floor
        known = [self.accuracies[label] for label in found]
        noisy = tuple(difference_text(one.differences, floor) for one in known)
        exact = tuple(difference_text(one.exact_differences, floor) for one in known)
        rows = [
            ReportRow(label="loss with its own noise", values=noisy),
            ReportRow(label="  read out exactly", values=exact),
            ReportRow(label="steps to loss, relative", values=tuple(told(one) for one in found.values())),
        ]
        title = f"Training, mode {self.mode}, minus exact training of the same seeds"
        text = table_text(title, list(found), rows)
        return f"{text}\nNoise of nothing moves the loss of a seed by up to {floor:.2g} nats/byte."


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
    mode: str,
    effort: Effort,
    cache: TrainingCache,
    progress: Callable[[int, int, str], None] = lambda done, total, label: None,
) -> Training:
    """Train each arithmetic in a mode; beside it exact arithmetic and noise of nothing, with the same seeds.

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
        [NOTHING, *(aware(one) if mode == AWARE else one for one in arithmetics)],
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
