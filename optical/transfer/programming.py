"""Any matrix on passive optics: two meshes around a row of attenuators, by singular value decomposition."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from optical.transfer.decomposition import decompose
from optical.transfer.elements import Complex, Real
from optical.transfer.imperfections import MeshErrors
from optical.transfer.layout import MeshShape
from optical.transfer.mesh import Mesh
from optical.transfer.selfconfiguration import self_configure
from simulator.errors import ParameterError


@dataclass(frozen=True, kw_only=True, eq=False)
class ProgrammedWeight:
    """A weight as light meets it: a mesh over its columns, attenuators, a mesh over its rows.

    Notes
    -----
    weight = scale * rows . diag(attenuation) . columns. The optics carry weight / scale, whose largest
    singular value is 1; the scale is multiplied back behind the detectors.
    """

    rows: Mesh
    """Mesh at the output, one waveguide per row of the weight."""
    columns: Mesh
    """Mesh at the input, one waveguide per column of the weight."""
    attenuation: Real
    """Field transmissions between them, 0 to 1, falling, shape (min(rows, columns),)."""
    scale: float
    """Largest singular value of the weight, in the weight's unit."""

    @property
    def interferometers(self) -> int:
        """Interferometers of both meshes, and one per attenuator."""
        return self.rows.layout.count + self.columns.layout.count + len(self.attenuation)

    @property
    def depth(self) -> int:
        """Interferometers on the longest way."""
        return self.rows.layout.depth + self.columns.layout.depth + 1

    def attenuator_rad(self) -> Real:
        """Return theta of interferometers that pass the attenuations straight, sin(theta/2) = attenuation."""
        return np.asarray(2.0 * np.arcsin(self.attenuation))

    def transfer(
        self,
        rows_errors: MeshErrors | None = None,
        columns_errors: MeshErrors | None = None,
        *,
        loss_db: float = 0.0,
    ) -> Complex:
        """Return what the optics do, without the scale, shape (rows, columns).

        Parameters
        ----------
        rows_errors, columns_errors : MeshErrors, optional
            Errors of the two meshes.
        loss_db : float
            Loss of one interferometer of the meshes.
        """
        left = self.rows.matrix(rows_errors, loss_db=loss_db)
        right = self.columns.matrix(columns_errors, loss_db=loss_db)
        rank = len(self.attenuation)
        return np.asarray((left[:, :rank] * self.attenuation) @ right[:rank])

    def self_configured(self, rows_known: MeshErrors, columns_known: MeshErrors) -> ProgrammedWeight:
        """Return the settings that make up for what is known of the errors of the two meshes."""
        rows, columns = self_configure(self.rows, rows_known), self_configure(self.columns, columns_known)
        return dataclasses.replace(self, rows=rows, columns=columns)

    def matrix(self) -> Complex:
        """Return the weight that comes out on perfect optics, shape (rows, columns)."""
        return np.asarray(self.scale * self.transfer())


def program_weight(weight: Complex | Real, shape: MeshShape = MeshShape.CLEMENTS) -> ProgrammedWeight:
    """Return the settings that put a weight on passive optics.

    Parameters
    ----------
    weight : numpy.ndarray
        Real or complex matrix, shape (rows, columns), neither zero.
    shape : MeshShape
        Rectangle or triangle, for both meshes.

    Raises
    ------
    ParameterError
        If the weight is not a matrix of finite numbers.

    References
    ----------
    D. A. B. Miller, "Self-configuring universal linear optical component", Photon. Res. 1 (2013) 1.
    """
    values = np.asarray(weight)
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        msg = f"a weight must be a matrix of finite numbers; got shape {values.shape}"
        raise ParameterError(msg)
    left, singular, right = np.linalg.svd(values)
    scale = float(singular[0])
    attenuation = np.minimum(singular / scale, 1.0) if scale > 0.0 else singular
    return ProgrammedWeight(
        rows=decompose(left, shape), columns=decompose(right, shape), attenuation=attenuation, scale=scale
    )
