"""A crossbar of phase-change cells: weights are held without power, and every write wears them.

Each of `rows` inputs is a comb line of its own; its power passes one pair of cells per column, and the lines
of a column add up on a detector. `vectors` sets of lines carry as many vectors through the same cells.

References
----------
Feldmann et al., "Parallel convolutional processing using an integrated photonic tensor core", Nature 589
(2021) 52 (arXiv:2002.00281): array, couplers and wavelengths.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from typing import ClassVar

from optical.cores.analog import (
    DEFAULT_CROSSING,
    DEFAULT_MODULATOR,
    AnalogCore,
    ArrayShape,
    converter_parts,
    crossing_losses,
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
    Crossing,
    Events,
    Integrator,
    Modulator,
    Part,
    Per,
    Photodetector,
    RingModulator,
    Sampler,
    Tia,
    programmable_table,
    shipped,
)
from optical.devices.devices import MeasuredElement, RingRouter, bytes_of_bits
from optical.devices.limits import TELECOM_WAVELENGTH_M, Light
from optical.devices.named_parts import named_parts_table
from optical.devices.programmable import PcmCell
from optical.execution import AnalogSpec
from optical.noise.chip import Chip
from optical.noise.link_budget import UNIFORM_MEAN_SQUARE, DifferenceBudget, Element, elements_of
from simulator.errors import check_range
from simulator.operators import MatMul, Phase
from simulator.units import ratio_from_db, to_si


class SignedInput(StrEnum):
    """Encoding of signed inputs in power: one sign after the other, or shifted."""

    PASSES = "passes"
    OFFSET = "offset"


@dataclass(frozen=True, kw_only=True)
class PcmCrossbar(AnalogCore):
    """One array of phase-change cells with its comb, modulators and receivers."""

    holds_weights: ClassVar[bool] = True
    """One operand is written into the cells."""
    counts: ClassVar[tuple[str, ...]] = ("rows", "columns", "vectors", "written_at_once")
    """Fields that must be whole numbers from 1."""
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
    line_spacing_hz: float = to_si("line_spacing_hz", 50.0, "GHz")
    """Distance of the lines; a design choice."""
    feed_length_m: float = to_si("feed_length_m", 2.0, "mm")
    """Waveguide from the comb to the array; a design choice, that of the other cores."""
    written_at_once: int
    """Cells that are written at the same time; a design choice."""
    held_s: float
    """Time for which a written weight must last; a design choice."""
    comb: Comb = shipped(Comb, "micro_comb")
    """Source of the lines."""
    signed_fields: ClassVar[bool] = False
    """Inputs are powers."""
    modulator: Modulator | RingModulator | AbsorptionModulator = shipped(
        Modulator, DEFAULT_MODULATOR, named_parts_table
    )
    """One per line."""
    router: RingRouter = shipped(RingRouter, "ring_router")
    """Three per line: drop it, add it to its row, and take it to its detector."""
    crossing: Crossing | MeasuredElement = shipped(Crossing, DEFAULT_CROSSING, named_parts_table)
    """One per cell."""
    cell: PcmCell
    """Two per weight."""
    detector: Photodetector = shipped(Photodetector, "photodetector")
    """Two per output and vector."""
    tia: Tia = shipped(Tia, "tia")
    """One per output and vector."""
    readout: Integrator | Sampler = shipped(Integrator, "integrator")
    """Readout of the amplifier."""
    chip: Chip = field(default_factory=default_chip)
    """Spread of like parts, and the outputs that share noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "written_at_once", high=self.cells)
        check_range(self, "held_s", "feed_length_m")
        self.router.check_lines(f"PcmCrossbar '{self.name}'", self.modulators, self.line_spacing_hz)

    @property
    def cells(self) -> int:
        """Cells, two per weight."""
        return 2 * self.rows * self.columns

    @property
    def lines_hz(self) -> tuple[float, ...]:
        """Optical frequencies of the comb's lines."""
        return lines_around(TELECOM_WAVELENGTH_M, self.modulators, self.line_spacing_hz)

    @property
    def modulators(self) -> int:
        """Comb lines, with a modulator and a DAC each."""
        return self.rows * self.vectors

    @property
    def receivers(self) -> int:
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
    def analog_length(self) -> int:
        """Products in one ADC sample."""
        return self.rows

    @property
    def light(self) -> Light:
        """Light that limits are held against; a router takes its whole line from the comb."""
        return self.lit(ring_w=self.coupled_line_w(self.modulators), comb=self.comb)

    @property
    def path(self) -> tuple[Element, ...]:
        """Losses from source to detector for the cell that is farthest.

        Notes
        -----
        A line passes the routers of all others where it is taken from the comb. On its row, and where
        columns are read, it passes those of other vectors, lines far from it: as many as there are, together.
        """
        length_m = (2 * self.columns + self.rows) * math.sqrt(self.cell.area_m2)
        joints = math.ceil(math.log2(2 * self.columns)) + math.ceil(math.log2(self.rows))
        return elements_of(
            (
                ("coupling", 1, self.laser.coupling_loss_db),
                (self.router.name, 3, self.router.insertion_loss_db),
                ("passed routers of vectors", self.vectors - 1, self.router.pass_loss_db),
                ("passed routers", 1, self.router.passing_loss_db(self.modulators, self.line_spacing_hz)),
                (self.modulator.name, 1, self.modulator_loss_db),
                (self.branch.name, joints, self.branch.insertion_loss_db),
                *crossing_losses(self.crossing, 2 * self.columns - 1),
                (self.cell.name, 1, self.cell.insertion_loss_db),
                *self.routing(
                    feed_m=self.feed_length_m,
                    array_m=length_m,
                    lines=self.modulators,
                    guides=2.0 * self.columns * self.rows,
                ).losses,
            )
        )

    @cached_property
    def link(self) -> DifferenceBudget:
        """Budget of the light, whether or not the link closes.

        Notes
        -----
        A line is shared by 2 columns per output, and joining `rows` lines in even couplers on one waveguide
        leaves 1/rows of each (Feldmann 2021): couplers do not know the wavelengths apart. What leaks into a
        column where a row crosses it is light of that row past its cell. A cell is set with it, but it lies
        on the detectors as what the darkest cell lets through does, over half of the 2 columns on average.
        """
        source = self.source(self.modulators)
        return DifferenceBudget(
            elements=self.path,
            split=2.0 * self.columns * self.rows,
            launch_w=source.launch_w,
            contrast=ratio_from_db(-self.cell.contrast_db) + self.crossing.leak * self.columns,
            length=self.rows,
            offset=self.signed_input is SignedInput.OFFSET,
            receiver=receiver_of(
                self, self.detector, self.tia, self.readout, source, ring_hz=(self.router.baseband_hz,)
            ),
            mixing=self.router.mixing(self.modulators, self.line_spacing_hz, one_bus=False),
        )

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
    def weight_noise(self) -> Mapping[str, float]:
        """Noise over signal of a full-scale sample by wrong weights."""
        wrong = self.load_variance + self.drift_variance * UNIFORM_MEAN_SQUARE
        return {"wrong weights": wrong / self.rows}

    @property
    def cell_gain(self) -> float:
        """Variance of the gain of a weight's cell, fixed per chip."""
        return self.drift_variance

    def output_record(self, phase: Phase) -> AnalogSpec:
        """Return the record of one output by itself.

        Notes
        -----
        In two passes the DAC spends no bit on the sign. An offset doubles the rms of what the ADC must take:
        half the sum of evenly spread weights has twice the rms of half the product, in squares 3 + 1 = 4. The
        mean drift is a gain that is not corrected between two loads.
        """
        offset = self.signed_input is SignedInput.OFFSET
        record, sign = super().output_record(phase), 1.0 if offset else 4.0
        return dataclasses.replace(
            record,
            dac_bits=record.dac_bits + (0.0 if offset else 1.0),
            encoding_variance=record.encoding_variance / sign,
            adc_range_sigma=self.adc_range_sigma * (2.0 if offset else 1.0),
            load_variance=self.load_variance,
            product_gain=math.exp(-self.cell.drift(self.held_s)),
        )

    @cached_property
    def reload(self) -> Reload:
        """Cells written in groups; two levels spread evenly in decibels are a third of the range apart."""
        groups = math.ceil(self.cells / self.written_at_once)
        return Reload(
            time_s=groups * self.cell.write_s,
            energy_j=self.load_energy_j(self.rows * self.columns),
            endurance_writes=self.cell.endurance_writes,
        )

    def events(self, operator: MatMul, cores: int) -> Events:
        """Return the events (uses of parts) of one product on a number of cores.

        Notes
        -----
        No tile stays written, as the next one needs the cells: a product of every kind and
        phase writes all of its tiles.
        """
        return streaming_events(
            tiled_loads(operator, inputs=self.rows, outputs=self.columns, cores=cores),
            word_bytes=self.word_bytes,
            vectors=self.vectors,
            passes=self.passes,
            readings=self.passes,
            loaded_bytes=2.0 * bytes_of_bits(self.cell.level_bits),
        )

    def parts(self) -> tuple[Part, ...]:
        """Return the parts list of one core; cells hold without power."""
        outputs = self.receivers
        biased_w = 0.5 * self.detector.bias_w(self.link.pair_w)
        routers = 2.0 * (self.modulators + outputs)
        return (
            *source_parts(self, lines=self.modulators, comb=self.comb),
            *converter_parts(self),
            Part("programming", self.cell, 2, self.cell.write_j, Per.VALUE),
            Part("ring tuning", self.router, routers, self.router.tuning_w, within="modulator"),
            Part("cells", self.cell, self.cells),
            Part("cells", self.crossing, self.cells),
            Part("cells", self.branch, 2.0 * self.rows * self.columns),
            Part("photodetector", self.detector, 2.0 * outputs, biased_w, within="receivers"),
            Part("tia", self.tia, outputs, self.tia.power_w),
            *readout_parts(self, self.readout),
        )


@cache
def default_pcm_crossbar(cell: str = "pcm_gsse") -> PcmCrossbar:
    """Return an array of 16 x 16 weights with four vectors at 5 GHz from today's parts.

    Parameters
    ----------
    cell : str
        Phase-change cell by name: ``pcm_gsse``, or ``pcm_gst`` of the published array, which wears sooner.

    Notes
    -----
    The laser's power is our choice: what four effective bits of a full-scale sample need, converters and
    levels included (a test solves for it); five take nearly three times as much, more than a chip can be
    cooled.
    """
    return PcmCrossbar(
        rows=16,
        columns=16,
        vectors=4,
        symbol_rate_hz=to_si("symbol_rate_hz", 5.0, "GHz"),
        laser_power_w=to_si("laser_power_w", 25.5, "mW"),
        written_at_once=64,
        held_s=to_si("held_s", 1.0, "ms"),
        cell=programmable_table().build(PcmCell, cell),
    )
