"""An option that is not used is an error, and the command line wins over a file."""

import json

import pytest

import heliograph as hg
from experiments.__main__ import main
from experiments.cli import BAD_INPUT
from heliograph.comparison.comparison import Request, build_systems
from heliograph.systems import build_system
from simulator.errors import ParameterError

N = 8
WHOLE = """
base = "photonic_packet"
gpu = "a100"
fabric = "torus"
core = "mzi_mesh"
basis = "area"
accelerators = 4
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.toml"

    def write(text):
        path.write_text(text)
        return str(path)

    return write


CONTRADICTIONS = [
    ("photonic_packet:mzi_mesh", {"core": "crossbar"}, "core 'crossbar' contradicts system"),
    ("gpu_packet@torus", {"fabric": "rails"}, "fabric 'rails' contradicts system 'gpu_packet@torus'"),
    ("gpu_ocs", {"fabric": "torus"}, "has optical circuits for a fabric; write gpu_packet@torus"),
    ("photonic_ocs", {"fabric": "torus"}, "write photonic_packet@torus"),
    ("photonic_ocs:mzi_mesh", {"fabric": "torus"}, "write photonic_packet@torus"),
    ("gpu_packet", {"core": "mzi_mesh"}, "core 'mzi_mesh' is not used"),
    ("gpu_packet", {"basis": "area"}, "basis 'area' is not used"),
    ("gpu_ocs", {"basis": "power"}, "basis 'power' is not used"),
]


@pytest.mark.parametrize(("name", "options", "says"), CONTRADICTIONS)
def test_what_contradicts_a_name_is_refused_with_the_way_out(name, options, says):
    for build in (build_system, hg.system):
        with pytest.raises(ParameterError, match=says) as caught:
            build(name, accelerators=N, **options)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "same"),
    [
        ("photonic_packet:mzi_mesh", {"core": "mzi_mesh"}, "photonic_packet:mzi_mesh"),
        ("gpu_packet@torus", {"fabric": "torus"}, "gpu_packet@torus"),
        ("gpu_ocs", {"fabric": "ocs_rails"}, "gpu_ocs"),
    ],
)
def test_saying_the_same_twice_is_no_contradiction(name, options, same):
    assert build_system(name, accelerators=N, **options) == build_system(same, accelerators=N)


def test_the_command_line_wins_over_a_file(file):
    asked = {"gpu": "h100", "fabric": "fat_tree", "core": "crossbar", "basis": "power"}
    found = build_system(file(WHOLE), accelerators=N, **asked)
    wanted = build_system("photonic_packet", accelerators=N, **asked)
    assert (found.gpu, found.fabric, found.photonic) == (wanted.gpu, wanted.fabric, wanted.photonic)
    assert (found.basis, found.accelerators, found.name) == ("power", N, "mine")


def test_a_file_holds_where_the_command_line_is_silent(file):
    found = build_system(file(WHOLE), usual_accelerators=64)
    wanted = build_system(
        "photonic_packet", accelerators=4, gpu="a100", fabric="torus", core="mzi_mesh", basis="area"
    )
    assert (found.gpu, found.fabric, found.photonic) == (wanted.gpu, wanted.fabric, wanted.photonic)


def test_the_core_of_a_file_s_base_gives_way_too(file):
    found = build_system(file('base = "photonic_packet:mzi_mesh"\n'), accelerators=N, core="ring_bank")
    assert found.photonic == build_system("photonic_packet:ring_bank", accelerators=N).photonic


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('base = "gpu_packet"\ncore = "crossbar"\n', "mine.toml:2: core 'crossbar' is not used"),
        ('base = "gpu_packet"\n\nbasis = "area"\n', "mine.toml:3: basis 'area' is not used"),
        ('base = "gpu_ocs"\nfabric = "torus"\n', "mine.toml:2: fabric 'torus' contradicts"),
        ('base = "photonic_ocs:mzi_mesh"\ncore = "crossbar"\n', "mine.toml:2: core 'crossbar' contradicts"),
        ('base = "gpu_packet"\naccelerators = "many"\n', "mine.toml:2: accelerators must be a whole number"),
    ],
)
def test_a_file_that_contradicts_itself_names_the_line(file, text, says):
    with pytest.raises(ParameterError, match=f"^{says}"):
        build_system(file(text))


def test_an_option_against_the_base_of_a_file_is_refused(file):
    with pytest.raises(ParameterError, match="write gpu_packet@torus"):
        build_system(file('base = "gpu_ocs"\n'), accelerators=N, fabric="torus")
    with pytest.raises(ParameterError, match="is not used"):
        build_system(file('base = "gpu_packet"\n'), accelerators=N, core="crossbar")


@pytest.mark.parametrize(
    "assignments",
    [
        ("laser_power_w=1 mW", "laser_power_w=2 mW"),
        ("laser_power_w=1 mW", "photonic.core.laser_power_w=1 mW"),
        ("core.adc=adc_survey_7b", "photonic.core.adc=adc_survey_8b"),
    ],
)
def test_a_parameter_set_twice_is_refused(assignments):
    with pytest.raises(ParameterError, match=r"is already set, to .*; leave one of them out"):
        build_system("photonic_packet", accelerators=N, assignments=assignments)


def test_a_command_may_set_what_a_file_sets(file):
    path = file('base = "photonic_packet:block_float"\n[photonic.core]\nlaser_power_w = "30 mW"\n')
    found = build_system(path, accelerators=N, assignments=("laser_power_w=20 mW",))
    assert found.laser_power_w == 0.02
    assert found.settings == (("photonic.core.core.laser_power_w", "20 mW"),)


def test_compare_uses_an_option_where_it_fits():
    request = Request(systems=("gpu_packet", "photonic_packet", "photonic_packet:mzi_mesh"), accelerators=N)
    asked = Request(**{**vars(request), "core": "ring_bank", "basis": "area"})
    gpu, chosen, named = build_systems(asked).systems
    assert gpu == build_system("gpu_packet", accelerators=N)
    assert chosen == build_system("photonic_packet", accelerators=N, core="ring_bank", basis="area")
    assert named == build_system("photonic_packet:mzi_mesh", accelerators=N, basis="area")


@pytest.mark.parametrize(
    ("systems", "options", "says"),
    [
        (("gpu_packet", "gpu_ocs"), {"core": "crossbar"}, "core 'crossbar' is not used"),
        (("gpu_ocs", "gpu_packet@torus"), {"fabric": "rails"}, "fabric 'rails' contradicts"),
        (("gpu_packet",), {"basis": "area"}, "basis 'area' is not used"),
    ],
)
def test_compare_refuses_an_option_that_fits_no_system(systems, options, says):
    with pytest.raises(ParameterError, match=says):
        build_systems(Request(systems=systems, accelerators=N, **options))


def test_compare_takes_the_accelerators_of_the_plan(capsys, tmp_path):
    plan = "tp=8,dp=2,global_batch=16,sequence_length=2048"
    arguments = ("compare", "--model", "llama-3-8b", "--plan", plan, "--json")
    assert main([*arguments, "--systems", "gpu_packet", "--out", str(tmp_path / "run")]) == 0
    assert json.loads(capsys.readouterr().out)["accelerators"] == 16


def test_the_command_line_refuses_what_it_would_not_use(capsys):
    for arguments in (
        ("--system", "gpu_packet", "--basis", "area"),
        ("--system", "gpu_packet", "--core", "mzi_mesh"),
        ("--system", "gpu_ocs", "--fabric", "torus"),
        ("--system", "photonic_packet", "--set", "laser_power_w=1 mW", "--set", "laser_power_w=2 mW"),
    ):
        assert main(["step", "--model", "gpt2", "--accelerators", "8", *arguments]) == BAD_INPUT
        assert capsys.readouterr().err.count("\n") == 1
