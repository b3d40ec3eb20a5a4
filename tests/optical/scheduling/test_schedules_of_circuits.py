"""Schedules of circuits with delay: valid, complete, above the bound, and the laws of each policy."""

from functools import cache
from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment, linprog

from optical.scheduling.birkhoff import (
    degree,
    double,
    duty,
    eclipse,
    exposed_delay,
    fewest,
    is_worth_moving,
    largest_line,
    makespan_bound,
)
from optical.scheduling.schedule import (
    BIRKHOFF,
    DARK,
    LIMITS,
    CircuitSchedule,
    OcsBank,
    SchedulePolicy,
    schedule,
    spread,
)

POLICIES = [one for one in SchedulePolicy if one not in LIMITS]  # test_exact


def random_demand(seed, size, density=1.0):
    rng = np.random.default_rng(seed)
    return rng.pareto(2.0, (size, size)) * (rng.random((size, size)) < density)


@cache
def matchings(size):
    return [np.eye(size)[list(one)].ravel() for one in permutations(range(size))]


def subsets(size):
    every = matchings(size)
    return [chosen for count in range(len(every) + 1) for chosen in combinations(every, count)]


def least_makespan(demand, delay, chosen_of_switches, packet_rate=0.0):
    """Least time at rate one for given matchings of each switch: lengths, residue and makespan by an LP."""
    size, columns, moves = len(demand), [], []
    for chosen in chosen_of_switches:
        moves.append((len(columns), len(chosen)))
        columns += chosen
    count, pairs = len(columns), size * size
    cost = np.zeros(count + pairs + 1)
    cost[-1] = 1.0
    covers = np.concatenate(
        [-np.array(columns).reshape(count, pairs).T, -np.eye(pairs), np.zeros((pairs, 1))], axis=1
    )
    lines = []
    for index in range(size):
        for axis in (0, 1):
            line = np.zeros((size, size))
            line[(index, slice(None)) if axis else (slice(None), index)] = 1.0
            lines.append(np.concatenate([np.zeros(count), line.ravel(), [-packet_rate]]))
    ends, least = [], []
    for first, amount in moves:
        row = np.zeros(len(cost))
        row[first : first + amount], row[-1] = 1.0, -1.0
        ends.append(row)
        least.append(-delay * amount)
    found = linprog(
        cost,
        A_ub=np.concatenate([covers, np.array(lines), np.array(ends)]),
        b_ub=np.concatenate([-demand.ravel(), np.zeros(len(lines)), least]),
    )
    return found.fun if found.status == 0 else np.inf


def optimum(demand, delay, switches=1, packet_rate=0.0):
    choices = subsets(len(demand))
    return min(least_makespan(demand, delay, one, packet_rate) for one in product(choices, repeat=switches))


@settings(max_examples=40, deadline=None)
@given(
    matrix=st.tuples(st.integers(0, 10**6), st.integers(2, 9), st.floats(0.2, 1.0)),
    delay=st.floats(0.0, 2.0),
    switches=st.integers(1, 4),
    packet_rate=st.sampled_from([0.0, 0.1, 0.5]),
    policy=st.sampled_from(POLICIES),
)
def test_every_schedule_serves_the_demand_above_the_bound(policy, matrix, delay, switches, packet_rate):
    demand = random_demand(*matrix)
    size = len(demand)
    bank = OcsBank(
        rate_bytes_per_s=2.0, reconfiguration_s=delay, switches=switches, packet_rate_bytes_per_s=packet_rate
    )
    found = schedule(demand, policy, bank)
    assert found.makespan_s >= found.bound_s * (1.0 - 1e-9)
    served = np.zeros(demand.shape)
    for row, length in zip(found.permutations, found.durations_s, strict=True):
        lit = row != DARK
        assert len(set(row[lit])) == lit.sum()
        served[np.flatnonzero(lit), row[lit]] += 2.0 * length
    left = np.clip(demand - served, 0.0, None)
    tolerance = 2e-9 * max(largest_line(demand), 1.0)
    np.testing.assert_allclose(left, found.residue, atol=tolerance)
    if packet_rate == 0.0:
        assert left.max() <= tolerance
    else:
        assert largest_line(left) <= packet_rate * found.makespan_s + tolerance * size
    loads = [(found.durations_s[found.switch_of == one] + delay).sum() for one in range(switches)]
    assert found.circuit_makespan_s == pytest.approx(max(loads))
    least = largest_line(demand - found.residue) / (2.0 * switches) + delay * (found.configurations > 0)
    assert least * (1.0 - 1e-9) <= found.ports_alone_s <= found.circuit_makespan_s * (1.0 + 1e-9)


@pytest.mark.parametrize("packet_rate", [0.0, 0.3])
@pytest.mark.parametrize(("seed", "delay"), [(0, 0.0), (1, 0.2), (2, 1.0), (3, 4.0)])
def test_bound_below_optimum_below_every_policy(seed, delay, packet_rate):
    """The optimum over all sets of matchings of three ports and, by an LP, all their lengths."""
    demand = random_demand(seed, 3, 0.8)
    best = optimum(demand, delay, packet_rate=packet_rate)
    bound = makespan_bound(
        demand, rate_bytes_per_s=1.0, reconfiguration_s=delay, packet_rate_bytes_per_s=packet_rate
    )
    assert bound <= best * (1.0 + 1e-9)
    assert bound >= 0.5 * best
    for policy in POLICIES:
        bank = OcsBank(rate_bytes_per_s=1.0, reconfiguration_s=delay, packet_rate_bytes_per_s=packet_rate)
        assert schedule(demand, policy, bank).makespan_s >= best * (1.0 - 1e-9)


@pytest.mark.parametrize(("seed", "delay"), [(0, 0.0), (1, 0.3), (2, 2.0)])
def test_bound_holds_for_two_switches(seed, delay):
    demand = random_demand(seed, 2)
    best = optimum(demand, delay, switches=2)
    bound = makespan_bound(demand, rate_bytes_per_s=1.0, reconfiguration_s=delay, switches=2)
    assert bound <= best * (1.0 + 1e-9)
    for policy in POLICIES:
        bank = OcsBank(rate_bytes_per_s=1.0, reconfiguration_s=delay, switches=2)
        assert schedule(demand, policy, bank).makespan_s >= best * (1.0 - 1e-9)


@pytest.mark.parametrize("policy", list(BIRKHOFF))
def test_decompositions_meet_the_bound_without_delay(policy):
    """Birkhoff: without delay the busiest port is never idle."""
    found = schedule(random_demand(4, 12), policy, OcsBank(rate_bytes_per_s=3.0, reconfiguration_s=0.0))
    assert found.over_bound == pytest.approx(1.0, abs=1e-8)
    assert found.duty == 1.0


@pytest.mark.parametrize("policy", [one for one in POLICIES if one is not SchedulePolicy.DOUBLE])
def test_uniform_all_to_all_takes_one_configuration_per_peer(policy):
    demand = 5.0 * (1.0 - np.eye(8))
    found = schedule(demand, policy, OcsBank(rate_bytes_per_s=1.0, reconfiguration_s=0.5))
    assert found.configurations == 7
    assert found.makespan_s == pytest.approx(7 * 5.5)
    assert found.over_bound == pytest.approx(1.0)
    assert found.duty == pytest.approx(duty(held_s=5.0, reconfiguration_s=0.5))


@settings(max_examples=25, deadline=None)
@given(size=st.integers(2, 12), seed=st.integers(0, 10**6), density=st.floats(0.2, 1.0))
def test_double_takes_two_configurations_per_port_and_twice_the_time(size, seed, density):
    """Towles and Dally (2003): 2 N configurations, speed-up 2."""
    demand = random_demand(seed, size, density)
    parts = double(demand)
    assert len(parts) <= 2 * size
    assert sum(length for _, length in parts) <= 2.0 * largest_line(demand) * (1.0 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(size=st.integers(2, 12), seed=st.integers(0, 10**6), density=st.floats(0.1, 1.0))
def test_spectra_takes_as_many_configurations_as_the_busiest_port_has_peers(size, seed, density):
    """Koenig (1916): no fewer touch every pair."""
    demand = random_demand(seed, size, density)
    assert len(fewest(demand)) == degree(demand)


@pytest.mark.parametrize("seed", range(12))
def test_eclipse_serves_at_least_half_of_what_any_schedule_serves(seed):
    """Bojja Venkatakrishnan et al., SIGMETRICS 2016, against all sets of matchings of three ports."""
    rng = np.random.default_rng(seed)
    demand, delay = random_demand(seed, 3), float(rng.uniform(0.05, 1.0))
    window = float(rng.uniform(1.5, 6.0)) * delay + 0.5 * largest_line(demand)
    best = 0.0
    for chosen in subsets(3):
        left = window - delay * len(chosen)
        if chosen and left > 0.0:
            best = max(best, most_served(demand, chosen, left))
    parts = eclipse(demand, delay_bytes=delay, window_bytes=window, tolerance=0.0)
    assert sum(length + delay for _, length in parts) <= window * (1.0 + 1e-9)
    time = sum(length * np.eye(3)[columns] for columns, length in parts)
    assert 0.5 * best <= np.minimum(time, demand).sum() <= best * (1.0 + 1e-9)


def most_served(demand, chosen, time):
    pairs, count = demand.size, len(chosen)
    covers = np.concatenate([np.eye(pairs), -np.array(chosen).T], axis=1)
    total = np.concatenate([np.zeros(pairs), np.ones(count)])
    found = linprog(
        np.concatenate([-np.ones(pairs), np.zeros(count)]),
        A_ub=np.vstack([covers, total]),
        b_ub=np.append(np.zeros(pairs), time),
        bounds=[(0.0, one) for one in demand.ravel()] + [(0.0, None)] * count,
    )
    return -found.fun


@pytest.mark.parametrize("delay", [1e-6, 1e-9, 0.0])
@pytest.mark.parametrize("ports", [9, 16])
def test_eclipse_ends_however_fast_a_switch_turns(ports, delay):
    """Slivers were worth a matching each: 12,557 for 9 ports at a millionth of the largest entry."""
    demand = random_demand(ports, ports)
    parts = eclipse(demand, delay_bytes=delay * demand.max())
    assert len(parts) <= 2 * (ports**2 - 2 * ports + 2)
    served = sum(held * np.eye(ports)[columns] for columns, held in parts)
    assert (served >= demand - 1e-8 * largest_line(demand)).all()
    assert sum(held for _, held in parts) < 1.01 * largest_line(demand)


def test_every_choice_of_eclipse_is_the_densest_matching_of_what_is_left():
    left, delay = random_demand(7, 10), 0.3
    for columns, held in eclipse(left, delay_bytes=delay, tolerance=0.0):
        lengths = left[left > 0.0]
        shared = [np.minimum(left, length) for length in lengths]
        served = [one[linear_sum_assignment(one, maximize=True)].sum() for one in shared]
        chosen = np.minimum(left, held)[np.arange(10), columns]
        assert chosen.sum() / (held + delay) == pytest.approx(max(served / (lengths + delay)))
        left[np.arange(10), columns] -= chosen
        left[left < 1e-8] = 0.0


def test_solstice_is_as_near_the_optimum_as_its_paper_says_and_far_ahead_of_permutations():
    """Liu et al., CoNEXT 2015, abstract: within 14 % of optimal, 2.9 times the utilisation of others.

    Four large and twelve small flows a port, packets at a tenth of the rate. A bound stands for the optimum.
    """
    rng, ports = np.random.default_rng(0), 64
    demand = np.zeros((ports, ports))
    for share in [0.7 / 4] * 4 + [0.3 / 12] * 12:
        demand[np.arange(ports), rng.permutation(ports)] += share
    demand *= 1.0 + rng.uniform(-0.05, 0.05, demand.shape)
    bank = OcsBank(rate_bytes_per_s=1.0, reconfiguration_s=1 / 150, packet_rate_bytes_per_s=0.1)
    bound_s = makespan_bound(
        demand, rate_bytes_per_s=1.0, reconfiguration_s=1 / 150, packet_rate_bytes_per_s=0.1
    )
    solstice_s = schedule(demand, SchedulePolicy.SOLSTICE, bank).makespan_s
    assert bound_s < solstice_s < 1.14 * bound_s
    assert schedule(demand, SchedulePolicy.HUNGARIAN, bank).makespan_s > 2.0 * solstice_s


@pytest.mark.parametrize("policy", POLICIES)
def test_switches_without_delay_divide_the_time(policy):
    demand = random_demand(5, 8)
    alone, four = (
        schedule(demand, policy, OcsBank(rate_bytes_per_s=1.0, reconfiguration_s=0.0, switches=k))
        for k in (1, 4)
    )
    assert four.makespan_s == pytest.approx(alone.makespan_s / 4)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), switches=st.integers(2, 5), delay=st.floats(0.01, 3.0))
def test_loads_of_switches_differ_by_no_more_than_a_delay(seed, switches, delay):
    """Equalize of arXiv:2603.07373: what is left to move would not pay for its delay."""
    one = schedule(
        random_demand(seed, 6, 0.7),
        SchedulePolicy.SPECTRA,
        OcsBank(rate_bytes_per_s=1.0, reconfiguration_s=delay),
    )
    many = spread(one, switches)
    loads = [many.ends_s[many.switch_of == switch].max(initial=0.0) for switch in range(switches)]
    if one.configurations:
        assert max(loads) - min(loads) <= delay * (1.0 + 1e-9)
    assert many.makespan_s <= one.makespan_s * (1.0 + 1e-9)


def test_longer_delays_and_slower_circuits_only_cost_time():
    demand = random_demand(6, 10)
    for policy in (SchedulePolicy.BOTTLENECK, SchedulePolicy.DOUBLE, SchedulePolicy.SPECTRA):
        spans = [
            schedule(demand, policy, OcsBank(rate_bytes_per_s=rate, reconfiguration_s=delay)).makespan_s
            for rate, delay in ((4.0, 0.0), (2.0, 0.0), (2.0, 0.1), (2.0, 1.0))
        ]
        assert spans == sorted(spans)
        assert spans[1] == pytest.approx(2 * spans[0])


def test_packets_take_what_is_not_worth_a_circuit():
    demand = random_demand(8, 16)
    bank = OcsBank(rate_bytes_per_s=1.0, reconfiguration_s=1.0, packet_rate_bytes_per_s=0.1)
    for policy in (SchedulePolicy.SOLSTICE, SchedulePolicy.ECLIPSE):
        hybrid = schedule(demand, policy, bank)
        alone = schedule(demand, policy, OcsBank(rate_bytes_per_s=1.0, reconfiguration_s=1.0))
        assert 0.0 < hybrid.residue_bytes < 0.5 * demand.sum()
        assert hybrid.makespan_s < alone.makespan_s


def test_moving_pays_if_it_saves_more_than_its_delay():
    assert is_worth_moving(before_s=3.0, after_s=1.0, reconfiguration_s=1.9)
    assert not is_worth_moving(before_s=3.0, after_s=1.0, reconfiguration_s=2.0)
    assert exposed_delay(reconfiguration_s=3.0, idle_s=1.0) == 2.0
    assert exposed_delay(reconfiguration_s=1.0, idle_s=3.0) == 0.0


def made(rows, lengths, demand):
    return CircuitSchedule(
        demand=np.array(demand, dtype=float),
        permutations=np.array(rows),
        durations_s=np.array(lengths, dtype=float),
        switch_of=np.zeros(len(lengths), dtype=np.int64),
        rate_bytes_per_s=1.0,
        reconfiguration_s=0.1,
    )


def test_a_schedule_by_hand():
    found = made([[1, 0], [1, DARK]], [2.0, 1.0], [[0.0, 3.0], [2.0, 0.0]])
    assert found.makespan_s == pytest.approx(3.2)
    assert found.duty == pytest.approx(3.0 / 3.2)
    assert found.bound_s == pytest.approx(3.1)
    np.testing.assert_allclose(found.starts_s, [0.1, 2.2])


def test_ports_that_move_alone_go_on_where_others_still_send():
    """By hand: 0 to 1 stands for both configurations, 1 and 2 turn as soon as they are done."""
    demand = [[0.0, 6.0, 0.0], [0.0, 0.0, 1.0], [2.0, 0.0, 0.0]]
    whole = made([[1, 2, 0]], [6.0], demand)
    assert whole.ports_alone_s == whole.makespan_s == pytest.approx(6.1)
    parts = made([[1, DARK, 0], [1, 2, DARK], [DARK, DARK, 0]], [3.0, 3.0, 1.0], demand)
    assert parts.makespan_s == pytest.approx(7.3)
    assert parts.ports_alone_s == pytest.approx(6.1)
    turned = made([[1, 2, DARK], [2, DARK, 1]], [1.0, 2.0], [[0, 1, 2], [0, 0, 0.5], [0, 2, 0]])
    assert turned.makespan_s == pytest.approx(3.2)
    assert turned.ports_alone_s == pytest.approx(0.1 + 1.0 + 0.1 + 2.0)
