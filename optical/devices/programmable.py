"""Parts that hold a weight until it is programmed anew: heaters and couplers of a mesh, phase-change cells.

Insertion losses are positive decibels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from simulator.checks import check_positive, check_range
from simulator.tables import Table, read_table

NEIGHBOURS = 4
"""Heaters around a heater that are near enough to warm it."""


@cache
def programmable_table() -> Table:
    """Return the table of programmable parts that ships with the package."""
    return read_table(Path(__file__).parents[1] / "parameters" / "programmable.csv")


@dataclass(frozen=True, kw_only=True)
class Heater:
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

    @property
    def phase_error_rad(self) -> float:
        """Standard deviation of the phase from its setting."""
        return self.drift_rad

    @property
    def setting_j(self) -> float:
        """Return 0: until it stands, a new phase takes what holding it takes."""
        return 0.0

    @property
    def amplitude_spread(self) -> float:
        """Return 0: heat does not absorb."""
        return 0.0

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
class MeshCoupler:
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
    """How a mesh of interferometers is laid out."""

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
class Decomposer:
    """Digital unit beside a core that turns a matrix into phases."""

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
class PcmCell:
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

    def drift(self, held_s: float) -> float:
        """Return the mean relative fall of the transmission's logarithm after a time, dimensionless."""
        return self.drift_exponent * math.log1p(held_s / self.drift_start_s)
