"""Compiled passes as jobs that threads share (`optical.fused_threads.Job`), each told by a block of memory.

The block holds the integers of `optical.compiling.next_part`, then integers and reals as said here.
"""

from __future__ import annotations

import numpy as np

from optical import fused_kernels, fused_readout
from optical.compiling import HEAD, Array, compiled, doubles, job, next_part, numbers

ENCODE_INTEGERS, ENCODE_REALS = 16, 2
"""What `encode` is told."""
DELIVER_INTEGERS, DELIVER_REALS = 22, 7
"""What `deliver` is told."""
LOOK_INTEGERS = 29
"""What `look_blocks` is told."""
_PAIRS = 2**16
_encode, _deliver, _look = fused_kernels.encode, fused_readout.deliver, fused_readout.look


@compiled
def encode_part(told: Array, reals: Array, start: int, end: int) -> None:
    """Round rows, or columns, of an operand to codes."""
    _encode(
        (told[0], told[1], told[2], told[3], told[4], told[5], told[6]),
        told[7],
        (told[8], told[9], told[10], start, end),
        (np.float32(reals[0]), np.float32(reals[1]), told[11] != 0, told[12] != 0),
        (told[13] != 0, told[14], told[15]),
    )


@job
def encode(block: int) -> None:
    """Round an operand to codes (`optical.fused_kernels.encode`); parts are of B R rows, or of C columns.

    Parameters
    ----------
    block : int
        Address of: seven addresses; the kind of codes; B, R and C; 1 if sums are over columns, 1 if elements
        that are summed have a full scale of their own; 1 to dither, key and first word; and the code of full
        scale and the least full scale.
    """
    start, end = next_part(block)
    while start < end:
        told = numbers(block + 8 * HEAD, ENCODE_INTEGERS)
        encode_part(told, doubles(block + 8 * (HEAD + ENCODE_INTEGERS), ENCODE_REALS), start, end)
        start, end = next_part(block)


@job
def encode_blocks(block: int) -> None:
    """Round the matrices of blocks; parts are what those of `encode` are, over all blocks.

    Parameters
    ----------
    block : int
        Address of: address of the integers that `encode` is told of each block, [blocks, integers]; length of
        the range of a block; and the reals of all.
    """
    start, end = next_part(block)
    while start < end:
        told, each = numbers(block + 8 * HEAD, 2)
        reals = doubles(block + 8 * (HEAD + 2), ENCODE_REALS)
        while start < end:
            number = start // each
            stop = min(end, (number + 1) * each)
            here = numbers(told + 8 * ENCODE_INTEGERS * number, ENCODE_INTEGERS)
            encode_part(here, reals, start - number * each, stop - number * each)
            start = stop
        start, end = next_part(block)


@compiled
def deliver_part(told: Array, law: Array, products: int, start: int, end: int) -> None:
    """Read rows of a block of products out, of which the first of the block is, or would be, at an address."""
    place = (told[9], told[10], told[11], told[12], told[13], told[14])
    _deliver(
        (products, told[1], told[2], told[3], told[4], told[5], told[6], told[7]),
        told[8] != 0,
        (*place, start, end, told[15], told[16], told[17]),
        (told[18] != 0, told[19], told[20], doubles(told[21], _PAIRS)),
        (law[0], law[1], law[2], law[3], law[4], law[5], law[6]),
    )


@job
def deliver(block: int) -> None:
    """Read products out (`optical.fused_readout.deliver`); parts are rows of the block of products.

    Parameters
    ----------
    block : int
        Address of: eight addresses; 1 for int32 products; B, M and N of all results, first batch, first row
        and end of the rows of the block; numbers of full scales of A and of B, 1 if results are added; 1 if
        there is noise, its key, first word and the address of pairs of Gaussians; and the seven numbers of
        the law.
    """
    start, end = next_part(block)
    while start < end:
        told = numbers(block + 8 * HEAD, DELIVER_INTEGERS)
        law = doubles(block + 8 * (HEAD + DELIVER_INTEGERS), DELIVER_REALS)
        deliver_part(told, law, told[0], start, end)
        start, end = next_part(block)


@job
def deliver_blocks(block: int) -> None:
    """Read products of many blocks out; parts are rows of products, over all blocks.

    Parameters
    ----------
    block : int
        Address of: address of what `deliver` is told of each block, [blocks, integers], that of its reals, and
        rows of a block, over all its batches.
    """
    start, end = next_part(block)
    while start < end:
        told, laws, rows = numbers(block + 8 * HEAD, 3)
        while start < end:
            number = start // rows
            here = numbers(told + 8 * DELIVER_INTEGERS * number, DELIVER_INTEGERS)
            law = doubles(laws + 8 * DELIVER_REALS * number, DELIVER_REALS)
            stop = min(end, (number + 1) * rows)
            deliver_part(here, law, here[0], start - number * rows, stop - number * rows)
            start = stop
        start, end = next_part(block)


@job
def look_blocks(block: int) -> None:
    """Read codes of blocks as `optical.fused_readout.look` does; parts are of blocks.

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
