"""The network on the engine's clock: bundles of identical flows that share links max-min fairly.

All flows of one collective round of one rank class form a bundle; by symmetry they run at one rate. Links on
which the same bundles meet in the same numbers are one constraint, so the cost of a solve does not grow with
the number of accelerators. On a fabric with circuits a bundle that has no path waits until the fabric has
moved its ports; ports move only when idle, and carry nothing while they move.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy

from heliograph.errors import RouteError
from heliograph.fairshare import max_min_rates
from heliograph.interfaces import Circuits, Fabric, Flows, LinkGraph, Reconfiguration
from heliograph.link_classes import LinkClasses

_DONE_SHARE = 1e-12
"""Share of a transfer that may be left over by rounding, dimensionless."""


@dataclass(kw_only=True, eq=False)
class Bundle:
    """Identical flows of one rank class, with the links they load under the present circuits."""

    index: int
    """Number of the bundle; orders solves, so that equal runs give equal bytes."""
    flows: Flows
    """The flows; `size_bytes` is not used."""
    demand: tuple[Flows, ...]
    """Traffic of the same endpoints that a circuit policy may serve together with this one."""
    links: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Distinct links, shape [U]."""
    usage: np.ndarray = field(default_factory=lambda: np.empty(0))
    """Flows of the bundle on each of them, shape [U]."""
    latency_s: float = 0.0
    """Longest path latency."""
    version: int = -1
    """Circuits' version that the links belong to."""


@dataclass(kw_only=True, eq=False)
class Transfer:
    """One bundle at work."""

    bundle: Bundle
    """What moves."""
    left_bytes: float
    """Bytes that each flow still has to carry."""
    size_bytes: float
    """Bytes that each flow has to carry in all."""
    done: simpy.Event
    """Succeeds when the last byte has left."""
    rate_bytes_per_s: float = 0.0
    """Present rate of each flow."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A bundle without a lit path."""

    bundle: Bundle
    """What wants to move."""
    ready: simpy.Event
    """Succeeds when the path is lit."""
    patient: Callable[[], bool]
    """Whether its ports should still serve others before they turn to it."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of circuits that happened."""

    start_s: float
    """When the ports began to move."""
    end_s: float
    """When light passed again."""
    axis: str
    """Axis of parallelism that asked for it."""
    sources: np.ndarray
    """Endpoints whose traffic asked for it, shape [F]."""
    energy_j: float
    """Energy of moving."""


def _loads(routes: np.ndarray, graph: LinkGraph) -> tuple[np.ndarray, np.ndarray, float]:
    """Return distinct links, flows on each, and the longest latency of routes [F, H]."""
    crossed = routes >= 0
    latency = np.where(crossed, graph.latency_s[np.where(crossed, routes, 0)], 0.0)
    links, counts = np.unique(routes[crossed], return_counts=True)
    return links, counts.astype(float), float(latency.sum(axis=1).max(initial=0.0))


class Network:
    """Transfers and circuits of one fabric during one step.

    Parameters
    ----------
    env : simpy.Environment
        The clock.
    fabric : Fabric
        What carries the flows.
    demand : tuple of Flows
        All traffic of the step, `size_bytes` being each flow's total; decides the circuits at the start.
    """

    def __init__(self, env: simpy.Environment, fabric: Fabric, demand: tuple[Flows, ...]) -> None:
        self.env = env
        self.fabric = fabric
        self.changes: list[Change] = []
        self._circuits: Circuits = fabric.initial(demand)
        self._version = 0
        self._graph = fabric.graph(self._circuits)
        self._active: list[Transfer] = []
        self._waiting: list[Waiting] = []
        self._dark = np.zeros(self._graph.capacity_bytes_per_s.size, dtype=np.int64)
        self._clock_s = 0.0
        self._token = 0
        self._classes = LinkClasses(self._graph.capacity_bytes_per_s)
        self._rates: dict[tuple[int, ...], np.ndarray] = {}

    def locate(self, bundle: Bundle) -> bool:
        """Bring a bundle's links up to date; return whether circuits connect all its flows."""
        if bundle.version != self._version:
            if not self.fabric.connected(self._circuits, bundle.flows):
                return False
            routes = self.fabric.route(self._circuits, bundle.flows)
            bundle.links, bundle.usage, bundle.latency_s = _loads(routes, self._graph)
            bundle.version = self._version
        return True

    def alone(self, bundle: Bundle) -> tuple[float, float]:
        """Return latency in s and rate of each flow in B/s of a bundle that has its links to itself.

        Where circuits are missing, those that the fabric would set up are assumed.
        """
        if self.locate(bundle):
            links, usage, latency_s, graph = bundle.links, bundle.usage, bundle.latency_s, self._graph
        else:
            circuits, _ = self.fabric.configure(self._circuits, bundle.flows, bundle.demand)
            graph = self.fabric.graph(circuits)
            links, usage, latency_s = _loads(self.fabric.route(circuits, bundle.flows), graph)
        if not links.size:
            return latency_s, np.inf
        return latency_s, float((graph.capacity_bytes_per_s[links] / usage).min())

    def carry(
        self,
        bundle: Bundle,
        size_bytes: float,
        count: int,
        patient: Callable[[], bool] = lambda: False,
    ) -> Generator[simpy.Event, Any, None]:
        """Carry rounds of flows: wait for circuits, share links, pay the latency.

        Parameters
        ----------
        bundle : Bundle
            The flows.
        size_bytes : float
            Bytes of each flow in one round.
        count : int
            Rounds, one after the other.
        patient : callable
            Asked before ports turn to this bundle; while true, they stay where they are.
        """
        while not self.locate(bundle) or self._dark[bundle.links].any():
            ready = self.env.event()
            self._waiting.append(Waiting(bundle=bundle, ready=ready, patient=patient))
            self.serve()
            yield ready
        total = size_bytes * count
        if total > 0.0 and bundle.links.size:
            transfer = Transfer(bundle=bundle, left_bytes=total, size_bytes=total, done=self.env.event())
            self._advance()
            self._active.append(transfer)
            self._share()
            yield transfer.done
        yield self.env.timeout(bundle.latency_s * count)

    def _advance(self) -> None:
        elapsed = self.env.now - self._clock_s
        self._clock_s = self.env.now
        for transfer in self._active:
            transfer.left_bytes -= transfer.rate_bytes_per_s * elapsed

    def _share(self) -> None:
        """Set the rates of all active transfers and wake up at the next end."""
        self._token += 1
        if not self._active:
            return
        self._active.sort(key=lambda transfer: transfer.bundle.index)
        key = tuple(transfer.bundle.index for transfer in self._active)
        rates = self._rates.get(key)
        if rates is None:
            rates = self._rates[key] = self._solve(key)
        for transfer, rate in zip(self._active, rates, strict=True):
            transfer.rate_bytes_per_s = float(rate)
        soonest = min(transfer.left_bytes / transfer.rate_bytes_per_s for transfer in self._active)
        token = self._token
        wake = self.env.timeout(max(soonest, 0.0))
        wake.callbacks.append(lambda _: self._finish(token))

    def _solve(self, key: tuple[int, ...]) -> np.ndarray:
        for transfer in self._active:
            bundle = transfer.bundle
            if bundle.index not in self._classes:
                self._classes.add(bundle.index, bundle.links, bundle.usage)
        owner, kind, usage, capacity = self._classes.constraints(key)
        return max_min_rates(owner, kind, capacity, flows=len(key), usage=usage)

    def _finish(self, token: int) -> None:
        if token != self._token:
            return
        self._advance()
        soonest = min(transfer.left_bytes / transfer.rate_bytes_per_s for transfer in self._active)
        ended = [
            transfer
            for transfer in self._active
            if transfer.left_bytes <= transfer.size_bytes * _DONE_SHARE
            or transfer.left_bytes / transfer.rate_bytes_per_s <= soonest
        ]
        self._active = [transfer for transfer in self._active if transfer not in ended]
        for transfer in ended:
            transfer.done.succeed()
        self._share()
        self.serve()

    def serve(self, *, impatient: bool = False) -> bool:
        """Go through the waiting bundles in order: start those with a lit path, move ports for others.

        Parameters
        ----------
        impatient : bool
            Move ports for the first bundle that can have them, whatever it would rather wait for.

        Returns
        -------
        bool
            Whether anything started or moved.
        """
        waiting, self._waiting = self._waiting, []
        progress = False
        for one in waiting:
            if not self.locate(one.bundle):
                if (impatient and not progress) or not one.patient():
                    progress = self._move(one.bundle) or progress
                self._waiting.append(one)
            elif self._dark[one.bundle.links].any():
                self._waiting.append(one)
            else:
                one.ready.succeed()
                progress = True
        return progress

    def _move(self, bundle: Bundle) -> bool:
        """Start moving the ports that a bundle needs, unless one is busy or moving; return whether."""
        circuits, change = self.fabric.configure(self._circuits, bundle.flows, bundle.demand)
        if not self.fabric.connected(circuits, bundle.flows):
            sender, receiver = int(bundle.flows.sources[0]), int(bundle.flows.destinations[0])
            msg = f"{self.fabric.name} cannot connect endpoint {sender} to {receiver} ({bundle.flows.axis})"
            raise RouteError(msg)
        moved = change.moved_links
        if self._dark[moved].any() or any(
            np.isin(transfer.bundle.links, moved).any() for transfer in self._active
        ):
            return False
        self._advance()
        self._circuits = circuits
        self._version += 1
        self._graph = self.fabric.graph(circuits)
        self._classes = LinkClasses(self._graph.capacity_bytes_per_s)
        self._rates.clear()
        for transfer in self._active:
            self.locate(transfer.bundle)
        self._share()
        self.env.process(self._dark_time(bundle.flows, change))
        return True

    def _dark_time(self, flows: Flows, change: Reconfiguration) -> Generator[simpy.Event, Any, None]:
        start = self.env.now
        self._dark[change.moved_links] += 1
        yield self.env.timeout(change.dark_s)
        self._dark[change.moved_links] -= 1
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
