import dataclasses
import sys
import types

import numpy as np
import pytest

import heliograph as hg
from heliograph.records import COLUMNS
from simulator.errors import HeliographError, ParameterError
from tests.builders import csv_rows

PLAN = "tp=8,dp=2,global_batch=16,sequence_length=2048"
MODEL = "llama-3-8b"
N = 16


@pytest.fixture(scope="module")
def light():
    return hg.system("photonic_packet", accelerators=N)


@pytest.fixture(scope="module")
def grid(light):
    return hg.sweep(
        light,
        {"core.adc": ["adc_survey_7b", "adc_survey_8b"]},
        model=MODEL,
        plan=PLAN,
        laser_power_w=["1 nW", "10 mW", 0.015],
    )


def test_a_grid_has_every_combination_the_last_name_fastest(grid):
    inputs = [(row["core.adc"], row["laser_power_w"]) for row in grid.rows()]
    powers = (1e-9, 0.01, 0.015)
    assert inputs == [
        (adc, pytest.approx(power)) for adc in ("adc_survey_7b", "adc_survey_8b") for power in powers
    ]


def test_a_point_is_the_step_of_the_changed_system(grid, light):
    changed = light.with_({"core.adc": "adc_survey_8b"}, laser_power_w="10 mW")
    result = hg.simulate(changed, MODEL, PLAN)
    assert {key: grid.rows()[4][key] for key in COLUMNS} == result.rows()[0]


def test_columns_are_the_inputs_and_then_the_same_for_all(grid):
    for row in grid.rows():
        assert list(row) == ["core.adc", "laser_power_w", *COLUMNS]


def test_a_point_that_fails_is_a_row_with_its_sentence(grid):
    assert [row["laser_power_w"] for row in grid.failures] == pytest.approx([1e-9, 1e-9])
    for row in grid.failures:
        assert "does not close" in row["error"]
        assert row["step_time_s"] is None
        assert (row["model"], row["system"]) == (MODEL, "photonic_packet")


def test_a_grid_of_failures_only_is_an_error(light):
    with pytest.raises(ParameterError, match="no point of the sweep runs"):
        hg.sweep(light, model=MODEL, plan=PLAN, laser_power_w=["1 nW", "2 nW"])


def test_a_misspelt_name_is_an_error(light):
    with pytest.raises(ParameterError, match="laser_power_w"):
        hg.sweep(light, model=MODEL, plan=PLAN, laser_powr_w=["1 mW", "2 mW"])


def test_a_system_by_name_is_swept_over_its_choices():
    grid = hg.sweep("gpu_packet", model="gpt2", accelerators=[8, 16], gpu=["h100", "b200"])
    assert [(row["accelerators"], row["gpu"]) for row in grid.rows()] == [
        (8, "h100"),
        (8, "b200"),
        (16, "h100"),
        (16, "b200"),
    ]
    faster = [row["step_time_s"] for row in grid.rows()]
    assert faster[0] != faster[1]


def test_power_rate_and_circuits_each_move_the_step():
    """A corner of the study of 1,000 points; 1 s."""
    swept = {
        "laser_power_w": ["60 mW", "120 mW"],
        "symbol_rate_hz": ["5 GHz", "20 GHz"],
        "fabric.switch.switch_s": ["1 us", "10 ms"],
    }
    plan = "tp=2,pp=2,dp=16,global_batch=32,sequence_length=2048"  # with more tensor ranks the host binds
    rows = hg.sweep("photonic_ocs", swept, model="llama-3-8b", plan=plan).rows()
    time_s = np.array([row["step_time_s"] for row in rows]).reshape(2, 2, 2)
    snr_db = np.array([row["snr_db"] for row in rows]).reshape(2, 2, 2)
    assert (snr_db[1] > snr_db[0]).all()
    assert (time_s[:, 1] < time_s[:, 0]).all()
    assert (time_s[..., 1] > time_s[..., 0]).all()


def test_the_csv_reads_back(grid, tmp_path):
    path = grid.to_csv(tmp_path / "grid.csv")
    read = csv_rows(path)
    for row, told in zip(grid.rows(), read, strict=True):
        assert list(told) == list(row)
        if not row["error"]:
            assert float(told["step_time_s"]) == row["step_time_s"]
            assert float(told["laser_power_w"]) == row["laser_power_w"]


def test_pandas_is_handed_the_rows_in_their_columns(grid, monkeypatch):
    asked = {}

    def frame(rows, columns):
        asked.update(rows=rows, columns=columns)
        return "a table"

    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=frame))
    assert grid.to_pandas() == "a table"
    assert asked == {"rows": grid.rows(), "columns": list(grid.rows()[0])}


def test_without_pandas_one_sentence_says_what_to_do(grid, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(HeliographError, match=r"pip install pandas, or use rows\(\) or to_csv"):
        grid.to_pandas()


def test_a_picture_has_a_line_for_each_combination_of_the_other_inputs(grid):
    (axes,) = grid.plot("laser_power_w", "energy_per_token_j").axes
    assert [line.get_label() for line in axes.lines] == ["core.adc adc_survey_7b", "core.adc adc_survey_8b"]
    for line, adc in zip(axes.lines, ("adc_survey_7b", "adc_survey_8b"), strict=True):
        drawn = [row for row in grid.rows() if row["core.adc"] == adc and not row["error"]]
        assert line.get_ydata() == pytest.approx([1e3 * row["energy_per_token_j"] for row in drawn])
    for names in (["core.adc", "laser_power_w"], ["laser_power_w", "core.adc"]):  # parts are no abscissa
        turned = dataclasses.replace(grid, axes={name: grid.axes[name] for name in names})
        assert turned.plot().axes[0].get_xlabel().startswith("laser power")
    with pytest.raises(ParameterError, match="did you mean 'energy_per_token_j'"):
        grid.plot("laser_power_w", "energy_per_tokn_j")
    with pytest.raises(ParameterError, match="nothing to draw"):
        grid.plot("laser_power_w", "validation_loss")


@pytest.mark.slow
def test_the_best_plan_of_each_point_is_as_fast_as_any_that_is_told(tmp_path):
    chips = {"system": ["gpu_packet:fp8", "gpu_ocs"]}
    same = {"model": "gpt2", "store": tmp_path / "points.sqlite"}
    best = hg.sweep("gpu_packet", {**chips, "accelerators": [4]}, plan="best,global_batch=4", **same).rows()
    told = {"plan.tp": [1, 2, 4], "plan.pp": [1, 2, 4], "plan.dp": [1, 2, 4], "plan.micro_batch": [1, 2]}
    where = ["plan.tp * plan.pp * plan.dp == 4", "plan.micro_batch * plan.dp <= 4"]
    every = hg.sweep(
        "gpu_packet", {**chips, "accelerators": [4], **told}, plan="global_batch=4", where=where, **same
    ).rows()
    for row in best:
        rivals = [one for one in every if [one[name] for name in chips] == [row[name] for name in chips]]
        assert len(rivals) > 6
        assert row["step_time_s"] <= min(one["step_time_s"] for one in rivals if not one["error"])
        hardware = hg.system(row["system"], accelerators=4)
        again = hg.simulate(hardware, "gpt2", row["plan"])
        assert again.step_time_s == pytest.approx(row["step_time_s"], rel=1e-9)


def test_the_best_plan_is_that_of_least_time_energy_or_cost():
    """Where a bit costs a thousand times the energy inside a node, the frugal plan moves few of them."""
    asked = {"accelerators": [8], "fabric.scale_up.energy_j_per_bit": [8e-9]}
    asked |= {"plan.best": ["time", "energy", "cost"]}
    rows = hg.sweep("gpu_packet", asked, model="gpt2", plan="best,global_batch=8").rows()
    columns = ("step_time_s", "energy_per_token_j", "usd_per_million_tokens")
    for row, column in zip(rows, columns, strict=True):
        assert not row["error"]
        assert row[column] == min(one[column] for one in rows)
    assert rows[1]["energy_per_token_j"] < 0.8 * rows[0]["energy_per_token_j"]
    assert rows[0]["step_time_s"] < 0.9 * rows[1]["step_time_s"]


@pytest.mark.slow
def test_a_row_tells_the_plan_that_was_found_whichever_was_asked_for():
    asked = {"accelerators": [4], "plan": ["tp=4,global_batch=8", "best=energy,global_batch=8"]}
    told, found = hg.sweep("gpu_packet", asked, model="gpt2").rows()
    assert told["plan"] == "tp=4,global_batch=8"
    again = hg.simulate("gpu_packet", "gpt2", found["plan"], placement=found["placement"])
    assert again.energy_j == pytest.approx(found["energy_j"], rel=1e-9)


def test_the_best_placement_is_the_best_of_those_that_are_told():
    """On a torus of two axes it matters whose ranks are neighbours."""
    orders = ["cp tp dp pp", "dp tp cp pp", "best"]
    chips = {"accelerators": [16], "placement": orders}
    *told, best = hg.sweep("gpu_packet@torus", chips, model="gpt2", plan="best,global_batch=16").rows()
    assert [row["placement"] for row in told] == orders[:2]
    assert best["step_time_s"] < min(row["step_time_s"] for row in told)
    again = hg.simulate("gpu_packet@torus", "gpt2", best["plan"], placement=best["placement"])
    assert again.step_time_s == pytest.approx(best["step_time_s"], rel=1e-9)


@pytest.mark.parametrize(
    ("plan", "names", "says"),
    [
        ("best,tp=2", {}, "tp is searched where the plan is 'best'"),
        ("best,tensor=2", {}, "tp is searched where the plan is 'best'"),
        ("best", {"plan.tensor": [2]}, "tp is searched where the plan is 'best'"),
        ("best", {"placement": ["pp tp cp dp"]}, "no placement 'pp tp cp dp' is searched"),
        ("best=enregy", {}, "no objective 'enregy'; did you mean 'energy'"),
    ],
)
def test_what_is_searched_cannot_be_told(plan, names, says):
    with pytest.raises(HeliographError, match=says):
        hg.sweep("gpu_packet", {"accelerators": [4], **names}, model="gpt2", plan=plan)


def test_a_name_among_the_changes_and_among_the_keywords_is_an_error():
    """The keyword ran, and the values of the mapping were dropped."""
    with pytest.raises(ParameterError, match="tdp_w is swept twice"):
        hg.sweep("gpu_packet", {"tdp_w": [600]}, model="gpt2", plan="dp=4,global_batch=4", tdp_w=[500])
