"""What a receiver and its converter make of an exact product: gain, noise, clipping and rounding.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from optical.analog import AnalogSpec, Shot
from optical.chip_numerics import common_noise, imbalance, output_gains
from optical.collapse import doubt_collapse
from optical.draws import WORD_GAUSSIANS, Draws
from optical.operand_blocks import BLOCK_ELEMENTS, Block, blocks_of, part_of
from optical.operands import SMALLEST_SCALE, Operand, largest_code, multiply, probe
from optical.residues import Residues
from optical.scratch import scratch


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What a probe of a product's analog samples tells; in code products."""

    range_: torch.Tensor
    """Half of the converter's range; not used where there is none."""
    coupling: torch.Tensor
    """Mean of ``sum((a b)^2)`` over that of ``sum(a^2) sum(b^2)``; zero without laser noise."""
    clipping: torch.Tensor
    """Mean square of what clipping takes off a sample."""


@dataclass(frozen=True, kw_only=True)
class Variance:
    """Variance of each output, ``row + column + a_factor @ b_factor``, in code products squared."""

    row: torch.Tensor
    """Part that depends on the row of A, and the constant part, [B, M, 1]; all sizes may be 1."""
    column: torch.Tensor
    """Part that depends on the column of B, [B, 1, N]; all sizes may be 1."""
    a_factor: torch.Tensor | None = None
    """Weighted squared codes, [B, M, K], or their sums, [B, M, 1]."""
    b_factor: torch.Tensor | None = None
    """Squared codes, [B, K, N], or their sums, [B, 1, N]."""

    def at(self, block: Block) -> torch.Tensor:
        """Return the variance of a block of outputs, broadcastable to it, until the next is asked for."""
        row, column = part_of(self.row, block), part_of(self.column, block)
        shape = _joint(row, column)
        variance = torch.add(row, column, out=scratch("variance", shape, row.dtype, row.device))
        if self.a_factor is None or self.b_factor is None:
            return variance
        a, b = part_of(self.a_factor, block), part_of(self.b_factor, block[:1])
        if a.shape[-1] == 1 == b.shape[-2]:
            if _joint(variance, a) == _joint(variance, b) == variance.shape:
                return variance.addcmul_(a, b)
            return torch.addcmul(variance, a, b)
        return torch.matmul(a, b).to(variance.dtype).add_(variance)


def _joint(one: torch.Tensor, other: torch.Tensor) -> torch.Size:
    """Return the shape that two tensors of three dimensions broadcast to."""
    return torch.Size(map(max, one.shape, other.shape))


def read(spec: AnalogSpec, a: Operand, b: Operand, gain: Gain, draws: Draws) -> torch.Tensor:
    """Return the product of coded operands: one executed sample, or several collapsed into one draw."""
    samples = -(-a.codes.shape[-1] // spec.analog_length)
    variance = variance_of(spec, a, b, samples, gain)
    if samples > 1:
        doubt_collapse(spec, samples, gain, variance)
    rounds = samples == 1 and math.isfinite(spec.adc_bits)
    step, levels = gain.range_ * 2.0 ** (1.0 - spec.adc_bits), largest_code(spec.adc_bits) if rounds else 0
    row_scale = a.scale * (a.step * b.step * spec.product_gain)
    c_BMN = a.energy.new_empty(*a.codes.shape[:2], b.codes.shape[2])
    shared, gains = common_noise(spec, a, b, draws), output_gains(spec.chip, c_BMN.shape, c_BMN)
    leaked = imbalance(spec, a, b)
    for block in blocks_of(c_BMN.shape):
        product = multiply(part_of(a.codes, block), part_of(b.codes, block[:1]))
        for part, at in _cachefuls(product.shape, block):
            value = _floating(product[part], c_BMN.dtype)
            if spec.shot is Shot.COUNTED and spec.shot_variance > 0.0:
                value = _counted(spec, (a, b), value, at, draws)
            if shared is not None:
                value.add_(part_of(shared, at))
            if leaked is not None:
                value.add_(part_of(leaked, at))
            if gains is not None:
                value.mul_(part_of(gains, at))
            noise = draws.gaussian(value.shape, value.dtype, brief=True)
            value.addcmul_(noise, variance.at(at).sqrt_())
            if rounds:
                value.div_(step).round_().clamp_(-levels, levels).mul_(step)
            value.mul_(part_of(row_scale, at))
            torch.mul(value, part_of(b.scale, at), out=c_BMN[at])
    return c_BMN


def _cachefuls(shape: torch.Size, block: Block) -> Iterator[tuple[Block, Block]]:
    """Yield parts of a block of outputs that stay in cache, within the block and within all outputs.

    Draws do not depend on how a block is cut: a part takes whole words of the generator.
    """
    batch, rows, columns = shape
    count = max(1, BLOCK_ELEMENTS // columns)
    whole = batch > 1 or count >= rows or count * columns % WORD_GAUSSIANS
    start, count = block[1].start, rows if whole else count
    for first in range(0, rows, count):
        part = slice(first, min(first + count, rows))
        yield (slice(None), part), (block[0], slice(start + part.start, start + part.stop))


def _floating(product: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a product as floating point that may be overwritten."""
    if product.dtype == dtype:
        return product
    return scratch("value", product.shape, dtype, product.device).copy_(product)


def _counted(
    spec: AnalogSpec, operands: tuple[Operand, Operand], value: torch.Tensor, block: Block, draws: Draws
) -> torch.Tensor:
    """Return outputs, in code products, as the difference of photons counted in two detectors."""
    a, b = operands
    unit, variance = a.step * b.step * spec.product_gain, spec.shot_variance
    energy = part_of(a.energy, block) * a.step**2 + part_of(b.energy, block) * b.step**2
    swing = value * (2.0 * unit)
    counts = [draws.poisson((energy + side * swing) / (8.0 * variance)) for side in (1.0, -1.0)]
    return (counts[0] - counts[1]).mul_(2.0 * variance / unit).to(value.dtype)


def variance_of(spec: AnalogSpec, a: Operand, b: Operand, samples: int, gain: Gain) -> Variance:
    """Return the variance before rounding, or with the rounding of several samples."""
    unit = a.step * b.step * spec.product_gain
    shot_variance = 0.0 if spec.shot is Shot.COUNTED else spec.shot_variance
    each = shot_variance + spec.encoding_variance
    constant = a.energy.new_tensor(samples * spec.thermal_variance / unit**2)
    if math.isfinite(spec.adc_enob_bits):
        executed = 2.0 ** (1.0 - spec.adc_bits) if samples == 1 else 0.0
        missing = ((2.0 ** (1.0 - spec.adc_enob_bits)) ** 2 - executed**2) * samples / 12.0
        constant += gain.range_.square() * missing + (samples * gain.clipping if samples > 1 else 0.0)
    row = constant.view((1,) * a.energy.dim())
    column, factor = torch.zeros_like(row), spec.rin_variance / spec.product_gain**2
    if each > 0.0:
        row, column = row + a.energy * (each * (a.step / unit) ** 2), b.energy * (each * (b.step / unit) ** 2)
    if factor == 0.0:
        return Variance(row=row, column=column)
    if samples > 1:
        a_factor = a.energy * (gain.coupling * factor)
        return Variance(row=row, column=column, a_factor=a_factor, b_factor=b.energy)
    quick = a.energy.device.type != "cpu" or torch.backends.cpu.get_cpu_capability() == "AVX512"
    dtype = torch.bfloat16 if quick else a.energy.dtype
    a_factor, b_factor = (x.codes.to(a.energy.dtype, copy=True).square_() for x in (a, b))
    a_factor, b_factor = a_factor.mul_(factor).to(dtype), b_factor.to(dtype)
    return Variance(row=row, column=column, a_factor=a_factor, b_factor=b_factor)


def set_gain(spec: AnalogSpec, a: Operand, b: Operand) -> Gain:
    """Return the converter's range and the spread of laser noise, from a probe of the samples."""
    unit = a.step * b.step * spec.product_gain
    most = a.energy.new_tensor(spec.analog_length / unit)
    coupling, clipping = torch.zeros_like(most), torch.zeros_like(most)
    sets_range = math.isfinite(spec.adc_enob_bits) and math.isfinite(spec.adc_range_sigma)
    if not sets_range and spec.fluctuation == 0.0:
        return Gain(range_=most, coupling=coupling, clipping=clipping)
    parts = max(1.0, a.codes.shape[-1] / spec.analog_length)
    a_codes, b_codes = probe(spec, a.codes), probe(spec, b.codes.mT).mT
    signal = a_codes @ b_codes
    power = signal.square().mean((2, 3)).mean() + spec.thermal_variance / unit**2
    each = (spec.shot_variance + spec.encoding_variance) / (unit**2 * parts)
    a_energy, b_energy = a.energy.mean((1, 2)), b.energy.mean((1, 2))
    power += a_energy.mean() * (each * a.step**2) + b_energy.mean() * (each * b.step**2)
    if spec.fluctuation > 0.0:
        cross = (a_codes.square_().mean(2) * b_codes.square_().mean(3)).sum(2).mean()
        power += cross * (spec.fluctuation / spec.product_gain**2)
        coupling = cross * parts / (a_energy * b_energy).mean().clamp_(min=SMALLEST_SCALE)
    if not sets_range:
        return Gain(range_=most, coupling=coupling, clipping=clipping)
    range_ = torch.minimum((spec.adc_range_sigma * power.sqrt_()).clamp_(min=SMALLEST_SCALE), most)
    if math.isfinite(spec.adc_bits):
        clipping = (signal.abs_() - range_).relu_().square_().mean((2, 3)).mean()
    return Gain(range_=range_, coupling=coupling, clipping=clipping)


def read_residues(residues: Residues, a: Operand, b: Operand, draws: Draws) -> torch.Tensor:
    """Return a product of coded operands through remainders: exact but for those that are misread.

    The remainders of the sum are not formed: a misread one moves the result by a constant
    (`Residues.weights`), whatever the sum. On the CPU draws end at 4.3 sigma, hence no remainder is misread
    below 0.116 steps rms.
    """
    value = multiply(a.codes, b.codes).double()
    for sigma, weight in zip(residues.sigmas, residues.weights, strict=True):
        if sigma > 0.0:
            value.add_(draws.gaussian(value.shape, value.dtype).mul_(sigma).round_(), alpha=weight)
    value.sub_((value / residues.product).round_(), alpha=residues.product)
    return value.mul_(a.step * b.step).to(a.scale.dtype).mul_(a.scale).mul_(b.scale)
