"""State of the event loop: its tables, the events and their queues, and the transfers that share links.

Tables. All state is numbers in two flat arrays, whole numbers (``ints``) and reals (``reals``), in which
tables stand one behind the other. `Offsets` (``at``) names every table with its shape and unit, and holds the
place at which it begins: ``ints[at.channel + task]`` is the channel of a task, ``reals[at.now_s]`` the clock.
Rows of unequal length take two tables: row n of `dependency` is its entries from ``first_dependency[n]`` to
before ``first_dependency[n + 1]`` (`row`). These things are numbered from 0, and index the tables:

- class: identical ranks, which the step simulates once;
- task: a task of the graph, by its place there;
- work: an operator on a class, the same for equal tasks;
- actor: a process that runs tasks one after the other: the compute of a class, or one task beside compute;
- child: an actor behind all these, which runs a part of a task beside the rest of it;
- channel: a queue of tasks beside compute, of which one runs at a time;
- instruction: a line of a program (`Op`); an actor runs the program of a task as the reference a generator;
- group: identical flows of a collective's round, which move as one;
- route: the links that a group loads, and by how much;
- link: a class of links that all groups load alike, hence one constraint; lanes of endpoints, if there are
  any, come first and one by one;
- transfer: a group that moves now;
- exchange: a collective of a work that may share links with others;
- endpoint, lane, cell, entry, move, change: see `simulator.engine.compiled.circuits`.

A task. Its actor waits until all that it depends on is done, then for its channel if it has one, then runs
its program, as often as the task says. A program waits in its instructions: for time to pass, for circuits,
for the end of a transfer, or for children. At the end of the task the actor takes its next one.

Events. An event is ``kind + KINDS * subject``:

==============  ========  =============================================================================
kind            subject   effect
==============  ========  =============================================================================
RESUME          actor     goes on with its program, or its next task, up to where it waits again
TASK_DONE       task      actors that wait for it go on
CHANNEL_FREE    channel   the first actor in its queue gets it
CHILD_ENDED     actor     has one child (or the product beside it) fewer to wait for; goes on if none
TRANSFERS_END   wake-up   transfers without bytes left end, the others share the links anew, and circuits
                          turn to what waits; void if the wake-up is not the latest one
MOVE_BEGINS     move      its ports begin to move; its end is set for when they have settled
MOVE_ENDS       move      light passes its links again, and what waits for circuits is served
==============  ========  =============================================================================

Order. Events go by time. Of those of one instant the starts of actors and of moves go first, then those that
were set before the instant, then those set during it, each in the order in which they were set. This is the
order of simpy in the reference, so that ties end alike to the last bit.

Shares. Transfers run at max-min fair rates, found by progressive filling (Bertsekas and Gallager, Data
Networks, 2nd ed., section 6.5.2); they are shared anew whenever one starts or ends on links of another. Sums
go by `transfer_order`, as in the reference.
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
"""State in whole numbers: a list, or an array where the loop is compiled."""
Reals = MutableSequence[float]
"""State in reals."""


class Op(IntEnum):
    """Instructions of a program; each has a real `amount` and two whole numbers, `target` and `extra`."""

    SLEEP = 0
    """Wait for `amount` s."""
    TRANSFER = 1
    """Carry `amount` bytes of every flow of group `target` once circuits connect it; wait for the last."""
    MARK = 2
    """Remember the time."""
    COUNT_EXPOSED = 3
    """Count the time since the mark, less `amount` s, as communication."""
    BEGIN_SEQUENCE = 4
    """Remember the time as the begin of a sequence of operators."""
    AWAIT_ISSUE = 5
    """Wait until `amount` s after that begin, the time that the host needs to issue the sequence."""
    CHARGE = 6
    """Note that charge `target` (energy, bytes, an algorithm) is due."""
    FORK = 7
    """Start the `extra` programs that begin at the targets of the next `extra` instructions; wait for all."""
    OVERLAP = 8
    """Start the program at `target`; wait for it and for `amount` s of work of class `extra` (-1: none)."""
    END = 9
    """End the program."""
    WORK = 10
    """Let the units of class `target` work for `amount` s, and longer where collectives take some of them."""
    AWAIT_LATENCY = 11
    """Wait `amount` times for the latency of the present route of group `target`."""
    TURN_AHEAD = 12
    """Turn idle ports to group `target`, unless other traffic needs them first. That is asked at the first of
    several such instructions, in a row, and skips the `extra` ones behind it; these have an `extra` of -1."""


(
    SLEEP,
    TRANSFER,
    MARK,
    COUNT_EXPOSED,
    BEGIN_SEQUENCE,
    AWAIT_ISSUE,
    CHARGE,
    FORK,
    OVERLAP,
    END,
    WORK,
    AWAIT_LATENCY,
    TURN_AHEAD,
) = (int(op) for op in Op)

RESUME, TASK_DONE, CHANNEL_FREE, CHILD_ENDED, TRANSFERS_END, MOVE_BEGINS, MOVE_ENDS = range(7)
"""Kinds of events; see the table above."""
KINDS = 8
"""An event is its kind plus this many times its subject."""
AWAITS_TASKS, AWAITS_CHANNEL, RUNNING = range(3)
"""Phases of an actor: waiting for the tasks before its next one, for that one's channel, or running it."""
LEVELS = 2
"""Levels of a collective that work at once: inside nodes and between them."""


class Offsets(NamedTuple):
    """Places at which the tables begin, by subject.

    A comment gives the unit of a table of reals (or "real"; all others hold whole numbers), and ends with the
    table's shape, [actors, children] being all actors and their children; without a shape it is a single
    number. Fields marked "constant" are no places but the numbers themselves. A step that lacks a table has 0
    in its place, and nothing reads it.
    """

    # Actors; the first `actor_count` have tasks, their children follow.
    actor_count: int  # Constant: actors that have tasks.
    first_child: int  # Child beside a product, or -1; those for levels follow it; [actors, children].
    parent: int  # Actor that a child works for; [actors, children].
    first_actor_task: int  # First place in `actor_task`; [actors + 1].
    actor_task: int  # Tasks of each actor in the order in which it runs them; [tasks].
    position: int  # Place in `actor_task` of the present task; [actors].
    phase: int  # `AWAITS_TASKS`, `AWAITS_CHANNEL` or `RUNNING`; [actors].
    next_dependency: int  # Place in `dependency` of the first task not known to be done; [actors].
    program_counter: int  # Next instruction; [actors, children].
    runs_left: int  # Runs of the task's program that are left; [actors, children].
    pending: int  # Children, and a product beside them, that it waits for; [actors, children].
    next_waiter: int  # Next actor that waits for the same task, or -1; [actors].
    next_queued: int  # Next actor in the queue of the same channel, or -1; [actors].
    mark_s: int  # Time of its last `Op.MARK`, s; [actors, children].
    sequence_start_s: int  # Time of its last `Op.BEGIN_SEQUENCE`, s; [actors, children].
    # Tasks.
    program_start: int  # First instruction; [tasks].
    multiplicity: int  # Runs of the program; [tasks].
    channel: int  # Channel that it queues for, or -1; [tasks].
    slowed_class: int  # Class whose compute it slows, for it takes units while it runs, or -1; [tasks].
    is_done: int  # Whether its `TASK_DONE` has passed; [tasks].
    first_waiter: int  # First actor that waits for it, or -1; [tasks].
    last_waiter: int  # Last actor that waits for it; [tasks].
    first_dependency: int  # First place in `dependency`; [tasks + 1].
    dependency: int  # Tasks that each task has to wait for; [dependencies].
    ended_task: int  # Tasks in the order in which they ended, `ended_count` of them; [tasks].
    ended_count: int  # Tasks that have ended.
    task_start_s: int  # Start, s; [tasks].
    task_end_s: int  # End, s; [tasks].
    exposed_s: int  # Communication counted while it ran, s; [tasks].
    issue_wait_s: int  # Wait for the host to issue, s; [tasks].
    # Channels.
    channel_busy: int  # Whether an actor holds it; [channels].
    first_queued: int  # First actor in its queue, or -1; [channels].
    last_queued: int  # Last actor in its queue; [channels].
    # Instructions.
    op: int  # A value of `Op`; [instructions].
    target: int  # First operand; [instructions].
    extra: int  # Second operand; [instructions].
    amount: int  # Real operand, s, bytes or a number; [instructions].
    work_busy_s: int  # Part of an `Op.WORK` in which units are busy, s; [instructions].
    work_slack_s: int  # Part of an `Op.WORK` that waits for the host, s; [instructions].
    charge_log: int  # Charges in the order in which they fell due, `charge_count` of them; [charges due].
    charge_count: int  # Charges in the log.
    # Classes whose compute collectives slow; `_Compute` of `simulator.engine.simulation` holds the rule.
    is_working: int  # Whether an `Op.WORK` of it is under way; [classes].
    running_collectives: int  # Collectives that take its units now; [classes].
    collective_share: int  # Share of its rate that compute loses meanwhile; real, dimensionless.
    worked_s: int  # Busy time of the units before the last work, s; [classes].
    work_begin_s: int  # Begin of the last work, s; [classes].
    work_end_s: int  # End of the last work, s; [classes].
    busy_share: int  # Busy share of the last work; real, dimensionless; [classes].
    settled_s: int  # Busy time for which `owed_s` is counted, s; [classes].
    owed_s: int  # Work that collectives kept it from, still to be done, s; [classes].
    slack_left_s: int  # Wait for the host in the present work in which it can catch up, s; [classes].
    # Groups of flows, their routes, and links.
    transfer_order: int  # Index of the flow group, by which transfers are sorted; [groups].
    route: int  # Route as circuits stand; [groups].
    first_hop: int  # First place in `hop_link` and `hop_load`; [routes + 1].
    hop_link: int  # Links of each route; [hops].
    hop_load: int  # Load on each of them at a rate of 1 B/s of every flow; real, dimensionless; [hops].
    alone_rate: int  # Rate of a flow with all links of the route to itself, B/s; [routes].
    latency_s: int  # Latency of its longest path, s; [routes].
    link_capacity: int  # Capacity, B/s; [links].
    link_users: int  # Transfers that load it; [links].
    link_remaining: int  # While shares are found: capacity that frozen transfers leave, B/s; [links].
    link_load: int  # The same: load by transfers not yet frozen; real, dimensionless; [links].
    link_slowest: int  # The same: least fair share of a transfer on it, B/s; [links].
    link_taken: int  # The same: capacity that transfers take which freeze in this pass, B/s; [links].
    # Transfers under way, sorted by `transfer_order`, and the actors that wait for them.
    transfer_count: int  # Transfers under way.
    transfer_group: int  # Group; [transfers].
    transfer_actor: int  # Actor that waits for its end; [transfers].
    left_bytes: int  # Bytes of each flow that are left, at `transfers_time_s`; [transfers].
    size_bytes: int  # Bytes of each flow in all; [transfers].
    rate: int  # Present rate of each flow, B/s; [transfers].
    fair_rate: int  # While shares are found: least share of a flow on its links, B/s; [transfers].
    frozen: int  # The same: whether the rate is final: 0 no, 1 yes, 2 from this pass on; [transfers].
    ended_group: int  # Groups of the transfers that end at present; [transfers].
    transfers_time_s: int  # Time for which `left_bytes` is counted, s.
    # Events: two rings for the present instant, a heap for later ones, and the end of the next transfer.
    now_s: int  # The clock, s.
    start_event: int  # Starts of actors and moves; a ring; [ring_mask + 1].
    start_head: int  # Events taken from it so far.
    start_tail: int  # Events put into it so far.
    now_event: int  # Events set during the present instant; a ring; [ring_mask + 1].
    now_head: int  # Events taken from it so far.
    now_tail: int  # Events put into it so far.
    ring_mask: int  # Constant: size of a ring less 1, the size being a power of 2.
    overflow: int  # Whether an event found no room in a ring.
    heap_event: int  # Later events; a binary heap by time and sequence; [later events].
    heap_time_s: int  # Their times, s; [later events].
    heap_sequence: int  # Their numbers in the order in which they were set; [later events].
    heap_size: int  # Events on the heap.
    sequence: int  # Number of the next later event.
    wake_time_s: int  # Time of the next `TRANSFERS_END`, s; infinite if there is none.
    wake_sequence: int  # Its number among later events.
    wake_token: int  # Number of the latest wake-up; `TRANSFERS_END` of others is void.
    is_over: int  # Whether no event is left.
    # Circuits: what waits, moves and has moved; see `simulator.engine.compiled.circuits`.
    circuits_turn: int  # Constant: whether circuits may turn; if not, none of what follows changes.
    prefetches: int  # Constant: whether idle ports turn to what comes next.
    circuit_version: int  # Moves that have begun.
    trial: int  # Moves that were tried; marks in `*_trial` are current if equal to it.
    located_version: int  # `circuit_version` of the last look-up of its route, or -1; [groups].
    is_located: int  # Whether circuits connected all its flows then; [groups].
    is_promised: int  # Whether its circuits stay until it has begun; [groups].
    promised_group: int  # Groups of which that is so, `promised_count` of them; [groups].
    promised_count: int  # Promises that stand.
    dark_moves: int  # Moves under way that keep it dark; [links].
    link_trial: int  # Last trial that would have moved it; [links].
    circuit_waiter: (
        int  # Actors that wait for circuits, in order, `circuit_waiter_count` of them; [actors, children].
    )
    circuit_waiter_count: int  # Actors that wait for circuits.
    move_group: int  # Group that asked for it; [moves].
    move_ports: int  # Ports that turn (lanes), or the entry that says how (parts); [moves].
    move_start_s: int  # Begin, s; [moves].
    turn_s: int  # Time until the last port is lit, s; [ports from 0] (lanes), or [entries] (parts).
    change_group: int  # Group for which circuits changed, of `change_count` moves that ended; [change_room].
    change_ports: int  # Ports, or entry, as `move_ports`; [change_room].
    change_start_s: int  # Begin, s; [change_room].
    change_end_s: int  # Time at which light passed again, s; [change_room].
    change_count: int  # Changes that are still to be handed out.
    change_room: int  # Constant: changes for which there is room; the loop stops when it is full.
    # Lanes of endpoints; a lane is a link, number endpoint * lanes + lane, and "lanes" below are all of them.
    lanes: int  # Constant: lanes of an endpoint; 0 where circuits turn part by part.
    lane_rate: int  # Rate of one lane, B/s.
    lane_peer: int  # Endpoint that it reaches, or -1; [lanes].
    lane_origin: int  # Endpoint whose light this lane of the endpoint receives, or -1; [lanes].
    lane_width: (
        int  # Number of lanes that it acts for as a link: all to its peer if the first, else 0; [lanes].
    )
    first_pair: int  # First place in `pair_sender` and `pair_receiver`; [groups + 1].
    pair_sender: int  # Senders of the pairs of endpoints that a group needs connected; [pairs].
    pair_receiver: int  # Receivers of these pairs; their links come first in the group's route; [pairs].
    first_sender: int  # First place in `sender`; [groups + 1].
    sender: int  # Endpoints that send for each group, each once; [senders].
    sender_peer: int  # Endpoints to which their lanes turn for the group, or -1; [senders, lanes].
    lacking_trial: int  # Last trial for which it lacked a circuit as a sender; [endpoints].
    touched_trial: int  # Last trial that turned lanes of it; [endpoints].
    touched_endpoint: int  # Endpoints that the present trial turns, `touched_count` of them; [endpoints].
    touched_count: int  # Endpoints that the present trial turns.
    peer_before: int  # `lane_peer` before the present trial, of touched endpoints; [lanes].
    width_after: int  # `lane_width` after the present trial, of touched endpoints; [lanes].
    moving_link: int  # Lanes that the present trial moves, `moving_count` of them; [lanes].
    moving_count: int  # Lanes that the present trial moves.
    next_moving: int  # Next lane of the same move, or -1; [lanes].
    # Cells: circuits that the same groups use, and that turn together.
    first_cell: int  # First place in `cell`; [groups + 1].
    cell: int  # Cells of each group; [cells of groups].
    cell_of: int  # Cell of an endpoint's lanes; [endpoints].
    cell_version: int  # `circuit_version` of its last move; [cells].
    cell_setting: int  # Number of its present setting, 0 at the start; [cells].
    newest_entry: int  # Entry of the group that was learnt last, or -1; [groups].
    older_entry: int  # Next entry of the same group, or -1; [entries].
    entry_route: int  # Route of its group while cells are set so, or -1 if they have to turn; [entries].
    moved_route: int  # Route of the links that then move, or -1; [entries].
    first_entry_setting: int  # First place in `entry_setting` and `turned_setting`; [entries + 1].
    entry_setting: int  # Settings of its group's cells for which each entry holds; [cells of entries].
    turned_setting: int  # Settings to which these cells have to turn; [cells of entries].
    unknown_setting: int  # Whether a setting without an entry was met; all that followed is void.
    begun_moves: int  # Moves of cells that have begun.
    move_slots: int  # Constant: moves of cells for which there is room at once.
    # Stalled transfers: turned away from their circuits, or held up by dark links.
    stalled_count: int  # Stalled transfers.
    stalled_group: int  # Group; [stalled].
    stalled_actor: int  # Actor that waits for its end; [stalled].
    stalled_before: int  # Groups that were stalled when circuits began to be served; [stalled].
    stalled_left_bytes: int  # Bytes of each flow that are left; [stalled].
    stalled_size_bytes: int  # Bytes of each flow in all; [stalled].
    # Exchanges and the order in which tasks need them (`NeedOrder` of `simulator.engine.lookahead`).
    task_class: int  # Class; [tasks].
    task_work: int  # Work; [tasks].
    own_order: int  # Place in the order in which its own class needs tasks; [tasks].
    receiver_order: int  # Place in the order in which the class that waits for it needs tasks; [tasks].
    is_chained: int  # Whether a collective of its class follows it directly; [tasks].
    is_short: int  # Whether it is too short for ports to leave the exchanges of a pass for it; [tasks].
    is_pending: int  # Whether it communicates and has not ended; [tasks].
    first_exchange: int  # First of its exchanges; [works + 1].
    first_exchange_group: int  # First place in `exchange_group`; [exchanges + 1].
    exchange_group: int  # Groups over circuits that each exchange moves, in order; [groups of exchanges].
    first_beside_exchange: int  # First place in `beside_exchange`; [classes + 1].
    beside_exchange: int  # Exchanges that each class runs beside its compute; [exchanges of classes].
    first_inner_exchange: int  # First place in `inner_exchange`; [classes + 1].
    inner_exchange: int  # Exchanges inside what each class computes; [exchanges of classes].
    first_arriving_exchange: int  # First place in `arriving_exchange`; [classes + 1].
    arriving_exchange: int  # Exchanges by which other classes send to each class; [exchanges of classes].
    first_own_task: int  # First place in `own_task`; [exchanges + 1].
    own_task: int  # Tasks that carry each exchange, by `own_order`; [tasks of exchanges].
    next_own_task: int  # Place in `own_task` before which all have ended; [exchanges].
    first_receiver_task: int  # First place in `receiver_task`; [exchanges + 1].
    receiver_task: int  # The same tasks, by `receiver_order`; [tasks of exchanges].
    next_receiver_task: int  # Place in `receiver_task` before which all have ended; [exchanges].
    first_prefetch_task: int  # First place in `prefetch_task`; [classes + 1].
    prefetch_task: int  # Tasks by which each class communicates beside compute, in order; [tasks of classes].
    next_prefetch_task: int  # Place in `prefetch_task` before which all have ended; [classes].


class Tables:
    """Tables in the order in which they stand in the two arrays.

    Parameters
    ----------
    ints_before, reals_before : int, optional
        Numbers that stand in the arrays before them.
    """

    def __init__(self, ints_before: int = 0, reals_before: int = 0) -> None:
        self.at: dict[str, int] = {}
        """Place at which each table begins, and constants, by name in `Offsets`."""
        self._ints: list[np.ndarray] = []
        self._reals: list[np.ndarray] = []
        self._ints_size, self._reals_size = ints_before, reals_before

    def ints(self, name: str, values: Iterable[int]) -> None:
        """Add a table of whole numbers."""
        table = values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=np.int64)
        self.at[name] = self._ints_size
        self._ints_size += table.size
        self._ints.append(table)

    def reals(self, name: str, values: Iterable[float]) -> None:
        """Add a table of reals."""
        table = values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=float)
        self.at[name] = self._reals_size
        self._reals_size += table.size
        self._reals.append(table)

    def rows(
        self, name: str, rows: Sequence[Sequence[int]], *, first: str = "", following: bool = False
    ) -> None:
        """Add rows of whole numbers of any lengths as one table, and where each begins as another.

        Parameters
        ----------
        name : str
            Name of the table.
        rows : sequence of sequence of int
            The rows.
        first : str
            Name of the table of where they begin; ``first_<name>`` by default.
        following : bool
            Whether a table ``next_<name>`` keeps a place in each row, at first where it begins.
        """
        begins = list(itertools.accumulate((len(one) for one in rows), initial=0))
        self.ints(first or f"first_{name}", begins)
        self.ints(name, itertools.chain.from_iterable(rows))
        if following:
            self.ints(f"next_{name}", begins[:-1])

    def same_ints(self, names: str, size: int, value: int = 0) -> None:
        """Add tables of one whole number everywhere, their names separated by spaces."""
        for name in names.split():
            self.ints(name, np.full(size, value, dtype=np.int64))

    def same_reals(self, names: str, size: int, value: float = 0.0) -> None:
        """Add tables of one real everywhere, their names separated by spaces."""
        for name in names.split():
            self.reals(name, np.full(size, value))

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the tables of whole numbers as one array, and those of reals as another."""
        return np.concatenate(self._ints), np.concatenate(self._reals)


def offsets(tables: Mapping[str, int]) -> Offsets:
    """Return the places of tables and constants by name; 0 for those that a step does not have."""
    return Offsets(**{**dict.fromkeys(Offsets._fields, 0), **tables})


def row(ints: Ints, first: int, number: int) -> range:
    """Return the places of a row in a table whose rows begin where the table at `first` says."""
    return range(ints[first + number], ints[first + number + 1])


def schedule_now(ints: Ints, at: Offsets, event: int) -> None:
    """Set an event for the present instant, behind those that are set already."""
    tail = ints[at.now_tail]
    if tail - ints[at.now_head] > at.ring_mask:
        ints[at.overflow] = 1
    ints[at.now_event + (tail & at.ring_mask)] = event
    ints[at.now_tail] = tail + 1


def schedule_start(ints: Ints, at: Offsets, event: int) -> None:
    """Set the start of an actor or a move, which goes before all other events of the present instant."""
    tail = ints[at.start_tail]
    ints[at.start_event + (tail & at.ring_mask)] = event
    ints[at.start_tail] = tail + 1


def schedule_later(ints: Ints, reals: Reals, at: Offsets, delay_s: float, event: int) -> None:
    """Set an event for a later time; one that double precision cannot tell from now joins the present."""
    time_s = reals[at.now_s] + delay_s
    if time_s == reals[at.now_s]:
        schedule_now(ints, at, event)
        return
    sequence = ints[at.sequence]
    ints[at.sequence] = sequence + 1
    hole = ints[at.heap_size]
    ints[at.heap_size] = hole + 1
    while hole > 0:
        parent = (hole - 1) >> 1
        parent_s = reals[at.heap_time_s + parent]
        if parent_s < time_s or (parent_s == time_s and ints[at.heap_sequence + parent] < sequence):
            break
        move_in_heap(ints, reals, at, parent, hole)
        hole = parent
    reals[at.heap_time_s + hole] = time_s
    ints[at.heap_sequence + hole] = sequence
    ints[at.heap_event + hole] = event


def move_in_heap(ints: Ints, reals: Reals, at: Offsets, source: int, hole: int) -> None:
    """Copy an event of the heap to another place there."""
    reals[at.heap_time_s + hole] = reals[at.heap_time_s + source]
    ints[at.heap_sequence + hole] = ints[at.heap_sequence + source]
    ints[at.heap_event + hole] = ints[at.heap_event + source]


def is_earlier(ints: Ints, reals: Reals, at: Offsets, one: int, other: int) -> bool:
    """Return whether the event at one place of the heap goes before that at another."""
    one_s, other_s = reals[at.heap_time_s + one], reals[at.heap_time_s + other]
    if one_s == other_s:
        return ints[at.heap_sequence + one] < ints[at.heap_sequence + other]
    return one_s < other_s


def pop_heap(ints: Ints, reals: Reals, at: Offsets) -> int:
    """Take the earliest event off the heap and return it: the last one sinks from the top to its place."""
    event = ints[at.heap_event]
    last = ints[at.heap_size] - 1
    ints[at.heap_size] = last
    hole = 0
    while 2 * hole + 1 < last:
        child = 2 * hole + 1
        if child + 1 < last and is_earlier(ints, reals, at, child + 1, child):
            child += 1
        if is_earlier(ints, reals, at, last, child):
            break
        move_in_heap(ints, reals, at, child, hole)
        hole = child
    move_in_heap(ints, reals, at, last, hole)
    return event


def advance_transfers(ints: Ints, reals: Reals, at: Offsets) -> None:
    """Count the bytes that transfers have moved until now."""
    elapsed_s = reals[at.now_s] - reals[at.transfers_time_s]
    reals[at.transfers_time_s] = reals[at.now_s]
    if elapsed_s > 0.0:
        for k in range(ints[at.transfer_count]):
            reals[at.left_bytes + k] -= reals[at.rate + k] * elapsed_s


def copy_transfer(ints: Ints, reals: Reals, at: Offsets, source: int, k: int) -> None:
    """Copy a transfer to another place in the table of transfers."""
    ints[at.transfer_group + k] = ints[at.transfer_group + source]
    ints[at.transfer_actor + k] = ints[at.transfer_actor + source]
    reals[at.left_bytes + k] = reals[at.left_bytes + source]
    reals[at.size_bytes + k] = reals[at.size_bytes + source]
    reals[at.rate + k] = reals[at.rate + source]


def add_transfer(ints: Ints, reals: Reals, at: Offsets, group: int, actor: int) -> int:
    """Add a transfer, its rate being that of a group alone, and return its place; sizes are the caller's."""
    k = ints[at.transfer_count]
    ints[at.transfer_count] = k + 1
    order = ints[at.transfer_order + group]
    while k > 0 and ints[at.transfer_order + ints[at.transfer_group + k - 1]] > order:
        copy_transfer(ints, reals, at, k - 1, k)
        k -= 1
    ints[at.transfer_group + k] = group
    ints[at.transfer_actor + k] = actor
    route = ints[at.route + group]
    reals[at.rate + k] = reals[at.alone_rate + route]
    for p in row(ints, at.first_hop, route):
        ints[at.link_users + ints[at.hop_link + p]] += 1
    return k


def hops(ints: Ints, at: Offsets, k: int) -> range:
    """Return the places of a transfer's links in `hop_link` and `hop_load`."""
    return row(ints, at.first_hop, ints[at.route + ints[at.transfer_group + k]])


def compute_fair_shares(ints: Ints, reals: Reals, at: Offsets) -> None:
    """Set the least fair share of every transfer that is not frozen, and on each link the least of these.

    The fair share of a link is what frozen transfers leave of it, over the load of the others.
    """
    count = ints[at.transfer_count]
    for k in range(count):
        if not ints[at.frozen + k]:
            for p in hops(ints, at, k):
                link = ints[at.hop_link + p]
                reals[at.link_load + link] = 0.0
                reals[at.link_taken + link] = 0.0
                reals[at.link_slowest + link] = math.inf
    for k in range(count):
        if not ints[at.frozen + k]:
            for p in hops(ints, at, k):
                reals[at.link_load + ints[at.hop_link + p]] += reals[at.hop_load + p]
    for k in range(count):
        if not ints[at.frozen + k]:
            fair = math.inf
            for p in hops(ints, at, k):
                fair = min(fair, fair_share(reals, at, ints[at.hop_link + p]))
            reals[at.fair_rate + k] = fair
            for p in hops(ints, at, k):
                link = ints[at.hop_link + p]
                reals[at.link_slowest + link] = min(reals[at.link_slowest + link], fair)


def fair_share(reals: Reals, at: Offsets, link: int) -> float:
    """Return the rate that a link has for each transfer on it that is not frozen, in B/s."""
    return max(reals[at.link_remaining + link], 0.0) / reals[at.link_load + link]


def is_bottlenecked(ints: Ints, reals: Reals, at: Offsets, k: int) -> bool:
    """Return whether a transfer crosses a link on which no transfer is held back further by another link."""
    for p in hops(ints, at, k):
        link = ints[at.hop_link + p]
        if fair_share(reals, at, link) <= reals[at.link_slowest + link] * (1.0 + TOLERANCE):
            return True
    return False


def freeze_bottlenecked(ints: Ints, reals: Reals, at: Offsets) -> int:
    """Give transfers with a bottleneck their final rates; return how many there are."""
    count = ints[at.transfer_count]
    stopped = 0
    for k in range(count):
        if not ints[at.frozen + k] and is_bottlenecked(ints, reals, at, k):
            ints[at.frozen + k] = 2
            stopped += 1
    for k in range(count):
        if ints[at.frozen + k] == 2:
            reals[at.rate + k] = reals[at.fair_rate + k]
            for p in hops(ints, at, k):
                taken = reals[at.hop_load + p] * reals[at.fair_rate + k]
                reals[at.link_taken + ints[at.hop_link + p]] += taken
    for k in range(count):
        if ints[at.frozen + k] == 2:
            ints[at.frozen + k] = 1
            for p in hops(ints, at, k):
                link = ints[at.hop_link + p]
                reals[at.link_remaining + link] -= reals[at.link_taken + link]
                reals[at.link_taken + link] = 0.0
    return stopped


def share_links(ints: Ints, reals: Reals, at: Offsets) -> None:
    """Set the max-min fair rates of all transfers, as `simulator.engine.network.max_min_rates` does.

    Each pass freezes the transfers whose bottleneck is known, at the fair share of that link; the rest share
    what these leave.
    """
    unfrozen = ints[at.transfer_count]
    for k in range(unfrozen):
        ints[at.frozen + k] = 0
        for p in hops(ints, at, k):
            link = ints[at.hop_link + p]
            reals[at.link_remaining + link] = reals[at.link_capacity + link]
    while unfrozen > 0:
        compute_fair_shares(ints, reals, at)
        unfrozen -= freeze_bottlenecked(ints, reals, at)


def soonest_end_s(ints: Ints, reals: Reals, at: Offsets) -> float:
    """Return the time that the first transfer still needs, in s; infinite if there is none."""
    soonest_s = math.inf
    for k in range(ints[at.transfer_count]):
        soonest_s = min(soonest_s, reals[at.left_bytes + k] / reals[at.rate + k])
    return soonest_s


def schedule_transfers_end(ints: Ints, reals: Reals, at: Offsets) -> None:
    """Set the end of the first transfer as the next wake-up, which makes earlier ones void."""
    token = ints[at.wake_token] + 1
    ints[at.wake_token] = token
    reals[at.wake_time_s] = math.inf
    if ints[at.transfer_count] == 0:
        return
    time_s = reals[at.now_s] + max(soonest_end_s(ints, reals, at), 0.0)
    if time_s == reals[at.now_s]:
        schedule_now(ints, at, TRANSFERS_END + KINDS * token)
        return
    reals[at.wake_time_s] = time_s
    ints[at.wake_sequence] = ints[at.sequence]
    ints[at.sequence] += 1


def task_of(ints: Ints, at: Offsets, actor: int) -> int:
    """Return the task that an actor runs, or that a child works for."""
    while actor >= at.actor_count:
        actor = ints[at.parent + actor]
    return ints[at.actor_task + ints[at.position + actor]]
