"""Converters and lasers by name, as published, to stand in for the typical ones of the device table."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from heliograph.tables import Table, read_table
from optical.devices import Converter, Laser


@cache
def named_parts_table() -> Table:
    """Return the table of named parts.

    Notes
    -----
    Parts of the ADC survey (B. Murmann, github.com/bmurmann/ADC-survey) carry the effective bits that they
    reach at high frequency, not those of their titles. ``adc_survey_8b`` and its like are the survey's median
    between 5 and 20 GS/s; the low end of their power is its best part.
    """
    return read_table(Path(__file__).parent / "parameters" / "named_parts.csv")


def adc_names() -> tuple[str, ...]:
    """Return the names of the ADCs."""
    return tuple(name for name in named_parts_table().names if name.startswith("adc_"))


def laser_names() -> tuple[str, ...]:
    """Return the names of the lasers."""
    return tuple(name for name in named_parts_table().names if name.startswith("laser_"))


def load_adc(name: str) -> Converter:
    """Return an ADC by name.

    Raises
    ------
    ParameterError
        If there is none of this name.
    """
    return named_parts_table().build(Converter, name)


def load_laser(name: str) -> Laser:
    """Return a laser by name.

    Raises
    ------
    ParameterError
        If there is none of this name.
    """
    return named_parts_table().build(Laser, name)
