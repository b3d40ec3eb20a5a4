"""Network on the engine's clock: groups of identical flows that share links max-min fairly.

A rate vector is max-min fair if and only if every flow has a saturated link on which no other flow is faster;
it is unique. Progressive filling reaches it link by link; here every link that is a bottleneck for all of its
own flows is frozen in the same pass, so the passes number the depth of the bottleneck order, not the links.

References
----------
Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2.

All flows of one collective round of one rank class form a flow group; by symmetry they run at one rate. Links
that all groups load equally are one constraint, so the cost of a solve does not grow with the number of
accelerators. On a fabric with circuits a group that has no path waits until the fabric has moved its ports;
ports move only when idle, carry nothing while they move, and stay until the group that they moved for has
begun. A group that crosses a failed link takes another way if the fabric has one, or waits. Every change of
circuits becomes a span on the step's time line.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import simpy

from simulator.collectives.flow_groups import FlowGroup, PricedCollective
from simulator.errors import RouteError
from simulator.fabric import Fabric, Loads
from simulator.failures import Failure, Outages
from simulator.interfaces import Circuits, Cost, Flows, LinkGraph, Reconfiguration
from simulator.results import Span, Stream, Trace

TOLERANCE = 1e-12
"""Relative slack within which two shares are the same number, dimensionless."""


def max_min_rates(
    flow: np.ndarray, link: np.ndarray, capacity: np.ndarray, *, flows: int, usage: np.ndarray | None = None
) -> np.ndarray:
    """Return the max-min fair rate of each flow.

    Parameters
    ----------
    flow, link : numpy.ndarray
        Incidences as pairs: flow[i] crosses link[i]; shape [I] each.
    capacity : numpy.ndarray
        Capacity of each link, shape [L], any one unit of rate.
    flows : int
        Number of flows; those without a pair get an infinite rate.
    usage : numpy.ndarray, optional
        How often flow[i] loads link[i], shape [I] (a group of identical flows); one by default.

    Returns
    -------
    numpy.ndarray
        Rates, shape [flows].

    Raises
    ------
    RouteError
        If a flow crosses a link without capacity.
    """
    weight = np.ones(flow.size) if usage is None else np.asarray(usage, dtype=float)
    if np.any(capacity[link] <= 0.0):
        bad = int(np.flatnonzero(capacity[link] <= 0.0)[0])
        msg = f"flow {int(flow[bad])} crosses link {int(link[bad])}, which has no capacity"
        raise RouteError(msg)
    rates = np.full(flows, np.inf)
    remaining = capacity.astype(float).copy()
    active_flow, active_link, active_weight = flow, link, weight
    while active_flow.size:
        load = np.bincount(active_link, weights=active_weight, minlength=capacity.size)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(load > 0.0, np.maximum(remaining, 0.0) / load, np.inf)
        fair = np.full(flows, np.inf)
        np.minimum.at(fair, active_flow, share[active_link])
        # A link freezes when none of its flows is held back further elsewhere.
        slowest = np.full(capacity.size, np.inf)
        np.minimum.at(slowest, active_link, fair[active_flow])
        frozen_link = (load > 0.0) & (share <= slowest * (1.0 + TOLERANCE))
        stops = np.zeros(flows, dtype=bool)
        stops[active_flow[frozen_link[active_link]]] = True
        rates[stops] = fair[stops]
        done = stops[active_flow]
        used = active_weight[done] * rates[active_flow[done]]
        remaining -= np.bincount(active_link[done], weights=used, minlength=capacity.size)
        active_flow, active_link = active_flow[~done], active_link[~done]
        active_weight = active_weight[~done]
    return rates


def fill(
    routes: np.ndarray, usage: np.ndarray | None, capacity: np.ndarray, start: float | np.ndarray = 0.0
) -> np.ndarray:
    """Return max-min fair rates of flows whose routes are the columns of a padded array.

    Parameters
    ----------
    routes : numpy.ndarray
        Links of each flow, shape [H, F]; a short route repeats one of its own links with a usage of 0.
    usage : numpy.ndarray or None
        Load that a unit of rate of the flow puts on each, shape [H, F]; None: 1 on each of [H, F] links.
    capacity : numpy.ndarray
        Capacity of each link, shape [L]; positive where a flow passes.
    start : float or numpy.ndarray
        Rate that other flows have taken of each link, shape [L] or 0.

    Returns
    -------
    numpy.ndarray
        Rates, shape [F].

    Notes
    -----
    The same rule as `max_min_rates`, in fewer passes over memory: this is the inner loop of a simulation that
    shares anew at every event. A link is tight if no flow on it is held back further elsewhere; flows that
    cross a tight link get their final rates, and the others share what these leave. An idle link divides by
    zero; no flow reads the result, so callers silence that warning once, around their own loop.
    """
    links, (hops, flows) = capacity.size, routes.shape
    rates = np.empty(flows)
    left = capacity - start
    table = np.vstack((routes, np.arange(flows)))  # flows without a rate: routes, and their numbers
    tight = np.empty(links, dtype=bool)
    load = np.bincount(routes.ravel(), None if usage is None else usage.ravel(), links)
    while True:
        routes = table[:hops]
        share = (left / load).take(routes)
        fair = np.minimum.reduce(share)
        tight.fill(True)
        tight[routes[share > fair * (1.0 + TOLERANCE)]] = False
        stops = np.logical_or.reduce(tight.take(routes))
        going = (~stops).nonzero()[0]
        if not going.size:
            rates[table[hops]] = fair
            return rates
        stopped = stops.nonzero()[0]
        frozen = fair.take(stopped)
        gone = table.take(stopped, 1)
        rates[gone[hops]] = frozen
        used = np.empty((hops, stopped.size))
        np.copyto(used, frozen) if usage is None else np.multiply(usage.take(stopped, 1), frozen, used)
        left -= np.bincount(gone[:hops].ravel(), used.ravel(), links)
        table = table.take(going, 1)
        usage = None if usage is None else usage.take(going, 1)
        load = np.bincount(table[:hops].ravel(), None if usage is None else usage.ravel(), links)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of circuits that happened."""

    start_s: float
    """Time at which the ports began to move."""
    end_s: float
    """Time at which light passed again."""
    axis: str
    """Axis of parallelism whose traffic needed it."""
    sources: np.ndarray
    """Endpoints that send this traffic, shape [F]."""
    energy_j: float
    """Energy of moving."""


def circuit_spans(changes: Iterable[Change], classes_at: Callable[[np.ndarray], Iterable[int]]) -> list[Span]:
    """Return a span for each change of circuits and each class whose traffic needed it.

    Parameters
    ----------
    changes : iterable of Change
        The changes.
    classes_at : callable
        Gives the classes of ranks at some endpoints, each once.
    """
    return [
        Span(
            rank_class=int(rank_class),
            stream=Stream.CIRCUITS,
            name=f"circuits to {change.axis}",
            start_s=change.start_s,
            end_s=change.end_s,
        )
        for change in changes
        for rank_class in classes_at(change.sources)
    ]


@dataclass(kw_only=True)
class Tally:
    """Sums of what a step or a recorded graph spends and carries; they grow while it is played."""

    compute_energy_j: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Dynamic energy of compute by component, all ranks."""
    network_energy_j: float = 0.0
    """Dynamic energy of transfers, all ranks."""
    network_bytes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Bytes on the wire by axis or kind, all ranks."""
    host_bytes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Bytes by lane, all ranks."""
    algorithms: dict[str, str] = field(default_factory=dict)
    """Algorithm by collective and axis."""

    def charge(self, cost: Cost, times: int) -> None:
        """Add the energy of several runs of an operator."""
        for part, energy_j in cost.energy_j.items():
            self.compute_energy_j[part] += energy_j * times

    def carry(self, plan: PricedCollective, where: str, name: str, times: int = 1) -> None:
        """Add bytes (under `where`), energy and algorithm (under `name`) of several runs of a collective."""
        self.network_bytes[where] += plan.wire_bytes * times
        self.network_energy_j += plan.energy_j * times
        if plan.parts and name:
            self.algorithms[name] = plan.algorithm

    def trace(self, spans: Iterable[Span], changes: Sequence[Change]) -> Trace:
        """Return the trace of what was played."""
        ordered = tuple(sorted(spans, key=lambda span: (span.end_s, span.rank_class, span.name)))
        return Trace(
            spans=ordered,
            makespan_s=max((span.end_s for span in ordered), default=0.0),
            compute_energy_j=dict(self.compute_energy_j),
            network_energy_j=self.network_energy_j,
            reconfiguration_energy_j=math.fsum(change.energy_j for change in changes),
            reconfigurations=len(changes),
            network_bytes=dict(self.network_bytes),
            host_bytes=dict(self.host_bytes),
            algorithms=dict(sorted(self.algorithms.items())),
        )


class Constraints(NamedTuple):
    """Constraints on the rates of some flow groups: incidences of groups and classes of links."""

    owner: np.ndarray
    """Group of each incidence, by its place among those asked for, shape [I]."""
    link_class: np.ndarray
    """Class of links of each incidence, shape [I]."""
    usage: np.ndarray
    """Load that a rate of 1 of the group's flows puts on each link of the class, shape [I]; dimensionless."""
    capacity: np.ndarray
    """Capacity of a link of each class, shape [classes]."""


class LinkClasses:
    """Partition of the links of a graph into classes, refined by every flow group that is added.

    Two links are of one class if they have the same capacity and every flow group loads them equally; a class
    is one constraint of a solve. A new flow group splits the classes that it loads unevenly, and leaves all
    others as they are.

    Parameters
    ----------
    capacity : numpy.ndarray
        Capacity of each link, shape [L].
    """

    def __init__(self, capacity: np.ndarray) -> None:
        values, labels, counts = np.unique(capacity, return_inverse=True, return_counts=True)
        self._label = labels.astype(np.int64)
        self._count: list[int] = counts.tolist()
        self._capacity: list[float] = values.tolist()
        self._members: list[set[int]] = [set() for _ in values]
        self.parents: list[int] = [-1] * values.size
        """Class that each was split from, or -1."""
        self._usage: dict[int, dict[int, float]] = {}

    def __contains__(self, index: int) -> bool:
        return index in self._usage

    def add(self, index: int, links: np.ndarray, usage: np.ndarray) -> None:
        """Add a flow group.

        Parameters
        ----------
        index : int
            Name of the flow group.
        links : numpy.ndarray
            Distinct links that it crosses, shape [U].
        usage : numpy.ndarray
            Flows of the flow group on each, shape [U].
        """
        loads: dict[int, float] = {}
        self._usage[index] = loads
        if not links.size:
            return
        pairs = np.column_stack([self._label[links].astype(float), usage])
        kinds, kind_of, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        kind_of = kind_of.ravel()
        for kind, ((old, load), count) in enumerate(zip(kinds.tolist(), counts.tolist(), strict=True)):
            label = int(old)
            if count < self._count[label]:
                label = self._split(label, count)
                self._label[links[kind_of == kind]] = label
            loads[label] = load
            self._members[label].add(index)

    def _split(self, label: int, count: int) -> int:
        """Take `count` links out of a class into a new one, which all its flow groups load as before."""
        new = len(self._count)
        self._count[label] -= count
        self._count.append(count)
        self._capacity.append(self._capacity[label])
        self.parents.append(label)
        self._members.append(set(self._members[label]))
        for index in self._members[label]:
            self._usage[index][new] = self._usage[index][label]
        return new

    def loads(self, index: int) -> Mapping[int, float]:
        """Return the usage of each class by a flow group."""
        return self._usage[index]

    def constraints(self, indices: tuple[int, ...]) -> Constraints:
        """Return the constraints on the rates of the flow groups of some names."""
        loads = [self._usage[index] for index in indices]
        return Constraints(
            owner=np.repeat(np.arange(len(indices)), [len(load) for load in loads]),
            link_class=np.array([label for load in loads for label in load], dtype=np.int64),
            usage=np.array([used for load in loads for used in load.values()]),
            capacity=np.array(self._capacity),
        )


@dataclass(kw_only=True, eq=False)
class Transfer:
    """Flow group that moves bytes."""

    flow_group: FlowGroup
    """The group."""
    left_bytes: float
    """Bytes that each flow still has to carry."""
    size_bytes: float
    """Bytes that each flow has to carry in all."""
    done: simpy.Event
    """Succeeds when the last byte has left."""
    rate_bytes_per_s: float = 0.0
    """Present rate of each flow."""
    weight: float = 1.0
    """Rate of each flow on a shared link, over that of a flow of weight 1; dimensionless."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Flow group that waits for circuits."""

    flow_group: FlowGroup
    """The group."""
    ready: simpy.Event
    """Succeeds when its path stands."""
    patient: Callable[[], bool]
    """Gives whether its ports should still serve others before they turn to it."""


DONE_SHARE = 1e-12
"""Share of a transfer that may be left over by rounding, dimensionless."""


class Network:
    """Transfers and circuits of one fabric during one step.

    Parameters
    ----------
    env : simpy.Environment
        The clock.
    fabric : Fabric
        The fabric that carries the flows.
    demand : tuple of Flows
        All traffic of the step, `size_bytes` being each flow's total; decides the circuits at the start.
    failures : tuple of Failure
        Failures during the step.
    shared : bool
        Whether several jobs use it.
    weigh : callable, optional
        Weight of a message of some bytes on a shared link; alike if None.
    """

    def __init__(
        self,
        env: simpy.Environment,
        fabric: Fabric,
        demand: tuple[Flows, ...],
        *,
        failures: tuple[Failure, ...] = (),
        shared: bool = False,
        weigh: Callable[[float], float] | None = None,
    ) -> None:
        self.env = env
        self.fabric = fabric
        self.undisturbed = not (failures or shared)
        """Whether no other job and no failure comes between."""
        self.circuits: Circuits = fabric.initial(demand)
        """Present circuits of the fabric."""
        self.graph = fabric.graph(self.circuits)
        """Links that exist under the present circuits."""
        self.changes: list[Change] = []
        """Changes of circuits that have ended."""
        self.samples: list[tuple[float, tuple[tuple[FlowGroup, float], ...]]] | None = None
        """Times at which rates changed, with the groups that move and their rates; None: not recorded."""
        self._weigh = weigh
        self._outages = Outages(fabric, self.circuits, failures)
        self._fails = bool(failures)
        self._lanes = fabric.traits.endpoint_lanes is not None  # so that no node passes traffic on
        self._flow_groups = 0  # numbered so far
        # Transfers, at the rates found at `_clock_s`; the wake-up of number `_token` ends the first of them.
        self._active: list[Transfer] = []
        self._stalled: list[Transfer] = []  # their circuits were turned away, or links of theirs are dark
        self._clock_s = 0.0
        self._token = 0
        self._classes: LinkClasses | None = None  # of the present links
        self._rates: dict[tuple[object, ...], np.ndarray] = {}  # by the groups that are active
        # Circuits: how often they have changed, moves that keep a link dark, and version of its last move.
        self._version = 0
        self._dark = np.zeros(self.graph.capacity_bytes_per_s.size, dtype=np.int64)
        self._moved_at = np.zeros(self._dark.size, dtype=np.int64)
        self._waiting: list[Waiting] = []
        self._promised: dict[FlowGroup, None] = {}  # groups for which ports moved, until they begin
        for failure in failures:
            env.process(self._failure(failure))

    def number(self) -> int:
        """Return the number of a new flow group."""
        self._flow_groups += 1
        return self._flow_groups - 1

    def locate(self, flow_group: FlowGroup) -> bool:
        """Bring a flow group's links up to date; return whether circuits connect all its flows."""
        if flow_group.version != self._version and not self._keeps(flow_group):
            flows = self._outages.placed(flow_group.flows)
            if flow_group.lost == self._version or not self.fabric.connected(self.circuits, flows):
                flow_group.lost = self._version
                return False
            found = self._outages.loads(self.circuits, flows)
            flow_group.links, flow_group.usage = found.links, found.usage
            flow_group.latency_s = found.latency_s
            flow_group.version = self._version
        return True

    def _keeps(self, flow_group: FlowGroup) -> bool:
        """Return whether a flow group still has the links that it was last located on.

        It has if none of them moved since. Over circuits that is certain only where endpoints have lanes of
        their own: elsewhere nodes pass traffic on, and a new circuit may be a shorter way.
        """
        if self._fails or flow_group.version < 0:
            return False
        moved = (self._moved_at[flow_group.links] > flow_group.version).any()
        if self.fabric.turns_for(flow_group.flows) and (moved or not self._lanes):
            return False
        flow_group.version = self._version
        return True

    def alone(self, flow_group: FlowGroup) -> tuple[float, float]:
        """Return latency in s and rate of each flow in B/s of a flow group that has its links to itself.

        Where circuits are missing, those that the fabric would set up are assumed, with all its ports.
        """
        found, graph = self.foreseen(flow_group)
        if not found.links.size:
            return found.latency_s, np.inf
        return found.latency_s, float((graph.capacity_bytes_per_s[found.links] / found.usage).min())

    def foreseen(self, flow_group: FlowGroup) -> tuple[FlowGroup | Loads, LinkGraph]:
        """Return a group's loads and the links, with circuits that it would get if need be; see `alone`."""
        if self.locate(flow_group):
            return flow_group, self.graph
        circuits = self.circuits_of(flow_group)
        return self.fabric.loads(circuits, self._outages.placed(flow_group.flows)), self.fabric.graph(
            circuits
        )

    def circuits_of(self, flow_group: FlowGroup) -> Circuits:
        """Return the present circuits, or those that a group would get if it has no path."""
        if self.locate(flow_group):
            return self.circuits
        flows, demand = self._outages.placed(flow_group.flows), self._outages.all_placed(flow_group.demand)
        return self.fabric.configure(self._repaired(), flows, demand)[0]

    def claims(self, flow_group: FlowGroup) -> np.ndarray:
        """Return the links that a group loads, and those that would turn for it; shape [n]."""
        if self.locate(flow_group):
            return flow_group.links
        flows, demand = self._outages.placed(flow_group.flows), self._outages.all_placed(flow_group.demand)
        circuits, change = self.fabric.configure(self.circuits, flows, demand)
        return np.concatenate([self.fabric.loads(circuits, flows).links, change.moved_links])

    def axis_circuits(self, demand: Sequence[Flows], axis: str) -> Circuits:
        """Return the circuits that the fabric would set up for the traffic of one axis alone."""
        same = tuple(one for one in demand if one.axis == axis)
        return self.fabric.initial(self._outages.all_placed(same))

    def serves(self, demand: Sequence[Flows], axis: str) -> bool:
        """Return whether the present circuits connect all traffic of an axis."""
        same = tuple(one for one in demand if one.axis == axis)
        return all(self.fabric.connected(self.circuits, one) for one in self._outages.all_placed(same))

    def connects(self, circuits: Circuits, flow_groups: Sequence[FlowGroup]) -> bool:
        """Return whether circuits would connect flow groups."""
        return all(self.fabric.connected(circuits, self._outages.placed(one.flows)) for one in flow_groups)

    def clash(self, flow_groups: Sequence[FlowGroup]) -> bool:
        """Return whether turning circuits to flow groups, one by one, takes circuits from earlier ones."""
        circuits = self.circuits
        for one in flow_groups:
            flows = self._outages.placed(one.flows)
            if not self.fabric.connected(circuits, flows):
                circuits = self.fabric.configure(circuits, flows, self._outages.all_placed(one.demand))[0]
        return not self.connects(circuits, flow_groups)

    def _repaired(self) -> Circuits:
        """Return the present circuits as they were with all ports."""
        if not self._outages.ports.size:
            return self.circuits
        return self.fabric.without(self.circuits, self._outages.ports[:0])[0]

    def carry(
        self,
        flow_group: FlowGroup,
        size_bytes: float,
        count: int,
        patient: Callable[[], bool] = lambda: False,
        *,
        latency: bool = True,
    ) -> Generator[simpy.Event, Any, None]:
        """Carry rounds of flows: wait for circuits, share links, pay the latency.

        Parameters
        ----------
        flow_group : FlowGroup
            The flows.
        size_bytes : float
            Bytes of each flow in one round.
        count : int
            Rounds, one after the other.
        patient : callable
            Asked before ports turn to this flow group; while true, they stay where they are.
        latency : bool
            Whether each round pays it here; else it is paid elsewhere.
        """
        while not self.locate(flow_group) or self._blocked(flow_group):
            ready = self.env.event()
            self._waiting.append(Waiting(flow_group=flow_group, ready=ready, patient=patient))
            self.serve()
            yield ready
        self._promised.pop(flow_group, None)
        total = size_bytes * count
        if total > 0.0 and flow_group.links.size:
            done = self.env.event()
            transfer = Transfer(flow_group=flow_group, left_bytes=total, size_bytes=total, done=done)
            transfer.weight = 1.0 if self._weigh is None else self._weigh(size_bytes)
            self._advance()
            self._active.append(transfer)
            self._share()
            yield transfer.done
        if latency:
            yield self.env.timeout(flow_group.latency_s * count)

    def _advance(self) -> None:
        elapsed = self.env.now - self._clock_s
        self._clock_s = self.env.now
        for transfer in self._active:
            transfer.left_bytes -= transfer.rate_bytes_per_s * elapsed

    def _share(self) -> None:
        """Set the rates of all active transfers and wake up at the next end."""
        self._token += 1
        if not self._active:
            self._note()
            return
        self._active.sort(key=lambda transfer: transfer.flow_group.index)
        key = tuple(transfer.flow_group.index for transfer in self._active)
        known = key if self._weigh is None else (key, tuple(one.weight for one in self._active))
        rates = self._rates.get(known)
        if rates is None:
            rates = self._rates[known] = self._solve(key)
        for transfer, rate in zip(self._active, rates, strict=True):
            transfer.rate_bytes_per_s = float(rate)
        self._note()
        soonest = min(transfer.left_bytes / transfer.rate_bytes_per_s for transfer in self._active)
        token = self._token
        wake = self.env.timeout(max(soonest, 0.0))
        wake.callbacks.append(lambda _: self._finish(token))

    def _note(self) -> None:
        """Record the groups that move from now on and their rates, if `samples` is a list."""
        if self.samples is not None:
            moving = tuple((one.flow_group, one.rate_bytes_per_s) for one in self._active)
            self.samples.append((self.env.now, moving))

    def _solve(self, key: tuple[int, ...]) -> np.ndarray:
        """Return the rates of all active transfers, whose flow groups have the numbers `key`."""
        if self._classes is None:  # sorts all links, which prices alone never need
            self._classes = LinkClasses(self.graph.capacity_bytes_per_s)
        for transfer in self._active:
            flow_group = transfer.flow_group
            if flow_group.index not in self._classes:
                self._classes.add(flow_group.index, flow_group.links, flow_group.usage)
        owner, link_class, usage, capacity = self._classes.constraints(key)
        weights = np.array([transfer.weight for transfer in self._active])
        fair = max_min_rates(owner, link_class, capacity, flows=len(key), usage=usage * weights[owner])
        return weights * fair

    def _finish(self, token: int) -> None:
        """End the transfers whose last byte has left, unless another wake-up has replaced this one."""
        if token != self._token:
            return
        self._advance()
        soonest = min(transfer.left_bytes / transfer.rate_bytes_per_s for transfer in self._active)
        ended = [
            transfer
            for transfer in self._active
            if transfer.left_bytes <= transfer.size_bytes * DONE_SHARE
            or transfer.left_bytes / transfer.rate_bytes_per_s <= soonest
        ]
        self._active = [transfer for transfer in self._active if transfer not in ended]
        for transfer in ended:
            transfer.done.succeed()
        self._share()
        self.serve()

    def serve(self, *, impatient: bool = False) -> bool:
        """Serve the waiting flow groups in order: start those with a lit path, move ports for the others.

        Parameters
        ----------
        impatient : bool
            Move ports for the first flow group that can have them, whatever it would rather wait for.

        Returns
        -------
        bool
            Whether anything started or moved.
        """
        progress = False
        for transfer in tuple(self._stalled):
            if not self.locate(transfer.flow_group):  # a spare that light does not reach yet
                progress = self._move(transfer.flow_group) or progress
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if self.locate(one.flow_group) and not self._blocked(one.flow_group):
                self._promised[one.flow_group] = None
                one.ready.succeed()
                progress = True
            else:
                self._waiting.append(one)
        for one in tuple(self._waiting):
            if not self.locate(one.flow_group) and ((impatient and not progress) or not one.patient()):
                if self._move(one.flow_group):
                    self._promised[one.flow_group] = None
                    progress = True
        return progress

    def prefetch(self, flow_group: FlowGroup) -> None:
        """Move idle ports to a flow group that will come, if it has no path yet; ports at work stay."""
        if not self.locate(flow_group):
            self._move(flow_group)

    def _move(self, flow_group: FlowGroup) -> bool:
        """Start moving the ports that a flow group needs, unless one is busy or moving; return whether."""
        flows, demand = self._outages.placed(flow_group.flows), self._outages.all_placed(flow_group.demand)
        circuits, change = self.fabric.configure(self.circuits, flows, demand)
        if not self.fabric.connected(circuits, flows):
            if self._outages.ports.size:
                return False
            sender, receiver = int(flows.sources[0]), int(flows.destinations[0])
            axis = flows.axis
            msg = (
                f"{self.fabric.name} cannot connect endpoint {sender} to {receiver} ({axis}); "
                "give it more lanes, or take a fabric whose nodes pass on (direct_connect)"
            )
            raise RouteError(msg)
        moved = change.moved_links
        moves = np.zeros(self._dark.size, dtype=bool)
        moves[moved] = True
        if self._dark[moved].any() or any(self._loses(one, moves, circuits) for one in self._keeping()):
            return False
        self._advance()
        self.circuits = circuits
        self.graph = self._outages.left(self.fabric.graph(circuits))
        self._dark[moved] += 1
        self._moved_at[moved] = self._version + 1  # the version that begins now
        self._relocate()
        self.env.process(self._dark_time(flows, change))
        return True

    def _loses(self, flow_group: FlowGroup, moves: np.ndarray, circuits: Circuits) -> bool:
        """Return whether a move (links that move, a mask [L], and circuits after it) cuts a group off."""
        if moves[flow_group.links].any():
            return True
        return not (self._lanes or self.fabric.connected(circuits, flow_group.flows))

    def _keeping(self) -> Iterator[FlowGroup]:
        """Yield the flow groups whose circuits stay: those that move bytes, and those promised theirs."""
        yield from (transfer.flow_group for transfer in self._active)
        yield from (one for one in self._promised if self.locate(one) and not self._held(one))

    def _relocate(self) -> None:
        """Find the links of all transfers anew: some stall, stalled ones may go on; share the links."""
        self._version += 1
        self._classes = None
        self._rates.clear()
        transfers = self._active + self._stalled
        held = [not self.locate(one.flow_group) or self._blocked(one.flow_group) for one in transfers]
        self._active = [one for one, held_up in zip(transfers, held, strict=True) if not held_up]
        self._stalled = [one for one, held_up in zip(transfers, held, strict=True) if held_up]
        for one in self._stalled:
            one.rate_bytes_per_s = 0.0
        self._share()

    def _blocked(self, flow_group: FlowGroup) -> bool:
        """Return whether a flow group, located as it is, crosses a dark or a failed link."""
        return self._held(flow_group) or bool(self._dark[flow_group.links].any())

    def _held(self, flow_group: FlowGroup) -> bool:
        """Return whether a flow group, located as it is, needs something that failed."""
        if not self._outages.expected:
            return False
        return self._outages.holds(self._outages.placed(flow_group.flows), flow_group.links)

    def _failure(self, failure: Failure) -> Generator[simpy.Event, Any, None]:
        """Let a failure begin at its time; then spares take over, or the failed parts are repaired."""
        yield self.env.timeout(failure.time_s)
        self._outages.begin(failure)
        self._outage(failure)
        if failure.spares:
            yield self.env.timeout(failure.takeover_s)
            self._advance()
            for one in self._active + self._stalled:
                flows = self._outages.placed(one.flow_group.flows)
                if np.isin((flows.sources, flows.destinations), failure.endpoints).any():
                    one.left_bytes = one.size_bytes  # what it had of them is lost
            self._outages.take_over(failure)
            self._relocate()
            self.serve()
        if failure.repair_s is not None:
            yield self.env.timeout(max(failure.repair_s - self.env.now, 0.0))
            self._outages.end(failure)
            self._outage(failure)

    def _outage(self, failure: Failure) -> None:
        """Find the ways of all traffic anew, now that a failure has begun or ended."""
        self._advance()
        change = Reconfiguration()
        if failure.ports:
            self.circuits, change = self.fabric.without(self.circuits, self._outages.ports)
        self.graph = self._outages.left(self.fabric.graph(self.circuits))
        if change.moved_links.size:
            nobody = Flows(sources=np.empty(0, int), destinations=np.empty(0, int), size_bytes=0.0)
            self._dark[change.moved_links] += 1
            self.env.process(self._dark_time(nobody, change))
        self._relocate()
        self.serve()

    def check_nothing_waits(self) -> None:
        """Raise a RouteError if traffic still waits for something that failed."""
        flow_groups = [one.flow_group for one in self._stalled] + [one.flow_group for one in self._waiting]
        for flow_group in flow_groups:
            lost = self._outages.ports.size and not self.locate(flow_group)
            if lost or self._held(flow_group):
                flows = self._outages.placed(flow_group.flows)
                failed = self._outages.named(flows, flow_group.links)
                msg = (
                    f"{flows.axis} traffic waits for ever for {failed} of "
                    f"{self.fabric.name}, which failed; "
                    "give the failure a repair_s or spares, or take a fabric with other paths"
                )
                raise RouteError(msg)

    def _dark_time(self, flows: Flows, change: Reconfiguration) -> Generator[simpy.Event, Any, None]:
        """Keep the links of a change dark for its time, then note it and serve what waits."""
        start = self.env.now
        yield self.env.timeout(change.reconfiguration_s)
        self._dark[change.moved_links] -= 1
        if self._stalled:
            self._advance()
            self._relocate()
        if change.moved_links.size:  # else the circuits stood already
            self.changes.append(
                Change(
                    start_s=start,
                    end_s=self.env.now,
                    axis=flows.axis,
                    sources=flows.sources,
                    energy_j=change.energy_j,
                )
            )
        self.serve()
