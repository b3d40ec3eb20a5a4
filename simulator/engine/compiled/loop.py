"""Event loop of a step on two flat arrays, compiled by numba where that is installed.

`simulator.engine.compiled.state` says what its tables hold, what each event does, and in which order events
go: that of the reference (`simulator.engine.simulation`, on simpy), ties included. Here `next_event` takes an
event, `handle_event` does what it says, and `resume` runs the programs of the actors that it lets go on;
`play` is the loop over the three. The same functions run on lists in plain Python, and give the same bits.
Below them stands how they are compiled.
"""

from __future__ import annotations

import dis
import fcntl
import gc
import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from simulator.engine.compiled import circuits, state
from simulator.engine.compiled.circuits import (
    CIRCUITS_NEEDED,
    EXCHANGE_AHEAD,
    LINKS_FREED,
    MOVE_ENDED,
    NO_PARTS,
    TASK_ENDED,
    Turn,
    stay,
    turn,
)
from simulator.engine.compiled.state import (
    AWAIT_ISSUE,
    AWAIT_LATENCY,
    AWAITS_CHANNEL,
    AWAITS_TASKS,
    BEGIN_SEQUENCE,
    CHANNEL_FREE,
    CHARGE,
    CHILD_ENDED,
    COUNT_EXPOSED,
    END,
    FORK,
    KINDS,
    MARK,
    MOVE_BEGINS,
    MOVE_ENDS,
    OVERLAP,
    RESUME,
    RUNNING,
    SLEEP,
    TASK_DONE,
    TRANSFER,
    TRANSFERS_END,
    TURN_AHEAD,
    WORK,
    Ints,
    Offsets,
    Reals,
    add_transfer,
    advance_transfers,
    copy_transfer,
    hops,
    pop_heap,
    row,
    schedule_later,
    schedule_now,
    schedule_start,
    schedule_transfers_end,
    share_links,
    soonest_end_s,
    task_of,
)
from simulator.engine.network import DONE_SHARE, TOLERANCE
from simulator.engine.simulation import SETTLED
from simulator.files import kept_on_disk


def are_used(ints: Ints, at: Offsets, group: int) -> bool:
    """Return whether transfers load links of a group's route."""
    used = False
    for p in row(ints, at.first_hop, ints[at.route + group]):
        used = used or ints[at.link_users + ints[at.hop_link + p]] > 0
    return used


def begin_transfer(ints: Ints, reals: Reals, at: Offsets, actor: int, counter: int) -> None:
    """Start the transfer of an instruction, and share links anew if it meets others."""
    group, size_bytes = ints[at.target + counter], reals[at.amount + counter]
    advance_transfers(ints, reals, at)
    shared = are_used(ints, at, group)
    k = add_transfer(ints, reals, at, group, actor)
    reals[at.left_bytes + k] = size_bytes
    reals[at.size_bytes + k] = size_bytes
    if shared:
        share_links(ints, reals, at)
    schedule_transfers_end(ints, reals, at)


def end_transfers(ints: Ints, reals: Reals, at: Offsets, turn: Turn) -> None:
    """End the transfers whose last byte has left, and let the others share the links that these free."""
    advance_transfers(ints, reals, at)
    count = ints[at.transfer_count]
    soonest_s = soonest_end_s(ints, reals, at)
    kept = 0
    for k in range(count):
        left_bytes, group = reals[at.left_bytes + k], ints[at.transfer_group + k]
        rounded = left_bytes <= reals[at.size_bytes + k] * DONE_SHARE
        if rounded or left_bytes / reals[at.rate + k] <= soonest_s:
            schedule_now(ints, at, RESUME + KINDS * ints[at.transfer_actor + k])
            for p in hops(ints, at, k):
                ints[at.link_users + ints[at.hop_link + p]] -= 1
            ints[at.ended_group + k - kept] = group
        else:
            copy_transfer(ints, reals, at, k, kept)
            kept += 1
    ints[at.transfer_count] = kept
    shared = False
    for e in range(count - kept):
        shared = shared or are_used(ints, at, ints[at.ended_group + e])
    if shared:
        share_links(ints, reals, at)
    schedule_transfers_end(ints, reals, at)
    if at.circuits_turn:
        turn(ints, reals, at, LINKS_FREED, 0)


def grant_channel(ints: Ints, at: Offsets, channel: int) -> None:
    """Give a channel, if it is free, to the first actor in its queue."""
    actor = ints[at.first_queued + channel]
    if ints[at.channel_busy + channel] or actor < 0:
        return
    ints[at.first_queued + channel] = ints[at.next_queued + actor]
    ints[at.channel_busy + channel] = 1
    schedule_now(ints, at, RESUME + KINDS * actor)


def request_channel(ints: Ints, at: Offsets, channel: int, actor: int) -> None:
    """Put an actor at the end of a channel's queue."""
    ints[at.next_queued + actor] = -1
    if ints[at.first_queued + channel] < 0:
        ints[at.first_queued + channel] = actor
    else:
        ints[at.next_queued + ints[at.last_queued + channel]] = actor
    ints[at.last_queued + channel] = actor
    grant_channel(ints, at, channel)


def are_dependencies_done(ints: Ints, at: Offsets, actor: int, task: int) -> bool:
    """Return whether all that a task depends on is done; if not, queue its actor at the first that is not."""
    place, last = ints[at.next_dependency + actor], ints[at.first_dependency + task + 1]
    while place < last and ints[at.is_done + ints[at.dependency + place]]:
        place += 1
    ints[at.next_dependency + actor] = place
    if place == last:
        return True
    other = ints[at.dependency + place]
    ints[at.next_waiter + actor] = -1
    if ints[at.first_waiter + other] < 0:
        ints[at.first_waiter + other] = actor
    else:
        ints[at.next_waiter + ints[at.last_waiter + other]] = actor
    ints[at.last_waiter + other] = actor
    return False


def start_child(ints: Ints, at: Offsets, actor: int, child: int, instruction: int) -> None:
    """Start a child of an actor at an instruction."""
    ints[at.program_counter + child] = instruction
    ints[at.parent + child] = actor
    schedule_start(ints, at, RESUME + KINDS * child)


def fork(ints: Ints, at: Offsets, actor: int, counter: int) -> None:
    """Start the programs of an `Op.FORK`, one in each of the actor's children behind the first."""
    programs = ints[at.extra + counter]
    ints[at.pending + actor] = programs
    ints[at.program_counter + actor] = counter + 1 + programs
    for n in range(programs):
        child = ints[at.first_child + actor] + 1 + n
        start_child(ints, at, actor, child, ints[at.target + counter + 1 + n])


def overlap(ints: Ints, reals: Reals, at: Offsets, actor: int, counter: int) -> None:
    """Start the collective of an `Op.OVERLAP` in the actor's first child, and the product beside it."""
    product_s = reals[at.amount + counter]
    begin_work(reals, at, ints[at.extra + counter], product_s, product_s)
    ints[at.pending + actor] = 2
    start_child(ints, at, actor, ints[at.first_child + actor], ints[at.target + counter])
    schedule_later(ints, reals, at, product_s, CHILD_ENDED + KINDS * actor)


def begin_work(reals: Reals, at: Offsets, rank_class: int, work_s: float, busy_s: float) -> None:
    """Note that a class works from now on for `work_s`, its units busy for `busy_s` of it; -1 is no class."""
    if rank_class < 0:
        return
    last_s = reals[at.work_end_s + rank_class] - reals[at.work_begin_s + rank_class]
    reals[at.worked_s + rank_class] += reals[at.busy_share + rank_class] * last_s
    reals[at.work_begin_s + rank_class] = reals[at.now_s]
    reals[at.work_end_s + rank_class] = reals[at.now_s] + work_s
    reals[at.busy_share + rank_class] = busy_s / work_s if work_s > 0.0 else 0.0


def settle(ints: Ints, reals: Reals, at: Offsets, rank_class: int) -> None:
    """Add to the work that a class owes what collectives have kept it from since this was last counted."""
    until_s = min(reals[at.now_s], reals[at.work_end_s + rank_class])
    busy_s = reals[at.busy_share + rank_class] * (until_s - reals[at.work_begin_s + rank_class])
    worked_s = reals[at.worked_s + rank_class] + busy_s
    if ints[at.running_collectives + rank_class] > 0:
        slowed_s = worked_s - reals[at.settled_s + rank_class]
        reals[at.owed_s + rank_class] += reals[at.collective_share] * slowed_s
    reals[at.settled_s + rank_class] = worked_s


def is_worked(ints: Ints, reals: Reals, at: Offsets, actor: int, counter: int) -> bool:
    """Return whether the work of an `Op.WORK` is done; if not, the actor comes back to it.

    It first comes back after the time that the work takes alone, then for as long as it owes.
    """
    rank_class, work_s = ints[at.target + counter], reals[at.amount + counter]
    if not ints[at.is_working + rank_class]:
        ints[at.is_working + rank_class] = 1
        reals[at.slack_left_s + rank_class] = reals[at.work_slack_s + counter]
        begin_work(reals, at, rank_class, work_s, reals[at.work_busy_s + counter])
        schedule_later(ints, reals, at, work_s, RESUME + KINDS * actor)
        ints[at.program_counter + actor] = counter
        return False
    settle(ints, reals, at, rank_class)
    caught_up_s = min(reals[at.owed_s + rank_class], reals[at.slack_left_s + rank_class])
    reals[at.slack_left_s + rank_class] -= caught_up_s
    late_s = reals[at.owed_s + rank_class] - caught_up_s
    reals[at.owed_s + rank_class] = late_s
    if late_s <= SETTLED * work_s:
        ints[at.is_working + rank_class] = 0
        return True
    reals[at.owed_s + rank_class] = 0.0
    reals[at.exposed_s + task_of(ints, at, actor)] += late_s
    begin_work(reals, at, rank_class, late_s, late_s)
    schedule_later(ints, reals, at, late_s, RESUME + KINDS * actor)
    ints[at.program_counter + actor] = counter
    return False


def is_transferred(ints: Ints, reals: Reals, at: Offsets, turn: Turn, actor: int) -> bool:
    """Return whether an actor's `Op.TRANSFER` takes no time; if not, make it wait for circuits or the end."""
    counter = ints[at.program_counter + actor] - 1
    if at.circuits_turn and not turn(ints, reals, at, CIRCUITS_NEEDED, actor):
        return False
    if reals[at.amount + counter] <= 0.0:
        return True
    begin_transfer(ints, reals, at, actor, counter)
    return False


def is_issued(ints: Ints, reals: Reals, at: Offsets, actor: int, counter: int) -> bool:
    """Return whether the host has issued all of an actor's sequence; if not, the actor waits for it."""
    late_s = reals[at.amount + counter] - (reals[at.now_s] - reals[at.sequence_start_s + actor])
    if late_s <= 0.0:
        return True
    reals[at.issue_wait_s + task_of(ints, at, actor)] += late_s
    schedule_later(ints, reals, at, late_s, RESUME + KINDS * actor)
    return False


def record_instant(ints: Ints, reals: Reals, at: Offsets, actor: int, counter: int) -> None:
    """Run an instruction that only writes something down."""
    op = ints[at.op + counter]
    if op == CHARGE:
        ints[at.charge_log + ints[at.charge_count]] = ints[at.target + counter]
        ints[at.charge_count] += 1
    elif op == MARK:
        reals[at.mark_s + actor] = reals[at.now_s]
    elif op == COUNT_EXPOSED:
        waited_s = reals[at.now_s] - reals[at.mark_s + actor] - reals[at.amount + counter]
        reals[at.exposed_s + task_of(ints, at, actor)] += waited_s
    elif op == BEGIN_SEQUENCE:
        reals[at.sequence_start_s + actor] = reals[at.now_s]


def run_instruction(ints: Ints, reals: Reals, at: Offsets, turn: Turn, actor: int) -> bool:
    """Run the next instruction of an actor; return whether it goes on at once instead of waiting."""
    counter = ints[at.program_counter + actor]
    ints[at.program_counter + actor] = counter + 1
    op = ints[at.op + counter]
    if op == SLEEP or op == AWAIT_LATENCY:  # noqa: PLR1714 - a tuple takes time to compile
        delay_s = reals[at.amount + counter]
        if op == AWAIT_LATENCY:
            delay_s *= reals[at.latency_s + ints[at.route + ints[at.target + counter]]]
        schedule_later(ints, reals, at, delay_s, RESUME + KINDS * actor)
        return False
    if op == TRANSFER:
        return is_transferred(ints, reals, at, turn, actor)
    if op == WORK:
        return is_worked(ints, reals, at, actor, counter)
    if op == AWAIT_ISSUE:
        return is_issued(ints, reals, at, actor, counter)
    if op == FORK:
        fork(ints, at, actor, counter)
    elif op == OVERLAP:
        overlap(ints, reals, at, actor, counter)
    elif op == TURN_AHEAD:
        ints[at.program_counter + actor] = turn(ints, reals, at, EXCHANGE_AHEAD, actor)
    else:
        record_instant(ints, reals, at, actor, counter)
    return op != FORK and op != OVERLAP  # noqa: PLR1714


def run_program(ints: Ints, reals: Reals, at: Offsets, turn: Turn, actor: int) -> bool:
    """Run an actor's program until it has to wait; return whether it has reached its end instead."""
    while ints[at.op + ints[at.program_counter + actor]] != END:
        if not run_instruction(ints, reals, at, turn, actor):
            return False
    return True


def begin_task(ints: Ints, reals: Reals, at: Offsets, actor: int) -> bool:
    """Begin an actor's next task if it runs none; return False if it has to wait for that, or has no more."""
    if ints[at.phase + actor] == RUNNING:
        return True
    if ints[at.position + actor] >= ints[at.first_actor_task + actor + 1]:
        return False
    task = ints[at.actor_task + ints[at.position + actor]]
    if ints[at.phase + actor] == AWAITS_TASKS:
        if not are_dependencies_done(ints, at, actor, task):
            return False
        ints[at.phase + actor] = AWAITS_CHANNEL
        if ints[at.channel + task] >= 0:
            request_channel(ints, at, ints[at.channel + task], actor)
            return False
    ints[at.phase + actor] = RUNNING
    reals[at.task_start_s + task] = reals[at.now_s]
    if ints[at.slowed_class + task] >= 0:
        settle(ints, reals, at, ints[at.slowed_class + task])
        ints[at.running_collectives + ints[at.slowed_class + task]] += 1
    ints[at.runs_left + actor] = ints[at.multiplicity + task]
    ints[at.program_counter + actor] = ints[at.program_start + task]
    return True


def end_task(ints: Ints, reals: Reals, at: Offsets, turn: Turn, actor: int) -> None:
    """End an actor's task: free its channel, tell those that wait for it, and make the next task its own."""
    task = ints[at.actor_task + ints[at.position + actor]]
    reals[at.task_end_s + task] = reals[at.now_s]
    if ints[at.slowed_class + task] >= 0:
        settle(ints, reals, at, ints[at.slowed_class + task])
        ints[at.running_collectives + ints[at.slowed_class + task]] -= 1
    ints[at.ended_task + ints[at.ended_count]] = task
    ints[at.ended_count] += 1
    channel = ints[at.channel + task]
    if channel >= 0:
        ints[at.channel_busy + channel] = 0
        schedule_now(ints, at, CHANNEL_FREE + KINDS * channel)
    schedule_now(ints, at, TASK_DONE + KINDS * task)
    if at.circuits_turn:
        turn(ints, reals, at, TASK_ENDED, task)
    position = ints[at.position + actor] + 1
    ints[at.position + actor] = position
    ints[at.phase + actor] = AWAITS_TASKS
    if position < ints[at.first_actor_task + actor + 1]:
        ints[at.next_dependency + actor] = ints[at.first_dependency + ints[at.actor_task + position]]


def resume(ints: Ints, reals: Reals, at: Offsets, turn: Turn, actor: int) -> None:
    """Run an actor, from task to task, until it has to wait; a child runs its program alone."""
    while True:
        is_child = actor >= at.actor_count
        if not is_child and not begin_task(ints, reals, at, actor):
            return
        if not run_program(ints, reals, at, turn, actor):
            return
        if is_child:
            schedule_now(ints, at, CHILD_ENDED + KINDS * ints[at.parent + actor])
            return
        ints[at.runs_left + actor] -= 1
        if ints[at.runs_left + actor] > 0:
            task = ints[at.actor_task + ints[at.position + actor]]
            ints[at.program_counter + actor] = ints[at.program_start + task]
        else:
            end_task(ints, reals, at, turn, actor)


def next_event(ints: Ints, reals: Reals, at: Offsets) -> int:
    """Take the next event and set the clock to its time; -1 if there is none."""
    head = ints[at.start_head]
    if head < ints[at.start_tail]:
        ints[at.start_head] = head + 1
        return ints[at.start_event + (head & at.ring_mask)]
    earliest_s, from_heap = reals[at.wake_time_s], False
    if ints[at.heap_size] > 0:
        heap_s = reals[at.heap_time_s]
        set_before = ints[at.heap_sequence] < ints[at.wake_sequence]
        if heap_s < earliest_s or (heap_s == earliest_s and set_before):
            earliest_s, from_heap = heap_s, True
    if earliest_s > reals[at.now_s]:
        head = ints[at.now_head]
        if head < ints[at.now_tail]:
            ints[at.now_head] = head + 1
            return ints[at.now_event + (head & at.ring_mask)]
        if earliest_s == math.inf:
            return -1
        reals[at.now_s] = earliest_s
    if from_heap:
        return pop_heap(ints, reals, at)
    reals[at.wake_time_s] = math.inf
    return TRANSFERS_END + KINDS * ints[at.wake_token]


def handle_event(ints: Ints, reals: Reals, at: Offsets, turn: Turn, event: int) -> int:
    """Do what an event says (see the table in `state`); return the first actor that it lets go on, or -1."""
    kind, subject = event % KINDS, event // KINDS
    if kind == RESUME:
        return subject
    if kind == TASK_DONE:
        ints[at.is_done + subject] = 1
        return ints[at.first_waiter + subject]
    if kind == CHANNEL_FREE:
        grant_channel(ints, at, subject)
    elif kind == CHILD_ENDED:
        ints[at.pending + subject] -= 1
        if ints[at.pending + subject] == 0:
            schedule_now(ints, at, RESUME + KINDS * subject)
    elif kind == MOVE_BEGINS:
        turn_s = reals[at.turn_s + ints[at.move_ports + subject]]
        schedule_later(ints, reals, at, turn_s, MOVE_ENDS + KINDS * subject)
    elif kind == MOVE_ENDS:
        turn(ints, reals, at, MOVE_ENDED, subject)
    elif subject == ints[at.wake_token]:
        end_transfers(ints, reals, at, turn)
    return -1


def play(ints: Ints, reals: Reals, at: Offsets, turn: Turn) -> None:
    """Run events until none is left, there is no room for one more change of circuits, or one has no entry.

    With no event left, circuits turn at once for the first that waits, whatever it was patient for.
    """
    while True:
        event = next_event(ints, reals, at)
        if event < 0:
            ints[at.is_over] = 1
            if not at.circuits_turn or not turn(ints, reals, at, LINKS_FREED, 0) or ints[at.unknown_setting]:
                return
            ints[at.is_over] = 0
            continue
        actor = handle_event(ints, reals, at, turn, event)
        while actor >= 0:
            following = ints[at.next_waiter + actor] if event % KINDS == TASK_DONE else -1
            resume(ints, reals, at, turn, actor)
            actor = following
        if ints[at.change_count] >= at.change_room or ints[at.unknown_setting]:
            return


class Turning(Enum):
    """Ways in which circuits turn during a step; `turn` is compiled for each by itself."""

    NONE = auto()
    """They stay."""
    LANES = auto()
    """Lane by lane."""
    PARTS = auto()
    """Part by part."""


Play = Callable[[np.ndarray, np.ndarray, np.void], None]
"""`play` on arrays, with offsets as `record` returns them."""
Compiled = Any
"""Function that numba is to compile or has compiled, or a type of numba's."""
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
"""Options of numba: a division by zero is infinite as in numpy; nothing counts references to the arrays,
which the caller holds (counts took half of the time of events on packets)."""
_COMPILED: dict[Turning, Play | None] = {}


def compiled_play(turning: Turning) -> Play | None:
    """Return `play` compiled, for arrays in place of lists; None where numba is missing or switched off.

    Parameters
    ----------
    turning : Turning
        Way in which circuits may turn.

    Notes
    -----
    What is compiled are copies of the functions that call each other's copies, so that plain Python still has
    the plain ones. The loop is compiled once for all, and gets `turn` as a pointer to a function that is
    compiled apart, so that neither is compiled again for the other. numba keeps machine code on disk where it
    finds a folder to write to; else each process compiles anew.
    """
    if turning not in _COMPILED:
        _COMPILED[turning] = _compile(turning)
    return _COMPILED[turning]


def is_compiled(turning: Turning) -> bool:
    """Return whether this process has the loop compiled for such circuits already."""
    return turning in _COMPILED


def _compile(turning: Turning) -> Play | None:
    """Compile `play` and `turn`; return None where numba is missing or switched off."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        return None
    try:
        import numba  # noqa: PLC0415 - its import takes longer than most steps
    except ImportError:  # it is an extra
        return None
    places = numba.typeof(record(range(len(Offsets._fields))))
    arguments = (numba.int64[::1], numba.float64[::1], places)
    turn_type = numba.int64(*arguments, numba.int64, numba.int64)
    loop = _play_to_compile()
    with _without_garbage_collection(), _locked(loop.stats.cache_path):
        loop.compile((*arguments, numba.types.FunctionType(turn_type)))
        compiled_turn = _compiled_turn(turning, turn_type)
    return lambda ints, reals, at: loop(ints, reals, at, compiled_turn)


@cache
def _play_to_compile() -> Compiled:
    """Return `play` as a function of numba's that is not compiled yet."""
    import numba  # noqa: PLC0415

    names = _with_copies(__name__, {**globals(), **_state_copies()}, _call_sites((play,), globals()))
    return _cached(partial(numba.njit, nogil=True), play, names, f"{play.__name__}_{_digest()}")


def _compiled_turn(turning: Turning, signature: Compiled) -> Compiled:
    """Return `turn` for a way of turning, compiled as a function that `play` can be handed."""
    import numba  # noqa: PLC0415

    root = stay if turning is Turning.NONE else turn
    own = vars(circuits) | (NO_PARTS if turning is Turning.LANES else {})
    names = _with_copies(circuits.__name__, {**own, **_state_copies()}, _call_sites((root,), own))
    return _cached(
        partial(numba.cfunc, signature), root, names, f"{root.__name__}_{_digest()}_{turning.name}"
    )


@cache
def _state_copies() -> Mapping[str, Any]:
    """Return the names of `state`, with copies of its functions that `play` and `turn` share."""
    calls = _call_sites((play, turn), {**vars(state), **vars(circuits), **globals()})
    return _with_copies(state.__name__, vars(state), calls)


def _with_copies(module: str, names: Mapping[str, Any], calls: Mapping[str, int]) -> dict[str, Any]:
    """Return names, with the functions of a module replaced by copies for numba that call each other.

    Parameters
    ----------
    module : str
        Module whose functions are replaced.
    names : mapping
        Everything that the functions may refer to.
    calls : mapping
        Call sites of each function: one with a single site is compiled there, and not by itself as well.
    """
    import numba  # noqa: PLC0415

    found = dict(names)
    inner: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # half the time to compile
    for name, sites in calls.items():
        function = names.get(name)
        if isinstance(function, FunctionType) and function.__module__ == module:
            options = inner if sites > 1 else {"inline": "always"}
            found[name] = numba.njit(**_OPTIONS, **options)(FunctionType(function.__code__, found, name))
    return found


def _cached(decorator: Callable[..., Any], function: Compiled, names: dict[str, Any], name: str) -> Compiled:
    """Return a copy of a function under a decorator of numba, with its machine code kept on disk if possible.

    Parameters
    ----------
    decorator : callable
        `numba.njit` or `numba.cfunc`.
    function : function
        The function.
    names : dict
        Its globals.
    name : str
        Name by which numba finds its machine code again.
    """
    copied = FunctionType(function.__code__, names, function.__name__)
    copied.__qualname__ = name
    return kept_on_disk(partial(decorator, **_OPTIONS), copied)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Switch garbage collection off: numba's millions of objects are in use until it has compiled."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _call_sites(roots: Iterable[Any], names: Mapping[str, Any]) -> Counter[str]:
    """Return the number of call sites of every function among `names` that roots call, directly or not."""
    calls: Counter[str] = Counter()
    code = [root.__code__ for root in roots]
    while code:
        used = [one.argval for one in dis.get_instructions(code.pop()) if one.opname == "LOAD_GLOBAL"]
        used = [name for name in used if isinstance(names.get(name), FunctionType)]
        code += [names[name].__code__ for name in set(used) - calls.keys()]
        calls.update(used)
    return calls


def record(at: Iterable[int]) -> np.void:
    """Return offsets as one record, which is how compiled code takes them."""
    found: np.void = np.array([tuple(at)], dtype=[(name, np.int64) for name in Offsets._fields])[0]
    return found


@contextmanager
def _locked(folder: str | None) -> Iterator[None]:
    """Let one process at a time compile into a folder; those that wait find the machine code there."""
    if folder is None:
        yield
        return
    with (Path(folder) / "loop.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _digest() -> str:
    """Return a digest of everything that is compiled together; numba itself looks at one file only."""
    sources = [Path(one).read_bytes() for one in (__file__, state.__file__, circuits.__file__)]
    constants = repr((DONE_SHARE, TOLERANCE, SETTLED)).encode()
    return hashlib.blake2b(b"".join((*sources, constants)), digest_size=6).hexdigest()
