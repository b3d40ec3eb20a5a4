"""A crossbar of phase-change cells: weights stand without power, and wear with every write.

Each of `rows` inputs is a comb line of its own; its power passes one pair of cells per column, and the lines
of a column add up on a detector. `vectors` sets of lines carry as many vectors through the same cells.

References
----------
Feldmann et al., "Parallel convolutional processing using an integrated photonic tensor core", Nature 589
(2021) 52 (arXiv:2002.00281): array, couplers and wavelengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from typing import ClassVar

from optical.cores.analog_core import AnalogCore
from optical.cores.array_errors import ArrayShape, default_chip, mismatch_ratio, on_chip
from optical.cores.core import PARTIAL_SUM_BYTES, Reload, Work, converted, tiled_loads
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
from optical.devices.programmable import PcmCell, programmable_table
from optical.execution import AnalogSpec, Rounding
from optical.noise.amplifiers import amplifier_m2, amplifier_w, source_of
from optical.noise.chip import CalibrationCost, Chip, gain_calibration
from optical.noise.detection import DifferenceBudget, Receiver, check_closes
from optical.noise.laser_power import NoiseRatio, converter_ratios
from optical.noise.link_budget import UNIFORM_MEAN_SQUARE, Element
from simulator.amounts import ceiling
from simulator.checks import check_positive, check_range, check_whole
from simulator.operators import Phase, Products
from simulator.units import ratio_from_db, to_si


class SignedInput(StrEnum):
    """How an input of either sign becomes a power."""

    PASSES = "passes"
    OFFSET = "offset"


@dataclass(frozen=True, kw_only=True)
class PcmCrossbar(AnalogCore):
    """One array of phase-change cells with its comb, modulators and receivers."""

    holds_weights: ClassVar[bool] = True
    """One operand is written into the cells."""
    cluster: ClassVar[int] = 1
    """Arrays share nothing."""
    name: str = "pcm_crossbar"
    """Name shown in tables and messages."""
    rows: int
    """Inputs."""
    columns: int
    """Outputs, a pair of cell columns each."""
    vectors: int
    """Vectors that pass at once, on lines of their own."""
    signed_input: SignedInput = SignedInput.PASSES
    """Two passes of positive and negative inputs, or one with an offset; a design choice."""
    written_at_once: int
    """Cells that are written at the same time; a design choice."""
    held_s: float
    """Time for which a written weight must last; a design choice."""
    comb: Comb
    """Source of the lines."""
    modulator: Modulator | RingModulator
    """One per line."""
    router: RingRouter
    """Three per line: drop it, add it to its row, and take it to its detector."""
    crossing: PassiveElement
    """One per cell."""
    cell: PcmCell
    """Two per weight."""
    detector: Photodetector
    """Two per output and vector."""
    tia: Tia
    """One per output and vector."""
    chip: Chip = field(default_factory=default_chip)
    """How unlike parts of a kind are, and which outputs fluctuate together."""

    def __post_init__(self) -> None:
        counts = ("rows", "columns", "vectors", "written_at_once")
        check_range(self, *counts, low=1)
        check_whole(self, *counts)
        check_range(self, "written_at_once", high=self.cells)
        check_range(self, "held_s")
        check_positive(self, "symbol_rate_hz", "laser_power_w", "adc_range_sigma")

    @property
    def cells(self) -> int:
        """Cells, two per weight."""
        return 2 * self.rows * self.columns

    @property
    def lines(self) -> int:
        """Comb lines, with a modulator and a DAC each."""
        return self.rows * self.vectors

    @property
    def outputs(self) -> int:
        """Differences that are read at once, with an amplifier and an ADC each."""
        return self.columns * self.vectors

    @property
    def passes(self) -> int:
        """Symbols that one vector takes."""
        return 1 if self.signed_input is SignedInput.OFFSET else 2

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second, loaded and fully used."""
        return self.rows * self.columns * self.vectors * self.symbol_rate_hz / self.passes

    @property
    def path(self) -> tuple[Element, ...]:
        """Losses from source to detector for the cell that is farthest."""
        splits = math.ceil(math.log2(2 * self.columns))
        crossings = 2 * self.columns - 1
        length_m = (2 * self.columns + self.rows) * math.sqrt(self.cell.area_m2)
        return (
            Element(name="coupling", loss_db=self.laser.coupling_loss_db),
            Element(name=f"3 x {self.router.name}", loss_db=3.0 * self.router.insertion_loss_db),
            Element(name=self.modulator.name, loss_db=self.modulator.insertion_loss_db),
            Element(name=f"{splits} x {self.branch.name}", loss_db=splits * self.branch.insertion_loss_db),
            Element(
                name=f"{crossings} x {self.crossing.name}",
                loss_db=crossings * self.crossing.insertion_loss_db,
            ),
            Element(name=self.cell.name, loss_db=self.cell.insertion_loss_db),
            Element(name=self.waveguide.name, loss_db=self.waveguide.loss_db_per_m * length_m),
        )

    @cached_property
    def link(self) -> DifferenceBudget:
        """Budget of the light, whether or not the link closes.

        Notes
        -----
        A line is shared by 2 columns per output, and joining `rows` lines in even couplers on one waveguide
        leaves 1/rows of each (Feldmann 2021): couplers do not know the wavelengths apart.
        """
        source = source_of(self, self.lines)
        return DifferenceBudget(
            elements=self.path,
            split=2.0 * self.columns * self.rows,
            launch_w=source.launch_w,
            contrast=ratio_from_db(-self.cell.contrast_db),
            length=self.rows,
            offset=self.signed_input is SignedInput.OFFSET,
            receiver=Receiver.of(
                self.detector,
                self.tia,
                symbol_rate_hz=self.symbol_rate_hz,
                sender_hz=self.modulator.bandwidth_hz,
                rin_db_per_hz=source.rin_db_per_hz,
                leakage=ratio_from_db(-self.modulator.extinction_ratio_db),
            ),
        )

    @cached_property
    def budget(self) -> DifferenceBudget:
        """Budget of the light of a link that closes.

        Raises
        ------
        LinkError
            If it does not.
        """
        check_closes(self.name, self.link.noise_ratio, self.path, self.link.split)
        return self.link

    @property
    def load_variance(self) -> float:
        """Error of a loaded weight that is drawn with every load, in full scales squared.

        Notes
        -----
        Levels of one cell of a pair cover magnitudes from 0 to 1, a step of 1/(2^bits - 1) apart, and are met
        within half a step.
        """
        step = 1.0 / (2.0**self.cell.level_bits - 1.0)
        return step**2 / 12.0

    @property
    def drift_variance(self) -> float:
        """Variance of a weight relative to itself as cells drift by exponents of their own, fixed per chip.

        Notes
        -----
        A cell that is written anew at every load is always read after the same time, hence errs alike.
        """
        return (self.cell.drift_spread * self.cell.drift(self.held_s)) ** 2

    @property
    def array(self) -> ArrayShape:
        """Parts and lines: a modulator per row and vector, whose line all columns share."""
        return ArrayShape(rows=self.vectors, columns=self.columns, length=self.rows, holds_weights=True)

    @property
    def calibration(self) -> CalibrationCost:
        """Gains of all modulators, one after the other."""
        return gain_calibration(self, self.lines)

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample: light, converters, wrong weights."""
        others = converter_ratios(self.dac, self.adc, self.rows)
        wrong = self.load_variance + self.drift_variance * UNIFORM_MEAN_SQUARE
        others |= mismatch_ratio(self)
        return self.link.noise_ratio.joined(others | {"wrong weights": wrong / self.rows})

    @property
    def effective_bits(self) -> float:
        """Effective bits of a full-scale sample with converters and wrong weights."""
        return self.noise_ratio.effective_bits

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return what of the core reaches a product of a phase, all of it from budget and devices.

        Parameters
        ----------
        phase : Phase
            Gradient operands may be rounded stochastically; every phase loads its own matrix.

        Notes
        -----
        In two passes the DAC spends no bit on the sign. An offset doubles the rms of what the ADC must take:
        half the sum of evenly spread weights has twice the rms of half the product, in squares 3 + 1 = 4. The
        mean drift is a gain that nobody corrects between two loads.
        """
        offset = self.signed_input is SignedInput.OFFSET
        sign_bits = 0.0 if offset else 1.0
        bits = (self.dac.nominal_bits + sign_bits, self.dac.enob_bits + sign_bits)
        grid, effective = (4.0**-each / 3.0 for each in bits)
        spec = AnalogSpec(
            dac_bits=bits[0],
            adc_bits=self.adc.nominal_bits,
            adc_enob_bits=self.adc.enob_bits,
            adc_range_sigma=self.adc_range_sigma * (2.0 if offset else 1.0),
            analog_length=self.rows,
            thermal_variance=self.budget.thermal_variance,
            shot_variance=self.budget.shot_variance,
            rin_variance=self.budget.rin_variance,
            encoding_variance=effective - grid,
            load_variance=self.load_variance,
            product_gain=math.exp(-self.cell.drift(self.held_s)),
            rounding=Rounding.NEAREST if phase is Phase.FORWARD else self.gradient_rounding,
        )
        return on_chip(spec, self, rin_ratio=self.link.receiver.rin_ratio, cell_gain=self.drift_variance)

    @property
    def reload(self) -> Reload:
        """Cells written in groups; two levels spread evenly in decibels are a third of the range apart."""
        groups = math.ceil(self.cells / self.written_at_once)
        return Reload(
            time_s=groups * self.cell.write_s,
            energy_j=self.cells * self.cell.full_write_j / 3.0,
            endurance_writes=self.cell.endurance_writes,
        )

    def work(self, operator: Products, cores: int) -> Work:
        """Return time, energy and wear of one product on so many cores.

        Notes
        -----
        What is written stands for nothing: the next tile needs the cells, so a product of every kind and
        phase writes all of its tiles.
        """
        loads = tiled_loads(operator, inputs=self.rows, outputs=self.columns, cores=cores)
        symbols = ceiling(loads.streamed / self.vectors) * self.passes
        word_bytes = bytes_of_bits(self.dac.nominal_bits)
        loaded_bytes = 2.0 * loads.loaded_values * bytes_of_bits(self.cell.level_bits)
        written = 2.0 * loads.loaded_values * self.cell.full_write_j / 3.0
        read = converted(self, self.passes * loads.streamed_values, self.passes * loads.samples)
        return Work(
            light_s=loads.rounds * symbols / self.symbol_rate_hz,
            programming_s=loads.rounds * self.reload.time_s,
            energy_j=read | {"programming": written},
            operand_bytes=loads.streamed_values * word_bytes + loaded_bytes + loads.partial_bytes,
            writes=loads.rounds,
        )

    @property
    def operand_bytes_per_symbol(self) -> float:
        """Bytes between converters and buffer in one symbol: inputs, and partial sums read and written."""
        words = self.lines * bytes_of_bits(self.dac.nominal_bits)
        return (words + self.outputs * 2.0 * PARTIAL_SUM_BYTES) / self.passes

    def static_parts_w(self) -> dict[str, float]:
        """Return what one core draws whether or not it works, by part; cells hold without power."""
        light_w = self.lines * self.laser_power_w
        return {
            "laser": light_w / (self.comb.conversion_efficiency * self.laser.wall_plug_efficiency),
            "ring tuning": 2.0 * (self.lines + self.outputs) * self.router.tuning_w
            + self.lines * self.modulator.tuning_w,
            "photodetector": 2.0 * self.outputs * self.detector.bias_w,
            "tia": self.outputs * self.tia.power_w,
        } | amplifier_w(self)

    def full_load_parts_w(self) -> dict[str, float]:
        """Return the dynamic power of one core by part when every symbol carries vectors."""
        return converted(self, self.lines * self.symbol_rate_hz, self.outputs * self.symbol_rate_hz)

    def photonic_area_m2(self) -> dict[str, float]:
        """Return the area of one core's photonic parts."""
        routers = 2.0 * (self.lines + self.outputs) * self.router.area_m2
        trees = self.rows * 2.0 * self.columns * self.branch.area_m2
        each = self.cell.area_m2 + self.crossing.area_m2
        return {
            "laser": self.laser.area_m2,
            "micro-comb": self.comb.area_m2,
            "modulator": self.lines * self.modulator.area_m2 + routers,
            "cells": self.cells * each + trees,
            "receivers": 2.0 * self.outputs * self.detector.area_m2,
        } | amplifier_m2(self)

    def electronic_area_m2(self) -> dict[str, float]:
        """Return the area of one core's electronic parts."""
        return {
            "dac": self.lines * self.dac.interleaved(self.symbol_rate_hz) * self.dac.area_m2,
            "adc": self.outputs * self.adc.interleaved(self.symbol_rate_hz) * self.adc.area_m2,
            "tia": self.outputs * self.tia.area_m2,
            "adder": self.outputs * self.adder.area_m2,
        }


@cache
def default_pcm_crossbar(cell: str = "pcm_gsse") -> PcmCrossbar:
    """Return an array of 16 x 16 weights with four vectors at 5 GHz from today's parts.

    Parameters
    ----------
    cell : str
        Phase-change cell by name: ``pcm_gsse``, or ``pcm_gst`` of the published array, which wears sooner.

    Notes
    -----
    The laser's power is our choice: what six effective bits of a full-scale sample need, converters and
    levels included (a test solves for it). As little noise as the ADC's would take ten times as much.
    """
    table = device_table()
    return PcmCrossbar(
        rows=16,
        columns=16,
        vectors=4,
        symbol_rate_hz=to_si("symbol_rate_hz", 5.0, "GHz"),
        laser_power_w=to_si("laser_power_w", 25.0, "mW"),
        written_at_once=64,
        held_s=to_si("held_s", 1.0, "ms"),
        laser=table.build(Laser, "laser"),
        comb=table.build(Comb, "micro_comb"),
        modulator=table.build(Modulator, "mzm"),
        router=table.build(RingRouter, "ring_router"),
        branch=table.build(PassiveElement, "y_branch"),
        crossing=table.build(PassiveElement, "crossing"),
        cell=programmable_table().build(PcmCell, cell),
        waveguide=table.build(Waveguide, "si_waveguide"),
        detector=table.build(Photodetector, "photodetector"),
        tia=table.build(Tia, "tia"),
        dac=table.build(Converter, "dac"),
        adc=table.build(Converter, "adc"),
        adder=table.build(Adder, "adder"),
    )
