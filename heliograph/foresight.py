"""Which traffic ports serve next: what they should wait for, and what they may turn to ahead."""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from heliograph.bundles import Bundle
from heliograph.network import Network
from heliograph.order import descendants


class HasId(Protocol):
    """A task, of a step or of a recorded graph."""

    @property
    def id(self) -> int:
        """Its number."""
        ...


T = TypeVar("T", bound=HasId)


class Later:
    """Which communication cannot start before a task has ended, as bits of one whole number.

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


class Foresight(Generic[T]):
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
    bundles : callable
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
        tasks_of: Mapping[int, Sequence[T]],
        arriving: Mapping[int, Sequence[T]],
        bundles: Callable[[T], tuple[Bundle, ...]],
        is_done: Callable[[T], bool],
        followers_of: dict[int, list[int]],
    ) -> None:
        self._network = network
        self._bundles = bundles
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

    def turn_ahead(self, rank_class: int) -> None:
        """Turn a class's idle ports to the traffic that comes next (Opus, arXiv:2507.08119).

        They stay while anything that is connected now is still to come from the class or to it.
        """
        for task in self._coming(self._begun, rank_class):
            bundles = self._bundles(task)
            lacking = [bundle for bundle in bundles if not self._network.locate(bundle)]
            if lacking and not self.others_first(task.id, rank_class) and not self._receives(rank_class):
                self._network.turn_ahead(lacking[0])
            if bundles:
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
        """Return whether a task has all its circuits."""
        bundles = self._bundles(task)
        return bool(bundles) and all(self._network.locate(bundle) for bundle in bundles)

    def _receives(self, rank_class: int) -> bool:
        """Return whether other classes still send to a class over present circuits."""
        return any(map(self._connected, self._coming(self._sent, rank_class)))
