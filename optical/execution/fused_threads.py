"""Shares compiled passes out over as many threads as torch has; results do not depend on their number.

Torch's own team of OpenMP is called without the interpreter: it is awake from torch's last product, while a
thread of Python's takes longer to wake than most passes take.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from optical.execution.fused_numbers import HEAD

_FEWEST = 2**15
"""Elements that are worth a thread of the team: fewer take less time than to call it."""
_FEWEST_ALONE = 2**19
"""Elements that are worth one of Python's."""
_LINE = 64
"""Bytes of a line of a cache, which two threads had better not both write to."""
_PARTS = 4
"""For each thread, so that one that is held up leaves its work to others."""
_PROCESS = os.getpid()
_POOLS: dict[int, ThreadPoolExecutor] = {}
"""By process: a fork does not take threads along."""


class Job:
    """A compiled function that works on parts of a range until none is left.

    Parameters
    ----------
    make : callable
        Compiles the function, which takes the address of a block of memory (`optical.execution.compiling.job`).
    integers, reals : int
        How many numbers of either kind stand in the block.
    """

    def __init__(self, make: Callable[[], Any], integers: int, reals: int) -> None:
        function = make()
        self._call: Callable[[int], None] = function.ctypes
        self._address: int = function.address
        self._block = struct.Struct(f"={HEAD}q{integers}q{reals}d")
        self._counters = -(-self._block.size // _LINE) * _LINE

    def run(
        self,
        values: tuple[float, ...],
        count: int,
        elements: int,
        *,
        grain: int = 1,
        most: int | None = None,
    ) -> None:
        """Do the whole of a range, on several threads where that is worth while.

        Parameters
        ----------
        values : tuple
            Integers, then reals, that the function is given.
        count : int
            Length of the range.
        elements : int
            Numbers that are worked on in all.
        grain : int
            Of which the lengths of parts are multiples.
        most : int or None
            Largest length of a part.
        """
        team = _team()
        call, who = team or (None, 0)
        fewest = _FEWEST if team is not None else _FEWEST_ALONE
        threads = max(1, min(torch.get_num_threads(), elements // fewest, count))
        size = count
        if threads > 1:
            size = -(-count // (threads * _PARTS))
            size += -size % grain
        size = size if most is None else min(size, most)
        each = -(-count // (size * threads))
        block = ctypes.create_string_buffer(self._counters + _LINE * (threads + 1))
        address = ctypes.addressof(block)
        counters = address + self._counters + -address % _LINE
        self._block.pack_into(block, 0, counters, count, size, threads, each, who, *values)
        if threads == 1:
            self._call(address)
        elif call is not None:
            call(self._address, address, threads, 0)
        else:
            others = [_pool().submit(self._call, address) for _ in range(threads - 1)]
            self._call(address)
            for other in others:
                other.result()


Team = tuple[Callable[[int, int, int, int], None], int]
"""What runs a function, and the address of what tells a thread's number."""


def _team() -> Team | None:
    """Return torch's team, or None where there is none, or a fork left it behind."""
    return _openmp() if os.getpid() == _PROCESS else None


@functools.cache
def _openmp() -> Team | None:
    """Return ``GOMP_parallel``, which GNU's OpenMP and LLVM's both have: function, data, threads, flags."""
    try:
        library = ctypes.CDLL(None)
        call, who = library.GOMP_parallel, library.omp_get_thread_num
    except (AttributeError, OSError, TypeError):
        return None
    call.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    call.restype = None
    return call, ctypes.cast(who, ctypes.c_void_p).value or 0


def _pool() -> ThreadPoolExecutor:
    process = os.getpid()
    if process not in _POOLS:
        _POOLS.clear()
        _POOLS[process] = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="heliograph")
    return _POOLS[process]
