"""Dotted paths into a tree of frozen dataclasses: list, read and change a number, or replace a whole part.

A path names the fields from the root down (``core.laser.wall_plug_efficiency``). Any ending of it that fits
only one parameter is accepted as well; parameters of the server do not count unless no other fits. Members of
a tuple are named by their ``name``, or by their index where names are missing or repeat. A name that occurs
twice in a row, as that of a core within a number format's (``core.core.laser``), may be written once. A
place is a field that can hold a part: its annotation names dataclasses. It may be empty if the annotation
allows None.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
import re
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Any, TypeVar

from simulator.errors import MOST_SHOWN, ParameterError, annotations_of, nearest
from simulator.units import QUANTITY, dimension_of, to_si

TreeT = TypeVar("TreeT")

MOST_WHOLE = 2**53
"""Largest count: a float does not hold every whole number above it."""
NAMED_IN_FULL = "host."
"""Beginning of paths of the server, whose endings lose against an equal ending of another part's path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Leaf:
    """A field of the tree."""

    segments: tuple[str, ...]
    """Fields from the root down."""
    owner: Any
    """The dataclass that holds the field."""

    @property
    def path(self) -> str:
        """The full dotted path."""
        return ".".join(self.segments)

    @property
    def shown(self) -> str:
        """Path for a reader, without repeated names in a row."""
        return _once(self.path)

    @property
    def field(self) -> str:
        """Name of the field in its owner."""
        return self.segments[-1]

    @property
    def value(self) -> Any:  # noqa: ANN401 - a number or a member of an enumeration
        """The present value."""
        return getattr(self.owner, self.field)


def numeric_leaves(obj: object, *fields: str) -> dict[str, float | int]:
    """Return the numbers of a tree by their full paths, in the order of the fields.

    Parameters
    ----------
    obj : object
        A dataclass whose fields may be dataclasses or tuples of dataclasses. Text, truth values, arrays and
        derived fields (``init=False``) are not numbers of the description.
    *fields : str
        Names of the fields whose numbers to return; all if none is given.

    Returns
    -------
    dict of str to float or int
        Numbers by path; an object at several places of the tree is listed at each.
    """
    leaves = (leaf for leaf in _leaves(obj) if not fields or leaf.field in fields)
    return {leaf.path: leaf.value for leaf in leaves if _is_number(leaf.value)}


def get_at(obj: object, path: str) -> Any:  # noqa: ANN401 - a number or a member of an enumeration
    """Return the parameter at a path.

    Raises
    ------
    ParameterError
        If the path fits no parameter, or several.
    """
    return _find(obj, path).value


def path_of(obj: object, path: str) -> str:
    """Return the full path of a parameter by its path or an ending of it; of several places the first.

    Raises
    ------
    ParameterError
        If the path fits no parameter, or several.
    """
    return _find(obj, path).path


def reader_of(obj: object, path: str) -> tuple[str, Callable[[float | str], float | int | str | None]]:
    """Return the full path of a parameter and a function that converts many values for it (SI, or a choice).

    Raises
    ------
    ParameterError
        If the path fits no parameter, or several.
    """
    leaf = _find(obj, path)

    def read(value: float | str) -> float | int | str | None:
        found = _converted(leaf, value)
        return str(found.value) if isinstance(found, Enum) else found

    return leaf.path, read


def replace_at(obj: TreeT, path: str, value: float | str) -> TreeT:
    """Return a copy of a tree with one parameter changed.

    Every dataclass from the parameter up to the root is constructed again, so constructors check the value.
    If the object that holds the parameter occurs at several places of the tree, it is replaced at all of
    them. Dependent numbers do not change: a system keeps its number of cores, unlike in
    `heliograph.systems.System.with_`.

    Parameters
    ----------
    obj : dataclass
        The tree.
    path : str
        Full path of the parameter, or an unambiguous ending of it.
    value : float or str
        A number in SI, or text: a number, a number with a unit (``"5 GHz"``, ``"3 dB"``, ``"40 %"``), or the
        value of an enumeration.

    Raises
    ------
    ParameterError
        If the path fits no parameter or several, the value is not of the parameter's kind, the unit does not
        fit the suffix, or a constructor refuses the value.
    """
    return replace_all(obj, {path: value})


def replace_all(obj: TreeT, values: Mapping[str, float | str]) -> TreeT:
    """Return a copy of a tree with several parameters changed; those of one part change together.

    Values of a part that depend on each other may therefore come in any order. If two paths name the same
    parameter, the later value counts.

    Parameters
    ----------
    obj : dataclass
        The tree.
    values : mapping of str to float or str
        Values by path, as `replace_at` takes them; parts change in the order of their first parameter.

    Raises
    ------
    ParameterError
        As in `replace_at`.
    """
    left = dict(values)
    while left:
        leaves = {path: _find(obj, path) for path in left}
        owner = next(iter(leaves.values())).owner
        owned = {path: leaf for path, leaf in leaves.items() if leaf.owner is owner}
        fields = {leaf.field: _converted(leaf, left.pop(path)) for path, leaf in owned.items()}
        obj = typing.cast("TreeT", rebuilt(obj, {id(owner): dataclasses.replace(owner, **fields)}))
    return obj


def same_part(obj: object, one: str, other: str) -> bool:
    """Return whether two paths name parameters of one part.

    Raises
    ------
    ParameterError
        If a path fits no parameter, or several.
    """
    return _find(obj, one).owner is _find(obj, other).owner


def parse_assignment(text: str) -> tuple[str, str]:
    """Return path and value of ``path=value``.

    Raises
    ------
    ParameterError
        If there is no equals sign, or nothing on one side of it.
    """
    path, equals, value = (part.strip() for part in text.partition("="))
    if not (path and equals and value):
        msg = f"'{text}' is not an assignment; write path.to.parameter=value, e.g. laser_power_w=0.2"
        raise ParameterError(msg)
    return path, value


LeafT = TypeVar("LeafT", bound=_Leaf)


@cache
def _fields(kind: type) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a dataclass, each with whether its constructor takes it; none for others."""
    if not dataclasses.is_dataclass(kind):
        return ()
    return tuple((one.name, one.init) for one in dataclasses.fields(kind))


def _leaves(obj: object, above: tuple[str, ...] = ()) -> list[_Leaf]:
    """Return the fields of a tree that hold a number or a choice, or are None and could."""
    found: list[_Leaf] = []
    for field, settable in _fields(type(obj)):  # type: ignore[arg-type]
        if not settable or field.startswith("_"):
            continue
        value = getattr(obj, field)
        segments = (*above, field)
        if _is_number(value) or isinstance(value, Enum):
            found.append(_Leaf(segments=segments, owner=obj))
        elif isinstance(value, tuple):
            for name, member in zip(_member_names(value), value, strict=True):
                found += _leaves(member, (*segments, name))
        elif value is not None:
            found += _leaves(value, segments)
        elif _settable_kinds(leaf := _Leaf(segments=segments, owner=obj)):
            found.append(leaf)
    return found


def _member_names(members: tuple[Any, ...]) -> list[str]:
    names = [getattr(member, "name", None) for member in members]
    if all(isinstance(name, str) and name for name in names) and len(set(names)) == len(names):
        return [str(name) for name in names]
    return [str(index) for index in range(len(members))]


def _is_tree(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool | Enum)


def _find(obj: object, path: str) -> _Leaf:
    """Return the one field that a path names."""
    leaves = _leaves(obj)
    found = _named(leaves, path)
    if not found:
        msg = f"no parameter '{path}'; {_hint(leaves, path)}"
        raise ParameterError(msg)
    if len({id(leaf.owner) for leaf in found}) > 1:
        found = [leaf for leaf in found if not leaf.path.startswith(NAMED_IN_FULL)] or found
    if len({id(leaf.owner) for leaf in found}) > 1:
        written = shown_paths(leaf.path for leaf in leaves)
        shown = ", ".join(written[leaf.path] for leaf in found[:8]) + (", ..." if len(found) > 8 else "")
        msg = f"'{path}' fits {len(found)} parameters; write one of {shown}"
        raise ParameterError(msg)
    return found[0]


def _named(leaves: Iterable[LeafT], path: str) -> list[LeafT]:
    """Return the fields with a path; if there are none, those whose full or shown path ends in it."""
    last = path.rpartition(".")[2]
    named = [leaf for leaf in leaves if leaf.field == last]
    found = [leaf for leaf in named if leaf.path == path]
    found = found or [leaf for leaf in named if leaf.path.endswith(f".{path}")]
    return found or [leaf for leaf in named if f".{_once(leaf.path)}".endswith(f".{path}")]


def _once(path: str) -> str:
    """Return a path without repeated names in a row."""
    return ".".join(name for name, _ in itertools.groupby(path.split(".")))


def shown_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return the shown path of each full path: without repeated names in a row, if that stays unambiguous."""
    listed = list(paths)
    times = Counter(_once(path) for path in listed)
    return {path: _once(path) if times[_once(path)] == 1 else path for path in listed}


def _hint(leaves: list[_Leaf], path: str) -> str:
    """Return the last clause of an error about a path that names no field."""
    written = shown_paths(leaf.path for leaf in leaves)
    inside = [written[leaf.path] for leaf in leaves if f".{path}." in f".{leaf.path}"]
    if path and inside:
        shown = ", ".join(inside[:6]) + (", ..." if len(inside) > 6 else "")
        return f"it holds several; write one of {shown}"
    above, _, name = path.rpartition(".")
    derived = [
        leaf
        for leaf in leaves
        if f".{'.'.join(leaf.segments[:-1])}".endswith(f".{above}" if above else "")
        and isinstance(getattr(type(leaf.owner), name, None), property | cached_property)
        and dimension_of(leaf.field) == dimension_of(name)
    ]
    if derived:
        shown = ", ".join(written[leaf.path] for leaf in derived[:MOST_SHOWN])
        return f"it follows from other numbers; set one of {shown}"
    length = path.count(".") + 1
    endings = {".".join(leaf.segments[-length:]): leaf.path for leaf in leaves}
    endings |= {leaf.path: leaf.path for leaf in leaves}
    near = difflib.get_close_matches(path, endings, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{written[endings[near[0]]]}'?"
    alike = sorted(endings, key=lambda ending: -difflib.SequenceMatcher(None, ending, path).ratio())
    known = list(dict.fromkeys(written[endings[ending]] for ending in alike))
    return f"known parameters: {', '.join(known[:MOST_SHOWN])}{', ...' if len(known) > MOST_SHOWN else ''}"


def _converted(leaf: _Leaf, value: float | str) -> float | int | Enum | None:
    """Return a value converted to the type of a field."""
    kinds = _settable_kinds(leaf)
    if type(None) in kinds and str(value).strip().lower() == "none":
        return None
    members = [member for kind in kinds if issubclass(kind, Enum) for member in kind]
    if members:
        return _member(leaf, members, value)
    if isinstance(value, bool):
        msg = f"{leaf.shown} must be a number; got {value}"
        raise ParameterError(msg)
    whole = int in kinds and float not in kinds
    if isinstance(value, str):
        plain = value.strip().replace("_", "")
        plain_whole = whole and re.fullmatch(r"[+-]?[0-9]{1,30}", plain)
        number = int(plain) if plain_whole else quantity(leaf.field, value, path=leaf.shown)
    else:
        number = value
    try:
        unusable = math.isnan(number)
    except (TypeError, OverflowError):  # no number, or a whole one beyond those of floating point
        unusable = True
    if unusable:
        msg = f"{leaf.shown} must be a number; got {value!s:.60}"
        raise ParameterError(msg)
    if not whole:
        return float(number)
    if math.isinf(number) or number != int(number):
        msg = f"{leaf.shown} must be a whole number; got {value}"
        raise ParameterError(msg)
    if abs(number) > MOST_WHOLE:
        msg = f"{leaf.shown} must be at most {MOST_WHOLE:,}; got {value}"
        raise ParameterError(msg)
    return int(number)


def _member(leaf: _Leaf, members: list[Enum], value: object) -> Enum:
    known = {str(member.value): member for member in members}
    text = str(value).strip()
    if text not in known:
        msg = f"{leaf.shown}: no '{text}'; {nearest(text, known, noun='value')}"
        raise ParameterError(msg)
    return known[text]


def quantity(name: str, text: str, *, path: str = "") -> float:
    """Return a number with or without a unit in SI.

    Parameters
    ----------
    name : str
        Name of the parameter, which ends in its unit.
    text : str
        ``"25 us"``, ``"50 GB/s"``, ``"2e9"``.
    path : str
        Name of the parameter in an error, by default `name`.

    Raises
    ------
    ParameterError
        If the text is no number, or the unit does not fit the name.
    """
    match = QUANTITY.fullmatch(text)
    if match is None:
        msg = f"{path or name} must be a number, with or without a unit; got '{text}'"
        raise ParameterError(msg)
    number = float(match["number"])
    try:
        found = to_si(name, number, match["unit"]) if match["unit"] else number
    except ParameterError as error:
        msg = f"{path or name}: {error}"
        raise ParameterError(msg) from error
    if math.isinf(found) and "inf" not in match["number"].lower():
        msg = f"{path or name}: {text} is beyond the largest number, 1.8e308; write inf for no limit"
        raise ParameterError(msg)
    return found


def _settable_kinds(leaf: _Leaf) -> tuple[type, ...]:
    """Return the types that a field accepts, or none if it accepts neither a number nor an enumeration."""
    hint = annotations_of(type(leaf.owner)).get(leaf.field, type(leaf.value))  # type: ignore[arg-type]
    kinds = tuple(kind for kind in typing.get_args(hint) or (hint,) if isinstance(kind, type))
    settable = any(kind in {int, float} or issubclass(kind, Enum) for kind in kinds)
    return kinds if settable else ()


def rebuilt(node: Any, known: dict[int, Any]) -> Any:  # noqa: ANN401 - any node of the tree
    """Return a copy of a node with replaced descendants; `known` maps `id` of a node to its replacement."""
    if id(node) in known:
        return known[id(node)]
    new = node
    if isinstance(node, tuple) and any(_is_tree(member) for member in node):
        members = [rebuilt(member, known) for member in node]
        if any(fresh is not old for fresh, old in zip(members, node, strict=True)):
            new = tuple(members)
    elif _is_tree(node):
        changes = {}
        for name, settable in _fields(type(node)):  # type: ignore[arg-type]
            old = getattr(node, name)
            fresh = rebuilt(old, known)
            if settable and fresh is not old:
                changes[name] = fresh
        new = dataclasses.replace(node, **changes) if changes else node
    known[id(node)] = new
    return new


@dataclass(frozen=True, kw_only=True, slots=True)
class Place(_Leaf):
    """A field that holds a part or is empty and could hold one."""

    kinds: tuple[type, ...]
    """Dataclasses that the field accepts."""
    optional: bool
    """Whether it may be empty."""

    @property
    def part(self) -> Any:  # noqa: ANN401 - whatever stands there
        """The present part, or None."""
        return getattr(self.owner, self.field)


def places(obj: object, above: tuple[str, ...] = ()) -> Iterator[Place]:
    """Yield every place of a tree, in the order of the fields."""
    hints = annotations_of(type(obj))  # type: ignore[arg-type]
    for item in dataclasses.fields(typing.cast("Any", obj)):
        part = getattr(obj, item.name)
        hint = hints.get(item.name, type(part))
        members = typing.get_args(hint) or (hint,)
        kinds = tuple(one for one in members if isinstance(one, type) and dataclasses.is_dataclass(one))
        segments = (*above, item.name)
        if item.init and kinds:
            yield Place(segments=segments, owner=obj, kinds=kinds, optional=type(None) in members)
        if dataclasses.is_dataclass(part) and not isinstance(part, type):
            yield from places(part, segments)


def find_place(obj: object, path: str) -> Place | None:
    """Return the place of a path or an ending of it, or None if there is none.

    Raises
    ------
    ParameterError
        If the path fits several places.
    """
    found = _named(places(obj), path)
    if len({id(one.owner) for one in found}) > 1:
        shown = ", ".join(one.shown for one in found[:8]) + (", ..." if len(found) > 8 else "")
        msg = f"'{path}' fits {len(found)} parts; write one of {shown}"
        raise ParameterError(msg)
    return found[0] if found else None


def put_part(obj: TreeT, place: Place, part: object) -> TreeT:
    """Return a copy of a tree with another part in a place; every dataclass above is built and checked anew.

    Raises
    ------
    ParameterError
        If the part does not fit, or a constructor refuses it.
    """
    if not (isinstance(part, place.kinds) or (part is None and place.optional)):
        wanted = " or ".join(kind.__name__ for kind in place.kinds)
        msg = f"{place.path} takes {wanted}, not {type(part).__name__}"
        raise ParameterError(msg)
    changed = dataclasses.replace(place.owner, **{place.field: part})
    stands = getattr(changed, place.field)
    if (stands is None) != (part is None):
        has = f"no {place.field}" if stands is None else f"always a {place.field}"
        msg = f"{place.path}: beside its other parts there is {has}; change those first"
        raise ParameterError(msg)
    return typing.cast("TreeT", rebuilt(obj, {id(place.owner): changed}))
