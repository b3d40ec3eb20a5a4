"""Field transfer of single parts, in SI and over arrays of wavelength, from which circuits are built.

Fields advance as exp(+i 2 pi n L / wavelength). A coupler of angle eta passes cos(eta) and crosses
i sin(eta): its power coupling is sin^2(eta).

A guided mode and a coupler's dispersion are read from a table.

This file also holds the convention for a Mach-Zehnder interferometer, and the setting of an imperfect one.
An interferometer is a phase shifter `phi` on the upper input, a coupler, a phase shifter `theta` on the upper
arm, and a coupler. Fields are column vectors, out = T in, with the upper waveguide first:

    T(theta, phi) = C(pi/4 + b) diag(e^{i theta}, 1) C(pi/4 + a) diag(e^{i phi}, 1),
    C(eta) = [[cos eta, i sin eta], [i sin eta, cos eta]].

With perfect couplers (a = b = 0) this is

    T(theta, phi) = i e^{i theta/2} [[e^{i phi} sin(theta/2),  cos(theta/2)],
                                     [e^{i phi} cos(theta/2), -sin(theta/2)]]:

theta = 0 crosses, theta = pi passes straight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optical.devices.parts import Named
from simulator.errors import ParameterError, Positive
from simulator.tables import Table, read_table
from simulator.units import ratio_from_db


@cache
def transfer_table() -> Table:
    """Return the table of optical constants that ships with the package."""
    return read_table(Path(__file__).parents[1] / "parameters" / "transfer.csv")


@dataclass(frozen=True, kw_only=True)
class GuidedMode(Named):
    """Mode of a waveguide, its index linear in wavelength around a reference."""

    wavelength_m: Positive
    """Reference wavelength in vacuum."""
    effective_index: Positive
    """Phase index at the reference, dimensionless."""
    group_index: Positive
    """Group index at the reference, dimensionless."""
    thermo_optic_per_k: float
    """Change of the effective index with temperature."""


@dataclass(frozen=True, kw_only=True)
class HalfCoupler(Named):
    """Directional coupler that divides evenly at its reference wavelength."""

    dispersion: float
    """Exponent of the coupling angle over wavelength, dimensionless."""


@cache
def silicon_strip() -> GuidedMode:
    """Return the guided mode of the default platform."""
    return transfer_table().build(GuidedMode, "si_strip")


Complex = NDArray[np.complex128]
Real = NDArray[np.float64]


def require(name: str, value: ArrayLike, low: float, high: float = math.inf) -> None:
    """Check that a number, or every number of an array, is finite and lies in a range.

    Parameters
    ----------
    name : str
        Name of the number in the message.
    value : array_like
        Number or array.
    low, high : float
        Inclusive ends.

    Raises
    ------
    ParameterError
        Naming the number, the first value that breaks the rule, and the rule.
    """
    values = np.atleast_1d(np.asarray(value, dtype=float))
    bad = ~np.isfinite(values) | (values < low) | (values > high)
    if bad.any():
        rule = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
        msg = f"{name} must be finite and {rule}; got {values[bad][0]:g}"
        raise ParameterError(msg)


def amplitude(loss_db: ArrayLike) -> Real:
    """Return the field that is left after a loss, 10^(-loss/20).

    Parameters
    ----------
    loss_db : array_like
        Loss, not negative.
    """
    require("a loss in dB", loss_db, 0.0)
    return np.asarray(ratio_from_db(-0.5 * np.asarray(loss_db, dtype=float)))


def propagation(
    mode: GuidedMode,
    wavelength_m: ArrayLike,
    length_m: float,
    *,
    loss_db_per_m: float = 0.0,
    rise_k: float = 0.0,
) -> Complex:
    """Return the field after a waveguide, amplitude and phase, of the shape of `wavelength_m`.

    Parameters
    ----------
    mode : GuidedMode
        Indices of the waveguide.
    wavelength_m : array_like
        Wavelength in vacuum.
    length_m : float
        Length, not negative.
    loss_db_per_m : float
        Propagation loss, not negative.
    rise_k : float
        Temperature above that of the reference.

    Notes
    -----
    The effective index is n = n_0 - (n_g - n_0)(wavelength - wavelength_0)/wavelength_0 + (dn/dT) rise, first
    order in wavelength: the group index is exact at the reference and group-velocity dispersion is left out.
    """
    require("length_m", length_m, 0.0)
    require("loss_db_per_m", loss_db_per_m, 0.0)
    wavelength = np.asarray(wavelength_m, dtype=float)
    offset = wavelength / mode.wavelength_m - 1.0
    index = mode.effective_index - (mode.group_index - mode.effective_index) * offset
    phase = 2.0 * math.pi * (index + mode.thermo_optic_per_k * rise_k) * length_m / wavelength
    return np.asarray(amplitude(loss_db_per_m * length_m) * np.exp(1j * phase))


def coupler_angle(
    coupling: float, wavelength_ratio: ArrayLike, *, error_rad: float = 0.0, dispersion: float = 0.0
) -> Real:
    """Return the angle of a coupler, radian.

    Parameters
    ----------
    coupling : float
        Power coupled across at the reference wavelength without error, 0 to 1.
    wavelength_ratio : array_like
        Wavelength over the reference wavelength.
    error_rad : float
        Error of the angle at the reference; the splitting ratio of a 50:50 coupler moves by sin(2 error) / 2.
    dispersion : float
        Exponent of the angle over wavelength.
    """
    require("coupling", coupling, 0.0, 1.0)
    angle = math.asin(math.sqrt(coupling)) + error_rad
    return np.asarray(angle * np.asarray(wavelength_ratio, dtype=float) ** dispersion)


def coupler_matrix(angle_rad: ArrayLike) -> Complex:
    """Return [[cos, i sin], [i sin, cos]] of an angle, shape (..., 2, 2)."""
    angle = np.asarray(angle_rad, dtype=float)
    matrix = np.empty((*angle.shape, 2, 2), dtype=complex)
    matrix[..., 0, 0] = matrix[..., 1, 1] = np.cos(angle)
    matrix[..., 0, 1] = matrix[..., 1, 0] = 1j * np.sin(angle)
    return matrix


def all_pass_ring(round_trip: ArrayLike, angle_rad: ArrayLike) -> Complex:
    """Return the field past a ring on one bus.

    Parameters
    ----------
    round_trip : array_like of complex
        Field after one turn, a exp(i phase).
    angle_rad : array_like
        Angle of the coupler between bus and ring.

    Notes
    -----
    t = (r - a e^{i phase}) / (1 - r a e^{i phase}), r = cos(angle). On resonance it vanishes at critical
    coupling, r = a.

    References
    ----------
    W. Bogaerts et al., "Silicon microring resonators", Laser Photonics Rev. 6 (2012) 47, eq. 1.
    """
    turn = np.asarray(round_trip, dtype=complex)
    passing = np.cos(np.asarray(angle_rad, dtype=float))
    return np.asarray((passing - turn) / (1.0 - passing * turn))


def add_drop_ring(half_turn: ArrayLike, first_rad: ArrayLike, second_rad: ArrayLike) -> Complex:
    """Return the transfer of a ring between two buses, shape (..., 2, 2).

    Parameters
    ----------
    half_turn : array_like of complex
        Field after half a turn, from one coupler to the other; both halves are alike.
    first_rad, second_rad : array_like
        Angles of the couplers of the first and of the second bus.

    Returns
    -------
    numpy.ndarray
        Rows (through, drop), columns (input, add).

    Notes
    -----
    With turn = half_turn^2: through = (r1 - r2 turn) / (1 - r1 r2 turn), drop = -k1 k2 half_turn / (1 -
    r1 r2 turn).

    References
    ----------
    W. Bogaerts et al., "Silicon microring resonators", Laser Photonics Rev. 6 (2012) 47, whose
    intensities of the ring between two buses are the squares of these fields.
    """
    half = np.asarray(half_turn, dtype=complex)
    first, second = np.asarray(first_rad, dtype=float), np.asarray(second_rad, dtype=float)
    r1, r2, turn = np.cos(first), np.cos(second), half * half
    drop = -np.sin(first) * np.sin(second) * half
    below = 1.0 - r1 * r2 * turn
    matrix = np.empty((*below.shape, 2, 2), dtype=complex)
    matrix[..., 0, 0] = (r1 - r2 * turn) / below
    matrix[..., 1, 1] = (r2 - r1 * turn) / below
    matrix[..., 0, 1] = matrix[..., 1, 0] = drop / below
    return matrix


def wrapped(angle_rad: ArrayLike) -> Real:
    """Return angles in [0, 2 pi)."""
    turned = np.mod(np.asarray(angle_rad, dtype=float), 2.0 * math.pi)
    return np.where(turned >= 2.0 * math.pi, 0.0, turned)


def mzi_matrix(
    theta_rad: ArrayLike, phi_rad: ArrayLike, first_rad: ArrayLike = 0.0, second_rad: ArrayLike = 0.0
) -> Complex:
    """Return the matrix of interferometers, shape (..., 2, 2).

    Parameters
    ----------
    theta_rad, phi_rad : array_like
        Phases between the couplers and at the upper input; imaginary parts are losses of the field in neper.
    first_rad, second_rad : array_like
        Errors a and b of the angles of the first and the second coupler from pi/4.
    """
    first = math.pi / 4.0 + np.asarray(first_rad, dtype=float)
    second = math.pi / 4.0 + np.asarray(second_rad, dtype=float)
    arm = np.exp(1j * np.asarray(theta_rad))
    entry = np.exp(1j * np.asarray(phi_rad))
    c1, s1, c2, s2 = np.cos(first), np.sin(first), np.cos(second), np.sin(second)
    rows = (
        ((c1 * c2 * arm - s1 * s2) * entry, 1j * (s1 * c2 * arm + c1 * s2)),
        (1j * (c1 * s2 * arm + s1 * c2) * entry, c1 * c2 - s1 * s2 * arm),
    )
    matrix = np.empty((*np.broadcast_shapes(rows[0][0].shape, rows[0][1].shape), 2, 2), dtype=complex)
    for i, row in enumerate(rows):
        for j, entry_ij in enumerate(row):
            matrix[..., i, j] = entry_ij
    return matrix


def settle(target: Complex, first_rad: ArrayLike = 0.0, second_rad: ArrayLike = 0.0) -> tuple[Complex, Real]:
    """Return the phases with which interferometers come nearest to unitary matrices, up to output phases.

    Parameters
    ----------
    target : numpy.ndarray
        Unitary matrices, shape (..., 2, 2).
    first_rad, second_rad : array_like
        Errors of the couplers, broadcast against the leading shape of `target`.

    Returns
    -------
    phases : numpy.ndarray
        e^{i angle} of the phases left at the upper and the lower output, shape (..., 2).
    settings : numpy.ndarray
        (theta, phi) in radian, in [0, 2 pi), shape (..., 2).

    Notes
    -----
    target = diag(phases) T(theta, phi). With sin u = abs(target[0, 0]),

        sin^2(theta/2) = sin(u + a + b) sin(u - a - b) / (cos 2a cos 2b),
        cos^2(theta/2) = [cos^2 u - sin^2(a - b)] / (cos 2a cos 2b),

    of which a negative one is set to zero: the split is then the nearest that the couplers allow. The phases
    follow from comparing entries; of two with the same information, the larger is used.

    References
    ----------
    S. Bandyopadhyay, R. Hamerly, D. Englund, Optica 8 (2021) 1247 (arXiv:2103.04993), local correction.
    """
    first, second = np.asarray(first_rad, dtype=float), np.asarray(second_rad, dtype=float)
    bar, cross = np.abs(target[..., 0, 0]), np.abs(target[..., 0, 1])
    split = np.arctan2(bar, cross)
    total, difference = first + second, first - second
    straight = np.sin(split + total) * np.sin(split - total)
    crossed = np.cos(split + difference) * np.cos(split - difference)
    theta = 2.0 * np.arctan2(np.sqrt(np.maximum(straight, 0.0)), np.sqrt(np.maximum(crossed, 0.0)))
    wanted = target * np.conj(mzi_matrix(theta, 0.0, first, second))
    phi = np.angle(wanted[..., 0, 0] * np.conj(wanted[..., 0, 1]))
    passing = bar >= cross
    upper = np.where(passing, np.angle(wanted[..., 0, 0]) - phi, np.angle(wanted[..., 0, 1]))
    lower = np.where(passing, np.angle(wanted[..., 1, 1]), np.angle(wanted[..., 1, 0]) - phi)
    phases = np.exp(1j * np.stack([upper, lower], axis=-1))
    return phases, np.stack([wrapped(theta), wrapped(phi)], axis=-1)
