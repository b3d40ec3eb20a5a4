"""Physical constants, decibels and the one place where a table's unit becomes SI.

A quantity's name ends in its unit (``symbol_rate_hz``, ``loss_db``); `dimension_of` reads that suffix and
`to_si` converts a table's value into it, refusing a unit that does not fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from simulator.amounts import AmountT
from simulator.errors import ParameterError

ELEMENTARY_CHARGE_C = 1.602176634e-19
"""Charge of the electron, coulomb (exact, SI 2019)."""
BOLTZMANN_J_PER_K = 1.380649e-23
"""Boltzmann constant, joule per kelvin (exact, SI 2019)."""
PLANCK_J_S = 6.62607015e-34
"""Planck constant, joule second (exact, SI 2019)."""
SPEED_OF_LIGHT_M_PER_S = 299792458.0
"""Speed of light in vacuum, metre per second (exact)."""
BITS_PER_BYTE = 8

_PREFIXES = {"": 1.0, "f": 1e-15, "p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9}
_PREFIXES |= {"T": 1e12, "P": 1e15}

TYPED = re.compile(r"\s*\d+(\.\d*)?\s*")
"""A short decimal number, which may be meant in another unit: 5, 12.5."""
QUANTITY = re.compile(
    r"\s*(?P<number>[+-]?(?:inf(?:inity)?\b|nan\b|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:e[+-]?\d+)?))\s*(?P<unit>.*?)\s*",
    re.IGNORECASE | re.ASCII,
)
"""A number with or without a unit: 25 us, 50 GB/s, 2e9."""
SUFFIXES: dict[str, tuple[str, str]] = {
    "_j_per_bit_m": ("energy per bit and length", "J/bit/m"),
    "_db_per_m": ("loss per length", "dB/m"),
    "_db_per_hz": ("relative intensity noise", "dB/Hz"),
    "_bytes_per_s": ("byte rate", "B/s"),
    "_flop_per_s": ("arithmetic rate", "FLOP/s"),
    "_j_per_flop": ("energy per operation", "J/FLOP"),
    "_j_per_byte": ("energy per byte", "J/B"),
    "_j_per_bit": ("energy per bit", "J/bit"),
    "_a_per_sqrt_hz": ("current noise density", "A/sqrt(Hz)"),
    "_a_per_w": ("responsivity", "A/W"),
    "_usd_per_m2": ("price per area", "USD/m^2"),
    "_usd_per_m": ("price per length", "USD/m"),
    "_usd_per_j": ("price of energy", "USD/J"),
    "_per_k": ("change per temperature", "1/K"),
    "_dbm": ("power level", "dBm"),
    "_db": ("ratio in decibels", "dB"),
    "_bps": ("bit rate", "bit/s"),
    "_hz": ("frequency", "Hz"),
    "_m2": ("area", "m^2"),
    "_usd": ("price", "USD"),
    "_ohm": ("resistance", "Ohm"),
    "_rad": ("angle", "rad"),
    "_bits": ("bits", "bit"),
    "_bytes": ("bytes", "B"),
    "_s": ("time", "s"),
    "_j": ("energy", "J"),
    "_w": ("power", "W"),
    "_m": ("length", "m"),
    "_a": ("current", "A"),
    "_f": ("capacitance", "F"),
    "_v": ("voltage", "V"),
    "_k": ("temperature", "K"),
}
"""Name suffix -> (dimension, SI unit); longer suffixes stand before the ones they end in."""


def _bits_per_s(factor: float) -> dict[str, float]:
    """Return the ways to write a bit rate, in which cards and links are sold, each with its factor to SI."""
    ways = ("b/s", "bit/s", "bps")
    return {f"{prefix}{unit}": size * factor for prefix, size in _PREFIXES.items() for unit in ways}


_EXTRA_UNITS: dict[str, dict[str, float]] = {
    "time": {"min": 60.0, "h": 3600.0},
    "bytes": {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40},
    "byte rate": {"KiB/s": 2.0**10, "MiB/s": 2.0**20, "GiB/s": 2.0**30} | _bits_per_s(1.0 / BITS_PER_BYTE),
    "bit rate": _bits_per_s(1.0),
    "loss per length": {"dB/cm": 100.0, "dB/km": 1e-3},
    "area": {"mm^2": 1e-6, "um^2": 1e-12, "cm^2": 1e-4},
    "price per area": {"USD/mm^2": 1e6, "USD/cm^2": 1e4},
    "price of energy": {"USD/kWh": 1.0 / 3.6e6},
    "length": {"cm": 1e-2},
    "frequency": {"S/s": 1.0, "GS/s": 1e9, "Baud": 1.0, "GBaud": 1e9},
    "angle": {"deg": math.pi / 180.0},
    "energy per byte": {"pJ/2B": 0.5e-12},
}
_MICRO = {ord("\u00b5"): "u", ord("\u03bc"): "u"}
"""The micro sign and the Greek letter are written ``u`` in tables."""
_UNPREFIXED = {"dB/m", "dB/Hz", "dBm", "dB", "bit", "rad", "USD", "USD/m^2", "USD/m", "USD/J", "m^2", "1/K"}


def ratio_from_db(value_db: AmountT) -> AmountT:
    """Return the power ratio of a value in decibels.

    Parameters
    ----------
    value_db : float, or numpy.ndarray of any shape
        Decibels; a loss of 3 dB is passed as -3.
    """
    return 10.0 ** (value_db / 10.0)


def db_from_ratio(ratio: float) -> float:
    """Return a positive power ratio in decibels.

    Raises
    ------
    ParameterError
        If the ratio is not positive.
    """
    if not ratio > 0.0:
        msg = f"a power ratio must be positive to be given in dB; got {ratio}"
        raise ParameterError(msg)
    return 10.0 * math.log10(ratio)


def watts_from_dbm(level_dbm: float) -> float:
    """Return the power in watts of a level in dBm (0 dBm is one milliwatt)."""
    return 1e-3 * ratio_from_db(level_dbm)


@cache
def dimension_of(name: str) -> tuple[str, str] | None:
    """Return ``(dimension, SI unit)`` of a quantity's name, or None for a dimensionless one."""
    for suffix, dimension in SUFFIXES.items():
        if name.endswith(suffix):
            return dimension
    return None


def plain_name(name: str) -> str:
    """Return a quantity's name as a person writes it: without its unit, "step time" for ``step_time_s``."""
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
    return name.removesuffix(suffix).replace("_", " ").strip() or name


@cache
def accepted_units(name: str) -> Mapping[str, float]:
    """Return every unit that a table may use for the quantity `name`, with its factor to SI."""
    dimension = dimension_of(name)
    if dimension is None:
        return MappingProxyType({"1": 1.0, "": 1.0, "%": 0.01})
    label, unit = dimension
    units = {unit: 1.0}
    if unit not in _UNPREFIXED:
        units |= {prefix + unit: factor for prefix, factor in _PREFIXES.items()}
    return MappingProxyType(units | _EXTRA_UNITS.get(label, {}))


def to_si(name: str, value: float, unit: str) -> float:
    """Return a table's value in the SI unit that the quantity's name ends in.

    Parameters
    ----------
    name : str
        Name of the quantity, with its unit suffix.
    value : float
        The number as written.
    unit : str
        The unit as written, e.g. ``"fJ"`` or ``"GHz"``.

    Raises
    ------
    ParameterError
        If the unit does not measure what the suffix says.
    """
    units = accepted_units(name)
    plain = unit.translate(_MICRO)
    if plain not in units:
        dimension = dimension_of(name)
        article = "an" if dimension and dimension[0][0] in "aeiou" else "a"
        what = f"{article} {dimension[0]} in {dimension[1]}" if dimension else "dimensionless"
        msg = f"unit '{unit}' does not fit '{name}', which is {what}; {_unit_hint(plain, units)}"
        raise ParameterError(msg)
    return value * units[plain]


def _unit_hint(unit: str, units: Mapping[str, float]) -> str:
    """Return the closing clause about an unknown unit: those that differ in case alone, else what fits.

    Anything bolder may be wrong by a power of ten, and a reader who follows it does not see that. Of units
    with prefixes those without are shown.
    """
    alike = [known for known in units if known.lower() == unit.lower()]
    if alike:
        return f"did you mean {' or '.join(repr(known) for known in alike)}?"
    names = [known for known in units if known]
    bare = [one for one in names if not any(one.endswith(other) for other in names if other != one)]
    prefixed = [one for one in names if one.endswith(bare[0]) and one != bare[0]] if bare else []
    such = f", with prefixes too, such as {prefixed[len(prefixed) // 2]}" if prefixed else ""
    return f"units that fit: {', '.join(bare)}{such}"
