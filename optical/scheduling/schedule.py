"""Schedules of circuits on a bank of switches: configurations, durations, residue, and their bound.

Moves of circuits between the phases of a training step: time exposed, and time that full rails save.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optical.scheduling.demand import (
    BALANCE_TOLERANCE,
    checked,
    exposed_delay,
    largest_line,
    least_line_time,
    makespan_bound,
)
from simulator.checks import check_positive, check_range, check_whole
from simulator.errors import ParameterError

DARK = -1
"""Destination of a source that has no circuit in a configuration."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CircuitSchedule:
    """Configurations of circuit switches one after the other; treat as immutable.

    Notes
    -----
    Before each configuration of a switch, also the first, its circuits carry nothing for the delay; then a
    circuit carries what its pair still has. A packet switch, if there is one, carries the residue from the
    start.
    """

    policy: str = ""
    """What made it."""
    demand: np.ndarray
    """Bytes from input i to output j, shape [N, N]."""
    permutations: np.ndarray
    """Output of each input in each configuration, `DARK` for none, shape [K, N]."""
    durations_s: np.ndarray
    """How long each configuration carries, shape [K]."""
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
        which, source = np.nonzero(self.permutations != DARK)
        np.add.at(time_s, (source, self.permutations[which, source]), self.durations_s[which])
        return time_s

    @cached_property
    def residue(self) -> np.ndarray:
        """Bytes that circuits leave, shape [N, N]; what is lost to rounding is none."""
        left = np.clip(self.demand - self.circuit_time_s * self.rate_bytes_per_s, 0.0, None)
        left[left <= BALANCE_TOLERANCE * largest_line(self.demand)] = 0.0
        return left

    @property
    def residue_bytes(self) -> float:
        """Bytes that circuits leave, of all pairs."""
        return float(self.residue.sum())

    @cached_property
    def ends_s(self) -> np.ndarray:
        """When each configuration ends, shape [K], s."""
        ends = np.zeros(self.configurations)
        for switch in range(self.switches):
            mine = self.switch_of == switch
            ends[mine] = np.cumsum(self.durations_s[mine] + self.reconfiguration_s)
        return ends

    @property
    def starts_s(self) -> np.ndarray:
        """When the circuits of each configuration begin to carry, shape [K], s."""
        return self.ends_s - self.durations_s

    @property
    def circuit_makespan_s(self) -> float:
        """Time of the busiest switch: the sum of its durations and of one delay for each."""
        return float(self.ends_s.max(initial=0.0))

    @property
    def packet_s(self) -> float:
        """Time of the residue through the packet switch; infinite if there is none and something is left."""
        if not self.residue.any():
            return 0.0
        if self.packet_rate_bytes_per_s == 0.0:
            return float("inf")
        return least_line_time(self.residue, self.packet_rate_bytes_per_s)

    @property
    def makespan_s(self) -> float:
        """Time until circuits and packets have carried all."""
        return max(self.circuit_makespan_s, self.packet_s)

    @property
    def duty(self) -> float:
        """Share of the switches' busy time in which they carry, 0 to 1."""
        busy_s = float(self.durations_s.sum()) + self.configurations * self.reconfiguration_s
        return float(self.durations_s.sum()) / busy_s if busy_s > 0.0 else 1.0

    @cached_property
    def bound_s(self) -> float:
        """Time that no schedule of this demand on these switches beats."""
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

    def validated(self) -> CircuitSchedule:
        """Return the schedule after checking that it is one.

        Raises
        ------
        ParameterError
            If a configuration is no matching, a duration is not positive, a switch does not exist, something
            is left that no packet switch carries, or the makespan lies below the bound.
        """
        self._check_shapes()
        for index, row in enumerate(self.permutations):
            lit = row[row != DARK]
            if len(np.unique(lit)) != len(lit):
                twice = int(lit[np.flatnonzero(np.bincount(lit)[lit] > 1)[0]])
                msg = f"configuration {index}: two circuits end at output {twice}; an output receives one"
                raise ParameterError(msg)
        if self.residue.any() and self.packet_rate_bytes_per_s == 0.0:
            row, column = np.unravel_index(self.residue.argmax(), self.residue.shape)
            msg = (
                f"{self.residue_bytes:g} B are never carried, most from {row} to {column}; add "
                "configurations, or a packet switch for the rest"
            )
            raise ParameterError(msg)
        if self.makespan_s < self.bound_s * (1.0 - BALANCE_TOLERANCE):
            msg = f"a makespan of {self.makespan_s:g} s lies below the bound of {self.bound_s:g} s"
            raise ParameterError(msg)
        return self

    def _check_shapes(self) -> None:
        checked(self.demand)
        count, ports = self.configurations, self.ports
        if self.permutations.shape != (count, ports) or self.switch_of.shape != (count,):
            msg = (
                f"{count} durations of {ports} ports need permutations of shape ({count}, {ports}) and "
                f"{count} switches; got {self.permutations.shape} and {self.switch_of.shape}"
            )
            raise ParameterError(msg)
        if count and not (self.durations_s > 0.0).all():
            msg = f"every configuration must last; the shortest lasts {self.durations_s.min():g} s"
            raise ParameterError(msg)
        if count and (self.permutations.min() < DARK or self.permutations.max() >= ports):
            msg = f"circuits must end at outputs 0 to {ports - 1}, or be {DARK} for dark"
            raise ParameterError(msg)
        if count and not (0 <= self.switch_of.min() and self.switch_of.max() < self.switches):
            msg = f"configurations must be on switches 0 to {self.switches - 1}"
            raise ParameterError(msg)


def schedule_of(
    parts: list[tuple[np.ndarray, float]],
    *,
    policy: str,
    demand: np.ndarray,
    rate_bytes_per_s: float,
    reconfiguration_s: float,
    packet_rate_bytes_per_s: float = 0.0,
) -> CircuitSchedule:
    """Return a schedule on one switch from permutations and their bytes.

    Parameters
    ----------
    parts : list of (numpy.ndarray, float)
        Destination of each source, shape [N], and the bytes that each circuit of it may carry.
    policy : str
        What made them.
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N]. Circuits of pairs with nothing left stay dark, and a
        configuration ends when its last circuit has nothing left.
    rate_bytes_per_s, reconfiguration_s, packet_rate_bytes_per_s : float
        As in `CircuitSchedule`.
    """
    size = len(demand)
    sources = np.arange(size)
    left = np.array(demand, dtype=float)
    floor = largest_line(left) * BALANCE_TOLERANCE
    rows, lengths = [], []
    for columns, carried in parts:
        rest = left[sources, columns]
        held = min(carried, float(rest.max(initial=0.0)))
        if held > floor / max(size, 1):
            rows.append(np.where(rest > 0.0, columns, DARK))
            lengths.append(held)
            left[sources, columns] = np.maximum(rest - held, 0.0)
    return CircuitSchedule(
        policy=policy,
        demand=np.array(demand, dtype=float),
        permutations=np.array(rows, dtype=np.int64).reshape(-1, size),
        durations_s=np.array(lengths, dtype=float) / rate_bytes_per_s,
        switch_of=np.zeros(len(lengths), dtype=np.int64),
        rate_bytes_per_s=rate_bytes_per_s,
        reconfiguration_s=reconfiguration_s,
        packet_rate_bytes_per_s=packet_rate_bytes_per_s,
    )


MOST_SWITCHES = 1024
"""Most switches of a bank; TPU v4 has 48 (Jouppi et al., arXiv:2304.01433). Dimensionless."""


@dataclass(frozen=True, kw_only=True)
class OcsBank:
    """Bank of optical circuit switches side by side, and a packet switch if there is one."""

    rate_bytes_per_s: float
    """Rate of one circuit."""
    reconfiguration_s: float
    """Reconfiguration time before each configuration."""
    switches: int = 1
    """Circuit switches side by side, each with a circuit of every port."""
    packet_rate_bytes_per_s: float = 0.0
    """Rate of each port into a packet switch for the rest; zero for none."""

    def __post_init__(self) -> None:
        check_range(self, "rate_bytes_per_s", open_low=True)
        check_range(self, "reconfiguration_s", "packet_rate_bytes_per_s")
        check_range(self, "switches", low=1, high=MOST_SWITCHES)
        check_whole(self, "switches")


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """Lanes of a port that are shared out among axes of parallelism."""

    count: int
    """Lanes of a port."""
    rate_bytes_per_s: float
    """Rate of one lane."""
    reconfiguration_s: float
    """Reconfiguration time of a move."""

    def __post_init__(self) -> None:
        check_range(self, "count", low=1)
        check_whole(self, "count")
        check_range(self, "rate_bytes_per_s", open_low=True)
        check_range(self, "reconfiguration_s")


MOST_CHOICES = 2000
"""Most ways to share lanes among axes that are looked at."""


@dataclass(frozen=True, kw_only=True)
class TrafficPhase:
    """A stretch of a step in which only one axis of parallelism talks."""

    axis: str
    """Axis of parallelism."""
    bytes_per_pair: float
    """Bytes from a port to each of its peers."""
    peers: int = 1
    """Peers of a port; with fewer lanes than peers, circuits serve them in turns."""
    exchanges: int = 1
    """Times that a port meets all its peers, one after the other; in turns each of them moves circuits."""
    idle_s: float = 0.0
    """Time before the phase in which the network is idle, for instance because accelerators compute."""

    def __post_init__(self) -> None:
        check_range(self, "bytes_per_pair", "idle_s")
        check_range(self, "peers", low=1)
        check_range(self, "exchanges", low=1)
        check_whole(self, "peers", "exchanges")


@dataclass(frozen=True, kw_only=True)
class PhasePlan:
    """Lanes of every axis in every phase, and the time that follows."""

    axes: tuple[str, ...]
    """Axes of parallelism."""
    lanes: tuple[tuple[int, ...], ...]
    """Lanes of each axis, by phase."""
    moves: tuple[bool, ...]
    """Whether circuits move before each phase."""
    transfer_s: tuple[float, ...]
    """Time of each phase's traffic."""
    exposed_s: tuple[float, ...]
    """Part of each move to a phase that idle time does not hide."""
    turns: tuple[int, ...]
    """Moves within each phase, since its peers are more than its lanes."""
    turning_s: tuple[float, ...]
    """Reconfiguration time of those moves; of the first what idle time before the phase does not hide."""
    static_s: float
    """Least time of all transfers if circuits never move; infinite if lanes are too few."""
    bound_s: float
    """Time with all lanes for every phase and no delay: nothing is faster."""

    @property
    def time_s(self) -> float:
        """Time of all transfers and exposed delays, without the idle time."""
        return sum(self.transfer_s) + sum(self.exposed_s) + sum(self.turning_s)

    @property
    def over_bound(self) -> float:
        """Time over bound, at least one."""
        return self.time_s / self.bound_s if self.bound_s > 0.0 else 1.0


def plan_phases(phases: Sequence[TrafficPhase], lanes: Lanes, *, repeats: bool = True) -> PhasePlan:
    """Return where moving circuits saves most; no other choice of moves and lanes is faster.

    Parameters
    ----------
    phases : sequence of TrafficPhase
        In their order.
    lanes : Lanes
        Lanes of a port, their rate and the reconfiguration time of a move.
    repeats : bool
        Whether the step follows itself, so that the last phase's circuits are the first one's. Otherwise they
        stand before the first phase as it wants them.

    Raises
    ------
    ParameterError
        If there is no phase, or there are too many ways.

    Notes
    -----
    Opus (arXiv:2507.08119 and 2602.12521) turns the rails between phases of parallelism; a move costs
    ``max(0, delta - idle)``. Dynamic programme over phases, the state being the lanes of each axis
    (Bellman 1957), once for each state at the start.

    With g lanes for p > g peers an exchange takes ceil(p / g) turns, as
    `simulator.collectives.all_to_all.in_turns` deals them, and each of them moves circuits (Birkhoff-von
    Neumann: an even exchange is p permutations, of which g stand at once). Only the first of a phase's moves
    has idle time to hide in; what accelerators compute between two exchanges of a phase hides nothing here,
    so that those times are upper bounds.
    """
    if not phases:
        msg = "a plan needs at least one phase of traffic"
        raise ParameterError(msg)
    axes = tuple(dict.fromkeys(phase.axis for phase in phases))
    choices = _choices(lanes.count, len(axes))
    given = [choices[:, axes.index(phase.axis)] for phase in phases]
    transfer_s = np.array(
        [_transfer_s(phase, some, lanes) for phase, some in zip(phases, given, strict=True)]
    )
    turns = np.array([_turns(phase, some) for phase, some in zip(phases, given, strict=True)])
    exposed_s = np.array(
        [exposed_delay(reconfiguration_s=lanes.reconfiguration_s, idle_s=phase.idle_s) for phase in phases]
    )
    turning_s = np.where(turns > 0, (turns - 1) * lanes.reconfiguration_s + exposed_s[:, None], 0.0)
    if not repeats:  # the first turn stands already
        turning_s[0] -= np.where(turns[0] > 0, exposed_s[0], 0.0)
        turns[0] -= turns[0] > 0
    times_s = transfer_s + turning_s
    # The first turn of a phase is a move to it: another before it would be paid twice.
    path, moves = _shortest(times_s, np.where(turns > 0, 0.0, exposed_s[:, None]), repeats=repeats)
    chosen = np.arange(len(phases)), path
    moved = np.array(moves) & (turns[chosen] == 0)
    return PhasePlan(
        axes=axes,
        lanes=tuple(tuple(choices[one].tolist()) for one in path),
        moves=tuple(moved.tolist()),
        transfer_s=tuple(transfer_s[chosen].tolist()),
        exposed_s=tuple(np.where(moved, exposed_s, 0.0).tolist()),
        turns=tuple(turns[chosen].tolist()),
        turning_s=tuple(turning_s[chosen].tolist()),
        static_s=float(np.where(turns > 0, np.inf, transfer_s).sum(axis=0).min()),
        bound_s=float(transfer_s.min(axis=1).sum()),
    )


def _choices(lanes: int, axes: int) -> np.ndarray:
    """Return every way to share out all lanes, shape [choices, axes]."""
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


def _transfer_s(phase: TrafficPhase, given: np.ndarray, lanes: Lanes) -> np.ndarray:
    """Return the time of a phase's bytes under each choice, shape [choices], s; infinite without a lane."""
    some = np.maximum(given, 1)
    rounds = -(-phase.peers // some)
    most, left = -(-phase.peers // rounds), phase.peers % rounds
    full = np.where(left > 0, left, rounds)  # rounds of `most` peers; the others have one less
    time_s = full / (some // most)
    time_s = time_s + (rounds - full) / (some // np.maximum(most - 1, 1))
    return np.where(given > 0, time_s * phase.bytes_per_pair / lanes.rate_bytes_per_s, np.inf)


def _turns(phase: TrafficPhase, given: np.ndarray) -> np.ndarray:
    """Return the moves within a phase under each choice, shape [choices]; none if each peer has a lane."""
    rounds = -(-phase.peers // np.maximum(given, 1))
    return np.where((given > 0) & (rounds > 1), rounds * phase.exchanges, 0)


def _shortest(times_s: np.ndarray, exposed_s: np.ndarray, *, repeats: bool) -> tuple[list[int], list[bool]]:
    """Return the choice of each phase and whether it was moved to, of least total time; both [n, choices]."""
    count, choices = times_s.shape
    reached = np.full((choices, choices), np.inf)
    np.fill_diagonal(reached, 0.0)
    moved = np.zeros((count, choices, choices), dtype=bool)
    origin = np.zeros((count, choices), dtype=np.int64)
    for index in range(count):
        origin[index] = reached.argmin(axis=1)
        through = reached.min(axis=1, keepdims=True) + exposed_s[index]
        moved[index] = through < reached
        reached = np.where(moved[index], through, reached) + times_s[index]
    ends = np.diag(reached) if repeats else reached.min(axis=1)
    start = int(ends.argmin())
    here = start if repeats else int(reached[start].argmin())
    path, moves = [], []
    for index in range(count - 1, -1, -1):
        path.append(here)
        moves.append(bool(moved[index, start, here]))
        if moves[-1]:
            here = int(origin[index, start])
    return path[::-1], moves[::-1]
