"""Windows, norms of heads and norms after halves: what newer families add to a block."""

import math
from dataclasses import replace

import pytest

from simulator.errors import WorkloadError
from simulator.operators import Elementwise, MatMul
from tests.workloads.ideal import EVEN, PLAN, product_flops
from workloads.layers.transformer import backward_layer, forward_layer, model_flops
from workloads.models.config import from_hugging_face, load_model
from workloads.plan.parts import Attention
from workloads.plan.rules import check
from workloads.step.memory import layer_activation_bytes
from workloads.step.sharding import stage_chunks, stage_parts, whole_stage
from workloads.step.step import build_step

WINDOWED = replace(EVEN, window=16, window_every=2)
FLASH = PLAN.with_(attention=Attention.FLASH)


@pytest.mark.parametrize(("window", "length"), [(16, 64), (1, 64), (64, 64), (128, 64), (128, 4096)])
def test_windowed_block_sees_the_pairs_that_its_mask_lets_through(window, length):
    """Query i sees min(i + 1, w) keys (gpt-oss model card, arXiv:2508.10925, section 2.2: w = 128)."""
    config = replace(EVEN, window=window, window_every=1)
    plan = FLASH.with_(sequence_length=length)
    scores = next(one for one, _ in forward_layer(config, plan.share) if one.name == "attention.scores")
    exact = math.fsum(min(query + 1, window) for query in range(length)) / length
    assert abs(scores.n - exact) < 1


def test_every_other_block_is_windowed_whatever_the_cut():
    for pp, vpp in ((1, 1), (2, 1), (4, 2), (8, 2)):
        plan = PLAN.with_(pp=pp, vpp=vpp)
        chunks = [chunk for stage in range(pp) for chunk in stage_chunks(WINDOWED, plan, stage)]
        assert sum(chunk.windowed for chunk in chunks) == 8
        for stage in range(pp):
            parts = stage_parts(WINDOWED, plan, stage)
            assert sum(part.windowed for part in parts) == whole_stage(WINDOWED, plan, stage).windowed
        assert product_flops(build_step(WINDOWED, plan)) == model_flops(WINDOWED, plan.share)
    assert [WINDOWED.windowed_among(first, 1) for first in range(4)] == [1, 0, 1, 0]


MIXED = replace(
    EVEN, experts=4, experts_per_token=2, dense_layers=3, dense_ffn_hidden=512, window=16, window_every=4
)
"""Three dense blocks with windows, then 13 with experts, of which every fourth block sees all keys."""


@pytest.mark.parametrize(
    ("config", "windowed", "dense_window"),
    [(MIXED, 9, 16), (replace(MIXED, window_every=1), 13, 16), (replace(MIXED, window_after=4), 9, 0)],
)
def test_dense_blocks_have_windows_or_have_none(config, windowed, dense_window):
    """K-EXAONE's first block is dense and windowed (its config.json)."""
    assert config.dense.window == dense_window
    assert config.windowed_among(0, config.layers) == windowed
    for pp, buckets in ((1, 1), (2, 3), (8, 2)):
        plan = PLAN.with_(pp=pp, grad_buckets=buckets)
        parts = [part for stage in range(pp) for part in stage_parts(config, plan, stage)]
        assert sum(part.windowed for part in parts) == windowed
        assert all(part.dense + part.windowed <= part.layers for part in parts)
        assert product_flops(build_step(config, plan)) == model_flops(config, plan.share)
    every_pair = replace(config, window=0, window_every=0, window_after=0)
    each = 4 * PLAN.batch.sequence_length * EVEN.hidden * (PLAN.batch.sequence_length - 16)
    narrow = windowed + (3 if dense_window else 0)
    saved = model_flops(every_pair, PLAN.share) - model_flops(config, PLAN.share)
    assert saved == 3 * PLAN.batch.global_batch * narrow * each


def test_dense_blocks_that_differ_in_their_windows_are_refused():
    with pytest.raises(WorkloadError, match="all 3 dense_layers must have windows, or none of them"):
        replace(MIXED, window_every=2)


def test_windows_save_attention_in_half_of_the_blocks():
    """Half of the blocks work on w of s keys: 4 s h (s - w) operations less each, three times."""
    saved = model_flops(EVEN, PLAN.share) - model_flops(WINDOWED, PLAN.share)
    each = 4 * PLAN.batch.sequence_length * EVEN.hidden * (PLAN.batch.sequence_length - WINDOWED.window)
    assert saved == 3 * PLAN.batch.global_batch * 8 * each


def test_scores_of_windowed_blocks_take_the_memory_of_their_window():
    """Without a fused kernel a score and its dropped copy wait for the backward pass, of w keys instead of s
    (arXiv:2205.05198, section 4.1: 5 a s^2 b bytes)."""
    config = replace(EVEN, window=16, window_every=1, dropout=True)
    saved = layer_activation_bytes(config.unbounded, PLAN.share) - layer_activation_bytes(config, PLAN.share)
    assert saved == 5 * EVEN.heads * PLAN.share.tokens * (PLAN.batch.sequence_length - 16) / PLAN.axes.tp
    assert layer_activation_bytes(replace(config, window_every=2), PLAN.share) == layer_activation_bytes(
        config.unbounded, PLAN.share
    )


def test_window_and_context_ranks_are_refused_together():
    with pytest.raises(WorkloadError, match=r"context \(2\) must be 1: even's windows"):
        check(WINDOWED, PLAN.with_(cp=2, dp=1))
    check(replace(WINDOWED, window=PLAN.batch.sequence_length), PLAN.with_(cp=2, dp=1))


SMALL = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 8,
    "num_hidden_layers": 12,
    "max_position_embeddings": 256,
    "vocab_size": 100,
}
FULL, NEAR = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    ("change", "windowed"),
    [
        # Mistral 7B (arXiv:2310.06825, section 2): every block; null in its later versions.
        ({"model_type": "mistral", "sliding_window": 16}, range(12)),
        ({"model_type": "mistral", "sliding_window": None}, []),
        # Qwen2: blocks from max_window_layers on, and only if they are switched on.
        ({"model_type": "qwen2", "sliding_window": 16, "max_window_layers": 9}, []),
        (
            {"model_type": "qwen2", "sliding_window": 16, "max_window_layers": 9}
            | {"use_sliding_window": True},
            [9, 10, 11],
        ),
        # Gemma 2 (arXiv:2408.00118, section 2): every other block.
        ({"model_type": "gemma2", "sliding_window": 16}, range(0, 12, 2)),
        # Gemma 3 (arXiv:2503.19786, section 2): five windowed blocks, then one that sees all.
        ({"model_type": "gemma3_text", "sliding_window": 16}, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]),
        (
            {"model_type": "gemma3_text", "sliding_window": 16}
            | {"layer_types": [NEAR, NEAR, FULL] * 4, "sliding_window_pattern": 6},
            [0, 1, 3, 4, 6, 7, 9, 10],
        ),
        # CWM (its config.json): the block that sees all comes first of each group, and counts as the last.
        (
            {"model_type": "cwm", "sliding_window": 16, "layer_types": [FULL, NEAR, NEAR, NEAR] * 3},
            [0, 1, 2, 4, 5, 6, 8, 9, 10],
        ),
        ({"model_type": "llama", "layer_types": [FULL] * 12}, []),
    ],
)
def test_families_window_the_blocks_that_they_publish(change, windowed):
    config = from_hugging_face(SMALL | change)
    assert [block for block in range(12) if config.windowed_among(block, 1)] == list(windowed)
    assert config.windowed_among(0, 12) == len(windowed)
    plan = PLAN.with_(pp=2, dp=1)
    chunks = [chunk for stage in range(2) for chunk in stage_chunks(config, plan, stage)]
    assert [chunk.windowed for chunk in chunks] == [
        sum(block in windowed for block in half) for half in (range(6), range(6, 12))
    ]
    assert product_flops(build_step(config, plan)) == model_flops(config, plan.share)
    saved = model_flops(config.unbounded, plan.share) - model_flops(config, plan.share)
    width = config.query_width
    each = (
        3
        * plan.batch.global_batch
        * 4
        * plan.batch.sequence_length
        * width
        * (plan.batch.sequence_length - 16)
    )
    assert saved == each * len(windowed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_types": [FULL, FULL, NEAR] * 4}, "layer_types must repeat sliding_attention and one full"),
        ({"layer_types": [FULL, NEAR, NEAR] * 3 + [FULL, FULL, NEAR]}, "layer_types must repeat"),
        ({"layer_types": [NEAR] * 3}, "layer_types must name .* for each of the 12 blocks"),
        ({"layer_types": [NEAR, "linear_attention"] * 6}, "layer_types must name"),
        ({"sliding_window": -1}, "sliding_window must be a whole number"),
        ({"model_type": "llama"}, "sliding_window must be absent: this model_type has no windows"),
        (
            {"model_type": "qwen2", "layer_types": [NEAR] * 12},
            "layer_types must be absent where the model has no sliding_window",
        ),
    ],
)
def test_other_orders_of_windows_are_refused(change, message):
    with pytest.raises(WorkloadError, match=message):
        from_hugging_face(SMALL | {"model_type": "gemma2", "sliding_window": 16} | change)


def test_qwen3_norms_heads_and_refuses_dense_blocks():
    config = load_model("qwen3-30b-a3b")
    norm = next(one for one, _ in forward_layer(config, FLASH.share) if one.name == "attention.qk_norms")
    assert norm.read_bytes == 2 * FLASH.share.tokens * (32 + 4) * 128
    values = {
        "model_type": "qwen3_moe",
        "hidden_size": 64,
        "moe_intermediate_size": 16,
        "num_attention_heads": 8,
        "num_hidden_layers": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 256,
        "vocab_size": 100,
    }
    assert from_hugging_face(values).ffn_hidden == 16
    with pytest.raises(WorkloadError, match="decoder_sparse_step must be 1"):
        from_hugging_face(values | {"decoder_sparse_step": 2})


def test_grok_norms_before_and_after_each_half():
    """Four norms a block (xAI's open release of Grok-1, model.py)."""
    config = load_model("grok-1")
    norms = [one.name for one, _ in forward_layer(config, FLASH.share) if one.name.endswith("norm")]
    assert norms == ["attention.norm", "attention.post_norm", "mlp.norm", "mlp.post_norm"]
    assert config.block_norms == 4 * config.hidden


@pytest.mark.parametrize("name", ["qwen3-235b-a22b", "gpt-oss-20b", "grok-1", "kimi-k2", "deepseek-v2"])
def test_new_families_do_each_product_three_times(name):
    config = load_model(name)
    forward, backward = forward_layer(config, PLAN.share), backward_layer(config, PLAN.share)

    def flops(items):
        return sum(one.flops * count for one, count in items if isinstance(one, MatMul))

    assert flops(backward) == 2 * flops(forward)
    assert all(one.read_bytes + one.written_bytes > 0 for one, _ in forward if isinstance(one, Elementwise))
