"""Both passes over arrays, in torch and compiled by numba where that is installed: rounding, and readout.

`to_codes` and `read` run the compiled pass on a CPU and torch elsewhere; both do the same operation by
operation and from the same draws, hence with the same bits. Compiled passes run on one thread and let others
run.

Shape suffixes: B matrices, R rows and C columns of an operand as it lies in memory, M rows and N columns of a
product; G blocks of B / G matrices, each with a gain and draws of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from optical.execution.draws import (
    COMPILES,
    NO_WORDS,
    WORDS_PER_NUMBER,
    Draws,
    Words,
    compiled,
    fill,
    gaussian_pairs,
    inner,
    look_up,
)

SMALLEST_SCALE = 1e-30
"""Full scale of an operand row that is all zero, so that nothing is divided by zero."""
_DITHER_UNIT = np.float32(2.0**-16)
"""One 16-bit word of dither, in steps."""
_MAGNITUDE = np.int32(2**31 - 1)
"""All bits of a float32 but its sign, in which magnitudes have the order of whole numbers."""


class Rounded(NamedTuple):
    """Codes of an operand, with their energies and full scales: tensors, or the arrays of their memory."""

    codes: Any
    """Whole numbers, [B, R, C]."""
    energy: Any
    """Sums of squared codes along a dimension, which it keeps with one element."""
    scale: Any
    """Full scales, broadcastable to the codes."""


class Lines(NamedTuple):
    """Energies and full scales of rows of A, or of columns of B, or of blocks of them.

    Tensors that are broadcast to [B, M, N]; arrays without the dimension of the other operand's lines.
    """

    energy: Any
    """Sums of squared codes."""
    scale: Any
    """Full scales."""


class Law(NamedTuple):
    """Readout of each block of outputs, float64 [G] where nothing else is said, in code products.

    The variance of an output is ``constant + by_row e_i + by_column e_j + by_both e_i e_j``, with the
    energies of its row of A and of its column of B. Arrays on a CPU, tensors on an accelerator.
    """

    constant: Any
    by_row: Any
    by_column: Any
    by_both: Any
    step: Any
    """Of the output converter."""
    largest_code: int
    """Of the output converter; 0 without one."""
    unit: float
    """Value of a code product for full scales of 1."""


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Errors that no law of single outputs states; [B, M, N] or broadcast to it, none of them without."""

    variance: torch.Tensor | None = None
    """Noise beyond the law, as variance in code products squared."""
    added: tuple[torch.Tensor, ...] = ()
    """Errors to add, in code products."""
    gain: torch.Tensor | None = None
    """Gains of the outputs."""


NOTHING_SHARED = Shared()


def to_codes(
    x_BRC: torch.Tensor,
    reach: float,
    dim: int,
    *,
    dtype: torch.dtype,
    draws: Draws | None,
    blocks: int | None,
) -> Rounded:
    """Return an operand rounded to codes.

    Parameters
    ----------
    x_BRC : torch.Tensor
        Operand, without gaps.
    reach : float
        Code of full scale.
    dim : int
        -1 or -2, along which energies are summed.
    dtype : torch.dtype
        Of the codes, which holds the largest.
    draws : Draws or None
        Source of dithers; none to round to nearest.
    blocks : int or None
        As of `full_scale`.
    """
    if not available(x_BRC):
        scale = full_scale(x_BRC, dim, blocks)
        codes = x_BRC * (scale.new_full((), reach) / scale)
        if draws is not None:
            codes.add_(draws.dither(x_BRC.shape, x_BRC.dtype))
        codes.round_()
        return Rounded(codes.to(dtype), energy_of(codes, dim, x_BRC.dtype), scale)
    batch, rows, columns = x_BRC.shape
    codes = torch.empty_like(x_BRC, dtype=dtype)
    energy = x_BRC.new_empty((batch, rows, 1) if dim == -1 else (batch, 1, columns))
    scale = torch.empty_like(energy) if blocks is None else full_scale(x_BRC, dim, blocks)
    words = NO_WORDS if draws is None else draws.take(x_BRC.numel() // draws.blocks)
    memory = np.from_dlpack(x_BRC)  # `numpy` would keep FSDP from freeing it
    made = Rounded(codes.numpy(), energy.numpy(), scale.numpy())
    _encode(memory, np.float32(reach), words, made, blocks is None)
    return Rounded(codes, energy, scale)


def full_scale(x: torch.Tensor, summed_dim: int, blocks: int | None) -> torch.Tensor:
    """Return the largest magnitudes along the summed dimension, or of each of so many blocks; positive."""
    if blocks is None:
        scale = torch.maximum(x.amax(summed_dim, keepdim=True), x.amin(summed_dim, keepdim=True).neg_())
        return scale.clamp_(min=SMALLEST_SCALE)
    blocks = min(blocks, x.shape[0])
    low, high = x.reshape(blocks, -1).aminmax(dim=1)
    scale = torch.maximum(high, low.neg_()).clamp_(min=SMALLEST_SCALE)
    return scale.repeat_interleave(x.shape[0] // blocks).view(-1, 1, 1)


def energy_of(codes: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Return sums of squared codes, exact as far as their type: those of whole codes do not hang on order."""
    return codes.double().square().sum(dim, keepdim=True).to(dtype)


def read(
    value_BMN: torch.Tensor, operands: tuple[Lines, Lines], law: Law, shared: Shared, draws: Draws | None
) -> torch.Tensor:
    """Return products of codes with noise, converted and scaled.

    Parameters
    ----------
    value_BMN : torch.Tensor
        Products of codes, int32 or floating point, whose memory may be written to.
    operands : tuple of Lines
        Rows of A and columns of B.
    law : Law
        What happens to outputs.
    shared : Shared
        What else happens to them.
    draws : Draws or None
        Source of noise; none without.
    """
    for part in shared.added:
        value_BMN = value_BMN + part
    if available(operands[0].energy) and shared.variance is None and shared.gain is None:
        words = NO_WORDS if draws is None else draws.take(-(-value_BMN.numel() // (2 * draws.blocks)))
        rows, columns = (
            Lines(*(x.squeeze(dim).numpy() for x in lines))
            for lines, dim in zip(operands, (2, 1), strict=True)
        )
        _read(value_BMN.numpy(), (rows, columns), law, words, gaussian_pairs().numpy())
        return value_BMN.view(torch.float32)
    (rows, columns), dtype = operands, operands[0].energy.dtype
    value = value_BMN.to(dtype)
    if draws is not None:
        variance = variance_of(law, rows.energy, columns.energy)
        variance = variance if shared.variance is None else variance + shared.variance
        deviation = variance.double().sqrt_().to(dtype)  # in float32 libraries round otherwise
        value = value + draws.gaussian(value.shape, dtype) * deviation
    if shared.gain is not None:
        value = value * shared.gain
    unit = rows.scale * law.unit
    if law.largest_code:
        step = of_matrices(law.step, value).to(dtype)
        value = (value * step.reciprocal()).round().clamp(-law.largest_code, law.largest_code)
        unit = unit * step
    return value * unit * columns.scale if columns.scale.shape[2] > 1 else value * (unit * columns.scale)


def variance_of(law: Law, row_energy: torch.Tensor, column_energy: torch.Tensor) -> torch.Tensor:
    """Return the variance that a law gives to each output, [B, M, N], of energies [B, M, 1] and [B, 1, N]."""
    constant, by_row, by_column, by_both = (of_matrices(x, row_energy) for x in law[:4])
    base = (constant + by_row * row_energy).to(row_energy.dtype)
    slope = (by_column + by_both * row_energy).to(row_energy.dtype)
    return base + slope * column_energy


def of_matrices(x: Any, like: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    """Return what each block has, [G], for each of the matrices of a tensor, [B, 1, 1]."""
    of_blocks = torch.as_tensor(x, device=like.device)
    return of_blocks.repeat_interleave(like.shape[0] // len(of_blocks)).view(-1, 1, 1)


def available(x: torch.Tensor) -> bool:
    """Return whether compiled passes take such a tensor: float32 on a CPU, where numba is installed."""
    return COMPILES and x.dtype == torch.float32 and x.device.type == "cpu"


@compiled()
def _encode(x_BRC: np.ndarray, reach: np.float32, words: Words, made: Rounded, scales: bool) -> None:
    """Write codes and energies of an operand, rounded stochastically if there are words; scales if asked."""
    (batch, rows, columns), (codes_BRC, energy, scale) = x_BRC.shape, made
    by_rows, by_columns = energy.shape[1] == rows and energy.shape[2] == 1, scale.shape[2] > 1
    largest = scale.view(np.int32)
    if scales:
        scale[:] = np.float32(SMALLEST_SCALE)
    numbers = np.zeros(columns // WORDS_PER_NUMBER + 2, np.uint64)
    dither, squares = np.zeros(columns, np.float32), np.empty(columns, np.float64)
    for matrix in range(batch):
        squares[:] = 0.0
        if scales and not by_rows:
            for row in range(rows):
                _raise(largest[matrix, 0], x_BRC[matrix, row].view(np.int32))
        factor = reach / scale[matrix, 0]
        for row in range(rows):
            x, codes = x_BRC[matrix, row], codes_BRC[matrix, row]
            if scales and by_rows:
                largest[matrix, row, 0] = _largest(x.view(np.int32), largest[matrix, row, 0])
            if words.keys.size > 0:
                each = batch // words.keys.size
                place = words.first + (matrix % each * rows + row) * columns
                start = fill(numbers, words.keys[matrix // each], place)
                _dither(numbers.view(np.int16)[start : start + columns], dither)
            if by_columns:
                _round_columns(x, factor, dither, codes)
            else:
                _round_row(x, reach / scale[matrix, row % scale.shape[1], 0], dither, codes)
            if by_rows:
                energy[matrix, row, 0] = _sum_of_squares(codes)
            else:
                _add_squares(codes, squares)
        if not by_rows:
            _copy(squares, energy[matrix, 0])


@compiled()
def _read(
    value_BMN: np.ndarray, operands: tuple[Lines, Lines], law: Law, words: Words, pairs: np.ndarray
) -> None:
    """Add noise to outputs, convert and scale them, from pairs of Gaussians by word.

    The result is float32 in the memory of the products, whose elements are as long.
    """
    (batch, rows, columns), (of_rows, of_columns) = value_BMN.shape, operands
    numbers = np.zeros(columns // 2 // WORDS_PER_NUMBER + 2, np.uint64)
    drawn, ones = np.zeros(columns // 2 + 1, np.float64), np.ones(columns, np.float32)
    value = np.zeros(columns, np.float32)
    for matrix in range(batch):
        each = batch // law.constant.size
        block, step = matrix // each, np.float32(law.step[matrix // each])
        energy = of_columns.energy[matrix % of_columns.energy.shape[0]]
        scales = of_columns.scale[matrix % of_columns.scale.shape[0]]
        for row in range(rows):
            _copy(value_BMN[matrix, row], value)
            if words.keys.size > 0:
                place = (matrix % each * rows + row) * columns
                start = fill(numbers, words.keys[block], words.first + place // 2)
                look_up(numbers.view(np.uint16)[start : start + drawn.size], pairs, drawn)
                mine = of_rows.energy[matrix, row]
                base = np.float32(law.constant[block] + law.by_row[block] * mine)
                slope = np.float32(law.by_column[block] + law.by_both[block] * mine)
                _add_noise(value, drawn.view(np.float32)[place % 2 :], base, slope, energy)
            unit = of_rows.scale[matrix, row % of_rows.scale.shape[1]] * np.float32(law.unit)
            if law.largest_code > 0:
                _convert(value, np.float32(1.0) / step, np.float32(law.largest_code))
                unit *= step
            if scales.size > 1:
                _scale(value, unit, scales, value_BMN[matrix, row].view(np.float32))
            else:
                _scale(value, unit * scales[0], ones, value_BMN[matrix, row].view(np.float32))


@inner
def _raise(largest: np.ndarray, bits: np.ndarray) -> None:
    """Raise magnitudes to those of further numbers, as the bits of both."""
    for place in range(bits.size):
        largest[place] = max(largest[place], np.int32(bits[place] & _MAGNITUDE))


@inner
def _largest(bits: np.ndarray, largest: np.int32) -> np.int32:
    for place in range(bits.size):
        largest = max(largest, np.int32(bits[place] & _MAGNITUDE))
    return largest


@inner
def _dither(words: np.ndarray, dither: np.ndarray) -> None:
    for place in range(dither.size):
        dither[place] = np.float32(words[place]) * _DITHER_UNIT


@inner
def _round_row(x: np.ndarray, factor: np.float32, dither: np.ndarray, codes: np.ndarray) -> None:
    for place in range(x.size):
        codes[place] = np.rint(x[place] * factor + dither[place])


@inner
def _round_columns(x: np.ndarray, factor: np.ndarray, dither: np.ndarray, codes: np.ndarray) -> None:
    for place in range(x.size):
        codes[place] = np.rint(x[place] * factor[place] + dither[place])


@compiled(fastmath={"reassoc"}, no_cpython_wrapper=True, no_cfunc_wrapper=True)
def _sum_of_squares(codes: np.ndarray) -> float:
    """Return a sum of whole numbers, exact in any order; of int8 codes an int32 holds it."""
    if codes.itemsize == 1:
        small = np.int32(0)
        for place in range(codes.size):
            code = np.int32(codes[place])
            small = np.int32(small + np.int32(code * code))
        return np.float64(small)
    total = 0.0
    for place in range(codes.size):
        total += np.float64(codes[place]) * np.float64(codes[place])
    return total


@inner
def _add_squares(codes: np.ndarray, squares: np.ndarray) -> None:
    for place in range(codes.size):
        squares[place] += np.float64(codes[place]) * np.float64(codes[place])


@inner
def _copy(values: np.ndarray, out: np.ndarray) -> None:
    """Write values one by one; an assignment of arrays takes seconds to compile."""
    for place in range(out.size):
        out[place] = values[place]


@inner
def _add_noise(
    value: np.ndarray, gaussian: np.ndarray, base: np.float32, slope: np.float32, energy: np.ndarray
) -> None:
    """Add Gaussians of the variance ``base + slope * energy``."""
    for place in range(value.size):
        value[place] += gaussian[place] * np.sqrt(base + slope * energy[place])


@inner
def _convert(value: np.ndarray, codes_per_unit: np.float32, largest: np.float32) -> None:
    """Round to codes of the output converter, and clip."""
    for place in range(value.size):
        code = np.rint(value[place] * codes_per_unit)
        code = -largest if code < -largest else code
        value[place] = largest if code > largest else code


@inner
def _scale(value: np.ndarray, unit: np.float32, scale: np.ndarray, out: np.ndarray) -> None:
    for place in range(value.size):
        out[place] = value[place] * unit * scale[place]
