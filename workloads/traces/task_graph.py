"""Task graphs of TopoOpt's planner (FlexNet): compute with its durations, transfers and ring all-reduces.

References
----------
Wang et al., "TopoOpt", NSDI 2023; the field numbers are those of its published schema ``FlatBufTaskGraph``.
Its packet simulator runs these graphs as written here: a device does one task at a time, transfers between
nodes and all-reduces share the links, an all-reduce first waits for its own local reduction.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeVar

from simulator.collectives.algorithms import Algorithm
from simulator.engine.replay import Message, RankGraph, RankTask, Recorded, Together, Work
from simulator.errors import HeliographError, WorkloadError
from simulator.files import read_bytes
from simulator.operators import CollectiveKind, Phase
from simulator.units import to_si


class TaskType(IntEnum):
    """Type of a task; the schema's numbers."""

    FORWARD = 0
    BACKWARD = 1
    COMM = 2
    UPDATE = 3
    BARRIER = 4
    NOMINAL_COMM = 5
    ALLREDUCE = 6


class DeviceType(IntEnum):
    """Type of the device that runs a task, as far as graphs name it; the schema's numbers."""

    GPU = 0
    NETWORK = 13
    NOMINAL_NETWORK = 14


MOST_BYTES = 256 * 2**20
"""Largest file that is read; graphs of 128 nodes have some megabytes."""
EXTRA = "task graphs need the package flatbuffers; install it with pip install 'heliograph[task_graphs]'"
"""Sentence of an error where the package is missing."""
PHASES = {TaskType.FORWARD: Phase.FORWARD, TaskType.BACKWARD: Phase.GRAD_INPUT, TaskType.UPDATE: Phase.UPDATE}
"""Phase that compute is reported under."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedTask:
    """One task of a graph as the file has it."""

    type: TaskType
    """Type."""
    id: int
    """Number."""
    device: int
    """Number of the device that runs it."""
    run_time_s: float
    """Recorded duration; of an all-reduce the local work before its first byte is sent."""
    size_bytes: int
    """Bytes of a transfer, or of the vector that is summed."""
    following: tuple[int, ...]
    """Tasks that wait for it; of an all-reduce the nodes that take part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A device, which runs one task at a time."""

    type: DeviceType
    """Type."""
    id: int
    """Number."""
    node: int
    """Node of a GPU."""
    property: int
    """Of a network device: sender times all nodes and switches, plus receiver."""


@dataclass(frozen=True, kw_only=True)
class TaskGraph:
    """A whole file."""

    name: str
    """Name of the file."""
    nodes: int
    """Servers."""
    switches: int
    """Switches; nodes and switches are numbered together."""
    link_bytes_per_s: float
    """Rate of a node's network card that the planner assumed."""
    devices: tuple[Device, ...]
    """All devices."""
    tasks: tuple[RecordedTask, ...]
    """All tasks."""


def read_task_graph(path: Path) -> TaskGraph:
    """Return a task graph from a FlatBuffers file.

    Raises
    ------
    ParameterError
        If the file cannot be read.
    WorkloadError
        If it is truncated or damaged (with the byte), or holds what the schema does not know.
    HeliographError
        If the package flatbuffers is not installed.
    """
    data = read_bytes(path, most=MOST_BYTES)
    try:
        return _task_graph(path.name, data)
    except (struct.error, TypeError, ValueError) as error:
        msg = f"{path.name}: not a task graph: {error}; copy the file again"
        raise WorkloadError(msg) from None


class _Buffer:
    """Fields of the tables in a FlatBuffers file, by their numbers in the schema."""

    def __init__(self, data: bytes) -> None:
        try:
            import flatbuffers  # noqa: PLC0415
        except ImportError:
            raise HeliographError(EXTRA) from None
        self._data, self._table = data, flatbuffers.table.Table
        self.types = flatbuffers.number_types
        start = flatbuffers.encode.Get(self.types.UOffsetTFlags.packer_type, data, 0)
        self.root = self._table(data, start)

    def value(self, table: Any, field: int, kind: Any) -> Any:  # noqa: ANN401 - the library has no types
        """Return the value of a table's field, 0 if it is absent."""
        return table.GetSlot(self._slot(field), 0, kind)

    def vector(self, table: Any, field: int, element_bytes: int) -> range:  # noqa: ANN401
        """Return the bytes at which the elements of a table's vector begin."""
        offset = table.Offset(self._slot(field))
        start = table.Vector(offset) if offset else 0
        length = table.VectorLen(offset) if offset else 0
        return range(start, start + element_bytes * length, element_bytes)

    def tables(self, field: int) -> list[Any]:
        """Return the tables of a vector of the root."""
        starts = self.vector(self.root, field, self.types.UOffsetTFlags.bytewidth)
        return [self._table(self._data, self.root.Indirect(start)) for start in starts]

    @staticmethod
    def _slot(field: int) -> int:
        """Return the offset of a field in a table's list of fields, which begins with two lengths."""
        return 2 * (field + 2)


def _task_graph(name: str, data: bytes) -> TaskGraph:
    """Return the task graph in the bytes of a file; any fault of them is a `ValueError` or the library's."""
    buffer = _Buffer(data)
    value, types = buffer.value, buffer.types
    short, whole, real, long = types.Int16Flags, types.Uint32Flags, types.Float32Flags, types.Uint64Flags
    devices = tuple(
        Device(
            type=_type(DeviceType, table, value(table, 0, short)),
            id=value(table, 1, long),
            node=value(table, 2, long),
            property=value(table, 3, long),
        )
        for table in buffer.tables(9)
    )
    tasks = tuple(
        RecordedTask(
            type=_type(TaskType, table, value(table, 0, short)),
            id=value(table, 1, long),
            device=value(table, 2, long),
            run_time_s=to_si("run_time_s", value(table, 3, real), "ms"),
            size_bytes=value(table, 4, long),
            following=tuple(table.Get(long, start) for start in buffer.vector(table, 5, long.bytewidth)),
        )
        for table in buffer.tables(8)
    )
    nodes = value(buffer.root, 1, whole)
    if nodes > len(devices):
        msg = f"it says that it has {nodes} nodes, and lists {len(devices)} devices; each has one"
        raise ValueError(msg)
    return TaskGraph(
        name=name,
        nodes=nodes,
        switches=value(buffer.root, 2, whole),
        link_bytes_per_s=to_si("link_bytes_per_s", value(buffer.root, 5, real), "kB/s"),
        devices=devices,
        tasks=tasks,
    )


Kind = TypeVar("Kind", TaskType, DeviceType)


def _type(kinds: type[Kind], table: Any, value: int) -> Kind:  # noqa: ANN401
    """Return the member of a number; a `ValueError` for any other."""
    if value not in {int(one) for one in kinds}:
        msg = f"byte {table.Pos}: there is no {kinds.__name__} {value}"
        raise ValueError(msg)
    return kinds(value)


def rank_graph(graph: TaskGraph) -> RankGraph:
    """Return a task graph as work of ranks, one for each node.

    Raises
    ------
    WorkloadError
        If a task names a device or a task that the file lacks, or one of a kind that cannot do it.

    Notes
    -----
    The simulator's all-reduce of a vector that is smaller than a packet for each of its n nodes is a single
    round of 2 (n-1)/n of it; here every all-reduce takes its 2 (n-1) rounds. A transfer from a node to itself
    takes no time.
    """
    devices = {device.id: device for device in graph.devices}
    ids = {task.id: 2 * index + 1 for index, task in enumerate(graph.tasks)}  # an all-reduce takes two
    after: dict[int, list[int]] = {number: [] for number in ids.values()}
    for task in graph.tasks:
        for other in task.following if task.type is not TaskType.ALLREDUCE else ():
            if other not in ids:
                msg = f"{graph.name}: task {task.id} is followed by task {other}, which the file lacks"
                raise WorkloadError(msg)
            after[ids[other]].append(ids[task.id])
    tasks: list[RankTask] = []
    for task in graph.tasks:
        number = ids[task.id]
        if task.type is TaskType.ALLREDUCE:
            tasks += _all_reduce(task, number, tuple(after[number]))
        else:
            tasks.append(_single(graph, task, devices, number, tuple(after[number])))
    ranks = tuple((node,) for node in range(graph.nodes))
    return RankGraph(name=graph.name, tasks=tuple(tasks), classes=ranks)


def _recorded(name: str, phase: Phase, duration_s: float) -> Recorded:
    """Return work that takes a recorded time."""
    return Recorded(
        name=name,
        phase=phase,
        flops=0.0,
        read_bytes=0.0,
        written_bytes=0.0,
        duration_s=duration_s,
    )


def _all_reduce(task: RecordedTask, number: int, after: tuple[int, ...]) -> list[RankTask]:
    """Return an all-reduce, whose id is `number`, and the local work before it, which occupies no device."""
    local = _recorded("local reduction", Phase.GRAD_WEIGHT, task.run_time_s)
    members = tuple(int(node) for node in task.following)
    return [
        RankTask(
            id=number - 1,
            name="local reduction",
            classes=members[:1],
            operation=Work(operator=local, host=True),
            after=after,
        ),
        RankTask(
            id=number,
            name="all-reduce",
            classes=members,
            operation=Together(
                kind=CollectiveKind.ALL_REDUCE,
                groups=(members,),
                payload_bytes=float(task.size_bytes),
                algorithm=Algorithm.RING if len(members) > 1 else "",
            ),
            after=(number - 1,),
        ),
    ]


def _single(
    graph: TaskGraph, task: RecordedTask, devices: dict[int, Device], number: int, after: tuple[int, ...]
) -> RankTask:
    """Return compute of a device, or a transfer between nodes, as the task of an id."""
    device = devices.get(task.device)
    named = f"{graph.name}: task {task.id} ({task.type.name.lower()})"
    if device is None:
        msg = f"{named} is on device {task.device}, which the file lacks"
        raise WorkloadError(msg)
    sends = task.type in {TaskType.COMM, TaskType.NOMINAL_COMM}
    if sends == (device.type is DeviceType.GPU):
        msg = f"{named} is on a device of type {device.type.name.lower()}, which cannot do it"
        raise WorkloadError(msg)
    if not sends:
        name = task.type.name.lower()
        work = Work(operator=_recorded(name, PHASES.get(task.type, Phase.FORWARD), task.run_time_s))
        return RankTask(
            id=number,
            name=name,
            classes=(device.node,),
            operation=work,
            after=after,
            channel=f"device {device.id}",
        )
    source, destination = divmod(device.property, graph.nodes + graph.switches)
    return RankTask(
        id=number,
        name="transfer",
        classes=(source, destination),
        operation=Message(sources=(source,), destinations=(destination,), size_bytes=float(task.size_bytes)),
        after=after,
    )
