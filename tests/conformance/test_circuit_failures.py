"""Failures on circuits: nothing beats what is left of the graph, and a repair brings back the rate."""

import numpy as np
import pytest

from simulator.errors import RouteError
from simulator.failures import Failure
from tests.conformance.failed_circuits import CASES, SIZE, most_bytes_per_s, run, traffic, wired

every_case = pytest.mark.parametrize(("fabric", "parts", "pairs"), CASES.values(), ids=CASES)
PORTED = [
    name for name, (fabric, *_) in CASES.items() if fabric.traits.ports and fabric.traits.ports.circuits
]
FACTOR = 4.0
"""A detour is one shortest way for each flow; the program splits flows and balances them over all ways."""


@every_case
def test_nothing_beats_the_graph_that_is_left(fabric, parts, pairs):
    """Step time with a dead part lies between the linear program on the rest and `FACTOR` times it."""
    flows = traffic(pairs)
    whole_s, _ = run(fabric, flows)
    taken_s, network = run(fabric, flows, (Failure(time_s=0.0, **parts),))
    least_s = SIZE / most_bytes_per_s(wired(fabric, network.circuits), flows, parts.get("links", ()))
    assert least_s <= taken_s * (1 + 1e-9)
    assert taken_s <= FACTOR * least_s + 1e-3
    assert taken_s >= whole_s * (1 - 1e-9)


@every_case
def test_a_repair_brings_back_the_rate(fabric, parts, pairs):
    """Bytes that went during the outage went at the hurt rate, all others at the whole one."""
    flows = traffic(pairs)
    whole_s, _ = run(fabric, flows)
    hurt_s, _ = run(fabric, flows, (Failure(time_s=0.0, **parts),))
    repair_s = whole_s / 4
    taken_s, _ = run(fabric, flows, (Failure(time_s=0.0, repair_s=repair_s, **parts),))
    expected_s = repair_s + (1.0 - repair_s / hurt_s) * whole_s
    turn_s = fabric.traits.reconfiguration_s
    assert min(whole_s, hurt_s) * (1 - 1e-9) <= taken_s
    assert taken_s == pytest.approx(expected_s, rel=1e-3, abs=4 * turn_s)


@pytest.mark.parametrize("name", PORTED)
def test_what_fails_for_ever_is_one_error_that_names_it(name):
    fabric, _, pairs = CASES[name]
    count = fabric.traits.ports.count
    if name.startswith("hybrid"):
        assert run(fabric, traffic(pairs), (Failure(time_s=0.0, ports=tuple(range(count))),))
        return
    failure = Failure(time_s=0.0, ports=tuple(range(count)))
    said = f"dp traffic waits for ever for {fabric.port_name(0)} and {count - 1} more of {fabric.name}"
    with pytest.raises(RouteError, match=said):
        run(fabric, traffic(pairs), (failure,))
    back, _ = run(fabric, traffic(pairs), (Failure(time_s=0.0, ports=failure.ports, repair_s=1.0),))
    assert back == pytest.approx(1.0 + run(fabric, traffic(pairs))[0], rel=0.05)


def test_half_a_pooled_trunk_carries_half():
    fabric, _, pairs = CASES["cubes"]
    flows = traffic((pairs[0][:1], pairs[1][:1]))
    way = fabric.route(fabric.initial(()), flows)[0]
    link = int(way[way >= 0][0])
    whole_s, _ = run(fabric, flows)
    halved_s, _ = run(fabric, flows, (Failure(time_s=0.0, links=(link,), share=0.5),))
    assert halved_s == pytest.approx(2 * whole_s, rel=1e-3)
    twice = tuple(Failure(time_s=0.0, links=(link,), share=0.5, repair_s=10.0) for _ in range(2))
    gone = (Failure(time_s=0.0, links=(link,), repair_s=10.0),)
    assert run(fabric, flows, twice)[0] == pytest.approx(run(fabric, flows, gone)[0])
    nothing = np.nextafter(0.0, 1.0)
    assert run(fabric, flows, (Failure(time_s=0.0, links=(link,), share=nothing),))[0] == whole_s
