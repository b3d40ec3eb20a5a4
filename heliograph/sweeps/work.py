"""Work of a sweep, what becomes of a point, and who runs it: this process, several, or a Dask scheduler.

It is what a worker imports. One that dies hands its points to the others. When the scheduler goes away, or
the connection to it, points that had not arrived are handed in again as soon as one answers at the same
address.
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
"""Whole path of a parameter, and what reads its values."""


class Work(Protocol):
    """What all points of a sweep have in common; goes to other processes."""

    @property
    def study(self) -> str:
        """Name of the study."""
        ...

    def keys(self, inputs: Sequence[Mapping[str, Value]]) -> list[str]:
        """Return a key for each point: equal exactly where everything that can move its result is equal."""
        ...

    def runner(self, expected: int) -> Callable[[Mapping[str, Value]], Mapping[str, Any]]:
        """Return what runs a point of so many, and gives its row; ``rows`` in it is a table of several."""
        ...

    def reader(self, name: str) -> Reader | None:
        """Return whole path and reader of a number of the system of all points; None where it is none."""
        ...

    def about(self, inputs: Mapping[str, Value]) -> Mapping[str, Any]:
        """Return the columns of a point without a result: what it is of."""
        ...


def outcome_of(
    run: Callable[[Mapping[str, Value]], Mapping[str, Any]], work: Work, inputs: Mapping[str, Value]
) -> Outcome:
    """Return what becomes of a point, whatever it is.

    Parameters
    ----------
    run : callable
        What `Work.runner` returned.
    work : Work
        What the points have in common.
    inputs : mapping
        Values of the point.
    """
    began = time.perf_counter()
    try:
        done = watched(run, inputs)
    except HeliographError as error:
        failed = Outcome(status=Status.FAILED, error=str(error), row=work.about(inputs))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        failed = Outcome(status=Status.CRASHED, error=told, row=work.about(inputs))
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
    """Return a hash of the program's own text and of its tables, which a key holds beside the version."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(__version__.encode())
    for floor in ("simulator", "optical", "electronic", "workloads", "heliograph", "experiments"):
        for kind in ("*.py", "*.json", "*.csv"):
            for path in sorted((root / floor).rglob(kind)):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def outside_digest(text: object) -> str:
    """Return text with a hash of the file that it names (``FILE.py:NAME``, ``graph:FILE``), if any."""
    told = str(text)
    for name in (told, f"{told.partition(MARK)[0]}.py" if MARK in told else "", told.partition("graph:")[2]):
        path = Path(name.partition("@")[0]) if name else None
        if path is not None and path.suffix and path.is_file():
            return f"{told} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    return told


def in_si(work: Work, inputs: Sequence[Mapping[str, Value]]) -> list[dict[str, Value | None]]:
    """Return the values of points in SI where they are numbers of the system, else as they are."""
    readers = {name: work.reader(name) for one in inputs[:1] for name in one if not is_context(name)}
    known: dict[tuple[str, Value], Value | None] = {}
    found = []
    for one in inputs:
        for item in one.items():
            if item not in known:
                known[item] = _si(readers.get(item[0]), *item)
        found.append({name: known[name, value] for name, value in one.items()})
    return found


def _si(reader: Reader | None, name: str, value: Value) -> Value | None:
    if is_context(name):
        return value
    if reader is not None:
        try:
            return reader[1](value)  # type: ignore[no-any-return]
        except ParameterError:  # a part, told by its name, or a value that fits nothing
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

    def settle(job: Job, answer: Outcome | Ended) -> None:
        found = Outcome(status=Status.CRASHED, error=answer.why) if isinstance(answer, Ended) else answer
        keep(job[0], found)

    try:
        crew = Crew(partial(_prepared, work, max(1, len(jobs) // workers)), min(workers, len(jobs)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        msg = f"this system cannot go to other processes ({error}); tell it by its name, or use --workers 1"
        raise HeliographError(msg) from error
    with crew:
        crew.do((job for job in jobs if wanted(job[0])), settle)


def _prepared(work: Work, expected: int) -> Callable[[Job], Outcome]:
    """Return what runs one of so many points in a worker."""
    run = work.runner(expected)
    return lambda job: outcome_of(run, work, job[1])


POINTS_AHEAD = 4
"""Points that wait at the scheduler for each thread of a worker; a choice."""
PATIENCE_S = 120.0
"""Longest wait for a scheduler that went away; a choice."""
MOST_DEATHS = 1
"""Deaths of workers after which a scheduler started here gives a point up, to be tried alone; a choice."""
ANSWER_S = 10.0
"""Longest wait for a result that the scheduler says is there."""


@dataclass(frozen=True, kw_only=True)
class _Refused:
    """What a worker answers that must not run a point."""

    why: str


def on_cluster(
    work: Work, jobs: Sequence[Job], keep: Keep, wanted: Wanted, *, address: str | None, workers: int | None
) -> None:
    """Run points on a Dask cluster, and keep each as it arrives.

    Parameters
    ----------
    work, jobs, keep, wanted
        As `heliograph.sweeps.work.in_this_process` takes them; the work must be picklable.
    address : str or None
        The scheduler's; None starts one on this machine.
    workers : int or None
        Workers of the one that is started here; one for each processor by default.

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
    with _scheduler(distributed, address, workers or os.cpu_count() or 1) as place:
        flight = _Flight(distributed, place, common, patience_s=PATIENCE_S)
        try:
            flight.run(deque(jobs), keep, wanted)
        finally:
            flight.close()


@contextmanager
def _scheduler(distributed: Any, address: str | None, workers: int) -> Iterator[str]:  # noqa: ANN401 - a module
    """Yield the address of a scheduler: the one that is named, or one that lives as long as the sweep."""
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


def host_and_port(address: str) -> tuple[str, int]:
    """Return what an address such as tcp://HOST:8786 names; ValueError if it names no host and port."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    if not (parts.hostname and parts.port):
        raise ValueError(address)
    return parts.hostname, parts.port


@dataclass
class _Flight:
    """Points that are at the scheduler, and the connection to it."""

    distributed: Any
    address: str
    common: bytes
    patience_s: float
    client: Any = None
    futures: dict[Any, Job] = field(default_factory=dict)
    arrived: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)

    def run(self, left: deque[Job], keep: Keep, wanted: Wanted) -> None:
        """Hand in points until all have arrived.

        A worker that dies takes down points that only waited there. One whose workers died is therefore run
        again alone, after the others; if they die once more, it is the point's own doing.
        """
        self._connect()
        suspects: list[Job] = []
        self._run(left, keep, wanted, suspects)
        for one in suspects:
            self._run(deque([one]), keep, wanted, None)

    def _run(self, left: deque[Job], keep: Keep, wanted: Wanted, suspects: list[Job] | None) -> None:
        while left or self.futures:
            self._hand_in(left, wanted)
            if not self.futures:
                continue
            try:
                future = self.arrived.get(timeout=1.0)
            except queue.Empty:
                if not self._is_connected():
                    self._again(left)
                continue
            job = self.futures.pop(future, None)
            if job is None:  # of a connection that was given up
                continue
            if suspects is not None and self._killed_workers(future):
                suspects.append(job)
                continue
            outcome = self._outcome(future)
            if outcome is None:
                left.appendleft(job)
                if not self._is_connected():
                    self._again(left)
                continue
            with ctrl_c_later():
                keep(job[0], outcome)

    def _connect(self) -> None:
        """Wait for the scheduler to answer, and say after its first silence that this waits."""
        begun, said = time.monotonic(), False
        while True:
            try:
                self._knock()
                self.client = self.distributed.Client(self.address, timeout=ANSWER_S, set_as_default=False)
            except (OSError, TimeoutError) as error:
                if time.monotonic() > begun + self.patience_s:
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

    def _knock(self) -> None:
        """Raise OSError where nothing listens: a client that is stopped while it tries prints a traceback."""
        socket.create_connection(host_and_port(self.address), timeout=ANSWER_S).close()

    def _is_connected(self) -> bool:
        if self.client.status != "running":
            return False
        try:
            self.client.scheduler_info()
            self.client.run_on_scheduler(_nothing)
        except Exception:  # whatever the connection says when it is gone
            return False
        return True

    def _again(self, left: deque[Job]) -> None:
        """Connect anew, with all points that had not arrived still to run."""
        sys.stderr.write(f"the scheduler at {self.address} went away; waiting for it\n")
        left.extendleft(self.futures.values())
        self.futures.clear()
        self.close()
        self._connect()

    def _hand_in(self, left: deque[Job], wanted: Wanted) -> None:
        most = POINTS_AHEAD * max(1, self._threads())
        while left and len(self.futures) < most:
            job = left.popleft()
            if not wanted(job[0]):
                continue
            future = self.client.submit(run_point, self.common, job, code_digest(), pure=False)
            self.futures[future] = job
            future.add_done_callback(self.arrived.put)

    def _threads(self) -> int:
        info = self.client.scheduler_info().get("workers", {})
        return sum(one.get("nthreads", 1) for one in info.values())

    def _killed_workers(self, future: Any) -> bool:  # noqa: ANN401 - of Dask
        """Return whether the scheduler gave a point up, since workers died that had it."""
        with suppress(Exception):  # a lost connection has many names
            why = future.exception(timeout=ANSWER_S) if future.status == "error" else None
            return isinstance(why, self.distributed.scheduler.KilledWorker)
        return False

    def _outcome(self, future: Any) -> Outcome | None:  # noqa: ANN401 - of Dask
        """Return what became of a point; None if its result was lost on the way."""
        if future.status in ("cancelled", "lost", "pending"):
            return None
        try:
            found = future.result(timeout=ANSWER_S)
        except self.distributed.scheduler.KilledWorker:
            why = "several workers in a row ended while they ran it"
            return Outcome(status=Status.CRASHED, error=why)
        except HeliographError as error:
            return Outcome(status=Status.FAILED, error=str(error))
        except Exception as error:  # a lost connection has many names
            if future.status == "error":
                return Outcome(status=Status.CRASHED, error=f"{type(error).__name__}: {error}")
            return None
        if isinstance(found, _Refused):
            raise HeliographError(found.why)
        return found  # type: ignore[no-any-return]

    def close(self) -> None:
        """Give up the connection."""
        client, self.client = self.client, None
        if client is not None:
            with suppress(Exception):
                client.cancel(list(self.futures), force=True)
            with suppress(Exception):
                client.close(timeout=2)


def _nothing() -> None:
    """Answer: there is somebody."""


_RUNNERS: OrderedDict[bytes, Callable[[Job], Outcome]] = OrderedDict()
"""What a worker keeps from point to point, by what the points have in common."""
_ONE = threading.Lock()
"""One point at a time in a process: what is kept, and warnings, belong to one."""
MOST_SWEEPS = 4
"""Sweeps of which a worker keeps something; a choice."""


def run_point(common: bytes, job: Job, code: str) -> Outcome | _Refused:
    """Return what becomes of a point, in a worker.

    Parameters
    ----------
    common : bytes
        Pickled work, with the number of points.
    job : Job
        The point.
    code : str
        Hash of the program that asks (`heliograph.sweeps.work.code_digest`).
    """
    if code_digest() != code:
        return _Refused(
            why="a Dask worker has another heliograph than this command; install the same on both"
        )
    with _ONE:
        if common not in _RUNNERS:
            run = _prepared(*pickle.loads(common))
            while len(_RUNNERS) >= MOST_SWEEPS:
                _RUNNERS.popitem(last=False)
            _RUNNERS[common] = run
        return _RUNNERS[common](job)
