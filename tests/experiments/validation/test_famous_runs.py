"""Famous runs run at the plans they were run with, fit, and are about as fast as published."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.validation import driver
from experiments.validation.famous import (
    changes,
    famous_text,
    run_of,
    search_text,
    searched,
    seconds_of,
    unpublished,
)
from experiments.validation.famous import (
    outcome as outcome_of,
)
from experiments.validation.rows import Outcome, read_records
from simulator.errors import WorkloadError
from workloads.models.config import load_model
from workloads.plan.plan import parse_plan
from workloads.plan.rules import check
from workloads.step.memory import fullest_stage, memory_by_kind

RECORDS = {
    one.text("id"): one
    for one in read_records(driver.REFERENCE / "famous.csv", needs=driver.KINDS["famous"].needs)
}
PUBLISHED = [name for name, one in RECORDS.items() if one.text("plan")]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_plan_is_allowed_and_fits_its_accelerator(name):
    """Nobody refuses a plan that ran, nor says that it needs more memory than there was."""
    run = run_of(RECORDS[name])
    stage = fullest_stage(run.config, run.plan)
    needed = sum(memory_by_kind(run.config, run.plan, stage).values())
    assert needed <= run.system.gpu.memory.capacity_bytes


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama3-405b-16384", "nemotron-4-340b", "bloom-176b"])
def test_rate_is_within_a_tenth_of_the_published_one(name):
    outcome = outcome_of(RECORDS[name])
    assert abs(outcome.relative_error) <= 0.10
    assert "met" in famous_text([outcome])


@pytest.mark.slow
def test_codes_that_no_constant_has_seen_are_predicted_too_fast():
    """`other_codes.csv` (MegaScale, InternEvo): what a step pays once is short, a microbatch is met."""
    records = read_records(driver.REFERENCE / "other_codes.csv", needs=driver.KINDS["famous"].needs)
    outcomes = [outcome_of(one) for one in records]
    errors = np.array([one.relative_error for one in outcomes])
    assert len(errors) == 15
    assert (errors < 0.0).all()
    assert np.abs(errors).mean() < 0.15
    batches = np.array([768 / ranks for ranks in (4, 8, 16)])  # 256, 512 and 1,024 GPUs
    times = np.array([[one.measured, one.predicted] for one in outcomes[:3]])
    slopes, once = np.polyfit(batches, times, 1)
    assert slopes[1] == pytest.approx(slopes[0], rel=0.05)
    assert once[1] < 0.6 * once[0]


def test_every_row_names_its_source_and_where_its_plan_stands():
    for one in RECORDS.values():
        assert one.text("source")
        assert one.text("plan_source")


@pytest.mark.parametrize("name", ["llama3-405b-8192", "deepseek-v3", "palm-540b", "mt-nlg-2240"])
def test_published_figure_becomes_a_step_time_and_back(name):
    record = RECORDS[name]
    run = run_of(record)
    seconds = seconds_of(record, run)
    rank_days = {"llama3-405b-8192": 12.3, "deepseek-v3": 19.9, "palm-540b": 17.6, "mt-nlg-2240": 60.1}
    assert seconds == pytest.approx(rank_days[name], rel=0.03)


def test_run_without_its_plan_is_named_not_judged():
    outcome = outcome_of(RECORDS["llama-65b"])
    assert outcome.skipped == "its plan was not published"


def test_plain_plans_of_these_runs_would_not_fit():
    """What the runs did is needed: without it Llama 3 and DeepSeek-V3 are too large by tens of GiB."""
    for name, without in (
        ("llama3-405b-8192", {"recompute_activation": False}),
        ("deepseek-v3", {"recompute_norms": False, "recompute_projections": False}),
    ):
        run = run_of(RECORDS[name])
        plan = run.plan.with_(**without)
        needed = sum(memory_by_kind(run.config, plan, fullest_stage(run.config, plan)).values())
        assert needed > run.system.gpu.memory.capacity_bytes


def test_partial_recomputation_needs_blocks_that_are_alike():
    plan = parse_plan("recompute=full,recompute_share=0.5")
    with pytest.raises(WorkloadError, match="needs blocks that are all alike"):
        check(load_model("deepseek-v3"), plan)


def test_best_plan_of_a_run_without_one_fits_and_is_told_with_its_gain():
    outcome = searched(RECORDS["llama-65b"])
    run = unpublished(RECORDS["llama-65b"])
    plan = parse_plan(outcome.extra["plan"])
    assert plan.axes.ranks == run.system.accelerators
    needed = sum(memory_by_kind(run.config, plan, fullest_stage(run.config, plan)).values())
    assert needed <= run.system.gpu.memory.capacity_bytes
    gain = outcome.measured / outcome.predicted - 1.0
    assert gain > 0.0
    assert f"{gain:+.1%} against the published rate" in search_text([outcome])


def test_what_a_better_plan_uses_is_told():
    old = parse_plan("tp=8,pp=12,dp=64,global_batch=2304")
    assert changes(old, old.with_(pp=6, dp=128, overlap_sends=False)) == "pp=6, dp=128, overlap_sends=False"
    outcome = Outcome(
        id="run",
        source="source",
        unit="s",
        measured=1.2,
        predicted=1.0,
        extra={"uses": "pp=6", "published_plan": True, "ranked": 7, "plan": "pp=6"},
    )
    assert "+20.0% faster; it has pp=6 (more than 15%: what they did not use)" in search_text([outcome])
    same = replace(outcome, predicted=1.2, extra={**outcome.extra, "uses": ""})
    assert "the published plan is the best of those tried" in search_text([same])


def test_units_that_carry_traffic_do_not_compute():
    """DeepSeek-V3 gives 20 of 132 multiprocessors to its traffic (arXiv:2412.19437, section 3.2.2)."""
    assert run_of(RECORDS["deepseek-v3"]).system.gpu.chip.units == 112
