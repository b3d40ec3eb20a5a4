"""Products of int8 codes in tiles of a CPU's matrix unit, as jobs that threads share.

Compiled only where `optical.execution.amx.is_there`.

Shape suffixes: M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import numpy as np

from optical.execution import amx
from optical.execution.compiling import (
    Array,
    compiled_in_order,
    doubles,
    floats,
    inner,
    job,
    next_part,
    numbers,
    plus,
)
from optical.execution.fused_jobs import (
    DELIVER_INTEGERS,
    DELIVER_REALS,
    ENCODE_INTEGERS,
    ENCODE_REALS,
    TABLE_INTEGERS,
    deliver_part,
    encode_part,
    reals_of,
    row_of,
)
from optical.execution.fused_numbers import BYTES, FEWEST_ROWS, HEAD, ROWS, TILE

LAYOUT_INTEGERS = 2
"""What `encode` is told of tiles."""
PRODUCT_INTEGERS = 10
"""What `multiply` is told of a product, beside where it goes and how many rows it has."""
_SUMS = ROWS * ROWS
_CACHE = 2**19
"""Bytes of A that are met again and again by columns of B."""


@inner
def pack(
    codes: int, shape: tuple[int, int], tiles: int, lines: tuple[int, int], how: tuple[bool, bool]
) -> None:
    """Lay some columns of B out, or rows of A if it gathers them; they lie in rows, or in columns."""
    width, (by_rows, gathers) = shape[1], how
    if by_rows:
        steps = width // BYTES
        for place in range(steps):
            source = codes + lines[0] * width + place * BYTES
            amx.turn(source, width, tiles + (lines[0] // ROWS * steps + place) * TILE)
        return
    steps = shape[0] // BYTES
    for place in range(steps):
        for column in range(lines[0], lines[1], ROWS):
            source = codes + column + place * BYTES * width
            out = tiles + (column // ROWS * steps + place) * TILE
            if gathers:
                amx.gather(source, width, out)
            else:
                amx.interleave(source, width, out)


@job
def encode(block: int) -> None:
    """Round operands to codes, as `optical.execution.fused_jobs.encode` does, and lay one matrix out in tiles.

    Parameters
    ----------
    block : int
        Address of: what `optical.execution.fused_jobs.encode` is told, and before its reals, address of tiles, of which
        those of low halves follow those of high ones, or 0 for none; and 1 for rows of A. With tiles parts
        are of 16 rows or columns.
    """
    own = block + 8 * (HEAD + TABLE_INTEGERS)
    start, end = next_part(block)
    while start < end:
        table, _, each = numbers(block + 8 * HEAD, TABLE_INTEGERS)
        layout = numbers(own + 8 * ENCODE_INTEGERS, LAYOUT_INTEGERS)
        reals = doubles(own + 8 * (ENCODE_INTEGERS + LAYOUT_INTEGERS), ENCODE_REALS)
        while start < end:
            number = start // each
            stop = min(end, (number + 1) * each)
            told = row_of(table, ENCODE_INTEGERS, own, number)
            by_rows, tiles = layout[0] != 0 and told[11] != 0, layout[0]
            first = start - number * each
            last = stop - number * each
            while first < last:
                then = min(last, first + ROWS) if by_rows else last
                encode_part(told, reals, first, then)
                for codes in (told[4] if told[4] != 0 else told[1], told[5]):
                    if tiles != 0 and codes != 0:
                        pack(codes, (told[9], told[10]), tiles, (first, then), (by_rows, layout[1] != 0))
                        tiles += told[9] * told[10]
                tiles = layout[0]
                first = then
            start = stop
        start, end = next_part(block)


@inner
def sum_products(a: tuple[int, int], step: int, next_: int, b: tuple[int, int], steps: int) -> None:
    """Leave the products of two tiles of A's rows and two of B's columns in the first four tiles."""
    amx.clear(0)
    amx.clear(1)
    amx.clear(2)
    amx.clear(3)
    for place in range(steps):
        amx.load(4, a[0] + place * next_, step)
        amx.load(6, b[0] + place * TILE, BYTES)
        amx.multiply(0, 4, 6)
        amx.load(7, b[1] + place * TILE, BYTES)
        amx.multiply(1, 4, 7)
        amx.load(5, a[1] + place * next_, step)
        amx.multiply(2, 5, 6)
        amx.multiply(3, 5, 7)


@inner
def _multiply(given: Array, out: int, rows: tuple[int, int], span: tuple[int, int]) -> None:
    """Multiply some rows, at least 32, by some columns; `out` is where the first row of all would go."""
    a, _, step, sixteen, next_, b, _, columns, steps, _ = given
    most = max(32, _CACHE // (steps * BYTES) // 32 * 32)
    for first in range(rows[0], rows[1], most):
        for column in range(span[0], span[1], 32):
            tiles = b + column // ROWS * steps * TILE
            for each in range(first, min(first + most, rows[1]), 32):
                row = min(each, rows[1] - 32)
                above = a + row // ROWS * sixteen + row % ROWS * step
                sum_products((above, above + sixteen), step, next_, (tiles, tiles + steps * TILE), steps)
                place, width = out + 4 * (row * columns + column), 4 * columns
                amx.store(0, place, width)
                amx.store(1, place + BYTES, width)
                amx.store(2, place + ROWS * width, width)
                amx.store(3, place + ROWS * width + BYTES, width)


@inner
def _multiply_halves(given: Array, out: int, rows: tuple[int, int], span: tuple[int, int]) -> None:
    """Multiply some rows of halves, at least 16, by some columns."""
    high, low, step, sixteen, next_, b_high, b_low, columns, steps, _ = given
    sums = np.empty(4 * _SUMS, np.int32)
    place = sums.ctypes.data
    most = max(ROWS, _CACHE // (2 * steps * BYTES) // ROWS * ROWS)
    for first in range(rows[0], rows[1], most):
        for column in range(span[0], span[1], ROWS):
            tiles = column // ROWS * steps * TILE
            for each in range(first, min(first + most, rows[1]), ROWS):
                row = min(each, rows[1] - ROWS)
                above = row // ROWS * sixteen + row % ROWS * step
                sum_products((high + above, low + above), step, next_, (b_high + tiles, b_low + tiles), steps)
                amx.store(0, place, BYTES)
                amx.store(1, place + TILE, BYTES)
                amx.store(2, place + 2 * TILE, BYTES)
                amx.store(3, place + 3 * TILE, BYTES)
                for line in range(ROWS):
                    results = floats(out + 4 * ((row + line) * columns + column), ROWS)
                    _join(sums, line * ROWS, results)


@compiled_in_order
def _join(sums: Array, first: int, out: Array) -> None:
    """Add products of halves to products of codes."""
    radix = np.float32(128.0)
    for place in range(ROWS):
        at = first + place
        crossed = plus(sums[_SUMS + at], sums[2 * _SUMS + at])
        upper = np.float32(sums[at]) * radix + np.float32(crossed)
        out[place] = upper * radix + np.float32(sums[3 * _SUMS + at])


@inner
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
        Address of: addresses of A's codes, or of its high and of its low halves; bytes from one of its rows
        to the next, from 16 rows to the next 16, and from 64 columns to the next 64; addresses of the tiles
        of B, or of those of its halves, 0 if there are no halves; N; tiles of a sum; the address of
        `optical.execution.amx.shapes`; then address of the result, int32, or float32 of halves; and M.
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
def deliver(block: int) -> None:
    """Read products out, as `optical.execution.fused_jobs.deliver` does, and multiply the codes of one matrix before.

    Parameters
    ----------
    block : int
        Address of: what `optical.execution.fused_jobs.deliver` is told, and before its reals, what `multiply` is told
        of the product, or zeros where products are there already. With a product there are at least 32 rows.
    """
    own = block + 8 * (HEAD + TABLE_INTEGERS)
    start, end = next_part(block)
    if start >= end:
        return
    table, laws, each = numbers(block + 8 * HEAD, TABLE_INTEGERS)
    given = numbers(own + 8 * DELIVER_INTEGERS, PRODUCT_INTEGERS)
    reals, columns = own + 8 * (DELIVER_INTEGERS + PRODUCT_INTEGERS), given[7]
    multiplies = given[5] != 0
    products = np.empty(max(FEWEST_ROWS, numbers(block, HEAD)[2]) * columns, np.float32)
    if multiplies:
        amx.configure(given[9])
    while start < end:
        number = start // each
        stop = min(end, (number + 1) * each)
        told, law = row_of(table, DELIVER_INTEGERS, own, number), reals_of(laws, DELIVER_REALS, reals, number)
        first = told[0]
        if multiplies:
            base = min(start, max(0, stop - FEWEST_ROWS))
            first = products.ctypes.data - 4 * base * columns
            _multiply_either(given, first, (base, stop), (0, columns))
            first += 4 * number * each * columns
        deliver_part(told, law, first, start - number * each, stop - number * each)
        start = stop
        if start >= end:
            start, end = next_part(block)
    if multiplies:
        amx.release()
