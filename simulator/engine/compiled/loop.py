"""Event loop of a step on two flat memories, compiled by numba where that is installed.

The loop takes the events of the reference (`simulator.engine.simulation`, on simpy) in the reference's order,
ties included: events of one instant go by the order in which they were set, starts of processes before all
others. Every state is a number in one of two memories, whole numbers and reals; `At` says where each table
begins. The same functions run on lists in plain Python, and then give the same bits.
"""

from __future__ import annotations

import dis
import fcntl
import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from simulator.engine.compiled import memory, turns
from simulator.engine.compiled.memory import (
    AHEAD,
    BEGIN,
    BESIDE,
    CHARGE,
    DONE,
    DONE_SHARE,
    END,
    ENDED,
    EVENTS,
    FORK,
    KINDS,
    LATE,
    LIT,
    MARK,
    MOVE,
    MOVED,
    PATH,
    RELEASE,
    RESUME,
    RUNNING,
    SLEEP,
    TURN,
    WAITED,
    WAITING,
    WAKE,
    WORK,
    At,
    Ints,
    Reals,
    advance,
    insert,
    pop_heap,
    push,
    push_later,
    set_wake,
    solve,
    start_process,
)
from simulator.engine.compiled.turns import (
    NO_PARTS,
    NO_TURNS,
    PARTS,
    TURNS,
    end_communication,
    light_up,
    serve,
    task_of,
    turn_ahead,
    wait_for_circuits,
)
from simulator.engine.simulation import SETTLED


def begin_transfer(ints: Ints, reals: Reals, at: At, actor: int, counter: int) -> None:
    """Let a group of flows move as an instruction says, behind those that were numbered before it."""
    group, size = ints[at.i + counter], reals[at.x + counter]
    advance(ints, reals, at)
    row = ints[at.row + group]
    shared = False
    for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
        shared = shared or ints[at.users + ints[at.link + p]] > 0
    place = insert(ints, reals, at, group, actor)
    reals[at.bytes_left + place] = size
    reals[at.size + place] = size
    if shared:
        solve(ints, reals, at)
    set_wake(ints, reals, at)


def is_carried(ints: Ints, reals: Reals, at: At, actor: int, counter: int) -> bool:
    """Return whether an instruction has nothing to carry once its circuits stand; else wait for either."""
    if at.turns and not wait_for_circuits(ints, reals, at, actor, counter):
        return False
    if reals[at.x + counter] <= 0.0:
        return True
    begin_transfer(ints, reals, at, actor, counter)
    return False


def end_transfers(ints: Ints, reals: Reals, at: At) -> None:
    """End the transfers whose last byte has left, and share what they leave."""
    advance(ints, reals, at)
    count = ints[at.transfers]
    soonest = math.inf
    for k in range(count):
        soonest = min(soonest, reals[at.bytes_left + k] / reals[at.rate + k])
    kept = 0
    for k in range(count):
        left, group = reals[at.bytes_left + k], ints[at.group + k]
        if left <= reals[at.size + k] * DONE_SHARE or left / reals[at.rate + k] <= soonest:
            push(ints, at, RESUME + KINDS * ints[at.moving + k])
            row = ints[at.row + group]
            for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
                ints[at.users + ints[at.link + p]] -= 1
            ints[at.frozen + k - kept] = group  # behind what is kept, room for the groups that ended
            continue
        ints[at.group + kept] = group
        ints[at.moving + kept] = ints[at.moving + k]
        reals[at.bytes_left + kept] = left
        reals[at.size + kept] = reals[at.size + k]
        reals[at.rate + kept] = reals[at.rate + k]
        kept += 1
    ints[at.transfers] = kept
    shared = False
    for e in range(count - kept):
        row = ints[at.row + ints[at.frozen + e]]
        for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
            shared = shared or ints[at.users + ints[at.link + p]] > 0
    if shared:
        solve(ints, reals, at)
    set_wake(ints, reals, at)
    if at.turns:
        serve(ints, reals, at)


def grant(ints: Ints, at: At, channel: int) -> None:
    """Give a free channel to the first that waits for it."""
    actor = ints[at.first_queued + channel]
    if ints[at.busy + channel] or actor < 0:
        return
    ints[at.first_queued + channel] = ints[at.next_queued + actor]
    ints[at.busy + channel] = 1
    push(ints, at, RESUME + KINDS * actor)


def request(ints: Ints, at: At, channel: int, actor: int) -> None:
    """Queue for a channel."""
    ints[at.next_queued + actor] = -1
    if ints[at.first_queued + channel] < 0:
        ints[at.first_queued + channel] = actor
    else:
        ints[at.next_queued + ints[at.last_queued + channel]] = actor
    ints[at.last_queued + channel] = actor
    grant(ints, at, channel)


def wait_for_others(ints: Ints, at: At, actor: int, task: int) -> bool:
    """Return whether all that a task waits for is done; if not, wait for the first that is not."""
    place, last = ints[at.wait + actor], ints[at.first_after + task + 1]
    while place < last:
        other = ints[at.after + place]
        if not ints[at.done + other]:
            ints[at.wait + actor] = place
            ints[at.next_waiter + actor] = -1
            if ints[at.first_waiter + other] < 0:
                ints[at.first_waiter + other] = actor
            else:
                ints[at.next_waiter + ints[at.last_waiter + other]] = actor
            ints[at.last_waiter + other] = actor
            return False
        place += 1
    ints[at.wait + actor] = place
    return True


def charge(ints: Ints, at: At, number: int) -> None:
    """Note a charge."""
    ints[at.log + ints[at.logged]] = number
    ints[at.logged] += 1


def fork(ints: Ints, at: At, actor: int, counter: int) -> int:
    """Start the levels of a collective and return the instruction behind them."""
    many = ints[at.j + counter]
    ints[at.left + actor] = many
    for level in range(many):
        child = ints[at.first_child + actor] + 1 + level
        ints[at.counter + child] = ints[at.i + counter + 1 + level]
        ints[at.place + child] = actor  # whom it belongs to
        start_process(ints, at, child)
    return counter + 1 + many


def begin_work(reals: Reals, at: At, one: int, work_s: float, busy_s: float) -> None:
    """Note work of a class of so many seconds, in so many of which its units are busy; -1: of none."""
    if one < 0:
        return
    last_s = reals[at.work_end_s + one] - reals[at.work_begin_s + one]
    reals[at.worked_s + one] += reals[at.busy_share + one] * last_s
    reals[at.work_begin_s + one] = reals[at.now]
    reals[at.work_end_s + one] = reals[at.now] + work_s
    reals[at.busy_share + one] = busy_s / work_s if work_s > 0.0 else 0.0


def settle(ints: Ints, reals: Reals, at: At, one: int) -> None:
    """Count what collectives have taken of a class until now."""
    until_s = min(reals[at.now], reals[at.work_end_s + one])
    busy_s = reals[at.busy_share + one] * (until_s - reals[at.work_begin_s + one])
    worked_s = reals[at.worked_s + one] + busy_s
    if ints[at.collectives + one] > 0:
        taken_s = worked_s - reals[at.settled_s + one]
        reals[at.owed_s + one] += reals[at.collective_share] * taken_s
    reals[at.settled_s + one] = worked_s


def is_worked(ints: Ints, reals: Reals, at: At, actor: int) -> bool:
    """Return whether the work of an actor's instruction is done; if not, let it go on."""
    counter = ints[at.counter + actor] - 1
    one, work_s = ints[at.i + counter], reals[at.x + counter]
    if not ints[at.working + one]:
        ints[at.working + one] = 1
        reals[at.slack_left_s + one] = reals[at.slack_s + counter]
        begin_work(reals, at, one, work_s, reals[at.busy_s + counter])
        push_later(ints, reals, at, work_s, RESUME + KINDS * actor)
        ints[at.counter + actor] = counter
        return False
    settle(ints, reals, at, one)
    caught_up_s = min(reals[at.owed_s + one], reals[at.slack_left_s + one])
    reals[at.slack_left_s + one] -= caught_up_s
    late_s = reals[at.owed_s + one] - caught_up_s
    reals[at.owed_s + one] = late_s
    if late_s <= SETTLED * work_s:
        ints[at.working + one] = 0
        return True
    reals[at.owed_s + one] = 0.0
    reals[at.waited_s + task_of(ints, at, actor)] += late_s
    begin_work(reals, at, one, late_s, late_s)
    push_later(ints, reals, at, late_s, RESUME + KINDS * actor)
    ints[at.counter + actor] = counter
    return False


def note(ints: Ints, reals: Reals, at: At, actor: int, counter: int) -> None:
    """Do what an instruction says if it takes no time and starts nothing."""
    op = ints[at.op + counter]
    if op == CHARGE:
        charge(ints, at, ints[at.i + counter])
    elif op == MARK:
        reals[at.mark_s + actor] = reals[at.now]
    elif op == WAITED:
        waited_s = reals[at.now] - reals[at.mark_s + actor] - reals[at.x + counter]
        reals[at.waited_s + task_of(ints, at, actor)] += waited_s
    elif op == BEGIN:
        reals[at.begin_s + actor] = reals[at.now]


def step_program(ints: Ints, reals: Reals, at: At, actor: int) -> bool:
    """Run an actor's program up to where it waits; return False there, and True at its end."""
    counter = ints[at.counter + actor]
    while True:
        op, x = ints[at.op + counter], reals[at.x + counter]
        note(ints, reals, at, actor, counter)
        counter += 1
        ints[at.counter + actor] = counter
        if op in (SLEEP, PATH):
            if op == PATH:
                x *= reals[at.latency + ints[at.row + ints[at.i + counter - 1]]]
            push_later(ints, reals, at, x, RESUME + KINDS * actor)
            return False
        carried = op != MOVE or is_carried(ints, reals, at, actor, counter - 1)
        if not carried or (op == WORK and not is_worked(ints, reals, at, actor)):
            return False
        if op == LATE:
            late_s = x - (reals[at.now] - reals[at.begin_s + actor])
            if late_s > 0.0:
                reals[at.issued_s + task_of(ints, at, actor)] += late_s
                push_later(ints, reals, at, late_s, RESUME + KINDS * actor)
                return False
        elif op == AHEAD:
            counter = turn_ahead(ints, reals, at, actor, counter - 1)
        elif op == FORK:
            ints[at.counter + actor] = fork(ints, at, actor, counter - 1)
            return False
        elif op == BESIDE:
            child = ints[at.first_child + actor]
            begin_work(reals, at, ints[at.j + counter - 1], x, x)
            ints[at.left + actor] = 2
            ints[at.counter + child] = ints[at.i + counter - 1]
            ints[at.place + child] = actor
            start_process(ints, at, child)
            push_later(ints, reals, at, x, ENDED + KINDS * actor)
            return False
        elif op == END:
            return True


def end_task(ints: Ints, reals: Reals, at: At, actor: int, task: int) -> None:
    """Note the end of a task, free its channel, and go on to the actor's next one."""
    reals[at.end_s + task] = reals[at.now]
    if ints[at.takes + task] >= 0:
        settle(ints, reals, at, ints[at.takes + task])
        ints[at.collectives + ints[at.takes + task]] -= 1
    ints[at.finished + ints[at.ended]] = task
    ints[at.ended] += 1
    channel = ints[at.channel + task]
    if channel >= 0:
        ints[at.busy + channel] = 0
        push(ints, at, RELEASE + KINDS * channel)
    push(ints, at, DONE + KINDS * task)
    if at.turns and channel >= 0:
        end_communication(ints, reals, at, task)
    place = ints[at.place + actor] + 1
    ints[at.place + actor] = place
    ints[at.phase + actor] = WAITING
    if place < ints[at.first_order + actor + 1]:
        ints[at.wait + actor] = ints[at.first_after + ints[at.order + place]]


def resume(ints: Ints, reals: Reals, at: At, actor: int) -> None:
    """Let an actor go on until it waits again."""
    if actor >= at.actors:
        if step_program(ints, reals, at, actor):
            push(ints, at, ENDED + KINDS * ints[at.place + actor])
        return
    while ints[at.place + actor] < ints[at.first_order + actor + 1]:
        task = ints[at.order + ints[at.place + actor]]
        if ints[at.phase + actor] == WAITING:
            if not wait_for_others(ints, at, actor, task):
                return
            ints[at.phase + actor] = TURN
            if ints[at.channel + task] >= 0:
                request(ints, at, ints[at.channel + task], actor)
                return
        if ints[at.phase + actor] == TURN:
            ints[at.phase + actor] = RUNNING
            reals[at.start_s + task] = reals[at.now]
            if ints[at.takes + task] >= 0:
                settle(ints, reals, at, ints[at.takes + task])
                ints[at.collectives + ints[at.takes + task]] += 1
            ints[at.again + actor] = ints[at.times + task]
            ints[at.counter + actor] = ints[at.program + task]
        while ints[at.again + actor] > 0:
            if not step_program(ints, reals, at, actor):
                return
            ints[at.again + actor] -= 1
            ints[at.counter + actor] = ints[at.program + task]
        end_task(ints, reals, at, actor, task)


def next_event(ints: Ints, reals: Reals, at: At) -> int:
    """Take the next event and set the clock to it; -1 if there is none."""
    head = ints[at.starts_head]
    if head < ints[at.starts_tail]:
        ints[at.starts_head] = head + 1
        return ints[at.starts + (head & at.ring)]
    earliest, wakes = reals[at.wake_s], True
    if ints[at.heap_size] > 0:
        first = reals[at.heap_s]
        if first < earliest or (first == earliest and ints[at.heap_order] < ints[at.wake_order]):
            earliest, wakes = first, False
    if earliest > reals[at.now]:
        head = ints[at.queue_head]
        if head < ints[at.queue_tail]:
            ints[at.queue_head] = head + 1
            return ints[at.queue + (head & at.ring)]
        if earliest == math.inf:
            return -1
        reals[at.now] = earliest
    if not wakes:
        return pop_heap(ints, reals, at)
    reals[at.wake_s] = math.inf
    return WAKE + KINDS * ints[at.token]


def take(ints: Ints, reals: Reals, at: At, event: int) -> None:
    """Do what an event is about."""
    kind, what = event % KINDS, event // KINDS
    if kind == RESUME:
        resume(ints, reals, at, what)
    elif kind == DONE:
        ints[at.done + what] = 1
        actor = ints[at.first_waiter + what]
        while actor >= 0:
            following = ints[at.next_waiter + actor]
            resume(ints, reals, at, actor)
            actor = following
    elif kind == RELEASE:
        grant(ints, at, what)
    elif kind == ENDED:
        ints[at.left + what] -= 1
        if ints[at.left + what] == 0:
            push(ints, at, RESUME + KINDS * what)
    elif kind == MOVED:
        push_later(ints, reals, at, reals[at.turn_s + ints[at.change_ports + what]], LIT + KINDS * what)
    elif kind == LIT:
        light_up(ints, reals, at, what)
    elif what == ints[at.token]:
        end_transfers(ints, reals, at)


def play(ints: Ints, reals: Reals, at: At) -> None:
    """Run all events, or so many that there is no room for one more change of circuits, or one is a fault."""
    while True:
        event = next_event(ints, reals, at)
        if event < 0:
            ints[at.over] = 1
            if not at.turns or not serve(ints, reals, at) or ints[at.fault]:
                return
            ints[at.over] = 0
            continue
        take(ints, reals, at, event)
        if ints[at.changes] >= at.most_changes or ints[at.fault]:
            return


_FUNCTIONS = (
    *EVENTS,
    *TURNS,
    begin_transfer,
    is_carried,
    end_transfers,
    grant,
    request,
    wait_for_others,
    charge,
    fork,
    begin_work,
    settle,
    is_worked,
    note,
    step_program,
    end_task,
    resume,
    next_event,
    take,
)
"""What `play` calls, each behind those that it calls itself."""


class Turning(Enum):
    """Ways in which circuits turn during a step, for each of which the loop is compiled by itself."""

    NONE = auto()
    """They stay."""
    LANES = auto()
    """Lane by lane."""
    PARTS = auto()
    """Part by part."""


UNUSED: Mapping[Turning, Mapping[str, Callable[..., object]]] = {
    Turning.NONE: NO_TURNS,
    Turning.LANES: NO_PARTS,
    Turning.PARTS: {},
}
"""What stands for functions that nothing calls then."""
Play = Callable[[np.ndarray, np.ndarray, np.void], None]
"""`play` on arrays, with places as `record` returns them."""
_COMPILED: dict[Turning, Play | None] = {}


def compiled_play(turning: Turning) -> Play | None:
    """Return `play` compiled, for arrays in place of lists; None where numba is missing or switched off.

    Parameters
    ----------
    turning : Turning
        Way in which circuits may turn.

    Notes
    -----
    The functions are compiled as copies that call each other's copies, so that the plain ones stay plain.
    numba keeps machine code on disk where it finds a folder to write to; else each process makes it anew.
    """
    if turning not in _COMPILED:
        _COMPILED[turning] = _compile(turning)
    return _COMPILED[turning]


def is_compiled(turning: Turning) -> bool:
    """Return whether this process has compiled the loop for such circuits already."""
    return turning in _COMPILED


def _compile(turning: Turning) -> Play | None:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        return None
    try:
        import numba  # noqa: PLC0415 - its import takes longer than most steps
    except ImportError:  # it is an extra
        return None
    names = {**vars(memory), **vars(turns), **globals()}
    functions: dict[str, Any] = {one.__name__: one for one in (*_FUNCTIONS, *PARTS)}
    functions |= UNUSED[turning]
    calls = _calls(functions)
    inner: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # half the time to compile
    for name, function in functions.items():
        copied = FunctionType(function.__code__, names, name)
        how = inner if calls[name] > 1 else {"inline": "always"}  # else compiled in its caller and by itself
        names[name] = numba.njit(error_model="numpy", **how)(copied)
    copied = FunctionType(play.__code__, names, play.__name__)
    copied.__qualname__ = f"{play.__name__}_{_digest()}_{turning.name}"  # by which numba finds it again
    try:
        found: Any = numba.njit(nogil=True, cache=True, error_model="numpy")(copied)
    except RuntimeError:  # no folder for what is compiled
        found = numba.njit(nogil=True, error_model="numpy")(copied)
    with _alone(found.stats.cache_path, copied.__qualname__):
        found.compile((numba.int64[::1], numba.float64[::1], numba.typeof(record(range(len(At._fields))))))
    fast: Play = found
    return fast


def _calls(functions: Mapping[str, Any]) -> Counter[str]:
    """Return at how many places each of some functions is called by `play` or by another that it needs."""
    calls: Counter[str] = Counter()
    code = [play.__code__]
    while code:
        used = [one.argval for one in dis.get_instructions(code.pop()) if one.opname == "LOAD_GLOBAL"]
        used = [name for name in used if name in functions]
        code += [functions[name].__code__ for name in set(used) - calls.keys()]
        calls.update(used)
    return calls


def record(at: Iterable[int]) -> np.void:
    """Return places as compiled code takes them: one record."""
    found: np.void = np.array([tuple(at)], dtype=[(name, np.int64) for name in At._fields])[0]
    return found


@contextmanager
def _alone(folder: str | None, name: str) -> Iterator[None]:
    """Let one process at a time compile what goes to a folder; those that wait find it there."""
    if folder is None:
        yield
        return
    with (Path(folder) / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _digest() -> str:
    """Return a digest of the sources that are compiled together, of which numba looks at one."""
    sources = (Path(one).read_bytes() for one in (__file__, memory.__file__, turns.__file__))
    return hashlib.blake2b(b"".join(sources), digest_size=6).hexdigest()
