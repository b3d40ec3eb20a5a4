"""Circuits that follow uneven experts, against even circuits and packets."""

from dataclasses import replace

import numpy as np
import pytest
import simpy

from electronic.devices import load_scale_up
from electronic.fabrics.fat_tree import FatTree
from optical.fabrics.hybrid import HybridFabric
from optical.fabrics.lane_assignment import last_first, region_matrices, ways_to_give
from optical.fabrics.node_circuits import CircuitChoice
from simulator.collectives.demand import skewed_flows
from simulator.collectives.traffic import Traffic
from simulator.engine.network import Network
from simulator.fabric import CircuitPolicy
from simulator.interfaces import Flows
from simulator.layout import Axis, RankLayout
from simulator.operators import CollectiveKind, Skew, geometric_loads
from simulator.topology.scale_up import load_nic
from tests.builders import collective

ONE = replace(load_scale_up("nvlink4"), size=1, protocols=(), adders=())
NODE = replace(load_scale_up("nvlink4"), protocols=(), adders=())
THIN = load_nic("connectx-6-dx")
PAYLOAD = 1e9
EVEN = (1.0,) * 8
SHAPES = [(1.5, 1.0), (1.0, 2.0), (1.0, 3.5), (2.0, 2.0), (3.0, 3.0)]


def packets(scale_up=ONE):
    return FatTree(endpoints=8 * scale_up.size, scale_up=scale_up, nic=THIN)


def regional(choice, scale_up=ONE, policy=CircuitPolicy.PER_AXIS):
    return HybridFabric(
        packets=packets(scale_up), degree=6, region=8, axis=Axis.EXPERT, choice=choice, policy=policy
    )


def exchange_s(fabric, skew, *, often=1000):
    """Return the time of an all-to-all and its way back, circuits turned for a thousand of them."""
    layout = RankLayout(tp=fabric.node_size, dp=8, ep=8)
    groups = layout.groups("ep", 0)
    if skew is None:
        flows = Flows.around(
            groups, size_bytes=2 * often * PAYLOAD, axis="ep", kind=CollectiveKind.ALL_TO_ALL
        )
    else:
        flows = skewed_flows(groups, "ep", {skew: 2 * often * PAYLOAD})
    demand = {("ep", 0, 0): flows}
    network = Network(simpy.Environment(), fabric, tuple(demand.values()))
    traffic = Traffic(layout, fabric, network, demand)
    operator = collective(CollectiveKind.ALL_TO_ALL, 8, PAYLOAD, axis="ep", skew=skew)
    back = operator if skew is None else replace(operator, skew=skew.turned())
    found = [traffic.plan(one, 0) for one in (operator, back)]
    return sum(one.alone_s for one in found)


def test_no_skew_takes_the_time_of_an_even_exchange():
    for fabric in (packets(), regional(CircuitChoice.GREEDY), regional(CircuitChoice.EVEN)):
        assert exchange_s(fabric, Skew(loads=EVEN)) == pytest.approx(exchange_s(fabric, None), rel=1e-12)


@pytest.mark.parametrize("peak", [1.0, 1.5, 2.0, 4.0])
def test_packets_wait_for_the_hottest_receiver(peak):
    """A switch without oversubscription is as fast as its busiest port (Chan et al. 2007): load x even."""
    even_s = exchange_s(packets(), None)
    slow_s = exchange_s(packets(), Skew(loads=geometric_loads(8, peak)))
    assert slow_s == pytest.approx(peak * even_s, rel=1e-3)


def test_packets_do_not_mind_who_prefers_whom():
    even_s = exchange_s(packets(), None)
    assert exchange_s(packets(), Skew(loads=EVEN, affinity=3.0)) == pytest.approx(even_s, rel=1e-9)


@pytest.mark.parametrize("scale_up", [ONE, NODE], ids=["one", "node"])
@pytest.mark.parametrize(("peak", "affinity"), SHAPES)
def test_circuits_that_know_the_traffic_never_lose_to_even_ones(peak, affinity, scale_up):
    """MixNet (Liao et al., SIGCOMM 2025): circuits go to the pairs that finish last."""
    skew = Skew(loads=geometric_loads(8, peak), affinity=affinity)
    even, greedy = (
        exchange_s(regional(choice, scale_up), skew) for choice in (CircuitChoice.EVEN, CircuitChoice.GREEDY)
    )
    assert greedy <= even * (1.0 + 1e-12)


def test_pairs_slow_even_circuits_most_and_greedy_ones_less():
    skew = Skew(loads=EVEN, affinity=3.0)
    slower = [
        exchange_s(fabric, skew) / exchange_s(fabric, None)
        for fabric in (
            packets(NODE),
            regional(CircuitChoice.GREEDY, NODE),
            regional(CircuitChoice.EVEN, NODE),
        )
    ]
    assert slower[0] == pytest.approx(1.0)
    assert 1.2 * slower[0] < slower[1] < slower[2] / 1.2
    assert slower[2] == pytest.approx(3.0, rel=1e-3)  # one circuit, three times the bytes


def test_even_circuits_grow_slower_with_every_preference():
    found = [
        exchange_s(regional(CircuitChoice.EVEN, NODE), Skew(loads=EVEN, affinity=affinity))
        for affinity in (1.0, 1.5, 2.0, 3.0, 3.5)
    ]
    assert found == sorted(found)


@pytest.mark.parametrize("seed", range(4))
def test_no_node_has_more_circuits_than_cards_and_the_busiest_pair_has_one(seed):
    wanted = np.random.default_rng(seed).pareto(1.5, (6, 6))
    np.fill_diagonal(wanted, 0.0)
    for links in ways_to_give(wanted, 4, 1.5):
        assert links.sum(axis=0).max() <= 4 >= links.sum(axis=1).max()
        assert (np.diag(links) == 0).all()
    busiest = np.unravel_index(wanted.argmax(), wanted.shape)
    assert last_first(wanted, 4, 1.5)[busiest] >= 1


def test_a_region_sees_what_stays_within_it():
    flows = skewed_flows(np.arange(8)[None, :], "ep", {Skew(loads=EVEN, affinity=2.0): 8.0})
    found = region_matrices([flows], np.arange(8), 4)
    assert sorted(found) == [0, 1]
    kept = flows.part(flows.sources // 4 == flows.destinations // 4)
    assert sum(one.sum() for one in found.values()) == pytest.approx(kept.sizes_bytes.sum())


def test_circuits_turn_once_a_step_and_only_if_that_pays():
    """The first exchange tells sizes; a turn must save more than it takes, and is paid in dark time."""
    skew = Skew(loads=EVEN, affinity=3.0)
    groups = np.arange(8)[None, :]
    fabric = regional(CircuitChoice.GREEDY)
    for often, turns in ((1000, True), (1e-3, False)):
        demand = skewed_flows(groups, "ep", {skew: often * PAYLOAD})
        circuits = fabric.initial((demand,))
        asked = skewed_flows(groups, "ep", {skew: PAYLOAD})
        assert fabric.connected(circuits, asked) is not turns
        after, change = fabric.configure(circuits, asked, (demand,))
        assert change.reconfiguration_s == (fabric.switch.turn_s(change.moved_links.size) if turns else 0.0)
        assert bool(change.moved_links.size) is turns
        back = skewed_flows(groups, "ep", {skew.turned(): PAYLOAD})
        assert fabric.connected(after, back)
