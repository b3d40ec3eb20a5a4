"""Parts that are set to a value and hold it: phase shifters, couplers, phase-change cells, banks of rings.

Phase shifters differ by how they shift: heat, charge on electrodes (Pockels effect, MEMS), or injected
carriers. Losses are positive decibels. Where a part's loss follows its phase, light of different paths fades
differently, which no setting of phases corrects; the mean of that loss is balanced by a dummy in the other
arm.

Detunings are in full linewidths of a ring. A ring drops the share D = 1 / (1 + (2 d)^2) of a wavelength that
is d linewidths away; what it does not drop passes on. Heaters only pull a ring to one side.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from optical.devices.parts import Device, ElectronicDevice, Named
from simulator.errors import Efficiency, Positive, Share
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
        """Energy of going from one random phase to another, without the converter's and that of holding."""
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

    insertion_loss_db: float
    """Loss."""
    half_wave_w: float
    """Power that holds a phase of pi; power is proportional to phase."""
    settling_s: Positive
    """Time until a new phase stands."""
    drift_rad: float
    """Standard deviation of the phase from its setting between calibrations."""
    contact_coupling: Share
    """Phase of a neighbour that arrives here per phase there, extrapolated to no distance, dimensionless."""
    decay_length_m: Positive
    """Distance over which that falls by e."""
    area_m2: float
    """Area."""

    def loss_db(self, phase_rad: float) -> float:
        """Return the loss, at any phase."""
        return self.insertion_loss_db

    def hold_w(self, phase_rad: float) -> float:
        """Return the power that holds a phase."""
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

    insertion_loss_db: float
    """Loss."""
    loss_variation_db: float
    """Growth of the loss from a phase of 0 to pi."""
    half_wave_v: Positive
    """Voltage that turns the phase by pi."""
    capacitance_f: float
    """Capacitance of the electrodes."""
    leakage_w: float
    """Power of holding any phase."""
    settling_s: Positive
    """Time until a new phase stands."""
    drift_rad: float
    """Standard deviation of the phase from its setting between calibrations."""
    area_m2: float
    """Area."""

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
        """Return the power that holds a phase: the leakage, for any phase but zero."""
        return self.leakage_w if phase_rad else 0.0


@dataclass(frozen=True, kw_only=True)
class CarrierShifter(HeldPhase):
    """Phase shifter of injected carriers: quick, held by a current, and absorbing as it shifts.

    References
    ----------
    R. A. Soref and B. R. Bennett, "Electrooptical effects in silicon", IEEE J. Quantum Electron. 23 (1987)
    123: carriers change index and absorption together.
    """

    insertion_loss_db: float
    """Loss without carriers."""
    absorption_db: float
    """Loss that the carriers of a phase of pi add; proportional to phase."""
    half_wave_w: float
    """Power that holds a phase of pi; proportional to phase."""
    settling_s: Positive
    """Time until a new phase stands: the carriers' lifetime."""
    drift_rad: float
    """Standard deviation of the phase from its setting between calibrations."""
    area_m2: float
    """Area."""

    @property
    def amplitude_spread(self) -> float:
        """Relative standard deviation of the field that random phases let through, dimensionless."""
        return amplitude_spread(self.absorption_db)

    def loss_db(self, phase_rad: float) -> float:
        """Return the loss at a phase."""
        return self.insertion_loss_db + self.absorption_db * phase_rad / math.pi

    def hold_w(self, phase_rad: float) -> float:
        """Return the power that holds a phase."""
        return self.half_wave_w * (phase_rad / math.pi)


@dataclass(frozen=True, kw_only=True)
class MeshCoupler(Device):
    """One of the two 50:50 couplers of a Mach-Zehnder interferometer."""

    insertion_loss_db: float
    """Loss."""
    angle_error_rad: float
    """Standard deviation of the coupling angle from pi/4, fixed per chip."""
    area_m2: float
    """Area."""


@dataclass(frozen=True, kw_only=True)
class MeshLayout(Named):
    """Layout of a mesh of interferometers."""

    cell_fill: Efficiency
    """Area of an interferometer's devices over the area of its cell, 0 to 1."""
    cell_aspect: Positive
    """Length of a cell, which is that of a column, over its width, across which two heaters stand."""
    feed_length_m: float
    """Waveguide from the source to the mesh."""


@dataclass(frozen=True, kw_only=True)
class Decomposer(ElectronicDevice):
    """Digital unit beside a core that turns a matrix into phases."""

    rate_flop_per_s: Positive
    """Arithmetic rate."""
    energy_j_per_flop: float
    """Energy of an operation with its operands."""
    area_m2: float
    """Area."""


@dataclass(frozen=True, kw_only=True)
class PcmCell(Device):
    """Phase-change patch on a waveguide: its transmission is a weight, held without power."""

    insertion_loss_db: float
    """Loss in the clear state."""
    contrast_db: Positive
    """Clear over opaque transmission."""
    level_bits: Positive
    """Levels that programming can distinguish between the extremes, as bits."""
    full_write_j: float
    """Energy of a write from clear to opaque or back; in proportion for part of the way, in decibels."""
    write_s: Positive
    """Time of a write."""
    endurance_writes: Positive
    """Writes that the cell survives."""
    drift_exponent: float
    """Transmission falls as (time since the write / `drift_start_s`) to minus this, dimensionless."""
    drift_spread: float
    """Standard deviation of that exponent between cells over its mean, dimensionless."""
    drift_start_s: Positive
    """Time after a write at which the fall begins."""
    area_m2: Positive
    """Area with its two couplers."""

    @property
    def write_j(self) -> float:
        """Energy of one write: two levels spread evenly in decibels are a third of the range apart."""
        return self.full_write_j / 3.0

    def drift(self, held_s: float) -> float:
        """Return the mean relative fall of the transmission's logarithm after a time, dimensionless."""
        return self.drift_exponent * math.log1p(held_s / self.drift_start_s)


CHANNEL_LINEWIDTHS = 368.0 / 108.0
"""Least spacing of channels in linewidths: a finesse of 368 carries 108 channels.

A. N. Tait et al., "Microring weight banks", IEEE JSTQE 22 (2016) 5900214 (recalled).
"""
_POINTS, _PHASES = 48, 16
"""Weights and phases, spread evenly, over which the statistics of crosstalk are taken."""
OWN_TERMS = 6
"""Coefficients of a weight's own curve beyond a straight line that a calibration learns, to degree 7."""


@dataclass(frozen=True, kw_only=True)
class WeightRing(Named):
    """Add-drop microring whose detuning sets one weight, held there by a heater."""

    free_spectral_range_hz: Positive
    """Distance of its resonances."""
    quality_factor: Positive
    """Loaded quality factor, dimensionless."""
    carrier_hz: Positive
    """Optical frequency at which the quality factor holds."""
    drop_loss_db: float
    """Loss of dropped light."""
    pass_loss_db: float
    """Loss of light that passes far from resonance."""
    tuning_w: float
    """Heater and lock, on average over weights, all the time."""
    settling_s: Positive
    """Time from a new setting until the lock holds."""
    setting_bits: Positive
    """Bits of weight to which the lock holds it."""

    @property
    def linewidth_hz(self) -> float:
        """Full width of a resonance at half its height."""
        return self.carrier_hz / self.quality_factor

    @property
    def finesse(self) -> float:
        """Free spectral range over linewidth, dimensionless."""
        return self.free_spectral_range_hz / self.linewidth_hz

    @property
    def channels(self) -> int:
        """Wavelengths that a bank of such rings can separate."""
        return math.floor(self.finesse / CHANNEL_LINEWIDTHS)


@dataclass(frozen=True, kw_only=True)
class RingBankLayout(Device):
    """Layout of the rings of a bank."""

    ring_spacing_m: Positive
    """Distance of neighbouring heaters, along a bus and between buses."""
    heater_coupling: Share
    """Share of a heater's shift that a ring at zero distance would see, by extrapolation, dimensionless."""
    heater_range_m: Positive
    """Distance in which that share falls to 1/e."""
    feed_length_m: float
    """Waveguide from the source to the banks."""

    @property
    def area_m2(self) -> float:  # type: ignore[override]
        """Area of the place of one ring."""
        return self.ring_spacing_m**2

    def heater_square(self, rings: int) -> float:
        """Return the sum of squared couplings from a ring's neighbours, `rings` - 1 on each of four sides."""
        decay = self.ring_spacing_m / self.heater_range_m
        couplings = (self.heater_coupling * math.exp(-place * decay) for place in range(1, rings))
        return 4.0 * math.fsum(coupling**2 for coupling in couplings)


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightCrosstalk:
    """Variances of a weight in [-1, 1] by the other rings of its bank, weights spread evenly."""

    corrected: float
    """Part that is a curve of the own weight or a straight line in each other, which calibration can
    learn."""
    left: float
    """Part that depends on the own weight and another together, which calibration cannot learn."""
    slope_square: float
    """Mean square of the change of a weight by a shared shift of one standard deviation of the detunings."""


def least_drop(spacing: float) -> float:
    """Return the share that a ring still drops when it is tuned half-way to the next channel.

    Parameters
    ----------
    spacing : float
        Distance of channels in linewidths.
    """
    return 1.0 / (1.0 + spacing**2)


@lru_cache(maxsize=4096)
def weight_crosstalk(channels: int, spacing: float) -> WeightCrosstalk:
    """Return the crosstalk of the rings of one bank on the weight of the middle one, with light as a field.

    Parameters
    ----------
    channels : int
        Rings between the two buses.
    spacing : float
        Distance of channels in linewidths.

    Notes
    -----
    A ring drops the field d = 1/(1 + 2 i delta) onto a bus that runs the other way, and passes 1 - d. Of two
    rings, the nearer drops d1 + (1 - d1)^2 z d2 / (1 - d1 z d2) in all, z being the phase of the way to the
    farther and back, which the chip fixes. What a pair does beyond the own ring alone is averaged over z,
    split into a curve of the own weight, a straight line in the other's, and the rest, and added over all
    others. The fields of all rings at once, at random phases, have within a tenth of that (a test draws
    them).

    References
    ----------
    A. N. Tait et al., IEEE JSTQE 22 (2016) 5900214, on coherent and incoherent crosstalk of weight banks; the
    averages over evenly spread weights and phases are ours.
    """
    least = least_drop(spacing)
    weights = (2.0 * np.arange(_POINTS) + 1.0) / _POINTS - 1.0
    drops = least + (1.0 - least) * (weights + 1.0) / 2.0
    detunings = 0.5 * np.sqrt(1.0 / drops - 1.0)
    corrected = left = 0.0
    for place in range(-((channels - 1) // 2), channels // 2 + 1):
        if place == 0:
            continue
        error = 2.0 / (1.0 - least) * _beside(detunings, place * spacing)
        error -= error.mean(axis=(0, 1))
        square = np.mean(error**2, axis=(0, 1))
        line = 3.0 * np.mean(np.mean(error, axis=0) * weights[:, np.newaxis], axis=0) ** 2
        known = np.mean(np.mean(error, axis=1) ** 2, axis=0) + line
        corrected += float(np.mean(known))
        left += float(np.mean(np.maximum(square - known, 0.0)))
    slopes = 8.0 * detunings * drops**2 * 2.0 / (1.0 - least)
    slope_square = float(np.var(detunings) * np.mean(slopes**2))
    return WeightCrosstalk(corrected=corrected, left=left, slope_square=slope_square)


def _beside(detunings: NDArray[np.float64], distance: float) -> NDArray[np.float64]:
    """Return the power that a pair of rings drops less that of the own ring: own weight, other's, phase."""
    own = (1.0 / (1.0 + 2j * detunings))[:, np.newaxis, np.newaxis]
    other = (1.0 / (1.0 + 2j * (distance + detunings)))[np.newaxis, :, np.newaxis]
    phase = np.exp(2j * math.pi * (np.arange(_PHASES) + 0.5) / _PHASES)
    near, far = (own, other) if distance > 0.0 else (other, own)
    dropped = near + (1.0 - near) ** 2 * phase * far / (1.0 - near * phase * far)
    return np.asarray(np.abs(dropped) ** 2 - np.abs(own) ** 2)
