"""Lookahead of ports: traffic that they should wait for, and traffic whose circuits they may prefetch.

It is found from the order of tasks and, in a step, from where runs of operators are cut.
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
    """Return what of an item of a sequence a unit runs, and how often."""
    match one:
        case Collective():
            return ()
        case Overlapped():
            return ((one.product, one.pieces * repeat),)
        case _:
            return ((one, repeat),)


Piece = Sequence | tuple[Collective | Overlapped, int]
"""Part of a sequence: what is computed between two collectives, or one of these, repeated so often."""


@lru_cache(maxsize=4096)
def pieces(sequence: Sequence) -> tuple[Piece, ...]:
    """Return a sequence cut at its collectives; what lies between two of them becomes a sequence."""
    found: list[Piece] = []
    travels = Collective | Overlapped
    for communicates, items in groupby(sequence.items, key=lambda item: isinstance(item[0], travels)):
        if communicates:
            found += [(one, repeat) for one, repeat in items if isinstance(one, travels)]
        else:
            found.append(replace(sequence, items=tuple(items), microbatch=-1))
    return tuple(found)


@lru_cache(maxsize=4096)
def blocks_in_order(sequence: Sequence) -> tuple[Piece, ...]:
    """Return the same with one block after the other.

    Collectives in a row that are repeated as often are those of so many equal blocks. What is computed before
    the first of them and after the last stays together, for it changes no time. The ring of context ranks,
    which has run for all blocks, turns circuits between them: it is repeated 0 times.
    """
    cut = pieces(sequence)
    ring: list[Piece] = [(one, 0) for one in sequence.ring]
    travels = [place for place, piece in enumerate(cut) if not isinstance(piece, Sequence)]
    found: list[Piece] = []
    done = 0
    for repeat, places in groupby(travels, key=lambda place: _times(cut[place])):
        first, *others = places
        end = (others or [first])[-1] + 1
        run = cut[first:end]
        inside = [one for piece in run if isinstance(piece, Sequence) for one in piece.items]
        whole = all(times % repeat == 0 for _, times in inside)
        block = [_share(piece, repeat) for piece in run] if whole else list(run)
        found += [*cut[done:first], *block, *([*ring, *block] * (repeat - 1 if whole else 0))]
        done = end
    return (*found, *cut[done:])


def _times(piece: Piece) -> int:
    return 0 if isinstance(piece, Sequence) else piece[1]


def _share(piece: Piece, blocks: int) -> Piece:
    """Return what one of several equal blocks has of a piece."""
    if isinstance(piece, Sequence):
        return replace(piece, items=tuple((one, times // blocks) for one, times in piece.items))
    return piece[0], piece[1] // blocks


def next_uneven(coming: Iterable[Piece | tuple[Operator, int]]) -> Collective | None:
    """Return the next uneven exchange of what a class is about to run; None if there is none."""
    travels = (piece[0] for piece in coming if not isinstance(piece, Sequence))
    return next((one for one in travels if isinstance(one, Collective) and one.skew is not None), None)


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
    """Return what of its class an operator keeps busy, beside compute or as compute."""
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
        The tasks; their numbers follow what waits for what.
    at_once : callable
        Whether its own class needs the task of a number when it can run: computing, and what goes to others.
        Another is needed by the first task that waits for it: a gather by the pass behind it, a sum of
        gradients by the optimizer. What nobody waits for comes last.
    queued : mapping, optional
        The task that stands before one on its channel, which has to make way for it: a sum is needed as soon
        as the gather behind it.
    """
    by_number = sorted(tasks, key=lambda task: task.id)
    never = len(by_number)
    place = {task.id: index for index, task in enumerate(by_number)}
    need = dict.fromkeys(place, never)
    own: dict[int, int] = {}
    receiver: dict[int, int] = {}
    chained: set[int] = set()
    for task in reversed(by_number):
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
    """Return the task that stands before each on its channel, by number, from tasks with their channels."""
    found: dict[int, int] = {}
    last: dict[Hashable, int] = {}
    for number, channel in sorted(channels, key=itemgetter(0)):
        if channel in last:
            found[number] = last[channel]
        last[channel] = number
    return found


T = TypeVar("T", bound=Waits)


class Lookahead(Generic[T]):
    """Communication that is still to come, over present circuits or not.

    A class is what turns its ports together: a class of a step's ranks, or a rank of a recorded graph.

    Parameters
    ----------
    network : Network
        The fabric and its clock.
    beside : mapping
        Communication tasks that each class begins beside its compute.
    passes : mapping
        Compute tasks of each class with collectives inside.
    arriving : mapping
        Communication tasks that other classes send to a class.
    flow_groups : callable
        What each collective of a task moves; nothing if circuits do not matter to it.
    is_short : callable
        Whether the task of a number is carried too soon for ports to leave a pass for it.
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
        """Return whether classes' ports still have other traffic ahead on their present circuits.

        That is traffic from or to them which is connected now, and which they need before the task that wants
        the ports; so it waits for nothing of that. What passes exchange, between which ports idle in every
        block, counts against short tasks only.
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
        """Return whether anything connected is still to come that is needed before a place in that order."""
        before = takewhile(lambda task: order_of[task.id] < order, self._coming(table, rank_class))
        return any(map(self._connected, before))

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
        """Go through the tasks of a class that have not ended as they are needed; forget those that have."""
        waiting = table.get(rank_class, [])
        while waiting and self._is_done(waiting[-1]):
            waiting.pop()
        return (task for task in reversed(waiting) if not self._is_done(task))

    def _turning(self, task: T) -> list[list[FlowGroup]]:
        """Return what each collective of a task moves over circuits."""
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
    """Collectives and flow groups of the tasks of a step, priced when somebody asks."""

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
            own = isinstance(operator, Sequence) and self._traffic.private(operator, rank_class)
            self._inside[key] = () if own else exchanges(operator)
        return self._inside[key]

    def flow_groups(self, task: Task) -> list[tuple[FlowGroup, ...]]:
        """Return what each of them moves."""
        plans = (self._traffic.plan(one, task.rank_class) for one in self.collectives(task))
        return [tuple(flow_group for flow_group, _, _ in plan.parts) for plan in plans]

    def is_short(self, number: int) -> bool:
        """Return whether a task carries one collective that is soon done."""
        if number not in self._short:
            task = self._tasks[number]
            self._short[number] = isinstance(task.operator, Collective) and (
                self._traffic.plan(task.operator, task.rank_class).carried_s * task.multiplicity
                < short_s(self._turn_s)
            )
        return self._short[number]


def step_lookahead(
    graph: StepGraph, traffic: Traffic, network: Network, is_done: Callable[[int], bool]
) -> Lookahead[Task]:
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
