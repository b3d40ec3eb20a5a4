"""PipeDream and several steps in one run: no bubble, versions of weights, staleness."""

from dataclasses import replace

import pytest

from simulator.engine.simulation import Simulation
from simulator.errors import WorkloadError
from simulator.operators import Collective, Elementwise, Sequence
from simulator.results import steady, step_ends_s, summarise
from tests.bounds import optimal_in_flight
from tests.workloads.ideal import EVEN, NODE, PLAN, Star, ideal_s, product_flops
from workloads.pipeline import schedules
from workloads.pipeline.schedule import SCHEDULES, most_kept
from workloads.plan.plan import parse_plan
from workloads.plan.rules import check
from workloads.step.memory import memory_by_kind
from workloads.step.step import build_step

FLOWING = [schedules.PIPEDREAM, schedules.PIPEDREAM_2BW]


def simulate(plan, port=1e30):
    graph = build_step(EVEN, plan)
    return graph, Simulation(graph, NODE, Star(endpoints=plan.axes.ranks, port=port)).run()


def step_s(plan, port=1e30):
    graph, trace = simulate(plan, port)
    return steady(trace, graph).step_time_s


def history(graph, stage):
    """Return a stage's forward, backward and update tasks in the order in which it runs them."""
    mine = [t for t in graph.tasks if t.rank_class == stage and not isinstance(t.operator, Collective)]
    events = []
    for task in sorted(mine, key=lambda t: (t.priority, t.id)):
        if isinstance(task.operator, Sequence):
            event = (task.operator.name, task.operator.microbatch)
            if not events or events[-1] != event:  # pieces of one pass
                events.append(event)
        elif isinstance(task.operator, Elementwise):
            events.append(("update", -1))
    return events


@pytest.mark.parametrize("kind", FLOWING)
@pytest.mark.parametrize(("pp", "microbatches"), [(2, 2), (4, 4), (4, 8), (8, 16)])
def test_no_flush_no_bubble(kind, pp, microbatches):
    """In the steady state every stage computes all the time (arXiv:1806.03377, figure 4)."""
    plan = PLAN.with_(pp=pp, global_batch=microbatches, schedule=kind)
    assert step_s(plan) / ideal_s(EVEN, plan) == pytest.approx(1.0, rel=5e-3)
    flushed = plan.with_(schedule=schedules.ONE_FORWARD_ONE_BACKWARD, steps=3)
    assert step_s(flushed) / ideal_s(EVEN, plan) == pytest.approx(1 + (pp - 1) / microbatches, rel=5e-3)


def test_weight_stashing_keeps_as_many_versions_as_microbatches_under_way():
    """p - i versions on stage i, and as stale by p - 1 - i updates (arXiv:1806.03377, section 3.3)."""
    plan = PLAN.with_(pp=4, global_batch=8, schedule=schedules.PIPEDREAM)
    graph = build_step(EVEN, plan)
    for stage in range(4):
        version, used, late, most = 0, {}, [], 0
        for event, microbatch in history(graph, stage):
            if event == "forward":
                used[microbatch] = version
                most = max(most, len({*used.values(), version}))
            elif event == "backward":
                late.append(version - used.pop(microbatch))
            else:
                version += 1
        assert max(late) == late[len(late) // 2] == 3 - stage
        assert most == plan.weight_versions(stage) == 4 - stage


def test_double_buffered_weights_are_two_versions():
    """Batch t runs with the version that batch t - 2 made, the one before the newest (arXiv:2006.09503)."""
    plan = PLAN.with_(pp=4, global_batch=8, schedule=schedules.PIPEDREAM_2BW)
    graph = build_step(EVEN, plan)
    for stage in range(4):
        version, used, most = 0, {}, 0
        for event, microbatch in history(graph, stage):
            if event == "forward":
                used[microbatch] = version
                assert version == max(0, microbatch // 8 - 1)
                most = max(most, len({*used.values(), version}))
            elif event == "backward":
                used.pop(microbatch)
            else:
                version += 1
        assert most <= plan.weight_versions(stage) == 2
        assert version == plan.steps_in_run


@pytest.mark.parametrize("kind", FLOWING)
def test_versions_take_memory_and_nothing_else_does(kind):
    plan = PLAN.with_(pp=4, global_batch=8)
    for stage in range(4):
        one, more = (memory_by_kind(EVEN, plan.with_(schedule=k), stage) for k in (plan.schedule.kind, kind))
        versions = 4 - stage if kind is schedules.PIPEDREAM else 2
        assert more["weights"] == versions * one["weights"]
        assert {name: more[name] for name in more if name != "weights"} == {
            name: one[name] for name in one if name != "weights"
        }


@pytest.mark.parametrize("microbatches", [1, 2, 3, 4, 9])
def test_activations_are_kept_of_microbatches_of_several_steps(microbatches):
    """A step of fewer microbatches than stages leaves as many under way: those of the next steps follow."""
    plan = PLAN.with_(pp=4, global_batch=microbatches, schedule=schedules.PIPEDREAM)
    for stage, slots in enumerate(plan.pipeline.order()):
        assert plan.pipeline.kept(stage, (2.0,)) == most_kept(slots, (2.0,)) == 2.0 * (4 - stage)


def test_as_many_microbatches_are_under_way_as_keep_the_pipeline_busy():
    """NOAM = ceil(workers / replicas of the input stage) (arXiv:1806.03377, section 3.2)."""
    assert optimal_in_flight(8, 3) == 3
    for pp, dp in ((2, 1), (4, 1), (4, 2)):
        plan = PLAN.with_(pp=pp, dp=dp, global_batch=8 * dp, zero=0, schedule=schedules.PIPEDREAM)
        kept = most = 0
        for event, _ in history(build_step(EVEN, plan), 0):
            kept += {"forward": 1, "backward": -1, "update": 0}[event]
            most = max(most, kept)
        assert most == optimal_in_flight(plan.axes.ranks, dp) == pp


@pytest.mark.parametrize("kind", FLOWING)
def test_flowing_loses_no_work(kind):
    for dp in (1, 2):
        plan = PLAN.with_(pp=2, dp=dp, tp=2, zero=0, schedule=kind)
        graph = build_step(replace(EVEN, vocabulary=512), plan)
        assert product_flops(graph) == graph.model_flops * plan.steps_in_run


def test_gradients_travel_for_every_update():
    """PipeDream updates, hence sums, for every microbatch, 2BW once a step (arXiv:2006.09503, 3.1)."""
    plan = PLAN.with_(pp=2, dp=2, global_batch=16, zero=0)
    sums = {}
    for kind in (schedules.ONE_FORWARD_ONE_BACKWARD, *FLOWING):
        graph, trace = simulate(plan.with_(schedule=kind))
        sums[kind] = summarise(trace, graph, NODE, Star(endpoints=4)).network_bytes["dp"]
    flushed = sums[schedules.ONE_FORWARD_ONE_BACKWARD]
    assert sums[schedules.PIPEDREAM] == pytest.approx(plan.microbatches * flushed)
    assert sums[schedules.PIPEDREAM_2BW] == pytest.approx(flushed)


def test_double_buffered_weights_hide_the_sum_behind_the_next_batch():
    plan = PLAN.with_(pp=2, dp=2, global_batch=16, zero=0, schedule=schedules.PIPEDREAM_2BW)
    compute = ideal_s(EVEN, plan)
    port = 2 * EVEN.parameters * 4 / plan.axes.pp / (0.5 * compute)  # the sum takes a quarter of a step
    assert step_s(plan, port) == pytest.approx(compute, rel=2e-2)  # sends are not free either
    flushed = plan.with_(schedule=schedules.ONE_FORWARD_ONE_BACKWARD, steps=3)
    assert step_s(flushed, port) > (1 + 1 / 8 + 0.1) * compute


# Several steps in one run


@pytest.mark.parametrize("kind", [one for one in SCHEDULES.values() if not one.flows])
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_steps_in_a_row_take_no_longer_than_one_alone(kind, zero):
    plan = PLAN.with_(pp=2, dp=2, global_batch=16, schedule=kind, zero=zero)
    port = 1e10
    graph, trace = simulate(plan.with_(steps=3), port)
    once = step_s(plan, port)
    ends = step_ends_s(trace, graph)
    assert len(ends) == 3
    assert steady(trace, graph).step_time_s <= once * (1 + 1e-9)
    assert ends[-1] <= 3 * once * (1 + 1e-9)
    assert ends == sorted(ends)
    assert product_flops(graph) == 3 * graph.model_flops


def test_a_single_step_is_its_own_steady_state():
    graph, trace = simulate(PLAN.with_(pp=2))
    late = steady(trace, graph)
    assert late.trace is trace
    assert (late.steps, late.run_steps, late.step_time_s) == (1, 1, trace.makespan_s)


def test_metrics_of_several_steps_are_those_of_one():
    plan = PLAN.with_(pp=2, dp=2, global_batch=16, zero=0)
    star = Star(endpoints=4, port=1e10)
    one, many = (
        summarise(trace, graph, NODE, star)
        for graph, trace in (simulate(plan.with_(steps=steps), 1e10) for steps in (1, 5))
    )
    assert many.step_time_s == pytest.approx(one.step_time_s)
    assert many.network_bytes == pytest.approx(one.network_bytes)
    assert many.energy_j == pytest.approx(one.energy_j)
    assert many.model_flop_utilisation == pytest.approx(one.model_flop_utilisation)
    assert sum(many.time_by_category_s.values()) == pytest.approx(many.step_time_s)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schedule=pipedream,pp=2,dp=2", r"zero \(1\) must be 0 with schedule=pipedream"),
        (
            "schedule=pipedream_2bw,pp=4,global_batch=2",
            r"microbatches \(2\) must be at least the stages \(4\).*global_batch of 4 or more",
        ),
        ("steps=0", "steps must be a whole number of at least 1"),
    ],
)
def test_impossible_flow_is_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(EVEN, parse_plan(text, base=PLAN))
