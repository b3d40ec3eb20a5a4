"""Parts of the homodyne core alone: an integrating receiver, and the arms of its interferometers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.checks import check_positive, check_range
from simulator.units import BOLTZMANN_J_PER_K, SPEED_OF_LIGHT_M_PER_S


@dataclass(frozen=True, kw_only=True)
class IntegratingReceiver:
    """Balanced pair whose difference current charges a capacitor until it is read and emptied.

    Notes
    -----
    Emptying leaves a charge of variance kTC, once per reading whatever was summed before; that is this
    receiver's thermal noise. The pair need not follow a symbol, so its bandwidth does not matter.
    """

    name: str
    """Name shown in tables."""
    responsivity_a_per_w: float
    """Photocurrent per optical power."""
    dark_current_a: float
    """Current of one detector without light."""
    cmrr_db: float
    """Common-mode rejection of the pair: 20 log10 of mean over difference of the two responses."""
    capacitance_f: float
    """Capacitor with what hangs on it."""
    swing_v: float
    """Largest voltage on it, to either side."""
    temperature_k: float
    """Temperature."""
    bias_w: float
    """Power of bias and buffer per detector, all the time."""
    area_m2: float
    """Area of the pair."""

    def __post_init__(self) -> None:
        check_positive(self, "responsivity_a_per_w", "capacitance_f", "swing_v")
        check_range(self, "dark_current_a", "cmrr_db", "temperature_k", "bias_w", "area_m2")

    @property
    def reset_charge_c(self) -> float:
        """Rms charge that emptying leaves, sqrt(kTC)."""
        return math.sqrt(BOLTZMANN_J_PER_K * self.temperature_k * self.capacitance_f)

    @property
    def full_charge_c(self) -> float:
        """Largest charge that it takes, to either side."""
        return self.capacitance_f * self.swing_v

    @property
    def reset_energy_j(self) -> float:
        """Energy of charging to half the swing and emptying, C (V/2)^2 from the supply."""
        return self.capacitance_f * (self.swing_v / 2.0) ** 2

    def noise_density_a_per_sqrt_hz(self, symbol_rate_hz: float, symbols: int) -> float:
        """Return the density of amplifier noise that equals the reset noise of one reading.

        Parameters
        ----------
        symbol_rate_hz : float
            Symbols per second.
        symbols : int
            Symbols between two readings.

        Notes
        -----
        Noise of density i in the bandwidth f/2 puts a charge of variance i^2 / (2 f) on the capacitor per
        symbol; n of them equal kTC for i^2 = 2 f kTC / n.
        """
        return self.reset_charge_c * math.sqrt(2.0 * symbol_rate_hz / symbols)


@dataclass(frozen=True, kw_only=True)
class InterferometerArms:
    """How well the phases of two operands' light keep to each other.

    References
    ----------
    Laser phase noise of a linewidth w: the phase wanders by 2 pi w t squared in a time t (Wiener process), as
    in any text on coherent receivers.
    """

    name: str
    """Name shown in tables."""
    linewidth_hz: float
    """Linewidth of the laser."""
    mismatch_m: float
    """Difference in length of the two paths from the common source."""
    group_index: float
    """Group index of the paths, dimensionless."""
    diffusion_s: float
    """Time in which slow drift moves the phase by one radian rms, as a random walk."""

    def __post_init__(self) -> None:
        check_range(self, "linewidth_hz", "mismatch_m")
        check_range(self, "group_index", low=1.0)
        check_positive(self, "diffusion_s")

    def phase_variance(self, integration_s: float) -> float:
        """Return the mean square of the phase between the arms over an integration, radian squared.

        Parameters
        ----------
        integration_s : float
            Time between two corrections of the phase, one integration.
        """
        delay_s = self.mismatch_m * self.group_index / SPEED_OF_LIGHT_M_PER_S
        laser = 2.0 * math.pi * self.linewidth_hz * delay_s
        return laser + 0.5 * integration_s / self.diffusion_s
