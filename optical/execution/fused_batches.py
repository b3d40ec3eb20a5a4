"""Reads the products of blocks of matrices out in compiled passes, many blocks at a time.

Each block has a gain and draws of its own: the same as `optical.execution.fused_products.deliver` gives block by block.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from optical.execution import tiles
from optical.execution.analog import AnalogSpec
from optical.execution.draws import Blocks, Draws
from optical.execution.fused import KINDS, fuses, kernels
from optical.execution.fused_laws import (
    Law,
    Noise,
    Operands,
    Sight,
    law_of,
    mean_square_beyond,
    noise_of,
    probed_places,
    settle,
)
from optical.execution.fused_numbers import FEWEST_ROWS
from optical.execution.fused_products import Output, read_out, suits, told_of
from optical.execution.fused_threads import Job
from optical.execution.operand_blocks import CACHE_ELEMENTS, Target
from optical.execution.operands import Operand
from optical.execution.probes import probe_steps
from optical.execution.readout import is_read_whole
from optical.execution.scratch import scratch

_MOST = 8 * CACHE_ELEMENTS
"""Products that are made at a time."""
_ALL = slice(0, 2**62)


def deliver_blocks(spec: AnalogSpec, operands: Operands, drawn: Blocks, c_BMN: torch.Tensor) -> int:
    """Write products of coded matrices; return of how many blocks: none where there is no such way.

    Parameters
    ----------
    spec : AnalogSpec
        What is executed, with a scale for each row.
    operands : tuple of Operand
        Of float codes, [B, M, K] and [B, K, N].
    drawn : Blocks
        Matrices of a block, of which a last one with fewer is left out, and what the draws of each hang on.
    c_BMN : torch.Tensor
        Where products go, [B, M, N], without gaps.
    """
    (a, b), (batch, rows, columns), size = operands, c_BMN.shape, drawn.size
    each = size * rows * columns
    floats = a.codes.dtype == b.codes.dtype == torch.float32
    if spec.chip is not None or columns % 2 or each > _MOST or not (floats and suits(spec) and fuses(c_BMN)):
        return 0
    law, at_once = law_of(spec, a.step, b.step, a.codes.shape[2]), max(1, _MOST // each)
    for start in range(0, batch // size, at_once):
        numbers = range(start, min(start + at_once, batch // size))
        part = slice(numbers.start * size, numbers.stop * size)
        blocks = _Blocks(a.at((part, _ALL)), b.at((part, _ALL)), size, len(numbers))
        keyed = drawn._replace(keys=drawn.keys[start : numbers.stop])
        if not _deliver(spec, law, blocks, keyed, c_BMN[part]):
            return start
    return batch // size


def deliver_rows(spec: AnalogSpec, operands: Operands, drawn: Blocks, c_BMN: torch.Tensor) -> int:
    """Write products of blocks of rows by one B; return of how many blocks: none where there is no such way.

    Parameters
    ----------
    spec : AnalogSpec
        What is executed, with a scale for each row.
    operands : tuple of Operand
        Of int8 codes: those of the blocks' rows without gaps, [blocks, R, K], and [1, K, N] in tiles.
    drawn : Blocks
        Rows of a block, R, and what the draws of each hang on.
    c_BMN : torch.Tensor
        Where products go, [1, M, N], without gaps.
    """
    (a, b), (count, size, length), columns = operands, operands[0].codes.shape, c_BMN.shape[2]
    if spec.chip is not None or columns % 2 or not (suits(spec) and fuses(c_BMN)):
        return 0
    whole = a.codes.dtype == torch.int8 and a.codes.is_contiguous()
    if not whole or size < FEWEST_ROWS or b.tiles is None or not tiles.is_small(b.tiles):
        return 0
    rows = tiles.Rows((a.codes.view(count * size, length),), None, slice(0, count * size))
    product, law = tiles.plan(rows, b.tiles), law_of(spec, a.step, b.step, length)
    if product is None:
        return 0
    parts = (a.at((slice(place, place + 1), _ALL)) for place in range(count))
    exact = is_read_whole(spec, (1, size, length, columns), c_BMN.device)  # as such a block by itself is
    noises = (noise_of(spec, law, (part, b), None, exact=exact) for part in parts)
    found = [noise for noise in noises if noise is not None]
    if len(found) < count:
        return 0
    out = Output(Target(c_BMN, adds=False), (slice(0, 1), slice(0, size)), Draws(0, c_BMN.device))
    integers, _ = told_of(law, (), operands, found[0], out)
    told, reals = _tables(law, found, integers, drawn)
    told[:, 1:6] += np.arange(count)[:, None] * np.array(
        [4 * size * width for width in (columns, 1, 0, 1, 0)]
    )
    told[:, 8] = 1
    table = (told.ctypes.data, reals.ctypes.data, size, *(0,) * told.shape[1])
    most = tiles.rows_at_once(columns)
    laws = (0.0,) * reals.shape[1]
    read_out(table, laws, count * size * columns, product, blocks=count, grain=FEWEST_ROWS, most=most)
    return count


def _tables(
    law: Law, noises: Sequence[Noise], integers: tuple[int, ...], drawn: Blocks
) -> tuple[np.ndarray, np.ndarray]:
    """Return what is told of each block: integers, but for places in memory, and reals."""
    told = np.empty((len(noises), len(integers)), np.int64)
    told[:] = integers
    told[:, 19], told[:, 20] = drawn.signed, drawn.first
    step = law.relative_step
    return told, np.array([(*noise.variance, law.unit, noise.range_ * step, law.levels) for noise in noises])


class _Blocks(NamedTuple):
    """Blocks that are worked on together."""

    a: Operand
    """[B, M, K]."""
    b: Operand
    """[B, K, N]."""
    size: int
    """Matrices of a block."""
    number: int
    """Of blocks."""


def _deliver(spec: AnalogSpec, law: Law, blocks: _Blocks, drawn: Blocks, c_BMN: torch.Tensor) -> bool:
    """Write some blocks; return whether that could be done."""
    a, b, size, count = blocks
    product = torch.bmm(a.codes, b.codes, out=scratch("product", c_BMN.shape, torch.float32, c_BMN.device))
    noises = [settle(spec, law, sight) for sight in _sights(spec, law, blocks, product)]
    found = [noise for noise in noises if noise is not None]
    if len(found) < count:
        return False
    rows, columns = c_BMN.shape[1:]
    out = Output(Target(c_BMN, adds=False), (slice(0, size), slice(0, rows)), Draws(0, c_BMN.device))
    integers, _ = told_of(law, (product,), (a, b), found[0], out)
    told, reals = _tables(law, found, integers, drawn)
    told[:, :6] += np.arange(count)[:, None] * np.array(
        [4 * size * width for width in (rows * columns, rows * columns, rows, columns, rows, columns)]
    )
    table = (told.ctypes.data, reals.ctypes.data, size * rows, *(0,) * told.shape[1])
    read_out(table, (0.0,) * reals.shape[1], product.numel(), blocks=count)
    return True


def _sights(spec: AnalogSpec, law: Law, blocks: _Blocks, product: torch.Tensor) -> list[Sight]:
    """Return what the gain stage of each block reads."""
    (a, b, size, count), passes = blocks, kernels().readout
    (_, rows, length), columns = a.codes.shape, b.codes.shape[2]
    whole, each = length <= spec.analog_length, product[:size]
    crosses, signal = [0.0] * count, product
    if law.laser > 0.0 or (law.sets_range and not whole):
        crosses, signal = _look(spec, blocks, lasers=law.laser > 0.0, signals=not whole)
    found = []
    for place in range(count):
        means, power, beyond = (0.0, 0.0, 0.0), 0.0, None
        if law.reads_energies:
            energies = (
                a.energy.data_ptr() + 4 * place * size * rows,
                b.energy.data_ptr() + 4 * place * size * columns,
            )
            means = passes.mean_energies(*energies, (size, rows, columns))
        if law.sets_range and whole:
            power = passes.mean_square(
                each.data_ptr() + 4 * place * each.numel(), False, *probed_places(each.shape)
            )
        elif law.sets_range:
            samples = signal[place]
            power = passes.mean_square(samples.data_ptr(), False, tuple(samples.shape), samples.stride())
            beyond = functools.partial(mean_square_beyond, samples) if law.clips else None
        found.append(Sight(means, power, crosses[place], beyond))
    return found


def _look(
    spec: AnalogSpec, blocks: _Blocks, *, lasers: bool, signals: bool
) -> tuple[list[float], torch.Tensor]:
    """Return the mean products of energies of each block, and the probed samples, [blocks, S, M', N']."""
    (a, b, size, count), kind = blocks, KINDS[torch.float32]
    (_, rows, length), columns = a.codes.shape, b.codes.shape[2]
    (batches, samples, m, width), a_steps = probe_steps(spec, torch.Size((size, rows, length)))
    (_, _, n, _), b_steps = probe_steps(spec, torch.Size((size, columns, length)))

    def memory(use: str, *sizes: int) -> torch.Tensor:
        shape = torch.Size((count * batches * samples, *sizes))
        return scratch(f"probe of {use}", shape, torch.float32, a.codes.device)

    first, second = memory("first", m, width), memory("second", n, width)
    b_strides = (b.codes.stride(0), b.codes.stride(2), b.codes.stride(1))
    crosses, each = np.empty(count), 4 * batches * samples
    told = (
        *(a.codes.data_ptr(), kind, *a.codes.stride(), *a_steps, first.data_ptr()),
        *(b.codes.data_ptr(), kind, *b_strides, *b_steps, second.data_ptr()),
        *(batches, samples, m, n, width, lasers),
        *(4 * size * x.codes.stride(0) for x in (a, b)),
        *(each * x.stride(0) for x in (first, second)),
        crosses.ctypes.data,
    )
    _looking().run(told, count, first.numel() + second.numel())
    signal = memory("signal", m, n)
    if signals:
        torch.bmm(first, second.mT, out=signal)
    return crosses.tolist(), signal.view(count, batches * samples, m, n)


@functools.cache
def _looking() -> Job:
    jobs = kernels().jobs
    return Job(jobs.look_blocks, jobs.LOOK_INTEGERS, 0)
