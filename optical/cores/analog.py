"""Base of the cores that read sums of light through converters (`AnalogCore`).

A core states only its own: its fields, the path of its light (`link`), its parts list (`parts`), the uses
of parts by a product (`events`), and the errors of one output by itself (`output_record`). Power, area,
energy and calibration follow here, and so do the errors that outputs share (`AnalogCore.analog`), by the
sizes in an `ArrayShape`: unlike parts of the chip, intensity noise of a line, errors of a converter.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar

from optical.cores.core import NOTHING_RELOADED, PARTIAL_SUM_BYTES, Reload, Work, work_of
from optical.devices import (
    FROM_NULL,
    THROUGH_NULL,
    AbsorptionModulator,
    Comb,
    Converter,
    Driver,
    Events,
    IntegratingReceiver,
    Integrator,
    Laser,
    Modulator,
    Part,
    PassiveElement,
    Per,
    Photodetector,
    PulsedLaser,
    RingModulator,
    Sampler,
    Tia,
    Waveguide,
    device_table,
    full_load_w,
    shipped,
    static_w,
)
from optical.devices.devices import Adder, Soa, bytes_of_bits
from optical.devices.limits import (
    TELECOM_WAVELENGTH_M,
    Light,
    noise_of_bits,
    quantiser_bits,
    quantiser_variance,
)
from optical.devices.named_parts import named_parts_table
from optical.devices.parts import energy_j
from optical.devices.waveguides import Routing
from optical.execution import AnalogSpec, Rounding
from optical.execution.spec import Shot
from optical.noise.chip import (
    CalibrationCost,
    Chip,
    ChipErrors,
    CommonEncoding,
    CommonNoise,
    EncodingNoise,
    LaserNoise,
    LineGrid,
    Mismatch,
    NodeCoupler,
)
from optical.noise.link_budget import LightBudget, LinkBudget, NoiseRatio, Source, absorbed_db, check_closes
from optical.noise.receiver import Receiver, Symbols
from simulator.errors import ParameterError, check_choices, check_positive, check_range, check_whole
from simulator.operators import MatMul, Phase
from simulator.units import SPEED_OF_LIGHT_M_PER_S, db_from_ratio, ratio_from_db


@cache
def default_chip() -> Chip:
    """Return the chip of today's parts; unless its fields say otherwise, calibrated without noise."""
    return device_table().build(Chip, "chip")


@cache
def default_interfering_chip(*, on_lines: bool) -> Chip:
    """Return the chip of a core whose operands interfere, on one wavelength or on the lines of a comb."""
    table = device_table()
    grid = table.build(LineGrid, "comb_lines") if on_lines else None
    return dataclasses.replace(default_chip(), coupler=table.build(NodeCoupler, "node_coupler"), grid=grid)


@dataclass(frozen=True, kw_only=True)
class ArrayShape:
    """Sizes of an array after which its parts, and its lines of light, repeat.

    Beyond `rows`, `columns` and `length` the same modulators, nodes and receivers serve further elements.
    """

    rows: int
    """Rows of the first operand with modulators of their own; for held weights, vectors that pass at once."""
    columns: int
    """Columns of the second operand; outputs of held weights."""
    length: int
    """Products of a sum with modulators of their own."""
    holds_weights: bool = False
    """Whether the second operand is loaded."""
    lit_rows: int = 1
    """Rows, or vectors, that light of one line reaches in one symbol."""
    lines: int = 1
    """Wavelengths that interfere in one coupler."""
    lit_length: int = 1
    """Products of a sum that light of one line reaches in one symbol."""

    def __post_init__(self) -> None:
        check_range(self, "rows", "columns", "length", "lit_rows", "lit_length", "lines", low=1)


def with_counted_photons(spec: AnalogSpec, link: LinkBudget, shot: Shot) -> AnalogSpec:
    """Return the record of a coherent dot product with shot noise drawn by the law of `shot`.

    Notes
    -----
    Counted photons make shot noise alone. `AnalogSpec.shot_variance` also holds the intensity noise that a
    pair fails to reject, in proportion to a^2 + b^2 as well. It moves to the encoding error, which has the
    same form, as the part that each output draws for itself.
    """
    if shot is Shot.GAUSSIAN:
        return spec
    photon_variance = link.shot_current_a2 / link.product_current_a**2
    intensity_variance, shared = spec.shot_variance - photon_variance, spec.encoding
    return dataclasses.replace(
        spec,
        shot=shot,
        shot_variance=photon_variance,
        encoding_variance=spec.encoding_variance + intensity_variance,
        encoding=None if shared is None else dataclasses.replace(shared, own_variance=intensity_variance),
    )


def mismatch_ratio(spec: AnalogSpec) -> dict[str, float]:
    """Return noise over signal of a full-scale sample by differences between a chip's parts, if any.

    Notes
    -----
    Gains of a sum's positions are independent; the receiver's is common to them. Differences between cells or
    between loads are in the core's `weight_noise`. Uneven couplers add nothing where all operands are at full
    scale, as a^2 = b^2.
    """
    chip = spec.chip
    if chip is None:
        return {}
    modulators = chip.first_gain * (1.0 if chip.holds_weights else 2.0)
    return {"unlike parts": chip.output_gain + modulators / min(chip.length, spec.analog_length)}


DEFAULT_MODULATOR = "mzm_tfln_5mm"
DRIVER = "driver_sige_2025"
DEFAULT_FEED = "waveguide_sin_2014"
DEFAULT_CROSSING = "crossing_mmi_2020"
"""Default modulator, driver, feed and crossing, the same in all cores: of the described
parts whose losses are published those that take least energy in the default core at the precision of fp8
(`heliograph core parts`)."""
GRADIENTS = (Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)
"""Phases whose products are gradients."""


def usual_driver() -> Driver:
    """Return the default driver of a modulator."""
    return named_parts_table().build(Driver, DRIVER)


class Array(ABC):
    """Properties that each analog core must state.

    They stand in a base of their own, so that `AnalogCore`, a dataclass, makes no fields of them.
    """

    name: str
    """Name shown in tables and messages."""
    holds_weights: ClassVar[bool]
    """Whether one operand is loaded while the other streams."""
    signed_fields: ClassVar[bool] = True
    """Whether modulators set fields of both signs, driven through null, or powers."""
    modulator: Modulator | RingModulator | AbsorptionModulator
    """Modulator that sets one operand symbol at a time."""
    chip: Chip
    """Spread of like parts, and the outputs that share noise."""

    @property
    @abstractmethod
    def modulators(self) -> float:
        """Modulators of one core, each with a DAC; shared ones in proportion."""

    @property
    @abstractmethod
    def receivers(self) -> float:
        """Outputs of one core that are read apart; shared ones in proportion."""

    @property
    @abstractmethod
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second of one core, loaded and fully used."""

    @property
    @abstractmethod
    def analog_length(self) -> int:
        """Products in one ADC sample."""

    @property
    @abstractmethod
    def link(self) -> LightBudget:
        """Budget of the light, whether or not the link closes."""

    @property
    @abstractmethod
    def array(self) -> ArrayShape:
        """Parts and lines that outputs share."""

    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """Return the parts list of one core."""

    @abstractmethod
    def events(self, operator: MatMul, cores: int) -> Events:
        """Return the events (uses of parts) of one product on whole clusters."""


@dataclass(frozen=True, kw_only=True)
class AnalogCore(Array):
    """Base of the analog cores: the fields that they share; costs and errors follow from their arrays."""

    counts: ClassVar[tuple[str, ...]] = ()
    """Fields that must be whole numbers from 1."""
    symbol_rate_hz: float
    """Symbols per second."""
    laser_power_w: float
    """Optical power at the source, of each comb line where there is a comb; a design choice."""
    adc_range_sigma: float = 4.0
    """Half of the ADC's range over the rms of its samples, dimensionless; a design choice."""
    chip_seed: int = 1
    """Seed of the chip, from which its fixed errors are drawn; a choice."""
    gradient_rounding: Rounding = Rounding.STOCHASTIC
    """Rounding of gradient operands in the DAC driver; stochastic rounding keeps their mean."""
    amplifier: Soa | None = None
    """Amplifier of the light behind the coupling into the chip; none in today's cores."""
    laser: Laser = shipped(Laser, "laser")
    """Source of all light."""
    branch: PassiveElement = shipped(PassiveElement, "y_branch")
    """One stage of splitting."""
    waveguide: Waveguide = shipped(Waveguide, "si_waveguide")
    """Routing within the array."""
    feed: Waveguide = shipped(Waveguide, DEFAULT_FEED, named_parts_table)
    """Waveguide of all light from the coupling to the array, and of operands from core to core."""
    dac: Converter = shipped(Converter, "dac")
    """Operand converter, one per modulator."""
    driver: Driver | None = None
    """Amplifier between a DAC and its modulator: `DRIVER` unless another is named, and None beside a
    modulator that states the energy of its symbols whole."""
    adc: Converter = shipped(Converter, "adc")
    """Output converter."""
    adder: Adder = shipped(Adder, "adder")
    """Digital accumulator of an output."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_range(self, *self.counts, low=1)
        check_whole(self, *self.counts)
        check_positive(self, "symbol_rate_hz", "laser_power_w", "adc_range_sigma")
        object.__setattr__(self, "driver", self._driver_beside())
        self.modulator.drive_loss_db(self.driver, self.half_waves)

    def _driver_beside(self) -> Driver | None:
        """Return the driver: the named or the usual one; None beside a modulator that has no use for it."""
        if self.modulator.driven:
            return self.driver or usual_driver()
        if self.driver is not None and self.driver != usual_driver():
            msg = (
                f"'{self.name}': modulator '{self.modulator.name}' states the energy of its symbols whole, "
                "and a driver beside it would do nothing; take a modulator that states its drive first, "
                "e.g. core.modulator=mzm_si_pin_2014"
            )
            raise ParameterError(msg)
        return None

    @property
    def cluster(self) -> int:
        """Cores that share parts; an accelerator holds whole clusters."""
        return 1

    @property
    def reload(self) -> Reload:
        """Time, energy and wear of loading one core: zero for a dynamic core."""
        return NOTHING_RELOADED

    @property
    def passes(self) -> int:
        """Symbols that one vector of signed operands takes; 1 where modulators set fields of both signs."""
        return 1

    @property
    def lines_hz(self) -> tuple[float, ...]:
        """Optical frequencies of its light: one line where there is no comb."""
        return lines_around(TELECOM_WAVELENGTH_M, 1, 0.0)

    @property
    def poles_hz(self) -> tuple[float, ...]:
        """Bandwidths of passive parts that light passes, as far as they were measured and are finite."""
        parts = (getattr(self, item.name) for item in dataclasses.fields(self))
        passive = (part for part in parts if isinstance(part, PassiveElement))
        return tuple(part.pole_hz for part in passive if math.isfinite(part.pole_hz))

    @property
    def sample_rate_hz(self) -> float:
        """Conversions per second of one output."""
        return self.symbol_rate_hz

    @property
    def full_load(self) -> Events:
        """Events per second on one core with all parts at work."""
        return Events(
            symbols=self.modulators * self.symbol_rate_hz, samples=self.receivers * self.sample_rate_hz
        )

    @property
    def half_waves(self) -> int:
        """Half waves over which a modulator is driven for the full range of an operand."""
        return THROUGH_NULL if self.signed_fields else FROM_NULL

    @property
    def modulator_loss_db(self) -> float:
        """Loss of a modulator at full scale of an operand, with the swing that its driver lacks."""
        return self.modulator.insertion_loss_db + self.modulator.drive_loss_db(self.driver, self.half_waves)

    @property
    def encoding(self) -> float:
        """Variance of an operand as it stands in the light, full scale from -1 to 1.

        Notes
        -----
        The DAC's error at this symbol rate on the grid that the modulator's curve leaves
        (`Modulator.grid_error`), and what predistortion leaves of the driver's distortion.
        """
        grid = self.modulator.grid_error(self.driver, self.half_waves)
        return grid * self.dac.error_at(self.symbol_rate_hz) + self.modulator.distortion(self.driver)

    @property
    def encoder(self) -> Converter:
        """DAC with the effective bits that its operands have in the light (`encoding`)."""
        bits = min(quantiser_bits(self.encoding), self.dac.nominal_bits)
        return dataclasses.replace(self.dac, enob_bits=bits)

    @property
    def word_bytes(self) -> float:
        """Bytes of an operand as it is converted."""
        return bytes_of_bits(self.dac.nominal_bits)

    @property
    def operand_bytes_per_symbol(self) -> float:
        """Bytes between converters and buffer in one symbol at full load.

        Operands that are read and, where weights are held, partial sums that are read and written.
        """
        partial_bytes = 2.0 * PARTIAL_SUM_BYTES * self.receivers if self.holds_weights else 0.0
        return (self.modulators * self.word_bytes + partial_bytes) / self.passes

    @cached_property
    def used_parts(self) -> tuple[Part, ...]:
        """Parts that events use: the parts list without static parts."""
        return tuple(part for part in self.parts() if part.per is not Per.CORE)

    def work(self, operator: MatMul, cores: int) -> Work:
        """Return time, energy and wear of one product on cores in whole clusters."""
        return work_of(
            self.events(operator, cores),
            self.used_parts,
            symbol_rate_hz=self.symbol_rate_hz,
            reload_s=self.reload.time_s,
        )

    def load_energy_j(self, values: float) -> float:
        """Return the energy of loading one core with a number of values, without that of preparing them."""
        return float(math.fsum(energy_j(self.used_parts, Events(values=values, loads=1)).values()))

    @cached_property
    def calibration(self) -> CalibrationCost:
        """Cost of learning the gains of all modulators of a cluster, one after the other."""
        measured = self.chip.mismatch is Mismatch.CALIBRATED
        readings = math.ceil(self.cluster * self.modulators) * self.chip.averages
        return self.calibrated(readings=readings if measured else 0)

    def calibrated(
        self, *, readings: float, settings: float = 0.0, settling_s: float = 0.0
    ) -> CalibrationCost:
        """Return the cost of a calibration, during which a core draws its full power and multiplies nothing.

        Parameters
        ----------
        readings : float
            Symbols that are read, one after the other, all receivers at once.
        settings : float
            Slow settings, one after the other.
        settling_s : float
            Time of a setting.
        """
        time_s, parts = settings * settling_s + readings / self.symbol_rate_hz, self.parts()
        drawn_w = (*static_w(parts).values(), *full_load_w(parts, self.full_load).values())
        energy_j = math.fsum(drawn_w) * time_s
        return CalibrationCost(settings=settings, readings=readings, time_s=time_s, energy_j=energy_j)

    @cached_property
    def budget(self) -> LightBudget:
        """Budget of the light, checked: the signal of a full-scale sample is at least its noise.

        Raises
        ------
        LinkError
            If it is not.
        """
        check_closes(self.name, self.link.noise_ratio, self.link.elements, self.link.split)
        return self.link

    @property
    def light(self) -> Light:
        """Light that limits are held against: no light on rings, no comb."""
        return self.lit()

    def lit(self, *, ring_w: float = 0.0, comb: Comb | None = None) -> Light:
        """Return the light that limits are held against.

        Parameters
        ----------
        ring_w : float
            Power of a line at a ring on resonance with it.
        comb : Comb, optional
            The comb, if there is one.
        """
        lines, link = len(self.lines_hz), self.link
        return Light(
            lines=lines,
            line_w=self.laser_power_w,
            coupled_w=self.coupled_line_w(lines),
            feed=self.feed.name,
            absorbed_db=absorbed_db(link.elements),
            ring_w=ring_w,
            detector_a=link.receiver.responsivity_a_per_w * link.pair_w,
            comb_line_w=None if comb is None else comb.line_w,
        )

    def source(self, lines: int = 1) -> Source:
        """Return the light of the source, behind an amplifier of all lines if there is one."""
        power_w, rin_db_per_hz = self.laser_power_w, self.laser.rin_db_per_hz
        if self.amplifier is None:
            return Source(launch_w=power_w, rin_db_per_hz=rin_db_per_hz)
        line_w = power_w * ratio_from_db(-self.laser.coupling_loss_db)
        gain = self.amplifier.gain(lines * line_w)
        noise = ratio_from_db(rin_db_per_hz) + self.amplifier.added_rin_per_hz(line_w, gain)
        return Source(launch_w=power_w * gain, rin_db_per_hz=db_from_ratio(noise))

    def coupled_line_w(self, lines: int = 1) -> float:
        """Return the power of one line behind the coupling into the chip, amplified if it is."""
        return self.source(lines).launch_w * ratio_from_db(-self.laser.coupling_loss_db)

    def routing(
        self, *, feed_m: float, array_m: float, lines: int = 1, guides: float, routes: int = 0
    ) -> Routing:
        """Return the waveguides of a core with light of its power in them, as `Routing` describes them."""
        return Routing(
            feed=self.feed,
            feed_m=feed_m,
            array=self.waveguide,
            array_m=array_m,
            light_w=lines * self.coupled_line_w(lines),
            lines=lines,
            guides=guides,
            routes=routes,
        )

    @property
    def weight_noise(self) -> Mapping[str, float]:
        """Noise over signal of a full-scale sample by weights that are held wrong: none of a dynamic core."""
        return {}

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample, closed link or not: light, converters, weights, chip."""
        operands = 1 if self.holds_weights else 2  # that pass a DAC in every symbol
        converters = {
            "the ADC": noise_of_bits(self.adc.enob_bits),
            "the DAC": operands * noise_of_bits(self.encoder.enob_bits) / self.analog_length,
        }
        unlike = self.chip.mismatch is not Mismatch.NONE
        chip = mismatch_ratio(self.analog(Phase.FORWARD)) if unlike else {}
        return self.link.noise_ratio.joined({**converters, **self.weight_noise, **chip})

    @property
    def effective_bits(self) -> float:
        """Effective bits of a full-scale sample of a link that closes, with converters, weights and chip."""
        self.budget  # noqa: B018 - a link that does not close has no bits
        return self.noise_ratio.effective_bits

    @property
    def reading_variance(self) -> float:
        """Variance of reading one full-scale product with all others dark, relative to it, ADC included."""
        return self.budget.variance_of(1) + quantiser_variance(self.adc.enob_bits)

    @property
    def repeated_variance(self) -> float:
        """Error of a loaded element that chip and loaded operand settle together, in full scales squared."""
        return 0.0

    @property
    def cell_gain(self) -> float:
        """Variance of the gain of a weight's cell, fixed per chip."""
        return 0.0

    def output_record(self, phase: Phase) -> AnalogSpec:
        """Return the record of one output by itself: light and converters, all noise drawn for it alone.

        Parameters
        ----------
        phase : Phase
            Gradient operands may be rounded stochastically.

        Notes
        -----
        Operands stand in the light with fewer effective bits than the DAC's grid has; the difference of the
        two errors is the encoding error.
        """
        grid, effective = map(quantiser_variance, (self.dac.nominal_bits, self.encoder.enob_bits))
        return AnalogSpec(
            **dataclasses.asdict(self.budget.noise),
            dac_bits=self.dac.nominal_bits,
            adc_bits=self.adc.nominal_bits,
            adc_enob_bits=self.adc.enob_bits,
            adc_range_sigma=self.adc_range_sigma,
            analog_length=self.analog_length,
            encoding_variance=effective - grid,
            rounding=self.gradient_rounding if phase in GRADIENTS else Rounding.NEAREST,
        )

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return the errors of products of a phase: those of one output, and those that outputs share.

        Notes
        -----
        A gain is measured with one product at full scale, the same for modulators and receivers; each
        modulator is taken to be read by one receiver, though all receivers of its row could read it. Where
        weights are held, only the streamed operand has a converter with a new error in every symbol; the
        other's share of `encoding_variance` is independent for each output.
        """
        spec, chip, array = self.output_record(phase), self.chip, self.array
        reading = self.reading_variance
        modulator = chip.gain_variance(chip.modulator_gain, reading)
        errors = ChipErrors(
            seed=self.chip_seed,
            rows=array.rows,
            columns=array.columns,
            length=array.length,
            holds_weights=array.holds_weights,
            first_gain=modulator,
            second_gain=self.cell_gain if array.holds_weights else modulator + self.cell_gain,
            output_gain=chip.gain_variance(chip.receiver_gain, reading),
            imbalance=chip.node_imbalance(reading),
            edge_imbalance=chip.edge_imbalance(array.lines),
            lines=array.lines,
            repeated_variance=self.repeated_variance,
        )
        encoding = CommonEncoding(
            rows=1 if array.holds_weights else array.rows,
            columns=array.columns,
            holds_weights=array.holds_weights,
        )
        spec = dataclasses.replace(
            spec,
            chip=None if errors.is_empty else errors,
            encoding=encoding if chip.encoding_noise is EncodingNoise.COMMON else None,
        )
        rin_ratio = self.budget.receiver.rin_ratio
        if chip.laser_noise is LaserNoise.INDEPENDENT or rin_ratio == 0.0:
            return spec
        common = CommonNoise(
            variance=rin_ratio,
            rows=array.lit_rows,
            columns=array.columns,
            length=array.lit_length,
            holds_weights=array.holds_weights,
        )
        return dataclasses.replace(spec, rin_variance=max(0.0, spec.rin_variance - rin_ratio), common=common)


def lines_around(middle_m: float, count: int, spacing_hz: float) -> tuple[float, ...]:
    """Return the frequencies of `count` lines around a wavelength, ascending, Hz."""
    middle_hz = SPEED_OF_LIGHT_M_PER_S / middle_m
    spacing_hz = spacing_hz if math.isfinite(spacing_hz) else 0.0
    return tuple(middle_hz + (place - 0.5 * (count - 1)) * spacing_hz for place in range(count))


def crossing_losses(crossing: PassiveElement, count: int) -> tuple[tuple[str, int, float], ...]:
    """Return the losses of an operand at a number of crossings: name, count and decibels of each element."""
    passed = (crossing.name, count, crossing.insertion_loss_db)
    layers = ("way to the other layer and back", 1, crossing.layer_loss_db)
    return (passed, layers) if crossing.layer_loss_db else (passed,)


def crossing_mixing(crossing: PassiveElement, rows: int, columns: int) -> float:
    """Return the variance of a product by light that leaks at crossings, per unit of (a b)^2.

    Parameters
    ----------
    crossing : PassiveElement
        Where the waveguides of two operands cross.
    rows, columns : int
        Nodes that an operand's waveguide passes each way.

    Notes
    -----
    Both operands are light of one laser, so fields add. At each crossing that row i passes, the share x of a
    column's power joins its field at a fixed phase, which is random from crossing to crossing, and goes on to
    the nodes behind: node (i, j) reads a_i b_j + sqrt(x) sum over j' < j of b_j' b_j cos(phase), and the same
    of its column. That is x/2 (j - 1) + x/2 (i - 1) of a product's square, half of the crossings on average
    over nodes. Power tapped from a waveguide along its way makes leaks early on it weaker and late ones
    stronger, which lowers the average by 4 % (64 nodes) to 12 % (12) and is left out. So is light that leaks
    twice, x/2 of this for each node of a side.
    """
    return 0.5 * crossing.leak * 0.5 * ((rows - 1) + (columns - 1))


def receiver_of(
    core: AnalogCore,
    detector: Photodetector,
    tia: Tia,
    readout: Integrator | Sampler,
    source: Source,
    *,
    symbols: int = 1,
    ring_hz: tuple[float, ...] = (),
    pairs: int = 1,
    pair_load: float = 0.0,
) -> Receiver:
    """Return the receiver of a core's outputs.

    Parameters
    ----------
    core : AnalogCore
        Its modulator and rate shape the symbols.
    detector : Photodetector
        Each of a pair.
    tia : Tia
        Their amplifier.
    readout : Integrator or Sampler
        Readout of the amplifier.
    source : Source
        The light.
    symbols : int
        Symbols added in one sample.
    ring_hz : tuple of float
        Bandwidths of rings between modulator and detector.
    pairs : int
        Detector pairs on one amplifier.
    pair_load : float
        Capacitance that a further pair adds, over that of the amplifier with the first.

    Notes
    -----
    An amplifier made anew for a larger capacitance keeps its bandwidth by a smaller feedback resistor and
    larger transistors: its noise, as power, grows with the capacitance (E. Sackinger, "Broadband Circuits for
    Optical Fiber Communication", 2005, chapter on transimpedance amplifiers, optimum device size; recalled).
    """
    symbol = Symbols(
        rate_hz=core.symbol_rate_hz,
        symbols=symbols,
        operands=1 if core.holds_weights else 2,
        modulator_hz=(core.modulator.bandwidth_hz,),
        ring_hz=(*ring_hz, *core.poles_hz),
        detector_hz=(detector.bandwidth_hz,),
        amplifier_hz=(tia.bandwidth_hz,),
        readout=readout,
    )
    return Receiver.of(
        symbol,
        detector,
        noise_a_per_sqrt_hz=tia.noise_a_per_sqrt_hz * math.sqrt(1.0 + pair_load * (pairs - 1)),
        rin_db_per_hz=source.rin_db_per_hz,
        leakage=ratio_from_db(-core.modulator.extinction_ratio_db),
        pairs=pairs,
    )


def integrating_receiver_of(
    core: AnalogCore, pair: IntegratingReceiver, gate: Integrator | None, source: Source, symbols: int
) -> Receiver:
    """Return the receiver of outputs that integrate several symbols between two readings.

    Parameters
    ----------
    core : AnalogCore
        Core, whose modulator, rate and laser pulses, if any, shape the symbols.
    pair : IntegratingReceiver
        Balanced pair with its capacitor, which need not follow the symbols.
    gate : Integrator, optional
        Gate of the current to the capacitor; None if it is always open.
    source : Source
        The light.
    symbols : int
        Symbols between two readings.
    """
    window = 1.0 if gate is None else gate.window
    pulsed = core.laser if isinstance(core.laser, PulsedLaser) else None
    symbol = Symbols(
        rate_hz=core.symbol_rate_hz,
        symbols=symbols,
        operands=2,
        modulator_hz=(core.modulator.bandwidth_hz,),
        ring_hz=core.poles_hz,
        readout=gate,
        pulse=pulsed.duty if pulsed else None,
        jitter_s=pulsed.jitter_s if pulsed else 0.0,
    )
    return Receiver.of(
        symbol,
        pair,
        noise_a_per_sqrt_hz=pair.noise_density_a_per_sqrt_hz(core.symbol_rate_hz, symbols, window),
        rin_db_per_hz=source.rin_db_per_hz,
        leakage=ratio_from_db(-core.modulator.extinction_ratio_db),
    )


def source_parts(core: AnalogCore, *, lines: int = 1, comb: Comb | None = None) -> tuple[Part, ...]:
    """Return the parts that make light: laser and, where there are any, comb and amplifier.

    Parameters
    ----------
    core : AnalogCore
        The core.
    lines : int
        Comb lines, each of `laser_power_w`.
    comb : Comb, optional
        The comb.
    """
    efficiency = 1.0 if comb is None else comb.conversion_efficiency
    pump_w = lines * core.laser_power_w / (efficiency * core.laser.wall_plug_efficiency)
    driver_w = core.laser.driver_w if isinstance(core.laser, PulsedLaser) else 0.0
    parts = [Part("laser", core.laser, 1, pump_w + driver_w)]
    if comb is not None:
        parts.append(Part("micro-comb", comb, 1))
    if core.amplifier is not None:
        parts.append(Part("amplifier", core.amplifier, 1, core.amplifier.power_w))
    return tuple(parts)


def readout_parts(core: AnalogCore, readout: Integrator | Sampler) -> tuple[Part, ...]:
    """Return the readouts, one for each output, and their uses by samples."""
    return (
        Part("readout", readout, 1, readout.sample_energy_j, Per.SAMPLE),
        Part("readout", readout, core.receivers),
    )


def converter_parts(core: AnalogCore, *, adcs: float | None = None) -> tuple[Part, ...]:
    """Return modulators and converters, and their uses by symbols and samples.

    Parameters
    ----------
    core : AnalogCore
        Core; converters slower than its symbols are interleaved.
    adcs : float, optional
        Output converters, an adder with each; None for one, or several interleaved ones, at every output.
    """
    dacs = core.modulators * core.dac.interleaved(core.symbol_rate_hz)
    adders = core.receivers if adcs is None else adcs
    adcs = core.receivers * core.adc.interleaved(core.sample_rate_hz) if adcs is None else adcs
    drive_j = core.modulator.symbol_j(core.driver, core.symbol_rate_hz, core.half_waves)
    hold = "ring tuning" if isinstance(core.modulator, RingModulator) else "modulator bias"
    return (
        Part("modulator", core.modulator, 1, drive_j, Per.SYMBOL),
        Part("dac", core.dac, 1, core.dac.conversion_j, Per.SYMBOL),
        Part("adc", core.adc, 1, core.adc.conversion_j, Per.SAMPLE),
        Part("adder", core.adder, 1, core.adder.energy_j, Per.SAMPLE),
        Part(hold, core.modulator, core.modulators, core.modulator.tuning_w, within="modulator"),
        *(() if core.driver is None else (Part("driver", core.driver, core.modulators),)),
        Part("dac", core.dac, dacs),
        Part("adc", core.adc, adcs),
        Part("adder", core.adder, adders),
    )
