from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from simulator.engine.simulation import SETTLED, Simulation
from simulator.errors import RouteError
from simulator.fabric import Fabric, Traits
from simulator.interfaces import Bound, Cost, LinkGraph, Reconfiguration
from simulator.layout import Axis, RankLayout
from simulator.node import Memory, Node
from simulator.operators import (
    CollectiveKind,
    Elementwise,
    MatMul,
    Phase,
    Sequence,
    StepGraph,
    Task,
    takes_units,
)
from simulator.results import BUBBLE, DARK, EXPOSED, Stream, summarise
from tests import builders
from tests.bounds import alone_s, collective_bound_s, critical_path_s, serial_sum_s

PORT = 1e9


@dataclass(frozen=True, kw_only=True)
class Unit:
    name: str = "unit"
    static_w: float = 10.0

    def accepts(self, operator):
        return isinstance(operator, MatMul | Elementwise)

    def cost(self, operator):
        flops = operator.flops
        return Cost(time_s=flops / 1e12, energy_j={"compute": flops * 1e-12}, bound=Bound.COMPUTE)

    def numerics(self, phase):
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Star(Fabric):
    """Every endpoint has one port into a switch that never blocks."""

    endpoints: int
    name: str = "star"
    static_w: float = 5.0
    latency: float = 0.0
    up: float = PORT

    def graph(self, circuits):
        capacity = np.full(2 * self.endpoints, self.up)
        return LinkGraph(capacity_bytes_per_s=capacity, latency_s=np.full(capacity.size, self.latency))

    def route(self, circuits, flows):
        return np.stack([flows.sources, self.endpoints + flows.destinations], axis=1)

    def transfer_energy_j(self, flows):
        return 1e-12 * flows.size_bytes * flows.sources.size


@dataclass(frozen=True, kw_only=True)
class Circuit(Star):
    """One circuit per endpoint: its peer, or -1; a change darkens the links that change."""

    reconfiguration_s: float = 0.0
    first_axis: str = ""

    def initial(self, demand):
        peers = np.full(self.endpoints, -1)
        for flows in demand:
            if flows.axis == self.first_axis:
                peers[flows.sources] = flows.destinations
        return peers

    def configure(self, circuits, flows, demand):
        peers = circuits.copy()
        peers[np.isin(peers, flows.destinations)] = -1
        peers[flows.sources] = flows.destinations
        return peers, Reconfiguration(
            reconfiguration_s=self.reconfiguration_s,
            moved_links=np.flatnonzero(peers != circuits),
            energy_j=2.0,
        )

    def graph(self, circuits):
        capacity = np.where(circuits >= 0, self.up, 0.0)
        return LinkGraph(capacity_bytes_per_s=capacity, latency_s=np.full(capacity.size, self.latency))

    def route(self, circuits, flows):
        return flows.sources[:, None]

    def connected(self, circuits, flows):
        return bool(np.all(circuits[flows.sources] == flows.destinations))


NODE = Node(
    name="node",
    units=(Unit(),),
    memory=Memory(
        capacity_bytes=1e9, bandwidth_bytes_per_s=1e12, efficiency=1.0, energy_j_per_byte=0.0, static_w=1.0
    ),
    peak_flop_per_s=1e12,
)


def work(seconds, name="work", microbatch=0, items=()):
    op = Elementwise(name=name, phase=Phase.FORWARD, flops=seconds * 1e12, read_bytes=0.0, written_bytes=0.0)
    return Sequence(name=name, phase=Phase.FORWARD, items=((op, 1), *items), microbatch=microbatch)


def collective(kind, axis, size, payload, shift=0):
    return builders.collective(kind, size, payload, axis=axis, shift=shift)


def pipeline(stages, microbatches, seconds=1.0, payload=0.0, ranks=2):
    """Forward and backward of every microbatch in 1F1B order."""
    tasks, forward, backward, send_f, send_b = [], {}, {}, {}, {}

    def add(rank_class, op, after, priority=0):
        tasks.append(
            Task(id=len(tasks), rank_class=rank_class, operator=op, after=tuple(after), priority=priority)
        )
        return tasks[-1].id

    for m in range(microbatches):
        for s in range(stages):
            warm = min(stages - s, microbatches)
            place = m if m < warm else 2 * m - warm + 1
            after = [send_f[s - 1, m]] if s else []
            forward[s, m] = add(s, work(seconds, "forward", m), after, place)
            if s < stages - 1:
                op = collective(CollectiveKind.SEND, "pp", 2, payload, 1)
                send_f[s, m] = add(s, op, [forward[s, m]])
        for s in reversed(range(stages)):
            warm = min(stages - s, microbatches)
            place = 2 * m + warm if m + warm < microbatches else microbatches + m
            after = [forward[s, m]] + ([send_b[s + 1, m]] if s < stages - 1 else [])
            backward[s, m] = add(s, work(seconds, "backward", m), after, place)
            if s:
                op = collective(CollectiveKind.SEND, "pp", 2, payload, -1)
                send_b[s, m] = add(s, op, [backward[s, m]])
    layout = RankLayout(tp=ranks, pp=stages)
    return StepGraph(tasks=tuple(tasks), layout=layout, tokens=microbatches, model_flops=1e12)


def run(graph, fabric, fuse=True):
    simulation = Simulation(graph, NODE, fabric, fuse=fuse)
    return simulation, simulation.run()


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 4), (4, 4), (4, 8), (8, 8)])
def test_one_forward_one_backward_has_the_textbook_bubble(stages, microbatches):
    # Narayanan et al. 2021 (2104.04473): bubble over ideal time = (p - 1) / m.
    _, trace = run(pipeline(stages, microbatches), Star(endpoints=2 * stages))
    assert trace.makespan_s == pytest.approx(2.0 * (microbatches + stages - 1))


@pytest.mark.parametrize(
    ("gathered_s", "share", "ends_s"),
    [
        (4.0, 0.5, 12.0),  # half a second a second for 4 s, then 8 s of work are left
        (4.0, 0.0, 10.0),
        (40.0, 0.5, 20.0),  # beside it all along
        (4.0, 1.0, 14.0),  # nothing goes on until it has ended
    ],
)
def test_a_collective_takes_its_share_of_the_work_beside_it(gathered_s, share, ends_s):
    gather = collective(CollectiveKind.ALL_GATHER, Axis.DATA, 2, gathered_s * 1e9)
    tasks = (Task(id=0, rank_class=0, operator=gather), Task(id=1, rank_class=0, operator=work(10.0)))
    graph = StepGraph(tasks=tasks, layout=RankLayout(dp=2), tokens=1)
    trace = Simulation(graph, replace(NODE, collective_share=share), Star(endpoints=2)).run()
    (span,) = (one for one in trace.spans if one.stream is Stream.COMPUTE)
    assert span.end_s == pytest.approx(ends_s, rel=2 * SETTLED)
    assert sum(span.parts_s.values()) == pytest.approx(span.end_s)


def test_sends_and_tensor_traffic_take_nothing():
    assert not takes_units(collective(CollectiveKind.SEND, Axis.PIPELINE, 2, 1e9, 1))
    assert not takes_units(collective(CollectiveKind.ALL_GATHER, Axis.TENSOR, 2, 1e9))


def test_makespan_lies_between_critical_path_and_serial_sum():
    for payload in (0.0, 1e8, 2e9):
        graph = pipeline(4, 6, payload=payload)
        simulation, trace = run(graph, Star(endpoints=8, latency=1e-3))
        low = critical_path_s(graph, partial(alone_s, simulation))
        high = serial_sum_s(graph, partial(alone_s, simulation))
        assert low * (1 - 1e-12) <= trace.makespan_s <= high * (1 + 1e-12)


def test_time_by_category_adds_up_to_the_step():
    graph = pipeline(4, 6, payload=5e8)
    _, trace = run(graph, Star(endpoints=8))
    metrics = summarise(trace, graph, NODE, Star(endpoints=8))
    assert sum(metrics.time_by_category_s.values()) == pytest.approx(metrics.step_time_s)
    assert metrics.time_by_category_s[BUBBLE] > 0.0
    assert metrics.time_by_category_s[EXPOSED] > 0.0


def test_energy_parts_add_up_and_waiting_is_not_free():
    graph = pipeline(2, 2)
    fabric = Star(endpoints=4)
    _, trace = run(graph, fabric)
    metrics = summarise(trace, graph, NODE, fabric)
    dynamic = 2 * 2 * 2 * 2 * 1.0  # stages x microbatches x passes x ranks per stage, one joule each
    static = (10.0 + 1.0) * 4 * trace.makespan_s + 5.0 * trace.makespan_s
    assert metrics.energy_j == pytest.approx(dynamic + static)
    assert metrics.energy_j == pytest.approx(sum(metrics.energy_by_component_j.values()))


@pytest.mark.parametrize(
    "kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER]
)
@pytest.mark.parametrize("n", [2, 4, 7, 16])
def test_no_collective_is_faster_than_its_ports(kind, n):
    graph = StepGraph(
        tasks=(Task(id=0, rank_class=0, operator=collective(kind, "dp", n, 1e9)),),
        layout=RankLayout(dp=n),
        tokens=1,
    )
    _, trace = run(graph, Star(endpoints=n))
    assert trace.makespan_s >= collective_bound_s(kind, n, 1e9, PORT) * (1 - 1e-9)
    assert trace.makespan_s == pytest.approx(collective_bound_s(kind, n, 1e9, PORT))


def test_small_messages_take_the_algorithm_with_fewer_steps():
    def duration(payload):
        op = collective(CollectiveKind.ALL_REDUCE, "dp", 16, payload)
        graph = StepGraph(tasks=(Task(id=0, rank_class=0, operator=op),), layout=RankLayout(dp=16), tokens=1)
        return run(graph, Star(endpoints=16, latency=1e-6))[1]

    assert duration(8.0).algorithms == {"dp all_reduce": "halving_doubling"}
    assert duration(8.0).makespan_s == pytest.approx(8 * 2e-6, rel=1e-2)


def test_transfers_that_meet_on_a_link_share_it():
    # Two classes send into the same receiver class at once: each receiver port carries both.
    ops = [
        collective(CollectiveKind.SEND, "pp", 2, 1e9, 1),
        collective(CollectiveKind.SEND, "pp", 2, 1e9, -1),
    ]
    tasks = (
        Task(id=0, rank_class=0, operator=ops[0]),
        Task(id=1, rank_class=2, operator=ops[1]),
    )
    graph = StepGraph(tasks=tasks, layout=RankLayout(pp=3), tokens=1)
    _, trace = run(graph, Star(endpoints=3))
    assert trace.makespan_s == pytest.approx(2.0)


def test_overlap_follows_from_the_graph():
    send = collective(CollectiveKind.ALL_REDUCE, "dp", 2, 1e9)
    first = Task(id=0, rank_class=0, operator=work(1.0))
    sync = Task(id=1, rank_class=0, operator=send, after=(0,))
    free = Task(id=2, rank_class=0, operator=work(3.0), priority=1)
    bound = Task(id=2, rank_class=0, operator=work(3.0), priority=1, after=(1,))
    for last, expected in ((free, 4.0), (bound, 5.0)):
        graph = StepGraph(tasks=(first, sync, last), layout=RankLayout(dp=2), tokens=1)
        _, trace = run(graph, Star(endpoints=2))
        assert trace.makespan_s == pytest.approx(expected)


@pytest.mark.parametrize("private", [True, False])
def test_fusing_changes_no_number(private):
    inner = collective(CollectiveKind.ALL_REDUCE, "tp", 2, 1e8)
    sync = collective(CollectiveKind.ALL_REDUCE, "dp", 2, 3e8)
    tasks = [Task(id=0, rank_class=0, operator=work(0.1, items=((inner, 3),)), priority=0)]
    if not private:
        tasks.append(Task(id=1, rank_class=0, operator=sync))
    graph = StepGraph(tasks=tuple(tasks), layout=RankLayout(tp=2, dp=2), tokens=1)
    fused, apart = (run(graph, Star(endpoints=4), fuse=fuse)[1] for fuse in (True, False))
    assert fused.makespan_s == pytest.approx(apart.makespan_s, rel=1e-12)
    assert fused.compute_energy_j == pytest.approx(apart.compute_energy_j)
    assert fused.network_bytes == pytest.approx(apart.network_bytes)
    if not private:
        assert fused.makespan_s > 0.1 + 3 * 0.1  # the two axes share the ports


def circuit_graph(gap_s=0.0):
    ops = (
        collective(CollectiveKind.ALL_GATHER, "dp", 2, 1e9),
        work(gap_s),
        collective(CollectiveKind.SEND, "pp", 2, 1e9, 1),
    )
    tasks = tuple(
        Task(id=i, rank_class=0, operator=op, after=(i - 1,) if i else ()) for i, op in enumerate(ops)
    )
    return StepGraph(tasks=tasks, layout=RankLayout(dp=2, pp=2), tokens=1)


def test_circuits_that_move_at_once_equal_the_packet_switch():
    circuits = run(circuit_graph(), Circuit(endpoints=4, first_axis="dp"))[1]
    packets = run(circuit_graph(), Star(endpoints=4))[1]
    assert circuits.makespan_s == pytest.approx(packets.makespan_s)
    assert circuits.reconfigurations == 1


def test_dark_time_is_paid_counted_and_charged():
    graph = circuit_graph()
    fabric = Circuit(endpoints=4, first_axis="dp", reconfiguration_s=0.25)
    _, trace = run(graph, fabric)
    assert trace.makespan_s == pytest.approx(2.25)
    assert trace.reconfiguration_energy_j == 2.0
    metrics = summarise(trace, graph, NODE, fabric)
    assert metrics.dark_s == pytest.approx(0.25)
    assert metrics.time_by_category_s[DARK] == pytest.approx(0.25 / 2)  # one of two classes waits for it


@dataclass(frozen=True, kw_only=True)
class Provident(Circuit):
    """Turns idle ports to what comes next."""

    traits = Traits(prefetches=True)


@pytest.mark.parametrize("idle", [0.0, 0.1, 0.25, 1.0])
def test_turning_ahead_exposes_what_idle_time_does_not_hide(idle):
    """Opus, arXiv:2507.08119: a move costs max(0, delta - idle); without lookahead all of delta."""
    ops = [
        collective(CollectiveKind.ALL_GATHER, "dp", 2, 1e9),
        work(idle) if idle else None,
        collective(CollectiveKind.SEND, "pp", 2, 1e9, 1),
    ]
    kept = [op for op in ops if op is not None]
    tasks = tuple(
        Task(id=i, rank_class=0, operator=op, after=(i - 1,) if i else ()) for i, op in enumerate(kept)
    )
    graph = StepGraph(tasks=tasks, layout=RankLayout(dp=2, pp=2), tokens=1)
    ahead = run(graph, Provident(endpoints=4, first_axis="dp", reconfiguration_s=0.25))[1]
    asked = run(graph, Circuit(endpoints=4, first_axis="dp", reconfiguration_s=0.25))[1]
    assert ahead.makespan_s == pytest.approx(2.0 + idle + max(0.0, 0.25 - idle))
    assert asked.makespan_s == pytest.approx(2.25 + idle)
    assert ahead.reconfigurations == asked.reconfigurations == 1


def test_ports_stay_for_what_still_comes_over_them():
    first = collective(CollectiveKind.ALL_GATHER, "dp", 2, 1e9)
    send = collective(CollectiveKind.SEND, "pp", 2, 1e9, 1)
    tasks = (
        Task(id=0, rank_class=0, operator=first),
        Task(id=1, rank_class=0, operator=work(1.0), after=(0,)),
        Task(id=2, rank_class=0, operator=first, after=(1,)),
        Task(id=3, rank_class=0, operator=send, after=(2,)),
    )
    graph = StepGraph(tasks=tasks, layout=RankLayout(dp=2, pp=2), tokens=1)
    trace = run(graph, Provident(endpoints=4, first_axis="dp", reconfiguration_s=0.25))[1]
    assert trace.reconfigurations == 1
    assert trace.makespan_s == pytest.approx(4.25)


def test_ports_turn_away_from_what_is_needed_later():
    """A send is not held up by a gather for a pass that comes after it."""
    gather = collective(CollectiveKind.ALL_GATHER, "dp", 2, 1e9)
    send = collective(CollectiveKind.SEND, "pp", 2, 1e9, 1)
    tasks = (
        Task(id=0, rank_class=0, operator=gather),
        Task(id=1, rank_class=0, operator=work(1.0), after=(0,)),
        Task(id=2, rank_class=0, operator=send, after=(1,)),
        Task(id=3, rank_class=0, operator=work(5.0), after=(1,)),
        Task(id=4, rank_class=0, operator=gather, after=(3,)),
        Task(id=5, rank_class=0, operator=work(1.0), after=(4,)),
        Task(id=6, rank_class=1, operator=work(9.0), after=(2,)),
    )
    graph = StepGraph(tasks=tasks, layout=RankLayout(dp=2, pp=2), tokens=1)
    _, trace = run(graph, Circuit(endpoints=4, first_axis="dp", reconfiguration_s=0.25))
    assert trace.makespan_s == pytest.approx(12.25)


def test_a_sum_waits_for_sends_that_others_need():
    """The sum of gradients is asked for first, and only the optimizer at the end waits for it."""
    sums = collective(CollectiveKind.REDUCE_SCATTER, "dp", 2, 1e9)
    send = collective(CollectiveKind.SEND, "pp", 2, 1e9, 1)
    tasks = (
        Task(id=0, rank_class=0, operator=work(1.0)),
        Task(id=1, rank_class=0, operator=sums, after=(0,)),
        Task(id=2, rank_class=0, operator=work(1.0), after=(0,)),
        Task(id=3, rank_class=0, operator=send, after=(2,)),
        Task(id=4, rank_class=0, operator=work(1.0), after=(1, 2)),
        Task(id=5, rank_class=1, operator=work(9.0), after=(3,)),
    )
    graph = StepGraph(tasks=tasks, layout=RankLayout(dp=2, pp=2), tokens=1)
    _, trace = run(graph, Circuit(endpoints=4, first_axis="pp", reconfiguration_s=0.25))
    assert trace.makespan_s == pytest.approx(12.0)
    assert trace.of(0, Stream.COMPUTE)[-1].end_s == pytest.approx(3.25 + 0.5 + 1.0)


def test_ports_do_not_move_while_they_carry_light():
    slow = collective(CollectiveKind.ALL_GATHER, "dp", 2, 1e9)
    send = collective(CollectiveKind.SEND, "pp", 2, 1e9, 1)
    tasks = (Task(id=0, rank_class=0, operator=slow), Task(id=1, rank_class=0, operator=send))
    graph = StepGraph(tasks=tasks, layout=RankLayout(dp=2, pp=2), tokens=1)
    _, trace = run(graph, Circuit(endpoints=4, first_axis="dp", reconfiguration_s=0.25))
    (change,) = [span for span in trace.spans if span.stream is Stream.CIRCUITS]
    assert change.start_s == pytest.approx(1.0)
    assert trace.makespan_s == pytest.approx(2.25)


def test_a_class_computes_one_thing_at_a_time():
    _, trace = run(pipeline(4, 8, payload=1e8), Star(endpoints=8))
    for rank_class in range(4):
        spans = trace.of(rank_class, Stream.COMPUTE)
        assert all(later.start_s >= earlier.end_s for earlier, later in pairwise(spans))


def test_a_run_is_repeatable_to_the_last_bit():
    first, second = (run(pipeline(4, 8, payload=1e8), Star(endpoints=8))[1] for _ in range(2))
    assert first == second


def test_a_fabric_that_cannot_connect_says_so():
    class Broken(Circuit):
        def connected(self, circuits, flows):
            return False

    with pytest.raises(RouteError, match="star cannot connect endpoint 0 to 1"):
        run(circuit_graph(), Broken(endpoints=4))


def test_perfetto_events_cover_every_span():
    _, trace = run(pipeline(2, 2, payload=1e6), Star(endpoints=4))
    events = [event for event in trace.perfetto_events() if event["ph"] == "X"]
    assert len(events) == len(trace.spans)
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(trace.makespan_s * 1e6)


def test_a_long_trace_says_how_many_events_it_leaves_out():
    _, trace = run(pipeline(2, 8, payload=1e6), Star(endpoints=4))
    whole = trace.perfetto_events()
    assert trace.perfetto_events(len(whole)) == whole
    *first, last = trace.perfetto_events(len(whole) - 5)
    assert first == whole[: len(whole) - 6]
    assert last["name"] == "6 later events left out"
