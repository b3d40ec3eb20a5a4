"""Products of int8 codes in tiles of a CPU's matrix unit, as jobs that threads share.

Compiled only where `optical.amx.is_there`.

Shape suffixes: M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations


import numpy as np

from optical import amx
from optical.compiling import HEAD, Array, compiled, compiled_in_order, floats, job, next_part, numbers

PACK_INTEGERS = 5
"""What `pack` is told."""
MULTIPLY_INTEGERS = 12
"""What `multiply` is told."""
ALONG, ACROSS, GATHERED = 0, 1, 2
"""Layouts that are packed: columns of B lie in a row; rows of B do; columns of A do."""
_TILE = amx.ROWS * amx.BYTES
_SUMS = amx.ROWS * amx.ROWS
_CACHE = 2**19
"""Bytes of A that are met again and again by columns of B."""


@job
def pack(block: int) -> None:
    """Lay codes out in tiles, [N / 16, K / 64], or rows of A in place of columns; parts are of these.

    Parameters
    ----------
    block : int
        Address of: address of codes, bytes from one of their rows to the next, address of tiles, tiles of a
        sum, and layout.
    """
    start, end = next_part(block)
    while start < end:
        codes, step, tiles, steps, layout = numbers(block + 8 * HEAD, PACK_INTEGERS)
        if layout == ALONG:
            for line in range(start, end):
                for place in range(steps):
                    source = codes + line * amx.ROWS * step + place * amx.BYTES
                    amx.turn(source, step, tiles + (line * steps + place) * _TILE)
        else:
            for place in range(steps):
                for line in range(start, end):
                    source = codes + line * amx.ROWS + place * amx.BYTES * step
                    out = tiles + (line * steps + place) * _TILE
                    if layout == ACROSS:
                        amx.interleave(source, step, out)
                    else:
                        amx.gather(source, step, out)
        start, end = next_part(block)


@compiled
def _sum(a: tuple[int, int], step: int, next_: int, b: tuple[int, int], steps: int) -> None:
    """Leave the products of two tiles of A's rows and two of B's columns in the first four tiles."""
    amx.clear(0)
    amx.clear(1)
    amx.clear(2)
    amx.clear(3)
    for place in range(steps):
        amx.load(4, a[0] + place * next_, step)
        amx.load(6, b[0] + place * _TILE, amx.BYTES)
        amx.multiply(0, 4, 6)
        amx.load(7, b[1] + place * _TILE, amx.BYTES)
        amx.multiply(1, 4, 7)
        amx.load(5, a[1] + place * next_, step)
        amx.multiply(2, 5, 6)
        amx.multiply(3, 5, 7)


@compiled
def _multiply(given: Array, start: int, end: int) -> None:
    a, _, step, sixteen, next_, b, _, out, columns, rows, steps, _ = given
    most = max(32, _CACHE // (steps * amx.BYTES) // 32 * 32)
    for first in range(0, rows, most):
        for column in range(start, end, 32):
            tiles = b + column // amx.ROWS * steps * _TILE
            for each in range(first, min(first + most, rows), 32):
                row = min(each, rows - 32)
                above = a + row // amx.ROWS * sixteen + row % amx.ROWS * step
                _sum((above, above + sixteen), step, next_, (tiles, tiles + steps * _TILE), steps)
                place, width = out + 4 * (row * columns + column), 4 * columns
                amx.store(0, place, width)
                amx.store(1, place + amx.BYTES, width)
                amx.store(2, place + amx.ROWS * width, width)
                amx.store(3, place + amx.ROWS * width + amx.BYTES, width)


@compiled
def _multiply_halves(given: Array, start: int, end: int) -> None:
    high, low, step, sixteen, next_, b_high, b_low, out, columns, rows, steps, _ = given
    sums = np.empty(4 * _SUMS, np.int32)
    place = sums.ctypes.data
    most = max(amx.ROWS, _CACHE // (2 * steps * amx.BYTES) // amx.ROWS * amx.ROWS)
    for first in range(0, rows, most):
        for column in range(start, end, amx.ROWS):
            tiles = column // amx.ROWS * steps * _TILE
            for each in range(first, min(first + most, rows), amx.ROWS):
                row = min(each, rows - amx.ROWS)
                above = row // amx.ROWS * sixteen + row % amx.ROWS * step
                _sum((high + above, low + above), step, next_, (b_high + tiles, b_low + tiles), steps)
                amx.store(0, place, amx.BYTES)
                amx.store(1, place + _TILE, amx.BYTES)
                amx.store(2, place + 2 * _TILE, amx.BYTES)
                amx.store(3, place + 3 * _TILE, amx.BYTES)
                for line in range(amx.ROWS):
                    results = floats(out + 4 * ((row + line) * columns + column), amx.ROWS)
                    _join(sums, line * amx.ROWS, results)


@compiled_in_order
def _join(sums: Array, first: int, out: Array) -> None:
    """Add products of halves to products of codes."""
    radix = np.float32(128.0)
    for place in range(amx.ROWS):
        at = first + place
        crossed = sums[_SUMS + at] + sums[2 * _SUMS + at]
        upper = np.float32(sums[at]) * radix + np.float32(crossed)
        out[place] = upper * radix + np.float32(sums[3 * _SUMS + at])


@job
def multiply(block: int) -> None:
    """Multiply codes exactly; parts are of columns.

    Parameters
    ----------
    block : int
        Address of: addresses of A's codes, or of its high and of its low halves; bytes from one of its rows to
        the next, from 16 rows to the next 16, and from 64 columns to the next 64; addresses of the tiles of
        B, or of those of its halves, 0 if there are no halves; address of the result, int32, or float32
        of halves; N; M; tiles of a sum; and the address of `optical.amx.shapes`.
    """
    start, end = next_part(block)
    if start >= end:
        return
    given = numbers(block + 8 * HEAD, MULTIPLY_INTEGERS)
    amx.configure(given[11])
    while start < end:
        if given[6] != 0:
            _multiply_halves(given, start, end)
        else:
            _multiply(given, start, end)
        start, end = next_part(block)
    amx.release()
