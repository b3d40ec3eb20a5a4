"""A mesh of Mach-Zehnder interferometers that holds a matrix as U S V*, heated into place.

Light in `ports` waveguides passes a rectangular mesh for V*, a column of attenuators for S and a mesh for U;
every output is read beside a local oscillator, so signs are native on both sides. A matrix is loaded by its
singular value decomposition and by heating two phase shifters in each of ports^2 interferometers.

References
----------
Shen et al., "Deep learning with coherent nanophotonic circuits", Nature Photonics 11 (2017) 441: the core.
Clements et al., "Optimal design for universal multiport interferometers", Optica 3 (2016) 1460: the mesh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from typing import ClassVar

from optical.cores.analog_core import AnalogCore
from optical.cores.array_errors import ArrayShape, default_chip, mismatch_ratio, on_chip
from optical.cores.core import PARTIAL_SUM_BYTES, Reload, TiledLoads, Work, converted, tiled_loads
from optical.cores.mesh_errors import RealMatrixError
from optical.devices.devices import (
    Adder,
    Converter,
    Laser,
    Modulator,
    PassiveElement,
    Photodetector,
    Tia,
    Waveguide,
    bytes_of_bits,
    device_table,
)
from optical.devices.phase_shifters import MEAN_PHASE_RAD, CapacitiveShifter, CarrierShifter
from optical.devices.programmable import Decomposer, Heater, MeshCoupler, MeshLayout, programmable_table
from optical.execution import AnalogSpec, Rounding
from optical.noise.amplifiers import amplifier_m2, amplifier_w, source_of
from optical.noise.chip import CalibrationCost, Chip, calibration_cost
from optical.noise.detection import OscillatorBudget, Receiver, check_closes
from optical.noise.laser_power import NoiseRatio, converter_ratios
from optical.noise.link_budget import UNIFORM_MEAN_SQUARE, Element
from optical.transfer.layout import MeshLayout as MeshPositions
from optical.transfer.selfconfiguration import Calibration
from simulator.amounts import Amount, choose
from simulator.checks import check_positive, check_range, check_whole
from simulator.operators import Held, Phase, Products
from simulator.units import ratio_from_db, to_si

SVD_FLOPS = 21.0
"""Operations over N^3 of a singular value decomposition with both sides (Golub and Van Loan, section 8.6)."""
ROTATION_FLOPS = 6.0
"""Operations over N^3 of splitting both unitaries into N^2/2 rotations each, 6 per pair of elements."""


class Configuration(StrEnum):
    """How the phases of a mesh are found."""

    IDEAL = "ideal"
    CORRECTED = "corrected"


@dataclass(frozen=True, kw_only=True)
class MziMesh(AnalogCore):
    """One mesh with its modulators, receivers, heaters and the unit that computes their phases."""

    holds_weights: ClassVar[bool] = True
    """One operand is heated into the mesh."""
    cluster: ClassVar[int] = 1
    """Meshes share nothing."""
    name: str = "mzi_mesh"
    """Name shown in tables and messages."""
    ports: int
    """Inputs, and outputs."""
    oscillator_share: float = 0.5
    """Share of it that goes to the receivers' local oscillators, 0 to 1; a design choice."""
    configuration: Configuration = Configuration.IDEAL
    """Whether phases allow for the errors of the couplers, which a calibration has measured."""
    modulator: Modulator
    """One per input."""
    coupler: MeshCoupler
    """Two per interferometer."""
    heater: Heater | CapacitiveShifter | CarrierShifter
    """Phase shifter, two per interferometer, however it shifts."""
    detector: Photodetector
    """Two per output."""
    tia: Tia
    """One per output."""
    heater_dac: Converter
    """One per heater."""
    decomposer: Decomposer
    """Digital unit that computes phases."""
    layout: MeshLayout
    """Where things stand."""
    chip: Chip = field(default_factory=default_chip)
    """How unlike parts of a kind are, and which outputs fluctuate together."""

    def __post_init__(self) -> None:
        check_range(self, "ports", low=2)
        check_whole(self, "ports")
        check_positive(self, "symbol_rate_hz", "laser_power_w", "adc_range_sigma", "oscillator_share")
        check_range(self, "oscillator_share", high=0.99)

    @property
    def interferometers(self) -> int:
        """Two triangles of N(N-1)/2, and N attenuators."""
        return self.ports**2

    @property
    def depth(self) -> int:
        """Interferometers that light passes: N for each rectangular mesh, and an attenuator."""
        return 2 * self.ports + 1

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second, loaded and fully used."""
        return self.ports**2 * self.symbol_rate_hz

    @property
    def path(self) -> tuple[Element, ...]:
        """Losses of the signal from source to detector."""
        splits = math.ceil(math.log2(self.ports)) + 1
        each_db = 2.0 * (self.coupler.insertion_loss_db + self.heater.loss_db(MEAN_PHASE_RAD))
        length_m = self.layout.feed_length_m + self.depth * self.layout.stage_length_m
        return (
            Element(name="coupling", loss_db=self.laser.coupling_loss_db),
            Element(name=self.modulator.name, loss_db=self.modulator.insertion_loss_db),
            Element(name=f"{splits} x {self.branch.name}", loss_db=splits * self.branch.insertion_loss_db),
            Element(name=f"{self.depth} x interferometer", loss_db=self.depth * each_db),
            Element(name=self.waveguide.name, loss_db=self.waveguide.loss_db_per_m * length_m),
        )

    @cached_property
    def link(self) -> OscillatorBudget:
        """Budget of the light, whether or not the link closes."""
        source = source_of(self)
        splits = math.ceil(math.log2(self.ports)) + 1
        return OscillatorBudget(
            elements=self.path,
            oscillator_loss_db=self.laser.coupling_loss_db + splits * self.branch.insertion_loss_db,
            launch_w=source.launch_w,
            oscillator_share=self.oscillator_share,
            length=self.ports,
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
    def budget(self) -> OscillatorBudget:
        """Budget of the light of a link that closes.

        Raises
        ------
        LinkError
            If it does not.
        """
        check_closes(self.name, self.link.noise_ratio, self.path, self.ports)
        return self.link

    @property
    def phase_error_rad(self) -> float:
        """Standard deviation of a heater's phase: converter, drift and neighbours.

        Notes
        -----
        The converter spans 2 pi in steps of its effective bits, and is wrong by step/sqrt(12).
        """
        grid = 2.0 * math.pi / 2.0**self.heater_dac.enob_bits / math.sqrt(12.0)
        return math.hypot(grid, self.heater.drift_rad, self.heater.crosstalk_rad(self.layout.spacing_m))

    @cached_property
    def matrix_error(self) -> RealMatrixError:
        """Laws of the realised matrix's error."""
        return RealMatrixError(
            ports=self.ports,
            phase_rad=self.phase_error_rad,
            coupler_rad=self.coupler.angle_error_rad,
            amplitude=self.heater.amplitude_spread,
        )

    @property
    def coupler_error(self) -> float:
        """Rms error of the realised matrix by its couplers over its rms entry: fixed for chip and matrix."""
        law = self.matrix_error
        return law.corrected if self.configuration is Configuration.CORRECTED else law.uncorrected

    @property
    def relative_matrix_error(self) -> float:
        """Rms error of the realised matrix over its rms entry: couplers, phases, fading, dimensionless."""
        return math.hypot(self.coupler_error, self.matrix_error.phases, self.matrix_error.amplitudes)

    @property
    def load_variance(self) -> float:
        """Error of a loaded weight by phases, in full scales squared, for weights spread over [-1, 1]."""
        return self.matrix_error.phases**2 * UNIFORM_MEAN_SQUARE

    @property
    def calibration(self) -> CalibrationCost:
        """Fringes of every interferometer of both meshes; the couplers' too if phases are to allow for them.

        Notes
        -----
        The two meshes are measured one after the other, every output at once.
        """
        knows = self.configuration is Configuration.CORRECTED
        settings = 2.0 * Calibration(knows_couplers=knows).settings(MeshPositions(modes=self.ports))
        readings = settings * max(1, self.chip.averages)
        return calibration_cost(self, settings=settings, settling_s=self.reload.time_s, readings=readings)

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a full-scale sample: light, converters, wrong weights."""
        others = converter_ratios(self.dac, self.adc, self.ports) | mismatch_ratio(self)
        wrong = self.relative_matrix_error**2 * UNIFORM_MEAN_SQUARE
        return self.link.noise_ratio.joined(others | {"wrong weights": wrong / self.ports})

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
        """
        grid, effective = (4.0**-bits / 3.0 for bits in (self.dac.nominal_bits, self.dac.enob_bits))
        blind = self.configuration is Configuration.IDEAL
        spec = AnalogSpec(
            dac_bits=self.dac.nominal_bits,
            adc_bits=self.adc.nominal_bits,
            adc_enob_bits=self.adc.enob_bits,
            adc_range_sigma=self.adc_range_sigma,
            analog_length=self.ports,
            thermal_variance=self.budget.thermal_variance,
            shot_variance=0.0,
            rin_variance=self.budget.rin_variance,
            encoding_variance=effective - grid,
            load_variance=self.load_variance,
            product_gain=self.matrix_error.uncorrected_gain if blind else 1.0,
            rounding=Rounding.NEAREST if phase is Phase.FORWARD else self.gradient_rounding,
        )
        couplers = self.coupler_error**2 * UNIFORM_MEAN_SQUARE
        return on_chip(spec, self, rin_ratio=self.link.receiver.rin_ratio, repeated_variance=couplers)

    @property
    def array(self) -> ArrayShape:
        """Parts and light: one laser for all inputs and oscillators."""
        return ArrayShape(rows=1, columns=(n := self.ports), length=n, holds_weights=True, lit_length=n)

    @property
    def reload(self) -> Reload:
        """All heaters set at once."""
        heaters = 2.0 * self.interferometers
        return Reload(
            time_s=self.heater.settling_s + 1.0 / self.heater_dac.rate_hz,
            energy_j=heaters * (self.heater_dac.conversion_j + self.heater.setting_j),
        )

    @property
    def decomposition_flops(self) -> float:
        """Operations that turn a matrix into phases."""
        return (SVD_FLOPS + ROTATION_FLOPS) * float(self.ports) ** 3

    def work(self, operator: Products, cores: int) -> Work:
        """Return time and energy of one product on so many cores.

        Notes
        -----
        A weight's phases are kept in memory, two for each weight, from one update to the next; finding them
        once a step takes 27 N operations per weight and is not charged (a step does 6 per weight and token).
        Any other matrix that is loaded - an activation or its gradient - is decomposed first.
        """
        loads = tiled_loads(operator, inputs=self.ports, outputs=self.ports, cores=cores)
        loaded_a, loaded_b = (
            0.0 if operator.held is held else self.decomposition_flops for held in (Held.A, Held.B)
        )
        flops: Amount = choose(loads.second, loaded_b, loaded_a)
        each_s = self.reload.time_s + flops / self.decomposer.rate_flop_per_s
        word_bytes = bytes_of_bits(self.dac.nominal_bits)
        loaded_bytes = 2.0 * loads.loaded_values * bytes_of_bits(self.heater_dac.nominal_bits)
        return Work(
            light_s=loads.rounds * loads.streamed / self.symbol_rate_hz,
            programming_s=loads.rounds * each_s,
            energy_j=converted(self, loads.streamed_values, loads.samples) | self._loaded(loads, flops),
            operand_bytes=loads.streamed_values * word_bytes + loaded_bytes + loads.partial_bytes,
            writes=loads.rounds,
        )

    def _loaded(self, loads: TiledLoads, flops: Amount) -> dict[str, Amount]:
        return {
            "programming": loads.tiles * self.reload.energy_j,
            "decomposition": loads.tiles * flops * self.decomposer.energy_j_per_flop,
        }

    @property
    def operand_bytes_per_symbol(self) -> float:
        """Bytes between converters and buffer in one symbol: inputs, and partial sums read and written."""
        return self.ports * (bytes_of_bits(self.dac.nominal_bits) + 2.0 * PARTIAL_SUM_BYTES)

    def static_parts_w(self) -> dict[str, float]:
        """Return what one core draws whether or not it works, by part.

        Notes
        -----
        Phases of a random matrix spread evenly over [0, 2 pi): on average each heater holds pi.
        """
        return {
            "laser": self.laser_power_w / self.laser.wall_plug_efficiency,
            "phase hold": 2.0 * self.interferometers * self.heater.hold_w(MEAN_PHASE_RAD),
            "photodetector": 2.0 * self.ports * self.detector.bias_w,
            "tia": self.ports * self.tia.power_w,
        } | amplifier_w(self)

    def full_load_parts_w(self) -> dict[str, float]:
        """Return the dynamic power of one core by part when every symbol carries a vector."""
        rate_hz = self.ports * self.symbol_rate_hz
        return converted(self, rate_hz, rate_hz)

    def photonic_area_m2(self) -> dict[str, float]:
        """Return the area of one core's photonic parts."""
        cell = 2.0 * (self.heater.area_m2 + self.coupler.area_m2) / self.layout.cell_fill
        return {
            "laser": self.laser.area_m2,
            "modulator": self.ports * self.modulator.area_m2,
            "interferometers": self.interferometers * cell,
            "receivers": self.ports * (2.0 * self.detector.area_m2 + 2.0 * self.branch.area_m2),
        } | amplifier_m2(self)

    def electronic_area_m2(self) -> dict[str, float]:
        """Return the area of one core's electronic parts."""
        return {
            "dac": self.ports * self.dac.interleaved(self.symbol_rate_hz) * self.dac.area_m2,
            "heater dac": 2.0 * self.interferometers * self.heater_dac.area_m2,
            "adc": self.ports * self.adc.interleaved(self.symbol_rate_hz) * self.adc.area_m2,
            "tia": self.ports * self.tia.area_m2,
            "adder": self.ports * self.adder.area_m2,
            "decomposer": self.decomposer.area_m2,
        }


@cache
def default_mesh() -> MziMesh:
    """Return a mesh of 32 ports at 5 GHz from today's parts.

    Notes
    -----
    The laser's power is our choice: for evenly spread operands the receiver then adds about as much noise as
    the ADC does (a test holds this to a factor of two).
    """
    table, programmable = device_table(), programmable_table()
    return MziMesh(
        ports=32,
        symbol_rate_hz=to_si("symbol_rate_hz", 5.0, "GHz"),
        laser_power_w=to_si("laser_power_w", 40.0, "mW"),
        laser=table.build(Laser, "laser"),
        modulator=table.build(Modulator, "mzm"),
        branch=table.build(PassiveElement, "y_branch"),
        coupler=programmable.build(MeshCoupler, "mesh_coupler"),
        heater=programmable.build(Heater, "heater"),
        waveguide=table.build(Waveguide, "si_waveguide"),
        detector=table.build(Photodetector, "photodetector"),
        tia=table.build(Tia, "tia"),
        dac=table.build(Converter, "dac"),
        adc=table.build(Converter, "adc"),
        adder=table.build(Adder, "adder"),
        heater_dac=programmable.build(Converter, "heater_dac"),
        decomposer=programmable.build(Decomposer, "decomposer"),
        layout=programmable.build(MeshLayout, "mesh_layout"),
    )
