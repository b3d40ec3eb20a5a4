"""How many more steps a system needs to the same loss: what accuracy costs in time and energy."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.accuracy import CONFIDENCE, Accuracy
from experiments.sensitivity_records import standard_error

TARGET_SHARE = 2.0 / 3.0
"""Share of the steps after which exact arithmetic's loss is the target; the rest is room for the slower."""
CHAOS = 0.001
"""Standard deviation, over seeds, of the relative steps of runs that differ by noise of nothing (60 dB);
measured with the small GPT, see docs/accuracy.md."""


@dataclass(frozen=True, kw_only=True)
class StepsToLoss:
    """Steps to a target loss over those of exact arithmetic with the same seed."""

    ratios: tuple[float, ...]
    """One per seed; `math.inf` where the run never got there."""
    most: float
    """Ratio that a run could show at most: all steps over those to the target."""

    @property
    def reached(self) -> bool:
        """Whether all seeds reached the target."""
        return bool(self.ratios) and all(math.isfinite(ratio) for ratio in self.ratios)

    @property
    def mean(self) -> float:
        """Mean ratio; infinite if a seed never got there."""
        return statistics.fmean(self.ratios) if self.reached else math.inf

    @property
    def least(self) -> float:
        """Mean ratio with `most` for seeds that never got there: a lower bound then, else the mean."""
        return statistics.fmean(min(ratio, self.most) for ratio in self.ratios)

    @property
    def error(self) -> float:
        """Standard error of `least`, at least that of the chaos floor; not a number for one seed."""
        if len(self.ratios) < 2:
            return math.nan
        return max(
            standard_error([min(ratio, self.most) for ratio in self.ratios]),
            CHAOS / math.sqrt(len(self.ratios)),
        )

    @property
    def resolved(self) -> bool:
        """Whether the ratio differs from one beyond what chance does.

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
        """Ratio by which time and energy grow: the mean where it is resolved, else one."""
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
    """Return how many times the steps of exact arithmetic an arithmetic takes to the same loss.

    Notes
    -----
    The learning rate does not decay, so that a longer run passes through the shorter one and stopping early
    is no handicap. The target of each seed is what exact arithmetic reaches with it after `TARGET_SHARE` of
    the steps; between validations the loss is interpolated.
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
