"""Structure of a step: what of it depends on no hardware, as arrays, found once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.collectives.demand import step_demand
from simulator.engine.lookahead import compute_orders
from simulator.interfaces import Flows
from simulator.operators import (
    Collective,
    HostWork,
    Operator,
    Sequence,
    StepGraph,
    Task,
    Transfer,
)
from simulator.results.trace import SERVING, Stream


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """Work of one or several tasks of a class."""

    operator: Operator
    """The operator, of whatever microbatch."""
    rank_class: int
    """Class of ranks."""
    times: int
    """How often it runs back to back."""
    beside: bool
    """Whether it runs beside the compute of its class."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """Names of the spans of tasks; shape [tasks] each."""

    rank_class: np.ndarray
    stream: np.ndarray
    """Place in `Stream`."""
    name: np.ndarray
    """Place in `names`."""
    microbatch: np.ndarray
    peer_class: np.ndarray
    task: np.ndarray
    """Number of the task in the graph."""
    names: tuple[str, ...]
    """Names, in alphabetical order."""


class StepStructure:
    """Tasks of a step as arrays: who runs what, after what, on which channel.

    Tasks are numbered by their place in the graph. An actor is what runs tasks one after the other: each task
    that runs beside its class's compute has its own, and each class has one for its compute.

    Parameters
    ----------
    graph : StepGraph
        The step.
    """

    def __init__(self, graph: StepGraph) -> None:
        self.graph = graph
        place = {task.id: index for index, task in enumerate(graph.tasks)}
        orders = compute_orders(graph)
        computed = {task.id for tasks in orders.values() for task in tasks}
        self.actors = [[index] for index, task in enumerate(graph.tasks) if task.id not in computed]
        self.actors += [[place[task.id] for task in tasks] for tasks in orders.values()]
        self.after = [place[other] for task in graph.tasks for other in task.after]
        self.first_after = np.cumsum([0, *(len(task.after) for task in graph.tasks)]).tolist()
        self.times = [task.multiplicity for task in graph.tasks]
        self.works: list[Work] = []
        self.work_of: list[int] = []
        self.channel: list[int] = []
        self.channels = 0
        self._demand: dict[int, dict[tuple[str, int, int], Flows]] = {}
        self._number(graph.tasks, computed)

    def _number(self, tasks: tuple[Task, ...], computed: set[int]) -> None:
        """Give numbers to the distinct works and to the channels."""
        works: dict[tuple[object, ...], int] = {}
        channels: dict[tuple[int, str, int], int] = {}
        for task in tasks:
            operator = task.operator
            # What runs many times is one object mostly: hashing it each time takes longer than its events.
            what = (id(operator.items), operator.name) if isinstance(operator, Sequence) else id(operator)
            key = (what, task.rank_class, task.multiplicity, task.id in computed)
            number = works.get(key)
            if number is None:
                same = (operator.items, operator.name) if isinstance(operator, Sequence) else operator
                number = works[key] = works.setdefault((same, *key[1:]), len(self.works))
                if number == len(self.works):
                    self.works.append(
                        Work(
                            operator=operator,
                            rank_class=task.rank_class,
                            times=task.multiplicity,
                            beside=task.id not in computed,
                        )
                    )
            self.work_of.append(number)
            if task.id in computed:
                self.channel.append(-1)
                continue
            shift = operator.shift if isinstance(operator, Collective) else 0
            self.channel.append(
                channels.setdefault((task.rank_class, channel_of(operator), shift), len(channels))
            )
        self.channels = len(channels)

    def demand(self, node_size: int) -> dict[tuple[str, int, int], Flows]:
        """Return the traffic of the whole step; see `step_demand`."""
        found = self._demand.get(node_size)
        if found is None:
            found = self._demand[node_size] = step_demand(self.graph, node_size)
        return found

    @cached_property
    def labels(self) -> Labels:
        """What the spans of its tasks are called."""
        tasks, works = self.graph.tasks, self.works
        called = [
            f"{channel_of(work.operator)} {work.operator.name}" if work.beside else work.operator.name
            for work in works
        ]
        names = tuple(sorted(set(called)))
        streams = tuple(Stream)
        work_of = np.array(self.work_of, dtype=np.int64)
        shifts = [work.operator.shift if isinstance(work.operator, Collective) else 0 for work in works]
        kinds = [streams.index(stream_of(work)) for work in works]
        rank_class = np.array([work.rank_class for work in works], dtype=np.int64)
        peers = [one + shift if shift else -1 for one, shift in zip(rank_class.tolist(), shifts, strict=True)]
        return Labels(
            rank_class=rank_class[work_of],
            stream=np.array(kinds, dtype=np.int64)[work_of],
            name=np.array([names.index(one) for one in called], dtype=np.int64)[work_of],
            microbatch=np.array(
                [_microbatch(task, works[number]) for task, number in zip(tasks, self.work_of, strict=True)]
            ),
            peer_class=np.array(peers, dtype=np.int64)[work_of],
            task=np.array([task.id for task in tasks], dtype=np.int64),
            names=names,
        )


def channel_of(operator: Operator) -> str:
    """Return the name of the channel on which an operator runs beside its class's compute."""
    match operator:
        case Collective(axis=axis):
            return axis
        case Transfer(lane=lane):
            return str(lane)
        case HostWork():
            return "processors"
        case _:
            return SERVING


def stream_of(work: Work) -> Stream:
    """Return what of its class a work keeps busy."""
    if not work.beside:
        return Stream.COMPUTE
    return Stream.HOST if isinstance(work.operator, Transfer | HostWork) else Stream.NETWORK


def _microbatch(task: Task, work: Work) -> int:
    """Return the microbatch that a span names: that of a compute run."""
    return task.operator.microbatch if not work.beside and isinstance(task.operator, Sequence) else -1
