"""Link budgets from the source to one ADC sample: received power, currents and noise variances.

Laser power enters accuracy nowhere else. A core lists the elements that its light passes; each kind of array
has its own budget: `LinkBudget` (coherent dot products), `IntensityBudget` (banks that divide powers),
`OscillatorBudget` (meshes read beside a local oscillator) and `DifferenceBudget` (absorbing cells). Variances
are in the units of `optical.execution.AnalogSpec`: one full-scale product is 1, per ADC sample.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

from optical.devices.limits import bits_of_noise
from optical.devices.waveguides import ABSORPTION
from optical.noise.receiver import Receiver
from simulator.errors import LinkError, ParameterError, check_positive, check_range
from simulator.units import db_from_ratio, ratio_from_db

SNR_FLOOR_DB = 0.0
"""A full-scale sample must at least equal its noise, or the link does not close."""
UNIFORM_MEAN_SQUARE = 1.0 / 3.0
"""Mean square of operands spread evenly over [-1, 1]."""
QUADRATURE_VARIANCE = 4.0 / 9.0 - (math.pi / 4.0) ** 4
"""Variance of sqrt(1 - a^2) sqrt(1 - b^2) for operands spread evenly over [-1, 1]."""


@dataclass(frozen=True, kw_only=True)
class Element:
    """Lossy element of a path."""

    name: str
    """Name with its count, e.g. ``"3 x y_branch"``."""
    loss_db: float
    """Loss beyond any ideal division of power."""

    def __post_init__(self) -> None:
        check_range(self, "loss_db")


_NOTHING = Element(name="none", loss_db=0.0)


def absorbed_db(path: Iterable[Element]) -> float:
    """Return the loss of a path by nonlinear absorption in its waveguides."""
    return math.fsum(one.loss_db for one in path if one.name == ABSORPTION)


def elements_of(losses: Iterable[tuple[str, int, float]]) -> tuple[Element, ...]:
    """Return the elements of a path from their names, counts and loss of each in decibels."""
    return tuple(
        Element(name=name if count == 1 else f"{count} x {name}", loss_db=count * loss_db)
        for name, count, loss_db in losses
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Light of one line, behind the amplifier if there is one."""

    launch_w: float
    """Power referred to the laser: before the loss of the coupling into the chip."""
    rin_db_per_hz: float
    """Relative intensity noise of a line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseRatio:
    """Noise over the signal of a full-scale sample, at some laser power; ratios of powers, dimensionless."""

    dark: float
    """Amplifier and dark current: falls as 1/power^2."""
    shot: float
    """Shot noise: falls as 1/power."""
    bright: Mapping[str, float]
    """Noise that more light does not lower, by cause."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.dark + self.shot + math.fsum(self.bright.values())

    @property
    def effective_bits(self) -> float:
        """Effective bits that it leaves."""
        return bits_of_noise(self.total)

    def joined(self, others: Mapping[str, float]) -> NoiseRatio:
        """Return the ratio with further causes that light does not lower."""
        return NoiseRatio(dark=self.dark, shot=self.shot, bright=dict(self.bright) | dict(others))


RECEIVER = "amplifier, dark current, extinction"
SHOT = "shot noise"
FLUCTUATION = "laser intensity, other symbols, crosstalk"
"""Causes of a sample's noise."""


class SampleNoise(NamedTuple):
    """Variance of one analog sample, in full-scale products squared.

    It is ``constant + by_each (sum(a^2) + sum(b^2)) + by_product sum((a b)^2)`` with sums over its products.
    """

    constant: float = 0.0
    """Variance that does not depend on the operands."""
    by_each: float = 0.0
    """Variance per square of an operand."""
    by_product: float = 0.0
    """Variance per square of a product."""

    @classmethod
    def sum_of(cls, parts: Iterable[SampleNoise]) -> SampleNoise:
        """Return the variance of independent noises together."""
        return cls(*(math.fsum(one) for one in zip(*parts, strict=True)))

    def of(self, length: int, mean_square: float = 1.0) -> float:
        """Return the variance of a sample of `length` products whose operands have a mean square."""
        each = 2.0 * length * mean_square * self.by_each
        return self.constant + each + length * mean_square**2 * self.by_product


@dataclass(frozen=True, kw_only=True)
class LightNoise:
    """Noise that light and receiver put on a sample, in full-scale products squared."""

    thermal_variance: float
    """Receiver noise per sample."""
    shot_variance: float
    """Shot noise per unit of a^2 + b^2."""
    rin_variance: float
    """Laser intensity noise per unit of (a b)^2."""

    def __post_init__(self) -> None:
        check_light(self, *(item.name for item in fields(LightNoise)))

    def noise_of_sample(self, *, own: bool = False) -> dict[str, SampleNoise]:
        """Return the noise of one analog sample by its cause.

        Parameters
        ----------
        own : bool
            Whether to leave out noise that an output shares with others.
        """
        del own  # no output shares any of this noise
        return {
            RECEIVER: SampleNoise(constant=self.thermal_variance),
            SHOT: SampleNoise(by_each=self.shot_variance),
            FLUCTUATION: SampleNoise(by_product=self.rin_variance),
        }

    @functools.cached_property
    def sample_noise(self) -> SampleNoise:
        """Noise of one analog sample of all causes, shared with other outputs or not."""
        return SampleNoise.sum_of(self.noise_of_sample().values())


def check_light(owner: object, *names: str) -> None:
    """Check that variances are at least zero and finite; without received light they are infinite.

    Raises
    ------
    ParameterError
        If one is not.
    """
    check_range(owner, *names)
    for name in names:
        if math.isinf(getattr(owner, name)):
            msg = f"{type(owner).__name__}: {name} must be finite; got inf, light that carries no signal"
            raise ParameterError(msg)


@dataclass(frozen=True, kw_only=True)
class LightBudget(ABC):
    """Link budget of one output: path, received power, and noise of a sample by its dependence on light."""

    elements: tuple[Element, ...]
    """Losses from the source to the detector."""
    split: float
    """Ideal division: power of a line over its share per operand at one output, dimensionless."""
    launch_w: float
    """Power of a line at the source."""
    receiver: Receiver
    """Receiver of the output."""
    mixing: float = 0.0
    """Variance by operands of other lines, which multiplexers let through, per unit of (a b)^2."""

    def __post_init__(self) -> None:
        check_positive(self, "launch_w")
        check_range(self, "split", low=1)
        check_range(self, "mixing")

    @property
    @abstractmethod
    def analog_length(self) -> int:
        """Products in one sample."""

    @property
    @abstractmethod
    def product_current_a(self) -> float:
        """Difference current of one full-scale product."""

    @property
    @abstractmethod
    def thermal_variance(self) -> float:
        """Variance of a sample that does not depend on the operands."""

    @property
    @abstractmethod
    def shot_variance(self) -> float:
        """Variance per unit of a^2 + b^2."""

    @property
    def rin_variance(self) -> float:
        """Variance per unit of (a b)^2: intensity noise, interference of symbols and of lines."""
        return self.receiver.rin_ratio + self.receiver.interference + self.mixing

    @property
    def noise(self) -> LightNoise:
        """Noise of a sample, as execution takes it."""
        return LightNoise(**{item.name: getattr(self, item.name) for item in fields(LightNoise)})

    @property
    @abstractmethod
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample, all products +1, converters apart."""

    @property
    def loss_db(self) -> float:
        """Loss of the path beyond the ideal division."""
        return loss_db(self.elements)

    @property
    def received_w(self) -> float:
        """Power of a line at the detectors, operand at full scale."""
        return self.launch_w * ratio_from_db(-self.loss_db) / self.split

    @property
    @abstractmethod
    def pair_w(self) -> float:
        """Power of all light on the balanced pair of one output, operands at full scale."""

    def variance_of(self, length: int, mean_square: float = 1.0) -> float:
        """Return the variance of a sample of `length` products whose operands have a mean square."""
        return self.noise.sample_noise.of(length, mean_square)

    def noise_variance(self, mean_square: float = 1.0) -> float:
        """Return the variance of a sample whose operands have a mean square; 1 is full scale."""
        return self.variance_of(self.analog_length, mean_square)

    @property
    def typical_snr(self) -> float:
        """Power ratio for uncorrelated operands spread evenly over [-1, 1], receiver alone."""
        signal = self.analog_length * UNIFORM_MEAN_SQUARE**2
        return signal / self.noise_variance(UNIFORM_MEAN_SQUARE)

    @property
    def snr(self) -> float:
        """Power ratio of a full-scale sample, all products +1, to the receiver's noise in it."""
        return 1.0 / self.noise_ratio.total

    @property
    def snr_db(self) -> float:
        """`snr` in decibels."""
        return db_from_ratio(self.snr)

    @property
    def effective_bits(self) -> float:
        """Effective bits of the receiver alone, for a full-scale sample at the detector."""
        return self.noise_ratio.effective_bits


def loss_db(elements: tuple[Element, ...]) -> float:
    """Return the loss of a path."""
    return math.fsum(element.loss_db for element in elements)


def check_closes(name: str, ratio: NoiseRatio, elements: tuple[Element, ...], split: float) -> None:
    """Raise an error if a full-scale sample does not equal its noise.

    Raises
    ------
    LinkError
        If it lies below `SNR_FLOOR_DB`.
    """
    if ratio.total * ratio_from_db(SNR_FLOOR_DB) > 1.0:
        worst = max(elements, key=lambda element: element.loss_db, default=_NOTHING)
        msg = (
            f"the link of '{name}' does not close: a full-scale sample misses the noise by "
            f"{db_from_ratio(ratio.total):.1f} dB; the path loses {loss_db(elements):.1f} dB and divides by "
            f"{split:g}; most is lost in '{worst.name}' ({worst.loss_db:.2f} dB); raise the laser's power or "
            "shorten the path"
        )
        raise LinkError(msg)


@dataclass(frozen=True, kw_only=True)
class LinkBudget(LightBudget):
    """Link budget of one coherent dot-product node with balanced detection.

    Notes
    -----
    A node interferes two operands of power P each per wavelength in a 50:50 coupler; the difference of its
    two photocurrents is I1 a b with I1 = 2 R P and a, b in [-1, 1]. Detectors integrate a symbol, hence the
    noise bandwidth B = f/2, and noise of `symbols` symbols and all wavelengths adds up in one sample:

    - amplifier i_n^2 B, dark current 2 q 2 I_d B per pair;
    - shot 2 q R P (a^2 + b^2) B;
    - intensity noise (a b)^2 RIN B, which balance does not remove, as it is the product that fluctuates.
      What the pair fails to reject, (k R P (a^2 + b^2) / 2)^2 RIN B with k = 10^(-CMRR/20), is bounded by
      its value at full scale and counted with the shot noise. Lines fluctuate independently; that all nodes
      of a core see the same line is not modelled;
    - finite extinction, leakage e in power: the usable swing is 1 - e, and the quadrature field adds
      e sqrt((1-a^2)(1-b^2)) to each product. Its mean is taken to be calibrated away (it depends on
      the operands' spread); its variance for evenly spread operands stays;
    - light of a line that took the way of another through its filters, `RingRouter.mixing`;
    - symbols that have not settled: the share g of a product's current is read, I1 = 2 R P (1 - e) g, and
      products of other symbols add the variance `Receiver.interference` (a b)^2.

    The static leak k R P (a^2 + b^2) / 2 is a sum over rows and columns of known operands, which the
    digital side subtracts; it is not charged.

    References
    ----------
    Lightening-Transformer (HPCA 2024), section on the dynamically-operated dot product; shot, thermal and RIN
    currents as in any text on optical receivers.
    """

    wavelengths: int
    """Products that one detector pair adds in a symbol."""
    symbols: int
    """Symbols integrated before a conversion."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "wavelengths", "symbols", low=1)

    @property
    def analog_length(self) -> int:
        """Products in one sample."""
        return self.wavelengths * self.receiver.pairs * self.symbols

    @property
    def pair_w(self) -> float:
        """Power of both operands' lines on one of the pairs."""
        return 2.0 * self.wavelengths * self.received_w

    @property
    def product_current_a(self) -> float:
        """Difference current of one full-scale product, 2 R P (1 - leakage) gain."""
        return 2.0 * self.receiver.responsivity_a_per_w * self.received_w * self.receiver.usable

    @property
    def shot_current_a2(self) -> float:
        """Shot noise of one product per unit of a^2 + b^2, ampere squared."""
        return self.receiver.shot_a * self.receiver.responsivity_a_per_w * self.received_w

    @property
    def common_mode_current_a2(self) -> float:
        """Intensity noise that the pair fails to reject, per unit of a^2 + b^2, ampere squared."""
        operand_a = self.receiver.responsivity_a_per_w * self.received_w
        return 0.5 * operand_a**2 * self.receiver.rin_ratio * self.receiver.rejection

    @property
    def extinction_variance(self) -> float:
        """Variance of a sample by the quadrature field of finite extinction."""
        return self.analog_length * QUADRATURE_VARIANCE * self.receiver.leakage**2

    @property
    def _amplifier_variance(self) -> float:
        """Variance of a sample by amplifier and dark current."""
        return self.symbols * self.receiver.thermal_current_a2 / self.product_current_a**2

    @property
    def thermal_variance(self) -> float:
        """Variance of a sample that does not depend on the operands."""
        return self._amplifier_variance + self.extinction_variance

    @property
    def shot_variance(self) -> float:
        """Variance per unit of a^2 + b^2: shot noise, and intensity noise that the pair fails to reject."""
        return (self.shot_current_a2 + self.common_mode_current_a2) / self.product_current_a**2

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample, all products +1, converters apart."""
        length, unit = self.analog_length, self.product_current_a**2
        rejected = 2.0 * self.common_mode_current_a2 / unit
        return NoiseRatio(
            dark=self._amplifier_variance / length**2,
            shot=2.0 * self.shot_current_a2 / unit / length,
            bright={
                "laser intensity noise": (self.receiver.rin_ratio + rejected) / length,
                "the modulator's extinction ratio": self.extinction_variance / length**2,
                "interference of symbols": self.receiver.interference / length,
                "crosstalk of multiplexers and crossings": self.mixing / length,
            },
        )


MEAN_MAGNITUDE = 0.5
"""Mean of |x| for operands spread evenly over [-1, 1]."""
SIGN_PASSES = 2
"""Symbols per product: the inputs' positive part, then the negative part, integrated with the other sign."""


@dataclass(frozen=True, kw_only=True)
class IntensityBudget(LightBudget):
    """Link budget of a balanced pair behind a bank of weights that divide powers.

    Notes
    -----
    Each wavelength brings the power P x, x in [0, 1]; a weight w in [-1, 1] divides it between two detectors,
    (1 + w)/2 and (1 - w)/2, whose currents differ by R P x w. A signed input takes `SIGN_PASSES` symbols, in
    one of which it is zero; the sum of both is read. In the receiver's bandwidth B, per sample of n lines:

    - amplifier and dark current of both symbols;
    - shot noise 2 q R P |x| B per product, whatever the weight. The bound |x| <= (1 + x^2)/2, exact at full
      scale, brings it into the form of the record: a constant and a part in x^2, half of which is given to
      the weight's square, which has the same size where both operands are spread alike;
    - intensity noise (x w)^2 RIN B. What the pair fails to reject, (k R P x / 2)^2 RIN B with
      k = 10^(-CMRR/20), is given to both operands in the same way;
    - finite extinction: the dark level e of the two symbols cancels, costs the swing 1 - e and adds shot
    noise;
    - symbols that have not settled, as in `optical.noise.receiver`: interference (x w)^2.

    References
    ----------
    A. N. Tait et al., "Broadcast and weight", J. Lightwave Technol. 32 (2014) 4029; shot, thermal and RIN
    currents as in any text on optical receivers.
    """

    weight_swing: float
    """Share of the light that a weight moves between the detectors from end to end, 0 to 1."""
    length: int
    """Products in one sample."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "length", low=1)
        check_range(self, "weight_swing", high=1.0, open_low=True)

    @property
    def analog_length(self) -> int:
        """Products in one sample."""
        return self.length

    @property
    def pair_w(self) -> float:
        """Power of all lines, which a bank's weights divide between the two."""
        return self.length * self.received_w

    @property
    def product_current_a(self) -> float:
        """Difference current of one full-scale product."""
        usable = self.weight_swing * self.receiver.usable
        return self.receiver.responsivity_a_per_w * self.received_w * usable

    @property
    def _shot(self) -> float:
        """Shot noise of the light of one input at full scale, over a full-scale product squared."""
        light_a = self.receiver.responsivity_a_per_w * self.received_w
        return self.receiver.shot_a * light_a / self.product_current_a**2

    @property
    def _constant_shot(self) -> float:
        """Shot noise of a sample that does not depend on the operands."""
        return self.length * self._shot * (0.5 + SIGN_PASSES * self.receiver.leakage)

    @property
    def _amplifier_variance(self) -> float:
        """Variance of a sample by amplifier and dark current."""
        return SIGN_PASSES * self.receiver.thermal_current_a2 / self.product_current_a**2

    @property
    def thermal_variance(self) -> float:
        """Variance of a sample that does not depend on the operands."""
        return self._amplifier_variance + self._constant_shot

    @property
    def rejected_variance(self) -> float:
        """Intensity noise that the pair fails to reject, per unit of a^2 + b^2."""
        usable = self.product_current_a / (self.receiver.responsivity_a_per_w * self.received_w)
        return self.receiver.rejection / 8.0 * self.receiver.rin_ratio / usable**2

    @property
    def shot_variance(self) -> float:
        """Variance per unit of a^2 + b^2: shot noise, and intensity noise that the pair fails to reject."""
        return 0.25 * self._shot + self.rejected_variance

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample, all products +1, converters and weights apart."""
        signal = self.length**2
        return NoiseRatio(
            dark=self._amplifier_variance / signal,
            shot=(self._constant_shot + 0.5 * self.length * self._shot) / signal,
            bright={
                "laser intensity noise": (self.receiver.rin_ratio + 2.0 * self.rejected_variance)
                / self.length,
                "interference of symbols": self.receiver.interference / self.length,
                "crosstalk of multiplexers": self.mixing / self.length,
            },
        )


def spread_norm(length: int, mean_square: float) -> float:
    """Return the square of the largest singular value of a square tile of independent entries.

    Parameters
    ----------
    length : int
        Rows, and columns.
    mean_square : float
        Of the entries.

    Notes
    -----
    The upper edge 4 n <w^2> of Marchenko and Pastur (1967), and never more than all the tile's power.
    """
    return min(4.0, length) * length * mean_square


@dataclass(frozen=True, kw_only=True)
class OscillatorBudget(LightBudget):
    """Link budget of one output of a mesh, its field read beside a local oscillator of the same laser.

    Notes
    -----
    Each of n inputs has the power P, an output interferes with an oscillator of power L, and a product of a
    weight and an input contributes a w / S to the field: I = 2 R sqrt(L P) sum(a w) / S. A mesh cannot
    amplify: its matrix has a largest singular value of 1, and S is that of the tile of weights, which is
    multiplied back behind the detectors. Noise of a sample:

    - amplifier and dark current; shot noise 2 q R L B of the oscillator; the part of its intensity noise that
      the pair fails to reject, (k R L / 2)^2 RIN B: none of them depends on the operands, and in full-scale
      products they count S^2 times;
    - shot noise of the output's own power, 2 q R P sum(a w)^2 / S^2 B;
    - intensity noise y^2 RIN B, as oscillator and signal fluctuate together, and interference of symbols. The
      square of the sum is counted as the sum of squares in execution (uncorrelated operands) and
      in full at full scale.

    References
    ----------
    Shen et al., Nature Photonics 11 (2017) 441, the mesh; balanced homodyne detection as in any text.
    """

    oscillator_loss_db: float
    """Loss of the oscillator's path."""
    oscillator_share: float
    """Share of it that becomes the oscillators of all outputs, 0 to 1."""
    length: int
    """Inputs, and outputs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "length", low=1)

    @property
    def analog_length(self) -> int:
        """Products in one sample."""
        return self.length

    @property
    def pair_w(self) -> float:
        """Power of the oscillator and of an output, which has that of one input in the mean."""
        return self.oscillator_w + self.received_w

    @property
    def received_w(self) -> float:
        """Power of one full input if all of it came to one output."""
        return self.launch_w * (1.0 - self.oscillator_share) * ratio_from_db(-self.loss_db) / self.split

    @property
    def oscillator_w(self) -> float:
        """Power of the oscillator of one output."""
        return self.launch_w * self.oscillator_share * ratio_from_db(-self.oscillator_loss_db) / self.split

    @property
    def product_current_a(self) -> float:
        """Difference current of one full-scale product in a tile whose largest singular value is 1."""
        field = math.sqrt(self.received_w * self.oscillator_w)
        return 2.0 * self.receiver.responsivity_a_per_w * field * self.receiver.usable

    @property
    def _oscillator(self) -> tuple[float, float]:
        """Shot noise and unrejected intensity noise of the oscillator, ampere squared."""
        current_a = self.receiver.responsivity_a_per_w * self.oscillator_w
        common = self.receiver.rejection * self.receiver.rin_ratio * (0.5 * current_a) ** 2
        return self.receiver.shot_a * current_a, common

    @property
    def thermal_variance(self) -> float:
        """Return 0: noise that does not depend on the operands counts in `norm_variance`."""
        return 0.0

    @property
    def norm_variance(self) -> float:
        """Variance of a sample per square of the largest singular value of the tile."""
        noise_a2 = self.receiver.thermal_current_a2 + math.fsum(self._oscillator)
        return noise_a2 / self.product_current_a**2

    def variance_of(self, length: int, mean_square: float = 1.0) -> float:
        """Return the variance of a sample of `length` products whose operands have a mean square."""
        of_norm = self.norm_variance * spread_norm(length, mean_square)
        return super().variance_of(length, mean_square) + of_norm

    @property
    def shot_variance(self) -> float:
        """Return 0: the oscillator's shot noise is in `norm_variance`, the signal's in `rin_variance`."""
        return 0.0

    @property
    def rin_variance(self) -> float:
        """Variance per unit of (a w)^2."""
        return super().rin_variance + self._signal_shot

    @property
    def _signal_shot(self) -> float:
        light_a = self.receiver.responsivity_a_per_w * self.received_w
        return self.receiver.shot_a * light_a / self.product_current_a**2

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample, all products +1: a tile whose norm is its length."""
        unit = 1.0 / self.product_current_a**2
        shot_a2, common_a2 = self._oscillator
        return NoiseRatio(
            dark=self.receiver.thermal_current_a2 * unit,
            shot=shot_a2 * unit + self._signal_shot,
            bright={
                "laser intensity noise": self.receiver.rin_ratio + common_a2 * unit,
                "interference of symbols": self.receiver.interference,
            },
        )


@dataclass(frozen=True, kw_only=True)
class DifferenceBudget(LightBudget):
    """Link budget of one output of an array of absorbers, read as the difference of two columns.

    Notes
    -----
    A weight w is two cells: transmissions between clear and opaque, T_min + (T_max - T_min) max(+-w, 0), so
    that one of the two is opaque and t = T_min / (T_max - T_min) is common to both. An input is a power,
    hence not negative; lines of n wavelengths add up on each detector without interfering. With P the power
    of a full input behind a clear cell and I = R P (T_max - T_min)/T_max, a product is I g a w, where

    - with two passes, one for the positive and one for the negative inputs, g = 1, and amplifier noise counts
      twice;
    - with an offset, the power is (1 + a)/2, g = 1/2, and the digital side subtracts the sum of the weights.

    Noise: amplifier and dark current per pass; shot noise 2 q I x (|w| + 2 t) B of the power x that is sent,
    in which |a w| is bounded by (a^2 + w^2)/2, the rest being taken at its mean for evenly spread operands,
    with a modulator's leakage in every x; intensity noise (x w)^2 RIN B of independent lines, and of what is
    common to a pair as far as it is not rejected.

    References
    ----------
    Feldmann et al., Nature 589 (2021) 52 (arXiv:2002.00281): the array and its wavelengths.
    """

    contrast: float
    """Opaque over clear transmission of a cell, dimensionless."""
    length: int
    """Inputs that one detector adds."""
    offset: bool
    """Whether signed inputs are shifted, or else sent in two passes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "length", low=1)
        check_range(self, "contrast", high=0.999)

    @property
    def analog_length(self) -> int:
        """Products in one sample."""
        return self.length

    @property
    def pair_w(self) -> float:
        """Power of all lines through clear cells to one detector and through opaque ones to the other."""
        return self.length * self.received_w * (1.0 + self.contrast)

    @property
    def floor(self) -> float:
        """Transmission of an opaque cell over the swing, dimensionless."""
        return self.contrast / (1.0 - self.contrast)

    @property
    def _swing_a(self) -> float:
        """Current of full power between opaque and clear."""
        return self.receiver.responsivity_a_per_w * self.received_w * (1.0 - self.contrast)

    @property
    def _gain(self) -> float:
        return 0.5 if self.offset else 1.0

    @property
    def product_current_a(self) -> float:
        """Difference current of one full-scale product."""
        return self._swing_a * self._gain * self.receiver.usable

    @property
    def _amplifier_variance(self) -> float:
        passes = 1.0 if self.offset else 2.0
        return passes * self.receiver.thermal_current_a2 / self.product_current_a**2

    @property
    def _shot_unit(self) -> float:
        """Variance per unit of power sent times transmission over the swing."""
        return self.receiver.shot_a * self._swing_a / self.product_current_a**2

    @property
    def _common_variance(self) -> float:
        """Intensity noise that a pair fails to reject, per full-scale product."""
        half = 0.5 * (1.0 + 2.0 * self.floor) / self._gain
        return self.receiver.rejection * self.receiver.rin_ratio * half**2

    @property
    def thermal_variance(self) -> float:
        """Variance of a sample that does not depend on the operands: amplifier, light of mean operands."""
        passes = 1.0 if self.offset else 2.0
        through = MEAN_MAGNITUDE + 2.0 * self.floor  # transmission of both cells over the swing
        signal = 0.5 * through if self.offset else MEAN_MAGNITUDE * 2.0 * self.floor
        light = signal + passes * self.receiver.leakage * through
        return self._amplifier_variance + self.length * self._shot_unit * light

    @property
    def shot_variance(self) -> float:
        """Variance per unit of a^2 + w^2."""
        light = self.receiver.rin_ratio if self.offset else 0.5 * self._shot_unit
        return light + self._common_variance

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample, all products +1."""
        unit, n = 1.0 / self.length**2, self.length
        offset_rin = 2.0 * self.receiver.rin_ratio if self.offset else 0.0
        shot = self.thermal_variance - self._amplifier_variance
        shot += 0.0 if self.offset else n * self._shot_unit
        return NoiseRatio(
            dark=self._amplifier_variance * unit,
            shot=shot * unit,
            bright={
                "laser intensity noise": n
                * (self.receiver.rin_ratio + offset_rin + 2.0 * self._common_variance)
                * unit,
                "interference of symbols": n * self.receiver.interference * unit,
                "crosstalk of multiplexers": n * self.mixing * unit,
            },
        )
