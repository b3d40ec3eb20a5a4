import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import pytest

from optical.transfer.elements import mzi_matrix
from optical.transfer.mesh import (
    Calibration,
    Mesh,
    MeshErrors,
    MeshLayout,
    MeshShape,
    couplers_from_fringe,
    decompose,
    draw_errors,
    matrix_error,
    program_weight,
    self_configure,
)
from simulator.errors import ParameterError
from tests.builders import self_configured

CHIPS = 24


@dataclass(frozen=True, kw_only=True)
class ErrorLaw:
    """Expected errors of Haar-random unitary matrices on a mesh, for small errors.

    Notes
    -----
    Couplers: each of the N (N - 1) has norm^2 2 s^2, so E^2 = 2 (N - 1) s^2 before correction. After it
    only splits beyond reach remain. The bar power x of an interferometer of rank k has density k (1 -
    x)^(k-1), there are N - k of that rank, and a + b has variance 2 s^2: the sum of 4 k s^4 over all
    gives E^2 = (2/3) N^2 s^4, and a share (2/3) N s^2 of the interferometers is beyond reach. Good while
    N s^2 is far below 1; it does not hold for matrices that need full bars or crosses, such as the
    identity, whose error stays linear in s.

    Phases: each of the N^2 has norm^2 s^2, so E = s sqrt(N).

    References
    ----------
    S. Bandyopadhyay, R. Hamerly, D. Englund, Optica 8 (2021) 1247 (arXiv:2103.04993): linear becomes
    quadratic; R. Hamerly, S. Bandyopadhyay, D. Englund, Nat. Commun. 13 (2022) 6831 (arXiv:2109.05367): the
    cross state is what limits large meshes. N. J. Russell et al., New J. Phys. 19 (2017) 033007: the
    densities. The factors follow as above, and a Monte Carlo agrees.
    """

    modes: int
    """Waveguides."""
    splitter_rad: float
    """Standard deviation of the couplers' angles."""

    @property
    def uncorrected(self) -> float:
        """Error of the design's own settings, sqrt(2 (N - 1)) s."""
        return math.sqrt(2.0 * (self.modes - 1)) * self.splitter_rad

    @property
    def alike(self) -> float:
        """Mean square before correction if both couplers of an interferometer err alike, over that above.

        Their first orders add where light crosses and cancel where it passes straight: 1 + mean(1 - 2 x),
        and x is 1/(k + 1) on average, of real matrices too.
        """
        n = self.modes
        ranks = np.arange(1, n)
        return 1.0 + float(np.sum((n - ranks) * (1.0 - 2.0 / (ranks + 1)))) / (n * (n - 1) / 2)

    @property
    def corrected(self) -> float:
        """Error after correction, sqrt(2/3 (N^2 - 1)) s^2."""
        return math.sqrt(2.0 / 3.0 * (self.modes**2 - 1)) * self.splitter_rad**2

    @property
    def unreachable(self) -> float:
        """Share of interferometers beyond reach, (2/3)(N + 1) s^2."""
        return 2.0 / 3.0 * (self.modes + 1) * self.splitter_rad**2

    @property
    def break_even_rad(self) -> float:
        """Splitter error at which the two laws meet; correction helps well below it."""
        return math.sqrt(3.0 / (self.modes + 1))


def unreachable_share(design: Mesh, errors: MeshErrors) -> float:
    """Return the share of interferometers whose split the couplers of a chip do not allow, 0 to 1.

    Between sin^2(a + b) and cos^2(a - b) of the power can pass straight (Bandyopadhyay et al. 2021).
    """
    if not design.layout.count:
        return 0.0
    first, second = errors.splitter_rad.T
    low, high = np.sin(first + second) ** 2, np.cos(first - second) ** 2
    bar = np.sin(design.theta_rad / 2.0) ** 2
    return float(np.mean((bar < low) | (bar > high)))


def haar(n, generator):
    normal = generator.standard_normal((2, n, n))
    q, r = np.linalg.qr(normal[0] + 1j * normal[1])
    return q * (np.diagonal(r) / np.abs(np.diagonal(r)))


def mean_errors(n, splitter_rad, *, shape=MeshShape.CLEMENTS, phase_rad=0.0, seed=0):
    """Return the rms error before and after correction, and the share beyond reach, over chips."""
    generator, found = np.random.default_rng(seed), []
    for _ in range(CHIPS):
        unitary = haar(n, generator)
        design = decompose(unitary, shape)
        chip = draw_errors(design.layout, splitter_rad=splitter_rad, phase_rad=phase_rad, generator=generator)
        plain = matrix_error(design.matrix(chip), unitary)
        mended = matrix_error(self_configure(design, chip).matrix(chip), unitary)
        found.append((plain**2, mended**2, unreachable_share(design, chip)))
    plain, mended, share = np.mean(found, axis=0)
    return math.sqrt(plain), math.sqrt(mended), share


@pytest.mark.parametrize("shape", list(MeshShape))
def test_known_errors_vanish_where_every_split_is_within_reach(shape):
    """Bandyopadhyay, Hamerly, Englund 2021 (arXiv:2103.04993): correction is exact within reach."""
    generator = np.random.default_rng(4)
    design = decompose(haar(6, generator), shape)
    chip = draw_errors(design.layout, splitter_rad=0.004, phase_rad=0.3, generator=generator)
    assert unreachable_share(design, chip) == 0.0
    assert matrix_error(design.matrix(chip), design.matrix()) > 0.1
    mended = self_configure(design, chip)
    assert matrix_error(mended.matrix(chip), design.matrix()) < 1e-13
    for phases in (mended.theta_rad, mended.phi_rad, mended.output_rad):
        assert np.all((phases >= 0.0) & (phases < 2.0 * math.pi))


@pytest.mark.parametrize("n", [8, 32])
def test_errors_grow_linearly_before_and_with_the_square_after_correction(n):
    """Bandyopadhyay et al. 2021 (arXiv:2103.04993): linear becomes quadratic; factors as `ErrorLaw` derives.

    Over 24 chips the first is known to about 3 % and the second, which few interferometers make, to about
    25 %.
    """
    law = ErrorLaw(modes=n, splitter_rad=0.03)
    plain, mended, share = mean_errors(n, 0.03)
    assert plain == pytest.approx(law.uncorrected, rel=0.1)
    assert mended == pytest.approx(law.corrected, rel=0.35)
    assert share == pytest.approx(law.unreachable, rel=0.3)
    coarse_plain, coarse_mended, _ = mean_errors(n, 0.06)
    assert math.log2(coarse_plain / plain) == pytest.approx(1.0, abs=0.1)
    assert math.log2(coarse_mended / mended) == pytest.approx(2.0, abs=0.3)


def test_the_triangle_follows_the_same_law():
    law = ErrorLaw(modes=16, splitter_rad=0.03)
    plain, mended, _ = mean_errors(16, 0.03, shape=MeshShape.RECK)
    assert plain == pytest.approx(law.uncorrected, rel=0.1)
    assert mended == pytest.approx(law.corrected, rel=0.4)


@pytest.mark.parametrize("n", [8, 24])
def test_couplers_that_err_alike_add_up_where_light_crosses(n):
    """Neighbours from one wafer err alike: 40 % (8 modes) to 66 % (24) more of the square."""
    law, generator, squares = ErrorLaw(modes=n, splitter_rad=0.01), np.random.default_rng(7), []
    for _ in range(CHIPS):
        design = decompose(haar(n, generator))
        apart = draw_errors(design.layout, splitter_rad=0.01, phase_rad=0.0, generator=generator)
        chip = dataclasses.replace(apart, splitter_rad=apart.splitter_rad[:, :1].repeat(2, axis=1))
        squares.append(matrix_error(design.matrix(chip), design.matrix()) ** 2)
    assert np.mean(squares) == pytest.approx(law.alike * law.uncorrected**2, rel=0.08)


def test_a_larger_mesh_is_harder_to_mend():
    gains = [ErrorLaw(modes=n, splitter_rad=0.02) for n in (8, 64, 512)]
    ratios = [law.corrected / law.uncorrected for law in gains]
    assert ratios == sorted(ratios)
    at = gains[1].break_even_rad
    even = ErrorLaw(modes=64, splitter_rad=at)
    assert even.corrected == pytest.approx(even.uncorrected, rel=1e-12)


def test_a_matrix_of_full_bars_gains_nothing():
    """The limit of the law: the identity needs full bars, which no wrong coupler gives; it stays linear."""
    design, found = decompose(np.eye(8)), []
    for splitter_rad in (0.01, 0.02):
        generator, squares = np.random.default_rng(1), []
        for _ in range(2 * CHIPS):
            chip = draw_errors(design.layout, splitter_rad=splitter_rad, phase_rad=0.0, generator=generator)
            assert unreachable_share(design, chip) > 0.9
            mended = self_configure(design, chip).matrix(chip)
            squares.append(matrix_error(mended, np.eye(8)) ** 2)
        found.append(math.sqrt(np.mean(squares)))
        assert found[-1] > 0.8 * ErrorLaw(modes=8, splitter_rad=splitter_rad).uncorrected
    assert found[1] == pytest.approx(2.0 * found[0], rel=0.01)


def test_phase_errors_add_up_to_sigma_root_n():
    """Each of N^2 phases turns its field by sigma, so E = sigma sqrt(N)."""
    generator = np.random.default_rng(2)
    design = decompose(haar(32, generator))
    squares = []
    for _ in range(CHIPS):
        chip = draw_errors(design.layout, splitter_rad=0.0, phase_rad=0.01, generator=generator)
        squares.append(matrix_error(design.matrix(chip), design.matrix()) ** 2)
    assert math.sqrt(np.mean(squares)) == pytest.approx(0.01 * math.sqrt(32), rel=0.05)


def test_what_is_not_known_is_not_corrected():
    generator = np.random.default_rng(3)
    design = decompose(haar(6, generator))
    same = self_configure(design, MeshErrors.none(design.layout))
    assert matrix_error(same.matrix(), design.matrix()) < 1e-13
    assert same.theta_rad == pytest.approx(design.theta_rad, abs=1e-12)


def test_what_calibration_gets_wrong_counts_in_full():
    """Couplers known to within d leave the uncorrected error of couplers wrong by d, sqrt(2 (N - 1)) d."""
    generator, squares, slip = np.random.default_rng(5), [], 1e-4
    for _ in range(CHIPS):
        unitary = haar(12, generator)
        design = decompose(unitary)
        chip = draw_errors(design.layout, splitter_rad=0.002, phase_rad=0.0, generator=generator)
        missed = slip * generator.standard_normal(chip.splitter_rad.shape)
        known = dataclasses.replace(chip, splitter_rad=chip.splitter_rad + missed)
        squares.append(matrix_error(self_configure(design, known).matrix(chip), unitary) ** 2)
    expected = ErrorLaw(modes=12, splitter_rad=slip).uncorrected
    assert math.sqrt(np.mean(squares)) == pytest.approx(expected, rel=0.1)


def test_a_programmed_weight_is_mended_in_both_meshes():
    generator = np.random.default_rng(6)
    weight = program_weight(generator.standard_normal((5, 7)))
    chips = [
        draw_errors(mesh.layout, splitter_rad=0.002, phase_rad=0.1, generator=generator)
        for mesh in (weight.rows, weight.columns)
    ]
    wrong = weight.transfer(*chips) - weight.transfer()
    mended = self_configured(weight, *chips).transfer(*chips) - weight.transfer()
    assert np.abs(wrong).max() > 0.01
    assert np.abs(mended).max() < 1e-12
    half = self_configured(weight, chips[0], MeshErrors.none(weight.columns.layout))
    assert np.abs(half.transfer(*chips) - weight.transfer()).max() > 0.01


def test_errors_are_fixed_for_a_chip_and_scale_with_their_size():
    layout = MeshLayout(modes=5)
    drawn = [
        draw_errors(layout, splitter_rad=s, phase_rad=p, generator=np.random.default_rng(9))
        for s, p in ((0.1, 0.2), (0.1, 0.2), (0.2, 0.2))
    ]
    assert np.array_equal(drawn[0].splitter_rad, drawn[1].splitter_rad)
    assert np.array_equal(drawn[0].output_rad, drawn[1].output_rad)
    assert drawn[2].splitter_rad == pytest.approx(2.0 * drawn[0].splitter_rad)
    assert np.array_equal(drawn[2].phi_rad, drawn[0].phi_rad)
    unitary = decompose(haar(5, np.random.default_rng(0))).matrix(drawn[0])
    assert np.abs(unitary.conj().T @ unitary - np.eye(5)).max() < 1e-13


@pytest.mark.parametrize(("first", "second"), [(0.03, 0.01), (-0.05, 0.02), (0.0, 0.0)])
@pytest.mark.parametrize("points", [3, 8])
def test_three_settings_tell_the_couplers_of_an_interferometer(first, second, points):
    theta = 2.0 * math.pi * np.arange(points) / points
    power = np.abs(mzi_matrix(theta + 0.4, 0.0, first, second)[:, 0, 0]) ** 2
    total, difference, offset = couplers_from_fringe(theta, power)
    # the ends are squares, so rounding of 1e-16 is 1e-8 here
    assert total == pytest.approx(abs(first + second), abs=1e-7)
    assert difference == pytest.approx(abs(first - second), abs=1e-7)
    assert offset == pytest.approx(0.4, abs=1e-12)


def test_calibration_counts_fringes():
    layout = MeshLayout(modes=8)
    full, phases = Calibration(), Calibration(knows_couplers=False)
    assert phases.settings(layout) == 3 * (2 * 28 + 7)
    assert full.settings(layout) - phases.settings(layout) == 3 * 28
    assert Calibration(fringe_points=5).settings(layout) == 5 * full.settings(layout) // 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Calibration(fringe_points=2), "fringe_points must be whole and at least 3; got 2"),
        (lambda: couplers_from_fringe([0.0, 1.0], [0.1, 0.2]), "a fringe needs at least 3 settings"),
        (
            lambda: draw_errors(
                MeshLayout(modes=3), splitter_rad=-1.0, phase_rad=0.0, generator=np.random.default_rng(0)
            ),
            "splitter_rad must be finite and at least 0; got -1",
        ),
        (
            lambda: MeshErrors(
                splitter_rad=np.zeros((3, 2)),
                theta_rad=np.zeros(2),
                phi_rad=np.zeros(2),
                output_rad=np.zeros(3),
            ),
            "must belong to the interferometers of theta_rad",
        ),
        (
            lambda: decompose(np.eye(3)).matrix(MeshErrors.none(MeshLayout(modes=2))),
            "errors are those of a mesh of 2 modes",
        ),
    ],
)
def test_what_no_chip_can_have_is_refused(call, words):
    with pytest.raises(ParameterError, match=words):
        call()
