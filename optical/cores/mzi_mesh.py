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

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from typing import ClassVar

from optical.cores.analog import (
    DEFAULT_MODULATOR,
    AnalogCore,
    ArrayShape,
    converter_parts,
    default_chip,
    readout_parts,
    receiver_of,
    source_parts,
)
from optical.cores.core import Reload, streaming_events, tiled_loads
from optical.devices import (
    Converter,
    Events,
    Integrator,
    Modulator,
    Part,
    Per,
    Photodetector,
    Sampler,
    Tia,
    programmable_table,
    shipped,
)
from optical.devices.devices import bytes_of_bits
from optical.devices.named_parts import named_parts_table
from optical.devices.programmable import (
    MEAN_PHASE_RAD,
    CapacitiveShifter,
    CarrierShifter,
    Decomposer,
    Heater,
    MeshCoupler,
    MeshLayout,
)
from optical.devices.waveguides import Routing
from optical.execution import AnalogSpec
from optical.execution.spec import PassiveTile
from optical.noise.chip import CalibrationCost, Chip
from optical.noise.link_budget import Element, OscillatorBudget, elements_of
from optical.transfer.mesh import Calibration
from optical.transfer.mesh import MeshLayout as MeshPositions
from simulator.errors import Checked, Several, check_positive, check_range
from simulator.operators import Held, MatMul, Phase
from simulator.units import to_si

SVD_FLOPS = 21.0
"""Operations over N^3 of a singular value decomposition with both sides (Golub and Van Loan, section 8.6)."""
ROTATION_FLOPS = 6.0
"""Operations over N^3 of splitting both unitaries into N^2/2 rotations each, 6 per pair of elements."""


class Configuration(StrEnum):
    """Phases of a mesh as they are found: as if its couplers were perfect, or allowing for their errors."""

    IDEAL = "ideal"
    CORRECTED = "corrected"


@dataclass(frozen=True, kw_only=True)
class RealMatrixError(Checked):
    """Expected errors of U S V*, U and V real and Haar-random, for small errors; rms over the rms entry.

    Notes
    -----
    The laws of `optical.transfer.mesh` are those of complex unitary matrices. A weight is real,
    so are both factors of its singular value decomposition, and a receiver beside a local oscillator sees one
    quadrature: most of what errors of first order add stands in the other one.

    Phases. Every phase that is wrong by d changes a mesh by a matrix of norm d. At an input that matrix is
    imaginary. Between two couplers half of it is a common phase, imaginary, and half a rotation, real, of
    norm^2 d^2/2. Of N(N-1)/2 interferometers in each of two meshes, over the N rows, (N-1) d^2/2 is seen.
    A shifter that lets a share 1 + d of the field through is the same turned by 90 degrees: what was hidden
    is seen, of the inside half, and with it the outputs': 3 (N-1) d^2/2 + 2 d^2 in all.

    Couplers, uncorrected. A coupler that is wrong by e turns two modes in the imaginary direction, norm^2 2
    e^2, so that each mesh is wrong by a relative square of x = 2 (N-1) e^2 there. What is seen is of second
    order: the mean exp(-x/2) for each mesh, hence exp(-x) together, a gain; products of two different
    couplers of one mesh, x^2/2; and of one coupler of each, x^2. The square of the error is 2 x^2.

    Couplers, corrected. An interferometer of rank k has to pass an amplitude r straight with r^2 ~ Beta(1/2,
    k/2) (rows of a random orthogonal matrix; of a unitary one Beta(1, k)), of density 2/B(1/2, k/2) at 0, and
    cannot pass less than |e1 + e2|. What is missed is real: 2 (|e1 + e2| - r)^2 on average over r and e, for
    N - k interferometers of rank k, gives a square that grows as N^1.5 e^3. It falls more slowly than
    the uncorrected one: correction is for errors that are not small, sqrt(N) e above about 0.16, and for
    complex matrices.

    References
    ----------
    S. Bandyopadhyay, R. Hamerly, D. Englund, Optica 8 (2021) 1247: correction and its limit, for unitary
    matrices. N. J. Russell et al., New J. Phys. 19 (2017) 033007: densities of splits. The real case is
    ours; a Monte Carlo with the transfer matrices agrees.
    """

    ports: Several
    """Inputs, and outputs."""
    phase_rad: float
    """Standard deviation of every phase."""
    coupler_rad: float
    """Standard deviation of every coupler's angle."""
    amplitude: float = 0.0
    """Relative standard deviation of the field that every shifter lets through, dimensionless."""

    @property
    def phases(self) -> float:
        """Error by wrong phases."""
        return math.sqrt((self.ports - 1) / 2.0) * self.phase_rad

    @property
    def amplitudes(self) -> float:
        """Error by shifters that let unlike shares of the field through."""
        return math.sqrt(1.5 * (self.ports - 1) + 2.0) * self.amplitude

    @property
    def hidden(self) -> float:
        """Mean square of the field that couplers of one mesh put into the other quadrature, relative."""
        return 2.0 * (self.ports - 1) * self.coupler_rad**2

    @property
    def uncorrected(self) -> float:
        """Error by couplers that phases do not allow for, beside the gain."""
        return math.sqrt(2.0) * self.hidden

    @property
    def uncorrected_gain(self) -> float:
        """Mean of the matrix by those couplers."""
        return math.exp(-self.hidden)

    @property
    def corrected(self) -> float:
        """Error by couplers after phases allow for them as far as they can."""
        least_cube = (2.0 * self.coupler_rad**2) ** 1.5 * 2.0 * math.sqrt(2.0 / math.pi)
        ranks = range(1, self.ports)
        density = math.fsum((self.ports - rank) * _density_at_zero(rank) for rank in ranks)
        return math.sqrt(2.0 * (2.0 / 3.0) * least_cube * density / self.ports)


def _density_at_zero(rank: int) -> float:
    """Return the density at 0 of an amplitude whose square is Beta(1/2, rank/2)."""
    beta = math.lgamma(0.5) + math.lgamma(rank / 2.0) - math.lgamma((rank + 1) / 2.0)
    return 2.0 * math.exp(-beta)


@dataclass(frozen=True, kw_only=True)
class MziMesh(AnalogCore):
    """One mesh with its modulators, receivers, heaters and the unit that computes their phases."""

    holds_weights: ClassVar[bool] = True
    """One operand is heated into the mesh."""
    counts: ClassVar[tuple[str, ...]] = ("ports",)
    """Fields that must be whole numbers from 1."""
    name: str = "mzi_mesh"
    """Name shown in tables and messages."""
    ports: int
    """Inputs, and outputs."""
    oscillator_share: float = 0.5
    """Share of the laser's power that goes to the receivers' local oscillators, 0 to 1; a design choice."""
    configuration: Configuration = Configuration.IDEAL
    """Whether phases allow for the errors of the couplers, which a calibration has measured."""
    modulator: Modulator = shipped(Modulator, DEFAULT_MODULATOR, named_parts_table)
    """One per input."""
    coupler: MeshCoupler = shipped(MeshCoupler, "mesh_coupler", programmable_table)
    """Two per interferometer."""
    heater: Heater | CapacitiveShifter | CarrierShifter = shipped(Heater, "heater", programmable_table)
    """Phase shifter, two per interferometer, however it shifts."""
    detector: Photodetector = shipped(Photodetector, "photodetector")
    """Two per output."""
    tia: Tia = shipped(Tia, "tia")
    """One per output."""
    readout: Integrator | Sampler = shipped(Sampler, "sampler")
    """Readout of the amplifier."""
    heater_dac: Converter = shipped(Converter, "heater_dac", programmable_table)
    """One per heater."""
    decomposer: Decomposer = shipped(Decomposer, "decomposer", programmable_table)
    """Digital unit that computes phases."""
    layout: MeshLayout = shipped(MeshLayout, "mesh_layout", programmable_table)
    """Layout of the mesh."""
    chip: Chip = field(default_factory=default_chip)
    """Spread of like parts, and the outputs that share noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "ports", low=2)
        check_positive(self, "oscillator_share")
        check_range(self, "oscillator_share", high=0.99)

    @property
    def modulators(self) -> int:
        """Inputs, each with a modulator and a DAC."""
        return self.ports

    @property
    def receivers(self) -> int:
        """Outputs, each with an amplifier and an ADC."""
        return self.ports

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
    def analog_length(self) -> int:
        """Products in one ADC sample."""
        return self.ports

    @property
    def splits(self) -> int:
        """Splitters that the signal, and an oscillator, passes."""
        return math.ceil(math.log2(self.ports)) + 1

    @property
    def cell_m2(self) -> float:
        """Area of the cell of an interferometer, which its devices fill in part."""
        return 2.0 * (self.heater.area_m2 + self.coupler.area_m2) / self.layout.cell_fill

    @property
    def column_m(self) -> float:
        """Length of one column of interferometers."""
        return math.sqrt(self.cell_m2 * self.layout.cell_aspect)

    @property
    def heaters_apart_m(self) -> float:
        """Distance between neighbouring heaters, two across a cell."""
        return 0.5 * math.sqrt(self.cell_m2 / self.layout.cell_aspect)

    @property
    def guided(self) -> Routing:
        """Waveguides of the signal; the oscillators' share leaves it behind the feed."""
        return self.routing(
            feed_m=self.layout.feed_length_m, array_m=self.depth * self.column_m, guides=float(self.ports)
        )

    @property
    def path(self) -> tuple[Element, ...]:
        """Losses of the signal from source to detector."""
        each_db = 2.0 * (self.coupler.insertion_loss_db + self.heater.loss_db(MEAN_PHASE_RAD))
        return elements_of(
            (
                ("coupling", 1, self.laser.coupling_loss_db),
                (self.modulator.name, 1, self.modulator_loss_db),
                (self.branch.name, self.splits, self.branch.insertion_loss_db),
                ("interferometer", self.depth, each_db),
                *self.guided.losses,
            )
        )

    @cached_property
    def link(self) -> OscillatorBudget:
        """Budget of the light, whether or not the link closes."""
        source = self.source()
        return OscillatorBudget(
            elements=self.path,
            split=self.ports,
            oscillator_loss_db=self.laser.coupling_loss_db
            + self.guided.feed_db
            + self.splits * self.branch.insertion_loss_db,
            launch_w=source.launch_w,
            oscillator_share=self.oscillator_share,
            length=self.ports,
            receiver=receiver_of(self, self.detector, self.tia, self.readout, source),
        )

    @property
    def phase_error_rad(self) -> float:
        """Standard deviation of a heater's phase: converter, drift and neighbours.

        Notes
        -----
        The converter spans 2 pi in steps of its effective bits, and is wrong by step/sqrt(12).
        """
        grid = 2.0 * math.pi / 2.0**self.heater_dac.enob_bits / math.sqrt(12.0)
        return math.hypot(grid, self.heater.drift_rad, self.heater.crosstalk_rad(self.heaters_apart_m))

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
        """Error of a loaded weight by phases, over the mean square of its tile."""
        return self.matrix_error.phases**2

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
        return self.calibrated(settings=settings, settling_s=self.reload.time_s, readings=readings)

    @property
    def weight_noise(self) -> Mapping[str, float]:
        """Noise over signal of a full-scale sample by wrong weights."""
        return {"wrong weights": self.relative_matrix_error**2 / self.ports}

    def output_record(self, phase: Phase) -> AnalogSpec:
        """Return the record of one output by itself; couplers not allowed for scale the matrix."""
        blind = self.configuration is Configuration.IDEAL
        gain = self.matrix_error.uncorrected_gain if blind else 1.0
        record = super().output_record(phase)
        tile = PassiveTile(outputs=self.ports, norm_variance=self.link.norm_variance)
        return dataclasses.replace(record, load_variance=self.load_variance, product_gain=gain, tile=tile)

    @property
    def repeated_variance(self) -> float:
        """Error of a loaded weight by couplers, over the mean square of its tile."""
        return self.coupler_error**2

    @property
    def array(self) -> ArrayShape:
        """Parts and light: one laser for all inputs and oscillators."""
        return ArrayShape(rows=1, columns=(n := self.ports), length=n, holds_weights=True, lit_length=n)

    @cached_property
    def reload(self) -> Reload:
        """All heaters set at once."""
        settling_s = self.heater.settling_s + 1.0 / self.heater_dac.rate_hz
        return Reload(time_s=settling_s, energy_j=self.load_energy_j(self.interferometers))

    @property
    def decomposition_flops(self) -> float:
        """Operations that turn a matrix into phases."""
        return (SVD_FLOPS + ROTATION_FLOPS) * float(self.ports) ** 3

    def events(self, operator: MatMul, cores: int) -> Events:
        """Return the events (uses of parts) of one product on a number of cores.

        Notes
        -----
        A weight's phases are kept in memory, two for each weight, from one update to the next; finding them
        once a step takes 27 N operations per weight and is not charged (a step does 6 per weight and token).
        Any other matrix that is loaded - an activation or its gradient - is decomposed first.
        """
        loads = tiled_loads(operator, inputs=self.ports, outputs=self.ports, cores=cores)
        is_weight = operator.held is (Held.B if loads.second else Held.A)
        flops = 0.0 if is_weight else self.decomposition_flops
        loaded_bytes = 2.0 * bytes_of_bits(self.heater_dac.nominal_bits)
        return dataclasses.replace(
            streaming_events(loads, word_bytes=self.word_bytes, loaded_bytes=loaded_bytes),
            operations=loads.tiles * flops,
            prepared_s=loads.rounds * flops / self.decomposer.rate_flop_per_s,
        )

    def parts(self) -> tuple[Part, ...]:
        """Return the parts list of one core.

        Notes
        -----
        Phases of a random matrix spread evenly over [0, 2 pi): on average each heater holds pi.
        """
        heaters, fill, outputs = 2.0 * self.interferometers, self.layout.cell_fill, self.receivers
        held_w = self.heater.hold_w(MEAN_PHASE_RAD)
        biased_w = 0.5 * self.detector.bias_w(self.link.pair_w)
        return (
            *source_parts(self),
            *converter_parts(self),
            Part("programming", self.heater_dac, heaters, self.heater_dac.conversion_j, Per.LOAD),
            Part("programming", self.heater, heaters, self.heater.setting_j, Per.LOAD),
            Part("decomposition", self.decomposer, 1, self.decomposer.energy_j_per_flop, Per.OPERATION),
            Part("phase hold", self.heater, heaters, held_w, within="interferometers", fill=fill),
            Part("interferometers", self.coupler, heaters, fill=fill),
            Part("photodetector", self.detector, 2.0 * outputs, biased_w, within="receivers"),
            Part("receivers", self.branch, 2.0 * outputs),
            Part("tia", self.tia, outputs, self.tia.power_w),
            *readout_parts(self, self.readout),
            Part("heater dac", self.heater_dac, heaters),
            Part("decomposer", self.decomposer, 1),
        )


@cache
def default_mesh() -> MziMesh:
    """Return a mesh of 32 ports at 5 GHz from today's parts.

    Notes
    -----
    The laser's power is our choice: for evenly spread operands the receiver then adds about as much noise as
    the ADC does (a test holds this to a factor of two).
    """
    return MziMesh(
        ports=32,
        symbol_rate_hz=to_si("symbol_rate_hz", 5.0, "GHz"),
        laser_power_w=to_si("laser_power_w", 100.0, "mW"),
    )
