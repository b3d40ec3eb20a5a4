"""The time of a collective as a function of its payload: the lower envelope of straight lines."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import simpy

from heliograph.interfaces import Fabric, Flows
from heliograph.layout import RankLayout
from heliograph.network import Network
from heliograph.operators import Collective
from heliograph.traffic import Traffic

PROBE_BYTES = 2.0**30
"""Payload at which a line's slope is measured; any other gives the same line."""


@dataclass(frozen=True, kw_only=True)
class CollectiveLines:
    """Time of one collective on one group, alone on its links, for any payload.

    Notes
    -----
    Every algorithm with every protocol costs latency + payload x slope (Hockney, Parallel Computing 20 (1994)
    389), and the fastest is taken, so the time is concave and piecewise linear in the payload.
    """

    start_s: np.ndarray
    """Time of an empty payload by each way, shape [K]."""
    s_per_byte: np.ndarray
    """Further time per byte of payload, shape [K]."""
    energy_j_per_byte: np.ndarray
    """Dynamic energy of all ranks of the class per byte of payload, shape [K]."""
    wire_share: np.ndarray
    """Bytes that the class's ranks put on the wire per byte of payload, shape [K]."""

    def time_s(self, payload_bytes: np.ndarray | float) -> np.ndarray:
        """Return the time of payloads, of their shape."""
        payload = np.asarray(payload_bytes, dtype=float)[..., None]
        return (self.start_s + self.s_per_byte * payload).min(axis=-1)

    def energy_j(self, payload_bytes: np.ndarray | float) -> np.ndarray:
        """Return the dynamic energy of payloads by the fastest way, of their shape."""
        payload = np.asarray(payload_bytes, dtype=float)[..., None]
        fastest = (self.start_s + self.s_per_byte * payload).argmin(axis=-1)
        return self.energy_j_per_byte[fastest] * payload[..., 0]

    def slowed(self, factor: float) -> CollectiveLines:
        """Return the lines where bytes take so many times as long."""
        return replace(self, s_per_byte=self.s_per_byte * factor)


NOTHING = CollectiveLines(
    start_s=np.zeros(1), s_per_byte=np.zeros(1), energy_j_per_byte=np.zeros(1), wire_share=np.zeros(1)
)
"""Of a group of one."""


def traffic_alone(layout: RankLayout, fabric: Fabric, demand: dict[tuple[str, int, int], Flows]) -> Traffic:
    """Return the prices of a step's collectives on a fabric that nobody uses.

    Parameters
    ----------
    layout : RankLayout
        Where the ranks stand.
    fabric : Fabric
        What carries the flows.
    demand : dict
        Traffic of the step by (axis, class, direction), by which a fabric with circuits sets them.
    """
    network = Network(simpy.Environment(), fabric, tuple(demand.values()))
    return Traffic(layout, fabric, network, demand)


def collective_lines(operator: Collective, traffic: Traffic, rank_class: int) -> CollectiveLines:
    """Return the lines of a collective of a class; its own payload does not matter.

    Parameters
    ----------
    operator : Collective
        What is done, and along which axis.
    traffic : Traffic
        Prices on the fabric.
    rank_class : int
        Class that takes part.
    """
    if operator.size == 1:
        return NOTHING
    empty, full = (
        traffic.options(replace(operator, payload_bytes=payload), rank_class)
        for payload in (0.0, PROBE_BYTES)
    )
    start_s = np.array([one.alone_s for one in empty])
    return CollectiveLines(
        start_s=start_s,
        s_per_byte=(np.array([one.alone_s for one in full]) - start_s) / PROBE_BYTES,
        energy_j_per_byte=np.array([one.energy_j for one in full]) / PROBE_BYTES,
        wire_share=np.array([one.wire_bytes for one in full]) / PROBE_BYTES,
    )
