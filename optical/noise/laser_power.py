"""The laser's power that a target needs, from every cause of noise at once, however light is detected.

Whatever the light passes, the ratio of noise to signal is A/P^2 + B/P + C: what does not know the light, its
shot noise, and what grows with the signal. Converters and wrong weights belong to the last.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from optical.devices.devices import Converter
from optical.noise.link_budget import bits_from_snr, check_unamplified, snr_from_bits
from simulator.errors import LinkError, ParameterError

_SETTLED, _HALVINGS = 1e-9, 60
"""How well the noise must meet its target, relative, and halvings of a range in power by which it does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseRatio:
    """Noise over the signal of a full-scale sample, at some laser power; ratios of powers, dimensionless."""

    dark: float
    """Amplifier and dark current: falls as 1/power^2."""
    shot: float
    """Shot noise: falls as 1/power."""
    bright: Mapping[str, float]
    """What more light does not lower, by cause."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.dark + self.shot + math.fsum(self.bright.values())

    @property
    def effective_bits(self) -> float:
        """Effective bits that it leaves."""
        return math.inf if self.total == 0.0 else bits_from_snr(1.0 / self.total)

    def joined(self, others: Mapping[str, float]) -> NoiseRatio:
        """Return the ratio with further causes that light does not lower."""
        return NoiseRatio(dark=self.dark, shot=self.shot, bright=dict(self.bright) | dict(others))


def converter_ratios(dac: Converter, adc: Converter, length: int) -> dict[str, float]:
    """Return noise over signal of both converters for a full-scale sample.

    Parameters
    ----------
    dac, adc : Converter
        Converter of the streamed operand, and of the sample, whose range equals full scale.
    length : int
        Products in a sample; their encoding errors are independent.
    """
    return {
        "the ADC": 1.0 / snr_from_bits(adc.enob_bits),
        "the DAC": 1.0 / (length * snr_from_bits(dac.enob_bits)),
    }


class Stationary(Protocol):
    """A core that states all its noise at the power it has."""

    @property
    def name(self) -> str:
        """Name shown in messages."""
        ...

    @property
    def laser_power_w(self) -> float:
        """Power at the source."""
        ...

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample: light, converters, wrong weights."""
        ...


def power_for_bits(core: Stationary, target_bits: float) -> float:
    """Return the smallest laser power at which a core with its converters reaches a number of bits, watt.

    Parameters
    ----------
    core : Stationary
        A core; its present power is where its noise is known.
    target_bits : float
        Effective bits of a full-scale sample.

    Raises
    ------
    LinkError
        If no power reaches them.
    """
    if not 0.0 < target_bits < math.inf:
        msg = f"target_bits must be positive and finite; got {target_bits:g}"
        raise ParameterError(msg)
    check_unamplified(core)
    ratio, target = core.noise_ratio, 1.0 / snr_from_bits(target_bits)
    cap = math.fsum(ratio.bright.values())
    gap = target - cap
    if gap <= 0.0:
        worst = max(ratio.bright, key=lambda cause: ratio.bright[cause])
        msg = (
            f"'{core.name}' cannot reach {target_bits:g} bits at any laser power: "
            f"{bits_from_snr(1.0 / cap):.2f} bits are the cap, set mostly by {worst}; "
            "ask for fewer bits or improve that part"
        )
        raise LinkError(msg)
    relative = (ratio.shot + math.sqrt(ratio.shot**2 + 4.0 * ratio.dark * gap)) / (2.0 * gap)
    return _settled(core, core.laser_power_w * relative, target)


def _settled(core: Stationary, power_w: float, target: float) -> float:
    """Return the power at which a core's noise is as wanted, found near a first guess.

    Notes
    -----
    Where a calibration reads with the core's own receivers, what it leaves depends on the power, too. The
    guess is then corrected by halving the range in which the noise, which falls with power, meets the target.
    """

    def excess(watt: float) -> float:
        changed: Stationary = dataclasses.replace(typing.cast("typing.Any", core), laser_power_w=watt)
        try:
            return changed.noise_ratio.total / target - 1.0
        except LinkError:
            return math.inf if watt < power_w else 0.0

    if abs(excess(power_w)) < _SETTLED:
        return power_w
    low, high = power_w / 64.0, power_w * 64.0
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) > 0.0 else (low, middle)
    return high
