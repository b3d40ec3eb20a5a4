"""Memories of the event loop: where each table begins, instructions, events, queues and shares of links.

``ints[at.busy + channel]`` is the entry of a channel in the table `busy` of the memory of whole numbers,
``reals[at.rate + k]`` that of transfer k in the table `rate` of reals; ``ints[at.transfers]`` is a single
number. Rows of unequal length stand one behind the other, the rows of ``x`` from ``first_x`` on. Numbered are

- actors, which run tasks one after the other, and their children, parts of a task that go on beside it;
- tasks by their place in the graph, works (what equal tasks have in common) and classes of identical ranks;
- channels, for which tasks beside compute queue; instructions, of which a counter names one;
- groups of flows, rows of links that they load, links (classes of alike ones; lanes, if any, come first);
- transfers under way, by their present place in the order of their groups;
- exchanges, collectives of a work that may share links;
- where circuits turn: endpoints and their lanes, cells (circuits that turn together), entries (what is known
  of a group as its cells are set), moves under way, and changes that have ended.

In loops k counts what stands in a list (transfers, groups that are kept, actors that wait), p are places in
rows, and q places of senders.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from simulator.engine.network import TOLERANCE

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
    """Places at which tables begin, first those of whole numbers, then those of reals.

    There are many, so each has one line. Its end is the table's shape, by what it has an entry for; without
    one it is a single number. Fields that are no places but numbers themselves say so.
    """

    actors: int  # No place: the number of actors that have tasks; their children follow them.
    first_child: int  # Child beside a product, which its levels follow, or -1; [actors].
    first_order: int  # First place in `order`; [actors with tasks + 1].
    order: int  # Tasks of each actor, as it runs them.
    place: int  # Present place in `order`; of a child the actor that it belongs to; [actors].
    phase: int  # `WAITING`, `TURN` or `RUNNING`; [actors].
    wait: int  # Place in `after` of the task that is waited for; [actors].
    counter: int  # Next instruction; [actors].
    again: int  # Runs of the program that are left; [actors].
    left: int  # Children and times that are waited for at once; [actors].
    next_waiter: int  # Next actor that waits for the same task, or -1; [actors with tasks].
    next_queued: int  # Next actor in the queue of the same channel, or -1; [actors with tasks].
    program: int  # First instruction; [tasks].
    times: int  # Runs of the program; [tasks].
    channel: int  # Channel that it queues for, or -1; [tasks].
    takes: int  # Class whose units it takes while it runs beside them, or -1; [tasks].
    done: int  # Whether it has ended; [tasks].
    first_waiter: int  # First actor that waits for it, or -1; [tasks].
    last_waiter: int  # Last actor that waits for it; [tasks].
    first_after: int  # First place in `after`; [tasks + 1].
    after: int  # Tasks that each task waits for.
    working: int  # Whether it is inside a work; [classes].
    collectives: int  # Collectives that take its units; [classes].
    busy: int  # Whether a task has it; [channels].
    first_queued: int  # First actor in its queue, or -1; [channels].
    last_queued: int  # Last actor in its queue; [channels].
    op: int  # Kind, of `Op`; [instructions].
    i: int  # First whole number; [instructions].
    j: int  # Second whole number; [instructions].
    number: int  # Number by which it stands in the order of transfers; [groups].
    row: int  # Row of links that it loads as circuits stand; [groups].
    first_link: int  # First place in `link`; [rows + 1].
    link: int  # Links that each row loads.
    users: int  # Transfers that load it; [links].
    moving: int  # Actor that waits for it; [transfers].
    group: int  # Its group; [transfers].
    frozen: int  # Whether its rate is found: 0 no, 2 now, 1 before; [transfers]. Also room for ended groups.
    heap_order: int  # Number of each later event, by which those of one instant go; a heap.
    heap_event: int  # The events themselves.
    queue: int  # Events of the present instant; a ring.
    starts: int  # Starts of processes and of moves, which go first; a ring.
    log: int  # Charges in the order in which they fell due.
    finished: int  # Tasks in the order in which they ended.
    ring: int  # No place: size of a ring less one, a power of two less one.
    lost: int  # Whether an event found no room in a ring.
    queue_head: int  # Events that were taken from `queue`.
    queue_tail: int  # Events that were put there.
    starts_head: int  # Events that were taken from `starts`.
    starts_tail: int  # Events that were put there.
    heap_size: int  # Events on the heap.
    transfers: int  # Transfers under way.
    logged: int  # Charges in `log`.
    ended: int  # Tasks in `finished`.
    sequence: int  # Events that were set for a later instant so far.
    wake_order: int  # Number among them of the present wake-up.
    token: int  # Number of the present wake-up; others are void.
    over: int  # Whether the last event has passed.
    turns: int  # No place: whether circuits may turn; else only `changes` and `fault` of what follows matter.
    prefetches: int  # No place: whether idle ports turn to what comes next.
    lanes: int  # No place: lanes of an endpoint; 0 where circuits turn part by part.
    most_changes: int  # No place: changes of circuits for which there is room.
    first_need: int  # First place in `need` and `landing`, links that come first in its row; [groups + 1].
    need: int  # Endpoints whose lanes each group needs.
    landing: int  # Endpoints that these lanes have to reach.
    first_sender: int  # First place in `sender`; [groups + 1].
    sender: int  # Endpoints that send for each group, each once.
    target: int  # Endpoints to which their lanes turn, or -1; [senders, lanes].
    first_cell: int  # First place in `cell`; [groups + 1].
    cell: int  # Cells of each group.
    cell_of: int  # Its cell; [endpoints].
    moved_last: int  # Version of the circuits in which a lane or a part of it last moved; [cells].
    checked: int  # Version for which it was looked up; [groups].
    located: int  # Whether it had circuits then; [groups].
    promised: int  # Whether ports stay until it has begun; [groups].
    kept: int  # Groups of which that is so, `keeping` of them.
    lacking: int  # Move for which it lacked a circuit; [endpoints].
    row_stamp: int  # Move that last touched its lanes; [endpoints].
    touched: int  # Endpoints that the present move touches, `touches` of them.
    peer: int  # Endpoint that it reaches, or -1; [lanes of all endpoints].
    origin: int  # Endpoint whose light it receives, or -1; [lanes of all endpoints].
    before: int  # Peer before the present move; [lanes of all endpoints].
    width: int  # Lanes that it stands for as a link; [lanes of all endpoints].
    width_then: int  # The same after the present move; [lanes of all endpoints].
    dark: int  # Moves that have it now; [links].
    next_dark: int  # Next lane of the same move, or -1; [lanes of all endpoints].
    change_group: int  # Group that it is for; [moves under way, by their first lane or their slot].
    change_ports: int  # Ports that turn, or the entry that says how; [moves under way].
    link_stamp: int  # Move that last would have moved it; [links].
    moving_links: int  # Lanes that the present move moves, `moves` of them.
    waiter: int  # Actors that wait for circuits, in order, `waiting` of them.
    changed_group: int  # Group that it was for; [changes].
    changed_ports: int  # Ports that turned, or the entry that says how; [changes].
    task_class: int  # Its class of ranks; [tasks].
    work: int  # Its work; [tasks].
    here: int  # Order in which its class needs it; [tasks].
    there: int  # Order in which the class needs it that waits for it; [tasks].
    chained: int  # Whether a collective of its class follows it directly; [tasks].
    short: int  # Whether it is carried too soon for ports to leave a pass for it; [tasks].
    still: int  # Whether it communicates and has not ended; [tasks].
    first_exchange: int  # First of its exchanges; [works + 1].
    first_part: int  # First place in `part`; [exchanges + 1].
    part: int  # Groups over circuits that each exchange moves, in order.
    first_begun: int  # First place in `begun`; [classes + 1].
    begun: int  # Exchanges of each class beside its compute.
    first_passes: int  # First place in `passes`; [classes + 1].
    passes: int  # Exchanges inside what each class computes.
    first_sent: int  # First place in `sent`; [classes + 1].
    sent: int  # Exchanges by which others send to each class.
    first_mine: int  # First place in `mine`; [exchanges + 1].
    mine: int  # Tasks that carry each exchange, as their class needs them.
    next_mine: int  # Place in `mine` before which all have ended; [exchanges].
    first_theirs: int  # First place in `theirs`; [exchanges + 1].
    theirs: int  # The same tasks, as the class needs them that they send to.
    next_theirs: int  # Place in `theirs` before which all have ended; [exchanges].
    first_asked: int  # First place in `asked`; [classes + 1].
    asked: int  # Tasks by which each class communicates beside its compute, as they are needed.
    next_asked: int  # Place in `asked` before which all have ended; [classes].
    version: int  # Changes of circuits that have begun.
    stamp: int  # Moves that were tried.
    setting: int  # Number of its setting, 0 as it is at first; [cells of parts].
    first_entry: int  # Entry that was learnt last, or -1; [groups].
    next_entry: int  # Next entry of the same group, or -1; [entries].
    entry_row: int  # Row that its group loads as cells are set so, or -1 if they have to turn; [entries].
    entry_moved: int  # Row of the links that then move, or -1; [entries].
    first_met: int  # First place in `met` and `then`; [entries + 1].
    met: int  # Settings of its group's cells of which each entry tells.
    then: int  # Settings that these cells have to turn to.
    stalled_group: int  # Group of each transfer whose circuits were turned away, `stalled` of them.
    stalled_actor: int  # Actor that waits for each of them.
    stalled_then: int  # Groups that were stalled when circuits began to be served.
    stalled: int  # Transfers whose circuits were turned away.
    slot: int  # Moves of parts that have begun.
    slots: int  # No place: moves of parts for which there is room at once.
    fault: int  # Whether something was met that nobody has learnt; what follows is void.
    touches: int  # Endpoints in `touched`.
    moves: int  # Lanes in `moving_links`.
    keeping: int  # Groups in `kept`.
    waiting: int  # Actors in `waiter`.
    changes: int  # Changes of circuits that ended and are still to be handed out.
    x: int  # Its real; [instructions]. From here on places in the reals.
    busy_s: int  # Seconds of a work in which units are busy; [instructions].
    slack_s: int  # Seconds of a work that wait for the host; [instructions].
    collective_share: int  # Share of its rate that compute loses while a collective takes units.
    worked_s: int  # Seconds that its units worked before its last work; [classes].
    work_begin_s: int  # Begin of its last work; [classes].
    work_end_s: int  # End of its last work; [classes].
    busy_share: int  # Share of its last work in which units are busy; [classes].
    settled_s: int  # Seconds that they had worked when what it owes was last counted; [classes].
    owed_s: int  # Seconds that it owes for collectives that took units; [classes].
    slack_left_s: int  # Seconds of its work that wait for the host, in which it can catch up; [classes].
    start_s: int  # Start; [tasks].
    end_s: int  # End; [tasks].
    waited_s: int  # Communication inside a run of operators that shares its links; [tasks].
    issued_s: int  # Wait for the host; [tasks].
    mark_s: int  # Instant of the last `Op.MARK`; [actors].
    begin_s: int  # Instant of the last `Op.BEGIN`; [actors].
    load: int  # Load by one byte per second of every flow; as `link`.
    alone: int  # Rate of a flow with all links to itself; [rows].
    latency: int  # Latency of its longest path; [rows].
    capacity: int  # Capacity; [links], as are the next four.
    remaining: int  # Capacity that frozen transfers leave.
    demand: int  # Load of those that are not frozen.
    slowest: int  # Least fair share of those that cross it.
    used: int  # Capacity that those take that freeze in this pass.
    bytes_left: int  # Bytes of each flow that are left; [transfers].
    size: int  # Bytes of each flow in all; [transfers].
    rate: int  # Present rate of each flow; [transfers].
    fair: int  # Fair share of each flow in this pass; [transfers].
    heap_s: int  # Instants of the events on the heap.
    now: int  # Present instant.
    clock: int  # Instant up to which transfers have moved.
    wake_s: int  # Instant at which the first transfer ends.
    lane_rate: int  # Rate of one lane.
    turn_s: int  # Time until the last port is lit; [numbers of ports from 0], or [entries].
    stalled_left: int  # Bytes that are left of each transfer whose circuits were turned away.
    stalled_size: int  # Bytes of each of them in all.
    change_s: int  # Begin; [moves under way].
    turned_s: int  # Begin; [changes].
    lit_s: int  # Instant at which light passed again; [changes].


def places(tables: Mapping[str, int]) -> At:
    """Return where tables begin; 0 for those that a step does not have, which nothing then looks at."""
    return At(**{**dict.fromkeys(At._fields, 0), **tables})


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
