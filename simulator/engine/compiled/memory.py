"""Memories of the event loop: where each table begins, what instructions and events there are."""

from __future__ import annotations

import itertools
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
    """Start the program at i, and wait for it and for x seconds."""
    END = 9
    """End the program."""


SLEEP, MOVE, MARK, WAITED, BEGIN, LATE, CHARGE, FORK, BESIDE, END = (int(one) for one in Op)

RESUME, DONE, RELEASE, ENDED, WAKE, MOVED, LIT = range(7)
"""Kinds of events: an actor goes on, a task is done, a channel is free, a child has ended, bytes ended, ports
begin to move, light passes them again."""
KINDS = 8
"""An event is its kind and this many times what it is about."""
WAITING, TURN, RUNNING = range(3)
"""What an actor does: wait for tasks before its own, for its channel, or run."""
BITS = 62
"""Bits of a word of flags, which stays positive."""
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
    first_link: int
    """Of each group: its first place in `link`; [groups + 1]."""
    link: int
    """Classes of links that groups load."""
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
    """Of each task, as are the next three: its class of ranks."""
    work: int
    """Its work."""
    bit: int
    """Its place among the communication of its class, or -1."""
    row_behind: int
    """Its first place in `behind`, or -1."""
    behind: int
    """Flags of the communication of a class that waits for a task, and of the task."""
    first_word: int
    """Of each class: its first place in `undone`; [classes + 1]."""
    undone: int
    """Flags of a class's communication that has not ended."""
    masks: int
    """Of each work: its first place in `mask`."""
    mask: int
    """Flags of its tasks."""
    ahead: int
    """Of each work: its tasks that communicate and have not ended."""
    flows: int
    """Of each work: whether it moves anything."""
    first_part: int
    """Of each work: its first place in `part`; [works + 1]."""
    part: int
    """Groups with lanes that it moves, in order."""
    first_begun: int
    """Of each class: its first place in `begun`; [classes + 1]."""
    begun: int
    """Works by which a class communicates."""
    first_sent: int
    """Of each class: its first place in `sent`; [classes + 1]."""
    sent: int
    """Works by which others send to it."""
    first_asked: int
    """Of each class: its first place in `asked`; [classes + 1]."""
    asked: int
    """Tasks by which a class communicates, by number."""
    next_asked: int
    """Of each class: place before which all of them have ended."""
    version: int
    """How often circuits have changed."""
    stamp: int
    """How many moves were tried."""
    touches: int
    moves: int
    keeping: int
    waiting: int
    changes: int
    x: int
    """Real of each instruction; from here on places in the reals."""
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
    """Of each group: rate of a flow with all links to itself."""
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
    """Of each number of ports from 0: time until the last of them is lit."""
    change_s: int
    """Of the first lane of a move: when it began."""
    turned_s: int
    """Of each change of circuits: when it began, and, next, when light passed again."""
    lit_s: int


class Memories:
    """Tables laid one behind the other into two memories."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}
        self._tables: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        self._sizes = [0, 0]

    def _add(self, real: bool, name: str, table: np.ndarray) -> None:
        self.at[name] = self._sizes[real]
        self._sizes[real] += table.size
        self._tables[real].append(table)

    def whole(self, name: str, values: Iterable[int]) -> None:
        """Add a table of whole numbers."""
        self._add(False, name, np.fromiter(values, dtype=np.int64))

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
