"""Chakra traces of all ranks as one graph of ranks that any fabric runs.

Collectives are matched by group: the n-th of a group on one rank is the n-th on all its ranks. Sends are
matched with receives by sender, receiver, tag and place. Compute takes its recorded time, or what a unit
needs for its operators; where a trace tells none, for a product of its operations and bytes. Groups come from
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
"""Multiples that sides of a product are taken to, the largest first: a kernel's tile, and 16 bytes."""
MOST_MOVED = 8
"""Tiles of which a side has so many at least, so that it moves by a sixteenth at most; a choice."""
LEAST_INTENSITY = 1.0
"""Operations per byte below which work is no product; dimensionless."""


def recorded(node: Node, duration_s: float) -> Recorded:
    """Return the work of a node with the time that it took."""
    return Recorded(
        name=node.name,
        phase=Phase.FORWARD,
        flops=float(node.whole("num_ops")),
        read_bytes=float(node.whole("tensor_size")),
        written_bytes=0.0,
        duration_s=duration_s,
    )


def operator_of(node: Node) -> MatMul | Elementwise | Sequence:
    """Return the operators that a node tells, or work with its operations and bytes in the likeliest shape.

    Raises
    ------
    ValueError
        If it tells operators that cannot be read.

    Notes
    -----
    Below one operation a byte it is work without a product. Above, x rows meet a square weight of y x y: of
    F operations and E elements, 2 x y^2 = F and y^2 + 2 x y = E, of whose solutions the one with the fewest
    rows is taken; fused products move fewer elements than any one product of F operations can, which is
    3 (F/2)^(2/3), and count as a cube. Sides of products that people train are whole tiles, so y, and then
    x, is taken to the nearest multiple of `TILES`: odd sides would slow those units alone that mind them.
    """
    told = node.get(OPERATORS, "")
    if isinstance(told, str) and told:
        return Sequence(name=node.name, phase=Phase.FORWARD, items=read_operators(told))
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
"""What is done by a collective of each number; a barrier is an all-reduce of nothing."""
STARS = frozenset({int(CommType.GATHER), int(CommType.SCATTER)})
"""Collectives in which the first of a group meets each other rank, all at once."""
_MICROSECOND_S = to_si("duration_s", 1.0, "us")
_PENDING = {NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL}


class Compute(StrEnum):
    """Source of the durations of compute."""

    RECORDED = "recorded"
    MODELLED = "modelled"


@dataclass(frozen=True, slots=True)
class _Place:
    """A node of one rank."""

    rank: int
    node: Node
    file: str

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
        Recorded: nodes take the time that they took, those that have none what a unit needs for their
        operators, or their operations and bytes. Modelled: all on the accelerator take the latter.
    ignore_missing : bool
        Whether a node that others wait for and no file holds counts as done, with one warning for all, as
        in traces that begin or end in the middle of a run.

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
    places = [[_Place(rank, node, path.name) for node in read_trace(path)] for rank, path in enumerate(files)]
    matching = _Matching(places, process_groups(prefix, groups, ranks=len(files)), compute)
    found = matching.graph(prefix.name, ignore_missing=ignore_missing)
    if matching.missing:
        count = matching.missing
        msg = f"{prefix.name}: dependencies that count as done, on nodes that the files lack: {count}"
        warnings.warn(msg, IncompleteWarning, stacklevel=2)
    return found


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
    folder, start = (prefix, "") if prefix.is_dir() else (prefix.parent, prefix.name + ".")
    found: dict[str, dict[int, Path]] = defaultdict(dict)
    for path in sorted(folder.glob("*.et*")) if folder.is_dir() else ():
        name, dot, rank = path.name.removesuffix(".gz").removesuffix(".et").rpartition(".")
        if (
            path.name.removesuffix(".gz").endswith(".et")
            and dot
            and rank.isdigit()
            and f"{name}.".startswith(start)
        ):
            if not start or name == prefix.name:
                found[name][int(rank)] = path
    if len(found) != 1:
        what = f"holds traces of {', '.join(sorted(found)[:4])}" if found else "has no files PREFIX.<rank>.et"
        msg = f"{prefix}: {what}; name the prefix of one run, such as {folder / 'trace'} for trace.0.et"
        raise ParameterError(msg)
    ((name, files),) = found.items()
    lost = next((rank for rank in range(max(files) + 1) if rank not in files), None)
    if lost is not None:
        msg = f"{folder / name}.{lost}.et is not there, but that of rank {max(files)} is; ranks count from 0"
        raise ParameterError(msg)
    return [files[rank] for rank in range(len(files))]


class _Matching:
    """The tasks of all ranks' nodes.

    Parameters
    ----------
    places : list of list of _Place
        Nodes of each rank in the order of its file.
    groups : mapping
        Ranks of each named group; before those that nodes record, which may differ from rank to rank.
    compute : Compute
        How long compute takes.

    Attributes
    ----------
    missing : int
        Dependencies on nodes that are not there and were left out.
    """

    def __init__(
        self, places: list[list[_Place]], groups: Mapping[str, tuple[int, ...]], compute: Compute
    ) -> None:
        self._places = places
        self._groups = groups
        self._recorded: list[dict[str, tuple[int, ...]]] = [{} for _ in places]
        for one in (one for of_rank in places for one in of_rank if one.node.type is NodeType.METADATA):
            self._recorded[one.rank] = recorded_groups(one.node, ranks=len(places)) | self._recorded[one.rank]
        self._anywhere = {name: group for of_rank in self._recorded for name, group in of_rank.items()}
        self._compute = compute
        self.missing = 0
        self._tasks: list[tuple[list[_Place], RankTask]] = []
        self._task_of: dict[tuple[int, int], int] = {}

    def graph(self, name: str, *, ignore_missing: bool = False) -> RankGraph:
        """Return the whole graph; nodes that are not there count as done, if so asked."""
        waiting = [one for of_rank in self._places for one in of_rank if one.node.type in _PENDING]
        for of_rank in self._places:
            for one in of_rank:
                if one.node.type not in _PENDING:
                    self._alone(one)
        self._collectives(one for one in waiting if one.node.type is NodeType.COMM_COLL)
        self._messages([one for one in waiting if one.node.type is not NodeType.COMM_COLL])
        tasks = []
        for members, task in self._tasks:
            after = set()
            for one in members:
                for other in dict.fromkeys((*one.node.ctrl_deps, *one.node.data_deps)):
                    found = self._task_of.get((one.rank, other))
                    if found is not None:
                        after.add(found)
                    elif ignore_missing:
                        self.missing += 1
                    else:
                        self._refuse(one, other)
            tasks.append(replace(task, after=tuple(sorted(after))))
        ranks = tuple((rank,) for rank in range(len(self._places)))
        ordered = tuple(sorted(tasks, key=lambda task: task.id))
        return RankGraph(name=name, tasks=ordered, classes=ranks)

    def _refuse(self, one: _Place, other: int) -> None:
        msg = (
            f"{one.where} waits for node {other}, which the file lacks; write or copy it again, "
            "or count what is missing as done with --ignore-missing"
        )
        raise WorkloadError(msg)

    def _add(self, members: list[_Place], operation: Work | Together | Message, channel: str) -> None:
        first = members[0]
        identifier = first.node.id * len(self._places) + first.rank
        for one in members:
            if (one.rank, one.node.id) in self._task_of:
                msg = f"{one.where} has the number of an earlier node; give each its own"
                raise WorkloadError(msg)
            self._task_of[one.rank, one.node.id] = identifier
        task = RankTask(
            id=identifier,
            name=first.node.name or first.node.type.name.lower(),
            classes=tuple(one.rank for one in members),
            operation=operation,
            channel=channel,
            continues=bool(first.node.whole(CONTINUES)),
        )
        self._tasks.append((members, task))

    def _alone(self, one: _Place) -> None:
        node = one.node
        on_cpu = bool(node.whole("is_cpu_op"))
        works = node.type in {NodeType.COMP, NodeType.MEM_LOAD, NodeType.MEM_STORE}
        if not works:
            self._add([one], Work(operator=recorded(node, 0.0), host=True), "")
            return
        recorded_s = _duration_s(node)
        known = recorded_s > 0.0 or DURATION in node.attributes
        modelled = self._compute is Compute.MODELLED and not on_cpu
        keeps = on_cpu or (known and not modelled)
        try:
            operator = recorded(node, recorded_s) if keeps else operator_of(node)
        except ValueError as error:
            msg = f"{one.where}: {error}; write the trace again"
            raise WorkloadError(msg) from None
        self._add(
            [one],
            Work(operator=operator, host=on_cpu or node.type is not NodeType.COMP),
            f"{one.rank} {'host' if on_cpu else 'compute' if node.type is NodeType.COMP else 'memory'}",
        )

    def _collectives(self, places: Iterable[_Place]) -> None:
        calls: dict[tuple[str, tuple[int, ...]], dict[int, list[_Place]]] = {}
        for one in places:
            name = str(one.node.get("pg_name", ""))
            group = self._group(one, name)
            calls.setdefault((name, group), {}).setdefault(one.rank, []).append(one)
        for (name, group), of_rank in calls.items():
            most = max(len(found) for found in of_rank.values())
            for rank in group:
                if len(of_rank.get(rank, ())) < most:
                    here = next(
                        found[len(of_rank.get(rank, ()))] for found in of_rank.values() if len(found) == most
                    )
                    msg = f"{here.where} is never joined by rank {rank} of group '{name}'; trace all ranks"
                    raise WorkloadError(msg)
            for index in range(most):
                self._collective(name, group, [of_rank[rank][index] for rank in group])

    def _group(self, one: _Place, name: str) -> tuple[int, ...]:
        known = self._groups, self._recorded[one.rank], self._anywhere
        group = next((groups[name] for groups in known if name in groups), None)
        if group is None and name in {"", "0"}:
            group = tuple(range(len(self._places)))
        if group is None:
            msg = f"{one.where} is of group '{name}', which is not known; name a file of groups with --groups"
            raise WorkloadError(msg)
        if one.rank not in group or max(group) >= len(self._places):
            msg = (
                f"{one.where} is of group '{name}' with ranks {', '.join(map(str, group[:8]))}; "
                f"its own rank is {one.rank}, and there are {len(self._places)}"
            )
            raise WorkloadError(msg)
        return group

    def _collective(self, name: str, group: tuple[int, ...], members: list[_Place]) -> None:
        first = members[0]
        number = first.node.whole("comm_type")
        if number not in KINDS and number not in STARS:
            what = f"collective {number}"
            names = ", ".join(sorted(one.name.lower() for one in CommType))
            msg = f"{first.where} is a {what}, which is not known; known: {names}"
            raise WorkloadError(msg)
        for one in members:
            for key in ("comm_type", "comm_size"):
                if one.node.whole(key) != first.node.whole(key):
                    msg = (
                        f"{one.where} has {key} {one.node.whole(key)}, and {first.where} in the same place "
                        f"of group '{name}' {first.node.whole(key)}; all ranks must call the same"
                    )
                    raise WorkloadError(msg)
        channel = f"group {name} {group[0]}"
        if number in STARS:
            self._add(members, _star(number, group, first.node.whole("comm_size")), channel)
            return
        barrier = number == CommType.BARRIER
        together = Together(
            kind=KINDS[number],
            groups=(group,),
            payload_bytes=0.0 if barrier else float(max(0, first.node.whole("comm_size"))),
            algorithm=str(first.node.get(ALGORITHM, "")),
            two_level=bool(first.node.whole(TWO_LEVEL)),
        )
        self._add(members, together, channel)

    def _messages(self, places: list[_Place]) -> None:
        ends: dict[tuple[int, int, int], tuple[list[_Place], list[_Place]]] = {}
        for one in places:
            receives = one.node.type is NodeType.COMM_RECV
            source = one.node.whole("comm_src", one.rank) if receives else one.rank
            destination = one.rank if receives else one.node.whole("comm_dst")
            key = (source, destination, one.node.whole("comm_tag"))
            ends.setdefault(key, ([], []))[receives].append(one)
        for (source, destination, number), (sent, received) in ends.items():
            if len(sent) != len(received):
                lonely = (sent if len(sent) > len(received) else received)[min(len(sent), len(received))]
                what = "received by" if lonely in sent else "sent by"
                other = destination if lonely in sent else source
                msg = f"{lonely.where} with tag {number} is never {what} rank {other}; trace both ends"
                raise WorkloadError(msg)
            for left, right in zip(sent, received, strict=True):
                sizes = left.node.whole("comm_size"), right.node.whole("comm_size")
                if sizes[0] != sizes[1]:
                    msg = (
                        f"{left.where} sends {sizes[0]} bytes, and {right.where} receives {sizes[1]}; "
                        "they must agree"
                    )
                    raise WorkloadError(msg)
                message = Message(
                    sources=(source,), destinations=(destination,), size_bytes=float(max(0, sizes[0]))
                )
                self._add([left, right], message, f"{source} to {destination}")


def _star(number: int, group: tuple[int, ...], size: int) -> Message:
    """Return a gather, to which each rank brings so many bytes, or a scatter of what the first has."""
    root, others = (group[0],) * (len(group) - 1), group[1:]
    if number == CommType.GATHER:
        return Message(sources=others, destinations=root, size_bytes=float(max(0, size)))
    return Message(sources=root, destinations=others, size_bytes=max(0, size) / len(group))


def _duration_s(node: Node) -> float:
    """Return the recorded duration: unrounded where it is known, else in whole microseconds; 0: none."""
    exact = node.get(DURATION, 0.0)
    if isinstance(exact, float) and math.isfinite(exact) and exact > 0.0:
        return exact
    return node.duration_us * _MICROSECOND_S
