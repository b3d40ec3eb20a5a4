"""Noise of a set strength put on products, and the noise that a core puts on them, measured.

A product's noise-to-signal ratio (NSR) is the mean square of its error over that of its exact result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from heliograph.checks import check_range
from heliograph.interfaces import Numerics
from heliograph.keys import mix_key
from workloads.gpt import ProductName, Products


@dataclass(frozen=True)
class ExactProducts:
    """Products as torch computes them in the operands' own precision."""

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N]; nothing is random."""
        del key
        return torch.bmm(a_BMK, b_BKN)


EXACT_PRODUCTS = Products.same(ExactProducts())
"""Every product exact."""


@dataclass(frozen=True)
class GaussianProducts:
    """Exact products plus Gaussian noise, a set share of each result's mean square.

    Notes
    -----
    Uneven, the deviation of an output goes with the largest element of its row of A and of its column of B,
    as that of receiver and converter noise does where every row and column has a full scale of its own.
    """

    nsr: float
    """Noise-to-signal ratio, dimensionless power ratio."""
    sign: int = 1
    """1, or -1 for the mirror image of the same draws."""
    uneven: bool = False
    """Whether the noise follows the full scales of rows and columns."""

    def __post_init__(self) -> None:
        check_range(self, "nsr")

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the noisy product, shape [B, M, N]."""
        c_BMN = torch.bmm(a_BMK, b_BKN)
        generator = torch.Generator(c_BMN.device).manual_seed(key % 2**63)
        noise_BMN = torch.empty_like(c_BMN).normal_(generator=generator)
        power = c_BMN.square().mean()
        if self.uneven:
            a_BM1, b_B1N = a_BMK.abs().amax(2, keepdim=True), b_BKN.abs().amax(1, keepdim=True)
            noise_BMN.mul_(a_BM1).mul_(b_B1N)
            mean = (a_BM1.square().mean(1) * b_B1N.square().mean(2)).mean()
            power = power / mean if float(mean) > 0.0 else power
        return c_BMN.addcmul_(noise_BMN, (self.nsr * power).sqrt(), value=self.sign)


@dataclass(frozen=True)
class ScaledProducts:
    """Exact products times a gain: what an error in common does to them."""

    gain: float
    """Dimensionless; 1 changes nothing."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the scaled product, shape [B, M, N]; nothing is random."""
        del key
        return torch.bmm(a_BMK, b_BKN).mul_(self.gain)


@dataclass(eq=False)
class Meter:
    """What a core's errors came to, over all products that it has seen. Grows as it measures."""

    ratios: list[float] = field(default_factory=list)
    """NSR of each product, its gain taken out."""
    gains: list[float] = field(default_factory=list)
    """Mean gain of each product: its projection on the exact result."""

    @property
    def nsr(self) -> float:
        """Mean noise-to-signal ratio."""
        return math.fsum(self.ratios) / len(self.ratios)

    @property
    def gain(self) -> float:
        """Mean gain; one without systematic error."""
        return math.fsum(self.gains) / len(self.gains)


@dataclass(frozen=True, eq=False)
class MeasuredProducts:
    """A core's products, each compared with the exact one."""

    numerics: Numerics
    """The core's."""
    meter: Meter = field(default_factory=Meter)
    """Where the comparison is written."""
    sign: int = 1
    """1, or -1 to put the mirror image of the core's error on the exact product."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the core's product, or its mirror image, shape [B, M, N]."""
        exact_BMN, c_BMN = torch.bmm(a_BMK, b_BKN), self.numerics.matmul(a_BMK, b_BKN, key)
        power = exact_BMN.square().sum()
        if float(power) > 0.0:
            gain = float((c_BMN * exact_BMN).sum() / power)
            self.meter.gains.append(gain)
            self.meter.ratios.append(float((c_BMN - gain * exact_BMN).square().sum() / power))
        return c_BMN if self.sign > 0 else 2.0 * exact_BMN - c_BMN


@dataclass(frozen=True)
class RepeatedProducts:
    """The mean of several executions of each product, each with draws of its own."""

    numerics: Numerics
    """What executes them."""
    passes: int
    """How often."""

    def __post_init__(self) -> None:
        check_range(self, "passes", low=1)

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the mean product, shape [B, M, N]."""
        total = self.numerics.matmul(a_BMK, b_BKN, mix_key(key, 0))
        for index in range(1, self.passes):
            total = total + self.numerics.matmul(a_BMK, b_BKN, mix_key(key, index))
        return total / self.passes


def repeated(numerics: Numerics, passes: int) -> Numerics:
    """Return numerics that executes each product so many times; once is the numerics itself."""
    return numerics if passes == 1 else RepeatedProducts(numerics, passes)


def only(product: ProductName, numerics: Numerics) -> Products:
    """Return products of which one is not exact."""
    return _with({product: numerics})


def measured(numerics: Numerics, sign: int = 1) -> tuple[Products, dict[ProductName, Meter]]:
    """Return a core's products, and a meter for each of them."""
    probes = {product: MeasuredProducts(numerics, sign=sign) for product in ProductName}
    return _with(probes), {product: probe.meter for product, probe in probes.items()}


def _with(chosen: dict[ProductName, Numerics] | dict[ProductName, MeasuredProducts]) -> Products:
    exact = EXACT_PRODUCTS.forward
    return Products(
        forward=exact,
        grad_input=exact,
        grad_weight=exact,
        exceptions={product.name.lower(): Products.same(one) for product, one in chosen.items()},
    )
