"""Collectives on several rings at once, which circuits between the same members may form."""

from __future__ import annotations

import math

import numpy as np

from heliograph.collectives import Round, vector_bytes
from heliograph.errors import WorkloadError
from heliograph.interfaces import Flows
from heliograph.operators import CollectiveKind

RING_KINDS = frozenset({CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER})
"""Collectives that go around rings of any order."""


def strided_rounds(
    kind: CollectiveKind, groups: np.ndarray, payload_bytes: float, axis: str, strides: tuple[int, ...]
) -> tuple[Round, ...]:
    """Return an all-reduce, reduce-scatter or all-gather on several rings at once.

    Parameters
    ----------
    kind, groups, payload_bytes, axis
        As in `rounds`.
    strides : tuple of int
        Steps of the rings through a group, each coprime to its size n; the vector is cut into as many equal
        parts, and each goes around its own ring.

    Raises
    ------
    WorkloadError
        If the collective has no ring, or a stride visits only some of the group.

    Notes
    -----
    A ring may visit the members in any order, and all orders ``i s mod n`` with s coprime to n use different
    links (Wang et al., "TopoOpt", NSDI 2023, section 4.3 and theorem 2).
    """
    n = groups.shape[1]
    short = [stride for stride in strides if math.gcd(stride, n) != 1]
    if kind not in RING_KINDS or short or not strides:
        msg = f"{kind} on {n} ranks has no rings of strides {strides}; they must be coprime to {n}"
        raise WorkloadError(msg)
    if n == 1:
        return ()
    flows = Flows(
        sources=np.concatenate([groups.ravel()] * len(strides)),
        destinations=np.concatenate([np.roll(groups, -stride, axis=1).ravel() for stride in strides]),
        size_bytes=vector_bytes(kind, payload_bytes, n) / n / len(strides),
        axis=axis,
    )
    count = 2 * (n - 1) if kind is CollectiveKind.ALL_REDUCE else n - 1
    return (Round(flows=flows, count=count),)
