"""A training step as Chakra traces, one file a rank, as ASTRA-sim reads them.

A run of operators between two collectives becomes one COMP node, with its operations, its bytes, its
operators one by one and the time that a given accelerator takes; a collective a COMM_COLL node of a group; a
send a pair of SEND and RECV. The host's issue of kernels, where it can be what a run waits for, is a COMP
node on the CPU beside it.

Notes
-----
ASTRA-sim numbers the streams of group g from g * 10^6 on in 32 bits (CommunicatorGroup.cc), and takes them
modulo 5 * 10^8 for tags (Sys.cc); so numbers that are equal modulo 500 meet, and from 2,148 on they overflow.
A group that a trace itself records is one higher than its name (Workload.cc).
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from types import MappingProxyType

import networkx

from simulator.engine.lookahead import compute_orders, computed, pieces
from simulator.errors import ParameterError, WorkloadError
from simulator.node import Node as Accelerator
from simulator.operators import (
    Collective,
    CollectiveKind,
    Elementwise,
    MatMul,
    Overlapped,
    Sequence,
    StepGraph,
    Task,
)
from simulator.units import to_si
from workloads.traces.nodes import (
    VERSION,
    Attribute,
    CommType,
    Form,
    Node,
    NodeType,
    Run,
    encode_metadata,
    encode_node,
    operators_text,
    write_messages,
)

MOST = 498
"""Highest number of a group: it and the one above it stay below 500."""
Group = tuple[int, ...]
"""Ranks of a group in their order."""


@dataclass(frozen=True, kw_only=True)
class Numbering:
    """The number of each group, from 1."""

    numbers: dict[Group, int]
    """By group; equal only for groups without a common rank."""

    @cached_property
    def distinct(self) -> bool:
        """Whether no two groups have the same number, so that one file can name all."""
        return len(set(self.numbers.values())) == len(self.numbers)

    @cached_property
    def _of_rank(self) -> dict[int, list[Group]]:
        groups: defaultdict[int, list[Group]] = defaultdict(list)
        for group in self.numbers:
            for rank in group:
                groups[rank].append(group)
        return groups

    def file(self) -> dict[str, list[int]]:
        """Return the content of the file of groups; nothing if several groups have one number."""
        if not self.distinct:
            return {}
        return {str(number): list(group) for group, number in self.numbers.items()}

    def node(self, rank: int) -> Node:
        """Return the node that lists a rank's groups, as PyTorch records them; no other waits for it."""
        own = [
            {"pg_name": str(self.numbers[group]), "ranks": list(group)}
            for group in self._of_rank.get(rank, ())
        ]
        return Node(
            id=0,
            name="process groups",
            type=NodeType.METADATA,
            inputs=(f"['{json.dumps(own)}']", "", ""),
            attributes={"is_cpu_op": Attribute(Form.BOOL, value=True)},
        )


def numbered(groups: Iterable[Group]) -> Numbering:
    """Return numbers for groups: in order while there are few, else the lowest that no group of a member has.

    Raises
    ------
    WorkloadError
        If a rank is in more groups than there are numbers.
    """
    distinct = tuple(dict.fromkeys(groups))
    if len(distinct) <= MOST:
        return Numbering(numbers={group: place + 1 for place, group in enumerate(distinct)})
    taken: defaultdict[int, set[int]] = defaultdict(set)  # by rank
    numbers = {}
    for group in distinct:
        others = set().union(*(taken[rank] for rank in group))
        number = next(free for free in range(1, len(others) + 2) if free not in others)
        if number > MOST:
            msg = (
                f"rank {group[0]} and those it meets are in {number} process groups; ASTRA-sim tells {MOST} "
                "apart; export a smaller step"
            )
            raise WorkloadError(msg)
        numbers[group] = number
        for rank in group:
            taken[rank].add(number)
    return Numbering(numbers=numbers)


COMM_TYPES: Mapping[CollectiveKind, CommType] = {
    CollectiveKind.ALL_REDUCE: CommType.ALL_REDUCE,
    CollectiveKind.REDUCE: CommType.REDUCE,
    CollectiveKind.ALL_GATHER: CommType.ALL_GATHER,
    CollectiveKind.BROADCAST: CommType.BROADCAST,
    CollectiveKind.ALL_TO_ALL: CommType.ALL_TO_ALL,
    CollectiveKind.REDUCE_SCATTER: CommType.REDUCE_SCATTER,
}
"""Collectives that both sides know; sizes mean the same: per rank, before the collective."""
DURATION = "duration_s"
"""Attribute with the unrounded duration of compute; the schema counts whole microseconds."""
ALGORITHM = "algorithm"
"""Attribute with the algorithm that a collective must use, if it must."""
TWO_LEVEL = "two_level"
"""Attribute of an all-to-all that goes within nodes and between them in turn."""
OPERATORS = "operators"
"""Attribute with the operators of a run (`workloads.traces.nodes`); others have their sums alone."""
CONTINUES = "continues"
"""Attribute of a communication that repeats the one before, ahead of others of its group."""
NO_WORK: Mapping[str, Attribute] = MappingProxyType(
    {"num_ops": Attribute(Form.INT64, 0), "tensor_size": Attribute(Form.UINT64, 0)}
)
"""Attributes of time in which no unit works."""
_MICROSECOND_S = to_si("duration_s", 1.0, "us")


@dataclass(frozen=True, kw_only=True)
class SendEnd:
    """One end of a send, whose other end depends on the rank."""

    send: Collective
    """The send."""
    tag: int
    """Number of the pair."""
    receives: bool
    """Whether this is the receiver's end."""


Entry = tuple[Node, Collective | SendEnd | None]
"""A node of a rank class. A collective or the end of a send is added where parts of it depend on the rank."""
Ids = tuple[int, ...]
"""Ids of nodes of one rank class, for which a later node waits."""


class Program:
    """The nodes of every rank class of a step, each after those that it waits for.

    Parameters
    ----------
    graph : StepGraph
        The step.
    node : Accelerator
        The accelerator.
    kernels : bool
        Whether every operator has a node of its own.
    """

    def __init__(self, graph: StepGraph, node: Accelerator, *, kernels: bool) -> None:
        self._graph = graph
        self._kernels = kernels
        self._cost = node.cost
        self._issue_s = node.issue_s
        self._entries: list[list[Entry]] = [[] for _ in range(graph.layout.classes)]
        self._ends: dict[tuple[int, int], Ids] = {}
        """Nodes that end a task, by rank class and task."""
        self._unwritten_s = [0.0] * graph.layout.classes
        """Time that rounding to microseconds has left over, by rank class."""
        self._tags = 0
        self._computed: dict[int, Ids] = {}
        """Nodes that end a task on its own class."""
        self._previous = {
            later.id: earlier.id
            for tasks in compute_orders(graph).values()
            for earlier, later in pairwise(tasks)
        }
        """Compute task before each on its class."""

    def classes(self) -> list[list[Entry]]:
        """Return the nodes of each class."""
        for task in self._order():
            self._add(task)
        return self._entries

    def _order(self) -> Iterator[Task]:
        """Yield the tasks in a topological order, of those that are ready the most urgent first."""
        tasks = {task.id: task for task in self._graph.tasks}
        graph = networkx.DiGraph()
        graph.add_nodes_from(tasks)
        graph.add_edges_from((earlier, later) for later, earlier in self._previous.items())
        graph.add_edges_from((other, task.id) for task in tasks.values() for other in task.after)
        order = networkx.lexicographical_topological_sort(
            graph, key=lambda task: (tasks[task].priority, task)
        )
        return (tasks[task] for task in order)

    def _add(self, task: Task) -> None:
        """Add the nodes of a task."""
        rank_class = task.rank_class
        deps = self._waits_for(task)
        order = self._computed.get(self._previous.get(task.id, -1), ())
        for repetition in range(task.multiplicity):
            again = repetition > 0
            match task.operator:
                case Collective(kind=CollectiveKind.SEND):
                    deps = self._send(task, task.operator, deps, again=again)
                case Collective():
                    deps = self._collective(rank_class, task.operator, deps, again=again)
                case MatMul() | Elementwise() if not task.beside:
                    deps = self._compute(rank_class, task.operator.name, ((task.operator, 1),), deps, order)
                case Sequence():
                    deps = self._sequence(rank_class, task.operator, deps, order)
                case _:
                    msg = (
                        f"'{task.operator.name}' runs on a host or a server, which a Chakra trace cannot "
                        "say; keep parameters and optimizer on the accelerators"
                    )
                    raise WorkloadError(msg)
            order = ()
        self._ends[rank_class, task.id] = self._computed[task.id] = deps

    def _waits_for(self, task: Task) -> Ids:
        """Return the nodes of a task's class that end what it waits for; of another class its receive."""
        rank_class = task.rank_class
        missing = next((other for other in task.after if (rank_class, other) not in self._ends), None)
        if missing is not None:
            msg = (
                f"task {task.id} '{task.operator.name}' waits for task {missing} of another stage, which "
                "sends it nothing; a Chakra trace has no such order"
            )
            raise WorkloadError(msg)
        return tuple(dict.fromkeys(node for other in task.after for node in self._ends[rank_class, other]))

    def _node(
        self,
        rank_class: int,
        name: str,
        kind: NodeType,
        deps: Ids,
        order: Ids = (),
        *,
        duration_us: int = 0,
        attributes: Mapping[str, Attribute] | None = None,
        detail: Collective | SendEnd | None = None,
    ) -> Ids:
        """Add a node that waits for the results of `deps` and for `order` to have run; return its id."""
        identifier = len(self._entries[rank_class]) + 1  # node 0 lists the groups of a rank
        node = Node(
            id=identifier,
            name=name,
            type=kind,
            ctrl_deps=tuple(other for other in order if other not in deps),
            data_deps=deps,
            duration_us=duration_us,
            attributes=attributes or {},
        )
        self._entries[rank_class].append((node, detail))
        return (identifier,)

    def _sequence(self, rank_class: int, sequence: Sequence, deps: Ids, order: Ids) -> Ids:
        """Add the nodes of a run of operators: compute, collectives, and the issue of both by the host.

        The host's node is added where the launches of the run take longer than its work.
        """
        busy_s = 0.0
        begin = (deps, order)
        for piece in pieces(sequence):
            if isinstance(piece, Sequence):
                work = tuple(pair for one, times in piece.items for pair in computed(one, times))
                busy_s += math.fsum(self._cost(one).time_s * times for one, times in work)
                runs = [((one, 1),) for one, times in work for _ in range(times)] if self._kernels else [work]
                for run in runs:
                    deps, order = self._compute(rank_class, run[0][0].name, run, deps, order), ()
                continue
            operator, repeat = piece
            if isinstance(operator, Overlapped):
                busy_s += self._cost(operator.product).time_s * operator.pieces * repeat
                deps, order = self._overlap(rank_class, operator, repeat, deps, order), ()
                continue
            for _ in range(repeat):
                deps, order = self._collective(rank_class, operator, (*deps, *order)), ()
        issue_s = self._issue_s(sequence.items)
        if issue_s > busy_s:
            host = self._timed(rank_class, f"{sequence.name} issue", issue_s, *begin, cpu=True)
            deps = (*deps, *host)
        return deps

    def _overlap(self, rank_class: int, one: Overlapped, repeat: int, deps: Ids, order: Ids) -> Ids:
        """Add the pieces of a product that run alone, then the others with the collective beside them."""
        if one.alone:
            deps = self._compute(rank_class, one.name, ((one.product, one.alone * repeat),), deps, order)
            order = ()
        computed_ids: Ids = ()
        if one.beside:
            computed_ids = self._compute(
                rank_class, one.name, ((one.product, one.beside * repeat),), deps, order
            )
        moved = (*deps, *order)
        for _ in range(repeat):
            moved = self._collective(rank_class, one.collective, moved)
        return tuple(dict.fromkeys((*computed_ids, *moved)))

    def _compute(
        self,
        rank_class: int,
        name: str,
        work: Run,
        deps: Ids,
        order: Ids,
    ) -> Ids:
        """Add a run of operators as one node with its operations, bytes, operators and time."""
        duration_s = math.fsum(self._cost(one).time_s * times for one, times in work)
        moved = math.fsum(moved_bytes(one) * times for one, times in work)
        flops = math.fsum(float(one.flops) * times for one, times in work)
        attributes = {
            "num_ops": Attribute(Form.INT64, round(flops)),
            "tensor_size": Attribute(Form.UINT64, round(moved)),
            OPERATORS: Attribute(Form.STRING, operators_text(work)),
        }
        return self._timed(rank_class, name, duration_s, deps, order, work=attributes)

    def _timed(
        self,
        rank_class: int,
        name: str,
        duration_s: float,
        deps: Ids,
        order: Ids,
        *,
        work: Mapping[str, Attribute] = NO_WORK,
        cpu: bool = False,
    ) -> Ids:
        """Add a node of compute, on the CPU or the accelerator, whose recorded time is in whole microseconds.

        The remainder of the accelerator's times goes to its next node, so that their sum is right.
        """
        exact_s = duration_s + (0.0 if cpu else self._unwritten_s[rank_class])
        microseconds = max(0, round(exact_s / _MICROSECOND_S))
        if not cpu:
            self._unwritten_s[rank_class] = exact_s - microseconds * _MICROSECOND_S
        attributes = {
            "is_cpu_op": Attribute(Form.BOOL, cpu),
            **work,
            DURATION: Attribute(Form.DOUBLE, duration_s),
        }
        return self._node(
            rank_class, name, NodeType.COMP, deps, order, duration_us=microseconds, attributes=attributes
        )

    def _collective(self, rank_class: int, one: Collective, deps: Ids, *, again: bool = False) -> Ids:
        """Add a collective; `again` where it repeats the one before."""
        if one.size == 1:
            return deps
        if one.kind not in COMM_TYPES or one.spread is not None:
            kind = f"a {one.kind}" if one.kind not in COMM_TYPES else "an exchange that visits nodes once"
            msg = f"'{one.name}' is {kind}, which a Chakra trace cannot say; choose another exchange"
            raise WorkloadError(msg)
        if one.skew is not None:
            msg = f"'{one.name}' is an uneven all-to-all, which a Chakra trace cannot say; use an even router"
            raise WorkloadError(msg)
        attributes = {
            "is_cpu_op": Attribute(Form.BOOL, value=False),
            "comm_type": Attribute(Form.INT64, int(COMM_TYPES[one.kind])),
            "comm_size": Attribute(Form.INT64, round(one.payload_bytes)),
        }
        if one.algorithm:
            attributes[ALGORITHM] = Attribute(Form.STRING, str(one.algorithm))
        if again:
            attributes[CONTINUES] = Attribute(Form.BOOL, value=True)
        if one.two_level:
            attributes[TWO_LEVEL] = Attribute(Form.BOOL, value=True)
        return self._node(rank_class, one.name, NodeType.COMM_COLL, deps, attributes=attributes, detail=one)

    def _send(self, task: Task, one: Collective, deps: Ids, *, again: bool) -> Ids:
        """Add both ends of a send; `again` where it repeats the one before."""
        sender, receiver = task.rank_class, task.rank_class + one.shift
        attributes = {
            "is_cpu_op": Attribute(Form.BOOL, value=False),
            "comm_size": Attribute(Form.INT64, round(one.payload_bytes)),
        }
        if again:
            attributes[CONTINUES] = Attribute(Form.BOOL, value=True)
        sent, received = (SendEnd(send=one, tag=self._tags, receives=end) for end in (False, True))
        self._tags += 1
        arrived = self._node(
            receiver, one.name, NodeType.COMM_RECV, (), attributes=attributes, detail=received
        )
        self._ends[receiver, task.id] = arrived
        return self._node(sender, one.name, NodeType.COMM_SEND, deps, attributes=attributes, detail=sent)


def moved_bytes(operator: MatMul | Elementwise) -> float:
    """Return the bytes that an operator moves from and to memory."""
    if isinstance(operator, MatMul):
        return float(operator.operand_bytes)
    return operator.read_bytes + operator.written_bytes


GROUPS_SUFFIX = ".comm_groups.json"
"""End of the name of the file of process groups, after the traces' prefix."""


def export_step(
    graph: StepGraph, node: Accelerator, prefix: Path, *, name: str = "", kernels: bool = False
) -> list[Path]:
    """Write a training step as ``PREFIX.<rank>.et`` and its process groups as ``PREFIX.comm_groups.json``.

    Parameters
    ----------
    graph : StepGraph
        The step.
    node : Accelerator
        The accelerator whose times are written.
    prefix : pathlib.Path
        Directory and beginning of the names.
    name : str
        Origin of the traces, for their metadata.
    kernels : bool
        Whether every operator of a run, and every repetition, has a node of its own.

    Returns
    -------
    list of pathlib.Path
        Files written; that of the groups last. ASTRA-sim takes it as ``--comm-group-configuration``. Where
        there are more groups than numbers it is empty, and every trace begins with those of its rank.

    Raises
    ------
    WorkloadError
        If the step has parts that a Chakra trace cannot hold: transfers to and work on the host, parameter
        servers, all-to-alls that send a token once to a node; or a rank is in more groups than can be
        numbered.
    ParameterError
        If a file cannot be written.
    """
    classes = Program(graph, node, kernels=kernels).classes()
    groups = numbered(_groups(graph, classes))
    metadata = encode_metadata(VERSION, {"schema": Attribute(Form.STRING, name)} if name else {})
    written = []
    for rank_class, entries in enumerate(classes):
        of_all_ranks = [None if detail else encode_node(one) for one, detail in entries]
        for place, rank in enumerate(graph.layout.members(rank_class)):
            path = prefix.with_name(f"{prefix.name}.{int(rank)}.et")
            of_rank = _Rank(graph, rank_class, place, groups)
            messages = (
                encoded if encoded is not None else encode_node(of_rank.node(one, detail))
                for encoded, (one, detail) in zip(of_all_ranks, entries, strict=True)
            )
            listed = [] if groups.distinct else [encode_node(groups.node(int(rank)))]
            write_messages(path, metadata, chain(listed, messages))
            written.append(path)
    path = prefix.with_name(prefix.name + GROUPS_SUFFIX)
    try:
        path.write_text(json.dumps(groups.file()) + "\n", encoding="utf-8")
    except OSError as error:
        msg = f"{path}: cannot be written ({error.strerror or error}); name another place"
        raise ParameterError(msg) from None
    return [*written, path]


def _groups(graph: StepGraph, classes: list[list[Entry]]) -> Iterator[Group]:
    """Yield the groups of all collectives, class by class and axis by axis."""
    for rank_class, entries in enumerate(classes):
        axes = (detail.axis for _, detail in entries if isinstance(detail, Collective))
        for axis in dict.fromkeys(axes):
            yield from (tuple(map(int, row)) for row in graph.layout.groups(axis, rank_class))


@dataclass(frozen=True)
class _Rank:
    """Nodes of a class as they are on one of its ranks."""

    graph: StepGraph
    """The step."""
    rank_class: int
    """The class."""
    place: int
    """Place of the rank among the members of the class."""
    groups: Numbering
    """Numbers of all groups."""

    def node(self, node: Node, detail: Collective | SendEnd | None) -> Node:
        """Return a node with its group, or with the rank at the other end."""
        layout = self.graph.layout
        if isinstance(detail, Collective):
            rank = int(layout.members(self.rank_class)[self.place])
            rows = layout.groups(detail.axis, self.rank_class)
            row = next(row for row in rows if rank in row)
            number = self.groups.numbers[tuple(int(one) for one in row)]
            return replace(
                node, attributes={**node.attributes, "pg_name": Attribute(Form.STRING, str(number))}
            )
        if isinstance(detail, SendEnd):
            sender = self.rank_class - (detail.send.shift if detail.receives else 0)
            ends = {
                "comm_src": layout.members(sender)[self.place],
                "comm_dst": layout.members(sender + detail.send.shift)[self.place],
                "comm_tag": detail.tag,
            }
            numbers = {key: Attribute(Form.INT32, int(value)) for key, value in ends.items()}
            return replace(node, attributes={**node.attributes, **numbers})
        return node
