"""Graphs as files hold them: GraphML, or the node-link form of JSON, with where each thing stands."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from heliograph.errors import ParameterError
from heliograph.files import read_json, read_text
from heliograph.units import to_si

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
