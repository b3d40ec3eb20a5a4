"""Lightening-Transformer as its authors published it, so that our numbers can be told from theirs.

This is a compatibility mode: its constants are rows of ``parameters/published.csv``, its rules are restated
from the paper and its public simulator, and nothing of it feeds our own systems. What is wrong with the rules
is listed in `Correction` and can be switched, one by one.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from enum import StrEnum

from optical.devices import Photodetector, Tia, device_table
from optical.devices.limits import snr_from_bits
from optical.published.parts import LighteningParts, published_table
from simulator.checks import check_positive, check_range
from simulator.units import ELEMENTARY_CHARGE_C, ratio_from_db, watts_from_dbm


class Correction(StrEnum):
    """What is wrong with the published rules, and can be put right.

    Each was found by reading the public simulator beside its paper and by running it.
    """

    EVERY_WAVELENGTH = "sensitivity read per wavelength"
    """Another reading, not a fault: a detector's sensitivity is that of each wavelength, not of their sum."""
    LIGHT_FROM_SNR = "laser solved for its signal-to-noise ratio"
    """Light grows as 2^b from a fixed sensitivity, instead of with the shot and amplifier noise of b bits."""
    DAC_LAW = "DAC power as 2^b / (b + 1)"
    """The comment of the rule, and SimPhony, say b + 1; what runs says b."""
    EFFECTIVE_BITS = "ADC priced by effective bits"
    """An ADC of 6.49 effective bits counts as one of 8, and its energy as linear in bits."""
    ATTENTION_OPERANDS = "attention reads its operands"
    """The buffer's energy is multiplied in twice for attention, which leaves its reads out."""
    BUFFER_TIME = "linear layers wait for the buffer"
    """The time from global to local buffer is computed, then set to zero."""
    OTHERS_EVERY_BLOCK = "softmax, norms and activations in every block"
    """What is no product is counted for one block of the model."""
    OTHERS_BITS = "softmax, norms and activations at their bits"
    """What is no product always has 4 bits."""
    OTHERS_TIME = "seconds added as seconds"
    """The time of what is no product, in seconds, is added to milliseconds."""


def _parts() -> LighteningParts:
    return published_table().build(LighteningParts, "lightening_transformer")


FAULTS = tuple(one for one in Correction if one is not Correction.EVERY_WAVELENGTH)
"""What is wrong whatever the reading."""


@dataclass(frozen=True, kw_only=True)
class LighteningTransformer:
    """An accelerator of tiles of cores, as published.

    References
    ----------
    H. Zhu et al., "Lightening-Transformer", HPCA 2024 (arXiv:2305.19533), and its public simulator
    (github.com/zhuhanqing/Lightening-Transformer at 7c3d4ad).
    """

    tiles: int = 4
    """Tiles; LT-B has 4, LT-L 8."""
    cores: int = 2
    """Cores per tile."""
    size: int = 12
    """Rows, columns and wavelengths of a core."""
    bits: int = 4
    """Bits of operands and results."""
    rate_hz: float = 5e9
    """Symbols per second."""
    optimised: bool = True
    """Whether tiles share modulators, cores share converters, and three symbols are summed before an ADC."""
    corrections: frozenset[Correction] = frozenset()
    """What is put right; nothing is the published mode."""
    parts: LighteningParts = field(default_factory=_parts)
    """Constants."""

    def __post_init__(self) -> None:
        check_range(self, "tiles", "cores", "size", "bits", low=1)
        check_positive(self, "rate_hz")

    def corrected(self, *corrections: Correction) -> LighteningTransformer:
        """Return the same accelerator with only these rules put right."""
        return dataclasses.replace(self, corrections=frozenset(corrections))

    @property
    def accumulated_symbols(self) -> int:
        """Symbols that are summed before a conversion, at most."""
        return 3 if self.optimised else 1

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second."""
        return self.size**3 * self.tiles * self.cores * self.rate_hz

    @property
    def loss_db(self) -> float:
        """Insertion loss from the laser to a detector, without the ideal division of power."""
        p = self.parts
        fan_out = p.splitter_loss_db * math.ceil(math.log2(self.size))
        node = p.splitter_loss_db + p.shifter_loss_db + p.coupler_loss_db
        return p.modulator_loss_db + 2.0 * p.router_loss_db + fan_out + node

    @property
    def received_w(self) -> float:
        """Light that a detector is given.

        Notes
        -----
        As published, sensitivity x 2^bits. Put right, the least P with (R P)^2 = SNR (2 q R P + i_n^2) B
        and B half the rate, from our rows of detector and amplifier; intensity noise is left out.
        """
        if Correction.LIGHT_FROM_SNR not in self.corrections:
            return watts_from_dbm(self.parts.sensitivity_dbm) * 2.0**self.bits
        responsivity = device_table().build(Photodetector, "photodetector").responsivity_a_per_w
        noise = device_table().build(Tia, "tia").noise_a_per_sqrt_hz
        target = snr_from_bits(self.bits) * self.rate_hz / 2.0
        shot = ELEMENTARY_CHARGE_C * target
        return (shot + math.sqrt(shot**2 + target * noise**2)) / responsivity

    @property
    def laser_w(self) -> float:
        """Electrical power of a core's laser."""
        lines = self.size if Correction.EVERY_WAVELENGTH in self.corrections else 1
        divided = self.received_w * ratio_from_db(self.loss_db) * self.size**2
        return divided * lines / self.parts.laser_efficiency

    @property
    def modulator_w(self) -> float:
        """Power of a modulator and its two rings."""
        return self.parts.modulator_symbol_j * self.rate_hz + 2.0 * self.parts.router_w

    @property
    def dac_w(self) -> float:
        """Power of a DAC at the bits and rate in use."""
        extra = 1.0 if Correction.DAC_LAW in self.corrections else 0.0
        p = self.parts
        ratio = 2.0 ** (self.bits - p.dac_bits) * (p.dac_bits + extra) / (self.bits + extra)
        return p.dac_w * ratio * self.rate_hz / p.dac_rate_hz

    @property
    def adc_w(self) -> float:
        """Power of an ADC at the bits and rate in use."""
        p = self.parts
        ratio = self.bits / p.adc_bits
        if Correction.EFFECTIVE_BITS in self.corrections:
            ratio = 2.0 ** (self.bits - p.adc_enob_bits)
        return p.adc_w * ratio * self.rate_hz / p.adc_rate_hz

    @property
    def adder_w(self) -> float:
        """Power of an adder."""
        return self.parts.adder_w / self.parts.adder_power_scaling

    @property
    def modulators(self) -> int:
        """Modulators, and DACs, of the accelerator."""
        shared = 1 if self.optimised else self.tiles
        return self.size**2 * self.cores * (self.tiles + shared)

    @property
    def nodes(self) -> int:
        """Dot-product nodes of the accelerator."""
        return self.size**2 * self.tiles * self.cores

    @property
    def readouts(self) -> int:
        """Amplifiers, and ADCs, of the accelerator."""
        return self.size**2 * self.tiles * (1 if self.optimised else self.cores)

    @property
    def small_buffers(self) -> int:
        """Buffers of cores, and of the outputs of tiles."""
        operands = self.cores if self.optimised else self.tiles * self.cores
        return self.tiles * (2 + self.cores) + operands

    def power_parts_w(self) -> dict[str, float]:
        """Return the power by part, with the published names."""
        p = self.parts
        buffers = p.global_buffer_w * self.tiles / p.global_buffer_tiles + p.local_buffer_w * (self.tiles + 1)
        return {
            "laser": self.laser_w * self.tiles * self.cores,
            "DAC": self.dac_w * self.modulators,
            "MZM": self.modulator_w * self.modulators,
            "ADC": self.adc_w * self.readouts,
            "TIA": p.tia_w * self.readouts,
            "Photodetector": 2.0 * p.detector_w * self.nodes,
            "adder": self.adder_w * self.size**2 * self.tiles,
            "mem": buffers + p.small_buffer_w * self.small_buffers,
        }

    def area_parts_m2(self) -> dict[str, float]:
        """Return the area by part, with the published names."""
        p, sources = self.parts, self.tiles + self.cores
        length = p.splitter_length_m + p.shifter_length_m + p.coupler_length_m + p.detector_width_m
        width = p.splitter_length_m + max(p.shifter_width_m, p.coupler_width_m, 2.0 * p.detector_length_m)
        node_m2 = (length + p.node_length_margin_m) * (width + p.node_width_margin_m)
        branch_m2 = p.splitter_length_m * p.splitter_width_m
        levels = math.ceil(math.log2(self.size) + 1)
        tree_m2 = branch_m2 * (1 + 2 * self.size * levels)
        rings = 4 * self.size**2 * self.tiles * self.cores
        buffers = p.global_buffer_area_m2 * self.tiles / p.global_buffer_tiles
        buffers += p.local_buffer_area_m2 * (self.tiles + 1)
        return {
            "laser": p.laser_area_m2 * sources,
            "micro_comb": p.comb_area_m2 * sources,
            "DAC": p.dac_area_m2 * self.modulators,
            "MZM": p.modulator_area_m2 * self.modulators + p.router_area_m2 * rings,
            "ADC": p.adc_area_m2 * self.readouts,
            "TIA": p.tia_area_m2 * self.readouts,
            "photonic_core": node_m2 * self.nodes + tree_m2 * self.tiles * self.cores,
            "adder": p.adder_area_m2 / p.adder_area_scaling * self.size**2 * self.tiles,
            "mem": buffers + p.small_buffer_area_m2 * self.small_buffers,
        }
