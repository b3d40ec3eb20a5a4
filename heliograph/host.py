"""The host of an accelerator: its processors, memory, storage and link, for what is moved off the chip.

Accelerators of a node work alike and at the same time, hence each is given its share of what they share.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from heliograph.checks import check_positive, check_range
from heliograph.interfaces import Bound, Cost
from heliograph.memory import Memory
from heliograph.operators import HostWork, Lane, Transfer
from heliograph.units import BITS_PER_BYTE


@dataclass(frozen=True, kw_only=True)
class HostLink:
    """The link between one accelerator and its host, both ways at once."""

    name: str = "link"
    """Name shown in tables."""
    bandwidth_bytes_per_s: float
    """Line rate of one accelerator's link, one way."""
    efficiency: float
    """Share of the line rate that a long transfer from pinned memory reaches, 0 to 1."""
    total_bytes_per_s: float
    """Rate that all accelerators of a host reach together, one way."""
    latency_s: float
    """Time to start a transfer."""
    energy_j_per_bit: float
    """Dynamic energy of one bit."""

    def __post_init__(self) -> None:
        check_positive(self, "bandwidth_bytes_per_s", "total_bytes_per_s")
        check_range(self, "efficiency", high=1.0, open_low=True)
        check_range(self, "latency_s", "energy_j_per_bit")

    def time_s(self, moved_bytes: float, accelerators: int) -> float:
        """Return how long so many accelerators take that move so many bytes each, all at once."""
        own = self.bandwidth_bytes_per_s * self.efficiency
        return self.latency_s + moved_bytes / min(own, self.total_bytes_per_s / accelerators)


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The solid-state disks of a host."""

    name: str = "storage"
    """Name shown in tables."""
    capacity_bytes: float
    """Capacity of all disks."""
    read_bytes_per_s: float
    """Rate of long reads, all disks together."""
    write_bytes_per_s: float
    """Rate of long writes, all disks together."""
    energy_j_per_byte: float
    """Dynamic energy of one byte read or written."""
    static_w: float
    """Power of all disks when idle."""

    def __post_init__(self) -> None:
        check_positive(self, "capacity_bytes", "read_bytes_per_s", "write_bytes_per_s")
        check_range(self, "energy_j_per_byte", "static_w")


@dataclass(frozen=True, kw_only=True)
class Processors:
    """The processors of a host."""

    name: str = "processors"
    """Name shown in tables."""
    accelerators: int
    """Accelerators that share them, and with them memory, links and disks."""
    simd_flop_per_s: float
    """Single-precision peak of all cores."""
    active_w: float
    """Power at work beyond that when idle, all together."""
    idle_w: float
    """Power when idle, all together."""

    def __post_init__(self) -> None:
        check_range(self, "accelerators", low=1)
        check_positive(self, "simd_flop_per_s")
        check_range(self, "active_w", "idle_w")


@dataclass(frozen=True, kw_only=True)
class Host:
    """A server that carries accelerators.

    Notes
    -----
    Work of the processors takes the longer of arithmetic and memory traffic, each at an accelerator's share.
    Not modelled: what transfers and disks take of the memory's bandwidth from the processors, one accelerator
    using more than its share while others do not use theirs, and reads of a disk that slow its writes.
    """

    name: str = "host"
    """Name shown in tables."""
    processors: Processors
    """Its processors."""
    ddr: Memory
    """Memory of all its processors."""
    link: HostLink
    """Link of one accelerator."""
    storage: Storage
    """Disks."""

    @property
    def accelerators(self) -> int:
        """Accelerators that share it."""
        return self.processors.accelerators

    @property
    def static_w(self) -> float:
        """Power drawn all the time, an accelerator's share."""
        return (self.processors.idle_w + self.ddr.static_w + self.storage.static_w) / self.accelerators

    @cached_property
    def _costs(self) -> dict[Transfer | HostWork, Cost]:
        return {}

    def cost(self, operator: Transfer | HostWork) -> Cost:
        """Return time and dynamic energy of one run, while all accelerators do the same."""
        known = self._costs.get(operator)
        if known is None:
            moved = self._moved(operator) if isinstance(operator, Transfer) else self._worked(operator)
            known = self._costs[operator] = moved
        return known

    def _moved(self, operator: Transfer) -> Cost:
        size = operator.moved_bytes
        memory_j = self.ddr.energy_j(size)
        if operator.lane in {Lane.TO_HOST, Lane.FROM_HOST}:
            time_s = self.link.time_s(size, self.accelerators)
            energy = {"host link": size * BITS_PER_BYTE * self.link.energy_j_per_bit}
        else:
            reads = operator.lane is Lane.FROM_STORAGE
            rate = self.storage.read_bytes_per_s if reads else self.storage.write_bytes_per_s
            time_s = size * self.accelerators / rate
            energy = {"storage": size * self.storage.energy_j_per_byte}
        parts = MappingProxyType(energy | {"host memory": memory_j})
        return Cost(time_s=time_s, energy_j=parts, bound=Bound.MEMORY)

    def _worked(self, operator: HostWork) -> Cost:
        moved = operator.read_bytes + operator.written_bytes
        memory_s = self.ddr.mixed_time_s(moved * self.accelerators)
        compute_s = operator.flops * self.accelerators / self.processors.simd_flop_per_s
        time_s = max(memory_s, compute_s)
        parts = {
            "host processors": self.processors.active_w / self.accelerators * time_s,
            "host memory": self.ddr.energy_j(moved),
        }
        bound = Bound.MEMORY if memory_s > compute_s else Bound.COMPUTE
        return Cost(time_s=time_s, energy_j=MappingProxyType(parts), bound=bound)
