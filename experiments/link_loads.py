"""Where the bytes of a step go: the load of every link over time, and bytes from each node to each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.link_kinds import link_kinds, rows_by_kind
from experiments.step import StepResult
from heliograph.carrying import play
from heliograph.engine import Simulation
from heliograph.errors import ParameterError
from heliograph.interfaces import Fabric
from heliograph.operators import communications

BINS = 240
"""Intervals of time where nobody says how many."""
ROWS = 48
"""Rows of links of the picture at most; links with like numbers share one."""


@dataclass(frozen=True, kw_only=True)
class LinkLoads:
    """Loads of one step."""

    edges_s: np.ndarray
    """Edges of the intervals of time, shape [T + 1]."""
    used: np.ndarray
    """Mean load of each row of links over its capacity, 0 to 1, shape [R, T]."""
    dark: np.ndarray
    """Share of each node's endpoints whose circuits move, 0 to 1, shape [N, T]; all zero without circuits."""
    links: np.ndarray
    """Busy links of each row, shape [R]."""
    kinds: tuple[str, ...]
    """What the links of each row lead from and to."""
    busiest_by_kind: dict[str, float]
    """Mean load over the step of the busiest link of each kind, 0 to 1."""
    mean_by_kind: dict[str, float]
    """Mean load over the step of all links of a kind that carry anything, 0 to 1."""
    busiest: np.ndarray
    """Highest numbers first: mean load of each link that carries anything over the step, shape [L]."""
    sent_bytes: np.ndarray
    """Bytes that each node sends to each other in the step, shape [N, N]; inside a node on the diagonal."""

    def record(self) -> dict[str, Any]:
        """Return what the table tells as plain data."""
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
    """Run a step once more and return where its bytes went.

    Parameters
    ----------
    result : StepResult
        The step; its system is as it was run.
    bins : int
        Intervals of time.

    Raises
    ------
    ParameterError
        If there are no intervals, or the step sends nothing.
    """
    if bins < 1:
        msg = f"bins ({bins}) must be at least 1"
        raise ParameterError(msg)
    fabric = result.system.fabric
    # Sequences are run item by item: a fused one passes its collectives to nobody.
    simulation = Simulation(result.graph, result.system.node(), fabric, fuse=False)
    simulation.network.samples = []
    simulation.start()
    play(simulation.network)
    end_s = simulation.finish().makespan_s
    capacity = fabric.graph(fabric.initial(())).capacity_bytes_per_s.copy()
    capacity = np.maximum(capacity, _most(simulation, capacity.size))
    edges_s = np.linspace(0.0, end_s, bins + 1)
    bytes_LT = _spread(simulation, edges_s, capacity.size)
    carried = np.flatnonzero(bytes_LT.sum(axis=1) > 0)
    if not carried.size:
        msg = f"{result.system.name} sends nothing in this step; take a plan of more than one accelerator"
        raise ParameterError(msg)
    width_s = end_s / bins
    used = bytes_LT[carried] / (capacity[carried, None] * width_s)
    kinds = link_kinds(fabric)[carried]
    rows = rows_by_kind(kinds.tolist(), ROWS)
    mean = used.mean(axis=1)
    return LinkLoads(
        edges_s=edges_s,
        used=np.array([used[row].mean(axis=0) for row in rows]),
        dark=_dark(simulation, fabric, edges_s, -(-fabric.endpoints // fabric.node_size)),
        links=np.array([len(row) for row in rows]),
        kinds=tuple(str(kinds[row[0]]) for row in rows),
        busiest_by_kind={kind: float(mean[kinds == kind].max()) for kind in dict.fromkeys(kinds.tolist())},
        mean_by_kind={kind: float(mean[kinds == kind].mean()) for kind in dict.fromkeys(kinds.tolist())},
        busiest=np.sort(mean)[::-1],
        sent_bytes=_sent(result, simulation, fabric),
    )


def _most(simulation: Simulation, links: int) -> np.ndarray:
    """Return the greatest load that each link ever carried, for circuits that were lit later."""
    most = np.zeros(links)
    for _, moving in simulation.network.samples or ():
        load = np.zeros(links)
        for bundle, rate in moving:
            load[bundle.links] += bundle.usage * rate
        np.maximum(most, load, out=most)
    return most


def _spread(simulation: Simulation, edges_s: np.ndarray, links: int) -> np.ndarray:
    """Return the bytes of every link in every interval, shape [L, T]."""
    bytes_LT = np.zeros((links, edges_s.size - 1))
    samples = simulation.network.samples or []
    width_s = edges_s[1]
    for (start_s, moving), (end_s, _) in pairwise(samples):
        if end_s <= start_s or not moving:
            continue
        first, last = int(start_s / width_s), min(int(end_s / width_s), edges_s.size - 2)
        for place in range(min(first, last), last + 1):
            overlap_s = min(end_s, edges_s[place + 1]) - max(start_s, edges_s[place])
            if overlap_s > 0.0:
                for bundle, rate in moving:
                    bytes_LT[bundle.links, place] += bundle.usage * rate * overlap_s
    return bytes_LT


def _dark(simulation: Simulation, fabric: Fabric, edges_s: np.ndarray, rows: int) -> np.ndarray:
    """Return the share of each node's endpoints whose circuits move in each interval, shape [N, T]."""
    dark = np.zeros((rows, edges_s.size - 1))
    each = fabric.endpoints / rows
    for change in simulation.network.changes:
        overlap_s = np.minimum(edges_s[1:], change.end_s) - np.maximum(edges_s[:-1], change.start_s)
        share = np.maximum(overlap_s, 0.0) / np.diff(edges_s)
        count = np.bincount((np.unique(change.sources) / each).astype(int), minlength=rows)[:rows]
        dark += np.outer(count / each, share)
    return np.minimum(dark, 1.0)


def _sent(result: StepResult, simulation: Simulation, fabric: Fabric) -> np.ndarray:
    """Return the bytes that nodes send each other, shape [N, N], from the rounds of all collectives."""
    size = fabric.node_size
    nodes = -(-fabric.endpoints // size)
    sent = np.zeros(nodes * nodes)
    for task in result.graph.tasks:
        for one, repeat in communications(task.operator):
            if one.size == 1:
                continue
            for bundle, size_bytes, count in simulation.traffic.plan(one, task.rank_class).parts:
                flows = bundle.flows
                pair = flows.sources // size * nodes + flows.destinations // size
                many = np.bincount(pair, minlength=nodes * nodes)
                sent += many * size_bytes * count * repeat * task.multiplicity
    return sent.reshape(nodes, nodes)
