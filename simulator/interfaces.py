"""READ FIRST: the seams of compute units and their numerics, and the flows that a fabric carries.

The engine sees only these types and `simulator.fabric`; it cannot know whether a product is made of light.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from simulator.operators import CollectiveKind, Elementwise, MatMul, Phase

if TYPE_CHECKING:
    import torch


def read_only(parts: dict[str, float]) -> MappingProxyType[str, float]:
    """Return a mapping that cannot be changed."""
    return MappingProxyType(parts)


# Costs, and with them nodes and results of steps, travel between processes.
copyreg.pickle(MappingProxyType, lambda one: (read_only, (dict(one),)))


class Bound(StrEnum):
    """Limit of an operator's time."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LAUNCH = "launch"
    PROGRAMMING = "programming"
    BUFFER = "buffer"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Time and dynamic energy of one run of an operator on a unit."""

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
    """Numerics of products, executable in torch."""

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
    """Unit that runs operators: a GPU, a photonic core with its electronics."""

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


MIXED = -1
"""Pattern of flows that stand for exchanges of several."""


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
    kind: CollectiveKind | None = None
    """Kind of collective they carry out, that of most bytes where several share them; None of bare pairs."""
    groups: np.ndarray | None = None
    """Members of the groups around each of which the flows go, each member to the next and the last to the
    first, shape [G, n]; None where they are pairs."""
    weights: np.ndarray | None = None
    """Bytes of each over `size_bytes`, shape [F]; all are equal if left out. Flows of a group end together,
    so their rates stand to each other as these do."""
    pattern: int = 0
    """Pattern of an uneven exchange (`simulator.operators.Skew`); `MIXED` if several share the flows."""

    @classmethod
    def around(
        cls, groups: np.ndarray, *, size_bytes: float, axis: str = "", kind: CollectiveKind | None = None
    ) -> Flows:
        """Return flows around groups, shape [G, n]: each member to the next, the last to the first."""
        return cls(
            sources=groups.ravel(),
            destinations=np.roll(groups, -1, axis=1).ravel(),
            size_bytes=size_bytes,
            axis=axis,
            kind=kind,
            groups=groups,
        )

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
        groups = None if self.groups is None else self.groups[:, ::-1]
        return replace(self, sources=self.destinations, destinations=self.sources, groups=groups)

    def part(self, kept: np.ndarray) -> Flows:
        """Return some of the flows, chosen by a mask of shape [F]; parts of a group are pairs."""
        return replace(
            self,
            sources=self.sources[kept],
            destinations=self.destinations[kept],
            weights=None if self.weights is None else self.weights[kept],
            groups=self._whole_groups(self.sources[kept]),
        )

    def _whole_groups(self, sources: np.ndarray) -> np.ndarray | None:
        """Return the groups all of whose members still send, or None if some of a group's do not."""
        if self.groups is None:
            return None
        sending = np.isin(self.groups, sources)
        whole = sending.all(axis=1)
        return None if (sending.any(axis=1) & ~whole).any() else self.groups[whole]

    def moved_to(self, endpoint_of: np.ndarray) -> Flows:
        """Return the same between other endpoints: those that stand for each, shape [E]."""
        return replace(
            self,
            sources=endpoint_of[self.sources],
            destinations=endpoint_of[self.destinations],
            groups=None if self.groups is None else endpoint_of[self.groups],
        )


@dataclass(frozen=True, kw_only=True)
class LinkGraph:
    """The directed links that exist now."""

    capacity_bytes_per_s: np.ndarray
    """Capacity of each link, shape [L]; zero for a circuit that does not stand."""
    latency_s: np.ndarray
    """Latency of each link, shape [L]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Wiring:
    """Directed links between vertices, of which endpoints are the first and switches follow."""

    tails: np.ndarray
    """Vertex at which each link begins, shape [L]."""
    heads: np.ndarray
    """Vertex at which each link ends, shape [L]."""
    capacity_bytes_per_s: np.ndarray
    """Capacity of each link, shape [L]. Links that share traffic ideally may stand as one of their sum."""
    latency_s: np.ndarray
    """Latency of each link with the switch at its end, shape [L]."""

    @property
    def links(self) -> int:
        """Links in all."""
        return int(self.tails.size)

    @property
    def vertices(self) -> int:
        """Vertices that any link touches, numbered from 0."""
        return int(max(self.tails.max(initial=-1), self.heads.max(initial=-1))) + 1

    def graph(self) -> LinkGraph:
        """Return capacities and latencies as the engine takes them; nobody may write to them."""
        capacity, latency = self.capacity_bytes_per_s.astype(float), self.latency_s.astype(float)
        capacity.flags.writeable = False
        latency.flags.writeable = False
        return LinkGraph(capacity_bytes_per_s=capacity, latency_s=latency)


@dataclass(frozen=True, kw_only=True)
class Reconfiguration:
    """Cost of a change of circuits."""

    reconfiguration_s: float = 0.0
    """Time for which the moving links carry nothing."""
    moved_links: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Links that change or vanish, and so must be idle first; shape [M]."""
    energy_j: float = 0.0
    """Energy of moving the ports."""


Circuits = Any
"""State of a fabric's circuits: opaque to everyone but the fabric, handed in and handed back."""
