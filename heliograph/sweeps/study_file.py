"""A sweep as a TOML file: what holds at every point, what varies, together or in a grid, and conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heliograph.sweeps.space import LOGARITHMIC, Axis, Range, Value, range_of, values_in, zipped
from heliograph.sweeps.work import CHOICES, MODEL, PLACEMENT, PLAN, STEP, SYSTEM, is_context
from simulator.errors import ParameterError, nearest
from simulator.files import naming, read_toml

COMMON = (SYSTEM, MODEL, PLAN, PLACEMENT, *CHOICES)
"""Keys of a file that hold at every point."""
_TABLES = ("sweep", "zip", "fixed", "optimise")
_KEYS = ("study", "name", "store", "where", *COMMON, *_TABLES)
_RANGE_KEYS = frozenset({"from", "to", "points", LOGARITHMIC})


@dataclass(frozen=True, kw_only=True)
class Optimise:
    """What an optimiser is to make small or large."""

    minimise: tuple[str, ...] = ()
    """Columns of a result that are to be small."""
    maximise: tuple[str, ...] = ()
    """Columns that are to be large."""
    trials: int = 200
    """Points that it may run."""
    seed: int = 0
    """Root of its randomness."""


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """A sweep as its file tells it."""

    path: Path
    """The file."""
    name: str
    """Name of the sweep; the file's own where it says none."""
    study: str
    """Command whose study is run at every point."""
    common: Mapping[str, Any]
    """What holds at every point: system, model, plan and choices, by name."""
    fixed: Mapping[str, Value]
    """Numbers, parts and options that hold at every point."""
    ranges: Mapping[str, Range | tuple[Value, ...]]
    """Values of each name that varies by itself."""
    zips: tuple[Axis, ...] = ()
    """Names that vary together."""
    where: tuple[str, ...] = ()
    """Conditions that points must meet."""
    optimise: Optimise | None = None
    """What an optimiser is to do, if there is one."""
    store: Path = field(default=Path())
    """SQLite file of the points."""


def read_study(path: Path) -> StudyFile:
    """Return the sweep of a TOML file.

    Raises
    ------
    HeliographError
        If it cannot be read, or a key or a value makes no sense: with file and line.
    """
    content = read_toml(path)
    for key in content:
        if key not in _KEYS:
            with naming(path, key):
                msg = f"no key '{key}' in a study; {nearest(key, _KEYS, noun='key')}"
                raise ParameterError(msg)
    varied = _ranges(path, content.get("sweep", {}))
    where = content.get("where", [])
    name = str(content.get("name", path.stem))
    store = content.get("store")
    return StudyFile(
        path=path,
        name=name,
        study=str(content.get("study", STEP)),
        common={key: content[key] for key in COMMON if key in content},
        fixed={key: _plain(path, f"fixed.{key}", value) for key, value in _flat(content.get("fixed", {}))},
        ranges=varied,
        zips=tuple(_zips(path, content.get("zip", []))),
        where=(where,) if isinstance(where, str) else tuple(map(str, where)),
        optimise=_optimise(path, content.get("optimise")),
        store=path.with_suffix(".sqlite") if store is None else path.parent / str(store),
    )


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a table by their dotted names; a table that is a range is one value."""
    for key, value in table.items():
        if isinstance(value, Mapping) and not ("from" in value or "to" in value):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _ranges(path: Path, table: object) -> dict[str, Range | tuple[Value, ...]]:
    if not isinstance(table, Mapping):
        msg = f"{path.name}: [sweep] must be a table of names with their values"
        raise ParameterError(msg)
    found: dict[str, Range | tuple[Value, ...]] = {}
    for name, value in _flat(table):
        with naming(path, f"sweep.{name}"):
            found[name] = _values(name, value)
    return found


def _values(name: str, value: object) -> Range | tuple[Value, ...]:
    match value:
        case Mapping():
            return _range(name, value)
        case str():
            return (value,) if is_context(name) else values_in(name, value)
        case list():
            if all(isinstance(one, int | float | str) for one in value) and value:
                return tuple(str(one).lower() if isinstance(one, bool) else one for one in value)
        case bool():
            return (str(value).lower(),)
        case int() | float():
            return (value,)
    msg = f"'{name}' must be a list of numbers or texts, or a range {{from, to, points, log}}; got {value!r}"
    raise ParameterError(msg)


def _range(name: str, table: Mapping[str, Any]) -> Range:
    unknown = [key for key in table if key not in _RANGE_KEYS]
    if unknown or "from" not in table or "to" not in table:
        what = f"no key '{unknown[0]}' in a range" if unknown else "a range needs both from and to"
        msg = f"'{name}': {what}; write {{ from = LOW, to = HIGH, points = N, log = true }}"
        raise ParameterError(msg)
    log = bool(table.get(LOGARITHMIC, False))
    return range_of(name, table["from"], table["to"], count=table.get("points"), log=log)


def _zips(path: Path, tables: object) -> Iterator[Axis]:
    if not isinstance(tables, Sequence) or not all(isinstance(one, Mapping) for one in tables):
        msg = f"{path.name}: names that vary together stand under [[zip]], with two brackets"
        raise ParameterError(msg)
    for table in tables:
        columns: dict[str, tuple[Value, ...]] = {}
        for name, value in _flat(table):
            read = _values(name, value)
            columns[name] = read.values(name) if isinstance(read, Range) else read
        try:
            yield zipped(columns)
        except ParameterError as error:
            msg = f"{path.name}: {error}"
            raise ParameterError(msg) from error


def _optimise(path: Path, table: object) -> Optimise | None:
    if table is None:
        return None
    known = ("minimise", "maximise", "trials", "seed")
    if not isinstance(table, Mapping) or any(key not in known for key in table):
        msg = f"{path.name}: [optimise] has the keys {', '.join(known)}"
        raise ParameterError(msg)
    few, many = (tuple(_listed(table.get(key, ()))) for key in ("minimise", "maximise"))
    trials, seed = table.get("trials", 200), table.get("seed", 0)
    if not few and not many:
        msg = f"{path.name}: [optimise] needs columns to minimise or maximise"
        raise ParameterError(msg)
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in (trials, seed)) or trials < 1:
        msg = f"{path.name}: [optimise] trials and seed must be whole numbers, trials at least 1"
        raise ParameterError(msg)
    return Optimise(minimise=few, maximise=many, trials=trials, seed=seed)


def _listed(value: object) -> list[str]:
    return [value] if isinstance(value, str) else list(map(str, value))  # type: ignore[call-overload]


def _plain(path: Path, key: str, value: object) -> Value:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return value
    with naming(path, key):
        msg = f"'{key}' must be a number or text; got {value!r}"
        raise ParameterError(msg)
