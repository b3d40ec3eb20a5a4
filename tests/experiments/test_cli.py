import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.cli import BAD_INPUT
from heliograph.systems.names import SYSTEMS
from heliograph.tables import hardware_price, tokens_price
from tests.builders import call

ROOT = Path(__file__).parents[2]
SMALL = ("--model", "llama-3-8b", "--plan", "tp=8,pp=2,dp=2,global_batch=16,sequence_length=2048")


def test_help_answers_without_heavy_imports():
    heavy = "'torch', 'numpy', 'scipy', 'matplotlib', 'simpy'"
    program = (
        "import sys\nfrom experiments.__main__ import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"assert not set(sys.modules) & {{{heavy}}}, sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "also"),
    [("gpu_ocs", ("scipy.linalg", "scipy.optimize")), ("photonic_ocs", ())],  # a laser is solved by scipy
)
def test_analytic_runs_start_without_what_takes_long_to_load(system, also):
    program = (
        "import sys\nfrom experiments.__main__ import main\n"
        f"assert main(['step', '--system', '{system}', *{SMALL!r}, '--json']) == 0\n"
        f"heavy = {{'torch', 'matplotlib', 'networkx', 'scipy.stats', *{also!r}}}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True)


@pytest.mark.parametrize("what", ["systems", "models", "cores", "fabrics", "devices", "parts"])
def test_everything_listed_can_be_shown_with_unit_and_source(capsys, what):
    code, out, _ = call(capsys, "list", what, "--json")
    assert code == 0
    for name in json.loads(out)["names"]:
        code, text, _ = call(capsys, "show", name, "--json")
        assert code == 0
        for parameter in json.loads(text)["parameters"]:
            assert parameter["unit"]
            assert parameter["status"]
            assert parameter["source"]


def test_step_prints_one_json_object(capsys):
    code, out, _ = call(capsys, "step", "--system", "photonic_ocs", *SMALL, "--json")
    record = json.loads(out)
    assert code == 0
    assert record["accelerators"] == 32
    assert record["plan"].startswith("tp=8,pp=2,dp=2")
    assert sum(record["time_by_category_s"].values()) == pytest.approx(record["step_time_s"])


def test_step_prints_a_table_and_writes_a_trace(capsys, tmp_path):
    path = tmp_path / "trace.json"
    code, out, _ = call(capsys, "step", "--system", "gpu_packet", *SMALL, "--trace", str(path))
    assert code == 0
    for word in ("step time", "pipeline bubble", "energy per token", "effective bits", "memory"):
        assert word in out
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}


def test_set_changes_one_number(capsys):
    plain, changed = (
        json.loads(call(capsys, "step", "--system", "photonic_packet", *SMALL, "--json", *extra)[1])
        for extra in (
            ("--set", "photonic.cores=48", "--set", f"laser_power_w={power} mW") for power in (20, 30)
        )
    )
    assert (
        changed["energy_by_component_j_per_token"]["laser"]
        > plain["energy_by_component_j_per_token"]["laser"]
    )
    assert changed["effective_bits"] > plain["effective_bits"]


COMPARED = ("compare", *SMALL, "--systems", ",".join(SYSTEMS), "--accelerators", "32", "--json")


def compared(out, *extra):
    """Compare, and return what is printed; without a fixture's streams, so that a run can be shared."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        assert main((*COMPARED, "--out", str(out), *extra)) == 0
    return json.loads(text.getvalue())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Directory of a finished comparison, which no test may change, and what it printed."""
    out = tmp_path_factory.mktemp("compared") / "run"
    return out, compared(out)


@pytest.mark.slow
def test_compare_writes_a_whole_run(finished):
    out, summary = finished
    names = {path.name for path in out.iterdir()}
    assert {"summary.json", "table.csv", "config.json", "trace.json", "step_time.png", "energy.png"} <= names
    assert [one["system"] for one in summary["systems"]] == list(SYSTEMS)
    config = json.loads((out / "config.json").read_text())
    assert config["table_sha256"]
    assert config["versions"]["numpy"]
    core = config["systems"]["photonic_ocs"]["photonic"]["core"]
    while "laser" not in core:  # within what rescues its precision
        core = core["core"]
    assert core["laser"]["wall_plug_efficiency"] > 0.0


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes_but_for_the_time_stamp(finished, tmp_path):
    out, _ = finished
    compared(tmp_path / "again")
    first, second = (
        [line for line in (run / "summary.json").read_text().splitlines() if "created" not in line]
        for run in (out, tmp_path / "again")
    )
    assert first == second
    assert (out / "trace.json").read_bytes() == (tmp_path / "again" / "trace.json").read_bytes()


@pytest.mark.slow
def test_a_change_applies_to_the_systems_that_have_the_parameter(finished, tmp_path):
    _, plain = finished
    changed = compared(tmp_path / "changed", "--set", "laser.wall_plug_efficiency=0.1")
    pairs = zip(plain["systems"], changed["systems"], strict=True)
    assert [a["energy_j"] != b["energy_j"] for a, b in pairs] == [False, False, True, True]


@pytest.mark.slow
def test_a_directory_that_cannot_be_used_is_told_before_the_training(finished, capsys, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setattr(
        "heliograph.comparison.comparison.train_all", lambda *_, **__: pytest.fail("trained first")
    )
    for out, says in ((finished[0], "another run"), (tmp_path / "file" / "run", "cannot make")):
        changed = (
            "--accelerators",
            "32",
            "--systems",
            "gpu_packet",
            "--accuracy",
            "--quick",
            "--out",
            str(out),
        )
        code, _, error = call(capsys, "compare", *SMALL, *changed)
        assert code == BAD_INPUT
        assert says in error


def test_step_names_no_file_that_it_does_not_write(capsys):
    _, out, _ = call(capsys, "step", *SMALL, "--system", "photonic_packet")
    assert "see --json" in out
    assert "table.csv" not in out


@pytest.mark.parametrize(
    ("hardware_usd", "tokens_usd", "shown"),
    [(35.66e6, 2.618, ("35.7 M$", "2.618 $")), (2.7e5, 6.263e-5, ("270 k$", "0.0000626 $"))],
)
def test_small_prices_keep_their_digits(hardware_usd, tokens_usd, shown):
    assert (hardware_price(hardware_usd), tokens_price(tokens_usd)) == shown


BAD = [
    (("list", "sistems"), "did you mean 'systems'"),
    (("show", "h10"), "did you mean 'h100'"),
    (("step", "--system", "gpu_pocket"), "did you mean 'gpu_packet'"),
    (("step", "--system", "gpu_packet", "--model", "lama-3-8b"), "did you mean 'llama-3-8b'"),
    (("step", "--system", "gpu_packet", "--model", "missing/config.json"), "missing/config.json"),
    (
        ("step", "--system", "gpu_packet", "--model", "llama-3-8b", "--plan", "tp=6"),
        "tensor (6) must divide heads (32)",
    ),
    (("step", "--system", "gpu_packet", *SMALL, "--accelerators", "64"), "64"),
    (("step", "--system", "gpu_packet", "--model", "llama-3-70b", "--plan", "tp=8,global_batch=1"), "GiB"),
    (("step", "--system", "gpu_packet", *SMALL, "--plan", "tp=8,pp=x"), "pp"),
    (("step", "--system", "gpu_packet", *SMALL, "--set", "gpu.chip.tdp_w=nan"), "tdp_w"),
    (("step", "--system", "gpu_packet", *SMALL, "--set", "gpu.chip.tdp_w=-5 W"), "tdp_w"),
    (("step", "--system", "gpu_packet", *SMALL, "--set", "gpu.chip.tdp_w=5 Hz"), "unit"),
    (("step", "--system", "gpu_packet", *SMALL, "--set", "gpu.chip.tpd_w=5"), "gpu.chip.tdp_w"),
    (("step", "--system", "photonic_packet", *SMALL, "--set", "laser_power_w=1 nW"), "does not close"),
    (("step", "--system", "gpu_ocs", *SMALL, "--set", "switch.insertion_loss_db=50"), "dB"),
    (("compare", "--systems", "gpu_packet,gpu_packet"), "once"),
    (("compare", "--accelerators", "7"), "7 accelerators"),
    (("compare", "--systems", ""), "system"),
    (("step", *SMALL, "--accelerators", "1000000000"), "accelerators must be at most 16,777,216"),
    (("step", "--system", "photonic_packet", *SMALL, "--set", "core.rows=1e9"), "no light is left"),
    (
        ("step", "--system", "gpu_ocs", *SMALL, "--set", "reconfiguration_time_s=1"),
        "known parameters:",
    ),
]


@pytest.mark.parametrize(("arguments", "says"), BAD, ids=[" ".join(a)[:60] for a, _ in BAD])
def test_bad_input_gets_one_sentence_and_exit_code_two(capsys, arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, error = call(capsys, *arguments)
    lines = [line for line in error.splitlines() if line.startswith("heliograph: ")]
    assert code == BAD_INPUT
    assert len(lines) == 1
    assert says in lines[0]
    assert "Traceback" not in error + out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("step", "--gpu="), "--gpu: is given without a value"),
        (("step", "--accelerators", "1_000"), "must be a whole number in plain digits"),
        (("network", "schedule", "1f1b", "--forward", "nan"), "must be a finite number"),
        (("network", "circuits", "--collective", "all_reduce", "--rate", "inf"), "must be a finite number"),
        (("list", "a\nb"), "list"),
        (("diff", "x" * 300, "y"), "name too long"),
        (("core", "crossbar", "--report", "nowhere/x.html"), "the directory nowhere does not exist"),
        (("sweep", "--set", "plan.dp=1,2", "--export", "nowhere/x.csv"), "the directory nowhere does not"),
        (("step", "--model", "gpt2", "--trace", "."), "it is a directory"),
        (("step", "--system", "gpu_packet@"), "names no fabric behind its @"),
        (("step", "--system", "mine.toml:fp8"), "words do not stand behind a file's name"),
        (("step", "--system", "my/mine.toml:fp8"), "words do not stand behind a file's name"),
        (("show", "mine.toml:fp8"), "words do not stand behind a file's name"),
        (("step", "--system", "gpu_packet@torus:fp8"), "a fabric stands last; write gpu_packet:fp8@torus"),
        (("step", "--modle", "gpt2"), "--modle gpt2; did you mean --model?; see heliograph step --help"),
        (("step", "--nosuch", "gpt2"), "--nosuch gpt2; see heliograph step --help"),
        (("cost", "bill", "--system", "gpu_packet"), "write its value alone, without --system"),
        (("cost", "goodput", "--gpu", "nosuch", "--fabric", "rails", "--machine", "64"), "no GPU 'nosuch'"),
        (("accuracy", "training", "--model", "nosuch"), "no model 'nosuch' to train"),
        (("cost", "waste", "--seed", "-1"), "seed must be at least 0"),
        (("accuracy", "predict", "--system", ","), "--system: is given without a value"),
        (("network", "schedule", "1f1b", "--chunks", "7"), "--chunks (7) is not used"),
        (("network", "schedule", "zb_v", "--gpu", "h100"), "--gpu (h100) is not used"),
        (("network", "schedule", "gpt2", "--plan", "dp=8", "--stages", "7"), "--stages (7) is not used"),
        (("network", "schedule", "zb_v", "--forward", "1e308"), "must be at most 1e+15"),
        (("network", "flows", "nowhere.csv", "--size", "2MB"), "--size (2000000.0) is not used"),
        (("network", "flows", "nowhere.csv", "--intervals", "1000000000"), "at most 100000"),
        (
            ("network", "links", "gpu_packet", "--bins", "1000000000"),
            "bins must be at least 1 and at most 10000",
        ),
        (("network", "breakeven", "--points", "1000000"), "points (1000000) must be 2, for a line, to 1000"),
        (("network", "circuits", "--collective", "all_reduce", "--reconfiguration", "-1us"), "at least 0"),
        (("network", "spreading", "--seeds", "1000000000"), "seeds must be at least 1 and at most 1000"),
        (("network", "spreading", "--queue-pairs", "1000000000"), "must be whole numbers of 1 to 1024"),
        (("cost", "waste", "--nodes", "100000000"), "nodes must be at most 1,000,000"),
        (("cost", "waste", "--data", "faults.json", "--failed", "0.1"), "--failed (0.1) is not used"),
        (("cost", "goodput", "--fabric", "rails", "--fabric", "rails"), "rails is given twice"),
        (("cost", "goodput", "--set", "hosts.mtbf_s=1h", "--set", "hosts.mtbf_s=2h"), "given twice"),
        (("core", "parts", "crossbar", "--target", "inf"), "finite number of decibels"),
        (("core", "rescue", "--target", "nan", "--quick"), "finite number of decibels"),
        (("compare", "--quick", "--thorough"), "leave one of them out"),
        (("core", "crossbar", "--out", "core.pdf"), "to a picture that ends in .png or .svg"),
        (("step", "--system", "photonic_packet", "--core", "mine.py"), "write mine.py:NAME"),
        (("step", "--set", "accelerators=4"), "'accelerators' is no parameter of a system"),
        (("step", "--set", "gpu=b200"), "'gpu' is no parameter of a system"),
    ],
)
def test_an_odd_value_gets_one_sentence(capsys, words, says):
    code, _, error = call(capsys, *words)
    assert code == BAD_INPUT
    assert says in error
    assert error.count("\n") == 1


def test_what_needs_more_memory_than_there_is_gets_one_sentence(capsys, monkeypatch):
    def ask(*_):
        raise MemoryError

    monkeypatch.setattr("experiments.cost.stranded.random_faults", ask)
    assert call(capsys, "cost", "waste") == (
        BAD_INPUT,
        "",
        "heliograph: there is not enough memory for what is asked; ask for less\n",
    )


def test_a_laser_left_as_it_stands_may_be_set(capsys):
    words = ("step", "--system", "photonic_packet", *SMALL, "--set", "laser_power_w=50mW", "--json")
    alone, told = (
        json.loads(call(capsys, *words, *more)[1]) for more in ((), ("--precision-target", "none"))
    )
    assert told["laser_line_w"] == alone["laser_line_w"] == 0.05
    code, _, error = call(capsys, *words, "--precision-target", "fp8")
    assert code == BAD_INPUT
    assert "leave one of them out" in error


def test_a_closed_output_is_told_before_anything_is_run():
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m experiments list cores >&-"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == BAD_INPUT
    assert done.stderr == "heliograph: cannot write the output: standard output is closed\n"


@pytest.mark.slow
def test_no_option_of_any_command_ends_in_a_traceback():
    """A few of the 13,000 cases that `hostile_options.py` tries when it is run as a program."""
    light = ("step", "sweep", "diff", "cost", "network", "validate", "list")  # quick to import
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("hostile_options.py")), "24", *light],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert json.loads(done.stdout) == {}, done.stderr


def test_debug_shows_the_traceback():
    with pytest.raises(Exception, match="systems"):
        main(["list", "sistems", "--debug"])


def test_the_module_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "experiments", "list", "sistems"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == BAD_INPUT
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "idle"),
    [("gpu.chip.flops_per_cycle=1", True), ("core.chip_seed=7", True), ("core.symbol_rate_hz=6e9", False)],
)
def test_a_number_that_changes_nothing_of_a_step_is_told(capsys, setting, idle):
    asked = ["step", "--system", "photonic_packet", "--model", "gpt2", "--plan", "dp=2,global_batch=2"]
    assert main([*asked, "--set", setting]) == 0
    assert (f"--set {setting} changes nothing of this step" in capsys.readouterr().err) is idle
