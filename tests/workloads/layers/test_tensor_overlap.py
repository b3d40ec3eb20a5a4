"""Tensor-parallel traffic beside the products it feeds, measured in the engine."""

from dataclasses import dataclass

import pytest

from simulator.engine.simulation import Simulation
from simulator.errors import WorkloadError
from simulator.interfaces import Bound, Cost
from simulator.layout import RankLayout
from simulator.node import Node
from simulator.operators import (
    Collective,
    CollectiveKind,
    Elementwise,
    MatMul,
    Overlapped,
    Phase,
    Sequence,
    StepGraph,
    Task,
    total_flops,
)
from tests.builders import collective
from tests.workloads.ideal import EVEN, NODE, PLAN, RATE, Star, run, sent, sequences
from workloads.pipeline import schedules
from workloads.plan.parts import Recompute
from workloads.plan.plan import parse_plan
from workloads.plan.rules import check
from workloads.step.sharding import StagePart
from workloads.step.stage import Pass, Passes
from workloads.step.step import build_step

TENSOR = PLAN.with_(tp=4, global_batch=2)
RANKS = 4
PIECE = MatMul(name="p", phase=Phase.FORWARD, batch=1, m=100, k=100, n=100)
PIECE_S = PIECE.flops / RATE
PAYLOAD = 1e6


def gathered(pieces, alone):
    whole = collective(CollectiveKind.ALL_GATHER, RANKS, PAYLOAD, axis="tp", algorithm="ring")
    return Overlapped(product=PIECE, pieces=pieces, alone=alone, collective=whole)


def took(item, port, *, fuse=True, repeat=3, beside=()):
    run_of = Sequence(name="f", phase=Phase.FORWARD, items=((item, repeat),))
    tasks = (Task(id=0, rank_class=0, operator=run_of), *beside)
    graph = StepGraph(tasks=tasks, layout=RankLayout(tp=RANKS), tokens=1)
    trace = Simulation(graph, NODE, Star(endpoints=RANKS, port=port), fuse=fuse).run()
    return trace.makespan_s / repeat


@pytest.mark.parametrize("ratio", [1e-9, 0.3, 0.75, 1.0, 1.4, 5.0, 1e6])
@pytest.mark.parametrize(("pieces", "alone"), [(1, 1), (1, 0), (4, 1), (8, 1), (4, 4)])
def test_time_is_the_first_piece_and_the_longer_of_the_rest(pieces, alone, ratio):
    """Wang et al., ASPLOS 2023, section 5.1: what the product's other pieces do not cover stays exposed."""
    wire_s = ratio * PIECE_S * pieces
    port = (RANKS - 1) * PAYLOAD / wire_s
    found = took(gathered(pieces, alone), port)
    assert found == pytest.approx(PIECE_S * alone + max(PIECE_S * (pieces - alone), wire_s))
    assert max(PIECE_S * pieces, wire_s) <= found * (1 + 1e-12)
    assert found <= (PIECE_S * pieces + wire_s) * (1 + 1e-12)
    assert took(gathered(pieces, alone), port, fuse=False) == pytest.approx(found)


def test_one_piece_is_serial_a_fast_network_is_free_and_a_slow_one_is_all():
    port = (RANKS - 1) * PAYLOAD / PIECE_S
    assert took(gathered(1, 1), port) == pytest.approx(2 * PIECE_S)
    assert took(gathered(RANKS, 1), 1e30) == pytest.approx(RANKS * PIECE_S)
    assert took(gathered(RANKS, 1), port * 1e-6) == pytest.approx(1e6 * PIECE_S, rel=1e-5)


def test_shared_links_slow_the_ring_and_the_product_waits():
    """Another collective on the same ports halves the ring's rate: max-min fair sharing, not a factor."""
    port = (RANKS - 1) * PAYLOAD / (3 * PIECE_S)
    alone_s = took(gathered(4, 1), port, repeat=1)
    other = collective(
        CollectiveKind.ALL_GATHER,
        RANKS,
        100 * PAYLOAD,
        phase=Phase.GRAD_WEIGHT,
        name="other",
        algorithm="ring",
    )
    tasks = (
        Task(
            id=0, rank_class=0, operator=Sequence(name="f", phase=Phase.FORWARD, items=((gathered(4, 1), 1),))
        ),
        Task(id=1, rank_class=0, operator=other),
    )
    graph = StepGraph(tasks=tasks, layout=RankLayout(tp=RANKS, dp=RANKS), tokens=1)
    for fuse in (True, False):
        star = Star(endpoints=RANKS * RANKS, port=port)
        trace = Simulation(graph, NODE, star, fuse=fuse).run()
        (span,) = [one for one in trace.spans if one.name == "f"]
        assert alone_s == pytest.approx(4 * PIECE_S)
        assert span.end_s == pytest.approx(PIECE_S * (1 + 6))
        assert sum(span.parts_s.values()) == pytest.approx(span.end_s - span.start_s)


def test_counts_that_make_no_sense_are_refused():
    with pytest.raises(WorkloadError, match=r"alone \(3\) must be from 0 to pieces \(2\)"):
        gathered(2, 3)


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
def test_overlap_moves_the_same_bytes_and_does_the_same_work(recompute):
    plain = TENSOR.with_(recompute=recompute)
    beside = plain.with_(overlap_tensor=True)
    assert sent(EVEN, beside, "tp") == pytest.approx(sent(EVEN, plain, "tp"), rel=1e-12)
    # The ideal unit counts products only; the sums of what a ring brings are other work.
    work = [
        sum(
            total_flops(one) * count
            for t in sequences(build_step(EVEN, plan))
            for one, count in t.operator.items
            if not isinstance(one, Elementwise)
        )
        for plan in (plain, beside)
    ]
    assert work[0] == work[1]


def test_every_collective_of_a_dense_block_travels_beside_a_product():
    """Transformer Engine: gathers before, scatters after a product, and one beside a weight gradient."""
    passes = Passes(EVEN, TENSOR.share, overlap_tensor=True)
    part = StagePart(layers=1)
    for direction, whole in ((Pass.FORWARD, 0), (Pass.BACKWARD, 2), (Pass.INPUT, 0)):
        items = [one for one, _ in passes.operators(part, direction)]
        pairs = [one for one in items if isinstance(one, Overlapped)]
        assert not [one for one in items if isinstance(one, Collective)]
        assert len(pairs) == 4
        assert len([one for one in pairs if one.alone == 0]) == whole


def test_step_lies_between_compute_alone_and_the_serial_step():
    slow = 2e9
    plain = run(EVEN, TENSOR, port=slow).makespan_s
    beside = run(EVEN, TENSOR.with_(overlap_tensor=True), port=slow).makespan_s
    compute = run(EVEN, TENSOR).makespan_s
    assert compute < beside < plain
    assert run(EVEN, TENSOR.with_(overlap_tensor=True)).makespan_s == pytest.approx(compute)


def test_split_backward_passes_overlap_too():
    plan = TENSOR.with_(pp=2, global_batch=8, schedule=schedules.ZERO_BUBBLE)
    slow = 2e9
    assert (
        run(EVEN, plan.with_(overlap_tensor=True), port=slow).makespan_s
        < run(EVEN, plan, port=slow).makespan_s
    )


@dataclass(frozen=True, kw_only=True)
class Starting:
    """A unit that takes a second for every product, whatever its size."""

    name: str = "starting"
    static_w: float = 0.0

    def accepts(self, operator):
        return True

    def cost(self, operator):
        return Cost(time_s=float(isinstance(operator, MatMul)), bound=Bound.COMPUTE)

    def numerics(self, phase):
        raise NotImplementedError


def test_small_pieces_cost_what_the_unit_takes_for_their_shape():
    node = Node(name="n", units=(Starting(),), memory=NODE.memory, peak_flop_per_s=RATE)
    times = []
    for plan in (TENSOR, TENSOR.with_(overlap_tensor=True)):
        graph = build_step(EVEN, plan)
        times.append(Simulation(graph, node, Star(endpoints=plan.axes.ranks)).run().makespan_s)
    # Six of a block's eighteen products are cut into tp pieces, forward and backward.
    cut = 6 * (TENSOR.axes.tp - 1) * EVEN.layers * TENSOR.batch.global_batch
    assert times[1] - times[0] == pytest.approx(cut)


def test_off_is_the_default_and_changes_nothing():
    assert not PLAN.traffic.overlap_tensor
    work = [step.operator for step in build_step(EVEN, TENSOR).tasks if isinstance(step.operator, Sequence)]
    assert not any(isinstance(one, Overlapped) for each in work for one, _ in each.items)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("overlap_tensor=true", r"overlap_tensor needs tensor ranks to talk to \(tp is 1\)"),
        ("overlap_tensor=true,tp=2,sequence_parallel=false", "set sequence_parallel=true"),
    ],
)
def test_impossible_overlap_is_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(EVEN, parse_plan(text, base=PLAN))
