"""READ FIRST: interfaces of compute units and their numerics, and the flows that a fabric carries.

The engine uses only these types and `simulator.fabric`; electronic and photonic units look alike to it.
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


# Costs, nodes and results of steps are pickled to send them between processes.
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
    """Limit of the duration."""
    host_s: float = 0.0
    """Time the host needs to issue it. The host issues ahead of the unit, so that only the sum over a series
    of operators can limit."""


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
        """Return the numerics of this unit's products in a phase."""
        ...


MIXED = -1
"""Value of `Flows.pattern` for flows of exchanges with several patterns."""


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
    """Kind of collective that they carry out, of several the one of most bytes; None without a collective."""
    groups: np.ndarray | None = None
    """Groups around which the flows go, each member sending to the next and the last to the first, shape
    [G, n]; None where flows are independent pairs."""
    weights: np.ndarray | None = None
    """Bytes of each flow over `size_bytes`, shape [F]; None for equal flows. Flows of a group end together,
    so their rates are proportional to these."""
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
        """Bytes of each flow, shape [F]."""
        if self.weights is None:
            return np.full(len(self.sources), float(self.size_bytes))
        return self.size_bytes * self.weights

    def moved_bytes(self, times: np.ndarray) -> float:
        """Return the bytes moved in all if each flow is carried `times` times, shape [F]."""
        if self.weights is None:
            return float(times.sum()) * self.size_bytes
        return float((times * self.weights).sum()) * self.size_bytes

    def reversed(self) -> Flows:
        """Return the flows in the opposite direction."""
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
        """Return the groups whose members all send; None if only part of some group sends."""
        if self.groups is None:
            return None
        sending = np.isin(self.groups, sources)
        whole = sending.all(axis=1)
        return None if (sending.any(axis=1) & ~whole).any() else self.groups[whole]

    def moved_to(self, endpoint_of: np.ndarray) -> Flows:
        """Return the flows between other endpoints: endpoint e is replaced by ``endpoint_of[e]``."""
        return replace(
            self,
            sources=endpoint_of[self.sources],
            destinations=endpoint_of[self.destinations],
            groups=None if self.groups is None else endpoint_of[self.groups],
        )


@dataclass(frozen=True, kw_only=True)
class LinkGraph:
    """Directed links in the present state of the circuits."""

    capacity_bytes_per_s: np.ndarray
    """Capacity of each link, shape [L]; zero for a circuit that is not set up."""
    latency_s: np.ndarray
    """Latency of each link, shape [L]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Wiring:
    """Directed links between vertices; endpoints come first, switches after them."""

    tails: np.ndarray
    """Vertex at which each link begins, shape [L]."""
    heads: np.ndarray
    """Vertex at which each link ends, shape [L]."""
    capacity_bytes_per_s: np.ndarray
    """Capacity of each link, shape [L]. Links that share traffic ideally may be one link of their total."""
    latency_s: np.ndarray
    """Latency of each link with the switch at its end, shape [L]."""

    @property
    def links(self) -> int:
        """Number of links."""
        return int(self.tails.size)

    @property
    def vertices(self) -> int:
        """Number of vertices, up to the last one that a link touches."""
        return int(max(self.tails.max(initial=-1), self.heads.max(initial=-1))) + 1

    def part(self, links: np.ndarray) -> Wiring:
        """Return some of the links, by their numbers or a mask; vertices keep their numbers."""
        columns = ("tails", "heads", "capacity_bytes_per_s", "latency_s")
        return Wiring(**{name: getattr(self, name)[links] for name in columns})

    def graph(self) -> LinkGraph:
        """Return capacities and latencies for the engine, as read-only arrays."""
        capacity, latency = self.capacity_bytes_per_s.astype(float), self.latency_s.astype(float)
        capacity.flags.writeable = False
        latency.flags.writeable = False
        return LinkGraph(capacity_bytes_per_s=capacity, latency_s=latency)


@dataclass(frozen=True, kw_only=True)
class Reconfiguration:
    """Cost of a change of circuits."""

    reconfiguration_s: float = 0.0
    """Time during which the changed links carry nothing."""
    moved_links: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Links that change or vanish, which must be idle first; shape [M]."""
    energy_j: float = 0.0
    """Energy of switching the ports."""


Circuits = Any
"""State of a fabric's circuits, opaque outside the fabric; callers pass it back unchanged."""
