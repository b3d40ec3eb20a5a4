"""Collectives on boxes of a torus: rings along all axes at once, each part of the vector in its turn.

References
----------
Jain and Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects", ICS 2010.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import linprog

from heliograph.collectives import Round, vector_bytes
from heliograph.errors import WorkloadError
from heliograph.interfaces import Flows
from heliograph.operators import CollectiveKind

BUCKET = "bucket"
"""Name of the algorithm in results."""
BUCKET_KINDS = frozenset(
    {CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER}
)
"""What it can carry out."""

_SAME = 1e-9
"""Relative difference within which two shares are one; dimensionless."""


def bucket_rounds(
    kind: CollectiveKind, groups: np.ndarray, payload_bytes: float, axis: str, grid: tuple[int, ...]
) -> tuple[Round, ...]:
    """Return an all-reduce, reduce-scatter or all-gather over boxes of a torus.

    Parameters
    ----------
    kind, groups, payload_bytes, axis
        As `heliograph.collectives.rounds` takes them.
    grid : tuple of int
        Shape of a group's box, its last axis fastest.

    Raises
    ------
    WorkloadError
        If the group does not fill the box, or the collective has no such form.

    Notes
    -----
    The vector is cut into a part for every axis and direction. Part r is reduced and scattered around its
    ring on axis r, what is left of it on axis r + 1, and so on, so that every link works in every phase; an
    all-gather is the way back. On a cube of n nodes with D axes all phases together move
    (n-1)/n m / (2 D) bytes over each link, which is the bound of 2 D ports; parts of other boxes are of
    unequal size, chosen by a linear programme so that the phases take the least time (`phases`).

    Axes that move less in a phase than others stop early: a phase is a run of rounds of which each carries
    what its slowest axis still has to. A round has as many repetitions as the longest ring has steps; those
    behind it pay the latency once more.
    """
    n = groups.shape[1]
    if kind not in BUCKET_KINDS or math.prod(grid) != n:
        msg = f"rings on all axes cannot do {kind} on {n} ranks in a box of {grid}; take a ring"
        raise WorkloadError(msg)
    axes = tuple(size for size in grid if size > 1)
    vector = vector_bytes(kind, payload_bytes, n)
    boxes = groups.reshape(-1, *axes)
    scatter = [_phase_rounds(boxes, shares, vector, axis) for shares in phases(axes)]
    match kind:
        case CollectiveKind.REDUCE_SCATTER:
            chosen = scatter
        case CollectiveKind.ALL_GATHER:
            chosen = scatter[::-1]
        case _:
            chosen = scatter + scatter[::-1]
    return tuple(one for phase in chosen for one in phase)


@lru_cache(maxsize=256)
def part_shares(axes: tuple[int, ...]) -> tuple[float, ...]:
    """Return the share of the vector that begins on each axis, both directions together.

    Parameters
    ----------
    axes : tuple of int
        Nodes along each axis, at least two.

    Notes
    -----
    The least sum over phases of the bytes of the busiest axis, a linear programme in the shares.
    """
    k = len(axes)
    moved = np.array([[_left(axes, part, phase) for phase in range(k)] for part in range(k)])
    unknowns = 2 * k
    rows = np.zeros((k * k, unknowns))
    for part in range(k):
        for phase in range(k):
            rows[part * k + phase, part] = moved[part, phase]
            rows[part * k + phase, k + phase] = -1.0
    found = linprog(
        c=np.concatenate([np.zeros(k), np.ones(k)]),
        A_ub=rows,
        b_ub=np.zeros(k * k),
        A_eq=np.concatenate([np.ones(k), np.zeros(k)])[None, :],
        b_eq=[1.0],
    )
    return tuple(float(share) for share in found.x[:k])


def _left(axes: tuple[int, ...], part: int, phase: int) -> float:
    """Return the share of a part that a node sends in a phase: of what is left, all but its own piece."""
    k = len(axes)
    done = math.prod(axes[(part + earlier) % k] for earlier in range(phase))
    size = axes[(part + phase) % k]
    return (size - 1) / size / done


@lru_cache(maxsize=256)
def phases(axes: tuple[int, ...]) -> tuple[tuple[float, ...], ...]:
    """Return the share of the vector that a node sends along each axis, each direction, in each phase."""
    k, shares = len(axes), part_shares(axes)
    found = []
    for phase in range(k):
        sent = [0.0] * k
        for part in range(k):
            sent[(part + phase) % k] = 0.5 * shares[part] * _left(axes, part, phase)
        found.append(tuple(sent))
    return tuple(found)


def _phase_rounds(boxes: np.ndarray, shares: tuple[float, ...], vector_size: float, axis: str) -> list[Round]:
    """Return the rounds of one phase: all axes, then those that have more to send, until none has."""
    sizes = boxes.shape[1:]
    found: list[Round] = []
    sent = 0.0
    for share in sorted(set(shares)):
        if share - sent <= share * _SAME:
            continue
        working = [place for place in range(len(sizes)) if shares[place] >= share * (1.0 - _SAME)]
        rest_bytes = (share - sent) * vector_size
        sent = share
        count = max(sizes[place] for place in working) - 1 if not found else 1
        sources, destinations = [], []
        for place in working:
            for step in (1, -1):
                sources.append(boxes.ravel())
                destinations.append(np.roll(boxes, -step, axis=place + 1).ravel())
        flows = Flows(
            sources=np.concatenate(sources),
            destinations=np.concatenate(destinations),
            size_bytes=rest_bytes / count,
            axis=axis,
        )
        found.append(Round(flows=flows, count=count))
    return found
