"""Runs conversion and readout in compiled passes where numba is installed, and says where it cannot.

What is left out (no numba, an accelerator, double precision, an odd number of columns, outputs that a chip
distorts) is left to torch, with the same draws.

Shape suffixes: B batch, R rows and C columns of an operand as it lies in memory, M rows and N columns of a
product.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from optical.fused_threads import in_parts

if TYPE_CHECKING:
    from optical.draws import Draws

_SAMPLED = 256
"""Elements that a digest reads."""


class Kernels(NamedTuple):
    """Compiled functions."""

    draws: ModuleType
    """Of the words of a generator."""
    encoding: ModuleType
    """Of operands."""
    readout: ModuleType
    """Of products."""


@functools.cache
def _kernels() -> Kernels | None:
    """Return the compiled functions, or None where numba is not installed."""
    try:
        from optical import fused_draws, fused_kernels, fused_readout  # noqa: PLC0415 - slow, not always there
    except ImportError:
        return None
    return Kernels(fused_draws, fused_kernels, fused_readout)


def is_there() -> bool:
    """Return whether there are compiled functions."""
    return _kernels() is not None


def fuses(x: torch.Tensor) -> bool:
    """Return whether compiled functions take such tensors."""
    return x.dtype == torch.float32 and x.device.type == "cpu" and _kernels() is not None


def kernels() -> Kernels:
    """Return the compiled functions, where `fuses` says that there are any."""
    found = _kernels()
    if found is None:
        msg = "compiled passes need numba; ask fuses() first"
        raise RuntimeError(msg)
    return found


class Grid(NamedTuple):
    """How values reach a converter's codes."""

    reach: float
    """Code of full scale."""
    smallest: float
    """Least full scale."""
    summed_dim: int
    """-1 where columns are summed over, -2 where rows are."""
    own: bool
    """Whether elements that are summed share a full scale, rather than all elements."""


def encode(
    x_BRC: torch.Tensor,
    codes_BRC: torch.Tensor,
    grid: Grid,
    dither: Draws | None,
    energy: torch.Tensor | None,
) -> torch.Tensor:
    """Round a contiguous operand to codes and return its full scale.

    Parameters
    ----------
    x_BRC, codes_BRC : torch.Tensor
        Operand and result, int8 or float32.
    grid : Grid
        Of the converter.
    dither : Draws or None
        What stochastic rounding draws from.
    energy : torch.Tensor or None
        Where sums of squared codes go, [B, R, 1] or [B, 1, C].

    Returns
    -------
    torch.Tensor
        [B, R, 1], [B, 1, C] or [1, 1, 1].
    """
    batch, rows, columns = x_BRC.shape
    by_rows = grid.summed_dim == -1
    if not grid.own:
        scale = x_BRC.new_empty((1, 1, 1))
    else:
        scale = x_BRC.new_empty((batch, rows, 1) if by_rows else (batch, 1, columns))
    source = (0, 0) if dither is None else dither.take(batch * rows * columns)
    memory = (
        x_BRC.data_ptr(),
        codes_BRC.data_ptr(),
        scale.data_ptr(),
        0 if energy is None else energy.data_ptr(),
    )
    whole, how = codes_BRC.dtype == torch.int8, (dither is not None, *source)
    grids = (np.float32(grid.reach), np.float32(grid.smallest), by_rows, grid.own)
    passes, count = kernels().encoding, batch * rows * columns
    if not grid.own:
        passes.find_scale(memory, count, grids[1])

    def run(start: int, end: int) -> None:
        passes.encode(memory, whole, (batch, rows, columns, start, end), grids, how)

    in_parts(run, batch * rows if by_rows else columns, count)
    return scale


def split(codes: torch.Tensor, high: torch.Tensor, low: torch.Tensor, both: torch.Tensor) -> None:
    """Divide whole codes, contiguous, into halves of 7 bits, and their sums."""
    source, *halves = (part.data_ptr() for part in (codes, high, low, both))
    passes = kernels().encoding

    def run(start: int, end: int) -> None:
        passes.split(source + 4 * start, tuple(half + start for half in halves), end - start)

    in_parts(run, codes.numel(), codes.numel())


def join(sums: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
    """Add contiguous products of halves: high by high, low by low, sum by sum."""
    result, *parts = (part.data_ptr() for part in (out, *sums))
    passes = kernels().encoding

    def run(start: int, end: int) -> None:
        passes.join(tuple(part + 4 * start for part in parts), result + 4 * start, end - start)

    in_parts(run, out.numel(), out.numel())


def words(key: int, first: int, numbers: int) -> np.ndarray:
    """Return the words of some numbers of a generator (`optical.draws.Draws.take`), uint16."""
    memory = np.empty(numbers, np.uint64)
    kernels().draws.draw(key, first, memory)
    return memory.view(np.uint16)


def digest(x: torch.Tensor) -> int:
    """Return a hash of 256 elements that are spread evenly over a tensor without gaps."""
    count = x.numel()
    step = max(1, count // _SAMPLED) | 1
    return int(kernels().encoding.digest(x.data_ptr(), count, step % count))
