"""Parts that fail, named as their users know them: ports, switches, nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from heliograph.detours import port_links, switch_links
from heliograph.errors import ParameterError, RouteError
from heliograph.interfaces import Fabric
from heliograph.wiring import Wiring


@runtime_checkable
class Wired(Protocol):
    """A fabric whose links have ends that never change."""

    @property
    def wiring(self) -> Wiring:
        """Links between endpoints and switches."""
        ...


def failed_parts(
    fabric: Fabric, *, ports: Sequence[Any], switches: Sequence[int], nodes: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the links and the endpoints that fail with some parts.

    Parameters
    ----------
    fabric : Fabric
        What they belong to.
    ports : sequence
        Pairs of endpoint and lane: which of the endpoint's links, in the wiring's order; both ways fail.
    switches : sequence of int
        Vertices of the wiring that are no endpoints; all their links fail.
    nodes : sequence of int
        Nodes; all their endpoints fail.

    Raises
    ------
    ParameterError
        If a part does not exist.
    RouteError
        If the fabric's links have no fixed ends.
    """
    size: int = getattr(fabric, "node_size", 1)
    _check("node", nodes, range(fabric.endpoints // size), fabric)
    endpoints = [endpoint for node in nodes for endpoint in range(node * size, (node + 1) * size)]
    if not ports and not switches:
        return (), tuple(endpoints)
    if not isinstance(fabric, Wired):
        msg = (
            f"{fabric.name} has no fixed wiring to name ports or switches in; name links, endpoints or nodes"
        )
        raise RouteError(msg)
    wiring = fabric.wiring
    _check("switch", switches, range(fabric.endpoints, wiring.vertices), fabric)
    links = [switch_links(wiring, switch) for switch in switches]
    for port in ports:
        if len(port) != 2 or not all(type(number) is int for number in port):
            msg = f"a port is a pair of endpoint and lane, both whole numbers; got {port}"
            raise ParameterError(msg)
        endpoint, lane = port
        _check("endpoint", [endpoint], range(fabric.endpoints), fabric)
        _check(f"port of endpoint {endpoint}", [lane], range(int((wiring.tails == endpoint).sum())), fabric)
        links.append(port_links(wiring, endpoint, lane))
    return tuple(np.unique(np.concatenate(links)).tolist()), tuple(endpoints)


def _check(kind: str, numbers: Sequence[int], known: range, fabric: Fabric) -> None:
    for number in numbers:
        if number not in known:
            choices = f"{known.start} to {known.stop - 1}" if known else "none"
            msg = f"{fabric.name} has no {kind} {number}; choices: {choices}"
            raise ParameterError(msg)
