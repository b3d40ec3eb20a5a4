"""Sparse weights and sparse attention: what they save, and what they do not."""

from dataclasses import replace

import pytest

from electronic.gpu import load_gpu
from optical.accelerator import PhotonicUnit
from simulator.errors import WorkloadError
from simulator.operators import Held, MatMul, Phase
from tests.builders import in_a_block
from tests.workloads.ideal import EVEN, NODE, PLAN, product_flops, run, sequences
from workloads.layers.transformer import gradients
from workloads.models.config import load_model
from workloads.plan.parts import Attention, ContextExchange, Formats, Precision, WeightSparsity
from workloads.plan.plan import parse_plan
from workloads.plan.rules import check
from workloads.step.memory import memory_by_kind
from workloads.step.sharding import layer_parameters
from workloads.step.step import build_step

BLOCKS = replace(
    EVEN, layers=2, hidden=512, heads=8, kv_heads=8, head_dim=64, ffn_hidden=2048, vocabulary=512
)
PRUNED = PLAN.with_(weight_sparsity=WeightSparsity.TWO_OF_FOUR)
LARGE = MatMul(
    name="p",
    phase=Phase.FORWARD,
    batch=1,
    m=8192,
    k=8192,
    n=8192,
    held=Held.B,
    sparse=True,
)
LIGHT = PhotonicUnit(cores=8, memory=NODE.memory, sram_bytes=2**21)


def products(config, plan):
    found = [one for task in sequences(build_step(config, plan)) for one, _ in task.operator.items]
    return {one for one in found if isinstance(one, MatMul)}


# Two of four


def test_forward_and_input_gradient_are_sparse_and_the_weight_gradient_is_dense():
    """Mishra et al., arXiv:2104.08378, section 3: the gradient of a pruned weight is worked out in full."""
    pruned = {
        (one.phase, one.sparse)
        for one in products(BLOCKS, PRUNED)
        if in_a_block(one) and (one.held is Held.B or one.phase is Phase.GRAD_WEIGHT)
    }
    assert pruned == {(Phase.FORWARD, True), (Phase.GRAD_INPUT, True), (Phase.GRAD_WEIGHT, False)}
    rest = [one for one in products(BLOCKS, PRUNED) if not in_a_block(one) or "attention.s" in one.name]
    assert rest
    assert not any(one.sparse for one in rest)
    assert not any(one.sparse for one in products(BLOCKS, PLAN))


def test_a_pruned_weight_is_read_as_half_of_its_elements_and_two_bits_for_each():
    """arXiv:2104.08378, section 2.1: 4 elements of 16 bits become 2 and 4 bits, 36 bits instead of 64."""
    dense = replace(LARGE, sparse=False)
    (_, b, _), (_, whole, _) = LARGE.elements_off_chip, dense.elements_off_chip
    assert b / whole == 36 / 64
    bytes_each = replace(LARGE, element_bytes=1).elements_off_chip[1] / whole
    assert bytes_each == 20 / 32
    forward, backward = gradients(LARGE, Formats())
    assert (forward.sparse, backward.sparse) == (True, False)


def test_sparse_units_double_the_rate_of_long_products_at_most():
    """NVIDIA A100 whitepaper: 624 TFLOP/s with sparsity against 312 without; memory and fill stay."""
    for name, least in (("a100", 1.5), ("h100", 1.5)):
        gpu = load_gpu(name)
        took, dense = gpu.cost(LARGE).time_s, gpu.cost(replace(LARGE, sparse=False)).time_s
        assert least < dense / took <= 2.0
        thin = replace(LARGE, m=16)
        ratio = gpu.cost(replace(thin, sparse=False)).time_s / gpu.cost(thin).time_s
        assert 1.0 <= ratio < 64 / 36
        assert (
            gpu.cost(LARGE).energy_j["compute"] < gpu.cost(replace(LARGE, sparse=False)).energy_j["compute"]
        )


@pytest.mark.parametrize("name", ["v100", "mi210", "tpu-v5p"])
def test_units_without_sparsity_gain_no_rate(name):
    gpu = load_gpu(name)
    assert gpu.cost(LARGE).time_s == pytest.approx(gpu.cost(replace(LARGE, sparse=False)).time_s, rel=0.02)


def test_light_gains_nothing_but_bytes():
    """A crossbar holds zeros like any weight: as many loads, symbols and conversions as with a dense one."""
    sparse, dense = LIGHT.cost(LARGE), LIGHT.cost(replace(LARGE, sparse=False))
    assert sparse.time_s == dense.time_s
    for part, joules in dense.energy_j.items():
        if part in {"hbm", "sram", "wires", "regulators", "overhead"}:  # of bytes, or a share of all
            assert sparse.energy_j[part] <= joules
        else:
            assert sparse.energy_j[part] == joules


def test_a_pruned_step_is_shorter_by_at_most_a_third():
    """Two of three products at twice the rate: 1/3 + 2/6 of the products' time (Amdahl)."""
    gpu = load_gpu("h100")
    model = load_model("llama-3-8b")
    plan = parse_plan("tp=8,micro_batch=1,global_batch=1,sequence=8192")
    total = {}
    for kind in WeightSparsity:
        made = products(model, plan.with_(weight_sparsity=kind))
        total[kind] = sum(gpu.cost(one).time_s for one in made if in_a_block(one) and not one.on_chip)
    assert 2 / 3 < total[WeightSparsity.TWO_OF_FOUR] / total[WeightSparsity.NONE] < 0.8


@pytest.mark.parametrize(("precision", "extra"), [(Precision.BF16, 0.25), (Precision.FP8, -0.75)])
def test_both_compressed_forms_take_what_dense_weights_take(precision, extra):
    """2 x (1 + 1/8) bytes an element for bf16 against 2; gradients and optimizer stay dense."""
    plan = PRUNED.with_(precision=precision, attention=Attention.FLASH)
    dense, pruned = (memory_by_kind(BLOCKS, plan.with_(weight_sparsity=kind), 0) for kind in WeightSparsity)
    matrices = BLOCKS.layers * (BLOCKS.attention_matrices + BLOCKS.expert_matrices)
    assert pruned["weights"] - dense["weights"] == extra * matrices
    assert {kind for kind in dense if pruned[kind] != dense[kind]} == {"weights"}


def test_pruning_changes_no_count_of_work():
    assert product_flops(build_step(BLOCKS, PRUNED)) == build_step(BLOCKS, PLAN).model_flops
    assert run(BLOCKS, PRUNED).network_bytes == run(BLOCKS, PLAN).network_bytes


# Blocks of weights


@pytest.mark.parametrize("density", [0.25, 0.5, 0.75])
def test_missing_blocks_of_weights_cost_neither_work_nor_memory(density):
    """Work and storage in proportion to the blocks that exist (Gray et al., "GPU kernels for block-sparse
    weights", 2017).
    """
    plan = PLAN.with_(weight_density=density)
    matrices = BLOCKS.attention_matrices + BLOCKS.expert_matrices
    step, dense = build_step(BLOCKS, plan), build_step(BLOCKS, PLAN)
    gone = (1 - density) * 6 * matrices * BLOCKS.layers * PLAN.batch.global_batch * PLAN.batch.sequence_length
    assert dense.model_flops - step.model_flops == gone
    assert product_flops(step) == step.model_flops
    held = layer_parameters(BLOCKS, plan.axes, plan.precision).total
    assert layer_parameters(BLOCKS, PLAN.axes, PLAN.precision).total - held == (1 - density) * matrices
    thin, thick = (memory_by_kind(BLOCKS, one, 0) for one in (plan, PLAN))
    for kind, each in (("weights", 2), ("gradients", 4), ("optimizer", 12)):
        assert thick[kind] - thin[kind] == each * BLOCKS.layers * (1 - density) * matrices
    assert thick["activations"] == thin["activations"]


def test_missing_blocks_save_light_too():
    dense = replace(LARGE, sparse=False)
    assert LIGHT.cost(replace(dense, k=dense.k // 2)).time_s == pytest.approx(
        LIGHT.cost(dense).time_s / 2, rel=0.01
    )


# Blocks of keys


@pytest.mark.parametrize("keys", [64, 256, 512])
def test_attention_is_linear_in_the_keys_that_a_query_sees(keys):
    """4 b s k h operations a block forward with k keys instead of s (arXiv:1904.10509, section 4.1)."""
    plan = PLAN.with_(sequence_length=512, global_batch=1, attention_keys=keys)
    bare = plan.with_(attention_keys=0)
    longer = replace(BLOCKS, max_sequence=512)
    step, dense = build_step(longer, plan), build_step(longer, bare)
    each = 3 * 4 * 512 * longer.hidden * longer.layers
    assert dense.model_flops - step.model_flops == each * (512 - keys)
    assert product_flops(step) == step.model_flops


def test_a_fixed_number_of_keys_makes_attention_linear_in_the_sequence():
    """BigBird, arXiv:2007.14062, section 2: O(n) for a fixed number of blocks; dense attention is O(n^2)."""

    def attention(length, keys):
        plan = PLAN.with_(sequence_length=length, global_batch=1, attention_keys=keys)
        found = products(replace(BLOCKS, max_sequence=length), plan)
        return sum(one.flops for one in found if one.name == "attention.scores" and one.phase == "forward")

    assert attention(2048, 128) / attention(512, 128) == 4
    assert attention(2048, 0) / attention(512, 0) == 16


def test_scores_that_are_not_worked_out_are_not_kept():
    plan = PLAN.with_(sequence_length=512, global_batch=1)
    config = replace(BLOCKS, max_sequence=512)
    dense, sparse = (
        memory_by_kind(config, plan.with_(attention_keys=keys), 0)["activations"] for keys in (0, 128)
    )
    assert dense - sparse == 2 * config.layers * config.heads * 512 * (512 - 128)


def test_keys_by_heads_go_with_context_ranks():
    plan = PLAN.with_(
        cp=2, context_exchange=ContextExchange.ALL_TO_ALL, attention_keys=64, sequence_length=128
    )
    check(BLOCKS, plan)
    assert product_flops(build_step(BLOCKS, plan)) == build_step(BLOCKS, plan).model_flops


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weight_sparsity=1:2", "weight_sparsity must be one of none, 2:4"),
        ("weight_sparsity=2:4,precision=fp32", "needs a master copy to prune from"),
        ("weight_sparsity=2:4,zero=3,dp=2", "use zero of 2 or less"),
        ("weight_density=0", "must be above 0 and at most 1"),
        ("weight_density=1.5", "must be above 0 and at most 1"),
        ("weight_density=0.5,weight_sparsity=2:4", "leave one out"),
        ("weight_density=0.5,tp=8", r"heads x head_dim / tensor \(64\) must be whole blocks of 128"),
        ("attention_keys=65", "whole blocks of 64"),
        ("attention_keys=128", r"at most sequence_length \(64\)"),
        ("attention_keys=64,cp=2", "use context_exchange=all_to_all"),
    ],
)
def test_impossible_sparsity_is_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(BLOCKS, parse_plan(text, base=PLAN))
