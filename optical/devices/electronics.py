"""Electronics of a photonic chip besides the optical path: ports, wires, serialisers, clock, regulators.

A sum of modulators, detectors and converters explains a quarter of a built chip; these are the parts that
feed them. `optical.accelerator` counts them; modulators' drivers stand on the cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from optical.devices.devices import shipped
from optical.devices.parts import Device, Domain
from simulator.checks import check_positive, check_range
from simulator.units import BITS_PER_BYTE

CENTIMETRES_PER_M = 100.0
"""Defects are counted per square centimetre."""
CLOCK_OVER_DATA = 4.0
"""Energy of a clock wire per cycle over that of a data wire per random bit: it is charged in every cycle, a
data wire in one of four (C V^2 against C V^2 / 4; Rabaey, Digital Integrated Circuits, section 5.5)."""


def mean_distance_m(area_m2: float) -> float:
    """Return the mean way along both axes between two random points of a square, two thirds of its side."""
    return 2.0 / 3.0 * math.sqrt(area_m2)


@dataclass(frozen=True, kw_only=True)
class Wire:
    """Repeated wire between blocks of a die."""

    name: str
    """Name shown in tables."""
    energy_j_per_bit_m: float
    """Energy of one random bit over a metre, with its share of repeaters and pipeline registers."""

    def __post_init__(self) -> None:
        check_range(self, "energy_j_per_bit_m")

    def energy_j_per_byte(self, distance_m: float) -> float:
        """Return the energy of carrying one byte so far."""
        return BITS_PER_BYTE * self.energy_j_per_bit_m * distance_m

    def clock_w(self, leaves: float, area_m2: float, rate_hz: float) -> float:
        """Return the power of a clock tree to so many leaves spread evenly over an area.

        Notes
        -----
        A tree that reaches n points of an area A is about sqrt(n A) long (Beardwood, Halton and Hammersley
        1959, for the shortest tour; trees have 0.7 to 1 of it).
        """
        return CLOCK_OVER_DATA * self.energy_j_per_bit_m * math.sqrt(leaves * area_m2) * rate_hz


@dataclass(frozen=True, kw_only=True)
class BufferPorts:
    """Ports of a buffer's memory macros, which limit how fast words can leave it."""

    name: str
    """Name shown in tables."""
    macro_bytes: float
    """Capacity of a macro."""
    width_bytes: float
    """Width of its port, which reads or writes once a cycle."""
    rate_hz: float
    """Cycles per second."""

    def __post_init__(self) -> None:
        check_positive(self, "macro_bytes", "width_bytes", "rate_hz")

    def bandwidth_bytes_per_s(self, capacity_bytes: float) -> float:
        """Return the rate of all macros of a buffer together."""
        return capacity_bytes / self.macro_bytes * self.width_bytes * self.rate_hz


@dataclass(frozen=True, kw_only=True)
class Serialiser(Device):
    """Multiplexer from words at the buffer's clock to symbols, one before each DAC."""

    domain = Domain.ELECTRONIC
    """Die that it is made on."""
    name: str
    """Name shown in tables."""
    energy_j_per_bit: float
    """Energy of a bit, synchronisation between the clocks included."""
    area_m2: float
    """Area of one."""

    def __post_init__(self) -> None:
        check_range(self, "energy_j_per_bit", "area_m2")


@dataclass(frozen=True, kw_only=True)
class GainStage(Device):
    """Amplifier of variable gain that fits sums to an ADC's range; integrators and holds are readouts."""

    domain = Domain.ELECTRONIC
    """Die that it is made on."""
    name: str
    """Name shown in tables."""
    symbol_energy_j: float
    """Power over symbol rate: an amplifier draws all the time, in proportion to its bandwidth."""
    area_m2: float
    """Area of one."""

    def __post_init__(self) -> None:
        check_range(self, "symbol_energy_j", "area_m2")


@dataclass(frozen=True, kw_only=True)
class Scaler:
    """Logic that finds the largest of an operand's elements and scales them to the converters' range."""

    name: str
    """Name shown in tables."""
    element_j: float
    """Energy of an element, once per product."""

    def __post_init__(self) -> None:
        check_range(self, "element_j")


@dataclass(frozen=True, kw_only=True)
class ControlBlock(Device):
    """Block of a cluster that draws power all the time: instruction sequencer, source of a clock."""

    domain = Domain.ELECTRONIC
    """Die that it is made on."""
    name: str
    """Name shown in tables."""
    power_w: float
    """Power."""
    area_m2: float
    """Area."""

    def __post_init__(self) -> None:
        check_range(self, "power_w", "area_m2")


@dataclass(frozen=True, kw_only=True)
class ModulatorBias:
    """Heater that holds an interferometric modulator at its working point; rings have tuning of their own."""

    name: str
    """Name shown in tables."""
    power_w: float
    """Mean power over modulators as they are made."""

    def __post_init__(self) -> None:
        check_range(self, "power_w")


@dataclass(frozen=True, kw_only=True)
class DieLink:
    """Link between dies of one package, needed where a chip is larger than a scanner's field."""

    name: str
    """Name shown in tables."""
    energy_j_per_bit: float
    """Energy of a bit, both ends together."""
    field_area_m2: float
    """Largest die, what a scanner exposes at once."""
    bandwidth_bytes_per_s: float
    """Rate at which all links of a die together send."""
    area_m2: float
    """Area of all links of a die."""
    package_usd: float
    """Price of joining a die to others in a package."""

    def __post_init__(self) -> None:
        check_positive(self, "field_area_m2", "bandwidth_bytes_per_s")
        check_range(self, "energy_j_per_bit", "area_m2", "package_usd")

    def dies(self, footprint_m2: float) -> int:
        """Return how many dies an area is cut into."""
        return max(1, math.ceil(footprint_m2 / self.field_area_m2))

    def crossing_j_per_byte(self, dies: int) -> float:
        """Return the mean energy of a byte whose place in any of the dies is equally likely to be another."""
        return BITS_PER_BYTE * self.energy_j_per_bit * (dies - 1) / dies

    def crossing_s_per_byte(self, dies: int) -> float:
        """Return the mean time of such a byte, all dies sending at once."""
        return (dies - 1) / dies / (dies * self.bandwidth_bytes_per_s)


@dataclass(frozen=True, kw_only=True)
class DieYield:
    """Share of dies that work, and what spare clusters of cores do for it.

    Notes
    -----
    A cluster is without a defect with probability exp(-A D), and a die is sold if enough of its clusters are:
    a binomial tail. Spare clusters cost their area and stay dark.

    References
    ----------
    B. T. Murphy, "Cost-size optima of monolithic integrated circuits", Proc. IEEE 52 (1964) 1537.
    """

    name: str
    """Name shown in tables."""
    defects_per_cm2: float
    """Defects that kill a cluster, per square centimetre."""
    spares: float
    """Clusters built beyond those in use, over those in use; dimensionless."""
    reference: float
    """Yield of the dies from whose price the price per area is taken, 0 to 1."""

    def __post_init__(self) -> None:
        check_range(self, "defects_per_cm2", "spares")
        check_range(self, "reference", high=1.0, open_low=True)

    def share(self, clusters: int, cluster_m2: float) -> float:
        """Return the share of dies with at least so many working clusters among those built, 0 to 1."""
        works = math.exp(-cluster_m2 * self.defects_per_cm2 * CENTIMETRES_PER_M**2)
        built = clusters + math.floor(self.spares * clusters + 1e-9)
        return math.fsum(
            math.comb(built, failed) * (1.0 - works) ** failed * works ** (built - failed)
            for failed in range(built - clusters + 1)
        )


@dataclass(frozen=True, kw_only=True)
class Regulator:
    """Voltage regulators on the module, whose losses a GPU's power limit has in it too."""

    name: str
    """Name shown in tables."""
    efficiency: float
    """Power at the chip over power at the module, 0 to 1."""

    def __post_init__(self) -> None:
        check_range(self, "efficiency", high=1.0, open_low=True)

    @property
    def loss(self) -> float:
        """Power lost over power at the chip, dimensionless."""
        return 1.0 / self.efficiency - 1.0


@dataclass(frozen=True, kw_only=True)
class WholeChip:
    """What stands on no part of a photonic chip."""

    name: str
    """Name shown in tables."""
    overhead: float
    """Power of built chips over that of their parts, dimensionless; 1 is parts only."""
    calibration_interval_s: float
    """Time between two calibrations."""


@dataclass(frozen=True, kw_only=True)
class ChipElectronics:
    """Electronics that a photonic chip has besides its cores."""

    ports: BufferPorts = shipped(BufferPorts, "buffer_ports")
    """Ports of the buffer."""
    wire: Wire = shipped(Wire, "wire")
    """Wires between buffer, converters and memory, and of the clock."""
    bias: ModulatorBias = shipped(ModulatorBias, "modulator_bias")
    """One for each interferometric modulator."""
    serialiser: Serialiser = shipped(Serialiser, "serialiser")
    """One before each DAC."""
    gain: GainStage = shipped(GainStage, "gain_stage")
    """One before each ADC."""
    scaler: Scaler = shipped(Scaler, "scaler")
    """Scales of operands, unless the core's number format has its own."""
    sequencer: ControlBlock = shipped(ControlBlock, "sequencer")
    """One for each cluster of cores."""
    clock: ControlBlock = shipped(ControlBlock, "clock_source")
    """One for each cluster of cores."""
    link: DieLink = shipped(DieLink, "die_link")
    """Between dies, where there are several."""
    die_yield: DieYield = shipped(DieYield, "die_yield")
    """Working dies, and spares."""
    regulator: Regulator = shipped(Regulator, "regulator")
    """Regulators of the whole unit."""
