"""The traffic of a step: every collective as bundles of flows, priced with the network to itself.

References
----------
Chan et al., Concurrency Computat. Pract. Exper. 19 (2007) 1749: which collective algorithm for which size.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from heliograph.abilities import HasAdder, HasGrid, HasPeers, HasScaleUp, HasStrides, HasWays, SizeRouted
from heliograph.all_to_all import IN_TURNS
from heliograph.bundles import Bundle
from heliograph.candidates import candidates, served
from heliograph.collectives import Algorithm, Round, vector_bytes
from heliograph.interfaces import Circuits, Fabric, Flows
from heliograph.layout import Groups
from heliograph.library import PLAIN, copied_bytes, more_hops, protocols
from heliograph.link_sharing import together_s
from heliograph.network import Network
from heliograph.operators import Collective, Sequence, communications
from heliograph.pipelining import ADDING, PIPELINED, Levels, as_library, two_levels, with_adding_nodes
from heliograph.scale_up import Protocol


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
    at_once: bool = False
    """Whether its parts are levels that work at the same time; `protocol_s` then has all their latency."""


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
        options = self._candidates(operator, rank_class)
        if isinstance(self._fabric, HasPeers):
            size, peers = self._fabric.node_size, self._fabric.peers
            options = served(options, operator, self._layout, rank_class, node_size=size, peers=peers)
        bundles = {name: self._parts(operator, rank_class, name, parts) for name, parts in options.items()}
        later: Circuits | None = None
        ready = [name for name, parts in bundles.items() if self._connected(parts)]
        if not ready:
            # Without circuits yet, the fabric will be asked for those of the first way (the ring), which may
            # serve others, too.
            first = next(iter(options))
            later = self._network.axis_circuits(bundles[first][0][0])
            ready = [name for name in options if name == first or self._connected(bundles[name], later)]
        whole = tuple(
            self._priced(bundles[name], name, options[name], operator, protocol)
            for name in ready
            for protocol in protocols(name, self._scale_up, self._adder)
        )
        return whole + self._pipelined(operator, rank_class, later)

    def _connected(
        self, parts: tuple[tuple[Bundle, float, int], ...], circuits: Circuits | None = None
    ) -> bool:
        """Return whether circuits connect a way, the present ones if none are given."""
        bundles = [bundle for bundle, _, _ in parts]
        if circuits is not None:
            return self._network.connects(circuits, bundles)
        return all(self._network.locate(bundle) for bundle in bundles)

    def _candidates(self, operator: Collective, rank_class: int) -> dict[str, tuple[Round, ...]]:
        return candidates(
            operator,
            self._layout,
            rank_class,
            self._fabric.node_size,
            self._scale_up,
            grid_of=self._fabric.grid if isinstance(self._fabric, HasGrid) else None,
            switches_add=self._adder is not None,
            strides_of=self._strides if isinstance(self._fabric, HasStrides) else None,
        )

    def _pipelined(self, operator: Collective, rank_class: int, later: Circuits | None) -> tuple[Plan, ...]:
        """Return the ways of two levels that work at once, over circuits as `_connected` has them."""
        plans = []
        for name, levels in self._levels(operator, rank_class).items():
            sized = levels.of_payload(operator.payload_bytes).both
            parts = self._parts(operator, rank_class, name + PIPELINED, sized)
            if not self._connected(parts, later):
                continue
            plans += [
                self._overlapped(operator, name, levels, (parts[0][0], parts[1][0]), protocol)
                for protocol in protocols(name, self._scale_up, self._adder)
                if math.isfinite(protocol.chunk_bytes)
            ]
        return tuple(plans)

    def _levels(self, operator: Collective, rank_class: int) -> dict[str, Levels]:
        """Return the ways of an all-reduce in two levels with one byte of payload."""
        if self._scale_up is None or not self._scale_up.protocols:
            return {}
        node_size = self._fabric.node_size
        found = two_levels(operator, node_size, lambda one: self._candidates(one, rank_class))
        if not found:
            return {}
        groups = self._layout.groups(operator.axis, rank_class)
        nodes = np.unique(groups[0] // node_size).size
        adding = {}
        if self._scale_up.adders:
            near = groups.reshape(-1, operator.size // nodes)
            adding = {
                ADDING[name]: with_adding_nodes(found[name], operator, near)
                for name in ADDING
                if name in found
            }
        return as_library(found | adding, operator, nodes)

    def _overlapped(
        self,
        operator: Collective,
        name: str,
        levels: Levels,
        bundles: tuple[Bundle, Bundle],
        protocol: Protocol,
    ) -> Plan:
        """Return an all-reduce whose levels work at once: the fill of a chunk, then both together."""
        times = []
        waited, wire_bytes, energy_j = protocol.start_s, 0.0, 0.0
        parts = []
        shares = (protocol.efficiency, protocol.network_efficiency)
        hops = (protocol.hop_s, protocol.network_hop_s)
        for level, bundle, share, hop_s in zip(levels.both, bundles, shares, hops, strict=True):
            latency_s, rate = self._network.alone(bundle)
            moved_s = level.flows.size_bytes * level.count / (rate * share)
            copied_s = self._copied_s(operator, name) if level is levels.inside else 0.0
            times.append(moved_s + copied_s)
            size_bytes = level.flows.size_bytes * operator.payload_bytes / share * times[-1] / moved_s
            parts.append((bundle, size_bytes, level.count))
            waited += level.count * (latency_s + hop_s)
            flows = replace(level.flows, size_bytes=level.flows.size_bytes * operator.payload_bytes)
            wire_bytes += _carried_bytes(flows) * level.count
            energy_j += self._energy_j(flows) * level.count
        chunk = protocol.chunk_bytes / vector_bytes(operator.kind, 1.0, operator.size)
        waited += chunk * min(times)
        (inside, _), (between, graph) = (self._network.foreseen(bundle) for bundle in bundles)
        whole_s = together_s(inside, times[0], between, times[1], graph.capacity_bytes_per_s)
        return Plan(
            algorithm=f"{name} {protocol.name}{PIPELINED}",
            parts=tuple(parts),
            protocol_s=waited,
            alone_s=waited + operator.payload_bytes * whole_s,
            wire_bytes=wire_bytes,
            energy_j=energy_j,
            at_once=True,
        )

    def _copied_s(self, operator: Collective, name: str) -> float:
        """Return how long a rank copies for a byte of payload, unless the switches of its node add."""
        if self._scale_up is None or name in ADDING.values():
            return 0.0
        return copied_bytes(replace(operator, payload_bytes=1.0)) / self._scale_up.copy_bytes_per_s

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
            waited += protocol.hop_s * more_hops(operator, rounds_outside)
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
