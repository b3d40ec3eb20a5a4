"""Traffic from files on any fabric: a list of flows, a traffic matrix, an algorithm, or a Chakra trace."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.hardware import SYSTEM, Hardware, warn_if_idle, write_timeline
from experiments.network.circuits import read_demand
from experiments.study import Block, Progress, Result, Row, Study, option, refuse_unused
from heliograph.report import format_si, value_table
from heliograph.systems import System
from simulator.collectives.msccl import ChunkFlows, read_algorithm
from simulator.engine.flow_simulation import FlowSet, FlowTimes, simulate
from simulator.engine.replay import RankGraph, Replay, Together, as_recorded
from simulator.errors import ParameterError, check_positive, check_range, check_whole
from simulator.fabric import Fabric, Loads, route_loads
from simulator.files import read_text
from simulator.interfaces import Circuits, Flows, LinkGraph
from simulator.results import BUBBLE, DARK, EXPOSED, HOST, Trace, energy_by_component_j, time_of_class_s
from simulator.topology.graphs import NO_LINK
from workloads.traces import Compute, import_trace

ENDS = ("source", "destination", "bytes")
"""Required columns of a list of flows."""
MORE = ("start_s", "after")
"""Optional columns: earliest start, and the number (from 0) of the flow that must have arrived before."""
MOST_FLOWS = 50_000
"""Most flows of a file."""
INTERVALS = 20
"""Default number of intervals of the time line."""
MOST_INTERVALS = 100_000
"""Most intervals of the time line."""
ALGORITHM = ".xml"
"""Suffix of an MSCCL algorithm, a file that does not give the bytes of its flows."""
NODE = 8
"""Number of which a system's accelerators are a multiple unless the user gives theirs."""
AXIS = "flows"
"""Axis under which the flows are known to a fabric."""
SIZE_BYTES = 1e9
"""Default bytes of an algorithm's collective."""
_WIDE = 1e6
"""Capacity of a virtual link, which has a path's latency, over that of all real links together."""


@dataclass(frozen=True, kw_only=True)
class FlowList:
    """Flows of a file; arrays of shape [F] with one element per flow."""

    sources: np.ndarray
    """Sending endpoint, shape [F]."""
    destinations: np.ndarray
    """Receiving endpoint, shape [F]."""
    size_bytes: np.ndarray
    """Size, shape [F]."""
    start_s: np.ndarray
    """Earliest start, shape [F]."""
    after: np.ndarray
    """Dependencies as pairs of flows (first, second): the second waits for the first, shape [E, 2]."""


def read_flows(path: Path, size_bytes: float = SIZE_BYTES) -> FlowList:
    """Return the flows of a file: CSV, a list with a header or a square matrix of bytes; or MSCCL's XML.

    Parameters
    ----------
    path : pathlib.Path
        Columns ``source,destination,bytes`` and, if wanted, ``start_s`` and ``after``; or bytes from each
        endpoint (row) to each other (column), as `experiments.network.circuits.read_demand` reads them; or
        an algorithm, as `simulator.collectives.msccl.read_algorithm` reads and checks it.
    size_bytes : float
        Bytes of an algorithm's collective, as nccl-tests counts them: the whole vector.
    """
    if path.suffix == ALGORITHM:
        return _flows_of_algorithm(read_algorithm(path), size_bytes)
    rows = [row for row in csv.reader(read_text(path).splitlines()) if any(row)]
    header = [cell.strip() for cell in rows[0]] if rows else []
    if not set(ENDS) & set(header):
        return _flows_of_matrix(read_demand(path))
    unknown = [name for name in header if name not in (*ENDS, *MORE)]
    lacking = [name for name in ENDS if name not in header]
    if unknown or lacking:
        fault = f"column '{unknown[0]}' is unknown" if unknown else f"lacks column '{lacking[0]}'"
        msg = f"{path.name}:1: {fault}; columns are {', '.join(ENDS)} and, if wanted, {', '.join(MORE)}"
        raise ParameterError(msg)
    if not 1 < len(rows) <= MOST_FLOWS + 1:
        msg = f"{path.name}: holds {len(rows) - 1} flows; a list has 1 to {MOST_FLOWS}"
        raise ParameterError(msg)
    cells = [_cells(f"{path.name}:{line}", header, row) for line, row in enumerate(rows[1:], start=2)]
    after = [(int(one["after"]), flow) for flow, one in enumerate(cells) if not math.isnan(one["after"])]
    late = [pair for pair in after if not 0 <= pair[0] < len(cells) or pair[0] == pair[1]]
    if late:
        first, flow = late[0]
        msg = f"{path.name}:{flow + 2}: after ({first}) must number another flow, 0 to {len(cells) - 1}"
        raise ParameterError(msg)
    return FlowList(
        sources=np.array([int(one["source"]) for one in cells]),
        destinations=np.array([int(one["destination"]) for one in cells]),
        size_bytes=np.array([one["bytes"] for one in cells]),
        start_s=np.array([one["start_s"] for one in cells]),
        after=np.array(after, dtype=np.int64).reshape(-1, 2),
    )


def _cells(where: str, header: list[str], row: list[str]) -> dict[str, float]:
    """Return the checked numbers of a line by column; ``after`` is not a number where it is empty."""
    if len(row) != len(header):
        msg = f"{where}: has {len(row)} cells, and the header {len(header)}"
        raise ParameterError(msg)
    cells = {"start_s": 0.0, "after": math.nan}
    for name, cell in zip(header, row, strict=True):
        if not cell.strip() and name in MORE:
            continue
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        whole = name not in ("bytes", "start_s")
        if not math.isfinite(value) or value < 0.0 or (whole and value != int(value)):
            rule = "a whole number of at least 0" if whole else "finite and at least 0"
            msg = f"{where}: {name} is '{cell.strip()[:40]}'; it must be {rule}"
            raise ParameterError(msg)
        cells[name] = value
    return cells


def _flows_of_matrix(demand: np.ndarray) -> FlowList:
    sources, destinations = np.nonzero(demand)
    return FlowList(
        sources=sources,
        destinations=destinations,
        size_bytes=demand[sources, destinations],
        start_s=np.zeros(sources.size),
        after=np.empty((0, 2), dtype=np.int64),
    )


def _flows_of_algorithm(algorithm: ChunkFlows, size_bytes: float) -> FlowList:
    return FlowList(
        sources=algorithm.sources,
        destinations=algorithm.destinations,
        size_bytes=algorithm.shares * size_bytes,
        start_s=np.zeros(algorithm.shares.size),
        after=algorithm.after,
    )


def circuits_for(fabric: Fabric, flows: FlowList) -> Circuits:
    """Return circuits that are laid out for all flows together and never move."""
    by_size = []
    for size in np.unique(flows.size_bytes):
        same = flows.size_bytes == size
        by_size.append(_as_flows(flows.sources[same], flows.destinations[same], float(size)))
    circuits = fabric.initial(tuple(by_size))
    together = _as_flows(flows.sources, flows.destinations, 1.0)
    if not fabric.connected(circuits, together):
        circuits, _ = fabric.configure(circuits, together, tuple(by_size))
    return circuits


def _as_flows(sources: np.ndarray, destinations: np.ndarray, size_bytes: float) -> Flows:
    return Flows(sources=sources, destinations=destinations, size_bytes=size_bytes, axis=AXIS)


class RoutedFlows(NamedTuple):
    """Flows with their links, ready to be simulated."""

    flows: FlowSet
    graph: LinkGraph
    """Links of the fabric; behind them one virtual link for each latency, where flows are split."""


def routings(fabric: Fabric, circuits: Circuits, flows: FlowList) -> list[RoutedFlows]:
    """Return the possible routings of flows on a fabric, of which the fastest is taken.

    Notes
    -----
    If every flow has one path, there is one routing. A fabric may instead split a flow over several paths, as
    sprayed packets do; flows then load fractions of many links. If the split depends on the other flows under
    way, there are two routings: as if all flows ran together, and as if only those that start together did.
    """
    graph = fabric.graph(circuits)
    largest = float(flows.size_bytes.max(initial=0.0))
    together = _as_flows(flows.sources, flows.destinations, largest)
    if largest > 0.0:
        together = replace(together, weights=flows.size_bytes / largest)
    routes = fabric.route(circuits, together)
    single_paths = route_loads(routes, graph.latency_s, together.weights)
    paths_by_size = fabric.traits.routes_by_size and float(flows.size_bytes.min(initial=largest)) < largest
    if not paths_by_size and _same_loads(fabric.loads(circuits, together), single_paths):
        routed = FlowSet(routes=routes, size_bytes=flows.size_bytes, start_s=flows.start_s, after=flows.after)
        return [RoutedFlows(routed, graph)]
    found = [_split_flows(fabric.loads_apart(circuits, together), flows, graph)]
    rounds = _rounds(flows)
    if fabric.traits.routes_by_company and rounds.any():
        order = np.argsort(rounds, kind="stable")
        loads = [
            fabric.loads_apart(circuits, together.part(rounds == number))
            for number in range(rounds.max() + 1)
        ]
        by_flow = dict(zip(order.tolist(), chain.from_iterable(loads), strict=True))
        found.append(_split_flows([by_flow[flow] for flow in range(rounds.size)], flows, graph))
    return found


def _rounds(flows: FlowList) -> np.ndarray:
    """Return the number of each flow's round, shape [F].

    Flows of a round have the same earliest start and the same depth: the length of the longest chain of flows
    that each waits for. Depths are found in topological order (Kahn's algorithm).
    """
    depth = np.zeros(flows.size_bytes.size, dtype=np.int64)
    open_dependencies = np.bincount(flows.after[:, 1], minlength=depth.size)
    followers = defaultdict(list)
    for first, second in flows.after.tolist():
        followers[first].append(second)
    ready = np.flatnonzero(open_dependencies == 0).tolist()
    for flow in ready:  # grows while it is walked through
        for later in followers[flow]:
            depth[later] = max(depth[later], depth[flow] + 1)
            open_dependencies[later] -= 1
            if not open_dependencies[later]:
                ready.append(later)
    return np.asarray(np.unique(np.stack([flows.start_s, depth]), axis=1, return_inverse=True)[1])


def _split_flows(loads: list[Loads], flows: FlowList, graph: LinkGraph) -> RoutedFlows:
    """Return flows that load fractions of many links.

    Parameters
    ----------
    loads : list of Loads
        Links of each flow, with the fraction of its rate on each and the latency of its paths.
    flows : FlowList
        The flows.
    graph : LinkGraph
        Links of the fabric.

    Notes
    -----
    The simulator takes a flow's latency from its links, of which a split flow has many. So all latencies of
    real links are set to zero, and each flow crosses one virtual link more, which has its latency and a
    capacity that never limits.
    """
    latencies, index = np.unique([load.latency_s for load in loads], return_inverse=True)
    links, hops = graph.capacity_bytes_per_s.size, 1 + max(load.links.size for load in loads)
    routes = np.full((len(loads), hops), NO_LINK, dtype=np.int64)
    usage = np.zeros(routes.shape)
    for flow, load in enumerate(loads):
        routes[flow, : load.links.size], usage[flow, : load.links.size] = load.links, load.usage
        routes[flow, hops - 1], usage[flow, hops - 1] = links + index[flow], 1.0
    wide = np.full(latencies.size, float(graph.capacity_bytes_per_s.sum()) * _WIDE)
    with_latencies = LinkGraph(
        capacity_bytes_per_s=np.concatenate([graph.capacity_bytes_per_s, wide]),
        latency_s=np.concatenate([np.zeros(links), latencies]),
    )
    split = FlowSet(
        routes=routes, usage=usage, size_bytes=flows.size_bytes, start_s=flows.start_s, after=flows.after
    )
    return RoutedFlows(split, with_latencies)


def _same_loads(one: Loads, other: Loads) -> bool:
    same = one.links.size == other.links.size and bool((one.links == other.links).all())
    return same and bool(np.allclose(one.usage, other.usage, rtol=1e-12))


def loads_over_time(flows: FlowSet, graph: LinkGraph, makespan_s: float, intervals: int) -> np.ndarray:
    """Return the bytes of each link in equal intervals of the time, shape [L, intervals].

    Parameters
    ----------
    flows, graph : FlowSet, LinkGraph
        Flows and links; the flows are simulated once more.
    makespan_s : float
        Time from the start to the last arrival.
    intervals : int
        Number of intervals.
    """
    edges = np.linspace(0.0, makespan_s, intervals + 1)
    carried = np.zeros((graph.capacity_bytes_per_s.size, intervals))
    crossed = flows.routes >= 0
    usage = np.ones(flows.routes.shape) if flows.usage is None else flows.usage
    last: list[tuple[float, np.ndarray]] = []  # time and link rates of the last change, at most one

    def on_rates(now_s: float, rates: np.ndarray) -> None:
        """Add the bytes since the last change of rates, and keep the new ones."""
        if last:
            start_s, link_rates = last.pop()
            overlap_s = np.clip(np.minimum(edges[1:], now_s) - np.maximum(edges[:-1], start_s), 0.0, None)
            touched = np.flatnonzero(overlap_s)
            carried[:, touched] += link_rates[:, None] * overlap_s[touched]
        weight = (usage * np.where(np.isfinite(rates), rates, 0.0)[:, None])[crossed]
        last.append((now_s, np.bincount(flows.routes[crossed], weight, carried.shape[0])))

    simulate(flows, graph, watch=on_rates)
    return carried


@dataclass(frozen=True, kw_only=True)
class FlowResult(Result):
    """Times of flows on a fabric, and the bytes of links over time."""

    name: str
    """Stem of the file's name."""
    fabric: Fabric
    """Fabric that carried them."""
    flows: FlowList
    """The flows."""
    times: FlowTimes
    """Start and arrival of each flow."""
    graph: LinkGraph
    """Links of the fabric."""
    carried_bytes: np.ndarray
    """Bytes of each link in each interval, shape [L, intervals]."""
    ends: tuple[np.ndarray, np.ndarray] | None
    """Tail and head vertex of each link, shape [L] each; None if the fabric does not name its links."""

    def rows(self) -> list[Row]:
        """Return a row for each flow."""
        flows, times = self.flows, self.times
        return [
            {
                "flow": flow,
                "source": int(flows.sources[flow]),
                "destination": int(flows.destinations[flow]),
                "bytes": float(flows.size_bytes[flow]),
                "start_s": float(times.start_s[flow]),
                "finish_s": float(times.finish_s[flow]),
            }
            for flow in range(flows.size_bytes.size)
        ]

    def tables(self) -> Mapping[str, list[Row]]:
        """Return the flows, and bytes by link and interval."""
        return {"": self.rows(), "links": self.link_rows()}

    def link_rows(self) -> list[Row]:
        """Return a row for each interval of each link that carries anything."""
        step_s = self.times.makespan_s / self.carried_bytes.shape[1]
        capacity = self.graph.capacity_bytes_per_s
        found = []
        for link, interval in zip(*map(np.ndarray.tolist, np.nonzero(self.carried_bytes)), strict=True):
            moved = float(self.carried_bytes[link, interval])
            found.append(
                {
                    "link": link,
                    "tail": None if self.ends is None else int(self.ends[0][link]),
                    "head": None if self.ends is None else int(self.ends[1][link]),
                    "from_s": interval * step_s,
                    "to_s": (interval + 1) * step_s,
                    "bytes": moved,
                    "share_of_capacity": moved / (float(capacity[link]) * step_s),
                }
            )
        return found

    def record(self) -> dict[str, Any]:
        """Return the result as plain data."""
        busiest = self._busiest
        return {
            "flows": int(self.flows.size_bytes.size),
            "bytes": float(self.flows.size_bytes.sum()),
            "fabric": self.fabric.name,
            "endpoints": self.fabric.endpoints,
            "makespan_s": self.times.makespan_s,
            "mean_completion_s": float((self.times.finish_s - self.flows.start_s).mean()),
            "busiest_link": busiest,
            "busiest_share": float(self._shares[busiest]),
            "rows": self.rows(),
        }

    @property
    def _shares(self) -> np.ndarray:
        """Mean load of each link over the whole time, over its capacity, shape [L]."""
        whole = self.graph.capacity_bytes_per_s * self.times.makespan_s
        sums = self.carried_bytes.sum(axis=1)
        return np.divide(sums, whole, out=np.zeros(sums.size), where=whole > 0.0)

    @property
    def _busiest(self) -> int:
        """Link of the greatest mean load."""
        return int(self._shares.argmax())

    def report(self) -> list[Block]:
        """Return the times, and the busiest link."""
        record = self.record()
        last = int(self.times.finish_s.argmax())
        ends = f"{self.flows.sources[last]} to {self.flows.destinations[last]}"
        link = self._busiest
        where = "" if self.ends is None else f", vertex {self.ends[0][link]} to {self.ends[1][link]}"
        lines = [
            ("flows, bytes", f"{record['flows']:,}, {format_si(record['bytes'], 'B')}", "of the file"),
            ("all have arrived after", format_si(record["makespan_s"], "s"), f"the last is {ends}"),
            ("mean completion", format_si(record["mean_completion_s"], "s"), "from its earliest start"),
            ("busiest link", f"{100 * record['busiest_share']:.1f} %", f"link {link}{where}"),
        ]
        title = f"{self.name} on {self.fabric.name}, {self.fabric.endpoints} accelerators"
        return [value_table(title, "", lines)]


@dataclass(frozen=True, kw_only=True)
class FlowsOnFabric(Study):
    """Flows or a traffic matrix on any fabric."""

    directory = "flows"

    file: Path = option(
        ...,
        "CSV: source,destination,bytes[,start_s][,after], or a square matrix of bytes; or MSCCL's XML",
        positional=True,
    )
    size_bytes: float = option(
        SIZE_BYTES, "bytes of an algorithm's collective", flag="--size", metavar="SIZE"
    )
    system: str = option("gpu_packet", SYSTEM)
    accelerators: int | None = option(None, "default: whole nodes that hold all endpoints", metavar="N")
    intervals: int = option(INTERVALS, "intervals of the time line of links", metavar="N")
    hardware: Hardware = field(default_factory=Hardware)

    def __post_init__(self) -> None:
        check_range(self, "intervals", low=1, high=MOST_INTERVALS)
        check_positive(self, "size_bytes")
        check_whole(self, "intervals")

    def run(self, progress: Progress) -> FlowResult:
        """Simulate the flows on the fastest of their routings."""
        if self.file.suffix != ALGORITHM:
            refuse_unused(self, ("size_bytes",), "a CSV tells the bytes of every flow")
        why = "flows have no compute"
        refuse_unused(self.hardware, ("core", "penalties", "precision_target"), why)
        refuse_unused(self.hardware.replaced, ("basis",), why)
        flows = read_flows(self.file, self.size_bytes)
        highest = int(max(flows.sources.max(initial=0), flows.destinations.max(initial=0)))
        system = self.hardware.system(
            self.system, accelerators=self.accelerators, usual_accelerators=-(-(highest + 1) // NODE) * NODE
        )
        fabric = system.fabric
        if highest >= fabric.endpoints:
            msg = (
                f"{self.file.name}: names endpoint {highest}, and {fabric.name} has {fabric.endpoints} (0 to "
                f"{fabric.endpoints - 1}); give --accelerators"
            )
            raise ParameterError(msg)
        circuits = circuits_for(fabric, flows)
        progress("flows", 0, 2)
        runs = [(simulate(*routed), routed) for routed in routings(fabric, circuits, flows)]
        times, routed = min(runs, key=lambda run: run[0].makespan_s)
        progress("links", 1, 2)
        own = fabric.graph(circuits)
        carried = loads_over_time(*routed, times.makespan_s, self.intervals)
        wiring = fabric.wired(circuits)
        return FlowResult(
            name=self.file.stem,
            fabric=fabric,
            flows=flows,
            times=times,
            graph=own,
            carried_bytes=carried[: own.capacity_bytes_per_s.size],
            ends=None if wiring is None else (wiring.tails, wiring.heads),
        )


WAITING = (EXPOSED, DARK, HOST, BUBBLE)
"""Categories of time in which a rank computes nothing."""
COMPUTE = "compute"
"""Name of all other time."""


@dataclass(frozen=True, kw_only=True)
class ReplayResult(Result):
    """Run of a recorded graph on a system."""

    system: System
    """The hardware."""
    graph: RankGraph
    """Recorded graph."""
    trace: Trace
    """Trace of the run."""
    compute: Compute
    """Source of the durations of compute."""

    def record(self) -> dict[str, Any]:
        """Return the result as plain data, SI throughout.

        Notes
        -----
        Static power of the accelerators and of the fabric is charged over the whole time. Recorded compute
        has no energy of its own, for none was recorded.
        """
        trace, system = self.trace, self.system
        time_s = trace.makespan_s
        node = system.node()
        static_j = {"accelerators static": node.static_w * system.accelerators * time_s}
        energy = energy_by_component_j(trace, node, system.fabric, static_j, time_s)
        return {
            "trace": self.graph.name,
            "ranks": self.graph.ranks,
            "tasks": len(self.graph.tasks),
            "system": system.name,
            "accelerator": system.node().name,
            "accelerators": system.accelerators,
            "fabric": system.fabric.name,
            "compute": str(self.compute),
            "time_s": time_s,
            "time_by_category_s": times_s(trace, self.graph),
            "network_bytes": dict(trace.network_bytes),
            "collective_algorithms": dict(trace.algorithms),
            "reconfigurations": trace.reconfigurations,
            "energy_j": math.fsum(energy.values()),
            "energy_by_component_j": energy,
        }

    def report(self) -> list[Block]:
        """Return the table of times, bytes and energy."""
        title = f"Trace {self.graph.name}, compute as {self.compute}"
        return [value_table(title, self.system.name, _lines(self.record()))]

    def rows(self) -> list[Row]:
        """Return a row for each category of time."""
        return [
            {"category": part, "time_s": seconds} for part, seconds in times_s(self.trace, self.graph).items()
        ]


def times_s(trace: Trace, graph: RankGraph) -> dict[str, float]:
    """Return the time by category, mean over ranks; the categories add up to the whole."""
    found: defaultdict[str, float] = defaultdict(float)
    for index, ranks in enumerate(graph.classes):
        share = len(ranks) / graph.ranks
        for part, seconds in time_of_class_s(trace, index).items():
            found[part if part in WAITING else COMPUTE] += seconds * share
    return {part: found[part] for part in (COMPUTE, *WAITING) if part in found}


def replay(graph: RankGraph, system: System, compute: Compute) -> ReplayResult:
    """Run a recorded graph on a system, in the layout of its fabric that is fastest.

    Parameters
    ----------
    graph : RankGraph
        Recorded graph.
    system : System
        Hardware; its accelerator times compute that has no recorded duration.
    compute : Compute
        Source of the durations in the graph, for the record.
    """
    node = as_recorded(system.node())
    layouts = system.fabric.laid_for(neighbour_groups(graph))
    runs = [(layout, Replay(graph, node, layout).run()) for layout in layouts]
    fabric, trace = min(runs, key=lambda run: run[1].makespan_s)
    return ReplayResult(system=replace(system, fabric=fabric), graph=graph, trace=trace, compute=compute)


def neighbour_groups(graph: RankGraph) -> tuple[int, ...]:
    """Return the sizes of the groups of consecutive ranks that communicate, and of the whole, ascending."""
    groups = {
        group for one in graph.tasks if isinstance(one.operation, Together) for group in one.operation.groups
    }
    sizes = {len(group) for group in groups if max(group) - min(group) == len(group) - 1}
    return tuple(sorted(sizes | {graph.ranks}))


def _lines(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the lines of the report as triples of name, value and note."""
    time_s = record["time_s"]
    rows = [
        ("accelerator", str(record["accelerator"]), ""),
        ("fabric", str(record["fabric"]), ""),
        ("ranks, tasks", f"{record['ranks']}, {record['tasks']:,}", "of the trace"),
        ("time", format_si(time_s, "s"), "simulated"),
    ]
    shares = record["time_by_category_s"].items()
    rows += [(f"  {part}", f"{100 * seconds / time_s:.1f} %", "mean over ranks") for part, seconds in shares]
    rows += [
        (f"{kind} on the wire", format_si(moved, "B"), "all ranks")
        for kind, moved in record["network_bytes"].items()
    ]
    rows.append(("energy, without recorded compute", format_si(record["energy_j"], "J"), "derived"))
    return rows


@dataclass(frozen=True, kw_only=True)
class ReplayTrace(Study):
    """A recorded Chakra execution trace on a system."""

    prefix: Path = option(..., "traces PREFIX.<rank>.et, or the directory that holds them", positional=True)
    system: str = option("gpu_packet", SYSTEM)
    accelerators: int | None = option(None, "default: the ranks of the trace", metavar="N")
    groups: Path | None = option(None, "JSON of process groups, if not beside them", metavar="FILE")
    modelled: bool = option(False, "let the accelerator's model time compute, not the record")
    ignore_missing: bool = option(False, "count nodes that others wait for and no file holds as done")
    trace: Path | None = option(None, "write the time line for Perfetto", metavar="FILE", written=True)
    hardware: Hardware = field(default_factory=Hardware)

    def run(self, progress: Progress) -> ReplayResult:
        """Import the trace and run it."""
        why = "a trace tells no operands for which light could be sized (--set laser_power_w=... sets it)"
        refuse_unused(self.hardware, ("precision_target",), why)
        compute = Compute.MODELLED if self.modelled else Compute.RECORDED
        graph = import_trace(
            self.prefix, groups=self.groups, compute=compute, ignore_missing=self.ignore_missing
        )

        def replayed(hardware: Hardware) -> ReplayResult:
            system = hardware.system(self.system, accelerators=self.accelerators or graph.ranks)
            return replay(graph, system, compute)

        result = replayed(self.hardware)
        note = (
            "" if self.modelled else "; its compute takes the time of the record (--modelled: the system's)"
        )
        warn_if_idle(self.hardware, result, replayed, f"this replay{note}")
        if self.trace:
            write_timeline(result.trace, self.trace)
        return result
