"""Laser sizing: the power that a precision needs, from every cause of noise at once.

Whatever the light passes, the ratio of noise to signal is A/P^2 + B/P + C: what does not know the light, its
shot noise, and what grows with the signal. Converters and wrong weights belong to the last.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import scipy

from optical.cores.analog import AnalogCore
from optical.cores.core import Core
from optical.cores.number_formats import BlockFloatCore
from optical.devices.limits import bits_from_snr, snr_from_bits
from optical.execution.precision import predicted
from optical.noise import NoiseRatio
from simulator.errors import LinkError, ParameterError
from simulator.operand_statistics import Operands
from simulator.operators import Phase
from simulator.parameter_tree import get_at, replace_at
from simulator.scaled_operands import Precision, average

CoreT = TypeVar("CoreT", bound=Core)

LASER = "laser_power_w"
"""Where every core keeps the power of its laser, a number format's in the core within."""
BRIGHTEST = 1e4
"""Light over the present light, beyond which no further bits are looked for; dimensionless, a choice."""
STEP = 4.0
"""Factor between the powers of a coarse search; dimensionless."""
HALVINGS = 24
"""Halvings of such a step, to one part in ten million."""
_SETTLED_LOG = 1e-5
"""How closely the logarithm of a power is found, 0.00004 dB."""
_SETTLED, _HALVINGS = 1e-9, 60
"""How well the noise must meet its target, relative, and halvings of a range in power by which it does."""


def power_for_bits(core: AnalogCore, target_bits: float) -> float:
    """Return the smallest laser power at which a core with its converters reaches a number of bits, watt.

    Parameters
    ----------
    core : AnalogCore
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


def solve_laser_power(core: AnalogCore, target_bits: float) -> float:
    """Return the smallest laser power at which the receiver alone reaches a number of bits, watt.

    Parameters
    ----------
    core : AnalogCore
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


def _relative_power(core: AnalogCore, ratio: NoiseRatio, target_bits: float) -> float:
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


def _settled(core: AnalogCore, power_w: float, target: float) -> float:
    """Return the power at which a core's noise is as wanted, found near a first guess.

    Notes
    -----
    Where a calibration reads with the core's own receivers, what it leaves depends on the power, too. The
    guess is then corrected by halving the range in which the noise, which falls with power, meets the target.
    """

    def excess(watt: float) -> float:
        changed = dataclasses.replace(core, laser_power_w=watt)
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
    In closed form where a core tells its noise by cause (`power_for_bits`); block
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


@dataclass(frozen=True, kw_only=True)
class Product:
    """Products that a laser is sized for, alike in shape and operands."""

    operands: Operands
    """Statistics of A and B."""
    length: int
    """K."""
    rows: int = 128
    """M."""
    columns: int = 128
    """N."""
    phase: Phase = Phase.FORWARD
    """Forward, or one of the gradients."""
    weight: float = 1.0
    """Multiply-accumulates of all of them, or any other weight of their noise in the average."""


def core_precision(core: Core, products: Sequence[Product]) -> Precision:
    """Return the precision that a core delivers to products: noise over signal, averaged with their weights.

    Parameters
    ----------
    core : Core
        Any core whose record is an `AnalogSpec`.
    products : sequence of Product
        At least one.

    Raises
    ------
    LinkError
        If its link does not close.
    """
    specs = {phase: core.analog(phase) for phase in {one.phase for one in products}}
    return average(
        (
            one.weight,
            predicted(specs[one.phase], one.operands, one.length, rows=one.rows, columns=one.columns),
        )
        for one in products
    )


def with_laser_for(core: CoreT, target_db: float, products: Sequence[Product]) -> CoreT:
    """Return a core with the smallest laser power at which it delivers a signal-to-noise ratio to products.

    Parameters
    ----------
    core : Core
        Any core; its present power is where the search begins.
    target_db : float
        Executed signal-to-noise ratio, noise over signal averaged over the products, in decibels.
    products : sequence of Product
        Operands, lengths and weights.

    Raises
    ------
    LinkError
        If no power reaches it; the sentence says how much can be reached and what takes the rest.
    ParameterError
        If the target is no number of decibels.
    """
    if not math.isfinite(target_db):
        msg = f"a target of signal over noise must be a finite number of decibels; got {target_db:g}"
        raise ParameterError(msg)
    power_w = _power_of(core)

    def excess(log_relative: float) -> float:
        found = _at(core, power_w * math.exp(log_relative), products)
        return math.inf if found is None else target_db - found.snr_db

    low, high = _bracket(core, target_db, products)
    if low == high or not math.isfinite(excess(low)):
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if excess(middle) > 0.0 else (low, middle)
        return replace_at(core, LASER, power_w * math.exp(high))
    root = float(scipy.optimize.brentq(excess, low, high, xtol=_SETTLED_LOG))
    return replace_at(core, LASER, power_w * math.exp(root + _SETTLED_LOG))


def most_precision(core: Core, products: Sequence[Product]) -> tuple[Precision, str]:
    """Return the best precision that any light gives, and what keeps it from more.

    Parameters
    ----------
    core : Core
        Any core; its present power is where the search begins.
    products : sequence of Product
        Operands, lengths and weights.

    Raises
    ------
    LinkError
        If the core works at no power.
    """
    best, reason, power_w = None, "", _power_of(core)
    for relative in _relatives():
        try:
            found = core_precision(replace_at(core, LASER, power_w * relative), products)
        except LinkError as error:
            reason = str(error) if best is not None else reason
            if best is not None:
                break
            continue
        if best is None or found.snr_db > best.snr_db:
            best, reason = found, ""
    if best is None:
        core_precision(core, products)
        msg = (
            f"'{core.name}' works at no laser power from {power_w / BRIGHTEST:g} to {power_w * BRIGHTEST:g} W"
        )
        raise LinkError(msg)
    return best, reason or best.worst


def _at(core: Core, power_w: float, products: Sequence[Product]) -> Precision | None:
    """Return the precision at a power; none where the core does not work."""
    try:
        return core_precision(replace_at(core, LASER, power_w), products)
    except LinkError:
        return None


def _bracket(core: Core, target_db: float, products: Sequence[Product]) -> tuple[float, float]:
    """Return logarithms of two relative powers: the dimmer misses the target, the brighter meets it.

    Raises
    ------
    LinkError
        If no power meets it.
    """
    power_w, step, most = _power_of(core), math.log(STEP), math.log(BRIGHTEST)

    def meets(place: float) -> bool:
        found = _at(core, power_w * math.exp(place), products)
        return found is not None and found.snr_db >= target_db

    place = 0.0
    if meets(place):
        while meets(place - step) and place > -most:
            place -= step
        return place - step, place
    while place < most:
        place += step
        if meets(place):
            return place - step, place
    best, cause = most_precision(core, products)
    if best.snr_db >= target_db:  # between two steps of the search: too dim below, refused above
        places = [math.log(one) for one in _relatives()]
        high = next(one for one in places if meets(one))
        return high - step, high
    msg = (
        f"'{core.name}' cannot deliver {target_db:.1f} dB on these operands at any laser power: "
        f"{best.snr_db:.1f} dB are the most, kept from more by: {cause}; ask for less or improve that part"
    )
    raise LinkError(msg)


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
