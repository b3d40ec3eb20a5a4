"""Bounds that no schedule of circuits can beat."""

from __future__ import annotations

import numpy as np

from optical.scheduling.demand import checked


def makespan_bound(
    demand: np.ndarray,
    *,
    rate_bytes_per_s: float,
    delay_s: float,
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
    delay_s : float
        Dark time before each configuration, also the first.
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
    together = (total + rate * delay_s * circuits) / (switches * rate + packets)
    dark = delay_s * np.ceil(circuits / switches)
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
