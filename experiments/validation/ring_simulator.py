"""What ASTRA-sim's analytical network gives for a ring algorithm, and what the same wires would take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType

from experiments.validation.cells import Record, SkipError
from heliograph.errors import ParameterError
from heliograph.operators import CollectiveKind
from heliograph.torus import regular
from heliograph.units import to_si

NEEDED_COLUMNS = ("collective", "size_bytes", "topology", "npus", "bw_GBps", "lat_ns", "endpoint_ns")
"""Columns without which a run cannot be repeated."""
NS_PER_S = 10**9
"""The simulator counts whole nanoseconds."""
BYTES_PER_GB = 2**30
"""Its gigabyte, of the network only."""
MEMORY_BYTES_PER_NS = 1600
"""Rate at which it reduces; of its own example systems (1600 GB/s, decimal)."""
MEMORY_PASSES = 3
"""Passes over memory of a reduction: two operands are read and one is written."""
HOPS = MappingProxyType({"Ring": 1, "Switch": 2})
"""Topology -> links between neighbours of the ring."""


@dataclass(frozen=True, kw_only=True)
class RingRun:
    """One collective by the ring algorithm, as that simulator's files describe it."""

    kind: CollectiveKind
    """What is done."""
    size_bytes: int
    """What a rank holds; of an all-gather what it contributes."""
    ranks: int
    """Ranks on the ring."""
    hops: int
    """Links from a rank to the next."""
    gigabytes_per_s: float
    """Rate of a link as written, in the simulator's gigabytes."""
    latency_ns: float
    """Latency of a link as written."""
    endpoint_ns: int
    """Delay at an end of each message."""
    splits: int = 1
    """Chunks that are run one after another."""

    @property
    def steps(self) -> int:
        """Messages one after another."""
        ranks = self.ranks
        return {
            CollectiveKind.ALL_REDUCE: 2 * (ranks - 1),
            CollectiveKind.REDUCE_SCATTER: ranks - 1,
            CollectiveKind.ALL_GATHER: ranks - 1,
            CollectiveKind.ALL_TO_ALL: ranks * (ranks - 1) // 2,
        }[self.kind]

    @property
    def reductions(self) -> int:
        """Messages whose content is summed."""
        reduces = self.kind in {CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER}
        return self.ranks - 1 if reduces else 0

    def simulated_s(self) -> float:
        """Return the time by that simulator's rules, exact to its nanosecond.

        Notes
        -----
        splits [S (e + floor(h lat + msg / rate)) + R 3 floor(msg / memory) + e], with a gigabyte of 2^30
        bytes, times cut to whole nanoseconds, and an all-gather's size counted per rank. Found from runs of
        ASTRA-sim's congestion-unaware backend; an all-to-all passes chunks around the ring in one direction.
        """
        chunk = self.size_bytes // self.splits
        message = chunk if self.kind is CollectiveKind.ALL_GATHER else chunk // self.ranks
        bytes_per_ns = self.gigabytes_per_s * BYTES_PER_GB / NS_PER_S
        step_ns = self.endpoint_ns + math.floor(self.hops * self.latency_ns + message / bytes_per_ns)
        reduce_ns = MEMORY_PASSES * (message // MEMORY_BYTES_PER_NS)
        whole_ns = self.steps * step_ns + self.reductions * reduce_ns + self.endpoint_ns
        return self.splits * whole_ns / NS_PER_S

    def physical_s(self) -> float:
        """Return the time that latency and rate of the same wires allow, with nothing else in the way.

        Notes
        -----
        A gigabyte is 1e9 bytes. Splits overlap instead of waiting. Around a ring each rank passes its part
        on in steps, one way; all-to-all goes the shorter way on both directions of a ring (load n^2 / 8 of a
        link), or at once through a switch (n - 1 parts out of each port).
        """
        rate = to_si("rate_bytes_per_s", self.gigabytes_per_s, "GB/s")
        latency_s = to_si("latency_s", self.latency_ns, "ns") * self.hops
        part_bytes = self.size_bytes / self.ranks
        if self.kind is CollectiveKind.ALL_GATHER:
            part_bytes = float(self.size_bytes)
        if self.kind is not CollectiveKind.ALL_TO_ALL:
            return self.steps * (latency_s + part_bytes / rate)
        if self.hops == HOPS["Switch"]:
            return latency_s + (self.ranks - 1) * part_bytes / rate
        ring = regular((self.ranks,))
        return ring.diameter * latency_s + ring.time_s(part_bytes, rate)


def ring_run(record: Record) -> RingRun:
    """Return the run that a row describes.

    Raises
    ------
    SkipError
        If it is no ring algorithm whose chunks wait for each other, on one ring or switch.
    ParameterError
        If a number cannot be one.
    """
    topology, algorithm = record.text("topology"), record.text("algo")
    if topology not in HOPS or algorithm != "ring":
        what = f"algorithm '{algorithm}' on '{topology}'"
        msg = f"{what}: only the ring algorithm on one Ring or Switch is repeated"
        raise SkipError(msg)
    kinds = {kind.value: kind for kind in CollectiveKind if kind in REPEATED}
    name = record.text("collective")
    if name not in kinds:
        msg = f"collective '{name}' is not repeated; known: {', '.join(kinds)}"
        raise SkipError(msg)
    kind, splits = kinds[name], record.whole("splits") or 1
    if splits > 1 and (record.whole("active") or 1) > 1:
        msg = "chunks that overlap (active above 1) are not repeated"
        raise SkipError(msg)
    neighbours_only = topology == "Ring" and kind is not CollectiveKind.ALL_TO_ALL
    if record.text("backend") != "unaware" and not neighbours_only:
        what = f"backend '{record.text('backend')}'"
        msg = f"{what} queues messages that share links; only neighbours on a ring do not"
        raise SkipError(msg)
    missing = [column for column in NEEDED_COLUMNS if not record.text(column)]
    if missing:
        msg = f"no {missing[0]} is given"
        raise SkipError(msg)
    rate = record.number("bw_GBps") or 0.0
    if rate <= 0.0:
        msg = f"{record.where}: column 'bw_GBps' is {rate:g}; it must be finite and positive"
        raise ParameterError(msg)
    record.assume("ASTRA-sim's own rules; its memory reduces at 1600 bytes a nanosecond")
    return RingRun(
        kind=kind,
        size_bytes=record.needed("size_bytes"),
        ranks=record.needed("npus"),
        hops=HOPS[topology],
        gigabytes_per_s=rate,
        latency_ns=record.number("lat_ns") or 0.0,
        endpoint_ns=int(record.number("endpoint_ns") or 0.0),
        splits=splits,
    )


REPEATED = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
)
"""Collectives that are repeated."""
