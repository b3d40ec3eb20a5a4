"""Phases of a mesh in the conventions of other authors, and back.

What differs is where phases stand, not what is built: each convention here describes the same interferometers
in the same places, with another matrix per interferometer and its free phases at outputs or inputs.

Simulators that write row vectors (out = in U) use the transpose of a matrix here.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optical.transfer.elements import Complex, Real, mzi_matrix, wrapped
from optical.transfer.mesh import Mesh, MeshLayout, absorb, mesh_of_blocks, run_columns


class MziConvention(enum.Enum):
    """Convention of an author for one interferometer's two numbers."""

    CLEMENTS = "clements"
    """[[e^{i p} cos w, -sin w], [e^{i p} sin w, cos w]], phases at the outputs (Clements 2016, eq. 1)."""
    RECK = "reck"
    """[[e^{i p} sin w, e^{i p} cos w], [cos w, -sin w]], phases at the inputs (Reck 1994, eq. 1)."""
    SYMMETRIC = "symmetric"
    """Push-pull shifters: +w/2, -w/2 on the arms, +p/2, -p/2 at the inputs; phases at the outputs."""


def clements_matrix(angle_rad: ArrayLike, phase_rad: ArrayLike) -> Complex:
    """Return [[e^{i p} cos w, -sin w], [e^{i p} sin w, cos w]], shape (..., 2, 2).

    References
    ----------
    W. R. Clements et al., Optica 3 (2016) 1460 (arXiv:1603.08788), eq. 1.
    """
    w, turn = np.asarray(angle_rad, dtype=float), np.exp(1j * np.asarray(phase_rad, dtype=float))
    return _stacked(turn * np.cos(w), -np.sin(w), turn * np.sin(w), np.cos(w))


def reck_matrix(angle_rad: ArrayLike, phase_rad: ArrayLike) -> Complex:
    """Return [[e^{i p} sin w, e^{i p} cos w], [cos w, -sin w]], shape (..., 2, 2).

    References
    ----------
    M. Reck et al., Phys. Rev. Lett. 73 (1994) 58, eq. 1.
    """
    w, turn = np.asarray(angle_rad, dtype=float), np.exp(1j * np.asarray(phase_rad, dtype=float))
    return _stacked(turn * np.sin(w), turn * np.cos(w), np.cos(w), -np.sin(w))


def symmetric_matrix(angle_rad: ArrayLike, phase_rad: ArrayLike) -> Complex:
    """Return the matrix of an interferometer with push-pull shifters, of determinant 1, shape (..., 2, 2)."""
    w, p = np.asarray(angle_rad, dtype=float), np.asarray(phase_rad, dtype=float)
    return np.asarray(mzi_matrix(w, p) * np.exp(-0.5j * (w + p))[..., None, None])


def _stacked(m00: Complex, m01: Real | Complex, m10: Complex | Real, m11: Real) -> Complex:
    m00, m01, m10, m11 = np.broadcast_arrays(m00, m01, m10, m11)
    return np.stack([np.stack([m00, m01], axis=-1), np.stack([m10, m11], axis=-1)], axis=-2).astype(complex)


_MATRICES: dict[MziConvention, Callable[[ArrayLike, ArrayLike], Complex]] = {
    MziConvention.CLEMENTS: clements_matrix,
    MziConvention.RECK: reck_matrix,
    MziConvention.SYMMETRIC: symmetric_matrix,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class ConvertedMesh:
    """A mesh as another author would write it down."""

    layout: MeshLayout
    """Positions."""
    convention: MziConvention
    """What the two numbers mean."""
    angle_rad: Real
    """w of every interferometer, shape (count,)."""
    phase_rad: Real
    """p of every interferometer, shape (count,)."""
    screen_rad: Real
    """Phases at the inputs (Reck) or outputs (others), shape (modes,)."""

    def blocks(self) -> Complex:
        """Return the matrices of the interferometers, shape (count, 2, 2)."""
        return _MATRICES[self.convention](self.angle_rad, self.phase_rad)

    def matrix(self) -> Complex:
        """Return the matrix of the mesh, shape (modes, modes)."""
        core, screen = run_columns(self.layout, self.blocks()), np.exp(1j * self.screen_rad)
        return np.asarray(core * screen if self.convention is MziConvention.RECK else screen[:, None] * core)


def from_convention(mesh: ConvertedMesh) -> Mesh:
    """Return a mesh in the project's convention."""
    screen, ones = np.exp(1j * mesh.screen_rad), np.ones(mesh.layout.modes, dtype=complex)
    if mesh.convention is not MziConvention.RECK:
        return mesh_of_blocks(mesh.layout, mesh.blocks(), screen)
    left, settings = absorb(mesh.layout, mesh.blocks(), screen * ones)
    theta, phi = settings.T
    return Mesh(layout=mesh.layout, theta_rad=theta, phi_rad=phi, output_rad=wrapped(np.angle(left)))


def to_convention(mesh: Mesh, convention: MziConvention) -> ConvertedMesh:
    """Return a mesh in another convention; angles w in [0, pi/2] (symmetric: [0, pi]), phases in [0, 2 pi).

    Parameters
    ----------
    mesh : Mesh
        Mesh in the project's convention.
    convention : MziConvention
        Convention wanted.

    Notes
    -----
    With phases a, b on the inputs of an interferometer, and psi = phi + a - b,

        T(theta, phi) diag(e^{ia}, e^{ib}) = e^{i (b + theta/2 - pi/2)} Clements(pi/2 - theta/2, psi + pi)
                                           = e^{i (b + (theta + psi)/2)} Symmetric(theta, psi),

    and with phases a, b on its outputs

        diag(e^{ia}, e^{ib}) T(theta, phi)
            = e^{i (b + theta/2 + pi/2)} Reck(theta/2, a - b) diag(e^{i phi}, 1).
    """
    blocks = mzi_matrix(mesh.theta_rad, mesh.phi_rad)
    plain = mesh_of_blocks(mesh.layout, blocks, np.exp(1j * mesh.output_rad))
    backwards = convention is MziConvention.RECK
    screen = plain.output_rad.copy() if backwards else np.zeros(mesh.layout.modes)
    phase = np.zeros(mesh.layout.count)
    columns = mesh.layout.slices[::-1] if backwards else mesh.layout.slices
    for where, modes in columns:
        theta, phi, pair = plain.theta_rad[where], plain.phi_rad[where], screen[modes].reshape(-1, 2)
        lead = pair[:, 0] - pair[:, 1]
        if backwards:
            phase[where] = wrapped(lead)
            common = pair[:, 1] + theta / 2.0 + math.pi / 2.0
            screen[modes] = np.stack([common + phi, common], axis=-1).reshape(-1)
            continue
        psi = wrapped(phi + lead)
        if convention is MziConvention.CLEMENTS:
            phase[where], common = wrapped(psi + math.pi), pair[:, 1] + theta / 2.0 - math.pi / 2.0
        else:
            phase[where], common = psi, pair[:, 1] + (theta + psi) / 2.0
        screen[modes] = np.repeat(common, 2)
    angles = {
        MziConvention.CLEMENTS: math.pi / 2.0 - plain.theta_rad / 2.0,
        MziConvention.RECK: plain.theta_rad / 2.0,
        MziConvention.SYMMETRIC: plain.theta_rad,
    }
    return ConvertedMesh(
        layout=mesh.layout,
        convention=convention,
        angle_rad=angles[convention],
        phase_rad=phase,
        screen_rad=wrapped(screen if backwards else screen + plain.output_rad),
    )
