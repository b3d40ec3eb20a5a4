"""Groups of whole nodes on optical rails: every card's circuits carry a share of what leaves a node."""

from dataclasses import replace

import numpy as np
import pytest
import simpy

from electronic.devices import load_scale_up
from electronic.fabrics.packets import RailFabric
from electronic.gpu import load_gpu
from optical.fabrics.rails import OcsRails
from simulator.collectives.flow_groups import ring_flows, step_demand
from simulator.collectives.lines import LinePrices, collective_lines
from simulator.collectives.traffic import Traffic
from simulator.engine.network import Network
from simulator.engine.replay import RankGraph, RankTask, Replay, Together, as_recorded
from simulator.engine.simulation import Simulation
from simulator.errors import WorkloadError
from simulator.fabric import CircuitPolicy
from simulator.layout import RankLayout
from simulator.node import Node
from simulator.operators import CollectiveKind, StepGraph, Task
from tests.builders import REDUCING, Idle, collective

FABRIC = OcsRails(endpoints=32, scale_up=load_scale_up("nvlink4"))
"""Four nodes of eight cards, with four lanes each."""
SIZE_BYTES = 8.0 * 2**30


NODE = Node(
    name="n",
    units=(Idle(),),
    memory=load_gpu("h100").memory,
    peak_flop_per_s=1.0,
    static_parts_w={"idle": 0.0},
)


def work(kind, n=32, **options):
    payload = SIZE_BYTES / n if kind is CollectiveKind.ALL_GATHER else SIZE_BYTES
    return collective(kind, n, payload, name="c", **options)


def step_of(one, layout):
    return StepGraph(tasks=(Task(id=0, rank_class=0, operator=one),), layout=layout, tokens=1)


@pytest.mark.parametrize("policy", [CircuitPolicy.STATIC, CircuitPolicy.PER_AXIS])
@pytest.mark.parametrize("kind", REDUCING)
def test_every_card_carries_its_share(kind, policy):
    """Circuits that suit take as long as packet rails of the same cards, but for latency.

    And no less than a node's eight cards need (Patarasuk and Yuan 2009, theorem 1, nodes for ranks). Over one
    card of a node, as a flat ring leaves it, it would be ten times as long.
    """
    fabric = replace(FABRIC, policy=policy)
    simulation = Simulation(step_of(work(kind), RankLayout(dp=32)), NODE, fabric)
    passes = 2.0 if kind is CollectiveKind.ALL_REDUCE else 1.0
    bound_s = passes * 3 / 4 * SIZE_BYTES / (8 * fabric.lanes * fabric.lane_bytes_per_s)
    packets = RailFabric(endpoints=32, scale_up=FABRIC.scale_up, nic=FABRIC.nic)
    switched = Simulation(step_of(work(kind), RankLayout(dp=32)), NODE, packets)
    time_s, switched_s = (one.traffic.plan(work(kind), 0).alone_s for one in (simulation, switched))
    assert bound_s <= time_s == pytest.approx(switched_s, rel=2e-3)


@pytest.mark.parametrize("kind", REDUCING)
def test_engine_closed_form_and_replay_agree(kind):
    one = work(kind)
    simulation = Simulation(step_of(one, RankLayout(dp=32)), NODE, FABRIC)
    makespan_s = simulation.run().makespan_s
    assert makespan_s == pytest.approx(simulation.traffic.plan(one, 0).alone_s, rel=1e-9)
    lines = collective_lines(one, simulation.traffic, 0)
    assert float(lines.time_s(one.payload_bytes)) == pytest.approx(makespan_s, rel=1e-9)
    searched = LinePrices(FABRIC).lines(one, RankLayout(dp=32))
    assert float(searched.time_s(one.payload_bytes)) == pytest.approx(makespan_s, rel=1e-9)
    group = tuple(range(32))
    together = Together(kind=kind, groups=(group,), payload_bytes=one.payload_bytes)
    task = RankTask(id=0, name="c", classes=group, operation=together)
    graph = RankGraph(name="g", tasks=(task,), classes=tuple((rank,) for rank in group))
    assert Replay(graph, as_recorded(NODE), FABRIC).run().makespan_s == pytest.approx(makespan_s, rel=1e-9)


def test_a_way_does_not_hang_on_which_axis_has_the_circuits():
    """Asked while the sends of stages have all lanes, a group goes over all cards just the same."""
    layout = RankLayout(dp=16, pp=2)
    fabric = replace(FABRIC, lanes=1)
    one = work(CollectiveKind.ALL_REDUCE, 16)
    demand = step_demand(step_of(one, layout), fabric.node_size)
    sends = replace(
        ring_flows(np.arange(32).reshape(2, 16).T, 1.0, "pp", CollectiveKind.SEND), size_bytes=1.0
    )  # a ring of two is what goes there and back
    found = {}
    for name, traffic in (("lit", demand), ("dark", {("pp", 0, 1): sends} | demand)):
        network = Network(simpy.Environment(), fabric, tuple(traffic.values()))
        found[name] = Traffic(layout, fabric, network, traffic).plan(one, 0)
    assert found["dark"].algorithm == found["lit"].algorithm
    assert found["dark"].alone_s == pytest.approx(found["lit"].alone_s, rel=1e-12)


def test_demand_is_of_each_card_where_groups_fill_nodes():
    """What the cards of a node pass on together is what a flat ring leaves to one."""
    groups = np.arange(32).reshape(2, 16)
    flat, rails = (ring_flows(groups, 8.0, "dp", CollectiveKind.ALL_REDUCE, size) for size in (1, 8))
    leaving = rails.sources // 8 != rails.destinations // 8
    assert np.array_equal(rails.sources[leaving] % 8, rails.destinations[leaving] % 8)
    assert sorted(rails.sources[leaving]) == list(range(32))
    assert leaving.sum() * rails.size_bytes == (flat.sources // 8 != flat.destinations // 8).sum() * 8.0


@pytest.mark.parametrize(
    "group",
    [(0, 8, 16, 24), (0, 1, 2, 3), (0, 8, 1, 9), (0, 1, 8)],
    ids=["one each", "one node", "mixed", "odd"],
)
def test_demand_of_other_groups_is_one_ring(group):
    groups = np.array([group])
    flat, rails = (ring_flows(groups, 8.0, "dp", CollectiveKind.ALL_REDUCE, size) for size in (1, 8))
    assert np.array_equal(flat.sources, rails.sources)
    assert np.array_equal(flat.destinations, rails.destinations)
    assert flat.size_bytes == rails.size_bytes


def test_an_algorithm_that_a_group_lacks_is_refused_in_one_sentence():
    layout = RankLayout(dp=32)
    one = work(CollectiveKind.ALL_REDUCE, algorithm="bucket")
    simulation = Simulation(step_of(one, layout), NODE, FABRIC)
    with pytest.raises(WorkloadError, match=r"algorithm 'bucket'.* on 32 ranks of axis 'dp' here: .*ring"):
        simulation.traffic.plan(one, 0)
