import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from heliograph.sweeps.running import Engine, run_sweep
from simulator.errors import HeliographError
from tests.heliograph.sweeps.sweep_work import FAILS, FAULTS, asked
from tests.heliograph.sweeps.test_store import ROOT, rows, started, wait_for, whole

pytest.importorskip("distributed", reason="install the extra cluster")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Cluster:
    """A scheduler and workers on the loopback, each a process of its own."""

    def __init__(self, workers=2):
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = self.start_scheduler()
        self.workers = [self.start_worker() for _ in range(workers)]

    def start(self, *words):
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *words],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def start_scheduler(self):
        return self.start("scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard")

    def start_worker(self):
        return self.start(
            "worker",
            self.address,
            "--nthreads",
            "1",
            "--no-dashboard",
            "--no-nanny",
            "--death-timeout",
            "120",
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in (*self.workers, self.scheduler):
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()


def test_a_scheduler_that_does_not_answer_is_told_at_once_and_tried_for_a_while(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("heliograph.sweeps.work.PATIENCE_S", 1.5)
    nobody = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(HeliographError, match=rf"no Dask scheduler answers at {nobody}; what is finished"):
        run_sweep(asked(tmp_path / "a.sqlite", 2, engine=Engine.DASK, scheduler=nobody))
    assert capsys.readouterr().err.count(f"no Dask scheduler answers at {nobody}; trying for") == 1


def test_dask_on_this_machine_gives_the_rows_of_one_process(tmp_path):
    here, there = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    run_sweep(asked(here, 16, harmful=False))
    run_sweep(asked(there, 16, workers=2, engine=Engine.DASK))
    assert rows(here) == rows(there)


def test_a_worker_killed_in_the_middle_loses_and_doubles_nothing(tmp_path):
    store = tmp_path / "a.sqlite"
    with Cluster() as cluster:
        process = started(store, 120, seconds=0.05, engine="dask", scheduler=cluster.address)
        wait_for(store, 10, process, 120.0)
        os.killpg(cluster.workers[0].pid, signal.SIGKILL)
        _, error = process.communicate(timeout=180)
        assert process.returncode == 0, error
    whole(store, 120)


def test_a_scheduler_that_is_started_again_goes_on(tmp_path):
    store = tmp_path / "a.sqlite"
    with Cluster() as cluster:
        process = started(store, 120, seconds=0.05, engine="dask", scheduler=cluster.address)
        wait_for(store, 10, process, 120.0)
        for one in (cluster.scheduler, *cluster.workers):
            os.killpg(one.pid, signal.SIGKILL)
            one.wait()
        time.sleep(2.0)
        assert process.poll() is None
        cluster.scheduler = cluster.start_scheduler()
        cluster.workers = [cluster.start_worker()]
        _, error = process.communicate(timeout=240)
        assert process.returncode == 0, error
        assert not error or "went away" in error  # silent where the client has found it again by itself
    whole(store, 120)


def test_a_client_that_is_cut_off_goes_on_where_it_was(tmp_path):
    store = tmp_path / "a.sqlite"
    with Cluster() as cluster:
        process = started(store, 120, seconds=0.05, engine="dask", scheduler=cluster.address)
        wait_for(store, 10, process, 120.0)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        kept = len(rows(store))
        assert kept >= 10
        process = started(store, 120, seconds=0.0, engine="dask", scheduler=cluster.address)
        _, error = process.communicate(timeout=180)
        assert process.returncode == 0, error
    whole(store, 120)


def test_failures_are_rows_on_dask_too(tmp_path):
    grid = run_sweep(asked(tmp_path / "a.sqlite", 16, workers=2, engine=Engine.DASK, harmful=True))
    wrong = {row["number"]: row["error"] for row in grid.failures}
    assert set(wrong) == {7, FAILS, FAULTS}
    assert "workers in a row" in wrong[7]


def test_without_dask_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(HeliographError, match=r"pip install 'heliograph\[cluster\]'"):
        run_sweep(asked(tmp_path / "a.sqlite", 2, engine=Engine.DASK))
