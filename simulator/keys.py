"""Explicit randomness: one integer key per random draw, hashed from the identifiers of the draw."""

from __future__ import annotations

import operator
from typing import TypeVar

import numpy as np

StatesT = TypeVar("StatesT", int, np.ndarray)
_MASK = 2**64 - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def mix_key(*parts: int) -> int:
    """Return the key of a draw from its identifiers, e.g. seed, step, layer, product, phase.

    Parameters
    ----------
    *parts : int
        Identifiers, each taken modulo 2**64; their order and number matter.

    Returns
    -------
    int
        A key in [0, 2**64). Two calls with equally many parts that differ only in the last never agree; other
        calls agree with probability 2**-64.

    Notes
    -----
    Each part is added to the state, which then passes the finalizer of SplitMix64, a bijection of 64 bits in
    which every input bit flips each output bit with probability near one half.

    References
    ----------
    Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, section 5; the
    constants are those of the public-domain splitmix64 of S. Vigna (2015).
    """
    state = 0
    for part in parts:
        state = finalised((state + GOLDEN_GAMMA + operator.index(part)) & _MASK)
    return state


def mix_keys(states: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Return the keys that `mix_key` gives when one more part is added to each state.

    Parameters
    ----------
    states, parts : numpy.ndarray
        Keys so far and the parts to add, uint64, shapes that broadcast; a new key starts from state 0.
    """
    with np.errstate(over="ignore"):
        return finalised(states + np.uint64(GOLDEN_GAMMA) + parts)


def finalised(states: StatesT) -> StatesT:
    """Return the finalizer of SplitMix64 applied to states: an integer below 2**64, or an array of uint64."""
    states = ((states ^ (states >> 30)) * _MULTIPLIERS[0]) & _MASK
    states = ((states ^ (states >> 27)) * _MULTIPLIERS[1]) & _MASK
    return states ^ (states >> 31)
