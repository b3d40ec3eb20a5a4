"""Tables of the transfer models: a guided mode, a coupler's dispersion, a crossing's leak."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from simulator.checks import check_positive, check_range
from simulator.tables import Table, read_table


@cache
def transfer_table() -> Table:
    """Return the table of optical constants that ships with the package."""
    return read_table(Path(__file__).parents[1] / "parameters" / "transfer.csv")


@dataclass(frozen=True, kw_only=True)
class GuidedMode:
    """Mode of a waveguide, its index linear in wavelength around a reference."""

    name: str
    """Name shown in tables."""
    wavelength_m: float
    """Reference wavelength in vacuum."""
    effective_index: float
    """Phase index at the reference, dimensionless."""
    group_index: float
    """Group index at the reference, dimensionless."""
    thermo_optic_per_k: float
    """Change of the effective index with temperature."""

    def __post_init__(self) -> None:
        check_positive(self, "wavelength_m", "effective_index", "group_index")
        check_range(self, "thermo_optic_per_k")


@dataclass(frozen=True, kw_only=True)
class HalfCoupler:
    """Directional coupler that divides evenly at its reference wavelength."""

    name: str
    """Name shown in tables."""
    dispersion: float
    """Exponent of the coupling angle over wavelength, dimensionless."""

    def __post_init__(self) -> None:
        check_range(self, "dispersion")


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """Leak of a waveguide crossing to the side."""

    name: str
    """Name shown in tables."""
    crosstalk_db: float
    """Power into one side arm below the input, positive."""

    def __post_init__(self) -> None:
        check_range(self, "crosstalk_db")


@cache
def silicon_strip() -> GuidedMode:
    """Return the guided mode of the default platform."""
    return transfer_table().build(GuidedMode, "si_strip")


@cache
def half_coupler() -> HalfCoupler:
    """Return the dispersion of the default coupler."""
    return transfer_table().build(HalfCoupler, "half_coupler")


@cache
def default_crossing() -> Crossing:
    """Return the leak of the default crossing."""
    return transfer_table().build(Crossing, "cross")
