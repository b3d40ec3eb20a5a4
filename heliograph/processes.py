"""Jobs in parallel processes of one machine, or of all that torchrun started; none outlives its command.

Under torchrun the process of rank 0 runs the command as it is; the others only take jobs, of which it makes a
queue in the store that torchrun's processes have in common; caches, figures and text are those of rank 0.
Warnings about a result (`SuspectWarning`) come back with it from wherever it was computed. Progress goes to
standard error: a bar on a terminal, plain lines elsewhere.
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
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from simulator.errors import HeliographError, ParameterError, SuspectWarning
from simulator.files import ctrl_c_later

OnProgress = Callable[[str, int, int], None]
"""Told a label, how much is done, and how much there is."""


def unheard(label: str, done: int, total: int) -> None:
    """Tell nobody."""


def of_part(progress: OnProgress, what: str) -> OnProgress:
    """Return what a part of a study tells, its labels behind the part's name."""
    return lambda label, done, total: progress(f"{what}, {label}", done, total)


@contextmanager
def reporting() -> Iterator[OnProgress]:
    """Yield a function that is told what is done: label, number done, number in all."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None)

        def show(label: str, done: int, total: int) -> None:
            bars.update(task, description=label, completed=done, total=total)

        yield show


class _Lines:
    """Progress as lines of a log: one where more is done than before, and not oftener than is read."""

    def __init__(self) -> None:
        self._told: tuple[int, int] | None = None
        self._next_s = 0.0

    def __call__(self, label: str, done: int, total: int) -> None:
        now = time.monotonic()
        if (done, total) == self._told or (now < self._next_s and done < total):
            return
        self._told, self._next_s = (done, total), now + LINE_EVERY_S
        sys.stderr.write(f"{label}: {done} of {total}\n")
        sys.stderr.flush()


LINE_EVERY_S = 2.0
"""Time between two lines of progress where there is no terminal; a choice."""


Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Watched(Generic[Result]):
    """Result of a job with its warnings."""

    result: Result
    """Result of the job."""
    warnings: tuple[SuspectWarning, ...]
    """Its warnings about that."""


def watched(work: Callable[[Job], Result], job: Job) -> Watched[Result]:
    """Return the result of a job with the warnings about it; others are shown as usual."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SuspectWarning)
        result = work(job)
    for one in caught:
        if not isinstance(one.message, SuspectWarning):
            warnings.showwarning(one.message, one.category, one.filename, one.lineno)
    about = tuple(one.message for one in caught if isinstance(one.message, SuspectWarning))
    return Watched(result=result, warnings=about)


def told(one: Watched[Result]) -> Result:
    """Return a job's result, and repeat the warnings about it in this process."""
    for warning in one.warnings:
        warnings.warn(warning, stacklevel=3)
    return one.result


_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_PATIENCE = timedelta(days=7)
"""Longest wait of a process for another: training may be long, and torchrun ends all if one dies."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Processes of a command, and the place of this one among them."""

    rank: int
    """Number of this process; 0 runs the command."""
    count: int
    """Number of processes."""
    store: Any
    """Store that they share (`torch.distributed.Store`)."""


@dataclass
class _Started:
    """State of this process among others."""

    ranks: Ranks | None = None
    """The processes, or None where there is but one."""
    rounds: int = 0
    """Lists of jobs that were shared out so far."""


_STARTED = _Started()


def join(environment: Mapping[str, str] | None = None) -> Ranks | None:
    """Meet the other processes, and return them, or None if torchrun started no other.

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
    """Run a command in the process of rank 0, whose jobs all do, or alone without torchrun."""
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
    """Return the processes that this one has joined, or None."""
    return _STARTED.ranks


def serve(ranks: Ranks) -> None:
    """Do the jobs that rank 0 shares out, until it says that there are no more."""
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
    """Tell the other processes that there are no more jobs, and see them leave before their store goes."""
    ranks.store.set(_next_round(), pickle.dumps(None))
    ranks.store.wait([f"left/{rank}" for rank in range(1, ranks.count)], _PATIENCE)
    _STARTED.ranks = None


def share_out(
    ranks: Ranks, jobs: Sequence[Job], work: Callable[[Job], Result], keep: Callable[[Job, Result], None]
) -> None:
    """Run jobs in all processes, each taking the next that nobody has taken, and keep the results here.

    Parameters
    ----------
    ranks : Ranks
        The processes; this one is rank 0.
    jobs : sequence
        What to do; all must be picklable.
    work : callable
        Does a job: a function of a module, so that another process can import it.
    keep : callable
        Told each job and its result, in the order in which they come in.

    Raises
    ------
    HeliographError
        What a job raised, here or elsewhere.
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
    """Return the number of the next job that nobody has taken."""
    taken: int = ranks.store.add(f"{name}/taken", 1)
    return taken - 1


def _outcome(
    made_with: Mapping[str, str], rank: int, work: Callable[[Any], Any], job: object
) -> tuple[Watched[Any] | None, HeliographError | None]:
    """Return the result of a job, or what was wrong with it, which rank 0 tells."""
    from heliograph.records import versions  # noqa: PLC0415 - imports what the command line does without

    mine = versions()
    if differing := [name for name, version in made_with.items() if mine.get(name) != version]:
        name = differing[0]
        msg = f"rank {rank} has {name} {mine.get(name)}, rank 0 {made_with[name]}; install the same on both"
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
"""Time that jobs at work have to finish after Ctrl-C; a choice."""


@dataclass(frozen=True)
class Ended:
    """End of a process that had a job."""

    why: str
    """Signal or code that it ended with, as part of a sentence."""


@dataclass(frozen=True)
class _Raised:
    """Error of a job, which is raised again in the process that asked."""

    error: Exception


class _Worker:
    """One process and the job that it does, None while it is idle."""

    def __init__(self, prepared: bytes) -> None:
        self.job: Any = None
        self._prepared = prepared
        self.start()

    def start(self) -> None:
        """Start the process."""
        context = multiprocessing.get_context("spawn")
        with ctrl_c_later():  # it inherits this, and so starts without a traceback of its own
            self.answers, theirs = context.Pipe()
            self.process = context.Process(target=_work, args=(theirs, self._prepared), daemon=True)
            self.process.start()
            theirs.close()

    def hand(self, job: object) -> None:
        """Send the process a job."""
        self.job = job
        try:
            self.answers.send(job)
        except OSError:  # it has ended, which is told where it is waited for
            pass

    def settle(self, keep: Callable[[Any, Any], None], *, interrupted: bool = False) -> None:
        """Hand on what becomes of the job, its result or `Ended`; Ctrl-C waits for it.

        Interrupted, a job without a result is dropped: what interrupted this process may have ended it.
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
    """Processes that do jobs, one each at a time; a context manager, at whose end they end.

    Parameters
    ----------
    prepare : callable
        Called once in each process: returns the function that does its jobs. Picklable.
    workers : int
        Number of processes. One that ends in the midst of a job is replaced.

    Raises
    ------
    pickle.PicklingError, AttributeError, TypeError
        If what prepares cannot be pickled.

    Notes
    -----
    `concurrent.futures.ProcessPoolExecutor` gives all its jobs up when one process is killed.
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
        """Do jobs, each taken when a process is free for it.

        Parameters
        ----------
        jobs : iterable
            Picklable.
        keep : callable
            Told each job and its result, `Ended` if its process ended, as they come in; Ctrl-C waits for it.

        Raises
        ------
        Exception
            What a job raised.
        KeyboardInterrupt
            After Ctrl-C: jobs at work have `GRACE_S` to finish, and a second Ctrl-C ends them at once.
        """
        left = iter(jobs)
        try:
            while len(self._workers) < self._count:
                self._workers.append(_Worker(self._prepared))
            self._hand_out(left)
            while done := self._done():
                for worker in done:
                    worker.settle(keep)
                self._hand_out(left)
        except KeyboardInterrupt:
            sys.stderr.write(
                f"interrupted: runs at work have {GRACE_S:.0f} s to finish; Ctrl-C again stops them\n"
            )
            deadline = time.monotonic() + GRACE_S
            while done := self._done(max(0.0, deadline - time.monotonic())):
                for worker in done:
                    worker.settle(keep, interrupted=True)
            raise

    def _hand_out(self, left: Iterator[Any]) -> None:
        """Give idle processes their next jobs."""
        given = list(zip([one for one in self._workers if one.job is None], left, strict=False))
        for worker, _ in given:
            if not worker.process.is_alive():
                worker.start()
        for worker, job in given:
            worker.hand(job)

    def _done(self, patience_s: float | None = None) -> list[_Worker]:
        """Wait for processes that are done with their jobs, and return them; none if none has a job."""
        busy = {worker.answers: worker for worker in self._workers if worker.job is not None}
        ready = multiprocessing.connection.wait(list(busy), patience_s) if busy else []
        return [busy[one] for one in ready]  # type: ignore[index]


def _work(theirs: multiprocessing.connection.Connection, prepared: bytes) -> None:
    """Do jobs until the other end is closed; Ctrl-C is left to the parent, with which this ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(50_000, 20, 20)  # as the command line does
    threading.Thread(target=_end_with_parent, daemon=True).start()
    do: Callable[[Any], Any] | None = None
    while True:
        try:
            job = theirs.recv()
        except EOFError:
            return
        do = do or pickle.loads(prepared)()
        try:
            answer = do(job)
        except Exception as error:
            error.add_note("".join(traceback.format_exception(error)))  # a traceback stays in its process
            answer = _Raised(error)
        theirs.send(answer)


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
    """Run jobs in parallel and hand each result on; on Ctrl-C keep those that finish soon.

    Where torchrun started several processes, these do the jobs, be they on one machine or on many.

    Parameters
    ----------
    jobs : sequence
        What to do, each on one thread of a process of its own; all must be picklable. One whose process ends
        is done again in this one, after the others.
    work : callable
        Does a job: a function of a module, so that a new process can import it.
    keep : callable
        Told each job and its result, in the order in which they are done.
    then : callable
        Asked for more jobs when all are done; the same processes do them.

    Notes
    -----
    After the first Ctrl-C the jobs at work have `GRACE_S` to finish, and are kept if they do; the second ends
    them at once.
    """

    def here(asked: Sequence[Job]) -> None:
        for job in asked:
            keep(job, work(job))

    def in_crew(asked: Sequence[Job]) -> None:
        again: list[Job] = []

        def settle(job: Job, answer: Watched[Result] | Ended) -> None:
            if isinstance(answer, Ended):
                again.append(job)
            else:
                keep(job, told(answer))

        crew.do(asked, settle)
        here(again)

    def both(run: Callable[[Sequence[Job]], None]) -> None:
        run(jobs)
        if more := then():
            run(more)

    ranks = joined()
    workers = min(len(jobs), os.cpu_count() or 1)
    if ranks is not None:
        both(lambda asked: share_out(ranks, asked, work, keep))
    elif workers < 2:
        both(here)
    else:
        with Crew(partial(partial, watched, work), workers) as crew:
            both(in_crew)
