"""Albireo (ISCA 2021) from its parts: counts of devices times what one of them takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from optical.published.parts import published_table
from simulator.checks import check_positive, check_range

WORD_BYTES = 8
"""Bytes of an access to the cache."""


@dataclass(frozen=True, kw_only=True)
class AlbireoScenario:
    """What Albireo's devices take in one of its three scenarios."""

    name: str
    """Name of the rows."""
    ring_w: float
    """Tuning of a ring."""
    modulator_w: float
    """Power of a modulator."""
    laser_w: float
    """Laser power per multiplier that it lights."""
    tia_j: float
    """Energy of an amplifier per sample."""
    dac_j: float
    """Energy of a conversion of operands."""
    adc_w: float
    """Power of an ADC."""
    rate_hz: float
    """Symbols per second that the devices' power was stated for."""
    table_rate_hz: float
    """Symbols per second at which the table of power was made; the devices' power does not follow it."""
    word_j: float
    """Energy of an access of 64 bits."""
    ring_area_m2: float
    """Area of a ring."""
    modulator_area_m2: float
    """Area of a modulator."""
    laser_area_m2: float
    """Laser area per multiplier."""
    tia_area_m2: float
    """Area of an amplifier."""
    dac_area_m2: float
    """Area of a DAC."""
    grating_area_m2: float
    """Area of an arrayed waveguide grating."""
    star_area_m2: float
    """Area of a star coupler."""
    cache_area_m2: float
    """Area of the cache."""

    def __post_init__(self) -> None:
        check_positive(self, "rate_hz", "table_rate_hz")
        check_range(self, "ring_w", "modulator_w", "laser_w", "tia_j", "dac_j", "adc_w", "word_j")


@dataclass(frozen=True, kw_only=True)
class Albireo:
    """Groups of units of star-coupled rows of rings.

    References
    ----------
    K. Shiflett et al., "Albireo", ISCA 2021, Table III and figure 9; counts as modelled by T. Andrulis
    et al., ISPASS 2024.
    """

    scenario: AlbireoScenario
    """What its devices take."""
    groups: int = 9
    """Groups, each with outputs of its own."""
    units: int = 3
    """Units of a group, whose photocurrents add up."""
    stars: int = 3
    """Star couplers of a unit."""
    rows: int = 3
    """Weights per star coupler."""
    columns: int = 5
    """Outputs of a group."""
    inputs: int = 63
    """Wavelengths, one per input."""

    @property
    def multipliers(self) -> int:
        """Multiply-accumulates per symbol."""
        return self.weights * self.columns

    @property
    def weights(self) -> int:
        """Weights held at a time."""
        return self.groups * self.units * self.stars * self.rows

    @property
    def outputs(self) -> int:
        """Detector pairs, amplifiers and ADCs."""
        return self.groups * self.columns

    def power_parts_w(self) -> dict[str, float]:
        """Return the power by part when all multipliers are busy.

        Notes
        -----
        A multiplier has two rings, for weights of both signs. Every symbol converts all operands anew, reads
        the inputs and writes the outputs.
        """
        one = self.scenario
        operands = self.weights + self.inputs
        return {
            "MRR": one.ring_w * 2 * self.multipliers,
            "MZM": one.modulator_w * operands,
            "laser": one.laser_w * self.multipliers,
            "TIA": one.tia_j * one.rate_hz * self.outputs,
            "DAC": one.dac_j * one.rate_hz * operands,
            "ADC": one.adc_w * self.outputs,
            "cache": one.word_j * one.table_rate_hz * (self.inputs + self.outputs) / WORD_BYTES,
        }

    def area_parts_m2(self) -> dict[str, float]:
        """Return the area by part, without ADCs and photodiodes, whose sizes are not published."""
        one, stars = self.scenario, self.groups * self.units * self.stars
        return {
            "AWG": one.grating_area_m2 * stars,
            "star coupler": one.star_area_m2 * stars,
            "laser": one.laser_area_m2 * self.multipliers,
            "MZM": one.modulator_area_m2 * (self.weights + self.inputs),
            "MRR": one.ring_area_m2 * 2 * self.multipliers,
            "TIA": one.tia_area_m2 * self.outputs,
            "DAC": one.dac_area_m2 * (self.weights + self.inputs),
            "cache": one.cache_area_m2,
        }

    @property
    def energy_j_per_mac(self) -> float:
        """Energy of a multiply-accumulate when all multipliers are busy."""
        return sum(self.power_parts_w().values()) / (self.multipliers * self.scenario.table_rate_hz)


@cache
def load_albireo(scenario: str) -> Albireo:
    """Return Albireo in its ``conservative``, ``moderate`` or ``aggressive`` scenario.

    Raises
    ------
    ParameterError
        If there is no such scenario.
    """
    return Albireo(scenario=published_table().build(AlbireoScenario, f"albireo_{scenario}"))
