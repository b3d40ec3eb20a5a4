"""The two elementwise passes of an executed product: rounding operands to codes, and reading out the outputs.

Each pass exists twice, in torch and compiled by numba. `to_codes` and `read` take the compiled one for
float32 on a CPU where numba is installed, and torch elsewhere. Both do the same operations in the same order
from the same draws, so that results agree bit for bit. Compiled passes run on one thread and release the
interpreter.

Shape suffixes: B matrices; R rows and C columns of an operand in the order of its memory; M rows and N
columns of a product; G blocks, each of B / G matrices and with a converter range and draws of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from optical.execution.draws import (
    COMPILES,
    NO_STREAM,
    WORDS_PER_NUMBER,
    Draws,
    WordStream,
    compiled,
    compiled_helper,
    fill_numbers,
    gaussian_pairs,
    look_up_pairs,
)

SMALLEST_SCALE = 1e-30
"""Least full scale, for operands that are all zero, so that nothing is divided by zero."""
_DITHER_UNIT = np.float32(2.0**-16)
"""Steps of the converter in one unit of a 16-bit word of dither."""
_MAGNITUDE = np.int32(2**31 - 1)
"""Mask of all bits of a float32 but its sign: as integers they have the order of the magnitudes."""


class Rounded(NamedTuple):
    """Operand rounded to codes: torch tensors, or numpy arrays of the same memory."""

    codes: Any
    """Codes, whole numbers, [B, R, C]."""
    energy: Any
    """Sums of squared codes over the summed dimension, [B, R, 1] or [B, 1, C]."""
    scale: Any
    """Full scale of each row or column, shape as `energy`; or of each matrix, [B, 1, 1]."""


class Lines(NamedTuple):
    """Energies and full scales of the rows of A, or of the columns of B.

    As tensors [B, M, 1] or [B, 1, N]; for compiled passes as arrays [B, M] or [B, N].
    """

    energy: Any
    """Sum of squared codes of each line."""
    scale: Any
    """Full scale of each line, or one for all lines of a matrix."""


class Law(NamedTuple):
    """Noise and conversion of the outputs of each block, in units of code products.

    Output (i, j) has the variance ``constant + by_row e_i + by_column e_j + by_both e_i e_j``, where e_i and
    e_j are the energies of its row of A and of its column of B. Coefficients are float64 [G]: numpy arrays on
    a CPU, tensors on an accelerator.
    """

    constant: Any
    by_row: Any
    by_column: Any
    by_both: Any
    step: Any
    """Step of the output converter, float64 [G]."""
    largest_code: int
    """Largest code of the output converter; 0 if outputs are not rounded."""
    unit: float
    """Value of one code product where both full scales are 1, dimensionless."""


@dataclass(frozen=True, kw_only=True)
class SharedErrors:
    """Errors beyond the `Law`, which gives every output a variance by its row and column alone.

    Tensors of shape [B, M, N], or broadcast to it.
    """

    variance: torch.Tensor | None = None
    """Further variance of each output, in code products squared."""
    added: tuple[torch.Tensor, ...] = ()
    """Errors that are added to the outputs, in code products."""
    gain: torch.Tensor | None = None
    """Gain of each output."""


NO_SHARED_ERRORS = SharedErrors()


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
        Operand, contiguous.
    reach : float
        Code of full scale.
    dim : int
        Dimension that the product sums over, along which energies are summed: -1 or -2.
    dtype : torch.dtype
        Type of the codes.
    draws : Draws or None
        Source of dither, for stochastic rounding; None rounds to nearest.
    blocks : int or None
        Number of blocks with one full scale each; None gives each row (or column) its own.
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
    stream = NO_STREAM if draws is None else draws.take(x_BRC.numel() // draws.blocks)
    memory = np.from_dlpack(x_BRC)  # `numpy` would keep FSDP from freeing it
    arrays = Rounded(codes.numpy(), energy.numpy(), scale.numpy())
    _encode(memory, np.float32(reach), stream, arrays, blocks is None)
    return Rounded(codes, energy, scale)


def full_scale(x: torch.Tensor, summed_dim: int, blocks: int | None) -> torch.Tensor:
    """Return full scales, the largest magnitudes: along the summed dimension, or of each block of matrices.

    Parameters
    ----------
    x : torch.Tensor
        Operand, [B, R, C].
    summed_dim : int
        Dimension that the product sums over, -1 or -2.
    blocks : int or None
        Number of blocks that share a full scale, at most B; None for one for each row (or column).

    Returns
    -------
    torch.Tensor
        At least `SMALLEST_SCALE`, [B, R, 1] or [B, 1, C]; with blocks [B, 1, 1].
    """
    if blocks is None:
        scale = torch.maximum(x.amax(summed_dim, keepdim=True), x.amin(summed_dim, keepdim=True).neg_())
        return scale.clamp_(min=SMALLEST_SCALE)
    blocks = min(blocks, x.shape[0])
    low, high = x.reshape(blocks, -1).aminmax(dim=1)
    scale = torch.maximum(high, low.neg_()).clamp_(min=SMALLEST_SCALE)
    return scale.repeat_interleave(x.shape[0] // blocks).view(-1, 1, 1)


def energy_of(codes: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Return sums of squared codes along a dimension, added in float64 (exact for whole codes)."""
    return codes.double().square().sum(dim, keepdim=True).to(dtype)


def read(
    value_BMN: torch.Tensor,
    operands: tuple[Lines, Lines],
    law: Law,
    shared: SharedErrors,
    draws: Draws | None,
) -> torch.Tensor:
    """Return the outputs of a product as the output converter delivers them, in the operands' units.

    In this order: shared errors and the law's noise are added, output gains applied, values rounded and
    clipped to the converter's codes, and multiplied by both full scales.

    Parameters
    ----------
    value_BMN : torch.Tensor
        Exact products of codes, int32 or floating point; their memory may be overwritten.
    operands : tuple of Lines
        Rows of A, and columns of B.
    law : Law
        Noise of each output, and the converter's grid.
    shared : SharedErrors
        Errors that the law does not state.
    draws : Draws or None
        Source of the law's noise; None adds none.
    """
    for part in shared.added:
        value_BMN = value_BMN + part
    if available(operands[0].energy) and shared.variance is None and shared.gain is None:
        stream = NO_STREAM if draws is None else draws.take(-(-value_BMN.numel() // (2 * draws.blocks)))
        rows, columns = (
            Lines(*(x.squeeze(dim).numpy() for x in lines))
            for lines, dim in zip(operands, (2, 1), strict=True)
        )
        _read(value_BMN.numpy(), (rows, columns), law, stream, gaussian_pairs().numpy())
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
    """Return the variance of each output by a law, [B, M, N], from energies [B, M, 1] and [B, 1, N]."""
    constant, by_row, by_column, by_both = (of_matrices(x, row_energy) for x in law[:4])
    base = (constant + by_row * row_energy).to(row_energy.dtype)
    slope = (by_column + by_both * row_energy).to(row_energy.dtype)
    return base + slope * column_energy


def of_matrices(x: Any, like: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    """Return one value for each matrix, [B, 1, 1], of values [G] of blocks; B and device as `like` has."""
    of_blocks = torch.as_tensor(x, device=like.device)
    return of_blocks.repeat_interleave(like.shape[0] // len(of_blocks)).view(-1, 1, 1)


def available(x: torch.Tensor) -> bool:
    """Return whether the compiled passes can take a tensor: float32 on a CPU, and numba is installed."""
    return COMPILES and x.dtype == torch.float32 and x.device.type == "cpu"


@compiled()
def _encode(
    x_BRC: np.ndarray, reach: np.float32, stream: WordStream, out: Rounded, find_scales: bool
) -> None:
    """Write the codes, the energies and, with `find_scales`, the full scales of an operand into `out`.

    Rounding is stochastic unless the stream is empty. Rows of memory are taken one by one. Where energies
    belong to columns, their squares are added up over the rows, and full scales need a pass of their own
    before.
    """
    (batch, rows, columns), (codes_BRC, energy, scale) = x_BRC.shape, out
    by_rows, by_columns = energy.shape[1] == rows and energy.shape[2] == 1, scale.shape[2] > 1
    largest_bits = scale.view(np.int32)
    if find_scales:
        scale[:] = np.float32(SMALLEST_SCALE)
    numbers = np.zeros(columns // WORDS_PER_NUMBER + 2, np.uint64)
    dither, squares = np.zeros(columns, np.float32), np.empty(columns, np.float64)
    for matrix in range(batch):
        squares[:] = 0.0
        if find_scales and not by_rows:
            for row in range(rows):
                _raise_maxima(largest_bits[matrix, 0], x_BRC[matrix, row].view(np.int32))
        factor = reach / scale[matrix, 0]
        for row in range(rows):
            x, codes = x_BRC[matrix, row], codes_BRC[matrix, row]
            if find_scales and by_rows:
                bits = largest_bits[matrix, row, 0]
                largest_bits[matrix, row, 0] = _maximum(x.view(np.int32), bits)
            if stream.keys.size > 0:
                of_block = batch // stream.keys.size
                first = stream.first + (matrix % of_block * rows + row) * columns
                start = fill_numbers(numbers, stream.keys[matrix // of_block], first)
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
    value_BMN: np.ndarray, operands: tuple[Lines, Lines], law: Law, stream: WordStream, pairs: np.ndarray
) -> None:
    """Add noise to the outputs, convert and scale them, one row after the other.

    The result is written as float32 into the memory of `value_BMN`, whose elements have 32 bits. `pairs` is
    the table of `gaussian_pairs`. Output number p of a block takes Gaussian p, hence word p / 2 of its
    stream; a row that begins at an odd p skips the first of a pair.
    """
    (batch, rows, columns), (of_rows, of_columns) = value_BMN.shape, operands
    numbers = np.zeros(columns // 2 // WORDS_PER_NUMBER + 2, np.uint64)
    drawn, ones = np.zeros(columns // 2 + 1, np.float64), np.ones(columns, np.float32)
    value = np.zeros(columns, np.float32)
    for matrix in range(batch):
        of_block = batch // law.constant.size
        block, step = matrix // of_block, np.float32(law.step[matrix // of_block])
        column_energy = of_columns.energy[matrix % of_columns.energy.shape[0]]
        column_scale = of_columns.scale[matrix % of_columns.scale.shape[0]]
        for row in range(rows):
            _copy(value_BMN[matrix, row], value)
            if stream.keys.size > 0:
                first = (matrix % of_block * rows + row) * columns
                start = fill_numbers(numbers, stream.keys[block], stream.first + first // 2)
                look_up_pairs(numbers.view(np.uint16)[start : start + drawn.size], pairs, drawn)
                row_energy = of_rows.energy[matrix, row]
                base = np.float32(law.constant[block] + law.by_row[block] * row_energy)
                slope = np.float32(law.by_column[block] + law.by_both[block] * row_energy)
                _add_noise(value, drawn.view(np.float32)[first % 2 :], base, slope, column_energy)
            unit = of_rows.scale[matrix, row % of_rows.scale.shape[1]] * np.float32(law.unit)
            if law.largest_code > 0:
                _convert(value, np.float32(1.0) / step, np.float32(law.largest_code))
                unit *= step
            if column_scale.size > 1:
                _scale(value, unit, column_scale, value_BMN[matrix, row].view(np.float32))
            else:
                _scale(value, unit * column_scale[0], ones, value_BMN[matrix, row].view(np.float32))


@compiled_helper
def _raise_maxima(largest: np.ndarray, bits: np.ndarray) -> None:
    """Update running maxima of |x|, element by element, both as the integer bits of float32."""
    for place in range(bits.size):
        largest[place] = max(largest[place], np.int32(bits[place] & _MAGNITUDE))


@compiled_helper
def _maximum(bits: np.ndarray, largest: np.int32) -> np.int32:
    """Return the larger of `largest` and all |x|, each as the integer bits of float32."""
    for place in range(bits.size):
        largest = max(largest, np.int32(bits[place] & _MAGNITUDE))
    return largest


@compiled_helper
def _dither(words: np.ndarray, dither: np.ndarray) -> None:
    """Write 16-bit words, int16, as dither from -1/2 to 1/2 of a step."""
    for place in range(dither.size):
        dither[place] = np.float32(words[place]) * _DITHER_UNIT


@compiled_helper
def _round_row(x: np.ndarray, factor: np.float32, dither: np.ndarray, codes: np.ndarray) -> None:
    """Write the codes of elements that share a full scale; `factor` is codes per unit of x."""
    for place in range(x.size):
        codes[place] = np.rint(x[place] * factor + dither[place])


@compiled_helper
def _round_columns(x: np.ndarray, factor: np.ndarray, dither: np.ndarray, codes: np.ndarray) -> None:
    """Write the codes of elements that have a full scale each; `factor` is codes per unit of x."""
    for place in range(x.size):
        codes[place] = np.rint(x[place] * factor[place] + dither[place])


@compiled(fastmath={"reassoc"}, no_cpython_wrapper=True, no_cfunc_wrapper=True)
def _sum_of_squares(codes: np.ndarray) -> float:
    """Return the sum of squared codes, exact in any order, which lets `reassoc` vectorise it.

    Of int8 codes an int32 holds it.
    """
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


@compiled_helper
def _add_squares(codes: np.ndarray, squares: np.ndarray) -> None:
    """Add the squares of codes to running sums, element by element."""
    for place in range(codes.size):
        squares[place] += np.float64(codes[place]) * np.float64(codes[place])


@compiled_helper
def _copy(values: np.ndarray, out: np.ndarray) -> None:
    """Copy values one by one: `out[:] = values` would take numba seconds to compile."""
    for place in range(out.size):
        out[place] = values[place]


@compiled_helper
def _add_noise(
    value: np.ndarray, gaussian: np.ndarray, base: np.float32, slope: np.float32, energy: np.ndarray
) -> None:
    """Add noise of the variance ``base + slope * energy``, from standard Gaussians."""
    for place in range(value.size):
        value[place] += gaussian[place] * np.sqrt(base + slope * energy[place])


@compiled_helper
def _convert(value: np.ndarray, codes_per_unit: np.float32, largest: np.float32) -> None:
    """Replace values by the output converter's codes: rounded, and clipped to its largest."""
    for place in range(value.size):
        code = np.rint(value[place] * codes_per_unit)
        code = -largest if code < -largest else code
        value[place] = largest if code > largest else code


@compiled_helper
def _scale(value: np.ndarray, unit: np.float32, scale: np.ndarray, out: np.ndarray) -> None:
    """Write ``value * unit * scale``, in this order of the products."""
    for place in range(value.size):
        out[place] = value[place] * unit * scale[place]
