"""Which traffic a class's ports serve next: what they should wait for, and what they may turn to ahead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from heliograph.bundles import Bundle
from heliograph.network import Network
from heliograph.operators import Collective, Task
from heliograph.traffic import Traffic


@dataclass(frozen=True, kw_only=True)
class Foresight:
    """Communication of a step that is still to come, over present circuits or not."""

    traffic: Traffic
    """Plans of all collectives."""
    network: Network
    """The fabric during the step."""
    tasks_of: Mapping[int, list[Task]]
    """Communication tasks of each class, in their order."""
    is_done: Callable[[Task], bool]
    """Whether a task has ended."""
    later: Callable[[int], set[int]]
    """Tasks that cannot start before a task ends."""

    def others_first(self, task_id: int, rank_class: int) -> bool:
        """Return whether a class's ports still have other traffic ahead on their present circuits.

        That is traffic which is connected now and does not itself wait for the task that wants the ports.
        """
        later = self.later(task_id)
        return any(
            other.id not in later and other.id != task_id and self._connected(other)
            for other in self.tasks_of.get(rank_class, ())
        )

    def turn_ahead(self, rank_class: int) -> None:
        """Turn a class's idle ports to the traffic that comes next (Opus, arXiv:2507.08119).

        They stay while anything that is connected now is still to come from the class or to it.
        """
        for task in self.tasks_of.get(rank_class, ()):
            bundles = () if self.is_done(task) else self._bundles(task)
            lacking = [bundle for bundle in bundles if not self.network.locate(bundle)]
            if lacking and not self.others_first(task.id, rank_class) and not self._receives(rank_class):
                self.network.turn_ahead(lacking[0])
            if bundles:
                return

    def _bundles(self, task: Task) -> tuple[Bundle, ...]:
        if not isinstance(task.operator, Collective):
            return ()
        return tuple(bundle for bundle, _, _ in self.traffic.plan(task.operator, task.rank_class).parts)

    def _connected(self, task: Task) -> bool:
        """Return whether a task is still to end and has all its circuits."""
        if self.is_done(task):
            return False
        bundles = self._bundles(task)
        return bool(bundles) and all(self.network.locate(bundle) for bundle in bundles)

    def _receives(self, rank_class: int) -> bool:
        """Return whether other classes still send to a class over present circuits."""
        return any(
            isinstance(task.operator, Collective)
            and task.operator.shift
            and task.rank_class + task.operator.shift == rank_class
            and self._connected(task)
            for tasks in self.tasks_of.values()
            for task in tasks
        )
