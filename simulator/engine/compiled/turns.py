"""Circuits that turn during a step: which groups of flows need them, who waits, which ports move.

The rules are the reference's, under the names that they have there: `locate`, `serve` and `move` are those of
`simulator.engine.network.Network`, `promise` and `redeem` its promises, `relocate` finds links anew;
`others_first` and `prefetch` are those of `simulator.engine.lookahead.Lookahead`, `turn_ahead` that of
`simulator.engine.simulation.Simulation`. `turn` is where the loop enters.

Endpoints may have lanes of their own: lane l of endpoint e is link ``e * lanes + l``; lanes to one peer act
as the first of them, and a move is tried on the tables and taken back if a port that it needs is at work
(`turn_free_lanes`). Else circuits stand in cells, each in one of a few settings, and a table says what a
group gets of each (`turn_parts`, `simulator.engine.compiled.settings`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.collectives.flow_groups import FlowGroup
from simulator.engine.compiled.memory import (
    KINDS,
    MOVED,
    RESUME,
    At,
    Ints,
    Memories,
    Reals,
    advance,
    insert,
    push,
    set_wake,
    solve,
    task_of,
)
from simulator.engine.compiled.programs import NotCoveredError, Programs, StepNetwork, StepStructure
from simulator.engine.compiled.settings import cells
from simulator.engine.lookahead import exchanges, short_s
from simulator.fabric import Loads
from simulator.operators import Collective
from simulator.operators import Sequence as Run


@dataclass(frozen=True, kw_only=True, eq=False)
class LaneNeed:
    """Lanes that a group of flows needs."""

    pairs: np.ndarray
    """Endpoint that sends and endpoint that it has to reach, each pair once, shape [P, 2]."""
    usage: np.ndarray
    """Flows over each, shape [P]."""
    senders: np.ndarray
    """Endpoints that send, each once, shape [S]."""
    target: np.ndarray
    """Where their lanes turn to, -1 for none, shape [S, lanes]."""


NO_LANES = LaneNeed(
    pairs=np.empty((0, 2), dtype=np.int64),
    usage=np.empty(0),
    senders=np.empty(0, dtype=np.int64),
    target=np.empty((0, 1), dtype=np.int64),
)
"""Need of flows inside nodes."""


def lane_need(group: FlowGroup, network: StepNetwork) -> LaneNeed:
    """Return the lanes that a group needs.

    Raises
    ------
    NotCoveredError
        If flows of no weight need some.
    """
    claim = network.claim(group) if network.may_wait(group) and not network.by_parts else None
    if claim is None:
        return NO_LANES
    ends = np.stack([claim.carriers, claim.landings], axis=1)
    pairs, place = np.unique(ends, axis=0, return_inverse=True)
    usage = np.bincount(place.ravel(), weights=claim.weights)
    if (claim.weights <= 0.0).any():
        msg = "flows without bytes need circuits"
        raise NotCoveredError(msg)
    senders = np.unique(claim.carriers)
    return LaneNeed(pairs=pairs, usage=usage, senders=senders, target=claim.target[senders])


def fixed_loads(group: FlowGroup, network: StepNetwork, first: int) -> Loads:
    """Return what a group asks of links from a number on, which no circuit turns away."""
    found = network.loads(group)
    fixed = found.links >= first
    return Loads(links=found.links[fixed], usage=found.usage[fixed], latency_s=found.latency_s)


def widths(peers: np.ndarray) -> np.ndarray:
    """Return the lanes that each lane stands for as a link, shape [E, lanes]."""
    same = (peers[:, :, None] == peers[:, None, :]) & (peers >= 0)[:, :, None]
    first = ~np.tril(same, -1).any(axis=2)
    return np.where(first, same.sum(axis=2), 0)


def origins(peers: np.ndarray) -> np.ndarray:
    """Return the endpoint whose light each lane receives, -1 for none, shape [E, lanes]."""
    found = np.full_like(peers, -1)
    rows, lanes = np.nonzero(peers >= 0)
    found[peers[rows, lanes], lanes] = rows
    return found


class StepExchanges:
    """Communication of each class of a step, what it moves, and the order in which it is needed.

    Parameters
    ----------
    structure : StepStructure
        The step.
    programs : Programs
        Its programs.
    network : StepNetwork
        The fabric with the prices of its collectives.
    """

    def __init__(self, structure: StepStructure, programs: Programs, network: StepNetwork) -> None:
        works, self.work_of = structure.works, structure.work_of
        classes, order = structure.graph.layout.classes, structure.need_order
        self.task_class = [works[number].rank_class for number in self.work_of]
        ids = [task.id for task in structure.graph.tasks]
        self.here, self.there = ([table[one] for one in ids] for table in (order.here, order.there))
        self.chained = [int(one in order.chained) for one in ids]
        self.exchanges: list[list[int]] = [[] for _ in works]
        self.parts: list[list[int]] = []
        self.begun: list[list[int]] = [[] for _ in range(classes)]
        self.passes: list[list[int]] = [[] for _ in range(classes)]
        self.sent: list[list[int]] = [[] for _ in range(classes)]
        self.asked: list[list[int]] = [[] for _ in range(classes)]
        short = self._number(structure, programs, network)
        self.short = [int(short[work]) for work in self.work_of]
        self.mine: list[list[int]] = [[] for _ in self.parts]
        self.theirs: list[list[int]] = [[] for _ in self.parts]
        asking = [place for place, work in enumerate(self.work_of) if self.exchanges[work]]
        for place in sorted(asking, key=self.here.__getitem__):
            if isinstance(works[self.work_of[place]].operator, Collective):
                self.asked[self.task_class[place]].append(place)
            for exchange in self.exchanges[self.work_of[place]]:
                self.mine[exchange].append(place)
        for place in sorted(asking, key=self.there.__getitem__):
            for exchange in self.exchanges[self.work_of[place]]:
                self.theirs[exchange].append(place)

    def _number(self, structure: StepStructure, programs: Programs, network: StepNetwork) -> list[bool]:
        """Give numbers to the collectives that may share links with others: beside compute, and in passes.

        Returns of each work whether it is a collective that is soon done.
        """
        short = [False for _ in structure.works]
        turn_s = network.fabric.traits.reconfiguration_s
        for number, work in enumerate(structure.works):
            operator, rank_class = work.operator, work.rank_class
            beside = isinstance(operator, Collective)
            own = isinstance(operator, Run) and network.private(operator, rank_class)
            if (work.beside and not beside) or own:
                continue
            rows = (self.begun if beside else self.passes)[rank_class]
            for one in exchanges(operator):
                plan = network.plan(one, rank_class)
                exchange = len(self.parts)
                self.parts.append(
                    [programs.groups[group] for group, _, _ in plan.parts if network.may_wait(group)]
                )
                self.exchanges[number].append(exchange)
                rows.append(exchange)
                if isinstance(operator, Collective):
                    short[number] = plan.carried_s * work.times < short_s(turn_s)
                    if operator.shift:
                        self.sent[rank_class + operator.shift].append(exchange)
        return short

    def lay(self, memories: Memories) -> None:
        """Add the tables."""
        for name in ("task_class", "here", "there", "chained", "short"):
            memories.whole(name, getattr(self, name))
        memories.whole("work", self.work_of)
        memories.whole("still", (int(bool(self.exchanges[work])) for work in self.work_of))
        memories.whole("first_exchange", itertools.accumulate(map(len, self.exchanges), initial=0))
        memories.rows("part", self.parts)
        for name in ("begun", "passes", "sent"):
            memories.rows(name, getattr(self, name))
        for name, rows in (("mine", self.mine), ("theirs", self.theirs), ("asked", self.asked)):
            memories.rows(name, rows)
            memories.whole(f"next_{name}", itertools.accumulate((len(one) for one in rows[:-1]), initial=0))


MOST_CHANGES = 128
"""Changes of circuits that the loop keeps before it hands them out; in plain Python so many take about as
long as loading what is compiled; a choice."""


def lay_lanes(memories: Memories, needs: Sequence[LaneNeed], network: StepNetwork) -> None:
    """Add lanes, and what each group needs of them."""
    fabric = network.fabric
    peers = fabric.lane_peers(network.network.circuits) if network.turns else np.empty((0, 0), dtype=np.int64)
    endpoints, lanes = peers.shape
    memories.rows("need", [need.pairs[:, 0].tolist() for need in needs])
    memories.whole("landing", itertools.chain.from_iterable(need.pairs[:, 1].tolist() for need in needs))
    memories.rows("sender", [need.senders.tolist() for need in needs])
    memories.whole("target", itertools.chain.from_iterable(need.target.ravel().tolist() for need in needs))
    memories.wholes("checked", len(needs), -1)
    memories.wholes("located promised kept", len(needs))
    memories.wholes("lacking row_stamp touched", endpoints)
    memories.whole("peer", peers.ravel().tolist())
    memories.whole("origin", origins(peers).ravel().tolist())
    memories.whole("width", widths(peers).ravel().tolist())
    memories.wholes("before width_then next_dark moving_links", peers.size)
    memories.wholes("version stamp touches moves keeping waiting changes fault slot stalled", 1)
    memories.reals("lane_rate", 1, fabric.traits.lane_bytes_per_s or 0.0)
    memories.at |= {"turns": int(network.turns), "lanes": lanes, "prefetches": int(fabric.traits.prefetches)}
    room = MOST_CHANGES if network.turns else 1
    memories.wholes("changed_group changed_ports", room)
    memories.reals("turned_s lit_s", room)
    memories.at["most_changes"] = room
    if not network.by_parts:
        cell_of, of_group = cells([need.senders for need in needs], endpoints)
        memories.rows("cell", of_group)
        memories.whole("cell_of", cell_of.tolist())
        memories.wholes("moved_last", int(cell_of.max(initial=-1)) + 1)
        memories.wholes("change_group change_ports", peers.size)
        memories.reals("change_s", peers.size)
        most = max((need.senders.size for need in needs), default=0) * lanes
        memories.real("turn_s", (fabric.lane_turn_s(ports) for ports in range(most + 1)))


def lane_to(ints: Ints, at: At, row: int, peer: int) -> int:
    """Return the link from an endpoint to a peer, the first of its lanes there; -1 if there is none."""
    for link in range(row * at.lanes, (row + 1) * at.lanes):
        if ints[at.peer + link] == peer:
            return link
    return -1


def find_entry(ints: Ints, at: At, group: int) -> int:
    """Return what is known of a group as cells are set now; -1, and a fault, if nothing is."""
    if ints[at.fault]:  # settings stay as they were met
        return -1
    first, last = ints[at.first_cell + group], ints[at.first_cell + group + 1]
    entry = ints[at.first_entry + group]
    while entry >= 0:
        shift = ints[at.first_met + entry] - first
        same = True
        for p in range(first, last):
            same = same and ints[at.met + p + shift] == ints[at.setting + ints[at.cell + p]]
        if same:
            return entry
        entry = ints[at.next_entry + entry]
    ints[at.fault] = 1
    return -1


def locate(ints: Ints, reals: Reals, at: At, group: int) -> bool:
    """Bring a group's links up to date; return whether circuits connect all its flows."""
    if ints[at.first_cell + group] == ints[at.first_cell + group + 1]:
        return True
    checked = ints[at.checked + group]
    fresh = checked >= 0
    for p in range(ints[at.first_cell + group], ints[at.first_cell + group + 1]):
        fresh = fresh and ints[at.moved_last + ints[at.cell + p]] <= checked
    if fresh:
        return ints[at.located + group] == 1
    ints[at.checked + group] = ints[at.version]
    ints[at.located + group] = 0
    if not at.lanes:
        known = find_entry(ints, at, group)
        if known >= 0 and ints[at.entry_row + known] >= 0:
            ints[at.row + group] = ints[at.entry_row + known]
            ints[at.located + group] = 1
        return ints[at.located + group] == 1
    first, last = ints[at.first_need + group], ints[at.first_need + group + 1]
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
    """Return whether links of a located group are dark."""
    row = ints[at.row + group]
    for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
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
    """Return whether a group has flows without a circuit, and mark the endpoints that send them."""
    found = False
    for p in range(ints[at.first_need + group], ints[at.first_need + group + 1]):
        row = ints[at.need + p]
        if lane_to(ints, at, row, ints[at.landing + p]) < 0:
            found = True
            ints[at.lacking + row] = mark
    return found


def turn_lanes(ints: Ints, at: At, group: int, mark: int) -> None:
    """Turn the lanes of a group's marked endpoints to their targets.

    What ends where they now end goes dark.
    """
    ints[at.stamp] += 1
    ints[at.touches] = 0
    first, last = ints[at.first_sender + group], ints[at.first_sender + group + 1]
    for q in range(first, last):
        row = ints[at.sender + q]
        if ints[at.lacking + row] == mark:
            touch(ints, at, row)
            clear(ints, at, row)
    for q in range(first, last):
        row = ints[at.sender + q]
        if ints[at.lacking + row] != mark:
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


def is_busy(ints: Ints, at: At, group: int, mark: int) -> bool:
    """Return whether lanes are dark or at work that the marked endpoints of a group would change.

    Most moves that are asked for end here, before any lane is touched.
    """
    for q in range(ints[at.first_sender + group], ints[at.first_sender + group + 1]):
        row = ints[at.sender + q]
        if ints[at.lacking + row] != mark:
            continue
        for lane in range(at.lanes):
            link, peer = row * at.lanes + lane, ints[at.target + q * at.lanes + lane]
            if peer == ints[at.peer + link]:
                continue
            if ints[at.dark + link] or ints[at.users + link]:
                return True
            owner = ints[at.origin + peer * at.lanes + lane] if peer >= 0 else -1
            if owner >= 0 and (
                ints[at.dark + owner * at.lanes + lane] or ints[at.users + owner * at.lanes + lane]
            ):
                return True
    return False


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
    return free and not moves_kept(ints, at)


def moves_kept(ints: Ints, at: At) -> bool:
    """Return whether groups whose circuits stay have links of the present move."""
    for k in range(ints[at.keeping]):
        row = ints[at.row + ints[at.kept + k]]
        if ints[at.located + ints[at.kept + k]]:
            for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
                if ints[at.link_stamp + ints[at.link + p]] == ints[at.stamp]:
                    return True
    return False


def use_links(ints: Ints, at: At, group: int, change: int) -> None:
    """Let so many more transfers load the links of a group."""
    row = ints[at.row + group]
    for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
        ints[at.users + ints[at.link + p]] += change


def is_held(ints: Ints, reals: Reals, at: At, group: int) -> bool:
    """Return whether a group lacks circuits, or some of its links are dark."""
    return not locate(ints, reals, at, group) or is_blocked(ints, at, group)


def stall(ints: Ints, reals: Reals, at: At) -> None:
    """Take transfers that are held off their links; they stand before those that have stalled already."""
    every, before = ints[at.transfers], ints[at.stalled]
    for k in range(every):
        use_links(ints, at, ints[at.group + k], -1)
    for k in range(before - 1, -1, -1):
        ints[at.stalled_group + k + every] = ints[at.stalled_group + k]
        ints[at.stalled_actor + k + every] = ints[at.stalled_actor + k]
        reals[at.stalled_left + k + every] = reals[at.stalled_left + k]
        reals[at.stalled_size + k + every] = reals[at.stalled_size + k]
    for k in range(every):
        ints[at.stalled_group + k], ints[at.stalled_actor + k] = ints[at.group + k], ints[at.moving + k]
        reals[at.stalled_left + k], reals[at.stalled_size + k] = reals[at.bytes_left + k], reals[at.size + k]
    ints[at.transfers] = 0
    ints[at.stalled] = before + every
    let_go(ints, reals, at, 0, every)


def let_go(ints: Ints, reals: Reals, at: At, first: int, last: int) -> None:
    """Put stalled transfers from the first to before the last on their links, but for those that are held."""
    kept = first
    for k in range(first, ints[at.stalled]):
        group, actor = ints[at.stalled_group + k], ints[at.stalled_actor + k]
        left, size = reals[at.stalled_left + k], reals[at.stalled_size + k]
        if k >= last or is_held(ints, reals, at, group):
            ints[at.stalled_group + kept] = group
            ints[at.stalled_actor + kept] = actor
            reals[at.stalled_left + kept] = left
            reals[at.stalled_size + kept] = size
            kept += 1
        else:
            place = insert(ints, reals, at, group, actor)
            reals[at.bytes_left + place] = left
            reals[at.size + place] = size
    ints[at.stalled] = kept


def relocate(ints: Ints, reals: Reals, at: At) -> None:
    """Find the links of everything that moves or has stalled anew, and share them."""
    before = ints[at.stalled]
    stall(ints, reals, at)
    let_go(ints, reals, at, ints[at.stalled] - before, ints[at.stalled])
    if ints[at.transfers] > 0:
        solve(ints, reals, at)
    set_wake(ints, reals, at)


def set_cells(ints: Ints, at: At, group: int, table: int, entry: int) -> None:
    """Set the cells of a group as a table says of an entry."""
    shift = ints[at.first_met + entry] - ints[at.first_cell + group]
    for p in range(ints[at.first_cell + group], ints[at.first_cell + group + 1]):
        ints[at.setting + ints[at.cell + p]] = ints[table + p + shift]


def has_way(ints: Ints, at: At, group: int) -> bool:
    """Return whether a group has circuits as cells are set now."""
    if ints[at.first_cell + group] == ints[at.first_cell + group + 1]:
        return True
    entry = find_entry(ints, at, group)
    return entry >= 0 and ints[at.entry_row + entry] >= 0


def are_parts_free(ints: Ints, at: At, group: int, entry: int) -> bool:
    """Return whether cells may turn as an entry of a group says: nothing that they move or cut off is in use.

    They are set so, unless not.
    """
    row = ints[at.entry_moved + entry]
    ints[at.stamp] += 1
    for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
        link = ints[at.link + p]
        if ints[at.dark + link] or ints[at.users + link]:
            return False
        ints[at.link_stamp + link] = ints[at.stamp]
    if moves_kept(ints, at):
        return False
    set_cells(ints, at, group, at.then, entry)
    free = True
    for k in range(ints[at.transfers]):
        free = free and has_way(ints, at, ints[at.group + k])
    for k in range(ints[at.keeping]):
        if ints[at.located + ints[at.kept + k]]:
            free = free and has_way(ints, at, ints[at.kept + k])
    if not free and not ints[at.fault]:  # else what is met here is to be learnt
        set_cells(ints, at, group, at.met, entry)
    return free


def turn_parts(ints: Ints, reals: Reals, at: At, group: int) -> bool:
    """Start turning the cells that a group asks for, unless a port is at work, kept or moving."""
    entry = find_entry(ints, at, group)
    if entry < 0 or not are_parts_free(ints, at, group, entry):
        return False
    advance(ints, reals, at)
    ints[at.version] += 1
    shift = ints[at.first_met + entry] - ints[at.first_cell + group]
    for p in range(ints[at.first_cell + group], ints[at.first_cell + group + 1]):
        if ints[at.met + p + shift] != ints[at.then + p + shift]:
            ints[at.moved_last + ints[at.cell + p]] = ints[at.version]
    darken(ints, at, entry, 1)
    relocate(ints, reals, at)
    slot = ints[at.slot] % at.slots
    ints[at.slot] += 1
    ints[at.change_ports + slot] = entry
    begin_move(ints, reals, at, slot, group)
    return True


def darken(ints: Ints, at: At, entry: int, change: int) -> None:
    """Let so many more moves have the links that a group's cells move."""
    row = ints[at.entry_moved + entry]
    for p in range(ints[at.first_link + row], ints[at.first_link + row + 1]):
        ints[at.dark + ints[at.link + p]] += change


def light_parts(ints: Ints, reals: Reals, at: At, entry: int) -> bool:
    """Let light pass the links that a group's cells moved; return whether there are any."""
    darken(ints, at, entry, -1)
    if ints[at.stalled]:
        advance(ints, reals, at)
        relocate(ints, reals, at)
    row = ints[at.entry_moved + entry]
    return ints[at.first_link + row] < ints[at.first_link + row + 1]


def begin_move(ints: Ints, reals: Reals, at: At, head: int, group: int) -> None:
    """Let ports begin to move for a group before any other event of the present instant.

    A move is known by its first lane, or by its slot.
    """
    ints[at.change_group + head] = group
    reals[at.change_s + head] = reals[at.now]
    tail = ints[at.starts_tail]
    ints[at.starts + (tail & at.ring)] = MOVED + KINDS * head
    ints[at.starts_tail] = tail + 1


def turn_free_lanes(ints: Ints, at: At, group: int) -> bool:
    """Turn the lanes that a group lacks on the tables; return False if one is at work, kept or moving."""
    mark = ints[at.stamp] + 1
    lacks(ints, at, group, mark)
    if is_busy(ints, at, group, mark):
        ints[at.stamp] = mark
        return False
    turn_lanes(ints, at, group, mark)
    if lacks(ints, at, group, mark):  # that took circuits of its other senders: all of them turn
        take_back(ints, at)
        for q in range(ints[at.first_sender + group], ints[at.first_sender + group + 1]):
            ints[at.lacking + ints[at.sender + q]] = mark
        turn_lanes(ints, at, group, mark)
    if find_moved(ints, at):
        return True
    take_back(ints, at)
    return False


def move_lanes(ints: Ints, reals: Reals, at: At, group: int) -> None:
    """Let the lanes that were turned on the tables go dark and begin to move."""
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
    set_wake(ints, reals, at)
    ints[at.change_ports + head] = ports
    begin_move(ints, reals, at, head, group)


def move(ints: Ints, reals: Reals, at: At, group: int) -> bool:
    """Start moving the ports that a group lacks, unless one is at work, kept or moving; return whether."""
    for k in range(ints[at.keeping]):
        locate(ints, reals, at, ints[at.kept + k])  # while the tables are as they stand
    if not at.lanes:
        return turn_parts(ints, reals, at, group)
    if not turn_free_lanes(ints, at, group):
        return False
    move_lanes(ints, reals, at, group)
    return True


def is_connected(ints: Ints, reals: Reals, at: At, exchange: int) -> bool:
    """Return whether a collective takes circuits, and has all of them."""
    first, last = ints[at.first_part + exchange], ints[at.first_part + exchange + 1]
    for p in range(first, last):
        if not locate(ints, reals, at, ints[at.part + p]):
            return False
    return last > first


def first_left(ints: Ints, at: At, following: int, table: int, end: int) -> int:
    """Return the first task from a place in a table on that has not ended, and keep its place; -1 if none.

    `following` is where the place is kept, `table` where the table begins, and `end` the place behind the
    row's last one.
    """
    place = ints[following]
    while place < end and not ints[at.still + ints[table + place]]:
        place += 1
    ints[following] = place
    return ints[table + place] if place < end else -1


def next_mine(ints: Ints, at: At, exchange: int) -> int:
    """Return the task of a collective that its class needs next; -1 if all of them have ended."""
    return first_left(ints, at, at.next_mine + exchange, at.mine, ints[at.first_mine + exchange + 1])


def next_theirs(ints: Ints, at: At, exchange: int) -> int:
    """Return the task of a collective that its receivers need next; -1 if all of them have ended."""
    return first_left(ints, at, at.next_theirs + exchange, at.theirs, ints[at.first_theirs + exchange + 1])


def is_before(ints: Ints, reals: Reals, at: At, exchange: int, order: int) -> bool:
    """Return whether a collective is connected that its class needs before a place in that order."""
    other = next_mine(ints, at, exchange)
    return other >= 0 and ints[at.here + other] < order and is_connected(ints, reals, at, exchange)


def others_first(ints: Ints, reals: Reals, at: At, task: int) -> bool:
    """Return whether traffic from or to a class is connected that it needs before a task."""
    rank_class, order = ints[at.task_class + task], ints[at.here + task]
    for p in range(ints[at.first_begun + rank_class], ints[at.first_begun + rank_class + 1]):
        if is_before(ints, reals, at, ints[at.begun + p], order):
            return True
    for p in range(ints[at.first_sent + rank_class], ints[at.first_sent + rank_class + 1]):
        exchange = ints[at.sent + p]
        other = next_theirs(ints, at, exchange)
        if other >= 0 and ints[at.there + other] < order and is_connected(ints, reals, at, exchange):
            return True
    if ints[at.short + task]:
        for p in range(ints[at.first_passes + rank_class], ints[at.first_passes + rank_class + 1]):
            if is_before(ints, reals, at, ints[at.passes + p], order):
                return True
    return False


def serve(ints: Ints, reals: Reals, at: At) -> bool:
    """Go through what waits in order: start groups with a lit path, move ports for others.

    With no event left, patience would wait for itself: the first that waits has its ports at once.
    """
    progress = False
    stalled = ints[at.stalled]
    for k in range(stalled):  # as they stand now, whatever moves meanwhile
        ints[at.stalled_then + k] = ints[at.stalled_group + k]
    for k in range(stalled):
        group = ints[at.stalled_then + k]
        if not locate(ints, reals, at, group) and move(ints, reals, at, group):
            progress = True
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
        hurry = ints[at.over] and not progress
        if hurry or not others_first(ints, reals, at, task_of(ints, at, actor)):
            if move(ints, reals, at, group):
                promise(ints, at, group)
                progress = True
    return progress


def has_circuits(ints: Ints, reals: Reals, at: At, actor: int) -> bool:
    """Return whether the group of an actor's instruction has its circuits; if not, it waits for them."""
    counter = ints[at.counter + actor] - 1
    group = ints[at.i + counter]
    if locate(ints, reals, at, group) and not is_blocked(ints, at, group):
        redeem(ints, at, group)
        return True
    ints[at.counter + actor] = counter
    ints[at.waiter + ints[at.waiting]] = actor
    ints[at.waiting] += 1
    return False


def light_up(ints: Ints, reals: Reals, at: At, head: int) -> None:
    """End a move: light passes its links again."""
    if at.lanes:
        link = head
        while link >= 0:
            ints[at.dark + link] = 0
            link = ints[at.next_dark + link]
    elif not light_parts(ints, reals, at, ints[at.change_ports + head]):
        return
    place = ints[at.changes]
    ints[at.changed_group + place] = ints[at.change_group + head]
    ints[at.changed_ports + place] = ints[at.change_ports + head]
    reals[at.turned_s + place] = reals[at.change_s + head]
    reals[at.lit_s + place] = reals[at.now]
    ints[at.changes] = place + 1


def prefetch(ints: Ints, reals: Reals, at: At, rank_class: int) -> None:
    """Turn a class's idle ports to the traffic that comes next (Opus, arXiv:2507.08119)."""
    for place in range(ints[at.next_asked + rank_class], ints[at.first_asked + rank_class + 1]):
        task = ints[at.asked + place]
        if not ints[at.still + task]:
            if place == ints[at.next_asked + rank_class]:
                ints[at.next_asked + rank_class] = place + 1
            continue
        work = ints[at.work + task]
        first = ints[at.first_part + ints[at.first_exchange + work]]
        last = ints[at.first_part + ints[at.first_exchange + work + 1]]
        for p in range(first, last):
            group = ints[at.part + p]
            if not locate(ints, reals, at, group):
                if not others_first(ints, reals, at, task) and not receives(ints, reals, at, rank_class):
                    move(ints, reals, at, group)
                return
        if last > first:
            return


def receives(ints: Ints, reals: Reals, at: At, rank_class: int) -> bool:
    """Return whether other classes still send to a class over present circuits."""
    for p in range(ints[at.first_sent + rank_class], ints[at.first_sent + rank_class + 1]):
        exchange = ints[at.sent + p]
        if next_theirs(ints, at, exchange) >= 0 and is_connected(ints, reals, at, exchange):
            return True
    return False


def class_ahead(ints: Ints, at: At, task: int) -> int:
    """Return the class whose idle ports turn to what comes next, now that a task has ended; -1 if none do."""
    communicates = ints[at.still + task]
    ints[at.still + task] = 0
    if at.prefetches and communicates and ints[at.channel + task] >= 0 and not ints[at.chained + task]:
        return ints[at.task_class + task]
    return -1


def turn_ahead(ints: Ints, reals: Reals, at: At, actor: int) -> int:
    """Turn idle ports to the next block's exchange; return the instruction behind what that takes."""
    counter = ints[at.counter + actor] - 1
    others = ints[at.j + counter]
    if others >= 0 and others_first(ints, reals, at, task_of(ints, at, actor)):
        return counter + 1 + others
    group = ints[at.i + counter]
    if not locate(ints, reals, at, group):
        move(ints, reals, at, group)
    return counter + 1


NEEDED, COMING, DONE_WITH, LIT_UP, FREED = range(5)
"""Occasions on which the loop has circuits turn: an actor's instruction needs them, or is about the next
block's exchange; a task has ended; ports of a move are lit again; links are free."""
Turn = Callable[[Ints, Reals, At, int, int], int]
"""What turns circuits: `turn`, or `stay` where none does."""


def turn(ints: Ints, reals: Reals, at: At, occasion: int, subject: int) -> int:
    """Turn circuits on an occasion that is about an actor, a task or a move, and serve what waits.

    Returns whether an actor has its circuits, the instruction that it goes on with, or whether anything that
    waited goes on.
    """
    ahead = -1
    if occasion == NEEDED and has_circuits(ints, reals, at, subject):
        return 1
    if occasion == COMING:
        return turn_ahead(ints, reals, at, subject)
    if occasion == DONE_WITH:
        ahead = class_ahead(ints, at, subject)
    elif occasion == LIT_UP:
        light_up(ints, reals, at, subject)
    goes_on = serve(ints, reals, at)
    if ahead >= 0:
        prefetch(ints, reals, at, ahead)
    return 1 if goes_on and occasion == FREED else 0


def stay(ints: Ints, reals: Reals, at: At, occasion: int, subject: int) -> int:
    """Turn no circuits; nothing asks for it where none turn."""
    return 0


def _never(ints: Ints, reals: Reals, at: At, what: int) -> bool:
    return False


def _never_found(ints: Ints, at: At, group: int) -> int:
    return -1


NO_PARTS: dict[str, Callable[..., object]] = {
    "find_entry": _never_found,
    "turn_parts": _never,
    "light_parts": _never,
}
"""What stands for functions that nothing calls where no circuits turn part by part, so that a third of the
time to compile is saved."""
