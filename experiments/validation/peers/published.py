"""Constants of published systems, as rows of a table: what they were given, not what we hold to be true."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from simulator.tables import Table, read_table
from simulator.units import ELEMENTARY_CHARGE_C


@cache
def published_table() -> Table:
    """Return the constants of published systems."""
    return read_table(Path(__file__).parent / "parameters" / "published.csv")


def light_for(snr_hz: float, noise_a_per_sqrt_hz: float, responsivity_a_per_w: float) -> float:
    """Return the least light that a detector and its amplifier need, in watts.

    Parameters
    ----------
    snr_hz : float
        Ratio of signal to noise, of powers, times the bandwidth.
    noise_a_per_sqrt_hz : float
        Noise of the amplifier.
    responsivity_a_per_w : float
        Of the detector.

    Notes
    -----
    The root P of (R P)^2 = SNR (2 q R P + i_n^2) B.
    """
    shot_a = ELEMENTARY_CHARGE_C * snr_hz
    return (shot_a + math.sqrt(shot_a**2 + snr_hz * noise_a_per_sqrt_hz**2)) / responsivity_a_per_w


@dataclass(frozen=True, kw_only=True)
class LighteningParts:
    """Constants of Lightening-Transformer."""

    name: str
    """Name of the rows."""
    modulator_loss_db: float
    """Insertion loss of a modulator."""
    modulator_symbol_j: float
    """Drive energy of a symbol."""
    modulator_area_m2: float
    """Area of a modulator."""
    router_loss_db: float
    """Insertion loss of a ring that adds or drops a wavelength."""
    router_w: float
    """Power of such a ring."""
    router_area_m2: float
    """Area of such a ring."""
    splitter_loss_db: float
    """Insertion loss of a Y branch."""
    splitter_length_m: float
    """Length of a Y branch."""
    splitter_width_m: float
    """Width of a Y branch."""
    shifter_loss_db: float
    """Insertion loss of a phase shifter."""
    shifter_length_m: float
    """Length of a phase shifter."""
    shifter_width_m: float
    """Width of a phase shifter."""
    coupler_loss_db: float
    """Insertion loss of a directional coupler."""
    coupler_length_m: float
    """Length of a directional coupler."""
    coupler_width_m: float
    """Width of a directional coupler."""
    detector_w: float
    """Power of a photodetector."""
    sensitivity_dbm: float
    """Least light that a detector needs."""
    detector_length_m: float
    """Length of a photodetector."""
    detector_width_m: float
    """Width of a photodetector."""
    laser_efficiency: float
    """Wall-plug efficiency, dimensionless."""
    laser_area_m2: float
    """Area of a laser."""
    comb_area_m2: float
    """Area of a micro-comb."""
    tia_w: float
    """Power of an amplifier."""
    tia_area_m2: float
    """Area of an amplifier."""
    node_length_margin_m: float
    """Spacing along a dot-product node."""
    node_width_margin_m: float
    """Spacing across a dot-product node."""
    dac_bits: float
    """Bits of the DAC that was measured."""
    dac_w: float
    """Its power."""
    dac_rate_hz: float
    """Its rate."""
    dac_area_m2: float
    """Its area."""
    adc_bits: float
    """Bits of the ADC that was measured."""
    adc_w: float
    """Its power."""
    adc_rate_hz: float
    """Its rate."""
    adc_area_m2: float
    """Its area."""
    adc_enob_bits: float
    """Its effective bits, which the published rules do not use."""
    adder_w: float
    """Power of an adder, before scaling."""
    adder_power_scaling: float
    """By how much a newer process lowers its power, dimensionless."""
    adder_area_m2: float
    """Area of an adder, before scaling."""
    adder_area_scaling: float
    """By how much a newer process lowers its area, dimensionless."""
    global_buffer_w: float
    """Power of the global buffer."""
    global_buffer_area_m2: float
    """Area of the global buffer."""
    global_buffer_tiles: float
    """Tiles that this buffer is for, dimensionless."""
    local_buffer_w: float
    """Power of a tile's buffer."""
    local_buffer_area_m2: float
    """Area of a tile's buffer."""
    local_buffer_bytes: float
    """Capacity of a tile's buffer."""
    small_buffer_w: float
    """Power of a core's buffer."""
    small_buffer_area_m2: float
    """Area of a core's buffer."""
    register_j_per_byte: float
    """Energy of a register."""
    local_j_per_byte: float
    """Energy of a tile's buffer."""
    global_j_per_byte: float
    """Energy of the global buffer."""
    network_j_per_byte: float
    """Energy of the network on the chip."""
    dram_j_per_byte: float
    """Energy of the memory."""
    dram_bytes_per_s: float
    """Bandwidth of the memory."""
    buffer_access_s: float
    """Access time of the global buffer."""
    buffer_access_bytes: float
    """Bytes per access."""
    memory_clock_hz: float
    """Clock in whose cycles transfers are counted."""
    softmax_w: float
    """Power of the softmax unit."""
    softmax_bytes_per_s: float
    """Rate of the softmax unit."""
    operation_j: float
    """Energy of an operation that is no product."""
    norm_operations: float
    """Operations of a normalised element, dimensionless."""
    activation_operations: float
    """Operations of an activated element, dimensionless."""


@dataclass(frozen=True, kw_only=True)
class BaselineParts:
    """Constants of the ring bank and the mesh that Lightening-Transformer is compared with by its authors."""

    name: str
    """Name of the rows."""
    ring_loss_db: float
    """Insertion loss of a ring on its own wavelength."""
    passed_ring_loss_db: float
    """Insertion loss of a ring on another wavelength."""
    ring_symbol_j: float
    """Drive energy of a ring per symbol."""
    ring_w: float
    """Power that holds a ring."""
    ring_side_m: float
    """Side of a ring."""
    ring_margin_m: float
    """Spacing between rings."""
    interferometer_loss_db: float
    """Insertion loss of an interferometer of the mesh."""
    interferometer_symbol_j: float
    """Drive energy of setting an interferometer."""
    interferometer_area_m2: float
    """Area of an interferometer."""
    interferometer_settling_s: float
    """Time of setting all interferometers of a mesh at once."""
