"""What every run must lie between: critical path, serial sum, and the cut of a collective."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from heliograph.collectives import vector_bytes
from heliograph.operators import BESIDE, CollectiveKind, StepGraph, Task, topological_order
from heliograph.skew import Skew


def critical_path_s(graph: StepGraph, duration_s: Callable[[Task], float]) -> float:
    """Return the longest chain of dependent tasks, or the busiest class if that is longer.

    Parameters
    ----------
    graph : StepGraph
        The step.
    duration_s : callable
        Duration of a task that has everything to itself.
    """
    ends: dict[int, float] = {}
    busy: defaultdict[int, float] = defaultdict(float)
    for task in topological_order(graph.tasks):
        duration = duration_s(task)
        ends[task.id] = max((ends[other] for other in task.after), default=0.0) + duration
        if not isinstance(task.operator, BESIDE) and not task.beside:
            busy[task.rank_class] += duration
    return max([*ends.values(), *busy.values()], default=0.0)


def serial_sum_s(graph: StepGraph, duration_s: Callable[[Task], float]) -> float:
    """Return the time of all tasks one after the other: no sensible run is slower, dark time apart."""
    return math.fsum(duration_s(task) for task in graph.tasks)


def collective_bound_s(kind: CollectiveKind, n: int, payload_bytes: float, port_bytes_per_s: float) -> float:
    """Return the least time of a collective in which every rank has one port and switches do not add.

    Parameters
    ----------
    kind : CollectiveKind
        What is done.
    n : int
        Ranks.
    payload_bytes : float
        Bytes per rank before the collective.
    port_bytes_per_s : float
        Bandwidth of a rank's port, one way.

    Notes
    -----
    All-reduce must send 2 (n-1)/n of the vector through each port, reduce-scatter, all-gather and all-to-all
    (n-1)/n, broadcast, reduction and send all of it (Chan et al. 2007, table 1); one rank sends nothing.
    """
    vector = vector_bytes(kind, payload_bytes, n)
    share = (n - 1) / n
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return 2.0 * share * vector / port_bytes_per_s
        case CollectiveKind.REDUCE_SCATTER | CollectiveKind.ALL_GATHER | CollectiveKind.ALL_TO_ALL:
            return share * vector / port_bytes_per_s
        case _:
            return (payload_bytes if n > 1 else 0.0) / port_bytes_per_s


def in_network_bound_s(kind: CollectiveKind, n: int, payload_bytes: float, port_bytes_per_s: float) -> float:
    """Return the least time of a collective in which every rank has one port and switches add and copy.

    Parameters
    ----------
    kind, n, payload_bytes, port_bytes_per_s
        As in `collective_bound_s`.

    Notes
    -----
    Into an all-reduce each rank must send its whole vector but the chunk that it adds itself, and that
    chunk's sum: the vector once. Reduce-scatter, all-gather and all-to-all still need (n-1)/n of it.
    """
    vector = vector_bytes(kind, payload_bytes, n)
    if kind is CollectiveKind.ALL_REDUCE:
        return (vector if n > 1 else 0.0) / port_bytes_per_s
    return collective_bound_s(kind, n, payload_bytes, port_bytes_per_s)


def outside_bytes(
    kind: CollectiveKind, n: int, local: int, payload_bytes: float, skew: Skew | None = None
) -> float:
    """Return the least bytes that a rank sends out of its node in a collective without sums in switches.

    Parameters
    ----------
    kind : CollectiveKind
        What is done.
    n, local : int
        Ranks of the group, and how many of them share a node; the same number in each.
    payload_bytes : float
        Bytes per rank before the collective.
    skew : Skew, optional
        Of an uneven all-to-all; its busiest port counts, sending or receiving.

    Notes
    -----
    `collective_bound_s` between nodes, whose ranks share the load: k nodes of g ranks send 2 (k-1)/k of the
    vector in an all-reduce, (k-1)/k in its halves, (n-g)/n per rank in an all-to-all, and a send all.
    """
    nodes = max(1, n // local)
    vector = vector_bytes(kind, payload_bytes, n)
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return 2.0 * (nodes - 1) / nodes * vector / local
        case CollectiveKind.REDUCE_SCATTER | CollectiveKind.ALL_GATHER:
            return (nodes - 1) / nodes * vector / local
        case CollectiveKind.ALL_TO_ALL if skew is not None:
            node = np.arange(n) // local
            leaving = skew.matrix() * (node[:, None] != node)
            return float(max(leaving.sum(axis=0).max(), leaving.sum(axis=1).max())) / n * vector
        case CollectiveKind.ALL_TO_ALL:
            return (n - local) / n * vector
        case _:
            return payload_bytes if nodes > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class StepBound:
    """Times below which no step can be."""

    compute_s: float
    """All accelerators at their peak on the model's own operations, whatever the plan."""
    memory_s: float
    """The fullest accelerator's memory moves what its optimizer must touch; all else may stay on chip."""
    port_s: float
    """Each accelerator's port outside its node sends what its plan must."""

    @property
    def step_time_s(self) -> float:
        """The greatest of them (roofline: Williams et al., Commun. ACM 52 (2009) 65)."""
        return max(self.compute_s, self.memory_s, self.port_s)

    @property
    def what(self) -> str:
        """Which of them it is."""
        named = {"compute": self.compute_s, "memory": self.memory_s, "port": self.port_s}
        return max(named, key=lambda one: named[one])
