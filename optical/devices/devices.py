"""Parts that photonic cores are built of, from source to converter: every number is a row of a table.

Insertion losses are positive decibels. Areas are those of the part alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np

from optical.devices.limits import photon_energy_j, quantiser_variance
from optical.devices.parts import Device, ElectronicDevice, Named
from simulator.errors import Bounds, Efficiency, Finite, FromOne, ParameterError, Positive, Share, check_range
from simulator.tables import Table, read_table
from simulator.units import (
    BITS_PER_BYTE,
    BOLTZMANN_J_PER_K,
    SPEED_OF_LIGHT_M_PER_S,
    db_from_ratio,
    ratio_from_db,
)

_HALVINGS = 60
"""Halvings of the interval in which the saturated gain lies."""


@dataclass(frozen=True, kw_only=True)
class Soa(Device):
    """Semiconductor optical amplifier on one polarisation.

    Notes
    -----
    It stands between the coupling into the chip and everything else, so that all lines of a core pass it
    before they are divided: what it adds is intensity noise of the light that both operands, or signal and
    oscillator, share. Phase noise of its emission is shared as well and cancels.

    With G the gain, F the noise figure and S = n_sp (G - 1) h nu the spectral density of the emission,
    F = 2 n_sp (G - 1)/G + 1/G, from which n_sp follows; it is taken not to change as the gain saturates.
    The gain saturates as G = G0 exp(-(G - 1)/G P_out/P_s), which has fallen to G0/2 at
    P_out = ln 2 G0/(G0 - 2) P_s, the saturation power of data sheets. A detected power P has in a bandwidth B

    - beats of signal and emission, variance 4 R^2 P S B: relative to P^2, 4 S/P per hertz;
    - beats of the emission with itself within the optical bandwidth B_o of a line, 2 R^2 S^2 B_o B.

    Left out: the damping of the source's own intensity noise by saturation, and mixing of the lines.

    References
    ----------
    N. A. Olsson, "Lightwave systems with optical amplifiers", J. Lightwave Technol. 7 (1989) 1071, equations
    of the beat noises; G. P. Agrawal, "Fiber-Optic Communication Systems", chapter on optical amplifiers:
    noise figure and gain saturation.
    """

    gain_db: Annotated[float, Bounds(low=3.1)]
    """Gain of faint light."""
    noise_figure_db: Finite
    """Noise figure at that gain; at least the quantum limit, 2 - 1/G as a ratio."""
    saturation_w: Positive
    """Output power at which the gain has fallen to half."""
    optical_bandwidth_hz: Positive
    """Bandwidth of its emission that comes to a detector with one line."""
    power_w: float
    """Electrical power, all the time."""
    area_m2: float
    """Area."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spontaneous_factor < 1.0:
            limit_db = db_from_ratio(2.0 - 1.0 / ratio_from_db(self.gain_db))
            msg = (
                f"Soa '{self.name}': noise_figure_db ({self.noise_figure_db:g}) must be at least "
                f"{limit_db:.2f}, the quantum limit at a gain of {self.gain_db:g} dB"
            )
            raise ParameterError(msg)

    @property
    def spontaneous_factor(self) -> float:
        """Factor n_sp of spontaneous emission, 1 with full inversion; dimensionless."""
        gain = ratio_from_db(self.gain_db)
        return (gain * ratio_from_db(self.noise_figure_db) - 1.0) / (2.0 * (gain - 1.0))

    def gain(self, input_w: float) -> float:
        """Return the gain of all light together, dimensionless.

        Parameters
        ----------
        input_w : float
            Power that comes in, all lines.
        """
        linear = ratio_from_db(self.gain_db)
        scale_w = self.saturation_w * (linear - 2.0) / (math.log(2.0) * linear)
        low, high = 0.0, math.log(linear)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            if middle + math.expm1(middle) * input_w / scale_w > math.log(linear):
                high = middle
            else:
                low = middle
        return math.exp(0.5 * (low + high))

    def emission_w_per_hz(self, gain: float) -> float:
        """Return the spectral density of the emission in one polarisation, watt per hertz."""
        return self.spontaneous_factor * (gain - 1.0) * photon_energy_j()

    def added_rin_per_hz(self, line_w: float, gain: float) -> float:
        """Return the intensity noise that it adds to a line, relative to its power squared, per hertz.

        Parameters
        ----------
        line_w : float
            Power of the line that comes in.
        gain : float
            Gain, dimensionless.
        """
        emission = self.emission_w_per_hz(gain) / (gain * line_w)
        return 4.0 * emission + 2.0 * emission**2 * self.optical_bandwidth_hz


@cache
def device_table() -> Table:
    """Return the table of photonic and converter parts that ships with the package."""
    return read_table(Path(__file__).parents[1] / "parameters" / "devices.csv")


PartT = TypeVar("PartT")


def shipped(kind: type[PartT], name: str, table: Callable[[], Table] = device_table) -> PartT:
    """Return a dataclass field whose default is a part of a table that ships with the package."""
    made: PartT = field(default_factory=lambda: table().build(kind, name))
    return made


@dataclass(frozen=True, kw_only=True)
class Laser(Device):
    """Continuous-wave pump of a comb."""

    wall_plug_efficiency: Efficiency
    """Optical over electrical power, 0 to 1."""
    rin_db_per_hz: Annotated[float, Bounds(low=-300.0, high=0.0)]
    """Relative intensity noise of one comb line; lines are taken as independent."""
    coupling_loss_db: float
    """Loss from the source into the chip."""
    area_m2: float
    """Area."""


@dataclass(frozen=True, kw_only=True)
class PulsedLaser(Laser):
    """Source of one pulse a symbol: a laser with a pulse carver, or one that is mode-locked to the symbols.

    Notes
    -----
    Operands are lit when they have settled, so that hardly anything of their edges is integrated. Powers are
    means over time, the carver's losses in the wall-plug efficiency; intensity noise is that of the pulses.
    """

    duty: Efficiency
    """Width of a pulse at half its power over the time between pulses, dimensionless."""
    jitter_s: float
    """Standard deviation of a pulse's time from that of the symbols."""
    driver_w: float
    """Static power of the carver's driver, or of the lock of the pulses to the symbols."""


@dataclass(frozen=True, kw_only=True)
class Comb(Device):
    """Micro-comb that turns one pump into the lines."""

    conversion_efficiency: Efficiency
    """Power in all used lines over the pump's power, 0 to 1."""
    area_m2: float
    """Area."""
    line_w: Positive | None = None
    """Power of its weakest used line as it was published; None where none was."""


@dataclass(frozen=True, kw_only=True)
class RingRouter(Device):
    """Microring that adds or drops one wavelength, held on resonance by a heater.

    Notes
    -----
    It drops the share T = 1 / (1 + (2 F/pi)^2 sin^2(pi d/F)) of a line that is d linewidths away, F being its
    finesse, and passes modulated light through half its linewidth. On resonance its loss leaves the field 1 -
    sqrt(D) of a line that goes by, D being the share that it drops.
    """

    insertion_loss_db: float
    """Loss of an add or a drop."""
    pass_loss_db: float
    """Loss of a line that passes, beside the share that is dropped."""
    linewidth_hz: Positive
    """Full width of a drop at half its height."""
    free_spectral_range_hz: Positive
    """Distance of its resonances."""
    tuning_w: float
    """Heater power, all the time."""
    area_m2: float
    """Area."""

    @property
    def baseband_hz(self) -> float:
        """Bandwidth of modulated light."""
        return self.linewidth_hz / 2.0

    def dropped(self, distance_hz: float) -> float:
        """Return the share of a line that is dropped at a distance from it, 0 to 1."""
        turn = math.pi * distance_hz / self.free_spectral_range_hz
        steepness = 2.0 * self.free_spectral_range_hz / (math.pi * self.linewidth_hz)
        return 1.0 / (1.0 + (steepness * math.sin(turn)) ** 2)

    def passing_loss_db(self, lines: int, spacing_hz: float) -> float:
        """Return the loss of a middle line that goes by the rings of all others once.

        Parameters
        ----------
        lines : int
            Lines, each with its ring.
        spacing_hz : float
            Distance of the lines.
        """
        places = range(-((lines - 1) // 2), lines // 2 + 1)
        kept = (1.0 - self.dropped(place * spacing_hz) for place in places if place)
        return (lines - 1) * self.pass_loss_db - db_from_ratio(math.prod(kept))

    def mixing(self, lines: int, spacing_hz: float, *, one_bus: bool) -> float:
        """Return the variance of a line by operands of others, per unit of their product.

        Parameters
        ----------
        lines : int
            Lines on the bus, over which the mean is taken.
        spacing_hz : float
            Distance of the lines.
        one_bus : bool
            Whether all lines are added to one bus, in the order in which they were dropped from another, or
            each to a bus of its own.

        Notes
        -----
        A share T of line l goes through the drop and the add of line m and meets the operand of m: a field
        T a_m beside a_l at a fixed, random phase. Added to one bus in the same order, it has passed a ring
        on resonance with l, either before (nothing was left to drop) or after, so that 1 - sqrt(D) of it is
        left. On buses of their own, that of the lines which were dropped before l stays.
        Of two operands each adds half the square; of one power, three quarters of all of it.
        """
        once = math.fsum(
            self.dropped(place * spacing_hz) ** 2 * (lines - place) / lines for place in range(1, lines)
        )
        left = 1.0 - math.sqrt(ratio_from_db(-self.insertion_loss_db))
        return 2.0 * once * left**2 if one_bus else once

    def check_lines(self, owner: str, lines: int, spacing_hz: float) -> None:
        """Raise an error if the lines do not fit between two resonances.

        Raises
        ------
        ParameterError
            If they do not.
        """
        if lines * spacing_hz > self.free_spectral_range_hz:
            msg = (
                f"{owner}: {lines} lines {spacing_hz:.3g} Hz apart span {lines * spacing_hz:.3g} Hz, and the "
                f"resonances of '{self.name}' repeat every {self.free_spectral_range_hz:.3g} Hz; take fewer "
                "lines, closer ones, or smaller rings (router.free_spectral_range_hz)"
            )
            raise ParameterError(msg)


@dataclass(frozen=True, kw_only=True)
class MeasuredRouter(RingRouter):
    """Microring that adds or drops a wavelength, with its drop as it was measured around its resonance."""

    offset_hz: tuple[float, ...]
    """Distances from the resonance, rising."""
    share: tuple[float, ...]
    """Share of the drop on resonance that is dropped at each of them."""

    def dropped(self, distance_hz: float) -> float:
        """Return the share of a line dropped at a distance from it; outside the measured range by the law."""
        if self.offset_hz[0] <= distance_hz <= self.offset_hz[-1]:
            return float(np.interp(distance_hz, self.offset_hz, self.share))
        return super().dropped(distance_hz)


@dataclass(frozen=True, kw_only=True)
class PassiveElement(Device):
    """Splitter, coupler or crossing: something with a loss and an area."""

    insertion_loss_db: float
    """Loss beyond the ideal division of power."""
    area_m2: float
    """Area."""

    @property
    def leak(self) -> float:
        """Share of power that leaks into other ports; 0 if unknown."""
        return 0.0

    @property
    def layer_loss_db(self) -> float:
        """Loss of changing to another layer and back; 0 if unknown."""
        return 0.0

    @property
    def pole_hz(self) -> float:
        """Bandwidth of modulated light; infinite if unknown."""
        return math.inf


@dataclass(frozen=True, kw_only=True)
class Crossing(PassiveElement):
    """Crossing of two waveguides, in one layer or in two.

    Notes
    -----
    What leaks into the arm that leads on joins the other waveguide's light there; what leaks back does not
    reach a detector.
    """

    crosstalk_db: float
    """Power in one side arm below that of the input, positive."""
    transition_loss_db: float | None = None
    """Loss of the way to the other layer, or back; None where both waveguides cross in one."""

    @property
    def leak(self) -> float:
        """Share of power that leaves by the side arm that leads on."""
        return ratio_from_db(-self.crosstalk_db)

    @property
    def layer_loss_db(self) -> float:
        """Loss of an operand that changes to the other layer and back; 0 where there is one layer."""
        return 2.0 * (self.transition_loss_db or 0.0)


@dataclass(frozen=True, kw_only=True)
class MeasuredElement(PassiveElement):
    """Splitter or coupler, or a crossing of light that is held, with a known scattering at a core's lines."""

    bandwidth_hz: Positive
    """Distance from a line at which half of its power is left; infinite where it is nowhere."""

    @property
    def pole_hz(self) -> float:
        """Bandwidth of modulated light."""
        return self.bandwidth_hz


@dataclass(frozen=True, kw_only=True)
class MeasuredCrossing(MeasuredElement):
    """Crossing of two operands' waveguides, with a known scattering at a core's lines."""

    crosstalk: Share
    """Share of power that leaves by a side arm, 0 to 1."""

    @property
    def leak(self) -> float:
        """Share of power that leaves by a way that is not meant."""
        return self.crosstalk


@dataclass(frozen=True, kw_only=True)
class PhaseShifter(Device):
    """Fixed phase shifter without holding power (MEMS)."""

    insertion_loss_db: float
    """Loss."""
    phase_error_rad: Annotated[float, Bounds(high=math.pi)]
    """Standard deviation of the phase from its setting, 0 to pi, fixed per chip."""
    area_m2: float
    """Area."""

    def loss_db(self, phase_rad: float) -> float:
        """Return the loss, at any phase."""
        return self.insertion_loss_db

    def hold_w(self, phase_rad: float) -> float:
        """Return 0: a phase is held without power."""
        return 0.0


@dataclass(frozen=True, kw_only=True)
class BalancedPair(Device):
    """Two detectors whose currents are subtracted."""

    responsivity_a_per_w: Positive
    """Photocurrent per optical power."""
    dark_current_a: float
    """Current of one detector without light."""
    cmrr_db: float
    """Common-mode rejection of the pair: 20 log10 of mean over difference of the two responses."""
    bias_v: float
    """Reverse bias of a detector, from whose supply its photocurrent is drawn."""

    def bias_w(self, light_w: float) -> float:
        """Return the power that the pair draws while light of a power falls on it."""
        return self.bias_v * (self.responsivity_a_per_w * light_w + 2.0 * self.dark_current_a)


@dataclass(frozen=True, kw_only=True)
class Photodetector(BalancedPair):
    """One detector of a balanced pair that follows each symbol."""

    bandwidth_hz: Positive
    """3 dB bandwidth."""
    area_m2: float
    """Area of one detector."""


@dataclass(frozen=True, kw_only=True)
class Tia(ElectronicDevice):
    """Transimpedance amplifier behind a balanced pair."""

    noise_a_per_sqrt_hz: float
    """Input-referred noise density."""
    power_w: float
    """Power, all the time."""
    area_m2: float
    """Area."""
    bandwidth_hz: Positive
    """3 dB bandwidth of its one pole."""


@dataclass(frozen=True, kw_only=True)
class Converter(ElectronicDevice):
    """A DAC or an ADC as it was measured: bits, effective bits, power and rate belong together.

    Notes
    -----
    Energy per conversion is power / rate, also at lower rates (dynamic power only). Between resolutions it
    follows Walden's figure of merit, power / (2^ENOB rate): each effective bit doubles it. That law fits
    converters below about 10 bits; beyond, thermal noise asks for a factor of four.

    References
    ----------
    R. H. Walden, "Analog-to-digital converter survey and analysis", IEEE JSAC 17 (1999) 539.
    """

    nominal_bits: Positive
    """Nominal bits: the grid."""
    enob_bits: Finite
    """Effective bits: grid, noise and distortion together; at most `nominal_bits`."""
    power_w: float
    """Power at `rate_hz`."""
    rate_hz: Positive
    """Highest conversion rate."""
    area_m2: float
    """Area."""
    sfdr_db: Positive | None = None
    """Spurious-free dynamic range of a full-scale tone at `sfdr_hz`; None where the effective bits hold at
    any frequency."""
    sfdr_hz: Positive | None = None
    """Frequency of that tone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "enob_bits", high=self.nominal_bits, open_low=True)
        if (self.sfdr_db is None) != (self.sfdr_hz is None):
            msg = f"converter '{self.name}': sfdr_db and sfdr_hz belong together; give both or neither"
            raise ParameterError(msg)

    def error_at(self, symbol_rate_hz: float) -> float:
        """Return the variance of symbols at a rate, full scale from -1 to 1.

        Parameters
        ----------
        symbol_rate_hz : float
            Symbols per second, independent and therefore spread evenly up to half that frequency.

        Notes
        -----
        That of the effective bits at low frequency, and distortion whose amplitude grows with frequency,
        as settling that depends on the code does: the square of f / sfdr_hz has the mean 1/3 of its value at
        the highest frequency. A full-scale tone has the variance 1/2.
        """
        error = quantiser_variance(self.enob_bits)
        if self.sfdr_db is None or self.sfdr_hz is None:
            return error
        return error + 0.5 * ratio_from_db(-self.sfdr_db) * (0.5 * symbol_rate_hz / self.sfdr_hz) ** 2 / 3.0

    @property
    def conversion_j(self) -> float:
        """Energy of one conversion."""
        return self.power_w / self.rate_hz

    @property
    def walden_j(self) -> float:
        """Walden's figure of merit: energy per conversion step, power / (2^ENOB rate)."""
        return self.conversion_j / 2.0**self.enob_bits

    def rescaled(self, enob_bits: float) -> Converter:
        """Return a converter of the same family with other effective bits, by Walden's law.

        Parameters
        ----------
        enob_bits : float
            Effective bits wanted; the nominal bits keep their distance.
        """
        step = enob_bits - self.enob_bits
        power_w = self.power_w * 2.0**step
        bits = self.nominal_bits + step
        return dataclasses.replace(self, nominal_bits=bits, enob_bits=enob_bits, power_w=power_w)

    def interleaved(self, rate_hz: float) -> int:
        """Return the number of converters that must take turns to reach a rate."""
        return max(1, math.ceil(rate_hz / self.rate_hz))


@dataclass(frozen=True, kw_only=True)
class Adder(ElectronicDevice):
    """Digital accumulator of one output."""

    energy_j: float
    """Energy of adding one sample to a partial sum in a register."""
    area_m2: float
    """Area."""


@dataclass(frozen=True, kw_only=True)
class FormatLogic(ElectronicDevice):
    """Digital electronics of a number format, which prepares operands and puts samples together."""

    element_j: float
    """Energy per operand element (and modulus), once per product: search, scaling, remainder."""
    sample_j: float
    """Energy per sample (and modulus): reconstruction, scaling, accumulation."""
    rate_hz: Positive
    """Samples (and moduli) per second of one lane."""
    area_m2: float
    """Area of one lane."""
    scale_bytes: float
    """Bytes of the scale or exponent that a block of operands shares."""


@dataclass(frozen=True, kw_only=True)
class Sram(Named):
    """On-chip buffer, bought by the bank."""

    bank_bytes: Positive
    """Capacity of one bank."""
    energy_j_per_byte: float
    """Energy of reading or writing a byte, the way to and from it apart."""
    bank_static_w: float
    """Leakage of a bank."""
    bank_area_m2: float
    """Area of a bank."""


@dataclass(frozen=True, kw_only=True)
class CrossbarLayout(Named):
    """Layout density of the nodes of a crossbar."""

    node_fill: Efficiency
    """Area of a node's devices over the area of the node, 0 to 1."""
    feed_length_m: float
    """Waveguide from the source to the edge of the array."""


@dataclass(frozen=True, kw_only=True)
class SummingWires(Named):
    """Wires by which photocurrents of several cores meet in one amplifier."""

    pair_load: float
    """Capacitance that another core's pair adds, over that of the amplifier with the first; dimensionless."""


@dataclass(frozen=True, kw_only=True)
class Die(Named):
    """Finished die of one kind, by its price per area."""

    price_usd_per_m2: float
    """Price of tested and packaged die."""


BUFFER_SLOTS = 2.0
"""Conversions of its ADC during which a node's buffer is on: one to settle, its own; a choice."""


@dataclass(frozen=True, kw_only=True)
class IntegratingReceiver(BalancedPair):
    """Balanced pair whose difference current charges a capacitor until it is read and emptied.

    Notes
    -----
    Emptying leaves a charge of variance kTC, once per reading whatever was summed before; that is this
    receiver's thermal noise. The pair need not follow a symbol, so its bandwidth does not matter.
    """

    capacitance_f: Positive
    """Capacitor with all capacitance connected to it."""
    swing_v: Positive
    """Largest voltage on it, to either side."""
    temperature_k: float
    """Temperature."""
    buffer_w: float
    """Power of the buffer of a node while it drives the ADC of its block."""
    area_m2: float
    """Area of the pair."""

    @property
    def reset_charge_c(self) -> float:
        """Rms charge that emptying leaves, sqrt(kTC)."""
        return math.sqrt(BOLTZMANN_J_PER_K * self.temperature_k * self.capacitance_f)

    @property
    def full_charge_c(self) -> float:
        """Largest charge that it takes, to either side."""
        return self.capacitance_f * self.swing_v

    @property
    def reset_energy_j(self) -> float:
        """Energy of charging to half the swing and emptying, C (V/2)^2 from the supply."""
        return self.capacitance_f * (self.swing_v / 2.0) ** 2

    def sample_j(self, adc_rate_hz: float) -> float:
        """Return the energy of a reading by an ADC: emptying, and the buffer, on for `BUFFER_SLOTS` of it."""
        return self.reset_energy_j + BUFFER_SLOTS * self.buffer_w / adc_rate_hz

    def noise_density_a_per_sqrt_hz(self, symbol_rate_hz: float, symbols: int, window: float = 1.0) -> float:
        """Return the density of amplifier noise that equals the reset noise of one reading.

        Parameters
        ----------
        symbol_rate_hz : float
            Symbols per second.
        symbols : int
            Symbols between two readings.
        window : float
            Share of a symbol for which current flows onto the capacitor.

        Notes
        -----
        Noise of density i through a gate open for w/f puts a charge of variance i^2 w / (2 f) on the
        capacitor per symbol; n of them equal kTC for i^2 = 2 f kTC / (n w).
        """
        return self.reset_charge_c * math.sqrt(2.0 * symbol_rate_hz / (symbols * window))


@dataclass(frozen=True, kw_only=True)
class InterferometerArms(Named):
    """Arms of an interferometer: stability of the phase between two operands' light.

    References
    ----------
    Laser phase noise of a linewidth w: the phase wanders by 2 pi w t squared in a time t (Wiener process), as
    in any text on coherent receivers.
    """

    linewidth_hz: float
    """Linewidth of the laser."""
    mismatch_m: float
    """Difference in length of the two paths from the common source."""
    group_index: FromOne
    """Group index of the paths, dimensionless."""
    diffusion_s: Positive
    """Time in which slow drift moves the phase by one radian rms, as a random walk."""

    def phase_variance(self, integration_s: float) -> float:
        """Return the mean square of the phase between the arms over an integration, radian squared.

        Parameters
        ----------
        integration_s : float
            Time between two corrections of the phase, one integration.
        """
        delay_s = self.mismatch_m * self.group_index / SPEED_OF_LIGHT_M_PER_S
        laser = 2.0 * math.pi * self.linewidth_hz * delay_s
        return laser + 0.5 * integration_s / self.diffusion_s


def bytes_of_bits(bits: float) -> float:
    """Return the bytes of a word of a number of bits, packed."""
    return bits / BITS_PER_BYTE
