"""Failures of ports, switches, nodes and links during a step, their repair, and spares that take over."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.errors import Checked, Efficiency, ParameterError, RouteError
from simulator.fabric import Fabric, Loads, PortOwner, Ports
from simulator.interfaces import Circuits, Flows, LinkGraph, Wiring
from simulator.topology.graphs import port_links, switch_links


@dataclass(frozen=True, kw_only=True)
class FailedParts:
    """Links, endpoints and circuit ports that fail together, by number, as `Failure` takes them."""

    links: tuple[int, ...] = ()
    """Links."""
    endpoints: tuple[int, ...] = ()
    """Endpoints."""
    ports: tuple[int, ...] = ()
    """Ports of circuits."""


def failed_parts(
    fabric: Fabric, *, ports: Sequence[Sequence[int]], switches: Sequence[int], nodes: Sequence[int]
) -> FailedParts:
    """Return the links, endpoints and circuit ports that fail with ports, switches or nodes.

    Parameters
    ----------
    fabric : Fabric
        Fabric of the parts.
    ports : sequence
        Pairs (endpoint, lane): the lane-th link of the endpoint in the wiring's order, which fails in both
        directions. If circuits begin at nodes, pairs (node, card).
    switches : sequence of int
        Switches, all of whose links fail: optical switches numbered from 0, or in a fixed wiring the vertices
        that are no endpoints.
    nodes : sequence of int
        Nodes, all of whose endpoints and circuit ports fail.

    Raises
    ------
    ParameterError
        If a part does not exist.
    RouteError
        If the fabric's links have no fixed ends, nor its circuits ports.
    """
    size, known = fabric.node_size, fabric.traits.ports
    _check("node", nodes, range(fabric.endpoints // size), fabric)
    endpoints = tuple(endpoint for node in nodes for endpoint in range(node * size, (node + 1) * size))
    if known is not None and known.circuits:
        owners = endpoints if known.owner is PortOwner.ENDPOINT else nodes
        failed = [owner * known.lanes + lane for owner in owners for lane in range(known.lanes)]
        failed += [*numbered(fabric, ports), *_ports_of_switches(fabric, known, switches)]
        return FailedParts(endpoints=endpoints, ports=tuple(sorted(set(failed))))
    if not ports and not switches:
        return FailedParts(endpoints=endpoints)
    wiring = fabric.wired(fabric.initial(()))
    if known is not None:
        _check("switch", switches, range(known.switches or 0), fabric)
        links = [fabric.switch_links(switch) for switch in switches]
        links += [fabric.port_links(*divmod(port, known.lanes)) for port in numbered(fabric, ports)]
    elif wiring is not None:
        links = _wired_links(wiring, fabric, ports, switches)
    else:
        msg = (
            f"{fabric.name} has no fixed wiring to name ports or switches in; name links, endpoints or nodes"
        )
        raise RouteError(msg)
    return FailedParts(links=tuple(np.unique(np.concatenate(links)).tolist()), endpoints=endpoints)


def numbered(fabric: Fabric, ports: Sequence[Sequence[int]]) -> list[int]:
    """Return the numbers of ports that are given as pairs (owner, lane).

    Raises
    ------
    ParameterError
        If a port does not exist.
    RouteError
        If the fabric has no ports that are numbered.
    """
    known = fabric.traits.ports
    if known is None:
        msg = f"{fabric.name} has no ports with spares; give the failure a repair_s"
        raise RouteError(msg)
    numbers = []
    for port in ports:
        owner, lane = _pair(port)
        _check(str(known.owner), [owner], range(known.owners), fabric)
        _check(f"port of {known.owner} {owner}", [lane], range(known.lanes), fabric)
        numbers.append(owner * known.lanes + lane)
    return numbers


def _ports_of_switches(fabric: Fabric, known: Ports, switches: Sequence[int]) -> list[int]:
    """Return the circuit ports that fail with optical switches."""
    if switches and known.switches is None:
        msg = f"{fabric.name} has no switches apart from its {known.owner}s; name ports or nodes"
        raise RouteError(msg)
    _check("switch", switches, range(known.switches or 0), fabric)
    return [port for switch in switches for port in fabric.switch_ports(switch).tolist()]


def _wired_links(
    wiring: Wiring, fabric: Fabric, ports: Sequence[Sequence[int]], switches: Sequence[int]
) -> list[np.ndarray]:
    """Return the links that fail with switches and ports of a fixed wiring."""
    _check("switch", switches, range(fabric.endpoints, wiring.vertices), fabric)
    links = [switch_links(wiring, switch) for switch in switches]
    for port in ports:
        endpoint, lane = _pair(port)
        _check("endpoint", [endpoint], range(fabric.endpoints), fabric)
        _check(f"port of endpoint {endpoint}", [lane], range(int((wiring.tails == endpoint).sum())), fabric)
        links.append(port_links(wiring, endpoint, lane))
    return links


def _pair(port: Sequence[int]) -> tuple[int, int]:
    if len(port) != 2 or not all(type(number) is int for number in port):
        msg = f"a port is a pair of endpoint and lane, both whole numbers; got {port}"
        raise ParameterError(msg)
    return port[0], port[1]


def _check(kind: str, numbers: Sequence[int], known: range, fabric: Fabric) -> None:
    for number in numbers:
        if number not in known:
            choices = f"{known.start} to {known.stop - 1}" if known else "none"
            msg = f"{fabric.name} has no {kind} {number}; choices: {choices}"
            raise ParameterError(msg)


@dataclass(frozen=True, kw_only=True)
class Failure(Checked):
    """Failure of links, endpoints or circuit ports at an instant of a run.

    A failed port counts by its link, a failed switch by its links, a failed accelerator or node by its
    endpoints.
    """

    time_s: float
    """Instant of the failure, from the start of the run."""
    links: tuple[int, ...] = ()
    """Links that fail."""
    endpoints: tuple[int, ...] = ()
    """Endpoints that fail, with the links that leave them."""
    ports: tuple[int, ...] = ()
    """Circuit ports that fail, in both directions (`simulator.fabric.Ports`)."""
    share: Efficiency = 1.0
    """Share of each link's capacity that is lost, dimensionless; below 1 if a link stands for several
    parallel ones of which some fail."""
    repair_s: float | None = None
    """Instant of the repair, from the start of the run; None if there is none."""
    spares: tuple[int, ...] = ()
    """Endpoints that replace the failed ones, in their order; hot spares, which hold the same state."""
    takeover_s: float = 0.0
    """Time from the failure until the spares have taken over."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.links and not self.endpoints and not self.ports:
            msg = f"failure at {self.time_s:g} s: name the links or the endpoints or the ports that fail"
            raise ParameterError(msg)
        if self.share < 1.0 and (self.endpoints or self.ports):
            msg = f"failure at {self.time_s:g} s: only links can lose a share ({self.share:g}) of themselves"
            raise ParameterError(msg)
        if self.repair_s is not None and not self.time_s < self.repair_s < math.inf:
            msg = f"failure: repair_s must be after time_s ({self.time_s:g}); got {self.repair_s:g}"
            raise ParameterError(msg)
        if self.spares and len(self.spares) != len(self.endpoints):
            msg = f"failure: {len(self.endpoints)} endpoints need as many spares; got {len(self.spares)}"
            raise ParameterError(msg)


def endpoint_links(fabric: Fabric, circuits: Circuits, endpoint: int) -> np.ndarray:
    """Return the first links of an endpoint's routes to all others, its own ports.

    Raises
    ------
    RouteError
        If there is no such endpoint.
    """
    if not 0 <= endpoint < fabric.endpoints:
        msg = f"endpoint {endpoint} cannot fail: {fabric.name} has endpoints 0 to {fabric.endpoints - 1}"
        raise RouteError(msg)
    peers = np.delete(np.arange(fabric.endpoints), endpoint)
    flows = _to(peers, endpoint)
    if not fabric.connected(circuits, flows):
        lit = [peer for peer in peers if fabric.connected(circuits, _to(np.array([peer]), endpoint))]
        flows = _to(np.array(lit, dtype=np.int64), endpoint)
    routes = fabric.route(circuits, flows)
    return np.unique([int(route[route >= 0][0]) for route in routes if (route >= 0).any()]).astype(np.int64)


def _to(peers: np.ndarray, endpoint: int) -> Flows:
    return Flows(sources=np.full(peers.size, endpoint), destinations=peers, size_bytes=0.0)


_WHOLE = 1.0 - 1e-9
"""Lost share of a link from which it counts as dead; below one because of rounding."""


class Outages:
    """State of a fabric under failures: those that are present, and the spares that have taken over.

    Parameters
    ----------
    fabric : Fabric
        The fabric.
    circuits
        Its circuits at the start of the run.
    failures : tuple of Failure
        All failures of the run.

    Attributes
    ----------
    expected : bool
        Whether the run has any failures at all.
    dead : numpy.ndarray
        Whether each of the L links is dead now, shape [L].
    ports : numpy.ndarray
        Circuit ports that are down now, shape [n].

    Raises
    ------
    RouteError
        If a failure names links, ports, endpoints or spares that the fabric does not have.
    """

    def __init__(self, fabric: Fabric, circuits: Circuits, failures: tuple[Failure, ...]) -> None:
        self.expected = bool(failures)
        self._fabric = fabric
        self._links = fabric.graph(circuits).capacity_bytes_per_s.size
        self._dead_links = {}
        for failure in failures:
            links = [endpoint_links(fabric, circuits, one) for one in failure.endpoints]
            dead = np.unique(np.concatenate([np.array(failure.links, dtype=np.int64), *links]))
            self._dead_links[failure] = dead
            self._check(failure, dead)
        self._now: Counter[Failure] = Counter()
        self._lost = np.zeros(self._links)
        self.dead = np.zeros(self._links, dtype=bool)
        self._down = np.zeros(fabric.endpoints, dtype=bool)
        self._instead = np.arange(fabric.endpoints)
        self.ports = np.empty(0, dtype=np.int64)

    def _check(self, failure: Failure, links: np.ndarray) -> None:
        known = self._fabric.traits.ports
        ports = known.count if known and known.circuits else 0
        if failure.ports and not ports:
            msg = f"{self._fabric.name} has no circuits whose ports could fail; name links or endpoints"
            raise RouteError(msg)
        for kind, names, count in (
            ("link", links, self._links),
            ("port", np.array(failure.ports), ports),
            ("spare", np.array(failure.spares), self._fabric.endpoints),
        ):
            if names.size and not 0 <= names.min() <= names.max() < count:
                worst = names.min() if names.min() < 0 else names.max()
                msg = f"{self._fabric.name} has no {kind} {worst}; they are numbered 0 to {count - 1}"
                raise RouteError(msg)

    def begin(self, failure: Failure) -> None:
        """Apply a failure."""
        self._now[failure] += 1
        self._update()

    def end(self, failure: Failure) -> None:
        """Remove a failure; parts that another failure took stay down."""
        self._now[failure] -= 1
        self._update()

    def _update(self) -> None:
        now = list(self._now.elements())
        self._lost[:] = 0.0
        self._down[:] = False
        for failure in now:
            self._lost[self._dead_links[failure]] += failure.share
            self._down[list(failure.endpoints)] = True
        self.dead = self._lost >= _WHOLE
        self.ports = np.unique([port for failure in now for port in failure.ports]).astype(np.int64)

    def take_over(self, failure: Failure) -> None:
        """Replace a failure's endpoints by its spares."""
        spare_of = np.arange(self._instead.size)
        spare_of[list(failure.endpoints)] = failure.spares
        self._instead = spare_of[self._instead]

    def loads(self, circuits: Circuits, flows: Flows) -> Loads:
        """Return the loads of connected flows on links, rerouted around dead links if the fabric can."""
        loads = self._fabric.loads(circuits, flows)
        if not self.dead[loads.links].any():
            return loads
        return self._fabric.loads_around(circuits, flows, np.flatnonzero(self.dead))

    def placed(self, flows: Flows) -> Flows:
        """Return flows with failed endpoints replaced by their spares."""
        if not self.expected:
            return flows
        return flows.moved_to(self._instead)

    def all_placed(self, several: tuple[Flows, ...]) -> tuple[Flows, ...]:
        """Return several groups of flows, each as `placed` does."""
        return tuple(map(self.placed, several))

    def left(self, graph: LinkGraph) -> LinkGraph:
        """Return links with reduced capacity where a share of them is lost; dead links keep theirs."""
        reduced = (self._lost > 0.0) & ~self.dead
        if not reduced.any():
            return graph
        remaining = np.where(reduced, 1.0 - self._lost, 1.0)
        return replace(graph, capacity_bytes_per_s=graph.capacity_bytes_per_s * remaining)

    def holds(self, flows: Flows, links: np.ndarray) -> bool:
        """Return whether a failure holds flows up: one of their ends is down, or one of their links dead."""
        ends = self._down[flows.sources].any() or self._down[flows.destinations].any()
        return bool(ends or self.dead[links].any())

    def named(self, flows: Flows, links: np.ndarray) -> str:
        """Return the name of the failed part that flows wait for, for a message."""
        ends = np.concatenate((flows.sources, flows.destinations))
        down, dead = ends[self._down[ends]], links[self.dead[links]]
        if down.size:
            return f"endpoint {down[0]}"
        if self.ports.size and not dead.size:
            more = f" and {self.ports.size - 1} more" if self.ports.size > 1 else ""
            return self._fabric.port_name(int(self.ports[0])) + more
        return f"link {dead[0]}"
