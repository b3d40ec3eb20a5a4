"""Reads products of codes out in compiled passes: one for the gain, one for noise, conversion and scale.

The law is that of `optical.readout`, which does the same in torch.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch

from optical import tiles
from optical.analog import AnalogSpec, Shot
from optical.code_products import CodeProduct
from optical.collapse import doubt_collapse
from optical.draws import Draws, gaussian_pairs
from optical.fused import KINDS, fuses, kernels
from optical.fused_threads import Job
from optical.operand_blocks import Block, Target, product_blocks, whole
from optical.operands import (
    NEGLIGIBLE_LASER,
    SMALLEST_SCALE,
    Operand,
    largest_code,
    multiply,
)
from optical.probes import probe_outputs, probe_steps
from optical.scratch import remembered, scratch

_Operands = tuple[Operand, Operand]


class _Law(NamedTuple):
    """Constants of a product's variance, in code products squared where they are variances."""

    samples: int
    """Analog samples of a sum."""
    parts: float
    """The same, a short last one counted in proportion."""
    most: float
    """Largest range of the converter."""
    sets_range: bool
    """Whether a probe sets the range."""
    thermal: float
    """Of a sample, whatever the light."""
    by_a: float
    """Per energy of A."""
    by_b: float
    """Per energy of B."""
    laser: float
    """Per product of energies."""
    missing: float
    """Of a converter's missing bits, or of its rounding if that is not executed, per squared range."""
    is_noisy: bool
    """Whether outputs have any noise."""
    unit: float
    """Of the result, for full scales of 1."""
    relative_step: float
    """Step of an executed converter over its range; zero without one."""
    levels: int
    """Its largest code."""


@functools.lru_cache(maxsize=4096)
def _law(spec: AnalogSpec, a_step: float, b_step: float, length: int) -> _Law:
    unit, samples = a_step * b_step * spec.product_gain, -(-length // spec.analog_length)
    each = (spec.shot_variance + spec.encoding_variance) / unit**2
    laser = spec.rin_variance / spec.product_gain**2
    converts, missing, relative_step = math.isfinite(spec.adc_enob_bits), 0.0, 0.0
    if samples == 1 and math.isfinite(spec.adc_bits):
        relative_step = 2.0 ** (1.0 - spec.adc_bits)
    if converts:
        missing = ((2.0 ** (1.0 - spec.adc_enob_bits)) ** 2 - relative_step**2) * samples / 12.0
    lossy = converts and (samples > 1 or spec.adc_enob_bits < spec.adc_bits)
    return _Law(
        samples=samples,
        parts=max(1.0, length / spec.analog_length),
        most=spec.analog_length / unit,
        sets_range=converts and math.isfinite(spec.adc_range_sigma),
        thermal=spec.thermal_variance / unit**2,
        by_a=each * a_step**2,
        by_b=each * b_step**2,
        laser=laser,
        missing=missing,
        is_noisy=lossy or spec.thermal_variance + each + laser > 0.0,
        unit=unit,
        relative_step=relative_step,
        levels=largest_code(spec.adc_bits) if relative_step else 0,
    )


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
    """Return the product of coded operands as `optical.readout.read` does, or None where torch is to do it.

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
    if columns % 2 or not _suits(spec) or not fuses(a.energy):
        return None
    if target is not None and not (target.c_BMN.is_contiguous() and fuses(target.c_BMN)):
        return None
    law = _law(spec, a.step, b.step, a.codes.shape[2])
    if exact and law.laser > 0.0:
        return None
    if range_ is None:
        noise = _noise(spec, law, (a, b), known)
    else:
        noise = _Noise(range_, (range_**2 * law.missing + law.thermal, law.by_a, law.by_b, 0.0))
    if noise is None:
        return None
    if target is None:
        target = Target(a.energy.new_empty((*a.codes.shape[:2], columns)), adds=False)
    c_BMN = target.c_BMN
    tiled = None if known is not None or not a.multiplies_integers(b) else _tiled(a, b)
    if tiled is not None:
        told, reals = _told(law, (), (a, b), noise, _Output(target, whole(c_BMN.shape), draws))
        tiles.deliver(told, tiled, reals, (c_BMN.shape[1], columns))
        return c_BMN
    for block in product_blocks(c_BMN.shape, c_BMN.device):
        product = multiply(a, b, block) if known is None else known
        _read(law, product, (a, b), noise, _Output(target, block, draws))
    return c_BMN


def _tiled(a: Operand, b: Operand) -> tuple[int, ...] | None:
    """Return what compiled functions are told of a product in tiles that is read out as it is made, if any is."""
    if b.tiles is None or not tiles.is_small(b.tiles):
        return None
    return tiles.plan(a.some(slice(0, a.codes.shape[1])), b.tiles)


@functools.lru_cache(maxsize=1024)
def _suits(spec: AnalogSpec) -> bool:
    """Return whether there are compiled passes for the errors of a specification."""
    chip = spec.chip
    distorts = chip is not None and chip.output_gain + chip.imbalance + chip.edge_imbalance > 0.0
    counts = spec.shot is Shot.COUNTED and spec.shot_variance > 0.0
    return not (distorts or counts or spec.common is not None or spec.encoding is not None)


class _Noise(NamedTuple):
    """What the outputs of a product have."""

    range_: float
    """Half of the converter's range."""
    variance: tuple[float, float, float, float]
    """Without light; per energy of A, of B, and per product of both."""


class _Output(NamedTuple):
    """Where results go."""

    target: Target
    """All of them."""
    block: Block
    """Of which this is written."""
    draws: Draws
    """Source of noise."""


def _noise(spec: AnalogSpec, law: _Law, operands: _Operands, known: CodeProduct | None) -> _Noise | None:
    """Return the noise that a probe finds, or None where that of the laser hangs on the single output."""
    passes, range_, cross, clipping = kernels().readout, law.most, 0.0, 0.0
    power = 0.0
    a, b = operands
    mean_a = mean_b = mean_both = 0.0
    if law.by_a + law.by_b + law.laser > 0.0:
        sizes = (*a.codes.shape[:2], b.codes.shape[2])
        mean_a, mean_b, mean_both = passes.mean_energies(a.energy.data_ptr(), b.energy.data_ptr(), sizes)
    probe = None
    if law.laser > 0.0 or (law.sets_range and known is None):
        probe = remembered(
            ("probe", spec.analog_length, a.codes.shape, b.codes.shape), lambda: _probe(spec, operands)
        )
        power, cross = probe.look(operands, law.laser > 0.0, law.sets_range and known is None)
    if law.sets_range:
        if known is not None:
            power = _power(known)
        power += law.thermal + (law.by_a * mean_a + law.by_b * mean_b) / law.parts + law.laser * cross
        range_ = min(max(spec.adc_range_sigma * math.sqrt(power), SMALLEST_SCALE), law.most)
        if known is None and probe is not None and law.parts > 1.0 and math.isfinite(spec.adc_bits):
            signal = probe.signal
            clipping = passes.mean_square_beyond(signal.data_ptr(), signal.numel(), range_)
    by_both = law.laser * cross * law.parts / max(mean_both, SMALLEST_SCALE)
    constant = range_**2 * law.missing + law.samples * (law.thermal + clipping)
    others = constant + law.by_a * mean_a + law.by_b * mean_b
    if law.samples > 1:
        doubt_collapse(spec, law.samples, clipping, lambda: others + by_both * mean_both)
    elif by_both * mean_both > NEGLIGIBLE_LASER * others:
        return None
    return _Noise(range_, (constant, law.by_a, law.by_b, by_both))


def _power(known: CodeProduct) -> float:
    """Return the mean square of the outputs that a probe reads."""
    first, *others = known.sums
    places = _probed(first.shape)
    if others:
        first = known.probed(torch.float32)
        places = tuple(first.shape), first.stride()
    return float(kernels().readout.mean_square(first.data_ptr(), first.dtype == torch.int32, *places))


class _Probe(NamedTuple):
    """What is read of both operands, and where it goes, until the next probe."""

    samples: torch.Tensor
    """Of A, float32 [S, M', K']."""
    others: torch.Tensor
    """Of B, [S, K', N']."""
    signal: torch.Tensor
    """Their products, [S, M', N']."""
    steps: tuple[tuple[int, ...], tuple[int, ...]]
    """Batches, samples and rows, or columns, from one to the next."""
    sizes: tuple[int, ...]
    """Batches, samples, rows, columns and K'."""

    def look(self, operands: _Operands, lasers: bool, signals: bool) -> tuple[float, float]:  # noqa: FBT001 - local
        """Return the mean square of the products and the mean of those of their energies, if they are wanted."""
        a, b = (operand.codes for operand in operands)
        batches, length, columns = b.stride()
        if a.dtype == b.dtype == torch.int8 and tiles.are_there():
            (_, samples, *others), ((_, *a_steps), (_, *b_steps)) = self.sizes, self.steps
            first = (a.data_ptr(), *a.stride()[1:], *a_steps)
            second = (b.data_ptr(), columns, length, *b_steps)
            return tiles.look(first, second, (samples, *others, int(lasers)), self.signal)
        first = (a.data_ptr(), KINDS[a.dtype], a.stride(), self.steps[0], self.samples.data_ptr())
        strides = (batches, columns, length)
        second = (b.data_ptr(), KINDS[b.dtype], strides, self.steps[1], self.others.data_ptr())
        cross = float(kernels().readout.look(first, second, (*self.sizes, int(lasers))))
        if not signals:
            return 0.0, cross
        torch.bmm(self.samples, self.others, out=self.signal)
        shape, strides = tuple(self.signal.shape), self.signal.stride()
        return float(kernels().readout.mean_square(self.signal.data_ptr(), False, shape, strides)), cross


def _probe(spec: AnalogSpec, operands: _Operands) -> _Probe:
    """Return memory for a probe (`optical.probes.probe`)."""
    a, b = (operand.codes for operand in operands)
    (batches, samples, rows, width), a_steps = probe_steps(spec, a.shape)
    (_, _, columns, _), b_steps = probe_steps(spec, torch.Size((b.shape[0], b.shape[2], b.shape[1])))

    def memory(use: str, *sizes: int) -> torch.Tensor:
        shape = torch.Size((batches * samples, *sizes))
        return scratch(f"probe of {use}", shape, torch.float32, a.device)

    return _Probe(
        samples=memory("first", rows, width),
        others=memory("second", columns, width).mT,
        signal=memory("signal", rows, columns),
        steps=(a_steps, b_steps),
        sizes=(batches, samples, rows, columns, width),
    )


@functools.lru_cache(maxsize=4096)
def _probed(shape: torch.Size) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many batches, rows and columns of a product a probe reads, and how far apart they lie."""
    outputs = probe_outputs(torch.empty(shape, dtype=torch.int32, device="meta"))
    return tuple(outputs.shape), outputs.stride()


def _read(law: _Law, product: CodeProduct, operands: _Operands, noise: _Noise, out: _Output) -> None:
    """Write a block of outputs."""
    (_, (batches, rows), _), columns = out, operands[1].codes.shape[2]
    lines = (batches.stop - batches.start) * (rows.stop - rows.start)
    told, reals = _told(law, product.sums, operands, noise, out)
    _delivering().run((*told, *reals), lines, lines * columns)


def _told(
    law: _Law, sums: tuple[torch.Tensor, ...], operands: _Operands, noise: _Noise, out: _Output
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return what `optical.fused_jobs.deliver` is told; without sums these are made there."""
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
        _pairs(),
    )
    return told, (*noise.variance, law.unit, noise.range_ * law.relative_step, law.levels)


@functools.cache
def _delivering() -> Job:
    jobs = kernels().jobs
    return Job(jobs.deliver, jobs.DELIVER_INTEGERS, jobs.DELIVER_REALS)


@functools.cache
def _pairs() -> int:
    return gaussian_pairs().data_ptr()
