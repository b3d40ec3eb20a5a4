"""Strict tables of hardware parameters, each number with its unit and its source.

A table is CSV with the columns ``name,parameter,value,unit,low,high,status,source``. Each `name` becomes one
frozen dataclass whose fields are its parameters, converted to SI by the suffix of the field's name. An
unknown, missing, repeated or out-of-range entry is an error with file and line.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import hashlib
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

from simulator.errors import ParameterError, annotations_of, nearest
from simulator.units import to_si

COLUMNS = ("name", "parameter", "value", "unit", "low", "high", "status", "source")

DeviceT = TypeVar("DeviceT")


class Status(StrEnum):
    """Trust in a number, from the most trusted down."""

    MEASURED = "measured"
    """Measured for this project."""
    PUBLISHED = "published"
    """Published by those who measured it."""
    QUOTED = "quoted"
    """Quoted at second hand, as in a simulator's device library or another paper's table."""
    DERIVED = "derived"
    """Calculated from published numbers, as the source says."""
    SIMULATED = "simulated"
    """Result of another simulator, or of a circuit that was not built."""
    RECALLED = "recalled"
    """Given from memory, to be looked up."""
    ASSUMED = "assumed"
    """Assumption of this project, without a source."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One number of a table, in SI."""

    name: str
    """Device."""
    parameter: str
    """Field of the device's dataclass."""
    value: float | str
    """The number in SI, or text for a textual field."""
    unit: str
    """Unit as written in the table."""
    low: float | None
    """Low end of the published range, SI."""
    high: float | None
    """High end of the published range, SI."""
    status: Status
    """Kind of evidence for the number."""
    source: str
    """Reference or reasoning behind the number."""
    where: str
    """``file:line`` of the row."""


@dataclass(frozen=True)
class Table:
    """All rows of one file."""

    path: Path
    """The file."""
    rows: tuple[Row, ...]
    """Its rows, in order."""

    @property
    def names(self) -> tuple[str, ...]:
        """Devices in the order in which they first appear."""
        return tuple(dict.fromkeys(row.name for row in self.rows))

    @property
    def sha256(self) -> str:
        """Hash of the file, for records."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def of(self, name: str) -> tuple[Row, ...]:
        """Return the rows of one device.

        Raises
        ------
        ParameterError
            If the table has no such device.
        """
        found = self._by_name.get(name, ())
        if not found:
            msg = f"{self.path.name} has no device '{name}'; {nearest(name, self.names, noun='device')}"
            raise ParameterError(msg)
        return found

    @functools.cached_property
    def _by_name(self) -> dict[str, tuple[Row, ...]]:
        grouped: dict[str, list[Row]] = {}
        for row in self.rows:
            grouped.setdefault(row.name, []).append(row)
        return {name: tuple(rows) for name, rows in grouped.items()}

    def build(self, kind: type[DeviceT], name: str) -> DeviceT:
        """Return a device from its rows.

        Parameters
        ----------
        kind : type
            A frozen dataclass; every field without a default (except ``name``) needs a row.
        name : str
            Name of the device.

        Raises
        ------
        ParameterError
            If a row belongs to no field, or a field without a default has no row.
        """
        fields = {item.name: item for item in dataclasses.fields(typing.cast("typing.Any", kind))}
        values: dict[str, typing.Any] = {"name": name} if "name" in fields else {}
        hints = annotations_of(typing.cast("typing.Any", kind))
        rows = self.of(name)
        for row in rows:
            if row.parameter not in fields:
                hint = nearest(row.parameter, fields, noun="parameter")
                msg = f"{row.where}: {kind.__name__} has no parameter '{row.parameter}'; {hint}"
                raise ParameterError(msg)
            values[row.parameter] = _as_type(row, hints[row.parameter])
        for item in fields.values():
            required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
            if required and item.name not in values:
                where = f"{self.path.name}:{rows[0].where.rsplit(':', 1)[-1]}"
                msg = f"{where}: {kind.__name__} '{name}' lacks the parameter '{item.name}'; add its row"
                raise ParameterError(msg)
        try:
            return kind(**values)
        except ParameterError as error:
            msg = f"{self.path.name}: {error}"
            raise ParameterError(msg) from error

    def constants(self, name: str) -> Constants:
        """Return the numbers of a device that has no dataclass of its own."""
        rows = self.of(name)
        return Constants(name, {row.parameter: float(_as_type(row, float)) for row in rows})


@dataclass(frozen=True)
class Constants:
    """Numbers of one device as attributes, checked for nothing but their rows in the table."""

    name: str
    """Device."""
    values: Mapping[str, float]
    """Numbers in SI, by parameter."""

    def __getattr__(self, parameter: str) -> float:
        try:
            return self.__dict__["values"][parameter]
        except KeyError:
            msg = f"'{self.__dict__.get('name')}' has no parameter '{parameter}'"
            raise AttributeError(msg) from None

    def with_(self, **changes: float) -> Constants:
        """Return a copy with some numbers changed; their parameters must exist."""
        for parameter in changes:
            getattr(self, parameter)
        return Constants(self.name, {**self.values, **changes})


def _as_type(row: Row, hint: object) -> float | int | str:
    """Return the value of a row in the type of its field."""
    if hint is str:
        return str(row.value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if row.value not in set(hint):
            near = nearest(str(row.value), set(hint), noun=row.parameter)
            msg = f"{row.where}: '{row.parameter}' of '{row.name}' cannot be '{row.value}'; {near}"
            raise ParameterError(msg)
        return hint(row.value)
    if isinstance(row.value, str):
        msg = f"{row.where}: '{row.parameter}' of '{row.name}' must be a number; got '{row.value}'"
        raise ParameterError(msg)
    if hint is int:
        if row.value != int(row.value):
            msg = f"{row.where}: '{row.parameter}' of '{row.name}' must be whole; got {row.value}"
            raise ParameterError(msg)
        return int(row.value)
    return row.value


def read_table(path: Path) -> Table:
    """Return a table, checked row by row.

    Parameters
    ----------
    path : pathlib.Path
        CSV with exactly the columns of `COLUMNS`; lines that start with ``#`` are skipped.

    Raises
    ------
    ParameterError
        For a missing file, a wrong header, a repeated row, or a row that is incomplete, not finite or of the
        wrong unit; the message says file, line and column.
    """
    if not path.is_file():
        msg = f"no parameter table at {path}; check the path"
        raise ParameterError(msg)
    rows: list[Row] = []
    seen: dict[tuple[str, str], str] = {}
    with path.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.reader(stream)
        header = next(reader, [])
        if tuple(header) != COLUMNS:
            msg = f"{path.name}:1: the columns must be {','.join(COLUMNS)}; got {','.join(header)}"
            raise ParameterError(msg)
        for cells in reader:
            where = f"{path.name}:{reader.line_num}"
            if not cells or cells[0].startswith("#"):
                continue
            if len(cells) != len(COLUMNS):
                msg = f"{where}: {len(cells)} cells where {len(COLUMNS)} are needed; quote text with commas"
                raise ParameterError(msg)
            row = _read_row(dict(zip(COLUMNS, (cell.strip() for cell in cells), strict=True)), where)
            first = seen.setdefault((row.name, row.parameter), where)
            if first != where:
                msg = f"{where}: '{row.parameter}' of '{row.name}' stands already at {first}; keep one"
                raise ParameterError(msg)
            rows.append(row)
    if not rows:
        msg = f"{path.name} has no rows"
        raise ParameterError(msg)
    return Table(path, tuple(rows))


@functools.cache
def shipped_table(path: Path) -> Table:
    """Return a table that ships with the package, read once."""
    return read_table(path)


@dataclass(frozen=True)
class Shelf(Generic[DeviceT]):
    """Parts of one kind in a table that ships; called with a name it returns the part."""

    kind: type[DeviceT]
    """Dataclass of the parts."""
    path: Path
    """The table."""

    @property
    def table(self) -> Table:
        """The table, which may hold other kinds too; read when it is first asked for."""
        return shipped_table(self.path)

    def __call__(self, name: str) -> DeviceT:
        """Return a part by its name."""
        return self.table.build(self.kind, name)


def _read_row(cells: dict[str, str], where: str) -> Row:
    """Return a line of a table, every cell checked."""
    for column in ("name", "parameter", "value", "status", "source"):
        if not cells[column]:
            msg = f"{where}: column '{column}' is empty; every number needs it"
            raise ParameterError(msg)
    if cells["status"] not in set(Status):
        msg = f"{where}: status '{cells['status']}'; {nearest(cells['status'], set(Status), noun='status')}"
        raise ParameterError(msg)
    textual = cells["unit"] == "text"
    value = cells["value"] if textual else _number(cells, "value", where)
    return Row(
        name=cells["name"],
        parameter=cells["parameter"],
        value=typing.cast("float | str", value),
        unit=cells["unit"],
        low=_number(cells, "low", where),
        high=_number(cells, "high", where),
        status=Status(cells["status"]),
        source=cells["source"],
        where=where,
    )


def _number(cells: dict[str, str], column: str, where: str) -> float | None:
    """Return a cell in SI; None if it is empty."""
    text = cells[column]
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        msg = f"{where}: column '{column}': '{text}' is not a number"
        raise ParameterError(msg) from None
    if math.isnan(value):
        msg = f"{where}: column '{column}': NaN is not a value"
        raise ParameterError(msg)
    try:
        return to_si(cells["parameter"], value, cells["unit"])
    except ParameterError as error:
        msg = f"{where}: {error}"
        raise ParameterError(msg) from error
