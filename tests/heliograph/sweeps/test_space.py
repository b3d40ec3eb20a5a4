import pytest

import heliograph as hg
from heliograph.sweeps.points import StepWork
from heliograph.sweeps.running import axis
from heliograph.sweeps.space import Range, Space, read_study, values_in, zipped
from simulator.errors import ParameterError
from simulator.parameter_tree import path_of

STUDY = """
system = "photonic_packet"
model = "gpt2"
plan = "global_batch=16"
where = ["plan.tp * plan.dp == 8", "laser_power_w <= '5 mW' or core.adc == 'adc_survey_8b'"]
[sweep]
laser_power_w = { from = "1 mW", to = "8 mW", points = 4, log = true }
core.adc = ["adc_survey_7b", "adc_survey_8b"]
[[zip]]
plan.tp = [1, 2, 4]
plan.dp = [8, 4, 1]
"""


def space(where=(), **columns):
    return Space(axes=tuple(axis(name, values) for name, values in columns.items()), where=where)


def test_a_study_file_is_a_grid_of_what_varies_alone_and_together(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    file = read_study(path)
    assert file.store == tmp_path / "study.sqlite"
    axes = [axis(name, values) for name, values in file.ranges.items()]
    points = Space(axes=(*axes, *file.zips), where=file.where).inputs()
    assert len(points) == 2 * (3 + 4)  # of two pairs of axes that make eight ranks
    assert points[0] == {
        "laser_power_w": pytest.approx(1e-3),
        "core.adc": "adc_survey_7b",
        "plan.tp": 1,
        "plan.dp": 8,
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("modle = 'gpt2'", r"study.toml:1: .*did you mean 'model'"),
        ("[sweep]\nlaser_power_w = {from = 1, too = 2}", "study.toml:2: .*no key 'too'"),
        ("[sweep]\nlaser_power_w = {from = '1 GHz', to = '2 W', points = 3}", "study.toml:2"),
        ("[sweep]\na = [[1]]", "must be a list"),
        ("[swep]\nlaser_power_w = 1", "study.toml:1: no key 'swep' .*did you mean 'sweep'"),
        ("[grid]\nlaser_power_w = 1", "study.toml:1: no key 'grid' .*known keys: [^.]* sweep, [^.]*zip$"),
        ("sweep = 3", "study.toml:1: sweep: it must be a table"),
        ("name = 'x'\n[[zip]]\na = [1, 2]\nb = [1]", "study.toml:2: .*as many values each: a has 2, b has 1"),
        ("[zip]\na = [1]", r"study.toml:1: .*stand under \[\[zip\]\]"),
        ("name = 'x'\n[optimise]\ntrials = 3", "study.toml:2: optimise: it needs columns"),
        ("where = 3\n[sweep]\na = [1]", "study.toml:1: where: each condition is text"),
        ("where = [3]\n[sweep]\na = [1]", "study.toml:1: where: each condition is text"),
        ("name = 3", "study.toml:1: name: it must be text; got 3"),
        ("[optimise]\nminimise = 3", "study.toml:1: optimise: each column is text"),
        ("[sweep]\na = {from = 1, to = 2}", "study.toml:2: a: a range of a grid needs its number"),
        ("[sweep]\na = {from = 1, to = 2, points = 2, log = 'no'}", "study.toml:2: .*log must be true or"),
        ("name = 'x'\n[[zip]]\na = [[1]]", "study.toml:2: zip: 'a' must be a list"),
        ("gpu = 'h100'\n[sweep]\ngpu = ['b200']", "study.toml:1: gpu: it holds at every point and is swept"),
        ("[fixed]\na.b = 1\n[[zip]]\na.b = [1]", "study.toml:2: fixed.a.b: it holds at every point"),
        ("[optimise]\ntrial = 3", "study.toml:1: optimise: its table has the keys"),
        ("where = 'a <'\n[sweep]\na = [1]", "study.toml:1: where: condition 'a <' cannot be read"),
        ("where = ['a < 1', 'c < 2']\n[sweep]\na = [1]\n[[zip]]\nb = [1]", "study.toml:1: .*c is not swept"),
    ],
)
def test_a_study_file_that_makes_no_sense_is_one_sentence(tmp_path, text, sentence):
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(ParameterError, match=sentence):
        read_study(path)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("a_w < '3 mW'", [1e-3, 2e-3]),
        ("1e-3 < a_w <= 3e-3", [2e-3, 3e-3]),
        ("not (a_w == 0.002 or a_w * 2 > 7e-3)", [1e-3, 3e-3]),
        ("-a_w + 4e-3 >= '2 mW'", [1e-3, 2e-3]),
    ],
)
def test_conditions_choose_points(condition, kept):
    assert [row[0] for row in space((condition,), a_w=["1 mW", 2e-3, 3e-3, 4e-3]).points if row] == [
        value if value != 1e-3 else "1 mW" for value in kept
    ]


@pytest.mark.parametrize(
    "condition", ["b == 1", "__import__('os')", "a_w <", "a_w.real", "a_w in [1]", "a_w / 0 > 1"]
)
def test_a_condition_is_names_numbers_and_comparisons_only(condition):
    with pytest.raises(ParameterError, match="condition"):
        _ = space((condition,), a_w=[1.0, 2.0]).points


def test_no_point_left_is_an_error():
    with pytest.raises(ParameterError, match="no point meets"):
        _ = space(("a > 5",), a=[1, 2]).points


def test_a_range_without_a_number_is_for_an_optimiser():
    found = values_in("a_w", "1 mW:8 mW:log")
    assert found == Range(low=1e-3, high=8e-3, count=None, log=True)
    with pytest.raises(ParameterError, match="number of values"):
        found.values("a_w")


@pytest.fixture(scope="module")
def light():
    return hg.system("photonic_packet", accelerators=8)


def keys(work, *inputs):
    return work.keys(list(inputs))


def test_a_key_holds_what_is_resolved_however_it_is_written(light):
    work = StepWork(system=light, model="gpt2", plan="dp=8,global_batch=8")
    one, other, third, more = keys(
        work,
        {"laser_power_w": "2 mW"},
        {"laser_power_w": 0.002},
        {path_of(light, "laser_power_w"): "0.002 W"},
        {"laser_power_w": "2.001 mW"},
    )
    assert one == other == third != more
    fixed = StepWork(system=light, model="gpt2", plan="dp=8,global_batch=8", fixed={"laser_power_w": 2e-3})
    assert keys(fixed, {}) == [one]


def test_a_key_changes_with_all_that_moves_a_result(light, tmp_path):
    by_name = StepWork(system="photonic_packet", model="gpt2", plan="dp=8,global_batch=8")
    found = [
        *keys(by_name, {}, {"model": "gpt2-xl"}, {"plan.tp": 2}, {"accelerators": 16}, {"core": "crossbar"}),
        *keys(by_name, {"model.layers": 6}, {"placement": "dp tp cp pp"}, {"gpu": "b200"}),
        *keys(StepWork(system=light, model="gpt2", plan="dp=8,global_batch=8"), {}),
        *keys(StepWork(system=light.with_(cores=2), model="gpt2", plan="dp=8,global_batch=8"), {}),
    ]
    assert len(set(found)) == len(found)
    file = tmp_path / "mine.toml"
    texts = ['base = "gpu_packet"\n', 'base = "gpu_packet"\ngpu = "a100"\n']
    both = []
    for text in texts:
        file.write_text(text)
        both += keys(StepWork(system=str(file), model="gpt2", plan="dp=8,global_batch=8"), {})
    assert both[0] != both[1]


def test_plans_models_and_choices_are_swept_together():
    grid = hg.sweep(
        "gpu_packet",
        {"model.layers": [6, 12]},
        model="gpt2",
        plan="global_batch=16",
        zips=[{"plan.tp": [1, 2], "plan.dp": [8, 4]}],
        where=["model.layers == 12 or plan.tp == 1"],
    )
    rows = grid.rows()
    assert [(row["model.layers"], row["plan.tp"]) for row in rows] == [(6, 1), (12, 1), (12, 2)]
    assert all(row["accelerators"] == 8 and not row["error"] for row in rows)
    assert rows[0]["step_time_s"] < rows[1]["step_time_s"]
    assert rows[2]["plan"].startswith("tp=2,pp=1,dp=4")


def test_names_that_vary_together_need_as_many_values():
    with pytest.raises(ParameterError, match="as many values each"):
        zipped({"a": [1], "b": [1, 2]})
