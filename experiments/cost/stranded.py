"""Stranded accelerators: they work but have no group, since nodes of a domain, cube or ring failed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.study import Block, Progress, Result, Row, Study, option, refuse_unused
from heliograph.report import table_of
from simulator.errors import ParameterError, is_number
from simulator.files import read_json_value
from simulator.goodput import Placing, cubes, domains, ring, stranded_share

DOMAIN = 72
"""Accelerators of an NVL-72."""
CUBE = 64
"""Accelerators of a cube of TPU v4."""
HOPS = (1, 2, 3)
"""Hops of the rings that are compared."""
START, END = "fault_start", "fault_end"
"""Kinds of event in a trace."""
EVENT = ("event_time", "event_type", "node_id")
"""Keys of an event of a trace."""
MOST_NODES = 1_000_000
"""Most nodes of a cluster."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes of a cluster, and the groups of accelerators that are placed on its working nodes."""

    nodes: int = 400
    """Number of nodes."""
    node: int = 8
    """Accelerators of a node."""
    group: int = 32
    """Accelerators of a group."""
    seed: int = 0
    """Seed of the places of the nodes of a trace, and of random faults."""

    def __post_init__(self) -> None:
        if self.nodes > MOST_NODES:
            msg = f"nodes must be at most {MOST_NODES:,}; got {self.nodes:,}"
            raise ParameterError(msg)
        for name in ("nodes", "node", "group"):
            if getattr(self, name) < 1:
                msg = f"{name} must be at least 1; got {getattr(self, name)}"
                raise ParameterError(msg)
        if self.seed < 0:
            msg = f"seed must be at least 0; got {self.seed}"
            raise ParameterError(msg)
        if self.group % self.node or DOMAIN % self.node or CUBE % self.node:
            msg = (
                f"nodes of {self.node} accelerators must divide groups of {self.group}, domains of {DOMAIN} "
                f"and cubes of {CUBE}; try 4 or 8"
            )
            raise ParameterError(msg)

    def placements(self) -> dict[str, Placing]:
        """Return the rule that places groups on working nodes, by fabric."""
        group = self.group // self.node
        found = {
            f"domains of {DOMAIN}": domains(DOMAIN // self.node, group),
            f"cubes of {CUBE}": cubes(CUBE // self.node, group),
        }
        return found | {f"ring, {hops} hop{'s' * (hops > 1)}": ring(hops, group) for hops in HOPS}


@dataclass(frozen=True, kw_only=True, eq=False)
class Faults:
    """Working nodes in each span of time between events."""

    works: np.ndarray
    """Whether each node works, shape [spans, nodes]."""
    shares: np.ndarray
    """Share of the whole time that each span takes, shape [spans]."""

    @property
    def failed(self) -> float:
        """Share of nodes that have failed, on average over time."""
        return float((self.shares * (~self.works).mean(axis=1)).sum())


@dataclass(frozen=True, kw_only=True)
class Event:
    """Begin or end of a fault of a node."""

    time: float
    """Time in the unit of the trace: days for InfiniteHBD."""
    starts: bool
    """Whether the fault begins."""
    node: str
    """Name of the node."""

    @property
    def order(self) -> tuple[float, bool, str]:
        """Key of the order of events: by time; at one time ends before starts, then by node."""
        return self.time, self.starts, self.node


def read_events(path: Path, nodes: int) -> list[Event]:
    """Return the events of a trace of faults in the order of their times.

    Parameters
    ----------
    path : pathlib.Path
        JSON: a list of events with ``node_id``, ``event_time`` and ``event_type`` (``fault_start`` or
        ``fault_end``).
    nodes : int
        Nodes of the cluster, with or without faults.
    """
    content = read_json_value(path)
    if not isinstance(content, list):
        kind = f"a {type(content).__name__} where a list of events is needed"
        msg = f"{path.name}: holds {kind}, each with {', '.join(EVENT)}"
        raise ParameterError(msg)
    found = [_event(one, f"{path.name}: event {index}") for index, one in enumerate(content)]
    events = sorted(found, key=lambda one: one.order)
    names = {one.node for one in events}
    if not names or len(names) > nodes:
        msg = f"{path.name}: names {len(names)} nodes, and the cluster has {nodes}; try --nodes {len(names)}"
        raise ParameterError(msg if names else f"{path.name}: holds no event; a trace has two at least")
    if events[0].time == events[-1].time:
        msg = f"{path.name}: all events have the time {events[0].time:g}; a trace tells what time passes"
        raise ParameterError(msg)
    return events


def _event(entry: object, where: str) -> Event:
    """Return an event of a trace."""
    lost = [key for key in EVENT if not isinstance(entry, Mapping) or key not in entry]
    if lost or not isinstance(entry, Mapping):
        msg = f"{where}: lacks '{lost[0]}'; an event has {', '.join(EVENT)}"
        raise ParameterError(msg)
    time, kind, node = (entry[key] for key in EVENT)
    if not is_number(time):
        msg = f"{where}: 'event_time' must be a number, in any one unit; got {time!r}"
        raise ParameterError(msg)
    if kind not in (START, END):
        msg = f"{where}: 'event_type' must be {START} or {END}; got {kind!r}"
        raise ParameterError(msg)
    return Event(time=float(time), starts=kind == START, node=str(node))


def read_faults(path: Path, cluster: Cluster) -> Faults:
    """Return a trace of faults, its nodes placed at random.

    Parameters
    ----------
    path : pathlib.Path
        As `read_events`; a node works while it has no open fault.
    cluster : Cluster
        Cluster of the nodes.
    """
    events = read_events(path, cluster.nodes)
    order = np.random.default_rng(cluster.seed).permutation(cluster.nodes)
    place = {name: int(order[index]) for index, name in enumerate(sorted({event.node for event in events}))}
    lasting = np.zeros(cluster.nodes, dtype=np.int64)
    works, spans, before = [], [], events[0].time
    for event in events:
        if event.time > before:
            works.append(lasting <= 0)
            spans.append(event.time - before)
            before = event.time
        lasting[place[event.node]] += 1 if event.starts else -1
    lengths = np.array(spans)
    return Faults(works=np.stack(works), shares=lengths / lengths.sum())


DRAWS = 200
"""Draws of failed nodes."""


def random_faults(share: float, cluster: Cluster) -> Faults:
    """Return faults that are independent of each other, in `DRAWS` spans of equal length."""
    if not 0.0 <= share <= 1.0:
        msg = f"the share of failed nodes must be from 0 to 1; got {share:g}"
        raise ParameterError(msg)
    works = np.random.default_rng(cluster.seed).random((DRAWS, cluster.nodes)) >= share
    return Faults(works=works, shares=np.full(DRAWS, 1.0 / DRAWS))


def wasted(faults: Faults, cluster: Cluster) -> dict[str, float]:
    """Return the share of all accelerators that work without a group, on average over time, by fabric.

    Notes
    -----
    Nodes of a domain that are too few for a group count, and so do those of an incomplete last domain: of 400
    nodes of 8 accelerators four, 1 %, belong to no NVL-72.

    References
    ----------
    Shou et al., "InfiniteHBD", SIGCOMM 2025: waste more than ten times below NVL-72 and TPU v4.
    """
    return {
        name: math.fsum(
            share * stranded_share(works, placed)
            for works, share in zip(faults.works, faults.shares, strict=True)
        )
        for name, placed in cluster.placements().items()
    }


@dataclass(frozen=True, kw_only=True)
class StrandedShares(Result):
    """Share of all accelerators that work without a group, by fabric."""

    cluster: Cluster
    """Cluster and its groups."""
    failed: float
    """Share of nodes that have failed, on average over time."""
    wasted: Mapping[str, float]
    """Stranded share by fabric."""

    def report(self) -> list[Block]:
        """Return a line for each fabric."""
        cluster, best = self.cluster, min(self.wasted.values())
        title = f"{100 * self.failed:.2f} % of {cluster.nodes} nodes failed, groups of {cluster.group}"
        columns: dict[str, Callable[[tuple[str, float]], str]] = {
            "stranded": lambda one: f"{100 * one[1]:.3f} %",
            "over the least": lambda one: f"{one[1] / best:.1f}" if best > 0.0 else "-",
        }
        return [table_of(title, self.wasted.items(), lambda one: one[0], columns)]

    def record(self) -> dict[str, Any]:
        """Return the shares as plain data."""
        return {"cluster": self.cluster, "failed": self.failed, "wasted": dict(self.wasted)}

    def rows(self) -> list[Row]:
        """Return a row for each fabric."""
        return [
            {"fabric": name, "failed_share": self.failed, "stranded_share": share}
            for name, share in self.wasted.items()
        ]


@dataclass(frozen=True, kw_only=True)
class Stranded(Study):
    """Accelerators that work without a group because nodes of their domain, cube or ring failed."""

    data: Path | None = option(None, "trace of faults instead of --failed", metavar="FILE.json")
    failed: float = option(0.02, "share of nodes that have failed", metavar="SHARE")
    nodes: int = option(400, "nodes", metavar="N")
    node: int = option(8, "accelerators of each", metavar="G")
    group: int = option(32, "accelerators of a group", metavar="G")
    seed: int = option(0, "of places and faults")

    def run(self, progress: Progress) -> StrandedShares:
        """Return the shares that are stranded."""
        cluster = Cluster(nodes=self.nodes, node=self.node, group=self.group, seed=self.seed)
        if self.data is not None:
            refuse_unused(self, ("failed",), "--data tells which nodes fail")
            faults = read_faults(self.data, cluster)
        else:
            faults = random_faults(self.failed, cluster)
        return StrandedShares(cluster=cluster, failed=faults.failed, wasted=wasted(faults, cluster))
