"""Runs of an experiment in parallel processes, none of which outlives the command."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from experiments.doubts import told, watched
from experiments.ranks import joined, share_out

Job = TypeVar("Job")
Result = TypeVar("Result")


def run_all(jobs: Sequence[Job], work: Callable[[Job], Result], keep: Callable[[Job, Result], None]) -> None:
    """Run jobs in parallel and hand each result on; on Ctrl-C let the running ones finish and keep them.

    Where torchrun started several processes, these do the jobs, be they on one machine or on many.

    Parameters
    ----------
    jobs : sequence
        What to do, each on one thread of a process of its own; all must be picklable.
    work : callable
        Does a job: a function of a module, so that a new process can import it.
    keep : callable
        Told each job and its result, in the order in which they are done.

    Notes
    -----
    Doubts about a result (`SuspectWarning`) come back with it and are raised again here.
    """
    ranks = joined()
    if ranks is not None:
        share_out(ranks, jobs, work, keep)
        return
    workers = min(len(jobs), os.cpu_count() or 1)
    if workers < 2:
        for job in jobs:
            keep(job, work(job))
        return
    kept: set[int] = set()
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare_worker)
    futures = {pool.submit(watched, work, job): index for index, job in enumerate(jobs)}
    try:
        for future in as_completed(futures):
            curve = told(future.result())
            kept.add(futures[future])
            keep(jobs[futures[future]], curve)
    except BrokenProcessPool:  # a worker was killed (memory, most likely): go on alone
        for index, job in enumerate(jobs):
            if index not in kept:
                keep(job, work(job))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: the runs at work are finished and kept; Ctrl-C again stops them\n")
        pool.shutdown(cancel_futures=True)
        for future, index in futures.items():
            if index not in kept and not future.cancelled() and future.exception() is None:
                keep(jobs[index], told(future.result()))
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _prepare_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it even when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        threading.Thread(target=_end_with_parent, args=(sentinel,), daemon=True).start()


def _end_with_parent(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
