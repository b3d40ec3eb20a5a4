"""Circuits that follow uneven experts, against even circuits and packets."""

from dataclasses import replace

import numpy as np
import pytest
import simpy

from electronic.devices import load_scale_up
from electronic.fabrics.fat_tree import FatTree
from optical.fabrics.circuits import candidate_circuits, greedy_beside_packets, region_demands
from optical.fabrics.node_circuits import CircuitChoice, HybridFabric
from optical.fabrics.rails import OcsRails
from optical.fabrics.switches import load_switch
from simulator.collectives.flow_groups import skewed_flows
from simulator.collectives.traffic import Traffic
from simulator.engine.compiled.step import StepRuns
from simulator.engine.network import Network
from simulator.engine.simulation import Simulation
from simulator.errors import ParameterError
from simulator.fabric import CircuitPolicy, PortTiming
from simulator.interfaces import Bound, Cost, Flows
from simulator.layout import Axis, RankLayout
from simulator.node import Node
from simulator.operators import (
    CollectiveKind,
    MatMul,
    Phase,
    Sequence,
    Skew,
    StepGraph,
    Task,
    geometric_loads,
)
from simulator.topology.scale_up import load_nic
from tests.builders import HBM, Idle, collective

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
    for links in candidate_circuits(wanted, 4, 1.5):
        assert links.sum(axis=0).max() <= 4 >= links.sum(axis=1).max()
        assert (np.diag(links) == 0).all()
    busiest = np.unravel_index(wanted.argmax(), wanted.shape)
    assert greedy_beside_packets(wanted, 4, 1.5)[busiest] >= 1


def test_a_region_sees_what_stays_within_it():
    flows = skewed_flows(np.arange(8)[None, :], "ep", {Skew(loads=EVEN, affinity=2.0): 8.0})
    found = region_demands([flows], np.arange(8), 4)
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
        assert change.reconfiguration_s == (fabric.cards_turn_s(change.moved_links.size) if turns else 0.0)
        assert bool(change.moved_links.size) is turns
        back = skewed_flows(groups, "ep", {skew.turned(): PAYLOAD})
        assert fabric.connected(after, back)


class Steady(Idle):
    def cost(self, operator):
        return Cost(time_s=operator.flops / 1e12, energy_j={}, bound=Bound.COMPUTE)


FIXED = Node(name="steady", units=(Steady(),), memory=HBM, peak_flop_per_s=1e12)


def blocks_of(patterns, *, attention_s, experts_s):
    """Return a step of blocks on four ranks: attention, tokens to experts, experts, tokens back."""
    skew = Skew(loads=EVEN[:4], affinity=1.5, patterns=3)
    items = []
    for pattern in patterns:
        out = replace(skew, pattern=pattern)
        there, back = (
            collective(CollectiveKind.ALL_TO_ALL, 4, PAYLOAD, axis="ep", skew=one)
            for one in (out, out.turned())
        )
        attention, experts = (
            MatMul(name=name, phase=Phase.FORWARD, batch=1, m=1, k=1, n=max(1, round(seconds * 5e11)))
            for name, seconds in (("attention", attention_s), ("experts", experts_s))
        )
        items += [(attention, 1), (there, 1), (experts, 1), (back, 1)]
    blocks = Sequence(name="blocks", phase=Phase.FORWARD, items=tuple(items))
    task = Task(id=0, rank_class=0, operator=blocks)
    return StepGraph(tasks=(task,), layout=RankLayout(dp=4, ep=4), tokens=1)


def played_s(graph, **changes):
    """Return the time of a step over one circuit a node that takes 10 ms to turn, and how often they turn."""
    switch = replace(load_switch("palomar-mems"), switch_s=9.89e-3, switch_tail=1.0)
    fabric = HybridFabric(
        packets=FatTree(endpoints=4, scale_up=ONE, nic=THIN),
        degree=1,
        region=4,
        axis=Axis.EXPERT,
        choice=CircuitChoice.GREEDY,
        switch=switch,
        **changes,
    )
    trace = Simulation(graph, FIXED, fabric).run()
    assert Simulation(graph, FIXED, fabric, fuse=False).run().makespan_s == pytest.approx(trace.makespan_s)
    assert StepRuns(graph).run(FIXED, fabric) == trace
    return trace.makespan_s, trace.reconfigurations


@pytest.mark.parametrize("attention_s", [0.0, 4e-3, 30e-3])
def test_circuits_that_turn_layer_by_layer_cost_what_attention_does_not_hide(attention_s):
    """By hand: 1.5, 0.927 and 0.573 of the mean go to three peers (a fall by the golden section).

    Of the first pattern both ways together are largest with the neighbours, 1.5 + 0.573: a circuit to one of
    them leaves packets 1.5 there and 2.427 back. Of the second 1.5 go each way to who stands opposite, which
    leaves 1.5 and 1.5. A block turns circuits once, its way back takes those of its way there; the even ones
    at the start are those of the first pattern, and the third block has the pattern of the second. Circuits
    that stay are best opposite, 2.073 each way of the first pattern.
    """
    graph = blocks_of((0, 1, 1, 0), attention_s=attention_s, experts_s=5e-3)
    per_mean_s = PAYLOAD / 4 / THIN.bandwidth_bytes_per_s / THIN.efficiency
    exchanges_s = (2 * 3.927 + 2 * 3.0) * per_mean_s
    fixed_s = 4 * (attention_s + 5e-3)
    asked_s, turns = played_s(graph, policy=CircuitPolicy.PER_LAYER)
    assert turns == 2
    assert asked_s == pytest.approx(exchanges_s + fixed_s + 2 * 10e-3, rel=1e-3)
    ahead_s, turns = played_s(graph, policy=CircuitPolicy.PER_LAYER, turning=PortTiming.PREFETCHED)
    assert turns == 2
    hidden_s = 2 * min(10e-3, attention_s)
    assert ahead_s == pytest.approx(exchanges_s + fixed_s + 2 * 10e-3 - hidden_s, rel=1e-3)
    stays_s, turns = played_s(graph, policy=CircuitPolicy.STATIC)
    assert turns == 0
    assert stays_s == pytest.approx((2 * 4.146 + 2 * 3.0) * per_mean_s + fixed_s, rel=1e-3)
    assert (ahead_s < stays_s) is (2 * 10e-3 - hidden_s < 2 * (4.146 - 3.927) * per_mean_s)


def test_circuits_of_endpoints_do_not_turn_layer_by_layer():
    rails = OcsRails(endpoints=16, scale_up=NODE)
    with pytest.raises(ParameterError, match="do not turn from block to block here"):
        rails.with_policy(CircuitPolicy.PER_LAYER)


def test_what_circuits_will_carry_is_priced_as_theirs_before_they_turn():
    """An exchange that still lacks its circuits costs their energy, not that of packets alone."""
    fabric, groups = regional(CircuitChoice.GREEDY), np.arange(8)[None, :]
    operator = collective(
        CollectiveKind.ALL_TO_ALL, 8, PAYLOAD, axis="ep", skew=Skew(loads=EVEN, affinity=3.0)
    )
    demand = {("ep", 0, 0): skewed_flows(groups, "ep", {operator.skew: 1000 * PAYLOAD})}
    network = Network(simpy.Environment(), fabric, tuple(demand.values()))
    plan = Traffic(RankLayout(dp=8, ep=8), fabric, network, demand).plan(operator, 0)
    asked = skewed_flows(groups, "ep", {operator.skew: PAYLOAD})
    turned, _ = fabric.configure(network.circuits, asked, tuple(demand.values()))
    assert plan.energy_j == pytest.approx(fabric.carried_energy_j(turned, asked))
    assert plan.energy_j != pytest.approx(fabric.transfer_energy_j(asked), rel=0.01)
