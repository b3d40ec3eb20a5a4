"""Signal-to-noise ratio of executed products, predicted from a core's record and the operands' statistics.

What `optical.execution.numerics.AnalogNumerics` executes draw by draw is summed here in closed form: the
same law of noise, in the mean over operands. Their maxima and roundings come from
`simulator.operands.scaled`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy

from optical.execution.residues import Residues, largest_mantissa
from optical.execution.spec import AnalogSpec, OperandTransforms, Rounding, Scale, loads_second
from simulator.amounts import Reals
from simulator.errors import ParameterError
from simulator.operands.scaled import (
    Codes,
    Precision,
    Scaled,
    blocks_of,
    even_codes,
    product_rounding,
    scaled_moments,
)
from simulator.operands.statistics import OperandLaw, Operands

ROUNDING = "rounding of operands"
READOUT = "output converter"
CLIPPING = "clipping"
LOADING = "loaded weights"
UNLIKE = "unlike parts"
MISREAD = "misread remainders"
"""Causes of noise, beside those of a sample (`AnalogSpec.noise_of_sample`)."""
_FINEST = 4096.0
"""Codes beyond which rounding is not followed, its noise being below -80 dB of full scale; dimensionless."""
_SELDOM = 1e-4
"""Chance of samples with so many larger channels below which they are left out where clipping is looked
at."""
_VECTORS, _SEED = 256, 5
"""Vectors of each operand from which samples are drawn to see how many clip, and key of that draw;
choices."""
_WHOLE_ROWS = 2048
"""Longest sums of which whole rows are drawn for that; of longer ones all rows have nearly the same
maximum."""
_TINY = 1e-300


@dataclass(frozen=True, kw_only=True)
class _Vectors:
    """Vectors of both operands that meet in one gain stage, and how often there are such."""

    count: float
    """How many such pieces the sum has."""
    length: int
    """Products in one."""
    a: Scaled
    """Of A."""
    b: Scaled
    """Of B."""
    larger: tuple[int, int] = (0, 0)
    """Larger channels of A and of B in a vector."""


def predicted(
    spec: AnalogSpec, operands: Operands, length: int, *, rows: int = 128, columns: int = 128
) -> Precision:
    """Return the precision of products of a core.

    Parameters
    ----------
    spec : AnalogSpec
        What of the core reaches a product.
    operands : Operands
        Statistics of A and B.
    length : int
        K of the product.
    rows, columns : int
        M and N, which matter only to scales of whole tensors and to which operand is loaded.

    Raises
    ------
    ParameterError
        If a size is below 1.

    Notes
    -----
    Powers are means over outputs, in products of operands squared; y = g (Q(a) Q(b) + noise), with the
    best gain removed. Elements of the two operands are independent, but for a common pattern that raises
    the signal by their coherence.
    """
    if min(length, rows, columns) < 1:
        msg = f"a product needs at least one row, product and column; got {rows}, {length} and {columns}"
        raise ParameterError(msg)
    if spec.transforms is not None:
        return _transformed(spec, spec.transforms, operands, length, (rows, columns))
    noise: dict[str, float] = {}
    signal = 0.0
    for vectors in _vectors(spec, operands, length, rows, columns):
        found, power = _noise(spec, operands, vectors, second=bool(loads_second(rows, columns)))
        signal += vectors.count * power
        for cause, value in found.items():
            noise[cause] = noise.get(cause, 0.0) + vectors.count * value
    if signal == 0.0:
        return Precision(noise={ROUNDING: math.inf})
    return Precision(noise={cause: value / signal for cause, value in noise.items() if value > 0.0})


def _transformed(
    spec: AnalogSpec, transforms: OperandTransforms, operands: Operands, length: int, sizes: tuple[int, int]
) -> Precision:
    """Return the precision where electronics transforms the operands first.

    Notes
    -----
    Turned operands are Gaussian with their rows' spread, as sums of many channels are; that a rotation
    narrower than the sum leaves its pieces unlike is left out. What is drawn anew falls with the passes.
    Slices are a finer grid; that later ones add noise of their own, a few percent, is left out.
    """
    count = min(length, math.ceil(transforms.electronic_share * length))
    if count == length:
        return Precision(noise={})
    a, b = operands.a, operands.b
    kept = 1.0 - _louder(a, length, count) * _louder(b, length, count) * count / length
    if count:
        a, b = (replace(x, outlier_share=0.0) if x.outliers(length) <= count else x for x in (a, b))
    if transforms.rotation_width > 1:
        a, b = (OperandLaw(row_spread=x.row_spread) for x in (a, b))
    finer = (transforms.slices - 1) * (transforms.slice_bits - 1)
    plain = replace(spec, transforms=None, dac_bits=spec.dac_bits + finer)
    found = predicted(plain, replace(operands, a=a, b=b), length - count, rows=sizes[0], columns=sizes[1])
    fixed = {UNLIKE} | ({ROUNDING} if spec.rounding is Rounding.NEAREST else set())
    return Precision(
        noise={
            cause: kept * value / (1.0 if cause in fixed else transforms.passes)
            for cause, value in found.noise.items()
        }
    )


def _louder(law: OperandLaw, length: int, count: int) -> float:
    """Return the mean square of the channels that electronics takes, over that of all."""
    outliers = law.outliers(length)
    if not outliers or not count:
        return 1.0
    taken = min(outliers, count)
    loud = law.outlier_size**2
    mean = (outliers * loud + length - outliers) / length
    return (taken * loud + count - taken) / count / mean


def _codes(spec: AnalogSpec) -> Codes | None:
    """Return the grid of the operands' converters."""
    if math.isinf(spec.dac_bits):
        return None
    largest = min(max(1, math.floor(2.0 ** (spec.dac_bits - 1.0)) - 1), int(_FINEST))
    return even_codes(largest, stochastic=spec.rounding is Rounding.STOCHASTIC)


def _vectors(
    spec: AnalogSpec, operands: Operands, length: int, rows: int, columns: int
) -> Iterator[_Vectors]:
    """Yield vectors that share a scale and a gain: rows, tensors, or blocks by their larger channels."""
    codes = _codes(spec)
    if spec.scale is Scale.BLOCK:
        width = spec.analog_length
        in_b = blocks_of(operands.b, length, width)
        for count, wide, of_a in blocks_of(operands.a, length, width):
            a = scaled_moments(operands.a, wide, codes, outliers=of_a)
            alike = [(weight, of_b) for weight, also, of_b in in_b if also == wide]
            all_of_them = math.fsum(weight for weight, _ in alike)
            for weight, of_b in alike:
                b = scaled_moments(operands.b, wide, codes, outliers=of_b)
                yield _Vectors(count=count * weight / all_of_them, length=wide, a=a, b=b, larger=(of_a, of_b))
        return
    counts = (rows, columns) if spec.scale is Scale.TENSOR else (1, 1)
    a, b = (
        scaled_moments(
            law if count == 1 else law.without_rows(),
            count * length,
            codes,
            outliers=count * law.outliers(length),
        )
        for law, count in zip((operands.a, operands.b), counts, strict=True)
    )
    larger = (operands.a.outliers(length), operands.b.outliers(length))
    yield _Vectors(count=1.0, length=length, a=a, b=b, larger=larger)


def _noise(
    spec: AnalogSpec, operands: Operands, vectors: _Vectors, *, second: bool
) -> tuple[dict[str, float], float]:
    """Return the power of noise by cause and of the signal in an output, of a sum over one piece."""
    a, b, length, squared_gain = vectors.a, vectors.b, vectors.length, spec.product_gain**2
    width = min(length, spec.analog_length)
    samples = math.ceil(length / spec.analog_length)
    scales = a.scale_square * b.scale_square
    product = length * a.coded_square * b.coded_square
    kept = length * (a.overlap * b.overlap) ** 2 / (a.square * b.square)
    signal = squared_gain * kept * operands.coherence
    by_energy = length * (a.coded_square * b.scale_square + a.scale_square * b.coded_square)
    noise = {
        ROUNDING: squared_gain * kept * product_rounding(a, b) if kept else math.inf,
        **{
            cause: one.constant * samples * scales + one.by_each * by_energy + one.by_product * product
            for cause, one in spec.noise_of_sample().items()
        },
        LOADING: _loading(spec, a, b, length, second=second),
        UNLIKE: _unlike(spec, a, b, length, signal),
    }
    if spec.residues is not None:
        unit = largest_mantissa(spec.dac_bits) ** -4.0
        noise[MISREAD] = samples * scales * unit * misread_variance(spec, a, b, width)
        return noise, signal
    if math.isfinite(spec.adc_enob_bits) and math.isfinite(spec.adc_range_sigma):
        range_, clipped = _range(spec, operands, vectors, width)
        noise[READOUT] = samples * scales * (range_ * 2.0 ** (1.0 - spec.adc_enob_bits)) ** 2 / 12.0
        noise[CLIPPING] = samples * scales * clipped
    elif math.isfinite(spec.adc_enob_bits):
        noise[READOUT] = (
            samples * scales * (spec.analog_length * 2.0 ** (1.0 - spec.adc_enob_bits)) ** 2 / 12.0
        )
    return noise, signal


def _loading(spec: AnalogSpec, a: Scaled, b: Scaled, length: int, *, second: bool) -> float:
    """Return the noise of elements that are loaded wrongly."""
    repeated = spec.chip.repeated_variance if spec.chip is not None else 0.0
    loaded, other = (b, a) if second else (a, b)
    wrong = (spec.load_variance + repeated) * loaded.scale_square
    return spec.product_gain**2 * length * wrong * other.coded_square


def _unlike(spec: AnalogSpec, a: Scaled, b: Scaled, length: int, signal: float) -> float:
    """Return the noise of gains and couplers that are not alike, over all outputs of a chip."""
    chip = spec.chip
    if chip is None:
        return 0.0
    product = length * a.coded_square * b.coded_square
    gains = chip.element_gain * product * spec.product_gain**2 + chip.output_gain * signal
    uneven = a.energy_square * b.scale_square + a.scale_square * b.energy_square
    uneven -= 2.0 * length**2 * a.coded_square * b.coded_square
    each = a.unit_fourth - a.unit_square**2 + b.unit_fourth - b.unit_square**2
    spread = max(0.0, length * each) * a.scale_square * b.scale_square
    couplers = chip.imbalance * (max(0.0, uneven) + spread) + chip.edge_imbalance**2 / 3.0 * spread
    return gains + 0.25 * spec.product_gain**2 * couplers


def _range(spec: AnalogSpec, operands: Operands, vectors: _Vectors, width: int) -> tuple[float, float]:
    """Return half of the output converter's range and the mean square of what it cuts off, in full scales."""
    a, b = vectors.a.unit_square, vectors.b.unit_square
    signal = spec.product_gain**2 * width * a * b * operands.coherence
    noise = spec.sample_noise
    power = signal + noise.constant + noise.by_product * width * a * b + noise.by_each * width * (a + b)
    range_ = min(spec.adc_range_sigma * math.sqrt(power), float(spec.analog_length))
    if math.isinf(spec.adc_bits):
        return range_, 0.0
    whole = width == vectors.length
    samples = _all_samples(spec, operands, vectors, width)
    mean_square = math.fsum(chance * one.mean_square for chance, one in samples)
    relative = range_ * math.sqrt(mean_square / signal)
    lost = math.fsum(chance * one.cut_off(relative, whole=whole) for chance, one in samples)
    return range_, lost * signal / mean_square


def _all_samples(
    spec: AnalogSpec, operands: Operands, vectors: _Vectors, width: int
) -> list[tuple[float, _Samples]]:
    """Return samples by their larger channels, and how likely they are."""
    a, b, length = operands.a, operands.b, vectors.length
    rows = length if length <= _WHOLE_ROWS else 0
    if spec.scale is Scale.TENSOR:
        rows = 0
    if width == length:
        return [(1.0, _samples(a, b, width, rows, vectors.larger, vectors.larger))]
    most = a.outliers(length), b.outliers(length)
    in_a, in_b = (_shares(law, length, width) for law in (a, b))
    return [
        (chance_a * chance_b, _samples(a, b, width, rows, (of_a, of_b), most))
        for of_a, chance_a in in_a.items()
        for of_b, chance_b in in_b.items()
        if chance_a * chance_b > _SELDOM
    ]


def _shares(law: OperandLaw, length: int, width: int) -> dict[int, float]:
    """Return how likely a full sample has so many larger channels."""
    found = {larger: count for count, wide, larger in blocks_of(law, length, width) if wide == width}
    whole = math.fsum(found.values())
    return {larger: count / whole for larger, count in found.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Samples:
    """Sums of products as an output converter meets them, drawn; shape [samples] each."""

    size: Reals
    """Magnitude, operands scaled."""
    weight: Reals
    """Product of the squares of both full scales over its mean."""

    @functools.cached_property
    def mean_square(self) -> float:
        """Mean square of the samples, each counting alike."""
        return float(np.mean(self.size**2))

    @functools.cached_property
    def _tails(self) -> tuple[Reals, Reals]:
        """Samples in order; sums from a place on of their number, size and square, plain and weighted."""
        order = np.argsort(self.size)
        size, weight = self.size[order], self.weight[order]
        terms = np.stack((np.ones_like(size), size, size**2, weight, weight * size, weight * size**2))
        sums = np.concatenate((np.cumsum(terms[:, ::-1], axis=1)[:, ::-1], np.zeros((6, 1))), axis=1)
        return size, sums / len(size)

    def cut_off(self, range_: float, *, whole: bool) -> float:
        """Return the mean square of what is cut off; of sums that are one sample, what no gain explains.

        Notes
        -----
        Several samples collapse into one draw, which spreads what they lose over all outputs by their scales.
        """
        size, sums = self._tails
        count, first, second, weight, weighted, power = sums[:, np.searchsorted(size, range_)]
        if count == 0.0:
            return 0.0
        if not whole:
            return float(second - 2.0 * range_ * first + range_**2 * count)
        everything = sums[5, 0]
        overlap = everything - power + range_ * weighted
        kept = everything - power + range_**2 * weight
        gain = overlap / everything
        return float(max(0.0, kept / gain**2 - everything))


@functools.lru_cache(maxsize=512)
def _samples(  # noqa: PLR0917 - a cache takes no keywords
    a: OperandLaw, b: OperandLaw, width: int, row: int, larger: tuple[int, int], most: tuple[int, int]
) -> _Samples:
    """Return samples of so many products, of vectors scaled by the largest of their rows; 0 for all alike.

    Parameters
    ----------
    a, b : OperandLaw
        Statistics of the operands.
    width, row : int
        Products of a sample, and elements that share a scale.
    larger, most : tuple of int
        Larger channels of A and of B among the products, and in all of the row.
    """
    generator = np.random.default_rng(_SEED)
    tiles, weights = [], []
    for law, count, all_of_them in zip((a, b), larger, most, strict=True):
        x = law.vectors(generator, _VECTORS, width, count)
        scale = np.ones((_VECTORS, 1))
        if row:
            rest = law.vectors(generator, _VECTORS, row - width, all_of_them - count)
            scale = np.maximum(np.abs(x).max(1), np.abs(rest).max(1, initial=_TINY))[:, None]
        tiles.append(x / scale)
        weights.append((scale**2 / np.mean(scale**2))[:, 0])
    return _Samples(
        size=np.abs(tiles[0] @ tiles[1].T).ravel(), weight=np.outer(weights[0], weights[1]).ravel()
    )


def misread_variance(spec: AnalogSpec, a: Scaled, b: Scaled, width: int) -> float:
    """Return the mean square error of a sample by misread remainders, in products of mantissas.

    Notes
    -----
    How many steps each remainder is off is convolved over all residues of the dynamic range; a sum that
    leaves the range by it wraps around. Sums are Gaussian with the operands' mean square.
    """
    residues = spec.residues
    if residues is None:
        return 0.0
    unit = float(largest_mantissa(spec.dac_bits)) ** 2
    deviation = unit * math.sqrt(width * a.unit_square * b.unit_square)
    shift, chance = _shifts(residues)
    half, whole = residues.product / 2.0, residues.product
    wraps = scipy.special.ndtr((np.abs(shift) - half) / max(deviation, _TINY))
    wraps *= half - np.abs(shift) < width * unit  # no sum is larger
    wrapped = (np.abs(shift) - whole) ** 2
    return float(np.sum(chance * ((1.0 - wraps) * shift**2 + wraps * wrapped)))


@functools.lru_cache(maxsize=256)
def _shifts(residues: Residues) -> tuple[Reals, Reals]:
    """Return what misread remainders may add to a sum, modulo the dynamic range, and how likely."""
    whole = residues.product
    chance = np.zeros(whole)
    chance[0] = 1.0
    for sigma, weight in zip(residues.sigmas, residues.weights, strict=True):
        if sigma <= 0.0:
            continue
        most = max(1, math.ceil(8.0 * sigma))
        steps = np.arange(-most, most + 1)
        bounds = scipy.special.ndtr((steps[:, None] + np.array([-0.5, 0.5])) / sigma)
        each = np.where(steps > 0, bounds[::-1, 1] - bounds[::-1, 0], bounds[:, 1] - bounds[:, 0])
        chance = sum(
            share * np.roll(chance, int(step * weight)) for step, share in zip(steps, each, strict=True)
        )
    place = np.arange(whole)
    shift = np.where(place > whole // 2, place - whole, place).astype(np.float64)
    return shift, chance
