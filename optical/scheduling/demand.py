"""Demands between ports: checked, measured, and filled up to equal line sums."""

from __future__ import annotations

import numpy as np

from simulator.errors import ParameterError

BALANCE_TOLERANCE = 1e-9
"""Row and column sums may differ by this share."""
MOST_BYTES = 1e30
"""Most bytes of an entry, a quettabyte; sums and products of entries stay within double precision."""
_SINKHORN_ROUNDS = 10_000
_SINKHORN_TOLERANCE = 1e-14


def checked(demand: np.ndarray) -> np.ndarray:
    """Return a demand as a new float array.

    Parameters
    ----------
    demand : numpy.ndarray
        Entry [i, j] goes from input i to output j, shape [N, N].

    Raises
    ------
    ParameterError
        If it is not square, or an entry is negative, not finite or above `MOST_BYTES`.
    """
    found = np.array(demand, dtype=float)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or not (found >= 0.0).all():
        msg = f"a demand must be a square matrix without negative entries; got shape {found.shape}"
        raise ParameterError(msg)
    if not np.isfinite(found).all():
        row, column = np.argwhere(~np.isfinite(found))[0].tolist()
        msg = f"a demand must be finite; entry [{row}, {column}] is {found[row, column]}"
        raise ParameterError(msg)
    if found.max(initial=0.0) > MOST_BYTES:
        row, column = np.argwhere(found > MOST_BYTES)[0].tolist()
        entry = f"entry [{row}, {column}] of a demand"
        msg = f"{entry} is {found[row, column]:g} bytes; {MOST_BYTES:g} is the most"
        raise ParameterError(msg)
    return found


def line_sums(demand: np.ndarray) -> np.ndarray:
    """Return the sums of all rows, then of all columns, shape [2 N]."""
    return np.concatenate([demand.sum(axis=1), demand.sum(axis=0)])


def largest_line(demand: np.ndarray) -> float:
    """Return the largest row or column sum; nothing serves a demand faster."""
    return float(line_sums(demand).max(initial=0.0))


def degree(demand: np.ndarray) -> int:
    """Return the most peers of one port: the fewest configurations that touch every pair (König 1916)."""
    return int(line_sums(demand > 0.0).max(initial=0))


def common_sum(demand: np.ndarray) -> float:
    """Return the sum that all rows and columns share.

    Raises
    ------
    ParameterError
        If they share none.
    """
    sums = line_sums(demand)
    if sums.size and np.ptp(sums) > sums.max() * BALANCE_TOLERANCE:
        msg = (
            f"rows and columns of a demand must have one sum to be permutations; they range from "
            f"{sums.min():g} to {sums.max():g}; add dummy traffic to the lighter ones"
        )
        raise ParameterError(msg)
    return float(sums.max(initial=0.0))


def stuffed(demand: np.ndarray) -> np.ndarray:
    """Return a demand filled up until every row and column has its largest line sum.

    Parameters
    ----------
    demand : numpy.ndarray
        Entry [i, j] goes from input i to output j, shape [N, N].

    Returns
    -------
    numpy.ndarray
        No entry smaller, shape [N, N]. Pairs that have traffic are filled first, so that few new ones appear.

    Notes
    -----
    QuickStuff of Liu et al., "Scheduling techniques for hybrid circuit/packet networks", CoNEXT 2015,
    algorithm 2. Every filling saturates a row or a column, so 2 N - 1 entries grow at most.
    """
    full = checked(demand)
    target = largest_line(full)
    missing_in = target - full.sum(axis=0)
    missing_out = target - full.sum(axis=1)
    for candidates in (full > 0.0, np.ones(full.shape, dtype=bool)):
        for row in np.flatnonzero(missing_out > 0.0).tolist():
            columns = np.flatnonzero(candidates[row] & (missing_in > 0.0))
            room = missing_in[columns]
            added = np.clip(missing_out[row] - (np.cumsum(room) - room), 0.0, room)
            full[row, columns] += added
            missing_in[columns] -= added
            missing_out[row] -= added.sum()
    return full


def sinkhorn(demand: np.ndarray) -> np.ndarray:
    """Return a demand with its rows and columns scaled until each sums to one.

    Parameters
    ----------
    demand : numpy.ndarray
        With all entries positive, or at least a pattern that permutations can fill, shape [N, N].

    Raises
    ------
    ParameterError
        If scaling does not converge: some entry lies on no permutation of the pattern.

    Notes
    -----
    Sinkhorn and Knopp, Pacific J. Math. 21 (1967). It changes the traffic, other than `stuffed`, and is meant
    for random doubly stochastic matrices.
    """
    found = checked(demand)
    for _ in range(_SINKHORN_ROUNDS):
        rows, columns = found.sum(axis=1, keepdims=True), found.sum(axis=0, keepdims=True)
        if not (rows.all() and columns.all()):
            break
        if max(np.ptp(rows), np.ptp(columns), abs(rows.max() - 1.0)) < _SINKHORN_TOLERANCE * len(found):
            return found
        found /= rows
        found /= found.sum(axis=0, keepdims=True)
    msg = (
        "rows and columns cannot be scaled to one: some entry lies on no permutation of the pattern; "
        "fill the demand up (stuffed) instead"
    )
    raise ParameterError(msg)
