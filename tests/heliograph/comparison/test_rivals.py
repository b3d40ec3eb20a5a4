"""Formats of GPUs, what a comparison shows by itself, and its table of few numbers."""

import dataclasses

import pytest

import heliograph as hg
from experiments.compare import Compare, exceeded_limits
from heliograph.accuracy.small_gpt import BFLOAT16, FLOAT8, INT8, NVFP4, system_arithmetic
from heliograph.comparison.comparison import Request, build_systems
from heliograph.report import report_text
from heliograph.systems import build_system
from heliograph.systems.names import left, rivals, words_of
from heliograph.tables import UNRESOLVED, best_of, binding, comparison_rows, deciding_table
from simulator.errors import BudgetError, HeliographError, ParameterError
from workloads.plan.parts import Precision

MODEL = "llama-3-8b"
PLAN = "tp=8,dp=2,global_batch=16,sequence_length=2048"
LARGE = "tp=2,pp=4,dp=2,global_batch=16"
N = 16


@pytest.fixture(scope="module")
def compared():
    return hg.compare(None, MODEL, PLAN)


def test_words_of_a_name_are_gpu_format_core_and_fabric_in_any_order():
    found = build_system("gpu_packet:fp8:b200@torus", accelerators=N)
    assert (found.gpu.name, found.precision, found.fabric.name) == ("b200", Precision.FP8, "torus")
    assert found == dataclasses.replace(
        build_system("gpu_packet@torus", accelerators=N, gpu="b200", precision="fp8"), name=found.name
    )
    light = build_system("photonic_ocs:b200:ring_bank", accelerators=N)
    assert (light.gpu.name, light.core_name) == ("b200", "ring_bank")
    assert words_of("photonic_ocs:mine.py:Core:b200@torus") == (
        "photonic_ocs",
        "mine.py:Core",
        "b200",
        "torus",
    )


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("gpu_packet:h100:b200", {}, "two GPUs, h100 and b200"),
        ("gpu_packet:fp8:bf16", {}, "two formats, fp8 and bf16"),
        ("gpu_packet:fp9", {}, "'fp9' is neither a GPU nor a format; did you mean 'fp8'"),
        ("gpu_packet:ring_bank", {}, "has no photonic core"),
        ("photonic_packet:fp8", {}, "done in light"),
        ("photonic_packet", {"precision": "fp8"}, "done in light"),
        ("gpu_packet:bf16", {"precision": "fp8"}, "contradicts system 'gpu_packet:bf16'"),
        ("gpu_packet:h100", {"gpu": "b200"}, "contradicts system 'gpu_packet:h100'"),
        ("gpu_packet", {"precision": "fp9"}, "did you mean 'fp8'"),
    ],
)
def test_names_that_contradict_themselves_are_refused(name, options, says):
    with pytest.raises(ParameterError, match=says):
        build_system(name, accelerators=N, **options)


def test_a_file_and_a_setting_name_a_format(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "gpu_packet:b200"\nprecision = "fp8"\n')
    written, named = (
        build_system(str(path), accelerators=N),
        build_system("gpu_packet:b200:fp8", accelerators=N),
    )
    assert dataclasses.replace(written, name=named.name) == named
    assert build_system(
        "gpu_packet:b200", accelerators=N, assignments=("precision=fp8",)
    ) == dataclasses.replace(named, name="gpu_packet:b200")
    path.write_text('base = "photonic_packet"\nprecision = "fp8"\n')
    with pytest.raises(ParameterError, match=r"mine.toml:2: precision 'fp8' is not used"):
        build_system(str(path), accelerators=N)


def test_fp8_reaches_time_energy_memory_peak_and_arithmetic():
    plain, low = (hg.simulate(f"gpu_packet:{one}", MODEL, LARGE) for one in ("bf16", "fp8"))
    assert low.step_time_s < plain.step_time_s
    assert low.energy_j < plain.energy_j
    assert low.memory_bytes["weights"] == 2.0 * plain.memory_bytes["weights"]  # a copy and its transpose
    assert low.system.node().peak_flop_per_s == 2.0 * plain.system.node().peak_flop_per_s
    assert (low.record()["precision"], plain.record()["precision"]) == ("fp8", "bf16")
    assert (low.effective_bits, plain.effective_bits) == (4.0, 8.0)
    labels = [system_arithmetic(one.system).label for one in (plain, low)]
    assert labels == [BFLOAT16, FLOAT8]


@pytest.mark.slow
def test_four_bits_reach_time_energy_memory_precision_and_arithmetic():
    names = [f"gpu_packet:b200:{one}" for one in ("fp8", "int8", "nvfp4")]
    eight, whole, four = (
        hg.simulate(name, "llama-3-70b", "tp=4,pp=2,dp=2,zero=1,global_batch=8") for name in names
    )
    assert four.step_time_s < 0.95 * eight.step_time_s
    assert four.energy_j < eight.energy_j
    # bf16, and a copy and its transpose, of 4 bits and a byte of scale for 16
    assert four.memory_bytes["weights"] == pytest.approx(3.125 / 4 * eight.memory_bytes["weights"])
    assert (whole.step_time_s, whole.energy_j) == (eight.step_time_s, eight.energy_j)
    assert four.snr_db < whole.snr_db < eight.snr_db  # captured operands have outliers
    assert [system_arithmetic(one.system).label for one in (whole, four)] == [INT8, NVFP4]


def test_a_gpu_without_units_for_four_bits_says_so():
    with pytest.raises(ParameterError, match="h100 has no units for operands of 4 bits"):
        hg.simulate("gpu_packet:nvfp4", MODEL, PLAN)


def test_the_format_of_a_system_is_that_of_a_plan():
    named, planned = (
        hg.simulate("gpu_packet:fp8", MODEL, PLAN),
        hg.simulate("gpu_packet", MODEL, f"{PLAN},precision=fp8"),
    )
    assert named.record() == planned.record() | {"system": "gpu_packet:fp8"}
    grid = hg.sweep(hg.system("gpu_packet:fp8", accelerators=N), model=MODEL, plan=PLAN, tdp_w=["700 W"])
    assert grid.rows()[0]["step_time_s"] == named.step_time_s


def test_a_comparison_shows_gpus_in_both_formats_and_light_in_place_of_each(compared):
    assert {*(one.system.name for one in compared.results), *compared.refused} == set(rivals())
    assert not [name for name in compared.refused if name.startswith("gpu")]
    assert {name.partition(":")[2] for name in rivals() if "photonic" in name} == {"h100", "b200"}
    by_name = {one.system.name: one for one in compared.results}
    alone = hg.simulate("gpu_ocs:b200:fp8", MODEL, PLAN)
    assert by_name["gpu_ocs:b200:fp8"].record() == alone.record()


def test_rivals_of_another_gpu_have_only_formats_that_it_has():
    assert "gpu_packet:a100:bf16" in rivals("a100")
    assert not [name for name in rivals("a100") if "fp8" in name]
    assert "photonic_ocs:h200" in rivals("h200")
    assert "gpu_packet:tpu-v5e:int8" in rivals("tpu-v5e")
    assert "gpu_packet:tpu-v7:fp8" in rivals("tpu-v7")


def test_systems_are_left_out_by_name_or_word():
    names = rivals()
    assert left(names, ("gpu_ocs:b200:fp8",)) == tuple(one for one in names if one != "gpu_ocs:b200:fp8")
    assert not [
        one for one in left(names, ("b200", "photonic_ocs")) if "b200" in one or "photonic_ocs" in one
    ]
    with pytest.raises(ParameterError, match="did you mean 'b200'"):
        left(names, ("b20",))
    with pytest.raises(ParameterError, match="no system to compare"):
        build_systems(Request(systems=("gpu_packet",), without=("gpu_packet",)))


def test_the_table_has_a_row_for_each_system_within_80_columns(compared):
    records = compared.records()
    text = report_text([deciding_table("title", records, {"photonic_ocs:mzi_mesh": "no light"})], width=80)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.startswith((" gpu", " photonic"))}
    assert list(rows) == [*(one["system"] for one in records), "photonic_ocs:mzi_mesh"]
    told = [float(rows[one["system"]][0]) for one in records]
    times_s = [one["step_time_s"] for one in records]
    assert [one / told[-1] for one in told] == pytest.approx([one / times_s[-1] for one in times_s], rel=0.01)
    assert set(rows["photonic_ocs:mzi_mesh"]) == {"\u2013"}


def test_limits_of_light_that_are_passed_stand_once_beneath_the_table(compared):
    assert exceeded_limits(compared) == []  # arrays are as large as one packaged laser lights
    lit = [one for one in compared.results if one.system.photonic is not None]
    bright = [
        dataclasses.replace(one, system=one.system.with_(integration_symbols=64, laser_power_w=f"{power} W"))
        for one, power in zip((lit[0], lit[0]), (1.2, 0.9), strict=True)
    ]
    told = exceeded_limits(dataclasses.replace(compared, results=bright))
    assert any("1.20 W of one source" in " ".join(sentence.split()) for sentence in told)
    assert len(told) == len(set(told))
    assert all(len(line) <= 80 for sentence in told for line in sentence.splitlines())
    electronic = dataclasses.replace(compared, results=compared.results[:2])
    assert exceeded_limits(electronic) == []


def test_the_best_systems_are_those_of_the_least_numbers(compared):
    records = compared.records()
    told = best_of(records)
    for word, key in (
        ("time", "step_time_s"),
        ("energy", "energy_per_token_j"),
        ("cost", "usd_per_million_tokens"),
    ):
        name = min(records, key=lambda one, key=key: one[key])["system"]
        assert any(word in part and name in part for part in told.lower().split(";"))


def test_a_system_drowned_in_noise_is_the_best_at_nothing(compared):
    records = [dict(one) for one in compared.records()]
    drowned = min(records, key=lambda one: one["step_time_s"])
    drowned["snr_db"] = -4.9
    told = best_of(records)
    name = drowned["system"]
    assert told.endswith(f" {name} has more noise than signal.")
    assert name not in told.removesuffix(f" {name} has more noise than signal.").split(": ")


def test_what_binds_is_the_largest_share():
    record = {
        "step_time_s": 10.0,
        "time_by_category_s": {
            "products": 3.0,
            "products, memory-bound": 2.5,
            "other work, memory-bound": 1.0,
        },
    }
    assert binding(record) == "memory 35%"


def test_a_system_that_cannot_be_is_told_and_the_others_stand():
    asked = {"accelerators": N, "assignments": ("gpu.chip.tdp_w=160 W",)}
    built = build_systems(Request(systems=("gpu_packet", "photonic_packet:pcm_crossbar"), **asked))
    assert [one.name for one in built.systems] == ["gpu_packet"]
    assert "h100 gives 160 W" in built.refused["photonic_packet:pcm_crossbar"]
    with pytest.raises(BudgetError, match="h100 gives 160 W"):
        build_systems(Request(systems=("photonic_packet:pcm_crossbar",), **asked))


def test_a_plan_that_fits_one_format_only_leaves_the_other_in_its_row():
    found = hg.compare(
        ["gpu_packet:bf16", "gpu_packet:fp8"],
        "llama-3-70b",
        "tp=8,pp=2,zero=0,global_batch=16,recompute=full,sequence_length=2048",
    )
    assert [one.system.name for one in found.results] == ["gpu_packet:bf16"]
    assert "does not fit" in found.refused["gpu_packet:fp8"]
    assert [row["error"] is None for row in found.rows()] == [True, False]
    with pytest.raises(HeliographError, match="does not fit"):
        hg.compare(["gpu_packet:fp8"], "llama-3-70b", "tp=8,global_batch=16")


@pytest.mark.slow
def test_a_default_plan_fits_every_format():
    found = hg.compare(["gpu_packet:bf16", "gpu_packet:fp8"], "llama-3-8b")
    assert len(found.results) == 2


@pytest.mark.parametrize("options", [{"seed": 3}])
def test_options_of_training_are_refused_without_it(options):
    with pytest.raises(ParameterError, match="--accuracy"):
        Compare(**options)


def test_what_is_not_trained_has_no_line(compared):
    labels = [row.label for row in comparison_rows(compared.records())]
    assert not [one for one in labels if "loss" in one]
    assert UNRESOLVED not in str(comparison_rows(compared.records()))


def test_few_plans_and_more_than_usual_are_not_asked_for_together():
    with pytest.raises(ParameterError, match="leave one of them out"):
        hg.compare(["gpu_packet"], "gpt2", "dp=8,global_batch=8", quick=True, thorough=True)
