"""Errors that a user can cause, one sentence each, and the range checks that raise them."""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
import sys
import traceback
import types
import typing
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum, StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeGuard, TypeVar

MOST_SHOWN = 12
"""Most names that an error lists."""
PACKAGES = ("electronic", "experiments", "heliograph", "optical", "simulator", "workloads")
"""Packages of the project, whose lines an error message never gives as the place of a mistake."""
MOST_TOLD = 60
"""Most characters of a wrong value in a message."""
RepeatedT = TypeVar("RepeatedT")
TextT = TypeVar("TextT", bound=StrEnum)


class HeliographError(Exception):
    """An error in a user's input; the message names the input, the rule that it breaks, and a remedy."""


class ParameterError(HeliographError):
    """A hardware parameter, table row or system file that breaks its rule."""


class WorkloadError(HeliographError):
    """A model, plan or step graph that cannot be run as described."""


class BudgetError(ParameterError):
    """An accelerator that exceeds a budget of power or area."""


class LinkError(HeliographError):
    """An optical path that does not close: too little light reaches the detector."""


class RouteError(HeliographError):
    """A flow that the fabric cannot carry."""


@contextmanager
def in_one_sentence(what: str, kind: type[HeliographError] = ParameterError) -> Iterator[None]:
    """Run code from outside the project; an error of it becomes one sentence with its file and line.

    Parameters
    ----------
    what : str
        Beginning of the sentence, which names the failing code.
    kind : type
        Class of the error in place of an exception that is no `HeliographError`.

    Raises
    ------
    HeliographError
        Of the class that the code raises, or of `kind`.
    """
    try:
        yield
    except HeliographError as error:
        msg = f"{what}{_place(error)}: {error}"
        raise type(error)(msg) from error
    except Exception as error:
        reason = f": {error}" if str(error) else ""
        msg = f"{what}, {type(error).__name__}{_place(error)}{reason}"
        raise kind(msg) from error


def _place(error: Exception) -> str:
    """Return the last line that an error passed outside the project and installed packages, or no text."""
    ours = (*(str(Path(__file__).parents[1] / one) for one in PACKAGES), sys.prefix, sys.base_prefix)
    frames = traceback.extract_tb(error.__traceback__)
    outside = [one for one in frames if Path(one.filename).exists() and not one.filename.startswith(ours)]
    return f" at {outside[-1].filename}:{outside[-1].lineno}" if outside else ""


class SuspectWarning(UserWarning):
    """A result that is possible but better than anything that was built; one sentence, no failure."""

    def __str__(self) -> str:
        """Return the sentence, the first argument; further arguments are its numbers."""
        return str(self.args[0])


class RangeWarning(SuspectWarning):
    """A number outside the range of its row or of devices that are made; one sentence, no failure."""


class LimitWarning(RangeWarning):
    """A limit of optical power or of size that a chip exceeds: sentence, name of the limit, and excess."""

    @property
    def limit(self) -> str:
        """Name of the limit."""
        return str(self.args[1])

    @property
    def excess(self) -> float:
        """Demand over the limit."""
        return float(self.args[2])


class ClippingWarning(SuspectWarning):
    """An output converter that clips more than the quick execution of a sum follows: sentence and share."""

    @property
    def share(self) -> float:
        """Part of the error that is clipping, 0 to 1."""
        return float(self.args[1])


class IncompleteWarning(SuspectWarning):
    """A result without a part of its input that was missing; one sentence, no failure."""


def repeated(values: Iterable[RepeatedT]) -> RepeatedT | None:
    """Return the first value that repeats an earlier one, or None; values need not be hashable."""
    listed = list(values)
    return next((one for place, one in enumerate(listed) if one in listed[:place]), None)


def nearest(name: str, known: Iterable[str], *, noun: str = "name", most: int = MOST_SHOWN) -> str:
    """Return the closing clause of an error about an unknown name.

    Returns
    -------
    str
        ``did you mean 'x'?`` if a known name is similar, upper and lower case being the same; otherwise the
        known names, the `most` most similar if there are more.
    """
    choices = sorted(set(known))
    lowered = {one.lower(): one for one in choices}
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.51)
    if near:
        return f"did you mean '{lowered[near[0]]}'?"
    if len(choices) > most:
        choices.sort(key=lambda one: -difflib.SequenceMatcher(None, one.lower(), name.lower()).ratio())
    shown = ", ".join(choices[:most]) + (", ..." if len(choices) > most else "")
    plural = {"policy": "policies", "basis": "bases", "study": "studies"}.get(noun, f"{noun}s")
    return f"known {plural}: {shown or 'none'}"


def member_named(kind: type[TextT], name: object, noun: str) -> TextT:
    """Return the member of an enumeration of texts that a user names.

    Raises
    ------
    ParameterError
        If there is none of that text; `noun` says what it would be.
    """
    if name not in list(kind):
        msg = f"no {noun} {name!r:.60}; {nearest(str(name), list(kind), noun=noun)}"
        raise ParameterError(msg)
    return kind(str(name))


def told(value: object) -> str:
    """Return the text of a wrong value for a message: its `repr`, or its class where that is long."""
    written = repr(value)
    return written if len(written) <= MOST_TOLD and "\n" not in written else f"a {type(value).__name__}"


def plain_number(value: object) -> object:
    """Return a number of numpy or of fractions as one of Python, and anything else as it is."""
    if isinstance(value, bool | int | float) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number; a truth value is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_range(
    owner: object,
    *names: str,
    low: float = 0.0,
    high: float = math.inf,
    open_low: bool = False,
) -> None:
    """Check that fields of a description are finite numbers within a range.

    Parameters
    ----------
    owner : object
        The description; its class and ``name`` appear in the message.
    *names : str
        Fields to check.
    low, high : float
        Inclusive ends of the range.
    open_low : bool
        Whether `low` itself is refused (for quantities that must be positive).

    Raises
    ------
    ParameterError
        Naming the field, its value and the rule.
    """
    for name in names:
        value = getattr(owner, name)
        kind = type(value)
        if (kind is float or kind is int) and low < value < high:  # most values, without building a message
            continue
        what = _field(owner, name)
        if not is_number(value):
            msg = f"{what} must be a number; got {value!r}"
            raise ParameterError(msg)
        if math.isnan(value) or (math.isinf(value) and not math.isinf(high)):
            msg = f"{what} must be finite; got {value}"
            raise ParameterError(msg)
        if value < low or value > high or (open_low and value == low):
            left = f"above {low:g}" if open_low else f"at least {low:g}"
            rule = left if math.isinf(high) else f"{left} and at most {high:g}"
            msg = f"{what} must be {rule}; got {value:g}"
            raise ParameterError(msg)


def _field(owner: object, name: str) -> str:
    """Return the name of a description's field for a message."""
    return f"{type(owner).__name__} '{getattr(owner, 'name', '')}': {name}".replace(" ''", "")


def check_positive(owner: object, *names: str) -> None:
    """Check that fields are finite and above zero (`math.inf` is accepted: the ideal limit)."""
    check_range(owner, *names, low=0.0, open_low=True)


class Bounds(NamedTuple):
    """Range of a number of a description, as `check_range` takes it; by default at least 0."""

    low: float = 0.0
    high: float = math.inf
    open_low: bool = False


Positive = Annotated[float, Bounds(open_low=True)]
"""Number above 0."""
Share = Annotated[float, Bounds(high=1.0)]
"""Number from 0 to 1."""
Efficiency = Annotated[float, Bounds(high=1.0, open_low=True)]
"""Number above 0, at most 1."""
FromOne = Annotated[float, Bounds(low=1.0)]
"""Number of at least 1."""
Count = Annotated[int, Bounds(low=1.0)]
"""Number of things, at least 1."""
Several = Annotated[int, Bounds(low=2.0)]
"""Number of things, at least 2."""
Dbm = Annotated[float, Bounds(low=-100.0, high=100.0)]
"""Power, dBm."""
Finite = Annotated[float, Bounds(low=-math.inf)]
"""Finite number of any sign, or one whose range depends on other fields and is checked by its class."""


class Checked:
    """Base of dataclasses whose numbers are checked on construction.

    Every number is finite and at least 0, or as the type of its field says: `Positive`, `Share`, `Count` and
    the like, or any number ``Annotated`` with `Bounds`. One that may be None is checked where it is not.
    """

    def __post_init__(self) -> None:
        kind: type = type(self)
        for (low, high, open_low), always, maybe in _numbers(kind):
            given = (name for name in maybe if getattr(self, name) is not None)
            check_range(self, *always, *given, low=low, high=high, open_low=open_low)


@cache
def _numbers(owner: type) -> tuple[tuple[Bounds, tuple[str, ...], tuple[str, ...]], ...]:
    """Return the numeric fields by bounds: those that always hold a number, and those that may be None."""
    hints = annotations_of(owner, bounds=True)
    found: dict[Bounds, tuple[list[str], list[str]]] = {}
    for item in dataclasses.fields(owner):  # type: ignore[arg-type]
        hint = hints.get(item.name)
        members = typing.get_args(hint) if typing.get_origin(hint) in _UNIONS else (hint,)
        kinds = [one for one in members if one is not types.NoneType]
        stated = [one for one in getattr(kinds[0], "__metadata__", ()) if isinstance(one, Bounds)]
        if len(kinds) == 1 and (stated or kinds[0] in (float, int)):
            always, maybe = found.setdefault(stated[0] if stated else Bounds(), ([], []))
            (always if len(members) == 1 else maybe).append(item.name)
    return tuple((bounds, tuple(always), tuple(maybe)) for bounds, (always, maybe) in found.items())


_UNIONS = (types.UnionType, typing.Union)
"""Origins of annotations that are unions of types."""


def check_whole(owner: object, *names: str) -> None:
    """Check that fields hold whole numbers.

    Raises
    ------
    ParameterError
        Naming the field and its value.
    """
    for name in names:
        value = getattr(owner, name)
        if value != int(value):
            msg = f"{_field(owner, name)} must be whole; got {value}"
            raise ParameterError(msg)


def check_choices(owner: Any) -> None:  # noqa: ANN401 - any dataclass
    """Check that fields of enumerations hold members, not the members' text.

    Parameters
    ----------
    owner : object
        A dataclass; its class and ``name`` appear in the message.

    Raises
    ------
    ParameterError
        Naming the field, its value and the members.
    """
    kinds = _choices(type(owner))  # type: ignore[arg-type] # mypy takes __hash__ of the class for the type's
    for name, allowed in kinds.items():
        value = getattr(owner, name)
        if not isinstance(value, allowed):
            kind = next(kind for kind in allowed if issubclass(kind, Enum))
            check_member(_field(owner, name), value, kind)


def check_member(name: str, value: object, kind: type[Enum]) -> None:
    """Check that an argument is a member of an enumeration, not the member's text.

    Raises
    ------
    ParameterError
        Naming the argument, its value and the members.
    """
    if not isinstance(value, kind):
        members = ", ".join(member if isinstance(member, str) else str(member.name) for member in kind)
        msg = f"{name} must be a {kind.__name__} ({members}), no text or number; got {value!r}"
        raise ParameterError(msg)


@cache
def annotations_of(kind: Hashable, *, bounds: bool = False) -> dict[str, Any]:
    """Return the annotations of a class; cached, because evaluating them is slow.

    They include the bounds of numbers (`Checked`) only if `bounds` is true.
    """
    try:
        return typing.get_type_hints(typing.cast("type", kind), include_extras=bounds)
    except NameError:  # an annotation that exists for the type checker only
        return {}


@cache
def _choices(owner: type) -> dict[str, tuple[type, ...]]:
    """Return the fields of a dataclass that are enumerations, each with the types that it may hold."""
    hints = annotations_of(owner)
    found = {item.name: _kinds(hints[item.name]) for item in dataclasses.fields(owner)}  # type: ignore[arg-type]
    return {name: kinds for name, kinds in found.items() if any(issubclass(kind, Enum) for kind in kinds)}


def _kinds(hint: object) -> tuple[type, ...]:
    """Return the types of an annotation, several for a union; members that are no types are left out."""
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    plain = (typing.get_origin(member) or member for member in members)
    return tuple(member for member in plain if isinstance(member, type))
