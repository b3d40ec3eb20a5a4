"""Scales operands of an analog product to their converters and rounds them to codes.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

import torch

from optical.execution import fused, tiles
from optical.execution.analog import AnalogSpec, Rounding, Scale, loads_second
from optical.execution.code_products import Arithmetic, Halves, arithmetic_for, arithmetic_of_sums
from optical.execution.draws import Blocks, Draws
from optical.execution.operand_blocks import cachefuls, part_of
from optical.execution.operands import SMALLEST_SCALE, Operand, largest_code
from optical.execution.scratch import remembered, scratch

_HAIR = 2.0**-20
"""How far stochastic rounding stops short of the last code, so that no dither reaches beyond it."""
_MOST_BITS = 22
"""Of codes that compiled passes round."""
_KINDS = {Arithmetic.INT8: torch.int8, Arithmetic.HALVES: torch.int16}
"""Of codes."""


class Order(Enum):
    """Order of an operand's draws."""

    ROWS = auto()
    """Along its rows, whatever its layout in memory."""
    COLUMNS = auto()
    """Down its columns."""


Orders = tuple[Order | None, Order | None]
"""Of A and of B; None where draws follow the memory."""


def encode_both(
    a: torch.Tensor, b: torch.Tensor, spec: AnalogSpec, draws: Draws, orders: Orders = (None, None)
) -> tuple[Operand, Operand]:
    """Encode both operands, the loaded one with its error, in memory that the next two use again."""
    second = bool(loads_second(a.shape[1], b.shape[2]))
    return (
        encode(a, -1, spec, draws, loaded=not second, use="first", order=orders[0]),
        encode(b, -2, spec, draws, loaded=second, use="second", order=orders[1]),
    )


def encode(
    x: torch.Tensor,
    summed_dim: int,
    spec: AnalogSpec,
    draws: Draws,
    *,
    loaded: bool,
    use: str = "",
    order: Order | None = None,
    into: Operand | None = None,
) -> Operand:
    """Scale an operand to its converter and round it to the converter's grid.

    Parameters
    ----------
    x : torch.Tensor
        A, [B, M, K], or B, [B, K, N].
    summed_dim : int
        -1 for A, -2 for B.
    spec : AnalogSpec
        Bits, scale and rounding of the converter.
    draws : Draws
        For stochastic rounding and errors of loading.
    loaded : bool
        Whether the operand stays in the core, with the error of loading it.
    use : str
        Whose codes lie in one place, until the next of them are encoded; without it they have their own.
    order : Order or None
        Of draws; None where they follow the memory, which spares a copy.
    into : Operand or None
        The same operand as it was coded before, whose codes are lost: fresh memory costs more than coding.
    """
    if order is not None and (_dithers(spec) or (loaded and spec.load_variance > 0.0)):
        x = _in_order(x, order)
    else:
        order = None
    if fused.fuses(x):
        coding = _coding(spec, (summed_dim, order, loaded, x.shape[0] == 1), x.shape, x.stride())
        if coding is not None:
            return coding.run(x, draws, use, into)
    x = x.detach()
    x = x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)
    turned = order is Order.COLUMNS or (order is None and not x.is_contiguous())
    if turned:
        x, summed_dim = x.mT, -3 - summed_dim
    levels = None if math.isinf(spec.dac_bits) else largest_code(spec.dac_bits)
    arithmetic = arithmetic_for(x, summed_dim, levels) if spec.load_variance == 0.0 else Arithmetic.FLOATING
    dithers = draws if _dithers(spec) else None
    reach = (levels or 1.0) * (1.0 if dithers is None else 1.0 - _HAIR)
    room = _room(x, arithmetic, use, into.mT if into is not None and turned else into)
    energy = x.new_zeros((*x.shape[:2], 1) if summed_dim == -1 else (x.shape[0], 1, x.shape[2]))
    grid = _Grid(
        reach=reach,
        rounds=levels is not None,
        draws=dithers,
        dim=summed_dim if spec.scale is Scale.ROW else None,
        error=math.sqrt(spec.load_variance) if loaded else 0.0,
    )
    scale = _fill(x, grid, draws, room, energy if spec.needs_energy else None)
    operand = Operand(codes=room.codes, step=1.0 / reach, scale=scale, energy=energy, halves=room.halves)
    return operand.mT if turned else operand


def encode_blocks(
    x: torch.Tensor,
    summed_dim: int,
    spec: AnalogSpec,
    blocks: Blocks,
    *,
    use: str,
    order: Order | None = None,
    joined: bool = False,
) -> Operand | None:
    """Code the matrices of blocks with stochastic rounding, as `encode` would block by block.

    Parameters
    ----------
    x, summed_dim, spec, use, order
        As of `encode`, all blocks together.
    blocks : Blocks
        What draws hang on.
    joined : bool
        Whether the matrices are rows of one, so that codes may be int8.

    Returns
    -------
    Operand or None
        None where there is no such way.
    """
    if not _dithers(spec) or spec.load_variance > 0.0 or spec.scale is not Scale.ROW or not fused.fuses(x):
        return None
    x = _in_order(x, order)
    coding = _coding(spec, (summed_dim, order, False, joined), x.shape, x.stride())
    if coding is None or coding.arithmetic is Arithmetic.HALVES:
        return None
    return coding.run_blocks(x, blocks, use)


def _in_order(x: torch.Tensor, order: Order | None) -> torch.Tensor:
    """Return an operand in the memory that its draws follow."""
    if order is None:
        return x
    return x.mT.contiguous().mT if order is Order.COLUMNS else x.contiguous()


class _Coding(NamedTuple):
    """How compiled passes code operands of one shape, worked out once."""

    turned: bool
    """Whether they lie in memory as their transpose does."""
    size: torch.Size
    """As they lie."""
    grid: fused.Grid
    """Of the converter."""
    dithers: bool
    """Whether rounding is stochastic."""
    wants_energy: bool
    """Whether sums of squared codes are asked for."""
    arithmetic: Arithmetic
    """In what codes are multiplied."""
    layout: tiles.Layout | None
    """Of their tiles, if they are multiplied in such."""

    def run(self, x: torch.Tensor, draws: Draws, use: str, into: Operand | None) -> Operand:
        """Return the codes of an operand (`encode`)."""
        if into is not None:
            coded = self._coded(into.mT if self.turned else into, into.tiles)
        elif use:
            coded = remembered((use, self), lambda: self._coded(self._fresh(use), self._room_for_tiles(use)))
        else:
            coded = self._coded(self._fresh(use), self._room_for_tiles(use))
        fused.encode(x, coded.memory, self.grid, draws if self.dithers else None, coded.tiles)
        return coded.operand

    def run_blocks(self, x: torch.Tensor, blocks: Blocks, use: str) -> Operand:
        """Return the codes of the matrices of blocks (`encode_blocks`)."""
        coded = remembered(("blocks", use, self), lambda: self._coded(self._fresh(use), None))
        fused.encode_blocks(x, coded.memory, self.grid, blocks)
        return coded.operand

    def _room_for_tiles(self, use: str) -> torch.Tensor | None:
        """Return memory for tiles, if codes are laid out in such."""
        if self.layout is None:
            return None
        size = torch.Size((2 if self.arithmetic is Arithmetic.HALVES else 1, *self.layout.size))
        if use:
            return scratch(f"tiles of {use}", size, torch.int8, torch.device("cpu"))
        return torch.empty(size, dtype=torch.int8)

    def _fresh(self, use: str) -> Operand:
        """Return memory for an operand as it lies."""
        x = torch.empty(self.size, dtype=torch.float32, device="meta")
        codes = _room(x, self.arithmetic, use, None, torch.device("cpu"))
        batch, rows, columns = self.size
        lines = (batch, rows, 1) if self.grid.summed_dim == -1 else (batch, 1, columns)
        return Operand(
            codes=codes.codes,
            step=1.0 / self.grid.reach,
            scale=torch.empty(lines if self.grid.own else (1, 1, 1)),
            energy=torch.zeros(lines),
            halves=codes.halves,
        )

    def _coded(self, lies: Operand, tiles: torch.Tensor | None) -> _Coded:
        energy = lies.energy if self.wants_energy else None
        memory = fused.Codes(lies.codes, lies.scale, energy, lies.halves or ())
        room = fused.NOWHERE if self.layout is None or tiles is None else self.layout.room(tiles)
        return _Coded(memory, replace(lies.mT if self.turned else lies, tiles=tiles), room)


class _Coded(NamedTuple):
    """An operand and its memory."""

    memory: fused.Codes
    operand: Operand
    tiles: fused.TileRoom


@functools.lru_cache(maxsize=4096)
def _coding(
    spec: AnalogSpec, how: tuple[int, Order | None, bool, bool], shape: torch.Size, strides: tuple[int, ...]
) -> _Coding | None:
    """Return how float32 operands on a CPU are coded in compiled passes, or None where torch does it.

    Parameters
    ----------
    spec : AnalogSpec
        Bits, scale and rounding of the converter.
    how : tuple
        Dimension that is summed over, order of draws, whether the operand is loaded (`encode`), and whether
        it is a single matrix.
    shape, strides
        Of the operands.
    """
    summed_dim, order, loaded, single = how
    if spec.dac_bits > _MOST_BITS or (loaded and spec.load_variance > 0.0):
        return None
    turned = order is Order.COLUMNS or (order is None and not _is_gapless(shape, strides))
    if turned:
        shape, strides = torch.Size((shape[0], shape[2], shape[1])), (strides[0], strides[2], strides[1])
        summed_dim = -3 - summed_dim
    if not _is_gapless(shape, strides):
        return None
    levels, dithers = largest_code(spec.dac_bits), _dithers(spec)
    arithmetic = Arithmetic.FLOATING
    if spec.load_variance == 0.0 and single:
        arithmetic = arithmetic_of_sums(shape[summed_dim], levels)
    reach = levels * (1.0 - _HAIR if dithers else 1.0)
    grid = fused.Grid(reach, SMALLEST_SCALE, summed_dim, spec.scale is Scale.ROW)
    layout = None
    if arithmetic is not Arithmetic.FLOATING:
        layout = tiles.layout_of(shape[1], shape[2], summed_dim, turned=turned)
    return _Coding(turned, shape, grid, dithers, spec.needs_energy, arithmetic, layout)


def _is_gapless(shape: torch.Size, strides: tuple[int, ...]) -> bool:
    """Return whether elements lie one after the other, rows first."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


class _Room(NamedTuple):
    """Memory for codes."""

    codes: torch.Tensor
    halves: Halves | None


def _room(
    x: torch.Tensor,
    arithmetic: Arithmetic,
    use: str,
    into: Operand | None,
    device: torch.device | None = None,
) -> _Room:
    """Return memory for the codes of an operand as it lies; scratch memory for a use, if it has one."""
    if into is not None:
        return _Room(into.codes, into.halves)

    def part(name: str, dtype: torch.dtype) -> torch.Tensor:
        where = x.device if device is None else device
        if use and x.is_contiguous():
            return scratch(f"{name} of {use}", x.shape, dtype, where)
        return torch.empty_like(x, dtype=dtype, device=where)

    halves = None
    if arithmetic is Arithmetic.HALVES:
        both = None if tiles.are_there() else part("sums of halves", torch.int8)
        halves = Halves(part("high halves", torch.int8), part("low halves", torch.int8), both)
    return _Room(part("codes", _KINDS.get(arithmetic, x.dtype)), halves)


def _fill(
    x: torch.Tensor, grid: _Grid, draws: Draws, room: _Room, energy: torch.Tensor | None
) -> torch.Tensor:
    """Fill memory with codes, a cacheful at a time, and return the full scale."""
    scale = _full_scale(x, grid.dim)
    by_rows = energy is not None and energy.shape[1:] == (x.shape[1], 1)
    factor, error = grid.reach / scale, grid.reach * grid.error
    for block in cachefuls(x.shape, x.device, streams=2):
        part = grid.put(part_of(x, block), part_of(factor, block))
        if error > 0.0:
            part.add_(draws.gaussian(part.shape, part.dtype), alpha=error)
        part_of(room.codes, block).copy_(part)
        if room.halves is not None:
            room.halves.put(part, block)
        if energy is not None:
            part_of(energy, block).add_(part.square_().sum(-1 if by_rows else -2, keepdim=True))
    return scale


def _full_scale(x: torch.Tensor, dim: int | None) -> torch.Tensor:
    """Return the largest magnitude of an operand, along a dimension or of all of it; positive."""
    if dim is None:
        low, high = torch.aminmax(x)
        return torch.maximum(high, low.neg_()).clamp_(min=SMALLEST_SCALE).view(1, 1, 1)
    scale = x.new_full(
        [1 if place == dim + 3 else size for place, size in enumerate(x.shape)], SMALLEST_SCALE
    )
    for block in cachefuls(x.shape, x.device, streams=4):
        part, known = part_of(x, block), part_of(scale, block)
        torch.maximum(known, part.amax(dim, keepdim=True), out=known)
        torch.maximum(known, part.amin(dim, keepdim=True).neg_(), out=known)
    return scale


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """How values reach a converter's codes."""

    reach: float
    """Code of full scale."""
    rounds: bool
    """Whether there are codes at all."""
    draws: Draws | None
    """What dithers, if rounding is stochastic."""
    dim: int | None
    """Dimension along which elements share a full scale; None where all do."""
    error: float
    """Rms error of loading, in units of full scale."""

    def put(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """Return codes as floating point, in memory that is used again."""
        part = torch.mul(x, factor, out=scratch("codes", x.shape, x.dtype, x.device))
        if self.draws is not None:
            self.draws.dither_(part)
        return part.round_() if self.rounds else part


def _dithers(spec: AnalogSpec) -> bool:
    return math.isfinite(spec.dac_bits) and spec.rounding is Rounding.STOCHASTIC
