"""Specifications of executed products: frozen records that can be printed and stored as JSON, without torch.

A core derives an `AnalogSpec` from its link budget and converters (`Core.analog(phase)`); `AnalogNumerics`
executes it. All variances are in units where one full-scale product, |a| = |b| = 1, is 1, and refer to one
analog sample, that is to the sum of `analog_length` products that one ADC conversion reads.

`Residues` are for cores that compute in residue numbers: an integer y is held as its remainders to several
coprime moduli, each small enough for an analog core. Products and sums are computed remainder by remainder,
and the Chinese remainder theorem restores y, exactly where |y| is below half of the moduli's product. A
remainder that is misread by one step throws y off by a large constant.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import numpy as np
import scipy

from optical.devices.limits import bits_of_noise
from optical.noise.chip import ChipErrors, CommonEncoding, CommonNoise
from optical.noise.link_budget import FLUCTUATION, SHOT, LightNoise, SampleNoise, check_light
from simulator.amounts import Amount, Reals
from simulator.errors import ParameterError, check_choices, check_positive, check_range
from simulator.files import record_from_json, record_to_json
from simulator.operators import Phase


class Remainder(StrEnum):
    """Place at which the remainder of a sum is taken."""

    ANALOG = "analog"
    """Before the ADC, by folding the signal, so that the ADC need only resolve one modulus."""
    DIGITAL = "digital"
    """After the ADC, which must resolve the whole sum."""


_FINE_BITS = 20.0
"""Bits of an output converter whose rounding is negligible (`AnalogSpec.clipping_only`)."""


def symmetric_residues(modulus: int) -> range:
    """Return the remainders of a modulus, as close to zero as they can be: -2 to 2 for 5, -1 to 2 for 4."""
    return range(-((modulus - 1) // 2), modulus // 2 + 1)


def largest_residue(modulus: int) -> int:
    """Return the largest magnitude of a symmetric remainder."""
    return modulus // 2


def residue_mean_square(modulus: int) -> float:
    """Return the mean square of remainders, spread evenly, over the square of the largest; dimensionless."""
    residues = symmetric_residues(modulus)
    return sum(residue**2 for residue in residues) / (len(residues) * largest_residue(modulus) ** 2)


def misreading(sigma_steps: float) -> float:
    """Return the chance that Gaussian noise, in steps rms, exceeds half a step to either side, 0 to 1."""
    return math.erfc(0.5 / (sigma_steps * math.sqrt(2.0))) if sigma_steps > 0.0 else 0.0


def any_of(chances: Collection[float]) -> float:
    """Return the chance that at least one of independent events happens, 0 to 1."""
    if max(chances) >= 1.0:
        return 1.0
    return -math.expm1(math.fsum(math.log1p(-chance) for chance in chances))


@dataclass(frozen=True, kw_only=True, slots=True)
class Residues:
    """Moduli of a residue core, and the noise with which each remainder is read.

    Notes
    -----
    A remainder read one step too high moves y by the modulus' reconstruction weight, (M/m) times the inverse
    of M/m modulo m, taken modulo M to the range from -M/2 to M/2.

    References
    ----------
    C. Demirkiran et al., "Mirage: an RNS-based photonic accelerator for DNN training", arXiv:2311.17323:
    moduli, block floating point and dynamic range.
    """

    moduli: tuple[int, ...]
    """Pairwise coprime."""
    sigmas: tuple[float, ...]
    """Rms noise of reading each remainder, in its steps."""

    def __post_init__(self) -> None:
        for modulus in self.moduli:
            if modulus < 2 or modulus != int(modulus):
                msg = f"moduli must be whole and at least 2; got {self.moduli}"
                raise ParameterError(msg)
        if not self.moduli or math.lcm(*self.moduli) != math.prod(self.moduli):
            msg = f"moduli must be pairwise coprime, at least one; got {self.moduli}; try 3, 4, 5 and 7"
            raise ParameterError(msg)
        if len(self.sigmas) != len(self.moduli) or min(self.sigmas) < 0.0:
            msg = f"sigmas must be one rms noise, at least 0, for each modulus; got {self.sigmas}"
            raise ParameterError(msg)

    @property
    def product(self) -> int:
        """Dynamic range M: the number of integers that the moduli tell apart."""
        return math.prod(self.moduli)

    @property
    def weights(self) -> tuple[int, ...]:
        """Change of the result when each remainder is read one step too high, from -M/2 to M/2."""
        product, weights = self.product, []
        for modulus in self.moduli:
            others = product // modulus
            weight = others * pow(others, -1, modulus)
            weights.append(weight - product if 2 * weight > product else weight)
        return tuple(weights)

    @property
    def misreadings(self) -> tuple[float, ...]:
        """Chance of misreading each remainder, 0 to 1."""
        return tuple(misreading(sigma) for sigma in self.sigmas)

    @property
    def wrong_sample(self) -> float:
        """Chance that any remainder of a sample is misread, 0 to 1."""
        return any_of(self.misreadings)

    @property
    def error_variance(self) -> float:
        """Mean square of a sample's error, in steps of y, while at most one remainder is off by one.

        Notes
        -----
        For sums well inside the dynamic range; one near its end wraps around and errs by up to all of it.
        """
        pairs = zip(self.misreadings, self.weights, strict=True)
        return math.fsum(chance * weight**2 for chance, weight in pairs)

    def sum_bits(self, length: int, mantissa_bits: float) -> float:
        """Return the effective bits of a full-scale sum, limited by rounding of mantissas and misreadings.

        Notes
        -----
        Full scale is n q^2. Rounding has the variance 1/12 per mantissa, times q^2 of its partner.
        """
        largest = largest_code(mantissa_bits)
        noise = length * largest**2 / 6.0 + self.error_variance
        return bits_of_noise(noise / (length * largest**2) ** 2)

    def check_sums(self, largest: float) -> None:
        """Refuse sums up to a magnitude that leaves the dynamic range.

        Parameters
        ----------
        largest : float
            Largest magnitude of a sum.

        Raises
        ------
        ParameterError
            If two such sums have the same remainders.
        """
        if 2 * largest >= self.product:
            msg = (
                f"moduli {self.moduli} tell {self.product} integers apart; sums of up to {largest:g} to "
                "either side need more; take more or larger moduli, shorter sums or smaller mantissas"
            )
            raise ParameterError(msg)


def check_mantissas(
    owner: str, moduli: tuple[int, ...], length: int, mantissa_bits: int, remedy: str
) -> None:
    """Refuse mantissas whose sums of `length` products leave the dynamic range of a core's moduli.

    Raises
    ------
    ParameterError
        If they do; its message begins with `owner` and ends with `remedy`.
    """
    largest, numbers = length * largest_code(mantissa_bits) ** 2, math.prod(moduli)
    if 2 * largest + 1 > numbers:
        msg = (
            f"{owner}: sums of {length} products of {mantissa_bits}-bit mantissas reach {largest} to either "
            f"side, and the moduli {moduli} tell {numbers} numbers apart; {remedy}"
        )
        raise ParameterError(msg)


@dataclass(frozen=True, kw_only=True, eq=False)
class Misread:
    """Samples with at least one misread remainder, W of them."""

    index: np.ndarray
    """Numbers of the samples, ascending, int64 [W]."""
    shift: np.ndarray
    """Error of the integer before it is folded into the dynamic range, float64 [W]."""


def draw_misread(residues: Residues, count: int, generator: np.random.Generator) -> Misread:
    """Return the misread ones of `count` samples, and their errors; drawn anew at every use.

    Notes
    -----
    Each remainder of each sample has Gaussian noise of its own and is rounded to whole steps. Only misread
    ones are drawn, by the same law, so that the cost is in proportion to their number: gaps between them are
    geometric with the chance of `misreading`, and the number of steps follows the Gaussian's tails beyond
    half a step, by their quantile function.
    """
    indices, shifts = [np.empty(0, np.int64)], [np.empty(0)]
    for sigma, weight in zip(residues.sigmas, residues.weights, strict=True):
        misread = _random_places(misreading(sigma), count, generator)
        if misread.size:
            indices.append(misread)
            shifts.append(weight * _misread_steps(sigma, misread.size, generator))
    index, inverse = np.unique(np.concatenate(indices), return_inverse=True)
    shift = np.bincount(inverse, np.concatenate(shifts), minlength=index.size)
    return Misread(index=index, shift=shift.astype(np.float64))


@functools.lru_cache(maxsize=256)
def misread_shifts(residues: Residues) -> tuple[Reals, Reals]:
    """Return the possible magnitudes of a sum's error by misread remainders, and their chances, both [n].

    The error is taken modulo the dynamic range M, at most M/2. Its distribution is the convolution over the
    moduli of that of each remainder's misreading, in steps, times its weight.
    """
    product = residues.product
    chance = np.zeros(product)
    chance[0] = 1.0
    for sigma, weight in zip(residues.sigmas, residues.weights, strict=True):
        if sigma <= 0.0:
            continue
        most = max(1, math.ceil(8.0 * sigma))
        steps = np.arange(-most, most + 1)
        bounds = scipy.special.ndtr((steps[:, None] + np.array([-0.5, 0.5])) / sigma)
        step_chance = np.where(steps > 0, bounds[::-1, 1] - bounds[::-1, 0], bounds[:, 1] - bounds[:, 0])
        chance = sum(
            share * np.roll(chance, int(step * weight))
            for step, share in zip(steps, step_chance, strict=True)
        )
    shift = np.minimum(np.arange(product), product - np.arange(product)).astype(np.float64)
    possible = chance > 0.0
    return shift[possible], chance[possible]


def _random_places(chance: float, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return an ascending random subset of 0 to ``count - 1``, to which each belongs with the same chance."""
    if chance <= 0.0:
        return np.empty(0, np.int64)
    at_once = math.ceil(count * chance + 6.0 * math.sqrt(count * chance) + 1.0)
    drawn, last = [], -1
    while last < count:
        gaps = np.minimum(generator.geometric(chance, at_once), count + 1)
        drawn.append(last + np.cumsum(gaps))
        last = int(drawn[-1][-1])
    places = np.concatenate(drawn)
    return places[: np.searchsorted(places, count)]


def _misread_steps(sigma: float, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return draws of rounded Gaussian noise, in whole steps, given that they are not zero, shape [count]."""
    tail = 0.5 * misreading(sigma) * (1.0 - generator.random(count))
    size = np.maximum(np.rint(-sigma * scipy.special.ndtri(tail)), 1.0)
    return np.where(generator.random(count) < 0.5, -size, size)


def largest_code(bits: float) -> int:
    """Return the largest code of a symmetric signed converter, or mantissa, of a number of bits."""
    return max(1, math.floor(2.0 ** (bits - 1.0)) - 1)


class Scale(StrEnum):
    """Elements of an operand that share a full scale."""

    TENSOR = "tensor"
    """All of them."""
    ROW = "row"
    """All of a row of A, and all of a column of B."""
    BLOCK = "block"
    """All of a row, or column, within one analog sample: block floating point."""


class Rounding(StrEnum):
    """Rounding of an operand to the converter's grid."""

    NEAREST = "nearest"
    STOCHASTIC = "stochastic"
    """Up or down at random, right in the mean."""


class Shot(StrEnum):
    """Law from which shot noise is drawn."""

    GAUSSIAN = "gaussian"
    """Gaussian noise of its variance, which holds where a sample has many photons."""
    COUNTED = "counted"
    """Poisson numbers of photons in both detectors of a balanced pair."""


@dataclass(frozen=True, kw_only=True)
class OperandTransforms:
    """Electronic transforms of a product's operands around a core; on an exact core they change nothing."""

    electronic_share: float = 0.0
    """Share of the channels, those with the largest elements, that electronics multiplies, 0 to 1; rounded
    up."""
    rotation_width: int = 1
    """Width of the Hadamard matrices that rotate both operands along the sum, a power of two; 1 for none."""
    slices: int = 1
    """Slices into which both operands are cut; each slice of A is multiplied by each of B. 1 for none."""
    slice_bits: int = 4
    """Bits of all slices but the last, whose grid is the converter's."""
    passes: int = 1
    """Executions of the product whose mean is taken."""

    def __post_init__(self) -> None:
        check_range(self, "electronic_share", low=0.0, high=1.0)
        check_range(self, "rotation_width", "slices", "passes", low=1)
        check_range(self, "slice_bits", low=2)
        if self.rotation_width & (self.rotation_width - 1):
            below = 2 ** (self.rotation_width.bit_length() - 1)
            msg = (
                f"OperandTransforms: rotation_width ({self.rotation_width}) must be a power of two; "
                f"try {below} or {2 * below}"
            )
            raise ParameterError(msg)


@dataclass(frozen=True, kw_only=True)
class PassiveTile:
    """Tile of weights in a core that cannot amplify light.

    Notes
    -----
    A passive core can only hold a matrix whose singular values are at most 1: the tile over its largest
    singular value. Electronics multiplies by that value behind the detectors, and so raises the receivers'
    noise. Errors of the core itself are in proportion to the tile.
    """

    outputs: int
    """Columns of the loaded operand in one tile; its rows are the products of a sample."""
    norm_variance: float
    """Variance of a sample per square of its tile's largest singular value."""

    def __post_init__(self) -> None:
        check_range(self, "outputs", low=1)
        check_light(self, "norm_variance")


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseLaw:
    """Variance of an output as a function of the energies of its row of A and of its column of B.

    It is ``constant + by_row e + by_column f + by_both e f`` in full-scale products squared, with ``e =
    sum(a^2)`` and ``f = sum(b^2)`` over the whole sum, operands at most 1.
    """

    constant: Amount
    """Variance that does not depend on the operands."""
    by_row: Amount
    """Variance per energy of the row of A."""
    by_column: Amount
    """Variance per energy of the column of B."""
    by_both: Amount
    """Variance per product of both energies."""


ENCODING = "operand converters"
"""Name of a cause of noise: errors of setting operands."""


class HashedOnce:
    """Base of frozen records that are keys of caches: the hash is computed once.

    A dataclass must set ``__hash__ = HashedOnce.__hash__`` in its body, as `dataclass` would write another.
    """

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(tuple(self.__getstate__().values()))

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, for copies and pickles: a hash is valid in one process only."""
        record: Any = self
        return {entry.name: getattr(self, entry.name) for entry in fields(record)}


@dataclass(frozen=True, kw_only=True)
class AnalogSpec(HashedOnce, LightNoise):
    """Errors of the products of a photonic core, as its link budget and converters leave them.

    Notes
    -----
    With operands scaled to [-1, 1] by `scale`, a sample of n = `analog_length` products has noise of the
    variance that `noise_of_sample` states, and is then clipped to the ADC's range and rounded to its codes.
    Half the range is `adc_range_sigma` times the rms of the samples (a gain stage set per product), never
    above n.

    A weight-stationary core loads one operand (`loads_second`): each of its elements is off by a draw of
    `load_variance`, and all vectors of the product meet the same element. It is given the grid and encoding
    error of the streamed operand's converter too, which is a little too much, as its own is finer. In a
    passive core (`tile`) a sample has the noise ``norm_variance S^2`` besides, S being the largest singular
    value of its tile at full scale; outputs of a product are given the mean of S^2 over their tiles.

    Errors that are not drawn anew for each output have records of their own: `chip` those that are fixed for
    a chip, `common` intensity noise that outputs share, `encoding` which outputs share errors of setting
    operands.

    If `shot` counts photons, a sample of the exact sum y has N+ and N- photons in its two detectors, Poisson
    numbers of means (sum(a^2 + b^2) +- 2 g y) / (8 v), v being `shot_variance` and g `product_gain`, and
    reads 2 v (N+ - N-): its mean is g y, its variance that of `noise_of_sample`.
    """

    dac_bits: float
    """Bits of the operand converters; ``math.inf`` for exact operands."""
    adc_bits: float
    """Nominal bits of the output converter; ``math.inf`` for none."""
    adc_enob_bits: float
    """Effective bits of the output converter, at most `adc_bits`; the gap is Gaussian converter noise."""
    adc_range_sigma: float
    """Half of the ADC's range in units of the samples' rms, dimensionless."""
    analog_length: int
    """Products that are summed in the analog domain before one conversion."""
    encoding_variance: float
    """Variance of the error of setting an operand, per unit of the other operand squared."""
    load_variance: float = 0.0
    """Variance of an element of the loaded operand, drawn once per load: in full scales squared or, where the
    core is passive, over the mean square of its tile."""
    product_gain: float = 1.0
    """Mean of the product over phase errors, exp(-s^2/2), dimensionless; calibration does not undo it."""
    scale: Scale = Scale.ROW
    """Elements that share a full scale."""
    rounding: Rounding = Rounding.NEAREST
    """Rounding of the operands."""
    residues: Residues | None = None
    """Residue numbers in which samples are computed; misreadings take the place of all other errors of
    one."""
    tile: PassiveTile | None = None
    """Tile of a passive core in which the loaded operand is held; None for other cores."""
    chip: ChipErrors | None = None
    """Errors that are fixed for the chip."""
    common: CommonNoise | None = None
    """Intensity noise that outputs share, beside `rin_variance`, which they do not."""
    encoding: CommonEncoding | None = None
    """Outputs that share errors of setting operands; None draws them for each output."""
    shot: Shot = Shot.GAUSSIAN
    """Law from which shot noise is drawn."""
    transforms: OperandTransforms | None = None
    """Electronic transforms of the operands before they enter the core."""

    __hash__ = HashedOnce.__hash__

    def __post_init__(self) -> None:
        check_choices(self)
        check_positive(self, "dac_bits", "adc_bits", "adc_enob_bits", "adc_range_sigma")
        check_range(self, "analog_length", low=1)
        super().__post_init__()
        check_light(self, "encoding_variance", "load_variance")
        check_range(self, "product_gain", low=0.0, high=1.0, open_low=True)
        check_range(self, "adc_enob_bits", high=self.adc_bits)
        if self.residues is not None and (self.scale is not Scale.BLOCK or math.isinf(self.dac_bits)):
            msg = "AnalogSpec: residues need scale 'block' and finite dac_bits, those of the mantissas"
            raise ParameterError(msg)
        if self.residues is not None:
            self.residues.check_sums(self.analog_length * largest_code(self.dac_bits) ** 2)

    def noise_of_sample(self, *, own: bool = False) -> dict[str, SampleNoise]:
        """Return the noise of one analog sample by cause, without output converter and chip.

        With `own`, only the noise that an output shares with no other, and that the law of noise draws.
        """
        encoding = self.encoding.own_variance if own and self.encoding is not None else self.encoding_variance
        noise = super().noise_of_sample(own=own) | {ENCODING: SampleNoise(by_each=encoding)}
        if own and self.shot is Shot.COUNTED:
            del noise[SHOT]
        if self.common is not None and not own:
            noise[FLUCTUATION] = SampleNoise(by_product=self.rin_variance + self.common.variance)
        return noise

    @functools.cached_property
    def own_noise(self) -> SampleNoise:
        """Noise of one analog sample that each output draws for itself."""
        return SampleNoise.sum_of(self.noise_of_sample(own=True).values())

    @property
    def norm_variance(self) -> float:
        """Noise of a sample per square of the largest singular value of its tile."""
        return 0.0 if self.tile is None else self.tile.norm_variance

    @property
    def is_exact(self) -> bool:
        """Whether products have no error at all."""
        converted = math.isfinite(min(self.dac_bits, self.adc_enob_bits))
        if converted or self.product_gain != 1.0 or self.load_variance > 0.0:
            return False
        if max(self.norm_variance, *self.sample_noise) > 0.0:
            return False
        return self.chip is None or self.chip.is_empty

    def is_noisy(self, samples: int) -> bool:
        """Return whether the law of noise gives sums of a number of samples any variance."""
        rounded = math.isfinite(self.adc_enob_bits) and (samples > 1 or self.adc_enob_bits < self.adc_bits)
        single = self.encoding is not None and self.encoding_variance > 0.0 and self.encoding.serves_one
        return rounded or single or max(self.norm_variance, *self.own_noise) > 0.0

    def noise_law(
        self,
        samples: int,
        *,
        range_: Amount,
        coupling: Amount,
        clipping: Amount = 0.0,
        norms: Amount = 0.0,
    ) -> NoiseLaw:
        """Return the law of the noise that each output draws on its own.

        Parameters
        ----------
        samples : int
            Analog samples of a sum. A single one is rounded and clipped in execution; for several, rounding
            and clipping count as variance.
        range_ : float or array
            Half of the converter's range, in full-scale products.
        coupling : float or array
            Mean of ``sum((a b)^2)`` over that of ``sum(a^2) sum(b^2)``; 1/n for independent operands.
        clipping : float or array
            Mean square error of a sample by clipping, in full-scale products squared.
        norms : float or array
            Sum over samples of the squares of their tiles' largest singular values.
        """
        noise = self.own_noise
        constant: Amount = samples * noise.constant + self.norm_variance * norms
        if math.isfinite(self.adc_enob_bits):
            executed = 2.0 ** (1.0 - self.adc_bits) if samples == 1 else 0.0
            missing = ((2.0 ** (1.0 - self.adc_enob_bits)) ** 2 - executed**2) * samples / 12.0
            constant = range_**2 * missing + constant
        if samples > 1:
            constant = constant + samples * clipping
        return NoiseLaw(
            constant=constant,
            by_row=noise.by_each,
            by_column=noise.by_each,
            by_both=coupling * noise.by_product,
        )

    @property
    def clipping_only(self) -> AnalogSpec:
        """Specification with the range of the output converter, and no other error."""
        return dataclasses.replace(
            AnalogSpec.ideal(),
            adc_bits=_FINE_BITS,
            adc_enob_bits=_FINE_BITS,
            adc_range_sigma=self.adc_range_sigma,
            analog_length=self.analog_length,
            scale=self.scale,
            transforms=self.transforms,
        )

    @classmethod
    def ideal(cls) -> AnalogSpec:
        """Return the limit of infinite bits and power: the exact product."""
        return cls(
            dac_bits=math.inf,
            adc_bits=math.inf,
            adc_enob_bits=math.inf,
            adc_range_sigma=math.inf,
            analog_length=1,
            thermal_variance=0.0,
            shot_variance=0.0,
            rin_variance=0.0,
            encoding_variance=0.0,
        )

    @classmethod
    def of_residues(
        cls, residues: Residues, length: int, mantissa_bits: int, rounding: Rounding
    ) -> AnalogSpec:
        """Return the errors of sums of `length` products in residue numbers.

        Rounding of mantissas with a common exponent for each block, and misread remainders.
        """
        return dataclasses.replace(
            cls.ideal(),
            dac_bits=float(mantissa_bits),
            analog_length=length,
            scale=Scale.BLOCK,
            rounding=rounding,
            residues=residues,
        )


EXACT = AnalogSpec.ideal()
"""The exact product."""


def loads_second(m: float, n: float) -> bool:
    """Return whether a weight-stationary core loads B of C = A B, and streams A, rather than the reverse.

    Parameters
    ----------
    m, n : float
        Rows of A and columns of B.

    Notes
    -----
    Loading B takes ~KN/(tile) loads past which M vectors stream; C^T = B^T A^T makes the reverse possible at
    the same number of products. The one with fewer loads streams more vectors past each.
    """
    return m >= n


class Mode(StrEnum):
    """Passes of training in which a core's errors act."""

    INFERENCE = "inference"
    """Only where no gradient is wanted: the model is trained digitally and run on the core."""
    AWARE = "aware"
    """In every forward product; the backward pass is digital: noise-aware training."""
    HARDWARE = "hardware"
    """In all three products: training on the core."""


@dataclass(frozen=True, kw_only=True)
class ProductSpecs:
    """Specifications of a product and of its two gradient products.

    Notes
    -----
    Rows are executed in blocks of `row_block`, each with a converter range, a scale and draws of its own,
    which depend on the block's number in the global batch. So any layout that gives whole blocks to processes
    draws the same.
    """

    forward: AnalogSpec
    """C = A B."""
    grad_input: AnalogSpec
    """dA = dC B^T; and dB = A^T dC where B is an activation."""
    grad_weight: AnalogSpec
    """dB = A^T dC where B is a weight; the partial sums of row blocks are added digitally."""
    row_block: int = 256
    """Rows, over all matrices of a batch, that a core is given at a time, 1 or more."""
    exact_tiles: bool = False
    """Whether every analog sample of a sum is executed, rather than one draw with their summed variance."""
    texts: tuple[str, str, str] = field(init=False, repr=False, compare=False)
    """The three specifications as JSON, the form that compiled graphs can hold."""

    def __post_init__(self) -> None:
        check_range(self, "row_block", low=1)
        specs = (self.forward, self.grad_input, self.grad_weight)
        object.__setattr__(self, "texts", tuple(map(record_to_json, specs)))

    @classmethod
    def ideal(cls) -> ProductSpecs:
        """Return the limit of infinite bits and power: exact products."""
        return cls.same(AnalogSpec.ideal())

    @classmethod
    def same(cls, spec: AnalogSpec, *, row_block: int = 256, exact_tiles: bool = False) -> ProductSpecs:
        """Return one specification for all three products."""
        return cls(
            forward=spec, grad_input=spec, grad_weight=spec, row_block=row_block, exact_tiles=exact_tiles
        )

    @classmethod
    def of(cls, analog: Callable[[Phase], AnalogSpec], *, row_block: int = 256) -> ProductSpecs:
        """Return the specifications that a core gives for each phase (`Core.analog`)."""
        return cls(
            forward=analog(Phase.FORWARD),
            grad_input=analog(Phase.GRAD_INPUT),
            grad_weight=analog(Phase.GRAD_WEIGHT),
            row_block=row_block,
        )

    def within(self, mode: Mode, *, training: bool) -> ProductSpecs:
        """Return the specifications that act in a mode, while a model trains or is only run."""
        if mode is Mode.HARDWARE:
            return self
        exact = AnalogSpec.ideal()
        forward = exact if mode is Mode.INFERENCE and training else self.forward
        return dataclasses.replace(self, forward=forward, grad_input=exact, grad_weight=exact)

    def to_json(self) -> str:
        """Return the canonical JSON text: keys sorted, infinities as text."""
        return record_to_json(self)

    @classmethod
    def from_json(cls, text: str) -> ProductSpecs:
        """Return the specifications that `to_json` wrote.

        Raises
        ------
        ParameterError
            If the text is no JSON, or a key is missing, unknown or of the wrong kind.
        """
        return record_from_json(cls, text)


@functools.lru_cache(maxsize=1024)
def spec_from_json(text: str) -> AnalogSpec:
    """Return the specification that `simulator.files.record_to_json` wrote; equal texts give the same object.

    Raises
    ------
    ParameterError
        If the text is no JSON, or a key is missing, unknown or of the wrong kind.
    """
    return record_from_json(AnalogSpec, text)
