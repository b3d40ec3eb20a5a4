"""Off-chip memory: the wall that light does not remove, shared by GPUs and photonic accelerators."""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.amounts import AmountT
from heliograph.checks import check_positive, check_range


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A stack of high-bandwidth memory beside an accelerator."""

    name: str = "hbm"
    """Name shown in tables."""
    capacity_bytes: float
    """Capacity."""
    bandwidth_bytes_per_s: float
    """Peak bandwidth."""
    efficiency: float
    """Share of the peak that a long stream reaches, 0 to 1."""
    energy_j_per_byte: float
    """Energy of moving one byte to or from the accelerator."""
    static_w: float
    """Power for refresh and idle interfaces."""
    turnaround_efficiency: float = 1.0
    """Share of that rate which is left where reads and writes take turns, 0 to 1."""

    def __post_init__(self) -> None:
        check_positive(self, "capacity_bytes", "bandwidth_bytes_per_s")
        check_range(self, "efficiency", "turnaround_efficiency", low=0.0, high=1.0, open_low=True)
        check_range(self, "energy_j_per_byte", "static_w")

    def time_s(self, moved_bytes: AmountT) -> AmountT:
        """Return how long moving so many bytes takes as one stream."""
        return moved_bytes / (self.bandwidth_bytes_per_s * self.efficiency)

    def mixed_time_s(self, moved_bytes: float) -> float:
        """Return how long moving so many bytes takes where reads and writes take turns."""
        return self.time_s(moved_bytes) / self.turnaround_efficiency

    def energy_j(self, moved_bytes: AmountT) -> AmountT:
        """Return the dynamic energy of moving so many bytes."""
        return moved_bytes * self.energy_j_per_byte
