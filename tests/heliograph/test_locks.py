import subprocess
import sys
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.cli import BAD_INPUT
from heliograph.records import reserve_directory, unlock, write_summary
from simulator.errors import HeliographError

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys
from pathlib import Path
from heliograph.records import reserve_directory, unlock, write_json, write_summary
directory = Path(sys.argv[1])
reserve_directory(directory, "other")
write_json(directory / "config.json", {"model": "other"})
print("reserved", flush=True)
sys.stdin.readline()
if len(sys.argv) > 2:
    write_summary(directory, "other", {"model": "other"})
    unlock(directory)
    print("written", flush=True)
    sys.stdin.readline()
"""


def holder(directory, *more):
    command = [sys.executable, "-c", HOLDER, str(directory), *more]
    started = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout.readline() == "reserved\n"
    return started


def test_two_runs_never_write_into_one_directory_at_once(tmp_path):
    with holder(tmp_path, "finish") as other:
        with pytest.raises(HeliographError, match="another run is writing into"):
            reserve_directory(tmp_path, "mine")
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "written\n"
        with pytest.raises(HeliographError, match="holds another run"):
            reserve_directory(tmp_path, "mine")
        assert "other" in (tmp_path / "config.json").read_text()
        other.communicate("\n")


@pytest.mark.slow
def test_a_study_does_not_write_where_another_runs(tmp_path, capsys):
    words = ["bill", "--accelerators", "64", "--out", str(tmp_path)]
    with holder(tmp_path) as other:
        assert main(["cost", *words]) == BAD_INPUT
        assert "another run is writing into" in capsys.readouterr().err
        assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
        other.communicate("\n")
    assert main(["cost", *words]) == 0
    assert {"bill.json", "bill.csv"} <= {path.name for path in tmp_path.iterdir()}


def test_a_study_writes_all_its_files_or_none(tmp_path, capsys, monkeypatch):
    def full(*_):
        msg = "the disk is full"
        raise HeliographError(msg)

    monkeypatch.setattr("experiments.study.draw", full)
    assert main(["cost", "bill", "--accelerators", "64", "--out", str(tmp_path)]) == BAD_INPUT
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_killed_leaves_its_directory_free(tmp_path):
    with holder(tmp_path) as other:
        other.kill()
        other.communicate()
    reserve_directory(tmp_path, "mine")


def test_one_process_reserves_and_then_writes(tmp_path):
    for _ in range(2):
        reserve_directory(tmp_path, "mine")
    write_summary(tmp_path, "mine", {})
    unlock(tmp_path)
    with holder(tmp_path / "next") as other:
        other.communicate("\n")
    reserve_directory(tmp_path, "mine")
