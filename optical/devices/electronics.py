"""Electronics of a photonic chip: readouts, ports, wires, serialisers, clock, regulators.

A sum of modulators, detectors and converters explains a quarter of a built chip; these are the parts that
feed them. `optical.accelerator` counts them; modulators' drivers stand on the cores.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optical.devices.devices import shipped
from optical.devices.parts import ElectronicDevice, Named
from simulator.errors import Efficiency, ParameterError, Positive, Share
from simulator.units import BITS_PER_BYTE

CENTIMETRES_PER_M = 100.0
"""Defects are counted per square centimetre."""
CLOCK_OVER_DATA = 4.0
"""Energy of a clock wire per cycle over that of a data wire per random bit: it is charged in every cycle, a
data wire in one of four (C V^2 against C V^2 / 4; Rabaey, Digital Integrated Circuits, section 5.5)."""
RIM_LOSS = 0.58
"""Dies cut by a wafer's rim over those that its length would hold (de Vries 2005, recalled; squares counted
on discs give 0.61 on average over their offsets, and 0.42 to 0.58 at the best)."""


def mean_distance_m(area_m2: float) -> float:
    """Return the mean way along both axes between two random points of a square, two thirds of its side."""
    return 2.0 / 3.0 * math.sqrt(area_m2)


@dataclass(frozen=True, kw_only=True)
class Wire(Named):
    """Repeated wire between blocks of a die."""

    energy_j_per_bit_m: float
    """Energy of one random bit over a metre, with its share of repeaters and pipeline registers."""

    def energy_j_per_byte(self, distance_m: float) -> float:
        """Return the energy of carrying one byte so far."""
        return BITS_PER_BYTE * self.energy_j_per_bit_m * distance_m

    def clock_w(self, leaves: float, area_m2: float, rate_hz: float) -> float:
        """Return the power of a clock tree to a number of leaves spread evenly over an area.

        Notes
        -----
        A tree that reaches n points of an area A is about sqrt(n A) long (Beardwood, Halton and Hammersley
        1959, for the shortest tour; trees have 0.7 to 1 of it).
        """
        return CLOCK_OVER_DATA * self.energy_j_per_bit_m * math.sqrt(leaves * area_m2) * rate_hz


@dataclass(frozen=True, kw_only=True)
class BufferPorts(Named):
    """Ports of a buffer's memory macros, which limit how fast words can leave it."""

    macro_bytes: Positive
    """Capacity of a macro."""
    width_bytes: Positive
    """Width of its port, which reads or writes once a cycle."""
    rate_hz: Positive
    """Cycles per second."""

    def bandwidth_bytes_per_s(self, capacity_bytes: float) -> float:
        """Return the rate of all macros of a buffer together."""
        return capacity_bytes / self.macro_bytes * self.width_bytes * self.rate_hz


@dataclass(frozen=True, kw_only=True)
class Serialiser(ElectronicDevice):
    """Multiplexer from words at the buffer's clock to symbols, one before each DAC."""

    energy_j_per_bit: float
    """Energy of a bit, synchronisation between the clocks included."""
    area_m2: float
    """Area of one."""


@dataclass(frozen=True, kw_only=True)
class GainStage(ElectronicDevice):
    """Amplifier of variable gain that fits sums to an ADC's range; integrators and holds are readouts."""

    symbol_energy_j: float
    """Power over symbol rate: an amplifier draws all the time, in proportion to its bandwidth."""
    area_m2: float
    """Area of one."""


@dataclass(frozen=True, kw_only=True)
class Scaler(Named):
    """Logic that finds the largest of an operand's elements and scales them to the converters' range."""

    element_j: float
    """Energy of an element, once per product."""


@dataclass(frozen=True, kw_only=True)
class ControlBlock(ElectronicDevice):
    """Block of a cluster that draws power all the time: instruction sequencer, source of a clock."""

    power_w: float
    """Power."""
    area_m2: float
    """Area."""


@dataclass(frozen=True, kw_only=True)
class ModulatorBias(Named):
    """Heater that holds an interferometric modulator at its working point; rings have tuning of their own."""

    power_w: float
    """Mean power over modulators as they are made."""


@dataclass(frozen=True, kw_only=True)
class DieLink(Named):
    """Link between dies of one package, needed where a chip is larger than a scanner's field."""

    energy_j_per_bit: float
    """Energy of a bit, both ends together."""
    field_area_m2: Positive
    """Largest die: the field that a scanner exposes at once."""
    bandwidth_bytes_per_s: Positive
    """Rate at which all links of a die together send."""
    area_m2: float
    """Area of all links of a die."""
    package_usd: float
    """Price of each die that a package has beyond its first."""
    bonding_yield: Efficiency
    """Share of dies that are joined to others without a fault, 0 to 1; the rest is lost with its place."""

    def crossing_j_per_byte(self, dies: int) -> float:
        """Return the mean energy of a byte whose place in any of the dies is equally likely to be another."""
        return BITS_PER_BYTE * self.energy_j_per_bit * (dies - 1) / dies

    def crossing_s_per_byte(self, dies: int) -> float:
        """Return the mean time of such a byte, all dies sending at once."""
        return (dies - 1) / dies / (dies * self.bandwidth_bytes_per_s)


@dataclass(frozen=True, kw_only=True)
class Wafer(Named):
    """Wafer that dies are cut from.

    References
    ----------
    D. K. de Vries, "Investigation of gross die per wafer formulas", IEEE Transactions on Semiconductor
    Manufacturing 18 (2005) 136.
    """

    diameter_m: Positive
    """Diameter."""
    edge_m: float
    """Width of the rim that carries no dies."""
    scribe_m: float
    """Width of the street that a saw takes between dies."""

    def used(self, die_m2: float) -> float:
        """Return the area of all whole square dies over that of the wafer, 0 to 1.

        Notes
        -----
        N = pi r^2 / S - 0.58 * 2 pi r / sqrt(S) dies of area S with their streets fit into the radius r that
        the rim leaves (de Vries); a single die at least.
        """
        radius = self.diameter_m / 2.0 - self.edge_m
        pitch_m2 = (math.sqrt(die_m2) + self.scribe_m) ** 2
        dies = math.pi * radius**2 / pitch_m2 - RIM_LOSS * 2.0 * math.pi * radius / math.sqrt(pitch_m2)
        return max(1.0, dies) * die_m2 / (math.pi / 4.0 * self.diameter_m**2)


@dataclass(frozen=True, kw_only=True)
class DieYield(Named):
    """Share of dies that work, what spare clusters of cores do for it, and what lost silicon costs.

    Notes
    -----
    A cluster is without a defect with probability exp(-A D), and a die is sold if enough of its clusters are:
    a binomial tail. Spare clusters cost their silicon and stay dark. The price of a finished accelerator per
    area of its dies holds those that were lost, and much that is no silicon (memory, package, test): only the
    share of silicon grows where more is lost than of the dies from which that price is taken, and where dies
    are stacked, for the rest stands round the stack once.

    References
    ----------
    B. T. Murphy, "Cost-size optima of monolithic integrated circuits", Proc. IEEE 52 (1964) 1537.
    """

    defects_per_cm2: float
    """Defects that kill a cluster, per square centimetre."""
    spares: float
    """Most clusters of a die beyond those in use, over those in use; dimensionless."""
    silicon_share: Share
    """Cost of dies over the whole cost of making an accelerator, 0 to 1."""
    reference: Efficiency
    """Yield of the dies from whose price the price per area is taken, 0 to 1."""
    reference_area_m2: Positive
    """Area of such a die."""

    def works(self, area_m2: float) -> float:
        """Return the probability that an area is without a defect."""
        return math.exp(-area_m2 * self.defects_per_cm2 * CENTIMETRES_PER_M**2)

    def share(self, clusters: int, built: int, cluster_m2: float) -> float:
        """Return the share of dies with at least `clusters` working ones of those built, 0 to 1."""
        works = self.works(cluster_m2)
        if works == 0.0:
            return float(clusters == 0)
        term = found = works**built
        for failed in range(1, built - clusters + 1):
            term *= (built - failed + 1) / failed * (1.0 - works) / works
            found += term
        return found


@dataclass(frozen=True, kw_only=True)
class Block:
    """Block of a die that is not divided: a cluster of cores, or the links of a die."""

    area_m2: float
    """Area that it covers, dies stacked."""
    price_usd: float
    """Price of all its dies, each at that of finished accelerators per area."""
    stack_usd: float
    """Price of the dearest stacked die, to which memory, package and test of a stack are in proportion."""


NOTHING = Block(area_m2=0.0, price_usd=0.0, stack_usd=0.0)
"""Links of a single die."""


@dataclass(frozen=True, kw_only=True)
class DieCut:
    """Cut of a chip into equal dies, and its price."""

    dies: int
    """Dies, or stacks of them."""
    used: int
    """Most clusters in use on a die."""
    built: int
    """Clusters that each die has, spares included."""
    die_m2: float
    """Area of a die."""
    die_yield: float
    """Share of dies that are sold, 0 to 1."""
    price_usd: float
    """Price of all dies, joined."""

    def __str__(self) -> str:
        spares = self.built - self.used
        more = f" and {spares} spare{'s' if spares > 1 else ''}" if spares else ""
        clusters = f"{self.used} cluster{'s' if self.used > 1 else ''}{more}"
        dies = f"{self.dies} die{'s' if self.dies > 1 else ''}"
        return f"{dies} of {clusters} ({1e6 * self.die_m2:.0f} mm2, {self.die_yield:.0%} work)"


@dataclass(frozen=True, kw_only=True)
class Regulator(Named):
    """Voltage regulators on the module, whose losses a GPU's power limit has in it too."""

    efficiency: Efficiency
    """Power at the chip over power at the module, 0 to 1."""

    @property
    def loss(self) -> float:
        """Power lost over power at the chip, dimensionless."""
        return 1.0 / self.efficiency - 1.0


@dataclass(frozen=True, kw_only=True)
class WholeChip(Named):
    """Overhead of built photonic chips over their parts, and how often they are calibrated."""

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
    wafer: Wafer = shipped(Wafer, "wafer")
    """Wafer of the dies."""
    regulator: Regulator = shipped(Regulator, "regulator")
    """Regulators of the whole unit."""

    def cuts(self, clusters: int, cluster: Block, links: Block) -> list[DieCut]:
        """Return the ways to cut a chip into dies with spares, the cheapest first.

        Parameters
        ----------
        clusters : int
            Clusters in use.
        cluster : Block
            One of them.
        links : Block
            Links of a die, where there are several.

        Notes
        -----
        Of dies with as many clusters in use, the fewest are cheapest. A cut fits a scanner's field, unless a
        single cluster does not.

        Raises
        ------
        ParameterError
            If no die has enough clusters without a defect to be sold at any price.
        """
        room = max(1, math.floor(self.link.field_area_m2 / cluster.area_m2))
        most = min(clusters, room)
        sizes = {math.ceil(clusters / math.ceil(clusters / used)) for used in range(1, most + 1)}
        found = [
            self._cut(clusters, used + spares, math.ceil(clusters / used), (cluster, links))
            for used in sizes
            for spares in range(min(math.floor(self.die_yield.spares * used + 1e-9), room - used) + 1)
        ]
        fitting = [cut for cut in found if cut.die_m2 <= self.link.field_area_m2 or cut.built == 1]
        best = sorted(fitting, key=lambda cut: (cut.price_usd, cut.dies))
        if math.isinf(best[0].price_usd):
            msg = (
                f"no die works: the smallest covers {1e6 * min(cut.die_m2 for cut in fitting):.0f} mm2, at "
                f"{self.die_yield.defects_per_cm2:g} defects a cm2; lower die_yield.defects_per_cm2, the "
                "area of die links or that of a cluster"
            )
            raise ParameterError(msg)
        return best

    def _cut(self, clusters: int, built: int, dies: int, blocks: tuple[Block, Block]) -> DieCut:
        """Return one cut with its yield and price; dies that need one cluster less are sold more often."""
        law, cluster, links = self.die_yield, blocks[0], blocks[1] if dies > 1 else NOTHING
        used, full = math.ceil(clusters / dies), clusters % dies or dies
        needs = ((used, full), (used - 1, dies - full))
        made = sum(
            count / max(law.share(need, built, cluster.area_m2), sys.float_info.min) for need, count in needs
        )
        die_yield = dies / made * law.works(links.area_m2)
        die_m2 = built * cluster.area_m2 + links.area_m2
        wasted = law.reference * self.wafer.used(law.reference_area_m2) / self.wafer.used(die_m2)
        silicon_usd = dies * (built * cluster.price_usd + links.price_usd) * wasted
        silicon_usd *= law.silicon_share / max(die_yield, sys.float_info.min)
        joining_usd = (dies - 1) * self.link.package_usd
        bonded = self.link.bonding_yield if dies > 1 else 1.0
        rest_usd = (1.0 - law.silicon_share) * clusters * cluster.stack_usd
        return DieCut(
            dies=dies,
            used=used,
            built=built,
            die_m2=die_m2,
            die_yield=die_yield,
            price_usd=rest_usd + (silicon_usd + joining_usd) / bonded,
        )


@dataclass(frozen=True, kw_only=True)
class Integrator(ElectronicDevice):
    """Capacitor that a current charges through a gate which is open for a part of every symbol.

    Notes
    -----
    Open for the share w of a symbol, it lets in noise of the bandwidth f/(2 w). Without a gate it would let
    in f/2, and with it all edges between symbols.
    """

    window: Efficiency
    """Share of a symbol for which the gate is open, between the middles of its edges."""
    edge_s: float
    """Time in which the gate opens, or closes."""
    jitter_s: float
    """Standard deviation of its clock."""
    sample_energy_j: float
    """Energy of gating and emptying it, per sample."""
    area_m2: float
    """Area."""

    def poles_hz(self, rate_hz: float) -> tuple[float, ...]:
        """Return no poles: its averaging is in its weights."""
        return ()

    def weights(self, rate_hz: float, steps: int) -> NDArray[np.float64]:
        """Return the weight of each step of time up to the moment it closes, which sum to 1.

        Parameters
        ----------
        rate_hz : float
            Symbols per second.
        steps : int
            Steps of a symbol.
        """
        opened = np.ones(max(1, round(self.window * steps)))
        edge = np.ones(max(1, round(self.edge_s * rate_hz * steps)))
        weights = np.convolve(opened, edge)
        return np.asarray(weights / weights.sum())


@dataclass(frozen=True, kw_only=True)
class Sampler(ElectronicDevice):
    """Track-and-hold that reads one instant of every symbol, behind a filter of its own.

    Notes
    -----
    Its noise bandwidth is (pi/2) of its pole, less with the amplifier's.
    """

    bandwidth_ratio: Positive
    """3 dB bandwidth while it tracks, over the symbol rate, dimensionless."""
    jitter_s: float
    """Standard deviation of its clock."""
    sample_energy_j: float
    """Energy per sample, beyond that of the converter."""
    area_m2: float
    """Area."""

    def poles_hz(self, rate_hz: float) -> tuple[float, ...]:
        """Return the pole of its tracking."""
        return (self.bandwidth_ratio * rate_hz,)

    def weights(self, rate_hz: float, steps: int) -> NDArray[np.float64]:
        """Return all the weight at one step."""
        return np.ones(1)
