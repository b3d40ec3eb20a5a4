"""What a training step, or a recorded graph of ranks, foresees of its communication."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from heliograph.bundles import Bundle
from heliograph.foresight import Foresight
from heliograph.network import Network
from heliograph.operators import Collective, StepGraph, Task
from heliograph.order import compute_orders, followers
from heliograph.rank_graph import Message, RankGraph, RankTask, Together, Work
from heliograph.traffic import Traffic


def step_foresight(
    graph: StepGraph, traffic: Traffic, network: Network, is_done: Callable[[int], bool]
) -> Foresight[Task]:
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

    def bundles(task: Task) -> tuple[Bundle, ...]:
        if not isinstance(task.operator, Collective):
            return ()
        return tuple(bundle for bundle, _, _ in traffic.plan(task.operator, task.rank_class).parts)

    return Foresight(
        network=network,
        tasks_of=tasks_of,
        arriving=sent_to,
        bundles=bundles,
        is_done=lambda task: is_done(task.id),
        followers_of=followers(graph, compute_orders(graph)),
    )


def rank_foresight(
    graph: RankGraph,
    plan_of: Callable[[int], tuple[Bundle, ...]],
    network: Network,
    node_size: int,
    is_done: Callable[[int], bool],
) -> Foresight[RankTask]:
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
    return Foresight(
        network=network,
        tasks_of=tasks_of,
        arriving=sent_to,
        bundles=lambda task: plan_of(task.id),
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
