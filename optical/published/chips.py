"""Whole photonic chips as far as parts explain them; the rest is what bottom-up models leave out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

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
from optical.published.parts import published_table
from simulator.checks import check_positive, check_range
from simulator.units import ELEMENTARY_CHARGE_C, ratio_from_db


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
