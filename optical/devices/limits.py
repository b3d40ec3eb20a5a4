"""Limits of physics, each law a function of its own, and what waveguides, rings, sources and a scanner bear.

The laws know no device of ours: they are the floors that link budgets, converters and whole systems must stay
above. The other limits are numbers of a table; `limits_of` tells which of them a chip passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from simulator.errors import ParameterError
from simulator.tables import Table, read_table
from simulator.units import (
    BOLTZMANN_J_PER_K,
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


def bits_of_noise(ratio: float) -> float:
    """Return the effective bits that noise over the square of full scale leaves to a sine that fills it.

    Notes
    -----
    The sine has half the power of a sample at full scale. An ideal quantiser has its own bits, to within the
    rounding of 1.76 and 6.02 (`quantiser_variance`).
    """
    return math.inf if ratio == 0.0 else bits_from_snr(0.5 / ratio)


def noise_of_bits(bits: float) -> float:
    """Return the noise over the square of full scale at a number of effective bits (`bits_of_noise`)."""
    return 0.5 / snr_from_bits(bits)


def quantiser_variance(bits: float) -> float:
    """Return the error variance of an ideal quantiser, full scale from -1 to 1: 4^-bits / 3."""
    return 4.0**-bits / 3.0


def quantiser_bits(variance: float) -> float:
    """Return the bits of the ideal quantiser with an error variance; infinite for zero."""
    return -0.5 * math.log2(3.0 * variance) if variance else math.inf


def snr_from_bits(bits: float) -> float:
    """Return the signal-to-noise power ratio of a number of effective bits."""
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


def sampling_floor_j(enob_bits: float) -> float:
    """Return the least energy of a conversion whose noise is that of a sampled capacitor at 300 K, 8 k T SNR.

    Parameters
    ----------
    enob_bits : float
        Effective bits.

    References
    ----------
    B. Murmann, "The race for the extra decibel", IEEE Solid-State Circuits Magazine 7(3), 58 (2015): a
    class-B driver of a sampling capacitor.
    """
    _positive(enob_bits=enob_bits)
    return 8.0 * BOLTZMANN_J_PER_K * ROOM_TEMPERATURE_K * snr_from_bits(enob_bits)


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


MOST_LOSS_DB, MOST_CARRIED_DB = 1.0, 10.0
"""Loss by nonlinear absorption from which it is reported as a limit, and from which a waveguide does
not carry the light; choices."""

SOURCE = "source"
"""Name of the limit on the power of one source."""


@cache
def limits_table() -> Table:
    """Return the table of limits that ships with the package."""
    return read_table(Path(__file__).parents[1] / "parameters" / "limits.csv")


def limit(name: str, parameter: str) -> float:
    """Return a number of the table of limits, SI."""
    return next(float(row.value) for row in limits_table().of(name) if row.parameter == parameter)


@dataclass(frozen=True, kw_only=True)
class Light:
    """Light of a core, as limits of sources, waveguides, rings and detectors are held against it."""

    lines: int
    """Lines of the comb; 1 for a single laser."""
    line_w: float
    """Power of a line at the source."""
    coupled_w: float
    """Power of a line on the chip, behind the coupling."""
    feed: str
    """Name of the waveguide that carries all lines."""
    absorbed_db: float
    """Loss by two photons and free carriers in all waveguides, charged to the link."""
    ring_w: float
    """Power of a line at a ring on resonance with it; 0 without rings."""
    detector_a: float
    """Largest photocurrent of one detector, all lines together; 0 if unknown."""
    comb_line_w: float | None = None
    """Largest measured power of a line of the comb; None if unknown or without a comb."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of a chip, for the limits of lithography and of the buffer."""

    cluster_m2: float
    """Area that a cluster of cores which share light covers, its dies stacked."""
    field_m2: float
    """Largest die."""
    words_bytes_per_s: float
    """Words that all cores fetch at full load."""
    buffer_bytes_per_s: float
    """Rate of the ports of the buffer."""


class Passed(NamedTuple):
    """A limit that a chip passes."""

    limit: str
    """Name of the limit."""
    excess: float
    """Demand over the limit, dimensionless; above 1 it is passed."""
    sentence: str
    """One sentence with the number that forbids it."""
    refused_from: float = math.inf
    """Excess from which physics forbids it; below, it is only that nobody has built it."""

    @property
    def forbids(self) -> bool:
        """Whether physics forbids the chip."""
        return self.excess > self.refused_from

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence


def limits_of(light: Light, size: Size) -> tuple[Passed, ...]:
    """Return each limit that a chip passes, with the number that forbids it."""
    return tuple(one for one in (*_light_passed(light), *_size_passed(size)) if one.excess > 1.0)


def _light_passed(light: Light) -> tuple[Passed, ...]:
    """Return the limits of waveguides, rings, source and detectors, each with a core's demand over it."""
    feed_w, together_w = light.lines * light.coupled_w, light.lines * light.line_w
    ring_w, detector_a = limit("silicon_ring", "most_line_w"), limit("germanium_detector", "most_current_a")
    source_w = limit("comb_pump" if light.lines > 1 else "single_laser", "most_power_w")
    comb_w = math.inf if light.comb_line_w is None else light.comb_line_w
    lines = f" in {light.lines} lines of {1e3 * light.line_w:.1f} mW" if light.lines > 1 else ""
    return (
        Passed(
            "absorption",
            light.absorbed_db / MOST_LOSS_DB,
            f"'{light.feed}' guides {1e3 * feed_w:.0f} mW, and {light.absorbed_db:.1f} dB of the light are "
            "lost to two-photon and free-carrier absorption, charged; core.feed=waveguide_sin_2014 has none",
            MOST_CARRIED_DB / MOST_LOSS_DB,
        ),
        Passed(
            "ring",
            light.ring_w / ring_w,
            f"a line brings {1e3 * light.ring_w:.1f} mW to a ring, and silicon rings turn bistable from "
            f"some {1e3 * ring_w:g} mW",
        ),
        Passed(
            SOURCE,
            together_w / source_w,
            f"{together_w:.2f} W of one source{lines}, and a packaged "
            f"{'comb' if light.lines > 1 else 'laser'} has had {source_w:g} W",
        ),
        Passed(
            "comb line",
            light.line_w / comb_w,
            f"{1e3 * light.line_w:.3g} mW are asked of a line, and this comb has given {1e3 * comb_w:.3g}; "
            "amplify each line, or take another comb",
        ),
        Passed(
            "detector",
            light.detector_a / detector_a,
            f"{1e3 * light.detector_a:.2f} mA at a detector, and germanium on a waveguide saturates at some "
            f"{1e3 * detector_a:g} mA",
        ),
    )


def _size_passed(size: Size) -> tuple[Passed, ...]:
    """Return the limits of lithography and of the buffer, each with a chip's demand over it."""
    return (
        Passed(
            "reticle",
            size.cluster_m2 / size.field_m2,
            f"a cluster of cores that share light covers {1e6 * size.cluster_m2:.0f} mm2, and a scanner "
            f"exposes {1e6 * size.field_m2:.0f} mm2 at once; light crosses no dies here: take smaller cores, "
            "or fewer that share",
            1.0,
        ),
        Passed(
            "buffer",
            size.words_bytes_per_s / size.buffer_bytes_per_s,
            f"cores at full load fetch {1e-12 * size.words_bytes_per_s:.1f} TB/s, and the ports of the "
            f"buffer give {1e-12 * size.buffer_bytes_per_s:.1f} TB/s, which bounds the products",
        ),
    )
