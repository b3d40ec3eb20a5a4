"""Effective bits of a core against its laser's power, with each cause of noise alone."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from heliograph.errors import HeliographError, LinkError
from heliograph.paths import get_at, replace_at
from optical.array_errors import mismatch_ratio
from optical.cores import Crossbar
from optical.link_budget import bits_from_snr
from optical.link_noise import link_noise_ratio

if TYPE_CHECKING:
    from optical.core import Core
    from optical.laser_power import NoiseRatio

SPAN_DECADES = 2.5
"""Decades of laser power to either side of the present one; a choice."""
POINTS = 101
"""Powers that are tried; odd, so that the present one is among them."""
LASER = "laser_power_w"
"""Parameter that is swept."""
DARK = "amplifier and dark current"
SHOT = "shot noise"


@dataclass(frozen=True, kw_only=True)
class BitsCurve:
    """Effective bits over laser power."""

    name: str
    """Whose noise is told: a core, or the one within a number format."""
    power_w: tuple[float, ...]
    """Laser powers, as the core counts them: a line's, or the whole laser's."""
    bits: tuple[float | None, ...]
    """Effective bits with everything; None where the core does not work at that power."""
    limits: dict[str, tuple[float, ...]]
    """Effective bits that each cause of noise alone would leave, at each power."""
    present_w: float
    """Power that the core has."""
    present_bits: float
    """Effective bits at that power."""


def analog_core(core: Core) -> Core:
    """Return the core itself, or of a number format the core within that multiplies."""
    inner: Any = core
    while not hasattr(inner, LASER):
        inner = inner.core
    return inner


def noise_ratio_of(core: Core) -> NoiseRatio:
    """Return noise over signal of a full-scale sample by cause, converters included.

    Parameters
    ----------
    core : Core
        A core; of a number format the noise of the core within.

    Raises
    ------
    HeliographError
        If the core does not tell its noise by cause.
    """
    inner: Any = analog_core(core)
    if isinstance(inner, Crossbar):
        return link_noise_ratio(inner.link, inner.dac, inner.adc).joined(mismatch_ratio(inner))
    ratio: NoiseRatio | None = getattr(inner, "noise_ratio", None)
    if ratio is None:
        msg = f"core '{inner.name}' does not tell its noise by cause; give it a property noise_ratio"
        raise HeliographError(msg)
    return ratio


def at_power(ratio: NoiseRatio, relative: float) -> NoiseRatio:
    """Return a noise ratio at so many times the laser power.

    Notes
    -----
    Amplifier noise does not know the light and the signal's power grows with its square; shot noise grows
    with the light; the rest grows with the signal (`optical.laser_power`).
    """
    return dataclasses.replace(ratio, dark=ratio.dark / relative**2, shot=ratio.shot / relative)


def causes(ratio: NoiseRatio) -> dict[str, float]:
    """Return noise over signal by cause, those without any left out."""
    parts = {SHOT: ratio.shot, DARK: ratio.dark} | {
        name.removeprefix("the "): part for name, part in ratio.bright.items()
    }
    return {name: part for name, part in parts.items() if part > 0.0}


def bits_curve(core: Core) -> BitsCurve:
    """Return effective bits over laser power with the limit that each cause sets alone."""
    inner = analog_core(core)
    present_w = float(get_at(inner, LASER))
    ratio = noise_ratio_of(core)
    relative = np.logspace(-SPAN_DECADES, SPAN_DECADES, POINTS)
    scaled = [causes(_lit(inner, ratio, float(factor))) for factor in relative]
    return BitsCurve(
        name=inner.name if inner is core else f"{inner.name} in {core.name}",
        power_w=tuple(float(present_w * factor) for factor in relative),
        bits=tuple(_bits_at(inner, float(present_w * factor)) for factor in relative),
        limits={name: tuple(bits_from_snr(1.0 / one[name]) for one in scaled) for name in causes(ratio)},
        present_w=present_w,
        present_bits=inner.effective_bits,
    )


def _lit(inner: Core, ratio: NoiseRatio, relative: float) -> NoiseRatio:
    """Return a core's noise ratio at so many times its laser power, calibrated at that power."""
    try:
        return noise_ratio_of(replace_at(inner, LASER, relative * float(get_at(inner, LASER))))
    except LinkError:
        return at_power(ratio, relative)


def _bits_at(core: Core, power_w: float) -> float | None:
    try:
        bits = replace_at(core, LASER, power_w).effective_bits
    except LinkError:
        return None
    return bits if math.isfinite(bits) else None
