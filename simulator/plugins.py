"""Cores, fabrics, models and schedules from users' files (``mine.py:MyCore``) and installed packages.

They are found by name in this order: those that are already registered;
``FILE.py:ATTRIBUTE``; the entry points of installed packages, in the groups ``heliograph.cores``,
``heliograph.fabrics``, ``heliograph.models`` and ``heliograph.schedules``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType

from simulator.errors import HeliographError, ParameterError, nearest

MARK = ".py:"
"""Text between the stem of a file and the name of its attribute."""


def is_reference(name: str) -> bool:
    """Return whether a name refers to an attribute of a file, such as ``mine.py:MyCore``."""
    return MARK in name


def from_outside(group: str, name: str) -> object | None:
    """Return the attribute of a file or the entry point of an installed package by name, or None.

    Parameters
    ----------
    group : str
        Group of entry points, such as ``heliograph.cores``.
    name : str
        ``FILE.py:ATTRIBUTE``, or the name of an entry point.

    Raises
    ------
    ParameterError
        If the file or its attribute is missing, or the import fails.
    """
    if is_reference(name):
        return _attribute(name)
    if name.endswith(".py"):
        msg = f"'{name}' names a file and nothing in it; write {name}:NAME"
        raise ParameterError(msg)
    for point in metadata.entry_points(group=group):
        if point.name == name:
            try:
                return point.load()
            except Exception as error:
                msg = f"'{name}', {group} of an installed package ({point.value}): {_reason(error)}"
                raise ParameterError(msg) from error
    return None


def offered(group: str) -> tuple[str, ...]:
    """Return the names of a group's entry points, without importing them."""
    return tuple(point.name for point in metadata.entry_points(group=group))


def bring_in(group: str, load: Callable[[str], object]) -> dict[str, str]:
    """Load all entry points of a group; return a message by name for each that fails."""
    failed: dict[str, str] = {}
    for name in offered(group):
        try:
            load(name)
        except HeliographError as error:
            failed[name] = f"cannot be loaded: {error}"
    return failed


def _attribute(reference: str) -> object:
    """Return the attribute of a file."""
    stem, _, attribute = reference.rpartition(MARK)
    path = Path(f"{stem}.py")
    module = _module(path)
    if not hasattr(module, attribute):
        names = [name for name in vars(module) if not name.startswith("_")]
        msg = f"{path} has no '{attribute}'; {nearest(attribute, names)}"
        raise ParameterError(msg)
    return getattr(module, attribute)


def _module(path: Path) -> ModuleType:
    """Return a user's file as a module, executed once per process."""
    if not path.is_file():
        msg = f"there is no file {path}; write FILE.py:NAME, with the path from the working directory"
        raise ParameterError(msg)
    place = path.resolve()
    name = f"{path.stem}_{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None:
        msg = f"{path} cannot be read as Python"
        raise ParameterError(msg)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        msg = f"{path}: {_reason(error)}"
        raise ParameterError(msg) from error
    return module


def _reason(error: BaseException) -> str:
    """Return why something could not be imported, in one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, HeliographError) else f"{type(error).__name__}: {text}"
