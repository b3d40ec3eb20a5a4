"""Circuits that turn part by part: cells of parts, their settings, and what each group of flows gets of them.

Parts that the same groups touch turn together: they are one cell. What has been met is a table of entries: of
a group and the settings of its cells, the links that it loads, or those that move to give it circuits. The
loop stops where it meets something new, which is learnt from the fabric, and takes the events since its last
stop again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.collectives.flow_groups import FlowGroup
from simulator.engine.compiled.memory import At, Memories, places
from simulator.engine.compiled.programs import NO_CAPACITY, PASSED_ON, NotCoveredError, StepNetwork
from simulator.engine.network import LinkClasses
from simulator.interfaces import Circuits

SLOTS = 64
"""Changes of circuits under way at once, for each cell; a choice, far above what ports allow."""


def cells(members: Sequence[np.ndarray], count: int) -> tuple[np.ndarray, list[list[int]]]:
    """Return a cell for each of some things, and the cells of each group's members.

    Things that are members of the same groups share one. The draw is of no matter: a cell that two such sets
    fell into would be looked at more often.
    """
    if not count:
        return np.empty(0, dtype=np.int64), [[] for _ in members]
    random = np.random.default_rng(0)
    signature = np.zeros(count, dtype=np.uint64)
    for mine, draw in zip(members, random.integers(1, 2**63, len(members)).astype(np.uint64), strict=True):
        signature[mine] += draw
    _, cell_of = np.unique(signature, return_inverse=True)
    return cell_of, [np.unique(cell_of[mine]).tolist() for mine in members]


class CapacityClasses:
    """Classes of links that all rows load alike; a link of another capacity is another link.

    Parameters
    ----------
    links : int
        Links of the fabric.
    """

    def __init__(self, links: int) -> None:
        self._links = links
        self._levels: dict[float, LinkClasses] = {}
        self._number: dict[tuple[float, int], int] = {}

    def add(self, row: int, links: np.ndarray, usage: np.ndarray, capacity: np.ndarray) -> None:
        """Add a row of links, with the load and the capacity of each, shape [U]."""
        for value in np.unique(capacity).tolist():
            if value not in self._levels:
                self._levels[value] = LinkClasses(np.full(self._links, value))
            here = capacity == value
            self._levels[value].add(row, links[here], usage[here])

    def number(self) -> np.ndarray:
        """Return the class (all have numbers then) that each was a part of, -1 if none, shape [new]."""
        parents = []
        known = len(self._number)
        for value, classes in self._levels.items():
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
        """Capacity of each class."""
        return [value for value, _ in self._number]

    def loads(self, row: int) -> Mapping[int, float]:
        """Return the load that a row puts on each class."""
        return {
            self._number[value, label]: load
            for value, classes in self._levels.items()
            if row in classes
            for label, load in classes.loads(row).items()
        }


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Group of flows with its cells in some settings: the links that it loads, or what has to turn."""

    group: int
    """The group."""
    met: tuple[int, ...]
    """Settings of its cells."""
    row: int = -1
    """Links that it loads, or -1 if cells have to turn."""
    moved: int = -1
    """Links that move then, or -1."""
    then: tuple[int, ...] = ()
    """Settings to which they turn, if they do."""
    turn_s: float = 0.0
    """Time until the last of them is lit."""
    energy_j: float = 0.0
    """Energy of moving."""


class Settings:
    """Settings of the circuits of a step, as far as they have been met.

    Parameters
    ----------
    groups : tuple of FlowGroup
        All groups of flows, in the order of their numbers.
    network : StepNetwork
        What carries them.
    """

    def __init__(self, groups: tuple[FlowGroup, ...], network: StepNetwork) -> None:
        self.groups = groups
        self._fabric = network.fabric
        self._initial = network.network.circuits
        parts = [network.parts(one) for one in groups]
        count = max((int(one.max(initial=-1)) for one in parts), default=-1) + 1
        cell_of, self.cells_of = cells(parts, count)
        self.cells = [np.flatnonzero(cell_of == cell) for cell in range(int(cell_of.max(initial=-1)) + 1)]
        self._numbers: list[dict[Hashable, int]] = [{} for _ in self.cells]
        self._turned: list[list[Circuits]] = [[] for _ in self.cells]
        for cell in range(len(self.cells)):
            self._setting(cell, self._initial)
        self._standing: dict[tuple[tuple[int, int], ...], Circuits] = {(): self._initial}
        self._partition = CapacityClasses(network.network.graph.capacity_bytes_per_s.size)
        self._alone: list[float] = []
        self._latency_s: list[float] = []
        self._entries: list[Entry] = []
        self._known: set[tuple[int, tuple[int, ...]]] = set()
        self._base = (0, 0)
        self.links_of_row = 0
        """Classes of links that the widest row loads."""
        for group, mine in zip(groups, self.cells_of, strict=True):
            if mine:
                self._row(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0), np.inf, 0.0)
            else:
                self._loaded(group, self._initial)

    @property
    def energies_j(self) -> np.ndarray:
        """Energy of the move of each entry."""
        return np.array([one.energy_j for one in self._entries])

    def lay(self, memories: Memories) -> None:
        """Add cells, as they are before the first event."""
        memories.rows("cell", self.cells_of)
        memories.wholes("setting moved_last", len(self.cells))
        slots = SLOTS * (1 + len(self.cells))
        memories.wholes("change_group change_ports", slots)
        memories.reals("change_s", slots)
        memories.at["slots"] = slots

    def learn(self, setting: Sequence[int]) -> None:
        """Learn what each group gets as all cells are set."""
        for number, mine in enumerate(self.cells_of):
            met = tuple(setting[cell] for cell in mine)
            if mine and (number, met) not in self._known:
                self._known.add((number, met))
                self._entries.append(self._learnt(number, met))

    def _learnt(self, number: int, met: tuple[int, ...]) -> Entry:
        """Return what a group gets of the fabric with its cells in settings."""
        group, mine, fabric = self.groups[number], self.cells_of[number], self._fabric
        circuits = self._circuits(tuple(zip(mine, met, strict=True)))
        asking = fabric.asking(circuits, group.flows)
        if not asking.size:
            return Entry(group=number, met=met, row=self._loaded(group, circuits))
        after, change = fabric.configure(circuits, group.flows, group.demand)
        if fabric.asking(after, group.flows).size:
            raise NotCoveredError(PASSED_ON)  # the reference tells what is missing
        then = tuple(self._setting(cell, after) for cell in mine)
        moved = change.moved_links
        capacity = [fabric.graph(one).capacity_bytes_per_s[moved] for one in (circuits, after)]
        new = capacity[1] != capacity[0]
        links = np.concatenate([moved, moved[new]])
        capacities = np.concatenate([capacity[0], capacity[1][new]])
        return Entry(
            group=number,
            met=met,
            moved=self._row(links, np.ones(links.size), capacities, 0.0, 0.0),
            then=then,
            turn_s=change.reconfiguration_s,
            energy_j=change.energy_j,
        )

    def _setting(self, cell: int, circuits: Circuits) -> int:
        """Return the number of a cell's setting among those that it has been found in."""
        key = self._fabric.part_settings(circuits, self.cells[cell])
        number = self._numbers[cell].setdefault(key, len(self._turned[cell]))
        if number == len(self._turned[cell]):
            self._turned[cell].append(circuits)
        return number

    def _circuits(self, settings: tuple[tuple[int, int], ...]) -> Circuits:
        """Return circuits of which cells are in settings, and all others as they were at first."""
        found = self._standing.get(settings)
        if found is None:
            found, (cell, setting) = self._circuits(settings[:-1]), settings[-1]
            if setting:
                found = self._fabric.with_parts(found, self._turned[cell][setting], self.cells[cell])
            self._standing[settings] = found
        return found

    def _loaded(self, group: FlowGroup, circuits: Circuits) -> int:
        """Add the row of links that a group loads, and return it."""
        found = self._fabric.loads(circuits, group.flows)
        capacity = self._fabric.graph(circuits).capacity_bytes_per_s[found.links]
        if (capacity <= 0.0).any():
            raise NotCoveredError(NO_CAPACITY)
        alone = float((capacity / found.usage).min(initial=np.inf))
        return self._row(found.links, found.usage, capacity, alone, found.latency_s)

    def _row(
        self, links: np.ndarray, usage: np.ndarray, capacity: np.ndarray, alone: float, latency_s: float
    ) -> int:
        row = len(self._alone)
        self._partition.add(row, links, usage, capacity)
        self._alone.append(alone)
        self._latency_s.append(latency_s)
        return row

    def lay_known(self, memories: Memories) -> np.ndarray:
        """Add all that has been learnt; return the class that each new class of links was a part of."""
        parents = self._partition.number()
        loads = [self._partition.loads(row) for row in range(len(self._alone))]
        capacities = self._partition.capacities
        lay_rows(memories, [list(one) for one in loads], [list(one.values()) for one in loads], capacities)
        self.links_of_row = max((len(one) for one in loads), default=0)
        memories.real("alone", self._alone)
        memories.real("latency", self._latency_s)
        newest, following = [-1] * len(self.groups), []
        for place, one in enumerate(self._entries):
            following.append(newest[one.group])
            newest[one.group] = place
        memories.whole("first_entry", newest)
        memories.whole("next_entry", following)
        memories.whole("entry_row", [one.row for one in self._entries])
        memories.whole("entry_moved", [one.moved for one in self._entries])
        memories.rows("met", [one.met for one in self._entries])
        memories.whole("then", [setting for one in self._entries for setting in one.then or one.met])
        memories.real("turn_s", [one.turn_s for one in self._entries])
        return parents

    def joined(self, memories: Memories) -> tuple[np.ndarray, np.ndarray, At]:
        """Return both memories with what is known at their ends."""
        whole, real = memories.joined()
        self._base = whole.size, real.size
        known = Memories(*self._base)
        self.lay_known(known)
        ends = known.joined()
        at = places(memories.at | known.at)
        return np.concatenate([whole, ends[0]]), np.concatenate([real, ends[1]]), at

    def learnt(
        self, whole: np.ndarray, real: np.ndarray, at: At, setting: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray, At]:
        """Return memories that know what each group gets as all cells are set."""
        self.learn(setting)
        known = Memories(*self._base)
        parents = self.lay_known(known)
        ends = known.joined()
        after = at._replace(**known.at)
        before = len(self._partition.capacities) - parents.size
        joined = np.concatenate([whole[: self._base[0]], ends[0]])
        for was, now in ((at.users, after.users), (at.dark, after.dark)):
            old = np.append(whole[was : was + before], 0)  # the last stands for no class
            joined[now : now + before + parents.size] = np.concatenate([old[:-1], old[parents]])
        return joined, np.concatenate([real[: self._base[1]], ends[1]]), after


def lay_rows(
    memories: Memories,
    links: Sequence[Sequence[int]],
    loads: Sequence[Sequence[float]],
    capacities: Sequence[float],
) -> None:
    """Add rows of classes of links with their loads, and the classes."""
    memories.rows("link", links)
    memories.real("load", (load for row in loads for load in row))
    memories.real("capacity", capacities)
    memories.wholes("users dark link_stamp", len(capacities))
    memories.reals("remaining demand slowest used", len(capacities))
