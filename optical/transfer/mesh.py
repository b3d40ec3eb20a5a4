"""A mesh of interferometers with its phases, and the matrix that it and its errors make."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optical.transfer.elements import Complex, Real, amplitude
from optical.transfer.imperfections import MeshErrors
from optical.transfer.layout import MeshLayout
from optical.transfer.mzi import mzi_matrix, settle, wrapped
from simulator.errors import ParameterError


@dataclass(frozen=True, kw_only=True, eq=False)
class Mesh:
    """Interferometers in a layout, then one phase shifter on every output.

    Notes
    -----
    U = diag(e^{i output}) T_last ... T_first, each interferometer as in `optical.transfer.mzi`.
    """

    layout: MeshLayout
    """Positions."""
    theta_rad: Real
    """Phases between the couplers, shape (count,)."""
    phi_rad: Real
    """Phases at the upper inputs, shape (count,)."""
    output_rad: Real
    """Phases at the outputs, shape (modes,)."""

    def __post_init__(self) -> None:
        sizes = {
            "theta_rad": self.layout.count,
            "phi_rad": self.layout.count,
            "output_rad": self.layout.modes,
        }
        for name, size in sizes.items():
            value = np.array(getattr(self, name), dtype=float)
            if value.shape != (size,) or not np.isfinite(value).all():
                msg = f"Mesh: {name} must be {size} finite phases for {self.layout.modes} modes; "
                msg += f"got shape {value.shape}" + ("" if value.shape != (size,) else " with others")
                raise ParameterError(msg)
            value.flags.writeable = False
            object.__setattr__(self, name, value)

    def matrix(
        self,
        errors: MeshErrors | None = None,
        *,
        loss_db: float = 0.0,
        wavelength_ratio: ArrayLike = 1.0,
        dispersion: float = 0.0,
    ) -> Complex:
        """Return the matrix from inputs to outputs, shape (..., modes, modes).

        Parameters
        ----------
        errors : MeshErrors, optional
            What the chip adds to angles and phases; nothing if not given.
        loss_db : float
            Loss of one interferometer, on each of its paths. Waveguides that pass a column by lose nothing.
        wavelength_ratio : array_like
            Wavelength over that at which the phases hold; phases scale with its inverse.
        dispersion : float
            Exponent of the couplers' angles over wavelength.
        """
        ratio = np.asarray(wavelength_ratio, dtype=float)
        off = errors_of(self.layout, errors)
        eta = (math.pi / 4.0 + off.splitter_rad) * ratio[..., None, None] ** dispersion - math.pi / 4.0
        inverse = 1.0 / ratio[..., None]
        blocks = amplitude(loss_db) * mzi_matrix(
            (self.theta_rad + off.theta_rad) * inverse,
            (self.phi_rad + off.phi_rad) * inverse,
            eta[..., 0],
            eta[..., 1],
        )
        fields = run_columns(self.layout, blocks)
        return np.asarray(np.exp(1j * (self.output_rad + off.output_rad) * inverse)[..., None] * fields)


def errors_of(layout: MeshLayout, errors: MeshErrors | None) -> MeshErrors:
    """Return the errors of a chip, checked against its layout; none if none are given."""
    if errors is None:
        return MeshErrors.none(layout)
    if np.shape(errors.theta_rad) != (layout.count,) or np.shape(errors.output_rad) != (layout.modes,):
        msg = f"errors are those of a mesh of {len(errors.output_rad)} modes and {len(errors.theta_rad)} "
        msg += f"interferometers, this one has {layout.modes} and {layout.count}; draw them from its layout"
        raise ParameterError(msg)
    return errors


def run_columns(layout: MeshLayout, blocks: Complex) -> Complex:
    """Return the product of interferometers in the order of the layout.

    Parameters
    ----------
    layout : MeshLayout
        Positions.
    blocks : numpy.ndarray
        Their matrices, shape (..., count, 2, 2).

    Returns
    -------
    numpy.ndarray
        Shape (..., modes, modes); one batched product per column, so O(modes^3).
    """
    lead, n = blocks.shape[:-3], layout.modes
    fields = np.zeros((*lead, n, n), dtype=complex)
    fields[...] = np.eye(n)
    for numbers, modes in layout.slices:
        pairs = fields[..., modes, :].reshape((*lead, -1, 2, n))
        fields[..., modes, :] = (blocks[..., numbers, :, :] @ pairs).reshape((*lead, -1, n))
    return fields


def absorb(
    layout: MeshLayout,
    blocks: Complex,
    phases: Complex,
    errors: MeshErrors | None = None,
) -> tuple[Complex, Real]:
    """Set interferometers to given 2x2 unitary matrices, handing what a setting cannot do to the next column.

    Parameters
    ----------
    layout : MeshLayout
        Positions.
    blocks : numpy.ndarray
        Wanted matrices, shape (count, 2, 2).
    phases : numpy.ndarray
        e^{i angle} that stands on each waveguide before the first column, shape (modes,).
    errors : MeshErrors, optional
        Coupler errors that the setting makes up for.

    Returns
    -------
    phases : numpy.ndarray
        e^{i angle} left on each waveguide behind the last column, shape (modes,).
    settings : numpy.ndarray
        (theta, phi), radian, shape (count, 2).
    """
    off = errors_of(layout, errors)
    carried, settings = phases.copy(), np.zeros((layout.count, 2))
    for where, modes in layout.slices:
        target = blocks[where] * carried[modes].reshape(-1, 1, 2)
        left, settings[where] = settle(target, *off.splitter_rad[where].T)
        carried[modes] = left.reshape(-1)
    return carried, settings


def mesh_of_blocks(layout: MeshLayout, blocks: Complex, output: Complex) -> Mesh:
    """Return the mesh whose interferometers have given 2x2 unitary matrices, followed by output phases.

    Parameters
    ----------
    layout : MeshLayout
        Positions.
    blocks : numpy.ndarray
        Matrices, shape (count, 2, 2).
    output : numpy.ndarray
        e^{i angle} at the outputs, shape (modes,).
    """
    left, settings = absorb(layout, blocks, np.ones(layout.modes, dtype=complex))
    return Mesh(
        layout=layout,
        theta_rad=settings[:, 0],
        phi_rad=settings[:, 1],
        output_rad=wrapped(np.angle(left * output)),
    )
