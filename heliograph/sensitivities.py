"""Sensitivity of a trained model's loss to noise on each kind of product, as a small table that ships."""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from simulator.errors import ParameterError
from simulator.operators import Phase

TABLE = Path(__file__).parent / "sensitivities.csv"
"""Table that ships; ``heliograph accuracy sensitivities --table FILE`` makes it."""
_DIGITS = 4
_DECIBEL = 10.0


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """Rise of the loss with noise on one product alone."""

    product: str
    """Name of the product in the GPT: qkv, scores, values, projection, up, down, head."""
    layer: int
    """Number of the block, the head's one beyond the last; -1 for all blocks together."""
    phase: Phase
    """Forward, or the gradient that is noisy while a model is trained."""
    snr_db: float
    """Signal to noise of the product, dB."""
    rise_nats: float
    """Rise of the validation loss, nats per byte."""
    error_nats: float
    """Standard error of it over draws or seeds, 0 for one draw."""

    def row(self) -> Mapping[str, str]:
        """Return the row of the table."""
        return {
            one.name: f"{value:.{_DIGITS}g}" if isinstance(value, float) else str(value)
            for one in fields(self)
            for value in (getattr(self, one.name),)
        }


@functools.cache
def load_sensitivities(path: Path = TABLE) -> tuple[Sensitivity, ...]:
    """Return the rows of a table.

    Raises
    ------
    ParameterError
        If the file is missing, or a cell is wrong.
    """
    if not path.is_file():
        msg = (
            f"no table of sensitivities at {path}; make one with 'heliograph accuracy sensitivities --table'"
        )
        raise ParameterError(msg)
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    try:
        return tuple(
            Sensitivity(
                product=row["product"],
                layer=int(row["layer"]),
                phase=Phase(row["phase"]),
                snr_db=float(row["snr_db"]),
                rise_nats=float(row["rise_nats"]),
                error_nats=float(row["error_nats"]),
            )
            for row in csv.DictReader(lines)
        )
    except (KeyError, TypeError, ValueError) as error:
        msg = f"{path.name}: {error}; make the table anew with 'heliograph accuracy sensitivities --table'"
        raise ParameterError(msg) from None


@dataclass(frozen=True)
class LossCurve:
    """Rise of the loss over noise to signal of one product: measured at some levels, followed between them.

    Notes
    -----
    Below the quietest level the rise goes with the noise's power (second order); between levels it is a
    straight line in logarithms, and beyond the loudest it goes on along the last of them.
    """

    points: tuple[tuple[float, float], ...]
    """Noise to signal, power, and rise in nats, both above zero and rising."""

    @classmethod
    def of(cls, rows: Sequence[Sensitivity]) -> LossCurve:
        """Return the curve of a product's rows.

        Notes
        -----
        A rise that is not told from nothing counts as one standard error, which it may well be.
        """
        found: list[tuple[float, float]] = []
        for one in sorted(rows, key=lambda row: -row.snr_db):
            rise = max(one.rise_nats, one.error_nats, 0.0)
            if rise > 0.0 and (not found or rise > found[-1][1]):
                found.append((10.0 ** (-one.snr_db / _DECIBEL), rise))
        return cls(tuple(found))

    def __call__(self, nsr: float) -> float:
        """Return the rise, nats, at a noise-to-signal ratio."""
        if nsr <= 0.0 or not self.points:
            return 0.0
        first = self.points[0]
        if nsr <= first[0] or len(self.points) == 1:
            return first[1] * nsr / first[0]
        pairs = list(zip(self.points, self.points[1:], strict=False))
        low, high = next((pair for pair in pairs if nsr <= pair[1][0]), pairs[-1])
        slope = math.log(high[1] / low[1]) / math.log(high[0] / low[0])
        return low[1] * (nsr / low[0]) ** slope
