"""Operands of an analog product on their converters' grids: scaled, rounded, loaded, and multiplied exactly.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import torch

from optical.analog import AnalogSpec, Rounding, Scale, loads_second
from optical.draws import Draws
from optical.operand_blocks import blocks_of, part_of
from optical.scratch import scratch

SMALLEST_SCALE = 1e-30
"""Full scale of an operand row that is all zero, so that nothing is divided by zero."""
_HAIR = 2.0**-20
"""How far stochastic rounding stops short of the last code, so that no dither reaches beyond it."""
_LARGEST_INT8_CODE = 127
_LONGEST_INT8_SUM = 2**17
"""Products of int8 codes whose sum an int32 is sure to hold."""
_PROBE_ROWS, _PROBE_BATCHES, _PROBE_SAMPLES = 64, 4, 8


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

    @property
    def values(self) -> torch.Tensor:
        """What the codes stand for, in the operand's own unit."""
        return self.codes * (self.step * self.scale)


def encode_both(a: torch.Tensor, b: torch.Tensor, spec: AnalogSpec, draws: Draws) -> tuple[Operand, Operand]:
    """Encode both operands, the loaded one with its error."""
    second = bool(loads_second(a.shape[1], b.shape[2]))
    return encode(a, -1, spec, draws, loaded=not second), encode(b, -2, spec, draws, loaded=second)


def encode(x: torch.Tensor, summed_dim: int, spec: AnalogSpec, draws: Draws, *, loaded: bool) -> Operand:
    """Scale an operand to its converter and round it to the converter's grid, a cacheful at a time.

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
    """
    x = x if x.dtype == torch.float64 else x.to(torch.float32)
    turned = not x.is_contiguous()
    if turned:
        x, summed_dim = x.mT, -3 - summed_dim
    levels = None if math.isinf(spec.dac_bits) else largest_code(spec.dac_bits)
    small = spec.load_variance == 0.0 and _fits_int8(x, summed_dim, levels)
    codes = torch.empty_like(x, dtype=torch.int8 if small else x.dtype)
    energy = x.new_zeros([1 if dim == summed_dim + 3 else size for dim, size in enumerate(x.shape)])
    by_row = spec.scale is Scale.ROW
    scale = torch.full_like(energy if by_row else energy[:1, :1, :1], SMALLEST_SCALE)
    grid = _Grid(
        reach=(levels or 1.0) * (1.0 - _HAIR if _dithers(spec) else 1.0),
        rounds=levels is not None,
        draws=draws if _dithers(spec) else None,
    )
    error = grid.reach * math.sqrt(spec.load_variance) if loaded else 0.0
    wants_energy, blocks = spec.needs_energy, list(blocks_of(x.shape))
    for group in [[block] for block in blocks] if by_row and summed_dim == -1 else [blocks]:
        for block in group:
            known, part = part_of(scale, block), _absolute(x[block])
            torch.maximum(known, part.amax(summed_dim, keepdim=True) if by_row else part.amax(), out=known)
        for block in group:
            part = grid.put(x[block], part_of(scale, block))
            if error > 0.0:
                part.add_(draws.gaussian(part.shape, part.dtype), alpha=error)
            codes[block] = part
            if wants_energy:
                part_of(energy, block).add_(part.square_().sum(summed_dim, keepdim=True))
    if turned:
        codes, energy, scale = codes.mT, energy.mT, scale.mT
    return Operand(codes=codes, step=1.0 / grid.reach, scale=scale, energy=energy)


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """How values reach a converter's codes."""

    reach: float
    """Code of full scale."""
    rounds: bool
    """Whether there are codes at all."""
    draws: Draws | None
    """What dithers, if rounding is stochastic."""

    def put(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """Return codes as floating point, in memory that is used again."""
        part = torch.mul(x, self.reach / scale, out=scratch("codes", x.shape, x.dtype, x.device))
        if self.draws is not None:
            self.draws.dither_(part)
        return part.round_() if self.rounds else part


def _absolute(x: torch.Tensor) -> torch.Tensor:
    return torch.abs(x, out=scratch("codes", x.shape, x.dtype, x.device))


def _dithers(spec: AnalogSpec) -> bool:
    return math.isfinite(spec.dac_bits) and spec.rounding is Rounding.STOCHASTIC


def cut(operand: Operand, codes: torch.Tensor, summed_dim: int) -> Operand:
    """Return a part of an operand, with the energy of that part."""
    energy = codes.to(operand.energy.dtype).square().sum(summed_dim, keepdim=True)
    return replace(operand, codes=codes, energy=energy)


def probe(spec: AnalogSpec, codes_BMK: torch.Tensor) -> torch.Tensor:
    """Return floating-point codes of some analog samples, [B', T', M', K']; a short last one is left out."""
    batch, rows, length = codes_BMK.shape
    width = min(length, spec.analog_length)
    samples = length // width
    codes = codes_BMK[:: -(-batch // _PROBE_BATCHES), :: -(-rows // _PROBE_ROWS), : samples * width]
    codes = codes.unflatten(2, (samples, width))[:, :, :: -(-samples // _PROBE_SAMPLES)].transpose(1, 2)
    return codes.to(torch.float32 if codes.dtype == torch.int8 else codes.dtype, copy=True)


def largest_code(bits: float) -> int:
    """Return the largest code of a symmetric signed converter."""
    return max(1, math.floor(2.0 ** (bits - 1.0)) - 1)


def _fits_int8(x: torch.Tensor, summed_dim: int, levels: int | None) -> bool:
    """Return whether int8 arithmetic gives products of an operand's codes exactly, and quicker."""
    small = levels is not None and levels <= _LARGEST_INT8_CODE and x.shape[summed_dim] <= _LONGEST_INT8_SUM
    usual = x.device.type == "cpu" and x.dtype == torch.float32 and x.shape[0] == 1
    return small and usual and _has_exact_int8_products()


def multiply(a_codes: torch.Tensor, b_codes: torch.Tensor) -> torch.Tensor:
    """Return the exact product of codes, [B, M, N], int32 of int8: in memory that is used again."""
    dtype = torch.int32 if a_codes.dtype == torch.int8 else a_codes.dtype
    shape = torch.Size((*a_codes.shape[:2], b_codes.shape[2]))
    out = scratch("product", shape, dtype, a_codes.device)
    if dtype == torch.int32:
        torch._int_mm(_in_order(a_codes[0]), _in_order(b_codes[0]), out=out[0])
        return out
    return torch.bmm(a_codes, b_codes, out=out)


def _in_order(codes: torch.Tensor) -> torch.Tensor:
    """Return a matrix without the strides that mislead `torch._int_mm` on a CPU where a size is 1.

    A row that was a column keeps its stride of 1 in both dimensions, and counts as contiguous; torch 2.13
    then reads wrong memory. A copy has the strides that its shape says.
    """
    return codes.clone(memory_format=torch.contiguous_format) if 1 in codes.shape else codes


@functools.cache
def _has_exact_int8_products() -> bool:
    """Return whether int8 products are there and do not saturate, as they may on a CPU without VNNI."""
    codes = torch.full((64, 64), _LARGEST_INT8_CODE, dtype=torch.int8)
    try:
        product = torch._int_mm(codes, codes)
    except (AttributeError, RuntimeError):
        return False
    return bool((product == 64 * _LARGEST_INT8_CODE**2).all())
