"""Parts that fail, named as their users know them: ports, switches, nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from heliograph.detours import port_links, switch_links
from heliograph.errors import ParameterError, RouteError
from heliograph.failures import Ported
from heliograph.interfaces import Fabric
from heliograph.wiring import Wiring


@runtime_checkable
class Wired(Protocol):
    """A fabric whose links have ends that never change."""

    @property
    def wiring(self) -> Wiring:
        """Links between endpoints and switches."""
        ...


@runtime_checkable
class NamesLinks(Protocol):
    """A fabric that knows itself which links its ports and switches are."""

    @property
    def port_lanes(self) -> int:
        """Ports of each endpoint."""
        ...

    @property
    def switches(self) -> int:
        """Switches, numbered from 0."""
        ...

    def port_links(self, endpoint: int, lane: int) -> np.ndarray:
        """Return both ways of a port."""
        ...

    def switch_links(self, switch: int) -> np.ndarray:
        """Return the links that fail with a switch."""
        ...


@runtime_checkable
class SwitchedPorts(Ported, Protocol):
    """A fabric with ports on switches that can fail as a whole."""

    @property
    def switches(self) -> int:
        """Switches, numbered from 0."""
        ...

    def switch_ports(self, switch: int) -> np.ndarray:
        """Return the ports that fail with a switch."""
        ...


@runtime_checkable
class SparePorts(Protocol):
    """A fabric whose switches keep spare ports."""

    @property
    def port_lanes(self) -> int:
        """Ports of each owner."""
        ...

    def replacement_s(self, ports: np.ndarray) -> float:
        """Return the time until spare ports carry what failed ones [n] did, once fibres are moved."""
        ...


@dataclass(frozen=True, kw_only=True)
class FailedParts:
    """What fails with some parts, as `heliograph.failures.Failure` takes it."""

    links: tuple[int, ...] = ()
    """Links."""
    endpoints: tuple[int, ...] = ()
    """Endpoints."""
    ports: tuple[int, ...] = ()
    """Ports of circuits."""


def failed_parts(
    fabric: Fabric, *, ports: Sequence[Sequence[int]], switches: Sequence[int], nodes: Sequence[int]
) -> FailedParts:
    """Return what fails with some parts.

    Parameters
    ----------
    fabric : Fabric
        What they belong to.
    ports : sequence
        Pairs of endpoint and lane: which of the endpoint's links, in the wiring's order; both ways fail.
        Where circuits begin at nodes, pairs of node and card.
    switches : sequence of int
        Vertices of the wiring that are no endpoints; all their links fail. Where circuits have switches,
        those, numbered from 0.
    nodes : sequence of int
        Nodes; all their endpoints fail, and the ports of their circuits.

    Raises
    ------
    ParameterError
        If a part does not exist.
    RouteError
        If the fabric's links have no fixed ends, nor its circuits ports.
    """
    size: int = getattr(fabric, "node_size", 1)
    _check("node", nodes, range(fabric.endpoints // size), fabric)
    endpoints = tuple(endpoint for node in nodes for endpoint in range(node * size, (node + 1) * size))
    if isinstance(fabric, Ported):
        return FailedParts(
            endpoints=endpoints, ports=_circuit_ports(fabric, ports, switches, nodes, endpoints)
        )
    if not ports and not switches:
        return FailedParts(endpoints=endpoints)
    if isinstance(fabric, NamesLinks):
        _check("switch", switches, range(fabric.switches), fabric)
        links = [fabric.switch_links(switch) for switch in switches]
        links += [fabric.port_links(*divmod(port, fabric.port_lanes)) for port in numbered(fabric, ports)]
    elif isinstance(fabric, Wired):
        links = _wired_links(fabric.wiring, fabric, ports, switches)
    else:
        msg = (
            f"{fabric.name} has no fixed wiring to name ports or switches in; name links, endpoints or nodes"
        )
        raise RouteError(msg)
    return FailedParts(links=tuple(np.unique(np.concatenate(links)).tolist()), endpoints=endpoints)


def numbered(fabric: Fabric, ports: Sequence[Sequence[int]]) -> list[int]:
    """Return the numbers of ports that are named as pairs of owner and lane.

    Raises
    ------
    ParameterError
        If a port does not exist.
    RouteError
        If the fabric has no ports that are numbered.
    """
    if not isinstance(fabric, Ported | NamesLinks):
        msg = f"{fabric.name} has no ports with spares; give the failure a repair_s"
        raise RouteError(msg)
    owner, lanes = "endpoint", fabric.port_lanes
    owners = fabric.endpoints
    if isinstance(fabric, Ported):
        owner, owners = fabric.port_owner, fabric.ports // lanes
    found = []
    for port in ports:
        one, lane = _pair(port)
        _check(owner, [one], range(owners), fabric)
        _check(f"port of {owner} {one}", [lane], range(lanes), fabric)
        found.append(one * lanes + lane)
    return found


def _circuit_ports(
    fabric: Fabric,
    ports: Sequence[Sequence[int]],
    switches: Sequence[int],
    nodes: Sequence[int],
    endpoints: Sequence[int],
) -> tuple[int, ...]:
    """Return the ports of circuits that fail."""
    if not isinstance(fabric, Ported):
        return ()
    owners = endpoints if fabric.port_owner == "endpoint" else nodes
    lanes = range(fabric.port_lanes)
    found = [*numbered(fabric, ports), *(owner * len(lanes) + lane for owner in owners for lane in lanes)]
    if switches and not isinstance(fabric, SwitchedPorts):
        msg = f"{fabric.name} has no switches apart from its {fabric.port_owner}s; name ports or nodes"
        raise RouteError(msg)
    if switches and isinstance(fabric, SwitchedPorts):
        _check("switch", switches, range(fabric.switches), fabric)
        found += [port for switch in switches for port in fabric.switch_ports(switch).tolist()]
    return tuple(sorted(set(found)))


def _wired_links(
    wiring: Wiring, fabric: Fabric, ports: Sequence[Sequence[int]], switches: Sequence[int]
) -> list[np.ndarray]:
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
