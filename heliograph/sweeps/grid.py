"""Grid: what a sweep returns, its points in order with what became of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heliograph.records import COLUMNS, write_atomically
from heliograph.report import Tabular, format_quantity
from heliograph.sweeps.space import Value
from heliograph.sweeps.store import Status, Store
from heliograph.sweeps.work import STEP
from simulator.errors import HeliographError, ParameterError, nearest
from simulator.units import dimension_of, plain_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
                found.append(inputs | {name: value for name, value in row.items() if name not in inputs})
        return found

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
    def failures(self) -> list[dict[str, Any]]:
        """Rows of the points that could not be built or run."""
        return [row for row in self.rows() if row["error"]]

    def plot(self, x: str, y: str) -> Figure:
        """Return a figure of one column over another, a line for each combination of the other inputs.

        Raises
        ------
        ParameterError
            If there is no such column, or no point has numbers for both.
        """
        rows = self.rows()
        for column in (x, y):
            if column not in rows[0]:
                msg = f"no column '{column}' to draw; {nearest(str(column), rows[0], noun='column')}"
                raise ParameterError(msg)
        drawn = [row for row in rows if _is_number(row[x]) and _is_number(row[y])]
        if not drawn:
            msg = f"nothing to draw: no point has numbers for both {x} and {y}"
            raise ParameterError(msg)
        from heliograph.figures import lines_figure  # noqa: PLC0415 - matplotlib takes its time

        along = list(self.axes)[-1] if x not in self.axes else x
        others = [name for name, values in self.axes.items() if name != along and len(values) > 1]
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in drawn:
            name = ", ".join(f"{plain_name(one)} {_shown(one, row[one])}" for one in others)
            lines.setdefault(name, []).append((row[x], row[y]))
        return lines_figure(lines, x=x, y=y)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return title and lines of the grid as it is shown."""
        done = [point.row for point in self.points if not point.row["error"]]
        lines = [(f"Grid of {len(self.points)} points", f"{len(done)} run")]
        lines += [(name, ", ".join(map(str, values))) for name, values in self.axes.items()]
        for column in ("step_time_s", "energy_per_token_j", "usd_per_million_tokens", "snr_db"):
            if done and all(_is_number(row.get(column)) for row in done):
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
    dimension = dimension_of(name)
    return format_quantity(float(value), dimension[1] if dimension else "1")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
