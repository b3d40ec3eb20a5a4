"""What a communication library adds to the flows of a collective: protocols, hops, and copies."""

from __future__ import annotations

from dataclasses import replace

from heliograph.collectives import Algorithm, vector_bytes
from heliograph.operators import Collective, CollectiveKind
from heliograph.scale_up import Adder, Protocol, ScaleUp

PLAIN = Protocol(
    name="plain", start_s=0.0, hop_s=0.0, efficiency=1.0, network_hop_s=0.0, network_efficiency=1.0
)
"""No protocol: latency and bandwidth alone."""


def protocols(name: str, scale_up: ScaleUp | None, adder: Adder | None) -> tuple[Protocol, ...]:
    """Return the protocols by which a library may carry out an algorithm.

    Parameters
    ----------
    name : str
        The algorithm.
    scale_up : ScaleUp, optional
        The domain inside nodes, if the fabric says.
    adder : Adder, optional
        How switches between nodes add, if they do.
    """
    if adder is not None and name in {
        Algorithm.IN_SWITCHES,
        Algorithm.HIERARCHICAL_IN_SWITCHES,
        Algorithm.HIERARCHICAL_IN_BOTH,
    }:
        return _switch_protocols(adder, name, scale_up)
    if scale_up is None:
        return (PLAIN,)
    if name in {Algorithm.IN_NETWORK, Algorithm.HIERARCHICAL_IN_NETWORK}:
        long = scale_up.protocols[-1] if scale_up.protocols else PLAIN
        return _node_protocols(scale_up, long if name == Algorithm.HIERARCHICAL_IN_NETWORK else PLAIN)
    return scale_up.protocols or (PLAIN,)


def _node_protocols(scale_up: ScaleUp, between: Protocol) -> tuple[Protocol, ...]:
    """Return protocols of nodes whose switches add, with that of longest vectors between nodes."""
    return tuple(
        replace(
            between,
            name=one.name,
            start_s=one.start_s,
            hop_s=0.0,
            efficiency=one.efficiency,
            chunk_bytes=one.chunk_bytes,
        )
        for one in scale_up.adders
    )


def _switch_protocols(adder: Adder, name: str, scale_up: ScaleUp | None) -> tuple[Protocol, ...]:
    """Return protocols of a node, if it takes part, with switches that add between nodes."""
    parts: tuple[Protocol, ...] = ()
    if name == Algorithm.HIERARCHICAL_IN_BOTH and scale_up is not None:
        parts = _node_protocols(scale_up, PLAIN)
    elif name == Algorithm.HIERARCHICAL_IN_SWITCHES and scale_up is not None:
        parts = scale_up.protocols
    return tuple(
        replace(
            one,
            name=adder.name if one is PLAIN else f"{one.name} {adder.name}",
            start_s=one.start_s + adder.start_s,
            network_hop_s=0.0,
            network_efficiency=adder.efficiency,
            chunk_bytes=max(one.chunk_bytes, adder.chunk_bytes),
        )
        for one in parts or (PLAIN,)
    )


def more_hops(operator: Collective, rounds_outside: int) -> int:
    """Return the hops inside nodes that a library's rings take beyond those of a two-level algorithm.

    Notes
    -----
    NCCL has trees for all-reduces only. It gathers and scatters on rings through all n ranks, one over each
    network card: as fast as two levels for long vectors, but a chunk takes n - 1 hops one after the other
    (src/graph/tuning.cc, latency of the ring algorithm).
    """
    if operator.kind not in {CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER}:
        return 0
    nodes = rounds_outside + 1
    return operator.size - nodes - (operator.size // nodes - 1)


def copied_bytes(operator: Collective) -> float:
    """Return the bytes that a rank passes between its memory and its port, beside the transfer.

    Notes
    -----
    An all-reduce reads and writes the vector once around its ring, a reduce-scatter, an all-gather and an
    all-to-all do half of that, a send, a broadcast and a reduction pass all they move.
    """
    vector = vector_bytes(operator.kind, operator.payload_bytes, operator.size)
    whole = {
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.SEND,
        CollectiveKind.BROADCAST,
        CollectiveKind.REDUCE,
    }
    return vector if operator.kind in whole else vector / 2
