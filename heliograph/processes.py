"""Jobs in parallel, in processes of this machine (`Crew`) or in all that torchrun started (`Ranks`).

`run_all` is the usual entry. No process outlives its command. Under torchrun rank 0 runs the command; the
other ranks only do jobs, which rank 0 queues in the store that torchrun's processes share. Warnings about a
result (`SuspectWarning`) come back with it from any process. Progress goes to standard error, as a bar on a
terminal and as lines elsewhere.
"""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from simulator.errors import HeliographError, ParameterError, SuspectWarning
from simulator.files import ctrl_c_later

OnProgress = Callable[[str, int, int], None]
"""Called with a label, the number of items done, and the number in all."""


def unheard(label: str, done: int, total: int) -> None:
    """Show no progress."""


def of_part(progress: OnProgress, part: str) -> OnProgress:
    """Return a progress function for a part of a study, whose labels begin with the part's name."""
    return lambda label, done, total: progress(f"{part}, {label}", done, total)


@contextmanager
def reporting() -> Iterator[OnProgress]:
    """Yield a progress function that writes to standard error."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    columns = (
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()),
        *(TimeElapsedColumn(), TimeRemainingColumn()),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None)

        def show(label: str, done: int, total: int) -> None:
            bars.update(task, description=label, completed=done, total=total)

        yield show


class _Lines:
    """Progress as lines of a log, at most one every `LINE_EVERY_S` and only where the numbers changed.

    Each tells the time left at the pace since the count began or was continued.
    """

    def __init__(self) -> None:
        self._shown = (-1, -1)
        self._first = 0
        self._start_s = self._next_s = 0.0

    def __call__(self, label: str, done: int, total: int) -> None:
        now = time.monotonic()
        if total != self._shown[1]:
            self._first, self._start_s = done, now
        if (done, total) == self._shown or (now < self._next_s and done < total):
            return
        self._shown, self._next_s = (done, total), now + LINE_EVERY_S
        left = ""
        if self._first < done < total:
            left_s = (now - self._start_s) / (done - self._first) * (total - done)
            left = f", {_duration(left_s)} left"
        sys.stderr.write(f"{label}: {done} of {total}{left}\n")
        sys.stderr.flush()


LINE_EVERY_S = 2.0
"""Shortest time between two lines of progress; a choice."""


def _duration(seconds: float) -> str:
    """Return a time as text in hours and minutes, minutes and seconds, or seconds."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {whole % 60:02d} s" if minutes else f"{whole} s"


Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Watched(Generic[Result]):
    """Result of a job with its warnings."""

    result: Result
    """Result of the job."""
    warnings: tuple[SuspectWarning, ...]
    """Warnings about it."""


def watched(work: Callable[[Job], Result], job: Job) -> Watched[Result]:
    """Do a job and return its result with the `SuspectWarning`s raised; other warnings are shown as usual."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SuspectWarning)
        result = work(job)
    for one in caught:
        if not isinstance(one.message, SuspectWarning):
            warnings.showwarning(one.message, one.category, one.filename, one.lineno)
    about = tuple(one.message for one in caught if isinstance(one.message, SuspectWarning))
    return Watched(result=result, warnings=about)


def told(one: Watched[Result]) -> Result:
    """Return the result of a job, and raise its warnings again in this process."""
    for warning in one.warnings:
        warnings.warn(warning, stacklevel=3)
    return one.result


_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_PATIENCE = timedelta(days=7)
"""Longest wait of a rank for another: a job may be long, and torchrun ends all ranks if one dies."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Processes of a command under torchrun, and the rank of this one."""

    rank: int
    """Number of this process; 0 runs the command."""
    count: int
    """Number of processes."""
    store: Any
    """Store that they share (`torch.distributed.Store`)."""


@dataclass
class _Started:
    """State of this process under torchrun."""

    ranks: Ranks | None = None
    """All processes; None where there is only this one."""
    rounds: int = 0
    """Number of job lists that rank 0 has published so far; every rank counts them."""


_STARTED = _Started()


def join(environment: Mapping[str, str] | None = None) -> Ranks | None:
    """Connect to the store of torchrun's processes and return them; None if there is only this process.

    Parameters
    ----------
    environment : mapping, optional
        ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT``, as torchrun sets them; those of the
        process by default.

    Raises
    ------
    ParameterError
        If one of the four is missing or no number.
    """
    given = os.environ if environment is None else environment
    if "RANK" not in given or "WORLD_SIZE" not in given:
        return None
    numbers = [given[name] for name in ("RANK", "WORLD_SIZE")]
    if not all(number.isdigit() for number in numbers) or int(numbers[0]) >= int(numbers[1]):
        msg = f"RANK ({numbers[0]}) must be a number below WORLD_SIZE ({numbers[1]}); start with torchrun"
        raise ParameterError(msg)
    rank, count = map(int, numbers)
    if count == 1:
        return None
    missing = [name for name in _NEEDED if name not in given]
    if missing:
        msg = f"RANK is set but {missing[0]} is not; start with torchrun, or unset RANK"
        raise ParameterError(msg)
    from torch.distributed import rendezvous  # noqa: PLC0415 - slow, and only under torchrun

    store, _, _ = next(iter(rendezvous("env://", rank, count, timeout=_PATIENCE)))
    _STARTED.ranks, _STARTED.rounds = Ranks(rank=rank, count=count, store=store), 0
    return _STARTED.ranks


def among_ranks(run: Callable[[], None]) -> None:
    """Run a command on rank 0 while the other ranks serve its jobs; without torchrun just run it."""
    ranks = join()
    if ranks is None:
        run()
    elif ranks.rank:
        serve(ranks)
    else:
        try:
            run()
        except HeliographError:
            dismiss(ranks)
            raise
        dismiss(ranks)


def joined() -> Ranks | None:
    """Return the processes under torchrun after `join`; None without it."""
    return _STARTED.ranks


def serve(ranks: Ranks) -> None:
    """Do the jobs of each list that rank 0 publishes, until it publishes None."""
    while True:
        name = _next_round()
        ranks.store.wait([name], _PATIENCE)
        shared = pickle.loads(ranks.store.get(name))
        if shared is None:
            ranks.store.set(f"left/{ranks.rank}", b"")
            _STARTED.ranks = None
            return
        made_with, work, jobs = shared
        while (index := _claim(ranks, name)) < len(jobs):
            outcome = _outcome(made_with, ranks.rank, work, jobs[index])
            ranks.store.set(f"{name}/{index}", pickle.dumps(outcome))


def dismiss(ranks: Ranks) -> None:
    """End `serve` on the other ranks, and wait until all have left, as the store ends with this process."""
    ranks.store.set(_next_round(), pickle.dumps(None))
    ranks.store.wait([f"left/{rank}" for rank in range(1, ranks.count)], _PATIENCE)
    _STARTED.ranks = None


def share_out(
    ranks: Ranks, jobs: Sequence[Job], work: Callable[[Job], Result], keep: Callable[[Job, Result], None]
) -> None:
    """Do jobs on all ranks, each rank claiming the next unclaimed one; called on rank 0.

    Parameters
    ----------
    ranks : Ranks
        The processes; this one is rank 0.
    jobs : sequence
        Picklable jobs.
    work : callable
        Function that does a job; it must be one of a module, so that another process can import it.
    keep : callable
        Called with each job and its result, in the order in which results come in.

    Raises
    ------
    HeliographError
        Raised by a job, on whatever rank.
    """
    from heliograph.records import versions  # noqa: PLC0415 - imports what the command line does without

    name = _next_round()
    ranks.store.set(name, pickle.dumps((versions(), work, list(jobs))))
    elsewhere = set(range(len(jobs)))
    while (index := _claim(ranks, name)) < len(jobs):
        elsewhere.discard(index)
        keep(jobs[index], work(jobs[index]))
        for other in sorted(elsewhere):
            if ranks.store.check([f"{name}/{other}"]):
                elsewhere.discard(other)
                keep(jobs[other], _received(ranks, f"{name}/{other}"))
    for other in sorted(elsewhere):
        ranks.store.wait([f"{name}/{other}"], _PATIENCE)
        keep(jobs[other], _received(ranks, f"{name}/{other}"))


def _next_round() -> str:
    _STARTED.rounds += 1
    return f"jobs/{_STARTED.rounds}"


def _claim(ranks: Ranks, name: str) -> int:
    """Claim the next unclaimed job of a list, and return its index, past the end where none is left."""
    taken: int = ranks.store.add(f"{name}/taken", 1)
    return taken - 1


def _outcome(
    made_with: Mapping[str, str], rank: int, work: Callable[[Any], Any], job: object
) -> tuple[Watched[Any] | None, HeliographError | None]:
    """Do a job that rank 0 published, and return its result or its error, which rank 0 raises.

    `made_with` holds the versions of rank 0's libraries; it is an error if those of this rank differ.
    """
    from heliograph.records import versions  # noqa: PLC0415 - imports what the command line does without

    installed = versions()
    if differing := [name for name, version in made_with.items() if installed.get(name) != version]:
        name = differing[0]
        msg = (
            f"rank {rank} has {name} {installed.get(name)}, rank 0 {made_with[name]}; "
            "install the same on both"
        )
        return None, HeliographError(msg)
    try:
        return watched(work, job), None
    except HeliographError as error:
        return None, error


def _received(ranks: Ranks, name: str) -> Any:  # noqa: ANN401 - what the work gives
    result, error = pickle.loads(ranks.store.get(name))
    if error is not None:
        raise error
    return told(result)


GRACE_S = 1.0
"""Time that running jobs have to finish after Ctrl-C; a choice."""


@dataclass(frozen=True)
class Ended:
    """Answer in place of a result where the process died during the job."""

    why: str
    """Clause that names the signal or exit code."""


@dataclass(frozen=True)
class _Raised:
    """Answer in place of a result where the job raised an error, to be raised again in the parent."""

    error: Exception


class _Worker:
    """A child process, with its pipe and its present job (None while it is idle)."""

    def __init__(self, prepared: bytes) -> None:
        self.job: Any = None
        self._prepared = prepared
        self.start()

    def start(self) -> None:
        """Start the process; it inherits that Ctrl-C is held back, and so shows no traceback of its own."""
        context = multiprocessing.get_context("spawn")
        with ctrl_c_later():
            self.answers, child_end = context.Pipe()
            self.process = context.Process(
                target=_serve_parent, args=(child_end, self._prepared), daemon=True
            )
            self.process.start()
            child_end.close()

    def send(self, job: object) -> None:
        """Send the idle process a job."""
        self.job = job
        try:
            self.answers.send(job)
        except OSError:  # the process has died; `settle` finds that out
            pass

    def settle(self, keep: Callable[[Any, Any], None], *, interrupted: bool = False) -> None:
        """Receive the answer of the job and pass it on, a result or `Ended`; Ctrl-C is held back meanwhile.

        If interrupted, a job without a result is dropped, as the same Ctrl-C may have ended its process.
        """
        with ctrl_c_later():
            job, answer = self.job, self._answer()
            self.job = None
            if isinstance(answer, _Raised | Ended) and interrupted:
                return
            if isinstance(answer, _Raised):
                raise answer.error
            keep(job, answer)

    def _answer(self) -> Any:  # noqa: ANN401 - of the job
        try:
            return self.answers.recv()
        except (EOFError, OSError):
            self.process.join(timeout=5.0)
            self.process.kill()
            self.process.join(timeout=5.0)
        code = self.process.exitcode
        if code is not None and code < 0:
            return Ended(f"its process was ended by signal {-code} (9: most likely out of memory)")
        return Ended(f"its process ended with code {code}")


class Crew:
    """Pool of processes that survives the death of one; a context manager, which kills them at its end.

    Parameters
    ----------
    prepare : callable
        Called once in each process; returns the function that does its jobs. Picklable.
    workers : int
        Number of processes. One that dies during a job is replaced.

    Raises
    ------
    pickle.PicklingError, AttributeError, TypeError
        If `prepare` cannot be pickled.

    Notes
    -----
    `concurrent.futures.ProcessPoolExecutor` gives up all its jobs when one process is killed.
    """

    def __init__(self, prepare: Callable[[], Callable[[Any], Any]], workers: int) -> None:
        self._prepared = pickle.dumps(prepare)
        self._count = workers
        self._workers: list[_Worker] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.process.kill()

    def do(self, jobs: Iterable[Job], keep: Callable[[Job, Any], None]) -> None:
        """Do jobs, taking the next one whenever a process is idle.

        Parameters
        ----------
        jobs : iterable
            Picklable jobs.
        keep : callable
            Called with each job and its result, or `Ended` if its process died, in the order in which they
            come in; Ctrl-C is held back meanwhile.

        Raises
        ------
        Exception
            Raised by a job.
        KeyboardInterrupt
            After Ctrl-C: running jobs have `GRACE_S` to finish, and a second Ctrl-C ends them at once.
        """
        waiting = iter(jobs)
        try:
            while len(self._workers) < self._count:
                self._workers.append(_Worker(self._prepared))
            self._assign(waiting)
            while done := self._wait():
                for worker in done:
                    worker.settle(keep)
                self._assign(waiting)
        except KeyboardInterrupt:
            sys.stderr.write(
                f"interrupted: runs at work have {GRACE_S:.0f} s to finish; Ctrl-C again stops them\n"
            )
            deadline = time.monotonic() + GRACE_S
            while done := self._wait(max(0.0, deadline - time.monotonic())):
                for worker in done:
                    worker.settle(keep, interrupted=True)
            raise

    def _assign(self, waiting: Iterator[Any]) -> None:
        """Send each idle process its next job; restart those that died."""
        idle = [worker for worker in self._workers if worker.job is None]
        assigned = list(zip(idle, waiting, strict=False))
        for worker, _ in assigned:
            if not worker.process.is_alive():
                worker.start()
        for worker, job in assigned:
            worker.send(job)

    def _wait(self, patience_s: float | None = None) -> list[_Worker]:
        """Wait until some processes have answered or died, and return them; none if none has a job."""
        busy = {worker.answers: worker for worker in self._workers if worker.job is not None}
        ready = multiprocessing.connection.wait(list(busy), patience_s) if busy else []
        return [busy[pipe] for pipe in ready]  # type: ignore[index]


def _serve_parent(pipe: multiprocessing.connection.Connection, prepared: bytes) -> None:
    """Do the parent's jobs until it closes the pipe; Ctrl-C is left to the parent, with which this ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(50_000, 20, 20)  # as the command line does
    threading.Thread(target=_end_with_parent, daemon=True).start()
    do: Callable[[Any], Any] | None = None
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        do = do or pickle.loads(prepared)()
        try:
            answer = do(job)
        except Exception as error:
            error.add_note("".join(traceback.format_exception(error)))  # a traceback stays in its process
            answer = _Raised(error)
        pipe.send(answer)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def run_all(
    jobs: Sequence[Job],
    work: Callable[[Job], Result],
    keep: Callable[[Job, Result], None],
    then: Callable[[], Sequence[Job]] = tuple,
) -> None:
    """Do jobs in parallel: on the ranks of torchrun, else in processes of this machine, else one by one here.

    Parameters
    ----------
    jobs : sequence
        Picklable jobs, each done on one thread of a process. One whose process dies is done again in this
        process, after the others.
    work : callable
        Function that does a job; it must be one of a module, so that a new process can import it.
    keep : callable
        Called with each job and its result, in the order in which they are done.
    then : callable
        Called when all are done; returns further jobs, which the same processes do.

    Notes
    -----
    After the first Ctrl-C running jobs have `GRACE_S` to finish, and are kept if they do; a second one ends
    them at once.
    """

    def do_here(some: Sequence[Job]) -> None:
        for job in some:
            keep(job, work(job))

    def do_in_crew(crew: Crew, some: Sequence[Job]) -> None:
        died: list[Job] = []

        def keep_answer(job: Job, answer: Watched[Result] | Ended) -> None:
            if isinstance(answer, Ended):
                died.append(job)
            else:
                keep(job, told(answer))

        crew.do(some, keep_answer)
        do_here(died)

    def do_both(do: Callable[[Sequence[Job]], None]) -> None:
        do(jobs)
        if further := then():
            do(further)

    ranks = joined()
    workers = min(len(jobs), os.cpu_count() or 1)
    if ranks is not None:
        do_both(lambda some: share_out(ranks, some, work, keep))
    elif workers < 2:
        do_both(do_here)
    else:
        with Crew(partial(partial, watched, work), workers) as crew:
            do_both(partial(do_in_crew, crew))
