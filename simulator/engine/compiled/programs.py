"""Structure of a step as arrays, found once, and its works as programs, priced on one node and one network.

A program is a list of instructions (`simulator.engine.compiled.state.Op`) that the loop runs for a task. It
says what the generators of `simulator.engine.simulation` do for the same operator, with every price worked
out; the two must be changed together.
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
from simulator.engine.compiled.state import Op
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
    """Operator that one or several tasks of a class run: those of other microbatches, for instance."""

    operator: Operator
    """The operator, with the microbatch of any of them."""
    rank_class: int
    """Class of ranks."""
    times: int
    """Number of runs, back to back."""
    beside: bool
    """Whether it runs beside the compute of its class."""


class StepStructure:
    """Tasks of a step as arrays: their works, channels and dependencies, and the actors that run them.

    Tasks are numbered by their place in the graph. An actor runs tasks one after the other: each class has
    one for its compute, and each task that runs beside its class's compute has its own.

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
        """Tasks of each actor, in the order in which it runs them."""
        self.actors += [[place[task.id] for task in tasks] for tasks in orders.values()]
        self.works: list[Work] = []
        self.work_of: list[int] = []
        """Work of each task."""
        self.channel: list[int] = []
        """Channel of each task, -1 for compute."""
        self.channels = 0
        self.equal_items: dict[int, int] = {}
        """Identity of the items of each sequence, to that of the first equal ones."""
        self._dependencies = [[place[other] for other in task.after] for task in graph.tasks]
        self._demand: dict[int, dict[tuple[str, int, int], Flows]] = {}
        self._number_works_and_channels(computed)

    def _number_works_and_channels(self, computed: set[int]) -> None:
        """Give numbers to the distinct works and channels.

        Parameters
        ----------
        computed : set of int
            Ids of the tasks that run as compute of their classes.
        """
        works: dict[tuple[object, ...], int] = {}
        channels: dict[tuple[int, str, int], int] = {}
        for task in self.graph.tasks:
            beside = task.id not in computed
            self.work_of.append(self._work_number(task, works, beside=beside))
            key = (task.rank_class, channel_of(task.operator), _shift(task.operator)) if beside else None
            self.channel.append(-1 if key is None else channels.setdefault(key, len(channels)))
        self.channels = len(channels)
        first_equal: dict[tuple[object, ...], int] = {}
        for work in self.works:
            if isinstance(work.operator, Sequence):
                items = work.operator.items
                self.equal_items[id(items)] = first_equal.setdefault(items, id(items))

    def _work_number(self, task: Task, known: dict[tuple[object, ...], int], *, beside: bool) -> int:
        """Return the number of a task's work, which is added if no equal one is known.

        Works are looked up by the identity of their operators first: one object stands for most equal ones,
        and hashing it for every task takes longer than the task's events.
        """
        operator = task.operator
        identity = (id(operator.items), operator.name) if isinstance(operator, Sequence) else id(operator)
        key = (identity, task.rank_class, task.multiplicity, beside)
        if key not in known:
            value = (operator.items, operator.name) if isinstance(operator, Sequence) else operator
            known[key] = known.setdefault((value, *key[1:]), len(self.works))
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
    def arrays(self) -> Mapping[str, np.ndarray]:
        """Tables of the loop that no price changes, and the work of each task, by name in `Offsets`."""
        first_actor_task = np.cumsum([0, *(len(tasks) for tasks in self.actors)])
        first_dependency = np.cumsum([0, *(len(others) for others in self._dependencies)])
        found = {
            "first_actor_task": first_actor_task,
            "actor_task": list(itertools.chain.from_iterable(self.actors)),
            "next_dependency": [first_dependency[tasks[0]] for tasks in self.actors],
            "first_dependency": first_dependency,
            "dependency": list(itertools.chain.from_iterable(self._dependencies)),
            "multiplicity": [task.multiplicity for task in self.graph.tasks],
            "channel": self.channel,
            "work_of": self.work_of,
        }
        return {name: np.array(table, dtype=np.int64) for name, table in found.items()}

    @cached_property
    def need_order(self) -> NeedOrder:
        """Order in which tasks are needed, by their ids."""
        return step_need_order(self.graph)

    @cached_property
    def labels(self) -> SpanTable:
        """Spans of the tasks without their times, which are 0, and without parts."""
        tasks, works = self.graph.tasks, self.works
        labels = [
            f"{channel_of(work.operator)} {work.operator.name}" if work.beside else work.operator.name
            for work in works
        ]
        names = tuple(sorted(set(labels)))
        work_of = np.array(self.work_of, dtype=np.int64)
        shifts = [_shift(work.operator) for work in works]
        streams = [STREAMS.index(stream_of(work.operator, beside=work.beside)) for work in works]
        rank_class = np.array([work.rank_class for work in works], dtype=np.int64)
        peers = [one + shift if shift else -1 for one, shift in zip(rank_class.tolist(), shifts, strict=True)]
        return SpanTable(
            rank_class=rank_class[work_of],
            stream=np.array(streams, dtype=np.int64)[work_of],
            name=np.array([names.index(label) for label in labels], dtype=np.int64)[work_of],
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
    """Return the number of classes from an operator's sender to its receiver; 0 within a class."""
    return operator.shift if isinstance(operator, Collective) else 0


def _microbatch(task: Task, work: Work) -> int:
    """Return the microbatch of a task's span: that of a sequence that its class computes, else -1."""
    return task.operator.microbatch if not work.beside and isinstance(task.operator, Sequence) else -1


class NotCoveredError(Exception):
    """A step or a fabric has a trait that only the reference covers; never leaves the engine."""


@dataclass(kw_only=True, eq=False)
class Charge:
    """Energy, bytes and collectives that are counted when a task, or a part of it, begins."""

    compute_j: dict[str, float] = field(default_factory=dict)
    """Dynamic energy by component, all ranks."""
    host_bytes: dict[str, float] = field(default_factory=dict)
    """Bytes by lane, all ranks."""
    carried: list[tuple[Collective, PricedCollective, int]] = field(default_factory=list)
    """Collectives with their plans and their numbers of runs, in order."""


class Instruction(NamedTuple):
    """Instruction of a program; `Op` says what its operands are."""

    op: Op
    amount: float = 0.0
    target: int = 0
    extra: int = 0
    work_busy_s: float = 0.0
    work_slack_s: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """Program of a work, with the times that are known before the loop runs."""

    start: int
    """First instruction."""
    parts_s: dict[str, float]
    """Seconds by category that do not depend on what else goes on."""
    waits: bool
    """Whether it waits for collectives that share links, or for the host; the loop counts for how long."""
    pays: bool
    """Whether collectives may slow its compute; the loop counts by how much."""
    forks: bool
    """Whether it starts programs in children."""
    charges: int
    """Charges that fall due each time it runs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SequenceCost:
    """Time and energy of a sequence's operators without its collectives."""

    sequence: Sequence
    """The sequence, kept alive because its items are known by their identity."""
    seconds: dict[str, float]
    """Time by category."""
    compute_j: dict[str, float]
    """Dynamic energy by component, all ranks."""
    issue_s: float
    """Time that the host needs to issue the operators."""


NO_CAPACITY = "a link has no capacity"
PASSED_ON = "circuits turn during the step, and the fabric does not say by which parts"
"""Reasons for which the reference plays a step."""


class StepNetwork:
    """Network of a step with the prices of its collectives, which do not depend on the node.

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
            self.network.locate(group) for plan in self.traffic.plans for group in plan.flow_groups
        )
        """Whether circuits turn during the step, for some group lacks a circuit at the start."""
        self.by_parts = self.turns and fabric.traits.endpoint_lanes is None
        """Whether they turn part by part and not lane by lane."""

    def plan(self, operator: Collective, rank_class: int) -> PricedCollective:
        """Return the plan by which a class carries out a collective.

        Raises
        ------
        NotCoveredError
            If the fabric does not say which of its circuits turn, or a link has no capacity.
        """
        key = (id(operator), rank_class)
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = self._check_plan(self.traffic.plan(operator, rank_class))
        return found

    def _check_plan(self, plan: PricedCollective) -> PricedCollective:
        """Return a plan, having checked that the loop covers its groups."""
        capacity = self.network.graph.capacity_bytes_per_s
        for group in plan.flow_groups:
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
        """Return the lanes that a group turns to its peers; None if the fabric does not turn lane by lane."""
        if group not in self._claims:
            circuits = self.network.circuits
            self._claims[group] = self.fabric.lane_claim(circuits, group.flows, group.demand)
        return self._claims[group]

    def parts(self, group: FlowGroup) -> np.ndarray:
        """Return the numbers of the parts of circuits that a group uses or turns, shape [parts].

        Raises
        ------
        NotCoveredError
            If the fabric does not say which.
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
        """Return a group's loads on links, with its circuits as if they had turned to it at the start."""
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
        The network that connects them.

    Raises
    ------
    NotCoveredError
        If only the reference plays such a step.

    Notes
    -----
    Methods called ``..._code`` return the instructions of an operator. On the way they add to `charges`, to
    `groups` and to the seconds by category of the work at hand.
    """

    def __init__(self, structure: StepStructure, node: Node, network: StepNetwork) -> None:
        self.code: list[Instruction] = []
        """Instructions of all programs."""
        self.charges: list[Charge] = []
        """Charges, in the order of their numbers in instructions."""
        self.groups: dict[FlowGroup, int] = {}
        """Number in instructions of each group of flows."""
        self.collective_share = node.collective_share
        self._ranks = structure.graph.layout.ranks_per_class
        self._node = node
        self._network = network
        self._slowed_classes = {work.rank_class for work in structure.works if takes_units(work.operator)}
        self._equal_items = structure.equal_items
        self._sequence_costs: dict[int, SequenceCost] = {}
        self._parts: list[tuple[str, float]] = []
        """Category and seconds of each part of the work at hand."""
        self._slowed_class = -1
        """Class of the work at hand if collectives may slow it, else -1."""
        self.of_work = [self._build(work) for work in structure.works]
        """Program of each work."""

    def _build(self, work: Work) -> Program:
        """Return the program of a work, added behind those before it."""
        operator, rank_class = work.operator, work.rank_class
        slowed = self.collective_share > 0.0 and not work.beside and rank_class in self._slowed_classes
        self._parts, self._slowed_class = [], rank_class if slowed else -1
        charges_before = len(self.charges)
        match operator:
            case Collective() if work.beside:
                code = self._collective_code(operator, rank_class, 1)
            case Transfer() | HostWork() if work.beside:
                code = self._host_code(operator)
            case _:
                code = self._compute_code(operator, rank_class)
        parts: defaultdict[str, float] = defaultdict(float)
        for _ in range(work.times):  # in the order in which the reference adds them up
            for part, seconds in self._parts:
                parts[part] += seconds
        ops = {instruction.op for instruction in code}
        return Program(
            start=self._add_code(code),
            parts_s=dict(parts),
            waits=bool(ops & {Op.COUNT_EXPOSED, Op.AWAIT_ISSUE}),
            pays=Op.WORK in ops,
            forks=bool(ops & {Op.FORK, Op.OVERLAP}),
            charges=len(self.charges) - charges_before,
        )

    def _add_code(self, code: list[Instruction]) -> int:
        """Add a program and return its first instruction."""
        start = len(self.code)
        self.code += code
        self.code.append(Instruction(Op.END))
        return start

    def _charge_code(self, charge: Charge) -> Instruction:
        self.charges.append(charge)
        return Instruction(Op.CHARGE, target=len(self.charges) - 1)

    def _work_code(self, seconds: dict[str, float]) -> Instruction:
        """Return the instruction that works for some seconds by category."""
        self._parts += seconds.items()
        work_s = math.fsum(seconds.values())
        if self._slowed_class < 0:
            return Instruction(Op.SLEEP, work_s)
        busy_s = math.fsum(one for part, one in seconds.items() if part not in {COMMUNICATION, ISSUE})
        slack_s = seconds.get(ISSUE, 0.0)
        return Instruction(Op.WORK, work_s, self._slowed_class, work_busy_s=busy_s, work_slack_s=slack_s)

    def _host_code(self, operator: Transfer | HostWork) -> list[Instruction]:
        cost = self._node.host_cost(operator)
        charge = Charge(compute_j=self._energy_j(cost, 1))
        if isinstance(operator, Transfer):
            charge.host_bytes[str(operator.lane)] = operator.moved_bytes * self._ranks
        return [self._charge_code(charge), Instruction(Op.SLEEP, cost.time_s)]

    def _energy_j(self, cost: Cost, times: int) -> dict[str, float]:
        """Return the dynamic energy of some runs on all ranks of a class, by component."""
        runs = self._ranks * times
        return {part: energy_j * runs for part, energy_j in cost.energy_j.items()}

    def _compute_code(self, operator: Operator, rank_class: int) -> list[Instruction]:
        """Return the code of an operator on its class's compute stream."""
        match operator:
            case Sequence():
                if self._network.private(operator, rank_class):
                    return self._fused_code(operator, rank_class)
                return self._sequence_code(operator, rank_class)
            case Overlapped():
                return self._overlap_code(operator, rank_class, 1)
            case Collective() | Transfer() | HostWork():
                msg = f"'{operator.name}' stands in the order of compute"
                raise NotCoveredError(msg)
            case _:
                cost = self._node.cost(operator)
                charge = Charge(compute_j=self._energy_j(cost, 1))
                return [self._charge_code(charge), self._work_code({category(operator, cost): cost.time_s})]

    def _sequence_code(self, sequence: Sequence, rank_class: int) -> list[Instruction]:
        """Return the code of a sequence whose collectives share links, cut at these."""
        code = [Instruction(Op.BEGIN_SEQUENCE)]
        cut = blocks_in_order if self._network.traffic.by_block(sequence, rank_class) else pieces
        every = cut(sequence)
        for place, piece in enumerate(every):
            if isinstance(piece, Sequence):
                code += self._turn_ahead_code(every[place:], rank_class)
                code += self._fused_code(piece, rank_class, issued=True)
                continue
            operator, repeat = piece
            if isinstance(operator, Overlapped):
                code += self._overlap_code(operator, rank_class, repeat)
                continue
            collective = self._collective_code(operator, rank_class, repeat)
            code += [Instruction(Op.MARK), *collective, Instruction(Op.COUNT_EXPOSED)]
        return [*code, Instruction(Op.AWAIT_ISSUE, self._node.issue_s(sequence.items))]

    def _fused_code(self, sequence: Sequence, rank_class: int, *, issued: bool = False) -> list[Instruction]:
        """Return the code of a sequence that is one event, for its collectives have their links alone.

        Parameters
        ----------
        sequence : Sequence
            The operators.
        rank_class : int
            Class that runs them.
        issued : bool
            Whether the time in which the host issues them is counted elsewhere.
        """
        cost = self._sequence_cost(sequence)
        charge = Charge(compute_j=cost.compute_j)
        seconds = dict(cost.seconds)
        for operator, repeat in sequence.items:
            if isinstance(operator, Collective):
                plan = self._network.plan(operator, rank_class)
                seconds[COMMUNICATION] = seconds.get(COMMUNICATION, 0.0) + plan.alone_s * repeat
                charge.carried.append((operator, plan, repeat))
            elif isinstance(operator, Overlapped):
                plan = self._network.plan(operator.collective, rank_class)
                hidden_s = self._node.cost(operator.product).time_s * operator.beside
                exposed_s = max(0.0, plan.alone_s - hidden_s)
                seconds[COMMUNICATION] = seconds.get(COMMUNICATION, 0.0) + exposed_s * repeat
                charge.carried.append((operator.collective, plan, repeat))
        late_s = 0.0 if issued else cost.issue_s - math.fsum(seconds.values())
        if late_s > 0.0:
            seconds[ISSUE] = late_s
        return [self._charge_code(charge), self._work_code(seconds)]

    def _sequence_cost(self, sequence: Sequence) -> SequenceCost:
        """Return time and energy of a sequence without its collectives; equal ones are priced once."""
        key = self._equal_items.get(id(sequence.items), id(sequence.items))
        if key not in self._sequence_costs:
            self._sequence_costs[key] = self._price(sequence)
        return self._sequence_costs[key]

    def _price(self, sequence: Sequence) -> SequenceCost:
        seconds: defaultdict[str, float] = defaultdict(float)
        energy_j: defaultdict[str, float] = defaultdict(float)
        for item, repeat in sequence.items:
            for operator, times in computed(item, repeat):
                cost = self._node.cost(operator)
                seconds[category(operator, cost)] += cost.time_s * times
                for part, one_j in cost.energy_j.items():
                    energy_j[part] += one_j * times
        return SequenceCost(
            sequence=sequence,
            seconds=dict(seconds),
            compute_j={part: one_j * self._ranks for part, one_j in energy_j.items()},
            issue_s=self._node.issue_s(sequence.items),
        )

    def _overlap_code(self, operator: Overlapped, rank_class: int, repeat: int) -> list[Instruction]:
        """Return the code of a product in pieces: those that run alone, then those beside a collective."""
        cost = self._node.cost(operator.product)
        name = category(operator.product, cost)
        code = [self._charge_code(Charge(compute_j=self._energy_j(cost, operator.pieces * repeat)))]
        if operator.alone:
            code.append(self._work_code({name: cost.time_s * operator.alone * repeat}))
        beside_s = cost.time_s * operator.beside * repeat
        self._parts.append((name, beside_s))
        child = self._add_code(self._collective_code(operator.collective, rank_class, repeat))
        code += [Instruction(Op.MARK), Instruction(Op.OVERLAP, beside_s, child, self._slowed_class)]
        return [*code, Instruction(Op.COUNT_EXPOSED, beside_s)]

    def _collective_code(self, operator: Collective, rank_class: int, repeat: int) -> list[Instruction]:
        """Return the code of a collective; its rule is `simulator.collectives.traffic.carry_collective`."""
        plan = self._network.plan(operator, rank_class)
        code = [self._charge_code(Charge(carried=[(operator, plan, repeat)]))]
        if plan.protocol_s:
            code.append(Instruction(Op.SLEEP, plan.protocol_s * repeat))
        if plan.at_once:
            levels = [
                self._add_code(self._transfer_code(group, size_bytes * (count * repeat)))
                for group, size_bytes, count in plan.parts
            ]
            code.append(Instruction(Op.FORK, extra=len(levels)))
            return code + [Instruction(Op.END, target=start) for start in levels]
        passes, together = (repeat, 1) if plan.in_turns else (1, repeat)
        for group, size_bytes, count in plan.parts * passes:
            code += self._transfer_code(group, size_bytes * (count * together))
            code.append(self._latency_code(group, count * together))
        return code

    def _transfer_code(self, group: FlowGroup, total_bytes: float) -> list[Instruction]:
        """Return the code that carries bytes of every flow of a group; none if that takes no time."""
        if not self._network.may_wait(group) and (total_bytes <= 0.0 or not group.links.size):
            return []
        number = self.groups.setdefault(group, len(self.groups))
        return [Instruction(Op.TRANSFER, total_bytes, number)]

    def _latency_code(self, group: FlowGroup, times: int) -> Instruction:
        """Return the instruction that waits some times for the latency of a group's path."""
        network = self._network
        if network.by_parts and network.may_wait(group):
            return Instruction(Op.AWAIT_LATENCY, float(times), self.groups[group])
        return Instruction(Op.SLEEP, network.loads(group).latency_s * times)

    def _turn_ahead_code(self, coming: Iterable[Piece], rank_class: int) -> list[Instruction]:
        """Return the code that turns circuits to the next block's exchange while what is before it computes.

        The first instruction asks for all of them whether ports have other traffic ahead.
        """
        traits = self._network.fabric.traits
        if not (self._network.turns and traits.prefetches and traits.turns_by_layer):
            return []
        following = next_uneven(coming)
        if following is None:
            return []
        groups = self._network.plan(following, rank_class).flow_groups
        waiting = [group for group in groups if self._network.may_wait(group)]
        return [
            Instruction(
                Op.TURN_AHEAD,
                target=self.groups.setdefault(group, len(self.groups)),
                extra=-1 if place else len(waiting) - 1,
            )
            for place, group in enumerate(waiting)
        ]
