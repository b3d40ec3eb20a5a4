"""Recorded graphs on circuits that several axes share: as the step itself, and always to their end."""

from dataclasses import replace

import numpy as np
import pytest
import simpy

from electronic.devices import load_scale_up
from heliograph.systems import build_system
from optical.fabrics.rails import OcsRails
from simulator.collectives.flow_groups import FlowGroup
from simulator.collectives.traffic import play
from simulator.engine.network import Network
from simulator.engine.replay import (
    Clockwork,
    Message,
    RankGraph,
    RankTask,
    Recorded,
    Replay,
    Together,
    Work,
    as_recorded,
)
from simulator.engine.simulation import Simulation
from simulator.fabric import PortTiming
from simulator.interfaces import Flows
from simulator.operators import CollectiveKind, Phase
from workloads.models.config import load_model
from workloads.plan.plan import parse_plan
from workloads.step.step import build_step
from workloads.traces import export_step, import_trace

NODES = replace(load_scale_up("nvlink4"), size=1, protocols=(), adders=())
"""Nodes of one accelerator, and no library."""


class Few(list):
    """Changes of circuits, of which more than so many are a fault: the ports move to and fro for ever."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def append(self, change):
        assert len(self) < self.most, "ports turn more often than traffic asks"
        super().append(change)


@pytest.mark.parametrize(
    "text",
    [
        "tp=2,pp=2,dp=2,global_batch=4,sequence_length=512",
        "tp=2,pp=2,dp=4,global_batch=8,sequence_length=512,zero=1",
        "tp=2,pp=4,dp=2,global_batch=8,sequence_length=512,zero=1",
        "tp=1,pp=2,dp=4,global_batch=8,sequence_length=512",
        "tp=1,pp=2,dp=8,global_batch=8,sequence_length=512,zero=1",
        "tp=2,pp=2,dp=4,global_batch=8,sequence_length=512,zero=3",
    ],
)
def test_axes_that_share_ports_take_the_time_of_the_step(tmp_path, text):
    """To rounding: ports wait for the same traffic whether it is a class's or a rank's; two to a node.

    All ports take the same time here: a class waits for the slowest of all its groups, a group for its own.
    """
    plan = parse_plan(text)
    graph = build_step(replace(load_model("llama-3-8b"), layers=4), plan)
    system = build_system(
        "gpu_ocs", accelerators=plan.axes.ranks, assignments=["fabric.switch.switch_tail=1"]
    )
    fabric = replace(system.fabric, scale_up=replace(system.fabric.scale_up, size=2))
    node = replace(system.node(), collective_share=0.0)  # a trace has durations, whatever they hold
    expected = Simulation(graph, node, fabric, fuse=False).run()
    export_step(graph, node, tmp_path / "t")
    found = Replay(import_trace(tmp_path / "t"), as_recorded(node), fabric).run()
    assert expected.reconfigurations > 0
    assert found.makespan_s == pytest.approx(expected.makespan_s, rel=1e-8)
    assert found.reconfiguration_energy_j == pytest.approx(expected.reconfiguration_energy_j)


def test_bundles_that_want_the_same_ports_take_turns():
    """One lane each, three peers asked for at once: two turns, and each peer's bytes at the lane's rate."""
    fabric = OcsRails(endpoints=4, scale_up=NODES, lanes=1)
    flows = [
        Flows(sources=np.array([0]), destinations=np.array([peer]), size_bytes=1.0, axis=f"to {peer}")
        for peer in (1, 2, 3)
    ]
    env = simpy.Environment()
    network = Network(env, fabric, tuple(flows))
    network.changes = Few(2)
    ends = []

    def carry(one):
        yield from network.carry(FlowGroup(index=network.number(), flows=one, demand=(one,)), 1e9, 1)
        ends.append(env.now)

    for one in flows:
        env.process(carry(one))
    play(network)
    one_s = 1e9 / fabric.lane_bytes_per_s
    latency_s = float(network.graph.latency_s[0])
    turn_s = fabric.switch.reconfiguration_s
    assert ends == pytest.approx([(n + 1) * one_s + n * turn_s + latency_s for n in range(3)])


def random_graph(rng, ranks, count):
    tasks = []
    for number in range(count):
        after = tuple(sorted({int(one) for one in rng.integers(0, number, 2)})) if number else ()
        members = tuple(int(one) for one in rng.permutation(ranks)[: rng.choice([2, 2, 3])])
        if rng.random() < 0.2:
            operator = Recorded(
                name="w",
                phase=Phase.FORWARD,
                flops=0.0,
                read_bytes=0.0,
                written_bytes=0.0,
                duration_s=float(rng.exponential(1e-3)),
            )
            operation, members = Work(operator=operator), members[:1]
        elif rng.random() < 0.5:
            operation = Message(sources=members[:1], destinations=members[1:2], size_bytes=1e6)
            members = members[:2]
        else:
            operation = Together(kind=CollectiveKind.ALL_REDUCE, groups=(members,), payload_bytes=1e6)
        tasks.append(RankTask(id=number, name="t", classes=members, operation=operation, after=after))
    return RankGraph(name="random", tasks=tuple(tasks), classes=tuple((rank,) for rank in range(ranks)))


@pytest.mark.parametrize("turning", list(PortTiming))
@pytest.mark.parametrize("seed", range(3))
def test_any_graph_ends_within_a_turn_for_each_round(seed, turning):
    """What ports turned for begins before they turn again, so rounds and turns one by one bound the time."""
    graph = random_graph(np.random.default_rng(seed), ranks=6, count=60)
    fabric = OcsRails(endpoints=6, scale_up=NODES, lanes=2, turning=turning)
    replay = Replay(graph, Clockwork(), fabric)
    plans = [replay.traffic.plan(*one) for one in replay.carried.values()]
    rounds = sum(len(plan.parts) for plan in plans)
    ahead = len(plans) * 3 if turning is PortTiming.PREFETCHED else 0
    replay.network.changes = Few(rounds + ahead)
    trace = replay.run()
    work_s = sum(one.operation.operator.duration_s for one in graph.tasks if isinstance(one.operation, Work))
    serial_s = work_s + sum(plan.alone_s for plan in plans)
    assert {span.task for span in trace.spans if span.task >= 0} == set(range(60))
    assert trace.reconfigurations > 6
    assert (
        trace.makespan_s <= serial_s * fabric.lanes + trace.reconfigurations * fabric.switch.reconfiguration_s
    )
