"""Laser sizing: the power at which a core delivers a signal-to-noise ratio to stated products.

The ratio is that of executed products (`optical.execution.precision`), so whatever reaches them counts:
converters, wrong weights, operands with outliers, the length of the sum. Power is searched for, as an
amplifier, a calibration with the core's own receivers or a number format leaves no closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import scipy

from optical.cores.core import Core
from optical.execution.precision import predicted
from simulator.errors import LinkError, ParameterError
from simulator.operands.scaled import Precision, average
from simulator.operands.statistics import Operands
from simulator.operators import Phase
from simulator.parameter_tree import get_at, replace_at

CoreT = TypeVar("CoreT", bound=Core)

LASER = "laser_power_w"
"""Where every core keeps the power of its laser, a number format's in the core within."""
BRIGHTEST = 1e4
"""Light over the present light up to which is searched; dimensionless, a choice."""
STEP = 4.0
"""Factor between the powers of a coarse search; dimensionless."""
HALVINGS = 24
"""Halvings of such a step, to one part in ten million."""
_SETTLED_LOG = 1e-5
"""How closely the logarithm of a power is found, 0.00004 dB."""


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
    """Return the best precision that any light gives, and why brighter light is refused, if it is.

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
    best, power_w = None, _power_of(core)
    last = relative = 0.0
    for relative in _relatives():
        found = _at(core, power_w * relative, products)
        if found is None and best is not None:
            break
        if found is not None:
            last = relative
            best = found if best is None or found.snr_db > best.snr_db else best
    if best is None:
        core_precision(core, products)
        msg = (
            f"'{core.name}' works at no laser power from {power_w / BRIGHTEST:g} to {power_w * BRIGHTEST:g} W"
        )
        raise LinkError(msg)
    if last == relative:
        return best, ""
    for _ in range(HALVINGS):
        middle = math.sqrt(last * relative)
        found = _at(core, power_w * middle, products)
        last, relative = (last, middle) if found is None else (middle, relative)
        best = best if found is None or found.snr_db < best.snr_db else found
    return best, _refusal(core, power_w * relative, products)


def _refusal(core: Core, power_w: float, products: Sequence[Product]) -> str:
    """Return why a core does not work at a power; nothing if it does."""
    try:
        core_precision(replace_at(core, LASER, power_w), products)
    except LinkError as error:
        return str(error)
    return ""


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

    steps = range(math.ceil(most / step) + 1)
    upwards = (place * step for place in steps)
    start = next((place for place in (*upwards, *(-place * step for place in steps)) if meets(place)), None)
    if start is not None:
        while start > -most and meets(start - step):
            start -= step
        return start - step, start
    best, refusal = most_precision(core, products)
    if best.snr_db >= target_db:  # between two steps of the search: too dim below, refused above
        return _last_step(core, target_db, products)
    more = f"; more light is refused: {refusal}" if refusal else ""
    msg = (
        f"'{core.name}' cannot deliver {target_db:.1f} dB on these operands at any laser power (tried up to "
        f"{power_w * BRIGHTEST:.3g} W): {best.snr_db:.1f} dB are the most, kept from more by {best.worst}; "
        f"ask for less or improve that part{more}"
    )
    raise LinkError(msg)


def _last_step(core: Core, target_db: float, products: Sequence[Product]) -> tuple[float, float]:
    """Return the bracket of a target that only powers between two steps of the search meet."""
    power_w, step = _power_of(core), math.log(STEP)
    works = [place for place in map(math.log, _relatives()) if _at(core, power_w * math.exp(place), products)]
    low, beyond = works[-1], works[-1] + step
    while True:
        middle = 0.5 * (low + beyond)
        found = _at(core, power_w * math.exp(middle), products)
        if found is None:
            beyond = middle
        elif found.snr_db >= target_db:
            return low, middle
        else:
            low = middle


def _power_of(core: Core) -> float:
    return float(get_at(core, LASER))


def _relatives() -> list[float]:
    """Return the relative powers of the coarse search, the dimmest first."""
    steps = math.ceil(math.log(BRIGHTEST, STEP))
    return [STEP**step for step in range(-steps, steps + 1)]
