"""Doubts about a result that a job raised in another process, brought back with what the job gave."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from heliograph.errors import SuspectWarning

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Watched(Generic[Result]):
    """What a job gave, and what it doubted."""

    result: Result
    """What it gave."""
    doubts: tuple[SuspectWarning, ...]
    """What it warned of."""


def watched(work: Callable[[Job], Result], job: Job) -> Watched[Result]:
    """Do a job and return its result with the doubts about it; other warnings are shown as usual.

    Parameters
    ----------
    work : callable
        Does a job.
    job : object
        The job.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SuspectWarning)
        result = work(job)
    for one in caught:
        if not isinstance(one.message, SuspectWarning):
            warnings.showwarning(one.message, one.category, one.filename, one.lineno)
    doubts = tuple(one.message for one in caught if isinstance(one.message, SuspectWarning))
    return Watched(result=result, doubts=doubts)


def told(one: Watched[Result]) -> Result:
    """Return a job's result, and warn of the doubts about it in this process."""
    for doubt in one.doubts:
        warnings.warn(doubt, stacklevel=3)
    return one.result
