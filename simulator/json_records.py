"""JSON of frozen records of records, numbers, choices and texts, which reads back as the same records."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import typing
from collections.abc import Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar

from simulator.checks import annotations_of
from simulator.errors import ParameterError

_T = TypeVar("_T")


@functools.lru_cache(maxsize=1024)
def record_to_json(value: object) -> str:
    """Return the canonical JSON text of a frozen record of records, numbers, choices and texts."""
    return json.dumps(_plain(value), sort_keys=True, allow_nan=False)


def _plain(value: object) -> object:
    """Return a frozen record as plain data; infinite numbers as text, since JSON has none."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value) if item.init
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0.0 else "-inf"
    return value


def record_from_json(kind: type[_T], text: str) -> _T:
    """Return the record of a kind that `record_to_json` wrote.

    Raises
    ------
    ParameterError
        If the text is no JSON, or a key is missing, unknown or of the wrong kind.
    """
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        msg = (
            f"{kind.__name__}: line {error.lineno}, column {error.colno}: {error.msg}; write it with to_json"
        )
        raise ParameterError(msg) from None
    return typing.cast("_T", _read(kind, content, kind.__name__))


def _read(kind: Any, content: Any, where: str) -> object:  # noqa: ANN401
    """Return plain data as a value of a kind that a field is declared with."""
    if isinstance(kind, UnionType):
        if content is None:
            return None
        (kind,) = (choice for choice in typing.get_args(kind) if choice is not NoneType)
    if dataclasses.is_dataclass(kind):
        return _record(typing.cast("type", kind), content, where)
    if typing.get_origin(kind) is tuple:
        if not isinstance(content, list):
            msg = f"{where} cannot be {content!r}; it takes a list"
            raise ParameterError(msg)
        return tuple(_read(typing.get_args(kind)[0], item, where) for item in content)
    try:
        value = kind(content)
    except (TypeError, ValueError):
        value = None
    plain = (int, float) if kind is float else (kind,)
    infinite = kind is float and content in ("inf", "-inf")
    strange = type(content) not in plain and not infinite
    if value is None or (kind in (int, bool, float, str) and strange):
        msg = f"{where} cannot be {content!r}; it takes a {kind.__name__}"
        raise ParameterError(msg)
    return value


def _record(kind: type, content: Any, where: str) -> object:  # noqa: ANN401
    fields = {item.name: item for item in dataclasses.fields(kind) if item.init}
    if not isinstance(content, Mapping):
        msg = f"{where} must hold {', '.join(fields)}; got {content!r}"
        raise ParameterError(msg)
    unknown = [key for key in content if key not in fields]
    missing = [
        name
        for name, item in fields.items()
        if name not in content
        and item.default is dataclasses.MISSING
        and item.default_factory is dataclasses.MISSING
    ]
    if unknown or missing:
        wrong = f"has no field '{unknown[0]}'" if unknown else f"lacks '{missing[0]}'"
        msg = f"{where} {wrong}; its fields are {', '.join(fields)}"
        raise ParameterError(msg)
    hints = annotations_of(kind)
    return kind(**{key: _read(hints[key], value, f"{where}.{key}") for key, value in content.items()})
