"""Microring weight banks: how far rings can be tuned, and what they do to each other's weights.

Detunings are in full linewidths of a ring. A ring drops the share D = 1 / (1 + (2 d)^2) of a wavelength that
is d linewidths away; what it does not drop passes on. Heaters only pull a ring to one side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from optical.devices.parts import Device
from simulator.checks import check_positive, check_range

CHANNEL_LINEWIDTHS = 368.0 / 108.0
"""Least spacing of channels in linewidths: a finesse of 368 carries 108 channels.

A. N. Tait et al., "Microring weight banks", IEEE JSTQE 22 (2016) 5900214 (recalled).
"""
_POINTS, _PHASES = 48, 16
"""Weights and phases, spread evenly, over which the statistics of crosstalk are taken."""
OWN_TERMS = 6
"""Coefficients of a weight's own curve beyond a straight line that a calibration learns, to degree 7."""


@dataclass(frozen=True, kw_only=True)
class WeightRing:
    """Add-drop microring whose detuning sets one weight, held there by a heater."""

    name: str
    """Name shown in tables."""
    free_spectral_range_hz: float
    """Distance of its resonances."""
    quality_factor: float
    """Loaded quality factor, dimensionless."""
    carrier_hz: float
    """Optical frequency at which the quality factor holds."""
    drop_loss_db: float
    """Loss of what it drops."""
    pass_loss_db: float
    """Loss of what goes by far from resonance."""
    tuning_w: float
    """Heater and lock, on average over weights, all the time."""
    settling_s: float
    """Time from a new setting until the lock holds."""
    setting_bits: float
    """Bits of weight to which the lock holds it."""

    def __post_init__(self) -> None:
        check_positive(self, "free_spectral_range_hz", "quality_factor", "carrier_hz", "setting_bits")
        check_positive(self, "settling_s")
        check_range(self, "drop_loss_db", "pass_loss_db", "tuning_w")

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
        """Wavelengths that a bank of such rings can tell apart."""
        return math.floor(self.finesse / CHANNEL_LINEWIDTHS)


@dataclass(frozen=True, kw_only=True)
class RingBankLayout(Device):
    """Layout of the rings of a bank."""

    name: str
    """Name shown in tables."""
    ring_spacing_m: float
    """Distance of neighbouring heaters, along a bus and between buses."""
    heater_coupling: float
    """Share of a heater's shift that a ring at zero distance would see, by extrapolation, dimensionless."""
    heater_range_m: float
    """Distance in which that share falls to 1/e."""
    feed_length_m: float
    """Waveguide from the source to the banks."""

    def __post_init__(self) -> None:
        check_positive(self, "ring_spacing_m", "heater_range_m")
        check_range(self, "heater_coupling", high=1.0)
        check_range(self, "feed_length_m")

    @property
    def area_m2(self) -> float:  # type: ignore[override]
        """Area of the place of one ring."""
        return self.ring_spacing_m**2

    def heater_square(self, rings: int) -> float:
        """Return the sum of squared couplings from neighbours within so many places, on all four sides."""
        decay = self.ring_spacing_m / self.heater_range_m
        couplings = (self.heater_coupling * math.exp(-place * decay) for place in range(1, rings))
        return 4.0 * math.fsum(coupling**2 for coupling in couplings)


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightCrosstalk:
    """Variances of a weight in [-1, 1] by the other rings of its bank, weights spread evenly."""

    corrected: float
    """What is a curve of the own weight or a straight line in each other weight."""
    left: float
    """What hangs on the own weight and another together: no such correction takes it out."""
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
    """Return what the rings of one bank do to the weight of the middle one, light taken as a field.

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
