"""Jobs shared out over processes as torchrun starts them."""

import json
import os
import socket
import subprocess
import sys

import pytest

from experiments.__main__ import main
from experiments.cli import BAD_INPUT
from heliograph import processes
from heliograph import processes as ranks
from heliograph.records import versions
from simulator.errors import ParameterError
from tests.heliograph import two_ranks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What rank 0 of two processes wrote, and where."""
    directory = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    words = [sys.executable, "-m", "tests.heliograph.two_ranks", str(directory)]
    written = [directory / f"{rank}.err" for rank in range(2)]
    started = []
    for rank, path in enumerate(written):
        with path.open("w") as errors:
            started.append(subprocess.Popen(words, env=shared | {"RANK": str(rank)}, stderr=errors))
    try:
        assert [one.wait(timeout=120) for one in started] == [0, 0], [path.read_text() for path in written]
    finally:
        for one in started:
            one.kill()
    return json.loads((directory / "found.json").read_text()), directory


def test_both_processes_work_at_once(found):
    assert len(set(found[0]["processes"])) == 2


def test_shared_training_gives_the_numbers_of_one_process(found, tmp_path, monkeypatch):
    monkeypatch.setattr(processes.os, "cpu_count", lambda: 1)
    alone = two_ranks.trained(tmp_path)
    assert json.loads(json.dumps(alone)) == found[0]["trained"]
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert kept == {path.name: path.read_bytes() for path in (found[1] / "shared").iterdir()}
    assert len(kept) == 2


def test_what_a_job_refuses_rank_0_tells(found):
    assert found[0]["refusal"] == "job (1) must be 0"


def test_warnings_of_all_processes_reach_rank_0_alone(found):
    """Else each process would print a line of its own about the same converter."""
    assert found[0]["warnings"] == [0.2, 0.4]
    assert not any("clipping" in (found[1] / f"{rank}.err").read_text() for rank in range(2))


def test_without_torchrun_there_is_one_process():
    assert ranks.join({}) is None
    assert ranks.join({"RANK": "0", "WORLD_SIZE": "1"}) is None
    assert ranks.joined() is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "must be a number below WORLD_SIZE"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, r"RANK \(one\) must be a number"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, "MASTER_PORT is not"),
    ],
)
def test_a_wrong_environment_is_refused(given, said):
    with pytest.raises(ParameterError, match=said):
        ranks.join(given)


def test_a_command_tells_a_wrong_environment_in_one_line(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["list", "fabrics"]) == BAD_INPUT
    assert capsys.readouterr().err.startswith("heliograph: RANK (5)")


def test_another_version_does_no_job():
    """Its numbers would differ, and the text that is learnt is that of the Python at hand."""
    here = versions()
    one, error = ranks._outcome(here, 1, str, 3)
    assert (one.result, error) == ("3", None)
    result, error = ranks._outcome(here | {"torch": "0.1"}, 1, str, 3)
    assert result is None
    assert "rank 1 has torch" in str(error)
