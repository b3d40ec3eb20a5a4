"""Places of the interferometers in a mesh: the rectangle of Clements and the triangle of Reck."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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
