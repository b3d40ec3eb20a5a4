"""A core's products measured against exact ones: its errors by class, its gain, and their mirror image."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch

from heliograph.errors import WorkloadError
from heliograph.interfaces import Numerics
from workloads.error_classes import ErrorClass


@runtime_checkable
class SetsOperands(Protocol):
    """Numerics that tells what became of its operands."""

    def set_operands(
        self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both operands as they were multiplied for this key."""
        ...


@dataclass(eq=False)
class Meter:
    """What a core's errors came to, over all products that it has seen. Grows as it measures."""

    ratios: dict[ErrorClass, list[float]] = field(default_factory=lambda: {one: [] for one in ErrorClass})
    """NSR of each product by class, its gain taken out."""
    gains: list[float] = field(default_factory=list)
    """Mean gain of each product: its projection on the exact result."""

    @property
    def nsr(self) -> dict[ErrorClass, float]:
        """Mean noise-to-signal ratio by class; none where nothing was multiplied."""
        return {one: math.fsum(values) / max(1, len(values)) for one, values in self.ratios.items()}

    @property
    def gain(self) -> float:
        """Mean gain; one without systematic error."""
        return math.fsum(self.gains) / len(self.gains) if self.gains else 1.0

    def read(self, error_class: ErrorClass, error: torch.Tensor, exact: torch.Tensor) -> float:
        """Note an error's NSR and return its gain."""
        power = exact.square().sum()
        gain = float((error * exact).sum() / power)
        self.ratios[error_class].append(float((error - gain * exact).square().sum() / power))
        return gain


@dataclass(frozen=True, eq=False)
class Error:
    """What a core did wrong in one product."""

    gain: float
    """The part along the exact result, relative to it."""
    rest_BMN: torch.Tensor
    """The rest."""

    @classmethod
    def of(cls, error_BMN: torch.Tensor, exact_BMN: torch.Tensor) -> Error:
        """Return an error in these parts."""
        power = float(exact_BMN.square().sum())
        gain = float((error_BMN * exact_BMN).sum()) / power if power > 0.0 else 0.0
        return cls(gain, error_BMN - gain * exact_BMN)


@dataclass(frozen=True, eq=False)
class MeasuredProducts:
    """A core's products, each compared with the exact one, and its errors told apart by class.

    Notes
    -----
    With the operands A + a and B + b that the core has set, its error is ``a B`` (first operand), ``A b``
    (second operand) and the rest (outputs), which holds ``a b`` too. Numerics that does not tell its
    operands has errors of the outputs alone.
    """

    numerics: Numerics
    """The core's."""
    meter: Meter = field(default_factory=Meter)
    """Where the comparison is written."""
    errors: dict[int, Error] = field(default_factory=dict)
    """The error of every product that was run, by its key; for the mirror image. Grows."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the core's product, shape [B, M, N]."""
        exact_BMN, c_BMN = torch.bmm(a_BMK, b_BKN), self.numerics.matmul(a_BMK, b_BKN, key)
        error_BMN = c_BMN - exact_BMN
        self.errors[key] = Error.of(error_BMN, exact_BMN)
        if bool(exact_BMN.any()):
            self._measure(a_BMK, b_BKN, key, exact_BMN, error_BMN)
        return c_BMN

    def _measure(
        self,
        a_BMK: torch.Tensor,
        b_BKN: torch.Tensor,
        key: int,
        exact_BMN: torch.Tensor,
        error_BMN: torch.Tensor,
    ) -> None:
        gain = 1.0
        if isinstance(self.numerics, SetsOperands):
            set_a, set_b = self.numerics.set_operands(a_BMK, b_BKN, key)
            first, second = torch.bmm(set_a - a_BMK, b_BKN), torch.bmm(a_BMK, set_b - b_BKN)
            gain += self.meter.read(ErrorClass.FIRST, first, exact_BMN)
            gain += self.meter.read(ErrorClass.SECOND, second, exact_BMN)
            error_BMN = error_BMN - first - second
        gain += self.meter.read(ErrorClass.OUTPUT, error_BMN, exact_BMN)
        self.meter.gains.append(gain)


@dataclass(frozen=True, eq=False)
class MirroredProducts:
    """Exact products less the errors that a core has made in the same products.

    Notes
    -----
    Run anew on operands that upstream errors of the other sign have moved, a core that rounds would round
    otherwise: its errors would be other draws, and what is odd in them would not cancel. So the very errors
    are kept. A gain is applied to the operands as they now are, so that gains of products in a row multiply.
    """

    errors: Mapping[int, Error]
    """By key, as of `MeasuredProducts`."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the mirrored product, shape [B, M, N].

        Raises
        ------
        WorkloadError
            If the core has not run the product with this key.
        """
        error = self.errors.get(key)
        if error is None:
            msg = f"no error is kept of the product with key {key}; run the core's own products first"
            raise WorkloadError(msg)
        return torch.bmm(a_BMK, b_BKN).mul_(1.0 - error.gain).sub_(error.rest_BMN)
