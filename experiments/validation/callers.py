"""How a row about a collective was measured: by which program, with how many processes, with what forced."""

from __future__ import annotations

import re
from types import MappingProxyType

from electronic.kernels import Caller, load_caller
from experiments.validation.cells import Record
from simulator.collectives.algorithms import Algorithm

TESTS = "nccl-tests"
"""Benchmark that calls in a row from one process or several."""
EVENTS = "torch-events"
"""Benchmarks in PyTorch that take the time between two events around each call, one process a GPU."""
_EVENTS_SOURCES = r"Bekman|ml-engineering"
_FORCED = MappingProxyType(
    {
        "NVLS": Algorithm.IN_NETWORK,
        "Ring": Algorithm.RING,
    }
)
"""What a row's setting calls an algorithm (NCCL_ALGO), and what it is here."""


def caller_of(record: Record) -> Caller:
    """Return the program that measured a row: its column ``caller``, or what its source is known to run.

    Notes
    -----
    Bekman's tables come from `all_reduce_bench.py`, which records an event before and after each call and
    waits between calls; the other public tables come from nccl-tests.

    Raises
    ------
    ParameterError
        If the column names no program of the table.
    """
    named = record.text("caller")
    if named:
        return load_caller(named)
    if re.search(_EVENTS_SOURCES, record.text("source")):
        return load_caller(EVENTS)
    record.assume("caller (nccl-tests)")
    return load_caller(TESTS)


def gpus_per_process(record: Record, caller: Caller, gpus: int) -> int:
    """Return how many GPUs one process drove: the column of that name, or the program's habit.

    Parameters
    ----------
    record : Record
        The row.
    caller : Caller
        What measured it.
    gpus : int
        GPUs of the row, in one node.

    Notes
    -----
    nccl-tests' first example, and Azure's guide, run ``all_reduce_perf -g N``: one process for a node.
    """
    given = record.whole("gpus_per_process")
    if given is not None:
        return given
    if caller.name == EVENTS:
        return 1
    record.assume("gpus_per_process (all)")
    return gpus


def forced_algorithm(record: Record) -> str:
    """Return the algorithm that a row's setting names, or nothing if it names none or several.

    Notes
    -----
    Azure's guide sets NCCL_ALGO for whole tables; a setting that names several says what the library chose
    for which size.
    """
    named = {name for name in _FORCED if re.search(rf"\b{name}\b", record.text("config"))}
    return str(_FORCED[named.pop()]) if len(named) == 1 else ""
