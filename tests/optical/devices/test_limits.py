"""Floors of physics, and that nothing of ours lies below one."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from optical.cores.crossbar import default_crossbar
from optical.devices import Converter, Laser, device_table, full_load_w, static_w
from optical.devices.limits import (
    bits_from_snr,
    photon_energy_j,
    photons_per_mac,
    sampling_floor_j,
    schreier_db,
    snr_from_bits,
)
from optical.devices.named_parts import Role, named_parts, names_of
from simulator.errors import ParameterError
from tests.bounds import ideal_responsivity_a_per_w, landauer_j, optical_j_per_mac, standard_quantum_limit

PARTS = named_parts()
PICOJOULE, FEMTOJOULE, ZEPTOJOULE = 1e-12, 1e-15, 1e-21


def counted(a, x, photons, draws, generator):
    """Return dot products from photon counts behind a 50:50 coupler, as Hamerly's receiver forms them."""
    field_a = math.sqrt(a.size * photons / 2.0) / np.linalg.norm(a)
    field_x = math.sqrt(a.size * photons / 2.0) / np.linalg.norm(x)
    sums = [(field_a * a + sign * field_x * x) ** 2 / 2.0 for sign in (1.0, -1.0)]
    plus, minus = (generator.poisson(mean, (draws, a.size)).sum(axis=1) for mean in sums)
    return (plus - minus) / (2.0 * field_a * field_x)


@pytest.mark.parametrize("photons", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("depth", [16, 100])
def test_counted_photons_meet_the_standard_quantum_limit(photons, depth):
    """Hamerly et al., PRX 9, 021032 (2019). 20,000 draws: the deviation is known to 0.5 % (one sigma)."""
    generator = np.random.default_rng(7)
    a, x = generator.normal(size=depth), generator.normal(size=depth)
    found = counted(a, x, photons, 20_000, generator)
    limit = standard_quantum_limit(np.linalg.norm(a), np.linalg.norm(x), depth=depth, photons_per_mac=photons)
    assert found.std() == pytest.approx(limit, rel=0.02)
    assert abs(found.mean() - a @ x) < 4.0 * limit / math.sqrt(20_000)


def test_fifty_zeptojoules_are_four_tenths_of_a_photon():
    """Hamerly et al., abstract: 50 zJ per multiplication; 1550 nm."""
    assert 50 * ZEPTOJOULE / photon_energy_j() == pytest.approx(0.390, rel=1e-3)
    assert photon_energy_j() == pytest.approx(1.2816e-19, rel=1e-4)
    assert ideal_responsivity_a_per_w() == pytest.approx(1.2502, rel=1e-4)


def test_wang_s_photons_are_their_energy():
    """Wang et al., Nature Communications 13, 123 (2022), abstract: 0.66 photons are 2.5e-19 J, at 532 nm.

    The preprint, arXiv:2104.13467, has 0.64 and 2.4e-19 J. Two digits are stated: 2.5 % of rounding.
    """
    assert optical_j_per_mac(0.66, 532e-9) == pytest.approx(2.5e-19, rel=0.025)
    assert optical_j_per_mac(0.64, 532e-9) == pytest.approx(2.4e-19, rel=0.025)


def test_uncorrelated_operands_need_as_many_photons_as_their_signal_to_noise_ratio():
    photons = photons_per_mac(snr_from_bits(8.0), depth=512, full_scale=False)
    assert photons == pytest.approx(9.8e4, rel=0.01)
    assert optical_j_per_mac(photons) == pytest.approx(12.6 * FEMTOJOULE, rel=0.01)
    generator = np.random.default_rng(3)
    a, x = generator.normal(size=(2, 4000, 64))
    limits = [
        standard_quantum_limit(np.linalg.norm(row), np.linalg.norm(column), depth=64, photons_per_mac=9.0)
        for row, column in zip(a, x, strict=True)
    ]
    ratio = np.mean((a * x).sum(axis=1) ** 2) / np.mean(np.square(limits))
    assert ratio == pytest.approx(9.0, rel=0.08)


def quiet(core):
    """Return a core that only shot noise limits, with every photon detected."""
    return dataclasses.replace(
        core,
        laser=dataclasses.replace(core.laser, rin_db_per_hz=-300.0),
        tia=dataclasses.replace(core.tia, noise_a_per_sqrt_hz=0.0, bandwidth_hz=math.inf),
        readout=dataclasses.replace(core.readout, window=1.0, edge_s=0.0, jitter_s=0.0),
        detector=dataclasses.replace(
            core.detector,
            dark_current_a=0.0,
            cmrr_db=300.0,
            bandwidth_hz=math.inf,
            responsivity_a_per_w=ideal_responsivity_a_per_w(),
        ),
        modulator=dataclasses.replace(core.modulator, extinction_ratio_db=300.0, bandwidth_hz=math.inf),
        router=dataclasses.replace(core.router, linewidth_hz=1e15, insertion_loss_db=0.0),
        crossing=dataclasses.replace(core.crossing, crosstalk_db=300.0),
    )


def test_a_quiet_crossbar_is_at_the_standard_quantum_limit():
    """The link budget's shot noise, and the photon picture, are one law (Hamerly 2019)."""
    core = quiet(default_crossbar())
    link, depth = core.link, core.analog_length
    symbol_s = 1.0 / core.symbol_rate_hz
    photons = 2.0 * link.received_w * symbol_s / photon_energy_j()
    limit = standard_quantum_limit(math.sqrt(depth), math.sqrt(depth), depth=depth, photons_per_mac=photons)
    assert math.sqrt(link.noise_variance()) == pytest.approx(limit, rel=1e-9)


def receiver_power_w(core, bits):
    """Return the power at which a full-scale sample has so many bits: A/P^2 + B/P + C is the noise ratio."""
    ratio = core.link.noise_ratio
    gap = 1.0 / snr_from_bits(bits) - math.fsum(ratio.bright.values())
    return core.laser_power_w * (ratio.shot + math.sqrt(ratio.shot**2 + 4.0 * ratio.dark * gap)) / (2.0 * gap)


def test_light_per_multiplication_falls_as_one_over_the_depth():
    """Optical Transformers, arXiv:2302.10360: at fixed precision of the output, light per MAC is as 1/d."""
    core, lengths = quiet(default_crossbar()), (1, 4, 16, 64, 256)
    powers = []
    for length in lengths:
        deep = dataclasses.replace(core, temporal_accumulation=length)
        powers.append(receiver_power_w(deep, 6.0) / deep.peak_macs_per_s)
    slope = np.polyfit(np.log(lengths), np.log(powers), 1)[0]
    assert slope == pytest.approx(-1.0, abs=1e-6)
    assert photons_per_mac(50.0, depth=10, full_scale=True) == 5.0


def test_amplifier_noise_lets_light_fall_more_slowly():
    """With amplifier noise the current, not the charge, must stand out: the light goes as 1/sqrt(symbols)."""
    core = quiet(default_crossbar())
    core = dataclasses.replace(core, tia=default_crossbar().tia)
    shallow, deep = (dataclasses.replace(core, temporal_accumulation=n) for n in (1, 100))
    assert receiver_power_w(deep, 4.0) / receiver_power_w(shallow, 4.0) == pytest.approx(0.1, rel=0.1)


def test_erasing_a_bit_costs_three_zeptojoules():
    """Landauer 1961: k T ln 2 is 2.87 zJ at 300 K."""
    assert landauer_j() == pytest.approx(2.87 * ZEPTOJOULE, rel=1e-3)
    assert landauer_j(4.0) == pytest.approx(landauer_j() * 4.0 / 300.0)


def test_nothing_of_ours_beats_landauer_or_the_photon():
    core = default_crossbar()
    light_j = core.link.received_w * 2.0 / core.symbol_rate_hz
    needed = photons_per_mac(core.link.snr, depth=core.analog_length, full_scale=True)
    assert light_j > optical_j_per_mac(needed)
    parts = static_w(core.parts()) | full_load_w(core.parts(), core.full_load)
    assert sum(parts.values()) / core.peak_macs_per_s > 1000.0 * landauer_j()


def test_a_conversion_of_eight_bits_costs_three_femtojoules_at_least():
    """Murmann 2015: 8 k T SNR, 3.25 fJ at 8 effective bits and 300 K; four times as much per bit."""
    assert sampling_floor_j(8.0) == pytest.approx(3.25 * FEMTOJOULE, rel=0.01)
    assert sampling_floor_j(9.0) / sampling_floor_j(8.0) == pytest.approx(4.0, rel=2e-3)


def test_a_converter_at_the_floor_has_192_decibels_whatever_its_bits():
    """Schreier's figure of merit of 8 k T SNR is 1/(16 k T), 191.8 dB at 300 K."""
    rate_hz = 5e9
    for bits in (4.0, 8.0, 12.0):
        assert schreier_db(sampling_floor_j(bits) * rate_hz, rate_hz, bits) == pytest.approx(191.8, abs=0.1)


@pytest.mark.parametrize("name", names_of(Role.ADC))
def test_a_named_adc_lies_above_the_floor_and_the_best_of_the_survey(name):
    """ADC survey rev 20250609: the best at 5 GS/s and above are 16.5 fJ per step and 167.8 dB."""
    adc = PARTS[name].build()
    assert adc.conversion_j > sampling_floor_j(adc.enob_bits)
    assert adc.walden_j >= 16.4 * FEMTOJOULE
    assert schreier_db(adc.power_w, adc.rate_hz, adc.enob_bits) < 167.8


def test_the_survey_s_own_figures_are_met():
    """ISSCC 2022 10.1 in the survey: 16.5 fJ per step and 156.1 dB at 5 GS/s."""
    adc = PARTS["adc_isscc2022_10_1"].build()
    assert adc.walden_j == pytest.approx(16.5 * FEMTOJOULE, rel=0.01)
    assert schreier_db(adc.power_w, adc.rate_hz, adc.enob_bits) == pytest.approx(156.1, abs=0.1)
    assert adc == dataclasses.replace(device_table().build(Converter, "adc"), name=adc.name)


def test_a_survey_class_asks_for_more_the_more_bits_it_has():
    classes = [PARTS[f"adc_survey_{bits}b"].build() for bits in (6, 7, 8, 9)]
    energies = [one.conversion_j for one in classes]
    assert energies == sorted(energies)
    assert energies[2] == pytest.approx(36.6 * PICOJOULE)


def test_a_named_adc_changes_bits_and_energy_of_a_core():
    core = default_crossbar()
    better = dataclasses.replace(core, adc=PARTS["adc_survey_8b"].build())
    assert better.effective_bits > core.effective_bits
    assert (
        full_load_w(better.parts(), better.full_load)["adc"]
        > full_load_w(core.parts(), core.full_load)["adc"]
    )


@pytest.mark.parametrize("name", [name for name in names_of(Role.LASER) if PARTS[name].kind is Laser])
def test_a_named_laser_can_light_a_core(name):
    core = dataclasses.replace(default_crossbar(), laser=PARTS[name].build())
    assert core.budget.effective_bits > 4.0
    assert static_w(core.parts())["laser"] > 0.0


def test_intensity_noise_of_the_quantum_dot_comb_caps_the_bits_of_one_line():
    """-135 dB/Hz over 2.5 GHz is a ratio of 41 dB, 6.5 bits, whatever the power (Buyalo 2024)."""
    core = dataclasses.replace(
        quiet(default_crossbar()), wavelengths=1, temporal_accumulation=1, broadcast=1, summed=1
    )
    core = dataclasses.replace(core, laser=PARTS["laser_qd_comb_2024"].build())
    assert bits_from_snr(1.0 / core.link.receiver.rin_ratio) == pytest.approx(6.5, abs=0.1)
    bright = core.link.noise_ratio.bright
    assert max(bright, key=lambda cause: bright[cause]) == "laser intensity noise"
    assert bits_from_snr(1.0 / math.fsum(bright.values())) < 7.0  # no light reaches seven bits


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_limit_of_nothing_is_refused(value):
    with pytest.raises(ParameterError, match="must be positive"):
        photon_energy_j(value)
    with pytest.raises(ParameterError, match="must be positive"):
        photons_per_mac(value, depth=4, full_scale=True)


def test_the_named_parts_say_where_each_number_is_from():
    table = Path(__file__).parents[3] / "optical" / "parameters" / "named_parts.csv"
    lines = table.read_text(encoding="utf-8").splitlines()[1:]
    assert len(lines) > 60
    assert all(line.split(",", 7)[7] for line in lines)
