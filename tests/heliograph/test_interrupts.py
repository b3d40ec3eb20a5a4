import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from experiments.__main__ import main
from heliograph.processes import GRACE_S, LINE_EVERY_S, reporting, run_all
from simulator.errors import ParameterError

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


@contextmanager
def interrupted(directory):
    """Long jobs in a process of their own, which got one interrupt as soon as a job had begun."""
    jobs = [directory / "a", directory / "b", directory / "c"]
    command = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("long_jobs.py")), *map(str, jobs)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not any(job.exists() for job in jobs):
            assert time.monotonic() < deadline, "no job began"
            time.sleep(0.05)
        os.killpg(command.pid, signal.SIGINT)
        yield command
    finally:
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGKILL)


@pytest.mark.parametrize("gap_s", [0.0, 0.5])
def test_a_second_interrupt_ends_the_jobs_at_once(tmp_path, gap_s):
    with interrupted(tmp_path) as command:
        assert "Ctrl-C again" in command.stderr.readline()
        time.sleep(gap_s)
        os.killpg(command.pid, signal.SIGINT)
        _, error = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 130
    assert "stopped" in error.splitlines()  # Python's tracker of semaphores may add what it found unlinked


@pytest.mark.slow
def test_the_first_interrupt_ends_long_jobs_within_five_seconds(tmp_path):
    with interrupted(tmp_path) as command:
        began = time.monotonic()
        command.communicate(timeout=PATIENCE_S)
        took_s = time.monotonic() - began
    assert command.returncode == 130
    assert GRACE_S / 2.0 < took_s < 5.0 + 5.0  # five seconds, and as many more on a busy machine


class Pressing:
    """An import of the command line in whose midst Ctrl-C is pressed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "experiments.cli":
            raise KeyboardInterrupt


def test_ctrl_c_while_a_command_starts_ends_it_with_a_sentence(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "experiments.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Pressing, *sys.meta_path])
    assert main(["list", "systems"]) == 130
    assert capsys.readouterr().err == "heliograph: interrupted; what was written until now stays\n"


def test_nothing_is_imported_before_ctrl_c_is_guarded():
    """What stands above `main` in its module is what Python has loaded before it, so it takes no time."""
    program = (
        "import sys; before = set(sys.modules); import experiments.__main__; "
        "sys.exit(repr(set(sys.modules) - before - {'experiments', 'experiments.__main__'}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {program}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.strip() == "{'__future__'}"


def test_ctrl_c_during_the_set_up_ends_it_with_a_sentence(monkeypatch, capsys):
    def pressed():
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.__main__._set_up", pressed)
    assert main(["list", "systems"]) == 130
    assert capsys.readouterr().err == "heliograph: interrupted; what was written until now stays\n"


CAUGHT = """
import importlib, os, signal, sys, time
from experiments.__main__ import main

def caught(module, load=importlib.import_module):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
    except KeyboardInterrupt:
        pass
    return load(module)

importlib.import_module = caught
sys.exit(main(["list", "systems"]))
"""


def test_ctrl_c_while_a_study_is_imported_waits_until_it_is_there():
    """Some library may catch it in the midst of an import, and the command would go on."""
    done = subprocess.run(
        [sys.executable, "-c", CAUGHT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "heliograph: interrupted; what was written until now stays\n"


def test_progress_of_a_log_is_a_line_for_what_is_done_and_seldom(monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with reporting() as say:
        for done in range(4):
            for step in range(100):
                say(f"{done}, step {step}", done, 3)
            now += LINE_EVERY_S / (2.0 if done == 0 else 1.0)
    assert capsys.readouterr().err.splitlines() == [
        "0, step 0: 0 of 3",
        f"2, step 0: 2 of 3, {1.5 * LINE_EVERY_S / 2.0:.0f} s left",
        "3, step 0: 3 of 3",
    ]


def in_another_process(job):
    """Return a job with the process that does it; one of a killed worker is done in the one that asked."""
    if job == "kills" and multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    if job == "raises":
        msg = "this job is refused"
        raise ParameterError(msg)
    return os.getpid()


@pytest.mark.slow
def test_a_job_whose_process_is_killed_is_done_by_who_asked():
    found = {}
    run_all(("a", "kills", "b"), in_another_process, found.__setitem__)
    assert found["kills"] == os.getpid()
    assert os.getpid() not in {found["a"], found["b"]}


@pytest.mark.slow
def test_what_a_job_raises_reaches_who_asked_with_its_place():
    with pytest.raises(ParameterError, match="refused") as raised:
        run_all(("a", "raises"), in_another_process, lambda job, result: None)
    assert "in in_another_process" in raised.value.__notes__[0]
