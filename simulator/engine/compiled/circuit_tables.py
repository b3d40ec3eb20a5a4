"""Tables by which circuits turn during a step: lanes or cells, and the exchanges that need them.

Lanes are known from the fabric before the first event (`LaneNeed`). Cells (circuits that the same groups
use, and that turn together) are learnt: `Settings` keeps entries that say, for a group of flows and the
settings of its cells, which links it loads, or which links move to give it circuits. The loop stops at a
setting without an entry; the fabric is asked, and the events since the last stop are taken again.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.collectives.flow_groups import FlowGroup
from simulator.engine.compiled.programs import (
    NO_CAPACITY,
    PASSED_ON,
    NotCoveredError,
    Programs,
    StepNetwork,
    StepStructure,
)
from simulator.engine.compiled.state import Offsets, Tables, offsets
from simulator.engine.lookahead import exchanges, short_s
from simulator.engine.network import LinkClasses
from simulator.fabric import Loads
from simulator.interfaces import Circuits
from simulator.operators import Collective
from simulator.operators import Sequence as Run

MOST_CHANGES = 128
"""Changes of circuits that the loop keeps before it hands them out; in plain Python so many take about as
long as loading what is compiled; a choice."""
SLOTS = 64
"""Moves under way at once for which there is room, for each cell; a choice, far above what ports allow."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LaneNeed:
    """Lanes that a group of flows needs."""

    pairs: np.ndarray
    """Sending and receiving endpoint of each pair that has to be connected, each pair once, shape [P, 2]."""
    usage: np.ndarray
    """Flows over each pair, shape [P]; dimensionless."""
    senders: np.ndarray
    """Endpoints that send, each once, shape [S]."""
    peers: np.ndarray
    """Endpoint to which each of their lanes turns, -1 for none, shape [S, lanes]."""


NO_LANES = LaneNeed(
    pairs=np.empty((0, 2), dtype=np.int64),
    usage=np.empty(0),
    senders=np.empty(0, dtype=np.int64),
    peers=np.empty((0, 1), dtype=np.int64),
)
"""Need of flows inside nodes."""


def lane_need(group: FlowGroup, network: StepNetwork) -> LaneNeed:
    """Return the lanes that a group needs.

    Raises
    ------
    NotCoveredError
        If flows without bytes need some.
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
    return LaneNeed(pairs=pairs, usage=usage, senders=senders, peers=claim.target[senders])


def fixed_loads(group: FlowGroup, network: StepNetwork, first: int) -> Loads:
    """Return a group's loads on fixed links, those numbered from `first` on (the others are lanes)."""
    found = network.loads(group)
    fixed = found.links >= first
    return Loads(links=found.links[fixed], usage=found.usage[fixed], latency_s=found.latency_s)


def lane_widths(peers: np.ndarray) -> np.ndarray:
    """Return how many lanes each lane acts for as a link: all to its peer if it is the first of them, else 0.

    Parameters
    ----------
    peers : numpy.ndarray
        Endpoint that each lane reaches, -1 for none, shape [E, lanes], as the result.
    """
    same = (peers[:, :, None] == peers[:, None, :]) & (peers >= 0)[:, :, None]
    first = ~np.tril(same, -1).any(axis=2)
    return np.where(first, same.sum(axis=2), 0)


def lane_origins(peers: np.ndarray) -> np.ndarray:
    """Return the endpoint whose light each lane receives, -1 for none; shapes as in `lane_widths`."""
    found = np.full_like(peers, -1)
    rows, lanes = np.nonzero(peers >= 0)
    found[peers[rows, lanes], lanes] = rows
    return found


def add_lane_tables(tables: Tables, needs: Sequence[LaneNeed], network: StepNetwork) -> None:
    """Add lanes, the need of each group, and room for moves and changes.

    Parameters
    ----------
    tables : Tables
        Where they are added.
    needs : sequence of LaneNeed
        Need of each group.
    network : StepNetwork
        The fabric.
    """
    fabric = network.fabric
    peers = fabric.lane_peers(network.network.circuits) if network.turns else np.empty((0, 0), dtype=np.int64)
    endpoints, lanes = peers.shape
    tables.rows("pair_sender", [need.pairs[:, 0].tolist() for need in needs], first="first_pair")
    tables.ints("pair_receiver", itertools.chain.from_iterable(need.pairs[:, 1].tolist() for need in needs))
    tables.rows("sender", [need.senders.tolist() for need in needs])
    tables.ints("sender_peer", itertools.chain.from_iterable(need.peers.ravel().tolist() for need in needs))
    tables.same_ints("located_version", len(needs), -1)
    tables.same_ints("is_located is_promised promised_group", len(needs))
    tables.same_ints("lacking_trial touched_trial touched_endpoint", endpoints)
    tables.ints("lane_peer", peers.ravel().tolist())
    tables.ints("lane_origin", lane_origins(peers).ravel().tolist())
    tables.ints("lane_width", lane_widths(peers).ravel().tolist())
    tables.same_ints("peer_before width_after next_moving moving_link", peers.size)
    tables.same_ints("circuit_version trial touched_count moving_count promised_count", 1)
    tables.same_ints("circuit_waiter_count change_count unknown_setting begun_moves stalled_count", 1)
    tables.same_reals("lane_rate", 1, fabric.traits.lane_bytes_per_s or 0.0)
    room = MOST_CHANGES if network.turns else 1
    tables.at |= {
        "circuits_turn": int(network.turns),
        "lanes": lanes,
        "prefetches": int(fabric.traits.prefetches),
        "change_room": room,
    }
    tables.same_ints("change_group change_ports", room)
    tables.same_reals("change_start_s change_end_s", room)
    if not network.by_parts:
        cell_of, cells_of_group = cells([need.senders for need in needs], endpoints)
        tables.rows("cell", cells_of_group)
        tables.ints("cell_of", cell_of)
        tables.same_ints("cell_version", int(cell_of.max(initial=-1)) + 1)
        tables.same_ints("move_group move_ports", peers.size)
        tables.same_reals("move_start_s", peers.size)
        most_ports = max((need.senders.size for need in needs), default=0) * lanes
        tables.reals("turn_s", (fabric.lane_turn_s(ports) for ports in range(most_ports + 1)))


class StepExchanges:
    """Exchanges of a step, and the tasks that carry each, in the order in which they are needed.

    An exchange is a collective of a work that may share links with others. Lists by class hold exchanges;
    lists by exchange hold tasks, by their place in the graph.

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
        self._works, self._work_of = structure.works, structure.work_of
        classes, order = structure.graph.layout.classes, structure.need_order
        ids = [task.id for task in structure.graph.tasks]
        self._own_order = [order.own[task] for task in ids]
        self._receiver_order = [order.receiver[task] for task in ids]
        self._is_chained = [int(task in order.chained) for task in ids]
        self._of_work: list[list[int]] = [[] for _ in self._works]
        self._groups: list[list[int]] = []
        self._beside: list[list[int]] = [[] for _ in range(classes)]
        self._inner: list[list[int]] = [[] for _ in range(classes)]
        self._arriving: list[list[int]] = [[] for _ in range(classes)]
        self._is_short = [False for _ in self._works]
        for number in range(len(self._works)):
            self._add_exchanges(number, programs, network)
        carrying = [task for task, work in enumerate(self._work_of) if self._of_work[work]]
        self._own_tasks = self._tasks_by_exchange(sorted(carrying, key=self._own_order.__getitem__))
        self._receiver_tasks = self._tasks_by_exchange(sorted(carrying, key=self._receiver_order.__getitem__))
        self._prefetched: list[list[int]] = [[] for _ in range(classes)]
        for task in sorted(carrying, key=self._own_order.__getitem__):
            work = self._works[self._work_of[task]]
            if isinstance(work.operator, Collective):
                self._prefetched[work.rank_class].append(task)

    def _add_exchanges(self, number: int, programs: Programs, network: StepNetwork) -> None:
        """Add the exchanges of a work; one whose links nothing else takes has none."""
        work = self._works[number]
        operator, rank_class = work.operator, work.rank_class
        is_collective = isinstance(operator, Collective)
        private = isinstance(operator, Run) and network.private(operator, rank_class)
        if (work.beside and not is_collective) or private:
            return
        for collective in exchanges(operator):
            plan = network.plan(collective, rank_class)
            exchange = len(self._groups)
            self._groups.append(
                [programs.groups[group] for group in plan.flow_groups if network.may_wait(group)]
            )
            self._of_work[number].append(exchange)
            (self._beside if is_collective else self._inner)[rank_class].append(exchange)
            if isinstance(operator, Collective):
                turn_s = network.fabric.traits.reconfiguration_s
                self._is_short[number] = plan.carried_s * work.times < short_s(turn_s)
                if operator.shift:
                    self._arriving[rank_class + operator.shift].append(exchange)

    def _tasks_by_exchange(self, tasks: Sequence[int]) -> list[list[int]]:
        """Return the tasks of each exchange, in the order of those given."""
        found: list[list[int]] = [[] for _ in self._groups]
        for task in tasks:
            for exchange in self._of_work[self._work_of[task]]:
                found[exchange].append(task)
        return found

    def add_tables(self, tables: Tables) -> None:
        """Add the exchanges, and what is known of each task."""
        tables.ints("task_class", (self._works[work].rank_class for work in self._work_of))
        tables.ints("task_work", self._work_of)
        tables.ints("own_order", self._own_order)
        tables.ints("receiver_order", self._receiver_order)
        tables.ints("is_chained", self._is_chained)
        tables.ints("is_short", (int(self._is_short[work]) for work in self._work_of))
        tables.ints("is_pending", (int(bool(self._of_work[work])) for work in self._work_of))
        tables.ints("first_exchange", itertools.accumulate(map(len, self._of_work), initial=0))
        tables.rows("exchange_group", self._groups)
        tables.rows("beside_exchange", self._beside)
        tables.rows("inner_exchange", self._inner)
        tables.rows("arriving_exchange", self._arriving)
        tables.rows("own_task", self._own_tasks, following=True)
        tables.rows("receiver_task", self._receiver_tasks, following=True)
        tables.rows("prefetch_task", self._prefetched, following=True)


def cells(members: Sequence[np.ndarray], count: int) -> tuple[np.ndarray, list[list[int]]]:
    """Return cells of parts that the same groups use, and the cells that each group uses.

    Parameters
    ----------
    members : sequence of numpy.ndarray
        Parts that each group uses, by number.
    count : int
        Parts in all.

    Returns
    -------
    numpy.ndarray
        Cell of each part, shape [count].
    list of list of int
        Cells of each group.

    Notes
    -----
    A part's signature is the sum of a random number for each of its groups; equal signatures are one cell.
    Two different sets of groups with one sum (probability 2^-64) would share a cell, which is correct, if
    slower.
    """
    if not count:
        return np.empty(0, dtype=np.int64), [[] for _ in members]
    random = np.random.default_rng(0)
    signature = np.zeros(count, dtype=np.uint64)
    for parts, draw in zip(members, random.integers(1, 2**63, len(members)).astype(np.uint64), strict=True):
        signature[parts] += draw
    _, cell_of = np.unique(signature, return_inverse=True)
    return cell_of, [np.unique(cell_of[parts]).tolist() for parts in members]


class CapacityClasses:
    """Classes of links that all routes load alike, where the capacity of a link depends on the circuits.

    A link with another capacity counts as another link: there are `LinkClasses` for each capacity.

    Parameters
    ----------
    links : int
        Links of the fabric.
    """

    def __init__(self, links: int) -> None:
        self._links = links
        self._by_capacity: dict[float, LinkClasses] = {}
        self._number: dict[tuple[float, int], int] = {}

    def add(self, route: int, links: np.ndarray, usage: np.ndarray, capacity: np.ndarray) -> None:
        """Add a route.

        Parameters
        ----------
        route : int
            Its number.
        links, usage, capacity : numpy.ndarray
            Links on it, and the load and the capacity in B/s of each, shape [U].
        """
        for value in np.unique(capacity).tolist():
            if value not in self._by_capacity:
                self._by_capacity[value] = LinkClasses(np.full(self._links, value))
            equal = capacity == value
            self._by_capacity[value].add(route, links[equal], usage[equal])

    def number_new(self) -> np.ndarray:
        """Give numbers to the classes that have none; return the numbered class that each was split from.

        Returns
        -------
        numpy.ndarray
            Number of the class whose links each new one held before, -1 if none, shape [new classes].
        """
        parents = []
        known = len(self._number)
        for value, classes in self._by_capacity.items():
            for label, parent in enumerate(classes.parents):
                if (value, label) not in self._number:
                    self._number[value, label] = len(self._number)
                    above = parent
                    while self._number.get((value, above), -1) >= known:
                        above = classes.parents[above]
                    parents.append(self._number.get((value, above), -1))
        return np.array(parents, dtype=np.int64)

    @property
    def capacities(self) -> list[float]:
        """Capacity of each class, in B/s."""
        return [value for value, _ in self._number]

    def loads(self, route: int) -> Mapping[int, float]:
        """Return the load of a route on each class, by its number."""
        return {
            self._number[value, label]: load
            for value, classes in self._by_capacity.items()
            if route in classes
            for label, load in classes.loads(route).items()
        }


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Route of a group while its cells are in some settings, or the move that it then needs."""

    group: int
    """The group."""
    settings: tuple[int, ...]
    """Settings of its cells for which this holds."""
    route: int = -1
    """Its route, or -1 if cells have to turn."""
    moved_route: int = -1
    """Route made of the links that move then, or -1."""
    turned_settings: tuple[int, ...] = ()
    """Settings to which its cells turn then."""
    turn_s: float = 0.0
    """Time until the last of the links is lit."""
    energy_j: float = 0.0
    """Energy of the move."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopState:
    """State of the event loop; see `simulator.engine.compiled.state`."""

    ints: np.ndarray
    """Tables of whole numbers."""
    reals: np.ndarray
    """Tables of reals."""
    at: Offsets
    """Places of the tables."""


class Settings:
    """Settings of the cells of a step, and the entries that have been learnt.

    Parameters
    ----------
    groups : tuple of FlowGroup
        All groups of flows, in the order of their numbers.
    network : StepNetwork
        The network that carries them.
    """

    def __init__(self, groups: tuple[FlowGroup, ...], network: StepNetwork) -> None:
        self.groups = groups
        self._fabric = network.fabric
        self._initial = network.network.circuits
        parts = [network.parts(group) for group in groups]
        count = max((int(one.max(initial=-1)) for one in parts), default=-1) + 1
        cell_of, self._cells_of = cells(parts, count)
        self.cells = [np.flatnonzero(cell_of == cell) for cell in range(int(cell_of.max(initial=-1)) + 1)]
        """Parts of each cell."""
        self._setting_numbers: list[dict[Hashable, int]] = [{} for _ in self.cells]
        self._setting_circuits: list[list[Circuits]] = [[] for _ in self.cells]
        for cell in range(len(self.cells)):
            self._number_setting(cell, self._initial)
        self._known_circuits: dict[tuple[tuple[int, int], ...], Circuits] = {(): self._initial}
        self._classes = CapacityClasses(network.network.graph.capacity_bytes_per_s.size)
        self._alone_rates: list[float] = []
        self._latencies_s: list[float] = []
        self._entries: list[Entry] = []
        self._known: set[tuple[int, tuple[int, ...]]] = set()
        self._size_before = (0, 0)
        self.widest_route = 0
        """Classes of links on the widest route."""
        for group, group_cells in zip(groups, self._cells_of, strict=True):
            if group_cells:
                self._add_route(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
            else:
                self._add_loads(group, self._initial)

    @property
    def energies_j(self) -> np.ndarray:
        """Energy of the move of each entry, shape [entries]."""
        return np.array([entry.energy_j for entry in self._entries])

    def add_cell_tables(self, tables: Tables) -> None:
        """Add cells as they are set before the first event, and room for moves."""
        tables.rows("cell", self._cells_of)
        tables.same_ints("cell_setting cell_version", len(self.cells))
        slots = SLOTS * (1 + len(self.cells))
        tables.same_ints("move_group move_ports", slots)
        tables.same_reals("move_start_s", slots)
        tables.at["move_slots"] = slots

    def initial_state(self, tables: Tables) -> LoopState:
        """Return the state before the first event: tables, and behind them all that is learnt so far."""
        ints, reals = tables.arrays()
        self._size_before = ints.size, reals.size
        learnt = Tables(*self._size_before)
        self._add_learnt(learnt)
        learnt_ints, learnt_reals = learnt.arrays()
        return LoopState(
            ints=np.concatenate([ints, learnt_ints]),
            reals=np.concatenate([reals, learnt_reals]),
            at=offsets(tables.at | learnt.at),
        )

    def learn(self, state: LoopState, settings: Sequence[int]) -> LoopState:
        """Learn an entry of every group for the present settings of all cells; return the state with them.

        Parameters
        ----------
        state : LoopState
            State to which the tables of what is learnt are written anew.
        settings : sequence of int
            Setting of each cell.
        """
        for number, group_cells in enumerate(self._cells_of):
            own_settings = tuple(settings[cell] for cell in group_cells)
            if group_cells and (number, own_settings) not in self._known:
                self._known.add((number, own_settings))
                self._entries.append(self._learn_entry(number, own_settings))
        learnt = Tables(*self._size_before)
        parents = self._add_learnt(learnt)
        learnt_ints, learnt_reals = learnt.arrays()
        ints = np.concatenate([state.ints[: self._size_before[0]], learnt_ints])
        reals = np.concatenate([state.reals[: self._size_before[1]], learnt_reals])
        at = state.at._replace(**learnt.at)
        classes = len(self._classes.capacities)
        known = classes - parents.size
        for before, after in ((state.at.link_users, at.link_users), (state.at.dark_moves, at.dark_moves)):
            old = np.append(state.ints[before : before + known], 0)  # the last stands for parent -1
            ints[after : after + classes] = np.concatenate([old[:-1], old[parents]])
        return LoopState(ints=ints, reals=reals, at=at)

    def _learn_entry(self, number: int, settings: tuple[int, ...]) -> Entry:
        """Ask the fabric what a group needs while its cells are in some settings."""
        group, group_cells, fabric = self.groups[number], self._cells_of[number], self._fabric
        circuits = self._circuits(tuple(zip(group_cells, settings, strict=True)))
        if not fabric.asking(circuits, group.flows).size:
            return Entry(group=number, settings=settings, route=self._add_loads(group, circuits))
        after, change = fabric.configure(circuits, group.flows, group.demand)
        if fabric.asking(after, group.flows).size:
            raise NotCoveredError(PASSED_ON)  # the reference tells what is missing
        moved = change.moved_links
        capacity_before, capacity_after = (
            fabric.graph(one).capacity_bytes_per_s[moved] for one in (circuits, after)
        )
        changed = capacity_after != capacity_before
        links = np.concatenate([moved, moved[changed]])
        capacity = np.concatenate([capacity_before, capacity_after[changed]])
        return Entry(
            group=number,
            settings=settings,
            moved_route=self._add_route(links, np.ones(links.size), capacity),
            turned_settings=tuple(self._number_setting(cell, after) for cell in group_cells),
            turn_s=change.reconfiguration_s,
            energy_j=change.energy_j,
        )

    def _number_setting(self, cell: int, circuits: Circuits) -> int:
        """Return the number of the setting that a cell has in some circuits; a new one gets the next."""
        known = self._setting_circuits[cell]
        key = self._fabric.part_settings(circuits, self.cells[cell])
        number = self._setting_numbers[cell].setdefault(key, len(known))
        if number == len(known):
            known.append(circuits)
        return number

    def _circuits(self, settings: tuple[tuple[int, int], ...]) -> Circuits:
        """Return circuits with cells in given settings (pairs of both), and all others as at the start."""
        found = self._known_circuits.get(settings)
        if found is None:
            found, (cell, setting) = self._circuits(settings[:-1]), settings[-1]
            if setting:
                turned = self._setting_circuits[cell][setting]
                found = self._fabric.with_parts(found, turned, self.cells[cell])
            self._known_circuits[settings] = found
        return found

    def _add_loads(self, group: FlowGroup, circuits: Circuits) -> int:
        """Add the route of a group over some circuits; return its number."""
        found = self._fabric.loads(circuits, group.flows)
        capacity = self._fabric.graph(circuits).capacity_bytes_per_s[found.links]
        if (capacity <= 0.0).any():
            raise NotCoveredError(NO_CAPACITY)
        route = self._add_route(found.links, found.usage, capacity)
        self._alone_rates[route] = float((capacity / found.usage).min(initial=np.inf))
        self._latencies_s[route] = found.latency_s
        return route

    def _add_route(self, links: np.ndarray, usage: np.ndarray, capacity: np.ndarray) -> int:
        """Add a route that no flow takes yet; return its number."""
        route = len(self._alone_rates)
        self._classes.add(route, links, usage, capacity)
        self._alone_rates.append(np.inf)
        self._latencies_s.append(0.0)
        return route

    def _add_learnt(self, tables: Tables) -> np.ndarray:
        """Add routes, links and entries; return the class that each new class of links was split from."""
        parents = self._classes.number_new()
        loads = [self._classes.loads(route) for route in range(len(self._alone_rates))]
        add_route_tables(
            tables,
            [list(one) for one in loads],
            [list(one.values()) for one in loads],
            self._classes.capacities,
        )
        self.widest_route = max((len(one) for one in loads), default=0)
        tables.reals("alone_rate", self._alone_rates)
        tables.reals("latency_s", self._latencies_s)
        newest, older = [-1] * len(self.groups), []
        for place, entry in enumerate(self._entries):
            older.append(newest[entry.group])
            newest[entry.group] = place
        tables.ints("newest_entry", newest)
        tables.ints("older_entry", older)
        tables.ints("entry_route", [entry.route for entry in self._entries])
        tables.ints("moved_route", [entry.moved_route for entry in self._entries])
        tables.rows("entry_setting", [entry.settings for entry in self._entries])
        turned = (entry.turned_settings or entry.settings for entry in self._entries)
        tables.ints("turned_setting", itertools.chain.from_iterable(turned))
        tables.reals("turn_s", [entry.turn_s for entry in self._entries])
        return parents


def add_route_tables(
    tables: Tables,
    links: Sequence[Sequence[int]],
    loads: Sequence[Sequence[float]],
    capacities: Sequence[float],
) -> None:
    """Add routes and classes of links.

    Parameters
    ----------
    tables : Tables
        Where they are added.
    links, loads : sequence of sequence
        Classes of links on each route, and the load on each.
    capacities : sequence of float
        Capacity of each class, in B/s.
    """
    tables.rows("hop_link", links, first="first_hop")
    tables.reals("hop_load", itertools.chain.from_iterable(loads))
    tables.reals("link_capacity", capacities)
    tables.same_ints("link_users dark_moves link_trial", len(capacities))
    tables.same_reals("link_remaining link_load link_slowest link_taken", len(capacities))
