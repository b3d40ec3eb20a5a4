"""Arithmetic that one formula can use both on the numbers of one plan and on arrays of many plans."""

from __future__ import annotations

import enum
import functools
import math
import operator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Amount = float | Reals
"""A number, or an array with one for each plan."""
Flag = bool | NDArray[np.bool_]
"""A truth value, or an array with one for each plan."""

AmountT = TypeVar("AmountT", float, Reals, float | Reals)
"""Type of a formula's arguments and result: numbers give a number, arrays give an array."""
ChoiceT = TypeVar("ChoiceT")


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


def ceiling(amount: Amount) -> Amount:
    """Return the least whole number that is not below; an exact `int` for a single number."""
    return np.ceil(amount) if isinstance(amount, np.ndarray) else math.ceil(amount)


def larger(first: Amount, second: Amount) -> Amount:
    """Return the larger of two, plan by plan."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.maximum(first, second)
    return max(first, second)


def smaller(first: Amount, second: Amount) -> Amount:
    """Return the smaller of two, plan by plan."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.minimum(first, second)
    return min(first, second)


def choose(flag: Flag, yes: ChoiceT, no: ChoiceT) -> ChoiceT:
    """Return `yes` where the flag is true, else `no`, plan by plan."""
    if isinstance(flag, np.ndarray):
        chosen: ChoiceT = np.where(flag, yes, no)  # type: ignore[call-overload]
        return chosen
    return yes if flag else no
