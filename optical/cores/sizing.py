"""Laser sizing: a core with just the light that a target needs, whatever kind of core it is."""

from __future__ import annotations

import math

from optical.cores.analog import AnalogCore
from optical.cores.core import Core
from optical.cores.number_formats import BlockFloatCore
from optical.noise import NoiseRatio, power_for_bits
from simulator.errors import LinkError, ParameterError
from simulator.parameter_tree import get_at, replace_at

LASER = "laser_power_w"
"""Where every core keeps the power of its laser, a number format's in the core within."""
BRIGHTEST = 1e4
"""Light over the present light, beyond which no further bits are looked for; dimensionless, a choice."""
STEP = 4.0
"""Factor between the powers of a coarse search; dimensionless."""
HALVINGS = 24
"""Halvings of such a step, to one part in ten million."""


def lit_for_bits(core: Core, target_bits: float) -> Core:
    """Return a core with the smallest laser power at which it reaches a number of bits.

    Parameters
    ----------
    core : Core
        Any core; its present power does not matter.
    target_bits : float
        Effective bits of a full-scale sample, converters and wrong weights included (`Core.effective_bits`).

    Raises
    ------
    LinkError
        If no power reaches them, or the light does not reach the detectors, or is more than they hold.

    Notes
    -----
    In closed form where a core tells its noise by cause (`optical.noise.power_for_bits`); block
    floating point leaves the bits of its core as they are. Other number formats are searched: their bits do
    not fall with more light until the core within says that it is too much.
    """
    if isinstance(core, BlockFloatCore):
        return replace_at(core, LASER, _power_of(lit_for_bits(core.core, target_bits)))
    if isinstance(core, AnalogCore):
        lit = replace_at(core, LASER, power_for_bits(core, target_bits))
        lit.budget  # noqa: B018 - a link that does not close is an error here
        return lit
    return _searched(core, target_bits)


def most_bits(core: Core) -> tuple[float, str]:
    """Return the effective bits that no light exceeds, and what sets them mostly.

    Parameters
    ----------
    core : Core
        Any core; its present power does not matter.
    """
    analog = core.core if isinstance(core, BlockFloatCore) else core
    if isinstance(analog, AnalogCore):
        ratio = analog.noise_ratio
        endless = NoiseRatio(dark=0.0, shot=0.0, bright=ratio.bright)
        worst = max(ratio.bright, key=lambda cause: ratio.bright[cause])
        return endless.effective_bits, worst.removeprefix("the ")
    power_w = _power_of(core)
    return max(_bits_at(core, power_w * relative) for relative in _relatives()), "number format"


def _power_of(core: Core) -> float:
    return float(get_at(core, LASER))


def _relatives() -> list[float]:
    """Return the relative powers of the coarse search, the dimmest first."""
    steps = math.ceil(math.log(BRIGHTEST, STEP))
    return [STEP**step for step in range(-steps, steps + 1)]


def _bits_at(core: Core, power_w: float) -> float:
    """Return the effective bits at a power; none where the core does not work."""
    try:
        return replace_at(core, LASER, power_w).effective_bits
    except LinkError:
        return 0.0


def _searched(core: Core, target_bits: float) -> Core:
    if not 0.0 < target_bits < math.inf:
        msg = f"target_bits must be positive and finite; got {target_bits:g}"
        raise ParameterError(msg)
    present_w = _power_of(core)
    powers_w = [present_w * relative for relative in _relatives()]
    high_w = next((power for power in powers_w if _bits_at(core, power) >= target_bits), None)
    if high_w is None:
        most, cause = most_bits(core)
        msg = (
            f"'{core.name}' cannot reach {target_bits:g} bits at any laser power: {most:.2f} bits are the "
            f"cap, set mostly by the {cause}; ask for fewer bits or improve that part"
        )
        raise LinkError(msg)
    low_w = high_w / STEP
    for _ in range(HALVINGS):
        middle_w = math.sqrt(low_w * high_w)
        if _bits_at(core, middle_w) >= target_bits:
            high_w = middle_w
        else:
            low_w = middle_w
    return replace_at(core, LASER, high_w)
