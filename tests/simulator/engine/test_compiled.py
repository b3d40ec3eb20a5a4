"""Steps in arrays give the reference's traces to the last bit, however many events share an instant."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from electronic.devices import load_scale_up
from electronic.fabrics.fat_tree import FatTree
from optical.fabrics.node_circuits import CircuitChoice, DirectConnect, HybridFabric
from optical.fabrics.rails import OcsRails
from optical.fabrics.switches import load_optics, load_switch
from optical.fabrics.wafer import WaferFabric
from simulator.engine.compiled import circuit_tables, loop
from simulator.engine.compiled.programs import NotCoveredError, Programs, StepNetwork, StepStructure
from simulator.engine.compiled.step import CompiledStep, StepRuns
from simulator.engine.simulation import Simulation
from simulator.errors import WorkloadError
from simulator.fabric import CircuitPolicy, PortTiming
from simulator.interfaces import Bound
from simulator.layout import Axis, RankLayout
from simulator.operators import (
    CollectiveKind,
    Elementwise,
    HostWork,
    Lane,
    MatMul,
    Overlapped,
    Phase,
    Sequence,
    Skew,
    StepGraph,
    Task,
    Transfer,
    communications,
)
from simulator.topology.scale_up import ScaleUp, load_nic
from tests import builders
from tests.simulator.engine.test_engine import NODE, Circuit, Star, Unit, pipeline
from tests.workloads.ideal import EVEN, PLAN
from tests.workloads.step.test_offload import INFINITY, OFFLOAD, a_host
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import SCHEDULES
from workloads.plan.plan import parse_plan
from workloads.step.step import build_step


@dataclass(frozen=True, kw_only=True)
class Launched(Unit):
    """A unit whose operators a host issues, not always in time."""

    def cost(self, operator):
        cost = super().cost(operator)
        bound = Bound.MEMORY if isinstance(operator, Elementwise) else Bound.COMPUTE
        return replace(cost, bound=bound, host_s=0.3, energy_j={"compute": 1.5 * cost.time_s, "memory": 0.1})


HOSTED = replace(NODE, units=(Launched(),), host=a_host(link=1e9, ddr=1e9, disk=1e9))
SLOWED = replace(HOSTED, collective_share=0.5)
TICK_S = 0.25
"""Durations are multiples of it, so that events fall on one instant often."""


def expect_equal(graph, node, fabric, *, compiled=False):
    """Return the trace of a step in arrays, having checked that the reference's is equal to the last bit."""
    expected = Simulation(graph, node, fabric).run()
    structure = StepStructure(graph)
    found = CompiledStep(structure, StepNetwork(structure, fabric)).run(node, compiled=compiled)
    assert tuple(found.spans) == expected.spans
    assert found == replace(expected, spans=found.spans)
    for name in ("compute_energy_j", "network_bytes", "host_bytes", "algorithms"):
        assert list(getattr(found, name)) == list(getattr(expected, name))  # records keep the order, too
    return found


class RandomStep:
    """Random graph on classes of four ranks in two pairs, with many events at one instant."""

    def __init__(self, seed, stages=3):
        self.random = np.random.default_rng(seed)
        self.stages = stages
        self.layout = RankLayout(tp=2, dp=2, pp=stages)
        self.tasks = []

    def ticks(self, most=4):
        return TICK_S * int(self.random.integers(1, most))

    def work(self):
        flops = self.ticks() * 1e12
        if self.random.random() < 0.5:
            return Elementwise(name="e", phase=Phase.FORWARD, flops=flops, read_bytes=0.0, written_bytes=0.0)
        return MatMul(name="m", phase=Phase.FORWARD, batch=1, m=int(flops / 2e6), k=1000, n=1000)

    def collective(self, axis=None):
        axis = axis or self.random.choice(["tp", "dp"])
        kind = self.random.choice([CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER])
        payload = float(self.random.choice([0.0, 0.25e9, 0.5e9, 1e9]))
        return builders.collective(CollectiveKind(kind), 2, payload, axis=str(axis))

    def send(self, stage):
        others = [other - stage for other in range(self.stages) if other != stage]
        one = replace(self.collective(), kind=CollectiveKind.SEND, axis="pp", name="send")
        return replace(one, shift=int(self.random.choice(others)))

    def overlapped(self):
        pieces = int(self.random.integers(1, 4))
        product = MatMul(name="o", phase=Phase.FORWARD, batch=1, m=125_000, k=1000, n=1000)
        alone = int(self.random.integers(0, pieces + 1))
        return Overlapped(product=product, pieces=pieces, alone=alone, collective=self.collective())

    def items(self):
        makers = (self.work, self.work, self.collective, self.overlapped)
        return tuple(
            (makers[int(self.random.integers(len(makers)))](), int(self.random.integers(1, 3)))
            for _ in range(int(self.random.integers(1, 5)))
        )

    def operator(self, stage):
        match int(self.random.integers(8)):
            case 0 | 1:
                return self.send(stage)
            case 2:
                return self.collective()
            case 3:
                lane = self.random.choice(list(Lane))
                return Transfer(
                    name="t", phase=Phase.FORWARD, lane=Lane(lane), moved_bytes=self.ticks() * 1e9
                )
            case 4:
                return HostWork(
                    name="h",
                    phase=Phase.UPDATE,
                    flops=1.0,
                    read_bytes=self.ticks() * 1e9,
                    written_bytes=0.0,
                )
            case 5:
                return self.work()
            case _:
                return Sequence(name="s", phase=Phase.FORWARD, items=self.items(), microbatch=1)

    def graph(self, count=24):
        for number in range(count):
            stage = int(self.random.integers(self.stages))
            earlier = int(self.random.integers(0, min(number, 3) + 1))
            after = tuple({int(one) for one in self.random.integers(0, number, earlier)} if number else ())
            operator = self.operator(stage)
            task = Task(
                id=number,
                rank_class=stage,
                operator=operator,
                after=after,
                multiplicity=int(self.random.integers(1, 3)),
                priority=number,
                beside=bool(self.random.random() < 0.2),
            )
            self.tasks.append(task)
        return StepGraph(tasks=tuple(self.tasks), layout=self.layout, tokens=1)


@pytest.mark.parametrize("latency", [0.0, TICK_S])
@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_end_alike_where_events_coincide(seed, latency):
    for node in (HOSTED, SLOWED):
        expect_equal(RandomStep(seed).graph(), node, Star(endpoints=12, latency=latency))


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_end_alike_on_crowded_ports_of_odd_speed(seed):
    expect_equal(
        RandomStep(seed, stages=5).graph(60), HOSTED, Star(endpoints=20, latency=1e-3, up=0.7e9 + seed)
    )


@pytest.mark.slow
def test_compiled_loop_gives_the_same_bits():
    pytest.importorskip("numba")
    if loop.compiled_play(loop.Turning.NONE) is None:
        pytest.skip("compilation is switched off")
    for seed in range(40):
        expect_equal(RandomStep(seed).graph(), SLOWED, Star(endpoints=12), compiled=True)


@pytest.mark.parametrize("bandwidth", np.linspace(0.1e9, 2e9, 20))
def test_two_events_on_one_instant_set_every_rate(bandwidth):
    # A sweep over bandwidths puts ends of transfers on starts of others, one after the other.
    expect_equal(pipeline(4, 6, payload=0.5e9), NODE, Star(endpoints=8, up=bandwidth, latency=0.125))


SPREADS = ("", "zero=1,dp=2", "tp=2,dp=2", "zero=2,dp=2")
FLOWING = ("pipedream", "pipedream_2bw")
"""Pipelines that are never emptied; their parameters are not sharded."""


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
@pytest.mark.parametrize("spread", SPREADS)
def test_every_schedule_ends_as_the_reference_does(schedule, spread):
    text = f"pp=4,schedule={schedule},{'zero=0,' if schedule in FLOWING else ''}{spread}".strip(",")
    if schedule in FLOWING and "zero=" in spread:
        text = text.replace(spread, "dp=2")
    plan = parse_plan(text, base=PLAN)
    expect_equal(build_step(EVEN, plan), HOSTED, Star(endpoints=plan.axes.ranks, up=1e9))


EXPERTS = TransformerConfig(
    name="experts",
    layers=4,
    hidden=64,
    heads=8,
    kv_heads=8,
    head_dim=8,
    ffn_hidden=128,
    vocabulary=128,
    max_sequence=256,
    experts=8,
    experts_per_token=2,
)


@pytest.mark.parametrize(
    "changes",
    [
        {"dp": 8, "zero": 3},
        {"tp": 4, "overlap_tensor": True},
        {"tp": 2, "cp": 2, "dp": 2},
        {"dp": 8, "ep": 4},
        {"dp": 8, "ep": 4, "expert_affinity": 1.5, "expert_patterns": 3},
        {"dp": 4, "ep": 4, "pp": 2, "vpp": 2, "overlap_experts": True, "global_batch": 32},
    ],
)
def test_plans_whose_collectives_meet_end_as_the_reference_does(changes):
    plan = PLAN.with_(**{"global_batch": 16, **changes})
    for port in (1e6, 1e8, 1e12):
        expect_equal(build_step(EXPERTS, plan), SLOWED, Star(endpoints=plan.axes.ranks, up=port))


@pytest.mark.parametrize("plan", [OFFLOAD, INFINITY, INFINITY.with_(dp=2, global_batch=4)])
def test_hosts_end_as_the_reference_does(plan):
    node = replace(NODE, host=a_host(link=1e7, ddr=1e8, disk=1e6))
    expect_equal(build_step(EVEN, plan), node, Star(endpoints=plan.axes.ranks, up=1e8))


def rails(endpoints, *, lanes=4, node=2, reconfiguration_s=TICK_S, turning=PortTiming.ON_REQUEST):
    """Return rails of circuits without latency, on which a lane is as fast as ticks ask for."""
    switch = replace(
        load_switch("palomar-mems"), switch_s=reconfiguration_s, control_s=0.0, relock_s=0.0, positions=1
    )
    nic = replace(load_nic("connectx-7"), bandwidth_bytes_per_s=1e9 * lanes, efficiency=1.0, latency_s=0.0)
    optics = replace(load_optics("lane-100g"), fibre_m=0.0)
    inside = ScaleUp(
        size=node,
        bandwidth_bytes_per_s=4e9,
        efficiency=1.0,
        latency_s=0.0,
        energy_j_per_bit=0.0,
        static_w=1.0,
        price_usd=1.0,
    )
    return OcsRails(
        endpoints=endpoints,
        scale_up=inside,
        nic=nic,
        switch=switch,
        optics=optics,
        lanes=lanes,
        turning=turning,
    )


class RandomStepOnCircuits(RandomStep):
    """Random graph whose classes are two nodes; pairs, sends and exchanges of four need the same lanes."""

    def __init__(self, seed, stages=3):
        super().__init__(seed, stages)
        self.layout = RankLayout(dp=4, ep=4, pp=stages)

    def collective(self, axis=None):
        if self.random.random() < 0.3:
            exchange = replace(super().collective(axis or "dp"), kind=CollectiveKind.ALL_TO_ALL)
            return replace(exchange, axis="ep", size=4, name="a")
        return replace(super().collective(axis or "dp"), axis="dp", size=4)


@pytest.mark.parametrize("turning", list(PortTiming))
@pytest.mark.parametrize("seed", range(15))
def test_random_graphs_end_alike_while_circuits_turn(seed, turning):
    # Lanes for some of the peers only, so that exchanges go in turns; changes that take ticks, or no time.
    stages, lanes = 3, (2, 3, 4)[seed % 3]
    fabric = rails(
        4 * stages,
        lanes=lanes,
        node=(1, 2)[seed // 3 % 2],
        reconfiguration_s=(TICK_S, 0.0, 1e-3)[seed % 3],
        turning=turning,
    )
    trace = expect_equal(RandomStepOnCircuits(seed).graph(), HOSTED, fabric)
    assert trace.reconfigurations > 0


@pytest.mark.parametrize(("share", "waits"), [(0.51, False), (0.49, True)])
def test_a_sum_waits_for_the_exchanges_of_a_pass_if_half_a_turn_takes_longer(share, waits):
    fabric = rails(4, lanes=1, node=1)
    turn_s = fabric.traits.reconfiguration_s
    work = Elementwise(name="e", phase=Phase.FORWARD, flops=1e12, read_bytes=0.0, written_bytes=0.0)
    pairs = builders.collective(CollectiveKind.ALL_GATHER, 2, 0.25e9, axis="tp", name="x")
    sums = builders.collective(CollectiveKind.ALL_GATHER, 2, share * turn_s * 1e9, axis="dp", name="sum")
    first, last = (
        Sequence(name=name, phase=Phase.FORWARD, items=((pairs, 1), (work, 1)) * 4, microbatch=number)
        for number, name in enumerate(("first", "last"))
    )
    tasks = (
        Task(id=0, rank_class=0, operator=first),
        Task(id=1, rank_class=0, operator=sums, after=(0,)),
        Task(id=2, rank_class=0, operator=last, after=(0,), priority=1),
        Task(id=3, rank_class=0, operator=work, after=(1, 2), priority=2),
    )
    graph = StepGraph(tasks=tasks, layout=RankLayout(tp=2, dp=2), tokens=1)
    trace = expect_equal(graph, NODE, fabric)
    ends = {span.task: span.end_s for span in trace.spans if span.task >= 0}
    assert (ends[1] > ends[2]) == waits
    assert trace.reconfigurations == (1 if waits else 2)


def test_the_compiled_loop_turns_circuits_to_the_same_bits():
    pytest.importorskip("numba")
    if loop.compiled_play(loop.Turning.LANES) is None:
        pytest.skip("compilation is switched off")
    for seed in range(12):
        expect_equal(RandomStepOnCircuits(seed).graph(), HOSTED, rails(12, lanes=2 + seed % 3), compiled=True)


def test_changes_of_circuits_are_handed_out_before_there_is_no_room(monkeypatch):
    graph, fabric = RandomStepOnCircuits(5).graph(60), rails(12)
    assert expect_equal(graph, HOSTED, fabric).reconfigurations > 3
    monkeypatch.setattr(circuit_tables, "MOST_CHANGES", 3)
    expect_equal(graph, HOSTED, fabric)


def test_traffic_that_would_be_turned_away_is_no_event_of_its_own():
    # Context parallelism begins with its circuits; sends to the next stage then take them away.
    graph = build_step(EVEN, PLAN.with_(cp=2, pp=2, global_batch=8, sequence_length=64))
    fabric = rails(4, lanes=2, node=1)
    network = StepNetwork(StepStructure(graph), fabric)
    runs = [one.operator for one in graph.tasks if isinstance(one.operator, Sequence)]
    assert not any(network.private(one, 0) for one in runs if communications(one))
    expect_equal(graph, HOSTED, fabric)


class RandomStepWithFavourites(RandomStepOnCircuits):
    """Random graph with exchanges of three patterns of favourites, some of them inside sequences."""

    def collective(self, axis=None):
        one = super().collective(axis)
        if not one.payload_bytes:  # nobody lays circuits for nothing
            one = replace(one, payload_bytes=0.25e9)
        if one.kind is not CollectiveKind.ALL_TO_ALL or axis == "pp":
            return one
        pattern = int(self.random.integers(3))
        skew = Skew(loads=(1.0,) * 4, affinity=1.5, pattern=pattern, patterns=3)
        return replace(one, skew=skew.turned() if self.random.random() < 0.5 else skew)


SWIFT = replace(load_switch("palomar-mems"), control_s=0.0, relock_s=0.0, positions=1)
PACKETS = FatTree(
    endpoints=12,
    scale_up=replace(load_scale_up("nvlink4"), size=1, protocols=(), adders=()),
    nic=load_nic("connectx-6-dx"),
)
FABRICS_OF_CELLS = {
    "hybrid": HybridFabric(packets=PACKETS, degree=2, switch=SWIFT),
    "regional": HybridFabric(
        packets=PACKETS, degree=2, region=4, axis=Axis.EXPERT, choice=CircuitChoice.GREEDY, switch=SWIFT
    ),
    "across": HybridFabric(packets=PACKETS, degree=2, region=6, choice=CircuitChoice.GREEDY, switch=SWIFT),
    "direct": DirectConnect(endpoints=12, scale_up=PACKETS.scale_up, degree=3, switch=SWIFT),
    "wafer": WaferFabric(packets=replace(PACKETS, scale_up=replace(PACKETS.scale_up, size=4))),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("turning", list(PortTiming))
@pytest.mark.parametrize(
    ("name", "policy"),
    [
        (name, policy)
        for name, fabric in FABRICS_OF_CELLS.items()
        for policy in fabric.traits.policies
        if policy is not CircuitPolicy.STATIC
    ],
)
def test_random_graphs_end_alike_while_circuits_turn_part_by_part(name, policy, turning):
    turns = 0
    for seed, switch_s in enumerate((0.0, 1e-3, TICK_S, TICK_S, 2 * TICK_S)):
        switch = {} if name == "wafer" else {"switch": replace(SWIFT, switch_s=switch_s)}
        laid = replace(FABRICS_OF_CELLS[name], **switch).with_policy(policy, turning)
        turns += expect_equal(RandomStepWithFavourites(seed).graph(40), HOSTED, laid).reconfigurations
    assert turns > 0


def test_exchanges_over_packets_do_not_turn_each_other_away_for_ever():
    # A group that began without the circuits that move lost those that it had asked for, and asked again.
    fabric = replace(FABRICS_OF_CELLS["across"], switch=replace(SWIFT, switch_s=TICK_S))
    laid = fabric.with_policy(CircuitPolicy.PER_LAYER, PortTiming.PREFETCHED)
    assert expect_equal(RandomStepWithFavourites(0).graph(60), HOSTED, laid).reconfigurations < 60


def test_the_compiled_loop_turns_parts_to_the_same_bits():
    pytest.importorskip("numba")
    if loop.compiled_play(loop.Turning.PARTS) is None:
        pytest.skip("compilation is switched off")
    for seed in range(4):
        fabric = replace(FABRICS_OF_CELLS["across"], switch=replace(SWIFT, switch_s=TICK_S))
        laid = fabric.with_policy(CircuitPolicy.PER_LAYER, PortTiming.PREFETCHED)
        expect_equal(RandomStepWithFavourites(seed).graph(60), HOSTED, laid, compiled=True)


def test_what_a_run_has_learnt_of_settings_serves_the_next():
    graph = RandomStepWithFavourites(1).graph(40)
    runs = StepRuns(graph)
    fabric = FABRICS_OF_CELLS["regional"].with_policy(CircuitPolicy.PER_LAYER)
    for node in (HOSTED, SLOWED, HOSTED):
        assert runs.run(node, fabric) == Simulation(graph, node, fabric).run()
        assert not runs.why_reference


def test_circuits_whose_parts_nobody_tells_are_the_references():
    graph = pipeline(2, 3, payload=1e9)
    fabric = Circuit(endpoints=4, reconfiguration_s=0.1)
    structure = StepStructure(graph)
    with pytest.raises(NotCoveredError, match="circuits turn"):
        CompiledStep(structure, StepNetwork(structure, fabric)).run(NODE, compiled=False)
    runs = StepRuns(graph)
    assert runs.run(NODE, fabric) == Simulation(graph, NODE, fabric).run()
    assert "circuits turn" in runs.why_reference


def test_circuits_that_stand_are_in_arrays():
    send = replace(RandomStep(0).send(0), payload_bytes=1e9, shift=1)
    graph = StepGraph(
        tasks=tuple(Task(id=one, rank_class=0, operator=send) for one in range(3)),
        layout=RankLayout(pp=2),
        tokens=1,
    )
    fabric = Circuit(endpoints=2, first_axis="pp")
    assert expect_equal(graph, NODE, fabric).makespan_s == 3.0
    runs = StepRuns(graph)
    runs.run(NODE, fabric)
    assert not runs.why_reference


def test_a_kept_structure_meets_another_node_and_another_network():
    graph = build_step(EVEN, PLAN.with_(tp=2, pp=2, dp=2))
    runs = StepRuns(graph, runs=4)
    slow, fast = Star(endpoints=8, up=1e6), Star(endpoints=8, up=1e9)
    for node, fabric in ((NODE, slow), (HOSTED, slow), (HOSTED, fast), (NODE, slow)):
        assert runs.run(node, fabric) == Simulation(graph, node, fabric).run()


def test_equal_runs_of_other_classes_are_priced_once(monkeypatch):
    priced, price = [], Programs._price

    def counted(self, sequence):
        priced.append(sequence.items)
        return price(self, sequence)

    monkeypatch.setattr(Programs, "_price", counted)
    structure = StepStructure(build_step(EVEN, PLAN.with_(pp=4)))
    Programs(structure, NODE, StepNetwork(structure, Star(endpoints=4)))
    runs = {work.operator.items for work in structure.works if isinstance(work.operator, Sequence)}
    assert len(priced) == len(set(priced)) == len(runs)
    assert len(runs) < sum(isinstance(work.operator, Sequence) for work in structure.works)


def test_a_node_that_runs_nothing_says_so():
    graph = build_step(EVEN, PLAN)
    with pytest.raises(WorkloadError, match="no unit"):
        StepRuns(graph).run(replace(NODE, units=()), Star(endpoints=1))


def test_a_step_is_compiled_once_circuits_have_changed_often(monkeypatch):
    graph, fabric = RandomStepOnCircuits(5).graph(60), rails(12)
    monkeypatch.setattr(circuit_tables, "MOST_CHANGES", 3)
    structure = StepStructure(graph)
    found = CompiledStep(structure, StepNetwork(structure, fabric)).run(HOSTED, compiled=None)
    assert found == Simulation(graph, HOSTED, fabric).run()


def in_order(graph, blocks):
    """Return the same step with the operators of one block after the other."""
    runs = [
        replace(task.operator, items=tuple((one, 1) for one, _ in task.operator.items) * blocks)
        for task in graph.tasks
    ]
    tasks = tuple(replace(task, operator=run) for task, run in zip(graph.tasks, runs, strict=True))
    return replace(graph, tasks=tasks)


def blocks_of_two_axes(blocks):
    """Return passes whose blocks ask for tensor ranks of two nodes and for experts, by turns."""
    tensor = builders.collective(CollectiveKind.ALL_GATHER, 4, 1e9, axis="tp")
    experts = builders.collective(CollectiveKind.ALL_TO_ALL, 2, 1e9, axis="ep")
    work = MatMul(name="m", phase=Phase.FORWARD, batch=1, m=125_000, k=1000, n=1000)
    items = tuple((one, blocks) for one in (tensor, work, experts, work))
    run = Sequence(name="forward", phase=Phase.FORWARD, items=items)
    tasks = tuple(
        Task(id=k, rank_class=0, operator=run, after=(k - 1,) if k else (), priority=k) for k in range(3)
    )
    return StepGraph(tasks=tasks, layout=RankLayout(tp=4, dp=2, ep=2), tokens=1)


@pytest.mark.parametrize("turning", list(PortTiming))
def test_circuits_turn_in_every_block_where_axes_take_them_from_each_other(turning):
    """A block waits for none of its tokens' next layer: two axes turn circuits twice in each of them."""
    fabric = rails(8, node=2, lanes=1, turning=turning)
    for blocks in (1, 5):
        graph = blocks_of_two_axes(blocks)
        trace = expect_equal(graph, NODE, fabric)
        written_out = expect_equal(in_order(graph, blocks), NODE, fabric)
        unfused = Simulation(graph, NODE, fabric, fuse=False).run()
        assert trace.makespan_s == pytest.approx(written_out.makespan_s, rel=1e-12)
        assert trace.makespan_s == pytest.approx(unfused.makespan_s, rel=1e-12)
        assert trace.reconfigurations == written_out.reconfigurations == 2 * 3 * blocks - 1


def test_the_ring_of_context_ranks_turns_circuits_in_every_block():
    plan = PLAN.with_(cp=4, dp=2, ep=2, global_batch=8, sequence_length=64)
    fabric = rails(8, node=1, lanes=1)
    every = {}
    for layers in (2, 4):
        graph = build_step(replace(EXPERTS, layers=layers), plan)
        every[layers] = expect_equal(graph, HOSTED, fabric).reconfigurations
    assert every[4] > 1.8 * every[2]
