"""Context parallelism, precisions and optimizers as plans: what they send, keep and compute."""

from dataclasses import replace

import pytest

from simulator.errors import WorkloadError
from simulator.operators import Collective, Elementwise, MatMul, Phase
from tests.workloads.ideal import EVEN, PLAN, RATE, ideal_s, product_flops, run, sent, sequences
from workloads.layers.transformer import backward_layer, forward_layer, model_flops
from workloads.models.config import load_model
from workloads.plan.parts import Attention, ContextExchange, GradientSum, Optimizer, Precision, Recompute
from workloads.plan.plan import Plan, parse_plan
from workloads.plan.rules import check
from workloads.step.memory import memory_by_kind
from workloads.step.sharding import moment_bytes
from workloads.step.step import build_step

# Context parallelism

EXCHANGES = list(ContextExchange)


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("recompute", list(Recompute))
def test_context_ranks_share_the_work_exactly(exchange, recompute):
    plan = PLAN.with_(cp=4, dp=2, pp=2, tp=2, context_exchange=exchange)
    config = replace(EVEN, vocabulary=512)
    step = build_step(config, plan)
    assert product_flops(step) == step.model_flops
    assert step.ranks == 32
    again = plan.with_(recompute=recompute, attention=Attention.FLASH)
    whole = product_flops(build_step(config, again.with_(cp=1, dp=8)))
    assert product_flops(build_step(config, again)) == whole


def test_ring_hands_keys_and_values_on_as_often_as_there_are_other_ranks():
    """cp - 1 blocks of keys and values forward, again backward, and their gradients (arXiv:2310.01889)."""
    cp = 4
    plan = PLAN.with_(cp=cp, global_batch=2)
    block = 2 * 2 * EVEN.kv_width * plan.batch.sequence_length / cp
    once = (cp - 1) * block * EVEN.layers * plan.microbatches
    assert sent(EVEN, plan, "cp") == pytest.approx(3 * once)
    gathered = plan.with_(context_exchange=ContextExchange.ALL_GATHER)
    assert sent(EVEN, gathered, "cp") == pytest.approx(3 * once)
    grouped = replace(EVEN, kv_heads=2)
    assert sent(grouped, plan, "cp") == pytest.approx(3 * once / 4)


def test_all_to_all_sends_less_the_more_ranks_there_are():
    """4 s h / cp elements a layer and pass, (cp-1)/cp of it to others (arXiv:2309.14509, section 3)."""
    for cp in (2, 4, 8):
        plan = PLAN.with_(cp=cp, global_batch=1, context_exchange=ContextExchange.ALL_TO_ALL)
        elements = 4 * plan.batch.sequence_length * EVEN.hidden / cp * (cp - 1) / cp
        assert sent(EVEN, plan, "cp") == pytest.approx(2 * 2 * elements * EVEN.layers)


def microbatch_s(config, plan, port):
    """Return what one more microbatch takes, gradient sums apart."""
    three, two = (plan.with_(global_batch=plan.axes.dp * count) for count in (3, 2))
    return run(config, three, port=port).makespan_s - run(config, two, port=port).makespan_s


def test_ring_hides_behind_attention_and_gathers_do_not():
    plan = PLAN.with_(cp=4, zero=0)
    compute = ideal_s(EVEN, plan.with_(global_batch=1))
    block = 2 * 2 * EVEN.kv_width * plan.batch.sequence_length / 4
    # Scores and values of one block of keys: 4 (s/cp)^2 h operations, twice that backward.
    attention = 4 * (plan.batch.sequence_length / 4) ** 2 * EVEN.hidden / RATE
    port = block / (0.9 * attention)
    assert microbatch_s(EVEN, plan, port) == pytest.approx(compute, rel=1e-9)
    gathered = plan.with_(context_exchange=ContextExchange.ALL_GATHER)
    exposed = microbatch_s(EVEN, gathered, port) - compute
    assert exposed == pytest.approx(3 * 3 * EVEN.layers * block / port, rel=1e-6)


def test_ring_slower_than_attention_takes_the_networks_time():
    """(cp-1) times the slower of a block's attention and its transfer, and the rest once."""
    plan = PLAN.with_(cp=4, zero=0)
    compute = ideal_s(EVEN, plan.with_(global_batch=1))
    block = 2 * 2 * EVEN.kv_width * plan.batch.sequence_length / 4
    attention = 4 * (plan.batch.sequence_length / 4) ** 2 * EVEN.hidden / RATE
    port = block / (5 * attention)
    waits = 3 * 3 * EVEN.layers * (5 - 1) * attention
    assert microbatch_s(EVEN, plan, port) == pytest.approx(compute + waits, rel=1e-9)


def test_gradients_are_summed_over_context_and_data_ranks():
    step = build_step(EVEN, PLAN.with_(cp=2, dp=4))
    sums = [
        t.operator
        for t in step.tasks
        if isinstance(t.operator, Collective) and t.operator.name == "gradients"
    ]
    assert {(one.axis, one.size) for one in sums} == {("dpcp", 8)}
    assert sum(one.payload_bytes for one in sums) == 4 * EVEN.parameters
    experts = replace(EVEN, experts=8, experts_per_token=2)
    step = build_step(experts, PLAN.with_(cp=2, dp=4, ep=8))
    assert product_flops(step) == step.model_flops


def test_context_ranks_keep_their_share_of_every_sequence():
    plan = PLAN.with_(attention=Attention.FLASH)
    whole = memory_by_kind(EVEN, plan, 0)
    for exchange in EXCHANGES:
        kinds = memory_by_kind(EVEN, plan.with_(cp=4, context_exchange=exchange), 0)
        assert kinds["activations"] == whole["activations"] / 4
        assert kinds["buffers"] > whole["buffers"] / 4
        assert kinds["weights"] == whole["weights"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cp=3", r"context \(3\) must divide sequence_length \(64\)"),
        ("cp=16,context_exchange=all_to_all", r"tensor x context \(16\) must divide heads \(8\)"),
        ("cp=2,context_exchange=rings", "context_exchange must be one of ring, all_gather, all_to_all"),
        ("cp=64,tp=8", r"tensor \(8\) must be at most the tokens of a microbatch \(1\)"),
    ],
)
def test_impossible_context_is_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(EVEN, parse_plan(text, base=PLAN))


# Precisions


@pytest.mark.parametrize(
    ("precision", "grad_bytes", "whole", "kept"),
    [("fp16", 2, 20, 4), ("bf16", 4, 18, 6), ("fp32", 4, 16, 8)],
)
def test_bytes_per_parameter_are_megatrons(precision, grad_bytes, whole, kept):
    """fp16 20 | 4 + 16/d, bf16 with fp32 gradients 18 | 6 + 12/d, fp32 16 | 8 + 8/d (Megatron-LM docs)."""
    for dp in (1, 4, 64):
        plan = PLAN.with_(dp=dp, global_batch=dp, precision=Precision(precision), grad_bytes=grad_bytes)
        kinds = memory_by_kind(EVEN, plan, 0)
        states = kinds["weights"] + kinds["gradients"] + kinds["optimizer"]
        assert states / EVEN.parameters == pytest.approx(kept + (whole - kept) / dp)


def test_fp8_multiplies_with_weights_in_one_byte_and_the_rest_in_two():
    plan = PLAN.with_(precision=Precision.FP8)
    experts = replace(EVEN, experts=8, experts_per_token=2)
    for config in (EVEN, experts):
        step = build_step(config, plan)
        assert product_flops(step) == step.model_flops
        found = {
            (one.name, one.element_bytes)
            for task in sequences(step)
            for one, _ in task.operator.items
            if isinstance(one, MatMul)
        }
        low = {name for name, width in found if width == 1}
        assert low == {"attention.qkv", "attention.output", "mlp.up", "mlp.down"}
        assert {name for name, width in found if width == 2} == {name for name, _ in found} - low


@pytest.mark.parametrize(("precision", "written"), [(Precision.FP8, 1.0), (Precision.MXFP8, 1 + 1 / 32)])
def test_8_bits_are_cast_but_for_what_norms_write(precision, written):
    """Megatron-LM: TELayerNormColumnParallelLinear, TERowParallelLinear; an activation writes 16 bits."""
    plan = PLAN.with_(precision=precision)
    forward = [one for one, _ in forward_layer(EVEN, plan.share) if one.name.endswith(".cast")]
    assert [one.name for one in forward] == ["attention.output.cast", "mlp.down.cast"]
    elements = plan.share.tokens * EVEN.hidden
    assert (forward[0].read_bytes, forward[0].written_bytes) == (2 * elements, 2 * written * elements)
    backward = [one.name for one, _ in backward_layer(EVEN, plan.share) if one.name.endswith(".cast")]
    assert backward == ["mlp.down.cast", "mlp.up.cast", "attention.output.cast", "attention.qkv.cast"]
    experts = replace(EVEN, experts=8, experts_per_token=2)
    routed = [one.name for one, _ in forward_layer(experts, plan.share) if one.name.endswith(".cast")]
    assert routed == ["attention.output.cast", "mlp.up.cast", "mlp.down.cast"]


@pytest.mark.parametrize(
    ("way", "grad_bytes", "product", "kernel"),
    [
        (GradientSum.FUSED, 4, 8, 0),
        (GradientSum.FUSED, 2, 4, 0),
        (GradientSum.ADDED, 4, 2, 2 + 4 + 4),
        (GradientSum.CAST, 4, 2, 2 + 4 + 4 + 4 + 4),
        (GradientSum.CAST, 2, 2, 2 + 2 + 2),
        (GradientSum.COPIED, 4, 2, 2 + 4),
    ],
)
def test_a_gradient_joins_its_sum_in_its_product_or_after_it(way, grad_bytes, product, kernel):
    """Bytes an element that the product writes, and that kernels behind it read and write."""
    plan = PLAN.with_(gradient_sum=way, grad_bytes=grad_bytes)
    items = [one for one, _ in backward_layer(EVEN, plan.share) if one.phase is Phase.GRAD_WEIGHT]
    made = [one for one in items if isinstance(one, MatMul)]
    assert {one.moved_per_result for one in made} == {product}
    elements = sum(one.m * one.n for one in made)
    moved = sum(one.read_bytes + one.written_bytes for one in items if isinstance(one, Elementwise))
    assert moved == kernel * elements


def test_what_is_copied_is_summed_every_microbatch():
    copied = PLAN.with_(gradient_sum=GradientSum.COPIED, dp=2, global_batch=2 * PLAN.batch.global_batch)
    check(EVEN, copied.with_(zero=3))
    with pytest.raises(WorkloadError, match="gradient_sum=copied is for ranks that sum every microbatch"):
        check(EVEN, copied.with_(zero=1))


def test_fp8_keeps_inputs_of_products_in_one_byte_and_copies_of_weights():
    plan = PLAN.with_(precision=Precision.FP8, attention=Attention.FLASH)
    low, high = (memory_by_kind(EVEN, plan.with_(precision=p), 0) for p in (Precision.FP8, Precision.BF16))
    h = EVEN.hidden
    # Two norm outputs, the context and the activation's output lose a byte: 3 h + 4 h.
    assert high["activations"] - low["activations"] == EVEN.layers * plan.share.tokens * (3 * h + 4 * h)
    assert low["weights"] == 2 * high["weights"]
    assert low["optimizer"] == high["optimizer"]


# Optimizers


def test_optimizers_keep_what_their_papers_say():
    held = EVEN.parameters
    expected = {"adam": 8, "adam_8bit": 2 + 8 / 2048, "momentum": 4, "sgd": 0}
    for name, moments in expected.items():
        plan = PLAN.with_(optimizer=Optimizer(name))
        assert memory_by_kind(EVEN, plan, 0)["optimizer"] == pytest.approx((moments + 4) * held)


def test_adafactor_keeps_a_sum_per_row_and_column():
    """4 (r + c) / (r c) bytes a parameter (arXiv:1804.04235): for h x 4h and h x h matrices."""
    h = EVEN.hidden
    kept = 4 * (4 * (h + h) + 2 * (h + 4 * h)) / (12 * h * h)
    plan = PLAN.with_(optimizer=Optimizer.ADAFACTOR)
    assert moment_bytes(EVEN, plan.axes, plan.precision) == pytest.approx(kept)
    assert memory_by_kind(EVEN, plan, 0)["optimizer"] == pytest.approx((kept + 4) * EVEN.parameters)
    large = load_model("gpt3-175b")
    assert moment_bytes(large, plan.axes, plan.precision) < 1e-3


def test_lighter_optimizers_move_fewer_bytes():
    moved = []
    for optimizer in (Optimizer.ADAM, Optimizer.ADAM_8BIT, Optimizer.ADAFACTOR, Optimizer.SGD):
        step = build_step(EVEN, PLAN.with_(optimizer=optimizer))
        (update,) = [t.operator for t in step.tasks if isinstance(t.operator, Elementwise)]
        assert update.name == optimizer.value
        moved.append(update.read_bytes + update.written_bytes)
    assert moved == sorted(moved, reverse=True)
    assert len(set(moved)) == 4


# FLOP conventions


def test_causal_convention_leaves_half_of_attention_out():
    """Llama 3 8B at 8192 tokens: 5.79e10 operations a token with all pairs, 5.15e10 with the half."""
    config = load_model("llama-3-8b")
    plan = Plan.of(sequence_length=8192)
    assert model_flops(config, plan.share) / 8192 == pytest.approx(5.79e10, rel=2e-3)
    assert model_flops(config, plan.share, causal=True) / 8192 == pytest.approx(5.15e10, rel=2e-3)
