"""What a sparse run leaves out: weights pruned 2 of 4, blocks of weights, blocks of keys.

What a value takes that travels in fewer bits, with a scale per block (ZeRO++, arXiv:2306.10209).
"""

from __future__ import annotations

import math

from simulator.errors import WorkloadError
from workloads.models.architecture import TransformerConfig
from workloads.plan.choices import ContextExchange, Precision, WeightSparsity
from workloads.plan.plan import Parallelism

BLOCK_VALUES = 4096
"""Values that share one scale, as in DeepSpeed's kernels (4,000 to 8,000 to a group); a choice."""
SCALE_BYTES = 4
"""One fp32 scale."""
INT8_BYTES = 1 + SCALE_BYTES / BLOCK_VALUES
"""A value in int8 with its share of the scale."""
INT4_BYTES = 0.5 + SCALE_BYTES / BLOCK_VALUES
"""A value in int4 with its share of the scale."""
QUANTISE_FLOPS = 3
"""Operations per value: magnitude and largest, scale, round."""
DEQUANTISE_FLOPS = 1
"""Operations per value: the product with the scale."""


WEIGHT_BLOCK = 128
"""Rows and columns of a block of weights that is kept or left out whole: a kernel's tile."""
ATTENTION_BLOCK = 64
"""Queries, and keys, of a block of scores that is worked out or left out (BigBird, arXiv:2007.14062)."""
METADATA_BYTES = 0.125
"""Where the kept elements stand, per element of the dense matrix: two bits for each of two in four."""
ROUNDING = 1e-9
"""Share of a block that may be left over by rounding."""
FORMS = 2
"""Compressed forms of a pruned weight: one for the forward pass, one transposed for the input's gradient."""


def kept_inner(plan: Parallelism, inner: int) -> int:
    """Return how many of a product's inner elements meet a kept block of its weight, in whole blocks.

    Notes
    -----
    Every block column of the weight keeps the same share of its blocks, so that C = A B has as many
    operations as with a dense weight of so many rows, and both gradients follow: dA sums over the kept
    columns, dB is worked out in kept blocks only. A photonic core leaves out whole loads of a block too.
    """
    if plan.weight_density == 1.0:
        return inner
    blocks = inner / WEIGHT_BLOCK * plan.weight_density
    return min(inner, math.ceil(blocks - ROUNDING) * WEIGHT_BLOCK)


def kept_elements(plan: Parallelism, elements: int) -> int:
    """Return how many of a matrix's elements a rank stores."""
    return elements if plan.weight_density == 1.0 else round(elements * plan.weight_density)


def compressed_bytes(plan: Parallelism) -> float:
    """Return the bytes of both compressed forms of a pruned weight, per element of the dense one.

    Notes
    -----
    Half of the elements and two bits for each (Mishra et al., arXiv:2104.08378, section 2.1). As both passes
    need their own form, bf16 weights take 2.25 bytes an element against 2 dense: pruning saves no memory
    while a model is trained.
    """
    return FORMS * (plan.precision.linear_bytes / 2 + METADATA_BYTES)


def extra_weight_bytes(plan: Parallelism) -> float:
    """Return what a pruned weight takes beyond a dense one, per element: below zero if it takes less."""
    dense = FORMS if plan.precision is Precision.FP8 else 1
    return compressed_bytes(plan) - dense * plan.precision.linear_bytes


def check_sparsity(config: TransformerConfig, plan: Parallelism) -> None:
    """Check that what a plan leaves out can be left out.

    Raises
    ------
    WorkloadError
        Naming the first rule broken and what would keep it.
    """
    if plan.weight_sparsity is WeightSparsity.TWO_OF_FOUR:
        _check_pruned(plan)
    if plan.weight_density != 1.0:
        _check_density(config, plan)
    if plan.attention_keys:
        _check_keys(config, plan)


def _check_pruned(plan: Parallelism) -> None:
    if plan.precision is Precision.FP32:
        msg = "weight_sparsity=2:4 needs a master copy to prune from; use precision=bf16, fp16 or fp8"
        raise WorkloadError(msg)
    if plan.shards_parameters or plan.updates_on_host:
        msg = "weight_sparsity=2:4 compresses weights once a step on their rank; use zero of 2 or less there"
        raise WorkloadError(msg)


def _check_density(config: TransformerConfig, plan: Parallelism) -> None:
    if not 0.0 < plan.weight_density < 1.0:
        msg = f"weight_density ({plan.weight_density}) must be above 0 and at most 1"
        raise WorkloadError(msg)
    if plan.weight_sparsity is not WeightSparsity.NONE or plan.side > 1:
        msg = "weight_density is for weights that are not pruned otherwise, on tensor_grid=1d; leave one out"
        raise WorkloadError(msg)
    for what, width in (
        ("hidden", config.hidden),
        ("ffn_hidden / tensor", config.ffn_hidden // plan.tp),
        ("heads x head_dim / tensor", config.context_width // plan.tp),
    ):
        if width % WEIGHT_BLOCK:
            msg = f"{what} ({width}) must be whole blocks of {WEIGHT_BLOCK} with weight_density; lower tp"
            raise WorkloadError(msg)


def _check_keys(config: TransformerConfig, plan: Parallelism) -> None:
    keys = plan.attention_keys
    if keys % ATTENTION_BLOCK or keys > plan.sequence_length:
        msg = (
            f"attention_keys ({keys}) must be whole blocks of {ATTENTION_BLOCK}, at most sequence_length "
            f"({plan.sequence_length})"
        )
        raise WorkloadError(msg)
    if plan.causal_half or config.window:
        msg = "attention_keys counts what a query sees; leave causal_half false, on a model without windows"
        raise WorkloadError(msg)
    if plan.cp > 1 and plan.context_exchange is not ContextExchange.ALL_TO_ALL:
        msg = "attention_keys needs all tokens of a head on one rank; use context_exchange=all_to_all"
        raise WorkloadError(msg)
