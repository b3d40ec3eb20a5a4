"""In which order the tasks of a step run, and where a run of operators is cut."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import groupby, pairwise

from heliograph.operators import (
    BESIDE,
    Collective,
    Elementwise,
    MatMul,
    Overlapped,
    Sequence,
    StepGraph,
    Task,
)


def computed(
    one: MatMul | Elementwise | Collective | Overlapped, repeat: int
) -> tuple[tuple[MatMul | Elementwise, int], ...]:
    """Return what of an item of a sequence a unit runs, and how often."""
    match one:
        case Collective():
            return ()
        case Overlapped():
            return ((one.product, one.pieces * repeat),)
        case _:
            return ((one, repeat),)


@lru_cache(maxsize=4096)
def pieces(sequence: Sequence) -> tuple[Sequence | tuple[Collective | Overlapped, int], ...]:
    """Return a sequence cut at its collectives; what lies between two of them becomes a sequence."""
    found: list[Sequence | tuple[Collective | Overlapped, int]] = []
    travels = Collective | Overlapped
    for communicates, items in groupby(sequence.items, key=lambda item: isinstance(item[0], travels)):
        if communicates:
            found += [(one, repeat) for one, repeat in items if isinstance(one, travels)]
        else:
            found.append(replace(sequence, items=tuple(items), microbatch=-1))
    return tuple(found)


def compute_orders(graph: StepGraph) -> dict[int, list[Task]]:
    """Return the compute tasks of each class in the order in which it runs them."""
    orders: dict[int, list[Task]] = {}
    for task in graph.tasks:
        if not isinstance(task.operator, BESIDE) and not task.beside:
            orders.setdefault(task.rank_class, []).append(task)
    for tasks in orders.values():
        tasks.sort(key=lambda task: (task.priority, task.id))
    return orders


def followers(graph: StepGraph, orders: dict[int, list[Task]]) -> dict[int, list[int]]:
    """Return which tasks wait directly for each task."""
    later_of: dict[int, list[int]] = {task.id: [] for task in graph.tasks}
    for task in graph.tasks:
        for other in task.after:
            later_of[other].append(task.id)
    for tasks in orders.values():
        for earlier, later in pairwise(tasks):
            later_of[earlier.id].append(later.id)
    return later_of


def descendants(task_id: int, followers_of: dict[int, list[int]]) -> set[int]:
    """Return the tasks that wait for a task, directly or through others."""
    found: set[int] = set()
    edge = [task_id]
    while edge:
        for follower in followers_of[edge.pop()]:
            if follower not in found:
                found.add(follower)
                edge.append(follower)
    return found
