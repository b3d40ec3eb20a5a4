"""Banks of optical circuit switches that schedules are made for, and lanes of a port."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.checks import check_range, check_whole

MOST_SWITCHES = 1024
"""Most switches of a bank; TPU v4 has 48 (Jouppi et al., arXiv:2304.01433). Dimensionless."""


@dataclass(frozen=True, kw_only=True)
class OcsBank:
    """Bank of optical circuit switches side by side, and a packet switch if there is one."""

    rate_bytes_per_s: float
    """Rate of one circuit."""
    reconfiguration_s: float
    """Reconfiguration time before each configuration."""
    switches: int = 1
    """Circuit switches side by side, each with a circuit of every port."""
    packet_rate_bytes_per_s: float = 0.0
    """Rate of each port into a packet switch for the rest; zero for none."""

    def __post_init__(self) -> None:
        check_range(self, "rate_bytes_per_s", open_low=True)
        check_range(self, "reconfiguration_s", "packet_rate_bytes_per_s")
        check_range(self, "switches", low=1, high=MOST_SWITCHES)
        check_whole(self, "switches")


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """Lanes of a port that are shared out among axes of parallelism."""

    count: int
    """Lanes of a port."""
    rate_bytes_per_s: float
    """Rate of one lane."""
    reconfiguration_s: float
    """Reconfiguration time of a move."""

    def __post_init__(self) -> None:
        check_range(self, "count", low=1)
        check_whole(self, "count")
        check_range(self, "rate_bytes_per_s", open_low=True)
        check_range(self, "reconfiguration_s")
