"""Executes an `AnalogSpec` in torch: what a photonic core makes of a matrix product.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from heliograph.errors import WorkloadError
from optical.analog import AnalogSpec, Rounding, Scale, loads_second
from optical.draws import Draws
from optical.residues import Residues

_SMALLEST_SCALE = 1e-30
"""Full scale of an operand row that is all zero, so that nothing is divided by zero."""
_HAIR = 2.0**-20
"""How far stochastic rounding stops short of the last code, so that no dither reaches beyond it."""
_LARGEST_INT8_CODE = 127
_LONGEST_INT8_SUM = 2**17
"""Products of int8 codes whose sum an int32 is sure to hold."""
_BLOCK_ELEMENTS = 2**17
"""Outputs that are finished together, so that their scratch memory stays in cache ..."""
_BLOCK_ROWS = 256
"""... unless that makes fewer rows than a matrix product needs to be quick."""
_PROBE_ROWS, _PROBE_BATCHES, _PROBE_SAMPLES = 64, 4, 8
_Block = tuple[slice, slice]
"""Batches and rows of some outputs."""


@dataclass(frozen=True)
class AnalogNumerics:
    """The products of a photonic core, drawn from its `AnalogSpec`.

    Notes
    -----
    Operands are scaled to [-1, 1], per tensor (over all batches) or per row of A and column of B, and
    rounded to the symmetric codes ``-L .. L``, ``L = 2**(bits - 1) - 1``. A sum over K takes
    ``T = ceil(K / analog_length)`` analog samples, each with fresh Gaussian noise of the variance that
    `AnalogSpec` states; they are converted one by one and added digitally.

    The converter has the step ``D = 2 R / 2**adc_bits``, codes up to ``2**(adc_bits - 1) - 1`` on either
    side, and Gaussian noise before it that makes its total noise that of its effective bits,
    ``(2 R / 2**enob)**2 / 12``. The gain stage that sets its range R reads a probe: a strided subset of the
    samples, at most 64 rows, 64 columns, 4 batches and 8 samples of a sum, hence all of a small product.

    With T = 1, or `exact_tiles`, every sample is executed. Otherwise the T samples collapse into one draw
    per output with the summed variance: rounding counts as ``D**2 / 12`` per sample, clipping with its mean
    square in the probe, and laser noise is spread over the outputs as ``sum(a^2) sum(b^2)``, with the probe's
    mean of ``sum((a b)^2)``. That clipping compresses and has heavy tails is lost, and a probe finds its mean
    square only roughly: where `clipped_fraction` is not far below 1e-3, trust `exact_tiles`.

    No gradient passes: what a backward pass computes are products of their own.
    """

    spec: AnalogSpec
    """What reaches the products."""
    exact_tiles: bool = False
    """Whether to execute every analog sample instead of one draw with the summed variance."""

    @torch.no_grad()
    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product as the core delivers it, shape [B, M, N], in the type of A.

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N], of one floating-point type.
        key : int
            Source of all noise and stochastic rounding, at least 0. Same key and operands (layout in memory
            included), same result, for any number of threads; a CPU and an accelerator draw differently.

        Raises
        ------
        WorkloadError
            If the shapes do not make a batched product.
        """
        _check_shapes(a_BMK, b_BKN)
        if _is_exact(self.spec):
            return torch.bmm(a_BMK, b_BKN)
        draws = Draws(key, a_BMK.device)
        if self.spec.scale is Scale.BLOCK:
            return _multiply_blocks(a_BMK, b_BKN, self.spec, draws).to(a_BMK.dtype)
        a, b = _encode_both(a_BMK, b_BKN, self.spec, draws)
        gain = _set_gain(self.spec, a, b)
        length = a_BMK.shape[-1]
        if not self.exact_tiles or length <= self.spec.analog_length:
            return _read(self.spec, a, b, gain, draws).to(a_BMK.dtype)
        c_BMN = torch.zeros_like(a.energy[:1, :1])
        for start in range(0, length, self.spec.analog_length):
            tile = slice(start, start + self.spec.analog_length)
            a_tile, b_tile = _cut(a, a.codes[..., tile], -1), _cut(b, b.codes[..., tile, :], -2)
            c_BMN = c_BMN + _read(self.spec, a_tile, b_tile, gain, draws)
        return c_BMN.to(a_BMK.dtype)

    @torch.no_grad()
    def clipped_fraction(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> float:
        """Return the expected fraction of the probe's analog samples that the converter clips.

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N], of one floating-point type.
        """
        _check_shapes(a_BMK, b_BKN)
        if math.isinf(self.spec.adc_bits):
            return 0.0
        draws = Draws(0, a_BMK.device)
        a, b = _encode_both(a_BMK, b_BKN, self.spec, draws)
        gain = _set_gain(self.spec, a, b)
        a = _cut(a, _probe(self.spec, a.codes), -1)
        b = _cut(b, _probe(self.spec, b.codes.mT).mT, -2)
        signal, variance = a.codes @ b.codes, _variance(self.spec, a, b, 1, gain)
        spread = (2.0 * variance.at((slice(None), slice(None)))).sqrt_().clamp_(min=_SMALLEST_SCALE)
        margins = torch.stack((gain.range_ - signal, gain.range_ + signal)) / spread
        return float(torch.special.erfc(margins).mean())


@dataclass(frozen=True, kw_only=True)
class _Operand:
    """An operand on its converter's grid."""

    codes: torch.Tensor
    """Values in steps of the grid, shape of the operand; int8 where that is exact and quicker, else float."""
    step: float
    """One step, in units of full scale."""
    scale: torch.Tensor
    """Full scale, broadcastable to the operand."""
    energy: torch.Tensor
    """Sum of squared codes over K, [B, M, 1] or [B, 1, N], float."""


@dataclass(frozen=True, kw_only=True)
class _Gain:
    """What a probe of a product's analog samples tells; in code products."""

    range_: torch.Tensor
    """Half of the converter's range; not used where there is none."""
    coupling: torch.Tensor
    """Mean of ``sum((a b)^2)`` over that of ``sum(a^2) sum(b^2)``; zero without laser noise."""
    clipping: torch.Tensor
    """Mean square of what clipping takes off a sample."""


@dataclass(frozen=True, kw_only=True)
class _Variance:
    """Variance of each output, ``row + column + a_factor @ b_factor``, in code products squared."""

    row: torch.Tensor
    """Part that depends on the row of A, and the constant part, [B, M, 1]; all sizes may be 1."""
    column: torch.Tensor
    """Part that depends on the column of B, [B, 1, N]; all sizes may be 1."""
    a_factor: torch.Tensor | None = None
    """Weighted squared codes, [B, M, K], or their sums, [B, M, 1]."""
    b_factor: torch.Tensor | None = None
    """Squared codes, [B, K, N], or their sums, [B, 1, N]."""

    def at(self, block: _Block) -> torch.Tensor:
        """Return the variance of a block of outputs, broadcastable to it, in new memory."""
        variance = _part(self.row, block) + _part(self.column, block)
        if self.a_factor is None or self.b_factor is None:
            return variance
        a, b = _part(self.a_factor, block), _part(self.b_factor, block[:1])
        if a.shape[-1] == 1 == b.shape[-2]:
            return torch.addcmul(variance, a, b)
        return torch.matmul(a, b).to(variance.dtype).add_(variance)


def _check_shapes(a_BMK: torch.Tensor, b_BKN: torch.Tensor) -> None:
    """Refuse what is no batched product."""
    a, b = tuple(a_BMK.shape), tuple(b_BKN.shape)
    if len(a) != 3 or len(b) != 3 or a[0] != b[0] or a[2] != b[1] or 0 in a + b:
        msg = f"operands must have non-empty shapes [B, M, K] and [B, K, N]; got {list(a)} and {list(b)}"
        raise WorkloadError(msg)


def _is_exact(spec: AnalogSpec) -> bool:
    """Return whether the core does to a product nothing at all."""
    noise = spec.thermal_variance + spec.shot_variance + spec.rin_variance
    noise += spec.encoding_variance + spec.load_variance
    return noise == 0.0 and spec.product_gain == 1.0 and math.isinf(min(spec.dac_bits, spec.adc_enob_bits))


def _multiply_blocks(
    a_BMK: torch.Tensor, b_BKN: torch.Tensor, spec: AnalogSpec, draws: Draws
) -> torch.Tensor:
    """Return the product of block floating-point operands, one block and one scale per analog sample."""
    each, width = replace(spec, scale=Scale.ROW, residues=None), spec.analog_length
    dtype = a_BMK.dtype if a_BMK.dtype == torch.float64 else torch.float32
    c_BMN = a_BMK.new_zeros((*a_BMK.shape[:2], b_BKN.shape[2]), dtype=dtype)
    together = width if spec.residues is None else width * max(1, _BLOCK_ELEMENTS // c_BMN.numel())
    for start in range(0, a_BMK.shape[-1], together):
        a_tile, b_tile = a_BMK[..., start : start + together], b_BKN[:, start : start + together]
        short = -a_tile.shape[-1] % width
        a_tile, b_tile = (
            torch.nn.functional.pad(a_tile, (0, short)),
            torch.nn.functional.pad(b_tile, (0, 0, 0, short)),
        )
        a_tile, b_tile = a_tile.unflatten(2, (-1, width)).transpose(1, 2), b_tile.unflatten(1, (-1, width))
        a, b = _encode_both(a_tile.flatten(0, 1).contiguous(), b_tile.flatten(0, 1).contiguous(), each, draws)
        if spec.residues is None:
            c_BMN.add_(_read(each, a, b, _set_gain(each, a, b), draws))
        else:
            c_BMN.add_(_read_residues(spec.residues, a, b, draws).unflatten(0, a_tile.shape[:2]).sum(1))
    return c_BMN


def _read_residues(residues: Residues, a: _Operand, b: _Operand, draws: Draws) -> torch.Tensor:
    """Return a product of coded operands through remainders: exact but for those that are misread.

    The remainders of the sum are not formed: a misread one moves the result by a constant
    (`Residues.weights`), whatever the sum. On the CPU draws end at 4.3 sigma, hence no remainder is misread
    below 0.116 steps rms.
    """
    value = _multiply(a.codes, b.codes).double()
    for sigma, weight in zip(residues.sigmas, residues.weights, strict=True):
        if sigma > 0.0:
            value.add_(draws.gaussian(value.shape, value.dtype).mul_(sigma).round_(), alpha=weight)
    value.sub_((value / residues.product).round_(), alpha=residues.product)
    return value.mul_(a.step * b.step).to(a.scale.dtype).mul_(a.scale).mul_(b.scale)


def _encode_both(
    a: torch.Tensor, b: torch.Tensor, spec: AnalogSpec, draws: Draws
) -> tuple[_Operand, _Operand]:
    """Encode both operands, the loaded one with its error."""
    error, second = math.sqrt(spec.load_variance), loads_second(a.shape[1], b.shape[2])
    encoded = _encode(a, -1, spec, draws, 0.0 if second else error)
    return encoded, _encode(b, -2, spec, draws, error if second else 0.0)


def _encode(x: torch.Tensor, summed_dim: int, spec: AnalogSpec, draws: Draws, error: float) -> _Operand:
    """Scale an operand to its converter and round it to the converter's grid, a cacheful at a time."""
    x = x if x.dtype == torch.float64 else x.to(torch.float32)
    turned = not x.is_contiguous()
    if turned:
        x, summed_dim = x.mT, -3 - summed_dim
    levels = None if math.isinf(spec.dac_bits) else _levels(spec.dac_bits)
    small = spec.load_variance == 0.0 and _fits_int8(x, summed_dim, levels)
    codes = torch.empty_like(x, dtype=torch.int8 if small else x.dtype)
    energy = x.new_zeros([1 if dim == summed_dim + 3 else size for dim, size in enumerate(x.shape)])
    scale = torch.full_like(energy if spec.scale is Scale.ROW else energy[:1, :1, :1], _SMALLEST_SCALE)
    dithered = levels is not None and spec.rounding is Rounding.STOCHASTIC
    reach = (levels or 1.0) * (1.0 - _HAIR if dithered else 1.0)
    own_scale, blocks = spec.scale is Scale.ROW and summed_dim == -1, list(_blocks(x.shape))
    for group in [[block] for block in blocks] if own_scale else [blocks]:
        for block in group:
            known, part = _part(scale, block), x[block].abs()
            peak = part.amax(summed_dim, keepdim=True) if spec.scale is Scale.ROW else part.amax()
            torch.maximum(known, peak, out=known)
        for block in group:
            part = x[block] * (reach / _part(scale, block))
            if dithered:
                draws.dither_(part)
            if levels is not None:
                part.round_()
            if error > 0.0:
                part.add_(draws.gaussian(part.shape, part.dtype), alpha=reach * error)
            codes[block] = part
            _part(energy, block).add_(part.square_().sum(summed_dim, keepdim=True))
    if turned:
        codes, energy, scale = codes.mT, energy.mT, scale.mT
    return _Operand(codes=codes, step=1.0 / reach, scale=scale, energy=energy)


def _cut(operand: _Operand, codes: torch.Tensor, summed_dim: int) -> _Operand:
    """Return a part of an operand, with the energy of that part."""
    energy = codes.to(operand.energy.dtype).square().sum(summed_dim, keepdim=True)
    return replace(operand, codes=codes, energy=energy)


def _probe(spec: AnalogSpec, codes_BMK: torch.Tensor) -> torch.Tensor:
    """Return floating-point codes of some analog samples, [B', T', M', K']; a short last one is left out."""
    batch, rows, length = codes_BMK.shape
    width = min(length, spec.analog_length)
    samples = length // width
    codes = codes_BMK[:: -(-batch // _PROBE_BATCHES), :: -(-rows // _PROBE_ROWS), : samples * width]
    codes = codes.unflatten(2, (samples, width))[:, :, :: -(-samples // _PROBE_SAMPLES)].transpose(1, 2)
    return codes.to(torch.float32 if codes.dtype == torch.int8 else codes.dtype, copy=True)


def _levels(bits: float) -> int:
    """Return the largest code of a symmetric signed converter."""
    return max(1, math.floor(2.0 ** (bits - 1.0)) - 1)


def _read(spec: AnalogSpec, a: _Operand, b: _Operand, gain: _Gain, draws: Draws) -> torch.Tensor:
    """Return the product of coded operands: one executed sample, or several collapsed into one draw."""
    samples = -(-a.codes.shape[-1] // spec.analog_length)
    variance = _variance(spec, a, b, samples, gain)
    rounds = samples == 1 and math.isfinite(spec.adc_bits)
    step, levels = gain.range_ * 2.0 ** (1.0 - spec.adc_bits), _levels(spec.adc_bits) if rounds else 0
    row_scale = a.scale * (a.step * b.step * spec.product_gain)
    c_BMN = a.energy.new_empty(*a.codes.shape[:2], b.codes.shape[2])
    for block in _blocks(c_BMN.shape):
        value = _multiply(_part(a.codes, block), _part(b.codes, block[:1]))
        value.addcmul_(draws.gaussian(value.shape, value.dtype), variance.at(block).sqrt_())
        if rounds:
            value.div_(step).round_().clamp_(-levels, levels).mul_(step)
        value.mul_(_part(row_scale, block))
        torch.mul(value, _part(b.scale, block), out=c_BMN[block])
    return c_BMN


def _variance(spec: AnalogSpec, a: _Operand, b: _Operand, samples: int, gain: _Gain) -> _Variance:
    """Return the variance before rounding, or with the rounding of several samples."""
    unit = a.step * b.step * spec.product_gain
    each = spec.shot_variance + spec.encoding_variance
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
        return _Variance(row=row, column=column)
    if samples > 1:
        a_factor = a.energy * (gain.coupling * factor)
        return _Variance(row=row, column=column, a_factor=a_factor, b_factor=b.energy)
    quick = a.energy.device.type != "cpu" or torch.backends.cpu.get_cpu_capability() == "AVX512"
    dtype = torch.bfloat16 if quick else a.energy.dtype
    a_factor, b_factor = (x.codes.to(a.energy.dtype, copy=True).square_() for x in (a, b))
    a_factor, b_factor = a_factor.mul_(factor).to(dtype), b_factor.to(dtype)
    return _Variance(row=row, column=column, a_factor=a_factor, b_factor=b_factor)


def _set_gain(spec: AnalogSpec, a: _Operand, b: _Operand) -> _Gain:
    """Return the converter's range and the spread of laser noise, from a probe of the samples."""
    unit = a.step * b.step * spec.product_gain
    most = a.energy.new_tensor(spec.analog_length / unit)
    coupling, clipping = torch.zeros_like(most), torch.zeros_like(most)
    sets_range = math.isfinite(spec.adc_enob_bits) and math.isfinite(spec.adc_range_sigma)
    if not sets_range and spec.rin_variance == 0.0:
        return _Gain(range_=most, coupling=coupling, clipping=clipping)
    parts = max(1.0, a.codes.shape[-1] / spec.analog_length)
    a_energy, b_energy = a.energy.mean((1, 2)), b.energy.mean((1, 2))
    a_codes, b_codes = _probe(spec, a.codes), _probe(spec, b.codes.mT).mT
    signal = a_codes @ b_codes
    power = signal.square().mean((2, 3)).mean() + spec.thermal_variance / unit**2
    each = (spec.shot_variance + spec.encoding_variance) / (unit**2 * parts)
    power += a_energy.mean() * (each * a.step**2) + b_energy.mean() * (each * b.step**2)
    if spec.rin_variance > 0.0:
        cross = (a_codes.square_().mean(2) * b_codes.square_().mean(3)).sum(2).mean()
        power += cross * (spec.rin_variance / spec.product_gain**2)
        coupling = cross * parts / (a_energy * b_energy).mean().clamp_(min=_SMALLEST_SCALE)
    if not sets_range:
        return _Gain(range_=most, coupling=coupling, clipping=clipping)
    range_ = torch.minimum((spec.adc_range_sigma * power.sqrt_()).clamp_(min=_SMALLEST_SCALE), most)
    if math.isfinite(spec.adc_bits):
        clipping = (signal.abs_() - range_).relu_().square_().mean((2, 3)).mean()
    return _Gain(range_=range_, coupling=coupling, clipping=clipping)


def _fits_int8(x: torch.Tensor, summed_dim: int, levels: int | None) -> bool:
    """Return whether int8 arithmetic gives products of an operand's codes exactly, and quicker."""
    small = levels is not None and levels <= _LARGEST_INT8_CODE and x.shape[summed_dim] <= _LONGEST_INT8_SUM
    usual = x.device.type == "cpu" and x.dtype == torch.float32 and x.shape[0] == 1
    return small and usual and _has_exact_int8_products()


def _multiply(a_codes: torch.Tensor, b_codes: torch.Tensor) -> torch.Tensor:
    """Return the exact product of codes in floating point, [B, M, N]."""
    if a_codes.dtype == torch.int8:
        a, b = _in_order(a_codes[0]), _in_order(b_codes[0])
        return torch._int_mm(a, b).to(torch.float32).unsqueeze(0)
    return torch.bmm(a_codes, b_codes)


def _in_order(codes: torch.Tensor) -> torch.Tensor:
    """Return a matrix without the strides that mislead `torch._int_mm` on a CPU where a size is 1.

    A row that was a column keeps its stride of 1 in both dimensions, and counts as contiguous; torch 2.13
    then reads wrong memory. A copy has the strides that its shape says.
    """
    return codes.clone(memory_format=torch.contiguous_format) if 1 in codes.shape else codes


@functools.cache
def _has_exact_int8_products() -> bool:
    """Return whether int8 products are there and do not saturate, as they may on a CPU without VNNI."""
    codes = torch.full((64, 64), _LARGEST_INT8_CODE, dtype=torch.int8)
    try:
        product = torch._int_mm(codes, codes)
    except (AttributeError, RuntimeError):
        return False
    return bool((product == 64 * _LARGEST_INT8_CODE**2).all())


def _blocks(shape: torch.Size) -> Iterator[_Block]:
    """Yield slices of batches and rows that cover the outputs, sized to stay in cache."""
    batch, rows, columns = shape
    row_count = min(rows, max(_BLOCK_ROWS, _BLOCK_ELEMENTS // columns))
    batch_count = max(1, _BLOCK_ELEMENTS // (rows * columns))
    for batch_start in range(0, batch, batch_count):
        for row_start in range(0, rows, row_count):
            yield slice(batch_start, batch_start + batch_count), slice(row_start, row_start + row_count)


def _part(x: torch.Tensor, block: tuple[slice, ...]) -> torch.Tensor:
    """Return the part of a tensor that belongs to a block; dimensions of size 1 broadcast."""
    return x[tuple(part if size > 1 else slice(None) for part, size in zip(block, x.shape, strict=False))]
