"""Lookahead of ports: traffic for which they stay where they are, and traffic to which they turn ahead.

`need_order` says which task is needed before which, `Lookahead` applies it to the ports of a network while
tasks run. Beside them stands how the operators of a step are cut and queued, which the engine on simpy and
the one in arrays share.
"""

from __future__ import annotations

from collections import abc, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, groupby, takewhile
from operator import itemgetter
from types import MappingProxyType
from typing import Generic, TypeVar

from simulator.collectives.flow_groups import FlowGroup
from simulator.collectives.traffic import Traffic
from simulator.engine.network import Network
from simulator.operators import (
    BESIDE,
    Collective,
    Elementwise,
    HostWork,
    MatMul,
    Operator,
    Overlapped,
    Sequence,
    StepGraph,
    Task,
    Transfer,
    Waits,
    communications,
)
from simulator.results import SERVING, Stream


def computed(
    one: MatMul | Elementwise | Collective | Overlapped, repeat: int
) -> tuple[tuple[MatMul | Elementwise, int], ...]:
    """Return the operators of a sequence's item that run on a unit, each with its number of runs."""
    match one:
        case Collective():
            return ()
        case Overlapped():
            return ((one.product, one.pieces * repeat),)
        case _:
            return ((one, repeat),)


Piece = Sequence | tuple[Collective | Overlapped, int]
"""Part of a sequence: the operators between two collectives, or a collective with its number of runs."""


@lru_cache(maxsize=4096)
def pieces(sequence: Sequence) -> tuple[Piece, ...]:
    """Return a sequence cut at its collectives; the operators between two of them become a sequence."""
    found: list[Piece] = []
    communicating = Collective | Overlapped
    for communicates, items in groupby(sequence.items, key=lambda item: isinstance(item[0], communicating)):
        if communicates:
            found += [(one, repeat) for one, repeat in items if isinstance(one, communicating)]
        else:
            found.append(replace(sequence, items=tuple(items), microbatch=-1))
    return tuple(found)


@lru_cache(maxsize=4096)
def blocks_in_order(sequence: Sequence) -> tuple[Piece, ...]:
    """Return a sequence cut at its collectives, written out block after block.

    Notes
    -----
    A sequence of b equal blocks holds every operator once, to run b times. Neighbouring collectives with the
    same number of runs b are those of b blocks; they and the operators between them are written out b times,
    once each. Operators before the first and behind the last collective stay together, for that changes no
    time, and so do blocks with an operator whose runs b does not divide. The ring of context ranks, which has
    run for all blocks by then, turns circuits between them: it is repeated 0 times.
    """
    cut = pieces(sequence)
    ring: list[Piece] = [(collective, 0) for collective in sequence.ring]
    communicating = [place for place, piece in enumerate(cut) if not isinstance(piece, Sequence)]
    found: list[Piece] = []
    end = 0
    for blocks, places in groupby(communicating, key=lambda place: _runs(cut[place])):
        first, *others = places
        found += cut[end:first]
        end = (others or [first])[-1] + 1
        run = cut[first:end]
        operators = [item for piece in run if isinstance(piece, Sequence) for item in piece.items]
        if any(times % blocks for _, times in operators):
            found += run
            continue
        block = [_in_one_block(piece, blocks) for piece in run]
        found += [*block, *([*ring, *block] * (blocks - 1))]
    return (*found, *cut[end:])


def _runs(piece: Piece) -> int:
    """Return the number of runs of a collective."""
    return 0 if isinstance(piece, Sequence) else piece[1]


def _in_one_block(piece: Piece, blocks: int) -> Piece:
    """Return the part of a piece that runs in one of several equal blocks."""
    if isinstance(piece, Sequence):
        return replace(piece, items=tuple((one, times // blocks) for one, times in piece.items))
    return piece[0], piece[1] // blocks


def next_uneven(coming: Iterable[Piece | tuple[Operator, int]]) -> Collective | None:
    """Return the first uneven exchange among pieces that a class is about to run; None if there is none."""
    operators = (piece[0] for piece in coming if not isinstance(piece, Sequence))
    return next((one for one in operators if isinstance(one, Collective) and one.skew is not None), None)


def exchanges(operator: Operator) -> tuple[Collective, ...]:
    """Return the collectives of an operator, each once."""
    return tuple(dict.fromkeys(one for one, _ in communications(operator)))


SHORT = 0.5
"""Time of a transfer over that of a turn, below which ports do not leave a pass's exchanges for it.

A turn away and back costs two, less what compute hides; waiting costs no more than the transfer. A half is
best of 1/4, 1/2, 1 and 2 on 60 plans of four models drawn at random, switches of 0.1 to 100 ms.
"""


def short_s(turn_s: float) -> float:
    """Return the time of a transfer below which ports do not leave a pass's exchanges for it."""
    return SHORT * turn_s


def compute_orders(graph: StepGraph) -> dict[int, list[Task]]:
    """Return the compute tasks of each class in the order in which it runs them."""
    orders: dict[int, list[Task]] = {}
    for task in graph.tasks:
        if not isinstance(task.operator, BESIDE) and not task.beside:
            orders.setdefault(task.rank_class, []).append(task)
    for tasks in orders.values():
        tasks.sort(key=lambda task: (task.priority, task.id))
    return orders


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


def stream_of(operator: Operator, *, beside: bool) -> Stream:
    """Return the stream of its class that an operator occupies: compute, or network or host beside it."""
    if not beside:
        return Stream.COMPUTE
    return Stream.HOST if isinstance(operator, Transfer | HostWork) else Stream.NETWORK


@dataclass(frozen=True, kw_only=True)
class NeedOrder:
    """Order in which tasks are needed, as a number for each task's id; lower numbers are needed first."""

    own: Mapping[int, int]
    """Place in the order of the class that runs it."""
    receiver: Mapping[int, int]
    """Place in the order of the class that waits for it, the receiver of a send."""
    chained: frozenset[int]
    """Tasks that another collective of their class follows directly."""


def need_order(
    tasks: Iterable[Waits], at_once: Callable[[int], bool], queued: Mapping[int, int] = MappingProxyType({})
) -> NeedOrder:
    """Return the order in which tasks are needed.

    Parameters
    ----------
    tasks : iterable
        The tasks; each has a higher id than those that it waits for.
    at_once : callable
        Whether the task of an id is needed by its own class as soon as it can run: compute, and sends.
    queued : mapping, optional
        Task that stands before each on its channel, by ids, and has to make way for it: a sum is needed as
        soon as the gather behind it.

    Notes
    -----
    A task is needed at the place (by id) of the first task that waits for it, directly or not, and is needed
    at once: a gather by the pass behind it, a sum of gradients by the optimizer. A task for which nobody
    waits comes last. Tasks that are needed at one place go by their ids. Going through the tasks from the
    last to the first, the need of each is known before those that it waits for.
    """
    by_id = sorted(tasks, key=lambda task: task.id)
    never = len(by_id)
    place = {task.id: index for index, task in enumerate(by_id)}
    need = dict.fromkeys(place, never)
    own: dict[int, int] = {}
    receiver: dict[int, int] = {}
    chained: set[int] = set()
    for task in reversed(by_id):
        receiver[task.id] = need[task.id] * (never + 1) + place[task.id]
        if at_once(task.id):
            need[task.id] = place[task.id]
        else:
            chained.update(task.after)
        own[task.id] = need[task.id] * (never + 1) + place[task.id]
        for other in (*task.after, *((queued[task.id],) if task.id in queued else ())):
            need[other] = min(need[other], need[task.id])
    return NeedOrder(own=own, receiver=receiver, chained=frozenset(chained))


def step_need_order(graph: StepGraph) -> NeedOrder:
    """Return the order in which the tasks of a step are needed."""
    at_once = {
        task.id
        for task in graph.tasks
        if not isinstance(task.operator, BESIDE)
        or (isinstance(task.operator, Collective) and task.operator.shift)
    }
    channels = (
        (task.id, (task.rank_class, task.operator.axis))
        for task in graph.tasks
        if isinstance(task.operator, Collective) and not task.operator.shift
    )
    return need_order(graph.tasks, at_once.__contains__, queued_before(channels))


def queued_before(channels: Iterable[tuple[int, Hashable]]) -> dict[int, int]:
    """Return the task that stands before each on its channel, by id, from pairs of ids and channels."""
    found: dict[int, int] = {}
    last: dict[Hashable, int] = {}
    for task_id, channel in sorted(channels, key=itemgetter(0)):
        if channel in last:
            found[task_id] = last[channel]
        last[channel] = task_id
    return found


T = TypeVar("T", bound=Waits)


class Lookahead(Generic[T]):
    """Communication of each class that is still to come, by which its ports stay or turn.

    A class turns its ports together: it is a class of a step's ranks, or a single rank of a recorded graph.

    Parameters
    ----------
    network : Network
        The fabric and its clock.
    beside : mapping
        Communication tasks that each class begins beside its compute.
    passes : mapping
        Compute tasks of each class that have collectives inside.
    arriving : mapping
        Communication tasks by which other classes send to each class.
    flow_groups : callable
        Gives the flow groups of each collective of a task; none if it may not share links with others.
    is_short : callable
        Whether the task of an id takes so little time that ports do not leave a pass's exchanges for it.
    is_done : callable
        Whether a task has ended.
    order : NeedOrder
        Order in which tasks are needed.
    """

    def __init__(
        self,
        *,
        network: Network,
        beside: Mapping[int, abc.Sequence[T]],
        passes: Mapping[int, abc.Sequence[T]],
        arriving: Mapping[int, abc.Sequence[T]],
        flow_groups: Callable[[T], abc.Sequence[tuple[FlowGroup, ...]]],
        is_short: Callable[[int], bool],
        is_done: Callable[[T], bool],
        order: NeedOrder,
    ) -> None:
        self._network = network
        self._flow_groups = flow_groups
        self._is_short = is_short
        self._is_done = is_done
        self._order = order
        self._turns: dict[FlowGroup, bool] = {}
        self._beside = _last_first(beside, order.own)
        self._passes = _last_first(passes, order.own)
        self._sent = _last_first(arriving, order.receiver)

    def others_first(self, task_id: int, *classes: int) -> bool:
        """Return whether classes still need their present circuits before a task that would turn their ports.

        They do if traffic from or to them is connected now and needed before the task. Exchanges inside
        passes, between which ports idle in every block, count against short tasks only.
        """
        own, receiver = self._order.own, self._order.receiver
        tables = [(self._beside, own), (self._sent, receiver)]
        if self._is_short(task_id):
            tables.append((self._passes, own))
        return any(
            self._any_before(table, order_of, one, own[task_id])
            for one in classes
            for table, order_of in tables
        )

    def _any_before(
        self, table: dict[int, list[T]], order_of: Mapping[int, int], rank_class: int, order: int
    ) -> bool:
        """Return whether a task of a class is connected that has not ended and is needed before a place."""
        needed = takewhile(lambda task: order_of[task.id] < order, self._coming(table, rank_class))
        return any(map(self._connected, needed))

    def prefetch(self, rank_class: int, ended: int) -> None:
        """Turn a class's idle ports to the traffic that is needed next (Opus, arXiv:2507.08119).

        They stay while anything that is connected now is still to come from the class or to it, and where a
        collective follows the one that has ended.
        """
        if ended in self._order.chained:
            return
        for task in self._coming(self._beside, rank_class):
            flow_groups = list(chain.from_iterable(self._turning(task)))
            lacking = [flow_group for flow_group in flow_groups if not self._network.locate(flow_group)]
            if lacking and not self.others_first(task.id, rank_class) and not self._receives(rank_class):
                self._network.prefetch(lacking[0])
            if flow_groups:
                return

    def _coming(self, table: dict[int, list[T]], rank_class: int) -> Iterator[T]:
        """Yield the tasks of a class that have not ended, as they are needed; forget those that have."""
        waiting = table.get(rank_class, [])
        while waiting and self._is_done(waiting[-1]):
            waiting.pop()
        return (task for task in reversed(waiting) if not self._is_done(task))

    def _turning(self, task: T) -> list[list[FlowGroup]]:
        """Return the flow groups of each collective of a task that go over circuits."""
        found = []
        for flow_groups in self._flow_groups(task):
            for flow_group in flow_groups:
                if flow_group not in self._turns:
                    self._turns[flow_group] = self._network.fabric.turns_for(flow_group.flows)
            found.append([flow_group for flow_group in flow_groups if self._turns[flow_group]])
        return found

    def _connected(self, task: T) -> bool:
        """Return whether a collective of a task takes circuits, and has all of them."""
        return any(one and all(map(self._network.locate, one)) for one in self._turning(task))

    def _receives(self, rank_class: int) -> bool:
        """Return whether other classes still send to a class over present circuits."""
        return any(map(self._connected, self._coming(self._sent, rank_class)))


def _last_first(table: Mapping[int, abc.Sequence[T]], order_of: Mapping[int, int]) -> dict[int, list[T]]:
    """Return tasks by class in the reverse of the order in which they are needed."""
    return {one: sorted(tasks, key=lambda task: -order_of[task.id]) for one, tasks in table.items()}


class _StepTraffic:
    """Collectives of a step's tasks and their flow groups, priced when they are asked for."""

    def __init__(self, graph: StepGraph, traffic: Traffic, turn_s: float) -> None:
        self._tasks = {task.id: task for task in graph.tasks}
        self._traffic = traffic
        self._turn_s = turn_s
        self._inside: dict[tuple[int, int], tuple[Collective, ...]] = {}
        self._short: dict[int, bool] = {}

    def collectives(self, task: Task) -> tuple[Collective, ...]:
        """Return the collectives of a task that may share links with others."""
        operator, rank_class = task.operator, task.rank_class
        if isinstance(operator, Collective):
            return (operator,)
        if task.beside:
            return ()
        key = id(operator.items) if isinstance(operator, Sequence) else id(operator), rank_class
        if key not in self._inside:  # passes of many microbatches share their items
            private = isinstance(operator, Sequence) and self._traffic.private(operator, rank_class)
            self._inside[key] = () if private else exchanges(operator)
        return self._inside[key]

    def flow_groups(self, task: Task) -> list[tuple[FlowGroup, ...]]:
        """Return the flow groups of each collective of a task that may share links with others."""
        every = self.collectives(task)
        return [self._traffic.plan(collective, task.rank_class).flow_groups for collective in every]

    def is_short(self, task_id: int) -> bool:
        """Return whether a task is a collective, too short for ports to leave a pass's exchanges for it."""
        if task_id not in self._short:
            task = self._tasks[task_id]
            self._short[task_id] = isinstance(task.operator, Collective) and (
                self._traffic.plan(task.operator, task.rank_class).carried_s * task.multiplicity
                < short_s(self._turn_s)
            )
        return self._short[task_id]


def step_lookahead(
    graph: StepGraph, traffic: Traffic, network: Network, is_done: Callable[[int], bool]
) -> Lookahead[Task]:
    """Return the lookahead over what a step's classes of ranks still have to communicate.

    Parameters
    ----------
    graph : StepGraph
        The step.
    traffic : Traffic
        Plans of all its collectives.
    network : Network
        The fabric during the step.
    is_done : callable
        Whether the task of an id has ended.
    """
    carried = _StepTraffic(graph, traffic, network.fabric.traits.reconfiguration_s)
    beside: defaultdict[int, list[Task]] = defaultdict(list)
    sent_to: defaultdict[int, list[Task]] = defaultdict(list)
    passes: defaultdict[int, list[Task]] = defaultdict(list)
    for task in graph.tasks:
        if isinstance(task.operator, Collective):
            beside[task.rank_class].append(task)
            if task.operator.shift:
                sent_to[task.rank_class + task.operator.shift].append(task)
        elif carried.collectives(task):
            passes[task.rank_class].append(task)
    return Lookahead(
        network=network,
        beside=beside,
        passes=passes,
        arriving=sent_to,
        flow_groups=carried.flow_groups,
        is_short=carried.is_short,
        is_done=lambda task: is_done(task.id),
        order=step_need_order(graph),
    )
