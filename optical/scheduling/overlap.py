"""Plans of a collective over several planes of circuits: one plane reconfigures while the others transmit.

A collective is a list of steps, each a permutation of the ranks and bytes for each rank. A plane is an
optical switch that holds one permutation at a time and carries nothing while it changes to another. A plan
says when each plane carries each step. Two kinds:

- `overlap`: steps one after the other; a step may be shared by several planes. Heuristics (`_in_turns`,
  `_fewest_moves`, `_improved`), then a mixed-integer programme (`_linear_plan`).
- `staged`: steps of one stage in any order and several at once. List scheduling (`_longest_first`),
wrap-around
  filling (`_wrapped`), and for few permutations a mixed-integer programme (`_least_shares`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import scipy

from optical.scheduling.birkhoff import fewest
from optical.scheduling.schedule import OcsBank
from simulator.collectives.algorithms import Algorithm, vector_bytes
from simulator.collectives.algorithms import schedule as steps_of_algorithm
from simulator.errors import ParameterError
from simulator.operators import CollectiveKind

NODES = 1000
"""Nodes of the branch and bound after which the best plan found is taken; a choice."""
MOST_BINARIES = 160
"""Steps times planes up to which the exact search runs at all; a choice."""
MOST_SHARED = 16
"""Permutations of a stage times planes up to which its best shares are searched exactly; a choice."""
DROWNED = 1e-5
"""Share of the whole time below which a step's work is lost in a solver's tolerance of 1e-7."""
_FLIPS = 256
"""Changes of single choices that the local search tries; a choice."""
_LEAST_SHARE = 1e-9
"""Share of the whole time below which a solver's share of a job counts as zero."""
_HALVINGS = 60
"""Halvings of the interval in which the earliest common end is searched."""


class _Piece(NamedTuple):
    """Time in which one plane carries one job, or a part of it."""

    job: int
    plane: int
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class CollectiveStep:
    """Transfers of a collective that one permutation of the ranks carries."""

    destinations: tuple[int, ...]
    """Peer of each rank; the rank itself for none."""
    size_bytes: float
    """Bytes from each rank."""
    stage: int = 0
    """Steps of one stage wait for those of the stage before, and not for each other."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OverlapPlan:
    """Times at which each plane transmits in each of S steps."""

    starts_s: np.ndarray
    """Begin of each plane's transmission in each step, shape [S, planes], s."""
    ends_s: np.ndarray
    """End of it, shape [S, planes], s; equal to the begin where the plane does not serve the step."""
    makespan_s: float
    """End of the last step."""
    bound_s: float
    """Lower bound on the makespan of any plan."""
    is_optimal: bool
    """Whether no plan is proven to be faster, within the solver's tolerance."""

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
        steps.append(CollectiveStep(destinations=peers, size_bytes=block * blocks, stage=bit))
    return tuple(steps)


def collective_steps(
    kind: CollectiveKind, algorithm: Algorithm, ranks: int, payload_bytes: float
) -> tuple[CollectiveStep, ...]:
    """Return the permutations of a collective by an algorithm, in their order.

    Parameters
    ----------
    kind, algorithm : CollectiveKind, Algorithm
        Collective, and the algorithm that performs it.
    ranks : int
        Size of the group.
    payload_bytes : float
        Bytes per rank before the collective.

    Notes
    -----
    A step in which a rank has several peers (direct) becomes as many permutations as it has, of one stage.
    """
    block = vector_bytes(kind, payload_bytes, ranks) / ranks
    found: list[CollectiveStep] = []
    for stage, step in enumerate(steps_of_algorithm(kind, algorithm, ranks)):
        demand = np.zeros((ranks, ranks))
        np.add.at(demand, (step.sources, step.destinations), step.chunks.shape[1] * block)
        for columns, size_bytes in fewest(demand):
            lit = demand[np.arange(ranks), columns] > 0.0
            peers = np.where(lit, columns, np.arange(ranks))
            found.append(
                CollectiveStep(destinations=tuple(peers.tolist()), size_bytes=size_bytes, stage=stage)
            )
    return tuple(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Problem:
    """Steps of `overlap` as arrays."""

    seconds: np.ndarray
    """Time of each step on a single plane, shape [S], s."""
    kinds: np.ndarray
    """Number of each step's permutation, equal for equal ones, shape [S]."""
    planes: int
    reconfiguration_s: float

    @cached_property
    def holders(self) -> np.ndarray:
        """Plane that carries each step whole, in the plan with the fewest moves, shape [S].

        Planes are a cache of permutations. Belady's rule (1966) misses least: replace the permutation that is
        wanted again last; of those never wanted again, the one used longest ago, so that its plane has time
        to move. The first permutations, one for each plane, stand before the first step.
        """
        held: list[int] = []
        holders, kinds = [], self.kinds.tolist()
        for step, kind in enumerate(kinds):
            if kind not in held and len(held) < self.planes:
                held.append(kind)
            elif kind not in held:
                coming = kinds[step:]
                last_use = dict(zip(kinds[:step], range(step), strict=True))
                next_use = {other: coming.index(other) if other in coming else len(coming) for other in held}
                victim = max(held, key=lambda other: (next_use[other], -last_use[other]))
                held[held.index(victim)] = kind
            holders.append(held.index(kind))
        return np.array(holders)

    @cached_property
    def fewest_moves(self) -> int:
        """Fewest moves of planes with which every step finds its permutation on some plane."""
        kinds_by_plane = [self.kinds[self.holders == plane] for plane in range(self.planes)]
        return sum(int(np.count_nonzero(np.diff(kinds))) for kinds in kinds_by_plane)

    @property
    def drowns(self) -> bool:
        """Whether the least step is lost in a solver's tolerance beside all work and moves (`DROWNED`)."""
        whole_s = float(self.seconds.sum()) + self.fewest_moves * self.reconfiguration_s
        return float(self.seconds[self.seconds > 0.0].min(initial=np.inf)) < DROWNED * whole_s

    @property
    def bound_s(self) -> float:
        """Lower bound on the makespan: all work and the fewest moves, shared equally by the planes."""
        return float(self.seconds.sum() + self.fewest_moves * self.reconfiguration_s) / self.planes


def overlap(steps: Sequence[CollectiveStep], bank: OcsBank, *, nodes: int = NODES) -> OverlapPlan:
    """Return a plan for steps one after the other, in which planes move while others transmit.

    Parameters
    ----------
    steps : sequence of CollectiveStep
        Steps in order: each begins when the one before has ended.
    bank : OcsBank
        Planes (its switches), each with a circuit of every rank. Before the first step they are set as the
        plan needs; afterwards a plane that moves carries nothing for the delay. Nothing goes through packets.
    nodes : int
        Most nodes of the branch and bound; zero for the heuristics alone.

    Raises
    ------
    ParameterError
        If there is no step, or a step that no plane can carry.

    Notes
    -----
    SWOT (arXiv:2510.19322), a mixed-integer programme over which plane serves which step, and when
    (`_linear_plan`); its relaxation is also a bound. Heuristics come first: planes that take turns, in the
    best number of groups, and planes that move as rarely as possible. From each, single choices are changed
    while that helps, and the better is kept.
    """
    if not steps:
        msg = "a plan needs at least one step"
        raise ParameterError(msg)
    numbers = {step.destinations: index for index, step in enumerate(reversed(steps))}
    problem = _Problem(
        seconds=np.array([step.size_bytes for step in steps]) / bank.rate_bytes_per_s,
        kinds=np.array([numbers[step.destinations] for step in steps]),
        planes=bank.switches,
        reconfiguration_s=bank.reconfiguration_s,
    )
    best = _improved(problem, _in_turns(problem))
    if best.makespan_s > problem.bound_s * (1.0 + 1e-9):
        best = min(best, _improved(problem, _fewest_moves(problem)), key=attrgetter("makespan_s"))
    bound_s, proven = problem.bound_s, False
    if nodes > 0 and not problem.drowns and bank.switches > 1 and len(steps) * bank.switches <= MOST_BINARIES:
        searched = _linear_plan(problem, None, nodes)
        if searched is not None:
            bound_s = max(bound_s, searched.bound_s)
            proven = searched.is_optimal
            best = min(searched, best, key=attrgetter("makespan_s"))
    bound_s = min(bound_s, best.makespan_s)
    return OverlapPlan(
        starts_s=best.starts_s,
        ends_s=best.ends_s,
        makespan_s=best.makespan_s,
        bound_s=bound_s,
        is_optimal=proven or best.makespan_s <= bound_s * (1.0 + 1e-9),
    )


def staged(steps: Sequence[CollectiveStep], bank: OcsBank) -> OverlapPlan:
    """Return a plan in which the steps of a stage run in any order, and several at once.

    Parameters
    ----------
    steps : sequence of CollectiveStep
        Steps, stage after stage.
    bank : OcsBank
        Planes, as in `overlap`; the first permutations stand already.

    Raises
    ------
    ParameterError
        If there is no step.

    Notes
    -----
    A stage schedules divisible jobs (distinct permutations) with setup times on identical machines (planes).
    Lower bound: its work, and n - P moves for n permutations on P planes, shared equally. The best of these
    is taken: whole permutations, the longest first, each on the plane that is free first (Graham 1969);
    planes filled one after the other up to a common end, where the permutation at the end of a plane goes on
    at the beginning of the next (McNaughton 1959), at most (P - 1) / P moves above the bound; for few
    permutations, the best of all shares, by a mixed-integer programme.

    Between stages all planes move. If the next stage has the same permutations, they stand in reverse order:
    the stage runs backwards and nothing moves.
    """
    if not steps:
        msg = "a plan needs at least one step"
        raise ParameterError(msg)
    places = [
        np.flatnonzero([step.stage == stage for step in steps])
        for stage in sorted({step.stage for step in steps})
    ]
    starts, ends = (np.zeros((len(steps), bank.switches)) for _ in range(2))
    now = bound_s = 0.0
    previous: tuple[tuple[int, ...], ...] = ()
    backwards = False
    for stage, in_stage in enumerate(places):
        permutations = tuple(steps[int(place)].destinations for place in in_stage)
        seconds = np.array([steps[int(place)].size_bytes for place in in_stage]) / bank.rate_bytes_per_s
        plan = _stage_plan(permutations, seconds, bank)
        repeats = permutations == previous
        now += bank.reconfiguration_s if stage > 0 and not repeats else 0.0
        backwards = repeats and not backwards
        begin, end = plan.starts_s, plan.ends_s
        if backwards:
            begin, end = plan.makespan_s - end, plan.makespan_s - begin
        starts[in_stage], ends[in_stage] = now + begin, now + end
        now, bound_s, previous = now + plan.makespan_s, bound_s + plan.bound_s, permutations
    return OverlapPlan(
        starts_s=starts,
        ends_s=ends,
        makespan_s=now,
        bound_s=min(bound_s, now),
        is_optimal=now <= bound_s * (1.0 + 1e-5),
    )


def _stage_plan(permutations: Sequence[tuple[int, ...]], seconds: np.ndarray, bank: OcsBank) -> OverlapPlan:
    """Return a plan for the steps of one stage, which do not wait for each other.

    Parameters
    ----------
    permutations : sequence of tuple of int
        Permutation of each step, S of them; steps with equal ones are one job.
    seconds : numpy.ndarray
        Time of each step on one plane, shape [S], s.
    bank : OcsBank
        Planes.
    """
    kinds = np.array([permutations.index(permutation) for permutation in permutations])
    work = np.bincount(kinds, weights=seconds, minlength=len(permutations))
    jobs = [int(job) for job in np.argsort(-work, kind="stable") if work[job] > 0.0]
    moves = max(0, len(jobs) - bank.switches)
    bound_s = (float(work.sum()) + moves * bank.reconfiguration_s) / bank.switches
    candidates = [_longest_first(work, jobs, bank), _wrapped(work, jobs, bank, bound_s)]
    if 1 < len(jobs) * bank.switches <= MOST_SHARED:
        shares, proven_s = _least_shares(work[jobs], bank)
        candidates += [_pieces_of(shares, jobs, bank)] if shares is not None else []
        bound_s = max(bound_s, proven_s)
    best = min(candidates, key=_makespan_s)
    starts, ends = (np.zeros((len(permutations), bank.switches)) for _ in range(2))
    for piece in best:
        of_job = np.flatnonzero(kinds == piece.job)
        progress = np.cumsum([0.0, *(seconds[of_job] / work[piece.job])])
        edges = piece.start_s + (piece.end_s - piece.start_s) * progress
        starts[of_job, piece.plane], ends[of_job, piece.plane] = edges[:-1], edges[1:]
    makespan_s = _makespan_s(best)
    return OverlapPlan(
        starts_s=starts,
        ends_s=ends,
        makespan_s=makespan_s,
        bound_s=min(bound_s, makespan_s),
        is_optimal=makespan_s <= bound_s * (1.0 + 1e-5),
    )


def _makespan_s(pieces: Sequence[_Piece]) -> float:
    return max((piece.end_s for piece in pieces), default=0.0)


def _longest_first(work: np.ndarray, jobs: Sequence[int], bank: OcsBank) -> list[_Piece]:
    """Return whole jobs, in the order given (the longest first), each on the plane that is free first."""
    free = np.full(bank.switches, -bank.reconfiguration_s)
    pieces = []
    for job in jobs:
        plane = int(np.argmin(free))
        start = free[plane] + bank.reconfiguration_s
        free[plane] = start + work[job]
        pieces.append(_Piece(job, plane, float(start), float(free[plane])))
    return pieces


def _least_shares(work: np.ndarray, bank: OcsBank) -> tuple[np.ndarray | None, float]:
    """Return the time of each job on each plane in the shortest stage, [jobs, planes], and a proven bound, s.

    Mixed-integer programme over shares w_jp >= 0, uses z_jp in {0, 1} and the end T, in this order: minimise
    T with ``sum_p w_jp >= work_j``, ``w_jp <= work_j z_jp`` and ``T >= sum_j (w_jp + delay z_jp) - delay``: a
    move before each of a plane's jobs but the first. Solved to within 1e-6, or as far as `NODES` go.
    """
    jobs, planes = len(work), bank.switches
    size = jobs * planes
    scale = float(work.sum()) + max(0, jobs - planes) * bank.reconfiguration_s
    delay = min(bank.reconfiguration_s / scale, 2.0)
    constraints = _Constraints()
    for job in range(jobs):
        constraints.add([(job * planes + plane, 1.0) for plane in range(planes)], work[job] / scale)
        for plane in range(planes):
            share = job * planes + plane
            constraints.add([(size + share, work[job] / scale), (share, -1.0)], 0.0)
    for plane in range(planes):
        of_plane = [job * planes + plane for job in range(jobs)]
        shares = [(share, -1.0) for share in of_plane] + [(size + share, -delay) for share in of_plane]
        constraints.add([(2 * size, 1.0), *shares], -delay)
    high = np.full(2 * size + 1, np.inf)
    high[size : 2 * size] = 1.0
    found = scipy.optimize.milp(
        np.concatenate([np.zeros(2 * size), [1.0]]),
        constraints=constraints.constraint(2 * size + 1),
        bounds=scipy.optimize.Bounds(np.zeros(2 * size + 1), high),
        integrality=np.concatenate([np.zeros(size), np.ones(size), [0.0]]),
        options={"node_limit": NODES, "mip_rel_gap": 1e-6},
    )
    bound_s = float(getattr(found, "mip_dual_bound", None) or 0.0) * scale
    if found.x is None:
        return None, bound_s
    shares = found.x[:size].reshape(jobs, planes)
    shares[shares < _LEAST_SHARE] = 0.0
    if not shares.any(axis=1).all():  # a job's work is lost in the solver's tolerance
        return None, bound_s
    return shares / shares.sum(axis=1, keepdims=True) * work[:, None], bound_s


def _pieces_of(shares: np.ndarray, jobs: Sequence[int], bank: OcsBank) -> list[_Piece]:
    """Return each plane's shares [jobs, planes], in s, one after the other with a move between them."""
    pieces: list[_Piece] = []
    for plane in range(bank.switches):
        now = 0.0
        for place in np.flatnonzero(shares[:, plane]):
            end = now + float(shares[place, plane])
            pieces.append(_Piece(jobs[int(place)], plane, now, end))
            now = end + bank.reconfiguration_s
    return pieces


def _wrapped(work: np.ndarray, jobs: Sequence[int], bank: OcsBank, bound_s: float) -> list[_Piece]:
    """Return pieces that fill plane after plane up to a common end, the earliest at which all jobs fit.

    The end is found by bisection from a lower bound upwards.
    """
    low, high = bound_s, bound_s + bank.reconfiguration_s + float(work.max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if _wrap(work, jobs, bank, middle) is not None else (middle, high)
    return _wrap(work, jobs, bank, high) or _longest_first(work, jobs, bank)


def _wrap(work: np.ndarray, jobs: Sequence[int], bank: OcsBank, end_s: float) -> list[_Piece] | None:
    """Return pieces that fill plane after plane up to `end_s`, or None if the jobs do not fit."""
    pieces: list[_Piece] = []
    plane, now = 0, 0.0
    for job in jobs:
        left = float(work[job])
        while left > 0.0:
            if now >= end_s:
                plane, now = plane + 1, 0.0
            if plane == bank.switches:
                return None
            carried = min(left, end_s - now)
            pieces.append(_Piece(job, plane, now, now + carried))
            left, now = left - carried, now + carried + bank.reconfiguration_s
    return pieces


def _in_turns(problem: _Problem) -> np.ndarray:
    """Return which planes serve each step, bool [S, planes], if groups of planes take turns.

    With g groups each change of the permutation goes to the next group, while the others move ahead. All g up
    to the number of changes are tried, and the fastest is kept.
    """
    steps, planes = len(problem.seconds), problem.planes
    changes = np.concatenate([[0], np.cumsum(problem.kinds[1:] != problem.kinds[:-1])])
    tried = []
    for groups in range(1, min(planes, int(changes[-1]) + 1) + 1):
        serves = (changes[:, None] - np.arange(planes)[None, :]) % groups == 0
        plan = _plan_for(problem, serves)
        if plan is not None:
            tried.append((plan.makespan_s, groups, serves))
    if not tried:
        return np.ones((steps, planes), dtype=bool)
    return min(tried, key=lambda one: one[:2])[2]


def _fewest_moves(problem: _Problem) -> np.ndarray:
    """Return which planes serve each step, bool [S, planes], if planes move as rarely as possible.

    A plane that is left over joins the permutation where it saves most: of work w on n planes, one more saves
    w / (n (n + 1)).
    """
    serves = problem.holders[:, None] == np.arange(problem.planes)[None, :]
    work = np.bincount(problem.kinds, weights=problem.seconds)
    count = np.ones(work.size)
    for plane in range(int(problem.holders.max()) + 1, problem.planes):
        kind = int(np.argmax(work / (count * (count + 1.0))))
        count[kind] += 1.0
        serves[problem.kinds == kind, plane] = True
    return serves


def _plan_for(problem: _Problem, serves: np.ndarray) -> OverlapPlan | None:
    """Return the fastest plan in which given planes serve each step, bool [S, planes]; None if there is none.

    By linear programming; greedily, each step as early as possible, where a solver would lose the least step.
    """
    return _greedy_plan(problem, serves) if problem.drowns else _linear_plan(problem, serves, 0)


def _greedy_plan(problem: _Problem, serves: np.ndarray) -> OverlapPlan:
    """Return the plan in which each step ends as early as the planes that serve it allow.

    Planes ready at r_1 <= r_2 <= ... carry work w until the end T with ``sum max(0, T - r) = w``: of the
    first k planes T = (w + r_1 + ... + r_k) / k, for the least k whose T is not past r_(k+1).
    """
    steps, planes = serves.shape
    starts, ends = np.zeros((steps, planes)), np.zeros((steps, planes))
    free, held, now = np.zeros(planes), np.full(planes, -1), 0.0
    for step, (kind, work) in enumerate(zip(problem.kinds, problem.seconds, strict=True)):
        moves = (held >= 0) & (held != kind)
        ready = np.where(serves[step], np.maximum(now, free + moves * problem.reconfiguration_s), np.inf)
        ordered = np.sort(ready[serves[step]])
        end_of_first = (work + np.cumsum(ordered)) / np.arange(1, ordered.size + 1)
        before, now = now, float(end_of_first[end_of_first <= np.append(ordered[1:], np.inf)][0])
        starts[step], ends[step] = np.where(ready < now, ready, before), np.where(ready < now, now, before)
        free, held = np.where(ready < now, now, free), np.where(ready < now, kind, held)
    return OverlapPlan(starts_s=starts, ends_s=ends, makespan_s=now, bound_s=0.0, is_optimal=False)


def _improved(problem: _Problem, serves: np.ndarray) -> OverlapPlan:
    """Return the plan of a local search: a plane joins or leaves a step wherever that shortens the plan."""
    best = _plan_for(problem, serves)
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
        plan = _plan_for(problem, other) if other[place[0]].any() else None
        if plan is not None and plan.makespan_s < best.makespan_s * (1.0 - 1e-9):
            best, serves = plan, other
    return best


def _linear_plan(problem: _Problem, serves: np.ndarray | None, nodes: int) -> OverlapPlan | None:
    """Return the fastest plan: for given services a linear programme, else over all by branch and bound.

    Variables, in this order: begin b_sp and end e_sp of each plane p in each step s, end T_s of each step,
    and whether the plane serves the step, z_sp in {0, 1}, held at `serves` if that is given. Minimise the
    last T with

    - ``sum_p (e_sp - b_sp) >= work_s`` and ``0 <= e_sp - b_sp <= work_s z_sp``,
    - ``T_(s-1) <= b_sp`` and ``e_sp <= T_s``,
    - ``b_sp >= e_rp + delay (z_sp + z_rp - 1)`` for steps r < s of other permutations,

    and, as planes are alike, z of the first step falling from plane to plane.
    """
    steps, planes = len(problem.seconds), problem.planes
    # A delay far above all work would drown in the solver's tolerance; twice the work forbids moves as well.
    unavoidable_s = float(problem.seconds.sum()) + problem.fewest_moves * problem.reconfiguration_s
    scale = unavoidable_s or 1.0
    work, delay = problem.seconds / scale, min(problem.reconfiguration_s / scale, 2.0)
    size = steps * planes
    begin = np.arange(size).reshape(steps, planes)
    end, served = begin + size, begin + 2 * size + steps
    step_end = 2 * size + np.arange(steps)
    constraints = _Constraints()
    for s in range(steps):
        constraints.add([(e, 1.0) for e in end[s]] + [(b, -1.0) for b in begin[s]], work[s])
        for p in range(planes):
            constraints.add([(end[s, p], 1.0), (begin[s, p], -1.0)], 0.0)
            constraints.add([(step_end[s], 1.0), (end[s, p], -1.0)], 0.0)
            if s:
                constraints.add([(begin[s, p], 1.0), (step_end[s - 1], -1.0)], 0.0)
            constraints.add([(served[s, p], work[s]), (end[s, p], -1.0), (begin[s, p], 1.0)], 0.0)
            for r in np.flatnonzero(problem.kinds[:s] != problem.kinds[s]):
                both_serve = [(served[s, p], -delay), (served[r, p], -delay)]
                constraints.add([(begin[s, p], 1.0), (end[r, p], -1.0), *both_serve], -delay)
    for p in range(planes - 1 if serves is None else 0):
        constraints.add([(served[0, p], 1.0), (served[0, p + 1], -1.0)], 0.0)
    total = 3 * size + steps
    low, high = np.zeros(total), np.full(total, np.inf)
    high[-size:] = 1.0
    if serves is not None:
        low[-size:] = high[-size:] = serves.ravel()
    cost = np.zeros(total)
    cost[step_end[-1]] = 1.0
    found = scipy.optimize.milp(
        cost,
        constraints=constraints.constraint(total),
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


class _Constraints:
    """Linear constraints ``A x >= b``, collected row by row."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, float]] = []
        self._least: list[float] = []

    def add(self, terms: list[tuple[int, float]], least: float) -> None:
        """Add the row ``sum value x[column] >= least``, from (column, value) pairs."""
        self._entries += [(len(self._least), column, value) for column, value in terms]
        self._least.append(least)

    def constraint(self, columns: int) -> scipy.optimize.LinearConstraint:
        """Return all rows as a constraint on a number of variables."""
        rows, places, values = zip(*self._entries, strict=True)
        matrix = scipy.sparse.coo_array((values, (rows, places)), shape=(len(self._least), columns)).tocsr()
        return scipy.optimize.LinearConstraint(matrix, lb=np.array(self._least))
