"""Two ways to read the outputs of an array that holds weights: beside a local oscillator, or as a difference.

Variances are in the units of `optical.execution.AnalogSpec`: one full-scale product is 1, per ADC sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from optical.devices.devices import Photodetector, Tia
from optical.noise.laser_power import NoiseRatio
from optical.noise.link_budget import SNR_FLOOR_DB, UNIFORM_MEAN_SQUARE, Element, symbol_residue
from simulator.checks import check_positive, check_range
from simulator.errors import LinkError
from simulator.units import ELEMENTARY_CHARGE_C, db_from_ratio, ratio_from_db

MEAN_MAGNITUDE = 0.5
"""Mean of |x| for operands spread evenly over [-1, 1]."""


@dataclass(frozen=True, kw_only=True)
class Receiver:
    """What stands behind the light: a balanced pair and its amplifier, at a symbol rate."""

    bandwidth_hz: float
    """Noise bandwidth, half the symbol rate."""
    responsivity_a_per_w: float
    """Photocurrent per power."""
    dark_current_a: float
    """Dark current of one detector."""
    cmrr_db: float
    """Common-mode rejection of the pair."""
    noise_a_per_sqrt_hz: float
    """Noise density of the amplifier."""
    rin_db_per_hz: float
    """Relative intensity noise of the source."""
    residue: float
    """Share of a symbol that is left in the next one, dimensionless."""
    leakage: float
    """Least over full power of a modulator, dimensionless."""

    @classmethod
    def of(
        cls,
        detector: Photodetector,
        tia: Tia,
        *,
        symbol_rate_hz: float,
        sender_hz: float,
        rin_db_per_hz: float,
        leakage: float,
    ) -> Receiver:
        """Return the receiver that detectors and an amplifier make at a symbol rate.

        Parameters
        ----------
        detector : Photodetector
            Each of the pair.
        tia : Tia
            Their amplifier; its bandwidth counts where it states one.
        symbol_rate_hz : float
            Symbols per second; the noise bandwidth is half of it.
        sender_hz : float
            Bandwidth of what sets the symbols.
        rin_db_per_hz : float
            Relative intensity noise of a line.
        leakage : float
            As the field of that name.
        """
        bandwidths_hz = (sender_hz, detector.bandwidth_hz, *tia.poles_hz)
        return cls(
            bandwidth_hz=symbol_rate_hz / 2.0,
            responsivity_a_per_w=detector.responsivity_a_per_w,
            dark_current_a=detector.dark_current_a,
            cmrr_db=detector.cmrr_db,
            noise_a_per_sqrt_hz=tia.noise_a_per_sqrt_hz,
            rin_db_per_hz=rin_db_per_hz,
            residue=symbol_residue(bandwidths_hz, symbol_rate_hz),
            leakage=leakage,
        )

    @property
    def usable(self) -> float:
        """Share of the swing that is left by leakage and residue, dimensionless."""
        return (1.0 - self.leakage) * (1.0 - self.residue)

    @property
    def thermal_current_a2(self) -> float:
        """Variance of the current without light, ampere squared."""
        dark = 2.0 * ELEMENTARY_CHARGE_C * 2.0 * self.dark_current_a
        return (self.noise_a_per_sqrt_hz**2 + dark) * self.bandwidth_hz

    @property
    def shot_a(self) -> float:
        """Variance of a current per current, 2 q B."""
        return 2.0 * ELEMENTARY_CHARGE_C * self.bandwidth_hz

    @property
    def rin_ratio(self) -> float:
        """Variance of relative power within the bandwidth, dimensionless."""
        return ratio_from_db(self.rin_db_per_hz) * self.bandwidth_hz

    @property
    def rejection(self) -> float:
        """Share of a common current's variance that the pair lets through, dimensionless."""
        return ratio_from_db(-self.cmrr_db)


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
        worst = max(elements, key=lambda element: element.loss_db)
        msg = (
            f"the link of '{name}' does not close: a full-scale sample misses the noise by "
            f"{db_from_ratio(ratio.total):.1f} dB; the path loses {loss_db(elements):.1f} dB and divides by "
            f"{split:g}; most is lost in '{worst.name}' ({worst.loss_db:.2f} dB); raise the laser's power or "
            "shorten the path"
        )
        raise LinkError(msg)


@dataclass(frozen=True, kw_only=True)
class OscillatorBudget:
    """Field of one output of a mesh, read beside a local oscillator of the same laser.

    Notes
    -----
    Each of n inputs has the power P, an output interferes with an oscillator of power L, and a product of a
    weight and an input contributes s a w to the field: I = 2 R sqrt(L P) s sum(a w). A mesh cannot amplify,
    so its matrix must have a largest singular value of 1; a matrix of entries spread evenly over [-1, 1] has
    2 sqrt(n/3) (Marchenko and Pastur 1967, the upper edge), hence s = sqrt(3/n)/2. Noise of a sample:

    - amplifier and dark current; shot noise 2 q R L B of the oscillator; what the pair fails to reject of its
      intensity noise, (k R L / 2)^2 RIN B: none of them knows the operands;
    - shot noise of the output's own power, 2 q R P s^2 sum(a w)^2 B;
    - intensity noise y^2 RIN B, as oscillator and signal fluctuate together, and the residue of the symbol
      before. The square of the sum is counted as the sum of squares in execution (uncorrelated operands) and
      in full at full scale.

    References
    ----------
    Shen et al., Nature Photonics 11 (2017) 441, the mesh; balanced homodyne detection as in any text.
    """

    elements: tuple[Element, ...]
    """Losses of the signal."""
    oscillator_loss_db: float
    """Loss of the oscillator's path."""
    launch_w: float
    """Power of the laser."""
    oscillator_share: float
    """Share of it that becomes the oscillators of all outputs, 0 to 1."""
    length: int
    """Inputs, and outputs."""
    receiver: Receiver
    """What reads the output."""

    def __post_init__(self) -> None:
        check_positive(self, "launch_w")
        check_range(self, "length", low=1)

    @property
    def loss_db(self) -> float:
        """Loss of the signal's path beyond the ideal division."""
        return loss_db(self.elements)

    @property
    def received_w(self) -> float:
        """Power of one full input if all of it came to one output."""
        return self.launch_w * (1.0 - self.oscillator_share) * ratio_from_db(-self.loss_db) / self.length

    @property
    def oscillator_w(self) -> float:
        """Power of the oscillator of one output."""
        return self.launch_w * self.oscillator_share * ratio_from_db(-self.oscillator_loss_db) / self.length

    @property
    def field_share(self) -> float:
        """Field that a full-scale product adds to the output over that of an input, dimensionless."""
        return 0.5 / math.sqrt(UNIFORM_MEAN_SQUARE * self.length)

    @property
    def product_current_a(self) -> float:
        """Difference current of one full-scale product."""
        field = math.sqrt(self.received_w * self.oscillator_w) * self.field_share
        return 2.0 * self.receiver.responsivity_a_per_w * field * self.receiver.usable

    @property
    def _oscillator(self) -> tuple[float, float]:
        """Shot and intensity noise of the oscillator, ampere squared."""
        current_a = self.receiver.responsivity_a_per_w * self.oscillator_w
        common = self.receiver.rejection * self.receiver.rin_ratio * (0.5 * current_a) ** 2
        return self.receiver.shot_a * current_a, common

    @property
    def thermal_variance(self) -> float:
        """Variance of a sample that does not depend on the operands."""
        noise_a2 = self.receiver.thermal_current_a2 + math.fsum(self._oscillator)
        return noise_a2 / self.product_current_a**2

    @property
    def rin_variance(self) -> float:
        """Variance per unit of (a w)^2."""
        return self.receiver.rin_ratio + self.receiver.residue**2 + self._signal_shot

    @property
    def _signal_shot(self) -> float:
        power_w = self.received_w * self.field_share**2
        return self.receiver.shot_a * self.receiver.responsivity_a_per_w * power_w / self.product_current_a**2

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample, all products +1."""
        unit = 1.0 / (self.product_current_a * self.length) ** 2
        shot_a2, common_a2 = self._oscillator
        return NoiseRatio(
            dark=self.receiver.thermal_current_a2 * unit,
            shot=shot_a2 * unit + self._signal_shot,
            bright={
                "laser intensity noise": self.receiver.rin_ratio + common_a2 * unit,
                "the bandwidth of modulator and detector": self.receiver.residue**2,
            },
        )

    @property
    def snr(self) -> float:
        """Power ratio of a full-scale sample to the receiver's noise in it."""
        return 1.0 / self.noise_ratio.total

    @property
    def effective_bits(self) -> float:
        """Effective bits of the receiver alone, for a full-scale sample."""
        return self.noise_ratio.effective_bits


@dataclass(frozen=True, kw_only=True)
class DifferenceBudget:
    """Power of one output of an array of absorbers, read as the difference of two columns.

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

    elements: tuple[Element, ...]
    """Losses, with the clear cell."""
    split: float
    """Ideal division: power of a line over its share at one detector, dimensionless."""
    launch_w: float
    """Power of one comb line at the source."""
    contrast: float
    """Opaque over clear transmission of a cell, dimensionless."""
    length: int
    """Inputs that one detector adds."""
    offset: bool
    """Whether signed inputs are shifted, or else sent in two passes."""
    receiver: Receiver
    """What reads the output."""

    def __post_init__(self) -> None:
        check_positive(self, "launch_w")
        check_range(self, "length", "split", low=1)
        check_range(self, "contrast", high=0.999)

    @property
    def loss_db(self) -> float:
        """Loss of the path beyond the ideal division."""
        return loss_db(self.elements)

    @property
    def received_w(self) -> float:
        """Power of one full input at a detector, behind a clear cell."""
        return self.launch_w * ratio_from_db(-self.loss_db) / self.split

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
        """Variance of a sample that does not depend on the operands: amplifier, and light always there."""
        passes = 1.0 if self.offset else 2.0
        sent = 0.5 if self.offset else MEAN_MAGNITUDE * 2.0 * self.floor
        through = MEAN_MAGNITUDE + 2.0 * self.floor
        always = (sent * through if self.offset else sent) + passes * self.receiver.leakage * through
        return self._amplifier_variance + self.length * self._shot_unit * always

    @property
    def shot_variance(self) -> float:
        """Variance per unit of a^2 + w^2."""
        carried = self.receiver.rin_ratio if self.offset else 0.5 * self._shot_unit
        return carried + self._common_variance

    @property
    def rin_variance(self) -> float:
        """Variance per unit of (a w)^2."""
        return self.receiver.rin_ratio + self.receiver.residue**2

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample, all products +1."""
        unit, n = 1.0 / self.length**2, self.length
        carried = 2.0 * self.receiver.rin_ratio if self.offset else 0.0
        shot = self.thermal_variance - self._amplifier_variance
        shot += 0.0 if self.offset else n * self._shot_unit
        return NoiseRatio(
            dark=self._amplifier_variance * unit,
            shot=shot * unit,
            bright={
                "laser intensity noise": n
                * (self.receiver.rin_ratio + carried + 2.0 * self._common_variance)
                * unit,
                "the bandwidth of modulator and detector": n * self.receiver.residue**2 * unit,
            },
        )

    @property
    def snr(self) -> float:
        """Power ratio of a full-scale sample to the receiver's noise in it."""
        return 1.0 / self.noise_ratio.total

    @property
    def effective_bits(self) -> float:
        """Effective bits of the receiver alone, for a full-scale sample."""
        return self.noise_ratio.effective_bits
