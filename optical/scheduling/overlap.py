"""Circuits that change within a collective: one plane moves while the others transmit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from optical.scheduling.birkhoff import fewest
from optical.scheduling.schedule import OcsBank
from simulator.collectives.algorithms import Algorithm, vector_bytes
from simulator.collectives.algorithms import schedule as steps_of_algorithm
from simulator.errors import ParameterError
from simulator.operators import CollectiveKind

NODES = 1000
"""Nodes of the branch and bound after which the best plan found is taken."""
MOST_BINARIES = 160
"""Steps times planes up to which the exact search runs at all."""
MOST_SHARED = 16
"""Permutations of a stage times planes up to which its best shares are searched exactly."""
DROWNED = 1e-5
"""Least work over the time of all steps of a linear programme: solvers keep constraints to 1e-7."""
_FLIPS = 256
_LEAST_SHARE = 1e-9
_HALVINGS = 60
_Piece = tuple[int, int, float, float]
"""Job, plane, and when the plane begins and ends to carry it."""


@dataclass(frozen=True, kw_only=True)
class CollectiveStep:
    """Transfers of a collective that one permutation carries."""

    destinations: tuple[int, ...]
    """Peer of each rank; the rank itself for none."""
    size_bytes: float
    """Bytes from each rank."""
    stage: int = 0
    """Steps of one stage wait for those of the stage before, and not for each other."""


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
        steps.append(CollectiveStep(destinations=peers, size_bytes=block * blocks, stage=bit))
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
    """Steps as numbers: seconds on one plane, and the index of the permutation."""

    seconds: np.ndarray
    kinds: np.ndarray
    planes: int
    reconfiguration_s: float

    @cached_property
    def holders(self) -> np.ndarray:
        """Plane that carries each whole step if planes move as rarely as can be, shape [S].

        Planes are a cache of permutations; replacing what is wanted last misses least (Belady 1966), and of
        what is wanted no more that which was used longest ago, so that its plane has moved when it is needed.
        As many as there are planes stand before the first step.
        """
        held: list[int] = []
        found, kinds = [], self.kinds.tolist()
        for place, kind in enumerate(kinds):
            if kind not in held and len(held) < self.planes:
                held.append(kind)
            elif kind not in held:
                rest, used = kinds[place:], dict(zip(kinds[:place], range(place), strict=True))
                wanted = {one: rest.index(one) if one in rest else len(rest) for one in held}
                held[held.index(max(held, key=lambda one: (wanted[one], -used[one])))] = kind
            found.append(held.index(kind))
        return np.array(found)

    @cached_property
    def fewest_moves(self) -> int:
        """Moves without which some step finds its permutation on no plane."""
        served = [self.kinds[self.holders == plane] for plane in range(self.planes)]
        return sum(int(np.count_nonzero(np.diff(mine))) for mine in served)

    @property
    def drowns(self) -> bool:
        """Whether the least work is beyond a solver's tolerance beside the moves."""
        whole_s = float(self.seconds.sum()) + self.fewest_moves * self.reconfiguration_s
        return float(self.seconds[self.seconds > 0.0].min(initial=np.inf)) < DROWNED * whole_s

    @property
    def bound_s(self) -> float:
        """Work and the fewest moves that any plan needs, shared equally by the planes."""
        return float(self.seconds.sum() + self.fewest_moves * self.reconfiguration_s) / self.planes


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
    programme, whose relaxation is also a bound. The heuristic begins with planes in turns, of the best number
    of groups, and with circuits that stand as long as they can; from each it changes single choices while
    that helps, and keeps the better.
    """
    if not steps:
        msg = "a plan needs at least one step"
        raise ParameterError(msg)
    names = {step.destinations: index for index, step in enumerate(reversed(steps))}
    problem = _Problem(
        seconds=np.array([step.size_bytes for step in steps]) / bank.rate_bytes_per_s,
        kinds=np.array([names[step.destinations] for step in steps]),
        planes=bank.switches,
        reconfiguration_s=bank.reconfiguration_s,
    )
    best = _improved(problem, _in_turns(problem))
    if best.makespan_s > problem.bound_s * (1.0 + 1e-9):
        best = min(best, _improved(problem, _standing(problem)), key=lambda one: one.makespan_s)
    bound_s, proven = problem.bound_s, False
    if nodes > 0 and not problem.drowns and bank.switches > 1 and len(steps) * bank.switches <= MOST_BINARIES:
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


def staged(steps: Sequence[CollectiveStep], bank: OcsBank) -> OverlapPlan:
    """Return how planes share the steps of a collective, those of a stage in any order and several at once.

    Parameters
    ----------
    steps : sequence of CollectiveStep
        Stage after stage.
    bank : OcsBank
        Planes, as in `overlap`; the first permutations stand already.

    Raises
    ------
    ParameterError
        If there is no step.

    Notes
    -----
    A stage is one of divisible jobs with setup times on like machines. No plan beats its work and, of n
    distinct permutations on P planes, n - P moves, shared equally. The best of these is taken: whole
    permutations, the longest first, each on the plane that is free first (Graham 1969); planes filled one
    after the other up to a common end, where the permutation at a plane's end goes on at the next plane's
    beginning (McNaughton 1959), which is at most (P - 1) / P moves above that; or, of few permutations, the
    best of all shares, by a mixed-integer programme. Between stages all planes move, unless the next asks for
    the same permutations: it then runs backwards from those that stand.
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
    before: tuple[tuple[int, ...], ...] = ()
    backwards = False
    for turn, mine in enumerate(places):
        peers = tuple(steps[int(place)].destinations for place in mine)
        seconds = np.array([steps[int(place)].size_bytes for place in mine]) / bank.rate_bytes_per_s
        plan = _stage(peers, seconds, bank)
        again = peers == before
        now += bank.reconfiguration_s if turn > 0 and not again else 0.0
        backwards = again and not backwards
        begin, end = plan.starts_s, plan.ends_s
        if backwards:
            begin, end = plan.makespan_s - end, plan.makespan_s - begin
        starts[mine], ends[mine] = now + begin, now + end
        now, bound_s, before = now + plan.makespan_s, bound_s + plan.bound_s, peers
    return OverlapPlan(
        starts_s=starts,
        ends_s=ends,
        makespan_s=now,
        bound_s=min(bound_s, now),
        is_optimal=now <= bound_s * (1.0 + 1e-5),
    )


def _stage(peers: Sequence[tuple[int, ...]], seconds: np.ndarray, bank: OcsBank) -> OverlapPlan:
    """Return how planes share permutations that wait for nothing.

    Parameters
    ----------
    peers : sequence of tuple of int
        Permutations; equal ones are one job.
    seconds : numpy.ndarray
        Time of each on one plane, shape [S].
    bank : OcsBank
        Planes.
    """
    kinds = np.array([peers.index(one) for one in peers])
    work = np.bincount(kinds, weights=seconds, minlength=len(peers))
    jobs = [int(job) for job in np.argsort(-work, kind="stable") if work[job] > 0.0]
    moves = max(0, len(jobs) - bank.switches)
    bound_s = (float(work.sum()) + moves * bank.reconfiguration_s) / bank.switches
    tried = [_whole(work, jobs, bank), _filled(work, jobs, bank, bound_s)]
    if 1 < len(jobs) * bank.switches <= MOST_SHARED:
        shares, proven_s = _shared(work[jobs], bank)
        tried += [_one_after_the_other(shares, jobs, bank)] if shares is not None else []
        bound_s = max(bound_s, proven_s)
    best = min(tried, key=_makespan_s)
    starts, ends = (np.zeros((len(peers), bank.switches)) for _ in range(2))
    for job, plane, start, end in best:
        mine = np.flatnonzero(kinds == job)
        edges = start + (end - start) * np.cumsum([0.0, *(seconds[mine] / work[job])])
        starts[mine, plane], ends[mine, plane] = edges[:-1], edges[1:]
    makespan_s = _makespan_s(best)
    return OverlapPlan(
        starts_s=starts,
        ends_s=ends,
        makespan_s=makespan_s,
        bound_s=min(bound_s, makespan_s),
        is_optimal=makespan_s <= bound_s * (1.0 + 1e-5),
    )


def _makespan_s(pieces: Sequence[_Piece]) -> float:
    return max((end for *_, end in pieces), default=0.0)


def _whole(work: np.ndarray, jobs: Sequence[int], bank: OcsBank) -> list[_Piece]:
    """Return pieces of which each is a whole job, the longest first, on the plane that is free first."""
    free = np.full(bank.switches, -bank.reconfiguration_s)
    pieces = []
    for job in jobs:
        plane = int(np.argmin(free))
        start = free[plane] + bank.reconfiguration_s
        free[plane] = start + work[job]
        pieces.append((job, plane, float(start), float(free[plane])))
    return pieces


def _shared(work: np.ndarray, bank: OcsBank) -> tuple[np.ndarray | None, float]:
    """Return the least plan's time of each job on each plane, shape [jobs, planes], and a bound on any's end.

    A mixed-integer programme: a job's shares add up to its work, and a plane ends after its shares and a move
    before each job but its first. Solved to within 10^-6, or as far as the nodes go.
    """
    jobs, planes = len(work), bank.switches
    size = jobs * planes
    scale = float(work.sum()) + max(0, jobs - planes) * bank.reconfiguration_s
    delay = min(bank.reconfiguration_s / scale, 2.0)
    rows = _Rows()
    for job in range(jobs):
        rows.add([(job * planes + plane, 1.0) for plane in range(planes)], work[job] / scale)
        for plane in range(planes):
            place = job * planes + plane
            rows.add([(size + place, work[job] / scale), (place, -1.0)], 0.0)
    for plane in range(planes):
        mine = [job * planes + plane for job in range(jobs)]
        shares = [(place, -1.0) for place in mine] + [(size + place, -delay) for place in mine]
        rows.add([(2 * size, 1.0), *shares], -delay)
    high = np.full(2 * size + 1, np.inf)
    high[size : 2 * size] = 1.0
    found = scipy.optimize.milp(
        np.concatenate([np.zeros(2 * size), [1.0]]),
        constraints=rows.constraint(2 * size + 1),
        bounds=scipy.optimize.Bounds(np.zeros(2 * size + 1), high),
        integrality=np.concatenate([np.zeros(size), np.ones(size), [0.0]]),
        options={"node_limit": NODES, "mip_rel_gap": 1e-6},
    )
    bound_s = float(getattr(found, "mip_dual_bound", None) or 0.0) * scale
    if found.x is None:
        return None, bound_s
    shares = found.x[:size].reshape(jobs, planes)
    shares[shares < _LEAST_SHARE] = 0.0
    if not shares.any(axis=1).all():  # work that drowns in the solver's tolerance
        return None, bound_s
    return shares / shares.sum(axis=1, keepdims=True) * work[:, None], bound_s


def _one_after_the_other(shares: np.ndarray, jobs: Sequence[int], bank: OcsBank) -> list[_Piece]:
    """Return the pieces of every plane in turn, a move between them."""
    pieces: list[_Piece] = []
    for plane in range(bank.switches):
        now = 0.0
        for place in np.flatnonzero(shares[:, plane]):
            end = now + float(shares[place, plane])
            pieces.append((jobs[int(place)], plane, now, end))
            now = end + bank.reconfiguration_s
    return pieces


def _filled(work: np.ndarray, jobs: Sequence[int], bank: OcsBank, bound_s: float) -> list[_Piece]:
    """Return pieces that fill one plane after the other up to the earliest common end at which all fit."""
    low, high = bound_s, bound_s + bank.reconfiguration_s + float(work.max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if _fill(work, jobs, bank, middle) is not None else (middle, high)
    return _fill(work, jobs, bank, high) or _whole(work, jobs, bank)


def _fill(work: np.ndarray, jobs: Sequence[int], bank: OcsBank, end_s: float) -> list[_Piece] | None:
    """Return such pieces for one common end, or None if they do not fit."""
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
            pieces.append((job, plane, now, now + carried))
            left, now = left - carried, now + carried + bank.reconfiguration_s
    return pieces


def _in_turns(problem: _Problem) -> np.ndarray:
    """Return who serves what, shape [S, planes], if planes take turns in the best number of groups.

    More groups than permutations that follow each other would leave planes idle.
    """
    steps, planes = len(problem.seconds), problem.planes
    changes = np.concatenate([[0], np.cumsum(problem.kinds[1:] != problem.kinds[:-1])])
    tried = []
    for groups in range(1, min(planes, int(changes[-1]) + 1) + 1):
        serves = (changes[:, None] - np.arange(planes)[None, :]) % groups == 0
        plan = _timed(problem, serves)
        if plan is not None:
            tried.append((plan.makespan_s, groups, serves))
    if not tried:
        return np.ones((steps, planes), dtype=bool)
    return min(tried, key=lambda one: one[:2])[2]


def _standing(problem: _Problem) -> np.ndarray:
    """Return who serves what, shape [S, planes], if planes move as rarely as can be.

    Planes that are left over stand with the others where they save most: of work w on n planes, one more
    saves w / (n (n + 1)).
    """
    serves = problem.holders[:, None] == np.arange(problem.planes)[None, :]
    work = np.bincount(problem.kinds, weights=problem.seconds)
    count = np.ones(work.size)
    for plane in range(int(problem.holders.max()) + 1, problem.planes):
        kind = int(np.argmax(work / (count * (count + 1.0))))
        count[kind] += 1.0
        serves[problem.kinds == kind, plane] = True
    return serves


def _timed(problem: _Problem, serves: np.ndarray) -> OverlapPlan | None:
    """Return the best plan for given services; where work drowns, each step ends as early as it can."""
    return _as_ready(problem, serves) if problem.drowns else _solved(problem, serves, 0)


def _as_ready(problem: _Problem, serves: np.ndarray) -> OverlapPlan:
    """Return the plan in which each step ends as early as those that serve it can make it."""
    steps, planes = serves.shape
    starts, ends = np.zeros((steps, planes)), np.zeros((steps, planes))
    free, held, now = np.zeros(planes), np.full(planes, -1), 0.0
    for step, (kind, work) in enumerate(zip(problem.kinds, problem.seconds, strict=True)):
        moves = (held >= 0) & (held != kind)
        ready = np.where(serves[step], np.maximum(now, free + moves * problem.reconfiguration_s), np.inf)
        order = np.sort(ready[serves[step]])
        filled = (work + np.cumsum(order)) / np.arange(1, order.size + 1)
        before, now = now, float(filled[filled <= np.append(order[1:], np.inf)][0])
        starts[step], ends[step] = np.where(ready < now, ready, before), np.where(ready < now, now, before)
        free, held = np.where(ready < now, now, free), np.where(ready < now, kind, held)
    return OverlapPlan(starts_s=starts, ends_s=ends, makespan_s=now, bound_s=0.0, is_optimal=False)


def _improved(problem: _Problem, serves: np.ndarray) -> OverlapPlan:
    """Return the plan after changing single choices while that helps."""
    best = _timed(problem, serves)
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
        plan = _timed(problem, other) if other[place[0]].any() else None
        if plan is not None and plan.makespan_s < best.makespan_s * (1.0 - 1e-9):
            best, serves = plan, other
    return best


def _solved(problem: _Problem, serves: np.ndarray | None, nodes: int) -> OverlapPlan | None:
    """Return the best plan, for given services by linear programming, or of all by branch and bound.

    Variables: starts and ends [S, planes], ends of steps [S], services [S, planes] if they are open.
    """
    steps, planes = len(problem.seconds), problem.planes
    # A delay far above all work would drown in the solver's tolerance; twice the work forbids moves as well.
    unavoidable_s = float(problem.seconds.sum()) + problem.fewest_moves * problem.reconfiguration_s
    scale = unavoidable_s or 1.0
    work, delay = problem.seconds / scale, min(problem.reconfiguration_s / scale, 2.0)
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
