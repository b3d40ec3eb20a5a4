"""Event loop of a step on two flat memories, compiled by numba where that is installed.

The loop takes the events of the reference (`simulator.engine.simulation`, on simpy) in the reference's order,
ties included: events of one instant go by the order in which they were set, starts of processes before all
others. Every state is a number in one of two memories, whole numbers and reals; `At` says where each table
begins. The same functions run on lists in plain Python, and then give the same bits.
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

from simulator.engine.compiled import memory, turns
from simulator.engine.compiled.memory import (
    AHEAD,
    BEGIN,
    BESIDE,
    CHARGE,
    DONE,
    END,
    ENDED,
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
    task_of,
)
from simulator.engine.compiled.turns import (
    COMING,
    DONE_WITH,
    FREED,
    LIT_UP,
    NEEDED,
    NO_PARTS,
    Turn,
    stay,
    turn,
)
from simulator.engine.network import DONE_SHARE, TOLERANCE
from simulator.engine.simulation import SETTLED
from simulator.files import kept_on_disk


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


def is_carried(ints: Ints, reals: Reals, at: At, turn: Turn, actor: int) -> bool:
    """Return whether an actor has nothing to carry once its circuits stand; if not, wait for either."""
    counter = ints[at.counter + actor] - 1
    if at.turns and not turn(ints, reals, at, NEEDED, actor):
        return False
    if reals[at.x + counter] <= 0.0:
        return True
    begin_transfer(ints, reals, at, actor, counter)
    return False


def end_transfers(ints: Ints, reals: Reals, at: At, turn: Turn) -> None:
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
        turn(ints, reals, at, FREED, 0)


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


def begin_work(reals: Reals, at: At, rank_class: int, work_s: float, busy_s: float) -> None:
    """Note work of a class of so many seconds, in so many of which its units are busy; -1: of none."""
    if rank_class < 0:
        return
    last_s = reals[at.work_end_s + rank_class] - reals[at.work_begin_s + rank_class]
    reals[at.worked_s + rank_class] += reals[at.busy_share + rank_class] * last_s
    reals[at.work_begin_s + rank_class] = reals[at.now]
    reals[at.work_end_s + rank_class] = reals[at.now] + work_s
    reals[at.busy_share + rank_class] = busy_s / work_s if work_s > 0.0 else 0.0


def settle(ints: Ints, reals: Reals, at: At, rank_class: int) -> None:
    """Count what collectives have taken of a class until now."""
    until_s = min(reals[at.now], reals[at.work_end_s + rank_class])
    busy_s = reals[at.busy_share + rank_class] * (until_s - reals[at.work_begin_s + rank_class])
    worked_s = reals[at.worked_s + rank_class] + busy_s
    if ints[at.collectives + rank_class] > 0:
        taken_s = worked_s - reals[at.settled_s + rank_class]
        reals[at.owed_s + rank_class] += reals[at.collective_share] * taken_s
    reals[at.settled_s + rank_class] = worked_s


def is_worked(ints: Ints, reals: Reals, at: At, actor: int) -> bool:
    """Return whether the work of an actor's instruction is done; if not, let it go on."""
    counter = ints[at.counter + actor] - 1
    rank_class, work_s = ints[at.i + counter], reals[at.x + counter]
    if not ints[at.working + rank_class]:
        ints[at.working + rank_class] = 1
        reals[at.slack_left_s + rank_class] = reals[at.slack_s + counter]
        begin_work(reals, at, rank_class, work_s, reals[at.busy_s + counter])
        push_later(ints, reals, at, work_s, RESUME + KINDS * actor)
        ints[at.counter + actor] = counter
        return False
    settle(ints, reals, at, rank_class)
    caught_up_s = min(reals[at.owed_s + rank_class], reals[at.slack_left_s + rank_class])
    reals[at.slack_left_s + rank_class] -= caught_up_s
    late_s = reals[at.owed_s + rank_class] - caught_up_s
    reals[at.owed_s + rank_class] = late_s
    if late_s <= SETTLED * work_s:
        ints[at.working + rank_class] = 0
        return True
    reals[at.owed_s + rank_class] = 0.0
    reals[at.waited_s + task_of(ints, at, actor)] += late_s
    begin_work(reals, at, rank_class, late_s, late_s)
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


def step_program(ints: Ints, reals: Reals, at: At, turn: Turn, actor: int) -> bool:
    """Run an actor's program up to where it waits; return False there, and True at its end."""
    counter = ints[at.counter + actor]
    while True:
        op, x = ints[at.op + counter], reals[at.x + counter]
        note(ints, reals, at, actor, counter)
        counter += 1
        ints[at.counter + actor] = counter
        if op == PATH:
            x *= reals[at.latency + ints[at.row + ints[at.i + counter - 1]]]
            op = SLEEP
        if op == SLEEP:
            push_later(ints, reals, at, x, RESUME + KINDS * actor)
            return False
        carried = op != MOVE or is_carried(ints, reals, at, turn, actor)
        if not carried or (op == WORK and not is_worked(ints, reals, at, actor)):
            return False
        if op == LATE:
            late_s = x - (reals[at.now] - reals[at.begin_s + actor])
            if late_s > 0.0:
                reals[at.issued_s + task_of(ints, at, actor)] += late_s
                push_later(ints, reals, at, late_s, RESUME + KINDS * actor)
                return False
        elif op == AHEAD:
            counter = turn(ints, reals, at, COMING, actor)
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


def end_task(ints: Ints, reals: Reals, at: At, turn: Turn, actor: int) -> None:
    """Note the end of an actor's task, free its channel, and go on to the next one."""
    task = ints[at.order + ints[at.place + actor]]
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
    if at.turns:
        turn(ints, reals, at, DONE_WITH, task)
    place = ints[at.place + actor] + 1
    ints[at.place + actor] = place
    ints[at.phase + actor] = WAITING
    if place < ints[at.first_order + actor + 1]:
        ints[at.wait + actor] = ints[at.first_after + ints[at.order + place]]


def is_running(ints: Ints, reals: Reals, at: At, actor: int) -> bool:
    """Return whether an actor runs a program; if not, it waits, or has no more tasks. Children always run."""
    if actor >= at.actors or ints[at.phase + actor] == RUNNING:
        return True
    if ints[at.place + actor] >= ints[at.first_order + actor + 1]:
        return False
    task = ints[at.order + ints[at.place + actor]]
    if ints[at.phase + actor] == WAITING:
        if not wait_for_others(ints, at, actor, task):
            return False
        ints[at.phase + actor] = TURN
        if ints[at.channel + task] >= 0:
            request(ints, at, ints[at.channel + task], actor)
            return False
    ints[at.phase + actor] = RUNNING
    reals[at.start_s + task] = reals[at.now]
    if ints[at.takes + task] >= 0:
        settle(ints, reals, at, ints[at.takes + task])
        ints[at.collectives + ints[at.takes + task]] += 1
    ints[at.again + actor] = ints[at.times + task]
    ints[at.counter + actor] = ints[at.program + task]
    return True


def resume(ints: Ints, reals: Reals, at: At, turn: Turn, actor: int) -> None:
    """Let an actor go on until it waits again."""
    while True:
        if not is_running(ints, reals, at, actor) or not step_program(ints, reals, at, turn, actor):
            return
        if actor >= at.actors:
            push(ints, at, ENDED + KINDS * ints[at.place + actor])
            return
        ints[at.again + actor] -= 1
        if ints[at.again + actor] > 0:
            ints[at.counter + actor] = ints[at.program + ints[at.order + ints[at.place + actor]]]
        else:
            end_task(ints, reals, at, turn, actor)


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


def take(ints: Ints, reals: Reals, at: At, turn: Turn, event: int) -> int:
    """Do what an event is about; return the first actor that it lets go on, -1 if none."""
    kind, what = event % KINDS, event // KINDS
    if kind == RESUME:
        return what
    if kind == DONE:
        ints[at.done + what] = 1
        return ints[at.first_waiter + what]
    if kind == RELEASE:
        grant(ints, at, what)
    elif kind == ENDED:
        ints[at.left + what] -= 1
        if ints[at.left + what] == 0:
            push(ints, at, RESUME + KINDS * what)
    elif kind == MOVED:
        push_later(ints, reals, at, reals[at.turn_s + ints[at.change_ports + what]], LIT + KINDS * what)
    elif kind == LIT:
        turn(ints, reals, at, LIT_UP, what)
    elif what == ints[at.token]:
        end_transfers(ints, reals, at, turn)
    return -1


def play(ints: Ints, reals: Reals, at: At, turn: Turn) -> None:
    """Run all events, or so many that there is no room for one more change of circuits, or one is a fault."""
    while True:
        event = next_event(ints, reals, at)
        if event < 0:
            ints[at.over] = 1
            if not at.turns or not turn(ints, reals, at, FREED, 0) or ints[at.fault]:
                return
            ints[at.over] = 0
            continue
        actor = take(ints, reals, at, turn, event)
        while actor >= 0:
            following = ints[at.next_waiter + actor] if event % KINDS == DONE else -1
            resume(ints, reals, at, turn, actor)
            actor = following
        if ints[at.changes] >= at.most_changes or ints[at.fault]:
            return


class Turning(Enum):
    """Ways in which circuits turn during a step, for each of which `turn` is compiled by itself."""

    NONE = auto()
    """They stay."""
    LANES = auto()
    """Lane by lane."""
    PARTS = auto()
    """Part by part."""


Play = Callable[[np.ndarray, np.ndarray, np.void], None]
"""`play` on arrays, with places as `record` returns them."""
Compiled = Any
"""A function, before or behind numba, or numba's type of one."""
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
"""Divisions are numpy's. Nothing counts references to the memories, which the caller holds: counts took half
of the time of events on packets."""
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
    The loop is compiled once and handed what turns circuits, which is compiled apart, so that neither grows
    with the other. numba keeps machine code on disk where it finds a folder to write to; else each process
    makes it anew.
    """
    if turning not in _COMPILED:
        _COMPILED[turning] = _compile(turning)
    return _COMPILED[turning]


def is_compiled(turning: Turning) -> bool:
    """Return whether this process has compiled the loop for such circuits already."""
    return turning in _COMPILED


def _compile(turning: Turning) -> Play | None:
    """Compile the loop and what turns circuits; None where numba is missing or switched off."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        return None
    try:
        import numba  # noqa: PLC0415 - its import takes longer than most steps
    except ImportError:  # it is an extra
        return None
    memories = (numba.int64[::1], numba.float64[::1], numba.typeof(record(range(len(At._fields)))))
    turn_type = numba.int64(*memories, numba.int64, numba.int64)
    loop = _loop()
    with _uncollected(), _alone(loop.stats.cache_path):
        loop.compile((*memories, numba.types.FunctionType(turn_type)))
        turned = _turned(turning, turn_type)
    return lambda ints, reals, at: loop(ints, reals, at, turned)


@cache
def _loop() -> Compiled:
    """Return `play` as numba is to compile it, for all ways in which circuits may turn."""
    import numba  # noqa: PLC0415

    names = _copied(__name__, {**globals(), **_events()}, _calls((play,), globals()))
    return _kept(partial(numba.njit, nogil=True), play, names, f"{play.__name__}_{_digest()}")


def _turned(turning: Turning, signature: Compiled) -> Compiled:
    """Return what turns circuits in some way, compiled so that the loop can be handed it."""
    import numba  # noqa: PLC0415

    root = stay if turning is Turning.NONE else turn
    own = vars(turns) | (NO_PARTS if turning is Turning.LANES else {})
    names = _copied(turns.__name__, {**own, **_events()}, _calls((root,), own))
    return _kept(partial(numba.cfunc, signature), root, names, f"{root.__name__}_{_digest()}_{turning.name}")


@cache
def _events() -> Mapping[str, Any]:
    """Return names of `memory`, of its functions copies that are compiled once for all that call them."""
    calls = _calls((play, turn), {**vars(memory), **vars(turns), **globals()})
    return _copied(memory.__name__, vars(memory), calls)


def _copied(module: str, names: Mapping[str, Any], calls: Mapping[str, int]) -> dict[str, Any]:
    """Return names, of a module's functions copies that numba compiles, and that call each other.

    A function that is called at one place is compiled there; else it would be compiled by itself and there.
    """
    import numba  # noqa: PLC0415

    found = dict(names)
    inner: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # half the time to compile
    for name, times in calls.items():
        function = names.get(name)
        if isinstance(function, FunctionType) and function.__module__ == module:
            how = inner if times > 1 else {"inline": "always"}
            found[name] = numba.njit(**_OPTIONS, **how)(FunctionType(function.__code__, found, name))
    return found


def _kept(decorator: Callable[..., Any], function: Compiled, names: dict[str, Any], name: str) -> Compiled:
    """Return a copy of a function by a decorator of numba, whose machine code stays on disk if it can."""
    copied = FunctionType(function.__code__, names, function.__name__)
    copied.__qualname__ = name  # by which numba finds it again
    return kept_on_disk(partial(decorator, **_OPTIONS), copied)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no garbage: numba makes millions of objects that are in use until it has compiled."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _calls(roots: Iterable[Any], names: Mapping[str, Any]) -> Counter[str]:
    """Return at how many places each function among names is called by roots or by others that they need."""
    calls: Counter[str] = Counter()
    code = [one.__code__ for one in roots]
    while code:
        used = [one.argval for one in dis.get_instructions(code.pop()) if one.opname == "LOAD_GLOBAL"]
        used = [name for name in used if isinstance(names.get(name), FunctionType)]
        code += [names[name].__code__ for name in set(used) - calls.keys()]
        calls.update(used)
    return calls


def record(at: Iterable[int]) -> np.void:
    """Return places as compiled code takes them: one record."""
    found: np.void = np.array([tuple(at)], dtype=[(name, np.int64) for name in At._fields])[0]
    return found


@contextmanager
def _alone(folder: str | None) -> Iterator[None]:
    """Let one process at a time compile to a folder; those that wait find it there."""
    if folder is None:
        yield
        return
    with (Path(folder) / "loop.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _digest() -> str:
    """Return a digest of the sources and numbers that are compiled together; numba looks at one file."""
    sources = [Path(one).read_bytes() for one in (__file__, memory.__file__, turns.__file__)]
    numbers = repr((DONE_SHARE, TOLERANCE, SETTLED)).encode()
    return hashlib.blake2b(b"".join((*sources, numbers)), digest_size=6).hexdigest()
