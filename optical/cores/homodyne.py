"""Time-multiplexed homodyne: both operands change every symbol, and a detector sums their products over time.

A core is an array of rows x columns integrating homodyne detectors. One operand's element is sent to a whole
row, the other's to a whole column, in each symbol; after `integration_symbols` of them each detector is read
once. Operand converters are shared by a whole line, and the readout by a whole integration. `LitCore` is one
whose laser is sized for a number of photons per multiplication, with all its noise or with shot noise alone.

References
----------
R. Hamerly et al., "Large-scale optical neural networks based on photoelectric multiplication", Phys. Rev. X 9
(2019) 021032: the scheme, and the standard quantum limit of its outputs.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import ClassVar

from optical.cores.analog import (
    DEFAULT_CROSSING,
    DEFAULT_MODULATOR,
    AnalogCore,
    ArrayShape,
    converter_parts,
    crossing_losses,
    crossing_mixing,
    default_interfering_chip,
    integrating_receiver_of,
    readout_parts,
    source_parts,
    with_counted_photons,
)
from optical.devices import (
    Crossing,
    Events,
    IntegratingReceiver,
    Integrator,
    Laser,
    Modulator,
    Part,
    PassiveElement,
    Per,
    PhaseShifter,
    PulsedLaser,
    shipped,
)
from optical.devices.devices import CrossbarLayout, InterferometerArms, MeasuredElement
from optical.devices.named_parts import named_parts_table
from optical.devices.programmable import QUARTER_TURN_RAD, CapacitiveShifter, CarrierShifter, Heater
from optical.execution import AnalogSpec
from optical.execution.spec import Shot
from optical.noise.chip import Chip
from optical.noise.link_budget import UNIFORM_MEAN_SQUARE, Element, LightBudget, LinkBudget, elements_of
from simulator.errors import LinkError, ParameterError, check_positive
from simulator.operators import MatMul, Phase
from simulator.units import ELEMENTARY_CHARGE_C, ratio_from_db, to_si

SETTLED = 1e-12
"""Relative error of photons per multiplication at which the laser's power has converged."""
BRIGHTEST_W = 1e6
"""Highest laser power that is tried."""
MOST_ROUNDS = 200
"""Iterations after which the waveguides are taken to absorb any further light."""


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
    """Both operands change every symbol, and nothing is ever loaded."""
    counts: ClassVar[tuple[str, ...]] = ("rows", "columns", "integration_symbols", "outputs_per_adc")
    """Fields that must be whole numbers from 1."""
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
    """Law from which shot noise is drawn."""
    laser: Laser | PulsedLaser = shipped(Laser, "laser")
    """Source of all light; pulses, for which slow modulators have settled, take more power."""
    modulator: Modulator = shipped(Modulator, DEFAULT_MODULATOR, named_parts_table)
    """One per row and per column."""
    phase_shifter: PhaseShifter | Heater | CapacitiveShifter | CarrierShifter = shipped(
        PhaseShifter, "phase_shifter"
    )
    """Sets the phase between the arms of a node."""
    coupler: PassiveElement = shipped(PassiveElement, "directional_coupler")
    """50:50 coupler of a node."""
    crossing: Crossing | MeasuredElement = shipped(Crossing, DEFAULT_CROSSING, named_parts_table)
    """Waveguide crossing, one per node."""
    arms: InterferometerArms = shipped(InterferometerArms, "interferometer_arms")
    """Stability of the phase between the two operands."""
    receiver: IntegratingReceiver = shipped(IntegratingReceiver, "homodyne_receiver")
    """One per node."""
    readout: Integrator | None = None
    """Gate before its capacitor, if there is one."""
    layout: CrossbarLayout = shipped(CrossbarLayout, "crossbar_layout")
    """Density of the array."""
    chip: Chip = field(default_factory=lambda: default_interfering_chip(on_lines=False))
    """Spread of like parts, and the outputs that share noise."""

    @property
    def modulators(self) -> int:
        """Modulators and DACs of the core."""
        return self.rows + self.columns

    @property
    def receivers(self) -> int:
        """Detectors."""
        return self.rows * self.columns

    @property
    def readout_symbols(self) -> float:
        """Symbols in the time in which every detector is read once."""
        return self.outputs_per_adc * self.symbol_rate_hz / self.adc.rate_hz

    @property
    def sample_rate_hz(self) -> float:
        """Readings per second of one detector, with every sum as long as it may be."""
        return self.symbol_rate_hz / max(self.integration_symbols, self.readout_symbols)

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second of one core, all nodes busy."""
        return self.receivers * self.symbol_rate_hz

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
        """Losses from source to detector, for the operand and node that lose most.

        Notes
        -----
        Light is split between the operands, among an operand's modulators, and behind each of them among the
        nodes of its line.
        """
        side = max(self.rows, self.columns)
        splits = 1 + math.ceil(math.log2(self.rows)) + math.ceil(math.log2(self.columns))
        losses = (
            ("coupling", 1, self.laser.coupling_loss_db),
            (self.modulator.name, 1, self.modulator_loss_db),
            (self.branch.name, splits, self.branch.insertion_loss_db),
            *crossing_losses(self.crossing, side - 1),
            (self.phase_shifter.name, 1, self.phase_shifter.loss_db(QUARTER_TURN_RAD)),
            (self.coupler.name, 1, self.coupler.insertion_loss_db),
            *self.routing(
                feed_m=self.layout.feed_length_m,
                array_m=side * math.sqrt(self.node_area_m2),
                guides=2.0 * side,
            ).losses,
        )
        return elements_of(losses)

    @cached_property
    def link(self) -> LinkBudget:
        """Budget of the light, whether or not the link closes.

        Notes
        -----
        The detector integrates across symbols, so only the modulators' edges reach across them: those that
        the source lights and the gate lets through.
        """
        source, symbols = self.source(), self.integration_symbols
        return LinkBudget(
            elements=self.path,
            split=2.0 * self.receivers,
            launch_w=source.launch_w,
            receiver=integrating_receiver_of(self, self.receiver, self.readout, source, symbols),
            mixing=crossing_mixing(self.crossing, self.rows, self.columns),
            wavelengths=1,
            symbols=symbols,
        )

    @cached_property
    def budget(self) -> LightBudget:
        """Budget of the light of a link that closes and does not overflow its capacitors."""
        if self.typical_charge_c > self.receiver.full_charge_c:
            most = math.floor(self.integration_symbols * self.receiver.full_charge_c / self.typical_charge_c)
            msg = (
                f"the receivers of '{self.name}' overflow: {self.integration_symbols} products put more "
                f"on a capacitor than the {self.receiver.full_charge_c:.3g} C that it holds; "
                f"lower integration_symbols (about {max(1, most)} fit) or the laser's power"
            )
            raise LinkError(msg)
        return super().budget

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
        window = 1.0 if self.readout is None else self.readout.window
        leak_a = math.sqrt(ratio_from_db(-self.receiver.cmrr_db)) * received_a * UNIFORM_MEAN_SQUARE * n
        return (self.adc_range_sigma * rms_a + leak_a) * window / self.symbol_rate_hz

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

    def output_record(self, phase: Phase) -> AnalogSpec:
        """Return the record of one output by itself.

        Notes
        -----
        The phase between the arms scales each product by its cosine, on average exp(-s^2/2).
        """
        drift = self.arms.phase_variance(self.integration_symbols / self.symbol_rate_hz)
        gain = math.exp(-0.5 * (self.phase_shifter.phase_error_rad**2 + drift))
        return dataclasses.replace(super().output_record(phase), product_gain=gain)

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return the errors of products of a phase, with counted photons if `shot` says so."""
        return with_counted_photons(super().analog(phase), self.link, self.shot)

    @property
    def array(self) -> ArrayShape:
        """Parts and light: one modulator a row and a column, one laser for all outputs."""
        return ArrayShape(rows=self.rows, columns=self.columns, length=1, lit_rows=self.rows)

    def events(self, operator: MatMul, cores: int) -> Events:
        """Return the events (uses of parts) of one product on a number of cores.

        Parameters
        ----------
        operator : MatMul
            The product; output tiles spread over the cores.
        cores : int
            Number of cores.

        Notes
        -----
        The sum over K is cut into ceil(K / integration_symbols) integrations; a short sum waits for the ADCs.
        An operand's element is sent once for every block of the other side, a reuse of `columns` or `rows`.
        """
        row_blocks, column_blocks = math.ceil(operator.m / self.rows), math.ceil(operator.n / self.columns)
        readings = math.ceil(operator.k / self.integration_symbols)
        rounds = math.ceil(operator.batch * row_blocks * column_blocks / cores)
        symbols = operator.batch * operator.k * (operator.m * column_blocks + operator.n * row_blocks)
        return Events(
            cycles=rounds * max(operator.k, readings * self.readout_symbols),
            symbols=symbols,
            samples=operator.batch * operator.m * operator.n * readings,
            operand_bytes=symbols * self.word_bytes,
        )

    def parts(self) -> tuple[Part, ...]:
        """Return the parts list of one core."""
        adcs, fill = math.ceil(self.receivers / self.outputs_per_adc), self.layout.node_fill
        biased_w = self.receiver.bias_w(self.link.pair_w)
        held_w = self.phase_shifter.hold_w(QUARTER_TURN_RAD)
        passive, pair = (self.branch, self.coupler, self.crossing), self.receiver
        return (
            *source_parts(self),
            *converter_parts(self, adcs=adcs),
            Part("integrator", pair, 1, pair.sample_j(self.adc.rate_hz), Per.SAMPLE),
            *(() if self.readout is None else readout_parts(self, self.readout)),
            Part("photodetector", pair, self.receivers, biased_w, within="node", fill=fill),
            Part("phase hold", self.phase_shifter, self.receivers, held_w, within="node", fill=fill),
            *(Part("node", device, self.receivers, fill=fill) for device in passive),
            Part("node", self.branch, 2.0 * self.receivers),
        )


@cache
def default_homodyne() -> Homodyne:
    """Return a 32 x 32 core at 10 GHz that reads its detectors every 256 symbols, of today's parts.

    Notes
    -----
    Its size is that of least energy at the precision of fp8 whose light one packaged laser gives
    (`heliograph core parts`). The laser's power, 60 mW, is our choice: noise of evenly spread operands is
    then within a factor of two of the ADC's.
    """
    return Homodyne(
        rows=32,
        columns=32,
        symbol_rate_hz=to_si("symbol_rate_hz", 10.0, "GHz"),
        integration_symbols=256,
        outputs_per_adc=64,
        laser_power_w=to_si("laser_power_w", 60.0, "mW"),
    )


def lit_for(core: Homodyne, photons_per_mac: float, *, mean_square: float) -> Homodyne:
    """Return a core with the laser power that gives a number of detected photons per multiplication.

    Parameters
    ----------
    core : Homodyne
        A core; its present laser power does not matter.
    photons_per_mac : float
        Photons of both operands that a detector turns into electrons per product, dimensionless.
    mean_square : float
        Mean of both operands' mean squares, full scale being 1, in (0, 1].

    Raises
    ------
    ParameterError
        If a number is out of range.
    LinkError
        If its waveguides absorb the light that would be needed.

    Notes
    -----
    Photons are proportional to power but for the nonlinear absorption of waveguides, hence the iteration. The
    wavelength does not enter, as photons are counted where they are detected, as electrons.
    """
    for name, value in (("photons_per_mac", photons_per_mac), ("mean_square", mean_square)):
        if not 0.0 < value < math.inf:
            msg = f"{name} must be positive and finite; got {value:g}"
            raise ParameterError(msg)
    for _ in range(MOST_ROUNDS):
        photons = core.photoelectrons_per_mac(mean_square)
        if math.isclose(photons, photons_per_mac, rel_tol=SETTLED):
            return core
        power_w = core.laser_power_w * photons_per_mac / photons if photons else math.inf
        if power_w > BRIGHTEST_W:
            break
        core = dataclasses.replace(core, laser_power_w=power_w)
    msg = f"'{core.name}' guides no light that gives {photons_per_mac:g} photons; its waveguides absorb it"
    raise LinkError(msg)


def shot_limited(core: Homodyne) -> AnalogSpec:
    """Return the errors of a core's products if shot noise is its only noise.

    Notes
    -----
    Amplifier, dark current, intensity noise, leakage, interference, crosstalk, phase errors and both
    converters are taken to be ideal. Path losses and quantum efficiency stay; they are the road from the
    laser to the detected photons and do not matter once those are given. With equal norms the variance is
    the standard quantum limit of Hamerly et al., Phys. Rev. X 9, 021032 (2019).
    """
    link = dataclasses.replace(
        core.link,
        mixing=0.0,
        receiver=dataclasses.replace(
            core.link.receiver,
            noise_a_per_sqrt_hz=0.0,
            dark_current_a=0.0,
            rin_db_per_hz=-math.inf,
            leakage=0.0,
            gain=1.0,
            interference=0.0,
        ),
    )
    return dataclasses.replace(
        AnalogSpec.ideal(), analog_length=link.analog_length, **dataclasses.asdict(link.noise)
    )


@dataclass(frozen=True, kw_only=True)
class LitCore:
    """Homodyne core with the sizing of its laser, from which each product's specification follows."""

    core: Homodyne
    """Core that multiplies."""
    photons_per_mac: float
    """Detected photons per multiplication, dimensionless."""
    only_shot_noise: bool
    """Whether all noise but shot noise is left out."""

    def __post_init__(self) -> None:
        check_positive(self, "photons_per_mac")

    def spec(self, mean_square: float) -> AnalogSpec:
        """Return the errors of a product whose operands have a mean square, with the laser sized for it.

        Parameters
        ----------
        mean_square : float
            Mean of both operands' mean squares, full scale being 1.

        Raises
        ------
        LinkError
            If all noise counts and the light is too little, or more than the receivers hold.
        """
        core = lit_for(self.core, self.photons_per_mac, mean_square=mean_square)
        return shot_limited(core) if self.only_shot_noise else core.analog(Phase.FORWARD)
