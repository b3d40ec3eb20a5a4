"""Conversion and readout in single passes over memory, compiled by numba where that is installed.

Each function computes what the torch code that calls it would, from the same draws. Arrays are contiguous
float32 unless said otherwise; an array of no elements stands for what is left out.

Shape suffixes: B batch, R rows and C columns of an operand as it lies in memory, M rows and N columns of a
product.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

Array = Any
_MAGNITUDE = np.int32(0x7FFFFFFF)
"""All bits of a float32 but its sign: as integers they compare as magnitudes do."""
_UNIT = np.float32(2.0**-16)
"""What a 16-bit word of dither is worth, in steps."""
_compiled = numba.njit(nogil=True, cache=True, fastmath={"reassoc", "nsz"})


@_compiled
def largest_of_rows(bits_RC: Array, top_R: Array) -> None:
    """Raise each row's largest magnitude to that of its elements, all given as int32 bits."""
    for row in range(bits_RC.shape[0]):
        largest = top_R[row]
        for column in range(bits_RC.shape[1]):
            largest = max(largest, bits_RC[row, column] & _MAGNITUDE)
        top_R[row] = largest


@_compiled
def largest_of_columns(bits_BRC: Array, top_BC: Array) -> None:
    """Raise each column's largest magnitude to that of its elements, all given as int32 bits."""
    for batch in range(bits_BRC.shape[0]):
        for row in range(bits_BRC.shape[1]):
            for column in range(bits_BRC.shape[2]):
                top_BC[batch, column] = max(top_BC[batch, column], bits_BRC[batch, row, column] & _MAGNITUDE)


@_compiled
def convert_rows(
    x_RC: Array, codes_RC: Array, grid: tuple[Any, Any], words_RC: Array, sums: tuple[Array, Array]
) -> None:
    """Round rows to codes, int8 or float32, each with a full scale of its own.

    Parameters
    ----------
    x_RC, codes_RC : numpy.ndarray
        Operand and result.
    grid : tuple of float32
        Code of full scale, and the least full scale.
    words_RC : numpy.ndarray
        int16 to dither with; none to round to nearest.
    sums : tuple of numpy.ndarray
        Where full scales go, [R], and sums of squared codes, [R] or none.
    """
    reach, smallest = grid
    scale_R, energy_R = sums
    bits_RC, least = x_RC.view(np.int32), np.zeros(1, np.float32)
    least[0] = smallest
    for row in range(x_RC.shape[0]):
        scale = least.copy()
        largest_of_rows(bits_RC[row : row + 1], scale.view(np.int32))
        scale_R[row] = scale[0]
        if words_RC.size > 0:
            _dither(x_RC[row], reach / scale[0], words_RC[row], codes_RC[row])
        else:
            _round(x_RC[row], reach / scale[0], codes_RC[row])
        if energy_R.size > 0:
            energy_R[row] = _sum_of_squares(codes_RC[row])


@_compiled
def convert(x_BRC: Array, codes_BRC: Array, factor: Array, words: Array, energy: Array) -> None:
    """Round an operand to codes, int8 or float32.

    Parameters
    ----------
    x_BRC, codes_BRC : numpy.ndarray
        Operand and result.
    factor : numpy.ndarray
        Codes per unit by column, [B, C], or of all, [1, 1].
    words : numpy.ndarray
        int16 to dither with, [B R, C]; none to round to nearest.
    energy : numpy.ndarray
        Sums of squared codes of rows, [B R, 1], or columns, [B, C], are added to it; none of shape [0, 0].
    """
    rows = x_BRC.shape[1]
    for batch in range(x_BRC.shape[0]):
        for row in range(rows):
            place, x, codes = batch * rows + row, x_BRC[batch, row], codes_BRC[batch, row]
            if factor.size > 1 and words.size > 0:
                _dither_by_columns(x, factor[batch], words[place], codes)
            elif factor.size > 1:
                _round_by_columns(x, factor[batch], codes)
            elif words.size > 0:
                _dither(x, factor[0, 0], words[place], codes)
            else:
                _round(x, factor[0, 0], codes)
            if energy.shape == (x_BRC.shape[0] * rows, 1):
                energy[place, 0] = _sum_of_squares(codes)
            elif energy.size > 0:
                _add_squares(codes, energy[batch])


@_compiled
def _round(x: Array, factor: Any, codes: Array) -> None:  # noqa: ANN401
    for place in range(x.size):
        codes[place] = np.rint(x[place] * factor)


@_compiled
def _round_by_columns(x: Array, factor: Array, codes: Array) -> None:
    for place in range(x.size):
        codes[place] = np.rint(x[place] * factor[place])


@_compiled
def _dither(x: Array, factor: Any, words: Array, codes: Array) -> None:  # noqa: ANN401
    for place in range(x.size):
        codes[place] = np.rint(x[place] * factor + np.float32(words[place]) * _UNIT)


@_compiled
def _dither_by_columns(x: Array, factor: Array, words: Array, codes: Array) -> None:
    for place in range(x.size):
        codes[place] = np.rint(x[place] * factor[place] + np.float32(words[place]) * _UNIT)


@_compiled
def _sum_of_squares(codes: Array) -> Any:  # noqa: ANN401
    total = np.float32(0.0)
    for place in range(codes.size):
        code = np.float32(codes[place])
        total += code * code
    return total


@_compiled
def _add_squares(codes: Array, energy: Array) -> None:
    for place in range(codes.size):
        code = np.float32(codes[place])
        energy[place] += code * code


@_compiled
def split(codes: Array, high: Array, low: Array) -> None:
    """Divide whole float32 codes into ``128 high + low``, int8, all of one size."""
    for place in range(codes.size):
        upper = np.rint(codes[place] * np.float32(1.0 / 128.0))
        high[place] = upper
        low[place] = codes[place] - upper * np.float32(128.0)


@_compiled
def join(sums: tuple[Array, Array, Array, Array], out: Array) -> None:
    """Add int32 products of halves: high by high, high by low, low by high, low by low."""
    high, crossed, crossed_too, low = sums
    radix = np.float32(128.0)
    for place in range(out.size):
        upper = np.float32(high[place]) * radix + np.float32(crossed[place] + crossed_too[place])
        out[place] = upper * radix + np.float32(low[place])


@_compiled
def finish(
    product_BMN: Array,
    gaussians: tuple[Array, Array],
    variance: tuple[Array, Array, Array, Array],
    readout: tuple[Array, Array, Any, Any],
    out_BMN: Array,
) -> None:
    """Add noise to exact products, convert and scale them.

    Parameters
    ----------
    product_BMN, out_BMN : numpy.ndarray
        Products of codes, int32 or float32, and result; N is even.
    gaussians : tuple of numpy.ndarray
        Words, uint16, one for two outputs, or none without noise; and pairs of Gaussians by word, [65536]
        float64 that hold two float32 each.
    variance : tuple of numpy.ndarray
        Of outputs: by row [B M] or [1], by column [B, N], and the factors of a product of both.
    readout : tuple
        Scale by row, [B M] or [1], and by column, [B, N]; codes of the converter per unit and its largest
        code, zero without a converter.
    """
    by_row, by_column, row_factor, column_factor = variance
    row_scale, column_scale, per_step, levels = readout
    words, pairs = gaussians
    half, rows = product_BMN.shape[2] // 2, product_BMN.shape[1]
    drawn = np.zeros(half, np.float64)
    noise = drawn.view(np.float32)
    for batch in range(product_BMN.shape[0]):
        for row in range(rows):
            place, product, out = batch * rows + row, product_BMN[batch, row], out_BMN[batch, row]
            if words.size > 0:
                for pair in range(half):
                    drawn[pair] = pairs[words[place * half + pair]]
                base = by_row[min(place, by_row.size - 1)]
                if column_factor.size > 0:
                    weight = row_factor[min(place, row_factor.size - 1)]
                    columns = (by_column[batch], column_factor[batch])
                    _add_product_noise(product, noise, (base, weight), columns, out)
                elif by_column.size > 0:
                    _add_column_noise(product, noise, base, by_column[batch], out)
                else:
                    _add_noise(product, noise, np.sqrt(base), out)
            else:
                out[:] = product
            if levels > 0.0:
                _convert(out, per_step, levels)
            factor = row_scale[min(place, row_scale.size - 1)]
            if column_scale.size > 0:
                _scale_columns(out, factor, column_scale[batch])
            else:
                _scale(out, factor)


@_compiled
def _add_noise(product: Array, noise: Array, deviation: Any, out: Array) -> None:  # noqa: ANN401
    for place in range(out.size):
        out[place] = np.float32(product[place]) + noise[place] * deviation


@_compiled
def _add_column_noise(product: Array, noise: Array, by_row: Any, by_column: Array, out: Array) -> None:  # noqa: ANN401
    for place in range(out.size):
        deviation = np.sqrt(by_row + by_column[place])
        out[place] = np.float32(product[place]) + noise[place] * deviation


@_compiled
def _add_product_noise(
    product: Array, noise: Array, row: tuple[Any, Any], column: tuple[Array, Array], out: Array
) -> None:
    by_row, row_factor = row
    by_column, column_factor = column
    for place in range(out.size):
        deviation = np.sqrt(by_row + by_column[place] + row_factor * column_factor[place])
        out[place] = np.float32(product[place]) + noise[place] * deviation


@_compiled
def _convert(out: Array, per_step: Any, levels: Any) -> None:  # noqa: ANN401
    for place in range(out.size):
        code = np.rint(out[place] * per_step)
        code = -levels if code < -levels else code
        out[place] = levels if code > levels else code


@_compiled
def _scale(out: Array, factor: Any) -> None:  # noqa: ANN401
    for place in range(out.size):
        out[place] *= factor


@_compiled
def _scale_columns(out: Array, factor: Any, column: Array) -> None:  # noqa: ANN401
    for place in range(out.size):
        out[place] = out[place] * factor * column[place]
