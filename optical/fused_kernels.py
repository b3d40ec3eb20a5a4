"""Conversion of operands in single passes over memory, compiled by numba where that is installed.

Each function computes what the torch code that it stands for would, from the same draws. Memory is given by
address: to wrap a tensor as an array takes as long as a small product.

Shape suffixes: B batch, R rows and C columns of an operand as it lies in memory.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

Array = Any
Numbers = tuple[Any, ...]
_MAGNITUDE = np.int32(0x7FFFFFFF)
"""All bits of a float32 but its sign: as integers they compare as magnitudes do."""
_UNIT = np.float32(2.0**-16)
"""What a 16-bit word of dither is worth, in steps."""
_HASH = np.uint64(0x100000001B3)
compiled = numba.njit(nogil=True, cache=True, fastmath={"reassoc", "nsz"})


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(typing: Any, address: Any) -> Any:  # noqa: ANN401
    """Return an address as a pointer."""
    del typing

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        del context, signature
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@compiled
def floats(address: int, count: int) -> Array:
    """Return float32 numbers at an address."""
    return numba.carray(_pointer(address), (count,), np.float32)


@compiled
def integers(address: int, count: int) -> Array:
    """Return int32 numbers at an address."""
    return numba.carray(_pointer(address), (count,), np.int32)


@compiled
def small_integers(address: int, count: int) -> Array:
    """Return int8 numbers at an address."""
    return numba.carray(_pointer(address), (count,), np.int8)


@compiled
def encode(memory: Numbers, whole: bool, shape: Numbers, grid: Numbers, words: Array) -> None:
    """Round an operand to codes.

    Parameters
    ----------
    memory : tuple of int
        Addresses of the operand, float32 [B, R, C]; of its codes, int8 if `whole`, else float32; of its full
        scales, [B, R], [B, C] or [1]; and of sums of squared codes, [B, R] or [B, C], or 0 for none.
    whole : bool
        Of what type codes are.
    shape : tuple of int
        B, R and C.
    grid : tuple
        Code of full scale; the least full scale; whether sums are over columns, rather than over rows; whether
        elements that are summed have a full scale of their own, rather than all the same.
    words : numpy.ndarray
        int16 to dither with, one for each element; none to round to nearest.
    """
    count = shape[0] * shape[1] * shape[2]
    if whole:
        _encode(small_integers(memory[1], count), memory, shape, grid, words)
    else:
        _encode(floats(memory[1], count), memory, shape, grid, words)


@compiled
def _encode(codes: Array, memory: Numbers, shape: Numbers, grid: Numbers, words: Array) -> None:
    (batches, rows, columns), (_, smallest, by_rows, own) = shape, grid
    x = floats(memory[0], codes.size)
    least = np.full(1, smallest, np.float32).view(np.int32)[0]
    if not own:
        bits = integers(memory[0], codes.size)
        integers(memory[2], 1)[0] = largest(bits, least)
    if by_rows:
        _encode_rows(
            codes, (x, floats(memory[2], batches * rows if own else 1)), memory[3], columns, grid, words
        )
    else:
        size = rows * columns
        for batch in range(batches):
            part = slice(batch * size, (batch + 1) * size)
            scale = floats(memory[2] + (4 * batch * columns if own else 0), columns if own else 1)
            energy = floats(memory[3] + 4 * batch * columns, columns if memory[3] else 0)
            _encode_columns(codes[part], (x[part], scale), energy, columns, grid, words[part])


@compiled
def largest(bits: Array, least: Any) -> Any:  # noqa: ANN401
    """Return the largest magnitude of elements, or the least it may be, all given as int32 bits."""
    top = least
    for place in range(bits.size):
        top = max(top, bits[place] & _MAGNITUDE)
    return top


@compiled
def _encode_rows(
    codes: Array, values: tuple[Array, Array], energy: int, columns: int, grid: Numbers, words: Array
) -> None:
    """Round rows, each with a full scale of its own or all with one that is known."""
    (x, scale), (reach, smallest, _, own) = values, grid
    rows = x.size // columns
    bits, tops = x.view(np.int32), scale.view(np.int32)
    least = np.full(1, smallest, np.float32).view(np.int32)[0]
    squares = floats(energy, rows if energy else 0)
    for row in range(rows):
        part = slice(row * columns, (row + 1) * columns)
        if own:
            tops[row] = largest(bits[part], least)
        factor = reach / scale[row if own else 0]
        if words.size > 0:
            _dither(x[part], factor, words[part], codes[part])
        else:
            _round(x[part], factor, codes[part])
        if squares.size > 0:
            squares[row] = _sum_of_squares(codes[part])


@compiled
def _encode_columns(
    codes: Array, values: tuple[Array, Array], energy: Array, columns: int, grid: Numbers, words: Array
) -> None:
    """Round columns, each with a full scale of its own or all with one that is known."""
    (x, scale), (reach, smallest, _, own) = values, grid
    rows = x.size // columns
    if own:
        scale[:] = smallest
        bits, tops = x.view(np.int32), scale.view(np.int32)
        for row in range(rows):
            _raise(bits[row * columns : (row + 1) * columns], tops)
    factor = reach / scale
    energy[:] = np.float32(0.0)
    for row in range(rows):
        part = slice(row * columns, (row + 1) * columns)
        if own and words.size > 0:
            _dither_by_columns(x[part], factor, words[part], codes[part])
        elif own:
            _round_by_columns(x[part], factor, codes[part])
        elif words.size > 0:
            _dither(x[part], factor[0], words[part], codes[part])
        else:
            _round(x[part], factor[0], codes[part])
        if energy.size > 0:
            _add_squares(codes[part], energy)


@compiled
def _raise(bits: Array, tops: Array) -> None:
    for place in range(tops.size):
        tops[place] = max(tops[place], bits[place] & _MAGNITUDE)


@compiled
def _round(x: Array, factor: Any, codes: Array) -> None:  # noqa: ANN401
    for place in range(x.size):
        codes[place] = np.rint(x[place] * factor)


@compiled
def _round_by_columns(x: Array, factor: Array, codes: Array) -> None:
    for place in range(x.size):
        codes[place] = np.rint(x[place] * factor[place])


@compiled
def _dither(x: Array, factor: Any, words: Array, codes: Array) -> None:  # noqa: ANN401
    for place in range(x.size):
        codes[place] = np.rint(x[place] * factor + np.float32(words[place]) * _UNIT)


@compiled
def _dither_by_columns(x: Array, factor: Array, words: Array, codes: Array) -> None:
    for place in range(x.size):
        codes[place] = np.rint(x[place] * factor[place] + np.float32(words[place]) * _UNIT)


@compiled
def _sum_of_squares(codes: Array) -> Any:  # noqa: ANN401
    total = np.float32(0.0)
    for place in range(codes.size):
        code = np.float32(codes[place])
        total += code * code
    return total


@compiled
def _add_squares(codes: Array, energy: Array) -> None:
    for place in range(codes.size):
        code = np.float32(codes[place])
        energy[place] += code * code


@compiled
def split(address: int, halves: tuple[int, int, int], count: int) -> None:
    """Divide whole float32 codes into ``128 high + low``.

    Parameters
    ----------
    address : int
        Of codes.
    halves : tuple of int
        Addresses of the high part, of the low part and of their sum, int8.
    count : int
        How many there are.
    """
    codes = floats(address, count)
    high, low = small_integers(halves[0], count), small_integers(halves[1], count)
    both = small_integers(halves[2], count)
    for place in range(count):
        upper = np.rint(codes[place] * np.float32(1.0 / 128.0))
        lower = codes[place] - upper * np.float32(128.0)
        high[place], low[place], both[place] = upper, lower, upper + lower


@compiled
def join(sums: tuple[int, int, int], address: int, count: int) -> None:
    """Add products of halves: high by high, low by low, and sum by sum, all int32, to float32."""
    high, low, both = integers(sums[0], count), integers(sums[1], count), integers(sums[2], count)
    out, radix = floats(address, count), np.float32(128.0)
    for place in range(count):
        crossed = both[place] - high[place] - low[place]
        upper = np.float32(high[place]) * radix + np.float32(crossed)
        out[place] = upper * radix + np.float32(low[place])


@compiled
def digest(address: int, count: int, step: int) -> int:
    """Return a hash of some float32 numbers, `step` apart around `count` of them."""
    bits, found = integers(address, count), np.uint64(0xCBF29CE484222325)
    place = 0
    for _ in range(min(256, count)):
        found = (found ^ np.uint64(bits[place])) * _HASH
        place = (place + step) % count
    return found
