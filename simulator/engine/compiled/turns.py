"""Circuits that turn during a step: where groups of flows have their lanes, who waits, which ports move.

The rules are the reference's (`simulator.engine.network`, `simulator.engine.lookahead`) for fabrics whose
endpoints have lanes of their own. Lane l of endpoint e is link ``e * lanes + l``; lanes to one peer act as
the first of them. A move is tried on the tables and taken back if a port that it needs is at work.
"""

from __future__ import annotations

import math

from simulator.engine.compiled.memory import (
    BITS,
    KINDS,
    MOVED,
    RESUME,
    At,
    Ints,
    Reals,
    advance,
    push,
    set_wake,
)


def lane_to(ints: Ints, at: At, row: int, peer: int) -> int:
    """Return the link from an endpoint to a peer, the first of its lanes there; -1 if there is none."""
    for link in range(row * at.lanes, (row + 1) * at.lanes):
        if ints[at.peer + link] == peer:
            return link
    return -1


def locate(ints: Ints, reals: Reals, at: At, group: int) -> bool:
    """Bring a group's links up to date; return whether circuits connect all its flows."""
    first, last = ints[at.first_need + group], ints[at.first_need + group + 1]
    if first == last:
        return True
    checked = ints[at.checked + group]
    fresh = checked >= 0
    for p in range(ints[at.first_cell + group], ints[at.first_cell + group + 1]):
        fresh = fresh and ints[at.moved_last + ints[at.cell + p]] <= checked
    if fresh:
        return ints[at.located + group] == 1
    ints[at.checked + group] = ints[at.version]
    ints[at.located + group] = 0
    entry = ints[at.first_link + group]
    for p in range(first, last):
        link = lane_to(ints, at, ints[at.need + p], ints[at.landing + p])
        if link < 0:
            return False
        ints[at.link + entry + p - first] = link
    alone = math.inf
    for p in range(entry, ints[at.first_link + group + 1]):
        alone = min(alone, reals[at.capacity + ints[at.link + p]] / reals[at.load + p])
    reals[at.alone + group] = alone
    ints[at.located + group] = 1
    return True


def is_blocked(ints: Ints, at: At, group: int) -> bool:
    """Return whether lanes of a located group are dark."""
    entry = ints[at.first_link + group]
    for p in range(entry, entry + ints[at.first_need + group + 1] - ints[at.first_need + group]):
        if ints[at.dark + ints[at.link + p]]:
            return True
    return False


def promise(ints: Ints, at: At, group: int) -> None:
    """Keep a group's circuits until it has begun."""
    if not ints[at.promised + group]:
        ints[at.promised + group] = 1
        ints[at.kept + ints[at.keeping]] = group
        ints[at.keeping] += 1


def redeem(ints: Ints, at: At, group: int) -> None:
    """Let a group's circuits go when they are not at work."""
    if not ints[at.promised + group]:
        return
    ints[at.promised + group] = 0
    last = ints[at.keeping] - 1
    ints[at.keeping] = last
    for k in range(last):
        if ints[at.kept + k] == group:
            ints[at.kept + k] = ints[at.kept + last]
            return


def touch(ints: Ints, at: At, row: int) -> None:
    """Remember an endpoint's lanes as they are before a move."""
    if ints[at.row_stamp + row] == ints[at.stamp]:
        return
    ints[at.row_stamp + row] = ints[at.stamp]
    ints[at.touched + ints[at.touches]] = row
    ints[at.touches] += 1
    for link in range(row * at.lanes, (row + 1) * at.lanes):
        ints[at.before + link] = ints[at.peer + link]


def clear(ints: Ints, at: At, row: int) -> None:
    """Darken all lanes of an endpoint."""
    for lane in range(at.lanes):
        peer = ints[at.peer + row * at.lanes + lane]
        if peer >= 0:
            ints[at.origin + peer * at.lanes + lane] = -1
            ints[at.peer + row * at.lanes + lane] = -1


def take_back(ints: Ints, at: At) -> None:
    """Set the touched lanes to what they were."""
    for k in range(ints[at.touches]):
        clear(ints, at, ints[at.touched + k])
    for k in range(ints[at.touches]):
        row = ints[at.touched + k]
        for lane in range(at.lanes):
            peer = ints[at.before + row * at.lanes + lane]
            ints[at.peer + row * at.lanes + lane] = peer
            if peer >= 0:
                ints[at.origin + peer * at.lanes + lane] = row


def lacks(ints: Ints, at: At, group: int, mark: int) -> bool:
    """Return whether a group has flows without a circuit; mark their endpoints if asked."""
    found = False
    for p in range(ints[at.first_need + group], ints[at.first_need + group + 1]):
        row = ints[at.need + p]
        if lane_to(ints, at, row, ints[at.landing + p]) < 0:
            found = True
            if not mark:
                return True
            ints[at.lacking + row] = mark
    return found


def turn_lanes(ints: Ints, at: At, group: int, mark: int) -> None:
    """Turn the lanes of a group's marked endpoints, or of all its senders, to their targets.

    What ends where they now end goes dark.
    """
    ints[at.stamp] += 1
    ints[at.touches] = 0
    first, last = ints[at.first_sender + group], ints[at.first_sender + group + 1]
    for q in range(first, last):
        row = ints[at.sender + q]
        if not mark or ints[at.lacking + row] == mark:
            touch(ints, at, row)
            clear(ints, at, row)
    for q in range(first, last):
        row = ints[at.sender + q]
        if mark and ints[at.lacking + row] != mark:
            continue
        for lane in range(at.lanes):
            peer = ints[at.target + q * at.lanes + lane]
            if peer < 0:
                continue
            end = peer * at.lanes + lane
            owner = ints[at.origin + end]
            if owner >= 0:
                touch(ints, at, owner)
                ints[at.peer + owner * at.lanes + lane] = -1
            ints[at.origin + end] = row
            ints[at.peer + row * at.lanes + lane] = peer


def width_of(ints: Ints, at: At, link: int) -> int:
    """Return the lanes that a link stands for: those to its peer if it is the first of them, else none."""
    row = link // at.lanes
    peer = ints[at.peer + link]
    if peer < 0 or lane_to(ints, at, row, peer) != link:
        return 0
    width = 0
    for other in range(link, (row + 1) * at.lanes):
        if ints[at.peer + other] == peer:
            width += 1
    return width


def find_moved(ints: Ints, at: At) -> bool:
    """List the links that a move changes; return whether all of them are lit and idle."""
    count = 0
    free = True
    for k in range(ints[at.touches]):
        row = ints[at.touched + k]
        for link in range(row * at.lanes, (row + 1) * at.lanes):
            turned = ints[at.peer + link] != ints[at.before + link]
            width = width_of(ints, at, link)
            ints[at.width_then + link] = width
            if turned or width != ints[at.width + link]:
                free = free and not ints[at.dark + link] and not ints[at.users + link]
                ints[at.link_stamp + link] = ints[at.stamp]
                ints[at.moving_links + count] = link
                count += 1
    ints[at.moves] = count
    for k in range(ints[at.keeping]):
        group = ints[at.kept + k]
        if not free or not ints[at.located + group]:
            continue
        entry = ints[at.first_link + group]
        for p in range(entry, entry + ints[at.first_need + group + 1] - ints[at.first_need + group]):
            if ints[at.link_stamp + ints[at.link + p]] == ints[at.stamp]:
                free = False
    return free


def move(ints: Ints, reals: Reals, at: At, group: int) -> bool:
    """Start moving the ports that a group lacks, unless one is at work, kept or moving; return whether."""
    for k in range(ints[at.keeping]):
        locate(ints, reals, at, ints[at.kept + k])  # while the tables are as they stand
    mark = ints[at.stamp] + 1
    lacks(ints, at, group, mark)
    turn_lanes(ints, at, group, mark)
    if lacks(ints, at, group, 0):
        take_back(ints, at)
        turn_lanes(ints, at, group, 0)
    if not find_moved(ints, at):
        take_back(ints, at)
        return False
    advance(ints, reals, at)
    ints[at.version] += 1
    for k in range(ints[at.touches]):
        row = ints[at.touched + k]
        ints[at.moved_last + ints[at.cell_of + row]] = ints[at.version]
        for link in range(row * at.lanes, (row + 1) * at.lanes):
            ints[at.width + link] = ints[at.width_then + link]
            reals[at.capacity + link] = ints[at.width + link] * reals[at.lane_rate]
    head = ints[at.moving_links]
    ports = 0
    following = -1
    for k in range(ints[at.moves] - 1, -1, -1):
        link = ints[at.moving_links + k]
        ints[at.dark + link] = 1
        ints[at.next_dark + link] = following
        following = link
        if ints[at.peer + link] != ints[at.before + link] and ints[at.peer + link] >= 0:
            ports += 1
    ints[at.change_group + head] = group
    ints[at.change_ports + head] = ports
    reals[at.change_s + head] = reals[at.now]
    set_wake(ints, reals, at)
    tail = ints[at.starts_tail]
    ints[at.starts + (tail & at.ring)] = MOVED + KINDS * head
    ints[at.starts_tail] = tail + 1
    return True


def task_of(ints: Ints, at: At, actor: int) -> int:
    """Return the task that an actor, or a child of one, runs."""
    while actor >= at.actors:
        actor = ints[at.place + actor]
    return ints[at.order + ints[at.place + actor]]


def is_connected(ints: Ints, reals: Reals, at: At, work: int) -> bool:
    """Return whether communication of some kind has flows, and circuits for all of them."""
    for p in range(ints[at.first_part + work], ints[at.first_part + work + 1]):
        if not locate(ints, reals, at, ints[at.part + p]):
            return False
    return ints[at.flows + work] == 1


def others_first(ints: Ints, reals: Reals, at: At, task: int) -> bool:
    """Return whether a class's ports have traffic ahead that is connected and does not wait for a task."""
    one = ints[at.task_class + task]
    words = ints[at.first_word + one + 1] - ints[at.first_word + one]
    for p in range(ints[at.first_begun + one], ints[at.first_begun + one + 1]):
        work = ints[at.begun + p]
        if not ints[at.ahead + work] or not is_connected(ints, reals, at, work):
            continue
        for w in range(words):
            still = (
                ints[at.undone + ints[at.first_word + one] + w] & ints[at.mask + ints[at.masks + work] + w]
            )
            if still & ~ints[at.behind + ints[at.row_behind + task] + w]:
                return True
    return False


def serve(ints: Ints, reals: Reals, at: At, impatient: bool) -> bool:
    """Go through what waits in order: start groups with a lit path, move ports for others."""
    progress = False
    kept = 0
    for k in range(ints[at.waiting]):
        actor = ints[at.waiter + k]
        group = ints[at.i + ints[at.counter + actor]]
        if locate(ints, reals, at, group) and not is_blocked(ints, at, group):
            promise(ints, at, group)
            push(ints, at, RESUME + KINDS * actor)
            progress = True
        else:
            ints[at.waiter + kept] = actor
            kept += 1
    ints[at.waiting] = kept
    for k in range(kept):
        actor = ints[at.waiter + k]
        group = ints[at.i + ints[at.counter + actor]]
        if locate(ints, reals, at, group):
            continue
        hurry = impatient and not progress
        if hurry or not others_first(ints, reals, at, task_of(ints, at, actor)):
            if move(ints, reals, at, group):
                promise(ints, at, group)
                progress = True
    return progress


def wait_for_circuits(ints: Ints, reals: Reals, at: At, actor: int, counter: int) -> bool:
    """Return whether the group of an instruction has its circuits; if not, wait for them."""
    group = ints[at.i + counter]
    if locate(ints, reals, at, group) and not is_blocked(ints, at, group):
        redeem(ints, at, group)
        return True
    ints[at.counter + actor] = counter
    ints[at.waiter + ints[at.waiting]] = actor
    ints[at.waiting] += 1
    serve(ints, reals, at, False)
    return False


def light_up(ints: Ints, reals: Reals, at: At, head: int) -> None:
    """End a move: light passes its links again."""
    link = head
    while link >= 0:
        ints[at.dark + link] = 0
        link = ints[at.next_dark + link]
    place = ints[at.changes]
    ints[at.changed_group + place] = ints[at.change_group + head]
    ints[at.changed_ports + place] = ints[at.change_ports + head]
    reals[at.turned_s + place] = reals[at.change_s + head]
    reals[at.lit_s + place] = reals[at.now]
    ints[at.changes] = place + 1
    serve(ints, reals, at, False)


def prefetch(ints: Ints, reals: Reals, at: At, one: int) -> None:
    """Turn a class's idle ports to the traffic that comes next (Opus, arXiv:2507.08119)."""
    for place in range(ints[at.next_asked + one], ints[at.first_asked + one + 1]):
        task = ints[at.asked + place]
        bit = place - ints[at.first_asked + one]
        if not ints[at.undone + ints[at.first_word + one] + bit // BITS] >> (bit % BITS) & 1:
            if place == ints[at.next_asked + one]:
                ints[at.next_asked + one] = place + 1
            continue
        work = ints[at.work + task]
        if not ints[at.flows + work]:
            continue
        for p in range(ints[at.first_part + work], ints[at.first_part + work + 1]):
            group = ints[at.part + p]
            if not locate(ints, reals, at, group):
                if not others_first(ints, reals, at, task) and not receives(ints, reals, at, one):
                    move(ints, reals, at, group)
                return
        return


def receives(ints: Ints, reals: Reals, at: At, one: int) -> bool:
    """Return whether other classes still send to a class over present circuits."""
    for p in range(ints[at.first_sent + one], ints[at.first_sent + one + 1]):
        work = ints[at.sent + p]
        if ints[at.ahead + work] and is_connected(ints, reals, at, work):
            return True
    return False


def end_communication(ints: Ints, reals: Reals, at: At, task: int) -> None:
    """Serve what waits, after a task that ran beside compute; if it communicates, it is no longer ahead."""
    bit = ints[at.bit + task]
    one = ints[at.task_class + task]
    if bit >= 0:
        ints[at.undone + ints[at.first_word + one] + bit // BITS] ^= 1 << (bit % BITS)
        ints[at.ahead + ints[at.work + task]] -= 1
    serve(ints, reals, at, False)
    if at.prefetches and bit >= 0:
        prefetch(ints, reals, at, one)


TURNS = (
    lane_to,
    locate,
    is_blocked,
    promise,
    redeem,
    touch,
    clear,
    take_back,
    lacks,
    turn_lanes,
    width_of,
    find_moved,
    move,
    task_of,
    is_connected,
    others_first,
    serve,
    wait_for_circuits,
    light_up,
    receives,
    prefetch,
    end_communication,
)
"""The functions above, each behind those that it calls."""
