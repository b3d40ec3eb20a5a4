"""Reading of a remainder from the phase of light: signal, noise, and the spread of loss with the data.

A remainder r of modulus m is the phase 2 pi r / m. Sums and products wrap around as phases do, so unlike an
amplitude a phase need not grow finer with the length of a sum; only its loss and its errors add up.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy

from optical.devices.limits import bits_from_snr
from optical.execution.residues import Residues
from optical.noise.link_budget import Element, NoiseRatio, loss_db
from optical.noise.receiver import Receiver
from simulator.amounts import Reals
from simulator.checks import check_positive, check_range
from simulator.units import ratio_from_db


def phase_misreading(noise: Reals, modulus: int) -> Reals:
    """Return how likely one of `modulus` phases is read as another, 0 to 1.

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
    """Return the Gaussian noise, in steps rms, that misreads a remainder as often (`residues`)."""
    inverse = float(scipy.special.erfcinv(chance))
    return 0.0 if math.isinf(inverse) else 0.5 / (math.sqrt(2.0) * inverse)


RANGE_SIGMAS = 3.0
"""Spreads of the loss by which light may be brighter than at its mean before a converter clips it.

Dimensionless. Beyond, a clipped quadrature turns the phase by less than half a step of 17 as long as it is
clipped by less than a fifth, 1.9 dB.
"""


@dataclass(frozen=True, kw_only=True)
class PhaseChannel:
    """One row of units for one modulus: the light that arrives, and its noise beside it.

    Notes
    -----
    A 90 degree hybrid gives each of two balanced pairs half of the signal P and of the oscillator L, whose
    difference currents are A cos(phi) and A sin(phi) with A = R sqrt(P L) times the receiver's gain. Each has
    the amplifier's noise, shot noise 2 q R (P + L)/2 B, intensity noise that the pair fails to reject, and
    its ADC's error; intensity noise of the product moves the amplitude and no phase. Phase errors of units,
    arms and switches turn the phase by so many radians rms, which near the border counts as A times as much
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

    modulus: int
    """Phases that are told apart."""
    elements: tuple[Element, ...]
    """Losses whatever the digits, on the signal's way."""
    digits: int
    """Digits that light passes, of all units."""
    one_loss_db: float
    """Loss at a digit that is 1."""
    zero_loss_db: float
    """Loss at a digit that is 0."""
    oscillator_loss_db: float
    """Loss of the oscillator."""
    signal_w: float
    """Launched power of this row's signal."""
    oscillator_launch_w: float
    """Launched power of its oscillator."""
    receiver: Receiver
    """Receiver of a quadrature."""
    adc_enob_bits: float
    """Effective bits of its converter, whose range holds all but the least losses (`headroom`)."""
    phase_variances: Mapping[str, float]
    """Squared phase errors by cause, in radians squared."""

    def __post_init__(self) -> None:
        check_positive(self, "signal_w", "oscillator_launch_w", "adc_enob_bits")
        check_range(self, "digits", low=1)
        check_range(self, "modulus", low=2)
        check_range(self, "one_loss_db", "zero_loss_db", "oscillator_loss_db")

    @property
    def loss_db(self) -> float:
        """Mean loss of the signal."""
        return loss_db(self.path)

    @property
    def path(self) -> tuple[Element, ...]:
        """Losses of the signal, those of its digits at their mean."""
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
        """The same with light and its detection alone, converters and phase errors left out."""
        ratio = self.noise_ratio
        intensity = {"laser intensity noise": ratio.bright["laser intensity noise"]}
        bare = dataclasses.replace(self, phase_variances={})
        return bare._misreading(dataclasses.replace(ratio, bright=intensity))

    def _misreading(self, ratio: NoiseRatio) -> float:
        turned = math.fsum(self.phase_variances.values())
        added = ratio.total - turned
        ones = np.arange(self.digits + 1)
        excess_db = (ones - 0.5 * self.digits) * (self.one_loss_db - self.zero_loss_db)
        noise = added * 10.0 ** (excess_db / 10.0) + turned
        chances = phase_misreading(np.asarray(noise, dtype=float), self.modulus)
        gammaln = scipy.special.gammaln
        ways = gammaln(self.digits + 1) - gammaln(ones + 1) - gammaln(self.digits - ones + 1)
        return float(np.sum(np.exp(ways - self.digits * math.log(2.0)) * chances))


@dataclass(frozen=True, kw_only=True)
class PhaseBudget:
    """The light of all moduli together, as a whole number is read from it."""

    channels: tuple[PhaseChannel, ...]
    """One for each modulus."""
    full_scale: float
    """Largest sum, to either side, in steps of the whole number."""

    @property
    def weakest(self) -> PhaseChannel:
        """The channel that is misread most."""
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
        """Effective bits of a full-scale sum as light alone would let it be reconstructed."""
        chances = [channel.light_misreading for channel in self.channels]
        moduli = tuple(channel.modulus for channel in self.channels)
        sigmas = tuple(sigma_of_misreading(chance) for chance in chances)
        variance = Residues(moduli=moduli, sigmas=sigmas).error_variance
        return math.inf if variance == 0.0 else bits_from_snr(self.full_scale**2 / variance)
