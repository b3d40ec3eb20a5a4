"""Compressed values: weights pruned 2 of 4, and quantised traffic with a scale per block.

Sparse tensor cores: Mishra et al., arXiv:2104.08378. Scales per block: ZeRO++, arXiv:2306.10209.
"""

from __future__ import annotations

import math

from workloads.plan.choices import WEIGHT_BLOCK
from workloads.plan.parts import Formats

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


METADATA_BYTES = 0.125
"""Where the kept elements stand, per element of the dense matrix: two bits for each of two in four."""
ROUNDING = 1e-9
"""Share of a block that may be left over by rounding."""
FORMS = 2
"""Compressed forms of a pruned weight: one for the forward pass, one transposed for the input's gradient."""


def kept_inner(formats: Formats, inner: int) -> int:
    """Return how many of a product's inner elements meet a kept block of its weight, in whole blocks.

    Notes
    -----
    Every block column of the weight keeps the same share of its blocks, so that C = A B has as many
    operations as with a dense weight of so many rows, and both gradients follow: dA sums over the kept
    columns, dB is worked out in kept blocks only. A photonic core leaves out whole loads of a block too.
    """
    if formats.weight_density == 1.0:
        return inner
    blocks = inner / WEIGHT_BLOCK * formats.weight_density
    return min(inner, math.ceil(blocks - ROUNDING) * WEIGHT_BLOCK)


def kept_elements(formats: Formats, elements: int) -> int:
    """Return how many of a matrix's elements a rank stores."""
    return elements if formats.weight_density == 1.0 else round(elements * formats.weight_density)


def compressed_bytes(formats: Formats) -> float:
    """Return the bytes of both compressed forms of a pruned weight, per element of the dense one.

    Notes
    -----
    Half of the elements and two bits for each (Mishra et al., arXiv:2104.08378, section 2.1). As both passes
    need their own form, bf16 weights take 2.25 bytes an element against 2 dense: pruning saves no memory
    while a model is trained.
    """
    return FORMS * (formats.linear_bytes / 2 + METADATA_BYTES)


def extra_weight_bytes(formats: Formats) -> float:
    """Return what a pruned weight takes beyond a dense one, per element: below zero if it takes less."""
    dense = FORMS if formats.kind.is_cast else 1
    return compressed_bytes(formats) - dense * formats.linear_bytes
