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

import math
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import ClassVar

from optical.cores.analog_core import AnalogCore
from optical.cores.array_errors import ArrayShape, default_chip, mismatch_ratio, on_chip
from optical.cores.core import Reload, Work, converted, tiled_loads
from optical.devices.devices import (
    Adder,
    Comb,
    Converter,
    Laser,
    Modulator,
    PassiveElement,
    Photodetector,
    RingModulator,
    RingRouter,
    Tia,
    Waveguide,
    bytes_of_bits,
    device_table,
)
from optical.devices.programmable import NEIGHBOURS
from optical.devices.rings import RingBankLayout, WeightCrosstalk, WeightRing, least_drop, weight_crosstalk
from optical.execution import AnalogSpec, Rounding
from optical.noise.amplifiers import amplifier_m2, amplifier_w, source_of
from optical.noise.chip import CalibrationCost, Chip, calibration_cost, left_after
from optical.noise.detection import check_closes
from optical.noise.intensity_budget import SIGN_PASSES, IntensityBudget
from optical.noise.laser_power import NoiseRatio, converter_ratios
from optical.noise.link_budget import UNIFORM_MEAN_SQUARE, Element, elements_of, symbol_residue
from simulator.checks import check_positive, check_range, check_whole
from simulator.errors import ParameterError
from simulator.operators import Phase, Products
from simulator.units import ratio_from_db, to_si

_GRADIENTS = (Phase.GRAD_INPUT, Phase.GRAD_WEIGHT)


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
    cluster: ClassVar[int] = 1
    """Cores share nothing."""
    name: str = "ring_bank"
    """Name shown in tables and messages."""
    outputs: int
    """Banks, one per output."""
    wavelengths: int
    """Inputs, one wavelength and one ring per bank each."""
    comb: Comb
    """Source of the lines."""
    router: RingRouter
    """Two per modulator: drop the line, and add it again."""
    modulator: Modulator | RingModulator
    """One per wavelength."""
    ring: WeightRing
    """One per weight."""
    detector: Photodetector
    """Two per bank."""
    tia: Tia
    """Amplifier of an output, which integrates both symbols of a signed input."""
    tuning_dac: Converter
    """Driver of a heater, one per ring."""
    layout: RingBankLayout
    """Density of the banks."""
    chip: Chip = field(default_factory=default_chip)
    """How unlike parts of a kind are, and which outputs fluctuate together."""

    def __post_init__(self) -> None:
        check_range(self, "outputs", "wavelengths", low=1)
        check_whole(self, "outputs", "wavelengths")
        check_positive(self, "symbol_rate_hz", "laser_power_w", "adc_range_sigma")
        if self.wavelengths > self.ring.channels:
            msg = (
                f"RingBank '{self.name}': wavelengths ({self.wavelengths}) must be at most "
                f"{self.ring.channels}, what a finesse of {self.ring.finesse:.1f} carries; take fewer, or "
                "rings of a higher quality factor"
            )
            raise ParameterError(msg)

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
    def vectors_per_s(self) -> float:
        """Signed input vectors per second."""
        return self.symbol_rate_hz / SIGN_PASSES

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second of one core, loaded and fully used."""
        return self.rings * self.vectors_per_s

    @property
    def operand_bytes_per_symbol(self) -> float:
        """Bytes that one core fetches from the buffer in one symbol."""
        return self.wavelengths * bytes_of_bits(self.dac.nominal_bits) / SIGN_PASSES

    @property
    def reload(self) -> Reload:
        """Time and energy of loading one core: all heaters settle at once.

        Notes
        -----
        Their power is static (`static_parts_w`), so a load costs the drivers' conversions.
        """
        return Reload(time_s=self.ring.settling_s, energy_j=self.rings * self.tuning_dac.conversion_j)

    @property
    def path(self) -> tuple[Element, ...]:
        """Losses from source to detector, for the wavelength and bank that lose most."""
        length_m = self.layout.feed_length_m + (self.outputs + self.wavelengths) * self.layout.ring_spacing_m
        found = (
            ("coupling", 1, self.laser.coupling_loss_db),
            (self.router.name, 2, self.router.insertion_loss_db),
            (self.modulator.name, 1, self.modulator.insertion_loss_db),
            (self.branch.name, math.ceil(math.log2(self.outputs)), self.branch.insertion_loss_db),
            ("passed ring", self.wavelengths - 1, self.ring.pass_loss_db),
            ("weight ring", 1, self.ring.drop_loss_db),
            (self.waveguide.name, 1, self.waveguide.loss_db_per_m * length_m),
        )
        return elements_of(found)

    @cached_property
    def link(self) -> IntensityBudget:
        """Budget of the light, whether or not the link closes.

        Notes
        -----
        Modulator, detector and the weight ring (half its linewidth at baseband) shape a symbol.
        """
        bandwidths_hz = (
            self.modulator.bandwidth_hz,
            self.detector.bandwidth_hz,
            self.ring.linewidth_hz / 2.0,
            *self.tia.poles_hz,
        )
        source = source_of(self, self.wavelengths)
        return IntensityBudget(
            elements=self.path,
            split=self.outputs,
            launch_w=source.launch_w,
            weight_swing=1.0 - least_drop(self.channel_spacing),
            leakage=ratio_from_db(-self.modulator.extinction_ratio_db),
            residue=symbol_residue(bandwidths_hz, self.symbol_rate_hz),
            bandwidth_hz=self.symbol_rate_hz / 2.0,
            responsivity_a_per_w=self.detector.responsivity_a_per_w,
            dark_current_a=self.detector.dark_current_a,
            cmrr_db=self.detector.cmrr_db,
            noise_a_per_sqrt_hz=self.tia.noise_a_per_sqrt_hz,
            rin_db_per_hz=source.rin_db_per_hz,
            wavelengths=self.wavelengths,
        )

    @cached_property
    def budget(self) -> IntensityBudget:
        """Budget of the light of a link that closes.

        Raises
        ------
        LinkError
            If it does not.
        """
        check_closes(self.name, self.link.noise_ratio, self.link.elements, self.link.split)
        return self.link

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample, closed link or not: light, converters, wrong weights."""
        others = converter_ratios(self.dac, self.adc, self.analog_length)
        others["the rings' weights"] = math.fsum(self.weight_errors().values()) / self.analog_length
        others |= mismatch_ratio(self)
        return self.link.noise_ratio.joined(others)

    @property
    def effective_bits(self) -> float:
        """Effective bits of a full-scale sample of a link that closes, with converters and wrong weights."""
        self.budget  # noqa: B018 - a link that does not close has no bits
        return self.noise_ratio.effective_bits

    @cached_property
    def crosstalk(self) -> WeightCrosstalk:
        """What a bank's rings do to each other, before correction."""
        return weight_crosstalk(self.wavelengths, self.channel_spacing)

    def weight_errors(self) -> dict[str, float]:
        """Return the variance of a weight by cause, weights in [-1, 1], fixed while they are loaded.

        Notes
        -----
        The inverse of a measured crosstalk matrix takes out what is linear in the neighbours' weights
        (spectral tails, heat) and what interferes at fixed phases, but for the noise of measuring it
        (`left_after`): each coupling is the change of one weight by another, evenly spread, read `averages`
        times. What is not linear stays. Setting errors are those of a quantiser, 4^-bits / 3. Crosstalk is
        the same whenever the same weights are loaded; lock and driver err anew.
        """
        heat = self.crosstalk.slope_square * self.layout.heater_square(self.wavelengths)
        beside = self.wavelengths - 1
        return {
            "lock": 4.0**-self.ring.setting_bits / 3.0,
            "driver": 4.0**-self.tuning_dac.enob_bits / 3.0,
            "spectral crosstalk": self._left(self.crosstalk.linear, beside) + self.crosstalk.curved,
            "coherent crosstalk": self._left(self.crosstalk.coherent, beside),
            "thermal crosstalk": self._left(heat, NEIGHBOURS),
        }

    def _left(self, variance: float, couplings: int) -> float:
        """Return what is left of a crosstalk by so many couplings after they were measured."""
        light = self.budget.thermal_variance + 2.0 * self.budget.shot_variance + self.budget.rin_variance
        reading = (light + 4.0**-self.adc.enob_bits / 3.0) * UNIFORM_MEAN_SQUARE
        each = variance / couplings if couplings else 0.0
        return couplings * left_after(each, reading, self.chip.readings)

    @property
    def array(self) -> ArrayShape:
        """Parts and lines: a vector at a time, a modulator per wavelength, a line for all banks."""
        return ArrayShape(rows=1, columns=self.outputs, length=self.wavelengths, holds_weights=True)

    @property
    def calibration(self) -> CalibrationCost:
        """Every ring moved in turn, in all banks at once, and every line read; gains come with it."""
        averages, settings = self.chip.readings, self.wavelengths if self.chip.readings else 0
        readings = settings * self.wavelengths * averages
        return calibration_cost(self, readings=readings, settings=settings, settling_s=self.ring.settling_s)

    @property
    def weight_bits(self) -> float:
        """Effective bits of one weight, of a signal that spans [-1, 1]: a quantiser's with the same error."""
        return -0.5 * math.log2(3.0 * math.fsum(self.weight_errors().values()))

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return what of the core reaches a product of a phase, all of it from devices.

        Parameters
        ----------
        phase : Phase
            Every phase loads one operand; only the rounding of gradient operands differs.

        Notes
        -----
        The record has one encoding error for both operands. Only the input's DAC errs anew each symbol, so
        each gets half of its error, which is right where both operands are spread alike.
        """
        grid, effective = (4.0**-bits / 3.0 for bits in (self.dac.nominal_bits, self.dac.enob_bits))
        errors = self.weight_errors()
        repeated = math.fsum(error for cause, error in errors.items() if cause.endswith("crosstalk"))
        spec = AnalogSpec(
            dac_bits=min(self.dac.nominal_bits, self.tuning_dac.nominal_bits),
            adc_bits=self.adc.nominal_bits,
            adc_enob_bits=self.adc.enob_bits,
            adc_range_sigma=self.adc_range_sigma,
            analog_length=self.analog_length,
            thermal_variance=self.budget.thermal_variance,
            shot_variance=self.budget.shot_variance,
            rin_variance=self.budget.rin_variance,
            encoding_variance=0.5 * (effective - grid),
            load_variance=errors["lock"] + errors["driver"],
            rounding=self.gradient_rounding if phase in _GRADIENTS else Rounding.NEAREST,
        )
        return on_chip(spec, self, rin_ratio=self.budget.rin_ratio, repeated_variance=repeated)

    def work(self, operator: Products, cores: int) -> Work:
        """Return time, energy and loads of one product on so many cores.

        Notes
        -----
        Forward loads W, the gradient of the input its transpose, the gradient of the weight one of two
        operands that changed since: each product pays its own loads. A value is fetched once for both its
        symbols.
        """
        loads = tiled_loads(operator, inputs=self.wavelengths, outputs=self.outputs, cores=cores)
        energy = converted(self, SIGN_PASSES * loads.streamed_values, loads.samples)
        return Work(
            light_s=loads.rounds * loads.streamed / self.vectors_per_s,
            programming_s=loads.rounds * self.reload.time_s,
            energy_j=energy | {"reload": loads.loaded_values * self.tuning_dac.conversion_j},
            operand_bytes=loads.streamed_values * bytes_of_bits(self.dac.nominal_bits)
            + loads.loaded_values * bytes_of_bits(self.tuning_dac.nominal_bits)
            + loads.partial_bytes,
            writes=loads.rounds,
        )

    def static_parts_w(self) -> dict[str, float]:
        """Return what one core draws whether or not it works, by part: every ring is heated and locked."""
        light_w = self.wavelengths * self.laser_power_w
        return {
            "laser": light_w / (self.comb.conversion_efficiency * self.laser.wall_plug_efficiency),
            "ring tuning": self.rings * self.ring.tuning_w
            + self.wavelengths * (2.0 * self.router.tuning_w + self.modulator.tuning_w),
            "photodetector": 2.0 * self.outputs * self.detector.bias_w,
            "tia": self.outputs * self.tia.power_w,
        } | amplifier_w(self)

    def full_load_parts_w(self) -> dict[str, float]:
        """Return the dynamic power of one core by part while inputs stream past loaded weights."""
        return converted(self, self.wavelengths * self.symbol_rate_hz, self.outputs * self.vectors_per_s)

    def photonic_area_m2(self) -> dict[str, float]:
        """Return the area of one core's photonic parts."""
        routers = 2.0 * self.wavelengths * self.router.area_m2
        return {
            "laser": self.laser.area_m2,
            "micro-comb": self.comb.area_m2,
            "modulator": self.wavelengths * self.modulator.area_m2 + routers,
            "weight rings": self.rings * self.layout.ring_spacing_m**2,
            "broadcast": self.outputs * self.branch.area_m2,
            "photodetector": 2.0 * self.outputs * self.detector.area_m2,
        } | amplifier_m2(self)

    def electronic_area_m2(self) -> dict[str, float]:
        """Return the area of one core's electronic parts."""
        adcs = self.outputs * self.adc.interleaved(self.vectors_per_s)
        return {
            "dac": self.wavelengths * self.dac.interleaved(self.symbol_rate_hz) * self.dac.area_m2,
            "tuning dac": self.rings * self.tuning_dac.area_m2,
            "adc": adcs * self.adc.area_m2,
            "tia": self.outputs * self.tia.area_m2,
            "adder": self.outputs * self.adder.area_m2,
        }


@cache
def default_ring_bank() -> RingBank:
    """Return 32 banks of 16 rings at 5 GHz, of today's parts; the lines' power, 5 mW, is our choice."""
    table = device_table()
    return RingBank(
        outputs=32,
        wavelengths=16,
        symbol_rate_hz=to_si("symbol_rate_hz", 5.0, "GHz"),
        laser_power_w=to_si("laser_power_w", 5.0, "mW"),
        laser=table.build(Laser, "laser"),
        comb=table.build(Comb, "micro_comb"),
        router=table.build(RingRouter, "ring_router"),
        modulator=table.build(Modulator, "mzm"),
        branch=table.build(PassiveElement, "y_branch"),
        ring=table.build(WeightRing, "weight_ring"),
        waveguide=table.build(Waveguide, "si_waveguide"),
        detector=table.build(Photodetector, "photodetector"),
        tia=table.build(Tia, "tia"),
        dac=table.build(Converter, "dac"),
        tuning_dac=table.build(Converter, "tuning_dac"),
        adc=table.build(Converter, "adc"),
        adder=table.build(Adder, "adder"),
        layout=table.build(RingBankLayout, "ring_bank_layout"),
    )
