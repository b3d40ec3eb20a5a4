"""Task graphs of TopoOpt's planner on our fabrics, against the time that its packet simulator gives them.

The graphs do not ship. ``heliograph validate network --data DIRECTORY`` names where they lie
(TopoOpt repository, ``simulation/scripts/fig16/fattree/tgs``), or a CSV whose column `task_graph` names each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from electronic.fabrics.packets import Wires
from experiments.validation.cells import Record, SkipError, check_provenance, read_records
from experiments.validation.fault_traces import SUFFIX, trace_record
from experiments.validation.outcomes import Outcome, skipped
from experiments.validation.traces import COLUMN as TRACE
from simulator.engine.fairshare import Connections, load_transport
from simulator.engine.replay import Clockwork, Replay
from simulator.errors import HeliographError
from simulator.fabric import Fabric
from simulator.rank_graph import RankGraph
from simulator.results.trace import Stream, Trace
from simulator.units import to_si
from workloads.traces.task_graph import rank_graph, read_task_graph

COLUMN = "task_graph"
"""Column that names the file of a row's task graph."""
REFERENCE = Path(__file__).parent / "reference" / "task_graphs.csv"
"""Times that the peer gives graphs which do not ship."""
TRANSPORT = "dctcp-flexnet"
"""Transport of the packet simulator, where a row's column `transport` names none."""
FAIR = "fair"
"""What a row names whose connections share links alike, however old they are."""
LINKS = ("switched", "direct")
"""How a row's nodes may be joined: through a switch that never blocks, or each pair by a link."""


def read_networks(path: Path, needs: Sequence[Sequence[str]]) -> list[Record]:
    """Return the rows of a CSV, or those of the peer's times if the path is a directory of task graphs.

    Parameters
    ----------
    path : pathlib.Path
        Either, or a trace of faults (JSON). Names of task graphs and of traces become paths: relative to the
        CSV, or within the directory.
    needs : sequence of sequences of str
        Columns without which a CSV is no table of networks; of each group one.

    Raises
    ------
    ParameterError
        As `read_records`.
    """
    if path.suffix == SUFFIX:
        return [trace_record(path)]
    folder = path if path.is_dir() else path.parent
    records = read_records(REFERENCE if path.is_dir() else path, needs=needs)
    for record in records:
        for column in (COLUMN, TRACE):
            if record.text(column):
                record.cells[column] = str(folder / record.text(column))
    return records


def task_graph_outcome(record: Record) -> Outcome:
    """Return what becomes of a row about a task graph.

    Raises
    ------
    ParameterError
        If the row holds a number that cannot be one.
    """
    path = Path(record.text(COLUMN))
    blank = Outcome(
        id=" ".join((path.name, record.text("config") or record.text("links"))),
        source=record.text("source") or "no source",
        unit="s",
        measured=None,
    )
    try:
        check_provenance(record)
        measured = to_si("time_s", record.number("value", strict=True) or 0.0, record.text("unit") or "ms")
        blank = dataclasses.replace(blank, measured=measured)
        if not path.is_file():
            msg = f"{path.name} is not there; it does not ship: put it beside the CSV, or name its directory"
            raise SkipError(msg)
        graph = rank_graph(read_task_graph(path))
        fabric = fabric_of(record, graph.ranks)
        connections = connections_of(record, fabric)
        trace = fair = replayed(graph, fabric)
        if connections is not None:
            trace = replayed(graph, fabric, connections)
    except HeliographError as error:
        return skipped(blank, record, error)
    weighed = "max-min fairly" if connections is None else "by the age of their connections' windows"
    record.assume(f"links shared {weighed}; tasks ready at once start in the order of the file")
    off = fair.makespan_s / measured - 1.0 if measured else 0.0
    hint = f"{off:+.1%} if all shared alike; {_where_time_goes(trace, graph)}"
    return dataclasses.replace(blank, predicted=trace.makespan_s, assumed=tuple(record.assumed), hint=hint)


def connections_of(record: Record, fabric: Wires) -> Connections | None:
    """Return how the connections of a row share links, or None if alike.

    Raises
    ------
    ParameterError
        If the transport is in no table.
    """
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
    """Return what happens when recorded work runs on a fabric, every task as long as it was recorded."""
    weigh = None if connections is None else connections.weight
    return Replay(graph, Clockwork(), fabric, weigh=weigh).run()


def _where_time_goes(trace: Trace, graph: RankGraph) -> str:
    busy = [
        sum(span.duration_s for span in trace.of(one, Stream.COMPUTE)) for one in range(len(graph.classes))
    ]
    return f"the busiest node computes for {max(busy) / trace.makespan_s:.0%} of it"


BITS_PER_BYTE = 8
"""Bits of a byte."""
