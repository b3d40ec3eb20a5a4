"""A step in arrays: its structure found once, its prices when hardware changes, its events in one loop."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simulator.collectives.flow_groups import FlowGroup
from simulator.engine.compiled.loop import Play, Turning, compiled_play, is_compiled, play, record
from simulator.engine.compiled.memory import KINDS, LEVELS, RESUME, At, Memories, places
from simulator.engine.compiled.programs import Charge, NotCoveredError, Programs, StepNetwork, StepStructure
from simulator.engine.compiled.settings import Settings, lay_rows
from simulator.engine.compiled.turns import StepExchanges, fixed_loads, lane_need, lay_lanes, turn
from simulator.engine.network import Tally
from simulator.engine.simulation import Simulation
from simulator.fabric import Fabric, Loads
from simulator.node import Node
from simulator.operators import StepGraph, takes_units
from simulator.results import COMMUNICATION, ISSUE, SPAN_COLUMNS, STREAMS, SpanTable, Stream, Trace


def link_classes(
    groups: Iterable[FlowGroup | Loads], capacity_bytes_per_s: np.ndarray
) -> tuple[list[list[int]], list[list[float]], list[float]]:
    """Return the classes of links that each group of flows loads, its load on each, and their capacities.

    Two links are alike that have one capacity and that every group loads equally, as in
    `simulator.engine.network.LinkClasses`; here all groups are known at once.

    Parameters
    ----------
    groups : iterable of FlowGroup or Loads
        Groups with their links.
    capacity_bytes_per_s : numpy.ndarray
        Capacity of each link, shape [L].
    """
    every = tuple(groups)
    if not every:
        return [], [], []
    link = np.concatenate([one.links for one in every])
    owner = np.repeat(np.arange(len(every)), [one.links.size for one in every])
    usage = np.concatenate([one.usage for one in every])
    order = np.lexsort((owner, link))
    link, owner, usage = link[order], owner[order], usage[order]
    used, first, count = np.unique(link, return_index=True, return_counts=True)
    classes: list[list[int]] = [[] for _ in every]
    loads: list[list[float]] = [[] for _ in every]
    capacities: list[float] = []
    for loaded in np.flatnonzero(np.bincount(count)).tolist():
        mine = np.flatnonzero(count == loaded)
        entry = first[mine, None] + np.arange(loaded)
        rows = np.hstack([capacity_bytes_per_s[used[mine], None], owner[entry], usage[entry]])
        rows = rows[np.lexsort(rows.T)]
        kinds = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))
        for row in rows[kinds].tolist():
            for group, load in zip(row[1 : 1 + loaded], row[1 + loaded :], strict=True):
                classes[int(group)].append(len(capacities))
                loads[int(group)].append(load)
            capacities.append(row[0])
    return classes, loads, capacities


def laid_out(
    structure: StepStructure, programs: Programs, network: StepNetwork, settings: Settings | None
) -> Memories:
    """Return both memories as they are before the first event, without what is known of settings."""
    memories = Memories()
    every = _lay_actors(memories, structure, programs)
    _lay_tasks(memories, structure, programs)
    actors, tasks = len(structure.actors), len(structure.work_of)
    lanes = _lay_circuits(memories, structure, programs, network)
    if settings:
        settings.lay(memories)
        lanes = memories.at["slots"]
    stalling = every if settings else 0
    memories.wholes("stalled_group stalled_actor stalled_then", stalling)
    memories.reals("stalled_left stalled_size", stalling)
    ring = 1 << (4 * every + structure.channels + 2 * lanes).bit_length()
    due = np.array([one.charges for one in programs.of_work])
    charges = int(due[structure.tables["work_of"]] @ structure.tables["times"])
    memories.at |= {"actors": actors, "ring": ring - 1}
    memories.wholes("moving group frozen waiter", every)
    memories.wholes("heap_order heap_event", 2 * every + lanes)
    memories.wholes("queue", ring)
    starts = np.zeros(ring, dtype=np.int64)
    starts[:actors] = RESUME + KINDS * np.arange(actors)
    memories.whole("starts", starts)
    memories.wholes("log", charges)
    memories.wholes("finished", tasks)
    memories.wholes("lost queue_head queue_tail starts_head heap_size transfers logged ended over", 1)
    memories.wholes("sequence wake_order token", 1)
    memories.wholes("starts_tail", 1, actors)
    memories.reals("start_s end_s waited_s issued_s", tasks)
    memories.reals("mark_s begin_s bytes_left size rate fair", every)
    memories.reals("heap_s", 2 * every + lanes)
    memories.reals("now clock", 1)
    memories.reals("wake_s", 1, np.inf)
    return memories


def _lay_actors(memories: Memories, structure: StepStructure, programs: Programs) -> int:
    """Add actors with the children that their programs start; return how many there are in all."""
    actors, tables = structure.actors, structure.tables
    forking = np.array([one.forks for one in programs.of_work])[tables["work_of"][tables["order"]]]
    forks = np.logical_or.reduceat(forking, tables["first_order"][:-1])
    every = len(actors) + int(forks.sum()) * (1 + LEVELS)
    children = itertools.count(len(actors), 1 + LEVELS)
    first_child = [next(children) if one else -1 for one in forks.tolist()]
    for child in [one for one in first_child if one >= 0]:
        first_child += [child, -1, -1]  # what travels beside a product has the same levels
    memories.whole("first_order", tables["first_order"])
    memories.whole("order", tables["order"])
    memories.whole("first_child", first_child)
    place = np.zeros(every, dtype=np.int64)
    place[: len(actors)] = tables["first_order"][:-1]
    memories.whole("place", place)
    memories.whole("wait", tables["wait"])
    memories.wholes("phase counter again left", every)
    memories.wholes("next_waiter next_queued", len(actors), -1)
    return every


def _lay_tasks(memories: Memories, structure: StepStructure, programs: Programs) -> None:
    """Add tasks, channels and programs."""
    works, tables = structure.works, structure.tables
    work_of, tasks = tables["work_of"], len(structure.work_of)
    memories.whole("program", np.array([one.entry for one in programs.of_work])[work_of])
    memories.whole("times", tables["times"])
    memories.whole("channel", tables["channel"])
    taken = programs.collective_share > 0.0
    takes = [one.rank_class if taken and takes_units(one.operator) else -1 for one in works]
    memories.whole("takes", np.array(takes)[work_of])
    memories.wholes("done", tasks)
    memories.wholes("first_waiter last_waiter", tasks, -1)
    memories.whole("first_after", tables["first_after"])
    memories.whole("after", tables["after"])
    memories.wholes("busy", structure.channels)
    memories.wholes("first_queued last_queued", structure.channels, -1)
    memories.whole("op", [int(one.op) for one in programs.code])
    memories.whole("i", [one.i for one in programs.code])
    memories.whole("j", [one.j for one in programs.code])
    memories.real("x", [float(one.x) for one in programs.code])
    memories.real("busy_s", [one.busy_s for one in programs.code])
    memories.real("slack_s", [one.slack_s for one in programs.code])
    memories.reals("collective_share", 1, programs.collective_share)
    classes = structure.graph.layout.classes
    memories.wholes("working collectives", classes)
    memories.reals("worked_s work_begin_s work_end_s busy_share settled_s owed_s slack_left_s", classes)


def _lay_circuits(
    memories: Memories, structure: StepStructure, programs: Programs, network: StepNetwork
) -> int:
    """Add groups of flows with their links, and what lanes they need; return how many lanes there are."""
    groups = tuple(programs.groups)
    needs = [lane_need(one, network) for one in groups]
    memories.whole("row", range(len(groups)))
    memories.whole("number", (one.index for one in groups))
    lay_lanes(memories, needs, network)
    if network.turns:
        StepExchanges(structure, programs, network).lay(memories)
    if network.by_parts:
        return 0
    capacity = network.network.graph.capacity_bytes_per_s
    lanes = network.fabric.lane_peers(network.network.circuits).size if network.turns else 0
    fixed = [fixed_loads(one, network, lanes) for one in groups]
    classes, loads, capacities = link_classes(fixed, capacity)
    links = [
        [-1] * len(need.pairs) + [lanes + one for one in mine]
        for need, mine in zip(needs, classes, strict=True)
    ]
    both = [[*need.usage.tolist(), *mine] for need, mine in zip(needs, loads, strict=True)]
    lay_rows(memories, links, both, [*capacity[:lanes].tolist(), *capacities])
    alone = [
        min((capacities[link] / load for link, load in zip(mine, loaded, strict=True)), default=np.inf)
        for mine, loaded in zip(classes, loads, strict=True)
    ]
    memories.real("alone", alone)
    return lanes


def merged(one: SpanTable, other: SpanTable) -> SpanTable:
    """Return the spans of two tables in order of their end; of equal ones those of the first come first."""
    names = tuple(sorted({*one.names, *other.names}))
    tables = (one, other)
    name = np.concatenate([np.array([names.index(each) for each in two.names])[two.name] for two in tables])
    columns: dict[str, Any] = {
        column: np.concatenate([getattr(two, column) for two in tables]) for column in SPAN_COLUMNS
    }
    padded = np.full((len(other), one.parts_s.shape[1]), np.nan)
    columns |= {"name": name, "parts_s": np.concatenate([one.parts_s, padded])}
    both = replace(one, names=names, **columns)
    return both.rows(np.lexsort((both.name, both.rank_class, both.end_s)))


COMPILED_FROM = 20_000
"""Tasks of a step, or of all of a process, from which on the loop is compiled: plain Python runs them while
numba is loaded; a choice."""
_IN_PYTHON: Counter[str] = Counter()
"""Tasks that this process has run in plain Python, those of wide rows counted several times."""
NARROW_LINKS = 8
"""Classes of links that a transfer loads where lanes turn, about; a choice. In plain Python a task takes as
many times as long as its transfers load times as many."""


class StepRuns:
    """Runs of one step on many systems: structure found once, collectives priced once for a fabric.

    The reference runs where the step or the fabric has a trait that arrays do not know (`why_reference`).

    Parameters
    ----------
    graph : StepGraph
        The step.
    runs : int
        How often it will run, as far as is known; many are worth compiling for.
    """

    def __init__(self, graph: StepGraph, *, runs: int = 1) -> None:
        self.graph = graph
        self.why_reference = ""
        """Trait for which the last run was the reference's; empty if it was not."""
        self._compiled = len(graph.tasks) * runs >= COMPILED_FROM
        self._structure: StepStructure | None = None
        self._step: CompiledStep | None = None

    def run(self, node: Node, fabric: Fabric) -> Trace:
        """Return the trace of the step on a node and a fabric.

        Raises
        ------
        RouteError
            If the fabric has fewer endpoints than the graph has ranks, or cannot carry a flow.
        WorkloadError
            If no unit of the node runs an operator, or a task needs a host that is not described.
        """
        try:
            trace = self._in_arrays(node, fabric)
        except NotCoveredError as error:
            self.why_reference = str(error)
            return Simulation(self.graph, node, fabric).run()
        self.why_reference = ""
        return trace

    def _in_arrays(self, node: Node, fabric: Fabric) -> Trace:
        if self._structure is None:
            self._structure = StepStructure(self.graph)
        if self._step is None or self._step.network.fabric != fabric:
            self._step = CompiledStep(self._structure, StepNetwork(self._structure, fabric))
        return self._step.run(node, compiled=self._compiled or None)


def play_step(graph: StepGraph, node: Node, fabric: Fabric) -> Trace:
    """Return the trace of one step on one system; see `StepRuns`."""
    return StepRuns(graph).run(node, fabric)


@dataclass(frozen=True, kw_only=True, eq=False)
class Played:
    """Both memories after the last event, and the changes of circuits, shape [changes] each."""

    whole: np.ndarray
    real: np.ndarray
    at: At
    change_group: np.ndarray
    """Group of flows that circuits turned to."""
    change_ports: np.ndarray
    """Ports that turned, or the entry of `Settings` that says how."""
    change_start_s: np.ndarray
    change_end_s: np.ndarray


class Player:
    """Both memories of a step, and the loop that runs on them.

    Parameters
    ----------
    memories : Memories
        As they are before the first event.
    settings : Settings, optional
        Settings of circuits that turn part by part.
    compiled : bool, optional
        As `CompiledStep.run` takes it.
    """

    def __init__(self, memories: Memories, settings: Settings | None, *, compiled: bool | None) -> None:
        self._settings = settings
        if settings is None:
            self.whole, self.real = memories.joined()
            self.at = places(memories.at)
        else:
            self.whole, self.real, self.at = settings.joined(memories)
        self._room = self.at.most_changes
        self._compiled = compiled

    def run(self) -> Played:
        """Run all events."""
        turning = Turning.LANES if self.at.turns else Turning.NONE
        turning = turning if self._settings is None else Turning.PARTS
        known = self._compiled is None and (is_compiled(turning) or _IN_PYTHON["tasks"] >= COMPILED_FROM)
        fast = compiled_play(turning) if self._compiled or known else None
        groups, ports, start_s, end_s = ([np.empty(0)] for _ in range(4))
        changes = 0
        while not self.whole[self.at.over]:
            if not self._leg(fast):
                continue
            at, whole, real = self.at, self.whole, self.real
            count = int(whole[at.changes])
            groups.append(whole[at.changed_group : at.changed_group + count].copy())
            ports.append(whole[at.changed_ports : at.changed_ports + count].copy())
            start_s.append(real[at.turned_s : at.turned_s + count].copy())
            end_s.append(real[at.lit_s : at.lit_s + count].copy())
            whole[at.changes] = 0
            changes += count
            often = changes >= self.at.most_changes or _IN_PYTHON["tasks"] >= COMPILED_FROM
            if self._compiled is None and often:
                fast = compiled_play(turning)
        return Played(
            whole=self.whole,
            real=self.real,
            at=self.at,
            change_group=np.concatenate(groups).astype(np.int64),
            change_ports=np.concatenate(ports).astype(np.int64),
            change_start_s=np.concatenate(start_s),
            change_end_s=np.concatenate(end_s),
        )

    def _leg(self, fast: Play | None) -> bool:
        """Run events until circuits have changed so often as there is room; return False if that is void.

        Legs grow from one change on while nothing new is met, for what is new makes them void.
        """
        whole, real, at = self.whole, self.real, self.at
        if self._settings is not None:
            whole, real = whole.copy(), real.copy()
            at = at._replace(most_changes=self._room)
        if fast is None:
            before = whole[at.ended]
            ints, reals = whole.tolist(), real.tolist()  # on which plain Python is fastest
            play(ints, reals, at, turn)
            whole[:], real[:] = ints, reals
            width = self._settings.links_of_row // NARROW_LINKS if self._settings else 1
            _IN_PYTHON["tasks"] += int(whole[at.ended] - before) * max(1, width)
        else:
            fast(whole, real, record(at))
        if self._settings is not None and whole[at.fault]:
            cells = len(self._settings.cells)
            setting = whole[at.setting : at.setting + cells].tolist()
            self.whole, self.real, self.at = self._settings.learnt(self.whole, self.real, self.at, setting)
            self._room = 1
            return False
        self.whole, self.real = whole, real
        self._room = min(2 * self._room, self.at.most_changes)
        return True


class CompiledStep:
    """A step on one network, which runs on any node.

    Parameters
    ----------
    structure : StepStructure
        The step.
    network : StepNetwork
        What connects its ranks.
    """

    def __init__(self, structure: StepStructure, network: StepNetwork) -> None:
        self.structure = structure
        self.network = network
        self._settings: Settings | None = None

    def run(self, node: Node, *, compiled: bool | None) -> Trace:
        """Return the trace of the whole step.

        Parameters
        ----------
        node : Node
            The accelerator that every rank has.
        compiled : bool or None
            Whether the loop is compiled, which takes half a second of loading, and more once after its source
            has changed; None: where it is already, once circuits have changed `MOST_CHANGES` times, or where
            the process has run `COMPILED_FROM` tasks without. It changes no bit.

        Raises
        ------
        NotCoveredError
            If only the reference plays such a step.
        WorkloadError
            If no unit of the node runs an operator, or a task needs a host that is not described.
        """
        programs = Programs(self.structure, node, self.network)
        settings = self._known(tuple(programs.groups)) if self.network.by_parts else None
        memories = laid_out(self.structure, programs, self.network, settings)
        run = Player(memories, settings, compiled=compiled).run()
        at = run.at
        tasks = len(self.structure.work_of)
        if run.whole[at.lost] or run.whole[at.ended] < tasks:
            msg = f"the step stops with {tasks - int(run.whole[at.ended])} tasks undone; check its order"
            raise RuntimeError(msg)
        port_j = self.network.fabric.traits.lane_move_energy_j
        moved_j = settings.energies_j[run.change_ports] if settings else run.change_ports * port_j
        return self._trace(programs, run, moved_j)

    def _known(self, groups: tuple[FlowGroup, ...]) -> Settings:
        """Return what earlier runs have learnt of the settings of circuits."""
        if self._settings is None or self._settings.groups != groups:
            self._settings = Settings(groups, self.network)
        return self._settings

    def _trace(self, programs: Programs, run: Played, moved_j: np.ndarray) -> Trace:
        """Return the trace of a step that was played."""
        at = run.at
        tally = tallied(programs.charges, run.whole[at.log : at.log + run.whole[at.logged]])
        spans = self._spans(programs, run.whole, run.real, at)
        if run.change_group.size:
            spans = merged(spans, self._turned(programs, run))
        return Trace(
            spans=spans,
            makespan_s=float(spans.end_s.max(initial=0.0)),
            compute_energy_j=tally.compute_energy_j,
            network_energy_j=tally.network_energy_j,
            reconfiguration_energy_j=math.fsum(moved_j.tolist()),
            reconfigurations=run.change_group.size,
            network_bytes=tally.network_bytes,
            host_bytes=tally.host_bytes,
            algorithms=tally.algorithms,
        )

    def _spans(self, programs: Programs, whole: np.ndarray, real: np.ndarray, at: At) -> SpanTable:
        """Return what the tasks did, in order of their end."""
        tasks, labels = len(self.structure.work_of), self.structure.labels
        end_s = real[at.end_s : at.end_s + tasks]
        finished = whole[at.finished : at.finished + tasks]
        order = finished[np.lexsort((labels.name[finished], labels.rank_class[finished], end_s[finished]))]
        work_of = self.structure.tables["work_of"][order]
        categories, parts_s = self._parts(programs)
        parts_s = parts_s[work_of]
        told = [
            (one.waits or one.pays) and not work.beside
            for one, work in zip(programs.of_work, self.structure.works, strict=True)
        ]
        waits = np.array(told, dtype=bool)[work_of]
        waited_s = real[at.waited_s : at.waited_s + tasks][order]
        issued_s = real[at.issued_s : at.issued_s + tasks][order]
        if waits.any():
            column = parts_s[waits, categories.index(COMMUNICATION)]
            parts_s[waits, categories.index(COMMUNICATION)] = np.nan_to_num(column) + waited_s[waits]
            late = waits & (issued_s > 0.0)
            parts_s[late, categories.index(ISSUE)] = issued_s[late]
        start_s = real[at.start_s : at.start_s + tasks]
        played = replace(labels, start_s=start_s, end_s=end_s).rows(order)
        return replace(played, categories=categories, parts_s=parts_s)

    def _turned(self, programs: Programs, run: Played) -> SpanTable:
        """Return the time that ports moved, for each class whose traffic asked for it."""
        layout, groups = self.structure.graph.layout, tuple(programs.groups)
        classes = [layout.classes_at(one.flows.sources) for one in groups]
        called = [f"circuits to {one.flows.axis}" for one in groups]
        names = tuple(sorted(set(called)))
        many = np.array([one.size for one in classes], dtype=np.int64)[run.change_group]
        group = np.repeat(run.change_group, many)
        none = np.full(group.size, -1)
        return SpanTable(
            rank_class=np.concatenate(
                [np.empty(0, int), *(classes[one] for one in run.change_group.tolist())]
            ),
            stream=np.full(group.size, STREAMS.index(Stream.CIRCUITS)),
            name=np.array([names.index(one) for one in called], dtype=np.int64)[group],
            names=names,
            start_s=np.repeat(run.change_start_s, many),
            end_s=np.repeat(run.change_end_s, many),
            microbatch=none,
            peer_class=none,
            task=none,
            categories=(),
            parts_s=np.empty((group.size, 0)),
        )

    def _parts(self, programs: Programs) -> tuple[tuple[str, ...], np.ndarray]:
        """Return the categories that occur, and each work's seconds in each, shape [works, categories]."""
        known = dict.fromkeys(part for one in programs.of_work for part in one.parts_s)
        if any(one.waits or one.pays for one in programs.of_work):
            known |= {COMMUNICATION: None, ISSUE: None}
        categories = tuple(known)
        found = np.full((len(programs.of_work), len(categories)), np.nan)
        for row, (program, work) in enumerate(zip(programs.of_work, self.structure.works, strict=True)):
            if not work.beside:
                for part, seconds in program.parts_s.items():
                    found[row, categories.index(part)] = seconds
        return categories, found


COMPUTE, NETWORK, BYTES, HOST = range(4)
"""Kinds of accounts: energy of compute and of transfers, bytes on the wire and of hosts."""
Account = tuple[int, str]
"""Kind and name of an account."""


def tallied(charges: Sequence[Charge], log: np.ndarray) -> Tally:
    """Return what a log of charges by number, shape [charges due], adds up to."""
    last = np.full(len(charges), -1)
    last[log] = np.arange(log.size)
    chosen = {
        f"{operator.axis} {operator.kind}": plan.algorithm
        for number in np.argsort(last)[np.count_nonzero(last < 0) :].tolist()
        for operator, plan, _ in charges[number].carried
        if plan.parts
    }
    of: list[dict[str, float]] = [{}, {}, {}, {}]
    for (kind, name), value in _sums([_amounts(one) for one in charges], log).items():
        of[kind][name] = value
    return Tally(
        compute_energy_j=of[COMPUTE],
        network_energy_j=of[NETWORK].get("", 0.0),
        network_bytes=of[BYTES],
        host_bytes=of[HOST],
        algorithms=dict(sorted(chosen.items())),
    )


def _sums(entries: Sequence[Sequence[tuple[Account, float]]], log: np.ndarray) -> dict[Account, float]:
    """Return the sum of each account, added up one by one in the order of a log, shape [charges due].

    Accounts stand in the order in which they were first charged.
    """
    accounts = list(dict.fromkeys(name for one in entries for name, _ in one))
    numbers = {name: number for number, name in enumerate(accounts)}
    sizes = np.array([len(one) for one in entries], dtype=np.int64)
    size = sizes[log]
    # Of each charge in the log the place of its first entry, less the entries that stand before it there.
    ahead = (np.cumsum(sizes) - sizes)[log] - (np.cumsum(size) - size)
    entry = np.arange(int(size.sum())) + np.repeat(ahead, size)
    account = np.array([numbers[name] for one in entries for name, _ in one], dtype=np.int64)[entry]
    value = np.array([value for one in entries for _, value in one], dtype=float)[entry]
    sums = np.bincount(account, weights=value, minlength=len(accounts)).tolist()
    first = np.full(len(accounts), account.size)
    first[account[::-1]] = np.arange(account.size)[::-1]
    order = np.argsort(first)[: np.count_nonzero(first < account.size)]
    return {accounts[number]: sums[number] for number in order.tolist()}


def _amounts(charge: Charge) -> list[tuple[Account, float]]:
    """Return the accounts of a charge with what is added to them."""
    found: list[tuple[Account, float]] = []
    found += [((COMPUTE, part), energy) for part, energy in charge.compute_j.items()]
    found += [((HOST, lane), moved) for lane, moved in charge.host_bytes.items()]
    for operator, plan, times in charge.carried:
        found.append(((BYTES, operator.axis), plan.wire_bytes * times))
        found.append(((NETWORK, ""), plan.energy_j * times))
    return found
