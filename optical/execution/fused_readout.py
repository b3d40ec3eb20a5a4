"""Gain and readout of a product in single passes over memory, compiled by numba where that is installed.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C; S analog samples of a probe.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from optical.execution.compiling import (
    LONG,
    Array,
    Numbers,
    compiled,
    compiled_in_order,
    floats,
    inside,
    integers,
    short_integers,
    small_integers,
)
from optical.execution.fused_draws import draw_words
from optical.execution.fused_numbers import INT8, INT16


@compiled
def look(first: Numbers, second: Numbers, sizes: Numbers) -> float:
    """Copy the probed codes of both operands, and return the mean of ``sum_k(mean_m(a^2) mean_n(b^2))``.

    Parameters
    ----------
    first, second : tuple
        Of an operand: address and kind of its codes (`optical.execution.compiling`); their strides, in elements,
        through batches, rows and K; batches, samples and rows from one probed to the next; and the address of
        the copy, float32 [S, R, K'].
    sizes : tuple of int
        Batches and samples that are probed, whose product is S; rows of the one and of the other; K'; and 1
        if the mean is wanted, which is else 0.
    """
    batches, samples, rows, columns, length, wanted = sizes
    _copy(first, (batches, samples, rows, length))
    _copy(second, (batches, samples, columns, length))
    if wanted == 0:
        return 0.0
    count = batches * samples
    a, b = floats(first[4], count * rows * length), floats(second[4], count * columns * length)
    total = 0.0
    of_a, of_b = np.zeros(length, np.float32), np.zeros(length, np.float32)
    for sample in range(count):
        of_a[:] = np.float32(0.0)
        of_b[:] = np.float32(0.0)
        for row in range(sample * rows, (sample + 1) * rows):
            _add_squares(a[row * length : (row + 1) * length], of_a)
        for column in range(sample * columns, (sample + 1) * columns):
            _add_squares(b[column * length : (column + 1) * length], of_b)
        for place in range(length):
            total += of_a[place] * of_b[place]
    return total / (count * rows * columns)


@inside
def _copy(operand: Numbers, sizes: Numbers) -> None:
    codes, kind, strides, steps, out = operand
    if kind == INT8:
        _gather(small_integers(codes, LONG), strides, steps, (out, *sizes))
    elif kind == INT16:
        _gather(short_integers(codes, LONG), strides, steps, (out, *sizes))
    else:
        _gather(floats(codes, LONG), strides, steps, (out, *sizes))


@inside
def _gather(codes: Array, strides: Numbers, steps: Numbers, found: Numbers) -> None:
    out, batches, samples, rows, length = found
    results, begin, step = floats(out, batches * samples * rows * length), 0, steps[2] * strides[1]
    for batch in range(batches):
        for sample in range(samples):
            start = batch * steps[0] * strides[0] + sample * steps[1] * length * strides[2]
            if strides[2] == 1:
                for row in range(rows):
                    into = results[begin + row * length : begin + (row + 1) * length]
                    for place in range(length):
                        into[place] = np.float32(codes[start + row * step + place])
            else:  # along memory: a column at a time would meet a page with every element
                for place in range(length):
                    for row in range(rows):
                        code = codes[start + place * strides[2] + row * step]
                        results[begin + row * length + place] = np.float32(code)
            begin += rows * length


@inside
def _add_squares(x: Array, total: Array) -> None:
    for place in range(x.size):
        total[place] += x[place] * x[place]


@compiled
def mean_energies(a_energy: int, b_energy: int, sizes: Numbers) -> tuple[float, float, float]:
    """Return the means of the energies of A and of B, and that over batches of the product of theirs.

    Parameters
    ----------
    a_energy, b_energy : int
        Addresses of float32, [B, M] and [B, N].
    sizes : tuple of int
        B, M and N.
    """
    batches, rows, columns = sizes
    a_BM, b_BN = floats(a_energy, batches * rows), floats(b_energy, batches * columns)
    first = second = both = 0.0
    for batch in range(batches):
        a = _sum(a_BM[batch * rows : (batch + 1) * rows]) / rows
        b = _sum(b_BN[batch * columns : (batch + 1) * columns]) / columns
        first += a
        second += b
        both += a * b
    return first / batches, second / batches, both / batches


@inside
def _sum(x: Array) -> float:
    total = 0.0
    for place in range(x.size):
        total += x[place]
    return total


@compiled
def mean_square(signal: int, whole: bool, sizes: Numbers, strides: Numbers) -> float:
    """Return the mean square of some outputs.

    Parameters
    ----------
    signal : int
        Address of products of codes, int32 if `whole`, else float32.
    whole : bool
        Of what type they are.
    sizes, strides : tuple of int
        How many batches, rows and columns, and how far apart they lie, in elements.
    """
    if whole:
        return _mean_square(integers(signal, LONG), sizes, strides)
    return _mean_square(floats(signal, LONG), sizes, strides)


@inside
def _mean_square(signal: Array, sizes: Numbers, strides: Numbers) -> float:
    total = 0.0
    for batch in range(sizes[0]):
        for row in range(sizes[1]):
            start = batch * strides[0] + row * strides[1]
            for column in range(sizes[2]):
                value = float(signal[start + column * strides[2]])
                total += value * value
    return total / (sizes[0] * sizes[1] * sizes[2])


@compiled
def mean_square_beyond(address: int, count: int, reach: float) -> float:
    """Return the mean square of what of float32 values lies beyond a reach."""
    signal, total, edge = floats(address, count), 0.0, np.float32(reach)
    for place in range(signal.size):
        beyond = max(abs(signal[place]) - edge, np.float32(0.0))
        total += beyond * beyond
    return total / signal.size


@inside
def deliver(products: Numbers, memory: Numbers, place: Numbers, draws: Numbers, law: Numbers) -> None:
    """Add noise to a block of exact products, convert and scale them.

    Parameters
    ----------
    products : tuple of numpy.ndarray
        Products of the block, int32 or float32, or room for a row of them; and of halves, int32, of high, of
        low and of their sums, or empty ones.
    memory : tuple of int
        Addresses of the products of the block, int32 if `whole`, else float32; of all results, [B, M, N]; of
        the sums of squared codes of A, [B, M], and of B, [B, N]; of the full scales of A, [B, M] or [1], and
        of B, [B, N] or [1]; and of products of low halves and of sums of halves, int32, where the first are
        of high halves, else 0 twice.
    place : tuple of int
        B, M and N, which is even, of all results; first batch, first row and end of the rows of the block;
        first and last-but-one of its rows, counted over all its batches; numbers of full scales of A and of
        B; 1 if results are added to those that are there.
    draws : tuple
        Whether there is noise, its key and first word (`optical.execution.draws.Draws.take`), and pairs of Gaussians
        by word, [65536] float64 that hold two float32 each.
    law : tuple of float
        Variance without light, and per energy of A, of B, and of their product; what codes are multiplied by;
        step of the converter, and its largest code, or zero.
    """
    product, halves = products
    batches, rows, columns, first_batch, first_row, end_row, begin, end, a_scales, b_scales, adds = place
    constant, by_a, by_b, by_both, unit, step, levels = law
    noisy, key, number, pairs = draws
    results = floats(memory[1], batches * rows * columns)
    a_energy, b_energy = floats(memory[2], batches * rows), floats(memory[3], batches * columns)
    a_scale, b_scale = floats(memory[4], a_scales), floats(memory[5], b_scales)
    units = (np.float32(unit), np.float32(step if levels > 0.0 else 1.0))
    converter = (np.float32(1.0) / units[1], np.float32(levels))
    column_scale, words = np.ones(columns, np.float32), np.empty(columns // 8 + 2, np.uint64)
    half = columns // 2
    drawn, height = np.empty(half, np.float64), end_row - first_row
    gaussian = drawn.view(np.float32)
    for done in range(begin, end):
        batch = first_batch + done // height
        row = batch * rows + first_row + done % height
        if b_scales > 1:
            column_scale = b_scale[batch * columns : (batch + 1) * columns]
        part = slice(done * columns, (done + 1) * columns)
        if halves[0].size > 0:
            _join(halves[0][part], halves[1][part], halves[2][part], product)
            part = slice(0, columns)
        exact = product[part]
        into = results[row * columns : (row + 1) * columns]
        factor = _product(a_scale[row if a_scales > 1 else 0], units)
        scale = (factor * b_scale[0] if b_scales == 1 else factor, column_scale, adds)
        if noisy:
            start = draw_words(key, number, done * half, words)
            _take(words.view(np.uint16)[start : start + half], pairs, drawn)
            if by_a == 0.0 and by_b == 0.0 and by_both == 0.0:
                _read_evenly(exact, (gaussian, np.float32(np.sqrt(constant))), converter, scale, into)
            else:
                base = np.float32(constant + by_a * a_energy[row])
                slope = np.float32(by_b + by_both * a_energy[row])
                squares = b_energy[batch * columns : (batch + 1) * columns]
                _read_unevenly(exact, (gaussian, base, slope, squares), converter, scale, into)
        else:
            _read(exact, converter, scale, into)


@compiled_in_order
def _join(high: Array, low: Array, both: Array, out: Array) -> None:
    """Add products of halves to products of codes."""
    radix = np.float32(128.0)
    for place in range(out.size):
        crossed = both[place] - high[place] - low[place]
        upper = np.float32(high[place]) * radix + np.float32(crossed)
        out[place] = upper * radix + np.float32(low[place])


@compiled_in_order
def _product(factor: float, factors: Numbers) -> float:
    """Return a product as torch does: one factor after the other."""
    return factor * factors[0] * factors[1]


@inside
def _take(words: Array, pairs: Array, drawn: Array) -> None:
    for place in range(drawn.size):
        drawn[place] = pairs[words[place]]


@compiled_in_order
def _converted(value: Any, converter: Numbers) -> Any:  # noqa: ANN401
    """Return the code of a value, or the value where there is no converter; what is no number stays so."""
    per_step, levels = converter
    if levels > 0.0:
        value = np.rint(value * per_step)
        value = -levels if value < -levels else value
        value = levels if value > levels else value
    return value


@compiled_in_order
def _read(exact: Array, converter: Numbers, scale: Numbers, out: Array) -> None:
    factor, column, adds = scale
    for place in range(out.size):
        value = np.float32(exact[place])
        value = _converted(value, converter) * factor * column[place]
        out[place] = out[place] + value if adds else value


@compiled_in_order
def _read_evenly(
    exact: Array,
    noise: Numbers,
    converter: Numbers,
    scale: Numbers,
    out: Array,
) -> None:
    """Read a row whose outputs have one deviation."""
    (gaussian, deviation), (factor, column, adds) = noise, scale
    for place in range(out.size):
        value = np.float32(exact[place]) + gaussian[place] * deviation
        value = _converted(value, converter) * factor * column[place]
        out[place] = out[place] + value if adds else value


@compiled_in_order
def _read_unevenly(
    exact: Array,
    noise: Numbers,
    converter: Numbers,
    scale: Numbers,
    out: Array,
) -> None:
    """Read a row whose outputs have variances that rise with the energy of their columns."""
    (gaussian, base, slope, squares), (factor, column, adds) = noise, scale
    for place in range(out.size):
        deviation = np.sqrt(base + slope * squares[place])
        value = np.float32(exact[place]) + gaussian[place] * deviation
        value = _converted(value, converter) * factor * column[place]
        out[place] = out[place] + value if adds else value
