"""Rows of units that turn the phase of light by products modulo m: their parts, light and noise."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property

import scipy

from optical.cores.phase_arithmetic import digits_of, moduli_of
from optical.cores.phase_readout import PhaseChannel
from optical.devices.devices import Converter, Laser, PassiveElement, Photodetector, Tia, Waveguide
from optical.devices.receivers import InterferometerArms
from optical.noise.detection import Receiver
from optical.noise.laser_power import NoiseRatio
from optical.noise.link_budget import Element
from simulator.checks import check_positive, check_range, check_whole
from simulator.errors import LinkError, ParameterError
from simulator.units import ratio_from_db


@dataclass(frozen=True, kw_only=True)
class DigitSwitch:
    """Ring that sends light through a segment for a digit of 1, and past it for 0; each segment has two."""

    name: str
    """Name shown in tables."""
    dropped_loss_db: float
    """Loss of light that it takes over."""
    passed_loss_db: float
    """Loss of light that it lets pass."""
    extinction_db: float
    """Light that takes the right way over light that does not, in power."""
    bandwidth_hz: float
    """3 dB bandwidth of switching."""
    symbol_energy_j: float
    """Drive energy per symbol."""
    tuning_w: float
    """Heater power, all the time."""
    area_m2: float
    """Area."""

    def __post_init__(self) -> None:
        check_positive(self, "extinction_db", "bandwidth_hz")
        check_range(self, "dropped_loss_db", "passed_loss_db", "symbol_energy_j", "tuning_w", "area_m2")


@dataclass(frozen=True, kw_only=True)
class PhaseSegment:
    """Phase shifter of half a wave to either side, held by a field without power."""

    name: str
    """Name shown in tables."""
    insertion_loss_db: float
    """Loss."""
    settling_s: float
    """Time until a new phase stands."""
    drift_rad: float
    """Standard deviation of the phase from its setting between calibrations."""
    area_m2: float
    """Area."""

    def __post_init__(self) -> None:
        check_positive(self, "settling_s")
        check_range(self, "insertion_loss_db", "drift_rad", "area_m2")


@dataclass(frozen=True, kw_only=True)
class PhaseLayout:
    """How rows of units are laid out."""

    name: str
    """Name shown in tables."""
    unit_length_m: float
    """Length of a unit along its row."""
    node_fill: float
    """Area of a unit's devices over the area of its cell, 0 to 1."""
    feed_length_m: float
    """Waveguide from the laser to the rows."""

    def __post_init__(self) -> None:
        check_range(self, "node_fill", high=1.0, open_low=True)
        check_range(self, "unit_length_m", "feed_length_m")


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
    """Share of it that goes to the local oscillators, 0 to 1; a design choice."""
    laser: Laser
    """Source."""
    branch: PassiveElement
    """Splitter by two."""
    switch: DigitSwitch
    """Two per digit and unit."""
    segment: PhaseSegment
    """One per digit and unit."""
    waveguide: Waveguide
    """Routing."""
    hybrid: PassiveElement
    """90 degree hybrid, one per row."""
    arms: InterferometerArms
    """Stability of the phase between rows and oscillators."""
    detector: Photodetector
    """Four per row."""
    tia: Tia
    """Two per row."""
    adc: Converter
    """Two per row."""
    segment_dac: Converter
    """One per unit, sets its digits in turn."""
    layout: PhaseLayout
    """Where things stand."""

    def __post_init__(self) -> None:
        check_range(self, "length", "rows", low=1)
        check_range(self, "exponent", low=2, high=16)
        check_whole(self, "length", "rows", "exponent")
        check_positive(self, "symbol_rate_hz", "laser_power_w", "oscillator_share")
        check_range(self, "oscillator_share", high=0.99)

    @property
    def moduli(self) -> tuple[int, int, int]:
        """What sums are taken modulo of."""
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
        """Digits of one row of each modulus together, for one unit of each."""
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
    def _path(self) -> tuple[Element, ...]:
        splits = math.ceil(math.log2(self.all_rows)) + 1
        length_m = self.layout.feed_length_m + self.length * self.layout.unit_length_m
        return (
            Element(name="coupling", loss_db=self.laser.coupling_loss_db),
            Element(name=f"{splits} x {self.branch.name}", loss_db=splits * self.branch.insertion_loss_db),
            Element(name=self.hybrid.name, loss_db=self.hybrid.insertion_loss_db),
            Element(name=self.waveguide.name, loss_db=self.waveguide.loss_db_per_m * length_m),
        )

    @property
    def _receiver(self) -> Receiver:
        return Receiver.of(
            self.detector,
            self.tia,
            symbol_rate_hz=self.symbol_rate_hz,
            sender_hz=self.switch.bandwidth_hz,
            rin_db_per_hz=self.laser.rin_db_per_hz,
            leakage=0.0,
        )

    def channel(self, modulus: int) -> PhaseChannel:
        """Return a row of one modulus, light and noise.

        Notes
        -----
        A field that leaks at both switches of a digit comes back as a share of the extinction with the phase
        that the digit should not have, evenly spread: half of its square lies across the wanted field.
        """
        digits, path = self.length * digits_of(modulus), self._path
        leaked = ratio_from_db(-self.switch.extinction_db)
        shared_w = self.laser_power_w / self.all_rows
        common_db = math.fsum(element.loss_db for element in path[:-1])
        return PhaseChannel(
            modulus=modulus,
            elements=path,
            digits=digits,
            one_loss_db=2.0 * self.switch.dropped_loss_db + self.segment.insertion_loss_db,
            zero_loss_db=2.0 * self.switch.passed_loss_db,
            oscillator_loss_db=common_db + self.waveguide.loss_db_per_m * self.layout.feed_length_m,
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
        """A row of each modulus."""
        return tuple(self.channel(modulus) for modulus in self.moduli)

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
        """How likely any of a sample's remainders is misread, 0 to 1."""
        return -math.expm1(math.fsum(math.log1p(-one.misreading) for one in self.channels))

    @property
    def load_s(self) -> float:
        """Time of setting all segments: a unit's digits in turn, all units at once."""
        digits = max(digits_of(modulus) for modulus in self.moduli)
        return digits / self.segment_dac.rate_hz + self.segment.settling_s


_BRIGHTEST = 1e6
"""Most that the solver multiplies the present laser power by; dimensionless."""


def solve_phase_power(array: PhaseArray, wrong_sample: float) -> float:
    """Return the least laser power at which samples are wrong no more often, watt.

    Parameters
    ----------
    array : PhaseArray
        Whose laser; its present power is where the search begins.
    wrong_sample : float
        How likely a sample may be wrong in any remainder, between 0 and 1.

    Raises
    ------
    LinkError
        If phase errors and converters alone are wrong more often, whatever the power.
    """
    if not 0.0 < wrong_sample < 1.0:
        msg = f"wrong_sample must be between 0 and 1; got {wrong_sample:g}"
        raise ParameterError(msg)

    def excess(log_power: float) -> float:
        lit = dataclasses.replace(array, laser_power_w=array.laser_power_w * math.exp(log_power))
        return math.log(max(lit.wrong_sample, _LEAST)) - math.log(wrong_sample)

    most = math.log(_BRIGHTEST)
    if excess(most) > 0.0:
        bright = array.noise_ratio.bright
        worst = max(bright, key=lambda cause: bright[cause])
        msg = (
            f"'{array.name}' is wrong more often than {wrong_sample:g} at any laser power, mostly by {worst};"
            " allow more errors, shorten the rows or improve that part"
        )
        raise LinkError(msg)
    return array.laser_power_w * math.exp(float(scipy.optimize.brentq(excess, -most, most, xtol=1e-12)))


_LEAST = 1e-300
"""Least chance whose logarithm is taken; dimensionless."""
