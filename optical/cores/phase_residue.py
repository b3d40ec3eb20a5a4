"""Residue numbers held as the phase of light, whose sums wrap around by themselves, and their reading.

A remainder r of modulus m is the phase 2 pi r / m. Sums and products wrap around as phases do, so unlike an
amplitude a phase need not grow finer with the length of a sum; only its loss and its errors add up.

References
----------
C. Demirkiran et al., "Mirage: an RNS-based photonic accelerator for DNN training", arXiv:2311.17323. Its
abstract was seen (residue numbers with block floating point, three moduli, a photonic tensor core that is
modular in the analog domain); groups of 16, rows of 32, the moduli 31, 32 and 33 and 10 GHz are recalled.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar

import numpy as np
import scipy

from optical.cores.analog import DEFAULT_FEED
from optical.cores.core import PARTIAL_SUM_BYTES, Reload, Work, streaming_events, tiled_loads, work_of
from optical.devices import (
    Converter,
    Events,
    FormatLogic,
    Integrator,
    Laser,
    Part,
    PassiveElement,
    Per,
    Photodetector,
    Sampler,
    Tia,
    Waveguide,
)
from optical.devices.devices import Adder, InterferometerArms, bytes_of_bits, shipped
from optical.devices.limits import Light, bits_of_noise
from optical.devices.named_parts import named_parts_table
from optical.devices.parts import Device, Named
from optical.devices.waveguides import Routing
from optical.execution import AnalogSpec, Rounding
from optical.execution.spec import Residues, any_of, check_mantissas, largest_code
from optical.noise.chip import CalibrationCost
from optical.noise.link_budget import Element, NoiseRatio, absorbed_db, check_closes, elements_of, loss_db
from optical.noise.receiver import Receiver, Symbols
from simulator.amounts import Reals
from simulator.errors import (
    Checked,
    Count,
    Efficiency,
    Positive,
    Several,
    check_choices,
    check_positive,
    check_range,
    check_whole,
)
from simulator.operators import MatMul, Phase
from simulator.units import ratio_from_db, to_si


def phase_misreading(noise: Reals, modulus: int) -> Reals:
    """Return the chance that one of `modulus` phases is read as another, 0 to 1.

    Parameters
    ----------
    noise : numpy.ndarray
        Noise variance of each quadrature over their squared amplitude, dimensionless.
    modulus : int
        Phases, evenly spread.

    Notes
    -----
    2 Q(sqrt(SNR) sin(pi/m)): noise across either neighbour's border. It counts what crosses both twice, which
    matters below about SNR = (m/pi)^2; there the guess among m phases, 1 - 1/m, is the most.

    References
    ----------
    J. G. Proakis, "Digital Communications", section on M-ary phase-shift keying: symbol error with
    gamma_s = SNR / 2.
    """
    across = scipy.special.erfc(math.sin(math.pi / modulus) / np.sqrt(2.0 * noise))
    chances: Reals = np.minimum(1.0 - 1.0 / modulus, across)
    return chances


def sigma_of_misreading(chance: float) -> float:
    """Return the Gaussian noise, in steps rms, at which a remainder is misread with a given chance."""
    inverse = float(scipy.special.erfcinv(chance))
    return 0.0 if math.isinf(inverse) else 0.5 / (math.sqrt(2.0) * inverse)


RANGE_SIGMAS = 3.0
"""Standard deviations of the loss by which it may be below its mean before a converter clips the light.

Dimensionless. Beyond, a clipped quadrature turns the phase by less than half a step of 17 as long as it is
clipped by less than a fifth, 1.9 dB.
"""


@dataclass(frozen=True, kw_only=True)
class PhaseChannel(Checked):
    """One row of units for one modulus: its received light, and the noise of its readout.

    Notes
    -----
    A 90 degree hybrid gives each of two balanced pairs half of the signal P and of the oscillator L, whose
    difference currents are A cos(phi) and A sin(phi) with A = R sqrt(P L) times the receiver's gain. Each has
    the amplifier's noise, shot noise 2 q R (P + L)/2 B, intensity noise that the pair fails to reject, and
    its ADC's error; intensity noise of the product moves the amplitude and no phase. Phase errors of units,
    arms and switches, in radians rms, turn the phase, which near the border counts as A times as much
    noise across it.

    Each digit of an operand that is 1 sends light through a segment and two switches that drop it, each that
    is 0 past them. Digits are taken as fair and independent, so that the loss is binomial; `misreading` is
    its mean over them, not its value at the mean loss.

    References
    ----------
    C. Demirkiran et al., "Mirage: an RNS-based photonic accelerator for DNN training", arXiv:2311.17323 (the
    abstract was seen; digits switched by rings, I/Q detection and groups of 16 are recalled). E. Hein et al.,
    "Residue number system in a photonic matrix accelerator", US 2022/0229634: sums of phases wind back every
    2 pi, and are read by a coherent detector.
    """

    modulus: Several
    """Number of phases, evenly spread over a turn."""
    elements: tuple[Element, ...]
    """Losses on the signal's path that do not depend on the digits."""
    digits: Count
    """Digits of all units on the path."""
    one_loss_db: float
    """Loss at a digit that is 1."""
    zero_loss_db: float
    """Loss at a digit that is 0."""
    oscillator_loss_db: float
    """Loss of the oscillator."""
    signal_w: Positive
    """Launched power of this row's signal."""
    oscillator_launch_w: Positive
    """Launched power of its oscillator."""
    receiver: Receiver
    """Receiver of a quadrature."""
    adc_enob_bits: Positive
    """Effective bits of its converter, whose range covers all but the lowest losses (`headroom`)."""
    phase_variances: Mapping[str, float]
    """Squared phase errors by cause, in radians squared."""

    @property
    def loss_db(self) -> float:
        """Mean loss of the signal."""
        return loss_db(self.path)

    @property
    def path(self) -> tuple[Element, ...]:
        """Losses of the signal, with the mean loss of the digits."""
        mean_db = 0.5 * self.digits * (self.one_loss_db + self.zero_loss_db)
        return (*self.elements, Element(name=f"{self.digits} x digit", loss_db=mean_db))

    @property
    def received_w(self) -> float:
        """Power of the signal at the hybrid, at its mean loss."""
        return self.signal_w * ratio_from_db(-self.loss_db)

    @property
    def oscillator_w(self) -> float:
        """Power of the oscillator at the hybrid."""
        return self.oscillator_launch_w * ratio_from_db(-self.oscillator_loss_db)

    @property
    def pair_w(self) -> float:
        """Power on the balanced pair of one quadrature, to which half of signal and oscillator go."""
        return 0.5 * (self.received_w + self.oscillator_w)

    @property
    def amplitude_a(self) -> float:
        """Amplitude of the quadratures' currents at the mean loss."""
        field_w = math.sqrt(self.received_w * self.oscillator_w)
        return self.receiver.responsivity_a_per_w * field_w * self.receiver.usable

    @property
    def loss_spread_db(self) -> float:
        """Standard deviation of the loss over fair digits."""
        return 0.5 * math.sqrt(self.digits) * abs(self.one_loss_db - self.zero_loss_db)

    @property
    def headroom(self) -> float:
        """Range of a quadrature's converter over the amplitude at the mean loss, dimensionless."""
        return ratio_from_db(RANGE_SIGMAS * self.loss_spread_db / 2.0)

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of one quadrature by cause, at the mean loss."""
        unit, receiver = 1.0 / self.amplitude_a**2, self.receiver
        pair_a = receiver.responsivity_a_per_w * self.pair_w
        common_a2 = receiver.rejection * receiver.rin_ratio * (0.5 * pair_a) ** 2
        step = 2.0 * self.headroom * 2.0**-self.adc_enob_bits
        return NoiseRatio(
            dark=receiver.thermal_current_a2 * unit,
            shot=receiver.shot_a * pair_a * unit,
            bright={
                "laser intensity noise": common_a2 * unit,
                "the ADC": step**2 / 12.0,
                "interference of symbols": 0.5 * receiver.interference,
            }
            | dict(self.phase_variances),
        )

    @property
    def misreading(self) -> float:
        """Chance of misreading a remainder, on average over the digits' losses."""
        return self._misreading(self.noise_ratio)

    @property
    def light_misreading(self) -> float:
        """Chance of misreading by light and its detection alone, without converters and phase errors."""
        ratio = self.noise_ratio
        intensity = {"laser intensity noise": ratio.bright["laser intensity noise"]}
        bare = dataclasses.replace(self, phase_variances={})
        return bare._misreading(dataclasses.replace(ratio, bright=intensity))

    def _misreading(self, ratio: NoiseRatio) -> float:
        """Return the chance of misreading a remainder with some noise, averaged over the digits' losses.

        Noise that is added to the quadratures grows, relative to the signal, with the loss; phase errors do
        not.
        """
        phase_variance = math.fsum(self.phase_variances.values())
        added = ratio.total - phase_variance
        ones: Reals = np.arange(self.digits + 1.0)
        excess_db = (ones - 0.5 * self.digits) * (self.one_loss_db - self.zero_loss_db)
        noise = added * ratio_from_db(excess_db) + phase_variance
        chances = phase_misreading(noise, self.modulus)
        gammaln = scipy.special.gammaln
        log_binomial = gammaln(self.digits + 1) - gammaln(ones + 1) - gammaln(self.digits - ones + 1)
        return float(np.sum(np.exp(log_binomial - self.digits * math.log(2.0)) * chances))


@dataclass(frozen=True, kw_only=True)
class PhaseBudget:
    """Link budget of all moduli together, from which an integer is reconstructed."""

    channels: tuple[PhaseChannel, ...]
    """One for each modulus."""
    full_scale: float
    """Largest magnitude of a sum, in steps of the integer."""

    @property
    def weakest(self) -> PhaseChannel:
        """Channel with the highest chance of misreading."""
        return max(self.channels, key=lambda channel: channel.misreading)

    @property
    def loss_db(self) -> float:
        """Mean loss of the weakest channel beyond the ideal division."""
        return self.weakest.loss_db

    @property
    def received_w(self) -> float:
        """Power of its signal at the hybrid."""
        return self.weakest.received_w

    @property
    def snr(self) -> float:
        """Squared amplitude of its quadratures over the noise of each."""
        return 1.0 / self.weakest.noise_ratio.total

    @property
    def effective_bits(self) -> float:
        """Effective bits of a reconstructed full-scale sum, limited by light and its detection alone."""
        chances = [channel.light_misreading for channel in self.channels]
        moduli = tuple(channel.modulus for channel in self.channels)
        sigmas = tuple(sigma_of_misreading(chance) for chance in chances)
        variance = Residues(moduli=moduli, sigmas=sigmas).error_variance
        return bits_of_noise(variance / self.full_scale**2)


READINGS_PER_SAMPLE = 2
"""Readings of a sample: its two quadratures."""
COMMON_ELEMENTS = 3
"""Elements that signal and oscillator both pass, besides waveguides: coupling, splits, hybrid."""
DECISION_ELEMENTS = 2
"""Small products that find the phase nearest to two quadratures; each costs as much as a remainder."""


def moduli_of(exponent: int) -> tuple[int, int, int]:
    """Return 2^k - 1, 2^k and 2^k + 1: coprime, and remainders to them need no division."""
    return 2**exponent - 1, 2**exponent, 2**exponent + 1


def digits_of(modulus: int) -> int:
    """Return the binary digits of the largest remainder."""
    return (modulus - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class DigitSwitch(Device):
    """Ring that sends light through a segment for a digit of 1, and past it for 0; each segment has two."""

    dropped_loss_db: float
    """Loss of light that it drops."""
    passed_loss_db: float
    """Loss of light that passes it."""
    extinction_db: Positive
    """Power on the right path over power on the wrong one."""
    bandwidth_hz: Positive
    """3 dB bandwidth of switching."""
    symbol_energy_j: float
    """Drive energy per symbol."""
    tuning_w: float
    """Heater power, all the time."""
    area_m2: float
    """Area."""


@dataclass(frozen=True, kw_only=True)
class PhaseSegment(Device):
    """Phase shifter of half a wave to either side, held by a field without power."""

    insertion_loss_db: float
    """Loss."""
    settling_s: Positive
    """Time until a new phase has settled."""
    drift_rad: float
    """Standard deviation of the phase from its setting between calibrations."""
    area_m2: float
    """Area."""


@dataclass(frozen=True, kw_only=True)
class PhaseLayout(Named):
    """Layout of rows of units."""

    unit_length_m: float
    """Length of a unit along its row."""
    node_fill: Efficiency
    """Area of a unit's devices over the area of its cell, 0 to 1."""
    feed_length_m: float
    """Waveguide from the laser to the rows."""


@dataclass(frozen=True, kw_only=True)
class PhaseArray:
    """Three blocks of rows, one for each of the moduli 2^k - 1, 2^k and 2^k + 1, lit by one laser.

    Notes
    -----
    A unit multiplies a streamed remainder x by a held one w: for each digit of x that is 1, two ring switches
    send light through a segment set to the phase of 2^d w modulo m. Each segment thus needs no more than half
    a wave to either side. (Mirage, as recalled, sets all digits by one voltage and gives segment d 2^d times
    the length: fewer converters, but six times the length for k = 5, and an error of the voltage counts 2^d
    times.) Light passes the units of a row one after the other and is read in quadrature with an oscillator.

    A segment set wrong by its converter or by drift is wrong until the next load; as which segments are
    passed changes with x, the sum over a row is drawn anew for each sample.
    """

    name: str = "phase_array"
    """Name shown in tables and messages."""
    length: int
    """Units of a row: products in a sum."""
    rows: int
    """Rows of each modulus: sums at once."""
    exponent: int
    """k of the moduli."""
    symbol_rate_hz: float
    """Symbols per second."""
    laser_power_w: float
    """Optical power of the laser, of all three blocks; a design choice."""
    oscillator_share: float = 0.5
    """Share of that power for the local oscillators, 0 to 1; a design choice."""
    laser: Laser = shipped(Laser, "laser")
    """Source."""
    branch: PassiveElement = shipped(PassiveElement, "y_branch")
    """Splitter by two."""
    switch: DigitSwitch = shipped(DigitSwitch, "digit_switch")
    """Two per digit and unit."""
    segment: PhaseSegment = shipped(PhaseSegment, "phase_segment")
    """One per digit and unit."""
    waveguide: Waveguide = shipped(Waveguide, "si_waveguide")
    """Routing within the rows."""
    feed: Waveguide = shipped(Waveguide, DEFAULT_FEED, named_parts_table)
    """Waveguide of all light from the coupling to the rows."""
    hybrid: PassiveElement = shipped(PassiveElement, "optical_hybrid")
    """90 degree hybrid, one per row."""
    arms: InterferometerArms = shipped(InterferometerArms, "interferometer_arms")
    """Stability of the phase between rows and oscillators."""
    detector: Photodetector = shipped(Photodetector, "photodetector")
    """Four per row."""
    tia: Tia = shipped(Tia, "tia")
    """Two per row."""
    readout: Integrator | Sampler = shipped(Sampler, "sampler")
    """Two per row."""
    adc: Converter = shipped(Converter, "adc")
    """Two per row."""
    segment_dac: Converter = shipped(Converter, "segment_dac")
    """One per unit, sets its digits in turn."""
    layout: PhaseLayout = shipped(PhaseLayout, "phase_layout")
    """Layout of the rows."""

    def __post_init__(self) -> None:
        check_range(self, "length", "rows", low=1)
        check_range(self, "exponent", low=2, high=16)
        check_whole(self, "length", "rows", "exponent")
        check_positive(self, "symbol_rate_hz", "laser_power_w", "oscillator_share")
        check_range(self, "oscillator_share", high=0.99)

    @property
    def moduli(self) -> tuple[int, int, int]:
        """Moduli of the sums."""
        return moduli_of(self.exponent)

    @property
    def all_rows(self) -> int:
        """Rows of all moduli."""
        return len(self.moduli) * self.rows

    @property
    def units(self) -> int:
        """Units of all rows."""
        return self.length * self.all_rows

    @property
    def row_digits(self) -> int:
        """Digits of one unit of each modulus together."""
        return sum(digits_of(modulus) for modulus in self.moduli)

    @property
    def segments(self) -> int:
        """Segments of all units; switches are twice as many."""
        return self.length * self.rows * self.row_digits

    @property
    def setting_error_rad(self) -> float:
        """Standard deviation of a segment's phase: steps of its converter over a whole wave, and drift."""
        step_rad = 2.0 * math.pi * 2.0**-self.segment_dac.enob_bits
        return math.hypot(step_rad / math.sqrt(12.0), self.segment.drift_rad)

    @property
    def _routing(self) -> Routing:
        """Waveguides of all light."""
        return Routing(
            feed=self.feed,
            feed_m=self.layout.feed_length_m,
            array=self.waveguide,
            array_m=self.length * self.layout.unit_length_m,
            light_w=self.laser_power_w * ratio_from_db(-self.laser.coupling_loss_db),
            lines=1,
            guides=float(self.all_rows),
        )

    @property
    def _path(self) -> tuple[Element, ...]:
        """Losses of the signal beside its digits; the first `COMMON_ELEMENTS` are the oscillator's too."""
        splits = math.ceil(math.log2(self.all_rows)) + 1
        return elements_of(
            (
                ("coupling", 1, self.laser.coupling_loss_db),
                (self.branch.name, splits, self.branch.insertion_loss_db),
                (self.hybrid.name, 1, self.hybrid.insertion_loss_db),
                *self._routing.losses,
            )
        )

    @property
    def _receiver(self) -> Receiver:
        """Receiver of one quadrature."""
        symbol = Symbols(
            rate_hz=self.symbol_rate_hz,
            symbols=1,
            operands=1,
            modulator_hz=(self.switch.bandwidth_hz,),
            detector_hz=(self.detector.bandwidth_hz,),
            amplifier_hz=(self.tia.bandwidth_hz,),
            readout=self.readout,
        )
        return Receiver.of(
            symbol,
            self.detector,
            noise_a_per_sqrt_hz=self.tia.noise_a_per_sqrt_hz,
            rin_db_per_hz=self.laser.rin_db_per_hz,
            leakage=0.0,
        )

    def channel(self, modulus: int) -> PhaseChannel:
        """Return the channel of one modulus: light and noise of one of its rows.

        Notes
        -----
        A field that leaks at both switches of a digit comes back as a share of the extinction with the phase
        that the digit should not have, evenly spread: half of its square lies across the wanted field.
        """
        digits, path = self.length * digits_of(modulus), self._path
        leaked = ratio_from_db(-self.switch.extinction_db)
        shared_w = self.laser_power_w / self.all_rows
        common_db = math.fsum(element.loss_db for element in path[:COMMON_ELEMENTS])
        return PhaseChannel(
            modulus=modulus,
            elements=path,
            digits=digits,
            one_loss_db=2.0 * self.switch.dropped_loss_db + self.segment.insertion_loss_db,
            zero_loss_db=2.0 * self.switch.passed_loss_db,
            oscillator_loss_db=common_db + self._routing.feed_db,
            signal_w=shared_w * (1.0 - self.oscillator_share),
            oscillator_launch_w=shared_w * self.oscillator_share,
            receiver=self._receiver,
            adc_enob_bits=self.adc.enob_bits,
            phase_variances={
                "wrong phases": 0.5 * digits * self.setting_error_rad**2,
                "the switches' extinction": 0.5 * digits * leaked**2,
                "the phase between arms": self.arms.phase_variance(1.0 / self.symbol_rate_hz),
            },
        )

    @cached_property
    def channels(self) -> tuple[PhaseChannel, ...]:
        """Channel of each modulus."""
        return tuple(self.channel(modulus) for modulus in self.moduli)

    @property
    def light(self) -> Light:
        """Light that limits are held against, but for the detector's."""
        return Light(
            lines=1,
            line_w=self.laser_power_w,
            coupled_w=self._routing.light_w,
            feed=self.feed.name,
            absorbed_db=absorbed_db(self.channels[-1].elements),
            ring_w=0.0,
            detector_a=0.0,
        )

    @property
    def noise_ratio(self) -> NoiseRatio:
        """Noise over signal of a quadrature by cause, of the modulus with most digits."""
        return self.channels[-1].noise_ratio

    @property
    def effective_bits(self) -> float:
        """Effective bits of one quadrature, of the modulus with most digits; its phases need log2(m)."""
        return self.noise_ratio.effective_bits

    @property
    def wrong_sample(self) -> float:
        """Chance of misreading any of a sample's remainders, 0 to 1."""
        return any_of([one.misreading for one in self.channels])

    @property
    def load_s(self) -> float:
        """Time of setting all segments: a unit's digits in turn, all units at once."""
        digits = max(digits_of(modulus) for modulus in self.moduli)
        return digits / self.segment_dac.rate_hz + self.segment.settling_s


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
    """Rounding of the mantissas of gradient products."""
    adder: Adder = shipped(Adder, "adder")
    """Digital accumulator of an output."""
    logic: FormatLogic = shipped(FormatLogic, "residue_logic")
    """Digital electronics of the format."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_range(self, "mantissa_bits", low=2)
        check_whole(self, "mantissa_bits")
        remedy = "raise the exponent, or take fewer bits or a shorter row"
        owner = f"PhaseResidueCore '{self.name}'"
        check_mantissas(owner, self.core.moduli, self.core.length, self.mantissa_bits, remedy)

    @property
    def full_scale(self) -> float:
        """Largest sum to either side, n q^2."""
        return float(self.core.length * largest_code(self.mantissa_bits) ** 2)

    @property
    def symbol_rate_hz(self) -> float:
        """Symbols per second."""
        return self.core.symbol_rate_hz

    @property
    def calibration(self) -> CalibrationCost:
        """Return no cost: parts differ in their phase errors only, which are not calibrated."""
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

    @property
    def light(self) -> Light:
        """Light that limits are held against."""
        return self.core.light

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
        """Moduli, each with the Gaussian noise at which a remainder is misread as often as its phase."""
        channels = self.budget.channels
        sigmas = tuple(sigma_of_misreading(channel.misreading) for channel in channels)
        return Residues(moduli=self.core.moduli, sigmas=sigmas)

    @property
    def effective_bits(self) -> float:
        """Effective bits of a full-scale sum: rounding of its mantissas, and remainders that are misread."""
        return self.residues.sum_bits(self.core.length, self.mantissa_bits)

    def analog(self, phase: Phase) -> AnalogSpec:
        """Return the errors of products of a phase: rounding of mantissas, and misread remainders."""
        rounding = Rounding.NEAREST if phase is Phase.FORWARD else self.gradient_rounding
        return AnalogSpec.of_residues(self.residues, self.core.length, self.mantissa_bits, rounding)

    @property
    def reload(self) -> Reload:
        """All units set at once, the digits of each in turn."""
        return Reload(
            time_s=self.core.load_s, energy_j=self.core.segments * self.core.segment_dac.conversion_j
        )

    @property
    def full_load(self) -> Events:
        """Events per second on one core with all parts at work."""
        rate_hz = self.core.symbol_rate_hz
        return Events(symbols=self.core.length * rate_hz, samples=self.core.rows * rate_hz)

    def work(self, operator: MatMul, cores: int) -> Work:
        """Return time and energy of one product on a number of cores."""
        loads = tiled_loads(operator, inputs=self.core.length, outputs=self.core.rows, cores=cores)
        events = streaming_events(loads, word_bytes=self.element_bytes, loaded_bytes=self.element_bytes)
        return work_of(
            events, self.used_parts, symbol_rate_hz=self.symbol_rate_hz, reload_s=self.reload.time_s
        )

    @cached_property
    def used_parts(self) -> tuple[Part, ...]:
        """Parts that events use: the parts list without static parts."""
        return tuple(part for part in self.parts() if part.per is not Per.CORE)

    def parts(self) -> tuple[Part, ...]:
        """Return the parts list of one core.

        Notes
        -----
        A streamed value needs a remainder for each modulus, a loaded one for each digit, as 2^d w modulo m is
        what is set. Finding the phase nearest to two quadratures is priced as `DECISION_ELEMENTS` remainders.
        """
        core, logic, rows = self.core, self.logic, self.core.all_rows
        moduli, fill = len(core.moduli), core.layout.node_fill
        reading_j = DECISION_ELEMENTS * logic.element_j + logic.sample_j
        lanes = math.ceil(rows * core.symbol_rate_hz / logic.rate_hz)
        converters, switched = READINGS_PER_SAMPLE * rows, 2.0 * core.row_digits * core.rows
        biased_w = 0.5 * core.detector.bias_w(statistics.fmean(one.pair_w for one in core.channels))
        return (
            Part("laser", core.laser, 1, core.laser_power_w / core.laser.wall_plug_efficiency),
            Part("modulator", core.switch, switched, core.switch.symbol_energy_j, Per.SYMBOL),
            Part("adc", core.adc, READINGS_PER_SAMPLE * moduli, core.adc.conversion_j, Per.SAMPLE),
            Part("adder", self.adder, 1, self.adder.energy_j, Per.SAMPLE),
            Part("programming", core.segment_dac, core.segments, core.segment_dac.conversion_j, Per.LOAD),
            Part("number format", logic, moduli, logic.element_j, Per.SYMBOL),
            Part("number format", logic, core.row_digits, logic.element_j, Per.VALUE),
            Part("number format", logic, moduli, reading_j, Per.SAMPLE),
            Part(
                "ring tuning",
                core.switch,
                2.0 * core.segments,
                core.switch.tuning_w,
                within="units",
                fill=fill,
            ),
            Part("units", core.segment, core.segments, fill=fill),
            Part("photodetector", core.detector, 2.0 * converters, biased_w, within="receivers"),
            Part("receivers", core.hybrid, rows),
            Part("receivers", core.branch, 2.0 * rows),
            Part("tia", core.tia, converters, core.tia.power_w),
            Part(
                "readout",
                core.readout,
                READINGS_PER_SAMPLE * moduli,
                core.readout.sample_energy_j,
                Per.SAMPLE,
            ),
            Part("readout", core.readout, converters),
            Part("segment dac", core.segment_dac, core.units),
            Part("adc", core.adc, converters * core.adc.interleaved(core.symbol_rate_hz)),
            Part("adder", self.adder, core.rows),
            Part("number format", logic, lanes),
        )


@cache
def default_phase_residue() -> PhaseResidueCore:
    """Return 32 rows of 8 units for each of 15, 16 and 17 at 5 GHz, with 5-bit mantissas, of today's parts.

    Notes
    -----
    The moduli tell 4,080 numbers apart, and sums reach 1,800 to either side. The laser's power is our
    choice: samples are then wrong less than once in a million. At 10 GHz, which Mirage has as recalled, the
    amplifier of 8 GHz leaves so much of a symbol in the next that one sample in 8,000 is wrong. Rows of 16
    and the moduli 31, 32 and 33, which Mirage has as recalled, err once in 10,000 on these parts at 1.6 W,
    and no more than six times less at any power: their phases are half as far apart, and light passes 96
    switched segments instead of 40.
    """
    array = PhaseArray(
        length=8,
        rows=32,
        exponent=4,
        symbol_rate_hz=to_si("symbol_rate_hz", 5.0, "GHz"),
        laser_power_w=to_si("laser_power_w", 80.0, "mW"),
    )
    return PhaseResidueCore(core=array, mantissa_bits=5)
