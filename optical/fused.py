"""Runs conversion and readout in compiled passes where numba is installed, and says where it cannot.

What is left out (no numba, an accelerator, double precision, an odd number of columns, errors of a chip) is
left to torch, with the same draws.

Shape suffixes: B batch, R rows and C columns of an operand as it lies in memory, M rows and N columns of a
product.
"""

from __future__ import annotations

import ctypes
import functools
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch

from optical.draws import Draws, gaussian_pairs

_TYPES = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.int8: np.int8,
    torch.int32: np.int32,
}
_NO_ROWS = np.zeros(0, np.float32)
_NO_COLUMNS = np.zeros((0, 0), np.float32)
_NO_WORDS = np.zeros(0, np.uint16)
_NO_DITHER = np.zeros((0, 0), np.int16)


@functools.cache
def _kernels() -> ModuleType | None:
    """Return the compiled functions, or None where numba is not installed."""
    try:
        from optical import fused_kernels  # noqa: PLC0415 - slow, and not always there
    except ImportError:
        return None
    return fused_kernels


def fuses(x: torch.Tensor) -> bool:
    """Return whether compiled functions take such tensors."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and _kernels() is not None


class Grid(NamedTuple):
    """How values reach a converter's codes."""

    reach: float
    """Code of full scale."""
    smallest: float
    """Least full scale."""
    dim: int | None
    """Dimension along which elements share a full scale, -1 or -2; None where all do."""


def convert(
    x_BRC: torch.Tensor,
    codes_BRC: torch.Tensor,
    grid: Grid,
    dither: Draws | None,
    energy: torch.Tensor | None,
) -> torch.Tensor:
    """Round an operand to codes and return its full scale.

    Parameters
    ----------
    x_BRC, codes_BRC : torch.Tensor
        Operand and result, int8 or float32.
    grid : Grid
        Of the converter.
    dither : Draws or None
        What stochastic rounding draws from.
    energy : torch.Tensor or None
        Zeros where sums of squared codes go, [B, R, 1] or [B, 1, C].

    Returns
    -------
    torch.Tensor
        [B, R, 1], [B, 1, C] or [1, 1, 1].
    """
    kernels, (batch, rows, columns) = _module(), x_BRC.shape
    x, codes = _array(x_BRC), _array(codes_BRC)
    words = _NO_DITHER if dither is None else dither.words(x.size).view(np.int16).reshape(-1, columns)
    reach, smallest = np.float32(grid.reach), np.float32(grid.smallest)
    if grid.dim == -1:
        scale = np.empty(batch * rows, np.float32)
        squares = _NO_ROWS if energy is None else _array(energy).reshape(-1)
        flat = (part.reshape(-1, columns) for part in (x, codes))
        kernels.convert_rows(*flat, (reach, smallest), words, (scale, squares))
        return torch.from_numpy(scale).view(batch, rows, 1)
    if grid.dim is None:
        scale = np.full((1, 1), smallest)
        kernels.largest_of_rows(x.reshape(1, -1).view(np.int32), scale.reshape(-1).view(np.int32))
    else:
        scale = np.full((batch, columns), smallest)
        kernels.largest_of_columns(x.view(np.int32), scale.view(np.int32))
    sums = (
        _NO_COLUMNS if energy is None else _array(energy).reshape(-1, 1 if energy.shape[2] == 1 else columns)
    )
    kernels.convert(x, codes, reach / scale, words, sums)
    return torch.from_numpy(scale).unsqueeze(1)


def split(codes: torch.Tensor, high: torch.Tensor, low: torch.Tensor) -> None:
    """Divide whole codes into halves of 7 bits."""
    _module().split(_array(codes).reshape(-1), _array(high).reshape(-1), _array(low).reshape(-1))


def join(sums: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
    """Add products of halves: high by high, high by low, low by high, low by low."""
    _module().join(tuple(_array(part).reshape(-1) for part in sums), _array(out).reshape(-1))


class Readout(NamedTuple):
    """What happens to a block of products; sizes of 1 broadcast."""

    variance: tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]
    """By row [B, M, 1] (None without noise), by column [B, 1, N], and the factors of a product of both."""
    row_scale: torch.Tensor
    """[B, M, 1]."""
    column_scale: torch.Tensor | None
    """[B, 1, N]."""
    per_step: torch.Tensor | None
    """Codes of the converter per unit."""
    levels: int
    """Largest code."""


def finish(product_BMN: torch.Tensor, how: Readout, draws: Draws, out_BMN: torch.Tensor) -> None:
    """Add noise to exact products, convert and scale them.

    Parameters
    ----------
    product_BMN, out_BMN : torch.Tensor
        Products of codes, int32 or float32, and result.
    how : Readout
        What is done.
    draws : Draws
        Source of noise.
    """
    by_row, by_column, row_factor, column_factor = how.variance
    words = _NO_WORDS if by_row is None else draws.words(product_BMN.numel() // 2)
    if column_factor is not None and by_column is None:
        by_column = torch.zeros_like(column_factor[:1, :, :1])
    batch, _, columns = product_BMN.shape
    variance = (
        _flat(by_row),
        _broad(by_column, batch, columns),
        _flat(row_factor),
        _broad(column_factor, batch, columns),
    )
    scale = (_flat(how.row_scale), _broad(how.column_scale, batch, columns))
    converter = (np.float32(0.0 if how.per_step is None else how.per_step), np.float32(how.levels))
    noise = (words, _array(gaussian_pairs()))
    _module().finish(_array(product_BMN), noise, variance, (*scale, *converter), _array(out_BMN))


def _flat(x: torch.Tensor | None) -> np.ndarray:
    """Return what belongs to rows, [B M], or to all, [1]."""
    return _NO_ROWS if x is None else _array(x).reshape(-1)


def _broad(x: torch.Tensor | None, batch: int, columns: int) -> np.ndarray:
    """Return what belongs to columns, [B, N]."""
    if x is None:
        return _NO_COLUMNS
    if x.shape != (batch, 1, columns) or not x.is_contiguous():
        x = x.expand(batch, 1, columns).contiguous()
    return _array(x).reshape(batch, columns)


def _array(x: torch.Tensor) -> np.ndarray:
    """Return a contiguous tensor's memory; `torch.Tensor.numpy` would forbid sharded training to free it."""
    memory = (ctypes.c_char * x.nbytes).from_address(x.data_ptr())
    memory.tensor = x  # type: ignore[attr-defined] # lives as long as the array that reads its memory
    return np.frombuffer(memory, _TYPES[x.dtype]).reshape(x.shape)  # type: ignore[call-overload]


def _module() -> ModuleType:
    kernels = _kernels()
    if kernels is None:
        msg = "compiled passes need numba; ask fuses() first"
        raise RuntimeError(msg)
    return kernels
