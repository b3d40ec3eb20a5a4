"""Store and forward: flows cut into chunks, each passed on when it has arrived as a whole.

A fluid flows on all its links at once; a chunk of a store-and-forward network is on one link at a time. Each
chunk's hop is a flow of one link, after the same chunk's hop before it and after the chunk ahead of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from heliograph.errors import ParameterError
from heliograph.flow_simulation import simulate
from heliograph.flows import CapacityChange, FlowSet, FlowTimes
from heliograph.interfaces import LinkGraph

MOST_HOPS = 2**21
"""Most chunk hops that are simulated; dimensionless."""


@dataclass(frozen=True, kw_only=True)
class ChunkHops:
    """Flows of one link each, and where they belong."""

    flows: FlowSet
    """One flow for every hop of every chunk."""
    first: np.ndarray
    """First hop of the first chunk of each given flow, shape [F]."""
    last: np.ndarray
    """Last hop of the last chunk of each given flow, shape [F]."""


def chunk_hops(flows: FlowSet, chunk_bytes: float) -> ChunkHops:
    """Return flows cut into chunks and hops.

    Parameters
    ----------
    flows : FlowSet
        Flows without orbits; the last chunk of each is what is left over.
    chunk_bytes : float
        Bytes of a chunk.

    Raises
    ------
    ParameterError
        If the size of a chunk is not above 0, too many hops result, or flows stand for orbits.
    """
    if not chunk_bytes > 0.0 or math.isinf(chunk_bytes):
        msg = f"chunk_bytes must be finite and above 0; got {chunk_bytes}"
        raise ParameterError(msg)
    if flows.usage is not None:
        msg = "flows that stand for orbits have no single path to store chunks on; give them one by one"
        raise ParameterError(msg)
    chunks = np.maximum(np.ceil(flows.size_bytes / chunk_bytes).astype(np.int64), 1)
    hops = np.maximum((flows.routes >= 0).sum(axis=1), 1)
    count = chunks * hops
    if count.sum() > MOST_HOPS:
        msg = f"{count.sum()} hops of chunks are too many (at most {MOST_HOPS}); take larger chunks"
        raise ParameterError(msg)
    first = np.cumsum(count) - count
    owner = np.repeat(np.arange(count.size), count)
    inside = np.arange(owner.size) - first[owner]
    chunk, hop = inside // hops[owner], inside % hops[owner]
    packed = -np.sort(-(flows.routes >= 0).astype(np.int8), axis=1, kind="stable").astype(np.int64)
    order = np.argsort(flows.routes < 0, axis=1, kind="stable")
    links = np.where(packed > 0, np.take_along_axis(flows.routes, order, axis=1), -1)
    if not links.shape[1]:
        links = np.full((count.size, 1), -1)
    sizes = np.minimum(flows.size_bytes[owner] - chunk * chunk_bytes, chunk_bytes)
    index = np.arange(owner.size)
    ahead = index[hop > 0]
    behind = index[chunk > 0]
    last = first + count - 1
    arrived = np.column_stack((ahead - 1, ahead))
    left = np.column_stack((behind - hops[owner[behind]], behind))
    whole = [
        np.column_stack((last[pairs[:, 0]], first[pairs[:, 1]])) for pairs in (flows.after, flows.behind)
    ]
    start = None if flows.start_s is None else flows.start_s[owner]
    hopped = FlowSet(
        routes=links[owner, hop][:, None],
        size_bytes=sizes,
        start_s=start,
        after=np.concatenate((arrived, whole[0])),
        behind=np.concatenate((left, whole[1])),
    )
    return ChunkHops(flows=hopped, first=first, last=last)


def store_and_forward(
    flows: FlowSet,
    graph: LinkGraph,
    chunk_bytes: float,
    *,
    changes: tuple[CapacityChange, ...] = (),
) -> FlowTimes:
    """Return when each flow starts and arrives if every hop stores a whole chunk before it passes it on.

    Parameters
    ----------
    flows : FlowSet
        The flows; a chunk waits for the chunk ahead of it at every hop, other flows share the link fairly.
    graph : LinkGraph
        The links.
    chunk_bytes : float
        Bytes of a chunk.
    changes : tuple of CapacityChange
        Failures and repairs; chunks wait for the repair.

    Notes
    -----
    A flow alone, of k equal chunks of c bytes over h equal links of rate B and latency a, takes
    (h + k - 1) c / B + h a (Kermani and Kleinrock, "Virtual cut-through", Computer Networks 3 (1979), of
    which this is the message-switched case); as chunks shrink it becomes a fluid.
    """
    cut = chunk_hops(flows, chunk_bytes)
    times = simulate(cut.flows, graph, changes=changes)
    return FlowTimes(
        start_s=times.start_s[cut.first],
        finish_s=times.finish_s[cut.last],
        link_bytes=times.link_bytes,
        events=times.events,
        classes=times.classes,
    )
