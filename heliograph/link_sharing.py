"""How two collectives slow each other down where their flows meet on the same links."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heliograph.bundles import Bundle
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


def pair_slowdown(one: Bundle, other: Bundle, capacity_bytes_per_s: np.ndarray) -> Slowdown:
    """Return the slowdown of two bundles of flows that share links max-min fairly.

    Parameters
    ----------
    one, other : Bundle
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
    met = [
        (here * there, pair_slowdown(first, second, capacity_bytes_per_s))
        for first, here in mine
        for second, there in theirs
    ]
    return Slowdown(
        one=math.fsum(share * slower.one for share, slower in met),
        other=math.fsum(share * slower.other for share, slower in met),
    )


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
    slower = 0.0
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
        slower += shares[bundle] * alone / together
    return max(1.0, slower)


def _shares(plan: Plan, capacity_bytes_per_s: np.ndarray) -> list[tuple[Bundle, float]]:
    """Return the rounds of a collective that load links, each with its share of their time."""
    rounds = [
        (bundle, size_bytes * count / float((capacity_bytes_per_s[bundle.links] / bundle.usage).min()))
        for bundle, size_bytes, count in plan.parts
        if bundle.links.size and size_bytes > 0.0
    ]
    whole_s = math.fsum(time_s for _, time_s in rounds)
    return [(bundle, time_s / whole_s) for bundle, time_s in rounds] if whole_s > 0.0 else []
