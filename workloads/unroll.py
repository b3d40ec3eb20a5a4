"""Several steps in one graph: the same step over and over, or microbatches that flow on across updates."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import replace

from heliograph.operators import BESIDE, Collective, CollectiveKind, StepGraph, Task
from workloads.architecture import TransformerConfig
from workloads.choices import Schedule
from workloads.graph import Graph
from workloads.passes import Passes
from workloads.pipeline import Pipeline
from workloads.plan import Parallelism
from workloads.schedules import Pass, Slot
from workloads.stage_run import StageRun
from workloads.versions import gradient_copies


class FlowingRun(StageRun):
    """One stage of a pipeline that is never emptied: its weights are updated while microbatches pass.

    Notes
    -----
    PipeDream updates after every microbatch, at once. Its double-buffered form sums the gradients of all
    microbatches of a step; batch *t* runs with the version before the newest, so that the update of batch *t*
    may wait until batch t + 2 enters, and the sums over data-parallel ranks hide behind a whole step.

    References
    ----------
    Narayanan et al., PipeDream, SOSP 2019 (arXiv:1806.03377), section 3.3; Memory-Efficient Pipeline-Parallel
    DNN Training, arXiv:2006.09503, section 3.1.
    """

    def __init__(
        self, config: TransformerConfig, pipeline: Pipeline, stage: int, passes: Passes, graph: Graph
    ) -> None:
        super().__init__(config, pipeline, stage, passes, graph)
        self.due: deque[dict[int, tuple[int, ...]]] = deque()
        self.summed: list[int] = []

    @property
    def late(self) -> bool:
        """Whether an update waits until the version that it makes is needed."""
        return self.plan.schedule is Schedule.PIPEDREAM_2BW

    def run(self, slot: Slot) -> None:
        """Add a slot's tasks, and the update that is due before or after it."""
        batch, place = divmod(slot.microbatch, self.plan.microbatches)
        if self.late and slot.direction is Pass.FORWARD and place == 0 and batch > 1:
            self._apply()
        super().run(slot)
        if slot.direction is Pass.BACKWARD and self._ends_version(slot.microbatch):
            self.due.append(dict(self.sums))
            self.summed.append(self.sums[slot.chunk][-1])
            if not self.late:
                self._apply()

    def _ends_version(self, microbatch: int) -> bool:
        """Return whether a microbatch's gradients are the last of an update."""
        return not self.late or (microbatch + 1) % self.plan.microbatches == 0

    def _sums(self, slot: Slot) -> bool:
        summed = self.plan.gradient_ranks > 1 and slot.direction is Pass.BACKWARD
        return summed and self._ends_version(slot.microbatch)

    def _apply(self) -> int:
        self.sums = self.due.popleft()
        return super().update()

    def update(self) -> int:
        """Add the updates that are still due when the run ends; return the last one's id, or -1."""
        done = -1
        while self.due:
            done = self._apply()
        return done

    def ends(self) -> list[int]:
        """Return the pass or the sum with which each step's gradients are complete."""
        each = 1 if self.late else self.plan.microbatches
        return self.summed[each - 1 :: each]


def flowing_ends(runs: Iterable[StageRun]) -> tuple[tuple[int, ...], ...]:
    """Return the tasks that end each step of a pipeline that is never emptied; none for others."""
    return tuple(zip(*(run.ends() for run in runs if isinstance(run, FlowingRun)), strict=True))


def unrolled(step: StepGraph, plan: Parallelism) -> StepGraph:
    """Return as many steps in a row as a plan's run holds; a single one as it is.

    Parameters
    ----------
    step : StepGraph
        One step.
    plan : Parallelism
        Its plan.

    Notes
    -----
    A stage begins a step when it has ended the one before: its own update, not that of other stages. With
    parameter servers and a delay of *d* steps it begins step *t* once the parameters after step t - 1 - d
    have been pulled, whatever is still under way; asynchronous ranks begin at once, unless the gradients of
    step t - 2 have not left yet.

    References
    ----------
    Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014, section 3.5.
    """
    count = plan.steps_in_run
    if count == 1:
        return step
    link = _Link(step, plan)
    tasks = tuple(link.placed(task, index) for index in range(count) for task in step.tasks)
    ends = tuple(tuple(link.at(task, index) for task in link.closing) for index in range(count))
    return replace(step, tasks=tasks, ends=ends, period=gradient_copies(plan))


class _Link:
    """How the tasks of one step wait for those of steps before."""

    def __init__(self, step: StepGraph, plan: Parallelism) -> None:
        self._plan = plan
        self._tasks = len(step.tasks)
        self._turns = 1 + max(task.priority for task in step.tasks)
        awaited = {other for task in step.tasks for other in task.after}
        self.closing = [task.id for task in step.tasks if task.id not in awaited]
        self._closed: defaultdict[int, list[int]] = defaultdict(list)
        self._pushed: defaultdict[int, list[int]] = defaultdict(list)
        self._pulls: set[int] = set()
        first: dict[int, Task] = {}
        for task in step.tasks:
            operator = task.operator
            if not isinstance(operator, BESIDE):
                if not task.beside:
                    first[task.rank_class] = min(
                        first.get(task.rank_class, task), task, key=lambda one: (one.priority, one.id)
                    )
            elif isinstance(operator, Collective) and operator.kind is CollectiveKind.PUSH:
                self._pushed[task.rank_class].append(task.id)
            elif isinstance(operator, Collective) and operator.kind is CollectiveKind.PULL:
                self._pulls.add(task.id)
            if task.id in self.closing:
                self._closed[task.rank_class].append(task.id)
                if isinstance(operator, Collective) and operator.shift:
                    self._closed[task.rank_class + operator.shift].append(task.id)
        self._first = {task.id for task in first.values()}

    def at(self, task: int, index: int) -> int:
        """Return the id of a task in a step of the run."""
        return task + index * self._tasks

    def placed(self, task: Task, index: int) -> Task:
        """Return a task as it stands in a step of the run."""
        after = task.after
        if self._plan.asynchronous:
            after = tuple(other for other in after if other not in self._pulls or task.id in self._pulls)
        return replace(
            task,
            id=self.at(task.id, index),
            after=(*(self.at(other, index) for other in after), *self._earlier(task, index)),
            priority=task.priority + index * self._turns,
        )

    def _earlier(self, task: Task, index: int) -> tuple[int, ...]:
        """Return the tasks of earlier steps that a task waits for."""
        plan = self._plan
        if task.id in self._first and plan.asynchronous:
            return self._of(self._pushed[task.rank_class], index - gradient_copies(plan))
        if task.id in self._pulls or (task.id in self._first and plan.waits_for_pulls):
            return self._of(self._closed[task.rank_class], index - 1 - plan.delay)
        if isinstance(task.operator, Collective) and not task.after and plan.waits_for_pulls:
            return self._of(self._closed[task.rank_class], index - 1)
        return ()

    def _of(self, tasks: list[int], index: int) -> tuple[int, ...]:
        return tuple(self.at(task, index) for task in tasks) if index >= 0 else ()
