"""A photonic chip as a compute unit: clusters of cores of any kind and a buffer, beside a shared memory.

Not counted here: the memory's static power, which the node counts once for all its units, and the drivers of
modulators, which are parts of the cores. The full scale of each row needs no pass of its own: the unit that
writes an operand compares each element with the largest so far.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from optical.cores.core import Core
from optical.cores.crossbar import default_crossbar
from optical.devices import (
    ChipElectronics,
    Converter,
    Die,
    Domain,
    Modulator,
    Part,
    Per,
    Sram,
    WholeChip,
    area_m2,
    device_table,
    full_load_w,
    mean_distance_m,
    shipped,
    static_w,
)
from optical.devices.electronics import Block, DieCut
from optical.devices.parts import merged
from simulator.errors import LinkError, ParameterError, WorkloadError, check_positive, check_range
from simulator.interfaces import Bound, Cost, Numerics
from simulator.node import NO_PENALTIES, Memory, StepPenalties, library_calls
from simulator.operators import Elementwise, MatMul, Phase
from simulator.parameter_tree import numeric_leaves
from simulator.units import BITS_PER_BYTE

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_LASER_W = 1e6
"""Light of one source that counts as a slip of the pen: no source of a chip has a megawatt."""


def memory_traffic_bytes(operator: MatMul, buffer_bytes: float) -> float:
    """Return the bytes that cross the memory's interface for a product, with the best of three loop orders.

    Parameters
    ----------
    operator : MatMul
        The product; nothing is reused between the members of its batch.
    buffer_bytes : float
        Capacity for operands, double buffering already taken off.

    Notes
    -----
    For each member of the batch, in elements, with capacity S:

    - rows of A stay, r = S/K at a time, and B is read once per group: MK + KN ceil(M/r) + MN;
    - columns of B stay: KN + MK ceil(N/r) + MN;
    - a square block of C stays, b = sqrt(S) wide: MK ceil(N/b) + KN ceil(M/b) + MN.

    Operands that stay on chip (`MatMul.on_chip`) count nothing. Where the smaller operand fits, the first two
    read everything once. The third is within a rounding of the lower bound 2MNK/sqrt(S) of Hong and Kung
    (1981).
    """
    m, k, n = operator.m, operator.k, operator.n
    capacity = buffer_bytes / operator.element_bytes
    a, b, c = operator.elements_off_chip
    block = max(1, math.floor(math.sqrt(capacity)))
    reads = a * math.ceil(n / block) + b * math.ceil(m / block)
    lines = math.floor(capacity / k)
    if lines >= 1:
        reads = min(reads, a + b * math.ceil(m / lines), b + a * math.ceil(n / lines))
    return operator.batch * (reads * operator.element_bytes + c * operator.moved_per_result)


def proportionate_buffer_bytes(core: Core, cores: int) -> float:
    """Return the capacity of a buffer in the same ratio to its cores' rate as on the published chip.

    Notes
    -----
    A product that reuses its operands in a buffer of S bytes moves about 1/sqrt(S) bytes per
    multiply-accumulate (Hong and Kung 1981), so what a memory of given bandwidth can feed depends on the
    arithmetic beside the buffer, not on how many cores it is cut into: all cores of an accelerator share one
    buffer, in the ratio of capacity to peak rate of Lightening-Transformer's LT-B, 2 MiB for its eight cores.
    Half is in use and half is being filled; cores that add to the same outputs share their partial sums.
    A bank for each core instead would give rings 54 times, and a mesh 13 times, the buffer of the published
    chip for the same arithmetic.

    References
    ----------
    Lightening-Transformer (HPCA 2024), LT-B: four tiles of two cores, 2 MB global buffer.
    """
    published, bank = default_crossbar(), device_table().build(Sram, "sram")
    rate = published.cluster * published.peak_macs_per_s
    return bank.bank_bytes * cores * core.peak_macs_per_s / rate


def _of_whole_chip(name: str) -> float:
    """Return a shipped number that belongs to a whole photonic chip, rather than to one of its parts."""
    return float(getattr(device_table().build(WholeChip, "photonic"), name))


@dataclass(frozen=True, kw_only=True)
class PhotonicUnit:
    """Photonic matrix unit of an accelerator.

    Notes
    -----
    *Floor plan.* Photonic and electronic dies are stacked, so that a cluster covers the larger of its two
    areas, its share of the buffer included. A word on its way to a converter crosses the cluster, a byte from
    or to memory the die, each over the mean distance of two points in a square. The chip is cut into the
    number of dies, with the number of spare clusters, that costs least (`ChipElectronics.cuts`); a chip
    larger than a scanner's field must be cut. Bytes of memory then cross between dies, which takes energy,
    time, area and packaging. Dies with a defect are not sold unless spare clusters take over (`DieYield`).

    *Whole chip.* Regulators lose a share of the unit's power. `overhead` is the power of built chips that
    parts do not explain: a factor on all power and energy of the unit, static and dynamic, regulators
    included. The memory, the vector lanes and idle power are not multiplied.

    *Power limit.* Products that would exceed the power that the limit leaves to cores and memory take longer,
    at the same energy: symbols keep their rate, with pauses between. (A GPU lowers its clock instead,
    `electronic.gpu.slowdown`.)

    Raises
    ------
    ParameterError
        If the cores do not form whole clusters, or calibrations alone reach the power limit.
    LinkError
        If the core's light does not reach its detectors.
    """

    name: str = "photonic"
    """Name shown in tables and traces."""
    core: Core = field(default_factory=default_crossbar)
    """The core."""
    cores: int
    """Number of cores, in whole clusters (`Core.cluster`)."""
    memory: Memory
    """Memory shared with the electronics; the node charges its static power."""
    sram: Sram = shipped(Sram, "sram")
    """Technology of the buffer."""
    sram_bytes: float
    """Capacity of the buffer that all cores share, half for operands in use and half for the next ones."""
    electronics: ChipElectronics = field(default_factory=ChipElectronics)
    """Electronics that feed converters and cores."""
    overhead: float = field(default_factory=lambda: _of_whole_chip("overhead"))
    """Power and energy of the built chip over that of its parts, dimensionless; 1 is parts only."""
    calibration_interval_s: float = field(default_factory=lambda: _of_whole_chip("calibration_interval_s"))
    """Time between two calibrations, during which nothing is multiplied."""
    photonic_die: Die = shipped(Die, "photonic_die")
    """Price of photonic area."""
    cmos_die: Die = shipped(Die, "cmos_die")
    """Price of electronic area."""
    penalties: StepPenalties | None = None
    """Penalties that it pays within a step; None for none."""
    limit_w: float | None = None
    """Most power of products, the memory's for them included; None for no limit."""

    def __post_init__(self) -> None:
        check_range(self, "cores", low=1)
        check_positive(self, "sram_bytes", "calibration_interval_s")
        check_range(self, "overhead", low=1.0)
        if self.cores % self.core.cluster:
            below = max(1, self.cores // self.core.cluster) * self.core.cluster
            msg = (
                f"PhotonicUnit '{self.name}': cores ({self.cores}) must be whole clusters of "
                f"{self.core.cluster} (broadcast x summed); try {below} or {below + self.core.cluster}"
            )
            raise ParameterError(msg)
        self._check_source()
        self._check_light()
        if self.calibration_duty >= 1.0:
            msg = (
                f"PhotonicUnit '{self.name}': calibration_interval_s ({self.calibration_interval_s:g}) must "
                f"exceed the time of a calibration, {self.core.calibration.time_s:g} s"
            )
            raise ParameterError(msg)
        if self.limit_w is not None and not self.limit_w > self._calibration_w:
            msg = (
                f"PhotonicUnit '{self.name}': its power limit leaves {self.limit_w:.0f} W to products, and "
                f"calibrations take {self._calibration_w:.0f} W; take fewer cores"
            )
            raise ParameterError(msg)

    def _check_source(self) -> None:
        """Raise an error if a laser power or a chip seed of the core is out of range, also in inner cores."""
        for path, value in numeric_leaves(self.core, "laser_power_w", "chip_seed").items():
            name = path.rpartition(".")[2]
            shown = f"{self.core.name}: {name}"
            if name == "laser_power_w" and not 0.0 < value <= MOST_LASER_W:
                msg = f"{shown} must be above 0 and at most {MOST_LASER_W:g} W; got {value:g}"
                raise ParameterError(msg)
            if name == "chip_seed" and value < 0:
                msg = f"{shown} must be a whole number of at least 0; got {value}"
                raise ParameterError(msg)

    def _check_light(self) -> None:
        """Raise an error if the light of a core does not reach its detectors."""
        try:
            self.core.budget  # noqa: B018 - a link that does not close is an error at construction
        except (ZeroDivisionError, OverflowError):
            msg = (
                f"the link of '{self.core.name}' does not close: no light is left after its losses and "
                "divisions; take smaller losses or a smaller array"
            )
            raise LinkError(msg) from None

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second with all nodes busy."""
        return self.cores * self.core.peak_macs_per_s

    @property
    def peak_flop_per_s(self) -> float:
        """Operations per second with all nodes busy, two per multiply-accumulate."""
        return 2.0 * self.peak_macs_per_s

    @property
    def _penalties(self) -> StepPenalties:
        """Penalties that it pays within a step."""
        return self.penalties or NO_PENALTIES

    @cached_property
    def core_parts(self) -> tuple[Part, ...]:
        """Parts list of one core."""
        return self.core.parts()

    def _converters(self, name: str) -> float:
        """Return the number of converters of one name in a core."""
        named = (part for part in self.core_parts if part.per is Per.CORE and part.name == name)
        return math.fsum(part.count for part in named if isinstance(part.device, Converter))

    @property
    def _modulators(self) -> float:
        """Interferometric modulators of a core."""
        standing = (part for part in self.core_parts if part.per is Per.CORE)
        return math.fsum(part.count for part in standing if isinstance(part.device, Modulator))

    @cached_property
    def cluster_footprint_m2(self) -> float:
        """Area that a cluster covers with its share of the buffer, dies stacked."""
        stacked_m2 = max(self._domain_area_m2(Domain.PHOTONIC), self._domain_area_m2(Domain.ELECTRONIC))
        return self.core.cluster / self.cores * stacked_m2

    def _domain_area_m2(self, domain: Domain) -> float:
        """Return the area of all dies of one kind."""
        cores = self.cores * math.fsum(area_m2(self.core_parts, domain).values())
        return cores if domain is Domain.PHOTONIC else cores + math.fsum(self._electronics_area_m2().values())

    def _electronics_area_m2(self) -> dict[str, float]:
        """Return the area of the electronics besides the cores, by part."""
        chip, clusters = self.electronics, self.cores / self.core.cluster
        return {
            "sram": self.sram.bank_area_m2 * self.sram_bytes / self.sram.bank_bytes,
            "serialiser": chip.serialiser.area_m2 * self.cores * self._converters("dac"),
            "gain stage": chip.gain.area_m2 * self.cores * self._converters("adc"),
            "control": (chip.sequencer.area_m2 + chip.clock.area_m2) * clusters,
        }

    @cached_property
    def cuts(self) -> list[DieCut]:
        """Cuts of the chip into dies with spare clusters, the cheapest first."""
        clusters, link_m2 = self.cores // self.core.cluster, self.electronics.link.area_m2
        layers_usd = (
            self._domain_area_m2(Domain.PHOTONIC) * self.photonic_die.price_usd_per_m2,
            self._domain_area_m2(Domain.ELECTRONIC) * self.cmos_die.price_usd_per_m2,
        )
        cluster = Block(
            area_m2=self.cluster_footprint_m2,
            price_usd=sum(layers_usd) / clusters,
            stack_usd=max(layers_usd) / clusters,
        )
        link_usd = link_m2 * self.cmos_die.price_usd_per_m2
        links = Block(area_m2=link_m2, price_usd=link_usd, stack_usd=link_usd)
        return self.electronics.cuts(clusters, cluster, links)

    @property
    def cut(self) -> DieCut:
        """Cheapest cut into dies with spares."""
        return self.cuts[0]

    @property
    def other_cuts(self) -> str:
        """Clause with the cost of the next smaller and larger numbers of dies, for reports."""
        others = {cut.dies: cut.price_usd for cut in reversed(self.cuts) if cut.dies != self.dies}
        near = sorted(sorted(others, key=lambda dies: abs(dies - self.dies))[:2])
        costs = (f"{dies} would cost {others[dies] / self.price_usd - 1.0:+.1%}" for dies in near)
        return "the cheapest cut: " + ", ".join(costs) if near else "the only cut"

    @property
    def dies(self) -> int:
        """Dies, or stacks of them, that the unit is cut into."""
        return self.cut.dies

    @property
    def word_distance_m(self) -> float:
        """Mean distance of a word from the buffer to a converter."""
        return mean_distance_m(self.cluster_footprint_m2)

    @property
    def memory_distance_m(self) -> float:
        """Mean distance of a byte between the memory's interface and the buffer, on one die."""
        return mean_distance_m(self.cut.die_m2)

    @property
    def buffer_bytes_per_s(self) -> float:
        """Rate at which all ports of the buffer together read or write."""
        return self.electronics.ports.bandwidth_bytes_per_s(self.sram_bytes)

    @property
    def words_bytes_per_s(self) -> float:
        """Rate at which all cores fetch words at full load."""
        return self.cores * self.core.operand_bytes_per_symbol * self.core.symbol_rate_hz

    @property
    def calibration_duty(self) -> float:
        """Share of the time that calibrations take, 0 to 1."""
        return self.core.calibration.time_s / self.calibration_interval_s

    def _with_overhead(self, parts: Mapping[str, float]) -> dict[str, float]:
        """Return power or energy by part, with regulators and overhead as further parts."""
        bare = sum(parts.values(), start=0.0)
        regulators = bare * self.electronics.regulator.loss
        overhead = (bare + regulators) * (self.overhead - 1.0)
        return (
            dict(parts) | {"regulators": regulators} | ({"overhead": overhead} if self.overhead > 1.0 else {})
        )

    def _static_by_part_w(self) -> dict[str, float]:
        """Return the static power by part, without regulators and overhead."""
        chip, clusters, rate_hz = self.electronics, self.cores / self.core.cluster, self.core.symbol_rate_hz
        leaves = self.core.cluster * (self._converters("dac") + self._converters("adc"))
        tree_w = chip.wire.clock_w(leaves, self.cluster_footprint_m2, rate_hz)
        parts = {part: self.cores * power for part, power in static_w(self.core_parts).items()}
        shared = {
            "sram leakage": self.sram.bank_static_w * self.sram_bytes / self.sram.bank_bytes,
            "modulator bias": chip.bias.power_w * self.cores * self._modulators,
            "gain stage": chip.gain.symbol_energy_j * rate_hz * self.cores * self._converters("adc"),
            "control": chip.sequencer.power_w * clusters,
            "clock": (chip.clock.power_w + tree_w) * clusters,
        }
        return merged(parts, shared)

    def _whole_chip_w(self, parts: Mapping[str, float]) -> dict[str, float]:
        """Return power by part with regulators, overhead and idle power as further parts."""
        idle = {"idle": self._penalties.idle_w} if self._penalties.idle_w else {}
        return self._with_overhead(parts) | idle

    def static_parts_w(self) -> dict[str, float]:
        """Return the static power by part."""
        return self._whole_chip_w(self._static_by_part_w())

    @property
    def static_w(self) -> float:
        """Static power, drawn at work and idle alike: laser, rings, receivers, leakage."""
        return math.fsum(self.static_parts_w().values())

    def power_breakdown_w(self) -> dict[str, float]:
        """Return the power at full load by part, without the memory."""
        of_core = full_load_w(self.core_parts, self.core.full_load)
        dynamic = {part: self.cores * power for part, power in of_core.items()}
        dynamic = merged(dynamic, self._movement_j(self.words_bytes_per_s, 0.0))
        return self._whole_chip_w(merged(self._static_by_part_w(), dynamic))

    def _movement_j(self, operand_bytes: float, moved_bytes: float) -> dict[str, float]:
        """Return the energy by part of feeding words to converters and moving bytes from and to memory."""
        chip = self.electronics
        to_converter_j = chip.wire.energy_j_per_byte(self.word_distance_m)
        to_memory_j = chip.wire.energy_j_per_byte(self.memory_distance_m)
        by_part = {
            "sram": (operand_bytes + 2.0 * moved_bytes) * self.sram.energy_j_per_byte,
            "wires": operand_bytes * to_converter_j + moved_bytes * to_memory_j,
            "serialiser": operand_bytes * BITS_PER_BYTE * chip.serialiser.energy_j_per_bit,
        }
        crossing_j = chip.link.crossing_j_per_byte(self.dies)
        return by_part | ({"die links": moved_bytes * crossing_j} if self.dies > 1 else {})

    @property
    def peak_power_w(self) -> float:
        """Power at full load, without the memory."""
        return math.fsum(self.power_breakdown_w().values())

    def area_breakdown_m2(self) -> dict[str, float]:
        """Return the die area by part."""
        of_core = area_m2(self.core_parts, Domain.PHOTONIC) | area_m2(self.core_parts, Domain.ELECTRONIC)
        by_part = {part: self.cores * area for part, area in of_core.items()} | self._electronics_area_m2()
        spares = self.dies * self.cut.built * self.core.cluster / self.cores - 1.0
        by_part |= {"spares": spares * math.fsum(by_part.values())} if spares else {}
        return by_part | ({"die links": self.dies * self.electronics.link.area_m2} if self.dies > 1 else {})

    @property
    def area_m2(self) -> float:
        """Die area."""
        return math.fsum(self.area_breakdown_m2().values())

    @property
    def price_usd(self) -> float:
        """Price of the dies and of joining them; prices per area are assumed, see the table.

        Notes
        -----
        The price per area is that of finished accelerators. Its share for dies scales with the number lost to
        defects and dicing (`DieYield`, `Wafer`), and the chip is cut in the cheapest way.
        """
        return self.cut.price_usd

    def resized(self, cores: int) -> PhotonicUnit:
        """Return the same unit with another number of cores, and the buffer in proportion."""
        return dataclasses.replace(self, cores=cores, sram_bytes=self.sram_bytes * cores / self.cores)

    def with_its_buffer(self) -> PhotonicUnit:
        """Return the same unit with a buffer in proportion to the peak rate of its cores."""
        return dataclasses.replace(self, sram_bytes=proportionate_buffer_bytes(self.core, self.cores))

    def accepts(self, operator: MatMul | Elementwise) -> bool:
        """Return whether the operator is a product."""
        return isinstance(operator, MatMul)

    def cost(self, operator: MatMul | Elementwise) -> Cost:
        """Return time and dynamic energy of one product.

        Raises
        ------
        WorkloadError
            If the operator is no product.

        Notes
        -----
        Cores, buffer and memory (with the links between dies) overlap by double buffering: the longest of the
        three is the time, after the start of the product; the products of a fused attention kernel are
        started together. Cores wait while they are loaded. Every word that a DAC converts is read from the
        buffer; every byte from or to memory is written to the buffer and read from it once. Penalties,
        calibrations and a power limit lengthen the time of the cores. Penalties and the limit add no energy;
        in a calibration cores draw the power of work.
        """
        if not isinstance(operator, MatMul):
            msg = f"'{self.name}' runs products only, not '{operator.name}'; put it on an electronic unit"
            raise WorkloadError(msg)
        work = self.core.work(operator, self.cores)
        moved_bytes = memory_traffic_bytes(operator, self.sram_bytes / 2.0)
        hbm_j = self.memory.energy_j(moved_bytes)
        work_j = merged(work.energy_j, self._movement_j(work.operand_bytes, moved_bytes))
        work_j = merged(work_j, self._scaling_j(operator))
        busy_s = self._penalties.in_situ_s(work.time_s, operator) / (1.0 - self.calibration_duty)
        if self.limit_w is not None:
            limited_j = sum(self._with_overhead(work_j).values(), start=hbm_j)
            busy_s = max(busy_s, limited_j / (self.limit_w - self._calibration_w))
        cores_s = busy_s * self._penalties.lag
        buffer_s = (work.operand_bytes + 2.0 * moved_bytes) / self.buffer_bytes_per_s
        crossing_s = moved_bytes * self.electronics.link.crossing_s_per_byte(self.dies)
        memory_s = max(self.memory.time_s(moved_bytes), crossing_s)
        calls = library_calls(operator)
        start_s = self._penalties.launch_s if calls else 0.0
        cores_bound = Bound.COMPUTE if work.light_s >= work.programming_s else Bound.PROGRAMMING
        bounds = {cores_bound: cores_s, Bound.BUFFER: buffer_s, Bound.MEMORY: memory_s}
        bound = max(bounds, key=lambda limit: bounds[limit])
        longest_s = bounds[bound]
        energy = self._with_overhead(merged(work_j, self._calibration_j(cores_s))) | {"hbm": hbm_j}
        return Cost(
            time_s=start_s + longest_s,
            energy_j=MappingProxyType(energy),
            bound=Bound.LAUNCH if start_s > longest_s else bound,
            host_s=self._penalties.issue_s(calls),
        )

    def _scaling_j(self, operator: MatMul) -> dict[str, float]:
        """Return the energy of finding full scales and of scaling; none if the core's number format has it.

        Each element is compared with the largest so far when it is written, and multiplied by the scale when
        it is read into the buffer.
        """
        if any(part.per is Per.ELEMENT for part in self.core_parts):
            return {}
        elements = operator.batch * (operator.m * operator.k + operator.k * operator.n)
        return {"scaling": elements * self.electronics.scaler.element_j}

    def _calibration_j(self, time_s: float) -> dict[str, float]:
        """Return the energy, beyond static power, of the calibrations that fall into a time."""
        calibration = self.core.calibration
        extra_j = calibration.energy_j - math.fsum(static_w(self.core_parts).values()) * calibration.time_s
        if extra_j <= 0.0:
            return {}
        return {"calibration": time_s / self.calibration_interval_s * self.cores * extra_j}

    @cached_property
    def _calibration_w(self) -> float:
        """Mean power of calibrations while cores work, beyond static power."""
        return sum(self._with_overhead(self._calibration_j(1.0)).values())

    def wear(self, operator: MatMul) -> float:
        """Return the share of the cells' life that a product uses up on the busiest core; 0 if none wear."""
        endurance = self.core.reload.endurance_writes
        return self.core.work(operator, self.cores).writes / endurance

    def numerics(self, phase: Phase) -> Numerics:
        """Return the executor of products of a phase, from the same link budget as their energy."""
        from optical.execution.numerics import AnalogNumerics  # noqa: PLC0415 - torch is loaded only to execute

        return AnalogNumerics(self.core.analog(phase))
