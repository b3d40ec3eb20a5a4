import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import ParameterError
from simulator.units import (
    SUFFIXES,
    accepted_units,
    db_from_ratio,
    dimension_of,
    ratio_from_db,
    to_si,
    watts_from_dbm,
)


@pytest.mark.parametrize(
    ("name", "value", "unit", "expected"),
    [
        ("energy_j", 3.0, "fJ", 3e-15),
        ("symbol_rate_hz", 5.0, "GHz", 5e9),
        ("symbol_rate_hz", 5.0, "GBaud", 5e9),
        ("capacity_bytes", 80.0, "GB", 80e9),
        ("capacity_bytes", 80.0, "GiB", 80 * 2**30),
        ("rate_bytes_per_s", 3.35, "TB/s", 3.35e12),
        ("rate_bps", 400.0, "Gbit/s", 400e9),
        ("rate_bps", 400.0, "Gb/s", 400e9),
        ("rate_bps", 400.0, "Gbps", 400e9),
        ("rate_bytes_per_s", 400.0, "Gb/s", 50e9),
        ("rate_bytes_per_s", 3.2, "Tbit/s", 400e9),
        ("power_w", 5.0, "\u00b5W", 5e-6),
        ("wavelength_m", 1.55, "\u03bcm", 1.55e-6),
        ("area_m2", 3.0, "\u00b5m^2", 3e-12),
        ("area_m2", 814.0, "mm^2", 814e-6),
        ("loss_db_per_m", 2.0, "dB/cm", 200.0),
        ("energy_j_per_bit", 5.0, "pJ/bit", 5e-12),
        ("price_usd_per_j", 1.0, "USD/kWh", 1 / 3.6e6),
        ("noise_a_per_sqrt_hz", 12.0, "pA/sqrt(Hz)", 12e-12),
        ("angle_rad", 180.0, "deg", math.pi),
        ("time_s", 2.0, "h", 7200.0),
        ("power_dbm", 10.0, "dBm", 10.0),
        ("efficiency", 30.0, "%", 0.3),
        ("rows", 64.0, "1", 64.0),
    ],
)
def test_a_unit_becomes_si(name, value, unit, expected):
    assert to_si(name, value, unit) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("name", "unit", "hint"),
    [
        ("power_w", "mw", "did you mean 'mW' or 'MW'?"),
        ("symbol_rate_hz", "ghz", "did you mean 'GHz'?"),
        ("time_s", "us ", "units that fit: "),
        ("power_w", "\u00b5Ws", "units that fit: "),
        ("rate_bytes_per_s", "GBit", "units that fit: B/s, b/s, bit/s, bps, with prefixes too, such as MB/s"),
        ("price_usd", "EUR", "is a price in USD; units that fit: USD"),
        ("energy_j", "W", "is an energy in J; units that fit: J, with prefixes too, such as kJ"),
    ],
)
def test_a_hint_is_never_wrong_by_more_than_case(name, unit, hint):
    with pytest.raises(ParameterError, match="does not fit") as caught:
        to_si(name, 1.0, unit)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("power_w", "J"),
        ("loss_db", "1"),
        ("loss_db", "mdB"),
        ("rows", "Hz"),
        ("power_w", ""),
        ("time_s", "S"),
    ],
)
def test_a_unit_that_measures_something_else_is_refused_by_name(name, unit):
    with pytest.raises(ParameterError, match=f"unit '{unit}' does not fit '{name}'"):
        to_si(name, 1.0, unit)


def test_the_longest_suffix_decides():
    assert dimension_of("loss_db_per_m") == ("loss per length", "dB/m")
    assert dimension_of("width_m") == ("length", "m")
    assert dimension_of("rate_bytes_per_s") == ("byte rate", "B/s")
    assert dimension_of("energy_j_per_bit") == ("energy per bit", "J/bit")
    assert dimension_of("level_dbm") == ("power level", "dBm")
    assert dimension_of("rows") is None


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_suffix_accepts_its_own_unit_unchanged_and_finds_itself(suffix):
    name = f"x{suffix}"
    assert dimension_of(name) == SUFFIXES[suffix]
    assert to_si(name, 1.25, SUFFIXES[suffix][1]) == 1.25
    assert all(factor > 0.0 for factor in accepted_units(name).values())


@given(st.floats(min_value=-300, max_value=300))
def test_decibels_return(value):
    assert db_from_ratio(ratio_from_db(value)) == pytest.approx(value, abs=1e-9)


@given(st.floats(min_value=-200, max_value=100))
def test_power_levels_return(level):
    assert db_from_ratio(watts_from_dbm(level) / 1e-3) == pytest.approx(level, abs=1e-9)


def test_decibels_of_well_known_ratios():
    assert ratio_from_db(10.0) == 10.0
    assert ratio_from_db(-3.0) == pytest.approx(0.501187, rel=1e-6)
    assert watts_from_dbm(0.0) == 1e-3
    assert watts_from_dbm(30.0) == pytest.approx(1.0)


def test_decibels_of_many_values_are_those_of_each():
    values_db = np.array([[-30.0, -3.0, 0.0], [0.1, 10.0, 25.0]])
    ratios = ratio_from_db(values_db)
    assert ratios.shape == (2, 3)
    assert ratios.ravel() == pytest.approx([ratio_from_db(float(one)) for one in values_db.flat], rel=1e-15)
    assert isinstance(ratio_from_db(3.0), float)


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.nan])
def test_a_ratio_that_has_no_decibels_is_refused(ratio):
    with pytest.raises(ParameterError, match="must be positive"):
        db_from_ratio(ratio)
