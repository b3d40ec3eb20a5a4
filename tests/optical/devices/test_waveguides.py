"""Absorption of bright light in waveguides: by hand, in closed form, and in the link of a core."""

import dataclasses
import math

import pytest
from scipy.constants import c, h
from scipy.integrate import solve_ivp

from heliograph.systems.parts import with_part
from optical.cores import CORES, load_core
from optical.devices import ABSORPTION
from optical.devices.named_parts import named_parts
from simulator.parameter_tree import get_at, replace_at

STRIP = named_parts()["si_waveguide"].build()
NITRIDE = named_parts()["waveguide_sin_2014"].build()
STRIP_CORES = ("crossbar", "homodyne", "ring_bank", "pcm_crossbar", "mzi_mesh")


def absorption_per_m(power_w, lines):
    """Nonlinear absorption of lines that share a power: pairs of photons, and the carriers they leave."""
    pairs = STRIP.two_photon / STRIP.mode_area_m2 * (2.0 - 1.0 / lines) * power_w
    quantum_j = h * c / 1550e-9
    carriers_per_m3 = pairs * power_w / STRIP.mode_area_m2 * STRIP.carrier_lifetime_s / (2.0 * quantum_j)
    return pairs + STRIP.carrier_area_m2 * carriers_per_m3


def test_114_mw_in_a_strip_lose_what_was_derived_by_hand():
    """One line of 114 mW: 0.35 dB/cm by two photons, 2.2 dB/cm by carriers of 1 ns (derived apart)."""
    intensity = 0.114 / STRIP.mode_area_m2
    pairs_db_per_cm = 0.0434294 * STRIP.two_photon * intensity
    assert pairs_db_per_cm == pytest.approx(0.35, abs=0.01)
    both = STRIP.absorbed_db(0.114, 1e-6) / 1e-4
    assert both - pairs_db_per_cm == pytest.approx(2.2, abs=0.1)


def test_two_photon_absorption_alone_has_its_closed_form():
    """dP/dz = -beta P^2 / A: P0 / P = 1 + beta P0 L / A."""
    alone = dataclasses.replace(STRIP, carrier_lifetime_s=0.0, loss_db_per_m=0.0)
    expected = 10 * math.log10(1 + STRIP.two_photon * 2.0 * 0.01 / STRIP.mode_area_m2)
    assert alone.absorbed_db(2.0, 0.01) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("power_w", [0.01, 0.1, 1.0, 10.0])
def test_light_is_followed_as_an_integrator_of_differential_equations_does(power_w):
    linear = STRIP.loss_db_per_m * math.log(10) / 10
    found = solve_ivp(
        lambda _, log: [-(linear + absorption_per_m(math.exp(log[0]), 12))],
        (0.0, 5e-3),
        [math.log(power_w)],
        method="Radau",
        rtol=1e-9,
        atol=1e-12,
    )
    lost_db = 10 / math.log(10) * (math.log(power_w) - found.y[0, -1])
    expected = lost_db - STRIP.loss_db_per_m * 5e-3
    # Sixty-four steps of second order; light that fades a hundredfold within the first step is off by 2 %.
    assert STRIP.absorbed_db(power_w, 5e-3, 12) == pytest.approx(expected, rel=0.02)


def test_loss_grows_with_light_and_falls_with_linear_loss():
    losses = [STRIP.absorbed_db(power, 2e-3, 12) for power in (0.01, 0.1, 1.0, 6.0)]
    assert losses == sorted(losses)
    foggy = dataclasses.replace(STRIP, loss_db_per_m=2000.0)
    assert foggy.absorbed_db(1.0, 2e-3) < STRIP.absorbed_db(1.0, 2e-3)
    assert STRIP.absorbed_db(0.0, 2e-3) == 0.0


def test_nitride_guides_watts_and_pays_for_its_transition():
    assert NITRIDE.absorbed_db(10.0, 0.1, 12) == 0.0
    assert NITRIDE.transition_db > 0.0


@pytest.mark.parametrize("name", STRIP_CORES)
def test_ten_times_the_light_of_a_silicon_feed_brings_less_than_ten_times(name):
    core = with_part(load_core(name), "feed", "si_waveguide")
    bright = replace_at(core, "laser_power_w", 10.0 * get_at(core, "laser_power_w"))
    assert bright.link.received_w < 10.0 * core.link.received_w
    lost = {one.name: one.loss_db for one in bright.link.elements}
    assert lost[ABSORPTION] > 0.0
    guided = with_part(bright, "feed", "waveguide_sin_2014")
    assert {one.name: one.loss_db for one in guided.link.elements}[ABSORPTION] < lost[ABSORPTION]


@pytest.mark.parametrize("name", sorted(CORES))
def test_every_core_takes_another_feed(name):
    with_part(load_core(name), "feed", "waveguide_si_ridge_2012")


def test_a_phase_array_pays_for_its_feed_too():
    core = load_core("phase_residue")
    strip = with_part(core, "feed", "si_waveguide")
    bright = replace_at(strip, "laser_power_w", 2.0)
    lost = {one.name: one.loss_db for one in bright.core.channels[0].elements}
    assert lost[ABSORPTION] > 1.0
