"""Training steps as a graph of tasks (`build_step`).

Passes of two microbatches may overlap, so that exchanges of experts in one run beside the work of the other
(`_run_pair`). One graph may hold several steps: equal ones in a row (`_RepeatedStep`), or those of a pipeline
that is never emptied (`FlowingRun`).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest

from simulator.amounts import choose
from simulator.errors import WorkloadError
from simulator.layout import Axis
from simulator.operators import BESIDE, Collective, CollectiveKind, StepGraph, Task
from workloads.layers.parts import dropped_share
from workloads.layers.transformer import Item, model_flops
from workloads.models.architecture import TransformerConfig
from workloads.pipeline.schedule import Order, Pass, Slot, Updates, check_all_ran
from workloads.plan.plan import Plan
from workloads.plan.rules import check
from workloads.step.sharding import MOST_UNITS, StagePart
from workloads.step.stage import Passes, StageRun
from workloads.step.traffic import Graph

Piece = tuple[tuple[Item, ...], tuple[Collective, ...]]
"""Work without an exchange of experts, and the exchanges that follow it."""


def _is_pair(order: Sequence[Slot], index: int, overlapped: tuple[Pass, Pass] | None) -> bool:
    """Return whether a slot of a stage and the next one overlap: each computes while the other exchanges.

    Parameters
    ----------
    order : sequence of Slot
        The stage's slots.
    index : int
        Place of the first of the two.
    overlapped : tuple of Pass, optional
        Kinds of passes that overlap, in their order; None if none do.

    Notes
    -----
    With 1F1B, a backward pass and the forward pass after it, as if one more microbatch had been let in
    (Megatron-LM's 1F1B overlap of expert communication); with DualPipe, a forward pass and the backward pass
    after it, which runs the other way (DeepSeek-V3, arXiv:2412.19437, section 3.2.1).
    """
    if overlapped is None or index + 1 >= len(order):
        return False
    first, second = order[index], order[index + 1]
    same = (first.microbatch, first.chunk) == (second.microbatch, second.chunk)
    return (first.direction, second.direction) == overlapped and not same


def _cut_at_exchanges(passes: Passes, part: StagePart, direction: Pass) -> tuple[Piece, ...]:
    """Return a pass through a part cut at its exchanges of experts, block after block."""
    cut: list[Piece] = []
    work: list[Item] = []
    for operator, times in passes.in_order(part, direction):
        if not isinstance(operator, Collective) or operator.axis != Axis.EXPERT:
            work.append((operator, times))
            continue
        if work or not cut:
            cut.append((tuple(work), ()))
            work = []
        items, exchanges = cut[-1]
        cut[-1] = (items, (*exchanges, *(operator,) * times))
    if work:
        cut.append((tuple(work), ()))
    return tuple(cut)


def _run_pair(run: StageRun, first: Slot, second: Slot) -> None:
    """Add the tasks of two slots that overlap, the pieces of their passes in turns.

    Notes
    -----
    While one pass waits for an exchange, the next piece of the other one computes; a piece waits for the
    exchange before it. Passes that gather or sum parameters run one after the other as without overlap.
    """
    slots = (first, second)
    if any(run.moves_parameters(slot) for slot in slots):
        run.run(first)
        run.run(second)
        return
    waits = [run.begin(slot) for slot in slots]
    cut = [_cut_at_exchanges(run.passes, run.chunks[slot.chunk], slot.direction) for slot in slots]
    for turn in zip_longest(*cut):
        for place, piece in enumerate(turn):
            if piece is None:
                continue
            items, exchanges = piece
            if items:
                waits[place] = (run.compute(slots[place], items, waits[place]),)
            for exchange in exchanges:
                waits[place] = (run.graph.add(run.stage, exchange, waits[place], run.priority),)
    for slot, wait in zip(slots, waits, strict=True):
        run.finish(slot, wait)


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
        self, config: TransformerConfig, plan: Plan, stage: int, passes: Passes, graph: Graph
    ) -> None:
        super().__init__(config, plan, stage, passes, graph)
        self._due_updates: deque[dict[int, tuple[int, ...]]] = deque()
        """Of each update that has no task yet, the tasks that complete its gradients, by chunk."""
        self._gradients_complete: list[int] = []
        """Task that completes the gradients of each update."""

    @property
    def _double_buffered(self) -> bool:
        """Whether an update waits until the version of the weights that it makes is needed."""
        return self.plan.schedule.kind.updates is Updates.DOUBLE_BUFFERED

    def run(self, slot: Slot) -> None:
        """Add a slot's tasks, and the update that is due before or after it."""
        batch, place = divmod(slot.microbatch, self.plan.microbatches)
        if self._double_buffered and slot.direction is Pass.FORWARD and place == 0 and batch > 1:
            self._add_due_update()
        super().run(slot)
        if slot.direction is Pass.BACKWARD and self._completes_update(slot.microbatch):
            self._due_updates.append(dict(self.sums))
            self._gradients_complete.append(self.sums[slot.chunk][-1])
            if not self._double_buffered:
                self._add_due_update()

    def _completes_update(self, microbatch: int) -> bool:
        """Return whether a microbatch's gradients are the last of an update."""
        return not self._double_buffered or (microbatch + 1) % self.plan.microbatches == 0

    def _sums_gradients(self, slot: Slot) -> bool:
        several = self.plan.axes.gradient_ranks > 1
        return several and slot.direction is Pass.BACKWARD and self._completes_update(slot.microbatch)

    def _add_due_update(self) -> int:
        self.sums = self._due_updates.popleft()
        return super().update()

    def update(self) -> int:
        """Add the updates that are left when the run ends; return the last one's id, or -1 for none."""
        done = -1
        while self._due_updates:
            done = self._add_due_update()
        return done

    def ends(self) -> list[int]:
        """Return the pass or the sum with which each step's gradients are complete."""
        updates = 1 if self._double_buffered else self.plan.microbatches
        return self._gradients_complete[updates - 1 :: updates]


def _flowing_ends(runs: Iterable[StageRun]) -> tuple[tuple[int, ...], ...]:
    """Return the tasks that end each step of a pipeline that is never emptied; none for others."""
    return tuple(zip(*(run.ends() for run in runs if isinstance(run, FlowingRun)), strict=True))


def _steps_in_a_row(step: StepGraph, plan: Plan) -> StepGraph:
    """Return a graph of as many equal steps as a plan's run holds; that of a single one as it is.

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
    steps = _RepeatedStep(step, plan)
    tasks = tuple(steps.task(task, index) for index in range(count) for task in step.tasks)
    ends = tuple(tuple(steps.id_in(task, index) for task in steps.last_tasks) for index in range(count))
    return replace(step, tasks=tasks, ends=ends, period=plan.traffic.gradient_copies)


class _RepeatedStep:
    """Tasks of a step in a row of equal steps: ids, priorities, and the tasks of earlier steps they wait for.

    A rank class begins a step with its first compute task, and ends it with its last tasks: those that no
    task of the step waits for, sends to it included.
    """

    def __init__(self, step: StepGraph, plan: Plan) -> None:
        self._plan = plan
        self._tasks = len(step.tasks)
        self._priorities = 1 + max(task.priority for task in step.tasks)
        waited_for = {other for task in step.tasks for other in task.after}
        self.last_tasks = [task.id for task in step.tasks if task.id not in waited_for]
        """Tasks that end a step."""
        self._last_of_class: defaultdict[int, list[int]] = defaultdict(list)
        self._pushes_of_class: defaultdict[int, list[int]] = defaultdict(list)
        self._pulls: set[int] = set()
        first: dict[int, Task] = {}
        for task in step.tasks:
            operator = task.operator
            if not isinstance(operator, BESIDE) and not task.beside:
                earliest = first.get(task.rank_class, task)
                first[task.rank_class] = min(earliest, task, key=lambda one: (one.priority, one.id))
            if isinstance(operator, Collective) and operator.kind is CollectiveKind.PUSH:
                self._pushes_of_class[task.rank_class].append(task.id)
            if isinstance(operator, Collective) and operator.kind is CollectiveKind.PULL:
                self._pulls.add(task.id)
            if task.id not in waited_for:
                self._last_of_class[task.rank_class].append(task.id)
                if isinstance(operator, Collective) and operator.shift:
                    self._last_of_class[task.rank_class + operator.shift].append(task.id)
        self._first_tasks = {task.id for task in first.values()}

    def id_in(self, task: int, index: int) -> int:
        """Return the id of a task in the step of a number."""
        return task + index * self._tasks

    def task(self, task: Task, index: int) -> Task:
        """Return a task in the step of a number."""
        after = task.after
        if self._plan.traffic.asynchronous:
            after = tuple(other for other in after if other not in self._pulls or task.id in self._pulls)
        return replace(
            task,
            id=self.id_in(task.id, index),
            after=(*(self.id_in(other, index) for other in after), *self._earlier(task, index)),
            priority=task.priority + index * self._priorities,
        )

    def _earlier(self, task: Task, index: int) -> tuple[int, ...]:
        """Return the tasks of earlier steps that a task of the step of a number waits for."""
        traffic = self._plan.traffic
        if task.id in self._first_tasks and traffic.asynchronous:
            return self._in_step(self._pushes_of_class[task.rank_class], index - traffic.gradient_copies)
        if task.id in self._pulls or (task.id in self._first_tasks and traffic.waits_for_pulls):
            return self._in_step(self._last_of_class[task.rank_class], index - 1 - traffic.delay)
        if isinstance(task.operator, Collective) and not task.after and traffic.waits_for_pulls:
            return self._in_step(self._last_of_class[task.rank_class], index - 1)
        return ()

    def _in_step(self, tasks: list[int], index: int) -> tuple[int, ...]:
        """Return the ids of tasks in the step of a number; none before the first step."""
        return tuple(self.id_in(task, index) for task in tasks) if index >= 0 else ()


MOST_TASKS = 4_000_000
"""Tasks beyond which a step graph is refused before memory runs out; a choice."""


def task_count(config: TransformerConfig, plan: Plan, steps: int) -> int:
    """Return an estimate of the tasks in a run of some steps: a number, or an array for a plan of arrays."""
    per_pass = choose(plan.sharding.shards_parameters, 3 * MOST_UNITS, 2) * steps
    if plan.traffic.overlap_experts:
        per_pass = per_pass * 8 * -(-config.layers // (plan.axes.pp * plan.schedule.vpp))
    return per_pass * 2 * plan.axes.pp * plan.microbatches * plan.schedule.vpp


def build_step(config: TransformerConfig, plan: Plan) -> StepGraph:
    """Return one training step of a model under a plan.

    Returns
    -------
    StepGraph
        Rank class *c* is pipeline stage *c*. Every run of a microbatch through a chunk of a stage is a
        `Sequence` whose priority is its place in the schedule; sends between stages, gradient sums and
        parameter gathers are tasks of their own, so that they may overlap with compute.

    Raises
    ------
    WorkloadError
        If the plan does not fit the model, or the graph would be too large to hold.

    Notes
    -----
    With `Sharding.zero` = 1 the parameters that the step before has updated are gathered while the first
    microbatch runs forward, and gradients are reduce-scattered while the last one runs backward, both in the
    parts of `workloads.step.sharding.stage_parts`; a part's sum waits for the part before (one communication
    stream). With 2 every microbatch reduces; with 3 it also gathers, one piece ahead of compute, forward and
    (unless `Sharding.reshard` is false) backward. Plans with more than one step in a run
    (`Plan.steps_in_run`) give one graph that holds them all. Left out: the sum of a tied embedding's
    two copies between the first and the last stage, and the few bytes of the gradient norm and the loss.
    """
    check(config, plan)
    expected = task_count(config, plan, plan.steps_in_run)
    if expected > MOST_TASKS:
        of_steps = f" x {plan.steps_in_run} steps" if plan.steps_in_run > 1 else ""
        msg = (
            f"plan: {plan.axes.pp} stages x {plan.microbatches} microbatches{of_steps} make some "
            f"{expected} tasks, more than {MOST_TASKS}; use fewer stages, a larger micro_batch or a smaller "
            "global_batch"
        )
        raise WorkloadError(msg)
    passes = Passes(config, plan.share, overlap_tensor=plan.traffic.overlap_tensor)
    graph = Graph()
    kind = FlowingRun if plan.schedule.kind.flows else StageRun
    runs = [kind(config, plan, stage, passes, graph) for stage in range(plan.axes.pp)]
    overlapped = plan.schedule.kind.woven if plan.traffic.overlap_experts else None
    _run_all(runs, plan.pipeline.order(), overlapped)
    for run in runs:
        run.add_twin_sums()
    for run in runs:
        run.update()
    step = StepGraph(
        tasks=tuple(graph.tasks),
        layout=plan.layout,
        tokens=plan.batch.global_batch * plan.batch.sequence_length,
        model_flops=model_flops(config, plan.share),
        dropped_share=dropped_share(config, plan.share),
        ends=_flowing_ends(runs),
    )
    return step if plan.schedule.kind.flows else _steps_in_a_row(step, plan)


def _run_all(runs: list[StageRun], orders: Order, overlapped: tuple[Pass, Pass] | None) -> None:
    """Add the tasks of all slots: each stage in its order, a slot when its input has been sent."""
    done = [0] * len(runs)
    before: list[int] = []
    while done != before:
        before = list(done)
        for stage, run in enumerate(runs):
            while ran := _run_next(run, orders[stage], done[stage], overlapped):
                done[stage] += ran
    check_all_ran(done, orders)


def _run_next(run: StageRun, order: Sequence[Slot], index: int, overlapped: tuple[Pass, Pass] | None) -> int:
    """Add the tasks of a stage's next slot, or pair of slots; return their number, 0 where an input lacks."""
    if index == len(order) or not run.ready(order[index]):
        return 0
    if not _is_pair(order, index, overlapped):
        run.run(order[index])
        return 1
    if not run.ready(order[index + 1]):
        return 0
    _run_pair(run, order[index], order[index + 1])
    return 2
