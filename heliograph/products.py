"""Many products at once: their shapes as arrays, so that a unit prices them all in one go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heliograph.amounts import Amount, Reals, elements_off_chip
from heliograph.errors import WorkloadError
from heliograph.operators import Held, MatMul, Phase


@dataclass(frozen=True, kw_only=True, eq=False)
class MatMuls:
    """Batched matrix products of one phase and storage, C[batch, m, n] = A[batch, m, k] B[batch, k, n] each.

    Notes
    -----
    Sizes are whole numbers, kept as floats: counts of events stay exact up to 2^53, and do not wrap around
    beyond.
    """

    m: Amount
    """Rows of A and C; whole numbers of at least 1, shape (products,) or one for all, as for all four."""
    k: Amount
    """Columns of A, rows of B."""
    n: Amount
    """Columns of B and C."""
    batch: Amount = 1
    """Number of independent products in each."""
    phase: Phase = Phase.FORWARD
    """Forward, or one of the two backward products."""
    held: Held = Held.NONE
    """Operand that is a weight."""
    element_bytes: int = 2
    """Bytes of one stored element of A, B and C."""
    on_chip: str = ""
    """Which of ``a``, ``b`` and ``c`` never leave the chip."""
    sparse: bool = False
    """Whether of four neighbours in B two are zero and not stored."""

    def __post_init__(self) -> None:
        names = ("m", "k", "n", "batch")
        sizes = [np.atleast_1d(np.asarray(getattr(self, name), dtype=float)) for name in names]
        count = max(size.size for size in sizes)
        for name, size in zip(names, sizes, strict=True):
            if size.ndim > 1 or size.size not in (1, count) or not size.size:
                msg = f"MatMuls: {name} must be one number, or {count} in a row; got shape {size.shape}"
                raise WorkloadError(msg)
            wrong = size[~(size >= 1.0) | (size != np.floor(size)) | np.isinf(size)]
            if wrong.size:
                msg = f"MatMuls: {name} must be whole and at least 1; got {wrong[0]:g}"
                raise WorkloadError(msg)
            whole = np.broadcast_to(size, (count,)).copy()
            whole.flags.writeable = False
            object.__setattr__(self, name, whole)
        self.one(0)  # what all share is checked where it is defined

    @property
    def elements_off_chip(self) -> tuple[Reals, Reals, Reals]:
        """Elements of A, B and C that cross the memory's interface, shape (products,) each."""
        m, k, n = (np.asarray(size) for size in (self.m, self.k, self.n))
        return elements_off_chip(
            (m * k, k * n, m * n),
            element_bytes=self.element_bytes,
            on_chip=self.on_chip,
            sparse=self.sparse,
        )

    def __len__(self) -> int:
        return np.size(self.m)

    def one(self, index: int) -> MatMul:
        """Return one of the products."""
        m, k, n, batch = (int(np.asarray(size)[index]) for size in (self.m, self.k, self.n, self.batch))
        return MatMul(
            name=f"product {index}",
            layer="",
            phase=self.phase,
            batch=batch,
            m=m,
            k=k,
            n=n,
            held=self.held,
            element_bytes=self.element_bytes,
            on_chip=self.on_chip,
            sparse=self.sparse,
        )


Products = MatMul | MatMuls
"""One product, or many."""
