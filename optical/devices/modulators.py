"""Modulators and their drivers: what an operand's symbol costs in energy, in light and in precision.

A modulator is stated by its half-wave voltage and the load that it is to its driver, from which energy, light
and precision of a symbol follow, or, as the libraries of other simulators do, by one energy of a symbol.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from optical.devices.parts import Device, ElectronicDevice
from simulator.errors import ParameterError, Positive
from simulator.units import db_from_ratio, ratio_from_db

THROUGH_NULL = 2
"""Half waves from full transmission through null to full transmission of the other sign."""
FROM_NULL = 1
"""Half waves from null to full transmission, which is all that a power takes."""
_CHARGED_SHARE = 1.0 / 6.0
"""Mean step upwards between two values spread evenly over a swing, over the swing: E[max(x - y, 0)]."""
_MEAN_SQUARE = 1.0 / 12.0
"""Variance of values spread evenly over a swing, over the square of the swing."""


@dataclass(frozen=True, kw_only=True)
class Driver(ElectronicDevice):
    """Linear amplifier between a DAC and a modulator.

    Notes
    -----
    Energy per symbol is power / rate, also at lower rates, as for converters (`Converter`), and in proportion
    to the swing that is taken of it: its output stage is biased for the current of that. What is known of
    its distortion is taken out with the modulator's sine by predistortion; `linearity_db` is what stays.
    """

    swing_v: Positive
    """Largest output between its two sides, peak to peak."""
    power_w: float
    """Power at `rate_hz`, without the power that it delivers to the load."""
    rate_hz: Positive
    """Symbols per second for which it is made."""
    linearity_db: float
    """Full-scale tone over the distortion that predistortion leaves."""
    area_m2: float
    """Area."""

    def symbol_j(self, swing_v: float) -> float:
        """Return the energy of one symbol at a swing, the load's apart."""
        return self.power_w / self.rate_hz * min(1.0, swing_v / self.swing_v)

    @property
    def distortion(self) -> float:
        """Variance of an operand by distortion left after predistortion, full scale 1 (full tone 1/2)."""
        return 0.5 * ratio_from_db(-self.linearity_db)


def load_j(
    swing_v: float, *, capacitance_f: float | None, termination_ohm: float | None, symbol_rate_hz: float
) -> float:
    """Return the energy that a load takes of the supply for one symbol.

    Parameters
    ----------
    swing_v : float
        Peak-to-peak voltage, over which symbols are spread evenly and independently.
    capacitance_f : float or None
        Capacitance, charged by half of all steps: C V E[max(step, 0)] = C V^2 / 6 from a supply of V.
        (Two levels: 1/4 of C V^2.)
    termination_ohm : float or None
        Resistance at the end of a travelling-wave electrode, which takes V^2 / 12 R all the time.
    symbol_rate_hz : float
        Symbols per second.
    """
    charged = (capacitance_f or 0.0) * swing_v**2 * _CHARGED_SHARE
    if termination_ohm is None:
        return charged
    return charged + _MEAN_SQUARE * swing_v**2 / (termination_ohm * symbol_rate_hz)


@dataclass(frozen=True, kw_only=True)
class Modulator(Device):
    """Mach-Zehnder modulator; driven through null its field takes both signs.

    Raises
    ------
    ParameterError
        If it states neither a half-wave voltage nor an energy of a symbol, or both.

    Notes
    -----
    The field is sin((pi / 2) v / V_pi) of the voltage v between its arms, so that both signs take a swing of
    2 V_pi, a power V_pi. A driver that swings less leaves the share s of it and sin(s pi / 2) of the field.
    """

    insertion_loss_db: float
    """Loss at full transmission."""
    extinction_ratio_db: Positive
    """Full over least power; the remaining field stands in quadrature."""
    bandwidth_hz: Positive
    """Electro-optic 3 dB bandwidth."""
    area_m2: float
    """Area."""
    half_wave_v: Positive | None = None
    """Voltage between the arms for half a wave between them; None where only an energy is stated."""
    capacitance_f: Positive | None = None
    """Capacitance that its driver charges, between the arms."""
    termination_ohm: Positive | None = None
    """Resistance that ends its electrodes; None where they are short."""
    holding_w: float | None = None
    """Power that holds its working point, all the time: forward current, or heat; None if it takes none."""
    symbol_energy_j: float | None = None
    """Energy of a symbol where it is stated whole, driver included; None where it follows from the drive."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.symbol_energy_j is None and self.half_wave_v is None:
            msg = (
                f"modulator '{self.name}' states neither half_wave_v nor symbol_energy_j; its symbols cost "
                "something: give one of them"
            )
            raise ParameterError(msg)

    @property
    def tuning_w(self) -> float | None:
        """Power that holds its working point; None if it takes none."""
        return self.holding_w

    @property
    def driven(self) -> bool:
        """Whether its symbols' energy follows from its drive and a driver stands beside it."""
        return self.symbol_energy_j is None

    def swung(self, driver: Driver | None, half_waves: int) -> float:
        """Return the share of its full swing that a driver gives it, 0 to 1.

        Parameters
        ----------
        driver : Driver or None
            Its driver.
        half_waves : int
            `THROUGH_NULL` for fields of both signs, `FROM_NULL` for powers.
        """
        if self.half_wave_v is None or driver is None:
            return 1.0
        return min(1.0, driver.swing_v / (half_waves * self.half_wave_v))

    def drive_loss_db(self, driver: Driver | None, half_waves: int) -> float:
        """Return the light that a swing short of its full one costs, as power."""
        return -2.0 * db_from_ratio(math.sin(0.5 * math.pi * self.swung(driver, half_waves)))

    def symbol_j(self, driver: Driver | None, symbol_rate_hz: float, half_waves: int) -> float:
        """Return the energy of one symbol, driver included.

        Parameters
        ----------
        driver : Driver or None
            Its driver.
        symbol_rate_hz : float
            Symbols per second, at which a termination takes its power.
        half_waves : int
            As in `swung`.
        """
        if self.half_wave_v is None or driver is None or self.symbol_energy_j is not None:
            return self.symbol_energy_j or 0.0
        swing_v = self.swung(driver, half_waves) * half_waves * self.half_wave_v
        load = load_j(
            swing_v,
            capacitance_f=self.capacitance_f,
            termination_ohm=self.termination_ohm,
            symbol_rate_hz=symbol_rate_hz,
        )
        return load + driver.symbol_j(swing_v)

    def grid_error(self, driver: Driver | None, half_waves: int) -> float:
        """Return the error of a DAC's even grid behind the sine, over that of an even grid of operands.

        Parameters
        ----------
        driver : Driver or None
            Its driver.
        half_waves : int
            As in `swung`.

        Notes
        -----
        Predistortion picks the code whose sine is nearest. A phase on a grid of 2 s over 2^b codes, with
        s = (pi / 2) share, moves the field sin(phase) / sin(s) by cos(phase) times its error: in units of
        4^-b / 3 that is (s / sin s)^2 cos^2. Of small operands cos is 1: pi^2 / 4 = 2.47 at full swing, which
        counts here; Gaussian ones cut at four deviations have 2.31, evenly spread ones pi^2 / 6 = 1.64.
        Powers, sin^2 of half a phase, have the same bound, at half of full scale.
        """
        if self.half_wave_v is None or driver is None:
            return 1.0
        phase = 0.5 * math.pi * self.swung(driver, half_waves)
        steepest = math.sin(min(2.0 * phase, 0.5 * math.pi)) if half_waves == FROM_NULL else math.sin(phase)
        return (phase * steepest / math.sin(phase) ** 2) ** 2

    def distortion(self, driver: Driver | None) -> float:
        """Return the variance of an operand by driver distortion that predistortion leaves, full scale 1."""
        return 0.0 if self.half_wave_v is None or driver is None else driver.distortion


@dataclass(frozen=True, kw_only=True)
class PowerModulator(Device):
    """Modulator of the power in one waveguide by a voltage: base of ring and absorption modulators.

    Raises
    ------
    ParameterError
        If it states neither a swing nor an energy of a symbol.

    Notes
    -----
    It turns light down but not through null into the other sign, so it serves inputs that are powers (a
    weight bank, an array of absorbers), not those that are fields.
    """

    insertion_loss_db: float
    """Loss at full transmission."""
    extinction_ratio_db: Positive
    """Full over least power."""
    bandwidth_hz: Positive
    """Electro-optic 3 dB bandwidth."""
    tuning_w: float
    """Power that holds its working point, all the time: a heater with its lock, or absorbed light."""
    area_m2: float
    """Area."""
    swing_v: Positive | None = None
    """Peak-to-peak voltage for its extinction; None where only an energy is stated."""
    capacitance_f: Positive | None = None
    """Capacitance that its driver charges."""
    symbol_energy_j: float | None = None
    """Energy of a symbol where it is stated whole, driver included; None where it follows from the drive."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.symbol_energy_j is None and self.swing_v is None:
            msg = (
                f"modulator '{self.name}' states neither swing_v nor symbol_energy_j; its symbols cost "
                "something: give one of them"
            )
            raise ParameterError(msg)

    @property
    def driven(self) -> bool:
        """Whether its symbols' energy follows from its drive and a driver stands beside it."""
        return self.symbol_energy_j is None

    def drive_loss_db(self, driver: Driver | None, half_waves: int) -> float:
        """Return 0: a driver that swings too little is refused.

        Raises
        ------
        ParameterError
            If it does.
        """
        if self.swing_v is not None and driver is not None and driver.swing_v < self.swing_v:
            msg = (
                f"driver '{driver.name}' swings {driver.swing_v:g} V, and modulator '{self.name}' needs "
                f"{self.swing_v:g} V for its extinction; take another driver (heliograph list parts)"
            )
            raise ParameterError(msg)
        return 0.0

    def symbol_j(self, driver: Driver | None, symbol_rate_hz: float, half_waves: int) -> float:
        """Return the energy of one symbol, driver included."""
        if self.swing_v is None or driver is None or self.symbol_energy_j is not None:
            return self.symbol_energy_j or 0.0
        load = load_j(
            self.swing_v,
            capacitance_f=self.capacitance_f,
            termination_ohm=None,
            symbol_rate_hz=symbol_rate_hz,
        )
        return load + driver.symbol_j(self.swing_v)

    def grid_error(self, driver: Driver | None, half_waves: int) -> float:
        """Return the mean error of a DAC's even grid behind the curve, over that of an even grid of operands.

        Notes
        -----
        Mean over evenly spread powers of the square of the curve's slope over its mean slope; 1 where only an
        energy is stated, as no curve is known then.
        """
        return 1.0 if self.swing_v is None or driver is None else self._curved

    @property
    def _curved(self) -> float:
        """Error of an even grid of voltages over that of an even grid of powers."""
        raise NotImplementedError

    def distortion(self, driver: Driver | None) -> float:
        """Return the variance of an operand by driver distortion that predistortion leaves, full scale 1."""
        return 0.0 if self.swing_v is None or driver is None else driver.distortion


@dataclass(frozen=True, kw_only=True)
class RingModulator(PowerModulator):
    """Microring that modulates the power of one wavelength, held on it by a heater."""

    @property
    def _curved(self) -> float:
        """Error of the grid for a notch moved from its least to its full transmission.

        T = x^2 / (1 + x^2) of the detuning x, whose slope is 2 sqrt(T) (1 - T)^1.5; x ends where transmission
        is 1 / (1 + 1/9), at 0.46 dB, and begins where the extinction ratio leaves it.
        """
        least = 0.9 * ratio_from_db(-self.extinction_ratio_db)
        most = 0.9
        swept = math.sqrt(most / (1.0 - most)) - math.sqrt(least / (1.0 - least))
        slope = 4.0 * (_cubic(most) - _cubic(least)) / (most - least)
        return slope * (swept / (most - least)) ** 2


def _cubic(power: float) -> float:
    """Return the integral of T (1 - T)^3 from 0."""
    return power**2 / 2.0 - power**3 + 3.0 * power**4 / 4.0 - power**5 / 5.0


@dataclass(frozen=True, kw_only=True)
class AbsorptionModulator(PowerModulator):
    """Electro-absorption modulator: its loss in decibels follows the voltage."""

    @property
    def _curved(self) -> float:
        """Error of the grid for powers that fall exponentially with the voltage.

        T = exp(-g v), v from 0 to 1, g = ln(extinction): slope g T, mean square g^2 (1 - r^3) / 3 (1 - r)
        over evenly spread powers from r = exp(-g) to 1, and (1 - r)^2 for the range.
        """
        least = ratio_from_db(-self.extinction_ratio_db)
        steep = math.log(least) ** 2
        return steep * (1.0 - least**3) / (3.0 * (1.0 - least) ** 3)
