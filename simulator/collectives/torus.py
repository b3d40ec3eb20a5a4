"""Collectives on boxes of a torus: rings along all axes at once, each part of the vector in its turn.

References
----------
Jain and Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects", ICS 2010.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
import scipy

from simulator.collectives.algorithms import Round, vector_bytes
from simulator.errors import WorkloadError
from simulator.interfaces import Flows
from simulator.operators import CollectiveKind

BUCKET = "bucket"
"""Name of the algorithm in results."""
BUCKET_KINDS = frozenset(
    {CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER}
)
"""What it can carry out."""

SEGMENTS = (4, 16)
"""Segments of a vector that are tried beside one where axes are not alike; dimensionless, a choice: more
save little, and every one pays the latency of its phases."""

_SAME = 1e-9
"""Relative difference within which two shares are one; dimensionless."""


def bucket_rounds(
    kind: CollectiveKind,
    groups: np.ndarray,
    payload_bytes: float,
    axis: str,
    grid: tuple[int, ...],
    *,
    segments: int = 1,
) -> tuple[Round, ...]:
    """Return an all-reduce, reduce-scatter or all-gather over boxes of a torus.

    Parameters
    ----------
    kind, groups, payload_bytes, axis
        As `simulator.collectives.algorithms.rounds` takes them.
    grid : tuple of int
        Shape of a group's box, its last axis fastest.
    segments : int
        Pieces of the vector that follow each other through the phases; dimensionless.

    Raises
    ------
    WorkloadError
        If the group does not fill the box, or the collective has no such form.

    Notes
    -----
    The vector is cut into a part for every order of the axes and both directions. A part is reduced and
    scattered around its ring on the first axis of its order, what is left of it on the next, and so on, so
    that every link works in every phase; an all-gather is the way back. On a cube of n nodes with D axes all
    phases together move (n-1)/n m / (2 D) bytes over each link, which is the bound of 2 D ports; parts of
    other boxes are of unequal size, chosen by a linear programme so that the phases take the least time
    (`order_shares`). What that cannot balance in one phase balances over several: with segments, one is in
    its second phase while the next is in its first.

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
    steps = pipeline(axes, segments, both=kind is CollectiveKind.ALL_REDUCE)
    if kind is CollectiveKind.ALL_GATHER:
        steps = steps[::-1]
    return tuple(one for shares in steps for one in _phase_rounds(boxes, shares, vector, axis, kind))


def orders(axes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the orders of axes that parts go through: all of them, or each axis first if axes are alike."""
    k = len(axes)
    if len(set(axes)) == 1:
        return tuple(tuple((first + place) % k for place in range(k)) for first in range(k))
    return tuple(itertools.permutations(range(k)))


@lru_cache(maxsize=256)
def order_shares(axes: tuple[int, ...], segments: int = 1, *, both: bool = False) -> tuple[float, ...]:
    """Return the share of the vector that takes each of the `orders`, both directions together.

    Parameters
    ----------
    axes : tuple of int
        Nodes along each axis, at least two.
    segments : int
        Pieces that follow each other.
    both : bool
        Whether what was scattered is gathered again, or only one of them is done.

    Notes
    -----
    The least sum over steps of the bytes of the busiest axis, a linear programme in the shares.
    """
    k, ways = len(axes), orders(axes)
    sent = np.array([_steps(_alone(axes, order), segments, both=both) for order in ways])  # order, step, axis
    steps = sent.shape[1]
    rows = np.zeros((steps * k, len(ways) + steps))
    rows[:, : len(ways)] = sent.reshape(len(ways), -1).T
    rows[np.arange(steps * k), len(ways) + np.repeat(np.arange(steps), k)] = -1.0
    found = scipy.optimize.linprog(
        c=np.concatenate([np.zeros(len(ways)), np.ones(steps)]),
        A_ub=rows,
        b_ub=np.zeros(steps * k),
        A_eq=np.concatenate([np.ones(len(ways)), np.zeros(steps)])[None, :],
        b_eq=[1.0],
    )
    return tuple(float(share) for share in found.x[: len(ways)])


def _alone(axes: tuple[int, ...], order: tuple[int, ...]) -> np.ndarray:
    """Return the share of a part that a node sends in each phase along each axis, shape [phases, axes].

    Of what is left, all but its own piece.
    """
    sent = np.zeros((len(order), len(axes)))
    left = 1.0
    for phase, place in enumerate(order):
        sent[phase, place] = left * (axes[place] - 1) / axes[place]
        left /= axes[place]
    return sent


def _steps(sent: np.ndarray, segments: int, *, both: bool) -> np.ndarray:
    """Return what is sent in each step when segments follow each other, shape [steps, axes].

    Parameters
    ----------
    sent : numpy.ndarray
        What is sent in each phase of a reduce-scatter, shape [phases, axes].
    segments, both
        As in `order_shares`.
    """
    path = np.concatenate([sent, sent[::-1]]) if both else sent
    found = np.zeros((len(path) + segments - 1, sent.shape[1]))
    for segment in range(segments):
        found[segment : segment + len(path)] += path / segments
    return found


@lru_cache(maxsize=256)
def pipeline(
    axes: tuple[int, ...], segments: int = 1, *, both: bool = False
) -> tuple[tuple[float, ...], ...]:
    """Return the share of the vector that a node sends along each axis, each direction, in each step.

    Parameters as in `order_shares`.
    """
    shares = order_shares(axes, segments, both=both)
    sent = sum(0.5 * share * _alone(axes, order) for order, share in zip(orders(axes), shares, strict=True))
    return tuple(tuple(row) for row in _steps(np.asarray(sent), segments, both=both).tolist())


def _phase_rounds(
    boxes: np.ndarray, shares: tuple[float, ...], vector_size: float, axis: str, kind: CollectiveKind
) -> list[Round]:
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
            kind=kind,
        )
        found.append(Round(flows=flows, count=count))
    return found
