"""Points run in this process or in several, each of which may die without harm to the rest."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from heliograph.processes import GRACE_S, prepare_worker
from heliograph.sweeps.space import Value
from heliograph.sweeps.store import Outcome, Status
from heliograph.sweeps.work import Work, outcome_of
from simulator.errors import HeliographError
from simulator.files import ctrl_c_later

Job = tuple[str, Mapping[str, Value]]
"""Key and values of a point."""
Keep = Callable[[str, Outcome], None]
"""Told what became of a point, by its key."""
Wanted = Callable[[str], bool]
"""Whether a point is still to be run: another command may have done so meanwhile."""

POINTS_A_PROCESS = 8
"""Points that are worth the second in which a process starts; a choice."""


def usual_workers(points: int) -> int:
    """Return how many processes so many points are worth: at most one for each processor."""
    return max(1, min(os.cpu_count() or 1, points // POINTS_A_PROCESS))


def in_this_process(work: Work, jobs: Sequence[Job], keep: Keep, wanted: Wanted) -> None:
    """Run points one after another here."""
    run = work.runner(len(jobs))
    for key, inputs in jobs:
        if wanted(key):
            keep(key, outcome_of(run, work, inputs))


@dataclass
class _Worker:
    """One process and the point that it runs."""

    process: BaseProcess
    ours: Connection
    job: Job | None = None


def in_processes(work: Work, jobs: Sequence[Job], keep: Keep, wanted: Wanted, *, workers: int) -> None:
    """Run points in processes; a point whose process ends has crashed, and another takes its place.

    Parameters
    ----------
    work, jobs, keep, wanted
        As in `in_this_process`; the work must be picklable.
    workers : int
        Number of processes.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C: points at work have `GRACE_S` to finish, and a second Ctrl-C ends them at once.
    """
    try:
        common = pickle.dumps((work, max(1, len(jobs) // workers)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        msg = f"this system cannot go to other processes ({error}); tell it by its name, or use --workers 1"
        raise HeliographError(msg) from error
    left = deque(jobs)
    crew: list[_Worker] = []
    try:
        try:
            for _ in range(min(workers, len(jobs))):
                crew.append(_started(common))
            for worker in _served(crew, left, wanted, common):
                _settle(worker, keep)
        except KeyboardInterrupt:
            sys.stderr.write(
                f"interrupted: points at work have {GRACE_S:.0f} s to finish; Ctrl-C again stops them\n"
            )
            _finish(crew, keep)
            raise
    finally:
        for worker in crew:
            worker.process.kill()


def _served(crew: list[_Worker], left: deque[Job], wanted: Wanted, common: bytes) -> Iterator[_Worker]:
    """Hand out points until all are run; yield each worker that has something to tell."""
    while True:
        for worker in crew:
            while worker.job is None and left:
                job = left.popleft()
                if wanted(job[0]):
                    _hand(worker, job)
        busy = {worker.ours: worker for worker in crew if worker.job is not None}
        if not busy:
            return
        for ready in wait(list(busy)):
            worker = busy[ready]  # type: ignore[index]
            yield worker
            if not worker.process.is_alive() and left:
                crew[crew.index(worker)] = _started(common)


def _settle(worker: _Worker, keep: Keep) -> None:
    """Keep what became of a worker's point; Ctrl-C comes after it."""
    with ctrl_c_later():
        outcome = _received(worker)
        job, worker.job = worker.job, None
        if job is not None:
            keep(job[0], outcome)


def _finish(crew: Sequence[_Worker], keep: Keep) -> None:
    """Keep the points at work that finish in time."""
    deadline = time.monotonic() + GRACE_S
    while busy := {worker.ours: worker for worker in crew if worker.job is not None}:
        ready = wait(list(busy), timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            return
        for one in ready:
            worker = busy[one]  # type: ignore[index]
            if worker.process.is_alive():
                _settle(worker, keep)
            else:  # ended by what ended the sweep
                worker.job = None


def _started(common: bytes) -> _Worker:
    context = multiprocessing.get_context("spawn")
    with ctrl_c_later():  # a worker inherits it, and so starts without a traceback of its own
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, common), daemon=True)
        process.start()
        theirs.close()
    return _Worker(process=process, ours=ours)


def _hand(worker: _Worker, job: Job) -> None:
    worker.job = job
    try:
        worker.ours.send(job[1])
    except OSError:  # the process has ended, which is told where it is waited for
        pass


def _received(worker: _Worker) -> Outcome:
    """Return what a worker tells of its point, or that it has ended."""
    try:
        found: Outcome = worker.ours.recv()
    except (EOFError, OSError):
        worker.process.join(timeout=5.0)
        worker.process.kill()
        worker.process.join(timeout=5.0)
        return Outcome(status=Status.CRASHED, error=_ended(worker.process.exitcode))
    return found


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was ended by signal {-code} (9: most likely out of memory)"
    return f"its process ended with code {code}"


def _serve(theirs: Connection, common: bytes) -> None:
    """Run points until the other end is closed."""
    prepare_worker()
    run: Callable[[Mapping[str, Value]], Mapping[str, Any]] | None = None
    work: Work | None = None
    while True:
        try:
            inputs = theirs.recv()
        except EOFError:
            return
        if work is None or run is None:
            work, expected = pickle.loads(common)
            run = work.runner(expected)  # type: ignore[union-attr]
        theirs.send(outcome_of(run, work, inputs))  # type: ignore[arg-type]
