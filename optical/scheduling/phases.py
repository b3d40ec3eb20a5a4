"""Moves of circuits between the phases of a training step: time exposed, and time that full rails save."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optical.scheduling.demand import exposed_delay
from optical.scheduling.schedule import Lanes
from simulator.checks import check_range, check_whole
from simulator.errors import ParameterError

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
