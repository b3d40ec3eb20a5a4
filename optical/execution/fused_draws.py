"""Words of `optical.execution.draws.Draws`, compiled by numba where that is installed."""

from __future__ import annotations

from typing import Any

import numpy as np

from optical.execution.compiling import compiled, inside

Array = Any
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


@compiled
def draw(key: int, first: int, out: Array) -> None:
    """Write numbers of the generator, from a first one, uint64."""
    start = np.uint64(key) + np.uint64(first + 1) * _INCREMENT
    for place in range(out.size):
        x = start + np.uint64(place) * _INCREMENT
        x = (x ^ (x >> _SHIFTS[0])) * _MULTIPLIERS[0]
        x = (x ^ (x >> _SHIFTS[1])) * _MULTIPLIERS[1]
        out[place] = x ^ (x >> _SHIFTS[2])


@inside
def draw_words(key: int, first: int, start: int, memory: Array) -> int:
    """Write numbers that hold some words, and return where among their words the first stands.

    Parameters
    ----------
    key, first : int
        Of `optical.execution.draws.Draws.take`.
    start : int
        How many words later to begin.
    memory : numpy.ndarray
        uint64; room for all words wherever they begin.
    """
    draw(key, (first + start) // 4, memory)
    return (first + start) % 4
