"""Laser sizing: the power at which a core delivers a signal-to-noise ratio to stated products.

The ratio is that of executed products (`optical.execution.precision`), so that all their errors count:
converters, wrong weights, operands with outliers, the length of the sum. An amplifier, a calibration with the
core's own receivers or a number format leaves no closed form, so that the power is searched for: a coarse
search in steps of `STEP` brackets the target, and a root finder refines it (`_Search`). The precision at a
power is returned by a `Judge`: the law of noise over products (`judge_of`), or an execution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import scipy

from optical.cores.core import Core
from optical.execution.precision import Product, predicted_of
from simulator.errors import LinkError, ParameterError
from simulator.operands.statistics import Precision, average
from simulator.operators import Phase
from simulator.parameter_tree import get_at, replace_at

CoreT = TypeVar("CoreT", bound=Core)
Judge = Callable[[Core], Precision]
"""Function that returns the precision of a core, or raises `LinkError` where its link does not close."""

LASER = "laser_power_w"
"""Field of the laser power in every core; in a number format, of its inner core."""
BRIGHTEST = 1e4
"""Largest ratio of laser powers, to the present one, that is searched; dimensionless, a choice."""
STEP = 4.0
"""Factor between the powers of a coarse search; dimensionless."""
HALVINGS = 24
"""Halvings of a step of the coarse search, to one part in ten million."""
STEP_LOG, STEPS = math.log(STEP), math.ceil(math.log(BRIGHTEST, STEP))
"""Natural logarithm of a step of the coarse search, and steps to either side of the present power."""
SETTLED_LOG = 1e-5
"""Tolerance of the logarithm of the power, 0.00004 dB."""


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
    groups: dict[Phase, list[Product]] = {}
    for product in products:
        groups.setdefault(product.phase, []).append(product)
    return average(
        (math.fsum(product.weight for product in group), predicted_of(core.analog(phase), tuple(group)))
        for phase, group in groups.items()
    )


def judge_of(products: Sequence[Product]) -> Judge:
    """Return a function that finds a core's precision for products by the law of noise."""
    return lambda core: core_precision(core, products)


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
    return with_judged_laser(core, target_db, judge_of(products))


def with_judged_laser(
    core: CoreT, target_db: float, judge: Judge, *, settled_log: float = SETTLED_LOG
) -> CoreT:
    """Return a core with the smallest laser power at which a judge finds a signal-to-noise ratio.

    Parameters
    ----------
    core, target_db
        Parameters of `with_laser_for`.
    judge : callable
        Precision of a core.
    settled_log : float
        Tolerance of the natural logarithm of the power.

    Raises
    ------
    LinkError, ParameterError
        As `with_laser_for`.
    """
    if not math.isfinite(target_db):
        msg = f"a target of signal over noise must be a finite number of decibels; got {target_db:g}"
        raise ParameterError(msg)
    search = _Search(core, judge)

    def excess_db(place: float) -> float:
        precision = search.at(place)
        return math.inf if precision is None else target_db - precision.snr_db

    low, high = search.bracket(target_db)
    if low == high or not math.isfinite(excess_db(low)):
        for _ in range(min(HALVINGS, math.ceil(math.log2(max(2.0, (high - low) / settled_log))))):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if excess_db(middle) > 0.0 else (low, middle)
        return search.with_power(high)
    root = float(scipy.optimize.brentq(excess_db, low, high, xtol=settled_log))
    return search.with_power(root + settled_log)


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
    return _Search(core, judge_of(products)).most()


class _Search(Generic[CoreT]):
    """Search over the laser power of a core.

    A place is the natural logarithm of the power over the core's present one. Precision rises with power up
    to the brightest light with which the core works: beyond, its link refuses it (`LinkError`).
    """

    def __init__(self, core: CoreT, judge: Judge) -> None:
        self.core, self.judge = core, judge
        self.power_w = float(get_at(core, LASER))
        self._precisions: dict[float, Precision | None] = {}

    def with_power(self, place: float) -> CoreT:
        """Return the core with the laser power of a place."""
        return replace_at(self.core, LASER, self.power_w * math.exp(place))

    def at(self, place: float) -> Precision | None:
        """Return the precision at a place; None where the core does not work."""
        if place not in self._precisions:
            try:
                self._precisions[place] = self.judge(self.with_power(place))
            except LinkError:
                self._precisions[place] = None
        return self._precisions[place]

    def most(self) -> tuple[Precision, str]:
        """Return the best precision at any power, and why more light is refused, if it is.

        Notes
        -----
        More laser power never gives less light at the detectors, whatever waveguides absorb, so that the
        brightest light that works is best.
        """
        brightest = self.at(STEPS * STEP_LOG)
        if brightest is not None:
            return brightest, ""
        best: Precision | None = None
        last = beyond = 0.0  # brightest place that works, and the next one, which does not
        for beyond in _places() if self.at(0.0) is None else _places()[STEPS:]:
            precision = self.at(beyond)
            if precision is None and best is not None:
                break
            if precision is not None:
                last = beyond
                best = precision if best is None or precision.snr_db > best.snr_db else best
        if best is None:
            self.judge(self.core)
            low_w, high_w = self.power_w / BRIGHTEST, self.power_w * BRIGHTEST
            msg = f"'{self.core.name}' works at no laser power from {low_w:g} to {high_w:g} W"
            raise LinkError(msg)
        if last == beyond:
            return best, ""
        for _ in range(HALVINGS):
            middle = 0.5 * (last + beyond)
            precision = self.at(middle)
            last, beyond = (last, middle) if precision is None else (middle, beyond)
            best = best if precision is None or precision.snr_db < best.snr_db else precision
        return best, self._refusal(beyond)

    def _refusal(self, place: float) -> str:
        """Return the message of the link that does not work at a place; empty if it does."""
        try:
            self.judge(self.with_power(place))
        except LinkError as error:
            return str(error)
        return ""

    def bracket(self, target_db: float) -> tuple[float, float]:
        """Return two places: the dimmer misses the target, the brighter meets it."""

        def meets(step: int) -> bool:
            precision = self.at(step * STEP_LOG)
            return precision is not None and precision.snr_db >= target_db

        brighter = range(STEPS + 1)
        brightest = self.at(STEPS * STEP_LOG)
        first = None
        if brightest is None or brightest.snr_db >= target_db:
            # Less light can help only a core that does not work with its present light.
            dimmer = brighter if self.at(0.0) is None else ()
            first = next((step for step in (*brighter, *(-step for step in dimmer)) if meets(step)), None)
        if first is not None:
            while first > -STEPS and meets(first - 1):
                first -= 1
            return (first - 1) * STEP_LOG, first * STEP_LOG
        within_last_step = self._within_last_step(target_db)
        if within_last_step is not None:
            return within_last_step
        best, refusal = self.most()
        more = f"; more light is refused: {refusal}" if refusal else ""
        tried_w = self.power_w * BRIGHTEST
        msg = (
            f"'{self.core.name}' cannot deliver {target_db:.1f} dB on these operands at any laser power "
            f"(tried up to {tried_w:.3g} W): {best.snr_db:.1f} dB are the most, kept from more by "
            f"{best.worst}; ask for less or improve that part{more}"
        )
        raise LinkError(msg)

    def _within_last_step(self, target_db: float) -> tuple[float, float] | None:
        """Return the bracket of a target between the brightest step that works and the next; None if none."""
        low = next((place for place in reversed(_places()) if self.at(place) is not None), None)
        if low is None or low == _places()[-1]:
            return None
        beyond = low + STEP_LOG
        for _ in range(HALVINGS):
            middle = 0.5 * (low + beyond)
            precision = self.at(middle)
            if precision is None:
                beyond = middle
            elif precision.snr_db >= target_db:
                return low, middle
            else:
                low = middle
        return None


def _places() -> list[float]:
    """Return the places of the coarse search, the dimmest first."""
    return [step * STEP_LOG for step in range(-STEPS, STEPS + 1)]
