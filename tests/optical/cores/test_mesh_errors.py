"""Errors of a real matrix on two imperfect meshes: closed forms against the transfer matrices themselves."""

import dataclasses
import math

import numpy as np
import pytest

from optical.cores.mzi_mesh import Configuration, RealMatrixError, default_mesh
from optical.transfer.decomposition import program_weight
from optical.transfer.mesh import draw_errors
from simulator.operators import Phase
from simulator.parameter_tree import replace_at
from tests.builders import self_configured

CORE = default_mesh()


def chip(programmed, generator, *, splitter_rad=0.0, phase_rad=0.0):
    """Errors of both meshes of one chip."""
    layouts = programmed.rows.layout, programmed.columns.layout
    return [
        draw_errors(layout, splitter_rad=splitter_rad, phase_rad=phase_rad, generator=generator)
        for layout in layouts
    ]


def realised(weight, errors, *, corrected=False):
    """What a receiver in phase with the light sees of a weight on a chip."""
    programmed = program_weight(weight)
    settings = self_configured(programmed, *errors) if corrected else programmed
    return programmed.scale * settings.transfer(*errors).real


def simulated(ports, *, corrected=False, meshes=24, **errors):
    """Gain, and rms error beside it over the rms entry, of random weights on random chips."""
    generator = np.random.default_rng(3)
    weights = generator.uniform(-1.0, 1.0, (meshes, ports, ports))
    found = np.stack(
        [realised(w, chip(program_weight(w), generator, **errors), corrected=corrected) for w in weights]
    )
    gain = np.sum(found * weights) / np.sum(weights**2)
    return gain, math.sqrt(np.sum((found - gain * weights) ** 2) / np.sum(weights**2))


@pytest.mark.parametrize("ports", [8, 24])
def test_phases_give_the_error_that_is_read_in_phase(ports):
    """Half of half the phases: within 6 %, since singular values are not all alike."""
    law = RealMatrixError(ports=ports, phase_rad=1e-3, coupler_rad=0.0)
    _, found = simulated(ports, phase_rad=1e-3)
    assert found == pytest.approx(law.phases, rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("ports", [8, 24])
def test_amplitudes_give_three_times_the_square_that_phases_do(monkeypatch, ports):
    """An imaginary phase fades: what real phases hide in the other quadrature is seen, within 6 %."""
    law = RealMatrixError(ports=ports, phase_rad=0.0, coupler_rad=0.0, amplitude=1e-3)
    real, names = draw_errors, ("theta_rad", "phi_rad", "output_rad")

    def faded(layout, **errors):
        drawn = real(layout, **errors)
        return dataclasses.replace(drawn, **{name: 1j * getattr(drawn, name) for name in names})

    monkeypatch.setitem(globals(), "draw_errors", faded)
    _, found = simulated(ports, phase_rad=1e-3, meshes=2000 // ports)
    assert found == pytest.approx(law.amplitudes, rel=0.06)


@pytest.mark.parametrize(("ports", "error"), [(8, 0.02), (24, 0.01), (24, 0.02)])
def test_uncorrected_couplers_give_a_gain_and_an_error_of_second_order(ports, error):
    law = RealMatrixError(ports=ports, phase_rad=0.0, coupler_rad=error)
    gain, found = simulated(ports, splitter_rad=error)
    assert 1.0 - gain == pytest.approx(1.0 - law.uncorrected_gain, rel=0.06)
    assert found == pytest.approx(law.uncorrected, rel=0.12)


@pytest.mark.slow
@pytest.mark.parametrize(("ports", "error"), [(8, 0.02), (24, 0.005), (24, 0.02)])
def test_corrected_couplers_leave_what_cannot_be_reached(ports, error):
    """Bandyopadhyay 2021, applied to real factors; few interferometers fail at a time: within 15 %."""
    law = RealMatrixError(ports=ports, phase_rad=0.0, coupler_rad=error)
    _, found = simulated(ports, corrected=True, meshes=60, splitter_rad=error)
    assert found == pytest.approx(law.corrected, rel=0.15)


def test_correction_fails_rank_by_rank():
    """r^2 ~ Beta(1/2, k/2) of random orthogonal rows, drawn interferometer by interferometer."""
    size, error, draws = 64, 0.01, 400
    generator = np.random.default_rng(8)
    ranks = np.repeat(np.arange(1, size), np.arange(size - 1, 0, -1))
    needed = np.sqrt(generator.beta(0.5, ranks / 2.0, (draws, ranks.size)))
    least = np.abs(error * generator.standard_normal((2, draws, ranks.size)).sum(0))
    missed = 2.0 * np.maximum(least - needed, 0.0) ** 2
    found = math.sqrt(2.0 * missed.sum(1).mean() / size)
    law = RealMatrixError(ports=size, phase_rad=0.0, coupler_rad=error)
    assert law.corrected == pytest.approx(found, rel=0.03)


def test_a_chip_repeats_its_error_for_the_same_weights_only():
    """Why a mesh's coupler errors are keyed by chip and weights, and not by position (docs/noise.md)."""
    generator, alike = np.random.default_rng(4), {0.0: [], 1e-3: [], 0.1: [], None: []}
    for _ in range(8):
        weight, other = generator.uniform(-1.0, 1.0, (2, 16, 16))
        errors = chip(program_weight(weight), generator, splitter_rad=0.02)
        first = realised(weight, errors, corrected=True) - weight
        for change, found in alike.items():
            moved = other if change is None else weight + change * other
            second = realised(moved, errors, corrected=True) - moved
            found.append(np.sum(first * second) / np.linalg.norm(first) / np.linalg.norm(second))
    means = {change: np.mean(found) for change, found in alike.items()}
    assert means[0.0] == pytest.approx(1.0, abs=1e-9)
    assert means[1e-3] > 0.5 > means[0.1]
    assert abs(means[None]) < 0.15


def test_the_core_takes_its_errors_from_these_laws():
    law = CORE.matrix_error
    corrected = dataclasses.replace(CORE, configuration=Configuration.CORRECTED)
    spec = corrected.analog(Phase.FORWARD)
    assert spec.load_variance == pytest.approx(law.phases**2 / 3.0, rel=1e-12)
    assert spec.chip.repeated_variance == pytest.approx(law.corrected**2 / 3.0, rel=1e-12)
    assert spec.product_gain == 1.0
    assert CORE.configuration is Configuration.IDEAL  # correction does not pay there
    found = CORE.analog(Phase.FORWARD)
    assert found.chip.repeated_variance == pytest.approx(law.uncorrected**2 / 3.0, rel=1e-12)
    assert found.product_gain == law.uncorrected_gain
    assert CORE.calibration.time_s < corrected.calibration.time_s


def test_correction_pays_where_errors_are_large():
    """Above sqrt(N) e of about 0.16; below it the first order hides in the other quadrature anyway."""
    small, large = (RealMatrixError(ports=32, phase_rad=0.0, coupler_rad=e) for e in (0.01, 0.06))
    assert small.corrected > small.uncorrected
    assert large.corrected < large.uncorrected


def test_perfect_parts_leave_no_error():
    perfect = replace_at(CORE, "coupler.angle_error_rad", 0.0)
    assert perfect.analog(Phase.FORWARD).chip is None
    law = RealMatrixError(ports=32, phase_rad=0.0, coupler_rad=0.0)
    assert law.phases == law.corrected == law.uncorrected == 0.0
    assert law.uncorrected_gain == 1.0
