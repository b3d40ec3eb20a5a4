"""Descriptions as plain data: nested dictionaries, canonical JSON, a hash, a file."""

from __future__ import annotations

import csv
import dataclasses
import errno
import hashlib
import io
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from heliograph.errors import HeliographError

_MAX_ARRAY = 64
"""Arrays with more elements are recorded by shape and hash."""


def plain(value: object, where: str = "value") -> Any:  # noqa: ANN401, PLR0911 - one return for each kind of JSON value
    """Return a value as JSON can hold it: dictionaries, lists, text, numbers, truth values and None.

    Parameters
    ----------
    value : object
        Numbers, text, paths, enumerations, arrays, functions (by name), or mappings, sequences and
        dataclasses of them. A dataclass also tells its ``type``; a number that is not finite becomes text.
    where : str
        What the value is called in an error.

    Raises
    ------
    HeliographError
        For anything else: a record that left something out would be worse than none.
    """
    match value:
        case None | bool() | int() | str() if not isinstance(value, Enum):
            return value
        case Enum():
            return plain(value.value, where)
        case float() | np.floating():
            return float(value) if math.isfinite(value) else str(float(value))
        case np.integer() | np.bool_():
            return value.item()
        case np.ndarray():
            return _plain_array(value, where)
        case PurePath():
            return value.as_posix()
        case Mapping():
            return {str(plain(key, where)): plain(item, f"{where}.{key}") for key, item in value.items()}
        case list() | tuple():
            return [plain(item, f"{where}.{index}") for index, item in enumerate(value)]
        case set() | frozenset():
            return sorted((plain(item, where) for item in value), key=str)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [item.name for item in dataclasses.fields(value) if not item.name.startswith("_")]
        fields = {name: plain(getattr(value, name), f"{where}.{name}") for name in names}
        return {"type": type(value).__name__, **fields}
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    msg = f"{where}: a {type(value).__name__} cannot be recorded; make it a dataclass, a number or text"
    raise HeliographError(msg)


def canonical_json(value: object, *, indent: int | None = None) -> str:
    """Return JSON that is the same text for the same content: sorted keys, shortest exact numbers."""
    separators = (",", ": ") if indent else (",", ":")
    return json.dumps(
        plain(value),
        sort_keys=True,
        indent=indent,
        separators=separators,
        allow_nan=False,
        ensure_ascii=False,
    )


def sha256_of(value: object) -> str:
    """Return the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as CSV with a column for every key, in the order in which they first appear."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def make_directory(directory: Path) -> None:
    """Make a directory if it is not there.

    Raises
    ------
    HeliographError
        If it cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot make {directory} ({error.strerror}); name another directory with --out"
        raise HeliographError(msg) from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that it is either the old one or the whole new one, never a part.

    Raises
    ------
    HeliographError
        If the directory is missing or read-only, or the disk is full; nothing is left behind.
    """
    raw = content.encode("utf-8", "replace") if isinstance(content, str) else content
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        msg = f"cannot write {path}: {_reason(error)}"
        raise HeliographError(msg) from error


def _plain_array(array: np.ndarray, where: str) -> Any:  # noqa: ANN401 - a list or a dictionary
    if array.size <= _MAX_ARRAY:
        return plain(array.tolist(), where)
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": digest}


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return "the disk is full; free some space, or name another directory with --out"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return "the directory is read-only; name another with --out"
        case errno.ENOENT:
            return "the directory does not exist"
        case _:
            return f"{error.strerror or error}"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
