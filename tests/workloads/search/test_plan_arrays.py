"""Arrays of plans against the functions of one plan: rules, memory, placements."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from simulator.errors import WorkloadError
from simulator.step_estimate import StepArrays, estimate
from workloads.models.config import load_model
from workloads.pipeline.schedule import Chain, PassTimes, Pipeline, Schedule, play
from workloads.pipeline.schedules import DUALPIPE, ZB_H2, ZB_V, ZERO_BUBBLE
from workloads.plan.parts import Axes
from workloads.plan.plan import Plan, parse_plan
from workloads.plan.rules import check
from workloads.search.plans import PLACEMENTS, broken_rules, endpoints_of, grid, memory_bytes, strides
from workloads.step.memory import fullest_stage, memory_by_kind

BASE = Plan.of(sequence_length=4096, global_batch=96)
MODELS = ("llama-3-8b", "mixtral-8x7b")
NARROW = {"placement": (0,), "micro_batch": (1, 2), "vpp": (1, 3), "schedule": (0, 2)}
SEARCHS_OWN = {"the same as another plan", "more tasks than a step graph holds"}


@pytest.mark.parametrize(
    ("model", "text"),
    [
        *((model, "") for model in MODELS),
        ("llama-3-8b", "shard_group=2"),
        ("llama-3-8b", "zero=3,quantised_gradients=true,local_group=2"),
        ("llama-3-8b", "optimizer_place=host,precision=fp16,grad_bytes=2"),
        ("llama-3-8b", "zero=3,optimizer_place=host,parameter_place=host"),
        ("llama-3-8b", "exchange=parameter_server,servers=3"),
        ("llama-3-8b", "tensor_grid=2d"),
        ("llama-3-8b", "tensor_grid=2.5d,tensor_depth=2"),
        ("llama-3-8b", "overlap_tensor=true"),
        ("llama-3-8b", "weight_sparsity=2:4,context_exchange=all_to_all"),
        ("llama-3-8b", "weight_density=0.5"),
        ("llama-3-8b", "attention_keys=256"),
        ("gpt-oss-20b", "expert_affinity=1.5"),
        ("mixtral-8x7b", "overlap_experts=true,context_exchange=all_gather"),
        ("mixtral-8x7b", "whole_experts=true"),
        ("mixtral-8x7b", "exchange_counts=true,expert_exchange=hierarchical"),
        ("palm-540b", "micro_batch=2"),
    ],
)
def test_rules_over_arrays_are_those_of_one_plan(model: str, text: str) -> None:
    """A row breaks a rule exactly if its plan cannot be made or `workloads.plan.rules.check` refuses it."""
    config = load_model(model)
    pinned = {"zero": (3,)} if "zero=3" in text else {}
    pinned |= {"micro_batch": (1, 4)} if "2.5d" in text else {}
    plans = grid(parse_plan(text, base=BASE), 24, config.experts, NARROW | pinned)
    broken = np.zeros(len(plans), dtype=bool)
    for reason, which in broken_rules(config, plans).items():
        broken |= which if reason not in SEARCHS_OWN else False
    assert 0.05 < broken.mean() < 1.0
    for row in np.random.default_rng(1).choice(len(plans), 120, replace=False):
        try:
            check(config, plans.plan(int(row)), accelerators=24)
            refused = False
        except WorkloadError:
            refused = True
        assert refused == broken[row], {name: column[row] for name, column in plans.columns.items()}


@pytest.mark.parametrize(
    ("model", "text"),
    [
        *((model, "") for model in MODELS),
        ("mixtral-8x7b", "overlap_experts=true,context_exchange=all_gather"),
    ],
)
def test_memory_over_arrays_is_that_of_one_plan(model: str, text: str) -> None:
    """Within 3 %, or 12 % of interleaved stages.

    Of inner stages the fullest is taken to be the second, and of a stage's chunks, which may be uneven, each
    to be of mean size; the engine's own check refuses what then does not fit.
    """
    config = load_model(model)
    plans = grid(parse_plan(text, base=BASE), 32, config.experts, NARROW)
    broken = np.any(list(broken_rules(config, plans).values()), axis=0)
    plans = plans.taken(~broken)
    plans = plans.taken(np.random.default_rng(2).choice(len(plans), 80, replace=False))
    found = memory_bytes(config, plans)
    for row in range(len(plans)):
        plan = plans.plan(row)
        needed = sum(memory_by_kind(config, plan, fullest_stage(config, plan)).values())
        off = 0.12 if plan.schedule.vpp > 1 else 0.03
        assert found[row] == pytest.approx(needed, rel=off), plan


def test_nearest_axis_has_neighbours() -> None:
    """Axes stand from the nearest to the farthest, and every rank has an endpoint of its own."""
    plan = Plan.of(tp=2, cp=2, dp=4, pp=2, global_batch=4)
    assert strides("dp tp cp pp", Axes(tp=2, cp=2, dp=4, pp=2)) == {"dp": 1, "tp": 4, "cp": 8, "pp": 16}
    for order in PLACEMENTS:
        assert sorted(endpoints_of(plan.axes, order)) == list(range(32))
    assert endpoints_of(plan.axes, PLACEMENTS[0]) == tuple(range(32))


def equal_stages(kind: Schedule, stages: int, microbatches: int, times_s: tuple[float, ...]) -> StepArrays:
    """Return one plan's pieces: stages alike, nothing sent or summed."""
    forward_s, inputs_s, weights_s = (np.full((1, 3), one) for one in times_s)
    none, nothing = np.zeros(1), np.zeros((1, 3))
    return StepArrays(
        order=np.array([kind.closed_form]),
        stages=np.array([stages]),
        microbatches=np.array([microbatches]),
        chunks=np.array([1 if kind.chain is Chain.LINE else 2]),
        forward_s=forward_s,
        inputs_s=inputs_s,
        weights_s=weights_s,
        whole_s=stages * np.array([times_s]),
        period_s=none,
        send_s=none,
        gather_s=nothing,
        sum_s=nothing,
        blocks=np.full((1, 3), 2.0),
        ends_s=np.zeros((1, 3, 2, 3)),
        ends_share=np.zeros((1, 3, 2)),
        gathers=none,
        sums_each=np.zeros(1, dtype=bool),
        pieces=np.ones(1),
        taken_s=np.zeros((1, 3, 2)),
        slack_s=np.zeros((1, 3, 2)),
        update_s=nothing,
        reconfiguration_s=none,
        changes_each=none,
        changes_once=none,
        sums_last=none.astype(bool),
    )


@pytest.mark.parametrize("kind", [ZERO_BUBBLE, DUALPIPE, ZB_H2, ZB_V], ids=str)
def test_a_played_order_takes_what_its_closed_form_says(kind: Schedule) -> None:
    """Equal stages without sends, passes within a factor of two of each other, seed 5: to 1e-9."""
    draws = np.random.default_rng(5)
    for stages, more in itertools.product((4, 6, 10), (0, 2, 20)):
        microbatches = 2 * stages + more
        for forward_s, inputs_s, weights_s in draws.uniform(0.7, 1.4, (4, 3)):
            pipeline = Pipeline(schedule=kind, stages=stages, microbatches=microbatches)
            times = PassTimes(forward=forward_s, inputs=inputs_s, weights=weights_s)
            arrays = equal_stages(kind, stages, microbatches, (forward_s, inputs_s, weights_s))
            played_s = max(one.end for one in play(pipeline, times))
            assert estimate(arrays).pipeline_s[0] == pytest.approx(played_s, rel=1e-9)


@pytest.mark.parametrize(("kind", "off"), [(ZERO_BUBBLE, 1e-9), (ZB_H2, 0.04)], ids=str)
def test_split_schedules_take_any_number_of_microbatches(kind: Schedule, off: float) -> None:
    """One microbatch to twice the stages, which fill the gaps of a step with fewer weights' passes."""
    draws = np.random.default_rng(6)
    for stages, microbatches in itertools.product((2, 3, 4, 8), range(1, 17)):
        for forward_s, inputs_s, weights_s in draws.uniform(0.7, 1.4, (2, 3)):
            pipeline = Pipeline(schedule=kind, stages=stages, microbatches=microbatches)
            times = PassTimes(forward=forward_s, inputs=inputs_s, weights=weights_s)
            played_s = max(one.end for one in play(pipeline, times))
            arrays = equal_stages(kind, stages, microbatches, (forward_s, inputs_s, weights_s))
            assert estimate(arrays).pipeline_s[0] == pytest.approx(played_s, rel=off)


@pytest.mark.parametrize("kind", [ZERO_BUBBLE, ZB_H2, ZB_V], ids=str)
def test_split_backward_passes_wait_for_gathers_and_sums_apart(kind: Schedule) -> None:
    """With sharded parameters, gathers go with the pass of inputs and sums with that of weights.

    In one piece: a gather takes 1.5 beside a pass of 1, and that for the inputs waits for the sum of 0.2.
    """
    ends_s = []
    for microbatches in (40, 80):
        alone = equal_stages(kind, 4, microbatches, (1.0, 1.0, 1.0))
        moving = replace(
            alone,
            gather_s=np.full((1, 3), 1.5),
            sum_s=np.full((1, 3), 0.2),
            gathers=np.full(1, 2.0),
            sums_each=np.ones(1, dtype=bool),
        )
        ends_s.append(estimate(moving).pipeline_s[0])
    assert (ends_s[1] - ends_s[0]) / 40 == pytest.approx(1.5 + 1.5 + 1.0 + 0.2)
