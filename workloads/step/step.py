"""Training steps as a graph of tasks: pipeline stages, microbatches, gradient sums and updates.

Passes of two microbatches may be woven into one, so that one's expert exchanges run beside the other's work;
several steps may stand in one graph, repeated or with microbatches that flow on across updates.
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
"""Work without an exchange, and the exchanges that follow it."""


def paired(woven: tuple[Pass, Pass] | None, slots: Sequence[Slot], index: int) -> bool:
    """Return whether a slot of a stage and the next one are woven into one.

    Parameters
    ----------
    woven : tuple of Pass, optional
        Passes that are woven, in their order; none if no exchange is overlapped.
    slots : sequence of Slot
        The stage's slots.
    index : int
        The first of the two.

    Notes
    -----
    Of 1F1B, a backward pass with the forward pass after it, as if one more microbatch had been let in
    (Megatron-LM's 1F1B overlap of expert communication); of DualPipe, a forward pass with the backward pass
    after it, which runs the other way (DeepSeek-V3, arXiv:2412.19437, section 3.2.1).
    """
    if woven is None or index + 1 >= len(slots):
        return False
    first, second = slots[index], slots[index + 1]
    same = (first.microbatch, first.chunk) == (second.microbatch, second.chunk)
    return (first.direction, second.direction) == woven and not same


def pieces(passes: Passes, part: StagePart, direction: Pass) -> tuple[Piece, ...]:
    """Return a pass through a part cut at its expert exchanges, block after block."""
    found: list[Piece] = []
    work: list[Item] = []
    for operator, times in passes.one_by_one(part, direction):
        if not isinstance(operator, Collective) or operator.axis != Axis.EXPERT:
            work.append((operator, times))
            continue
        if work or not found:
            found.append((tuple(work), ()))
            work = []
        items, exchanges = found[-1]
        found[-1] = (items, (*exchanges, *(operator,) * times))
    if work:
        found.append((tuple(work), ()))
    return tuple(found)


def run_pair(run: StageRun, first: Slot, second: Slot) -> None:
    """Add two slots' tasks, the pieces of their passes by turns.

    Notes
    -----
    While one pass waits for an exchange, the other one's next piece computes; a piece waits for the exchange
    before it. Passes that gather or sum parameters run one after the other as ever.
    """
    if any(run.moves_parameters(slot) for slot in (first, second)):
        run.run(first)
        run.run(second)
        return
    slots = (first, second)
    waits = [run.begin(slot) for slot in slots]
    cut = [pieces(run.passes, run.chunks[slot.chunk], slot.direction) for slot in slots]
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
        self.due: deque[dict[int, tuple[int, ...]]] = deque()
        self.summed: list[int] = []

    @property
    def late(self) -> bool:
        """Whether an update waits until the version that it makes is needed."""
        return self.plan.schedule.kind.updates is Updates.DOUBLE_BUFFERED

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
        summed = self.plan.axes.gradient_ranks > 1 and slot.direction is Pass.BACKWARD
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


def unrolled(step: StepGraph, plan: Plan) -> StepGraph:
    """Return as many steps in a row as a plan's run holds; a single one as it is.

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
    return replace(step, tasks=tasks, ends=ends, period=plan.traffic.gradient_copies)


class _Link:
    """Dependences of the tasks of one step on those of steps before."""

    def __init__(self, step: StepGraph, plan: Plan) -> None:
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
        if self._plan.traffic.asynchronous:
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
        if task.id in self._first and plan.traffic.asynchronous:
            return self._of(self._pushed[task.rank_class], index - plan.traffic.gradient_copies)
        if task.id in self._pulls or (task.id in self._first and plan.traffic.waits_for_pulls):
            return self._of(self._closed[task.rank_class], index - 1 - plan.traffic.delay)
        if isinstance(task.operator, Collective) and not task.after and plan.traffic.waits_for_pulls:
            return self._of(self._closed[task.rank_class], index - 1)
        return ()

    def _of(self, tasks: list[int], index: int) -> tuple[int, ...]:
        return tuple(self.at(task, index) for task in tasks) if index >= 0 else ()


MOST_TASKS = 4_000_000
"""Tasks beyond which a step graph is refused before memory runs out; a choice."""


def task_count(config: TransformerConfig, plan: Plan, steps: int) -> int:
    """Return about how many tasks a run of so many steps has; of a plan whose counts are arrays, an array."""
    pieces = choose(plan.sharding.shards_parameters, 3 * MOST_UNITS, 2) * steps
    if plan.traffic.overlap_experts:
        pieces = pieces * 8 * -(-config.layers // (plan.axes.pp * plan.schedule.vpp))
    return pieces * 2 * plan.axes.pp * plan.microbatches * plan.schedule.vpp


def build_step(config: TransformerConfig, plan: Plan) -> StepGraph:
    """Return one training step of a model under a plan.

    Returns
    -------
    StepGraph
        Class *c* is pipeline stage *c*. Every run of a microbatch through a chunk of a stage is a `Sequence`
        whose priority is its place in the schedule; sends between stages, gradient sums and parameter gathers
        are tasks of their own, so that they may overlap with compute. `model_flops` is that of `model_flops`.

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
    woven = plan.schedule.kind.woven if plan.traffic.overlap_experts else None
    _interleave(runs, plan.pipeline.order(), woven)
    for run in runs:
        run.exchange()
    for run in runs:
        run.update()
    step = StepGraph(
        tasks=tuple(graph.tasks),
        layout=plan.layout,
        tokens=plan.batch.global_batch * plan.batch.sequence_length,
        model_flops=model_flops(config, plan.share),
        dropped_share=dropped_share(config, plan.share),
        ends=flowing_ends(runs),
    )
    return step if plan.schedule.kind.flows else unrolled(step, plan)


def _interleave(runs: list[StageRun], orders: Order, woven: tuple[Pass, Pass] | None) -> None:
    """Run every stage's slots, each as soon as what it waits for has been sent."""
    done = [0] * len(runs)
    moved = True
    while moved:
        moved = False
        for stage, run in enumerate(runs):
            order = orders[stage]
            while done[stage] < len(order) and run.ready(order[done[stage]]):
                slot = order[done[stage]]
                if not paired(woven, order, done[stage]):
                    run.run(slot)
                    done[stage] += 1
                elif run.ready(order[done[stage] + 1]):
                    run_pair(run, slot, order[done[stage] + 1])
                    done[stage] += 2
                else:
                    break
                moved = True
    check_all_ran(done, orders)
