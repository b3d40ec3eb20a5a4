"""Residue numbers on analog cores: when a noisy sum is read without any error, and what a misread costs.

An integer y is held as its remainders to several coprime moduli, each small enough for an analog core.
Products and sums go through remainder by remainder; the Chinese remainder theorem puts y back together,
exactly where |y| is below half of the moduli's product. A remainder that is off by one step throws y off by a
large constant.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import scipy

from simulator.amounts import Reals
from simulator.errors import ParameterError


class Remainder(StrEnum):
    """Place at which the remainder of a sum is taken."""

    ANALOG = "analog"
    """Before the ADC, by folding, so that it resolves one modulus only."""
    DIGITAL = "digital"
    """After the ADC, which resolves the whole sum."""


def symmetric_residues(modulus: int) -> range:
    """Return the remainders of a modulus, as close to zero as they can be: -2 to 2 for 5, -1 to 2 for 4."""
    return range(-((modulus - 1) // 2), modulus // 2 + 1)


def largest_residue(modulus: int) -> int:
    """Return the largest magnitude of a symmetric remainder."""
    return modulus // 2


def residue_mean_square(modulus: int) -> float:
    """Return the mean square of remainders, spread evenly, over the square of the largest; dimensionless."""
    residues = symmetric_residues(modulus)
    return sum(residue**2 for residue in residues) / (len(residues) * largest_residue(modulus) ** 2)


def misreading(sigma_steps: float) -> float:
    """Return how likely Gaussian noise of so many steps rms is above half a step, 0 to 1."""
    return math.erfc(0.5 / (sigma_steps * math.sqrt(2.0))) if sigma_steps > 0.0 else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Residues:
    """The moduli of a residue core, and how surely each remainder is read.

    Notes
    -----
    A remainder read one step too high moves y by the modulus' reconstruction weight, (M/m) times the inverse
    of M/m modulo m, taken modulo M to the range from -M/2 to M/2.

    References
    ----------
    C. Demirkiran et al., "Mirage: an RNS-based photonic accelerator for DNN training", arXiv:2311.17323:
    moduli, block floating point and dynamic range.
    """

    moduli: tuple[int, ...]
    """Pairwise coprime."""
    sigmas: tuple[float, ...]
    """Rms noise of reading each remainder, in its steps."""

    def __post_init__(self) -> None:
        for modulus in self.moduli:
            if modulus < 2 or modulus != int(modulus):
                msg = f"moduli must be whole and at least 2; got {self.moduli}"
                raise ParameterError(msg)
        if not self.moduli or math.lcm(*self.moduli) != math.prod(self.moduli):
            msg = f"moduli must be pairwise coprime, at least one; got {self.moduli}; try 3, 4, 5 and 7"
            raise ParameterError(msg)
        if len(self.sigmas) != len(self.moduli) or min(self.sigmas) < 0.0:
            msg = f"sigmas must be one rms noise, at least 0, for each modulus; got {self.sigmas}"
            raise ParameterError(msg)

    @property
    def product(self) -> int:
        """How many integers the moduli tell apart, the dynamic range."""
        return math.prod(self.moduli)

    @property
    def weights(self) -> tuple[int, ...]:
        """Change of the result when each remainder is off by one, from -M/2 to M/2."""
        whole, found = self.product, []
        for modulus in self.moduli:
            rest = whole // modulus
            weight = rest * pow(rest, -1, modulus)
            found.append(weight - whole if 2 * weight > whole else weight)
        return tuple(found)

    @property
    def misreadings(self) -> tuple[float, ...]:
        """How likely each remainder is misread."""
        return tuple(misreading(sigma) for sigma in self.sigmas)

    @property
    def wrong_sample(self) -> float:
        """How likely a sample comes out wrong, that is, any of its remainders; 0 to 1."""
        chances = self.misreadings
        if max(chances) >= 1.0:
            return 1.0
        return -math.expm1(math.fsum(math.log1p(-chance) for chance in chances))

    @property
    def error_variance(self) -> float:
        """Mean square of a sample's error, in steps of y, while at most one remainder is off by one.

        Notes
        -----
        For sums well inside the dynamic range; one near its end wraps around and errs by up to all of it.
        """
        pairs = zip(self.misreadings, self.weights, strict=True)
        return math.fsum(chance * weight**2 for chance, weight in pairs)

    def check_sums(self, largest: float) -> None:
        """Refuse sums that leave the dynamic range.

        Parameters
        ----------
        largest : float
            Largest magnitude of a sum.

        Raises
        ------
        ParameterError
            If two such sums have the same remainders.
        """
        if 2 * largest >= self.product:
            msg = (
                f"moduli {self.moduli} tell {self.product} integers apart; sums of up to {largest:g} to "
                "either side need more; take more or larger moduli, shorter sums or smaller mantissas"
            )
            raise ParameterError(msg)


@dataclass(frozen=True, kw_only=True, eq=False)
class Misread:
    """Samples of which a remainder or several are misread."""

    index: np.ndarray
    """Places among all samples in their order, ascending, int64, shape [wrong]."""
    shift: np.ndarray
    """What the wrong remainders add to the integer there, before it is folded, float64, shape [wrong]."""


def draw_misread(residues: Residues, count: int, generator: np.random.Generator) -> Misread:
    """Return which of so many samples are misread, and by how much; drawn anew at every use.

    Notes
    -----
    Each remainder of each sample has Gaussian noise of its own and is rounded to whole steps. Those that come
    out right are not drawn one by one: gaps between wrong ones are geometric with the chance of `misreading`,
    and by how many steps a wrong one is off follows the Gaussian's tails beyond half a step, by their
    quantile function. That is the same law, at a cost that goes with the number of wrong ones.
    """
    places, shifts = [np.empty(0, np.int64)], [np.empty(0)]
    for sigma, weight in zip(residues.sigmas, residues.weights, strict=True):
        place = _places(misreading(sigma), count, generator)
        if place.size:
            places.append(place)
            shifts.append(weight * _steps(sigma, place.size, generator))
    index, inverse = np.unique(np.concatenate(places), return_inverse=True)
    shift = np.bincount(inverse, np.concatenate(shifts), minlength=index.size)
    return Misread(index=index, shift=shift.astype(np.float64))


@functools.lru_cache(maxsize=256)
def misread_shifts(residues: Residues) -> tuple[Reals, Reals]:
    """Return the size of what misread remainders add to a sum, modulo the dynamic range, and how likely."""
    whole = residues.product
    chance = np.zeros(whole)
    chance[0] = 1.0
    for sigma, weight in zip(residues.sigmas, residues.weights, strict=True):
        if sigma <= 0.0:
            continue
        most = max(1, math.ceil(8.0 * sigma))
        steps = np.arange(-most, most + 1)
        bounds = scipy.special.ndtr((steps[:, None] + np.array([-0.5, 0.5])) / sigma)
        each = np.where(steps > 0, bounds[::-1, 1] - bounds[::-1, 0], bounds[:, 1] - bounds[:, 0])
        chance = sum(
            share * np.roll(chance, int(step * weight)) for step, share in zip(steps, each, strict=True)
        )
    shift = np.minimum(np.arange(whole), whole - np.arange(whole)).astype(np.float64)
    there = chance > 0.0
    return shift[there], chance[there]


def _places(chance: float, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return ascending places below `count`, each of them there with the same chance, independently."""
    if chance <= 0.0:
        return np.empty(0, np.int64)
    at_once = math.ceil(count * chance + 6.0 * math.sqrt(count * chance) + 1.0)
    found, last = [], -1
    while last < count:
        gaps = np.minimum(generator.geometric(chance, at_once), count + 1)
        found.append(last + np.cumsum(gaps))
        last = int(found[-1][-1])
    places = np.concatenate(found)
    return places[: np.searchsorted(places, count)]


def _steps(sigma: float, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return whole steps, none of them zero, of Gaussian noise beyond half a step."""
    tail = 0.5 * misreading(sigma) * (1.0 - generator.random(count))
    size = np.maximum(np.rint(-sigma * scipy.special.ndtri(tail)), 1.0)
    return np.where(generator.random(count) < 0.5, -size, size)


def largest_mantissa(bits: float) -> int:
    """Return the largest code of a symmetric signed mantissa of so many bits."""
    return int(2 ** (bits - 1)) - 1
