"""Attributes of a user's files, ``mine.py:MyCore``, and entry points of installed packages.

A core, fabric, model or schedule is found by its name in this order: what is registered already;
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
"""Text between the stem of a file and an attribute of it."""


def is_reference(name: str) -> bool:
    """Return whether a name is that of a file's attribute, such as ``mine.py:MyCore``."""
    return MARK in name


def from_outside(group: str, name: str) -> object | None:
    """Return what a file or an installed package has under a name; None where there is nothing.

    Parameters
    ----------
    group : str
        Group of entry points, such as ``heliograph.cores``.
    name : str
        ``FILE.py:ATTRIBUTE``, or the name of an entry point.

    Raises
    ------
    ParameterError
        If the file or its attribute is missing, or what is there cannot be imported.
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
    """Return the names of a group of entry points, importing none."""
    return tuple(point.name for point in metadata.entry_points(group=group))


def bring_in(group: str, load: Callable[[str], object]) -> dict[str, str]:
    """Load what installed packages offer; return a sentence by the name of each that cannot be."""
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
    """Return a user's file as a module, run once."""
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
