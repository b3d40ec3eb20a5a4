import dataclasses
import math

import numpy as np
import pytest
import torch

from optical.cores import default_homodyne
from optical.execution.numerics import AnalogNumerics
from simulator.errors import LinkError, ParameterError
from simulator.operators import MatMul, Phase
from simulator.parameter_tree import replace_at
from simulator.units import BOLTZMANN_J_PER_K

CORE = default_homodyne()
Q = 1.602176634e-19


def product(m=64, k=512, n=64, batch=1, phase=Phase.FORWARD):
    return MatMul(name="product", phase=phase, batch=batch, m=m, k=k, n=n)


def quiet(core):
    """The core with shot noise alone."""
    changes = {
        "receiver.temperature_k": 0.0,
        "receiver.dark_current_a": 0.0,
        "receiver.cmrr_db": 300.0,
        "laser.rin_db_per_hz": -300.0,
        "modulator.extinction_ratio_db": 300.0,
        "modulator.bandwidth_hz": 1e15,
        "crossing.crosstalk_db": 300.0,
    }
    for path, value in changes.items():
        core = replace_at(core, path, value)
    return core


def operands(rows, length, seed=3):
    generator = torch.Generator().manual_seed(seed)
    a = 2 * torch.rand(1, rows, length, generator=generator, dtype=torch.float64) - 1
    b = 2 * torch.rand(1, length, rows, generator=generator, dtype=torch.float64) - 1
    a[..., 0], b[:, 0] = 1.0, -1.0
    return a, b


@pytest.mark.parametrize("photons_per_mac", [0.39, 3.2, 50.0])
def test_counted_photons_meet_the_standard_quantum_limit(photons_per_mac):
    """Hamerly, PRX 9 (2019) 021032: |a| |b| / sqrt(N n) rms for N products of n photons, within 2 %."""
    rng, length, draws = np.random.default_rng(7), 256, 20_000
    a, b = rng.uniform(-1, 1, (2, length))
    total = length * photons_per_mac
    a_field, b_field = (math.sqrt(total / 2) * x / np.linalg.norm(x) for x in (a, b))
    plus = rng.poisson(np.sum((a_field + b_field) ** 2) / 2, draws)
    minus = rng.poisson(np.sum((a_field - b_field) ** 2) / 2, draws)
    outputs = (plus - minus) * np.linalg.norm(a) * np.linalg.norm(b) / total
    limit = np.linalg.norm(a) * np.linalg.norm(b) / math.sqrt(total)
    assert np.std(outputs - a @ b) == pytest.approx(limit, rel=0.02)


def test_executed_shot_noise_meets_the_standard_quantum_limit():
    """The same limit from laser power through the link budget to executed products, within 2 %."""
    core = dataclasses.replace(quiet(CORE), laser_power_w=CORE.laser_power_w / 100)
    spec = dataclasses.replace(
        core.analog(Phase.FORWARD),
        dac_bits=math.inf,
        adc_bits=math.inf,
        adc_enob_bits=math.inf,
        encoding_variance=0.0,
        product_gain=1.0,
    )
    a, b = operands(96, core.integration_symbols)
    error = AnalogNumerics(spec).matmul(a, b, key=5) - a @ b
    a2, b2 = a.square().sum(-1, keepdim=True), b.square().sum(-2, keepdim=True)
    count = core.photoelectrons_per_mac() * (a2 + b2) / 2
    limit = (a2 * b2 / count).sqrt() * (a2 + b2) / (2 * (a2 * b2).sqrt())
    assert float((error / limit).std()) == pytest.approx(1.0, rel=0.02)


def test_output_signal_to_noise_equals_photons_per_product():
    """Consequence for uncorrelated operands of equal norms: the power ratio of an output is n."""
    core = quiet(CORE)
    assert core.budget.typical_snr == pytest.approx(core.photoelectrons_per_mac(1 / 3), rel=1e-6)


def test_photoelectrons_are_counted_from_the_light_that_arrives():
    received_w = CORE.link.received_w
    expected = 2 * CORE.receiver.responsivity_a_per_w * received_w / CORE.symbol_rate_hz / Q
    assert CORE.photoelectrons_per_mac() == pytest.approx(expected, rel=1e-12)
    assert 2 * CORE.receivers * received_w < CORE.laser_power_w


def test_reset_noise_is_that_of_one_reading():
    """kTC per sample, however many symbols it sums, over the squared charge of a full-scale product."""
    for symbols in (64, 512):
        core = quiet(dataclasses.replace(CORE, integration_symbols=symbols))
        core = replace_at(core, "receiver.temperature_k", 300.0)
        charge = core.link.product_current_a / core.symbol_rate_hz
        expected = BOLTZMANN_J_PER_K * 300.0 * core.receiver.capacitance_f / charge**2
        assert core.link.thermal_variance == pytest.approx(expected, rel=1e-9)


def test_readout_is_paid_once_per_integration():
    """Hamerly: operand costs fall as 1/rows and 1/columns, the readout as 1/K."""
    short, long_ = (CORE.work(product(k=k), 1) for k in (128, 256))
    assert long_.energy_j["adc"] == short.energy_j["adc"]
    assert long_.energy_j["dac"] == pytest.approx(2 * short.energy_j["dac"], rel=1e-12)
    wide = dataclasses.replace(CORE, columns=64).work(product(n=64), 1)
    usual = CORE.work(product(n=32), 1)
    assert wide.energy_j["dac"] / 64 == pytest.approx(usual.energy_j["dac"] * 0.75 / 32)


def test_a_short_sum_waits_for_its_converters():
    waiting = CORE.readout_symbols / CORE.symbol_rate_hz
    assert CORE.work(product(m=32, k=16, n=32), 1).light_s == pytest.approx(waiting, rel=1e-12)
    assert CORE.work(product(m=32, k=500, n=32), 1).light_s == pytest.approx(
        500 / CORE.symbol_rate_hz, rel=1e-12
    )


def test_the_three_products_of_training_cost_light_alone():
    """Both operands are dynamic: no product loads anything, and equal shapes cost the same."""
    works = [CORE.work(product(512, 512, 512, phase=phase), 2) for phase in Phase]
    assert all(work == works[0] for work in works)
    assert works[0].programming_s == works[0].writes == 0.0


def test_phase_of_the_arms_walks_with_linewidth_mismatch_and_time():
    """2 pi w t for a linewidth w over a delay t, and half of what a random walk reaches in the end."""
    arms = CORE.arms
    delay_s = arms.mismatch_m * arms.group_index / 299792458.0
    assert arms.phase_variance(0.0) == pytest.approx(2 * math.pi * arms.linewidth_hz * delay_s, rel=1e-12)
    assert arms.phase_variance(1e-3) - arms.phase_variance(0.0) == pytest.approx(0.5, rel=1e-9)
    unsteady = replace_at(CORE, "arms.mismatch_m", 10 * arms.mismatch_m)
    assert unsteady.analog(Phase.FORWARD).product_gain < CORE.analog(Phase.FORWARD).product_gain < 1.0


def test_default_laser_balances_receiver_and_adc():
    """The design choice of the default: for evenly spread operands both add about the same noise."""
    receiver = 1.0 / CORE.budget.typical_snr
    adc = CORE.adc_range_sigma**2 / 3.0 * 4.0**-CORE.adc.enob_bits
    assert 0.5 < receiver / adc < 2.0


def test_overflowing_capacitors_are_refused():
    bright = dataclasses.replace(CORE, laser_power_w=20 * CORE.laser_power_w)
    with pytest.raises(LinkError, match=r"overflow: 256 products .* lower integration_symbols \(about \d+"):
        bright.budget  # noqa: B018 - the property checks


def test_noise_ratio_is_that_of_the_budget():
    ratio = CORE.noise_ratio
    light = ratio.total - ratio.bright["the ADC"] - ratio.bright["the DAC"]
    assert 1 / light == pytest.approx(CORE.budget.snr, rel=1e-9)


@pytest.mark.parametrize(("field", "value"), [("rows", 0), ("columns", 1.5), ("outputs_per_adc", 0)])
def test_impossible_core_is_refused(field, value):
    with pytest.raises(ParameterError, match=field):
        dataclasses.replace(CORE, **{field: value})
