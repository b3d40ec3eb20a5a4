"""Report of `describe` on a converted model."""

import pytest
import torch
from torch import nn

from optical.conversion import (
    NoiseKey,
    Policy,
    ProductException,
    ProductSpecs,
    RunsOn,
    convert,
    describe,
    watch_products,
)
from optical.cores import load_core
from simulator.errors import WorkloadError
from tests.optical.conversion.architectures import ARCHITECTURES, build

IDEAL = ProductSpecs.ideal()
OWN_WARNINGS = pytest.mark.filterwarnings(
    "ignore:(torch.chain_matmul is deprecated|enable_nested_tensor is True)"
)
WIDTH, HIDDEN, TOKENS = 8, 24, 6


class Layer(nn.Module):
    """Attention with two heads, and a perceptron."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))
        self.norm, self.dropout = nn.LayerNorm(WIDTH), nn.Dropout(0.5)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (6, -1)).transpose(-2, -3).chunk(3, -3)
        heads = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.mlp(self.dropout(self.out(heads.transpose(-2, -3).flatten(-2))))


def layered():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, WIDTH), Layer(), Layer(), nn.Linear(WIDTH, 20, bias=False))
    model[3].weight = model[0].weight
    return model


def tokens(device="cpu"):
    return torch.zeros((1, TOKENS), dtype=torch.long, device=device)


def row_of(report, layer, product):
    (row,) = [row for row in report.rows if (row.layer, row.product) == (layer, product)]
    return row


def test_multiply_accumulates_are_those_of_the_textbook():
    """M K N each: projections, and a sum of one head's width per score and of a row per value."""
    report = describe(convert(layered(), IDEAL), tokens())
    assert row_of(report, "1.qkv", "linear").macs == TOKENS * WIDTH * 3 * WIDTH
    assert row_of(report, "1", "scores").macs == row_of(report, "2", "values").macs == TOKENS**2 * WIDTH
    assert row_of(report, "2.mlp.2", "linear").macs == TOKENS * HIDDEN * WIDTH
    layer = TOKENS * (4 * WIDTH**2 + 2 * WIDTH * HIDDEN) + 2 * TOKENS**2 * WIDTH
    assert report.macs(RunsOn.CORE) == 2 * layer + TOKENS * WIDTH * 20
    assert report.macs(RunsOn.ELECTRONIC) == report.macs(RunsOn.ESCAPED) == 0


@OWN_WARNINGS
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_electronics_and_core_count_the_same(name):
    """Two roads to one number: operators of torch, and the core's."""
    model, inputs = build(name)
    core = describe(convert(model, IDEAL), inputs)
    electronic = describe(convert(model, IDEAL, policy=Policy(electronic=("*",))), inputs)
    assert electronic.macs(RunsOn.CORE) == core.macs(RunsOn.ESCAPED) == 0
    assert all(row.macs is not None for row in (*core.rows, *electronic.rows))
    assert core.macs(RunsOn.CORE) + core.macs(RunsOn.ELECTRONIC) == electronic.macs(RunsOn.ELECTRONIC) > 0
    assert 0 < sum(row.weights for row in core.rows) == sum(row.weights for row in electronic.rows)


def test_weights_and_the_rest_make_all_parameters_and_shared_ones_count_once():
    model = layered()
    report = describe(convert(model, IDEAL), tokens())
    matrices = 2 * (4 * WIDTH**2 + 2 * WIDTH * HIDDEN) + 20 * WIDTH
    assert report.weights(RunsOn.CORE) == matrices
    assert report.parameters == sum(p.numel() for p in model.parameters())
    assert f"(look-ups, norms, biases) {report.parameters - matrices:,}" in str(report)


def test_each_reason_is_told():
    policy = Policy(
        electronic=("3", "*:scores"),
        exceptions=(ProductException(pattern="2.out", specs=ProductSpecs.of(load_core("crossbar").analog)),),
    )
    report = describe(convert(layered(), IDEAL, exclude=["1.mlp"], policy=policy), tokens())
    told = {(row.layer, row.product): (row.place, row.reason) for row in report.rows}
    assert told["3", "linear"] == (RunsOn.ELECTRONIC, "policy: 3")
    assert told["1", "scores"] == (RunsOn.ELECTRONIC, "policy: *:scores")
    assert told["1", "values"] == (RunsOn.CORE, "")
    assert told["1.mlp.0", "linear"] == (RunsOn.ELECTRONIC, "excluded")
    assert told["2.out", "linear"] == (RunsOn.CORE, "exception: 2.out")
    model, inputs = build("llama")
    assert describe(convert(model, IDEAL), inputs).rows[0].reason == "sums nothing"


def test_an_escaped_product_is_told(monkeypatch):
    monkeypatch.setattr("optical.conversion.interception._REPLACED", {})
    report = describe(convert(layered(), IDEAL), tokens())
    assert {row.place for row in report.rows} == {RunsOn.ESCAPED}
    assert "ESCAPED" in str(report)


def test_without_a_sample_layers_are_told_by_their_class():
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    model = convert(nn.Sequential(layer, nn.LSTM(8, 4)), IDEAL, policy=Policy(electronic=("*:scores",)))
    report = describe(model)
    told = [(row.layer, row.product, row.place, row.weights, row.macs) for row in report.rows]
    assert told == [
        ("0.self_attn", "linear", RunsOn.CORE, 4 * 64, None),
        ("0.self_attn", "scores", RunsOn.ELECTRONIC, 0, None),
        ("0.self_attn", "values", RunsOn.CORE, 0, None),
        ("0.linear1", "linear", RunsOn.CORE, 128, None),
        ("0.linear2", "linear", RunsOn.CORE, 128, None),
        ("1", "linear", RunsOn.CORE, 4 * 4 * 12, None),
        ("1", "recurrence", RunsOn.CORE, 0, None),
    ]
    assert "not run" in str(report)


def test_memory_is_not_needed_for_a_report():
    report = describe(convert(layered(), IDEAL), tokens())
    away = convert(layered(), IDEAL).to("meta")
    away[3].weight = away[0].weight
    assert str(describe(away, {"input": tokens("meta")})) == str(report)


def test_a_report_leaves_the_model_as_it_was():
    """Modes, draws of the dropout, and the calls that recomputation needs."""
    model = convert(layered(), ProductSpecs.of(load_core("crossbar").analog), model_key=NoiseKey(seed=1))
    model.train()
    model[2].eval()
    model(tokens()).sum().backward()
    site = model[1].heliograph_site
    before, state = (set(site.calls), dict(site.inputs)), torch.get_rng_state()
    describe(model, tokens())
    assert (site.calls, site.inputs) == before
    assert model[1].dropout.training
    assert not model[2].training
    assert torch.equal(torch.get_rng_state(), state)


def test_layers_that_differ_in_a_number_share_a_line():
    text = str(describe(convert(layered(), IDEAL), tokens()))
    (line,) = [line for line in text.splitlines() if ".qkv" in line]
    assert line.split() == ["*.qkv", "Linear", "linear", "core", "2", "384", "2,304", "float32"]


def test_types_of_operands_are_told():
    with torch.autocast("cpu", torch.bfloat16):
        report = describe(convert(layered(), IDEAL), tokens())
    row = row_of(report, "1.qkv", "linear")
    assert (row.dtype, row.weights) == ("bfloat16", 3 * WIDTH**2)


def test_only_a_converted_model_is_told_of():
    with pytest.raises(WorkloadError, match="not converted"):
        describe(nn.Linear(2, 2))


def test_the_log_and_the_watch_see_the_same_products():
    model, inputs = build("t5")
    converted = convert(model, IDEAL)
    with watch_products() as counts, torch.no_grad():
        converted(*inputs)
    rows = describe(converted, inputs).rows
    assert {f"{row.layer}:{row.product}": row.products for row in rows} == counts.analog
