"""Light whose power carries an operand, weighted and detected in a balanced pair, to one ADC sample.

The counterpart of `optical.noise.link_budget`, where fields interfere. Variances are in the units of
`optical.execution.AnalogSpec`: one full-scale product is 1, per ADC sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from optical.noise.laser_power import NoiseRatio
from optical.noise.link_budget import UNIFORM_MEAN_SQUARE, Element, bits_from_snr
from simulator.checks import check_positive, check_range
from simulator.errors import ParameterError
from simulator.units import ELEMENTARY_CHARGE_C, ratio_from_db

SIGN_PASSES = 2
"""Symbols per product: the inputs' positive part, then the negative part, integrated with the other sign."""


@dataclass(frozen=True, kw_only=True)
class IntensityBudget:
    """What a balanced pair behind a bank of weights receives, and how noisy that is.

    Notes
    -----
    Each wavelength brings the power P x, x in [0, 1]; a weight w in [-1, 1] divides it between two detectors,
    (1 + w)/2 and (1 - w)/2, whose currents differ by R P x w. A signed input takes `SIGN_PASSES` symbols, in
    one of which it is zero; the sum of both is read. In a bandwidth B = f/2, per sample of n wavelengths:

    - amplifier and dark current of both symbols;
    - shot noise 2 q R P |x| B per product, whatever the weight. The bound |x| <= (1 + x^2)/2, exact at full
      scale, brings it into the form of the record: a constant and a part in x^2, half of which is given to
      the weight's square, which has the same size where both operands are spread alike;
    - intensity noise (x w)^2 RIN B. What the pair fails to reject, (k R P x / 2)^2 RIN B with
      k = 10^(-CMRR/20), is given to both operands in the same way;
    - finite extinction: the dark level e of the two symbols cancels, costs the swing 1 - e and adds shot
    noise;
    - a residue r of the previous symbol: the share 1 - r scales the product, r^2 (x w)^2 is an error.

    References
    ----------
    A. N. Tait et al., "Broadcast and weight", J. Lightwave Technol. 32 (2014) 4029; shot, thermal and RIN
    currents as in any text on optical receivers.
    """

    elements: tuple[Element, ...]
    """Losses from the source to the detector."""
    split: float
    """Ideal division: power of a line over its share at one bank, dimensionless."""
    launch_w: float
    """Power of one line at the source."""
    weight_swing: float
    """Share of the light that a weight moves between the detectors from end to end, 0 to 1."""
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
    """Common-mode rejection of the pair."""
    noise_a_per_sqrt_hz: float
    """Noise density of the amplifier."""
    rin_db_per_hz: float
    """Relative intensity noise of a line."""
    wavelengths: int
    """Products in one sample."""

    def __post_init__(self) -> None:
        check_positive(self, "launch_w", "bandwidth_hz", "responsivity_a_per_w")
        check_range(self, "split", "wavelengths", low=1)
        check_range(self, "dark_current_a", "noise_a_per_sqrt_hz")
        check_range(self, "weight_swing", high=1.0, open_low=True)
        for name in ("leakage", "residue"):
            if not 0.0 <= getattr(self, name) < 1.0:
                msg = f"IntensityBudget: {name} must be at least 0 and below 1; got {getattr(self, name):g}"
                raise ParameterError(msg)

    @property
    def loss_db(self) -> float:
        """Loss of the path beyond the ideal division."""
        return math.fsum(element.loss_db for element in self.elements)

    @property
    def received_w(self) -> float:
        """Power per wavelength at a balanced pair, input at full scale."""
        return self.launch_w * ratio_from_db(-self.loss_db) / self.split

    @property
    def product_current_a(self) -> float:
        """Difference current of one full-scale product."""
        usable = self.weight_swing * (1.0 - self.leakage) * (1.0 - self.residue)
        return self.responsivity_a_per_w * self.received_w * usable

    @property
    def thermal_current_a(self) -> float:
        """Rms noise current of amplifier and dark current in one symbol."""
        dark = 2.0 * ELEMENTARY_CHARGE_C * 2.0 * self.dark_current_a
        return math.sqrt((self.noise_a_per_sqrt_hz**2 + dark) * self.bandwidth_hz)

    @property
    def rin_ratio(self) -> float:
        """Variance of a line's relative power within the noise bandwidth, dimensionless."""
        return ratio_from_db(self.rin_db_per_hz) * self.bandwidth_hz

    @property
    def _shot(self) -> float:
        """Shot noise of the light of one input at full scale, over a full-scale product squared."""
        light_a = self.responsivity_a_per_w * self.received_w
        return 2.0 * ELEMENTARY_CHARGE_C * light_a * self.bandwidth_hz / self.product_current_a**2

    @property
    def _constant_shot(self) -> float:
        """Shot noise of a sample that does not depend on the operands."""
        return self.wavelengths * self._shot * (0.5 + SIGN_PASSES * self.leakage)

    @property
    def thermal_variance(self) -> float:
        """Variance of a sample that does not depend on the operands."""
        return SIGN_PASSES * (self.thermal_current_a / self.product_current_a) ** 2 + self._constant_shot

    @property
    def rejected_variance(self) -> float:
        """Intensity noise that the pair fails to reject, per unit of a^2 + b^2."""
        usable = self.product_current_a / (self.responsivity_a_per_w * self.received_w)
        return ratio_from_db(-self.cmrr_db) / 8.0 * self.rin_ratio / usable**2

    @property
    def shot_variance(self) -> float:
        """Variance per unit of a^2 + b^2: shot noise, and intensity noise that the pair fails to reject."""
        return 0.25 * self._shot + self.rejected_variance

    @property
    def rin_variance(self) -> float:
        """Variance per unit of (a b)^2: intensity noise, and the residue of the previous symbol."""
        return self.rin_ratio + self.residue**2

    def noise_variance(self, mean_square: float = 1.0) -> float:
        """Return the variance of a sample whose operands have a mean square; 1 is full scale."""
        even = self.thermal_variance + 2.0 * self.wavelengths * mean_square * self.shot_variance
        return even + self.wavelengths * mean_square**2 * self.rin_variance

    @property
    def snr(self) -> float:
        """Power ratio of a full-scale sample, all products +1, to the receiver's noise in it."""
        return self.wavelengths**2 / self.noise_variance()

    @property
    def effective_bits(self) -> float:
        """Effective bits of the receiver alone, for a full-scale sample at the detector."""
        return bits_from_snr(self.snr)

    @property
    def typical_snr(self) -> float:
        """Power ratio for uncorrelated operands spread evenly over [-1, 1], receiver alone."""
        return self.wavelengths * UNIFORM_MEAN_SQUARE**2 / self.noise_variance(UNIFORM_MEAN_SQUARE)

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample, all products +1, converters and weights apart."""
        signal = self.wavelengths**2
        return NoiseRatio(
            dark=SIGN_PASSES * (self.thermal_current_a / self.product_current_a) ** 2 / signal,
            shot=(self._constant_shot + 0.5 * self.wavelengths * self._shot) / signal,
            bright={
                "laser intensity noise": (self.rin_ratio + 2.0 * self.rejected_variance) / self.wavelengths,
                "the bandwidth of modulator, detector and ring": self.residue**2 / self.wavelengths,
            },
        )
