"""Codes laid out for a CPU's matrix unit, and their products there; what has no such unit is left to torch.

Shape suffixes: M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from optical import fused
from optical.fused_threads import Job

_ROWS, _BYTES = 16, 64
"""Of a tile."""
_PAIR = 2 * _ROWS
"""Rows of A, and columns of B, that are multiplied at a time."""


@functools.cache
def are_there() -> bool:
    """Return whether this CPU multiplies tiles, and there are functions compiled for it."""
    if not fused.is_there():
        return False
    from optical import amx  # noqa: PLC0415 - needs numba

    return amx.is_there()


class Layout(NamedTuple):
    """How an operand's codes reach tiles."""

    lines: int
    """Rows of A, or columns of B."""
    steps: int
    """Tiles of a sum."""
    kind: int
    """Of `optical.fused_tiles`."""

    @property
    def size(self) -> torch.Size:
        """Shape of the tiles, int8."""
        return torch.Size((self.lines // _ROWS, self.steps, _ROWS, _BYTES))

    def pack(self, codes: torch.Tensor, tiles: torch.Tensor) -> None:
        """Lay codes of int8, [R, C] as they lie in memory, out in tiles."""
        count = self.lines // _ROWS
        values = (codes.data_ptr(), codes.shape[1], tiles.data_ptr(), self.steps, self.kind, 0)
        _packing().run(values, count, codes.numel())


def layout_of(rows: int, columns: int, summed_dim: int, *, turned: bool) -> Layout | None:
    """Return how an operand is laid out in tiles, or None where it does not fit, or may stay as it is.

    Parameters
    ----------
    rows, columns : int
        Of the operand as it lies in memory.
    summed_dim : int
        -1 where columns are summed over, -2 where rows are, as it lies.
    turned : bool
        Whether the operand is the transpose of what lies in memory.
    """
    first = (summed_dim == -1) != turned
    lines, length = (rows, columns) if summed_dim == -1 else (columns, rows)
    if not are_there() or length % _BYTES or lines % (_ROWS if first else _PAIR):
        return None
    passes = _passes()
    if first:
        return Layout(lines, length // _BYTES, passes.GATHERED) if turned else None
    return Layout(lines, length // _BYTES, passes.ALONG if turned else passes.ACROSS)


def multiply(
    a: tuple[torch.Tensor, torch.Tensor | None], b_tiles: torch.Tensor, out: torch.Tensor, rows: slice
) -> bool:
    """Multiply codes exactly; return whether they could be.

    Parameters
    ----------
    a : tuple
        Codes of A, int8 [M, K], and their tiles if they are not without gaps.
    b_tiles : torch.Tensor
        Tiles of B.
    out : torch.Tensor
        For the rows that are asked for, int32 [M, N].
    rows : slice
        Of A.
    """
    codes, tiles = a
    (count, columns), steps = out.shape, b_tiles.shape[1]
    if count < _PAIR or codes.shape[1] != steps * _BYTES:
        return False
    if tiles is None:
        if not codes.is_contiguous():
            return False
        step, sixteen, next_ = codes.shape[1], codes.shape[1] * _ROWS, _BYTES
        first = codes.data_ptr() + rows.start * step
    else:
        if rows.start % _ROWS or count % _ROWS:
            return False
        step, sixteen, next_ = _BYTES, steps * _ROWS * _BYTES, _ROWS * _BYTES
        first = tiles.data_ptr() + rows.start // _ROWS * sixteen
    values = (first, 0, step, sixteen, next_, b_tiles.data_ptr(), 0, out.data_ptr(), columns, count, steps)
    _multiplying().run((*values, _shapes(), 0), columns, 4 * count * columns, _PAIR)
    return True


@functools.cache
def _passes():
    from optical import fused_tiles

    return fused_tiles


@functools.cache
def _packing() -> Job:
    return Job(_passes().pack, _passes().PACK_INTEGERS, 0)


@functools.cache
def _multiplying() -> Job:
    return Job(_passes().multiply, _passes().MULTIPLY_INTEGERS, 0)


@functools.cache
def _shapes() -> int:
    from optical import amx

    return int(amx.shapes().ctypes.data)
