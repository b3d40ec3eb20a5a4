"""Shares compiled passes out over as many threads as torch has; results do not depend on their number."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

_FEWEST = 2**19
"""Elements that are worth a thread: fewer take less time than to wake it."""
_POOLS: dict[int, ThreadPoolExecutor] = {}
"""By process: a fork does not take threads along."""


def in_parts(run: Callable[[int, int], object], count: int, elements: int) -> None:
    """Run a function that releases the interpreter for all parts of a range.

    Parameters
    ----------
    run : callable
        Takes the first, and the last but one, of a part.
    count : int
        Length of the range.
    elements : int
        Numbers that are worked on in all.
    """
    parts = min(torch.get_num_threads(), elements // _FEWEST, count)
    if parts < 2:
        run(0, count)
        return
    edges = [count * part // parts for part in range(parts + 1)]
    first, *rest = itertools.pairwise(edges)
    others = [_pool().submit(run, *part) for part in rest]
    run(*first)
    for other in others:
        other.result()


def _pool() -> ThreadPoolExecutor:
    process = os.getpid()
    if process not in _POOLS:
        _POOLS.clear()
        _POOLS[process] = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="heliograph")
    return _POOLS[process]
