"""A mesh of interferometers (the rectangle of Clements, the triangle of Reck), its phases, and its matrix.

Fabrication adds errors to a mesh's design: coupler angles that are off, and phases that are off.
Simulators that write row vectors (out = in U) use the transpose of a matrix here.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
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
        """Columns: interferometers on the longest way."""
        return len(self._columns)

    @cached_property
    def slices(self) -> tuple[tuple[slice, slice], ...]:
        """Of every column, its interferometers and the waveguides that they join."""
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


def absorb(layout: MeshLayout, blocks: Complex, errors: MeshErrors | None = None) -> tuple[Complex, Real]:
    """Set interferometers to given 2x2 unitary matrices, handing what a setting cannot do to the next column.

    Parameters
    ----------
    layout : MeshLayout
        Positions.
    blocks : numpy.ndarray
        Wanted matrices, shape (count, 2, 2).
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
