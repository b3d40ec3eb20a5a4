"""Laser power that a target needs, from every cause of noise at once, however light is detected.

Whatever the light passes, the ratio of noise to signal is A/P^2 + B/P + C: what does not know the light, its
shot noise, and what grows with the signal. Converters and wrong weights belong to the last.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from typing import Protocol

from optical.devices import Soa
from optical.devices.limits import bits_from_snr, snr_from_bits
from optical.noise.link_budget import LightBudget, NoiseRatio
from simulator.errors import LinkError, ParameterError

_SETTLED, _HALVINGS = 1e-9, 60
"""How well the noise must meet its target, relative, and halvings of a range in power by which it does."""


class Lit(Protocol):
    """Core that states all its noise at the power it has."""

    @property
    def name(self) -> str:
        """Name shown in messages."""
        ...

    @property
    def laser_power_w(self) -> float:
        """Power at the source."""
        ...

    @property
    def amplifier(self) -> Soa | None:
        """Amplifier behind the coupling into the chip, if any."""
        ...

    @property
    def link(self) -> LightBudget:
        """Budget of the light, whether or not the link closes."""
        ...

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample: light, converters, wrong weights."""
        ...


def power_for_bits(core: Lit, target_bits: float) -> float:
    """Return the smallest laser power at which a core with its converters reaches a number of bits, watt.

    Parameters
    ----------
    core : Lit
        A core; its present power is where its noise is known.
    target_bits : float
        Effective bits of a full-scale sample.

    Raises
    ------
    LinkError
        If no power reaches them.
    ParameterError
        If the target is no number of bits, or the core has an amplifier.
    """
    power_w = core.laser_power_w * _relative_power(core, core.noise_ratio, target_bits)
    return _settled(core, power_w, 1.0 / snr_from_bits(target_bits))


def solve_laser_power(core: Lit, target_bits: float) -> float:
    """Return the smallest laser power at which the receiver alone reaches a number of bits, watt.

    Parameters
    ----------
    core : Lit
        A core; its present power does not matter.
    target_bits : float
        Effective bits of a full-scale sample at the detector (`LightBudget.effective_bits`).

    Raises
    ------
    LinkError
        If no power reaches them: intensity noise, extinction and the residue of the previous symbol grow with
        the signal and cap the ratio.
    ParameterError
        If the target is no number of bits, or the core has an amplifier.
    """
    return core.laser_power_w * _relative_power(core, core.link.noise_ratio, target_bits)


def _relative_power(core: Lit, ratio: NoiseRatio, target_bits: float) -> float:
    """Return the power over the present one at which a noise ratio falls to its target.

    Notes
    -----
    With x = 1/power the ratio is A x^2 + B x + C; the root of this square is exact.
    """
    if not 0.0 < target_bits < math.inf:
        msg = f"target_bits must be positive and finite; got {target_bits:g}"
        raise ParameterError(msg)
    if core.amplifier is not None:
        msg = (
            f"'{core.name}' has an amplifier, whose gain falls as the light rises, so no closed form "
            "gives the laser's power; take the amplifier out, or try values of laser_power_w"
        )
        raise ParameterError(msg)
    cap = math.fsum(ratio.bright.values())
    gap = 1.0 / snr_from_bits(target_bits) - cap
    if gap <= 0.0:
        worst = max(ratio.bright, key=lambda cause: ratio.bright[cause])
        msg = (
            f"'{core.name}' cannot reach {target_bits:g} bits at any laser power: "
            f"{bits_from_snr(1.0 / cap):.2f} bits are the cap, set mostly by {worst}; "
            "ask for fewer bits or improve that part"
        )
        raise LinkError(msg)
    return (ratio.shot + math.sqrt(ratio.shot**2 + 4.0 * ratio.dark * gap)) / (2.0 * gap)


def _settled(core: Lit, power_w: float, target: float) -> float:
    """Return the power at which a core's noise is as wanted, found near a first guess.

    Notes
    -----
    Where a calibration reads with the core's own receivers, what it leaves depends on the power, too. The
    guess is then corrected by halving the range in which the noise, which falls with power, meets the target.
    """

    def excess(watt: float) -> float:
        changed: Lit = dataclasses.replace(typing.cast("typing.Any", core), laser_power_w=watt)
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
