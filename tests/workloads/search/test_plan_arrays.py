"""Arrays of plans against the functions of one plan: rules, memory, placements."""

import numpy as np
import pytest

from simulator.errors import WorkloadError
from workloads.models.config import load_model
from workloads.plan.parallelism import parse_plan
from workloads.plan.plan import Plan
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


@pytest.mark.parametrize("model", MODELS)
def test_memory_over_arrays_is_that_of_one_plan(model: str) -> None:
    """Within 3 %, or 12 % of interleaved stages.

    Of inner stages the fullest is taken to be the second, and of a stage's chunks, which may be uneven, each
    to be of mean size; the engine's own check refuses what then does not fit.
    """
    config = load_model(model)
    plans = grid(BASE, 32, config.experts, NARROW)
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
    assert strides("dp tp cp pp", 2, 2, 4, 2) == {"dp": 1, "tp": 4, "cp": 8, "pp": 16}
    for order in PLACEMENTS:
        assert sorted(endpoints_of(plan.axes, order)) == list(range(32))
    assert endpoints_of(plan.axes, PLACEMENTS[0]) == tuple(range(32))
