"""Few configurations: as many as a port has peers, twice as many as ports, or halving thresholds."""

from __future__ import annotations

import numpy as np
import scipy

from optical.scheduling.birkhoff import Part, birkhoff_von_neumann
from optical.scheduling.demand import BALANCE_TOLERANCE, checked, largest_line, stuffed
from optical.scheduling.matchings import Matching, Support


def double(demand: np.ndarray) -> list[Part]:
    """Return at most 2 N configurations that take at most twice the time of the busiest port.

    Parameters
    ----------
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N].

    Returns
    -------
    list of (numpy.ndarray, float)
        Destination of each source, shape [N], and bytes that each circuit may carry.

    Notes
    -----
    Towles and Dally, "Guaranteed scheduling for switches with configuration overhead", IEEE/ACM Trans.
    Networking 11 (2003), algorithm DOUBLE. With T the largest line sum, whole multiples of T / N have line
    sums of at most N and are at most N permutations, each held for as many multiples as it stands for. What
    remains of every pair is less than T / N: the N cyclic shifts, each held for its largest remainder (the
    paper holds it for all of T / N).
    """
    left = checked(demand)
    size, unit = len(left), largest_line(left) / len(left)
    if unit == 0.0:
        return []
    whole = np.floor(left / unit * (1.0 + BALANCE_TOLERANCE))
    coarse = birkhoff_von_neumann(stuffed(whole), Matching.ARBITRARY) if whole.any() else []
    rest = np.clip(left - whole * unit, 0.0, None)
    sources = np.arange(size)
    shifts = [(sources + shift) % size for shift in range(size)]
    fine = [(columns, float(rest[sources, columns].max())) for columns in shifts]
    return [(columns, times * unit) for columns, times in coarse] + fine


def solstice(demand: np.ndarray, *, delay_bytes: float, packet_share: float = 0.0) -> list[Part]:
    """Return configurations in which every circuit is long, until packets can carry the rest.

    Parameters
    ----------
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N].
    delay_bytes : float
        What a circuit would carry during one delay.
    packet_share : float
        Rate of the packet switch over that of a circuit; zero serves all by circuits.

    Returns
    -------
    list of (numpy.ndarray, float)
        Destination of each source, shape [N], and bytes that each circuit may carry.

    Notes
    -----
    Liu et al., "Scheduling techniques for hybrid circuit/packet networks", CoNEXT 2015, algorithms 1 to 3:
    fill up (QuickStuff), then take perfect matchings of entries of at least a threshold (BigSlice), which is
    halved when there is none.
    """
    left, full = checked(demand), stuffed(demand)
    floor = largest_line(left) * BALANCE_TOLERANCE / max(len(left), 1)
    sources = np.arange(len(left))
    parts: list[Part] = []
    used = 0.0
    threshold = 2.0 ** np.floor(np.log2(full.max())) if full.any() else 0.0
    support = Support(full >= threshold)
    while left.any() and largest_line(left) > packet_share * used:
        if support.completed() is not None:
            if threshold <= floor:
                break
            support.allow(*np.nonzero((full >= threshold / 2) & (full < threshold)))
            threshold /= 2
            continue
        columns = support.columns.copy()
        rest = full[sources, columns]
        held = float(rest.min())
        rest = np.where(rest - held > floor, rest - held, 0.0)
        full[sources, columns] = rest
        served = left[sources, columns] - held
        left[sources, columns] = np.where(served > floor, served, 0.0)
        gone = np.flatnonzero(rest < threshold)
        support.forbid(gone, columns[gone])
        parts.append((columns, held))
        used += held + delay_bytes
    return parts


def fewest(demand: np.ndarray) -> list[Part]:
    """Return as many configurations as the busiest port has peers, the fewest that touch every pair.

    Parameters
    ----------
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N].

    Returns
    -------
    list of (numpy.ndarray, float)
        Destination of each source, shape [N], and bytes that each circuit may carry.

    Notes
    -----
    The decomposition of Liang et al., arXiv:2603.07373: matchings that cover every port with as many peers
    left as configurations, the heaviest of these, so that equals meet equals; then the least total length
    that serves all, which is a linear programme over the lengths.
    """
    pattern = checked(demand) > 0.0
    weights = checked(demand)
    size, largest = len(weights), float(weights.max(initial=0.0))
    rounds: list[np.ndarray] = []
    while pattern.any():
        out, into = pattern.sum(axis=1), pattern.sum(axis=0)
        peers = int(max(out.max(), into.max()))
        critical = (out == peers)[:, None].astype(float) + (into == peers)[None, :]
        bonus = (size + 1.0) * largest
        value = np.where(pattern, weights + bonus * critical, 0.0)
        rows, columns = scipy.optimize.linear_sum_assignment(value, maximize=True)
        pattern[rows, columns] = False
        rounds.append(_padded(weights, columns))
    return list(zip(rounds, _least_lengths(weights, rounds).tolist(), strict=True))


def _padded(weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return a matching whose circuits without demand are rematched where there is some."""
    idle = np.flatnonzero(weights[np.arange(len(weights)), columns] == 0.0)
    if len(idle) < 2:
        return columns
    offered = columns[idle]
    rows, places = scipy.optimize.linear_sum_assignment(weights[np.ix_(idle, offered)], maximize=True)
    padded = columns.copy()
    padded[idle[rows]] = offered[places]
    return padded


def _least_lengths(weights: np.ndarray, rounds: list[np.ndarray]) -> np.ndarray:
    """Return lengths of least sum under which each pair's circuits carry its bytes, shape [K]."""
    if not rounds:
        return np.zeros(0)
    size, count = len(weights), len(rounds)
    places = (np.arange(size) * size + np.array(rounds)).ravel()
    which = np.repeat(np.arange(count), size)
    wanted = weights.ravel()
    once = np.bincount(places, minlength=size * size) == 1
    needed = once[places] & (wanted[places] > 0.0)
    least = np.zeros(count)
    np.maximum.at(least, which[needed], wanted[places[needed]])
    shared = np.unique(places[~once[places] & (wanted[places] > 0.0)])
    open_pairs = shared[wanted[shared] > 0.0]
    if not len(open_pairs):
        return least
    among = np.isin(places, open_pairs)
    rows = np.searchsorted(open_pairs, places[among])
    cover = scipy.sparse.csr_array(
        (-np.ones(len(rows)), (rows, which[among])), shape=(len(open_pairs), count)
    )
    scale = float(wanted.max())
    found = scipy.optimize.linprog(
        np.ones(count),
        A_ub=cover,
        b_ub=-wanted[open_pairs] / scale,
        bounds=np.column_stack([least / scale, np.ones(count)]),
    )
    lengths = np.maximum(np.asarray(found.x) * scale, least)
    short = wanted[open_pairs] + cover @ lengths
    return lengths * (1.0 + BALANCE_TOLERANCE) if short.max() > 0.0 else lengths
