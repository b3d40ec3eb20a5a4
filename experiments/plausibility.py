"""One sentence about systems that come out better than whole chips of today, or than physics allows."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

from experiments.report import format_quantity
from heliograph.errors import ParameterError, SuspectWarning
from heliograph.paths import get_at
from heliograph.units import dimension_of, to_si
from optical.devices import Converter
from optical.limits import sampling_floor_j

if TYPE_CHECKING:
    from experiments.systems import System

SUSPECT_BITS = 8.0
"""Effective bits from which a system's energy is judged; dimensionless."""
SUSPECT_J_PER_MAC = to_si("energy_j", 0.5, "pJ")
"""Energy below which an accelerator of so many bits is doubted; 0.6 of the best whole chip (PACE)."""

FAR = 100.0
"""Factor by which a number without a unit must differ from what stood there to be doubted; dimensionless."""
TYPED = re.compile(r"\s*\d+(\.\d*)?\s*")
"""A number as one writes it who thinks of another unit: 5, 12.5."""


MOST_ACCELERATORS = 2**24
"""Accelerators of the largest system that is built, a choice; three levels of today's switches join fewer."""


def check_accelerators(accelerators: int) -> None:
    """Raise an error unless a system can have so many accelerators.

    Raises
    ------
    ParameterError
        If they are none, no whole number, or more than `MOST_ACCELERATORS`.
    """
    if isinstance(accelerators, bool) or not isinstance(accelerators, int) or accelerators < 1:
        msg = f"accelerators must be a whole number of at least 1; got {accelerators!r}"
        raise ParameterError(msg)
    if accelerators > MOST_ACCELERATORS:
        msg = f"accelerators must be at most {MOST_ACCELERATORS:,}; got {accelerators:,}"
        raise ParameterError(msg)


def doubt_of_unit(system: System, key: str, text: float | str) -> None:
    """Warn of a number typed without unit or exponent that is far from what stands there.

    Parameters
    ----------
    system : System
        Before the change.
    key : str
        Path of a parameter of it, or an ending.
    text : float or str
        What it becomes; numbers of a program, and text with a unit or an exponent, are not doubted.
    """
    dimension = dimension_of(key)
    if dimension is None or not isinstance(text, str) or not TYPED.fullmatch(text):
        return
    try:
        before = get_at(system, key)
    except ParameterError:  # said where it is changed
        return
    number = float(text)
    if before * number <= 0.0 or before / FAR < number < before * FAR:
        return
    unit = dimension[1]
    stood = format_quantity(before, unit)
    msg = (
        f"{key}={text} is {format_quantity(number, unit)}, and {stood} stood there; "
        f"if that is not meant, write the unit, e.g. {key}='{stood}'"
    )
    warnings.warn(msg, SuspectWarning, stacklevel=3)


def checked(system: System) -> System:
    """Return the system, after a warning if it is better than chips of today, or than sampling allows."""
    for sentence in (suspicion(system), converter_doubt(system)):
        if sentence:
            warnings.warn(sentence, SuspectWarning, stacklevel=3)
    return system


def converter_doubt(system: System) -> str | None:
    """Return one sentence about an output converter with more bits than its energy allows, or None.

    Parameters
    ----------
    system : System
        Any system. A converter set to take no energy at all is meant to be ideal, and not doubted.

    Notes
    -----
    Sampling alone takes 8 k T SNR (`optical.limits.sampling_floor_j`). Named parts beyond it are refused; a
    number that somebody sets may be meant, so that it is doubted.
    """
    core = system.photonic.core if system.photonic else None
    adc = getattr(core, "adc", None) or getattr(getattr(core, "core", None), "adc", None)
    if not isinstance(adc, Converter) or adc.conversion_j == 0.0:
        return None
    floor_j = sampling_floor_j(adc.enob_bits)
    if adc.conversion_j >= floor_j:
        return None
    return (
        f"{adc.name} of '{system.name}' takes {format_quantity(adc.conversion_j, 'J')} a sample, and "
        f"{adc.enob_bits:g} effective bits need {format_quantity(floor_j, 'J')} by sampling alone (8 k T "
        "SNR); power_w does not follow enob_bits: set both, or a part by its name (heliograph list parts)"
    )


def suspicion(system: System) -> str | None:
    """Return one sentence about a photonic accelerator that is better than whole chips of today, or None.

    Parameters
    ----------
    system : System
        Any system; without light there is nothing to say.

    Notes
    -----
    Compared is the photonic unit alone, at full load, without memory and other electronics: what published
    chips state includes more, so the bound is generous.

    References
    ----------
    PACE, Nature 640, 361 (2025): 0.84 pJ/MAC at 7.61 effective bits; Lightmatter, Nature 2025: 2.43 pJ/MAC.
    """
    if system.photonic is None or system.effective_bits() < SUSPECT_BITS:
        return None
    energy_j = system.photonic.peak_power_w / system.photonic.peak_macs_per_s
    if energy_j >= SUSPECT_J_PER_MAC:
        return None
    picojoules = energy_j / to_si("energy_j", 1.0, "pJ")
    return (
        f"system '{system.name}' needs {picojoules:.2f} pJ/MAC at {system.effective_bits():.1f} effective "
        "bits, while whole chips of today take 0.84 (PACE) to 2.43 (Lightmatter) pJ/MAC; check what was set "
        "or left out"
    )
