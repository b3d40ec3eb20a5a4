"""Memories of the event loop: where each table begins, instructions, events, queues and shares of links."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, MutableSequence, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

Ints = MutableSequence[int]
"""Memory of whole numbers: a list, or an array where the loop is compiled."""
Reals = MutableSequence[float]
"""Memory of reals."""


class Op(IntEnum):
    """Instructions of a task's program; `x` is a real, `i` and `j` are whole numbers."""

    SLEEP = 0
    """Wait for x seconds."""
    MOVE = 1
    """Carry x bytes of every flow of group i over the links that others use too, once they have circuits."""
    MARK = 2
    """Remember the present instant."""
    WAITED = 3
    """Count the time since the mark, less x, as communication."""
    BEGIN = 4
    """Remember the beginning of a run of operators."""
    LATE = 5
    """Wait until x seconds after that beginning, for the host to issue, if that is still to come."""
    CHARGE = 6
    """Note that charge i is due."""
    FORK = 7
    """Start the j programs that the next j instructions name in i, and wait for all of them."""
    BESIDE = 8
    """Start the program at i, and wait for it and for x seconds, in which class j works; -1: no class."""
    END = 9
    """End the program."""
    WORK = 10
    """Let units of class i work for x seconds, and longer where collectives beside them take some."""
    PATH = 11
    """Wait x times for the latency of the way that group i has now."""
    AHEAD = 12
    """Turn idle ports to group i; j other such instructions fall due only with it."""


SLEEP, MOVE, MARK, WAITED, BEGIN, LATE, CHARGE, FORK, BESIDE, END, WORK, PATH, AHEAD = (
    int(one) for one in Op
)

RESUME, DONE, RELEASE, ENDED, WAKE, MOVED, LIT = range(7)
"""Kinds of events: an actor goes on, a task is done, a channel is free, a child has ended, bytes ended, ports
begin to move, light passes them again."""
KINDS = 8
"""An event is its kind and this many times what it is about."""
WAITING, TURN, RUNNING = range(3)
"""What an actor does: wait for tasks before its own, for its channel, or run."""
LEVELS = 2
"""Levels of a collective that work at once: inside nodes and between them."""


class At(NamedTuple):
    """Places at which tables begin: first those of whole numbers, then those of reals."""

    actors: int
    """No place: the number of actors that have tasks; their children follow them."""
    first_child: int
    """Of each actor: what travels beside its product, which its levels follow; -1 if it has none."""
    first_order: int
    """Of each such actor: its first task in `order`, and one behind the last; [actors + 1]."""
    order: int
    place: int
    """Of each actor: its place in `order`."""
    phase: int
    wait: int
    """Of each actor: its place in `after`."""
    counter: int
    """Of each actor: its next instruction."""
    again: int
    """Of each actor: how often its program still runs."""
    left: int
    """Of each actor: how much it waits for at once."""
    next_waiter: int
    """Of each actor: the next that waits for the same task, or -1."""
    program: int
    """Of each task: its first instruction."""
    times: int
    """Of each task: how often it runs."""
    channel: int
    """Of each task: the channel that it queues for, or -1."""
    takes: int
    """Of each task: class whose units it takes while it runs beside them, or -1."""
    working: int
    """Of each class: whether it is inside a work."""
    collectives: int
    """Of each class: collectives that take its units."""
    done: int
    first_waiter: int
    last_waiter: int
    next_queued: int
    """Of each task: the next actor in its channel's queue, or -1."""
    first_after: int
    """Of each task: its first place in `after`; [tasks + 1]."""
    after: int
    busy: int
    """Of each channel, as are the next two."""
    first_queued: int
    last_queued: int
    op: int
    """Of each instruction, as are the next two."""
    i: int
    j: int
    number: int
    """Of each group of flows, by which it stands in the order of transfers."""
    row: int
    """Of each group: the row of links that it loads as circuits stand."""
    first_link: int
    """Of each row: its first place in `link`; [rows + 1]."""
    link: int
    """Classes of links that rows load."""
    users: int
    """Of each class of links: transfers that load it."""
    moving: int
    """Actor of each transfer under way, in order."""
    group: int
    """Group of each, as is the next."""
    frozen: int
    heap_order: int
    heap_event: int
    queue: int
    """Events of the present instant, a ring."""
    starts: int
    """Starts of processes, a ring."""
    log: int
    """Charges in the order in which they fell due."""
    finished: int
    """Tasks in the order in which they ended."""
    ring: int
    """No place: size of a ring less one, a power of two less one."""
    lost: int
    """Whether an event found no room in a ring."""
    queue_head: int
    queue_tail: int
    starts_head: int
    starts_tail: int
    heap_size: int
    transfers: int
    logged: int
    ended: int
    sequence: int
    wake_order: int
    token: int
    over: int
    """Whether the last event has passed."""
    turns: int
    """No place: whether circuits may turn; else only `changes` of what follows is there."""
    prefetches: int
    """No place: whether idle ports turn to what comes next."""
    lanes: int
    """No place: lanes of an endpoint."""
    most_changes: int
    """No place: changes of circuits for which there is room."""
    first_need: int
    """Of each group: its first place in `need` and `landing`; [groups + 1]. Their links come first."""
    need: int
    """Endpoints whose lanes send."""
    landing: int
    """Endpoints that they have to reach."""
    first_sender: int
    """Of each group: its first place in `sender`; [groups + 1]."""
    sender: int
    """Endpoints that send, each once."""
    target: int
    """Of each of them: where its lanes turn to."""
    first_cell: int
    """Of each group: its first place in `cell`; [groups + 1]."""
    cell: int
    """Cells, sets of endpoints that send for the same groups."""
    cell_of: int
    """Of each endpoint: its cell."""
    moved_last: int
    """Of each cell: version of the circuits in which a lane of it last moved."""
    checked: int
    """Of each group: version for which it was looked up."""
    located: int
    """Of each group: whether it had circuits then."""
    promised: int
    """Of each group: whether ports stay until it has begun."""
    kept: int
    """Groups of which that is so."""
    lacking: int
    """Of each endpoint: move for which it lacked a circuit."""
    row_stamp: int
    """Of each endpoint: move that last touched it."""
    touched: int
    """Endpoints that a move touches."""
    peer: int
    """Of each lane: endpoint that it reaches, or -1, as are those up to `link_stamp`."""
    origin: int
    """Endpoint whose light it receives, or -1."""
    before: int
    """Peer before a move."""
    width: int
    """Lanes that it stands for as a link."""
    width_then: int
    """The same after a move."""
    dark: int
    """Whether it moves."""
    next_dark: int
    """Next lane of the same move, or -1."""
    change_group: int
    """Of the first lane of a move: the group that it is for."""
    change_ports: int
    """Of the same: ports that turn."""
    link_stamp: int
    """Move that last would have moved it."""
    moving_links: int
    """Lanes that a move moves."""
    waiter: int
    """Actors that wait for circuits, in order."""
    changed_group: int
    """Of each change of circuits: the group that it was for."""
    changed_ports: int
    task_class: int
    """Of each task, as are the next six: its class of ranks."""
    work: int
    """Its work."""
    here: int
    """Order in which its class needs it."""
    there: int
    """Order in which the class that waits for it does."""
    chained: int
    """Whether a collective follows it directly."""
    short: int
    """Whether it is carried too soon for ports to leave a pass for it."""
    still: int
    """Whether it communicates and has not ended."""
    first_exchange: int
    """Of each work: the number of its first collective; [works + 1]."""
    first_part: int
    """Of each collective: its first place in `part`; [collectives + 1]."""
    part: int
    """Groups with lanes that it moves, in order."""
    first_begun: int
    """Of each class: its first place in `begun`; [classes + 1]."""
    begun: int
    """Collectives of a class beside its compute."""
    first_passes: int
    """Of each class: its first place in `passes`; [classes + 1]."""
    passes: int
    """Collectives inside what it computes."""
    first_sent: int
    """Of each class: its first place in `sent`; [classes + 1]."""
    sent: int
    """Collectives by which others send to it."""
    first_mine: int
    """Of each collective: its first place in `mine`; [collectives + 1]."""
    mine: int
    """Tasks that carry it, as their class needs them."""
    next_mine: int
    """Of each collective: place in `mine` before which all have ended."""
    first_theirs: int
    """Of each collective: its first place in `theirs`; [collectives + 1]."""
    theirs: int
    """The same tasks as the class needs them that they send to."""
    next_theirs: int
    """Of each collective: place in `theirs` before which all have ended."""
    first_asked: int
    """Of each class: its first place in `asked`; [classes + 1]."""
    asked: int
    """Tasks by which a class communicates beside its compute, as they are needed."""
    next_asked: int
    """Of each class: place in `asked` before which all have ended."""
    version: int
    """How often circuits have changed."""
    stamp: int
    """How many moves were tried."""
    setting: int
    """Of each cell of parts: number of its setting, 0 as it is at first."""
    first_entry: int
    """Of each group: the entry that was learnt last, or -1."""
    next_entry: int
    """Of each entry, as are the next two: the next of its group, or -1."""
    entry_row: int
    """Row of its group as cells are set so, or -1 if they have to turn."""
    entry_moved: int
    """Row of the links that they then move, or -1."""
    first_met: int
    """Of each entry: its first place in `met` and `then`; [entries + 1]."""
    met: int
    """Settings of its group's cells."""
    then: int
    """Settings that they have to turn to."""
    stalled_group: int
    """Of each transfer whose circuits were turned away: its group."""
    stalled_actor: int
    stalled_then: int
    """Groups that stall when circuits are served."""
    stalled: int
    """How many there are."""
    slot: int
    """How many changes of parts have begun."""
    slots: int
    """No place: for how many at once there is room."""
    fault: int
    """Whether something was met that nobody has learnt; what follows is void."""
    touches: int
    moves: int
    keeping: int
    waiting: int
    changes: int
    x: int
    """Real of each instruction; from here on places in the reals."""
    busy_s: int
    """Of each instruction that is work: seconds of it in which units are busy."""
    slack_s: int
    """Of the same: seconds of it that wait for the host."""
    collective_share: int
    """Share of its rate that compute loses while a collective takes units."""
    worked_s: int
    """Of each class, as are those up to `slack_left_s`: how long its units worked before its last work."""
    work_begin_s: int
    work_end_s: int
    busy_share: int
    """Share of its last work in which units are busy."""
    settled_s: int
    """How long they had worked when what it owes was last counted."""
    owed_s: int
    """What it owes for collectives that took units."""
    slack_left_s: int
    """What its work waits for the host, in which it can catch up."""
    start_s: int
    end_s: int
    waited_s: int
    """Of each task: communication inside a run of operators that shares its links."""
    issued_s: int
    """Of each task: waiting for the host."""
    mark_s: int
    begin_s: int
    load: int
    """Of each entry of `link`."""
    alone: int
    """Of each row: rate of a flow with all links to itself."""
    latency: int
    """Of each row: its longest path's latency."""
    capacity: int
    """Of each class of links, as are the next four."""
    remaining: int
    demand: int
    slowest: int
    used: int
    bytes_left: int
    """Of each transfer, as are the next three."""
    size: int
    rate: int
    fair: int
    heap_s: int
    now: int
    clock: int
    wake_s: int
    lane_rate: int
    """Rate of one lane."""
    turn_s: int
    """Of each number of ports from 0, or of each entry: time until the last of them is lit."""
    stalled_left: int
    """Of each transfer whose circuits were turned away: bytes left."""
    stalled_size: int
    change_s: int
    """Of the first lane of a move: when it began."""
    turned_s: int
    """Of each change of circuits: when it began, and, next, when light passed again."""
    lit_s: int


class Memories:
    """Tables laid one behind the other into two memories.

    Parameters
    ----------
    whole, real : int, optional
        Sizes of what stands in the memories before them.
    """

    def __init__(self, whole: int = 0, real: int = 0) -> None:
        self.at: dict[str, int] = {}
        self._tables: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        self._sizes = [whole, real]

    def _add(self, real: bool, name: str, table: np.ndarray) -> None:
        self.at[name] = self._sizes[real]
        self._sizes[real] += table.size
        self._tables[real].append(table)

    def whole(self, name: str, values: Iterable[int]) -> None:
        """Add a table of whole numbers."""
        table = values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=np.int64)
        self._add(False, name, table)

    def real(self, name: str, values: Iterable[float]) -> None:
        """Add a table of reals."""
        self._add(True, name, np.fromiter(values, dtype=float))

    def rows(self, name: str, rows: Sequence[Sequence[int]], first: str = "") -> None:
        """Add rows of whole numbers one after another; ``first_<name>`` is where each begins, and all end."""
        self.whole(first or f"first_{name}", itertools.accumulate((len(one) for one in rows), initial=0))
        self.whole(name, itertools.chain.from_iterable(rows))

    def wholes(self, names: str, size: int, value: int = 0) -> None:
        """Add tables of whole numbers with one value everywhere, their names apart by spaces."""
        for name in names.split():
            self._add(False, name, np.full(size, value, dtype=np.int64))

    def reals(self, names: str, size: int, value: float = 0.0) -> None:
        """Add tables of reals with one value everywhere, their names apart by spaces."""
        for name in names.split():
            self._add(True, name, np.full(size, value))

    def joined(self) -> tuple[np.ndarray, np.ndarray]:
        """Return both memories."""
        whole, real = (np.concatenate(tables) for tables in self._tables)
        return whole, real


DONE_SHARE = 1e-12
"""Share of a transfer that may be left over by rounding, as in `simulator.engine.network`; dimensionless."""
TOLERANCE = 1e-12
"""Relative slack within which two shares are equal, as in `simulator.engine.network`; dimensionless."""


def push(ints: Ints, at: At, event: int) -> None:
    """Set an event for the present instant, behind those that are set already."""
    tail = ints[at.queue_tail]
    if tail - ints[at.queue_head] > at.ring:
        ints[at.lost] = 1
    ints[at.queue + (tail & at.ring)] = event
    ints[at.queue_tail] = tail + 1


def start_process(ints: Ints, at: At, actor: int) -> None:
    """Let an actor begin before any other event of the present instant."""
    tail = ints[at.starts_tail]
    ints[at.starts + (tail & at.ring)] = RESUME + KINDS * actor
    ints[at.starts_tail] = tail + 1


def push_later(ints: Ints, reals: Reals, at: At, delay_s: float, event: int) -> None:
    """Set an event for a later instant; one that is not later in double precision joins the present."""
    when = reals[at.now] + delay_s
    if when == reals[at.now]:
        push(ints, at, event)
        return
    order = ints[at.sequence]
    ints[at.sequence] = order + 1
    hole = ints[at.heap_size]
    ints[at.heap_size] = hole + 1
    while hole > 0:
        parent = (hole - 1) >> 1
        above = reals[at.heap_s + parent]
        if above < when or (above == when and ints[at.heap_order + parent] < order):
            break
        reals[at.heap_s + hole] = above
        ints[at.heap_order + hole] = ints[at.heap_order + parent]
        ints[at.heap_event + hole] = ints[at.heap_event + parent]
        hole = parent
    reals[at.heap_s + hole] = when
    ints[at.heap_order + hole] = order
    ints[at.heap_event + hole] = event


def pop_heap(ints: Ints, reals: Reals, at: At) -> int:
    """Take the earliest event off the heap and return it."""
    event = ints[at.heap_event]
    size = ints[at.heap_size] - 1
    ints[at.heap_size] = size
    when, order = reals[at.heap_s + size], ints[at.heap_order + size]
    last = ints[at.heap_event + size]
    hole = 0
    while 2 * hole + 1 < size:
        child = 2 * hole + 1
        other = child + 1
        if other < size:
            one_s, other_s = reals[at.heap_s + child], reals[at.heap_s + other]
            earlier = other_s == one_s and ints[at.heap_order + other] < ints[at.heap_order + child]
            if other_s < one_s or earlier:
                child = other
        below = reals[at.heap_s + child]
        if when < below or (when == below and order < ints[at.heap_order + child]):
            break
        reals[at.heap_s + hole] = below
        ints[at.heap_order + hole] = ints[at.heap_order + child]
        ints[at.heap_event + hole] = ints[at.heap_event + child]
        hole = child
    reals[at.heap_s + hole] = when
    ints[at.heap_order + hole] = order
    ints[at.heap_event + hole] = last
    return event


def advance(ints: Ints, reals: Reals, at: At) -> None:
    """Move all transfers on to the present instant."""
    elapsed = reals[at.now] - reals[at.clock]
    reals[at.clock] = reals[at.now]
    if elapsed > 0.0:
        for k in range(ints[at.transfers]):
            reals[at.bytes_left + k] -= reals[at.rate + k] * elapsed


def insert(ints: Ints, reals: Reals, at: At, group: int, actor: int) -> int:
    """Add a transfer behind those that were numbered before its group; return its place."""
    k = ints[at.transfers]
    ints[at.transfers] = k + 1
    mine = ints[at.number + group]
    while k > 0 and ints[at.number + ints[at.group + k - 1]] > mine:
        ints[at.group + k] = ints[at.group + k - 1]
        ints[at.moving + k] = ints[at.moving + k - 1]
        reals[at.bytes_left + k] = reals[at.bytes_left + k - 1]
        reals[at.size + k] = reals[at.size + k - 1]
        reals[at.rate + k] = reals[at.rate + k - 1]
        k -= 1
    ints[at.group + k] = group
    ints[at.moving + k] = actor
    row = ints[at.row + group]
    reals[at.rate + k] = reals[at.alone + row]
    for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
        ints[at.users + ints[at.link + p]] += 1
    return k


def row_of(ints: Ints, at: At, k: int) -> int:
    """Return the row of links of a transfer."""
    return ints[at.row + ints[at.group + k]]


def fill_shares(ints: Ints, reals: Reals, at: At) -> None:
    """Set the fair share of every transfer that is not frozen, and of each class of links its slowest."""
    count = ints[at.transfers]
    for k in range(count):
        if not ints[at.frozen + k]:
            row = row_of(ints, at, k)
            for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
                link = ints[at.link + p]
                reals[at.demand + link] = 0.0
                reals[at.used + link] = 0.0
                reals[at.slowest + link] = math.inf
    for k in range(count):
        if not ints[at.frozen + k]:
            row = row_of(ints, at, k)
            for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
                reals[at.demand + ints[at.link + p]] += reals[at.load + p]
    for k in range(count):
        if not ints[at.frozen + k]:
            row = row_of(ints, at, k)
            fair = math.inf
            for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
                link = ints[at.link + p]
                fair = min(fair, max(reals[at.remaining + link], 0.0) / reals[at.demand + link])
            reals[at.fair + k] = fair
            for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
                link = ints[at.link + p]
                reals[at.slowest + link] = min(reals[at.slowest + link], fair)


def freeze(ints: Ints, reals: Reals, at: At) -> int:
    """Freeze transfers that cross a class of links on which none is held back further; return how many."""
    count = ints[at.transfers]
    stopped = 0
    for k in range(count):
        if not ints[at.frozen + k]:
            row = row_of(ints, at, k)
            for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
                link = ints[at.link + p]
                share = max(reals[at.remaining + link], 0.0) / reals[at.demand + link]
                if share <= reals[at.slowest + link] * (1.0 + TOLERANCE):
                    ints[at.frozen + k] = 2
                    stopped += 1
                    break
    for k in range(count):
        if ints[at.frozen + k] == 2:
            reals[at.rate + k] = reals[at.fair + k]
            row = row_of(ints, at, k)
            for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
                reals[at.used + ints[at.link + p]] += reals[at.load + p] * reals[at.fair + k]
    for k in range(count):
        if ints[at.frozen + k] == 2:
            ints[at.frozen + k] = 1
            row = row_of(ints, at, k)
            for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
                link = ints[at.link + p]
                reals[at.remaining + link] -= reals[at.used + link]
                reals[at.used + link] = 0.0
    return stopped


def solve(ints: Ints, reals: Reals, at: At) -> None:
    """Set max-min fair rates of all transfers, by the rule of `simulator.engine.network.max_min_rates`."""
    going = ints[at.transfers]
    for k in range(going):
        ints[at.frozen + k] = 0
        row = row_of(ints, at, k)
        for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
            link = ints[at.link + p]
            reals[at.remaining + link] = reals[at.capacity + link]
    while going > 0:
        fill_shares(ints, reals, at)
        going -= freeze(ints, reals, at)


def set_wake(ints: Ints, reals: Reals, at: At) -> None:
    """Wake up when the first of the transfers ends; what was set before is void."""
    token = ints[at.token] + 1
    ints[at.token] = token
    reals[at.wake_s] = math.inf
    if ints[at.transfers] == 0:
        return
    soonest = math.inf
    for k in range(ints[at.transfers]):
        soonest = min(soonest, reals[at.bytes_left + k] / reals[at.rate + k])
    when = reals[at.now] + max(soonest, 0.0)
    if when == reals[at.now]:
        push(ints, at, WAKE + KINDS * token)
        return
    reals[at.wake_s] = when
    ints[at.wake_order] = ints[at.sequence]
    ints[at.sequence] += 1


def task_of(ints: Ints, at: At, actor: int) -> int:
    """Return the task that an actor, or a child of one, runs."""
    while actor >= at.actors:
        actor = ints[at.place + actor]
    return ints[at.order + ints[at.place + actor]]


EVENTS = (
    push,
    start_process,
    push_later,
    pop_heap,
    advance,
    insert,
    row_of,
    fill_shares,
    freeze,
    solve,
    set_wake,
    task_of,
)
"""The functions above, each behind those that it calls."""
