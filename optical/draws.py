"""Random numbers for executed products, quick enough not to outlast the product itself."""

from __future__ import annotations

import functools

import numpy as np
import torch

from optical.scratch import scratch

_WORD_VALUES = 2**16
"""Values of the 16-bit words that draws on the CPU are made of."""
_LATTICE_GENERATOR = 24247
"""Joins pairs of Gaussians with a correlation of 1e-5, the least of the generators tried."""


WORD_GAUSSIANS = 8
"""Gaussians that a word of the generator gives on the CPU."""


class Draws:
    """Random draws of one call, in order, from one key.

    On the CPU they are made of 16-bit words of SFC64, since torch's Mersenne Twister would take longer than
    the product itself: a dither has 65536 values, as has a Gaussian, up to 4.3 sigma.
    """

    def __init__(self, key: int, device: torch.device) -> None:
        self._device = device
        if device.type == "cpu":
            self._words = np.random.SFC64(key)
        else:
            self._generator = torch.Generator(device).manual_seed(key)

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
        On the CPU they come from a generator of torch's own, keyed from this one's next word.
        """
        if self._device.type != "cpu":
            return torch.poisson(mean.double().clamp_(min=0.0), self._generator)
        generator = torch.Generator().manual_seed(int(self._words.random_raw()) % 2**63)
        return torch.poisson(mean.double().clamp_(min=0.0), generator)

    def rare(self, chance: float, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the places of rare events among so many, and a sign, 1 or -1, for each. On the CPU only.

        Parameters
        ----------
        chance : float
            Of one event, 0 to 1. A place may come twice, which a rare event does not.
        count : int
            Places.
        """
        generator = np.random.Generator(self._words)
        events = generator.binomial(count, chance)
        places, signs = generator.integers(count, size=events), generator.integers(2, size=events)
        return torch.from_numpy(places), torch.from_numpy(2 * signs - 1)

    def dither_(self, x: torch.Tensor) -> None:
        """Add independent draws, uniform over one step around zero, to a contiguous tensor in place."""
        if self._device.type == "cpu":
            words = torch.from_numpy(self.words(x.numel()).view(np.int16))
            x.add_(words.view(x.shape), alpha=1.0 / _WORD_VALUES)
        else:
            x.add_(torch.empty_like(x).uniform_(-0.5, 0.5, generator=self._generator))

    def words(self, count: int) -> np.ndarray:
        """Return uniform 16-bit words, shape [count]."""
        return self._words.random_raw(-(-count // 4)).view(np.uint16)[:count]


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
