"""Warnings about what is possible and hardly meant: a forgotten unit, a chip better than any built."""

from __future__ import annotations

import re
import warnings

from heliograph.parameters import beyond_range
from heliograph.report import format_quantity
from optical.accelerator import PhotonicUnit
from optical.devices import Converter
from optical.devices.limits import sampling_floor_j
from simulator.errors import ParameterError, RangeWarning, SuspectWarning
from simulator.parameter_tree import get_at
from simulator.units import dimension_of, to_si

SUSPECT_BITS = 8.0
"""Effective bits from which the energy of a chip is judged; dimensionless."""
SUSPECT_J_PER_MAC = to_si("energy_j", 0.5, "pJ")
"""Energy below which a chip of so many bits is warned of; 0.6 of the best whole chip (PACE)."""

RETICLE_M2 = 26e-3 * 33e-3
"""Field that a scanner exposes at once: 26 mm by 33 mm (ASML NXT:2000i)."""

FAR = 100.0
"""Factor by which a number without a unit must differ from what stood there for a warning; dimensionless."""
TYPED = re.compile(r"\s*\d+(\.\d*)?\s*")
"""A number as one writes it who thinks of another unit: 5, 12.5."""


def warn_of_unit(system: object, key: str, text: float | str) -> None:
    """Warn of a number typed without unit or exponent that is far from what stands there.

    Parameters
    ----------
    system : dataclass
        Description before the change.
    key : str
        Path of a parameter of it, or an ending.
    text : float or str
        Its new value; numbers of a program, and text with a unit or an exponent, are taken as they are.
    """
    dimension = dimension_of(key)
    if dimension is None or not isinstance(text, str) or not TYPED.fullmatch(text):
        return
    try:
        before = get_at(system, key)
    except ParameterError:  # said where it is changed
        return
    number = float(text)
    if before is None or before * number <= 0.0 or before / FAR < number < before * FAR:
        return
    unit = dimension[1]
    stood = format_quantity(before, unit)
    msg = (
        f"{key}={text} is {format_quantity(number, unit)}, and {stood} stood there; "
        f"if that is not meant, write the unit, e.g. {key}='{stood}'"
    )
    warnings.warn(msg, SuspectWarning, stacklevel=3)


def warn_of_system(name: str, system: object, unit: PhotonicUnit | None) -> None:
    """Warn of parts that are better than physics allows, or than their tables have them.

    Parameters
    ----------
    name : str
        Its name.
    system : dataclass
        Its description.
    unit : PhotonicUnit, optional
        Photonic part of an accelerator.
    """
    sentence = converter_warning(name, unit) if unit is not None else None
    if sentence is not None:
        warnings.warn(sentence, SuspectWarning, stacklevel=3)
    for sentence in beyond_range(system):
        warnings.warn(sentence, RangeWarning, stacklevel=3)


def warn_of_chip(name: str, unit: PhotonicUnit, area_m2: float) -> None:
    """Warn of a chip that is better than whole chips of today, or too large.

    Parameters
    ----------
    name : str
        Name of the system.
    unit : PhotonicUnit
        Photonic part of an accelerator, its laser and number of cores as they run.
    area_m2 : float
        Die area of an accelerator.
    """
    sentence = chip_warning(name, unit)
    if sentence is not None:
        warnings.warn(sentence, SuspectWarning, stacklevel=3)
    if area_m2 > RETICLE_M2:
        warnings.warn(reticle_warning(name, area_m2), RangeWarning, stacklevel=3)


def reticle_warning(name: str, area_m2: float) -> str:
    """Return one sentence about an accelerator whose die no lithography exposes at once."""
    return (
        f"an accelerator of '{name}' has a die of {format_quantity(area_m2, 'm^2')}, and a scanner "
        f"exposes {format_quantity(RETICLE_M2, 'm^2')} at once; take --basis area, or fewer cores"
    )


def converter_warning(name: str, unit: PhotonicUnit) -> str | None:
    """Return one sentence about an output converter with more bits than its energy allows, or None.

    Parameters
    ----------
    name : str
        Name of the system.
    unit : PhotonicUnit
        Its chip. A converter set to take no energy at all is meant to be ideal.

    Notes
    -----
    Sampling alone takes 8 k T SNR (`optical.devices.limits.sampling_floor_j`). Named parts beyond it are
    refused; a number that somebody sets may be meant, so that it is warned of.
    """
    core = unit.core
    adc = getattr(core, "adc", None) or getattr(getattr(core, "core", None), "adc", None)
    if not isinstance(adc, Converter) or adc.conversion_j == 0.0:
        return None
    floor_j = sampling_floor_j(adc.enob_bits)
    if adc.conversion_j >= floor_j:
        return None
    return (
        f"{adc.name} of '{name}' takes {format_quantity(adc.conversion_j, 'J')} a sample, and "
        f"{adc.enob_bits:g} effective bits need {format_quantity(floor_j, 'J')} by sampling alone (8 k T "
        "SNR); power_w does not follow enob_bits: set both, or a part by its name (heliograph list parts)"
    )


def chip_warning(name: str, unit: PhotonicUnit) -> str | None:
    """Return one sentence about a photonic chip that is better than whole chips of today, or None.

    Parameters
    ----------
    name : str
        Name of the system.
    unit : PhotonicUnit
        Its chip.

    Notes
    -----
    Compared is the photonic unit alone, at full load, without memory and other electronics: what published
    chips state includes more, so the bound is generous.

    References
    ----------
    PACE, Nature 640, 361 (2025): 0.84 pJ/MAC at 7.61 effective bits; Lightmatter, Nature 2025: 2.43 pJ/MAC.
    """
    bits = unit.core.effective_bits
    if bits < SUSPECT_BITS:
        return None
    energy_j = unit.peak_power_w / unit.peak_macs_per_s
    if energy_j >= SUSPECT_J_PER_MAC:
        return None
    return (
        f"system '{name}' needs {energy_j / to_si('energy_j', 1.0, 'pJ'):.2f} pJ/MAC at {bits:.1f} effective "
        "bits, while whole chips of today take 0.84 (PACE) to 2.43 (Lightmatter) pJ/MAC; check what was set "
        "or left out"
    )
