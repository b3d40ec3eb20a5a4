"""What a token costs: hardware written off over its life, and electricity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heliograph.checks import check_positive, check_range
from heliograph.tables import Table, read_table


@dataclass(frozen=True, kw_only=True)
class Economics:
    """Prices that turn hardware and energy into cost."""

    name: str = "default"
    """Name of the row set."""
    electricity_usd_per_j: float
    """Price of electrical energy."""
    power_usage_effectiveness: float
    """Power of the building over power of the machines, dimensionless, at least 1."""
    lifetime_s: float
    """Time over which hardware is written off, without residual value."""

    def __post_init__(self) -> None:
        check_range(self, "electricity_usd_per_j")
        check_range(self, "power_usage_effectiveness", low=1.0)
        check_positive(self, "lifetime_s")

    def step_usd(self, *, capital_usd: float, step_time_s: float, energy_j: float) -> dict[str, float]:
        """Return the cost of a step by part: the share of the hardware's life, and the energy."""
        return {
            "hardware": capital_usd * step_time_s / self.lifetime_s,
            "electricity": energy_j * self.power_usage_effectiveness * self.electricity_usd_per_j,
        }


@cache
def economics_table() -> Table:
    """Return the shipped prices."""
    return read_table(Path(__file__).parent / "parameters" / "economics.csv")


def default_economics() -> Economics:
    """Return the prices used unless a user sets others."""
    return economics_table().build(Economics, "default")
