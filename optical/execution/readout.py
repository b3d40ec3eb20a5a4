"""What a receiver and its converter make of an exact product: gain, noise, clipping and rounding.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from optical.execution.analog import AnalogSpec, Shot
from optical.execution.chip_numerics import common_encoding, common_noise, imbalance, output_gains
from optical.execution.code_products import CodeProduct
from optical.execution.collapse import doubt_collapse
from optical.execution.draws import Draws
from optical.execution.operand_blocks import Block, cachefuls, part_of, product_blocks
from optical.execution.operands import (
    NEGLIGIBLE_LASER,
    SMALLEST_SCALE,
    Operand,
    largest_code,
    multiply,
)
from optical.execution.probes import probe
from optical.execution.residues import Residues, draw_misread
from optical.execution.scratch import scratch


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
    column: torch.Tensor | None = None
    """Part that depends on the column of B, [B, 1, N]; all sizes may be 1."""
    a_factor: torch.Tensor | None = None
    """Weighted squared codes, [B, M, K], or their sums, [B, M, 1]."""
    b_factor: torch.Tensor | None = None
    """Squared codes, [B, K, N], or their sums, [B, 1, N]."""

    def deviation(self, block: Block) -> torch.Tensor:
        """Return the root of the variance of a block of outputs, broadcastable to it, until the next."""
        row = part_of(self.row, block)
        if self.column is None:
            if self.a_factor is None:
                return row.sqrt()
            variance = row
        else:
            column = part_of(self.column, block[:1])
            shape = _joint(row, column)
            variance = torch.add(row, column, out=scratch("variance", shape, row.dtype, row.device))
        if self.a_factor is None or self.b_factor is None:
            return variance.sqrt_()
        a, b = part_of(self.a_factor, block), part_of(self.b_factor, block[:1])
        if a.shape[-1] == 1 == b.shape[-2]:
            if variance is not row and _joint(variance, a) == _joint(variance, b) == variance.shape:
                return variance.addcmul_(a, b).sqrt_()
            return torch.addcmul(variance, a, b).sqrt_()
        return torch.matmul(a, b).to(variance.dtype).add_(variance).sqrt_()

    def mean(self) -> torch.Tensor:
        """Return the mean over all outputs."""
        total = self.row.mean()
        if self.column is not None:
            total = total + self.column.mean()
        if self.a_factor is not None and self.b_factor is not None:
            total = total + self.a_factor.mean() * self.b_factor.mean()
        return total


def _joint(one: torch.Tensor, other: torch.Tensor) -> torch.Size:
    """Return the shape that two tensors of three dimensions broadcast to."""
    return torch.Size(map(max, one.shape, other.shape))


def whole_product(spec: AnalogSpec, a: Operand, b: Operand) -> CodeProduct | None:
    """Return the exact product of codes if it is one sample and one block of outputs, else None."""
    sizes = (*a.codes.shape, b.codes.shape[2])
    return multiply(a, b) if is_read_whole(spec, sizes, a.codes.device) else None


def is_read_whole(spec: AnalogSpec, sizes: tuple[int, int, int, int], device: torch.device) -> bool:
    """Return whether a product of sizes B, M, K and N is one sample and one block of outputs."""
    batch, rows, length, columns = sizes
    shape = torch.Size((batch, rows, columns))
    return length <= spec.analog_length and len(product_blocks(shape, device)) == 1


def read(
    spec: AnalogSpec,
    a: Operand,
    b: Operand,
    gain: Gain,
    draws: Draws,
    *,
    known: CodeProduct | None = None,
    exact: bool = False,
) -> torch.Tensor:
    """Return the product of coded operands: one executed sample, or several collapsed into one draw.

    Parameters
    ----------
    spec, a, b, gain, draws
        What is executed.
    known : CodeProduct or None
        The exact product of codes, if it is there already.
    exact : bool
        Whether laser noise follows every output, however small it is.
    """
    samples = -(-a.codes.shape[-1] // spec.analog_length)
    variance = variance_of(spec, a, b, samples, gain, exact=exact)
    if samples > 1:
        doubt_collapse(spec, samples, gain.clipping, variance.mean)
    c_BMN = a.energy.new_empty(*a.codes.shape[:2], b.codes.shape[2])
    row_scale = a.scale * (a.step * b.step * spec.product_gain)
    column_scale: torch.Tensor | None = b.scale
    per_step, levels = None, 0
    if samples == 1 and math.isfinite(spec.adc_bits):
        step, levels = gain.range_ * 2.0 ** (1.0 - spec.adc_bits), largest_code(spec.adc_bits)
        row_scale, per_step = row_scale * step, step.reciprocal()
    if b.scale.numel() == 1:
        row_scale, column_scale = row_scale * b.scale, None
    readout = _Readout(
        variance=variance if _is_noisy(spec, samples) else None,
        counts=functools.partial(_counted, spec, (a, b)) if _counts(spec) else None,
        added=_added(spec, a, b, draws),
        gains=output_gains(spec.chip, c_BMN.shape, c_BMN),
        per_step=per_step,
        levels=levels,
        row_scale=row_scale,
        column_scale=column_scale,
    )
    for block in product_blocks(c_BMN.shape, c_BMN.device):
        readout.finish(multiply(a, b, block) if known is None else known, block, draws, c_BMN)
    return c_BMN


def _added(spec: AnalogSpec, a: Operand, b: Operand, draws: Draws) -> list[torch.Tensor]:
    """Return what several outputs have in common, [B or 1, M, N], in code products."""
    parts = (common_noise(spec, a, b, draws), imbalance(spec, a, b), common_encoding(spec, a, b, draws))
    return [part for part in parts if part is not None]


def _own_encoding(spec: AnalogSpec) -> float:
    """Return the encoding variance that each output draws for itself."""
    return spec.encoding_variance if spec.encoding is None else spec.encoding.own_variance


@dataclass(frozen=True, kw_only=True)
class _Readout:
    """What happens to the exact product of codes."""

    variance: Variance | None
    """Of the noise of each output, if any."""
    counts: Callable[[torch.Tensor, Block, Draws], torch.Tensor] | None
    """Counts photons, if they are few."""
    added: list[torch.Tensor]
    """What is added, [B or 1, M, N]."""
    gains: torch.Tensor | None
    """What outputs are multiplied by, [1, M, N]."""
    per_step: torch.Tensor | None
    """Codes of the converter per unit; none where it is not executed."""
    levels: int
    """Largest code of the converter."""
    row_scale: torch.Tensor
    """Unit of the result by row, [B, M, 1]."""
    column_scale: torch.Tensor | None
    """Unit by column, [B, 1, N]."""

    def finish(self, product: CodeProduct, block: Block, draws: Draws, c_BMN: torch.Tensor) -> None:
        """Write a block of outputs, a cacheful at a time."""
        for part, at in _within(block, c_BMN):
            out = part_of(c_BMN, at)
            if self.counts is not None or self.variance is None:
                value = product.value(part, out.dtype)
                value = value if self.counts is None else self.counts(value, at, draws)
            if self.variance is not None:
                noise = draws.gaussian(out.shape, out.dtype, brief=True).mul_(self.variance.deviation(at))
                value = product.add_to(noise, part) if self.counts is None else noise.add_(value)
            for each in self.added:
                value.add_(part_of(each, at))
            if self.gains is not None:
                value.mul_(part_of(self.gains, at))
            if self.per_step is not None:
                value.mul_(self.per_step).round_().clamp_(-self.levels, self.levels)
            torch.mul(value, part_of(self.row_scale, at), out=out)
            if self.column_scale is not None:
                out.mul_(part_of(self.column_scale, at[:1]))


def _counts(spec: AnalogSpec) -> bool:
    return spec.shot is Shot.COUNTED and spec.shot_variance > 0.0


def _is_noisy(spec: AnalogSpec, samples: int) -> bool:
    """Return whether outputs have any noise of their own, that of a converter's missing bits included."""
    shot = 0.0 if _counts(spec) else spec.shot_variance
    converter = math.isfinite(spec.adc_enob_bits) and (samples > 1 or spec.adc_enob_bits < spec.adc_bits)
    return converter or spec.thermal_variance + shot + _own_encoding(spec) + spec.rin_variance > 0.0


def _within(block: Block, c_BMN: torch.Tensor) -> Iterator[tuple[Block, Block]]:
    """Yield parts of a block of outputs that stay in cache, within the block and within all outputs."""
    batches, rows = block
    shape = torch.Size((batches.stop - batches.start, rows.stop - rows.start, c_BMN.shape[2]))
    for batch_part, row_part in cachefuls(shape, c_BMN.device):
        yield (batch_part, row_part), (_moved(batch_part, batches.start), _moved(row_part, rows.start))


def _moved(part: slice, start: int) -> slice:
    return slice(part.start + start, part.stop + start)


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


def variance_of(
    spec: AnalogSpec, a: Operand, b: Operand, samples: int, gain: Gain, *, exact: bool = True
) -> Variance:
    """Return the variance before rounding, or with the rounding of several samples.

    Parameters
    ----------
    spec, a, b, samples, gain
        What is executed.
    exact : bool
        Whether the laser noise of a single sample follows every output, however small it is.
    """
    unit = a.step * b.step * spec.product_gain
    shot_variance = 0.0 if spec.shot is Shot.COUNTED else spec.shot_variance
    thermal, each = samples * spec.thermal_variance / unit**2, shot_variance + _own_encoding(spec)
    if math.isfinite(spec.adc_enob_bits):
        executed = 2.0 ** (1.0 - spec.adc_bits) if samples == 1 else 0.0
        missing = ((2.0 ** (1.0 - spec.adc_enob_bits)) ** 2 - executed**2) * samples / 12.0
        constant = gain.range_.square().mul_(missing).add_(thermal)
        if samples > 1:
            constant.add_(gain.clipping, alpha=samples)
    else:
        constant = a.energy.new_full((), thermal)
    row, column, factor = constant.view(1, 1, 1), None, spec.rin_variance / spec.product_gain**2
    if each > 0.0:
        row = (a.energy * (each * (a.step / unit) ** 2)).add_(constant)
        column = b.energy * (each * (b.step / unit) ** 2)
    if factor == 0.0:
        return Variance(row=row, column=column)
    collapsed = Variance(
        row=row, column=column, a_factor=a.energy * (gain.coupling * factor), b_factor=b.energy
    )
    if samples > 1 or (not exact and _has_little_laser_noise(collapsed)):
        return collapsed
    quick = a.energy.device.type != "cpu" or torch.backends.cpu.get_cpu_capability() == "AVX512"
    dtype = torch.bfloat16 if quick else a.energy.dtype
    a_factor, b_factor = (x.codes.to(a.energy.dtype, copy=True).square_() for x in (a, b))
    a_factor, b_factor = a_factor.mul_(factor).to(dtype), b_factor.to(dtype)
    return Variance(row=row, column=column, a_factor=a_factor, b_factor=b_factor)


def _has_little_laser_noise(variance: Variance) -> bool:
    """Return whether hardly any of the variance is laser noise; an accelerator is not waited for."""
    if variance.row.device.type != "cpu":
        return False
    others = replace(variance, a_factor=None).mean()
    return bool(variance.mean() - others <= NEGLIGIBLE_LASER * others)


def set_gain(spec: AnalogSpec, a: Operand, b: Operand, known: CodeProduct | None = None) -> Gain:
    """Return the converter's range and the spread of laser noise, from a probe of the samples.

    Parameters
    ----------
    spec, a, b
        What is executed.
    known : CodeProduct or None
        The exact product of codes, if it is there already and has one sample, to take the probe from.
    """
    unit = a.step * b.step * spec.product_gain
    most, none = a.energy.new_tensor(spec.analog_length / unit), a.energy.new_zeros(())
    sets_range = math.isfinite(spec.adc_enob_bits) and math.isfinite(spec.adc_range_sigma)
    if not sets_range and spec.fluctuation == 0.0:
        return Gain(range_=most, coupling=none, clipping=none)
    parts = max(1.0, a.codes.shape[-1] / spec.analog_length)
    a_codes, b_codes = probe(spec, a.codes), probe(spec, b.codes.mT).mT
    if known is not None:
        signal = known.probed(a.energy.dtype)
    else:
        signal = a_codes.to(a.energy.dtype) @ b_codes.to(a.energy.dtype)
    power = signal.square().mean() + spec.thermal_variance / unit**2
    coupling, each = none, (spec.shot_variance + spec.encoding_variance) / (unit**2 * parts)
    if each > 0.0:
        power += (a.energy.mean() * a.step**2).add_(b.energy.mean(), alpha=b.step**2).mul_(each)
    if spec.fluctuation > 0.0:
        squares = (x.to(a.energy.dtype).square().mean(dim) for x, dim in ((a_codes, 2), (b_codes, 3)))
        cross = torch.mul(*squares).sum(2).mean()
        power += cross * (spec.fluctuation / spec.product_gain**2)
        energy = (a.energy.mean((1, 2)) * b.energy.mean((1, 2))).mean()
        coupling = cross * parts / energy.clamp_(min=SMALLEST_SCALE)
    if not sets_range:
        return Gain(range_=most, coupling=coupling, clipping=none)
    range_ = torch.minimum((spec.adc_range_sigma * power.sqrt_()).clamp_(min=SMALLEST_SCALE), most)
    if parts == 1.0 or math.isinf(spec.adc_bits):
        return Gain(range_=range_, coupling=coupling, clipping=none)
    clipping = (signal.abs_() - range_).relu_().square_().mean()
    return Gain(range_=range_, coupling=coupling, clipping=clipping)


@dataclass(frozen=True, kw_only=True, eq=False)
class WrongSums:
    """Sums of which a remainder is misread, one element of each tensor for each, shape [wrong]."""

    batch: torch.Tensor
    """Its matrix, int64."""
    row: torch.Tensor
    """Its row, int64."""
    column: torch.Tensor
    """Its column, int64."""
    error: torch.Tensor
    """What is read minus the sum, in the unit of the product, float64."""


def read_residues(residues: Residues, a: Operand, b: Operand, draws: Draws) -> WrongSums:
    """Return where sums of coded operands through remainders are misread, and what that adds to them.

    All others come out exactly, as `AnalogSpec` lets no sum leave the dynamic range. Only for these is the
    integer formed, shifted by what its wrong remainders weigh (`Residues.weights`) and folded into the range.

    Parameters
    ----------
    residues : Residues
        The moduli, and the noise of each.
    a, b : Operand
        Whole codes, [B, M, K] and [B, K, N].
    draws : Draws
        Source of all noise.
    """
    rows, columns = a.codes.shape[1], b.codes.shape[2]
    misread = draw_misread(residues, a.codes.shape[0] * rows * columns, draws.on_host())
    index, shift = (torch.from_numpy(x).to(a.codes.device) for x in (misread.index, misread.shift))
    batch, row = index // (rows * columns), index // columns % rows
    column = index % columns
    exact = (a.codes[batch, row].double() * b.codes[batch, :, column].double()).sum(-1)
    read = exact + shift
    read.sub_((read / residues.product).round_(), alpha=residues.product)
    scale = a.scale[batch, row, 0].double() * b.scale[batch, 0, column].double()
    error = read.sub_(exact).mul_(scale).mul_(a.step * b.step)
    return WrongSums(batch=batch, row=row, column=column, error=error)
