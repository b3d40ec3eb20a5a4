"""The closed forms against torch models traced on the meta device, FLOP for FLOP, forward and backward."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from simulator.operators import MatMul
from workloads.layers.transformer import (
    backward_head,
    backward_layer,
    forward_head,
    forward_layer,
    model_flops,
)
from workloads.models.architecture import Norm, Positions, TransformerConfig
from workloads.plan.parts import Attention
from workloads.plan.plan import Plan
from workloads.training.gpt import Gpt, GptConfig
from workloads.training.probes import EXACT_PRODUCTS


def plan_of(batch, length):
    return Plan.of(
        micro_batch=batch,
        global_batch=batch,
        sequence_length=length,
        attention=Attention.FULL,
        vocabulary_multiple=1,
    )


def closed_form(*parts):
    return sum(
        operator.flops * count * repeat
        for items, repeat in parts
        for operator, count in items
        if isinstance(operator, MatMul)
    )


def traced(run, backward):
    """Return the FLOPs of a forward pass and of its backward pass as torch counts them."""
    with FlopCounterMode(display=False) as forward_count:
        output = run()
    with FlopCounterMode(display=False) as backward_count:
        backward(output)
    return forward_count.get_total_flops(), backward_count.get_total_flops()


@pytest.mark.parametrize(
    ("shape", "batch"),
    [
        (GptConfig(vocabulary=256, layers=3, width=128, heads=4, context=64), 2),
        (GptConfig(vocabulary=97, layers=1, width=64, heads=1, context=16), 1),
        (GptConfig(vocabulary=50257, layers=2, width=4096, heads=32, context=1024), 3),
    ],
)
def test_torch_gpt_does_the_closed_forms_work(shape, batch):
    layers, length = shape.layers, shape.context
    config = TransformerConfig(
        name="gpt",
        layers=layers,
        hidden=shape.width,
        heads=shape.heads,
        kv_heads=shape.heads,
        head_dim=shape.width // shape.heads,
        ffn_hidden=4 * shape.width,
        vocabulary=shape.vocabulary,
        max_sequence=length,
        positions=Positions.LEARNED,
        position_rows=length,
    )
    plan = plan_of(batch, length)
    with torch.device("meta"):
        model = Gpt(shape, EXACT_PRODUCTS, 0)
        tokens = torch.zeros(batch, length, dtype=torch.int64)
    forward, backward = traced(lambda: model(tokens, tokens), lambda loss: loss.backward())
    assert forward == closed_form(
        (forward_layer(config, plan.share), layers), (forward_head(config, plan.share), 1)
    )
    assert backward == closed_form(
        (backward_layer(config, plan.share), layers), (backward_head(config, plan.share), 1)
    )
    assert forward + backward == model_flops(config, plan.share)


def test_torch_gpt_has_the_closed_forms_parameters():
    shape = GptConfig(vocabulary=97, layers=3, width=64, heads=4, context=16)
    config = TransformerConfig(
        name="gpt",
        layers=3,
        hidden=64,
        heads=4,
        kv_heads=4,
        head_dim=16,
        ffn_hidden=256,
        vocabulary=97,
        max_sequence=16,
        positions=Positions.LEARNED,
        position_rows=16,
    )
    model = Gpt(shape, EXACT_PRODUCTS, 0)
    assert sum(weight.numel() for weight in model.parameters()) == config.parameters


class LlamaBlock(nn.Module):
    """Grouped queries and a gated feed-forward part, in torch's own modules: the second oracle."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        h, q, kv, f = config.hidden, config.query_width, config.kv_width, config.ffn_hidden
        self.query, self.key, self.value = (nn.Linear(h, n, bias=False) for n in (q, kv, kv))
        self.output = nn.Linear(q, h, bias=False)
        self.gate, self.up = nn.Linear(h, f, bias=False), nn.Linear(h, f, bias=False)
        self.down = nn.Linear(f, h, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(h) for _ in range(2))

    def forward(self, x):
        b, s, _ = x.shape
        config = self.config
        y = self.norms[0](x)
        q = self.query(y).view(b, s, config.heads, -1).transpose(1, 2)
        k = self.key(y).view(b, s, config.kv_heads, -1).transpose(1, 2)
        v = self.value(y).view(b, s, config.kv_heads, -1).transpose(1, 2)
        k, v = (t.repeat_interleave(config.heads // config.kv_heads, dim=1) for t in (k, v))
        weights = (q @ k.mT / config.head_dim**0.5).softmax(-1)
        x = x + self.output((weights @ v).transpose(1, 2).reshape(b, s, -1))
        y = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


LLAMA = TransformerConfig(
    name="llama",
    layers=2,
    hidden=96,
    heads=6,
    kv_heads=2,
    head_dim=32,
    ffn_hidden=160,
    vocabulary=1000,
    max_sequence=64,
    gated=True,
    norm=Norm.RMS,
)


@pytest.mark.parametrize(("batch", "length"), [(1, 64), (3, 40)])
def test_torch_llama_block_does_the_closed_forms_work(batch, length):
    plan = plan_of(batch, length)
    with torch.device("meta"):
        block = LlamaBlock(LLAMA)
        x = torch.zeros(batch, length, LLAMA.hidden, requires_grad=True)
    forward, backward = traced(lambda: block(x), lambda y: y.sum().backward())
    assert forward == closed_form((forward_layer(LLAMA, plan.share), 1))
    assert backward == closed_form((backward_layer(LLAMA, plan.share), 1))


def test_torch_llama_block_has_the_closed_forms_parameters():
    assert sum(weight.numel() for weight in LlamaBlock(LLAMA).parameters()) == LLAMA.layer_parameters


def test_flash_backward_repeats_the_scores_as_torch_counts_it():
    """Torch counts five products in the backward pass of a fused kernel: four and the scores again."""
    b, a, s, d = 2, 6, 64, 32
    with torch.device("meta"):
        q, k, v, o = (torch.zeros(b, a, s, d, dtype=torch.bfloat16) for _ in range(4))
        statistics = torch.zeros(b, a, s)
        seed = torch.zeros((), dtype=torch.int64)
        with FlopCounterMode(display=False) as counter:
            torch.ops.aten._scaled_dot_product_flash_attention_backward(
                o, q, k, v, o, statistics, None, None, s, s, 0.0, False, seed, seed
            )
    config = LLAMA
    plan = Plan.of(micro_batch=b, sequence_length=s, attention=Attention.FLASH_UNMASKED)
    core = [
        operator
        for operator, _ in backward_layer(config, plan.share)
        if operator.name in {"attention.scores", "attention.values"} and isinstance(operator, MatMul)
    ]
    assert counter.get_total_flops() == sum(operator.flops for operator in core)
