"""Light from the source to one ADC sample: the only road from laser power to accuracy.

A core lists what its light passes; a budget turns it into received power, currents and variances. Variances
are in the units of `optical.execution.AnalogSpec`: one full-scale product is 1, per ADC sample.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

from optical.devices import Converter, Laser
from optical.devices.amplifiers import Soa
from optical.devices.limits import bits_from_snr, snr_from_bits
from optical.noise.receiver import Receiver
from simulator.checks import check_positive, check_range
from simulator.errors import LinkError, ParameterError
from simulator.units import db_from_ratio, ratio_from_db

SNR_FLOOR_DB = 0.0
"""A full-scale sample must at least equal its noise, or the link does not close."""
UNIFORM_MEAN_SQUARE = 1.0 / 3.0
"""Mean square of operands spread evenly over [-1, 1]."""
QUADRATURE_VARIANCE = 4.0 / 9.0 - (math.pi / 4.0) ** 4
"""Variance of sqrt(1 - a^2) sqrt(1 - b^2) for operands spread evenly over [-1, 1]."""


@dataclass(frozen=True, kw_only=True)
class Element:
    """One lossy thing on the path."""

    name: str
    """Name with its count, e.g. ``"3 x y_branch"``."""
    loss_db: float
    """Loss beyond any ideal division of power."""

    def __post_init__(self) -> None:
        check_range(self, "loss_db")


_NOTHING = Element(name="none", loss_db=0.0)


def elements_of(found: Iterable[tuple[str, int, float]]) -> tuple[Element, ...]:
    """Return the elements of a path from names, counts and the loss of each."""
    return tuple(
        Element(name=name if count == 1 else f"{count} x {name}", loss_db=count * loss_db)
        for name, count, loss_db in found
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Light as the rest of a core sees it."""

    launch_w: float
    """Power of a line, referred to the source: the coupling into the chip is still to come."""
    rin_db_per_hz: float
    """Relative intensity noise of a line."""


def source_of(laser: Laser, power_w: float, *, lines: int = 1, amplifier: Soa | None = None) -> Source:
    """Return the light of a laser with an amplifier behind the coupling into the chip, if there is one.

    Parameters
    ----------
    laser : Laser
        The laser, or the pump of a comb.
    power_w : float
        Optical power of each line at the source.
    lines : int
        Lines that share the amplifier.
    amplifier : Soa, optional
        The amplifier.
    """
    if amplifier is None:
        return Source(launch_w=power_w, rin_db_per_hz=laser.rin_db_per_hz)
    line_w = power_w * ratio_from_db(-laser.coupling_loss_db)
    gain = amplifier.gain(lines * line_w)
    noise = ratio_from_db(laser.rin_db_per_hz) + amplifier.added_rin_per_hz(line_w, gain)
    return Source(launch_w=power_w * gain, rin_db_per_hz=db_from_ratio(noise))


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
        return math.inf if self.total == 0.0 else bits_from_snr(1.0 / self.total)

    def joined(self, others: Mapping[str, float]) -> NoiseRatio:
        """Return the ratio with further causes that light does not lower."""
        return NoiseRatio(dark=self.dark, shot=self.shot, bright=dict(self.bright) | dict(others))


def converter_ratios(dac: Converter, adc: Converter, length: int, operands: int = 1) -> dict[str, float]:
    """Return noise over signal of both converters for a full-scale sample.

    Parameters
    ----------
    dac, adc : Converter
        Converter of the streamed operands, and of the sample, whose range equals full scale.
    length : int
        Products in a sample; their encoding errors are independent.
    operands : int
        Operands that pass a DAC in every symbol: 2, or 1 where the other is held.
    """
    return {
        "the ADC": 1.0 / snr_from_bits(adc.enob_bits),
        "the DAC": operands / (length * snr_from_bits(dac.enob_bits)),
    }


RECEIVER = "amplifier, dark current, extinction"
SHOT = "shot noise"
FLUCTUATION = "laser intensity, other symbols, crosstalk"
"""Causes of a sample's noise."""


class SampleNoise(NamedTuple):
    """Variance of one analog sample, in full-scale products squared.

    It is ``constant + by_each (sum(a^2) + sum(b^2)) + by_product sum((a b)^2)`` with sums over its products.
    """

    constant: float = 0.0
    """What does not hang on the operands."""
    by_each: float = 0.0
    """Per square of an operand."""
    by_product: float = 0.0
    """Per square of a product."""

    @classmethod
    def sum_of(cls, parts: Iterable[SampleNoise]) -> SampleNoise:
        """Return the variance of independent noises together."""
        return cls(*(math.fsum(one) for one in zip(*parts, strict=True)))

    def of(self, length: int, mean_square: float = 1.0) -> float:
        """Return the variance of so many products of operands with a mean square; 1 is full scale."""
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
            Whether only what each output draws for itself counts, by the law of noise.
        """
        del own  # all of it
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
    """Raise an error if a variance is below zero, or infinite, as it is where light carries no signal.

    Raises
    ------
    ParameterError
        If one is.
    """
    check_range(owner, *names)
    for name in names:
        if math.isinf(getattr(owner, name)):
            msg = f"{type(owner).__name__}: {name} must be finite; got inf, light that carries no signal"
            raise ParameterError(msg)


@dataclass(frozen=True, kw_only=True)
class LightBudget(ABC):
    """Link budget of one output: path, received power, and noise of a sample by how it follows light."""

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

    def noise_variance(self, mean_square: float = 1.0) -> float:
        """Return the variance of a sample whose operands have a mean square; 1 is full scale."""
        return self.noise.sample_noise.of(self.analog_length, mean_square)

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
