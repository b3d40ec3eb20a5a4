"""A demand as a sum of permutations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from optical.scheduling.demand import BALANCE_TOLERANCE, checked, common_sum
from optical.scheduling.matchings import Matching, Support, heaviest, lower_until_perfect

Part = tuple[np.ndarray, float]
"""Destination of each source, shape [N], and a duration in the demand's unit."""


def birkhoff_von_neumann(demand: np.ndarray, matching: Matching = Matching.BOTTLENECK) -> list[Part]:
    """Return permutations and durations whose sum is the demand.

    Parameters
    ----------
    demand : numpy.ndarray
        Non-negative, rows and columns of one common sum, shape [N, N]; entry [i, j] is i's traffic to j.
    matching : Matching
        Which permutation is peeled off first.

    Returns
    -------
    list of (numpy.ndarray, float)
        Destination of each source, shape [N], and the duration in the demand's unit; at most
        `most_permutations` of them, and without rounding all of the demand.

    Raises
    ------
    ParameterError
        If the matrix is not square and non-negative with equal sums.
    """
    left = checked(demand)
    total = common_sum(left)
    if total <= 0.0:
        return []
    floor = total * BALANCE_TOLERANCE
    left[left <= floor / len(left)] = 0.0
    peel = _peel_heaviest if matching is Matching.HUNGARIAN else _peel_kept
    parts: list[Part] = []
    remaining = total
    for permutation, duration in peel(left, floor / len(left), bottleneck=matching is Matching.BOTTLENECK):
        parts.append((permutation, duration))
        remaining -= duration
        if remaining <= floor:
            break
    return parts


def _peel_heaviest(left: np.ndarray, floor: float, *, bottleneck: bool) -> Iterator[Part]:
    """Yield parts, each on the matching of greatest total of what is left."""
    del bottleneck
    sources = np.arange(len(left))
    while (columns := heaviest(left)) is not None:
        rest = left[sources, columns]
        duration = float(rest.min())
        rest -= duration
        rest[rest <= floor] = 0.0
        left[sources, columns] = rest
        yield columns, duration


def _peel_kept(left: np.ndarray, floor: float, *, bottleneck: bool) -> Iterator[Part]:
    """Yield parts on a matching that is mended: any, or always the one of greatest smallest entry.

    What is left only shrinks, and so does the greatest smallest entry: edges below the last one return when
    they are needed, never before.
    """
    sources = np.arange(len(left))
    level = float(left.max()) if bottleneck else floor
    support = Support(left >= level if bottleneck else left > floor)
    while True:
        if bottleneck:
            found = lower_until_perfect(support, left, level)
            if found is None:
                return
            level = found
        elif support.completed() is not None:
            return
        columns = support.columns.copy()
        rest = left[sources, columns]
        duration = float(rest.min())
        rest -= duration
        rest[rest <= floor] = 0.0
        left[sources, columns] = rest
        gone = np.flatnonzero((rest < level) if bottleneck else (rest == 0.0))
        support.forbid(gone, columns[gone])
        yield columns, duration


def most_permutations(size: int) -> int:
    """Return the greatest number of permutations a decomposition of an N x N demand needs: N^2 - 2 N + 2.

    Notes
    -----
    Birkhoff 1946; the bound by dimension is Marcus and Ree, Quarterly J. Math. 10 (1959).
    """
    return (size - 1) ** 2 + 1


def permutations_for(parts: Sequence[Part], share: float) -> int:
    """Return how many of the first parts carry a share (0 to 1) of the volume."""
    carried = np.cumsum([duration for _, duration in parts])
    return int(np.searchsorted(carried, share * carried[-1] * (1.0 - BALANCE_TOLERANCE))) + 1
