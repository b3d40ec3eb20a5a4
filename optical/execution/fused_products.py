"""Reads products of codes out in compiled passes: one for the gain, one for noise, conversion and scale.

The law is that of `optical.execution.readout`, which does the same in torch.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from optical.execution import fused, tiles
from optical.execution.analog import AnalogSpec, Shot
from optical.execution.code_products import CodeProduct
from optical.execution.draws import Draws, gaussian_pairs
from optical.execution.fused import fuses, kernels
from optical.execution.fused_laws import Law, Noise, Operands, law_of, noise_of
from optical.execution.fused_numbers import FEWEST_ROWS
from optical.execution.fused_threads import Job
from optical.execution.operand_blocks import Block, Target, product_blocks, whole
from optical.execution.operands import Operand, multiply


def deliver(
    spec: AnalogSpec,
    a: Operand,
    b: Operand,
    draws: Draws,
    *,
    known: CodeProduct | None = None,
    range_: float | None = None,
    exact: bool = False,
    target: Target | None = None,
) -> torch.Tensor | None:
    """Return the product of coded operands as `optical.execution.readout.read` does, or None where torch is to do it.

    Parameters
    ----------
    spec, a, b
        What is executed; several samples of a sum collapse into one draw.
    draws : Draws
        Source of noise.
    known : CodeProduct or None
        The exact product of codes, if it is there already.
    range_ : float or None
        Half of the converter's range, in code products, for a sum that is one of several samples; by default
        a probe finds it.
    exact : bool
        Whether laser noise must follow every output, however small it is.
    target : Target or None
        Where the result goes.
    """
    columns = b.codes.shape[2]
    if columns % 2 or not suits(spec) or not fuses(a.energy):
        return None
    if target is not None and not (target.c_BMN.is_contiguous() and fuses(target.c_BMN)):
        return None
    law = law_of(spec, a.step, b.step, a.codes.shape[2])
    if exact and law.laser > 0.0:
        return None
    if range_ is None:
        noise = noise_of(spec, law, (a, b), known)
    else:
        noise = Noise(range_, (range_**2 * law.missing + law.thermal, law.by_a, law.by_b, 0.0))
    if noise is None:
        return None
    if target is None:
        target = Target(a.energy.new_empty((*a.codes.shape[:2], columns)), adds=False)
    c_BMN = target.c_BMN
    tiled = None if known is not None or not a.multiplies_integers(b) else _tiled(a, b)
    if tiled is not None:
        told, reals = told_of(law, (), (a, b), noise, Output(target, whole(c_BMN.shape), draws))
        rows = c_BMN.shape[1]
        read_out(
            (0, 0, rows, *told),
            reals,
            rows * columns,
            tiled,
            grain=FEWEST_ROWS,
            most=tiles.rows_at_once(columns),
        )
        return c_BMN
    for block in product_blocks(c_BMN.shape, c_BMN.device):
        product = multiply(a, b, block) if known is None else known
        _read(law, product, (a, b), noise, Output(target, block, draws))
    return c_BMN


def _tiled(a: Operand, b: Operand) -> tuple[int, ...] | None:
    """Return what is told of a product in tiles that is read out as it is made, or None for another."""
    if b.tiles is None or not tiles.is_small(b.tiles):
        return None
    return tiles.plan(a.some(slice(0, a.codes.shape[1])), b.tiles)


@functools.lru_cache(maxsize=1024)
def suits(spec: AnalogSpec) -> bool:
    """Return whether there are compiled passes for the errors of a specification."""
    chip = spec.chip
    distorts = chip is not None and chip.output_gain + chip.imbalance + chip.edge_imbalance > 0.0
    counts = spec.shot is Shot.COUNTED and spec.shot_variance > 0.0
    return not (distorts or counts or spec.common is not None or spec.encoding is not None)


class Output(NamedTuple):
    """Where results go."""

    target: Target
    """All of them."""
    block: Block
    """Of which this is written."""
    draws: Draws
    """Source of noise."""


def _read(law: Law, product: CodeProduct, operands: Operands, noise: Noise, out: Output) -> None:
    """Write a block of outputs."""
    (_, (batches, rows), _), columns = out, operands[1].codes.shape[2]
    lines = (batches.stop - batches.start) * (rows.stop - rows.start)
    told, reals = told_of(law, product.sums, operands, noise, out)
    read_out((0, 0, lines, *told), reals, lines * columns)


def told_of(
    law: Law, sums: tuple[torch.Tensor, ...], operands: Operands, noise: Noise, out: Output
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return what `optical.execution.fused_jobs.deliver` is told; without sums these are made there."""
    ((c_BMN, adds), (batches, rows), draws), (a, b) = out, operands
    columns = c_BMN.shape[2]
    count = (batches.stop - batches.start) * (rows.stop - rows.start) * columns
    exact, low, both = (*(each.data_ptr() for each in sums), 0, 0, 0)[:3]
    tensors = (c_BMN, a.energy, b.energy, a.scale, b.scale)
    told = (
        exact,
        *(tensor.data_ptr() for tensor in tensors),
        low,
        both,
        sums[0].dtype == torch.int32 if sums else a.halves is None,
        *c_BMN.shape,
        batches.start,
        rows.start,
        rows.stop,
        a.scale.numel(),
        b.scale.numel(),
        adds,
        law.is_noisy,
        *(draws.take(count // 2) if law.is_noisy else (0, 0)),
        pairs(),
    )
    return told, (*noise.variance, law.unit, noise.range_ * law.relative_step, law.levels)


def read_out(
    told: tuple[int, ...],
    reals: tuple[float, ...],
    elements: int,
    product: tuple[int, ...] | None = None,
    *,
    blocks: int = 1,
    grain: int = 1,
    most: int | None = None,
) -> None:
    """Run the job, by whichever functions are compiled for this CPU.

    Parameters
    ----------
    told, reals : tuple
        What `optical.execution.fused_jobs.deliver` is told, with tables.
    elements : int
        Outputs.
    product : tuple of int or None
        What is multiplied before (`optical.execution.tiles.plan`), for one block.
    blocks : int
        Blocks in tables.
    grain, most
        Of parts (`optical.execution.fused_threads.Job.run`).
    """
    job, more = _delivering()
    job.run((*told, *(product or (0,) * more), *reals), blocks * told[2], elements, grain=grain, most=most)


@functools.cache
def _delivering() -> tuple[Job, int]:
    """Return what reads products out, and how many integers it is told of what it multiplies before."""
    jobs, tiled = kernels().jobs, fused.tile_jobs()
    integers = jobs.TABLE_INTEGERS + jobs.DELIVER_INTEGERS
    if tiled is None:
        return Job(jobs.deliver, integers, jobs.DELIVER_REALS), 0
    more = tiled.PRODUCT_INTEGERS
    return Job(tiled.deliver, integers + more, jobs.DELIVER_REALS), more


@functools.cache
def pairs() -> int:
    """Return the address of pairs of Gaussians."""
    return gaussian_pairs().data_ptr()
