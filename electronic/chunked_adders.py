"""Sums in the switches of a node, chunk by chunk: one adder for each size of chunk that a library uses."""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.checks import check_positive, check_range
from heliograph.errors import ParameterError
from heliograph.scale_up import Adder
from heliograph.units import to_si

KIBIBYTE_BYTES = to_si("chunk_bytes", 1.0, "KiB")
"""Bytes of a kibibyte, by which chunks are named."""


@dataclass(frozen=True, kw_only=True)
class ChunkedAdder:
    """How a communication library has switches add: chunks of a few sizes, many at once.

    Notes
    -----
    The w chunks of c bytes that are in flight pass a port at the rate r, and are then waited for: a round
    lasts w c / r + h. The first sums come back after one round, so that S bytes, S (n + 1) / n on the wire
    of n ranks, take t + (1 + S (n + 1) / (n w c)) (w c / r + h). Short chunks begin sooner, long ones end
    sooner; the library halves the chunk for short vectors.

    References
    ----------
    NCCL, src/enqueue.cc (chunks of 16, 32, 64 and 128 KiB), src/transport/nvls.cc (channels) and
    src/graph/tuning.cc (latencies).
    """

    name: str = "chunked adder"
    """Name shown in records, before the size of the chunk."""
    start_s: float
    """Time to start a collective, once, without the fill."""
    efficiency: float
    """Share of a port's rate that the payload gets within a round, 0 to 1."""
    wait_s: float
    """Time between two rounds of chunks: flags and fences."""
    least_chunk_bytes: float
    """Shortest chunk."""
    most_chunk_bytes: float
    """Longest chunk, a power of two times the shortest."""
    chunks_in_flight: int
    """Chunks that a port has under way at once: channels times ranks."""

    def __post_init__(self) -> None:
        check_range(self, "start_s", "wait_s")
        check_range(self, "efficiency", high=1.0, open_low=True)
        check_positive(self, "least_chunk_bytes", "most_chunk_bytes")
        check_range(self, "chunks_in_flight", low=1)
        if self.most_chunk_bytes < self.least_chunk_bytes:
            msg = (
                f"most_chunk_bytes ({self.most_chunk_bytes:g}) of '{self.name}' must be at least "
                f"least_chunk_bytes ({self.least_chunk_bytes:g}); raise the former or lower the latter"
            )
            raise ParameterError(msg)

    def adders(self, port_bytes_per_s: float) -> tuple[Adder, ...]:
        """Return an adder for each size of chunk, shortest first.

        Parameters
        ----------
        port_bytes_per_s : float
            Rate of a port that a long transfer reaches.
        """
        found = []
        chunk_bytes = self.least_chunk_bytes
        while chunk_bytes <= self.most_chunk_bytes:
            flying_bytes = self.chunks_in_flight * chunk_bytes
            flying_s = flying_bytes / port_bytes_per_s
            round_s = flying_s / self.efficiency + self.wait_s
            adder = Adder(
                name=f"{self.name}-{chunk_bytes / KIBIBYTE_BYTES:.0f}k",
                start_s=self.start_s + round_s,
                efficiency=flying_s / round_s,
                chunk_bytes=flying_bytes,
            )
            found.append(adder)
            chunk_bytes *= 2
        return tuple(found)
