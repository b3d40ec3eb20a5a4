"""Accelerators that work and still find no place: what failed nodes waste in domains, cubes and rings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from heliograph.errors import ParameterError

Placement = Callable[[np.ndarray], int]
"""From which nodes work, shape [N], to the nodes that stand in groups."""


def domains(size: int, group: int) -> Placement:
    """Return how groups find places in switched domains, none across two.

    Parameters
    ----------
    size : int
        Nodes of a domain (an NVL-72 has 9 of 8 accelerators).
    group : int
        Nodes of a group.

    Raises
    ------
    ParameterError
        If no domain holds a group.
    """
    if not 1 <= group <= size:
        msg = f"a group of {group} nodes does not fit a domain of {size}; take smaller groups"
        raise ParameterError(msg)

    def placed(works: np.ndarray) -> int:
        whole = works.size // size * size  # what is no whole domain is not built
        healthy = works[:whole].reshape(-1, size).sum(axis=1)
        return int((healthy // group * group).sum())

    return placed


def cubes(size: int, group: int) -> Placement:
    """Return how groups find places in cubes of which only whole ones can be joined.

    Parameters
    ----------
    size : int
        Nodes of a cube (a cube of TPU v4 has 8 of 8 accelerators); one that fails takes it away.
    group : int
        Nodes of a group, which takes whole cubes or stands in one with others.

    References
    ----------
    Jouppi et al., "TPU v4", arXiv:2304.01433: the cube is the unit in which slices are made up.
    """

    def placed(works: np.ndarray) -> int:
        whole = works.size // size * size
        good = int(works[:whole].reshape(-1, size).all(axis=1).sum())
        if group <= size:
            return good * (size // group) * group
        return good * size // group * group

    return placed


def ring(hops: int, group: int) -> Placement:
    """Return how groups find places on a ring whose circuits pass up to K - 1 failed nodes.

    Parameters
    ----------
    hops : int
        Neighbours that a node reaches in each direction, K.
    group : int
        Nodes of a group, consecutive ones that work.

    References
    ----------
    Shou et al., "InfiniteHBD", SIGCOMM 2025, arXiv:2502.03885.
    """

    def placed(works: np.ndarray) -> int:
        healthy = np.flatnonzero(works)
        if not healthy.size:
            return 0
        gaps = np.diff(healthy, append=healthy[0] + works.size)
        broken = np.flatnonzero(gaps > hops)
        if not broken.size:
            return int(healthy.size // group * group)
        ends = np.diff(broken, prepend=broken[-1] - healthy.size)
        return int((ends // group * group).sum())

    return placed


def waste(works: np.ndarray, placed: Placement) -> float:
    """Return the share of all nodes that work and find no place.

    Parameters
    ----------
    works : numpy.ndarray
        Which nodes work, shape [N].
    placed : callable
        How groups find places.
    """
    return float(works.sum() - placed(works)) / works.size
