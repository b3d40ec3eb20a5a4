"""Phases of a mesh from a unitary matrix, by nulling one element after the other in place.

Each nulling is one plane rotation of two neighbouring columns or rows (LAPACK's `zrot`), so a decomposition
costs O(N^3); multiplying a whole matrix per interferometer would cost O(N^5).

A mesh whose couplers are known to be wrong can be set so that its error grows with their
square, not with them.

Any other matrix takes two meshes around a row of attenuators, by singular value decomposition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from optical.transfer.elements import Complex, Real, mzi_matrix, wrapped
from optical.transfer.mesh import Index, Mesh, MeshErrors, MeshLayout, MeshShape, absorb, mesh_of_blocks
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
    left, settings = absorb(design.layout, blocks, known)
    return Mesh(
        layout=design.layout,
        theta_rad=wrapped(settings[:, 0] - known.theta_rad),
        phi_rad=wrapped(settings[:, 1] - known.phi_rad),
        output_rad=wrapped(np.angle(left) + design.output_rad - known.output_rad),
    )


def matrix_error(actual: Complex, wanted: Complex) -> float:
    """Return the rms error of a row, norm(actual - wanted) / sqrt(N), dimensionless."""
    return float(np.linalg.norm(actual - wanted) / math.sqrt(len(wanted)))


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


_UNITARY_TOLERANCE = 1e-8


def decompose(unitary: Complex, shape: MeshShape = MeshShape.CLEMENTS) -> Mesh:
    """Return the mesh that makes a unitary matrix, with all phases in [0, 2 pi).

    Parameters
    ----------
    unitary : numpy.ndarray
        Real or complex unitary matrix, shape (N, N), N >= 1.
    shape : MeshShape
        Rectangle or triangle.

    Raises
    ------
    ParameterError
        If the matrix is not square or not unitary.

    Notes
    -----
    Nulling gives L U R = D, so U = L^-1 D R^-1; each rotation then becomes an interferometer, column by
    column, and the phases that this leaves (D among them) travel on to the outputs.

    References
    ----------
    W. R. Clements et al., Optica 3 (2016) 1460 (arXiv:1603.08788), algorithm 1; M. Reck et al., Phys.
    Rev. Lett. 73 (1994) 58.
    """
    work = np.array(unitary, dtype=complex, order="C")
    if work.ndim != 2 or work.shape[0] != work.shape[1] or not work.size:
        msg = f"a mesh makes square matrices; got shape {work.shape}"
        raise ParameterError(msg)
    n = len(work)
    gap = float(np.abs(work.conj().T @ work - np.eye(n)).max())
    if not gap <= _UNITARY_TOLERANCE:
        msg = f"a mesh makes unitary matrices; U^H U differs from 1 by {gap:g}; "
        msg += "program any other matrix with program_weight"
        raise ParameterError(msg)
    layout = MeshLayout(modes=n, shape=shape)
    right, left = _null_clements(work) if shape is MeshShape.CLEMENTS else _null_reck(work)
    diagonal = np.diagonal(work)
    blocks = np.zeros((layout.count, 2, 2), dtype=complex)
    _place(layout, right, blocks)
    behind = _place(layout, left, blocks)
    output = _insert(layout, behind, diagonal / np.abs(diagonal), blocks)
    return mesh_of_blocks(layout, blocks, output)


_Rotations = list[tuple[int, int, float, complex]]
"""Column and upper waveguide of each rotation in the mesh, c and s of its inverse [[c, s], [-s*, c]]."""


def _place(layout: MeshLayout, made: _Rotations, blocks: Complex) -> Index:
    """Put rotations on their interferometers; return the numbers of these."""
    if not made:
        return np.empty(0, dtype=np.int64)
    column, upper, cosine, sine = (np.array(each) for each in zip(*made, strict=True))
    numbers = layout.number(column, upper)
    blocks[numbers, 0, 0] = blocks[numbers, 1, 1] = cosine
    blocks[numbers, 0, 1] = sine
    blocks[numbers, 1, 0] = -sine.conj()
    return np.sort(numbers)


def _pivot(kept: complex, nulled: complex) -> tuple[float, complex]:
    """Return cosine and the factor q with cosine * nulled + q * kept = 0 and cosine^2 + abs(q)^2 = 1."""
    size = abs(kept)
    if size == 0.0:
        return (1.0, 0.0j) if nulled == 0.0 else (0.0, 1.0 + 0.0j)
    length = float(np.hypot(size, abs(nulled)))
    return size / length, -nulled * (kept.conjugate() / size) / length


def _insert(layout: MeshLayout, behind: Index, phases: Complex, blocks: Complex) -> Complex:
    """Put phases on waveguides before some interferometers; return those of waveguides that meet none."""
    first = np.full(layout.modes, -1, dtype=np.int64)
    pairs = layout.upper[behind][:, None] + np.arange(2)
    # of several assignments to a waveguide the last stands, so the order is turned round
    first[pairs[::-1].reshape(-1)] = np.repeat(behind[::-1], 2)
    met = np.flatnonzero(first >= 0)
    blocks[first[met], :, met - layout.upper[first[met]]] *= phases[met][:, None]
    return np.where(first >= 0, 1.0 + 0.0j, phases)


def _null_by_columns(work: Complex, row: int, column: int, depth: int, made: _Rotations) -> None:
    """Null work[row, column] by rotating columns `column` and `column` + 1; rows below are zero in both."""
    n, flat = len(work), work.reshape(-1)
    at = row * n + column
    cosine, sine = _pivot(flat.item(at + 1), flat.item(at))
    scipy.linalg.lapack.zrot(
        flat, flat, cosine, sine, n=row + 1, offx=column, incx=n, offy=column + 1, incy=n,
        overwrite_x=1, overwrite_y=1,
    )  # fmt: skip
    # columns: (x', y') = (x, y) G with G = [[c, -s*], [s, c]], so the mesh needs G^-1 = [[c, s*], [-s, c]]
    made.append((depth, column, cosine, sine.conjugate()))


def _null_by_rows(work: Complex, row: int, column: int, depth: int, made: _Rotations) -> None:
    """Null work[row, column] by rotating rows `row` - 1 and `row`; columns to the left are zero in both."""
    n, flat = len(work), work.reshape(-1)
    at = row * n + column
    cosine, factor = _pivot(flat.item(at - n), flat.item(at))
    sine = -factor.conjugate()
    scipy.linalg.lapack.zrot(
        flat, flat, cosine, sine, n=n - column, offx=at - n, incx=1, offy=at, incy=1,
        overwrite_x=1, overwrite_y=1,
    )  # fmt: skip
    # rows: (x', y') = G (x, y) with G = [[c, s], [-s*, c]], so the mesh needs G^-1 = [[c, -s], [s*, c]]
    made.append((depth, row - 1, cosine, -sine))


def _null_clements(work: Complex) -> tuple[_Rotations, _Rotations]:
    right: _Rotations = []
    left: _Rotations = []
    n = len(work)
    for diagonal in range(n - 1):
        for step in range(diagonal + 1):
            if diagonal % 2 == 0:
                _null_by_columns(work, n - 1 - step, diagonal - step, step, right)
            else:
                _null_by_rows(work, n - 1 - diagonal + step, step, n - 1 - step, left)
    return right, left


def _null_reck(work: Complex) -> tuple[_Rotations, _Rotations]:
    right: _Rotations = []
    n = len(work)
    for line in range(n - 1):
        for step in range(n - 1 - line):
            _null_by_columns(work, n - 1 - line, step, 2 * line + step, right)
    return right, []


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
