"""The coherent dot-product crossbar: both operands change every symbol, so nothing is ever reprogrammed.

A core is an array of rows x columns nodes. Each node adds the products of `wavelengths` pairs of operands
on one balanced detector, and a capacitor adds `temporal_accumulation` symbols before the ADC reads. Cores
form clusters: `broadcast` cores share the modulators of the second operand, and the photocurrents of
`summed` cores meet in one amplifier and ADC.

References
----------
Lightening-Transformer, HPCA 2024 (LT below): the array, the formulas of events, and most device values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import ClassVar

from optical.cores.analog_core import AnalogCore
from optical.cores.array_errors import (
    ArrayShape,
    bits_with_mismatch,
    counted,
    default_interfering_chip,
    mismatch_ratio,
    on_chip,
)
from optical.cores.core import NOTHING_RELOADED, Reload, Work, converted
from optical.devices.devices import (
    Adder,
    Comb,
    Converter,
    CrossbarLayout,
    Laser,
    Modulator,
    PassiveElement,
    PhaseShifter,
    Photodetector,
    RingRouter,
    Tia,
    Waveguide,
    bytes_of_bits,
    device_table,
)
from optical.devices.phase_shifters import QUARTER_TURN_RAD, CapacitiveShifter, CarrierShifter
from optical.devices.programmable import Heater
from optical.execution import AnalogSpec, Rounding, Shot
from optical.noise.amplifiers import amplifier_m2, amplifier_w, source_of
from optical.noise.chip import CalibrationCost, Chip, gain_calibration
from optical.noise.laser_power import NoiseRatio
from optical.noise.link_budget import Element, LinkBudget, elements_of, symbol_residue
from optical.noise.link_noise import link_noise_ratio
from simulator.amounts import Amount, ceiling
from simulator.checks import check_positive, check_range, check_whole
from simulator.operators import Phase, Products
from simulator.units import ratio_from_db, to_si

_GRADIENTS = (Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossbarEvents:
    """How often each part works during one product; of many products, arrays."""

    cycles: Amount
    """Symbols from first to last."""
    symbols: Amount
    """Operand symbols: one DAC conversion and one modulator setting each."""
    samples: Amount
    """Output samples: one ADC conversion and one addition each."""


@dataclass(frozen=True, kw_only=True)
class Crossbar(AnalogCore):
    """One core of the coherent crossbar, with its share of what a cluster has in common.

    Notes
    -----
    Power of a line divides by two for the operands, then by rows x columns (each operand is split to its
    modulators and then over the crossing lines), and no further where cores share: their sources feed it.
    """

    holds_weights: ClassVar[bool] = False
    """Both operands change every symbol ..."""
    reload: ClassVar[Reload] = NOTHING_RELOADED
    """... and nothing is ever loaded."""
    name: str = "crossbar"
    """Name shown in tables and messages."""
    rows: int
    """Nodes along the first operand."""
    columns: int
    """Nodes along the second operand."""
    wavelengths: int
    """Products that a node adds in one symbol."""
    temporal_accumulation: int
    """Symbols added on a capacitor before one conversion."""
    broadcast: int
    """Cores that share the modulators of the second operand."""
    summed: int
    """Cores whose photocurrents share an amplifier and an ADC."""
    shot: Shot = Shot.GAUSSIAN
    """How shot noise is drawn."""
    comb: Comb
    """Source of the lines."""
    modulator: Modulator
    """One per line of a row, and of a column."""
    router: RingRouter
    """Two per modulator: drop the line, and add it again."""
    phase_shifter: PhaseShifter | Heater | CapacitiveShifter | CarrierShifter
    """Quarter turn before the coupler of a node."""
    coupler: PassiveElement
    """50:50 coupler of a node."""
    crossing: PassiveElement
    """Waveguide crossing, one per node."""
    detector: Photodetector
    """Two per node."""
    tia: Tia
    """Amplifier of an output."""
    layout: CrossbarLayout
    """Density of the array."""
    chip: Chip = field(default_factory=lambda: default_interfering_chip(on_lines=True))
    """How unlike parts of a kind are, and which outputs fluctuate together."""

    def __post_init__(self) -> None:
        counts = ("rows", "columns", "wavelengths", "temporal_accumulation", "broadcast", "summed")
        check_range(self, *counts, low=1)
        check_whole(self, *counts)
        check_positive(self, "symbol_rate_hz", "laser_power_w", "adc_range_sigma")

    @property
    def cluster(self) -> int:
        """Cores that share modulators or converters; an accelerator holds whole clusters."""
        return self.broadcast * self.summed

    @property
    def operand_bytes_per_symbol(self) -> float:
        """Bytes that one core fetches from the buffer in one symbol."""
        return self.modulators * bytes_of_bits(self.dac.nominal_bits)

    @property
    def effective_bits(self) -> float:
        """Effective bits of a full-scale sample with both converters and unlike parts."""
        return bits_with_mismatch(self, self.budget.system_bits(self.dac, self.adc))

    @property
    def modulators(self) -> float:
        """Modulators and DACs per core, the shared ones in proportion."""
        return self.wavelengths * (self.rows + self.columns / self.broadcast)

    @property
    def outputs(self) -> float:
        """Amplifiers, ADCs and adders per core, in proportion."""
        return self.rows * self.columns / self.summed

    @property
    def sample_rate_hz(self) -> float:
        """Conversions per second of one output."""
        return self.symbol_rate_hz / self.temporal_accumulation

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second of one core, all nodes busy."""
        return self.rows * self.columns * self.wavelengths * self.symbol_rate_hz

    @property
    def analog_length(self) -> int:
        """Products in one ADC sample."""
        return self.wavelengths * self.temporal_accumulation * self.summed

    @property
    def node_area_m2(self) -> float:
        """Area of one node with its spacing."""
        parts = (self.branch, self.phase_shifter, self.coupler, self.crossing)
        return math.fsum((2.0 * self.detector.area_m2, *(x.area_m2 for x in parts))) / self.layout.node_fill

    @property
    def path(self) -> tuple[Element, ...]:
        """Losses from source to detector, for the operand and node that lose most.

        Notes
        -----
        LT counts modulator, two rings, splitter tree of a side, and splitter, phase shifter and coupler of a
        node. Added here: coupling into the chip, the splitters of `broadcast`, crossings and waveguide.
        """
        side = max(self.rows, self.columns)
        splits = math.ceil(math.log2(side)) + math.ceil(math.log2(self.broadcast)) + 1
        length_m = self.layout.feed_length_m + side * math.sqrt(self.node_area_m2)
        found = (
            ("coupling", 1, self.laser.coupling_loss_db),
            (self.router.name, 2, self.router.insertion_loss_db),
            (self.modulator.name, 1, self.modulator.insertion_loss_db),
            (self.branch.name, splits, self.branch.insertion_loss_db),
            (self.crossing.name, side - 1, self.crossing.insertion_loss_db),
            (self.phase_shifter.name, 1, self.phase_shifter.loss_db(QUARTER_TURN_RAD)),
            (self.coupler.name, 1, self.coupler.insertion_loss_db),
            (self.waveguide.name, 1, self.waveguide.loss_db_per_m * length_m),
        )
        return elements_of(found)

    @cached_property
    def link(self) -> LinkBudget:
        """Budget of the light, whether or not the link closes."""
        bandwidths_hz = (self.modulator.bandwidth_hz, self.detector.bandwidth_hz, *self.tia.poles_hz)
        source = source_of(self, self.wavelengths)
        return LinkBudget(
            elements=self.path,
            split=2.0 * self.rows * self.columns,
            launch_w=source.launch_w,
            leakage=ratio_from_db(-self.modulator.extinction_ratio_db),
            residue=symbol_residue(bandwidths_hz, self.symbol_rate_hz),
            bandwidth_hz=self.symbol_rate_hz / 2.0,
            responsivity_a_per_w=self.detector.responsivity_a_per_w,
            dark_current_a=self.detector.dark_current_a,
            cmrr_db=self.detector.cmrr_db,
            noise_a_per_sqrt_hz=self.tia.noise_a_per_sqrt_hz,
            rin_db_per_hz=source.rin_db_per_hz,
            wavelengths=self.wavelengths,
            pairs=self.summed,
            symbols=self.temporal_accumulation,
        )

    @cached_property
    def budget(self) -> LinkBudget:
        """Budget of the light of a link that closes.

        Raises
        ------
        LinkError
            If it does not.
        """
        return self.link.checked(self.name)

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample, whether or not the link closes: light and converters."""
        return link_noise_ratio(self.link, self.dac, self.adc).joined(mismatch_ratio(self))

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return what of the core reaches a product of a phase, all of it from budget and converters.

        Parameters
        ----------
        phase : Phase
            Both operands are dynamic in every phase, so only the rounding of gradient operands differs.

        Notes
        -----
        The DAC's effective bits fall short of its grid; the difference of the two noise powers, 4^-b / 3 in
        units of the full scale each, is the encoding error.
        """
        grid, effective = (4.0**-bits / 3.0 for bits in (self.dac.nominal_bits, self.dac.enob_bits))
        spec = AnalogSpec(
            dac_bits=self.dac.nominal_bits,
            adc_bits=self.adc.nominal_bits,
            adc_enob_bits=self.adc.enob_bits,
            adc_range_sigma=self.adc_range_sigma,
            analog_length=self.analog_length,
            thermal_variance=self.budget.thermal_variance,
            shot_variance=self.budget.shot_variance,
            rin_variance=self.budget.rin_variance,
            encoding_variance=effective - grid,
            product_gain=math.exp(-0.5 * self.phase_shifter.phase_error_rad**2),
            rounding=self.gradient_rounding if phase in _GRADIENTS else Rounding.NEAREST,
        )
        return counted(on_chip(spec, self, rin_ratio=self.budget.rin_ratio), self.budget, self.shot)

    @property
    def array(self) -> ArrayShape:
        """Parts and lines; every core of a cluster has modulators of its own for the first operand."""
        lines, rows = self.wavelengths, self.rows * self.broadcast
        length = lines * self.summed
        return ArrayShape(rows=rows, columns=self.columns, length=length, lit_rows=self.rows, lines=lines)

    @property
    def calibration(self) -> CalibrationCost:
        """Gains of all modulators of the cluster, one after the other."""
        return gain_calibration(self, self.cluster * self.modulators)

    def events(self, operator: Products, cores: int) -> CrossbarEvents:
        """Return how often the parts of so many cores work for one product.

        Parameters
        ----------
        operator : MatMul or MatMuls
            The product, or many; independent products of a batch spread over the clusters.
        cores : int
            Whole clusters of cores.

        Notes
        -----
        With i_M = ceil(M/rows), i_N = ceil(N/columns), i_K = ceil(K/wavelengths): a cluster does `broadcast`
        row blocks against one column block at a time; its `summed` cores share the sum; the second operand is
        sent once. LT (section on energy) divides the product of the three by the cores; here each division is
        rounded up.
        """
        row_blocks = ceiling(ceiling(operator.m / self.rows) / self.broadcast)
        column_blocks = ceiling(operator.n / self.columns)
        depth = ceiling(ceiling(operator.k / self.wavelengths) / self.summed)
        rounds = ceiling(operator.batch * row_blocks * column_blocks / (cores // self.cluster))
        first = operator.m * operator.k * column_blocks
        second = row_blocks * operator.k * operator.n
        conversions = ceiling(depth / self.temporal_accumulation)
        return CrossbarEvents(
            cycles=rounds * depth,
            symbols=operator.batch * (first + second),
            samples=operator.batch * operator.m * operator.n * conversions,
        )

    def work(self, operator: Products, cores: int) -> Work:
        """Return time and energy of one product on so many cores, in whole clusters."""
        events, word_bytes = self.events(operator, cores), bytes_of_bits(self.dac.nominal_bits)
        return Work(
            light_s=events.cycles / self.symbol_rate_hz,
            energy_j=converted(self, events.symbols, events.samples),
            operand_bytes=events.symbols * word_bytes,
        )

    def static_parts_w(self) -> dict[str, float]:
        """Return what one core draws whether or not it works, by part.

        Notes
        -----
        The laser cannot be switched within a step, rings are held on resonance, receivers stay biased.
        """
        light_w = self.wavelengths * self.laser_power_w
        return {
            "laser": light_w / (self.comb.conversion_efficiency * self.laser.wall_plug_efficiency),
            "ring tuning": 2.0 * self.modulators * self.router.tuning_w,
            "photodetector": 2.0 * self.rows * self.columns * self.detector.bias_w,
            "tia": self.outputs * self.tia.power_w,
            "phase hold": self.rows * self.columns * self.phase_shifter.hold_w(QUARTER_TURN_RAD),
        } | amplifier_w(self)

    def full_load_parts_w(self) -> dict[str, float]:
        """Return the dynamic power of one core by part when every symbol carries new operands."""
        return converted(self, self.modulators * self.symbol_rate_hz, self.outputs * self.sample_rate_hz)

    def photonic_area_m2(self) -> dict[str, float]:
        """Return the area of one core's photonic parts."""
        side_tree = (self.rows + self.columns) * self.branch.area_m2
        routers = 2.0 * self.modulators * self.router.area_m2
        return {
            "laser": self.laser.area_m2,
            "micro-comb": self.comb.area_m2,
            "modulator": self.modulators * self.modulator.area_m2 + routers,
            "node": self.rows * self.columns * self.node_area_m2 + side_tree * max(self.rows, self.columns),
        } | amplifier_m2(self)

    def electronic_area_m2(self) -> dict[str, float]:
        """Return the area of one core's electronic parts."""
        adcs = self.outputs * self.adc.interleaved(self.sample_rate_hz)
        return {
            "dac": self.modulators * self.dac.interleaved(self.symbol_rate_hz) * self.dac.area_m2,
            "adc": adcs * self.adc.area_m2,
            "tia": self.outputs * self.tia.area_m2,
            "adder": self.outputs * self.adder.area_m2,
        }


@cache
def default_crossbar() -> Crossbar:
    """Return LT's 12 x 12 core with 12 wavelengths at 5 GHz, in clusters of four by two, with our light.

    Notes
    -----
    The laser's power, 15 mW per line, is our choice: for evenly spread operands the receiver then adds
    about as much noise as the ADC does, so that neither is paid for in vain (a test holds this to a factor
    of two).
    """
    table = device_table()
    return Crossbar(
        name="crossbar",
        rows=12,
        columns=12,
        wavelengths=12,
        symbol_rate_hz=to_si("symbol_rate_hz", 5.0, "GHz"),
        temporal_accumulation=3,
        broadcast=4,
        summed=2,
        laser_power_w=to_si("laser_power_w", 15.0, "mW"),
        laser=table.build(Laser, "laser"),
        comb=table.build(Comb, "micro_comb"),
        modulator=table.build(Modulator, "mzm"),
        router=table.build(RingRouter, "ring_router"),
        branch=table.build(PassiveElement, "y_branch"),
        phase_shifter=table.build(PhaseShifter, "phase_shifter"),
        coupler=table.build(PassiveElement, "directional_coupler"),
        crossing=table.build(PassiveElement, "crossing"),
        waveguide=table.build(Waveguide, "si_waveguide"),
        detector=table.build(Photodetector, "photodetector"),
        tia=table.build(Tia, "tia"),
        dac=table.build(Converter, "dac"),
        adc=table.build(Converter, "adc"),
        adder=table.build(Adder, "adder"),
        layout=table.build(CrossbarLayout, "crossbar_layout"),
    )
