"""Products of int8 codes in tiles of a CPU's matrix unit, as jobs that threads share.

Compiled only where `optical.amx.is_there`.

Shape suffixes: M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import numpy as np

from optical import amx
from optical.compiling import (
    HEAD,
    Array,
    compiled,
    compiled_in_order,
    doubles,
    floats,
    job,
    next_part,
    numbers,
    plus,
)
from optical.fused_jobs import (
    DELIVER_INTEGERS,
    DELIVER_REALS,
    ENCODE_INTEGERS,
    ENCODE_REALS,
    deliver_part,
    encode_part,
)

LAYOUT_INTEGERS = 2
"""What `encode` is told of tiles."""
PRODUCT_INTEGERS = 10
"""What `multiply` is told of a product, beside where it goes and how many rows it has."""
TILE = amx.ROWS * amx.BYTES
_SUMS = amx.ROWS * amx.ROWS
_FEWEST_ROWS = 2 * amx.ROWS
_CACHE = 2**19
"""Bytes of A that are met again and again by columns of B."""


@compiled
def _pack_rows(codes: int, width: int, tiles: int, rows: tuple[int, int]) -> None:
    """Lay columns of B out that lie in rows."""
    steps = width // amx.BYTES
    for row in range(rows[0], rows[1], amx.ROWS):
        for place in range(steps):
            source = codes + row * width + place * amx.BYTES
            amx.turn(source, width, tiles + (row // amx.ROWS * steps + place) * TILE)


@compiled
def _pack_columns(
    codes: int, shape: tuple[int, int], tiles: int, span: tuple[int, int], gathers: bool
) -> None:
    """Lay columns of B out, or rows of A, that lie in columns."""
    rows, width = shape
    steps = rows // amx.BYTES
    for place in range(steps):
        for column in range(span[0], span[1], amx.ROWS):
            source = codes + column + place * amx.BYTES * width
            out = tiles + (column // amx.ROWS * steps + place) * TILE
            if gathers:
                amx.gather(source, width, out)
            else:
                amx.interleave(source, width, out)


@job
def encode(block: int) -> None:
    """Round an operand of one matrix to codes and lay these out in tiles; parts are of 16 rows or columns.

    Parameters
    ----------
    block : int
        Address of: the integers that `optical.fused_jobs.encode` is told; address of tiles, of which those of
        low halves follow those of high ones; 1 for rows of A; and the reals.
    """
    start, end = next_part(block)
    while start < end:
        told = numbers(block + 8 * HEAD, ENCODE_INTEGERS)
        tiles, gathers = numbers(block + 8 * (HEAD + ENCODE_INTEGERS), LAYOUT_INTEGERS)
        reals = doubles(block + 8 * (HEAD + ENCODE_INTEGERS + LAYOUT_INTEGERS), ENCODE_REALS)
        shape = (told[9], told[10])
        first, second = (told[4], told[5]) if told[4] != 0 else (told[1], 0)
        if told[11] != 0:
            for row in range(start, end, amx.ROWS):
                rows = (row, row + amx.ROWS)
                encode_part(told, reals, row, row + amx.ROWS)
                _pack_rows(first, shape[1], tiles, rows)
                if second != 0:
                    _pack_rows(second, shape[1], tiles + shape[0] * shape[1], rows)
        else:
            encode_part(told, reals, start, end)
            _pack_columns(first, shape, tiles, (start, end), gathers != 0)
            if second != 0:
                _pack_columns(second, shape, tiles + shape[0] * shape[1], (start, end), gathers != 0)
        start, end = next_part(block)


@compiled
def sum_products(a: tuple[int, int], step: int, next_: int, b: tuple[int, int], steps: int) -> None:
    """Leave the products of two tiles of A's rows and two of B's columns in the first four tiles."""
    amx.clear(0)
    amx.clear(1)
    amx.clear(2)
    amx.clear(3)
    for place in range(steps):
        amx.load(4, a[0] + place * next_, step)
        amx.load(6, b[0] + place * TILE, amx.BYTES)
        amx.multiply(0, 4, 6)
        amx.load(7, b[1] + place * TILE, amx.BYTES)
        amx.multiply(1, 4, 7)
        amx.load(5, a[1] + place * next_, step)
        amx.multiply(2, 5, 6)
        amx.multiply(3, 5, 7)


@compiled
def _multiply(given: Array, out: int, rows: tuple[int, int], span: tuple[int, int]) -> None:
    """Multiply some rows, at least 32, by some columns; `out` is where the first row of all would go."""
    a, _, step, sixteen, next_, b, _, columns, steps, _ = given
    most = max(32, _CACHE // (steps * amx.BYTES) // 32 * 32)
    for first in range(rows[0], rows[1], most):
        for column in range(span[0], span[1], 32):
            tiles = b + column // amx.ROWS * steps * TILE
            for each in range(first, min(first + most, rows[1]), 32):
                row = min(each, rows[1] - 32)
                above = a + row // amx.ROWS * sixteen + row % amx.ROWS * step
                sum_products((above, above + sixteen), step, next_, (tiles, tiles + steps * TILE), steps)
                place, width = out + 4 * (row * columns + column), 4 * columns
                amx.store(0, place, width)
                amx.store(1, place + amx.BYTES, width)
                amx.store(2, place + amx.ROWS * width, width)
                amx.store(3, place + amx.ROWS * width + amx.BYTES, width)


@compiled
def _multiply_halves(given: Array, out: int, rows: tuple[int, int], span: tuple[int, int]) -> None:
    """Multiply some rows of halves, at least 16, by some columns."""
    high, low, step, sixteen, next_, b_high, b_low, columns, steps, _ = given
    sums = np.empty(4 * _SUMS, np.int32)
    place = sums.ctypes.data
    most = max(amx.ROWS, _CACHE // (2 * steps * amx.BYTES) // amx.ROWS * amx.ROWS)
    for first in range(rows[0], rows[1], most):
        for column in range(span[0], span[1], amx.ROWS):
            tiles = column // amx.ROWS * steps * TILE
            for each in range(first, min(first + most, rows[1]), amx.ROWS):
                row = min(each, rows[1] - amx.ROWS)
                above = row // amx.ROWS * sixteen + row % amx.ROWS * step
                sum_products((high + above, low + above), step, next_, (b_high + tiles, b_low + tiles), steps)
                amx.store(0, place, amx.BYTES)
                amx.store(1, place + TILE, amx.BYTES)
                amx.store(2, place + 2 * TILE, amx.BYTES)
                amx.store(3, place + 3 * TILE, amx.BYTES)
                for line in range(amx.ROWS):
                    results = floats(out + 4 * ((row + line) * columns + column), amx.ROWS)
                    _join(sums, line * amx.ROWS, results)


@compiled_in_order
def _join(sums: Array, first: int, out: Array) -> None:
    """Add products of halves to products of codes."""
    radix = np.float32(128.0)
    for place in range(amx.ROWS):
        at = first + place
        crossed = plus(sums[_SUMS + at], sums[2 * _SUMS + at])
        upper = np.float32(sums[at]) * radix + np.float32(crossed)
        out[place] = upper * radix + np.float32(sums[3 * _SUMS + at])


@compiled
def _multiply_either(given: Array, out: int, rows: tuple[int, int], span: tuple[int, int]) -> None:
    if given[6] != 0:
        _multiply_halves(given, out, rows, span)
    else:
        _multiply(given, out, rows, span)


@job
def multiply(block: int) -> None:
    """Multiply codes exactly; parts are of columns.

    Parameters
    ----------
    block : int
        Address of: addresses of A's codes, or of its high and of its low halves; bytes from one of its rows to
        the next, from 16 rows to the next 16, and from 64 columns to the next 64; addresses of the tiles of
        B, or of those of its halves, 0 if there are no halves; N; tiles of a sum; the address of
        `optical.amx.shapes`; then address of the result, int32, or float32 of halves; and M.
    """
    start, end = next_part(block)
    if start >= end:
        return
    given = numbers(block + 8 * HEAD, PRODUCT_INTEGERS)
    out, rows = numbers(block + 8 * (HEAD + PRODUCT_INTEGERS), 2)
    amx.configure(given[9])
    while start < end:
        _multiply_either(given, out, (0, rows), (start, end))
        start, end = next_part(block)
    amx.release()


@job
def multiply_and_deliver(block: int) -> None:
    """Multiply codes and read the products out; parts are of rows, at least 32 in all.

    Parameters
    ----------
    block : int
        Address of: what `optical.fused_jobs.deliver` is told, without its reals and without an address of
        products; what `multiply` is told of the product; and the reals.
    """
    start, end = next_part(block)
    if start >= end:
        return
    told = numbers(block + 8 * HEAD, DELIVER_INTEGERS)
    given = numbers(block + 8 * (HEAD + DELIVER_INTEGERS), PRODUCT_INTEGERS)
    law = doubles(block + 8 * (HEAD + DELIVER_INTEGERS + PRODUCT_INTEGERS), DELIVER_REALS)
    columns = given[7]
    products = np.empty(max(_FEWEST_ROWS, numbers(block, HEAD)[2]) * columns, np.float32)
    amx.configure(given[9])
    while start < end:
        base = min(start, max(0, end - _FEWEST_ROWS))
        first = products.ctypes.data - 4 * base * columns
        _multiply_either(given, first, (base, end), (0, columns))
        deliver_part(told, law, first, start, end)
        start, end = next_part(block)
    amx.release()
