"""Links between neighbours without a packet switch, which electrical and circuit-switched tori share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heliograph.checks import check_positive, check_range
from heliograph.tables import Table, read_table

DIRECT_LINKS = Path(__file__).parent / "parameters" / "direct_links.csv"
"""Links of direct networks with the router ports at their ends."""


@dataclass(frozen=True, kw_only=True)
class DirectLink:
    """A link between two accelerators without a switch, and the router port at each end."""

    name: str = "link"
    """Name shown in tables."""
    bandwidth_bytes_per_s: float
    """Line rate, one way."""
    efficiency: float
    """Share of the line rate that a long transfer reaches, 0 to 1."""
    latency_s: float
    """Time from router to router over copper."""
    energy_j_per_bit: float
    """Dynamic energy of one bit over the link."""
    static_w: float
    """Power of one end."""
    price_usd: float
    """Price of one end of a copper link."""

    def __post_init__(self) -> None:
        check_positive(self, "bandwidth_bytes_per_s")
        check_range(self, "efficiency", high=1.0, open_low=True)
        check_range(self, "latency_s", "energy_j_per_bit", "static_w", "price_usd")


@cache
def direct_link_table() -> Table:
    """Return the table of links between neighbours."""
    return read_table(DIRECT_LINKS)


def load_direct_link(name: str) -> DirectLink:
    """Return a link of a torus from the table, e.g. ``"ici-v4"``."""
    return direct_link_table().build(DirectLink, name)
