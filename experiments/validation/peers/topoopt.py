"""TopoOpt's task graphs and transport: our fabrics against the time that its packet simulator gives.

The graphs do not ship. ``heliograph validate network --data DIRECTORY`` names where they lie
(TopoOpt repository, ``simulation/scripts/fig16/fattree/tgs``), or a CSV whose column `task_graph` names each.

Connections share a link by their windows, and a young one takes more than an old one. A message that opens a
connection of its own begins with a full window and no memory of congestion. One that has lasted knows that
every packet was marked and halves its window each round trip. Until the young one has learnt the same, some
ten round trips through a full queue, the old one starves; a ring all-reduce that opens new connections in
every round is always young.

References
----------
Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010, equations (1) and (2); Alizadeh, Javanmard and
Prabhakar, "Analysis of DCTCP", SIGMETRICS 2011, equations (1) to (3): the fluid of windows and one queue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from electronic.fabrics.packets import Wires
from experiments.validation.network_failures import SUFFIX, trace_record
from experiments.validation.peers.astra_sim_traces import COLUMN as TRACE
from experiments.validation.rows import (
    REFERENCE,
    Outcome,
    Record,
    SkipError,
    check_provenance,
    judged,
    read_records,
)
from simulator.engine.replay import Clockwork, RankGraph, Replay
from simulator.errors import Checked, Positive, Share
from simulator.fabric import Fabric
from simulator.results import Stream, Trace
from simulator.tables import Shelf
from simulator.units import BITS_PER_BYTE, to_si
from workloads.traces.task_graph import rank_graph, read_task_graph

LEAST_PACKETS = 1.0
"""Window that no congestion closes; dimensionless."""
PHASES = 8
"""Points of a rival's life, equally far apart, at which a message begins."""


COLUMN = "task_graph"
"""Column that names the file of a row's task graph."""
SHIPPED = REFERENCE / "task_graphs.csv"
"""Times that the peer gives graphs which do not ship."""
TRANSPORT = "dctcp-flexnet"
"""Default transport of the packet simulator, for rows with an empty column `transport`."""
FAIR = "fair"
"""Transport of rows whose connections share links equally, whatever their age."""
LINKS = ("switched", "direct")
"""Kinds of wiring of a row: a switch that never blocks, or a link for each pair of nodes."""


@dataclass(frozen=True, kw_only=True)
class Transport(Checked):
    """A transport whose window follows the share of marked packets."""

    name: str = "dctcp"
    """Transport."""
    packet_bytes: Positive
    """A packet."""
    initial_packets: Positive
    """Window of a new connection, in packets; dimensionless."""
    mark_packets: float
    """Queue, in packets, beyond which a switch marks passing packets; dimensionless."""
    gain: Share
    """Weight of the newest round trip in the memory of marks, 0 to 1; dimensionless."""

    @property
    def initial_bytes(self) -> float:
        """Bytes that a new connection sends before it hears of any mark."""
        return self.initial_packets * self.packet_bytes


load_transport = Shelf(Transport, Path(__file__).parent / "parameters" / "transports.csv")
"""Transports, e.g. ``"dctcp-flexnet"``."""


@dataclass(kw_only=True)
class _Window:
    """State of a connection: window, moving average of the marked share, and bytes left to send."""

    left_bytes: float
    packets: float
    marked_share: float = 0.0
    sent_bytes: float = field(default=0.0, init=False)

    def part(self, packet_bytes: float) -> float:
        """Return the part of a window that is left to send, at most 1; dimensionless."""
        return min(1.0, self.left_bytes / (self.packets * packet_bytes))

    def send(self, packet_bytes: float, part: float) -> None:
        """Send part of a window, or what is left."""
        size_bytes = min(part * self.packets * packet_bytes, self.left_bytes)
        self.sent_bytes += size_bytes
        self.left_bytes -= size_bytes

    def hear(self, marked: float, gain: float) -> None:
        """Open or close the window after a round trip, by the share of packets that came back marked."""
        self.marked_share += gain * (marked - self.marked_share)
        cut = self.marked_share / 2.0 if marked else 0.0
        self.packets = max(self.packets * (1.0 - cut), LEAST_PACKETS) + 1.0


def share(
    transport: Transport,
    message_bytes: float,
    rival_bytes: float,
    *,
    rate_bytes_per_s: float,
    round_trip_s: float,
) -> float:
    """Return the rate of one message over that of rivals, each of which opens a connection when one ends.

    Parameters
    ----------
    transport : Transport
        Rule of the windows.
    message_bytes : float
        Bytes of the message that is followed, from its first to its last.
    rival_bytes : float
        Bytes of each rival.
    rate_bytes_per_s : float
        Rate of the link that both fill.
    round_trip_s : float
        Round trip without a queue.

    Notes
    -----
    A round trip lasts as long as the link needs for all windows, at least `round_trip_s`; what the windows
    hold beyond the link stands in its queue, and all packets of a round trip are marked if that is longer
    than `mark_packets`, else none (SIGMETRICS 2011, equation (3)). The window then is cut by half of the
    remembered share of marks, and grows by a packet (SIGCOMM 2010, equation (2)). The message begins at each
    of `PHASES` points of a rival's life.
    """
    in_flight = rate_bytes_per_s * round_trip_s / transport.packet_bytes
    sent = [
        _shared(transport, message_bytes, rival_bytes, in_flight, (turn + 1) / PHASES * rival_bytes)
        for turn in range(PHASES)
    ]
    return math.fsum(own for own, _ in sent) / math.fsum(rivals for _, rivals in sent)


def _shared(
    transport: Transport, message_bytes: float, rival_bytes: float, in_flight: float, left_bytes: float
) -> tuple[float, float]:
    """Return the bytes that a message and its rivals have sent when the message ends.

    The first rival has at least a window left.
    """
    left_bytes = max(left_bytes, transport.initial_bytes)
    own = _Window(left_bytes=message_bytes, packets=transport.initial_packets)
    rival = _Window(left_bytes=left_bytes, packets=transport.initial_packets)
    ended_bytes = 0.0
    while own.left_bytes > 0.0:
        queue = own.packets + rival.packets - in_flight
        marked = float(queue > transport.mark_packets)
        part = own.part(transport.packet_bytes)  # it may end within a round trip
        for connection in (own, rival):
            connection.send(transport.packet_bytes, part)
            connection.hear(marked, transport.gain)
        if rival.left_bytes <= 0.0:
            ended_bytes += rival.sent_bytes
            rival = _Window(left_bytes=rival_bytes, packets=transport.initial_packets)
    return own.sent_bytes, ended_bytes + rival.sent_bytes


@dataclass(frozen=True, kw_only=True)
class Connections(Checked):
    """Weights with which messages share a link, by the length of their connections."""

    transport: Transport
    """Rule of the windows."""
    rate_bytes_per_s: Positive
    """Rate of the links."""
    round_trip_s: float
    """Round trip without a queue."""

    def weight(self, message_bytes: float) -> float:
        """Return the weight of a message, less the longer it is; 1 if it fits the first window.

        Notes
        -----
        It is the `share` beside messages of one window, which are for ever young. Two weights over each other
        tell how two messages share a link: within a quarter of `share` between the two where the younger
        fills four windows, within a factor of two beyond.
        """
        return _weight(self, message_bytes)


@cache
def _weight(connections: Connections, message_bytes: float) -> float:
    newest_bytes = connections.transport.initial_bytes
    if message_bytes <= newest_bytes:
        return 1.0
    return share(
        connections.transport,
        message_bytes,
        newest_bytes,
        rate_bytes_per_s=connections.rate_bytes_per_s,
        round_trip_s=connections.round_trip_s,
    )


def read_networks(path: Path, needs: Sequence[Sequence[str]]) -> list[Record]:
    """Return the rows of a CSV; of a directory of task graphs, the rows of the times that ship (`SHIPPED`).

    Parameters
    ----------
    path : pathlib.Path
        Either, or a trace of faults (JSON). Names of task graphs and of traces become paths: relative to the
        CSV, or within the directory.
    needs : sequence of sequences of str
        Columns without which a CSV is no table of networks; of each group one.
    """
    if path.suffix == SUFFIX:
        return [trace_record(path)]
    folder = path if path.is_dir() else path.parent
    records = read_records(SHIPPED if path.is_dir() else path, needs=needs)
    for record in records:
        for column in (COLUMN, TRACE):
            if record.text(column):
                record.cells[column] = str(folder / record.text(column))
    return records


def task_graph_outcome(record: Record) -> Outcome:
    """Return the outcome of a row on a task graph."""
    path = Path(record.text(COLUMN))
    with judged(record, f"{path.name} {record.text('config') or record.text('links')}") as row:
        check_provenance(record)
        measured = to_si("time_s", record.number("value", strict=True) or 0.0, record.text("unit") or "ms")
        row.measured = measured
        if not path.is_file():
            msg = f"{path.name} is not there; it does not ship: put it beside the CSV, or name its directory"
            raise SkipError(msg)
        graph = rank_graph(read_task_graph(path))
        fabric = fabric_of(record, graph.ranks)
        connections = connections_of(record, fabric)
        trace = fair = replayed(graph, fabric)
        if connections is not None:
            trace = replayed(graph, fabric, connections)
        weighed = "max-min fairly" if connections is None else "by the age of their connections' windows"
        record.assume(f"links shared {weighed}; tasks ready at once start in the order of the file")
        off = fair.makespan_s / measured - 1.0 if measured else 0.0
        row.predicted = trace.makespan_s
        row.hint = f"{off:+.1%} if all shared alike; {_where_time_goes(trace, graph)}"
    return row


def connections_of(record: Record, fabric: Wires) -> Connections | None:
    """Return the rule by which the connections of a row share links; None if they share equally."""
    name = record.text("transport") or TRANSPORT
    if name == FAIR:
        return None
    return Connections(
        transport=load_transport(name),
        rate_bytes_per_s=fabric.link_bytes_per_s,
        round_trip_s=2.0 * fabric.latency_s,
    )


def fabric_of(record: Record, nodes: int) -> Wires:
    """Return the bare links that a row describes.

    Raises
    ------
    SkipError
        If it leaves them out.
    ParameterError
        If a number cannot be one.
    """
    links = record.text("links")
    if links not in LINKS:
        msg = f"links '{links}' are not modelled; known: {', '.join(LINKS)}"
        raise SkipError(msg)
    rate = record.number("link_gbps", strict=True)
    if rate is None:
        msg = "no link_gbps is given"
        raise SkipError(msg)
    return Wires(
        name=links,
        endpoints=nodes,
        link_bytes_per_s=to_si("link_bps", rate, "Gbit/s") / BITS_PER_BYTE,
        latency_s=to_si("latency_s", record.number("path_ns") or 0.0, "ns"),
        direct=links == "direct",
    )


def replayed(graph: RankGraph, fabric: Fabric, connections: Connections | None = None) -> Trace:
    """Return the trace of recorded work on a fabric, with every task as long as recorded."""
    weigh = None if connections is None else connections.weight
    return Replay(graph, Clockwork(), fabric, weigh=weigh).run()


def _where_time_goes(trace: Trace, graph: RankGraph) -> str:
    busy = [
        sum(span.duration_s for span in trace.of(one, Stream.COMPUTE)) for one in range(len(graph.classes))
    ]
    return f"the busiest node computes for {max(busy) / trace.makespan_s:.0%} of it"
