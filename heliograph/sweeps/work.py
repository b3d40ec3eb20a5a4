"""Work of a sweep: what all its points have in common, and what becomes of one; the imports of a worker."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from heliograph._version import __version__
from heliograph.plugins import MARK
from heliograph.processes import watched
from heliograph.sweeps.space import Value
from heliograph.sweeps.store import Outcome, Status
from simulator.errors import HeliographError, ParameterError
from simulator.parameter_tree import quantity
from simulator.units import dimension_of

CHOICES = ("accelerators", "gpu", "basis", "core", "fabric", "precision")
"""Choices of `heliograph.system`, which are swept where the system is told by its name."""
SYSTEM, MODEL, PLAN, PLACEMENT = "system", "model", "plan", "placement"
"""Names of whole descriptions that are swept; with a dot behind it, the first key of a model or a plan."""
BEST = "best"
"""Plan, or placement, that stands for the fastest of each point; keys behind a plan hold for all tried."""
STEP = "step"
"""Study of one training step."""
Reader = tuple[str, Callable[[Value], Any]]
"""Whole path of a parameter, and what reads its values."""


class Work(Protocol):
    """What all points of a sweep have in common; goes to other processes."""

    @property
    def study(self) -> str:
        """Name of the study."""
        ...

    def keys(self, inputs: Sequence[Mapping[str, Value]]) -> list[str]:
        """Return a key for each point: equal exactly where everything that can move its result is equal."""
        ...

    def runner(self, expected: int) -> Callable[[Mapping[str, Value]], Mapping[str, Any]]:
        """Return what runs a point of so many, and gives its row; ``rows`` in it is a table of several."""
        ...

    def reader(self, name: str) -> Reader | None:
        """Return whole path and reader of a number of the system of all points; None where it is none."""
        ...

    def about(self, inputs: Mapping[str, Value]) -> Mapping[str, Any]:
        """Return the columns of a point without a result: what it is of."""
        ...


def outcome_of(
    run: Callable[[Mapping[str, Value]], Mapping[str, Any]], work: Work, inputs: Mapping[str, Value]
) -> Outcome:
    """Return what becomes of a point, whatever it is.

    Parameters
    ----------
    run : callable
        What `Work.runner` returned.
    work : Work
        What the points have in common.
    inputs : mapping
        Values of the point.
    """
    began = time.perf_counter()
    try:
        done = watched(run, inputs)
    except HeliographError as error:
        failed = Outcome(status=Status.FAILED, error=str(error), row=work.about(inputs))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        failed = Outcome(status=Status.CRASHED, error=told, row=work.about(inputs))
    else:
        row = dict(done.result)
        return Outcome(
            status=Status.DONE,
            rows=tuple(row.pop("rows", ())),
            row=row,
            warnings=tuple(dict.fromkeys(map(str, done.warnings))),
            seconds=time.perf_counter() - began,
        )
    return dataclasses.replace(failed, seconds=time.perf_counter() - began)


@cache
def code_digest() -> str:
    """Return a hash of the program's own text and of its tables, which a key holds beside the version."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(__version__.encode())
    for floor in ("simulator", "optical", "electronic", "workloads", "heliograph", "experiments"):
        for kind in ("*.py", "*.json", "*.csv"):
            for path in sorted((root / floor).rglob(kind)):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def outside_digest(text: object) -> str:
    """Return text with a hash of the file that it names (``FILE.py:NAME``, ``graph:FILE``), if any."""
    told = str(text)
    for name in (told, f"{told.partition(MARK)[0]}.py" if MARK in told else "", told.partition("graph:")[2]):
        path = Path(name.partition("@")[0]) if name else None
        if path is not None and path.suffix and path.is_file():
            return f"{told} {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
    return told


_CONTEXT = re.compile(rf"(?:{'|'.join((*CHOICES, SYSTEM, PLACEMENT))})$|(?:{MODEL}|{PLAN})(?:\.|$)")
"""Names that choose model, plan or system."""


def is_context(name: str) -> bool:
    """Return whether a name chooses a model, a plan or a system, rather than a number of one."""
    return _CONTEXT.match(name) is not None


def in_si(work: Work, inputs: Sequence[Mapping[str, Value]]) -> list[dict[str, Value | None]]:
    """Return the values of points in SI where they are numbers of the system, else as they are."""
    readers = {name: work.reader(name) for one in inputs[:1] for name in one if not is_context(name)}
    known: dict[tuple[str, Value], Value | None] = {}
    found = []
    for one in inputs:
        for item in one.items():
            if item not in known:
                known[item] = _si(readers.get(item[0]), *item)
        found.append({name: known[name, value] for name, value in one.items()})
    return found


def _si(reader: Reader | None, name: str, value: Value) -> Value | None:
    if is_context(name):
        return value
    if reader is not None:
        try:
            return reader[1](value)  # type: ignore[no-any-return]
        except ParameterError:  # a part, told by its name, or a value that fits nothing
            return value
    unit = name.rpartition(".")[2]
    if isinstance(value, str) and dimension_of(unit) is not None:
        try:
            return quantity(unit, value)
        except ParameterError:
            return value
    return value
