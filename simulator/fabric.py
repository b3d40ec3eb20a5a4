"""READ SECOND: interface of networks between accelerators; every fabric inherits from `Fabric`.

Five members have no default; the defaults of the others are those of a plain packet network. Abilities beyond
that are declared in a frozen `Traits`: callers never ask for a fabric's type or name.

With optical circuits, the engine hands the present circuits to `connected`; if flows lack a path it calls
`configure`, which returns the new circuits and their cost; `loads` then gives the share of every link.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from simulator.errors import ParameterError
from simulator.interfaces import Circuits, Flows, LinkGraph, Reconfiguration, Wiring
from simulator.topology.scale_up import Adder, BillItem, ScaleUp, bill_power_w, bill_price_usd


class CircuitPolicy(StrEnum):
    """Traffic that circuits serve at a time."""

    STATIC = "static"
    """All traffic of a step shares the lanes; circuits are never reconfigured."""
    PER_AXIS = "per-axis"
    """All lanes serve the axis of parallelism whose traffic is present."""
    PER_LAYER = "per-layer"
    """As `PER_AXIS`, and blocks whose uneven exchanges between experts differ have circuits of their own
    (MixNet); only with `Traits.by_layer`."""


class PortTiming(StrEnum):
    """Instant at which a reconfiguration begins."""

    ON_REQUEST = "asked"
    """When traffic that lacks circuits is present."""
    PREFETCHED = "ahead"
    """While accelerators still compute: idle ports turn to the traffic that comes next (Opus)."""


class PortOwner(StrEnum):
    """Kind of owner of the ports on which circuits or links end."""

    ENDPOINT = "endpoint"
    NODE = "node"


class Splicing(StrEnum):
    """Substitute for a failed host."""

    HOST = "any host"
    """Any healthy host of the machine."""
    CUBE = "any cube"
    """A host takes its cube with it; circuits join any healthy cubes."""
    FIXED = "nothing"
    """A job has a fixed place, which waits for repair."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """Ports that can fail one by one; port p is lane ``p % lanes`` of owner ``p // lanes``."""

    owner: PortOwner
    """Kind of the owners."""
    owners: int
    """Number of owners in the fabric."""
    lanes: int
    """Number of ports of each owner."""
    circuits: bool = True
    """Whether circuits begin and end on them; else each port is a pair of links (`Fabric.port_links`)."""
    switches: int | None = None
    """Number of switches that hold the ports and can fail as a whole; None if there are none."""

    @property
    def count(self) -> int:
        """Number of ports in the fabric."""
        return self.owners * self.lanes


@dataclass(frozen=True, kw_only=True, slots=True)
class Traits:
    """Abilities of a fabric; the defaults are those of plain packet switches."""

    scale_up: ScaleUp | None = None
    """Switched domain inside a node, which gives the protocols and adders of the collective library; None if
    collectives are priced by latency and bandwidth alone, with every algorithm."""
    network_adder: Adder | None = None
    """Reduction in the switches between nodes; None if they do not add."""
    reduction_bits: float | None = None
    """Effective bits of sums made in light in the network; None if it makes none. Dimensionless."""
    card_bytes_per_s: float | None = None
    """Line rate of an accelerator's network card, one way, a bound of its traffic; None if unknown."""
    endpoint_lanes: int | None = None
    """Number of circuit lanes of each endpoint, if traffic flows only between endpoints that a lane joins;
    None if nodes forward, or packets carry, traffic without a circuit."""
    lane_bytes_per_s: float | None = None
    """Rate of such a lane for a long transfer, one way."""
    lane_move_energy_j: float = 0.0
    """Energy of turning such a lane to another peer."""
    policy: CircuitPolicy | None = None
    """Circuit policy; None if none can be chosen (`Fabric.with_policy`)."""
    by_layer: bool = False
    """Whether `CircuitPolicy.PER_LAYER` can be chosen."""
    can_prefetch: bool = False
    """Whether `PortTiming.PREFETCHED` can be chosen (`Fabric.with_policy`)."""
    prefetches: bool = False
    """Whether idle ports turn to traffic before it is present."""
    reconfiguration_s: float = 0.0
    """Reconfiguration time, during which circuits that move carry nothing."""
    routes_by_size: bool = False
    """Whether small transfers take other paths than large ones."""
    routes_by_company: bool = False
    """Whether the paths of a transfer depend on other transfers that run at the same time."""
    ports: Ports | None = None
    """Ports that can fail one by one; None if only links can be named (`Fabric.wired`)."""
    splicing: Splicing = Splicing.HOST
    """Substitute for a failed host of a job."""
    idle_numbers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Numbers of its parts that have no effect on this fabric, by name, each with the reason as text."""

    @property
    def policies(self) -> tuple[CircuitPolicy, ...]:
        """Circuit policies to choose from; none if circuits cannot be reconfigured."""
        if self.policy is None:
            return ()
        return tuple(one for one in CircuitPolicy if self.by_layer or one is not CircuitPolicy.PER_LAYER)

    @property
    def turns_by_layer(self) -> bool:
        """Whether circuits turn to each pattern of uneven exchanges."""
        return self.policy is CircuitPolicy.PER_LAYER

    @property
    def peers(self) -> int | None:
        """Most peers to which an endpoint has lanes at once under `PER_AXIS`; None under other policies."""
        return self.endpoint_lanes if self.policy is CircuitPolicy.PER_AXIS else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Loads:
    """Load of links by a group of flows of equal rate."""

    links: np.ndarray
    """Numbers of the links that the flows use, shape [U]."""
    usage: np.ndarray
    """Load of each link over the rate of one flow (weight 1), shape [U]; fractional with several paths."""
    latency_s: float
    """Latency of the longest path."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LaneClaim:
    """Lanes that some flows need, and the setting of all lanes to which `Fabric.configure` would turn.

    Lane l of endpoint e is link ``e * lanes + l``; several lanes to one peer act as the first of them. See
    `Traits.endpoint_lanes`.
    """

    carriers: np.ndarray
    """Endpoint whose lane sends each of the F flows that need one, shape [F]."""
    landings: np.ndarray
    """Endpoint that the lane must reach, shape [F]."""
    weights: np.ndarray
    """Weight of each of these flows, shape [F]."""
    target: np.ndarray
    """Destination of each lane of each endpoint after the turn, -1 for none, shape [E, lanes]."""


def route_loads(routes: np.ndarray, latency_s: np.ndarray, weights: np.ndarray | None = None) -> Loads:
    """Return the loads of flows on links, from the flows' routes.

    Parameters
    ----------
    routes : numpy.ndarray
        Links of each flow, shape [F, H], short routes padded with -1.
    latency_s : numpy.ndarray
        Latency of each link, shape [L].
    weights : numpy.ndarray, optional
        Weight of each flow, shape [F]; all are one if left out.
    """
    columns = routes.T  # summing over the few hops of a route is faster than flow by flow
    path_s = np.append(latency_s, 0.0)[columns].sum(axis=0)  # padding, -1, takes the appended zero
    counts = np.bincount(columns.ravel() + 1, minlength=latency_s.size + 1)[1:]
    links = np.flatnonzero(counts > 0)
    usage = counts[links].astype(float)
    if weights is not None:
        crossed = routes >= 0
        carried = np.broadcast_to(weights[:, None], routes.shape)[crossed]
        usage = np.bincount(routes[crossed], weights=carried, minlength=latency_s.size)[links]
        links, usage = links[usage > 0.0], usage[usage > 0.0]
    return Loads(links=links, usage=usage, latency_s=float(path_s.max(initial=0.0)))


class Fabric(Protocol):
    """Network between accelerators (endpoints, numbered from 0).

    A fabric inherits from it and defines `name` and `endpoints` (fields or properties), `graph`, `route` and
    `transfer_energy_j`. All other members have a default, which their docstring states.

    Notes
    -----
    The state of circuits is an argument and a return value, opaque to all but the fabric, which is frozen.
    """

    if TYPE_CHECKING:  # a dataclass would take an inherited property for the default of its field

        @property
        def name(self) -> str:
            """Name shown in tables and traces."""
            ...

        @property
        def endpoints(self) -> int:
            """Number of accelerators that it connects."""
            ...

    @property
    def node_size(self) -> int:
        """Number of consecutive endpoints that share a scale-up domain; one by default."""
        return 1

    @cached_property
    def traits(self) -> Traits:
        """Abilities; those of plain packet switches by default."""
        return Traits()

    @property
    def uplink_pools(self) -> np.ndarray | None:
        """Number of the pool of uplinks of each endpoint, shape [E]; None by default.

        Only for fabrics whose endpoints share no links but pools of equal uplinks, with equal nodes; traffic
        within a pool does not use its uplinks.
        """
        return None

    @abstractmethod
    def graph(self, circuits: Circuits) -> LinkGraph:
        """Return the links under the present circuits; their numbers and latencies never change."""
        ...

    @abstractmethod
    def route(self, circuits: Circuits, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, H], padded with -1; a flow to itself has none.

        Raises
        ------
        RouteError
            If a flow has no path over the present circuits.
        """
        ...

    @abstractmethod
    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once."""
        ...

    def carried_energy_j(self, circuits: Circuits, flows: Flows) -> float:
        """Return the dynamic energy of flows over present circuits that connect them all.

        By default `transfer_energy_j`, whatever the circuits.
        """
        return self.transfer_energy_j(flows)

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials by item, with count, power and price of each; empty by default."""
        return {}

    @cached_property
    def static_w(self) -> float:
        """Power of the whole fabric, from its bill."""
        return bill_power_w(self.bill())

    @cached_property
    def cost_usd(self) -> float:
        """Price of the whole fabric, from its bill."""
        return bill_price_usd(self.bill())

    def initial(self, demand: tuple[Flows, ...]) -> Circuits:
        """Return the circuits at the start of a step, given all its traffic; None by default."""
        return None

    def configure(
        self, circuits: Circuits, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[Circuits, Reconfiguration]:
        """Return circuits over which `flows` can be routed, and the cost of the change; no change by default.

        `demand` holds further flows of the same endpoints that a policy may serve with the same circuits.
        """
        return circuits, Reconfiguration()

    def connected(self, circuits: Circuits, flows: Flows) -> bool:
        """Return whether every flow has a path over the present circuits; True by default."""
        return True

    def turns_for(self, flows: Flows) -> bool:
        """Return whether circuits may ever turn to some flows, True by default.

        False for flows that packets carry whatever the circuits do.
        """
        return True

    def lane_turn_s(self, lanes: int) -> float:
        """Return the time of a reconfiguration that turns a number of lanes at once.

        By default `Traits.reconfiguration_s`, whatever the number.
        """
        return self.traits.reconfiguration_s

    def lane_peers(self, circuits: Circuits) -> np.ndarray:
        """Return the present destination of each lane of each endpoint, -1 for none, shape [E, lanes].

        Only used with `Traits.endpoint_lanes`; no lanes by default.
        """
        return np.empty((self.endpoints, 0), dtype=np.int64)

    def lane_claim(self, circuits: Circuits, flows: Flows, demand: tuple[Flows, ...]) -> LaneClaim | None:
        """Return the lanes that `configure` would turn for flows, if that does not depend on lanes in use.

        None, the default, if it does; the engine then calls `configure` for every change.
        """
        return None

    def circuit_parts(self, flows: Flows) -> np.ndarray | None:
        """Return the numbers of the parts of circuits that flows use or turn, shape [n].

        Parts are independent: the share that flows get of one depends only on what it last turned to. None,
        the default, if circuits have no such parts; the engine then calls `configure` for every change.
        """
        return None

    def asking(self, circuits: Circuits, flows: Flows) -> np.ndarray:
        """Return the parts that must turn before flows are `connected`, shape [n]; by default part 0."""
        return np.zeros(0 if self.connected(circuits, flows) else 1, dtype=np.int64)

    def part_settings(self, circuits: Circuits, parts: np.ndarray) -> Hashable:
        """Return a value that is equal for equal settings of some parts, shape [n].

        By default the identity of the circuits.
        """
        return id(circuits)

    def with_parts(self, circuits: Circuits, other: Circuits, parts: np.ndarray) -> Circuits:
        """Return circuits with some parts, shape [n], set as in `other`; by default `other` itself."""
        return other

    def with_policy(self, policy: CircuitPolicy, timing: PortTiming | None = None) -> Fabric:
        """Return the fabric with another circuit policy and, if it can prefetch, another timing.

        A fabric whose `Traits.policy` is set has them as fields `policy` and `turning`; others are unchanged.
        """
        if self.traits.policy is None:
            return self
        timed = {"turning": timing} if timing is not None and self.traits.can_prefetch else {}
        changed: Fabric = dataclasses.replace(cast("Any", self), policy=policy, **timed)
        return changed

    def loads(self, circuits: Circuits, flows: Flows) -> Loads:
        """Return the loads of flows of equal rate on links; by default those of their routes.

        A fabric that spreads flows over several paths or relays overrides it.
        """
        latency_s = self.graph(circuits).latency_s
        return route_loads(self.route(circuits, flows), latency_s, flows.weights)

    def loads_apart(self, circuits: Circuits, flows: Flows) -> list[Loads]:
        """Return the loads of each of F flows that run together; by default as if each ran alone."""
        each = np.arange(len(flows.sources))
        pairs = dataclasses.replace(flows, weights=None)
        return [self.loads(circuits, pairs.part(each == flow)) for flow in each]

    def loads_around(self, circuits: Circuits, flows: Flows, failed: np.ndarray) -> Loads:
        """Return the loads of flows if links have failed, shape [n]; by default those of `around`."""
        latency_s = self.graph(circuits).latency_s
        return route_loads(self.around(circuits, flows, failed), latency_s, flows.weights)

    def around(self, circuits: Circuits, flows: Flows, failed: np.ndarray) -> np.ndarray:
        """Return routes that avoid failed links, shape [n], where there are some; `route` by default.

        A flow without another path keeps its route over a failed link, and so waits.
        """
        return self.route(circuits, flows)

    def wired(self, circuits: Circuits) -> Wiring | None:
        """Return all links with their present ends; None, the default, if links have no fixed ends."""
        return None

    def grid(self, group: np.ndarray) -> tuple[int, ...] | None:
        """Return the shape of the torus box that a group of endpoints fills in order; None by default."""
        return None

    def strides(self, circuits: Circuits, group: np.ndarray) -> tuple[int, ...]:
        """Return the strides along which every member of a group has a circuit; none by default.

        Parameters
        ----------
        circuits
            Present circuits.
        group : numpy.ndarray
            Endpoints, shape [n].
        """
        return ()

    def direct_rates(self, circuits: Circuits, group: np.ndarray) -> np.ndarray | None:
        """Return the rate of the link straight from each member of a group to each other, shape [n, n].

        None, the default, where members are joined by switches alone; then no collective is laid out over
        links. A rate is 0 where there is no link.

        Parameters
        ----------
        circuits
            Present circuits.
        group : numpy.ndarray
            Endpoints, shape [n].
        """
        return None

    def without(self, circuits: Circuits, failed: np.ndarray) -> tuple[Circuits, Reconfiguration]:
        """Return the circuits without those over failed ports, shape [n], and the cost of the change."""
        return circuits, Reconfiguration()

    def port_name(self, port: int) -> str:
        """Return the name of one of `Traits.ports` for messages."""
        ports = self.traits.ports
        return (
            f"port {port % ports.lanes} of {ports.owner} {port // ports.lanes}" if ports else f"port {port}"
        )

    def port_links(self, owner: int, lane: int) -> np.ndarray:
        """Return the links of a port, both directions, shape [n]; for ports without circuits."""
        return np.empty(0, dtype=np.int64)

    def switch_links(self, switch: int) -> np.ndarray:
        """Return the links that fail with a switch, shape [n]; for ports without circuits."""
        return np.empty(0, dtype=np.int64)

    def switch_ports(self, switch: int) -> np.ndarray:
        """Return the circuit ports that fail with a switch, shape [n]; none by default."""
        return np.empty(0, dtype=np.int64)

    def replacement_s(self, ports: np.ndarray) -> float:
        """Return the time to move the fibres of failed ports, shape [n], to spare ports of their switches.

        Raises
        ------
        ParameterError
            If the switches keep no spare ports, as by default, or too few.
        """
        msg = f"{self.name} has no optical switches with spare ports; give the failure a repair_s"
        raise ParameterError(msg)

    def laid_for(self, blocks: tuple[int, ...]) -> tuple[Fabric, ...]:
        """Return the forms of the fabric (sides of a torus) of which a step runs on the fastest.

        Parameters
        ----------
        blocks : tuple of int
            Number of neighbouring ranks that the nearest axis of parallelism joins, the nearest two, and so
            on.

        Returns
        -------
        tuple of Fabric
            The fabric itself by default.
        """
        return (self,)

    def variants(self) -> Mapping[str, Fabric]:
        """Return variants of the fabric for a search to try, by a name of the difference; none by default."""
        return {}


def check_policy(fabric: Fabric) -> None:
    """Check that a fabric can follow its circuit policy.

    Raises
    ------
    ParameterError
        If the policy is `CircuitPolicy.PER_LAYER` and the fabric does not have it.
    """
    if fabric.traits.policy not in fabric.traits.policies:
        msg = (
            f"{fabric.name}: circuits do not turn from block to block here; take the policy "
            f"'{CircuitPolicy.PER_AXIS}', or the fabric hybrid or regional_ocs"
        )
        raise ParameterError(msg)


class NodeFabric(Fabric, Protocol):
    """Fabric between nodes, each of which is a switched domain, `scale_up`."""

    if TYPE_CHECKING:  # a field of some, a property of others

        @property
        def scale_up(self) -> ScaleUp:
            """Switched domain inside a node."""
            ...

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.scale_up.nodes(self.endpoints)

    @property
    def node_size(self) -> int:
        """Number of consecutive endpoints that share a node."""
        return min(self.scale_up.size, self.endpoints)

    def turns_for(self, flows: Flows) -> bool:
        """Return whether circuits may ever turn to some flows: True unless all stay within their nodes."""
        return bool(self.scale_up.off_node(flows).any())


def lone_cards(fabric: Fabric) -> int:
    """Return the number of endpoints of a node if each needs circuits of its own, else 1."""
    return 1 if fabric.traits.endpoint_lanes is None else fabric.node_size


def missing_members(fabric: object) -> tuple[str, ...]:
    """Return the members of `Fabric` that an object or a class lacks, in alphabetical order."""
    members = {name for name in vars(Fabric) if not name.startswith("_")}
    if isinstance(fabric, type):
        abstract = set(getattr(fabric, "__abstractmethods__", ()))
        fields = {name for base in fabric.__mro__ for name in vars(base).get("__annotations__", {})}
        return tuple(sorted((members - set(dir(fabric)) - fields) | abstract))
    return tuple(sorted((members | {"name", "endpoints"}) - set(dir(fabric))))
