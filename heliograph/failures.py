"""Failures during a step: links and endpoints that stop, their repair, and spares that take over."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from heliograph.bundles import Loads
from heliograph.checks import check_range
from heliograph.errors import ParameterError, RouteError
from heliograph.interfaces import Circuits, Fabric, Flows, Reconfiguration


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Something that carries nothing from one instant on.

    A failed port is its link, a failed switch its links, a failed accelerator or node its endpoints.
    """

    time_s: float
    """When, from the start of the run."""
    links: tuple[int, ...] = ()
    """Links that fail."""
    endpoints: tuple[int, ...] = ()
    """Endpoints that fail, with the links that leave them."""
    ports: tuple[int, ...] = ()
    """Ports that circuits begin and end on, by the fabric's numbers (`Ported`); both ways fail."""
    share: float = 1.0
    """Share of each link's capacity that is lost: below 1 if only some of the parallel links fail that stand
    as one. Dimensionless."""
    repair_s: float | None = None
    """When all of it works again; None: not in this run."""
    spares: tuple[int, ...] = ()
    """Endpoints that take the failed ones' places, in this order; hot spares, which hold the same state."""
    takeover_s: float = 0.0
    """Time from the failure until the spares stand in."""

    def __post_init__(self) -> None:
        for name in ("time_s", "takeover_s"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0.0:
                msg = f"failure: {name} must be finite and at least 0; got {value}"
                raise ParameterError(msg)
        if not self.links and not self.endpoints and not self.ports:
            msg = f"failure at {self.time_s:g} s: name the links or the endpoints or the ports that fail"
            raise ParameterError(msg)
        check_range(self, "share", high=1.0, open_low=True)
        if self.share < 1.0 and (self.endpoints or self.ports):
            msg = f"failure at {self.time_s:g} s: only links can lose a share ({self.share:g}) of themselves"
            raise ParameterError(msg)
        if self.repair_s is not None and not self.time_s < self.repair_s < math.inf:
            msg = f"failure: repair_s must be after time_s ({self.time_s:g}); got {self.repair_s:g}"
            raise ParameterError(msg)
        if self.spares and len(self.spares) != len(self.endpoints):
            msg = f"failure: {len(self.endpoints)} endpoints need as many spares; got {len(self.spares)}"
            raise ParameterError(msg)


@runtime_checkable
class Detours(Protocol):
    """A fabric that has other paths than those it routes over first."""

    def around(self, circuits: Circuits, flows: Flows, failed: np.ndarray) -> np.ndarray:
        """Return the links of each flow as `Fabric.route` does, without the failed ones where it can.

        `failed` holds the numbers of the links that carry nothing, shape [n].
        """
        ...


@runtime_checkable
class SpreadsAround(Detours, Protocol):
    """A fabric of relays that also knows what they carry of detours."""

    def loads_around(self, circuits: Circuits, flows: Flows, failed: np.ndarray) -> Loads:
        """Return what flows of equal rate take of every link when they go as `around` has them."""
        ...


@runtime_checkable
class Ported(Protocol):
    """A fabric whose circuits begin and end on ports that fail one by one.

    Named, a port is the `port_lanes`-th part of a `port_owner`: an endpoint or a node.
    """

    @property
    def ports(self) -> int:
        """Ports of all owners; port p is lane ``p % port_lanes`` of owner ``p // port_lanes``."""
        ...

    @property
    def port_lanes(self) -> int:
        """Ports of each owner."""
        ...

    @property
    def port_owner(self) -> str:
        """What a port belongs to: ``endpoint`` or ``node``."""
        ...

    def without(self, circuits: Circuits, failed: np.ndarray) -> tuple[Circuits, Reconfiguration]:
        """Return circuits of which those over failed ports [n] are dark and no others; what it costs."""
        ...

    def port_name(self, port: int) -> str:
        """Return what a port is called in messages."""
        ...


def endpoint_links(fabric: Fabric, circuits: Circuits, endpoint: int) -> np.ndarray:
    """Return the links that leave an endpoint: its own ports, which others may send through.

    Parameters
    ----------
    fabric : Fabric
        The fabric.
    circuits
        Its present circuits.
    endpoint : int
        The endpoint.

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
