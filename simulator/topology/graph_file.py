"""Networks from a file: GraphML or JSON node-link, checked with file and key, routed on shortest paths."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import numpy as np
import scipy

from simulator.errors import ParameterError, nearest
from simulator.files import read_json, read_text
from simulator.interfaces import Flows, Wiring
from simulator.topology.graphs import NO_LINK, GraphFabric, GraphRoutes
from simulator.topology.scale_up import BillItem
from simulator.units import BITS_PER_BYTE, to_si

_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*")
_RESERVED = ("directed", "multigraph", "graph", "nodes", "links", "edges")


@dataclass(frozen=True, kw_only=True)
class Edge:
    """An edge of a drawing."""

    tail: str
    """Node at which it begins."""
    head: str
    """Node at which it ends."""
    attributes: Mapping[str, Any]
    """What it says."""
    index: int
    """Place among the edges of the file."""

    @property
    def title(self) -> str:
        """The edge as an error names it."""
        return f"'{self.tail}' - '{self.head}'"


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A graph as a file holds it."""

    file: str
    """Name of the file."""
    directed: bool
    """Whether edges lead one way only."""
    attributes: Mapping[str, Any]
    """What the graph says."""
    nodes: Mapping[str, Mapping[str, Any]]
    """What each node says, in the order of the file."""
    edges: tuple[Edge, ...]
    """Edges, in the order of the file."""
    node_lines: Mapping[str, int] = field(default_factory=dict)
    """Line on which each node begins, where the format tells."""
    edge_lines: tuple[int, ...] = ()
    """Line on which each edge begins, where the format tells."""
    edge_key: str = "links"
    """What the file calls its edges."""

    def where_node(self, name: str) -> str:
        """Return where a node stands: file and line, or file and key."""
        if name in self.node_lines:
            return f"{self.file}:{self.node_lines[name]}"
        return f"{self.file}: nodes[{list(self.nodes).index(name)}]"

    def where_edge(self, edge: Edge) -> str:
        """Return where an edge stands: file and line, or file and key."""
        if edge.index < len(self.edge_lines):
            return f"{self.file}:{self.edge_lines[edge.index]}"
        return f"{self.file}: {self.edge_key}[{edge.index}]"

    def number(
        self, attributes: Mapping[str, Any], key: str, where: str, default: float | None = None
    ) -> float:
        """Return an attribute in SI.

        Parameters
        ----------
        attributes : mapping
            Of a node, an edge or the graph.
        key : str
            Its name, whose suffix is the unit.
        where : str
            Place for the message.
        default : float, optional
            What stands for a missing one.

        Raises
        ------
        ParameterError
            If it is no number that is at least 0, or its unit does not fit.
        """
        value = attributes.get(key, default)
        found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
        if isinstance(value, bool) or not (isinstance(value, int | float) or found):
            msg = f"{where}: '{key}' must be a number, or text with a unit such as '50 GB/s'; got {value!r}"
            raise ParameterError(msg)
        try:
            number = (
                to_si(key, float(found[1]), found[2])
                if found and found[2]
                else float(found[1] if found else value)  # type: ignore[arg-type]
            )
        except ParameterError as error:
            msg = f"{where}: '{key}': {error}"
            raise ParameterError(msg) from error
        if not 0.0 <= number < float("inf"):
            msg = f"{where}: '{key}' must be finite and at least 0; got {number:g}"
            raise ParameterError(msg)
        return number


def read_drawing(path: Path) -> Drawing:
    """Return the graph of a file.

    Parameters
    ----------
    path : pathlib.Path
        ``.graphml`` or ``.xml``, or ``.json`` in node-link form.

    Raises
    ------
    ParameterError
        If the file is missing, of another kind, or no such graph.
    """
    match path.suffix.lower():
        case ".graphml" | ".xml":
            return _graphml(path)
        case ".json":
            return _node_link(path)
        case _:
            msg = f"{path.name}: a graph is read from .graphml or .json (node-link form); name such a file"
            raise ParameterError(msg)


def _graphml(path: Path) -> Drawing:
    import networkx as nx  # noqa: PLC0415 - only who reads such a file waits for it

    text = read_text(path)
    if "<!ENTITY" in text:
        msg = f"{path.name}: defines entities, which a graph does not need; remove them"
        raise ParameterError(msg)
    try:
        graph = nx.read_graphml(io.BytesIO(text.encode()), force_multigraph=True)
    except ParseError as error:
        line, column = error.position
        msg = f"{path.name}:{line}: not XML (column {column}): {error.msg.split(':')[0]}"
        raise ParameterError(msg) from None
    except (nx.NetworkXError, ValueError, KeyError, TypeError) as error:
        msg = f"{path.name}{_line_of_value(text, str(error))}: not GraphML: {error}"
        raise ParameterError(msg) from None
    nodes = {str(name): dict(attributes) for name, attributes in graph.nodes(data=True)}
    lines = {
        found[1]: text.count("\n", 0, found.start()) + 1
        for found in re.finditer(r"<node\b[^>]*?\bid\s*=\s*[\"']([^\"']*)[\"']", text)
    }
    ends = [_ends(found[0]) for found in re.finditer(r"<edge\b[^>]*>", text)]
    starts = [text.count("\n", 0, found.start()) + 1 for found in re.finditer(r"<edge\b", text)]
    for pair, line in zip(ends, starts, strict=True):
        missing = [end for end in pair if end not in lines]
        if missing:
            msg = f"{path.name}:{line}: an edge must name two nodes as source and target; no '{missing[0]}'"
            raise ParameterError(msg)
    edges, edge_lines = [], []
    left: dict[frozenset[str], list[int]] = {}
    for pair, line in zip(ends, starts, strict=True):
        left.setdefault(frozenset(pair), []).append(line)
    for index, (tail, head, attributes) in enumerate(graph.edges(data=True)):
        edges.append(Edge(tail=str(tail), head=str(head), attributes=_without_id(attributes), index=index))
        known = left.get(frozenset((str(tail), str(head))), [])
        edge_lines.append(known.pop(0) if known else 1)
    return Drawing(
        file=path.name,
        directed=graph.is_directed(),
        attributes={key: value for key, value in graph.graph.items() if not key.endswith("_default")},
        nodes=nodes,
        edges=tuple(edges),
        node_lines=lines,
        edge_lines=tuple(edge_lines),
    )


def _line_of_value(text: str, message: str) -> str:
    """Return ``:line`` of the text that a message quotes, if it stands in one place only."""
    quoted = re.search(r"'([^']+)'", message)
    lines = [] if quoted is None else list(re.finditer(rf">\s*{re.escape(quoted[1])}\s*<", text))
    return f":{text.count(chr(10), 0, lines[0].start()) + 1}" if len(lines) == 1 else ""


def _ends(tag: str) -> tuple[str, str]:
    """Return the nodes that an edge's tag names."""
    found = dict(re.findall(r"\b(source|target)\s*=\s*[\"']([^\"']*)[\"']", tag))
    return found.get("source", ""), found.get("target", "")


def _without_id(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if key != "id"}


def _node_link(path: Path) -> Drawing:
    content = read_json(path)
    key = "edges" if "edges" in content else "links"
    for needed in ("nodes", key):
        if not isinstance(content.get(needed), list):
            msg = f"{path.name}: key '{needed}' must hold a list (node-link form: nodes, and edges or links)"
            raise ParameterError(msg)
    nodes: dict[str, dict[str, Any]] = {}
    for index, node in enumerate(content["nodes"]):
        name = str(node["id"]) if isinstance(node, dict) and "id" in node else None
        if name is None or name in nodes:
            what = "lacks 'id'" if name is None else f"repeats the id '{name}'"
            msg = f"{path.name}: nodes[{index}] {what}; give every node one of its own"
            raise ParameterError(msg)
        nodes[name] = _without_id(node)
    edges = []
    for index, edge in enumerate(content[key]):
        ends = [str(edge.get(end)) for end in ("source", "target")] if isinstance(edge, dict) else [""]
        missing = [end for end in ends if end not in nodes]
        if missing:
            msg = f"{path.name}: {key}[{index}] must name two nodes as source and target; no '{missing[0]}'"
            raise ParameterError(msg)
        said = {name: value for name, value in edge.items() if name not in {"source", "target", "key"}}
        edges.append(Edge(tail=ends[0], head=ends[1], attributes=said, index=index))
    graph = content.get("graph", {})
    own = {name: value for name, value in content.items() if name not in _RESERVED}
    return Drawing(
        file=path.name,
        directed=bool(content.get("directed", False)),
        attributes={**(graph if isinstance(graph, dict) else {}), **own},
        nodes=nodes,
        edges=tuple(edges),
        edge_key=key,
    )


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
    def wiring(self) -> Wiring:
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
