"""The traffic of a step: every collective as bundles of flows, priced with the network to itself.

References
----------
Chan et al., Concurrency Computat. Pract. Exper. 19 (2007) 1749: which collective algorithm for which size.
"""

from __future__ import annotations

import math
import typing
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import runtime_checkable

import numpy as np

from heliograph.all_to_all import IN_TURNS
from heliograph.bundles import Bundle
from heliograph.candidates import HasPeers, candidates, served
from heliograph.collectives import Algorithm, Round, vector_bytes
from heliograph.interfaces import Circuits, Fabric, Flows
from heliograph.layout import Groups
from heliograph.network import Network
from heliograph.operators import Collective, CollectiveKind, Sequence, communications
from heliograph.scale_up import Adder, Protocol, ScaleUp

PLAIN = Protocol(
    name="plain", start_s=0.0, hop_s=0.0, efficiency=1.0, network_hop_s=0.0, network_efficiency=1.0
)
"""No protocol: latency and bandwidth alone."""


@runtime_checkable
class HasScaleUp(typing.Protocol):
    """A fabric that says what its nodes are made of."""

    @property
    def scale_up(self) -> ScaleUp:
        """The domain inside a node."""
        ...


@runtime_checkable
class HasGrid(typing.Protocol):
    """A fabric on which groups may fill boxes of a torus."""

    def grid(self, group: np.ndarray) -> tuple[int, ...] | None:
        """Return the shape of the box that a group of endpoints fills in order, or None."""
        ...


@runtime_checkable
class HasAdder(typing.Protocol):
    """A fabric whose switches between nodes may add."""

    @property
    def network_adder(self) -> Adder | None:
        """How they add, or None if they do not."""
        ...


@runtime_checkable
class HasStrides(typing.Protocol):
    """A fabric whose circuits form several rings through a group."""

    def strides(self, circuits: Circuits, group: np.ndarray) -> tuple[int, ...]:
        """Return the strides along which all of a group have circuits."""
        ...


@runtime_checkable
class HasWays(typing.Protocol):
    """A fabric on which the energy of a transfer depends on the present circuits."""

    def carried_energy_j(self, circuits: Circuits, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once over the present circuits."""
        ...


@runtime_checkable
class SizeRouted(typing.Protocol):
    """A fabric on which small transfers go other ways than large ones."""

    @property
    def bulk_bytes(self) -> float:
        """Size from which a transfer is large."""
        ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One collective of one class, made into bundles."""

    algorithm: str
    """Chosen algorithm."""
    parts: tuple[tuple[Bundle, float, int], ...]
    """Bundle, bytes per flow on the wire (with the protocol's own) and repetitions of each round."""
    protocol_s: float
    """Time that the library's protocol takes beside latency and transfer."""
    alone_s: float
    """Duration with all links to itself."""
    wire_bytes: float
    """Payload that the class's ranks put on the wire."""
    energy_j: float
    """Dynamic energy of the transfers."""
    in_turns: bool = False
    """Whether circuits turn between its parts, so that each repetition turns them again."""


class Traffic:
    """Plans of all collectives of a step on one network, each made once.

    Parameters
    ----------
    layout : Groups
        Where the ranks stand.
    fabric : Fabric
        What carries the flows.
    network : Network
        The fabric during the step.
    demand : dict
        Traffic of the whole step, as `step_demand` gives it.
    by_axis : bool
        Whether circuits for a class may serve all traffic of its axis beside it, for a class is a group;
        else all traffic of the class.
    """

    def __init__(
        self,
        layout: Groups,
        fabric: Fabric,
        network: Network,
        demand: dict[tuple[str, int, int], Flows],
        *,
        by_axis: bool = False,
    ) -> None:
        self._layout = layout
        self._fabric = fabric
        self._network = network
        self._demand = demand
        self._by_axis = by_axis
        beside: defaultdict[str | int, list[Flows]] = defaultdict(list)
        for (axis, rank_class, _), flows in demand.items():
            beside[axis if by_axis else rank_class].append(flows)
        self._beside = {key: tuple(flows) for key, flows in beside.items()}
        self._bundles: dict[tuple[object, ...], Bundle] = {}
        self._plans: dict[tuple[object, ...], Plan] = {}
        self._private: dict[tuple[str, int], bool] = {}
        self._scale_up = fabric.scale_up if isinstance(fabric, HasScaleUp) else None
        self._adder = fabric.network_adder if isinstance(fabric, HasAdder) else None

    def plan(self, operator: Collective, rank_class: int) -> Plan:
        """Return how a class carries out a collective: the fastest algorithm that has its paths."""
        key = (
            operator.kind,
            operator.axis,
            operator.size,
            operator.payload_bytes,
            operator.shift,
            operator.two_level,
            operator.spread,
            operator.skew,
            operator.algorithm,
            operator.servers,
            rank_class,
        )
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = self._best(operator, rank_class)
        return found

    def private(self, sequence: Sequence, rank_class: int) -> bool:
        """Return whether a sequence's collectives share no link with other traffic, none of which fails."""
        axes = {one.axis for one, _ in communications(sequence) if one.size > 1}
        return not axes or (
            self._network.undisturbed and all(self._axis_private(axis, rank_class) for axis in sorted(axes))
        )

    def _axis_private(self, axis: str, rank_class: int) -> bool:
        key = (axis, rank_class)
        if key not in self._private:
            mine = self._axis_links(key)
            others = {(an_axis, a_class) for an_axis, a_class, _ in self._demand} - {key}
            self._private[key] = mine is not None and not any(
                self._meet(mine, other) for other in sorted(others)
            )
        return self._private[key]

    def _meet(self, mine: np.ndarray, other: tuple[str, int]) -> bool:
        links = self._axis_links(other)
        return links is not None and bool(np.intersect1d(mine, links).size)

    def _axis_links(self, key: tuple[str, int]) -> np.ndarray | None:
        """Return the links of an axis of a class, or None if it has no path yet (it needs circuits)."""
        links = []
        for (axis, rank_class, shift), flows in self._demand.items():
            if (axis, rank_class) == key:
                bundle = self._bundle(("demand", axis, rank_class, shift), flows, rank_class)
                if not self._network.locate(bundle):
                    return None
                links.append(bundle.links)
        return np.concatenate(links)

    def _bundle(self, key: tuple[object, ...], flows: Flows, rank_class: int) -> Bundle:
        found = self._bundles.get(key)
        if found is None:
            demand = self._beside.get(flows.axis if self._by_axis else rank_class, ())
            found = Bundle(index=self._network.number(), flows=flows, demand=demand)
            self._bundles[key] = found
        return found

    def _best(self, operator: Collective, rank_class: int) -> Plan:
        return min(self.options(operator, rank_class), key=lambda plan: plan.alone_s)

    def options(self, operator: Collective, rank_class: int) -> tuple[Plan, ...]:
        """Return all ways in which a class can carry out a collective: algorithms and protocols."""
        options = candidates(
            operator,
            self._layout,
            rank_class,
            self._fabric.node_size,
            self._scale_up,
            grid_of=self._fabric.grid if isinstance(self._fabric, HasGrid) else None,
            switches_add=self._adder is not None,
            strides_of=self._strides if isinstance(self._fabric, HasStrides) else None,
        )
        if isinstance(self._fabric, HasPeers):
            size, peers = self._fabric.node_size, self._fabric.peers
            options = served(options, operator, self._layout, rank_class, node_size=size, peers=peers)
        bundles = {name: self._parts(operator, rank_class, name, parts) for name, parts in options.items()}
        ready = [
            name
            for name, parts in bundles.items()
            if all(self._network.locate(bundle) for bundle, _, _ in parts)
        ]
        # Without circuits yet, the first way (the ring) is what the fabric will be asked to connect.
        return tuple(
            self._priced(bundles[name], name, options[name], operator, protocol)
            for name in ready or [next(iter(options))]
            for protocol in self._protocols(name)
        )

    def _protocols(self, name: str) -> tuple[Protocol, ...]:
        if self._adder is not None and name in {Algorithm.IN_SWITCHES, Algorithm.HIERARCHICAL_IN_SWITCHES}:
            return self._switch_protocols(self._adder, name)
        if self._scale_up is None:
            return (PLAIN,)
        if name == Algorithm.IN_NETWORK:
            return tuple(
                replace(PLAIN, name=one.name, start_s=one.start_s, efficiency=one.efficiency)
                for one in self._scale_up.adders
            )
        return self._scale_up.protocols or (PLAIN,)

    def _switch_protocols(self, adder: Adder, name: str) -> tuple[Protocol, ...]:
        """Return protocols of a node, if it takes part, with switches that add between nodes."""
        inside = self._scale_up.protocols if self._scale_up is not None else ()
        parts = inside if name == Algorithm.HIERARCHICAL_IN_SWITCHES and inside else (PLAIN,)
        return tuple(
            replace(
                one,
                name=adder.name if one is PLAIN else f"{one.name} {adder.name}",
                start_s=one.start_s + adder.start_s,
                network_hop_s=0.0,
                network_efficiency=adder.efficiency,
            )
            for one in parts
        )

    def _parts(
        self, operator: Collective, rank_class: int, name: str, parts: tuple[Round, ...]
    ) -> tuple[tuple[Bundle, float, int], ...]:
        kind = (
            operator.axis,
            operator.shift,
            rank_class,
            operator.size,
            operator.kind,
            operator.skew,
            operator.servers,
            name,
        )
        return tuple(
            (
                self._bundle((*kind, index, self._size_key(one.flows)), one.flows, rank_class),
                one.flows.size_bytes,
                one.count,
            )
            for index, one in enumerate(parts)
        )

    def _size_key(self, flows: Flows) -> float:
        """Return the size of flows where their way goes by it, so that sizes make bundles of their own."""
        return flows.size_bytes if isinstance(self._fabric, SizeRouted) else 0.0

    def _priced(
        self,
        bundles: tuple[tuple[Bundle, float, int], ...],
        name: str,
        parts: tuple[Round, ...],
        operator: Collective,
        protocol: Protocol,
    ) -> Plan:
        waited = protocol.start_s if bundles else 0.0
        moved = 0.0
        sized = []
        rounds_outside = 0
        for bundle, size_bytes, count in bundles:
            outside = self._leaving_share(bundle.flows)
            rounds_outside += count if outside else 0
            share = protocol.network_efficiency if outside else protocol.efficiency
            latency_s, rate = self._network.alone(bundle)
            moved += count * (latency_s + size_bytes / (rate * share))
            waited += count * (protocol.network_hop_s * outside + protocol.hop_s * (1.0 - outside))
            sized.append((bundle, size_bytes / share, count))
        if name == Algorithm.HIERARCHICAL and protocol is not PLAIN:
            waited += protocol.hop_s * _more_hops(operator, rounds_outside)
        if bundles and not rounds_outside and self._scale_up is not None and name != Algorithm.IN_NETWORK:
            waited += copied_bytes(operator) / self._scale_up.copy_bytes_per_s
        return Plan(
            algorithm=name if protocol is PLAIN else f"{name} {protocol.name}",
            parts=tuple(sized),
            protocol_s=waited,
            alone_s=waited + moved + self._dark_s(name, bundles),
            wire_bytes=math.fsum(_carried_bytes(one.flows) * one.count for one in parts),
            energy_j=math.fsum(self._energy_j(one.flows) * one.count for one in parts),
            in_turns=name.endswith(IN_TURNS),
        )

    def _dark_s(self, name: str, bundles: tuple[tuple[Bundle, float, int], ...]) -> float:
        """Return how long circuits turn in a collective that they serve in turns."""
        turns = len(bundles) if name.endswith(IN_TURNS) else 0
        return turns * self._fabric.turn_s if turns and isinstance(self._fabric, HasPeers) else 0.0

    def _strides(self, group: np.ndarray) -> tuple[int, ...]:
        fabric = self._fabric
        return fabric.strides(self._network.circuits, group) if isinstance(fabric, HasStrides) else ()

    def _energy_j(self, flows: Flows) -> float:
        """Return the energy of carrying flows once, over the present ways if it depends on them."""
        circuits = self._network.circuits
        if isinstance(self._fabric, HasWays) and self._fabric.connected(circuits, flows):
            return self._fabric.carried_energy_j(circuits, flows)
        return self._fabric.transfer_energy_j(flows)

    def _leaving_share(self, flows: Flows) -> float:
        """Return which share of flows leaves its node: a chunk on a ring takes every hop once."""
        size = self._fabric.node_size
        leaving = flows.sources // size != flows.destinations // size
        return float(
            np.mean(leaving) if flows.weights is None else np.average(leaving, weights=flows.weights)
        )


def _carried_bytes(flows: Flows) -> float:
    """Return the bytes of all flows together."""
    return flows.moved_bytes(np.ones(len(flows.sources), dtype=np.int64))


def _more_hops(operator: Collective, rounds_outside: int) -> int:
    """Return the hops inside nodes that a library's rings take beyond those of a two-level algorithm.

    Notes
    -----
    NCCL has trees for all-reduces only. It gathers and scatters on rings through all n ranks, one over each
    network card: as fast as two levels for long vectors, but a chunk takes n - 1 hops one after the other
    (src/graph/tuning.cc, latency of the ring algorithm).
    """
    if operator.kind not in {CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER}:
        return 0
    nodes = rounds_outside + 1
    return operator.size - nodes - (operator.size // nodes - 1)


def copied_bytes(operator: Collective) -> float:
    """Return the bytes that a rank passes between its memory and its port, beside the transfer.

    Notes
    -----
    An all-reduce reads and writes the vector once around its ring, a reduce-scatter, an all-gather and an
    all-to-all do half of that, a send, a broadcast and a reduction pass all they move.
    """
    vector = vector_bytes(operator.kind, operator.payload_bytes, operator.size)
    whole = {
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.SEND,
        CollectiveKind.BROADCAST,
        CollectiveKind.REDUCE,
    }
    return vector if operator.kind in whole else vector / 2
