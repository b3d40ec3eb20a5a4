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
    lines_around,
    readout_parts,
    receiver_of,
    source_parts,
    with_counted_photons,
)
from optical.devices import (
    Comb,
    Crossing,
    Domain,
    Events,
    Integrator,
    Modulator,
    Part,
    PassiveElement,
    PhaseShifter,
    Photodetector,
    Sampler,
    SummingWires,
    Tia,
    area_m2,
    shipped,
)
from optical.devices.devices import CrossbarLayout, MeasuredElement, RingRouter
from optical.devices.limits import TELECOM_WAVELENGTH_M, Light
from optical.devices.named_parts import named_parts_table
from optical.devices.programmable import QUARTER_TURN_RAD, CapacitiveShifter, CarrierShifter, Heater
from optical.execution import AnalogSpec
from optical.execution.spec import Shot
from optical.noise.chip import Chip
from optical.noise.link_budget import Element, LinkBudget, elements_of
from simulator.operators import MatMul, Phase
from simulator.units import to_si


@dataclass(frozen=True, kw_only=True)
class Crossbar(AnalogCore):
    """One core of the coherent crossbar, with its share of the parts that a cluster shares.

    Notes
    -----
    Power of a line divides by two for the operands, then by rows x columns (each operand is split to its
    modulators and then over the crossing lines), and no further where cores share: their sources feed it.
    """

    holds_weights: ClassVar[bool] = False
    """Both operands change every symbol, and nothing is ever loaded."""
    counts: ClassVar[tuple[str, ...]] = (
        "rows",
        "columns",
        "wavelengths",
        "temporal_accumulation",
        "broadcast",
        "summed",
    )
    """Fields that must be whole numbers from 1."""
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
    """Law from which shot noise is drawn."""
    comb: Comb = shipped(Comb, "micro_comb")
    """Source of the lines."""
    modulator: Modulator = shipped(Modulator, DEFAULT_MODULATOR, named_parts_table)
    """One per line of a row, and of a column."""
    router: RingRouter = shipped(RingRouter, "ring_router")
    """Two per modulator: drop the line, and add it again."""
    phase_shifter: PhaseShifter | Heater | CapacitiveShifter | CarrierShifter = shipped(
        PhaseShifter, "phase_shifter"
    )
    """Quarter turn before the coupler of a node."""
    coupler: PassiveElement = shipped(PassiveElement, "directional_coupler")
    """50:50 coupler of a node."""
    crossing: Crossing | MeasuredElement = shipped(Crossing, DEFAULT_CROSSING, named_parts_table)
    """Waveguide crossing, one per node."""
    detector: Photodetector = shipped(Photodetector, "photodetector")
    """Two per node."""
    tia: Tia = shipped(Tia, "tia")
    """Amplifier of an output."""
    readout: Integrator | Sampler = shipped(Integrator, "integrator")
    """Readout behind it, which adds the symbols of a sample."""
    summing: SummingWires = shipped(SummingWires, "summing_wires")
    """Wires that bring the currents of `summed` cores to their amplifier."""
    layout: CrossbarLayout = shipped(CrossbarLayout, "crossbar_layout")
    """Density of the array."""
    chip: Chip = field(default_factory=lambda: default_interfering_chip(on_lines=True))
    """Spread of like parts, and the outputs that share noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chip.grid is not None:
            self.router.check_lines(f"Crossbar '{self.name}'", self.wavelengths, self.line_spacing_hz)

    @property
    def cluster(self) -> int:
        """Cores that share modulators or converters; an accelerator holds whole clusters."""
        return self.broadcast * self.summed

    @property
    def modulators(self) -> float:
        """Modulators and DACs per core, the shared ones in proportion."""
        return self.wavelengths * (self.rows + self.columns / self.broadcast)

    @property
    def nodes(self) -> int:
        """Nodes of one core."""
        return self.rows * self.columns

    @property
    def receivers(self) -> float:
        """Amplifiers, ADCs and adders per core, in proportion."""
        return self.nodes / self.summed

    @property
    def sample_rate_hz(self) -> float:
        """Conversions per second of one output."""
        return self.symbol_rate_hz / self.temporal_accumulation

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second of one core, all nodes busy."""
        return self.nodes * self.wavelengths * self.symbol_rate_hz

    @property
    def analog_length(self) -> int:
        """Products in one ADC sample."""
        return self.wavelengths * self.temporal_accumulation * self.summed

    @property
    def node_area_m2(self) -> float:
        """Area of one node with its spacing."""
        devices = (self.branch, self.phase_shifter, self.coupler, self.crossing)
        return (
            math.fsum((2.0 * self.detector.area_m2, *(one.area_m2 for one in devices)))
            / self.layout.node_fill
        )

    @property
    def broadcast_m(self) -> float:
        """Route of the second operand to the farthest core that shares it: a side of their square."""
        if self.broadcast == 1:
            return 0.0
        core_m2 = math.fsum(area_m2(self._parts(0.0), Domain.PHOTONIC).values())
        return math.sqrt(self.broadcast * core_m2)

    @property
    def line_spacing_hz(self) -> float:
        """Distance of the comb's lines."""
        return math.inf if self.chip.grid is None else self.chip.grid.spacing_hz

    @property
    def lines_hz(self) -> tuple[float, ...]:
        """Optical frequencies of the comb's lines."""
        middle_m = TELECOM_WAVELENGTH_M if self.chip.grid is None else self.chip.grid.wavelength_m
        return lines_around(middle_m, self.wavelengths, self.line_spacing_hz)

    @property
    def light(self) -> Light:
        """Light that limits are held against; a router meets its operand's share of its row, or column."""
        share = 2.0 * min(self.rows, self.columns)
        return self.lit(ring_w=self.coupled_line_w(self.wavelengths) / share, comb=self.comb)

    @property
    def path(self) -> tuple[Element, ...]:
        """Losses from source to detector, for the operand and node that lose most.

        Notes
        -----
        LT counts modulator, two rings, splitter tree of a side, and splitter, phase shifter and coupler of a
        node. Added here: coupling into the chip, splitters among an operand's modulators, splitters and route
        of `broadcast`, crossings and waveguide, and the routers of other lines that a line passes: as many as
        there are others, since what is dropped last is added last where both buses run the same way.
        """
        side = max(self.rows, self.columns)
        sources = math.ceil(math.log2(min(self.rows, self.columns)))
        splits = math.ceil(math.log2(side)) + math.ceil(math.log2(self.broadcast)) + 1
        routes = 1 if self.broadcast_m else 0
        losses = (
            ("coupling", 1, self.laser.coupling_loss_db),
            ("splitters to modulators", 1, sources * self.branch.insertion_loss_db),
            (self.router.name, 2, self.router.insertion_loss_db),
            ("passed routers", 1, self.router.passing_loss_db(self.wavelengths, self.line_spacing_hz)),
            (self.modulator.name, 1, self.modulator_loss_db),
            (self.branch.name, splits, self.branch.insertion_loss_db),
            *crossing_losses(self.crossing, side - 1),
            (self.phase_shifter.name, 1, self.phase_shifter.loss_db(QUARTER_TURN_RAD)),
            (self.coupler.name, 1, self.coupler.insertion_loss_db),
            *self.routing(
                feed_m=self.layout.feed_length_m,
                array_m=side * math.sqrt(self.node_area_m2),
                lines=self.wavelengths,
                guides=2.0 * side,
                routes=routes,
            ).losses,
            ("broadcast route", 1, self.feed.loss_db_per_m * self.broadcast_m),
        )
        return elements_of(losses)

    @cached_property
    def link(self) -> LinkBudget:
        """Budget of the light, whether or not the link closes."""
        source = self.source(self.wavelengths)
        return LinkBudget(
            elements=self.path,
            split=2.0 * self.nodes,
            launch_w=source.launch_w,
            receiver=receiver_of(
                self,
                self.detector,
                self.tia,
                self.readout,
                source,
                symbols=self.temporal_accumulation,
                ring_hz=(self.router.baseband_hz,),
                pairs=self.summed,
                pair_load=self.summing.pair_load,
            ),
            mixing=self.router.mixing(self.wavelengths, self.line_spacing_hz, one_bus=True)
            + crossing_mixing(self.crossing, self.rows, self.columns),
            wavelengths=self.wavelengths,
            symbols=self.temporal_accumulation,
        )

    def output_record(self, phase: Phase) -> AnalogSpec:
        """Return the record of one output by itself: errors of the quarter turns scale its products."""
        gain = math.exp(-0.5 * self.phase_shifter.phase_error_rad**2)
        return dataclasses.replace(super().output_record(phase), product_gain=gain)

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return the errors of products of a phase, with counted photons if `shot` says so."""
        return with_counted_photons(super().analog(phase), self.link, self.shot)

    @property
    def array(self) -> ArrayShape:
        """Parts and lines; every core of a cluster has modulators of its own for the first operand."""
        lines, rows = self.wavelengths, self.rows * self.broadcast
        length = lines * self.summed
        return ArrayShape(rows=rows, columns=self.columns, length=length, lit_rows=self.rows, lines=lines)

    def events(self, operator: MatMul, cores: int) -> Events:
        """Return the events (uses of parts) of one product on a number of cores.

        Parameters
        ----------
        operator : MatMul
            The product; independent products of a batch spread over the clusters.
        cores : int
            Whole clusters of cores.

        Notes
        -----
        With i_M = ceil(M/rows), i_N = ceil(N/columns), i_K = ceil(K/wavelengths): a cluster does `broadcast`
        row blocks against one column block at a time; its `summed` cores share the sum; the second operand is
        sent once. LT (section on energy) divides the product of the three by the cores; here each division is
        rounded up.
        """
        row_blocks = math.ceil(math.ceil(operator.m / self.rows) / self.broadcast)
        column_blocks = math.ceil(operator.n / self.columns)
        depth = math.ceil(math.ceil(operator.k / self.wavelengths) / self.summed)
        rounds = math.ceil(operator.batch * row_blocks * column_blocks / (cores // self.cluster))
        first = operator.m * operator.k * column_blocks
        second = row_blocks * operator.k * operator.n
        conversions = math.ceil(depth / self.temporal_accumulation)
        symbols = operator.batch * (first + second)
        return Events(
            cycles=rounds * depth,
            symbols=symbols,
            samples=operator.batch * operator.m * operator.n * conversions,
            operand_bytes=symbols * self.word_bytes,
        )

    def parts(self) -> tuple[Part, ...]:
        """Return the parts list of one core.

        Notes
        -----
        The laser cannot be switched within a step, rings are held on resonance, receivers stay biased, for
        operands at full scale.
        """
        return self._parts(0.5 * self.detector.bias_w(self.link.pair_w))

    def _parts(self, biased_w: float) -> tuple[Part, ...]:
        """Return the parts list, with a bias power of each detector, which depends on the light."""
        trees, fill = (self.rows + self.columns) * max(self.rows, self.columns), self.layout.node_fill
        held_w = self.phase_shifter.hold_w(QUARTER_TURN_RAD)
        rings = 2.0 * self.modulators
        return (
            *source_parts(self, lines=self.wavelengths, comb=self.comb),
            *converter_parts(self),
            Part("ring tuning", self.router, rings, self.router.tuning_w, within="modulator"),
            Part("photodetector", self.detector, 2.0 * self.nodes, biased_w, within="node", fill=fill),
            Part("tia", self.tia, self.receivers, self.tia.power_w),
            *readout_parts(self, self.readout),
            Part("phase hold", self.phase_shifter, self.nodes, held_w, within="node", fill=fill),
            *(
                Part("node", device, self.nodes, fill=fill)
                for device in (self.branch, self.coupler, self.crossing)
            ),
            Part("node", self.branch, trees),
        )


@cache
def default_crossbar() -> Crossbar:
    """Return LT's 12 x 12 core with 12 wavelengths at 5 GHz, in clusters of four by two, with our light.

    Notes
    -----
    The laser's power, 45 mW per line, is our choice: a cluster then stands under the power of an H100 beside
    its memory, which it does not with 120 mW, and receivers add 11 times the noise of the ADC.
    """
    return Crossbar(
        name="crossbar",
        rows=12,
        columns=12,
        wavelengths=12,
        symbol_rate_hz=to_si("symbol_rate_hz", 5.0, "GHz"),
        temporal_accumulation=3,
        broadcast=4,
        summed=2,
        laser_power_w=to_si("laser_power_w", 45.0, "mW"),
    )
