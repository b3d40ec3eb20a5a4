"""One driver for every study: options from fields, old names, files, records, widths, and clean ends."""

import csv
import dataclasses
import importlib
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from experiments.cli import BAD_INPUT, COMMANDS, INTERRUPTED, RENAMED, SUBJECTS, Output, drive
from experiments.hardware import Hardware
from experiments.study import Parser, Result, Study, add_options, option, options_of, study_from
from experiments.sweep import values_of
from heliograph import __version__
from heliograph.comparison.plan_estimates import Objective
from heliograph.records import SCHEMA
from heliograph.report import ReportRow, in_encoding, print_report, table_text
from simulator.errors import HeliographError, ParameterError
from tests.builders import call

ROOT = Path(__file__).parents[2]
HEAD = ("schema", "version", "command", "model", "plan", "system", "settings", "seed", "options", "files")
SMALL = ("--model", "llama-3-8b", "--plan", "tp=8,dp=2,global_batch=16,sequence_length=2048")


@dataclass(frozen=True, kw_only=True)
class Sum(Result):
    """An exercise: what a new study takes."""

    total: float

    def report(self):
        return [f"They add up to {self.total:g}."]

    def record(self):
        return {"total": self.total}

    def rows(self):
        return [{"total": self.total}]


@dataclass(frozen=True, kw_only=True)
class Adding(Study):
    """Numbers that are added up."""

    numbers: tuple[float, ...] = option(..., "numbers", commas=True)
    delay_s: float = option(0.0, "a time", metavar="TIME")
    kind: Objective = option(Objective.TIME, "a choice")
    twice: bool = option(False, "count them twice")
    hardware: Hardware = dataclasses.field(default_factory=Hardware)
    seed: int = option(0, "first seed")

    def run(self, progress):
        progress.keep(Sum(total=self.numbers[0]))
        return Sum(total=sum(self.numbers) * (2 if self.twice else 1))


def parsed(*words):
    parser = Parser(prog="x")
    add_options(parser, Adding)
    return study_from(Adding, parser.parse_args(words))


def driven(**changes):
    return Output(**({"json": False, "csv": False, "debug": False, "out": None} | changes))


def program(*words, **environment):
    shown = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    command = [sys.executable, "-m", "experiments", *words]
    return subprocess.run(
        command, cwd=ROOT, env=shown | environment, capture_output=True, check=False, timeout=120
    )


def test_fields_are_options_with_units_choices_flags_and_groups():
    words = ("--delay", "25us", "--kind", "energy", "--twice", "--core", "homodyne")
    study = parsed("--numbers", "1,2,3", *words)
    assert study.numbers == (1.0, 2.0, 3.0)
    assert study.delay_s == pytest.approx(25e-6)
    assert study.kind is Objective.ENERGY
    assert study.twice
    assert study.hardware.core == "homodyne"
    assert parsed("--numbers", "1", "--set", "a=1", "--set", "b=2").hardware.settings == ("a=1", "b=2")
    assert options_of(study)["core"] == "homodyne"
    assert set(options_of(study)) >= {"numbers", "delay_s", "gpu", "settings", "seed"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--numbers"),
        (("--numbers", "1", "--delay", "3 GB"), "unit 'GB' does not fit"),
        (("--numbers", "1", "--kind", "enrgy"), "did you mean 'energy'?"),
        (("--numbers", "1", "--core", "a", "--core", "b"), "--core is given twice (a, b)"),
        (("--numbers", "one"), "--numbers"),
        (("--numbers", "1", "--nothing", "2"), "--nothing"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_that_names_the_option(words, message):
    with pytest.raises(ParameterError, match=re.escape(message)) as caught:
        parsed(*words)
    assert "x --help" in str(caught.value)


def test_a_field_without_a_text_is_no_option():
    @dataclass(frozen=True)
    class Silent(Study):
        """Says nothing."""

        number: int = 1

    with pytest.raises(TypeError, match="'number' of Silent says nothing"):
        add_options(Parser(prog="x"), Silent)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_a_study_whose_fields_are_options(name):
    module, _, kind = COMMANDS[name].study.partition(":")
    study = getattr(importlib.import_module(module), kind)
    assert dataclasses.is_dataclass(study)
    assert study.__dataclass_params__.frozen
    parser = Parser(prog=name)
    add_options(parser, study)
    assert all(action.help for action in parser._actions)


def test_help_names_every_command_once_and_each_subject_its_own(capsys):
    code, out, _ = call(capsys, "--help")
    assert code == 0
    firsts = [line.split()[0] for line in out.splitlines() if re.match(r"  [a-z]", line)]
    assert firsts == list(dict.fromkeys(name.split()[0] for name in COMMANDS))
    for subject in SUBJECTS:
        _, text, _ = call(capsys, subject, "--help")
        seconds = [name.split()[1] for name in COMMANDS if name.startswith(f"{subject} ")]
        assert [line.split()[0] for line in text.splitlines() if re.match(r"  [a-z]", line)] == seconds
        assert all(one in out for one in seconds)


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_tells_the_new_one(capsys, old):
    code, out, err = call(capsys, old, "--json")
    assert (code, out) == (BAD_INPUT, "")
    assert f"heliograph {RENAMED[old]}" in err
    assert err.count("\n") == 1
    assert RENAMED[old] in COMMANDS


@pytest.mark.parametrize("words", [("stepp",), ("network",), ("cost", "bil"), ("accuracy", "--system", "x")])
def test_a_word_that_names_no_command_is_one_sentence_or_help(capsys, words):
    code, out, err = call(capsys, *words)
    if words == ("network",):
        assert (code, err) == (0, "")
        assert "breakeven" in out
    else:
        assert (code, out) == (BAD_INPUT, "")
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("step", *SMALL),
        ("list", "systems"),
        ("show", "crossbar"),
        ("cost", "waste", "--nodes", "90"),
        ("network", "schedule", "1f1b"),
        ("network", "circuits", "--collective", "all_to_all", "--ranks", "4"),
    ],
)
def test_every_record_and_table_has_the_same_head(capsys, tmp_path, words):
    code, out, _ = call(capsys, *words, "--json", "--out", tmp_path)
    record = json.loads(out)
    assert code == 0
    assert set(record) > set(HEAD)
    assert (record["schema"], record["version"]) == (SCHEMA, __version__)
    assert f"{record['command']} ".startswith(f"{words[0]} ")
    assert {Path(one).parent for one in record["files"]} == {tmp_path}
    written = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert written == {key: value for key, value in record.items() if key != "files"}
    code, text, _ = call(capsys, *words, "--csv", "--out", tmp_path)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert rows
    assert next(iter(rows[0])) == "version"
    assert all(None not in row.values() for row in rows)


def test_the_page_on_records_names_the_head_and_every_command():
    text = (ROOT / "docs" / "records.md").read_text()
    section = text[text.index("## JSON records") :]
    assert all(f"`{key}`" in section for key in HEAD)
    keys = section[section.index("| command | keys |") :]
    assert all(f"`{name}" in keys for name in COMMANDS)


def test_out_may_name_a_picture(capsys, tmp_path):
    code, out, _ = call(capsys, "network", "schedule", "1f1b", "--out", tmp_path / "mine.png")
    assert code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.png", "mine.svg"]
    assert "mine.png" in out


class Stopped(Adding):
    """The same, stopped half way."""

    def run(self, progress):
        super().run(progress)
        raise KeyboardInterrupt


def test_what_is_finished_is_written_when_it_is_stopped(tmp_path):
    """And not in place of what came to its end."""
    record = tmp_path / "run" / "step.json"
    with pytest.raises(KeyboardInterrupt):
        drive("step", Stopped(numbers=(4.0, 5.0)), driven(out=tmp_path / "run"))
    assert json.loads(record.read_text())["total"] == 4.0
    assert json.loads(record.read_text())["stopped"] is True
    drive("step", Adding(numbers=(4.0, 5.0)), driven(out=tmp_path / "run"))
    whole = json.loads(record.read_text())
    assert whole["total"] == 9.0
    assert whole["options"]["numbers"] == [4.0, 5.0]
    assert "stopped" not in whole
    with pytest.raises(KeyboardInterrupt):
        drive("step", Stopped(numbers=(4.0, 5.0)), driven(out=tmp_path / "run"))
    assert json.loads(record.read_text()) == whole


def test_a_record_is_never_lost_to_another_question(tmp_path):
    """The same may be asked again; what answers something else is refused before anything runs."""
    out = driven(out=tmp_path)
    drive("step", Adding(numbers=(4.0,)), out)
    first = (tmp_path / "step.json").read_bytes()
    drive("step", Adding(numbers=(4.0,)), out)
    assert (tmp_path / "step.json").read_bytes() == first
    with pytest.raises(HeliographError, match=r"is of another run \(other 'numbers', 'twice'\)"):
        drive("step", Adding(numbers=(5.0,), twice=True), out)
    drive("diff", Adding(numbers=(5.0,)), out)  # files of another name
    (tmp_path / "step.json").write_bytes(first.replace(b'"0.', b'"9.'))
    with pytest.raises(HeliographError, match=r"another run \(other version\)"):
        drive("step", Adding(numbers=(4.0,)), out)
    (tmp_path / "step.json").write_text('{"hidden_size": 512}')
    with pytest.raises(HeliographError, match="no record of this program"):
        drive("step", Adding(numbers=(4.0,)), out)
    assert (tmp_path / "step.json").read_text() == '{"hidden_size": 512}'


def test_files_that_nobody_placed_go_into_a_new_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Adding, "directory", "sum_{seed}")
    for seed in (0, 0, 1):
        drive("step", Adding(numbers=(4.0,), seed=seed), driven())
    assert sorted(path.parent.name for path in tmp_path.rglob("step.json")) == ["sum_0", "sum_0-2", "sum_1"]


def test_nothing_stays_of_a_directory_for_which_nothing_came(capsys, tmp_path):
    code, _, _ = call(capsys, "step", "--system", "nosuch", "--out", tmp_path / "new")
    assert code == BAD_INPUT
    assert not (tmp_path / "new").exists()


def test_ctrl_c_is_one_sentence(capsys, monkeypatch):
    def interrupted(words):
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.cli.run", interrupted)
    code, out, err = call(capsys, "list", "systems")
    assert (code, out) == (INTERRUPTED, "")
    assert err == "heliograph: interrupted; what was written until now stays\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_output_is_one_sentence():
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "experiments", "list", "systems"]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == BAD_INPUT
    assert done.stderr.decode().startswith("heliograph: cannot write the output: No space left")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.slow
def test_no_backend_of_a_screen_is_asked_for(tmp_path):
    words = ("network", "schedule", "1f1b", "--out", str(tmp_path / "x.png"))
    assert program(*words, MPLBACKEND="nonsense").returncode == 0
    assert (tmp_path / "x.png").exists()


def test_tables_keep_numbers_and_words_whole_at_any_width(capsys, monkeypatch):
    def told(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        return call(capsys, "step", "--system", "photonic_packet", *SMALL)[1]

    rules = {"\u2500" * n for n in range(600)}
    wide = set(told(500).split())
    for columns in (60, 80, 100, 200):
        text = told(columns)
        assert max(map(len, text.splitlines()[1:])) <= columns
        assert set(text.split()) - rules <= wide


def test_text_is_broken_between_words_on_a_terminal_alone(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    text = "  " + " ".join(f"word-{number}" for number in range(40))
    monkeypatch.setenv("COLUMNS", "60")
    for stream, most in ((Terminal(), 60), (io.StringIO(), len(text))):
        print_report([text, "short"], stream=stream)
        *broken, short = stream.getvalue().splitlines()
        assert most - 9 <= max(map(len, broken)) <= most
        assert short == "short"
        assert all(line.startswith("  word-") for line in broken)
        assert " ".join(broken).split() == text.split()


def test_several_systems_stand_in_blocks_where_they_do_not_fit():
    rows = [
        ReportRow("step time", ("1,281,198 mJ/token",) * 4, "simulated"),
        ReportRow("plan", ("tp=8,pp=4,global_batch=1,024,seed=3",) * 4, ""),
    ]
    heads = ("gpu_packet", "gpu_ocs", "photonic_packet:mzi_mesh", "photonic_ocs@rails")
    text = table_text("Title", heads, rows, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("1,281,198 mJ/token") == 4
    assert text.count("step time") > 1
    assert text.count("global_batch=1,024") == 4
    assert table_text("Title", heads, rows, width=400).count("step time") == 1


def test_letters_that_an_encoding_lacks_have_plain_ones():
    assert in_encoding("814 mm\u00b2, 3 \u00b5s \u00b1 1 \u2013 2", "ascii") == "814 mm2, 3 us +- 1 - 2"
    assert in_encoding("814 mm\u00b2", "utf-8") == "814 mm\u00b2"
    done = program("show", "crossbar", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert b"?" not in done.stdout


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("laser_power_w=2 mW,15 mW", ("2 mW", "15 mW")),
        ("laser_power_w=1 mW:4 mW:4", pytest.approx((1e-3, 2e-3, 3e-3, 4e-3))),
        ("laser_power_w=1 mW:8 mW:4:log", pytest.approx((1e-3, 2e-3, 4e-3, 8e-3))),
        ("core=crossbar,mzi_mesh", ("crossbar", "mzi_mesh")),
        ("core=mine.py:Mine", ("mine.py:Mine",)),
    ],
)
def test_values_of_a_sweep(text, values):
    assert values_of(text)[1] == values


@pytest.mark.parametrize(
    "text",
    ["a_w=1:2:1", "a_w=1:2:x", "a_w=0:2:3:log", "a_w=1:2:3:lin", "a_w=1 m:2:3", "a_w=1:2:3:log:5", "a_w"],
)
def test_a_range_that_makes_no_sense_is_refused(text):
    with pytest.raises(HeliographError):
        values_of(text)


def test_a_sweep_prints_writes_and_draws(capsys, tmp_path):
    swept = ("--set", "laser_power_w=2 mW,200 mW", "--set", "wall_plug_efficiency=0.05:0.2:2")
    code, out, _ = call(capsys, "sweep", *SMALL, *swept, "--json", "--out", tmp_path)
    record = json.loads(out)
    assert code == 0
    points = record["points"]
    assert len(points) == 4
    by_power = {one["laser_power_w"]: one["energy_per_token_j"] for one in points[::2]}
    assert (
        by_power[2e-3] < by_power[0.2]
    )  # far apart: cores are a whole number, and fewer fit with more light
    step = json.loads(
        call(
            capsys,
            *("step", "--system", "photonic_packet", *SMALL, "--json"),
            *("--set", "laser_power_w=2 mW", "--set", "wall_plug_efficiency=0.05"),
        )[1]
    )
    assert points[0]["step_time_s"] == step["step_time_s"]
    assert points[0]["energy_per_token_j"] == step["energy_per_token_j"]
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".csv", ".png", ".svg"}
    for words in (("--y", "nosuch", *swept), (), ("--set", "laser_power_w=1", "--set", "laser_power_w=2")):
        assert call(capsys, "sweep", *SMALL, *words)[0] == BAD_INPUT
