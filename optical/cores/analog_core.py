"""What every core that reads sums of light through converters is described by, whatever its array."""

from __future__ import annotations

from dataclasses import dataclass

from optical.devices.devices import Adder, Converter, Laser, PassiveElement, Waveguide
from optical.execution import Rounding
from optical.noise.amplifiers import Soa


@dataclass(frozen=True, kw_only=True)
class AnalogCore:
    """The fields that the analog cores have in common; each adds its array, other parts and its physics."""

    symbol_rate_hz: float
    """Symbols per second."""
    laser_power_w: float
    """Optical power at the source, of each comb line where there is a comb; a design choice."""
    adc_range_sigma: float = 4.0
    """Half of the ADC's range over the rms of its samples, dimensionless; a design choice."""
    chip_seed: int = 1
    """Which chip it is: key of all that is fixed for it; a choice."""
    gradient_rounding: Rounding = Rounding.STOCHASTIC
    """How the DAC driver rounds operands of gradient products; stochastic rounding keeps their mean."""
    amplifier: Soa | None = None
    """Amplifier of the light behind the coupling into the chip; none in today's cores."""
    laser: Laser
    """Source of all light."""
    branch: PassiveElement
    """One stage of splitting."""
    waveguide: Waveguide
    """All routing."""
    dac: Converter
    """Operand converter, one per modulator."""
    adc: Converter
    """Output converter."""
    adder: Adder
    """Digital accumulator of an output."""
