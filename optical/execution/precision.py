"""Signal-to-noise ratio of executed products, predicted from a core's record and the operands' statistics.

What `optical.execution.numerics.AnalogNumerics` executes draw by draw is summed here in closed form: the
same law of noise, in the mean over operands. Their maxima and roundings come from
`simulator.operands.statistics`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from optical.execution.spec import (
    AnalogSpec,
    HashedOnce,
    OperandTransforms,
    Rounding,
    Scale,
    largest_code,
    loads_second,
    misread_shifts,
)
from optical.noise.link_budget import RECEIVER
from simulator.amounts import Reals
from simulator.errors import ParameterError
from simulator.operands.statistics import (
    Codes,
    OperandLaw,
    Operands,
    Precision,
    Scaled,
    blocks_of,
    channel_blocks,
    channel_scales,
    even_codes,
    largest_quantiles,
    product_rounding,
    scaled_moments,
    without_loudest,
)
from simulator.operators import Phase

ROUNDING = "rounding of operands"
READOUT = "output converter"
CLIPPING = "clipping"
LOADING = "loaded weights"
UNLIKE = "unlike parts"
MISREAD = "misread remainders"
"""Causes of noise, beside those of a sample (`AnalogSpec.noise_of_sample`)."""
_FINEST = 4096
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
_FARTHEST = 9.0
"""Standard deviations beyond which a Gaussian sum is not found; dimensionless."""
_TINY, _LEAST = 1e-300, 1e-30


@dataclass(frozen=True, kw_only=True)
class Product(HashedOnce):
    """Products that are alike in shape and operands."""

    operands: Operands
    """Statistics of A and B."""
    length: int
    """K."""
    rows: int = 128
    """M."""
    columns: int = 128
    """N."""
    phase: Phase = Phase.FORWARD
    """Forward, or one of the gradients."""
    weight: float = 1.0
    """Multiply-accumulates of all of them, or any other weight of their noise in the average."""

    __hash__ = HashedOnce.__hash__

    def __post_init__(self) -> None:
        if min(self.length, self.rows, self.columns) < 1:
            msg = (
                f"a product needs at least one row, product and column; got {self.rows}, {self.length} and "
                f"{self.columns}"
            )
            raise ParameterError(msg)


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
    """
    return predicted_of(spec, (Product(operands=operands, length=length, rows=rows, columns=columns),))


def predicted_of(spec: AnalogSpec, products: tuple[Product, ...]) -> Precision:
    """Return the precision of products together: noise over signal, averaged with their weights.

    Parameters
    ----------
    spec : AnalogSpec
        What of the core reaches a product, whatever the products' phases.
    products : tuple of Product
        At least one of a weight above zero.

    Notes
    -----
    Powers are means over outputs, in products of operands squared; y = g (Q(a) Q(b) + noise), with the
    best gain removed. Elements of the two operands are independent, but for a common pattern that raises
    the signal by their coherence. What hangs on operands and number formats alone is summed once
    (`_Pieces`), so that other light costs little.

    With transforms, turned operands are Gaussian with their rows' spread, as sums of many channels are; that
    a rotation narrower than the sum leaves its pieces unlike is left out. What is drawn anew falls with the
    passes. Slices are a finer grid; that later ones add noise of their own, a few percent, is left out.
    """
    outputs = 0 if spec.tile is None else spec.tile.outputs
    geometry = _Geometry(
        spec.scale, spec.rounding, spec.dac_bits, spec.analog_length, outputs, spec.transforms
    )
    pieces = _pieces(geometry, products)
    found = _noise(spec, pieces)
    if spec.transforms is not None and spec.transforms.passes > 1:
        fixed = {UNLIKE} | ({ROUNDING} if spec.rounding is Rounding.NEAREST else set())
        found = {
            cause: value / (1.0 if cause in fixed else spec.transforms.passes)
            for cause, value in found.items()
        }
    return Precision(noise={cause: value for cause, value in found.items() if value > 0.0})


class _Geometry(NamedTuple):
    """Part of a specification by which operands are scaled and rounded."""

    scale: Scale
    rounding: Rounding
    dac_bits: float
    analog_length: int
    tile_outputs: int
    transforms: OperandTransforms | None

    @property
    def codes(self) -> Codes | None:
        """Grid of the operands' converters."""
        bits = self.dac_bits
        if self.transforms is not None:
            bits += (self.transforms.slices - 1) * (self.transforms.slice_bits - 1)
        if math.isinf(bits):
            return None
        largest = min(largest_code(bits), _FINEST)
        return even_codes(largest, stochastic=self.rounding is Rounding.STOCHASTIC)


@dataclass(frozen=True, kw_only=True)
class _Vectors:
    """Vectors of both operands that meet in one gain stage, and how often there are such."""

    count: float
    """Number of such pieces in the sum."""
    length: int
    """Products in one."""
    a: Scaled
    """Of A."""
    b: Scaled
    """Of B."""
    larger: tuple[int, int] = (0, 0)
    """Larger channels of A and of B in a vector."""

    @property
    def signal(self) -> float:
        """Power of what the vectors make of a product of incoherent operands, its best gain removed."""
        return self.length * (self.a.overlap * self.b.overlap) ** 2 / (self.a.square * self.b.square)


def _transformed(product: Product, transforms: OperandTransforms | None) -> tuple[Product | None, float]:
    """Return the product that is left to light and its share of the power; none where there is none."""
    if transforms is None:
        return product, 1.0
    operands, length = product.operands, product.length
    count = min(length, math.ceil(transforms.electronic_share * length))
    if count == length:
        return None, 0.0
    left = without_loudest(operands, length, count)
    a, b = operands.a, operands.b
    if count:
        a, b = (replace(x, outlier_share=0.0) if x.outliers(length) <= count else x for x in (a, b))
    coherence = operands.coherence * left.meeting
    if transforms.rotation_width > 1:
        a, b = (OperandLaw(row_spread=x.row_spread) for x in (a, b))
        coherence *= length / (length - count)  # of all channels, the loudest ones zero
        operands = replace(operands, a=a, b=b, coherence=coherence, meeting=1.0)
        return replace(product, operands=operands), left.kept
    operands = replace(operands, a=a, b=b, coherence=coherence, meeting=operands.meeting * left.meeting)
    return replace(product, operands=operands, length=length - count), left.kept


def _vectors(geometry: _Geometry, product: Product) -> Iterator[_Vectors]:
    """Yield vectors that share a scale and a gain: rows, tensors, or blocks by their larger channels."""
    operands, length, codes = product.operands, product.length, geometry.codes
    if geometry.scale is Scale.BLOCK:
        width = geometry.analog_length
        in_b = blocks_of(operands.b, length, width)
        for count, wide, of_a in blocks_of(operands.a, length, width):
            a = scaled_moments(operands.a, wide, codes, outliers=of_a)
            alike = [(weight, of_b) for weight, also, of_b in in_b if also == wide]
            all_of_them = math.fsum(weight for weight, _ in alike)
            for weight, of_b in alike:
                b = scaled_moments(operands.b, wide, codes, outliers=of_b)
                yield _Vectors(count=count * weight / all_of_them, length=wide, a=a, b=b, larger=(of_a, of_b))
        return
    counts = (product.rows, product.columns) if geometry.scale is Scale.TENSOR else (1, 1)
    a, b = (
        scaled_moments(law, length, codes, rows=count)
        for law, count in zip((operands.a, operands.b), counts, strict=True)
    )
    larger = (operands.a.outliers(length), operands.b.outliers(length))
    yield _Vectors(count=1.0, length=length, a=a, b=b, larger=larger)


class _Sums(NamedTuple):
    """Noise over signal that a unit of each error makes, over all products and with a gain of one."""

    rounding: float
    """Rounding of operands: all of it."""
    constant: float
    """Variance of a sample."""
    by_each: float
    """The same per operand squared."""
    by_product: float
    """The same per product squared."""
    signal: float
    """Variance of an output's gain."""
    loaded: float
    """Variance of loaded elements, in full scales."""
    tile: float
    """The same over the mean square of their tile."""
    norm: float
    """Variance of a sample per square of the largest singular value of its tile."""
    node: float
    """Variance of couplers of nodes, in which rows and columns of unlike energy meet."""
    line: float
    """The same of couplers that are unlike line by line."""


_OF_READING = ("constant", "by_each", "norm")
"""Errors that do not come with a signal."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pieces:
    """Vectors of all products and their sums, whatever the light; arrays have the shape [vectors]."""

    scale: Scale
    """Granularity of the operands' full scale."""
    units: Reals
    """Noise over signal that a unit of each error makes of vectors, [vectors, `_Sums`]."""
    vectors: tuple[tuple[Product, _Vectors], ...]
    """Vectors, each with the product that it is of."""
    width: tuple[int, ...]
    """Products in a sample."""
    weight: Reals
    """Noise over signal by a unit of variance, in full scales, of all samples of a vector."""
    unit_square: tuple[Reals, Reals]
    """Mean squares of the scaled elements of A and of B."""
    coherence: Reals
    """Coherence of the operands."""
    norm_square: Reals
    """Mean square of the largest singular value of a sample's tile of scaled elements; zero without tiles."""

    @functools.cached_property
    def sums(self) -> _Sums:
        """What is linear in the errors of a core."""
        return _Sums(*self.units.sum(0).tolist())

    def read_with(self, gain: Reals) -> _Sums:
        """Return the same where clipping leaves a gain [vectors] to signals alone."""
        of_reading = _Sums(*(gain**-2.0 @ self.units).tolist())
        return self.sums._replace(**{name: getattr(of_reading, name) for name in _OF_READING})

    @functools.cached_property
    def samples(self) -> _Mixture:
        """Samples of all vectors by their larger channels, and how likely they are."""
        found = [
            (place, chance, one)
            for place, ((product, vectors), width) in enumerate(zip(self.vectors, self.width, strict=True))
            for chance, one in _all_samples(self.scale, product.operands, vectors, width)
        ]
        unlike = dict.fromkeys(one for *_, one in found)
        kinds = {one: index for index, one in enumerate(unlike)}
        return _Mixture(
            place=np.array([place for place, *_ in found], dtype=np.intp),
            chance=np.array([chance for _, chance, _ in found]),
            kind=np.array([kinds[one] for *_, one in found], dtype=np.intp),
            mean_square=np.array([one.mean_square for *_, one in found]),
            power=np.array([one.power for *_, one in found]),
            beyond=np.array([one.beyond for one in unlike]).reshape(-1, 3, len(_THRESHOLDS)),
        )


@functools.lru_cache(maxsize=128)
def _pieces(geometry: _Geometry, products: tuple[Product, ...]) -> _Pieces:
    """Return the vectors of products and their sums."""
    counted = [one for one in products if one.weight > 0.0]
    if not counted:
        msg = "an average precision needs at least one product with a weight above 0"
        raise ParameterError(msg)
    whole = math.fsum(one.weight for one in counted)
    found: list[tuple[Product, _Vectors]] = []
    most = geometry.analog_length
    weights: list[float] = []
    for product in counted:
        light, kept = _transformed(product, geometry.transforms)
        if light is None:
            continue
        vectors = list(_vectors(geometry, light))
        signal = light.operands.coherence * math.fsum(one.count * one.signal for one in vectors)
        share = product.weight / whole * kept / signal if signal > 0.0 else math.inf
        found += [(light, one) for one in vectors]
        weights += [share * one.count for one in vectors]
    norm_square = np.array([_norm_square(geometry, *one) for one in found])
    unit = np.array([_units(*one, most, norm) for one, norm in zip(found, norm_square, strict=True)])
    unit, weight = unit.reshape(-1, len(_Sums._fields)), np.array(weights)
    return _Pieces(
        scale=geometry.scale,
        units=weight[:, None] * unit,
        vectors=tuple(found),
        width=tuple(min(one.length, most) for _, one in found),
        weight=weight * unit[:, 1],
        unit_square=(
            np.array([one.a.unit_square for _, one in found]),
            np.array([one.b.unit_square for _, one in found]),
        ),
        coherence=np.array([product.operands.coherence for product, _ in found]),
        norm_square=norm_square,
    )


_TILES, _LONGEST_HELD = 256, 2048
"""Least tiles that are drawn to find their largest singular values, and longest sums of them; choices."""


def _norm_square(geometry: _Geometry, product: Product, vectors: _Vectors) -> float:
    """Return the mean square of the largest singular value of a full sample's tile, in full scales."""
    if not geometry.tile_outputs:
        return 0.0
    second = loads_second(product.rows, product.columns)
    operands, length = product.operands, vectors.length
    law, scaled = (operands.b, vectors.b) if second else (operands.a, vectors.a)
    outputs = int(product.columns if second else product.rows)
    rest = outputs % geometry.tile_outputs
    drawn, width = min(length, _LONGEST_HELD), min(length, geometry.analog_length)
    pattern = max(0.0, operands.coherence / operands.meeting - 1.0) * (drawn - 1) / max(1, length - 1)
    common = Operands(a=law, b=law, coherence=1.0 + pattern)
    found = math.fsum(
        share * _norm_over_energy(geometry.scale, common, drawn, width, columns)
        for columns, share in ((geometry.tile_outputs, outputs - rest), (rest, rest))
        if share
    )
    return width * scaled.unit_square * found / outputs


@functools.lru_cache(maxsize=1024)
def _norm_over_energy(scale: Scale, operands: Operands, length: int, width: int, outputs: int) -> float:
    """Return the mean square of the largest singular value of tiles of A over the mean energy of a row in it.

    Notes
    -----
    Of independent elements it is near (1 + sqrt(outputs/width))^2, 4 for square tiles (Marchenko and Pastur
    1967). Channels that are louder, and a pattern that rows have in common, raise it; hence tiles are drawn.
    """
    generator, count = np.random.default_rng(_SEED), length // width
    norms, energies = [], []
    for _ in range(math.ceil(_TILES / count)):
        x = operands.draw(generator, outputs, length, 1)[0]
        tiles = x[:, : count * width].reshape(outputs, count, width).transpose(1, 0, 2)
        if scale is Scale.BLOCK:
            tiles = tiles / np.maximum(np.abs(tiles).max(2, keepdims=True), _TINY)
        if scale is Scale.ROW:
            tiles = tiles / np.maximum(np.abs(x).max(1)[:, None], _TINY)
        norms.append(np.linalg.norm(tiles, 2, axis=(1, 2)) ** 2)
        energies.append((tiles**2).sum(2))
    return float(np.mean(norms) / np.mean(energies))


def _units(product: Product, vectors: _Vectors, analog_length: int, norm_square: float) -> tuple[float, ...]:
    """Return the power of noise that a unit of each error makes of vectors, in the order of `_Sums`."""
    a, b, length, signal = vectors.a, vectors.b, vectors.length, vectors.signal
    loaded, other = (b, a) if loads_second(product.rows, product.columns) else (a, b)
    squares = length * a.coded_square * b.coded_square
    uneven = a.energy_square * b.scale_square + a.scale_square * b.energy_square
    uneven -= 2.0 * length**2 * a.coded_square * b.coded_square
    met = 1.0 + (product.operands.meeting - 1.0) / min(length, analog_length)  # one channel of a tile's
    scales, samples = a.scale_square * b.scale_square, length / min(length, analog_length)
    each = a.unit_fourth - a.unit_square**2 + b.unit_fourth - b.unit_square**2
    spread = max(0.0, length * each) * a.scale_square * b.scale_square
    return (
        signal * product_rounding(a.rounding, b.rounding) if signal else math.inf,
        math.ceil(length / analog_length) * a.scale_square * b.scale_square,
        length * (a.coded_square * b.scale_square + a.scale_square * b.coded_square),
        squares,
        signal * product.operands.coherence,
        length * loaded.scale_square * other.coded_square,
        length * loaded.scale_square * loaded.unit_square * other.coded_square * met,
        samples * scales * norm_square,
        0.25 * (max(0.0, uneven) + spread),
        0.25 * spread / 3.0,
    )


def _noise(spec: AnalogSpec, pieces: _Pieces) -> dict[str, float]:
    """Return noise over signal by cause."""
    if not math.isfinite(pieces.sums.rounding):
        return {ROUNDING: math.inf}
    read, square = _read(spec, pieces), spec.product_gain**2
    sums = pieces.read_with(read.gain)
    noise = {ROUNDING: sums.rounding} | {
        cause: (one.constant * sums.constant + one.by_each * sums.by_each + one.by_product * sums.by_product)
        / square
        for cause, one in spec.noise_of_sample().items()
    }
    wrong = spec.load_variance + (spec.chip.repeated_variance if spec.chip is not None else 0.0)
    noise[RECEIVER] += spec.norm_variance * sums.norm / square
    noise |= {LOADING: wrong * (sums.loaded if spec.tile is None else sums.tile), UNLIKE: _unlike(spec, sums)}
    if spec.residues is not None:
        unit = largest_code(spec.dac_bits) ** -4.0
        return noise | {MISREAD: unit / square * float(pieces.weight @ misread_variances(spec, pieces))}
    if math.isinf(spec.adc_enob_bits):
        return noise
    step = read.range_ * 2.0 ** (1.0 - spec.adc_enob_bits)
    weight = pieces.weight / (square * read.gain**2)
    return noise | {CLIPPING: float(weight @ read.lost), READOUT: float(weight @ step**2) / 12.0}


def _unlike(spec: AnalogSpec, sums: _Sums) -> float:
    """Return the noise of gains and couplers that are not alike, over all outputs of a chip."""
    chip = spec.chip
    if chip is None:
        return 0.0
    gains = chip.element_gain * sums.by_product + chip.output_gain * sums.signal
    return gains + chip.imbalance * sums.node + chip.edge_imbalance**2 * sums.line


class _Read(NamedTuple):
    """Samples as an output converter delivers them, arrays of shape [vectors]."""

    range_: Reals
    """Half of its range, in full scales."""
    gain: Reals
    """Gain that clipping leaves to a signal."""
    lost: Reals
    """Mean square of what it cuts off beside, in full scales."""


def _read(spec: AnalogSpec, pieces: _Pieces) -> _Read:
    """Return the output converter's range, and what it cuts off."""
    (a, b), width = pieces.unit_square, np.array(pieces.width, dtype=float)
    whole = _Read(np.full_like(width, spec.analog_length), np.ones_like(width), np.zeros_like(width))
    if spec.residues is not None or math.isinf(spec.adc_enob_bits) or math.isinf(spec.adc_range_sigma):
        return whole
    signal = spec.product_gain**2 * width * a * b * pieces.coherence
    noise = spec.sample_noise
    power = signal + noise.constant + noise.by_product * width * a * b + noise.by_each * width * (a + b)
    power = power + spec.norm_variance * pieces.norm_square
    range_ = np.minimum(spec.adc_range_sigma * np.sqrt(power), spec.analog_length)
    if math.isinf(spec.adc_bits) or not len(width):
        return whole._replace(range_=range_)
    mean_square = pieces.samples.mean(pieces.samples.mean_square, len(range_))
    gain, lost = pieces.samples.cut_off(range_ * np.sqrt(mean_square / signal))
    return _Read(range_, gain, lost * signal / mean_square)


def _all_samples(
    scale: Scale, operands: Operands, vectors: _Vectors, width: int
) -> list[tuple[float, _Samples]]:
    """Return samples by their larger channels, and how likely they are."""
    a, b, length = operands.a, operands.b, vectors.length
    few = a.outliers(length) or b.outliers(length)
    rows = length if scale is not Scale.TENSOR and (few or length <= _WHOLE_ROWS) else 0
    if scale is not Scale.BLOCK and (operands.meeting != 1.0 or a.channel_spread or b.channel_spread):
        return [(1.0, _meeting_samples(operands, length, width, rows > 0))]
    a, b = (replace(law, row_spread=0.0) for law in (a, b))  # full scale takes it out
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


_NARROWEST, _CLOSE, _RANGES = 0.05, 1.02, 360
"""Least range over the rms of samples at which what is beyond is kept, factor between two and number of such
ranges; choices. The largest is 60."""
_THRESHOLDS = np.append(_NARROWEST * _CLOSE ** np.arange(_RANGES), np.inf)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Samples:
    """Sums of products as an output converter meets them: moments beyond ranges, of samples drawn."""

    mean_square: float
    """Mean square of the samples, each counting alike."""
    beyond: Reals
    """Means over all of w, w x and w x^2 of samples beyond each of `_THRESHOLDS` rms, w being the squares of
    both full scales over their mean; [3, thresholds]."""
    power: float
    """Mean of w x^2 over all samples."""

    @classmethod
    def of(cls, size: NDArray[np.float32], weight: NDArray[np.float32]) -> _Samples:
        """Return the moments of samples: their magnitudes and the squares of their scales over the mean."""
        rms = math.sqrt(float(np.mean(size**2)))
        over = np.log(np.maximum(size, _LEAST) / np.float32(rms * _NARROWEST)) / np.float32(math.log(_CLOSE))
        bins = np.clip(np.ceil(over), 0, _RANGES).astype(np.intp)
        moments = (weight, weight * size, weight * size**2)
        sums = np.stack([np.bincount(bins, one, len(_THRESHOLDS)) for one in moments]) / len(size)
        beyond = np.cumsum(sums[:, ::-1], axis=1)[:, ::-1]  # in bin i: above threshold i - 1
        beyond = np.concatenate((beyond[:, 1:], np.zeros((3, 1))), axis=1)
        return cls(mean_square=rms**2, beyond=beyond, power=float(sums[2].sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Mixture:
    """Samples of many vectors, each with a chance; arrays have the shape [samples]."""

    place: NDArray[np.intp]
    """Vector that a sample is of."""
    chance: Reals
    """How likely it is among those of its vector."""
    kind: NDArray[np.intp]
    """Which of `beyond` it has."""
    mean_square: Reals
    power: Reals
    beyond: Reals
    """`_Samples.beyond` of unlike samples, [kinds, 3, thresholds]."""

    def mean(self, values: Reals, vectors: int) -> Reals:
        """Return the mean of each vector, [vectors], of what its samples have."""
        return np.bincount(self.place, self.chance * values, vectors).astype(np.float64)

    def cut_off(self, ranges: Reals) -> tuple[Reals, Reals]:
        """Return the gain that ranges [vectors] leave to samples, and the mean square error beside it.

        Samples of a sum are independent, hence one gain for all: 1 less what is lost along the exact samples.
        """
        range_, vectors = ranges[self.place], len(ranges)
        relative = range_ / np.sqrt(self.mean_square)
        at = np.clip(np.searchsorted(_THRESHOLDS, relative), 1, len(_THRESHOLDS) - 2)
        low, high = _THRESHOLDS[at - 1], _THRESHOLDS[at]
        share = np.clip((relative - low) / (high - low), 0.0, 1.0)[:, None]
        near = (1.0 - share) * self.beyond[self.kind, :, at - 1] + share * self.beyond[self.kind, :, at]
        weight, weighted, power = near.T
        exact = self.mean(self.power, vectors)
        along = self.mean(power - range_ * weighted, vectors) / exact
        lost = self.mean(power - 2.0 * range_ * weighted + range_**2 * weight, vectors)
        return 1.0 - along, np.maximum(0.0, lost - along**2 * exact)


@functools.lru_cache(maxsize=8192)
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
    (tile_a, scale_a), (tile_b, scale_b) = (
        _drawn(law, width, row, count, all_of_them, seed)
        for seed, (law, count, all_of_them) in enumerate(zip((a, b), larger, most, strict=True))
    )
    size = np.abs(tile_a.astype(np.float32) @ tile_b.astype(np.float32).T)
    return _Samples.of(size.ravel(), np.outer(scale_a, scale_b).astype(np.float32).ravel())


@functools.lru_cache(maxsize=1024)
def _meeting_samples(operands: Operands, length: int, width: int, whole: bool) -> _Samples:
    """Return samples of operands whose channels are unlike: all rows meet the same ones in a sample.

    Samples of channels that are loud in both operands clip, in every row; so many vectors of each operand are
    drawn for each sample of a sum that there are `_VECTORS` squared outputs, of whole rows where each has a
    scale of its own.
    """
    generator = np.random.default_rng(_SEED)
    scales = channel_scales(
        operands, length, generator.standard_normal((2, math.prod(channel_blocks(length))))
    )
    tiles = max(1, min(length, scales[0].size) // width)
    rows = scales[0].size // (tiles * width)
    count = max(2, round(_VECTORS / math.sqrt(rows * tiles)))
    drawn, full_scales = [], []
    for law, of_channels in zip((operands.a, operands.b), scales, strict=True):
        channels = np.resize(of_channels, (rows, tiles, 1, width))
        x = law.elements(generator, rows * tiles * count, width).reshape(rows, tiles, count, width) * channels
        scale = np.ones((rows, 1, count, 1))
        if whole:
            scale = np.maximum(np.abs(x).max((1, 3), keepdims=True), _TINY)
        drawn.append((x / scale).astype(np.float32))
        full_scales.append(np.broadcast_to(scale**2 / np.mean(scale**2), (rows, tiles, count, 1)))
    size, weight = np.abs(drawn[0] @ drawn[1].mT), full_scales[0] * full_scales[1].mT
    return _Samples.of(size.ravel(), weight.astype(np.float32).ravel())


@functools.lru_cache(maxsize=64)
def _drawn(  # noqa: PLR0917 - a cache takes no keywords
    law: OperandLaw, width: int, row: int, larger: int, most: int, seed: int
) -> tuple[Reals, Reals]:
    """Return vectors over their full scales, [vectors, width], and the squares of those over their mean."""
    generator = np.random.default_rng((_SEED, seed))
    x = law.vectors(generator, _VECTORS, width, larger)
    scale = np.ones((_VECTORS, 1))
    if row:
        rest = largest_quantiles(law, row - width, most - larger, generator.random(_VECTORS))
        scale = np.maximum(np.abs(x).max(1), rest)[:, None]
    return x / scale, (scale**2 / np.mean(scale**2))[:, 0]


def misread_variances(spec: AnalogSpec, pieces: _Pieces) -> Reals:
    """Return the mean square error of samples by misread remainders, in products of mantissas, [vectors].

    Notes
    -----
    How many steps each remainder is off is convolved over all residues of the dynamic range; a sum that
    leaves the range by it wraps around. Sums are Gaussian with the operands' mean square.
    """
    residues = spec.residues
    if residues is None:
        return np.zeros_like(pieces.weight)
    unit = float(largest_code(spec.dac_bits)) ** 2
    shift, chance = misread_shifts(residues)
    half, whole = residues.product / 2.0, residues.product
    wrapped = chance * ((shift - whole) ** 2 - shift**2)
    width, (a, b) = np.array(pieces.width, dtype=float), pieces.unit_square
    deviations, found = unit * np.sqrt(width * a * b), np.full(len(width), float(np.sum(chance * shift**2)))
    for place, deviation in enumerate(deviations):
        near = half - shift < min(width[place] * unit, _FARTHEST * deviation)  # no sum is larger
        wraps = scipy.special.ndtr((shift[near] - half) / max(deviation, _TINY))
        found[place] += float(wrapped[near] @ wraps)
    return found
