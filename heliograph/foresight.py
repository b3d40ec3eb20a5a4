"""Which traffic ports serve next: what they should wait for, and what they may turn to ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    """Tasks that cannot start before a given one has ended, each found once.

    Parameters
    ----------
    followers_of : dict
        Tasks that wait directly for each task.
    """

    def __init__(self, followers_of: dict[int, list[int]]) -> None:
        self._followers_of = followers_of
        self._found: dict[int, set[int]] = {}

    def __call__(self, task_id: int) -> set[int]:
        """Return the tasks, by dependence or by order of compute."""
        found = self._found.get(task_id)
        if found is None:
            found = self._found[task_id] = descendants(task_id, self._followers_of)
        return found

    def forget(self, task_id: int) -> None:
        """Drop what was found for a task that has ended."""
        self._found.pop(task_id, None)


@dataclass(frozen=True, kw_only=True)
class Foresight(Generic[T]):
    """Communication that is still to come, over present circuits or not.

    A class is what turns its ports together: a class of a step's ranks, or a rank of a recorded graph.
    """

    network: Network
    """The fabric and its clock."""
    tasks_of: Mapping[int, Sequence[T]]
    """Communication tasks that each class begins, in their order."""
    arriving: Mapping[int, Sequence[T]]
    """Communication tasks that other classes send to a class."""
    bundles: Callable[[T], tuple[Bundle, ...]]
    """What a task moves; nothing if circuits do not matter to it."""
    is_done: Callable[[T], bool]
    """Whether a task has ended."""
    later: Later
    """Tasks that cannot start before a task ends."""

    def others_first(self, task_id: int, *classes: int) -> bool:
        """Return whether classes' ports still have other traffic ahead on their present circuits.

        That is traffic which is connected now and does not itself wait for the task that wants the ports.
        """
        later = self.later(task_id)
        return any(
            other.id not in later and other.id != task_id and self._connected(other)
            for one in classes
            for other in self.tasks_of.get(one, ())
        )

    def turn_ahead(self, rank_class: int) -> None:
        """Turn a class's idle ports to the traffic that comes next (Opus, arXiv:2507.08119).

        They stay while anything that is connected now is still to come from the class or to it.
        """
        for task in self.tasks_of.get(rank_class, ()):
            bundles = () if self.is_done(task) else self.bundles(task)
            lacking = [bundle for bundle in bundles if not self.network.locate(bundle)]
            if lacking and not self.others_first(task.id, rank_class) and not self._receives(rank_class):
                self.network.turn_ahead(lacking[0])
            if bundles:
                return

    def _connected(self, task: T) -> bool:
        """Return whether a task is still to end and has all its circuits."""
        if self.is_done(task):
            return False
        bundles = self.bundles(task)
        return bool(bundles) and all(self.network.locate(bundle) for bundle in bundles)

    def _receives(self, rank_class: int) -> bool:
        """Return whether other classes still send to a class over present circuits."""
        return any(map(self._connected, self.arriving.get(rank_class, ())))
