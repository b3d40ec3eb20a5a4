"""Warnings about implausible settings: a forgotten unit, a chip better than any that was built."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from heliograph.parameters import beyond_range
from heliograph.report import format_quantity
from optical.accelerator import PhotonicUnit
from optical.devices import Converter, Per
from optical.devices.limits import Passed, Size, limits_of, sampling_floor_j, snr_from_bits
from optical.execution.precision import predicted
from simulator.errors import LimitWarning, LinkError, ParameterError, RangeWarning, SuspectWarning
from simulator.operands.statistics import OperandKind, operands_of
from simulator.operators import Phase
from simulator.parameter_tree import get_at
from simulator.units import TYPED, db_from_ratio, dimension_of, to_si

BUILT_J_PER_MAC = to_si("energy_j", 0.84, "pJ")
"""Energy of the best whole chip (PACE, Nature 640, 361 (2025))."""
BUILT_BITS, BUILT_LENGTH = 7.61, 64
"""Effective bits at full scale, and length of a sum, of that chip (same source)."""
SUSPECT_SHARE = 0.6
"""Share of that energy, at equal precision, below which a chip is warned of; a choice."""
BIT_DB = 6.02
"""Signal-to-noise ratio of one more effective bit."""
UNIFORM_SQUARE = 1.0 / 9.0
"""Mean square of a product of two operands that are uniform between -1 and 1."""

TOO_FAST: Mapping[str, str] = MappingProxyType({"trainium1": "1.7", "trainium2": "2 to 2.7"})
"""Published step time over the predicted one, of accelerators most of whose rates are assumed:
AWS Neuron SDK 2.24 (two rows), AXLearn (arXiv:2507.05411, table 3, two rows)."""

FAR = 100.0
"""Factor by which a number without a unit must differ from the present one for a warning; dimensionless."""


def warn_of_unit(system: object, key: str, text: float | str) -> None:
    """Warn of a number typed without unit or exponent that is far from the present one.

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


def light_limits(unit: PhotonicUnit) -> tuple[Passed, ...]:
    """Return the limits of optics and size that a photonic unit exceeds."""
    return limits_of(
        unit.core.light,
        Size(
            cluster_m2=unit.cluster_footprint_m2,
            field_m2=unit.electronics.link.field_area_m2,
            words_bytes_per_s=unit.words_bytes_per_s,
            buffer_bytes_per_s=unit.buffer_bytes_per_s,
        ),
    )


def warn_of_gpu(gpu: str) -> None:
    """Warn of an accelerator whose published steps take much longer than the predicted ones."""
    if gpu in TOO_FAST:
        longer = f"{TOO_FAST[gpu]} times as long as here"
        msg = f"published steps of {gpu} take {longer}: most of its rates are assumed"
        warnings.warn(msg, SuspectWarning, stacklevel=3)


def warn_of_system(name: str, system: object, unit: PhotonicUnit | None) -> None:
    """Warn of a converter below the physical limit of energy, and of numbers outside their tables' ranges."""
    sentence = converter_warning(name, unit) if unit is not None else None
    if sentence is not None:
        warnings.warn(sentence, SuspectWarning, stacklevel=3)
    for sentence in beyond_range(system):
        warnings.warn(sentence, RangeWarning, stacklevel=3)


def check_buildable(name: str, unit: PhotonicUnit) -> None:
    """Raise an error for a chip that cannot be built.

    Raises
    ------
    LinkError
        If cores that share light are larger than a scanner's field, or waveguides absorb most of the light.
    """
    for passed in light_limits(unit):
        if passed.forbids:
            msg = f"'{name}' cannot be built: {passed}"
            raise LinkError(msg)


def warn_of_chip(name: str, unit: PhotonicUnit) -> None:
    """Warn of a chip that is better than any built, or exceeds a limit of optics or size.

    Parameters
    ----------
    name : str
        Name of the system.
    unit : PhotonicUnit
        Photonic part of an accelerator, its laser and number of cores as they run.

    Raises
    ------
    LinkError
        As `check_buildable`.
    """
    sentence = chip_warning(name, unit)
    if sentence is not None:
        warnings.warn(sentence, SuspectWarning, stacklevel=3)
    check_buildable(name, unit)
    for passed in light_limits(unit):
        told = f"'{name}' passes a limit: {passed}"
        warnings.warn(LimitWarning(told, passed.limit, passed.excess), stacklevel=3)


@contextmanager
def limits_told() -> Iterator[None]:
    """Silence the warnings of limits, for callers that report them otherwise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimitWarning)
        yield


def worst_limits(units: Iterable[PhotonicUnit]) -> tuple[Passed, ...]:
    """Return the limits that any of several units exceeds, each with the largest excess."""
    worst: dict[str, Passed] = {}
    for passed in (one for unit in units for one in light_limits(unit)):
        if passed.limit not in worst or passed.excess > worst[passed.limit].excess:
            worst[passed.limit] = passed
    return tuple(worst.values())


def converter_warning(name: str, unit: PhotonicUnit) -> str | None:
    """Return a warning about an output converter with more bits than its energy allows, or None.

    Parameters
    ----------
    name : str
        Name of the system.
    unit : PhotonicUnit
        Its photonic unit. A converter without any energy is taken to be ideal on purpose.

    Notes
    -----
    Sampling alone takes 8 k T SNR (`optical.devices.limits.sampling_floor_j`). Named parts below it are
    refused; a number that a user sets may be intended, and is only warned of.
    """
    sampling = (part.device for part in unit.core.parts() if part.per is Per.SAMPLE)
    adc = next((device for device in sampling if isinstance(device, Converter)), None)
    if adc is None or adc.conversion_j == 0.0:
        return None
    floor_j = sampling_floor_j(adc.enob_bits)
    if adc.conversion_j >= floor_j:
        return None
    return (
        f"{adc.name} of '{name}' takes {format_quantity(adc.conversion_j, 'J')} a sample, and "
        f"{adc.enob_bits:g} effective bits need {format_quantity(floor_j, 'J')} by sampling alone (8 k T "
        "SNR); power_w does not follow enob_bits: set both, or a part by its name (heliograph list parts)"
    )


def built_snr_db() -> float:
    """Return the executed signal-to-noise ratio of the best built chip on uniform operands.

    Notes
    -----
    Effective bits refer to a sine of full scale, which n products of 1 give: power n^2 / 2, against n / 9 of
    a sum of n products of uniform operands.
    """
    return db_from_ratio(snr_from_bits(BUILT_BITS) * 2.0 * UNIFORM_SQUARE / BUILT_LENGTH)


def least_j_per_mac(snr_db: float) -> float:
    """Return the energy below which a chip of an executed signal-to-noise ratio is warned of.

    Notes
    -----
    Scaled from the best built chip by Walden's law: twice the energy per bit, 6.02 dB.
    """
    bits = (snr_db - built_snr_db()) / BIT_DB
    return float(SUSPECT_SHARE * BUILT_J_PER_MAC * 2.0**bits)


def chip_warning(name: str, unit: PhotonicUnit) -> str | None:
    """Return a warning about a photonic chip that is better than any built; None if it is not.

    Notes
    -----
    The photonic unit alone is compared, at full load, without memory and other electronics, at its executed
    signal-to-noise ratio on the operands and the length of sum of the best built chip (`built_snr_db`).

    References
    ----------
    PACE, Nature 640, 361 (2025): 0.84 pJ/MAC at 7.61 effective bits; Lightmatter, Nature 2025: 2.43 pJ/MAC.
    """
    operands = operands_of(OperandKind.UNIFORM)
    snr_db = predicted(unit.core.analog(Phase.FORWARD), operands, BUILT_LENGTH).snr_db
    energy_j = unit.peak_power_w / unit.peak_macs_per_s
    least_j = least_j_per_mac(snr_db)
    if energy_j >= least_j:
        return None
    return (
        f"system '{name}' needs {_pico(energy_j):.2f} pJ/MAC at an executed signal over noise of "
        f"{snr_db:.1f} dB on uniform operands, and less than {_pico(least_j):.2f} is doubted: whole chips of "
        f"today take 0.84 at {built_snr_db():.0f} dB (PACE) to 2.43 (Lightmatter) pJ/MAC; check what was set "
        "or left out"
    )


def _pico(energy_j: float) -> float:
    """Return an energy in picojoules."""
    return energy_j / to_si("energy_j", 1.0, "pJ")
