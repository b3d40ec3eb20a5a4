"""Parts that are set to a value and hold it: phase shifters, couplers of a mesh, phase-change cells.

Phase shifters differ by how they shift: heat, charge on electrodes (Pockels effect, MEMS), or injected
carriers. Losses are positive decibels. Where a part's loss follows its phase, light of different paths fades
differently, which no setting of phases corrects; the mean of that loss is balanced by a dummy in the other
arm.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from optical.devices.parts import Device, Domain
from simulator.checks import check_positive, check_range
from simulator.tables import Table, read_table

NEIGHBOURS = 4
"""Heaters around a heater that are near enough to warm it."""
QUARTER_TURN_RAD = math.pi / 2.0
"""Phase that a node of a coherent crossbar holds for ever."""
MEAN_PHASE_RAD = math.pi
"""Mean of the phases of a random matrix, which spread evenly over [0, 2 pi)."""
_SPREAD = 2.0 / math.sqrt(12.0)
"""Standard deviation of such phases in units of pi."""
_STEP_SQUARE = 2.0 / 3.0
"""Mean square of the difference of two such phases in units of pi."""
_NEPER_PER_DB = math.log(10.0) / 20.0


@cache
def programmable_table() -> Table:
    """Return the table of programmable parts that ships with the package."""
    return read_table(Path(__file__).parents[1] / "parameters" / "programmable.csv")


class HeldPhase(Device, ABC):
    """Base of phase shifters that can be set to a new phase and hold it."""

    name: str
    """Name shown in the path."""
    drift_rad: float
    """Standard deviation of the phase from its setting between calibrations."""

    @property
    def phase_error_rad(self) -> float:
        """Standard deviation of the phase from its setting."""
        return self.drift_rad

    @property
    def amplitude_spread(self) -> float:
        """Relative standard deviation of the field that random phases let through, dimensionless."""
        return 0.0

    @property
    def setting_j(self) -> float:
        """Energy of going from one random phase to another, beyond its converter and what holding takes."""
        return 0.0

    @abstractmethod
    def loss_db(self, phase_rad: float) -> float:
        """Return the loss at a phase."""

    @abstractmethod
    def hold_w(self, phase_rad: float) -> float:
        """Return the power that holds a phase."""

    def crosstalk_rad(self, spacing_m: float) -> float:
        """Return the standard deviation of the phase that neighbours add: none without heat."""
        return 0.0


def amplitude_spread(variation_db: float) -> float:
    """Return the relative standard deviation of a field whose loss grows by so much from phase 0 to pi."""
    return _NEPER_PER_DB * variation_db * _SPREAD


@dataclass(frozen=True, kw_only=True)
class Heater(HeldPhase):
    """Thermal phase shifter: holds a phase as long as it is heated."""

    name: str
    """Name shown in tables."""
    insertion_loss_db: float
    """Loss."""
    half_wave_w: float
    """Power that holds a phase of pi; power is proportional to phase."""
    settling_s: float
    """Time until a new phase stands."""
    drift_rad: float
    """Standard deviation of the phase from its setting between calibrations."""
    contact_coupling: float
    """Phase of a neighbour that arrives here per phase there, extrapolated to no distance, dimensionless."""
    decay_length_m: float
    """Distance over which that falls by e."""
    area_m2: float
    """Area."""

    def __post_init__(self) -> None:
        check_positive(self, "settling_s", "decay_length_m")
        check_range(self, "insertion_loss_db", "half_wave_w", "drift_rad", "area_m2")
        check_range(self, "contact_coupling", high=1.0)

    def loss_db(self, phase_rad: float) -> float:
        """Return the loss, at any phase."""
        return self.insertion_loss_db

    def hold_w(self, phase_rad: float) -> float:
        """Return what holding a phase takes."""
        return self.half_wave_w * (phase_rad / math.pi)

    def crosstalk_rad(self, spacing_m: float) -> float:
        """Return the standard deviation of the phase that neighbours add.

        Parameters
        ----------
        spacing_m : float
            Distance to each of `NEIGHBOURS` heaters.

        Notes
        -----
        Coupling exp(-d/l) per neighbour, each with a phase spread evenly over [0, 2 pi); its mean is
        calibrated away. The exponential is fitted to silicon heaters 23 um and more apart (SCATTER).
        """
        coupling = self.contact_coupling * math.exp(-spacing_m / self.decay_length_m)
        return coupling * math.sqrt(NEIGHBOURS) * 2.0 * math.pi / math.sqrt(12.0)


@dataclass(frozen=True, kw_only=True)
class CapacitiveShifter(HeldPhase):
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
    """Growth of the loss from a phase of 0 to pi."""
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


@dataclass(frozen=True, kw_only=True)
class CarrierShifter(HeldPhase):
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
    def amplitude_spread(self) -> float:
        """Relative standard deviation of the field that random phases let through, dimensionless."""
        return amplitude_spread(self.absorption_db)

    def loss_db(self, phase_rad: float) -> float:
        """Return the loss at a phase."""
        return self.insertion_loss_db + self.absorption_db * phase_rad / math.pi

    def hold_w(self, phase_rad: float) -> float:
        """Return what holding a phase takes."""
        return self.half_wave_w * (phase_rad / math.pi)


@dataclass(frozen=True, kw_only=True)
class MeshCoupler(Device):
    """One of the two 50:50 couplers of a Mach-Zehnder interferometer."""

    name: str
    """Name shown in tables."""
    insertion_loss_db: float
    """Loss."""
    angle_error_rad: float
    """Standard deviation of the coupling angle from pi/4, fixed per chip."""
    area_m2: float
    """Area."""

    def __post_init__(self) -> None:
        check_range(self, "insertion_loss_db", "angle_error_rad", "area_m2")


@dataclass(frozen=True, kw_only=True)
class MeshLayout:
    """Layout of a mesh of interferometers."""

    name: str
    """Name shown in tables."""
    stage_length_m: float
    """Length of one column of interferometers."""
    spacing_m: float
    """Distance between neighbouring heaters."""
    cell_fill: float
    """Area of an interferometer's devices over the area of its cell, 0 to 1."""
    feed_length_m: float
    """Waveguide from the source to the mesh."""

    def __post_init__(self) -> None:
        check_positive(self, "stage_length_m", "spacing_m")
        check_range(self, "cell_fill", high=1.0, open_low=True)
        check_range(self, "feed_length_m")


@dataclass(frozen=True, kw_only=True)
class Decomposer(Device):
    """Digital unit beside a core that turns a matrix into phases."""

    domain = Domain.ELECTRONIC
    """Die that it is made on."""
    name: str
    """Name shown in tables."""
    rate_flop_per_s: float
    """Arithmetic rate."""
    energy_j_per_flop: float
    """Energy of an operation with its operands."""
    area_m2: float
    """Area."""

    def __post_init__(self) -> None:
        check_positive(self, "rate_flop_per_s")
        check_range(self, "energy_j_per_flop", "area_m2")


@dataclass(frozen=True, kw_only=True)
class PcmCell(Device):
    """Phase-change patch on a waveguide: its transmission is a weight, held without power."""

    name: str
    """Name shown in tables."""
    insertion_loss_db: float
    """Loss in the clear state."""
    contrast_db: float
    """Clear over opaque transmission."""
    level_bits: float
    """Levels between the two that programming tells apart, as bits."""
    full_write_j: float
    """Energy of a write from clear to opaque or back; in proportion for part of the way, in decibels."""
    write_s: float
    """Time of a write."""
    endurance_writes: float
    """Writes that the cell survives."""
    drift_exponent: float
    """Transmission falls as (time since the write / `drift_start_s`) to minus this, dimensionless."""
    drift_spread: float
    """Standard deviation of that exponent between cells over its mean, dimensionless."""
    drift_start_s: float
    """Time after a write at which the fall begins."""
    area_m2: float
    """Area with its two couplers."""

    def __post_init__(self) -> None:
        check_positive(
            self, "contrast_db", "level_bits", "write_s", "endurance_writes", "drift_start_s", "area_m2"
        )
        check_range(self, "insertion_loss_db", "full_write_j", "drift_exponent", "drift_spread")

    @property
    def write_j(self) -> float:
        """Energy of one write: two levels spread evenly in decibels are a third of the range apart."""
        return self.full_write_j / 3.0

    def drift(self, held_s: float) -> float:
        """Return the mean relative fall of the transmission's logarithm after a time, dimensionless."""
        return self.drift_exponent * math.log1p(held_s / self.drift_start_s)
