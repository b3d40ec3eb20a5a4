"""Signal-to-noise ratio of executed products, predicted from an `AnalogSpec` and the operands' statistics.

`optical.execution.numerics.AnalogNumerics` draws the noise of each output; here the same law is averaged over
the operands in closed form. The steps:

1. `_vector_pairs` describes the rows of A and columns of B that share a full scale, by their moments at full
   scale and their rounding (`simulator.operands.statistics`).
2. `_noise_per_unit` states the noise over signal that one unit of each error of a core makes of such vectors;
   `_statistics` sums these over all products. This part does not depend on the light and is cached, so that
   other light costs little.
3. `_conversion` finds the output converter's range, and the gain and error of clipping, from the distribution
   of analog samples. Where no closed form exists, samples are drawn once from the operands' law
   (`_SampleMoments`).
4. `_noise` multiplies the errors of a specification by their units.
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
"""Names of causes of noise, beside those of a sample (`AnalogSpec.noise_of_sample`). `UNLIKE` is the
differences of gains and couplers between the parts of a chip."""
_FINEST = 4096
"""Largest code with which rounding is computed; finer rounding is below -80 dB of full scale anyhow."""
_SELDOM = 1e-4
"""Chance below which a number of outlier channels in a sample is left out of the distribution of samples."""
_VECTORS, _SEED = 256, 5
"""Vectors of each operand from which samples are drawn for their distribution, and seed of the draw;
choices."""
_WHOLE_ROWS = 2048
"""Longest sums whose whole rows are drawn for that; in longer ones all rows have nearly the same maximum."""
_FARTHEST = 9.0
"""Standard deviations that a Gaussian sum never exceeds, for the chance to wrap around; dimensionless."""
_TINY, _LEAST = 1e-300, 1e-30
"""Least divisors, in double and in single precision."""


@dataclass(frozen=True, kw_only=True)
class Product(HashedOnce):
    """Products of one shape, phase and operands; A is [M, K] and B [K, N]."""

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
    """Weight of their noise in an average, for instance the multiply-accumulates of all of them."""

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
    """Return the precision of products of one kind on a core.

    Parameters
    ----------
    spec : AnalogSpec
        Errors of the core.
    operands : Operands
        Statistics of A and B.
    length : int
        K of the product.
    rows, columns : int
        M and N, which matter only for scales of whole tensors and for which operand is loaded.

    Raises
    ------
    ParameterError
        If a size is below 1.
    """
    return predicted_of(spec, (Product(operands=operands, length=length, rows=rows, columns=columns),))


def predicted_of(spec: AnalogSpec, products: tuple[Product, ...]) -> Precision:
    """Return the precision of several products together: noise over signal, averaged by their weights.

    Parameters
    ----------
    spec : AnalogSpec
        Errors of the core, taken for products of all phases.
    products : tuple of Product
        Products, at least one of a weight above zero.

    Notes
    -----
    Powers are means over outputs. An output is ``y = g (sum Q(a) Q(b) + noise)``; the gain g that fits best
    is removed. Elements of the two operands are independent, but for a common pattern, which raises the
    signal by the operands' coherence.

    With transforms, rotated operands count as Gaussian with their rows' spread, as sums of many channels are;
    that a rotation narrower than the sum leaves differences between its blocks is neglected. Noise that is
    drawn anew for each pass falls with their number. Slices count as one finer grid; that later slices add
    noise of their own, a few percent, is neglected.
    """
    outputs = 0 if spec.tile is None else spec.tile.outputs
    geometry = _Geometry(
        spec.scale, spec.rounding, spec.dac_bits, spec.analog_length, outputs, spec.transforms
    )
    statistics = _statistics(geometry, products)
    noise = _noise(spec, statistics)
    if spec.transforms is not None and spec.transforms.passes > 1:
        fixed = {UNLIKE} | ({ROUNDING} if spec.rounding is Rounding.NEAREST else set())
        noise = {
            cause: value / (1.0 if cause in fixed else spec.transforms.passes)
            for cause, value in noise.items()
        }
    return Precision(noise={cause: value for cause, value in noise.items() if value > 0.0})


class _Geometry(NamedTuple):
    """Part of a specification that does not depend on the light: scales, rounding, lengths, transforms."""

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
class _VectorPair:
    """A vector of A and one of B that are multiplied, each at a full scale of its own."""

    count: float
    """Number of these pairs in the sum of an output."""
    length: int
    """Elements of a vector."""
    a: Scaled
    """Moments of the vector of A at full scale."""
    b: Scaled
    """Moments of the vector of B at full scale."""
    outliers: tuple[int, int] = (0, 0)
    """Outlier channels in the vectors of A and of B."""

    @property
    def signal(self) -> float:
        """Mean square of the rounded product of incoherent operands, by its best gain."""
        return self.length * (self.a.overlap * self.b.overlap) ** 2 / (self.a.square * self.b.square)


def _light_product(product: Product, transforms: OperandTransforms | None) -> tuple[Product | None, float]:
    """Return the product that the core computes beside the electronic channels, and its share of the power.

    The product is None if electronics computes all channels.
    """
    if transforms is None:
        return product, 1.0
    operands, length = product.operands, product.length
    count = min(length, math.ceil(transforms.electronic_share * length))
    if count == length:
        return None, 0.0
    quiet = without_loudest(operands, length, count)
    a, b = operands.a, operands.b
    if count:
        a, b = (replace(x, outlier_share=0.0) if x.outliers(length) <= count else x for x in (a, b))
    coherence = operands.coherence * quiet.meeting
    if transforms.rotation_width > 1:
        a, b = (OperandLaw(row_spread=x.row_spread) for x in (a, b))
        coherence *= length / (length - count)  # of all channels, the loudest ones zero
        operands = replace(operands, a=a, b=b, coherence=coherence, meeting=1.0)
        return replace(product, operands=operands), quiet.kept
    operands = replace(operands, a=a, b=b, coherence=coherence, meeting=operands.meeting * quiet.meeting)
    return replace(product, operands=operands, length=length - count), quiet.kept


def _vector_pairs(geometry: _Geometry, product: Product) -> Iterator[_VectorPair]:
    """Yield the pairs of vectors of a product: rows, at scales of rows or tensors, or blocks.

    Blocks differ in the number of outlier channels in them.
    """
    operands, length, codes = product.operands, product.length, geometry.codes
    if geometry.scale is Scale.BLOCK:
        width = geometry.analog_length
        blocks_b = blocks_of(operands.b, length, width)
        for count, size, in_a in blocks_of(operands.a, length, width):
            a = scaled_moments(operands.a, size, codes, outliers=in_a)
            # A block of A meets one of B of the same size; their numbers of outliers are independent.
            same_size = [(weight, in_b) for weight, size_b, in_b in blocks_b if size_b == size]
            total = math.fsum(weight for weight, _ in same_size)
            for weight, in_b in same_size:
                b = scaled_moments(operands.b, size, codes, outliers=in_b)
                yield _VectorPair(count=count * weight / total, length=size, a=a, b=b, outliers=(in_a, in_b))
        return
    counts = (product.rows, product.columns) if geometry.scale is Scale.TENSOR else (1, 1)
    a, b = (
        scaled_moments(law, length, codes, rows=count)
        for law, count in zip((operands.a, operands.b), counts, strict=True)
    )
    outliers = (operands.a.outliers(length), operands.b.outliers(length))
    yield _VectorPair(count=1.0, length=length, a=a, b=b, outliers=outliers)


class _Sums(NamedTuple):
    """Noise over signal of all products by each error of a core, at a variance of 1 and without clipping."""

    rounding: float
    """Rounding of operands; not per unit, but the noise over signal itself."""
    constant: float
    """Variance of a sample that does not depend on operands."""
    by_each: float
    """Variance of a sample per operand squared."""
    by_product: float
    """Variance of a sample per product squared."""
    signal: float
    """Variance of an output's gain, relative."""
    loaded: float
    """Variance of loaded elements, in full scales squared."""
    tile: float
    """Variance of loaded elements over the mean square of their tile."""
    norm: float
    """Variance of a sample per square of the largest singular value of its tile."""
    node: float
    """Squared imbalance of the couplers of nodes, where a row and a column of unlike energy meet."""
    line: float
    """Squared imbalance of couplers at the edges of the comb, which differs line by line."""


_ADDED_AT_READOUT = ("constant", "by_each", "norm")
"""Fields of `_Sums` whose noise is added to the signal, so that a gain below 1 raises it relative to that."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Statistics:
    """Pairs of vectors of all products, V of them, and their noise per unit of error, whatever the light."""

    scale: Scale
    """Granularity of the operands' full scale."""
    units: Reals
    """Contribution of each pair to each of `_Sums`, [V, errors]."""
    vectors: tuple[tuple[Product, _VectorPair], ...]
    """Pairs of vectors, V of them, each with its product."""
    width: tuple[int, ...]
    """Products in an analog sample of each pair, V of them."""
    weight: Reals
    """Noise over signal that a variance of 1, in full scales squared, of each sample of a pair makes, [V]."""
    unit_square: tuple[Reals, Reals]
    """Mean squares of the elements of A and of B at full scale, [V] each."""
    coherence: Reals
    """Coherence of the operands, [V]."""
    norm_square: Reals
    """Mean square of the largest singular value of a sample's tile at full scale, [V]; zero without tiles."""

    @functools.cached_property
    def sums(self) -> _Sums:
        """Noise over signal per unit of each error, clipping left out."""
        return _Sums(*self.units.sum(0).tolist())

    def sums_with_gain(self, gain: Reals) -> _Sums:
        """Return the same where clipping leaves the signals of each pair a gain [V]."""
        raised = _Sums(*(gain**-2.0 @ self.units).tolist())
        return self.sums._replace(**{name: getattr(raised, name) for name in _ADDED_AT_READOUT})

    @functools.cached_property
    def samples(self) -> _Mixture:
        """Distribution of the analog samples of all pairs."""
        components = [
            (pair, chance, moments)
            for pair, ((product, vectors), width) in enumerate(zip(self.vectors, self.width, strict=True))
            for chance, moments in _samples_by_outliers(self.scale, product.operands, vectors, width)
        ]
        distinct = dict.fromkeys(moments for *_, moments in components)
        kinds = {moments: index for index, moments in enumerate(distinct)}
        return _Mixture(
            pair=np.array([pair for pair, *_ in components], dtype=np.intp),
            chance=np.array([chance for _, chance, _ in components]),
            kind=np.array([kinds[moments] for *_, moments in components], dtype=np.intp),
            mean_square=np.array([moments.mean_square for *_, moments in components]),
            power=np.array([moments.power for *_, moments in components]),
            beyond=np.array([moments.beyond for moments in distinct]).reshape(-1, 3, len(_THRESHOLDS)),
        )


@functools.lru_cache(maxsize=128)
def _statistics(geometry: _Geometry, products: tuple[Product, ...]) -> _Statistics:
    """Return the statistics of products, which weigh by their power in light and their weights."""
    counted = [product for product in products if product.weight > 0.0]
    if not counted:
        msg = "an average precision needs at least one product with a weight above 0"
        raise ParameterError(msg)
    total_weight = math.fsum(product.weight for product in counted)
    pairs: list[tuple[Product, _VectorPair]] = []
    weights: list[float] = []
    for product in counted:
        light, kept = _light_product(product, geometry.transforms)
        if light is None:
            continue
        vectors = list(_vector_pairs(geometry, light))
        signal = light.operands.coherence * math.fsum(pair.count * pair.signal for pair in vectors)
        share = product.weight / total_weight * kept / signal if signal > 0.0 else math.inf
        pairs += [(light, pair) for pair in vectors]
        weights += [share * pair.count for pair in vectors]
    norm_square = np.array([_norm_square(geometry, product, pair) for product, pair in pairs])
    unit = np.array(
        [
            _noise_per_unit(*pair, geometry.analog_length, norm)
            for pair, norm in zip(pairs, norm_square, strict=True)
        ]
    )
    unit, weight = unit.reshape(-1, len(_Sums._fields)), np.array(weights)
    return _Statistics(
        scale=geometry.scale,
        units=weight[:, None] * unit,
        vectors=tuple(pairs),
        width=tuple(min(pair.length, geometry.analog_length) for _, pair in pairs),
        weight=weight * unit[:, _Sums._fields.index("constant")],
        unit_square=(
            np.array([pair.a.unit_square for _, pair in pairs]),
            np.array([pair.b.unit_square for _, pair in pairs]),
        ),
        coherence=np.array([product.operands.coherence for product, _ in pairs]),
        norm_square=norm_square,
    )


_TILES, _LONGEST_HELD = 256, 2048
"""Least tiles that are drawn to find their largest singular values, and longest rows drawn for them;
choices."""


def _norm_square(geometry: _Geometry, product: Product, vectors: _VectorPair) -> float:
    """Return the mean square of the largest singular value of a sample's tile, in full scales squared.

    Zero without tiles. Tiles at the edge of the operand, with fewer outputs, are averaged in.
    """
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
    over_energy = math.fsum(
        share * _norm_over_energy(geometry.scale, common, drawn, width, columns)
        for columns, share in ((geometry.tile_outputs, outputs - rest), (rest, rest))
        if share
    )
    return width * scaled.unit_square * over_energy / outputs


@functools.lru_cache(maxsize=1024)
def _norm_over_energy(scale: Scale, operands: Operands, length: int, width: int, outputs: int) -> float:
    """Return the mean square of the largest singular value of tiles of A over the mean energy of their rows.

    Notes
    -----
    With independent elements it is near (1 + sqrt(outputs/width))^2, 4 for square tiles (Marchenko and Pastur
    1967). Outlier channels, and a pattern that rows have in common, raise it; hence tiles are drawn at
    random.
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


def _noise_per_unit(product: Product, vectors: _VectorPair, analog_length: int, norm_square: float) -> _Sums:
    """Return the power of the noise that each error makes of vectors at a variance of 1.

    ``a.coded_square * b.scale_square`` is the mean energy of an element of A times the full scale of B
    squared, and so on. `uneven` is the mean square of the difference of the energies of a row and a column,
    in units of both full scales; `spread` that of random differences from element to element.
    """
    a, b, length, signal = vectors.a, vectors.b, vectors.length, vectors.signal
    loaded, other = (b, a) if loads_second(product.rows, product.columns) else (a, b)
    uneven = a.energy_square * b.scale_square + a.scale_square * b.energy_square
    uneven -= 2.0 * length**2 * a.coded_square * b.coded_square
    scales, samples = a.scale_square * b.scale_square, length / min(length, analog_length)
    of_element = a.unit_fourth - a.unit_square**2 + b.unit_fourth - b.unit_square**2
    spread = max(0.0, length * of_element) * a.scale_square * b.scale_square
    # One of the channels that make the tile's mean square is that which the wrong element meets.
    meeting = 1.0 + (product.operands.meeting - 1.0) / min(length, analog_length)
    return _Sums(
        rounding=signal * product_rounding(a.rounding, b.rounding) if signal else math.inf,
        constant=math.ceil(length / analog_length) * a.scale_square * b.scale_square,
        by_each=length * (a.coded_square * b.scale_square + a.scale_square * b.coded_square),
        by_product=length * a.coded_square * b.coded_square,
        signal=signal * product.operands.coherence,
        loaded=length * loaded.scale_square * other.coded_square,
        tile=length * loaded.scale_square * loaded.unit_square * other.coded_square * meeting,
        norm=samples * scales * norm_square,
        node=0.25 * (max(0.0, uneven) + spread),
        line=0.25 * spread / 3.0,
    )


def _noise(spec: AnalogSpec, statistics: _Statistics) -> dict[str, float]:
    """Return noise over signal by cause."""
    if not math.isfinite(statistics.sums.rounding):
        return {ROUNDING: math.inf}
    conversion, square = _conversion(spec, statistics), spec.product_gain**2
    sums = statistics.sums_with_gain(conversion.gain)
    noise = {ROUNDING: sums.rounding} | {
        cause: (law.constant * sums.constant + law.by_each * sums.by_each + law.by_product * sums.by_product)
        / square
        for cause, law in spec.noise_of_sample().items()
    }
    load_variance = spec.load_variance + (spec.chip.repeated_variance if spec.chip is not None else 0.0)
    noise[RECEIVER] += spec.norm_variance * sums.norm / square
    noise[LOADING] = load_variance * (sums.loaded if spec.tile is None else sums.tile)
    noise[UNLIKE] = _chip_noise(spec, sums)
    if spec.residues is not None:
        unit = largest_code(spec.dac_bits) ** -4.0
        return noise | {
            MISREAD: unit / square * float(statistics.weight @ misread_variances(spec, statistics))
        }
    if math.isinf(spec.adc_enob_bits):
        return noise
    step = conversion.range_ * 2.0 ** (1.0 - spec.adc_enob_bits)
    weight = statistics.weight / (square * conversion.gain**2)
    return noise | {CLIPPING: float(weight @ conversion.lost), READOUT: float(weight @ step**2) / 12.0}


def _chip_noise(spec: AnalogSpec, sums: _Sums) -> float:
    """Return noise over signal of a chip's fixed gains and couplers that are not alike, over its outputs."""
    chip = spec.chip
    if chip is None:
        return 0.0
    gains = chip.element_gain * sums.by_product + chip.output_gain * sums.signal
    return gains + chip.imbalance * sums.node + chip.edge_imbalance**2 * sums.line


class _Conversion(NamedTuple):
    """Range and clipping of the output converter for each pair of vectors."""

    range_: Reals
    """Half of the range, in full-scale products, [V]."""
    gain: Reals
    """Gain that clipping leaves to the signal, [V]."""
    lost: Reals
    """Mean square error of a sample by clipping beside that gain, in full-scale products squared, [V]."""


def _conversion(spec: AnalogSpec, statistics: _Statistics) -> _Conversion:
    """Return the range of the output converter, set by the rms of samples, and its clipping."""
    (a, b), width = statistics.unit_square, np.array(statistics.width, dtype=float)
    without_clipping = _Conversion(
        np.full_like(width, spec.analog_length), np.ones_like(width), np.zeros_like(width)
    )
    if spec.residues is not None or math.isinf(spec.adc_enob_bits) or math.isinf(spec.adc_range_sigma):
        return without_clipping
    signal = spec.product_gain**2 * width * a * b * statistics.coherence
    noise = spec.sample_noise
    power = signal + noise.constant + noise.by_product * width * a * b + noise.by_each * width * (a + b)
    power = power + spec.norm_variance * statistics.norm_square
    range_ = np.minimum(spec.adc_range_sigma * np.sqrt(power), spec.analog_length)
    if math.isinf(spec.adc_bits) or not len(width):
        return without_clipping._replace(range_=range_)
    mean_square = statistics.samples.mean(statistics.samples.mean_square, len(range_))
    gain, lost = statistics.samples.cut_off(range_ * np.sqrt(mean_square / signal))
    return _Conversion(range_, gain, lost * signal / mean_square)


def _samples_by_outliers(
    scale: Scale, operands: Operands, vectors: _VectorPair, width: int
) -> list[tuple[float, _SampleMoments]]:
    """Return the chance and the moments of samples, by the number of outlier channels in them."""
    a, b, length = operands.a, operands.b, vectors.length
    has_outliers = a.outliers(length) or b.outliers(length)
    rows = length if scale is not Scale.TENSOR and (has_outliers or length <= _WHOLE_ROWS) else 0
    if scale is not Scale.BLOCK and (operands.meeting != 1.0 or a.channel_spread or b.channel_spread):
        return [(1.0, _meeting_samples(operands, length, width, rows > 0))]
    a, b = (replace(law, row_spread=0.0) for law in (a, b))  # full scale takes it out
    if width == length:
        return [(1.0, _independent_samples(a, b, width, rows, vectors.outliers, vectors.outliers))]
    most = a.outliers(length), b.outliers(length)
    chances = [_outlier_chances(law, length, width) for law in (a, b)]
    return [
        (chance_a * chance_b, _independent_samples(a, b, width, rows, (in_a, in_b), most))
        for in_a, chance_a in chances[0].items()
        for in_b, chance_b in chances[1].items()
        if chance_a * chance_b > _SELDOM
    ]


def _outlier_chances(law: OperandLaw, length: int, width: int) -> dict[int, float]:
    """Return the chance of each number of outlier channels in a full sample."""
    counts = {outliers: count for count, wide, outliers in blocks_of(law, length, width) if wide == width}
    total = math.fsum(counts.values())
    return {outliers: count / total for outliers, count in counts.items()}


_NARROWEST, _CLOSE, _RANGES = 0.05, 1.02, 360
"""Least converter range, over the rms of samples, for which moments are tabulated, factor from one to the
next, and number of them; choices. The largest is 60."""
_THRESHOLDS = np.append(_NARROWEST * _CLOSE ** np.arange(_RANGES), np.inf)


@dataclass(frozen=True, kw_only=True, eq=False)
class _SampleMoments:
    """Moments of drawn analog samples x beyond converter ranges, from which clipping follows.

    A sample's weight w is the product of the squares of both vectors' full scales, over its mean.
    """

    mean_square: float
    """Mean of x^2, without weights."""
    beyond: Reals
    """Means over all samples of w, w |x| and w x^2 where |x| exceeds each of `_THRESHOLDS` rms, else 0;
    [3, thresholds]."""
    power: float
    """Mean of w x^2."""

    @classmethod
    def of(cls, size: NDArray[np.float32], weight: NDArray[np.float32]) -> _SampleMoments:
        """Return the moments of samples, from their magnitudes and weights, both [samples]."""
        rms = math.sqrt(float(np.mean(size**2)))
        over = np.log(np.maximum(size, _LEAST) / np.float32(rms * _NARROWEST)) / np.float32(math.log(_CLOSE))
        bins = np.clip(np.ceil(over), 0, _RANGES).astype(np.intp)
        moments = (weight, weight * size, weight * size**2)
        sums = np.stack([np.bincount(bins, moment, len(_THRESHOLDS)) for moment in moments]) / len(size)
        beyond = np.cumsum(sums[:, ::-1], axis=1)[:, ::-1]  # in bin i: above threshold i - 1
        beyond = np.concatenate((beyond[:, 1:], np.zeros((3, 1))), axis=1)
        return cls(mean_square=rms**2, beyond=beyond, power=float(sums[2].sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Mixture:
    """Distributions of samples of V pairs of vectors: C components, each of one pair and with a chance."""

    pair: NDArray[np.intp]
    """Pair of vectors of each component, [C]."""
    chance: Reals
    """Probability of each component within its pair, [C]."""
    kind: NDArray[np.intp]
    """Index of each component in `beyond`, [C]."""
    mean_square: Reals
    """`_SampleMoments.mean_square` of each component, [C]."""
    power: Reals
    """`_SampleMoments.power` of each component, [C]."""
    beyond: Reals
    """`_SampleMoments.beyond` of distinct components, [kinds, 3, thresholds]."""

    def mean(self, values: Reals, pairs: int) -> Reals:
        """Return the mean of components' values [C] over each pair, [V]."""
        return np.bincount(self.pair, self.chance * values, pairs).astype(np.float64)

    def cut_off(self, ranges: Reals) -> tuple[Reals, Reals]:
        """Return the gain that clipping at ranges [V] leaves, and the mean square error beside it, both [V].

        As `optical.execution.readout` finds it from a probe: clipping takes d off a sample x; the gain is
        ``1 - <d x> / <x^2>``. Moments between two thresholds are interpolated.
        """
        range_, pairs = ranges[self.pair], len(ranges)
        relative = range_ / np.sqrt(self.mean_square)
        at = np.clip(np.searchsorted(_THRESHOLDS, relative), 1, len(_THRESHOLDS) - 2)
        low, high = _THRESHOLDS[at - 1], _THRESHOLDS[at]
        share = np.clip((relative - low) / (high - low), 0.0, 1.0)[:, None]
        near = (1.0 - share) * self.beyond[self.kind, :, at - 1] + share * self.beyond[self.kind, :, at]
        weight, weighted, power = near.T
        exact = self.mean(self.power, pairs)
        along = self.mean(power - range_ * weighted, pairs) / exact
        lost = self.mean(power - 2.0 * range_ * weighted + range_**2 * weight, pairs)
        return 1.0 - along, np.maximum(0.0, lost - along**2 * exact)


@functools.lru_cache(maxsize=8192)
def _independent_samples(  # noqa: PLR0917 - a cache takes no keywords
    a: OperandLaw,
    b: OperandLaw,
    width: int,
    row: int,
    outliers: tuple[int, int],
    row_outliers: tuple[int, int],
) -> _SampleMoments:
    """Return the moments of samples whose operands are independent from channel to channel.

    Parameters
    ----------
    a, b : OperandLaw
        Laws of the operands.
    width, row : int
        Products of a sample, and elements that share a full scale; 0 if all vectors have the same.
    outliers, row_outliers : tuple of int
        Outlier channels of A and of B in the sample, and in the whole row.
    """
    (tile_a, scale_a), (tile_b, scale_b) = (
        _drawn_vectors(law, width, row, in_sample, in_row, seed)
        for seed, (law, in_sample, in_row) in enumerate(zip((a, b), outliers, row_outliers, strict=True))
    )
    size = np.abs(tile_a.astype(np.float32) @ tile_b.astype(np.float32).T)
    return _SampleMoments.of(size.ravel(), np.outer(scale_a, scale_b).astype(np.float32).ravel())


@functools.lru_cache(maxsize=1024)
def _meeting_samples(operands: Operands, length: int, width: int, whole: bool) -> _SampleMoments:
    """Return the moments of samples where channels differ in size, so that large ones of A and B may meet.

    All rows meet the same channels in a sample, and samples with channels that are large in both operands
    clip in every row. About `_VECTORS` squared outputs are drawn in all. With `whole`, rows are drawn whole,
    for each has a full scale of its own.
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
    return _SampleMoments.of(size.ravel(), weight.astype(np.float32).ravel())


@functools.lru_cache(maxsize=64)
def _drawn_vectors(  # noqa: PLR0917 - a cache takes no keywords
    law: OperandLaw, width: int, row: int, outliers: int, row_outliers: int, seed: int
) -> tuple[Reals, Reals]:
    """Return vectors at full scale, [`_VECTORS`, width], and their squared full scales over the mean."""
    generator = np.random.default_rng((_SEED, seed))
    x = law.vectors(generator, _VECTORS, width, outliers)
    scale = np.ones((_VECTORS, 1))
    if row:
        rest = largest_quantiles(law, row - width, row_outliers - outliers, generator.random(_VECTORS))
        scale = np.maximum(np.abs(x).max(1), rest)[:, None]
    return x / scale, (scale**2 / np.mean(scale**2))[:, 0]


def misread_variances(spec: AnalogSpec, statistics: _Statistics) -> Reals:
    """Return the mean square error of samples by misread remainders, in products of mantissas squared, [V].

    Notes
    -----
    `misread_shifts` has the distribution of the error of a sum. A sum that leaves the dynamic range by it
    wraps around. Sums are taken as Gaussian, with the operands' mean square.
    """
    residues = spec.residues
    if residues is None:
        return np.zeros_like(statistics.weight)
    unit = float(largest_code(spec.dac_bits)) ** 2
    shift, chance = misread_shifts(residues)
    half, whole = residues.product / 2.0, residues.product
    wrapped = chance * ((shift - whole) ** 2 - shift**2)
    width, (a, b) = np.array(statistics.width, dtype=float), statistics.unit_square
    deviations = unit * np.sqrt(width * a * b)
    variances = np.full(len(width), float(np.sum(chance * shift**2)))
    for pair, deviation in enumerate(deviations):
        may_wrap = half - shift < min(width[pair] * unit, _FARTHEST * deviation)
        chance_to_wrap = scipy.special.ndtr((shift[may_wrap] - half) / max(deviation, _TINY))
        variances[pair] += float(wrapped[may_wrap] @ chance_to_wrap)
    return variances
