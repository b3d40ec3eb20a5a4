"""Text that every machine has: the source of Python's own standard library, as bytes."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator.errors import WorkloadError

_MOST_BYTES = 8 * 2**20
_LEFT_OUT = frozenset(
    {
        "__pycache__",
        "dist-packages",
        "encodings",
        "ensurepip",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
        "turtledemo",
    }
)
"""Folders whose files are absent on some installations, or are tables rather than text."""
_LEAST_FILES = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Bytes to train on and bytes to judge by, of different files."""

    name: str
    """What it is."""
    train: np.ndarray
    """Bytes to train on, uint8, shape [N]."""
    validation: np.ndarray
    """Bytes to validate on, uint8, shape [V]."""
    sha256: str
    """Hash of the training bytes followed by the validation bytes; it changes with the version of Python."""


def python_source(
    root: Path | None = None, *, most_bytes: int = _MOST_BYTES, validation_every: int = 10
) -> Corpus:
    """Return the Python source below a folder.

    Parameters
    ----------
    root : Path, optional
        The folder; by default the standard library of the running Python.
    most_bytes : int
        Size not to exceed. Files are taken whole, in the order of the hash of their relative path, so that
        a smaller corpus is a fair sample of the larger.
    validation_every : int
        One file in so many is for validation, at least 2.

    Raises
    ------
    WorkloadError
        If there are too few files for the two parts.
    """
    root = Path(sysconfig.get_path("stdlib")) if root is None else root
    if validation_every < _LEAST_FILES:
        msg = f"validation_every must be at least {_LEAST_FILES}; got {validation_every}"
        raise WorkloadError(msg)
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    size = 0
    for index, path in enumerate(_source_files(root)):
        text = path.read_bytes()
        if size + len(text) > most_bytes:
            break
        parts[index % validation_every == validation_every - 1].append(text)
        size += len(text)
    train, validation = b"".join(parts[0]), b"".join(parts[1])
    if not train or not validation:
        msg = f"'{root}' holds {size} bytes of Python source, too little to split; name a folder with more"
        raise WorkloadError(msg)
    return Corpus(
        name=f"Python source below '{root.name}'",
        train=np.frombuffer(train, dtype=np.uint8),
        validation=np.frombuffer(validation, dtype=np.uint8),
        sha256=hashlib.sha256(train + validation).hexdigest(),
    )


def _source_files(root: Path) -> Iterator[Path]:
    """Return the source files in an order that depends on their relative paths alone."""
    names = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in _LEFT_OUT]
        here = Path(folder).relative_to(root)
        names += [(here / name).as_posix() for name in files if name.endswith(".py")]
    names.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
    return (root / name for name in names)
