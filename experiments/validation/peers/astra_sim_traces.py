"""Tables of ASTRA-sim's collectives and Chakra traces, repeated by its rules, and beside physical bounds.

The first half reads rows about one collective (`experiments.validation.peers.astra_sim.Run`) and compares
their times with what latency and rate of the same links allow. The second half runs Chakra traces by
ASTRA-sim's rules: a rank runs at most one node on its host, one on its accelerator, and one collective or
send at a time; of the nodes that may start the one with the smallest number starts first; receives wait
beside them. Compute takes whole microseconds. Every message of a ring is followed, since ranks enter a
collective at different times.

References
----------
Source and runs of ASTRA-sim at commit 518bd513, workload and system layers.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from electronic.fabrics.packets import Wires
from experiments.validation.peers.astra_sim import (
    BYTES_PER_GB,
    MEMORY_GB_PER_S,
    NS_PER_S,
    Call,
    Clock,
    Delays,
    Dimension,
    Endpoint,
    Mail,
    Message,
    Method,
    Phase,
    RankClock,
    Ring,
    Run,
    Shape,
    chunked,
)
from experiments.validation.peers.astra_sim import Wires as SimulatedWires
from experiments.validation.rows import (
    REFERENCE,
    FileError,
    Outcome,
    Record,
    SkipError,
    check_provenance,
    judged,
    read_records,
    simplified,
)
from heliograph.report import ReportRow, table_text
from simulator.engine.replay import Clockwork, Replay
from simulator.errors import Checked, Count, Positive, WorkloadError
from simulator.operators import CollectiveKind
from simulator.topology.torus import regular
from simulator.units import to_si
from workloads.traces import CommType, Node, NodeType, import_trace, is_readable, read_trace
from workloads.traces.importing import process_groups, rank_files, recorded_groups

NEEDED_COLUMNS = ("collective", "size_bytes", "topology", "npus", "bw_GBps", "lat_ns", "algo", "endpoint_ns")
"""Columns that a row about a run must have."""
BACKENDS = ("unaware", "aware")
"""Analytical backends; the second queues messages that share links."""
MOST_MESSAGES = 8_000_000
"""Most messages times links of a run that is repeated: about a minute; a choice."""
Value = TypeVar("Value")
REPEATED = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
)
"""Collectives of ASTRA-sim."""


def wires_s(run: Run) -> float:
    """Return the time of the same phases if only latency and rate of the links count.

    Notes
    -----
    A gigabyte is 1e9 bytes, nothing waits at a rank, and chunks overlap. Dimensions are used one after
    another, though chunks in several dimensions at once can be faster.

    - Ring: each rank passes its part on in steps, in one direction.
    - Direct exchange: the shorter way in both directions of a ring (load n^2 / 8 of a link), all at once
      through a switch (n - 1 parts out of each port), or over a link to each rank.
    - Halving and doubling at distance d: d messages share a link of a ring, half as many at the far side,
      where both directions are equally long.
    - Two trees move twice the size through each port, in both directions at once (Sanders, Speck and Traeff
      2009, section 3).
    """
    return sum(_phase_s(phase, run.dimensions[phase.dimension].wires) for phase in run.phases(run.size_bytes))


def ports_bound_s(run: Run) -> float:
    """Return a lower bound of the time of any algorithm on these links.

    Notes
    -----
    A rank must pass 2 (n - 1) / n of the size in an all-reduce, (n - 1) / n in a reduce-scatter or an
    all-to-all and n - 1 sizes in an all-gather (Chan et al. 2007, table 1), over all of its links at once;
    and data of the farthest rank takes the latency of the links between.
    """
    ranks, size_bytes = run.ranks, float(run.size_bytes)
    least_bytes = {
        CollectiveKind.ALL_REDUCE: 2.0 * (ranks - 1) / ranks * size_bytes,
        CollectiveKind.ALL_GATHER: (ranks - 1) * size_bytes,
    }.get(run.kind, (ranks - 1) / ranks * size_bytes)
    wires = [one.wires for one in run.dimensions]
    rate = sum(_links(one) * _rate_bytes_per_s(one) for one in wires)
    farthest_s = sum(_latency_s(one) * one.hops(one.ranks // 2) for one in wires if one.ranks > 1)
    return max(least_bytes / rate, farthest_s)


def _links(wires: SimulatedWires) -> int:
    """Return the number of links out of a rank."""
    return {Shape.RING: 2, Shape.SWITCH: 1, Shape.FULLY_CONNECTED: wires.ranks - 1}[wires.shape]


def _rate_bytes_per_s(wires: SimulatedWires) -> float:
    return to_si("rate_bytes_per_s", wires.gigabytes_per_s, "GB/s")


def _latency_s(wires: SimulatedWires) -> float:
    return to_si("latency_s", wires.latency_ns, "ns")


def _phase_s(phase: Phase, wires: SimulatedWires) -> float:
    """Return the time of one phase; see `wires_s`."""
    gathers = phase.kind is CollectiveKind.ALL_GATHER
    part_bytes = phase.size_bytes / (1 if gathers else phase.ranks)
    stages = 2 if phase.kind is CollectiveKind.ALL_REDUCE else 1
    if phase.kind is CollectiveKind.ALL_TO_ALL or phase.method is Method.DIRECT:
        return stages * _direct_s(part_bytes, wires)
    if phase.method is Method.HALVING_DOUBLING:
        return stages * _halving_s(part_bytes, wires)
    if phase.method is Method.DOUBLE_TREE and wires.shape is not Shape.RING:
        levels = math.log2(phase.ranks)
        down_and_up_s = 2.0 * levels * wires.hops(1) * _latency_s(wires)
        return down_and_up_s + 2.0 * phase.size_bytes / _rate_bytes_per_s(wires)
    step_s = wires.hops(1) * _latency_s(wires) + part_bytes / _rate_bytes_per_s(wires)
    return stages * (phase.ranks - 1) * step_s


def _direct_s(part_bytes: float, wires: SimulatedWires) -> float:
    """Return the time in which all ranks send a part to each other."""
    rate, latency_s = _rate_bytes_per_s(wires), _latency_s(wires)
    if wires.shape is Shape.RING:
        ring = regular((wires.ranks,))
        return ring.diameter * latency_s + ring.time_s(part_bytes, rate)
    parts = wires.ranks - 1 if wires.shape is Shape.SWITCH else 1
    return wires.hops(1) * latency_s + parts * part_bytes / rate


def _halving_s(part_bytes: float, wires: SimulatedWires) -> float:
    """Return the time of halving, or of doubling."""
    rate, latency_s, ranks = _rate_bytes_per_s(wires), _latency_s(wires), wires.ranks
    total_s, distance = 0.0, 1
    while distance < ranks:
        shared = 1.0
        if wires.shape is Shape.RING:
            shared = max(1.0, distance / 2 if 2 * distance == ranks else distance)
        size_bytes = part_bytes * ranks / (2 * distance)
        total_s += wires.hops(distance) * latency_s + shared * size_bytes / rate
        distance *= 2
    return total_s


def physical_times(run: Run) -> dict[str, float | bool | str]:
    """Return kind and physical time of a run, its lower bound, and whether ASTRA-sim's time is below that."""
    bound_s = ports_bound_s(run)
    shapes = "-".join(one.wires.shape.value for one in run.dimensions)
    methods = "-".join(one.method.value for one in run.dimensions)
    backend = "aware" if run.queued else "unaware"
    return {
        "kind": f"{backend} {run.kind.value} {shapes} {methods}",
        "wires_s": wires_s(run),
        "ports_bound_s": bound_s,
        "simulator_beats_ports": run.simulated_s() < bound_s,
    }


def runs_record(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return ASTRA-sim's and the physical times of the runs among some outcomes, as plain data.

    Outcomes of other kinds have no ``wires_s`` beside them.
    """
    found = {
        one.id: {"run": one.id, "simulated_s": one.predicted, **one.extra}
        for one in outcomes
        if "wires_s" in one.extra and one.predicted is not None
    }
    return list(found.values())


def runs_text(found: Iterable[Mapping[str, Any]]) -> str:
    """Return `runs_record` as a table by kind of run; empty if there is no run."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for run in found:
        kinds.setdefault(run["kind"], []).append(run)
    rows = []
    for name, runs in sorted(kinds.items()):
        ratios = [run["simulated_s"] / run["wires_s"] for run in runs]
        early = sum(run["simulator_beats_ports"] for run in runs)
        cells = (f"{len(runs)}", f"{min(ratios):.3f}", f"{max(ratios):.3f}", f"{early}")
        rows.append(ReportRow(name, cells))
    if not rows:
        return ""
    title = "ASTRA-sim's times over what the same wires allow, and how many are sooner than ports can carry"
    columns = ("runs", "least", "most", "too soon")
    return table_text(title, columns, rows, dense=True)


def run_of(record: Record) -> Run:
    """Return the run that a row describes.

    Raises
    ------
    SkipError
        If a column is missing, or ASTRA-sim has no such run.
    ParameterError
        If a number cannot be one.
    """
    missing = [column for column in NEEDED_COLUMNS if not record.text(column)]
    if missing:
        msg = f"no {missing[0]} is given"
        raise SkipError(msg)
    kind = _choice(record, "collective", {one.value: one for one in REPEATED})
    queued = _choice(record, "backend", {name: name == BACKENDS[1] for name in BACKENDS}, default=BACKENDS[0])
    run = Run(
        kind=kind,
        size_bytes=record.needed("size_bytes"),
        dimensions=_dimensions(record),
        endpoint_ns=record.needed("endpoint_ns"),
        splits=record.whole("splits") or 1,
        at_once=record.whole("active") or 1,
        queued=queued,
        memory_gb_per_s=record.number("mem_GBps") or MEMORY_GB_PER_S,
    )
    _check(run)
    if not record.text("mem_GBps"):
        record.assume(f"memory reduces at {MEMORY_GB_PER_S:g} GB/s, as in ASTRA-sim's own examples")
    record.assume("ASTRA-sim's own rules")
    return run


def _choice(record: Record, column: str, values: dict[str, Value], *, default: str = "") -> Value:
    """Return the value that a cell names, regardless of case and punctuation."""
    text = record.text(column) or default
    plain = {simplified(name): value for name, value in values.items()}
    if simplified(text) not in plain:
        msg = f"{column} '{text[:40]}' is none that is repeated; known: {', '.join(values)}"
        raise SkipError(msg)
    return plain[simplified(text)]


def _dimensions(record: Record) -> tuple[Dimension, ...]:
    shapes = [_shape(text) for text in _parts(record, "topology")]
    columns = {column: _numbers(record, column) for column in ("npus", "bw_GBps", "lat_ns")}
    methods = [_method(text) for text in _parts(record, "algo")]
    counts = {column: len(found) for column, found in columns.items()} | {"algo": len(methods)}
    for column, count in counts.items():
        if count != len(shapes):
            msg = f"column '{column}' names {count} dimensions, topology {len(shapes)}"
            raise SkipError(msg)
    return tuple(
        Dimension(
            wires=SimulatedWires(
                shape=shape, ranks=_ranks(ranks), gigabytes_per_s=rate, latency_ns=latency_ns
            ),
            method=method,
            window=window,
        )
        for shape, ranks, rate, latency_ns, (method, window) in zip(
            shapes, columns["npus"], columns["bw_GBps"], columns["lat_ns"], methods, strict=True
        )
    )


def _parts(record: Record, column: str) -> list[str]:
    """Return the names of all dimensions; a name may itself be written with hyphens or spaces."""
    cell = record.text(column)
    if simplified(cell) in {simplified(one.value) for one in (*Shape, *Method)}:
        return [cell]
    return [part.strip() for part in re.split(r"[-_,;/ ]+", cell) if part.strip()]


def _numbers(record: Record, column: str) -> list[float]:
    """Return numbers of all dimensions, each checked as a cell of its own."""
    cell = record.text(column)
    parts = [cell] if re.match(r"\s*-", cell) else re.split(r"(?<![eE])-|[x_,;/ ]+", cell)
    values = []
    for part in (one for one in parts if one.strip()):
        value = Record(record.where, {column: part.strip()}).number(column)
        if value is None or (not value and column == "bw_GBps"):
            msg = f"{record.where}: column '{column}' is {cell}; it must be finite and positive"
            raise FileError(msg)
        values.append(value)
    return values


def _ranks(value: float) -> int:
    if value != int(value) or value < 1:
        msg = f"column 'npus' holds {value:g}, which is not a whole number of at least 1"
        raise SkipError(msg)
    return int(value)


def _shape(text: str) -> Shape:
    shapes = {simplified(one.value): one for one in Shape}
    if simplified(text) not in shapes:
        msg = f"topology '{text[:40]}' is none of ASTRA-sim's; known: {', '.join(one.value for one in Shape)}"
        raise SkipError(msg)
    return shapes[simplified(text)]


def _method(text: str) -> tuple[Method, int]:
    methods = {simplified(one.value): one for one in Method}
    found = re.fullmatch(r"([a-z]+)(\d*)", simplified(text))
    if not found or found[1] not in methods or (found[2] and methods[found[1]] is not Method.DIRECT):
        msg = f"algo '{text[:40]}' is none that is repeated; known: {', '.join(one.value for one in Method)}"
        raise SkipError(msg)
    return methods[found[1]], int(found[2] or 0)


def _check(run: Run) -> None:
    """Refuse runs that ASTRA-sim refuses or never ends, and those that are too long to repeat."""
    reasons = (
        (run.ranks < 2, "one rank has nobody to send to"),
        (run.queued and len(run.dimensions) > 1, "the congestion-aware backend knows one dimension only"),
        (run.size_bytes < run.splits, f"{run.size_bytes} bytes are fewer than {run.splits} splits"),
        (
            run.queued and any(d.wires.shape is Shape.RING and d.wires.ranks == 2 for d in run.dimensions),
            "the congestion-aware backend refuses a ring of two: it would connect them twice",
        ),
    )
    for refused, reason in reasons:
        if refused:
            raise SkipError(reason)
    for dimension in run.dimensions:
        ranks, method = dimension.wires.ranks, dimension.method
        if method in {Method.HALVING_DOUBLING, Method.DOUBLE_TREE} and ranks & (ranks - 1):
            msg = f"{method.value} pairs ranks by powers of two; {ranks} is none"
            raise SkipError(msg)
        if method is Method.HALVING_DOUBLING and run.kind is CollectiveKind.ALL_TO_ALL:
            msg = "ASTRA-sim aborts at an all-to-all by halving and doubling"
            raise SkipError(msg)
        if method is Method.DOUBLE_TREE and (
            run.kind is not CollectiveKind.ALL_REDUCE or len(run.dimensions) > 1
        ):
            msg = "double trees are repeated for all-reduces of one dimension only"
            raise SkipError(msg)
    if _events(run) > MOST_MESSAGES:
        msg = f"some {_events(run):.1g} messages over links are more than {MOST_MESSAGES} and not repeated"
        raise SkipError(msg)


def _events(run: Run) -> float:
    """Return the approximate number of messages times links that are followed."""
    total = 0.0
    for dimension in run.dimensions:
        ranks = dimension.wires.ranks
        links = ranks / 4 if run.queued and dimension.wires.shape is Shape.RING else 1
        each = {
            Method.RING: ranks * ranks / 2 if run.kind is CollectiveKind.ALL_TO_ALL else 2 * ranks,
            Method.DIRECT: 2 * ranks * links,
            Method.HALVING_DOUBLING: 2 * math.log2(ranks) if run.alike else 2 * ranks,
            Method.DOUBLE_TREE: 4,
        }[dimension.method]
        total += each * run.splits * (1 if run.alike else ranks)
    return total


NS_PER_US = 1000
"""Nanoseconds of a microsecond: the simulator counts the former, traces the latter."""
TAGS_PER_GROUP = 10**6
"""Range of message tags that ASTRA-sim reserves for each process group."""
RINGS = frozenset({CommType.ALL_REDUCE, CommType.ALL_GATHER, CommType.REDUCE_SCATTER, CommType.ALL_TO_ALL})
"""Collectives that run around a ring. A broadcast takes its recorded time; ASTRA-sim has no others."""


COLUMN = "trace"
"""Column that names the traces of a row: ``PREFIX.<rank>.et`` beside the CSV."""
MS_PER_S = 1000
"""Milliseconds of a second, the unit of the table."""


@dataclass(frozen=True, kw_only=True)
class Settings(Checked):
    """Network and system of a run of traces, as ASTRA-sim's files describe them."""

    topology: Shape
    """Topology of all ranks."""
    gigabytes_per_s: Positive
    """Rate of a link, in ASTRA-sim's gigabytes of 2^30 bytes."""
    latency_ns: float
    """Latency of a link."""
    endpoint_ns: int = 10
    """Delay of a pass over a rank's memory bus; ASTRA-sim charges 10 whatever its file says."""
    splits: Count = 1
    """Number of chunks of a collective, which run one after another."""
    memory_bytes_per_ns: Positive = 1600.0
    """Rate at which a rank sums."""
    one_at_a_time: bool = True
    """Whether a rank has one collective or send in progress, as in ASTRA-sim; else one for each group."""

    def wires(self, ranks: int) -> SimulatedWires:
        """Return the links of a number of ranks."""
        return SimulatedWires(
            shape=self.topology,
            ranks=ranks,
            gigabytes_per_s=self.gigabytes_per_s,
            latency_ns=self.latency_ns,
        )

    @property
    def endpoint(self) -> Endpoint:
        """Delays that a rank adds to each message."""
        return Endpoint(self.endpoint_ns, self.memory_bytes_per_ns)


def finishing_ns(prefix: Path, settings: Settings) -> tuple[int, ...]:
    """Return the time at which each rank of the traces ``PREFIX.<rank>.et`` ends, in whole nanoseconds.

    Parameters
    ----------
    prefix : pathlib.Path
        Beginning of the files' names, as `workloads.traces.import_trace` takes it.
    settings : Settings
        Network and system.

    Raises
    ------
    ParameterError
        If files are missing or cannot be read.
    WorkloadError
        If a file is damaged or holds nodes that ASTRA-sim does not run, or if ranks wait for each other for
        ever, which happens when two of them enter collectives of several groups in different orders.
    """
    nodes = [list(read_trace(path)) for path in rank_files(prefix)]
    known = process_groups(prefix, None, ranks=len(nodes))
    for node in (one for of_rank in nodes for one in of_rank if one.type is NodeType.METADATA):
        known = recorded_groups(node, ranks=len(nodes)) | known
    return _Simulator(nodes, known, settings).run()


class _Simulator:
    """Clock, network and ranks of one run."""

    def __init__(
        self, nodes: Sequence[Sequence[Node]], groups: Mapping[str, tuple[int, ...]], settings: Settings
    ) -> None:
        self.settings = settings
        self.groups = groups
        self.clock = Clock()
        self._mail = Mail(self.clock)
        self._network = Delays(self.clock, (settings.wires(len(nodes)),))
        self.ranks = [_Rank(self, rank, own) for rank, own in enumerate(nodes)]

    def run(self) -> tuple[int, ...]:
        """Run all ranks; return the time at which each ends."""
        for rank in self.ranks:
            rank.issue()
        self.clock.run()
        for rank in self.ranks:
            if rank.left:
                held = next(iter(rank.running.values()), None) or next(iter(rank.left.values()))
                msg = (
                    f"rank {rank.number} waits for ever at node {held.id} '{held.name}', with "
                    f"{len(rank.left)} nodes left; let all ranks enter collectives in one order"
                )
                raise WorkloadError(msg)
        return tuple(rank.end_ns for rank in self.ranks)

    def send(self, key: tuple[int, int, int, int], sent: Call | None = None) -> None:
        """Send a message with the key (tag, source, destination, bytes); `sent` is called when it arrives."""
        _, source, destination, size_bytes = key
        posted = self._mail.posted(*key)

        def arrived() -> None:
            if sent is not None:
                sent()
            posted()

        self._network.send(source, destination - source, 0, size_bytes, arrived)

    def receive(self, key: tuple[int, int, int, int], received: Call) -> None:
        """Receive the next message with a key; `received` is called when it arrives."""
        self._mail.wait(*key, received=received)


class _Rank:
    """One rank with the nodes of its trace.

    A node may start when all nodes that it depends on have ended. While it runs it occupies one of the rank's
    resources (`_resource`); a node whose resource is taken waits.
    """

    def __init__(self, simulator: _Simulator, number: int, nodes: Sequence[Node]) -> None:
        self.simulator = simulator
        self.number = number
        self.later = RankClock(simulator.clock).after
        self.left = {node.id: node for node in nodes}
        """Nodes that have not ended, by number."""
        self.running: dict[str, Node] = {}
        """Running node by resource."""
        self.end_ns = 0
        self._waits = {node.id: {*node.ctrl_deps, *node.data_deps} for node in nodes}
        self._followers: defaultdict[int, list[int]] = defaultdict(list)
        for node in nodes:
            for other in self._waits[node.id]:
                self._followers[other].append(node.id)
        self._ready = {node.id for node in nodes if not self._waits[node.id]}
        self._streams: defaultdict[int, int] = defaultdict(int)

    def issue(self) -> None:
        """Start the nodes that may start, the smallest number first."""
        for identifier in sorted(self._ready):
            node = self.left[identifier]
            resource = self._resource(node)
            if resource and resource in self.running:
                continue
            self._ready.discard(identifier)
            if resource:
                self.running[resource] = node
            self._begin(node)

    def _begin(self, node: Node) -> None:
        def done() -> None:
            self._done(node)

        duration_ns = node.duration_us * NS_PER_US or 1
        match node.type:
            case NodeType.COMP:
                self.later(duration_ns, done)
            case NodeType.COMM_SEND:
                key = (node.whole("comm_tag"), self.number, node.whole("comm_dst"), self._size(node))
                self.simulator.send(key, done)
            case NodeType.COMM_RECV:
                key = (node.whole("comm_tag"), node.whole("comm_src"), self.number, self._size(node))
                self.simulator.receive(key, done)
            case NodeType.COMM_COLL if node.whole("comm_type") == CommType.BROADCAST:
                self.later(duration_ns, done)
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
        self.end_ns = self.simulator.clock.now_ns
        del self.left[node.id]
        self.running.pop(self._resource(node), None)
        for other in self._followers[node.id]:
            self._waits[other].discard(node.id)
            if not self._waits[other]:
                self._ready.add(other)

    def _resource(self, node: Node) -> str:
        """Return the name of the resource that a node occupies while it runs; empty for receives."""
        if node.whole("is_cpu_op"):
            return "host"
        if node.type is NodeType.COMM_RECV:
            return ""
        if node.type not in {NodeType.COMM_SEND, NodeType.COMM_COLL}:
            return "accelerator" if node.type is NodeType.COMP else "network"
        return "network" if self.simulator.settings.one_at_a_time else f"network {_partner(node)}"

    def _size(self, node: Node) -> int:
        size = node.whole("comm_size")
        if size <= 0:
            self._refuse(node, f"of {size} bytes; its messages are one byte at least")
        return size

    def _refuse(self, node: Node, what: str) -> None:
        msg = f"rank {self.number}: byte {node.offset}: node {node.id} '{node.name}' is {what}"
        raise WorkloadError(msg)

    def _collective(self, node: Node, done: Call) -> None:
        """Split a collective into chunks, and run them one after another."""
        simulator, name = self.simulator, str(node.get("pg_name", ""))
        every = tuple(range(len(simulator.ranks)))
        members = every if name in {"", "0"} else simulator.groups.get(name, ())
        if self.number not in members:
            self._refuse(node, f"of group '{name}', which does not hold this rank; name a file of groups")
        group = 0 if name in {"", "0"} else int(name)
        kind = CollectiveKind[CommType(node.whole("comm_type")).name]
        size = self._size(node)
        streams, chunk = chunked(kind, size, simulator.settings.splits, len(every))
        if not streams or len(members) == 1:
            self._refuse(node, f"of {size} bytes among {len(members)}, which it cannot split")
        first = group * TAGS_PER_GROUP + self._streams[group]
        self._streams[group] += streams
        tags = iter(range(first, first + streams))
        phase = Phase(kind=kind, method=Method.RING, ranks=len(members), dimension=0, size_bytes=chunk)

        def following() -> None:
            tag = next(tags, None)
            if tag is None:
                done()
            else:
                _Stream(self, members, phase, tag, following)

        following()


class _Stream:
    """One chunk of a collective on one rank: its ring, and the port of the ring."""

    def __init__(self, rank: _Rank, members: tuple[int, ...], phase: Phase, tag: int, done: Call) -> None:
        place = members.index(rank.number)
        self._rank, self.finish = rank, done
        self._out = (tag, rank.number, members[(place + 1) % phase.ranks])
        self._in = (tag, members[place - 1], rank.number)
        self._ring = Ring(phase, self)
        self._ring.start()

    def pass_memory(self, size_bytes: int, *, summed: bool) -> None:
        endpoint = self._rank.simulator.settings.endpoint
        summed_ns = endpoint.summed_ns(size_bytes) if summed else 0
        self._rank.later(endpoint.delay_ns + summed_ns, self._ring.moved)

    def exchange(self, message: Message) -> None:
        self._rank.simulator.send((*self._out, message.size_bytes))
        self._rank.simulator.receive((*self._in, message.size_bytes), self._ring.received)


def _partner(node: Node) -> str:
    """Return the group of a collective, or the destination of a send."""
    return str(node.whole("comm_dst") if node.type is NodeType.COMM_SEND else node.get("pg_name", ""))


ALIKE = (Shape.SWITCH, Shape.FULLY_CONNECTED)
"""Topologies of which all paths have the same length."""


def trace_outcome(record: Record) -> Outcome:
    """Return the outcome of a row about ASTRA-sim's run of traces."""
    prefix = Path(record.text(COLUMN))
    about = (prefix.name, record.text("topology"), f"{record.text('bw_GBps')} GB/s", record.text("splits"))
    with judged(record, " ".join(about)) as row:
        check_provenance(record)
        settings = settings_of(record)
        row.measured = to_si("time_s", float(record.needed("cycles_ns")), "ns")
        row.predicted = max(finishing_ns(prefix, settings)) / NS_PER_S
        record.assume("ASTRA-sim's own rules; its memory reduces at 1600 bytes a nanosecond")
    return row


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
    if topology not in set(Shape) or record.text("algo") != "ring" or record.text("backend") != "unaware":
        run = f"algorithm '{record.text('algo')}' on '{topology}', backend '{record.text('backend')}'"
        known = ", ".join(Shape)
        msg = f"{run}: only ring algorithms on one {known} whose messages never meet are repeated"
        raise SkipError(msg)
    if (record.whole("active") or 1) > 1:
        msg = "chunks that overlap (active above 1) are not repeated"
        raise SkipError(msg)
    rate, latency_ns = record.number("bw_GBps", strict=True), record.number("lat_ns")
    if rate is None or latency_ns is None:
        msg = f"no {'bw_GBps' if rate is None else 'lat_ns'} is given"
        raise SkipError(msg)
    return Settings(
        topology=Shape(topology),
        gigabytes_per_s=rate,
        latency_ns=latency_ns,
        endpoint_ns=record.whole("endpoint_ns") or 0,
        splits=record.whole("splits") or 1,
    )


def wires_of(settings: Settings, ranks: int) -> Wires:
    """Return the same links as a fabric on which transfers share the rate.

    Raises
    ------
    SkipError
        If paths differ in length.
    """
    if settings.topology not in ALIKE:
        msg = f"a {settings.topology} has paths of several lengths; name one of {', '.join(ALIKE)}"
        raise SkipError(msg)
    return Wires(
        endpoints=ranks,
        link_bytes_per_s=settings.gigabytes_per_s * BYTES_PER_GB,
        latency_s=to_si("latency_s", settings.latency_ns * settings.wires(ranks).hops(1), "ns"),
        direct=settings.topology is Shape.FULLY_CONNECTED,
    )


def shared_s(prefix: Path, settings: Settings, ranks: int) -> float:
    """Return the time of our own replay on the same links, which all groups share at once."""
    return Replay(import_trace(prefix), Clockwork(), wires_of(settings, ranks)).run().makespan_s


def _shown() -> list[Record]:
    """Return the rows of the traces that ship; none if protobuf is missing to read them."""
    if not is_readable():
        return []
    rows = read_records(REFERENCE / "network.csv", needs=((COLUMN,),))
    shown = [record for record in rows if record.text(COLUMN) and record.text("topology") in ALIKE]
    for record in shown:
        record.cells[COLUMN] = str(REFERENCE / record.text(COLUMN))
    return shown


def traces_record() -> list[dict[str, Any]]:
    """Return ASTRA-sim's times of the traces that ship, and those without some rules, as plain data."""
    found = []
    for record in _shown():
        prefix, settings = Path(record.text(COLUMN)), settings_of(record)
        side_by_side = dataclasses.replace(settings, one_at_a_time=False)
        quick = dataclasses.replace(side_by_side, memory_bytes_per_ns=math.inf)
        found.append(
            {
                "trace": prefix.name,
                "topology": str(settings.topology),
                "gigabytes_per_s": settings.gigabytes_per_s,
                "splits": settings.splits,
                "simulated_s": max(finishing_ns(prefix, settings)) / NS_PER_S,
                "groups_beside_each_other_s": max(finishing_ns(prefix, side_by_side)) / NS_PER_S,
                "and_sums_at_once_s": max(finishing_ns(prefix, quick)) / NS_PER_S,
                "shared_wires_s": shared_s(prefix, settings, record.needed("npus")),
            }
        )
    return found


def traces_text(found: Iterable[Mapping[str, Any]]) -> str:
    """Return `traces_record` as a table; empty if there are no traces."""
    columns = ("simulated_s", "groups_beside_each_other_s", "and_sums_at_once_s", "shared_wires_s")
    rows = [
        ReportRow(
            "{trace} {topology} {gigabytes_per_s:g} GB/s / {splits}".format_map(one),
            tuple(f"{one[name] * MS_PER_S:.2f}" for name in columns),
        )
        for one in found
    ]
    if not rows:
        return ""
    title = "Steps as traces (ms): ASTRA-sim; its groups side by side; sums at once too; shared wires"
    return table_text(title, ("ASTRA-sim", "side by side", "sums at once", "our wires"), rows, dense=True)
