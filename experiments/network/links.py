"""Loads of links in a step over time, and step time by the spreading of packets over parallel links."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from electronic.fabrics.packets import MultipathFabric
from experiments.hardware import SYSTEM, Hardware, Workload, one_step
from experiments.study import Block, Progress, Result, Row, Study, option
from heliograph.figures import PALETTE, REFERENCE, label, name_rows, new_figure
from heliograph.report import format_si, table_of, value_table
from heliograph.simulation import StepResult, run_at_target
from heliograph.systems import System
from heliograph.systems.names import DEFAULT_ACCELERATORS
from heliograph.workload import model_named, plan_on, ranks_of
from simulator.collectives.traffic import play
from simulator.engine.simulation import Simulation
from simulator.errors import ParameterError, check_range, check_whole
from simulator.fabric import Fabric
from simulator.interfaces import Wiring
from simulator.operators import communications
from simulator.topology.clos import Spreading
from workloads.plan.plan import plan_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

CARD, NODE = 0, -1
"""Levels of vertices: accelerators, and switches inside nodes; other switches count from 1."""
LEVELS = ("edge switches", "inner switches", "core switches")
"""Names of switches 1, 2 and 3 links away from the nearest accelerator: leaves, spines and cores."""


def link_kinds(fabric: Fabric) -> np.ndarray:
    """Return the kind of each link, ``circuits`` or ``accelerators to edge switches``, shape [L].

    Parameters
    ----------
    fabric : Fabric
        The fabric, before any circuit has moved.

    Notes
    -----
    A link's kind follows from the levels of its two ends. Levels are distances from the accelerators, by a
    breadth-first search. A switch that only the accelerators of one node share belongs to that node. Links
    from accelerator to accelerator, or node to node, are ``circuits`` if they begin and end on the ports of
    circuit switches (`simulator.fabric.Ports`), whether lit or not.
    """
    initial = fabric.initial(())
    count = fabric.graph(initial).capacity_bytes_per_s.size
    wiring = fabric.wired(initial)
    if wiring is None or wiring.links != count:
        return np.full(count, "links", dtype=object)
    levels = _levels(wiring, fabric.endpoints, fabric.node_size)
    ports = fabric.traits.ports
    moving = ports is not None and ports.circuits
    ends = zip(levels[wiring.tails].tolist(), levels[wiring.heads].tolist(), strict=True)
    return np.array([_kind_name(tail, head, moving=moving) for tail, head in ends], dtype=object)


def _levels(wiring: Wiring, endpoints: int, size: int) -> np.ndarray:
    """Return the level of each vertex, shape [V]."""
    levels = np.full(wiring.vertices, len(LEVELS), dtype=np.int64)
    levels[:endpoints] = CARD
    ends = np.concatenate([wiring.tails, wiring.heads]), np.concatenate([wiring.heads, wiring.tails])
    for level in range(len(LEVELS)):
        near = ends[1][(levels[ends[0]] == level) & (levels[ends[1]] > level)]
        levels[near] = level + 1
    for vertex in range(endpoints, min(wiring.vertices, endpoints + -(-endpoints // size)) * (size > 1)):
        cards = ends[1][(ends[0] == vertex) & (ends[1] < endpoints)]
        if cards.size and (cards // size == vertex - endpoints).all():
            levels[vertex] = NODE
    return levels


def _kind_name(tail: int, head: int, *, moving: bool) -> str:
    """Return the kind of a link between two levels."""
    if tail == head and tail in (CARD, NODE):
        between = "accelerators" if tail == CARD else "nodes"
        return "circuits" if moving else f"between {between}"
    if tail == head:
        return f"between {LEVELS[tail - 1]}"
    return f"{_plural(tail)} to {_plural(head)}"


def _plural(level: int) -> str:
    return {CARD: "accelerators", NODE: "node switches"}.get(level) or LEVELS[level - 1]


def rows_by_kind(kinds: Sequence[str], most: int) -> list[np.ndarray]:
    """Return the links of each row of a picture; a row has links of one kind, kinds in order of appearance.

    Parameters
    ----------
    kinds : sequence of str
        Kind of each link, in the order of their numbers, shape [n].
    most : int
        Most rows, unless there are more kinds: each kind has at least one row.
    """
    names = np.array(kinds, dtype=object)
    rows: list[np.ndarray] = []
    for kind in dict.fromkeys(kinds):
        links = np.flatnonzero(names == kind)
        share = max(1, int(most * links.size / names.size))
        rows += np.array_split(links, min(share, links.size))
    return rows


BINS = 240
"""Default number of intervals of time."""
MOST_BINS = 10_000
"""Most intervals of time; no picture shows more."""
ROWS = 48
"""Most rows of links in the picture; links of neighbouring numbers share a row."""


@dataclass(frozen=True, kw_only=True)
class LinkLoads:
    """Loads of links in one step."""

    edges_s: np.ndarray
    """Edges of the intervals of time, shape [T + 1]."""
    used: np.ndarray
    """Mean load of each row of links over its capacity, 0 to 1, shape [R, T]."""
    dark: np.ndarray
    """Share of each node's endpoints whose circuits move, 0 to 1, shape [N, T]; all zero without circuits."""
    links: np.ndarray
    """Number of links of each row that carry anything, shape [R]."""
    kinds: tuple[str, ...]
    """Kind of the links of each row, as `link_kinds` names them."""
    busiest_by_kind: dict[str, float]
    """Mean load over the step of the busiest link of each kind, 0 to 1."""
    mean_by_kind: dict[str, float]
    """Mean load over the step of all links of a kind that carry anything, 0 to 1."""
    busiest: np.ndarray
    """Mean load over the step of each link that carries anything, descending, shape [L]."""
    sent_bytes: np.ndarray
    """Bytes that each node sends to each other in the step, shape [N, N]; inside a node on the diagonal."""

    def record(self) -> dict[str, Any]:
        """Return the numbers of the report as plain data."""
        outside = self.sent_bytes.sum() - np.trace(self.sent_bytes)
        return {
            "makespan_s": float(self.edges_s[-1]),
            "links_used": int(self.busiest.size),
            "busiest_link": float(self.busiest[0]) if self.busiest.size else 0.0,
            "median_link": float(np.median(self.busiest)) if self.busiest.size else 0.0,
            "busiest_by_kind": self.busiest_by_kind,
            "mean_by_kind": self.mean_by_kind,
            "inside_bytes": float(np.trace(self.sent_bytes)),
            "outside_bytes": float(outside),
            "dark_share": float(self.dark.mean()),
        }


def link_loads(result: StepResult, *, bins: int = BINS) -> LinkLoads:
    """Simulate a step once more and return the loads of its links.

    Parameters
    ----------
    result : StepResult
        The step.
    bins : int
        Number of intervals of time.
    """
    fabric = result.system.fabric
    simulation = sampled_run(result)
    end_s = simulation.finish().makespan_s
    capacity = fabric.graph(fabric.initial(())).capacity_bytes_per_s.copy()
    capacity = np.maximum(capacity, _peak_loads(simulation, capacity.size))
    edges_s = np.linspace(0.0, end_s, bins + 1)
    bytes_LT = _bytes_by_interval(simulation, edges_s, capacity.size)
    loaded = np.flatnonzero(bytes_LT.sum(axis=1) > 0)
    if not loaded.size:
        msg = f"{result.system.name} sends nothing in this step; take a plan of more than one accelerator"
        raise ParameterError(msg)
    width_s = end_s / bins
    used = bytes_LT[loaded] / (capacity[loaded, None] * width_s)
    kinds = link_kinds(fabric)[loaded]
    rows = rows_by_kind(kinds.tolist(), ROWS)
    mean = used.mean(axis=1)
    return LinkLoads(
        edges_s=edges_s,
        used=np.array([used[row].mean(axis=0) for row in rows]),
        dark=_dark_shares(simulation, fabric, edges_s, -(-fabric.endpoints // fabric.node_size)),
        links=np.array([len(row) for row in rows]),
        kinds=tuple(str(kinds[row[0]]) for row in rows),
        busiest_by_kind={kind: float(mean[kinds == kind].max()) for kind in dict.fromkeys(kinds.tolist())},
        mean_by_kind={kind: float(mean[kinds == kind].mean()) for kind in dict.fromkeys(kinds.tolist())},
        busiest=np.sort(mean)[::-1],
        sent_bytes=_bytes_between_nodes(result, simulation, fabric),
    )


def sampled_run(result: StepResult) -> Simulation:
    """Simulate a step once more, with samples of all rates of its network."""
    # Not fused: a fused sequence of operators prices its collectives without giving them to the network.
    simulation = Simulation(result.graph, result.system.node(), result.system.fabric, fuse=False)
    simulation.network.samples = []
    simulation.start()
    play(simulation.network)
    return simulation


def _peak_loads(simulation: Simulation, links: int) -> np.ndarray:
    """Return the greatest load of each link, B/s, shape [L]: capacities at the start lack later circuits."""
    most = np.zeros(links)
    for _, moving in simulation.network.samples or ():
        load = np.zeros(links)
        for flow_group, rate in moving:
            load[flow_group.links] += flow_group.usage * rate
        np.maximum(most, load, out=most)
    return most


def _bytes_by_interval(simulation: Simulation, edges_s: np.ndarray, links: int) -> np.ndarray:
    """Return the bytes of each link in each interval of equal length, shape [L, T]."""
    bytes_LT = np.zeros((links, edges_s.size - 1))
    samples = simulation.network.samples or []
    width_s = edges_s[1]
    for (start_s, moving), (end_s, _) in pairwise(samples):
        if end_s <= start_s or not moving:
            continue
        first, last = int(start_s / width_s), min(int(end_s / width_s), edges_s.size - 2)
        for place in range(min(first, last), last + 1):
            overlap_s = max(0.0, min(end_s, edges_s[place + 1]) - max(start_s, edges_s[place]))
            for flow_group, rate in moving:
                bytes_LT[flow_group.links, place] += flow_group.usage * rate * overlap_s
    return bytes_LT


def _dark_shares(simulation: Simulation, fabric: Fabric, edges_s: np.ndarray, rows: int) -> np.ndarray:
    """Return the share of each node's endpoints whose circuits move in each interval, shape [N, T]."""
    dark = np.zeros((rows, edges_s.size - 1))
    each = fabric.endpoints / rows
    for change in simulation.network.changes:
        overlap_s = np.minimum(edges_s[1:], change.end_s) - np.maximum(edges_s[:-1], change.start_s)
        share = np.maximum(overlap_s, 0.0) / np.diff(edges_s)
        count = np.bincount((np.unique(change.sources) / each).astype(int), minlength=rows)[:rows]
        dark += np.outer(count / each, share)
    return np.minimum(dark, 1.0)


def _bytes_between_nodes(result: StepResult, simulation: Simulation, fabric: Fabric) -> np.ndarray:
    """Return the bytes that nodes send each other, shape [N, N], from the rounds of all collectives."""
    size = fabric.node_size
    nodes = -(-fabric.endpoints // size)
    sent = np.zeros(nodes * nodes)
    for task in result.graph.tasks:
        for collective, repeat in communications(task.operator):
            if collective.size == 1:
                continue
            for flow_group, size_bytes, count in simulation.traffic.plan(collective, task.rank_class).parts:
                flows = flow_group.flows
                pair = flows.sources // size * nodes + flows.destinations // size
                flows_of_pair = np.bincount(pair, minlength=nodes * nodes)
                sent += flows_of_pair * size_bytes * count * repeat * task.multiplicity
    return sent.reshape(nodes, nodes)


HEIGHT_IN = 7.4
"""Height of the figure, inches."""
_NODES_TOLD = 8
"""Most nodes that have a tick with their number."""


def links_figure(loads: LinkLoads, title: str) -> Figure:
    """Return the picture of a step's loads: links over time with dark time, and nodes against nodes."""
    figure = new_figure(HEIGHT_IN)
    moving = bool(loads.dark.any())
    heights = [2.0, 0.7] if moving else [2.0]
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[sum(heights), 1.8])[:, 0]
    panels = upper.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    above = panels[0]
    _draw_loads(upper, above, loads)
    above.set_title(f"{title}: load of links over time", loc="left")
    if moving:
        _draw_dark(upper, panels[1], loads)
    panels[-1].set_xlabel("time (s)")
    sent, kinds = lower.subplots(1, 2)
    _draw_sent(lower, sent, loads)
    _draw_kinds(kinds, loads)
    return figure


def _draw_loads(figure: SubFigure, axes: Axes, loads: LinkLoads) -> None:
    """Draw the loads of rows of links over time, with the kind of each row."""
    extent = (0.0, float(loads.edges_s[-1]), float(len(loads.kinds)), 0.0)
    shown = axes.imshow(
        loads.used, aspect="auto", extent=extent, cmap="viridis", vmin=0.0, interpolation="nearest"
    )
    figure.colorbar(shown, ax=axes, label="load over capacity")
    places, names, start = [], [], 0
    for kind, rows in itertools.groupby(loads.kinds):
        height = len(list(rows))
        count = int(loads.links[start : start + height].sum())
        places.append(start + height / 2)
        names.append(_lines(f"{count} {kind}"))
        if start:
            axes.axhline(start, color="white", linewidth=0.8)
        start += height
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)


def _draw_dark(figure: SubFigure, axes: Axes, loads: LinkLoads) -> None:
    """Draw which nodes' circuits move over time."""
    extent = (0.0, float(loads.edges_s[-1]), float(len(loads.dark)), 0.0)
    dark = axes.imshow(
        loads.dark, aspect="auto", extent=extent, cmap="Greys", vmin=0.0, interpolation="nearest"
    )
    figure.colorbar(dark, ax=axes, label="dark")
    axes.set_ylabel("node")
    axes.set_title("share of endpoints whose circuits move", loc="left")


def _draw_sent(figure: SubFigure, axes: Axes, loads: LinkLoads) -> None:
    """Draw the bytes from each node to each other."""
    with np.errstate(divide="ignore"):
        exponent = np.where(loads.sent_bytes > 0, np.log10(loads.sent_bytes), np.nan)
    sent = axes.imshow(exponent, aspect="equal", cmap="magma_r", interpolation="nearest")
    figure.colorbar(sent, ax=axes, label="bytes (power of ten)", shrink=0.8)
    nodes = range(0, len(exponent), -(-len(exponent) // _NODES_TOLD))
    axes.set_xticks(nodes)
    axes.set_yticks(nodes)
    axes.set_xlabel("destination node")
    axes.set_ylabel("source node")
    axes.set_title(label("bytes between nodes"), loc="left")


def _draw_kinds(axes: Axes, loads: LinkLoads) -> None:
    """Draw the load of the busiest and of all links of each kind over the step."""
    kinds = list(loads.busiest_by_kind)
    places = np.arange(len(kinds))
    axes.barh(
        places, [loads.busiest_by_kind[one] for one in kinds], height=0.7, color=PALETTE[0], label="busiest"
    )
    axes.barh(places, [loads.mean_by_kind[one] for one in kinds], height=0.3, color=PALETTE[1], label="all")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    name_rows(axes, [_lines(one) for one in kinds])
    axes.set_xlabel("mean load over the step")
    axes.set_title("links of each kind", loc="left")


def _lines(kind: str) -> str:
    """Return the name of a kind on two lines if it says from where to where."""
    return kind.replace(" to ", "\nto ")


@dataclass(frozen=True, kw_only=True)
class StepLoads(Result):
    """Link loads of a step that was run."""

    result: StepResult
    """The step."""
    loads: LinkLoads
    """Its loads."""

    @property
    def title(self) -> str:
        """Model and system."""
        return f"{self.result.model} on {self.result.system.name}"

    def report(self) -> list[Block]:
        """Return the table of the busiest and the median link."""
        record = self.loads.record()
        lines = [
            ("one step, start to end", format_si(record["makespan_s"], "s"), "simulated"),
            ("links that carry bytes", f"{record['links_used']:,}", "of the fabric"),
            ("busiest link", f"{100 * record['busiest_link']:.1f} %", "mean over the step"),
            ("median link", f"{100 * record['median_link']:.1f} %", "mean over the step"),
            ("bytes inside nodes", format_si(record["inside_bytes"], "B"), "on the wire"),
            ("bytes between nodes", format_si(record["outside_bytes"], "B"), "on the wire"),
            ("dark", f"{100 * record['dark_share']:.3f} %", "of endpoints' time"),
        ]
        return [value_table(self.title, self.result.system.name, lines)]

    def record(self) -> dict[str, Any]:
        """Return the numbers of the report as plain data."""
        run = {
            "model": self.result.model,
            "plan": plan_text(self.result.plan),
            "system": self.result.system.name,
        }
        return self.loads.record() | run

    def rows(self) -> list[Row]:
        """Return a row for each kind of link."""
        loads = self.loads
        return [
            {"kind": kind, "busiest_link": loads.busiest_by_kind[kind], "mean_link": loads.mean_by_kind[kind]}
            for kind in loads.busiest_by_kind
        ]

    def figure(self) -> Figure:
        """Return the picture of the loads."""
        return links_figure(self.loads, self.title)


@dataclass(frozen=True, kw_only=True)
class Links(Study):
    """Load of every link over a step."""

    directory = "links_{system}"

    system: str = option(..., SYSTEM, positional=True)
    workload: Workload = field(default_factory=Workload)
    accelerators: int | None = option(None, "default: what the plan uses", metavar="N")
    bins: int = option(BINS, "intervals of time", metavar="T")
    hardware: Hardware = field(default_factory=Hardware)

    def __post_init__(self) -> None:
        check_range(self, "bins", low=1, high=MOST_BINS)

    def run(self, progress: Progress) -> StepLoads:
        """Return the loads of the step."""
        result = one_step(self.system, self.workload, self.hardware, accelerators=self.accelerators)
        return StepLoads(result=result, loads=link_loads(result, bins=self.bins))


QUEUE_PAIRS = (1, 2, 4, 16)
"""Default numbers of queue pairs of a flow; Ethernet switches ship set to two
(`PacketSwitch.shipped_queue_pairs`), and Llama 3 used 16 (arXiv:2407.21783)."""
SEEDS = 5
"""Default number of hashes that are drawn."""
MOST_PAIRS, MOST_SEEDS = 1024, 1000
"""Most queue pairs of a flow, and most hashes; each hash takes the simulation of a step."""
_ROW_IN, _REST_IN, _TITLE, _TEXT_SHARE = 0.34, 1.25, 110, 0.12


@dataclass(frozen=True, kw_only=True)
class SpreadStep:
    """Step times under one way of spreading packets over parallel links."""

    spreading: Spreading | None
    """Way of spreading; None on optical circuits."""
    queue_pairs: int
    """Queue pairs of a flow; 0 where flows are not hashed."""
    steps_s: np.ndarray
    """Step time with each hash, shape [seeds]; a single one where nothing is drawn."""

    @property
    def name(self) -> str:
        """Name in tables and figures."""
        if self.spreading is None:
            return "optical circuits"
        if self.spreading is not Spreading.HASHED:
            return f"packets, {self.spreading}"
        return f"packets, hashed, {self.queue_pairs} queue pair{'s' if self.queue_pairs > 1 else ''}"

    @property
    def mean_s(self) -> float:
        """Mean step time over the hashes."""
        return float(self.steps_s.mean())


@dataclass(frozen=True, kw_only=True)
class SpreadSteps(Result):
    """Step times of one plan under every spreading, and on circuits."""

    title: str
    """Model, accelerators and plan."""
    steps: tuple[SpreadStep, ...]
    """Spreadings, the ideal one first."""
    circuits: SpreadStep
    """On optical circuits."""

    @property
    def losses(self) -> tuple[float, float]:
        """Least and greatest relative excess of the step on circuits over adaptive or hashed packets."""
        real = [step for step in self.steps if step.spreading is not Spreading.SPRAYED]
        excess = self.circuits.mean_s / np.concatenate([step.steps_s for step in real]) - 1.0
        return float(excess.min()), float(excess.max())

    def rows(self) -> list[Row]:
        """Return a row for each spreading, circuits last."""
        ideal = self.steps[0].mean_s
        return [
            {
                "spreading": step.name,
                "queue_pairs": step.queue_pairs,
                "seeds": len(step.steps_s),
                "step_time_s": step.mean_s,
                "least_s": float(step.steps_s.min()),
                "most_s": float(step.steps_s.max()),
                "over_sprayed": step.mean_s / ideal - 1.0,
            }
            for step in (*self.steps, self.circuits)
        ]

    def record(self) -> dict[str, Any]:
        """Return everything as plain data."""
        least, most = self.losses
        return {"circuits_over_packets": {"least": least, "most": most}, "rows": self.rows()}

    def report(self) -> list[Block]:
        """Return the table, and the verdict as a range."""

        def ends(row: Row) -> str:
            return f"{format_si(row['least_s'], 's')} to {format_si(row['most_s'], 's')}"

        columns: dict[str, Callable[[Row], str]] = {
            "step time": lambda row: format_si(row["step_time_s"], "s"),
            "of all hashes": lambda row: ends(row) if row["seeds"] > 1 else "",
            "over sprayed": lambda row: f"{100 * row['over_sprayed']:+.2f} %",
        }
        table = table_of(
            self.title,
            self.rows(),
            lambda row: str(row["spreading"]),
            columns,
            note=lambda row: f"{row['seeds']} hashes" if row["seeds"] > 1 else "",
        )
        least, most = self.losses
        verdict = (
            f"Circuits take {100 * least:+.2f} to {100 * most:+.2f} % of time more than packets that are "
            "adaptive or hashed."
        )
        return [table, verdict]

    def figure(self) -> Figure:
        """Return the excess of each spreading over ideally sprayed packets, with the range over hashes."""
        every, ideal_s = (*self.steps, self.circuits), self.steps[0].mean_s
        figure = new_figure(_REST_IN + _ROW_IN * len(every))
        axes = figure.subplots()
        for place, step in enumerate(every):
            _draw_added(axes, place, step, ideal_s)
        axes.axvline(0.0, color=REFERENCE, lw=1.2)
        axes.margins(x=_TEXT_SHARE)
        name_rows(axes, [step.name for step in every])
        axes.grid(visible=True, axis="x")
        whole = f"the {format_si(ideal_s, 's')} of sprayed packets"
        axes.set_xlabel(f"Step time over {whole} (%)\nwhiskers: least and most of the hashes")
        figure.suptitle(
            fill(self.title.replace(", ", ",").replace(",", ", "), _TITLE), fontsize=7.5, x=0.01, ha="left"
        )
        return figure


def _draw_added(axes: Axes, row: int, step: SpreadStep, ideal_s: float) -> None:
    """Draw the excess of a spreading's step over the ideal one, per cent, with its mean as text."""
    least, mean, most = (
        100.0 * (float(one) / ideal_s - 1.0) for one in (step.steps_s.min(), step.mean_s, step.steps_s.max())
    )
    axes.barh(row, mean, height=0.62, color=PALETTE[0] if step.spreading else PALETTE[2])
    if step.steps_s.size > 1:
        error = [[max(0.0, mean - least)], [max(0.0, most - mean)]]  # a mean of equals may round off them
        axes.errorbar(mean, row, xerr=error, color=PALETTE[5], capsize=2.5)
    end, side, offset = (most, "left", 5) if mean >= 0.0 else (least, "right", -5)
    text = f"{mean:+.2f} %" if mean else "0"
    axes.annotate(text, (end, row), (offset, 0), textcoords="offset points", ha=side, va="center")


@dataclass(frozen=True, kw_only=True)
class BySpreading(Study):
    """Step time by the spreading of packets, beside optical circuits."""

    directory = "spreading"

    system: str = option("gpu_packet", SYSTEM)
    circuits: str | None = option(
        None,
        "the same accelerators on optical circuits; default: the system's name with ocs in place of packet",
        metavar="SYSTEM",
    )
    workload: Workload = field(default_factory=Workload)
    accelerators: int | None = option(
        None, f"how many; default the system file's, the plan's, else {DEFAULT_ACCELERATORS}", metavar="N"
    )
    queue_pairs: tuple[int, ...] = option(QUEUE_PAIRS, "queue pairs of a hashed flow", commas=True)
    seeds: int = option(SEEDS, "hashes that are drawn for each", metavar="N")
    hardware: Hardware = field(default_factory=Hardware)

    def __post_init__(self) -> None:
        check_range(self, "seeds", low=1, high=MOST_SEEDS)
        for pairs in self.queue_pairs:
            if not 1 <= pairs <= MOST_PAIRS:
                msg = f"queue_pairs ({pairs}) must be whole numbers of 1 to {MOST_PAIRS}, such as 1,4,16"
                raise ParameterError(msg)
        check_whole(self, "seeds")

    def run(self, progress: Progress) -> SpreadSteps:
        """Return step times of every spreading, and on circuits."""
        config = model_named(self.workload.model)
        usual = ranks_of(self.workload.plan) or DEFAULT_ACCELERATORS
        packets = self.hardware.system(self.system, accelerators=self.accelerators, usual_accelerators=usual)
        if not isinstance(packets.fabric, MultipathFabric):
            msg = (
                f"packets have no paths to choose from on fabric '{packets.fabric.name}'; name one of Clos "
                "switches: --fabric rails, fat_tree or rail_only"
            )
            raise ParameterError(msg)
        beside = dataclasses.replace(self.hardware, fabric=None)
        optical = beside.counterpart(
            packets, self.system, self.circuits, on="circuits", accelerators=self.accelerators
        )
        plan = plan_on(packets, config, self.workload.plan)
        kinds = [(Spreading.SPRAYED, 0), (Spreading.ADAPTIVE, 0)]
        kinds += [(Spreading.HASHED, pairs) for pairs in sorted(set(self.queue_pairs))]
        steps = []
        for done, (spreading, pairs) in enumerate(kinds):
            progress("spreadings", done, len(kinds) + 1)
            several = _seeded(packets, spreading, pairs, self.seeds)
            times = [run_at_target(one, config, plan).step_time_s for one in several]
            steps.append(SpreadStep(spreading=spreading, queue_pairs=pairs, steps_s=np.array(times)))
        progress("spreadings", len(kinds), len(kinds) + 1)
        seconds = run_at_target(optical, config, plan).step_time_s
        return SpreadSteps(
            title=f"{config.name} on {packets.accelerators} accelerators, {plan_text(plan)}",
            steps=tuple(steps),
            circuits=SpreadStep(spreading=None, queue_pairs=0, steps_s=np.array([seconds])),
        )


def _seeded(system: System, spreading: Spreading, pairs: int, seeds: int) -> list[System]:
    """Return a system with one way of spreading, a copy for each hash."""
    spread = system.with_({"fabric.spreading": str(spreading)})
    if spreading is not Spreading.HASHED:
        return [spread]
    return [
        spread.with_({"fabric.queue_pairs": pairs, "fabric.hash_seed": seed}) for seed in range(1, seeds + 1)
    ]
