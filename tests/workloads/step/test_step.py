"""A whole step: every plan does the model's work, and sends what the laws say it must."""

import itertools
import math
from dataclasses import replace

import pytest

from simulator.errors import WorkloadError
from simulator.operators import (
    Collective,
    CollectiveKind,
    Elementwise,
    MatMul,
    Phase,
    Sequence,
    topological_order,
    total_flops,
)
from tests.builders import EXPERTS, PLAN, TINY
from workloads.layers.transformer import model_flops
from workloads.models.config import load_model
from workloads.pipeline import schedules
from workloads.plan.parts import Attention, Recompute
from workloads.plan.plan import Plan
from workloads.step.step import build_step


def product_flops(items):
    return sum(operator.flops * count for operator, count in items if isinstance(operator, MatMul))


def test_gpt_175b_step_takes_the_published_flops():
    """Model FLOPs of arXiv:2205.05198, appendix A, with 51200 tokens; 4.511e18 with full recomputation."""
    config = replace(load_model("gpt3-175b"), vocabulary=51200)
    batch, s, h, layers, v = 1536, 2048, 12288, 96, 51200
    plan = Plan.of(tp=8, pp=16, dp=8, global_batch=batch, sequence_length=s)
    expected = 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))
    assert model_flops(config, plan.share) == pytest.approx(expected, rel=1e-12)
    # With the blocks' forward pass once more it is the law of arXiv:2104.04473, equation 3.
    again = 24 * batch * s * layers * h**2 * (1 + s / (6 * h))
    assert expected + again == pytest.approx(4.511e18, rel=1e-3)


def sequences(step):
    return [task for task in step.tasks if isinstance(task.operator, Sequence)]


def step_product_flops(step):
    each = [product_flops(task.operator.items) for task in sequences(step)]
    return sum(each) * step.layout.ranks_per_class


PLANS = [
    PLAN,
    PLAN.with_(tp=4),
    PLAN.with_(tp=2, pp=4, dp=2),
    PLAN.with_(pp=3, dp=4, grad_buckets=1),
    PLAN.with_(dp=8, micro_batch=2, zero=0),
    PLAN.with_(pp=8, schedule=schedules.GPIPE),
    PLAN.with_(pp=8, dp=16, sequence_parallel=False),
]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("config", [TINY, EXPERTS])
def test_every_plan_does_the_models_work_exactly(config, plan):
    step = build_step(config, plan)
    assert step_product_flops(step) == step.model_flops == model_flops(config, plan.share)
    assert step.tokens == 16 * 64
    assert step.ranks == plan.axes.ranks


@pytest.mark.parametrize("plan", PLANS)
def test_every_microbatch_runs_forward_and_backward_once_on_every_stage(plan):
    step = build_step(TINY, plan)
    for stage in range(plan.axes.pp):
        for name in ("forward", "backward"):
            seen = {
                t.operator.microbatch
                for t in sequences(step)
                if t.rank_class == stage and t.operator.name == name
            }
            assert seen == set(range(plan.microbatches))


@pytest.mark.parametrize("plan", PLANS)
def test_running_in_order_of_priority_never_deadlocks(plan):
    """Add the order of every stage's compute stream as dependencies; the graph must stay acyclic."""
    step = build_step(TINY, plan)
    tasks = {task.id: task for task in step.tasks}
    for stage in range(plan.axes.pp):
        stream = [t for t in step.tasks if t.rank_class == stage and not isinstance(t.operator, Collective)]
        assert len({t.priority for t in stream}) == len(stream)
        stream.sort(key=lambda t: t.priority)
        for before, after in itertools.pairwise(stream):
            tasks[after.id] = replace(after, after=(*tasks[after.id].after, before.id))
    assert len(topological_order(tuple(tasks.values()))) == len(step.tasks)


def test_stages_hand_on_activations_and_gradients():
    plan = PLAN.with_(tp=2, pp=4, dp=2)
    step = build_step(TINY, plan)
    tasks = {task.id: task for task in step.tasks}
    sends = [
        t for t in step.tasks if isinstance(t.operator, Collective) and t.operator.kind is CollectiveKind.SEND
    ]
    assert len(sends) == 2 * 3 * plan.microbatches
    assert {t.operator.payload_bytes for t in sends} == {2 * PLAN.share.tokens * TINY.hidden / 2}
    for send in sends:
        (sender,) = (tasks[identifier] for identifier in send.after)
        assert sender.rank_class == send.rank_class
        receivers = [t for t in sequences(step) if send.id in t.after]
        assert len(receivers) == 1
        assert receivers[0].rank_class == send.rank_class + send.operator.shift
        assert receivers[0].operator.microbatch == sender.operator.microbatch
        assert receivers[0].operator.name == sender.operator.name


def test_backward_pass_waits_for_its_own_forward_pass():
    for plan in (PLAN, PLAN.with_(pp=4, dp=2)):
        step = build_step(TINY, plan)
        tasks = {task.id: task for task in step.tasks}
        for backward in (t for t in sequences(step) if t.operator.name == "backward"):
            awaited = [tasks[identifier] for identifier in backward.after]
            forward = [
                t for t in awaited if isinstance(t.operator, Sequence) and t.operator.name == "forward"
            ]
            parts = [t for t in awaited if isinstance(t.operator, Sequence) and t.operator.name == "backward"]
            assert forward or parts
            for task in (*forward, *parts):
                assert task.rank_class == backward.rank_class
                assert task.operator.microbatch == backward.operator.microbatch


def test_last_backward_pass_runs_from_the_head_to_the_embedding():
    step = build_step(TINY, PLAN.with_(dp=4))
    last = [t for t in sequences(step) if t.operator.name == "backward" and t.operator.microbatch == 3]
    last.sort(key=lambda t: t.priority)
    names = [{operator.name for operator, _ in task.operator.items} for task in last]
    assert len(names) == 4
    assert "head.logits" in names[0]
    assert "embedding.lookup" in names[-1]
    assert not any({"head.logits", "embedding.lookup"} & middle for middle in names[1:-1])


def gradient_traffic(step):
    found = [t for t in step.tasks if isinstance(t.operator, Collective) and t.operator.name == "gradients"]
    return found, sum(t.operator.payload_bytes for t in found)


def test_gradients_of_all_parameters_are_summed_once():
    for plan in (PLAN.with_(dp=4), PLAN.with_(dp=4, pp=2), PLAN.with_(dp=4, grad_buckets=1)):
        found, sent = gradient_traffic(build_step(TINY, plan))
        assert sent == 4 * TINY.parameters
        assert len(found) == plan.axes.pp * plan.traffic.grad_buckets
        assert {t.operator.kind for t in found} == {CollectiveKind.REDUCE_SCATTER}


def test_gathered_parameters_are_the_shards_of_all():
    step = build_step(TINY, PLAN.with_(dp=4))
    gathers = [
        t for t in step.tasks if isinstance(t.operator, Collective) and t.operator.name == "parameters"
    ]
    assert sum(t.operator.payload_bytes for t in gathers) == 2 * TINY.parameters / 4
    first = [t for t in sequences(step) if t.operator.name == "forward" and t.operator.microbatch == 0]
    assert len(first) == len(gathers) == 4
    for part, gather in zip(first, gathers, strict=True):
        assert gather.id in part.after


def test_without_zero_gradients_are_all_reduced_and_nothing_is_gathered():
    step = build_step(TINY, PLAN.with_(dp=4, zero=0))
    found, sent = gradient_traffic(step)
    assert {t.operator.kind for t in found} == {CollectiveKind.ALL_REDUCE}
    assert sent == 4 * TINY.parameters
    assert not [
        t for t in step.tasks if isinstance(t.operator, Collective) and t.operator.name == "parameters"
    ]


def test_expert_gradients_travel_along_their_own_axis():
    plan = PLAN.with_(dp=8, ep=4)
    found, _ = gradient_traffic(build_step(EXPERTS, plan))
    by_axis = {}
    for task in found:
        by_axis[task.operator.axis, task.operator.size] = (
            by_axis.get((task.operator.axis, task.operator.size), 0) + task.operator.payload_bytes
        )
    expert = EXPERTS.layers * EXPERTS.experts * EXPERTS.expert_matrices
    assert by_axis == {("dp", 8): 4 * (EXPERTS.parameters - expert), ("edp", 2): expert}


def test_update_waits_for_the_gradients_and_touches_every_parameter_once():
    for dp, zero in ((1, 1), (4, 1), (4, 0)):
        step = build_step(TINY, PLAN.with_(dp=dp, zero=zero))
        (update,) = [t for t in step.tasks if isinstance(t.operator, Elementwise)]
        assert update.operator.phase is Phase.UPDATE
        count = TINY.parameters / (dp if zero else 1)
        assert update.operator.read_bytes == 16 * count
        assert update.operator.written_bytes == 14 * count
        assert update.operator.flops == 12 * count
        assert update.priority == max(t.priority for t in step.tasks)
        found, _ = gradient_traffic(step)
        if found:
            assert set(update.after) <= {t.id for t in found}


def test_one_rank_neither_sends_nor_gathers():
    assert not [t for t in build_step(TINY, PLAN).tasks if isinstance(t.operator, Collective)]


def test_tasks_stay_few():
    plan = PLAN.with_(pp=8, dp=2)
    assert len(build_step(TINY, plan).tasks) <= 4 * plan.axes.pp * plan.microbatches + plan.axes.pp * (
        1 + 4 * 4
    )


def test_graph_too_large_to_hold_is_refused():
    plan = PLAN.with_(pp=8, global_batch=10**9)
    with pytest.raises(WorkloadError, match="8 stages x 1000000000 microbatches make some 32000000000 tasks"):
        build_step(TINY, plan)


def test_plan_that_does_not_fit_builds_no_step():
    with pytest.raises(WorkloadError, match=r"tensor \(3\) must divide heads \(8\)"):
        build_step(TINY, PLAN.with_(tp=3))


@pytest.mark.parametrize(
    "change",
    [
        {"tp": 2},
        {"pp": 4},
        {"dp": 4},
        {"micro_batch": 2},
        {"global_batch": 32},
        {"sequence_length": 128},
        {"sequence_parallel": False},
        {"recompute": Recompute.SELECTIVE},
        {"recompute": Recompute.FULL},
        {"zero": 0},
        {"grad_buckets": 2},
        {"grad_bytes": 2},
        {"attention": Attention.FLASH},
        {"attention": Attention.FLASH_UNMASKED},
        {"schedule": schedules.GPIPE},
        {"vocabulary_multiple": 96},
    ],
)
def test_no_field_of_the_plan_is_a_dead_knob(change):
    plan = PLAN.with_(tp=4, pp=2, dp=2)
    assert build_step(TINY, plan.with_(**change)).tasks != build_step(TINY, plan).tasks


def test_recomputation_does_not_count_as_model_work():
    plan = PLAN.with_(recompute=Recompute.FULL, attention=Attention.FLASH)
    assert model_flops(TINY, plan.share) == model_flops(TINY, PLAN.share)
    assert math.isfinite(sum(total_flops(t.operator) for t in build_step(TINY, plan).tasks))
