"""RETRO as a workload: its published sizes, its work against a traced torch model, its runs under plans."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from simulator.errors import WorkloadError
from simulator.operators import Collective, MatMul
from tests.workloads.ideal import PLAN, ideal_s, product_flops, run, sequences
from workloads.layers.transformer import forward_layer, model_flops
from workloads.models.architecture import Norm, Positions, Retrieval, TransformerConfig
from workloads.models.config import load_model
from workloads.pipeline import schedules
from workloads.plan.parts import Attention, Recompute
from workloads.plan.plan import parse_plan
from workloads.plan.rules import check
from workloads.step.memory import memory_by_kind
from workloads.step.sharding import StagePart, part_parameters, stage_chunks
from workloads.step.stage import Pass, Passes
from workloads.step.step import build_step

READS = Retrieval(
    first=2, every=2, chunk=16, neighbours=2, length=32, hidden=32, heads=4, head_dim=8, ffn_hidden=64
)
SMALL = TransformerConfig(
    name="small",
    layers=8,
    hidden=64,
    heads=8,
    kv_heads=8,
    head_dim=8,
    ffn_hidden=256,
    vocabulary=128,
    max_sequence=256,
    norm=Norm.RMS,
    positions=Positions.RELATIVE,
    retrieval=READS,
)


@pytest.mark.parametrize(
    ("shape", "baseline", "retro"),
    [
        ((896, 16, 64, 12), 132, 172),
        ((1536, 12, 128, 12), 368, 425),
        ((2048, 16, 128, 24), 1309, 1451),
        ((4096, 32, 128, 32), 6982, 7532),
    ],
)
def test_parameters_are_those_of_the_published_table(shape, baseline, retro):
    """Millions without embeddings (Borgeaud et al., arXiv:2112.04426, table 1)."""
    d, heads, size, layers = shape
    config = replace(
        load_model("retro-425m"), hidden=d, heads=heads, kv_heads=heads, head_dim=size, layers=layers
    )
    config = replace(config, ffn_hidden=4 * d)
    ends = config.vocabulary * (2 * d + config.retrieval.hidden)
    assert (config.parameters - ends) / 1e6 == pytest.approx(retro, rel=4e-3)
    plain = replace(config, retrieval=None)
    assert (plain.parameters - plain.vocabulary * 2 * d) / 1e6 == pytest.approx(baseline, rel=2e-3)


def test_shipped_models_have_the_published_sizes():
    for name, millions in (("retro-7.5b", 7532), ("retro-425m", 425)):
        config = load_model(name)
        ends = config.vocabulary * (2 * config.hidden + config.retrieval.hidden)
        assert (config.parameters - ends) / 1e6 == pytest.approx(millions, rel=2e-3)
        assert (config.retrieval.first, config.retrieval.every) == (6, 3)


class Read(nn.Module):
    """Attention with relative positions, of one stream to itself or to another."""

    def __init__(self, hidden, source, heads, size, distances):
        super().__init__()
        width = heads * size
        self.heads, self.distances, self.hidden = heads, distances, hidden
        self.query, self.output = nn.Linear(hidden, width, bias=False), nn.Linear(width, hidden, bias=False)
        self.key, self.value = (nn.Linear(source, width, bias=False) for _ in range(2))
        self.positions = nn.Linear(hidden, width, bias=False)
        self.norm = nn.RMSNorm(hidden)

    def forward(self, x_GTC, source_GSC, repeat=1):
        """Return the stream with what is read of a source that `repeat` groups share."""
        y = self.norm(x_GTC)
        own = source_GSC is None
        source = y if own else source_GSC
        groups, tokens, _ = x_GTC.shape
        q, k, v = (
            part.view(part.shape[0], part.shape[1], self.heads, -1).transpose(1, 2)
            for part in (self.query(y), self.key(source), self.value(source))
        )
        k, v = (part.repeat_interleave(repeat, dim=0) for part in (k, v))
        table = self.positions(torch.zeros(self.distances, self.hidden, device=x_GTC.device))
        table = table.view(self.distances, self.heads, -1).permute(1, 2, 0)
        shifted = (q @ table.expand(groups, -1, -1, -1))[..., :1]
        weights = (q @ k.mT + shifted).softmax(-1)
        return x_GTC + self.output((weights @ v).transpose(1, 2).reshape(groups, tokens, -1))


class Mlp(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.norm = nn.RMSNorm(hidden)
        self.up, self.down = nn.Linear(hidden, inner, bias=False), nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Retro(nn.Module):
    """A decoder with chunked cross-attention and the encoder of its neighbours, in torch's own modules."""

    def __init__(self, config, length):
        super().__init__()
        reads, h, n = config.retrieval, config.hidden, config.layers
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, h)
        self.reads = nn.ModuleList(Read(h, h, config.heads, config.head_dim, length) for _ in range(n))
        self.mlps = nn.ModuleList(Mlp(h, config.ffn_hidden) for _ in range(n))
        self.crosses = nn.ModuleList(
            Read(h, reads.hidden, config.heads, config.head_dim, reads.distances)
            for _ in range(reads.among(0, n))
        )
        e = reads.hidden
        self.neighbours = nn.Embedding(config.vocabulary, e)
        self.own = nn.ModuleList(
            Read(e, e, reads.heads, reads.head_dim, 2 * reads.length - 1) for _ in range(reads.layers)
        )
        self.chunk = nn.ModuleList(
            Read(e, h, reads.heads, reads.head_dim, reads.distances) for _ in range(reads.crossings)
        )
        self.encoded = nn.ModuleList(Mlp(e, reads.ffn_hidden) for _ in range(reads.layers))
        self.end = nn.RMSNorm(e)
        self.norm = nn.RMSNorm(h)
        self.head = nn.Linear(h, config.vocabulary, bias=False)

    def encode(self, ids, x):
        reads = self.config.retrieval
        y = self.neighbours(ids)
        for layer in range(reads.layers):
            y = self.own[layer](y, None)
            if layer < reads.crossings:
                y = self.chunk[layer](y, x.reshape(-1, reads.chunk, x.shape[-1]), reads.neighbours)
            y = self.encoded[layer](y)
        return self.end(y).reshape(-1, reads.neighbours * reads.length, reads.hidden)

    def forward(self, tokens, ids):
        reads, x, encoded, place = self.config.retrieval, self.embedding(tokens), None, 0
        for layer, (read, mlp) in enumerate(zip(self.reads, self.mlps, strict=True)):
            x = read(x, None)
            if reads.among(layer, 1):
                encoded = self.encode(ids, x) if encoded is None else encoded
                shape = x.shape
                x = self.crosses[place](x.reshape(-1, reads.chunk, shape[-1]), encoded).reshape(shape)
                place += 1
            x = mlp(x)
        return self.head(self.norm(x)).sum()


@pytest.mark.parametrize("crossings", [1, 2])
def test_torch_retro_does_the_closed_forms_work(crossings):
    length = 64
    config = replace(SMALL, retrieval=replace(READS, crossings=crossings))
    with torch.device("meta"):
        model = Retro(config, length)
        tokens = torch.zeros(1, length, dtype=torch.int64)
        count = length // READS.chunk * READS.neighbours
        ids = torch.zeros(count, READS.length, dtype=torch.int64)
    with FlopCounterMode(display=False) as forward_count:
        loss = model(tokens, ids)
    with FlopCounterMode(display=False) as backward_count:
        loss.backward()
    plan = PLAN.with_(global_batch=1)
    whole = {direction: 0 for direction in (Pass.FORWARD, Pass.BACKWARD)}
    part = StagePart(layers=8, embedding=True, head=True, retrieving=4, encodes=True)
    for direction in whole:
        found = Passes(config, plan.share, overlap_tensor=False).operators(part, direction)
        whole[direction] = sum(one.flops * count for one, count in found if isinstance(one, MatMul))
    assert whole[Pass.FORWARD] == forward_count.get_total_flops()
    assert whole[Pass.BACKWARD] == backward_count.get_total_flops()
    assert sum(whole.values()) == model_flops(config, plan.share)
    assert sum(weight.numel() for weight in model.parameters()) == config.parameters


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tp=4",
        "tp=4,overlap_tensor=true",
        "dp=2,zero=3",
        "pp=4",
        "pp=2,vpp=2,tp=2,dp=2",
        "pp=4,schedule=zero_bubble",
        "attention=flash",
        "recompute=full,pp=2",
    ],
)
def test_plans_run_and_lose_no_work(text):
    plan = parse_plan(text, base=PLAN)
    check(SMALL, plan)
    step = build_step(SMALL, plan)
    if (
        plan.recompute.kind is Recompute.NONE
        and not plan.traffic.overlap_tensor
        and plan.recompute.attention is Attention.FULL
    ):
        # Every tensor-parallel rank has its heads' part of the positions, once a microbatch.
        assert product_flops(step) == step.model_flops
    assert run(SMALL, plan, port=1e9).makespan_s > ideal_s(SMALL, plan) * 0.9
    alone = plan.with_(tp=1, overlap_tensor=False)
    held = [memory_by_kind(SMALL, alone, stage)["weights"] for stage in range(plan.axes.pp)]
    if plan.sharding.zero < 3:
        assert sum(held) == 2 * SMALL.parameters


def test_neighbours_cost_the_published_tokens():
    """k r / m = 4 tokens of neighbours for each token (arXiv:2112.04426, section 2.2)."""
    assert load_model("retro-7.5b").retrieval.tokens_per_token == 4


def test_chunked_cross_attention_is_linear_in_the_sequence():
    """O(n) for n tokens (arXiv:2112.04426, section 2.1): twice the tokens, twice the reading."""
    blocks = {}
    for length in (64, 128):
        plan = PLAN.with_(sequence_length=length, global_batch=1)
        whole = model_flops(SMALL, plan.share)
        blocks[length] = whole - model_flops(replace(SMALL, retrieval=None), plan.share)
    constant = 2 * blocks[64] - blocks[128]
    # What does not grow: distances within a chunk, and the pass that positions do not take.
    assert abs(constant) < 0.05 * blocks[64]


def test_stages_after_the_encoder_hand_its_result_on():
    """Encoded neighbours travel with the stream from the encoder's stage to the last that reads them."""
    plan = PLAN.with_(pp=4, global_batch=4)
    reads = [stage_chunks(SMALL, plan, stage)[0] for stage in range(4)]
    assert [chunk.encodes for chunk in reads] == [True, False, False, False]
    assert [chunk.hands_on for chunk in reads] == [True, True, True, False]
    stream = 2 * plan.share.tokens * SMALL.hidden
    neighbours = 2 * plan.share.tokens * READS.tokens_per_token * READS.hidden
    sent = run(SMALL, plan).network_bytes["pp"]
    assert sent == 4 * 2 * 3 * (stream + neighbours)
    late = replace(SMALL, retrieval=replace(READS, first=8))
    assert run(late, plan).network_bytes["pp"] == 4 * 2 * 3 * stream


def test_tensor_ranks_gather_neighbours_as_they_gather_the_stream():
    plan = PLAN.with_(tp=4, global_batch=1)
    gathered = {
        one.payload_bytes
        for task in sequences(build_step(SMALL, plan))
        for one, _ in task.operator.items
        if isinstance(one, Collective) and one.name == "retrieval.source" and one.kind == "all_gather"
    }
    stream = 2 * plan.share.tokens * SMALL.hidden / 4
    neighbours = 2 * plan.share.tokens * READS.tokens_per_token * READS.hidden / 4
    assert gathered == {stream, neighbours}


def test_reading_keeps_activations_where_it_is_done():
    plan = PLAN.with_(pp=2, global_batch=2, schedule=schedules.GPIPE)
    plain = [memory_by_kind(replace(SMALL, retrieval=None), plan, stage)["activations"] for stage in (0, 1)]
    with_it = [memory_by_kind(SMALL, plan, stage)["activations"] for stage in (0, 1)]
    assert plain[0] == plain[1]
    assert with_it[0] > with_it[1] > plain[1]
    spared = memory_by_kind(SMALL, plan.with_(recompute=Recompute.FULL), 1)["activations"]
    neighbours = 2 * plan.share.tokens * READS.tokens_per_token * READS.hidden
    layers = 4 * 2 * plan.share.tokens * SMALL.hidden
    assert spared == 2 * (layers + neighbours)


def test_reading_adds_to_its_stage_only():
    plan = PLAN.with_(pp=2, global_batch=2)
    first, second = (stage_chunks(SMALL, plan, stage)[0] for stage in (0, 1))
    assert (first.retrieving, second.retrieving) == (2, 2)
    difference = part_parameters(SMALL, plan, first).total - part_parameters(SMALL, plan, second).total
    assert difference == SMALL.encoder_parameters - SMALL.norm_parameters
    assert forward_layer(SMALL, plan.share) == forward_layer(replace(SMALL, retrieval=None), plan.share)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cp=2", "has relative positions; use tensor_grid=1d and cp=1"),
        ("tp=8", r"tensor \(8\) must divide encoder heads \(4\)"),
        ("sequence=72", r"sequence_length \(72\) must be whole chunks of 16"),
        ("weight_sparsity=2:4", "sparse weights with retrieval are not modelled"),
    ],
)
def test_impossible_plan_is_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(SMALL, parse_plan(text, base=PLAN))


def test_impossible_shape_is_refused():
    with pytest.raises(WorkloadError, match="chunk must be a whole number of at least 1"):
        Retrieval(chunk=0)
    with pytest.raises(WorkloadError, match=r"crossings \(3\) must be at most layers \(2\)"):
        Retrieval(crossings=3)
    with pytest.raises(WorkloadError, match="retrieval begins in block 9 of 8"):
        replace(SMALL, retrieval=replace(READS, first=9))
