"""Schedules of circuits for a demand, and plans of lanes for the phases of a training step.

`schedule` serves a demand between ports on a bank of circuit switches: configurations one after the other by
a `SchedulePolicy`, spread over the switches, with a packet switch for the residue. A `CircuitSchedule` knows
its makespan and the lower bound of any schedule.

`plan_phases` shares the lanes of a port among axes of parallelism, phase by phase of a step, and says before
which phases moving circuits pays.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Annotated

import numpy as np
import scipy

from optical.scheduling.birkhoff import (
    BALANCE_TOLERANCE,
    Matching,
    Part,
    birkhoff_von_neumann,
    checked,
    degree,
    double,
    duty,
    eclipse,
    exposed_delay,
    fewest,
    largest_line,
    least_lengths,
    line_sums,
    makespan_bound,
    solstice,
    stuffed,
)
from simulator.errors import (
    Bounds,
    Checked,
    Count,
    ParameterError,
    Positive,
    check_member,
    check_positive,
    check_range,
    check_whole,
)

DARK = -1
"""Destination of a source that has no circuit in a configuration."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CircuitSchedule:
    """Configurations of circuit switches one after the other; treat as immutable.

    Notes
    -----
    Before each of its configurations, also the first, a switch reconfigures and carries nothing. Then each
    circuit carries bytes that are left of its pair. A packet switch, if there is one, carries the residue,
    from the start.
    """

    policy: str = ""
    """Name of the policy that made the schedule."""
    demand: np.ndarray
    """Bytes from input i to output j, shape [N, N]."""
    permutations: np.ndarray
    """Output of each input in each configuration, `DARK` for none, shape [K, N]."""
    durations_s: np.ndarray
    """Time for which each configuration carries, shape [K]."""
    switch_of: np.ndarray
    """Switch of each configuration, shape [K]; a switch keeps their order."""
    switches: int = 1
    """Circuit switches side by side."""
    rate_bytes_per_s: float
    """Rate of one circuit."""
    reconfiguration_s: float
    """Reconfiguration time before each configuration."""
    packet_rate_bytes_per_s: float = 0.0
    """Rate of each port into the packet switch; zero for none."""

    def __post_init__(self) -> None:
        check_positive(self, "rate_bytes_per_s")
        check_range(self, "reconfiguration_s", "packet_rate_bytes_per_s")
        check_range(self, "switches", low=1)
        for name in ("demand", "permutations", "durations_s", "switch_of"):
            getattr(self, name).flags.writeable = False

    @property
    def ports(self) -> int:
        """Inputs, and as many outputs."""
        return len(self.demand)

    @property
    def configurations(self) -> int:
        """Configurations of all switches."""
        return len(self.durations_s)

    @cached_property
    def circuit_time_s(self) -> np.ndarray:
        """Time in which each pair has a circuit, shape [N, N], s."""
        time_s = np.zeros(self.demand.shape)
        configuration, source = np.nonzero(self.permutations != DARK)
        destination = self.permutations[configuration, source]
        np.add.at(time_s, (source, destination), self.durations_s[configuration])
        return time_s

    @cached_property
    def residue(self) -> np.ndarray:
        """Bytes of each pair that circuits do not carry, shape [N, N]; rounding errors count as zero."""
        left = np.clip(self.demand - self.circuit_time_s * self.rate_bytes_per_s, 0.0, None)
        left[left <= BALANCE_TOLERANCE * largest_line(self.demand)] = 0.0
        return left

    @property
    def residue_bytes(self) -> float:
        """Bytes of all pairs that circuits do not carry."""
        return float(self.residue.sum())

    @cached_property
    def ends_s(self) -> np.ndarray:
        """End of each configuration, shape [K], s."""
        ends = np.zeros(self.configurations)
        for switch in range(self.switches):
            on_switch = self.switch_of == switch
            ends[on_switch] = np.cumsum(self.durations_s[on_switch] + self.reconfiguration_s)
        return ends

    @property
    def starts_s(self) -> np.ndarray:
        """Time at which the circuits of each configuration begin to carry, shape [K], s."""
        return self.ends_s - self.durations_s

    @property
    def circuit_makespan_s(self) -> float:
        """Time of the busiest switch: the sum of its durations and of one delay for each."""
        return float(self.ends_s.max(initial=0.0))

    @cached_property
    def ports_alone_s(self) -> float:
        """Makespan of the same configurations if a port reconfigures without stopping the others, s.

        A circuit is set up as soon as both its ports have finished their circuits before; one that stands
        already needs no reconfiguration. The order of the configurations stays (not-all-stop; Huang et al.,
        "Sunflow", CoNEXT 2016).
        """
        free_s = np.zeros((2, self.switches, self.ports))  # of inputs, and of outputs
        peers = np.full(free_s.shape, DARK)
        left_s = (self.demand - self.residue) / self.rate_bytes_per_s
        for configuration in np.argsort(self.starts_s, kind="stable"):
            switch, row = self.switch_of[configuration], self.permutations[configuration]
            inputs = np.flatnonzero(row != DARK)
            held_s = np.minimum(self.durations_s[configuration], left_s[inputs, row[inputs]])
            inputs, held_s = inputs[held_s > 0.0], held_s[held_s > 0.0]
            outputs = row[inputs]
            stands = (peers[0, switch, inputs] == outputs) & (peers[1, switch, outputs] == inputs)
            begins_s = np.maximum(free_s[0, switch, inputs], free_s[1, switch, outputs])
            ends_s = begins_s + np.where(stands, 0.0, self.reconfiguration_s) + held_s
            free_s[0, switch, inputs] = free_s[1, switch, outputs] = ends_s
            peers[0, switch, inputs], peers[1, switch, outputs] = outputs, inputs
            left_s[inputs, outputs] -= held_s
        return float(free_s.max(initial=0.0))

    @property
    def packet_s(self) -> float:
        """Time of the residue through the packet switch; infinite where there is a residue and no switch."""
        if not self.residue.any():
            return 0.0
        if self.packet_rate_bytes_per_s == 0.0:
            return float("inf")
        return largest_line(self.residue) / self.packet_rate_bytes_per_s

    @property
    def makespan_s(self) -> float:
        """Time until circuits and packets have carried all."""
        return max(self.circuit_makespan_s, self.packet_s)

    @property
    def duty(self) -> float:
        """Share of the switches' busy time in which they carry, 0 to 1."""
        held_s = float(self.durations_s.sum())
        return duty(held_s=held_s, reconfiguration_s=self.configurations * self.reconfiguration_s)

    @cached_property
    def bound_s(self) -> float:
        """Lower bound on the makespan of any schedule of this demand on these switches."""
        return makespan_bound(
            self.demand,
            rate_bytes_per_s=self.rate_bytes_per_s,
            reconfiguration_s=self.reconfiguration_s,
            switches=self.switches,
            packet_rate_bytes_per_s=self.packet_rate_bytes_per_s,
        )

    @property
    def over_bound(self) -> float:
        """Makespan over bound, at least one."""
        return self.makespan_s / self.bound_s if self.bound_s > 0.0 else 1.0


MOST_SWITCHES = 1024
"""Most switches of a bank; TPU v4 has 48 (Jouppi et al., arXiv:2304.01433). Dimensionless."""


@dataclass(frozen=True, kw_only=True)
class OcsBank(Checked):
    """Bank of optical circuit switches side by side, and a packet switch if there is one."""

    rate_bytes_per_s: Positive
    """Rate of one circuit."""
    reconfiguration_s: float
    """Reconfiguration time before each configuration."""
    switches: Annotated[int, Bounds(low=1, high=MOST_SWITCHES)] = 1
    """Circuit switches side by side, each with a circuit of every port."""
    packet_rate_bytes_per_s: float = 0.0
    """Rate of each port into a packet switch for the rest; zero for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "switches")


@dataclass(frozen=True, kw_only=True)
class Lanes(Checked):
    """Lanes of a port, which axes of parallelism share."""

    count: Count
    """Lanes of a port."""
    rate_bytes_per_s: Positive
    """Rate of one lane."""
    reconfiguration_s: float
    """Reconfiguration time of a move."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "count")


MOST_CHOICES = 2000
"""Most ways to share lanes among axes that `plan_phases` accepts; a choice."""


@dataclass(frozen=True, kw_only=True)
class TrafficPhase(Checked):
    """Part of a step in which only one axis of parallelism communicates."""

    axis: str
    """Axis of parallelism."""
    bytes_per_pair: float
    """Bytes from a port to each of its peers."""
    peers: Count = 1
    """Peers of a port; with fewer lanes than peers, circuits serve some of them after the others, in
    turns."""
    exchanges: Count = 1
    """Exchanges with all peers, one after the other; where peers take turns, each exchange moves circuits."""
    idle_s: float = 0.0
    """Time before the phase in which the network is idle, for instance because accelerators compute."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "peers", "exchanges")


@dataclass(frozen=True, kw_only=True)
class PhasePlan:
    """Lanes of every axis in every phase, and the times of traffic and moves; tuples are by phase."""

    axes: tuple[str, ...]
    """Axes of parallelism."""
    lanes: tuple[tuple[int, ...], ...]
    """Lanes of each axis, by phase."""
    moves: tuple[bool, ...]
    """Whether circuits move before the phase."""
    transfer_s: tuple[float, ...]
    """Time of the phase's traffic."""
    exposed_s: tuple[float, ...]
    """Reconfiguration time of the move before the phase, less the idle time that hides it."""
    turns: tuple[int, ...]
    """Moves within the phase, where its peers take turns on its lanes."""
    turning_s: tuple[float, ...]
    """Reconfiguration time of these moves; idle time before the phase hides part of the first."""
    static_s: float
    """Least time of all transfers if circuits never move; infinite if lanes are too few for that."""
    bound_s: float
    """Lower bound: time with all lanes for every phase, and no reconfiguration."""

    @property
    def time_s(self) -> float:
        """Time of all transfers and exposed delays, without the idle time."""
        return sum(self.transfer_s) + sum(self.exposed_s) + sum(self.turning_s)

    @property
    def over_bound(self) -> float:
        """Time over bound, at least one."""
        return self.time_s / self.bound_s if self.bound_s > 0.0 else 1.0


def plan_phases(phases: Sequence[TrafficPhase], lanes: Lanes) -> PhasePlan:
    """Return the fastest choice of moves and lanes for the phases of a step, of which many follow each other.

    Parameters
    ----------
    phases : sequence of TrafficPhase
        Phases in order.
    lanes : Lanes
        Lanes of a port, their rate and the reconfiguration time of a move.

    Raises
    ------
    ParameterError
        If there is no phase, or there are more than `MOST_CHOICES` ways to share the lanes.

    Notes
    -----
    Opus (arXiv:2507.08119 and 2602.12521) moves circuits of rails between phases of parallelism; a move costs
    ``max(0, reconfiguration - idle)``. A dynamic programme over phases, whose state is the lanes of each
    axis, finds the least total time (`_fastest_path`).

    With g lanes for p > g peers an exchange takes ceil(p / g) turns, dealt as by
    `simulator.collectives.algorithms.in_turns`, and each turn moves circuits (Birkhoff-von Neumann: an even
    exchange is p permutations, of which g stand at once). Only the first of a phase's moves has idle time to
    hide in. Computation between two exchanges of a phase hides nothing here, so that those times are upper
    bounds.
    """
    if not phases:
        msg = "a plan needs at least one phase of traffic"
        raise ParameterError(msg)
    axes = tuple(dict.fromkeys(phase.axis for phase in phases))
    choices = _lane_choices(lanes.count, len(axes))
    pairs = [(phase, choices[:, axes.index(phase.axis)]) for phase in phases]
    transfer_s = np.array([_transfer_s(phase, own_lanes, lanes) for phase, own_lanes in pairs])
    turns = np.array([_turns(phase, own_lanes) for phase, own_lanes in pairs])
    exposed_s = np.array(
        [exposed_delay(reconfiguration_s=lanes.reconfiguration_s, idle_s=phase.idle_s) for phase in phases]
    )
    turning_s = np.where(turns > 0, (turns - 1) * lanes.reconfiguration_s + exposed_s[:, None], 0.0)
    times_s = transfer_s + turning_s
    # A phase with turns moves circuits anyhow: its first turn is the move to it, and paid once.
    path, moves = _fastest_path(times_s, np.where(turns > 0, 0.0, exposed_s[:, None]))
    chosen = np.arange(len(phases)), path
    moved = np.array(moves) & (turns[chosen] == 0)
    return PhasePlan(
        axes=axes,
        lanes=tuple(tuple(choices[choice].tolist()) for choice in path),
        moves=tuple(moved.tolist()),
        transfer_s=tuple(transfer_s[chosen].tolist()),
        exposed_s=tuple(np.where(moved, exposed_s, 0.0).tolist()),
        turns=tuple(turns[chosen].tolist()),
        turning_s=tuple(turning_s[chosen].tolist()),
        static_s=float(np.where(turns > 0, np.inf, transfer_s).sum(axis=0).min()),
        bound_s=float(transfer_s.min(axis=1).sum()),
    )


def _lane_choices(lanes: int, axes: int) -> np.ndarray:
    """Return every way to share all lanes among axes, lanes of each, shape [choices, axes]."""
    count = math.comb(lanes + axes - 1, axes - 1)
    if count > MOST_CHOICES:
        msg = (
            f"{lanes} lanes can be shared among {axes} axes in {count} ways, more than {MOST_CHOICES}; "
            "take bundles of lanes for lanes"
        )
        raise ParameterError(msg)
    cuts = np.array(list(itertools.combinations(range(lanes + axes - 1), axes - 1)), dtype=np.int64)
    cuts = cuts.reshape(count, axes - 1)
    ends = np.concatenate([np.full((count, 1), -1), cuts, np.full((count, 1), lanes + axes - 1)], axis=1)
    return np.diff(ends, axis=1) - 1


def _transfer_s(phase: TrafficPhase, own_lanes: np.ndarray, lanes: Lanes) -> np.ndarray:
    """Return the time of a phase's traffic by the lanes of its axis, [choices], s; infinite without a lane.

    In each round some peers are served, each by an equal number of lanes: all peers in one round if lanes
    suffice, else in as few and as even rounds as possible.
    """
    used_lanes = np.maximum(own_lanes, 1)
    rounds = -(-phase.peers // used_lanes)
    most, left = -(-phase.peers // rounds), phase.peers % rounds
    full = np.where(left > 0, left, rounds)  # rounds of `most` peers; the others have one less
    time_s = full / (used_lanes // most)
    time_s = time_s + (rounds - full) / (used_lanes // np.maximum(most - 1, 1))
    return np.where(own_lanes > 0, time_s * phase.bytes_per_pair / lanes.rate_bytes_per_s, np.inf)


def _turns(phase: TrafficPhase, own_lanes: np.ndarray) -> np.ndarray:
    """Return the moves within a phase by the lanes of its axis, [choices]; none if each peer has a lane."""
    rounds = -(-phase.peers // np.maximum(own_lanes, 1))
    return np.where((own_lanes > 0) & (rounds > 1), rounds * phase.exchanges, 0)


def _fastest_path(times_s: np.ndarray, exposed_s: np.ndarray) -> tuple[list[int], list[bool]]:
    """Return the choice of each phase, and whether circuits move to it, of the least total time.

    Dynamic programming (Bellman 1957): ``reached[s, c]`` is the least time up to a phase from choice s before
    the first phase to choice c after it. A phase keeps the choice before it, or moves to any from the best
    one. The last choice is the one before the first phase.

    Parameters
    ----------
    times_s, exposed_s : numpy.ndarray
        Time of each phase under each choice, and of a move to it, shape [phases, choices].
    """
    count, choices = times_s.shape
    reached = np.full((choices, choices), np.inf)
    np.fill_diagonal(reached, 0.0)
    moved = np.zeros((count, choices, choices), dtype=bool)
    origin = np.zeros((count, choices), dtype=np.int64)
    for phase in range(count):
        origin[phase] = reached.argmin(axis=1)
        by_move = reached.min(axis=1, keepdims=True) + exposed_s[phase]
        moved[phase] = by_move < reached
        reached = np.where(moved[phase], by_move, reached) + times_s[phase]
    start = choice = int(np.diag(reached).argmin())
    path, moves = [], []
    for phase in range(count - 1, -1, -1):
        path.append(choice)
        moves.append(bool(moved[phase, start, choice]))
        if moves[-1]:
            choice = int(origin[phase, start])
    return path[::-1], moves[::-1]


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
    For each number of configurations an integer programme finds the least total length (`_least_of_slots`).
    Numbers go from the most peers of a port, which always suffice (König 1916), up to where the busiest line
    and so many delays alone take as long as the best schedule found. Each number only has to beat the best
    before it.
    """
    if len(demand) > MOST_EXACT_PORTS:
        msg = f"an exact schedule is found for at most {MOST_EXACT_PORTS} ports; got {len(demand)}"
        raise ParameterError(msg)
    best: list[Part] = []
    least, until_s = math.inf, time.monotonic() + TIME_LIMIT_S
    count, line = degree(demand), largest_line(demand)
    while line > 0.0 and line + count * delay_bytes < least * (1.0 - GAP):
        left_s = max(0.0, until_s - time.monotonic())
        parts = _least_of_slots(demand, count, least - count * delay_bytes, left_s)
        if parts and _length(parts, delay_bytes) < least:
            best, least = parts, _length(parts, delay_bytes)
        count += 1
    return best


def _least_of_slots(demand: np.ndarray, count: int, most: float, limit_s: float) -> list[Part]:
    """Return the schedule of `count` configurations of least total length, empty if that is above `most`.

    Notes
    -----
    Mixed-integer programme with, for each slot k: the permutation x_kij in {0, 1}, the bytes y_kij that it
    carries from i to j, and its length t_k in bytes of a circuit; everything over the largest line. Minimise
    ``sum_k t_k`` with

    - ``sum_i x_kij = sum_j x_kij = 1``,
    - ``sum_i y_kij <= t_k`` and ``sum_j y_kij <= t_k``, as a port has one circuit in a slot; so the
      relaxation is no looser than the busiest line,
    - ``y_kij <= d_ij x_kij`` and ``sum_k y_kij >= d_ij``,
    - every pair with demand in at least one slot, and ``sum_k t_k <= most``.

    Slots are interchangeable. To leave one order of each schedule, the entries of the busiest line are given
    the first slots, one each, and the others fall in length.
    """
    size, scale = len(demand), largest_line(demand)
    wanted = (demand / scale).ravel()
    cells, slots = size * size, scipy.sparse.eye_array(count)
    ones = np.ones((1, size))
    lines = scipy.sparse.vstack(
        [scipy.sparse.kron(np.eye(size), ones), scipy.sparse.kron(ones, np.eye(size))]
    )
    by_line = scipy.sparse.kron(slots, lines)
    over_slots = scipy.sparse.kron(np.ones((1, count)), scipy.sparse.eye_array(cells))
    lengths = scipy.sparse.kron(slots, np.ones((2 * size, 1)))
    served = -scipy.sparse.kron(slots, scipy.sparse.diags_array(wanted))
    busiest = int(line_sums(demand).argmax())
    peers = np.flatnonzero(demand[busiest] if busiest < size else demand[:, busiest - size])
    fixed = peers + size * busiest if busiest < size else peers * size + busiest - size
    falls = (np.eye(count) - np.eye(count, k=1))[len(peers) : count - 1]
    rows = [  # blocks of x, y and t, least and most
        (by_line, None, None, 1.0, 1.0),
        (None, by_line, -lengths, -np.inf, 0.0),
        (served, scipy.sparse.eye_array(count * cells), None, -np.inf, 0.0),
        (None, over_slots, None, wanted, np.inf),
        (over_slots, None, None, (wanted > 0.0).astype(float), np.inf),
        (None, None, np.ones((1, count)), 0.0, min(most / scale, count)),
        *([(None, None, falls, 0.0, np.inf)] if len(falls) else []),
    ]
    widths = (count * cells, count * cells, count)
    least = np.zeros(sum(widths))
    least[np.arange(len(fixed)) * cells + fixed] = 1.0
    solution = scipy.optimize.milp(
        np.repeat([0.0, 0.0, 1.0], widths),
        integrality=np.repeat([1, 0, 0], widths),
        bounds=scipy.optimize.Bounds(least, 1.0),
        constraints=[
            scipy.optimize.LinearConstraint(_side_by_side(blocks, widths), low, high)
            for *blocks, low, high in rows
        ],
        options={"mip_rel_gap": GAP, "time_limit": limit_s},
    )
    if solution.status == OUT_OF_TIME:
        msg = f"no exact schedule of {size} ports in {TIME_LIMIT_S:g} s; try another policy"
        raise ParameterError(msg)
    if solution.x is None:
        return []
    permutations = solution.x[: count * cells].reshape(count, size, size).argmax(axis=2)
    return list(zip(permutations, least_lengths(demand, list(permutations)).tolist(), strict=True))


OUT_OF_TIME = 1
"""Status of scipy's solver that reached a limit."""


def _side_by_side(
    blocks: Sequence[scipy.sparse.sparray | np.ndarray | None], widths: tuple[int, ...]
) -> scipy.sparse.sparray:
    """Return blocks of a constraint matrix side by side; None is a block of zeros."""
    height = next(block.shape[0] for block in blocks if block is not None)
    return scipy.sparse.hstack(
        [
            scipy.sparse.coo_array((height, width)) if block is None else block
            for block, width in zip(blocks, widths, strict=True)
        ]
    ).tocsr()


def pooled(demand: np.ndarray, bank: OcsBank) -> list[Part]:
    """Return the best schedule found that uses permutations of the other heuristics.

    Parameters
    ----------
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N].
    bank : OcsBank
        One switch without packets.

    Notes
    -----
    An integer programme chooses permutations, and their lengths, from those of all other heuristics and of
    the best schedule with as few configurations as a port has peers (`_least_over`). Never worse than the
    best heuristic, whose own schedule is taken where the search stops above it.
    """
    delay_bytes = bank.reconfiguration_s * bank.rate_bytes_per_s
    if not demand.any():
        return []
    tried = [parts_of(demand, policy, bank) for policy in SchedulePolicy if policy not in LIMITS]
    tried.append(_least_of_slots(demand, degree(demand), math.inf, TIME_LIMIT_S))
    best = min(tried, key=lambda parts: _length(parts, delay_bytes))
    pool = np.unique([columns for parts in tried for columns, _ in parts], axis=0)
    chosen = _least_over(demand, pool, delay_bytes, {"mip_rel_gap": POOLED_GAP, "node_limit": POOLED_NODES})
    return best if chosen is None else min(best, chosen, key=lambda parts: _length(parts, delay_bytes))


def _length(parts: list[Part], delay_bytes: float) -> float:
    """Return the makespan of permutations one after the other, in bytes of a circuit."""
    return sum(held for _, held in parts) + delay_bytes * len(parts)


def _least_over(
    demand: np.ndarray, pool: np.ndarray, delay_bytes: float, options: dict[str, float]
) -> list[Part] | None:
    """Return the schedule of least makespan that uses some of a pool of permutations [P, N], or None.

    Mixed-integer programme: permutation p is used, z_p in {0, 1}, for t_p bytes of a circuit. Minimise
    ``sum_p (t_p + delay z_p)`` with ``sum t_p >= d_ij`` over the permutations that join i to j, ``t_p <= z_p
    max d_ij`` over the pairs that p joins, and at least as many permutations as a port has peers. Where the
    solver stops at a limit of nodes (`options`), the best schedule until then is taken.
    """
    scale, size = largest_line(demand), len(demand)
    wanted, sources = demand / scale, np.arange(size)
    most = wanted[sources, pool].max(axis=1)
    pool, most = pool[most > 0.0], most[most > 0.0]
    count = len(pool)
    pairs = (sources * size + pool).ravel()
    serves = scipy.sparse.coo_array(
        (np.ones(pairs.size), (pairs, np.repeat(np.arange(count), size))), shape=(size * size, count)
    )
    none = scipy.sparse.coo_array((size * size, count))
    used = [scipy.sparse.eye_array(count), -scipy.sparse.diags_array(most)]
    peers = degree(demand)
    solution = scipy.optimize.milp(
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
    if solution.x is None:
        return None
    held = solution.x[:count]
    return [(pool[p], float(held[p] + SOLVED) * scale) for p in np.flatnonzero(held > SOLVED).tolist()]


def spread(schedule: CircuitSchedule, switches: int) -> CircuitSchedule:
    """Return a schedule of one switch with its configurations spread over several, side by side.

    Parameters
    ----------
    schedule : CircuitSchedule
        Schedule on one switch.
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
    rows = [(index, length_s, switch) for switch, held in enumerate(equalised) for index, length_s in held]
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
    """Return the (configuration, length) pairs of each switch after evening out the loads, [switches], in s.

    Half of the gap between the fullest and the emptiest switch moves, of the fullest's longest configuration,
    until the gap is worth no further reconfiguration.
    """
    held = [list(configurations) for configurations in held]
    most = 4 * sum(len(configurations) for configurations in held) + 4 * len(held)
    for _ in range(most):
        fullest, emptiest = int(loads.argmax()), int(loads.argmin())
        gap_s = float(loads[fullest] - loads[emptiest])
        if gap_s <= reconfiguration_s or gap_s <= 1e-12 * float(loads[fullest]) or not held[fullest]:
            break
        place = max(range(len(held[fullest])), key=lambda index: held[fullest][index][1])
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
    """Best choice from the permutations of all of these; six ports at most, on one switch without packets."""
    EXACT = "exact"
    """Least makespan, by an integer programme; a few ports on one switch without packets."""


BIRKHOFF: Mapping[SchedulePolicy, Matching] = MappingProxyType(
    {
        SchedulePolicy.ARBITRARY: Matching.ARBITRARY,
        SchedulePolicy.HUNGARIAN: Matching.HUNGARIAN,
        SchedulePolicy.BOTTLENECK: Matching.BOTTLENECK,
    }
)
"""Matching of each policy that is a Birkhoff-von Neumann decomposition."""


LIMITS: Mapping[SchedulePolicy, int] = MappingProxyType(
    {SchedulePolicy.POOLED: MOST_POOLED_PORTS, SchedulePolicy.EXACT: MOST_EXACT_PORTS}
)
"""Most ports of policies that solve an integer programme, on one switch without packets."""


def applies(policy: SchedulePolicy, ports: int, bank: OcsBank) -> bool:
    """Return whether a policy can schedule a demand of a number of ports on a bank (`LIMITS`)."""
    alone = bank.switches == 1 and bank.packet_rate_bytes_per_s == 0.0
    return policy not in LIMITS or (ports <= LIMITS[policy] and alone)


def schedule(demand: np.ndarray, policy: SchedulePolicy, bank: OcsBank) -> CircuitSchedule:
    """Return the schedule of a demand.

    Parameters
    ----------
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N].
    policy : SchedulePolicy
        Choice of configurations. Solstice and Eclipse leave the rest to a packet switch if there is one.
    bank : OcsBank
        Switches. With several, configurations are spread over them and the loads made equal (`spread`).

    Raises
    ------
    ParameterError
        If the demand is not square, not finite or negative, or too large for the policy (`applies`), or where
        a text stands for the policy.
    """
    check_member("policy", policy, SchedulePolicy)
    left = checked(demand)
    if not applies(policy, len(left), bank):
        msg = (
            f"policy '{policy}' is for at most {LIMITS[policy]} ports on one switch without packets; got "
            f"{len(left)} ports, {bank.switches} planes and packets of {bank.packet_rate_bytes_per_s:g} B/s; "
            "try another policy"
        )
        raise ParameterError(msg)
    on_one = _on_one_switch(left, policy, bank)
    return spread(on_one, bank.switches) if bank.switches > 1 else on_one


def _on_one_switch(demand: np.ndarray, policy: SchedulePolicy, bank: OcsBank) -> CircuitSchedule:
    """Return a policy's schedule on the first switch of a bank.

    Circuits of pairs with nothing left stay dark, and a configuration ends when its last circuit has nothing
    left.
    """
    size = len(demand)
    sources = np.arange(size)
    left = demand.copy()
    floor = largest_line(left) * BALANCE_TOLERANCE
    rows, lengths = [], []
    for columns, carried in parts_of(demand, policy, bank):
        rest = left[sources, columns]
        held = min(carried, float(rest.max(initial=0.0)))
        if held > floor / max(size, 1):
            rows.append(np.where(rest > 0.0, columns, DARK))
            lengths.append(held)
            left[sources, columns] = np.maximum(rest - held, 0.0)
    return CircuitSchedule(
        policy=str(policy),
        demand=demand.copy(),
        permutations=np.array(rows, dtype=np.int64).reshape(-1, size),
        durations_s=np.array(lengths, dtype=float) / bank.rate_bytes_per_s,
        switch_of=np.zeros(len(lengths), dtype=np.int64),
        rate_bytes_per_s=bank.rate_bytes_per_s,
        reconfiguration_s=bank.reconfiguration_s,
        packet_rate_bytes_per_s=bank.packet_rate_bytes_per_s,
    )


def parts_of(demand: np.ndarray, policy: SchedulePolicy, bank: OcsBank) -> list[Part]:
    """Return a policy's permutations, and the bytes that each of their circuits may carry."""
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
