"""Blocks that carry a state along the sequence, alone, beside attention, or among blocks of other kinds."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from electronic.gpu import load_gpu
from heliograph.systems import build_system
from heliograph.systems.system import Kind, kind_of
from simulator.errors import HeliographError, WorkloadError
from simulator.operators import CHUNKED, Collective, Elementwise, MatMul, Phase, Role
from tests.workloads.ideal import EVEN, PLAN, product_flops, run
from workloads.layers.recurrence import REPEATED
from workloads.layers.transformer import backward_layer, forward_layer, model_flops
from workloads.models.architecture import Recurrence, State, TransformerConfig
from workloads.models.config import from_hugging_face
from workloads.pipeline import schedules
from workloads.plan.parts import Attention, Kept, Precision, Recompute
from workloads.plan.plan import Plan
from workloads.plan.rules import check
from workloads.step.memory import layer_activation_bytes, memory_by_kind, pass_bytes
from workloads.step.sharding import part_parameters, stage_chunks, stage_parts, whole_stage
from workloads.step.step import build_step

SSD = Recurrence(kind=State.SSD, heads=16, head_dim=16, key_heads=4, key_dim=8, convolution=4, chunk=16)
DELTA = replace(SSD, kind=State.DELTA)
KIMI = replace(SSD, kind=State.CHANNEL_DELTA, rank=8)
LIGHTNING = replace(SSD, kind=State.LIGHTNING, convolution=0)
MAMBA1 = Recurrence(kind=State.SELECTIVE, heads=256, key_dim=8, rank=8, convolution=4)
SHORT = Recurrence(kind=State.CONVOLUTION, heads=128, convolution=3)
KINDS = (SSD, DELTA, KIMI, LIGHTNING, MAMBA1, SHORT)


def mixed(recurrence: Recurrence) -> TransformerConfig:
    """Return a model with blocks of a state, experts, attention or a dense part alone, and one of a pair."""
    base = replace(EVEN, layers=10, experts=4, experts_per_token=2, vocabulary=512)
    plain = base.without_experts(EVEN.ffn_hidden)
    shapes = (
        replace(plain, recurrence=recurrence, attends=False, feeds=False),
        replace(base, attends=False),
        replace(plain, feeds=False),
        replace(plain, attends=False),
        replace(plain, recurrence=recurrence),
    )
    return replace(base, shapes=shapes, order=(0, 1, 0, 2, 3, 0, 1, 4, 0, 1))


def flops(items):
    return sum(one.flops * count for one, count in items if isinstance(one, MatMul))


def states(items, *phases):
    products = [(one, count) for one, count in items if isinstance(one, MatMul) and one.role in CHUNKED]
    return [(one, count) for one, count in products if one.phase in phases]


def repeated(items):
    return [(one, count) for one, count in items if isinstance(one, MatMul) and one.role in REPEATED]


PLANS = [
    PLAN,
    PLAN.with_(tp=4, pp=2, dp=2),
    PLAN.with_(pp=2, vpp=2, dp=2, ep=2),
    PLAN.with_(dp=4, ep=2, zero=3),
    PLAN.with_(pp=2, schedule=schedules.ZERO_BUBBLE, precision=Precision.FP8),
]


@pytest.mark.parametrize("recurrence", KINDS, ids=lambda one: one.kind)
@pytest.mark.parametrize("plan", PLANS)
def test_blocks_of_several_kinds_do_their_work_exactly_under_every_plan(recurrence, plan):
    """All products of the model, and those of chunks that kernels run again backward."""
    config = mixed(recurrence)
    step = build_step(config, plan)
    again = sum(
        config.order.count(kind) * flops(repeated(forward_layer(shape, plan.share)))
        for kind, shape in enumerate(config.shapes)
    )
    again *= plan.batch.global_batch // plan.batch.micro_batch * plan.axes.tp
    if recurrence is KIMI:  # every rank has the latents of gates
        again += 6 * config.hidden * 2 * KIMI.rank * 5 * step.tokens * (plan.axes.tp - 1)
    assert product_flops(step) == pytest.approx(step.model_flops + again, rel=1e-12)
    assert run(config, plan).makespan_s > 0
    for stage in range(plan.axes.pp):
        assert min(memory_by_kind(config, plan, stage).values()) >= 0
        parts = stage_parts(config, plan, stage)
        assert sum((part.kinds for part in parts), ()) == whole_stage(config, plan, stage).kinds
    chunks = [chunk for stage in range(plan.axes.pp) for chunk in stage_chunks(config, plan, stage)]
    placed = [kind for chunk in chunks for kind in chunk.kinds]
    assert Counter(placed) == Counter(config.order)


def test_modules_that_predict_further_tokens_are_attention_and_experts():
    """Nemotron 3 Super trains two (85.1 GFLOP a token: Megatron-Bridge, 817 TFLOP/s at 9,600 tokens/s)."""
    lines = (Path(__file__).parents[1] / "models" / "families.jsonl").read_text().splitlines()
    values = next(
        one["config"] for one in map(json.loads, lines) if one["name"] == "nemotron-3-super-120b-a12b"
    )
    config = from_hugging_face(values | {"num_nextn_predict_layers": 2})
    plan = Plan.of(sequence_length=8192, global_batch=1, vocabulary_multiple=1)
    joined = 3 * 2 * (2 * config.hidden**2) * 2  # two products, which the published formula leaves out
    ours = model_flops(config, plan.share, causal=True) / 8192 - joined
    assert ours == pytest.approx(817e12 / 9_600, rel=0.01)
    placed = [chunk.kinds for stage in range(2) for chunk in stage_chunks(config, PLAN.with_(pp=2), stage)]
    assert [len(kinds) for kinds in placed] == [46, 44]
    assert all(config.shapes[kind].attends and config.shapes[kind].experts > 1 for kind in placed[1][-2:])


@pytest.mark.parametrize("recurrence", KINDS, ids=lambda one: one.kind)
def test_ranks_hold_the_whole_model_once(recurrence):
    config = mixed(recurrence)
    plan = PLAN.with_(vocabulary_multiple=1)
    assert part_parameters(config, plan, whole_stage(config, plan, 0)).total == config.parameters
    two = plan.with_(tp=2)
    cut = part_parameters(config, two, whole_stage(config, two, 0)).total
    assert config.parameters / 2 < cut < 0.53 * config.parameters


def test_products_of_a_state_space_are_those_of_its_paper():
    """Four products a chunk (arXiv:2405.21060, section 6.1), scores once for the heads that share keys."""
    config = replace(EVEN, recurrence=SSD, attends=False)
    tokens, chunk, keys, values = PLAN.share.tokens, SSD.chunk, SSD.key_width, SSD.width
    expected = 2 * tokens * (chunk * keys + chunk * values + 2 * SSD.key_dim * values)
    forward = states(forward_layer(config, PLAN.share), Phase.FORWARD)
    assert flops(forward) == expected
    backward = states(backward_layer(config, PLAN.share), Phase.GRAD_INPUT)
    assert flops(backward) == 2 * expected
    assert all(one.held.value == "none" for one, _ in (*forward, *backward))


SMALL = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "vocab_size": 1000,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_hidden_layers": 4,
    "max_position_embeddings": 128,
}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 48,
}


@pytest.mark.parametrize(
    ("values", "counted", "solved"),
    [
        ({"model_type": "qwen3_5_text", **SMALL, **LINEAR}, 220_200_960 + 44_564_480, 64 * 64 * (32 + 48)),
        (
            {
                **{
                    "model_type": "minimax",
                    "block_size": 32,
                    "num_local_experts": 4,
                    "num_experts_per_tok": 2,
                },
                **SMALL,
                "layer_types": ["full_attention", "linear_attention"] * 2,
            },
            301_727_744 + 25_165_824,
            0,
        ),
    ],
)
def test_products_are_those_counted_on_the_published_code(values, counted, solved):
    """torch's counter on transformers 5.24, 128 tokens, matrix products alone.

    Its delta rule solves a triangle where the kernel of training multiplies by an inverse, chunk by chunk of
    64: two chunks of four heads in three blocks.
    """
    config = from_hugging_face(values)
    plan = Plan.of(sequence_length=128, global_batch=1, vocabulary_multiple=1)
    assert model_flops(config, plan.share) / 3 == counted + 2 * solved * 2 * 4 * 3


def test_operations_of_a_published_hybrid_are_those_that_its_rates_are_told_in():
    """Nemotron 3 Nano, 22.4 GFLOP a token (Megatron-Bridge, 321 TFLOP/s at 14,336 tokens/s and an H100).

    The published formula takes twice the stream's width for the width of a state space, 5,376 for 4,096, and
    seven operations for each element of the state. With the true width it is within 0.2 % of ours.
    """
    lines = (Path(__file__).parents[1] / "models" / "families.jsonl").read_text().splitlines()
    config = next(
        from_hugging_face(one["config"])
        for one in map(json.loads, lines)
        if one["name"] == "nemotron-3-nano-30b-a3b"
    )
    length, h = 8192, config.hidden

    def published(width):
        state = 2 * h * (3 * width + 2 * 8 * 128 + 64) + 7 * width * 128
        attention = 4 * h * 4096 * (1 + 2 / 32) + 2 * 4096 * length
        experts = 4 * h * (6 * 1856 + 3712)
        return 3 * (23 * state + 6 * attention + 23 * experts + 2 * h * config.vocabulary)

    plan = Plan.of(sequence_length=length, global_batch=1, vocabulary_multiple=1)
    ours = model_flops(config, plan.share, causal=True) / length
    assert published(2 * h) == pytest.approx(321e12 / 14_336, rel=0.006)
    assert ours == pytest.approx(published(4096), rel=2e-3)


@pytest.mark.parametrize("recurrence", KINDS, ids=lambda one: one.kind)
def test_work_grows_with_the_sequence_and_the_state_does_not(recurrence):
    config = replace(EVEN, recurrence=recurrence, attends=False)
    short, long = PLAN.with_(sequence_length=512).share, PLAN.with_(sequence_length=1024).share
    work = [flops(forward_layer(config, share)) for share in (short, long)]
    memory = [layer_activation_bytes(config, share) for share in (short, long)]
    assert [work[1], memory[1]] == pytest.approx([2 * work[0], 2 * memory[0]], rel=1e-12)
    assert recurrence.state == (256 if recurrence is SHORT else 2048)


def test_kernels_of_chunks_keep_less_than_they_read_and_buffer_states_of_all_chunks():
    config = replace(EVEN, recurrence=SSD, attends=False)
    wider = replace(config, recurrence=replace(SSD, convolution=8))
    assert layer_activation_bytes(wider, PLAN.share) == layer_activation_bytes(config, PLAN.share)
    chunks = PLAN.share.tokens // SSD.chunk
    attending = replace(config, recurrence=None, attends=True)
    assert pass_bytes(config, PLAN) - pass_bytes(attending, PLAN) == 4 * chunks * SSD.state
    full = PLAN.with_(recompute=Recompute.FULL)
    assert layer_activation_bytes(config, full.share) == layer_activation_bytes(attending, full.share)


@pytest.mark.parametrize(
    ("length", "measured_s"), [(2048, 0.329e-3), (4096, 0.645e-3), (8192, 1.278e-3), (16384, 2.531e-3)]
)
def test_a_chunk_scan_takes_somewhat_less_than_a_tuned_kernel(length, measured_s):
    """TileLang's on an H800 (benchmark/mamba2): 8 sequences, 80 heads of 64, states of 128, chunks of 256.

    Without exponentials, one for each pair and head, it would take half; what is left are passes over scores
    in registers.
    """
    scan = Recurrence(kind=State.SSD, heads=80, head_dim=64, key_dim=128, chunk=256)
    config = replace(EVEN, recurrence=scan, attends=False)
    share = PLAN.with_(micro_batch=8, global_batch=8, sequence_length=length).share
    gpu = build_system("gpu_packet:h800", accelerators=1).node()
    found = {one.role: gpu.cost(one).time_s for one, _ in forward_layer(config, share)}
    scan_s = sum(found[role] for role in (Role.STATE_DECAY, Role.STATE_READ, Role.STATE_VALUES))
    assert 0.7 < scan_s / measured_s < 0.9


def test_exponentials_inside_a_kernel_of_products_are_not_launched():
    """A delta rule's decays move no bytes; a state space's read the scores that another kernel wrote."""
    gpu, node = load_gpu("h100"), build_system("gpu_packet:h100", accelerators=1).node()
    costs = {}
    for recurrence in (SSD, DELTA):
        items = forward_layer(replace(EVEN, recurrence=recurrence, attends=False), PLAN.share)
        (decay,) = (one for one, _ in items if one.role is Role.STATE_DECAY)
        costs[recurrence.kind] = node.cost(decay)
    assert 0 < costs[State.DELTA].time_s < gpu.chip.launch_s < costs[State.SSD].time_s
    assert costs[State.DELTA].host_s == 0 < costs[State.SSD].host_s


@pytest.mark.parametrize(("recurrence", "times"), [(SSD, 2), (MAMBA1, 2), (DELTA, 1), (SHORT, 1)])
def test_the_convolution_runs_again_where_the_kernel_of_the_state_has_it(recurrence, times):
    config = replace(EVEN, recurrence=recurrence, attends=False)
    ran = [one.role for one, _ in backward_layer(config, PLAN.share)]
    assert ran.count(Role.STATE_CONVOLUTION) == times


def test_light_takes_products_of_states_as_those_of_attention():
    assert {kind_of(role) for role in CHUNKED} == {Kind.ATTENTION}
    assert kind_of(Role.STATE_INPUT) is Kind.QKV
    assert kind_of(Role.STATE_OUTPUT) is Kind.OUTPUT


def test_gates_of_attention_are_columns_of_its_first_product_and_one_kernel():
    gated = replace(EVEN, output_gates=EVEN.head_dim)
    assert gated.layer_parameters - EVEN.layer_parameters == EVEN.hidden * EVEN.query_width
    more = Counter(one.role for one, _ in forward_layer(gated, PLAN.share))
    assert more - Counter(one.role for one, _ in forward_layer(EVEN, PLAN.share)) == {Role.ATTENTION_GATE: 1}
    assert layer_activation_bytes(gated, PLAN.share) > layer_activation_bytes(EVEN, PLAN.share)


def test_experts_beside_attention_read_its_norm():
    config = replace(EVEN, parallel=True, experts=4, experts_per_token=2, vocabulary=512)
    step = build_step(config, PLAN.with_(tp=2, dp=2, ep=2))
    roles = [one.role for one, _ in forward_layer(config, PLAN.share) if isinstance(one, Elementwise)]
    assert [role for role in roles if "norm" in role] == [Role.BLOCK_NORM]
    assert product_flops(step) == step.model_flops


def test_experts_in_a_latent_exchange_it_and_every_token_goes_through_both_products():
    """Nemotron 3 Super; shared experts work on the stream."""
    plain = replace(EVEN, experts=4, experts_per_token=2, shared_experts=1, vocabulary=512)
    config, plan = replace(plain, expert_latent=16), PLAN.with_(dp=2, ep=2)
    step = build_step(config, plan)
    assert product_flops(step) == step.model_flops
    held = part_parameters(config, plan, whole_stage(config, plan, 0))
    assert held.dense + 2 * held.expert == config.parameters
    saved = 4 * (plain.expert_matrices - config.expert_matrices) - 2 * EVEN.hidden * 16
    assert plain.layer_parameters - config.layer_parameters == saved
    wide, narrow = (
        [one.payload_bytes for one, _ in forward_layer(each, plan.share) if isinstance(one, Collective)]
        for each in (plain, config)
    )
    assert [each / 4 for each in wide] == narrow
    assert layer_activation_bytes(config, plan.share) < layer_activation_bytes(plain, plan.share)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cp": 2}, r"context \(2\) must be 1: .* hands a state along the sequence"),
        ({"tp": 32, "sequence_length": 4096}, r"tensor \(32\) must divide heads"),
        ({"kept_activations": Kept.FP8, "precision": Precision.FP8}, "kept_activations=fp8 is not modelled"),
    ],
)
def test_plans_that_cut_a_state_are_refused(change, message):
    with pytest.raises(WorkloadError, match=message):
        check(mixed(SSD), PLAN.with_(**change))


def test_ranks_that_outnumber_the_keys_of_a_state_share_them():
    config = replace(EVEN, recurrence=replace(SSD, key_heads=2), attends=False)
    plan = PLAN.with_(tp=4)
    check(config, plan)
    (scores,) = (one for one, _ in forward_layer(config, plan.share) if one.role is Role.STATE_SCORES)
    assert scores.batch == math.ceil(plan.share.tokens / SSD.chunk)
    with pytest.raises(WorkloadError, match=r"tensor \(4\) must divide key heads of states \(3\)"):
        check(replace(EVEN, recurrence=replace(SSD, heads=12, key_heads=3)), plan)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"heads": 0}, "heads must be a whole number of at least 1; got 0"),
        ({"key_heads": 3}, r"key_heads \(3\) must divide heads \(16\)"),
        ({"convolution": -1}, "convolution must be a whole number of at least 0; got -1"),
        ({"rank": 1.5}, r"rank must be a whole number of at least 0; got 1\.5"),
        ({"kind": "ssd"}, "kind"),
    ],
)
def test_impossible_recurrences_are_refused(values, message):
    with pytest.raises(HeliographError, match=message):
        replace(SSD, **values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"output_gates": 7}, r"output_gates \(7\) must be 0, 1 or head_dim \(8\)"),
        ({"expert_latent": 16}, r"expert_latent \(16\) must be 0 or more, and 0 without experts"),
        ({"experts": 4, "expert_latent": -16}, r"expert_latent \(-16\) must be 0 or more"),
        ({"order": (0,)}, "order must give .* and be empty without shapes"),
        (
            {"shapes": (replace(EVEN, hidden=2 * EVEN.hidden),), "order": (0,) * EVEN.layers},
            r"shapes must all have its hidden \(",
        ),
    ],
)
def test_impossible_gates_latents_and_shapes_are_refused(values, message):
    with pytest.raises(WorkloadError, match=message):
        replace(EVEN, **values)


def test_a_block_is_something_and_every_block_has_a_kind():
    with pytest.raises(WorkloadError, match="a block needs attention, a recurrence or a feed-forward part"):
        replace(EVEN, attends=False, feeds=False)
    short = replace(mixed(SSD), shapes=mixed(SSD).shapes[:4], order=(0, 1, 2, 3) * 2, layers=8)
    with pytest.raises(WorkloadError, match="predicted_tokens needs a shape with attention"):
        replace(short, predicted_tokens=1)
    with pytest.raises(WorkloadError, match="order must give one of the 5 shapes for each of the 10 blocks"):
        replace(mixed(SSD), order=(0, 1))


def test_attention_on_all_pairs_leaves_chunks_as_they_are():
    config = replace(EVEN, recurrence=SSD)
    flash, full = (
        states(forward_layer(config, PLAN.with_(attention=one).share), Phase.FORWARD)
        for one in (Attention.FLASH, Attention.FULL)
    )
    assert len(flash) == 4
    assert flash == full
