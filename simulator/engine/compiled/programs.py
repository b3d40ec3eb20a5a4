"""Structure of a step, found once as arrays, and its prices on one node and network as programs of its works.

A program is the list of instructions (`Op`) that the loop takes for a task: what the reference does in the
generators of `simulator.engine.simulation`, with every price worked out.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import simpy

from simulator.collectives.flow_groups import FlowGroup, PricedCollective, step_demand
from simulator.collectives.traffic import Traffic
from simulator.engine.compiled.memory import Op
from simulator.engine.lookahead import (
    NeedOrder,
    Piece,
    blocks_in_order,
    channel_of,
    compute_orders,
    computed,
    next_uneven,
    pieces,
    step_need_order,
    stream_of,
)
from simulator.engine.network import Network
from simulator.fabric import Fabric, LaneClaim, Loads, lone_cards
from simulator.interfaces import Cost, Flows
from simulator.node import Node
from simulator.operators import (
    Collective,
    HostWork,
    Operator,
    Overlapped,
    Sequence,
    StepGraph,
    Task,
    Transfer,
    takes_units,
)
from simulator.results import COMMUNICATION, ISSUE, STREAMS, SpanTable, category


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """Work of one or several tasks of a class."""

    operator: Operator
    """The operator, of whatever microbatch."""
    rank_class: int
    """Class of ranks."""
    times: int
    """How often it runs back to back."""
    beside: bool
    """Whether it runs beside the compute of its class."""


class StepStructure:
    """Tasks of a step as arrays: who runs what, after what, on which channel.

    Tasks are numbered by their place in the graph. An actor is what runs tasks one after the other: each task
    that runs beside its class's compute has its own, and each class has one for its compute.

    Parameters
    ----------
    graph : StepGraph
        The step.
    """

    def __init__(self, graph: StepGraph) -> None:
        self.graph = graph
        place = {task.id: index for index, task in enumerate(graph.tasks)}
        orders = compute_orders(graph)
        computed = {task.id for tasks in orders.values() for task in tasks}
        self.actors = [[index] for index, task in enumerate(graph.tasks) if task.id not in computed]
        self.actors += [[place[task.id] for task in tasks] for tasks in orders.values()]
        self.after = [place[other] for task in graph.tasks for other in task.after]
        self.first_after = np.cumsum([0, *(len(task.after) for task in graph.tasks)]).tolist()
        self.times = [task.multiplicity for task in graph.tasks]
        self.works: list[Work] = []
        self.work_of: list[int] = []
        self.same_run: dict[int, int] = {}
        """Run of operators that is equal to another, by the identities of their items."""
        self.channel: list[int] = []
        self.channels = 0
        self._demand: dict[int, dict[tuple[str, int, int], Flows]] = {}
        self._number(graph.tasks, computed)

    def _number(self, tasks: tuple[Task, ...], computed: set[int]) -> None:
        """Give numbers to the distinct works and to the channels."""
        works: dict[tuple[object, ...], int] = {}
        channels: dict[tuple[int, str, int], int] = {}
        for task in tasks:
            beside = task.id not in computed
            self.work_of.append(self._work(task, works, beside=beside))
            key = (task.rank_class, channel_of(task.operator), _shift(task.operator)) if beside else None
            self.channel.append(-1 if key is None else channels.setdefault(key, len(channels)))
        self.channels = len(channels)
        runs: dict[tuple[object, ...], int] = {}
        for work in self.works:
            if isinstance(work.operator, Sequence):
                items = work.operator.items
                self.same_run[id(items)] = runs.setdefault(items, id(items))

    def _work(self, task: Task, known: dict[tuple[object, ...], int], *, beside: bool) -> int:
        """Return the number of a task's work, which is added if no equal one is known."""
        operator = task.operator
        # What runs many times is one object mostly: hashing it each time takes longer than its events.
        what = (id(operator.items), operator.name) if isinstance(operator, Sequence) else id(operator)
        key = (what, task.rank_class, task.multiplicity, beside)
        if key not in known:
            same = (operator.items, operator.name) if isinstance(operator, Sequence) else operator
            known[key] = known.setdefault((same, *key[1:]), len(self.works))
            if known[key] == len(self.works):
                self.works.append(
                    Work(
                        operator=operator,
                        rank_class=task.rank_class,
                        times=task.multiplicity,
                        beside=beside,
                    )
                )
        return known[key]

    def demand(self, node_size: int) -> dict[tuple[str, int, int], Flows]:
        """Return the traffic of the whole step; see `step_demand`."""
        found = self._demand.get(node_size)
        if found is None:
            found = self._demand[node_size] = step_demand(self.graph, node_size)
        return found

    @cached_property
    def tables(self) -> Mapping[str, np.ndarray]:
        """Tables of the loop's memory that no price changes; shape [tasks], [actors] or their rows."""
        first = np.cumsum([0, *(len(one) for one in self.actors)])
        found = {
            "first_order": first,
            "order": np.fromiter(itertools.chain.from_iterable(self.actors), dtype=np.int64),
            "wait": np.array([self.first_after[one[0]] for one in self.actors], dtype=np.int64),
        }
        for name in ("work_of", "times", "channel", "first_after", "after"):
            found[name] = np.array(getattr(self, name), dtype=np.int64)
        return found

    @cached_property
    def need_order(self) -> NeedOrder:
        """Order in which tasks are needed, by their number in the graph."""
        return step_need_order(self.graph)

    @cached_property
    def labels(self) -> SpanTable:
        """Spans of its tasks before they are played: at time 0, and without parts."""
        tasks, works = self.graph.tasks, self.works
        called = [
            f"{channel_of(work.operator)} {work.operator.name}" if work.beside else work.operator.name
            for work in works
        ]
        names = tuple(sorted(set(called)))
        work_of = np.array(self.work_of, dtype=np.int64)
        shifts = [_shift(work.operator) for work in works]
        kinds = [STREAMS.index(stream_of(work.operator, beside=work.beside)) for work in works]
        rank_class = np.array([work.rank_class for work in works], dtype=np.int64)
        peers = [one + shift if shift else -1 for one, shift in zip(rank_class.tolist(), shifts, strict=True)]
        return SpanTable(
            rank_class=rank_class[work_of],
            stream=np.array(kinds, dtype=np.int64)[work_of],
            name=np.array([names.index(one) for one in called], dtype=np.int64)[work_of],
            microbatch=np.array(
                [_microbatch(task, works[number]) for task, number in zip(tasks, self.work_of, strict=True)]
            ),
            peer_class=np.array(peers, dtype=np.int64)[work_of],
            task=np.array([task.id for task in tasks], dtype=np.int64),
            names=names,
            start_s=np.zeros(len(tasks)),
            end_s=np.zeros(len(tasks)),
            categories=(),
            parts_s=np.empty((len(tasks), 0)),
        )


def _shift(operator: Operator) -> int:
    """Return the stages by which an operator sends; 0 of what does not."""
    return operator.shift if isinstance(operator, Collective) else 0


def _microbatch(task: Task, work: Work) -> int:
    """Return the microbatch that a span names: that of a compute run."""
    return task.operator.microbatch if not work.beside and isinstance(task.operator, Sequence) else -1


class NotCoveredError(Exception):
    """Trait of a step that only the reference plays; never leaves the engine."""


@dataclass(kw_only=True, eq=False)
class Charge:
    """Amounts that are counted when a task, or a part of it, begins."""

    compute_j: dict[str, float] = field(default_factory=dict)
    """Dynamic energy by component, all ranks."""
    host_bytes: dict[str, float] = field(default_factory=dict)
    """Bytes by lane, all ranks."""
    carried: list[tuple[Collective, PricedCollective, int]] = field(default_factory=list)
    """Collectives with how often they run, in order."""


class Instruction(NamedTuple):
    """Instruction of a program; see `Op`."""

    op: Op
    x: float = 0.0
    i: int = 0
    j: int = 0
    busy_s: float = 0.0
    slack_s: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A work with its prices."""

    entry: int
    """First instruction."""
    parts_s: dict[str, float]
    """Seconds by category that do not hang on what others do."""
    waits: bool
    """Whether it also waits for collectives that share links, and for the host, which the loop counts."""
    pays: bool
    """Whether it pays for what collectives took of its units, which the loop counts, too."""
    forks: bool
    """Whether it starts others."""
    charges: int
    """Charges that fall due each time it runs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Computed:
    """Time and energy of a run's operators without its collectives."""

    sequence: Sequence
    """The run, kept because its items are known by their identity."""
    seconds: dict[str, float]
    """Time by category."""
    compute_j: dict[str, float]
    """Dynamic energy by component, all ranks."""
    issue_s: float
    """Time that the host needs to issue them."""


NO_CAPACITY = "a link has no capacity"
PASSED_ON = "circuits turn during the step, and the fabric does not say by which parts"
"""Why the reference plays a step on fabrics without lanes or parts."""


class StepNetwork:
    """The network of a step with the prices of its collectives, which no change of a node alters.

    Parameters
    ----------
    structure : StepStructure
        The step.
    fabric : Fabric
        What connects its ranks.
    """

    def __init__(self, structure: StepStructure, fabric: Fabric) -> None:
        demand = structure.demand(lone_cards(fabric))
        self.structure = structure  # whose operators are known by their identity
        self.fabric = fabric
        self.network = Network(simpy.Environment(), fabric, tuple(demand.values()))
        self.traffic = Traffic(structure.graph.layout, fabric, self.network, demand)
        self._private: dict[tuple[int, int], bool] = {}
        self._plans: dict[tuple[int, int], PricedCollective] = {}
        self._claims: dict[FlowGroup, LaneClaim | None] = {}
        self._parts: dict[FlowGroup, np.ndarray] = {}
        self._loads: dict[FlowGroup, FlowGroup | Loads] = {}
        self.traffic.price((work.operator, work.rank_class) for work in structure.works)
        self.turns = not all(
            self.network.locate(group) for plan in self.traffic.plans for group, _, _ in plan.parts
        )
        """Whether something has to wait for circuits."""
        self.by_parts = self.turns and fabric.traits.endpoint_lanes is None
        """Whether circuits that it waits for are no lanes of endpoints."""

    def plan(self, operator: Collective, rank_class: int) -> PricedCollective:
        """Return how a class carries out a collective.

        Raises
        ------
        NotCoveredError
            If it has to wait for circuits of more than lanes.
        """
        key = (id(operator), rank_class)
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = self._checked(self.traffic.plan(operator, rank_class))
        return found

    def _checked(self, plan: PricedCollective) -> PricedCollective:
        """Return a plan whose circuits all stand, or turn by lanes."""
        capacity = self.network.graph.capacity_bytes_per_s
        for group, _, _ in plan.parts:
            if self.by_parts:
                self.parts(group)
                continue
            if self.turns and self.claim(group) is None:
                raise NotCoveredError(PASSED_ON)
            found = self.loads(group)
            if not self.turns and (capacity[found.links] <= 0.0).any():
                raise NotCoveredError(NO_CAPACITY)
        return plan

    def claim(self, group: FlowGroup) -> LaneClaim | None:
        """Return the lanes that a group turns to itself; None if other things than lanes decide."""
        if group not in self._claims:
            circuits = self.network.circuits
            self._claims[group] = self.fabric.lane_claim(circuits, group.flows, group.demand)
        return self._claims[group]

    def parts(self, group: FlowGroup) -> np.ndarray:
        """Return the parts of circuits that a group takes or turns, by number; none if nothing turns for it.

        Raises
        ------
        NotCoveredError
            If the fabric does not say.
        """
        if group not in self._parts:
            found = self.fabric.circuit_parts(group.flows)
            if found is None:
                raise NotCoveredError(PASSED_ON)
            self._parts[group] = found
        return self._parts[group]

    def may_wait(self, group: FlowGroup) -> bool:
        """Return whether circuits may have to turn for a group during the step."""
        if self.by_parts:
            return self.fabric.turns_for(group.flows)
        claim = self.claim(group) if self.turns else None
        return claim is not None and claim.carriers.size > 0

    def loads(self, group: FlowGroup) -> FlowGroup | Loads:
        """Return what a group asks of links, or would if circuits turned to it at the start."""
        if not self.turns:
            return group
        if group not in self._loads:
            found, graph = self.network.foreseen(group)
            self._loads[group] = found
            if (graph.capacity_bytes_per_s[found.links] <= 0.0).any():
                raise NotCoveredError(NO_CAPACITY)
        return self._loads[group]

    def private(self, sequence: Sequence, rank_class: int) -> bool:
        """Return whether a sequence's collectives share no link with other traffic."""
        key = (id(sequence.items), rank_class)
        found = self._private.get(key)
        if found is None:
            found = self._private[key] = self.traffic.private(sequence, rank_class)
        return found


class Programs:
    """Programs of all works of a step on one node and one network.

    Parameters
    ----------
    structure : StepStructure
        The step.
    node : Node
        The accelerator of every rank.
    network : StepNetwork
        What connects them.

    Raises
    ------
    NotCoveredError
        If only the reference plays such a step.
    """

    def __init__(self, structure: StepStructure, node: Node, network: StepNetwork) -> None:
        self.ranks = structure.graph.layout.ranks_per_class
        self._node = node
        self._network = network
        self._taken = {one.rank_class for one in structure.works if takes_units(one.operator)}
        self.code: list[Instruction] = []
        self.charges: list[Charge] = []
        self.groups: dict[FlowGroup, int] = {}
        self._same_run = structure.same_run
        self._parts: list[tuple[str, float]] = []
        self._alone: dict[int, Computed] = {}
        self.collective_share = node.collective_share
        self._paying = -1
        self.of_work = [self._program(work) for work in structure.works]

    def _place(self, code: list[Instruction]) -> int:
        """Add a program and return its first instruction."""
        entry = len(self.code)
        self.code += code
        self.code.append(Instruction(Op.END))
        return entry

    def _charged(self, charge: Charge) -> Instruction:
        self.charges.append(charge)
        return Instruction(Op.CHARGE, i=len(self.charges) - 1)

    def _program(self, work: Work) -> Program:
        """Return the program of a work, added behind those before it."""
        self._parts, before = [], len(self.charges)
        operator, rank_class = work.operator, work.rank_class
        pays = self.collective_share > 0.0 and not work.beside and rank_class in self._taken
        self._paying = rank_class if pays else -1
        match operator:
            case Collective() if work.beside:
                code = self._carried(operator, rank_class, 1)
            case Transfer() | HostWork() if work.beside:
                code = self._on_host(operator)
            case _:
                code = self._executed(operator, rank_class)
        parts: defaultdict[str, float] = defaultdict(float)
        for _ in range(work.times):  # in the order in which the reference adds them up
            for part, seconds in self._parts:
                parts[part] += seconds
        waits = any(one.op in {Op.WAITED, Op.LATE} for one in code)
        forks = any(one.op in {Op.FORK, Op.BESIDE} for one in code)
        charges = len(self.charges) - before
        return Program(
            entry=self._place(code),
            parts_s=dict(parts),
            waits=waits,
            pays=any(one.op is Op.WORK for one in code),
            forks=forks,
            charges=charges,
        )

    def _worked(self, seconds: dict[str, float]) -> Instruction:
        """Return work of so many seconds by category."""
        self._parts += seconds.items()
        work_s = math.fsum(seconds.values())
        if self._paying < 0:
            return Instruction(Op.SLEEP, work_s)
        busy_s = math.fsum(one for part, one in seconds.items() if part not in {COMMUNICATION, ISSUE})
        slack_s = seconds.get(ISSUE, 0.0)
        return Instruction(Op.WORK, work_s, self._paying, busy_s=busy_s, slack_s=slack_s)

    def _on_host(self, operator: Transfer | HostWork) -> list[Instruction]:
        cost = self._node.host_cost(operator)
        charge = Charge(compute_j=self._joules(cost, 1))
        if isinstance(operator, Transfer):
            charge.host_bytes[str(operator.lane)] = operator.moved_bytes * self.ranks
        return [self._charged(charge), Instruction(Op.SLEEP, cost.time_s)]

    def _joules(self, cost: Cost, times: int) -> dict[str, float]:
        """Return the dynamic energy of a cost on all ranks of a class by component."""
        ranks = self.ranks * times
        return {part: energy * ranks for part, energy in cost.energy_j.items()}

    def _executed(self, operator: Operator, rank_class: int) -> list[Instruction]:
        """Return what the compute stream does for an operator."""
        match operator:
            case Sequence():
                if self._network.private(operator, rank_class):
                    return self._fused(operator, rank_class)
                return self._in_pieces(operator, rank_class)
            case Overlapped():
                return self._overlapped(operator, rank_class, 1)
            case Collective() | Transfer() | HostWork():
                msg = f"'{operator.name}' stands in the order of compute"
                raise NotCoveredError(msg)
            case _:
                cost = self._node.cost(operator)
                charge = Charge(compute_j=self._joules(cost, 1))
                return [self._charged(charge), self._worked({category(operator, cost): cost.time_s})]

    def _in_pieces(self, sequence: Sequence, rank_class: int) -> list[Instruction]:
        """Return a run of operators whose collectives share links: one event for what lies between two."""
        code = [Instruction(Op.BEGIN)]
        cut = blocks_in_order if self._network.traffic.by_block(sequence, rank_class) else pieces
        every = cut(sequence)
        for place, piece in enumerate(every):
            if isinstance(piece, Sequence):
                code += self._turned_ahead(every[place:], rank_class)
                code += self._fused(piece, rank_class, issued=True)
                continue
            one, repeat = piece
            if isinstance(one, Overlapped):
                code += self._overlapped(one, rank_class, repeat)
                continue
            carried = self._carried(one, rank_class, repeat)
            code += [Instruction(Op.MARK), *carried, Instruction(Op.WAITED)]
        return [*code, Instruction(Op.LATE, self._node.issue_s(sequence.items))]

    def _fused(self, sequence: Sequence, rank_class: int, *, issued: bool = False) -> list[Instruction]:
        """Return a run of operators that is one event."""
        run = self._same_run.get(id(sequence.items), id(sequence.items))
        found = self._alone.get(run)
        if found is None:
            found = self._alone[run] = self._computed(sequence)
        charge = Charge(compute_j=found.compute_j)
        seconds = dict(found.seconds)
        for one, repeat in sequence.items:
            if isinstance(one, Collective):
                plan = self._network.plan(one, rank_class)
                seconds[COMMUNICATION] = seconds.get(COMMUNICATION, 0.0) + plan.alone_s * repeat
                charge.carried.append((one, plan, repeat))
            elif isinstance(one, Overlapped):
                plan = self._network.plan(one.collective, rank_class)
                exposed_s = max(0.0, plan.alone_s - self._node.cost(one.product).time_s * one.beside)
                seconds[COMMUNICATION] = seconds.get(COMMUNICATION, 0.0) + exposed_s * repeat
                charge.carried.append((one.collective, plan, repeat))
        late_s = 0.0 if issued else found.issue_s - math.fsum(seconds.values())
        if late_s > 0.0:
            seconds[ISSUE] = late_s
        return [self._charged(charge), self._worked(seconds)]

    def _computed(self, sequence: Sequence) -> Computed:
        """Return what the products and other work of a run of operators take, whoever runs them."""
        seconds: defaultdict[str, float] = defaultdict(float)
        joules: defaultdict[str, float] = defaultdict(float)
        for one, repeat in sequence.items:
            for product, times in computed(one, repeat):
                cost = self._node.cost(product)
                seconds[category(product, cost)] += cost.time_s * times
                for part, energy in cost.energy_j.items():
                    joules[part] += energy * times
        return Computed(
            sequence=sequence,
            seconds=dict(seconds),
            compute_j={part: energy * self.ranks for part, energy in joules.items()},
            issue_s=self._node.issue_s(sequence.items),
        )

    def _overlapped(self, operator: Overlapped, rank_class: int, repeat: int) -> list[Instruction]:
        """Return the pieces that stand alone, then the others beside the collective."""
        cost = self._node.cost(operator.product)
        name = category(operator.product, cost)
        code = [self._charged(Charge(compute_j=self._joules(cost, operator.pieces * repeat)))]
        if operator.alone:
            code.append(self._worked({name: cost.time_s * operator.alone * repeat}))
        beside_s = cost.time_s * operator.beside * repeat
        self._parts.append((name, beside_s))
        child = self._place(self._carried(operator.collective, rank_class, repeat))
        code += [Instruction(Op.MARK), Instruction(Op.BESIDE, beside_s, child, self._paying)]
        return [*code, Instruction(Op.WAITED, beside_s)]

    def _carried(self, operator: Collective, rank_class: int, repeat: int) -> list[Instruction]:
        """Return what carries a collective out, as `simulator.collectives.traffic.carry_collective` does."""
        plan = self._network.plan(operator, rank_class)
        code = [self._charged(Charge(carried=[(operator, plan, repeat)]))]
        if plan.protocol_s:
            code.append(Instruction(Op.SLEEP, plan.protocol_s * repeat))
        if plan.at_once:
            levels = [
                self._place(self._moved(one, size * (count * repeat))) for one, size, count in plan.parts
            ]
            code.append(Instruction(Op.FORK, j=len(levels)))
            return code + [Instruction(Op.END, i=entry) for entry in levels]
        times, together = (repeat, 1) if plan.in_turns else (1, repeat)
        for flow_group, size_bytes, count in plan.parts * times:
            code += self._moved(flow_group, size_bytes * (count * together))
            code.append(self._passed(flow_group, count * together))
        return code

    def _passed(self, flow_group: FlowGroup, times: int) -> Instruction:
        """Return what pays the latency of the way that a group has, so many times."""
        network = self._network
        if network.by_parts and network.may_wait(flow_group):
            return Instruction(Op.PATH, float(times), self.groups[flow_group])
        return Instruction(Op.SLEEP, network.loads(flow_group).latency_s * times)

    def _turned_ahead(self, coming: Iterable[Piece], rank_class: int) -> list[Instruction]:
        """Return what turns circuits to the next block's exchange while what is before it computes."""
        traits = self._network.fabric.traits
        if not (self._network.turns and traits.prefetches and traits.turns_by_layer):
            return []
        following = next_uneven(coming)
        if following is None:
            return []
        groups = [group for group, _, _ in self._network.plan(following, rank_class).parts]
        waiting = [group for group in groups if self._network.may_wait(group)]
        return [
            Instruction(
                Op.AHEAD,
                i=self.groups.setdefault(group, len(self.groups)),
                j=-1 if place else len(waiting) - 1,
            )
            for place, group in enumerate(waiting)
        ]

    def _moved(self, flow_group: FlowGroup, total_bytes: float) -> list[Instruction]:
        waits = self._network.may_wait(flow_group)
        if not waits and (total_bytes <= 0.0 or not flow_group.links.size):
            return []
        number = self.groups.setdefault(flow_group, len(self.groups))
        return [Instruction(Op.MOVE, total_bytes, number)]
