"""Execution of a sweep's points, in local processes or on a Dask cluster.

A sweep gives its points to `in_processes` or `on_cluster`, or runs them one by one (`outcome_of`). A function
is called with the key and `Outcome` of every point as it ends; one that fails is an outcome like any other.
Workers import this file and nothing of optics or training until a point needs it.

Points of a local process or Dask worker that dies go to the others. If the Dask scheduler goes away, the
points without a result are submitted again as soon as a scheduler answers at the same address.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pickle
import queue
import socket
import sys
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from heliograph._version import __version__
from heliograph.processes import Crew, Ended, watched
from heliograph.sweeps.space import Value, is_context
from heliograph.sweeps.store import Outcome, Status
from simulator.errors import HeliographError, ParameterError
from simulator.files import ctrl_c_later
from simulator.parameter_tree import quantity
from simulator.plugins import MARK
from simulator.units import dimension_of

Reader = tuple[str, Callable[[Value], Any]]
"""Full dotted path of a hardware parameter, and the function that converts its values to SI."""


class Work(Protocol):
    """Calculation that a sweep runs at every point; pickled and sent to worker processes."""

    @property
    def study(self) -> str:
        """Name of the study."""
        ...

    def keys(self, inputs: Sequence[Mapping[str, Value]]) -> list[str]:
        """Return one hash per point; two are equal exactly where everything that can move a result is."""
        ...

    def runner(self, expected: int) -> Callable[[Mapping[str, Value]], Mapping[str, Any]]:
        """Return the function that computes one point.

        Parameters
        ----------
        expected : int
            Number of points that it will probably be called for in this process, so that it can judge
            whether preparation pays.

        Returns
        -------
        callable
            From the values of a point to its result row. Where a study gives several rows for one point, they
            stand as a list under the column ``rows``.
        """
        ...

    def reader(self, name: str) -> Reader | None:
        """Return the reader of a hardware parameter; None where the name is no parameter of all points."""
        ...

    def about(self, inputs: Mapping[str, Value]) -> Mapping[str, Any]:
        """Return the columns that identify a point without a result (model, system, ...)."""
        ...


def outcome_of(
    run: Callable[[Mapping[str, Value]], Mapping[str, Any]], work: Work, inputs: Mapping[str, Value]
) -> Outcome:
    """Compute one point and return its outcome; an exception makes an outcome, too.

    Parameters
    ----------
    run : callable
        Returned by `Work.runner`.
    work : Work
        Calculation of the sweep, asked for the identifying columns of a point that fails.
    inputs : mapping
        Values of the point by name.
    """
    began = time.perf_counter()
    try:
        done = watched(run, inputs)
    except HeliographError as error:
        failed = Outcome(status=Status.FAILED, error=str(error), row=work.about(inputs))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        failed = Outcome(status=Status.CRASHED, error=text, row=work.about(inputs))
    else:
        row = dict(done.result)
        return Outcome(
            status=Status.DONE,
            rows=tuple(row.pop("rows", ())),
            row=row,
            warnings=tuple(dict.fromkeys(map(str, done.warnings))),
            seconds=time.perf_counter() - began,
        )
    return dataclasses.replace(failed, seconds=time.perf_counter() - began)


@cache
def code_digest() -> str:
    """Return a hash of the program's source and data tables; it is part of every point's key."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(__version__.encode())
    for package in ("simulator", "optical", "electronic", "workloads", "heliograph", "experiments"):
        for pattern in ("*.py", "*.json", "*.csv"):
            for path in sorted((root / package).rglob(pattern)):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def outside_digest(value: object) -> str:
    """Return a value as text, followed by the hash of the user's file if it names one.

    Files are named as ``FILE``, ``FILE.py:NAME`` or ``graph:FILE``, each with an optional ``@...`` behind.
    A point's key so changes with the file's content.
    """
    text = str(value)
    module = f"{text.partition(MARK)[0]}.py" if MARK in text else ""
    for name in (text, module, text.partition("graph:")[2]):
        path = Path(name.partition("@")[0]) if name else None
        if path is not None and path.suffix and path.is_file():
            return f"{text} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    return text


def in_si(work: Work, inputs: Sequence[Mapping[str, Value]]) -> list[dict[str, Value | None]]:
    """Return the points' values by name: physical quantities in SI, names and choices unchanged."""
    readers = {name: work.reader(name) for point in inputs[:1] for name in point if not is_context(name)}
    converted: dict[tuple[str, Value], Value | None] = {}
    for point in inputs:
        for name, value in point.items():
            if (name, value) not in converted:
                converted[name, value] = _si(readers.get(name), name, value)
    return [{name: converted[name, value] for name, value in point.items()} for point in inputs]


def _si(reader: Reader | None, name: str, value: Value) -> Value | None:
    if is_context(name):
        return value
    if reader is not None:
        try:
            return reader[1](value)  # type: ignore[no-any-return]
        except ParameterError:  # the name of a part, or a value that fits nothing
            return value
    unit = name.rpartition(".")[2]
    if isinstance(value, str) and dimension_of(unit) is not None:
        try:
            return quantity(unit, value)
        except ParameterError:
            return value
    return value


Job = tuple[str, Mapping[str, Value]]
"""Key and values of a point."""
Keep = Callable[[str, Outcome], None]
"""Called with the key and the outcome of each point when it has ended."""
Wanted = Callable[[str], bool]
"""Called with a key just before its point is run; False where another command has run it meanwhile."""

POINTS_A_PROCESS = 8
"""Points for which starting a process, about a second, pays; a choice."""


def usual_workers(points: int) -> int:
    """Return the default number of processes for a number of points, at most one per processor."""
    return max(1, min(os.cpu_count() or 1, points // POINTS_A_PROCESS))


def in_processes(work: Work, jobs: Sequence[Job], keep: Keep, wanted: Wanted, *, workers: int) -> None:
    """Run points in local processes.

    Where a process dies, the point it was at is recorded as crashed, and a new process takes its place.

    Parameters
    ----------
    work : Work
        Calculation of the sweep; it must be picklable.
    jobs : sequence
        Points to run.
    keep : callable
        Called with each outcome.
    wanted : callable
        Asked before each point whether it is still to be run.
    workers : int
        Number of processes.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C: running points have `heliograph.processes.GRACE_S` to finish, and a second Ctrl-C ends
        them at once.
    """

    def keep_answer(job: Job, answer: Outcome | Ended) -> None:
        if isinstance(answer, Ended):
            answer = Outcome(status=Status.CRASHED, error=answer.why)
        keep(job[0], answer)

    try:
        crew = Crew(partial(_job_runner, work, max(1, len(jobs) // workers)), min(workers, len(jobs)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        msg = f"this system cannot go to other processes ({error}); tell it by its name, or use --workers 1"
        raise HeliographError(msg) from error
    with crew:
        crew.do((job for job in jobs if wanted(job[0])), keep_answer)


def _job_runner(work: Work, expected: int) -> Callable[[Job], Outcome]:
    """Return the function that runs one job in a worker, which expects that number of points."""
    run = work.runner(expected)
    return lambda job: outcome_of(run, work, job[1])


POINTS_AHEAD = 4
"""Points submitted to the scheduler per worker thread, running ones included; a choice."""
PATIENCE_S = 120.0
"""Longest wait for a scheduler that went away; a choice."""
MOST_DEATHS = 1
"""Worker deaths after which a scheduler started here gives a point up; a choice. It is then run alone."""
ANSWER_S = 10.0
"""Longest wait for a result that the scheduler says is there."""


@dataclass(frozen=True, kw_only=True)
class _Refused:
    """Answer of a worker that has another version of heliograph and so must not run the point."""

    why: str
    """Sentence for the user."""


def on_cluster(
    work: Work, jobs: Sequence[Job], keep: Keep, wanted: Wanted, *, address: str | None, workers: int | None
) -> None:
    """Run points on a Dask cluster.

    Parameters
    ----------
    work, jobs, keep, wanted
        As in `in_processes`.
    address : str or None
        Address of the scheduler; None starts a scheduler and its workers on this machine.
    workers : int or None
        Workers that are started with it; one for each processor by default.

    Raises
    ------
    HeliographError
        If Dask is not installed, no scheduler answers, or its workers have another heliograph.
    """
    try:
        import cloudpickle  # noqa: PLC0415 - comes with it, and takes classes of a program's own file
        import distributed  # noqa: PLC0415 - an extra
    except ImportError as error:
        msg = "the engine dask is not installed; pip install 'heliograph[cluster]', or leave --engine out"
        raise HeliographError(msg) from error
    common = cloudpickle.dumps((work, max(1, len(jobs))))
    with _scheduler_address(distributed, address, workers or os.cpu_count() or 1) as reached:
        cluster_run = _ClusterRun(distributed, reached, common, patience_s=PATIENCE_S)
        try:
            cluster_run.run(deque(jobs), keep, wanted)
        finally:
            cluster_run.close()


@contextmanager
def _scheduler_address(
    distributed: Any,  # noqa: ANN401 - a module
    address: str | None,
    workers: int,
) -> Iterator[str]:
    """Yield the address of the named scheduler, or of one started here for the length of the sweep."""
    if address is not None:
        yield address
        return
    with ctrl_c_later():  # processes that start inherit it: Ctrl-C is this one's
        import dask  # noqa: PLC0415 - comes with distributed

        dask.config.set({"distributed.scheduler.allowed-failures": MOST_DEATHS})
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
        )
    try:
        yield cluster.scheduler_address
    finally:
        with suppress(Exception):
            cluster.close(timeout=5)


def host_and_port(address: object) -> tuple[str, int]:
    """Return host and port of a scheduler's address; raise `ParameterError` if it lacks one of them."""
    text = address if isinstance(address, str) else ""
    with suppress(ValueError):  # of a port that is no number
        parts = urlsplit(text if "://" in text else f"tcp://{text}")
        if parts.hostname and parts.port:
            return parts.hostname, parts.port
    msg = f"a scheduler's address is text such as tcp://HOST:8786; got {address!r:.60}"
    raise ParameterError(msg)


@dataclass
class _ClusterRun:
    """Points submitted to a Dask scheduler, and the connection to it.

    Every point is in exactly one place: waiting in the deque of `run`, submitted in `futures`, or kept. When
    the connection is lost, all submitted points go back to the waiting ones.
    """

    distributed: Any
    """The module; it is an extra, imported where it is needed."""
    address: str
    """Address of the scheduler."""
    common: bytes
    """Pickled work with the number of points, sent with every point."""
    patience_s: float
    """Longest wait for a scheduler that does not answer."""
    client: Any = None
    """Connection, a `distributed.Client`; None while there is none."""
    futures: dict[Any, Job] = field(default_factory=dict)
    """Submitted points by their Dask future."""
    completed: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    """Futures that have ended, in any way; Dask's own thread puts them here."""

    def run(self, waiting: deque[Job], keep: Keep, wanted: Wanted) -> None:
        """Submit points until each has an outcome.

        A worker that dies takes down all points that it held, also those that only waited there. Points whose
        worker died are therefore suspects, run again one by one after the others; one whose worker dies then,
        too, is recorded as crashed.
        """
        self._connect()
        suspects: list[Job] = []
        self._run(waiting, keep, wanted, suspects)
        for job in suspects:
            self._run(deque([job]), keep, wanted, None)

    def _run(self, waiting: deque[Job], keep: Keep, wanted: Wanted, suspects: list[Job] | None) -> None:
        while waiting or self.futures:
            self._submit(waiting, wanted)
            if not self.futures:
                continue
            try:
                future = self.completed.get(timeout=1.0)
            except queue.Empty:
                if not self._is_connected():
                    self._reconnect(waiting)
                continue
            job = self.futures.pop(future, None)
            if job is None:  # of a connection that was given up
                continue
            if suspects is not None and self._killed_workers(future):
                suspects.append(job)
                continue
            outcome = self._outcome(future)
            if outcome is None:
                waiting.appendleft(job)
                if not self._is_connected():
                    self._reconnect(waiting)
                continue
            with ctrl_c_later():
                keep(job[0], outcome)

    def _connect(self) -> None:
        """Wait for the scheduler to answer; a first failure is told on standard error."""
        start, said = time.monotonic(), False
        while True:
            try:
                # Something must listen there before a client tries: one that fails prints a traceback.
                socket.create_connection(host_and_port(self.address), timeout=ANSWER_S).close()
                self.client = self.distributed.Client(self.address, timeout=ANSWER_S, set_as_default=False)
            except (OSError, TimeoutError) as error:
                if time.monotonic() > start + self.patience_s:
                    msg = (
                        f"no Dask scheduler answers at {self.address}; what is finished is kept, so "
                        "start one there and run the same command again"
                    )
                    raise HeliographError(msg) from error
                if not said:
                    sys.stderr.write(
                        f"no Dask scheduler answers at {self.address}; trying for {self.patience_s:.0f} s\n"
                    )
                    said = True
                time.sleep(1.0)
            else:
                return

    def _is_connected(self) -> bool:
        if self.client.status != "running":
            return False
        try:
            self.client.scheduler_info()
            self.client.run_on_scheduler(_nothing)
        except Exception:  # whatever the connection says when it is gone
            return False
        return True

    def _reconnect(self, waiting: deque[Job]) -> None:
        """Connect anew; all submitted points go back to the waiting ones."""
        sys.stderr.write(f"the scheduler at {self.address} went away; waiting for it\n")
        waiting.extendleft(self.futures.values())
        self.futures.clear()
        self.close()
        self._connect()

    def _submit(self, waiting: deque[Job], wanted: Wanted) -> None:
        """Submit points up to `POINTS_AHEAD` for each thread of the cluster."""
        workers = self.client.scheduler_info().get("workers", {})
        threads = sum(worker.get("nthreads", 1) for worker in workers.values())
        while waiting and len(self.futures) < POINTS_AHEAD * max(1, threads):
            job = waiting.popleft()
            if not wanted(job[0]):
                continue
            future = self.client.submit(run_point, self.common, job, code_digest(), pure=False)
            self.futures[future] = job
            future.add_done_callback(self.completed.put)

    def _killed_workers(self, future: Any) -> bool:  # noqa: ANN401 - of Dask
        """Return whether the scheduler gave the point up because its workers died."""
        with suppress(Exception):  # a lost connection has many names
            why = future.exception(timeout=ANSWER_S) if future.status == "error" else None
            return isinstance(why, self.distributed.scheduler.KilledWorker)
        return False

    def _outcome(self, future: Any) -> Outcome | None:  # noqa: ANN401 - of Dask
        """Return the outcome of a point; None if it was lost with the connection."""
        if future.status in ("cancelled", "lost", "pending"):
            return None
        try:
            answer = future.result(timeout=ANSWER_S)
        except self.distributed.scheduler.KilledWorker:
            why = "several workers in a row ended while they ran it"
            return Outcome(status=Status.CRASHED, error=why)
        except HeliographError as error:
            return Outcome(status=Status.FAILED, error=str(error))
        except Exception as error:  # a lost connection has many names
            if future.status == "error":
                return Outcome(status=Status.CRASHED, error=f"{type(error).__name__}: {error}")
            return None
        if isinstance(answer, _Refused):
            raise HeliographError(answer.why)
        return answer  # type: ignore[no-any-return]

    def close(self) -> None:
        """Cancel the submitted points and close the connection."""
        client, self.client = self.client, None
        if client is not None:
            with suppress(Exception):
                client.cancel(list(self.futures), force=True)
            with suppress(Exception):
                client.close(timeout=2)


def _nothing() -> None:
    """Do nothing; a scheduler that runs this is alive."""


_RUNNERS: OrderedDict[bytes, Callable[[Job], Outcome]] = OrderedDict()
"""Job runners of the last sweeps in this worker, with what they have built, by the pickled work."""
_POINT_LOCK = threading.Lock()
"""Lets one point at a time run in a process: runners and warning filters are not safe among threads."""
MOST_SWEEPS = 4
"""Sweeps whose runners a worker keeps; a choice."""


def run_point(common: bytes, job: Job, code: str) -> Outcome | _Refused:
    """Run one point in a Dask worker and return its outcome.

    Parameters
    ----------
    common : bytes
        Pickled pair of the work and the number of points.
    job : Job
        The point.
    code : str
        `code_digest` of the program that submits; the worker refuses if its own differs.
    """
    if code_digest() != code:
        return _Refused(
            why="a Dask worker has another heliograph than this command; install the same on both"
        )
    with _POINT_LOCK:
        if common not in _RUNNERS:
            run = _job_runner(*pickle.loads(common))
            while len(_RUNNERS) >= MOST_SWEEPS:
                _RUNNERS.popitem(last=False)
            _RUNNERS[common] = run
        return _RUNNERS[common](job)
