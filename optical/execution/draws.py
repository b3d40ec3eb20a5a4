"""Random numbers for executed products, from a counter-based generator.

Each block of a product has a key. Random number i of a block is a function of its key and of i alone
(SplitMix64), so that blocks can be executed in any order, together or apart, on any number of threads, with
the same draws. On the CPU each 64-bit number is used as four 16-bit words: a word is a dither, or the index
of a pair of Gaussians in a table (`gaussian_pairs`).

Shape suffixes: B matrices of a product; G blocks, each of B / G matrices and with a key of its own.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
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
"""Number of values of a 16-bit word."""
WORDS_PER_NUMBER = 4
"""16-bit words in a 64-bit number of the generator."""
_LATTICE_GENERATOR = 24247
"""Multiplier of the lattice that pairs Gaussians (`gaussian_pairs`); of the numbers tried, the one that
leaves them least correlated, 1e-5."""
_KEY_MASK = 2**64 - 1
_INCREMENT = 0x9E3779B97F4A7C15
"""SplitMix64's step from one state to the next: an odd number near 2**64 over the golden ratio."""
_MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""Shifts and multipliers of SplitMix64's finalizer, which ends with one further shift."""
_LAST_SHIFT_BITS = 31
_WORDS_AT_ONCE = 4096
"""Words that the compiled pass draws at a time, so that they stay in the cache; a choice."""


class WordStream(NamedTuple):
    """Position in the streams of random words of all blocks, the same in each.

    Compiled passes draw from it.
    """

    keys: np.ndarray
    """Key of each block, uint64 [G]; empty where nothing is drawn."""
    first: int
    """Index of the next word in each block's stream."""


NO_STREAM = WordStream(np.empty(0, np.uint64), 0)

_SOURCE = hashlib.blake2b(Path(__file__).read_bytes(), digest_size=6).hexdigest()
"""Digest of this file."""
COMPILES = numba is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
_STEP, _LAST_SHIFT = np.uint64(_INCREMENT), np.uint64(_LAST_SHIFT_BITS)
_SHIFTS = tuple(np.uint64(shift) for shift, _ in _MIXING)
_MULTIPLIERS = tuple(np.uint64(multiplier) for _, multiplier in _MIXING)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # noqa: ANN401
    """Return a decorator: numba compiles the function at its first call and keeps the code on disk.

    Without numba the function stays as it is.
    """
    if numba is None:
        return lambda function: function
    decorator = functools.partial(numba.njit, nogil=True, error_model="numpy", **options)

    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        # To numba, code is stale if the function's own file was edited; what it calls stands in this one.
        function.__qualname__ += f"_{_SOURCE}"
        kept: Callable[..., Any] = kept_on_disk(decorator, function)
        return kept

    return keep


compiled_helper = compiled(no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Decorator of functions that only compiled ones call: without an entry from Python they compile in half the
time."""


@compiled_helper
def fill_numbers(numbers: np.ndarray, key: np.uint64, first: int) -> int:
    """Write the 64-bit numbers that hold a block's words from word `first` on.

    Returns the index of that word among the 16-bit words of `numbers`, 0 to 3.
    """
    start = key + np.uint64(first // WORDS_PER_NUMBER + 1) * _STEP
    for place in range(numbers.size):
        x = start + np.uint64(place) * _STEP
        x = (x ^ (x >> _SHIFTS[0])) * _MULTIPLIERS[0]
        x = (x ^ (x >> _SHIFTS[1])) * _MULTIPLIERS[1]
        numbers[place] = x ^ (x >> _LAST_SHIFT)
    return first % WORDS_PER_NUMBER


@compiled_helper
def look_up_pairs(words: np.ndarray, pairs: np.ndarray, drawn: np.ndarray) -> None:
    """Write `pairs[word]` for each 16-bit word: two float32 Gaussians in a float64 (`gaussian_pairs`)."""
    for place in range(drawn.size):
        drawn[place] = pairs[words[place]]


@compiled()
def _write_gaussians(stream: WordStream, pairs: np.ndarray, out: np.ndarray) -> None:
    """Fill `out`, float32 [G, count], with standard Gaussians; one word of a block gives two of them."""
    blocks, count = out.shape
    numbers = np.zeros(_WORDS_AT_ONCE // WORDS_PER_NUMBER + 2, np.uint64)
    drawn = np.zeros(_WORDS_AT_ONCE, np.float64)
    for block in range(blocks):
        for begin in range(0, (count + 1) // 2, _WORDS_AT_ONCE):
            start = fill_numbers(numbers, stream.keys[block], stream.first + begin)
            look_up_pairs(numbers.view(np.uint16)[start : start + _WORDS_AT_ONCE], pairs, drawn)
            _copy_up_to_shorter(drawn.view(np.float32), out[block, 2 * begin :])


@compiled_helper
def _copy_up_to_shorter(values: np.ndarray, out: np.ndarray) -> None:
    for place in range(min(values.size, out.size)):
        out[place] = values[place]


class Draws:
    """Source of random numbers for the blocks of a product, one stream for each block.

    State: the keys, and a counter of the words that every block has used. A block's draws depend on its key
    and on its earlier draws only, not on the blocks that are executed with it.

    Parameters
    ----------
    keys : sequence of int
        One for each block, taken modulo 2**64.
    device : torch.device
        Device of the draws.

    Notes
    -----
    On the CPU number i of a block is SplitMix64's finalizer of ``key + (i + 1) _INCREMENT``, used as four
    16-bit words: torch's Mersenne Twister would take longer than the product itself. A dither thus has 65536
    values, and so has a Gaussian, up to 4.3 sigma. On an accelerator torch's own generator draws, seeded with
    each key.

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

    def take(self, count: int) -> WordStream:
        """Return the position of the next `count` words of every block, which a compiled pass will draw."""
        first = self._next
        self._next += count
        return WordStream(self.keys, first)

    def words(self, count: int) -> torch.Tensor:
        """Return the next `count` words of every block, uniform int16 on the CPU, shape [G, count]."""
        start, skipped = divmod(self.take(count).first, WORDS_PER_NUMBER)
        numbers = _numbers(self.keys, start, -(-(skipped + count) // WORDS_PER_NUMBER))
        return numbers.view(torch.int16)[:, skipped : skipped + count]

    def gaussian(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        """Return independent standard Gaussians.

        Parameters
        ----------
        shape : torch.Size
            Shape of the result; its first dimension is divided evenly among the blocks.
        dtype : torch.dtype
            Type of the result.
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
        """Advance the streams on the CPU as `gaussian` would for a shape, without drawing."""
        self.take(-(-(shape.numel() // self.blocks) // 2))

    def dither(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        """Return independent draws, uniform from -1/2 to 1/2; parameters as in `gaussian`."""
        if self._generators:
            out = torch.empty(shape, dtype=dtype, device=self._device)
            for part, generator in zip(out.chunk(self.blocks), self._generators, strict=True):
                part.uniform_(-0.5, 0.5, generator=generator)
            return out
        return self.words(shape.numel() // self.blocks).to(dtype).mul_(1.0 / _WORD_VALUES).view(shape)

    def poisson(self, mean: torch.Tensor) -> torch.Tensor:
        """Return independent Poisson numbers, float64, of the given means; a negative mean counts as zero.

        Notes
        -----
        torch draws them; on the CPU from one generator for each block, seeded with its next number.
        """
        generators = self._generators or [
            torch.Generator().manual_seed(number % 2**63) for number in self._next_numbers()
        ]
        parts = zip(mean.double().clamp_(min=0.0).chunk(self.blocks), generators, strict=True)
        return torch.cat([torch.poisson(part, generator) for part, generator in parts])

    def on_host(self) -> np.random.Generator:
        """Return a numpy generator seeded from the stream, for few numbers; needs a single block."""
        (number,) = self._next_numbers()
        return np.random.Generator(np.random.SFC64(number))

    def _next_numbers(self) -> list[int]:
        """Return the next 64-bit number of each block, to seed other generators with."""
        return self.words(WORDS_PER_NUMBER).contiguous().numpy().view(np.uint64)[:, 0].tolist()


def _numbers(keys: np.ndarray, first: int, count: int) -> torch.Tensor:
    """Return `count` numbers of each block's stream from number `first` on, as int64, shape [G, count]."""
    x = torch.arange(first + 1, first + 1 + count).mul_(_signed(_INCREMENT))
    x = x + torch.from_numpy(keys.view(np.int64))[:, None]
    for shift, multiplier in _MIXING:
        _fold(x, shift).mul_(_signed(multiplier))
    return _fold(x, _LAST_SHIFT_BITS)


def _fold(x: torch.Tensor, shift: int) -> torch.Tensor:
    """Return ``x ^ (x >> shift)`` in place, the shift unsigned."""
    return x.bitwise_xor_(x.bitwise_right_shift(shift).bitwise_and_(2 ** (64 - shift) - 1))


def _signed(value: int) -> int:
    """Return the int64 with the bits of an unsigned 64-bit number."""
    return value - 2**64 if value >= 2**63 else value


@functools.cache
def gaussian_pairs() -> torch.Tensor:
    """Return a table of 65536 equally likely pairs of standard Gaussians, two float32 packed in each float64.

    Each member of a pair takes 65536 quantiles, the middles of equally likely slices, once each. The second
    member is the first one's permuted by a rank-1 lattice, which fills the square evenly: the two, and their
    squares, are uncorrelated.
    """
    slices = torch.arange(_WORD_VALUES, dtype=torch.float64)
    quantiles = torch.special.ndtri((slices + 0.5) / _WORD_VALUES)
    quantiles = (quantiles / quantiles.square().mean().sqrt()).to(torch.float32)
    partner = (slices * _LATTICE_GENERATOR).remainder(_WORD_VALUES).to(torch.int64)
    return torch.stack((quantiles, quantiles[partner]), 1).view(torch.float64).squeeze(1)


def fixed_gains(
    seed: int, kind: int, grid: tuple[int, int], variance: float, *, shape: tuple[int, ...]
) -> torch.Tensor:
    """Return the gain that each element of a matrix meets on a chip, the same on every device.

    The chip has a grid of parts, each with a fixed gain; a matrix larger than the grid is processed piece by
    piece, so that the grid repeats over it.

    Parameters
    ----------
    seed : int
        Seed of the chip.
    kind : int
        Kind of the parts; other kinds on one chip have other gains.
    grid : tuple of int
        Rows and columns of parts.
    variance : float
        Variance of a gain, dimensionless; the mean is 1.
    shape : tuple of int
        Rows and columns of the matrix.
    """
    gains = _drawn_gains(seed, kind, grid, variance)
    repeats = [-(-size // count) for size, count in zip(shape, grid, strict=True)]
    return gains.repeat(*repeats)[: shape[0], : shape[1]]


@functools.lru_cache(maxsize=64)
def _drawn_gains(seed: int, kind: int, grid: tuple[int, int], variance: float) -> torch.Tensor:
    """Return the gains of a chip's parts, shape `grid`."""
    draws = Draws([mix_key(seed, kind)], torch.device("cpu"))
    return draws.gaussian(torch.Size(grid), torch.float32).mul_(math.sqrt(variance)).add_(1.0)
