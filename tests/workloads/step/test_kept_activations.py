"""What famous runs did to fit: operators computed again, activations in fp8, states in fewer bytes."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.errors import WorkloadError
from simulator.operators import Elementwise, MatMul
from tests.workloads.ideal import sequences
from workloads.models.config import load_model
from workloads.plan.parts import Kept, Recompute
from workloads.plan.plan import parse_plan
from workloads.plan.rules import check
from workloads.search.plans import grid, memory_bytes
from workloads.step.memory import layer_activation_bytes, memory_by_kind
from workloads.step.sharding import optimizer_bytes
from workloads.step.step import build_step

LLAMA = load_model("llama-3.1-405b")
DEEPSEEK = load_model("deepseek-v3")
PLAN = parse_plan("tp=2,sequence=4096,global_batch=4,pp=2")
OPERATORS = ("recompute_norms", "recompute_activation", "recompute_attention", "recompute_projections")


def kept(config, **changes):
    return layer_activation_bytes(config, PLAN.with_(**changes).share) * PLAN.axes.tp / PLAN.share.tokens


def forward_names(config, plan):
    """Return how often each operator runs forward or again, in a step."""
    found = {}
    for task in sequences(build_step(config, plan)):
        for one, times in task.operator.items:
            if isinstance(one, MatMul | Elementwise) and one.phase == "forward":
                found[one.name] = found.get(one.name, 0) + times
    return found


def test_each_operator_computed_again_is_not_kept_and_runs_once_more():
    """Bytes a token of a Llama block: norms 2 h, the activation 2 f, attention 2 h (all in two bytes)."""
    h, f = LLAMA.hidden, LLAMA.ffn_hidden
    for key, spared, name in (
        ("recompute_norms", 2 * 2 * h, "mlp.norm"),
        ("recompute_activation", 2 * f, "mlp.activation"),
        ("recompute_attention", 2 * h, "attention.values"),
    ):
        assert kept(LLAMA) - kept(LLAMA, **{key: True}) == spared
        small = PLAN.with_(pp=1)
        once, again = (forward_names(LLAMA, plan)[name] for plan in (small, small.with_(**{key: True})))
        assert again == 2 * once


def test_latent_attention_keeps_its_latents_only():
    heads = DEEPSEEK.heads
    spared = 2 * heads * (2 * DEEPSEEK.head_dim + DEEPSEEK.value_dim)
    assert kept(DEEPSEEK) - kept(DEEPSEEK, recompute_projections=True) == pytest.approx(spared, rel=1e-12)


def test_clamped_branches_are_kept_beside_what_they_were():
    """torch.clamp keeps its input for the backward pass, the activation behind it the clamped branches."""
    gated = replace(LLAMA, clamped=True)
    assert kept(gated) - kept(LLAMA) == 2 * gated.ffn_branches * gated.ffn_hidden
    assert kept(gated, recompute_activation=True) == kept(LLAMA, recompute_activation=True)


def test_operands_kept_in_fp8_halve_and_cost_a_cast():
    assert kept(LLAMA, recompute_norms=True) - 4 * LLAMA.hidden == pytest.approx(
        2 * (kept(LLAMA, recompute_norms=True, kept_activations=Kept.FP8) - 4 * LLAMA.hidden)
    )
    casts = forward_names(LLAMA, PLAN.with_(pp=1, kept_activations=Kept.FP8))["mlp.kept_cast"]
    assert casts == PLAN.microbatches * LLAMA.layers


@pytest.mark.parametrize(
    ("changes", "each"),
    [
        ({}, 12),
        ({"moment_bytes": 2}, 8),
        ({"master_bytes": 2}, 8),
        ({"moment_bytes": 2, "master_bytes": 2}, 4),
    ],
)
def test_masters_and_moments_take_the_bytes_that_the_plan_says(changes, each):
    """DeepSeek-V3 keeps moments in bf16, masters in fp32 (arXiv:2412.19437, section 3.3.3)."""
    plan = PLAN.with_(**changes)
    assert optimizer_bytes(LLAMA, plan.axes, plan.precision) == each


@pytest.mark.parametrize("tp", [3, 12])
def test_ranks_that_do_not_divide_the_tokens_hold_one_more(tp):
    """PaLM: twelve tensor ranks share 2,048 tokens."""
    config = load_model("palm-540b")
    plan = parse_plan(f"tp={tp},sequence=2048,global_batch=1")
    check(config, plan)
    norm = next(
        one
        for task in sequences(build_step(config, plan))
        for one, _ in task.operator.items
        if one.name == "block.norm"
    )
    assert norm.read_bytes == 2 * config.hidden * -(-2048 // tp)


def test_arrays_of_plans_know_the_same_memory():
    spared = {"recompute_norms": True, "recompute_activation": True, "kept_activations": Kept.FP8}
    base = PLAN.with_(**spared, moment_bytes=2, global_batch=48)
    pinned = {"tp": (8,), "cp": (1,), "pp": (2, 4), "micro_batch": (1,), "recompute": (0,), "schedule": (0,)}
    arrays = grid(base, 64, 1, pinned | {"vpp": (1, 3)})
    found = memory_bytes(LLAMA, arrays)
    for row in range(len(arrays)):
        plan = arrays.plan(row)
        stages = [sum(memory_by_kind(LLAMA, plan, stage).values()) for stage in range(plan.axes.pp)]
        assert found[row] == pytest.approx(max(stages), rel=0.02)


def test_operators_beside_full_recomputation_are_refused():
    with pytest.raises(WorkloadError, match="computes everything again; leave recompute_norms out"):
        PLAN.with_(recompute=Recompute.FULL, recompute_norms=True)


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_share_of_the_blocks_is_computed_again(share):
    """Work and memory lie between none and full recomputation, by the share of the blocks."""
    none, full = (PLAN.with_(pp=1, recompute=kind) for kind in (Recompute.NONE, Recompute.FULL))
    partly = full.with_(recompute_share=share)
    layers = LLAMA.layers
    again = round(share * layers + 1e-9)
    ups = [forward_names(LLAMA, plan)["mlp.gate_up"] for plan in (none, partly, full)]
    assert (ups[1] - ups[0]) / (ups[2] - ups[0]) == pytest.approx(again / layers)
    least, some, most = (memory_by_kind(LLAMA, plan, 0)["activations"] for plan in (full, partly, none))
    assert (most - some) / (most - least) == pytest.approx(again / layers)
    arrays = grid(partly, 4, 1, {"tp": (2,), "pp": (1,), "cp": (1,), "micro_batch": (1,), "recompute": (2,)})
    row = arrays.taken(np.flatnonzero((arrays["zero"] == 1) & (arrays["schedule"] == 0))[:1])
    held = sum(memory_by_kind(LLAMA, row.plan(0), 0).values())
    assert memory_bytes(LLAMA, row)[0] == pytest.approx(held, rel=0.01)
