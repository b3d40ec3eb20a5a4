"""A mesh of interferometers (the rectangle of Clements, the triangle of Reck), its matrix, and its phases.

Fabrication adds errors to a mesh's design: coupler angles that are off, and phases that are off. A mesh whose
couplers are known to be wrong can be set so that its error grows with their square, not with them.
Simulators that write row vectors (out = in U) use the transpose of a matrix here.

Phases of a unitary matrix are found by nulling one element after the other in place. Each nulling is one
plane rotation of two neighbouring columns or rows (LAPACK's `zrot`), so a decomposition costs O(N^3);
multiplying a whole matrix per interferometer would cost O(N^5). Any other matrix takes two meshes around a
row of attenuators, by singular value decomposition.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from optical.transfer.elements import Complex, Real, amplitude, mzi_matrix, require, settle, wrapped
from simulator.errors import ParameterError

Index = NDArray[np.int64]


class MeshShape(enum.Enum):
    """Arrangement of interferometers that reaches every unitary matrix."""

    CLEMENTS = "clements"
    RECK = "reck"


@dataclass(frozen=True, kw_only=True)
class MeshLayout:
    """Positions of the interferometers of a mesh, in the order in which light meets them.

    Notes
    -----
    Interferometers are numbered column by column from the input, within a column from the top. Both shapes
    have N (N - 1) / 2 of them; the rectangle is N columns deep, the triangle 2 N - 3.

    References
    ----------
    W. R. Clements et al., Optica 3 (2016) 1460 (arXiv:1603.08788), fig. 1; M. Reck et al., Phys. Rev.
    Lett. 73 (1994) 58.
    """

    modes: int
    """Waveguides."""
    shape: MeshShape = MeshShape.CLEMENTS
    """Rectangle or triangle."""

    def __post_init__(self) -> None:
        if isinstance(self.modes, bool) or not isinstance(self.modes, int | np.integer) or self.modes < 1:
            msg = f"MeshLayout: modes must be a whole number of at least 1; got {self.modes!r}"
            raise ParameterError(msg)

    @cached_property
    def _columns(self) -> tuple[tuple[int, int], ...]:
        """First upper waveguide and number of interferometers of every column that has any."""
        n = self.modes
        if self.shape is MeshShape.CLEMENTS:
            found = ((column % 2, (n - column % 2) // 2) for column in range(n))
        else:
            # row k of the triangle, nearest the input first, puts one at waveguide j in column 2 k + j
            found = ((c % 2, 1 + (min(c, 2 * n - 4 - c) - c % 2) // 2) for c in range(2 * n - 3))
        return tuple((first, count) for first, count in found if count > 0)

    @property
    def count(self) -> int:
        """Interferometers."""
        return self.modes * (self.modes - 1) // 2

    @property
    def depth(self) -> int:
        """Number of columns: interferometers on the longest path."""
        return len(self._columns)

    @cached_property
    def slices(self) -> tuple[tuple[slice, slice], ...]:
        """Slices, for each column, of its interferometers and of the waveguides that they join."""
        found, start = [], 0
        for first, count in self._columns:
            found.append((slice(start, start + count), slice(first, first + 2 * count)))
            start += count
        return tuple(found)

    @cached_property
    def upper(self) -> Index:
        """Upper waveguide of every interferometer, shape (count,)."""
        tops = [np.arange(first, first + 2 * count, 2) for first, count in self._columns]
        return np.concatenate([*tops, np.zeros(0, dtype=np.int64)]).astype(np.int64)

    @cached_property
    def column(self) -> Index:
        """Column of every interferometer, shape (count,)."""
        counts = [count for _, count in self._columns]
        return np.repeat(np.arange(self.depth), counts).astype(np.int64)

    def number(self, column: Index, upper: Index) -> Index:
        """Return the numbers of the interferometers at given columns and upper waveguides."""
        starts = np.array([0, *(where.stop for where, _ in self.slices)], dtype=np.int64)
        firsts = np.array([modes.start for _, modes in self.slices], dtype=np.int64)
        return np.asarray(starts[column] + (upper - firsts[column]) // 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeshErrors:
    """Errors of one chip: drawn once, the same for every use."""

    splitter_rad: Real
    """Errors of the angles of the first and the second coupler, shape (count, 2)."""
    theta_rad: Real
    """Errors of the phases between the couplers, shape (count,)."""
    phi_rad: Real
    """Errors of the phases at the upper inputs, shape (count,)."""
    output_rad: Real
    """Errors of the phases at the outputs, shape (modes,)."""

    def __post_init__(self) -> None:
        count = np.shape(self.theta_rad)
        if np.shape(self.phi_rad) != count or np.shape(self.splitter_rad) != (*count, 2):
            msg = f"MeshErrors: splitter_rad {np.shape(self.splitter_rad)} and "
            msg += f"phi_rad {np.shape(self.phi_rad)} "
            msg += f"must belong to the interferometers of theta_rad {count}; draw them from one layout"
            raise ParameterError(msg)

    @staticmethod
    def none(layout: MeshLayout) -> MeshErrors:
        """Return the errors of a perfect chip."""
        zeros = np.zeros(layout.count)
        return MeshErrors(
            splitter_rad=np.zeros((layout.count, 2)),
            theta_rad=zeros,
            phi_rad=zeros,
            output_rad=np.zeros(layout.modes),
        )


def draw_errors(
    layout: MeshLayout, *, splitter_rad: float, phase_rad: float, generator: np.random.Generator
) -> MeshErrors:
    """Return the errors of a chip, normal and independent."""
    require("splitter_rad", splitter_rad, 0.0)
    require("phase_rad", phase_rad, 0.0)
    return MeshErrors(
        splitter_rad=splitter_rad * generator.standard_normal((layout.count, 2)),
        theta_rad=phase_rad * generator.standard_normal(layout.count),
        phi_rad=phase_rad * generator.standard_normal(layout.count),
        output_rad=phase_rad * generator.standard_normal(layout.modes),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Mesh:
    """Interferometers in a layout, then one phase shifter on every output.

    Notes
    -----
    U = diag(e^{i output}) T_last ... T_first, each interferometer as in `optical.transfer.elements`.
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
            Errors of the chip's angles and phases; none if not given.
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


def absorb(layout: MeshLayout, blocks: Complex, errors: MeshErrors | None = None) -> tuple[Complex, Real]:
    """Return settings of interferometers for 2x2 unitary matrices; phases left over go on to the next column.

    Parameters
    ----------
    layout : MeshLayout
        Positions.
    blocks : numpy.ndarray
        Wanted matrices, shape (count, 2, 2).
    errors : MeshErrors, optional
        Coupler errors that the settings compensate.

    Returns
    -------
    phases : numpy.ndarray
        e^{i angle} left on each waveguide behind the last column, shape (modes,).
    settings : numpy.ndarray
        (theta, phi), radian, shape (count, 2).
    """
    off = errors_of(layout, errors)
    carried, settings = np.ones(layout.modes, dtype=complex), np.zeros((layout.count, 2))
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
    left, settings = absorb(layout, blocks)
    return Mesh(
        layout=layout,
        theta_rad=settings[:, 0],
        phi_rad=settings[:, 1],
        output_rad=wrapped(np.angle(left * output)),
    )


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
        """Return the number of settings of shifters, one after the other."""
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
    _put_rotations(layout, right, blocks)
    behind = _put_rotations(layout, left, blocks)
    output = _put_phases(layout, behind, diagonal / np.abs(diagonal), blocks)
    return mesh_of_blocks(layout, blocks, output)


_Rotations = list[tuple[int, int, float, complex]]
"""Column and upper waveguide of each rotation in the mesh, c and s of its inverse [[c, s], [-s*, c]]."""


def _put_rotations(layout: MeshLayout, rotations: _Rotations, blocks: Complex) -> Index:
    """Write the blocks of the interferometers that make rotations; return their numbers, ascending."""
    if not rotations:
        return np.empty(0, dtype=np.int64)
    column, upper, cosine, sine = (np.array(each) for each in zip(*rotations, strict=True))
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


def _put_phases(layout: MeshLayout, behind: Index, phases: Complex, blocks: Complex) -> Complex:
    """Multiply phases of waveguides into the first of some interferometers that each meets.

    Return the phases of waveguides that meet none of them, and 1 for the others.
    """
    first = np.full(layout.modes, -1, dtype=np.int64)
    pairs = layout.upper[behind][:, None] + np.arange(2)
    # of several assignments to a waveguide the last stands, so the order is turned round
    first[pairs[::-1].reshape(-1)] = np.repeat(behind[::-1], 2)
    met = np.flatnonzero(first >= 0)
    blocks[first[met], :, met - layout.upper[first[met]]] *= phases[met][:, None]
    return np.where(first >= 0, 1.0 + 0.0j, phases)


def _null_by_columns(work: Complex, row: int, column: int, depth: int, rotations: _Rotations) -> None:
    """Null work[row, column] by rotating columns `column` and `column` + 1; rows below are zero in both."""
    n, flat = len(work), work.reshape(-1)
    at = row * n + column
    cosine, sine = _pivot(flat.item(at + 1), flat.item(at))
    scipy.linalg.lapack.zrot(
        flat, flat, cosine, sine, n=row + 1, offx=column, incx=n, offy=column + 1, incy=n,
        overwrite_x=1, overwrite_y=1,
    )  # fmt: skip
    # columns: (x', y') = (x, y) G with G = [[c, -s*], [s, c]], so the mesh needs G^-1 = [[c, s*], [-s, c]]
    rotations.append((depth, column, cosine, sine.conjugate()))


def _null_by_rows(work: Complex, row: int, column: int, depth: int, rotations: _Rotations) -> None:
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
    rotations.append((depth, row - 1, cosine, -sine))


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
        """Return the transfer matrix of the optics, without the scale, shape (rows, columns).

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
        """Return the weight that perfect optics realise, shape (rows, columns)."""
        return np.asarray(self.scale * self.transfer())


def program_weight(weight: Complex | Real, shape: MeshShape = MeshShape.CLEMENTS) -> ProgrammedWeight:
    """Return the settings with which passive optics realise a weight.

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
