"""DeepSeek-V3 and PaLM under plans: latent attention, shared experts, dense first blocks, parallel blocks."""

from dataclasses import replace

import pytest

from simulator.errors import WorkloadError
from simulator.operators import Collective, MatMul
from tests.workloads.ideal import EVEN, PLAN, product_flops, run
from workloads.layers.transformer import backward_layer, forward_layer, model_flops
from workloads.models.architecture import Norm
from workloads.models.config import load_model
from workloads.pipeline import schedules
from workloads.plan.parts import ContextExchange, Precision
from workloads.plan.plan import Plan, parse_plan
from workloads.plan.rules import check
from workloads.step.memory import layer_activation_bytes, memory_by_kind
from workloads.step.sharding import stage_parts
from workloads.step.step import build_step

DEEPSEEK = replace(
    EVEN,
    layers=7,
    head_dim=12,
    query_rank=24,
    kv_rank=16,
    rope_dim=4,
    value_dim=8,
    experts=8,
    experts_per_token=2,
    shared_experts=1,
    dense_layers=2,
    dense_ffn_hidden=512,
    gated=True,
    norm=Norm.RMS,
    vocabulary=512,
)
PALM = replace(EVEN, kv_heads=1, parallel=True, gated=True, tied_embeddings=True, vocabulary=512)

PLANS = [
    PLAN,
    PLAN.with_(tp=4, pp=2, dp=2),
    PLAN.with_(pp=4, dp=4, ep=4, global_batch=32, schedule=schedules.DUALPIPE),
    PLAN.with_(pp=2, vpp=3, dp=2, ep=2),
    PLAN.with_(dp=4, ep=2, zero=3),
    PLAN.with_(cp=4, tp=2),
    PLAN.with_(cp=2, context_exchange=ContextExchange.ALL_TO_ALL),
    PLAN.with_(pp=2, schedule=schedules.ZERO_BUBBLE, precision=Precision.FP8),
]


@pytest.mark.parametrize("plan", PLANS)
def test_deepseek_does_its_work_exactly_under_every_plan(plan):
    step = build_step(DEEPSEEK, plan)
    assert product_flops(step) == step.model_flops
    assert run(DEEPSEEK, plan).makespan_s > 0
    for stage in range(plan.axes.pp):
        assert min(memory_by_kind(DEEPSEEK, plan, stage).values()) >= 0


@pytest.mark.parametrize("plan", PLANS[1:5])
def test_queries_without_a_latent_are_made_from_the_stream(plan):
    """DeepSeek-V2-Lite and Moonlight write no ``q_lora_rank``."""
    config = replace(DEEPSEEK, query_rank=0)
    step = build_step(config, plan)
    assert product_flops(step) == step.model_flops
    more = config.hidden * config.query_width - DEEPSEEK.query_rank * (config.hidden + config.query_width)
    norms = DEEPSEEK.query_rank
    assert config.parameters - DEEPSEEK.parameters == config.layers * (more - norms)


def test_latent_attention_takes_the_operations_of_its_matrices_and_pairs():
    """Two operations per parameter and token, and 2 s a (d + v) for the pairs (arXiv:2412.19437, 2.1.1)."""
    config, s = replace(DEEPSEEK, dense_layers=0, dense_ffn_hidden=0, experts=1, experts_per_token=1), 64
    config = replace(config, shared_experts=0, layers=1)
    matrices = config.attention_matrices + config.expert_matrices + config.vocabulary * config.hidden
    pairs = 2 * s * config.heads * (config.head_dim + config.value_dim)
    plan = PLAN.with_(global_batch=1)
    assert model_flops(config, plan.share) == 3 * s * (2 * matrices + pairs)


def test_shards_of_deepseek_add_up_to_the_model():
    config = load_model("deepseek-v3")
    plan = Plan.of(pp=16, dp=64, global_batch=1024, vocabulary_multiple=1, sequence_length=4096)
    held = sum(memory_by_kind(config, plan, stage)["weights"] for stage in range(16))
    copy = config.vocabulary * config.hidden  # of the embedding, which the module behind the last block reads
    assert held == 2 * (config.parameters + config.prediction_parameters + copy)
    parts = [part for stage in range(16) for part in stage_parts(config, plan, stage)]
    assert sum(part.dense for part in parts) == 3
    assert sum(part.layers for part in parts) == 61 + 1


def test_deepseek_v3_runs_as_it_was_trained():
    """16 stages, 64 expert-parallel ranks, ZeRO-1, 2048 accelerators (arXiv:2412.19437, section 3.2)."""
    config = load_model("deepseek-v3")
    text = "pp=16,dp=128,ep=64,global_batch=15360,sequence=4096,precision=fp8,schedule=dualpipe"
    plan = parse_plan(text + ",attention=full,vocabulary_multiple=1")
    check(config, plan, accelerators=2048)
    step = build_step(config, plan)
    assert product_flops(step) == step.model_flops
    # Six operations per active parameter and token, and attention's pairs on top.
    multiplied = step.model_flops / step.tokens / 6 + config.embedding_parameters
    assert config.active_parameters < multiplied < 1.35 * config.active_parameters


def test_parallel_block_shares_its_norm_and_its_traffic():
    plan = PLAN.with_(tp=4).share
    for pass_of in (forward_layer, backward_layer):
        side = [one for one, _ in pass_of(replace(PALM, kv_heads=8), plan)]
        after = [one for one, _ in pass_of(replace(PALM, kv_heads=8, parallel=False), plan)]
        traffic = [sum(isinstance(one, Collective) for one in items) for items in (side, after)]
        assert traffic == [2, 4]
        work = [sum(one.flops for one in items if isinstance(one, MatMul)) for items in (side, after)]
        assert work[0] == work[1]
    kept = layer_activation_bytes(PALM, PLAN.share)
    assert kept < layer_activation_bytes(replace(PALM, parallel=False), PLAN.share)


def test_parallel_block_with_two_norms_shares_its_sum_only():
    """Two norms of what one reads: two entrances, one way out, and one more tensor kept."""
    plan = PLAN.with_(tp=4).share
    two = replace(PALM, kv_heads=8, two_norms=True)
    one, after = replace(two, two_norms=False), replace(two, parallel=False, two_norms=False)
    assert two.layer_parameters == after.layer_parameters == one.layer_parameters + two.norm_parameters
    for pass_of in (forward_layer, backward_layer):
        items = [[item for item, _ in pass_of(config, plan)] for config in (one, two, after)]
        assert [sum(isinstance(one, Collective) for one in of) for of in items] == [2, 3, 4]
    kept = [layer_activation_bytes(config, PLAN.share) for config in (one, two, after)]
    stream = PLAN.share.tokens * two.hidden * PLAN.precision.element_bytes
    assert kept == [kept[0], kept[0] + stream, kept[0] + 2 * stream]


def test_two_norms_of_blocks_that_follow_each_other_are_refused():
    with pytest.raises(WorkloadError, match="two_norms is of parallel blocks"):
        replace(PALM, parallel=False, two_norms=True)


def test_gathered_parameters_are_those_of_two_blocks_with_experts_where_there_are_two():
    """Dense first blocks are smaller; with three of them, gathers once took less than no room."""
    plan = PLAN.with_(dp=4, zero=3)
    bytes_of = [
        memory_by_kind(replace(DEEPSEEK, dense_layers=dense, dense_ffn_hidden=1), plan, 0)["buffers"]
        for dense in (0, 3, 5, 6)
    ]
    assert bytes_of[0] == bytes_of[1] == bytes_of[2] > bytes_of[3] > 0


def test_ranks_that_outnumber_the_key_heads_share_them():
    one, four = PLAN.with_(tp=1), PLAN.with_(tp=4, pp=2)
    step = build_step(PALM, four)
    keys = 2 * EVEN.hidden * EVEN.head_dim
    again = 6 * keys * PALM.layers * (4 - 1) * step.tokens
    assert product_flops(step) == step.model_flops + again
    assert product_flops(build_step(PALM, one)) == step.model_flops
    whole, part = (memory_by_kind(PALM, plan, 0)["activations"] for plan in (one, one.with_(tp=4)))
    assert part > whole / 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value_dim": 0}, r"go together; give all three or none"),
        ({"output_gates": 1}, "latent attention has no output_gates and no tied_values"),
        ({"experts": 1, "experts_per_token": 1}, r"dense_layers \(2\) needs experts \(1\)"),
        ({"parallel": True}, "parallel blocks with latent attention or a recurrence are not modelled"),
    ],
)
def test_impossible_shape_is_refused(change, message):
    with pytest.raises(WorkloadError, match=message):
        replace(DEEPSEEK, **change)


def test_ranks_that_share_no_key_head_evenly_are_refused():
    config = replace(EVEN, heads=24, kv_heads=8, ffn_hidden=240)
    with pytest.raises(WorkloadError, match=r"tensor \(12\) must divide kv_heads \(8\)"):
        check(config, PLAN.with_(tp=12, sequence_length=60))


@pytest.mark.parametrize(
    ("parts", "ends"), [(1, (62, 62)), (4, (16, 14)), (8, (8, 6)), (16, (4, 2)), (61, (1, 1))]
)
def test_the_module_behind_the_last_block_is_balanced_with_its_pass_through_the_head(parts, ends):
    """Megatron-Bridge's layouts of DeepSeek-V3, 61 blocks and one, on 4, 8 and 16 parts."""
    shared = PLAN.schedule.blocks(61, parts, 1)
    assert sum(shared) == 62
    assert (shared[0], shared[-1]) == ends
