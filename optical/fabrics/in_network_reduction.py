"""In-network reduction by optical adders between nodes, beside a packet fabric for everything else.

Laser, losses and noise of an adder's detector set how many senders it can add and how exact their mean is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from optical.devices import Laser, Modulator, Photodetector, Tia
from optical.devices.devices import shipped
from optical.devices.modulators import load_j
from optical.devices.named_parts import named_parts_table
from optical.fabrics.node_circuits import BesidePackets
from optical.fabrics.switches import PARAMETERS
from simulator.errors import Checked, Count, Dbm, Efficiency, LinkError, Positive, Several
from simulator.fabric import Traits
from simulator.interfaces import Flows, Wiring
from simulator.tables import Shelf
from simulator.topology.graphs import GraphFabric
from simulator.topology.scale_up import Adder, BillItem
from simulator.units import BITS_PER_BYTE, ELEMENTARY_CHARGE_C, ratio_from_db, watts_from_dbm

FARTHEST = 64
"""Steps beside the right one that a misread sum may be wrong by; farther ones weigh nothing."""


@dataclass(frozen=True, kw_only=True)
class OpticalAdder(Checked):
    """A unit that adds the symbols of several senders as optical powers.

    Notes
    -----
    A value of `gradient_bits` is sent as digits of `bits_per_symbol`, one symbol each. A combining tree adds
    the powers of n lanes, of which each loses a factor n, so that all at full power give ``I = R P T``. The
    sum of n digits has ``n (2^b - 1)`` steps of current; noise of variance::

        s^2 = (i_n^2 + 2 q (I + I_dark)) B + RIN B I^2 / n,    B = (pi/2) tia.bandwidth_hz

    moves it to a neighbour with probability ``erfc(step / (2 sqrt(2) s))``. Carries are added after
    detection, and the mean goes on with `gradient_bits` again.

    References
    ----------
    Fei et al., "OptINC: optical in-network-computing for scalable distributed learning", arXiv:2603.28290.
    Its trained mesh makes the mean and the quantisation in one; here the sum is optical, the rounding is not.
    """

    name: str = "light adder"
    """Name shown in tables."""
    symbol_rate_hz: Positive
    """Symbols of a lane per time."""
    bits_per_symbol: Count
    """Bits of a digit."""
    gradient_bits: Count
    """Bits of a value on its way."""
    fan_in: Several
    """Senders that one unit adds; more take a tree of units."""
    launch_dbm: Dbm
    """Power of a lane before its modulator."""
    fibre_loss_db: float
    """Loss of fibre and connectors from sender to unit."""
    element_loss_db: float
    """Loss of one element of the combining tree, beyond the division."""
    element_w: float
    """Power that holds one element."""
    misread_max: Efficiency
    """Largest share of sums that may come out wrong, 0 to 1."""
    lane_w: float
    """Power of one lane's electronics, both ends."""
    lane_price_usd: float
    """Price of one lane, both ends."""
    unit_price_usd: float
    """Price of one unit."""
    latency_s: float
    """Time through one unit."""
    laser: Laser = shipped(Laser, "laser")
    """Source of a lane."""
    modulator: Modulator = shipped(Modulator, "mzm_quoted")
    """Modulator of a lane."""
    detector: Photodetector = shipped(Photodetector, "photodetector")
    """Detector of a sum."""
    tia: Tia = shipped(Tia, "tia_28nm_2025", named_parts_table)
    """Amplifier behind it."""

    @property
    def lane_bytes_per_s(self) -> float:
        """Line rate of one lane."""
        return self.symbol_rate_hz * self.bits_per_symbol / 8

    @property
    def modulator_j(self) -> float:
        """Energy of one symbol at a modulator; its driver is part of `lane_w`."""
        if self.modulator.symbol_energy_j is not None or self.modulator.half_wave_v is None:
            return self.modulator.symbol_energy_j or 0.0
        return load_j(
            self.modulator.half_wave_v,
            capacitance_f=self.modulator.capacitance_f,
            termination_ohm=self.modulator.termination_ohm,
            symbol_rate_hz=self.symbol_rate_hz,
        )

    @property
    def digits(self) -> int:
        """Symbols of one value."""
        return math.ceil(self.gradient_bits / self.bits_per_symbol)

    @property
    def losses_db(self) -> tuple[tuple[str, float], ...]:
        """Each element of the way with its loss, beyond the division by the senders."""
        stages = math.ceil(math.log2(self.fan_in))
        return (
            ("modulator", self.modulator.insertion_loss_db),
            ("couplers", 2 * self.laser.coupling_loss_db),
            ("fibre and connectors", self.fibre_loss_db),
            (f"{stages} elements of the combining tree", stages * self.element_loss_db),
        )

    @property
    def laser_w(self) -> float:
        """Electrical power of a lane's laser."""
        return watts_from_dbm(self.launch_dbm) / self.laser.wall_plug_efficiency

    @property
    def full_scale_a(self) -> float:
        """Photocurrent with all senders at full power."""
        loss = ratio_from_db(-sum(loss for _, loss in self.losses_db))
        return self.detector.responsivity_a_per_w * watts_from_dbm(self.launch_dbm) * loss

    @cached_property
    def noise_a(self) -> float:
        """Standard deviation of the current at full scale."""
        bandwidth_hz = math.pi / 2 * self.tia.bandwidth_hz
        current = self.full_scale_a
        white = self.tia.noise_a_per_sqrt_hz**2
        white += 2 * ELEMENTARY_CHARGE_C * (current + self.detector.dark_current_a)
        beating = ratio_from_db(self.laser.rin_db_per_hz) * current**2 / self.fan_in
        return math.sqrt((white + beating) * bandwidth_hz)

    @property
    def step_a(self) -> float:
        """Current between neighbouring sums, less what leakage and the symbol before take of it."""
        residue = math.exp(-2 * math.pi * self.joint_hz / self.symbol_rate_hz)
        usable = (1.0 - ratio_from_db(-self.modulator.extinction_ratio_db)) * (1.0 - residue)
        return usable * self.full_scale_a / (self.fan_in * (2**self.bits_per_symbol - 1))

    @property
    def joint_hz(self) -> float:
        """Bandwidth from modulator to sampler, inverse squares of all poles added."""
        poles_hz = (self.modulator.bandwidth_hz, self.detector.bandwidth_hz, self.tia.bandwidth_hz)
        return math.hypot(*(1 / pole_hz for pole_hz in poles_hz)) ** -1

    @property
    def sum_bits(self) -> float:
        """Effective bits of one sum of digits before it is decided: noise as that of a quantiser's steps."""
        return math.log2(self.full_scale_a / (self.noise_a * math.sqrt(12.0)))

    @property
    def misread(self) -> float:
        """Share of sums that are taken for a neighbour."""
        return math.erfc(self.step_a / (2 * math.sqrt(2.0) * self.noise_a))

    def check_closes(self) -> None:
        """Raise an error if sums come out wrong too often.

        Raises
        ------
        LinkError
            Names the element that loses most.
        """
        if self.misread > self.misread_max:
            what, greatest_db = max(self.losses_db, key=lambda one: one[1])
            msg = (
                f"the sum of {self.fan_in} senders in '{self.name}' does not close: {self.misread:.1e} of "
                f"the sums are misread and {self.misread_max:.0e} may be; the greatest loss is {what} "
                f"({greatest_db:.1f} dB); try more launch_dbm, a smaller fan_in or fewer bits_per_symbol"
            )
            raise LinkError(msg)

    def levels(self, senders: int) -> int:
        """Return the number of units between a sender and the sum of all."""
        found = 1
        while self.fan_in**found < senders:
            found += 1
        return found

    def units(self, senders: int) -> int:
        """Return the number of units that add one lane of each sender."""
        total, left = 0, senders
        while left > 1:
            left = math.ceil(left / self.fan_in)
            total += left
        return total

    @property
    def unit_w(self) -> float:
        """Power of one unit: elements of its tree, detector and amplifier."""
        detector_w = self.detector.bias_v * (self.full_scale_a + self.detector.dark_current_a)
        return (self.fan_in - 1) * self.element_w + detector_w + self.tia.power_w

    def error_variance(self, senders: int) -> float:
        """Return the variance of a mean's error, in units of the values' range, rounding included.

        Notes
        -----
        Values come with an error of a rounding, ``lsb^2 / 12``. A unit averages those of its senders, adds
        what misread digits of weight ``2^(b k) lsb / n`` make, and rounds again.
        """
        lsb = 1.0 / (2**self.gradient_bits - 1)
        ratio = self.step_a / self.noise_a
        wrong = sum(
            (2 * jump - 1) * math.erfc((jump - 0.5) * ratio / math.sqrt(2.0)) for jump in range(1, FARTHEST)
        )
        weights = sum(4.0 ** (self.bits_per_symbol * digit) for digit in range(self.digits))
        variance, left = lsb**2 / 12, senders
        for _ in range(self.levels(senders)):
            adding = min(self.fan_in, left)
            # A mean of n whole codes lies between them at n places only.
            places = (1.0 + 2.0 / adding**2) if adding % 2 == 0 else (1.0 - 1.0 / adding**2)
            variance = variance / adding + weights * (lsb / adding) ** 2 * wrong + places * lsb**2 / 12
            left = math.ceil(left / self.fan_in)
        return variance

    def effective_bits(self, senders: int) -> float:
        """Return the effective bits of a mean: those of a quantiser with as large an error."""
        return -0.5 * math.log2(12.0 * self.error_variance(senders))

    def averaged(self, values_NW: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the mean of values as it comes out of the units, shape [W].

        Parameters
        ----------
        values_NW : numpy.ndarray
            Values of N senders between 0 and 1, shape [N, W].
        rng : numpy.random.Generator
            Noise of this use.
        """
        top, base = 2**self.gradient_bits - 1, 2**self.bits_per_symbol
        codes = np.rint(np.clip(values_NW, 0.0, 1.0) * top).astype(np.int64)
        sigma = self.noise_a / self.step_a
        for _ in range(self.levels(len(codes))):
            following = []
            for first in range(0, len(codes), self.fan_in):
                some = codes[first : first + self.fan_in]
                total = np.zeros(codes.shape[1])
                for digit in range(self.digits):
                    sums = (some // base**digit % base).sum(axis=0)
                    total += base**digit * np.rint(sums + sigma * rng.standard_normal(sums.shape))
                following.append(np.clip(np.rint(total / len(some)), 0, top).astype(np.int64))
            codes = np.stack(following)
        return codes[0] / top


load_optical_adder = Shelf(OpticalAdder, PARAMETERS / "reductions.csv")
"""Units that add in light, e.g. ``"optinc"``."""


@dataclass(frozen=True, kw_only=True)
class OpticalReduction(BesidePackets, GraphFabric):
    """A packet fabric whose cards have lanes to units that add in light (OptINC).

    Notes
    -----
    Lane l of the cards of one rail meets in a tree of units, which hands the mean back to all of them. Each
    way of a card then carries (n+1)/n of a vector for an all-reduce, as with packet switches that add
    (`simulator.collectives.algorithms.in_network_rounds`), at the rate of the card. Reduced values have
    `effective_bits`, which follow from laser, losses and noise; bytes on the way stay those of the plan.
    """

    name: str = "optical reduction"
    """Name shown in tables and traces."""
    unit: OpticalAdder = field(default_factory=lambda: load_optical_adder("optinc"))
    """Optical adder."""
    adder: Adder = field(default_factory=lambda: load_optical_adder.table.build(Adder, "light"))
    """Reduction by it as the communication library runs it."""

    def __post_init__(self) -> None:
        if self.nodes > 1:
            self.unit.check_closes()

    @property
    def card_lanes(self) -> int:
        """Lanes that carry what a card sends."""
        return math.ceil(self.packets.port_bytes_per_s / self.unit.lane_bytes_per_s)

    @property
    def network_adder(self) -> Adder:
        """Reduction by the units: the library's time and that of the light through all levels."""
        waiting_s = self.unit.levels(self.nodes) * self.unit.latency_s
        return replace(self.adder, start_s=self.adder.start_s + waiting_s)

    @cached_property
    def traits(self) -> Traits:
        """Library of the nodes, and units between them that add."""
        bits = self.effective_bits if self.nodes > 1 else None
        return Traits(
            scale_up=self.scale_up,
            network_adder=self.network_adder,
            reduction_bits=bits,
            idle_numbers=self.packets.traits.idle_numbers,
        )

    @property
    def effective_bits(self) -> float:
        """Effective bits of a mean over all nodes."""
        return self.unit.effective_bits(self.nodes)

    @property
    def wiring(self) -> Wiring:
        """Links of the packet fabric."""
        return self.packets.wiring

    @cached_property
    def views(self) -> tuple[OpticalReduction, ...]:  # type: ignore[override]
        """The fabric as each queue pair of a flow sees it."""
        return tuple(replace(self, packets=view) for view in self.packets.views)

    def paths(self, sources: np.ndarray, destinations: np.ndarray) -> np.ndarray:
        """Return the links from sources to other endpoints, shape [F, H], padded with `NO_LINK`."""
        return self.packets.paths(sources, destinations)

    def bill(self) -> dict[str, BillItem]:
        """Return the bill of materials: item -> count, power and price of each."""
        bill = dict(self.packets.bill())
        if self.nodes > 1:
            lanes = self.node_size * self.card_lanes
            bill["reduction lane"] = BillItem(
                count=self.nodes * lanes,
                w_each=self.unit.lane_w + self.unit.laser_w,
                usd_each=self.unit.lane_price_usd,
            )
            bill["reduction unit"] = BillItem(
                count=self.unit.units(self.nodes) * lanes,
                w_each=self.unit.unit_w,
                usd_each=self.unit.unit_price_usd,
            )
        return bill

    def transfer_energy_j(self, flows: Flows) -> float:
        """Return the dynamic energy of carrying all the flows once, modulators of the lanes included."""
        outside_bytes = flows.moved_bytes(self.scale_up.off_node(flows))
        symbols = outside_bytes * BITS_PER_BYTE / self.unit.bits_per_symbol
        return self.packets.transfer_energy_j(flows) + symbols * self.unit.modulator_j
