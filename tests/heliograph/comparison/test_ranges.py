"""Verdicts of a comparison over the ranges of its numbers."""

import json
import math
from dataclasses import replace

import pytest

import heliograph as hg
import heliograph.comparison.ranges as ranges_module
from heliograph.comparison.plan_estimates import Objective
from heliograph.comparison.ranges import Contest, contests, ranges_of
from heliograph.parameters import parameters_of
from simulator.errors import ParameterError

PLAN = "dp=8,global_batch=32"


def compared(*names):
    return hg.compare(list(names), "gpt2", PLAN)


def test_each_kind_is_its_best_system():
    contest = Contest(name="light / GPUs", challengers=("a", "b"), holders=("c",))
    values = {name: dict.fromkeys(Objective, value) for name, value in (("a", 3.0), ("b", 2.0), ("c", 4.0))}
    assert contest.ratio(values, Objective.TIME) == 0.5
    assert contest.ratio(values | {"c": dict.fromkeys(Objective, math.inf)}, Objective.TIME) == 0.0


def test_kinds_of_systems_stand_against_each_other():
    found = contests([hg.system(name) for name in ("gpu_packet", "gpu_ocs", "photonic_packet")])
    assert [one.name for one in found] == ["light / GPUs", "circuits / packets"]
    assert found[0].holders == ("gpu_packet", "gpu_ocs")
    assert contests([hg.system("gpu_packet"), hg.system("gpu_packet:fp8")]) == ()


def test_systems_of_one_kind_have_no_verdict():
    with pytest.raises(ParameterError, match="light and GPUs"):
        ranges_of(compared("gpu_packet", "gpu_packet:fp8").results)


@pytest.fixture(scope="module")
def firmness():
    compared_ = compared("gpu_packet:fp8", "gpu_ocs:fp8")
    return compared_, compared_.over_ranges().ranges


def test_a_swing_is_the_ratio_of_the_two_steps_run_anew(firmness):
    compared_, ranges = firmness
    swing = next(one for one in ranges.swings if one.number.path == "fabric.nic.latency_s")
    plan = compared_.plan
    values = [
        hg.simulate(one.system.with_({swing.number.path: swing.number.ends[1]}), "gpt2", plan).step_time_s
        for one in compared_.results
    ]
    assert swing.at_high["circuits / packets", Objective.TIME] == pytest.approx(
        values[1] / values[0], rel=1e-12
    )


def test_numbers_that_both_kinds_have_move_in_both(firmness):
    _, ranges = firmness
    shared = next(one for one in ranges.swings if one.number.path == "economics.power_usage_effectiveness")
    alone = next(one for one in ranges.swings if one.number.path == "fabric.transceiver.price_usd")
    key = ("circuits / packets", Objective.COST)
    present = next(one.present for one in ranges.verdicts if (one.contest, one.objective) == key)
    assert all(abs(ratio / present - 1.0) < 0.01 for ratio, _ in shared.ends(key))
    assert max(abs(ratio / present - 1.0) for ratio, _ in alone.ends(key)) > 0.01


def test_every_number_with_a_range_is_moved(firmness):
    compared_, ranges = firmness
    ranged = {
        one.path
        for step in compared_.results
        for one in parameters_of(step.system)
        if one.low is not None or one.high is not None
    }
    assert {one.number.path for one in ranges.swings} == ranged


def test_bounds_hold_every_single_number(firmness):
    _, ranges = firmness
    for one in ranges.verdicts:
        assert one.favoured <= one.least <= one.present <= one.most <= one.opposed


def test_a_verdict_is_turned_by_numbers_that_cross_one(firmness):
    _, ranges = firmness
    cost = next(one for one in ranges.verdicts if one.objective is Objective.COST)
    crossing = {
        one.number
        for one in ranges.swings
        if any((ratio < 1.0) != (cost.present < 1.0) for ratio, _ in one.ends((cost.contest, cost.objective)))
    }
    assert set(cost.alone) == crossing
    assert not (cost.alone and cost.together)


def test_a_number_at_which_the_holder_cannot_run_is_told_first(firmness):
    _, ranges = firmness
    verdict, swing = ranges.verdicts[0], ranges.swings[-1]
    key = (verdict.contest, verdict.objective)
    failing = replace(swing, at_low={**swing.at_high, key: 0.0})
    told = replace(ranges, swings=(*ranges.swings[:-1], failing))
    assert failing in told.strongest(verdict, len(verdict.fails) + 1)
    assert told.plot().axes


def test_ranges_are_rows_a_record_and_a_picture(firmness):
    _, ranges = firmness
    assert len(ranges.rows()) == len(ranges.swings) * len(ranges.verdicts)
    assert json.loads(json.dumps(ranges.record(), allow_nan=False))["numbers"] == len(ranges.swings)
    titles = [axes.get_title(loc="left") for axes in ranges.plot().axes]
    assert [title.split(":")[0] for title in titles] == [f"circuits / packets, {one}" for one in Objective]
    assert "one number" in repr(ranges)


@pytest.mark.slow
def test_light_that_fails_at_an_end_is_told_and_turns_nothing(monkeypatch):
    """Of a few numbers: two of the converters, and one of the network that both kinds have."""
    few = ("dac.enob_bits", "adc.enob_bits", "fabric.nic.latency_s")
    monkeypatch.setattr(
        ranges_module,
        "parameters_of",
        lambda system: [one for one in parameters_of(system) if one.path.endswith(few)],
    )
    ranges = compared("gpu_packet:fp8", "photonic_packet").over_ranges().ranges
    time = ranges.verdicts[0]
    assert "photonic.core.core.core.core.dac.enob_bits" in {one.path for one in time.fails}
    assert not set(time.fails) & set(time.alone)
    assert math.isfinite(time.most)
