"""A semiconductor optical amplifier behind the source: more light, and noise that stays in it.

It stands between the coupling into the chip and everything else, so that all lines of a core pass it before
they are divided: what it adds is intensity noise of the light that both operands, or signal and oscillator,
share. Phase noise of its emission is shared as well and cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from optical.devices.limits import photon_energy_j
from optical.devices.parts import Device
from simulator.checks import check_positive, check_range
from simulator.errors import ParameterError
from simulator.units import db_from_ratio, ratio_from_db

_HALVINGS = 60
"""Halvings of the interval in which the saturated gain lies."""


@dataclass(frozen=True, kw_only=True)
class Soa(Device):
    """Semiconductor optical amplifier on one polarisation.

    Notes
    -----
    With G the gain, F the noise figure and S = n_sp (G - 1) h nu the spectral density of the emission,
    F = 2 n_sp (G - 1)/G + 1/G, from which n_sp follows; it is taken not to change as the gain saturates.
    The gain saturates as G = G0 exp(-(G - 1)/G P_out/P_s), which has fallen to G0/2 at
    P_out = ln 2 G0/(G0 - 2) P_s, the saturation power of data sheets. A detected power P has in a bandwidth B

    - beats of signal and emission, variance 4 R^2 P S B: relative to P^2, 4 S/P per hertz;
    - beats of the emission with itself within the optical bandwidth B_o of a line, 2 R^2 S^2 B_o B.

    Left out: the damping of the source's own intensity noise by saturation, and mixing of the lines.

    References
    ----------
    N. A. Olsson, "Lightwave systems with optical amplifiers", J. Lightwave Technol. 7 (1989) 1071, equations
    of the beat noises; G. P. Agrawal, "Fiber-Optic Communication Systems", chapter on optical amplifiers:
    noise figure and gain saturation.
    """

    name: str
    """Name shown in tables."""
    gain_db: float
    """Gain of faint light."""
    noise_figure_db: float
    """Noise figure at that gain; at least the quantum limit, 2 - 1/G as a ratio."""
    saturation_w: float
    """Output power at which the gain has fallen to half."""
    optical_bandwidth_hz: float
    """Bandwidth of its emission that comes to a detector with one line."""
    power_w: float
    """Electrical power, all the time."""
    area_m2: float
    """Area."""

    def __post_init__(self) -> None:
        check_positive(self, "saturation_w", "optical_bandwidth_hz")
        check_range(self, "gain_db", low=3.1)
        check_range(self, "power_w", "area_m2")
        if self.spontaneous_factor < 1.0:
            limit_db = db_from_ratio(2.0 - 1.0 / ratio_from_db(self.gain_db))
            msg = (
                f"Soa '{self.name}': noise_figure_db ({self.noise_figure_db:g}) must be at least "
                f"{limit_db:.2f}, the quantum limit at a gain of {self.gain_db:g} dB"
            )
            raise ParameterError(msg)

    @property
    def spontaneous_factor(self) -> float:
        """Factor n_sp of spontaneous emission, 1 with full inversion; dimensionless."""
        gain = ratio_from_db(self.gain_db)
        return (gain * ratio_from_db(self.noise_figure_db) - 1.0) / (2.0 * (gain - 1.0))

    def gain(self, input_w: float) -> float:
        """Return the gain of all light together, dimensionless.

        Parameters
        ----------
        input_w : float
            Power that comes in, all lines.
        """
        linear = ratio_from_db(self.gain_db)
        scale_w = self.saturation_w * (linear - 2.0) / (math.log(2.0) * linear)
        low, high = 0.0, math.log(linear)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            if middle + math.expm1(middle) * input_w / scale_w > math.log(linear):
                high = middle
            else:
                low = middle
        return math.exp(0.5 * (low + high))

    def emission_w_per_hz(self, gain: float) -> float:
        """Return the spectral density of the emission in one polarisation, watt per hertz."""
        return self.spontaneous_factor * (gain - 1.0) * photon_energy_j()

    def added_rin_per_hz(self, line_w: float, gain: float) -> float:
        """Return the intensity noise that it adds to a line, relative to its power squared, per hertz.

        Parameters
        ----------
        line_w : float
            Power of the line that comes in.
        gain : float
            Gain, dimensionless.
        """
        emission = self.emission_w_per_hz(gain) / (gain * line_w)
        return 4.0 * emission + 2.0 * emission**2 * self.optical_bandwidth_hz
