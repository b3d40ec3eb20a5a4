"""Running of a sweep: over a grid of points, or as a search for the Pareto front by an optimiser.

`run_sweep` takes a `SweepRequest` and returns a `Grid`; `search_front` takes a `FrontRequest` and returns a
`Front`. Both look every point up in the store first, run those that it lacks where `Execution` says, and
store each result as it comes. The optimiser asks for the same points in the same order if the request and
its seed are the same, so that an interrupted search is continued by running it again.
"""

from __future__ import annotations

import dataclasses
import json
import math
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
    outcome_of,
    usual_workers,
)
from simulator.errors import HeliographError, ParameterError, is_number, nearest, repeated
from simulator.units import plain_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LABEL_COLUMNS = 3
"""Result columns that label the rows of a study that gives several per point; a choice."""
MOST_LINES = 12
"""Lines of a picture; a choice. Beyond it, label columns are dropped from the last."""
NOT_RUN = "not run yet"
"""Text in the error column of a point that was not run yet."""
CSV, PARQUET = ".csv", ".parquet"
"""File name endings of the formats that a grid is exported to."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a grid."""

    inputs: Mapping[str, Value | None]
    """Values of the swept names, physical quantities in SI."""
    row: Mapping[str, Any]
    """Result; of a training step, the columns of `heliograph.records.COLUMNS`."""
    status: Status | None = Status.DONE
    """How it ended; None where it was not run."""
    rows: tuple[Mapping[str, Any], ...] = ()
    """Result rows, where the study gives several for one point."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Grid(Tabular):
    """Results at all points of a sweep, the last name varying fastest."""

    axes: Mapping[str, tuple[Value, ...]]
    """Values of each swept name, as the user wrote them."""
    sweep: str
    """Id of the sweep in its store, a hash of the request."""
    study: str = STEP
    """Name of the study that was run at every point."""
    path: Path | None = None
    """Store file; None where the sweep was kept in memory only."""
    kept: tuple[Point, ...] | None = field(default=None, repr=False)
    """The points, where there is no file to read them from."""

    @staticmethod
    def of(store: Store, sweep: str, study: str, axes: Mapping[str, tuple[Value, ...]]) -> Grid:
        """Return the grid of a sweep in an open store."""
        kept = None if store.path is not None else _read_points(store, sweep, study)
        return Grid(axes=axes, sweep=sweep, study=study, path=store.path, kept=kept)

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Points in order, read from the store when they are first asked for."""
        if self.kept is not None or self.path is None:
            return self.kept or ()
        with Store(self.path, existing=True) as store:
            return _read_points(store, self.sweep, self.study)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per point: the swept values, then the columns of its result.

        Of a training step these are `heliograph.records.COLUMNS`. A point that could not be built or run says
        why in the column ``error``. Where a study gives several rows for a point, each is preceded by the
        swept values. A swept value stands as it was asked for, except for plan and placement ``best``, in
        whose place the result names the ones found.
        """
        table = []
        for point in self.points:
            inputs = dict(point.inputs)
            for row in point.rows or (point.row,):
                found = {name for name, value in inputs.items() if is_searched(value) and row.get(name)}
                results = {name: value for name, value in row.items() if name not in inputs or name in found}
                table.append(inputs | results)
        return table

    @property
    def idle(self) -> tuple[str, ...]:
        """Swept names that move no result, whatever values the other names have."""
        return tuple(name for name in self.axes if self._is_idle(name))

    def _is_idle(self, name: str) -> bool:
        """Return whether points that differ in this name alone always have equal results."""
        results: dict[tuple[object, ...], list[dict[str, Any]]] = {}
        for point in self.points:
            others = tuple(value for other, value in point.inputs.items() if other != name)
            ignored = {*point.inputs, "settings"}
            result = [
                {column: value for column, value in row.items() if column not in ignored}
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
            With the error of the first point.
        """
        if self.kept is None and self.path is not None:
            with Store(self.path, existing=True) as store:
                ends = store.rows(self.sweep, ("status", "error"))
        else:
            ends = [{"status": point.status, "error": point.row["error"]} for point in self.points]
        if ends and not any(end["status"] == Status.DONE for end in ends):
            msg = f"no point of the sweep runs; the first says: {ends[0]['error']}"
            raise ParameterError(msg)

    def export(self, path: Path) -> Path:
        """Write the rows to FILE.csv or FILE.parquet and return the path.

        Raises
        ------
        HeliographError
            If the name ends otherwise, pyarrow is not installed, or the file cannot be written.
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
    def label_columns(self) -> tuple[str, ...]:
        """Result columns of text or whole numbers that differ among rows, at most `MOST_LABEL_COLUMNS`.

        Empty where every point has one row.
        """
        rows = self.rows()
        if len(rows) == len(self.points):
            return ()
        values_of = {
            name: {row.get(name) for row in rows}
            for name, value in rows[0].items()
            if name not in self.axes and isinstance(value, str | int) and not isinstance(value, bool)
        }
        return tuple(name for name, values in values_of.items() if len(values) > 1)[:MOST_LABEL_COLUMNS]

    def line_columns(self, x: str, y: str) -> list[str]:
        """Return the columns whose values make one line each of a picture of `y` over `x`.

        They are the swept names of several values other than `x`, and the fewest of `label_columns` that
        distinguish all rows.
        """
        along = x if x in self.axes else list(self.axes)[-1]
        swept = [name for name, values in self.axes.items() if name != along and len(values) > 1]
        labels = [name for name in self.label_columns if name not in (x, y)]
        rows = self.rows() if labels else []
        while labels:
            fewer = (*self.axes, x, *labels[:-1])
            if len({tuple(row.get(name) for name in fewer) for row in rows}) < len(rows):
                break
            labels.pop()
        return swept + labels

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Rows of the points that could not be built or run."""
        return [row for row in self.rows() if row["error"]]

    @property
    def abscissa(self) -> str:
        """Default abscissa of a picture: the first swept name of several values, numeric ones first."""
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
        """Return a figure of one column over another, a line for each combination of `line_columns`.

        Parameters
        ----------
        x : str, optional
            Column of the abscissa; `abscissa` by default.
        y : str
            Column of the ordinate.
        beside : mapping of str to sequence of (float, float)
            (x, y) points of further lines by name, such as a GPU's, drawn dashed.

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

        columns = self.line_columns(x, y)
        while len(columns) > 1 and len({tuple(row[name] for name in columns) for row in drawn}) > MOST_LINES:
            columns.pop()
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in drawn:
            label = ", ".join(f"{plain_name(name)} {_with_unit(name, row[name])}" for name in columns)
            lines.setdefault(label, []).append((row[x], row[y]))
        if beside and "" in lines:
            lines[str(rows[0].get("system") or "swept")] = lines.pop("")
        return lines_figure(lines, x=x, y=y, beside=beside)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the summary that is printed: a title, then the values and ranges of the main columns."""
        done = [point.row for point in self.points if not point.row["error"]]
        lines = [(f"Grid of {len(self.points)} points", f"{len(done)} run")]
        lines += [(name, ", ".join(map(str, values))) for name, values in self.axes.items()]
        for column in ("step_time_s", "energy_per_token_j", "usd_per_million_tokens", "snr_db"):
            if done and all(is_number(row.get(column)) for row in done):
                least, most = (pick(row[column] for row in done) for pick in (min, max))
                lines.append((column, f"{_with_unit(column, least)} to {_with_unit(column, most)}"))
        failed = [str(point.row["error"]) for point in self.points if point.row["error"]]
        return [*lines, ("not run", f"{len(failed)}: {failed[0]}")] if failed else lines


def _read_points(store: Store, sweep: str, study: str) -> tuple[Point, ...]:
    columns = list(COLUMNS) if study == STEP else [*store.columns_of(study), "error"]
    points = []
    for cells in store.rows(sweep, list(dict.fromkeys(["status", "error", "rows", *columns]))):
        status = None if cells["status"] is None else Status(cells["status"])
        row = {name: cells[name] for name in columns}
        row["error"] = NOT_RUN if status is None else cells["error"]
        rows = tuple(json.loads(cells["rows"])) if cells["rows"] else ()
        points.append(Point(inputs=cells["inputs"], row=row, status=status, rows=rows))
    return tuple(points)


def _with_unit(name: str, value: object) -> str:
    """Return a value as text, a number with the unit that the column's name ends in."""
    if not isinstance(value, int | float):
        return str(value)
    return format_quantity(float(value), unit_of(name))


Values = Sequence[Value] | Value | Range
"""Values of one swept name: a list, a single value, or a range."""


class Engine(StrEnum):
    """Executor of a sweep's points."""

    PROCESSES = "processes"
    """Processes of this machine; this process alone where there are few points."""
    DASK = "dask"
    """Workers of a Dask scheduler, which may be on other machines."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Settings of a sweep's execution: store, engine and number of workers."""

    store: Path | None = None
    """SQLite file of the results; None keeps them in memory."""
    workers: int | None = None
    """Number of processes; None for `heliograph.sweeps.work.usual_workers`."""
    engine: Engine = Engine.PROCESSES
    """Executor of the points."""
    scheduler: str | None = None
    """Address of a Dask scheduler; None starts one on this machine."""
    retry_failed: bool = False
    """Whether points of the store that have no result are run again."""

    def __post_init__(self) -> None:
        if self.workers is not None and (not isinstance(self.workers, int) or self.workers < 1):
            msg = f"workers must be a whole number of at least 1; got {self.workers!r:.60}"
            raise ParameterError(msg)
        if self.scheduler is not None:
            host_and_port(self.scheduler)
        if self.scheduler is not None and self.engine is not Engine.DASK:
            msg = "a scheduler's address is for the engine dask; add --engine dask"
            raise ParameterError(msg)

    def run(
        self,
        work: Work,
        inputs: Mapping[str, Mapping[str, Value]],
        store: Store,
        on_outcome: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        """Run points and write the outcome of each to the store as it ends.

        Parameters
        ----------
        work : Work
            Calculation to run.
        inputs : mapping
            Values of each point, by its key.
        store : Store
            Open store of the sweep.
        on_outcome : callable
            Called with each outcome after it was stored.

        Raises
        ------
        HeliographError
            If the engine is not installed or cannot be reached.
        """

        def keep(key: str, outcome: Outcome) -> None:
            if outcome.status is Status.CRASHED and not outcome.row:
                outcome = dataclasses.replace(outcome, row=work.about(inputs[key]))
            store.record(key, work.study, outcome)
            on_outcome(outcome)

        def wanted(key: str) -> bool:
            status = store.status_of(key)
            return status is None or (self.retry_failed and status is not Status.DONE)

        if not inputs:
            return
        jobs = list(inputs.items())
        if self.engine is Engine.DASK:
            from heliograph.sweeps.work import on_cluster  # noqa: PLC0415 - an extra, which takes seconds

            on_cluster(work, jobs, keep, wanted, address=self.scheduler, workers=self.workers)
            return
        workers = min(self.workers or usual_workers(len(jobs)), len(jobs))
        if workers > 1:
            in_processes(work, jobs, keep, wanted, workers=workers)
            return
        run_here = work.runner(len(jobs))
        for key, point in jobs:
            if wanted(key):
                keep(key, outcome_of(run_here, work, point))


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """A sweep over all points of a space."""

    name: str
    """Name of the sweep in its store."""
    work: Work
    """Calculation at every point."""
    space: Space
    """Points of the sweep."""
    execution: Execution = field(default_factory=Execution)
    """Where the points are run and stored."""

    def definition(self) -> dict[str, Any]:
        """Return the points that are asked for as plain data; it is hashed and stored with the sweep."""
        return {
            "name": self.name,
            "study": self.work.study,
            "axes": {name: list(values) for name, values in self.space.values().items()},
            "zip": [list(axis.names) for axis in self.space.axes if len(axis.names) > 1],
            "where": list(self.space.where),
        }


def axis(name: str, values: Values) -> Axis:
    """Return the axis of a single swept name.

    Raises
    ------
    ParameterError
        If a value is neither a number nor text, or stands twice.
    """
    if isinstance(values, Range):
        listed: Iterable[Value] = values.values(name)
    else:
        listed = values if isinstance(values, Iterable) and not isinstance(values, str) else (values,)
    swept = [swept_value(name, value) for value in listed]
    if (twice := repeated(swept)) is not None:
        msg = f"{name}: {twice} stands twice; leave one of them out"
        raise ParameterError(msg)
    return Axis(names=(name,), values=tuple((value,) for value in swept))


def run_sweep(request: SweepRequest, progress: OnProgress = unheard) -> Grid:
    """Return the results at all points of a sweep; points that its store has are not run again.

    Parameters
    ----------
    request : SweepRequest
        The sweep.
    progress : callable
        Called with a label, the number of points done, and the number in all.

    Raises
    ------
    HeliographError
        If the request cannot be read, or the store cannot be written. A point that cannot be run is a row.
    KeyboardInterrupt
        After Ctrl-C; finished points are kept.
    """
    with Store(request.execution.store) as store:
        inputs = request.space.inputs()
        sweep = _register(store, request, inputs)
        keys = store.keys(sweep)
        finished = store.finished(retried=request.execution.retry_failed)
        todo = {key: point for key, point in zip(keys, inputs, strict=True) if key not in finished}
        total, failed = len(set(keys)), 0
        done = total - len(todo)

        def count(outcome: Outcome) -> None:
            nonlocal done, failed
            done, failed = done + 1, failed + (outcome.status is not Status.DONE)
            progress(f"sweep, {failed} without a result" if failed else "sweep", done, total)

        progress("sweep", done, total)
        request.execution.run(request.work, todo, store, count)
        if done < total:  # another command ran the others meanwhile
            progress("sweep", total, total)
        return Grid.of(store, sweep, request.work.study, request.space.values())


def _register(
    store: Store, request: SweepRequest | FrontRequest, inputs: Sequence[Mapping[str, Value]] = ()
) -> str:
    """Write a sweep with its points, or a search without any, unless the store has it, and return its id."""
    work, definition = request.work, request.definition()
    sweep = sha256_of({**definition, "common": work.keys([{}]), "code": code_digest()})[:32]
    if not store.has_sweep(sweep):
        store.add_sweep(
            sweep,
            name=request.name,
            study=work.study,
            definition=definition,
            keys=work.keys(inputs),
            inputs=in_si(work, inputs),
        )
    return sweep


GENERATION = 24
"""Population size of the search; a choice. It does not depend on the workers, so that a search repeats."""
MOST_IDLE_GENERATIONS = 50
"""Generations in a row without a new point after which the search ends; a choice."""


def check_columns(columns: Iterable[str]) -> None:
    """Raise an error unless the results of a training step have these columns.

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
class FrontRequest:
    """A search for the Pareto front of a space."""

    name: str
    """Name of the search in its store."""
    work: Work
    """Calculation at every point."""
    ranges: Mapping[str, Range | tuple[Value, ...]]
    """Values that each name may take."""
    zips: tuple[Axis, ...] = ()
    """Names that vary together."""
    where: tuple[str, ...] = ()
    """Conditions that points must meet."""
    optimise: Optimise
    """Objectives, number of points and seed."""
    execution: Execution
    """Where points are run and stored."""

    def __post_init__(self) -> None:
        if self.work.study == STEP:
            check_columns(self.optimise.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of what varies."""
        return (*self.ranges, *(name for axis in self.zips for name in axis.names))

    def definition(self) -> dict[str, Any]:
        """Return the search that is asked for, as data that is hashed and stored with it."""
        return {
            "name": self.name,
            "study": self.work.study,
            "ranges": self.ranges,
            "zip": self.zips,
            "where": self.where,
            "optimise": self.optimise,
        }


@dataclass(frozen=True, kw_only=True)
class Front:
    """Pareto front of a search: the points that no other point dominates."""

    grid: Grid
    """All points that were tried."""
    optimise: Optimise
    """Objectives of the search."""

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
        front = np.flatnonzero(pareto(costs))
        return [rows[index] for index in front[np.lexsort(costs[front].T[::-1])]]

    def hypervolume(self, reference: Mapping[str, float]) -> float:
        """Return the hypervolume of the front, in the product of the objectives' units.

        Parameters
        ----------
        reference : mapping of str to float
            Reference point: a value of each objective that is worse than all of the front.
        """
        signs = _signs(self.optimise)
        worst = [sign * reference[name] for name, sign in zip(self.columns, signs, strict=True)]
        costs = [_costs(row, self.optimise) for row in self.rows()]
        return hypervolume(np.array([cost for cost in costs if cost is not None]), np.array(worst))


def _signs(optimise: Optimise) -> list[float]:
    """Return the factor of each objective that makes a minimisation of it."""
    return [1.0] * len(optimise.minimise) + [-1.0] * len(optimise.maximise)


def _costs(row: Mapping[str, Any], optimise: Optimise) -> list[float] | None:
    """Return the objectives of a row, signed so that all are minimised; None where one is missing."""
    values = [row.get(name) for name in optimise.columns]
    if row.get("error") or not all(
        isinstance(value, int | float) and math.isfinite(value) for value in values
    ):
        return None
    return [sign * float(value) for value, sign in zip(values, _signs(optimise), strict=True)]  # type: ignore[arg-type]


def pareto(costs: np.ndarray) -> np.ndarray:
    """Return which points are on the Pareto front, shape [points].

    Parameters
    ----------
    costs : numpy.ndarray
        Objectives, all minimised, shape [points, objectives]; of equal points the first is on the front.
    """
    on_front = np.ones(len(costs), dtype=bool)
    for index, cost in enumerate(costs):
        as_good = (costs <= cost).all(axis=1)
        dominates = as_good & (costs < cost).any(axis=1)
        first_equal = np.flatnonzero(as_good & (costs == cost).all(axis=1))[0]
        on_front[index] = not dominates.any() and first_equal == index
    return on_front


def hypervolume(costs: np.ndarray, reference: np.ndarray) -> float:
    """Return the volume of the region that points dominate, bounded by a reference point.

    Parameters
    ----------
    costs : numpy.ndarray
        Objectives, all minimised, shape [points, objectives].
    reference : numpy.ndarray
        Reference point, shape [objectives]; points that are worse in any objective add nothing.

    Notes
    -----
    The region is cut into slices along the last objective, from each point to the next; a slice has the
    hypervolume of the points up to it in the other objectives (recursion). This is exact, and quick for the
    few hundred points and four objectives of a search.
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
            (end - point[-1]) * hypervolume(inside[: index + 1, :-1], reference[:-1])
            for index, (point, end) in enumerate(zip(inside, ends, strict=True))
            if end > point[-1]
        )
    )


def search_front(request: FrontRequest, progress: OnProgress = unheard) -> Front:
    """Return the Pareto front that an evolutionary search finds (NSGA-II of Optuna; Deb et al. 2002).

    Parameters
    ----------
    request : FrontRequest
        Space, objectives and execution of the search.
    progress : callable
        Called with a label, the number of points done, and the number in all.

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
    sampler = optuna.samplers.NSGAIISampler(population_size=GENERATION, seed=request.optimise.seed)
    count = len(request.optimise.columns)
    study = optuna.create_study(sampler=sampler, directions=["minimize"] * count)
    with Store(request.execution.store) as store:
        sweep = _register(store, request)
        tried = _Search(request, study, optuna.trial.TrialState.FAIL, store, sweep).run(progress)
        values = {name: tuple(dict.fromkeys(point[name] for point in tried)) for name in request.names}
        return Front(grid=Grid.of(store, sweep, request.work.study, values), optimise=request.optimise)


@dataclass
class _Search:
    """A running search: asks Optuna for generations of points, runs the new ones, and reports their costs."""

    request: FrontRequest
    """The search that is asked for."""
    study: Any
    """Optimiser, an `optuna.study.Study`."""
    failed: Any
    """State that tells Optuna that a trial has no result."""
    store: Store
    """Open store."""
    sweep: str
    """Id of the search in the store."""

    def run(self, progress: OnProgress) -> list[dict[str, Value]]:
        """Try points until there are as many as asked for, and return their values in order."""
        most = self.request.optimise.trials
        indices: dict[str, int] = {}  # of each point that was tried, by its key
        tried: list[dict[str, Value]] = []
        idle = 0
        while len(tried) < most and idle < MOST_IDLE_GENERATIONS:
            progress("search", len(tried), most)
            trials = [self.study.ask() for _ in range(GENERATION)]
            inputs = [self._suggested_values(trial) for trial in trials]
            keys = self.request.work.keys(inputs)
            new = {}
            for key, point in zip(keys, inputs, strict=True):
                if key not in indices and self._meets_conditions(point) and len(tried) < most:
                    indices[key] = len(tried)
                    tried.append(point)
                    new[key] = point
            idle = 0 if new else idle + 1
            self._run_points(new, indices)
            self._report_costs(trials, keys, indices)
        progress("search", len(tried), most)
        return tried

    def _suggested_values(self, trial: Any) -> dict[str, Value]:  # noqa: ANN401 - of Optuna
        point: dict[str, Value] = {}
        for name, values in self.request.ranges.items():
            if isinstance(values, Range) and values.count is None:
                ends = sorted((values.low, values.high))
                point[name] = trial.suggest_float(name, *ends, log=values.log)
            else:
                listed = values.values(name) if isinstance(values, Range) else values
                point[name] = listed[trial.suggest_int(name, 0, len(listed) - 1)]
        for axis in self.request.zips:
            row = axis.values[trial.suggest_int(" ".join(axis.names), 0, len(axis.values) - 1)]
            point |= dict(zip(axis.names, row, strict=True))
        return point

    def _meets_conditions(self, inputs: Mapping[str, Value]) -> bool:
        names = tuple(inputs)
        return all(condition(text, names)(tuple(inputs.values())) for text in self.request.where)

    def _run_points(self, new: Mapping[str, Mapping[str, Value]], indices: Mapping[str, int]) -> None:
        request, store = self.request, self.store
        for key, values in zip(new, in_si(request.work, list(new.values())), strict=True):
            store.add_member(self.sweep, indices[key], key, values)
        finished = store.finished(retried=request.execution.retry_failed)
        todo = {key: point for key, point in new.items() if key not in finished}
        request.execution.run(request.work, todo, store)

    def _report_costs(self, trials: Sequence[Any], keys: Sequence[str], indices: Mapping[str, int]) -> None:
        """Tell Optuna the costs of a generation; a trial that was not run, or has no result, failed."""
        optimise = self.request.optimise
        for trial, key in zip(trials, keys, strict=True):
            row = self.store.row(key, optimise.columns) if key in indices else {}
            values = _costs(row, optimise)
            if values is None:
                self.study.tell(trial, state=self.failed)
            else:
                self.study.tell(trial, values)
