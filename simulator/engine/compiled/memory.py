"""Memories of the event loop: where each table begins, what instructions and events there are."""

from __future__ import annotations

from collections.abc import MutableSequence
from enum import IntEnum
from typing import NamedTuple

Ints = MutableSequence[int]
"""Memory of whole numbers: a list, or an array where the loop is compiled."""
Reals = MutableSequence[float]
"""Memory of reals."""


class Op(IntEnum):
    """Instructions of a task's program; `x` is a real, `i` and `j` are whole numbers."""

    SLEEP = 0
    """Wait for x seconds."""
    MOVE = 1
    """Carry x bytes of every flow of group i over the links that others use too."""
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

RESUME, DONE, RELEASE, ENDED, WAKE = range(5)
"""Kinds of events: an actor goes on, a task is done, a channel is free, a child has ended, bytes ended."""
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
    first_asked: int
    """Of each charge: its first place in `asked`; [charges + 1]."""
    asked: int
    """Groups of flows that are numbered when a charge is first due, in this order."""
    number: int
    """Of each group of flows, by which it stands in the order of transfers; -1 before."""
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
    numbered: int
    sequence: int
    wake_order: int
    token: int
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
