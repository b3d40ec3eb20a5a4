"""Setting a mesh whose couplers are known to be wrong, what remains then, and what knowing them costs.

Without correction a chip's error grows with the errors of its couplers; with it, with their square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optical.transfer.elements import Complex, Real, bar_power_range, mzi_matrix, require, wrapped
from optical.transfer.mesh import Mesh, MeshErrors, MeshLayout, absorb
from simulator.checks import check_range
from simulator.errors import ParameterError


def self_configure(design: Mesh, known: MeshErrors) -> Mesh:
    """Return the settings that make a chip with known errors do what a design does without.

    Parameters
    ----------
    design : Mesh
        Settings of a perfect chip.
    known : MeshErrors
        The chip's errors, as calibrated. What was not measured is not corrected.

    Returns
    -------
    Mesh
        Settings; `result.matrix(known)` is `design.matrix()` where every interferometer can reach its split.

    Notes
    -----
    Each interferometer is corrected by itself: theta restores its split, phi and the phases it hands to
    the next column restore its phases. A split out of reach is set to the nearest one.

    References
    ----------
    S. Bandyopadhyay, R. Hamerly, D. Englund, "Hardware error correction for programmable photonics", Optica 8
    (2021) 1247 (arXiv:2103.04993).
    """
    blocks = mzi_matrix(design.theta_rad, design.phi_rad)
    left, settings = absorb(design.layout, blocks, np.ones(design.layout.modes, dtype=complex), errors=known)
    return Mesh(
        layout=design.layout,
        theta_rad=wrapped(settings[:, 0] - known.theta_rad),
        phi_rad=wrapped(settings[:, 1] - known.phi_rad),
        output_rad=wrapped(np.angle(left) + design.output_rad - known.output_rad),
    )


def unreachable_share(design: Mesh, errors: MeshErrors) -> float:
    """Return the share of interferometers whose split the couplers of a chip do not allow, 0 to 1."""
    if not design.layout.count:
        return 0.0
    low, high = bar_power_range(*errors.splitter_rad.T)
    bar = np.sin(design.theta_rad / 2.0) ** 2
    return float(np.mean((bar < low) | (bar > high)))


def matrix_error(actual: Complex, wanted: Complex) -> float:
    """Return the rms error of a row, norm(actual - wanted) / sqrt(N), dimensionless."""
    return float(np.linalg.norm(actual - wanted) / math.sqrt(len(wanted)))


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

    def __post_init__(self) -> None:
        check_range(self, "modes", low=1)
        check_range(self, "splitter_rad")

    @property
    def uncorrected(self) -> float:
        """Error of the design's own settings, sqrt(2 (N - 1)) s."""
        return math.sqrt(2.0 * (self.modes - 1)) * self.splitter_rad

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


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Count of settings that it takes to learn a chip's errors, once per chip.

    Notes
    -----
    A fringe A - B cos(theta + offset) has three unknowns. That of theta gives the offset and the sizes of
    a + b and a - b (`couplers_from_fringe`); those of phi, at two settings of theta, give its offset and
    the signs. Knowing the couplers thus costs one fringe per interferometer more than knowing the phases
    alone. Outputs are compared with the first.
    """

    fringe_points: int = 3
    """Settings per fringe, at least 3."""
    knows_couplers: bool = True
    """Whether the couplers are measured too, and not only the phases."""

    def __post_init__(self) -> None:
        if self.fringe_points != int(self.fringe_points) or self.fringe_points < 3:
            msg = f"Calibration: fringe_points must be whole and at least 3; got {self.fringe_points}"
            raise ParameterError(msg)

    def settings(self, layout: MeshLayout) -> int:
        """Return how many times shifters are set, one after the other."""
        fringes = (3 if self.knows_couplers else 2) * layout.count + layout.modes - 1
        return fringes * self.fringe_points

    def readings(self, layout: MeshLayout) -> int:
        """Return how many powers are read: both outputs of what is being set."""
        return 2 * self.settings(layout)

    def time_s(self, layout: MeshLayout, *, settling_s: float) -> float:
        """Return the time of a calibration whose readings wait for a shifter to settle.

        Parameters
        ----------
        layout : MeshLayout
            Positions.
        settling_s : float
            From a setting to a reading.
        """
        require("settling_s", settling_s, 0.0)
        return self.settings(layout) * settling_s


def couplers_from_fringe(theta_rad: ArrayLike, bar_power: ArrayLike) -> Real:
    """Return (abs(a + b), abs(a - b), phase offset), radian, from a fringe of one interferometer, shape (3,).

    Parameters
    ----------
    theta_rad : array_like
        Settings of theta, at least three that differ, spread over a turn.
    bar_power : array_like
        Share of the input's power that passes straight, 0 to 1.

    Notes
    -----
    Least squares of A - B cos(theta + offset), whose ends are A - B = sin^2(a + b) and A + B = cos^2(a -
    b). Noise that carries an end out of [0, 1] is cut.

    Raises
    ------
    ParameterError
        If fewer than three settings are given.
    """
    theta, power = np.asarray(theta_rad, dtype=float), np.asarray(bar_power, dtype=float)
    if theta.ndim != 1 or theta.shape != power.shape or len(theta) < 3:
        msg = f"a fringe needs at least 3 settings with a power each; got {theta.shape} and {power.shape}"
        raise ParameterError(msg)
    basis = np.stack([np.ones_like(theta), -np.cos(theta), np.sin(theta)], axis=-1)
    mean, cosine, sine = np.linalg.lstsq(basis, power, rcond=None)[0]
    swing = math.hypot(cosine, sine)
    low, high = np.clip([mean - swing, mean + swing], 0.0, 1.0)
    return np.array([math.asin(math.sqrt(low)), math.acos(math.sqrt(high)), math.atan2(sine, cosine)])
