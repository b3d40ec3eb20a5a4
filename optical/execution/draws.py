"""Random draws of executed products, addressed by key and place rather than drawn in sequence.

Shape suffixes: B matrices, G blocks of them, each with a key of its own.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from simulator.files import kept_on_disk
from simulator.keys import mix_key

try:
    import numba
except ImportError:  # it is an extra; torch does the same
    numba = None  # type: ignore[assignment]

_WORD_VALUES = 2**16
"""Values of the 16-bit words that draws on the CPU are made of."""
WORDS_PER_NUMBER = 4
"""Words in a number of the generator."""
_LATTICE_GENERATOR = 24247
"""Joins pairs of Gaussians with a correlation of 1e-5, the least of the generators tried."""
_KEY_MASK = 2**64 - 1
INCREMENT = 0x9E3779B97F4A7C15
"""Odd, near 2**64 over the golden ratio: how far numbers lie apart before they are mixed."""
MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""Shifts and multipliers of SplitMix64's finalizer, which ends with one further shift."""
LAST_SHIFT = 31
_PIECE = 4096
"""Words that the compiled pass draws at a time."""


class Words(NamedTuple):
    """Words of the generators of all blocks, from the same place in each."""

    keys: np.ndarray
    """Of the blocks, uint64 [G]; none where nothing is drawn."""
    first: int
    """Place of the first word."""


NO_WORDS = Words(np.empty(0, np.uint64), 0)

COMPILES = numba is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
_STEP, _LAST_SHIFT = np.uint64(INCREMENT), np.uint64(LAST_SHIFT)
_SHIFTS = tuple(np.uint64(shift) for shift, _ in MIXING)
_MULTIPLIERS = tuple(np.uint64(multiplier) for _, multiplier in MIXING)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # noqa: ANN401
    """Return what makes a function one that is compiled at its first call."""
    if numba is None:
        return lambda function: function
    decorator = functools.partial(numba.njit, nogil=True, error_model="numpy", **options)
    return functools.partial(kept_on_disk, decorator)


inner = compiled(no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""For functions that only compiled ones call, which takes half the time."""


@inner
def fill(numbers: np.ndarray, key: np.uint64, first: int) -> int:
    """Write numbers of a generator that hold the words from a first one; return where that begins."""
    start = key + np.uint64(first // WORDS_PER_NUMBER + 1) * _STEP
    for place in range(numbers.size):
        x = start + np.uint64(place) * _STEP
        x = (x ^ (x >> _SHIFTS[0])) * _MULTIPLIERS[0]
        x = (x ^ (x >> _SHIFTS[1])) * _MULTIPLIERS[1]
        numbers[place] = x ^ (x >> _LAST_SHIFT)
    return first % WORDS_PER_NUMBER


@inner
def look_up(words: np.ndarray, pairs: np.ndarray, drawn: np.ndarray) -> None:
    """Write the pair of each word."""
    for place in range(drawn.size):
        drawn[place] = pairs[words[place]]


@compiled()
def _write_gaussians(words: Words, pairs: np.ndarray, out: np.ndarray) -> None:
    """Write Gaussians of each block, [G, count], from pairs of them by word."""
    blocks, count = out.shape
    numbers = np.zeros(_PIECE // WORDS_PER_NUMBER + 2, np.uint64)
    drawn = np.zeros(_PIECE, np.float64)
    for block in range(blocks):
        for begin in range(0, (count + 1) // 2, _PIECE):
            start = fill(numbers, words.keys[block], words.first + begin)
            look_up(numbers.view(np.uint16)[start : start + _PIECE], pairs, drawn)
            _copy_some(drawn.view(np.float32), out[block, 2 * begin :])


@inner
def _copy_some(values: np.ndarray, out: np.ndarray) -> None:
    for place in range(min(values.size, out.size)):
        out[place] = values[place]


class Draws:
    """Random draws of the blocks of a product, in order, from one key for each block.

    What a block draws hangs on its key and on what it drew before, not on the other blocks that are executed
    with it. On the CPU draws are made of 16-bit words, since torch's Mersenne Twister would take longer than
    the product itself: a dither has 65536 values, as has a Gaussian, up to 4.3 sigma. Number i of a block is
    the finalizer of SplitMix64 for ``key + (i + 1) increment``, so that any of them can be had without the
    others. An accelerator draws from torch's own generator there.

    Parameters
    ----------
    keys : sequence of int
        One for each block, taken modulo 2**64.
    device : torch.device
        Where draws go.

    References
    ----------
    Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, section 5.
    """

    def __init__(self, keys: Sequence[int], device: torch.device) -> None:
        self.keys, self.blocks = np.array([key & _KEY_MASK for key in keys], np.uint64), len(keys)
        self._device, self._next = device, 0
        self._generators = [
            torch.Generator(device).manual_seed(int(key)) for key in self.keys if device.type != "cpu"
        ]

    def take(self, count: int) -> Words:
        """Return the next so many words of every block, which the caller makes."""
        first = self._next
        self._next += count
        return Words(self.keys, first)

    def words(self, count: int) -> torch.Tensor:
        """Return uniform 16-bit words of every block on the CPU, int16, shape [G, count]."""
        start, skipped = divmod(self.take(count).first, WORDS_PER_NUMBER)
        numbers = _numbers(self.keys, start, -(-(skipped + count) // WORDS_PER_NUMBER))
        return numbers.view(torch.int16)[:, skipped : skipped + count]

    def gaussian(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        """Return independent draws of zero mean and unit variance.

        Parameters
        ----------
        shape : torch.Size
            Of the result; the first dimension is divided evenly among the blocks.
        dtype : torch.dtype
            Of the result.
        """
        if self._generators:
            out = torch.empty(shape, dtype=dtype, device=self._device)
            for part, generator in zip(out.chunk(self.blocks), self._generators, strict=True):
                part.normal_(generator=generator)
            return out
        count = shape.numel() // self.blocks
        if COMPILES and dtype == torch.float32:
            drawn = torch.empty((self.blocks, count))
            _write_gaussians(self.take(-(-count // 2)), gaussian_pairs().numpy(), drawn.numpy())
            return drawn.view(shape)
        index = self.words(-(-count // 2)).to(torch.int32).bitwise_and_(_WORD_VALUES - 1)
        return gaussian_pairs()[index].view(torch.float32)[:, :count].reshape(shape).to(dtype)

    def skip(self, shape: torch.Size) -> None:
        """Pass over the Gaussians of a shape on the CPU, which nobody needs."""
        self.take(-(-(shape.numel() // self.blocks) // 2))

    def dither(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        """Return independent draws, uniform over one step around zero; parameters as of `gaussian`."""
        if self._generators:
            out = torch.empty(shape, dtype=dtype, device=self._device)
            for part, generator in zip(out.chunk(self.blocks), self._generators, strict=True):
                part.uniform_(-0.5, 0.5, generator=generator)
            return out
        return self.words(shape.numel() // self.blocks).to(dtype).mul_(1.0 / _WORD_VALUES).view(shape)

    def poisson(self, mean: torch.Tensor) -> torch.Tensor:
        """Return independent Poisson numbers of these means, in double precision; below zero counts as zero.

        Notes
        -----
        On the CPU they come from generators of torch's own, keyed from the next number of each block.
        """
        generators = self._generators or [
            torch.Generator().manual_seed(number % 2**63) for number in self._next_numbers()
        ]
        parts = zip(mean.double().clamp_(min=0.0).chunk(self.blocks), generators, strict=True)
        return torch.cat([torch.poisson(part, generator) for part, generator in parts])

    def on_host(self) -> np.random.Generator:
        """Return a source of a few numbers on the host, whatever the device, for draws of a single block."""
        (number,) = self._next_numbers()
        return np.random.Generator(np.random.SFC64(number))

    def _next_numbers(self) -> list[int]:
        """Return 64 bits of each block, from which other generators can be keyed."""
        return self.words(WORDS_PER_NUMBER).contiguous().numpy().view(np.uint64)[:, 0].tolist()


def _numbers(keys: np.ndarray, first: int, count: int) -> torch.Tensor:
    """Return numbers of the generator, int64, shape [G, count]."""
    x = torch.arange(first + 1, first + 1 + count).mul_(_signed(INCREMENT))
    x = x + torch.from_numpy(keys.view(np.int64))[:, None]
    for shift, multiplier in MIXING:
        _fold(x, shift).mul_(_signed(multiplier))
    return _fold(x, LAST_SHIFT)


def _fold(x: torch.Tensor, shift: int) -> torch.Tensor:
    """Mix the upper bits of 64 into the lower ones, in place."""
    return x.bitwise_xor_(x.bitwise_right_shift(shift).bitwise_and_(2 ** (64 - shift) - 1))


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


def fixed_gains(
    seed: int, kind: int, parts: tuple[int, int], variance: float, *, over: tuple[int, ...]
) -> torch.Tensor:
    """Return the gains of a chip's parts of one kind, repeated over a matrix; the same on every device.

    Parameters
    ----------
    seed : int
        Of the chip.
    kind : int
        Tells kinds of parts of one chip apart.
    parts : tuple of int
        Rows and columns of parts.
    variance : float
        Of a gain, relative; their mean is 1.
    over : tuple of int
        Rows and columns of the matrix.
    """
    grid = _grid_of_gains(seed, kind, parts, variance)
    repeats = [-(-size // count) for size, count in zip(over, parts, strict=True)]
    return grid.repeat(*repeats)[: over[0], : over[1]]


@functools.lru_cache(maxsize=64)
def _grid_of_gains(seed: int, kind: int, parts: tuple[int, int], variance: float) -> torch.Tensor:
    draws = Draws([mix_key(seed, kind)], torch.device("cpu"))
    return draws.gaussian(torch.Size(parts), torch.float32).mul_(math.sqrt(variance)).add_(1.0)
