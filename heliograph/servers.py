"""Parameter servers as flows: what every worker of a group pushes to them and pulls from them."""

from __future__ import annotations

import numpy as np

from heliograph.collectives import Round
from heliograph.errors import WorkloadError
from heliograph.interfaces import Flows
from heliograph.operators import CollectiveKind

SERVED = frozenset({CollectiveKind.PUSH, CollectiveKind.PULL})
"""What goes to servers or comes from them."""


def server_places(workers: int, servers: int) -> np.ndarray:
    """Return the places of a group's servers among its workers, evenly apart, shape [servers]."""
    return np.arange(servers) * workers // servers


def server_rounds(
    kind: CollectiveKind, groups: np.ndarray, payload_bytes: float, axis: str, *, servers: int
) -> tuple[Round, ...]:
    """Return the one round of flows in which every worker pushes to, or pulls from, every server.

    Parameters
    ----------
    kind : CollectiveKind
        PUSH or PULL.
    groups : numpy.ndarray
        Endpoints of the workers, shape [groups, workers].
    payload_bytes : float
        Bytes of the whole vector, which every worker sends or receives.
    axis : str
        Axis of parallelism, passed on to the flows.
    servers : int
        How many of the workers of each group hold an equal share of the vector.

    Returns
    -------
    tuple of Round
        One round; what a server's own worker exchanges with it stays on the rank. Empty for one worker.

    Raises
    ------
    WorkloadError
        If there are no servers, or more than workers.
    """
    workers = groups.shape[1]
    if not 1 <= servers <= workers:
        msg = f"servers ({servers}) must be from 1 to the workers of a group ({workers}), on which they stand"
        raise WorkloadError(msg)
    if workers == 1:
        return ()
    worker, server = np.meshgrid(np.arange(workers), server_places(workers, servers), indexing="ij")
    apart = worker != server
    senders, receivers = worker[apart], server[apart]
    if kind is CollectiveKind.PULL:
        senders, receivers = receivers, senders
    flows = Flows(
        sources=groups[:, senders].ravel(),
        destinations=groups[:, receivers].ravel(),
        size_bytes=payload_bytes / servers,
        axis=axis,
    )
    return (Round(flows=flows, count=1),)


def server_bound_s(workers: int, servers: int, payload_bytes: float, port_bytes_per_s: float) -> float:
    """Return the least time of a push and a pull when every rank has one port each way.

    Parameters
    ----------
    workers, servers : int
        Workers of a group, and how many of them hold a share.
    payload_bytes : float
        Bytes of the vector, P.
    port_bytes_per_s : float
        Bandwidth of a port one way, b.

    Notes
    -----
    T >= max(2 P / b of a worker that is no server, 2 P (W - 1) / (S b) of a server, which receives and sends
    the shares of all workers but its own). S = W gives 2 P (W - 1) / (W b), as a ring does. A server on a
    machine of its own would take 2 P W / (S b) (Li et al., "Scaling distributed machine learning with the
    parameter server", OSDI 2014).
    """
    if workers == 1:
        return 0.0
    alone = payload_bytes if servers < workers else payload_bytes * (servers - 1) / servers
    incast = payload_bytes * (workers - 1) / servers
    return 2.0 * max(alone, incast) / port_bytes_per_s
