"""Parameter servers: what they carry, what their links allow, and what a delay hides."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.collectives.algorithms import server_places, server_rounds
from simulator.engine.simulation import Simulation
from simulator.errors import WorkloadError
from simulator.operators import Collective, CollectiveKind
from simulator.results import steady, summarise
from tests.bounds import server_bound_s
from tests.workloads.ideal import EVEN, NODE, PLAN, Star, ideal_s, product_flops
from workloads.plan.parts import Exchange
from workloads.plan.plan import parse_plan
from workloads.plan.rules import check
from workloads.step.memory import memory_by_kind
from workloads.step.step import build_step

WORKERS = 4
SERVED = PLAN.with_(
    dp=WORKERS, global_batch=16, exchange=Exchange.PARAMETER_SERVER, grad_bytes=2, grad_buckets=1
)
PSI = 2.0 * EVEN.parameters  # bytes of the parameters, and of the gradients


def simulate(plan, port=1e30):
    graph = build_step(EVEN, plan)
    star = Star(endpoints=plan.axes.ranks, port=port)
    trace = Simulation(graph, NODE, star).run()
    return steady(trace, graph).step_time_s, summarise(trace, graph, NODE, star)


@pytest.mark.parametrize("servers", [0, 1, 2, 4])
@pytest.mark.parametrize("delay", [0, 1])
def test_every_worker_pushes_and_pulls_all_parameters(servers, delay):
    """2 Psi a worker and step, less what its own server holds (Li et al., OSDI 2014, section 3)."""
    _, metrics = simulate(SERVED.with_(servers=servers, delay=delay))
    pushed_and_pulled = 2 * PSI * (WORKERS - 1)  # a share of 1/S stays on each of S ranks
    assert metrics.network_bytes["dp"] == pytest.approx(pushed_and_pulled)


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_synchronous_exchange_takes_what_the_servers_links_allow(servers):
    """T >= max(2 Psi / B_w, 2 Psi (W - 1) / (S B_s)), servers on worker ranks (Li et al., OSDI 2014)."""
    compute = ideal_s(EVEN, SERVED)
    port = 20 * PSI / compute
    took, _ = simulate(SERVED.with_(servers=servers, steps=3), port)
    bound = 2 * max(PSI if servers < WORKERS else 0.0, PSI * (WORKERS - 1) / servers) / port
    assert took - compute == pytest.approx(bound, rel=1e-6)
    assert server_bound_s(WORKERS, servers, PSI, port) == bound


def test_as_many_servers_as_workers_are_a_ring():
    """2 Psi (W - 1) / W through every port, the volume of a ring all-reduce."""
    port = 20 * PSI / ideal_s(EVEN, SERVED)
    servers, ring = (
        simulate(SERVED.with_(exchange=exchange, steps=3), port)[0] for exchange in reversed(Exchange)
    )
    assert servers == pytest.approx(ring, rel=1e-9)
    assert servers - ideal_s(EVEN, SERVED) == pytest.approx(
        2 * PSI * (WORKERS - 1) / WORKERS / port, rel=1e-6
    )


def test_servers_divide_the_incast():
    port = 20 * PSI / ideal_s(EVEN, SERVED)
    exposed = [
        simulate(SERVED.with_(servers=servers), port)[0] - ideal_s(EVEN, SERVED) for servers in (1, 2, 4)
    ]
    assert exposed[0] == pytest.approx(2 * exposed[1], rel=1e-6)
    assert exposed[1] > exposed[2]


ASYNCHRONOUS = [{"delay": 1}, {"delay": 3}, {"asynchronous": True}]


@pytest.mark.parametrize("how", ASYNCHRONOUS)
@pytest.mark.parametrize("servers", [0, 2])
@pytest.mark.parametrize("ratio", [0.3, 0.9, 2.0, 4.0])
def test_a_delay_leaves_the_longer_of_computing_and_communicating(how, servers, ratio):
    """Bounded delay: step t begins once t - 1 - delay has been pulled (Li et al., OSDI 2014, section 3.5)."""
    plan = SERVED.with_(servers=servers, grad_buckets=4, **how)
    compute = ideal_s(EVEN, plan)
    port = server_bound_s(WORKERS, plan.traffic.server_count(plan.axes), PSI, 1.0) / compute / ratio
    took, metrics = simulate(plan, port)
    assert took == pytest.approx(compute * max(1.0, ratio), rel=5e-3)
    assert sum(metrics.time_by_category_s.values()) == pytest.approx(took)
    waits, _ = simulate(plan.with_(delay=0, asynchronous=False, steps=3), port)
    assert waits > took + 0.2 * min(1.0, ratio) * compute


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_a_step_begins_when_the_parameters_after_the_step_before_its_delay_are_there(delay):
    plan = SERVED.with_(delay=delay, steps=8)
    port = server_bound_s(WORKERS, WORKERS, PSI, 1.0) / ideal_s(EVEN, plan) / 3
    graph = build_step(EVEN, plan)
    trace = Simulation(graph, NODE, Star(endpoints=plan.axes.ranks, port=port)).run()
    tasks = {task.id: task.operator for task in graph.tasks}
    spans = sorted((span for span in trace.spans if span.task >= 0), key=lambda span: span.start_s)
    updates = [end for end in (max(s.end_s for s in spans if s.task in ids) for ids in graph.ends)]
    first = [s.start_s for s in spans if s.name == "forward" and s.microbatch == 0]
    pulls = [
        s
        for s in spans
        if isinstance(tasks[s.task], Collective) and tasks[s.task].kind is CollectiveKind.PULL
    ]
    starts = first[:: len(first) // plan.steps_in_run]
    for step in range(1 + delay, plan.steps_in_run):
        assert starts[step] >= updates[step - 1 - delay]
        (pull,) = [one for one in pulls if one.start_s >= updates[step - 1 - delay]][:1]
        assert starts[step] >= pull.end_s * (1 - 1e-12)
    early = [starts[step] < updates[step - 1] for step in range(1 + delay, plan.steps_in_run)]
    assert any(early) == (delay > 0)


def test_servers_keep_the_optimizer_and_a_delay_takes_room():
    plain = memory_by_kind(EVEN, SERVED.with_(exchange=Exchange.COLLECTIVE), 0)
    for servers in (1, 2, 4):
        kinds = memory_by_kind(EVEN, SERVED.with_(servers=servers), 0)
        assert kinds["optimizer"] == pytest.approx(plain["optimizer"] * WORKERS / servers)
        assert kinds["buffers"] - plain["buffers"] == pytest.approx(PSI / servers)
    for delay in (1, 2):
        kinds = memory_by_kind(EVEN, SERVED.with_(delay=delay), 0)
        assert kinds["weights"] == 2 * plain["weights"]
        assert kinds["gradients"] == (1 + delay) * plain["gradients"]
    kinds = memory_by_kind(EVEN, SERVED.with_(asynchronous=True), 0)
    assert kinds["gradients"] == 2 * plain["gradients"]


def test_servers_lose_no_work_on_any_plan():
    for extra in ("pp=2", "tp=2,cp=2", "pp=2,schedule=zb_v", "pp=2,vpp=2,delay=1", "asynchronous=true"):
        plan = parse_plan(extra, base=SERVED)
        graph = build_step(replace(EVEN, vocabulary=512), plan)
        assert product_flops(graph) == graph.model_flops * plan.steps_in_run
        assert simulate(plan, 1e10)[0] >= ideal_s(EVEN, plan) * (1 - 1e-9)


def test_every_server_gets_a_share_from_every_other_worker():
    groups = np.arange(12).reshape(2, 6)
    assert server_places(6, 2).tolist() == [0, 3]
    for servers in (1, 2, 3, 6):
        received = np.zeros(12)
        sent = np.zeros(12)
        for kind, into in ((CollectiveKind.PUSH, received), (CollectiveKind.PULL, sent)):
            (one,) = server_rounds(kind, groups, 60.0, "dp", servers=servers)
            ends = one.flows.destinations if kind is CollectiveKind.PUSH else one.flows.sources
            np.add.at(into, ends, one.flows.size_bytes)
        assert np.array_equal(received, sent)
        assert sorted(set(received)) == sorted({*([0.0] if servers < 6 else []), 60.0 * 5 / servers})
    with pytest.raises(WorkloadError, match=r"servers \(7\) must be from 1 to the workers of a group \(6\)"):
        server_rounds(CollectiveKind.PUSH, groups, 1.0, "dp", servers=7)


SERVER = "exchange=parameter_server,dp=4"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("delay=1", r"delay \(1\) needs exchange=parameter_server"),
        ("servers=2,dp=4", r"servers \(2\) needs exchange=parameter_server"),
        ("asynchronous=true", r"asynchronous \(True\) needs exchange=parameter_server"),
        ("exchange=parameter_server", "needs data-parallel ranks; raise dp"),
        (f"{SERVER},servers=5", r"servers \(5\) must be at most the data-parallel ranks \(4\)"),
        (f"{SERVER},zero=3", r"zero \(3\) must be 1 with exchange=parameter_server"),
        (f"{SERVER},delay=1,asynchronous=true", r"delay \(1\) bounds what asynchronous leaves unbounded"),
        (f"{SERVER},schedule=pipedream,pp=2", "cannot be combined with|must be 0"),
        (f"{SERVER},delay=-1", "delay must be a whole number of at least 0"),
        ("exchange=server", "exchange must be one of collective, parameter_server"),
    ],
)
def test_impossible_servers_are_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(EVEN, parse_plan(text, base=PLAN))
