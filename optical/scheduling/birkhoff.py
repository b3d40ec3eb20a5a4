"""Demands between ports, decomposed into permutations that circuit switches can hold.

A demand is bytes from input i to output j, shape [N, N]. A decomposition is a list of parts: the destination
of each source, shape [N], and the bytes that each of its circuits may carry. Decompositions:

- `birkhoff_von_neumann`: permutations that add up to a demand with equal line sums (`stuffed` makes them
  equal). One is peeled off after the other; the matching is mended after each (`MendedMatching`), not found
  anew.
- `double` (Towles and Dally), `solstice` (Liu et al.), `eclipse` (Bojja Venkatakrishnan et al.) and `fewest`
  (Liang et al.): fewer permutations, where each costs a reconfiguration.

Beside them stands the bound of any schedule (`makespan_bound`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

import numpy as np
import scipy

from simulator.errors import ParameterError, check_member

BALANCE_TOLERANCE = 1e-9
"""Relative tolerance of rounding: sums that differ by less are equal, what remains below it is nothing."""
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
    """Return the largest row or column sum: the bytes of the busiest port, which no schedule beats."""
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
    """Return a demand filled up until all rows and columns have the sum of the largest one.

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


def is_worth_moving(*, before_s: float, after_s: float, reconfiguration_s: float) -> bool:
    """Return whether turning circuits pays: the transfer time saved exceeds the delay."""
    return before_s - after_s > reconfiguration_s


def duty(*, held_s: float, reconfiguration_s: float) -> float:
    """Return the share of time in which circuits carry: ``t / (t + delta)``, 0 to 1."""
    return held_s / (held_s + reconfiguration_s) if held_s + reconfiguration_s > 0.0 else 1.0


def exposed_delay(*, reconfiguration_s: float, idle_s: float) -> float:
    """Return the part of a delay that idle time before it does not hide: ``max(0, delta - idle)``, s."""
    return max(0.0, reconfiguration_s - idle_s)


FREE = -1
"""Partner of a row or column that is not matched."""


class Matching(StrEnum):
    """Perfect matching that a decomposition peels off next."""

    ARBITRARY = "arbitrary"
    """Any, by augmenting paths (Hopcroft and Karp 1973 with a warm start): most permutations."""
    HUNGARIAN = "hungarian"
    """That of the greatest total (Kuhn 1955)."""
    BOTTLENECK = "bottleneck"
    """That whose smallest entry is greatest (Derigs and Zimmermann 1978): fewest permutations."""


class MendedMatching:
    """Matching of a bipartite graph whose edges come and go.

    State: the edges, and a matching on them (`columns`: the partner of each row, `FREE` for none). Removing
    an edge in use frees its row and its column; `complete` matches free rows along augmenting paths.

    Parameters
    ----------
    allowed : numpy.ndarray
        Whether row i may be matched to column j, bool [N, N].

    Notes
    -----
    The edges of a row are the bits of an integer, so that one step of a search looks at a whole row. A peeled
    entry frees one row, and one augmenting path mends the matching: O(edges) at worst, a few steps in dense
    matrices.
    """

    def __init__(self, allowed: np.ndarray) -> None:
        size = len(allowed)
        packed = np.packbits(allowed, axis=1, bitorder="little")
        self._masks = [int.from_bytes(row.tobytes(), "little") for row in packed]
        self._row_of = [FREE] * size
        self._free = (1 << size) - 1
        self.columns = np.full(size, FREE, dtype=np.int64)

    def allow(self, rows: np.ndarray, columns: np.ndarray) -> None:
        """Add edges, given by their rows and columns, each of shape [M]."""
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            self._masks[row] |= 1 << column

    def forbid(self, rows: np.ndarray, columns: np.ndarray) -> None:
        """Remove edges, given by their rows and columns, each of shape [M], and unmatch those in use."""
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            self._masks[row] &= ~(1 << column)
            if self._row_of[column] == row:
                self._row_of[column] = FREE
                self._free |= 1 << column
                self.columns[row] = FREE

    def complete(self) -> tuple[list[int], list[int]] | None:
        """Match every row, if that is possible.

        Returns
        -------
        (list of int, list of int) or None
            None if every row is matched. Otherwise an obstacle: rows, and the fewer columns that they can
            reach; a perfect matching needs an edge from these rows to another column (Hall 1935).
        """
        for root in np.flatnonzero(self.columns == FREE).tolist():
            obstacle = self._augment(root)
            if obstacle is not None:
                return obstacle
        return None

    def _augment(self, root: int) -> tuple[list[int], list[int]] | None:
        """Match row `root` along an augmenting path, depth first; return an obstacle if there is none.

        `path` holds the rows on the path and `taken` the columns between them; `seen` has the bits of columns
        visited, `rows` all rows visited.
        """
        seen, path, taken, rows = 0, [root], [], [root]
        while path:
            row = path[-1]
            hit = self._masks[row] & self._free
            if hit:
                taken.append((hit & -hit).bit_length() - 1)
                self._flip(path, taken)
                return None
            new = self._masks[row] & ~seen
            if new:
                bit = new & -new
                seen |= bit
                taken.append(bit.bit_length() - 1)
                path.append(self._row_of[taken[-1]])
                rows.append(path[-1])
            else:
                path.pop()
                if taken:
                    taken.pop()
        return rows, [self.columns[row] for row in rows if row != root]

    def _flip(self, path: list[int], taken: list[int]) -> None:
        """Match each row of an augmenting path to the column that follows it."""
        for row, column in zip(path, taken, strict=True):
            self._row_of[column] = row
            self.columns[row] = column
        self._free &= ~(1 << taken[-1])


def lower_until_perfect(matching: MendedMatching, weights: np.ndarray, level: float) -> float | None:
    """Complete the bottleneck matching, adding lighter edges as needed; return its smallest weight.

    Parameters
    ----------
    matching : MendedMatching
        Matching on the edges of weight at least `level`; gains edges until it is perfect.
    weights : numpy.ndarray
        Weight of each edge, shape [N, N]; zero is no edge.
    level : float
        Upper bound of the answer; where weights only fell since, the last answer is one.

    Returns
    -------
    float or None
        The smallest weight of the perfect matching, or None if there is no perfect matching.

    Notes
    -----
    An obstacle, rows that reach too few columns, needs an edge out of it. The level falls to the heaviest
    such edge, never lower than it must (threshold method of Derigs and Zimmermann, Computing 19, 1978).
    """
    while (obstacle := matching.complete()) is not None:
        rows, columns = np.array(obstacle[0]), obstacle[1]
        outside = weights[rows]
        outside[:, columns] = 0.0
        highest = float(outside.max())
        if highest <= 0.0:
            return None
        level, last = min(level, highest), level
        matching.allow(*np.nonzero((weights >= level) & (weights < last)))
    return level


def heaviest(weights: np.ndarray) -> np.ndarray | None:
    """Return the perfect matching of greatest total on positive weights, column of each row [N], or None."""
    forbidden = -len(weights) * float(weights.max()) - 1.0
    columns = scipy.optimize.linear_sum_assignment(
        np.where(weights > 0.0, weights, forbidden), maximize=True
    )[1]
    return columns if (weights[np.arange(len(weights)), columns] > 0.0).all() else None


Part = tuple[np.ndarray, float]
"""Destination of each source, shape [N], and the bytes that each of its circuits may carry."""


def birkhoff_von_neumann(demand: np.ndarray, matching: Matching = Matching.BOTTLENECK) -> list[Part]:
    """Return permutations, and a duration of each, that add up to a demand.

    Parameters
    ----------
    demand : numpy.ndarray
        Entry [i, j] goes from input i to output j, shape [N, N]; rows and columns have one common sum.
    matching : Matching
        Permutation that is peeled off next.

    Returns
    -------
    list of (numpy.ndarray, float)
        Destination of each source, shape [N], and the duration in the demand's unit; at most
        N^2 - 2 N + 2 of them, and without rounding all of the demand.

    Raises
    ------
    ParameterError
        If the matrix is not square and non-negative with equal sums, or a text stands for the matching.
    """
    check_member("matching", matching, Matching)
    left = checked(demand)
    total = common_sum(left)
    if total <= 0.0:
        return []
    floor = total * BALANCE_TOLERANCE
    left[left <= floor / len(left)] = 0.0
    if matching is Matching.HUNGARIAN:
        peeled = _peel_heaviest(left, floor / len(left))
    else:
        peeled = _peel_kept(left, floor / len(left), bottleneck=matching is Matching.BOTTLENECK)
    parts: list[Part] = []
    remaining = total
    for permutation, duration in peeled:
        parts.append((permutation, duration))
        remaining -= duration
        if remaining <= floor:
            break
    return parts


def _peel_heaviest(left: np.ndarray, floor: float) -> Iterator[Part]:
    """Yield parts, each on the matching of greatest total of what is left; reduces `left` in place."""
    while (columns := heaviest(left)) is not None:
        yield columns, _peel(left, columns, floor)


def _peel(left: np.ndarray, columns: np.ndarray, floor: float) -> float:
    """Take a permutation off `left` in place, for as long as its smallest entry lasts; return that."""
    rest = left[np.arange(len(left)), columns]
    duration = float(rest.min())
    rest -= duration
    left[np.arange(len(left)), columns] = np.where(rest <= floor, 0.0, rest)
    return duration


def _peel_kept(left: np.ndarray, floor: float, *, bottleneck: bool) -> Iterator[Part]:
    """Yield parts on a matching that is mended after each; reduces `left` in place.

    The matching is any, or with `bottleneck` that of the greatest smallest entry. Entries only shrink, and so
    does the smallest entry of that matching: edges below it are added when they are needed, never before.
    """
    sources = np.arange(len(left))
    level = float(left.max()) if bottleneck else floor
    matching = MendedMatching(left >= level if bottleneck else left > floor)
    while True:
        if bottleneck:
            lowered = lower_until_perfect(matching, left, level)
            if lowered is None:
                return
            level = lowered
        elif matching.complete() is not None:
            return
        columns = matching.columns.copy()
        duration = _peel(left, columns, floor)
        rest = left[sources, columns]
        gone = np.flatnonzero((rest < level) if bottleneck else (rest == 0.0))
        matching.forbid(gone, columns[gone])
        yield columns, duration


def permutations_for(parts: Sequence[Part], share: float) -> int:
    """Return the number of parts, from the first on, that carry a share (0 to 1) of the volume."""
    carried = np.cumsum([duration for _, duration in parts])
    return int(np.searchsorted(carried, share * carried[-1] * (1.0 - BALANCE_TOLERANCE))) + 1


_TOLERANCE = 0.05
"""Share by which the bytes per time of Eclipse's configurations may fall short of the greatest; a choice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Choice:
    """Candidate for Eclipse's next configuration; lengths are in bytes of a circuit."""

    columns: np.ndarray
    """Destination of each source, shape [N]."""
    held: float
    """Length for which the configuration stands."""
    carried: float
    """Bytes of all its circuits in that time."""
    density: float
    """Bytes carried over its length and delay, dimensionless."""


def eclipse(
    demand: np.ndarray,
    *,
    delay_bytes: float,
    window_bytes: float = math.inf,
    packet_share: float = 0.0,
    tolerance: float = _TOLERANCE,
) -> list[Part]:
    """Return configurations chosen one by one, each for the most bytes per time, its delay included.

    Parameters
    ----------
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N].
    delay_bytes : float
        Bytes that a circuit would carry during one reconfiguration.
    window_bytes : float
        Bytes that a circuit would carry in all the time there is, delays included; unlimited by default.
    packet_share : float
        Rate of the packet switch over that of a circuit: circuits stop when packets have carried the rest.
    tolerance : float
        Share by which the bytes per time may fall short of the greatest; zero for the exact greedy choice.

    Notes
    -----
    Bojja Venkatakrishnan, Alizadeh and Viswanath, "Costly circuits, submodular schedules and approximate
    Caratheodory theorems", SIGMETRICS 2016: bytes served are submodular in configurations, so the greedy
    choice serves at least half of the bytes that any schedule serves within the window (up to `tolerance`
    less). The best length of a matching ends where one of its entries is served, or with the window; the best
    of these lengths is found by bisection with bounds (`_densest`), with few matchings instead of one for
    each entry.

    With a delay near zero ever smaller remainders would be worth a matching each. After N^2 - 2 N + 2
    configurations, which always suffice to serve a demand, the rest is decomposed by Birkhoff and von
    Neumann, the longest first.
    """
    left = np.array(demand, dtype=float)
    floor = largest_line(left) * BALANCE_TOLERANCE / max(len(left), 1)
    sources = np.arange(len(left))
    parts: list[Part] = []
    used, held = 0.0, math.inf
    most = len(left) ** 2 - 2 * len(left) + 2
    rest: Iterator[Part] = iter(())
    while left.max(initial=0.0) > floor and window_bytes - used > delay_bytes:
        if packet_share > 0.0 and largest_line(left) <= packet_share * used:
            break
        longest = min(window_bytes - used - delay_bytes, float(left.max()))
        if len(parts) < most:
            choice = _densest(left, delay_bytes, min(held, longest), longest, tolerance)
            columns, held = choice.columns, choice.held
        else:
            if len(parts) == most:
                rest = iter(sorted(birkhoff_von_neumann(stuffed(left)), key=lambda part: -part[1]))
            part = next(rest, None)
            if part is None:
                break
            columns, held = part[0], min(part[1], longest)
        parts.append((columns, held))
        used += held + delay_bytes
        unserved = left[sources, columns] - held
        left[sources, columns] = np.where(unserved > floor, unserved, 0.0)
    return parts


def _best_of_length(left: np.ndarray, held: float, delay: float) -> _Choice:
    """Return the matching that carries most when every circuit may carry up to `held` bytes."""
    weights = np.minimum(left, held)
    rows, columns = scipy.optimize.linear_sum_assignment(weights, maximize=True)
    carried = float(weights[rows, columns].sum())
    return _Choice(columns=columns, held=held, carried=carried, density=carried / (held + delay))


def _densest(left: np.ndarray, delay: float, guess: float, longest: float, tolerance: float) -> _Choice:
    """Return the matching and length of the most bytes per time, by best-first bisection over lengths.

    Candidate lengths are the entries of `left` and `longest`. Between lengths a < b the bytes W of the best
    matching obey ``W(h) <= W(b)`` and ``W(h) <= W(a) h / a``, so that bytes per time are at most ``W(b) / (h
    + delay)`` at the h where both meet. The interval with the highest such bound is halved first, until no
    bound beats the best found by more than `tolerance`. The search starts at `guess`, as the length of the
    configuration before is seldom far off.
    """
    entries = np.unique(left[(left > 0.0) & (left < longest)])
    lengths = np.append(entries, longest)
    first = min(int(np.searchsorted(lengths, guess)), len(lengths) - 1)
    tried = {
        index: _best_of_length(left, float(lengths[index]), delay) for index in {0, first, len(lengths) - 1}
    }
    best = max(tried.values(), key=attrgetter("density"))
    intervals: list[tuple[float, int, int]] = []

    def push(low: int, high: int) -> None:
        """Add an interval to the heap, by the negative of its bound."""
        short, long = tried[low], tried[high]
        meet = min(max(short.held * long.carried / short.carried, short.held), long.held)
        heapq.heappush(intervals, (-long.carried / (meet + delay), low, high))

    push(0, first)
    push(first, len(lengths) - 1)
    while intervals:
        negative_bound, low, high = heapq.heappop(intervals)
        if -negative_bound <= best.density * (1.0 + tolerance):
            break
        if high - low > 1:
            middle = (low + high) // 2
            tried[middle] = _best_of_length(left, float(lengths[middle]), delay)
            best = max(best, tried[middle], key=attrgetter("density"))
            push(low, middle)
            push(middle, high)
    return best


def double(demand: np.ndarray) -> list[Part]:
    """Return at most 2 N configurations that take at most twice the time of the busiest port.

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
    """Return configurations of long circuits first, until packets can carry the rest.

    Parameters
    ----------
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N].
    delay_bytes : float
        Bytes that a circuit would carry during one reconfiguration.
    packet_share : float
        Rate of the packet switch over that of a circuit; zero serves all by circuits.

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
    matching = MendedMatching(full >= threshold)
    while left.any() and largest_line(left) > packet_share * used:
        if matching.complete() is not None:
            if threshold <= floor:
                break
            matching.allow(*np.nonzero((full >= threshold / 2) & (full < threshold)))
            threshold /= 2
            continue
        columns = matching.columns.copy()
        rest = full[sources, columns]
        held = float(rest.min())
        rest = np.where(rest - held > floor, rest - held, 0.0)
        full[sources, columns] = rest
        served = left[sources, columns] - held
        left[sources, columns] = np.where(served > floor, served, 0.0)
        gone = np.flatnonzero(rest < threshold)
        matching.forbid(gone, columns[gone])
        parts.append((columns, held))
        used += held + delay_bytes
    return parts


def fewest(demand: np.ndarray) -> list[Part]:
    """Return as many configurations as the busiest port has peers, the fewest that touch every pair.

    Notes
    -----
    The decomposition of Liang et al., arXiv:2603.07373. Each matching covers every port that has as many
    peers left as there are configurations left; of these matchings the heaviest is taken, which puts entries
    of like size together. A linear programme then finds the least total length that serves all
    (`least_lengths`).
    """
    weights = checked(demand)
    pattern = weights > 0.0
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
    return list(zip(rounds, least_lengths(weights, rounds).tolist(), strict=True))


def _padded(weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return a matching whose circuits without demand are rematched to pairs that have some."""
    idle = np.flatnonzero(weights[np.arange(len(weights)), columns] == 0.0)
    if len(idle) < 2:
        return columns
    offered = columns[idle]
    rows, places = scipy.optimize.linear_sum_assignment(weights[np.ix_(idle, offered)], maximize=True)
    padded = columns.copy()
    padded[idle[rows]] = offered[places]
    return padded


def least_lengths(weights: np.ndarray, rounds: list[np.ndarray]) -> np.ndarray:
    """Return lengths [K] of least sum for K matchings, with which each pair's circuits carry its bytes.

    A pair in one matching only gives that matching's length a lower bound. Pairs in several matchings are the
    rows of a linear programme: the lengths of their matchings add up to at least the pair's bytes.

    Parameters
    ----------
    weights : numpy.ndarray
        Bytes from input i to output j, shape [N, N].
    rounds : list of numpy.ndarray
        Destination of each source, K arrays of shape [N].
    """
    if not rounds:
        return np.zeros(0)
    size, count = len(weights), len(rounds)
    pairs = (np.arange(size) * size + np.array(rounds)).ravel()  # i * N + j of each circuit
    round_of = np.repeat(np.arange(count), size)
    wanted = weights.ravel()
    once = np.bincount(pairs, minlength=size * size) == 1
    needed = once[pairs] & (wanted[pairs] > 0.0)
    least = np.zeros(count)
    np.maximum.at(least, round_of[needed], wanted[pairs[needed]])
    shared = np.unique(pairs[~once[pairs] & (wanted[pairs] > 0.0)])
    if not len(shared):
        return least
    is_shared = np.isin(pairs, shared)
    rows = np.searchsorted(shared, pairs[is_shared])
    cover = scipy.sparse.csr_array(
        (-np.ones(len(rows)), (rows, round_of[is_shared])), shape=(len(shared), count)
    )
    scale = float(wanted.max())
    solution = scipy.optimize.linprog(
        np.ones(count),
        A_ub=cover,
        b_ub=-wanted[shared] / scale,
        bounds=np.column_stack([least / scale, np.ones(count)]),
    )
    lengths = np.maximum(np.asarray(solution.x) * scale, least)
    missing = wanted[shared] + cover @ lengths
    return lengths * (1.0 + BALANCE_TOLERANCE) if missing.max() > 0.0 else lengths
