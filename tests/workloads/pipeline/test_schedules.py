"""Laws of every pipeline schedule: every pass once, no deadlock, memory as stated, the textbook's bubble."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import WorkloadError
from tests.workloads.pipeline.eager import EAGER
from tests.workloads.pipeline.eager import order as eager_order
from workloads.pipeline import schedules
from workloads.pipeline.schedule import (
    SCHEDULES,
    Chain,
    InFlight,
    Pass,
    PassTimes,
    Pipeline,
    Schedule,
    most_kept,
    play,
    register_schedule,
    schedule_named,
)
from workloads.pipeline.schedules import gpipe, one_forward_one_backward

EVERY = [*SCHEDULES.values(), EAGER]
RELEASES = {Pass.BACKWARD, Pass.WEIGHT}
kinds = st.sampled_from(EVERY)
counts = {"stages": st.integers(1, 7), "extra": st.integers(0, 9)}


def sized(kind, stages, extra):
    """Return a pipeline of about so many stages and as many microbatches as the schedule needs, and more."""
    stages = -(-stages // kind.multiple) * kind.multiple
    microbatches = max(1, kind.least_microbatches.of(stages)) + extra
    return Pipeline(
        schedule=kind, stages=stages, microbatches=-(-microbatches // kind.multiple) * kind.multiple
    )


@given(kind=kinds, **counts)
def test_every_pass_runs_once(kind, stages, extra):
    pipeline = sized(kind, stages, extra)
    each = pipeline.microbatches * len(pipeline.chains[0]) // pipeline.stages
    for slots in pipeline.order():
        assert len(slots) == len(set(slots))
        passes = {
            direction: {(slot.microbatch, slot.chunk) for slot in slots if slot.direction is direction}
            for direction in Pass
        }
        assert len(passes[Pass.FORWARD]) == each
        assert passes[Pass.INPUT] == passes[Pass.WEIGHT]
        assert passes[Pass.BACKWARD] | passes[Pass.INPUT] == passes[Pass.FORWARD]
        assert not passes[Pass.BACKWARD] & passes[Pass.INPUT]


@given(kind=kinds, **counts)
def test_no_pass_waits_for_one_behind_it(kind, stages, extra):
    pipeline = sized(kind, stages, extra)
    played = play(pipeline, PassTimes())
    assert len(played) == sum(len(slots) for slots in pipeline.order())
    work = 3.0 * pipeline.microbatches
    assert work <= max(one.end for one in played) <= work * pipeline.stages + 1e-9


@given(kind=kinds, **counts)
def test_microbatches_kept_are_those_stated(kind, stages, extra):
    """What a schedule states is the most that its order keeps, stage by stage."""
    pipeline = sized(kind, stages, extra)
    if kind.chain is not Chain.LINE:
        assert kind.in_flight is InFlight.FROM_ORDER
        return
    # A pipeline that never empties is full only after as many microbatches as stages.
    many = pipeline.microbatches + (pipeline.stages if kind.flows else 0)
    for stage, slots in enumerate(kind.passes(pipeline.stages, many)):
        assert most_kept(slots, (1.0,)) == kind.in_flight(pipeline.stages, many, stage)
        released = sum(slot.direction in RELEASES for slot in slots)
        assert released == sum(slot.direction is Pass.FORWARD for slot in slots)


@pytest.mark.parametrize("kind", [one for one in EVERY if one.multiple == 1], ids=str)
def test_one_stage_is_never_idle(kind):
    played = play(Pipeline(schedule=kind, stages=1, microbatches=6), PassTimes())
    assert max(one.end for one in played) == pytest.approx(3.0 * 6)


def test_first_stage_of_1f1b_keeps_at_most_as_many_microbatches_as_stages():
    assert schedules.ONE_FORWARD_ONE_BACKWARD.in_flight(4, 64, 0) == 4
    assert schedules.GPIPE.in_flight(4, 64, 0) == 64


def test_memory_that_is_played_is_that_of_a_formula():
    for kind in (schedules.ONE_FORWARD_ONE_BACKWARD, schedules.ZERO_BUBBLE, EAGER):
        played = replace(kind, in_flight=InFlight.FROM_ORDER)
        for stage in range(4):
            pipelines = [Pipeline(schedule=one, stages=4, microbatches=9) for one in (kind, played)]
            assert pipelines[0].kept(stage, (2.5,)) == pipelines[1].kept(stage, (2.5,))


@given(
    stages=st.integers(1, 8),
    extra=st.integers(0, 8),
    build=st.sampled_from([gpipe, one_forward_one_backward]),
)
def test_bubble_is_p_minus_1_over_m(stages, extra, build):
    microbatches = stages + extra
    kind = Schedule(order=build, in_flight=InFlight.FROM_ORDER)
    pipeline = Pipeline(schedule=kind, stages=stages, microbatches=microbatches)
    ends = [one.end for one in play(pipeline, PassTimes(forward=1.0, inputs=1.0, weights=1.0))]
    assert max(ends) / (3.0 * microbatches) - 1 == pytest.approx((stages - 1) / microbatches)


def test_schedule_of_nothing_is_refused():
    with pytest.raises(WorkloadError, match="stages must be at least 1; got 0"):
        schedules.GPIPE.passes(0, 4)
    with pytest.raises(WorkloadError, match="microbatches must be at least 1; got 0"):
        schedules.ONE_FORWARD_ONE_BACKWARD.passes(4, 0)


@pytest.mark.parametrize(
    ("kind", "sizes", "message"),
    [
        (schedules.DUALPIPE, (3, 12), r"stages \(3\) must be even with dualpipe; try 4"),
        (schedules.DUALPIPE, (4, 6), r"at least twice the stages \(4\) microbatches; got 6, try 8"),
        (schedules.ZB_V, (4, 6), r"at least twice the stages \(4\) less one microbatches; got 6, try 7"),
        (schedules.GPIPE, (4, 8, 2), "gpipe has one order for a stage, and none for 2 chunks"),
    ],
)
def test_sizes_that_a_schedule_cannot_have_are_refused(kind, sizes, message):
    with pytest.raises(WorkloadError, match=message):
        kind.passes(*sizes)


def test_a_schedule_must_state_its_memory():
    with pytest.raises(TypeError, match="in_flight"):
        Schedule(order=eager_order)


@pytest.mark.parametrize(
    ("name", "schedule", "message"),
    [
        ("gpipe", EAGER, "the name 'gpipe' is taken; choose another"),
        ("interleaved", EAGER, "the name 'interleaved' is taken"),
        ("my own", EAGER, "without spaces, commas and equal signs; got 'my own'"),
        ("", EAGER, "without spaces"),
        ("mine", eager_order, "must be a Schedule with order and in_flight"),
    ],
)
def test_a_name_or_a_schedule_that_cannot_be_is_refused(name, schedule, message):
    before = list(SCHEDULES)
    with pytest.raises(WorkloadError, match=message):
        register_schedule(name, schedule)
    assert list(SCHEDULES) == before


def changed(**fields):
    return replace(EAGER, **fields)


def without_the_last(stages, microbatches):
    return tuple(slots[:-1] for slots in eager_order(stages, microbatches))


def the_last_twice(stages, microbatches):
    return tuple((*slots, slots[-1]) for slots in eager_order(stages, microbatches))


def the_last_first(stages, microbatches):
    return tuple((slots[-1], *slots[:-1]) for slots in eager_order(stages, microbatches))


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (changed(order=the_last_first), "stage 0 runs backward of microbatch 1 before forward of it"),
        (changed(order=without_the_last), "stage 0 must run every microbatch .* has 2 forward, 1 backward"),
        (changed(order=the_last_twice), "stage 0 must run every microbatch .* has 2 forward, 3 backward"),
        (changed(order=lambda stages, microbatches: None), "order fails, TypeError"),
        (changed(order=lambda stages, microbatches: ((0, 1),) * stages), "must return a tuple of Slot"),
        (changed(order=lambda stages, microbatches: ()), "must return a tuple of Slot for each stage"),
        (changed(in_flight=lambda stages, microbatches, stage: 1), "states 1 on stage 0, .* order keeps 3"),
        (changed(in_flight=lambda stages, microbatches, stage: float("nan")), "states nan on stage 0"),
        (changed(in_flight=lambda stages: stages), "in_flight fails on stage 0, TypeError"),
    ],
)
def test_a_mistake_in_a_schedule_is_told_when_it_is_registered(schedule, message):
    with pytest.raises(WorkloadError, match=f"'mine' with pp=.*{message}"):
        register_schedule("mine", schedule)
    assert "mine" not in SCHEDULES


def test_an_unknown_schedule_is_told_its_neighbour():
    with pytest.raises(WorkloadError, match="no schedule 'gpip'; did you mean 'gpipe'"):
        schedule_named("gpip")
