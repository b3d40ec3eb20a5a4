"""Accelerator as the engine sees it (`Node`): its compute units, its memory, and its share of a host.

The accelerators of a host work alike and at the same time, so that each has its share of the host's
processors, memory, storage and link.

The penalties of a step (`StepPenalties`) are the same for chips of every kind. They were measured on GPUs;
since the software and the network around a photonic chip are the same, it pays as much until measurements
show otherwise (`Penalties` switches them).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, cached_property
from statistics import NormalDist
from types import MappingProxyType

from simulator.amounts import AmountT, Matrices
from simulator.errors import Checked, Count, Efficiency, Positive, Share, WorkloadError
from simulator.interfaces import Bound, ComputeUnit, Cost
from simulator.operators import (
    Collective,
    Elementwise,
    Held,
    HostWork,
    Lane,
    MatMul,
    Overlapped,
    Phase,
    Transfer,
)
from simulator.units import BITS_PER_BYTE

BLOM = 0.375
"""Plotting position for the expected order statistics of normal draws (Blom 1958, section 6.9)."""


class Penalties(StrEnum):
    """Kinds of accelerators that pay the `StepPenalties`."""

    NONE = "none"
    GPU = "gpu"
    BOTH = "both"


@cache
def expected_maximum(count: int) -> float:
    """Return the expected largest of `count` standard normal draws, in standard deviations (Blom 1958)."""
    return NormalDist().inv_cdf((count - BLOM) / (count - 2 * BLOM + 1))


@dataclass(frozen=True, kw_only=True)
class StepPenalties(Checked):
    """Losses of an accelerator within a step that benchmarks of its parts do not show; none by default.

    Notes
    -----
    *In situ.* Within a step, products run at a share of their rate in isolation: caches hold the data of
    other work, and collectives and copies use the memory meanwhile. Products inside a fused attention kernel
    keep their operands on chip and so keep their rate.

    *Slowest.* Accelerators that wait for each other run at the pace of the slowest, whose expected lag is
    `clock_spread` times the expected maximum of as many normal draws.

    *Host.* Issuing an operator takes the host some time, and each further library call of it less. As the
    host runs ahead, only the sum over a run of operators can limit (`simulator.interfaces.Cost.host_s`).

    *Collectives.* While parameters are gathered or gradients summed beside it, compute loses
    `collective_share` of its rate: the library's kernels hold compute units, and products that fill all units
    in whole waves need one wave more. The engine applies it (`simulator.engine.simulation`).

    *Idle.* Host interface, links, management and leakage draw power whether or not anything runs.

    *Launch.* Each operator starts and drains. GPUs and vector lanes have a time of their own for it; photonic
    cores are started by the sequencer of the lanes beside them.
    """

    host_operator_s: float = 0.0
    """Time the host takes to issue an operator."""
    host_launch_s: float = 0.0
    """Time the host takes for each further library call of an operator."""
    in_situ_efficiency: Efficiency = 1.0
    """Share of its isolated rate that a product keeps within a step, 0 to 1."""
    collective_share: Share = 0.0
    """Share of its rate that compute loses while a collective gathers or sums beside it, 0 to 1."""
    clock_spread: float = 0.0
    """Standard deviation of the speed of accelerators of one type, as a share of the mean."""
    slowest_of: Count = 1
    """Accelerators that wait for each other."""
    idle_w: float = 0.0
    """Power when nothing runs, beyond the static power of the parts."""
    launch_s: float = 0.0
    """Time to start and drain an operator, for units that have no such time of their own."""

    @property
    def lag(self) -> float:
        """Expected time of the slowest accelerator over that of the mean one, at least 1."""
        return 1.0 + self.clock_spread * expected_maximum(self.slowest_of)

    def in_situ_s(self, alone_s: float, product: MatMul) -> float:
        """Return the time of a product within a step from its time in isolation."""
        return alone_s if product.on_chip else alone_s / self.in_situ_efficiency

    def issue_s(self, calls: int) -> float:
        """Return the time the host takes to issue an operator of a number of library calls; 0 for none."""
        return self.host_operator_s + self.host_launch_s * (calls - 1) if calls else 0.0

    def work_issue_s(self, work: Elementwise) -> float:
        """Return the time the host takes to issue work without a product."""
        return self.host_operator_s * work.issued + self.host_launch_s * work.kernels


def library_calls(product: MatMul) -> int:
    """Return the number of library calls that a host makes for a product.

    Notes
    -----
    The products of several experts are a call each. A cast of the operand to 8 bits or fewer is a further
    call for each expert, as is the handling of a weight's gradient, which is a parameter of its own with a
    buffer and a hook (Transformer Engine, pytorch/module/grouped_linear.py). A fused attention kernel is one
    call, counted for its first product, whose result stays on the chip.
    """
    if product.on_chip:
        return int(product.on_chip is Matrices.C)
    if product.batch == 1 or not has_weight(product):
        return 1
    casts_or_sums = product.element_bytes < 2 or product.phase is Phase.GRAD_WEIGHT
    return product.batch * (1 + casts_or_sums)


def has_weight(product: MatMul) -> bool:
    """Return whether a product involves a weight or its gradient, rather than activations alone."""
    return product.held is not Held.NONE or product.phase is Phase.GRAD_WEIGHT


NO_PENALTIES = StepPenalties()
"""No penalties."""


@dataclass(frozen=True, kw_only=True)
class Memory(Checked):
    """A stack of high-bandwidth memory beside an accelerator."""

    name: str = "hbm"
    """Name shown in tables."""
    capacity_bytes: Positive
    """Capacity."""
    bandwidth_bytes_per_s: Positive
    """Peak bandwidth."""
    efficiency: Efficiency
    """Share of the peak that a long stream reaches, 0 to 1."""
    energy_j_per_byte: float
    """Energy of moving one byte to or from the accelerator."""
    static_w: float
    """Power for refresh and idle interfaces."""
    turnaround_efficiency: Efficiency = 1.0
    """Share of the stream's rate that is left if reads and writes alternate, 0 to 1."""

    def time_s(self, moved_bytes: AmountT) -> AmountT:
        """Return the time to move bytes as one stream."""
        return moved_bytes / (self.bandwidth_bytes_per_s * self.efficiency)

    def mixed_time_s(self, moved_bytes: float) -> float:
        """Return the time to move bytes in alternating reads and writes."""
        return self.time_s(moved_bytes) / self.turnaround_efficiency

    def energy_j(self, moved_bytes: AmountT) -> AmountT:
        """Return the dynamic energy of moving bytes."""
        return moved_bytes * self.energy_j_per_byte


@dataclass(frozen=True, kw_only=True)
class HostLink(Checked):
    """The full-duplex link between one accelerator and its host."""

    name: str = "link"
    """Name shown in tables."""
    bandwidth_bytes_per_s: Positive
    """Line rate of one accelerator's link, one way."""
    efficiency: Efficiency
    """Share of the line rate that a long transfer from pinned memory reaches, 0 to 1."""
    total_bytes_per_s: Positive
    """Rate that all accelerators of a host reach together, one way."""
    latency_s: float
    """Time to start a transfer."""
    energy_j_per_bit: float
    """Dynamic energy of one bit."""

    def time_s(self, moved_bytes: float, accelerators: int) -> float:
        """Return the time of a transfer if all `accelerators` of a host move as many bytes at once."""
        own = self.bandwidth_bytes_per_s * self.efficiency
        return self.latency_s + moved_bytes / min(own, self.total_bytes_per_s / accelerators)


@dataclass(frozen=True, kw_only=True)
class Storage(Checked):
    """The solid-state disks of a host."""

    name: str = "storage"
    """Name shown in tables."""
    capacity_bytes: Positive
    """Capacity of all disks."""
    read_bytes_per_s: Positive
    """Rate of long reads, all disks together."""
    write_bytes_per_s: Positive
    """Rate of long writes, all disks together."""
    energy_j_per_byte: float
    """Dynamic energy of one byte read or written."""
    static_w: float
    """Power of all disks when idle."""


@dataclass(frozen=True, kw_only=True)
class Processors(Checked):
    """The processors of a host."""

    name: str = "processors"
    """Name shown in tables."""
    accelerators: Count
    """Accelerators that share them, and with them memory, links and disks."""
    simd_flop_per_s: Positive
    """Single-precision peak of all cores."""
    active_w: float
    """Power at full load beyond `idle_w`, all processors together."""
    idle_w: float
    """Power when idle, all processors together."""
    busy_share: Share
    """Share of `active_w` drawn to feed accelerators: issuing, polling, loading data; 0 to 1."""

    @property
    def static_w(self) -> float:
        """Power while accelerators train, all processors together."""
        return self.idle_w + self.busy_share * self.active_w

    @property
    def spare_w(self) -> float:
        """Power at full load beyond `static_w`."""
        return (1.0 - self.busy_share) * self.active_w


@dataclass(frozen=True, kw_only=True)
class Chassis(Checked):
    """Boards, fans and power supplies around the processors and accelerators of a server."""

    name: str = "chassis"
    """Name shown in tables."""
    fan_share: float
    """Power of fans and pumps over the power that they cool; dimensionless."""
    supply_efficiency: Efficiency
    """Power that supplies give over what they take from the mains, 0 to 1."""
    price_usd: float
    """Price of the whole server without accelerators, network cards and the switches between accelerators."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A server that carries accelerators.

    Notes
    -----
    Work of the processors takes the longer of arithmetic and memory traffic, each at an accelerator's share.
    Not modelled: memory bandwidth that transfers and disks take from the processors, an accelerator using
    more than its share while others use less, and reads of a disk that slow its writes.
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
    chassis: Chassis
    """Fans, power supplies and all else."""

    @property
    def accelerators(self) -> int:
        """Accelerators that share it."""
        return self.processors.accelerators

    @property
    def static_w(self) -> float:
        """Static power, an accelerator's share."""
        return (self.processors.static_w + self.ddr.static_w + self.storage.static_w) / self.accelerators

    def around(self, energy_j: float) -> dict[str, float]:
        """Return the energy of fans and power supplies for a given energy of host and accelerators."""
        fans_j = energy_j * self.chassis.fan_share
        lost = 1.0 / self.chassis.supply_efficiency - 1.0
        return {"fans": fans_j, "power supplies": (energy_j + fans_j) * lost}

    @cached_property
    def _costs(self) -> dict[Transfer | HostWork, Cost]:
        return {}

    def cost(self, operator: Transfer | HostWork) -> Cost:
        """Return time and dynamic energy of one run while all accelerators of the host ask for the same."""
        if operator not in self._costs:
            if isinstance(operator, Transfer):
                self._costs[operator] = self._transfer_cost(operator)
            else:
                self._costs[operator] = self._work_cost(operator)
        return self._costs[operator]

    def _transfer_cost(self, operator: Transfer) -> Cost:
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

    def _work_cost(self, operator: HostWork) -> Cost:
        moved = operator.read_bytes + operator.written_bytes
        memory_s = self.ddr.mixed_time_s(moved * self.accelerators)
        compute_s = operator.flops * self.accelerators / self.processors.simd_flop_per_s
        time_s = max(memory_s, compute_s)
        parts = {
            "host processors": self.processors.spare_w / self.accelerators * time_s,
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
    """Peak rate of matrix products, by which utilisation is computed."""
    static_parts_w: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Static power by part; must add up to the units' static power."""
    host: Host | None = None
    """Server that carries it; None if only the accelerator counts."""
    collective_share: float = 0.0
    """Share of its rate that compute loses while a collective gathers or sums beside it, 0 to 1."""
    collective_issue_s: float = 0.0
    """Time the host needs to issue a collective that a pass waits for."""

    @cached_property
    def _costs(self) -> dict[MatMul | Elementwise, Cost]:
        return {}

    @property
    def static_w(self) -> float:
        """Static power: units, memory, and its share of the host if there is one."""
        host_w = self.host.static_w if self.host else 0.0
        return sum(unit.static_w for unit in self.units) + self.memory.static_w + host_w

    def static_by_part_w(self) -> dict[str, float]:
        """Return the static power by part, which adds up to `static_w`."""
        parts = dict(self.static_parts_w) or {unit.name: unit.static_w for unit in self.units}
        parts |= {"memory static": self.memory.static_w}
        return parts | ({"host static": self.host.static_w} if self.host else {})

    def around(self, energy_j: float) -> dict[str, float]:
        """Return the energy of its server's fans and supplies for a given energy of accelerator and host."""
        return self.host.around(energy_j) if self.host else {}

    @property
    def at_mains(self) -> float:
        """Energy drawn from the mains over that of accelerator and host; dimensionless, at least 1."""
        return 1.0 + sum(self.around(1.0).values())

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
        """Return time and dynamic energy of one run on the unit that runs it."""
        if operator not in self._costs:
            cost = self.place(operator).cost(operator)
            self._costs[operator] = replace(cost, host_s=0.0) if operator.replayed else cost
        return self._costs[operator]

    def issue_s(self, items: Iterable[tuple[MatMul | Elementwise | Collective | Overlapped, int]]) -> float:
        """Return the time the host needs to issue operators, each given with its number of repetitions.

        Notes
        -----
        A collective is a call of the framework like any other, except where it overlaps with the product that
        it feeds and is part of that product's call (Transformer Engine's user buffers).
        """

        def each_s(one: MatMul | Elementwise | Collective | Overlapped) -> float:
            if isinstance(one, Collective):
                return self.collective_issue_s
            return self.cost(one.product if isinstance(one, Overlapped) else one).host_s

        return math.fsum(each_s(one) * times for one, times in items)

    def host_cost(self, operator: Transfer | HostWork) -> Cost:
        """Return time and dynamic energy of the host's work or transfer for this accelerator.

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
