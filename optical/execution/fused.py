"""Runs conversion and readout in compiled passes where numba is installed, and says where it cannot.

What is left out (no numba, an accelerator, double precision, an odd number of columns, outputs that a chip
distorts) is left to torch, with the same draws.

Shape suffixes: B batch, R rows and C columns of an operand as it lies in memory, M rows and N columns of a
product.
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from optical.execution.fused_numbers import FLOAT32, INT8, INT16
from optical.execution.fused_threads import Job

if TYPE_CHECKING:
    from optical.execution.draws import Blocks, Draws

_SAMPLED = 256
"""Elements that a digest reads."""
KINDS = {torch.float32: FLOAT32, torch.int8: INT8, torch.int16: INT16}
"""Kinds of codes by their type."""
_GRAIN = 64
"""Columns of codes that lie in one line of a cache, which two threads had better not share."""


class Kernels(NamedTuple):
    """Compiled functions."""

    draws: ModuleType
    """Of the words of a generator."""
    encoding: ModuleType
    """Of operands."""
    readout: ModuleType
    """Of products."""
    jobs: ModuleType
    """Both of these, for several threads."""


@functools.cache
def _kernels() -> Kernels | None:
    """Return the compiled functions, or None where numba is not installed."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        return None
    try:
        from optical.execution import fused_draws, fused_jobs, fused_kernels, fused_readout
    except ImportError:
        return None
    return Kernels(fused_draws, fused_kernels, fused_readout, fused_jobs)


@functools.cache
def tile_jobs() -> ModuleType | None:
    """Return the functions that are compiled for a CPU's matrix unit, or None where there is no such unit."""
    if not is_there():
        return None
    from optical.execution import amx

    if not amx.is_there():
        return None
    from optical.execution import fused_tiles

    return fused_tiles


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


class Codes(NamedTuple):
    """Memory for an operand's codes as it lies, each without gaps."""

    codes: torch.Tensor
    """int8, int16 or float32, [B, R, C]."""
    scale: torch.Tensor
    """For full scales: [B, R, 1], [B, 1, C] or [1, 1, 1]."""
    energy: torch.Tensor | None
    """For sums of squared codes, [B, R, 1] or [B, 1, C], where they are wanted."""
    halves: tuple[torch.Tensor | None, ...] = ()
    """For halves of codes, high, low and perhaps their sums, int8, where those are multiplied."""


class TileRoom(NamedTuple):
    """Where codes go in tiles."""

    address: int
    """Of the tiles, or 0 for none."""
    gathers: bool
    """Whether the operand is an A whose columns lie in rows."""
    lines: int
    """Of a tile."""


NOWHERE = TileRoom(0, False, 1)


def encode(x: torch.Tensor, room: Codes, grid: Grid, dither: Draws | None, tiles: TileRoom = NOWHERE) -> None:
    """Round an operand to codes.

    Parameters
    ----------
    x : torch.Tensor
        Operand, float32, without gaps, [B, R, C] as it lies in memory.
    room : Codes
        Where codes go.
    grid : Grid
        Of the converter.
    dither : Draws or None
        What stochastic rounding draws from.
    tiles : TileRoom
        Where codes go as well.
    """
    (batch, rows, columns), by_rows = room.codes.shape, grid.summed_dim == -1
    count = batch * rows * columns
    told = _told(x, room, grid, (0, 0, 0) if dither is None else (1, *dither.take(count)))
    if not grid.own:
        kernels().encoding.find_scale(told[:7], count, np.float32(grid.smallest))
    parts, grain = (batch * rows, tiles.lines) if by_rows else (columns, _grain(columns))
    _encode((0, 0, parts, *told), tiles, grid, parts, count, grain=grain)


def _encode(
    told: tuple[int, ...], place: TileRoom, grid: Grid, parts: int, count: int, *, grain: int
) -> None:
    """Run the job, by whichever functions are compiled for this CPU."""
    job, in_tiles = _encoding()
    more = (place.address, place.gathers) if in_tiles else ()
    job.run((*told, *more, grid.reach, grid.smallest), parts, count, grain=grain)


def encode_blocks(x: torch.Tensor, room: Codes, grid: Grid, blocks: Blocks) -> None:
    """Round the matrices of blocks to codes, stochastically.

    Parameters
    ----------
    x, room, grid
        As of `encode`, all blocks together; elements that are summed share a full scale.
    blocks : Blocks
        What draws hang on.
    """
    (_, rows, columns), by_rows = room.codes.shape, grid.summed_dim == -1
    told = np.array([_told(x, room, grid, (1, 0, blocks.first))] * len(blocks.keys), np.int64)
    matrix, lines = rows * columns, rows if by_rows else columns
    widths = (
        4 * matrix,
        room.codes.itemsize * matrix,
        4 * lines,
        4 * lines if room.energy is not None else 0,
    )
    told[:, :4] += np.arange(len(told))[:, None] * (blocks.size * np.array(widths))
    told[:, 8], told[:, 14] = blocks.size, blocks.signed
    each = blocks.size * rows if by_rows else columns
    table = (told.ctypes.data, 0, each, *(0,) * told.shape[1])
    _encode(table, NOWHERE, grid, len(told) * each, x.numel(), grain=1 if by_rows else each)


def _told(x: torch.Tensor, room: Codes, grid: Grid, dither: tuple[int, int, int]) -> tuple[int, ...]:
    """Return the integers that `optical.execution.fused_jobs.encode` is told."""
    memory = (
        x.data_ptr(),
        room.codes.data_ptr(),
        room.scale.data_ptr(),
        0 if room.energy is None else room.energy.data_ptr(),
        *(0 if half is None else half.data_ptr() for half in room.halves or (None, None, None)),
    )
    return (*memory, KINDS[room.codes.dtype], *room.codes.shape, grid.summed_dim == -1, grid.own, *dither)


def _grain(columns: int) -> int:
    """Return how many columns are worked on together: short pieces of rows are read slowly."""
    each = -(-columns // torch.get_num_threads())
    return each + -each % _GRAIN


@functools.cache
def _encoding() -> tuple[Job, bool]:
    """Return what codes operands, and whether it lays them out in tiles."""
    jobs, tiled = kernels().jobs, tile_jobs()
    integers = jobs.TABLE_INTEGERS + jobs.ENCODE_INTEGERS
    if tiled is None:
        return Job(jobs.encode, integers, jobs.ENCODE_REALS), False
    return Job(tiled.encode, integers + tiled.LAYOUT_INTEGERS, jobs.ENCODE_REALS), True


def words(key: int, first: int, numbers: int) -> np.ndarray:
    """Return the words of some numbers of a generator (`optical.execution.draws.Draws.take`), uint16."""
    memory = np.empty(numbers, np.uint64)
    kernels().draws.draw(key, first, memory)
    return memory.view(np.uint16)


def digest(x: torch.Tensor) -> int:
    """Return a hash of 256 elements that are spread evenly over a tensor without gaps."""
    count = x.numel()
    step = max(1, count // _SAMPLED) | 1
    return int(kernels().encoding.digest(x.data_ptr(), count, step % count))
