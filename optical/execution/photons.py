"""Executes products with a given number of photons per multiplication, counted one by one or in homodyne.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import torch

from optical.execution.numerics import AnalogNumerics
from optical.execution.spec import AnalogSpec
from simulator.checks import check_positive

_TINY = 1e-30
"""Full scale of an operand that is all zero, so that nothing is divided by zero."""


class Signs(StrEnum):
    """Encoding of signed operands in light, which is never negative."""

    OFFSET = "offset"
    """Operands are moved to zero and above; the digital side takes what the offsets add off."""
    PAIR = "pair"
    """Products above and below zero go to one detector each; the digital side takes the difference."""


@dataclass(frozen=True, kw_only=True)
class CountingNumerics:
    """Products of intensities whose photons are counted by ideal detectors.

    Notes
    -----
    An input x >= 0 is a brightness and a weight w a transmission v in [0, 1]; a detector adds a whole dot
    product and counts Poisson(g sum(x v)) photons. An input of either sign takes two brightnesses: as a pair,
    one for its part above zero and one for that below, each with transmissions of its own to both detectors;
    with offsets, one that is moved by the least input, as the weights are by theirs. The gain g makes the
    mean count of all outputs, over the number of products, `photons_per_mac`: photons are detected ones,
    averaged over data and weights, as Wang counts them. The relative noise of an output falls as one over the
    square root of its whole count, hence longer vectors need fewer photons per multiplication.

    References
    ----------
    T. Wang et al., "An optical neural network using less than 1 photon per multiplication", Nature
    Communications 13, 123 (2022).
    """

    photons_per_mac: float
    """Detected photons per multiplication, dimensionless."""
    signs: Signs = Signs.OFFSET
    """How weights below zero are carried."""

    def __post_init__(self) -> None:
        check_positive(self, "photons_per_mac")

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product as counted, shape [B, M, N]."""
        generator = torch.Generator(a_BMK.device).manual_seed(key)
        if self.signs is Signs.PAIR:
            rates = _pair(a_BMK, b_BKN)
            gain = self._gain(float(rates[0].mean() + rates[1].mean()), a_BMK.shape[-1])
            plus, minus = (torch.poisson(gain * rate, generator) for rate in rates)
            return (plus - minus) / gain
        least, dimmest = b_BKN.min(), a_BMK.min().clamp(max=0.0)
        bright_BMK = a_BMK - dimmest
        rate = torch.bmm(bright_BMK, b_BKN - least)
        gain = self._gain(float(rate.mean()), a_BMK.shape[-1])
        added = least * bright_BMK.sum(-1, keepdim=True) + dimmest * b_BKN.sum(-2, keepdim=True)
        return torch.poisson(gain * rate, generator) / gain + added

    def _gain(self, mean_rate: float, length: int) -> float:
        return self.photons_per_mac * length / max(mean_rate, _TINY)


class LitCore(Protocol):
    """A core whose light is set product by product."""

    def spec(self, mean_square: float) -> AnalogSpec:
        """Return what reaches a product whose operands have a mean square, full scale being 1."""
        ...


@dataclass(frozen=True, kw_only=True)
class HomodyneNumerics:
    """Products of fields in a homodyne core whose laser is set, product by product, for so many photons.

    Notes
    -----
    Photons are those of both operands at their actual mean squares, each row of A and column of B at its own
    full scale; what a product suffers is the specification of the core so lit, executed by `AnalogNumerics`.
    """

    lit: LitCore
    """The core and its photons."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product as the core delivers it, shape [B, M, N].

        Raises
        ------
        LinkError
            If the core cannot work with so few, or so many, photons.
        """
        mean_square = 0.5 * (_mean_square(a_BMK, -1) + _mean_square(b_BKN, -2))
        spec = self.lit.spec(max(mean_square, math.sqrt(_TINY)))
        return AnalogNumerics(spec).matmul(a_BMK, b_BKN, key)


def _pair(a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums of products above zero and of those below, both without sign, shapes [B, M, N]."""
    above_BKN, below_BKN = b_BKN.clamp(min=0.0), (-b_BKN).clamp(min=0.0)
    if not bool((a_BMK < 0.0).any()):
        return torch.bmm(a_BMK, above_BKN), torch.bmm(a_BMK, below_BKN)
    light_BMK = torch.cat((a_BMK.clamp(min=0.0), (-a_BMK).clamp(min=0.0)), -1)
    like_BKN, unlike_BKN = torch.cat((above_BKN, below_BKN), -2), torch.cat((below_BKN, above_BKN), -2)
    return torch.bmm(light_BMK, like_BKN), torch.bmm(light_BMK, unlike_BKN)


def _mean_square(x: torch.Tensor, summed_dim: int) -> float:
    """Return the mean square of an operand whose vectors are at full scale."""
    full = x.abs().amax(summed_dim, keepdim=True).clamp_(min=_TINY)
    return float((x / full).square().mean())
