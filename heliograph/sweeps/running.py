"""A sweep from what is asked to its grid: points are looked up, the rest run, and every result is kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heliograph.records import plain
from heliograph.sweeps.grid import Grid
from heliograph.sweeps.local import Job, in_processes, in_this_process, usual_workers
from heliograph.sweeps.space import Axis, Range, Space, Value, swept_value
from heliograph.sweeps.store import Outcome, Status, Store
from heliograph.sweeps.work import Work, code_digest, in_si
from simulator.errors import ParameterError

Progress = Callable[[str, int, int], None]
"""Told a label, how much is done, and how much there is."""
Values = Sequence[Value] | Value | Range
"""Values of one name."""


class Engine(StrEnum):
    """Place where points are run."""

    PROCESSES = "processes"
    """Processes of this machine, or this one where there are few points."""
    DASK = "dask"
    """Workers of a Dask scheduler, which may be on other machines."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """Where points are run, and where their results are kept."""

    store: Path | None = None
    """SQLite file; None keeps nothing."""
    workers: int | None = None
    """Processes; None for as many as are worth it."""
    engine: Engine = Engine.PROCESSES
    """What runs the points."""
    scheduler: str | None = None
    """Address of a Dask scheduler; None starts one here."""
    retry_failed: bool = False
    """Whether points without a result are run again."""

    def __post_init__(self) -> None:
        if self.workers is not None and (not isinstance(self.workers, int) or self.workers < 1):
            msg = f"workers must be a whole number of at least 1; got {self.workers!r:.60}"
            raise ParameterError(msg)
        if self.scheduler is not None and not _is_address(self.scheduler):
            msg = f"a scheduler's address is text such as tcp://HOST:8786; got {self.scheduler!r:.60}"
            raise ParameterError(msg)
        if self.scheduler is not None and self.engine is not Engine.DASK:
            msg = "a scheduler's address is for the engine dask; add --engine dask"
            raise ParameterError(msg)

    def run(
        self, work: Work, jobs: Sequence[Job], keep: Callable[[str, Outcome], None], store: Store
    ) -> None:
        """Run points, and keep each as it comes in.

        Raises
        ------
        HeliographError
            If the engine is not installed or cannot be reached.
        """

        def wanted(key: str) -> bool:
            found = store.status_of(key)
            return found is None or (self.retry_failed and found is not Status.DONE)

        if self.engine is Engine.DASK:
            from heliograph.sweeps.cluster import on_cluster  # noqa: PLC0415 - an extra, which takes seconds

            on_cluster(work, jobs, keep, wanted, address=self.scheduler, workers=self.workers)
            return
        workers = min(self.workers or usual_workers(len(jobs)), max(1, len(jobs)))
        if workers == 1:
            in_this_process(work, jobs, keep, wanted)
        else:
            in_processes(work, jobs, keep, wanted, workers=workers)


def _is_address(text: object) -> bool:
    """Return whether text names a host and a port."""
    if not isinstance(text, str):
        return False
    try:
        parts = urlsplit(text if "://" in text else f"tcp://{text}")
        return bool(parts.hostname and parts.port)
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A sweep as it is asked for."""

    name: str
    """Name that it is told by."""
    work: Work
    """What its points have in common."""
    space: Space
    """Its points."""
    means: Means = field(default_factory=Means)
    """Where they are run and kept."""

    def definition(self) -> dict[str, Any]:
        """Return what is asked, as plain data."""
        return {
            "name": self.name,
            "study": self.work.study,
            "axes": {name: list(values) for name, values in self.space.values().items()},
            "zip": [list(axis.names) for axis in self.space.axes if len(axis.names) > 1],
            "where": list(self.space.where),
        }


def axis(name: str, values: Values) -> Axis:
    """Return the axis of one name.

    Raises
    ------
    ParameterError
        If a value is neither a number nor text, or stands twice.
    """
    if isinstance(values, Range):
        found: Iterable[Value] = values.values(name)
    else:
        found = values if isinstance(values, Iterable) and not isinstance(values, str) else (values,)
    swept = [swept_value(name, value) for value in found]
    twice = next((value for place, value in enumerate(swept) if value in swept[:place]), None)
    if twice is not None:
        msg = f"{name}: {twice} stands twice; leave one of them out"
        raise ParameterError(msg)
    return Axis(names=(name,), values=tuple((value,) for value in swept))


def run_sweep(asked: Asked, progress: Progress = lambda label, done, total: None) -> Grid:
    """Return the results at all points of a sweep, those that are in its store without running them.

    Parameters
    ----------
    asked : Asked
        The sweep.
    progress : callable
        Told a label, how much is done, and how much there is.

    Raises
    ------
    HeliographError
        If what is asked cannot be read, or the store cannot be written. A point that cannot be run is a row.
    KeyboardInterrupt
        After Ctrl-C; what is finished is kept.
    """
    with Store(asked.means.store) as store:
        sweep = entered(store, asked)
        keys = store.keys(sweep)
        inputs = asked.space.inputs()
        finished = store.finished(retried=asked.means.retry_failed)
        todo = {key: one for key, one in zip(keys, inputs, strict=True) if key not in finished}
        clock = _Clock(progress, total=len(set(keys)), left=len(todo))
        seen: set[str] = set()

        def keep(key: str, outcome: Outcome) -> None:
            if outcome.status is Status.CRASHED and not outcome.row:
                outcome = dataclasses.replace(outcome, row=asked.work.about(todo[key]))
            store.record(key, asked.work.study, outcome)
            seen.add(key)
            clock.tell(outcome)

        if todo:
            asked.means.run(asked.work, list(todo.items()), keep, store)
        clock.end()
        return Grid.of(store, sweep, asked.work.study, asked.space.values())


def entered(store: Store, asked: Asked) -> str:
    """Return the hash of a sweep, which with its points stands in the store afterwards."""
    told = {**asked.definition(), "common": _common(asked.work), "code": code_digest()}
    sweep = hashlib.sha256(json.dumps(plain(told), sort_keys=True).encode()).hexdigest()[:32]
    if not store.known(sweep):
        inputs = asked.space.inputs()
        store.enter(
            sweep,
            name=asked.name,
            study=asked.work.study,
            definition=asked.definition(),
            keys=asked.work.keys(inputs),
            inputs=in_si(asked.work, inputs),
        )
    return sweep


def _common(work: Work) -> str:
    """Return the key of a point without inputs, which holds everything that points have in common."""
    return work.keys([{}])[0]


class _Clock:
    """Progress with the time that is left, told at most a few times a second."""

    def __init__(self, progress: Progress, *, total: int, left: int) -> None:
        self._progress, self._total, self._left = progress, total, left
        self._began = self._last = time.monotonic()
        self._run = self._failed = 0
        progress("sweep", total - left, total)

    def tell(self, outcome: Outcome) -> None:
        """Count a point."""
        self._run += 1
        self._failed += outcome.status is not Status.DONE
        now = time.monotonic()
        if now - self._last >= TOLD_EVERY_S:
            self._last = now
            left_s = (now - self._began) / self._run * (self._left - self._run)
            self._say(f", {_duration(left_s)} left")

    def end(self) -> None:
        """Tell that all is done."""
        self._left = self._run
        self._say("")

    def _say(self, more: str) -> None:
        failed = f", {self._failed} without a result" if self._failed else ""
        self._progress(f"sweep{failed}{more}", self._total - self._left + self._run, self._total)


TOLD_EVERY_S = 0.5
"""Time between two lines of progress; a choice."""


def _duration(seconds: float) -> str:
    """Return a time in the two units that a person reads."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {whole % 60:02d} s" if minutes else f"{whole} s"
