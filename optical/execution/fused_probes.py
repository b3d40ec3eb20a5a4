"""What a gain stage reads of codes of int8, with products in tiles of a CPU's matrix unit.

Compiled only where `optical.execution.amx.is_there`.

Shape suffixes: M rows of A, K summed, N columns of B.
"""

from __future__ import annotations

import numpy as np

from optical.execution import amx
from optical.execution.compiling import (
    LONG,
    Array,
    Numbers,
    doubles,
    floats,
    inner,
    inside,
    job,
    next_part,
    numbers,
    small_integers,
)
from optical.execution.fused_kernels import sum_of_squares
from optical.execution.fused_numbers import BYTES, HEAD, ROWS, TILE
from optical.execution.fused_tiles import pack, sum_products

LOOK_INTEGERS = 17
"""What `look` is told."""
_PAIR = 2 * ROWS


@inside
def _take(operand: Numbers, sizes: Numbers, out: Array, squares: Array) -> None:
    """Gather probed codes as they lie, [rows, K''] or [K'', rows]; add their squares up for each of K."""
    codes, row_stride, stride, sample_step, row_step = operand
    sample, rows, lines, length = sizes
    source = small_integers(codes, LONG)
    start, step = sample * sample_step * length * stride, row_step * row_stride
    if stride == 1:
        width = -(-length // BYTES) * BYTES
        for row in range(rows):
            begin, into = start + row * step, out[row * width : row * width + length]
            for place in range(length):
                into[place] = source[begin + place]
            for place in range(squares.size):
                code = np.float32(into[place])
                squares[place] += code * code
    else:
        for place in range(length):
            begin, into = start + place * stride, out[place * lines : place * lines + rows]
            for row in range(rows):
                into[row] = source[begin + row * step]
            if squares.size > 0:
                squares[place] = sum_of_squares(into)


@inner
def _lay_out(codes: Array, how: tuple[bool, bool], sizes: tuple[int, int], out: Array) -> None:
    """Lay columns of B out in tiles, or rows of A; they lie in rows, or in columns."""
    (along, of_a), (lines, steps), source, tiles = how, sizes, codes.ctypes.data, out.ctypes.data
    width = steps * BYTES
    if not along:
        pack(source, (width, lines), tiles, (0, lines), (False, of_a))
        return
    for line in range(0, lines, ROWS):
        if of_a:
            for place in range(steps):
                amx.load(4, source + line * width + place * BYTES, width)
                amx.store(4, tiles + (line // ROWS * steps + place) * TILE, BYTES)
        else:
            pack(source, (lines, width), tiles, (line, line + ROWS), (True, False))


@inside
def _write(sums: Array, place: Numbers, out: Array) -> float:
    """Write a block of products as far as there are rows and columns; return the sum of their squares."""
    row, column, rows, columns = place
    total = 0.0
    for line in range(min(_PAIR, rows - row)):
        into = out[(row + line) * columns + column : (row + line) * columns + min(column + _PAIR, columns)]
        for each in range(into.size):
            value = np.float32(sums[line, each])
            into[each] = value
            total += float(value) * float(value)
    return total


@inner
def _look(told: Array, sample: int, memory: tuple[Array, Array, Array, Array, Array]) -> tuple[float, float]:
    """Write the products of a sample; return the sums that `look` does."""
    codes, a, b, sums, squares = memory
    rows, columns, length, wanted, signal = told[10], told[11], told[12], told[13], told[14]
    steps, far = -(-length // BYTES), -(-length // BYTES) * TILE
    lines = -(-rows // _PAIR) * _PAIR, -(-columns // _PAIR) * _PAIR
    squares[:] = np.float32(0.0)
    first = (told[0], told[1], told[2], told[3], told[4])
    second = (told[5], told[6], told[7], told[8], told[9])
    codes[:] = 0
    _take(first, (sample, rows, lines[0], length), codes, squares[0, : length * wanted])
    _lay_out(codes, (first[2] == 1, True), (lines[0], steps), a)
    codes[:] = 0
    _take(second, (sample, columns, lines[1], length), codes, squares[1, : length * wanted])
    _lay_out(codes, (second[2] == 1, False), (lines[1], steps), b)
    power = cross = 0.0
    for place in range(length * wanted):
        cross += squares[0, place] * squares[1, place]
    out = floats(signal + 4 * sample * rows * columns, rows * columns)
    for row in range(0, rows, _PAIR):
        for column in range(0, columns, _PAIR):
            above, beside = (
                a.ctypes.data + row * steps * BYTES,
                b.ctypes.data + column * steps * BYTES,
            )
            sum_products((above, above + far), BYTES, TILE, (beside, beside + far), steps)
            place = sums.ctypes.data
            amx.store(0, place, 2 * BYTES)
            amx.store(1, place + BYTES, 2 * BYTES)
            amx.store(2, place + 2 * TILE, 2 * BYTES)
            amx.store(3, place + 2 * TILE + BYTES, 2 * BYTES)
            power += _write(sums, (row, column, rows, columns), out)
    return power, cross


@job
def look(block: int) -> None:
    """Write products of samples, which parts are of, and sums of each sample.

    Parameters
    ----------
    block : int
        Address of: of each operand, address of its codes, their strides through rows and K, and samples and
        rows from one probed to the next; rows M' of the one and N' of the other, K', and 1 if the second sum
        is wanted, which is else 0; address of the products, float32 [S, M', N']; address of sums, float64
        [S, 2]: of squares of the products, and of ``sum_k(sum_m(a^2) sum_n(b^2))``; and address of
        `optical.execution.amx.shapes`.
    """
    start, end = next_part(block)
    if start >= end:
        return
    told = numbers(block + 8 * HEAD, LOOK_INTEGERS)
    length = told[12]
    most = -(-max(told[10], told[11]) // _PAIR) * _PAIR * -(-length // BYTES) * BYTES
    codes, a, b = np.empty(most, np.int8), np.empty(most, np.int8), np.empty(most, np.int8)
    memory = (codes, a, b, np.empty((_PAIR, _PAIR), np.int32), np.empty((2, length), np.float32))
    amx.configure(told[16])
    while start < end:
        for sample in range(start, end):
            found = doubles(told[15] + 16 * sample, 2)
            found[0], found[1] = _look(told, sample, memory)
        start, end = next_part(block)
    amx.release()
