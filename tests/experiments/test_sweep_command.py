import json
import sys

import pytest

import heliograph as hg
from experiments.cli import BAD_INPUT
from experiments.hardware import Hardware, Workload
from experiments.study import Progress
from experiments.sweep import Sweep
from tests.builders import call, csv_rows

STUDY = """
model = "gpt2"
plan = "dp=8,global_batch=8"
[sweep]
laser_power_w = ["1 nW", "2 mW", "20 mW"]
"""


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "laser.toml"
    path.write_text(STUDY)
    return path


@pytest.mark.slow
def test_a_study_file_runs_resumes_tells_and_exports(capsys, study, tmp_path):
    code, out, error = call(capsys, "sweep", study, "--export", tmp_path / "grid.csv")
    assert code == 0, error
    assert "does not close" in " ".join(out.split())
    rows = csv_rows(tmp_path / "grid.csv")
    assert [float(row["laser_power_w"]) for row in rows] == pytest.approx([1e-9, 2e-3, 20e-3])
    assert [bool(row["error"]) for row in rows] == [True, False, False]
    status = json.loads(call(capsys, "sweep", study, "--status", "--json")[1])["sweeps"]
    assert [{key: one[key] for key in ("name", "points", "done", "failed", "left")} for one in status] == [
        {"name": "laser", "points": 3, "done": 2, "failed": 1, "left": 0}
    ]
    assert "sweep: 3 of 3" in call(capsys, "sweep", study)[2].splitlines()[0]
    assert "sweep: 2 of 3" in call(capsys, "sweep", study, "--retry-failed")[2].splitlines()[0]


def test_columns_that_are_asked_for_stand_in_the_table(capsys):
    words = ("--model", "gpt2", "--plan", "dp=8,global_batch=8", "--set", "laser_power_w=20mW,30mW")
    assert "energy_j" not in call(capsys, "sweep", *words)[1]
    assert "energy_j" in call(capsys, "sweep", *words, "--x", "energy_j")[1]


@pytest.mark.parametrize(
    ("system", "rival"),
    [
        ("photonic_packet:b200", "b200 in fp8 on packet rails, same plan"),
        ("gpu_ocs:h100:bf16", "h100 in bf16 on packet rails, same plan"),
        ("gpu_packet", None),
    ],
)
def test_a_picture_holds_light_and_circuits_against_a_gpu_on_packets(system, rival):
    plan = "dp=16,global_batch=16,sequence_length=512"
    ranges = ("host.chassis.price_usd=1e3,1e5", "nic.static_w=1,30")
    hardware = Hardware(settings=ranges)
    study = Sweep(
        system=system, workload=Workload(model="gpt2", plan=plan), y="energy_per_token_j", hardware=hardware
    )
    found = study.run(Progress())
    beside = found.beside()
    assert list(beside) == ([rival] if rival else [])
    labels = [line.get_label() for line in found.figure().axes[0].lines]
    assert (rival in labels) is (rival is not None)
    if rival:
        gpu, _, precision = rival.split()[:3]
        alone = hg.simulate(f"gpu_packet:{gpu}:{precision}", "gpt2", plan)
        assert {up for _, up in beside[rival]} == {alone.energy_per_token_j}


def test_what_the_file_says_is_not_said_again(capsys, study):
    for words in (("--set", "laser_power_w=1"), ("--system", "gpu_ocs"), ("--model", "gpt2")):
        code, _, error = call(capsys, "sweep", study, *words)
        assert code == BAD_INPUT
        assert "says what is swept" in error
    assert call(capsys, "sweep", study, "--export", "grid.xlsx")[0] == BAD_INPUT
    assert "run the sweep first" in call(capsys, "sweep", study, "--status")[2]


def test_points_that_nobody_keeps_are_not_retried(capsys):
    words = ("sweep", "--model", "gpt2", "--set", "laser_power_w=1mW,2mW", "--retry-failed")
    code, _, error = call(capsys, *words)
    assert code == BAD_INPUT
    assert "--retry-failed is not used: nothing is kept; say where with --store FILE" in " ".join(
        error.split()
    )


def test_without_what_writes_parquet_one_sentence_says_so(capsys, study, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, error = call(capsys, "sweep", study, "--export", tmp_path / "grid.parquet")
    assert code == BAD_INPUT
    assert "pip install 'heliograph[parquet]'" in error


def test_any_study_is_swept_by_its_options(capsys, tmp_path):
    path = tmp_path / "goodput.toml"
    path.write_text('study = "cost goodput"\n[fixed]\nfabric = "rails"\n[sweep]\nmachine = [1024, 4096]\n')
    code, out, error = call(capsys, "sweep", path, "--json")
    assert code == 0, error
    points = json.loads(out)["points"]
    assert {row["machine"] for row in points} == {1024, 4096}
    asked = json.loads(call(capsys, "cost", "goodput", "--fabric", "rails", "--machine", 1024, "--json")[1])
    assert asked["options"]["machine"] == 1024
    code, out, error = call(capsys, "sweep", path, "--y", "goodput", "--report", tmp_path / "page.html")
    assert code == 0, error
    assert "cost goodput: machine, accelerators, spares" in out
    assert "1024, 8, 0 " in out
    assert "goodput" in out.splitlines()[2].split()
    assert "heliograph cost goodput --help" in (tmp_path / "page.html").read_text()
    path.write_text('study = "cost godput"\n[sweep]\nmachine = [1]\n')
    code, _, error = call(capsys, "sweep", path)
    assert code == BAD_INPUT
    assert "did you mean 'cost goodput'" in error


@pytest.mark.slow
def test_lines_of_a_study_s_page_are_told_apart_as_those_of_its_picture(capsys, tmp_path):
    path = tmp_path / "circuits.toml"
    path.write_text(
        'study = "network circuits"\n[sweep]\nranks = [8, 16]\n'
        '[fixed]\ncollective = "all_reduce"\nsize = "1MB"\nplanes = 2\n'
    )
    words = ("--y", "makespan_s", "--report", tmp_path / "page.html", "--out", tmp_path)
    code, _, error = call(capsys, "sweep", path, *words)
    assert code == 0, error
    page, picture = (tmp_path / "page.html").read_text(), (tmp_path / "sweep.svg").read_text()
    for algorithm in {row["algorithm"] for row in csv_rows(tmp_path / "sweep.csv")}:
        assert f"</span>algorithm {algorithm}</li>" in page
        assert f"<!-- algorithm {algorithm} -->" in picture


def test_a_number_that_changes_no_result_is_told(capsys):
    """Products run in light, so that the clock of the GPU whose place it takes is of no use."""
    words = ("--model", "gpt2", "--plan", "dp=8,global_batch=8", "--set", "gpu.chip.clock_hz=1GHz,2GHz")
    code, out, error = call(
        capsys, "sweep", "--system", "photonic_packet", *words, "--set", "laser_power_w=0.1,0.2"
    )
    assert code == 0, error
    assert "gpu.chip.clock_hz changes no result: at all its values it is the same." in out
    assert "laser_power_w changes" not in out


def test_a_sweep_over_names_is_written_without_a_picture(capsys, tmp_path):
    words = ("--model", "gpt2", "--plan", "dp=8,global_batch=8", "--set", "precision=bf16,fp8")
    code, out, error = call(capsys, "sweep", "--system", "gpu_packet", *words, "--out", tmp_path)
    assert code == 0, error
    assert "No picture: no point has numbers for both precision and energy_per_token_j." in " ".join(
        out.split()
    )
    assert len(csv_rows(tmp_path / "sweep.csv")) == 2
    assert not (tmp_path / "sweep.png").exists()


def test_keys_of_a_plan_are_numbers_of_a_picture(capsys, tmp_path):
    words = ("--model", "gpt2", "--plan", "global_batch=8", "--set", "plan.dp=2,4")
    assert call(capsys, "sweep", "--system", "gpu_packet", *words, "--out", tmp_path)[0] == 0
    assert (tmp_path / "sweep.png").stat().st_size > 5_000


def test_a_picture_that_there_is_not_is_told(capsys, tmp_path):
    words = ("--model", "gpt2", "--plan", "dp=8,global_batch=8", "--set", "precision=bf16,fp8")
    code, _, error = call(capsys, "sweep", "--system", "gpu_packet", *words, "--out", tmp_path / "x.png")
    assert code == 0
    assert "is not written: this run has no picture" in " ".join(error.split())


OPTIMISED = STUDY.replace('["1 nW", "2 mW", "20 mW"]', '{ from = "2 mW", to = "20 mW" }')


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            STUDY.replace("laser_power", "laser_powr"),
            "laser.toml:5: sweep.laser_powr_w: no parameter",
        ),
        (f"{STUDY}[[zip]]\nlaser.rn = [1]\n", "laser.toml:7: zip.laser.rn: no parameter 'laser.rn'"),
        (STUDY.replace("1 nW", "2 mW"), "laser.toml:5: laser_power_w: 2 mW stands twice"),
        ("model = 'gpt2'\n[sweep]\n", "laser.toml:2: sweep: nothing to sweep"),
        (f"study = 'steep'{STUDY}", "laser.toml:1: study: no study 'steep'; did you mean 'step'?"),
        (
            f"{OPTIMISED}[optimise]\nminimise = 'step_tim_s'\n",
            "laser.toml:7: optimise.minimise: no column",
        ),
    ],
)
def test_a_wrong_name_in_a_study_file_is_told_with_its_line_and_nothing_is_run(capsys, study, text, says):
    study.write_text(text)
    code, out, error = call(capsys, "sweep", study)
    assert (code, out) == (BAD_INPUT, "")
    assert error.startswith(f"heliograph: {says}"), error
    assert not study.with_suffix(".sqlite").exists()
