"""Light from the source to one ADC sample: the only road from laser power to accuracy.

A core lists what its light passes; this module turns it into received power, currents and variances.
Variances are in the units of `optical.execution.AnalogSpec`: one full-scale product is 1, per ADC sample.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from optical.devices.devices import Converter
from simulator.checks import check_positive, check_range
from simulator.errors import LinkError, ParameterError
from simulator.units import ELEMENTARY_CHARGE_C, db_from_ratio, ratio_from_db

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
    """What it is, e.g. ``"3 x y_branch"``."""
    loss_db: float
    """Loss beyond any ideal division of power."""

    def __post_init__(self) -> None:
        check_range(self, "loss_db")


_NOTHING = Element(name="nothing", loss_db=0.0)


def elements_of(found: Iterable[tuple[str, int, float]]) -> tuple[Element, ...]:
    """Return the elements of a path from names, counts and the loss of each."""
    return tuple(
        Element(name=name if count == 1 else f"{count} x {name}", loss_db=count * loss_db)
        for name, count, loss_db in found
    )


def bits_from_snr(snr: float) -> float:
    """Return the effective bits of a power ratio, (10 log10 SNR - 1.76) / 6.02; infinite without noise."""
    return math.inf if math.isinf(snr) else (db_from_ratio(snr) - 1.76) / 6.02


def snr_from_bits(bits: float) -> float:
    """Return the power ratio that so many effective bits stand for."""
    return math.inf if math.isinf(bits) else ratio_from_db(6.02 * bits + 1.76)


def symbol_residue(bandwidths_hz: tuple[float, ...], symbol_rate_hz: float) -> float:
    """Return how much of a symbol's field is left in the next one, dimensionless.

    Parameters
    ----------
    bandwidths_hz : tuple of float
        3 dB bandwidths in a row; 1/B^2 add up. Infinite ones leave nothing.
    symbol_rate_hz : float
        Symbols per second.

    Notes
    -----
    One pole: exp(-2 pi B / f).
    """
    spread_s2 = sum(bandwidth**-2 for bandwidth in bandwidths_hz)
    if not spread_s2:
        return 0.0
    joint_hz = 1.0 / math.sqrt(spread_s2)
    return math.exp(-2.0 * math.pi * joint_hz / symbol_rate_hz)


@dataclass(frozen=True, kw_only=True)
class LinkBudget:
    """What one coherent dot-product node with balanced detection receives, and how noisy that is.

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
    - a residue r of the previous symbol: the settled share 1 - r scales the product, r^2 (a b)^2 is an error.

    The static leak k R P (a^2 + b^2) / 2 is a sum over rows and columns of known operands, which the
    digital side subtracts; it is not charged.

    References
    ----------
    Lightening-Transformer (HPCA 2024), section on the dynamically-operated dot product; shot, thermal and RIN
    currents as in any text on optical receivers.
    """

    elements: tuple[Element, ...]
    """Losses from the source to the detector."""
    split: float
    """Ideal division: power of a line over its share per operand and node, dimensionless."""
    launch_w: float
    """Power of one comb line at the source."""
    leakage: float
    """Least over full power of a modulator, dimensionless."""
    residue: float
    """Share of a symbol that is left in the next one, dimensionless."""
    bandwidth_hz: float
    """Noise bandwidth, half the symbol rate."""
    responsivity_a_per_w: float
    """Photocurrent per power."""
    dark_current_a: float
    """Dark current of one detector."""
    cmrr_db: float
    """Common-mode rejection of a pair."""
    noise_a_per_sqrt_hz: float
    """Noise density of the amplifier."""
    rin_db_per_hz: float
    """Relative intensity noise of a line."""
    wavelengths: int
    """Products that one detector pair adds in a symbol."""
    pairs: int
    """Detector pairs on one amplifier."""
    symbols: int
    """Symbols integrated before a conversion."""

    def __post_init__(self) -> None:
        check_positive(self, "launch_w", "bandwidth_hz", "responsivity_a_per_w")
        check_range(self, "split", "wavelengths", "pairs", "symbols", low=1)
        check_range(self, "dark_current_a", "noise_a_per_sqrt_hz")
        for name in ("leakage", "residue"):
            if not 0.0 <= getattr(self, name) < 1.0:
                msg = f"LinkBudget: {name} must be at least 0 and below 1; got {getattr(self, name):g}"
                raise ParameterError(msg)

    @property
    def loss_db(self) -> float:
        """Loss of the path beyond the ideal division."""
        return math.fsum(element.loss_db for element in self.elements)

    @property
    def received_w(self) -> float:
        """Power per wavelength and operand at a node, operand at full scale."""
        return self.launch_w * ratio_from_db(-self.loss_db) / self.split

    @property
    def product_current_a(self) -> float:
        """Difference current of one full-scale product, 2 R P (1 - leakage) (1 - residue)."""
        usable = (1.0 - self.leakage) * (1.0 - self.residue)
        return 2.0 * self.responsivity_a_per_w * self.received_w * usable

    @property
    def analog_length(self) -> int:
        """Products in one sample."""
        return self.wavelengths * self.pairs * self.symbols

    @property
    def thermal_current_a(self) -> float:
        """Rms noise current of amplifier and dark current in one symbol."""
        dark = 2.0 * ELEMENTARY_CHARGE_C * 2.0 * self.dark_current_a * self.pairs
        return math.sqrt((self.noise_a_per_sqrt_hz**2 + dark) * self.bandwidth_hz)

    @property
    def rin_ratio(self) -> float:
        """Variance of a line's relative power within the noise bandwidth, dimensionless."""
        return ratio_from_db(self.rin_db_per_hz) * self.bandwidth_hz

    @property
    def shot_current_a2(self) -> float:
        """Shot noise of one product per unit of a^2 + b^2, ampere squared."""
        return 2.0 * ELEMENTARY_CHARGE_C * self.responsivity_a_per_w * self.received_w * self.bandwidth_hz

    @property
    def common_mode_current_a2(self) -> float:
        """Intensity noise that the pair fails to reject, per unit of a^2 + b^2, ampere squared."""
        operand_a = self.responsivity_a_per_w * self.received_w
        return 0.5 * operand_a**2 * self.rin_ratio * ratio_from_db(-self.cmrr_db)

    @property
    def extinction_variance(self) -> float:
        """Variance of a sample by the quadrature field of finite extinction."""
        return self.analog_length * QUADRATURE_VARIANCE * self.leakage**2

    @property
    def thermal_variance(self) -> float:
        """Variance of a sample that does not depend on the operands."""
        receiver = self.symbols * (self.thermal_current_a / self.product_current_a) ** 2
        return receiver + self.extinction_variance

    @property
    def shot_variance(self) -> float:
        """Variance per unit of a^2 + b^2: shot noise, and intensity noise that the pair fails to reject."""
        return (self.shot_current_a2 + self.common_mode_current_a2) / self.product_current_a**2

    @property
    def rin_variance(self) -> float:
        """Variance per unit of (a b)^2: intensity noise, and the residue of the previous symbol."""
        return self.rin_ratio + self.residue**2

    def noise_variance(self, mean_square: float = 1.0) -> float:
        """Return the variance of a sample whose operands have a mean square; 1 is full scale."""
        even = self.thermal_variance + 2.0 * self.analog_length * mean_square * self.shot_variance
        return even + self.analog_length * mean_square**2 * self.rin_variance

    @property
    def snr(self) -> float:
        """Power ratio of a full-scale sample, all products +1, to the receiver's noise in it."""
        return self.analog_length**2 / self.noise_variance()

    @property
    def snr_db(self) -> float:
        """`snr` in decibels."""
        return db_from_ratio(self.snr)

    @property
    def effective_bits(self) -> float:
        """Effective bits of the receiver alone, for a full-scale sample at the detector."""
        return bits_from_snr(self.snr)

    @property
    def typical_snr(self) -> float:
        """Power ratio for uncorrelated operands spread evenly over [-1, 1], receiver alone."""
        signal = self.analog_length * UNIFORM_MEAN_SQUARE**2
        return signal / self.noise_variance(UNIFORM_MEAN_SQUARE)

    def system_bits(self, dac: Converter, adc: Converter) -> float:
        """Return the effective bits of a full-scale sample with both converters.

        Parameters
        ----------
        dac, adc : Converter
            Operand and output converters; the ADC's range equals the full-scale sample.

        Notes
        -----
        Noise-to-signal ratios add. The errors of the operands are independent between products, so the sum
        over n of them has 2/n of one operand's ratio.
        """
        ratio = 1.0 / self.snr + 1.0 / snr_from_bits(adc.enob_bits)
        return bits_from_snr(1.0 / (ratio + 2.0 / (self.analog_length * snr_from_bits(dac.enob_bits))))

    def checked(self, name: str) -> LinkBudget:
        """Return the budget itself if the link closes.

        Parameters
        ----------
        name : str
            Whose link it is, for the message.

        Raises
        ------
        LinkError
            If a full-scale sample lies below `SNR_FLOOR_DB`.

        Notes
        -----
        Signal and noise are those of one sample, with all its wavelengths, pairs and symbols. What one symbol
        brings may be less than the amplifier's noise in it: n of them add up to n times the current and
        sqrt(n) times the noise.
        """
        worst = max(
            self.elements, key=lambda element: element.loss_db, default=Element(name="none", loss_db=0.0)
        )
        margin_db = self.snr_db - SNR_FLOOR_DB
        if margin_db < 0.0:
            msg = (
                f"the link of '{name}' does not close: a full-scale sample misses the noise by "
                f"{-margin_db:.1f} dB; the path loses {self.loss_db:.1f} dB and divides by {self.split:g}; "
                f"most is lost in '{worst.name}' ({worst.loss_db:.2f} dB); raise the laser's power or "
                "shorten the path"
            )
            raise LinkError(msg)
        return self


def check_unamplified(core: object) -> None:
    """Raise an error if a core has an amplifier, whose gain and noise change with the power that is sought.

    Raises
    ------
    ParameterError
        If it has one.
    """
    if getattr(core, "amplifier", None) is not None:
        msg = (
            f"'{getattr(core, 'name', 'core')}' has an amplifier, whose gain falls as the light rises, so no "
            "closed form gives the laser's power; take the amplifier out, or try values of laser_power_w"
        )
        raise ParameterError(msg)


class Lit(Protocol):
    """A core whose light can be budgeted."""

    @property
    def name(self) -> str:
        """Name shown in messages."""
        ...

    @property
    def link(self) -> LinkBudget:
        """Budget, whether or not the link closes."""
        ...


def solve_laser_power(core: Lit, target_bits: float) -> float:
    """Return the smallest power per comb line at which the receiver alone reaches a number of bits, watt.

    Parameters
    ----------
    core : Lit
        A core; its present laser power does not matter.
    target_bits : float
        Effective bits of a full-scale sample (`LinkBudget.effective_bits`).

    Raises
    ------
    LinkError
        If no power reaches them: intensity noise, extinction and the residue of the previous symbol grow with
        the signal and cap the ratio.

    Notes
    -----
    With x = 1/power the noise-to-signal ratio is A x^2 + B x + C: amplifier and dark current, shot noise, and
    what grows with the signal. The root of this square is exact.
    """
    if not 0.0 < target_bits < math.inf:
        msg = f"target_bits must be positive and finite; got {target_bits:g}"
        raise ParameterError(msg)
    check_unamplified(core)
    link = dataclasses.replace(core.link, launch_w=1.0)
    signal = link.analog_length**2
    growing = _growing(link)
    bright = math.fsum(growing.values()) / signal
    target = 1.0 / snr_from_bits(target_bits)
    if bright >= target:
        worst = max(growing, key=lambda cause: growing[cause])
        msg = (
            f"'{core.name}' cannot reach {target_bits:g} bits at any laser power: "
            f"{bits_from_snr(1.0 / bright):.2f} bits are the cap, set mostly by {worst}; "
            "ask for fewer bits or improve that part"
        )
        raise LinkError(msg)
    quadratic = link.symbols * (link.thermal_current_a / link.product_current_a) ** 2 / signal
    linear = 2.0 * link.analog_length * link.shot_current_a2 / link.product_current_a**2 / signal
    gap = target - bright
    return (linear + math.sqrt(linear**2 + 4.0 * quadratic * gap)) / (2.0 * gap)


def _growing(link: LinkBudget) -> dict[str, float]:
    """Return the variances of a full-scale sample that more light does not lower, by cause."""
    rejected = link.common_mode_current_a2 / link.product_current_a**2
    return {
        "laser intensity noise": link.analog_length * (link.rin_ratio + 2.0 * rejected),
        "the modulator's extinction ratio": link.extinction_variance,
        "the bandwidth of modulator and detector": link.analog_length * link.residue**2,
    }
