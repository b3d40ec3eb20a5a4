import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from simulator.engine.network import max_min_rates
from simulator.errors import RouteError


def oracle(incidence, capacity):
    """Max-min by a sequence of linear programmes: raise the common floor, fix who cannot rise above it."""
    flows = incidence.shape[1]
    fixed = np.full(flows, np.nan)
    while np.isnan(fixed).any():
        free = np.isnan(fixed)
        left = capacity - incidence[:, ~free] @ fixed[~free]
        floor = linprog(
            [-1.0],
            A_ub=incidence[:, free].sum(axis=1, keepdims=True),
            b_ub=left,
            bounds=[(0, None)],
        ).x[0]
        for index in np.flatnonzero(free):
            cost = np.zeros(int(free.sum()))
            cost[np.flatnonzero(free) == index] = -1.0
            best = linprog(cost, A_ub=incidence[:, free], b_ub=left, bounds=[(floor, None)] * cost.size)
            if best.status == 2 or -best.fun <= floor * (1 + 1e-9):
                fixed[index] = floor
    return fixed


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
    assert rates == pytest.approx(oracle(incidence.astype(float), capacity), rel=1e-7)


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
