"""A sweep from what is asked to its grid, and the search for its Pareto front by an optimiser.

Points are looked up, the rest run, every result is kept. The same file with the same seed has an optimiser
ask for the same points in the same order, so that an interrupted search goes on by being run again.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from heliograph.parameters import unit_of
from heliograph.processes import OnProgress, unheard
from heliograph.records import COLUMNS, sha256_of, write_atomically
from heliograph.report import Tabular, format_quantity
from heliograph.sweeps.space import (
    STEP,
    Axis,
    Optimise,
    Range,
    Space,
    Value,
    condition,
    is_searched,
    swept_value,
)
from heliograph.sweeps.store import Outcome, Status, Store
from heliograph.sweeps.work import (
    Work,
    code_digest,
    host_and_port,
    in_processes,
    in_si,
    in_this_process,
    usual_workers,
)
from simulator.errors import HeliographError, ParameterError, is_number, nearest, repeated
from simulator.units import plain_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NAMES = 3
"""Columns of a study's own by which its rows are named; a choice."""
MOST_LINES = 12
"""Lines of a picture beyond which those columns are left out, from the last; a choice."""
NOT_RUN = "not run yet"
"""Error of a point that nothing became of so far."""
CSV, PARQUET = ".csv", ".parquet"
"""Kinds of file that a grid is exported to."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a grid."""

    inputs: Mapping[str, Value | None]
    """Values of what is swept, by name, in SI where they are numbers."""
    row: Mapping[str, Any]
    """Result: of a step, with the columns of `heliograph.records.COLUMNS`."""
    status: Status | None = Status.DONE
    """What became of it; None where it was not run."""
    rows: tuple[Mapping[str, Any], ...] = ()
    """Rows of the table of a study that has several."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Grid(Tabular):
    """Results at all points of a sweep, the last name varying fastest."""

    axes: Mapping[str, tuple[Value, ...]]
    """Values of each name, as they were asked for."""
    sweep: str
    """Hash of the sweep in its store."""
    study: str = STEP
    """Study that was run."""
    path: Path | None = None
    """The store; None where the sweep kept none."""
    kept: tuple[Point, ...] | None = field(default=None, repr=False)
    """The points, where there is no store to read them from."""

    @staticmethod
    def of(store: Store, sweep: str, study: str, axes: Mapping[str, tuple[Value, ...]]) -> Grid:
        """Return the grid of a sweep in an open store."""
        kept = None if store.path is not None else _points(store, sweep, study)
        return Grid(axes=axes, sweep=sweep, study=study, path=store.path, kept=kept)

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Points in order, read from the store when they are first asked for."""
        if self.kept is not None or self.path is None:
            return self.kept or ()
        with Store(self.path, existing=True) as store:
            return _points(store, self.sweep, self.study)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each point: what is swept, then `heliograph.records.COLUMNS`.

        A point that could not be built or run says why in the column ``error``. A study whose table has
        several rows has them all here, each with what was swept before it.
        """
        found = []
        for point in self.points:
            inputs = dict(point.inputs)
            for row in point.rows or (point.row,):
                told = {name for name, value in inputs.items() if not is_searched(value) or not row.get(name)}
                found.append(inputs | {name: value for name, value in row.items() if name not in told})
        return found

    @property
    def idle(self) -> tuple[str, ...]:
        """Names of which no value changes any result, whatever the others are."""
        return tuple(name for name in self.axes if self._is_idle(name))

    def _is_idle(self, name: str) -> bool:
        results: dict[tuple[object, ...], list[dict[str, Any]]] = {}
        for point in self.points:
            others = tuple(value for other, value in point.inputs.items() if other != name)
            told = {*point.inputs, "settings"}
            result = [
                {column: value for column, value in row.items() if column not in told}
                for row in point.rows or (point.row,)
            ]
            if results.setdefault(others, result) != result:
                return False
        return len(results) < len(self.points)

    def check(self) -> None:
        """Raise an error if no point has a result.

        Raises
        ------
        ParameterError
            With the sentence of the first.
        """
        if self.kept is None and self.path is not None:
            with Store(self.path, existing=True) as store:
                found = store.rows(self.sweep, ("status", "error"))
        else:
            found = [{"status": one.status, "error": one.row["error"]} for one in self.points]
        if found and not any(one["status"] == Status.DONE for one in found):
            msg = f"no point of the sweep runs; the first says: {found[0]['error']}"
            raise ParameterError(msg)

    def export(self, path: Path) -> Path:
        """Write the rows as CSV or Parquet, by the file's name; return the path.

        Raises
        ------
        HeliographError
            If the name says neither, what writes Parquet is not installed, or the file cannot be written.
        """
        if path.suffix == CSV:
            return self.to_csv(path)
        if path.suffix != PARQUET:
            msg = f"cannot export to {path}: write FILE{CSV} or FILE{PARQUET}"
            raise ParameterError(msg)
        try:
            import pyarrow as pa  # noqa: PLC0415 - an extra
            import pyarrow.parquet  # noqa: PLC0415 - as above
        except ImportError as error:
            msg = f"{PARQUET} needs pyarrow; pip install 'heliograph[parquet]', or export FILE{CSV}"
            raise HeliographError(msg) from error
        buffer = pa.BufferOutputStream()
        rows = self.rows()
        columns = dict.fromkeys(name for row in rows for name in row)
        table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in columns})
        pyarrow.parquet.write_table(table, buffer)
        write_atomically(path, buffer.getvalue().to_pybytes())
        return path

    @property
    def own_names(self) -> tuple[str, ...]:
        """Columns that tell the rows of a study's point apart, words and counts, at most `MOST_NAMES`."""
        rows = self.rows()
        if len(rows) == len(self.points):
            return ()
        told = {
            name: {row.get(name) for row in rows}
            for name, value in rows[0].items()
            if name not in self.axes and isinstance(value, str | int) and not isinstance(value, bool)
        }
        return tuple(name for name, values in told.items() if len(values) > 1)[:MOST_NAMES]

    def names_beside(self, x: str, y: str) -> list[str]:
        """Return what tells the lines of one column over another apart.

        Other inputs of several values, and of a study's own columns as many as tell all rows apart.
        """
        along = x if x in self.axes else list(self.axes)[-1]
        others = [name for name, values in self.axes.items() if name != along and len(values) > 1]
        own = [name for name in self.own_names if name not in (x, y)]
        rows = self.rows() if own else []
        while own:
            fewer = (*self.axes, x, *own[:-1])
            if len({tuple(row.get(one) for one in fewer) for row in rows}) < len(rows):
                break
            own.pop()
        return others + own

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Rows of the points that could not be built or run."""
        return [row for row in self.rows() if row["error"]]

    @property
    def abscissa(self) -> str:
        """Name to the right of a picture: the first with several values, numbers before names."""
        several = [name for name, values in self.axes.items() if len(values) > 1] or list(self.axes)
        rows = self.rows()
        return min(several, key=lambda name: not any(is_number(row[name]) for row in rows))

    def plot(
        self,
        x: str | None = None,
        y: str = "step_time_s",
        *,
        beside: Mapping[str, Sequence[tuple[float, float]]] = MappingProxyType({}),
    ) -> Figure:
        """Return a figure of one column over another, a line for each combination of the other inputs.

        Parameters
        ----------
        x : str, optional
            Column of the abscissa; `abscissa` by default.
        y : str
            Column of the ordinate.
        beside : mapping of str to sequence of (float, float)
            Points of further lines, such as a GPU's, drawn dashed.

        Raises
        ------
        ParameterError
            If there is no such column, or no point has numbers for both.
        """
        rows = self.rows()
        x = self.abscissa if x is None else x
        for column in (x, y):
            if column not in rows[0]:
                msg = f"no column '{column}' to draw; {nearest(str(column), rows[0], noun='column')}"
                raise ParameterError(msg)
        drawn = [row for row in rows if is_number(row[x]) and is_number(row[y])]
        if not drawn:
            msg = f"nothing to draw: no point has numbers for both {x} and {y}"
            raise ParameterError(msg)
        from heliograph.figures import lines_figure  # noqa: PLC0415 - matplotlib takes its time

        others = self.names_beside(x, y)
        while len(others) > 1 and len({tuple(row[one] for one in others) for row in drawn}) > MOST_LINES:
            others.pop()
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in drawn:
            name = ", ".join(f"{plain_name(one)} {_shown(one, row[one])}" for one in others)
            lines.setdefault(name, []).append((row[x], row[y]))
        if beside and "" in lines:
            lines[str(rows[0].get("system") or "swept")] = lines.pop("")
        return lines_figure(lines, x=x, y=y, beside=beside)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return title and lines of the grid as it is shown."""
        done = [point.row for point in self.points if not point.row["error"]]
        lines = [(f"Grid of {len(self.points)} points", f"{len(done)} run")]
        lines += [(name, ", ".join(map(str, values))) for name, values in self.axes.items()]
        for column in ("step_time_s", "energy_per_token_j", "usd_per_million_tokens", "snr_db"):
            if done and all(is_number(row.get(column)) for row in done):
                least, most = (pick(row[column] for row in done) for pick in (min, max))
                lines.append((column, f"{_shown(column, least)} to {_shown(column, most)}"))
        failed = [str(point.row["error"]) for point in self.points if point.row["error"]]
        return [*lines, ("not run", f"{len(failed)}: {failed[0]}")] if failed else lines


def _points(store: Store, sweep: str, study: str) -> tuple[Point, ...]:
    own = ("status", "error", "rows")
    columns = list(COLUMNS) if study == STEP else [*store.columns_of(study), "error"]
    read = list(dict.fromkeys([*own, *columns]))
    return tuple(
        Point(
            inputs=one["inputs"],
            row={name: one[name] for name in columns} | {"error": _error(one)},
            status=None if one["status"] is None else Status(one["status"]),
            rows=tuple(json.loads(one["rows"])) if one["rows"] else (),
        )
        for one in store.rows(sweep, read)
    )


def _error(one: Mapping[str, Any]) -> str | None:
    return NOT_RUN if one["status"] is None else one["error"]


def _shown(name: str, value: object) -> str:
    """Return a value with its unit, by the name's ending."""
    if not isinstance(value, int | float):
        return str(value)
    return format_quantity(float(value), unit_of(name))


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
        self,
        work: Work,
        inputs: Mapping[str, Mapping[str, Value]],
        store: Store,
        tell: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        """Run points, and keep each as it comes in.

        Parameters
        ----------
        work : Work
            What the points have in common.
        inputs : mapping
            Values of each point, by its key.
        store : Store
            Where they are kept.
        tell : callable
            Told what became of each.

        Raises
        ------
        HeliographError
            If the engine is not installed or cannot be reached.
        """

        def keep(key: str, outcome: Outcome) -> None:
            if outcome.status is Status.CRASHED and not outcome.row:
                outcome = dataclasses.replace(outcome, row=work.about(inputs[key]))
            store.record(key, work.study, outcome)
            tell(outcome)

        def wanted(key: str) -> bool:
            found = store.status_of(key)
            return found is None or (self.retry_failed and found is not Status.DONE)

        if not inputs:
            return
        jobs = list(inputs.items())
        if self.engine is Engine.DASK:
            from heliograph.sweeps.work import on_cluster  # noqa: PLC0415 - an extra, which takes seconds

            on_cluster(work, jobs, keep, wanted, address=self.scheduler, workers=self.workers)
            return
        workers = min(self.workers or usual_workers(len(jobs)), len(jobs))
        if workers == 1:
            in_this_process(work, jobs, keep, wanted)
        else:
            in_processes(work, jobs, keep, wanted, workers=workers)


def _is_address(text: object) -> bool:
    """Return whether text names a host and a port."""
    if not isinstance(text, str):
        return False
    try:
        host_and_port(text)
    except ValueError:
        return False
    return True


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
    if (twice := repeated(swept)) is not None:
        msg = f"{name}: {twice} stands twice; leave one of them out"
        raise ParameterError(msg)
    return Axis(names=(name,), values=tuple((value,) for value in swept))


def run_sweep(asked: Asked, progress: OnProgress = unheard) -> Grid:
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
        asked.means.run(asked.work, todo, store, clock.tell)
        clock.end()
        return Grid.of(store, sweep, asked.work.study, asked.space.values())


def entered(store: Store, asked: Asked) -> str:
    """Return the hash of a sweep, which with its points stands in the store afterwards."""
    common = asked.work.keys([{}])
    sweep = sha256_of({**asked.definition(), "common": common, "code": code_digest()})[:32]
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


class _Clock:
    """Progress with the time that is left, told at most a few times a second."""

    def __init__(self, progress: OnProgress, *, total: int, left: int) -> None:
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


GENERATION = 24
"""Points that are asked for together; a choice, the same whatever runs them, so that a search repeats."""
MOST_DRAWS = 50
"""Generations in a row that may bring no new point before the search ends; a choice."""


def check_columns(columns: Iterable[str]) -> None:
    """Raise an error unless a step has such columns.

    Raises
    ------
    ParameterError
        If it has not.
    """
    for column in columns:
        if column not in COLUMNS:
            msg = f"no column '{column}' to optimise; {nearest(column, COLUMNS, noun='column')}"
            raise ParameterError(msg)


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A search for the best points."""

    name: str
    """Name that it is told by."""
    work: Work
    """What its points have in common."""
    ranges: Mapping[str, Range | tuple[Value, ...]]
    """Values that each name may take."""
    zips: tuple[Axis, ...] = ()
    """Names that vary together."""
    where: tuple[str, ...] = ()
    """Conditions that points must meet."""
    optimise: Optimise
    """What is to be small or large."""
    means: Means
    """Where points are run and kept."""

    def __post_init__(self) -> None:
        if self.work.study == STEP:
            check_columns(self.optimise.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of what varies."""
        return (*self.ranges, *(name for axis in self.zips for name in axis.names))


@dataclass(frozen=True, kw_only=True)
class Front:
    """Points of a search of which none is better in everything than another."""

    grid: Grid
    """All points that were asked for."""
    optimise: Optimise
    """What was to be small or large."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the objectives."""
        return self.optimise.columns

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the front, the best of the first objective first."""
        rows = [row for row in self.grid.rows() if _costs(row, self.optimise) is not None]
        if not rows:
            return []
        costs = np.array([_costs(row, self.optimise) for row in rows])
        kept = np.flatnonzero(pareto(costs))
        return [rows[place] for place in kept[np.lexsort(costs[kept].T[::-1])]]

    def hypervolume(self, reference: Mapping[str, float]) -> float:
        """Return the volume between the front and a point that is worse in every objective.

        Parameters
        ----------
        reference : mapping of str to float
            That point, a value for each objective; the volume is in the product of their units.
        """
        signs = _signs(self.optimise)
        worst = [sign * reference[name] for name, sign in zip(self.columns, signs, strict=True)]
        costs = [_costs(row, self.optimise) for row in self.rows()]
        return hypervolume(np.array([one for one in costs if one is not None]), np.array(worst))


def _signs(optimise: Optimise) -> list[float]:
    return [1.0] * len(optimise.minimise) + [-1.0] * len(optimise.maximise)


def _costs(row: Mapping[str, Any], optimise: Optimise) -> list[float] | None:
    """Return the objectives of a row, all to be small; None where one is missing."""
    found = [row.get(name) for name in optimise.columns]
    if row.get("error") or not all(isinstance(one, int | float) and math.isfinite(one) for one in found):
        return None
    return [sign * float(one) for one, sign in zip(found, _signs(optimise), strict=True)]  # type: ignore[arg-type]


def pareto(costs: np.ndarray) -> np.ndarray:
    """Return which points no other is better than: as good in everything and better in something.

    Parameters
    ----------
    costs : numpy.ndarray
        Objectives, all to be small, shape [points, objectives]; of equal points the first counts.
    """
    kept = np.ones(len(costs), dtype=bool)
    for place, one in enumerate(costs):
        as_good = (costs <= one).all(axis=1)
        better = as_good & (costs < one).any(axis=1)
        first = np.flatnonzero(as_good & (costs == one).all(axis=1))[0]
        kept[place] = not better.any() and first == place
    return kept


def hypervolume(costs: np.ndarray, reference: np.ndarray) -> float:
    """Return the volume that points dominate up to a reference.

    Parameters
    ----------
    costs : numpy.ndarray
        Objectives, all to be small, shape [points, objectives].
    reference : numpy.ndarray
        Worst value of each, shape [objectives]; points beyond it add nothing.

    Notes
    -----
    Slices along the last objective, each as thick as to the next point, times the volume of what lies before
    it: exact, and quick for the few hundred points and four objectives of a search.
    """
    if not len(costs):
        return 0.0
    inside = costs[(costs < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    if inside.shape[1] == 1:
        return float(reference[0] - inside.min())
    inside = inside[pareto(inside)]
    inside = inside[np.argsort(inside[:, -1], kind="stable")]
    ends = np.append(inside[1:, -1], reference[-1])
    return float(
        sum(
            (end - point[-1]) * hypervolume(inside[: place + 1, :-1], reference[:-1])
            for place, (point, end) in enumerate(zip(inside, ends, strict=True))
            if end > point[-1]
        )
    )


def search_front(asked: Searched, progress: OnProgress = unheard) -> Front:
    """Return the front that an evolutionary search finds (NSGA-II of Optuna; Deb et al. 2002).

    Parameters
    ----------
    asked : Searched
        What may vary, and what is wanted.
    progress : callable
        Told a label, how much is done, and how much there is.

    Raises
    ------
    HeliographError
        If Optuna is not installed, or the store cannot be written.
    """
    try:
        import optuna  # noqa: PLC0415 - an extra
    except ImportError as error:
        msg = "Optuna is not installed; pip install 'heliograph[search]', or leave [optimise] out for a grid"
        raise HeliographError(msg) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.NSGAIISampler(population_size=GENERATION, seed=asked.optimise.seed)
    count = len(asked.optimise.columns)
    study = optuna.create_study(sampler=sampler, directions=["minimize"] * count)
    with Store(asked.means.store) as store:
        sweep = _search_entered(store, asked)
        found = _Search(asked, study, optuna.trial.TrialState.FAIL, store, sweep).run(progress)
        values = {name: tuple(dict.fromkeys(one[name] for one in found)) for name in asked.names}
        return Front(grid=Grid.of(store, sweep, asked.work.study, values), optimise=asked.optimise)


def _search_entered(store: Store, asked: Searched) -> str:
    told = {
        "name": asked.name,
        "study": asked.work.study,
        "ranges": asked.ranges,
        "zip": [list(axis.names) for axis in asked.zips],
        "where": asked.where,
        "optimise": asked.optimise,
    }
    common = asked.work.keys([{}])
    sweep = sha256_of({**told, "common": common, "code": code_digest(), "zips": asked.zips})[:32]
    store.enter(sweep, name=asked.name, study=asked.work.study, definition=told, keys=(), inputs=())
    return sweep


@dataclass
class _Search:
    """A search as it goes."""

    asked: Searched
    study: Any
    failed: Any
    store: Store
    sweep: str

    def run(self, progress: OnProgress) -> list[dict[str, Value]]:
        """Ask for points until there are enough; return them."""
        most, places = self.asked.optimise.trials, {}
        found: list[dict[str, Value]] = []
        idle = 0
        while len(found) < most and idle < MOST_DRAWS:
            progress("search", len(found), most)
            trials = [self.study.ask() for _ in range(GENERATION)]
            inputs = [self._inputs(trial) for trial in trials]
            keys = self.asked.work.keys(inputs)
            new = {}
            for key, one in zip(keys, inputs, strict=True):
                if key not in places and self._meets(one) and len(found) < most:
                    places[key] = len(found)
                    found.append(one)
                    new[key] = one
            idle = 0 if new else idle + 1
            self._run(new, places)
            self._tell(trials, keys, places)
        progress("search", len(found), most)
        return found

    def _inputs(self, trial: Any) -> dict[str, Value]:  # noqa: ANN401 - of Optuna
        """Return the values of a trial."""
        found: dict[str, Value] = {}
        for name, values in self.asked.ranges.items():
            if isinstance(values, Range) and values.count is None:
                ends = sorted((values.low, values.high))
                found[name] = trial.suggest_float(name, *ends, log=values.log)
            else:
                listed = values.values(name) if isinstance(values, Range) else values
                found[name] = listed[trial.suggest_int(name, 0, len(listed) - 1)]
        for axis in self.asked.zips:
            row = axis.values[trial.suggest_int(" ".join(axis.names), 0, len(axis.values) - 1)]
            found |= dict(zip(axis.names, row, strict=True))
        return found

    def _meets(self, inputs: Mapping[str, Value]) -> bool:
        names = tuple(inputs)
        return all(condition(text, names)(tuple(inputs.values())) for text in self.asked.where)

    def _run(self, new: Mapping[str, Mapping[str, Value]], places: Mapping[str, int]) -> None:
        asked, store = self.asked, self.store
        told = in_si(asked.work, list(new.values()))
        for (key, _), one in zip(new.items(), told, strict=True):
            store.add_member(self.sweep, places[key], key, one)
        finished = store.finished(retried=asked.means.retry_failed)
        left = {key: one for key, one in new.items() if key not in finished}
        asked.means.run(asked.work, left, store)

    def _tell(self, trials: Sequence[Any], keys: Sequence[str], places: Mapping[str, int]) -> None:
        optimise = self.asked.optimise
        for trial, key in zip(trials, keys, strict=True):
            row = self.store.row(key, optimise.columns) if key in places else {}
            values = _costs(row, optimise)
            if values is None:
                self.study.tell(trial, state=self.failed)
            else:
                self.study.tell(trial, values)
