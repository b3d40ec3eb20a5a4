"""Activations kept on the host: what leaves, what comes back, what stays, and what it costs in time."""

from dataclasses import replace

import pytest

from simulator.engine.simulation import Simulation
from simulator.errors import WorkloadError
from simulator.operators import Lane
from tests.workloads.ideal import EVEN, NODE, PLAN, Star
from tests.workloads.step.test_offload import a_host
from workloads.pipeline import schedules
from workloads.plan.parts import Kept, Place
from workloads.plan.rules import check
from workloads.step.memory import host_bytes, layer_activation_bytes, memory_by_kind
from workloads.step.step import build_step

STAGED = PLAN.with_(pp=4, global_batch=12)
AWAY = STAGED.with_(kept_activations=Kept.HOST)
CHUNK_BYTES = layer_activation_bytes(EVEN, PLAN.share) * EVEN.layers / 4


def traced(plan, link=1e30):
    node = replace(NODE, host=a_host(link=link))
    return Simulation(build_step(EVEN, plan), node, Star(endpoints=plan.axes.ranks)).run()


def test_what_a_pass_keeps_goes_down_and_comes_back_but_for_the_last_stage():
    """On the last stage of 1F1B every backward pass follows its forward pass, hence nothing leaves."""
    found = traced(AWAY).host_bytes
    leaving = 3 * AWAY.microbatches * CHUNK_BYTES
    # On the stages before, only a forward pass right before its own backward pass stays.
    assert found[Lane.TO_HOST] == found[Lane.FROM_HOST] == pytest.approx(leaving)
    assert not traced(STAGED).host_bytes


def test_fast_link_costs_nothing_and_slow_one_sets_the_pace():
    plain = traced(STAGED).makespan_s
    assert traced(AWAY).makespan_s == pytest.approx(plain)
    slow = CHUNK_BYTES * STAGED.microbatches / plain / 2
    took = traced(AWAY, link=slow).makespan_s
    assert took >= CHUNK_BYTES * STAGED.microbatches / slow
    assert took > traced(AWAY, link=2 * slow).makespan_s > plain


def test_device_keeps_three_chunks_and_the_host_all_that_are_under_way():
    for stage in range(4):
        before = memory_by_kind(EVEN, STAGED, stage)["activations"]
        after = memory_by_kind(EVEN, AWAY, stage)["activations"]
        assert after == pytest.approx(min(before, 3 * CHUNK_BYTES))
        assert host_bytes(EVEN, AWAY, stage)[Place.HOST]["activations"] == pytest.approx(before)
    assert not host_bytes(EVEN, STAGED, 0)[Place.HOST]


def test_split_backward_passes_refuse_it():
    with pytest.raises(WorkloadError, match="splits; try schedule=1f1b"):
        check(EVEN, AWAY.with_(schedule=schedules.ZERO_BUBBLE))


def test_without_stages_nothing_waits_for_its_backward_pass():
    alone = PLAN.with_(pp=1, kept_activations=Kept.HOST)
    with pytest.raises(WorkloadError, match="kept_activations=host changes nothing with pp=1"):
        check(EVEN, alone)
    check(EVEN, alone.with_(schedule=schedules.GPIPE))
