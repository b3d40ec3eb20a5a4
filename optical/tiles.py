"""Codes laid out for a CPU's matrix unit, and their products there; what has no such unit is left to torch.

Shape suffixes: M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch

from optical import fused
from optical.fused_threads import Job

_ROWS, _BYTES = 16, 64
"""Of a tile."""
_TILE = _ROWS * _BYTES
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

    def pack(self, codes: Sequence[torch.Tensor | None], tiles: torch.Tensor) -> None:
        """Lay codes of int8, [1, R, C] as they lie in memory, or their halves, out in tiles."""
        for each, out in zip(codes, tiles, strict=True):
            if each is not None:
                values = (each.data_ptr(), each.shape[2], out.data_ptr(), self.steps, self.kind)
                _packing().run(values, self.lines // _ROWS, each.numel())


class Rows(NamedTuple):
    """What is multiplied of A."""

    codes: tuple[torch.Tensor, ...]
    """All of it, int8 [M, K], or its high and its low halves."""
    tiles: torch.Tensor | None
    """The same in tiles, if it has gaps."""
    rows: slice
    """Of these."""


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


def multiply(a: Rows, b_tiles: torch.Tensor, out: torch.Tensor) -> bool:
    """Multiply codes exactly; return whether they could be.

    Parameters
    ----------
    a : Rows
        Of A.
    b_tiles : torch.Tensor
        Tiles of B, or of its halves.
    out : torch.Tensor
        [M, N]; int32, or float32 of halves.
    """
    (count, columns), steps, first = out.shape, b_tiles.shape[2], a.rows.start
    length, halved = steps * _BYTES, len(a.codes) > 1
    if count < (_ROWS if halved else _PAIR) or a.codes[0].shape[1] != length:
        return False
    if a.tiles is None:
        if not all(codes.is_contiguous() for codes in a.codes):
            return False
        parts, step, group, following = a.codes, length, length * _ROWS, _BYTES
        first *= step
    else:
        if first % _ROWS or count % _ROWS:
            return False
        parts, step, group, following = tuple(a.tiles), _BYTES, steps * _TILE, _TILE
        first = first // _ROWS * group
    a_places, b_places = ([part.data_ptr() for part in whole] for whole in (parts, b_tiles))
    if not halved:
        a_places, b_places = [a_places[0], 0], [b_places[0], 0]
    starts = (a_places[0] + first, a_places[1] + first if halved else 0)
    values = (*starts, step, group, following, *b_places, out.data_ptr(), columns, count, steps, _shapes())
    _multiplying().run(values, columns, 4 * count * columns, _PAIR)
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
