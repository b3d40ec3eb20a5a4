"""Arithmetic that one formula can use both on the numbers of one product and on arrays of many products."""

from __future__ import annotations

import enum
import functools
import math
import operator
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Amount = float | Reals
"""A number, or an array with one for each product."""
Flag = bool | NDArray[np.bool_]
"""A truth, or an array with one for each product."""

AmountT = TypeVar("AmountT", float, Reals, float | Reals)
"""Type of a formula's arguments and result: numbers give a number, arrays give an array."""
ChoiceT = TypeVar("ChoiceT")
CountT = TypeVar("CountT", int, Reals)
"""Whole numbers: one, or an array with one for each product."""


class Matrices(enum.Flag):
    """Some of the matrices of a product C = A B."""

    NONE = 0
    A = enum.auto()
    B = enum.auto()
    C = enum.auto()

    def renamed(self, a: Matrices, b: Matrices, c: Matrices) -> Matrices:
        """Return the same matrices by the names that A, B and C have in another product."""
        pairs = ((Matrices.A, a), (Matrices.B, b), (Matrices.C, c))
        return functools.reduce(operator.or_, (new for old, new in pairs if old in self), Matrices.NONE)


def elements_off_chip(
    sizes: tuple[CountT, CountT, CountT], *, element_bytes: float, on_chip: Matrices, sparse: bool
) -> tuple[CountT, CountT, CountT]:
    """Return the elements of A, B and C that cross the memory's interface.

    Parameters
    ----------
    sizes : tuple
        Elements of A, B and C, dense.
    element_bytes : float
        Bytes of one stored element.
    on_chip : Matrices
        Matrices that never leave the chip.
    sparse : bool
        Whether half of B is not stored (2:4 sparsity); each stored element then has a two-bit index.
    """
    a, b, c = sizes
    if sparse:
        bits = int(8 * element_bytes)
        b = -(-b * (bits + 2) // (2 * bits))
    return (
        0 * a if Matrices.A in on_chip else a,
        0 * b if Matrices.B in on_chip else b,
        0 * c if Matrices.C in on_chip else c,
    )


def ceiling(amount: Amount) -> Amount:
    """Return the least whole number that is not below; an exact `int` for a single number."""
    return np.ceil(amount) if isinstance(amount, np.ndarray) else math.ceil(amount)


def floored(amount: Amount) -> Amount:
    """Return the largest whole number that is not above; an exact `int` for a single number."""
    return np.floor(amount) if isinstance(amount, np.ndarray) else math.floor(amount)


def larger(first: Amount, second: Amount) -> Amount:
    """Return the larger of two, product by product."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.maximum(first, second)
    return max(first, second)


def smaller(first: Amount, second: Amount) -> Amount:
    """Return the smaller of two, product by product."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.minimum(first, second)
    return min(first, second)


def choose(flag: Flag, yes: ChoiceT, no: ChoiceT) -> ChoiceT:
    """Return `yes` where the flag is true, else `no`, product by product."""
    if isinstance(flag, np.ndarray):
        chosen: ChoiceT = np.where(flag, yes, no)  # type: ignore[call-overload]
        return chosen
    return yes if flag else no


def single(parts: Mapping[str, Amount]) -> dict[str, float]:
    """Return the parts of a single product as plain numbers."""
    return {part: float(amount) for part, amount in parts.items()}
