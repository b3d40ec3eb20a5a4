"""The interferometer mesh: its matrix error against a simulated mesh, and the limits of its light."""

import dataclasses
import math

import numpy as np
import pytest

from optical.cores import default_mesh
from optical.devices import static_w
from optical.noise.link_budget import spread_norm
from simulator.errors import LinkError, ParameterError
from simulator.operators import Held, Phase
from simulator.parameter_tree import replace_at
from tests.builders import product

CORE = default_mesh()


def test_spread_matrices_have_the_norm_that_the_budget_scales_by():
    """Marchenko and Pastur 1967: the largest singular value of N x N even entries tends to 2 sqrt(N/3)."""
    matrix = np.random.default_rng(6).uniform(-1, 1, (160, 160))
    assert np.linalg.norm(matrix, 2) == pytest.approx(math.sqrt(spread_norm(160, 1 / 3)), rel=0.04)
    assert spread_norm(1, 1.0) == 1.0


def test_the_mesh_has_as_many_parts_as_the_textbook_says():
    """Two triangles of N(N-1)/2 and N attenuators; light passes 2N + 1 (Clements 2016; Shen 2017)."""
    n = CORE.ports
    assert CORE.interferometers == 2 * (n * (n - 1) // 2) + n
    assert CORE.depth == 2 * n + 1
    lost = {element.name: element.loss_db for element in CORE.path}[f"{2 * n + 1} x interferometer"]
    assert lost == pytest.approx((2 * n + 1) * 0.18, rel=1e-12)


def test_no_light_is_gained():
    received = CORE.ports * (CORE.link.received_w + CORE.link.oscillator_w)
    assert received < CORE.laser_power_w
    ones = np.ones((CORE.ports, CORE.ports))
    amplitude = math.sqrt(CORE.link.received_w) * ones @ np.ones(CORE.ports) / np.linalg.norm(ones, 2)
    full_a = CORE.link.product_current_a * CORE.ports / np.linalg.norm(ones, 2)
    gain = 2 * CORE.link.receiver.responsivity_a_per_w * CORE.link.receiver.usable
    assert np.sum(amplitude**2) <= CORE.ports * CORE.link.received_w * (1 + 1e-12)
    assert full_a == pytest.approx(gain * math.sqrt(CORE.link.oscillator_w) * amplitude[0], rel=1e-12)


def test_matrix_error_grows_with_the_mesh_as_its_root():
    small, large = (dataclasses.replace(CORE, ports=ports) for ports in (16, 64))
    small, large = (replace_at(core, "coupler.angle_error_rad", 0.0) for core in (small, large))
    ratio = large.relative_matrix_error / small.relative_matrix_error
    assert ratio == pytest.approx(math.sqrt(63 / 15), rel=1e-12)
    assert small.effective_bits != large.effective_bits


def test_vision_transformer_takes_as_long_as_published():
    """Lightening-Transformer HPCA 2024, MZI baseline: linear layers of DeiT-T, 197 tokens, 4-bit: 9.99 ms.

    Eight meshes of 12 x 12 at 5 GHz, 2 us a load: the sum of its parts (the printed 12.34 ms counts the last
    layer twice). Weights are loaded, as there: wide products are cut so that tokens outnumber columns. Within
    0.5 %, as the classifier may take one token or all.
    """
    core = dataclasses.replace(CORE, ports=12)
    core = replace_at(replace_at(core, "heater.settling_s", 2e-6), "heater_dac.rate_hz", 1e15)
    layers = 12 * [(192, 576), (192, 192), (192, 768), (768, 192)] + [(768, 192), (192, 1000)]
    total_s = 0.0
    for k, n in layers:
        for width in [192] * (n // 192) + [n % 192] * bool(n % 192):
            total_s += core.work(product(197, k, width, Held.B), 8).time_s
    assert total_s == pytest.approx(9.99e-3, rel=5e-3)


def test_default_receiver_and_adc_are_matched():
    n, spec = CORE.ports, CORE.analog(Phase.FORWARD)
    rms = math.sqrt(n / 9)
    adc = (2 * spec.adc_range_sigma * rms / 2**spec.adc_enob_bits) ** 2 / 12
    thermal = spec.norm_variance * spread_norm(n, 1 / 3)
    assert 0.5 < (thermal + n * spec.rin_variance / 9) / adc < 2.0


def test_heat_is_held_all_the_time():
    """Two heaters in each of N^2 interferometers, phases even over [0, 2 pi): P_pi each."""
    assert static_w(CORE.parts())["phase hold"] == pytest.approx(2 * 32**2 * 0.02, rel=1e-12)


def test_every_tile_waits_for_the_heaters():
    work = CORE.work(product(4096, 64, 64, Held.B), 1)
    assert work.programming_s == pytest.approx(4 * (10e-6 + 1e-6), rel=1e-12)
    assert work.light_s == pytest.approx(4 * 4096 / 5e9, rel=1e-12)
    assert work.writes == 4


def test_only_what_is_no_weight_is_decomposed():
    held = CORE.work(product(4096, 64, 64, Held.B), 1)
    dynamic = CORE.work(product(4096, 64, 64), 1)
    weights_stream = CORE.work(product(16, 64, 64, Held.B), 1)
    assert held.energy_j["decomposition"] == 0.0
    assert dynamic.energy_j["decomposition"] == pytest.approx(4 * 27 * 32**3 * 1e-12, rel=1e-12)
    assert weights_stream.energy_j["decomposition"] > 0.0
    assert dynamic.programming_s > held.programming_s


def test_a_lossy_mesh_does_not_close():
    with pytest.raises(LinkError, match="most is lost in '65 x interferometer'"):
        replace_at(CORE, "coupler.insertion_loss_db", 0.5).budget  # noqa: B018


def test_ports_are_whole():
    with pytest.raises(ParameterError, match="ports must be whole"):
        dataclasses.replace(CORE, ports=2.5)
