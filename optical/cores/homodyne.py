"""Time-multiplexed homodyne: both operands arrive as pulses, and a detector sums their products over time.

A core is an array of rows x columns integrating homodyne detectors. One operand's element is sent to a whole
row, the other's to a whole column, in each symbol; after `integration_symbols` of them each detector is read
once. Operand converters are shared by a whole line, and the readout by a whole integration.

References
----------
R. Hamerly et al., "Large-scale optical neural networks based on photoelectric multiplication", Phys. Rev. X 9
(2019) 021032: the scheme, and the standard quantum limit of its outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import ClassVar

from optical.cores.analog_core import AnalogCore
from optical.cores.array_errors import ArrayShape, counted, default_interfering_chip, mismatch_ratio, on_chip
from optical.cores.core import NOTHING_RELOADED, Reload, Work, converted
from optical.devices.devices import (
    Adder,
    Converter,
    CrossbarLayout,
    Laser,
    Modulator,
    PassiveElement,
    PhaseShifter,
    Waveguide,
    bytes_of_bits,
    device_table,
)
from optical.devices.phase_shifters import QUARTER_TURN_RAD, CapacitiveShifter, CarrierShifter
from optical.devices.programmable import Heater
from optical.devices.receivers import IntegratingReceiver, InterferometerArms
from optical.execution import AnalogSpec, Rounding, Shot
from optical.noise.amplifiers import amplifier_m2, amplifier_w, source_of
from optical.noise.chip import CalibrationCost, Chip, gain_calibration
from optical.noise.detection import check_closes
from optical.noise.laser_power import NoiseRatio
from optical.noise.link_budget import UNIFORM_MEAN_SQUARE, Element, LinkBudget, elements_of, symbol_residue
from optical.noise.link_noise import link_noise_ratio
from simulator.amounts import AmountT, ceiling, larger
from simulator.checks import check_positive, check_range, check_whole
from simulator.errors import LinkError
from simulator.operators import Phase, Products
from simulator.units import ELEMENTARY_CHARGE_C, ratio_from_db, to_si

_GRADIENTS = (Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)


@dataclass(frozen=True, kw_only=True)
class Homodyne(AnalogCore):
    """One core of the time-multiplexed homodyne multiplier.

    Notes
    -----
    A detector does what the coherent dot product of the crossbar does with one wavelength, so the same
    `LinkBudget` holds, with the reset noise of the capacitor in place of an amplifier's. Two capacitors take
    turns: one is read while the other integrates.
    """

    holds_weights: ClassVar[bool] = False
    """Both operands change every symbol ..."""
    reload: ClassVar[Reload] = NOTHING_RELOADED
    """... and nothing is ever loaded."""
    cluster: ClassVar[int] = 1
    """Cores share nothing."""
    name: str = "homodyne"
    """Name shown in tables and messages."""
    rows: int
    """Elements of the first operand that are sent at once, one per row."""
    columns: int
    """Elements of the second operand, one per column."""
    integration_symbols: int
    """Products that a detector sums before it is read, at most."""
    outputs_per_adc: int
    """Detectors that are read by one ADC, one after the other."""
    shot: Shot = Shot.GAUSSIAN
    """How shot noise is drawn."""
    modulator: Modulator
    """One per row and per column."""
    phase_shifter: PhaseShifter | Heater | CapacitiveShifter | CarrierShifter
    """Sets the phase between the arms of a node."""
    coupler: PassiveElement
    """50:50 coupler of a node."""
    crossing: PassiveElement
    """Waveguide crossing, one per node."""
    arms: InterferometerArms
    """Stability of the phase between the two operands."""
    receiver: IntegratingReceiver
    """One per node."""
    layout: CrossbarLayout
    """Density of the array."""
    chip: Chip = field(default_factory=lambda: default_interfering_chip(on_lines=False))
    """How unlike parts of a kind are, and which outputs fluctuate together."""

    def __post_init__(self) -> None:
        counts = ("rows", "columns", "integration_symbols", "outputs_per_adc")
        check_range(self, *counts, low=1)
        check_whole(self, *counts)
        check_positive(self, "symbol_rate_hz", "laser_power_w", "adc_range_sigma")

    @property
    def modulators(self) -> int:
        """Modulators and DACs of the core."""
        return self.rows + self.columns

    @property
    def outputs(self) -> int:
        """Detectors."""
        return self.rows * self.columns

    @property
    def adcs(self) -> int:
        """Output converters, and adders with them."""
        return math.ceil(self.outputs / self.outputs_per_adc)

    @property
    def readout_symbols(self) -> float:
        """Symbols that pass while every detector is read once."""
        return self.outputs_per_adc * self.symbol_rate_hz / self.adc.rate_hz

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second of one core, all nodes busy."""
        return self.outputs * self.symbol_rate_hz

    @property
    def operand_bytes_per_symbol(self) -> float:
        """Bytes that one core fetches from the buffer in one symbol."""
        return self.modulators * bytes_of_bits(self.dac.nominal_bits)

    @property
    def analog_length(self) -> int:
        """Products in one ADC sample."""
        return self.integration_symbols

    @property
    def node_area_m2(self) -> float:
        """Area of one node with its spacing."""
        parts = (self.branch, self.phase_shifter, self.coupler, self.crossing, self.receiver)
        return math.fsum(part.area_m2 for part in parts) / self.layout.node_fill

    @property
    def path(self) -> tuple[Element, ...]:
        """Losses from source to detector, for the operand and node that lose most."""
        side, splits = max(self.rows, self.columns), math.ceil(math.log2(max(self.rows, self.columns))) + 1
        length_m = self.layout.feed_length_m + side * math.sqrt(self.node_area_m2)
        found = (
            ("coupling", 1, self.laser.coupling_loss_db),
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
        """Budget of the light, whether or not the link closes.

        Notes
        -----
        The detector integrates across symbols, so only the modulator leaves a residue of a symbol in the
        next.
        """
        source = source_of(self)
        density = self.receiver.noise_density_a_per_sqrt_hz(self.symbol_rate_hz, self.integration_symbols)
        return LinkBudget(
            elements=self.path,
            split=2.0 * self.outputs,
            launch_w=source.launch_w,
            leakage=ratio_from_db(-self.modulator.extinction_ratio_db),
            residue=symbol_residue((self.modulator.bandwidth_hz,), self.symbol_rate_hz),
            bandwidth_hz=self.symbol_rate_hz / 2.0,
            responsivity_a_per_w=self.receiver.responsivity_a_per_w,
            dark_current_a=self.receiver.dark_current_a,
            cmrr_db=self.receiver.cmrr_db,
            noise_a_per_sqrt_hz=density,
            rin_db_per_hz=source.rin_db_per_hz,
            wavelengths=1,
            pairs=1,
            symbols=self.integration_symbols,
        )

    @cached_property
    def budget(self) -> LinkBudget:
        """Budget of the light of a link that closes and does not overflow its capacitors.

        Raises
        ------
        LinkError
            If the light does not reach the detectors, or is more than they hold.
        """
        if self.typical_charge_c > self.receiver.full_charge_c:
            most = math.floor(self.integration_symbols * self.receiver.full_charge_c / self.typical_charge_c)
            msg = (
                f"the receivers of '{self.name}' overflow: {self.integration_symbols} products put up to "
                f"{self.typical_charge_c:.3g} C where {self.receiver.full_charge_c:.3g} C fit; "
                f"lower integration_symbols (about {max(1, most)} fit) or the laser's power"
            )
            raise LinkError(msg)
        ratio = link_noise_ratio(self.link, self.dac, self.adc)
        check_closes(self.name, ratio, self.link.elements, self.link.split)
        return self.link

    @property
    def typical_charge_c(self) -> float:
        """Charge that a capacitor must take for operands spread evenly: the ADC's range and the static leak.

        Notes
        -----
        The sum of n products has the rms I1 T sqrt(n)/3 (I1 a full-scale product's current, T a symbol); what
        the pair fails to reject adds k R P (a^2 + b^2) / 2 per product, all of one sign.
        """
        n, link = self.integration_symbols, self.link
        rms_a = link.product_current_a * math.sqrt(n) * UNIFORM_MEAN_SQUARE
        received_a = self.receiver.responsivity_a_per_w * link.received_w
        leak_a = math.sqrt(ratio_from_db(-self.receiver.cmrr_db)) * received_a * UNIFORM_MEAN_SQUARE * n
        return (self.adc_range_sigma * rms_a + leak_a) / self.symbol_rate_hz

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample, closed link or not: light, converters, unlike parts."""
        return link_noise_ratio(self.link, self.dac, self.adc).joined(mismatch_ratio(self))

    @property
    def effective_bits(self) -> float:
        """Effective bits of a full-scale sample with both converters."""
        self.budget  # noqa: B018 - a link that does not close has no bits
        return self.noise_ratio.effective_bits

    def photoelectrons_per_mac(self, mean_square: float = 1.0) -> float:
        """Return the photoelectrons of both operands that a detector collects per product.

        Parameters
        ----------
        mean_square : float
            Mean square of the operands; 1 is full scale.

        Notes
        -----
        Photons per multiply-accumulate at the detector, times its quantum efficiency. Hamerly's standard
        quantum limit, |a| |b| / sqrt(N n) rms for N products with n photons each, follows from shot noise of
        just these for equal norms of both operands; unequal ones cost (|a|^2 + |b|^2) / (2 |a| |b|) more.
        """
        received_a = self.receiver.responsivity_a_per_w * self.link.received_w
        return 2.0 * mean_square * received_a / self.symbol_rate_hz / ELEMENTARY_CHARGE_C

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return what of the core reaches a product of a phase, all of it from budget and converters.

        Parameters
        ----------
        phase : Phase
            Both operands are dynamic in every phase, so only the rounding of gradient operands differs.

        Notes
        -----
        The phase between the arms scales each product by its cosine, on average exp(-s^2/2).
        """
        grid, effective = (4.0**-bits / 3.0 for bits in (self.dac.nominal_bits, self.dac.enob_bits))
        drift = self.arms.phase_variance(self.integration_symbols / self.symbol_rate_hz)
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
            product_gain=math.exp(-0.5 * (self.phase_shifter.phase_error_rad**2 + drift)),
            rounding=self.gradient_rounding if phase in _GRADIENTS else Rounding.NEAREST,
        )
        return counted(on_chip(spec, self, rin_ratio=self.budget.rin_ratio), self.budget, self.shot)

    @property
    def array(self) -> ArrayShape:
        """Parts and light: one modulator a row and a column, one laser for all outputs."""
        return ArrayShape(rows=self.rows, columns=self.columns, length=1, lit_rows=self.rows)

    @property
    def calibration(self) -> CalibrationCost:
        """Gains of all modulators, one after the other."""
        return gain_calibration(self, self.modulators)

    def work(self, operator: Products, cores: int) -> Work:
        """Return time and energy of one product on so many cores.

        Parameters
        ----------
        operator : MatMul or MatMuls
            The product, or many; output tiles spread over the cores.
        cores : int
            How many.

        Notes
        -----
        The sum over K is cut into ceil(K / integration_symbols) integrations; a short sum waits for the ADCs.
        An operand's element is sent once for every block of the other side, a reuse of `columns` or `rows`.
        """
        row_blocks, column_blocks = ceiling(operator.m / self.rows), ceiling(operator.n / self.columns)
        readings = ceiling(operator.k / self.integration_symbols)
        rounds = ceiling(operator.batch * row_blocks * column_blocks / cores)
        symbols = operator.batch * operator.k * (operator.m * column_blocks + operator.n * row_blocks)
        samples = operator.batch * operator.m * operator.n * readings
        return Work(
            light_s=rounds * larger(operator.k, readings * self.readout_symbols) / self.symbol_rate_hz,
            energy_j=self._converted(symbols, samples),
            operand_bytes=symbols * bytes_of_bits(self.dac.nominal_bits),
        )

    def _converted(self, symbols: AmountT, samples: AmountT) -> dict[str, AmountT]:
        """Return what so many operand symbols and readings take, by part: energy, or power of rates."""
        return converted(self, symbols, samples) | {"integrator": samples * self.receiver.reset_energy_j}

    def static_parts_w(self) -> dict[str, float]:
        """Return what one core draws whether or not it works, by part."""
        return {
            "laser": self.laser_power_w / self.laser.wall_plug_efficiency,
            "photodetector": 2.0 * self.outputs * self.receiver.bias_w,
            "phase hold": self.outputs * self.phase_shifter.hold_w(QUARTER_TURN_RAD),
        } | amplifier_w(self)

    def full_load_parts_w(self) -> dict[str, float]:
        """Return the dynamic power of one core by part, with every sum as long as it may be."""
        readings_hz = self.outputs * self.symbol_rate_hz / max(self.integration_symbols, self.readout_symbols)
        return self._converted(self.modulators * self.symbol_rate_hz, readings_hz)

    def photonic_area_m2(self) -> dict[str, float]:
        """Return the area of one core's photonic parts."""
        return {
            "laser": self.laser.area_m2,
            "modulator": self.modulators * self.modulator.area_m2,
            "node": self.outputs * (self.node_area_m2 + 2.0 * self.branch.area_m2),
        } | amplifier_m2(self)

    def electronic_area_m2(self) -> dict[str, float]:
        """Return the area of one core's electronic parts."""
        return {
            "dac": self.modulators * self.dac.interleaved(self.symbol_rate_hz) * self.dac.area_m2,
            "adc": self.adcs * self.adc.area_m2,
            "adder": self.adcs * self.adder.area_m2,
        }


@cache
def default_homodyne() -> Homodyne:
    """Return a 64 x 64 core at 10 GHz that reads its detectors every 512 symbols, of today's parts.

    Notes
    -----
    The laser's power, 100 mW, is our choice: shot noise of evenly spread operands then about equals the
    ADC's.
    """
    table = device_table()
    return Homodyne(
        rows=64,
        columns=64,
        symbol_rate_hz=to_si("symbol_rate_hz", 10.0, "GHz"),
        integration_symbols=512,
        outputs_per_adc=64,
        laser_power_w=to_si("laser_power_w", 100.0, "mW"),
        laser=table.build(Laser, "laser"),
        modulator=table.build(Modulator, "mzm"),
        branch=table.build(PassiveElement, "y_branch"),
        phase_shifter=table.build(PhaseShifter, "phase_shifter"),
        coupler=table.build(PassiveElement, "directional_coupler"),
        crossing=table.build(PassiveElement, "crossing"),
        waveguide=table.build(Waveguide, "si_waveguide"),
        arms=table.build(InterferometerArms, "interferometer_arms"),
        receiver=table.build(IntegratingReceiver, "homodyne_receiver"),
        dac=table.build(Converter, "dac"),
        adc=table.build(Converter, "adc"),
        adder=table.build(Adder, "adder"),
        layout=table.build(CrossbarLayout, "crossbar_layout"),
    )
