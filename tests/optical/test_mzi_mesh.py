"""The interferometer mesh: its matrix error against a simulated mesh, and the limits of its light."""

import dataclasses
import math

import numpy as np
import pytest

from heliograph.errors import LinkError, ParameterError
from heliograph.operators import Held, MatMul, Phase
from heliograph.paths import replace_at
from optical.cores import default_mesh
from optical.cores.mzi_mesh import Configuration
from optical.laser_power import power_for_bits

CORE = default_mesh()


def product(m, k, n, held=Held.NONE, phase=Phase.FORWARD):
    return MatMul(name="product", layer="block", phase=phase, batch=1, m=m, k=k, n=n, held=held)


def mesh(thetas, phis, errors):
    """Rectangular mesh of N columns, pairs from mode 0 and from mode 1 in turn (Clements 2016, figure 1)."""
    size = len(thetas)
    unitary = np.eye(size, dtype=complex)
    for column in range(size):
        for first in range(column % 2, size - 1, 2):
            outer, inner = np.exp(1j * phis[column, first]), np.exp(1j * thetas[column, first])
            one, two = (coupler(errors[side, column, first]) for side in (0, 1))
            block = two @ np.diag([inner, 1]) @ one @ np.diag([outer, 1])
            unitary[first : first + 2] = block @ unitary[first : first + 2]
    return unitary


def coupler(error):
    angle = math.pi / 4 + error
    return np.array([[math.cos(angle), 1j * math.sin(angle)], [1j * math.sin(angle), math.cos(angle)]])


@pytest.mark.parametrize(("phase_error", "angle_error"), [(3e-3, 0.0), (0.0, 3e-3)])
def test_matrix_error_is_that_of_a_simulated_mesh(phase_error, angle_error):
    """U S V* with every phase or coupler wrong: the closed form within 5 % (16 meshes, N = 16)."""
    size, generator = 16, np.random.default_rng(5)
    ratios = []
    for _ in range(16):
        draw = generator.uniform(0, 2 * math.pi, (4, size, size))
        sigma = np.diag(generator.uniform(0, 1, size))
        wrong = phase_error * generator.standard_normal((4, size, size))
        errors = angle_error * generator.standard_normal((2, 2, size, size))
        exact = mesh(draw[0], draw[1], 0 * errors[0]) @ sigma @ mesh(draw[2], draw[3], 0 * errors[1])
        found = mesh(draw[0] + wrong[0], draw[1] + wrong[1], errors[0]) @ sigma
        found = found @ mesh(draw[2] + wrong[2], draw[3] + wrong[3], errors[1])
        ratios.append(np.linalg.norm(found - exact) ** 2 / np.linalg.norm(exact) ** 2)
    without_attenuators = (size - 1) / size
    stated = 2 * size * (phase_error**2 + 2 * angle_error**2) * without_attenuators
    assert np.mean(ratios) == pytest.approx(stated, rel=0.05)
    core = replace_at(dataclasses.replace(CORE, ports=size), "coupler.angle_error_rad", angle_error)
    core = dataclasses.replace(core, configuration=Configuration.IDEAL)
    core = replace_at(replace_at(core, "heater.drift_rad", phase_error), "heater.contact_coupling", 0.0)
    core = replace_at(replace_at(core, "heater_dac.nominal_bits", 40.0), "heater_dac.enob_bits", 40.0)
    assert core.relative_matrix_error**2 * without_attenuators == pytest.approx(stated, rel=1e-9)


def test_spread_matrices_have_the_norm_that_the_budget_scales_by():
    """Marchenko and Pastur 1967: the largest singular value of N x N even entries tends to 2 sqrt(N/3)."""
    matrix = np.random.default_rng(6).uniform(-1, 1, (160, 160))
    stated = 1.0 / dataclasses.replace(CORE.link, length=160).field_share
    assert np.linalg.norm(matrix, 2) == pytest.approx(stated, rel=0.04)


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
    assert CORE.link.field_share * math.sqrt(CORE.ports) < 1.0


def test_matrix_error_grows_with_the_mesh_as_its_root():
    small, large = (dataclasses.replace(CORE, ports=ports) for ports in (16, 64))
    small, large = (replace_at(core, "coupler.angle_error_rad", 0.0) for core in (small, large))
    assert large.relative_matrix_error == pytest.approx(2 * small.relative_matrix_error, rel=1e-12)
    assert small.effective_bits != large.effective_bits


def test_calibrated_couplers_leave_the_square_of_their_error():
    """Bandyopadhyay 2021: corrected error = (uncorrected)^2 / sqrt(6), hence a fourth for half the error."""
    still = replace_at(replace_at(CORE, "heater.drift_rad", 0.0), "heater.contact_coupling", 0.0)
    still = replace_at(replace_at(still, "heater_dac.nominal_bits", 40.0), "heater_dac.enob_bits", 40.0)
    halved = replace_at(still, "coupler.angle_error_rad", still.coupler.angle_error_rad / 2)
    assert still.relative_matrix_error == pytest.approx(4 * halved.relative_matrix_error, rel=1e-6)
    ideal = dataclasses.replace(still, configuration=Configuration.IDEAL)
    assert ideal.relative_matrix_error > still.relative_matrix_error


def test_calibration_fails_at_interferometers_that_must_cross_over():
    """Bandyopadhyay 2021: drawn rank by rank from the Haar measure (r^2 ~ Beta(1, k), Russell 2017)."""
    size, error, draws = 64, 0.01, 400
    generator = np.random.default_rng(8)
    ranks = np.repeat(np.arange(1, size), np.arange(size - 1, 0, -1))
    needed = np.sqrt(generator.beta(1, ranks, (draws, ranks.size)))
    least = np.abs(error * generator.standard_normal((2, draws, ranks.size)).sum(0))
    missed = 2 * np.maximum(least - needed, 0) ** 2
    found = math.sqrt(missed.sum(1).mean() / size)
    still = replace_at(replace_at(CORE, "heater.drift_rad", 0.0), "heater.contact_coupling", 0.0)
    still = replace_at(replace_at(still, "heater_dac.nominal_bits", 40.0), "heater_dac.enob_bits", 40.0)
    still = replace_at(dataclasses.replace(still, ports=size), "coupler.angle_error_rad", error)
    assert still.relative_matrix_error / math.sqrt(2) == pytest.approx(found, rel=0.05)


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


def test_solved_power_gives_the_bits_and_no_less_does():
    for bits in (3.0, 5.0, 6.0):
        lit = dataclasses.replace(CORE, laser_power_w=power_for_bits(CORE, bits))
        assert lit.effective_bits == pytest.approx(bits, rel=1e-9)
        assert dataclasses.replace(lit, laser_power_w=0.9 * lit.laser_power_w).effective_bits < bits
    with pytest.raises(LinkError, match="mostly by the ADC"):
        power_for_bits(CORE, 8.0)
    with pytest.raises(ParameterError, match="positive and finite"):
        power_for_bits(CORE, math.inf)


def test_default_receiver_and_adc_are_matched():
    n, spec = CORE.ports, CORE.analog(Phase.FORWARD)
    rms = math.sqrt(n / 9)
    adc = (2 * spec.adc_range_sigma * rms / 2**spec.adc_enob_bits) ** 2 / 12
    assert 0.5 < (spec.thermal_variance + n * spec.rin_variance / 9) / adc < 2.0


def test_heat_is_held_all_the_time():
    """Two heaters in each of N^2 interferometers, phases even over [0, 2 pi): P_pi each."""
    assert CORE.static_parts_w()["phase hold"] == pytest.approx(2 * 32**2 * 0.02, rel=1e-12)


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
