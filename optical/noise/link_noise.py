"""Noise of a coherent link and its converters as a ratio, so that one solver serves all."""

from __future__ import annotations

from optical.devices.devices import Converter
from optical.noise.laser_power import NoiseRatio, converter_ratios
from optical.noise.link_budget import LinkBudget


def link_noise_ratio(link: LinkBudget, dac: Converter, adc: Converter) -> NoiseRatio:
    """Return noise over signal of a full-scale sample of a coherent dot product, converters included.

    Parameters
    ----------
    link : LinkBudget
        Budget of the light.
    dac, adc : Converter
        Converter of both operands, and of the sample, whose range equals full scale.

    Notes
    -----
    The terms are those of `LinkBudget.noise_variance` at full scale. Both operands pass a DAC, so its part of
    `converter_ratios` counts twice.
    """
    length, unit = link.analog_length, link.product_current_a**2
    rejected = 2.0 * link.common_mode_current_a2 / unit
    converters = converter_ratios(dac, adc, length)
    converters["the DAC"] *= 2.0
    return NoiseRatio(
        dark=link.symbols * link.thermal_current_a**2 / unit / length**2,
        shot=2.0 * link.shot_current_a2 / unit / length,
        bright={
            "laser intensity noise": (link.rin_ratio + rejected) / length,
            "the modulator's extinction ratio": link.extinction_variance / length**2,
            "the bandwidth of modulator and detector": link.residue**2 / length,
        }
        | converters,
    )
