"""Number formats that make a core of few bits fit to train: block floating point, and residue numbers.

Each takes any core and is one itself (`FormattedCore`). A block is the operands of one analog sample: they
share a scale, and the samples of a sum are scaled and added digitally.

References
----------
A. Basumallik et al., "Adaptive block floating-point for analog deep learning hardware", arXiv:2205.06287.
C. Demirkiran et al., "Mirage: an RNS-based photonic accelerator for DNN training", arXiv:2311.17323.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache, cached_property

from optical.cores.core import Budget, Core, Reload, Work
from optical.cores.crossbar import Crossbar, default_crossbar
from optical.devices import Events, FormatLogic, Integrator, Part, Per, device_table
from optical.devices.devices import bytes_of_bits, shipped
from optical.devices.limits import Light
from optical.devices.parts import energy_j, merged
from optical.execution import AnalogSpec, Scale
from optical.execution.spec import Remainder, Residues, check_mantissas, largest_residue, residue_mean_square
from optical.noise.chip import CalibrationCost
from simulator.errors import ParameterError, check_choices, check_range, check_whole
from simulator.operators import MatMul, Phase
from simulator.units import to_si


def sample_count(operator: MatMul, analog_length: int) -> int:
    """Return the number of analog samples of a product."""
    return operator.batch * operator.m * operator.n * math.ceil(operator.k / analog_length)


def operand_elements(operator: MatMul) -> int:
    """Return the number of operand elements of a product."""
    return operator.batch * operator.k * (operator.m + operator.n)


def logic_parts(logic: FormatLogic, samples_hz: float) -> tuple[Part, ...]:
    """Return the electronics of a number format, as many lanes as its samples per second need."""
    return (
        Part("number format", logic, math.ceil(samples_hz / logic.rate_hz)),
        Part("number format", logic, 1, logic.element_j, Per.ELEMENT),
        Part("number format", logic, 1, logic.sample_j, Per.RESULT),
    )


@dataclass(frozen=True, kw_only=True)
class FormattedCore(ABC):
    """Base of cores that wrap another one: by default everything is that of the inner core."""

    name: str
    """Name shown in tables and messages."""
    core: Core
    """The core that multiplies."""

    @property
    def cluster(self) -> int:
        """Cores that share parts."""
        return self.core.cluster

    @property
    def holds_weights(self) -> bool:
        """Whether one operand is loaded while the other streams."""
        return self.core.holds_weights

    @property
    def symbol_rate_hz(self) -> float:
        """Symbols per second."""
        return self.core.symbol_rate_hz

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates per second of one core."""
        return self.core.peak_macs_per_s

    @property
    def operand_bytes_per_symbol(self) -> float:
        """Bytes that one core fetches from the buffer in one symbol at full load."""
        return self.core.operand_bytes_per_symbol

    @property
    def full_load(self) -> Events:
        """Events per second on one core with all parts at work."""
        return self.core.full_load

    @property
    def budget(self) -> Budget:
        """Budget of the light."""
        return self.core.budget

    @property
    def light(self) -> Light:
        """Light that limits are held against."""
        return self.core.light

    @property
    def calibration(self) -> CalibrationCost:
        """Cost of learning the errors of the chip."""
        return self.core.calibration

    @property
    def reload(self) -> Reload:
        """Time, energy and wear of loading one core."""
        return self.core.reload

    @property
    def effective_bits(self) -> float:
        """Effective bits of a full-scale sample with its converters; formats and transforms change none."""
        return self.core.effective_bits

    def parts(self) -> tuple[Part, ...]:
        """Return the parts list of one core."""
        return (*self.core.parts(), *self.format_parts)

    @cached_property
    def forward(self) -> AnalogSpec:
        """The core's record of a forward product, derived once."""
        return self.core.analog(Phase.FORWARD)

    @property
    def analog_length(self) -> int:
        """Products in one sample, hence elements of a block."""
        return self.forward.analog_length

    @property
    @abstractmethod
    def format_parts(self) -> tuple[Part, ...]:
        """Electronics of the format."""


@dataclass(frozen=True, kw_only=True)
class BlockFloatCore(FormattedCore):
    """Any core with adaptive block floating point: a scale for each vector of one sample's operands.

    Notes
    -----
    The gain before the ADC of the paper is the core's own `adc_range_sigma`, set per block. The rounding of a
    scale to bf16 is left out: it moves the grid by a part in 256, not the value.
    """

    name: str = "block_float"
    """Name shown in tables and messages."""
    logic: FormatLogic = shipped(FormatLogic, "block_float_logic")
    """Digital electronics of the format."""

    @property
    def _relative_bytes(self) -> float:
        """Bytes of operands with their scales over those without, dimensionless."""
        word_bytes = bytes_of_bits(self.forward.dac_bits)
        return 1.0 + self.logic.scale_bytes / (word_bytes * self.analog_length)

    @property
    def operand_bytes_per_symbol(self) -> float:
        """Bytes that one core fetches from the buffer in one symbol at full load."""
        return self.core.operand_bytes_per_symbol * self._relative_bytes

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return the errors of products of a phase: the inner core's, with scales of blocks."""
        return dataclasses.replace(self.core.analog(phase), scale=Scale.BLOCK)

    def work(self, operator: MatMul, cores: int) -> Work:
        """Return time, energy and wear of one product; the format is pipelined and takes no time."""
        work = self.core.work(operator, cores)
        events = Events(
            elements=operand_elements(operator), results=sample_count(operator, self.analog_length)
        )
        return dataclasses.replace(
            work,
            energy_j=merged(work.energy_j, energy_j(self.format_parts, events)),
            operand_bytes=work.operand_bytes * self._relative_bytes,
        )

    @property
    def samples_hz(self) -> float:
        """Samples that are scaled per second at full load."""
        return self.peak_macs_per_s / self.analog_length

    @cached_property
    def format_parts(self) -> tuple[Part, ...]:
        """Electronics of the format."""
        return logic_parts(self.logic, self.samples_hz)

    @property
    def full_load(self) -> Events:
        """Events per second on one core with all parts at work."""
        return dataclasses.replace(self.core.full_load, results=self.samples_hz)


@dataclass(frozen=True, kw_only=True)
class ResidueCore(FormattedCore):
    """Any core that multiplies integers remainder by remainder, exactly while noise stays below half a step.

    Notes
    -----
    Blocks share an exponent; their mantissas, integers up to q = 2^(b-1) - 1, are multiplied modulo each m. A
    sum of n products is below n q^2, which half of the moduli's product must exceed. On an amplitude core a
    remainder of magnitude up to r rides on a product scale of r^2 full scales, so a step is 1/r^2: unlike in
    Mirage, whose sums wrap around with the phase of light, noise must shrink with n and r. A known mean gain
    is taken out by the ADC's reference.
    """

    name: str = "residue"
    """Name shown in tables and messages."""
    moduli: tuple[int, ...]
    """Pairwise coprime."""
    mantissa_bits: int
    """Bits of a mantissa with its sign."""
    parallel: int
    """Copies of the core that work on different moduli at once; the other moduli follow in further passes."""
    remainder: Remainder = Remainder.ANALOG
    """Place at which the remainder of a sum is taken."""
    logic: FormatLogic = shipped(FormatLogic, "residue_logic")
    """Digital electronics of the format."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_range(self, "mantissa_bits", low=2)
        check_range(self, "parallel", low=1, high=len(self.moduli))
        check_whole(self, "mantissa_bits", "parallel")
        remedy = "add a modulus, or take fewer bits or a shorter sum"
        owner = f"ResidueCore '{self.name}'"
        check_mantissas(owner, self.moduli, self.analog_length, self.mantissa_bits, remedy)
        codes = 2.0**self.forward.dac_bits
        if max(self.moduli) > codes:
            msg = (
                f"{owner}: modulus {max(self.moduli)} is more than the {codes:g} codes of "
                "the operand converter; take smaller moduli or more bits"
            )
            raise ParameterError(msg)

    @property
    def passes(self) -> int:
        """Passes of one product through the cores."""
        return math.ceil(len(self.moduli) / self.parallel)

    @property
    def calibration(self) -> CalibrationCost:
        """Cost of learning the errors of all copies at once."""
        calibration = self.core.calibration
        return dataclasses.replace(calibration, energy_j=self.parallel * calibration.energy_j)

    @property
    def reload(self) -> Reload:
        """Time, energy and wear of loading all copies for one modulus each."""
        reload = self.core.reload
        return dataclasses.replace(reload, energy_j=self.parallel * reload.energy_j)

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates of whole numbers per second of one core."""
        return self.core.peak_macs_per_s / self.passes

    @property
    def operand_bytes_per_symbol(self) -> float:
        """Bytes that all copies fetch from the buffer in one symbol at full load."""
        return self.parallel * self.core.operand_bytes_per_symbol

    @cached_property
    def residues(self) -> Residues:
        """The moduli, and the noise of reading each remainder in its steps.

        Notes
        -----
        Remainders are spread evenly over their codes whatever the operands. With rho their mean square over
        r^2, a sample has the variance r^4 (thermal + 2 n rho (shot + encoding) + n rho^2 (rin + gains) + n
        rho (load + repeated)) / g^2 of the core's record, errors of the chip taken as if redrawn; the ADC
        adds (range / 2^ENOB)^2 / 12, its range being m or the whole sum, 2 n r^2.
        """
        return Residues(moduli=self.moduli, sigmas=tuple(self._sigma(self.forward, m) for m in self.moduli))

    def _sigma(self, spec: AnalogSpec, modulus: int) -> float:
        """Return the rms noise of reading a remainder, in its steps."""
        n, square, scale = spec.analog_length, residue_mean_square(modulus), largest_residue(modulus) ** 2
        light = spec.sample_noise.of(n, square) + n * square * spec.load_variance
        if spec.chip is not None:
            light += n * square**2 * (spec.chip.element_gain + spec.chip.output_gain)
            light += n * square * spec.chip.repeated_variance + 0.5 * n * square**2 * spec.chip.node_variance
        span = modulus if self.remainder is Remainder.ANALOG else 2.0 * n * scale
        read = (span * 2.0**-spec.adc_enob_bits) ** 2 / 12.0
        return math.sqrt(light * (scale / spec.product_gain) ** 2 + read)

    @property
    def effective_bits(self) -> float:
        """Effective bits of a full-scale sample: rounding of its mantissas, and misread remainders."""
        return self.residues.sum_bits(self.analog_length, self.mantissa_bits)

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return the errors of products of a phase: rounding of mantissas, and misread remainders."""
        rounding = self.core.analog(phase).rounding
        return AnalogSpec.of_residues(self.residues, self.analog_length, self.mantissa_bits, rounding)

    def work(self, operator: MatMul, cores: int) -> Work:
        """Return time, energy and wear of one product: the core's, once for each modulus."""
        work, count = self.core.work(operator, cores), len(self.moduli)
        elements = operand_elements(operator)
        results = sample_count(operator, self.analog_length)
        events = Events(elements=count * elements, results=count * results)
        cores_j = {part: count * energy for part, energy in work.energy_j.items()}
        return Work(
            light_s=self.passes * work.light_s,
            programming_s=self.passes * work.programming_s,
            energy_j=merged(cores_j, energy_j(self.format_parts, events)),
            operand_bytes=count * work.operand_bytes + elements / self.analog_length * self.logic.scale_bytes,
            writes=self.passes * work.writes,
        )

    @property
    def samples_hz(self) -> float:
        """Remainders that are read per second at full load."""
        return self.parallel * self.core.peak_macs_per_s / self.analog_length

    @cached_property
    def format_parts(self) -> tuple[Part, ...]:
        """Electronics of the format."""
        return logic_parts(self.logic, self.samples_hz)

    def parts(self) -> tuple[Part, ...]:
        """Return the parts list of one core, all its copies."""
        copies = (part.times(self.parallel if part.per is Per.CORE else 1) for part in self.core.parts())
        return (*copies, *self.format_parts)

    @property
    def full_load(self) -> Events:
        """Events per second on one core with all copies at work."""
        copy = self.core.full_load
        return Events(
            symbols=self.parallel * copy.symbols,
            samples=self.parallel * copy.samples,
            results=self.samples_hz,
        )


def in_residues(core: Core, name: str, *, moduli: tuple[int, ...], mantissa_bits: int) -> ResidueCore:
    """Return a core with residue numbers, a copy of it for each modulus, of today's electronics."""
    return ResidueCore(name=name, core=core, moduli=moduli, mantissa_bits=mantissa_bits, parallel=len(moduli))


@cache
def default_block_float() -> BlockFloatCore:
    """Return the default crossbar with block floating point."""
    return BlockFloatCore(core=default_crossbar())


def in_short_residues(core: Crossbar, name: str) -> ResidueCore:
    """Return a crossbar of short sums, four products each, with 4-bit mantissas and the moduli 3, 4, 5 and 7.

    Notes
    -----
    The moduli tell 420 numbers apart, and sums reach 196 to either side. Its lines have 8 times the plain
    crossbar's power and are 0.8 nm apart, its rings are 30 GHz wide and its gates open for half a symbol,
    which with today's parts makes a sample wrong less than once in 3,000; the power of a GPU allows no more
    light. Two cores share a modulator, not four, so that a cluster of all moduli fits the power of a GPU.
    """
    apart_m = to_si("spacing_m", 0.8, "nm")
    grid = None if core.chip.grid is None else dataclasses.replace(core.chip.grid, spacing_m=apart_m)
    crossbar = dataclasses.replace(
        core,
        chip=dataclasses.replace(core.chip, grid=grid),
        wavelengths=4,
        temporal_accumulation=1,
        summed=1,
        laser_power_w=8.0 * core.laser_power_w,
        broadcast=2,
        router=dataclasses.replace(core.router, linewidth_hz=to_si("linewidth_hz", 30.0, "GHz")),
        readout=dataclasses.replace(device_table().build(Integrator, "integrator"), window=0.5),
    )
    return in_residues(crossbar, name, moduli=(3, 4, 5, 7), mantissa_bits=4)


@cache
def default_residue() -> ResidueCore:
    """Return the default crossbar with residue numbers in short sums."""
    return in_short_residues(default_crossbar(), "residue")
