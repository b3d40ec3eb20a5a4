import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heliograph.sweeps.running import run_sweep
from heliograph.sweeps.store import Outcome, Status, Store
from simulator.errors import HeliographError
from tests.heliograph.sweeps.sweep_work import FAILS, FAULTS, KILLS, asked

ROOT = Path(__file__).parents[3]


def started(store, count, *, workers=1, seconds=0.01, engine="processes", scheduler="", before=""):
    words = [str(store), str(count), str(workers), str(seconds), engine, scheduler]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.heliograph.sweeps.sweep_work", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def rows(store):
    base = sqlite3.connect(store)
    found = base.execute("SELECT key, status, number, square FROM points ORDER BY number").fetchall()
    base.close()
    return found


def whole(store, count):
    assert rows(store) == [(f"square {n}", "done", n, n * n) for n in range(count)]


def wait_for(store, count, process, patience_s=60.0):
    """Wait until so many points are kept."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and process.poll() is None:
        if store.exists():
            base = sqlite3.connect(store, timeout=10.0)
            try:
                if base.execute("SELECT count(*) FROM points").fetchone()[0] >= count:
                    return
            except sqlite3.OperationalError:  # before its tables are there
                pass
            finally:
                base.close()
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()
    pytest.fail(f"fewer than {count} points after {patience_s} s")


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_in_the_store_is_not_run_again(tmp_path, workers):
    store = tmp_path / "a.sqlite"
    run_sweep(asked(store, 20, workers=workers))
    whole(store, 20)
    times = sqlite3.connect(store).execute("SELECT finished, attempts FROM points").fetchall()
    grid = run_sweep(asked(store, 20, workers=workers, harmful=True))  # harm shows only where a point is run
    assert sqlite3.connect(store).execute("SELECT finished, attempts FROM points").fetchall() == times
    assert [row["square"] for row in grid.rows()] == [n * n for n in range(20)]


def test_a_point_whose_process_dies_is_a_row_and_the_rest_goes_on(tmp_path):
    store = tmp_path / "a.sqlite"
    grid = run_sweep(asked(store, 16, workers=2, harmful=True))
    wrong = {row["number"]: row["error"] for row in grid.failures}
    assert set(wrong) == {KILLS, FAILS, FAULTS}
    assert "signal 9" in wrong[KILLS]
    assert wrong[FAILS] == "eleven is refused; try twelve"
    assert "ZeroDivisionError" in wrong[FAULTS]
    states = {number: status for _, status, number, _ in rows(store)}
    assert (states[KILLS], states[FAILS], states[FAULTS]) == ("crashed", "failed", "crashed")
    assert sum(status == "done" for status in states.values()) == 13
    run_sweep(asked(store, 16, workers=2))  # failures stay until they are asked for
    assert len([row for row in rows(store) if row[1] != "done"]) == 3
    run_sweep(asked(store, 16, workers=2, retry_failed=True))
    whole(store, 16)


def test_two_sweeps_share_their_points(tmp_path):
    store = tmp_path / "a.sqlite"
    run_sweep(asked(store, 5))
    run_sweep(asked(store, 8))
    whole(store, 8)
    with Store(store, existing=True) as opened:
        states = opened.sweep_states()
    assert [(one.points, one.counts, one.left) for one in states] == [
        (5, {Status.DONE: 5}, 0),
        (8, {Status.DONE: 8}, 0),
    ]
    view = sqlite3.connect(store).execute("SELECT inputs, square FROM results WHERE place = 4").fetchall()
    assert view == [('{"number": 4}', 16)] * 2


def test_a_result_is_never_replaced_by_a_failure(tmp_path):
    with Store(tmp_path / "a.sqlite") as store:
        store.record("k", "squares", Outcome(status=Status.DONE, row={"square": 4}))
        store.record("k", "squares", Outcome(status=Status.FAILED, error="no"))
        assert store.status_of("k") is Status.DONE


@pytest.mark.slow
def test_nothing_finished_is_lost_by_ten_kills(tmp_path):
    store, rng = tmp_path / "a.sqlite", random.Random(7)
    least = 0
    for _ in range(10):
        process = started(store, 600, workers=2)
        wait_for(store, min(599, least + rng.randrange(1, 25)), process)
        time.sleep(0.05 * rng.random())
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
        told = max([int(line.split()[-1]) for line in out.splitlines() if line.split()[-1].isdigit()] or [0])
        kept = rows(store)
        assert len(kept) >= max(told, least)
        assert len({row[0] for row in kept}) == len(kept)
        assert all(square == number**2 for _, _, number, square in kept)
        least = len(kept)
    process = started(store, 600, workers=2, seconds=0.0)
    assert process.wait(timeout=120) == 0, process.communicate()
    process.communicate()
    whole(store, 600)


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished_and_a_second_stops_at_once(tmp_path):
    store = tmp_path / "a.sqlite"
    process = started(store, 200, workers=2, seconds=0.5)  # a minute, of which it gets a part
    wait_for(store, 3, process)
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Ctrl-C again" in error
    assert time.monotonic() - began < 15.0
    assert 3 <= len(rows(store)) < 200
    before = len(rows(store))
    process = started(store, 200, workers=2, seconds=300.0)
    assert process.stdout.readline().startswith("sweep")
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)
    process.stderr.readline()
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert len(rows(store)) == before


def test_two_writers_at_once_lose_and_double_nothing(tmp_path):
    store = tmp_path / "a.sqlite"
    both = [started(store, 120, seconds=0.002) for _ in range(2)]
    for process in both:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
    whole(store, 120)


def test_a_full_disk_is_one_sentence_and_keeps_what_is_finished(tmp_path):
    store = tmp_path / "a.sqlite"
    program = (
        "import resource\nfrom pathlib import Path\n"
        "from heliograph.sweeps.running import run_sweep\nfrom simulator.errors import HeliographError\n"
        "from tests.heliograph.sweeps.sweep_work import asked\n"
        f"run_sweep(asked(Path({str(store)!r}), 10))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))\n"
        "try:\n"
        f"    run_sweep(asked(Path({str(store)!r}), 5000))\n"
        "except HeliographError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert "the disk is full; what is finished is kept" in done.stdout, done
    kept = rows(store)
    assert [row[2] for row in kept[:10]] == list(range(10))
    assert all(square == number**2 for _, _, number, square in kept)
    run_sweep(asked(store, 5000))
    whole(store, 5000)


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(HeliographError, match="missing or read-only; name another file with --store"):
        run_sweep(asked(tmp_path / "nowhere" / "a.sqlite", 3))
    other = tmp_path / "text.sqlite"
    other.write_text("no database, whatever its name says" * 10)
    with pytest.raises(HeliographError, match="no SQLite file"):
        run_sweep(asked(other, 3))
    foreign = tmp_path / "foreign.sqlite"
    base = sqlite3.connect(foreign)
    base.execute("CREATE TABLE mine (a)")
    base.close()
    with pytest.raises(HeliographError, match="something else"):
        run_sweep(asked(foreign, 3))


def test_a_read_only_store_can_be_read_and_not_written(tmp_path, monkeypatch):
    store = tmp_path / "a.sqlite"
    run_sweep(asked(store, 3))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write whatever its mode says
    with pytest.raises(HeliographError, match="read-only; name another with --store"):
        run_sweep(asked(store, 5))
    with Store(store, existing=True) as opened:
        assert opened.sweep_states()[0].counts == {Status.DONE: 3}


def test_ranges_of_points_resume_fast(tmp_path):
    count, store = 20_000, tmp_path / "a.sqlite"
    with Store(store) as opened:
        opened.record("square 0", "squares", Outcome(status=Status.DONE, row={"number": 0, "square": 0}))
        with opened._transaction():
            opened._base.executemany(
                "INSERT INTO points (key, study, status, number, square) VALUES (?, 'squares', 'done', ?, ?)",
                ((f"square {n}", n, n * n) for n in range(1, count)),
            )
    run_sweep(asked(store, count))
    began = time.process_time()
    run_sweep(asked(store, count))
    assert time.process_time() - began < 2.0  # a fifth of the points of the bar, with five times its time


def test_a_worker_starts_without_what_only_a_step_needs():
    """Systems and devices take half a second to load, and every start of every worker would pay it."""
    code = "import sys, heliograph.sweeps.work; print({'optical', 'electronic'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
