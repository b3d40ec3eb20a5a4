"""Microring weight banks: how far rings can be tuned, and what they do to each other's weights.

Detunings are in full linewidths of a ring. A ring drops the share D = 1 / (1 + (2 d)^2) of a wavelength that
is d linewidths away; what it does not drop passes on. Heaters only pull a ring to one side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from optical.devices.parts import Device
from simulator.checks import check_positive, check_range

CHANNEL_LINEWIDTHS = 368.0 / 108.0
"""Least spacing of channels in linewidths: a finesse of 368 carries 108 channels.

A. N. Tait et al., "Microring weight banks", IEEE JSTQE 22 (2016) 5900214 (recalled).
"""
_POINTS = 256
"""Weights, spread evenly, over which the statistics of crosstalk are taken."""


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
    """Variances of a weight in [-1, 1] by its neighbours' weights, spread evenly, before any correction."""

    linear: float
    """Power that neighbours add in proportion to their weights."""
    curved: float
    """Power that they add beyond that: a linear correction leaves it."""
    coherent: float
    """Interference of what two rings drop onto one bus, at random phases."""
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
    """Return what the rings of one bus do to the weight of the middle one.

    Parameters
    ----------
    channels : int
        Rings on the bus.
    spacing : float
        Distance of channels in linewidths.

    Notes
    -----
    A ring i whose tail drops T_i of channel j turns its drop D_j into 1 - (1 - D_j) prod(1 - T_i), hence
    moves the weight by 2 (1 - D_j) T_i to first order. T_i follows the tuning of ring i, by a straight line
    and a remainder. Coherently the two dropped fields interfere: 2 sqrt(D_j (1 - D_j) T_i) cos(phase) in
    power, of variance 2 D_j (1 - D_j) T_i. All means are over evenly spread weights.

    References
    ----------
    A. N. Tait et al., IEEE JSTQE 22 (2016) 5900214, on coherent and incoherent crosstalk of weight banks; the
    averages over evenly spread weights are ours.
    """
    least = least_drop(spacing)
    weights = [(2.0 * index + 1.0) / _POINTS - 1.0 for index in range(_POINTS)]
    drops = [least + (1.0 - least) * (weight + 1.0) / 2.0 for weight in weights]
    detunings = [0.5 * math.sqrt(1.0 / drop - 1.0) for drop in drops]
    slopes = [
        8.0 * detuning * drop**2 * 2.0 / (1.0 - least)
        for detuning, drop in zip(detunings, drops, strict=True)
    ]
    to_weight = (2.0 / (1.0 - least)) ** 2
    open_square = _mean([(1.0 - drop) ** 2 for drop in drops])
    beat = _mean([drop * (1.0 - drop) for drop in drops])
    linear = curved = coherent = 0.0
    places = range(-((channels - 1) // 2), channels // 2 + 1)
    for place in places:
        if place == 0:
            continue
        tails = [1.0 / (1.0 + 4.0 * (place * spacing + detuning) ** 2) for detuning in detunings]
        mean = _mean(tails)
        slope = 3.0 * _mean([tail * weight for tail, weight in zip(tails, weights, strict=True)])
        spread = _mean([(tail - mean) ** 2 for tail in tails])
        linear += to_weight * open_square * slope**2 / 3.0
        curved += to_weight * open_square * max(0.0, spread - slope**2 / 3.0)
        coherent += to_weight * 2.0 * beat * mean
    centre = _mean(detunings)
    variance = _mean([(detuning - centre) ** 2 for detuning in detunings])
    slope_square = variance * _mean([slope**2 for slope in slopes])
    return WeightCrosstalk(linear=linear, curved=curved, coherent=coherent, slope_square=slope_square)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
