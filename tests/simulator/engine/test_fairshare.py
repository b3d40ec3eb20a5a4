"""Max-min fair rates against linear programmes, and classes of links against the links themselves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from simulator.engine.network import LinkClasses, max_min_rates
from simulator.errors import RouteError

EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def lexicographic_rates(incidence, capacity):
    """Return max-min rates by linear programmes: raise the common floor, then fix the flows held there.

    The incidence has shape [links, flows], the capacity [links].
    """
    rates = np.full(incidence.shape[1], np.nan)
    while np.isnan(rates).any():
        free = np.flatnonzero(np.isnan(rates))
        left = capacity - incidence[:, ~np.isnan(rates)] @ rates[~np.isnan(rates)]
        crossed = incidence[:, free]
        floor = linprog([-1.0], A_ub=crossed.sum(axis=1)[:, None], b_ub=left, options=EXACT).x[0]
        slack = left - crossed.sum(axis=1) * floor
        for place, flow in enumerate(free):
            cost = np.zeros(free.size)
            cost[place] = -1.0
            best = linprog(cost, A_ub=crossed, b_ub=slack, options=EXACT)
            if best.status == 2 or -best.fun <= 1e-8 * floor:
                rates[flow] = floor
    return rates


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_rates_equal_the_linear_programme(seed):
    rng = np.random.default_rng(seed)
    links, flows = int(rng.integers(1, 6)), int(rng.integers(1, 7))
    incidence = rng.random((links, flows)) < 0.5
    incidence[rng.integers(links, size=flows), np.arange(flows)] = True
    capacity = rng.uniform(1.0, 10.0, links)
    link, flow = np.nonzero(incidence)
    rates = max_min_rates(flow, link, capacity, flows=flows)
    assert rates == pytest.approx(lexicographic_rates(incidence.astype(float), capacity), rel=1e-7)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_every_flow_has_a_full_link_on_which_none_is_faster(seed):
    rng = np.random.default_rng(seed)
    links, flows = 12, 40
    link = rng.integers(links, size=(flows, 3))
    flow = np.repeat(np.arange(flows), 3)
    capacity = rng.uniform(0.1, 10.0, links)
    usage = rng.integers(1, 4, size=flow.size).astype(float)
    rates = max_min_rates(flow, link.ravel(), capacity, flows=flows, usage=usage)
    load = np.bincount(link.ravel(), weights=usage * rates[flow], minlength=links)
    assert np.all(load <= capacity * (1 + 1e-9))
    for one in range(flows):
        full = [x for x in link[one] if load[x] >= capacity[x] * (1 - 1e-9)]
        assert any(rates[one] >= rates[flow[link.ravel() == x]].max() * (1 - 1e-9) for x in full)


def test_a_bundle_of_n_flows_is_n_flows():
    one_by_one = max_min_rates(np.arange(4), np.zeros(4, int), np.array([8.0]), flows=4)
    bundled = max_min_rates(
        np.array([0, 1]), np.zeros(2, int), np.array([8.0]), flows=2, usage=np.array([3, 1])
    )
    assert one_by_one == pytest.approx(np.full(4, 2.0))
    assert bundled == pytest.approx(np.full(2, 2.0))


def test_a_dark_link_is_an_error_not_a_zero_rate():
    with pytest.raises(RouteError, match="link 1, which has no capacity"):
        max_min_rates(np.array([0]), np.array([1]), np.array([1.0, 0.0]), flows=1)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6))
def test_merged_links_give_the_rates_of_all_links(seed):
    rng = np.random.default_rng(seed)
    links, flow_groups = 30, 7
    capacity = rng.choice([1.0, 2.0, 5.0], links)
    classes = LinkClasses(capacity)
    loads = []
    for index in range(flow_groups):
        used = np.flatnonzero(rng.random(links) < 0.3)
        used = used if used.size else np.array([0])
        usage = rng.integers(1, 3, used.size).astype(float)
        loads.append((used, usage))
        classes.add(index, used, usage)
    chosen = tuple(int(i) for i in rng.permutation(flow_groups)[: rng.integers(1, flow_groups + 1)])
    owner, link_class, usage, merged = classes.constraints(chosen)
    flow = np.repeat(np.arange(len(chosen)), [loads[i][0].size for i in chosen])
    link = np.concatenate([loads[i][0] for i in chosen])
    full = max_min_rates(
        flow, link, capacity, flows=len(chosen), usage=np.concatenate([loads[i][1] for i in chosen])
    )
    assert max_min_rates(owner, link_class, merged, flows=len(chosen), usage=usage) == pytest.approx(
        full, rel=1e-12
    )


def test_symmetric_traffic_is_a_handful_of_classes():
    classes = LinkClasses(np.ones(100_000))
    classes.add(0, np.arange(50_000), np.ones(50_000))
    classes.add(1, np.arange(25_000, 75_000), np.full(50_000, 2.0))
    assert classes.constraints((0, 1)).capacity.size == 4
