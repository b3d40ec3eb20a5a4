"""ZB-H2 and the folded schedules: their bubbles and activations, timed on ideal stages and in the engine."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.simulation import Simulation
from simulator.errors import WorkloadError
from simulator.operators import Collective, CollectiveKind
from simulator.results import steady
from tests.workloads.ideal import EVEN, NODE, PLAN, Star, ideal_s, product_flops, run
from workloads.pipeline import schedules
from workloads.pipeline.schedule import Pass, PassTimes, peak_kept, play
from workloads.plan.plan import Plan, parse_plan
from workloads.plan.rules import check
from workloads.step.memory import memory_by_kind
from workloads.step.step import build_step

FOLDED = [schedules.ZB_V, schedules.V_HALF, schedules.V_MIN]
EQUAL = PassTimes()
# No attention to speak of, so that the three parts of a pass are equal.
FLAT = replace(EVEN, heads=1, kv_heads=1, head_dim=1)


def pipeline(kind, stages, microbatches):
    return Plan.of(pp=stages, global_batch=microbatches, schedule=kind).pipeline


def bubble(kind, stages, microbatches):
    """Return the idle time of a step in the steady state, in forward passes of a stage."""
    ends = [
        max(one.end for one in play(pipeline(kind, stages, microbatches), EQUAL, steps=steps))
        for steps in (2, 3)
    ]
    return ends[1] - ends[0] - 3 * microbatches


def kept(kind, stages, microbatches):
    """Return the most microbatches that any stage keeps, in those of all its blocks."""
    return max(peak_kept(pipeline(kind, stages, microbatches)))


@given(stages=st.integers(1, 7), extra=st.integers(0, 8), kind=st.sampled_from([*FOLDED, schedules.ZB_H2]))
def test_every_pass_runs_once_and_nothing_deadlocks(stages, extra, kind):
    microbatches = 2 * stages - 1 + extra
    way = pipeline(kind, stages, microbatches)
    for slots in kind.passes(stages, microbatches):
        assert Counter(slot.direction for slot in slots) == dict.fromkeys(
            (Pass.FORWARD, Pass.INPUT, Pass.WEIGHT), microbatches * way.chunks
        )
        assert len(set(slots)) == len(slots)
    assert len(play(way, EQUAL)) == 3 * stages * microbatches * way.chunks


@pytest.mark.parametrize("stages", [2, 3, 4, 6, 8, 11, 16])
def test_zb_h2_has_no_bubble_at_twice_the_memory(stages):
    """No bubble, 2p - 1 microbatches (arXiv:2401.10241, section 3.2 and table 2)."""
    microbatches = 3 * stages
    assert bubble(schedules.ZB_H2, stages, microbatches) == pytest.approx(0.0, abs=1e-9)
    assert kept(schedules.ZB_H2, stages, microbatches) == 2 * stages - 1


@pytest.mark.parametrize("stages", [2, 3, 4, 6, 8, 11, 16])
def test_zb_v_has_no_bubble_at_the_memory_of_1f1b(stages):
    """No bubble, p microbatches as on the first stage of 1F1B (arXiv:2401.10241, section 6)."""
    microbatches = 2 * stages - 1
    assert bubble(schedules.ZB_V, stages, microbatches) == pytest.approx(0.0, abs=1e-9)
    assert bubble(schedules.ONE_FORWARD_ONE_BACKWARD, stages, microbatches) == 3 * (stages - 1)
    assert kept(schedules.ZB_V, stages, microbatches) == stages


@pytest.mark.parametrize("stages", [2, 3, 4, 5, 6, 8, 9, 12, 16])
def test_v_half_has_half_the_bubble_at_half_the_memory(stages):
    """B/2 at half of p microbatches, and one more (arXiv:2405.15362, table 1)."""
    found = bubble(schedules.V_HALF, stages, 2 * stages)
    whole = 3 * (stages - 1)
    assert whole / 2 - 1 <= found <= whole / 2
    assert kept(schedules.V_HALF, stages, 2 * stages) == stages // 2 + 1


@pytest.mark.parametrize("stages", [2, 3, 4, 5, 6, 8, 9, 12, 16])
def test_v_min_has_two_thirds_of_the_bubble_at_a_third_of_the_memory(stages):
    """2 B/3 at a third of p microbatches, and less than two more (arXiv:2405.15362, table 1)."""
    found = bubble(schedules.V_MIN, stages, 2 * stages)
    whole = 3 * (stages - 1)
    assert 2 * whole / 3 - 1 <= found <= 2 * whole / 3
    assert kept(schedules.V_MIN, stages, 2 * stages) == -(-(stages + 2) // 3) < stages / 3 + 2


def engine_bubble(kind, stages, microbatches):
    plan = PLAN.with_(pp=stages, global_batch=microbatches, sequence_length=8, schedule=kind, steps=3, zero=0)
    graph = build_step(FLAT, plan)
    trace = Simulation(graph, NODE, Star(endpoints=plan.axes.ranks)).run()
    return (steady(trace, graph).step_time_s / ideal_s(FLAT, plan) - 1) * microbatches / (stages - 1)


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        (schedules.ONE_FORWARD_ONE_BACKWARD, 1),
        (schedules.ZERO_BUBBLE, 1 / 3),
        (schedules.ZB_H2, 0),
        (schedules.ZB_V, 0),
        (schedules.V_HALF, 1 / 2),
        (schedules.V_MIN, 2 / 3),
    ],
)
def test_engine_finds_the_bubbles_of_the_papers(kind, share):
    """B/3 at 1x, 0 at 2x, 0 at 1x, B/2 at half, 2 B/3 at a third (arXiv:2401.10241, arXiv:2405.15362)."""
    found = engine_bubble(kind, 8, 16)
    assert share - 0.06 < found < share + 0.01


def test_two_chunks_send_twice_as_much_between_stages():
    """ZB-V doubles the traffic between stages (arXiv:2401.10241, section 6), but not at the turn."""
    plan = PLAN.with_(pp=4)
    plain = run(EVEN, plan).network_bytes["pp"]
    for kind in FOLDED:
        assert run(EVEN, plan.with_(schedule=kind)).network_bytes["pp"] == 2 * plain


def test_folded_pipelines_lose_no_work_and_tie_their_ends_on_the_first_stage():
    config = replace(EVEN, vocabulary=512, layers=13, tied_embeddings=True)
    for kind in FOLDED:
        for zero in (0, 1, 2, 3):
            plan = PLAN.with_(pp=3, dp=2, tp=2, schedule=kind, zero=zero)
            step = build_step(config, plan)
            assert product_flops(step) == step.model_flops
        plan = PLAN.with_(pp=3, schedule=kind)
        weights = [memory_by_kind(config, plan, stage)["weights"] for stage in range(3)]
        assert sum(weights) == 2 * config.parameters


@given(stages=st.integers(1, 40), more=st.integers(0, 90), behind=st.integers(0, 1), ends=st.booleans())
def test_folded_stages_hold_as_many_blocks_as_each_other(stages, more, behind, ends):
    """GPT-3's 96 blocks on 32 stages are three each; shared over chunks as over a line the turn held four."""
    layers = 2 * stages + more
    schedule = Plan.of(pp=stages, schedule=schedules.ZB_V, embedding_as_layers=ends).schedule
    chunks = schedule.blocks(layers, 2 * stages, behind)
    assert sum(chunks) == layers + behind
    assert min(chunks) >= (0 if ends or behind else 1)
    held = [down + up for down, up in zip(chunks[:stages], chunks[: stages - 1 : -1], strict=True)]
    assert stages == 1 or held[0] <= max(held[1:]) + behind
    assert stages < 3 or max(held[1:]) - min(held[1:]) <= 1


@pytest.mark.parametrize(
    ("kind", "share"), [(schedules.ZB_V, 1), (schedules.V_HALF, 5 / 8), (schedules.V_MIN, 4 / 8)]
)
def test_memory_follows_the_schedule(kind, share):
    plan = PLAN.with_(pp=8, global_batch=32)
    whole = memory_by_kind(EVEN, plan, 0)["activations"]
    folded = [memory_by_kind(EVEN, plan.with_(schedule=kind), stage)["activations"] for stage in range(8)]
    assert max(folded) == pytest.approx(share * whole)
    twice = memory_by_kind(EVEN, plan.with_(schedule=schedules.ZB_H2), 3)["activations"]
    assert twice == pytest.approx(15 / 8 * whole)


def test_a_stage_sends_to_itself_at_the_turns():
    step = build_step(EVEN, PLAN.with_(pp=4, schedule=schedules.ZB_V))
    sends = [t for t in step.tasks if isinstance(t.operator, Collective)]
    assert {t.operator.kind for t in sends} == {CollectiveKind.SEND}
    assert {t.operator.shift for t in sends} == {1, -1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "schedule=zb_v,pp=8,global_batch=14",
            r"microbatches \(14\) must be at least twice the stages \(8\)",
        ),
        ("schedule=v_min,pp=16", r"pipeline \(16\) must be at most half of layers \(16\).*try 8 or fewer"),
        ("schedule=v_half,pp=2,vpp=2", "needs schedule=1f1b, not v_half"),
    ],
)
def test_impossible_fold_is_refused(text, message):
    with pytest.raises(WorkloadError, match=message):
        check(EVEN, parse_plan(text, base=PLAN))


@pytest.mark.parametrize("part", ["forward", "inputs", "weights"])
def test_a_longer_pass_makes_a_longer_step(part):
    way = pipeline(schedules.ZB_V, 4, 8)
    ends = [max(one.end for one in play(way, PassTimes(**{part: length}))) for length in (1.0, 1.5)]
    assert ends[1] > ends[0]
    with pytest.raises(WorkloadError, match=rf"\({part}\) must be above zero"):
        PassTimes(**{part: 0.0})
