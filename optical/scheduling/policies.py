"""Schedules of a demand on one circuit switch, or spread over several, by policy, and the exact one."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

import numpy as np
import scipy

from optical.scheduling.birkhoff import (
    Matching,
    Part,
    birkhoff_von_neumann,
    double,
    eclipse,
    fewest,
    least_lengths,
    solstice,
)
from optical.scheduling.demand import checked, degree, largest_line, line_sums, stuffed
from optical.scheduling.schedule import CircuitSchedule, OcsBank, schedule_of
from simulator.errors import ParameterError

MOST_EXACT_PORTS = 6
"""Ports up to which the least makespan is proven; five take seconds, six with short delays minutes."""
MOST_POOLED_PORTS = 6
"""Ports up to which permutations of other policies are pooled: some 110 of six, a second or two."""
POOLED_NODES = 50
"""Nodes of the branch and bound over pooled permutations, a choice: what it finds by then is taken."""
POOLED_GAP = 1e-3
"""Relative gap within which a schedule of pooled permutations counts as their least."""
TIME_LIMIT_S = 900.0
"""Time after which the search for an exact schedule is given up."""
SOLVED = 1e-6
"""Share of the largest line to which the solver keeps its constraints, by which each part is lengthened."""
GAP = 1e-5
"""Relative gap within which a makespan counts as the least."""


def exact(demand: np.ndarray, *, delay_bytes: float) -> list[Part]:
    """Return the permutations of a schedule of least makespan, and the bytes that each may carry.

    Parameters
    ----------
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N], of `MOST_EXACT_PORTS` ports at most.
    delay_bytes : float
        Bytes that a circuit would carry in a reconfiguration, which stands before every configuration.

    Raises
    ------
    ParameterError
        If there are too many ports, or the search does not end in `TIME_LIMIT_S`.

    Notes
    -----
    For each number of configurations the least total length, by an integer programme (`_fewest_bytes`), from
    as many as a port has peers, which always suffice (König 1916), up to where the busiest line with so many
    delays takes as long as the best schedule found. Each number only has to beat the best before it.
    """
    if len(demand) > MOST_EXACT_PORTS:
        msg = f"an exact schedule is found for at most {MOST_EXACT_PORTS} ports; got {len(demand)}"
        raise ParameterError(msg)
    best: list[Part] = []
    least, until_s = math.inf, time.monotonic() + TIME_LIMIT_S
    count, line = degree(demand), largest_line(demand)
    while line > 0.0 and line + count * delay_bytes < least * (1.0 - GAP):
        left_s = max(0.0, until_s - time.monotonic())
        found = _in_slots(demand, count, least - count * delay_bytes, left_s)
        if found and _length(found, delay_bytes) < least:
            best, least = found, _length(found, delay_bytes)
        count += 1
    return best


def _in_slots(demand: np.ndarray, count: int, most: float, limit_s: float) -> list[Part]:
    """Return the schedule of so many configurations of least total length; nothing if none is below `most`.

    Notes
    -----
    In slot k stands permutation x_k for t_k bytes, of which y_kij <= min(t_k, d_ij x_kij) serve i to j. As a
    line of ports has one circuit in a slot, sums of y_k over a line stay below t_k too, and the relaxation is
    no looser than the busiest line. Slots are alike but for the entries of that line, which are given one
    each, and the others are in order of length: of all orders of a schedule one is left.
    """
    size, scale = len(demand), largest_line(demand)
    wanted = (demand / scale).ravel()
    cells, slots = size * size, scipy.sparse.eye_array(count)
    every = scipy.sparse.eye_array(cells)
    ones = np.ones((1, size))
    lines = scipy.sparse.vstack(
        [scipy.sparse.kron(np.eye(size), ones), scipy.sparse.kron(ones, np.eye(size))]
    )
    within, together = scipy.sparse.kron(slots, lines), scipy.sparse.kron(np.ones((1, count)), every)
    lengths = scipy.sparse.kron(slots, np.ones((2 * size, 1)))
    sums = line_sums(demand)
    busiest = int(sums.argmax())
    peers = np.flatnonzero(demand[busiest] if busiest < size else demand[:, busiest - size])
    given = peers + size * busiest if busiest < size else peers * size + busiest - size
    falls = (np.eye(count) - np.eye(count, k=1))[len(peers) : count - 1]
    rows = [  # of x, y and t
        (within, None, None, 1.0, 1.0),
        (None, within, -lengths, -np.inf, 0.0),
        (
            -scipy.sparse.kron(slots, scipy.sparse.diags_array(wanted)),
            scipy.sparse.eye_array(count * cells),
            None,
            -np.inf,
            0.0,
        ),
        (None, together, None, wanted, np.inf),
        (together, None, None, (wanted > 0.0).astype(float), np.inf),
        (None, None, np.ones((1, count)), 0.0, min(most / scale, count)),
        *([(None, None, falls, 0.0, np.inf)] if len(falls) else []),
    ]
    widths = (count * cells, count * cells, count)
    least = np.zeros(sum(widths))
    least[np.arange(len(given)) * cells + given] = 1.0
    found = scipy.optimize.milp(
        np.repeat([0.0, 0.0, 1.0], widths),
        integrality=np.repeat([1, 0, 0], widths),
        bounds=scipy.optimize.Bounds(least, 1.0),
        constraints=[
            scipy.optimize.LinearConstraint(_joined(blocks, widths), low, high) for *blocks, low, high in rows
        ],
        options={"mip_rel_gap": GAP, "time_limit": limit_s},
    )
    if found.status == OUT_OF_TIME:
        msg = f"no exact schedule of {size} ports in {TIME_LIMIT_S:g} s; try another policy"
        raise ParameterError(msg)
    if found.x is None:
        return []
    placed = found.x[: count * cells].reshape(count, size, size).argmax(axis=2)
    return list(zip(placed, least_lengths(demand, list(placed)).tolist(), strict=True))


OUT_OF_TIME = 1
"""Status of scipy's solver that reached a limit."""


def _joined(
    blocks: Sequence[scipy.sparse.sparray | np.ndarray | None], widths: tuple[int, ...]
) -> scipy.sparse.sparray:
    """Return blocks of constraints side by side, zero where there is none."""
    height = next(one.shape[0] for one in blocks if one is not None)
    return scipy.sparse.hstack(
        [
            scipy.sparse.coo_array((height, width)) if one is None else one
            for one, width in zip(blocks, widths, strict=True)
        ]
    ).tocsr()


def pooled(demand: np.ndarray, bank: OcsBank) -> list[Part]:
    """Return the best that can be made of the permutations of all other heuristics together.

    Parameters
    ----------
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N].
    bank : OcsBank
        One switch without packets.

    Notes
    -----
    A choice of these permutations and their lengths, by an integer programme, beside the least of as few
    configurations as a port has peers: never worse than the best heuristic, whose own schedule is taken where
    the search stops above it.
    """
    delay_bytes = bank.reconfiguration_s * bank.rate_bytes_per_s
    if not demand.any():
        return []
    tried = [parts_of(demand, one, bank) for one in SchedulePolicy if one not in LIMITS]
    tried.append(_in_slots(demand, degree(demand), math.inf, TIME_LIMIT_S))
    best = min(tried, key=lambda parts: _length(parts, delay_bytes))
    every = np.unique([columns for parts in tried for columns, _ in parts], axis=0)
    found = _least_over(demand, every, delay_bytes, {"mip_rel_gap": POOLED_GAP, "node_limit": POOLED_NODES})
    return best if found is None else min(best, found, key=lambda parts: _length(parts, delay_bytes))


def _length(parts: list[Part], delay_bytes: float) -> float:
    """Return the makespan of permutations one after the other, in bytes of a circuit."""
    return sum(held for _, held in parts) + delay_bytes * len(parts)


def _least_over(
    demand: np.ndarray, every: np.ndarray, delay_bytes: float, options: dict[str, float]
) -> list[Part] | None:
    """Return the schedule of least makespan that uses some of P permutations, shape [P, N], or None.

    Each permutation p is used (z = 1) for t bytes of a circuit: least sum of t + delay z, sum of t over the
    permutations with i to j at least the demand, and t at most the largest entry that p serves times z. Where
    the solver stops at a limit of nodes, the best schedule until then is taken.
    """
    scale, size = largest_line(demand), len(demand)
    wanted, sources = demand / scale, np.arange(size)
    most = wanted[sources, every].max(axis=1)
    every, most = every[most > 0.0], most[most > 0.0]
    count = len(every)
    pairs = (sources * size + every).ravel()
    serves = scipy.sparse.coo_array(
        (np.ones(pairs.size), (pairs, np.repeat(np.arange(count), size))), shape=(size * size, count)
    )
    none = scipy.sparse.coo_array((size * size, count))
    used = [scipy.sparse.eye_array(count), -scipy.sparse.diags_array(most)]
    peers = max(int((wanted > 0.0).sum(axis=axis).max()) for axis in (0, 1))
    found = scipy.optimize.milp(
        np.concatenate([np.ones(count), np.full(count, delay_bytes / scale)]),
        integrality=np.repeat([0, 1], count),
        bounds=scipy.optimize.Bounds(0.0, np.concatenate([most, np.ones(count)])),
        constraints=[
            scipy.optimize.LinearConstraint(
                scipy.sparse.hstack([serves, none]).tocsr(), wanted.ravel(), np.inf
            ),
            scipy.optimize.LinearConstraint(scipy.sparse.hstack(used).tocsr(), -np.inf, 0.0),
            scipy.optimize.LinearConstraint(np.repeat([0.0, 1.0], count), peers, np.inf),
        ],
        options=options,
    )
    if found.x is None:
        return None
    held = found.x[:count]
    used_ones = np.flatnonzero(held > SOLVED)
    return [(every[place], float(held[place] + SOLVED) * scale) for place in used_ones.tolist()]


def spread(schedule: CircuitSchedule, switches: int) -> CircuitSchedule:
    """Return the same configurations on several switches at once.

    Parameters
    ----------
    schedule : CircuitSchedule
        On one switch.
    switches : int
        Circuit switches side by side, each with a circuit of every port.

    Notes
    -----
    Liang et al., arXiv:2603.07373, steps "schedule" and "equalize": the longest configuration goes to the
    least loaded switch (Graham 1969), its load being lengths and delays; then, while the loads differ by more
    than the delay that a split costs, half of the difference moves from the most to the least loaded.
    """
    reconfiguration_s, count = schedule.reconfiguration_s, schedule.configurations
    held: list[list[tuple[int, float]]] = [[] for _ in range(switches)]
    loads = [(0.0, switch) for switch in range(switches)]
    for index in np.argsort(-schedule.durations_s, kind="stable").tolist():
        load, switch = heapq.heappop(loads)
        length_s = float(schedule.durations_s[index])
        held[switch].append((index, length_s))
        heapq.heappush(loads, (load + length_s + reconfiguration_s, switch))
    equalised = _equalised(
        held, np.array([load for load, _ in sorted(loads, key=lambda x: x[1])]), reconfiguration_s
    )
    rows = [(index, length_s, switch) for switch, mine in enumerate(equalised) for index, length_s in mine]
    order = [index for index, _, _ in rows]
    return CircuitSchedule(
        policy=schedule.policy,
        demand=schedule.demand,
        permutations=schedule.permutations[order] if count else schedule.permutations,
        durations_s=np.array([length_s for _, length_s, _ in rows], dtype=float),
        switch_of=np.array([switch for _, _, switch in rows], dtype=np.int64),
        switches=switches,
        rate_bytes_per_s=schedule.rate_bytes_per_s,
        reconfiguration_s=reconfiguration_s,
        packet_rate_bytes_per_s=schedule.packet_rate_bytes_per_s,
    )


def _equalised(
    held: list[list[tuple[int, float]]], loads: np.ndarray, reconfiguration_s: float
) -> list[list[tuple[int, float]]]:
    """Return configurations and lengths of each switch after moving load from the fullest to the emptiest."""
    held = [list(mine) for mine in held]
    most = 4 * sum(len(mine) for mine in held) + 4 * len(held)
    for _ in range(most):
        fullest, emptiest = int(loads.argmax()), int(loads.argmin())
        gap_s = float(loads[fullest] - loads[emptiest])
        if gap_s <= reconfiguration_s or gap_s <= 1e-12 * float(loads[fullest]) or not held[fullest]:
            break
        place = max(range(len(held[fullest])), key=lambda one: held[fullest][one][1])
        index, length_s = held[fullest][place]
        moved_s = (gap_s - reconfiguration_s) / 2
        if moved_s >= length_s:
            moved_s = length_s
            held[fullest].pop(place)
            loads[fullest] -= length_s + reconfiguration_s
        else:
            held[fullest][place] = (index, length_s - moved_s)
            loads[fullest] -= moved_s
        held[emptiest].append((index, moved_s))
        loads[emptiest] += moved_s + reconfiguration_s
    return held


class SchedulePolicy(StrEnum):
    """Policy by which configurations and their lengths are chosen."""

    ARBITRARY = "arbitrary"
    """Birkhoff-von Neumann with any perfect matching."""
    HUNGARIAN = "hungarian"
    """Birkhoff-von Neumann with the matching of greatest total."""
    BOTTLENECK = "bottleneck"
    """Birkhoff-von Neumann with the matching whose smallest entry is greatest."""
    DOUBLE = "double"
    """At most two configurations for each port, at most twice the time (Towles and Dally 2003)."""
    SOLSTICE = "solstice"
    """Long circuits first, by halving thresholds (CoNEXT 2015)."""
    ECLIPSE = "eclipse"
    """Most bytes per time including the delay (SIGMETRICS 2016)."""
    SPECTRA = "spectra"
    """As few configurations as a port has peers (arXiv:2603.07373)."""
    POOLED = "pooled"
    """Best of the permutations of all of these together; six ports at most on one switch without packets."""
    EXACT = "exact"
    """Least makespan, by an integer programme; a few ports on one switch without packets."""


BIRKHOFF: Mapping[SchedulePolicy, Matching] = MappingProxyType(
    {
        SchedulePolicy.ARBITRARY: Matching.ARBITRARY,
        SchedulePolicy.HUNGARIAN: Matching.HUNGARIAN,
        SchedulePolicy.BOTTLENECK: Matching.BOTTLENECK,
    }
)
"""Matching of each policy that decomposes the demand whole."""


LIMITS: Mapping[SchedulePolicy, int] = MappingProxyType(
    {SchedulePolicy.POOLED: MOST_POOLED_PORTS, SchedulePolicy.EXACT: MOST_EXACT_PORTS}
)
"""Most ports of policies that solve an integer programme, on one switch without packets."""


def applies(policy: SchedulePolicy, ports: int, bank: OcsBank) -> bool:
    """Return whether a policy can schedule a demand of so many ports: all without `LIMITS` always can."""
    alone = bank.switches == 1 and bank.packet_rate_bytes_per_s == 0.0
    return policy not in LIMITS or (ports <= LIMITS[policy] and alone)


def schedule(demand: np.ndarray, policy: SchedulePolicy, bank: OcsBank) -> CircuitSchedule:
    """Return a checked schedule of a demand.

    Parameters
    ----------
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N].
    policy : SchedulePolicy
        How configurations are chosen. Solstice and Eclipse leave the rest to a packet switch if there is one.
    bank : OcsBank
        Switches. With several, configurations are spread over them and the loads made equal (`spread`).

    Raises
    ------
    ParameterError
        If the demand is not square, not finite or negative, or too large for the policy (`applies`).
    """
    left = checked(demand)
    if not applies(policy, len(left), bank):
        msg = (
            f"policy '{policy}' is for at most {LIMITS[policy]} ports on one switch without packets; got "
            f"{len(left)} ports, {bank.switches} planes and packets of {bank.packet_rate_bytes_per_s:g} B/s; "
            "try another policy"
        )
        raise ParameterError(msg)
    one = schedule_of(
        parts_of(left, policy, bank),
        policy=str(policy),
        demand=left,
        rate_bytes_per_s=bank.rate_bytes_per_s,
        reconfiguration_s=bank.reconfiguration_s,
        packet_rate_bytes_per_s=bank.packet_rate_bytes_per_s,
    )
    return (spread(one, bank.switches) if bank.switches > 1 else one).validated()


def parts_of(demand: np.ndarray, policy: SchedulePolicy, bank: OcsBank) -> list[Part]:
    """Return permutations and the bytes that each circuit of them may carry."""
    delay_bytes = bank.reconfiguration_s * bank.rate_bytes_per_s
    share = bank.packet_rate_bytes_per_s / (bank.rate_bytes_per_s * bank.switches)
    match policy:
        case SchedulePolicy.DOUBLE:
            return double(demand)
        case SchedulePolicy.SOLSTICE:
            return solstice(demand, delay_bytes=delay_bytes, packet_share=share)
        case SchedulePolicy.ECLIPSE:
            return eclipse(demand, delay_bytes=delay_bytes, packet_share=share)
        case SchedulePolicy.SPECTRA:
            return fewest(demand)
        case SchedulePolicy.POOLED | SchedulePolicy.EXACT:
            alone = policy is SchedulePolicy.EXACT
            return exact(demand, delay_bytes=delay_bytes) if alone else pooled(demand, bank)
    return birkhoff_von_neumann(stuffed(demand), BIRKHOFF[policy])
