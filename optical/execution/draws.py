"""Random numbers for executed products, quick enough not to outlast the product itself."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from optical.execution import fused
from optical.execution.scratch import scratch

_WORD_VALUES = 2**16
"""Values of the 16-bit words that draws on the CPU are made of."""
WORDS_AT_ONCE = 4
"""Words in a number of the generator."""
_LATTICE_GENERATOR = 24247
"""Joins pairs of Gaussians with a correlation of 1e-5, the least of the generators tried."""
_KEY_MASK = 2**64 - 1
_MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, None))
"""Shifts and multipliers of SplitMix64's finalizer."""
_INCREMENT = 0x9E3779B97F4A7C15
"""Odd, near 2**64 over the golden ratio: how far numbers lie apart before they are mixed."""


class Draws:
    """Random draws of one call, in order, from one key.

    On the CPU they are made of 16-bit words, since torch's Mersenne Twister would take longer than the
    product itself: a dither has 65536 values, as has a Gaussian, up to 4.3 sigma. Number i of the generator
    is the finalizer of SplitMix64 for ``key + (i + 1) increment``, so that any of them can be had without the
    others.

    References
    ----------
    Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, section 5.
    """

    def __init__(self, key: int, device: torch.device) -> None:
        self._device = device
        self._key, self._next = _signed(key & _KEY_MASK), 0
        if device.type != "cpu":
            self._generator = torch.Generator(device).manual_seed(key)

    def on_host(self) -> np.random.Generator:
        """Return what draws a few numbers on the host, whatever the device, each time from a new key."""
        return np.random.Generator(np.random.SFC64(self._number()))

    def gaussian(self, shape: torch.Size, dtype: torch.dtype, *, brief: bool = False) -> torch.Tensor:
        """Return independent draws of zero mean and unit variance.

        Parameters
        ----------
        shape, dtype
            Of the result.
        brief : bool
            Whether the result may lie in memory that the next brief draws overwrite.
        """
        if self._device.type != "cpu":
            return torch.empty(shape, dtype=dtype, device=self._device).normal_(generator=self._generator)
        index = torch.from_numpy(self.words(-(-shape.numel() // 2)).astype(np.int32))
        size, device = torch.Size((index.numel(),)), self._device
        out = (
            scratch("pairs", size, torch.float64, device) if brief else torch.empty(size, dtype=torch.float64)
        )
        pairs = torch.index_select(gaussian_pairs(), 0, index, out=out).view(torch.float32)
        return pairs[: shape.numel()].view(shape).to(dtype)

    def poisson(self, mean: torch.Tensor) -> torch.Tensor:
        """Return independent Poisson numbers of these means, in double precision; below zero counts as zero.

        Notes
        -----
        On the CPU they come from a generator of torch's own, keyed from this one's next number.
        """
        if self._device.type != "cpu":
            return torch.poisson(mean.double().clamp_(min=0.0), self._generator)
        generator = torch.Generator().manual_seed(self._number() % 2**63)
        return torch.poisson(mean.double().clamp_(min=0.0), generator)

    def dither_(self, x: torch.Tensor) -> None:
        """Add independent draws, uniform over one step around zero, to a contiguous tensor in place."""
        if self._device.type == "cpu":
            words = torch.from_numpy(self.words(x.numel()).view(np.int16))
            x.add_(words.view(x.shape), alpha=1.0 / _WORD_VALUES)
        else:
            x.add_(torch.empty_like(x).uniform_(-0.5, 0.5, generator=self._generator))

    def words(self, count: int) -> np.ndarray:
        """Return uniform 16-bit words, shape [count], on the CPU."""
        key, first = self.take(count)
        skipped, start = first % WORDS_AT_ONCE, first // WORDS_AT_ONCE
        numbers = -(-(skipped + count) // WORDS_AT_ONCE)
        found = (
            fused.words(key, start, numbers)
            if fused.is_there()
            else _numbers(key, start, numbers).numpy().view(np.uint16)
        )
        return found[skipped : skipped + count]

    def _number(self) -> int:
        """Return 64 bits, from which another generator can be keyed."""
        return int(self.words(WORDS_AT_ONCE).copy().view(np.uint64)[0])

    def take(self, count: int) -> tuple[int, int]:
        """Return the key, as an int64, and the place of the first of so many words, that the caller makes."""
        first = self._next
        self._next += count
        return self._key, first


class Blocks(NamedTuple):
    """Blocks of matrices whose draws are their own."""

    size: int
    """Matrices of a block."""
    keys: Sequence[int]
    """Of their draws."""
    first: int
    """First word of each."""

    def after(self, words: int) -> Blocks:
        """Return the same, so many words for each matrix later."""
        return self._replace(first=self.first + self.size * words)

    @property
    def signed(self) -> list[int]:
        """Keys as `Draws` has them, int64."""
        return [_signed(key & _KEY_MASK) for key in self.keys]


def _numbers(key: int, first: int, count: int) -> torch.Tensor:
    """Return numbers of the generator, int64, shape [count]."""
    x = torch.arange(first + 1, first + 1 + count).mul_(_signed(_INCREMENT)).add_(key)
    for shift, multiplier in _MIXING:
        x.bitwise_xor_(x.bitwise_right_shift(shift).bitwise_and_(2 ** (64 - shift) - 1))
        if multiplier is not None:
            x.mul_(_signed(multiplier))
    return x


def _signed(value: int) -> int:
    """Return the int64 of the same bits."""
    return value - 2**64 if value >= 2**63 else value


@functools.cache
def gaussian_pairs() -> torch.Tensor:
    """Return 65536 equally likely pairs of Gaussians, two float32 in each float64.

    Each member of a pair takes the middles of 65536 equally likely slices, once each; a lattice that fills
    the square evenly joins the two, so that they and their squares are uncorrelated.
    """
    slices = torch.arange(_WORD_VALUES, dtype=torch.float64)
    quantiles = torch.special.ndtri((slices + 0.5) / _WORD_VALUES)
    quantiles = (quantiles / quantiles.square().mean().sqrt()).to(torch.float32)
    partner = (slices * _LATTICE_GENERATOR).remainder(_WORD_VALUES).to(torch.int64)
    return torch.stack((quantiles, quantiles[partner]), 1).view(torch.float64).squeeze(1)
