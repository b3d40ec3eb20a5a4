"""Work of single ranks, as traces and task graphs of other tools record it: any groups, any pairs.

A `simulator.operators.StepGraph` is made of classes of identical ranks on a grid of axes. What others record
is made of ranks: this one computes for so long, those five sum a vector, that one sends to this one.
`simulator.engine.replay` runs it on any fabric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from simulator.errors import WorkloadError
from simulator.operators import CollectiveKind, Elementwise, MatMul, topological_order


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded(Elementwise):
    """Work whose duration was recorded; its operations and bytes say what another unit would have to do."""

    duration_s: float
    """How long it took where it was recorded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Work of every rank of a class for itself."""

    operator: MatMul | Elementwise
    """What is run on the accelerator's units."""
    host: bool = False
    """Whether the host does it, beside the accelerator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Together:
    """A collective of explicit groups of ranks, all of one size, at the same time."""

    kind: CollectiveKind
    """What is done; not a send, push or pull."""
    groups: tuple[tuple[int, ...], ...]
    """Ranks of each group, in their order on a ring; the first is the root of a broadcast or reduction."""
    payload_bytes: float
    """Bytes per rank before it, as `simulator.operators.Collective.payload_bytes`."""
    algorithm: str = ""
    """A value of `simulator.collectives.algorithms.Algorithm`; empty for the fastest."""
    two_level: bool = False
    """For an all-to-all over several nodes: whether it goes within nodes and between them in turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """Bytes from each of some ranks to one other rank each, at the same time."""

    sources: tuple[int, ...]
    """Sending ranks."""
    destinations: tuple[int, ...]
    """Receiving rank of each."""
    size_bytes: float
    """Bytes of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTask:
    """One thing that ranks do, alone or together, once other tasks are done."""

    id: int
    """Unique within the graph; of tasks that are ready at the same time the lower goes first."""
    name: str
    """What it is."""
    classes: tuple[int, ...]
    """Classes of ranks that take part; of a message first those that send."""
    operation: Work | Together | Message
    """What is done."""
    after: tuple[int, ...] = ()
    """Ids of the tasks that must have finished."""
    channel: str = ""
    """Tasks on the same channel run one at a time, in the order in which they become ready; empty: all."""
    continues: bool = False
    """Whether it goes on where a task that it waits for ended, ahead of what waits for their channel."""


@dataclass(frozen=True, kw_only=True)
class RankGraph:
    """Recorded tasks on classes of ranks that behave alike, often of one rank each.

    Raises
    ------
    WorkloadError
        If ids repeat, a dependency, class or rank is missing, groups are uneven, or there is a cycle.
    """

    name: str
    """What was recorded."""
    tasks: tuple[RankTask, ...]
    """All tasks."""
    classes: tuple[tuple[int, ...], ...]
    """Ranks of each class; every rank from 0 stands in one of them."""

    def __post_init__(self) -> None:
        every = sorted(rank for ranks in self.classes for rank in ranks)
        if not every or every != list(range(len(every))):
            msg = f"{self.name}: classes must hold every rank from 0 once; got {every[:8]}"
            raise WorkloadError(msg)
        if not self.tasks:
            msg = f"{self.name}: holds no task; is it the right file?"
            raise WorkloadError(msg)
        known = Counter(task.id for task in self.tasks)
        if len(known) != len(self.tasks):
            msg = f"{self.name}: id {known.most_common(1)[0][0]} stands for two tasks; give each its own"
            raise WorkloadError(msg)
        for task in self.tasks:
            self._check(task, known)
        topological_order(self.tasks, self.name)

    def _check(self, task: RankTask, known: Counter[int]) -> None:
        what = f"{self.name}: task {task.id} '{task.name}'"
        lost = next((other for other in task.after if other not in known), None)
        if lost is not None:
            msg = f"{what} waits for task {lost}, which does not exist"
            raise WorkloadError(msg)
        ranks: tuple[int, ...] = ()
        if isinstance(task.operation, Together):
            sizes = {len(group) for group in task.operation.groups}
            if len(sizes) != 1 or 0 in sizes:
                msg = f"{what} needs groups of one size; got sizes {sorted(sizes)}"
                raise WorkloadError(msg)
            ranks = tuple(rank for group in task.operation.groups for rank in group)
        elif isinstance(task.operation, Message):
            ranks = (*task.operation.sources, *task.operation.destinations)
            if len(task.operation.sources) != len(task.operation.destinations):
                msg = f"{what} has {len(task.operation.sources)} senders and other many receivers"
                raise WorkloadError(msg)
        outside = next((rank for rank in ranks if not 0 <= rank < self.ranks), None)
        if outside is not None or not all(0 <= one < len(self.classes) for one in task.classes):
            msg = f"{what} names rank {outside}; the graph has ranks 0 to {self.ranks - 1}"
            raise WorkloadError(msg)

    @cached_property
    def ranks(self) -> int:
        """Ranks that take part."""
        return sum(len(ranks) for ranks in self.classes)

    @cached_property
    def class_of(self) -> dict[int, int]:
        """Class of each rank."""
        return {rank: index for index, ranks in enumerate(self.classes) for rank in ranks}

    def classes_at(self, ranks: Iterable[int]) -> list[int]:
        """Return the classes of some ranks, each once and in order."""
        return sorted({self.class_of[int(rank)] for rank in ranks})

    @cached_property
    def followers(self) -> dict[int, list[int]]:
        """Tasks that wait for each task, once for each time they name it."""
        found: dict[int, list[int]] = {task.id: [] for task in self.tasks}
        for task in self.tasks:
            for other in task.after:
                found[other].append(task.id)
        return found
