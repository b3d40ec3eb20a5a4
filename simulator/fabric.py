"""READ SECOND: the seam of fabrics. What carries flows between accelerators inherits from `Fabric`.

Five members have no default; the others answer as a plain packet network would. What a fabric is able to do
beyond that stands in one frozen `Traits`: nobody asks for its type, its name, or whether it has a method.
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
    """All traffic of a step shares the lanes; they never move."""
    PER_AXIS = "per-axis"
    """All lanes serve the axis of parallelism that is asking."""
    PER_LAYER = "per-layer"
    """The same, and of uneven exchanges the one that is asking: blocks whose experts are sent to differently
    have circuits of their own (MixNet). Where `Traits.by_layer` says so."""


class PortTiming(StrEnum):
    """Instant at which ports begin to move."""

    ON_REQUEST = "asked"
    """When traffic that lacks circuits is there."""
    PREFETCHED = "ahead"
    """While accelerators still compute: idle ports turn to the traffic that comes next (Opus)."""


class PortOwner(StrEnum):
    """Owner of the ports that circuits or links end on."""

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
    """Ports that fail one by one; port p is lane ``p % lanes`` of owner ``p // lanes``."""

    owner: PortOwner
    """Owner of a port."""
    owners: int
    """Owners of the whole fabric; dimensionless."""
    lanes: int
    """Ports of each owner; dimensionless."""
    circuits: bool = True
    """Whether circuits begin and end on them; else each is a link and its way back (`Fabric.port_links`)."""
    switches: int | None = None
    """Switches that hold them and fail as a whole, numbered from 0; None if there are none."""

    @property
    def count(self) -> int:
        """Ports of all owners."""
        return self.owners * self.lanes


@dataclass(frozen=True, kw_only=True, slots=True)
class Traits:
    """Abilities of a fabric; the defaults are those of plain packet switches."""

    scale_up: ScaleUp | None = None
    """Switched domain inside a node, whose library's protocols and adders collectives go by; None: latency
    and bandwidth alone, and every algorithm."""
    network_adder: Adder | None = None
    """Reduction in the switches between nodes; None if they do not add."""
    reduction_bits: float | None = None
    """Effective bits of sums that the network makes in light; None if it makes none. Dimensionless."""
    card_bytes_per_s: float | None = None
    """Line rate of an accelerator's card between nodes, one way, which no traffic beats; None if unknown."""
    endpoint_lanes: int | None = None
    """Lanes of its own that each endpoint shares out among its peers, none of whom passes on the rest; None
    if nodes pass on, or packets carry, what has no circuit. Dimensionless."""
    lane_bytes_per_s: float | None = None
    """Rate of such a lane that a long transfer reaches, one way."""
    lane_move_energy_j: float = 0.0
    """Energy of turning such a lane to another peer."""
    policy: CircuitPolicy | None = None
    """Traffic that circuits serve at a time; None where no policy can be chosen (`Fabric.with_policy`)."""
    by_layer: bool = False
    """Whether `CircuitPolicy.PER_LAYER` is one of its policies."""
    can_prefetch: bool = False
    """Whether `Fabric.with_policy` takes `PortTiming.PREFETCHED`."""
    prefetches: bool = False
    """Whether idle ports turn to traffic before it asks."""
    reconfiguration_s: float = 0.0
    """Reconfiguration time, in which circuits that move carry nothing."""
    routes_by_size: bool = False
    """Whether small transfers go other ways than large ones."""
    routes_by_company: bool = False
    """Whether a transfer goes other ways beside others than alone."""
    ports: Ports | None = None
    """Ports that fail one by one; None where only the ends of links have names (`Fabric.wired`)."""
    splicing: Splicing = Splicing.HOST
    """Substitute for a failed host of a job."""
    idle_numbers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Numbers of its parts that change nothing here, by name, each with the reason as a sentence."""

    @property
    def policies(self) -> tuple[CircuitPolicy, ...]:
        """Circuit policies to choose from; none where circuits do not move."""
        if self.policy is None:
            return ()
        return tuple(one for one in CircuitPolicy if self.by_layer or one is not CircuitPolicy.PER_LAYER)

    @property
    def turns_by_layer(self) -> bool:
        """Whether each pattern of uneven exchanges gets circuits of its own."""
        return self.policy is CircuitPolicy.PER_LAYER

    @property
    def peers(self) -> int | None:
        """Peers that an endpoint has circuits to at once, where they turn to who asks; else None."""
        return self.endpoint_lanes if self.policy is CircuitPolicy.PER_AXIS else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Loads:
    """Load of links by one byte per second of every flow of a group."""

    links: np.ndarray
    """Distinct links, shape [U]."""
    usage: np.ndarray
    """Share of each that the flows take together, in flows, shape [U]; relays may make it no whole number."""
    latency_s: float
    """Longest path latency."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LaneClaim:
    """Lanes that some flows need, and where the lanes of all endpoints turn to when those ask.

    Lane l of endpoint e is link ``e * lanes + l``, lanes to one peer act as the first of them; see
    `Traits.endpoint_lanes`.
    """

    carriers: np.ndarray
    """Endpoint whose lane sends, of each flow that needs one, shape [F]."""
    landings: np.ndarray
    """Endpoint that the lane has to reach, shape [F]."""
    weights: np.ndarray
    """Weight of each of these flows, shape [F]."""
    target: np.ndarray
    """Destination of each lane of each endpoint, -1 for none, shape [E, lanes]."""


def route_loads(routes: np.ndarray, latency_s: np.ndarray, weights: np.ndarray | None = None) -> Loads:
    """Return what flows take of links.

    Parameters
    ----------
    routes : numpy.ndarray
        Links of each flow, shape [F, H], short routes padded with -1.
    latency_s : numpy.ndarray
        Latency of each link, shape [L].
    weights : numpy.ndarray, optional
        Weight of each flow, shape [F]; all are one if left out.
    """
    columns = routes.T  # flow by flow is slow: there are few links to a route
    path_s = np.append(latency_s, 0.0)[columns].sum(axis=0)  # what is padded takes the last one
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

    A fabric inherits from it and says `name` and `endpoints` (fields or properties), `graph`, `route` and
    `transfer_energy_j`. All else has a default, stated with each member.

    Notes
    -----
    Circuits are a fabric's own state: handed in, handed back, opaque to everyone else, so that fabrics stay
    frozen.
    """

    if TYPE_CHECKING:  # a dataclass would take an inherited property for the default of its field

        @property
        def name(self) -> str:
            """Name shown in tables and traces."""
            ...

        @property
        def endpoints(self) -> int:
            """Accelerators that it connects."""
            ...

    @property
    def node_size(self) -> int:
        """Endpoints that share a scale-up domain, consecutive numbers; one by default."""
        return 1

    @cached_property
    def traits(self) -> Traits:
        """Abilities; those of plain packet switches by default."""
        return Traits()

    @property
    def uplink_pools(self) -> np.ndarray | None:
        """Pool of uplinks of each endpoint, shape [E], where endpoints share no other links; else None.

        Pools are alike, and so are nodes; what stays within a pool does not use its links.
        """
        return None

    @abstractmethod
    def graph(self, circuits: Circuits) -> LinkGraph:
        """Return the links that exist now; link numbers never change, nor do latencies."""
        ...

    @abstractmethod
    def route(self, circuits: Circuits, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, H], short routes padded with -1; none to itself.

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
        """Return the same over the present circuits where that differs and they connect all flows."""
        return self.transfer_energy_j(flows)

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each; empty by default."""
        return {}

    @cached_property
    def static_w(self) -> float:
        """Power of everything on the bill, whole fabric."""
        return bill_power_w(self.bill())

    @cached_property
    def cost_usd(self) -> float:
        """Price of everything on the bill, whole fabric."""
        return bill_price_usd(self.bill())

    def initial(self, demand: tuple[Flows, ...]) -> Circuits:
        """Return the circuits at the start of a step, given all its traffic; None by default."""
        return None

    def configure(
        self, circuits: Circuits, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[Circuits, Reconfiguration]:
        """Return circuits over which `flows` can be routed, and what the change costs; no change by default.

        `demand` holds the flows of the same endpoints that a policy may want to serve at the same time.
        """
        return circuits, Reconfiguration()

    def connected(self, circuits: Circuits, flows: Flows) -> bool:
        """Return whether every flow has a path over the present circuits; True by default."""
        return True

    def turns_for(self, flows: Flows) -> bool:
        """Return whether circuits may ever turn to some flows; by default True.

        Not where packets carry them whatever the circuits do.
        """
        return True

    def lane_turn_s(self, lanes: int) -> float:
        """Return the time until the last of some lanes is lit that turn at once; by default that of any."""
        return self.traits.reconfiguration_s

    def lane_peers(self, circuits: Circuits) -> np.ndarray:
        """Return the destination of each lane of each endpoint, -1 for none, [E, lanes]; no lanes by default.

        Asked where `Traits.endpoint_lanes` says that there are some.
        """
        return np.empty((self.endpoints, 0), dtype=np.int64)

    def lane_claim(self, circuits: Circuits, flows: Flows, demand: tuple[Flows, ...]) -> LaneClaim | None:
        """Return the lanes that `configure` would turn for flows, whatever is lit; None by default.

        None: more than lanes decides, and every change is asked of `configure`.
        """
        return None

    def circuit_parts(self, flows: Flows) -> np.ndarray | None:
        """Return the parts of circuits that flows take or turn, by number, shape [n]; None, the default.

        Parts turn apart: what flows get of one depends on what it last turned to, and on no other. None: the
        fabric does not say, and every change is asked of `configure`.
        """
        return None

    def asking(self, circuits: Circuits, flows: Flows) -> np.ndarray:
        """Return the parts that have to turn before flows are `connected`, shape [n]; by default part 0."""
        return np.zeros(0 if self.connected(circuits, flows) else 1, dtype=np.int64)

    def part_settings(self, circuits: Circuits, parts: np.ndarray) -> Hashable:
        """Return what tells apart the settings of some parts, shape [n]; by default any circuits differ."""
        return id(circuits)

    def with_parts(self, circuits: Circuits, other: Circuits, parts: np.ndarray) -> Circuits:
        """Return circuits some parts of which, shape [n], stand as in others; by default those others."""
        return other

    def with_policy(self, policy: CircuitPolicy, timing: PortTiming | None = None) -> Fabric:
        """Return the fabric with another circuit policy and, if it can prefetch, timing.

        Where `Traits.policy` names one, they are its fields `policy` and `turning`; any other returns itself.
        """
        if self.traits.policy is None:
            return self
        timed = {"turning": timing} if timing is not None and self.traits.can_prefetch else {}
        changed: Fabric = dataclasses.replace(cast("Any", self), policy=policy, **timed)
        return changed

    def loads(self, circuits: Circuits, flows: Flows) -> Loads:
        """Return what flows of equal rate take of every link; by default that of their routes.

        A fabric that spreads flows over several paths, or over relays, says more than one route can.
        """
        latency_s = self.graph(circuits).latency_s
        return route_loads(self.route(circuits, flows), latency_s, flows.weights)

    def loads_apart(self, circuits: Circuits, flows: Flows) -> list[Loads]:
        """Return what each of flows that run together takes of links, F of them; by default as if alone."""
        each = np.arange(len(flows.sources))
        pairs = dataclasses.replace(flows, weights=None)
        return [self.loads(circuits, pairs.part(each == flow)) for flow in each]

    def loads_around(self, circuits: Circuits, flows: Flows, failed: np.ndarray) -> Loads:
        """Return the same past links that carry nothing, shape [n]; by default that of `around`."""
        latency_s = self.graph(circuits).latency_s
        return route_loads(self.around(circuits, flows, failed), latency_s, flows.weights)

    def around(self, circuits: Circuits, flows: Flows, failed: np.ndarray) -> np.ndarray:
        """Return routes past links that carry nothing, shape [n], where it can; `route` by default.

        A flow that no other path leads to its end keeps its route over a failed link, and so waits.
        """
        return self.route(circuits, flows)

    def wired(self, circuits: Circuits) -> Wiring | None:
        """Return all links with their present ends, or None (the default) if they have no names."""
        return None

    def grid(self, group: np.ndarray) -> tuple[int, ...] | None:
        """Return the shape of the box of a torus that a group fills in order, or None (the default)."""
        return None

    def strides(self, circuits: Circuits, group: np.ndarray) -> tuple[int, ...]:
        """Return the strides along which all of a group have circuits; none by default.

        Parameters
        ----------
        circuits
            Present circuits.
        group : numpy.ndarray
            Endpoints, shape [n].
        """
        return ()

    def without(self, circuits: Circuits, failed: np.ndarray) -> tuple[Circuits, Reconfiguration]:
        """Return circuits of which those over failed ports [n] are dark and no others; what it costs."""
        return circuits, Reconfiguration()

    def port_name(self, port: int) -> str:
        """Return what one of `Traits.ports` is called in messages."""
        ports = self.traits.ports
        return (
            f"port {port % ports.lanes} of {ports.owner} {port // ports.lanes}" if ports else f"port {port}"
        )

    def port_links(self, owner: int, lane: int) -> np.ndarray:
        """Return both ways of a port that no circuit ends on, shape [n]; none by default."""
        return np.empty(0, dtype=np.int64)

    def switch_links(self, switch: int) -> np.ndarray:
        """Return the links that fail with a switch of such ports, shape [n]; none by default."""
        return np.empty(0, dtype=np.int64)

    def switch_ports(self, switch: int) -> np.ndarray:
        """Return the ports of circuits that fail with a switch, shape [n]; none by default."""
        return np.empty(0, dtype=np.int64)

    def replacement_s(self, ports: np.ndarray) -> float:
        """Return the time until spare ports carry what failed ones [n] did, once fibres are moved.

        Raises
        ------
        ParameterError
            If the switches keep no spare ports, as by default, or too few.
        """
        msg = f"{self.name} has no optical switches with spare ports; give the failure a repair_s"
        raise ParameterError(msg)

    def laid_for(self, blocks: tuple[int, ...]) -> tuple[Fabric, ...]:
        """Return the forms among which a step takes the one it runs fastest on; only itself by default.

        Parameters
        ----------
        blocks : tuple of int
            Neighbours that the nearest axis of parallelism joins, the nearest two, and so on.
        """
        return (self,)

    def variants(self) -> Mapping[str, Fabric]:
        """Return like fabrics that a search tries too, by what differs; none by default."""
        return {}


def check_policy(fabric: Fabric) -> None:
    """Check that a fabric knows its circuit policy.

    Raises
    ------
    ParameterError
        If it is to turn from block to block, and does not.
    """
    if fabric.traits.policy not in fabric.traits.policies:
        msg = (
            f"{fabric.name}: circuits do not turn from block to block here; take the policy "
            f"'{CircuitPolicy.PER_AXIS}', or the fabric hybrid or regional_ocs"
        )
        raise ParameterError(msg)


class NodeFabric(Fabric, Protocol):
    """Fabric of nodes: a switched domain in each, and `scale_up` says of which kind."""

    if TYPE_CHECKING:  # a field of some, a property of others

        @property
        def scale_up(self) -> ScaleUp:
            """The domain inside a node."""
            ...

    @property
    def nodes(self) -> int:
        """Nodes."""
        return self.scale_up.nodes(self.endpoints)

    @property
    def node_size(self) -> int:
        """Endpoints that share a node, consecutive numbers."""
        return min(self.scale_up.size, self.endpoints)

    def turns_for(self, flows: Flows) -> bool:
        """Return whether circuits may ever turn to some flows: not if all of them stay in their nodes."""
        return bool(self.scale_up.off_node(flows).any())


def lone_cards(fabric: Fabric) -> int:
    """Return the endpoints of a node if each needs circuits of its own, else 1."""
    return 1 if fabric.traits.endpoint_lanes is None else fabric.node_size


def missing_members(fabric: object) -> tuple[str, ...]:
    """Return what an object, or a class, lacks of `Fabric`, in alphabetical order; nothing if it answers."""
    members = {name for name in vars(Fabric) if not name.startswith("_")}
    if isinstance(fabric, type):
        unanswered = set(getattr(fabric, "__abstractmethods__", ()))
        fields = {name for one in fabric.__mro__ for name in vars(one).get("__annotations__", {})}
        return tuple(sorted((members - set(dir(fabric)) - fields) | unanswered))
    return tuple(sorted((members | {"name", "endpoints"}) - set(dir(fabric))))
