"""Circuits between phases, within collectives and for whole jobs: exact answers, laws and limits."""

import math
from collections import defaultdict
from itertools import pairwise, product

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from optical.scheduling.overlap import CollectiveStep, bruck_steps, collective_steps, overlap, staged
from optical.scheduling.schedule import Lanes, OcsBank, TrafficPhase, plan_phases
from optical.scheduling.topology import (
    AllReduceGroup,
    coprime_strides,
    job_time,
    job_topology,
    spread_strides,
)
from simulator.collectives.algorithms import Algorithm
from simulator.errors import ParameterError, RouteError
from simulator.operators import CollectiveKind
from tests.builders import coin_change_hops


def lanes(delay, count=3):
    return Lanes(count=count, rate_bytes_per_s=1.0, reconfiguration_s=delay)


def phases_of(seed, count=4, most_peers=2):
    rng = np.random.default_rng(seed)
    return [
        TrafficPhase(
            axis="abc"[int(rng.integers(2))],
            bytes_per_pair=float(rng.uniform(1.0, 10.0)),
            peers=int(rng.integers(1, most_peers + 1)),
            exchanges=int(rng.integers(1, 3)),
            idle_s=float(rng.uniform(0.0, 1.0)),
        )
        for _ in range(count)
    ]


def time_of(phases, given_lanes, delay):
    """Time of lanes by phase, written out: transfers, and the exposed delay wherever the lanes change."""
    axes = list(dict.fromkeys(phase.axis for phase in phases))
    total, before = 0.0, given_lanes[-1]
    for phase, now in zip(phases, given_lanes, strict=True):
        mine = now[axes.index(phase.axis)]
        exposed = max(0.0, delay - phase.idle_s)
        if not mine:
            return math.inf
        sizes = [len(one) for one in np.array_split(range(phase.peers), math.ceil(phase.peers / mine))]
        total += sum(phase.bytes_per_pair / (mine // size) for size in sizes)
        if len(sizes) > 1:
            total += (len(sizes) * phase.exchanges - 1) * delay + exposed
        else:
            total += exposed if now != before else 0.0
        before = now
    return total


@pytest.mark.parametrize("most_peers", [2, 5])
@pytest.mark.parametrize(("seed", "delay"), [(0, 0.0), (1, 0.5), (2, 1.5), (3, 3.0), (4, 100.0)])
def test_phases_move_where_no_other_choice_is_faster(seed, delay, most_peers):
    phases = phases_of(seed, most_peers=most_peers)
    count = len({phase.axis for phase in phases})
    choices = [one for one in product(range(4), repeat=count) if sum(one) == 3]
    best = min(time_of(phases, one, delay) for one in product(choices, repeat=len(phases)))
    plan = plan_phases(phases, lanes(delay))
    assert plan.time_s == pytest.approx(best)
    assert time_of(phases, plan.lanes, delay) == pytest.approx(best)
    assert plan.bound_s <= best * (1 + 1e-12)
    assert best <= plan.static_s * (1 + 1e-12)


def test_delays_that_idle_time_hides_cost_nothing():
    """Opus (arXiv:2507.08119): exposed is max(0, delta - idle)."""
    phases = [TrafficPhase(axis=axis, bytes_per_pair=9.0, idle_s=2.0) for axis in "abab"]
    hidden, shown = plan_phases(phases, lanes(2.0)), plan_phases(phases, lanes(2.5))
    assert hidden.time_s == hidden.bound_s == pytest.approx(4 * 3.0)
    assert hidden.moves == (True,) * 4
    assert sum(shown.exposed_s) == pytest.approx(4 * 0.5)


@pytest.mark.parametrize(("delay", "moves"), [(4.4, True), (4.6, False)])
def test_phases_move_if_that_saves_more_than_the_delay(delay, moves):
    """Two axes, two lanes: moving saves 4.5 s of each phase's 9 s on one lane."""
    phases = [TrafficPhase(axis=axis, bytes_per_pair=9.0) for axis in "ab"]
    plan = plan_phases(phases, lanes(delay, count=2))
    assert any(plan.moves) is moves
    assert plan.time_s == pytest.approx(2 * (4.5 + delay) if moves else 18.0)


@pytest.mark.parametrize(("peers", "turns"), [(3, 0), (4, 2), (7, 3)])
def test_more_peers_than_lanes_are_served_in_turns(peers, turns):
    """An even exchange is a permutation for each peer (Birkhoff-von Neumann); as many as lanes at once."""
    phase = TrafficPhase(axis="ep", bytes_per_pair=2.0, peers=peers, exchanges=5, idle_s=0.5)
    plan = plan_phases([phase], lanes(1.5))
    assert plan.turns == (5 * turns,)
    assert plan.moves == (False,)
    assert sum(plan.transfer_s) == plan.bound_s == pytest.approx(2.0 * max(1, turns))
    assert plan.time_s == pytest.approx(plan.bound_s + (5 * turns * 1.5 - 0.5 if turns else 0.0))
    assert math.isinf(plan.static_s) is bool(turns)
    assert plan_phases([phase], lanes(0.0)).over_bound == 1.0


def test_phases_that_cannot_be_served_are_refused():
    with pytest.raises(ParameterError, match="at least one phase"):
        plan_phases([], lanes(1.0))
    many = [TrafficPhase(axis=str(axis), bytes_per_pair=1.0) for axis in range(6)]
    with pytest.raises(ParameterError, match="bundles of lanes"):
        plan_phases(many, lanes(1.0, count=64))


def plant(planes, delay, rate=1.0):
    return OcsBank(rate_bytes_per_s=rate, reconfiguration_s=delay, switches=planes)


def steps_of(*sizes):
    return [CollectiveStep(destinations=(kind, -kind), size_bytes=size) for kind, size in sizes]


def check_plan(plan, steps, planes, delay):
    """Replay a plan: work done, steps in order, a delay between a plane's different permutations."""
    carried = plan.ends_s - plan.starts_s
    np.testing.assert_allclose(carried.sum(axis=1), [step.size_bytes for step in steps], atol=1e-6)
    assert (carried >= -1e-9).all()
    for index in range(1, len(steps)):
        lit = carried[index] > 1e-7
        assert (plan.starts_s[index][lit] >= plan.ends_s[:index][carried[:index] > 1e-7].max() - 1e-6).all()
    for plane in range(planes):
        served = [index for index in range(len(steps)) if carried[index, plane] > 1e-7]
        for before, after in pairwise(served):
            gap = plan.starts_s[after, plane] - plan.ends_s[before, plane]
            other = steps[before].destinations != steps[after].destinations
            assert gap >= (delay if other else 0.0) - 1e-6
    assert plan.makespan_s >= plan.bound_s * (1 - 1e-9)


@settings(max_examples=12, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.floats(0.5, 5.0)), min_size=1, max_size=4),
    planes=st.integers(1, 3),
    delay=st.floats(0.0, 4.0),
)
def test_overlapped_collectives_keep_order_work_and_delays(sizes, planes, delay):
    steps = steps_of(*sizes)
    exact = overlap(steps, plant(planes, delay))
    simple = overlap(steps, plant(planes, delay), nodes=0)
    for plan in (exact, simple):
        check_plan(plan, steps, planes, delay)
    assert exact.is_optimal
    assert exact.makespan_s <= simple.makespan_s * (1 + 1e-6)
    assert exact.makespan_s <= (sum(size for _, size in sizes) + delay * len(sizes)) * (1 + 1e-9)


@pytest.mark.parametrize(("delay", "makespan"), [(0.0, 4.0), (1.0, 5.0), (3.0, 7.0), (5.0, 8.0), (50.0, 8.0)])
def test_two_planes_and_two_steps_by_hand(delay, makespan):
    """Both planes serve both steps of 4 s and move between: 4 + delta; or each serves one step: 8."""
    assert overlap(steps_of((1, 4.0), (2, 4.0)), plant(2, delay)).makespan_s == pytest.approx(makespan)


def test_one_plane_pays_every_change_and_many_hide_them():
    """Recursive halving and doubling changes partners in all but the middle step."""
    steps = collective_steps(CollectiveKind.ALL_REDUCE, Algorithm.HALVING_DOUBLING, 8, 8.0)
    work = sum(step.size_bytes for step in steps)
    assert work == pytest.approx(2 * 7 / 8 * 8.0)
    assert len(steps) == 6
    alone = overlap(steps, plant(1, 2.0))
    assert alone.makespan_s == pytest.approx(work + 4 * 2.0)
    assert alone.is_optimal
    several = overlap(steps, plant(2, 2.0, rate=0.5))
    assert several.makespan_s < alone.makespan_s


def least_standing_s(steps, planes):
    """Least makespan if every plane keeps one permutation: over all numbers of planes for each."""
    work = defaultdict(float)
    for step in steps:
        work[step.destinations] += step.size_bytes
    several = product(range(1, planes + 1), repeat=len(work))
    shares = [one for one in several if sum(one) == planes]
    return min(sum(size / count for size, count in zip(work.values(), one, strict=True)) for one in shares)


@pytest.mark.parametrize("delay", [0.0, 0.3, 3.0, 1e4])
@pytest.mark.parametrize("planes", [3, 4, 6])
@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_no_plan_is_slower_than_a_permutation_standing_on_each_plane(ranks, planes, delay):
    kind = CollectiveKind.ALL_REDUCE
    for steps in (
        collective_steps(kind, Algorithm.HALVING_DOUBLING, ranks, 8.0),
        collective_steps(kind, Algorithm.RING, ranks, 8.0),
        bruck_steps(ranks, 8.0),
    ):
        if len({step.destinations for step in steps}) > planes:
            continue
        standing_s = least_standing_s(steps, planes)
        plan = overlap(steps, plant(planes, delay), nodes=0)
        check_plan(plan, steps, planes, delay)
        assert plan.makespan_s <= standing_s * (1 + 1e-6)
        if delay == 1e4:
            assert plan.makespan_s == pytest.approx(standing_s)


@pytest.mark.parametrize("delay", [1e6, 1e9, 1e12])
@pytest.mark.parametrize("algorithm", [Algorithm.HALVING_DOUBLING, Algorithm.DIRECT, Algorithm.RING])
def test_work_far_below_the_delays_does_not_drown(algorithm, delay):
    """Solvers lose a millionth of a delay: a robot's minutes beside a collective's microseconds."""
    steps = collective_steps(CollectiveKind.ALL_REDUCE, algorithm, 8, 8.0)
    plan = overlap(steps, plant(2, delay))
    check_plan(plan, steps, 2, delay)
    kinds = len({step.destinations for step in steps})
    work_s = sum(step.size_bytes for step in steps)
    moves = round(plan.makespan_s / delay)
    assert (moves == 0) == (kinds <= 2)
    assert moves * delay <= plan.makespan_s <= moves * delay + work_s
    assert plan.bound_s <= plan.makespan_s
    near = overlap(steps, plant(2, 1e3))
    assert moves == round(near.makespan_s / 1e3), "as many in a row as where nothing drowns"
    free = staged(steps, plant(2, delay))
    assert free.bound_s <= free.makespan_s * (1 + 1e-9)
    assert free.makespan_s >= work_s / 2


def served_s(steps, serves, delay):
    """Least makespan for given planes of each step, [S, planes]: a linear programme in starts and ends."""
    count, planes = serves.shape
    size = count * planes
    start, end = (np.arange(size).reshape(count, planes) + first for first in (0, size))
    rows, most = [], []

    def after(one, other, by=0.0):  # variable other is at least so much above variable one
        row = np.zeros(2 * size + count)
        row[one], row[other] = 1.0, -1.0
        rows.append(row)
        most.append(-by)

    work = np.zeros((count, 2 * size + count))
    for s, p in np.ndindex(serves.shape):
        work[s, end[s, p]], work[s, start[s, p]] = serves[s, p], -1.0 * serves[s, p]
        after(start[s, p], end[s, p])
        after(end[s, p], 2 * size + s)
        if s:
            after(2 * size + s - 1, start[s, p])
        for before in range(s):
            if serves[before, p] and serves[s, p] and steps[before].destinations != steps[s].destinations:
                after(end[before, p], start[s, p], delay)
    found = scipy.optimize.linprog(
        np.eye(2 * size + count)[-1],
        A_ub=np.array(rows),
        b_ub=most,
        A_eq=work,
        b_eq=[step.size_bytes for step in steps],
    )
    return found.fun


@pytest.mark.parametrize("seed", range(12))
def test_plans_without_a_search_are_near_the_least_of_all_choices(seed):
    """The exact search finds the best of all assignments of planes to steps."""
    rng = np.random.default_rng(seed)
    kinds, sizes = rng.integers(0, 3, size=4), rng.uniform(0.2, 4.0, size=4)
    steps = steps_of(*zip(kinds.tolist(), sizes.tolist(), strict=True))
    delay = float(10 ** rng.uniform(-1.0, 1.0))
    rows = [row for row in product([False, True], repeat=2) if any(row)]
    least_s = min(served_s(steps, np.array(serves), delay) for serves in product(rows, repeat=4))
    simple, exact = overlap(steps, plant(2, delay), nodes=0), overlap(steps, plant(2, delay))
    assert exact.makespan_s == pytest.approx(least_s, rel=1e-6)
    assert simple.bound_s <= least_s * (1 + 1e-9)
    assert least_s * (1 - 1e-6) <= simple.makespan_s <= 1.2 * least_s


def test_a_ring_never_moves():
    steps = collective_steps(CollectiveKind.ALL_REDUCE, Algorithm.RING, 6, 12.0)
    assert len({step.destinations for step in steps}) == 1
    plan = overlap(steps, plant(3, 1e6))
    assert plan.makespan_s == pytest.approx(2 * 5 / 6 * 12.0 / 3)
    assert plan.is_optimal


def test_direct_exchange_is_one_permutation_per_peer_and_bruck_the_logarithm():
    """Bruck et al. (1997): log2 n steps of half of the payload."""
    direct = collective_steps(CollectiveKind.ALL_TO_ALL, Algorithm.DIRECT, 8, 8.0)
    assert len({step.destinations for step in direct}) == len(direct) == 7
    assert all(step.size_bytes == pytest.approx(1.0) for step in direct)
    assert [step.size_bytes for step in bruck_steps(8, 8.0)] == [4.0] * 3
    assert sum(step.size_bytes for step in bruck_steps(6, 6.0)) == 3 + 2 + 2


def test_more_delay_never_helps_a_collective():
    steps = bruck_steps(8, 8.0)
    spans = [overlap(steps, plant(2, delay)).makespan_s for delay in (0.0, 0.5, 1.0, 2.0, 8.0)]
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in pairwise(spans))
    assert spans[0] == pytest.approx(6.0)


@pytest.mark.parametrize(("size", "totient"), [(2, 1), (7, 6), (12, 4), (16, 8), (30, 8)])
def test_strides_are_the_totatives_and_their_rings_visit_all(size, totient):
    """TopoOpt (NSDI 2023), theorem 2."""
    strides = coprime_strides(size)
    assert len(strides) == totient
    for stride in strides:
        assert len({step * stride % size for step in range(size)}) == size


def job(size, reduced=8.0, seed=None, degree=4):
    rng = np.random.default_rng(seed)
    demand = (
        np.zeros((size, size))
        if seed is None
        else rng.random((size, size)) * (rng.random((size, size)) < 0.3)
    )
    groups = [AllReduceGroup(members=tuple(range(size)), size_bytes=reduced)]
    return groups, demand, job_topology(groups, demand, degree=degree)


def test_an_all_reduce_alone_has_all_circuits_as_rings_and_meets_the_bound():
    groups, demand, topology = job(16)
    assert topology.strides == (spread_strides(16, 4),)
    found = job_time(topology, groups, demand, rate_bytes_per_s=2.0)
    assert found.time_s == pytest.approx(2 * 15 / 16 * 8.0 / (4 * 2.0))
    assert found.over_bound == pytest.approx(1.0)


def test_change_for_distances_is_the_hops_of_rings():
    _, _, topology = job(20)
    np.testing.assert_array_equal(topology.hops[0], coin_change_hops(20, topology.strides[0]))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_byte_is_lost_on_shortest_paths(seed):
    """What circuits carry is bytes times hops; what enters a server for it or leaves it is what was asked."""
    _, demand, topology = job(14, seed=seed)
    np.fill_diagonal(demand, 0.0)
    carried = topology.link_bytes(demand) * topology.links
    assert carried.sum() == pytest.approx((demand * np.where(demand > 0, topology.hops, 0.0)).sum())
    np.testing.assert_allclose(
        carried.sum(axis=1) - carried.sum(axis=0), demand.sum(axis=1) - demand.sum(axis=0), atol=1e-9
    )
    assert topology.links.sum(axis=1).max() <= 4
    assert topology.links.sum(axis=0).max() <= 4


def test_more_all_reduce_gets_more_rings_and_traffic_gets_circuits_of_its_own():
    rings = [len(job(12, reduced=size, seed=3)[2].strides[0]) for size in (0.01, 0.5, 5.0, 500.0)]
    assert rings == sorted(rings)
    assert rings[0] == 1
    assert rings[-1] == 4
    demand = np.zeros((8, 8))
    demand[2, 6] = demand[6, 2] = 100.0
    groups = [AllReduceGroup(members=tuple(range(8)), size_bytes=1.0)]
    made_for, ring_only = (job_topology(groups, d, degree=3) for d in (demand, np.zeros((8, 8))))
    assert made_for.links[2, 6] == made_for.links[6, 2] == 2
    times = [job_time(one, groups, demand, rate_bytes_per_s=1.0).time_s for one in (made_for, ring_only)]
    assert times[0] < times[1]
    assert job_time(made_for, groups, demand, rate_bytes_per_s=1.0).over_bound >= 1.0


def test_jobs_that_cannot_be_wired_are_refused():
    with pytest.raises(ParameterError, match="two or more different servers"):
        AllReduceGroup(members=(1, 1), size_bytes=1.0)
    with pytest.raises(ParameterError, match="there are 0 to 3"):
        job_topology([AllReduceGroup(members=(0, 4), size_bytes=1.0)], np.zeros((4, 4)), degree=1)
    with pytest.raises(ParameterError, match="degree must be at least 1"):
        job_topology([], np.zeros((4, 4)), degree=0)
    demand = np.zeros((4, 4))
    demand[0, 1:] = 1.0
    with pytest.raises(RouteError, match="no path of circuits from server 0"):
        job_time(job_topology([], demand, degree=1), [], demand, rate_bytes_per_s=1.0)


def shifts(sizes, stages=None):
    """Steps of distinct permutations of as many ranks and one, of given bytes."""
    ranks = len(sizes) + 1
    stages = stages or [0] * len(sizes)
    return [
        CollectiveStep(
            destinations=tuple((rank + shift) % ranks for rank in range(ranks)), size_bytes=size, stage=stage
        )
        for shift, (size, stage) in enumerate(zip(sizes, stages, strict=True), start=1)
    ]


def least_by_enumeration(sizes, planes, reconfiguration_s):
    """Least makespan over every choice of planes for each job; shares are a flow (Gale 1957): what some jobs
    need must find room on the planes that serve them."""
    least, some = math.inf, range(1, 2**planes)
    for served in product(some, repeat=len(sizes)):
        moves = [max(0, sum(one >> plane & 1 for one in served) - 1) for plane in range(planes)]
        jobs = [
            [job for job in range(len(sizes)) if subset >> job & 1] for subset in range(1, 2 ** len(sizes))
        ]
        needed = []
        for mine in jobs:
            room = [plane for plane in range(planes) if any(served[job] >> plane & 1 for job in mine)]
            work = sum(sizes[job] for job in mine)
            needed.append(_level(work, sorted(moves[plane] * reconfiguration_s for plane in room)))
        least = min(least, max(needed))
    return least


def _level(work, floors):
    """Height to which work fills vessels with floors of given heights; those above stay as they are."""
    level = floors[0]
    for count, floor in enumerate([*floors[1:], math.inf], start=1):
        if work <= count * (floor - level):
            return max(level + work / count, floors[-1])
        work -= count * (floor - level)
        level = floor
    return level


@pytest.mark.parametrize("seed", range(12))
def test_free_steps_end_with_the_least_of_all_plans(seed):
    """The exact search over shares equals an enumeration of the planes of each job."""
    rng = np.random.default_rng(seed)
    sizes = rng.uniform(0.5, 3.0, size=int(rng.integers(2, 6)))
    bank = OcsBank(switches=2, rate_bytes_per_s=1.0, reconfiguration_s=float(rng.uniform(0.05, 1.5)))
    plan, least = staged(shifts(sizes), bank), least_by_enumeration(sizes, 2, bank.reconfiguration_s)
    assert plan.bound_s <= least * (1 + 1e-6)
    assert plan.makespan_s == pytest.approx(least, rel=2e-6)
    assert plan.is_optimal


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.floats(0.01, 5.0), min_size=1, max_size=9),
    planes=st.integers(1, 5),
    reconfiguration_s=st.floats(0.0, 3.0),
    cuts=st.integers(1, 3),
)
def test_planes_carry_all_work_one_permutation_at_a_time_and_move_between(
    sizes, planes, reconfiguration_s, cuts
):
    stages = [place * cuts // len(sizes) for place in range(len(sizes))]
    bank = OcsBank(switches=planes, rate_bytes_per_s=1.0, reconfiguration_s=reconfiguration_s)
    plan = staged(shifts(sizes, stages), bank)
    np.testing.assert_allclose((plan.ends_s - plan.starts_s).sum(axis=1), sizes, rtol=1e-9)
    assert plan.ends_s.max() == pytest.approx(plan.makespan_s)
    for plane in range(planes):
        used = np.flatnonzero(plan.ends_s[:, plane] > plan.starts_s[:, plane])
        order = used[np.argsort(plan.starts_s[used, plane])]
        gaps = plan.starts_s[order[1:], plane] - plan.ends_s[order[:-1], plane]
        assert (gaps >= reconfiguration_s * (1 - 1e-9) - 1e-9).all()
    for stage in range(1, max(stages) + 1):
        later = np.array(stages) >= stage
        busy = plan.ends_s > plan.starts_s
        assert plan.starts_s[later][busy[later]].min() >= plan.ends_s[~later].max() * (1 - 1e-12)


def test_a_stage_that_asks_for_the_same_permutations_again_runs_backwards_without_a_move():
    bank = OcsBank(switches=2, rate_bytes_per_s=1.0, reconfiguration_s=1.0)
    once, twice = shifts([1.0] * 5), []
    twice = [*once, *(CollectiveStep(destinations=one.destinations, size_bytes=1.0, stage=1) for one in once)]
    assert staged(twice, bank).makespan_s == pytest.approx(2 * staged(once, bank).makespan_s)
