"""Products in which every element of either operand is used equally often, so that reuse is one number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.core import INPUTS
from heliograph.amounts import Reals
from heliograph.operators import Held, MatMul, Phase
from heliograph.products import MatMuls

WIDTH = 2**14
"""Rows of all blocks of a product together, so that every core has work; a choice."""


def blocks(uses: int) -> int:
    """Return the independent blocks of a product of so many rows and columns."""
    return max(1, round(WIDTH / uses))


def square_products(reuse: Sequence[int], element_bytes: int) -> MatMuls:
    """Return a product with a held weight for each reuse.

    Parameters
    ----------
    reuse : sequence of int
        Rows and columns of C, hence products that each element takes part in.
    element_bytes : int
        Bytes of a stored element.

    Notes
    -----
    Its sides being equal, no side can be loaded in place of the other to find more vectors that pass: the
    vectors that pass a loaded tile are the reuse.
    """
    return MatMuls(
        m=np.array(reuse, dtype=float),
        k=INPUTS,
        n=np.array(reuse, dtype=float),
        batch=np.array([blocks(uses) for uses in reuse], dtype=float),
        held=Held.B,
        element_bytes=element_bytes,
    )


def macs_of(products: MatMuls) -> Reals:
    """Return the multiply-accumulates of each product, shape (products,)."""
    sizes = (products.batch, products.m, products.k, products.n)
    macs: Reals = np.prod([np.asarray(size) for size in sizes], axis=0)
    return macs


def square_product(uses: int, element_bytes: int) -> MatMul:
    """Return the same product as one batched kernel of a GPU, whose operands all come from memory."""
    return MatMul(
        name="square product",
        layer="",
        phase=Phase.FORWARD,
        batch=blocks(uses),
        m=uses,
        k=INPUTS,
        n=uses,
        element_bytes=element_bytes,
    )
