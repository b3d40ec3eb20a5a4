"""Lookahead of ports: traffic that they should wait for, and traffic whose circuits they may prefetch.

It is found from the order of a step's tasks and from where runs of operators are cut, or from a recorded
graph of ranks.
"""

from __future__ import annotations

import functools
import operator
from collections import abc, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Generic, Protocol, TypeVar

from simulator.collectives.flow_groups import FlowGroup
from simulator.collectives.traffic import Traffic
from simulator.engine.network import Network
from simulator.engine.rank_graph import Message, RankGraph, RankTask, Together, Work
from simulator.operators import (
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


class HasId(Protocol):
    """A task, of a step or of a recorded graph."""

    @property
    def id(self) -> int:
        """Its number."""
        ...


T = TypeVar("T", bound=HasId)


class Later:
    """Communication that cannot start before a task has ended, as bits of one whole number.

    Parameters
    ----------
    followers_of : dict
        Tasks that wait directly for each task, by dependence or by order of compute.
    asked : iterable of int
        Tasks that communicate; the first has the highest bit.

    Notes
    -----
    All are found at once, from the last task to the first, since the tasks behind one are its followers and
    what is behind those: an OR of whole numbers for each dependence. A walk from each task would visit most
    of the graph for each. Tasks in or before a cycle, which orders of compute may close, are walked from.
    """

    def __init__(self, followers_of: dict[int, list[int]], asked: Iterable[int]) -> None:
        self._followers_of = followers_of
        self._tasks = tuple(dict.fromkeys(asked))
        self._bit_of = {one: 1 << place for place, one in enumerate(reversed(self._tasks))}
        self._found: dict[int, int] = {}

    def __call__(self, task_id: int) -> int:
        """Return the bits of the tasks behind one."""
        if not self._found:
            self._find()
        found = self._found.get(task_id)
        if found is None:
            behind = descendants(task_id, self._followers_of)
            found = self._found[task_id] = sum(self._bit_of.get(one, 0) for one in behind)
        return found

    def bits(self, tasks: Iterable[int]) -> int:
        """Return the bits of some tasks."""
        return functools.reduce(operator.or_, (self._bit_of[one] for one in tasks), 0)

    def first(self, bits: int) -> int:
        """Return the task of the highest of some bits."""
        return self._tasks[-bits.bit_length()]

    def forget(self, task_id: int) -> None:
        """Drop what was found for a task that has ended."""
        self._found.pop(task_id, None)

    def _find(self) -> None:
        waiting = {one: len(followers) for one, followers in self._followers_of.items()}
        before: defaultdict[int, list[int]] = defaultdict(list)
        for one, followers in self._followers_of.items():
            for follower in followers:
                before[follower].append(one)
        ready = [one for one, count in waiting.items() if not count]
        while ready:
            task_id = ready.pop()
            found = 0
            for follower in self._followers_of[task_id]:
                found |= self._found[follower] | self._bit_of.get(follower, 0)
            self._found[task_id] = found
            for one in before[task_id]:
                waiting[one] -= 1
                if not waiting[one]:
                    ready.append(one)


class Lookahead(Generic[T]):
    """Communication that is still to come, over present circuits or not.

    A class is what turns its ports together: a class of a step's ranks, or a rank of a recorded graph.

    Parameters
    ----------
    network : Network
        The fabric and its clock.
    tasks_of : mapping
        Communication tasks that each class begins, in their order.
    arriving : mapping
        Communication tasks that other classes send to a class.
    flow groups : callable
        What a task moves; nothing if circuits do not matter to it.
    is_done : callable
        Whether a task has ended.
    followers_of : dict
        Tasks that wait directly for each task.
    """

    def __init__(
        self,
        *,
        network: Network,
        tasks_of: Mapping[int, abc.Sequence[T]],
        arriving: Mapping[int, abc.Sequence[T]],
        flow_groups: Callable[[T], tuple[FlowGroup, ...]],
        is_done: Callable[[T], bool],
        followers_of: dict[int, list[int]],
    ) -> None:
        self._network = network
        self._flow_groups = flow_groups
        self._is_done = is_done
        both = [*tasks_of.values(), *arriving.values()]
        self._task = {task.id: task for tasks in both for task in tasks}
        self.later = Later(followers_of, sorted(self._task))
        self._begun = {one: self.later.bits(task.id for task in tasks) for one, tasks in tasks_of.items()}
        self._sent = {one: self.later.bits(task.id for task in tasks) for one, tasks in arriving.items()}

    def others_first(self, task_id: int, *classes: int) -> bool:
        """Return whether classes' ports still have other traffic ahead on their present circuits.

        That is traffic which is connected now and does not itself wait for the task that wants the ports.
        """
        skipped = self.later(task_id) | (self.later.bits([task_id]) if task_id in self._task else 0)
        return any(
            self._connected(other) for one in classes for other in self._coming(self._begun, one, skipped)
        )

    def prefetch(self, rank_class: int) -> None:
        """Turn a class's idle ports to the traffic that comes next (Opus, arXiv:2507.08119).

        They stay while anything that is connected now is still to come from the class or to it.
        """
        for task in self._coming(self._begun, rank_class):
            flow_groups = self._flow_groups(task)
            lacking = [flow_group for flow_group in flow_groups if not self._network.locate(flow_group)]
            if lacking and not self.others_first(task.id, rank_class) and not self._receives(rank_class):
                self._network.prefetch(lacking[0])
            if flow_groups:
                return

    def _coming(self, table: dict[int, int], rank_class: int, skipped: int = 0) -> Iterator[T]:
        """Go through the tasks of a class that have not ended, but for some; forget those that have."""
        left = table.get(rank_class, 0) & ~skipped
        while left:
            task_id = self.later.first(left)
            bit = self.later.bits([task_id])
            left ^= bit
            task = self._task[task_id]
            if self._is_done(task):
                table[rank_class] &= ~bit
            else:
                yield task

    def _connected(self, task: T) -> bool:
        """Return whether a task takes circuits, and has all of them."""
        flow_groups = self._flow_groups(task)
        if not any(self._network.fabric.turns_for(flow_group.flows) for flow_group in flow_groups):
            return False
        return all(self._network.locate(flow_group) for flow_group in flow_groups)

    def _receives(self, rank_class: int) -> bool:
        """Return whether other classes still send to a class over present circuits."""
        return any(map(self._connected, self._coming(self._sent, rank_class)))


def step_lookahead(
    graph: StepGraph, traffic: Traffic, network: Network, is_done: Callable[[int], bool]
) -> Lookahead[Task]:
    """Return what a step's classes of ranks still have to communicate.

    Parameters
    ----------
    graph : StepGraph
        The step.
    traffic : Traffic
        Plans of all its collectives.
    network : Network
        The fabric during the step.
    is_done : callable
        Whether the task of a number has ended.
    """
    tasks_of: defaultdict[int, list[Task]] = defaultdict(list)
    sent_to: defaultdict[int, list[Task]] = defaultdict(list)
    for task in graph.tasks:
        if isinstance(task.operator, Collective):
            tasks_of[task.rank_class].append(task)
            if task.operator.shift:
                sent_to[task.rank_class + task.operator.shift].append(task)

    def flow_groups(task: Task) -> tuple[FlowGroup, ...]:
        if not isinstance(task.operator, Collective):
            return ()
        return tuple(flow_group for flow_group, _, _ in traffic.plan(task.operator, task.rank_class).parts)

    return Lookahead(
        network=network,
        tasks_of=tasks_of,
        arriving=sent_to,
        flow_groups=flow_groups,
        is_done=lambda task: is_done(task.id),
        followers_of=followers(graph, compute_orders(graph)),
    )


def rank_lookahead(
    graph: RankGraph,
    plan_of: Callable[[int], tuple[FlowGroup, ...]],
    network: Network,
    node_size: int,
    is_done: Callable[[int], bool],
) -> Lookahead[RankTask]:
    """Return what every rank of a recorded graph still has to communicate outside its node.

    Parameters
    ----------
    graph : RankGraph
        The graph.
    plan_of : callable
        What a task moves, by its number.
    network : Network
        The fabric.
    node_size : int
        Consecutive endpoints that no circuit joins, for they share a node.
    is_done : callable
        Whether the task of a number has ended.
    """
    tasks_of: defaultdict[int, list[RankTask]] = defaultdict(list)
    sent_to: defaultdict[int, list[RankTask]] = defaultdict(list)
    for task in sorted(graph.tasks, key=lambda task: task.id):
        if isinstance(task.operation, Work) or not _leaves(task.operation, node_size):
            continue
        for rank in begun_by(task):
            tasks_of[rank].append(task)
        if isinstance(task.operation, Message):
            for rank in task.operation.destinations:
                sent_to[rank].append(task)
    return Lookahead(
        network=network,
        tasks_of=tasks_of,
        arriving=sent_to,
        flow_groups=lambda task: plan_of(task.id),
        is_done=lambda task: is_done(task.id),
        followers_of=graph.followers,
    )


def _leaves(operation: Together | Message, node_size: int) -> bool:
    """Return whether ranks of several nodes meet."""
    groups: Iterable[tuple[int, ...]]
    if isinstance(operation, Message):
        groups = zip(operation.sources, operation.destinations, strict=True)
    else:
        groups = operation.groups
    return any(len({rank // node_size for rank in group}) > 1 for group in groups)


def begun_by(task: RankTask) -> Iterator[int]:
    """Go through the ranks whose ports a task turns: all of a collective, the senders of a message."""
    if isinstance(task.operation, Message):
        yield from task.operation.sources
    elif not isinstance(task.operation, Work):
        for group in task.operation.groups:
            yield from group
