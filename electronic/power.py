"""What a power limit does to a clock: dynamic power goes with its cube, so time goes with the root."""

from __future__ import annotations

STEPS = 40
"""Halvings of the interval in which the clock is sought."""


def slowdown(*, compute_s: float, least_s: float, compute_j: float, other_j: float, limit_w: float) -> float:
    """Return by what factor a clock must fall so that the mean power stays within a limit, at least 1.

    Parameters
    ----------
    compute_s : float
        Time of the units at the full clock, which stretches with the factor.
    least_s : float
        Time that the clock does not change (memory).
    compute_j : float
        Energy of the units at the full clock; it falls with the square of the factor, as the voltage does.
    other_j : float
        Energy that the clock does not change.
    limit_w : float
        Power that work may add.

    Notes
    -----
    Finds x >= 1 with ``compute_j / x^2 + other_j = limit_w max(compute_s x, least_s)``, voltage being taken
    proportional to the clock (P = C V^2 f; Rabaey, Digital Integrated Circuits, section 5.5).
    """

    def over(factor: float) -> float:
        return compute_j / factor**2 + other_j - limit_w * max(compute_s * factor, least_s)

    if over(1.0) <= 0.0:
        return 1.0
    low, high = 1.0, 2.0
    while over(high) > 0.0:
        low, high = high, 2.0 * high
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if over(middle) > 0.0 else (low, middle)
    return high
