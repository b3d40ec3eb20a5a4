"""Operands of an analog product as codes on their converters' grids, as a chip's parts set them.

Shape suffixes: B matrices, M rows of A and C, K summed, N columns of B and C; G blocks of B / G
matrices, each with draws of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np
import torch

from optical.execution import kernels
from optical.execution.draws import NO_WORDS, Draws, fixed_gains
from optical.execution.products import code_type
from optical.execution.spec import AnalogSpec, Rounding, Scale
from optical.noise.chip import ChipErrors
from simulator.keys import mix_key

SMALLEST_SCALE = 1e-30
"""Full scale of an operand row that is all zero, so that nothing is divided by zero."""
_HAIR = 2.0**-20
"""How far stochastic rounding stops short of the last code, so that no dither reaches beyond it."""
_FIRST, _SECOND, _REPEATED = 0, 1, 3
"""Kinds of draws of a chip, folded into its seed."""
_ODD = -7046029254386353131
"""An odd number of 64 bits with no pattern, the golden ratio's, as a signed integer."""


class Order(Enum):
    """Order of an operand's draws."""

    ROWS = auto()
    """Along its rows, whatever its layout in memory."""
    COLUMNS = auto()
    """Down its columns."""


Orders = tuple[Order | None, Order | None]
"""Of A and of B; None where draws follow the memory, which spares a copy."""


@dataclass(frozen=True, kw_only=True)
class Operand:
    """An operand on its converter's grid."""

    codes: torch.Tensor
    """Values in steps of the grid, [B, M, K] or [B, K, N]; of a type that `products.multiply` takes."""
    step: float
    """One step, in units of full scale."""
    scale: torch.Tensor
    """Full scale, broadcastable to the operand."""
    energy: torch.Tensor
    """Sum of squared codes over K, floating point, [B, M, 1] or [B, 1, N]."""

    @property
    def mT(self) -> Operand:
        """The transposed operand, [B, K, M] of [B, M, K]."""
        return Operand(codes=self.codes.mT, step=self.step, scale=self.scale.mT, energy=self.energy.mT)

    @property
    def floating(self) -> torch.Tensor:
        """The codes in floating point."""
        return self.codes.to(self.energy.dtype)

    @property
    def values(self) -> torch.Tensor:
        """What the codes stand for, in the operand's own unit."""
        return self.codes * (self.step * self.scale)

    def recoded(self, codes: torch.Tensor, summed_dim: int) -> Operand:
        """Return an operand of other codes on the same grid, or of some of them."""
        return replace(self, codes=codes, energy=_energy_of(codes, summed_dim, self.energy.dtype))


def largest_code(bits: float) -> int:
    """Return the largest code of a symmetric signed converter."""
    return max(1, math.floor(2.0 ** (bits - 1.0)) - 1)


def encode(
    x: torch.Tensor,
    summed_dim: int,
    spec: AnalogSpec,
    draws: Draws,
    *,
    loaded: bool,
    order: Order | None = None,
    single: bool | None = None,
) -> Operand:
    """Return an operand scaled to its converter and rounded to the converter's grid.

    Parameters
    ----------
    x : torch.Tensor
        A, [B, M, K], or B, [B, K, N].
    summed_dim : int
        -1 for A, -2 for B.
    spec : AnalogSpec
        Bits, scale and rounding of the converter.
    draws : Draws
        For stochastic rounding and errors of loading; its blocks have scales of their own.
    loaded : bool
        Whether the operand stays in the core, with the error of loading it.
    order : Order or None
        Of draws; None where they follow the memory, which spares a copy.
    single : bool or None
        Whether each matrix is multiplied by itself, so that codes may be integers; by default if it is alone.
    """
    dithers = math.isfinite(spec.dac_bits) and spec.rounding is Rounding.STOCHASTIC
    error = math.sqrt(spec.load_variance) if loaded else 0.0
    x = x.detach() if x.dtype in (torch.float32, torch.float64) else x.detach().to(torch.float32)
    if order is None or not (dithers or error > 0.0):
        order = Order.ROWS if x.is_contiguous() else Order.COLUMNS
    turned = order is Order.COLUMNS
    if turned:
        x, summed_dim = x.mT, -3 - summed_dim
    x = x.contiguous()
    levels = largest_code(spec.dac_bits) if math.isfinite(spec.dac_bits) else None
    reach = (levels or 1.0) * (1.0 - _HAIR if dithers else 1.0)
    scale = _full_scale(x, summed_dim, None if spec.scale is Scale.ROW else draws.blocks)
    single = x.shape[0] == 1 if single is None else single
    whole = levels if single and spec.load_variance == 0.0 else None
    dtype = code_type(x, x.shape[summed_dim], whole)
    if kernels.available(x) and levels is not None and error == 0.0:
        codes = torch.empty_like(x, dtype=torch.int8 if dtype == torch.int8 else x.dtype)
        energy = x.new_empty((*x.shape[:2], 1) if summed_dim == -1 else (x.shape[0], 1, x.shape[2]))
        words = draws.take(x.numel() // draws.blocks) if dithers else NO_WORDS
        coded = kernels.Coded(codes.numpy(), energy.numpy(), summed_dim == -1)
        memory = np.from_dlpack(x)  # `numpy` would keep FSDP from freeing it
        kernels.encode(memory, scale.numpy(), np.float32(reach), words, coded)
    else:
        codes = x * (scale.new_tensor(reach) / scale)
        if dithers:
            codes.add_(draws.dither(x.shape, x.dtype))
        if levels is not None:
            codes.round_()
        if error > 0.0:
            codes.add_(draws.gaussian(x.shape, x.dtype), alpha=reach * error)
        energy = _energy_of(codes, summed_dim, x.dtype)
    operand = Operand(codes=codes.to(dtype), step=1.0 / reach, scale=scale, energy=energy)
    return operand.mT if turned else operand


def _full_scale(x: torch.Tensor, summed_dim: int, blocks: int | None) -> torch.Tensor:
    """Return the largest magnitudes along the summed dimension, or of each block; positive."""
    if blocks is None:
        scale = torch.maximum(x.amax(summed_dim, keepdim=True), x.amin(summed_dim, keepdim=True).neg_())
        return scale.clamp_(min=SMALLEST_SCALE)
    low, high = x.reshape(blocks, -1).aminmax(dim=1)
    scale = torch.maximum(high, low.neg_()).clamp_(min=SMALLEST_SCALE)
    return scale.repeat_interleave(x.shape[0] // blocks).view(-1, 1, 1)


def _energy_of(codes: torch.Tensor, summed_dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Return sums of squared codes, exact as far as their type: those of whole codes do not hang on order."""
    return codes.double().square().sum(summed_dim, keepdim=True).to(dtype)


def set_on_chip(
    a: Operand, b: Operand, chip: ChipErrors | None, blocks: int, *, second: bool
) -> tuple[Operand, Operand]:
    """Return both operands as the parts of a chip set them.

    Parameters
    ----------
    a, b : Operand
        Coded operands, [B, M, K] and [B or 1, K, N].
    chip : ChipErrors or None
        What is fixed for the chip.
    blocks : int
        Into which the matrices are divided.
    second : bool
        Whether B is the operand that a core which holds weights loads.
    """
    if chip is None or (chip.element_gain == 0.0 and chip.repeated_variance == 0.0):
        return a, b
    turned = chip.holds_weights and not second
    streamed, held = (b.mT, a.mT) if turned else (a, b)
    if chip.repeated_variance > 0.0:
        held = _with_repeated(held, chip, min(blocks, held.codes.shape[0]))
    streamed = _with_gains(streamed, chip, _FIRST, chip.rows, chip.first_gain)
    held = _with_gains(held, chip, _SECOND, chip.columns, chip.second_gain)
    return (held.mT, streamed.mT) if turned else (streamed, held)


def _with_gains(x: Operand, chip: ChipErrors, kind: int, width: int, variance: float) -> Operand:
    """Return an operand times the gains of its positions; [B, M, K] for the first, else [B, K, N]."""
    if variance == 0.0:
        return replace(x, codes=x.floating)
    gains = fixed_gains(chip.seed, kind, width, chip.length, variance)
    gains = tiled(gains if kind == _FIRST else gains.mT, *x.codes.shape[1:]).to(x.energy)
    return x.recoded(x.floating * gains, -1 if kind == _FIRST else -2)


def _with_repeated(x: Operand, chip: ChipErrors, blocks: int) -> Operand:
    """Return a loaded operand with the errors that this chip gives just these codes, block by block."""
    keys = [mix_key(chip.seed, _REPEATED, _content(part)) for part in x.codes.chunk(blocks)]
    error = Draws(keys, torch.device("cpu")).gaussian(x.codes.shape, x.energy.dtype).to(x.energy.device)
    return x.recoded(x.floating + error * (math.sqrt(chip.repeated_variance) / x.step), -2)


def _content(codes: torch.Tensor) -> int:
    """Return a number that belongs to these codes, in any layout, whatever the threads."""
    words = codes.to(torch.float32).reshape(-1).view(torch.int32).to(torch.int64)
    places = torch.arange(1, words.numel() + 1, device=words.device) * _ODD
    mixed = (words + places) * (places ^ (places >> 29) | 1)
    return int((mixed ^ (mixed >> 32)).sum())


def tiled(grid: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Return a grid repeated over a matrix, [rows, columns]."""
    height, width = grid.shape
    return grid.repeat(-(-rows // height), -(-columns // width))[:rows, :columns]
