"""Link budgets of arrays that hold weights: powers divided, fields beside an oscillator, cells in columns.

Variances are in the units of `optical.execution.AnalogSpec`: one full-scale product is 1, per ADC
sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from optical.noise.link_budget import UNIFORM_MEAN_SQUARE, LightBudget, NoiseRatio
from simulator.checks import check_range
from simulator.units import ratio_from_db

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


@dataclass(frozen=True, kw_only=True)
class OscillatorBudget(LightBudget):
    """Link budget of one output of a mesh, its field read beside a local oscillator of the same laser.

    Notes
    -----
    Each of n inputs has the power P, an output interferes with an oscillator of power L, and a product of a
    weight and an input contributes s a w to the field: I = 2 R sqrt(L P) s sum(a w). A mesh cannot amplify,
    so its matrix must have a largest singular value of 1; a matrix of entries spread evenly over [-1, 1] has
    2 sqrt(n/3) (Marchenko and Pastur 1967, the upper edge), hence s = sqrt(3/n)/2. Noise of a sample:

    - amplifier and dark current; shot noise 2 q R L B of the oscillator; what the pair fails to reject of its
      intensity noise, (k R L / 2)^2 RIN B: none of them knows the operands;
    - shot noise of the output's own power, 2 q R P s^2 sum(a w)^2 B;
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
    def shot_variance(self) -> float:
        """Return 0: the oscillator's shot noise does not know the operands, the signal's follows (a w)^2."""
        return 0.0

    @property
    def rin_variance(self) -> float:
        """Variance per unit of (a w)^2."""
        return super().rin_variance + self._signal_shot

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
                "interference of symbols": n * self.receiver.interference * unit,
                "crosstalk of multiplexers": n * self.mixing * unit,
            },
        )
