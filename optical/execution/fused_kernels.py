"""Conversion of operands in single passes over memory, compiled by numba where that is installed.

Each function computes what the torch code that it stands for would, from the same draws.

Shape suffixes: B batch, R rows and C columns of an operand as it lies in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from optical.execution.compiling import (
    Array,
    Numbers,
    compiled,
    compiled_in_order,
    floats,
    inside,
    integers,
    larger_magnitude,
    nearest,
    plus,
    remainder,
    small_integers,
)
from optical.execution.fused_draws import draw_words

_UNIT = np.float32(2.0**-16)
"""What a 16-bit word of dither is worth, in steps."""
_HASH = np.uint64(0x100000001B3)


@inside
def encode(codes: Array, memory: Numbers, shape: Numbers, grid: Numbers, dither: Numbers) -> None:
    """Round an operand to codes.

    Parameters
    ----------
    codes : numpy.ndarray
        Room for the codes, int8, int16 or float32 [B R C].
    memory : tuple of int
        Addresses of the operand, float32 [B, R, C]; of codes; of its full scales, [B, R], [B, C] or [1];
        of sums of squared codes, [B, R] or [B, C], or 0 for none; and of the codes' halves, high, low and
        their sum, int8, or 0 for those that are not wanted.
    shape : tuple of int
        B, R and C; and of a part the first and the last but one row of B R, if sums are over columns, else
        the first and the last but one column.
    grid : tuple
        Code of full scale; the least full scale; whether sums are over columns, not over rows; whether
        elements that are summed have a full scale of their own, rather than all the same.
    dither : tuple
        Whether to dither, and what from: key and first word (`optical.execution.draws.Draws.take`).
    """
    batches, rows, columns, start, end = shape
    _, _, by_rows, own = grid
    x, count = floats(memory[0], codes.size), codes.size if memory[4] else 0
    high, low, both = (
        small_integers(memory[4], count),
        small_integers(memory[5], count),
        small_integers(memory[6], codes.size if memory[6] else 0),
    )
    if by_rows:
        scale = floats(memory[2], batches * rows if own else 1)
        squares = floats(memory[3], batches * rows if memory[3] else 0)
        _encode_rows(codes, (x, scale, squares, high, low, both), (columns, start, end), grid, dither)
    else:
        scale = floats(memory[2], batches * columns if own else 1)
        squares = floats(memory[3], batches * columns if memory[3] else 0)
        _encode_columns(codes, (x, scale, squares, high, low, both), shape, grid, dither)


@compiled
def find_scale(memory: Numbers, count: int, smallest: float) -> None:
    """Write the largest magnitude of an operand, or the least it may be, where its full scale goes."""
    least = np.full(1, smallest, np.float32).view(np.int32)[0]
    integers(memory[2], 1)[0] = largest(integers(memory[0], count), least)


@inside
def largest(bits: Array, least: Any) -> Any:  # noqa: ANN401
    """Return the largest magnitude of elements, or the least it may be, all given as int32 bits."""
    top = least
    for place in range(bits.size):
        top = larger_magnitude(top, bits[place])
    return top


@inside
def _encode_rows(codes: Array, values: Numbers, span: Numbers, grid: Numbers, dither: Numbers) -> None:
    """Round rows, each with a full scale of its own or all with one that is known."""
    (x, scale, squares, high, low, both), (columns, begin, end) = values, span
    (reach, smallest, _, own), (dithers, key, first) = grid, dither
    bits, tops = x.view(np.int32), scale.view(np.int32)
    least = np.full(1, smallest, np.float32).view(np.int32)[0]
    memory = np.empty(columns // 4 + 2, np.uint64)
    for row in range(begin, end):
        part = slice(row * columns, (row + 1) * columns)
        if own:
            tops[row] = largest(bits[part], least)
        factor = reach / scale[row if own else 0]
        if dithers:
            start = draw_words(key, first, row * columns, memory)
            _dither(x[part], factor, memory.view(np.int16)[start : start + columns], codes[part])
        else:
            _round(x[part], factor, codes[part])
        if squares.size > 0:
            squares[row] = sum_of_squares(codes[part])
        if high.size > 0:
            _split(codes[part], high[part], low[part], both[part])


@inside
def _encode_columns(codes: Array, values: Numbers, shape: Numbers, grid: Numbers, dither: Numbers) -> None:
    """Round columns, each with a full scale of its own or all with one that is known."""
    all_x, all_scale, all_squares, high, low, both = values
    batches, rows, columns, begin, end = shape
    (reach, smallest, _, own), (dithers, key, first) = grid, dither
    count, memory = end - begin, np.empty((end - begin) // 4 + 2, np.uint64)
    scale, squares = all_scale, all_squares
    for batch in range(batches):
        mine = slice(batch * columns + begin, batch * columns + end)
        if own:
            scale = all_scale[mine]
            scale[:] = smallest
            bits, tops = all_x.view(np.int32), scale.view(np.int32)
            for row in range(batch * rows, (batch + 1) * rows):
                _raise(bits[row * columns + begin : row * columns + end], tops)
        factor = reach / scale
        if all_squares.size > 0:
            squares = all_squares[mine]
            squares[:] = np.float32(0.0)
        for row in range(batch * rows, (batch + 1) * rows):
            part = slice(row * columns + begin, row * columns + end)
            x, into = all_x[part], codes[part]
            if dithers:
                start = draw_words(key, first, row * columns + begin, memory)
                words = memory.view(np.int16)[start : start + count]
                if own:
                    _dither_by_columns(x, factor, words, into)
                else:
                    _dither(x, factor[0], words, into)
            elif own:
                _round_by_columns(x, factor, into)
            else:
                _round(x, factor[0], into)
            if squares.size > 0:
                _add_squares(into, squares)
            if high.size > 0:
                _split(into, high[part], low[part], both[part])


@inside
def _raise(bits: Array, tops: Array) -> None:
    for place in range(tops.size):
        tops[place] = larger_magnitude(tops[place], bits[place])


@compiled_in_order
def _round(x: Array, factor: Any, codes: Array) -> None:  # noqa: ANN401
    for place in range(x.size):
        codes[place] = nearest(x[place] * factor)


@compiled_in_order
def _round_by_columns(x: Array, factor: Array, codes: Array) -> None:
    for place in range(x.size):
        codes[place] = nearest(x[place] * factor[place])


@compiled_in_order
def _dither(x: Array, factor: Any, words: Array, codes: Array) -> None:  # noqa: ANN401
    for place in range(x.size):
        codes[place] = nearest(x[place] * factor + np.float32(words[place]) * _UNIT)


@compiled_in_order
def _dither_by_columns(x: Array, factor: Array, words: Array, codes: Array) -> None:
    for place in range(x.size):
        codes[place] = nearest(x[place] * factor[place] + np.float32(words[place]) * _UNIT)


@inside
def sum_of_squares(codes: Array) -> Any:  # noqa: ANN401
    """Return the sum of squared codes, float32."""
    total = np.float32(0.0)
    for place in range(codes.size):
        code = np.float32(codes[place])
        total += code * code
    return total


@inside
def _add_squares(codes: Array, energy: Array) -> None:
    for place in range(codes.size):
        code = np.float32(codes[place])
        energy[place] += code * code


@inside
def _split(codes: Array, high: Array, low: Array, both: Array) -> None:
    """Divide whole codes into ``128 high + low``."""
    for place in range(codes.size):
        upper = nearest(np.float32(codes[place]) * np.float32(1.0 / 128.0))
        high[place], low[place] = upper, remainder(codes[place], upper)
    for place in range(both.size):
        both[place] = plus(high[place], low[place])


@compiled
def digest(address: int, count: int, step: int) -> Any:  # noqa: ANN401
    """Return a hash of some float32 numbers, `step` apart around `count` of them."""
    bits, found = integers(address, count), np.uint64(0xCBF29CE484222325)
    place = 0
    for _ in range(min(256, count)):
        found = (found ^ np.uint64(bits[place])) * _HASH
        place = (place + step) % count
    return found
