"""Perfect matchings that are kept up to date while a demand is peeled off, rather than found anew."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import scipy

FREE = -1
"""Partner of a line that has none."""


class Matching(StrEnum):
    """Perfect matching that a decomposition peels off first."""

    ARBITRARY = "arbitrary"
    """Any, by augmenting paths (Hopcroft and Karp 1973 with a warm start): most permutations."""
    HUNGARIAN = "hungarian"
    """The one of greatest total (Kuhn 1955)."""
    BOTTLENECK = "bottleneck"
    """The one whose smallest entry is greatest (Derigs and Zimmermann 1978): fewest permutations."""


class Support:
    """A bipartite graph that loses and gains edges, with a matching that is mended after each change.

    Parameters
    ----------
    allowed : numpy.ndarray
        Whether row i may be matched to column j, shape [N, N].

    Notes
    -----
    Rows are bit sets, so that one step of a search looks at a whole row. A peeled entry frees one row, and
    one augmenting path mends the matching: O(edges) at worst, a few steps in dense matrices.
    """

    def __init__(self, allowed: np.ndarray) -> None:
        size = len(allowed)
        packed = np.packbits(allowed, axis=1, bitorder="little")
        self._masks = [int.from_bytes(row.tobytes(), "little") for row in packed]
        self._row_of = [FREE] * size
        self._free = (1 << size) - 1
        self.columns = np.full(size, FREE, dtype=np.int64)

    def allow(self, rows: np.ndarray, columns: np.ndarray) -> None:
        """Add edges, given by their rows and columns, each of shape [M]."""
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            self._masks[row] |= 1 << column

    def forbid(self, rows: np.ndarray, columns: np.ndarray) -> None:
        """Remove edges, given by their rows and columns, each of shape [M], and unmatch those in use."""
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            self._masks[row] &= ~(1 << column)
            if self._row_of[column] == row:
                self._row_of[column] = FREE
                self._free |= 1 << column
                self.columns[row] = FREE

    def completed(self) -> tuple[list[int], list[int]] | None:
        """Match every row, if that is possible.

        Returns
        -------
        (list of int, list of int) or None
            None if every row is matched. Otherwise rows and the fewer columns that they can reach: to match
            them an edge from those rows to another column is needed (Hall 1935).
        """
        for root in np.flatnonzero(self.columns == FREE).tolist():
            found = self._augmented(root)
            if found is not None:
                return found
        return None

    def _augmented(self, root: int) -> tuple[list[int], list[int]] | None:
        """Match one more row along an augmenting path, depth first, looking for a free column first."""
        seen, path, taken, rows = 0, [root], [], [root]
        while path:
            row = path[-1]
            hit = self._masks[row] & self._free
            if hit:
                taken.append((hit & -hit).bit_length() - 1)
                self._flip(path, taken)
                return None
            new = self._masks[row] & ~seen
            if new:
                bit = new & -new
                seen |= bit
                taken.append(bit.bit_length() - 1)
                path.append(self._row_of[taken[-1]])
                rows.append(path[-1])
            else:
                path.pop()
                if taken:
                    taken.pop()
        return rows, [self.columns[row] for row in rows if row != root]

    def _flip(self, path: list[int], taken: list[int]) -> None:
        for row, column in zip(path, taken, strict=True):
            self._row_of[column] = row
            self.columns[row] = column
        self._free &= ~(1 << taken[-1])


def lower_until_perfect(support: Support, weights: np.ndarray, level: float) -> float | None:
    """Complete the matching of greatest smallest weight; return the weight that edges must have for it.

    Parameters
    ----------
    support : Support
        Edges of at least `level`; gains edges until a perfect matching exists.
    weights : numpy.ndarray
        Weight of each edge, shape [N, N]; zero is no edge.
    level : float
        No less than the answer: of a matrix that only lost weight, the last answer.

    Returns
    -------
    float or None
        The smallest weight of the perfect matching, or None where there is none.

    Notes
    -----
    Rows that reach too few columns need an edge out of them, and the heaviest is the least sacrifice; so the
    level never falls lower than it must (threshold method of Derigs and Zimmermann, Computing 19, 1978).
    """
    while (stuck := support.completed()) is not None:
        rows, columns = np.array(stuck[0]), stuck[1]
        outside = weights[rows]
        outside[:, columns] = 0.0
        highest = float(outside.max())
        if highest <= 0.0:
            return None
        level, last = min(level, highest), level
        support.allow(*np.nonzero((weights >= level) & (weights < last)))
    return level


def heaviest(weights: np.ndarray) -> np.ndarray | None:
    """Return the perfect matching on positive weights of greatest total, shape [N], if there is one."""
    forbidden = -len(weights) * float(weights.max()) - 1.0
    columns = scipy.optimize.linear_sum_assignment(
        np.where(weights > 0.0, weights, forbidden), maximize=True
    )[1]
    return columns if (weights[np.arange(len(weights)), columns] > 0.0).all() else None
