"""Dot products modulo m as light does them: digit by digit, phase by phase, read back from two quadratures.

The slow, literal counterpart of `optical.cores.phase_residue`, to hold its numbers to.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simulator.errors import ParameterError

Whole = NDArray[np.int64]


def moduli_of(exponent: int) -> tuple[int, int, int]:
    """Return 2^k - 1, 2^k and 2^k + 1, which have no common factor and need no division to fold into."""
    return 2**exponent - 1, 2**exponent, 2**exponent + 1


def digits_of(modulus: int) -> int:
    """Return the binary digits of the largest remainder."""
    return (modulus - 1).bit_length()


def segment_phases(w: Whole, modulus: int) -> NDArray[np.float64]:
    """Return what each segment of a unit is set to, from -pi to pi; shape of `w` with one axis for digits.

    Parameters
    ----------
    w : numpy.ndarray of int
        Held operand.
    modulus : int
        Which remainder.

    Notes
    -----
    Digit d of the streamed operand weighs 2^d w, of which only the remainder matters.
    """
    scaled = np.multiply.outer(w % modulus, 2 ** np.arange(digits_of(modulus))) % modulus
    return 2.0 * math.pi / modulus * (scaled - modulus * (2 * scaled > modulus))


def accumulated_phase(x: Whole, w: Whole, modulus: int) -> NDArray[np.float64]:
    """Return the phase that light has behind a row of units.

    Parameters
    ----------
    x, w : numpy.ndarray of int
        Streamed and held operand, shapes that broadcast; the last axis is the row.
    modulus : int
        Which remainder.
    """
    ones = (np.asarray(x % modulus)[..., None] >> np.arange(digits_of(modulus))) & 1
    phases: NDArray[np.float64] = np.sum(ones * segment_phases(w, modulus), axis=(-2, -1))
    return phases


def read_phase(in_phase: NDArray[np.float64], quadrature: NDArray[np.float64], modulus: int) -> Whole:
    """Return the remainder whose phase is nearest to that of two quadratures, 0 to m - 1."""
    turns = np.arctan2(quadrature, in_phase) / (2.0 * math.pi)
    return np.rint(turns * modulus).astype(np.int64) % modulus


def reconstruct(remainders: Whole, moduli: tuple[int, ...]) -> Whole:
    """Return the whole numbers with these remainders, between plus and minus half of the moduli's product.

    Parameters
    ----------
    remainders : numpy.ndarray of int, shape (len(moduli), ...)
        One for each modulus.
    moduli : tuple of int
        Pairwise coprime.

    Raises
    ------
    ParameterError
        If there are more or fewer remainders than moduli.

    References
    ----------
    The Chinese remainder theorem: the sum of r_i (M/m_i) times the inverse of M/m_i modulo m_i, modulo M.
    """
    if len(remainders) != len(moduli):
        msg = f"{len(remainders)} remainders for {len(moduli)} moduli {moduli}; give one for each"
        raise ParameterError(msg)
    whole = math.prod(moduli)
    weights = [whole // one * pow(whole // one, -1, one) for one in moduli]
    found = np.tensordot(np.array(weights), np.asarray(remainders), axes=1).astype(np.int64)
    return (found + whole // 2) % whole - whole // 2
