"""Chakra traces of all ranks as one graph of ranks that any fabric runs.

Collectives are matched by group: the n-th of a group on one rank is the n-th on all its ranks. Sends are
matched with receives by sender, receiver, tag and order. Compute takes its recorded time, or that of a unit
for its operators; where a trace has no operators, for a product of its operations and bytes. Groups come from
the file that ASTRA-sim takes, or from the node in which PyTorch records them.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

from simulator.engine.replay import Message, RankGraph, RankTask, Recorded, Together, Work
from simulator.errors import IncompleteWarning, ParameterError, WorkloadError
from simulator.files import read_json
from simulator.operators import CollectiveKind, Elementwise, MatMul, Phase, Sequence
from simulator.units import to_si
from workloads.traces.exporting import (
    ALGORITHM,
    COMM_TYPES,
    CONTINUES,
    DURATION,
    GROUPS_SUFFIX,
    OPERATORS,
    TWO_LEVEL,
)
from workloads.traces.nodes import CommType, Node, NodeType, read_operators, read_trace

ELEMENT_BYTES = 2
"""Bytes of an element of a product whose shape is not recorded: bf16."""
TILES = (64, 8)
"""Multiples to which sides of a product are rounded, the largest first: a kernel's tile, and 16 bytes."""
MOST_MOVED = 8
"""Least tiles in a side that is rounded to them, so that it changes by a sixteenth at most; a choice."""
LEAST_INTENSITY = 1.0
"""Operations per byte below which work is taken for no product; dimensionless."""


def recorded(node: Node, duration_s: float) -> Recorded:
    """Return the work of a node with its recorded time."""
    return Recorded(
        name=node.name,
        phase=Phase.FORWARD,
        flops=float(node.whole("num_ops")),
        read_bytes=float(node.whole("tensor_size")),
        written_bytes=0.0,
        duration_s=duration_s,
    )


def operator_of(node: Node) -> MatMul | Elementwise | Sequence:
    """Return the operators that a node records, or work of the likeliest shape with its operations and bytes.

    Raises
    ------
    ValueError
        If it records operators that cannot be read.

    Notes
    -----
    Below one operation a byte it is work without a product. Above, x rows meet a square weight of y x y: of
    F operations and E elements, 2 x y^2 = F and y^2 + 2 x y = E, of whose solutions the one with the fewest
    rows is taken; fused products move fewer elements than any one product of F operations can, which is
    3 (F/2)^(2/3), and count as a cube. Sides of products that people train are whole tiles, so y, and then
    x, is rounded to a multiple of `TILES`; odd sides would be slow on some units only.
    """
    text = node.get(OPERATORS, "")
    if isinstance(text, str) and text:
        return Sequence(name=node.name, phase=Phase.FORWARD, items=read_operators(text))
    operations, bytes_moved = float(node.whole("num_ops")), float(node.whole("tensor_size"))
    if operations < LEAST_INTENSITY * bytes_moved or operations < 2.0:
        return Elementwise(
            name=node.name,
            phase=Phase.FORWARD,
            flops=operations,
            read_bytes=bytes_moved,
            written_bytes=0.0,
        )
    side = _tiled(_side(operations, bytes_moved / ELEMENT_BYTES))
    return MatMul(
        name=node.name,
        phase=Phase.FORWARD,
        batch=1,
        m=_tiled(operations / (2.0 * side**2)),
        k=side,
        n=side,
        element_bytes=ELEMENT_BYTES,
    )


def _tiled(size: float) -> int:
    """Return a whole side: a multiple of the largest tile that moves it by a sixteenth at most."""
    tile = next((one for one in TILES if size >= MOST_MOVED * one), 1)
    return max(1, round(size / tile) * tile)


def _side(operations: float, elements: float) -> float:
    """Return the larger root y of y^3 - E y + F = 0, the square's side; a cube's if there is none."""
    cube = (operations / 2.0) ** (1.0 / 3.0)
    if elements <= 3.0 * cube**2:
        return cube
    angle = math.acos(-operations / 2.0 * (3.0 / elements) ** 1.5) / 3.0
    return 2.0 * math.sqrt(elements / 3.0) * math.cos(angle)


def process_groups(prefix: Path, path: Path | None, *, ranks: int) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each group from its file; none if it is not named and not there.

    Raises
    ------
    ParameterError
        If the named file cannot be read.
    WorkloadError
        If a group is no list of different ranks.
    """
    if path is None:
        beside = sorted(prefix.glob("*" + GROUPS_SUFFIX)) if prefix.is_dir() else []
        path = beside[0] if len(beside) == 1 else prefix.with_name(prefix.name + GROUPS_SUFFIX)
        if not path.is_file():
            return {}
    return {name: _members(path.name, name, value, ranks) for name, value in read_json(path).items()}


def recorded_groups(node: Node, *, ranks: int) -> dict[str, tuple[int, ...]]:
    """Return the groups that a metadata node records, as PyTorch writes them: ``['[{"pg_name": ...}]']``."""
    try:
        content = json.loads(node.inputs[0][2:-2])
    except ValueError:
        return {}
    found = {}
    for one in content if isinstance(content, list) else ():
        if isinstance(one, dict) and "pg_name" in one and isinstance(one.get("ranks"), list):
            members = one["ranks"] or list(range(ranks))
            found[str(one["pg_name"])] = _members(
                f"node {node.id} '{node.name}'", one["pg_name"], members, ranks
            )
    return found


def _members(where: str, name: str, value: Any, ranks: int) -> tuple[int, ...]:  # noqa: ANN401 - from JSON
    whole = isinstance(value, list) and all(
        isinstance(one, int) and not isinstance(one, bool) for one in value
    )
    if not whole or not value or len(set(value)) < len(value) or min(value) < 0:
        msg = f"{where}: group '{name}' must be a list of different ranks; got {str(value)[:60]}"
        raise WorkloadError(msg)
    return tuple(value)


KINDS: Mapping[int, CollectiveKind] = {
    **{int(number): kind for kind, number in COMM_TYPES.items()},
    int(CommType.REDUCE_SCATTER_BLOCK): CollectiveKind.REDUCE_SCATTER,
    int(CommType.BARRIER): CollectiveKind.ALL_REDUCE,
}
"""Kind of collective of each number of the schema; a barrier is an all-reduce of no bytes."""
STARS = frozenset({int(CommType.GATHER), int(CommType.SCATTER)})
"""Collectives in which the first of a group meets each other rank, all at once."""
_MICROSECOND_S = to_si("duration_s", 1.0, "us")
_MESSAGE_ENDS = {NodeType.COMM_SEND, NodeType.COMM_RECV}
_COMMUNICATION = {*_MESSAGE_ENDS, NodeType.COMM_COLL}


class Compute(StrEnum):
    """Source of the durations of compute."""

    RECORDED = "recorded"
    MODELLED = "modelled"


@dataclass(frozen=True, slots=True)
class _RankNode:
    """A node of one rank."""

    rank: int
    """The rank."""
    node: Node
    """The node."""
    file: str
    """Name of its file."""

    @property
    def where(self) -> str:
        """File, byte and name, for errors."""
        return f"{self.file}: byte {self.node.offset}: node {self.node.id} '{self.node.name}'"


def import_trace(
    prefix: Path,
    *,
    groups: Path | None = None,
    compute: Compute = Compute.RECORDED,
    ignore_missing: bool = False,
) -> RankGraph:
    """Return the traces ``PREFIX.<rank>.et`` of all ranks as one graph.

    Parameters
    ----------
    prefix : pathlib.Path
        Beginning of the names, or a directory with the traces of one run. Files may be gzip, also by name
        (``.et.gz``).
    groups : pathlib.Path, optional
        JSON of process groups, ``{"1": [0, 1], ...}``; by default ``PREFIX.comm_groups.json`` if it is there,
        and what the traces themselves record. A collective without a group is one of all ranks.
    compute : Compute
        Recorded: nodes take their recorded time, and those without one the time of a unit for their
        operators, or for their operations and bytes. Modelled: all nodes on the accelerator take the latter.
    ignore_missing : bool
        Whether a node that others wait for and that no file holds counts as done, with one warning for all;
        for traces that begin or end in the middle of a run.

    Raises
    ------
    ParameterError
        If files are missing or cannot be read.
    WorkloadError
        If a file is damaged, or traces do not fit together: a collective that a rank of its group never
        joins, a send that nobody receives, sizes that differ, a node that waits for one which is not there.

    Warns
    -----
    IncompleteWarning
        With the number of dependencies that were left out.
    """
    files = rank_files(prefix)
    nodes = [
        [_RankNode(rank, node, path.name) for node in read_trace(path)] for rank, path in enumerate(files)
    ]
    tasks = _Tasks(nodes, process_groups(prefix, groups, ranks=len(files)), compute)
    graph = tasks.graph(prefix.name, ignore_missing=ignore_missing)
    if tasks.missing:
        count = tasks.missing
        msg = f"{prefix.name}: dependencies that count as done, on nodes that the files lack: {count}"
        warnings.warn(msg, IncompleteWarning, stacklevel=2)
    return graph


def rank_files(prefix: Path) -> list[Path]:
    """Return the files of all ranks in order.

    Raises
    ------
    ParameterError
        If there are none, one is missing, or a directory holds several runs.
    """
    if prefix.is_file() and ".json" in prefix.suffixes:
        msg = (
            f"{prefix}: is JSON, such as a profiler of PyTorch writes; only Chakra's .et is read, which "
            "chakra_trace_link and chakra_converter make of such profiles"
        )
        raise ParameterError(msg)
    folder = prefix if prefix.is_dir() else prefix.parent
    by_run: dict[str, dict[int, Path]] = defaultdict(dict)
    for path in sorted(folder.glob("*.et*")) if folder.is_dir() else ():
        run, rank = _run_and_rank(path)
        if rank is not None and (prefix.is_dir() or run == prefix.name):
            by_run[run][rank] = path
    if len(by_run) != 1:
        fault = (
            f"holds traces of {', '.join(sorted(by_run)[:4])}" if by_run else "has no files PREFIX.<rank>.et"
        )
        msg = f"{prefix}: {fault}; name the prefix of one run, such as {folder / 'trace'} for trace.0.et"
        raise ParameterError(msg)
    ((run, files),) = by_run.items()
    absent = next((rank for rank in range(max(files) + 1) if rank not in files), None)
    if absent is not None:
        msg = f"{folder / run}.{absent}.et is not there, but that of rank {max(files)} is; ranks count from 0"
        raise ParameterError(msg)
    return [files[rank] for rank in range(len(files))]


def _run_and_rank(path: Path) -> tuple[str, int | None]:
    """Return run and rank of a file ``RUN.<rank>.et``, plain or gzip; no rank for files of other names."""
    name = path.name.removesuffix(".gz")
    run, dot, rank = name.removesuffix(".et").rpartition(".")
    named = name.endswith(".et") and dot and rank.isdigit()
    return run, int(rank) if named else None


class _Tasks:
    """Tasks of a graph of ranks, made of all ranks' nodes: one of a node, of a collective, of a send.

    Parameters
    ----------
    nodes : list of list of _RankNode
        Nodes of each rank in the order of its file.
    groups : mapping
        Ranks of each named group. They come before groups that nodes record, which may differ from rank to
        rank.
    compute : Compute
        Source of the durations of compute.

    Attributes
    ----------
    missing : int
        Dependencies on absent nodes that were left out.
    """

    def __init__(
        self, nodes: list[list[_RankNode]], groups: Mapping[str, tuple[int, ...]], compute: Compute
    ) -> None:
        self._nodes = nodes
        self._groups = groups
        self._recorded: list[dict[str, tuple[int, ...]]] = [{} for _ in nodes]
        for each in chain.from_iterable(nodes):
            if each.node.type is NodeType.METADATA:
                recorded = recorded_groups(each.node, ranks=len(nodes))
                self._recorded[each.rank] = recorded | self._recorded[each.rank]
        self._of_any_rank = {name: group for of_rank in self._recorded for name, group in of_rank.items()}
        self._compute = compute
        self.missing = 0
        self._tasks: list[tuple[list[_RankNode], RankTask]] = []
        """Tasks, not yet with those that they wait for, and the nodes that each is made of."""
        self._task_of: dict[tuple[int, int], int] = {}
        """Task of each node, by rank and id of the node."""

    def graph(self, name: str, *, ignore_missing: bool = False) -> RankGraph:
        """Return the whole graph; with `ignore_missing` absent nodes count as done."""
        for each in chain.from_iterable(self._nodes):
            if each.node.type not in _COMMUNICATION:
                self._add_single(each)
        self._add_collectives(
            each for each in chain.from_iterable(self._nodes) if each.node.type is NodeType.COMM_COLL
        )
        self._add_messages(
            each for each in chain.from_iterable(self._nodes) if each.node.type in _MESSAGE_ENDS
        )
        tasks = [
            replace(task, after=self._awaited(members, ignore_missing=ignore_missing))
            for members, task in self._tasks
        ]
        ranks = tuple((rank,) for rank in range(len(self._nodes)))
        return RankGraph(name=name, tasks=tuple(sorted(tasks, key=lambda task: task.id)), classes=ranks)

    def _awaited(self, members: list[_RankNode], *, ignore_missing: bool) -> tuple[int, ...]:
        """Return the tasks that a task of some nodes waits for."""
        awaited = (
            (each, other)
            for each in members
            for other in dict.fromkeys((*each.node.ctrl_deps, *each.node.data_deps))
        )
        after = set()
        for each, other in awaited:
            task = self._task_of.get((each.rank, other))
            if task is not None:
                after.add(task)
            elif ignore_missing:
                self.missing += 1
            else:
                msg = (
                    f"{each.where} waits for node {other}, which the file lacks; write or copy it again, "
                    "or count what is missing as done with --ignore-missing"
                )
                raise WorkloadError(msg)
        return tuple(sorted(after))

    def _add(self, members: list[_RankNode], operation: Work | Together | Message, channel: str) -> None:
        """Add a task of some nodes, one at a time with others of its channel."""
        first = members[0]
        identifier = first.node.id * len(self._nodes) + first.rank
        for each in members:
            if (each.rank, each.node.id) in self._task_of:
                msg = f"{each.where} has the number of an earlier node; give each its own"
                raise WorkloadError(msg)
            self._task_of[each.rank, each.node.id] = identifier
        task = RankTask(
            id=identifier,
            name=first.node.name or first.node.type.name.lower(),
            classes=tuple(each.rank for each in members),
            operation=operation,
            channel=channel,
            continues=bool(first.node.whole(CONTINUES)),
        )
        self._tasks.append((members, task))

    def _add_single(self, each: _RankNode) -> None:
        """Add the task of a node of one rank alone: compute, a copy, or a mark that takes no time."""
        node = each.node
        if node.type not in {NodeType.COMP, NodeType.MEM_LOAD, NodeType.MEM_STORE}:
            self._add([each], Work(operator=recorded(node, 0.0), host=True), "")
            return
        on_cpu = bool(node.whole("is_cpu_op"))
        recorded_s = _duration_s(node)
        has_time = recorded_s > 0.0 or DURATION in node.attributes
        modelled = self._compute is Compute.MODELLED and not on_cpu
        try:
            takes_recorded = on_cpu or (has_time and not modelled)
            operator = recorded(node, recorded_s) if takes_recorded else operator_of(node)
        except ValueError as error:
            msg = f"{each.where}: {error}; write the trace again"
            raise WorkloadError(msg) from None
        stream = "host" if on_cpu else "compute" if node.type is NodeType.COMP else "memory"
        work = Work(operator=operator, host=on_cpu or node.type is not NodeType.COMP)
        self._add([each], work, f"{each.rank} {stream}")

    def _add_collectives(self, nodes: Iterable[_RankNode]) -> None:
        """Add the collectives, the n-th nodes of a group on all its ranks as one task."""
        calls: dict[tuple[str, tuple[int, ...]], dict[int, list[_RankNode]]] = {}
        for each in nodes:
            name = str(each.node.get("pg_name", ""))
            calls.setdefault((name, self._group(each, name)), {}).setdefault(each.rank, []).append(each)
        for (name, group), by_rank in calls.items():
            longest = max(by_rank.values(), key=len)
            for rank in group:
                joined = len(by_rank.get(rank, ()))
                if joined < len(longest):
                    where = longest[joined].where
                    msg = f"{where} is never joined by rank {rank} of group '{name}'; trace all ranks"
                    raise WorkloadError(msg)
            for index in range(len(longest)):
                self._add_collective(name, group, [by_rank[rank][index] for rank in group])

    def _group(self, each: _RankNode, name: str) -> tuple[int, ...]:
        """Return the ranks of the group of a name, as a node of a collective means it."""
        known = self._groups, self._recorded[each.rank], self._of_any_rank
        group = next((groups[name] for groups in known if name in groups), None)
        if group is None and name in {"", "0"}:
            group = tuple(range(len(self._nodes)))
        if group is None:
            msg = (
                f"{each.where} is of group '{name}', which is not known; name a file of groups with --groups"
            )
            raise WorkloadError(msg)
        if each.rank not in group or max(group) >= len(self._nodes):
            msg = (
                f"{each.where} is of group '{name}' with ranks {', '.join(map(str, group[:8]))}; "
                f"its own rank is {each.rank}, and there are {len(self._nodes)}"
            )
            raise WorkloadError(msg)
        return group

    def _add_collective(self, name: str, group: tuple[int, ...], members: list[_RankNode]) -> None:
        """Add one collective of a group, whose nodes on all ranks must agree."""
        first = members[0]
        number = first.node.whole("comm_type")
        if number not in KINDS and number not in STARS:
            names = ", ".join(sorted(kind.name.lower() for kind in CommType))
            msg = f"{first.where} is a collective {number}, which is not known; known: {names}"
            raise WorkloadError(msg)
        for each in members:
            for key in ("comm_type", "comm_size"):
                if each.node.whole(key) != first.node.whole(key):
                    msg = (
                        f"{each.where} has {key} {each.node.whole(key)}, and {first.where} in the same place "
                        f"of group '{name}' {first.node.whole(key)}; all ranks must call the same"
                    )
                    raise WorkloadError(msg)
        channel = f"group {name} {group[0]}"
        if number in STARS:
            self._add(members, _star(number, group, first.node.whole("comm_size")), channel)
            return
        barrier = number == CommType.BARRIER
        collective = Together(
            kind=KINDS[number],
            groups=(group,),
            payload_bytes=0.0 if barrier else float(max(0, first.node.whole("comm_size"))),
            algorithm=str(first.node.get(ALGORITHM, "")),
            two_level=bool(first.node.whole(TWO_LEVEL)),
        )
        self._add(members, collective, channel)

    def _add_messages(self, nodes: Iterable[_RankNode]) -> None:
        """Add the sends, each with the receive of the same sender, receiver, tag and place among those."""
        sends: defaultdict[tuple[int, int, int], list[_RankNode]] = defaultdict(list)
        receives: defaultdict[tuple[int, int, int], list[_RankNode]] = defaultdict(list)
        for each in nodes:
            tag = each.node.whole("comm_tag")
            if each.node.type is NodeType.COMM_RECV:
                receives[each.node.whole("comm_src", each.rank), each.rank, tag].append(each)
            else:
                sends[each.rank, each.node.whole("comm_dst"), tag].append(each)
        for source, destination, tag in dict.fromkeys((*sends, *receives)):
            key = source, destination, tag
            self._check_paired(key, sends[key], receives[key])
            for send, receive in zip(sends[key], receives[key], strict=True):
                size, received = send.node.whole("comm_size"), receive.node.whole("comm_size")
                if size != received:
                    msg = (
                        f"{send.where} sends {size} bytes, and {receive.where} receives {received}; "
                        "they must agree"
                    )
                    raise WorkloadError(msg)
                message = Message(
                    sources=(source,), destinations=(destination,), size_bytes=float(max(0, size))
                )
                self._add([send, receive], message, f"{source} to {destination}")

    @staticmethod
    def _check_paired(key: tuple[int, int, int], sends: list[_RankNode], receives: list[_RankNode]) -> None:
        """Raise an error unless there are as many sends as receives of a sender, a receiver and a tag."""
        source, destination, tag = key
        if len(sends) > len(receives):
            where = sends[len(receives)].where
            msg = f"{where} with tag {tag} is never received by rank {destination}; trace both ends"
            raise WorkloadError(msg)
        if len(receives) > len(sends):
            where = receives[len(sends)].where
            msg = f"{where} with tag {tag} is never sent by rank {source}; trace both ends"
            raise WorkloadError(msg)


def _star(number: int, group: tuple[int, ...], size: int) -> Message:
    """Return a gather, of `size` bytes from each rank, or a scatter of `size` bytes of the first rank."""
    root, others = (group[0],) * (len(group) - 1), group[1:]
    if number == CommType.GATHER:
        return Message(sources=others, destinations=root, size_bytes=float(max(0, size)))
    return Message(sources=root, destinations=others, size_bytes=max(0, size) / len(group))


def _duration_s(node: Node) -> float:
    """Return the recorded duration, exact where the node has it, else from whole microseconds; 0 without."""
    exact = node.get(DURATION, 0.0)
    if isinstance(exact, float) and math.isfinite(exact) and exact > 0.0:
        return exact
    return node.duration_us * _MICROSECOND_S
