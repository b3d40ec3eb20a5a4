import json

import pytest

from experiments.__main__ import main
from experiments.cli import BAD_INPUT
from tests.builders import call

STEP = ("step", "--system", "photonic_packet", "--model", "gpt2", "--plan", "dp=8,global_batch=8")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    assert main([*STEP, "--out", str(place / "a")]) == 0
    assert main([*STEP, "--set", "laser_power_w=20 mW", "--out", str(place / "b")]) == 0
    return place


@pytest.mark.slow
def test_what_differs_in_inputs_and_what_that_did(capsys, runs):
    found = json.loads(call(capsys, "diff", runs / "a", runs / "b", "--json")[1])
    assert [(one["name"], one["second"]) for one in found["inputs"]] == [
        ("options.settings.0", "laser_power_w=20 mW")
    ]
    by_name = {one["name"]: one for one in found["outputs"]}
    first, second = (json.loads((runs / name / "step.json").read_text()) for name in "ab")
    changed = by_name["energy_per_token_j"]
    assert (changed["first"], changed["second"]) == (
        first["energy_per_token_j"],
        second["energy_per_token_j"],
    )
    assert changed["relative_change"] == pytest.approx(changed["second"] / changed["first"] - 1.0)
    assert "model" not in by_name
    sizes = [abs(one["relative_change"]) for one in found["outputs"] if one["relative_change"] is not None]
    assert sizes == sorted(sizes, reverse=True)
    text = call(capsys, "diff", runs / "a" / "step.json", runs / "b")[1]
    assert "Inputs that differ" in text
    assert "laser_line_w" in text


@pytest.mark.slow
def test_a_run_is_the_same_as_itself(capsys, runs):
    assert "The runs are the same" in call(capsys, "diff", runs / "a", runs / "a")[1]


@pytest.mark.slow
def test_two_comparisons_are_told_by_their_systems(capsys, tmp_path):
    for name, accelerators in (("a", 8), ("b", 16)):
        words = ("compare", "--model", "gpt2", "--systems", "gpu_packet", "--accelerators", accelerators)
        assert call(capsys, *words, "--out", tmp_path / name)[0] == 0
    found = json.loads(call(capsys, "diff", tmp_path / "a", tmp_path / "b", "--json")[1])
    assert any(one["name"].startswith("systems.gpu_packet.fabric") for one in found["inputs"])
    assert any(one["name"] == "systems.gpu_packet.energy_j" for one in found["outputs"])


@pytest.mark.slow
def test_what_is_no_run_is_one_sentence(capsys, runs, tmp_path):
    assert call(capsys, "diff", runs / "a", tmp_path / "nowhere")[0] == BAD_INPUT
    assert "holds no record" in call(capsys, "diff", runs / "a", tmp_path)[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": None}, "'schema'"),
        ({"schema": True}, "'schema'"),
        ({"schema": "2"}, "'schema'"),
        ({"version": 1}, "'version'"),
        ({"command": None}, "'command'"),
        ({"options": []}, "'options'"),
    ],
)
def test_a_record_of_another_program_is_one_sentence(capsys, runs, tmp_path, change, why):
    record = json.loads((runs / "a" / "step.json").read_text()) | change
    other = tmp_path / "other.json"
    other.write_text(json.dumps({key: value for key, value in record.items() if value is not None}))
    status, out, told = call(capsys, "diff", runs / "a", other)
    assert (status, out) == (BAD_INPUT, "")
    assert "other.json is no record of a run" in told
    assert why in told
    assert told.count("\n") == 1


@pytest.mark.slow
def test_runs_that_cannot_be_compared_are_one_sentence(capsys, runs, tmp_path):
    assert main(["network", "schedule", "1f1b", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    status, out, told = call(capsys, "diff", runs / "a", tmp_path)
    assert (status, out) == (BAD_INPUT, "")
    assert "is a run of 'step'" in told
    assert "of 'network schedule'; name two runs of one command" in told
    record = json.loads((runs / "a" / "step.json").read_text())
    old = tmp_path / "old.json"
    old.write_text(json.dumps(record | {"schema": record["schema"] - 1}))
    assert "run the older again" in call(capsys, "diff", runs / "a", old)[2]
    assert main(["validate", "memory", "--out", str(tmp_path / "memory")]) == 0
    capsys.readouterr()
    assert "The runs are the same" in call(capsys, "diff", *[tmp_path / "memory"] * 2)[1]
