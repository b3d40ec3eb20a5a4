"""Element-wise steps as an eager framework runs them: a kernel and its traffic for each operation."""

from __future__ import annotations

from dataclasses import replace

from heliograph.operators import Elementwise
from workloads.architecture import Norm, TransformerConfig

NORMS = frozenset({"attention.norm", "mlp.norm", "block.norm", "head.norm", "embedding.norm"})
"""Norms of the residual stream."""


def separate(step: Elementwise, config: TransformerConfig) -> tuple[Elementwise, ...]:
    """Return the kernels that stand for a step where nothing is fused.

    Parameters
    ----------
    step : Elementwise
        A forward step whose operations share one kernel.
    config : TransformerConfig
        The model.

    Notes
    -----
    Every kernel reads and writes its tensors whole. *Scores*: scale, mask and softmax. *A gate*: the
    activation, then the product. *A GELU*: the bias, then the function. *A rotary position*: two products
    and a sum. *A root-mean-square norm*: the squares' mean, the product with its root, the product with the
    scale; layer norms have a kernel of their own in every framework. *A sum with dropout*: the mask, then the
    sum. The operations are shared evenly, and so is the work of the backward pass, which mirrors each kernel.

    References
    ----------
    Korthikanti et al., arXiv:2205.05198, section 4.1 (what each operation keeps, one by one).
    """
    read, written = step.read_bytes, step.written_bytes
    match step.name:
        case "attention.softmax" if read:
            traffic = [(read, written)] * 3
        case "mlp.activation" if config.gated:
            traffic = [(written, written), (read, written)]
        case "mlp.activation":
            traffic = [(read, written)] * 2
        case "attention.rotary":
            traffic = [(read, written), (read, written), (read + written, written)]
        case "attention.residual" | "mlp.residual" if config.dropout:
            stream = read / 2
            traffic = [(stream, written), (read, stream)]
        case name if name in NORMS and config.norm is Norm.RMS:
            traffic = [(read, 0.0), (read, written), (written, written)]
        case _:
            return (step,)
    flops = step.flops / len(traffic)
    return tuple(replace(step, flops=flops, read_bytes=ins, written_bytes=outs) for ins, outs in traffic)
