"""Operators of a run as text, so that a trace tells them and not only their operations and bytes in all."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterable
from enum import Flag
from typing import Any

from simulator.operators import Elementwise, MatMul

Run = tuple[tuple[MatMul | Elementwise, int], ...]
"""Operators one after the other, and how often each."""
KINDS: dict[str, type[MatMul | Elementwise]] = {"product": MatMul, "other": Elementwise}
"""Operators that a unit runs, by the word that a text has for them."""
FIELDS: dict[type, dict[str, Any]] = {kind: typing.get_type_hints(kind) for kind in KINDS.values()}
"""Type of each field of each."""
_WORDS = {kind: word for word, kind in KINDS.items()}


def operators_text(run: Run) -> str:
    """Return a run as JSON: of each operator how often, its kind, and its fields that differ from usual."""
    return json.dumps([[times, _WORDS[type(one)], _fields(one)] for one, times in run], separators=(",", ":"))


def _fields(one: MatMul | Elementwise) -> dict[str, Any]:
    values = {item.name: (getattr(one, item.name), item.default) for item in dataclasses.fields(one)}
    return {
        name: value.value if isinstance(value, Flag) else value
        for name, (value, usual) in values.items()
        if value != usual
    }


def read_operators(text: str) -> Run:
    """Return the run of a text.

    Raises
    ------
    ValueError
        If the text is none of `operators_text`.
    """
    try:
        return tuple(
            _read(int(times), KINDS[word], fields.items()) for times, word, fields in json.loads(text)
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        msg = f"its operators cannot be read ({type(error).__name__}: {error})"
        raise ValueError(msg) from None


def _read(
    times: int, kind: type[MatMul | Elementwise], fields: Iterable[tuple[str, Any]]
) -> tuple[MatMul | Elementwise, int]:
    kinds = FIELDS[kind]
    return kind(**{name: kinds[name](value) for name, value in fields}), times
