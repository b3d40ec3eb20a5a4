"""The one convention for a Mach-Zehnder interferometer, and how to set one that is not perfect.

An interferometer is a phase shifter `phi` on the upper input, a coupler, a phase shifter `theta` on the upper
arm, and a coupler. Fields are column vectors, out = T in, with the upper waveguide first:

    T(theta, phi) = C(pi/4 + b) diag(e^{i theta}, 1) C(pi/4 + a) diag(e^{i phi}, 1),
    C(eta) = [[cos eta, i sin eta], [i sin eta, cos eta]].

With perfect couplers (a = b = 0) this is

    T(theta, phi) = i e^{i theta/2} [[e^{i phi} sin(theta/2),  cos(theta/2)],
                                     [e^{i phi} cos(theta/2), -sin(theta/2)]]:

theta = 0 crosses, theta = pi passes straight. Other conventions stand in `optical.transfer.conventions`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from optical.transfer.elements import Complex, Real


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


def bar_power_range(first_rad: ArrayLike, second_rad: ArrayLike) -> tuple[Real, Real]:
    """Return the least and the greatest share of power that can pass straight, each 0 to 1.

    Notes
    -----
    sin^2(a + b) and cos^2(a - b); outside of them no phase helps.

    References
    ----------
    S. Bandyopadhyay, R. Hamerly, D. Englund, Optica 8 (2021) 1247 (arXiv:2103.04993), the range of theta.
    """
    first, second = np.asarray(first_rad, dtype=float), np.asarray(second_rad, dtype=float)
    return np.sin(first + second) ** 2, np.cos(first - second) ** 2


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

    of which a negative one is put to zero: the split is then the nearest that the couplers allow. The phases
    follow from comparing entries; of two that tell the same, the larger is read.

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
