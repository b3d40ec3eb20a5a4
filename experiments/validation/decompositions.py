"""Counted permutations of random demands, against our decompositions of other draws."""

from __future__ import annotations

import re

import numpy as np

from experiments.validation.cells import Record, SkipError
from optical.scheduling.birkhoff import birkhoff_von_neumann, permutations_for
from optical.scheduling.demand import sinkhorn
from optical.scheduling.matchings import Matching

MOST_PORTS = 128
"""Largest demand that is decomposed."""
PER_CENT = 0.01
"""One per cent."""


def permutations_of_dense_demand(record: Record, found: re.Match[str]) -> tuple[float, str]:
    """Return how many permutations a random doubly stochastic matrix is.

    Parameters
    ----------
    record : Record
        Its ``config`` begins with ``n=N``.
    found : re.Match
        Group 1 is the per cent of the volume that they carry, or None for all; group 2 the matching.

    Raises
    ------
    SkipError
        If there is no such size or matching.
    """
    size = re.match(r"n=(\d+)\b", record.text("config"))
    if not size or not 1 <= int(size[1]) <= MOST_PORTS:
        msg = f"config '{record.text('config')[:40]}' begins with no n=N of at most {MOST_PORTS}"
        raise SkipError(msg)
    if found[2] not in list(Matching):
        msg = f"no matching '{found[2]}' decomposes; known: {', '.join(Matching)}"
        raise SkipError(msg)
    count = int(size[1])
    demand = sinkhorn(np.random.default_rng(count).random((count, count)))
    parts = birkhoff_von_neumann(demand, Matching(found[2]))
    record.assume("another random matrix of this size: uniform entries, rows and columns scaled to one")
    return float(permutations_for(parts, float(found[1]) * PER_CENT) if found[1] else len(parts)), ""
