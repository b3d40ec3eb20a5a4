"""Compiled passes as jobs that threads share (`optical.execution.fused_threads.Job`), each told by a block of memory.

The block holds the integers of `optical.execution.compiling.next_part`, then integers and reals as said here. Where
many blocks of matrices are worked on together, what differs is told in tables.
"""

from __future__ import annotations

import numpy as np

from optical.execution import fused_kernels, fused_readout
from optical.execution.compiling import (
    LONG,
    Array,
    doubles,
    floats,
    inner,
    integers,
    job,
    next_part,
    numbers,
    short_integers,
    small_integers,
)
from optical.execution.fused_numbers import HEAD, INT8, INT16

ENCODE_INTEGERS, ENCODE_REALS = 16, 2
"""What `encode_part` is told."""
DELIVER_INTEGERS, DELIVER_REALS = 22, 7
"""What `deliver_part` is told."""
TABLE_INTEGERS = 3
"""What jobs are told of tables: addresses of those of integers and of reals, 0 where there is one block whose
numbers follow, and the length of the range of a block."""
LOOK_INTEGERS = 29
"""What `look_blocks` is told."""
_PAIRS = 2**16
_encode, _deliver, _look = fused_kernels.encode, fused_readout.deliver, fused_readout.look


@inner
def encode_part(told: Array, reals: Array, start: int, end: int) -> None:
    """Round rows of B R, or columns of C, to codes (`optical.execution.fused_kernels.encode`).

    Parameters
    ----------
    told : numpy.ndarray
        Seven addresses; the kind of codes; B, R and C; 1 if sums are over columns, 1 if elements that are
        summed have a full scale of their own; 1 to dither, key and first word.
    reals : numpy.ndarray
        The code of full scale and the least full scale.
    start, end : int
        Which of them.
    """
    memory = (told[0], told[1], told[2], told[3], told[4], told[5], told[6])
    shape, count = (told[8], told[9], told[10], start, end), told[8] * told[9] * told[10]
    grid = (np.float32(reals[0]), np.float32(reals[1]), told[11] != 0, told[12] != 0)
    dither = (told[13] != 0, told[14], told[15])
    if told[7] == INT8:
        _encode(small_integers(memory[1], count), memory, shape, grid, dither)
    elif told[7] == INT16:
        _encode(short_integers(memory[1], count), memory, shape, grid, dither)
    else:
        _encode(floats(memory[1], count), memory, shape, grid, dither)


@inner
def deliver_part(told: Array, law: Array, products: int, start: int, end: int) -> None:
    """Read rows of a block of products out (`optical.execution.fused_readout.deliver`).

    Parameters
    ----------
    told : numpy.ndarray
        Eight addresses, of which the first is not used; 1 for int32 products; B, M and N of all results,
        first batch, first row and end of the rows of the block; numbers of full scales of A and of B, 1 if
        results are added; 1 if there is noise, its key, first word and the address of pairs of Gaussians.
    law : numpy.ndarray
        The seven numbers of the law.
    products : int
        Address where the first product of the block is, or would be.
    start, end : int
        Which rows.
    """
    memory = (products, told[1], told[2], told[3], told[4], told[5], told[6], told[7])
    block = (told[9], told[10], told[11], told[12], told[13], told[14])
    place = (*block, start, end, told[15], told[16], told[17])
    draws = (told[18] != 0, told[19], told[20], doubles(told[21], _PAIRS))
    laws = (law[0], law[1], law[2], law[3], law[4], law[5], law[6])
    count = LONG if told[6] else 0
    halves = integers(products, count), integers(told[6], count), integers(told[7], count)
    if count > 0:
        _deliver((np.empty(told[11], np.float32), halves), memory, place, draws, laws)
    elif told[8] != 0:
        _deliver((integers(products, LONG), halves), memory, place, draws, laws)
    else:
        _deliver((floats(products, LONG), halves), memory, place, draws, laws)


@inner
def row_of(table: int, width: int, own: int, number: int) -> Array:
    """Return the integers of a block in a table, or its own where there is none."""
    return numbers(own if table == 0 else table + 8 * width * number, width)


@inner
def reals_of(table: int, width: int, own: int, number: int) -> Array:
    """Return the same of reals."""
    return doubles(own if table == 0 else table + 8 * width * number, width)


@job
def encode(block: int) -> None:
    """Round operands to codes; parts are what those of `encode_part` are, over all blocks of matrices.

    Parameters
    ----------
    block : int
        Address of: what is told of tables, of which that of reals is not used; the integers that
        `encode_part` is told; and its reals.
    """
    own = block + 8 * (HEAD + TABLE_INTEGERS)
    start, end = next_part(block)
    while start < end:
        table, _, each = numbers(block + 8 * HEAD, TABLE_INTEGERS)
        reals = doubles(own + 8 * ENCODE_INTEGERS, ENCODE_REALS)
        while start < end:
            number = start // each
            stop = min(end, (number + 1) * each)
            told = row_of(table, ENCODE_INTEGERS, own, number)
            encode_part(told, reals, start - number * each, stop - number * each)
            start = stop
        start, end = next_part(block)


@job
def deliver(block: int) -> None:
    """Read products out; parts are rows of products, over all blocks of matrices.

    Parameters
    ----------
    block : int
        Address of: what is told of tables; the integers that `deliver_part` is told, with the address of
        products; and its reals.
    """
    own = block + 8 * (HEAD + TABLE_INTEGERS)
    start, end = next_part(block)
    while start < end:
        table, laws, each = numbers(block + 8 * HEAD, TABLE_INTEGERS)
        while start < end:
            number = start // each
            stop = min(end, (number + 1) * each)
            told = row_of(table, DELIVER_INTEGERS, own, number)
            law = reals_of(laws, DELIVER_REALS, own + 8 * DELIVER_INTEGERS, number)
            deliver_part(told, law, told[0], start - number * each, stop - number * each)
            start = stop
        start, end = next_part(block)


@job
def look_blocks(block: int) -> None:
    """Read codes of blocks as `optical.execution.fused_readout.look` does; parts are of blocks.

    Parameters
    ----------
    block : int
        Address of: of each operand, address and kind of the codes of the first block, three strides, three
        steps, and address of the copy; six sizes; from a block to the next, bytes of the codes of either and
        of the copies of either; and the address of what is returned for each, float64.
    """
    start, end = next_part(block)
    while start < end:
        told = numbers(block + 8 * HEAD, LOOK_INTEGERS)
        found = doubles(told[28], end)
        sizes = (told[18], told[19], told[20], told[21], told[22], told[23])
        for number in range(start, end):
            found[number] = _look(
                (
                    told[0] + number * told[24],
                    told[1],
                    (told[2], told[3], told[4]),
                    (told[5], told[6], told[7]),
                    told[8] + number * told[26],
                ),
                (
                    told[9] + number * told[25],
                    told[10],
                    (told[11], told[12], told[13]),
                    (told[14], told[15], told[16]),
                    told[17] + number * told[27],
                ),
                sizes,
            )
        start, end = next_part(block)
