"""Node of an accelerator: its units, its memory, its host, and the operators that each unit runs.

Memory off the chip is the wall that light does not remove. Accelerators of a node work alike and at the same
time, hence each is given its share of the host's processors, memory, storage and link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from simulator.amounts import AmountT
from simulator.checks import check_positive, check_range
from simulator.errors import WorkloadError
from simulator.interfaces import Bound, ComputeUnit, Cost
from simulator.operators import Elementwise, HostWork, Lane, MatMul, Transfer
from simulator.units import BITS_PER_BYTE


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A stack of high-bandwidth memory beside an accelerator."""

    name: str = "hbm"
    """Name shown in tables."""
    capacity_bytes: float
    """Capacity."""
    bandwidth_bytes_per_s: float
    """Peak bandwidth."""
    efficiency: float
    """Share of the peak that a long stream reaches, 0 to 1."""
    energy_j_per_byte: float
    """Energy of moving one byte to or from the accelerator."""
    static_w: float
    """Power for refresh and idle interfaces."""
    turnaround_efficiency: float = 1.0
    """Share of that rate which is left where reads and writes take turns, 0 to 1."""

    def __post_init__(self) -> None:
        check_positive(self, "capacity_bytes", "bandwidth_bytes_per_s")
        check_range(self, "efficiency", "turnaround_efficiency", low=0.0, high=1.0, open_low=True)
        check_range(self, "energy_j_per_byte", "static_w")

    def time_s(self, moved_bytes: AmountT) -> AmountT:
        """Return how long moving so many bytes takes as one stream."""
        return moved_bytes / (self.bandwidth_bytes_per_s * self.efficiency)

    def mixed_time_s(self, moved_bytes: float) -> float:
        """Return how long moving so many bytes takes where reads and writes take turns."""
        return self.time_s(moved_bytes) / self.turnaround_efficiency

    def energy_j(self, moved_bytes: AmountT) -> AmountT:
        """Return the dynamic energy of moving so many bytes."""
        return moved_bytes * self.energy_j_per_byte


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


@dataclass(frozen=True, kw_only=True)
class Node:
    """One accelerator: its compute units in order of preference, and the memory they share."""

    name: str
    """Name shown in tables and traces."""
    units: tuple[ComputeUnit, ...]
    """Units; the first that accepts an operator runs it."""
    memory: Memory
    """Memory that all units share; its static power is charged once."""
    peak_flop_per_s: float
    """Rate of matrix products that utilisation refers to."""
    static_parts_w: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Static power by part; must add up to the units' static power."""
    host: Host | None = None
    """Server that carries it, or None where nothing is moved off the accelerator."""

    @cached_property
    def _costs(self) -> dict[MatMul | Elementwise, Cost]:
        return {}

    @property
    def static_w(self) -> float:
        """Power drawn all the time: units and memory, and its share of the host if there is one."""
        host_w = self.host.static_w if self.host else 0.0
        return sum(unit.static_w for unit in self.units) + self.memory.static_w + host_w

    def static_by_part_w(self) -> dict[str, float]:
        """Return the static power by part, which adds up to `static_w`."""
        parts = dict(self.static_parts_w) or {unit.name: unit.static_w for unit in self.units}
        parts |= {"memory static": self.memory.static_w}
        return parts | ({"host static": self.host.static_w} if self.host else {})

    def place(self, operator: MatMul | Elementwise) -> ComputeUnit:
        """Return the unit that runs an operator.

        Raises
        ------
        WorkloadError
            If no unit accepts it.
        """
        for unit in self.units:
            if unit.accepts(operator):
                return unit
        names = ", ".join(unit.name for unit in self.units)
        msg = f"no unit of '{self.name}' ({names}) runs '{operator.name}'; add one that accepts it"
        raise WorkloadError(msg)

    def cost(self, operator: MatMul | Elementwise) -> Cost:
        """Return time and dynamic energy of one run on the unit that takes it."""
        known = self._costs.get(operator)
        if known is None:
            known = self._costs[operator] = self.place(operator).cost(operator)
        return known

    def host_cost(self, operator: Transfer | HostWork) -> Cost:
        """Return time and dynamic energy of what the host does for this accelerator.

        Raises
        ------
        WorkloadError
            If no host is described.
        """
        if self.host is None:
            msg = (
                f"the plan needs a host for '{operator.name}', and '{self.name}' has none described; keep "
                "parameters and optimizer on the accelerator, or describe its host"
            )
            raise WorkloadError(msg)
        return self.host.cost(operator)
