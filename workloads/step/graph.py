"""A step's tasks while they are collected."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.operators import Operator, Task

Arrival = tuple[int, int, int, bool]
"""Stage, chunk and microbatch of a pass, and whether it runs forward."""


@dataclass
class Graph:
    """Tasks collected so far, and the ids that later tasks wait for."""

    tasks: list[Task] = field(default_factory=list)
    """All tasks."""
    arrived: dict[Arrival, int] = field(default_factory=dict)
    """Task that brings the input of a pass."""
    twins: dict[int, int] = field(default_factory=dict)
    """Task by which a stage sends gradients to the stage with the same parameters."""

    def add(
        self,
        stage: int,
        operator: Operator,
        after: tuple[int, ...],
        priority: int,
        *,
        times: int = 1,
        beside: bool = False,
    ) -> int:
        """Add a task and return its id."""
        identifier = len(self.tasks)
        self.tasks.append(
            Task(
                id=identifier,
                rank_class=stage,
                operator=operator,
                after=after,
                multiplicity=times,
                priority=priority,
                beside=beside,
            )
        )
        return identifier
