"""Any network from a file: GraphML or JSON node-link, checked with file and key, routed on shortest paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from heliograph.errors import ParameterError, nearest
from heliograph.graph_fabric import NO_LINK, GraphFabric, Wiring
from heliograph.graph_reader import Drawing, Edge, read_drawing
from heliograph.graph_routes import GraphRoutes
from heliograph.interfaces import Flows
from heliograph.scale_up import BillItem
from heliograph.units import BITS_PER_BYTE

ENDPOINT, SWITCH = "endpoint", "switch"
"""Values of a node's ``kind``."""
NODE_KEYS = ("kind", "static_w", "price_usd", "label")
"""What a node may say."""
EDGE_KEYS = ("capacity_bytes_per_s", "latency_s", "energy_j_per_bit", "static_w", "price_usd", "label")
"""What an edge may say; the first two it must, or the graph for all of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnFabric(GraphFabric):
    """A network as a file draws it.

    Notes
    -----
    Endpoints are numbered in the order of the file. An undirected edge is a link each way, of the edge's
    capacity both times. Power and price of nodes and edges are those of the file, none where it is silent.
    """

    name: str
    """Name shown in tables and traces: that of the file."""
    endpoints: int
    """Accelerators."""
    node_size: int = 1
    """Endpoints that share a scale-up domain, consecutive numbers."""
    links: Wiring
    """Links between endpoints, the first vertices, and switches."""
    energy_j_per_bit: np.ndarray
    """Dynamic energy of one bit over each link, shape [L]."""
    parts: dict[str, BillItem]
    """Bill of materials."""

    @property
    def wiring(self) -> Wiring:  # type: ignore[override]
        """Links between endpoints and switches."""
        return self.links

    @cached_property
    def routes(self) -> GraphRoutes:
        """Shortest paths."""
        return GraphRoutes(wiring=self.links, endpoints=self.endpoints)

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links from sources to other endpoints, shape [F, H], padded with `NO_LINK`."""
        return self.routes.paths(sources, destinations)

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        return self.parts

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once: that of every link on their ways."""
        links = self.route(None, flows)
        if flows.weights is None:
            return (
                flows.size_bytes * BITS_PER_BYTE * float(self.energy_j_per_bit[links[links != NO_LINK]].sum())
            )
        per_bit_j = np.where(links == NO_LINK, 0.0, self.energy_j_per_bit[links]).sum(axis=1)
        return flows.moved_bytes(per_bit_j) * BITS_PER_BYTE


def load_graph(path: Path, *, endpoints: int | None = None) -> DrawnFabric:
    """Return the fabric that a file draws.

    Parameters
    ----------
    path : pathlib.Path
        ``.graphml``, or ``.json`` in node-link form. Each node says ``kind``: ``endpoint`` or ``switch``.
        Each edge says ``capacity_bytes_per_s`` and ``latency_s``, numbers in SI or text with a unit; the
        graph may say either for all edges that do not, and ``node_size``.
    endpoints : int, optional
        Accelerators that the system has; the file must draw as many.

    Raises
    ------
    ParameterError
        If the file cannot be read, an attribute is missing, unknown or out of range, an edge leads from a
        node to itself, no node is an endpoint, the number of endpoints differs, or not every endpoint
        reaches every other.
    """
    drawing = read_drawing(path)
    kinds = {name: _kind(drawing, name) for name in drawing.nodes}
    order = [name for name, kind in kinds.items() if kind == ENDPOINT]
    if not order:
        msg = f"{path.name}: no node is an endpoint; say kind = '{ENDPOINT}' of those that compute"
        raise ParameterError(msg)
    if endpoints is not None and len(order) != endpoints:
        msg = (
            f"{path.name}: draws {len(order)} endpoints, and the system has {endpoints} accelerators; "
            f"ask for {len(order)} (--accelerators, or a plan of as many ranks), or draw more"
        )
        raise ParameterError(msg)
    count = len(order)
    order += [name for name, kind in kinds.items() if kind == SWITCH]
    vertex = {name: index for index, name in enumerate(order)}
    wiring, energy_j_per_bit = _wiring(drawing, vertex)
    _check_connected(drawing, wiring, order[:count], len(order))
    return DrawnFabric(
        name=path.stem,
        endpoints=count,
        node_size=_node_size(drawing, count),
        links=wiring,
        energy_j_per_bit=energy_j_per_bit,
        parts=_parts(drawing, kinds),
    )


def _kind(drawing: Drawing, name: str) -> str:
    attributes = drawing.nodes[name]
    where = drawing.where_node(name)
    _check_keys(attributes, NODE_KEYS, where, "node")
    kind = str(attributes.get("kind", ""))
    if kind not in {ENDPOINT, SWITCH}:
        what = f"has kind '{kind}'" if kind else "lacks 'kind'"
        msg = f"{where}: node '{name}' {what}; say '{ENDPOINT}' of what computes, '{SWITCH}' of the rest"
        raise ParameterError(msg)
    return kind


def _check_keys(attributes: Mapping[str, Any], known: tuple[str, ...], where: str, what: str) -> None:
    for key in attributes:
        if key not in known:
            msg = f"{where}: a {what} has no '{key}'; {nearest(key, known, noun='attribute')}"
            raise ParameterError(msg)


def _wiring(drawing: Drawing, vertex: dict[str, int]) -> tuple[Wiring, np.ndarray]:
    """Return the links of a drawing and the energy of a bit over each."""
    rows: list[tuple[int, int, float, float, float]] = []
    for edge in drawing.edges:
        where = drawing.where_edge(edge)
        _check_keys(edge.attributes, EDGE_KEYS, where, "edge")
        if edge.tail == edge.head:
            msg = f"{where}: edge {edge.title} leads back to where it begins; remove it, or name another end"
            raise ParameterError(msg)
        capacity = _needed(drawing, edge, "capacity_bytes_per_s")
        if capacity <= 0.0:
            msg = f"{where}: edge {edge.title}: capacity_bytes_per_s must be above 0; got {capacity:g}"
            raise ParameterError(msg)
        latency_s = _needed(drawing, edge, "latency_s")
        energy = drawing.number(edge.attributes, "energy_j_per_bit", where, default=0.0)
        ends = [(vertex[edge.tail], vertex[edge.head])]
        ends += [] if drawing.directed else [(vertex[edge.head], vertex[edge.tail])]
        rows += [(tail, head, capacity, latency_s, energy) for tail, head in ends]
    table = np.array(rows, dtype=float).reshape(-1, 5)
    wiring = Wiring(
        tails=table[:, 0].astype(np.int64),
        heads=table[:, 1].astype(np.int64),
        capacity_bytes_per_s=table[:, 2],
        latency_s=table[:, 3],
    )
    return wiring, table[:, 4]


def _needed(drawing: Drawing, edge: Edge, key: str) -> float:
    """Return a number that an edge, or the graph for all edges, must say."""
    where = drawing.where_edge(edge)
    if key in edge.attributes:
        return drawing.number(edge.attributes, key, where)
    if key not in drawing.attributes:
        msg = (
            f"{where}: edge {edge.title} lacks '{key}'; add it, in SI or as text with a unit, to the edge, "
            "or to the graph for all edges"
        )
        raise ParameterError(msg)
    return drawing.number(drawing.attributes, key, drawing.file)


def _node_size(drawing: Drawing, endpoints: int) -> int:
    size = drawing.number(drawing.attributes, "node_size", drawing.file, default=1.0)
    if size != int(size) or size < 1 or endpoints % int(size):
        msg = (
            f"{drawing.file}: node_size ({size:g}) must be a whole number that divides {endpoints} endpoints"
        )
        raise ParameterError(msg)
    return int(size)


def _check_connected(drawing: Drawing, wiring: Wiring, names: list[str], vertices: int) -> None:
    """Refuse a drawing of which an endpoint does not reach another."""
    ends = (wiring.tails, wiring.heads)
    graph = scipy.sparse.csr_matrix((np.ones(wiring.links), ends), shape=(vertices, vertices))
    _, part = scipy.sparse.csgraph.connected_components(graph, directed=True, connection="strong")
    apart = np.flatnonzero(part[: len(names)] != part[0])
    if apart.size:
        msg = (
            f"{drawing.file}: is disconnected: endpoints '{names[0]}' and '{names[int(apart[0])]}' do not "
            f"reach each other both ways ({apart.size} of {len(names)} are cut off); add edges, or drop them"
        )
        raise ParameterError(msg)


def _parts(drawing: Drawing, kinds: dict[str, str]) -> dict[str, BillItem]:
    """Return power and price of nodes of each kind and of edges, all on average."""
    where = {name: drawing.where_node(name) for name in drawing.nodes}
    found = {}
    for kind in (ENDPOINT, SWITCH):
        mine = [(drawing.nodes[name], where[name]) for name in kinds if kinds[name] == kind]
        found[kind] = _mean(drawing, mine)
    found["link"] = _mean(drawing, [(edge.attributes, drawing.where_edge(edge)) for edge in drawing.edges])
    return found


def _mean(drawing: Drawing, owners: list[tuple[Mapping[str, Any], str]]) -> BillItem:
    watts = [drawing.number(attributes, "static_w", where, default=0.0) for attributes, where in owners]
    usd = [drawing.number(attributes, "price_usd", where, default=0.0) for attributes, where in owners]
    count = max(1, len(owners))
    return BillItem(count=len(owners), w_each=sum(watts) / count, usd_each=sum(usd) / count)
