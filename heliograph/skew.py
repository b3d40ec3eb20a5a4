"""Uneven all-to-alls: which share of what a rank sends goes to whom, when experts are not all alike."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from heliograph.errors import WorkloadError

GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
"""Golden section; multiples of it, modulo one, keep away from each other (Knuth, The Art of Computer
Programming, volume 3, section 6.4, theorem S). Dimensionless."""
MOST_PASSES = 1000
"""Passes over rows and columns after which they are balanced or not; dimensionless."""
_HALVINGS = 200
"""Halvings of the interval that holds the ratio of neighbouring loads: past double precision."""
BALANCED = 1e-9
"""Difference of a column from its sum, over the mean column, that is none; dimensionless."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Skew:
    """How uneven an all-to-all is: some members get more than others, and each has favourites.

    Notes
    -----
    The matrix has row sums of one n-th each (everybody has as many tokens), column sums after `loads`, and
    within them prefers pairs after `affinity`: the matrix nearest to those preferences with these sums, found
    by scaling columns and rows in turn (Sinkhorn, Ann. Math. Statist. 35 (1964) 876).

    What member i sends to the member k places further on the ring of favourites falls geometrically with k,
    as loads of experts do. Favourites are spread over the group by the golden section, so that they are
    neither all near nor all far; what a member sends itself is no matter of preference.
    """

    loads: tuple[float, ...]
    """What each member gets over the mean, shape [n]; mean 1, dimensionless."""
    affinity: float = 1.0
    """What a member's first favourite gets from it over the mean of all others; 1 for none."""
    returns: bool = False
    """Whether what was sent comes back, so that the matrix is turned round."""

    def __post_init__(self) -> None:
        n = len(self.loads)
        if not n or min(self.loads) < 0.0 or not math.isclose(math.fsum(self.loads), n, rel_tol=1e-6):
            msg = f"loads of a skew must not be negative, with a mean of 1; got {self.loads[:8]}"
            raise WorkloadError(msg)
        if not 1.0 <= self.affinity <= max(1.0, (n - 1) / 2):
            most = max(1.0, (n - 1) / 2)
            msg = (
                f"affinity ({self.affinity:g}) of {n} members must be from 1 (none) to half of the others "
                f"({most:g}); try {min(2.0, most):g}"
            )
            raise WorkloadError(msg)

    @property
    def even(self) -> bool:
        """Whether all pairs exchange the same."""
        return self.affinity == 1.0 and len(set(self.loads)) == 1

    def turned(self) -> Skew:
        """Return the way back."""
        return replace(self, returns=not self.returns)

    def matrix(self) -> np.ndarray:
        """Return what goes from member to member over the mean of all pairs, shape [n, n]."""
        found = _matrix(self.loads, self.affinity)
        return found.T if self.returns else found


def load_ratio(count: int, peak: float) -> float:
    """Return the ratio of neighbouring loads that fall geometrically from `peak` times their mean.

    Parameters
    ----------
    count : int
        Loads.
    peak : float
        The largest over the mean, from 1 to `count`.

    Notes
    -----
    A geometric fall is the one family with a single parameter that reaches from equal loads (ratio 1) to one
    that has everything (ratio 0). The root of peak = count (1 - r) / (1 - r^count), which falls with r, is
    found by halving.
    """
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _peak(count, middle) > peak:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _peak(count: int, ratio: float) -> float:
    return count / math.fsum(ratio**place for place in range(count))


def geometric_loads(count: int, peak: float) -> tuple[float, ...]:
    """Return loads over their mean that fall geometrically from `peak`; they add up to `count`."""
    ratio = load_ratio(count, peak)
    return tuple(_peak(count, ratio) * ratio**place for place in range(count))


@lru_cache(maxsize=64)
def _matrix(loads: tuple[float, ...], affinity: float) -> np.ndarray:
    n = len(loads)
    columns = np.array(loads) * (n * n / math.fsum(loads))
    wanted = np.ones(n)
    if affinity > 1.0:
        wanted[spread_places(n)[1:]] = geometric_loads(n - 1, affinity)
    every = np.arange(n)
    found = wanted[(every - every[:, None]) % n] * columns
    for _ in range(MOST_PASSES):
        sums = found.sum(axis=0)
        found = found * np.divide(columns, sums, out=np.ones(n), where=sums > 0.0)
        found = found * (n / found.sum(axis=1, keepdims=True))
        if np.abs(found.sum(axis=0) - columns).max() <= BALANCED * n:
            break
    found.flags.writeable = False
    return found


def spread_places(count: int) -> np.ndarray:
    """Return so many places in an order in which neighbours stand far apart, 0 first; shape [count].

    Notes
    -----
    Multiples, modulo the count, of the whole number without a common factor that is nearest to its golden
    section: a permutation.
    """
    middle = GOLDEN * count
    coprime = (one for one in range(1, count + 1) if math.gcd(one, count) == 1)
    step = min(coprime, key=lambda one: abs(one - middle))
    return (step * np.arange(count)) % count
