"""Optimus (2D) and Tesseract (2.5D) tensor parallelism, measured in the engine and in the graph."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from simulator.engine.simulation import Simulation
from simulator.errors import WorkloadError
from simulator.interfaces import LinkGraph
from simulator.layout import RankLayout
from simulator.operators import Collective, MatMul
from tests.builders import in_a_block
from tests.workloads.ideal import EVEN, NODE, PLAN, Star, ideal_s, product_flops, run, sequences
from workloads.models.architecture import Norm, Positions
from workloads.models.config import load_model
from workloads.pipeline import schedules
from workloads.plan.parts import Attention, Optimizer, Precision, Recompute, TensorGrid
from workloads.plan.plan import parse_plan
from workloads.plan.rules import check
from workloads.step.memory import memory_by_kind
from workloads.step.sharding import layer_parameters, moment_bytes
from workloads.step.step import build_step

# Every side and depth below divides it.
GRID = replace(EVEN, layers=2, vocabulary=64, hidden=64, heads=8, kv_heads=8, head_dim=8, ffn_hidden=256)
SHAPES = [(2, 1), (4, 1), (2, 2), (2, 4), (4, 2), (8, 1)]


def grid(q, d=1, **changes):
    kind = TensorGrid.SQUARE if d == 1 else TensorGrid.SQUARES
    batch = {"micro_batch": 16, "global_batch": 16, "vocabulary_multiple": 1}
    return PLAN.with_(tp=q * q * d, tensor_grid=kind, tensor_depth=d, **(batch | changes))


def line(p, **changes):
    return PLAN.with_(tp=p, **({"micro_batch": 16, "global_batch": 16} | changes))


def block_items(config, plan, axes=("tp_row", "tp_column")):
    """Return the collectives of one block's products on these axes, with how often each is run a block."""
    found = []
    for task in sequences(build_step(config, plan)):
        for one, count in task.operator.items:
            if isinstance(one, Collective) and in_a_block(one) and one.axis in axes:
                if not one.name.endswith(".norm"):
                    found.append((one, count / config.layers))
    return found


def wire_bytes(config, plan):
    """Return the bytes of one block's products that a rank sends, by kind of operand."""
    q = plan.axes.columns
    moved = {"tp_row": 0.0, "tp_column": 0.0}
    for one, count in block_items(config, plan):
        moved[one.axis] += one.payload_bytes * (q - 1) / q * count
    return moved


def test_groups_are_rows_columns_and_depths_of_the_squares():
    layout = RankLayout(tp=18, dp=2, side=3)
    rows, columns, depths = (layout.groups(axis, 0) for axis in ("tp_row", "tp_column", "tp_depth"))
    assert rows[0].tolist() == [0, 1, 2]
    assert columns[0].tolist() == [0, 3, 6]
    assert depths[0].tolist() == [0, 9]
    for groups in (rows, columns, depths):
        assert sorted(groups.ravel().tolist()) == list(range(36))
    with pytest.raises(WorkloadError, match=r"tp \(6\) must be whole squares of 2 x 2"):
        RankLayout(tp=6, side=2)


@pytest.mark.parametrize(("q", "d"), SHAPES)
def test_each_rank_computes_one_part_in_q_squared_d(q, d):
    """Compute O(1/q^2) in 2D and O(1/(d q^2)) in 2.5D (Colossal-AI, "2D" and "2.5D tensor parallelism")."""
    plan = grid(q, d)
    step = build_step(GRID, plan)
    assert product_flops(step) == step.model_flops
    assert run(GRID, plan).makespan_s == pytest.approx(ideal_s(GRID, plan), rel=1e-9)


@pytest.mark.parametrize(("q", "d"), SHAPES)
def test_parameters_are_cut_by_q_squared_and_activations_by_d_as_well(q, d):
    """Parameters 1/q^2, activations 1/(d q^2) (arXiv:2104.05343 and 2105.14500, section 3; Colossal-AI)."""
    plan = grid(q, d)
    matrices = GRID.attention_matrices + GRID.expert_matrices
    vectors = GRID.layer_parameters - matrices
    assert layer_parameters(GRID, plan.axes, plan.precision).total == matrices // q**2 + vectors // q
    alone = memory_by_kind(GRID, line(1, recompute=Recompute.NONE), 0)
    cut = memory_by_kind(GRID, plan, 0)
    assert cut["activations"] == pytest.approx(alone["activations"] / (q * q * d), rel=1e-12)
    for kind in ("weights", "gradients", "optimizer"):
        assert alone[kind] / q**2 <= cut[kind] < 1.2 * alone[kind] / q**2


def test_a_line_without_sequence_parallelism_keeps_whole_what_squares_cut():
    """arXiv:2104.05343, section 3.1.2: what every rank of a line holds whole bounds its memory."""
    whole = memory_by_kind(GRID, line(8, sequence_parallel=False), 0)["activations"]
    assert whole > 1.5 * memory_by_kind(GRID, grid(2, 2), 0)["activations"]


@pytest.mark.parametrize(("q", "d"), SHAPES)
def test_bandwidth_is_that_of_the_published_table(q, d):
    """6 (q-1)/q in 2D, 3 (q-1)(d+1)/(d q) in 2.5D, of the blocks in one row or column (Colossal-AI).

    A product passes each operand three times: forward, for the input's and for the weight's gradient. A unit
    is what a row (or column) of one square holds of an operand.
    """
    plan = grid(q, d)
    width = plan.precision.element_bytes
    tokens, hidden = plan.share.tokens, GRID.hidden
    # 7 b s h of activations and 12 h^2 of weights a block (arXiv:2104.05343, section 3.1.1).
    activations, weights = 7 * tokens * hidden * width / q, 12 * hidden * hidden * width / q
    moved = wire_bytes(GRID, plan)
    assert moved["tp_row"] == pytest.approx(3 * (q - 1) / (d * q) * activations, rel=1e-12)
    assert moved["tp_column"] == pytest.approx(3 * (q - 1) / q * weights, rel=1e-12)
    both = moved["tp_row"] / activations + moved["tp_column"] / weights
    assert both == pytest.approx(3 * (q - 1) * (d + 1) / (d * q), rel=1e-12)


@pytest.mark.parametrize("q", [2, 4])
def test_the_engine_puts_these_bytes_on_the_wire(q):
    plan = grid(q)
    sent = run(GRID, plan).network_bytes
    statistics = 4 * 2 * 2 * (plan.share.tokens // q) * 4 * 2 * (q - 1) / q * GRID.layers
    # The head's norm and product, and the embedding's table, are not a block's.
    ends = [
        (one, count)
        for task in sequences(build_step(GRID, plan))
        for one, count in task.operator.items
        if isinstance(one, Collective) and not in_a_block(one)
    ]
    apart = {"tp_row": 0.0, "tp_column": 0.0}
    for one, count in ends:
        factor = 2 if one.kind == "all_reduce" else 1
        apart[one.axis] += one.payload_bytes * count * factor * (q - 1) / q
    for axis, moved in wire_bytes(GRID, plan).items():
        extra = statistics / 2 if axis == "tp_row" else 0.0
        expected = moved * GRID.layers + apart[axis] + extra
        assert sent[axis] / plan.axes.ranks == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("q", [2, 4])
def test_time_on_a_slow_network_is_at_most_that_of_the_paper(q):
    """Forward log p / (2 sqrt p) (7 b s h + 12 h^2), backward twice without recomputation.

    arXiv:2104.05343, section 3.1.1, with trees; for four or more in a row a pipelined ring is faster still.
    """
    plan = grid(q)
    port = 1.0
    took = run(GRID, plan, port=port).makespan_s
    whole = (7 * plan.share.tokens * GRID.hidden + 12 * GRID.hidden**2) * plan.precision.element_bytes
    formula = 3 * math.log2(q * q) / (2 * q) * whole / port * GRID.layers
    least = 3 * (q - 1) / q**2 * whole / port * GRID.layers
    assert least < took
    assert took <= formula * (1.1 if q == 2 else 1.0)


@dataclass(frozen=True, kw_only=True)
class Slow(Star):
    """A star on which every transfer takes a second, whatever its size."""

    def graph(self, circuits):
        capacity = np.full(2 * self.endpoints, self.port)
        latency = np.where(np.arange(capacity.size) < self.endpoints, 1.0, 0.0)
        return LinkGraph(capacity_bytes_per_s=capacity, latency_s=latency)


@pytest.mark.parametrize("q", [2, 4])
def test_latency_is_six_transfers_a_step_of_fewer_than_q_hops(q):
    """Latency O(6 (q-1)) (Colossal-AI): six broadcasts or reductions a product, each within q - 1 hops.

    Steps wait for each other here, so that a product's q steps take q times that.
    """
    plan = grid(q)
    times = {}
    for layers in (1, 2):
        graph = build_step(replace(GRID, layers=layers), plan)
        times[layers] = Simulation(graph, NODE, Slow(endpoints=plan.axes.ranks)).run().makespan_s
    statistics = 2 * 2 * 2 * math.log2(q)
    hops = times[2] - times[1] - statistics
    assert hops == pytest.approx(4 * 6 * q * math.log2(q), rel=1e-4)
    assert hops <= 4 * 6 * (q - 1) * q * (1 + 1e-4)


def test_a_square_moves_less_than_a_line_of_many_and_more_than_a_line_of_few():
    """arXiv:2104.05343, section 3.1.1: 8 (p-1)/p b s h a block for Megatron-LM, falling as 1/sqrt(p) here."""
    config = replace(GRID, layers=16, hidden=256, heads=64, kv_heads=64, head_dim=4, ffn_hidden=1024)

    def moved(plan):
        sent = run(config, plan).network_bytes
        return sum(sent[axis] for axis in sent if axis.startswith("tp")) / plan.axes.ranks

    shape = {"micro_batch": 8, "global_batch": 8}
    few = moved(grid(2, **shape)) / moved(line(4, **shape))
    many = moved(grid(8, **shape)) / moved(line(64, **shape))
    assert few > 1 > many
    stream = 2 * 8 * 64 * 256
    assert moved(line(64, **shape)) == pytest.approx(8 * 63 / 64 * stream * config.layers, rel=0.05)


def test_depth_sums_gradients_from_square_to_square():
    """arXiv:2105.14500, section 3.2.1: B's gradient is all-reduced over the d squares that hold B."""
    plan = grid(2, 4)
    summed = [one for one, _ in block_items(GRID, plan, axes=("tp_depth",))]
    assert (
        sum(one.payload_bytes for one in summed) == 2 * (GRID.attention_matrices + GRID.expert_matrices) / 4
    )
    sent = run(GRID, plan).network_bytes["tp_depth"] / plan.axes.ranks
    assert sent >= GRID.layers * sum(one.payload_bytes for one in summed) * 2 * 3 / 4
    assert "tp_depth" not in run(GRID, grid(4)).network_bytes


@pytest.mark.parametrize(("norm", "sums"), [(Norm.LAYER, 2), (Norm.RMS, 1)])
def test_norms_sum_their_statistics_along_a_row(norm, sums):
    """arXiv:2104.05343, section 3.2.2: X and X^2 are all-reduced along rows, and two sums more backward."""
    plan = grid(4)
    found = [
        one
        for task in sequences(build_step(replace(GRID, norm=norm), plan))
        for one, _ in task.operator.items
        if isinstance(one, Collective) and in_a_block(one) and one.name.endswith(".norm")
    ]
    assert {(one.axis, one.kind, one.payload_bytes) for one in found} == {
        ("tp_row", "all_reduce", 4.0 * sums * plan.share.tokens / 4)
    }
    assert len(found) == 4


def test_attention_has_heads_by_column_and_sequences_by_row():
    """arXiv:2104.05343, section 3.2.1: a rank's attention needs no other rank."""
    plan = grid(4, 2)
    scores = {
        (one.batch, one.m, one.k, one.n)
        for task in sequences(build_step(GRID, plan))
        for one, _ in task.operator.items
        if isinstance(one, MatMul) and one.name == "attention.scores" and one.phase == "forward"
    }
    assert scores == {(16 // 8 * 8 // 4, 64, 8, 64)}


@pytest.mark.parametrize(
    "changes",
    [
        {"pp": 2, "global_batch": 64},
        {"dp": 2, "global_batch": 32, "zero": 3},
        {"recompute": Recompute.FULL},
        {"precision": Precision.FP8},
        {"pp": 2, "global_batch": 64, "schedule": schedules.ZERO_BUBBLE},
        {"attention": Attention.FLASH},
    ],
)
def test_a_grid_goes_with_other_parallelism(changes):
    config = replace(GRID, gated=True, kv_heads=4, vocabulary=512, positions=Positions.ROTARY, norm=Norm.RMS)
    plan = grid(2, 2, **changes)
    check(config, plan)
    trace = run(config, plan, port=1e12)
    assert trace.makespan_s > 0
    if changes.get("recompute") is None and "attention" not in changes:
        step = build_step(config, plan)
        assert product_flops(step) == step.model_flops
    for stage in range(plan.axes.pp):
        assert all(size >= 0 for size in memory_by_kind(config, plan, stage).values())


def test_work_and_factors_of_a_square_are_those_of_its_blocks():
    plan = grid(4, optimizer=Optimizer.ADAFACTOR)
    of_blocks = replace(GRID, hidden=16, heads=8, head_dim=2, kv_heads=8, ffn_hidden=64)
    alone = line(1, optimizer=Optimizer.ADAFACTOR)
    of_alone = moment_bytes(of_blocks, alone.axes, alone.precision)
    assert moment_bytes(GRID, plan.axes, plan.precision) == of_alone


def test_a_published_model_runs_on_a_square():
    config = load_model("gpt3-175b")
    plan = parse_plan("tp=64,tensor_grid=2d,micro_batch=8,global_batch=16,sequence=2048")
    short = replace(config, layers=2)
    trace = run(short, plan, port=1e11)
    assert trace.makespan_s > ideal_s(short, plan)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp=8,tensor_grid=2d", r"tensor \(8\) must be q x q x 1 with q of 2 or more for 2d; try 4, 9, 16"),
        ("tp=4,tensor_depth=2", "set tensor_grid=2.5d"),
        ("tp=4,tensor_grid=2.5d", "needs a tensor_depth of 2 or more"),
        (
            "tp=8,tensor_grid=2.5d,tensor_depth=2,micro_batch=2",
            r"micro_batch \(2\) must be a multiple of the 4",
        ),
        ("tp=9,tensor_grid=2d,micro_batch=3,global_batch=9", r"columns \(3\) must divide hidden \(64\)"),
        ("tp=4,tensor_grid=2d,sequence_parallel=false", "leave sequence_parallel true"),
        ("tp=4,tensor_grid=2d,overlap_tensor=true", "overlap_tensor is for a line"),
        ("tp=4,tensor_grid=2d,cp=2", r"context \(2\) must be 1 with tensor_grid=2d"),
        ("tp=4,tensor_grid=3d", "tensor_grid must be one of 1d, 2d, 2.5d"),
    ],
)
def test_impossible_grid_is_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(GRID, parse_plan(text, base=PLAN.with_(micro_batch=2)))


def test_experts_stay_on_a_line():
    plan = parse_plan("tp=4,tensor_grid=2d,micro_batch=2,global_batch=2,sequence=128")
    with pytest.raises(WorkloadError, match="has experts or latent attention; tensor_grid must be 1d"):
        check(load_model("mixtral-8x7b"), plan)
