"""Waveguides: losses of light by their length, and by its own power.

Light that is bright enough for two photons to be absorbed at once makes carriers, which absorb too. Both are
charged to the link budget (`Routing`), and grow with the light that is to be guided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from optical.devices.limits import photon_energy_j
from optical.devices.parts import Named
from simulator.errors import ParameterError, Positive
from simulator.units import db_from_ratio, ratio_from_db

STEPS = 64
"""Steps in which light is followed along a waveguide; each is exact in two halves, so few are enough."""
_ABSORBING = ("mode_area_m2", "two_photon", "carrier_area_m2", "carrier_lifetime_s")
"""Fields of a waveguide that absorbs bright light."""
ABSORPTION = "two-photon and free-carrier absorption"
"""Name of the loss by bright light on a path."""


@dataclass(frozen=True, kw_only=True)
class Waveguide(Named):
    """Waveguide of a platform, as its light bears it.

    Notes
    -----
    Power P of n equal lines together obeys dP/dz = -(a + beta I + sigma N) P with I = P / A. Two photons of
    different lines are absorbed twice as readily as two of one: beta I (2 - 1/n). Carriers follow slowly:
    N = tau beta I^2 (2 - 1/n) / (2 h nu).

    References
    ----------
    L. Yin and G. P. Agrawal, "Impact of two-photon absorption on self-phase modulation in silicon
    waveguides", Opt. Lett. 32 (2007) 2031.
    """

    loss_db_per_m: float
    """Propagation loss of dim light."""
    transition_loss_db: float | None = None
    """Loss of a transition between it and the silicon of modulators, rings and detectors; None where it is
    that silicon."""
    mode_area_m2: Positive | None = None
    """Effective area of the mode; this and what follows None where no light is absorbed by its own power."""
    two_photon: float | None = None
    """Coefficient of two-photon absorption, metres per watt."""
    carrier_area_m2: float | None = None
    """Cross-section of absorption by free carriers."""
    carrier_lifetime_s: float | None = None
    """Lifetime of the carriers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        stated = [name for name in _ABSORBING if getattr(self, name) is not None]
        if stated and len(stated) < len(_ABSORBING):
            missing = ", ".join(name for name in _ABSORBING if name not in stated)
            msg = (
                f"waveguide '{self.name}' states {', '.join(stated)}, and absorbs by {missing}, too; give all"
            )
            raise ParameterError(msg)

    @property
    def transition_db(self) -> float:
        """Loss of a transition; 0 where there is none."""
        return self.transition_loss_db or 0.0

    def _coefficients(self, lines: int) -> tuple[float, float]:
        """Return the absorption by pairs of photons per watt, and by carriers per watt squared."""
        if not (self.mode_area_m2 and self.two_photon):
            return 0.0, 0.0
        pairs = self.two_photon / self.mode_area_m2 * (2.0 - 1.0 / lines)
        per_pair = (self.carrier_lifetime_s or 0.0) / (2.0 * photon_energy_j() * self.mode_area_m2)
        return pairs, (self.carrier_area_m2 or 0.0) * per_pair * pairs

    def absorbed_db(self, power_w: float, length_m: float, lines: int = 1) -> float:
        """Return the nonlinear loss of a length beyond its linear loss, the light followed as it fades.

        Parameters
        ----------
        power_w : float
            Power of all lines at its beginning.
        length_m : float
            Length.
        lines : int
            Lines that share the power.
        """
        pairs, carriers = self._coefficients(lines)
        if pairs == 0.0 or power_w == 0.0:
            return 0.0
        return _absorbed_db(power_w, length_m, self.loss_db_per_m, pairs, carriers)


@lru_cache(maxsize=16384)
def _absorbed_db(
    power_w: float, length_m: float, loss_db_per_m: float, pairs: float, carriers: float
) -> float:
    """Return the loss by pairs of photons and their carriers beyond the linear one.

    Half a step of pairs, 1/P grows by `pairs` z; a step of carriers and linear loss, P^-2 obeys
    dQ/dz = 2 a Q + 2 c; and half a step of pairs again. Both are exact, so that no light is too bright: what
    is followed is 1/P.
    """
    linear = loss_db_per_m / db_from_ratio(math.e)
    step_m, inverse_per_w = length_m / STEPS, 1.0 / power_w
    grown = math.exp(2.0 * linear * step_m)
    added = 2.0 * carriers * step_m if linear == 0.0 else carriers / linear * (grown - 1.0)
    for _ in range(STEPS):
        inverse_per_w += 0.5 * pairs * step_m
        inverse_per_w = math.sqrt(grown * inverse_per_w**2 + added)
        inverse_per_w += 0.5 * pairs * step_m
    return max(0.0, db_from_ratio(power_w * inverse_per_w) - loss_db_per_m * length_m)


@dataclass(frozen=True, kw_only=True)
class Guided:
    """Light in one kind of waveguide from its beginning to its end."""

    guide: Waveguide
    """The waveguide."""
    length_m: float
    """Length."""
    power_w: float
    """Power of all lines at its beginning."""
    lines: int = 1
    """Lines that share it."""

    @property
    def linear_db(self) -> float:
        """Loss of dim light."""
        return self.guide.loss_db_per_m * self.length_m

    @property
    def absorbed_db(self) -> float:
        """Loss by the light's own power."""
        return self.guide.absorbed_db(self.power_w, self.length_m, self.lines)

    @property
    def left_w(self) -> float:
        """Power of all lines at its end."""
        return self.power_w * ratio_from_db(-self.linear_db - self.absorbed_db)


@dataclass(frozen=True, kw_only=True)
class Routing:
    """Waveguides from the coupling to the far end of an array.

    Notes
    -----
    What splits and modulates the light between feed and array is left out here, which makes that in the array
    brighter than it is; there it is dim anyway. Each route takes a transition up and one down, and an array
    whose waveguides are not of the devices' silicon one from its modulators and one to its nodes.
    """

    feed: Waveguide
    """Waveguide of all lines together, and of operands from core to core."""
    feed_m: float
    """Its length."""
    array: Waveguide
    """Waveguide between the array's devices."""
    array_m: float
    """The longest way in it."""
    light_w: float
    """Power of all lines behind the coupling."""
    lines: int
    """Lines of the source."""
    guides: float
    """Waveguides among which the light is divided where the array begins."""
    routes: int = 0
    """Ways from core to core on the feed's kind of waveguide, whose length is counted apart."""

    @property
    def _feeding(self) -> Guided:
        return Guided(guide=self.feed, length_m=self.feed_m, power_w=self.light_w, lines=self.lines)

    @property
    def feed_db(self) -> float:
        """Loss of the feed and of its transition, at this power."""
        return self._feeding.linear_db + self._feeding.absorbed_db + self.feed.transition_db

    @property
    def losses(self) -> tuple[tuple[str, int, float], ...]:
        """Losses for light of this power: name, count and decibels of each."""
        feed = self._feeding
        row_w = feed.left_w / self.guides
        array = Guided(guide=self.array, length_m=self.array_m, power_w=row_w, lines=self.lines)
        found = (
            (f"feed, {self.feed.name}", 1, feed.linear_db),
            ("transition of the feed", 1 + 2 * self.routes, self.feed.transition_loss_db),
            (self.array.name, 1, array.linear_db),
            ("transition of the array", 2, self.array.transition_loss_db),
            (ABSORPTION, 1, feed.absorbed_db + array.absorbed_db),
        )
        return tuple((name, count, lost) for name, count, lost in found if lost is not None)
