"""Strict reading of users' files, changes of parameters in TOML, and frozen records as JSON.

Also blocking of Ctrl-C during a write, and caching of compiled code on disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import re
import signal
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar

from simulator.errors import HeliographError, ParameterError, annotations_of, nearest

_T = TypeVar("_T")

MAX_BYTES = 4 * 2**20
"""Largest file that is read: a description of hardware or of a model has kilobytes."""
MAX_DEPTH = 32
"""Deepest nesting of tables and lists that is accepted."""

DUPLICATE_KEY = "Cannot overwrite a value"
"""Error message of `tomllib` for a key that stands twice."""

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def beside(path: Path, text: str) -> str:
    """Return the path of a file that the file at `path` names.

    The name counts from the working directory; if there is no such file, from the directory of `path`.
    """
    sibling = path.parent / text
    if not is_present(Path(text)) and is_present(sibling) and sibling.is_file():
        return str(sibling)
    return text


def is_present(path: Path) -> bool:
    """Return whether a file exists; False also for a name that the system does not allow."""
    try:
        return path.exists()
    except OSError:
        return False


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Parameters
    ----------
    path : pathlib.Path
        UTF-8 text, with or without a byte-order mark, any line endings.

    Raises
    ------
    ParameterError
        If the file is missing, a directory, empty, too large, not UTF-8, not TOML, repeats a key, nests
        deeper than `MAX_DEPTH` or holds a number that is not finite.
    """
    text = read_text(path)
    try:
        content = tomllib.loads(text)
    except RecursionError:
        _too_deep(path)
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        found = re.search(r"^(.*?) \(at line (\d+), column (\d+)\)", str(error))
        if found:
            msg = f"{path.name}:{found[2]}: not TOML: {_lowered(found[1])} (column {found[3]})"
            line = text.splitlines()[int(found[2]) - 1]
            if found[1] == DUPLICATE_KEY and "=" in line:
                key = line.partition("=")[0].strip()
                msg = f"{path.name}:{found[2]}: key '{key}' stands twice in one table; keep one"
            elif found[1] == DUPLICATE_KEY:
                key = line.strip().strip("[]").partition(".")[0].strip()
                above = re.search(rf"^\s*{re.escape(key)}\s*=\s*(.*\S)", text, re.MULTILINE)
                value = above[1] if above else "..."
                inside = "kind" if key == "fabric" else PART
                msg = (
                    f"{path.name}:{found[2]}: table {line.strip()} has the name of a key that stands above; "
                    f"keep one, or write {key} = {value} as a table, [{key}] with {inside} = {value} beneath"
                )
        else:
            msg = f"{path.name}: not TOML: {_lowered(str(error))}"
        raise ParameterError(msg) from None
    _check_content(content, path, text)
    return content


def read_json_value(path: Path) -> Any:  # noqa: ANN401 - whatever JSON may hold
    """Return the content of a JSON file, whatever it holds.

    Raises
    ------
    ParameterError
        As `read_toml`.
    """
    text = read_text(path)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            lines = _lines_of(text, re.escape(json.dumps(twice, ensure_ascii=False)) + r"\s*:")
            where = f"{path.name}:{lines[1]}" if len(lines) == 2 else path.name
            msg = f"{where}: key '{twice}' stands twice in one object; keep one"
            raise ParameterError(msg)
        return content

    def refuse(constant: str) -> NoReturn:
        lines = _lines_of(text, rf"[:\[,]\s*{constant}\b")
        where = f"{path.name}:{lines[0]}" if len(lines) == 1 else path.name
        msg = f"{where}: {constant} is not a number that can be used; write a finite one"
        raise ParameterError(msg)

    try:
        content = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except RecursionError:
        _too_deep(path)
    except json.JSONDecodeError as error:
        early = error.pos >= len(text.rstrip())
        what = "the file ends too early" if early else f"{_lowered(error.msg)} (column {error.colno})"
        msg = f"{path.name}:{error.lineno}: not JSON: {what}"
        raise ParameterError(msg) from None
    except ValueError as error:
        msg = f"{path.name}: not JSON: {_lowered(str(error))}"
        raise ParameterError(msg) from None
    _check_content(content, path, text)
    return content


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file that holds one object.

    Raises
    ------
    ParameterError
        As `read_toml`, and if the file holds anything but one object.
    """
    content = read_json_value(path)
    if not isinstance(content, dict):
        msg = f"{path.name}: holds a {type(content).__name__} where an object {{...}} is needed"
        raise ParameterError(msg)
    return content


def json_line(text: str, key: str) -> int:
    """Return the line, from 1, at which a JSON text gives a key; 0 if none does, or several.

    Parameters
    ----------
    text : str
        The text, as `read_text` returns it.
    key : str
        The key, at any depth.
    """
    lines = _lines_of(text, re.escape(json.dumps(key, ensure_ascii=False)) + r"\s*:")
    return lines[0] if len(lines) == 1 else 0


def read_text(path: Path) -> str:
    """Return the text of a file with plain line endings and no byte-order mark.

    Raises
    ------
    ParameterError
        If there is no such file, it is no regular file, is empty, larger than `MAX_BYTES`, cannot be opened
        or is not UTF-8.
    """
    raw = read_bytes(path)
    if raw[:2] in _UTF16_MARKS or b"\0" in raw[:64]:
        msg = f"{path.name}: is UTF-16 or binary, not UTF-8 text; save it as UTF-8"
        raise ParameterError(msg)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        msg = f"{path.name}:{line}: is not UTF-8 text (byte 0x{raw[error.start]:02x}); save it as UTF-8"
        raise ParameterError(msg) from None
    if not text.strip():
        msg = f"{path.name}: is empty"
        raise ParameterError(msg)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: Path, *, most: int = MAX_BYTES) -> bytes:
    """Return the bytes of a file.

    Raises
    ------
    ParameterError
        If there is no such file, it is no regular file, larger than `most`, or cannot be opened.
    """
    try:
        if path.is_dir():
            msg = f"{path}: is a directory; name a file in it"
            raise ParameterError(msg)
        if not path.exists():
            msg = f"no file '{path}'; {_sibling_hint(path)}"
            raise ParameterError(msg)
        if not path.is_file():
            msg = f"{path}: is not a regular file"
            raise ParameterError(msg)
        with path.open("rb") as stream:
            raw = stream.read(most + 1)
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror or error})"
        raise ParameterError(msg) from None
    except ValueError as error:  # a path with a NUL character
        msg = f"{path!r}: is not a path ({error})"
        raise ParameterError(msg) from None
    if len(raw) > most:
        msg = f"{path.name}: is larger than {most // 2**20} MiB; is it the right file?"
        raise ParameterError(msg)
    return raw


def _sibling_hint(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no directory '{path.parent}'"
    siblings = [str(item) for item in path.parent.iterdir() if item.is_file() and item.suffix == path.suffix]
    return nearest(str(path), siblings, noun="file") if siblings else "check the path"


def _check_content(content: Any, path: Path, text: str) -> None:  # noqa: ANN401 - whatever JSON holds
    """Refuse content that nests too deep and numbers that are not finite, without recursion."""
    pending: list[tuple[tuple[str, ...], Any]] = [((), content)]
    while pending:
        keys, value = pending.pop()
        if len(keys) > MAX_DEPTH:
            _too_deep(path)
        if isinstance(value, dict):
            pending.extend(((*keys, str(key)), item) for key, item in value.items())
        elif isinstance(value, list):
            pending.extend(((*keys, str(index)), item) for index, item in enumerate(value))
        elif isinstance(value, float) and not math.isfinite(value):
            lines = _lines_of(text, rf"\b{re.escape(keys[-1])}[\"']?\s*[=:]")
            where = f"{path.name}:{lines[0]}" if len(lines) == 1 else path.name
            msg = f"{where}: '{'.'.join(keys)}' is {value}; write a finite number"
            raise ParameterError(msg)


def line_at(text: str, place: int) -> int:
    """Return the line, from 1, of a place in a text."""
    return text.count("\n", 0, place) + 1


def _lines_of(text: str, pattern: str) -> list[int]:
    return [line_at(text, found.start()) for found in re.finditer(pattern, text)]


def _too_deep(path: Path) -> NoReturn:
    msg = f"{path.name}: is nested deeper than {MAX_DEPTH} levels; is it the right file?"
    raise ParameterError(msg) from None


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


@contextmanager
def ctrl_c_later() -> Iterator[None]:
    """Delay Ctrl-C until the block ends, on systems that can mask signals."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@functools.lru_cache(maxsize=1024)
def kept_on_disk(decorator: Callable[..., Any], function: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Return a function compiled by a decorator of numba, its machine code cached on disk.

    Where no folder can be written, each process compiles anew.
    """
    try:
        return decorator(cache=True)(function)
    except RuntimeError:
        return decorator()(function)


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
    """Return a dataclass whose fields plain data holds."""
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


PART = "part"
"""Key of a table of a system's file that names the part whose numbers follow in the table."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """New value of a number or a choice, or new part, as a file, a command or a program sets it."""

    key: str
    """Path of the parameter or part."""
    value: float | str
    """Its new value."""
    file: Path | None = None
    """File that sets it; None for a command or a program."""

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Prefix the message of an error in the block with file and line, if a file sets the change."""
        if self.file is None:
            yield
            return
        with naming(self.file, self.key):
            yield


@contextlib.contextmanager
def naming(path: Path, key: str) -> Iterator[None]:
    """Prefix the message of an error in the block with file and line, and with the key if it lacks it.

    Raises
    ------
    HeliographError
        The error of the block, of the same class.
    """
    try:
        yield
    except HeliographError as error:
        raise type(error)(_at_key(path, key, str(error))) from None


def refuse_key(path: Path, key: str, sentence: str) -> NoReturn:
    """Raise `ParameterError` for a key of a TOML file, with file and line as `naming` adds them."""
    raise ParameterError(_at_key(path, key, sentence))


def _at_key(path: Path, key: str, sentence: str) -> str:
    line = line_of(path.read_text(encoding="utf-8-sig"), key)
    where = f"{path.name}:{line}" if line else path.name
    within = key.partition(".")[2] or key
    named = sentence.startswith((f"{key}:", f"{key} ", f"{within}:")) or f"'{key}'" in sentence
    return f"{where}: {sentence}" if named else f"{where}: {key}: {sentence}"


def line_of(text: str, key: str) -> int:
    """Return the line, from 1, at which a TOML text sets a dotted key or names its part.

    If the key is a table without such a line, it is the line of the table's head; 0 if there is none.
    """
    table, begins = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"\s*\[{1,2}\s*([^\[\]]+?)\s*\]", line)
        if head:
            table = f"{_unquoted(head[1])}."
            begins = begins or (number if table == f"{key}." else 0)
            continue
        pair = re.match(r"\s*([\w.\"' -]+?)\s*=", line)
        if pair and f"{table}{_unquoted(pair[1])}" in (key, f"{key}.{PART}"):
            return number
    return begins


def flattened(content: Mapping[str, Any], path: Path, prefix: str = "") -> list[Change]:
    """Return the changes that a file's tables hold, each part before its numbers.

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
            refuse_key(path, where, f"key '{where}' must be a number or text; got {value!r}")
        else:
            found.append(Change(key=where, value=value, file=path))
    return found


def _unquoted(key: str) -> str:
    """Return a dotted key without quotes and spaces."""
    return re.sub(r"[\"'\s]", "", key)
