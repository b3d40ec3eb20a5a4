"""Fibres and patch panels between the boxes of a fabric: what the lit ends on its bill need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heliograph.checks import check_range
from heliograph.scale_up import BillItem
from heliograph.tables import Table, read_table

CABLES = Path(__file__).parent / "parameters" / "cables.csv"
"""Kinds of cable plant."""


@dataclass(frozen=True, kw_only=True)
class CablePlant:
    """Single-mode fibre and the panels that it is patched through.

    Notes
    -----
    Every optical end on a bill says how many fibres end at it and how much fibre it lights, its half of each
    link. Each fibre end passes `panels` places of a patch panel.
    """

    name: str = "cables"
    """Name shown in tables."""
    fibre_usd_per_m: float
    """Price of one fibre, in trunk cables."""
    panels: int
    """Places in panels that each end of a fibre takes."""
    port_usd: float
    """Price of a place in a panel."""
    port_w: float
    """Power of a place in a panel."""

    def __post_init__(self) -> None:
        check_range(self, "fibre_usd_per_m", "panels", "port_usd", "port_w")

    def bill(self, parts: Mapping[str, BillItem]) -> dict[str, BillItem]:
        """Return fibres, by the metre, and places in panels that the parts of a fabric need.

        Parameters
        ----------
        parts : mapping of str to BillItem
            Bill of a fabric; what is not optical needs none.
        """
        fibre_m = sum(item.count * item.fibre_m for item in parts.values())
        ends = sum(item.count * item.fibre_ends for item in parts.values())
        if not ends:
            return {}
        return {
            "fibre (m)": BillItem(count=round(fibre_m), w_each=0.0, usd_each=self.fibre_usd_per_m),
            "patch panel place": BillItem(
                count=ends * self.panels, w_each=self.port_w, usd_each=self.port_usd
            ),
        }


@cache
def cable_table() -> Table:
    """Return the table of cable plants."""
    return read_table(CABLES)


def load_cables(name: str) -> CablePlant:
    """Return a cable plant from the table, e.g. ``"panels"``."""
    return cable_table().build(CablePlant, name)
