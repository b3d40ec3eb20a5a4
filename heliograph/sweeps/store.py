"""Store of a sweep: an SQLite file with one row a point, which outlives interruptions and is shared.

Three tables and a view. ``points`` has one row for each point that was run, by its key: what became of it,
then the columns of `heliograph.records.COLUMNS` (of other studies, the columns that these have). ``sweeps``
has one row for each sweep that was asked for, ``members`` its points with the values that were asked for as
JSON; the view ``results`` joins all. docs/sweeps.md tells every column.
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
    """What became of a point."""

    DONE = "done"
    """It has a result."""
    FAILED = "failed"
    """It cannot be built or run; the error says why."""
    CRASHED = "crashed"
    """Its process ended, or the program has a fault."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one point."""

    status: Status
    """How it ended."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """Its columns."""
    error: str | None = None
    """Why there is no result."""
    rows: tuple[Mapping[str, Any], ...] = ()
    """Rows of the table of a study that has several."""
    warnings: tuple[str, ...] = ()
    """Warnings about the result."""
    seconds: float = 0.0
    """Time that it took."""


OWN = ("key", "study", "status", "error", "warnings", "seconds", "finished", "attempts", "rows")
"""Columns of ``points`` that every study has; ``rows`` is JSON, for studies whose table has several rows."""
_FIXED = (*OWN, *(column for column in COLUMNS if column not in OWN))


@dataclass(frozen=True, kw_only=True)
class Told:
    """State of one sweep in a store."""

    name: str
    """Name of the sweep."""
    points: int
    """Its points."""
    counts: Mapping[Status, int]
    """Points by what became of them."""
    mean_s: float
    """Mean time of a point that was run."""

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
        with self._told():
            self._base = sqlite3.connect(
                ":memory:" if path is None else path, timeout=PATIENCE_S, isolation_level=None
            )
            try:
                self._lay_out()
            except BaseException:
                self._base.close()
                raise
        self._columns = {row[1] for row in self._base.execute("PRAGMA table_info(points)")}

    def _lay_out(self) -> None:
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
            known = {row[0] for row in base.execute("SELECT name FROM sqlite_master")}
            if "points" not in known:
                msg = f"{self.path} is a database of something else; name another file with --store"
                raise HeliographError(msg)
        with self._transaction():
            columns = ", ".join(f'"{name}"' for name in _FIXED[1:])
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
    def _told(self) -> Iterator[None]:
        """Turn an error of the database into a sentence."""
        try:
            yield
        except sqlite3.Error as error:
            raise HeliographError(_sentence(self.path, error)) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all or nothing, and wait for others who write; Ctrl-C comes after it."""
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

    def enter(
        self,
        sweep: str,
        *,
        name: str,
        study: str,
        definition: object,
        keys: Sequence[str],
        inputs: Sequence[Mapping[str, Any]],
    ) -> None:
        """Write down a sweep and its points, unless it is known.

        Parameters
        ----------
        sweep : str
            Hash of what is asked for.
        name, study : str
            Name that it is told by, and study that it runs.
        definition : object
            What was asked for, recorded as JSON.
        keys, inputs : sequences
            Key and asked values of each point, in order.

        Raises
        ------
        HeliographError
            If it cannot be written.
        """
        with self._told():
            if self.known(sweep):
                return
            with self._transaction():
                self._base.execute("DELETE FROM members WHERE sweep = ?", (sweep,))
                self._base.execute(
                    "INSERT OR REPLACE INTO sweeps VALUES (?, ?, ?, ?, ?, ?)",
                    (sweep, name, study, json.dumps(plain(definition)), len(keys), _now()),
                )
                rows = (
                    (sweep, place, key, json.dumps(asked))
                    for place, (key, asked) in enumerate(zip(keys, inputs, strict=True))
                )
                self._base.executemany("INSERT INTO members VALUES (?, ?, ?, ?)", rows)

    def add_member(self, sweep: str, place: int, key: str, inputs: Mapping[str, Any]) -> None:
        """Write down one more point of a sweep whose points are chosen as it goes."""
        with self._told(), self._transaction():
            self._base.execute(
                "INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?)", (sweep, place, key, json.dumps(inputs))
            )
            self._base.execute("UPDATE sweeps SET points = max(points, ?) WHERE id = ?", (place + 1, sweep))

    def known(self, sweep: str) -> bool:
        """Return whether a sweep and all its points were written down."""
        return bool(self._base.execute("SELECT 1 FROM sweeps WHERE id = ?", (sweep,)).fetchone())

    def keys(self, sweep: str) -> list[str]:
        """Return the keys of a sweep's points, in order."""
        rows = self._base.execute("SELECT key FROM members WHERE sweep = ? ORDER BY place", (sweep,))
        return [row[0] for row in rows]

    def finished(self, *, retried: bool = False) -> set[str]:
        """Return the keys of all points that need not be run.

        Parameters
        ----------
        retried : bool
            Whether those without a result are to be run again.
        """
        with self._told():
            rows = self._base.execute(
                "SELECT key FROM points" + (" WHERE status = 'done'" if retried else "")
            )
            return {row[0] for row in rows}

    def status_of(self, key: str) -> Status | None:
        """Return what became of a point; None where it was not run."""
        row = self._base.execute("SELECT status FROM points WHERE key = ?", (key,)).fetchone()
        return None if row is None else Status(row[0])

    def row(self, key: str, columns: Sequence[str]) -> dict[str, Any]:
        """Return columns of a point, and its error; empty where it was not run, or has no such column."""
        known = [name for name in columns if name in self._columns]
        names = ", ".join(f'"{name}"' for name in ("error", *known))
        row = self._base.execute(f"SELECT {names} FROM points WHERE key = ?", (key,)).fetchone()
        return {} if row is None else dict(zip(("error", *known), row, strict=True))

    def record(self, key: str, study: str, outcome: Outcome) -> None:
        """Write what became of a point; one with a result is never replaced by one without.

        Raises
        ------
        HeliographError
            If it cannot be written: the disk is full, or the file cannot be written any more.
        """
        with self._told():
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
        found = {(f"{name}_" if name in OWN else name): value for name, value in outcome.row.items()}
        found.pop("error_", None)
        for name in found:
            self._have_column(name)
        return own | {name: _cell(value) for name, value in found.items()}

    def _have_column(self, name: str) -> None:
        if name in self._columns:
            return
        quoted = name.replace('"', "")
        known = {row[1] for row in self._base.execute("PRAGMA table_info(points)")}
        if quoted not in known:
            with self._transaction():
                if quoted not in {row[1] for row in self._base.execute("PRAGMA table_info(points)")}:
                    self._base.execute(f'ALTER TABLE points ADD COLUMN "{quoted}"')
        self._columns = known | {quoted, name}

    def rows(self, sweep: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return the points of a sweep in order: asked values under ``inputs``, then columns of ``points``.

        Parameters
        ----------
        sweep : str
            Hash of the sweep.
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
        with self._told():
            return [
                {"inputs": json.loads(row[0])} | dict(zip(chosen, row[1:], strict=True)) for row in cursor
            ]

    def columns_of(self, study: str) -> list[str]:
        """Return the columns in which a study has something, in their order."""
        every = [row[1] for row in self._base.execute("PRAGMA table_info(points)")]
        mine = [name for name in every if name not in OWN]
        counts = ", ".join(f'count("{name}")' for name in mine)
        found = self._base.execute(f"SELECT {counts} FROM points WHERE study = ?", (study,)).fetchone()
        return [name for name, count in zip(mine, found, strict=True) if count]

    def told(self) -> list[Told]:
        """Return the state of every sweep, the oldest first."""
        with self._told():
            sweeps = self._base.execute("SELECT id, name, points FROM sweeps ORDER BY created").fetchall()
            return [self._told_of(*one) for one in sweeps]

    def _told_of(self, sweep: str, name: str, points: int) -> Told:
        rows = self._base.execute(
            "SELECT status, count(*), sum(seconds) FROM members JOIN points ON points.key = members.key "
            "WHERE members.sweep = ? GROUP BY status",
            (sweep,),
        ).fetchall()
        counts = {Status(status): count for status, count, _ in rows}
        run = sum(counts.values())
        return Told(
            name=name,
            points=points,
            counts=counts,
            mean_s=sum(seconds or 0.0 for _, _, seconds in rows) / run if run else 0.0,
        )


def _cell(value: object) -> object:
    """Return a value as SQLite holds it: numbers and text as they are, the rest as JSON."""
    found = plain(value)
    if isinstance(found, float) and math.isnan(found):
        return None
    if found is None or isinstance(found, int | float | str):
        return found
    return json.dumps(found)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _sentence(path: Path | None, error: sqlite3.Error) -> str:
    """Return what is wrong with a store, and what to do."""
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
