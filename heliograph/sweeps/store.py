"""Store of a sweep: an SQLite file with one row per point, safe to interrupt and to share among processes.

It has three tables and a view. ``points`` has one row for each point that was run, by its key: status, error
and time, then the columns of its result (of a training step `heliograph.records.COLUMNS`). ``sweeps`` has one
row per sweep. ``members`` lists the points of each sweep in order, with the swept values as JSON. The view
``results`` joins all. docs/sweeps.md describes every column.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from heliograph.records import COLUMNS, plain
from simulator.errors import HeliographError
from simulator.files import ctrl_c_later

LAYOUT = 1
"""Version of the tables, ``PRAGMA user_version`` of the file."""
PATIENCE_S = 60.0
"""Longest wait for another process that writes."""


class Status(StrEnum):
    """End of a point's run."""

    DONE = "done"
    """It has a result."""
    FAILED = "failed"
    """It cannot be built or run; the error says why."""
    CRASHED = "crashed"
    """Its process ended, or the program has a fault."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of one point, or the reason why it has none."""

    status: Status
    """Whether it has a result, failed or crashed."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """Result columns by name; of a point without a result, those that identify it."""
    error: str | None = None
    """Sentence that says why there is no result."""
    rows: tuple[Mapping[str, Any], ...] = ()
    """Result rows, where the study gives several for one point."""
    warnings: tuple[str, ...] = ()
    """Warnings about the result."""
    seconds: float = 0.0
    """Wall-clock time of the run."""


OWN = ("key", "study", "status", "error", "warnings", "seconds", "finished", "attempts", "rows")
"""Columns of ``points`` that every study has; ``rows`` is JSON, of studies that give several rows a point."""
_INITIAL_COLUMNS = (*OWN, *(column for column in COLUMNS if column not in OWN))
"""Columns of ``points`` in a new store; other studies add theirs."""


@dataclass(frozen=True, kw_only=True)
class SweepState:
    """Progress of one sweep in a store."""

    name: str
    """Name of the sweep."""
    points: int
    """Number of its points."""
    counts: Mapping[Status, int]
    """Number of points that were run, by status."""
    mean_s: float
    """Mean time of the points that were run."""

    @property
    def left(self) -> int:
        """Points that were not run yet."""
        return self.points - sum(self.counts.values())


class Store:
    """An open store; a context manager.

    Parameters
    ----------
    path : pathlib.Path or None
        The file, made if missing; None for one in memory.
    existing : bool
        Whether it must be there already.

    Raises
    ------
    HeliographError
        If it cannot be opened, is no store, or is of a later layout.
    """

    def __init__(self, path: Path | None, *, existing: bool = False) -> None:
        self.path = path
        if path is not None and existing and not path.is_file():
            msg = f"there is no {path} yet; run the sweep first"
            raise HeliographError(msg)
        if path is not None and path.is_file() and not existing and not os.access(path, os.W_OK):
            msg = f"cannot write {path}: the file is read-only; name another with --store"
            raise HeliographError(msg)
        with self._errors_as_sentences():
            self._base = sqlite3.connect(
                ":memory:" if path is None else path, timeout=PATIENCE_S, isolation_level=None
            )
            try:
                self._create_tables()
            except BaseException:
                self._base.close()
                raise
        self._columns = {row[1] for row in self._base.execute("PRAGMA table_info(points)")}

    def _create_tables(self) -> None:
        base = self._base
        (layout,) = base.execute("PRAGMA user_version").fetchone()
        if layout > LAYOUT:
            msg = f"{self.path} was written by a later version of heliograph; name another file with --store"
            raise HeliographError(msg)
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("PRAGMA synchronous = NORMAL")
        if layout == LAYOUT:
            return
        if base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] and not layout:
            tables = {row[0] for row in base.execute("SELECT name FROM sqlite_master")}
            if "points" not in tables:
                msg = f"{self.path} is a database of something else; name another file with --store"
                raise HeliographError(msg)
        with self._transaction():
            columns = ", ".join(f'"{name}"' for name in _INITIAL_COLUMNS[1:])
            base.execute(f"CREATE TABLE IF NOT EXISTS points (key TEXT PRIMARY KEY NOT NULL, {columns})")
            base.execute(
                "CREATE TABLE IF NOT EXISTS sweeps (id TEXT PRIMARY KEY NOT NULL, name, study, definition, "
                "points, created)"
            )
            base.execute(
                "CREATE TABLE IF NOT EXISTS members (sweep TEXT NOT NULL, place INTEGER NOT NULL, "
                "key TEXT NOT NULL, inputs, PRIMARY KEY (sweep, place)) WITHOUT ROWID"
            )
            base.execute(
                "CREATE VIEW IF NOT EXISTS results AS SELECT sweeps.name AS sweep, members.place, "
                "members.inputs, points.* FROM members JOIN sweeps ON sweeps.id = members.sweep "
                "LEFT JOIN points ON points.key = members.key"
            )
            base.execute(f"PRAGMA user_version = {LAYOUT}")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._base.close()

    @contextmanager
    def _errors_as_sentences(self) -> Iterator[None]:
        """Raise errors of the database as `HeliographError`, with a sentence on what to do."""
        try:
            yield
        except sqlite3.Error as error:
            raise HeliographError(_sentence(self.path, error)) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Make the statements inside one transaction; Ctrl-C is held back until it has ended."""
        with ctrl_c_later():
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise
            try:
                self._base.execute("COMMIT")
            except sqlite3.Error:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise

    def add_sweep(
        self,
        sweep: str,
        *,
        name: str,
        study: str,
        definition: object,
        keys: Sequence[str],
        inputs: Sequence[Mapping[str, Any]],
    ) -> None:
        """Write a sweep and its points, unless the store has it.

        Parameters
        ----------
        sweep : str
            Id of the sweep, a hash of the request.
        name, study : str
            Name of the sweep, and of the study that it runs.
        definition : object
            The request, recorded as JSON.
        keys, inputs : sequences
            Key and swept values of each point, in order.

        Raises
        ------
        HeliographError
            If it cannot be written.
        """
        with self._errors_as_sentences():
            if self.has_sweep(sweep):
                return
            with self._transaction():
                self._base.execute("DELETE FROM members WHERE sweep = ?", (sweep,))
                self._base.execute(
                    "INSERT OR REPLACE INTO sweeps VALUES (?, ?, ?, ?, ?, ?)",
                    (sweep, name, study, json.dumps(plain(definition)), len(keys), _now()),
                )
                rows = (
                    (sweep, place, key, json.dumps(values))
                    for place, (key, values) in enumerate(zip(keys, inputs, strict=True))
                )
                self._base.executemany("INSERT INTO members VALUES (?, ?, ?, ?)", rows)

    def add_member(self, sweep: str, place: int, key: str, inputs: Mapping[str, Any]) -> None:
        """Write one more point of a search, whose points are chosen while it runs."""
        with self._errors_as_sentences(), self._transaction():
            self._base.execute(
                "INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?)", (sweep, place, key, json.dumps(inputs))
            )
            self._base.execute("UPDATE sweeps SET points = max(points, ?) WHERE id = ?", (place + 1, sweep))

    def has_sweep(self, sweep: str) -> bool:
        """Return whether the store has a sweep with all its points."""
        return bool(self._base.execute("SELECT 1 FROM sweeps WHERE id = ?", (sweep,)).fetchone())

    def keys(self, sweep: str) -> list[str]:
        """Return the keys of a sweep's points, in order."""
        rows = self._base.execute("SELECT key FROM members WHERE sweep = ? ORDER BY place", (sweep,))
        return [row[0] for row in rows]

    def finished(self, *, retried: bool = False) -> set[str]:
        """Return the keys of all points that need not be run, of whatever sweep.

        Parameters
        ----------
        retried : bool
            Whether points without a result are to be run again; if so, their keys are left out.
        """
        with self._errors_as_sentences():
            rows = self._base.execute(
                "SELECT key FROM points" + (" WHERE status = 'done'" if retried else "")
            )
            return {row[0] for row in rows}

    def status_of(self, key: str) -> Status | None:
        """Return the status of a point; None where it was not run."""
        row = self._base.execute("SELECT status FROM points WHERE key = ?", (key,)).fetchone()
        return None if row is None else Status(row[0])

    def row(self, key: str, columns: Sequence[str]) -> dict[str, Any]:
        """Return the error and the columns of a point; empty where it was not run.

        Columns that the store does not have are left out.
        """
        read = ("error", *(name for name in columns if name in self._columns))
        names = ", ".join(f'"{name}"' for name in read)
        row = self._base.execute(f"SELECT {names} FROM points WHERE key = ?", (key,)).fetchone()
        return {} if row is None else dict(zip(read, row, strict=True))

    def record(self, key: str, study: str, outcome: Outcome) -> None:
        """Write the outcome of a point; a point that has a result already keeps it.

        Raises
        ------
        HeliographError
            If it cannot be written: the disk is full, or the file cannot be written any more.
        """
        with self._errors_as_sentences():
            values = self._values(key, study, outcome)
            names = ", ".join(f'"{name}"' for name in values)
            changes = ", ".join(f'"{name}" = excluded."{name}"' for name in values if name != "attempts")
            statement = (
                f"INSERT INTO points ({names}) VALUES ({', '.join('?' * len(values))}) "
                f"ON CONFLICT (key) DO UPDATE SET {changes}, attempts = attempts + 1 "
                "WHERE points.status <> 'done'"
            )
            with self._transaction():
                self._base.execute(statement, tuple(values.values()))

    def _values(self, key: str, study: str, outcome: Outcome) -> dict[str, Any]:
        own = {
            "key": key,
            "study": study,
            "status": str(outcome.status),
            "error": outcome.error,
            "warnings": "\n".join(outcome.warnings) or None,
            "seconds": outcome.seconds,
            "finished": _now(),
            "attempts": 1,
            "rows": json.dumps(plain(outcome.rows)) if outcome.rows else None,
        }
        results = {(f"{name}_" if name in OWN else name): value for name, value in outcome.row.items()}
        results.pop("error_", None)
        for name in results:
            self._ensure_column(name)
        return own | {name: _cell(value) for name, value in results.items()}

    def _ensure_column(self, name: str) -> None:
        """Add a column to ``points`` unless it has it; another process may add the same at this moment."""
        if name in self._columns:
            return
        quoted = name.replace('"', "")
        existing = {row[1] for row in self._base.execute("PRAGMA table_info(points)")}
        if quoted not in existing:
            with self._transaction():
                if quoted not in {row[1] for row in self._base.execute("PRAGMA table_info(points)")}:
                    self._base.execute(f'ALTER TABLE points ADD COLUMN "{quoted}"')
        self._columns = existing | {quoted, name}

    def rows(self, sweep: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return the points of a sweep in order: swept values under ``inputs``, then columns of ``points``.

        Parameters
        ----------
        sweep : str
            Id of the sweep.
        columns : sequence of str, optional
            Columns of ``points``; all by default. A point that was not run has None in each.
        """
        chosen = list(self._columns if columns is None else columns)
        names = ", ".join(f'points."{name}"' for name in chosen)
        cursor = self._base.execute(
            f"SELECT members.inputs, {names} FROM members LEFT JOIN points ON points.key = members.key "
            "WHERE members.sweep = ? ORDER BY members.place",
            (sweep,),
        )
        with self._errors_as_sentences():
            return [
                {"inputs": json.loads(row[0])} | dict(zip(chosen, row[1:], strict=True)) for row in cursor
            ]

    def columns_of(self, study: str) -> list[str]:
        """Return the result columns in which any point of a study has a value, in the table's order."""
        every = [row[1] for row in self._base.execute("PRAGMA table_info(points)")]
        results = [name for name in every if name not in OWN]
        counted = ", ".join(f'count("{name}")' for name in results)
        counts = self._base.execute(f"SELECT {counted} FROM points WHERE study = ?", (study,)).fetchone()
        return [name for name, count in zip(results, counts, strict=True) if count]

    def sweep_states(self) -> list[SweepState]:
        """Return the progress of every sweep, the oldest first."""
        with self._errors_as_sentences():
            sweeps = self._base.execute("SELECT id, name, points FROM sweeps ORDER BY created").fetchall()
            return [self._state(*row) for row in sweeps]

    def _state(self, sweep: str, name: str, points: int) -> SweepState:
        rows = self._base.execute(
            "SELECT status, count(*), sum(seconds) FROM members JOIN points ON points.key = members.key "
            "WHERE members.sweep = ? GROUP BY status",
            (sweep,),
        ).fetchall()
        counts = {Status(status): count for status, count, _ in rows}
        run = sum(counts.values())
        return SweepState(
            name=name,
            points=points,
            counts=counts,
            mean_s=sum(seconds or 0.0 for _, _, seconds in rows) / run if run else 0.0,
        )


def _cell(value: object) -> object:
    """Return a value as SQLite holds it: numbers and text unchanged, NaN as NULL, anything else as JSON."""
    data = plain(value)
    if isinstance(data, float) and math.isnan(data):
        return None
    if data is None or isinstance(data, int | float | str):
        return data
    return json.dumps(data)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _sentence(path: Path | None, error: sqlite3.Error) -> str:
    """Return the message for an error of the database, with what the user can do."""
    text = str(error)
    if "full" in text or "disk I/O" in text:
        why = "the disk is full; what is finished is kept, so free some space and run the same command again"
    elif "readonly" in text or "unable to open" in text:
        why = "the place is missing or read-only; name another file with --store"
    elif "not a database" in text or "malformed" in text:
        why = "it is no SQLite file; name another with --store"
    elif "locked" in text:
        why = f"another process has been writing for {PATIENCE_S:.0f} s; run the same command again later"
    else:
        why = text
    return f"cannot write {path or 'the store'}: {why}"
