import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.network import LinkClasses, max_min_rates


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
    asked = tuple(int(i) for i in rng.permutation(flow_groups)[: rng.integers(1, flow_groups + 1)])
    owner, kind, usage, merged = classes.constraints(asked)
    flow = np.repeat(np.arange(len(asked)), [loads[i][0].size for i in asked])
    link = np.concatenate([loads[i][0] for i in asked])
    full = max_min_rates(
        flow, link, capacity, flows=len(asked), usage=np.concatenate([loads[i][1] for i in asked])
    )
    assert max_min_rates(owner, kind, merged, flows=len(asked), usage=usage) == pytest.approx(full, rel=1e-12)


def test_symmetric_traffic_is_a_handful_of_classes():
    classes = LinkClasses(np.ones(100_000))
    classes.add(0, np.arange(50_000), np.ones(50_000))
    classes.add(1, np.arange(25_000, 75_000), np.full(50_000, 2.0))
    assert classes.constraints((0, 1))[3].size == 4
