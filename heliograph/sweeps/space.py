"""Points of a sweep: values of each name, in grids or together, and conditions; told in a TOML file, too."""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import ParameterError, nearest, plain_number, repeated, told
from simulator.files import beside, naming, read_toml
from simulator.parameter_tree import quantity

CHOICES = ("accelerators", "gpu", "basis", "core", "fabric", "precision")
"""Choices of `heliograph.system`, which are swept where the system is told by its name."""
SYSTEM, MODEL, PLAN, PLACEMENT = "system", "model", "plan", "placement"
"""Names of whole descriptions that are swept; with a dot behind it, the first key of a model or a plan."""
BEST = "best"
"""Plan, or placement, that stands for the best of each point; keys behind a plan hold for all tried."""
STEP = "step"
"""Study of one training step."""
Value = float | str
"""A number in SI, text with a unit, or the name of a part or choice."""
MOST_WHOLE = 2**63
"""Whole numbers of a sweep stay below it, as SQLite holds no more."""
MOST_VALUES = 10_000
"""Most values of a range; a choice, hours of steps."""
LOGARITHMIC = "log"
"""Word for a range whose values are evenly apart on a logarithmic scale."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from one end to another."""

    low: float
    """One end, SI."""
    high: float
    """The other."""
    count: int | None
    """Values, ends included; None where an optimiser may take any number between them."""
    log: bool = False
    """Whether they are apart by equal factors."""

    def values(self, name: str) -> tuple[Value, ...]:
        """Return the values of a grid.

        Raises
        ------
        ParameterError
            If the range does not say how many.
        """
        if self.count is None:
            msg = f"{name}: a range of a grid needs its number of values; write LOW:HIGH:N, or points = N"
            raise ParameterError(msg)
        spaced = np.geomspace if self.log else np.linspace
        return tuple(spaced(self.low, self.high, self.count).tolist())


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Names that vary together, most often one."""

    names: tuple[str, ...]
    """Names of what is swept."""
    values: tuple[tuple[Value, ...], ...]
    """A value for each name, at each place of the axis."""

    def __post_init__(self) -> None:
        if not self.values:
            msg = f"{self.names[0]} has no values to sweep"
            raise ParameterError(msg)


def is_searched(value: object) -> bool:
    """Return whether a value of a plan or placement asks for the best of each point (``best=energy,...``)."""
    return isinstance(value, str) and BEST in (one.partition("=")[0].strip() for one in value.split(","))


def swept_value(name: str, value: object) -> Value:
    """Return one value of what is swept, numbers of numpy as those of Python.

    Raises
    ------
    ParameterError
        If it is neither a number nor text.
    """
    number = plain_number(value)
    if isinstance(number, bool | str | float) or (isinstance(number, int) and abs(number) < MOST_WHOLE):
        return number
    msg = f"{name}: a value that is swept must be a number in SI or text; got {told(value)}"
    raise ParameterError(msg)


def zipped(columns: Mapping[str, Sequence[Value]]) -> Axis:
    """Return an axis of names that vary together.

    Raises
    ------
    ParameterError
        If they have different numbers of values, or one is neither a number nor text.
    """
    if not isinstance(columns, Mapping) or not all(isinstance(one, Sequence) for one in columns.values()):
        msg = f'a zip is a mapping such as {{"plan.tp": [1, 2], "plan.dp": [8, 4]}}; got {columns!r:.60}'
        raise ParameterError(msg)
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        msg = f"names that vary together need as many values each: {told}"
        raise ParameterError(msg)
    checked = ([swept_value(name, one) for one in values] for name, values in columns.items())
    return Axis(names=tuple(columns), values=tuple(zip(*checked, strict=True)))


@dataclass(frozen=True, kw_only=True)
class Space:
    """All points of a sweep: every combination of the axes that meets the conditions."""

    axes: tuple[Axis, ...]
    """What varies, the last fastest."""
    where: tuple[str, ...] = ()
    """Conditions, see `condition`."""

    def __post_init__(self) -> None:
        if not self.axes:
            msg = 'nothing to sweep; give values by name, such as laser_power_w=["2 mW", "20 mW"]'
            raise ParameterError(msg)
        for name in self.names:
            if not isinstance(name, str):
                msg = f"what is swept is told by its name, such as 'laser_power_w'; got {name!r:.60}"
                raise ParameterError(msg)
        for text in self.where:
            if not isinstance(text, str):
                msg = f"a condition is text such as 'plan.tp * plan.dp == 16'; got {text!r:.60}"
                raise ParameterError(msg)
        if (twice := repeated(self.names)) is not None:
            msg = f"{twice} is swept twice; give all its values in one place"
            raise ParameterError(msg)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of what is swept, in order."""
        return tuple(name for axis in self.axes for name in axis.names)

    def values(self) -> dict[str, tuple[Value, ...]]:
        """Return the values of each name as they were asked for, each once."""
        return {
            name: tuple(dict.fromkeys(row[place] for row in axis.values))
            for axis in self.axes
            for place, name in enumerate(axis.names)
        }

    @cached_property
    def points(self) -> tuple[tuple[Value, ...], ...]:
        """Values of all names at each point.

        Raises
        ------
        ParameterError
            If a condition cannot be read, or no point meets all.
        """
        wanted = [condition(text, self.names) for text in self.where]
        rows = itertools.product(*(axis.values for axis in self.axes))
        flat: Iterator[tuple[Value, ...]] = (tuple(itertools.chain.from_iterable(row)) for row in rows)
        found = tuple(row for row in flat if all(meets(row) for meets in wanted))
        if not found:
            msg = f"no point meets {' and '.join(self.where)}; loosen a condition, or add values"
            raise ParameterError(msg)
        return found

    def inputs(self) -> list[dict[str, Value]]:
        """Return the values of all points by name."""
        names = self.names
        return [dict(zip(names, row, strict=True)) for row in self.points]


def values_in(name: str, text: str) -> tuple[Value, ...] | Range:
    """Return the values that a text lists.

    Parameters
    ----------
    name : str
        Path of what is swept, whose ending tells its unit.
    text : str
        ``value,value,...``, or ``LOW:HIGH:N``: so many values from end to end, evenly apart, or by equal
        factors with ``:log`` behind it; ``LOW:HIGH`` or ``LOW:HIGH:log`` where an optimiser chooses. Ends may
        have units.

    Raises
    ------
    ParameterError
        If it is none of them.
    """
    parts = [part.strip() for part in text.split(":")]
    if len(parts) < 2 or not _begins_as_number(parts[0]):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    log = parts[-1] == LOGARITHMIC
    ends, counts = parts[:2], parts[2 : len(parts) - log]
    if len(counts) > 1:
        msg = f"'{name}={text}' is no range; write {name}=LOW:HIGH:N, or LOW:HIGH:N:{LOGARITHMIC}"
        raise ParameterError(msg)
    return range_of(name, *ends, count=counts[0] if counts else None, log=log)


def range_of(name: str, low: Value, high: Value, *, count: object = None, log: bool = False) -> Range:
    """Return a range whose ends may have units.

    Raises
    ------
    ParameterError
        If an end is no number, the number of values none, or a logarithmic range does not begin above zero.
    """
    ends = [
        quantity(name.rpartition(".")[2], end, path=name) if isinstance(end, str) else float(end)
        for end in (low, high)
    ]
    wanted = str(count).strip()
    if count is not None and not (wanted.isdigit() and 2 <= int(wanted) <= MOST_VALUES):
        msg = f"{name}: the number of values ({count}) must be a whole number of 2 to {MOST_VALUES}"
        raise ParameterError(msg)
    if not all(map(math.isfinite, ends)) or (log and min(ends) <= 0.0):
        msg = f"{name}: a range ({low} to {high}) must be finite, and a logarithmic one above zero"
        raise ParameterError(msg)
    return Range(low=ends[0], high=ends[1], count=None if count is None else int(wanted), log=log)


def _begins_as_number(text: str) -> bool:
    return text[:1].isdigit() or text[:1] in ("-", "+", ".")


_ORDERS: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_SUMS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_Term = Callable[[Sequence[Value]], Any]


def condition(text: str, names: Sequence[str]) -> Callable[[Sequence[Value]], bool]:
    """Return what tells whether a point meets a condition.

    Parameters
    ----------
    text : str
        Comparisons of what is swept with arithmetic, ``and``, ``or`` and ``not``, such as
        ``plan.tp * plan.dp == 16`` or ``laser_power_w < '20 mW' or core == 'crossbar'``.
    names : sequence of str
        Names of what is swept, in the order of a point's values.

    Raises
    ------
    ParameterError
        If it cannot be read, or names what is not swept.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        msg = f"condition '{text}' cannot be read; write comparisons such as laser_power_w < '20 mW'"
        raise ParameterError(msg) from error
    term = _term(tree, text, names)

    def meets(point: Sequence[Value]) -> bool:
        try:
            return bool(term(point))
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            msg = f"condition '{text}' fails at {dict(zip(names, point, strict=True))}: {error}"
            raise ParameterError(msg) from error

    return meets


def _term(node: ast.expr, text: str, names: Sequence[str]) -> _Term:  # noqa: PLR0911 - one for each kind
    match node:
        case ast.Constant(value=int() | float() | str() as constant):
            return lambda point: constant
        case ast.Name() | ast.Attribute():
            return _named(ast.unparse(node), text, names)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            inside = _term(inner, text, names)
            return lambda point: -inside(point)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            inside = _term(inner, text, names)
            return lambda point: not inside(point)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _SUMS:
            one, other, work = _term(left, text, names), _term(right, text, names), _SUMS[type(sign)]
            return lambda point: work(one(point), other(point))
        case ast.BoolOp(op=sign, values=members):
            terms = [_term(one, text, names) for one in members]
            together = all if isinstance(sign, ast.And) else any
            return lambda point: together(one(point) for one in terms)
        case ast.Compare(left=left, ops=signs, comparators=others) if all(type(s) in _ORDERS for s in signs):
            return _comparison([left, *others], [_ORDERS[type(sign)] for sign in signs], text, names)
    msg = f"condition '{text}': '{ast.unparse(node)}' is more than names, numbers and comparisons"
    raise ParameterError(msg)


def _comparison(
    nodes: Sequence[ast.expr], orders: Sequence[Callable[[Any, Any], bool]], text: str, names: Sequence[str]
) -> _Term:
    """Return a chain of comparisons; text beside the name of a quantity is read with its unit."""
    every = [one for node in nodes for one in ast.walk(node)]
    named = [ast.unparse(one) for one in every if isinstance(one, ast.Name | ast.Attribute)]
    units = [name.rpartition(".")[2] for name in named if name in names]
    terms = []
    for one in nodes:
        value = one.value if isinstance(one, ast.Constant) else None
        if units and isinstance(value, str) and _begins_as_number(value):
            number = quantity(units[0], value, path=f"condition '{text}'")
            terms.append(_term(ast.Constant(number), text, names))
        else:
            terms.append(_term(one, text, names))

    def compared(point: Sequence[Value]) -> bool:
        found = [term(point) for term in terms]
        return all(order(a, b) for order, a, b in zip(orders, found[:-1], found[1:], strict=True))

    return compared


def _named(name: str, text: str, names: Sequence[str]) -> _Term:
    if name not in names:
        msg = f"condition '{text}': {name} is not swept; {nearest(name, names)}"
        raise ParameterError(msg)
    place, unit = names.index(name), name.rpartition(".")[2]

    def value(point: Sequence[Value]) -> Value:
        found = point[place]
        if isinstance(found, str) and _begins_as_number(found):
            try:
                return quantity(unit, found)
            except ParameterError:  # a name that begins with a digit
                return found
        return found

    return value


_CONTEXT = re.compile(rf"(?:{'|'.join((*CHOICES, SYSTEM, PLACEMENT))})$|(?:{MODEL}|{PLAN})(?:\.|$)")
"""Names that choose model, plan or system."""


def is_context(name: str) -> bool:
    """Return whether a name chooses a model, a plan or a system, rather than a number of one."""
    return _CONTEXT.match(name) is not None


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

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of all objectives, those that are to be small first."""
        return (*self.minimise, *self.maximise)


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
    for key in ("study", "name", "store"):
        if not isinstance(content.get(key, ""), str):
            with naming(path, key):
                msg = f"it must be text; got {content[key]!r:.60}"
                raise ParameterError(msg)
    optimise = _optimise(path, content.get("optimise"))
    varied = _ranges(path, content.get("sweep", {}), grid=optimise is None)
    zips = tuple(_zips(path, content.get("zip", [])))
    names = (*varied, *(one for axis in zips for one in axis.names))
    fixed = {key: _plain(path, f"fixed.{key}", value) for key, value in _flat(content.get("fixed", {}))}
    common = {key: _common(path, key, content[key]) for key in COMMON if key in content}
    for key in (*common, *(f"fixed.{name}" for name in fixed)):
        if key.removeprefix("fixed.") in names:
            with naming(path, key):
                msg = "it holds at every point and is swept, too; keep one of the two"
                raise ParameterError(msg)
    with naming(path, "where"):
        conditions = tuple(_listed(content.get("where", []), "condition"))
        for text in conditions:
            condition(text, names)
    store = content.get("store")
    return StudyFile(
        path=path,
        name=content.get("name", path.stem),
        study=content.get("study", STEP),
        common=common,
        fixed=fixed,
        ranges=varied,
        zips=zips,
        where=conditions,
        optimise=optimise,
        store=path.with_suffix(".sqlite") if store is None else path.parent / store,
    )


def _common(path: Path, key: str, value: Any) -> Any:  # noqa: ANN401 - as the file has it
    return beside(path, value) if key in {SYSTEM, MODEL} and isinstance(value, str) else value


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a table by their dotted names; a table that is a range is one value."""
    for key, value in table.items():
        if isinstance(value, Mapping) and not ("from" in value or "to" in value):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _ranges(path: Path, table: object, *, grid: bool) -> dict[str, Range | tuple[Value, ...]]:
    if not isinstance(table, Mapping):
        with naming(path, "sweep"):
            msg = "it must be a table of names with their values"
            raise ParameterError(msg)
    found: dict[str, Range | tuple[Value, ...]] = {}
    for name, value in _flat(table):
        with naming(path, f"sweep.{name}"):
            read = _values(name, value)
            found[name] = read.values(name) if grid and isinstance(read, Range) else read
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
    log = table.get(LOGARITHMIC, False)
    if not isinstance(log, bool):
        msg = f"'{name}': {LOGARITHMIC} must be true or false; got {log!r:.60}"
        raise ParameterError(msg)
    return range_of(name, table["from"], table["to"], count=table.get("points"), log=log)


def _zips(path: Path, tables: object) -> Iterator[Axis]:
    if not isinstance(tables, Sequence) or not all(isinstance(one, Mapping) for one in tables):
        with naming(path, "zip"):
            msg = "names that vary together stand under [[zip]], with two brackets"
            raise ParameterError(msg)
    for table in tables:
        columns: dict[str, tuple[Value, ...]] = {}
        with naming(path, "zip"):
            for name, value in _flat(table):
                read = _values(name, value)
                columns[name] = read.values(name) if isinstance(read, Range) else read
            axis = zipped(columns)
        yield axis


def _optimise(path: Path, table: object) -> Optimise | None:
    if table is None:
        return None
    known = ("minimise", "maximise", "trials", "seed")
    with naming(path, "optimise"):
        if not isinstance(table, Mapping) or any(key not in known for key in table):
            msg = f"its table has the keys {', '.join(known)}"
            raise ParameterError(msg)
        return _optimised(table)


def _optimised(table: Mapping[str, Any]) -> Optimise:
    few, many = (tuple(_listed(table.get(key, []), "column")) for key in ("minimise", "maximise"))
    trials, seed = table.get("trials", 200), table.get("seed", 0)
    if not few and not many:
        msg = "it needs columns to minimise or maximise"
        raise ParameterError(msg)
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in (trials, seed)) or trials < 1:
        msg = "trials and seed must be whole numbers, trials at least 1"
        raise ParameterError(msg)
    return Optimise(minimise=few, maximise=many, trials=trials, seed=seed)


def _listed(value: object, what: str) -> list[str]:
    """Return one text, or a list of texts, as a list."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        msg = f"each {what} is text, one or a list of them; got {value!r:.60}"
        raise ParameterError(msg)
    return texts


def _plain(path: Path, key: str, value: object) -> Value:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return value
    with naming(path, key):
        msg = f"'{key}' must be a number or text; got {value!r}"
        raise ParameterError(msg)
