"""Pipeline orders: every pass once, dependencies kept, memory bounded, the bubble of the textbook."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import WorkloadError
from workloads.pipeline import schedules
from workloads.pipeline.schedule import Pass
from workloads.pipeline.schedules import gpipe, one_forward_one_backward


def play(order, forward_s=1.0, backward_s=2.0):
    """Return the finish time of the whole step, each stage running its slots strictly in order."""
    stages = len(order)
    finished = {}
    free = [0.0] * stages
    place = [0] * stages
    moved = True
    while moved:
        moved = False
        for stage in range(stages):
            while place[stage] < len(order[stage]):
                slot = order[stage][place[stage]]
                forward = slot.direction is Pass.FORWARD
                needs = []
                if forward and stage > 0:
                    needs.append((stage - 1, slot.microbatch, Pass.FORWARD))
                if not forward:
                    needs.append((stage, slot.microbatch, Pass.FORWARD))
                    if stage < stages - 1:
                        needs.append((stage + 1, slot.microbatch, Pass.BACKWARD))
                if any(need not in finished for need in needs):
                    break
                start = max([free[stage], *(finished[need] for need in needs)])
                free[stage] = start + (forward_s if forward else backward_s)
                finished[stage, slot.microbatch, slot.direction] = free[stage]
                place[stage] += 1
                moved = True
    assert place == [len(slots) for slots in order], "the order deadlocks"
    return max(free)


sizes = {"stages": st.integers(1, 8), "microbatches": st.integers(1, 12)}
kinds = st.sampled_from([schedules.ONE_FORWARD_ONE_BACKWARD, schedules.GPIPE])


@given(**sizes, kind=kinds)
def test_every_stage_runs_every_pass_once(stages, microbatches, kind):
    for slots in kind.passes(stages, microbatches):
        assert len(slots) == len(set(slots)) == 2 * microbatches


@given(**sizes, kind=kinds)
def test_backward_comes_after_forward_and_nothing_deadlocks(stages, microbatches, kind):
    order = kind.passes(stages, microbatches)
    for slots in order:
        seen = set()
        for slot in slots:
            assert slot.direction is Pass.FORWARD or slot.microbatch in seen
            seen.add(slot.microbatch)
    play(order)


@given(**sizes, kind=kinds)
def test_microbatches_kept_are_those_promised(stages, microbatches, kind):
    for stage, slots in enumerate(kind.passes(stages, microbatches)):
        kept = most = 0
        for slot in slots:
            kept += 1 if slot.direction is Pass.FORWARD else -1
            most = max(most, kept)
        assert most == kind.most_in_flight(stages, microbatches, stage)
        assert kept == 0


def test_first_stage_of_1f1b_keeps_at_most_as_many_microbatches_as_stages():
    assert schedules.ONE_FORWARD_ONE_BACKWARD.most_in_flight(4, 64, 0) == 4
    assert schedules.GPIPE.most_in_flight(4, 64, 0) == 64


@given(
    stages=st.integers(1, 8),
    extra=st.integers(0, 8),
    build=st.sampled_from([gpipe, one_forward_one_backward]),
)
def test_bubble_is_p_minus_1_over_m(stages, extra, build):
    microbatches = stages + extra
    ideal = 3.0 * microbatches
    assert play(build(stages, microbatches)) / ideal - 1 == pytest.approx((stages - 1) / microbatches)


def test_schedule_of_nothing_is_refused():
    with pytest.raises(WorkloadError, match="stages must be at least 1; got 0"):
        schedules.GPIPE.passes(0, 4)
    with pytest.raises(WorkloadError, match="microbatches must be at least 1; got 0"):
        schedules.ONE_FORWARD_ONE_BACKWARD.passes(4, 0)
