"""Exact schedules of small demands: the least over all sets of permutations, which heuristics come near."""

from itertools import combinations, permutations

import numpy as np
import pytest
import scipy.optimize

from optical.scheduling.birkhoff import birkhoff_von_neumann
from optical.scheduling.schedule import DARK, LIMITS, OcsBank, SchedulePolicy, _least_over, applies, schedule
from simulator.errors import ParameterError

BANK = OcsBank(rate_bytes_per_s=50e9, reconfiguration_s=25e-6)
HEURISTICS = [one for one in SchedulePolicy if one not in LIMITS]


def demand_of(ports, seed, most=10e6):
    demand = np.random.default_rng(seed).uniform(0.0, most, (ports, ports))
    np.fill_diagonal(demand, 0.0)
    return demand


def least_s(demand):
    """Return the least makespan by a linear programme for each set of permutations."""
    every = list(permutations(range(len(demand))))
    best = np.inf
    for count in range(1, len(every) + 1):
        for some in combinations(every, count):
            serves = np.zeros((demand.size, count))
            for column, one in enumerate(some):
                serves[[row * len(demand) + to for row, to in enumerate(one)], column] = -1.0
            if (serves.sum(axis=1) == 0.0)[demand.ravel() > 0.0].any():
                continue
            found = scipy.optimize.linprog(np.ones(count), A_ub=serves, b_ub=-demand.ravel() / 1e6)
            best = min(best, found.fun * 1e6 / BANK.rate_bytes_per_s + count * BANK.reconfiguration_s)
    return best


@pytest.mark.parametrize("seed", range(3))
def test_the_exact_schedule_is_the_least_over_all_sets_of_permutations(seed):
    demand = demand_of(3, seed)
    found = schedule(demand, SchedulePolicy.EXACT, BANK)
    assert found.makespan_s == pytest.approx(least_s(demand), rel=1e-4)


def test_the_example_of_the_documentation_takes_380_us():
    demand = np.array([[0, 8, 1, 3], [2, 0, 9, 0], [5, 1, 0, 6], [0, 4, 2, 0]]) * 1e6
    found = schedule(demand, SchedulePolicy.EXACT, BANK)
    assert found.configurations == 4
    assert found.makespan_s == pytest.approx(380e-6, rel=1e-4)


def test_the_best_heuristic_stays_within_a_tenth_of_the_least():
    """Of 12 random demands of 4 ports; an earlier count over 63 found up to 9.5 %."""
    gaps = []
    for seed in range(12):
        demand = demand_of(4, seed)
        least = schedule(demand, SchedulePolicy.EXACT, BANK).makespan_s
        gaps.append(min(schedule(demand, one, BANK).makespan_s for one in HEURISTICS) / least - 1.0)
    assert min(gaps) > -1e-4
    assert 0.0 < np.mean(gaps) < 0.05
    assert max(gaps) < 0.10


@pytest.mark.parametrize("seed", range(4))
def test_the_exact_schedule_of_four_ports_is_the_least_over_all_permutations_at_once(seed):
    """Another integer programme: which of all 24 permutations are used, and for how long each."""
    demand = demand_of(4, seed)
    every = np.array(list(permutations(range(4))))
    delay_bytes = BANK.reconfiguration_s * BANK.rate_bytes_per_s
    chosen = _least_over(demand, every, delay_bytes, {"mip_rel_gap": 1e-5})
    least = sum(held for _, held in chosen) + delay_bytes * len(chosen)
    found = schedule(demand, SchedulePolicy.EXACT, BANK)
    assert found.makespan_s * BANK.rate_bytes_per_s == pytest.approx(least, rel=1e-4)


def test_sparse_and_uneven_demands_are_scheduled_exactly():
    """A star takes a configuration a peer; a permutation one; what has no traffic none."""
    star = np.zeros((5, 5))
    star[0, 1:] = [4e6, 3e6, 2e6, 1e6]
    found = schedule(star, SchedulePolicy.EXACT, BANK)
    assert found.makespan_s == pytest.approx(10e6 / 50e9 + 4 * 25e-6)
    turned = schedule(star.T, SchedulePolicy.EXACT, BANK)
    assert turned.makespan_s == pytest.approx(found.makespan_s)
    ring = np.roll(np.eye(6), 1, axis=1) * 5e6
    assert schedule(ring, SchedulePolicy.EXACT, BANK).makespan_s == pytest.approx(5e6 / 50e9 + 25e-6)
    for policy in LIMITS:
        assert schedule(np.zeros((6, 6)), policy, BANK).configurations == 0


def test_pooled_permutations_come_within_half_a_percent_of_the_least():
    """Six of these demands, on which the best heuristic alone leaves up to a tenth."""
    for seed in range(6):
        demand = demand_of(4, seed)
        least = schedule(demand, SchedulePolicy.EXACT, BANK).makespan_s
        assert -1e-4 < schedule(demand, SchedulePolicy.POOLED, BANK).makespan_s / least - 1.0 < 5e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ports", "reconfiguration_s", "seeds", "pooled", "heuristic"),
    [(5, 25e-6, (2, 3), 0.016, 0.098), (6, 50e-6, (2, 3), 0.0, 0.022)],
)
def test_gaps_of_heuristics_up_to_six_ports(ports, reconfiguration_s, seeds, pooled, heuristic):
    """Largest gaps to a makespan that is proven, of pooled permutations and of the rest.

    Of four demands of each size these have the largest.
    """
    bank = OcsBank(rate_bytes_per_s=50e9, reconfiguration_s=reconfiguration_s)
    gaps = []
    for seed in seeds:
        demand = demand_of(ports, seed)
        least = schedule(demand, SchedulePolicy.EXACT, bank).makespan_s
        best = min(schedule(demand, one, bank).makespan_s for one in HEURISTICS)
        gaps.append(
            (schedule(demand, SchedulePolicy.POOLED, bank).makespan_s / least - 1.0, best / least - 1.0)
        )
    assert np.min(gaps) > -1e-4
    assert np.max(gaps, axis=0) == pytest.approx((pooled, heuristic), abs=0.002)


def test_pooled_permutations_are_never_worse_than_the_best_heuristic_and_shorten_some():
    gains = []
    for seed in range(3):
        demand = demand_of(5, seed)
        best = min(schedule(demand, one, BANK).makespan_s for one in HEURISTICS)
        gains.append(1.0 - schedule(demand, SchedulePolicy.POOLED, BANK).makespan_s / best)
    assert min(gains) >= -1e-9
    assert max(gains) > 1e-3


@pytest.mark.parametrize("policy", LIMITS)
@pytest.mark.parametrize("dark", [0.0, 0.5])
def test_schedules_that_are_solved_for_serve_all_by_matchings_above_the_bound(policy, dark):
    for seed in range(3):
        demand = demand_of(4, seed)
        demand[np.random.default_rng(seed).random(demand.shape) < dark] = 0.0
        found = schedule(demand, policy, BANK)
        served = np.zeros(demand.shape)
        for row, length_s in zip(found.permutations, found.durations_s, strict=True):
            lit = np.flatnonzero(row != DARK)
            assert len(set(row[lit])) == lit.size
            served[lit, row[lit]] += length_s * BANK.rate_bytes_per_s
        assert (served >= demand - 2e-9 * demand.sum()).all()
        assert not found.residue.any()
        assert found.makespan_s >= found.bound_s * (1.0 - 1e-9)


def test_what_is_too_large_is_refused_and_left_out():
    assert not applies(SchedulePolicy.EXACT, 7, BANK)
    with pytest.raises(ParameterError, match="at most 6 ports on one switch"):
        schedule(demand_of(7, 0), SchedulePolicy.EXACT, BANK)
    assert not applies(SchedulePolicy.POOLED, 7, BANK)


def test_a_policy_or_matching_by_its_text_is_refused():
    """A text was another policy without a word: 'exact' was pooled, any matching the bottleneck one."""
    with pytest.raises(ParameterError, match="policy must be a SchedulePolicy"):
        schedule(demand_of(4, 0), "exact", BANK)
    with pytest.raises(ParameterError, match="matching must be a Matching"):
        birkhoff_von_neumann(np.full((4, 4), 1.0), "hungarian")
