"""A step in arrays: its structure found once, its prices when hardware changes, its events in one loop."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from simulator.collectives.flow_groups import FlowGroup
from simulator.engine.compiled.loop import compiled_play, is_compiled, play
from simulator.engine.compiled.memory import LEVELS, At
from simulator.engine.compiled.programs import NotCoveredError, Programs, StepNetwork
from simulator.engine.compiled.structure import StepStructure
from simulator.engine.compiled.tallies import Charges
from simulator.engine.simulation import Simulation
from simulator.fabric import Fabric
from simulator.node import Node
from simulator.operators import StepGraph
from simulator.results.trace import COMMUNICATION, ISSUE, SpanTable, Trace


def link_classes(
    groups: Iterable[FlowGroup], capacity_bytes_per_s: np.ndarray
) -> tuple[list[list[int]], list[list[float]], list[float]]:
    """Return the classes of links that each group of flows loads, its load on each, and their capacities.

    Two links are alike that have one capacity and that every group loads equally, as in
    `simulator.collectives.flow_groups.LinkClasses`; here all groups are known at once.

    Parameters
    ----------
    groups : iterable of FlowGroup
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


class _Memories:
    """Tables laid one behind the other into two memories."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}
        self._tables: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        self._sizes = [0, 0]

    def _add(self, real: bool, name: str, table: np.ndarray) -> None:
        self.at[name] = self._sizes[real]
        self._sizes[real] += table.size
        self._tables[real].append(table)

    def whole(self, name: str, values: Iterable[int]) -> None:
        """Add a table of whole numbers."""
        self._add(False, name, np.fromiter(values, dtype=np.int64))

    def real(self, name: str, values: Iterable[float]) -> None:
        """Add a table of reals."""
        self._add(True, name, np.fromiter(values, dtype=float))

    def rows(self, name: str, rows: Sequence[Sequence[int]]) -> None:
        """Add rows of whole numbers one after another; ``first_<name>`` is where each begins, and all end."""
        self.whole(f"first_{name}", itertools.accumulate((len(one) for one in rows), initial=0))
        self.whole(name, itertools.chain.from_iterable(rows))

    def wholes(self, names: str, size: int, value: int = 0) -> None:
        """Add tables of whole numbers with one value everywhere, their names apart by spaces."""
        for name in names.split():
            self._add(False, name, np.full(size, value, dtype=np.int64))

    def reals(self, names: str, size: int, value: float = 0.0) -> None:
        """Add tables of reals with one value everywhere, their names apart by spaces."""
        for name in names.split():
            self._add(True, name, np.full(size, value))

    def joined(self) -> tuple[np.ndarray, np.ndarray]:
        """Return both memories."""
        whole, real = (np.concatenate(tables) for tables in self._tables)
        return whole, real


def laid_out(structure: StepStructure, programs: Programs, network: StepNetwork) -> _Memories:
    """Return both memories as they are before the first event."""
    memories = _Memories()
    every = _lay_actors(memories, structure, programs)
    _lay_tasks(memories, structure, programs)
    _lay_network(memories, programs, network)
    actors, tasks = len(structure.actors), len(structure.work_of)
    ring = 1 << (4 * every + structure.channels).bit_length()
    charges = sum(
        programs.of_work[work].charges * times
        for work, times in zip(structure.work_of, structure.times, strict=True)
    )
    memories.at |= {"actors": actors, "ring": ring - 1}
    memories.wholes("moving group frozen", every)
    memories.wholes("heap_order heap_event", 2 * every)
    memories.wholes("queue", ring)
    memories.whole("starts", [*range(actors), *[0] * (ring - actors)])
    memories.wholes("log", charges)
    memories.wholes("finished", tasks)
    memories.wholes("lost queue_head queue_tail starts_head heap_size transfers logged ended numbered", 1)
    memories.wholes("sequence wake_order token", 1)
    memories.wholes("starts_tail", 1, actors)
    memories.reals("start_s end_s waited_s issued_s", tasks)
    memories.reals("mark_s begin_s bytes_left size rate fair", every)
    memories.reals("heap_s", 2 * every)
    memories.reals("now clock", 1)
    memories.reals("wake_s", 1, np.inf)
    return memories


def _lay_actors(memories: _Memories, structure: StepStructure, programs: Programs) -> int:
    """Add actors with the children that their programs start; return how many there are in all."""
    actors = structure.actors
    forks = [any(programs.of_work[structure.work_of[task]].forks for task in tasks) for tasks in actors]
    every = len(actors) + sum(forks) * (1 + LEVELS)
    children = itertools.count(len(actors), 1 + LEVELS)
    first_child = [next(children) if one else -1 for one in forks]
    for child in [one for one in first_child if one >= 0]:
        first_child += [child, -1, -1]  # what travels beside a product has the same levels
    memories.rows("order", actors)
    memories.whole("first_child", first_child)
    first = itertools.accumulate((len(one) for one in actors[:-1]), initial=0)
    memories.whole("place", [*first, *[0] * (every - len(actors))])
    memories.whole("wait", [structure.first_after[one[0]] for one in actors])
    memories.wholes("phase counter again left", every)
    memories.wholes("next_waiter next_queued", len(actors), -1)
    return every


def _lay_tasks(memories: _Memories, structure: StepStructure, programs: Programs) -> None:
    """Add tasks, channels and programs."""
    tasks = len(structure.work_of)
    entries = [one.entry for one in programs.of_work]
    memories.whole("program", [entries[work] for work in structure.work_of])
    memories.whole("times", structure.times)
    memories.whole("channel", structure.channel)
    memories.wholes("done", tasks)
    memories.wholes("first_waiter last_waiter", tasks, -1)
    memories.whole("first_after", structure.first_after)
    memories.whole("after", structure.after)
    memories.wholes("busy", structure.channels)
    memories.wholes("first_queued last_queued", structure.channels, -1)
    memories.whole("op", [int(one.op) for one in programs.code])
    memories.whole("i", [one.i for one in programs.code])
    memories.whole("j", [one.j for one in programs.code])
    memories.real("x", [float(one.x) for one in programs.code])


def _lay_network(memories: _Memories, programs: Programs, network: StepNetwork) -> None:
    """Add groups of flows, classes of links, and the order in which groups are numbered."""
    groups = programs.groups
    asked = [
        [
            groups[group]
            for _, plan, _ in charge.carried
            for group in network.asked_for(plan)
            if group in groups
        ]
        for charge in programs.charges
    ]
    memories.rows("asked", asked)
    classes, loads, capacities = link_classes(groups, network.network.graph.capacity_bytes_per_s)
    memories.rows("link", classes)
    memories.real("load", itertools.chain.from_iterable(loads))
    alone = [
        min(capacities[link] / load for link, load in zip(mine, loaded, strict=True))
        for mine, loaded in zip(classes, loads, strict=True)
    ]
    memories.real("alone", alone)
    memories.real("capacity", capacities)
    memories.wholes("number", len(groups), -1)
    memories.wholes("users", len(capacities))
    memories.reals("remaining demand slowest used", len(capacities))


COMPILED_FROM = 100_000
"""Tasks from which on the loop is compiled: plain Python runs them while numba is loaded; a choice."""


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
        self._network: StepNetwork | None = None

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
        if fabric.traits.prefetches:
            msg = "circuits turn before traffic asks for them"
            raise NotCoveredError(msg)
        if self._structure is None:
            self._structure = StepStructure(self.graph)
        if self._network is None or self._network.fabric is not fabric:
            self._network = StepNetwork(self._structure, fabric)
        compiled = self._compiled or is_compiled()
        return CompiledStep(self._structure, self._network).run(node, compiled=compiled)


def play_step(graph: StepGraph, node: Node, fabric: Fabric) -> Trace:
    """Return the trace of one step on one system; see `StepRuns`."""
    return StepRuns(graph).run(node, fabric)


def played(whole: np.ndarray, real: np.ndarray, at: At, *, compiled: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return both memories after the last event."""
    fast = compiled_play() if compiled else None
    if fast is None:
        ints, reals = whole.tolist(), real.tolist()
        play(ints, reals, at)
        return np.array(ints, dtype=np.int64), np.array(reals)
    fast(whole, real, at)
    return whole, real


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

    def run(self, node: Node, *, compiled: bool) -> Trace:
        """Return the trace of the whole step.

        Parameters
        ----------
        node : Node
            The accelerator that every rank has.
        compiled : bool
            Whether the loop may be compiled, which takes half a second of loading; it changes no bit.

        Raises
        ------
        NotCoveredError
            If only the reference plays such a step.
        WorkloadError
            If no unit of the node runs an operator, or a task needs a host that is not described.
        """
        programs = Programs(self.structure, node, self.network)
        memories = laid_out(self.structure, programs, self.network)
        at = At(**memories.at)
        whole, real = played(*memories.joined(), at, compiled=compiled)
        tasks = len(self.structure.work_of)
        if whole[at.lost] or whole[at.ended] < tasks:
            msg = f"the step stops with {tasks - int(whole[at.ended])} tasks undone; check its order"
            raise RuntimeError(msg)
        return self._trace(programs, whole, real, at)

    def _trace(self, programs: Programs, whole: np.ndarray, real: np.ndarray, at: At) -> Trace:
        tally = Charges(programs.charges).tally(whole[at.log : at.log + whole[at.logged]])
        spans = self._spans(programs, whole, real, at)
        return Trace(
            spans=spans,
            makespan_s=float(spans.end_s.max(initial=0.0)),
            compute_energy_j=tally.compute_energy_j,
            network_energy_j=tally.network_energy_j,
            reconfiguration_energy_j=0.0,
            reconfigurations=0,
            network_bytes=tally.network_bytes,
            host_bytes=tally.host_bytes,
            algorithms=tally.algorithms,
        )

    def _spans(self, programs: Programs, whole: np.ndarray, real: np.ndarray, at: At) -> SpanTable:
        """Return what the tasks did, in order of their end."""
        tasks, labels = len(self.structure.work_of), self.structure.labels
        end_s = real[at.end_s : at.end_s + tasks]
        finished = whole[at.finished : at.finished + tasks]
        keys = (labels.name[finished], labels.rank_class[finished], end_s[finished])
        order = finished[np.lexsort(keys)]
        work_of = np.array(self.structure.work_of, dtype=np.int64)[order]
        categories, parts_s = self._parts(programs)
        parts_s = parts_s[work_of]
        told = [
            one.waits and not work.beside
            for one, work in zip(programs.of_work, self.structure.works, strict=True)
        ]
        waits = np.array(told, dtype=bool)[work_of]
        waited_s = real[at.waited_s : at.waited_s + tasks][order]
        issued_s = real[at.issued_s : at.issued_s + tasks][order]
        if waits.any():
            parts_s[waits, categories.index(COMMUNICATION)] = waited_s[waits]
            late = waits & (issued_s > 0.0)
            parts_s[late, categories.index(ISSUE)] = issued_s[late]
        return SpanTable(
            rank_class=labels.rank_class[order],
            stream=labels.stream[order],
            name=labels.name[order],
            names=labels.names,
            start_s=real[at.start_s : at.start_s + tasks][order],
            end_s=end_s[order],
            microbatch=labels.microbatch[order],
            peer_class=labels.peer_class[order],
            task=labels.task[order],
            categories=categories,
            parts_s=parts_s,
        )

    def _parts(self, programs: Programs) -> tuple[tuple[str, ...], np.ndarray]:
        """Return the categories that occur, and each work's seconds in each, shape [works, categories]."""
        known = dict.fromkeys(part for one in programs.of_work for part in one.parts_s)
        if any(one.waits for one in programs.of_work):
            known |= {COMMUNICATION: None, ISSUE: None}
        categories = tuple(known)
        found = np.full((len(programs.of_work), len(categories)), np.nan)
        for row, (program, work) in enumerate(zip(programs.of_work, self.structure.works, strict=True)):
            if not work.beside:
                for part, seconds in program.parts_s.items():
                    found[row, categories.index(part)] = seconds
        return categories, found
