"""How many operations a step's model is worth, by the conventions that published utilisations use."""

from __future__ import annotations

from heliograph.operators import MatMul, total_flops
from workloads.architecture import TransformerConfig
from workloads.choices import Attention
from workloads.plan import Parallelism
from workloads.retrieval_parts import RetrievalParts
from workloads.transformer import Item, backward_steps, forward_head, forward_layer, forward_steps


def model_flops(config: TransformerConfig, plan: Parallelism, *, causal: bool = False) -> float:
    """Return the floating-point operations that a step's model is worth, whatever the plan does.

    Parameters
    ----------
    config, plan : TransformerConfig, Parallelism
        The model, and the plan, of which only batch, sequence length and block sparsity matter.
    causal : bool
        Whether only the half of attention's pairs that the mask lets through counts. Of published
        utilisations some count them all and some the half: 12 % apart for Llama 3 8B at 8192 tokens.

    Notes
    -----
    Products only, three times the forward pass (arXiv:2205.05198, appendix A; for a GPT
    72 B L s h^2 (1 + s/6h + V/12Lh)). Attention counts all s x s pairs, not the causal half, unless asked to;
    nothing that is recomputed and no padding of the vocabulary counts. Utilisations published with the causal
    half counted are lower for the same speed. Blocks of weights and of keys that do not exist count nothing;
    weights pruned 2 of 4 count as if they were dense.
    """
    bare = Parallelism(
        global_batch=plan.global_batch,
        sequence_length=plan.sequence_length,
        attention=Attention.FULL,
        vocabulary_multiple=1,
        weight_density=plan.weight_density,
        attention_keys=plan.attention_keys,
    )
    layer = _product_flops(forward_layer(config.unbounded, bare), causal=causal)
    narrow = config.windowed_among(0, config.layers)
    blocks = (config.layers - config.dense_layers - narrow) * layer
    if narrow:
        blocks += narrow * _product_flops(forward_layer(config.windowed, bare), causal=causal)
    if config.dense_layers:
        dense = _product_flops(forward_layer(config.dense, bare), causal=causal)
        blocks += config.dense_layers * dense
    head = _product_flops(forward_head(config, bare), causal=causal)
    found = 3.0 * plan.global_batch * (blocks + head)
    return found + _retrieval_flops(config, plan, bare) if config.retrieval else found


def _retrieval_flops(config: TransformerConfig, plan: Parallelism, bare: Parallelism) -> float:
    """Return the operations of a step's cross-attentions and encoder.

    Notes
    -----
    Both passes are counted one by one, for no gradient reaches the encodings of relative positions; nor does
    it in the blocks, whose third product is taken off.
    """
    if config.retrieval is None:
        return 0.0
    parts = RetrievalParts(config, bare, config.retrieval)
    count = config.retrieval.among(0, config.layers)
    one = sum(
        _product_flops((*forward_steps(steps, bare), *backward_steps(steps, bare)), causal=False) * times
        for steps, times in ((parts.cross(), count), (parts.encoder(), 1))
    )
    never = 2 * plan.sequence_length * config.position_matrix * config.layers
    return plan.global_batch * (one - never)


def _product_flops(items: tuple[Item, ...], *, causal: bool) -> float:
    halved = {"attention.scores", "attention.position_scores", "attention.values"} if causal else set()
    return sum(
        total_flops(operator) * repeat / (2 if operator.name in halved else 1)
        for operator, repeat in items
        if isinstance(operator, MatMul)
    )
