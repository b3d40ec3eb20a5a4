"""Phase shifters by how they shift: charge on electrodes (Pockels effect, MEMS), or injected carriers.

With the heater of `optical.devices.programmable` they are the choices of a core that holds phases. Losses are
positive decibels. Where a part's loss follows its phase, light of different paths fades differently, which no
setting of phases corrects; the mean of that loss is balanced by a dummy in the other arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from simulator.checks import check_positive, check_range

QUARTER_TURN_RAD = math.pi / 2.0
"""Phase that a node of a coherent crossbar holds for ever."""
MEAN_PHASE_RAD = math.pi
"""Mean of the phases of a random matrix, which spread evenly over [0, 2 pi)."""
_SPREAD = 2.0 / math.sqrt(12.0)
"""Standard deviation of such phases in units of pi."""
_STEP_SQUARE = 2.0 / 3.0
"""Mean square of the difference of two such phases in units of pi."""
_NEPER_PER_DB = math.log(10.0) / 20.0


class QuarterTurn(Protocol):
    """A part that can hold the quarter turn of a node."""

    @property
    def name(self) -> str:
        """Name shown in the path."""
        ...

    @property
    def phase_error_rad(self) -> float:
        """Standard deviation of the phase from its setting."""
        ...

    @property
    def area_m2(self) -> float:
        """Area."""
        ...

    def loss_db(self, phase_rad: float) -> float:
        """Return the loss at a phase."""
        ...

    def hold_w(self, phase_rad: float) -> float:
        """Return what holding a phase takes."""
        ...


class HeldPhase(QuarterTurn, Protocol):
    """A part that can be set to a new phase and holds it: what a mesh asks of its shifters."""

    @property
    def settling_s(self) -> float:
        """Time until a new phase stands."""
        ...

    @property
    def drift_rad(self) -> float:
        """Standard deviation of the phase from its setting between calibrations."""
        ...

    @property
    def setting_j(self) -> float:
        """Energy of going from one random phase to another, beyond its converter and what holding takes."""
        ...

    @property
    def amplitude_spread(self) -> float:
        """Relative standard deviation of the field that random phases let through, dimensionless."""
        ...

    def crosstalk_rad(self, spacing_m: float) -> float:
        """Return the standard deviation of the phase that neighbours add."""
        ...


def amplitude_spread(variation_db: float) -> float:
    """Return the relative standard deviation of a field whose loss grows by so much from phase 0 to pi."""
    return _NEPER_PER_DB * variation_db * _SPREAD


@dataclass(frozen=True, kw_only=True)
class CapacitiveShifter:
    """Phase shifter set by a voltage across a capacitor: Pockels effect or MEMS; holding it takes no current.

    Notes
    -----
    Phase is taken as proportional to voltage (exact for the Pockels effect). A step by dV dissipates
    C dV^2 / 2 in the wires, whatever the driver is; phases spread evenly over [0, 2 pi) differ by
    sqrt(2/3) pi rms. No heat flows, so neighbours do not disturb each other.
    """

    name: str
    """Name shown in tables."""
    insertion_loss_db: float
    """Loss."""
    loss_variation_db: float
    """What the loss grows by from a phase of 0 to pi."""
    half_wave_v: float
    """Voltage that turns the phase by pi."""
    capacitance_f: float
    """Capacitance of the electrodes."""
    leakage_w: float
    """Power of holding any phase."""
    settling_s: float
    """Time until a new phase stands."""
    drift_rad: float
    """Standard deviation of the phase from its setting between calibrations."""
    area_m2: float
    """Area."""

    def __post_init__(self) -> None:
        check_positive(self, "settling_s", "half_wave_v")
        check_range(self, "insertion_loss_db", "loss_variation_db", "capacitance_f", "leakage_w")
        check_range(self, "drift_rad", "area_m2")

    @property
    def phase_error_rad(self) -> float:
        """Standard deviation of the phase from its setting."""
        return self.drift_rad

    @property
    def setting_j(self) -> float:
        """Energy of going from one random phase to another."""
        return 0.5 * self.capacitance_f * self.half_wave_v**2 * _STEP_SQUARE

    @property
    def amplitude_spread(self) -> float:
        """Relative standard deviation of the field that random phases let through, dimensionless."""
        return amplitude_spread(self.loss_variation_db)

    def loss_db(self, phase_rad: float) -> float:
        """Return the loss at a phase."""
        return self.insertion_loss_db + self.loss_variation_db * phase_rad / math.pi

    def hold_w(self, phase_rad: float) -> float:
        """Return what holding a phase takes: the same for all but none."""
        return self.leakage_w if phase_rad else 0.0

    def crosstalk_rad(self, spacing_m: float) -> float:
        """Return 0: no heat flows."""
        return 0.0


@dataclass(frozen=True, kw_only=True)
class CarrierShifter:
    """Phase shifter of injected carriers: quick, held by a current, and absorbing as it shifts.

    References
    ----------
    R. A. Soref and B. R. Bennett, "Electrooptical effects in silicon", IEEE J. Quantum Electron. 23 (1987)
    123: carriers change index and absorption together.
    """

    name: str
    """Name shown in tables."""
    insertion_loss_db: float
    """Loss without carriers."""
    absorption_db: float
    """Loss that the carriers of a phase of pi add; proportional to phase."""
    half_wave_w: float
    """Power that holds a phase of pi; proportional to phase."""
    settling_s: float
    """Time until a new phase stands: the carriers' lifetime."""
    drift_rad: float
    """Standard deviation of the phase from its setting between calibrations."""
    area_m2: float
    """Area."""

    def __post_init__(self) -> None:
        check_positive(self, "settling_s")
        check_range(self, "insertion_loss_db", "absorption_db", "half_wave_w", "drift_rad", "area_m2")

    @property
    def phase_error_rad(self) -> float:
        """Standard deviation of the phase from its setting."""
        return self.drift_rad

    @property
    def setting_j(self) -> float:
        """Return 0: the carriers that leave within a lifetime are part of the holding power."""
        return 0.0

    @property
    def amplitude_spread(self) -> float:
        """Relative standard deviation of the field that random phases let through, dimensionless."""
        return amplitude_spread(self.absorption_db)

    def loss_db(self, phase_rad: float) -> float:
        """Return the loss at a phase."""
        return self.insertion_loss_db + self.absorption_db * phase_rad / math.pi

    def hold_w(self, phase_rad: float) -> float:
        """Return what holding a phase takes."""
        return self.half_wave_w * (phase_rad / math.pi)

    def crosstalk_rad(self, spacing_m: float) -> float:
        """Return 0: carriers stay in their junction; its heat is left out."""
        return 0.0


def soref_bennett_absorption_db(carriers_per_m3: float, wavelength_m: float) -> float:
    """Return the loss that carriers of a phase of pi add in silicon, light wholly within them.

    Parameters
    ----------
    carriers_per_m3 : float
        Density of electrons, and as many holes.
    wavelength_m : float
        Near 1.55 um, where the coefficients hold.

    Notes
    -----
    dn = -(8.8e-22 N + 8.5e-18 N^0.8), da = (8.5e-18 + 6.0e-18) N per cm, N per cubic centimetre; a phase of
    pi takes the length wavelength / (2 |dn|).

    References
    ----------
    Soref and Bennett, IEEE J. Quantum Electron. 23 (1987) 123, the fits quoted in every text since.
    """
    density = carriers_per_m3 * _PER_CM3
    index = 8.8e-22 * density + 8.5e-18 * density**0.8
    absorption_per_m = (8.5e-18 + 6.0e-18) * density / _M_PER_CM
    return 10.0 * math.log10(math.e) * absorption_per_m * wavelength_m / (2.0 * index)


_M_PER_CM = 0.01
_PER_CM3 = _M_PER_CM**3
