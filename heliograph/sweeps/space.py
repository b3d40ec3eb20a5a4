"""Points of a sweep: values of each swept name, names that vary together, and conditions on points.

They are written in Python, on the command line (`values_in`) or in a TOML file (`read_study`).
"""

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
from simulator.files import beside, naming, read_toml, refuse_key
from simulator.parameter_tree import quantity

CHOICES = ("accelerators", "gpu", "basis", "core", "fabric", "precision")
"""Choices of `heliograph.system`, which are swept where the system is told by its name."""
SYSTEM, MODEL, PLAN, PLACEMENT = "system", "model", "plan", "placement"
"""Names of whole descriptions that can be swept; a size of a model or a key of a plan follows after a dot."""
BEST = "best"
"""Plan or placement whose best is searched at each point; ``best,global_batch=64`` fixes keys of the plan."""
STEP = "step"
"""Name of the study of one training step."""
Value = float | str
"""A number in SI, text with a unit, or the name of a part or choice."""
MOST_WHOLE = 2**63
"""Bound of whole numbers in a sweep: SQLite holds 64 bits with sign."""
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
    """Number of values, ends included; None where an optimiser may take any number between the ends."""
    log: bool = False
    """Whether the values are spaced by equal factors rather than equal differences."""

    def values(self, name: str) -> tuple[Value, ...]:
        """Return the values of a grid.

        Raises
        ------
        ParameterError
            If the number of values is not given; `name` is for the message.
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
    """Swept names."""
    values: tuple[tuple[Value, ...], ...]
    """Positions along the axis, each with one value per name."""

    def __post_init__(self) -> None:
        if not self.values:
            msg = f"{self.names[0]} has no values to sweep"
            raise ParameterError(msg)


def is_searched(value: object) -> bool:
    """Return whether a value of a plan or placement asks for the best of each point (``best=energy,...``)."""
    return isinstance(value, str) and BEST in (one.partition("=")[0].strip() for one in value.split(","))


def swept_value(name: str, value: object) -> Value:
    """Return a swept value as a Python number or text; numpy scalars are converted.

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
    """Return the axis of names that vary together, from equally long lists of values by name.

    Raises
    ------
    ParameterError
        If the lists differ in length, or a value is neither a number nor text.
    """
    if not isinstance(columns, Mapping) or not all(isinstance(one, Sequence) for one in columns.values()):
        msg = f'a zip is a mapping such as {{"plan.tp": [1, 2], "plan.dp": [8, 4]}}; got {columns!r:.60}'
        raise ParameterError(msg)
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        msg = f"names that vary together need as many values each: {counts}"
        raise ParameterError(msg)
    checked = ([swept_value(name, one) for one in values] for name, values in columns.items())
    return Axis(names=tuple(columns), values=tuple(zip(*checked, strict=True)))


@dataclass(frozen=True, kw_only=True)
class Space:
    """All points of a sweep: every combination of the axes that meets the conditions."""

    axes: tuple[Axis, ...]
    """Axes, the last varying fastest."""
    where: tuple[str, ...] = ()
    """Conditions that points must meet, written as in `condition`."""

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
        """Swept names, in order."""
        return tuple(name for axis in self.axes for name in axis.names)

    def values(self) -> dict[str, tuple[Value, ...]]:
        """Return the values of each name, each once and as it was written."""
        return {
            name: tuple(dict.fromkeys(row[index] for row in axis.values))
            for axis in self.axes
            for index, name in enumerate(axis.names)
        }

    @cached_property
    def points(self) -> tuple[tuple[Value, ...], ...]:
        """Points that meet the conditions, each with its values in the order of `names`.

        Raises
        ------
        ParameterError
            If a condition cannot be read, or no point meets all.
        """
        conditions = [condition(text, self.names) for text in self.where]
        combinations = itertools.product(*(axis.values for axis in self.axes))
        points = (tuple(itertools.chain.from_iterable(rows)) for rows in combinations)
        meeting = tuple(point for point in points if all(meets(point) for meets in conditions))
        if not meeting:
            msg = f"no point meets {' and '.join(self.where)}; loosen a condition, or add values"
            raise ParameterError(msg)
        return meeting

    def inputs(self) -> list[dict[str, Value]]:
        """Return each point as a mapping of names to values."""
        names = self.names
        return [dict(zip(names, row, strict=True)) for row in self.points]


def values_in(name: str, text: str) -> tuple[Value, ...] | Range:
    """Return the values that a text lists.

    Parameters
    ----------
    name : str
        Swept name, whose ending gives the unit.
    text : str
        ``value,value,...``, or ``LOW:HIGH:N`` for N values from end to end, evenly spaced, or by equal
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
        If an end is no finite number, the number of values is wrong, or a logarithmic range does not lie
        above zero.
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


_COMPARISONS: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_Term = Callable[[Sequence[Value]], Any]
"""Value of an expression at a point."""


def condition(text: str, names: Sequence[str]) -> Callable[[Sequence[Value]], bool]:
    """Return a function that tells whether a point meets a condition.

    Parameters
    ----------
    text : str
        Comparisons of swept names with arithmetic, ``and``, ``or`` and ``not``, such as
        ``plan.tp * plan.dp == 16`` or ``laser_power_w < '20 mW' or core == 'crossbar'``.
    names : sequence of str
        Swept names, in the order of a point's values.

    Raises
    ------
    ParameterError
        If it cannot be read, or has a name that is not swept.

    Notes
    -----
    Python parses the text. `_term` turns its syntax tree into nested functions of a point, and refuses
    everything but names, constants, arithmetic and comparisons; nothing is evaluated as Python.
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
    """Return the function of a point that a node of the syntax tree stands for; `text` is for messages."""
    match node:
        case ast.Constant(value=int() | float() | str() as constant):
            return lambda point: constant
        case ast.Name() | ast.Attribute():
            return _swept_name(ast.unparse(node), text, names)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            inside = _term(inner, text, names)
            return lambda point: -inside(point)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            inside = _term(inner, text, names)
            return lambda point: not inside(point)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
            first, second = _term(left, text, names), _term(right, text, names)
            operation = _ARITHMETIC[type(sign)]
            return lambda point: operation(first(point), second(point))
        case ast.BoolOp(op=sign, values=members):
            terms = [_term(member, text, names) for member in members]
            joined = all if isinstance(sign, ast.And) else any
            return lambda point: joined(term(point) for term in terms)
        case ast.Compare(left=left, ops=signs, comparators=others) if _COMPARISONS.keys() >= set(
            map(type, signs)
        ):
            return _comparison([left, *others], [_COMPARISONS[type(sign)] for sign in signs], text, names)
    msg = f"condition '{text}': '{ast.unparse(node)}' is more than names, numbers and comparisons"
    raise ParameterError(msg)


def _comparison(
    nodes: Sequence[ast.expr],
    relations: Sequence[Callable[[Any, Any], bool]],
    text: str,
    names: Sequence[str],
) -> _Term:
    """Return a chain of comparisons (``a < b <= c``).

    Text such as ``'20 mW'`` is converted to SI by the unit of the first swept name in the chain.
    """
    nested = [child for node in nodes for child in ast.walk(node)]
    used = [ast.unparse(child) for child in nested if isinstance(child, ast.Name | ast.Attribute)]
    units = [name.rpartition(".")[2] for name in used if name in names]
    terms = []
    for node in nodes:
        value = node.value if isinstance(node, ast.Constant) else None
        if units and isinstance(value, str) and _begins_as_number(value):
            number = quantity(units[0], value, path=f"condition '{text}'")
            terms.append(_term(ast.Constant(number), text, names))
        else:
            terms.append(_term(node, text, names))

    def compare(point: Sequence[Value]) -> bool:
        values = [term(point) for term in terms]
        return all(holds(a, b) for holds, a, b in zip(relations, values[:-1], values[1:], strict=True))

    return compare


def _swept_name(name: str, text: str, names: Sequence[str]) -> _Term:
    """Return the value of a swept name, in SI where it is text with a unit."""
    if name not in names:
        msg = f"condition '{text}': {name} is not swept; {nearest(name, names)}"
        raise ParameterError(msg)
    index, unit = names.index(name), name.rpartition(".")[2]

    def value_at(point: Sequence[Value]) -> Value:
        value = point[index]
        if isinstance(value, str) and _begins_as_number(value):
            try:
                return quantity(unit, value)
            except ParameterError:  # a name that begins with a digit
                return value
        return value

    return value_at


_CONTEXT = re.compile(rf"(?:{'|'.join((*CHOICES, SYSTEM, PLACEMENT))})$|(?:{MODEL}|{PLAN})(?:\.|$)")
"""Swept names that belong to the context of a point, see `is_context`."""


def is_context(name: str) -> bool:
    """Return whether a name belongs to the context of a point: its model, plan, placement, system or choices.

    All other names change a number or a part of a built system.
    """
    return _CONTEXT.match(name) is not None


COMMON = (SYSTEM, MODEL, PLAN, PLACEMENT, *CHOICES)
"""Keys of a study file that hold at every point."""
_KEYS = ("study", "name", "store", "where", *COMMON, "sweep", "zip", "fixed", "optimise")
_RANGE_KEYS = frozenset({"from", "to", "points", LOGARITHMIC})


@dataclass(frozen=True, kw_only=True)
class Optimise:
    """Objectives and budget of an optimiser."""

    minimise: tuple[str, ...] = ()
    """Result columns to minimise."""
    maximise: tuple[str, ...] = ()
    """Result columns to maximise."""
    trials: int = 200
    """Number of points to try."""
    seed: int = 0
    """Seed of its random numbers."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of all objectives, the minimised ones first."""
        return (*self.minimise, *self.maximise)


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """Content of a study file (TOML), which describes a sweep."""

    path: Path
    """The file."""
    name: str
    """Name of the sweep; by default that of the file."""
    study: str
    """Command whose study is run at every point."""
    common: Mapping[str, Any]
    """System, model, plan, placement and choices of all points, by the keys `COMMON`."""
    fixed: Mapping[str, Value]
    """Numbers, parts and options of all points, by name (table ``fixed``)."""
    ranges: Mapping[str, Range | tuple[Value, ...]]
    """Values of each name that varies by itself."""
    zips: tuple[Axis, ...] = ()
    """Names that vary together."""
    where: tuple[str, ...] = ()
    """Conditions that points must meet."""
    optimise: Optimise | None = None
    """Objectives of an optimiser; None for a grid."""
    store: Path = field(default=Path())
    """SQLite file of the results."""


def read_study(path: Path) -> StudyFile:
    """Return the content of a study file.

    Raises
    ------
    HeliographError
        If it cannot be read, or a key or a value is wrong; the message names file and line.
    """
    content = read_toml(path)
    for key in content:
        if key not in _KEYS:
            message = f"no key '{key}' in a study; {nearest(key, _KEYS, noun='key', most=len(_KEYS))}"
            refuse_key(path, key, message)
    for key in ("study", "name", "store"):
        if not isinstance(content.get(key, ""), str):
            refuse_key(path, key, f"it must be text; got {content[key]!r:.60}")
    optimise = _read_optimise(path, content.get("optimise"))
    ranges = _read_ranges(path, content.get("sweep", {}), grid=optimise is None)
    zips = tuple(_read_zips(path, content.get("zip", [])))
    names = (*ranges, *(name for axis in zips for name in axis.names))
    fixed = {
        key: _number_or_text(path, f"fixed.{key}", value) for key, value in _flat(content.get("fixed", {}))
    }
    common = {key: content[key] for key in COMMON if key in content}
    for key in (SYSTEM, MODEL):  # files stand beside this one, or in the working directory
        if isinstance(common.get(key), str):
            common[key] = beside(path, common[key])
    for key in (*common, *(f"fixed.{name}" for name in fixed)):
        if key.removeprefix("fixed.") in names:
            refuse_key(path, key, "it holds at every point and is swept, too; keep one of the two")
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
        ranges=ranges,
        zips=zips,
        where=conditions,
        optimise=optimise,
        store=path.with_suffix(".sqlite") if store is None else path.parent / store,
    )


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted name and value of each entry of nested tables; a table {from, to, ...} is a value."""
    for key, value in table.items():
        if isinstance(value, Mapping) and not ("from" in value or "to" in value):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _read_ranges(path: Path, table: object, *, grid: bool) -> dict[str, Range | tuple[Value, ...]]:
    if not isinstance(table, Mapping):
        refuse_key(path, "sweep", "it must be a table of names with their values")
    ranges: dict[str, Range | tuple[Value, ...]] = {}
    for name, value in _flat(table):
        with naming(path, f"sweep.{name}"):
            read = _read_values(name, value)
            ranges[name] = read.values(name) if grid and isinstance(read, Range) else read
    return ranges


def _read_values(name: str, value: object) -> Range | tuple[Value, ...]:
    match value:
        case Mapping():
            return _read_range(name, value)
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


def _read_range(name: str, table: Mapping[str, Any]) -> Range:
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


def _read_zips(path: Path, tables: object) -> Iterator[Axis]:
    if not isinstance(tables, Sequence) or not all(isinstance(one, Mapping) for one in tables):
        refuse_key(path, "zip", "names that vary together stand under [[zip]], with two brackets")
    for table in tables:
        columns: dict[str, tuple[Value, ...]] = {}
        with naming(path, "zip"):
            for name, value in _flat(table):
                read = _read_values(name, value)
                columns[name] = read.values(name) if isinstance(read, Range) else read
            axis = zipped(columns)
        yield axis


def _read_optimise(path: Path, table: object) -> Optimise | None:
    if table is None:
        return None
    keys = ("minimise", "maximise", "trials", "seed")
    with naming(path, "optimise"):
        if not isinstance(table, Mapping) or any(key not in keys for key in table):
            msg = f"its table has the keys {', '.join(keys)}"
            raise ParameterError(msg)
        minimise, maximise = (tuple(_listed(table.get(key, []), "column")) for key in keys[:2])
        trials, seed = table.get("trials", Optimise.trials), table.get("seed", Optimise.seed)
        if not minimise and not maximise:
            msg = "it needs columns to minimise or maximise"
            raise ParameterError(msg)
        if type(trials) is not int or type(seed) is not int or trials < 1:
            msg = "trials and seed must be whole numbers, trials at least 1"
            raise ParameterError(msg)
    return Optimise(minimise=minimise, maximise=maximise, trials=trials, seed=seed)


def _listed(value: object, noun: str) -> list[str]:
    """Return one text, or a list of texts, as a list."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        msg = f"each {noun} is text, one or a list of them; got {value!r:.60}"
        raise ParameterError(msg)
    return texts


def _number_or_text(path: Path, key: str, value: object) -> Value:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return value
    refuse_key(path, key, f"'{key}' must be a number or text; got {value!r}")
