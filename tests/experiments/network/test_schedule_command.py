"""`heliograph network schedule`: every schedule draws itself, in units and as the engine ran it."""

import json
from itertools import pairwise

import pytest
from matplotlib.image import imread

from experiments.__main__ import main
from experiments.cli import BAD_INPUT
from experiments.network.schedule import schedule_names, unit_timeline
from heliograph.figures import DPI, WIDTH_IN
from tests import builders
from workloads.pipeline.schedule import SCHEDULES, PassTimes
from workloads.plan.plan import parse_plan

PLAN = "tp=8,pp=2,dp=2,global_batch=16,sequence_length=2048"


def call(capsys, *arguments):
    return builders.call(capsys, "network", "schedule", *arguments)


def drawn(capsys, tmp_path, *arguments):
    code, out, err = call(capsys, *arguments, "--json", "--out", str(tmp_path / "picture.png"))
    assert (code, err) == (0, "")
    return json.loads(out)


def overlaps(boxes):
    """Return whether two boxes of one stage share time."""
    for stage in {box["stage"] for box in boxes}:
        mine = sorted((box["start"], box["end"]) for box in boxes if box["stage"] == stage)
        if any(later[0] < earlier[1] * (1 - 1e-9) for earlier, later in pairwise(mine)):
            return True
    return False


@pytest.mark.parametrize("name", schedule_names())
def test_every_schedule_draws_itself(capsys, tmp_path, name):
    record = drawn(capsys, tmp_path, name, "--stages", "2", "--microbatches", "4")
    assert record["name"] == name
    assert not overlaps(record["boxes"])
    busy = sum(box["end"] - box["start"] for box in record["boxes"])
    assert record["bubble_share"] == pytest.approx(1 - busy / (2 * record["length"]))
    if not record["name"].startswith("pipedream"):
        assert busy == pytest.approx(2 * 4 * 3.0)
    assert imread(tmp_path / "picture.png").shape[1] == WIDTH_IN * DPI
    assert (tmp_path / "picture.svg").read_text().lstrip().startswith("<?xml")
    assert len(schedule_names()) == len(SCHEDULES) + 1


def test_table_tells_bubble_and_peak(capsys, tmp_path):
    code, out, _ = call(capsys, "1f1b", "--microbatches", "9", "--out", str(tmp_path / "x.png"))
    assert code == 0
    lines = {line.strip().split("  ")[0]: line for line in out.splitlines()}
    assert "25.0 %" in lines["bubble"]  # (p-1)/(m+p-1) of the whole (arXiv:2104.04473, section 2.2)
    assert "1 to 4" in lines["activation peak, microbatches"]
    assert (tmp_path / "x.png").exists()
    assert (tmp_path / "x.svg").exists()


def test_times_of_passes_are_options(capsys, tmp_path):
    plain, slow = (
        drawn(capsys, tmp_path, "zero_bubble", *extra)
        for extra in ((), ("--weights", "0.5", "--forward", "2"))
    )
    lengths = {round(box["end"] - box["start"], 9) for box in slow["boxes"]}
    assert lengths == {2.0, 1.0, 0.5}
    assert slow["length"] > plain["length"]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["zb_v", "pipedream", "dualpipe"])
def test_a_models_step_is_drawn_as_the_engine_ran_it(capsys, tmp_path, schedule):
    plan = f"{PLAN},schedule={schedule},zero=0"
    record = drawn(capsys, tmp_path, "llama-3-8b", "--plan", plan)
    code = main(("step", "--system", "gpu_packet", "--model", "llama-3-8b", "--plan", plan, "--json"))
    step = json.loads(capsys.readouterr().out)
    assert code == 0
    assert record["step_time"] == pytest.approx(step["step_time_s"])
    assert record["unit"] == "s"
    assert not overlaps(record["boxes"])
    assert {box["chunk"] for box in record["boxes"]} == ({0, 1} if schedule in {"zb_v", "dualpipe"} else {0})
    if schedule == "zb_v":
        passes = [(b["stage"], b["kind"], b["microbatch"], b["chunk"]) for b in record["boxes"]]
        assert len(passes) == len(set(passes))


def test_steps_in_a_plan_show_the_steady_state(capsys, tmp_path):
    plan = f"{PLAN},schedule=zb_h2,zero=0"
    once = drawn(capsys, tmp_path, "llama-3-8b", "--plan", plan)
    several = drawn(capsys, tmp_path, "llama-3-8b", "--plan", f"{plan},steps=4")
    assert (once["steps"], several["steps"]) == (1, 4)
    # Per step, not for the whole run; the first step alone also fills the pipeline.
    assert 0.9 * once["step_time"] < several["step_time"] < (1 + 1e-9) * once["step_time"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("zbv",), "unknown schedule 'zbv' (a model needs --plan); did you mean 'zb_v'?"),
        (("zb_v", "--microbatches", "3"), "zb_v needs at least twice the stages (4) less one microbatches"),
        (("1f1b", "--stages", "0"), "stages (0) must be at least 1"),
        (("1f1b", "--forward", "-1"), "time of a pass (forward) must be above zero; got -1"),
        (("interleaved", "--chunks", "1"), "chunks (1) must be at least 2"),
        (("1f1b", "--microbatches", "9999"), "passes are too many to draw"),
        (("1f1b", "--out", "/dev/null/at/all"), "name another directory with --out"),
        (("no-model", "--plan", "pp=2"), "no-model"),
    ],
)
def test_bad_input_is_one_sentence(capsys, arguments, message):
    code, out, err = call(capsys, *arguments)
    assert code == BAD_INPUT
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_a_schedule_goes_by_the_name_of_its_paper_too():
    """Qi et al., arXiv:2401.10241, call it ZB-H1, whose nearest name was that of another, zb_h2."""
    times = {"times": PassTimes(forward=1.0, inputs=1.0, weights=1.0)}
    one, other = (
        unit_timeline(name, stages=4, microbatches=8, chunks=1, **times) for name in ("zb_h1", "zero_bubble")
    )
    assert one == other
    assert parse_plan("pp=2,schedule=zb_h1").schedule.kind is SCHEDULES["zero_bubble"]
