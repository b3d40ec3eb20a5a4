"""Operands of an analog product on their converters' grids: scaled, rounded, loaded, and multiplied exactly.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum, auto

import torch

from optical import fused
from optical.analog import AnalogSpec, Rounding, Scale, loads_second
from optical.code_products import Arithmetic, CodeProduct, Halves, arithmetic_for, multiply_codes
from optical.draws import Draws
from optical.operand_blocks import Block, cachefuls, part_of, whole
from optical.scratch import scratch

SMALLEST_SCALE = 1e-30
"""Full scale of an operand row that is all zero, so that nothing is divided by zero."""
_HAIR = 2.0**-20
"""How far stochastic rounding stops short of the last code, so that no dither reaches beyond it."""
_PROBE_ROWS, _PROBE_BATCHES, _PROBE_SAMPLES = 64, 4, 8
NEGLIGIBLE_LASER = 0.01
"""Share of laser noise in the variance of an output, below which its spread over outputs is not followed."""


@dataclass(frozen=True, kw_only=True)
class Operand:
    """An operand on its converter's grid."""

    codes: torch.Tensor
    """Values in steps of the grid, shape of the operand; int8 where that is exact and quicker, else float."""
    step: float
    """One step, in units of full scale."""
    scale: torch.Tensor
    """Full scale, broadcastable to the operand."""
    energy: torch.Tensor
    """Sum of squared codes over K, [B, M, 1] or [B, 1, N], float; zero where nothing depends on it."""
    halves: Halves | None = None
    """The codes in two parts, where those are multiplied instead."""

    @property
    def mT(self) -> Operand:
        """The transposed operand, [B, K, M] of [B, M, K]."""
        halves = None if self.halves is None else self.halves.mT
        return replace(self, codes=self.codes.mT, scale=self.scale.mT, energy=self.energy.mT, halves=halves)

    @property
    def values(self) -> torch.Tensor:
        """What the codes stand for, in the operand's own unit."""
        return self.codes * (self.step * self.scale)


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
    x = x.detach()
    x = x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)
    ordered = order is not None and (_dithers(spec) or (loaded and spec.load_variance > 0.0))
    turned = order is Order.COLUMNS if ordered else not x.is_contiguous()
    if turned:
        x, summed_dim = x.mT, -3 - summed_dim
    x = x.contiguous() if ordered else x
    levels = None if math.isinf(spec.dac_bits) else largest_code(spec.dac_bits)
    arithmetic = arithmetic_for(x, summed_dim, levels) if spec.load_variance == 0.0 else Arithmetic.FLOATING
    dithers = draws if _dithers(spec) else None
    reach = (levels or 1.0) * (1.0 if dithers is None else 1.0 - _HAIR)
    room = _Room(x, arithmetic, use, into.mT if into is not None and turned else into)
    energy = x.new_zeros((*x.shape[:2], 1) if summed_dim == -1 else (x.shape[0], 1, x.shape[2]))
    wanted = energy if spec.needs_energy else None
    error = math.sqrt(spec.load_variance) if loaded else 0.0
    if levels is not None and error == 0.0 and fused.fuses(x) and x.is_contiguous():
        how = fused.Grid(reach, SMALLEST_SCALE, summed_dim, spec.scale is Scale.ROW)
        scale = fused.encode(x, room.codes, how, dithers, wanted)
        if room.halves is not None:
            room.halves.put(room.codes, whole(x.shape))
    else:
        grid = _Grid(
            reach=reach,
            rounds=levels is not None,
            draws=dithers,
            dim=summed_dim if spec.scale is Scale.ROW else None,
            error=error,
        )
        scale = _fill(x, grid, draws, room, wanted)
    operand = Operand(codes=room.codes, step=1.0 / reach, scale=scale, energy=energy, halves=room.halves)
    return operand.mT if turned else operand


class _Room:
    """Memory for codes."""

    codes: torch.Tensor
    halves: Halves | None

    def __init__(self, x: torch.Tensor, arithmetic: Arithmetic, use: str, into: Operand | None) -> None:
        if into is not None:
            self.codes, self.halves = into.codes, into.halves
            return
        self._like, self._use = x, use if x.is_contiguous() else ""
        self.codes = self._part("codes", torch.int8 if arithmetic is Arithmetic.INT8 else x.dtype)
        self.halves = None
        if arithmetic is Arithmetic.HALVES:
            self.halves = Halves(
                *(self._part(part, torch.int8) for part in ("high halves", "low halves", "sums of halves"))
            )

    def _part(self, part: str, dtype: torch.dtype) -> torch.Tensor:
        x = self._like
        if self._use:
            return scratch(f"{part} of {self._use}", x.shape, dtype, x.device)
        return torch.empty_like(x, dtype=dtype)


def _fill(
    x: torch.Tensor, grid: _Grid, draws: Draws, room: _Room, energy: torch.Tensor | None
) -> torch.Tensor:
    """Fill memory with codes, a cacheful at a time, and return the full scale."""
    scale = _full_scale(x, grid.dim)
    factor, error = grid.reach / scale, grid.reach * grid.error
    for block in cachefuls(x.shape, x.device, streams=2):
        part = grid.put(part_of(x, block), part_of(factor, block))
        if error > 0.0:
            part.add_(draws.gaussian(part.shape, part.dtype), alpha=error)
        part_of(room.codes, block).copy_(part)
        if room.halves is not None:
            room.halves.put(part, block)
        if energy is not None:
            dim = -1 if energy.shape[2] == 1 else -2
            part_of(energy, block).add_(part.square_().sum(dim, keepdim=True))
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


def cut(operand: Operand, codes: torch.Tensor, summed_dim: int) -> Operand:
    """Return a part of an operand, with the energy of that part."""
    energy = codes.to(operand.energy.dtype).square().sum(summed_dim, keepdim=True)
    return replace(operand, codes=codes, energy=energy, halves=None)


def probe(spec: AnalogSpec, codes_BMK: torch.Tensor) -> torch.Tensor:
    """Return the codes of some analog samples, [B', T', M', K'], in place; a short last one is left out."""
    (_, _, _, width), (batch, sample, row) = probe_steps(spec, codes_BMK.shape)
    samples = codes_BMK.shape[2] // width
    codes = codes_BMK[::batch, ::row, : samples * width]
    return codes.unflatten(2, (samples, width))[:, :, ::sample].transpose(1, 2)


def probe_steps(spec: AnalogSpec, shape: torch.Size) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes B', T', M' and K' of a probe, and its steps through batches, samples and rows."""
    batch, rows, length = shape
    width = min(length, spec.analog_length)
    samples = length // width
    counts = ((batch, _PROBE_BATCHES), (samples, _PROBE_SAMPLES), (rows, _PROBE_ROWS))
    steps = tuple(-(-count // most) for count, most in counts)
    sizes = (-(-count // step) for (count, _), step in zip(counts, steps, strict=True))
    return (*sizes, width), steps


def probe_outputs(c_BMN: torch.Tensor) -> torch.Tensor:
    """Return the outputs that probed rows and columns have, [B', M', N']."""
    batch, rows, columns = (
        -(-size // most)
        for size, most in zip(c_BMN.shape, (_PROBE_BATCHES, _PROBE_ROWS, _PROBE_ROWS), strict=True)
    )
    return c_BMN[::batch, ::rows, ::columns]


def largest_code(bits: float) -> int:
    """Return the largest code of a symmetric signed converter."""
    return max(1, math.floor(2.0 ** (bits - 1.0)) - 1)


def multiply(a: Operand, b: Operand, block: Block) -> CodeProduct:
    """Return a block of the exact product of codes, in memory that the next product uses again."""
    halves = (
        None if a.halves is None or b.halves is None else (a.halves.rows(block), b.halves.rows(block[:1]))
    )
    return multiply_codes(part_of(a.codes, block), part_of(b.codes, block[:1]), halves)
