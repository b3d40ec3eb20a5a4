"""Least makespan of a small demand on one circuit switch, by an integer programme over all permutations."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import scipy

from optical.scheduling.birkhoff import Part
from optical.scheduling.demand import largest_line
from simulator.errors import ParameterError

MOST_EXACT_PORTS = 5
"""Ports up to which all permutations, 120 of five, are weighed; with six the solver takes over a minute."""
TIME_LIMIT_S = 60.0
"""Time after which the solver is stopped."""
SOLVED = 1e-6
"""Share of the largest line to which the solver keeps its constraints, by which each part is lengthened."""
GAP = 1e-5
"""Relative gap within which a makespan counts as the least."""


def exact(demand: np.ndarray, *, delay_bytes: float) -> list[Part]:
    """Return the permutations of a schedule of least makespan, and the bytes that each may carry.

    Parameters
    ----------
    demand : numpy.ndarray
        Bytes from input i to output j, shape [N, N], of `MOST_EXACT_PORTS` ports at most.
    delay_bytes : float
        Bytes that a circuit would carry in a reconfiguration, which stands before every configuration.

    Raises
    ------
    ParameterError
        If there are too many ports, or the solver does not end in `TIME_LIMIT_S`.

    Notes
    -----
    Each permutation p is used (z = 1) for t bytes of a circuit: least sum of t + delay z, sum of t over the
    permutations with i to j at least the demand, and t at most the largest entry that p serves times z.
    At least as many are used as any port has peers.
    """
    size = len(demand)
    if size > MOST_EXACT_PORTS:
        msg = f"an exact schedule weighs all permutations of at most {MOST_EXACT_PORTS} ports; got {size}"
        raise ParameterError(msg)
    scale = largest_line(demand)
    if scale <= 0.0:
        return []
    wanted, sources = demand / scale, np.arange(size)
    every = np.array(list(permutations(range(size))), dtype=np.int64)
    most = wanted[sources, every].max(axis=1)
    every, most = every[most > 0.0], most[most > 0.0]
    count = len(every)
    pairs = (sources * size + every).ravel()
    serves = scipy.sparse.coo_array(
        (np.ones(pairs.size), (pairs, np.repeat(np.arange(count), size))), shape=(size * size, count)
    )
    none = scipy.sparse.coo_array((size * size, count))
    used = [scipy.sparse.eye_array(count), -scipy.sparse.diags_array(most)]
    peers = max(int((wanted > 0.0).sum(axis=axis).max()) for axis in (0, 1))
    found = scipy.optimize.milp(
        np.concatenate([np.ones(count), np.full(count, delay_bytes / scale)]),
        integrality=np.repeat([0, 1], count),
        bounds=scipy.optimize.Bounds(0.0, np.concatenate([most, np.ones(count)])),
        constraints=[
            scipy.optimize.LinearConstraint(
                scipy.sparse.hstack([serves, none]).tocsr(), wanted.ravel(), np.inf
            ),
            scipy.optimize.LinearConstraint(scipy.sparse.hstack(used).tocsr(), -np.inf, 0.0),
            scipy.optimize.LinearConstraint(np.repeat([0.0, 1.0], count), peers, np.inf),
        ],
        options={"mip_rel_gap": GAP, "time_limit": TIME_LIMIT_S},
    )
    if found.status != 0:
        msg = f"no exact schedule of {size} ports in {TIME_LIMIT_S:g} s; try fewer ports, or another policy"
        raise ParameterError(msg)
    held = found.x[:count]
    used_ones = np.flatnonzero(held > SOLVED)
    return [(every[place], float(held[place] + SOLVED) * scale) for place in used_ones.tolist()]
