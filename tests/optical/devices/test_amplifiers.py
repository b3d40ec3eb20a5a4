"""The optical amplifier: its noise is that of textbooks, and a brighter laser always does better."""

import dataclasses
import math

import numpy as np
import pytest

from optical.cores import AnalogCore, Product, core_precision, load_core, with_laser_for
from optical.devices import Domain, area_m2, static_w
from optical.devices.devices import Soa
from optical.devices.limits import photon_energy_j
from optical.devices.named_parts import Role, named_parts, names_of
from simulator.errors import ParameterError
from simulator.operands.statistics import OperandKind, operands_of
from simulator.parameter_tree import numeric_leaves, replace_at
from simulator.units import db_from_ratio, ratio_from_db
from tests.builders import cores_that

AMPLIFIERS = {name: named_parts()[name].build() for name in names_of(Role.AMPLIFIER)}
SOA = AMPLIFIERS["soa_almae_2021"]
ANALOG = [load_core(name) for name in cores_that(lambda core: isinstance(core, AnalogCore))]
each_core = pytest.mark.parametrize("core", ANALOG, ids=[core.name for core in ANALOG])


@pytest.mark.parametrize("gain_db", [6.0, 15.0, 30.0])
@pytest.mark.parametrize("figure_db", [3.2, 6.5])
def test_the_noise_figure_is_the_loss_of_signal_to_noise_ratio(gain_db, figure_db):
    """Olsson 1989; the definition: shot-limited light in, ideal detection with its shot noise out."""
    soa = dataclasses.replace(SOA, gain_db=gain_db, noise_figure_db=figure_db, optical_bandwidth_hz=1.0)
    power_w, gain, quantum_j = 1e-9, ratio_from_db(gain_db), photon_energy_j()
    before = 2.0 * quantum_j / power_w
    after = 2.0 * quantum_j / (gain * power_w) + soa.added_rin_per_hz(power_w, gain)
    assert after / before == pytest.approx(ratio_from_db(figure_db), rel=1e-6)


def test_beats_of_signal_and_emission_are_those_of_random_fields():
    """4 S/P + 2 S^2 B_o/P^2 per hertz of a field with complex noise of density S: Monte Carlo within 3 %."""
    gain, line_w = 30.0, 2e-7
    emission = SOA.emission_w_per_hz(gain)
    bandwidth_hz, samples, blocks = SOA.optical_bandwidth_hz, 64, 20_000
    generator = np.random.default_rng(4)
    noise = generator.normal(size=(2, blocks, samples)) * math.sqrt(emission * bandwidth_hz / 2.0)
    power = np.square(math.sqrt(gain * line_w) + noise[0]) + np.square(noise[1])
    means = power.mean(axis=1)
    detection_hz = bandwidth_hz / (2.0 * samples)
    stated = SOA.added_rin_per_hz(line_w, gain) * detection_hz * (gain * line_w) ** 2
    assert means.var() == pytest.approx(stated, rel=0.03)


def test_better_than_the_quantum_limit_is_refused():
    """Caves 1982: an amplifier of high gain costs 3 dB at least; of gain G, 2 - 1/G."""
    assert dataclasses.replace(SOA, gain_db=30.0, noise_figure_db=3.01).spontaneous_factor >= 1.0
    with pytest.raises(ParameterError, match=r"at least 3\.01, the quantum limit at a gain of 30 dB"):
        dataclasses.replace(SOA, gain_db=30.0, noise_figure_db=3.0)
    with pytest.raises(ParameterError, match="gain_db"):
        dataclasses.replace(SOA, gain_db=2.0)


@pytest.mark.parametrize("soa", AMPLIFIERS.values(), ids=AMPLIFIERS)
def test_gain_is_half_at_the_saturation_power(soa):
    """Agrawal: G = G0 exp(-(G - 1)/G P_out/P_s); the data sheet's power is where 3 dB are gone."""
    linear = ratio_from_db(soa.gain_db)
    assert soa.gain(0.0) == pytest.approx(linear)
    assert soa.gain(2.0 * soa.saturation_w / linear) == pytest.approx(linear / 2.0, rel=1e-9)
    inputs = np.logspace(-8, 0, 30)
    gains = [soa.gain(power_w) for power_w in inputs]
    outputs = [power_w * gain for power_w, gain in zip(inputs, gains, strict=True)]
    assert gains == sorted(gains, reverse=True)
    assert outputs == sorted(outputs)
    assert 1.0 <= gains[-1] < 1.2


@each_core
def test_an_amplifier_never_beats_a_laser_of_the_same_launched_power(core):
    amplified = dataclasses.replace(core, amplifier=SOA, laser_power_w=0.1 * core.laser_power_w)
    lines = {"crossbar": 12, "ring_bank": 16, "pcm_crossbar": 64}.get(core.name, 1)
    source = amplified.source(lines)
    assert source.launch_w == amplified.link.launch_w > amplified.laser_power_w
    brighter = dataclasses.replace(core, laser_power_w=source.launch_w)
    assert source.rin_db_per_hz > core.laser.rin_db_per_hz
    assert amplified.link.snr < brighter.link.snr
    assert amplified.link.snr > dataclasses.replace(amplified, amplifier=None).link.snr


@each_core
def test_an_amplifier_is_powered_and_takes_room(core):
    amplified = dataclasses.replace(core, amplifier=SOA)
    found, without = static_w(amplified.parts()), static_w(core.parts())
    assert found["amplifier"] - without.get("amplifier", 0.0) == SOA.power_w
    areas = (sum(area_m2(one.parts(), Domain.PHOTONIC).values()) for one in (amplified, core))
    assert next(areas) - next(areas) == pytest.approx(SOA.area_m2)


@each_core
def test_every_number_of_an_amplifier_moves_an_answer(core):
    amplified = dataclasses.replace(core, amplifier=SOA, laser_power_w=1e-3 * core.laser_power_w)

    def answers(one):
        return static_w(one.parts()), area_m2(one.parts(), Domain.PHOTONIC), one.link.snr

    for path, value in numeric_leaves(amplified).items():
        if path.startswith("amplifier."):
            assert answers(replace_at(amplified, path, 1.3 * value)) != answers(amplified), path


def test_without_an_amplifier_nothing_is_added():
    for core in ANALOG:
        assert core.source(12).launch_w == core.laser_power_w
        assert core.source(12).rin_db_per_hz == core.laser.rin_db_per_hz
        assert "amplifier" not in static_w(core.parts()) | area_m2(core.parts(), Domain.PHOTONIC)


def test_laser_before_an_amplifier_is_sized_too_and_needs_less():
    products = (Product(operands=operands_of(OperandKind.GAUSSIAN), length=1024),)
    for name in ("crossbar", "ring_bank"):
        core = load_core(name)
        alone = with_laser_for(core, 10.0, products)
        amplified = with_laser_for(dataclasses.replace(core, amplifier=SOA), 10.0, products)
        assert core_precision(amplified, products).snr_db == pytest.approx(10.0, abs=1e-3)
        assert amplified.laser_power_w < 0.8 * alone.laser_power_w  # some 40 mW a line saturate it


def test_faint_light_is_ruined_by_beats():
    """1 uW of light: 4 n_sp h nu / P leaves about 58 dB in 1 GHz less 90: the amplifier sets the noise."""
    soa = Soa(**(dataclasses.asdict(SOA) | {"optical_bandwidth_hz": 1.0}))
    gain = ratio_from_db(soa.gain_db)
    found = db_from_ratio(soa.added_rin_per_hz(1e-6, gain))
    expected = 4.0 * soa.spontaneous_factor * photon_energy_j() * (1.0 - 1.0 / gain) / 1e-6
    assert found == pytest.approx(db_from_ratio(expected), abs=1e-6)
