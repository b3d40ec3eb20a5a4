"""Fabrics that are a fixed graph: links, routes and parts, stated in code or read from GraphML and JSON.

`GraphFabric` is what such fabrics have in common. Topologies in code give routes in closed form, so that tens
of thousands of endpoints cost arithmetic on arrays and no search; on other graphs `GraphRoutes` spreads flows
evenly over equally short paths. `detours` leads flows round links that failed. `load_graph` reads a fabric
from a file.
"""

from __future__ import annotations

import io
import itertools
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, Self
from xml.etree.ElementTree import ParseError

import numpy as np
import scipy

from simulator.errors import ParameterError, RouteError, is_number, nearest
from simulator.fabric import Fabric, Loads, route_loads
from simulator.files import line_at, read_json, read_text
from simulator.interfaces import Flows, LinkGraph, Wiring
from simulator.topology.scale_up import BillItem, ScaleUp
from simulator.units import BITS_PER_BYTE, QUANTITY, to_si

NO_LINK = -1
"""Padding of short routes."""


def bundle(
    tails: np.ndarray, heads: np.ndarray, *, rate_bytes_per_s: float | np.ndarray, latency_s: float
) -> Wiring:
    """Return links of one latency, and of one rate or given ones.

    Parameters
    ----------
    tails, heads : numpy.ndarray
        Vertices, shape [L].
    rate_bytes_per_s : float or numpy.ndarray
        Capacity of each, or of all, shape [L].
    latency_s : float
        Latency of each.
    """
    return Wiring(
        tails=np.asarray(tails, dtype=np.int64),
        heads=np.asarray(heads, dtype=np.int64),
        capacity_bytes_per_s=np.broadcast_to(np.asarray(rate_bytes_per_s, dtype=float), tails.shape),
        latency_s=np.full(tails.shape, float(latency_s)),
    )


def joined(parts: Sequence[Wiring]) -> Wiring:
    """Return the links of several wirings over the same vertices, numbered one after the other."""
    return Wiring(
        tails=np.concatenate([part.tails for part in parts]),
        heads=np.concatenate([part.heads for part in parts]),
        capacity_bytes_per_s=np.concatenate([part.capacity_bytes_per_s for part in parts]),
        latency_s=np.concatenate([part.latency_s for part in parts]),
    )


def both_ways(
    low: np.ndarray, high: np.ndarray, *, rate_bytes_per_s: float | np.ndarray, latency_s: float
) -> Wiring:
    """Return links as `bundle` does, first those from low to high, then as many from high to low."""
    return joined(
        [
            bundle(tails, heads, rate_bytes_per_s=rate_bytes_per_s, latency_s=latency_s)
            for tails, heads in ((low, high), (high, low))
        ]
    )


def node_links(scale_up: ScaleUp, endpoints: int, first: int) -> Wiring:
    """Return the links from each endpoint to its node's switch, then those back, E of each.

    Parameters
    ----------
    scale_up : ScaleUp
        The domain inside a node; each way takes half of its latency.
    endpoints : int
        Accelerators, the first vertices.
    first : int
        Vertex of the first node's switch.
    """
    every = np.arange(endpoints)
    return both_ways(
        every,
        first + scale_up.node_of(every),
        rate_bytes_per_s=scale_up.capacity_bytes_per_s,
        latency_s=scale_up.latency_s / 2,
    )


def packed(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return routes whose links come first and whose padding comes last.

    Parameters
    ----------
    columns : sequence of numpy.ndarray
        Link of each flow at each place of its route, `NO_LINK` where it has none there; shape [F] each.

    Returns
    -------
    numpy.ndarray
        Links of each flow, shape [F, H], padded with `NO_LINK`.
    """
    columns = [column for column in columns if (column != NO_LINK).any()] or columns[:1]
    crossed = [column != NO_LINK for column in columns]
    if not any((after & ~before).any() for before, after in itertools.pairwise(crossed)):
        return np.array(columns).T  # no gap stands before a link
    found = np.full((len(columns), len(columns[0])), NO_LINK)
    place = np.zeros(len(columns[0]), dtype=np.int64)
    for column, has_link in zip(columns, crossed, strict=True):
        flows = np.flatnonzero(has_link)
        found[place[flows], flows] = column[flows]
        place += has_link
    return found.T


def stacked(routes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the routes [F, H] of several sets of flows as one array, short ones padded with `NO_LINK`."""
    longest = max(one.shape[1] for one in routes)
    return np.concatenate(
        [np.pad(one, ((0, 0), (0, longest - one.shape[1])), constant_values=NO_LINK) for one in routes]
    )


def adjacency(wiring: Wiring, vertices: int) -> scipy.sparse.csr_matrix:
    """Return the number of links from each vertex (row) to each (column), shape [V, V]."""
    ends = (wiring.tails, wiring.heads)
    return scipy.sparse.csr_matrix((np.ones(wiring.links), ends), shape=(vertices, vertices))


MOST_DISTANCES = 2**24
"""Most distances between vertices that are held at a time, which bounds memory; a choice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphRoutes:
    """Routes with the fewest links, which spread flows over equally short ones.

    Notes
    -----
    Where m links lead on, a flow takes the one given by the remainder of its number modulo m, and keeps the
    quotient as its number for the next branch; at first the number is destination + endpoints x source. On a
    full fat-tree that is destination-modulo routing. Equal flows take equal routes in every run.

    References
    ----------
    Zahavi, J. Parallel Distrib. Comput. 72 (2012): destination-modulo routing.
    """

    wiring: Wiring
    """Links."""
    endpoints: int
    """Number of vertices that send and receive; they are the first ones."""

    @cached_property
    def _backwards(self) -> scipy.sparse.csr_matrix:
        """The graph with all links reversed, for distances to a destination."""
        return adjacency(self.wiring, self.wiring.vertices).T.tocsr()

    @cached_property
    def _out(self) -> np.ndarray:
        """Links out of each vertex, shape [V, most], padded with `NO_LINK`."""
        order = np.argsort(self.wiring.tails, kind="stable")
        tails = self.wiring.tails[order]
        degree = np.bincount(tails, minlength=self.wiring.vertices)
        place = np.arange(order.size) - np.repeat(np.cumsum(degree) - degree, degree)
        out = np.full((degree.size, int(degree.max(initial=0))), NO_LINK, dtype=np.int64)
        out[tails, place] = order
        return out

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links of each flow, shape [F, H], padded with `NO_LINK`.

        Raises
        ------
        RouteError
            If no path leads from a source to its destination.
        """
        ends, end_of = np.unique(destinations, return_inverse=True)
        step = max(1, MOST_DISTANCES // max(self.wiring.vertices, 1))
        found: list[tuple[np.ndarray, np.ndarray]] = []
        for start in range(0, ends.size, step):
            flows = np.flatnonzero((end_of >= start) & (end_of < start + step))
            distances = scipy.sparse.csgraph.dijkstra(
                self._backwards, indices=ends[start : start + step], unweighted=True
            )
            found.append(
                (flows, self._walk(sources[flows], destinations[flows], distances, end_of[flows] - start))
            )
        longest = max((links.shape[1] for _, links in found), default=0)
        routes = np.full((sources.size, longest), NO_LINK, dtype=np.int64)
        for flows, links in found:
            routes[flows, : links.shape[1]] = links
        return routes

    def _walk(
        self, sources: np.ndarray, destinations: np.ndarray, distances: np.ndarray, row: np.ndarray
    ) -> np.ndarray:
        """Return the links of flows, shape [F, H].

        Parameters
        ----------
        sources, destinations : numpy.ndarray
            Ends of the flows, shape [F].
        distances : numpy.ndarray
            Links from each vertex to some destinations, shape [D, V].
        row : numpy.ndarray
            Row of each flow's destination there, shape [F].
        """
        left = distances[row, sources]
        if np.isinf(left).any():
            lost = int(np.flatnonzero(np.isinf(left))[0])
            msg = f"no path leads from endpoint {sources[lost]} to {destinations[lost]}"
            raise RouteError(msg)
        hops = int(left.max(initial=0))
        links = np.full((sources.size, hops), NO_LINK, dtype=np.int64)
        place = sources.astype(np.int64)
        number = destinations + sources * np.int64(self.endpoints)
        for hop in range(hops):
            moving = np.flatnonzero(place != destinations)
            out = self._out[place[moving]]
            heads = self.wiring.heads[np.maximum(out, 0)]
            is_nearer = distances[row[moving][:, None], heads] == (left[moving] - hop - 1)[:, None]
            leads_on = is_nearer & (out != NO_LINK)
            count = leads_on.sum(axis=1)
            turn = number[moving] % count
            number[moving] //= count
            chosen = np.argmax(leads_on.cumsum(axis=1) > turn[:, None], axis=1)
            links[moving, hop] = out[np.arange(moving.size), chosen]
            place[moving] = heads[np.arange(moving.size), chosen]
        return links


def detours(wiring: Wiring, routes: np.ndarray, flows: Flows, failed: np.ndarray) -> np.ndarray:
    """Return routes on which flows avoid failed links by shortest paths.

    Parameters
    ----------
    wiring : Wiring
        All links.
    routes : numpy.ndarray
        Links of each flow while nothing has failed, shape [F, H], padded with `NO_LINK`.
    flows : Flows
        The flows.
    failed : numpy.ndarray
        Links that carry nothing, shape [n].

    Returns
    -------
    numpy.ndarray
        Shape [F, H']. A flow that has no path left keeps its route over the failed link, and so waits.

    Notes
    -----
    Endpoints may forward for others, as do those of a node for one whose own card failed. Flows are spread
    over equally short paths as in `GraphRoutes`.
    """
    alive = np.ones(wiring.links, dtype=bool)
    alive[failed] = False
    links = np.flatnonzero(alive)
    hit = np.flatnonzero((~alive[routes] & (routes != NO_LINK)).any(axis=1))
    if not hit.size or not links.size:
        return routes
    usable = wiring.part(links)
    hit = hit[_reached(usable, wiring.vertices, flows.sources[hit], flows.destinations[hit])]
    if not hit.size:
        return routes
    router = GraphRoutes(wiring=usable, endpoints=wiring.vertices)
    ways = router.paths(flows.sources[hit], flows.destinations[hit])
    found = np.full((len(routes), max(routes.shape[1], ways.shape[1])), NO_LINK, dtype=np.int64)
    found[:, : routes.shape[1]] = routes
    found[hit] = NO_LINK
    found[hit, : ways.shape[1]] = np.where(ways != NO_LINK, links[ways], NO_LINK)
    return found


def _reached(wiring: Wiring, vertices: int, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
    """Return whether a path leads from each source to its destination, shape [F]."""
    starts, which = np.unique(sources, return_inverse=True)
    distances = scipy.sparse.csgraph.dijkstra(adjacency(wiring, vertices), indices=starts, unweighted=True)
    reached: np.ndarray = np.isfinite(distances[which, destinations]) & (sources < wiring.vertices)
    return reached & (destinations < wiring.vertices)


def switch_links(wiring: Wiring, switch: int) -> np.ndarray:
    """Return the links that begin or end at a vertex."""
    return np.flatnonzero((wiring.tails == switch) | (wiring.heads == switch))


def port_links(wiring: Wiring, endpoint: int, lane: int) -> np.ndarray:
    """Return the links of an endpoint's port in both directions; none if it has no such lane.

    Parameters
    ----------
    wiring : Wiring
        All links.
    endpoint : int
        The endpoint.
    lane : int
        Place of the link among those that leave the endpoint, in the wiring's order, from 0.
    """
    leaving = np.flatnonzero(wiring.tails == endpoint)
    if lane >= leaving.size:
        return np.empty(0, dtype=np.int64)
    out = leaving[lane]
    twins = np.flatnonzero((wiring.tails == wiring.tails[out]) & (wiring.heads == wiring.heads[out]))
    back = np.flatnonzero((wiring.tails == wiring.heads[out]) & (wiring.heads == endpoint))
    place = int(np.flatnonzero(twins == out)[0])
    return np.unique(np.concatenate([[out], back[place : place + 1]]))


def shared_loads(ways: list[np.ndarray], latency_s: np.ndarray, flows: Flows) -> Loads:
    """Return the loads of flows that are split equally over several sets of routes, shape [F, H] each."""
    if len(ways) == 1:
        return route_loads(ways[0], latency_s, flows.weights)
    weights = np.ones(len(flows.sources)) if flows.weights is None else flows.weights
    share = np.tile(weights / len(ways), len(ways))
    return route_loads(stacked(ways), latency_s, share)


class GraphFabric(Fabric, Protocol):
    """Fabric whose links never change: a topology says `wiring`, `paths` and `transfer_energy_j`."""

    @property
    @abstractmethod
    def wiring(self) -> Wiring:
        """Links between endpoints and switches."""
        ...

    @abstractmethod
    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links from sources to other endpoints, shape [F, H], padded with `NO_LINK`."""
        ...

    @cached_property
    def _link_graph(self) -> LinkGraph:
        return self.wiring.graph()

    def graph(self, circuits: None) -> LinkGraph:
        """Return the links, which never change."""
        return self._link_graph

    def route(self, circuits: None, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, H]; a flow to itself has none."""
        moving = flows.sources != flows.destinations
        found = self.paths(flows.sources[moving], flows.destinations[moving])
        if moving.all():
            return found
        links = np.full((moving.size, found.shape[1]), NO_LINK, dtype=np.int64)
        links[moving] = found
        return links

    def around(self, circuits: None, flows: Flows, failed: np.ndarray) -> np.ndarray:
        """Return the links of each flow as `route` does, past failed links where a way is left."""
        return detours(self.wiring, self.route(circuits, flows), flows, failed)

    @property
    def views(self) -> tuple[Self, ...]:
        """The fabric as each equal share of a flow is routed; itself alone where a flow has one path."""
        return (self,)

    def loads(self, circuits: None, flows: Flows) -> Loads:
        """Return the loads of flows of equal rate on links, each share of a flow on a path of its own."""
        ways = [view.route(circuits, flows) for view in self.views]
        return shared_loads(ways, self._link_graph.latency_s, flows)

    def loads_around(self, circuits: None, flows: Flows, failed: np.ndarray) -> Loads:
        """Return the loads as `loads` does, with flows led round failed links, shape [n]."""
        ways = [view.around(circuits, flows, failed) for view in self.views]
        return shared_loads(ways, self._link_graph.latency_s, flows)

    def wired(self, circuits: None) -> Wiring:
        """Return the links, whose ends never change."""
        return self.wiring


_RESERVED = ("directed", "multigraph", "graph", "nodes", "links", "edges")


@dataclass(frozen=True, kw_only=True)
class Edge:
    """An edge of a drawing."""

    tail: str
    """Node at which it begins."""
    head: str
    """Node at which it ends."""
    attributes: Mapping[str, Any]
    """Its attributes as the file has them."""
    where: str
    """Place for messages: file and line, or file and key."""

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
    """Attributes of the graph."""
    nodes: Mapping[str, Mapping[str, Any]]
    """Attributes of each node, in the order of the file."""
    where: Mapping[str, str]
    """Place of each node for messages, as `Edge.where`."""
    edges: tuple[Edge, ...]
    """Edges, in the order of the file."""


def _number(attributes: Mapping[str, Any], key: str, where: str, default: float | None = None) -> float:
    """Return an attribute in SI.

    Parameters
    ----------
    attributes : mapping
        Attributes of a node, an edge or the graph.
    key : str
        Its name, whose suffix is the unit.
    where : str
        Place for the message.
    default : float, optional
        Value of a missing attribute.

    Raises
    ------
    ParameterError
        If it is no number that is at least 0, or its unit does not fit.
    """
    value = attributes.get(key, default)
    found = QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if not (is_number(value) or found):
        msg = f"{where}: '{key}' must be a number, or text with a unit such as '50 GB/s'; got {value!r}"
        raise ParameterError(msg)
    try:
        number = float(found["number"] if found else value)  # type: ignore[arg-type]
        if found and found["unit"]:
            number = to_si(key, number, found["unit"])
    except ParameterError as error:
        msg = f"{where}: '{key}': {error}"
        raise ParameterError(msg) from error
    if not 0.0 <= number < float("inf"):
        msg = f"{where}: '{key}' must be finite and at least 0; got {number:g}"
        raise ParameterError(msg)
    return number


def _graphml(path: Path) -> Drawing:
    """Return the graph of a GraphML file."""
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
    lines = {
        found[1]: line_at(text, found.start())
        for found in re.finditer(r"<node\b[^>]*?\bid\s*=\s*[\"']([^\"']*)[\"']", text)
    }
    lines_left = _edge_lines(path, text, lines)
    edges = []
    for tail, head, attributes in graph.edges(data=True):
        ends = (str(tail), str(head))
        left = lines_left.get(frozenset(ends), [])
        where = f"{path.name}:{left.pop(0) if left else 1}"
        edges.append(Edge(tail=ends[0], head=ends[1], attributes=_without_id(attributes), where=where))
    nodes = {str(name): dict(attributes) for name, attributes in graph.nodes(data=True)}
    return Drawing(
        file=path.name,
        directed=graph.is_directed(),
        attributes={key: value for key, value in graph.graph.items() if not key.endswith("_default")},
        nodes=nodes,
        where={name: f"{path.name}:{lines.get(name, 1)}" for name in nodes},
        edges=tuple(edges),
    )


def _edge_lines(path: Path, text: str, nodes: Mapping[str, int]) -> dict[frozenset[str], list[int]]:
    """Return the lines of a GraphML file on which the edges between two nodes begin, by the pair of nodes.

    Raises
    ------
    ParameterError
        If an edge names a node that the file does not have.
    """
    lines: dict[frozenset[str], list[int]] = {}
    for tag in re.finditer(r"<edge\b[^>]*>", text):
        ends, line = _ends(tag[0]), line_at(text, tag.start())
        missing = [end for end in ends if end not in nodes]
        if missing:
            msg = f"{path.name}:{line}: an edge must name two nodes as source and target; no '{missing[0]}'"
            raise ParameterError(msg)
        lines.setdefault(frozenset(ends), []).append(line)
    return lines


def _line_of_value(text: str, message: str) -> str:
    """Return ``:line`` of the value that an error message quotes, if a text has it in one place only."""
    quoted = re.search(r"'([^']+)'", message)
    places = [] if quoted is None else list(re.finditer(rf">\s*{re.escape(quoted[1])}\s*<", text))
    return f":{line_at(text, places[0].start())}" if len(places) == 1 else ""


def _ends(tag: str) -> tuple[str, str]:
    """Return the nodes that an edge's tag names."""
    found = dict(re.findall(r"\b(source|target)\s*=\s*[\"']([^\"']*)[\"']", tag))
    return found.get("source", ""), found.get("target", "")


def _without_id(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if key != "id"}


def _node_link(path: Path) -> Drawing:
    """Return the graph of a JSON file in node-link form."""
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
        attributes = {name: value for name, value in edge.items() if name not in {"source", "target", "key"}}
        where = f"{path.name}: {key}[{index}]"
        edges.append(Edge(tail=ends[0], head=ends[1], attributes=attributes, where=where))
    graph = content.get("graph", {})
    own = {name: value for name, value in content.items() if name not in _RESERVED}
    return Drawing(
        file=path.name,
        directed=bool(content.get("directed", False)),
        attributes={**(graph if isinstance(graph, dict) else {}), **own},
        nodes=nodes,
        where={name: f"{path.name}: nodes[{index}]" for index, name in enumerate(nodes)},
        edges=tuple(edges),
    )


ENDPOINT, SWITCH = "endpoint", "switch"
"""Values of a node's ``kind``."""
NODE_KEYS = ("kind", "static_w", "price_usd", "label")
"""Attributes that a node may have."""
EDGE_KEYS = ("capacity_bytes_per_s", "latency_s", "energy_j_per_bit", "static_w", "price_usd", "label")
"""Attributes that an edge may have; the first two it must have, or the graph for all edges."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnFabric(GraphFabric):
    """Network that a file describes as a graph.

    Notes
    -----
    Endpoints are numbered in the order of the file. An undirected edge is a link each way, of the edge's
    capacity each time. Power and price of nodes and edges are those of the file, 0 where it has none.
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

    @cached_property
    def _direct(self) -> scipy.sparse.csr_array:
        """Rate of the link from endpoint straight to endpoint, of several that a flow takes, shape [E, E]."""
        ends = np.stack([self.links.tails, self.links.heads])
        tails, heads = np.unique(ends[:, (ends < self.endpoints).all(axis=0)], axis=1)
        taken = self.paths(tails, heads)[:, 0] if tails.size else np.empty(0, dtype=np.int64)
        rates = self.links.capacity_bytes_per_s[taken]
        return scipy.sparse.csr_array((rates, (tails, heads)), shape=(self.endpoints,) * 2)

    def direct_rates(self, circuits: None, group: np.ndarray) -> np.ndarray:
        """Return the rate of the link straight from each member of a group to each other, shape [n, n]."""
        return self._direct[group][:, group].toarray()

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        return self.parts

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once, over every link of their routes."""
        links = self.route(None, flows)
        if flows.weights is None:
            return (
                flows.size_bytes * BITS_PER_BYTE * float(self.energy_j_per_bit[links[links != NO_LINK]].sum())
            )
        per_bit_j = np.where(links == NO_LINK, 0.0, self.energy_j_per_bit[links]).sum(axis=1)
        return flows.moved_bytes(per_bit_j) * BITS_PER_BYTE


def load_graph(path: Path, *, endpoints: int | None = None) -> DrawnFabric:
    """Return the fabric that a file describes.

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
    readers = {".graphml": _graphml, ".xml": _graphml, ".json": _node_link}
    if path.suffix.lower() not in readers:
        msg = f"{path.name}: a graph is read from .graphml or .json (node-link form); name such a file"
        raise ParameterError(msg)
    drawing = readers[path.suffix.lower()](path)
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
    """Return whether a node is an endpoint or a switch."""
    attributes = drawing.nodes[name]
    where = drawing.where[name]
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
    """Return the links of a drawing, and the energy in J of a bit over each, shape [L]."""
    rows: list[tuple[int, int, float, float, float]] = []
    for edge in drawing.edges:
        where = edge.where
        _check_keys(edge.attributes, EDGE_KEYS, where, "edge")
        if edge.tail == edge.head:
            msg = f"{where}: edge {edge.title} leads back to where it begins; remove it, or name another end"
            raise ParameterError(msg)
        capacity = _needed(drawing, edge, "capacity_bytes_per_s")
        if capacity <= 0.0:
            msg = f"{where}: edge {edge.title}: capacity_bytes_per_s must be above 0; got {capacity:g}"
            raise ParameterError(msg)
        latency_s = _needed(drawing, edge, "latency_s")
        energy = _number(edge.attributes, "energy_j_per_bit", where, default=0.0)
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
    """Return an attribute that an edge must have, or the graph for all edges."""
    if key in edge.attributes:
        return _number(edge.attributes, key, edge.where)
    if key not in drawing.attributes:
        msg = (
            f"{edge.where}: edge {edge.title} lacks '{key}'; add it, in SI or as text with a unit, to the "
            "edge, or to the graph for all edges"
        )
        raise ParameterError(msg)
    return _number(drawing.attributes, key, drawing.file)


def _node_size(drawing: Drawing, endpoints: int) -> int:
    size = _number(drawing.attributes, "node_size", drawing.file, default=1.0)
    if size != int(size) or size < 1 or endpoints % int(size):
        msg = (
            f"{drawing.file}: node_size ({size:g}) must be a whole number that divides {endpoints} endpoints"
        )
        raise ParameterError(msg)
    return int(size)


def _check_connected(drawing: Drawing, wiring: Wiring, names: list[str], vertices: int) -> None:
    """Raise a ParameterError if some endpoint does not reach all others."""
    graph = adjacency(wiring, vertices)
    _, part = scipy.sparse.csgraph.connected_components(graph, directed=True, connection="strong")
    apart = np.flatnonzero(part[: len(names)] != part[0])
    if apart.size:
        msg = (
            f"{drawing.file}: is disconnected: endpoints '{names[0]}' and '{names[int(apart[0])]}' do not "
            f"reach each other both ways ({apart.size} of {len(names)} are cut off); add edges, or drop them"
        )
        raise ParameterError(msg)


def _parts(drawing: Drawing, kinds: dict[str, str]) -> dict[str, BillItem]:
    """Return the bill of a drawing: nodes of each kind and edges, with mean power and price."""
    found = {}
    for kind in (ENDPOINT, SWITCH):
        found[kind] = _mean(
            [(drawing.nodes[name], drawing.where[name]) for name in kinds if kinds[name] == kind]
        )
    found["link"] = _mean([(edge.attributes, edge.where) for edge in drawing.edges])
    return found


def _mean(owners: list[tuple[Mapping[str, Any], str]]) -> BillItem:
    """Return a bill's item of nodes or edges, each given by its attributes and its place for messages."""
    watts = [_number(attributes, "static_w", where, default=0.0) for attributes, where in owners]
    usd = [_number(attributes, "price_usd", where, default=0.0) for attributes, where in owners]
    count = max(1, len(owners))
    given = {key for attributes, _ in owners for key in attributes}
    keys = {"w_each": "static_w", "usd_each": "price_usd"}
    return BillItem(
        count=len(owners),
        w_each=sum(watts) / count,
        usd_each=sum(usd) / count,
        untold=tuple(name for name, key in keys.items() if owners and key not in given),
    )
