"""What became of each row, and the statistics of a set of rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from experiments.validation.cells import Record
from simulator.errors import ParameterError

FAR_OFF = 0.20
"""Relative error above which a row is named; dimensionless."""
HIGH_QUANTILE = 0.9
"""Quantile that is reported beside the median."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One row: what was measured, what is predicted, or why it was skipped."""

    id: str
    """Name of the row."""
    source: str
    """Publication or repository."""
    unit: str
    """SI unit of both values."""
    measured: float | None
    """Published value, or None if the row has none."""
    predicted: float | None = None
    """Our value, or None if the row was skipped."""
    constant: float | None = None
    """Value of the trivial constant, or None where there is no such rule."""
    assumed: tuple[str, ...] = ()
    """What had to be assumed."""
    skipped: str | None = None
    """Why the row was skipped, or None."""
    hint: str = ""
    """Where the predicted time goes, for rows that miss."""
    beside: Mapping[str, float | bool | str] = field(default_factory=dict)
    """Further answers to the same question, by name."""

    @property
    def relative_error(self) -> float | None:
        """Predicted less measured, over measured."""
        return _relative(self.predicted, self.measured)

    @property
    def constant_error(self) -> float | None:
        """The same for the trivial constant."""
        return _relative(self.constant, self.measured)

    @property
    def far_off(self) -> bool:
        """Whether it misses by more than `FAR_OFF`."""
        return abs(self.relative_error or 0.0) > FAR_OFF

    def record(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {
            "id": self.id,
            "source": self.source,
            "measured": self.measured,
            "predicted": self.predicted,
            "unit": self.unit,
            "relative_error": self.relative_error,
            "assumed": list(self.assumed),
            "skipped": self.skipped,
            **self.beside,
        }


def begun(record: Record, *, unit: str = "s") -> Outcome:
    """Return the outcome of a row of which nothing is known yet but its name and source."""
    return Outcome(
        id=record.text("id") or record.where,
        source=record.text("source") or "no source",
        unit=unit,
        measured=None,
    )


def skipped(outcome: Outcome, record: Record, error: Exception) -> Outcome:
    """Return the outcome of a row that cannot be predicted, and why.

    Raises
    ------
    ParameterError
        The error itself if it is one of the file: a number that cannot be one, named by its place.
    """
    if isinstance(error, ParameterError) and str(error).startswith(record.where):
        raise error
    return replace(outcome, assumed=tuple(record.assumed), skipped=str(error))


def _relative(value: float | None, measured: float | None) -> float | None:
    return None if value is None or measured is None else value / measured - 1.0


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Errors of a set of rows; all are fractions, and None where no row was predicted."""

    n: int
    """Rows predicted."""
    mean_abs_error: float | None
    """Mean of absolute relative errors."""
    median: float | None
    """Median of absolute relative errors."""
    p90: float | None
    """Value below which nine of ten absolute relative errors lie, by linear interpolation."""
    max: float | None
    """Largest absolute relative error."""
    bias: float | None
    """Mean of relative errors with their sign."""
    constant_mean_abs_error: float | None
    """Mean absolute relative error of the trivial constant on the same rows."""


def statistics(outcomes: Iterable[Outcome]) -> Statistics:
    """Return the statistics of the rows that were predicted.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Rows; skipped ones do not count.
    """
    rows = [one for one in outcomes if one.relative_error is not None]
    errors = np.array([one.relative_error for one in rows], dtype=float)
    if not rows:
        return Statistics(
            n=0, mean_abs_error=None, median=None, p90=None, max=None, bias=None, constant_mean_abs_error=None
        )
    beside = [abs(one.constant_error) for one in rows if one.constant_error is not None]
    size = np.abs(errors)
    return Statistics(
        n=len(rows),
        mean_abs_error=float(size.mean()),
        median=float(np.median(size)),
        p90=float(np.quantile(size, HIGH_QUANTILE)),
        max=float(size.max()),
        bias=float(errors.mean()),
        constant_mean_abs_error=math.fsum(beside) / len(beside) if beside else None,
    )


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Every row of one run of ``heliograph validate``."""

    kind: str
    """``training``, ``kernels``, ``collectives``, ``memory``, ``photonic`` or ``network``."""
    outcomes: tuple[Outcome, ...]
    """Rows in the order of the file."""

    @property
    def predicted(self) -> tuple[Outcome, ...]:
        """Rows that were predicted."""
        return tuple(one for one in self.outcomes if one.relative_error is not None)

    @property
    def skipped(self) -> tuple[Outcome, ...]:
        """Rows that were not."""
        return tuple(one for one in self.outcomes if one.skipped is not None)

    @property
    def far_off(self) -> tuple[Outcome, ...]:
        """Rows that miss by more than `FAR_OFF`, the worst first."""
        rows = [one for one in self.predicted if one.far_off]
        return tuple(sorted(rows, key=lambda one: (-abs(one.relative_error or 0.0), one.id)))

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources in the order in which they first appear."""
        return tuple(dict.fromkeys(one.source for one in self.outcomes))

    def of(self, *sources: str) -> Statistics:
        """Return the statistics over all rows whose source begins with one of some texts."""
        return statistics(one for one in self.outcomes if one.source.startswith(sources))

    def by_source(self) -> dict[str, Statistics]:
        """Return the statistics of each source."""
        return {
            source: statistics(one for one in self.outcomes if one.source == source)
            for source in self.sources
        }

    def overall(self) -> Statistics:
        """Return the statistics of all rows."""
        return statistics(self.outcomes)

    def record(self) -> dict[str, Any]:
        """Return everything as plain data; what ``--json`` prints."""
        return {
            "rows": [one.record() for one in self.outcomes],
            "by_source": {source: _record(one) for source, one in self.by_source().items()},
            "overall": _record(self.overall()),
        }


def _record(found: Statistics) -> dict[str, Any]:
    return {name: getattr(found, name) for name in STATISTICS}


STATISTICS: Sequence[str] = tuple(Statistics.__dataclass_fields__)
"""Names of the statistics, in the order in which they are shown."""
