"""Chakra traces of all ranks by the rules of ASTRA-sim's congestion-unaware network, and on shared wires.

A rank runs one node on its host, one on its accelerator and one collective or send at a time, of those that
may start the one with the smallest number; receives wait beside them. Compute takes its whole microseconds.
Every message of a ring is followed, for ranks do not enter a collective together.

Found from ASTRA-sim's source and runs (commit 518bd513, workload and system layers); the rule of one
collective alone is `experiments.validation.peers.astra_sim.Run`.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from electronic.fabrics.packets import Wires
from experiments.validation.peers.astra_sim import BYTES_PER_GB, MEMORY_PASSES, NS_PER_S
from experiments.validation.rows import Outcome, Record, SkipError, check_provenance, read_records, skipped
from heliograph.report import ReportRow, table_text
from simulator.checks import check_positive, check_range
from simulator.engine.replay import Clockwork, Replay
from simulator.errors import HeliographError, WorkloadError
from simulator.units import to_si
from workloads.traces.chakra import CommType, Node, NodeType, import_trace, is_readable, read_trace
from workloads.traces.chakra.importing import process_groups, rank_files, recorded_groups

NS_PER_US = 1000
"""Nanoseconds of a microsecond; the simulator counts in the former, traces in the latter."""
TAGS_PER_GROUP = 10**6
"""Numbers of messages that it sets aside for each process group."""
RINGS = frozenset({CommType.ALL_REDUCE, CommType.ALL_GATHER, CommType.REDUCE_SCATTER, CommType.ALL_TO_ALL})
"""Collectives that go round a ring; a broadcast takes its recorded time, and it knows no others."""


COLUMN = "trace"
"""Column that names the traces of a row: ``PREFIX.<rank>.et`` beside the CSV."""
MS_PER_S = 1000
"""Tables show milliseconds."""


class Topology(StrEnum):
    """Networks of one dimension."""

    RING = "Ring"
    SWITCH = "Switch"
    FULLY_CONNECTED = "FullyConnected"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The network and the system, as that simulator's files describe them."""

    topology: Topology
    """What joins the ranks."""
    gigabytes_per_s: float
    """Rate of a link as written, in the simulator's gigabytes."""
    latency_ns: float
    """Latency of a link as written."""
    endpoint_ns: int = 10
    """Delay at an end of each message; what it charges whatever its file says."""
    splits: int = 1
    """Chunks of a collective, run one after another."""
    memory_bytes_per_ns: float = 1600.0
    """Rate at which it reduces."""
    one_at_a_time: bool = True
    """Whether a rank has one collective or send under way, as that simulator; otherwise one of each group."""

    def __post_init__(self) -> None:
        check_positive(self, "gigabytes_per_s", "splits", "memory_bytes_per_ns")
        check_range(self, "latency_ns", "endpoint_ns")

    def delay_ns(self, source: int, destination: int, size_bytes: int, ranks: int) -> int:
        """Return how long a message takes: it never meets another."""
        clockwise = (destination - source) % ranks
        hops = {
            Topology.RING: min(clockwise, ranks - clockwise),
            Topology.SWITCH: 2,
            Topology.FULLY_CONNECTED: 1,
        }[self.topology]
        rate = self.gigabytes_per_s * BYTES_PER_GB / NS_PER_S
        return math.floor(hops * self.latency_ns + size_bytes / rate)

    def reduction_ns(self, size_bytes: int) -> int:
        """Return how long a received message takes to be summed."""
        return MEMORY_PASSES * math.floor(size_bytes / self.memory_bytes_per_ns)


def finishing_ns(prefix: Path, settings: Settings) -> tuple[int, ...]:
    """Return when each rank of the traces ``PREFIX.<rank>.et`` is done, in whole nanoseconds.

    Parameters
    ----------
    prefix : pathlib.Path
        As `workloads.traces.chakra.import_trace`.
    settings : Settings
        The network and the system.

    Raises
    ------
    ParameterError
        If files are missing or cannot be read.
    WorkloadError
        If a file is damaged, or holds what that simulator does not run; if ranks wait for each other for
        ever, which happens when two enter collectives of several groups in different orders.
    """
    nodes = [list(read_trace(path)) for path in rank_files(prefix)]
    known = process_groups(prefix, None, ranks=len(nodes))
    for node in (one for of_rank in nodes for one in of_rank if one.type is NodeType.METADATA):
        known = recorded_groups(node, ranks=len(nodes)) | known
    return _Simulator(nodes, known, settings).run()


class _Simulator:
    """Clock, network and ranks."""

    def __init__(
        self, nodes: Sequence[Sequence[Node]], groups: Mapping[str, tuple[int, ...]], settings: Settings
    ) -> None:
        self.settings = settings
        self.groups = groups
        self.now_ns = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._batches: dict[tuple[int, int], list[Callable[[], None]]] = {}
        self._arrived: defaultdict[tuple[int, ...], list[int]] = defaultdict(lambda: [0, 0])
        self._awaited: defaultdict[tuple[int, ...], list[Callable[[], None]]] = defaultdict(list)
        self.ranks = [_Rank(self, rank, own) for rank, own in enumerate(nodes)]

    def run(self) -> tuple[int, ...]:
        """Return when each rank is done."""
        for rank in self.ranks:
            rank.issue()
        while self._events:
            self.now_ns, _, act = heapq.heappop(self._events)
            act()
        for rank in self.ranks:
            if rank.left:
                held = next(iter(rank.running.values()), None) or next(iter(rank.left.values()))
                msg = (
                    f"rank {rank.number} waits for ever at node {held.id} '{held.name}', with "
                    f"{len(rank.left)} nodes left; let all ranks enter collectives in one order"
                )
                raise WorkloadError(msg)
        return tuple(rank.end_ns for rank in self.ranks)

    def at(self, delay_ns: int, act: Callable[[], None]) -> None:
        """Let the network do something later."""
        heapq.heappush(self._events, (self.now_ns + delay_ns, next(self._count), act))

    def later(self, rank: int, delay_ns: int, act: Callable[[], None]) -> None:
        """Let a rank do something later; what it does at one time it does at once."""
        key = (rank, self.now_ns + delay_ns)
        if key in self._batches:
            self._batches[key].append(act)
            return
        self._batches[key] = [act]

        def together() -> None:
            for one in self._batches[key]:
                one()
            del self._batches[key]

        self.at(delay_ns, together)

    def send(self, key: tuple[int, int, int, int], sent: Callable[[], None] | None = None) -> None:
        """Move a message (tag, source, destination, bytes); tell when it is there."""
        _, source, destination, size_bytes = key
        delay_ns = self.settings.delay_ns(source, destination, size_bytes, len(self.ranks))

        def arrive() -> None:
            if sent is not None:
                sent()
            if self._awaited[key]:
                self._awaited[key].pop(0)()
            else:
                self._arrived[key][0] += 1

        self.at(delay_ns, arrive)

    def receive(self, key: tuple[int, int, int, int], received: Callable[[], None]) -> None:
        """Wait for a message."""
        if self._arrived[key][0]:
            self._arrived[key][0] -= 1
            self.at(0, received)
        else:
            self._awaited[key].append(received)


class _Rank:
    """One rank's nodes."""

    def __init__(self, simulator: _Simulator, number: int, nodes: Sequence[Node]) -> None:
        self.simulator = simulator
        self.number = number
        self.left = {node.id: node for node in nodes}
        self.running: dict[str, Node] = {}
        self.end_ns = 0
        self._waits = {node.id: {*node.ctrl_deps, *node.data_deps} for node in nodes}
        self._followers: defaultdict[int, list[int]] = defaultdict(list)
        for node in nodes:
            for other in self._waits[node.id]:
                self._followers[other].append(node.id)
        self._free = {node.id for node in nodes if not self._waits[node.id]}
        self._streams: defaultdict[int, int] = defaultdict(int)

    def issue(self) -> None:
        """Start what may start, the smallest number first."""
        for identifier in sorted(self._free):
            node = self.left[identifier]
            place = self._place(node)
            if place and place in self.running:
                continue
            self._free.discard(identifier)
            if place:
                self.running[place] = node
            self._begin(node)

    def _begin(self, node: Node) -> None:
        def done() -> None:
            self._done(node)

        duration_ns = node.duration_us * NS_PER_US or 1
        match node.type:
            case NodeType.COMP:
                self.simulator.later(self.number, duration_ns, done)
            case NodeType.COMM_SEND:
                key = (node.whole("comm_tag"), self.number, node.whole("comm_dst"), self._size(node))
                self.simulator.send(key, done)
            case NodeType.COMM_RECV:
                key = (node.whole("comm_tag"), node.whole("comm_src"), self.number, self._size(node))
                self.simulator.receive(key, done)
            case NodeType.COMM_COLL if node.whole("comm_type") == CommType.BROADCAST:
                self.simulator.later(self.number, duration_ns, done)
            case NodeType.COMM_COLL if node.whole("comm_type") in RINGS:
                self._collective(node, done)
            case NodeType.METADATA | NodeType.INVALID:
                self._end(node)
            case _:
                self._refuse(node, f"a {node.type.name.lower()} of this kind, which it does not run")

    def _done(self, node: Node) -> None:
        self._end(node)
        self.issue()

    def _end(self, node: Node) -> None:
        self.end_ns = self.simulator.now_ns
        del self.left[node.id]
        self.running.pop(self._place(node), None)
        for other in self._followers[node.id]:
            self._waits[other].discard(node.id)
            if not self._waits[other]:
                self._free.add(other)

    def _place(self, node: Node) -> str:
        """Return which of the rank's places a node takes while it runs; receives take none."""
        if node.whole("is_cpu_op"):
            return "host"
        if node.type is NodeType.COMM_RECV:
            return ""
        if node.type not in {NodeType.COMM_SEND, NodeType.COMM_COLL}:
            return "accelerator" if node.type is NodeType.COMP else "network"
        return "network" if self.simulator.settings.one_at_a_time else f"network {_others(node)}"

    def _size(self, node: Node) -> int:
        size = node.whole("comm_size")
        if size <= 0:
            self._refuse(node, f"of {size} bytes; its messages are one byte at least")
        return size

    def _refuse(self, node: Node, what: str) -> None:
        msg = f"rank {self.number}: byte {node.offset}: node {node.id} '{node.name}' is {what}"
        raise WorkloadError(msg)

    def _collective(self, node: Node, done: Callable[[], None]) -> None:
        """Split a collective into streams and run these one after another."""
        simulator, name = self.simulator, str(node.get("pg_name", ""))
        every = tuple(range(len(simulator.ranks)))
        members = every if name in {"", "0"} else simulator.groups.get(name, ())
        if self.number not in members:
            self._refuse(node, f"of group '{name}', which does not hold this rank; name a file of groups")
        group = 0 if name in {"", "0"} else int(name)
        kind, size, splits = node.whole("comm_type"), self._size(node), simulator.settings.splits
        chunk = size // splits
        if kind != CommType.ALL_GATHER and chunk < len(every):
            chunk, size = len(every), len(every) * splits
        streams = math.ceil(size / chunk) if chunk else 0
        if not streams or len(members) == 1:
            self._refuse(node, f"of {size} bytes among {len(members)}, which it cannot split")
        first = group * TAGS_PER_GROUP + self._streams[group]
        self._streams[group] += streams
        tags = iter(range(first, first + streams))

        def following() -> None:
            tag = next(tags, None)
            if tag is None:
                done()
            else:
                _Ring(self, members, CommType(kind), (tag, chunk), following).start()

        following()


class _Ring:
    """One stream of a collective on one rank: messages to the next, each after one from the rank before."""

    def __init__(
        self,
        rank: _Rank,
        members: tuple[int, ...],
        kind: CommType,
        chunk: tuple[int, int],
        done: Callable[[], None],
    ) -> None:
        size, place = len(members), members.index(rank.number)
        tag, chunk_bytes = chunk
        self._rank, self._done = rank, done
        message = chunk_bytes if kind is CommType.ALL_GATHER else chunk_bytes // size
        self._sends = {CommType.ALL_REDUCE: 2 * (size - 1), CommType.ALL_TO_ALL: size * (size - 1) // 2}.get(
            kind, size - 1
        )
        self._sums = size - 1 if kind in {CommType.ALL_REDUCE, CommType.REDUCE_SCATTER} else 0
        self._out = (tag, rank.number, members[(place + 1) % size], message)
        self._in = (tag, members[place - 1], rank.number, message)

    def start(self) -> None:
        """Begin with what the rank itself has."""
        self._after(self._rank.simulator.settings.endpoint_ns)

    def _after(self, delay_ns: int) -> None:
        self._rank.simulator.later(self._rank.number, delay_ns, self._pass_on)

    def _pass_on(self) -> None:
        if not self._sends:
            self._done()
            return
        self._sends -= 1
        self._rank.simulator.send(self._out)
        self._rank.simulator.receive(self._in, self._received)

    def _received(self) -> None:
        settings = self._rank.simulator.settings
        delay_ns = settings.endpoint_ns
        if self._sums:
            self._sums -= 1
            delay_ns += settings.reduction_ns(self._in[-1])
        self._after(delay_ns)


def _others(node: Node) -> str:
    """Return whom a collective or a send is with."""
    return str(node.whole("comm_dst") if node.type is NodeType.COMM_SEND else node.get("pg_name", ""))


HOPS = {Topology.SWITCH: 2, Topology.FULLY_CONNECTED: 1}
"""Links of a path where all paths are alike."""


def trace_outcome(record: Record) -> Outcome:
    """Return what becomes of a row about a simulator's run of traces."""
    prefix = Path(record.text(COLUMN))
    about = (prefix.name, record.text("topology"), f"{record.text('bw_GBps')} GB/s", record.text("splits"))
    source = record.text("source") or "no source"
    blank = Outcome(id=" ".join(about), source=source, unit="s", measured=None)
    try:
        check_provenance(record)
        settings = settings_of(record)
        measured_s = to_si("time_s", float(record.needed("cycles_ns")), "ns")
        blank = dataclasses.replace(blank, measured=measured_s)
        found_s = max(finishing_ns(prefix, settings)) / NS_PER_S
    except HeliographError as error:
        return skipped(blank, record, error)
    record.assume("ASTRA-sim's own rules; its memory reduces at 1600 bytes a nanosecond")
    return dataclasses.replace(blank, predicted=found_s, assumed=tuple(record.assumed))


def settings_of(record: Record) -> Settings:
    """Return the network and system that a row describes.

    Raises
    ------
    SkipError
        If it is none that is repeated, or a number is missing.
    ParameterError
        If a number cannot be one.
    """
    topology = record.text("topology")
    if topology not in set(Topology) or record.text("algo") != "ring" or record.text("backend") != "unaware":
        what = f"algorithm '{record.text('algo')}' on '{topology}', backend '{record.text('backend')}'"
        known = ", ".join(Topology)
        msg = f"{what}: only ring algorithms on one {known} whose messages never meet are repeated"
        raise SkipError(msg)
    if (record.whole("active") or 1) > 1:
        msg = "chunks that overlap (active above 1) are not repeated"
        raise SkipError(msg)
    rate, latency_ns = record.number("bw_GBps", strict=True), record.number("lat_ns")
    if rate is None or latency_ns is None:
        msg = f"no {'bw_GBps' if rate is None else 'lat_ns'} is given"
        raise SkipError(msg)
    return Settings(
        topology=Topology(topology),
        gigabytes_per_s=rate,
        latency_ns=latency_ns,
        endpoint_ns=record.whole("endpoint_ns") or 0,
        splits=record.whole("splits") or 1,
    )


def wires_of(settings: Settings, ranks: int) -> Wires:
    """Return the links of a switch or of all pairs, at the same rate; transfers share them.

    Raises
    ------
    SkipError
        If paths differ in length.
    """
    if settings.topology not in HOPS:
        msg = f"a {settings.topology} has paths of several lengths; name one of {', '.join(HOPS)}"
        raise SkipError(msg)
    return Wires(
        endpoints=ranks,
        link_bytes_per_s=settings.gigabytes_per_s * BYTES_PER_GB,
        latency_s=to_si("latency_s", settings.latency_ns * HOPS[settings.topology], "ns"),
        direct=settings.topology is Topology.FULLY_CONNECTED,
    )


def shared_s(prefix: Path, settings: Settings, ranks: int) -> float:
    """Return the time of our replay on the same wires, where groups move side by side and share links."""
    return Replay(import_trace(prefix), Clockwork(), wires_of(settings, ranks)).run().makespan_s


def _shown() -> list[Record]:
    """Return the rows of traces that ship, or none where their format cannot be read (their rows say why)."""
    if not is_readable():
        return []
    table = Path(__file__).parents[1] / "reference" / "network.csv"
    rows = read_records(table, needs=((COLUMN,),))
    shown = [record for record in rows if record.text(COLUMN) and record.text("topology") in HOPS]
    for record in shown:
        record.cells[COLUMN] = str(table.parent / record.text(COLUMN))
    return shown


def traces_record() -> list[dict[str, Any]]:
    """Return, of the traces that ship, the simulator's time and what its rules cost as plain data."""
    found = []
    for record in _shown():
        prefix, settings = Path(record.text(COLUMN)), settings_of(record)
        beside = dataclasses.replace(settings, one_at_a_time=False)
        quick = dataclasses.replace(beside, memory_bytes_per_ns=math.inf)
        found.append(
            {
                "trace": prefix.name,
                "topology": str(settings.topology),
                "gigabytes_per_s": settings.gigabytes_per_s,
                "splits": settings.splits,
                "simulated_s": max(finishing_ns(prefix, settings)) / NS_PER_S,
                "groups_beside_each_other_s": max(finishing_ns(prefix, beside)) / NS_PER_S,
                "and_sums_at_once_s": max(finishing_ns(prefix, quick)) / NS_PER_S,
                "shared_wires_s": shared_s(prefix, settings, record.needed("npus")),
            }
        )
    return found


def traces_text() -> str:
    """Return the same as a table, or nothing where there are none."""
    columns = ("simulated_s", "groups_beside_each_other_s", "and_sums_at_once_s", "shared_wires_s")
    rows = [
        ReportRow(
            "{trace} {topology} {gigabytes_per_s:g} GB/s / {splits}".format_map(one),
            tuple(f"{one[name] * MS_PER_S:.2f}" for name in columns),
        )
        for one in traces_record()
    ]
    if not rows:
        return ""
    title = "Steps as traces (ms): ASTRA-sim; its groups side by side; sums at once too; shared wires"
    return table_text(title, ("ASTRA-sim", "side by side", "sums at once", "our wires"), rows, dense=True)
