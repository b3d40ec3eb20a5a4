"""Memory against the closed forms of arXiv:2205.05198, and the laws that any plan must keep."""

import dataclasses

import pytest

from simulator.errors import WorkloadError
from workloads.models.architecture import Positions, TransformerConfig
from workloads.models.config import load_model
from workloads.pipeline import schedules
from workloads.plan.parts import Attention, ContextExchange, Precision, Recompute
from workloads.plan.plan import Plan
from workloads.step.memory import (
    check_fits,
    chunk_activation_bytes,
    context_bytes,
    fullest_stage,
    layer_activation_bytes,
    memory_by_kind,
)
from workloads.step.sharding import optimizer_bytes, whole_stage

GIB = 2**30


def gpt(layers, hidden, heads):
    return TransformerConfig(
        name="gpt",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn_hidden=4 * hidden,
        vocabulary=51200,
        max_sequence=2048,
        positions=Positions.LEARNED,
        position_rows=2048,
        tied_embeddings=True,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        dropout=True,
    )


def executed(**changes):
    """Return a plan of the paper: no flash attention, fp32 gradients, nothing shared over ranks."""
    base = Plan.of(attention=Attention.FULL, zero=0, sequence_parallel=False, sequence_length=2048, tp=8)
    return base.with_(**changes)


# Layers, hidden, heads, microbatch, pipeline, interleave; then GiB of activations as they are, of activations
# with sequence parallelism and selective recomputation, and of the states (figure 1, from the closed forms).
FIGURE_1 = {
    "22B": (48, 6144, 64, 4, 1, 1, 59.25, 9.5625, 45.5625),
    "175B": (96, 12288, 96, 1, 8, 3, 66.84375, 12.3515625, 45.5625),
    "530B": (105, 20480, 128, 1, 35, 3, 114.0234, 23.0762, 31.6406),
    "1T": (128, 25600, 160, 1, 64, 1, 131.25, 26.5625, 32.9590),
}


@pytest.mark.parametrize("name", sorted(FIGURE_1))
def test_figure_1_of_korthikanti_is_met(name):
    layers, hidden, heads, micro, pp, interleave, plain, lean, states = FIGURE_1[name]
    config = gpt(layers, hidden, heads)
    plan = executed(micro_batch=micro, pp=pp, global_batch=micro * pp)
    # Interleaving keeps (p-1)/(p v) more (section 4.2.3); our schedules do not interleave.
    more = 1 + (pp - 1) / (pp * interleave) if interleave > 1 else 1
    kept = memory_by_kind(config, plan, 0)["activations"]
    assert kept * more / GIB == pytest.approx(plain, rel=5e-6)
    both = plan.with_(sequence_parallel=True, recompute=Recompute.SELECTIVE)
    kept = memory_by_kind(config, both, 0)["activations"]
    assert kept * more / GIB == pytest.approx(lean, rel=5e-6)
    each = (
        plan.precision.element_bytes
        + plan.precision.grad_bytes
        + optimizer_bytes(config, plan.axes, plan.precision)
    )
    assert each == 18
    matrices = layers * (config.attention_matrices + config.expert_matrices)
    assert each * matrices / (8 * pp) / GIB == pytest.approx(states, rel=5e-6)


def test_states_are_the_figures_plus_embeddings_and_vectors():
    layers, hidden, heads, micro, pp, *_, states = FIGURE_1["175B"]
    plan = executed(micro_batch=micro, pp=pp, global_batch=pp)
    kinds = memory_by_kind(gpt(layers, hidden, heads), plan, 3)
    held = (kinds["weights"] + kinds["gradients"] + kinds["optimizer"]) / GIB
    assert states < held < 1.001 * states


@pytest.mark.parametrize(
    ("changes", "percent"),
    [
        ({"sequence_parallel": True}, 66.77),
        ({"recompute": Recompute.SELECTIVE}, 49.37),
        ({"sequence_parallel": True, "recompute": Recompute.SELECTIVE}, 16.14),
        ({"recompute": Recompute.FULL}, 7.59),
    ],
)
def test_figure_7_of_korthikanti_is_met(changes, percent):
    config = gpt(48, 6144, 64)
    plan = executed(micro_batch=4)
    whole = layer_activation_bytes(config, plan.share)
    part = layer_activation_bytes(config, plan.with_(**changes).share)
    assert 100 * part / whole == pytest.approx(percent, abs=0.006)


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_gpt_block_keeps_the_closed_form(tp):
    config = gpt(4, 1024, 16)
    s, b, h, a = 512, 2, 1024, 16
    plan = executed(tp=tp, micro_batch=b, sequence_length=s)
    score = 5 * a * s / h
    assert layer_activation_bytes(config, plan.share) == pytest.approx(
        s * b * h * (10 + 24 / tp + score / tp)
    )
    parallel = plan.with_(sequence_parallel=True)
    assert layer_activation_bytes(config, parallel.share) == pytest.approx(s * b * h / tp * (34 + score))
    flash = parallel.with_(attention=Attention.FLASH)
    assert layer_activation_bytes(config, flash.share) == pytest.approx(34 * s * b * h / tp)
    full = plan.with_(recompute=Recompute.FULL)
    assert layer_activation_bytes(config, full.share) == 2 * s * b * h


def test_llama_block_keeps_grouped_queries_and_both_gate_branches():
    config = load_model("llama-3-8b")
    plan = Plan.of(sequence_length=8192)
    # 2 bytes x (norm inputs and outputs 4h, Q and context 2h, K and V 2 x 1024, gate, up and product 3f).
    expected = 8192 * 2 * (4 * 4096 + 2 * 4096 + 2 * 1024 + 3 * 14336)
    assert layer_activation_bytes(config, plan.share) == expected


def test_block_with_experts_keeps_what_each_visit_needs():
    config = load_model("mixtral-8x7b")
    plan = Plan.of(sequence_length=512)
    # As above, with two visits: copies in and out of experts, 3f each; and eight fp32 router scores a token.
    stream = 4 * 4096 + 2 * 2 * 4096
    inner = 2 * 4096 + 2 * 1024 + 2 * 3 * 14336
    assert layer_activation_bytes(config, plan.share) == 512 * (2 * (stream + inner) + 8 * 4)


@pytest.mark.parametrize(
    ("exchange", "blocks", "queries"),
    [
        (ContextExchange.RING, 2 * 2, 0),  # two blocks of keys and values, and as much for their gradients
        (ContextExchange.ALL_GATHER, 4 * 2, 0),  # those of all four ranks, and their gradients
        (ContextExchange.ALL_TO_ALL, 1, 1),  # what is sent
    ],
)
def test_context_ranks_hold_the_keys_and_values_that_others_send(exchange, blocks, queries):
    config = load_model("llama-3-8b")
    plan = Plan.of(tp=2, cp=4, sequence_length=8192, context_exchange=exchange)
    pairs, query = 8192 / 4 * 2 * 1024 / 2 * 2, 8192 / 4 * 4096 / 2 * 2  # tokens, width, ranks, bytes
    assert context_bytes(config, plan.share) == blocks * pairs + queries * query


def test_latents_are_kept_as_they_come_and_as_their_norm_hands_them_on():
    config = load_model("deepseek-v2")
    wider = dataclasses.replace(config, query_rank=config.query_rank + 64)
    more = {}
    for name, changes in {
        "": {},
        "fp8": {"precision": Precision.FP8},
        "again": {"recompute_norms": True},
    }.items():
        share = Plan.of(sequence_length=1024, **changes).share
        more[name] = layer_activation_bytes(wider, share) - layer_activation_bytes(config, share)
    assert more == {"": 1024 * 64 * (2 + 2), "fp8": 1024 * 64 * (2 + 1), "again": 1024 * 64 * 2}


def test_stage_that_encodes_neighbours_keeps_them():
    config = load_model("retro-425m")
    reads = config.retrieval
    plan = Plan.of(sequence_length=2048, recompute=Recompute.FULL)
    share = plan.share
    block = layer_activation_bytes(config, share)
    neighbours = 2048 / reads.chunk * reads.neighbours * reads.length * reads.hidden * 2
    whole = chunk_activation_bytes(config, share, whole_stage(config, plan, 0))
    assert whole == pytest.approx(config.layers * block + neighbours, rel=1e-12)


def test_full_recomputation_keeps_only_the_ranks_share_of_a_sequence_parallel_stream():
    config = gpt(4, 1024, 16)
    plan = executed(tp=4, recompute=Recompute.FULL)
    whole = layer_activation_bytes(config, plan.share)
    assert layer_activation_bytes(config, plan.with_(sequence_parallel=True).share) == whole / 4


def test_buffers_are_the_gathered_stream_what_is_in_transit_and_the_logits():
    config = gpt(4, 1024, 16)
    plan = executed(tp=4, pp=2, sequence_parallel=True, global_batch=2)
    stream = 2 * 2048 * 1024
    first, last = (memory_by_kind(config, plan, stage)["buffers"] for stage in range(2))
    assert first == stream + 2 * stream / 4
    assert last - first == 2048 * plan.axes.padded_vocabulary(config) / 4 * (2 + 4) + 2 * stream / 4
    again = memory_by_kind(config, plan.with_(recompute=Recompute.FULL), 0)["buffers"]
    assert again - first == layer_activation_bytes(config, plan.share)
    core = memory_by_kind(config, plan.with_(recompute=Recompute.SELECTIVE), 0)["buffers"]
    assert core - first == 5 * 16 * 2048 * 2048 / 4


def test_tied_head_is_a_copy_once_stages_lie_between():
    config = load_model("gpt2")
    one = Plan.of(vocabulary_multiple=1, sequence_length=1024)
    two = one.with_(pp=2)
    held = [memory_by_kind(config, two, stage)["weights"] for stage in range(2)]
    alone = memory_by_kind(config, one, 0)["weights"]
    assert sum(held) - alone == 2 * config.vocabulary * config.hidden


def test_shared_optimizer_takes_6_plus_12_over_d_bytes_per_parameter():
    config = load_model("llama-3-8b")
    for dp in (1, 4, 64):
        kinds = memory_by_kind(config, Plan.of(dp=dp, global_batch=dp, vocabulary_multiple=1), 0)
        states = kinds["weights"] + kinds["gradients"] + kinds["optimizer"]
        assert states / config.parameters == pytest.approx(6 + 12 / dp)


def test_fp32_takes_16_bytes_per_parameter():
    config = load_model("gpt2")
    plan = Plan.of(precision=Precision.FP32, vocabulary_multiple=1, sequence_length=1024)
    kinds = memory_by_kind(config, plan, 0)
    assert kinds["weights"] + kinds["gradients"] + kinds["optimizer"] == 16 * config.parameters


def test_earlier_stages_keep_more_activations():
    config = gpt(16, 1024, 16)
    plan = executed(pp=4, global_batch=8)
    kept = [memory_by_kind(config, plan, stage)["activations"] for stage in range(4)]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] == 4 * kept[3]
    assert fullest_stage(config, plan) == 0


def test_gpipe_keeps_every_microbatch():
    config = gpt(16, 1024, 16)
    plan = executed(pp=4, global_batch=12)
    ratio = memory_by_kind(config, plan.with_(schedule=schedules.GPIPE), 0)["activations"]
    assert ratio / memory_by_kind(config, plan, 0)["activations"] == 3


def test_more_ranks_never_take_more_memory_each():
    config = gpt(16, 1024, 16)
    for plan in (executed(tp=1), executed(tp=1, sequence_parallel=True)):
        needs = [sum(memory_by_kind(config, plan.with_(tp=tp), 0).values()) for tp in (2, 4, 8, 16)]
        assert needs == sorted(needs, reverse=True)


def test_expert_parallelism_spares_weights_but_not_optimizer_shares():
    config = load_model("mixtral-8x7b")
    plan = Plan.of(dp=8, global_batch=8)
    alone = memory_by_kind(config, plan, 0)
    shared = memory_by_kind(config, plan.with_(ep=8), 0)
    assert shared["weights"] < alone["weights"] / 4
    assert shared["optimizer"] == pytest.approx(alone["optimizer"])


def test_model_that_fits_passes_and_one_byte_less_fails():
    config = load_model("llama-3-8b")
    plan = Plan.of(tp=8)
    needed = sum(memory_by_kind(config, plan, 0).values())
    check_fits(config, plan, needed)
    with pytest.raises(WorkloadError, match="does not fit"):
        check_fits(config, plan, needed - 1)


def test_message_names_stage_excess_kind_and_way_out():
    config = load_model("llama-3-70b")
    plan = Plan.of(tp=2, pp=4, micro_batch=4, global_batch=16, sequence_length=8192)
    kinds = memory_by_kind(config, plan, 0)
    assert max(kinds, key=kinds.get) == "activations"
    excess = sum(kinds.values()) / GIB - 74.5
    message = (
        rf"llama-3-70b does not fit: stage \d needs .* GiB of the 74\.5 GiB there are, {excess:.1f} GiB too "
        r"much; most are activations \(.* GiB\); try recompute"
    )
    with pytest.raises(WorkloadError, match=message):
        check_fits(config, plan, 74.5 * GIB)


def test_stage_that_does_not_exist_is_refused():
    with pytest.raises(WorkloadError, match="stage 2 does not exist; the plan has stages 0 to 1"):
        memory_by_kind(gpt(4, 64, 4), executed(tp=1, pp=2), 2)


def test_no_field_of_the_plan_is_a_dead_knob_for_memory():
    config = gpt(8, 1024, 16)
    plan = executed(pp=2, dp=2, global_batch=16, tp=2, zero=1)
    base = memory_by_kind(config, plan, 0)
    changes = [
        {"tp": 4},
        {"pp": 4},
        {"dp": 4},
        {"micro_batch": 2},
        {"sequence_length": 1024},
        {"sequence_parallel": True},
        {"recompute": Recompute.FULL},
        {"zero": 0},
        {"grad_bytes": 2},
        {"attention": Attention.FLASH},
        {"precision": Precision.FP32},
        {"vocabulary_multiple": 3000},
        {"schedule": schedules.GPIPE},
    ]
    for change in changes:
        assert memory_by_kind(config, plan.with_(**change), 0) != base, change
