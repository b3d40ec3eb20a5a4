"""Receivers in time: how symbols become samples, with the light of their neighbours and the noise let in.

A receiver is one thing. An integrator averages the current over a part of every symbol: it lets in noise of
half the symbol rate over that part, and with it the edges of the symbols. An amplifier and sampler reads one
instant: edges have died away by then, and the noise is that of its own bandwidth, which is larger. Both
follow here from the same weights over time, so no core can have the better half of each.
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
"""Steps of a symbol on the grid of time; gains come out to 1e-3 (a test compares them with closed forms)."""
DIED_AWAY = 12.0
"""Time constants of the slowest pole after which a symbol is gone: e^-12 is -104 dB."""
LONGEST = 48
"""Symbols for which one is followed, at most."""
OTHER_NOISE = 1e-3
"""Other noise beside which the timing is best, per (a b)^2: 30 dB, so that no gain is given for nothing."""
PULSE_TIMES = 32
"""Places of the pulse within the symbol that are tried."""
LEAST_GAIN = 1e-9
"""Least gain of a reading, so that it can be divided by; dimensionless."""
SUMMED_MOST = 8
"""Symbols of a sample over which correlations of amplifier noise are followed; more change nothing."""


@dataclass(frozen=True, kw_only=True)
class Symbols:
    """Symbols on their way from modulators to samples: the poles that they pass and how they are read.

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
        """Weights of the steps of time up to the moment at which a symbol is read."""
        if self.readout is None:
            return np.full(STEPS, 1.0 / STEPS)
        return self.readout.weights(self.rate_hz, STEPS)

    @property
    def slowest_hz(self) -> float:
        """Least bandwidth on the way."""
        return min((*self.modulator_hz, *self.ring_hz, *self.current_hz), default=math.inf)

    @property
    def memory(self) -> int:
        """Symbols until one has died away, its own among them."""
        return 3 + math.ceil(DIED_AWAY * self.rate_hz / (2.0 * math.pi * self.slowest_hz))


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Share of the symbols and noise that a sample of them holds."""

    gain: float
    """Current of a product that is read over that of light which never changes, dimensionless."""
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
    places = [0] if symbols.pulse is None else range(0, STEPS, STEPS // PULSE_TIMES)
    place, timed = min(((one, _at_pulse(symbols, one)) for one in places), key=lambda one: one[1].badness)
    light = np.roll(_envelope(symbols, place, _length(symbols))[::-1], timed.late + 1) ** 2
    return Reading(
        gain=timed.gain,
        interference=timed.interference,
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


@dataclass(frozen=True, slots=True)
class _Timed:
    """Reading at the best time, for one position of the source's pulse in the symbol."""

    badness: float
    """Interference and other noise over signal."""
    gain: float
    interference: float
    late: int
    """Steps from the start of a symbol to the end of its weights."""


def _length(symbols: Symbols) -> int:
    """Return the time steps in which the response to a sum of symbols decays."""
    return STEPS * int(2 ** math.ceil(math.log2(symbols.memory + SUMMED_MOST)))


def _filtered(values: Array, poles_hz: tuple[float, ...], rate_hz: float) -> Array:
    """Return signals, with time along the last axis, after first-order poles."""
    length = values.shape[-1]
    turn = np.exp(-2j * math.pi * np.arange(length // 2 + 1) / length)
    response = np.ones_like(turn)
    for pole_hz in poles_hz:
        kept = math.exp(-2.0 * math.pi * pole_hz / (rate_hz * STEPS))
        response *= (1.0 - kept) / (1.0 - kept * turn)
    return np.fft.irfft(np.fft.rfft(values) * response, length)


def _weighted(values: Array, weights: Array) -> Array:
    """Return the weighted sums of signals, for a window of weights that ends at each time step."""
    length = values.shape[-1]
    return np.fft.irfft(np.fft.rfft(values) * np.fft.rfft(weights, length), length)


def _envelope(symbols: Symbols, place: float, length: int) -> Array:
    """Return the field of the source over time, of mean power 1: Gaussian pulses, or always on."""
    if symbols.pulse is None:
        return np.ones(length)
    away = ((np.arange(length) - place) / STEPS + 0.5) % 1.0 - 0.5
    field = np.exp(-2.0 * math.log(2.0) * (away / symbols.pulse) ** 2)
    return np.asarray(field / math.sqrt(float(np.mean(field**2))))


def _products(symbols: Symbols, place: float) -> Array:
    """Return the readings of products of a symbol and a later one, by distance and time in steps."""
    length = _length(symbols)
    held = np.zeros(length)
    held[:STEPS] = 1.0
    lit = _filtered(held, symbols.modulator_hz, symbols.rate_hz) * _envelope(symbols, place, length)
    field = _filtered(lit, symbols.ring_hz, symbols.rate_hz)
    if symbols.operands == 1:
        pairs = field[np.newaxis] * _envelope(symbols, place, length)
    else:
        later = (np.roll(field, apart * STEPS) for apart in range(symbols.memory))
        pairs = field * np.array(list(later))
    currents = _filtered(pairs, symbols.current_hz, symbols.rate_hz)
    return _weighted(currents, symbols.weights)


def _at_pulse(symbols: Symbols, place: int) -> _Timed:
    """Return the reading at the best time, with the source's pulses at time step `place` of the symbol."""
    read = _products(symbols, place)
    times = read.reshape(len(read), -1, STEPS)
    twice = np.where(np.arange(len(read)) > 0, 2.0, 1.0)
    summed, further = _summed(times, symbols.symbols)
    squares = np.einsum("d,djt->t", twice, summed**2) + further * (twice @ times.sum(axis=1) ** 2)
    moved = _jitter(symbols, times, twice) if symbols.pulse is None else _pulse_jitter(symbols, place, twice)
    count = min(symbols.symbols, times.shape[1] + 1)
    best: list[_Timed] = []
    for first in range(min(symbols.memory, 4)):
        meant = summed[0, first : first + count].sum(axis=0) + further * times[0].sum(axis=0)
        gain = meant / symbols.symbols
        left = np.maximum(squares / symbols.symbols - gain**2, 0.0) + moved
        square = np.maximum(gain, LEAST_GAIN) ** 2
        badness = (left + OTHER_NOISE) / square
        at = int(np.argmin(badness))
        late = first * STEPS + at
        best.append(_Timed(float(badness[at]), float(gain[at]), float(left[at] / square[at]), late))
    return min(best, key=lambda one: one.badness)


def _summed(times: Array, symbols: int) -> tuple[Array, int]:
    """Return the contribution of each symbol to a sum of symbols, and the number of further inner symbols."""
    apart, known, _ = times.shape
    count = min(symbols, known + 1)
    running = np.concatenate([np.zeros((apart, 1, STEPS)), np.cumsum(times, axis=1)], axis=1)
    place = np.arange(known + count - 1)
    upper = running[:, np.minimum(place + 1, known)]
    return upper - running[:, np.maximum(place + 1 - count, 0)], symbols - count


def _jitter(symbols: Symbols, times: Array, twice: Array) -> Array:
    """Return the variance by jitter of the readout's clock, independent for each symbol, by time."""
    flat = times.reshape(len(times), -1)
    slopes = np.asarray(np.gradient(flat, axis=1)).reshape(times.shape) * STEPS
    jitter_s = symbols.readout.jitter_s if symbols.readout else 0.0
    return (jitter_s * symbols.rate_hz) ** 2 * np.einsum("d,dkt->t", twice, slopes**2)


def _pulse_jitter(symbols: Symbols, place: int, twice: Array) -> Array:
    """Return the variance by jitter of the source's pulses, by time."""
    if symbols.jitter_s == 0.0:
        return np.zeros(STEPS)
    moved = _products(symbols, place + 0.5) - _products(symbols, place - 0.5)
    slopes = moved.reshape(len(moved), -1, STEPS) * STEPS
    return (symbols.jitter_s * symbols.rate_hz) ** 2 * np.einsum("d,dkt->t", twice, slopes**2)


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
