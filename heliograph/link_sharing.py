"""How two collectives slow each other down where their flows meet on the same links."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from heliograph.bundles import Bundle, Loads

if TYPE_CHECKING:
    from heliograph.traffic import Plan


@dataclass(frozen=True, kw_only=True)
class Slowdown:
    """How many times as long two collectives take while both move; dimensionless, at least 1."""

    one: float = 1.0
    """The first."""
    other: float = 1.0
    """The second."""


_TOLERANCE = 1e-12
"""Relative slack within which two shares are the same number, dimensionless."""
APART = Slowdown()
"""Of collectives without a common link."""
IN_TURNS = Slowdown(one=2.0, other=2.0)
"""Of collectives that need the same ports turned to different peers: each has them half of the time."""


def pair_slowdown(one: Bundle | Loads, other: Bundle | Loads, capacity_bytes_per_s: np.ndarray) -> Slowdown:
    """Return the slowdown of two bundles of flows that share links max-min fairly.

    Parameters
    ----------
    one, other : Bundle or Loads
        Bundles with the links they load.
    capacity_bytes_per_s : numpy.ndarray
        Capacity of every link, shape [L].

    Notes
    -----
    Progressive filling (Bertsekas and Gallager, "Data networks", section 6.5.2) of two rates: both rise
    until a link is full; who does not cross it goes on until a link of its own is full.
    """
    links = np.union1d(one.links, other.links)
    if links.size == one.links.size + other.links.size:
        return APART
    room = capacity_bytes_per_s[links]
    first, second = np.zeros(links.size), np.zeros(links.size)
    first[np.searchsorted(links, one.links)] = one.usage
    second[np.searchsorted(links, other.links)] = other.usage
    full = room / (first + second)
    level = float(full.min())
    tight = full <= level * (1.0 + _TOLERANCE)
    mine = level if first[tight].any() else _least(room - second * level, first)
    theirs = level if second[tight].any() else _least(room - first * level, second)
    return Slowdown(one=max(1.0, _least(room, first) / mine), other=max(1.0, _least(room, second) / theirs))


def together_s(
    one: Bundle | Loads,
    one_s: float,
    other: Bundle | Loads,
    other_s: float,
    capacity_bytes_per_s: np.ndarray,
) -> float:
    """Return how long two bundles take that start together, from how long each takes alone.

    Parameters
    ----------
    one, other : Bundle or Loads
        Bundles with the links they load.
    one_s, other_s : float
        Time of each alone.
    capacity_bytes_per_s : numpy.ndarray
        Capacity of every link, shape [L].
    """
    slower = pair_slowdown(one, other, capacity_bytes_per_s)
    ends_s = sorted([(one_s * slower.one, one_s), (other_s * slower.other, other_s)])
    (first_s, _), (last_s, alone_s) = ends_s
    return first_s + (1.0 - first_s / last_s) * alone_s if last_s > 0.0 else 0.0


def _least(room: np.ndarray, usage: np.ndarray) -> float:
    """Return the rate at which the first of the links that are used is full."""
    used = usage > 0.0
    return float((room[used] / usage[used]).min())


def plan_slowdown(one: Plan, other: Plan, capacity_bytes_per_s: np.ndarray) -> Slowdown:
    """Return the slowdown of two collectives, the mean over their rounds, each met for its own time.

    Parameters
    ----------
    one, other : Plan
        Collectives on one network, all of whose flows have links.
    capacity_bytes_per_s : numpy.ndarray
        Capacity of every link, shape [L].
    """
    mine, theirs = (_shares(plan, capacity_bytes_per_s) for plan in (one, other))
    if not mine or not theirs:
        return APART
    met = [[pair_slowdown(a, b, capacity_bytes_per_s) for b, _ in theirs] for a, _ in mine]
    return Slowdown(
        one=_slowed(mine, theirs, [[pair.one for pair in row] for row in met], at_once=one.at_once),
        other=_slowed(
            theirs, mine, [[row[k].other for row in met] for k in range(len(theirs))], at_once=other.at_once
        ),
    )


def _slowed(
    mine: Sequence[tuple[Bundle, float]],
    theirs: Sequence[tuple[Bundle, float]],
    slower: Sequence[Sequence[float]],
    *,
    at_once: bool,
) -> float:
    """Return how many times as long a collective takes, round by round beside each of another's.

    Parameters
    ----------
    mine, theirs : sequence of (Bundle, float)
        Rounds, each with its share of the collective's time.
    slower : sequence
        How many times as long each of mine takes beside each of theirs.
    at_once : bool
        Whether mine are levels that work at the same time, so that the last to end counts.
    """
    lasting = [
        share * (1.0 + math.fsum(met * (times - 1.0) for (_, met), times in zip(theirs, row, strict=True)))
        for (_, share), row in zip(mine, slower, strict=True)
    ]
    return max(1.0, max(lasting) if at_once else math.fsum(lasting))


def crowded(plan: Plan, others: Sequence[Plan], capacity_bytes_per_s: np.ndarray) -> float:
    """Return how many times as long a collective takes while others go through the same rounds.

    Parameters
    ----------
    plan : Plan
        The collective.
    others : sequence of Plan
        The same of other ranks, on the same network; each keeps step with the first.
    capacity_bytes_per_s : numpy.ndarray
        Capacity of every link, shape [L].
    """
    lasting = []
    shares = dict(_shares(plan, capacity_bytes_per_s))
    for index, (bundle, _, _) in enumerate(plan.parts):
        if bundle not in shares:
            continue
        usage = np.zeros_like(capacity_bytes_per_s)
        for one in (plan, *others):
            if index < len(one.parts):
                beside = one.parts[index][0]
                usage[beside.links] += beside.usage
        alone = _least(capacity_bytes_per_s[bundle.links], bundle.usage)
        together = _least(capacity_bytes_per_s[bundle.links], usage[bundle.links])
        lasting.append(shares[bundle] * alone / together)
    return max(1.0, max(lasting, default=1.0) if plan.at_once else math.fsum(lasting))


def _shares(plan: Plan, capacity_bytes_per_s: np.ndarray) -> list[tuple[Bundle, float]]:
    """Return the rounds of a collective that load links, each with its share of its time."""
    rounds = [
        (bundle, size_bytes * count / float((capacity_bytes_per_s[bundle.links] / bundle.usage).min()))
        for bundle, size_bytes, count in plan.parts
        if bundle.links.size and size_bytes > 0.0
    ]
    times_s = [time_s for _, time_s in rounds]
    whole_s = max(times_s, default=0.0) if plan.at_once else math.fsum(times_s)
    return [(bundle, time_s / whole_s) for bundle, time_s in rounds] if whole_s > 0.0 else []
