"""Gain and readout of a product in single passes over memory, compiled by numba where that is installed.

Memory is given by address, since to wrap a tensor as an array takes as long as a small product.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C; S analog samples of a probe.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from optical.fused_kernels import Numbers, compiled, floats, integers, small_integers

Array = Any
LONG = 2**40
"""Length of memory whose end is not asked for."""


@compiled
def gather(codes: int, whole: bool, strides: Numbers, steps: Numbers, out: int, sizes: Numbers) -> None:
    """Copy the probed codes of an operand.

    Parameters
    ----------
    codes : int
        Address of codes, int8 if `whole`, else float32.
    whole : bool
        Of what type they are.
    strides : tuple of int
        In elements: of batches, of rows, of K.
    steps : tuple of int
        Batches, samples and rows from one probed to the next.
    out : int
        Address of float32, [B', T', M', K'].
    sizes : tuple of int
        B', T', M' and K'.
    """
    if whole:
        _gather(small_integers(codes, LONG), strides, steps, out, sizes)
    else:
        _gather(floats(codes, LONG), strides, steps, out, sizes)


@compiled
def _gather(codes: Array, strides: Numbers, steps: Numbers, out: int, sizes: Numbers) -> None:
    batches, samples, rows, length = sizes
    results, end = floats(out, batches * samples * rows * length), 0
    for batch in range(batches):
        for sample in range(samples):
            for row in range(rows):
                start = batch * steps[0] * strides[0] + row * steps[2] * strides[1]
                start += sample * steps[1] * length * strides[2]
                into = results[end : end + length]
                end += length
                if strides[2] == 1:
                    for place in range(length):
                        into[place] = np.float32(codes[start + place])
                else:
                    for place in range(length):
                        into[place] = np.float32(codes[start + place * strides[2]])


@compiled
def cross_power(a_SMK: Array, b_SNK: Array) -> float:
    """Return the mean over samples of ``sum_k(mean_m(a^2) mean_n(b^2))``."""
    samples, rows, length = a_SMK.shape
    columns, total = b_SNK.shape[1], 0.0
    first, second = np.zeros(length, np.float32), np.zeros(length, np.float32)
    for sample in range(samples):
        first[:] = np.float32(0.0)
        second[:] = np.float32(0.0)
        for row in range(rows):
            _add_squares(a_SMK[sample, row], first)
        for column in range(columns):
            _add_squares(b_SNK[sample, column], second)
        for place in range(length):
            total += first[place] * second[place]
    return total / (samples * rows * columns)


@compiled
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


@compiled
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


@compiled
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
def mean_square_beyond(signal: Array, reach: float) -> float:
    """Return the mean square of what of float32 values lies beyond a reach."""
    total, edge = 0.0, np.float32(reach)
    for place in range(signal.size):
        beyond = max(abs(signal[place]) - edge, np.float32(0.0))
        total += beyond * beyond
    return total / signal.size


@compiled
def deliver(
    memory: Numbers,
    whole: bool,
    shape: Numbers,
    block: Numbers,
    gaussians: tuple[Array, Array],
    energy: Numbers,
    scale: Numbers,
    noise: Numbers,
    readout: Numbers,
) -> None:
    """Add noise to a block of exact products, convert and scale them.

    Parameters
    ----------
    memory : tuple of int
        Addresses of the products of the block, int32 if `whole`, else float32, and of all results, [B, M, N].
    whole : bool
        Of what type products are.
    shape : tuple of int
        B, M and N, which is even, of all results.
    block : tuple of int
        First and last-but-one batch and row.
    gaussians : tuple of numpy.ndarray
        Words, uint16, one for two outputs, or none without noise; and pairs of Gaussians by word, [65536]
        float64 that hold two float32 each.
    energy : tuple of int
        Addresses of the sums of squared codes of A, [B, M], and of B, [B, N].
    scale : tuple of int
        Address and number of full scales of A, [B, M] or [1], and of B, [B, N] or [1].
    noise : tuple of float
        Variance without light, and per energy of A, of B, and of their product.
    readout : tuple of float
        What results are multiplied by; codes of the converter per unit, and its largest code, or zero.
    """
    if whole:
        _deliver(integers(memory[0], LONG), memory[1], shape, block, gaussians, energy, scale, noise, readout)
    else:
        _deliver(floats(memory[0], LONG), memory[1], shape, block, gaussians, energy, scale, noise, readout)


@compiled
def _deliver(
    product: Array,
    out: int,
    shape: Numbers,
    block: Numbers,
    gaussians: tuple[Array, Array],
    energy: Numbers,
    scale: Numbers,
    noise: Numbers,
    readout: Numbers,
) -> None:
    batches, rows, columns = shape
    (constant, by_a, by_b, by_both), (unit, per_step, levels) = noise, readout
    converter = (np.float32(per_step), np.float32(levels))
    words, pairs = gaussians
    a_energy, b_energy = floats(energy[0], batches * rows), floats(energy[1], batches * columns)
    a_scale, b_scale = floats(scale[0], scale[1]), floats(scale[2], scale[3])
    results = floats(out, batches * rows * columns)
    drawn, column_scale = np.empty(columns // 2, np.float64), np.ones(columns, np.float32)
    gaussian, start, word = drawn.view(np.float32), 0, 0
    if b_scale.size == 1:
        unit *= b_scale[0]
    for batch in range(block[0], block[1]):
        if b_scale.size > 1:
            column_scale = b_scale[batch * columns : (batch + 1) * columns]
        for row in range(block[2], block[3]):
            place = batch * rows + row
            exact, into = product[start : start + columns], results[place * columns : (place + 1) * columns]
            factor = np.float32(unit * a_scale[place if a_scale.size > 1 else 0])
            start += columns
            if words.size == 0:
                _read(exact, converter, (factor, column_scale), into)
                continue
            for pair in range(drawn.size):
                drawn[pair] = pairs[words[word + pair]]
            word += drawn.size
            if by_a == 0.0 and by_b == 0.0 and by_both == 0.0:
                deviation = np.float32(np.sqrt(constant))
                _read_evenly(exact, (gaussian, deviation), converter, (factor, column_scale), into)
            else:
                base = np.float32(constant + by_a * a_energy[place])
                slope = np.float32(by_b + by_both * a_energy[place])
                squares = b_energy[batch * columns : (batch + 1) * columns]
                _read_unevenly(
                    exact, (gaussian, base, slope, squares), converter, (factor, column_scale), into
                )


@compiled
def _read(exact: Array, converter: Numbers, scale: tuple[Any, Array], out: Array) -> None:
    (per_step, levels), (factor, column) = converter, scale
    for place in range(out.size):
        value = np.float32(exact[place])
        if levels > 0.0:
            value = np.rint(value * per_step)
            value = -levels if value < -levels else value
            value = levels if value > levels else value
        out[place] = value * factor * column[place]


@compiled
def _read_evenly(
    exact: Array,
    noise: tuple[Array, Any],
    converter: Numbers,
    scale: tuple[Any, Array],
    out: Array,
) -> None:
    """Read a row whose outputs have one deviation."""
    (gaussian, deviation), (per_step, levels), (factor, column) = noise, converter, scale
    for place in range(out.size):
        value = np.float32(exact[place]) + gaussian[place] * deviation
        if levels > 0.0:
            value = np.rint(value * per_step)
            value = -levels if value < -levels else value
            value = levels if value > levels else value
        out[place] = value * factor * column[place]


@compiled
def _read_unevenly(
    exact: Array,
    noise: tuple[Array, Any, Any, Array],
    converter: Numbers,
    scale: tuple[Any, Array],
    out: Array,
) -> None:
    """Read a row whose outputs have variances that rise with the energy of their columns."""
    (gaussian, base, slope, squares), (per_step, levels), (factor, column) = noise, converter, scale
    for place in range(out.size):
        deviation = np.sqrt(base + slope * squares[place])
        value = np.float32(exact[place]) + gaussian[place] * deviation
        if levels > 0.0:
            value = np.rint(value * per_step)
            value = -levels if value < -levels else value
            value = levels if value > levels else value
        out[place] = value * factor * column[place]
