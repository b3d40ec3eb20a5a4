"""Residues held as phases: exact while each is read right, and misread as often as noise says."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import erfcinv

from optical.cores import default_phase_residue
from optical.cores.core import tiled_loads
from optical.cores.phase_residue import phase_misreading, sigma_of_misreading
from optical.devices import Waveguide
from optical.execution.numerics import AnalogNumerics
from optical.execution.spec import misreading
from simulator.errors import LinkError, ParameterError
from simulator.operators import MatMul, Phase
from tests.optical.cores.phase_arithmetic import (
    accumulated_phase,
    digits_of,
    moduli_of,
    read_phase,
    reconstruct,
    segment_phases,
)

DEFAULT = default_phase_residue()
CHANNEL = DEFAULT.core.channels[-1]


CLEAR = Waveguide(name="strip that two photons pass", loss_db_per_m=200.0)


def array_with(**changes):
    return dataclasses.replace(DEFAULT.core, **changes)


def core_with(**changes):
    return dataclasses.replace(DEFAULT, core=array_with(**changes))


@pytest.mark.parametrize("exponent", range(2, 9))
def test_sums_of_phases_are_exact_when_each_remainder_is_read_right(exponent):
    """Chinese remainder theorem on phases: any sum within half of the moduli's product comes back whole.

    US 2022/0229634: phases wind back every 2 pi, so that their sum is a sum modulo m.
    """
    moduli, length = moduli_of(exponent), 16
    assert math.lcm(*moduli) == math.prod(moduli)
    most = math.isqrt((math.prod(moduli) // 2 - 1) // length)
    draw = np.random.default_rng(exponent)
    x, w = draw.integers(-most, most + 1, (2, 400, length))
    x[0], w[0], x[1], w[1] = most, most, -most, most
    phases = [accumulated_phase(x, w, modulus) for modulus in moduli]
    read = [
        read_phase(np.cos(one), np.sin(one), modulus) for one, modulus in zip(phases, moduli, strict=True)
    ]
    assert np.array_equal(reconstruct(np.array(read), moduli), np.sum(x * w, axis=-1))


@pytest.mark.parametrize("modulus", [3, 15, 16, 17, 31, 33])
def test_no_segment_turns_light_by_more_than_half_a_wave(modulus):
    phases = segment_phases(np.arange(modulus), modulus)
    assert phases.shape == (modulus, digits_of(modulus))
    assert np.abs(phases).max() <= math.pi
    units = phases * modulus / (2.0 * math.pi)
    assert np.allclose(units, np.rint(units), atol=1e-9)


@pytest.mark.parametrize(("modulus", "snr_db"), [(4, 9.0), (8, 14.0), (16, 20.0), (17, 22.0), (33, 26.0)])
def test_phases_are_misread_as_often_as_phase_shift_keying_says(modulus, snr_db):
    """Proakis, M-ary phase-shift keying, 2 Q(sqrt(SNR) sin(pi/m)): two quadratures, 5 standard errors."""
    snr, count = 10 ** (snr_db / 10), 400_000
    draw = np.random.default_rng(modulus)
    sent = draw.integers(0, modulus, count)
    noise = draw.standard_normal((2, count)) / math.sqrt(snr)
    angle = 2 * math.pi * sent / modulus
    wrong = np.mean(read_phase(np.cos(angle) + noise[0], np.sin(angle) + noise[1], modulus) != sent)
    expected = phase_misreading(1.0 / snr, modulus)
    assert 1e-3 < expected < 0.1
    assert wrong == pytest.approx(expected, abs=5 * math.sqrt(expected / count) + 0.01 * expected)


def snr_for_misreading(chance, modulus):
    return 2.0 * (erfcinv(chance) / math.sin(math.pi / modulus)) ** 2


def test_misreading_and_the_ratio_that_it_needs_are_inverses():
    for chance in (1e-2, 1e-6, 1e-12):
        assert phase_misreading(1.0 / snr_for_misreading(chance, 17), 17) == pytest.approx(chance, rel=1e-6)
        assert misreading(sigma_of_misreading(chance)) == pytest.approx(chance, rel=1e-9)
    assert sigma_of_misreading(0.0) == 0.0
    assert phase_misreading(1e9, 17) == 1.0 - 1.0 / 17


def test_twice_as_many_phases_need_four_times_the_ratio():
    """A step of 2 pi / m against noise: SNR grows as (m / pi)^2 for many phases, 6 dB per bit of m."""
    for modulus in (32, 64, 128):
        ratio = snr_for_misreading(1e-6, 2 * modulus) / snr_for_misreading(1e-6, modulus)
        assert ratio == pytest.approx(4.0, rel=2.0 * (math.pi / modulus) ** 2)


def test_a_row_errs_as_often_as_its_fields_do():
    """Digits, their losses, noise and phase errors drawn one by one; the mean over binomial losses holds."""
    channel = dataclasses.replace(CHANNEL, signal_w=CHANNEL.signal_w / 8)
    draw, count, digits = np.random.default_rng(3), 400_000, channel.digits
    ones = draw.binomial(digits, 0.5, count)
    excess_db = (ones - digits / 2) * (channel.one_loss_db - channel.zero_loss_db)
    amplitude = 10 ** (-excess_db / 20)
    turned = math.fsum(channel.phase_variances.values())
    sigma = math.sqrt(channel.noise_ratio.total - turned)
    sent = draw.integers(0, channel.modulus, count)
    angle = 2 * math.pi * sent / channel.modulus + math.sqrt(turned) * draw.standard_normal(count)
    in_phase = amplitude * np.cos(angle) + sigma * draw.standard_normal(count)
    quadrature = amplitude * np.sin(angle) + sigma * draw.standard_normal(count)
    wrong = np.mean(read_phase(in_phase, quadrature, channel.modulus) != sent)
    expected = channel.misreading
    at_mean_loss = phase_misreading(channel.noise_ratio.total, channel.modulus)
    assert wrong == pytest.approx(expected, abs=5 * math.sqrt(expected / count) + 0.01 * expected)
    assert expected > 1.2 * at_mean_loss  # the spread of the loss counts


def test_wrong_phases_add_up_over_the_digits_that_are_passed():
    """Each of n digits wrong by d and passed half of the time: the row's phase has the variance n d^2 / 2."""
    array, draw = DEFAULT.core, np.random.default_rng(4)
    digits = CHANNEL.digits
    errors = array.setting_error_rad * draw.standard_normal((3000, digits))
    passed = draw.integers(0, 2, (3000, digits))
    variance = np.sum(errors * passed, axis=1).var()
    stated = CHANNEL.phase_variances["wrong phases"]
    assert stated == pytest.approx(0.5 * digits * array.setting_error_rad**2)
    assert variance == pytest.approx(stated, rel=5 * math.sqrt(2 / 3000))


def test_loss_grows_with_every_unit_of_a_row():
    """A unit's digits at their mean, and its waveguide; nothing else depends on the length of a row."""
    short, long = (array_with(length=n, waveguide=CLEAR).channels[-1] for n in (4, 8))
    array, digits = DEFAULT.core, digits_of(17)
    on = 2 * array.switch.dropped_loss_db + array.segment.insertion_loss_db
    digit_db = 0.5 * (on + 2 * array.switch.passed_loss_db)
    guide_db = array.waveguide.loss_db_per_m * array.layout.unit_length_m
    assert long.loss_db - short.loss_db == pytest.approx(4 * (digits * digit_db + guide_db))
    assert long.oscillator_loss_db == short.oscillator_loss_db


def test_amplifier_noise_falls_with_the_square_of_the_light_and_shot_noise_with_the_light():
    once, twice = (array_with(laser_power_w=p, waveguide=CLEAR).noise_ratio for p in (0.05, 0.1))
    assert twice.dark == pytest.approx(once.dark / 4)
    assert twice.shot == pytest.approx(once.shot / 2)
    assert twice.bright["the ADC"] == once.bright["the ADC"]


def solve_phase_power(array, wrong):
    """Return the laser power at which samples are wrong so often; infinite where a million times fails."""

    def excess(log_power):
        lit = dataclasses.replace(array, laser_power_w=array.laser_power_w * math.exp(log_power))
        return math.log(max(lit.wrong_sample, 1e-300)) - math.log(wrong)

    most = math.log(1e6)
    if excess(most) > 0.0:
        return math.inf
    return array.laser_power_w * math.exp(brentq(excess, -most, most, xtol=1e-12))


@pytest.mark.parametrize("wrong", [1e-3, 1e-5, 1e-7])
def test_the_solved_laser_is_wrong_as_often_as_asked(wrong):
    power_w = solve_phase_power(DEFAULT.core, wrong)
    assert array_with(laser_power_w=power_w).wrong_sample == pytest.approx(wrong, rel=1e-6)


def test_more_phases_and_longer_rows_need_more_light():
    powers = [
        solve_phase_power(array_with(length=n, exponent=k, waveguide=CLEAR), 1e-4)
        for n, k in ((8, 3), (8, 4), (8, 5), (16, 5))
    ]
    assert powers == sorted(powers)
    assert powers[-1] > 8 * powers[-2]  # 48 digits more, 11 dB on average, amplifier noise as a field


def test_rows_of_sixteen_for_31_32_and_33_are_out_of_reach_of_these_parts():
    """Mirage's size as recalled (arXiv:2311.17323): six wrong in 100,000 at 1.6 W, one in a million never."""
    array = array_with(length=16, exponent=5, laser_power_w=1.6)
    assert array.moduli == (31, 32, 33)
    assert 2e-5 < array.wrong_sample < 2e-4
    assert solve_phase_power(array, 1e-6) == math.inf


def test_default_errs_less_than_once_in_a_million():
    assert 1e-8 < DEFAULT.residues.wrong_sample < 1e-6
    assert DEFAULT.residues.wrong_sample == pytest.approx(DEFAULT.core.wrong_sample, rel=1e-6)


def test_executed_samples_are_wrong_as_often_as_stated():
    """The quick numerics against the row's own law, any remainder misread; 5 standard errors."""
    core = core_with(laser_power_w=0.01)
    spec, rows = core.analog(Phase.FORWARD), 300
    generator = torch.Generator().manual_seed(6)
    a, b = (
        torch.randint(-15, 16, shape, generator=generator).double() for shape in ((1, rows, 8), (1, 8, rows))
    )
    a[..., 0], b[:, 0] = 15.0, 15.0
    wrong = float((AnalogNumerics(spec).matmul(a, b, key=3).round() != a @ b).double().mean())
    expected = core.residues.wrong_sample
    assert expected > 1e-3
    assert wrong == pytest.approx(expected, abs=5 * math.sqrt(expected / rows**2))


def test_each_product_of_training_loads_its_own_matrix():
    """Forward loads W, the gradient of the input its transpose, that of the weight an activation."""
    tokens, inputs, outputs = 8192, 512, 256
    shapes = {
        Phase.FORWARD: (tokens, inputs, outputs),
        Phase.GRAD_INPUT: (tokens, outputs, inputs),
        Phase.GRAD_WEIGHT: (inputs, tokens, outputs),
    }
    found = {}
    for phase, (m, k, n) in shapes.items():
        product = MatMul(name="linear", phase=phase, batch=1, m=m, k=k, n=n)
        loads = tiled_loads(product, inputs=8, outputs=32, cores=16)
        work = found[phase] = DEFAULT.work(product, 16)
        assert work.energy_j["programming"] == pytest.approx(loads.tiles * DEFAULT.reload.energy_j)
        assert work.programming_s == pytest.approx(loads.rounds * DEFAULT.reload.time_s)
    forward, grad_input, grad_weight = (found[phase] for phase in shapes)
    assert forward.energy_j["programming"] == pytest.approx(grad_input.energy_j["programming"])
    assert grad_weight.energy_j["programming"] == pytest.approx(16 * forward.energy_j["programming"])
    assert grad_weight.programming_s > forward.programming_s


def test_reconstruction_is_charged_per_sum_and_modulus():
    """Rows of the residue logic: a remainder per value, two per decision, a share of the theorem per sum."""
    product = MatMul(name="p", phase=Phase.FORWARD, batch=1, m=64, k=8, n=32)
    logic = DEFAULT.logic
    formed = 64 * 8 * 3 + 8 * 32 * (4 + 4 + 5)
    read = 64 * 32 * 3 * (2 * logic.element_j + logic.sample_j)
    expected = formed * logic.element_j + read
    assert DEFAULT.work(product, 1).energy_j["number format"] == pytest.approx(expected)


def test_sums_beyond_the_dynamic_range_are_refused():
    with pytest.raises(ParameterError, match=r"reach 3600 to either side.*\(15, 16, 17\) tell 4080"):
        core_with(length=16)


def test_a_row_in_the_dark_does_not_close():
    with pytest.raises(LinkError, match=r"the link of 'phase_residue' does not close.*40 x digit"):
        core_with(laser_power_w=1e-7).budget  # noqa: B018


def test_too_many_remainders_are_refused():
    with pytest.raises(ParameterError, match="2 remainders for 3 moduli"):
        reconstruct(np.zeros((2, 4), dtype=int), (15, 16, 17))
