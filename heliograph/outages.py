"""What does not work at an instant of a run: links, ports, endpoints, and who stands in for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from heliograph.bundles import Loads, fabric_loads, loads
from heliograph.errors import RouteError
from heliograph.failures import Detours, Failure, Ported, SpreadsAround, endpoint_links
from heliograph.interfaces import Circuits, Fabric, Flows, LinkGraph

_WHOLE = 1.0 - 1e-9
"""Share of a link from which on, once lost, it carries nothing; below one by rounding. Dimensionless."""


class Outages:
    """Failures that have begun and not ended, with the spares in their places.

    Parameters
    ----------
    fabric : Fabric
        What they belong to.
    circuits
        Its circuits at the start of the run.
    failures : tuple of Failure
        All failures of the run.

    Attributes
    ----------
    expected : bool
        Whether the run has any failures at all.
    dead : numpy.ndarray
        Whether each link carries nothing now, shape [L].
    ports : numpy.ndarray
        Ports that are down now, shape [n].

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
        ports = self._fabric.ports if isinstance(self._fabric, Ported) else 0
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
        """Take away what a failure takes."""
        self._now[failure] += 1
        self._count()

    def end(self, failure: Failure) -> None:
        """Give back what a failure took, where no other one keeps it."""
        self._now[failure] -= 1
        self._count()

    def _count(self) -> None:
        now = list(self._now.elements())
        self._lost[:] = 0.0
        self._down[:] = False
        for failure in now:
            self._lost[self._dead_links[failure]] += failure.share
            self._down[list(failure.endpoints)] = True
        self.dead = self._lost >= _WHOLE
        self.ports = np.unique([port for failure in now for port in failure.ports]).astype(np.int64)

    def take_over(self, failure: Failure) -> None:
        """Put a failure's spares in the places of its endpoints."""
        spare_of = np.arange(self._instead.size)
        spare_of[list(failure.endpoints)] = failure.spares
        self._instead = spare_of[self._instead]

    def loads(self, circuits: Circuits, flows: Flows, graph: LinkGraph) -> Loads:
        """Return what connected flows ask of links, round those that are dead if the fabric knows a way."""
        found = fabric_loads(self._fabric, circuits, flows, graph)
        if not self.dead[found.links].any():
            return found
        failed = np.flatnonzero(self.dead)
        if isinstance(self._fabric, SpreadsAround):
            return self._fabric.loads_around(circuits, flows, failed)
        if isinstance(self._fabric, Detours):
            links, usage, latency_s = loads(
                self._fabric.around(circuits, flows, failed), graph, flows.weights
            )
            return Loads(links=links, usage=usage, latency_s=latency_s)
        return found

    def placed(self, flows: Flows) -> Flows:
        """Return flows with spares in the places of endpoints that failed."""
        if not self.expected:
            return flows
        sources, destinations = self._instead[flows.sources], self._instead[flows.destinations]
        return replace(flows, sources=sources, destinations=destinations)

    def all_placed(self, several: tuple[Flows, ...]) -> tuple[Flows, ...]:
        """Return several flows placed as `placed` does."""
        return tuple(map(self.placed, several))

    def left(self, graph: LinkGraph) -> LinkGraph:
        """Return links of which some have lost a part of what they stand for; dead ones stay."""
        part = (self._lost > 0.0) & ~self.dead
        if not part.any():
            return graph
        left = np.where(part, 1.0 - self._lost, 1.0)
        return replace(graph, capacity_bytes_per_s=graph.capacity_bytes_per_s * left)

    def holds(self, flows: Flows, links: np.ndarray) -> bool:
        """Return whether flows, placed as they are, end at something that failed or load a dead link."""
        ends = self._down[flows.sources].any() or self._down[flows.destinations].any()
        return bool(ends or self.dead[links].any())

    def named(self, flows: Flows, links: np.ndarray) -> str:
        """Return what flows wait for, as a person would call it."""
        ends = np.concatenate((flows.sources, flows.destinations))
        down, dead = ends[self._down[ends]], links[self.dead[links]]
        if down.size:
            return f"endpoint {down[0]}"
        if self.ports.size and isinstance(self._fabric, Ported) and not dead.size:
            more = f" and {self.ports.size - 1} more" if self.ports.size > 1 else ""
            return self._fabric.port_name(int(self.ports[0])) + more
        return f"link {dead[0]}"
