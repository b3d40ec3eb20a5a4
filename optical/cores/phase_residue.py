"""Residue numbers held as the phase of light: sums modulo m cost nothing, and wrap around by themselves.

References
----------
C. Demirkiran et al., "Mirage: an RNS-based photonic accelerator for DNN training", arXiv:2311.17323. Its
abstract was seen (residue numbers with block floating point, three moduli, a photonic tensor core that is
modular in the analog domain); groups of 16, rows of 32, the moduli 31, 32 and 33 and 10 GHz are recalled.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar

from optical.cores.core import PARTIAL_SUM_BYTES, Reload, TiledLoads, Work, tiled_loads
from optical.cores.phase_array import DigitSwitch, PhaseArray, PhaseLayout, PhaseSegment
from optical.cores.phase_readout import PhaseBudget, sigma_of_misreading
from optical.devices.devices import (
    Adder,
    Converter,
    Laser,
    PassiveElement,
    Photodetector,
    Tia,
    Waveguide,
    bytes_of_bits,
    device_table,
)
from optical.devices.receivers import InterferometerArms
from optical.execution import AnalogSpec, FormatLogic, Residues, Rounding, Scale
from optical.execution.residues import largest_mantissa
from optical.noise.chip import CalibrationCost
from optical.noise.detection import check_closes
from optical.noise.link_budget import bits_from_snr
from simulator.amounts import Amount, AmountT
from simulator.checks import check_range, check_whole
from simulator.errors import ParameterError
from simulator.operators import Phase, Products
from simulator.units import to_si

READINGS_PER_SAMPLE = 2
"""Quadratures."""
DECISION_ELEMENTS = 2
"""Small products that find the phase nearest to two quadratures, each priced as a remainder."""


@dataclass(frozen=True, kw_only=True)
class PhaseResidueCore:
    """A phase array with its number format: blocks of mantissas in, whole sums out.

    Notes
    -----
    Blocks of `core.length` products share an exponent; sums of mantissas up to q are below n q^2, which half
    of the moduli's product must exceed. Memory and buffer hold mantissas; remainders are formed beside the
    switches. One operand of every product is loaded, so each of the three products of training loads its own
    matrix: W, its transpose, and an activation or its gradient.
    """

    holds_weights: ClassVar[bool] = True
    """One operand is set into the segments."""
    cluster: ClassVar[int] = 1
    """Cores share nothing."""
    name: str = "phase_residue"
    """Name shown in tables and messages."""
    core: PhaseArray
    """The rows of phases."""
    mantissa_bits: int
    """Bits of a mantissa with its sign."""
    gradient_rounding: Rounding = Rounding.STOCHASTIC
    """How mantissas of gradient products are rounded."""
    adder: Adder
    """Digital accumulator of an output."""
    logic: FormatLogic
    """Digital electronics of the format."""

    def __post_init__(self) -> None:
        check_range(self, "mantissa_bits", low=2)
        check_whole(self, "mantissa_bits")
        largest, numbers = int(self.full_scale), math.prod(self.core.moduli)
        if 2 * largest + 1 > numbers:
            msg = (
                f"PhaseResidueCore '{self.name}': sums of {self.core.length} products of "
                f"{self.mantissa_bits}-bit mantissas reach {largest} to either side, and the moduli "
                f"{self.core.moduli} tell {numbers} numbers apart; raise the exponent, or take fewer bits or "
                "a shorter row"
            )
            raise ParameterError(msg)

    @property
    def full_scale(self) -> float:
        """Largest sum to either side, n q^2."""
        return float(self.core.length * largest_mantissa(self.mantissa_bits) ** 2)

    @property
    def symbol_rate_hz(self) -> float:
        """Symbols per second."""
        return self.core.symbol_rate_hz

    @property
    def calibration(self) -> CalibrationCost:
        """Return nothing: unlike parts are not modelled beyond the errors of phases that the array states."""
        return CalibrationCost()

    @property
    def analog_length(self) -> int:
        """Products in one sample, hence elements of a block."""
        return self.core.length

    @property
    def peak_macs_per_s(self) -> float:
        """Multiply-accumulates of whole numbers per second, loaded and fully used."""
        return self.core.length * self.core.rows * self.core.symbol_rate_hz

    @property
    def element_bytes(self) -> float:
        """Bytes of a mantissa with its share of the block's exponent."""
        return bytes_of_bits(self.mantissa_bits) + self.logic.scale_bytes / self.core.length

    @property
    def operand_bytes_per_symbol(self) -> float:
        """Bytes between buffer and core in one symbol: mantissas, and partial sums read and written."""
        return self.core.length * self.element_bytes + 2.0 * PARTIAL_SUM_BYTES * self.core.rows

    @cached_property
    def budget(self) -> PhaseBudget:
        """Budget of the light of a link that closes.

        Raises
        ------
        LinkError
            If it does not.
        """
        budget = PhaseBudget(channels=self.core.channels, full_scale=self.full_scale)
        weakest = budget.weakest
        check_closes(self.name, weakest.noise_ratio, weakest.path, self.core.all_rows)
        return budget

    @cached_property
    def residues(self) -> Residues:
        """The moduli, and the Gaussian noise that misreads each remainder as often as its phase is."""
        channels = self.budget.channels
        sigmas = tuple(sigma_of_misreading(channel.misreading) for channel in channels)
        return Residues(moduli=self.core.moduli, sigmas=sigmas)

    @property
    def effective_bits(self) -> float:
        """Effective bits of a full-scale sum: rounding of its mantissas, and remainders that are misread.

        Notes
        -----
        Full scale is n q^2. Rounding has the variance 1/12 per mantissa, times q^2 of its partner.
        """
        largest = largest_mantissa(self.mantissa_bits)
        noise = self.core.length * largest**2 / 6.0 + self.residues.error_variance
        return bits_from_snr(self.full_scale**2 / noise)

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return how a product of a phase comes out: mantissas' rounding, then exact but for misreadings."""
        return dataclasses.replace(
            AnalogSpec.ideal(),
            dac_bits=float(self.mantissa_bits),
            analog_length=self.core.length,
            scale=Scale.BLOCK,
            rounding=Rounding.NEAREST if phase is Phase.FORWARD else self.gradient_rounding,
            residues=self.residues,
        )

    @property
    def reload(self) -> Reload:
        """All units set at once, the digits of each in turn."""
        return Reload(
            time_s=self.core.load_s, energy_j=self.core.segments * self.core.segment_dac.conversion_j
        )

    def work(self, operator: Products, cores: int) -> Work:
        """Return time and energy of one product on so many cores."""
        core = self.core
        loads = tiled_loads(operator, inputs=core.length, outputs=core.rows, cores=cores)
        values = loads.streamed_values + loads.loaded_values
        return Work(
            light_s=loads.rounds * loads.streamed / core.symbol_rate_hz,
            programming_s=loads.rounds * self.reload.time_s,
            energy_j=self._streamed(loads.streamed_values, loads.samples)
            | {"programming": loads.tiles * self.reload.energy_j, "number format": self._format_j(loads)},
            operand_bytes=values * self.element_bytes + loads.partial_bytes,
            writes=loads.rounds,
        )

    def _streamed(self, values: AmountT, samples: AmountT) -> dict[str, AmountT]:
        """Return what so many streamed values and sums take, by part: energy, or power of rates."""
        core = self.core
        switched = 2.0 * core.row_digits * core.rows * core.switch.symbol_energy_j
        readings = READINGS_PER_SAMPLE * len(core.moduli)
        return {
            "modulator": values * switched,
            "adc": samples * (readings * core.adc.conversion_j),
            "adder": samples * self.adder.energy_j,
        }

    def _format_j(self, loads: TiledLoads) -> Amount:
        """Return the energy of forming remainders, of reading phases and of reconstructing sums.

        Notes
        -----
        A loaded value needs a remainder for each digit, as 2^d w modulo m is what is set.
        """
        moduli = len(self.core.moduli)
        formed = loads.streamed_values * moduli + loads.loaded_values * self.core.row_digits
        return formed * self.logic.element_j + loads.samples * self._read_j

    @property
    def _read_j(self) -> float:
        """Energy of deciding on a phase and of its share of the sum, of all moduli."""
        return len(self.core.moduli) * (DECISION_ELEMENTS * self.logic.element_j + self.logic.sample_j)

    def static_parts_w(self) -> dict[str, float]:
        """Return what one core draws whether or not it works, by part."""
        core = self.core
        return {
            "laser": core.laser_power_w / core.laser.wall_plug_efficiency,
            "ring tuning": 2.0 * core.segments * core.switch.tuning_w,
            "photodetector": 2.0 * READINGS_PER_SAMPLE * core.all_rows * core.detector.bias_w,
            "tia": READINGS_PER_SAMPLE * core.all_rows * core.tia.power_w,
        }

    def full_load_parts_w(self) -> dict[str, float]:
        """Return the dynamic power of one core by part when every symbol carries a vector."""
        core, moduli = self.core, len(self.core.moduli)
        values_hz, samples_hz = core.length * core.symbol_rate_hz, core.rows * core.symbol_rate_hz
        format_w = values_hz * moduli * self.logic.element_j + samples_hz * self._read_j
        return self._streamed(values_hz, samples_hz) | {"number format": format_w}

    def photonic_area_m2(self) -> dict[str, float]:
        """Return the area of one core's photonic parts."""
        core = self.core
        cell = (core.segment.area_m2 + 2.0 * core.switch.area_m2) / core.layout.node_fill
        receivers = core.hybrid.area_m2 + 2.0 * READINGS_PER_SAMPLE * core.detector.area_m2
        return {
            "laser": core.laser.area_m2,
            "units": core.segments * cell,
            "receivers": core.all_rows * (receivers + 2.0 * core.branch.area_m2),
        }

    def electronic_area_m2(self) -> dict[str, float]:
        """Return the area of one core's electronic parts."""
        core, samples_hz = self.core, self.core.all_rows * self.core.symbol_rate_hz
        adcs = READINGS_PER_SAMPLE * core.all_rows * core.adc.interleaved(core.symbol_rate_hz)
        return {
            "segment dac": core.units * core.segment_dac.area_m2,
            "adc": adcs * core.adc.area_m2,
            "tia": READINGS_PER_SAMPLE * core.all_rows * core.tia.area_m2,
            "adder": core.rows * self.adder.area_m2,
            "number format": math.ceil(samples_hz / self.logic.rate_hz) * self.logic.area_m2,
        }


@cache
def default_phase_residue() -> PhaseResidueCore:
    """Return 32 rows of 8 units for each of 15, 16 and 17 at 10 GHz, with 5-bit mantissas, of today's parts.

    Notes
    -----
    The moduli tell 4,080 numbers apart, and sums reach 1,800 to either side. The laser's power is our
    choice: samples are then wrong less than once in a million. Rows of 16 and the moduli 31, 32 and 33, which
    Mirage has as recalled, err six times in 100,000 on these parts at 1.6 W, and not ten times less at any
    power: their phases are half as far apart, and light passes 96 switched segments instead of 40.
    """
    table = device_table()
    array = PhaseArray(
        length=8,
        rows=32,
        exponent=4,
        symbol_rate_hz=to_si("symbol_rate_hz", 10.0, "GHz"),
        laser_power_w=to_si("laser_power_w", 50.0, "mW"),
        laser=table.build(Laser, "laser"),
        branch=table.build(PassiveElement, "y_branch"),
        switch=table.build(DigitSwitch, "digit_switch"),
        segment=table.build(PhaseSegment, "phase_segment"),
        waveguide=table.build(Waveguide, "si_waveguide"),
        hybrid=table.build(PassiveElement, "optical_hybrid"),
        arms=table.build(InterferometerArms, "interferometer_arms"),
        detector=table.build(Photodetector, "photodetector"),
        tia=table.build(Tia, "tia"),
        adc=table.build(Converter, "adc"),
        segment_dac=table.build(Converter, "segment_dac"),
        layout=table.build(PhaseLayout, "phase_layout"),
    )
    return PhaseResidueCore(
        core=array,
        mantissa_bits=5,
        adder=table.build(Adder, "adder"),
        logic=table.build(FormatLogic, "residue_logic"),
    )
