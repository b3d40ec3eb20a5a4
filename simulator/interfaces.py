"""READ FIRST: the seams. What a compute unit, its numerics and a fabric must answer, and nothing more.

The engine sees only these types; it cannot know whether a product is made of light.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from simulator.operators import Elementwise, MatMul, Phase

if TYPE_CHECKING:
    import torch


class Bound(StrEnum):
    """What limits an operator's time."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LAUNCH = "launch"
    PROGRAMMING = "programming"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What one run of an operator takes on a unit, beyond the unit's static power."""

    time_s: float
    """Duration."""
    energy_j: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Dynamic energy by component."""
    bound: Bound = Bound.COMPUTE
    """What the duration is limited by."""
    host_s: float = 0.0
    """Time the host needs to issue it; as it runs ahead, only the sum over a run of operators can bind."""


@runtime_checkable
class Numerics(Protocol):
    """How a product comes out, executable in torch."""

    def matmul(self, a_BMK: torch.Tensor, b_BKN: torch.Tensor, key: int) -> torch.Tensor:
        """Return the product, shape [B, M, N].

        Parameters
        ----------
        a_BMK, b_BKN : torch.Tensor
            Operands, shapes [B, M, K] and [B, K, N].
        key : int
            Explicit randomness: the same key gives the same noise.
        """
        ...


@runtime_checkable
class ComputeUnit(Protocol):
    """Something that runs operators: a GPU, a photonic core with its electronics."""

    @property
    def name(self) -> str:
        """Name shown in tables and traces."""
        ...

    @property
    def static_w(self) -> float:
        """Power drawn all the time, whether or not it works."""
        ...

    def accepts(self, operator: MatMul | Elementwise) -> bool:
        """Return whether this unit can run the operator at all."""
        ...

    def cost(self, operator: MatMul | Elementwise) -> Cost:
        """Return time and dynamic energy of one run."""
        ...

    def numerics(self, phase: Phase) -> Numerics:
        """Return how this unit's products come out in a phase."""
        ...


@dataclass(frozen=True, kw_only=True)
class Flows:
    """Transfers that start together, all of one axis of parallelism."""

    sources: np.ndarray
    """Sending endpoints, shape [F]."""
    destinations: np.ndarray
    """Receiving endpoints, shape [F]."""
    size_bytes: float
    """Bytes of each transfer."""
    axis: str = ""
    """Axis of parallelism they belong to; circuit policies group by it."""
    weights: np.ndarray | None = None
    """Bytes of each over `size_bytes`, shape [F]; all are equal if left out. Flows of a bundle end together,
    so their rates stand to each other as these do."""

    @property
    def sizes_bytes(self) -> np.ndarray:
        """Bytes of each, shape [F]."""
        if self.weights is None:
            return np.full(len(self.sources), float(self.size_bytes))
        return self.size_bytes * self.weights

    def moved_bytes(self, times: np.ndarray) -> float:
        """Return the bytes that pass if each flow passes so many times, shape [F]."""
        if self.weights is None:
            return float(times.sum()) * self.size_bytes
        return float((times * self.weights).sum()) * self.size_bytes

    def reversed(self) -> Flows:
        """Return as much the other way."""
        return replace(self, sources=self.destinations, destinations=self.sources)

    def part(self, kept: np.ndarray) -> Flows:
        """Return some of the flows, chosen by a mask of shape [F]."""
        return replace(
            self,
            sources=self.sources[kept],
            destinations=self.destinations[kept],
            weights=None if self.weights is None else self.weights[kept],
        )


@dataclass(frozen=True, kw_only=True)
class LinkGraph:
    """The directed links that exist now."""

    capacity_bytes_per_s: np.ndarray
    """Capacity of each link, shape [L]; zero for a link that is dark."""
    latency_s: np.ndarray
    """Latency of each link, shape [L]."""


@dataclass(frozen=True, kw_only=True)
class Reconfiguration:
    """What a change of circuits costs."""

    dark_s: float = 0.0
    """How long the moving links carry nothing."""
    moved_links: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Links that change or vanish, and so must be idle first; shape [M]."""
    energy_j: float = 0.0
    """Energy of moving the ports."""


@runtime_checkable
class TurnsAhead(Protocol):
    """A fabric whose idle ports may turn to traffic before it asks."""

    @property
    def turns_ahead(self) -> bool:
        """Whether they do."""
        ...


Circuits = Any
"""State of a fabric's circuits: opaque to everyone but the fabric, handed in and handed back."""


@runtime_checkable
class Fabric(Protocol):
    """What carries flows between endpoints (accelerators, numbered from 0)."""

    @property
    def name(self) -> str:
        """Name shown in tables and traces."""
        ...

    @property
    def endpoints(self) -> int:
        """Accelerators it connects."""
        ...

    @property
    def node_size(self) -> int:
        """Endpoints that share a scale-up domain; consecutive numbers."""
        ...

    @property
    def static_w(self) -> float:
        """Power of switches and transceivers, for the whole fabric."""
        ...

    @property
    def cost_usd(self) -> float:
        """Price of switches, transceivers and fibres, for the whole fabric."""
        ...

    def initial(self, demand: tuple[Flows, ...]) -> Circuits:
        """Return the circuits at the start of a step, given all the traffic the step will have."""
        ...

    def configure(
        self, circuits: Circuits, flows: Flows, demand: tuple[Flows, ...]
    ) -> tuple[Circuits, Reconfiguration]:
        """Return circuits over which `flows` can be routed, and what the change costs.

        `demand` holds the flows of the same endpoints that a policy may want to serve at the same time.
        A packet fabric returns what it was handed, and no dark time.
        """
        ...

    def graph(self, circuits: Circuits) -> LinkGraph:
        """Return the links that exist now; link numbers never change."""
        ...

    def route(self, circuits: Circuits, flows: Flows) -> np.ndarray:
        """Return the links of each flow, shape [F, H], short routes padded with -1.

        Raises
        ------
        RouteError
            If a flow has no path over the present circuits.
        """
        ...

    def connected(self, circuits: Circuits, flows: Flows) -> bool:
        """Return whether every flow has a path over the present circuits."""
        ...

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once."""
        ...
