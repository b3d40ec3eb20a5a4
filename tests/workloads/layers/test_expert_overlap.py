"""Expert exchanges beside another microbatch's work: hidden while shorter than it, and never lost."""

from dataclasses import replace

import pytest

from simulator.errors import WorkloadError
from simulator.operators import Collective, Sequence
from tests.workloads.ideal import EVEN, PLAN, ideal_s, product_flops, run
from workloads.pipeline import schedules
from workloads.plan.plan import parse_plan
from workloads.plan.rules import check
from workloads.step.memory import layer_activation_bytes, memory_by_kind
from workloads.step.step import build_step

ROUTED = replace(EVEN, layers=8, experts=16, experts_per_token=2)
BASE = PLAN.with_(dp=4, ep=4, zero=0)
CUTS = {
    "one stage": BASE,
    "chunks": BASE.with_(pp=2, vpp=2, global_batch=32),
    "dualpipe": BASE.with_(pp=2, schedule=schedules.DUALPIPE, global_batch=32),
}
FAST = 3e10
"""Port at which an exchange takes less than the shortest piece of the other pass."""


def microbatch_s(plan, port):
    """Return what four more microbatches take once the step is under way."""
    more, fewer = (plan.with_(global_batch=4 * count) for count in (12, 8))
    return run(ROUTED, more, port=port).makespan_s - run(ROUTED, fewer, port=port).makespan_s


def exchange_s(plan, port):
    """Return the time of one exchange alone: k T h elements, (n-1)/n of them to others."""
    return 2 * 2 * plan.share.tokens * ROUTED.hidden * 3 / 4 / port


def test_exchanges_hide_behind_the_other_pass():
    """F&B of DualPipe hides both all-to-alls of either pass (arXiv:2412.19437, section 3.2.1, figure 4)."""
    compute = ideal_s(ROUTED, BASE.with_(global_batch=16))
    woven = BASE.with_(overlap_experts=True)
    assert microbatch_s(woven, FAST) == pytest.approx(compute, rel=1e-9)
    exposed = microbatch_s(BASE, FAST) - compute
    assert exposed == pytest.approx(4 * 4 * ROUTED.layers * exchange_s(BASE, FAST), rel=1e-6)


def test_what_does_not_hide_is_the_first_forward_and_the_last_backward_pass():
    woven = BASE.with_(overlap_experts=True)
    exposed = run(ROUTED, woven, port=FAST).makespan_s - ideal_s(ROUTED, woven)
    bare = run(ROUTED, BASE, port=FAST).makespan_s - ideal_s(ROUTED, BASE)
    each = 4 * ROUTED.layers * exchange_s(BASE, FAST)
    assert bare - exposed == pytest.approx((BASE.microbatches - 1) * each, rel=1e-6)


def test_slow_network_sets_the_time():
    """Exchanges share one port, hence a microbatch takes at least all four of each block."""
    woven = BASE.with_(overlap_experts=True)
    slow = 2e8
    network = 4 * 4 * ROUTED.layers * exchange_s(BASE, slow)
    compute = ideal_s(ROUTED, BASE.with_(global_batch=16))
    assert network <= microbatch_s(woven, slow) < network + compute
    assert microbatch_s(woven, slow) < microbatch_s(BASE, slow)


@pytest.mark.parametrize("name", sorted(CUTS))
def test_weaving_loses_no_work_and_saves_time(name):
    plan = CUTS[name]
    woven = plan.with_(overlap_experts=True)
    steps = build_step(ROUTED, plan), build_step(ROUTED, woven)
    assert product_flops(steps[1]) == product_flops(steps[0]) == steps[0].model_flops
    runs = [run(ROUTED, one, port=FAST) for one in (plan, woven)]
    assert runs[0].network_bytes == pytest.approx(runs[1].network_bytes)
    assert runs[1].makespan_s < runs[0].makespan_s
    endless = [run(ROUTED, one).makespan_s for one in (plan, woven)]
    assert endless[1] == pytest.approx(endless[0], rel=1e-9)


def test_exchanges_become_tasks_of_their_own():
    step = build_step(ROUTED, BASE.with_(overlap_experts=True))
    beside = [t for t in step.tasks if isinstance(t.operator, Collective) and t.operator.axis == "ep"]
    blocking = [
        one
        for task in step.tasks
        if isinstance(task.operator, Sequence)
        for one, count in task.operator.items
        if isinstance(one, Collective) and one.axis == "ep"
        for _ in range(count)
    ]
    assert len(beside) + len(blocking) == 4 * ROUTED.layers * BASE.microbatches
    assert len(beside) == 4 * ROUTED.layers * (BASE.microbatches - 1)


def test_windows_keep_their_places_when_blocks_run_one_by_one():
    config = replace(ROUTED, window=16, window_every=2)
    step = build_step(config, BASE.with_(overlap_experts=True))
    assert product_flops(step) == step.model_flops


@pytest.mark.parametrize("name", ["one stage", "chunks"])
def test_one_more_block_is_kept(name):
    """Block i goes forward beside block L - 1 - i backward, which then is given up.

    Megatron-LM, TransformerModelChunkSchedulePlan.run.
    """
    plans = CUTS[name], CUTS[name].with_(overlap_experts=True)
    kept = [memory_by_kind(ROUTED, plan, 0)["activations"] for plan in plans]
    assert kept[1] - kept[0] == pytest.approx(layer_activation_bytes(ROUTED, plans[0].share))


def test_nothing_is_woven_where_all_microbatches_are_under_way_before_the_first_backward_pass():
    plans = [BASE.with_(global_batch=BASE.axes.dp, overlap_experts=on) for on in (False, True)]
    kept = [memory_by_kind(ROUTED, plan, 0)["activations"] for plan in plans]
    assert kept[1] == kept[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ep=1", r"raise ep \(1\)"),
        ("pp=2", "try vpp=2, schedule=dualpipe or pp=1"),
        ("schedule=gpipe", "schedule=gpipe with pp=1"),
        ("zero=3", "zero=3 is not modelled; try zero=1"),
        ("cp=2", "try context_exchange=all_gather"),
    ],
)
def test_impossible_overlap_is_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(ROUTED, parse_plan(text, base=BASE.with_(overlap_experts=True)))
