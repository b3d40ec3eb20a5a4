"""Queues of events and fair shares of links: what the loop of a step and its circuits both stand on."""

from __future__ import annotations

import math

from simulator.engine.compiled.memory import KINDS, RESUME, WAKE, At, Ints, Reals

DONE_SHARE = 1e-12
"""Share of a transfer that may be left over by rounding, as in `simulator.engine.network`; dimensionless."""
TOLERANCE = 1e-12
"""Relative slack within which two shares are equal, as in `simulator.engine.fairshare`; dimensionless."""


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


def fill_shares(ints: Ints, reals: Reals, at: At) -> None:
    """Set the fair share of every transfer that is not frozen, and of each class of links its slowest."""
    count = ints[at.transfers]
    for k in range(count):
        if not ints[at.frozen + k]:
            group = ints[at.group + k]
            for p in range(ints[at.first_link + group], ints[at.first_link + group + 1]):
                link = ints[at.link + p]
                reals[at.demand + link] = 0.0
                reals[at.used + link] = 0.0
                reals[at.slowest + link] = math.inf
    for k in range(count):
        if not ints[at.frozen + k]:
            group = ints[at.group + k]
            for p in range(ints[at.first_link + group], ints[at.first_link + group + 1]):
                reals[at.demand + ints[at.link + p]] += reals[at.load + p]
    for k in range(count):
        if not ints[at.frozen + k]:
            group = ints[at.group + k]
            fair = math.inf
            for p in range(ints[at.first_link + group], ints[at.first_link + group + 1]):
                link = ints[at.link + p]
                fair = min(fair, max(reals[at.remaining + link], 0.0) / reals[at.demand + link])
            reals[at.fair + k] = fair
            for p in range(ints[at.first_link + group], ints[at.first_link + group + 1]):
                link = ints[at.link + p]
                reals[at.slowest + link] = min(reals[at.slowest + link], fair)


def freeze(ints: Ints, reals: Reals, at: At) -> int:
    """Freeze transfers that cross a class of links on which none is held back further; return how many."""
    count = ints[at.transfers]
    stopped = 0
    for k in range(count):
        if not ints[at.frozen + k]:
            group = ints[at.group + k]
            for p in range(ints[at.first_link + group], ints[at.first_link + group + 1]):
                link = ints[at.link + p]
                share = max(reals[at.remaining + link], 0.0) / reals[at.demand + link]
                if share <= reals[at.slowest + link] * (1.0 + TOLERANCE):
                    ints[at.frozen + k] = 2
                    stopped += 1
                    break
    for k in range(count):
        if ints[at.frozen + k] == 2:
            reals[at.rate + k] = reals[at.fair + k]
            group = ints[at.group + k]
            for p in range(ints[at.first_link + group], ints[at.first_link + group + 1]):
                reals[at.used + ints[at.link + p]] += reals[at.load + p] * reals[at.fair + k]
    for k in range(count):
        if ints[at.frozen + k] == 2:
            ints[at.frozen + k] = 1
            group = ints[at.group + k]
            for p in range(ints[at.first_link + group], ints[at.first_link + group + 1]):
                link = ints[at.link + p]
                reals[at.remaining + link] -= reals[at.used + link]
                reals[at.used + link] = 0.0
    return stopped


def solve(ints: Ints, reals: Reals, at: At) -> None:
    """Set max-min fair rates of all transfers, by the rule of `simulator.engine.fairshare.max_min_rates`."""
    going = ints[at.transfers]
    for k in range(going):
        ints[at.frozen + k] = 0
        group = ints[at.group + k]
        for p in range(ints[at.first_link + group], ints[at.first_link + group + 1]):
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


EVENTS = (push, start_process, push_later, pop_heap, advance, fill_shares, freeze, solve, set_wake)
"""The functions above, each behind those that it calls."""
