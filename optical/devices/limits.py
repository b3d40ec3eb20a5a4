"""Limits of physics, each law a function of its own, so that models can be held to it.

Nothing here knows a device of ours: these are the floors that link budgets, converters and whole systems must
stay above.
"""

from __future__ import annotations

import math

from simulator.errors import ParameterError
from simulator.units import (
    BOLTZMANN_J_PER_K,
    ELEMENTARY_CHARGE_C,
    PLANCK_J_S,
    SPEED_OF_LIGHT_M_PER_S,
    db_from_ratio,
    ratio_from_db,
    to_si,
)

TELECOM_WAVELENGTH_M = to_si("wavelength_m", 1.55, "um")
"""Wavelength of most silicon photonics; a choice."""
ROOM_TEMPERATURE_K = 300.0
"""Temperature at which thermal limits are quoted; a choice."""


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not 0.0 < value < math.inf:
            msg = f"{name} must be positive and finite; got {value:g}"
            raise ParameterError(msg)


def bits_from_snr(snr: float) -> float:
    """Return the effective bits of a power ratio, (10 log10 SNR - 1.76) / 6.02; infinite without noise."""
    return math.inf if math.isinf(snr) else (db_from_ratio(snr) - 1.76) / 6.02


def snr_from_bits(bits: float) -> float:
    """Return the power ratio that so many effective bits stand for."""
    return math.inf if math.isinf(bits) else ratio_from_db(6.02 * bits + 1.76)


def photon_energy_j(wavelength_m: float = TELECOM_WAVELENGTH_M) -> float:
    """Return the energy of a photon, h c / wavelength.

    Parameters
    ----------
    wavelength_m : float
        Wavelength in vacuum.
    """
    _positive(wavelength_m=wavelength_m)
    return PLANCK_J_S * SPEED_OF_LIGHT_M_PER_S / wavelength_m


def ideal_responsivity_a_per_w(wavelength_m: float = TELECOM_WAVELENGTH_M) -> float:
    """Return the photocurrent per power of one electron per photon."""
    return ELEMENTARY_CHARGE_C / photon_energy_j(wavelength_m)


def standard_quantum_limit(norm_a: float, norm_x: float, *, depth: int, photons_per_mac: float) -> float:
    """Return the standard deviation of a dot product by homodyne detection in ideal conditions.

    Parameters
    ----------
    norm_a, norm_x : float
        Euclidean norms of both vectors.
    depth : int
        Products that are added.
    photons_per_mac : float
        Photons of both fields at the detectors over `depth`, dimensionless.

    Returns
    -------
    float
        In units of the dot product: norm_a norm_x / sqrt(depth photons_per_mac).

    Notes
    -----
    Both fields carry the same number of photons. Counts behind a 50:50 coupler are Poisson with the means
    (alpha +- beta)^2 / 2; their difference 2 alpha beta has the variance alpha^2 + beta^2.

    References
    ----------
    R. Hamerly et al., "Large-scale optical neural networks based on photoelectric multiplication",
    Phys. Rev. X 9, 021032 (2019), section on the standard quantum limit.
    """
    _positive(norm_a=norm_a, norm_x=norm_x, depth=depth, photons_per_mac=photons_per_mac)
    return norm_a * norm_x / math.sqrt(depth * photons_per_mac)


def photons_per_mac(snr: float, *, depth: int, full_scale: bool) -> float:
    """Return the photons per multiplication that a dot product needs at the standard quantum limit.

    Parameters
    ----------
    snr : float
        Power ratio wanted, dimensionless.
    depth : int
        Products that are added.
    full_scale : bool
        Whether the signal is the largest dot product of these norms (aligned vectors), whose energy per
        multiplication falls as 1/depth, or that of uncorrelated vectors, which needs `snr` photons whatever
        the depth.

    References
    ----------
    M. Anderson et al., "Optical Transformers", arXiv:2302.10360: at a fixed precision of the output the
    photons per output are constant, hence the optical energy per multiplication goes as 1/d.
    """
    _positive(snr=snr, depth=depth)
    return snr / depth if full_scale else snr


def optical_j_per_mac(photons: float, wavelength_m: float = TELECOM_WAVELENGTH_M) -> float:
    """Return the energy of so many photons per multiplication."""
    return photons * photon_energy_j(wavelength_m)


def landauer_j(temperature_k: float = ROOM_TEMPERATURE_K) -> float:
    """Return the least energy of erasing one bit, k T ln 2.

    References
    ----------
    R. Landauer, "Irreversibility and heat generation in the computing process", IBM Journal of Research and
    Development 5, 183 (1961).
    """
    _positive(temperature_k=temperature_k)
    return BOLTZMANN_J_PER_K * temperature_k * math.log(2.0)


def sampling_floor_j(enob_bits: float, temperature_k: float = ROOM_TEMPERATURE_K) -> float:
    """Return the least energy of a conversion whose noise is that of a sampled capacitor, 8 k T SNR.

    Parameters
    ----------
    enob_bits : float
        Effective bits.
    temperature_k : float
        Temperature.

    References
    ----------
    B. Murmann, "The race for the extra decibel", IEEE Solid-State Circuits Magazine 7(3), 58 (2015): a
    class-B driver of a sampling capacitor.
    """
    _positive(enob_bits=enob_bits, temperature_k=temperature_k)
    return 8.0 * BOLTZMANN_J_PER_K * temperature_k * snr_from_bits(enob_bits)


def walden_j(power_w: float, rate_hz: float, enob_bits: float) -> float:
    """Return Walden's figure of merit, energy per conversion step: power / (2^ENOB rate).

    References
    ----------
    R. H. Walden, "Analog-to-digital converter survey and analysis", IEEE JSAC 17, 539 (1999).
    """
    _positive(power_w=power_w, rate_hz=rate_hz)
    return power_w / (2.0**enob_bits * rate_hz)


def schreier_db(power_w: float, rate_hz: float, enob_bits: float) -> float:
    """Return Schreier's figure of merit, SNDR + 10 log10(bandwidth / power), at half the rate.

    Notes
    -----
    A converter at `sampling_floor_j` has 10 log10(1 / (16 k T)), 191.8 dB at 300 K, whatever its bits.

    References
    ----------
    R. Schreier and G. C. Temes, "Understanding Delta-Sigma Data Converters", 2005.
    """
    _positive(power_w=power_w, rate_hz=rate_hz)
    return db_from_ratio(snr_from_bits(enob_bits)) + db_from_ratio(rate_hz / 2.0 / power_w)
