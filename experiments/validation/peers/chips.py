"""Whole photonic chips from their parts: Albireo's counts of devices, and chips that parts explain partly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from experiments.validation.peers.published import published_table
from optical.devices import (
    Converter,
    Laser,
    Modulator,
    PassiveElement,
    Photodetector,
    Tia,
    device_table,
)
from optical.devices.limits import snr_from_bits
from simulator.checks import check_positive, check_range
from simulator.units import ELEMENTARY_CHARGE_C, ratio_from_db

WORD_BYTES = 8
"""Bytes of an access to the cache."""


@dataclass(frozen=True, kw_only=True)
class AlbireoScenario:
    """Power, energy and area of Albireo's devices in one of its three scenarios."""

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


@dataclass(frozen=True, kw_only=True)
class MatrixVectorChip:
    """A chip that multiplies vectors by matrices held in modulators.

    Notes
    -----
    Charged are, from the rows of our own devices: a DAC and a modulator per input, a balanced pair with
    amplifier and ADC per output, and a laser that gives the stated effective bits against shot and amplifier
    noise over coupler, two modulators and a splitter tree. Not charged, since nothing is published of them:
    converters and drivers of the weights, digital logic, memory, control of phases and temperature, and the
    interface.
    """

    name: str
    """Name of the rows."""
    side: int
    """Rows and columns of a core."""
    cores: int
    """Cores."""
    rate_hz: float
    """Vectors per second of a core."""
    effective_bits: float
    """Effective bits of an output, dimensionless."""
    published_w: float
    """Published power, electrical and optical."""

    def __post_init__(self) -> None:
        check_range(self, "side", "cores", low=1)
        check_positive(self, "rate_hz", "effective_bits", "published_w")

    @property
    def macs_per_s(self) -> float:
        """Multiply-accumulates per second."""
        return self.side**2 * self.cores * self.rate_hz

    @property
    def published_j_per_mac(self) -> float:
        """Published energy of a multiply-accumulate."""
        return self.published_w / self.macs_per_s

    @property
    def received_w(self) -> float:
        """Light at one output that gives the effective bits: (R P)^2 = SNR (2 q R P + i_n^2) B."""
        responsivity = device_table().build(Photodetector, "photodetector").responsivity_a_per_w
        noise = device_table().build(Tia, "tia").noise_a_per_sqrt_hz
        target = snr_from_bits(self.effective_bits) * self.rate_hz / 2.0
        shot = ELEMENTARY_CHARGE_C * target
        return (shot + math.sqrt(shot**2 + target * noise**2)) / responsivity

    def power_parts_w(self) -> dict[str, float]:
        """Return the power that parts explain."""
        table, lines = device_table(), self.side * self.cores
        laser = table.build(Laser, "laser")
        modulator = table.build(Modulator, "mzm")
        branch = table.build(PassiveElement, "y_branch")
        detector = table.build(Photodetector, "photodetector")
        adc = table.build(Converter, "adc").rescaled(self.effective_bits)
        levels = math.ceil(math.log2(self.side))
        loss_db = (
            laser.coupling_loss_db + 2.0 * modulator.insertion_loss_db + levels * branch.insertion_loss_db
        )
        light_w = self.received_w * lines * ratio_from_db(loss_db)
        return {
            "laser": light_w / laser.wall_plug_efficiency,
            "DAC": table.build(Converter, "dac").conversion_j * self.rate_hz * lines,
            "modulators": modulator.symbol_energy_j * self.rate_hz * lines,
            "detectors": 2.0 * detector.bias_w * lines,
            "amplifiers": table.build(Tia, "tia").power_w * lines,
            "ADC": adc.conversion_j * self.rate_hz * lines,
        }

    @property
    def explained_j_per_mac(self) -> float:
        """Energy of a multiply-accumulate that parts explain."""
        return math.fsum(self.power_parts_w().values()) / self.macs_per_s

    @property
    def explained_share(self) -> float:
        """Share of the published power that parts explain, dimensionless."""
        return self.explained_j_per_mac / self.published_j_per_mac


@cache
def load_chip(name: str) -> MatrixVectorChip:
    """Return a published chip: ``pace`` or ``lightmatter_2025``."""
    return published_table().build(MatrixVectorChip, name)
