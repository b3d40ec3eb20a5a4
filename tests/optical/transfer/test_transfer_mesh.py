import importlib.util
import itertools
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optical.transfer.elements import mzi_matrix, settle, wrapped
from optical.transfer.mesh import Mesh, MeshLayout, MeshShape, decompose, program_weight
from simulator.errors import ParameterError
from tests.builders import haar, largest_gain

SHAPES = list(MeshShape)
TURN = 2.0 * math.pi


def special(n):
    """Matrices with zeros and pivots that vanish."""
    generator = np.random.default_rng(5)
    fourier = np.exp(2j * math.pi * np.outer(range(n), range(n)) / n) / math.sqrt(n)
    block = np.eye(n, dtype=complex)
    block[: n // 2, : n // 2] = haar(n // 2)
    return {
        "identity": np.eye(n),
        "minus": -np.eye(n),
        "reversal": np.eye(n)[::-1],
        "shift": np.roll(np.eye(n), 1, axis=0),
        "permutation": np.eye(n)[generator.permutation(n)],
        "phases": np.diag(np.exp(1j * np.arange(n))),
        "fourier": fourier,
        "block": block,
        "orthogonal": np.linalg.qr(generator.standard_normal((n, n)))[0],
        "near identity": haar(n) @ np.diag(np.exp(1e-9j * np.arange(n))) @ haar(n).conj().T,
    }


def product_by_the_book(mesh):
    """Multiply one whole matrix per interferometer, in the order of the columns."""
    n = mesh.layout.modes
    total = np.eye(n, dtype=complex)
    for k in np.argsort(mesh.layout.column, kind="stable"):
        whole = np.eye(n, dtype=complex)
        upper = mesh.layout.upper[k]
        whole[upper : upper + 2, upper : upper + 2] = mzi_matrix(mesh.theta_rad[k], mesh.phi_rad[k])
        total = whole @ total
    return np.diag(np.exp(1j * mesh.output_rad)) @ total


def test_the_matrix_is_that_of_the_module_docstring():
    theta, phi = 0.7, 2.9
    half, turn = theta / 2.0, np.exp(1j * phi)
    rows = [[turn * math.sin(half), math.cos(half)], [turn * math.cos(half), -math.sin(half)]]
    assert mzi_matrix(theta, phi) == pytest.approx(1j * np.exp(1j * half) * np.array(rows), abs=1e-15)


@pytest.mark.parametrize(
    ("n", "shape"), [*itertools.product((1, 2, 3, 4, 5, 8, 17, 64), SHAPES), (128, MeshShape.CLEMENTS)]
)
def test_a_random_unitary_comes_back_exactly(n, shape):
    """Clements et al. 2016 (arXiv:1603.08788) and Reck et al. 1994: a mesh reaches every unitary matrix."""
    unitary = haar(n, seed=n)
    mesh = decompose(unitary, shape)
    assert np.abs(mesh.matrix() - unitary).max() < 1e-12
    for phases in (mesh.theta_rad, mesh.phi_rad, mesh.output_rad):
        assert np.all((phases >= 0.0) & (phases < TURN))
    assert np.all(mesh.theta_rad <= math.pi)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [2, 3, 6, 7])
def test_matrices_with_zeros_come_back_too(n, shape):
    for name, unitary in special(n).items():
        mesh = decompose(unitary, shape)
        assert np.abs(mesh.matrix() - unitary).max() < 1e-12, name
        assert np.abs(product_by_the_book(mesh) - unitary).max() < 1e-12, name
        assert np.all((mesh.phi_rad >= 0.0) & (mesh.phi_rad < TURN)), name


@pytest.mark.parametrize(("shape", "depth"), [(MeshShape.CLEMENTS, 9), (MeshShape.RECK, 15)])
def test_count_and_depth_are_those_of_the_papers(shape, depth):
    """N (N - 1) / 2 interferometers; depth N (Clements 2016, fig. 1) and 2 N - 3 (Reck 1994)."""
    layout = MeshLayout(modes=9, shape=shape)
    assert (layout.count, layout.depth) == (36, depth)
    assert len(layout.upper) == len(layout.column) == 36
    for column in range(depth):
        tops = layout.upper[layout.column == column]
        assert np.all(np.diff(tops) >= 2), "two in a column share a waveguide"
    expected = [5, 4] * 4 if shape is MeshShape.CLEMENTS else [8, 7, 6, 5, 4, 3, 2, 1]
    assert np.bincount(layout.upper).tolist() == expected


def test_loss_in_each_interferometer_leaves_the_rectangle_closer_to_its_matrix():
    """Clements et al. 2016, sec. 4: ways of equal length lose alike, so balanced loss keeps the fidelity."""
    unitary, scores = haar(16), {}
    for shape in SHAPES:
        lossy = decompose(unitary, shape).matrix(loss_db=0.3)
        assert largest_gain(lossy) < 1.0
        overlap = abs(np.vdot(unitary, lossy)) ** 2
        scores[shape] = overlap / (16.0 * np.vdot(lossy, lossy).real)
    assert scores[MeshShape.CLEMENTS] > 0.99
    assert scores[MeshShape.CLEMENTS] > scores[MeshShape.RECK] + 0.01


def test_equal_ways_lose_equally():
    mesh = decompose(haar(2))
    assert mesh.matrix(loss_db=2.0) == pytest.approx(10.0**-0.1 * haar(2), abs=1e-14)


def test_a_mesh_off_its_wavelength_is_unitary_and_wrong():
    mesh = decompose(haar(8))
    ratios = np.array([0.99, 1.0, 1.01])
    found = mesh.matrix(wavelength_ratio=ratios, dispersion=4.0)
    assert found.shape == (3, 8, 8)
    assert found[1] == pytest.approx(haar(8), abs=1e-13)
    assert np.abs(found.conj().transpose(0, 2, 1) @ found - np.eye(8)).max() < 1e-13
    assert np.abs(found[0] - haar(8)).max() > 0.01
    plain = mesh.matrix(wavelength_ratio=ratios)
    assert np.abs(plain[0] - found[0]).max() > 1e-3


@given(
    *[st.floats(0.0, TURN)] * 3,
    st.floats(0.35, math.pi - 0.35),
    st.tuples(st.floats(-0.08, 0.08), st.floats(-0.08, 0.08)),
)
@settings(max_examples=60, deadline=None)
def test_wrong_couplers_are_made_up_for_within_reach(upper, lower, phi, theta, couplers):
    """Bandyopadhyay et al. 2021: exact for splits within sin^2(a + b) .. cos^2(a - b)."""
    target = np.diag(np.exp([1j * upper, 1j * lower])) @ mzi_matrix(theta, phi)
    phases, (set_theta, set_phi) = settle(target, *couplers)
    made = np.diag(phases) @ mzi_matrix(set_theta, set_phi, *couplers)
    assert np.abs(made - target).max() < 1e-12
    assert 0.0 <= set_theta <= math.pi
    assert 0.0 <= set_phi < TURN


def test_angles_wrap_below_a_turn():
    assert wrapped([-1e-18, TURN, -1.0]) == pytest.approx([0.0, 0.0, TURN - 1.0])
    assert np.all(wrapped([-1e-18, TURN, -1.0, 7.0]) < TURN)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 5), (6, 6), (4, 9), (9, 4)])
def test_any_weight_is_programmed_on_passive_optics(rows, columns, shape):
    generator = np.random.default_rng(rows)
    real = generator.standard_normal((rows, columns))
    for weight in (real, real + 1j * generator.standard_normal((rows, columns)), np.zeros((rows, columns))):
        found = program_weight(weight, shape)
        assert np.abs(found.matrix() - weight).max() < 1e-12
        assert found.scale == pytest.approx(np.linalg.norm(weight, 2), rel=1e-12)
        assert np.all((found.attenuation >= 0.0) & (found.attenuation <= 1.0))
        assert largest_gain(found.transfer()) <= 1.0 + 1e-12
        small = min(rows, columns)
        assert found.interferometers == rows * (rows - 1) // 2 + columns * (columns - 1) // 2 + small


def test_a_weight_of_low_rank_keeps_its_dark_channels():
    column = np.arange(1.0, 5.0)[:, None]
    found = program_weight(column @ column.T)
    assert found.attenuation == pytest.approx([1.0, 0.0, 0.0, 0.0], abs=1e-12)
    assert found.scale == pytest.approx(30.0)
    assert found.depth == 4 + 4 + 1


def test_loss_dims_a_programmed_weight():
    found = program_weight(np.random.default_rng(0).standard_normal((4, 4)))
    gains = [largest_gain(found.transfer(loss_db=loss)) for loss in (0.0, 0.1, 1.0)]
    assert gains == sorted(gains, reverse=True)
    assert gains[2] < 0.7


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: decompose(np.eye(3)[:2]), r"square matrices; got shape \(2, 3\)"),
        (lambda: decompose(1.001 * np.eye(3)), "U\\^H U differs from 1 by 0.002.*program_weight"),
        (lambda: decompose(np.full((2, 2), np.nan)), "unitary"),
        (lambda: decompose(np.zeros((0, 0))), "square"),
        (lambda: program_weight(np.array([1.0, 2.0])), "a weight must be a matrix of finite numbers"),
        (lambda: program_weight(np.array([[np.inf]])), "finite"),
        (lambda: MeshLayout(modes=0), "modes must be a whole number of at least 1; got 0"),
        (lambda: MeshLayout(modes=2.5), "modes must be a whole number"),
        (
            lambda: Mesh(
                layout=MeshLayout(modes=2), theta_rad=np.zeros(2), phi_rad=np.zeros(1), output_rad=np.zeros(2)
            ),
            "theta_rad must be 1 finite phases for 2 modes; got shape",
        ),
    ],
)
def test_what_no_mesh_can_make_is_refused(call, words):
    with pytest.raises(ParameterError, match=words):
        call()


def test_the_plain_ways_of_the_benchmark_agree_with_ours(monkeypatch, capsys):
    path = Path(__file__).parents[3] / "benchmarks" / "mesh.py"
    spec = importlib.util.spec_from_file_location("benchmark_mesh", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    unitary = haar(6)
    for left in (benchmark.decompose_by_elements(unitary), benchmark.decompose_by_matrices(unitary)):
        assert np.abs(np.abs(left) - np.eye(6)).max() < 1e-13
    mesh = decompose(unitary)
    for rebuilt in (benchmark.rebuild_by_elements(mesh), benchmark.rebuild_by_matrices(mesh)):
        assert np.abs(np.array(rebuilt) - unitary).max() < 1e-13
    monkeypatch.setattr(sys, "argv", ["mesh.py", "decompositions", "4"])
    benchmark.main()
    lines = capsys.readouterr().out.splitlines()
    assert [row.split()[:2] for row in lines[1:]] == [["4", "clements"], ["4", "reck"], ["4", "rebuild"]]
