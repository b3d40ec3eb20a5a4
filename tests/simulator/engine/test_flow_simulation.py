"""The flow simulator against a linear programme, itself without shortcuts, and hand counts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.flow_simulation import FlowSet, simulate
from simulator.errors import RouteError, WorkloadError
from simulator.interfaces import LinkGraph
from tests.bounds import cut_bound_s
from tests.simulator.engine.test_fairshare import lexicographic_rates


def links(capacity, latency=0.0):
    capacity = np.asarray(capacity, dtype=float)
    return LinkGraph(capacity_bytes_per_s=capacity, latency_s=np.full(capacity.size, latency))


def flow_set(routes, size, **more):
    hops = max(len(route) for route in routes)
    table = np.array([[*route, *[-1] * (hops - len(route))] for route in routes]).reshape(len(routes), hops)
    return FlowSet(routes=table, size_bytes=np.asarray(size, dtype=float), **more)


def by_linear_programme(flows, graph):
    """Finish times with every rate found by linear programmes at every event."""
    incidence = np.zeros((graph.capacity_bytes_per_s.size, flows.size_bytes.size))
    for flow, route in enumerate(flows.routes):
        for link in route[route >= 0]:
            incidence[link, flow] += 1.0
    left, now, finish = flows.size_bytes.copy(), 0.0, np.full(flows.size_bytes.size, np.nan)
    while np.isnan(finish).any():
        alive = np.isnan(finish) & (flows.start_s <= now)
        later = flows.start_s[np.isnan(finish) & (flows.start_s > now)].min(initial=np.inf)
        if not alive.any():
            now = later
            continue
        rates = lexicographic_rates(incidence[:, alive], graph.capacity_bytes_per_s)
        step = min((left[alive] / rates).min(), later - now)
        left[alive] -= rates * step
        now += step
        finish[alive & (left <= 1e-9 * flows.size_bytes)] = now
    return finish


def random_case(seed, *, most_links, most_flows, hops=3):
    rng = np.random.default_rng(seed)
    count, flows = int(rng.integers(1, most_links + 1)), int(rng.integers(1, most_flows + 1))
    routes = [rng.permutation(count)[: rng.integers(1, hops + 1)] for _ in range(flows)]
    start = rng.choice([0.0, 0.5, 1.0], size=flows)
    sizes = rng.choice([1.0, 2.0, 3.0, rng.uniform(0.1, 5.0)], size=flows)
    capacity = rng.choice([1.0, 2.0, rng.uniform(0.5, 4.0)], size=count)
    return flow_set(routes, sizes, start_s=start), links(capacity)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_finish_times_equal_the_linear_programme(seed):
    """Lexicographic max-min by linear programmes (HiGHS) at every event, to 1e-9."""
    flows, graph = random_case(seed, most_links=4, most_flows=5)
    assert simulate(flows, graph).finish_s == pytest.approx(by_linear_programme(flows, graph), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_shortcuts_change_no_time(seed):
    """Classes and partial solves against a run in which every flow differs and every event solves all."""
    flows, graph = random_case(seed, most_links=8, most_flows=40)
    quick = simulate(flows, graph)
    apart = FlowSet(
        routes=flows.routes,
        size_bytes=flows.size_bytes,
        start_s=flows.start_s,
        usage=np.ones(flows.routes.shape),
    )
    plain = simulate(apart, graph, incremental=False)
    assert plain.classes == flows.size_bytes.size
    assert quick.finish_s == pytest.approx(plain.finish_s, rel=1e-10)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_bytes_are_kept_and_no_bound_is_broken(seed):
    flows, graph = random_case(seed, most_links=8, most_flows=40)
    times = simulate(flows, graph)
    crossed = flows.routes >= 0
    total = np.bincount(
        flows.routes[crossed], np.broadcast_to(flows.size_bytes[:, None], crossed.shape)[crossed], 8
    )
    assert times.link_bytes == pytest.approx(total[: times.link_bytes.size], rel=1e-12)
    assert times.makespan_s >= cut_bound_s(flows, graph) * (1 - 1e-12)
    assert np.all(times.start_s == flows.start_s)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_shortcuts_change_no_time_under_order(seed):
    flows, graph = random_case(seed, most_links=8, most_flows=25)
    rng = np.random.default_rng(seed)
    count = flows.size_bytes.size
    pairs = np.argwhere(np.triu(rng.random((count, count)) < 0.05, 1))
    flows = replace(flows, after=pairs[::2], behind=pairs[1::2])
    graph = links(graph.capacity_bytes_per_s, 0.1)
    quick = simulate(flows, graph)
    plain = simulate(replace(flows, usage=np.ones(flows.routes.shape)), graph, incremental=False)
    assert quick.finish_s == pytest.approx(plain.finish_s, rel=1e-9)
    assert quick.link_bytes == pytest.approx(plain.link_bytes, rel=1e-9)


def test_a_permutation_takes_the_time_of_one_flow():
    """1,024 hosts that each send to another, on a switch that never blocks: bytes over rate, one class."""
    hosts = np.arange(1024)
    routes = np.stack([hosts, 1024 + np.roll(hosts, 1)], axis=1)
    times = simulate(FlowSet(routes=routes, size_bytes=np.full(1024, 1e6)), links(np.full(2048, 50e9)))
    assert times.makespan_s == pytest.approx(20e-6, rel=1e-12)
    assert times.classes == 1


def test_two_speeds_by_hand():
    """Three flows, two links of 2 and 1: the long one is held to 1/2, then runs alone."""
    flows = flow_set([[0, 1], [0], [1]], [1.0, 3.0, 1.0])
    assert simulate(flows, links([2.0, 1.0])).finish_s == pytest.approx([2.0, 2.0, 2.0])
    late = flow_set([[0], [0]], [4.0, 1.0], start_s=np.array([0.0, 1.0]))
    assert simulate(late, links([2.0], 0.25)).finish_s == pytest.approx([2.75, 2.25])


def test_a_follower_waits_for_arrival_and_one_behind_for_departure():
    flows = flow_set([[0], [1], [2]], [2.0, 2.0, 2.0], after=np.array([[0, 1]]), behind=np.array([[0, 2]]))
    times = simulate(flows, links([1.0, 1.0, 1.0], 0.5))
    assert times.start_s == pytest.approx([0.0, 2.5, 2.0])
    assert times.finish_s == pytest.approx([2.5, 5.0, 4.5])


def test_flows_without_links_or_bytes_take_no_transfer_time():
    flows = flow_set([[], [0], [0]], [5.0, 0.0, 1.0], after=np.array([[0, 1], [1, 2]]))
    assert simulate(flows, links([1.0], 0.5)).finish_s == pytest.approx([0.0, 0.5, 2.0])


@pytest.mark.parametrize(
    ("flows", "capacity", "error", "said"),
    [
        (flow_set([[3]], [1.0]), 1.0, RouteError, "link 3; there are links 0 to 0"),
        (flow_set([[], [0]], [1.0, 1.0]), 0.0, RouteError, "flow 1 crosses link 0, which has no capacity"),
        (
            flow_set([[0], [0]], [1.0, 1.0], after=np.array([[0, 1], [1, 0]])),
            1.0,
            WorkloadError,
            "wait for each other",
        ),
    ],
)
def test_what_cannot_end_is_an_error(flows, capacity, error, said):
    with pytest.raises(error, match=said):
        simulate(flows, links([capacity]))


def test_descriptions_are_checked():
    with pytest.raises(WorkloadError, match="flow 1: size_bytes"):
        flow_set([[0], [0]], [1.0, -1.0])
    with pytest.raises(WorkloadError, match="after must name flows"):
        flow_set([[0]], [1.0], after=np.array([[0, 1]]))
