"""Circuits that turn during a step: which groups have theirs, who waits, and which ports move.

`turn` is where the loop enters. The rules are those of the reference, and functions have the names of its
methods (`Network`: `locate`, `serve`, `move`, `relocate`; `Lookahead`: `others_first`, `prefetch`):

1. A group can be carried if circuits connect all its flows (`locate`) and none of its links is dark.
2. Otherwise its actor waits. Whenever links or ports become free, `serve` goes through what waits, in order:
   it lets go on what has its circuits by now, and tries to move ports for the others (`move`).
3. Ports stay while they have traffic ahead that is connected and needed first (`others_first`), and never
   move while they carry something, move already, or are promised to another group.
4. A move keeps its links dark for the time that its ports take. The circuits are promised to the group from
   the begin of the move until the group has begun (`promise`, `redeem`).
5. Where a fabric prefetches, idle ports turn to the traffic that comes next (`prefetch`, `turn_ahead`).

Circuits are kept in one of two ways.

Lanes: endpoints have lanes of their own; lane l of endpoint e is link ``e * lanes + l``, and lanes to one
peer act as the first of them. A move is tried on the tables of lanes and taken back if a port that it needs
is not free (`turn_free_lanes`); such a trial has a number, by which its marks are told from older ones.

Cells: circuits stand in cells, sets of parts that the same groups use, each in one of a few settings. Entries
say for a group and the settings of its cells which route it has, or which links have to move and to which
settings (`simulator.engine.compiled.circuit_tables`). Where no entry is known, `unknown_setting` stops the
loop; the entry is then learnt, and the events since the last stop are taken again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from simulator.engine.compiled.state import (
    KINDS,
    MOVE_BEGINS,
    RESUME,
    Ints,
    Offsets,
    Reals,
    add_transfer,
    advance_transfers,
    hops,
    row,
    schedule_now,
    schedule_start,
    schedule_transfers_end,
    share_links,
    task_of,
)


def lane_to(ints: Ints, at: Offsets, endpoint: int, peer: int) -> int:
    """Return the first lane of an endpoint that reaches a peer; -1 if there is none."""
    for lane in range(endpoint * at.lanes, (endpoint + 1) * at.lanes):
        if ints[at.lane_peer + lane] == peer:
            return lane
    return -1


def find_entry(ints: Ints, at: Offsets, group: int) -> int:
    """Return the entry of a group for the present settings of its cells; -1, and a stop, if there is none."""
    if ints[at.unknown_setting]:  # the settings stay as they were met
        return -1
    entry = ints[at.newest_entry + group]
    while entry >= 0:
        shift = ints[at.first_entry_setting + entry] - ints[at.first_cell + group]
        same = True
        for p in row(ints, at.first_cell, group):
            same = same and ints[at.entry_setting + p + shift] == ints[at.cell_setting + ints[at.cell + p]]
        if same:
            return entry
        entry = ints[at.older_entry + entry]
    ints[at.unknown_setting] = 1
    return -1


def takes_circuits(ints: Ints, at: Offsets, group: int) -> bool:
    """Return whether a group goes over circuits that may turn."""
    return ints[at.first_cell + group] < ints[at.first_cell + group + 1]


def is_up_to_date(ints: Ints, at: Offsets, group: int) -> bool:
    """Return whether no cell of a group has moved since its route was looked up."""
    version = ints[at.located_version + group]
    fresh = version >= 0
    for p in row(ints, at.first_cell, group):
        fresh = fresh and ints[at.cell_version + ints[at.cell + p]] <= version
    return fresh


def locate(ints: Ints, reals: Reals, at: Offsets, group: int) -> bool:
    """Bring a group's route up to date; return whether circuits connect all its flows."""
    if not takes_circuits(ints, at, group):
        return True
    if not is_up_to_date(ints, at, group):
        ints[at.located_version + group] = ints[at.circuit_version]
        ints[at.is_located + group] = 0
        if at.lanes:
            locate_lanes(ints, reals, at, group)
        else:
            locate_cells(ints, at, group)
    return ints[at.is_located + group] == 1


def locate_cells(ints: Ints, at: Offsets, group: int) -> None:
    """Set a group's route to that of its entry, if circuits connect it."""
    entry = find_entry(ints, at, group)
    if entry >= 0 and ints[at.entry_route + entry] >= 0:
        ints[at.route + group] = ints[at.entry_route + entry]
        ints[at.is_located + group] = 1


def locate_lanes(ints: Ints, reals: Reals, at: Offsets, group: int) -> None:
    """Write the lanes of a group's pairs into its route, if all pairs are connected."""
    hop = ints[at.first_hop + group] - ints[at.first_pair + group]
    for p in row(ints, at.first_pair, group):
        lane = lane_to(ints, at, ints[at.pair_sender + p], ints[at.pair_receiver + p])
        if lane < 0:
            return
        ints[at.hop_link + hop + p] = lane
    alone = math.inf
    for p in row(ints, at.first_hop, group):
        alone = min(alone, reals[at.link_capacity + ints[at.hop_link + p]] / reals[at.hop_load + p])
    reals[at.alone_rate + group] = alone
    ints[at.is_located + group] = 1


def is_dark(ints: Ints, at: Offsets, group: int) -> bool:
    """Return whether links of a located group's route are dark."""
    for p in row(ints, at.first_hop, ints[at.route + group]):
        if ints[at.dark_moves + ints[at.hop_link + p]]:
            return True
    return False


def is_lit(ints: Ints, reals: Reals, at: Offsets, group: int) -> bool:
    """Return whether circuits connect a group, and light passes all its links."""
    return locate(ints, reals, at, group) and not is_dark(ints, at, group)


def promise(ints: Ints, at: Offsets, group: int) -> None:
    """Keep a group's circuits until it has begun."""
    if not ints[at.is_promised + group]:
        ints[at.is_promised + group] = 1
        ints[at.promised_group + ints[at.promised_count]] = group
        ints[at.promised_count] += 1


def redeem(ints: Ints, at: Offsets, group: int) -> None:
    """End a group's promise, for it begins."""
    if not ints[at.is_promised + group]:
        return
    ints[at.is_promised + group] = 0
    last = ints[at.promised_count] - 1
    ints[at.promised_count] = last
    for k in range(last):
        if ints[at.promised_group + k] == group:
            ints[at.promised_group + k] = ints[at.promised_group + last]
            return


def touch(ints: Ints, at: Offsets, endpoint: int) -> None:
    """Remember the peers that an endpoint's lanes have before the present trial."""
    if ints[at.touched_trial + endpoint] == ints[at.trial]:
        return
    ints[at.touched_trial + endpoint] = ints[at.trial]
    ints[at.touched_endpoint + ints[at.touched_count]] = endpoint
    ints[at.touched_count] += 1
    for link in range(endpoint * at.lanes, (endpoint + 1) * at.lanes):
        ints[at.peer_before + link] = ints[at.lane_peer + link]


def clear_lanes(ints: Ints, at: Offsets, endpoint: int) -> None:
    """Take the peers of all lanes of an endpoint away."""
    for lane in range(at.lanes):
        peer = ints[at.lane_peer + endpoint * at.lanes + lane]
        if peer >= 0:
            ints[at.lane_origin + peer * at.lanes + lane] = -1
            ints[at.lane_peer + endpoint * at.lanes + lane] = -1


def take_back(ints: Ints, at: Offsets) -> None:
    """Give the touched lanes the peers that they had before the trial."""
    for k in range(ints[at.touched_count]):
        clear_lanes(ints, at, ints[at.touched_endpoint + k])
    for k in range(ints[at.touched_count]):
        endpoint = ints[at.touched_endpoint + k]
        for lane in range(at.lanes):
            peer = ints[at.peer_before + endpoint * at.lanes + lane]
            ints[at.lane_peer + endpoint * at.lanes + lane] = peer
            if peer >= 0:
                ints[at.lane_origin + peer * at.lanes + lane] = endpoint


def mark_lacking(ints: Ints, at: Offsets, group: int, trial: int) -> bool:
    """Mark the senders of a group's pairs that have no circuit; return whether there are any."""
    found = False
    for p in row(ints, at.first_pair, group):
        endpoint = ints[at.pair_sender + p]
        if lane_to(ints, at, endpoint, ints[at.pair_receiver + p]) < 0:
            found = True
            ints[at.lacking_trial + endpoint] = trial
    return found


def turn_lanes(ints: Ints, at: Offsets, group: int, trial: int) -> None:
    """Turn the lanes of a group's marked senders to their peers, on the tables alone.

    A lane of another endpoint that ended where one of these now ends loses its peer.
    """
    ints[at.trial] += 1
    ints[at.touched_count] = 0
    for q in row(ints, at.first_sender, group):
        endpoint = ints[at.sender + q]
        if ints[at.lacking_trial + endpoint] == trial:
            touch(ints, at, endpoint)
            clear_lanes(ints, at, endpoint)
    for q in row(ints, at.first_sender, group):
        endpoint = ints[at.sender + q]
        if ints[at.lacking_trial + endpoint] != trial:
            continue
        for lane in range(at.lanes):
            peer = ints[at.sender_peer + q * at.lanes + lane]
            if peer >= 0:
                connect_lane(ints, at, endpoint, peer, lane)


def connect_lane(ints: Ints, at: Offsets, endpoint: int, peer: int, lane: int) -> None:
    """Turn a lane of an endpoint to a peer, away from whatever endpoint has reached that peer's lane."""
    end = peer * at.lanes + lane
    owner = ints[at.lane_origin + end]
    if owner >= 0:
        touch(ints, at, owner)
        ints[at.lane_peer + owner * at.lanes + lane] = -1
    ints[at.lane_origin + end] = endpoint
    ints[at.lane_peer + endpoint * at.lanes + lane] = peer


def is_in_use(ints: Ints, at: Offsets, link: int) -> bool:
    """Return whether a link moves or carries something."""
    return ints[at.dark_moves + link] > 0 or ints[at.link_users + link] > 0


def are_lanes_busy(ints: Ints, at: Offsets, group: int, trial: int) -> bool:
    """Return whether lanes are in use that turning a group's marked senders would change.

    Most moves that are asked for end here, before any lane is touched.
    """
    for q in row(ints, at.first_sender, group):
        endpoint = ints[at.sender + q]
        if ints[at.lacking_trial + endpoint] != trial:
            continue
        for lane in range(at.lanes):
            link, peer = endpoint * at.lanes + lane, ints[at.sender_peer + q * at.lanes + lane]
            if peer == ints[at.lane_peer + link]:
                continue
            owner = ints[at.lane_origin + peer * at.lanes + lane] if peer >= 0 else -1
            if is_in_use(ints, at, link) or (owner >= 0 and is_in_use(ints, at, owner * at.lanes + lane)):
                return True
    return False


def width_of(ints: Ints, at: Offsets, link: int) -> int:
    """Return how many lanes a lane acts for as a link: all to its peer if it is the first of them, else 0."""
    endpoint = link // at.lanes
    peer = ints[at.lane_peer + link]
    if peer < 0 or lane_to(ints, at, endpoint, peer) != link:
        return 0
    width = 0
    for other in range(link, (endpoint + 1) * at.lanes):
        if ints[at.lane_peer + other] == peer:
            width += 1
    return width


def list_moving_lanes(ints: Ints, at: Offsets) -> bool:
    """List the lanes that the present trial moves; return whether all of them are free to move."""
    count = 0
    free = True
    for k in range(ints[at.touched_count]):
        endpoint = ints[at.touched_endpoint + k]
        for link in range(endpoint * at.lanes, (endpoint + 1) * at.lanes):
            turned = ints[at.lane_peer + link] != ints[at.peer_before + link]
            width = width_of(ints, at, link)
            ints[at.width_after + link] = width
            if turned or width != ints[at.lane_width + link]:
                free = free and not is_in_use(ints, at, link)
                ints[at.link_trial + link] = ints[at.trial]
                ints[at.moving_link + count] = link
                count += 1
    ints[at.moving_count] = count
    return free and not moves_promised(ints, at)


def moves_promised(ints: Ints, at: Offsets) -> bool:
    """Return whether the present trial moves links of groups whose circuits are promised."""
    for k in range(ints[at.promised_count]):
        group = ints[at.promised_group + k]
        if not ints[at.is_located + group]:
            continue
        for p in row(ints, at.first_hop, ints[at.route + group]):
            if ints[at.link_trial + ints[at.hop_link + p]] == ints[at.trial]:
                return True
    return False


def stall_all(ints: Ints, reals: Reals, at: Offsets) -> None:
    """Take all transfers off their links, and put them before those that have stalled already."""
    count, stalled = ints[at.transfer_count], ints[at.stalled_count]
    for k in range(stalled - 1, -1, -1):
        copy_stalled(ints, reals, at, k, k + count)
    for k in range(count):
        for p in hops(ints, at, k):
            ints[at.link_users + ints[at.hop_link + p]] -= 1
        ints[at.stalled_group + k] = ints[at.transfer_group + k]
        ints[at.stalled_actor + k] = ints[at.transfer_actor + k]
        reals[at.stalled_left_bytes + k] = reals[at.left_bytes + k]
        reals[at.stalled_size_bytes + k] = reals[at.size_bytes + k]
    ints[at.transfer_count] = 0
    ints[at.stalled_count] = stalled + count


def copy_stalled(ints: Ints, reals: Reals, at: Offsets, source: int, k: int) -> None:
    """Copy a stalled transfer to another place in the table of stalled ones."""
    ints[at.stalled_group + k] = ints[at.stalled_group + source]
    ints[at.stalled_actor + k] = ints[at.stalled_actor + source]
    reals[at.stalled_left_bytes + k] = reals[at.stalled_left_bytes + source]
    reals[at.stalled_size_bytes + k] = reals[at.stalled_size_bytes + source]


def release_lit(ints: Ints, reals: Reals, at: Offsets) -> None:
    """Put the stalled transfers that have their circuits, lit, back on links; the others stay in order."""
    kept = 0
    for k in range(ints[at.stalled_count]):
        group = ints[at.stalled_group + k]
        if is_lit(ints, reals, at, group):
            place = add_transfer(ints, reals, at, group, ints[at.stalled_actor + k])
            reals[at.left_bytes + place] = reals[at.stalled_left_bytes + k]
            reals[at.size_bytes + place] = reals[at.stalled_size_bytes + k]
        else:
            copy_stalled(ints, reals, at, k, kept)
            kept += 1
    ints[at.stalled_count] = kept


def relocate(ints: Ints, reals: Reals, at: Offsets) -> None:
    """Find all routes anew after a change of circuits: some transfers stall, others go on; share links."""
    stall_all(ints, reals, at)
    release_lit(ints, reals, at)
    if ints[at.transfer_count] > 0:
        share_links(ints, reals, at)
    schedule_transfers_end(ints, reals, at)


def set_cells(ints: Ints, at: Offsets, group: int, settings: int, entry: int) -> None:
    """Set the cells of a group to an entry's row in the table of settings that begins at `settings`."""
    shift = ints[at.first_entry_setting + entry] - ints[at.first_cell + group]
    for p in row(ints, at.first_cell, group):
        ints[at.cell_setting + ints[at.cell + p]] = ints[settings + p + shift]


def keeps_circuits(ints: Ints, at: Offsets, group: int) -> bool:
    """Return whether circuits connect a group while cells are set as they are now."""
    if not takes_circuits(ints, at, group):
        return True
    entry = find_entry(ints, at, group)
    return entry >= 0 and ints[at.entry_route + entry] >= 0


def are_parts_free(ints: Ints, at: Offsets, group: int, entry: int) -> bool:
    """Set cells as an entry says if that leaves links in use or promised alone; return whether it does."""
    ints[at.trial] += 1
    for p in row(ints, at.first_hop, ints[at.moved_route + entry]):
        link = ints[at.hop_link + p]
        if is_in_use(ints, at, link):
            return False
        ints[at.link_trial + link] = ints[at.trial]
    if moves_promised(ints, at):
        return False
    set_cells(ints, at, group, at.turned_setting, entry)
    free = True
    for k in range(ints[at.transfer_count]):
        free = free and keeps_circuits(ints, at, ints[at.transfer_group + k])
    for k in range(ints[at.promised_count]):
        if ints[at.is_located + ints[at.promised_group + k]]:
            free = free and keeps_circuits(ints, at, ints[at.promised_group + k])
    if not free and not ints[at.unknown_setting]:  # an unknown setting stays, for it is to be learnt
        set_cells(ints, at, group, at.entry_setting, entry)
    return free


def turn_parts(ints: Ints, reals: Reals, at: Offsets, group: int) -> bool:
    """Start to turn the cells that a group asks for, if they are free; return whether it did."""
    entry = find_entry(ints, at, group)
    if entry < 0 or not are_parts_free(ints, at, group, entry):
        return False
    advance_transfers(ints, reals, at)
    ints[at.circuit_version] += 1
    shift = ints[at.first_entry_setting + entry] - ints[at.first_cell + group]
    for p in row(ints, at.first_cell, group):
        if ints[at.entry_setting + p + shift] != ints[at.turned_setting + p + shift]:
            ints[at.cell_version + ints[at.cell + p]] = ints[at.circuit_version]
    darken(ints, at, entry, 1)
    relocate(ints, reals, at)
    slot = ints[at.begun_moves] % at.move_slots
    ints[at.begun_moves] += 1
    ints[at.move_ports + slot] = entry
    begin_move(ints, reals, at, slot, group)
    return True


def darken(ints: Ints, at: Offsets, entry: int, moves: int) -> None:
    """Count one move more (`moves` 1) or fewer (-1) on each link that an entry moves."""
    for p in row(ints, at.first_hop, ints[at.moved_route + entry]):
        ints[at.dark_moves + ints[at.hop_link + p]] += moves


def light_parts(ints: Ints, reals: Reals, at: Offsets, entry: int) -> bool:
    """Let light pass the links again that an entry moved; return whether there are any."""
    darken(ints, at, entry, -1)
    if ints[at.stalled_count]:
        advance_transfers(ints, reals, at)
        relocate(ints, reals, at)
    route = ints[at.moved_route + entry]
    return ints[at.first_hop + route] < ints[at.first_hop + route + 1]


def begin_move(ints: Ints, reals: Reals, at: Offsets, number: int, group: int) -> None:
    """Set the start of a move for a group; its number is that of its first lane, or of its slot."""
    ints[at.move_group + number] = group
    reals[at.move_start_s + number] = reals[at.now_s]
    schedule_start(ints, at, MOVE_BEGINS + KINDS * number)


def turn_free_lanes(ints: Ints, at: Offsets, group: int) -> bool:
    """Turn the lanes that a group lacks, on the tables alone; undo it, and return False, if one is in use."""
    trial = ints[at.trial] + 1
    mark_lacking(ints, at, group, trial)
    if are_lanes_busy(ints, at, group, trial):
        ints[at.trial] = trial
        return False
    turn_lanes(ints, at, group, trial)
    if mark_lacking(ints, at, group, trial):  # that took circuits of its other senders: all of them turn
        take_back(ints, at)
        for q in row(ints, at.first_sender, group):
            ints[at.lacking_trial + ints[at.sender + q]] = trial
        turn_lanes(ints, at, group, trial)
    if list_moving_lanes(ints, at):
        return True
    take_back(ints, at)
    return False


def move_lanes(ints: Ints, reals: Reals, at: Offsets, group: int) -> None:
    """Let the lanes that were turned on the tables go dark and begin to move."""
    advance_transfers(ints, reals, at)
    ints[at.circuit_version] += 1
    for k in range(ints[at.touched_count]):
        endpoint = ints[at.touched_endpoint + k]
        ints[at.cell_version + ints[at.cell_of + endpoint]] = ints[at.circuit_version]
        for link in range(endpoint * at.lanes, (endpoint + 1) * at.lanes):
            ints[at.lane_width + link] = ints[at.width_after + link]
            reals[at.link_capacity + link] = ints[at.lane_width + link] * reals[at.lane_rate]
    ports = 0
    following = -1
    for k in range(ints[at.moving_count] - 1, -1, -1):
        link = ints[at.moving_link + k]
        ints[at.dark_moves + link] = 1
        ints[at.next_moving + link] = following
        following = link
        if ints[at.lane_peer + link] != ints[at.peer_before + link] and ints[at.lane_peer + link] >= 0:
            ports += 1
    schedule_transfers_end(ints, reals, at)
    first = ints[at.moving_link]
    ints[at.move_ports + first] = ports
    begin_move(ints, reals, at, first, group)


def move(ints: Ints, reals: Reals, at: Offsets, group: int) -> bool:
    """Start to move the ports that a group lacks, if all of them are free; return whether it did."""
    for k in range(ints[at.promised_count]):
        locate(ints, reals, at, ints[at.promised_group + k])  # before a trial changes the tables
    if not at.lanes:
        return turn_parts(ints, reals, at, group)
    if not turn_free_lanes(ints, at, group):
        return False
    move_lanes(ints, reals, at, group)
    return True


def is_connected(ints: Ints, reals: Reals, at: Offsets, exchange: int) -> bool:
    """Return whether an exchange takes circuits, and has all of them."""
    places = row(ints, at.first_exchange_group, exchange)
    for p in places:
        if not locate(ints, reals, at, ints[at.exchange_group + p]):
            return False
    return len(places) > 0


def first_pending(ints: Ints, at: Offsets, next_place: int, tasks: int, end: int) -> int:
    """Return the first task of a row that has not ended, -1 if all have, and go on from there next time.

    Parameters
    ----------
    ints : Ints
        State.
    at : Offsets
        Places of its tables.
    next_place : int
        Where the place is kept, in the row, before which all tasks have ended.
    tasks : int
        Begin of the table of tasks.
    end : int
        Place behind the last of the row.
    """
    place = ints[next_place]
    while place < end and not ints[at.is_pending + ints[tasks + place]]:
        place += 1
    ints[next_place] = place
    return ints[tasks + place] if place < end else -1


def next_own_task(ints: Ints, at: Offsets, exchange: int) -> int:
    """Return the task of an exchange that its own class needs next; -1 if all have ended."""
    end = ints[at.first_own_task + exchange + 1]
    return first_pending(ints, at, at.next_own_task + exchange, at.own_task, end)


def next_receiver_task(ints: Ints, at: Offsets, exchange: int) -> int:
    """Return the task of an exchange that the class which receives it needs next; -1 if all have ended."""
    end = ints[at.first_receiver_task + exchange + 1]
    return first_pending(ints, at, at.next_receiver_task + exchange, at.receiver_task, end)


def is_needed_before(ints: Ints, reals: Reals, at: Offsets, exchange: int, order: int) -> bool:
    """Return whether an exchange is connected, and its class needs it before a place in its order."""
    task = next_own_task(ints, at, exchange)
    return task >= 0 and ints[at.own_order + task] < order and is_connected(ints, reals, at, exchange)


def others_first(ints: Ints, reals: Reals, at: Offsets, task: int) -> bool:
    """Return whether traffic from or to a task's class is connected that the class needs before the task."""
    rank_class, order = ints[at.task_class + task], ints[at.own_order + task]
    for p in row(ints, at.first_beside_exchange, rank_class):
        if is_needed_before(ints, reals, at, ints[at.beside_exchange + p], order):
            return True
    for p in row(ints, at.first_arriving_exchange, rank_class):
        exchange = ints[at.arriving_exchange + p]
        other = next_receiver_task(ints, at, exchange)
        if other >= 0 and ints[at.receiver_order + other] < order and is_connected(ints, reals, at, exchange):
            return True
    if ints[at.is_short + task]:
        for p in row(ints, at.first_inner_exchange, rank_class):
            if is_needed_before(ints, reals, at, ints[at.inner_exchange + p], order):
                return True
    return False


def awaited_group(ints: Ints, at: Offsets, actor: int) -> int:
    """Return the group for whose circuits an actor waits: that of its next instruction."""
    return ints[at.target + ints[at.program_counter + actor]]


def serve_stalled(ints: Ints, reals: Reals, at: Offsets) -> bool:
    """Move ports for stalled transfers that lack circuits; return whether any began to move."""
    stalled = ints[at.stalled_count]
    for k in range(stalled):  # a move changes the table
        ints[at.stalled_before + k] = ints[at.stalled_group + k]
    progress = False
    for k in range(stalled):
        group = ints[at.stalled_before + k]
        if not locate(ints, reals, at, group) and move(ints, reals, at, group):
            progress = True
    return progress


def wake_connected(ints: Ints, reals: Reals, at: Offsets) -> bool:
    """Let the waiting actors go on whose groups have their circuits, lit; return whether there were any."""
    kept = 0
    waiting = ints[at.circuit_waiter_count]
    for k in range(waiting):
        actor = ints[at.circuit_waiter + k]
        group = awaited_group(ints, at, actor)
        if is_lit(ints, reals, at, group):
            promise(ints, at, group)
            schedule_now(ints, at, RESUME + KINDS * actor)
        else:
            ints[at.circuit_waiter + kept] = actor
            kept += 1
    ints[at.circuit_waiter_count] = kept
    return kept < waiting


def serve(ints: Ints, reals: Reals, at: Offsets) -> bool:
    """Serve what waits for circuits, in order; return whether anything went on or began to move.

    With no event left, patience would wait for itself: the first actor then gets its ports at once.
    """
    progress = serve_stalled(ints, reals, at)
    progress = wake_connected(ints, reals, at) or progress
    for k in range(ints[at.circuit_waiter_count]):
        actor = ints[at.circuit_waiter + k]
        group = awaited_group(ints, at, actor)
        if locate(ints, reals, at, group):
            continue
        hurry = ints[at.is_over] and not progress
        may_move = hurry or not others_first(ints, reals, at, task_of(ints, at, actor))
        if may_move and move(ints, reals, at, group):
            promise(ints, at, group)
            progress = True
    return progress


def has_circuits(ints: Ints, reals: Reals, at: Offsets, actor: int) -> bool:
    """Return whether the group of an actor's instruction has its circuits; if not, make the actor wait."""
    counter = ints[at.program_counter + actor] - 1
    group = ints[at.target + counter]
    if is_lit(ints, reals, at, group):
        redeem(ints, at, group)
        return True
    ints[at.program_counter + actor] = counter
    ints[at.circuit_waiter + ints[at.circuit_waiter_count]] = actor
    ints[at.circuit_waiter_count] += 1
    return False


def end_move(ints: Ints, reals: Reals, at: Offsets, number: int) -> None:
    """End a move: light passes its links again, and the change is written down if there are any."""
    if at.lanes:
        link = number
        while link >= 0:
            ints[at.dark_moves + link] = 0
            link = ints[at.next_moving + link]
    elif not light_parts(ints, reals, at, ints[at.move_ports + number]):
        return
    change = ints[at.change_count]
    ints[at.change_group + change] = ints[at.move_group + number]
    ints[at.change_ports + change] = ints[at.move_ports + number]
    reals[at.change_start_s + change] = reals[at.move_start_s + number]
    reals[at.change_end_s + change] = reals[at.now_s]
    ints[at.change_count] = change + 1


def prefetch(ints: Ints, reals: Reals, at: Offsets, rank_class: int) -> None:
    """Turn a class's idle ports to the traffic that it needs next (Opus, arXiv:2507.08119)."""
    first = ints[at.next_prefetch_task + rank_class]
    for place in range(first, ints[at.first_prefetch_task + rank_class + 1]):
        task = ints[at.prefetch_task + place]
        if ints[at.is_pending + task]:
            if prefetch_task(ints, reals, at, task):
                return
        elif place == ints[at.next_prefetch_task + rank_class]:
            ints[at.next_prefetch_task + rank_class] = place + 1


def prefetch_task(ints: Ints, reals: Reals, at: Offsets, task: int) -> bool:
    """Turn idle ports to the first group of a task that lacks circuits; return whether the task takes any."""
    work, rank_class = ints[at.task_work + task], ints[at.task_class + task]
    start = ints[at.first_exchange_group + ints[at.first_exchange + work]]
    end = ints[at.first_exchange_group + ints[at.first_exchange + work + 1]]
    for p in range(start, end):
        group = ints[at.exchange_group + p]
        if not locate(ints, reals, at, group):
            if not others_first(ints, reals, at, task) and not receives(ints, reals, at, rank_class):
                move(ints, reals, at, group)
            return True
    return end > start


def receives(ints: Ints, reals: Reals, at: Offsets, rank_class: int) -> bool:
    """Return whether other classes still send to a class over present circuits."""
    for p in row(ints, at.first_arriving_exchange, rank_class):
        exchange = ints[at.arriving_exchange + p]
        if next_receiver_task(ints, at, exchange) >= 0 and is_connected(ints, reals, at, exchange):
            return True
    return False


def class_to_prefetch(ints: Ints, at: Offsets, task: int) -> int:
    """Note the end of a task; return its class if idle ports of that may turn to what comes next, else -1."""
    communicates = ints[at.is_pending + task]
    ints[at.is_pending + task] = 0
    if at.prefetches and communicates and ints[at.channel + task] >= 0 and not ints[at.is_chained + task]:
        return ints[at.task_class + task]
    return -1


def turn_ahead(ints: Ints, reals: Reals, at: Offsets, actor: int) -> int:
    """Turn idle ports to the group of an actor's `Op.TURN_AHEAD`; return the instruction to go on with."""
    counter = ints[at.program_counter + actor] - 1
    others = ints[at.extra + counter]
    if others >= 0 and others_first(ints, reals, at, task_of(ints, at, actor)):
        return counter + 1 + others
    group = ints[at.target + counter]
    if not locate(ints, reals, at, group):
        move(ints, reals, at, group)
    return counter + 1


CIRCUITS_NEEDED, EXCHANGE_AHEAD, TASK_ENDED, MOVE_ENDED, LINKS_FREED = range(5)
"""Occasions on which the loop calls `turn`: an actor's `Op.TRANSFER`, its `Op.TURN_AHEAD`, the end of a task,
the end of a move, and the end of transfers or of all events."""
Turn = Callable[[Ints, Reals, Offsets, int, int], int]
"""Function that turns circuits: `turn`, or `stay` where none turn."""


def turn(ints: Ints, reals: Reals, at: Offsets, occasion: int, subject: int) -> int:
    """Turn circuits on an occasion, and serve what waits for them.

    The loop has this one entrance for all occasions, since the two are compiled apart.

    Parameters
    ----------
    ints, reals : Ints, Reals
        State.
    at : Offsets
        Places of its tables.
    occasion : int
        `CIRCUITS_NEEDED` and those beside it.
    subject : int
        Actor (`CIRCUITS_NEEDED`, `EXCHANGE_AHEAD`), task (`TASK_ENDED`) or move (`MOVE_ENDED`).

    Returns
    -------
    int
        `CIRCUITS_NEEDED`: whether the actor has its circuits. `EXCHANGE_AHEAD`: the instruction with which it
        goes on. `LINKS_FREED`: whether anything that waited went on or began to move. Else 0.
    """
    prefetching = -1
    if occasion == CIRCUITS_NEEDED and has_circuits(ints, reals, at, subject):
        return 1
    if occasion == EXCHANGE_AHEAD:
        return turn_ahead(ints, reals, at, subject)
    if occasion == TASK_ENDED:
        prefetching = class_to_prefetch(ints, at, subject)
    elif occasion == MOVE_ENDED:
        end_move(ints, reals, at, subject)
    progress = serve(ints, reals, at)
    if prefetching >= 0:
        prefetch(ints, reals, at, prefetching)
    return 1 if progress and occasion == LINKS_FREED else 0


def stay(ints: Ints, reals: Reals, at: Offsets, occasion: int, subject: int) -> int:
    """Stand in for `turn` where no circuits turn; nothing calls it."""
    return 0


def _never(ints: Ints, reals: Reals, at: Offsets, number: int) -> bool:
    return False


def _never_found(ints: Ints, at: Offsets, group: int) -> int:
    return -1


NO_PARTS: dict[str, Callable[..., object]] = {
    "find_entry": _never_found,
    "turn_parts": _never,
    "light_parts": _never,
}
"""Stand-ins for functions that nothing calls where circuits turn lane by lane; they save a third of the time
to compile."""
