"""A user's system as a TOML file: what it changes, and the line of each change for messages."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.errors import HeliographError, ParameterError

PART = "part"
"""Key of a table of a system's file that names the part whose numbers follow in the table."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One number, choice or part that somebody changes."""

    key: str
    """Path of the parameter or part."""
    value: float | str
    """Its new value."""
    file: Path | None = None
    """The file that says so, or None from a command or a program."""

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Put file and line before what an error within says; an error of no file stays as it is."""
        if self.file is None:
            yield
            return
        with naming(self.file, self.key):
            yield


@contextlib.contextmanager
def naming(path: Path, key: str) -> Iterator[None]:
    """Put file, line and key before what an error within says, unless it names the key itself.

    Parameters
    ----------
    path : pathlib.Path
        A TOML file that could be read.
    key : str
        Dotted key, tables included.

    Raises
    ------
    HeliographError
        The error within, of its own kind.
    """
    try:
        yield
    except HeliographError as error:
        line = line_of(path.read_text(encoding="utf-8-sig"), key)
        where = f"{path.name}:{line}" if line else path.name
        named = str(error).startswith((f"{key}:", f"{key} ")) or f"'{key}'" in str(error)
        msg = f"{where}: {error}" if named else f"{where}: {key}: {error}"
        raise type(error)(msg) from None


def line_of(text: str, key: str) -> int:
    """Return the line, from 1, at which a TOML text sets a dotted key or names its part; 0 if none does."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line)
        if head:
            table = f"{_plain(head[1])}."
            continue
        pair = re.match(r"\s*([\w.\"' -]+?)\s*=", line)
        if pair and f"{table}{_plain(pair[1])}" in (key, f"{key}.{PART}"):
            return number
    return 0


def flattened(content: Mapping[str, Any], path: Path, prefix: str = "") -> list[Change]:
    """Return the changes that a file's tables ask for, a part before the numbers of it.

    Raises
    ------
    ParameterError
        If a value is neither a number nor text.
    """
    found: list[Change] = []
    for key, value in sorted(content.items(), key=lambda item: item[0] != PART):
        where = prefix.rstrip(".") if key == PART and prefix else f"{prefix}{key}"
        if isinstance(value, Mapping):
            found += flattened(value, path, f"{where}.")
        elif isinstance(value, bool) or not isinstance(value, int | float | str):
            with naming(path, where):
                msg = f"key '{where}' must be a number or text; got {value!r}"
                raise ParameterError(msg)
        else:
            found.append(Change(key=where, value=value, file=path))
    return found


def _plain(key: str) -> str:
    """Return a dotted key without quotes and spaces."""
    return re.sub(r"[\"'\s]", "", key)
