import dataclasses
import math
import re

import pytest

from heliograph.sanity_checks import light_limits
from heliograph.systems import build_system
from optical.devices.light_limits import (
    LitChip,
    SiliconStrip,
    limits_of,
    poisson_yield,
    silicon_strip,
)

STRIP = silicon_strip()
CHIP = LitChip(
    lines=12,
    line_w=1e-3,
    coupled_w=0.6e-3,
    feed_m=2e-3,
    linear_db_per_m=200.0,
    rings=True,
    detector_a=1e-4,
    area_m2=1e-5,
)


def test_114_mw_in_a_strip_lose_what_was_derived_by_hand():
    """One line of 114 mW: 0.35 dB/cm by two photons, 2.2 dB/cm by carriers of 1 ns (derived apart)."""
    intensity = 0.114 / STRIP.mode_area_m2
    pairs_db_per_cm = 0.0434294 * STRIP.two_photon * intensity
    assert pairs_db_per_cm == pytest.approx(0.35, abs=0.01)
    both = 0.0434294 * STRIP.absorption_per_m(0.114)
    assert both - pairs_db_per_cm == pytest.approx(2.2, abs=0.1)


def test_two_photon_absorption_alone_has_its_closed_form():
    """dP/dz = -beta P^2 / A: P0 / P = 1 + beta P0 L / A."""
    alone = dataclasses.replace(STRIP, carrier_lifetime_s=0.0)
    expected = 10 * math.log10(1 + STRIP.two_photon * 2.0 * 0.01 / STRIP.mode_area_m2)
    assert alone.loss_db(2.0, 0.01) == pytest.approx(expected, rel=1e-5)


def test_loss_grows_with_light_and_falls_with_linear_loss():
    losses = [STRIP.loss_db(power, 2e-3, lines=12) for power in (0.01, 0.1, 1.0, 6.0)]
    assert losses == sorted(losses)
    assert STRIP.loss_db(1.0, 2e-3, linear_db_per_m=2000.0) < STRIP.loss_db(1.0, 2e-3)
    assert STRIP.loss_db(0.0, 2e-3) == 0.0
    assert isinstance(STRIP, SiliconStrip)


def test_dim_light_on_a_small_die_passes_no_limit():
    assert limits_of(CHIP) == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"line_w": 0.5, "coupled_w": 0.3}, "loses .* dB of it to two-photon"),
        ({"coupled_w": 2e-3}, "silicon rings turn bistable from some 1 mW"),
        ({"line_w": 0.5}, "6.00 W of one source in 12 lines of 500.0 mW"),
        ({"detector_a": 0.02}, "20.00 mA at a detector"),
        ({"area_m2": 8.58e-4}, "42 % of dies of 858 mm2 are without a defect"),
    ],
)
def test_each_limit_is_told_with_its_number(changes, said):

    found = limits_of(dataclasses.replace(CHIP, **changes))
    assert any(re.search(said, sentence) for sentence in found)


def test_yield_falls_exponentially():
    assert poisson_yield(0.0, 1000.0) == 1.0
    assert poisson_yield(2e-3, 1000.0) == pytest.approx(poisson_yield(1e-3, 1000.0) ** 2)


def test_half_a_watt_a_line_does_not_pass_without_a_word():
    bright = build_system(
        "photonic_packet:crossbar",
        accelerators=8,
        basis="count",
        assignments=["laser_power_w=500 mW"],
    )
    said = " ".join(light_limits(bright.photonic))
    assert "two-photon" in said
    assert "6.00 W of one source" in said
    dim = build_system(
        "photonic_packet:crossbar", accelerators=8, basis="count", assignments=["laser_power_w=1 mW"]
    )
    assert "two-photon" not in " ".join(light_limits(dim.photonic))
