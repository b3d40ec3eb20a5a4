"""What an optimizer keeps of each parameter, and what its step takes."""

from __future__ import annotations

from types import MappingProxyType

from heliograph.operators import Elementwise, Phase
from workloads.architecture import TransformerConfig
from workloads.choices import Optimizer, Precision
from workloads.plan import Parallelism
from workloads.sharding import RankParameters, optimizer_share
from workloads.sparsity import compressed_bytes

MASTER_BYTES = 4
"""The fp32 copy of a parameter that is stored in fewer bits."""
MAIN_GRADIENT_BYTES = 4
"""The fp32 copy of a gradient that fp16 training makes once the loss scale is divided out."""
VALUE_BYTES = 4
"""One fp32 value of an optimizer's state."""
BLOCK_VALUES = 2048
"""Values that share one fp32 constant in 8-bit optimizers (arXiv:2110.02861, section 2.1)."""
FP8_COPIES_BYTES = 2
"""The fp8 copy of a weight and its transpose, which the backward pass multiplies with."""
UPDATE_FLOPS = MappingProxyType(
    {
        Optimizer.ADAM: 12,
        Optimizer.ADAM_8BIT: 20,
        Optimizer.ADAFACTOR: 10,
        Optimizer.MOMENTUM: 6,
        Optimizer.SGD: 4,
    }
)
"""Operations per parameter. Adam: two moments, their corrections, the root, the step and the decay; in 8 bits
four more per moment to unpack and pack; Adafactor: the square, two sums, the root, the clip, the step."""
_MOMENTS = MappingProxyType(
    {
        Optimizer.ADAM: 2.0 * VALUE_BYTES,
        Optimizer.ADAM_8BIT: 2 * (1 + VALUE_BYTES / BLOCK_VALUES),
        Optimizer.MOMENTUM: 1.0 * VALUE_BYTES,
        Optimizer.SGD: 0.0,
    }
)


def factored_bytes(rows: int, columns: int) -> int:
    """Return Adafactor's state of one matrix: a sum per row and per column (arXiv:1804.04235, section 3)."""
    return VALUE_BYTES * (rows + columns)


def moment_bytes(config: TransformerConfig, plan: Parallelism) -> float:
    """Return the bytes of an optimizer's moments per parameter, without copies of weights or gradients.

    Notes
    -----
    Adafactor without momentum keeps 4 (r + c) / (r c) bytes a parameter of an r x c matrix; the mean over a
    block's matrices on one rank stands for all parameters. Vectors (norms, biases) are not factored.
    """
    if plan.optimizer is not Optimizer.ADAFACTOR:
        return _MOMENTS[plan.optimizer]
    hidden, tp = config.hidden // plan.side, plan.columns
    query, kv, inner = config.query_width // tp, plan.key_width(config), config.ffn_hidden // tp
    experts = config.experts // plan.ep
    shapes = [(hidden, query, 2), (hidden, kv, 2), (hidden, inner, (config.ffn_branches + 1) * experts)]
    kept = sum(factored_bytes(rows, columns) * count for rows, columns, count in shapes)
    return kept / sum(rows * columns * count for rows, columns, count in shapes)


def optimizer_bytes(config: TransformerConfig, plan: Parallelism) -> float:
    """Return an optimizer's state per parameter: moments, and the fp32 copies that the precision needs.

    Notes
    -----
    With Adam, weights and gradients included: 18 bytes for bf16 with fp32 gradients, 20 for fp16 with fp16
    gradients, 16 for fp32; of these 12, 16 and 8 can be shared (Megatron-LM, distributed optimizer), and 16
    for bf16 with two-byte gradients and no fp32 copy of them (ZeRO, arXiv:1910.02054).
    """
    copies = 0 if plan.precision is Precision.FP32 else MASTER_BYTES
    if plan.precision is Precision.FP16 and plan.grad_bytes < MAIN_GRADIENT_BYTES:
        copies += MAIN_GRADIENT_BYTES
    return moment_bytes(config, plan) + copies


def update_work(config: TransformerConfig, plan: Parallelism, held: RankParameters) -> Elementwise:
    """Return the optimizer's step over a rank's share of the parameters that it holds.

    Notes
    -----
    fp8 adds the casts of all weights that the rank holds, once a step, and pruning their compression.
    """
    count = optimizer_share(plan, held)
    state = optimizer_bytes(config, plan)
    stored = plan.precision.element_bytes
    # fp32 weights are their own master: they are read as weights rather than as optimizer state.
    read = (state + plan.grad_bytes + (stored if plan.precision is Precision.FP32 else 0)) * count
    written = (state + stored) * count
    if plan.precision is Precision.FP8:
        read += stored * (held.total - held.pruned)
        written += FP8_COPIES_BYTES * (held.total - held.pruned)
    if held.pruned:
        read += stored * held.pruned
        written += compressed_bytes(plan) * held.pruned
    return Elementwise(
        name=plan.optimizer.value,
        layer="optimizer",
        phase=Phase.UPDATE,
        flops=UPDATE_FLOPS[plan.optimizer] * count,
        read_bytes=read,
        written_bytes=written,
    )
