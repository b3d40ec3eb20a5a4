"""Run store: descriptions as plain data, and files that are written whole or not at all.

A run's directory holds ``summary.json`` (the results), ``systems.csv`` and ``table.csv``, ``config.json``
(every parameter with its value, versions, seed, hashes) and ``trace.json`` (opens in Perfetto).
`TrainingCache` keeps finished training runs across interrupted commands.

Tables have the same columns whatever was run: ``systems.csv`` and `rows()` hold one row for each system,
with `COLUMNS`; ``table.csv`` and `parts()` one row for each part of each quantity, with `PART_COLUMNS`.
Names end in their SI unit.
"""

from __future__ import annotations

import csv
import dataclasses
import errno
import fcntl
import hashlib
import io
import json
import math
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from importlib import metadata
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any

import numpy as np

from heliograph._version import __version__
from simulator.errors import HeliographError, is_number
from simulator.files import ctrl_c_later
from simulator.tables import Table

SCHEMA = 2
"""Version of the columns, and of the layout of JSON records and run directories; part of every cache key."""

IDENTITY: Mapping[str, str] = MappingProxyType(
    {
        "schema": "version of these columns",
        "version": "version of heliograph",
        "seed": "first seed of the small GPT's training; empty where nothing random was run",
        "model": "model",
        "plan": "plan, as --plan takes it",
        "system": "system by name",
        "settings": "what was changed, path=value, with semicolons between",
        "accelerators": "accelerators of the system",
    }
)
"""Columns that identify a row, with their descriptions."""
COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        **IDENTITY,
        "accelerator": "what computes",
        "gpu": "the GPU, or the one that light replaces",
        "core": "photonic core; empty without light",
        "basis": "what photonic accelerators share with the GPU; empty without light",
        "precision": "format of operands, as the plan or the system says",
        "photonic_cores": "photonic cores of an accelerator",
        "fabric": "fabric",
        "circuit_policy": "when circuits move; none without circuits",
        "placement": "axes from the nearest ranks to the farthest",
        "step_time_s": "time of a step",
        "tokens_per_s": "tokens trained per second",
        "model_flop_utilisation": "model operations over peak operations in the step",
        "exposed_communication_s": "time that compute waits for the network",
        "dark_s": "longest time of a rank in which circuits move, hidden or not",
        "exposed_dark_s": "time that compute waits for circuits",
        "pipeline_bubble_s": "time that stages wait for each other",
        "energy_j": "energy of the step",
        "energy_per_token_j": "energy per token",
        "mean_power_w": "mean power of the whole system",
        "usd_per_million_tokens": "cost of a million tokens, at assumed prices",
        "capital_usd": "price of the whole system, assumed",
        "snr_db": "executed signal-to-noise ratio of all products of the step",
        "operands": "statistics of the operands of that ratio, and for which a laser is sized",
        "precision_target": "what the laser is sized for; empty without light",
        "laser_line_w": "power of a laser, or of a line of a comb; empty without light",
        "effective_bits": "effective bits of a full-scale sample; of a GPU, its format's significand",
        "reduction_effective_bits": "effective bits of gradients that the fabric adds in light",
        "memory_bytes": "memory of the fullest accelerator",
        "memory_capacity_bytes": "memory that an accelerator has",
        "peak_flop_per_s": "peak of products, each accelerator",
        "accelerator_peak_w": "power at full load, each",
        "accelerator_area_m2": "die area, each",
        "accelerator_usd": "price, each",
        "sram_bytes": "buffer of a photonic accelerator",
        "fabric_static_w": "power of the fabric without traffic",
        "reconfigurations": "changes of circuits in the step",
        "dropped_share": "share of visits to experts that are dropped",
        "core_lifetime_steps": "steps after which cells are worn out; empty where they never are",
        "run_steps": "steps of a compute-optimal training run",
        "numerics": "arithmetic with which the small GPT was trained; empty where it was not",
        "validation_loss": "its validation loss, nats per byte, mean over seeds",
        "validation_loss_spread": "standard deviation of that over seeds",
        "loss_difference": "mean difference to exact arithmetic, same seeds",
        "loss_difference_standard_error": "standard error of that",
        "loss_difference_resolved": "whether it is told from chance",
        "seeds": "seeds that were trained",
        "steps_to_loss_relative": "steps to the same loss over those of exact arithmetic",
        "steps_to_loss_standard_error": "standard error of that",
        "steps_to_loss_resolved": "whether it is told from one",
        "steps_to_loss_least": "lower bound of it where a seed never got there",
        "time_to_loss_s": "time of a whole run to that loss",
        "energy_to_loss_j": "energy of a whole run to that loss",
        "error": "why there is no result; empty where there is one",
    }
)
"""Columns of a row for a system, in their order, with what they hold."""
PART_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        **IDENTITY,
        "quantity": "column of which the value is a part, or the whole of it where `part` is empty",
        "part": "category of time, component of energy, kind of memory, axis of traffic",
        "value": "the value, in the unit with which the quantity's name ends",
    }
)
"""Columns of a row for a part of a quantity, in their order, with what they hold."""
_PARTED: Mapping[str, str] = MappingProxyType(
    {
        "time_by_category_s": "step_time_s",
        "energy_by_component_j_per_token": "energy_per_token_j",
        "memory_by_kind_bytes": "memory_bytes",
        "step_usd": "step_usd",
        "network_bytes": "network_bytes",
        "host_bytes": "host_bytes",
        "inputs_by_status": "inputs",
    }
)
"""Keys of a record that hold parts, with the quantity that these make up."""


def row_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a record: every column, None where the record has nothing for it."""
    return {column: record.get(column) for column in COLUMNS}


def part_rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a record's quantities, each as a whole and by its parts; texts are left out."""
    same = {column: record.get(column) for column in IDENTITY}
    whole = [
        same | {"quantity": column, "part": "", "value": record[column]}
        for column in COLUMNS
        if column not in IDENTITY and is_number(record.get(column))
    ]
    parts = [
        same | {"quantity": quantity, "part": part, "value": value}
        for key, quantity in _PARTED.items()
        for part, value in record.get(key, {}).items()
    ]
    return whole + parts


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
    """Return rows as CSV with a column for every key, in the order in which they first appear.

    Text that a spreadsheet would run as a formula is quoted.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(column) for column in columns])
    writer.writerows([_cell(row.get(column, "")) for column in columns] for row in rows)
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


def check_writable(path: Path) -> None:
    """Raise an error if no file can be written to a path; called before the work that makes its content.

    Raises
    ------
    HeliographError
        If it is a directory, or its own directory is missing or read-only.
    """
    if path.is_dir():
        msg = f"cannot write {path}: it is a directory; name a file in it"
        raise HeliographError(msg)
    if not path.parent.is_dir():
        msg = f"cannot write {path}: the directory {path.parent} does not exist"
        raise HeliographError(msg)
    if not os.access(path.parent, os.W_OK):
        msg = f"cannot write {path}: the directory {path.parent.resolve()} is read-only; name another"
        raise HeliographError(msg)


DEVICES = Path("/dev")
"""Folder in which nothing is replaced by a file."""


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that it is either the old one or the whole new one, never a part.

    A link stays one to the file that is written; a pipe or a device (``/dev/stdout``) is written as it comes.

    Raises
    ------
    HeliographError
        If the directory is missing or read-only, or the disk is full; nothing is left behind.
    """
    raw = content.encode("utf-8", "replace") if isinstance(content, str) else content
    temporary: str | None = None
    try:
        if DEVICES in path.absolute().parents or (path.exists() and not path.is_file()):
            path.write_bytes(raw)
            return
        target = path.resolve()
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
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


CACHE = 1
"""Version of stored training runs; part of their keys."""

_PACKAGES = ("numpy", "scipy", "simpy", "networkx", "torch", "matplotlib", "rich")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def versions() -> dict[str, str]:
    """Return the versions of Python, of this program and of the packages it computes with, importing none."""
    found = {"python": platform.python_version(), "heliograph": __version__}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def git_commit() -> str | None:
    """Return the commit that this program was checked out at, with ``+`` when files differ, or None."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def configuration(
    systems: Mapping[str, object], *, seed: int, arguments: Mapping[str, object], tables: Iterable[Table] = ()
) -> dict[str, Any]:
    """Return all that is needed to repeat a run, the content of ``config.json``.

    Parameters
    ----------
    systems : mapping of str to dataclass
        The systems as they were run, after all changes.
    seed : int
        Seed of all random numbers.
    arguments : mapping
        Arguments of the run: model, plan, number of accelerators, basis.
    tables : iterable of Table
        Parameter tables that the systems were built from; recorded by hash.

    Raises
    ------
    HeliographError
        If a description holds something that cannot be written down.
    """
    hashes = {f"{table.path.parent.parent.name}/{table.path.name}": table.sha256 for table in tables}
    return {
        "schema": SCHEMA,
        "seed": seed,
        "arguments": plain(arguments, "arguments"),
        "versions": versions(),
        "git_commit": git_commit(),
        "table_sha256": hashes,
        "systems": plain(systems, "systems"),
    }


def fingerprint(config: Mapping[str, Any]) -> str:
    """Return a short hash of a configuration; equal for equal configurations only."""
    return sha256_of(config)[:16]


CONFIG, SUMMARY = "config.json", "summary.json"
"""Files of a run: its configuration, and its results; the latter marks a finished run."""


def new_run_directory(root: Path, name: str, *, mark: str = SUMMARY) -> Path:
    """Return ``root/name``, or the first of ``name-2``, ``name-3``... that holds no run.

    Parameters
    ----------
    root : pathlib.Path
        Directory of all runs.
    name : str
        Name of the run; characters that file names should not have are replaced.
    mark : str
        File by which a directory counts as holding a run.
    """
    safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)[:80].strip(".-")
    for count in range(1, 10_000):
        directory = root / (f"{safe or 'run'}-{count}" if count > 1 else safe or "run")
        if not (directory / mark).exists():
            return directory
    msg = f"{root} holds 9,999 runs named '{safe}'; name another directory with --out"
    raise HeliographError(msg)


_LOCKED: dict[Path, int] = {}
"""Directories that this process writes a run into, each with the file that holds the lock."""


def lock(directory: Path) -> None:
    """Keep other processes from writing a run into a directory, until `unlock` or the end of this one.

    Raises
    ------
    HeliographError
        If another process does.
    """
    place = directory.resolve()
    if place in _LOCKED:
        return
    handle = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        msg = f"another run is writing into {directory}; wait for it, or name another directory with --out"
        raise HeliographError(msg) from error
    except OSError:  # a file system without locks
        pass
    _LOCKED[place] = handle


def unlock(directory: Path) -> None:
    """Let other processes write into a directory again."""
    handle = _LOCKED.pop(directory.resolve(), None)
    if handle is not None:
        os.close(handle)


@contextmanager
def whole(directory: Path, mark: str) -> Iterator[Path]:
    """Yield a directory for files that are moved into another when all are there; else that keeps its own.

    Parameters
    ----------
    directory : pathlib.Path
        Where the files go; exists.
    mark : str
        File that says that a run is whole: it goes first of those that were there, and comes last.

    Raises
    ------
    HeliographError
        If the directory cannot be written.
    """
    try:
        aside = tempfile.TemporaryDirectory(prefix=".writing-", dir=directory)
    except OSError as error:
        msg = f"cannot write into {directory} ({error.strerror}); name another directory with --out"
        raise HeliographError(msg) from error
    with aside as name:
        yield Path(name)
        files = sorted(Path(name).iterdir(), key=lambda file: (file.name == mark, file.name))
        with ctrl_c_later():
            (directory / mark).unlink(missing_ok=True)
            for file in files:
                file.replace(directory / file.name)


def check_same_run(directory: Path, config: Mapping[str, Any]) -> None:
    """Raise an error if a directory holds a finished run of another configuration.

    Parameters
    ----------
    directory : pathlib.Path
        Directory of a run that is about to start.
    config : mapping
        Its configuration; its systems are not compared, since they are known only after the run.

    Raises
    ------
    HeliographError
        If the configurations differ.
    """
    before, asked = _object_in(directory / CONFIG), json.loads(canonical_json(config))
    differs = any(before.get(key) != asked[key] for key in asked if key != "systems")
    if before and differs and (directory / SUMMARY).exists():
        raise _holds_another(directory)


QUESTION = ("schema", "version", "command", "options")
"""Keys of a record's head that must agree for a record to be written over."""
STOPPED = "stopped"
"""Key of a record whose run was stopped before its end; others have none."""


def check_same_question(path: Path, head: Mapping[str, Any]) -> None:
    """Raise an error if the file of a record exists and is not a record of the same question.

    Parameters
    ----------
    path : pathlib.Path
        File of the record that is about to be written.
    head : mapping
        Head of that record.

    Raises
    ------
    HeliographError
        If the file is of another command, other options or another version, or is no record.
    """
    if not path.exists():
        return
    standing, asked = standing_record(path), json.loads(canonical_json(head))
    if standing is None:
        msg = f"{path} is no record of this program; name another directory with --out, or remove it"
        raise HeliographError(msg)
    differing = [key for key in QUESTION if standing.get(key) != asked[key]]
    if differing == ["options"]:
        before, now = standing["options"], asked["options"]
        differing = [f"'{one}'" for one in now if not isinstance(before, dict) or before.get(one) != now[one]]
    if differing:
        what = ", ".join(differing[:_MOST_NAMED]) or "options"
        more = " and more" if len(differing) > _MOST_NAMED else ""
        msg = (
            f"{path} is of another run (other {what}{more}); name another directory with --out, or remove it"
        )
        raise HeliographError(msg)


_MOST_NAMED = 3
"""Differences that a sentence names; a choice."""


def standing_record(path: Path) -> dict[str, Any] | None:
    """Return the record that stands in a file; None where nothing does that could be one."""
    found = _object_in(path)
    return found if "schema" in found else None


def _holds_another(directory: Path) -> HeliographError:
    return HeliographError(f"{directory} holds another run; name another directory with --out, or remove it")


def reserve_directory(directory: Path, identity: str) -> None:
    """Make the directory of a run, and lock it until `unlock` or the end of this process.

    Parameters
    ----------
    directory : pathlib.Path
        Where the files of the run will go.
    identity : str
        Hash of its configuration, see `fingerprint`; the same run may be written again.

    Raises
    ------
    HeliographError
        If the directory cannot be made, another process writes into it, or it holds another finished run.
    """
    make_directory(directory)
    lock(directory)
    if (directory / SUMMARY).exists() and _object_in(directory / SUMMARY).get("fingerprint") != identity:
        unlock(directory)
        raise _holds_another(directory)


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a record as indented canonical JSON."""
    write_atomically(path, canonical_json(content, indent=1) + "\n")


def write_summary(directory: Path, identity: str, summary: Mapping[str, object]) -> None:
    """Write ``summary.json``; only the field ``created`` differs between runs of one configuration."""
    content = {"schema": SCHEMA, "fingerprint": identity, **plain(summary, "summary")}
    content["created"] = datetime.now(UTC).isoformat(timespec="seconds")
    write_json(directory / SUMMARY, content)


def write_trace(path: Path, events: Sequence[Mapping[str, object]]) -> None:
    """Write events in the Chrome format that Perfetto opens."""
    trace = {"displayTimeUnit": "ms", "traceEvents": list(events)}
    text = json.dumps(
        trace, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False, default=plain
    )  # quicker than `canonical_json`: events are plain but for what one may hold by chance
    write_atomically(path, text)


@dataclass(frozen=True)
class TrainingCache:
    """Curves of finished training runs, one file each, so that an interrupted command loses none."""

    directory: Path
    """Where the files stand; made when the first is stored."""

    def key(self, *, numerics: object, model: object, training: object, corpus_sha256: str) -> str:
        """Return the key of a run: equal exactly when everything that can move its curve is equal.

        Parameters
        ----------
        numerics : object
            How products come out (an `AnalogSpec` per phase, or a name for exact arithmetic).
        model, training : dataclass
            The small GPT and its training, with the seed.
        corpus_sha256 : str
            Hash of the text.
        """
        made_with = {name: version for name, version in versions().items() if name in {"heliograph", "torch"}}
        parts = {"numerics": numerics, "model": model, "training": training, "corpus": corpus_sha256}
        return sha256_of({"schema": CACHE, "versions": made_with, **parts})

    def load(self, key: str) -> dict[str, Any] | None:
        """Return the stored curves, or None if there are none or the file is damaged."""
        content = _object_in(self.directory / f"{key}.json")
        curves = content.get("curves")
        return curves if content.get("key") == key and isinstance(curves, dict) else None

    def store(self, key: str, curves: Mapping[str, object]) -> None:
        """Store the curves of a finished run, keys in their order: tables list products as results have them.

        Raises
        ------
        HeliographError
            If they cannot be written.
        """
        make_directory(self.directory)
        text = json.dumps(plain({"key": key, "curves": curves}), allow_nan=False, ensure_ascii=False)
        write_atomically(self.directory / f"{key}.json", text)


def _object_in(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty where there is no file, or no object in it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _cell(value: object) -> object:
    """Return a cell that a spreadsheet shows as it is: text that would be run as a formula is quoted."""
    if not isinstance(value, str):
        return plain(value, "cell")
    text = "".join(letter if letter.isprintable() or letter in "\n\t" else " " for letter in value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()
