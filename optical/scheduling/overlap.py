"""Circuits that change within a collective: one plane moves while the others transmit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from optical.scheduling.covers import fewest
from optical.scheduling.ocs_bank import OcsBank
from simulator.collectives.algorithms import Algorithm, vector_bytes
from simulator.collectives.algorithms import schedule as steps_of_algorithm
from simulator.errors import ParameterError
from simulator.operators import CollectiveKind

NODES = 1000
"""Nodes of the branch and bound after which the best plan found is taken."""
MOST_BINARIES = 160
"""Steps times planes up to which the exact search runs at all."""
_FLIPS = 256


@dataclass(frozen=True, kw_only=True)
class CollectiveStep:
    """Transfers of a collective that one permutation carries."""

    destinations: tuple[int, ...]
    """Peer of each rank; the rank itself for none."""
    size_bytes: float
    """Bytes from each rank."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OverlapPlan:
    """Times at which each plane transmits."""

    starts_s: np.ndarray
    """When each plane begins to transmit in each step, shape [S, planes]."""
    ends_s: np.ndarray
    """When it stops, shape [S, planes]; at once where it does not serve the step."""
    makespan_s: float
    """End of the last step."""
    bound_s: float
    """Time that no plan beats."""
    is_optimal: bool
    """Whether the search proved that no plan is faster."""

    @property
    def over_bound(self) -> float:
        """Makespan over bound, at least one."""
        return self.makespan_s / self.bound_s if self.bound_s > 0.0 else 1.0


def bruck_steps(ranks: int, payload_bytes: float) -> tuple[CollectiveStep, ...]:
    """Return Bruck's all-to-all: in step k all blocks whose distance has bit k go 2^k ranks on.

    Notes
    -----
    Bruck et al., IEEE Trans. Parallel Distrib. Syst. 8 (1997): log2 n steps of half of the payload for n a
    power of two.
    """
    block = payload_bytes / ranks
    steps = []
    for bit in range((ranks - 1).bit_length()):
        shift = 1 << bit
        blocks = sum(1 for distance in range(ranks) if distance & shift)
        peers = tuple((rank + shift) % ranks for rank in range(ranks))
        steps.append(CollectiveStep(destinations=peers, size_bytes=block * blocks))
    return tuple(steps)


def collective_steps(
    kind: CollectiveKind, algorithm: Algorithm, ranks: int, payload_bytes: float
) -> tuple[CollectiveStep, ...]:
    """Return the permutations that a collective asks for, one after the other.

    Parameters
    ----------
    kind, algorithm : CollectiveKind, Algorithm
        What is done, and how.
    ranks : int
        Size of the group.
    payload_bytes : float
        Bytes per rank before the collective.

    Notes
    -----
    A step in which a rank has several peers (direct) becomes as many permutations as it has.
    """
    block = vector_bytes(kind, payload_bytes, ranks) / ranks
    found: list[CollectiveStep] = []
    for step in steps_of_algorithm(kind, algorithm, ranks):
        demand = np.zeros((ranks, ranks))
        np.add.at(demand, (step.sources, step.destinations), step.chunks.shape[1] * block)
        for columns, size_bytes in fewest(demand):
            lit = demand[np.arange(ranks), columns] > 0.0
            peers = np.where(lit, columns, np.arange(ranks))
            found.append(CollectiveStep(destinations=tuple(peers.tolist()), size_bytes=size_bytes))
    return tuple(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Problem:
    """Steps as numbers: seconds on one plane, and the index of the permutation."""

    seconds: np.ndarray
    kinds: np.ndarray
    planes: int
    delay_s: float

    @cached_property
    def fewest_moves(self) -> int:
        """Moves that any plan needs."""
        return _fewest_moves(self.kinds, self.planes)

    @property
    def bound_s(self) -> float:
        """Work and the fewest moves that any plan needs, shared equally by the planes."""
        return float(self.seconds.sum() + self.fewest_moves * self.delay_s) / self.planes


def _fewest_moves(kinds: np.ndarray, planes: int) -> int:
    """Return the moves without which some step finds its permutation on no plane.

    Planes are a cache of permutations; replacing what is wanted last misses least (Belady 1966). As many as
    there are planes stand before the first step.
    """
    held: set[int] = set()
    misses = 0
    for place, kind in enumerate(kinds.tolist()):
        if kind in held:
            continue
        misses += 1
        if len(held) == planes:
            rest = kinds[place:].tolist()
            held.remove(max(held, key=lambda one: rest.index(one) if one in rest else len(rest)))
        held.add(kind)
    return max(0, misses - planes)


def overlap(steps: Sequence[CollectiveStep], bank: OcsBank, *, nodes: int = NODES) -> OverlapPlan:
    """Return how planes share the steps of a collective, moving while others transmit.

    Parameters
    ----------
    steps : sequence of CollectiveStep
        One after the other: a step begins when the one before has ended.
    bank : OcsBank
        Planes (its switches), each with a circuit of every rank. Before the first step they are set as they
        are wanted; afterwards a plane that moves carries nothing for the delay. Nothing goes through packets.
    nodes : int
        Nodes of the branch and bound at most; zero for the heuristic alone.

    Raises
    ------
    ParameterError
        If there is no step, or a step that no plane can carry.

    Notes
    -----
    SWOT (arXiv:2510.19322). Variables are which plane serves which step, and when. With `T_s` the end of step
    s, a plane's circuits carry within ``[T_(s-1), T_s]``; a plane that serves two steps of different
    permutations needs delta between them; the planes' times add up to the step's work. A mixed-integer
    programme, whose relaxation is also a bound. The heuristic tries planes in turns of every number of
    groups, then changes single choices while that helps.
    """
    if not steps:
        msg = "a plan needs at least one step"
        raise ParameterError(msg)
    names = {step.destinations: index for index, step in enumerate(reversed(steps))}
    problem = _Problem(
        seconds=np.array([step.size_bytes for step in steps]) / bank.rate_bytes_per_s,
        kinds=np.array([names[step.destinations] for step in steps]),
        planes=bank.switches,
        delay_s=bank.delay_s,
    )
    best = _improved(problem, _in_turns(problem))
    bound_s, proven = problem.bound_s, False
    if nodes > 0 and bank.switches > 1 and len(steps) * bank.switches <= MOST_BINARIES:
        found = _solved(problem, None, nodes)
        if found is not None:
            bound_s = max(bound_s, found.bound_s)
            proven = found.is_optimal
            best = min(found, best, key=lambda one: one.makespan_s)
    bound_s = min(bound_s, best.makespan_s)
    return OverlapPlan(
        starts_s=best.starts_s,
        ends_s=best.ends_s,
        makespan_s=best.makespan_s,
        bound_s=bound_s,
        is_optimal=proven or best.makespan_s <= bound_s * (1.0 + 1e-9),
    )


def _in_turns(problem: _Problem) -> np.ndarray:
    """Return who serves what, shape [S, planes], if planes take turns in the best number of groups.

    More groups than permutations that follow each other would leave planes idle.
    """
    steps, planes = len(problem.seconds), problem.planes
    changes = np.concatenate([[0], np.cumsum(problem.kinds[1:] != problem.kinds[:-1])])
    tried = []
    for groups in range(1, min(planes, int(changes[-1]) + 1) + 1):
        serves = (changes[:, None] - np.arange(planes)[None, :]) % groups == 0
        plan = _solved(problem, serves, 0)
        if plan is not None:
            tried.append((plan.makespan_s, groups, serves))
    if not tried:
        return np.ones((steps, planes), dtype=bool)
    return min(tried, key=lambda one: one[:2])[2]


def _improved(problem: _Problem, serves: np.ndarray) -> OverlapPlan:
    """Return the plan after changing single choices while that helps."""
    best = _solved(problem, serves, 0)
    if best is None:
        msg = "no plan serves these steps"
        raise ParameterError(msg)
    left = _FLIPS
    for place in np.ndindex(serves.shape):
        if left == 0 or best.makespan_s <= problem.bound_s * (1.0 + 1e-9):
            break
        left -= 1
        other = serves.copy()
        other[place] = not other[place]
        plan = _solved(problem, other, 0) if other[place[0]].any() else None
        if plan is not None and plan.makespan_s < best.makespan_s * (1.0 - 1e-9):
            best, serves = plan, other
    return best


def _solved(problem: _Problem, serves: np.ndarray | None, nodes: int) -> OverlapPlan | None:
    """Return the best plan, for given services by linear programming, or of all by branch and bound.

    Variables: starts and ends [S, planes], ends of steps [S], services [S, planes] if they are open.
    """
    steps, planes = len(problem.seconds), problem.planes
    # A delay far above all work would drown in the solver's tolerance; twice the work forbids moves as well.
    unavoidable_s = float(problem.seconds.sum()) + problem.fewest_moves * problem.delay_s
    scale = unavoidable_s or 1.0
    work, delay = problem.seconds / scale, min(problem.delay_s / scale, 2.0)
    size = steps * planes
    rows = _Rows()
    for s in range(steps):
        rows.add(
            [(size + s * planes + p, 1.0) for p in range(planes)]
            + [(s * planes + p, -1.0) for p in range(planes)],
            work[s],
        )
        for p in range(planes):
            start, end, served = s * planes + p, size + s * planes + p, 2 * size + steps + s * planes + p
            rows.add([(end, 1.0), (start, -1.0)], 0.0)
            rows.add([(2 * size + s, 1.0), (end, -1.0)], 0.0)
            if s:
                rows.add([(start, 1.0), (2 * size + s - 1, -1.0)], 0.0)
            rows.add([(served, work[s]), (end, -1.0), (start, 1.0)], 0.0)
            for before in range(s):
                if problem.kinds[before] != problem.kinds[s]:
                    both = [(served, -delay), (2 * size + steps + before * planes + p, -delay)]
                    rows.add([(start, 1.0), (size + before * planes + p, -1.0), *both], -delay)
    first = 2 * size + steps
    for p in range(planes - 1 if serves is None else 0):
        rows.add([(first + p, 1.0), (first + p + 1, -1.0)], 0.0)
    total = 3 * size + steps
    low, high = np.zeros(total), np.full(total, np.inf)
    high[-size:] = 1.0
    if serves is not None:
        low[-size:] = high[-size:] = serves.ravel()
    cost = np.zeros(total)
    cost[2 * size + steps - 1] = 1.0
    found = scipy.optimize.milp(
        cost,
        constraints=rows.constraint(total),
        bounds=scipy.optimize.Bounds(low, high),
        integrality=np.concatenate(
            [np.zeros(total - size), np.ones(size) if serves is None else np.zeros(size)]
        ),
        options={"node_limit": nodes} if serves is None else {},
    )
    if found.x is None:
        return None
    dual = getattr(found, "mip_dual_bound", None)
    return OverlapPlan(
        starts_s=found.x[:size].reshape(steps, planes) * scale,
        ends_s=found.x[size : 2 * size].reshape(steps, planes) * scale,
        makespan_s=float(found.fun) * scale,
        bound_s=0.0 if dual is None or serves is not None else float(dual) * scale,
        is_optimal=serves is None and found.status == 0,
    )


class _Rows:
    """Lines of ``A x >= b`` while they are written down."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, float]] = []
        self._least: list[float] = []

    def add(self, terms: list[tuple[int, float]], least: float) -> None:
        """Add a line."""
        self._entries += [(len(self._least), column, value) for column, value in terms]
        self._least.append(least)

    def constraint(self, columns: int) -> scipy.optimize.LinearConstraint:
        """Return all lines."""
        rows, places, values = zip(*self._entries, strict=True)
        matrix = scipy.sparse.coo_array((values, (rows, places)), shape=(len(self._least), columns)).tocsr()
        return scipy.optimize.LinearConstraint(matrix, lb=np.array(self._least))
