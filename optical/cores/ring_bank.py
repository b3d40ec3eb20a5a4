"""Microring weight banks, broadcast and weight: weights stay in rings, inputs stream past.

A core modulates one input on each wavelength and broadcasts them all to `outputs` banks. A bank is a bus with
a ring per wavelength, whose detuning moves that wavelength between two detectors; their difference is one
output.

References
----------
A. N. Tait, M. A. Nahmias, B. J. Shastri, P. R. Prucnal, "Broadcast and weight", J. Lightwave Technol. 32
(2014) 4029; A. N. Tait et al., "Neuromorphic photonic networks using silicon photonic weight banks", Sci.
Rep. 7 (2017) 7430; Lightening-Transformer (HPCA 2024), weight-bank baseline: path, two passes for signed
inputs, device values.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import ClassVar

from optical.cores.analog import (
    DEFAULT_MODULATOR,
    AnalogCore,
    ArrayShape,
    converter_parts,
    default_chip,
    lines_around,
    readout_parts,
    receiver_of,
    source_parts,
)
from optical.cores.core import Reload, streaming_events, tiled_loads
from optical.devices import (
    AbsorptionModulator,
    Comb,
    Converter,
    Events,
    Integrator,
    Modulator,
    Part,
    Per,
    Photodetector,
    RingModulator,
    Sampler,
    Tia,
    shipped,
)
from optical.devices.devices import RingRouter, bytes_of_bits
from optical.devices.limits import Light, quantiser_bits, quantiser_variance
from optical.devices.named_parts import named_parts_table
from optical.devices.programmable import (
    NEIGHBOURS,
    OWN_TERMS,
    RingBankLayout,
    WeightCrosstalk,
    WeightRing,
    least_drop,
    weight_crosstalk,
)
from optical.execution import AnalogSpec
from optical.noise.chip import CalibrationCost, Chip, posterior_variance
from optical.noise.link_budget import SIGN_PASSES, UNIFORM_MEAN_SQUARE, Element, IntensityBudget, elements_of
from simulator.errors import ParameterError
from simulator.operators import MatMul, Phase
from simulator.units import SPEED_OF_LIGHT_M_PER_S, to_si


@dataclass(frozen=True, kw_only=True)
class RingBank(AnalogCore):
    """One core: banks of microrings that share their inputs.

    Notes
    -----
    Wavelength-dependent loss of splitters and detectors scales a column of weights, which the rings' settings
    take in; it leaves no term here.
    """

    holds_weights: ClassVar[bool] = True
    """One operand stays in the rings."""
    counts: ClassVar[tuple[str, ...]] = ("outputs", "wavelengths")
    """Fields that must be whole numbers from 1."""
    name: str = "ring_bank"
    """Name shown in tables and messages."""
    outputs: int
    """Banks, one per output."""
    wavelengths: int
    """Inputs, one wavelength and one ring per bank each."""
    comb: Comb = shipped(Comb, "micro_comb")
    """Source of the lines."""
    router: RingRouter = shipped(RingRouter, "ring_router")
    """Two per modulator: drop the line, and add it again."""
    signed_fields: ClassVar[bool] = False
    """Inputs are powers."""
    modulator: Modulator | RingModulator | AbsorptionModulator = shipped(
        Modulator, DEFAULT_MODULATOR, named_parts_table
    )
    """One per wavelength."""
    ring: WeightRing = shipped(WeightRing, "weight_ring")
    """One per weight."""
    detector: Photodetector = shipped(Photodetector, "photodetector")
    """Two per bank."""
    tia: Tia = shipped(Tia, "tia")
    """Amplifier of an output."""
    readout: Integrator | Sampler = shipped(Integrator, "integrator")
    """Readout behind it, which takes the difference of both symbols of a signed input."""
    tuning_dac: Converter = shipped(Converter, "tuning_dac")
    """Driver of a heater, one per ring."""
    layout: RingBankLayout = shipped(RingBankLayout, "ring_bank_layout")
    """Density of the banks."""
    chip: Chip = field(default_factory=default_chip)
    """Spread of like parts, and the outputs that share noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wavelengths > self.ring.channels:
            msg = (
                f"RingBank '{self.name}': wavelengths ({self.wavelengths}) must be at most "
                f"{self.ring.channels}, what a finesse of {self.ring.finesse:.1f} carries; take fewer, or "
                "rings of a higher quality factor"
            )
            raise ParameterError(msg)
        self.router.check_lines(f"RingBank '{self.name}'", self.wavelengths, self.line_spacing_hz)

    @property
    def modulators(self) -> int:
        """Modulators and DACs, one per wavelength."""
        return self.wavelengths

    @property
    def receivers(self) -> int:
        """Banks, each with an amplifier and an ADC."""
        return self.outputs

    @property
    def sample_rate_hz(self) -> float:
        """Conversions per second of one output, one for each signed input vector."""
        return self.symbol_rate_hz / self.passes

    @property
    def analog_length(self) -> int:
        """Products in one ADC sample."""
        return self.wavelengths

    @property
    def rings(self) -> int:
        """Weights of one core."""
        return self.outputs * self.wavelengths

    @property
    def channel_spacing(self) -> float:
        """Distance of the wavelengths in linewidths, spread evenly over a free spectral range."""
        return self.ring.finesse / self.wavelengths

    @property
    def line_spacing_hz(self) -> float:
        """Distance of the wavelengths."""
        return self.ring.free_spectral_range_hz / self.wavelengths

    @property
    def lines_hz(self) -> tuple[float, ...]:
        """Optical frequencies of the comb's lines."""
        middle_m = SPEED_OF_LIGHT_M_PER_S / self.ring.carrier_hz
        return lines_around(middle_m, self.wavelengths, self.line_spacing_hz)

    @property
    def passes(self) -> int:
        """Symbols that one vector takes: its positive inputs, then its negative ones."""
        return SIGN_PASSES

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second of one core, loaded and fully used."""
        return self.rings * self.sample_rate_hz

    @property
    def light(self) -> Light:
        """Light that limits are held against; a router takes its whole line from the comb."""
        return self.lit(ring_w=self.coupled_line_w(self.wavelengths), comb=self.comb)

    @property
    def path(self) -> tuple[Element, ...]:
        """Losses from source to detector, for the wavelength and bank that lose most."""
        losses = (
            ("coupling", 1, self.laser.coupling_loss_db),
            (self.router.name, 2, self.router.insertion_loss_db),
            ("passed routers", 1, self.router.passing_loss_db(self.wavelengths, self.line_spacing_hz)),
            (self.modulator.name, 1, self.modulator_loss_db),
            (self.branch.name, math.ceil(math.log2(self.outputs)), self.branch.insertion_loss_db),
            ("passed ring", self.wavelengths - 1, self.ring.pass_loss_db),
            ("weight ring", 1, self.ring.drop_loss_db),
            *self.routing(
                feed_m=self.layout.feed_length_m,
                array_m=(self.outputs + self.wavelengths) * self.layout.ring_spacing_m,
                lines=self.wavelengths,
                guides=self.outputs,
            ).losses,
        )
        return elements_of(losses)

    @cached_property
    def link(self) -> IntensityBudget:
        """Budget of the light, whether or not the link closes.

        Notes
        -----
        Modulator, detector and the weight ring (half its linewidth at baseband) shape a symbol.
        """
        source = self.source(self.wavelengths)
        baseband_hz = self.ring.linewidth_hz / 2.0
        return IntensityBudget(
            elements=self.path,
            split=self.outputs,
            launch_w=source.launch_w,
            receiver=receiver_of(self, self.detector, self.tia, self.readout, source, ring_hz=(baseband_hz,)),
            mixing=self.router.mixing(self.wavelengths, self.line_spacing_hz, one_bus=True),
            weight_swing=1.0 - least_drop(self.channel_spacing),
            length=self.wavelengths,
        )

    @cached_property
    def crosstalk(self) -> WeightCrosstalk:
        """Crosstalk of a bank's rings, before correction."""
        return weight_crosstalk(self.wavelengths, self.channel_spacing)

    def weight_errors(self) -> dict[str, float]:
        """Return the variance of a weight by cause, weights in [-1, 1], fixed while they are loaded."""
        return self.setting_errors() | self.crosstalk_errors()

    def setting_errors(self) -> dict[str, float]:
        """Return the variance of a weight by errors that are drawn anew at each load."""
        return {
            "lock": quantiser_variance(self.ring.setting_bits),
            "driver": quantiser_variance(self.tuning_dac.enob_bits),
        }

    def crosstalk_errors(self) -> dict[str, float]:
        """Return the variance of a weight by its neighbours, the same whenever the same weights are loaded.

        Notes
        -----
        The correction is a curve of each weight's own (to degree 7) and the inverse of a measured matrix of
        straight lines in the others' weights; it removes errors of that form, spectral tails, heat and
        interference at fixed phases alike, but for the noise of measuring it (`posterior_variance`): each
        coefficient is read `averages` times. Errors that depend on two weights together stay. Lines alone,
        without the own curve, would leave fifteen times as much.
        """
        heat = self.crosstalk.slope_square * self.layout.heater_square(self.wavelengths)
        others = self.wavelengths - 1
        return {
            "ring crosstalk": self._residual(self.crosstalk.corrected, others + OWN_TERMS)
            + self.crosstalk.left,
            "thermal crosstalk": self._residual(heat, NEIGHBOURS),
        }

    def _residual(self, variance: float, couplings: int) -> float:
        """Return the variance of crosstalk through a number of couplings that remains after calibration."""
        reading = self.reading_variance * UNIFORM_MEAN_SQUARE
        each = variance / couplings if couplings else 0.0
        return couplings * posterior_variance(each, reading, self.chip.readings)

    @property
    def array(self) -> ArrayShape:
        """Parts and lines: a vector at a time, a modulator per wavelength, a line for all banks."""
        return ArrayShape(rows=1, columns=self.outputs, length=self.wavelengths, holds_weights=True)

    @property
    def calibration(self) -> CalibrationCost:
        """Every ring moved in turn, in all banks at once, and every line read; gains come with it."""
        averages, settings = self.chip.readings, self.wavelengths if self.chip.readings else 0
        readings = settings * self.wavelengths * averages
        return self.calibrated(readings=readings, settings=settings, settling_s=self.ring.settling_s)

    @property
    def weight_bits(self) -> float:
        """Effective bits of one weight, of a signal that spans [-1, 1]: a quantiser's with the same error."""
        return quantiser_bits(math.fsum(self.weight_errors().values()))

    @property
    def weight_noise(self) -> Mapping[str, float]:
        """Noise over signal of a full-scale sample by wrong weights."""
        return {"the rings' weights": math.fsum(self.weight_errors().values()) / self.analog_length}

    @property
    def repeated_variance(self) -> float:
        """Error of a loaded weight by crosstalk, the same whenever the same weights are loaded."""
        return math.fsum(self.crosstalk_errors().values())

    def output_record(self, phase: Phase) -> AnalogSpec:
        """Return the record of one output by itself.

        Notes
        -----
        The record has one encoding error for both operands. Only the input's DAC errs anew each symbol, so
        each gets half of its error, which is right where both operands are spread alike.
        """
        record = super().output_record(phase)
        return dataclasses.replace(
            record,
            dac_bits=min(self.dac.nominal_bits, self.tuning_dac.nominal_bits),
            encoding_variance=0.5 * record.encoding_variance,
            load_variance=math.fsum(self.setting_errors().values()),
        )

    @cached_property
    def reload(self) -> Reload:
        """Time and energy of loading one core: all heaters settle at once.

        Notes
        -----
        Their power is static, so a load costs the drivers' conversions.
        """
        return Reload(time_s=self.ring.settling_s, energy_j=self.load_energy_j(self.rings))

    def events(self, operator: MatMul, cores: int) -> Events:
        """Return the events (uses of parts) of one product on a number of cores.

        Notes
        -----
        Forward loads W, the gradient of the input its transpose, the gradient of the weight one of two
        operands that changed since: each product pays its own loads.
        """
        return streaming_events(
            tiled_loads(operator, inputs=self.wavelengths, outputs=self.outputs, cores=cores),
            word_bytes=self.word_bytes,
            passes=self.passes,
            loaded_bytes=bytes_of_bits(self.tuning_dac.nominal_bits),
        )

    def parts(self) -> tuple[Part, ...]:
        """Return the parts list of one core: every ring is heated and locked."""
        biased_w = 0.5 * self.detector.bias_w(self.link.pair_w)
        return (
            *source_parts(self, lines=self.wavelengths, comb=self.comb),
            *converter_parts(self),
            Part("reload", self.tuning_dac, 1, self.tuning_dac.conversion_j, Per.VALUE),
            Part(
                "ring tuning", self.router, 2.0 * self.wavelengths, self.router.tuning_w, within="modulator"
            ),
            Part("ring tuning", self.layout, self.rings, self.ring.tuning_w, within="weight rings"),
            Part("broadcast", self.branch, self.outputs),
            Part("photodetector", self.detector, 2.0 * self.outputs, biased_w),
            Part("tia", self.tia, self.outputs, self.tia.power_w),
            *readout_parts(self, self.readout),
            Part("tuning dac", self.tuning_dac, self.rings),
        )


@cache
def default_ring_bank() -> RingBank:
    """Return 32 banks of 16 rings at 5 GHz, of today's parts; the lines' power, 12 mW, is our choice."""
    return RingBank(
        outputs=32,
        wavelengths=16,
        symbol_rate_hz=to_si("symbol_rate_hz", 5.0, "GHz"),
        laser_power_w=to_si("laser_power_w", 12.0, "mW"),
    )
