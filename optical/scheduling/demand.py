"""Demands between ports: checked, measured, filled up to equal line sums, and bounded from below."""

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


def makespan_bound(
    demand: np.ndarray,
    *,
    rate_bytes_per_s: float,
    reconfiguration_s: float,
    switches: int = 1,
    packet_rate_bytes_per_s: float = 0.0,
) -> float:
    """Return a time before which no schedule can serve a demand, s.

    Parameters
    ----------
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N].
    rate_bytes_per_s : float
        Rate of one circuit.
    reconfiguration_s : float
        Reconfiguration time before each configuration, also the first.
    switches : int
        Circuit switches side by side; every port has a circuit on each.
    packet_rate_bytes_per_s : float
        Rate of each port into a packet switch that serves the rest at the same time.

    Notes
    -----
    Take one port with bytes ``d_1 <= ... <= d_k`` for its peers. Those that packets do not carry whole need a
    circuit once, and a circuit is preceded by a delay on its switch. If packets carry m peers whole, then::

        T >= (d_1 + ... + d_m) / p
        T >= (sum d + c delta (k - m)) / (s c + p)
        T >= delta ceil((k - m) / s)

    The least over m, and the greatest over ports, bounds the makespan. Without packets (p = 0, m = 0) this is
    ``max_i (r_i / c + k_i delta) / s``: the line sum, and one delay for each peer (Inukai 1979 for delta = 0;
    the bound for parallel switches is of the kind of arXiv:2603.07373).
    """
    both = checked(demand)
    lines = np.sort(np.concatenate([both, both.T]), axis=1)
    peers = (lines > 0.0).sum(axis=1, keepdims=True)
    size = len(both)
    carried = np.concatenate([np.zeros((2 * size, 1)), np.cumsum(lines, axis=1)], axis=1)
    circuits = np.minimum(size - np.arange(size + 1), peers)
    rate, packets = rate_bytes_per_s, packet_rate_bytes_per_s
    total = carried[:, -1:]
    with_packets = np.where(carried > 0.0, np.inf, 0.0) if packets == 0.0 else carried / packets
    together = (total + rate * reconfiguration_s * circuits) / (switches * rate + packets)
    dark = reconfiguration_s * np.ceil(circuits / switches)
    return float(np.maximum(np.maximum(with_packets, together), dark).min(axis=1).max(initial=0.0))


def least_line_time(demand: np.ndarray, rate_bytes_per_s: float) -> float:
    """Return the time of the busiest port without any delay, s: what a packet switch of that rate takes."""
    both = checked(demand)
    return float(max(both.sum(axis=0).max(initial=0.0), both.sum(axis=1).max(initial=0.0)) / rate_bytes_per_s)


def is_worth_moving(*, before_s: float, after_s: float, reconfiguration_s: float) -> bool:
    """Return whether turning circuits pays: the transfer time saved exceeds the delay."""
    return before_s - after_s > reconfiguration_s


def duty(*, held_s: float, reconfiguration_s: float) -> float:
    """Return the share of time in which circuits carry: ``t / (t + delta)``, 0 to 1."""
    return held_s / (held_s + reconfiguration_s) if held_s + reconfiguration_s > 0.0 else 1.0


def exposed_delay(*, reconfiguration_s: float, idle_s: float) -> float:
    """Return the part of a delay that idle time before it does not hide: ``max(0, delta - idle)``, s."""
    return max(0.0, reconfiguration_s - idle_s)
