"""Receivers in time: gain, intersymbol interference and noise bandwidths of a sample.

An integrator averages the current over a part of every symbol. It lets in noise of half the symbol rate over
that part, but also the edges of the symbols. An amplifier and sampler reads one instant: edges have died away
by then, and the noise is that of its own bandwidth, which is larger. Both gain and noise follow here from the
same weights over time, so that no core can have the interference of the one with the noise of the other.

The response of a symbol is computed on a grid of `STEPS` time steps per symbol (`reading_of`): operands hold
their level for a symbol, pass the poles of modulators and rings as fields, multiply, pass the poles of
detector and amplifier as currents, and are weighted by the readout. The moment of the reading, and of the
source's pulses if it has any, are those of least interference and other noise.

Shape suffixes: D distance in symbols between the two operands of a product, J whole symbols since the earlier
one began, K such symbols within reach of a sum of symbols, T time steps of a symbol.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from optical.devices import Integrator, Sampler
from optical.devices.devices import BalancedPair
from simulator.errors import ParameterError, check_positive, check_range
from simulator.units import ELEMENTARY_CHARGE_C, ratio_from_db

Array = NDArray[np.float64]

STEPS = 128
"""Time steps of a symbol; gains come out to 1e-3 (a test compares them with closed forms)."""
DIED_AWAY = 12.0
"""Time constants of the slowest pole after which a symbol is gone: e^-12 is -104 dB."""
LONGEST = 48
"""Most symbols for which the response of one is followed."""
OTHER_NOISE = 1e-3
"""Noise other than interference for which the timing is chosen, per (a b)^2: 30 dB. Without it a reading of
hardly any gain and interference could be the best. Dimensionless."""
PULSE_TIMES = 32
"""Positions of the source's pulse within the symbol that are tried."""
LEAST_GAIN = 1e-9
"""Least gain of a reading, so that it can be divided by; dimensionless."""
SUMMED_MOST = 8
"""Symbols of a sample over which correlations of amplifier noise are followed; more change nothing."""


@dataclass(frozen=True, kw_only=True)
class Symbols:
    """Poles and readout that symbols pass from the modulators to a sample.

    Notes
    -----
    Poles are of first order. Those of modulators and rings act on fields (on powers where inputs are powers),
    those of detectors and amplifiers on currents. Operands hold their level for a symbol (NRZ) at the
    modulator; a pulsed source then lights them for a moment.
    """

    rate_hz: float
    """Symbols per second."""
    symbols: int
    """Symbols added in one sample."""
    operands: int
    """Operands that change every symbol: 2, or 1 where the other is held."""
    modulator_hz: tuple[float, ...]
    """Poles of the modulators that set the operands."""
    ring_hz: tuple[float, ...] = ()
    """Poles that modulated light passes: half the linewidths of rings."""
    detector_hz: tuple[float, ...] = ()
    """Poles of the detector."""
    amplifier_hz: tuple[float, ...] = ()
    """Poles of the amplifier."""
    readout: Integrator | Sampler | None = None
    """Readout of the current; None for an integrator without a gate."""
    pulse: float | None = None
    """Width of the source's pulses over a symbol, at half their power; None for light that is always on."""
    jitter_s: float = 0.0
    """Standard deviation of the source's pulses in time."""

    def __post_init__(self) -> None:
        check_positive(self, "rate_hz")
        check_range(self, "symbols", low=1)
        check_range(self, "operands", low=1, high=2)
        check_range(self, "jitter_s")
        if self.memory > LONGEST:
            msg = (
                f"a symbol rate of {self.rate_hz:.3g} Hz is {self.rate_hz / self.slowest_hz:.0f} times the "
                f"slowest bandwidth on the way ({self.slowest_hz:.3g} Hz), so that {self.memory} symbols "
                f"overlap and at most {LONGEST} are followed; lower symbol_rate_hz or take faster parts"
            )
            raise ParameterError(msg)

    @property
    def current_hz(self) -> tuple[float, ...]:
        """Poles that act on the current, the readout's own among them."""
        return (*self.detector_hz, *self.noise_hz)

    @property
    def noise_hz(self) -> tuple[float, ...]:
        """Poles that amplifier noise passes."""
        own_hz = self.readout.poles_hz(self.rate_hz) if self.readout else ()
        return (*self.amplifier_hz, *own_hz)

    @property
    def weights(self) -> Array:
        """Weights of the readout over the time steps up to the moment at which it ends, shape [weights]."""
        if self.readout is None:
            return np.full(STEPS, 1.0 / STEPS)
        return self.readout.weights(self.rate_hz, STEPS)

    @property
    def slowest_hz(self) -> float:
        """Least bandwidth of all poles."""
        return min((*self.modulator_hz, *self.ring_hz, *self.current_hz), default=math.inf)

    @property
    def memory(self) -> int:
        """Symbols until the response of one has died away, its own included."""
        return 3 + math.ceil(DIED_AWAY * self.rate_hz / (2.0 * math.pi * self.slowest_hz))


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Gain, interference and noise bandwidths of a sample."""

    gain: float
    """Current of a product that is read, over the current if its operands never changed; dimensionless."""
    interference: float
    """Variance by products of other symbols and by jitter, per unit of (a b)^2 that is read."""
    bandwidth_hz: float
    """Noise bandwidth of the amplifier's input noise, per symbol of a sample."""
    light_bandwidth_hz: float
    """Noise bandwidth of photons as they arrive."""
    intensity_bandwidth_hz: float
    """Noise bandwidth of the light's intensity: pulses average over less time than a symbol."""


@lru_cache(maxsize=4096)
def reading_of(symbols: Symbols) -> Reading:
    """Return gain, interference and bandwidths of a sample's symbols, read at the best time.

    Notes
    -----
    A product a_i b_j adds C_ij to a sample, the integral of weights over s(t - i T) s(t - j T), s being the
    response of an operand to its symbol. The gain is the mean C_ii of the symbols that are meant. What is
    left of C, in squares, is the interference, operands of different symbols taken to be uncorrelated. No
    digital step removes it where both operands change: the sum over the symbols has been taken.

    One pole B, x = 2 pi B/f, and an integrator over whole symbols that stay together: gain 1 - 1/x, and two
    terms a_k b_(k-1) of 1/(2 x) each. A sampler at the end: e^-x. White noise of density i^2 has the variance
    i^2 times half the integral of the squared weights: f/2 for that integrator, (pi/2) B for a sampler behind
    one pole B.
    """
    pulse_steps = [0] if symbols.pulse is None else range(0, STEPS, STEPS // PULSE_TIMES)
    best = min((_best_timing(symbols, pulse_step) for pulse_step in pulse_steps), key=lambda each: each.noise)
    light = np.roll(_envelope(symbols, best.pulse_step, _length(symbols))[::-1], best.end_step + 1) ** 2
    return Reading(
        gain=best.gain,
        interference=best.interference,
        bandwidth_hz=_noise_bandwidth_hz(symbols, symbols.noise_hz, np.ones_like(light)),
        light_bandwidth_hz=_noise_bandwidth_hz(symbols, symbols.current_hz, light),
        intensity_bandwidth_hz=_noise_bandwidth_hz(symbols, symbols.current_hz, light**2),
    )


def _noise_bandwidth_hz(symbols: Symbols, poles_hz: tuple[float, ...], power: Array) -> float:
    """Return half the integral of the squared weights times `power`, the density of the noise over time."""
    added = min(symbols.symbols, SUMMED_MOST)
    impulse = np.zeros(_length(symbols))
    impulse[: added * STEPS : STEPS] = STEPS
    weights = _weighted(_filtered(impulse, poles_hz, symbols.rate_hz), symbols.weights)
    return float(0.5 * symbols.rate_hz * np.sum(weights**2 * power) / (STEPS * added))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Timing:
    """A time of reading, for one position of the source's pulse in the symbol."""

    pulse_step: int
    """Time step of the pulse within the symbol."""
    end_step: int
    """Time steps from the start of a sample's first symbol to the end of the readout's weights."""
    gain: float
    """As in `Reading`."""
    interference: float
    """As in `Reading`."""
    noise: float
    """Interference and `OTHER_NOISE` over the square of the gain, by which timings are compared."""


def _length(symbols: Symbols) -> int:
    """Return the number of time steps after which the response to a sum of symbols has decayed."""
    return STEPS * int(2 ** math.ceil(math.log2(symbols.memory + SUMMED_MOST)))


def _filtered(values: Array, poles_hz: tuple[float, ...], rate_hz: float) -> Array:
    """Return signals, with time along the last axis, after first-order poles."""
    length = values.shape[-1]
    delay = np.exp(-2j * math.pi * np.arange(length // 2 + 1) / length)  # by one step, at each frequency
    response = np.ones_like(delay)
    for pole_hz in poles_hz:
        decay = math.exp(-2.0 * math.pi * pole_hz / (rate_hz * STEPS))
        response *= (1.0 - decay) / (1.0 - decay * delay)
    return np.fft.irfft(np.fft.rfft(values) * response, length)


def _weighted(values: Array, weights: Array) -> Array:
    """Return the weighted sums of signals, for a window of weights that ends at each time step."""
    length = values.shape[-1]
    return np.fft.irfft(np.fft.rfft(values) * np.fft.rfft(weights, length), length)


def _envelope(symbols: Symbols, pulse_step: float, length: int) -> Array:
    """Return the field of the source over time, of mean power 1: Gaussian pulses, or always on."""
    if symbols.pulse is None:
        return np.ones(length)
    from_pulse = ((np.arange(length) - pulse_step) / STEPS + 0.5) % 1.0 - 0.5  # in symbols
    field = np.exp(-2.0 * math.log(2.0) * (from_pulse / symbols.pulse) ** 2)
    return np.asarray(field / math.sqrt(float(np.mean(field**2))))


def _readings(symbols: Symbols, pulse_step: float) -> Array:
    """Return the readings of the product of one symbol's operand with a later symbol's, shape [D, J, T].

    The time is that of the end of the readout's weights, from the start of the earlier symbol.
    """
    length = _length(symbols)
    level = np.zeros(length)
    level[:STEPS] = 1.0
    envelope = _envelope(symbols, pulse_step, length)
    lit = _filtered(level, symbols.modulator_hz, symbols.rate_hz) * envelope
    field = _filtered(lit, symbols.ring_hz, symbols.rate_hz)
    if symbols.operands == 1:
        products = field[np.newaxis] * envelope
    else:
        later = (np.roll(field, distance * STEPS) for distance in range(symbols.memory))
        products = field * np.array(list(later))
    currents = _filtered(products, symbols.current_hz, symbols.rate_hz)
    return _weighted(currents, symbols.weights).reshape(len(products), -1, STEPS)


def _best_timing(symbols: Symbols, pulse_step: int) -> _Timing:
    """Return the time of reading with least noise, for the source's pulses at a time step of the symbol."""
    readings_DJT, count = _readings(symbols, pulse_step), symbols.symbols
    # Products a_i b_(i+d) and a_(i+d) b_i are alike.
    pairs_D = np.where(np.arange(len(readings_DJT)) > 0, 2.0, 1.0)
    summed_DKT, inner = _summed(readings_DJT, count)
    inner_DT = readings_DJT.sum(axis=1)
    squares_T = np.einsum("d,dkt->t", pairs_D, summed_DKT**2) + inner * (pairs_D @ inner_DT**2)
    if symbols.pulse is None:
        jitter_T = _clock_jitter(symbols, readings_DJT, pairs_D)
    else:
        jitter_T = _pulse_jitter(symbols, pulse_step, pairs_D)
    timings = []
    for delay in range(min(symbols.memory, 4)):  # symbols between a sample's own and those that it reads
        own_KT = summed_DKT[0, delay : delay + count - inner]
        gain_T = (own_KT.sum(axis=0) + inner * inner_DT[0]) / count
        interference_T = np.maximum(squares_T / count - gain_T**2, 0.0) + jitter_T
        signal_T = np.maximum(gain_T, LEAST_GAIN) ** 2
        noise_T = (interference_T + OTHER_NOISE) / signal_T
        step = int(np.argmin(noise_T))
        timing = _Timing(
            pulse_step=pulse_step,
            end_step=delay * STEPS + step,
            gain=float(gain_T[step]),
            interference=float(interference_T[step] / signal_T[step]),
            noise=float(noise_T[step]),
        )
        timings.append(timing)
    return min(timings, key=lambda timing: timing.noise)


def _summed(readings_DJT: Array, symbols: int) -> tuple[Array, int]:
    """Return the part of each symbol in a sample of `symbols` symbols, [D, K, T], and the inner symbols.

    Inner symbols are those whose whole response falls into the sample. Each adds the same, the sum of its
    readings, so that only their number is returned; K counts the others.
    """
    distances, followed, _ = readings_DJT.shape
    count = min(symbols, followed + 1)
    running = np.concatenate([np.zeros((distances, 1, STEPS)), np.cumsum(readings_DJT, axis=1)], axis=1)
    place = np.arange(followed + count - 1)
    upper = running[:, np.minimum(place + 1, followed)]
    return upper - running[:, np.maximum(place + 1 - count, 0)], symbols - count


def _clock_jitter(symbols: Symbols, readings_DJT: Array, pairs_D: Array) -> Array:
    """Return the variance by jitter of the readout's clock, independent for each symbol, shape [T]."""
    over_time = readings_DJT.reshape(len(readings_DJT), -1)
    slopes_DJT = np.asarray(np.gradient(over_time, axis=1)).reshape(readings_DJT.shape) * STEPS
    jitter_s = symbols.readout.jitter_s if symbols.readout else 0.0
    return (jitter_s * symbols.rate_hz) ** 2 * np.einsum("d,dkt->t", pairs_D, slopes_DJT**2)


def _pulse_jitter(symbols: Symbols, pulse_step: int, pairs_D: Array) -> Array:
    """Return the variance by jitter of the source's pulses, shape [T]."""
    if symbols.jitter_s == 0.0:
        return np.zeros(STEPS)
    slopes_DJT = (_readings(symbols, pulse_step + 0.5) - _readings(symbols, pulse_step - 0.5)) * STEPS
    return (symbols.jitter_s * symbols.rate_hz) ** 2 * np.einsum("d,dkt->t", pairs_D, slopes_DJT**2)


@dataclass(frozen=True, kw_only=True)
class Receiver(Reading):
    """Balanced pair with its amplifier as it reads symbols, and the noise of the source's light."""

    responsivity_a_per_w: float
    """Photocurrent per power."""
    dark_current_a: float
    """Dark current of one detector."""
    cmrr_db: float
    """Common-mode rejection of the pair."""
    noise_a_per_sqrt_hz: float
    """Noise density of the amplifier."""
    rin_db_per_hz: float
    """Relative intensity noise of the source."""
    leakage: float
    """Least over full power of a modulator, dimensionless."""
    pairs: int = 1
    """Detector pairs on one amplifier."""

    @classmethod
    def of(
        cls,
        symbols: Symbols,
        pair: BalancedPair,
        *,
        noise_a_per_sqrt_hz: float,
        rin_db_per_hz: float,
        leakage: float,
        pairs: int = 1,
    ) -> Receiver:
        """Return the receiver that reads such symbols; keywords are its fields."""
        read = reading_of(symbols)
        return cls(
            **{one.name: getattr(read, one.name) for one in fields(Reading)},
            responsivity_a_per_w=pair.responsivity_a_per_w,
            dark_current_a=pair.dark_current_a,
            cmrr_db=pair.cmrr_db,
            noise_a_per_sqrt_hz=noise_a_per_sqrt_hz,
            rin_db_per_hz=rin_db_per_hz,
            leakage=leakage,
            pairs=pairs,
        )

    def __post_init__(self) -> None:
        check_positive(self, "bandwidth_hz", "light_bandwidth_hz", "intensity_bandwidth_hz")
        check_positive(self, "responsivity_a_per_w")
        check_range(self, "dark_current_a", "noise_a_per_sqrt_hz", "interference")
        check_range(self, "gain", low=0.0, high=1.5, open_low=True)
        check_range(self, "pairs", low=1)
        if not 0.0 <= self.leakage < 1.0:
            msg = f"Receiver: leakage must be at least 0 and below 1; got {self.leakage:g}"
            raise ParameterError(msg)

    @property
    def usable(self) -> float:
        """Share of the swing that is left by leakage and unsettled symbols, dimensionless."""
        return (1.0 - self.leakage) * self.gain

    @property
    def thermal_current_a2(self) -> float:
        """Variance of the current without light, ampere squared."""
        dark = 2.0 * ELEMENTARY_CHARGE_C * 2.0 * self.dark_current_a * self.pairs
        return self.noise_a_per_sqrt_hz**2 * self.bandwidth_hz + dark * self.light_bandwidth_hz

    @property
    def shot_a(self) -> float:
        """Variance of a current per current, 2 q B."""
        return 2.0 * ELEMENTARY_CHARGE_C * self.light_bandwidth_hz

    @property
    def rin_ratio(self) -> float:
        """Variance of relative power within the bandwidth, dimensionless."""
        return ratio_from_db(self.rin_db_per_hz) * self.intensity_bandwidth_hz

    @property
    def rejection(self) -> float:
        """Share of a common current's variance that the pair lets through, dimensionless."""
        return ratio_from_db(-self.cmrr_db)
