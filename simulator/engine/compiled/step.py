"""A step in arrays: structure found once, prices when hardware changes, events in one compiled loop.

`StepRuns` is the entrance: it runs a step on many systems. `CompiledStep` is the step on one network; its
`run` lays the state of the loop out (`initial_tables`), plays it (`LoopRun`), and reads the trace from it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simulator.collectives.flow_groups import FlowGroup
from simulator.engine.compiled.circuit_tables import (
    LoopState,
    Settings,
    StepExchanges,
    add_lane_tables,
    add_route_tables,
    fixed_loads,
    lane_need,
)
from simulator.engine.compiled.circuits import turn
from simulator.engine.compiled.loop import Play, Turning, compiled_play, is_compiled, play, record
from simulator.engine.compiled.programs import (
    Charge,
    Instruction,
    NotCoveredError,
    Programs,
    StepNetwork,
    StepStructure,
)
from simulator.engine.compiled.state import KINDS, LEVELS, RESUME, Tables, offsets
from simulator.engine.network import Tally
from simulator.engine.simulation import Simulation
from simulator.fabric import Fabric, Loads
from simulator.node import Node
from simulator.operators import StepGraph, takes_units
from simulator.results import COMMUNICATION, ISSUE, SPAN_COLUMNS, STREAMS, SpanTable, Stream, Trace


@dataclass(frozen=True, kw_only=True)
class MergedLinks:
    """Links of a fabric merged into classes that all groups of flows load alike."""

    classes: list[list[int]]
    """Classes that each group loads."""
    loads: list[list[float]]
    """Load of each group on each of these; dimensionless."""
    capacities: list[float]
    """Capacity of each class, in B/s."""


def merge_links(groups: Iterable[FlowGroup | Loads], capacity_bytes_per_s: np.ndarray) -> MergedLinks:
    """Return the classes of links that some groups of flows load.

    Two links are of one class if they have one capacity and every group loads them equally, as in
    `simulator.engine.network.LinkClasses`; here all groups are known at once.

    Parameters
    ----------
    groups : iterable of FlowGroup or Loads
        Groups with their links.
    capacity_bytes_per_s : numpy.ndarray
        Capacity of each link, shape [L].

    Notes
    -----
    Links that n groups load are rows (capacity, the n groups, their n loads); equal rows are one class.
    """
    every = tuple(groups)
    classes: list[list[int]] = [[] for _ in every]
    loads: list[list[float]] = [[] for _ in every]
    capacities: list[float] = []
    if not every:
        return MergedLinks(classes=classes, loads=loads, capacities=capacities)
    link = np.concatenate([one.links for one in every])
    owner = np.repeat(np.arange(len(every)), [one.links.size for one in every])
    usage = np.concatenate([one.usage for one in every])
    order = np.lexsort((owner, link))
    link, owner, usage = link[order], owner[order], usage[order]
    used, first, count = np.unique(link, return_index=True, return_counts=True)
    for users in np.flatnonzero(np.bincount(count)).tolist():
        chosen = np.flatnonzero(count == users)
        entry = first[chosen, None] + np.arange(users)
        rows = np.hstack([capacity_bytes_per_s[used[chosen], None], owner[entry], usage[entry]])
        rows = rows[np.lexsort(rows.T)]
        is_first = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))
        for row in rows[is_first].tolist():
            for group, load in zip(row[1 : 1 + users], row[1 + users :], strict=True):
                classes[int(group)].append(len(capacities))
                loads[int(group)].append(load)
            capacities.append(row[0])
    return MergedLinks(classes=classes, loads=loads, capacities=capacities)


def initial_tables(
    structure: StepStructure, programs: Programs, network: StepNetwork, settings: Settings | None
) -> Tables:
    """Return the tables of the loop before the first event, without what is learnt of settings.

    Parameters
    ----------
    structure, programs, network : StepStructure, Programs, StepNetwork
        The step and its prices.
    settings : Settings or None
        Settings of circuits that turn part by part, if they do.
    """
    tables = Tables()
    every_actor = _add_actors(tables, structure, programs)
    _add_tasks(tables, structure, programs)
    most_moves = _add_circuits(tables, structure, programs, network)
    if settings:
        settings.add_cell_tables(tables)
        most_moves = tables.at["move_slots"]
    most_stalled = every_actor if settings else 0
    tables.same_ints("stalled_group stalled_actor stalled_before", most_stalled)
    tables.same_reals("stalled_left_bytes stalled_size_bytes", most_stalled)
    # A transfer has an actor that waits for it, so there are never more of one than of the other.
    tables.same_ints("transfer_group transfer_actor frozen ended_group circuit_waiter", every_actor)
    tables.same_reals("left_bytes size_bytes rate fair_rate", every_actor)
    tables.same_ints("transfer_count", 1)
    tables.same_reals("transfers_time_s", 1)
    _add_queues(tables, structure, every_actor, most_moves)
    return tables


def _add_queues(tables: Tables, structure: StepStructure, every_actor: int, most_moves: int) -> None:
    """Add the clock and the queues of events, in which all actors with tasks stand at the start."""
    actors = len(structure.actors)
    ring = 1 << (4 * every_actor + structure.channels + 2 * most_moves).bit_length()
    tables.at |= {"actor_count": actors, "ring_mask": ring - 1}
    starts = np.zeros(ring, dtype=np.int64)
    starts[:actors] = RESUME + KINDS * np.arange(actors)
    tables.ints("start_event", starts)
    tables.same_ints("start_tail", 1, actors)
    tables.same_ints("now_event", ring)
    tables.same_ints("heap_event heap_sequence", 2 * every_actor + most_moves)
    tables.same_reals("heap_time_s", 2 * every_actor + most_moves)
    tables.same_ints("start_head now_head now_tail heap_size sequence overflow is_over", 1)
    tables.same_ints("wake_sequence wake_token", 1)
    tables.same_reals("wake_time_s", 1, np.inf)
    tables.same_reals("now_s", 1)


def _add_actors(tables: Tables, structure: StepStructure, programs: Programs) -> int:
    """Add actors, and children for those whose programs start some; return how many there are in all.

    An actor has one child beside a product, and one for each level of a collective. The child beside a
    product carries a collective, too, and shares the children for its levels.
    """
    actors, arrays = structure.actors, structure.arrays
    task_forks = np.array([program.forks for program in programs.of_work])[arrays["work_of"]]
    forks = np.logical_or.reduceat(task_forks[arrays["actor_task"]], arrays["first_actor_task"][:-1])
    every_actor = len(actors) + int(forks.sum()) * (1 + LEVELS)
    children = itertools.count(len(actors), 1 + LEVELS)
    first_child = [next(children) if one else -1 for one in forks.tolist()]
    for child in [one for one in first_child if one >= 0]:
        first_child += [child, *[-1] * LEVELS]
    tables.ints("first_actor_task", arrays["first_actor_task"])
    tables.ints("actor_task", arrays["actor_task"])
    tables.ints("first_child", first_child)
    tables.ints("position", arrays["first_actor_task"][:-1])
    tables.ints("next_dependency", arrays["next_dependency"])
    tables.same_ints("phase", len(actors))
    tables.same_ints("next_waiter next_queued", len(actors), -1)
    tables.same_ints("parent program_counter runs_left pending", every_actor)
    tables.same_reals("mark_s sequence_start_s", every_actor)
    return every_actor


def _add_tasks(tables: Tables, structure: StepStructure, programs: Programs) -> None:
    """Add tasks, channels, instructions and classes."""
    arrays, tasks = structure.arrays, len(structure.work_of)
    work_of = arrays["work_of"]
    tables.ints("program_start", np.array([program.start for program in programs.of_work])[work_of])
    for name in ("multiplicity", "channel", "first_dependency", "dependency"):
        tables.ints(name, arrays[name])
    slows = programs.collective_share > 0.0
    slowed = [work.rank_class if slows and takes_units(work.operator) else -1 for work in structure.works]
    tables.ints("slowed_class", np.array(slowed)[work_of])
    tables.same_ints("is_done ended_task", tasks)
    tables.same_ints("ended_count charge_count", 1)
    tables.same_ints("first_waiter last_waiter", tasks, -1)
    tables.same_reals("task_start_s task_end_s exposed_s issue_wait_s", tasks)
    tables.same_ints("channel_busy", structure.channels)
    tables.same_ints("first_queued last_queued", structure.channels, -1)
    operands = dict(zip(Instruction._fields, zip(*programs.code, strict=True), strict=True))
    tables.ints("op", map(int, operands["op"]))
    tables.ints("target", operands["target"])
    tables.ints("extra", operands["extra"])
    for name in ("amount", "work_busy_s", "work_slack_s"):
        tables.reals(name, operands[name])
    charges = np.array([program.charges for program in programs.of_work])[work_of]
    tables.same_ints("charge_log", int(charges @ arrays["multiplicity"]))
    classes = structure.graph.layout.classes
    tables.same_ints("is_working running_collectives", classes)
    tables.same_reals("worked_s work_begin_s work_end_s busy_share settled_s owed_s slack_left_s", classes)
    tables.same_reals("collective_share", 1, programs.collective_share)


def _add_circuits(tables: Tables, structure: StepStructure, programs: Programs, network: StepNetwork) -> int:
    """Add groups of flows, and circuits, routes and links; return how many lanes there are.

    Routes and links of circuits that turn part by part are learnt, and are added by `Settings`.
    """
    groups = tuple(programs.groups)
    needs = [lane_need(group, network) for group in groups]
    tables.ints("route", range(len(groups)))
    tables.ints("transfer_order", (group.index for group in groups))
    add_lane_tables(tables, needs, network)
    if network.turns:
        StepExchanges(structure, programs, network).add_tables(tables)
    if network.by_parts:
        return 0
    capacity = network.network.graph.capacity_bytes_per_s
    lanes = network.fabric.lane_peers(network.network.circuits).size if network.turns else 0
    fixed = merge_links((fixed_loads(group, network, lanes) for group in groups), capacity)
    links = [
        [-1] * len(need.pairs) + [lanes + link for link in classes]
        for need, classes in zip(needs, fixed.classes, strict=True)
    ]
    loads = [[*need.usage.tolist(), *load] for need, load in zip(needs, fixed.loads, strict=True)]
    add_route_tables(tables, links, loads, [*capacity[:lanes].tolist(), *fixed.capacities])
    alone_rates = [
        min((fixed.capacities[link] / load for link, load in zip(links, loads, strict=True)), default=np.inf)
        for links, loads in zip(fixed.classes, fixed.loads, strict=True)
    ]
    tables.reals("alone_rate", alone_rates)
    return lanes


def merge_spans(one: SpanTable, other: SpanTable) -> SpanTable:
    """Return the spans of two tables in order of their end; of equal ones those of the first come first.

    The second table has no parts.
    """
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
"""Tasks that this process has run in plain Python; those on wide routes count several times."""
NARROW_LINKS = 8
"""Classes of links that a transfer loads where lanes turn, about; a choice. In plain Python a task takes as
many times as long as its transfers load times as many."""


class StepRuns:
    """Runs of one step on many systems: structure found once, collectives priced once for a fabric.

    The reference (`Simulation`) runs where the step or the fabric has a trait that arrays do not cover
    (`why_reference`).

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
            trace = self._run_in_arrays(node, fabric)
        except NotCoveredError as error:
            self.why_reference = str(error)
            return Simulation(self.graph, node, fabric).run()
        self.why_reference = ""
        return trace

    def _run_in_arrays(self, node: Node, fabric: Fabric) -> Trace:
        if self._structure is None:
            self._structure = StepStructure(self.graph)
        if self._step is None or self._step.network.fabric != fabric:
            self._step = CompiledStep(self._structure, StepNetwork(self._structure, fabric))
        return self._step.run(node, compiled=self._compiled or None)


def play_step(graph: StepGraph, node: Node, fabric: Fabric) -> Trace:
    """Return the trace of one step on one system; see `StepRuns`."""
    return StepRuns(graph).run(node, fabric)


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopResult:
    """State after the last event, and the changes of circuits in the order in which they ended."""

    state: LoopState
    """State of the loop."""
    change_group: np.ndarray
    """Group of flows for which circuits changed, shape [changes]."""
    change_ports: np.ndarray
    """Ports that turned (lanes), or the entry of `Settings` that says how (parts), shape [changes]."""
    change_start_s: np.ndarray
    """Begin of each, shape [changes]."""
    change_end_s: np.ndarray
    """End of each, when light passed again, shape [changes]."""


class LoopRun:
    """One run of the event loop, in legs: each ends when the changes of circuits have to be handed out.

    Parameters
    ----------
    tables : Tables
        Tables before the first event.
    settings : Settings, optional
        Settings of circuits that turn part by part.
    compiled : bool, optional
        As `CompiledStep.run` takes it.
    """

    def __init__(self, tables: Tables, settings: Settings | None, *, compiled: bool | None) -> None:
        self._settings = settings
        if settings is None:
            ints, reals = tables.arrays()
            self.state = LoopState(ints=ints, reals=reals, at=offsets(tables.at))
        else:
            self.state = settings.initial_state(tables)
        self._most_changes = self.state.at.change_room
        self._room = self._most_changes
        self._compiled = compiled
        self._changes: list[list[np.ndarray]] = []
        self._change_count = 0

    def run(self) -> LoopResult:
        """Play all events."""
        turning = Turning.LANES if self.state.at.circuits_turn else Turning.NONE
        turning = turning if self._settings is None else Turning.PARTS
        loaded = self._compiled is None and (is_compiled(turning) or self._has_run_long())
        fast = compiled_play(turning) if self._compiled or loaded else None
        while not self.state.ints[self.state.at.is_over]:
            if not self._play_leg(fast):
                continue
            self._hand_out_changes()
            often = self._change_count >= self._most_changes or self._has_run_long()
            if self._compiled is None and often:
                fast = compiled_play(turning)
        group, ports, start_s, end_s = (
            np.concatenate([np.empty(0), *column]) for column in zip(*self._changes, strict=True)
        )
        return LoopResult(
            state=self.state,
            change_group=group.astype(np.int64),
            change_ports=ports.astype(np.int64),
            change_start_s=start_s,
            change_end_s=end_s,
        )

    def _has_run_long(self) -> bool:
        """Return whether this process has run so many tasks in plain Python that it is worth compiling."""
        return _IN_PYTHON["tasks"] >= COMPILED_FROM

    def _hand_out_changes(self) -> None:
        """Take the changes of circuits out of the state."""
        ints, reals, at = self.state.ints, self.state.reals, self.state.at
        count = int(ints[at.change_count])
        columns = (
            ints[at.change_group :],
            ints[at.change_ports :],
            reals[at.change_start_s :],
            reals[at.change_end_s :],
        )
        self._changes.append([column[:count].copy() for column in columns])
        ints[at.change_count] = 0
        self._change_count += count

    def _play_leg(self, fast: Play | None) -> bool:
        """Play events until circuits have changed as often as there is room; return False if that is void.

        With settings it is void if one without an entry was met: entries are learnt, and the leg starts again
        from a copy of the state. So legs begin with room for one change, and double while nothing new is met.
        """
        state = self.state
        if self._settings is not None:
            at = state.at._replace(change_room=self._room)
            state = LoopState(ints=state.ints.copy(), reals=state.reals.copy(), at=at)
        if fast is None:
            self._play_in_python(state)
        else:
            fast(state.ints, state.reals, record(state.at))
        if self._settings is not None and state.ints[state.at.unknown_setting]:
            first = state.at.cell_setting
            settings = state.ints[first : first + len(self._settings.cells)].tolist()
            self.state = self._settings.learn(self.state, settings)
            self._room = 1
            return False
        self.state = state
        self._room = min(2 * self._room, self._most_changes)
        return True

    def _play_in_python(self, state: LoopState) -> None:
        """Play events on lists, on which plain Python is fastest, and write them back."""
        ended_before = state.ints[state.at.ended_count]
        ints, reals = state.ints.tolist(), state.reals.tolist()
        play(ints, reals, state.at, turn)
        state.ints[:], state.reals[:] = ints, reals
        width = self._settings.widest_route // NARROW_LINKS if self._settings else 1
        _IN_PYTHON["tasks"] += int(state.ints[state.at.ended_count] - ended_before) * max(1, width)


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
        settings = self._settings_of(tuple(programs.groups)) if self.network.by_parts else None
        tables = initial_tables(self.structure, programs, self.network, settings)
        run = LoopRun(tables, settings, compiled=compiled).run()
        ints, at = run.state.ints, run.state.at
        undone = len(self.structure.work_of) - int(ints[at.ended_count])
        if ints[at.overflow] or undone:
            msg = f"the step stops with {undone} tasks undone; check its order"
            raise RuntimeError(msg)
        port_j = self.network.fabric.traits.lane_move_energy_j
        moves_j = settings.energies_j[run.change_ports] if settings else run.change_ports * port_j
        return self._trace(programs, run, moves_j)

    def _settings_of(self, groups: tuple[FlowGroup, ...]) -> Settings:
        """Return the settings of circuits, with what earlier runs of the same groups have learnt."""
        if self._settings is None or self._settings.groups != groups:
            self._settings = Settings(groups, self.network)
        return self._settings

    def _trace(self, programs: Programs, run: LoopResult, moves_j: np.ndarray) -> Trace:
        """Return the trace of a step that was played, with the energy of each change, shape [changes]."""
        ints, at = run.state.ints, run.state.at
        log = ints[at.charge_log : at.charge_log + ints[at.charge_count]]
        tally = sum_charges(programs.charges, log)
        spans = self._task_spans(programs, run.state)
        if run.change_group.size:
            spans = merge_spans(spans, self._circuit_spans(programs, run))
        return Trace(
            spans=spans,
            makespan_s=float(spans.end_s.max(initial=0.0)),
            compute_energy_j=tally.compute_energy_j,
            network_energy_j=tally.network_energy_j,
            reconfiguration_energy_j=math.fsum(moves_j.tolist()),
            reconfigurations=run.change_group.size,
            network_bytes=tally.network_bytes,
            host_bytes=tally.host_bytes,
            algorithms=tally.algorithms,
        )

    def _task_spans(self, programs: Programs, state: LoopState) -> SpanTable:
        """Return the spans of all tasks in order of their end; equal ones go by class, name and event."""
        reals, at = state.reals, state.at
        tasks, labels = len(self.structure.work_of), self.structure.labels
        end_s = reals[at.task_end_s : at.task_end_s + tasks]
        ended = state.ints[at.ended_task : at.ended_task + tasks]
        order = ended[np.lexsort((labels.name[ended], labels.rank_class[ended], end_s[ended]))]
        categories, work_parts_s = self._work_parts(programs)
        work_of = self.structure.arrays["work_of"][order]
        parts_s = work_parts_s[work_of]
        is_counted = [
            (program.waits or program.pays) and not work.beside
            for program, work in zip(programs.of_work, self.structure.works, strict=True)
        ]
        counted = np.array(is_counted, dtype=bool)[work_of]
        if counted.any():
            communication, issue = categories.index(COMMUNICATION), categories.index(ISSUE)
            exposed_s = reals[at.exposed_s : at.exposed_s + tasks][order]
            issue_wait_s = reals[at.issue_wait_s : at.issue_wait_s + tasks][order]
            alone_s = np.nan_to_num(parts_s[counted, communication])
            parts_s[counted, communication] = alone_s + exposed_s[counted]
            late = counted & (issue_wait_s > 0.0)
            parts_s[late, issue] = issue_wait_s[late]
        start_s = reals[at.task_start_s : at.task_start_s + tasks]
        spans = replace(labels, start_s=start_s, end_s=end_s).rows(order)
        return replace(spans, categories=categories, parts_s=parts_s)

    def _circuit_spans(self, programs: Programs, run: LoopResult) -> SpanTable:
        """Return the time that ports moved, for each class whose traffic asked for it."""
        layout, groups = self.structure.graph.layout, tuple(programs.groups)
        classes = [layout.classes_at(group.flows.sources) for group in groups]
        labels = [f"circuits to {group.flows.axis}" for group in groups]
        names = tuple(sorted(set(labels)))
        spans_of_change = np.array([one.size for one in classes], dtype=np.int64)[run.change_group]
        group = np.repeat(run.change_group, spans_of_change)
        none = np.full(group.size, -1)
        return SpanTable(
            rank_class=np.concatenate(
                [np.empty(0, int), *(classes[one] for one in run.change_group.tolist())]
            ),
            stream=np.full(group.size, STREAMS.index(Stream.CIRCUITS)),
            name=np.array([names.index(one) for one in labels], dtype=np.int64)[group],
            names=names,
            start_s=np.repeat(run.change_start_s, spans_of_change),
            end_s=np.repeat(run.change_end_s, spans_of_change),
            microbatch=none,
            peer_class=none,
            task=none,
            categories=(),
            parts_s=np.empty((group.size, 0)),
        )

    def _work_parts(self, programs: Programs) -> tuple[tuple[str, ...], np.ndarray]:
        """Return the categories that occur, and the seconds of each work in each, shape [works, categories].

        They are known without the loop; NaN stands for a category that a work does not have.
        """
        known = dict.fromkeys(part for program in programs.of_work for part in program.parts_s)
        if any(program.waits or program.pays for program in programs.of_work):
            known |= {COMMUNICATION: None, ISSUE: None}
        categories = tuple(known)
        found = np.full((len(programs.of_work), len(categories)), np.nan)
        for number, (program, work) in enumerate(zip(programs.of_work, self.structure.works, strict=True)):
            if not work.beside:
                for part, seconds in program.parts_s.items():
                    found[number, categories.index(part)] = seconds
        return categories, found


COMPUTE, NETWORK, BYTES, HOST = range(4)
"""Kinds of accounts: energy of compute and of transfers, bytes on the wire and of hosts."""
Account = tuple[int, str]
"""Kind and name of an account."""


def sum_charges(charges: Sequence[Charge], log: np.ndarray) -> Tally:
    """Return the sums of the charges that fell due.

    Parameters
    ----------
    charges : sequence of Charge
        All charges of a step's programs.
    log : numpy.ndarray
        Numbers of those that fell due, in order, shape [charges due].

    Notes
    -----
    Of a collective's algorithms, the one charged last is told, as in the reference.
    """
    last = np.full(len(charges), -1)
    last[log] = np.arange(log.size)
    algorithms = {
        f"{operator.axis} {operator.kind}": plan.algorithm
        for number in np.argsort(last)[np.count_nonzero(last < 0) :].tolist()
        for operator, plan, _ in charges[number].carried
        if plan.parts
    }
    sums: list[dict[str, float]] = [{}, {}, {}, {}]
    for (kind, name), value in _sum_accounts([_amounts(one) for one in charges], log).items():
        sums[kind][name] = value
    return Tally(
        compute_energy_j=sums[COMPUTE],
        network_energy_j=sums[NETWORK].get("", 0.0),
        network_bytes=sums[BYTES],
        host_bytes=sums[HOST],
        algorithms=dict(sorted(algorithms.items())),
    )


def _sum_accounts(
    amounts: Sequence[Sequence[tuple[Account, float]]], log: np.ndarray
) -> dict[Account, float]:
    """Return the sum of each account, added up one by one in the order of a log, as the reference does.

    Parameters
    ----------
    amounts : sequence of sequence of tuple
        Amounts that each charge adds to accounts.
    log : numpy.ndarray
        Numbers of the charges that fell due, in order, shape [charges due].

    Returns
    -------
    dict
        Sums, in the order in which accounts were first charged.
    """
    accounts = list(dict.fromkeys(account for one in amounts for account, _ in one))
    numbers = {account: number for number, account in enumerate(accounts)}
    sizes = np.array([len(one) for one in amounts], dtype=np.int64)
    size = sizes[log]
    # Begin of each logged charge among all amounts, less that among the logged amounts.
    ahead = (np.cumsum(sizes) - sizes)[log] - (np.cumsum(size) - size)
    chosen = np.arange(int(size.sum())) + np.repeat(ahead, size)
    account = np.array([numbers[one] for many in amounts for one, _ in many], dtype=np.int64)[chosen]
    value = np.array([amount for many in amounts for _, amount in many], dtype=float)[chosen]
    sums = np.bincount(account, weights=value, minlength=len(accounts)).tolist()
    first = np.full(len(accounts), account.size)
    first[account[::-1]] = np.arange(account.size)[::-1]
    order = np.argsort(first)[: np.count_nonzero(first < account.size)]
    return {accounts[number]: sums[number] for number in order.tolist()}


def _amounts(charge: Charge) -> list[tuple[Account, float]]:
    """Return the amounts that a charge adds to accounts, in J and bytes."""
    found: list[tuple[Account, float]] = []
    found += [((COMPUTE, part), energy_j) for part, energy_j in charge.compute_j.items()]
    found += [((HOST, lane), moved_bytes) for lane, moved_bytes in charge.host_bytes.items()]
    for operator, plan, times in charge.carried:
        found.append(((BYTES, operator.axis), plan.wire_bytes * times))
        found.append(((NETWORK, ""), plan.energy_j * times))
    return found
