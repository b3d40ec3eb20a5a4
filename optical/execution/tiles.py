"""Codes laid out for a CPU's matrix unit, and their products there; what has no such unit is left to torch.

Shape suffixes: M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch

from optical.execution import fused
from optical.execution.fused_numbers import BYTES, FEWEST_ROWS, ROWS, TILE
from optical.execution.fused_threads import Job

_PAIR = 2 * ROWS
"""Columns of B that are."""
_CACHE = 2**20
"""Bytes of B that stay in a core's cache."""
_PANEL = 2**16
"""Products that do."""
_LOOKS = 2**14
"""Numbers that a probed sample counts for when work is shared out."""


def are_there() -> bool:
    """Return whether this CPU multiplies tiles, and there are functions compiled for it."""
    return fused.tile_jobs() is not None


class Layout(NamedTuple):
    """How an operand's codes reach tiles."""

    lines: int
    """Rows of A, or columns of B."""
    steps: int
    """Tiles of a sum."""
    gathers: bool
    """Whether the operand is an A whose columns lie in rows."""

    @property
    def size(self) -> torch.Size:
        """Shape of the tiles, int8."""
        return torch.Size((self.lines // ROWS, self.steps, ROWS, BYTES))

    def room(self, tiles: torch.Tensor) -> fused.TileRoom:
        """Return where codes go, or their halves one after the other."""
        return fused.TileRoom(tiles.data_ptr(), self.gathers, ROWS)


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
    if not are_there() or length % BYTES or lines % (ROWS if first else _PAIR) or (first and not turned):
        return None
    return Layout(lines, length // BYTES, first)


def plan(a: Rows, b_tiles: torch.Tensor) -> tuple[int, ...] | None:
    """Return what compiled functions are told of a product, or None where it does not fit.

    Parameters
    ----------
    a : Rows
        Of A.
    b_tiles : torch.Tensor
        Tiles of B, or of its halves.
    """
    count, first, steps = a.rows.stop - a.rows.start, a.rows.start, b_tiles.shape[2]
    length, halved = steps * BYTES, len(a.codes) > 1
    if count < FEWEST_ROWS or a.codes[0].shape[1] != length:
        return None
    if a.tiles is None:
        if not all(codes.is_contiguous() for codes in a.codes):
            return None
        parts, step, group, following = a.codes, length, length * ROWS, BYTES
        first *= step
    else:
        if first % ROWS or count % ROWS:
            return None
        parts, step, group, following = tuple(a.tiles), BYTES, steps * TILE, TILE
        first = first // ROWS * group
    a_places, b_places = ([part.data_ptr() for part in whole] for whole in (parts, b_tiles))
    low, b_low = (a_places[1] + first, b_places[1]) if halved else (0, 0)
    places = (a_places[0] + first, low, step, group, following, b_places[0], b_low)
    return (*places, b_tiles.shape[1] * ROWS, steps, _shapes())


def multiply(product: tuple[int, ...], out: torch.Tensor) -> None:
    """Multiply codes exactly.

    Parameters
    ----------
    product : tuple of int
        Of `plan`.
    out : torch.Tensor
        [M, N]; int32, or float32 of halves.
    """
    rows, columns = out.shape
    _multiplying().run((*product, out.data_ptr(), rows), columns, 4 * rows * columns, grain=_PAIR)


def is_small(b_tiles: torch.Tensor) -> bool:
    """Return whether B stays in a core's cache, so that it may be met anew by few rows of A."""
    return b_tiles.numel() <= _CACHE


def rows_at_once(columns: int) -> int:
    """Return how many rows of products are made and read out before the next."""
    return max(FEWEST_ROWS, _PANEL // columns // FEWEST_ROWS * FEWEST_ROWS)


def look(
    first: tuple[int, ...], second: tuple[int, ...], sizes: tuple[int, ...], signal: torch.Tensor
) -> tuple[float, float]:
    """Return the mean square of probed products and the mean of ``sum_k(mean_m(a^2) mean_n(b^2))``.

    Parameters
    ----------
    first, second, sizes : tuple of int
        What `optical.execution.fused_probes.look` is told of operands, and of sizes.
    signal : torch.Tensor
        Where the products go, float32 [S, M', N'].
    """
    sums = np.empty((signal.shape[0], 2))
    told = (*first, *second, *sizes, signal.data_ptr(), sums.ctypes.data, _shapes())
    _looking().run(told, signal.shape[0], _LOOKS * signal.shape[0])
    power, cross = sums.sum(0) / signal.numel()
    return float(power), float(cross)


@functools.cache
def _looking() -> Job:
    from optical.execution import fused_probes

    return Job(fused_probes.look, fused_probes.LOOK_INTEGERS, 0)


@functools.cache
def _multiplying() -> Job:
    passes = _passes()
    return Job(passes.multiply, passes.PRODUCT_INTEGERS + 2, 0)


def _passes() -> ModuleType:
    """Return the compiled functions, where there are any."""
    found = fused.tile_jobs()
    if found is None:
        msg = "this CPU has no tiles; ask are_there() first"
        raise RuntimeError(msg)
    return found


@functools.cache
def _shapes() -> int:
    from optical.execution import amx

    return int(amx.shapes().ctypes.data)
