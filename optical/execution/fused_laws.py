"""The law of a product's noise for compiled passes, and what a gain stage reads to set it.

The law is that of `optical.execution.readout`, which does the same in torch.

Shape suffixes: B batch, M rows of A and C, K summed, N columns of B and C.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from optical.execution import tiles
from optical.execution.analog import AnalogSpec
from optical.execution.code_products import CodeProduct
from optical.execution.collapse import doubt_collapse
from optical.execution.fused import KINDS, kernels
from optical.execution.operands import NEGLIGIBLE_LASER, SMALLEST_SCALE, Operand, largest_code
from optical.execution.probes import probe_outputs, probe_steps
from optical.execution.scratch import remembered, scratch

Operands = tuple[Operand, Operand]


class Law(NamedTuple):
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
    clips: bool
    """Whether a probe tells how much several samples are clipped."""
    reads_energies: bool
    """Whether noise depends on light."""


@functools.lru_cache(maxsize=4096)
def law_of(spec: AnalogSpec, a_step: float, b_step: float, length: int) -> Law:
    """Return the constants for operands whose codes have such steps, summed over a length."""
    unit, samples = a_step * b_step * spec.product_gain, -(-length // spec.analog_length)
    each = (spec.shot_variance + spec.encoding_variance) / unit**2
    laser = spec.rin_variance / spec.product_gain**2
    converts, missing, relative_step = math.isfinite(spec.adc_enob_bits), 0.0, 0.0
    if samples == 1 and math.isfinite(spec.adc_bits):
        relative_step = 2.0 ** (1.0 - spec.adc_bits)
    if converts:
        missing = ((2.0 ** (1.0 - spec.adc_enob_bits)) ** 2 - relative_step**2) * samples / 12.0
    lossy = converts and (samples > 1 or spec.adc_enob_bits < spec.adc_bits)
    return Law(
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
        clips=length > spec.analog_length and math.isfinite(spec.adc_bits),
        reads_energies=each + laser > 0.0,
    )


class Noise(NamedTuple):
    """What the outputs of a product have."""

    range_: float
    """Half of the converter's range."""
    variance: tuple[float, float, float, float]
    """Without light; per energy of A, of B, and per product of both."""


class Sight(NamedTuple):
    """What a gain stage reads."""

    means: tuple[float, float, float]
    """Of the energies of A, of B, and of the products of theirs."""
    power: float
    """Mean square of the probed samples."""
    cross: float
    """Mean over them of ``sum_k(mean_m(a^2) mean_n(b^2))``."""
    beyond: Callable[[float], float] | None
    """Mean square of what of the samples lies beyond a range, where several samples are clipped."""


def noise_of(
    spec: AnalogSpec, law: Law, operands: Operands, known: CodeProduct | None, *, exact: bool = False
) -> Noise | None:
    """Return the noise that a probe finds, or None where that of the laser hangs on the single output.

    Squares of samples that are not known are rounded to float32; `exact` has them as a known product does.
    """
    a, b = operands
    means, power, cross, beyond = (0.0, 0.0, 0.0), 0.0, 0.0, None
    if law.reads_energies:
        sizes = (*a.codes.shape[:2], b.codes.shape[2])
        means = kernels().readout.mean_energies(a.energy.data_ptr(), b.energy.data_ptr(), sizes)
    if law.laser > 0.0 or (law.sets_range and known is None):
        probe = remembered(
            ("probe", spec.analog_length, a.codes.shape, b.codes.shape), lambda: probe_of(spec, operands)
        )
        power, cross = probe.look(operands, law.laser > 0.0, law.sets_range and known is None)
        if exact:
            power = float(probe.signal.double().square().mean())
        if known is None and law.clips:
            beyond = functools.partial(mean_square_beyond, probe.signal)
    if law.sets_range and known is not None:
        power = _power(known)
    return settle(spec, law, Sight(means, power, cross, beyond))


def settle(spec: AnalogSpec, law: Law, sight: Sight) -> Noise | None:
    """Return the noise that follows from what is read, or None as `noise_of` does."""
    (mean_a, mean_b, mean_both), power, cross, beyond = sight
    range_, clipping = law.most, 0.0
    if law.sets_range:
        power += law.thermal + (law.by_a * mean_a + law.by_b * mean_b) / law.parts + law.laser * cross
        range_ = min(max(spec.adc_range_sigma * math.sqrt(power), SMALLEST_SCALE), law.most)
        clipping = beyond(range_) if beyond is not None else 0.0
    by_both = law.laser * cross * law.parts / max(mean_both, SMALLEST_SCALE)
    constant = range_**2 * law.missing + law.samples * (law.thermal + clipping)
    others = constant + law.by_a * mean_a + law.by_b * mean_b
    if law.samples > 1:
        doubt_collapse(spec, law.samples, clipping, lambda: others + by_both * mean_both)
    elif by_both * mean_both > NEGLIGIBLE_LASER * others:
        return None
    return Noise(range_, (constant, law.by_a, law.by_b, by_both))


def mean_square_beyond(signal: torch.Tensor, range_: float) -> float:
    """Return the mean square of what of float32 values without gaps lies beyond a range."""
    return float(kernels().readout.mean_square_beyond(signal.data_ptr(), signal.numel(), range_))


def _power(known: CodeProduct) -> float:
    """Return the mean square of the outputs that a probe reads."""
    first, *others = known.sums
    places = probed_places(first.shape)
    if others:
        first = known.probed(torch.float32)
        places = tuple(first.shape), first.stride()
    return float(kernels().readout.mean_square(first.data_ptr(), first.dtype == torch.int32, *places))


class Probe(NamedTuple):
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

    def look(self, operands: Operands, lasers: bool, signals: bool) -> tuple[float, float]:
        """Return the mean square of the products, and the mean of those of energies, if they are wanted."""
        a, b = (operand.codes for operand in operands)
        batches, length, columns = b.stride()
        if a.dtype == b.dtype == torch.int8 and tiles.are_there():
            (_, _, *others), ((_, *a_steps), (_, *b_steps)) = self.sizes, self.steps
            rows_told = (a.data_ptr(), *a.stride()[1:], *a_steps)
            columns_told = (b.data_ptr(), columns, length, *b_steps)
            return tiles.look(rows_told, columns_told, (*others, int(lasers)), self.signal)
        first = (a.data_ptr(), KINDS[a.dtype], a.stride(), self.steps[0], self.samples.data_ptr())
        strides = (batches, columns, length)
        second = (b.data_ptr(), KINDS[b.dtype], strides, self.steps[1], self.others.data_ptr())
        cross = float(kernels().readout.look(first, second, (*self.sizes, int(lasers))))
        if not signals:
            return 0.0, cross
        torch.bmm(self.samples, self.others, out=self.signal)
        places = tuple(self.signal.shape), self.signal.stride()
        return float(kernels().readout.mean_square(self.signal.data_ptr(), False, *places)), cross


def probe_of(spec: AnalogSpec, operands: Operands) -> Probe:
    """Return memory for a probe (`optical.execution.probes.probe`)."""
    a, b = (operand.codes for operand in operands)
    (batches, samples, rows, width), a_steps = probe_steps(spec, a.shape)
    (_, _, columns, _), b_steps = probe_steps(spec, torch.Size((b.shape[0], b.shape[2], b.shape[1])))

    def memory(use: str, *sizes: int) -> torch.Tensor:
        shape = torch.Size((batches * samples, *sizes))
        return scratch(f"probe of {use}", shape, torch.float32, a.device)

    return Probe(
        samples=memory("first", rows, width),
        others=memory("second", columns, width).mT,
        signal=memory("signal", rows, columns),
        steps=(a_steps, b_steps),
        sizes=(batches, samples, rows, columns, width),
    )


@functools.lru_cache(maxsize=4096)
def probed_places(shape: torch.Size) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many batches, rows and columns of a product a probe reads, and how far apart they lie."""
    outputs = probe_outputs(torch.empty(shape, dtype=torch.int32, device="meta"))
    return tuple(outputs.shape), outputs.stride()
